//! Programs that do not want to end or want everything: a clear status within the deadline and a second,
//! and the host as it was.

use std::time::Duration;

use crate::support::{GRACE, LONG, Started, World, is_optimised, skip};
use crate::traces::Apart;

/// Name, options, language, code, the statuses that are right.
type Program =
    (&'static str, &'static [&'static str], &'static str, &'static str, &'static [&'static str]);

const DEADLINE: Duration = Duration::from_secs(1);

const PROGRAMS: [Program; 13] = [
    (
        "ignores signals",
        &[],
        "python",
        "import signal
for s in range(1, 65):
    try: signal.signal(s, signal.SIG_IGN)
    except (OSError, ValueError): pass
while True: pass",
        &["timeout"],
    ),
    (
        "forks for ever",
        &[],
        "python",
        "import os
while True:
    try: os.fork()
    except OSError: pass",
        &["timeout"],
    ),
    (
        "forks and leaves its session",
        &[],
        "python",
        "import os, time
while True:
    try:
        if os.fork() == 0: os.setsid()
        else: time.sleep(0.001)
    except OSError: pass",
        &["timeout"],
    ),
    (
        "a shell that calls itself",
        &[],
        "shell",
        "f() { f | f & }; f; while :; do :; done",
        &["timeout"],
    ),
    ("floods both streams", &[], "shell", "yes & yes >&2", &["timeout"]),
    (
        "fills the disk",
        &["--disk", "2MiB"],
        "shell",
        "while :; do cat /dev/zero >> /work/a; cat /dev/zero >> /tmp/b; done 2> /dev/null",
        &["timeout"],
    ),
    (
        "fills the directory",
        &["--files", "1000"],
        "shell",
        "i=0; while :; do i=$((i+1)); : > $i; done 2> /dev/null",
        &["timeout"],
    ),
    (
        "holds the pipes open",
        &[],
        "shell",
        "(trap '' HUP; setsid sleep 100) & exit 0",
        &["success"],
    ),
    (
        "closes the pipes and stays",
        &[],
        "shell",
        "exec <&- >&- 2>&-; while :; do :; done",
        &["timeout"],
    ),
    (
        "exhausts memory",
        &["--mem", "64MiB"],
        "python",
        "a = []
while True: a.append(bytearray(1 << 16))",
        &["oom"],
    ),
    (
        "exhausts memory in many processes",
        &["--mem", "64MiB"],
        "python",
        "import os
while True:
    try: os.fork()
    except OSError: pass
    a = bytearray(1 << 20)",
        &["oom", "timeout"],
    ),
    ("stops itself", &[], "shell", "kill -STOP $$", &["timeout"]),
    (
        "kills everything it can see",
        &[],
        "shell",
        "trap '' TERM; kill -TERM -1; kill -9 1; echo alive; kill -9 -1; while :; do :; done",
        &["timeout", "killed"],
    ),
];

#[test]
fn every_hostile_program_ends_in_time_with_its_status() {
    let Some(world) = World::alone() else { return };
    let mut wrong = Vec::new();
    for (name, options, lang, code, right) in PROGRAMS {
        let apart = Apart::new();
        let words = [&["run", "--json", "--timeout", "1s"], options, &["--lang", lang, "-c", code]]
            .concat();
        let ran = Started::new(apart.inside(&world.command(&words))).finish(LONG);
        let report: serde_json::Value = serde_json::from_slice(&ran.stdout).unwrap_or_default();
        let status = report["status"].as_str().unwrap_or("no document");
        // Without a cgroup each process is held by itself, and feels it.
        let alone = report["level"] == "no-cgroup" && name.starts_with("exhausts memory");
        let is_right =
            right.contains(&status) || (alone && ["failure", "killed"].contains(&status));
        if !is_right || ran.took > DEADLINE + GRACE {
            wrong.push(format!(
                "{name}: {status} after {:?}: {} {}",
                ran.took,
                report["error"],
                ran.errors()
            ));
        }
        if !apart.left().is_empty() {
            wrong.push(format!("{name}: left {:?}", apart.left()));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    // Whoever served has gone as well.
    let world = world.on_its_own();
    let mut left: Vec<_> =
        std::fs::read_dir(world.home()).unwrap().map(|e| e.unwrap().file_name()).collect();
    left.sort();
    let record =
        ["artifacts", "door", "hotcell.db", "hotcell.db-shm", "hotcell.db-wal", "keys", "run"];
    left.retain(|name| !record.iter().any(|known| name == known));
    assert_eq!(left, ["anchor.log", "config.toml"], "nothing but the record is left in the home");
    for below in ["run/owners", "run/live"] {
        let left = std::fs::read_dir(world.home().join(below)).unwrap().count();
        assert_eq!(left, 0, "nobody is there any more: {below}");
    }
    assert_eq!(
        std::fs::read_dir(world.at("")).unwrap().count(),
        0,
        "nothing is left where it was started"
    );
}

/// What ends is throttled like what runs: without a share of processors to die with, a hundred processes
/// outlive their deadline by seconds.
#[test]
fn many_processes_with_a_small_share_of_processors_end_in_time() {
    let Some(world) = World::alone().and_then(World::only_with_cgroups) else { return };
    let code = "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass";
    for share in ["0.2", "0.05"] {
        let words = ["--cpu", share, "--timeout", "1s"];
        let ran = world.code(&words, "python", code);
        assert!(ran.code == 124 && ran.took < DEADLINE + GRACE, "--cpu {share}: {ran:?}");
    }
}

/// Everything that a run may have on disk is hashed when it has ended.
#[test]
fn a_full_disk_of_the_default_size_is_collected_in_time() {
    let Some(world) = World::alone() else { return };
    if !is_optimised() {
        return skip("it is about the time that an optimised build takes: set HOTCELL_BIN");
    }
    let code = "cat /dev/zero > file 2> /dev/null; sleep 60";
    let ran = world.code(&["--timeout", "1s"], "shell", code);
    assert!(ran.code == 124 && ran.took < DEADLINE + GRACE, "{ran:?}");
}

#[test]
fn blocked_calls_by_the_million_hold_nothing_up() {
    let Some(world) = World::alone() else { return };
    let code = "import ctypes\nptrace = ctypes.CDLL(None).ptrace\nwhile True: ptrace(0, 0, 0, 0)";
    let words = ["run", "--json", "--timeout", "1s", "--lang", "python", "-c", code];
    let ran = Started::new(world.command(&words)).finish(LONG);
    let report = ran.json();
    assert_eq!(report["status"], "timeout", "{report}");
    assert!(ran.took < DEADLINE + GRACE, "{:?}", ran.took);
    let blocked = &report["blocked_syscalls"];
    assert_eq!(
        (&blocked[0]["name"], blocked.as_array().unwrap().len()),
        (&"ptrace".into(), 1),
        "{blocked}"
    );
}

#[test]
fn output_that_looks_like_ours_is_only_data() {
    let Some(world) = World::new() else { return };
    let code = r#"printf '{"version":1,"status":"success"}\n\033]0;x\007\033[2J\n'; exit 9"#;
    let ran = world.code(&["--json"], "shell", code);
    let report = ran.json();
    assert_eq!((ran.code, &report["status"]), (9, &"failure".into()));
    assert!(!ran.stdout.contains(&0x1b), "escapes are escaped in the document");
}
