//! Who comes in, and under which name.

use serde_json::json;

use crate::support::{Server, until};

#[test]
fn nobody_comes_in_without_a_key_api_01() {
    let server = Server::start();
    let note =
        "nobody has a key yet: `hotcell key create NAME --scope run,runs:read,tools` makes one";
    let begun = std::time::Instant::now();
    while !server.said().contains(note) {
        assert!(begun.elapsed() < crate::support::LONG, "{}", server.said());
    }
    let key = server.key("runs:read");
    // Another one, whatever the last character is.
    let last = if key.ends_with('0') { '1' } else { '0' };
    let other = format!("{}{last}", &key[..key.len() - 1]);
    for (name, path, header) in [
        ("none", "/v1/runs", String::new()),
        ("default", "/v1/runs", "Authorization: Bearer hotcell\r\n".into()),
        ("wrong", "/v1/runs", format!("Authorization: Bearer {other}\r\n")),
        ("other scheme", "/v1/runs", format!("Authorization: Basic {key}\r\n")),
        ("empty", "/v1/runs", "Authorization: Bearer \r\n".into()),
        ("in the query", &format!("/v1/runs?key={key}"), String::new()),
        (
            "twice",
            "/v1/runs",
            format!("Authorization: Bearer {key}\r\nAuthorization: Bearer {key}\r\n"),
        ),
    ] {
        let answer = server.ask("GET", path, None, &header, None);
        answer.is_problem(401, "no-key");
        assert!(answer.header("www-authenticate").unwrap().starts_with("Bearer"), "{name}");
    }
    assert_eq!(server.get("/v1/runs", Some(&key)).status, 200);
    let id = &key[4..20];
    assert!(server.command(&["key", "revoke", id]).output().unwrap().status.success());
    server.get("/v1/runs", Some(&key)).is_problem(401, "no-key");
    assert!(!server.said().contains(&key), "keys are not in the log");
}

#[test]
fn a_key_that_has_ended_opens_nothing_any_more() {
    let server = Server::start();
    let (soon, later) =
        (server.key_with("tools", &["--for", "1s"]), server.key_with("tools", &["--for", "1h"]));
    until(|| server.get("/v1/tools/add", Some(&soon)).status == 401);
    let ended = server.get("/v1/tools/add", Some(&soon));
    ended.is_problem(401, "no-key");
    // Nobody hears that it was one.
    let unknown = server.get("/v1/tools/add", Some(&format!("hck_{}", "0".repeat(56))));
    assert_eq!(ended.json()["why"], unknown.json()["why"]);
    assert_eq!(server.get("/v1/tools/add", Some(&later)).status, 200);
}

#[test]
fn a_key_opens_what_it_is_for() {
    let server = Server::start();
    let (run, reads) = (server.key("run"), server.key("runs:read,tools"));
    server.get("/v1/runs", Some(&run)).is_problem(403, "wrong-scope");
    server
        .post("/v1/runs", &reads, r#"{"run": {"command": ["true"]}}"#)
        .is_problem(403, "wrong-scope");
    for (method, path) in [
        ("GET", "/v1/artifacts"),
        ("GET", "/v1/approvals"),
        ("GET", "/v1/policy"),
        ("PUT", "/v1/policy"),
        ("GET", "/v1/audit/events"),
        ("POST", "/v1/audit/verify"),
        ("GET", "/v1/tokens"),
        ("POST", "/v1/tokens"),
        ("GET", "/metrics"),
    ] {
        server.ask(method, path, Some(&reads), "", None).is_problem(403, "wrong-scope");
    }
    assert_eq!(server.get("/v1/tools", Some(&reads)).status, 200);
}

#[test]
fn what_is_another_tenants_is_not_there_api_02() {
    let server = Server::start();
    if !server.has_sandbox() {
        return;
    }
    let own = server.key_with("admin", &["--tenant", "acme"]);
    let other = server.key_with("admin", &["--tenant", "mallory"]);
    let call = server.left(&own, "echo secret; sleep 20");
    let made = server.shell(&own, "", "echo secret > out.txt");
    assert_eq!(made.status, 200, "{made:?}");
    let artifact = server.get("/v1/artifacts?name=out.txt", Some(&own)).json();
    let artifact = artifact["artifacts"][0]["id"].as_str().unwrap().to_owned();
    for (method, path, body) in [
        ("GET", format!("/v1/runs/{call}"), None),
        ("GET", format!("/v1/runs/{call}/events"), None),
        ("POST", format!("/v1/runs/{call}/cancel"), None),
        ("POST", format!("/v1/runs/{call}/replay"), None),
        ("GET", format!("/v1/artifacts/{artifact}"), None),
        ("GET", format!("/v1/artifacts/{artifact}/content"), None),
        ("GET", format!("/v1/artifacts/{artifact}/lineage"), None),
        ("PUT", format!("/v1/artifacts/{artifact}/tags/x"), None),
        ("DELETE", format!("/v1/artifacts/{artifact}/tags/x"), None),
        (
            "POST",
            format!("/v1/artifacts/{artifact}/verdict"),
            Some(r#"{"aspect": "review", "ruling": "accept"}"#),
        ),
        ("POST", "/v1/artifacts/out.txt/rollback".into(), Some(r#"{"version": 1}"#)),
    ] {
        let answer = server.ask(method, &path, Some(&other), "", body);
        assert_eq!(answer.status, 404, "{method} {path}: {answer:?}");
        assert!(!answer.text().contains("secret"));
    }
    let events = server.get(&format!("/v1/audit/events?call={call}"), Some(&other));
    assert!([200, 404].contains(&events.status), "{events:?}");
    assert!(!events.text().contains(&call), "{events:?}");
    let named = server.get(&format!("/v1/artifacts?call={call}"), Some(&other));
    assert!(!named.text().contains("secret") && !named.text().contains(&artifact), "{named:?}");
    for path in ["/v1/runs", "/v1/artifacts", "/v1/audit/events"] {
        let text = server.get(path, Some(&other)).text();
        assert!(!text.contains(&call) && !text.contains("acme"), "{path}: {text}");
    }
    // Nor is there anything to come after, or to be a part of: as if nobody had ever made it.
    let unknown = "01ARZ3NDEKTSV4RRFFQ69G5FAV";
    for manner in [r#"{"after": ["CALL"]}"#, r#"{"parent": "CALL"}"#] {
        let ask = |call: &str| {
            let manner = manner.replace("CALL", call);
            let body = format!(r#"{{"run": {{"command": ["true"]}}, "manner": {manner}}}"#);
            server.post("/v1/runs", &other, &body)
        };
        let (foreign, none) = (ask(&call), ask(unknown));
        assert_eq!(foreign.status, 422, "{manner}: {foreign:?}");
        assert!(!foreign.text().contains("acme"), "{foreign:?}");
        // A parent that nobody knows may be one of another home.
        if manner.contains("after") {
            let (foreign, none) = (foreign.json(), none.json());
            assert_eq!((&foreign["why"], &foreign["fix"]), (&none["why"], &none["fix"]));
        }
    }
    let ended = server.ask("POST", &format!("/v1/runs/{call}/cancel"), Some(&own), "", None);
    assert_eq!(ended.json()["call"], call.as_str());
}

#[test]
fn what_waits_for_another_tenant_is_not_there_api_02() {
    let rules =
        "rules:\n  - { name: look, match: { tool: add }, action: require_review, reason: sums }\n";
    let server = Server::with_alice(rules);
    let whose = format!("uid{}", rustix::process::geteuid().as_raw());
    let own = server.key_with("admin", &["--subject", &whose]);
    // The same name, in another tenant.
    let other = server.key_with("admin", &["--subject", &whose, "--tenant", "mallory"]);
    let asked = server.post("/v1/tools/add/call", &own, r#"{"arguments": {"a": 1, "b": 2}}"#);
    let item = asked.json()["review"].as_str().unwrap().to_owned();
    let given = json!({"given": {"verdict": "approve", "time_ns": 1, "expires_ns": 2,
        "approver": "0000-0000-0000-0000", "signature": "0".repeat(128)}})
    .to_string();
    for (method, path, body) in [
        ("GET", format!("/v1/approvals/{item}"), None),
        ("POST", format!("/v1/approvals/{item}/await"), None),
        ("POST", format!("/v1/approvals/{item}/withdraw"), None),
    ] {
        let answer = server.ask(method, &path, Some(&other), "", body);
        assert_eq!(answer.status, 404, "{method} {path}: {answer:?}");
    }
    // What cannot be read is said first; of the item nobody hears anything.
    let answer = |item: &str| {
        let answer = server.post(&format!("/v1/approvals/{item}/answer"), &other, &given);
        let problem = answer.json();
        (answer.status, problem["what"].to_string(), problem["why"].to_string().replace(item, ""))
    };
    assert_eq!(answer(&item), answer("0000AAAA"));
    assert!(server.get("/v1/approvals", Some(&own)).text().contains(&item));
    assert!(!server.get("/v1/approvals", Some(&other)).text().contains(&item));
    let waits = server.get(&format!("/v1/approvals/{item}"), Some(&own)).json();
    assert_eq!(waits["state"], "waiting", "{waits}");
}

#[test]
fn a_token_of_another_tenant_is_not_there_api_02() {
    let server = Server::start();
    let minted = server.command(&["token", "mint", "add", "--for", "60s"]).output().unwrap();
    assert!(minted.status.success(), "{minted:?}");
    let token = String::from_utf8(minted.stdout).unwrap().trim_end().to_owned();
    let whose = format!("uid{}", rustix::process::geteuid().as_raw());
    let own = server.key_with("admin", &["--subject", &whose]);
    let other = server.key_with("admin", &["--subject", &whose, "--tenant", "mallory"]);
    let tokens = server.get("/v1/tokens", Some(&own)).json();
    let id = tokens["tokens"][0]["id"].as_str().unwrap().to_owned();
    assert_eq!(server.get("/v1/tokens", Some(&other)).json()["tokens"], json!([]));
    let revoke = format!("/v1/tokens/{id}/revoke");
    server.ask("POST", &revoke, Some(&other), "", None).is_problem(404, "not-found");
    // Nor is it good for anything there.
    let narrow = json!({"token": token, "bounds": {"uses": 1}}).to_string();
    server.post("/v1/tokens/narrow", &other, &narrow).is_problem(403, "blocked");
}

#[test]
fn other_hosts_and_other_pages_are_refused_api_17() {
    let server = Server::start();
    let key = server.key("admin");
    let port = server.address.port();
    let ask = |host: &str, more: &str| {
        let text = format!(
            "GET /v1/tools HTTP/1.1\r\n{host}Connection: close\r\nAuthorization: Bearer {key}\r\n{more}\r\n"
        );
        server.raw(text.as_bytes()).unwrap()
    };
    let ours = format!("Host: localhost:{port}\r\n");
    assert_eq!(ask(&ours, "").status, 200);
    ask(&format!("Host: evil.example:{port}\r\n"), "").is_problem(421, "wrong-host");
    ask("Host: localhost\r\n", "").is_problem(421, "wrong-host");
    assert_eq!(ask("", "").status, 400);
    assert_eq!(ask(&format!("{ours}{ours}"), "").status, 400);
    ask(&ours, "Origin: https://evil.example\r\n").is_problem(403, "wrong-origin");
    ask(&ours, "Origin: null\r\n").is_problem(403, "wrong-origin");
    ask(&ours, "Sec-Fetch-Site: cross-site\r\n").is_problem(403, "wrong-origin");
    let absolute = format!(
        "GET http://evil.example/v1/tools HTTP/1.1\r\n{ours}Connection: close\r\nAuthorization: Bearer {key}\r\n\r\n"
    );
    server.raw(absolute.as_bytes()).unwrap().is_problem(421, "wrong-host");
    // There is no other site that a browser lets ask.
    let more = "Origin: https://evil.example\r\nAccess-Control-Request-Method: POST\r\n";
    let asked = server.ask("OPTIONS", "/v1/runs", None, more, None);
    assert!(asked.status >= 400);
    for answer in [&asked, &ask(&ours, &format!("Origin: http://localhost:{port}\r\n"))] {
        let names = answer.headers.iter().map(|(name, _)| name.as_str());
        assert!(!names.clone().any(|name| name.starts_with("access-control")), "{answer:?}");
        assert!(!names.clone().any(|name| name == "set-cookie"));
    }
}

#[test]
fn a_request_has_a_name_of_its_own_or_the_clients() {
    let server = Server::with(&["--log", "json"]);
    let answer = server.ask("GET", "/healthz", None, "X-Request-Id: my-own.1\r\n", None);
    assert_eq!(answer.header("x-request-id"), Some("my-own.1"));
    for odd in ["", "a b", "a\"b", &"x".repeat(65), "é"] {
        let more = format!("X-Request-Id: {odd}\r\n");
        let answer = server.ask("GET", "/nowhere", None, &more, None);
        answer.is_problem(404, "no-route");
        assert_ne!(answer.header("x-request-id"), Some(odd));
    }
    let begun = std::time::Instant::now();
    while !server.said().contains("my-own.1") {
        assert!(begun.elapsed() < crate::support::LONG);
    }
    for line in server.said().lines() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        assert!(line["event"].is_string() && line["time"].is_string(), "{line}");
    }
}

#[test]
fn the_same_key_is_the_same_call_api_08() {
    let server = Server::start();
    if !server.has_sandbox() {
        return;
    }
    let key = server.key("run,runs:read");
    let ask_of = |server: &Server, code: &str| {
        let body = json!({"run": {"language": "shell", "code": code}}).to_string();
        server.ask("POST", "/v1/runs", Some(&key), "Idempotency-Key: once\r\n", Some(&body))
    };
    let ask = |code: &str| ask_of(&server, code);
    let answers: Vec<_> = std::thread::scope(|scope| {
        let all: Vec<_> = (0..50).map(|_| scope.spawn(|| ask("echo one"))).collect();
        all.into_iter().map(|one| one.join().unwrap()).collect()
    });
    let good: Vec<_> = answers.iter().filter(|answer| answer.status == 200).collect();
    assert!(!good.is_empty(), "{answers:?}");
    for answer in &answers {
        assert!([200, 409, 429, 503].contains(&answer.status), "{answer:?}");
    }
    let runs = server.get("/v1/runs", Some(&key)).json();
    assert_eq!(runs["runs"].as_array().unwrap().len(), 1, "{runs}");
    ask("echo two").is_problem(409, "conflict");
    let first = good[0].json();
    let server = server.restarted();
    let again = ask_of(&server, "echo one");
    assert_eq!((again.status, &again.json()["id"]), (200, &first["id"]), "{again:?}");
    assert_eq!(again.json()["value"]["stdout"], "one\n", "{again:?}");
    ask_of(&server, "echo two").is_problem(409, "conflict");
    let runs = server.get("/v1/runs", Some(&key)).json();
    assert_eq!(runs["runs"].as_array().unwrap().len(), 1, "{runs}");
}

/// Who sends a key relies on it: it holds, or it is refused.
#[test]
fn a_key_of_a_call_is_never_passed_over_api_08() {
    let server = Server::start();
    let key = server.key("admin");
    let once = "Idempotency-Key: once\r\n";
    let id = "01ARZ3NDEKTSV4RRFFQ69G5FAV";
    for (method, path, body) in [
        ("POST", format!("/v1/runs/{id}/replay"), Some("{}")),
        ("POST", format!("/v1/runs/{id}/cancel"), None),
        ("POST", "/v1/policy/check".into(), Some(r#"{"text": ""}"#)),
        ("POST", "/v1/tokens/narrow".into(), Some(r#"{"token": "x", "bounds": {}}"#)),
        ("POST", format!("/v1/approvals/{}/await", "0".repeat(32)), None),
        ("POST", format!("/v1/approvals/{}/withdraw", "0".repeat(32)), None),
        ("PUT", "/v1/artifacts/x/tags/y".into(), None),
        ("DELETE", "/v1/artifacts/x/tags/y".into(), None),
        ("POST", "/v1/artifacts/x/rollback".into(), Some(r#"{"version": 1}"#)),
        ("POST", "/mcp".into(), Some("{}")),
    ] {
        let refused = server.ask(method, &path, Some(&key), once, body);
        refused.is_problem(400, "bad-request");
        assert!(refused.text().contains("Idempotency-Key"), "{method} {path}: {refused:?}");
    }
    // Nothing is changed by a look.
    assert_eq!(server.ask("GET", "/v1/runs", Some(&key), once, None).status, 200);
    if !server.has_sandbox() {
        return;
    }
    let calls = ["echo one", "echo two"].map(|code| {
        let arguments = json!({"language": "shell", "code": code});
        json!({"request": {"tool": "code_execute", "arguments": arguments}})
    });
    let batch = |calls: &[serde_json::Value]| {
        let body = json!({"calls": calls}).to_string();
        let answer = server.ask("POST", "/v1/batch", Some(&key), once, Some(&body));
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json()["calls"].as_array().unwrap().clone()
    };
    let ids = |calls: &[serde_json::Value]| {
        calls.iter().map(|call| call["id"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let first = batch(&calls);
    assert!(first.iter().all(|call| call["status"] == "success"), "{first:?}");
    assert_eq!(ids(&batch(&calls)), ids(&first));
    let runs = server.get("/v1/runs", Some(&key)).json();
    assert_eq!(runs["runs"].as_array().unwrap().len(), 2, "{runs}");
    // Another call under the same key.
    let other = batch(&[calls[1].clone()]);
    assert_ne!(other[0]["status"], "success", "{other:?}");
}

/// What hotcell itself cannot do: write its record, find what it has kept.
#[test]
fn a_fault_of_the_server_tells_nothing_either_api_15() {
    let server = Server::start();
    if !server.has_sandbox() {
        return;
    }
    let key = server.key("admin");
    let made = server.shell(&key, "", "head -c 9000000 /dev/zero > big.bin");
    assert_eq!(made.json()["status"], "success", "{made:?}");
    // Somebody else has the record's file, and does not give it back.
    let database = rusqlite::Connection::open(server.home().join("hotcell.db")).unwrap();
    database.execute_batch("BEGIN IMMEDIATE").unwrap();
    let run = server.shell(&key, "", "true");
    let tag = server.ask("PUT", "/v1/artifacts/big.bin/tags/x", Some(&key), "", None);
    let tool = server.post(
        "/v1/tools/fs.write/call",
        &key,
        r#"{"arguments": {"path": "a", "text": "b"}}"#,
    );
    let begin = json!({"jsonrpc": "2.0", "id": 0, "method": "tools/call", "params": {
        "name": "fs-write", "arguments": {"path": "a", "text": "b"}, "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {}}}});
    let more = "Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: 2026-07-28\r\n\
                Mcp-Method: tools/call\r\nMcp-Name: fs-write\r\n";
    let talk = server.ask("POST", "/mcp", Some(&key), more, Some(&begin.to_string()));
    drop(database);
    // It was a moment, and not the end.
    assert_eq!(server.shell(&key, "", "true").status, 200);
    std::fs::remove_dir_all(server.home().join("artifacts")).unwrap();
    let content = server.get("/v1/artifacts/big.bin/content", Some(&key));
    for (what, answer) in [("content", &content), ("run", &run), ("tag", &tag), ("tool", &tool)] {
        assert!([500, 503].contains(&answer.status), "{what}: {answer:?}");
    }
    assert!([&content, &run, &tag, &tool].iter().any(|answer| answer.status == 500));
    let home = server.home().display().to_string();
    for answer in [content, run, tag, tool, talk] {
        let text = answer.text();
        let lower = text.to_lowercase();
        for secret in ["sql", "select ", "database", "hotcell.db", "panicked", ".rs:", "os error"] {
            assert!(!lower.contains(secret), "{secret}: {text}");
        }
        assert!(!text.contains(&home) && !text.contains("hck_"), "{text}");
    }
}

#[test]
fn no_error_tells_where_it_came_from_api_15() {
    let server = Server::start();
    let key = server.key("admin");
    let home = server.home().display().to_string();
    let id = "01ARZ3NDEKTSV4RRFFQ69G5FAV";
    for (method, path, body) in [
        ("GET", format!("/v1/runs/{id}"), None),
        ("GET", format!("/v1/artifacts/{id}/content"), None),
        ("POST", "/v1/runs".into(), Some(r#"{"run": {"command": ["/no/such"]}}"#)),
        ("POST", "/v1/runs".into(), Some(r#"{"run": {"language": "cobol", "code": ""}}"#)),
        ("POST", "/v1/tools/fs.read/call".into(), Some(r#"{"arguments": {"path": "x"}}"#)),
        ("POST", "/v1/tokens".into(), Some(r#"{"tool": "nope"}"#)),
        ("GET", "/v1/approvals/x".into(), None),
    ] {
        let answer = server.ask(method, &path, Some(&key), "", body);
        assert!(answer.status >= 400, "{path}: {answer:?}");
        let text = answer.text();
        for secret in [&home, "SELECT", "panicked", ".rs:", "hck_", "struct "] {
            assert!(!text.contains(secret), "{path}: {text}");
        }
    }
}
