//! What no client should say. Each is answered, and life goes on.

use std::fs;
use std::io::Write;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::client::{Client, World, hello};

fn refused(client: &mut Client) -> i64 {
    let answer = client.until(|message| message.get("error").is_some());
    answer["error"]["code"].as_i64().unwrap()
}

#[test]
fn tool_14_lines_that_are_no_messages_are_answered_with_what_is_wrong() {
    let mut client = World::new().client(&[]);
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    for (line, code) in [
        (b"garbage".as_slice(), -32700),
        (b"{", -32700),
        (b"\xff\xfe\x00", -32700),
        (b"\xef\xbb\xbf{}", -32700),
        (b"{\"jsonrpc\":\"2.0\",\"id\":1,\"id\":2,\"method\":\"ping\"}", -32700),
        (deep.as_bytes(), -32700),
        (b"[]", -32600),
        (b"7", -32600),
        (b"{\"jsonrpc\":\"2.0\",\"id\":null,\"method\":\"ping\"}", -32600),
        (b"{\"jsonrpc\":\"2.0\",\"id\":[],\"method\":\"ping\"}", -32600),
        (b"{\"id\":\"x\",\"method\":\"ping\"}", -32600),
        (b"{\"jsonrpc\":\"2.0\",\"id\":\"x\",\"method\":\"no/such\"}", -32601),
        (b"{\"jsonrpc\":\"2.0\",\"id\":\"x\",\"method\":\"tools/call\"}", -32602),
        (b"{\"jsonrpc\":\"2.0\",\"id\":\"x\",\"method\":\"tools/call\",\"params\":[]}", -32602),
        (b"{\"jsonrpc\":\"2.0\",\"id\":\"x\",\"method\":\"tools/call\",\"params\":{\"name\":7}}", -32602),
        (b"{\"jsonrpc\":\"2.0\",\"id\":\"x\",\"method\":\"resources/read\",\"params\":{}}", -32602),
        (b"{\"jsonrpc\":\"2.0\",\"id\":\"x\",\"method\":\"resources/read\",\"params\":{\"uri\":\"file:///etc/passwd\"}}", -32002),
        (b"{\"jsonrpc\":\"2.0\",\"id\":\"x\",\"method\":\"tools/list\",\"params\":{\"cursor\":\"\"}}", -32602),
    ] {
        client.write(line);
        client.write(b"\n");
        assert_eq!(refused(&mut client), code, "{}", String::from_utf8_lossy(&line[..line.len().min(80)]));
    }
    assert!(client.is_alive());
}

#[test]
fn tool_14_what_nobody_waits_for_is_passed_over() {
    let mut client = World::new().client(&[]);
    for message in [
        json!({ "jsonrpc": "2.0", "method": "no/such" }),
        json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 99 } }),
        json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": [] }),
        json!({ "jsonrpc": "2.0", "id": 99, "result": {} }),
        json!({ "jsonrpc": "2.0", "id": 99, "error": { "code": 1, "message": "x" } }),
    ] {
        client.say(&message);
    }
    client.write(b"\n\r\n  \n");
    assert!(client.is_alive());
    assert_eq!(client.kept().count(), 0);
}

#[test]
fn before_the_handshake_nothing_ends_it_either() {
    let mut client = World::new().silent(&[]);
    client.write(b"garbage\n");
    assert_eq!(refused(&mut client), -32700);
    client.tell("notifications/initialized", json!({}));
    client.say(&json!({ "jsonrpc": "2.0", "id": 5, "result": {} }));
    assert!(client.is_alive());
    let early = client.ask("tools/list", json!({}));
    assert!(early.get("error").is_some(), "{early}");
    let wrong = client.ask("initialize", json!({ "protocolVersion": 7 }));
    assert!(wrong.get("error").is_some(), "{wrong}");
    let hello = client.ask("initialize", hello(json!({})));
    assert!(hello.get("result").is_some(), "{hello}");
}

#[test]
fn tool_14_a_line_without_an_end_is_refused_before_it_fills_the_memory() {
    let mut client = World::new().client(&[]);
    let chunk = vec![b'x'; 1 << 20];
    for _ in 0..100 {
        client.write(&chunk);
    }
    client.write(b"\n");
    assert_eq!(refused(&mut client), -32600);
    assert!(client.is_alive());
    let status = fs::read_to_string(format!("/proc/{}/status", client.child.id())).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let kib: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(kib < 200 * 1024, "{peak}");
}

#[test]
fn tool_14_a_flood_is_answered_one_by_one_or_refused() {
    let mut client = World::new().client(&[]);
    let mut flood = Vec::new();
    for id in 0..5_000 {
        let message = json!({ "jsonrpc": "2.0", "id": format!("f{id}"), "method": "tools/call",
            "params": { "name": "add", "arguments": { "a": id, "b": 1 } } });
        writeln!(flood, "{message}").unwrap();
    }
    client.write(&flood);
    let (mut done, mut refused) = (0, 0);
    for id in 0..5_000 {
        let answer = client.until(|message| message["id"] == format!("f{id}"));
        match answer.get("result") {
            Some(result) => {
                assert_eq!(result["content"][0]["text"], (id + 1).to_string(), "{answer}");
                done += 1;
            }
            None => {
                assert_eq!(answer["error"]["code"], -32000, "{answer}");
                refused += 1;
            }
        }
    }
    assert!(done > 0 && done + refused == 5_000, "{done} {refused}");
    assert!(client.is_alive());
}

#[test]
fn a_client_that_does_not_read_costs_nothing_but_its_own_answers() {
    let mut client = World::new().client(&[]);
    // More than the pipe and everything between can hold, of garbage that is answered: writing has to stop.
    let child = client.child.id();
    let begun = Instant::now();
    let mut flood = Vec::new();
    for _ in 0..20_000 {
        flood.extend(b"garbage\n");
    }
    client.write(&flood);
    let status = fs::read_to_string(format!("/proc/{child}/status")).unwrap();
    assert!(status.contains("VmRSS"), "{status}");
    for _ in 0..20_000 {
        let answer = client.until(|message| message.get("error").is_some());
        assert_eq!(answer["error"]["code"], -32700);
    }
    assert!(client.is_alive());
    assert!(begun.elapsed() < Duration::from_secs(60));
}

#[test]
fn an_id_is_in_use_until_it_is_answered() {
    let Some(world) = World::with_sandbox() else { return };
    let mut client = world.client(&[]);
    let call = json!({ "jsonrpc": "2.0", "id": "same", "method": "tools/call",
        "params": { "name": "run_code", "arguments": { "command": ["sleep", "1"] } } });
    client.say(&call);
    client.say(&call);
    let first = client.until(|message| message["id"] == "same");
    assert_eq!(first["error"]["code"], -32600, "{first}");
    let second = client.until(|message| message["id"] == "same");
    assert_eq!(second["result"]["isError"], false, "{second}");
    client.say(&call);
    let third = client.until(|message| message["id"] == "same");
    assert_eq!(third["result"]["isError"], false, "{third}");
}

#[test]
fn numbers_and_names_that_are_too_much_are_refused_by_the_tool() {
    let mut client = World::new().client(&[]);
    for arguments in [
        json!({ "a": "1", "b": 2 }),
        json!({ "a": null, "b": 2 }),
        json!({ "a": [1], "b": 2 }),
        json!({ "a": 1, "b": 2, "__proto__": {} }),
    ] {
        let result = client.call("add", arguments.clone());
        assert_eq!(result["isError"], true, "{arguments} {result}");
    }
    client.write(b"{\"jsonrpc\":\"2.0\",\"id\":\"n\",\"method\":\"tools/call\",\"params\":{\"name\":\"add\",\"arguments\":{\"a\":1e999,\"b\":1}}}\n");
    let answer = client.until(|message| message.get("error").is_some());
    assert_eq!(answer["error"]["code"], -32700, "{answer}");
    let _: Value = answer;
}
