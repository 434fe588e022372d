//! Calls that somebody has to agree to, and what ends them.

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

/// Nobody else sleeps so long.
fn long(server: &Server, which: usize) -> String {
    format!("sleep 7{:07}", server.pid() as usize * 4 + which)
}

fn await_of(item: &str) -> String {
    format!("/v1/approvals/{item}/await")
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
