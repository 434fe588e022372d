//! Rules that depend on where the work is, with the example that is shipped for it.

#![expect(clippy::unwrap_used, clippy::panic, reason = "these are tests")]

mod common;

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hotcell_engine::policy::{PolicyAnswer, PolicyAsk, Suppose};
use hotcell_engine::{
    Answer, Ask, Engine, Options, Policy, Problem, Reply, Stage, Watch, Workflow, WorkflowAsk,
};
use hotcell_record::{Event, Filter, Kind};
use hotcell_types::{Caller, Decision, Door, Name, Status};
use serde_json::json;

use crate::common::{options, request};

const EXAMPLE: &str = include_str!("../../../examples/policies/workflow.yaml");

fn caller() -> Caller {
    Caller::local("agent".parse().unwrap(), Door::Library)
}

fn open(dir: &Path, watch: Option<Watch>) -> Engine {
    // The tools' schemas are not needed: the example has no `when`.
    let policy = Policy::load(EXAMPLE.as_bytes(), &Default::default()).unwrap().snapshot;
    Engine::open(Options { policy: Some(policy), watch, ..options(dir) }).unwrap()
}

fn set(engine: &Engine, by: &Caller, mode: &str, state: &str) -> Result<Option<Workflow>, Problem> {
    let (mode, state) = (mode.to_owned(), state.to_owned());
    let ask = WorkflowAsk::Set { subject: "agent".parse().unwrap(), mode, state };
    match engine.ask(by, Ask::Workflow(ask)) {
        Answer::Workflow(workflow) => Ok(workflow),
        Answer::Failed(problem) => Err(problem),
        other => panic!("{other:?}"),
    }
}

fn write(engine: &Engine, path: &str) -> Reply {
    let request = request("fs.write", json!({ "path": path, "text": "x" }));
    match engine.ask(&caller(), Ask::Call(Box::new(request))) {
        Answer::Called(reply) => *reply,
        other => panic!("{other:?}"),
    }
}

fn events(engine: &Engine, kind: Kind) -> Vec<Event> {
    let filter = Filter { kind: Some(kind), ..Filter::of(Name::LOCAL) };
    match engine.ask(&caller(), Ask::Events(filter)) {
        Answer::Events(events) => events,
        other => panic!("{other:?}"),
    }
}

fn prepared() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("tree")).unwrap();
    dir
}

#[test]
fn what_may_be_written_depends_on_where_the_work_is_also_after_a_restart() {
    let dir = prepared();
    let mut engine = open(dir.path(), None);
    assert_eq!(write(&engine, "tests/a").status, Status::Blocked, "nobody drives it");
    for (number, mode, state, tests, sources) in [
        (1, "strict", "idle", false, false),
        (2, "strict", "test_writing", true, false),
        (3, "strict", "code_writing", false, true),
        (4, "strict", "validating", false, false),
        (5, "explore", "exploring", true, true),
        (6, "strict", "exploring", false, false),
    ] {
        let workflow = set(&engine, &caller(), mode, state).unwrap().unwrap();
        assert_eq!((workflow.number, workflow.state.as_str()), (number, state));
        engine.close().unwrap();
        engine = open(dir.path(), None);
        for (path, may) in [("tests/a", tests), ("src/a", sources)] {
            let reply = write(&engine, path);
            let expected = if may { Status::Success } else { Status::Blocked };
            assert_eq!(reply.status, expected, "{mode} {state} {path}: {reply:?}");
        }
    }
    let last = events(&engine, Kind::Denied).pop().unwrap();
    assert_eq!((last.mode.as_deref(), last.state.as_deref()), (Some("strict"), Some("exploring")));
    // What is so is what is explained, unless something else is supposed.
    let explained = |suppose: Suppose| {
        let request = request("fs.write", json!({ "path": "src/a", "text": "x" }));
        let ask = PolicyAsk::Explain { request: Box::new(request), suppose };
        match engine.ask(&caller(), Ask::Policy(Box::new(ask))) {
            Answer::Policy(PolicyAnswer::Explained(explained, _)) => explained.decision,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(explained(Suppose::default()), Some(Decision::Deny));
    let state = Some("code_writing".to_owned());
    assert_eq!(explained(Suppose { state, ..Suppose::default() }), Some(Decision::Allow));
}

#[test]
fn who_comes_through_another_door_is_in_a_state_and_does_not_choose_it() {
    let dir = prepared();
    let engine = open(dir.path(), None);
    for door in Door::ALL.into_iter().filter(|door| *door != Door::Library) {
        let by = Caller { door, ..caller() };
        let refused = set(&engine, &by, "strict", "code_writing").unwrap_err();
        assert!(refused.why.contains("does not choose it"), "{refused:?}");
    }
    for (mode, state) in [("strict", "anywhere"), ("god", "idle"), ("", "")] {
        assert!(set(&engine, &caller(), mode, state).is_err());
    }
    let ask = Ask::Workflow(WorkflowAsk::Show("agent".parse().unwrap()));
    assert!(matches!(engine.ask(&caller(), ask), Answer::Workflow(None)));
    assert_eq!(events(&engine, Kind::Denied).len(), Door::ALL.len() - 1);
    // Another subject's work is another's.
    set(&engine, &caller(), "strict", "code_writing").unwrap();
    let other = Caller::local("other".parse().unwrap(), Door::Library);
    let request = request("fs.write", json!({ "path": "src/a", "text": "x" }));
    let Answer::Called(reply) = engine.ask(&other, Ask::Call(Box::new(request))) else { panic!() };
    assert_eq!(reply.status, Status::Blocked, "{reply:?}");
}

#[test]
fn a_call_that_was_judged_in_one_state_is_not_begun_in_another() {
    let dir = prepared();
    let other = Arc::new(open(dir.path(), None));
    set(&other, &caller(), "strict", "code_writing").unwrap();
    let (moves, is_armed) = (Arc::clone(&other), Arc::new(AtomicBool::new(true)));
    let armed = Arc::clone(&is_armed);
    let watch = Watch::new(move |_, stage| {
        if stage == Stage::Prepared && armed.swap(false, Ordering::SeqCst) {
            set(&moves, &caller(), "strict", "validating").unwrap();
        }
    });
    let engine = open(dir.path(), Some(watch));
    let reply = write(&engine, "src/a");
    assert!(!is_armed.load(Ordering::SeqCst));
    assert_eq!(reply.status, Status::Blocked, "{reply:?}");
    assert!(reply.problems[0].why.contains("has gone on"), "{reply:?}");
    assert!(!dir.path().join("tree/src/a").exists());
    assert!(events(&engine, Kind::Intent).is_empty());
}
