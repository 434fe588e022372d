//! What is not understood: JSON, types, names, paths, sizes.

use std::io::{Read, Write};
use std::time::Instant;

use crate::support::{LONG, Server};

#[test]
fn json_is_read_in_one_way_or_not_at_all_api_07() {
    let server = Server::start();
    let key = server.key("admin");
    let deep = format!("{{\"run\": {}{}}}", "[".repeat(1_000_000), "]".repeat(1_000_000));
    for (sort, body) in [
        ("bad-json", "{"),
        ("bad-json", "{} {}"),
        ("bad-json", "\u{feff}{}"),
        ("bad-json", r#"{"run": {}, "run": {}}"#),
        ("bad-json", r#"{"run": {"code": "a", "code": "b"}}"#),
        ("bad-json", r#"{"run": {"code": "\ud800"}}"#),
        ("bad-json", r#"{"run": 1e999}"#),
        ("bad-json", "{\"run\": \"\u{0}\"}"),
        ("bad-json", deep.as_str()),
        ("bad-request", "[]"),
        ("bad-request", "null"),
        ("bad-request", "{}"),
    ] {
        server.post("/v1/runs", &key, body).is_problem(400, sort);
    }
    let mut text =
        server.head("POST", "/v1/runs", Some(&key), "Content-Type: application/json\r\n");
    text.push_str("Content-Length: 4\r\n\r\n");
    let bytes = [text.as_bytes(), b"{\xff\xfe}"].concat();
    server.raw(&bytes).unwrap().is_problem(400, "bad-json");
    assert_eq!(server.get("/healthz", None).status, 200);
}

#[test]
fn nobody_sets_what_is_not_theirs_to_set_api_03() {
    let server = Server::start();
    let key = server.key("admin");
    for name in
        ["tenant", "tenant_id", "role", "uid", "state", "sandbox", "policy", "caller", "ask"]
    {
        for body in [
            format!(r#"{{"run": {{"command": ["true"]}}, "{name}": "x"}}"#),
            format!(r#"{{"run": {{"command": ["true"], "{name}": "x"}}}}"#),
            format!(r#"{{"run": {{"command": ["true"]}}, "manner": {{"{name}": "x"}}}}"#),
        ] {
            server.post("/v1/runs", &key, &body).is_problem(400, "bad-request");
        }
        for path in ["/v1/runs", "/v1/audit/events", "/v1/tokens"] {
            let asked = server.get(&format!("{path}?{name}=x"), Some(&key));
            asked.is_problem(400, "bad-request");
        }
    }
    let both = r#"{"tool": "subtract", "arguments": {"a": 1, "b": 2}}"#;
    server.post("/v1/tools/add/call", &key, both).is_problem(400, "bad-request");
}

#[test]
fn other_types_and_methods_are_refused() {
    let server = Server::start();
    let key = server.key("admin");
    let body = r#"{"run": {"command": ["true"]}}"#;
    let with = |more: &str| {
        let head = server.head("POST", "/v1/runs", Some(&key), more);
        let text = format!("{head}Content-Length: {}\r\n\r\n{body}", body.len());
        server.raw(text.as_bytes()).unwrap()
    };
    for more in [
        "",
        "Content-Type: text/plain\r\n",
        "Content-Type: application/x-www-form-urlencoded\r\n",
        "Content-Type: multipart/form-data; boundary=x\r\n",
        "Content-Type: application/json; charset=utf-16\r\n",
        "Content-Type: application/jsonx\r\n",
        "Content-Type: application/json\r\nContent-Encoding: gzip\r\n",
    ] {
        with(more).is_problem(415, "wrong-type");
    }
    let put = server.ask("PUT", "/v1/runs", Some(&key), "", Some(body));
    put.is_problem(405, "wrong-method");
    assert_eq!(put.header("allow"), Some("POST, GET, HEAD"));
    server.ask("GET", "/v1/runs", Some(&key), "", Some(body)).is_problem(400, "bad-request");
    server.get("/v2/runs", Some(&key)).is_problem(404, "no-route");
    server.get("/v1/runs/", Some(&key)).is_problem(404, "no-route");
    assert_eq!(server.ask("HEAD", "/v1/tools", Some(&key), "", None).body, b"");
    for nonsense in [
        "\r\n\r\n",
        "GET\r\n\r\n",
        "GET / HTTP/9.9\r\n\r\n",
        "\u{16}\u{3}\u{1}",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ] {
        let answer = server.raw(nonsense.as_bytes());
        assert!(answer.is_none_or(|answer| answer.status >= 400), "{nonsense:?}");
    }
}

#[test]
fn names_in_paths_are_data_api_09_api_10() {
    let server = Server::start();
    let key = server.key("admin");
    let long = "A".repeat(10_000);
    for name in [
        "..%2f..%2fetc%2fpasswd",
        "%2e%2e%2f%2e%2e%2fhotcell.db",
        "..",
        "%00",
        "a%00b",
        "%ff%fe",
        "'%20OR%201=1--",
        "x'%3B%20DROP%20TABLE%20event%3B--",
        "-1",
        "%D9%A1%D9%A2",
        "%25",
        "*",
        long.as_str(),
    ] {
        for path in [
            format!("/v1/runs/{name}"),
            format!("/v1/runs/{name}/events"),
            format!("/v1/artifacts/{name}"),
            format!("/v1/artifacts/{name}/content"),
            format!("/v1/approvals/{name}"),
            format!("/v1/tools/{name}"),
        ] {
            let answer = server.get(&path, Some(&key));
            let is_refused = [400, 404, 422].contains(&answer.status);
            assert!(is_refused, "{} {path}: {answer:?}", path.len());
            assert!(!answer.text().contains("root:"), "{path}");
        }
    }
    let before = server.get("/v1/audit/events?limit=1000", Some(&key)).text();
    for (path, names) in [
        ("/v1/runs", &["tool", "status", "since_ns", "after", "limit"][..]),
        ("/v1/audit/events", &["call", "kind", "tool", "until_ns"]),
        ("/v1/artifacts", &["words", "name", "role", "type", "tag", "call", "after"]),
        ("/v1/approvals", &["after"]),
        ("/v1/tools", &["words"]),
    ] {
        for name in names {
            let asked = server.get(&format!("{path}?{name}=%27%20OR%201%3D1%3B%20--"), Some(&key));
            assert!([200, 400, 422].contains(&asked.status), "{path} {name}: {asked:?}");
            assert!(!asked.text().contains("SQL") && !asked.text().contains("syntax error"));
        }
    }
    assert_eq!(server.get("/v1/audit/events?limit=1000", Some(&key)).text(), before);
}

#[test]
fn bodies_have_a_largest_size_api_04() {
    let server = Server::start();
    let key = server.key("admin");
    let before = server.memory();
    let most = 20 * 1024;
    let head = server.head("POST", "/v1/runs", Some(&key), "Content-Type: application/json\r\n");
    // A gigabyte is refused when it is announced.
    let begun = Instant::now();
    let declared = format!("{head}Content-Length: 1073741824\r\n\r\n");
    server.raw(declared.as_bytes()).unwrap().is_problem(413, "too-large");
    assert!(begun.elapsed() < LONG);
    // Whoever announces nothing is stopped at the bound.
    let mut stream = server.connect();
    stream.write_all(format!("{head}Transfer-Encoding: chunked\r\n\r\n").as_bytes()).unwrap();
    let chunk = [b"10000\r\n".as_slice(), &vec![b' '; 0x10000], b"\r\n"].concat();
    let mut sent = 0_usize;
    while sent < 64 << 20 && stream.write_all(&chunk).is_ok() {
        sent += 0x10000;
    }
    assert!(sent < 40 << 20, "{sent} bytes were taken");
    let mut text = Vec::new();
    stream.read_to_end(&mut text).ok();
    // Who lies about it hears nothing more, or is answered for what there is.
    for lie in [
        "Content-Length: 5\r\nContent-Length: 6\r\n",
        "Content-Length: -1\r\n",
        "Content-Length: x\r\n",
    ] {
        let answer = server.raw(format!("{head}{lie}\r\n{{}}").as_bytes());
        assert!(answer.is_none_or(|answer| answer.status == 400), "{lie}");
    }
    // What is compressed is not unpacked, and of many parts none is read.
    let bomb = server.head("POST", "/v1/runs", Some(&key), "Content-Encoding: gzip\r\n");
    let bomb = format!("{bomb}Content-Type: application/json\r\nContent-Length: 1000000\r\n\r\n");
    server.raw(bomb.as_bytes()).unwrap().is_problem(415, "wrong-type");
    let parts = "--x\r\nContent-Disposition: form-data; name=a\r\n\r\n1\r\n".repeat(100_000);
    let many = server.head(
        "POST",
        "/v1/runs",
        Some(&key),
        "Content-Type: multipart/form-data; boundary=x\r\n",
    );
    let many = format!("{many}Content-Length: {}\r\n\r\n{parts}", parts.len());
    let answer = server.raw(many.as_bytes());
    // Who goes on sending may not hear it.
    assert!(answer.is_none_or(|answer| answer.status == 415));
    // Unknown people are not even listened to.
    let head = server.head("POST", "/v1/runs", None, "Content-Type: application/json\r\n");
    let answer = server.raw(format!("{head}Content-Length: 1000000\r\n\r\n").as_bytes()).unwrap();
    answer.is_problem(401, "no-key");
    let after = server.most_memory();
    assert!(after < before + most, "{before} and then at most {after} KiB");
    let many: String = (0..200).map(|n| format!("X-{n}: y\r\n")).collect();
    let answer = server.ask("GET", "/healthz", None, &many, None);
    assert_eq!(answer.status, 431);
    let long = format!("X-Long: {}\r\n", "y".repeat(200_000));
    let answer =
        server.raw(server.head("GET", "/healthz", None, &format!("{long}\r\n")).as_bytes());
    assert!(answer.is_none_or(|answer| answer.status == 431));
}
