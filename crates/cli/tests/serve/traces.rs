//! Spans, as a collector of OpenTelemetry gets them: a real receiver of OTLP over HTTP, one that never answers,
//! and none at all.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::mcp;
use crate::support::{LONG, Server, command};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00f067aa0ba902b7";

/// What is in a request, and must be in no span.
const CONTENTS: &str = "a-number-of-nobodys-business";

/// Takes messages on a port of its own.
pub(crate) struct Collector {
    pub(crate) address: SocketAddr,
    heard: Arc<Mutex<Vec<String>>>,
}

impl Collector {
    pub(crate) fn start() -> Collector {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let heard = Arc::<Mutex<Vec<String>>>::default();
        let hears = Arc::clone(&heard);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let body = take(&mut stream.unwrap());
                hears.lock().unwrap().push(body);
            }
        });
        Collector { address, heard }
    }

    fn text(&self) -> String {
        self.heard.lock().unwrap().concat()
    }

    fn spans(&self) -> Vec<Value> {
        let mut spans = Vec::new();
        for body in &*self.heard.lock().unwrap() {
            let message: Value = serde_json::from_str(body).unwrap();
            for resource in message["resourceSpans"].as_array().unwrap() {
                assert_eq!(attribute(&resource["resource"], "service.name"), "hotcell");
                for scope in resource["scopeSpans"].as_array().unwrap() {
                    spans.extend(scope["spans"].as_array().unwrap().clone());
                }
            }
        }
        spans
    }

    /// Waits until a span is there that is as it should be.
    #[track_caller]
    fn wait_for(&self, is_it: impl Fn(&Value) -> bool) -> Value {
        let begun = Instant::now();
        loop {
            if let Some(span) = self.spans().into_iter().find(&is_it) {
                return span;
            }
            assert!(begun.elapsed() < LONG, "{:#?}", self.spans());
            thread::sleep(Duration::from_millis(20));
        }
    }
}

/// One request as HTTP has it; its body.
fn take(stream: &mut TcpStream) -> String {
    let mut lines = BufReader::new(stream.try_clone().unwrap());
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert!(lines.read_line(&mut head).unwrap() > 0, "{head}");
    }
    assert!(head.starts_with("POST /v1/traces HTTP/1.1\r\n"), "{head}");
    assert!(head.contains("\r\nContent-Type: application/json\r\n"), "{head}");
    let length = head.split("Content-Length: ").nth(1).unwrap();
    let length: usize = length.lines().next().unwrap().parse().unwrap();
    let mut body = vec![0; length];
    lines.read_exact(&mut body).unwrap();
    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}").unwrap();
    String::from_utf8(body).unwrap()
}

fn attribute(of: &Value, key: &str) -> Value {
    let all = of["attributes"].as_array().unwrap();
    let found = all.iter().find(|one| one["key"] == key).map(|one| one["value"].clone());
    found.map_or(Value::Null, |value| value.as_object().unwrap().values().next().unwrap().clone())
}

pub(crate) fn sends_to(dir: &tempfile::TempDir, address: SocketAddr) {
    let config = format!("min_level = \"no-proc\"\n[traces]\nendpoint = \"http://{address}\"\n");
    fs::write(dir.path().join("home/config.toml"), config).unwrap();
}

fn nanos(span: &Value, at: &str) -> u64 {
    span[at].as_str().unwrap().parse().unwrap()
}

#[test]
fn a_request_is_a_span_in_its_callers_trace_with_one_for_each_stage() {
    let collector = Collector::start();
    let mut server = Server::prepared(|dir| sends_to(dir, collector.address));
    let key = server.key("admin");
    let more = format!("X-Request-Id: mine-1\r\ntraceparent: 00-{TRACE}-{PARENT}-00\r\n");
    let body = format!("{{\"arguments\": {{\"message\": \"{CONTENTS}\"}}}}");
    let answer = server.ask("POST", "/v1/tools/echo/call", Some(&key), &more, Some(&body));
    assert_eq!(answer.status, 200, "{}", answer.text());
    let call = answer.json()["id"].as_str().unwrap().to_owned();

    let request = collector.wait_for(|span| attribute(span, "hotcell.request_id") == "mine-1");
    assert_eq!((&request["traceId"], &request["parentSpanId"]), (&TRACE.into(), &PARENT.into()));
    assert_eq!((&request["name"], &request["kind"]), (&"request".into(), &2.into()));
    assert_eq!(attribute(&request, "http.request.method"), "POST");
    assert_eq!(attribute(&request, "http.response.status_code"), "200");
    let made = collector.wait_for(|span| span["name"] == "call");
    assert_eq!((&made["traceId"], &made["parentSpanId"]), (&TRACE.into(), &request["spanId"]));
    assert_eq!(attribute(&made, "hotcell.call"), call.as_str());
    let spans = collector.spans();
    let stages: Vec<_> =
        spans.iter().filter(|span| span["parentSpanId"] == made["spanId"]).collect();
    let names: BTreeSet<_> = stages.iter().map(|span| span["name"].as_str().unwrap()).collect();
    for stage in ["called", "judged", "prepared", "carried_out", "recorded"] {
        assert!(names.contains(stage), "{stage}: {names:?}");
    }
    for stage in stages {
        assert_eq!(stage["traceId"], TRACE);
        assert!(nanos(stage, "startTimeUnixNano") <= nanos(stage, "endTimeUnixNano"));
        assert!(nanos(stage, "startTimeUnixNano") >= nanos(&request, "startTimeUnixNano"));
        assert!(nanos(stage, "endTimeUnixNano") <= nanos(&request, "endTimeUnixNano"));
    }

    // Whoever comes through the socket of the home is seen as well; what cannot be read begins a trace.
    let own = server.command(&["tool", "call", "current_timestamp"]).output().unwrap();
    assert!(own.status.success(), "{own:?}");
    collector.wait_for(|span| span["name"] == "call" && span["parentSpanId"] == "");
    let bad = "X-Request-Id: mine-2\r\ntraceparent: 00-0-0-01\r\n";
    assert_eq!(server.ask("GET", "/nowhere", Some(&key), bad, None).status, 404);
    let secret = "X-Request-Id: hct_0123456789abcdef0123456789\r\n";
    assert_eq!(server.ask("GET", "/v1/tools", None, secret, None).status, 401);
    server.signal(Signal::TERM);
    assert_eq!(server.ended(LONG), Some(0));
    let lost = collector.wait_for(|span| attribute(span, "hotcell.request_id") == "mine-2");
    assert!(lost["traceId"] != TRACE && lost["parentSpanId"] == "", "{lost}");
    collector.wait_for(|span| attribute(span, "hotcell.request_id") == "[redacted:hotcell]");
    let text = collector.text();
    for secret in [CONTENTS, key.as_str(), "hct_0123456789abcdef"] {
        assert!(!text.contains(secret), "{secret}");
    }
}

/// Under one request, however long its session or its body goes on.
#[test]
fn calls_of_a_session_and_of_a_batch_of_lines_are_in_the_trace_of_their_request() {
    let collector = Collector::start();
    let server = Server::prepared(|dir| sends_to(dir, collector.address));
    let key = server.key("admin");
    let session = mcp::begin(&server, &key);
    let more = |trace: &str| format!("traceparent: 00-{trace}-{PARENT}-01\r\n");
    let is_below = |trace: &str, route: &str| {
        let request = collector
            .wait_for(|span| attribute(span, "http.route") == route && span["traceId"] == trace);
        assert_eq!(request["parentSpanId"], PARENT, "{request}");
        let call = collector.wait_for(|span| span["name"] == "call" && span["traceId"] == trace);
        assert_eq!(call["parentSpanId"], request["spanId"], "{call} {request}");
        let judged = |span: &Value| span["name"] == "judged" && span["traceId"] == trace;
        assert_eq!(collector.wait_for(judged)["parentSpanId"], call["spanId"]);
    };
    // Two messages of one session, each with a trace of its own.
    for trace in [TRACE, "11111111111111111111111111111111"] {
        let body = mcp::call("add", json!({"a": 1, "b": 2})).to_string();
        let more = format!("{}{}", mcp::headers(Some(&session)), more(trace));
        let answer = server.ask("POST", "/mcp", Some(&key), &more, Some(&body));
        assert_eq!(mcp::last(&answer)["result"]["isError"], false, "{answer:?}");
        is_below(trace, "mcp");
    }
    if !server.has_sandbox() {
        return;
    }
    let trace = "22222222222222222222222222222222";
    let body = "{\"run\": {\"command\": [\"true\"]}}\n";
    let more = format!(
        "{}Content-Type: application/x-ndjson\r\nContent-Length: {}\r\n\r\n{body}",
        more(trace),
        body.len()
    );
    let text = server.head("POST", "/v1/batches", Some(&key), &more);
    assert_eq!(server.raw(text.as_bytes()).unwrap().status, 200);
    is_below(trace, "runs_batch");
}

/// What is lost is in the metrics, by why.
fn lost(server: &Server, key: &str) -> u64 {
    let text = server.get("/metrics", Some(key)).text();
    let line = "hotcell_spans_lost_total{why=\"not_taken\"} ";
    text.lines().find_map(|one| one.strip_prefix(line)).unwrap().parse().unwrap()
}

/// Calls are answered as if there were no collector, and spans are counted.
fn is_served_without(address: SocketAddr) {
    let mut server = Server::prepared(|dir| sends_to(dir, address));
    let key = server.key("admin");
    let begun = Instant::now();
    for _ in 0..30 {
        let answer = server.post("/v1/tools/current_timestamp/call", &key, "{\"arguments\": {}}");
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    // One that waited for a message to be taken, or given up, would have taken five seconds.
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
    let begun = Instant::now();
    while lost(&server, &key) == 0 {
        assert!(begun.elapsed() < LONG);
        thread::sleep(Duration::from_millis(50));
    }
    server.signal(Signal::TERM);
    assert_eq!(server.ended(LONG), Some(0));
}

#[test]
fn a_collector_that_is_not_there_costs_spans_and_nothing_else() {
    // Nobody listens at a port that was free a moment ago.
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    is_served_without(address);
}

#[test]
fn a_collector_that_never_answers_costs_spans_and_nothing_else() {
    // The system accepts connections for it, and nobody ever reads.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    is_served_without(listener.local_addr().unwrap());
    drop(listener);
}

#[test]
fn a_resident_sends_spans_of_the_calls_that_it_makes() {
    let collector = Collector::start();
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("home")).unwrap();
    sends_to(&dir, collector.address);
    let run = |words: &[&str]| {
        let output = command(&dir, words).output().unwrap();
        assert!(output.status.success(), "{words:?} {output:?}");
    };
    run(&["resident", "start"]);
    run(&["tool", "call", "current_timestamp"]);
    let made = collector.wait_for(|span| span["name"] == "call");
    assert_eq!((&made["kind"], &made["parentSpanId"]), (&2.into(), &"".into()));
    collector.wait_for(|span| span["name"] == "judged" && span["parentSpanId"] == made["spanId"]);
    run(&["resident", "stop"]);
}
