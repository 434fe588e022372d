//! What doors need besides answers: names of calls before they end, ending them, following them.

#![expect(clippy::unwrap_used, clippy::panic, reason = "these are tests")]

mod common;

use std::sync::Mutex;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use hotcell_engine::{
    Answer, Ask, Attached, Bounds, Engine, Entry, Listen, Options, Position, ProblemKind, Reply,
    Said, Stage, Until, Watch, new_id,
};
use hotcell_request::Request;
use hotcell_types::{CallId, Caller, Door, Level, Name, SomeLimits, Status};
use serde_json::json;

use crate::common::{options, request};

/// Longer than anything here takes.
const LONG: Duration = Duration::from_secs(30);

struct World {
    engine: Engine,
    stages: Mutex<Receiver<(CallId, Stage)>>,
    _dir: tempfile::TempDir,
}

fn caller(tenant: &str) -> Caller {
    Caller { tenant: tenant.parse().unwrap(), ..Caller::local(Name::LOCAL, Door::Library) }
}

impl World {
    fn new() -> World {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("tree")).unwrap();
        let (tell, stages) = channel();
        let watch = Watch::new(move |call, stage| tell.send((call, stage)).unwrap_or_default());
        let options = Options { watch: Some(watch), ..options(dir.path()) };
        World { engine: Engine::open(options).unwrap(), stages: Mutex::new(stages), _dir: dir }
    }

    fn shell(&self, id: CallId, code: &str) -> Reply {
        let request = request("code_execute", json!({"language": "shell", "code": code}));
        let attached = Attached { id: Some(id), ..Attached::default() };
        ask(&self.engine, request, attached)
    }

    fn passed(&self, call: CallId, stage: Stage) {
        let stages = self.stages.lock().unwrap();
        while stages.recv_timeout(LONG).unwrap() != (call, stage) {}
    }

    fn cancel(&self, tenant: &str, id: CallId) -> Answer {
        self.engine.ask(&caller(tenant), Ask::Cancel(id))
    }
}

fn ask(engine: &Engine, request: Request, attached: Attached<'_>) -> Reply {
    match engine.ask(&caller("local"), Ask::Run(Box::new(request), Box::new(attached))) {
        Answer::Called(reply) => *reply,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_call_is_ended_by_its_name_and_only_by_its_own_tenant() {
    let world = World::new();
    let id = new_id();
    thread::scope(|scope| {
        let begun = Instant::now();
        let run = scope.spawn(|| world.shell(id, "sleep 60"));
        world.passed(id, Stage::Scheduled);
        for (tenant, id) in [("mallory", id), ("local", new_id())] {
            let Answer::Failed(problem) = world.cancel(tenant, id) else { panic!() };
            assert_eq!(problem.kind, ProblemKind::NotFound);
        }
        assert!(matches!(world.cancel("local", id), Answer::Cancelled));
        let reply = run.join().unwrap();
        assert_eq!((reply.id, reply.status), (id, Status::Cancelled), "{reply:?}");
        assert!(begun.elapsed() < LONG);
    });
    assert!(matches!(world.cancel("local", id), Answer::Failed(_)), "it is over");
}

#[test]
fn a_call_that_waits_for_its_turn_is_ended_without_having_begun() {
    let world = World::new();
    let first = new_id();
    thread::scope(|scope| {
        let run = scope.spawn(|| world.shell(first, "sleep 60"));
        world.passed(first, Stage::Scheduled);
        let second = new_id();
        let engine = &world.engine;
        let waiting = scope.spawn(move || {
            let mut request =
                request("code_execute", json!({"language": "shell", "code": "echo no"}));
            request.after = vec![first];
            let attached = Attached { id: Some(second), ..Attached::default() };
            ask(engine, request, attached)
        });
        // It waits for the first one from here on, or is about to.
        while matches!(world.engine.ask(&caller("local"), Ask::Cancel(second)), Answer::Failed(_)) {
            thread::sleep(Duration::from_millis(1));
        }
        let reply = waiting.join().unwrap();
        assert_eq!((reply.status, reply.run.is_none()), (Status::Cancelled, true), "{reply:?}");
        world.engine.ask(&caller("local"), Ask::Cancel(first));
        run.join().unwrap();
    });
}

#[test]
fn who_heard_a_part_of_what_was_printed_hears_the_rest() {
    let world = World::new();
    let id = new_id();
    let reply = world.shell(id, "printf 0123456789; printf abcdef >&2");
    assert_eq!(reply.status, Status::Success, "{reply:?}");
    for (stdout, stderr, expected) in [
        (0, 0, ("0123456789", "abcdef")),
        (4, 6, ("456789", "")),
        (10, 2, ("", "cdef")),
        (99, 99, ("", "")),
    ] {
        let mut heard = (Vec::new(), Vec::new());
        let mut each = |entry: Entry| {
            match entry.what {
                Said::Stdout(bytes) => heard.0.extend(bytes),
                Said::Stderr(bytes) => heard.1.extend(bytes),
                Said::Used { .. } => {}
            }
            true
        };
        let listen = Listen { from: Position { stdout, stderr }, ..Listen::new(Until::TheEnd) };
        world.engine.logs(&caller("local"), id, listen, &mut each).unwrap();
        let texts = (String::from_utf8(heard.0).unwrap(), String::from_utf8(heard.1).unwrap());
        assert_eq!((texts.0.as_str(), texts.1.as_str()), expected, "{stdout} {stderr}");
    }
}

#[test]
fn who_hears_nothing_and_does_not_want_to_any_more_is_let_go() {
    let world = World::new();
    let id = new_id();
    thread::scope(|scope| {
        let run = scope.spawn(|| world.shell(id, "sleep 60"));
        world.passed(id, Stage::Scheduled);
        let listen = Listen { still: &|| false, ..Listen::new(Until::TheEnd) };
        let shown = world.engine.logs(&caller("local"), id, listen, &mut |_| true).unwrap();
        assert!(shown.end.is_none());
        world.cancel("local", id);
        run.join().unwrap();
    });
}

#[test]
fn a_call_is_made_where_its_caller_is_and_within_the_bounds_of_both() {
    let world = World::new();
    let other = tempfile::tempdir().unwrap();
    std::fs::write(other.path().join("note"), "over there").unwrap();
    let from = |bounds| Some(world.engine.surroundings(Some(other.path()), bounds).unwrap());
    let call = |tool: &str, arguments, from| {
        let attached = Attached { from, ..Attached::default() };
        ask(&world.engine, request(tool, arguments), attached)
    };
    let read = || json!({"path": "note"});
    let reply = call("fs.read", read(), from(Bounds::default()));
    assert!(reply.value.unwrap().to_string().contains("over there"));
    assert_eq!(call("fs.read", read(), None).status, Status::Failure, "that is another tree");
    let write = json!({"path": "made", "text": "1"});
    assert_eq!(call("fs.write", write, from(Bounds::default())).status, Status::Success);
    assert!(other.path().join("made").exists());

    let code = || json!({"language": "shell", "code": "true"});
    let ceiling = SomeLimits { timeout: Some("1s".parse().unwrap()), ..SomeLimits::default() };
    let mut slow = request("code_execute", json!({"language": "shell", "code": "sleep 60"}));
    slow.timeout = None;
    let from_there = from(Bounds { ceiling, ..Bounds::default() });
    let attached = Attached { from: from_there, ..Attached::default() };
    assert_eq!(ask(&world.engine, slow, attached).status, Status::Timeout);
    let given = call("code_execute", code(), None).run.unwrap().level;
    let minimum = Some(Level::Full);
    let reply = call("code_execute", code(), from(Bounds { minimum, ..Bounds::default() }));
    let is_enough = given == Level::Full;
    assert_eq!(reply.status == Status::Success, is_enough, "{reply:?}");
}

#[test]
fn nobody_works_in_hotcells_own_home() {
    let world = World::new();
    let home = world._dir.path();
    assert!(world.engine.surroundings(Some(home), Bounds::default()).is_err());
}

#[test]
fn a_server_can_tell_whether_calls_could_be_carried_out_and_how_many_are() {
    let world = World::new();
    let health = world.engine.health();
    assert!(health.record.is_ok() && health.sandbox.is_ok(), "{health:?}");
    assert_eq!(world.engine.going_on().running, 0);
    let id = new_id();
    thread::scope(|scope| {
        let run = scope.spawn(|| world.shell(id, "sleep 60"));
        world.passed(id, Stage::Scheduled);
        assert_eq!(world.engine.going_on().running, 1);
        world.cancel("local", id);
        run.join().unwrap();
    });
}
