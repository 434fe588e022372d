//! The same key is the same call: one effect and one reply, however often it is sent, by however many threads
//! and processes, and whoever is killed meanwhile.

#![expect(clippy::unwrap_used, clippy::panic, reason = "these are tests")]

mod common;

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use hotcell_engine::{
    Answer, Ask, Engine, Gc, Keep, Options, Policy, ProblemKind, Reply, Stage, Watch,
};
use hotcell_record::{Filter, Kind};
use hotcell_request::{ToolError, TypedTool, tool};
use hotcell_types::{Caller, Door, Name, Status};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::common::{options, request};

const DIR: &str = "HOTCELL_TEST_DIR";
const FATAL: &str = "HOTCELL_TEST_FATAL";

const POLICY: &str = "
rules:
  - { name: own, match: { tool: [own.append, own.large, own.fail, own.look, own.wait] }, action: allow }
  - { name: reads, match: { effect: [read] }, action: allow }
  - { name: pure, match: { tool: [add, fs.write, code_execute, run] }, action: allow }
";

#[derive(Deserialize, JsonSchema)]
struct Line {
    file: String,
    line: String,
}

/// Says who did it, where everybody can count.
#[tool(name = "own.append", version = "1.0.0", effects(write))]
fn append(to: Line) -> Result<String, ToolError> {
    let mut file = OpenOptions::new().append(true).create(true).open(to.file).unwrap();
    // Long enough for the others to come.
    std::thread::sleep(Duration::from_millis(50));
    file.write_all(format!("{}\n", to.line).as_bytes()).unwrap();
    Ok(format!("by {}", std::process::id()))
}

#[derive(Deserialize, JsonSchema)]
struct Size {
    bytes: usize,
}

/// Gives back so much.
#[tool(name = "own.large", version = "1.0.0", effects(write))]
fn large(size: Size) -> Result<String, ToolError> {
    Ok("x".repeat(size.bytes))
}

#[derive(Deserialize, JsonSchema)]
struct Nothing {}

/// Never succeeds.
#[tool(name = "own.fail", version = "1.0.0", effects(write))]
fn fail(_nothing: Nothing) -> Result<String, ToolError> {
    Err(ToolError { what: "no".into(), why: "because".into(), fix: "never".into() })
}

/// Says that it looked, where everybody can count.
#[tool(name = "own.look", version = "1.0.0", effects(read))]
fn look(to: Line) -> Result<String, ToolError> {
    let mut file = OpenOptions::new().append(true).create(true).open(to.file).unwrap();
    std::thread::sleep(Duration::from_millis(50));
    file.write_all(b"looked\n").unwrap();
    Ok(to.line)
}

/// Waits until somebody says `go`.
#[tool(name = "own.wait", version = "1.0.0", effects(write))]
fn wait(to: Line) -> Result<String, ToolError> {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !Path::new(&to.file).exists() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(to.line)
}

fn caller() -> Caller {
    Caller::local(Name::LOCAL, Door::Library)
}

fn open(dir: &Path, watch: Option<Watch>) -> Engine {
    fs::create_dir_all(dir.join("tree")).unwrap();
    let policy = Some(Policy::load(POLICY.as_bytes(), &Default::default()).unwrap().snapshot);
    let engine = Engine::open(Options { policy, watch, ..options(dir) }).unwrap();
    engine.add(AppendTool.tool().unwrap(), AppendTool).unwrap();
    engine.add(LargeTool.tool().unwrap(), LargeTool).unwrap();
    engine.add(FailTool.tool().unwrap(), FailTool).unwrap();
    engine.add(LookTool.tool().unwrap(), LookTool).unwrap();
    engine.add(WaitTool.tool().unwrap(), WaitTool).unwrap();
    engine
}

fn call(engine: &Engine, caller: &Caller, tool: &str, args: Value, key: &str) -> Reply {
    let mut request = request(tool, args);
    request.key = Some(key.parse().unwrap());
    match engine.ask(caller, Ask::Call(Box::new(request))) {
        Answer::Called(reply) => *reply,
        other => panic!("{other:?}"),
    }
}

fn appended(engine: &Engine, dir: &Path, key: &str) -> Reply {
    let args = json!({"file": dir.join("effects").to_str().unwrap(), "line": "done"});
    call(engine, &caller(), "own.append", args, key)
}

fn effects(dir: &Path) -> usize {
    fs::read_to_string(dir.join("effects")).unwrap_or_default().lines().count()
}

fn intents(engine: &Engine) -> usize {
    let filter = Filter { kind: Some(Kind::Intent), ..Filter::of(Name::LOCAL) };
    let Answer::Events(events) = engine.ask(&caller(), Ask::Events(filter)) else { panic!() };
    events.len()
}

fn text(reply: &Reply) -> String {
    serde_json::to_string(reply).unwrap()
}

#[test]
fn the_same_key_is_the_same_call_also_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(dir.path(), None);
    let first = appended(&engine, dir.path(), "k");
    assert_eq!((first.status, first.again), (Status::Success, false), "{first:?}");
    let again = appended(&engine, dir.path(), "k");
    assert_eq!((text(&again), again.again), (text(&first), true));
    engine.close().unwrap();
    let engine = open(dir.path(), None);
    assert_eq!(text(&appended(&engine, dir.path(), "k")), text(&first));
    assert_eq!((effects(dir.path()), intents(&engine)), (1, 1));
    // Another key is another call, and so is the same one of somebody else.
    assert_ne!(appended(&engine, dir.path(), "K").id, first.id);
    let args = json!({"file": dir.path().join("effects").to_str().unwrap(), "line": "done"});
    for other in [
        Caller { subject: "other".parse().unwrap(), ..caller() },
        Caller { tenant: "other".parse().unwrap(), ..caller() },
    ] {
        let reply = call(&engine, &other, "own.append", args.clone(), "k");
        assert!(reply.id != first.id && !reply.again, "{reply:?}");
    }
    assert_eq!(effects(dir.path()), 4);
    // Another door of the same subject is the same caller.
    let reply = call(&engine, &Caller { door: Door::Cli, ..caller() }, "own.append", args, "k");
    assert_eq!(text(&reply), text(&first));
}

#[test]
fn a_key_with_other_arguments_or_another_tool_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(dir.path(), None);
    appended(&engine, dir.path(), "k");
    let file = dir.path().join("effects").to_str().unwrap().to_owned();
    for (tool, args) in [
        ("own.append", json!({"file": file, "line": "other"})),
        ("own.large", json!({"bytes": 1})),
        ("add", json!({"a": 1, "b": 2})),
    ] {
        let reply = call(&engine, &caller(), tool, args, "k");
        let kind = reply.problems.first().map(|problem| (problem.kind, problem.at.as_str()));
        assert_eq!((reply.status, kind), (Status::Invalid, Some((ProblemKind::Conflict, "/key"))));
    }
    // The same arguments in another spelling are the same.
    let spelled = format!(r#"{{"line":"done", "file": {file:?}}}"#);
    let mut request = request("own.append", json!({}));
    request.arguments = hotcell_request::Arguments::Bytes(spelled.into_bytes());
    request.key = Some("k".parse().unwrap());
    let Answer::Called(reply) = engine.ask(&caller(), Ask::Call(Box::new(request))) else {
        panic!()
    };
    assert!(reply.again && reply.status == Status::Success, "{reply:?}");
    assert_eq!(effects(dir.path()), 1);
}

#[test]
fn api_08_fifty_at_once_are_one_run_with_one_reply() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(dir.path(), None);
    let replies: Vec<Reply> = std::thread::scope(|scope| {
        let all: Vec<_> =
            (0..50).map(|_| scope.spawn(|| appended(&engine, dir.path(), "k"))).collect();
        all.into_iter().map(|one| one.join().unwrap()).collect()
    });
    assert_eq!((effects(dir.path()), intents(&engine)), (1, 1));
    assert!(replies.iter().all(|reply| text(reply) == text(&replies[0])), "{replies:?}");
    assert_eq!(replies.iter().filter(|reply| !reply.again).count(), 1);
}

#[test]
fn what_failed_failed_and_what_was_refused_may_be_tried_again() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(dir.path(), None);
    let first = call(&engine, &caller(), "own.fail", json!({}), "f");
    let again = call(&engine, &caller(), "own.fail", json!({}), "f");
    assert_eq!((first.status, text(&again)), (Status::Failure, text(&first)));
    // Nothing was begun: the key is still free.
    let denied = call(&engine, &caller(), "git.commit", json!({"message": "m"}), "d");
    assert_eq!(denied.status, Status::Blocked, "{denied:?}");
    let reply = call(&engine, &caller(), "own.large", json!({"bytes": 1}), "d");
    assert_eq!((reply.status, reply.again), (Status::Success, false));
    let invalid = call(&engine, &caller(), "own.append", json!({"file": 1}), "i");
    assert_eq!(invalid.status, Status::Invalid, "{invalid:?}");
    assert!(!call(&engine, &caller(), "own.large", json!({"bytes": 1}), "i").again);
}

#[test]
fn what_changes_nothing_is_done_once_for_all_who_wait() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(dir.path(), None);
    let args = json!({"file": dir.path().join("looks").to_str().unwrap(), "line": "seen"});
    let replies: Vec<Reply> = std::thread::scope(|scope| {
        let look = || call(&engine, &caller(), "own.look", args.clone(), "k");
        let all: Vec<_> = (0..10).map(|_| scope.spawn(look)).collect();
        all.into_iter().map(|one| one.join().unwrap()).collect()
    });
    assert!(replies.iter().all(|reply| reply.value == Some("seen".into())), "{replies:?}");
    let looks = fs::read_to_string(dir.path().join("looks")).unwrap().lines().count();
    assert!(looks < 10, "{looks}");
    assert_eq!(intents(&engine), 0);
}

#[test]
fn a_reply_that_is_too_large_is_told_as_that_and_not_made_again() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(dir.path(), None);
    let bytes = json!({"bytes": 300 << 10});
    let first = call(&engine, &caller(), "own.large", bytes.clone(), "k");
    assert_eq!(first.status, Status::Success, "{:?}", first.problems);
    let again = call(&engine, &caller(), "own.large", bytes, "k");
    assert_eq!((again.id, again.status, again.value.is_none()), (first.id, Status::Success, true));
    assert!(again.problems[0].what.contains("too large"), "{:?}", again.problems);
    assert_eq!(intents(&engine), 1);
}

#[test]
fn what_looks_like_a_secret_is_not_kept_with_a_reply() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(dir.path(), None);
    let args = json!({"language": "python", "code": "print('ghp_' + 'a' * 20)"});
    let first = call(&engine, &caller(), "code_execute", args.clone(), "k");
    if first.status != Status::Success {
        eprintln!("SKIPPED a run with a key: {:?}", first.problems);
        return;
    }
    let again = call(&engine, &caller(), "code_execute", args, "k");
    assert!(again.again && again.id == first.id);
    assert!(text(&first).contains(&"a".repeat(20)) && !text(&again).contains(&"a".repeat(20)));
    let ids = |reply: &Reply| reply.artifacts.iter().map(|one| one.id).collect::<Vec<_>>();
    assert_eq!(ids(&again), ids(&first));
}

#[test]
fn a_call_for_which_there_was_no_room_gives_its_key_back() {
    let dir = tempfile::tempdir().unwrap();
    let (told, heard) = std::sync::mpsc::channel();
    let watch = Watch::new(move |_, stage| {
        if stage == Stage::Scheduled {
            told.send(()).unwrap();
        }
    });
    let engine = open(dir.path(), Some(watch));
    let go = dir.path().join("go");
    std::thread::scope(|scope| {
        let args = json!({"file": go.to_str().unwrap(), "line": "went"});
        let slow = scope.spawn(|| call(&engine, &caller(), "own.wait", args, "slow"));
        heard.recv_timeout(Duration::from_secs(20)).unwrap();
        // It writes where the other one does, and has no time to wait for it.
        let mut request = request("own.large", json!({"bytes": 1}));
        request.timeout = Some("20ms".parse().unwrap());
        request.key = Some("k".parse().unwrap());
        let Answer::Called(busy) = engine.ask(&caller(), Ask::Call(Box::new(request))) else {
            panic!()
        };
        assert_eq!(busy.problems[0].kind, ProblemKind::Busy, "{busy:?}");
        fs::write(&go, "").unwrap();
        assert_eq!(slow.join().unwrap().status, Status::Success);
        let reply = call(&engine, &caller(), "own.large", json!({"bytes": 1}), "k");
        assert_eq!((reply.status, reply.again), (Status::Success, false), "{reply:?}");
        assert!(call(&engine, &caller(), "own.large", json!({"bytes": 1}), "k").again);
    });
}

#[test]
fn a_key_is_kept_for_a_day_and_then_as_long_as_replies_are() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(dir.path(), None);
    let first = appended(&engine, dir.path(), "k");
    let keep = Keep { age: Some(Duration::ZERO), quota: 0, payloads: Default::default() };
    engine.gc(&caller(), keep.clone(), Gc::Remove).unwrap();
    assert_eq!(text(&appended(&engine, dir.path(), "k")), text(&first));
    let sql = rusqlite::Connection::open(dir.path().join("home/hotcell.db")).unwrap();
    sql.execute_batch("DROP TRIGGER once_is_fixed; UPDATE once SET time = 0").unwrap();
    engine.gc(&caller(), keep, Gc::Remove).unwrap();
    assert!(!appended(&engine, dir.path(), "k").again);
    assert_eq!(effects(dir.path()), 2);
}

/// Not a test: a process that makes five calls at once under one key, and perhaps kills itself.
#[test]
#[ignore = "started by the other tests"]
fn process_with_a_key() {
    let Some(dir) = std::env::var_os(DIR).map(PathBuf::from) else { return };
    let fatal = std::env::var(FATAL).ok().and_then(|stage| stage.parse::<usize>().ok());
    let fatal = fatal.and_then(|stage| Stage::ALL.get(stage).copied());
    let watch = Watch::new(move |_, stage| {
        if Some(stage) == fatal {
            let own = rustix::process::getpid();
            rustix::process::kill_process(own, rustix::process::Signal::KILL).unwrap();
        }
    });
    let engine = open(&dir, Some(watch));
    let replies: Vec<Reply> = std::thread::scope(|scope| {
        let all: Vec<_> = (0..5).map(|_| scope.spawn(|| appended(&engine, &dir, "k"))).collect();
        all.into_iter().map(|one| one.join().unwrap()).collect()
    });
    let mut said = fs::File::create(dir.join(format!("said-{}", std::process::id()))).unwrap();
    for reply in replies {
        writeln!(said, "{}", text(&reply)).unwrap();
    }
    engine.close().unwrap();
}

fn start(dir: &Path, fatal: Option<Stage>) -> Child {
    let fatal = fatal.and_then(|fatal| Stage::ALL.into_iter().position(|stage| stage == fatal));
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "process_with_a_key", "--ignored"])
        .env(DIR, dir)
        .env(FATAL, fatal.map_or(String::new(), |stage| stage.to_string()))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Ten under one key in two processes, one of which is killed at a stage; then ten more.
#[test]
fn of_ten_at_once_in_two_processes_one_has_an_effect_also_with_kill_9() {
    let stages = [Stage::Judged, Stage::Intended, Stage::CarriedOut, Stage::Recorded];
    for fatal in [None].into_iter().chain(stages.map(Some)) {
        let dir = tempfile::tempdir().unwrap();
        open(dir.path(), None).close().unwrap();
        for fatal in [fatal, None] {
            let children = [start(dir.path(), fatal), start(dir.path(), None)];
            for mut child in children {
                child.wait().unwrap();
            }
        }
        let engine = open(dir.path(), None);
        assert_eq!(intents(&engine), 1, "{fatal:?}");
        let last = appended(&engine, dir.path(), "k");
        assert!(last.again, "{fatal:?}: {last:?}");
        let done = effects(dir.path());
        match last.status {
            Status::Success => assert_eq!(done, 1, "{fatal:?}"),
            // Whoever was killed had begun: it may have been done, and is not done again.
            Status::Unknown => assert!(fatal.is_some() && done <= 1, "{fatal:?}: {done}"),
            other => panic!("{fatal:?}: {other:?}"),
        }
        if fatal.is_none() || fatal == Some(Stage::Judged) {
            assert_eq!(last.status, Status::Success, "{fatal:?}");
        }
        // Everybody who got an answer got the same.
        let mut said: Vec<String> = Vec::new();
        for entry in fs::read_dir(dir.path()).unwrap().flatten() {
            if entry.file_name().to_str().unwrap().starts_with("said-") {
                let text = fs::read_to_string(entry.path()).unwrap();
                said.extend(text.lines().map(str::to_owned));
            }
        }
        assert!(said.len() >= 15, "{fatal:?}: {}", said.len());
        assert!(said.iter().all(|one| *one == text(&last)), "{fatal:?}: {said:#?} {}", text(&last));
    }
}
