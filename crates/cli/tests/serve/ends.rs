//! Ends: of calls, of clients, of the server.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::json;

use crate::support::{Answer, LONG, Server};

fn status(server: &Server, key: &str, call: &str) -> Option<String> {
    let shown = server.get(&format!("/v1/runs/{call}"), Some(key));
    assert_eq!(shown.status, 200, "{shown:?}");
    shown.json()["status"].as_str().map(str::to_owned)
}

pub(crate) fn wait_for(server: &Server, key: &str, call: &str) -> String {
    let begun = Instant::now();
    loop {
        if let Some(status) = status(server, key, call) {
            return status;
        }
        assert!(begun.elapsed() < LONG);
        thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_call_is_cancelled_once_however_often_that_is_asked_api_12() {
    let server = Server::start();
    if !server.has_sandbox() {
        return;
    }
    let key = server.key("run,runs:read,audit");
    let call = server.left(&key, "sleep 60");
    let cancel =
        || server.ask("POST", &format!("/v1/runs/{call}/cancel"), Some(&key), "", None).status;
    let begun = Instant::now();
    while cancel() != 200 {
        assert!(begun.elapsed() < LONG);
    }
    thread::scope(|scope| {
        let all: Vec<_> = (0..50).map(|_| scope.spawn(cancel)).collect();
        for one in all {
            assert!([200, 404, 429, 503].contains(&one.join().unwrap()));
        }
    });
    assert_eq!(wait_for(&server, &key, &call), "cancelled");
    assert_eq!(cancel(), 404);
    let events = server.get(&format!("/v1/audit/events?call={call}&kind=outcome"), Some(&key));
    assert_eq!(events.json()["events"].as_array().unwrap().len(), 1);
    let unknown = "/v1/runs/01ARZ3NDEKTSV4RRFFQ69G5FAV/cancel";
    server.ask("POST", unknown, Some(&key), "", None).is_problem(404, "not-found");
}

/// Before it has its turn, and when it is over.
#[test]
fn a_storm_of_cancels_ends_a_call_that_waits_and_changes_none_that_has_ended_api_12() {
    let server = Server::start();
    if !server.has_sandbox() {
        return;
    }
    let key = server.key("run,runs:read,audit,artifacts:read");
    let storm = |call: &str| -> Vec<u16> {
        let path = format!("/v1/runs/{call}/cancel");
        thread::scope(|scope| {
            let cancel = || server.ask("POST", &path, Some(&key), "", None).status;
            let all: Vec<_> = (0..100).map(|_| scope.spawn(cancel)).collect();
            all.into_iter().map(|one| one.join().unwrap()).collect()
        })
    };
    let outcomes = |call: &str| {
        let path = format!("/v1/audit/events?call={call}&kind=outcome");
        server.get(&path, Some(&key)).json()["events"].as_array().unwrap().len()
    };
    let over = server.left(&key, "echo over");
    assert_eq!(wait_for(&server, &key, &over), "success");
    let answers = storm(&over);
    assert!(answers.iter().all(|status| [404, 429, 503].contains(status)), "{answers:?}");
    assert_eq!((wait_for(&server, &key, &over).as_str(), outcomes(&over)), ("success", 1));

    let turns = 2 * thread::available_parallelism().map_or(1, usize::from);
    let before: Vec<_> = (0..turns).map(|_| server.left(&key, "sleep 60")).collect();
    let waits = server.left(&key, "echo it runs");
    // It is in the record before it can be found: again, until somebody was heard.
    let begun = Instant::now();
    while !storm(&waits).contains(&200) {
        assert!(begun.elapsed() < LONG);
    }
    assert_eq!((wait_for(&server, &key, &waits).as_str(), outcomes(&waits)), ("cancelled", 1));
    let shown = server.get(&format!("/v1/runs/{waits}"), Some(&key)).text();
    let told = server.get(&format!("/v1/runs/{waits}/events"), Some(&key)).text();
    assert!(!told.contains("event: output"), "{shown} {told}");
    for call in before {
        let answers = storm(&call);
        assert!(answers.contains(&200), "{answers:?}");
        assert_eq!((wait_for(&server, &key, &call).as_str(), outcomes(&call)), ("cancelled", 1));
    }
}

#[test]
fn who_goes_away_ends_the_call_unless_it_was_left_api_11() {
    let server = Server::start();
    if !server.has_sandbox() {
        return;
    }
    let key = server.key("run,runs:read");
    let body = json!({"run": {"language": "shell", "code": "sleep 60"}}).to_string();
    let more =
        format!("Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    let mut stream = server.connect();
    stream.write_all(server.head("POST", "/v1/runs", Some(&key), &more).as_bytes()).unwrap();
    let begun = Instant::now();
    let call = loop {
        let runs = server.get("/v1/runs", Some(&key)).json();
        if let Some(call) = runs["runs"][0]["call"].as_str() {
            break call.to_owned();
        }
        assert!(begun.elapsed() < LONG);
    };
    drop(stream);
    assert_eq!(wait_for(&server, &key, &call), "cancelled");
    // One that was left goes on.
    let left = server.left(&key, "sleep 1; echo over");
    assert_eq!(wait_for(&server, &key, &left), "success");
    // What nobody allows is told at once, and not by a name.
    let policy = server.key("tools");
    let refused = server.post(
        "/v1/tools/fs.write/call?wait=false",
        &policy,
        r#"{"arguments": {"path": "x", "text": "y"}}"#,
    );
    refused.is_problem(403, "blocked");
    // Half of an upload is nothing.
    let mut stream = server.connect();
    let half = server.head(
        "POST",
        "/v1/runs",
        Some(&key),
        "Content-Type: application/json\r\nContent-Length: 999\r\n\r\n{",
    );
    stream.write_all(half.as_bytes()).unwrap();
    drop(stream);
    assert_eq!(server.get("/healthz", None).status, 200);
}

/// A batch and a replay are no exception: their calls end, and those that wait for others never begin.
#[test]
fn who_goes_away_ends_a_batch_and_a_replay_api_11() {
    let server = Server::start();
    if !server.has_sandbox() {
        return;
    }
    let key = server.key("run,tools,runs:read");
    let sleep = |after: &[usize]| {
        let arguments = json!({"language": "shell", "code": "sleep 60"});
        json!({"request": {"tool": "code_execute", "arguments": arguments}, "after": after})
    };
    let batch = json!({"calls": [sleep(&[]), sleep(&[]), sleep(&[0, 1])]}).to_string();
    let mut ended = hung_up(&server, &key, "/v1/batch", &batch, 2);
    assert_eq!(ended.len(), 2, "the third was never begun");
    // One that has ended, and takes as long again.
    let slow = server.left(&key, "sleep 3");
    assert_eq!(wait_for(&server, &key, &slow), "success");
    ended.push((slow.clone(), "success".to_owned()));
    let all = hung_up(&server, &key, &format!("/v1/runs/{slow}/replay"), "{}", ended.len() + 1);
    let new: Vec<_> = all.iter().filter(|one| !ended.contains(one)).collect();
    assert_eq!(new.len(), 1, "{all:?}");
    assert_eq!(new[0].1, "cancelled");
    assert!(ended.iter().filter(|one| one.0 != slow).all(|one| one.1 == "cancelled"), "{ended:?}");
}

/// Asks, goes away when there are so many calls, and waits for their ends: calls and how they ended.
fn hung_up(
    server: &Server,
    key: &str,
    path: &str,
    body: &str,
    calls: usize,
) -> Vec<(String, String)> {
    let more =
        format!("Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    let mut stream = server.connect();
    stream.write_all(server.head("POST", path, Some(key), &more).as_bytes()).unwrap();
    let begun = Instant::now();
    let known = || {
        let runs = server.get("/v1/runs", Some(key)).json()["runs"].as_array().unwrap().clone();
        runs.iter().map(|run| run["call"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    while known().len() < calls {
        assert!(begun.elapsed() < LONG, "{:?}", known());
        thread::sleep(Duration::from_millis(20));
    }
    drop(stream);
    let ended = |call: String| {
        let status = wait_for(server, key, &call);
        (call, status)
    };
    known().into_iter().map(ended).collect()
}

#[test]
fn a_second_server_is_refused_and_commands_use_the_first() {
    let mut server = Server::start();
    let second = server.command(&["serve", "--listen", "127.0.0.1:0"]).output().unwrap();
    let text = String::from_utf8_lossy(&second.stderr).into_owned();
    assert_eq!(second.status.code(), Some(120), "{text}");
    assert!(text.contains("this home has a server already"), "{text}");
    assert!(
        text.contains(&format!("process {}, at http://{}", server.pid(), server.address)),
        "{text}"
    );
    let told = server.command(&["resident", "status"]).output().unwrap();
    assert!(String::from_utf8_lossy(&told.stdout).contains(&format!("process {}", server.pid())));
    let taken = server.address.to_string();
    let elsewhere = tempfile::tempdir().unwrap();
    let mut other = server.command(&["serve", "--listen", &taken]);
    let other = other.env("HOTCELL_HOME", elsewhere.path()).output().unwrap();
    let text = String::from_utf8_lossy(&other.stderr).into_owned();
    assert!(text.contains("cannot be listened at"), "{text}");
    server.signal(Signal::INT);
    assert_eq!(server.ended(LONG), Some(0));
}

#[test]
fn a_server_ends_in_order_api_20() {
    let mut server = Server::with(&["--grace", "2s"]);
    if !server.has_sandbox() {
        return;
    }
    let key = server.key("run,runs:read");
    let calls: Vec<_> = (0..4).map(|_| server.left(&key, "sleep 60")).collect();
    let soon = server.left(&key, "sleep 0.5");
    let mut follows = server.connect();
    let head = server.head("GET", &format!("/v1/runs/{}/events", calls[0]), Some(&key), "\r\n");
    follows.write_all(head.as_bytes()).unwrap();
    let begun = Instant::now();
    server.signal(Signal::TERM);
    thread::sleep(Duration::from_millis(300));
    let refused = std::net::TcpStream::connect(server.address);
    assert!(refused.is_err(), "nobody is accepted any more");
    assert_eq!(server.ended(LONG), Some(0), "{}", server.said());
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
    assert!(server.said().contains("cancelling"), "{}", server.said());
    let shown = |call: &str| {
        let shown = server.command(&["runs", "show", call, "--json"]).output().unwrap();
        let shown: serde_json::Value = serde_json::from_slice(&shown.stdout).unwrap();
        shown["status"].as_str().unwrap().to_owned()
    };
    assert!(["success", "cancelled"].contains(&shown(&soon).as_str()));
    for call in &calls {
        assert_eq!(shown(call), "cancelled");
    }
    let verified = server.command(&["audit", "verify"]).output().unwrap();
    assert!(String::from_utf8_lossy(&verified.stdout).starts_with("sound"));
}

/// Fifty calls, a signal, and another one.
#[test]
fn fifty_calls_and_two_signals_leave_nothing_api_20() {
    let mut server = Server::with(&["--grace", "60s"]);
    if !server.has_sandbox() {
        return;
    }
    // Nobody else sleeps so long.
    let code = format!("sleep 6{:05}", server.pid());
    let (key, metrics) = (server.key("run"), server.key("metrics"));
    let begun = thread::scope(|scope| {
        let ask = || {
            let body = json!({"run": {"command": ["sh", "-c", &code]}}).to_string();
            server.post("/v1/runs", &key, &body)
        };
        let all: Vec<_> = (0..50).map(|_| scope.spawn(ask)).collect();
        let taken = || server.get("/metrics", Some(&metrics)).text();
        let begun = Instant::now();
        while !taken().contains("hotcell_lane_taken{lane=\"calls\"} 50") {
            assert!(begun.elapsed() < LONG, "{}", taken());
            thread::sleep(Duration::from_millis(50));
        }
        // They have begun; whether a program of theirs has, is a question of how busy the machine is.
        while sleepers(&code) == 0 {
            assert!(begun.elapsed() < LONG, "{}", server.said());
            thread::sleep(Duration::from_millis(50));
        }
        let begun = Instant::now();
        server.signal(Signal::TERM);
        let stopping = Instant::now();
        while !server.said().contains("stopping") {
            assert!(stopping.elapsed() < LONG);
            thread::sleep(Duration::from_millis(10));
        }
        server.signal(Signal::TERM);
        for one in all {
            let answer = one.join().unwrap();
            assert!(answer.status == 200 || answer.status == 503, "{answer:?}");
            assert!(answer.status != 200 || answer.json()["status"] == "cancelled", "{answer:?}");
        }
        begun
    });
    assert_eq!(server.ended(LONG), Some(0), "{}", server.said());
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
    assert_eq!(sleepers(&code), 0);
    let verified = server.command(&["audit", "verify"]).output().unwrap();
    assert!(String::from_utf8_lossy(&verified.stdout).starts_with("sound"));
    let open = server.command(&["runs", "--json"]).output().unwrap();
    assert!(!String::from_utf8_lossy(&open.stdout).contains("\"status\":null"), "{open:?}");
}

/// Processes of this host with such a word in their command.
pub(crate) fn sleepers(word: &str) -> usize {
    let all = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let commands = all.filter_map(|one| std::fs::read(one.path().join("cmdline")).ok());
    commands.filter(|line| String::from_utf8_lossy(line).contains(word)).count()
}

#[test]
fn a_second_signal_does_not_wait() {
    let mut server = Server::with(&["--grace", "60s"]);
    if !server.has_sandbox() {
        return;
    }
    let key = server.key("run,runs:read");
    server.left(&key, "sleep 60");
    let begun = Instant::now();
    server.signal(Signal::TERM);
    thread::sleep(Duration::from_millis(200));
    server.signal(Signal::TERM);
    assert_eq!(server.ended(LONG), Some(0), "{}", server.said());
    assert!(begun.elapsed() < Duration::from_secs(30));
}

#[test]
fn a_log_that_is_closed_does_not_end_the_server() {
    // Its stderr goes to a pipe that nobody reads any more.
    let dir = tempfile::tempdir().unwrap();
    let mut serve = std::process::Command::new(env!("CARGO_BIN_EXE_hotcell"));
    serve.args(["serve", "--listen", "127.0.0.1:0"]).env("HOTCELL_HOME", dir.path());
    let mut child = serve.stderr(std::process::Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    let mut lines = std::io::BufReader::new(child.stderr.take().unwrap());
    std::io::BufRead::read_line(&mut lines, &mut line).unwrap();
    drop(lines);
    let address = line.trim().rsplit_once("http://").unwrap().1.to_owned();
    for _ in 0..50 {
        let mut stream = std::net::TcpStream::connect(&address).unwrap();
        let text = format!("GET /healthz HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
        stream.write_all(text.as_bytes()).unwrap();
        let mut answer = String::new();
        std::io::Read::read_to_string(&mut stream, &mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    let pid = rustix::process::Pid::from_raw(child.id().cast_signed()).unwrap();
    rustix::process::kill_process(pid, Signal::TERM).unwrap();
    assert!(child.wait().unwrap().success());
}

/// OUT-12: everybody comes again at once, several under one key, and not knowing what became of it.
#[test]
fn a_thousand_clients_that_come_again_after_an_outage_begin_nothing_twice_out_12() {
    const CLIENTS: usize = 1000;
    const KEYS: usize = 200;
    let server = Server::start();
    if !server.has_sandbox() {
        return;
    }
    let key = server.key("run,runs:read");
    // Nowhere, while there is no server.
    let address = Mutex::new(Some(server.address));
    let answered = AtomicUsize::new(0);
    let one = |client: usize| -> Answer {
        let body = json!({"run": {"command": ["true"]}}).to_string();
        let mut tries = 0;
        loop {
            tries += 1;
            let at = *address.lock().unwrap();
            let answer = at.and_then(|at| {
                let text = format!(
                    "POST /v1/runs HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\n\
                     Authorization: Bearer {key}\r\nIdempotency-Key: key-{}\r\n\
                     Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
                    client % KEYS,
                    body.len()
                );
                let mut stream = TcpStream::connect(at).ok()?;
                stream.set_read_timeout(Some(LONG)).unwrap();
                stream.write_all(text.as_bytes()).ok()?;
                let mut all = Vec::new();
                stream.read_to_end(&mut all).ok()?;
                Answer::read(&all)
            });
            match answer {
                Some(answer) if [429, 503].contains(&answer.status) => {
                    let wait: u64 = answer.header("retry-after").unwrap().parse().unwrap();
                    // Not all of them at the same moment.
                    thread::sleep(Duration::from_millis(wait * 1000 + (client % 50) as u64 * 20));
                }
                Some(answer) => {
                    answered.fetch_add(1, Ordering::SeqCst);
                    return answer;
                }
                None => thread::sleep(Duration::from_millis(100 + (client % 10) as u64 * 10)),
            }
            assert!(tries < 1000, "client {client} is never answered");
        }
    };
    let (server, answers) = thread::scope(|scope| {
        let one = &one;
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| {
                let small = thread::Builder::new().stack_size(256 * 1024);
                small.spawn_scoped(scope, move || one(client)).unwrap()
            })
            .collect();
        let begun = Instant::now();
        while answered.load(Ordering::SeqCst) < CLIENTS / 10 {
            assert!(begun.elapsed() < LONG);
            thread::sleep(Duration::from_millis(10));
        }
        *address.lock().unwrap() = None;
        let dir = server.killed();
        thread::sleep(Duration::from_secs(2));
        let server = Server::again(dir);
        *address.lock().unwrap() = Some(server.address);
        let answers: Vec<_> = clients.into_iter().map(|one| one.join().unwrap()).collect();
        (server, answers)
    });
    // All of one key hear of the same call: how it ended, or that nobody knows since the outage.
    let mut calls = HashMap::new();
    let mut unknown = 0;
    for (client, answer) in answers.iter().enumerate() {
        let document = answer.json();
        match answer.status {
            200 if document["status"] == "success" => {
                let id = document["id"].as_str().unwrap().to_owned();
                assert_eq!(calls.entry(client % KEYS).or_insert(id.clone()), &id, "{document}");
            }
            _ => {
                assert!(answer.text().contains("unknown") || answer.status == 409, "{answer:?}");
                unknown += 1;
            }
        }
    }
    // No more than had a place when it began.
    assert!(calls.len() + 96 >= KEYS, "{unknown} hear that it is not known");
    let runs = server.get("/v1/runs?limit=1000", Some(&key)).json();
    assert_eq!(runs["runs"].as_array().unwrap().len(), KEYS, "one for each key");
    assert_eq!(server.shell(&key, "", "true").status, 200);
}

#[test]
fn a_log_that_has_no_room_does_not_end_the_server() {
    let dir = tempfile::tempdir().unwrap();
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut serve = std::process::Command::new(env!("CARGO_BIN_EXE_hotcell"));
    serve.args(["serve", "--listen", "127.0.0.1:0"]).env("HOTCELL_HOME", dir.path());
    let mut child = serve.stderr(full).spawn().unwrap();
    // It cannot say where it is; the home has it.
    let note = dir.path().join("run/serve.lock");
    let begun = Instant::now();
    let address = loop {
        let text = std::fs::read_to_string(&note).unwrap_or_default();
        if let Some((_, address)) = text.split_once(", at ") {
            break address.trim_start_matches("http://").to_owned();
        }
        assert!(begun.elapsed() < LONG && child.try_wait().unwrap().is_none(), "{text}");
        thread::sleep(Duration::from_millis(20));
    };
    for _ in 0..50 {
        let mut stream = TcpStream::connect(&address).unwrap();
        let text = format!("GET /healthz HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
        stream.write_all(text.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    let pid = rustix::process::Pid::from_raw(child.id().cast_signed()).unwrap();
    rustix::process::kill_process(pid, Signal::TERM).unwrap();
    assert!(child.wait().unwrap().success());
}
