//! Many at once, slow ones, and ones that guess: each is bounded, and somebody else is served meanwhile.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use crate::support::{Answer, LONG, Server};

/// Somebody who only wants to know; the longest that an answer took.
fn healthy(server: &Server, key: &str, times: usize) -> Duration {
    let mut longest = Duration::ZERO;
    for _ in 0..times {
        let begun = Instant::now();
        let answer = server.get("/v1/tools/add", Some(key));
        assert_eq!(answer.status, 200, "{answer:?}");
        longest = longest.max(begun.elapsed());
    }
    longest
}

fn is_closed(mut stream: &TcpStream, within: Duration) -> bool {
    stream.set_read_timeout(Some(within)).unwrap();
    let mut bytes = Vec::new();
    // What was said before does not matter; what matters is that there is an end.
    !matches!(stream.read_to_end(&mut bytes), Err(error) if error.kind() == std::io::ErrorKind::WouldBlock)
}

#[test]
fn thousands_of_idle_connections_keep_nobody_out_api_05() {
    let server = Server::with(&["--connections", "64", "--idle", "5s"]);
    let key = server.key("tools,metrics");
    let mut idle = Vec::new();
    for n in 0..3000 {
        // Those that make room are closed by the server, one by one.
        if let Ok(stream) = TcpStream::connect(server.address) {
            idle.push(stream);
        }
        if n % 500 == 499 {
            let took = healthy(&server, &key, 3);
            assert!(took < Duration::from_secs(5), "{took:?}");
        }
    }
    let metrics = server.get("/metrics", Some(&key)).text();
    let open = metrics.lines().find_map(|line| line.strip_prefix("hotcell_connections "));
    assert!(open.unwrap().parse::<u32>().unwrap() <= 64, "{open:?}");
    assert!(metrics.contains("hotcell_connections_refused_total{why=\"made room\"}"), "{metrics}");
    assert!(is_closed(&idle[0], LONG));
    assert!(is_closed(idle.last().unwrap(), LONG), "the last ones have waited too long");
}

#[test]
fn slow_senders_are_closed_and_hold_up_nobody_api_05() {
    let server = Server::with(&["--idle", "2s", "--connections", "32"]);
    let key = server.key("admin");
    let mut slow = Vec::new();
    for n in 0..40 {
        let mut stream = server.connect();
        let half = match n % 3 {
            0 => "GET /healthz HTT".to_owned(),
            1 => server.head("GET", "/healthz", None, "X-Half: "),
            _ => server.head(
                "POST",
                "/v1/runs",
                Some(&key),
                "Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{\"run\"",
            ),
        };
        stream.write_all(half.as_bytes()).unwrap();
        slow.push(stream);
    }
    assert!(healthy(&server, &key, 10) < Duration::from_secs(5));
    let begun = Instant::now();
    for stream in &slow {
        assert!(is_closed(stream, LONG), "one is still open after {:?}", begun.elapsed());
    }
    assert!(healthy(&server, &key, 3) < Duration::from_secs(5));
}

#[test]
fn guessing_is_slowed_and_counted_and_good_keys_are_not_concerned_api_16() {
    let server = Server::start();
    let key = server.key("tools,metrics");
    let wrong = |n: usize| format!("hck_{n:056}");
    let answers: Vec<Answer> = thread::scope(|scope| {
        let guess = |from: usize| {
            let server = &server;
            move || -> Vec<Answer> {
                (0..15).map(|n| server.get("/v1/tools", Some(&wrong(from * 100 + n)))).collect()
            }
        };
        let all: Vec<_> = (0..4).map(|from| scope.spawn(guess(from))).collect();
        let took = healthy(&server, &key, 20);
        assert!(took < Duration::from_secs(5), "{took:?}");
        all.into_iter().flat_map(|one| one.join().unwrap()).collect()
    });
    let (slowed, others): (Vec<_>, Vec<_>) = answers.iter().partition(|one| one.status == 429);
    others.iter().for_each(|one| one.is_problem(401, "no-key"));
    // A busy machine lets them guess more slowly by itself.
    assert!(slowed.len() > 5, "{}", slowed.len());
    for one in slowed {
        one.is_problem(429, "too-many-keys");
        assert!(one.header("retry-after").is_some() && one.header("connection") == Some("close"));
    }
    let metrics = server.get("/metrics", Some(&key)).text();
    assert!(metrics.contains("hotcell_key_guesses_total 60"), "{metrics}");
}

#[test]
fn a_key_has_its_rate_and_its_share_api_21() {
    let server = Server::start();
    let slow = server.key_with("tools", &["--rate", "2", "--burst", "3"]);
    let statuses: Vec<_> = (0..8).map(|_| server.get("/v1/tools/add", Some(&slow))).collect();
    let refused = statuses.iter().find(|answer| answer.status != 200).expect("it is too fast");
    refused.is_problem(429, "too-many-requests");
    assert!(refused.header("retry-after").unwrap().parse::<u32>().unwrap() >= 1);
    if !server.has_sandbox() {
        return;
    }
    let one = server.key_with("run", &["--concurrent", "1"]);
    thread::scope(|scope| {
        let first = scope.spawn(|| server.shell(&one, "", "sleep 2"));
        thread::sleep(Duration::from_millis(700));
        server.shell(&one, "", "true").is_problem(429, "too-many-at-once");
        assert_eq!(first.join().unwrap().status, 200);
    });
    // One key asks for more than there is; the other one's single request does not wait behind it.
    let (greedy, modest) = (server.key_with("run,tools", &["--subject", "a"]), server.key("tools"));
    thread::scope(|scope| {
        let all: Vec<_> = (0..60)
            .map(|_| scope.spawn(|| server.shell(&greedy, "", "sleep 0.3").status))
            .collect();
        thread::sleep(Duration::from_millis(300));
        let took = healthy(&server, &modest, 3);
        assert!(took < Duration::from_secs(10), "{took:?}");
        for one in all {
            assert!([200, 429, 503].contains(&one.join().unwrap()));
        }
    });
}
