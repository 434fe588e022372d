//! Numbers: each family says what happened, and how often.

use serde_json::{Value, json};

use crate::support::{Server, until};
use crate::traces::{Collector, sends_to};

/// What a line of the text says; 0 if it is not there.
fn number(text: &str, name: &str) -> f64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.map_or(0.0, |number| number.parse().unwrap())
}

const FAMILIES: [(&str, &str); 22] = [
    ("hotcell_requests_total", "counter"),
    ("hotcell_request_seconds", "histogram"),
    ("hotcell_calls_total", "counter"),
    ("hotcell_decisions_total", "counter"),
    ("hotcell_denials_total", "counter"),
    ("hotcell_limits_hit_total", "counter"),
    ("hotcell_run_cpu_seconds_total", "counter"),
    ("hotcell_run_memory_bytes_max", "gauge"),
    ("hotcell_stage_seconds", "histogram"),
    ("hotcell_connections_refused_total", "counter"),
    ("hotcell_key_guesses_total", "counter"),
    ("hotcell_log_lines_lost_total", "counter"),
    ("hotcell_spans_sent_total", "counter"),
    ("hotcell_spans_lost_total", "counter"),
    ("hotcell_panics_total", "counter"),
    ("hotcell_sandboxes_running", "gauge"),
    ("hotcell_queue_depth", "gauge"),
    ("hotcell_record_waiting", "gauge"),
    ("hotcell_record_unsigned", "gauge"),
    ("hotcell_connections", "gauge"),
    ("hotcell_lane_taken", "gauge"),
    ("hotcell_lane_waiting", "gauge"),
];

#[test]
fn each_family_says_what_happened() {
    let collector = Collector::start();
    let server = Server::prepared(|dir| sends_to(dir, collector.address));
    let key = server.key("admin");
    let text = || server.get("/metrics", Some(&key)).text();
    let sum = json!({"arguments": {"a": 1, "b": 2}}).to_string();
    for _ in 0..3 {
        assert_eq!(server.post("/v1/tools/add/call", &key, &sum).status, 200);
    }
    let write = json!({"arguments": {"path": "x", "text": "y"}}).to_string();
    server.post("/v1/tools/fs.write/call", &key, &write).is_problem(403, "blocked");
    server.get("/v1/tools", Some("hck_0")).is_problem(401, "no-key");
    server.raw(b"GET / HTTP/9.9\r\n\r\n");
    until(|| number(&text(), "hotcell_spans_sent_total") > 0.0);
    until(|| number(&text(), "hotcell_connections_refused_total{why=\"malformed\"}") == 1.0);
    let told = text();
    for (name, expected) in [
        ("hotcell_requests_total{route=\"tool_call\",status=\"200\"}", 3.0),
        ("hotcell_requests_total{route=\"tool_call\",status=\"403\"}", 1.0),
        ("hotcell_request_seconds_count{route=\"tool_call\"}", 4.0),
        ("hotcell_calls_total{status=\"success\"}", 3.0),
        ("hotcell_calls_total{status=\"blocked\"}", 1.0),
        ("hotcell_decisions_total{decision=\"allow\"}", 3.0),
        ("hotcell_decisions_total{decision=\"deny\"}", 1.0),
        ("hotcell_denials_total{why=\"no-key\"}", 1.0),
        ("hotcell_denials_total{why=\"blocked\"}", 1.0),
        ("hotcell_key_guesses_total", 1.0),
        ("hotcell_stage_seconds_count{stage=\"judged\"}", 3.0),
        ("hotcell_log_lines_lost_total", 0.0),
        ("hotcell_panics_total", 0.0),
    ] {
        assert_eq!(number(&told, name), expected, "{name}\n{told}");
    }
    for (name, sort) in FAMILIES {
        assert!(told.contains(&format!("# TYPE {name} {sort}\n")), "{name}\n{told}");
        assert!(told.contains(&format!("# HELP {name} ")), "{name}\n{told}");
    }
    let known = told.lines().filter(|line| line.starts_with("# TYPE ")).count();
    assert_eq!(known, FAMILIES.len(), "{told}");
}

#[test]
fn what_is_told_again_is_not_counted_again_and_runs_are_measured() {
    let server = Server::start();
    if !server.has_sandbox() {
        return;
    }
    let key = server.key("admin");
    let text = || server.get("/metrics", Some(&key)).text();
    let busy = json!({"run": {"language": "shell", "code": "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done"}});
    let once = |body: &Value| {
        let more = "Idempotency-Key: once\r\n";
        server.ask("POST", "/v1/runs", Some(&key), more, Some(&body.to_string())).json()
    };
    let first = once(&busy);
    assert_eq!(first["status"], "success", "{first}");
    for _ in 0..3 {
        assert_eq!(once(&busy)["id"], first["id"]);
    }
    let long = json!({"run": {"command": ["sleep", "60"], "limits": {"timeout": "300ms"}}});
    assert_eq!(server.post("/v1/runs", &key, &long.to_string()).json()["status"], "timeout");
    let told = text();
    for (name, expected) in [
        ("hotcell_calls_total{status=\"success\"}", 1.0),
        ("hotcell_calls_total{status=\"timeout\"}", 1.0),
        ("hotcell_decisions_total{decision=\"allow\"}", 2.0),
        ("hotcell_requests_total{route=\"run\",status=\"200\"}", 5.0),
    ] {
        assert_eq!(number(&told, name), expected, "{name}\n{told}");
    }
    let limit = told.lines().find(|line| line.starts_with("hotcell_limits_hit_total{"));
    assert!(limit.is_some_and(|line| line.ends_with(" 1")), "{told}");
    assert!(number(&told, "hotcell_run_cpu_seconds_total") > 0.0, "{told}");
    // Where there is a cgroup, it knows how much memory there was.
    let level = server.get("/readyz", None).json()["level"].clone();
    if level == "full" || level == "user" {
        assert!(number(&told, "hotcell_run_memory_bytes_max") > 0.0, "{told}");
    }
}
