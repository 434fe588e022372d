//! The policy while somebody serves: it is there before the first call, and if it cannot be used any more,
//! that is told.

use std::fs;

use serde_json::{Value, json};

use crate::person;
use crate::support::{Server, skip, until};

const PURE: &str = "
rules:
  - { name: pure, match: { effect: pure }, action: allow }
";
const EXTENDED: &str = "
extensions: [small.ts]
rules:
  - { name: pure, match: { effect: pure }, action: allow }
";
const SMALL: &str = "
export default function small(call: { tool: string; args: any }) {
    return call.args.a > 1000 ? { decision: 'deny', reason: 'too large' } : { decision: 'pass' };
}";

fn add(server: &Server, key: &str, a: i64) -> (u16, Value) {
    let body = json!({"arguments": {"a": a, "b": 2}});
    let answer = server.post("/v1/tools/add/call", key, &body.to_string());
    (answer.status, answer.json())
}

fn readiness(server: &Server) -> (u16, Value) {
    let ready = server.get("/readyz", None);
    (ready.status, ready.json())
}

/// The reasons of calls that were refused, as the record tells them.
fn denied(server: &Server) -> Vec<String> {
    let log = server.command(&["audit", "log", "--json"]).output().unwrap();
    let events = String::from_utf8(log.stdout).unwrap();
    let events = events.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let denied = events.filter(|event| event["kind"] == "denied");
    denied.map(|event| event["reason"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn pol_01_pol_18_a_policy_that_cannot_be_used_any_more_is_told_by_readiness_and_each_refusal_recorded()
 {
    let server = Server::with_alice(PURE);
    let key = server.key("tools");
    assert_eq!(readiness(&server).1["policy"], "ok");
    assert_eq!(add(&server, &key, 1).0, 200);
    let file = server.home().join("policy.yaml");
    let text = fs::read_to_string(&file).unwrap();
    let changes: [(&str, &dyn Fn()); 2] = [
        ("`policy.yaml` is not the policy that holds", &|| {
            fs::write(&file, text.replace("allow", "deny")).unwrap();
        }),
        ("`policy.yaml` is gone", &|| fs::remove_file(&file).unwrap()),
    ];
    for (number, (what, change)) in (1..).zip(changes) {
        change();
        let (status, said) = add(&server, &key, 1);
        assert_eq!((status, said["what"].as_str()), (500, Some(what)), "{said}");
        // What was found a moment ago is good for a second.
        until(|| readiness(&server).1["policy"] != "ok");
        let (status, ready) = readiness(&server);
        assert_eq!((status, &ready["ready"], &ready["policy"]), (503, &json!(false), &json!(what)));
        assert_eq!(ready["record"], "ok", "{ready}");
        assert!(!ready.to_string().contains(server.home().to_str().unwrap()), "{ready}");
        // Through the socket it is the same, and looking is no call.
        let call = ["tool", "call", "add", "{\"a\": 1, \"b\": 2}"];
        assert_eq!(server.command(&call).output().unwrap().status.code(), Some(120));
        let denied = denied(&server);
        assert_eq!(denied.len(), 2 * number, "{denied:?}");
        assert!(denied[2 * number - 2..].iter().all(|why| why.starts_with(what)), "{denied:?}");
        fs::write(&file, &text).unwrap();
        until(|| readiness(&server).1["policy"] == "ok");
        assert_eq!(add(&server, &key, 1).0, 200);
    }
}

/// All processes below another.
fn below(pid: u32) -> Vec<u32> {
    let parent = |pid: u32| -> Option<u32> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()
    };
    let all = fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let is_below = |one: &u32| {
        std::iter::successors(Some(*one), |one| parent(*one)).skip(1).any(|above| above == pid)
    };
    all.filter_map(|name| name.parse().ok()).filter(is_below).collect()
}

/// Those that evaluate rules in TypeScript.
fn evaluators(server: &Server) -> Vec<u32> {
    let is_one = |pid: &u32| {
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        name.trim_end() == "evaluator"
    };
    below(server.pid()).into_iter().filter(is_one).collect()
}

#[test]
fn rules_in_typescript_wait_before_the_first_call() {
    let plain = Server::with_alice(PURE);
    if !plain.has_sandbox() {
        return skip("rules in TypeScript need a sandbox");
    }
    assert!(evaluators(&plain).is_empty(), "nobody needs one");
    let server = Server::prepared(|dir| {
        let sources = [("small.ts".to_owned(), SMALL.to_owned())].into();
        person::follow_with(&dir.path().join("home"), &[], EXTENDED, sources);
    });
    let waiting = evaluators(&server);
    assert_eq!(waiting.len(), 1, "{:?}", below(server.pid()));
    let key = server.key("tools");
    assert_eq!(add(&server, &key, 1).0, 200);
    assert_eq!(add(&server, &key, 2000).0, 403);
    assert_eq!(evaluators(&server), waiting, "it is the one that was asked");
}
