//! The commands around the record, on runs that really were.

use std::fs;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::{LONG, Ran, Started, World, line, until};

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

/// A run that says `ready` and ends when there is something on its standard input.
fn waiting(world: &World, then: &str) -> (Started, std::process::ChildStdin) {
    let script = format!("echo ready; echo so >&2; read word; {then}");
    let mut command = world.command(&["run", "--stdin", "-", "--", "sh", "-c", &script]);
    command.stdin(std::process::Stdio::piped());
    let (mut started, mut stdout) = Started::with_stdout(command);
    assert_eq!(line(&mut stdout), "ready");
    let stdin = started.child.stdin.take().unwrap();
    // What is not read any more must not end it.
    std::thread::spawn(move || std::io::copy(&mut stdout, &mut std::io::sink()));
    (started, stdin)
}

fn live_files(world: &World) -> usize {
    fs::read_dir(world.home().join("run/live")).map_or(0, Iterator::count)
}

#[test]
fn a_run_of_another_process_is_followed_until_its_end() {
    let Some(world) = World::new() else { return };
    let (started, stdin) = waiting(&world, "echo $((6 * 7)); echo end >&2; exit 3");
    let (follower, mut stdout) = Started::with_stdout(world.command(&["logs", "-f"]));
    assert_eq!(line(&mut stdout), "ready");
    until(LONG, || (live_files(&world) == 1).then_some(())).expect("it is on the disk");
    // Without -f, what there is so far.
    world.run(&["logs"]).is(0, "ready\n", "so\n");
    let id = world.run(&["runs"]).text()[..26].to_owned();
    assert_eq!(shown(&world, &id)["status"], Value::Null);
    drop(stdin);
    assert_eq!(line(&mut stdout), "42");
    assert_eq!(line(&mut stdout), "");
    let followed = follower.finish(LONG);
    assert_eq!((followed.code, &*followed.errors()), (0, "so\nend\n"));
    assert_eq!(started.finish(LONG).code, 3);
    assert_eq!(live_files(&world), 0);
    // And afterwards from the ledger.
    world.run(&["logs", &id]).is(0, "ready\n42\n", "so\nend\n");
    world.run(&["logs", "-f", &id]).is(0, "ready\n42\n", "so\nend\n");
}

#[test]
fn who_follows_a_run_whose_process_is_killed_is_told() {
    let Some(world) = World::new() else { return };
    let (started, stdin) = waiting(&world, "echo never");
    until(LONG, || (live_files(&world) == 1).then_some(())).expect("it is on the disk");
    let (follower, mut stdout) = Started::with_stdout(world.command(&["logs", "-f"]));
    assert_eq!(line(&mut stdout), "ready");
    started.signal(Signal::KILL);
    let followed = follower.finish(LONG);
    assert_eq!(followed.code, 0);
    assert_eq!(followed.errors(), "so\nhotcell: whoever ran it ended before it did\n");
    drop((stdin, started.finish(LONG)));
    let id = world.run(&["runs"]).text()[..26].to_owned();
    assert_eq!(shown(&world, &id)["status"], json!("unknown"));
    // What it left is swept by the next that lasts.
    let (next, stdin) = waiting(&world, "true");
    until(LONG, || {
        let names = fs::read_dir(world.home().join("run/live")).unwrap();
        let names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
        (names.len() == 1 && names[0] != *id).then_some(())
    })
    .expect("it is swept");
    drop(stdin);
    next.finish(LONG);
}

#[test]
fn what_a_run_uses_is_told_with_times_while_it_goes_on() {
    let Some(world) = World::with_cgroups() else { return };
    let (started, stdin) = waiting(&world, "true");
    let (follower, mut stdout) = Started::with_stdout(world.command(&["logs", "-f", "--json"]));
    let entries: Vec<Value> =
        (0..4).map(|_| serde_json::from_str(&line(&mut stdout)).unwrap()).collect();
    drop(stdin);
    let used: Vec<&Value> = entries.iter().filter(|e| e["memory_bytes"].is_u64()).collect();
    assert_eq!(used.len(), 2, "{entries:?}");
    let at: Vec<f64> = used.iter().map(|entry| entry["at_ms"].as_f64().unwrap()).collect();
    assert!(at[0] >= 200.0 && at[1] - at[0] >= 500.0, "{at:?}");
    assert!(used.iter().all(|entry| entry["cpu_ms"].is_f64()), "{used:?}");
    std::thread::spawn(move || std::io::copy(&mut stdout, &mut std::io::sink()));
    follower.finish(LONG);
    started.finish(LONG);
}
