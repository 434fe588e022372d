//! Clients that mean no good, each beside another one that is served.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use hotcell_socket::bounds::{FRAME_MOST, WINDOW};
use hotcell_socket::frame::{Asked, End, Frame, Of, ReadError, Reason};
use hotcell_socket::{AskError, ConnectError, Problem, Settings};
use serde_json::json;

use crate::desk::{SOON, Wire, alone, ask, serve};

fn impatient() -> Settings {
    let wait = Duration::from_millis(300);
    Settings { handshake: wait, frame: wait, stall: wait, ..Settings::default() }
}

/// Memory of this process, in KiB.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

fn asked(id: u64, files: u32, stdin: bool) -> Frame {
    Frame::Request(Asked { id, ask: json!({"wait": 0}), context: None, files, stdin })
}

fn part(id: u64, of: Of, size: usize, end: bool) -> Frame {
    Frame::Part { id, of, data: vec![7; size], end }
}

#[test]
fn lengths_that_nobody_may_send_end_the_connection_at_once() {
    let served = serve(Settings::default());
    for (length, word) in [
        (u32::MAX, "4294967295 bytes"),
        (1 << 31, "bytes"),
        (FRAME_MOST as u32 + 1, "most is"),
        (0, "empty"),
    ] {
        for greeted in [false, true] {
            let mut wire = match greeted {
                true => served.wire(),
                false => Wire::new(&served.path),
            };
            wire.bytes(&length.to_be_bytes());
            wire.is_ended(word);
        }
    }
    served.serves_others();
    served.settles_at(0, 0);
}

#[test]
fn what_is_only_announced_takes_no_memory() {
    alone("attack::what_is_only_announced_takes_no_memory", announce);
}

fn announce() {
    let served = serve(Settings::default());
    let before = resident();
    let mut wires: Vec<Wire> = (0..100).map(|_| served.wire()).collect();
    for wire in &mut wires {
        wire.bytes(&(FRAME_MOST as u32).to_be_bytes());
        wire.bytes(&[b' '; 100]);
    }
    served.serves_others();
    let more = resident().saturating_sub(before);
    assert!(more < 20 << 10, "{more} KiB, where 1600 MiB were announced");
}

#[test]
fn large_frames_of_many_connections_share_one_allowance() {
    let served = serve(Settings { reading: 1 << 20, ..Settings::default() });
    let mut first = served.wire();
    first.bytes(&(4_u32 << 20).to_be_bytes());
    let mut second = served.wire();
    second.bytes(&(4_u32 << 20).to_be_bytes());
    let piece = vec![b' '; 300 << 10];
    for wire in [&mut first, &mut second] {
        // The one for whom there is no room is ended while it sends.
        for _ in 0..4 {
            drop(wire.stream.write_all(&piece));
        }
    }
    served.serves_others();
    second.is_ended("no memory");
}

#[test]
fn a_frame_that_is_cut_off_is_nothing() {
    let served = serve(Settings::default());
    let whole = asked(1, 0, false).encode().unwrap();
    for length in [1, 3, 4, 5, whole.len() - 1] {
        let mut wire = served.wire();
        wire.bytes(&whole[..length]);
        wire.hang_up();
    }
    served.settles_at(0, 0);
    served.serves_others();
    assert!(served.did_nothing(), "nothing was begun");
}

#[test]
fn whoever_says_nothing_or_trickles_is_sent_away() {
    let served = serve(impatient());
    let mut silent = Wire::new(&served.path);
    let mut greeting = Wire::new(&served.path);
    let mut talking = served.wire();
    let idle = served.wire();
    let start = Instant::now();
    let trickle = |wire: &mut Wire, bytes: &[u8]| {
        for byte in bytes.iter().cycle() {
            if wire.stream.write_all(&[*byte]).is_err() {
                return;
            }
            assert!(start.elapsed() < SOON);
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    trickle(&mut greeting, &[0, 0, 1, 0, b' ']);
    trickle(&mut talking, &[0, 0, 1, 0, b' ']);
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    silent.is_ended("nothing came in time");
    greeting.is_ended("too long");
    talking.is_ended("too long");
    served.serves_others();
    served.settles_at(1, 0);
    drop(idle);
}

#[test]
fn whoever_never_reads_is_given_up_and_its_requests_are_cancelled() {
    alone("attack::whoever_never_reads_is_given_up_and_its_requests_are_cancelled", never_read);
}

fn never_read() {
    let served = serve(impatient());
    let before = resident();
    let mut wire = served.wire();
    wire.request(1, json!({"flood": 0}));
    wire.request(2, json!({"tell_after": 0}));
    served.expect_all(&["floods", "waits"]);
    served.serves_others();
    served.expect_all(&["cancelled", "given up", "nobody hears"]);
    served.settles_at(0, 0);
    assert!(resident().saturating_sub(before) < 20 << 10);
}

#[test]
fn whoever_reads_a_little_now_and_then_is_given_up_as_well() {
    let served = serve(impatient());
    let mut wire = served.wire();
    wire.request(1, json!({"large": 2 << 20}));
    // The clock starts with the first byte: making the answer is not what is tested.
    std::io::Read::read(&mut wire.stream, &mut [0; 10]).unwrap();
    let start = Instant::now();
    while served.server.connections() > 0 {
        std::io::Read::read(&mut wire.stream, &mut [0; 10]).unwrap();
        assert!(start.elapsed() < Duration::from_secs(5));
        std::thread::sleep(Duration::from_millis(5));
    }
    served.serves_others();
}

#[test]
fn a_flood_of_requests_is_answered_or_refused_one_by_one() {
    let served = serve(Settings::default());
    let mut wire = served.wire();
    let mut writer = wire.stream.try_clone().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for id in 1..=5000 {
                let ask = json!({"echo": id});
                let asked = Asked { id, ask, context: None, files: 0, stdin: false };
                writer.write_all(&Frame::Request(asked).encode().unwrap()).unwrap();
            }
        });
        served.serves_others();
        let mut seen = vec![false; 5001];
        for _ in 1..=5000 {
            let Frame::Answer { id, answer } = wire.next() else { panic!() };
            assert!(!std::mem::replace(&mut seen[id as usize], true), "{id} twice");
            match answer {
                Ok(answer) => assert_eq!(answer, json!(id)),
                Err(problem) => assert_eq!(problem.kind, Problem::BUSY),
            }
        }
    });
    served.settles_at(1, 0);
}

#[test]
fn a_flood_without_reading_is_held_back_and_then_given_up() {
    let served = serve(impatient());
    let mut wire = served.wire();
    let mut id = 0;
    let start = Instant::now();
    loop {
        id += 1;
        let asked = Asked {
            id,
            ask: json!({"echo": "x".repeat(1000)}),
            context: None,
            files: 0,
            stdin: false,
        };
        if wire.stream.write_all(&Frame::Request(asked).encode().unwrap()).is_err() {
            break;
        }
        assert!(start.elapsed() < SOON);
    }
    served.serves_others();
    served.settles_at(0, 0);
}

#[test]
fn ids_and_parts_out_of_order_end_the_connection_and_cancel_what_goes_on() {
    let too_much = || (0..5).map(|_| part(1, Of::Stdin, WINDOW / 4, false)).collect();
    let rows: Vec<(&str, u32, bool, Vec<Frame>)> = vec![
        ("after those", 0, false, vec![asked(1, 0, false)]),
        ("after those", 0, false, vec![asked(0, 0, false)]),
        ("unknown", 0, false, vec![part(2, Of::File(0), 1, true)]),
        ("out of order", 0, false, vec![part(1, Of::File(0), 1, true)]),
        ("out of order", 0, false, vec![part(1, Of::Stdin, 1, true)]),
        ("out of order", 2, false, vec![part(1, Of::File(1), 1, true)]),
        ("out of order", 1, true, vec![part(1, Of::Stdin, 1, true)]),
        (
            "out of order",
            1,
            false,
            vec![part(1, Of::File(0), 1, true), part(1, Of::File(0), 1, true)],
        ),
        (
            "out of order",
            1,
            false,
            vec![part(1, Of::File(0), 1, true), part(1, Of::File(1), 1, true)],
        ),
        ("out of order", 0, true, vec![part(1, Of::Stdin, 1, true), part(1, Of::Stdin, 0, true)]),
        ("more parts", 0, true, too_much()),
        ("only a server", 0, false, vec![Frame::Welcome { version: 1, who: String::new() }]),
        ("only a server", 0, false, vec![Frame::More { id: 1, bytes: 1 }]),
        ("only a server", 0, false, vec![Frame::Hello { versions: vec![1], who: String::new() }]),
    ];
    let served = serve(Settings::default());
    for (word, files, stdin, frames) in rows {
        let mut wire = served.wire();
        wire.send(&asked(1, files, stdin));
        served.expect("waits");
        for frame in &frames {
            wire.send(frame);
        }
        let Frame::End(End { reason, problem, cut, .. }) = wire.next() else { panic!("{word}") };
        assert!(reason == Reason::Protocol && cut == [1], "{word}: {reason:?} {cut:?}");
        assert!(problem.to_string().contains(word), "{word}: {problem}");
        assert!(matches!(wire.try_next(), Err(ReadError::Closed)));
        served.expect("cancelled");
        served.serves_others();
    }
    served.settles_at(0, 0);
}

#[test]
fn what_is_late_or_unknown_and_harmless_is_ignored() {
    let served = serve(Settings::default());
    let mut wire = served.wire();
    for _ in 0..100 {
        wire.send(&Frame::Cancel { id: 5 });
    }
    wire.send(&asked(1, 1, true));
    wire.send(&Frame::Cancel { id: 1 });
    assert!(matches!(wire.next(), Frame::Answer { id: 1, .. }));
    for _ in 0..10 {
        wire.send(&part(1, Of::File(0), WINDOW / 2, false));
        wire.send(&Frame::Cancel { id: 1 });
    }
    wire.request(2, json!({"echo": 2}));
    assert_eq!(wire.next(), Frame::Answer { id: 2, answer: Ok(json!(2)) });
}

#[test]
fn what_is_not_a_frame_is_named_before_the_connection_ends() {
    let served = serve(Settings::default());
    let nested = format!(r#"{{"request":{{"id":1,"ask":{}}}}}"#, "[".repeat(1_000_000));
    for (body, word) in [
        (&b"\xff\xfe"[..], "UTF-8"),
        (b"{\"cancel\":{\"id\":1,\"id\":2}}", "twice"),
        (b"{\"cancel\":{\"id\":1}}{}", "JSON"),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", "JSON"),
        (nested.as_bytes(), "deep"),
    ] {
        let mut wire = served.wire();
        wire.bytes(&(body.len() as u32).to_be_bytes());
        // The connection may end before all of it is written.
        drop(wire.stream.write_all(body));
        wire.is_ended(word);
    }
    let mut wire = Wire::new(&served.path);
    wire.bytes(b"GET / HTTP/1.1\r\n\r\n");
    wire.is_ended("bytes");
    let mut wire = Wire::new(&served.path);
    wire.request(1, json!({"wait": 0}));
    wire.is_ended("begins with a hello");
    served.serves_others();
}

#[test]
fn hanging_up_cancels_what_was_asked_for() {
    let served = serve(Settings::default());
    for how in ["both", "write", "drop"] {
        let mut wire = served.wire();
        wire.send(&asked(1, 1, false));
        wire.request(2, json!({"tell_after": 0}));
        served.expect("waits");
        served.expect("waits");
        let part = part(1, Of::File(0), 1000, false).encode().unwrap();
        wire.bytes(&part[..100]);
        match how {
            "both" => wire.hang_up(),
            "write" => wire.stream.shutdown(std::net::Shutdown::Write).unwrap(),
            _ => drop(wire),
        }
        served.expect_all(&["cancelled", "cancelled", "nobody hears"]);
    }
    served.settles_at(0, 0);
    served.serves_others();
}

#[test]
fn five_hundred_idle_connections_keep_nobody_out() {
    let served = serve(Settings::default());
    let mut idle: Vec<UnixStream> = Vec::new();
    for number in 0..500 {
        idle.push(match number % 2 {
            0 => UnixStream::connect(&served.path).unwrap(),
            _ => served.wire().stream,
        });
    }
    for _ in 0..20 {
        served.serves_others();
    }
    assert!(served.server.connections() <= Settings::default().connections);
}

#[test]
fn the_idlest_goes_first_and_whoever_is_at_work_never() {
    let served = serve(Settings { connections: 3, per_user: 3, ..Settings::default() });
    let mut working = served.wire();
    working.request(1, json!({"wait": 0}));
    served.expect("waits");
    let mut first = served.client();
    first.greet().unwrap();
    let mut second = served.client();
    second.greet().unwrap();
    assert_eq!(ask(&mut first, json!({"echo": 1})).unwrap(), json!(1));
    // The second has been idle for longer now.
    let mut third = served.client();
    third.greet().unwrap();
    let error = ask(&mut second, json!({"echo": 1})).unwrap_err();
    assert!(matches!(error, AskError::NotBegun(_)) && error.is_unbegun(), "{error}");
    let error = ask(&mut second, json!({"echo": 1})).unwrap_err();
    assert!(matches!(error, AskError::NotBegun(_)), "{error}");
    assert_eq!(ask(&mut first, json!({"echo": 1})).unwrap(), json!(1));
    working.send(&Frame::Cancel { id: 1 });
    assert!(matches!(working.next(), Frame::Answer { .. }));
    // Its turn to be idle begins only when the server has put the request away.
    served.settles_at(3, 0);

    let mut wires = [served.wire(), served.wire(), served.wire()];
    for wire in &mut wires {
        wire.request(1, json!({"wait": 0}));
    }
    served.settles_at(3, 3);
    let error = ask(&mut served.client(), json!({"echo": 1})).unwrap_err();
    assert!(matches!(&error, AskError::Connect(ConnectError::Busy(_))), "{error}");
    assert!(matches!(served.client().greet(), Err(ConnectError::Busy(_))));
    drop(wires);
    served.settles_at(0, 0);
    served.serves_others();
}

#[test]
fn descriptors_that_come_along_are_dropped() {
    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
    use std::io::IoSlice;
    use std::mem::MaybeUninit;
    use std::os::fd::AsFd;

    let served = serve(Settings::default());
    let mut wire = served.wire();
    let (reader, writer) = std::io::pipe().unwrap();
    let bytes = asked(1, 0, false).encode().unwrap();
    let fds = vec![writer.as_fd(); 64];
    let mut space = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(64))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
    let sent = sendmsg(&wire.stream, &[IoSlice::new(&bytes)], &mut control, SendFlags::empty());
    assert_eq!(sent, Ok(bytes.len()));
    served.expect("waits");
    drop(fds);
    drop(writer);
    // The server's copies would keep the pipe open.
    let mut reader = reader;
    assert_eq!(std::io::Read::read(&mut reader, &mut [0]).unwrap(), 0);
    wire.send(&Frame::Cancel { id: 1 });
    assert!(matches!(wire.next(), Frame::Answer { .. }));
}
