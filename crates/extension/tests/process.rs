//! The process of the rules, looked at and killed from outside. Each test is alone in its process: they
//! take turns.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "these are tests")]

mod common;

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};
use std::{fs, process, thread};

use common::{ask, load, nothing, sandbox, sources};
use hotcell_extension::{Extension, Failed};
use hotcell_sandbox::Refusal;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

static TURN: Mutex<()> = Mutex::new(());

const HANGS: &str = "export default (call: any) => {
    const large = (1n << 500_000n) - 1n;
         for (let i = 0; call.args.hang && i < 5000; i++) large * large;
    return { decision: 'allow', reason: 'fine' };
}";

fn kill(pid: i32) {
    kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
}

/// The one evaluator, as this host numbers it.
fn evaluator() -> i32 {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        if let Some(pid) = evaluators().first() {
            return *pid;
        }
        assert!(Instant::now() < deadline, "there is no evaluator");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Descendants of this process that are evaluators.
fn evaluators() -> Vec<i32> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let is_one = |pid: &i32| {
        let name = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        name.ends_with(b"/work/evaluator\0") && is_ours(*pid)
    };
    pids.filter(is_one).collect()
}

fn is_ours(mut pid: i32) -> bool {
    while pid > 1 {
        if pid == process::id() as i32 {
            return true;
        }
        let Some(parent) = field(pid, "PPid:") else { return false };
        pid = parent as i32;
    }
    false
}

/// A number in the status of a process.
fn field(pid: i32, name: &str) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

#[test]
fn cr_14_killed_in_the_middle_is_a_failure_and_one_restart() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let rules = load(HANGS);
    let pid = evaluator();
    let failed = thread::scope(|scope| {
        let asked = scope.spawn(|| rules.ask(&json!({ "hang": true })));
        thread::sleep(Duration::from_millis(20));
        kill(pid);
        asked.join().unwrap().unwrap_err()
    });
    assert_eq!(failed, Failed::Broken { why: "the process ended".into() });
    assert_eq!(rules.ask_until_there(&nothing()).unwrap()[0].reason, "fine");
    assert_ne!(evaluator(), pid);
    assert_eq!(rules.starts(), 2);
}

#[test]
fn killed_while_nobody_asks_is_replaced_as_well() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let rules = load(HANGS);
    kill(evaluator());
    let deadline = Instant::now() + Duration::from_secs(10);
    // The one that was asked too early may hear of the end; whoever asks later does not.
    while rules.ask(&nothing()).is_err() {
        assert!(Instant::now() < deadline);
    }
    assert_eq!(rules.starts(), 2);
}

#[test]
fn cr_18_failures_in_a_row_make_no_storm_of_restarts() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let rules = load(HANGS);
    let begun = Instant::now();
    let (mut late, mut missing) = (0, 0);
    while begun.elapsed() < Duration::from_millis(2500) {
        match rules.ask(&json!({ "hang": true })) {
            Err(Failed::Late { .. }) => late += 1,
            Err(Failed::Missing { .. }) => {
                missing += 1;
                thread::sleep(Duration::from_millis(1));
            }
            other => panic!("{other:?}"),
        }
    }
    // Rests of 0, 100, 200, 400, 800 ms, with 100 ms of hanging before each.
    assert!((2..=6).contains(&rules.starts()), "{}", rules.starts());
    assert!(late >= 2 && missing > 10, "{late} {missing}");
    // A good answer ends it.
    assert_eq!(rules.ask_until_there(&nothing()).unwrap()[0].reason, "fine");
}

#[test]
fn where_no_process_can_be_started_any_more_every_answer_is_a_failure() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let (sandbox, _home) = sandbox();
    let starts = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&starts);
    let extension = Extension::start(&sources(HANGS), move |job| {
        match counted.fetch_add(1, Ordering::SeqCst) {
            0 => sandbox.start(job),
            _ => Err(Refusal::Busy { running: 1 }),
        }
    })
    .unwrap();
    assert!(ask(&extension, &nothing()).is_ok());
    kill(evaluators()[0]);
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(700) {
        // Until it is known that the process is gone, the line is still there and says so.
        let answer = ask(&extension, &nothing());
        assert!(answer.is_err() || begun.elapsed() < Duration::from_millis(100), "{answer:?}");
        thread::sleep(Duration::from_millis(1));
    }
    assert!((2..=6).contains(&starts.load(Ordering::SeqCst)), "{starts:?}");
    assert!(matches!(
        ask(&extension, &nothing()),
        Err(Failed::Missing { .. } | Failed::Late { .. })
    ));
}

#[test]
fn ten_thousand_evaluations_leave_nothing_behind() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let rules = load(
        "const kept: any[] = [];
         export default (call: any) => {
             kept.push('x'.repeat(10_000), { ...call });
             return { decision: 'allow', reason: `${kept.length}` };
         };",
    );
    let resident = || field(evaluator(), "VmRSS:").unwrap();
    // Where the machine stood still for longer than an answer may take, the process is another one, and
    // what it keeps is counted from its own beginning.
    let most_starts = 5;
    let (mut done, mut before) = (0, 0);
    while done < 10_500 {
        match rules.ask(&json!({ "n": done })) {
            Ok(said) => assert_eq!(said[0].reason, "2"),
            Err(Failed::Late { .. }) if rules.starts() < most_starts => {
                rules.ask_until_there(&nothing()).unwrap();
                done = 0;
            }
            Err(failed) => panic!("{failed:?} after {done} evaluations"),
        }
        done += 1;
        if done == 500 {
            before = resident();
        }
    }
    let after = resident();
    assert!(after < before + 1024, "{before} KiB became {after} KiB");
}

#[test]
fn it_ends_with_its_holder() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let rules = load(HANGS);
    let pid = evaluator();
    assert_eq!(field(pid, "Seccomp:"), Some(2));
    assert_eq!(field(pid, "NoNewPrivs:"), Some(1));
    assert_eq!(field(pid, "Threads:"), Some(1));
    drop(rules);
    assert!(evaluators().is_empty());
}
