//! Clients and servers that do not say what they do: heads that never end or are too long, lengths that are none, and
//! SOCKS.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use hotcell_egress::{BUDGET, Budget, End, Event, Fault, How, Refused};

use crate::gate::{Inside, World, head};
use crate::support::{Ca, Names, Rules, Server, drain, ok, request};

fn world() -> (Arc<Names>, World) {
    let names = Names::of(&[("allowed.test", &["127.0.0.1"]), ("denied.test", &["127.0.0.1"])]);
    let world = World::new(&names, None);
    (names, world)
}

fn is_malformed(fault: Fault) -> impl Fn(&Event) -> bool {
    move |event| matches!(event, Event::Malformed { why } if *why == fault)
}

/// Says something, a byte at a time, until nobody listens any more.
fn trickle(stream: &mut TcpStream, bytes: impl Iterator<Item = u8>) -> usize {
    let mut said = 0;
    for byte in bytes {
        if stream.write_all(&[byte]).is_err() {
            break;
        }
        said += 1;
        thread::sleep(Duration::from_millis(20));
    }
    said
}

#[test]
fn net_27_a_head_that_comes_byte_by_byte_has_its_time_and_no_more() {
    let server = Server::answering(ok);
    let (_names, world) = world();
    let budget = Budget { head_time: 300, ..BUDGET };
    let inside = world.open_with(Rules::of(&[("allowed.test", server.port())]), None, budget);
    let http = b"GET http://allowed.test/ HTTP/1.1\r\nX: ".iter().copied();
    for (first, answer) in [(&b""[..], "HTTP/1.1 408"), (&b"\x05\x01\x02"[..], "\u{5}\u{2}")] {
        let mut stream = inside.connect();
        stream.write_all(first).unwrap();
        let mut reader = stream.try_clone().unwrap();
        let read = thread::spawn(move || drain(&mut reader));
        // Of SOCKS, a user whose name never comes to its end.
        let bytes: Box<dyn Iterator<Item = u8>> = match first.is_empty() {
            true => Box::new(http.clone().chain(std::iter::repeat(b'x'))),
            false => Box::new([1, 255].into_iter().chain(std::iter::repeat(b'x'))),
        };
        let said = trickle(&mut stream, bytes.take(3000));
        assert!(said < 3000, "it is cut off");
        let got = read.join().unwrap();
        assert!(got.starts_with(answer), "{got:?}");
        inside.rules.wait(is_malformed(Fault::Slow));
    }
    assert_eq!(server.count(), 0);
    // Whoever says it in time is heard.
    let host = format!("allowed.test:{}", server.port());
    assert!(inside.ask(&format!("http://{host}/"), &host, "").starts_with("HTTP/1.1 200"));
}

#[test]
fn net_27_a_head_that_is_too_long_is_answered_with_431() {
    let server = Server::answering(ok);
    let (_names, world) = world();
    let budget = Budget { head: 8 * 1024, fields: 20, ..BUDGET };
    let inside = world.open_with(Rules::of(&[("allowed.test", server.port())]), None, budget);
    let host = format!("allowed.test:{}", server.port());
    let ask = |further: &str| inside.ask(&format!("http://{host}/"), &host, further);
    let long = format!("X: {}\r\n", "x".repeat(8 * 1024));
    let many = "X: x\r\n".repeat(20);
    for further in [&long, &many] {
        let answer = ask(further);
        assert!(answer.starts_with("HTTP/1.1 431"), "{answer}");
        inside.rules.wait(is_malformed(Fault::Long));
    }
    assert_eq!(server.count(), 0);
    let few = "X: x\r\n".repeat(10);
    assert!(ask(&few).starts_with("HTTP/1.1 200"));
}

/// Answers the first request with these bytes, and counts what else it hears.
fn lying(answer: &'static [u8]) -> (Server, Arc<Mutex<Vec<String>>>) {
    let heard = Arc::<Mutex<Vec<String>>>::default();
    let noted = Arc::clone(&heard);
    let server = Server::start(move |mut stream| {
        while let Some(asked) = request(&mut stream) {
            noted.lock().unwrap().push(asked);
            if stream.write_all(answer).is_err() || answer.ends_with(b"!") {
                return;
            }
        }
    });
    (server, heard)
}

fn send(inside: &Inside, stream: &mut TcpStream, host: &str, further: &str) {
    let basic = inside.basic();
    let head = format!(
        "POST http://{host}/ HTTP/1.1\r\nHost: {host}\r\nProxy-Authorization: Basic {basic}\r\n{further}"
    );
    stream.write_all(head.as_bytes()).unwrap();
}

#[test]
fn net_11_an_answer_that_is_shorter_than_it_says_is_not_taken_for_a_whole_one() {
    let (server, _) = lying(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort!");
    let (_names, world) = world();
    let inside = world.open(Rules::of(&[("allowed.test", server.port())]));
    let host = format!("allowed.test:{}", server.port());
    let answer = inside.ask(&format!("http://{host}/"), &host, "");
    // The client has the length, too, and sees that it is not all.
    assert!(answer.to_lowercase().contains("content-length: 100"), "{answer}");
    assert!(answer.ends_with("short!"), "{answer}");
    inside.rules.wait(|event| matches!(event, Event::Ended { how: How::Proxy(End::Broken), .. }));
}

#[test]
fn net_11_what_comes_after_an_answer_is_no_part_of_it_and_no_answer_to_the_next() {
    let (server, heard) = lying(
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged",
    );
    let (_names, world) = world();
    let inside = world.open(Rules::of(&[("allowed.test", server.port())]));
    let host = format!("allowed.test:{}", server.port());
    let mut stream = inside.connect();
    for round in 0..3 {
        send(&inside, &mut stream, &host, "Content-Length: 0\r\n\r\n");
        let head = head(&mut stream);
        assert!(head.starts_with("HTTP/1.1 200"), "{round}: {head}");
        let mut body = [0; 2];
        stream.read_exact(&mut body).unwrap();
        assert_eq!(&body, b"ok", "{round}");
    }
    assert_eq!(heard.lock().unwrap().len(), 3, "each was asked for");
}

#[test]
fn net_11_a_body_that_is_longer_than_it_says_is_another_request_and_judged_as_one() {
    let server = Server::answering(ok);
    let (_names, world) = world();
    let inside = world.open(Rules::of(&[("allowed.test", server.port())]));
    let host = format!("allowed.test:{}", server.port());
    let hidden =
        "GET http://denied.test/ HTTP/1.1\r\nHost: denied.test\r\nConnection: close\r\n\r\n";
    let mut stream = inside.connect();
    send(&inside, &mut stream, &host, &format!("Content-Length: 2\r\n\r\nok{hidden}"));
    let answers = drain(&mut stream);
    let (first, second) = answers.split_once("\r\n\r\nok").unwrap_or((&answers, ""));
    assert!(first.contains("Content-Length: 2") || first.contains("POST / HTTP/1.1"), "{answers}");
    // It came without the credential, and would be denied with it.
    assert!(second.contains("HTTP/1.1 407"), "{answers}");
    assert!(!answers.contains("GET http://denied.test"), "{answers}");
    assert_eq!(server.count(), 1);
    // A body that never comes keeps its connection, and nobody else's, until the client goes.
    let mut stream = inside.connect();
    send(&inside, &mut stream, &host, "Content-Length: 100\r\n\r\nok");
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    assert!(!drain(&mut stream).contains("HTTP/1.1 200"));
    inside.rules.wait(|event| matches!(event, Event::Ended { how: How::Proxy(End::Left), .. }));
}

#[test]
fn net_11_hotcell_itself_takes_no_length_for_what_it_is_not() {
    let ca = Ca::new();
    let answers: [(&str, &'static [u8], &str); 4] = [
        ("/short", b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort", "short"),
        ("/two", b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nabc", "502"),
        (
            "/both",
            b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            "502",
        ),
        ("/signed", b"HTTP/1.1 200 OK\r\nContent-Length: +2\r\n\r\nok", "502"),
    ];
    let server = crate::support::secure(ca.config("allowed.test", |_| ()), move |mut stream| {
        let Some(asked) = request(&mut stream) else { return };
        let found = answers.iter().find(|(path, ..)| asked.contains(path)).unwrap();
        drop(stream.write_all(found.1));
        stream.conn.send_close_notify();
        drop(stream.flush());
    });
    let names = Names::of(&[("allowed.test", &["127.0.0.1"])]);
    let world = World::new(&names, Some(&ca));
    let inside = world.open(Rules::of(&[("allowed.test", server.port())]));
    let host = format!("allowed.test:{}", server.port());
    for (path, _, expected) in answers {
        let answer = inside.ask(&format!("https://{host}{path}"), &host, "");
        let is_refused = answer.starts_with("HTTP/1.1 502");
        // What has begun cannot be taken back: its end is too early, and its length says so.
        let is_cut = || answer.contains("100\r\n") && answer.ends_with(expected);
        assert!(is_refused || (expected != "502" && is_cut()), "{path}: {answer}");
    }
}

/// Asks by SOCKS for a name, and says what is answered.
fn socks(inside: &Inside, name: &[u8], port: u16) -> (u8, TcpStream) {
    let mut stream = inside.connect();
    stream.write_all(&[5, 1, 2]).unwrap();
    let mut two = [0; 2];
    stream.read_exact(&mut two).unwrap();
    assert_eq!(two, [5, 2]);
    let credential = inside.credential.as_bytes();
    let user = [&[1, 3][..], b"run", &[credential.len() as u8], credential].concat();
    stream.write_all(&user).unwrap();
    stream.read_exact(&mut two).unwrap();
    assert_eq!(two, [1, 0]);
    let asked = [&[5, 1, 0, 3, name.len() as u8][..], name, &port.to_be_bytes()].concat();
    stream.write_all(&asked).unwrap();
    let mut answer = [0; 10];
    stream.read_exact(&mut answer).unwrap();
    (answer[1], stream)
}

#[test]
fn net_20_a_name_by_socks_is_judged_in_its_one_spelling_and_looked_up_once() {
    let server = Server::answering(ok);
    let (names, world) = world();
    let port = server.port();
    let inside = world.open(Rules { raw: true, ..Rules::of(&[("allowed.test", port)]) });
    for (count, name) in (1..).zip(["allowed.test", "ALLOWED.Test", "allowed.test."]) {
        let (answer, mut stream) = socks(&inside, name.as_bytes(), port);
        assert_eq!((answer, names.asked()), (0, count), "{name}");
        stream.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        assert!(head(&mut stream).starts_with("HTTP/1.1 200"), "{name}");
    }
    // Denied; another port; and what is no name of a host, or an address in another spelling than its one.
    for (name, port, expected) in [
        (&b"denied.test"[..], port, 2),
        (b"allowed.test", port.wrapping_add(1).max(1), 2),
        (b"allowed.test.evil.test", port, 2),
        (b"127.1", port, 1),
        (b"2130706433", port, 1),
        (b"allowed.test@evil.test", port, 1),
        (b"allowed.test\0", port, 1),
        (b"allowed.test:80", port, 1),
        (b"[::1]", port, 1),
        (b"", port, 1),
        (b"\xff\xfe", port, 1),
    ] {
        let (answer, mut stream) = socks(&inside, name, port);
        assert_eq!(answer, expected, "{}", name.escape_ascii());
        assert_eq!(drain(&mut stream), "", "{}", name.escape_ascii());
    }
    assert_eq!((server.count(), names.asked()), (3, 3));
    let is_refused = |event: &&Event| matches!(event, Event::Refused { .. });
    let events = inside.rules.events();
    let refused: Vec<&Event> = events.iter().filter(is_refused).collect();
    let of = |kind: Refused| {
        let is = |event: &&&Event| matches!(event, Event::Refused { refusal, .. } if refusal.kind == kind);
        refused.iter().filter(is).count()
    };
    assert_eq!((of(Refused::Policy), of(Refused::Malformed)), (3, 2));
}

#[test]
fn net_26_names_of_this_host_lead_to_nothing_that_no_rule_names() {
    let server = Server::answering(ok);
    let names = Names::of(&[
        ("localhost", &["127.0.0.1", "::1"]),
        ("six.test", &["::1"]),
        ("mine.test", &["127.0.1.1"]),
        ("mapped.test", &["::ffff:127.0.0.1"]),
    ]);
    let world = World::new(&names, None);
    let rules = || Rules { everything: true, raw: true, ..Rules::default() };
    let inside = world.open(rules());
    let port = server.port();
    for name in ["localhost", "LOCALHOST.", "six.test", "mine.test", "mapped.test"] {
        let host = format!("{name}:{port}");
        let answer = inside.ask(&format!("http://{host}/"), &host, "");
        assert!(answer.starts_with("HTTP/1.1 403"), "{name}: {answer}");
        // The run is not told which address it is.
        assert!(!answer.contains("127.0") && !answer.contains("::1"), "{name}: {answer}");
        assert_eq!(socks(&inside, name.as_bytes(), port).0, 2, "{name}");
    }
    assert_eq!(server.count(), 0);
    // The control: an address that is named.
    let named = world.open(Rules { addresses: vec!["127.0.0.1".parse().unwrap()], ..rules() });
    let host = format!("mapped.test:{port}");
    assert!(named.ask(&format!("http://{host}/"), &host, "").starts_with("HTTP/1.1 200"));
}
