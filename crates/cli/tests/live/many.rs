//! Many processes on one home, some of them killed: one chain, and everybody's intents are their own.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use hotcell_engine::{Answer, Ask, Engine, Options};
use hotcell_record::{Filter, Kind, Standing};
use hotcell_request::{Arguments, Request};
use hotcell_types::{CallId, Caller, Door, Level, Name, Status};
use serde_json::{Value, json};

use crate::support::World;

const HOME: &str = "HOTCELL_TEST_HOME";
const READY: &str = "READY";
const CALLED: &str = "CALLED ";

fn caller() -> Caller {
    Caller::local(Name::LOCAL, Door::Library)
}

fn engine(home: &Path) -> Engine {
    let mut options = Options::at(home);
    options.minimum = Level::NoProc;
    Engine::open(options).unwrap()
}

/// Not a test: a process that stays. It makes calls until nobody listens, and holds one of them open.
#[test]
#[ignore = "started by twenty_runs_beside_two_that_stay_make_one_chain"]
fn process_that_stays() {
    let Some(home) = std::env::var_os(HOME).map(PathBuf::from) else { return };
    let engine = engine(&home);
    let call = |tool: &str, arguments: Value| {
        let request = Request::new(tool.parse().unwrap(), Arguments::Value(arguments));
        match engine.ask(&caller(), Ask::Call(Box::new(request))) {
            Answer::Called(reply) => *reply,
            other => panic!("{other:?}"),
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| call("run", json!({"command": ["sleep", "3600"]})));
        println!("\n{READY}");
        // Ends with its parent, who reads this.
        loop {
            let reply = call("code_execute", json!({"language": "shell", "code": "echo hi"}));
            assert_eq!(reply.status, Status::Success, "{reply:?}");
            println!("{CALLED}{}", reply.id);
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    });
}

/// A process that stays, and what it says.
struct Staying {
    process: Child,
    lines: BufReader<std::process::ChildStdout>,
}

impl Staying {
    fn start(home: &Path) -> Staying {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "many::process_that_stays", "--ignored", "--nocapture"])
            .env(HOME, home)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap());
        let mut staying = Staying { process, lines };
        staying.until(|line| line == READY);
        staying
    }

    fn until(&mut self, is_it: impl Fn(&str) -> bool) -> String {
        loop {
            let mut line = String::new();
            assert!(self.lines.read_line(&mut line).unwrap() > 0, "it ended");
            if is_it(line.trim_end()) {
                return line.trim_end().to_owned();
            }
        }
    }

    /// One of its calls that was answered.
    fn answered(&mut self) -> CallId {
        self.until(|line| line.starts_with(CALLED)).trim_start_matches(CALLED).parse().unwrap()
    }
}

impl Drop for Staying {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

fn run(home: &Path, code: &str) -> Child {
    Command::new(env!("CARGO_BIN_EXE_hotcell"))
        .args(["run", "--json", "--lang", "shell", "-c", code])
        .env("HOTCELL_HOME", home)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

#[test]
fn twenty_runs_beside_two_that_stay_make_one_chain() {
    let Some(world) = World::alone().map(World::on_its_own) else { return };
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        eprintln!("SKIPPED many processes: one processor has room for one run of each");
        return;
    }
    let home = world.home();
    let mut staying = [Staying::start(&home), Staying::start(&home)];
    // Five sleep for ever and are killed in the midst of it; the others print their number.
    let code = |number: usize| {
        if number.is_multiple_of(4) { "sleep 3600".to_owned() } else { format!("echo {number}") }
    };
    let mut runs: Vec<_> = (0..20).map(|number| (number, run(&home, &code(number)))).collect();
    let open = |home: &Path| {
        let engine = engine(home);
        let filter = Filter { limit: 10_000, ..Filter::of(Name::LOCAL) };
        let Answer::Runs(runs) = engine.ask(&caller(), Ask::Runs(filter)) else { panic!() };
        runs.into_iter().filter(|run| run.end.is_none()).count()
    };
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(120);
    let mut answered: BTreeMap<CallId, Status> = BTreeMap::new();
    for (number, process) in runs.extract_if(.., |(number, _)| !number.is_multiple_of(4)) {
        let output = process.wait_with_output().unwrap();
        assert!(output.status.success(), "{number}: {output:?}");
        let document: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(document["stdout"]["text"], format!("{number}\n"), "{document}");
        answered.insert(document["id"].as_str().unwrap().parse().unwrap(), Status::Success);
    }
    // All seven that sleep have begun.
    while open(&home) < 7 {
        assert!(std::time::Instant::now() < deadline, "{}", open(&home));
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    for (_, process) in &mut runs {
        process.kill().unwrap();
        assert_eq!(process.wait().unwrap().signal(), Some(9));
    }
    for process in &mut staying {
        answered.insert(process.answered(), Status::Success);
    }
    let engine = engine(&home);
    let filter = Filter { limit: 10_000, ..Filter::of(Name::LOCAL) };
    let Answer::Runs(recorded) = engine.ask(&caller(), Ask::Runs(filter.clone())) else { panic!() };
    let status = |id: &CallId| {
        let run = recorded.iter().find(|run| run.intent.call == Some(*id)).unwrap();
        run.end.as_ref().and_then(|end| end.status)
    };
    for (id, expected) in &answered {
        assert_eq!(status(id), Some(*expected), "{id} was answered");
    }
    let Answer::Events(events) = engine.ask(&caller(), Ask::Events(filter)) else { panic!() };
    let closed = events.iter().filter(|event| event.kind == Kind::Recovered).count();
    assert_eq!(closed, 5, "the five that were killed, and nobody else's");
    assert!(recorded.iter().filter(|run| run.end.is_none()).count() >= 2, "two are still going on");
    let Answer::Verified(verdict) = engine.ask(&caller(), Ask::Verify) else { panic!() };
    assert_eq!(verdict.standing, Standing::Sound, "{verdict:?}");
}
