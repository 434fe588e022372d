//! What a call prints, while it prints it.

use std::io::{BufRead, BufReader, Write};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::{LONG, Server};

#[derive(Debug, Clone)]
struct Event {
    id: String,
    name: String,
    data: Value,
}

fn events(text: &str) -> Vec<Event> {
    let of = |block: &str| {
        let field = |name: &str| {
            let line = block.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
            line.unwrap_or_default().to_owned()
        };
        let data = serde_json::from_str(&field("data")).unwrap();
        Event { id: field("id"), name: field("event"), data }
    };
    text.split("\n\n").filter(|block| block.contains("event: ")).map(of).collect()
}

fn printed(events: &[Event]) -> String {
    let output = events.iter().filter(|event| event.name == "output");
    output.map(|event| event.data["text"].as_str().unwrap()).collect()
}

#[test]
fn who_comes_back_hears_exactly_what_is_missing() {
    let server = Server::start();
    if !server.has_sandbox() {
        return;
    }
    let key = server.key("run,runs:read");
    let call =
        server.left(&key, "for n in 1 2 3 4 5; do echo line $n; sleep 0.2; done; echo over >&2");
    let path = format!("/v1/runs/{call}/events");
    // Somebody hears two lines, and is cut off.
    let mut stream = server.connect();
    let head = server.head("GET", &path, Some(&key), "\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    let mut lines = BufReader::new(stream).lines();
    let mut heard = String::new();
    let mut last = String::new();
    while heard.lines().count() < 2 {
        let line = lines.next().unwrap().unwrap();
        if let Some(id) = line.strip_prefix("id: ") {
            last = id.to_owned();
        }
        if let Some(data) = line.strip_prefix("data: ") {
            let data: Value = serde_json::from_str(data).unwrap();
            heard.push_str(data["text"].as_str().unwrap_or_default());
        }
    }
    drop(lines);
    let again = server.ask("GET", &path, Some(&key), &format!("Last-Event-ID: {last}\r\n"), None);
    assert_eq!(again.header("content-type"), Some("text/event-stream"));
    let rest = events(&again.text());
    assert_eq!(rest.first().unwrap().name, "state");
    assert_eq!(rest.last().unwrap().name, "end");
    assert_eq!(rest.last().unwrap().data["status"], "success");
    let all = format!("{heard}{}", printed(&rest));
    assert_eq!(all, "line 1\nline 2\nline 3\nline 4\nline 5\nover\n");
    // The same once it is over, from the beginning and from any place.
    let whole = events(&server.get(&path, Some(&key)).text());
    assert_eq!(printed(&whole), all);
    for event in whole.iter().filter(|event| event.name == "output") {
        let more = format!("Last-Event-ID: {}\r\n", event.id);
        let rest = printed(&events(&server.ask("GET", &path, Some(&key), &more, None).text()));
        let (stdout, stderr) = event.id.split_once('-').unwrap();
        let taken = stdout.parse::<usize>().unwrap() + stderr.parse::<usize>().unwrap();
        assert_eq!(rest, all[taken..], "{event:?}");
    }
    let known = server.get(&format!("{path}?stdout=35&stderr=0&follow=false"), Some(&key));
    assert_eq!(printed(&events(&known.text())), "over\n");
    for odd in ["x", "1", "1-2-3", "-1-0"] {
        let more = format!("Last-Event-ID: {odd}\r\n");
        server.ask("GET", &path, Some(&key), &more, None).is_problem(400, "bad-request");
    }
    let none = "/v1/runs/01ARZ3NDEKTSV4RRFFQ69G5FAV/events";
    server.get(none, Some(&key)).is_problem(404, "not-found");
}

/// The states that were told, each once.
fn states(events: &[Event]) -> Vec<String> {
    let states = events.iter().filter(|event| event.name == "state");
    states.map(|event| event.data["state"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn that_a_call_waits_runs_and_has_ended_is_told_when_it_is_so() {
    let server = Server::start();
    if !server.has_sandbox() {
        return;
    }
    let key = server.key("run,runs:read");
    let turns = 2 * std::thread::available_parallelism().map_or(1, usize::from);
    let before: Vec<_> = (0..turns).map(|_| server.left(&key, "sleep 30")).collect();
    let call = server.left(&key, "echo one; sleep 1; echo two");
    let path = format!("/v1/runs/{call}/events");
    let all = std::thread::scope(|scope| {
        let follows = || scope.spawn(|| events(&server.get(&path, Some(&key)).text()));
        let followed = [follows(), follows()];
        // They have heard the first of it.
        let begun = Instant::now();
        let mut stream = server.connect();
        stream.write_all(server.head("GET", &path, Some(&key), "\r\n").as_bytes()).unwrap();
        let mut lines = BufReader::new(stream).lines();
        let line =
            lines.find(|line| line.as_ref().unwrap().starts_with("data: ")).unwrap().unwrap();
        assert!(line.contains("\"state\":\"queued\",\"status\":null"), "{line}");
        assert!(begun.elapsed() < Duration::from_secs(20));
        for call in &before {
            let cancel = format!("/v1/runs/{call}/cancel");
            assert_eq!(server.ask("POST", &cancel, Some(&key), "", None).status, 200);
        }
        let rest: Vec<_> = lines.map(Result::unwrap).collect();
        assert!(rest.iter().any(|line| line.contains("\"running\"")), "{rest:?}");
        followed.map(|one| one.join().unwrap())
    });
    for all in &all {
        assert_eq!(states(all).last().unwrap(), "ended");
        let runs = all.iter().position(|event| event.data["state"] == "running").unwrap();
        let prints = all.iter().position(|event| event.name == "output").unwrap();
        assert!(runs < prints, "{all:?}");
        assert!(states(all).iter().filter(|state| *state == "running").count() == 1, "{all:?}");
        let [.., ended, end] = all.as_slice() else { panic!() };
        assert_eq!((ended.name.as_str(), end.name.as_str()), ("state", "end"));
        assert_eq!(ended.data["status"], "success");
        // Whoever comes back hears the rest, whichever event was the last.
        for event in all.iter().filter(|event| event.name == "state") {
            let more = format!("Last-Event-ID: {}\r\n", event.id);
            let rest = events(&server.ask("GET", &path, Some(&key), &more, None).text());
            assert_eq!(states(&rest), ["ended"]);
            let taken: usize = event.id.split_once('-').unwrap().0.parse().unwrap();
            assert_eq!(printed(&rest), "one\ntwo\n"[taken..]);
        }
    }
}

#[test]
fn who_never_reads_is_let_go_and_holds_up_nobody_api_05() {
    let server = Server::with(&["--idle", "2s"]);
    if !server.has_sandbox() {
        return;
    }
    let key = server.key("run,runs:read,metrics");
    let call = server.left(&key, "i=0; while [ $i -lt 30000 ]; do echo 0123456789012345678901234567890123456789; i=$((i+1)); done; sleep 3");
    let head = server.head("GET", &format!("/v1/runs/{call}/events"), Some(&key), "\r\n");
    let idle: Vec<_> = (0..8)
        .map(|_| {
            let mut stream = server.connect();
            // Little fits into what the kernel keeps for it.
            rustix::net::sockopt::set_socket_recv_buffer_size(&stream, 4096).unwrap();
            stream.write_all(head.as_bytes()).unwrap();
            stream
        })
        .collect();
    let waits = || {
        let text = server.get("/metrics", Some(&key)).text();
        let line = text.lines().find(|line| line.starts_with("hotcell_lane_taken{lane=\"waits\"}"));
        line.unwrap().rsplit_once(' ').unwrap().1.parse::<u32>().unwrap()
    };
    let begun = Instant::now();
    while waits() > 0 {
        let asked = Instant::now();
        assert_eq!(server.get("/healthz", None).status, 200);
        assert!(asked.elapsed() < Duration::from_secs(5));
        assert!(begun.elapsed() < LONG, "somebody is still waited for");
        std::thread::sleep(Duration::from_millis(100));
    }
    drop(idle);
    let whole = events(&server.get(&format!("/v1/runs/{call}/events"), Some(&key)).text());
    assert_eq!(whole.last().unwrap().data["status"], "success", "the call was not held up");
}
