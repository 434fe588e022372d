//! The first calls of a process, all at once. A process of its own, since it counts its children.

#![expect(clippy::unwrap_used, reason = "these are tests")]

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};

use hotcell_engine::{Answer, Ask, Engine};
use hotcell_types::{Caller, Door, Name, Status};
use serde_json::json;

use crate::common::{options, request};

const AT_ONCE: usize = 8;

/// Every process whose parent this one is, by any of its threads.
fn children() -> Vec<String> {
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    let of = |task: fs::DirEntry| fs::read_to_string(task.path().join("children")).ok();
    let lists: Vec<String> = tasks.filter_map(|task| of(task.ok()?)).collect();
    lists.iter().flat_map(|list| list.split_whitespace().map(str::to_owned)).collect()
}

#[test]
fn calls_that_are_the_first_together_start_one_launcher() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("tree")).unwrap();
    let engine = Engine::open(options(dir.path())).unwrap();
    let caller = Caller::local(Name::LOCAL, Door::Library);
    let (barrier, is_over) = (Barrier::new(AT_ONCE), AtomicBool::new(false));
    let seen = std::thread::scope(|scope| {
        let watching = scope.spawn(|| {
            let mut seen = BTreeSet::new();
            while !is_over.load(Ordering::SeqCst) {
                seen.extend(children());
            }
            seen
        });
        let call = || {
            let echo = request("code_execute", json!({"language": "shell", "code": "true"}));
            barrier.wait();
            match engine.ask(&caller, Ask::Call(Box::new(echo))) {
                Answer::Called(reply) => assert_eq!(reply.status, Status::Success, "{reply:?}"),
                other => panic!("{other:?}"),
            }
        };
        let calls: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(call)).collect();
        calls.into_iter().for_each(|call| call.join().unwrap());
        is_over.store(true, Ordering::SeqCst);
        watching.join().unwrap()
    });
    assert_eq!(seen.len(), 1, "{seen:?}");
}
