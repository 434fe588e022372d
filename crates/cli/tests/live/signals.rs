//! Signals to hotcell and to its launcher. Whatever happens, nothing of the run is left.

use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::support::{LONG, Started, World, line, until};
use crate::traces::{Apart, Traces};

/// Ignores what can be ignored, in two sessions, one of them without a terminal or a parent.
const STUBBORN: &str = "trap '' INT TERM HUP QUIT PIPE USR1
(trap '' INT TERM HUP; setsid sh -c 'trap \"\" INT TERM HUP; while :; do sleep 1; done' &)
echo ready; while :; do sleep 1; done";

/// A stubborn run that has begun.
fn begun(world: &World, apart: &Apart) -> (Started, Traces) {
    let command = world.command(&["run", "--lang", "sh", "-c", STUBBORN]);
    begun_as(&apart.inside(&command))
}

fn begun_as(command: &Command) -> (Started, Traces) {
    let mut copy = Command::new(command.get_program());
    copy.args(command.get_args()).current_dir(command.get_current_dir().unwrap()).env_clear();
    copy.envs(command.get_envs().filter_map(|(key, value)| Some((key, value?))));
    copy.stdin(std::process::Stdio::null());
    copy.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let (started, mut stdout) = Started::with_stdout(copy);
    assert_eq!(line(&mut stdout), "ready");
    let traces = Traces::of_a_run(started.pid());
    // Whoever reads stays until the end.
    std::mem::forget(stdout);
    (started, traces)
}

#[test]
fn each_signal_ends_everything_and_has_its_number() {
    let Some(world) = World::alone().map(World::on_its_own) else { return };
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
        let apart = Apart::new();
        let (started, traces) = begun(&world, &apart);
        let asked = Instant::now();
        started.signal(signal);
        started.finish(LONG).is(code, "", "");
        assert!(asked.elapsed() < Duration::from_secs(1), "{:?}", asked.elapsed());
        traces.are_gone();
        assert!(apart.left().is_empty(), "{:?}", apart.left());
    }
}

#[test]
fn a_signal_while_the_record_is_locked_ends_it_at_once() {
    let Some(world) = World::alone().map(World::on_its_own) else { return };
    world.code(&[], "sh", "true").is(0, "", "");
    let others = rusqlite::Connection::open(world.home().join("hotcell.db")).unwrap();
    others.execute_batch("BEGIN IMMEDIATE").unwrap();
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let words = ["run", "--output-dir", "made", "--", "echo", "ran"];
        let started = Started::new(world.command(&words));
        // It is about to write its intent: its launcher is there, and its directory.
        let pid = started.pid();
        until(LONG, || (Traces::count_below(pid) >= 2).then_some(())).expect("it begins");
        assert!(world.at("made").exists());
        let asked = Instant::now();
        started.signal(signal);
        started.finish(LONG).is(code, "", "");
        assert!(asked.elapsed() < Duration::from_secs(1), "{:?}", asked.elapsed());
        assert!(!world.at("made").exists());
        until(LONG, || (Traces::count_below(pid) == 0).then_some(())).expect("nothing is left");
    }
}

#[test]
fn a_cancelled_run_says_so_in_its_document() {
    let Some(world) = World::new().map(World::on_its_own) else { return };
    world.file("stop.sh", b"echo x; while :; do sleep 1; done\n");
    let started = Started::new(world.command(&["run", "--json", "stop.sh"]));
    let pid = started.pid();
    until(LONG, || (Traces::count_below(pid) >= 5).then_some(())).expect("the run begins");
    started.signal(Signal::INT);
    let ran = started.finish(LONG);
    let report = ran.json();
    assert_eq!((ran.code, &report["status"]), (130, &"cancelled".into()), "{report}");
    assert_eq!(report["stdout"]["text"], "x\n");
}

#[test]
fn a_second_signal_does_not_wait() {
    let Some(world) = World::alone().map(World::on_its_own) else { return };
    let apart = Apart::new();
    let (started, traces) = begun(&world, &apart);
    // The launcher cannot answer, so that the first signal alone takes seconds.
    let spawner = Pid::from_raw(Traces::launcher(started.pid(), 1)).unwrap();
    kill_process(spawner, Signal::STOP).unwrap();
    // The first has been taken when the thread for it has gone.
    let threads = format!("/proc/{}/task", started.pid());
    let count = || std::fs::read_dir(&threads).map_or(0, Iterator::count);
    let before = count();
    started.signal(Signal::INT);
    until(LONG, || (count() < before).then_some(())).expect("the first signal is taken");
    let asked = Instant::now();
    started.signal(Signal::TERM);
    let ran = started.finish(LONG);
    assert_eq!(ran.code, 143, "{ran:?}");
    assert!(asked.elapsed() < Duration::from_secs(1), "{:?}", asked.elapsed());
    traces.are_gone();
    assert!(gone(&apart), "{:?}", apart.left());
}

#[test]
fn killing_hotcell_leaves_nothing() {
    let Some(world) = World::new().map(World::on_its_own) else { return };
    let apart = Apart::new();
    let (started, traces) = begun(&world, &apart);
    started.signal(Signal::KILL);
    assert_eq!(started.finish(LONG).code, -9);
    traces.are_gone();
    assert!(gone(&apart), "{:?}", apart.left());
}

#[test]
fn cr_14_killing_the_launcher_is_an_error_and_leaves_nothing() {
    let Some(world) = World::alone().map(World::on_its_own) else { return };
    for generation in [0, 1, 2] {
        let apart = Apart::new();
        let (started, traces) = begun(&world, &apart);
        let launcher = Pid::from_raw(Traces::launcher(started.pid(), generation)).unwrap();
        kill_process(launcher, Signal::KILL).unwrap();
        let ran = started.finish(LONG);
        assert_eq!(ran.code, 120, "{generation}: {ran:?}");
        let (status, said) = match generation {
            2 => ("killed", "hotcell: the run was killed from outside"),
            _ => ("error", "error: "),
        };
        assert!(ran.errors().starts_with(said), "{generation}: {ran:?}");
        assert!(ran.took < Duration::from_secs(5), "{generation}: {ran:?}");
        traces.are_gone();
        assert!(gone(&apart), "{generation}: {:?}", apart.left());
        // The record says so, and the next run has another launcher.
        let recorded = world.run(&["runs", "--json", "--limit", "1"]).json();
        assert_eq!(recorded["status"], status, "{generation}: {recorded}");
        world.code(&[], "sh", "echo fine").is(0, "fine\n", "");
    }
}

#[test]
fn a_stopped_hotcell_goes_on_where_it_was() {
    let Some(world) = World::alone().map(World::on_its_own) else { return };
    // The program ends meanwhile.
    let code = "echo ready; sleep 0.2; echo over";
    let (started, mut stdout) =
        Started::with_stdout(world.command(&["run", "--lang", "sh", "-c", code]));
    assert_eq!(line(&mut stdout), "ready");
    started.signal(Signal::STOP);
    let pid = started.pid();
    // The guard and the spawner stay; the run's own processes go.
    until(LONG, || (Traces::count_below(pid) <= 2).then_some(())).expect("the program ends");
    started.signal(Signal::CONT);
    assert_eq!(line(&mut stdout), "over");
    started.finish(LONG).is(0, "", "");
    // The deadline passes meanwhile.
    let code = "echo ready; sleep 60";
    let command = world.command(&["run", "--timeout", "300ms", "--lang", "sh", "-c", code]);
    let (started, mut stdout) = Started::with_stdout(command);
    assert_eq!(line(&mut stdout), "ready");
    started.signal(Signal::STOP);
    std::thread::sleep(Duration::from_millis(400));
    let resumed = Instant::now();
    started.signal(Signal::CONT);
    assert_eq!(started.finish(LONG).code, 124);
    assert!(resumed.elapsed() < Duration::from_secs(1), "{:?}", resumed.elapsed());
}

/// The guard removes what is left shortly after hotcell has gone.
fn gone(apart: &Apart) -> bool {
    until(Duration::from_secs(2), || apart.left().is_empty().then_some(())).is_some()
}
