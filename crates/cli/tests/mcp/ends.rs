//! How calls and servers end.

use std::fs;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::client::{Client, LONG, World, text};

/// A run that goes on for a minute, once it has begun.
fn long_run(client: &mut Client) -> u64 {
    let id = client.begin(
        "tools/call",
        json!({ "name": "run_code", "_meta": { "progressToken": 1 },
            "arguments": { "command": ["sh", "-c", "echo on; sleep 60"] } }),
    );
    client.until(|one| one.to_string().contains("bytes printed"));
    id
}

/// How runs ended, as the record has it.
fn newest(world: &World) -> String {
    String::from_utf8(world.run(&["runs", "--json"]).stdout).unwrap()
}

#[test]
fn a_call_that_is_cancelled_ends_and_has_no_answer() {
    let Some(world) = World::with_sandbox() else { return };
    let mut client = world.client(&[]);
    let begun = Instant::now();
    let id = long_run(&mut client);
    client.tell("notifications/cancelled", json!({ "requestId": id, "reason": "enough" }));
    // Again, which changes nothing.
    client.tell("notifications/cancelled", json!({ "requestId": id }));
    while !newest(&world).contains("cancelled") {
        assert!(begun.elapsed() < Duration::from_secs(30), "{}", newest(&world));
        thread::sleep(Duration::from_millis(50));
    }
    assert!(client.is_alive());
    assert!(client.kept().all(|one| one["id"] != id));
}

#[test]
fn other_calls_go_on_beside_a_long_one() {
    let Some(world) = World::with_sandbox() else { return };
    let mut client = world.client(&[]);
    let begun = Instant::now();
    let id = long_run(&mut client);
    assert_eq!(client.call("add", json!({ "a": 1, "b": 2 }))["isError"], false);
    assert!(client.is_alive());
    assert!(begun.elapsed() < Duration::from_secs(30));
    client.tell("notifications/cancelled", json!({ "requestId": id }));
}

#[test]
fn the_end_of_the_input_ends_everything_soon_and_in_order() {
    let Some(world) = World::with_sandbox() else { return };
    let mut client = world.client(&[]);
    long_run(&mut client);
    let begun = Instant::now();
    client.hang_up();
    assert_eq!(client.end(), 0);
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    assert!(newest(&world).contains("cancelled"), "{}", newest(&world));
    let verified = world.run(&["audit", "verify"]);
    assert!(String::from_utf8_lossy(&verified.stdout).starts_with("sound"), "{verified:?}");
}

#[test]
fn what_was_asked_for_before_the_end_of_the_input_is_answered() {
    let world = World::new();
    let mut client = world.client(&[]);
    let id = client.begin("tools/call", json!({ "name": "add", "arguments": { "a": 1, "b": 2 } }));
    client.hang_up();
    assert_eq!(client.answer(id)["result"]["content"][0]["text"], "3");
    assert_eq!(client.end(), 0);
}

#[test]
fn sigterm_ends_what_runs_and_then_the_server() {
    let Some(world) = World::with_sandbox() else { return };
    let mut client = world.client(&[]);
    long_run(&mut client);
    let begun = Instant::now();
    kill_process(Pid::from_child(&client.child), Signal::TERM).unwrap();
    assert_eq!(client.end(), 0);
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    assert!(newest(&world).contains("cancelled"), "{}", newest(&world));
}

#[test]
fn a_server_that_nobody_ever_spoke_to_ends_with_its_input_or_a_signal() {
    let world = World::new();
    let mut client = world.silent(&[]);
    client.hang_up();
    assert_eq!(client.end(), 0);
    let mut client = world.silent(&[]);
    thread::sleep(Duration::from_millis(300));
    kill_process(Pid::from_child(&client.child), Signal::TERM).unwrap();
    assert_eq!(client.end(), 0);
    // Half of a message is none.
    let mut client = world.client(&[]);
    client.write(b"{\"jsonrpc\":");
    client.hang_up();
    assert_eq!(client.end(), 0);
}

#[test]
fn who_does_not_read_any_more_is_gone() {
    let world = World::new();
    let mut child =
        world.command(&["mcp"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let mut stdin = child.stdin.take().unwrap();
    std::io::Write::write_all(&mut stdin, b"garbage\n").unwrap();
    let begun = Instant::now();
    while child.try_wait().unwrap().is_none() {
        assert!(begun.elapsed() < LONG);
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn what_cannot_be_served_is_told_on_standard_error_and_never_on_standard_output() {
    let world = World::new();
    let ran = world.run(&["mcp", "--workspace", "no-such"]);
    assert_ne!(ran.status.code(), Some(0));
    assert!(ran.stdout.is_empty(), "{ran:?}");
    assert!(String::from_utf8_lossy(&ran.stderr).starts_with("error: "), "{ran:?}");
}

/// Whoever serves the home comes and goes while an agent works: its session goes on.
#[test]
fn an_agent_goes_on_when_whoever_serves_its_home_comes_and_goes() {
    let add = json!({ "a": 1, "b": 2 });
    let world = World::new().unserved();
    let mut client = world.client(&[]);
    assert_eq!(text(&client.call("add", add.clone())), "3");
    let served = world.served();
    assert_eq!(text(&client.call("add", add.clone())), "3");
    let mut second = served.clone().unserved().client(&["--subject", "agent"]);
    assert_eq!(text(&second.call("add", add.clone())), "3");
    assert!(!has_record_open(&second), "it is asked through the socket");
    let refused = second.call("fs-write", json!({ "path": "a", "text": "b" }));
    assert_eq!(refused["isError"], true, "{refused}");
    let log = served.run(&["audit", "log", "--json"]);
    let log = String::from_utf8(log.stdout).unwrap();
    assert!(log.contains("\"agent\"") && log.contains("\"mcp\""), "{log}");
    let world = served.unserved();
    for client in [&mut client, &mut second] {
        assert_eq!(text(&client.call("add", add.clone())), "3");
    }
    assert!(has_record_open(&second), "it has an engine of its own now");
    drop((client, second, world));
}

/// Whether the process has an engine, which the record belongs to.
fn has_record_open(client: &Client) -> bool {
    let open = fs::read_dir(format!("/proc/{}/fd", client.child.id())).unwrap();
    let mut paths = open.filter_map(|one| fs::read_link(one.unwrap().path()).ok());
    paths.any(|path| path.to_string_lossy().contains("hotcell.db"))
}
