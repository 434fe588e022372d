//! Calls that go side by side while others are still to come, through the whole engine.

#![expect(clippy::unwrap_used, clippy::panic, reason = "these are tests")]

mod common;

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use common::{options, request};
use hotcell_engine::{Answer, Ask, Brake, Engine, Order, Pace, Reply};
use hotcell_record::Filter;
use hotcell_request::Request;
use hotcell_types::{Caller, Door, Name, Status};
use serde_json::json;

const LONG: Duration = Duration::from_secs(60);

fn caller() -> Caller {
    Caller::local(Name::LOCAL, Door::Library)
}

fn engine() -> (Engine, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("tree")).unwrap();
    (Engine::open(options(dir.path())).unwrap(), dir)
}

fn shell(code: &str) -> Request {
    request("code_execute", json!({"language": "shell", "code": code}))
}

fn runs(engine: &Engine) -> Vec<Option<Status>> {
    let filter = Filter { limit: 1000, ..Filter::of(Name::LOCAL) };
    match engine.ask(&caller(), Ask::Runs(filter)) {
        Answer::Runs(runs) => {
            runs.iter().map(|run| run.end.as_ref().and_then(|end| end.status)).collect()
        }
        other => panic!("{other:?}"),
    }
}

fn until(look: impl Fn() -> bool) {
    let begun = Instant::now();
    while !look() {
        assert!(begun.elapsed() < LONG);
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn replies_come_while_requests_are_still_to_come() {
    let ((engine, _dir), caller) = (engine(), caller());
    let (brake, (give, given)) = (Brake::default(), mpsc::channel::<Request>());
    thread::scope(|scope| {
        let pace = Pace { jobs: 2, order: Order::Finished };
        let mut replies = engine.batch_stream(scope, &caller, pace, &brake, given.into_iter());
        for n in 0..3 {
            give.send(shell(&format!("echo {n}"))).unwrap();
            let (number, reply) = replies.next().unwrap();
            assert_eq!((number, reply.status), (n, Status::Success), "{reply:?}");
        }
        drop(give);
        assert!(replies.next().is_none());
    });
    assert!(!brake.is_pulled() && brake.is_idle());
}

#[test]
fn who_leaves_the_loop_ends_what_goes_on() {
    let ((engine, _dir), caller) = (engine(), caller());
    let brake = Brake::default();
    let begun = Instant::now();
    thread::scope(|scope| {
        let pace = Pace { jobs: 2, order: Order::Finished };
        let requests = ["true"].into_iter().chain(std::iter::repeat("sleep 1000")).map(shell);
        let mut replies = engine.batch_stream(scope, &caller, pace, &brake, requests);
        assert_eq!(replies.next().unwrap().1.status, Status::Success);
        until(|| runs(&engine).iter().filter(|status| status.is_none()).count() == 2);
    });
    assert!(begun.elapsed() < LONG);
    let statuses = runs(&engine);
    let cancelled = statuses.iter().filter(|status| **status == Some(Status::Cancelled)).count();
    assert_eq!((statuses.len(), cancelled), (3, 2), "{statuses:?}");
}

#[test]
fn a_brake_ends_a_batch_from_another_thread_and_each_call_is_told() {
    let ((engine, _dir), caller) = (engine(), caller());
    let brake = Brake::default();
    let replies: Vec<Reply> = thread::scope(|scope| {
        let pace = Pace { jobs: 2, order: Order::Given };
        let requests = std::iter::repeat_with(|| shell("sleep 1000"));
        let replies = engine.batch_stream(scope, &caller, pace, &brake, requests);
        scope.spawn(|| {
            until(|| runs(&engine).len() == 2);
            engine.brake_until_idle(&caller, &brake);
        });
        replies.map(|(_, reply)| reply).collect()
    });
    assert!(
        replies.len() >= 2 && replies.iter().all(|reply| reply.status == Status::Cancelled),
        "{replies:?}"
    );
    assert_eq!(runs(&engine).len(), 2, "nothing was begun after that");
}
