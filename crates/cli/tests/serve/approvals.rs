//! Calls that somebody has to agree to: who may have them carried out, and what ends them.

use std::io::Write;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};

use super::ends::{sleepers, wait_for};
use super::mcp;
use super::person::{PASSPHRASE, at_terminal};
use super::support::{LONG, Server, until};

/// Where alice has to agree to sums and to whatever executes something.
const RULES: &str = "rules:
  - { name: sums, match: { tool: add }, action: require_review, reason: sums are looked at }
  - { name: code, match: { tool: [run, code_execute] }, action: require_review, reason: so is code }
";

fn approve(server: &Server, item: &str) {
    let typed = [("Passphrase of alice", PASSPHRASE)];
    let (approved, screen) = at_terminal(&server.command(&["approve", item]), &typed);
    assert!(approved.status.success(), "{screen}");
}

/// The item and the call of something that waits for alice.
fn reviewed(server: &Server, path: &str, key: &str, body: &Value) -> (String, String) {
    let answer = server.post(path, key, &body.to_string());
    assert_eq!(answer.status, 202, "{answer:?}");
    let answer = answer.json();
    let text = |name: &str| answer[name].as_str().unwrap().to_owned();
    (text("review"), text("id"))
}

fn sum() -> Value {
    json!({"arguments": {"a": 1, "b": 2}})
}

/// Nobody else sleeps so long.
fn long(server: &Server, which: usize) -> String {
    format!("sleep 7{:07}", server.pid() as usize * 4 + which)
}

fn await_of(item: &str) -> String {
    format!("/v1/approvals/{item}/await")
}

#[test]
fn a_key_for_tools_executes_nothing_by_whatever_way() {
    let server = Server::start();
    let (tools, both) = (server.key("tools"), server.key("tools,run,runs:read"));
    let code = json!({"language": "shell", "code": "echo 42"});
    for (tool, body) in [
        ("code_execute", json!({"arguments": code})),
        ("code_execute", json!({"arguments": code, "version": "1"})),
        ("run", json!({"arguments": {}})),
        ("env.create", json!({"arguments": {}})),
    ] {
        let refused = server.post(&format!("/v1/tools/{tool}/call"), &tools, &body.to_string());
        refused.is_problem(403, "wrong-scope");
        assert!(refused.text().contains("`run`"), "{refused:?}");
    }
    // One of them is enough, and then none is begun.
    let calls = json!({"calls": [
        {"request": {"tool": "add", "arguments": {"a": 1, "b": 2}}},
        {"request": {"tool": "code_execute", "arguments": code}},
    ]});
    let refused = server.post("/v1/batch", &tools, &calls.to_string());
    refused.is_problem(403, "wrong-scope");
    assert_eq!(refused.json()["at"], "/calls/1/request", "{refused:?}");
    assert_eq!(server.get("/v1/runs", Some(&both)).json()["runs"], json!([]));
    assert_eq!(server.post("/v1/tools/add/call", &tools, &sum().to_string()).status, 200);
    if server.has_sandbox() {
        let body = json!({"arguments": code}).to_string();
        let done = server.post("/v1/tools/code_execute/call", &both, &body);
        assert_eq!((done.status, &done.json()["status"]), (200, &json!("success")), "{done:?}");
        assert_eq!(server.post("/v1/batch", &both, &calls.to_string()).status, 200);
    }
}

#[test]
fn who_may_make_a_call_may_wait_for_it_and_nobody_else_of_the_same_name() {
    let server = Server::with_alice(RULES);
    let (tools, both, run) = (server.key("tools"), server.key("tools,run"), server.key("run"));
    let (item, _) = reviewed(&server, "/v1/tools/add/call", &tools, &sum());
    server.ask("POST", &await_of(&item), Some(&run), "", None).is_problem(403, "wrong-scope");
    approve(&server, &item);
    let done = server.ask("POST", &await_of(&item), Some(&tools), "", None);
    assert_eq!((done.status, &done.json()["value"]), (200, &json!(3)), "{done:?}");
    // The same in a session.
    let (item, _) = reviewed(&server, "/v1/tools/add/call", &tools, &sum());
    approve(&server, &item);
    let session = mcp::begin(&server, &tools);
    let wait = mcp::call("await_approval", json!({"item": item}));
    let done = mcp::last(&mcp::post(&server, &tools, Some(&session), &wait));
    assert_eq!(done["result"]["content"][0]["text"], "3", "{done}");
    // Who may not run code does not have it carried out either, though the item is of the same subject.
    let code = json!({"arguments": {"language": "shell", "code": "echo 42"}});
    let (item, _) = reviewed(&server, "/v1/tools/code_execute/call", &both, &code);
    approve(&server, &item);
    server.ask("POST", &await_of(&item), Some(&tools), "", None).is_problem(403, "wrong-scope");
    let wait = mcp::call("await_approval", json!({"item": item}));
    let refused = mcp::last(&mcp::post(&server, &tools, Some(&session), &wait));
    assert!(refused.to_string().contains("the key does not open this"), "{refused}");
    if server.has_sandbox() {
        let done = server.ask("POST", &await_of(&item), Some(&run), "", None);
        assert_eq!(done.json()["value"]["stdout"], "42\n", "{done:?}");
    }
}

/// A run that waits for a person, that somebody has agreed to, and that goes on for as long as it is let.
fn agreed(server: &Server, key: &str, which: usize) -> (String, String) {
    let body = json!({"run": {"command": ["sh", "-c", long(server, which)]}});
    let (item, call) = reviewed(server, "/v1/runs", key, &body);
    approve(server, &item);
    (item, call)
}

#[test]
fn who_goes_away_while_an_approved_call_goes_on_ends_it() {
    let server = Server::with_alice(RULES);
    if !server.has_sandbox() {
        return;
    }
    let key = server.key("run,tools,runs:read");
    let (item, call) = agreed(&server, &key, 0);
    let mut waits = server.connect();
    waits.write_all(server.head("POST", &await_of(&item), Some(&key), "\r\n").as_bytes()).unwrap();
    until(|| sleepers(&long(&server, 0)) > 0);
    // Somebody else who waits for the same call goes away, and it goes on.
    let mut other = server.connect();
    other.write_all(server.head("POST", &await_of(&item), Some(&key), "\r\n").as_bytes()).unwrap();
    thread::sleep(Duration::from_millis(500));
    drop(other);
    thread::sleep(Duration::from_millis(1500));
    assert!(sleepers(&long(&server, 0)) > 0);
    drop(waits);
    assert_eq!(wait_for(&server, &key, &call), "cancelled");
    until(|| sleepers(&long(&server, 0)) == 0);
}

#[test]
fn the_end_of_the_server_ends_approved_calls_that_are_waited_for() {
    let mut server = Server::with_alice(RULES);
    if !server.has_sandbox() {
        return;
    }
    let key = server.key("run,tools,runs:read");
    let (by_rest, first) = agreed(&server, &key, 0);
    let (by_mcp, second) = agreed(&server, &key, 1);
    let session = mcp::begin(&server, &key);
    let mut waits = server.connect();
    let head = server.head("POST", &await_of(&by_rest), Some(&key), "\r\n");
    waits.write_all(head.as_bytes()).unwrap();
    let begun = thread::scope(|scope| {
        let wait = mcp::call("await_approval", json!({"item": by_mcp}));
        let asked = &server;
        // Whether there still is an answer is not what matters.
        scope.spawn(move || mcp::sent(asked, &key, &session, &wait));
        until(|| (0..2).all(|which| sleepers(&long(&server, which)) > 0));
        let begun = Instant::now();
        server.signal(Signal::TERM);
        until(|| server.said().contains("stopping"));
        server.signal(Signal::TERM);
        begun
    });
    assert_eq!(server.ended(LONG), Some(0), "{}", server.said());
    assert!(server.said().contains("stopped clean=true"), "{}", server.said());
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
    assert!((0..2).all(|which| sleepers(&long(&server, which)) == 0));
    for call in [first, second] {
        let shown = server.command(&["runs", "show", &call, "--json"]).output().unwrap();
        let shown: Value = serde_json::from_slice(&shown.stdout).unwrap();
        assert_eq!(shown["status"], "cancelled", "{shown}");
    }
}

/// As a client of that protocol takes back what it has asked for.
#[test]
fn a_session_that_cancels_its_waiting_ends_the_approved_call() {
    let server = Server::with_alice(RULES);
    if !server.has_sandbox() {
        return;
    }
    let key = server.key("run,tools,runs:read");
    let (item, call) = agreed(&server, &key, 0);
    let session = mcp::begin(&server, &key);
    let wait = mcp::call("await_approval", json!({"item": item}));
    thread::scope(|scope| {
        scope.spawn(|| mcp::sent(&server, &key, &session, &wait));
        until(|| sleepers(&long(&server, 0)) > 0);
        let enough = json!({"jsonrpc": "2.0", "method": "notifications/cancelled",
            "params": {"requestId": wait["id"], "reason": "enough"}});
        assert_eq!(mcp::post(&server, &key, Some(&session), &enough).status, 202);
        assert_eq!(wait_for(&server, &key, &call), "cancelled");
    });
    until(|| sleepers(&long(&server, 0)) == 0);
}
