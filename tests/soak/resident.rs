//! One process that runs many jobs, by way of the library.

use std::ffi::OsStr;
use std::time::{Duration, Instant};

use hotcell_sandbox::lang::{self, Host};
use hotcell_sandbox::{Holes, Job, Network, Running, Sandbox, Settings, Sink, Stdin};
use hotcell_types::{Level, Limits, Outcome, Profile, Span, Status, Template};

use crate::Stages;
use crate::census::{self, Census, home};

/// Runs after which everything that is made once has been made.
const WARM: usize = 30;

struct Quiet;
impl Sink for Quiet {
    fn stdout(&mut self, _: &[u8]) {}
    fn stderr(&mut self, _: &[u8]) {}
}

fn job(words: &[&str], limits: Limits) -> Job {
    let args: Vec<_> = words[1..].iter().map(Into::into).collect();
    Job {
        command: lang::command(&Host::of_this_process(), OsStr::new(words[0]), &args).unwrap(),
        env: lang::runtime_env(&limits),
        stdin: Stdin::Empty,
        inputs: vec![],
        working_copy: None,
        limits,
        profile: Profile::Standard,
        network: Network::None,
        holes: Holes::default(),
    }
}

fn finish(running: Running) -> Outcome {
    running.wait(&mut Quiet, None).unwrap()
}

pub(crate) fn stages(stages: &mut Stages, runs: usize) {
    let limits = Template::DEFAULT.limits;
    // What is made once and kept for the life of the process is made now.
    finish(Sandbox::open(&settings()).unwrap().start(job(&["true"], limits)).unwrap());
    let start = Census::take();
    let mut sandbox = None;
    stages.from("opening and closing a sandbox without a run", &start, || {
        drop(Sandbox::open(&settings()).unwrap());
    });
    let open = || Sandbox::open(&settings()).unwrap();
    let opened = sandbox.insert(open());
    run_at_once(opened, limits);
    run_many(opened, WARM, limits);
    run_of_each_kind(opened, limits);
    let warm = Census::settled();
    stages.from(&format!("{runs} runs in a row"), &warm, || {
        run_many(opened, runs, limits);
        run_of_each_kind(opened, limits);
    });
    stages.from("64 runs at once, three times", &warm, || {
        for _ in 0..3 {
            run_at_once(opened, limits);
            run_of_each_kind(opened, limits);
        }
    });
    stages.from("runs that are dropped, cancelled, paused or out of time", &warm, || {
        for _ in 0..(runs / 20).max(3) {
            drop(opened.start(job(&["sleep", "100"], limits)).unwrap());
            let running = opened.start(job(&["sleep", "100"], limits)).unwrap();
            running.handle().cancel();
            assert_eq!(finish(running).status, Status::Cancelled);
            if opened.level() >= Level::User {
                let running = opened.start(job(&["sleep", "100"], limits)).unwrap();
                running.handle().pause().unwrap();
                running.handle().cancel();
                assert_eq!(finish(running).status, Status::Cancelled);
                let running = opened.start(job(&["sleep", "100"], limits)).unwrap();
                running.handle().pause().unwrap();
                drop(running);
            }
            run_out_of_time(opened, limits);
        }
        run_of_each_kind(opened, limits);
    });
    stages.from("everything, once the sandbox is closed", &start, || drop(sandbox.take()));
    for (generation, name) in [(0, "guard"), (1, "spawner")] {
        kill_launcher(stages, generation, name, limits);
    }
}

/// A launcher that dies costs the runs that it has, and no later one.
fn kill_launcher(stages: &mut Stages, generation: usize, name: &str, limits: Limits) {
    let mut after = Vec::new();
    stages.stage(&format!("kill -9 of the {name} of a resident process, ten times"), || {
        for _ in 0..10 {
            let sandbox = Sandbox::open(&settings()).unwrap();
            let running = sandbox.start(job(&["sleep", "100"], limits)).unwrap();
            census::kill(census::launcher_of(std::process::id().cast_signed(), generation));
            let begun = Instant::now();
            let ended = running.wait(&mut Quiet, None);
            after.push(("a run whose launcher was killed is an error", ended.is_err()));
            after.push(("and ends soon", begun.elapsed() < Duration::from_secs(2)));
            let next = sandbox.start(job(&["true"], limits));
            let next = next.and_then(|running| running.wait(&mut Quiet, None));
            let ran = next.is_ok_and(|outcome| outcome.status == Status::Success);
            after.push(("the next run of the same process has a new launcher", ran));
        }
    });
    for (what, holds) in after {
        if !holds {
            stages.check(name, holds, &format!("it does not hold that {what}"));
            break;
        }
    }
}

fn settings() -> Settings {
    Settings { minimum: Level::NoProc, home: home().to_owned() }
}

fn run_at_once(sandbox: &Sandbox, limits: Limits) {
    let begin = |_| sandbox.start(job(&["sleep", "0.2"], limits)).unwrap();
    let running: Vec<Running> = (0..64).map(begin).collect();
    for running in running {
        assert_eq!(finish(running).status, Status::Success);
    }
}

fn run_out_of_time(sandbox: &Sandbox, limits: Limits) {
    let short = Limits { timeout: Span::millis(20), ..limits };
    let running = sandbox.start(job(&["sleep", "100"], short)).unwrap();
    assert_eq!(finish(running).status, Status::Timeout);
}

/// The cells that are made ahead are for jobs like the last ones of each kind.
fn run_of_each_kind(sandbox: &Sandbox, limits: Limits) {
    run_out_of_time(sandbox, limits);
    run_many(sandbox, 2, limits);
}

/// Mostly nothing, now and then everything.
fn run_many(sandbox: &Sandbox, count: usize, limits: Limits) {
    const CLUTTER: &str = "for i in 1 2 3; do (setsid sleep 1000 &) ; done; mkdir -p a/b; seq 100 > a/b/c; \
                           yes | head -c 200000; ln -s / link; exit 3";
    for number in 1..=count {
        let clutters = number % 10 == 0;
        let words = if clutters { &["sh", "-c", CLUTTER][..] } else { &["true"] };
        let outcome = finish(sandbox.start(job(words, limits)).unwrap());
        let expected = if clutters { Status::Failure } else { Status::Success };
        assert_eq!(outcome.status, expected, "{outcome:?}");
    }
}
