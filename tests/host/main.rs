//! What is left on the host, and in this process, after everything that can happen to a run.
//!
//! One test at a time, since each looks at the whole host.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs::{self, File};
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hotcell_sandbox::{Input, Item, Refusal, Sandbox, What, WorkingCopy};
use hotcell_tests::{
    Attack, Canary, Process, Quiet, Snapshot, descendants, holds_within, is_root_for,
    kernel_counts, settings, skip, soak, text, timed, token, with_token,
};
use hotcell_types::{Bytes, Count, Outcome, Status};

#[path = "../escape/victim.rs"]
#[expect(dead_code, reason = "the other tests use more of it")]
mod victim;

use victim::Victim;

fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Does `work` with a sandbox of its own and checks that the host is as it was once that is gone.
#[track_caller]
fn leaves_nothing(work: impl FnOnce(&Sandbox)) {
    // What the first use of a process makes once, and keeps.
    drop(Sandbox::open(&settings()).map(|own| run(&own, Attack::shell("true"))));
    let before = Snapshot::take();
    let own = Sandbox::open(&settings()).unwrap();
    work(&own);
    drop(own);
    let left = before.left_over();
    assert!(left.is_empty(), "left behind:\n{}", left.join("\n"));
}

fn run(own: &Sandbox, attack: Attack) -> Outcome {
    attack.start_in(own).wait(&mut Quiet, None).unwrap()
}

/// This process as a run could have changed it.
fn own_state() -> BTreeMap<String, String> {
    let mut state = BTreeMap::new();
    let mut keep = |name: &str, value: String| drop(state.insert(name.to_owned(), value));
    keep("cwd", std::env::current_dir().unwrap().display().to_string());
    for file in ["limits", "oom_score_adj", "uid_map", "cgroup", "environ", "loginuid"] {
        let bytes = fs::read(format!("/proc/self/{file}")).unwrap_or_default();
        keep(file, String::from_utf8_lossy(&bytes).into_owned());
    }
    for name in ["net", "mnt", "pid", "user", "ipc", "uts", "cgroup"] {
        let link = fs::read_link(format!("/proc/self/ns/{name}")).unwrap();
        keep(name, link.display().to_string());
    }
    let status = fs::read_to_string("/proc/self/status").unwrap();
    for name in ["Umask", "SigBlk", "SigIgn", "SigCgt", "CapEff", "NoNewPrivs", "Seccomp", "Groups"]
    {
        let line = status.lines().find(|line| line.starts_with(name)).unwrap_or_default();
        keep(name, line.to_owned());
    }
    keep("descriptors", fs::read_dir("/proc/self/fd").unwrap().count().to_string());
    state
}

#[test]
fn xr_09_the_state_of_this_process() {
    let _alone = alone();
    let own = Sandbox::open(&settings()).unwrap();
    let hostile = "os.umask(0); os.setsid() if os.getpid() != os.getsid(0) else None\nos.chdir('/')\nimport resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (20, 20))\nos.kill(0, 23)";
    // The launcher and its next cell are there before the count.
    for _ in 0..3 {
        run(&own, Attack::shell("true"));
    }
    // What is still being buried has descriptors.
    let quiet = || {
        let mut last = own_state();
        let is_quiet = holds_within(Duration::from_secs(5), || {
            std::thread::sleep(Duration::from_millis(50));
            let now = own_state();
            std::mem::replace(&mut last, now.clone()) == now
        });
        assert!(is_quiet, "{last:?}");
        last
    };
    let before = quiet();
    for round in 0..soak(100) {
        let attack = match round % 4 {
            0 => Attack::python(hostile),
            1 => Attack::shell("exit 3"),
            2 => Attack::shell("kill -9 $$"),
            _ => Attack::shell("true"),
        };
        run(&own, attack);
    }
    for _ in 0..2 {
        run(&own, Attack::shell("true"));
    }
    for (name, value) in quiet() {
        assert_eq!(before[&name], value, "{name}");
    }
}

#[test]
fn a_pause_at_the_moment_of_the_end_freezes_nobody_for_ever() {
    let _alone = alone();
    let own = Sandbox::open(&settings()).unwrap();
    let mut paused = 0;
    for round in 0..soak(300) {
        let running = Attack::shell("true").start_in(&own);
        let handle = running.handle();
        let (begin, begun) = std::sync::mpsc::channel();
        let pausing = std::thread::spawn(move || {
            begun.recv().unwrap();
            // From the middle of the run to after its end.
            std::thread::sleep(Duration::from_micros(10 * (round % 200) as u64));
            let was_paused = handle.pause().is_ok();
            std::thread::sleep(Duration::from_micros(200));
            handle.resume().ok();
            was_paused
        });
        begin.send(()).unwrap();
        running.wait(&mut Quiet, None).unwrap();
        paused += usize::from(pausing.join().unwrap());
    }
    let (_, took) = timed(|| drop(own));
    assert!(took < Duration::from_secs(5), "{took:?} after {paused} pauses");
}

/// A tree with more in it than fits into one packet.
#[derive(Debug)]
struct Tree {
    file: File,
    files: usize,
}

impl WorkingCopy for Tree {
    fn items(&self) -> Box<dyn Iterator<Item = std::io::Result<Item>> + '_> {
        let item = |path: String, what| Ok(Item { path: CString::new(path).unwrap(), what });
        let directories = ["a", "a/b", "empty"];
        let first = directories.into_iter().map(move |path| item(path.into(), What::Directory));
        let files = (0..self.files).map(move |number| {
            let what = What::File(self.file.try_clone().unwrap());
            item(format!("a/b/{number}"), what)
        });
        let link = std::iter::once_with(move || item("a/link".into(), What::Link(c"b/7".into())));
        Box::new(first.chain(files).chain(link))
    }
}

#[test]
fn a_working_copy_is_there_as_a_whole_and_only_what_changed_comes_back() {
    let _alone = alone();
    let own = Sandbox::open(&settings()).unwrap();
    let file = File::open("/proc/self/exe").unwrap();
    let bytes = file.metadata().unwrap().len();
    // Each is a copy, charged to the run.
    let files = 300;
    let small = tempfile::tempfile().unwrap();
    std::os::unix::fs::FileExt::write_all_at(&small, b"content", 0).unwrap();
    let mut attack = Attack::shell(
        "ls a/b | wc -l; cat a/link a/b/299; ls -d empty; readlink a/link
         echo more >> a/b/5; rm a/b/6; mkdir a/c; echo new > a/c/new; ln -s x other",
    );
    attack.job.working_copy = Some(Arc::new(Tree { file: small, files }));
    let (outcome, names) = attack
        .start_in(&own)
        .wait_and_look(&mut Quiet, None, |work, _| {
            let place = format!("/proc/self/fd/{}/a/b", std::os::fd::AsRawFd::as_raw_fd(&work));
            fs::read_dir(place).unwrap().count()
        })
        .unwrap();
    assert_eq!(text(&outcome), "300\ncontentcontentempty\nb/7\n");
    assert_eq!(names, files - 1);
    let changed: Vec<&str> = outcome.artifacts.iter().map(|a| a.path.as_str()).collect();
    assert_eq!(changed, ["a/b/5", "a/c/new"]);
    let skipped: Vec<&str> = outcome.skipped.iter().map(|s| s.path.as_str()).collect();
    assert_eq!(skipped, ["other"]);
    // One that does not fit is told by name.
    let mut attack = Attack::shell("true");
    attack.job.limits.disk = (bytes + bytes / 2).to_string().parse().unwrap();
    attack.job.working_copy = Some(Arc::new(Tree { file, files: 2 }));
    let refused = own.start(attack.job).unwrap_err();
    let Refusal::Invalid { what, .. } = &refused else { panic!("{refused}") };
    assert_eq!(what, "input `a/b/1`");
}

/// Jobs that fail on their way, each at another step.
fn failures() -> Vec<(&'static str, Attack)> {
    let directory = || {
        let mut attack = Attack::shell("true");
        attack.job.inputs.push(Input { name: "d".into(), file: File::open("/tmp").unwrap() });
        attack
    };
    let device = || {
        let mut attack = Attack::shell("true");
        attack.job.inputs.push(Input { name: "d".into(), file: File::open("/dev/zero").unwrap() });
        attack
    };
    let written_only = || {
        let mut attack = Attack::shell("true");
        let dir = tempfile::tempdir().unwrap();
        let file = File::create(dir.path().join("f")).unwrap();
        file.set_len(100).unwrap();
        attack.job.inputs.push(Input { name: "d".into(), file });
        attack
    };
    let many_strings: Vec<String> = (0..3000).map(|n| n.to_string()).collect();
    let many_strings: Vec<&str> = many_strings.iter().map(String::as_str).collect();
    let many_inputs =
        (0..200).fold(Attack::shell("true"), |attack, n| attack.input(&format!("f{n}"), b"x"));
    vec![
        ("no such program", Attack::program("/usr/bin/no-such-program", &["x"])),
        ("a program that is a directory", Attack::program("/usr", &["x"])),
        ("a program that is text", Attack::program("/etc/hostname", &["x"])),
        ("a program with a NUL", Attack::program("/bin/tr\0ue", &["x"])),
        ("an argument with a NUL", Attack::program("/bin/true", &["x", "a\0b"])),
        ("arguments that are too long", Attack::program("/bin/true", &["x", &"a".repeat(200_000)])),
        ("too many arguments", Attack::program("/bin/true", &many_strings)),
        ("an environment that is too large", Attack::shell("true").env("X", &"x".repeat(200_000))),
        (
            "an input that does not fit",
            Attack::shell("true")
                .input("big", &vec![0; 4 << 20])
                .limits(|l| l.disk = Bytes::mib(1)),
        ),
        (
            "more inputs than files",
            (0..60)
                .fold(Attack::shell("true"), |a, n| a.input(&format!("f{n}"), b"x"))
                .limits(|l| l.files = Count::of(20)),
        ),
        ("the same input twice", Attack::shell("true").input("a", b"x").input("a", b"y")),
        ("an input called ..", Attack::shell("true").input("..", b"x")),
        ("an input in another directory", Attack::shell("true").input("../etc/passwd", b"x")),
        ("an input without a name", Attack::shell("true").input("", b"x")),
        ("an input with a long name", Attack::shell("true").input(&"n".repeat(300), b"x")),
        ("too many inputs", many_inputs),
        ("an input that is a directory", directory()),
        ("an input that is a device", device()),
        ("an input that cannot be read", written_only()),
        ("a relative path that is shown", Attack::shell("true").shows("relative".as_ref())),
        ("the root that is shown", Attack::shell("true").shows("/".as_ref())),
        ("a path of dots that is shown", Attack::shell("true").shows("/usr/../root/x".as_ref())),
        (
            "a path below a file that is shown",
            Attack::shell("true").shows("/etc/hostname/x/y".as_ref()),
        ),
    ]
}

#[test]
fn xr_11_failed_setups_leave_nothing() {
    let _alone = alone();
    leaves_nothing(|own| {
        for round in 0..3 {
            for (what, attack) in failures() {
                let (result, took) = timed(|| {
                    own.start(attack.job).and_then(|running| running.wait(&mut Quiet, None))
                });
                match result {
                    Err(Refusal::Internal { doing, source }) => {
                        panic!("{what}: our own failure, {doing}: {source}")
                    }
                    Err(_) => {}
                    // Not every odd path is an error, but then it must run and end.
                    Ok(_) if what.contains("shown") => {}
                    Ok(outcome) => panic!("{what}: it was started: {outcome:?}"),
                }
                assert!(took < Duration::from_secs(5), "{what}: {took:?} in round {round}");
            }
        }
        let next = run(own, Attack::shell("echo fine"));
        assert_eq!(text(&next), "fine\n");
    });
}

#[test]
fn a_program_that_is_not_there_is_told_as_such() {
    let _alone = alone();
    let own = Sandbox::open(&settings()).unwrap();
    for path in ["/usr/bin/no-such-program", "/usr", "/etc/hostname"] {
        let started = own.start(Attack::program(path, &["x"]).job);
        let result = started.and_then(|running| running.wait(&mut Quiet, None));
        let Err(Refusal::NotRunnable { .. }) = result else { panic!("{path}: {result:?}") };
    }
}

#[test]
fn xr_11_a_tree_that_is_too_large() {
    let _alone = alone();
    // Others can write only where runs have places of their own.
    if !is_root_for("xr_11 tree") {
        return;
    }
    let canary = Canary::plant();
    for count in [130, 600] {
        leaves_nothing(|own| {
            let attack = (0..count).fold(Attack::shell("true"), |attack, n| {
                let dir = canary.dir.join(format!("{count}-{n}"));
                fs::create_dir(&dir).unwrap();
                attack.shows(&dir)
            });
            match own.start(attack.job) {
                Err(Refusal::Internal { doing, source }) => panic!("{count}: {doing}: {source}"),
                Err(_) => {}
                Ok(_) => panic!("{count} paths were shown"),
            }
        });
    }
}

/// Memory of this process, in KiB.
fn resident() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn res_13_a_flood_of_output_does_not_grow_this_process() {
    let _alone = alone();
    let own = Sandbox::open(&settings()).unwrap();
    run(&own, Attack::shell("true"));
    let flood = "while True: os.write(1, b'A' * 65536); os.write(2, b'B' * 65536)";
    let attack = Attack::python(flood).limits(|limits| limits.output = Bytes::mib(4));
    let before = resident();
    let outcome = run(&own, attack.timeout(2000));
    let grown = resident().saturating_sub(before);
    let total = outcome.stdout.total + outcome.stderr.total;
    assert!(total > 64 << 20, "{total}");
    // Both streams, each at most twice what is kept of it.
    assert!(grown < 2 * 2 * 4 * 1024, "{grown} KiB more for {total} bytes");
}

#[test]
fn xr_12_many_runs_one_after_another() {
    let _alone = alone();
    let runs = soak(300);
    let before = kernel_counts();
    leaves_nothing(|own| {
        for _ in 0..20 {
            run(own, Attack::shell("echo warm > /tmp/x"));
        }
        let begun = resident();
        for _ in 0..runs {
            let outcome = run(own, Attack::shell("echo x > /tmp/x; echo y > /work/y; exit 0"));
            assert_eq!(outcome.status, Status::Success);
        }
        let grown = resident().saturating_sub(begun);
        assert!(grown < 5 * 1024, "{grown} KiB more after {runs} runs");
    });
    let most = runs as u64 / 2;
    let few = || kernel_counts().iter().all(|(name, now)| *now < before[name] + most.max(100));
    assert!(
        holds_within(Duration::from_secs(15), few),
        "{before:?} and then {:?}",
        kernel_counts()
    );
}

#[test]
fn xr_12_64_at_once() {
    let _alone = alone();
    leaves_nothing(|own| {
        let rounds = soak(64).div_ceil(64);
        for _ in 0..rounds {
            std::thread::scope(|scope| {
                for n in 0..64 {
                    scope.spawn(move || {
                        let outcome = run(own, Attack::shell(&format!("sleep 0.2; echo {n}")));
                        assert_eq!(text(&outcome), format!("{n}\n"), "{outcome:?}");
                    });
                }
            });
        }
    });
}

/// Starts more than there is room for, and gives the refusals.
fn crowd(own: &Sandbox) -> Vec<Refusal> {
    let jobs = (0..110).map(|_| own.start(Attack::shell("sleep 20").job));
    let (started, refused): (Vec<_>, Vec<_>) = jobs.partition(Result::is_ok);
    assert!(started.len() >= 64, "{} of them: {:?}", started.len(), refused.first());
    refused.into_iter().filter_map(Result::err).collect()
}

#[test]
fn more_runs_than_there_is_room_for_are_refused() {
    let _alone = alone();
    leaves_nothing(|own| {
        assert!(!crowd(own).is_empty());
        let again =
            || own.start(Attack::shell("true").job).map(|r| r.wait(&mut Quiet, None)).is_ok();
        assert!(holds_within(Duration::from_secs(5), again));
    });
}

#[test]
fn a_run_too_many_is_refused_as_such() {
    let _alone = alone();
    let own = Sandbox::open(&settings()).unwrap();
    for refusal in crowd(&own) {
        assert!(!matches!(refusal, Refusal::Internal { .. }), "{refusal:?}");
    }
}

#[test]
fn runs_that_nobody_waits_for_end() {
    let _alone = alone();
    let token = token();
    leaves_nothing(|own| {
        for _ in 0..5 {
            let attack = Attack::python(&format!("import time\ntime.sleep(60) # {token}"));
            drop(attack.start_in(own));
        }
        let gone = || with_token(&token).is_empty();
        assert!(holds_within(Duration::from_secs(2), gone));
    });
}

/// Processes that a sandbox of this process has: the launcher's two, and what they started.
fn launchers() -> Vec<Process> {
    descendants(std::process::id())
}

#[test]
fn the_launcher_is_killed() {
    let _alone = alone();
    let token = token();
    for which in ["guard", "spawner"] {
        leaves_nothing(|own| {
            // Another run's cell waits ahead.
            for _ in 0..3 {
                run(own, Attack::shell("true"));
            }
            let code = format!(
                "
import time
for _ in range(5):
    if os.fork() == 0: os.setsid(); break
time.sleep(60) # {token}"
            );
            let running = Attack::python(&code).start_in(own);
            let waiting = std::thread::spawn(move || timed(|| running.wait(&mut Quiet, None)));
            assert!(holds_within(Duration::from_secs(5), || with_token(&token).len() == 6));
            let all = launchers();
            let guard = all.iter().find(|p| p.parent == std::process::id()).unwrap();
            let spawner = all.iter().find(|p| p.parent == guard.pid).unwrap();
            let victim = if which == "guard" { guard } else { spawner };
            kill(victim.pid);
            let gone = || with_token(&token).is_empty();
            assert!(
                holds_within(Duration::from_secs(2), gone),
                "{which}: {:?}",
                with_token(&token)
            );
            let (outcome, _) = waiting.join().unwrap();
            // It did not end by itself, and nobody claims so.
            assert!(
                outcome.is_err_and(|refusal| matches!(refusal, Refusal::Internal { .. })),
                "{which}"
            );
        });
    }
}

#[test]
fn a_sandbox_outlives_its_launcher() {
    let _alone = alone();
    let own = Sandbox::open(&settings()).unwrap();
    run(&own, Attack::shell("true"));
    let guard = launchers().into_iter().find(|p| p.parent == std::process::id()).unwrap();
    kill(guard.pid);
    let again = || own.start(Attack::shell("true").job).is_ok();
    assert!(holds_within(Duration::from_secs(3), again));
}

#[test]
fn the_init_of_a_run_is_killed_from_outside() {
    let _alone = alone();
    let token = token();
    leaves_nothing(|own| {
        let attack = Attack::python(&format!("import time\ntime.sleep(60) # {token}"));
        let running = attack.start_in(own);
        let waiting = std::thread::spawn(move || running.wait(&mut Quiet, None).unwrap());
        assert!(holds_within(Duration::from_secs(5), || !with_token(&token).is_empty()));
        let program = with_token(&token).remove(0);
        kill(program.parent);
        let outcome = waiting.join().unwrap();
        assert_eq!((outcome.status, outcome.exit), (Status::Killed, None), "{outcome:?}");
        assert_eq!(text(&run(own, Attack::shell("echo on"))), "on\n");
    });
}

#[test]
fn hotcell_itself_is_killed() {
    let _alone = alone();
    let token = token();
    let before = Snapshot::take();
    for round in 0..soak(3).min(50) {
        let code = format!(
            "
import time
for _ in range(20):
    if os.fork() == 0: os.setsid(); break
time.sleep(60) # {token}"
        );
        let mut victim = Victim::start(&code, &[]);
        // At different moments of its life.
        let wanted = [1, 21, 8][round % 3];
        assert!(holds_within(Duration::from_secs(10), || with_token(&token).len() >= wanted));
        victim.process.kill().unwrap();
        victim.process.wait().unwrap();
        let gone = || with_token(&token).is_empty();
        assert!(holds_within(Duration::from_secs(2), gone), "{:?}", with_token(&token));
    }
    drop(Sandbox::open(&settings()).unwrap());
    let left = before.left_over();
    assert!(left.is_empty(), "left behind:\n{}", left.join("\n"));
}

#[test]
fn hotcell_itself_is_killed_while_a_run_is_paused() {
    let _alone = alone();
    if !is_root_for("killed while paused") {
        return;
    }
    // A frozen process does not die of a signal; whoever cleans up must thaw it first.
    let token = token();
    let before = Snapshot::take();
    let mut victim = Victim::start(&format!("import time\ntime.sleep(60) # {token}"), &[]);
    assert!(holds_within(Duration::from_secs(5), || !with_token(&token).is_empty()));
    let process = with_token(&token).remove(0);
    let cgroup = process.file("cgroup");
    let path_of = |hierarchy: &str| {
        let line =
            cgroup.lines().find(|line| line.contains(hierarchy) && line.contains("hotcell-"));
        line.and_then(|line| line.splitn(3, ':').nth(2)).map(str::to_owned)
    };
    let switches = [
        (":freezer:", "/sys/fs/cgroup/freezer", "freezer.state", "FROZEN"),
        ("0::", "/sys/fs/cgroup/unified", "cgroup.freeze", "1"),
        ("0::", "/sys/fs/cgroup", "cgroup.freeze", "1"),
    ];
    let frozen = switches.iter().any(|(hierarchy, root, file, word)| {
        path_of(hierarchy)
            .is_some_and(|path| fs::write(format!("{root}{path}/{file}"), word).is_ok())
    });
    if !frozen {
        return skip("killed while paused", "there is no freezer here");
    }
    victim.process.kill().unwrap();
    victim.process.wait().unwrap();
    let gone = || with_token(&token).is_empty();
    assert!(holds_within(Duration::from_secs(4), gone), "{:?}", with_token(&token));
    drop(victim);
    drop(Sandbox::open(&settings()).unwrap());
    let left = before.left_over();
    assert!(left.is_empty(), "left behind:\n{}", left.join("\n"));
}

#[test]
fn fs_17_the_hosts_mounts_are_the_same_during_a_run() {
    let _alone = alone();
    let mounts = || fs::read_to_string("/proc/self/mountinfo").unwrap();
    let before = mounts();
    let own = Sandbox::open(&settings()).unwrap();
    let token = token();
    let running = Attack::python(&format!("import time\ntime.sleep(30) # {token}")).start_in(&own);
    assert!(holds_within(Duration::from_secs(5), || !with_token(&token).is_empty()));
    assert_eq!(mounts(), before);
    drop(running);
    drop(own);
    assert_eq!(mounts(), before);
}

/// By its number, which belongs to this process's own child or grandchild.
fn kill(pid: u32) {
    let own = descendants(std::process::id());
    assert!(own.iter().any(|p| p.pid == pid), "{pid} is not ours");
    assert!(Command::new("kill").args(["-9", &pid.to_string()]).status().unwrap().success());
}
