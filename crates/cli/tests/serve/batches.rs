//! Batches over HTTP: both streams at once, bounded, and nothing goes on when somebody goes away.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::{Answer, LONG, Server, until};

/// A batch whose body is still being sent.
struct Sending {
    stream: TcpStream,
    answer: BufReader<TcpStream>,
}

impl Sending {
    fn begin(server: &Server, key: &str, query: &str) -> Sending {
        let more = "Content-Type: application/x-ndjson\r\nTransfer-Encoding: chunked\r\n\r\n";
        let head = server.head("POST", &format!("/v1/batches{query}"), Some(key), more);
        let mut stream = server.connect();
        stream.write_all(head.as_bytes()).unwrap();
        let answer = BufReader::new(stream.try_clone().unwrap());
        Sending { stream, answer }
    }

    fn send(&mut self, text: &str) {
        write!(self.stream, "{:x}\r\n{text}\r\n", text.len()).unwrap();
    }

    fn end(&mut self) {
        self.stream.write_all(b"0\r\n\r\n").unwrap();
    }

    fn head(&mut self) -> String {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert!(self.answer.read_line(&mut head).unwrap() > 0, "{head}");
        }
        head
    }

    /// The next chunk, which is a line here; `None` at the proper end.
    fn result(&mut self) -> Option<Value> {
        let mut length = String::new();
        self.answer.read_line(&mut length).unwrap();
        let length = usize::from_str_radix(length.trim_end(), 16).expect("it was broken off");
        let mut chunk = vec![0; length + 2];
        self.answer.read_exact(&mut chunk).unwrap();
        (length > 0).then(|| serde_json::from_slice(&chunk).unwrap())
    }
}

fn shell(id: &str, code: &str) -> String {
    format!("{}\n", json!({"id": id, "run": {"language": "shell", "code": code}}))
}

fn post(server: &Server, key: &str, query: &str, more: &str, body: &str) -> Answer {
    let head = format!(
        "{more}Content-Type: application/jsonl\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let text = server.head("POST", &format!("/v1/batches{query}"), Some(key), &head);
    server.raw(text.as_bytes()).unwrap()
}

fn lines(answer: &Answer) -> Vec<Value> {
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(answer.header("content-type"), Some("application/x-ndjson"));
    answer.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn runs(server: &Server, key: &str) -> Vec<Value> {
    let all = server.get("/v1/runs?limit=1000", Some(key)).json();
    all["runs"].as_array().unwrap().clone()
}

#[test]
fn results_come_while_jobs_are_still_sent() {
    let server = Server::start();
    if !server.has_sandbox() {
        return;
    }
    let key = server.key("run,runs:read");
    let mut batch = Sending::begin(&server, &key, "?jobs=2");
    let head = batch.head();
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    for n in 0..5 {
        // However it is cut into pieces.
        let job = shell(&n.to_string(), &format!("echo {n}"));
        let (first, second) = job.split_at(7);
        batch.send(first);
        batch.send(second);
        let result = batch.result().unwrap();
        assert_eq!((&result["id"], &result["line"]), (&json!(n.to_string()), &json!(n + 1)));
        assert_eq!(result["result"]["value"]["stdout"], format!("{n}\n"));
    }
    batch.end();
    assert_eq!(batch.result(), None);
}

#[test]
fn each_line_has_a_result_in_order_if_that_is_asked_for() {
    let server = Server::start();
    if !server.has_sandbox() {
        return;
    }
    let key = server.key("run,runs:read");
    let mut body: String = (0..20)
        .map(|n| shell(&n.to_string(), if n % 5 == 0 { "sleep 0.3" } else { "exit 3" }))
        .collect();
    body.push_str("nonsense\n{\"run\": {}, \"tenant\": \"x\"}\n\n");
    body.push_str(&shell("0", "true"));
    let answer = post(&server, &key, "?in_order=true&jobs=4", "", &body);
    let all = lines(&answer);
    let told: Vec<_> = all
        .iter()
        .map(|one| (one["line"].as_u64().unwrap(), one["result"]["status"].as_str().unwrap()))
        .collect();
    let mut expected: Vec<_> =
        (0..20).map(|n| (n + 1, if n % 5 == 0 { "success" } else { "failure" })).collect();
    expected.extend([(21, "invalid"), (22, "invalid"), (24, "invalid")]);
    assert_eq!(told, expected);
    let text = server.get("/metrics", Some(&server.key("metrics"))).text();
    assert!(text.contains("hotcell_calls_total{status=\"failure\"} 16"), "{text}");
    // The document of a run is that of a run.
    let alone = server.shell(&key, "", "exit 3").json();
    let fields = |one: &Value| one.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(fields(&all[1]["result"]), fields(&alone));
}

#[test]
fn what_is_wrong_with_the_request_is_said_before_anything_is_begun() {
    let server = Server::start();
    let key = server.key("run");
    let body = shell("a", "true");
    for query in
        ["?jobs=0", "?jobs=17", "?jobs=x", "?in_order=yes", "?wait=false", "?jobs=1&jobs=2"]
    {
        post(&server, &key, query, "", &body).is_problem(400, "bad-request");
    }
    server.post("/v1/batches", &key, &body).is_problem(415, "wrong-type");
    post(&server, &server.key("tools"), "", "", &body).is_problem(403, "wrong-scope");
    post(&server, "nonsense", "", "", &body).is_problem(401, "no-key");
    let packed = "Content-Encoding: gzip\r\n";
    post(&server, &key, "", packed, &body).is_problem(415, "wrong-type");
    server.get("/v1/batches", Some(&key)).is_problem(405, "wrong-method");
    assert_eq!(lines(&post(&server, &key, "", "", "")).len(), 0);
}

#[test]
fn the_same_batch_under_the_same_key_is_carried_out_once() {
    let server = Server::start();
    if !server.has_sandbox() {
        return;
    }
    let key = server.key("run,runs:read");
    let body: String = (0..10).map(|n| shell(&n.to_string(), &format!("echo {n}"))).collect();
    let calls = |more: &str| {
        let all = lines(&post(&server, &key, "?in_order=true", more, &body));
        let call = |one: &Value| one["result"]["id"].as_str().unwrap().to_owned();
        all.iter().map(call).collect::<Vec<_>>()
    };
    let first = calls("Idempotency-Key: batch 1\r\n");
    assert_eq!(calls("Idempotency-Key: batch 1\r\n"), first);
    assert_eq!(runs(&server, &key).len(), 10);
    assert_ne!(calls("Idempotency-Key: batch 2\r\n"), first);
    assert_ne!(calls(""), first);
    assert_eq!(runs(&server, &key).len(), 30);
}

#[test]
fn who_goes_away_ends_the_batch() {
    let server = Server::start();
    if !server.has_sandbox() {
        return;
    }
    let key = server.key("run,runs:read");
    let going_on = || runs(&server, &key).iter().filter(|run| run["status"].is_null()).count();
    // Also while more has been sent than is read.
    for (is_whole, count) in [(true, 5), (false, 5), (false, 400)] {
        let before = runs(&server, &key).len();
        let mut batch = Sending::begin(&server, &key, "?jobs=2");
        (0..count).for_each(|n| batch.send(&shell(&n.to_string(), "sleep 1000")));
        if is_whole {
            batch.end();
        }
        until(|| going_on() == 2);
        batch.stream.shutdown(Shutdown::Both).unwrap();
        until(|| going_on() == 0);
        let all = runs(&server, &key);
        assert_eq!(all.len(), before + 2, "nothing else was begun");
        assert!(all.iter().all(|run| run["status"] == "cancelled"), "{all:?}");
    }
    // Whoever comes next has all the room.
    assert_eq!(lines(&post(&server, &key, "", "", &shell("a", "true"))).len(), 1);
}

#[test]
fn a_body_that_is_broken_off_is_no_job() {
    let server = Server::start();
    if !server.has_sandbox() {
        return;
    }
    let key = server.key("run,runs:read");
    let mut batch = Sending::begin(&server, &key, "");
    batch.send(&shell("a", "true"));
    batch.head();
    assert_eq!(batch.result().unwrap()["result"]["status"], "success");
    batch.send(shell("b", "true").trim_end());
    batch.stream.write_all(b"nonsense\r\n").unwrap();
    let mut rest = String::new();
    batch.answer.read_to_string(&mut rest).ok();
    assert!(!rest.contains("0\r\n\r\n"), "it looks as if it were the whole: {rest:?}");
    assert_eq!(runs(&server, &key).len(), 1);
}

#[test]
fn who_takes_no_results_holds_up_nobody_but_the_own_jobs() {
    let server = Server::start();
    if !server.has_sandbox() {
        return;
    }
    let key = server.key("run,runs:read");
    let mut batch = Sending::begin(&server, &key, "?jobs=2");
    // More than the buffers of a connection hold.
    let job = shell("", "head -c 1000000 /dev/zero | tr '\\0' x").replace("\"id\":\"\",", "");
    let mut feed = batch.stream.try_clone().unwrap();
    let count = 60;
    let feeder = thread::spawn(move || {
        for _ in 0..count {
            write!(feed, "{:x}\r\n{job}\r\n", job.len()).unwrap();
        }
        feed.write_all(b"0\r\n\r\n").unwrap();
    });
    let (mut seen, mut since) = (0, Instant::now());
    while since.elapsed() < Duration::from_secs(2) {
        let now = runs(&server, &key).len();
        if now != seen {
            (seen, since) = (now, Instant::now());
        }
        thread::sleep(Duration::from_millis(50));
    }
    assert!((1..count).contains(&seen), "{seen} were begun");
    batch.head();
    let results = std::iter::from_fn(|| batch.result()).count();
    assert_eq!(results, count);
    feeder.join().unwrap();
}

#[test]
fn there_are_so_many_at_one_time() {
    let server = Server::start();
    let key = server.key("run,runs:read");
    // No key has more than three quarters of the eight places.
    let mut held: Vec<_> = (0..6).map(|_| Sending::begin(&server, &key, "")).collect();
    held.iter_mut().for_each(|batch| drop(batch.head()));
    post(&server, &key, "", "", "").is_problem(503, "busy");
    assert_eq!(post(&server, &server.key("run"), "", "", "").status, 200, "others have a place");
    held.pop();
    until(|| post(&server, &key, "", "", "").status == 200);
}

#[test]
fn a_server_that_ends_breaks_off_what_it_does_not_finish() {
    let mut server = Server::with(&["--grace", "1s"]);
    if !server.has_sandbox() {
        return;
    }
    let key = server.key("run,runs:read");
    let mut batch = Sending::begin(&server, &key, "?jobs=2");
    (0..5).for_each(|n| batch.send(&shell(&n.to_string(), "sleep 1000")));
    until(|| runs(&server, &key).len() == 2);
    server.signal(Signal::TERM);
    let mut rest = String::new();
    batch.answer.read_to_string(&mut rest).ok();
    let told = rest.matches("\"status\":\"cancelled\",\"value\"").count();
    assert_eq!(told, 2, "{rest}");
    assert!(!rest.ends_with("0\r\n\r\n"), "{rest}");
    assert_eq!(server.ended(LONG), Some(0));
    assert!(server.said().contains("stopped clean=true"), "{}", server.said());
}

#[test]
fn who_sends_no_job_is_let_go_unless_one_is_going_on() {
    let server = Server::with(&["--idle", "1s"]);
    if !server.has_sandbox() {
        return;
    }
    let key = server.key("run");
    let mut silent = Sending::begin(&server, &key, "");
    silent.head();
    // A little now and again is no job either.
    let begun = Instant::now();
    while write!(silent.stream, "1\r\n \r\n").is_ok() {
        assert!(begun.elapsed() < LONG);
        thread::sleep(Duration::from_millis(100));
    }
    let mut busy = Sending::begin(&server, &key, "");
    busy.send(&shell("a", "sleep 4"));
    busy.head();
    assert_eq!(busy.result().unwrap()["result"]["status"], "success");
    busy.end();
    assert_eq!(busy.result(), None);
}
