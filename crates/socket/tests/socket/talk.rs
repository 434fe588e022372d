//! A client and a server that mean well.

use std::io::{self, Read};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};

use hotcell_socket::bounds::{FRAME_MOST, REQUESTS_PER_CONNECTION, WINDOW};
use hotcell_socket::frame::{Asked, Frame};
use hotcell_socket::{Along, AskError, Problem, Raw, Settings, Source};
use serde_json::{Value, json};

use crate::desk::{Served, Wire, ask, serve, sum_of};

fn served() -> Served {
    serve(Settings::default())
}

fn raw(value: Value) -> Raw {
    Raw::of(&value).unwrap()
}

#[test]
fn requests_on_a_kept_connection_are_answered_one_after_the_other() {
    let served = served();
    let mut client = served.client();
    for number in 0..100 {
        assert_eq!(ask(&mut client, json!({"echo": {"n": number}})).unwrap(), json!({"n": number}));
    }
    assert_eq!(client.version(), Some(1));
    let own = rustix::process::geteuid().as_raw();
    assert_eq!(ask(&mut client, json!({"peer": 0})).unwrap(), json!(own));
    assert_eq!(client.server().uid, own);
}

#[test]
fn problems_panics_and_answers_that_are_too_large_cost_one_request() {
    let served = served();
    let mut client = served.client();
    let AskError::Refused(problem) = ask(&mut client, json!({"problem": 0})).unwrap_err() else {
        panic!()
    };
    assert_eq!(*problem, Problem::new("special", "what", "why", "fix"));
    for (question, word) in [
        (json!({"panic": 0}), "defect"),
        (json!({"large": FRAME_MOST}), "bytes"),
        (json!({"large": FRAME_MOST - 10}), "bytes"),
    ] {
        let error = ask(&mut client, question).unwrap_err();
        assert!(error.to_string().contains(word) && !error.is_unbegun(), "{error}");
    }
    let large = ask(&mut client, json!({"large": FRAME_MOST - 100})).unwrap();
    assert_eq!(large.as_str().unwrap().len(), FRAME_MOST - 100);
    assert!(ask(&mut client, json!({"deep": 64})).is_ok());
    assert_eq!(ask(&mut client, json!({"echo": 1})).unwrap(), json!(1));
}

#[test]
fn a_request_as_large_as_a_frame_arrives() {
    let served = served();
    let mut client = served.client();
    let text = "ü".repeat(FRAME_MOST / 2 - 100);
    let answer = ask(&mut client, json!({"echo": text})).unwrap();
    assert!(answer.as_str() == Some(&text));
    let error = ask(&mut client, json!({"echo": "x".repeat(FRAME_MOST - 12)})).unwrap_err();
    assert!(matches!(error, AskError::Unsendable(_)), "{error}");
    assert_eq!(ask(&mut client, json!({"echo": 1})).unwrap(), json!(1));
}

#[test]
fn files_of_every_size_arrive_as_they_are_sent() {
    let served = served();
    let mut client = served.client();
    let contents: Vec<Vec<u8>> = [0, 1, 3, 70_000, WINDOW, 3 * WINDOW + 5, 0]
        .iter()
        .map(|size| (0..*size).map(|index| (index * 7 % 251) as u8).collect())
        .collect();
    let sums: Vec<_> = contents.iter().map(|bytes| (bytes.len(), sum_of(0, bytes))).collect();
    for small in [true, false] {
        let sources = |content: &Vec<u8>| match small {
            true => Source::Bytes(content.clone()),
            false => Source::reader(io::Cursor::new(content.clone())),
        };
        for count in [0, 2, 3, 7] {
            let files = contents.iter().take(count).map(sources).collect();
            let context = raw(json!("beside"));
            let along = Along { files, context: Some(&context), ..Along::default() };
            let answer = client.ask(&raw(json!({"files": 0})), along).unwrap();
            assert_eq!(answer, json!(&sums[..count]));
        }
    }
    // What nobody reads is passed over, or left.
    let files = || contents.iter().rev().skip(1).map(|file| Source::Bytes(file.clone())).collect();
    let along = Along { files: files(), ..Along::default() };
    assert_eq!(client.ask(&raw(json!({"second": 0})), along).unwrap(), json!(sums[4]));
    let along = Along { files: files(), stdin: Some(Source::Bytes(vec![1])), ..Along::default() };
    assert_eq!(client.ask(&raw(json!({"stdin": 0})), along).unwrap(), json!([1, 1]));
    let along = Along { files: files(), ..Along::default() };
    assert_eq!(client.ask(&raw(json!({"echo": 5})), along).unwrap(), json!(5));
    let context = raw(json!({"a": 1}));
    let along = Along { context: Some(&context), ..Along::default() };
    assert_eq!(client.ask(&raw(json!({"context": 0})), along).unwrap(), json!({"a": 1}));
}

struct Live(Receiver<Vec<u8>>);

impl Read for Live {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let Ok(bytes) = self.0.recv() else { return Ok(0) };
        into[..bytes.len()].copy_from_slice(&bytes);
        Ok(bytes.len())
    }
}

#[test]
fn standard_input_and_events_go_to_and_fro_while_a_request_goes_on() {
    let served = served();
    let mut client = served.client();
    let (say, said) = channel();
    say.send(b"0".to_vec()).unwrap();
    let mut say = Some(say);
    let mut heard = Vec::new();
    let mut hear = |event: Value| {
        heard.push(event);
        match heard.len() {
            5 => drop(say.take()),
            next => say.as_ref().unwrap().send(next.to_string().into_bytes()).unwrap(),
        }
    };
    let stdin = Some(Source::reader(Live(said)));
    let along = Along { stdin, events: Some(&mut hear), ..Along::default() };
    assert_eq!(client.ask(&raw(json!({"converse": 0})), along).unwrap(), json!("bye"));
    assert_eq!(heard, ["0", "1", "2", "3", "4"]);
}

#[test]
fn standard_input_that_never_ends_does_not_hold_up_the_answer() {
    let served = served();
    let mut client = served.client();
    let (_say, said) = channel();
    let along = Along { stdin: Some(Source::reader(Live(said))), ..Along::default() };
    assert_eq!(client.ask(&raw(json!({"echo": 1})), along).unwrap(), json!(1));
    let endless = Source::reader(io::repeat(7));
    let along = Along { stdin: Some(endless), ..Along::default() };
    assert_eq!(client.ask(&raw(json!({"echo": 2})), along).unwrap(), json!(2));
    assert_eq!(ask(&mut client, json!({"echo": 3})).unwrap(), json!(3));
}

#[test]
fn events_come_in_order_and_before_the_answer() {
    let served = served();
    let mut client = served.client();
    let mut heard = Vec::new();
    let mut hear = |event: Value| heard.push(event["number"].as_u64().unwrap());
    let along = Along { events: Some(&mut hear), ..Along::default() };
    assert_eq!(client.ask(&raw(json!({"events": 5000})), along).unwrap(), json!("told"));
    assert!(heard.iter().copied().eq(0..5000));
    assert_eq!(ask(&mut client, json!({"events": 10})).unwrap(), json!("told"));
}

#[test]
fn another_thread_cancels_and_the_answer_says_what_became_of_it() {
    let served = served();
    let mut client = served.client();
    let canceller = client.canceller();
    assert!(!canceller.cancel(), "nothing is under way");
    for _ in 0..3 {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                served.expect("waits");
                for _ in 0..100 {
                    canceller.cancel();
                }
            });
            assert_eq!(ask(&mut client, json!({"wait": 0})).unwrap(), json!("cancelled"));
        });
        served.expect("cancelled");
        assert_eq!(ask(&mut client, json!({"echo": 1})).unwrap(), json!(1));
    }
}

#[test]
fn standard_input_that_nobody_reads_does_not_stand_in_the_way_of_a_cancellation() {
    let served = served();
    let mut client = served.client();
    let canceller = client.canceller();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            served.expect("waits");
            assert!(canceller.cancel());
        });
        let along = Along { stdin: Some(Source::reader(io::repeat(1))), ..Along::default() };
        assert_eq!(client.ask(&raw(json!({"wait": 0})), along).unwrap(), json!("cancelled"));
    });
}

struct Broken;

impl Read for Broken {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        Err(io::Error::other("a bad disk"))
    }
}

#[test]
fn a_file_that_cannot_be_read_cancels_its_request() {
    let served = served();
    let mut client = served.client();
    let along = Along { files: vec![Source::reader(Broken)], ..Along::default() };
    let error = client.ask(&raw(json!({"unreadable": 0})), along).unwrap_err();
    assert!(
        matches!(&error, AskError::Source(cause) if cause.to_string() == "a bad disk"),
        "{error}"
    );
    assert_eq!(ask(&mut client, json!({"echo": 1})).unwrap(), json!(1));
}

#[test]
fn requests_of_one_connection_go_side_by_side() {
    let served = served();
    let mut wire = served.wire();
    wire.request(1, json!({"wait": 0}));
    wire.request(2, json!({"wait": 0}));
    wire.request(9, json!({"echo": 9}));
    assert_eq!(wire.next(), Frame::Answer { id: 9, answer: Ok(json!(9)) });
    for id in [2, 1] {
        wire.send(&Frame::Cancel { id });
        assert_eq!(wire.next(), Frame::Answer { id, answer: Ok(json!("cancelled")) });
    }
    served.settles_at(1, 0);
}

#[test]
fn a_hello_and_requests_may_come_in_one_write() {
    let served = served();
    let mut wire = Wire::new(&served.path);
    let hello = Frame::Hello { versions: vec![1], who: "eager".into() };
    let mut bytes = hello.encode().unwrap();
    for id in 1..=20 {
        let ask = json!({"echo": id});
        let asked = Asked { id, ask, context: None, files: 0, stdin: false };
        bytes.extend(Frame::Request(asked).encode().unwrap());
    }
    wire.bytes(&bytes);
    assert!(matches!(wire.next(), Frame::Welcome { .. }));
    let mut ids: Vec<u64> = (0..20)
        .map(|_| match wire.next() {
            Frame::Answer { id, answer } => {
                assert_eq!(answer, Ok(json!(id)));
                id
            }
            other => panic!("{other:?}"),
        })
        .collect();
    ids.sort_unstable();
    assert!(ids.into_iter().eq(1..=20));
}

#[test]
fn more_requests_than_a_connection_may_have_are_told_so_and_cost_nothing_else() {
    let served = served();
    let mut wire = served.wire();
    let most = REQUESTS_PER_CONNECTION as u64;
    for id in 1..=most {
        wire.request(id, json!({"wait": 0}));
    }
    for id in most + 1..most + 10 {
        wire.request(id, json!({"echo": 1}));
        let Frame::Answer { id: of, answer: Err(problem) } = wire.next() else { panic!() };
        assert!(of == id && problem.kind == Problem::BUSY, "{problem}");
    }
    served.serves_others();
    for id in 1..=most {
        wire.send(&Frame::Cancel { id });
    }
    for _ in 1..=most {
        assert!(matches!(wire.next(), Frame::Answer { answer: Ok(_), .. }));
    }
    wire.request(1000, json!({"echo": 1}));
    assert!(matches!(wire.next(), Frame::Answer { id: 1000, answer: Ok(_) }));
}

#[test]
fn a_server_has_a_most_of_requests() {
    let served = serve(Settings { requests: 2, ..Settings::default() });
    let mut wire = served.wire();
    wire.request(1, json!({"wait": 0}));
    wire.request(2, json!({"wait": 0}));
    served.expect("waits");
    served.expect("waits");
    let error = ask(&mut served.client(), json!({"echo": 1})).unwrap_err();
    assert!(matches!(&error, AskError::Refused(problem) if problem.kind == Problem::BUSY));
    assert!(error.is_unbegun());
    wire.hang_up();
    served.settles_at(0, 0);
    served.serves_others();
}

#[test]
fn many_clients_at_once_each_get_their_own_answers() {
    let served = served();
    let wrong = Arc::new(Mutex::new(0));
    std::thread::scope(|scope| {
        for thread in 0..16 {
            let (served, wrong) = (&served, Arc::clone(&wrong));
            scope.spawn(move || {
                let mut client = served.client();
                for number in 0..200 {
                    let answer = ask(&mut client, json!({"echo": [thread, number]})).unwrap();
                    if answer != json!([thread, number]) {
                        *wrong.lock().unwrap() += 1;
                    }
                }
            });
        }
    });
    assert_eq!(*wrong.lock().unwrap(), 0);
    served.settles_at(0, 0);
}
