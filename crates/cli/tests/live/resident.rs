//! A hotcell that stays, and those who ask it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::support::{LONG, Started, World, line, until};
use crate::traces::Traces;

/// Where nobody serves yet.
fn world() -> Option<World> {
    World::new().map(World::on_its_own)
}

fn serve(world: &World, idle: &str) -> Started {
    let command = world.command(&["resident", "serve", "--idle", idle]);
    let (started, mut stdout) = Started::with_stdout(command);
    assert_eq!(line(&mut stdout), "ready");
    started
}

fn is_served(world: &World) -> bool {
    world.run(&["resident", "status", "--json"]).json()["serving"].as_bool().unwrap()
}

#[test]
fn it_is_started_used_and_stopped() {
    let Some(world) = world() else { return };
    assert!(!is_served(&world));
    world.run(&["resident", "start", "--idle", "5m"]).is(0, "", "");
    world.run(&["resident", "start"]).is(0, "", "hotcell: there is one already\n");
    assert!(is_served(&world));
    world.code(&[], "sh", "echo served").is(0, "served\n", "");
    let pid = world.run(&["resident", "status", "--json"]).json()["pid"].as_i64().unwrap();
    let below = Traces::count_below(i32::try_from(pid).unwrap());
    assert!(below >= 2, "its launcher stays: {below}");
    let socket = world.home().join("door/socket");
    let mode = |path: &std::path::Path| path.metadata().unwrap().permissions().mode() & 0o7777;
    assert_eq!((mode(&socket), mode(socket.parent().unwrap())), (0o600, 0o700));
    world.run(&["resident", "stop"]).is(0, "", "");
    assert!(!is_served(&world) && !socket.exists());
    world.run(&["resident", "stop"]).is(0, "", "hotcell: there is none\n");
    world.code(&[], "sh", "echo alone").is(0, "alone\n", "");
}

/// The flag, the configuration of whoever asks, and a field of a job: each executes what would be forked.
#[test]
fn whoever_wants_no_zygote_has_none() {
    let Some(world) = world() else { return };
    let resident = serve(&world, "5m");
    let start = |words: &[&str]| -> String {
        let words = [&["run", "--json", "--lang", "python", "-c", "print(1)"], words].concat();
        let ran = world.run(&words).json();
        assert_eq!(ran["status"], "success", "{ran}");
        ran["start"].as_str().unwrap().to_owned()
    };
    let is_forked = |start: &str| ["forked", "waiting"].contains(&start);
    until(LONG, || is_forked(&start(&[])).then_some(())).expect("it is forked at last");
    for _ in 0..3 {
        assert!(!is_forked(&start(&["--no-zygote"])));
        // The control: it is still there.
        assert!(is_forked(&start(&[])));
    }
    let jobs = world.home().join("jobs.jsonl");
    let job = r#"{"run": {"language": "python", "code": "print(1)", "no_zygote": NO}}"#;
    let batch = |no: &str, words: &[&str]| {
        fs::write(&jobs, job.replace("NO", no)).unwrap();
        let words = [&["batch", jobs.to_str().unwrap()], words].concat();
        let ran = world.run(&words);
        let result: serde_json::Value = serde_json::from_slice(&ran.stdout).unwrap();
        is_forked(result["result"]["run"]["start"].as_str().unwrap())
    };
    assert!(batch("false", &[]) && !batch("true", &[]) && !batch("false", &["--no-zygote"]));
    let config = world.home().join("config.toml");
    let before = fs::read_to_string(&config).unwrap_or_default();
    fs::write(&config, format!("zygote = false\n{before}")).unwrap();
    assert!(!is_forked(&start(&[])), "as whoever asks has configured it");
    fs::write(&config, before).unwrap();
    assert!(is_forked(&start(&[])));
    resident.signal(Signal::TERM);
    assert_eq!(resident.finish(LONG).code, 0);
}

#[test]
fn it_ends_when_nobody_has_asked_for_a_while() {
    let Some(world) = world() else { return };
    let resident = serve(&world, "300ms");
    let ran = resident.finish(LONG);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(!is_served(&world));
}

#[test]
fn there_is_one_for_a_home() {
    let Some(world) = world() else { return };
    let first = serve(&world, "5m");
    let second = world.run(&["resident", "serve"]);
    assert_eq!(second.code, 120, "{second:?}");
    assert!(second.errors().contains("cannot be served"), "{second:?}");
    world.code(&[], "sh", "echo served").is(0, "served\n", "");
    first.signal(Signal::TERM);
    assert_eq!(first.finish(LONG).code, 0);
}

#[test]
fn who_goes_takes_the_run_along() {
    let Some(world) = world() else { return };
    let resident = serve(&world, "5m");
    for signal in [Signal::KILL, Signal::INT] {
        let words = ["run", "--", "sh", "-c", "echo begun; sleep 60"];
        let (started, mut stdout) = Started::with_stdout(world.command(&words));
        assert_eq!(line(&mut stdout), "begun");
        started.signal(signal);
        started.finish(LONG);
        let ended = || {
            let runs = world.run(&["runs", "--limit", "1", "--json"]).json();
            (runs["status"] == "cancelled").then_some(())
        };
        until(LONG, ended).expect("the run is cancelled");
    }
    resident.signal(Signal::TERM);
    assert_eq!(resident.finish(LONG).code, 0);
}

#[test]
fn whoever_waits_for_one_that_is_killed_is_told_and_the_record_stays_true() {
    let Some(world) = world() else { return };
    let resident = serve(&world, "5m");
    let words = ["run", "--", "sh", "-c", "echo begun; sleep 60"];
    let (started, mut stdout) = Started::with_stdout(world.command(&words));
    assert_eq!(line(&mut stdout), "begun");
    resident.signal(Signal::KILL);
    resident.finish(LONG);
    let ran = started.finish(Duration::from_secs(10));
    assert_eq!(ran.code, 120, "{ran:?}");
    assert!(ran.errors().contains("ended early"), "{ran:?}");
    // The next one that uses the home says what became of the call, and carries out its own.
    world.code(&[], "sh", "echo alone").is(0, "alone\n", "");
    let runs = world.run(&["runs", "--json"]).text();
    assert!(runs.lines().any(|run| run.contains("\"unknown\"")), "{runs}");
    assert_eq!(world.run(&["audit", "verify"]).code, 0);
}

#[test]
fn a_call_is_made_where_its_caller_is() {
    let Some(world) = world() else { return };
    let resident = serve(&world, "5m");
    world.file("here.txt", b"here");
    let read = ["tool", "call", "--workspace", ".", "fs.read", "{\"path\": \"here.txt\"}"];
    assert!(world.run(&read).text().contains("here"));
    let below = |limit: &str, words: &[&str]| {
        let text = format!("[ceiling]\nmemory = \"{limit}\"\n");
        let config = world.file(".hotcell/config.toml", text.as_bytes());
        let ran = world.run(words);
        std::fs::remove_file(config).unwrap();
        ran
    };
    let run = ["run", "--mem", "100MiB", "--", "true"];
    assert_eq!(below("64MiB", &run).code, 119);
    assert_eq!(below("200MiB", &run).code, 0);
    // Of a replay as well.
    let id = world.run(&["runs", "--limit", "1", "--json"]).json()["call"].clone();
    let again = ["replay", "--json", id.as_str().unwrap()];
    let (high, low) = (below("200MiB", &again), below("64MiB", &again));
    assert_eq!((high.code, &high.json()["status"]), (0, &"success".into()), "{high:?}");
    assert_eq!((low.code, &low.json()["status"]), (1, &"blocked".into()), "{low:?}");
    resident.signal(Signal::TERM);
    resident.finish(LONG);
}

/// What is not one of ours is not spoken to, and not replaced.
#[test]
fn what_lies_where_the_socket_should_be_is_left_alone() {
    let Some(world) = world() else { return };
    world.code(&[], "sh", "true").is(0, "", "");
    let door = world.home().join("door");
    std::fs::create_dir_all(&door).unwrap();
    std::fs::set_permissions(&door, std::fs::Permissions::from_mode(0o700)).unwrap();
    std::fs::write(door.join("socket"), "mine").unwrap();
    let ran = world.run(&["resident", "serve"]);
    assert_eq!(ran.code, 120, "{ran:?}");
    assert_eq!(std::fs::read(door.join("socket")).unwrap(), b"mine");
    // A dead socket is nobody.
    std::fs::remove_file(door.join("socket")).unwrap();
    drop(std::os::unix::net::UnixListener::bind(door.join("socket")).unwrap());
    world.code(&[], "sh", "echo alone").is(0, "alone\n", "");
    let resident = serve(&world, "5m");
    world.code(&[], "sh", "echo served").is(0, "served\n", "");
    resident.signal(Signal::TERM);
    resident.finish(LONG);
}

/// Many at once, as a script would.
#[test]
fn many_ask_at_the_same_time() {
    let Some(world) = world() else { return };
    let resident = serve(&world, "5m");
    let started: Vec<Started> = (0..20)
        .map(|n| {
            let mut command: Command = world.command(&["run", "--", "echo"]);
            command.arg(n.to_string());
            Started::new(command)
        })
        .collect();
    for (n, started) in started.into_iter().enumerate() {
        started.finish(LONG).is(0, &format!("{n}\n"), "");
    }
    resident.signal(Signal::TERM);
    resident.finish(LONG);
}

/// Until everything has a place, and one more has to wait for one.
fn filled(world: &World) -> (Vec<Started>, Started) {
    let places = std::thread::available_parallelism().map_or(1, usize::from);
    let recorded = || world.run(&["runs", "--json"]).text().lines().count();
    let before = recorded();
    let mut holding = Vec::new();
    for _ in 0..places {
        let words = ["run", "--mem", "32MiB", "--", "sh", "-c", "echo begun; sleep 60"];
        let (started, mut stdout) = Started::with_stdout(world.command(&words));
        assert_eq!(line(&mut stdout), "begun");
        holding.push(started);
    }
    let words = ["run", "--mem", "32MiB", "--output-dir", "made", "--", "echo", "ran"];
    let waiting = Started::new(world.command(&words));
    // It is recorded before it waits for its turn.
    let is_recorded = || (recorded() > before + places).then_some(());
    until(LONG, is_recorded).expect("it waits");
    (holding, waiting)
}

/// What became of the newest call.
fn newest_is(world: &World, status: &str) {
    let is_so = || {
        let runs = world.run(&["runs", "--limit", "1", "--json"]).json();
        (runs["status"] == status).then_some(())
    };
    until(LONG, is_so).unwrap_or_else(|| panic!("it is not {status}"));
}

#[test]
fn what_waits_for_its_turn_ends_with_whoever_asked_for_it() {
    let Some(world) = world() else { return };
    let resident = serve(&world, "5m");
    for signal in [Signal::INT, Signal::KILL] {
        let (holding, waiting) = filled(&world);
        let asked = Instant::now();
        waiting.signal(signal);
        let ran = waiting.finish(LONG);
        let code = if signal == Signal::INT { 130 } else { -9 };
        assert_eq!((ran.code, &*ran.text(), &*ran.errors()), (code, "", ""));
        newest_is(&world, "cancelled");
        assert!(asked.elapsed() < Duration::from_secs(20), "the others still run");
        for mut holding in holding {
            assert!(holding.child.try_wait().unwrap().is_none(), "it has its place");
            holding.signal(Signal::INT);
            assert_eq!(holding.finish(LONG).code, 130);
        }
        std::fs::remove_dir_all(world.at("made")).ok();
    }
    resident.signal(Signal::TERM);
    assert_eq!(resident.finish(LONG).code, 0);
}

/// When whoever serves ends, what still waits is cancelled, and not left to the next one to find out.
#[test]
fn what_waits_for_its_turn_ends_with_whoever_serves() {
    let Some(world) = world() else { return };
    let resident = serve(&world, "5m");
    let (holding, waiting) = filled(&world);
    resident.signal(Signal::TERM);
    assert_eq!(resident.finish(LONG).code, 0);
    waiting.finish(LONG);
    holding.into_iter().for_each(|holding| drop(holding.finish(LONG)));
    let runs = world.run(&["runs", "--json"]).text();
    assert!(runs.lines().all(|run| run.contains("\"cancelled\"")), "{runs}");
}

/// It is for looking at what goes wrong as well.
#[test]
fn whoever_looks_at_a_home_does_not_wait_for_a_server_that_hangs() {
    let Some(world) = world() else { return };
    world.code(&[], "sh", "true").is(0, "", "");
    let resident = serve(&world, "5m");
    resident.signal(Signal::STOP);
    let ran = world.run(&["runs", "--json"]);
    resident.signal(Signal::CONT);
    assert_eq!((ran.code, ran.text().lines().count()), (0, 1), "{ran:?}");
    assert!(ran.errors().contains("may be missing here"), "{ran:?}");
    resident.signal(Signal::TERM);
    assert_eq!(resident.finish(LONG).code, 0);
}
