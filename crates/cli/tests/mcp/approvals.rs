//! Calls that a person has to agree to. Nothing that a client says agrees to anything.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::client::{Client, LONG, World, text};
use crate::person::{self, PASSPHRASE, at_terminal};

const RULES: &str = "
rules:
  - { name: look, match: { operation: echo }, action: require_review, reason: words are looked at }
";

/// Where alice has to agree to every `echo`.
fn world() -> World {
    with_alice(World::new(), RULES)
}

/// Where alice is asked what these rules say.
fn with_alice(world: World, rules: &str) -> World {
    let new = world.command(&["approver", "new", "alice"]);
    let typed = [("New passphrase for alice: ", PASSPHRASE), ("The same again: ", PASSPHRASE)];
    let (output, screen) = at_terminal(&new, &typed);
    assert!(output.status.success(), "{screen}");
    let line = String::from_utf8(output.stdout).unwrap();
    person::follow(&world.home(), &[line.trim_end().parse().unwrap()], rules);
    world
}

fn answer(world: &World, verb: &str, item: &str) {
    let command = world.command(&[verb, item]);
    let (output, screen) = at_terminal(&command, &[("Passphrase of alice", PASSPHRASE)]);
    assert!(output.status.success(), "{output:?} {screen}");
}

fn state(world: &World, item: &str) -> String {
    let shown = world.run(&["approvals", "show", item, "--json"]);
    let shown: Value = serde_json::from_slice(&shown.stdout).unwrap();
    shown["state"].as_str().unwrap().to_owned()
}

fn echo(client: &mut Client) -> u64 {
    client.begin("tools/call", json!({ "name": "echo", "arguments": { "message": "hi" } }))
}

fn asked(client: &mut Client) -> (Value, String) {
    let question = client.until(|one| one["method"] == "elicitation/create");
    let message = question["params"]["message"].as_str().unwrap();
    let item = message.split("hotcell approve ").nth(1).unwrap().split('`').next().unwrap();
    (question["id"].clone(), item.to_owned())
}

fn reply(client: &mut Client, id: &Value, action: &str) {
    client
        .say(&json!({ "jsonrpc": "2.0", "id": id, "result": { "action": action, "content": {} } }));
}

#[test]
fn a_client_that_cannot_ask_is_told_where_and_how_to_come_back() {
    let world = world();
    let mut client = world.client(&[]);
    let id = echo(&mut client);
    let waiting = client.answer(id)["result"].clone();
    assert_eq!(waiting["isError"], true, "{waiting}");
    let item = waiting["_meta"]["hotcell/approval"].as_str().unwrap().to_owned();
    let told = text(&waiting);
    for part in [&format!("hotcell approve {item}"), "await_approval", "words are looked at"] {
        assert!(told.contains(part), "{told}");
    }
    // Coming back approves nothing.
    let early = client.call("await_approval", json!({ "item": item, "seconds": 0 }));
    assert_eq!(early["isError"], true, "{early}");
    assert_eq!(state(&world, &item), "waiting");
    answer(&world, "approve", &item);
    let done = client.call("await_approval", json!({ "item": item }));
    assert_eq!((&done["isError"], text(&done).as_str()), (&json!(false), "hi"), "{done}");
    // It was carried out once, and is told again.
    let again = client.call("await_approval", json!({ "item": item, "seconds": 1 }));
    assert_eq!(again["_meta"]["hotcell/call"], done["_meta"]["hotcell/call"], "{again}");
}

/// A run that somebody has agreed to is ended by who waits for it, whoever serves the home.
#[test]
fn an_approved_call_ends_when_waiting_for_it_is_cancelled() {
    const CODE: &str = "
rules:
  - { name: code, match: { tool: run }, action: require_review, reason: code is looked at }
";
    for is_served in [false, true] {
        let Some(world) = World::with_sandbox() else { return };
        let world = with_alice(world.unserved(), CODE);
        let world = if is_served { world.served() } else { world };
        let mut client = world.client(&[]);
        // Nobody else sleeps so long.
        let sleep = format!("sleep 8{:07}", client.child.id());
        let waiting = client.call("run_code", json!({ "command": ["sh", "-c", sleep] }));
        let item = waiting["_meta"]["hotcell/approval"].as_str().unwrap().to_owned();
        answer(&world, "approve", &item);
        let wait = json!({ "name": "await_approval", "arguments": { "item": item } });
        let id = client.begin("tools/call", wait);
        until(|| is_running(&sleep));
        client.tell("notifications/cancelled", json!({ "requestId": id, "reason": "enough" }));
        until(|| !is_running(&sleep));
        let ended = || String::from_utf8(world.run(&["runs", "--json"]).stdout).unwrap();
        until(|| ended().contains("cancelled"));
        assert!(client.is_alive());
    }
}

#[track_caller]
fn until(look: impl Fn() -> bool) {
    let begun = Instant::now();
    while !look() {
        assert!(begun.elapsed() < LONG);
        thread::sleep(Duration::from_millis(20));
    }
}

/// Whether a process of this host has such a word in its command.
fn is_running(word: &str) -> bool {
    let all = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let mut commands = all.filter_map(|one| fs::read(one.path().join("cmdline")).ok());
    commands.any(|line| String::from_utf8_lossy(&line).contains(word))
}

#[test]
fn a_client_that_can_ask_shows_where_and_the_call_goes_on_by_itself() {
    let world = world();
    let mut client = world.client_with(&[], json!({ "elicitation": {} }));
    let id = echo(&mut client);
    let (_, item) = asked(&mut client);
    answer(&world, "approve", &item);
    // Nobody had to answer the client as well.
    let done = client.answer(id)["result"].clone();
    assert_eq!((&done["isError"], text(&done).as_str()), (&json!(false), "hi"), "{done}");
}

#[test]
fn accepting_in_the_client_is_no_approval() {
    let world = world();
    let mut client = world.client_with(&[], json!({ "elicitation": { "form": {} } }));
    let id = echo(&mut client);
    let (question, item) = asked(&mut client);
    reply(&mut client, &question, "accept");
    let told = client.answer(id)["result"].clone();
    assert_eq!(told["isError"], true, "{told}");
    assert!(!text(&told).contains("\nhi"), "{told}");
    assert_eq!(state(&world, &item), "waiting");
}

#[test]
fn declining_takes_the_call_back() {
    let world = world();
    let mut client = world.client_with(&[], json!({ "elicitation": {} }));
    let id = echo(&mut client);
    let (question, item) = asked(&mut client);
    reply(&mut client, &question, "decline");
    let told = client.answer(id)["result"].clone();
    assert!(text(&told).contains("declined"), "{told}");
    assert_ne!(state(&world, &item), "waiting");
}

#[test]
fn a_rejection_is_told_with_its_reason() {
    let world = world();
    let mut client = world.client(&[]);
    let id = echo(&mut client);
    let waiting = client.answer(id)["result"].clone();
    let item = waiting["_meta"]["hotcell/approval"].as_str().unwrap().to_owned();
    answer(&world, "reject", &item);
    let told = client.call("await_approval", json!({ "item": item }));
    assert_eq!(told["isError"], true, "{told}");
    assert!(text(&told).contains("alice") || text(&told).contains("reject"), "{told}");
}

#[test]
fn a_client_of_2026_07_28_comes_back_with_what_it_was_given() {
    let world = world();
    let mut client = world.silent(&[]);
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { "name": "test", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": { "elicitation": { "form": {} } },
    });
    let mut call = json!({ "name": "echo", "arguments": { "message": "hi" }, "_meta": meta });
    let asked = client.ask("tools/call", call.clone())["result"].clone();
    assert_eq!(asked["resultType"], "input_required", "{asked}");
    let item = asked["requestState"].as_str().unwrap().to_owned();
    assert!(asked.to_string().contains(&format!("hotcell approve {item}")), "{asked}");
    answer(&world, "approve", &item);
    call["requestState"] = item.into();
    call["inputResponses"] = json!({ "approval": { "action": "accept" } });
    let done = client.ask("tools/call", call)["result"].clone();
    assert_eq!(text(&done), "hi", "{done}");
}

#[test]
fn with_ask_what_no_rule_speaks_of_is_put_before_a_person() {
    let world = world();
    let mut client = world.client(&["--ask"]);
    let waiting = client.call("add", json!({ "a": 1, "b": 2 }));
    assert!(waiting["_meta"]["hotcell/approval"].is_string(), "{waiting}");
    let mut client = world.client(&[]);
    let refused = client.call("add", json!({ "a": 1, "b": 2 }));
    assert_eq!(refused["_meta"]["hotcell/status"], "blocked", "{refused}");
}
