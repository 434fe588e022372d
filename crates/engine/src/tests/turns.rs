//! Turns, as callers have them: who waits, who is paused for whom, and who is told that there is no room.

use std::io::Write;
use std::os::fd::OwnedFd;
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use hotcell_schedule::{Doing, Limits};
use hotcell_types::{CallId, Count, Level};

use super::*;
use crate::engine::new_id;
use crate::{AtOnce, ProblemKind};

const LONG: Duration = Duration::from_secs(60);

fn until(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + LONG;
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Without a cgroup nothing can be paused.
fn can_pause(world: &World) -> bool {
    let arguments = Arguments::Value(json!({"command": ["true"]}));
    let request = Request::new("run".parse().unwrap(), arguments);
    let Answer::Called(reply) = world.engine.ask(&caller(), Ask::Call(Box::new(request))) else {
        panic!("no reply")
    };
    reply.run.unwrap().level >= Level::User
}

/// One call at a time.
fn one_place(set: impl FnOnce(&mut Options)) -> World {
    World::set_up(|options| {
        options.at_once = AtOnce { running: Some(Count::of(1)), ..AtOnce::default() };
        set(options);
    })
}

/// A run that ends when it is given a line.
struct Held {
    id: CallId,
    line: std::io::PipeWriter,
    stdin: OwnedFd,
}

impl Held {
    fn new() -> Held {
        let (read, line) = std::io::pipe().unwrap();
        Held { id: new_id(), line, stdin: read.into() }
    }

    fn run(
        world: &World,
        id: CallId,
        stdin: OwnedFd,
        priority: u8,
        began: Sender<CallId>,
    ) -> Reply {
        let run = run::Run {
            command: ["sh", "-c", "read line; echo got $line"]
                .map(|w| run::Word::new(w.into()))
                .into(),
            stdin: Some(run::Input::Live),
            ..run::Run::default()
        };
        let mut value = serde_json::to_value(&run).unwrap();
        value["limits"] = json!({"memory": "32MiB"});
        let mut request = Request::new("run".parse().unwrap(), Arguments::Value(value));
        request.priority = priority.try_into().unwrap();
        let attached = Attached {
            id: Some(id),
            stdin: Some(Input::Live(stdin.into())),
            started: Some(Box::new(move |_| began.send(id).unwrap())),
            ..Attached::default()
        };
        match world.engine.ask(&caller(), Ask::Run(Box::new(request), Box::new(attached))) {
            Answer::Called(reply) => *reply,
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn who_is_paused_for_somebody_urgent_goes_on_where_it_was() {
    let world = one_place(|options| options.urgent = vec![(caller(), 1.try_into().unwrap())]);
    if !can_pause(&world) {
        return eprintln!("SKIPPED pausing for somebody urgent: there is no cgroup here");
    }
    let (world, (began, beginning)) = (&world, channel());
    let (mut first, mut second) = (Held::new(), Held::new());
    let doing = |id: CallId| {
        let now = world.engine.machine().scheduler.snapshot();
        now.running.iter().find(|job| job.id == id).map(|job| job.now)
    };
    thread::scope(|scope| {
        let (id, stdin, tell) = (first.id, first.stdin, began.clone());
        let slow = scope.spawn(move || Held::run(world, id, stdin, 3, tell));
        assert_eq!(beginning.recv_timeout(LONG), Ok(id));
        let (urgent, stdin) = (second.id, second.stdin);
        let quick = scope.spawn(move || Held::run(world, urgent, stdin, 1, began));
        assert_eq!(beginning.recv_timeout(LONG), Ok(urgent));
        assert_eq!(doing(id), Some(Doing::Paused));
        // What it waited for is there, and it does not move.
        first.line.write_all(b"one\n").unwrap();
        second.line.write_all(b"two\n").unwrap();
        let quick = quick.join().unwrap();
        assert_eq!(quick.run.unwrap().stdout.bytes, b"got two\n");
        let slow = slow.join().unwrap();
        assert_eq!(
            (slow.status, slow.run.unwrap().stdout.bytes.as_slice()),
            (Status::Success, &b"got one\n"[..])
        );
        let ends = |id| {
            let filter =
                Filter { call: Some(id), kind: Some(Kind::Outcome), ..Filter::of(Name::LOCAL) };
            let Answer::Events(events) = world.engine.ask(&caller(), Ask::Events(filter)) else {
                panic!()
            };
            events.len()
        };
        assert_eq!((ends(urgent), ends(id)), (1, 1));
    });
}

#[test]
fn who_finds_no_room_to_wait_is_told_so_at_once_and_when_to_come_back() {
    let world = one_place(|_| ());
    let (world, (began, beginning)) = (&world, channel());
    let mut first = Held::new();
    let room = Limits::of_machine(1, hotcell_types::Bytes::mib(1)).share.party.get() as usize;
    let more = 8;
    thread::scope(|scope| {
        let (id, stdin) = (first.id, first.stdin);
        let holds = scope.spawn(move || Held::run(world, id, stdin, 3, began));
        assert_eq!(beginning.recv_timeout(LONG), Ok(id));
        let (tell, told) = channel();
        let ids: Vec<CallId> = (0..room + more).map(|_| new_id()).collect();
        for &id in &ids {
            let tell = tell.clone();
            scope.spawn(move || {
                let arguments = json!({"command": ["true"], "limits": {"memory": "32MiB"}});
                let request = Request::new("run".parse().unwrap(), Arguments::Value(arguments));
                let attached = Attached { id: Some(id), ..Attached::default() };
                let ask = Ask::Run(Box::new(request), Box::new(attached));
                let Answer::Called(reply) = world.engine.ask(&caller(), ask) else { panic!() };
                tell.send(*reply).unwrap();
            });
        }
        // Those that nobody has room for hear of it while the others wait.
        for _ in 0..more {
            let reply = told.recv_timeout(LONG).unwrap();
            let problem = &reply.problems[0];
            assert_eq!(
                (reply.status, problem.kind),
                (Status::Error, ProblemKind::Busy),
                "{reply:?}"
            );
            assert!(problem.why.contains("try again in"), "{reply:?}");
            assert_eq!(world.kinds_of(&reply), [Kind::Intent, Kind::Outcome]);
        }
        let waiting = || world.engine.machine().scheduler.snapshot().waiting.iter().sum::<usize>();
        until("the others wait", || waiting() == room);
        assert!(told.try_recv().is_err());
        // Nobody who waits is forgotten.
        for id in ids {
            world.engine.ask(&caller(), Ask::Cancel(id));
        }
        for _ in 0..room {
            let reply = told.recv_timeout(LONG).unwrap();
            assert_eq!(reply.status, Status::Cancelled, "{reply:?}");
        }
        first.line.write_all(b"go\n").unwrap();
        assert_eq!(holds.join().unwrap().status, Status::Success);
    });
}
