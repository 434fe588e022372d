//! kill -9 at each named step of the path, and at others besides: whatever was going on, the record says
//! what is true, and an independent verifier agrees that nobody changed it.

#![expect(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "these are tests")]

mod common;
#[path = "common/left.rs"]
mod left;

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use hotcell_engine::artifacts::verify_artifacts;
use hotcell_engine::{Answer, Ask, AtOnce, Attached, Engine, Options, Sink, Stage, Watch};
use hotcell_record::{Event, Filter, From, Kind};
use hotcell_request::Request;
use hotcell_types::{Caller, Count, Door, Level, Name, Status};
use serde_json::json;

use crate::common::{options, request};
use crate::left::Traces;

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
    is_in_order(&dir.path().join("home"));
    let answered = fs::read_to_string(dir.path().join("answered")).unwrap_or_default();
    let answered = answered.lines().filter_map(|line| line.split_once(' '));
    let answered = answered.map(|(id, file)| (id.to_owned(), file.to_owned())).collect();
    After { events, answered, dir }
}

/// The record, by both verifiers, and everything that the ledger has.
fn is_in_order(home: &Path) {
    verify_with_other_code(home);
    let verdict = hotcell_record::verify(&home.join("hotcell.db"), None, From::Start);
    assert_eq!(verdict.fault, None, "{verdict}");
    let checked = verify_artifacts(home).unwrap();
    assert_eq!(checked.faults, 0, "{checked:?}");
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

/// Before a run is spawned, after it has ended, and between the row of an artifact and the outcome, which are one
/// transaction.
#[test]
fn cr_01_cr_06_at_each_stage_the_record_says_what_is_true() {
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

const RUNS: &str = "HOTCELL_TEST_RUNS";
const LONG: Duration = Duration::from_secs(120);

/// So many runs at one time, in a directory in which files tell how far they are.
fn many(dir: &Path, runs: u32) -> Options {
    let mut options = options(dir);
    // A launcher with a spawner of its own.
    options.minimum = Level::NoProc;
    let templates = [("code-executor".parse().unwrap(), Count::of(runs))].into();
    options.at_once = AtOnce { running: Some(Count::of(runs)), templates };
    options
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + LONG;
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Makes a file with the first output of a run.
struct First(Option<PathBuf>);

impl Sink for First {
    fn stdout(&mut self, _: &[u8]) {
        if let Some(file) = self.0.take() {
            fs::write(file, "").unwrap();
        }
    }

    fn stderr(&mut self, _: &[u8]) {}
}

/// Not a test: the process that is killed while it has runs. The call of a single one is held up between its intent
/// and its turn.
#[test]
#[ignore = "started by the other tests"]
fn process_that_gets_killed_with_its_runs() {
    let Some(dir) = std::env::var_os(DIR).map(PathBuf::from) else { return };
    let runs: u32 = std::env::var(RUNS).unwrap().parse().unwrap();
    let place = dir.clone();
    let watch = Watch::new(move |_, stage| match stage {
        Stage::Intended if runs == 1 => {
            fs::write(place.join("intended"), "").unwrap();
            until("it may go on", || place.join("go").exists());
        }
        Stage::Scheduled => fs::write(place.join("scheduled"), "").unwrap(),
        _ => {}
    });
    let engine = Engine::open(Options { watch: Some(watch), ..many(&dir, runs) }).unwrap();
    std::thread::scope(|scope| {
        for number in 0..runs {
            let (engine, file) = (&engine, dir.join(format!("printed-{number}")));
            scope.spawn(move || {
                let code = "while :; do echo out; sleep 1; done";
                let limits = json!({"memory": "24MiB"});
                let run = request("run", json!({"command": ["sh", "-c", code], "limits": limits}));
                let mut first = First(Some(file));
                let attached = Attached { sink: Some(&mut first), ..Attached::default() };
                engine.ask(&caller(), Ask::Run(Box::new(run), Box::new(attached)))
            });
        }
    });
}

fn started(dir: &Path, runs: u32) -> std::process::Child {
    fs::create_dir(dir.join("tree")).unwrap();
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "process_that_gets_killed_with_its_runs", "--ignored", "--nocapture"])
        .env(DIR, dir)
        .env(RUNS, runs.to_string())
        .spawn()
        .unwrap()
}

/// Each run was begun and is closed once, as one of which nobody knows what became of it; and nothing else is left.
fn all_are_unknown(dir: &Path, runs: usize) {
    let engine = Engine::open(options(dir)).unwrap();
    let Answer::Runs(all) = engine.ask(&caller(), Ask::Runs(Filter::of(Name::LOCAL))) else {
        panic!()
    };
    assert_eq!(all.len(), runs);
    for run in all {
        let end = run.end.unwrap();
        assert_eq!((end.kind, end.status), (Kind::Recovered, Some(Status::Unknown)));
    }
    engine.close().unwrap();
    nothing_is_left(dir);
    is_in_order(&dir.join("home"));
}

#[test]
fn cr_02_killed_after_a_run_was_spawned_and_before_its_program_was_let_go() {
    let dir = tempfile::tempdir().unwrap();
    let mut child = started(dir.path(), 1);
    let pid = child.id().cast_signed();
    until("the intent is on the disk", || dir.path().join("intended").exists());
    // The guard, the spawner, and the process that waits to become the program, or begins to.
    let below = |pid: i32| left::children(pid).first().copied();
    until("there is a cell", || below(pid).and_then(below).and_then(below).is_some());
    // Who does nothing lets nobody go.
    let spawner = below(pid).and_then(below).unwrap();
    let signal = |pid: i32, signal| {
        rustix::process::kill_process(rustix::process::Pid::from_raw(pid).unwrap(), signal)
            .unwrap();
    };
    signal(spawner, rustix::process::Signal::STOP);
    until("it stands still", || left::stat(spawner).is_some_and(|fields| fields[0] == "T"));
    fs::write(dir.path().join("go"), "").unwrap();
    until("the run has its turn", || dir.path().join("scheduled").exists());
    let traces = Traces::below(pid);
    assert!(traces.processes.len() >= 3, "{traces:?}");
    child.kill().unwrap();
    child.wait().unwrap();
    traces.are_gone();
    assert!(!dir.path().join("printed-0").exists(), "its program never began");
    all_are_unknown(dir.path(), 1);
}

#[test]
fn cr_03_killed_with_fifty_runs_that_print() {
    const RUNS: u32 = 50;
    let dir = tempfile::tempdir().unwrap();
    let mut child = started(dir.path(), RUNS);
    let printed = |number: u32| dir.path().join(format!("printed-{number}")).exists();
    until("all of them print", || (0..RUNS).all(printed));
    let traces = Traces::below(child.id().cast_signed());
    assert!(traces.processes.len() > RUNS as usize, "{traces:?}");
    child.kill().unwrap();
    child.wait().unwrap();
    traces.are_gone();
    all_are_unknown(dir.path(), RUNS as usize);
}

/// What is being applied, or was spooled, does not outlive the process by more than a moment.
fn nothing_is_left(dir: &Path) {
    for place in ["tree", "home/run", "home/run/live"] {
        let deadline = Instant::now() + Duration::from_secs(5);
        let left = || -> Vec<_> {
            let entries = fs::read_dir(dir.join(place)).into_iter().flatten().flatten();
            let names = entries.map(|entry| entry.file_name().into_string().unwrap());
            let stays =
                |name: &str| name.starts_with("made-") || ["owners", "live"].contains(&name);
            names.filter(|name| !stays(name)).collect()
        };
        while !left().is_empty() {
            assert!(Instant::now() < deadline, "{place}: {:?}", left());
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
