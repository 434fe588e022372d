//! The Model Context Protocol over HTTP: what it answers, and who it does not answer.

use std::io::{Read, Write};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};

use super::support::{Answer, LONG, Server};

const ACCEPT: &str = "Accept: application/json, text/event-stream\r\n";

pub(crate) fn hello() -> Value {
    json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    }})
}

fn message(method: &str, params: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
}

pub(crate) fn call(name: &str, arguments: Value) -> Value {
    message("tools/call", json!({"name": name, "arguments": arguments}))
}

/// With a session, or none.
pub(crate) fn headers(session: Option<&str>) -> String {
    let session = session.map(|id| format!("Mcp-Session-Id: {id}\r\n")).unwrap_or_default();
    format!("{ACCEPT}{session}")
}

pub(crate) fn post(server: &Server, key: &str, session: Option<&str>, body: &Value) -> Answer {
    server.ask("POST", "/mcp", Some(key), &headers(session), Some(&body.to_string()))
}

/// The same where the answer may never be there.
pub(crate) fn sent(server: &Server, key: &str, session: &str, body: &Value) -> Option<Answer> {
    let body = body.to_string();
    let head = server.head("POST", "/mcp", Some(key), &headers(Some(session)));
    let length = body.len();
    let text =
        format!("{head}Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}");
    server.raw(text.as_bytes())
}

/// The last message of a stream of events.
pub(crate) fn last(answer: &Answer) -> Value {
    assert_eq!(answer.status, 200, "{answer:?}");
    let text = answer.text();
    let line =
        text.lines().rev().find_map(|line| line.strip_prefix("data: ").filter(|d| !d.is_empty()));
    serde_json::from_str(line.unwrap_or_else(|| panic!("{text}"))).unwrap()
}

/// A session that has begun, by its id.
pub(crate) fn begin(server: &Server, key: &str) -> String {
    let answer = post(server, key, None, &hello());
    assert_eq!(last(&answer)["result"]["serverInfo"]["name"], "hotcell");
    let session = answer.header("mcp-session-id").unwrap().to_owned();
    let ready = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    assert_eq!(post(server, key, Some(&session), &ready).status, 202);
    session
}

fn names(server: &Server, key: &str, session: &str) -> Vec<String> {
    let listed = last(&post(server, key, Some(session), &message("tools/list", json!({}))));
    let tools = listed["result"]["tools"].as_array().unwrap().clone();
    tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_session_lists_and_calls_tools_for_the_tenant_of_its_key() {
    let server = Server::start();
    let key = server.key_with("tools,runs:read,audit", &["--tenant", "acme"]);
    let session = begin(&server, &key);
    let names = names(&server, &key, &session);
    assert!(names.contains(&"add".to_owned()), "{names:?}");
    let sum = last(&post(&server, &key, Some(&session), &call("add", json!({"a": 1, "b": 2}))));
    assert_eq!(sum["result"]["content"][0]["text"], "3", "{sum}");
    // A refusal is in the record before it is told.
    let write = call("fs-write", json!({"path": "a", "text": "b"}));
    let refused = last(&post(&server, &key, Some(&session), &write));
    assert_eq!(refused["result"]["isError"], true, "{refused}");
    let events = server.get("/v1/audit/events?kind=denied", Some(&key)).json();
    let caller = &events["events"][0]["caller"];
    assert_eq!((&caller["tenant"], &caller["door"]), (&json!("acme"), &json!("mcp")), "{events}");
    let metrics = server.get("/metrics", Some(&server.key("metrics"))).text();
    assert!(metrics.contains("route=\"mcp\""), "{metrics}");
    let ended = server.ask("DELETE", "/mcp", Some(&key), &headers(Some(&session)), None);
    assert!(ended.status < 300, "{ended:?}");
    post(&server, &key, Some(&session), &message("tools/list", json!({})))
        .is_problem(404, "no-session");
}

/// The newest protocol has no sessions.
#[test]
fn a_request_without_a_session_is_answered_in_the_newest_protocol() {
    let server = Server::start();
    let key = server.key("tools");
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let body =
        message("tools/call", json!({"name": "add", "arguments": {"a": 2, "b": 2}, "_meta": meta}));
    let more = format!(
        "{ACCEPT}MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: add\r\n"
    );
    let answer = server.ask("POST", "/mcp", Some(&key), &more, Some(&body.to_string()));
    assert_eq!(last(&answer)["result"]["content"][0]["text"], "4", "{answer:?}");
}

/// API-01, API-02: no key, a wrong one, and a session that another key began.
#[test]
fn tool_16_nobody_comes_in_without_a_key_or_into_the_session_of_another() {
    let server = Server::start();
    let body = hello().to_string();
    server.ask("POST", "/mcp", None, ACCEPT, Some(&body)).is_problem(401, "no-key");
    server.ask("POST", "/mcp", Some("hck_wrong"), ACCEPT, Some(&body)).is_problem(401, "no-key");
    let other = server.key("run,runs:read");
    server.ask("POST", "/mcp", Some(&other), ACCEPT, Some(&body)).is_problem(403, "wrong-scope");

    // The same name and tenant, which is who the calls are made for; only the key is another one.
    let (own, foreign) = (server.key("tools"), server.key("tools"));
    let session = begin(&server, &own);
    let list = message("tools/list", json!({}));
    post(&server, &foreign, Some(&session), &list).is_problem(404, "no-session");
    let more = format!("{}Last-Event-ID: 0\r\n", headers(Some(&session)));
    server.ask("GET", "/mcp", Some(&foreign), &more, None).is_problem(404, "no-session");
    let listen = format!("Accept: text/event-stream\r\nMcp-Session-Id: {session}\r\n");
    server.ask("GET", "/mcp", Some(&foreign), &listen, None).is_problem(404, "no-session");
    server.ask("DELETE", "/mcp", Some(&foreign), &headers(Some(&session)), None);
    // It is still there for whoever began it.
    assert!(names(&server, &own, &session).contains(&"add".to_owned()));

    let revoked = server.command(&["key", "ls", "--json"]).output().unwrap();
    let listed: Value = serde_json::from_slice(&revoked.stdout).unwrap();
    for key in listed["keys"].as_array().unwrap() {
        let id = key["id"].as_str().unwrap();
        assert!(server.command(&["key", "revoke", id]).status().unwrap().success());
    }
    post(&server, &own, Some(&session), &list).is_problem(401, "no-key");
}

#[test]
fn a_key_gets_in_a_session_what_its_scopes_are_for() {
    let server = Server::start();
    let (tools, both) = (server.key("tools"), server.key("tools,run,artifacts:read"));
    let session = begin(&server, &tools);
    let listed = names(&server, &tools, &session);
    for name in ["run_code", "read_artifact", "code_execute", "env-create"] {
        assert!(!listed.contains(&name.to_owned()), "{listed:?}");
    }
    for (name, arguments) in [
        ("run_code", json!({"command": ["true"]})),
        ("read_artifact", json!({"uri": "artifact://01ARZ3NDEKTSV4RRFFQ69G5FAV"})),
        // By whatever name, in whatever version, whether it is listed or not.
        ("code_execute", json!({"language": "shell", "code": "echo 42"})),
        ("run", json!({"command": ["true"]})),
        ("env-create", json!({"name": "x", "packages": []})),
        (
            "call_tool",
            json!({"name": "code_execute", "arguments": {"language": "shell", "code": ""}}),
        ),
    ] {
        let answer = last(&post(&server, &tools, Some(&session), &call(name, arguments)));
        assert_eq!(answer["result"]["isError"], true, "{answer}");
        let text = answer["result"]["content"][0]["text"].as_str().unwrap();
        assert!(text.contains("the key does not open this"), "{text}");
    }
    let list = message("resources/list", json!({}));
    assert!(last(&post(&server, &tools, Some(&session), &list))["error"].is_object());
    let session = begin(&server, &both);
    let listed = names(&server, &both, &session);
    assert!(listed.contains(&"run_code".to_owned()), "{listed:?}");
    assert!(last(&post(&server, &both, Some(&session), &list))["result"].is_object());
    if server.has_sandbox() {
        let run = call("run_code", json!({"language": "shell", "code": "echo 42"}));
        let answer = last(&post(&server, &both, Some(&session), &run));
        assert_eq!(answer["result"]["structuredContent"]["stdout"], "42\n", "{answer}");
    }
}

#[test]
fn what_another_tenant_has_made_is_not_there_api_02() {
    let server = Server::start();
    if !server.has_sandbox() {
        return;
    }
    let own = server.key_with("run,artifacts:read", &["--tenant", "acme"]);
    let other = server.key_with("tools,run,artifacts:read", &["--tenant", "mallory"]);
    let made = server.shell(&own, "", "echo secret > out.txt");
    assert_eq!(made.json()["status"], "success", "{made:?}");
    let artifact = server.get("/v1/artifacts?name=out.txt", Some(&own)).json();
    let artifact = artifact["artifacts"][0]["id"].as_str().unwrap().to_owned();
    let uri = format!("artifact://{artifact}");
    let session = begin(&server, &other);
    for asked in [
        call("read_artifact", json!({"uri": uri})),
        message("resources/read", json!({"uri": uri})),
        message("resources/list", json!({})),
        message(
            "completion/complete",
            json!({
                "ref": {"type": "ref/resource", "uri": "artifact://{id}"},
                "argument": {"name": "id", "value": &artifact[..8]},
            }),
        ),
    ] {
        let answer = last(&post(&server, &other, Some(&session), &asked)).to_string();
        assert!(!answer.contains("secret") && !answer.contains("out.txt"), "{answer}");
        let is_named = asked.to_string().contains(&artifact);
        assert!(is_named || !answer.contains(&artifact), "{answer}");
    }
}

/// API-03, API-04, API-07, API-17 at this path.
#[test]
fn tool_17_what_is_refused_elsewhere_is_refused_here() {
    let server = Server::start();
    let key = server.key("tools");
    let body = hello().to_string();
    let ask = |more: &str, body: &str| {
        server.ask("POST", "/mcp", Some(&key), &format!("{ACCEPT}{more}"), Some(body))
    };
    for origin in ["http://evil.example", "null", "https://127.0.0.1"] {
        ask(&format!("Origin: {origin}\r\n"), &body).is_problem(403, "wrong-origin");
    }
    ask("Sec-Fetch-Site: cross-site\r\n", &body).is_problem(403, "wrong-origin");
    let forged = format!(
        "POST /mcp HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\nAuthorization: Bearer {key}\r\n\
         Content-Type: application/json\r\n{ACCEPT}Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    server.raw(forged.as_bytes()).unwrap().is_problem(421, "wrong-host");
    let large = format!(
        "{}{ACCEPT}Content-Type: application/json\r\nContent-Length: 1073741824\r\n\r\n",
        server.head("POST", "/mcp", Some(&key), "")
    );
    server.raw(large.as_bytes()).unwrap().is_problem(413, "too-large");
    for bad in ["{", "{} x", r#"{"jsonrpc": "2.0", "jsonrpc": "2.0"}"#, "\u{feff}{}", ""] {
        ask("", bad).is_problem(400, "bad-json");
    }
    let deep = format!("{}1{}", "[".repeat(1_000_000), "]".repeat(1_000_000));
    ask("", &deep).is_problem(400, "bad-json");
    for bad in ["[]", "1", r#"{"jsonrpc": "2.0"}"#, r#"{"method": 1}"#] {
        ask("", bad).is_problem(400, "bad-request");
    }
    ask("", &message("tools/list", json!({})).to_string()).is_problem(400, "bad-request");
    let plain = server.ask("POST", "/mcp", Some(&key), "Accept: text/html\r\n", Some(&body));
    plain.is_problem(406, "not-acceptable");
    let typed = server.head("POST", "/mcp", Some(&key), ACCEPT)
        + "Content-Type: text/plain\r\nContent-Length: 2\r\n\r\n{}";
    server.raw(typed.as_bytes()).unwrap().is_problem(415, "wrong-type");
    server.ask("PUT", "/mcp", Some(&key), "", None).is_problem(405, "wrong-method");
    ask("Mcp-Session-Id: ../../etc\r\n", &message("ping", json!({})).to_string())
        .is_problem(404, "no-session");
}

#[test]
fn a_key_has_so_many_sessions_and_another_key_is_not_kept_out() {
    let server = Server::start();
    let (greedy, other) = (server.key("tools"), server.key("tools"));
    for _ in 0..32 {
        assert_eq!(post(&server, &greedy, None, &hello()).status, 200);
    }
    let refused = post(&server, &greedy, None, &hello());
    refused.is_problem(429, "too-many-at-once");
    assert!(refused.header("retry-after").is_some());
    begin(&server, &other);
}

/// In the newest protocol, where a subscription is asked for like anything else.
fn listens_by_post(server: &Server, key: &str) -> std::net::TcpStream {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let wanted = json!({"notifications": {"toolsListChanged": true}, "_meta": meta});
    let body = message("subscriptions/listen", wanted).to_string();
    let more = format!(
        "{ACCEPT}MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: subscriptions/listen\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut stream = server.connect();
    stream.write_all(server.head("POST", "/mcp", Some(key), &more).as_bytes()).unwrap();
    stream
}

fn listens_by_get(server: &Server, key: &str, session: &str) -> std::net::TcpStream {
    let mut stream = server.connect();
    let more = format!("Accept: text/event-stream\r\nMcp-Session-Id: {session}\r\n\r\n");
    stream.write_all(server.head("GET", "/mcp", Some(key), &more).as_bytes()).unwrap();
    stream
}

fn is_answered(stream: &mut std::net::TcpStream) -> bool {
    let mut first = [0; 12];
    stream.read_exact(&mut first).is_ok() && &first == b"HTTP/1.1 200"
}

/// API-21, API-05: streams on which nothing is asked are connections in use all the same.
#[test]
fn who_only_listens_leaves_places_and_connections_to_others() {
    let server = Server::with(&["--connections", "64"]);
    let (greedy, other) = (server.key("tools"), server.key("tools,metrics"));
    let taken = || {
        let text = server.get("/metrics", Some(&other)).text();
        let line =
            text.lines().find_map(|l| l.strip_prefix("hotcell_lane_taken{lane=\"listens\"} "));
        line.unwrap().parse::<usize>().unwrap()
    };
    let until = |count: usize| {
        let begun = Instant::now();
        while taken() != count {
            assert!(begun.elapsed() < LONG, "{} listen, and not {count}", taken());
            thread::sleep(Duration::from_millis(20));
        }
    };
    for is_posted in [false, true] {
        let session = begin(&server, &greedy);
        let listen = || match is_posted {
            true => listens_by_post(&server, &greedy),
            false => listens_by_get(&server, &greedy, &session),
        };
        // Eight places, of which a key has three quarters.
        let mut listening: Vec<_> = (0..6).map(|_| listen()).collect();
        assert!(listening.iter_mut().all(is_answered));
        let more: Vec<_> = (0..70).map(|_| listen()).collect();
        until(6);
        let own = begin(&server, &other);
        assert!(names(&server, &other, &own).contains(&"add".to_owned()));
        assert!(is_answered(&mut listens_by_get(&server, &other, &own)), "there is a place left");
        assert!(is_answered(&mut listens_by_post(&server, &other)), "there is a place left");
        // The place is held as long as the stream, and no longer.
        drop((listening, more));
        until(0);
    }
}

#[test]
fn a_key_s_rate_holds_here_as_well() {
    let server = Server::start();
    let key = server.key_with("tools", &["--rate", "1", "--burst", "2"]);
    let session = begin(&server, &key);
    post(&server, &key, Some(&session), &message("ping", json!({})))
        .is_problem(429, "too-many-requests");
}

/// A client that listens, and one whose call goes on, when the server is to end.
#[test]
fn the_server_ends_in_order_while_clients_listen_and_calls_go_on() {
    let mut server = Server::with(&["--grace", "20s"]);
    if !server.has_sandbox() {
        return;
    }
    let key = server.key("tools,run");
    let session = begin(&server, &key);
    let mut listens = server.connect();
    let more = format!("Accept: text/event-stream\r\nMcp-Session-Id: {session}\r\n\r\n");
    listens.write_all(server.head("GET", "/mcp", Some(&key), &more).as_bytes()).unwrap();
    let mut first = [0; 12];
    listens.read_exact(&mut first).unwrap();
    assert_eq!(&first, b"HTTP/1.1 200");
    let run = call("run_code", json!({"language": "shell", "code": "sleep 2; echo done"}));
    let answered = thread::scope(|scope| {
        let call = scope.spawn(|| post(&server, &key, Some(&session), &run));
        let begun = Instant::now();
        let going = || server.get("/metrics", Some(&server.key("metrics"))).text();
        while !going().contains("hotcell_lane_taken{lane=\"calls\"} 1") && begun.elapsed() < LONG {
            thread::sleep(Duration::from_millis(20));
        }
        server.signal(Signal::TERM);
        call.join().unwrap()
    });
    assert_eq!(last(&answered)["result"]["structuredContent"]["stdout"], "done\n");
    let mut rest = Vec::new();
    listens.read_to_end(&mut rest).unwrap();
    assert_eq!(server.ended(LONG), Some(0));
    assert!(server.said().contains("clean=true"), "{}", server.said());
}
