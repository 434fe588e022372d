//! The commands around the record, on runs that really were.

use serde_json::{Value, json};

use crate::support::{Ran, World};

/// Runs it, and gives the id of its call.
fn call(world: &World, words: &[&str]) -> String {
    let ran = world.run(&[&["run", "--json"], words].concat());
    ran.json()["id"].as_str().unwrap().to_owned()
}

fn shown(world: &World, id: &str) -> Value {
    world.run(&["runs", "show", "--json", id]).json()
}

#[track_caller]
fn is_refused(ran: &Ran, code: i32, what: &str) {
    assert_eq!((ran.code, &*ran.text()), (code, ""), "{ran:?}");
    assert!(ran.errors().starts_with(&format!("error: {what}")), "{ran:?}");
}

#[test]
fn a_call_is_shown_with_all_that_is_known_of_it() {
    let Some(world) = World::new() else { return };
    world.file("data.csv", b"b,2\na,1\n");
    let script = "cat data.csv; echo oops >&2; sort data.csv > sorted.csv; exit 3";
    let words = ["--input", "data.csv", "--timeout", "7s", "--", "sh", "-c", script];
    let id = call(&world, &words);
    let call = shown(&world, &id);
    assert_eq!((&call["call"], &call["tool"]), (&json!(id), &json!("run@1.0.0")));
    assert_eq!((&call["decision"], &call["status"]), (&json!("allow"), &json!("failure")));
    assert_eq!(call["rules"], json!(["code-in-a-sandbox"]));
    assert_eq!(call["arguments"]["command"], json!(["sh", "-c", script]));
    let run = &call["run"];
    assert_eq!((&run["exit"], &run["limits"]["timeout"]), (&json!({"code": 3}), &json!(7000)));
    assert_eq!(run["stdout"], json!({"bytes": 8, "truncated": false}));
    assert!(run["usage"]["wall_ms"].is_u64() && run["usage"]["cpu_ms"] != Value::Null, "{run}");
    assert!(run["layers"].as_array().is_some_and(|layers| layers.len() > 3), "{run}");
    let made: Vec<_> = call["artifacts"].as_array().unwrap().iter().map(|a| &a["role"]).collect();
    assert_eq!(made, ["input", "file", "stdout", "stderr"]);
    let events: Vec<_> = call["events"].as_array().unwrap().iter().map(|e| &e["kind"]).collect();
    assert_eq!((events.first(), events.len()), (Some(&&json!("intent")), 6), "{events:?}");
    let page = world.run(&["runs", "show", &id]);
    for line in ["status      failure", "ended with  exit 3", "given ", "printed ", "made "] {
        assert!(page.text().contains(&format!("\n{line}")), "{line}: {page:?}");
    }
}

#[test]
fn what_did_not_run_is_shown_as_well() {
    let Some(world) = World::new() else { return };
    let denied = world.run(&["tool", "call", "fs.write", r#"{"path": "a", "text": "b"}"#]);
    assert_eq!(denied.code, 119);
    let log = world.run(&["audit", "log", "--json"]).text();
    let event: Value = serde_json::from_str(log.lines().last().unwrap()).unwrap();
    let call = shown(&world, event["call"].as_str().unwrap());
    assert_eq!((&call["decision"], &call["status"]), (&json!("deny"), &json!("blocked")));
    assert_eq!((&call["run"], &call["reason"]), (&Value::Null, &json!("no rule allows it")));
}

#[test]
fn a_file_may_be_called_show_and_who_means_a_call_is_told() {
    let Some(world) = World::new() else { return };
    let unknown = "01ARZ3NDEKTSV4RRFFQ69G5FAV";
    let ran = world.run(&["run", "show", unknown]);
    is_refused(&ran, 127, "there is no file `show`\n  fix: `hotcell runs show ID` shows a call");
    world.file("show", b"#!/bin/sh\necho a file\n");
    world.run(&["run", "show", unknown]).is(0, "a file\n", "");
    is_refused(&world.run(&["runs", "show", unknown]), 127, &format!("there is no call {unknown}"));
    is_refused(&world.run(&["runs", "show", "x"]), 121, "`x` does not suit");
}
