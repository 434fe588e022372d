//! kill -9 at each named step of the path, and at others besides: whatever was going on, the record says
//! what is true, and an independent verifier agrees that nobody changed it.

#![expect(clippy::unwrap_used, clippy::panic, reason = "these are tests")]

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use hotcell_engine::{Answer, Ask, Engine, Options, Stage, Watch};
use hotcell_record::{Event, Filter, Kind};
use hotcell_request::Request;
use hotcell_types::{Caller, Door, Name, Status};
use serde_json::json;

use crate::common::{options, request};

const DIR: &str = "HOTCELL_TEST_DIR";
const STAGE: &str = "HOTCELL_TEST_STAGE";

fn caller() -> Caller {
    Caller::local(Name::LOCAL, Door::Library)
}

fn keyed(number: usize, file: &str) -> Request {
    let mut write = request("fs.write", json!({"path": file, "text": "made"}));
    write.key = Some(format!("write-{number}").parse().unwrap());
    write
}

/// Not a test: the process that is killed. It makes calls, says which were answered, and kills itself
/// when the last one gets to a stage.
#[test]
#[ignore = "started by the other tests"]
fn process_that_gets_killed() {
    let Some(dir) = std::env::var_os(DIR).map(PathBuf::from) else { return };
    let stage: usize = std::env::var(STAGE).unwrap().parse().unwrap();
    let fatal = Stage::ALL.get(stage).copied();
    let is_last = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let armed = std::sync::Arc::clone(&is_last);
    let watch = Watch::new(move |_, stage| {
        if armed.load(std::sync::atomic::Ordering::SeqCst) && Some(stage) == fatal {
            let own = rustix::process::getpid();
            rustix::process::kill_process(own, rustix::process::Signal::KILL).unwrap();
        }
    });
    let engine = Engine::open(Options { watch: Some(watch), ..options(&dir) }).unwrap();
    let mut answered = fs::File::create(dir.join("answered")).unwrap();
    for (number, is_fatal) in [(0, false), (1, true)] {
        is_last.store(is_fatal, std::sync::atomic::Ordering::SeqCst);
        let file = format!("made-{number}");
        let write = keyed(number, &file);
        let Answer::Called(reply) = engine.ask(&caller(), Ask::Call(Box::new(write))) else {
            panic!()
        };
        assert_eq!(reply.status, Status::Success, "{reply:?}");
        writeln!(answered, "{} {file}", reply.id).unwrap();
    }
    // Without closing: what was answered is on the disk already.
    std::process::abort();
}

struct After {
    events: Vec<Event>,
    answered: BTreeMap<String, String>,
    dir: tempfile::TempDir,
}

/// Kills a process at a stage, and looks at what it left.
fn after(stage: usize) -> After {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("tree")).unwrap();
    let status = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "process_that_gets_killed", "--ignored", "--nocapture"])
        .env(DIR, dir.path())
        .env(STAGE, stage.to_string())
        .status()
        .unwrap();
    let killed_by = status.signal();
    assert!(killed_by == Some(9) || killed_by == Some(6), "{status:?}");
    // The next process closes what the dead one left open.
    let engine = Engine::open(options(dir.path())).unwrap();
    let filter = Filter { limit: 1000, ..Filter::of(Name::LOCAL) };
    let Answer::Events(events) = engine.ask(&caller(), Ask::Events(filter)) else { panic!() };
    engine.close().unwrap();
    verify_with_other_code(&dir.path().join("home"));
    let answered = fs::read_to_string(dir.path().join("answered")).unwrap_or_default();
    let answered = answered.lines().filter_map(|line| line.split_once(' '));
    let answered = answered.map(|(id, file)| (id.to_owned(), file.to_owned())).collect();
    After { events, answered, dir }
}

/// The verifier that shares no code with the writer.
fn verify_with_other_code(home: &Path) {
    let verifier = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools/verify.py");
    let mut verify = Command::new("python3");
    verify.arg(verifier).arg("--anchor").args([home.join("anchor.log"), home.join("hotcell.db")]);
    let said = match verify.output() {
        Ok(said) => said,
        Err(error) => {
            eprintln!("SKIPPED the independent verifier: {error}");
            return;
        }
    };
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stdout));
}

#[test]
fn at_each_stage_the_record_says_what_is_true() {
    for (number, stage) in Stage::ALL.into_iter().enumerate() {
        let after = after(number);
        let of = |kind: Kind| after.events.iter().filter(move |event| event.kind == kind);
        let intents: Vec<_> = of(Kind::Intent).filter_map(|event| event.call).collect();
        let ends: BTreeMap<_, _> = after
            .events
            .iter()
            .filter(|event| matches!(event.kind, Kind::Outcome | Kind::Recovered))
            .filter_map(|event| Some((event.call?, event.status?)))
            .collect();
        assert_eq!(intents.len(), ends.len(), "{stage:?}: each intent has one end");
        assert!(intents.iter().all(|call| ends.contains_key(call)), "{stage:?}");
        let tree = after.dir.path().join("tree");
        let changed: Vec<bool> =
            (0..2).map(|number| tree.join(format!("made-{number}")).exists()).collect();
        // The first was answered: it is there, and so is its end.
        assert!(changed[0], "{stage:?}");
        for id in after.answered.keys() {
            assert_eq!(ends.get(&id.parse().unwrap()), Some(&Status::Success), "{stage:?}");
        }
        assert_eq!(after.answered.len(), 1, "{stage:?}");
        // No audit, no action; and what may have happened is not told as if it had not.
        let last = intents.iter().find(|call| !after.answered.contains_key(&call.to_string()));
        assert_eq!(last.is_some(), stage >= Stage::Intended, "{stage:?}");
        assert_eq!(changed[1], stage >= Stage::CarriedOut, "{stage:?}");
        let expected = (stage >= Stage::Intended).then_some(if stage == Stage::Recorded {
            Status::Success
        } else {
            Status::Unknown
        });
        assert_eq!(last.and_then(|call| ends.get(call)).copied(), expected, "{stage:?}");
        nothing_is_left(after.dir.path());
    }
}

/// What is being applied, or was spooled, does not outlive the process by more than a moment.
fn nothing_is_left(dir: &Path) {
    for place in ["tree", "home/run"] {
        let deadline = std::time::Instant::now() + Duration::from_secs(5);
        let left = || -> Vec<_> {
            let entries = fs::read_dir(dir.join(place)).unwrap().flatten();
            let names = entries.map(|entry| entry.file_name().into_string().unwrap());
            names.filter(|name| !name.starts_with("made-") && name != "owners").collect()
        };
        while !left().is_empty() {
            assert!(std::time::Instant::now() < deadline, "{place}: {:?}", left());
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

#[test]
fn a_process_that_ends_without_a_word_has_recorded_what_it_answered() {
    let after = after(Stage::ALL.len());
    assert_eq!(after.answered.len(), 2);
    let ends = after.events.iter().filter(|event| event.kind == Kind::Outcome);
    assert_eq!(ends.filter(|event| event.status == Some(Status::Success)).count(), 2);
}

#[test]
fn cr_07_who_asks_again_with_the_same_key_after_a_crash_has_one_effect() {
    for (number, stage) in Stage::ALL.into_iter().enumerate() {
        let after = after(number);
        let tree = after.dir.path().join("tree");
        let engine = Engine::open(options(after.dir.path())).unwrap();
        let again = |write: Request| match engine.ask(&caller(), Ask::Call(Box::new(write))) {
            Answer::Called(reply) => *reply,
            other => panic!("{other:?}"),
        };
        // Somebody takes away what the calls made, so that a second effect shows.
        for number in 0..2 {
            fs::remove_file(tree.join(format!("made-{number}"))).ok();
        }
        let first = again(keyed(0, "made-0"));
        assert_eq!(first.status, Status::Success, "{stage:?} {first:?}");
        assert!(after.answered.contains_key(&first.id.to_string()), "{stage:?}: the same call");
        assert!(first.value.is_some() && !tree.join("made-0").exists(), "{stage:?}");
        let second = again(keyed(1, "made-1"));
        let (status, has_effect) = match stage {
            Stage::Recorded => (Status::Success, false),
            _ if stage >= Stage::Intended => (Status::Unknown, false),
            // It was never begun.
            _ => (Status::Success, true),
        };
        assert_eq!(second.status, status, "{stage:?} {second:?}");
        assert_eq!(tree.join("made-1").exists(), has_effect, "{stage:?}");
        let other = again(keyed(0, "other"));
        assert_eq!(other.status, Status::Invalid, "{stage:?} {other:?}");
        assert!(!tree.join("other").exists());
        engine.close().unwrap();
        verify_with_other_code(&after.dir.path().join("home"));
    }
}

#[test]
fn cr_07_of_many_at_once_with_the_same_key_one_has_an_effect() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("tree")).unwrap();
    let engine = Engine::open(options(dir.path())).unwrap();
    let write = || {
        let mut write = request("shell.run", json!({"command": "echo x >> log; sleep 0.2"}));
        write.key = Some("the-key".parse().unwrap());
        let Answer::Called(reply) = engine.ask(&caller(), Ask::Call(Box::new(write))) else {
            panic!()
        };
        reply
    };
    let replies: Vec<_> = std::thread::scope(|scope| {
        let all: Vec<_> = (0..4).map(|_| scope.spawn(write)).collect();
        all.into_iter().map(|one| one.join().unwrap()).collect()
    });
    assert!(replies.iter().all(|reply| reply.status == Status::Success), "{replies:?}");
    assert_eq!(fs::read_to_string(dir.path().join("tree/log")).unwrap(), "x\n");
    assert_eq!(write().status, Status::Success);
    // Somebody else's key is another.
    let somebody = Caller::local("somebody".parse().unwrap(), Door::Library);
    let mut add = request("shell.run", json!({"command": "echo x >> log; sleep 0.2"}));
    add.key = Some("the-key".parse().unwrap());
    let Answer::Called(reply) = engine.ask(&somebody, Ask::Call(Box::new(add))) else { panic!() };
    assert_eq!(reply.status, Status::Success, "{reply:?}");
    assert_eq!(fs::read_to_string(dir.path().join("tree/log")).unwrap(), "x\nx\n");
}
