//! XR-*: what one run can leave for, or see of, another. What is left on the host is in `tests/host`.
//!
//! Not here, because no sandbox is what they are about: XR-05 (workspaces that are used again:
//! `xr_05_what_starts_itself_is_refused_however_it_is_named` in crates/engine/tests/hostile.rs), XR-07 (the artifact
//! ledger: `xr_07_versions_count_up_for_each_name_and_tenant` in crates/ledger/tests/ledger/rows.rs).

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::Command;
use std::time::Duration;

use hotcell_tests::{
    Answers, Attack, Canary, Quiet, RUN_IDS, SHARED_PLACES, holds_within, hole, is_root_for, text,
    token, with_token,
};
use hotcell_types::Status;

const PLACES: &str =
    "['/work', '/tmp', '/dev/shm', '/var/tmp', os.environ['HOME'], '/.cell/tmp', '/.cell/shm']";

#[test]
fn xr_01_files_left_behind() {
    let mark = token();
    let leave = format!(
        "for dir in {PLACES}:\n    open(dir + '/{mark}', 'w').write('{mark}'); os.makedirs(dir + '/.cache/{mark}', exist_ok=True)"
    );
    let look = format!(
        r"
import glob
found = []
for top, dirs, files in os.walk('/'):
    if top == '/': dirs[:] = [d for d in dirs if d not in ('proc', 'usr')]
    found += [os.path.join(top, n) for n in dirs + files if '{mark}' in n]
say('found', found)
"
    );
    // The control: in the same run it is found.
    let same = Attack::python(&format!("{leave}\n{look}")).answers();
    assert!(same.get("found").contains(&mark));
    for _ in 0..3 {
        assert_eq!(Attack::python(&leave).run().status, Status::Success);
        Attack::python(&look).answers().is("found", "[]");
    }
    for place in SHARED_PLACES {
        let left = fs::read_dir(place).into_iter().flatten().flatten();
        let left = left.filter(|entry| entry.file_name().to_string_lossy().contains(&mark));
        assert_eq!(left.count(), 0, "{place}");
    }
}

#[test]
fn xr_02_hidden_persistence() {
    let code = r"
import socket, subprocess
for path in ['/etc/cron.d/x', '/var/spool/cron/crontabs/x', '/etc/profile.d/x', '/root/.bashrc', '/etc/ld.so.preload',
    '/etc/systemd/system/x.service', '/run/systemd/transient/x', '/usr/local/bin/python3', '/etc/udev/rules.d/x', '/lib/udev/rules.d/x']:
    say(path, attempt(os.open, path, os.O_WRONLY | os.O_CREAT))
for path in ['/run/dbus/system_bus_socket', '/run/systemd/private', '/run/user/0/bus', '/run/udev/control']:
    s = socket.socket(socket.AF_UNIX)
    say(path, attempt(s.connect, path))
";
    Attack::python(code).answers().all("ENOENT|EROFS|EACCES");
    if !is_root_for("xr_02 control") {
        return;
    }
    // Without the root, Landlock and the id, a file of the host is written.
    let canary = Canary::plant();
    let code = format!(
        "say('write', attempt(os.open, {:?}, os.O_WRONLY | os.O_CREAT))",
        canary.at_host("cron")
    );
    let attack = || Attack::python(&code).without_root();
    attack().without(hole::LANDLOCK).answers().is("write", "EACCES");
    attack().without_own_id().answers().is("write", "EACCES");
    attack().without(hole::LANDLOCK).without_own_id().answers().is("write", "ok");
    assert!(canary.dir.join("cron").exists());
}

/// Makes or looks for a segment of shared memory, a semaphore and a queue under one key.
fn system_v(key: u32, make: bool) -> String {
    let flags = if make { "0o1666" } else { "0" };
    format!(
        "
say('shm', call(29, {key}, 4096, {flags}))
say('sem', call(64, {key}, 1, {flags}))
say('msg', call(68, {key}, {flags}))
"
    )
}

#[test]
fn xr_03_ipc_leftovers() {
    let key = 0x0b0b_0000 + std::process::id() % 0xffff;
    // The filter alone.
    for layers in [0, hole::IPC] {
        Attack::python(&system_v(key, true)).without(layers).answers().all("ENOSYS");
    }
    // The namespace alone: made, and gone.
    let free =
        |make, layers| Attack::python(&system_v(key, make)).without_seccomp().without(layers);
    free(true, 0).answers().all("ok");
    free(false, 0).answers().all("ENOENT");
    let listed = || fs::read_to_string("/proc/sysvipc/shm").unwrap();
    let before = listed();
    assert!(!before.lines().any(|line| line.split_whitespace().next() == Some(&key.to_string())));
    // Neither: it outlives its maker, and the next one finds it.
    free(true, hole::IPC).answers().all("ok");
    free(false, hole::IPC).answers().all("ok");
    let key = key.to_string();
    assert!(listed().lines().any(|line| line.split_whitespace().next() == Some(&key)));
    for kind in ["-M", "-S", "-Q"] {
        assert!(Command::new("ipcrm").args([kind, &key]).status().unwrap().success());
    }
}

#[test]
fn xr_03_posix_queues_and_abstract_sockets() {
    let name = token();
    let code = format!(
        "
import socket
say('queue', call(240, b'{name}', 0o102, 0o666, 0))
s = socket.socket(socket.AF_UNIX)
say('connect', attempt(s.connect, '\\0{name}'))
"
    );
    let listen = format!(
        "
import socket, time
s = socket.socket(socket.AF_UNIX); s.bind('\\0{name}'); s.listen()
time.sleep(10) # {name}"
    );
    let running = Attack::executed(&listen).start().unwrap();
    let handle = running.handle();
    let waiting = std::thread::spawn(move || running.wait(&mut Quiet, None).unwrap());
    assert!(holds_within(Duration::from_secs(5), || !with_token(&name).is_empty()));
    std::thread::sleep(Duration::from_millis(300));
    Attack::python(&code).answers().are(&[("queue", "ENOSYS"), ("connect", "ECONNREFUSED|EPERM")]);
    handle.cancel();
    waiting.join().unwrap();
}

#[test]
fn xr_08_ids_are_not_reused_while_anything_has_them() {
    if !is_root_for("xr_08") {
        return;
    }
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..20 {
        let outcome = Attack::shell("cat /proc/self/uid_map").run();
        let said = text(&outcome);
        let outside = said.split_whitespace().nth(1).unwrap().to_owned();
        assert!(seen.insert(outside), "an id came back at once: {seen:?}");
    }
    // A file that a run's id owns is found nowhere, so that the next holder inherits nothing.
    for entry in SHARED_PLACES.iter().flat_map(fs::read_dir).flatten().flatten() {
        let ours = entry.metadata().is_ok_and(|found| RUN_IDS.contains(&found.uid()));
        assert!(!ours, "{}", entry.path().display());
    }
}

#[test]
fn xr_10_concurrent_neighbours() {
    let secret = token();
    let code = format!(
        "
import time
for dir in {PLACES}: open(dir + '/neighbour', 'w').write('{secret}')
os.write(1, b'x')
time.sleep(20) # {secret}"
    );
    let running = Attack::executed(&code).start().unwrap();
    let handle = running.handle();
    let waiting = std::thread::spawn(move || running.wait(&mut Quiet, None).unwrap());
    assert!(holds_within(Duration::from_secs(5), || !with_token(&secret).is_empty()));
    std::thread::sleep(Duration::from_millis(300));
    let attack = format!(
        r"
import glob
for dir in {PLACES}: say(dir, read(dir + '/neighbour'))
for pid in set(range(1, 200)) - {{os.getpid()}}:
    for path in ('root/work/neighbour', 'cwd/neighbour', 'fd/1', 'environ', 'cmdline'):
        answer = read(f'/proc/{{pid}}/{{path}}')
        if '{mark}' in answer and pid != 1: say(f'{{pid}} {{path}}', 'seen')
say('others', [p for p in os.listdir('/proc') if p.isdigit() and int(p) not in (1, os.getpid())])
say('shared', glob.glob('/*/neighbour') + glob.glob('/*/*/neighbour'))
",
        mark = &secret[..secret.len() - 1]
    );
    let outcome = Attack::python(&attack).run();
    assert!(!text(&outcome).contains(&secret), "{}", text(&outcome));
    let answers = Answers::of(&outcome);
    answers.are(&[("others", "[]"), ("shared", "[]"), ("/work", "ENOENT"), ("/tmp", "ENOENT")]);
    // The control, from where the tree is the host's: a neighbour's /work by its pid. The id and the
    // namespaces of users each stand before it, so that only root outside can look.
    let process = with_token(&secret).remove(0);
    if is_root_for("xr_10 control") {
        let seen =
            fs::read_to_string(format!("/proc/{}/root/work/neighbour", process.pid)).unwrap();
        assert_eq!(seen, secret);
    }
    handle.cancel();
    waiting.join().unwrap();
}

#[test]
#[ignore = "known limit, in SECURITY.md: locks on shared files are seen by neighbours and by the host"]
fn xr_10_locks_on_what_all_runs_share() {
    let hold = "
import fcntl, time
f = open('/usr/bin/env'); fcntl.flock(f, fcntl.LOCK_EX)
os.write(1, b'x'); time.sleep(10) # hotcell-lock";
    let running = Attack::python(hold).start().unwrap();
    let handle = running.handle();
    let waiting = std::thread::spawn(move || running.wait(&mut Quiet, None).unwrap());
    assert!(holds_within(Duration::from_secs(5), || !with_token("# hotcell-lock").is_empty()));
    std::thread::sleep(Duration::from_millis(300));
    let code = "import fcntl\nsay('lock', attempt(fcntl.flock, open('/usr/bin/env'), fcntl.LOCK_EX | fcntl.LOCK_NB))";
    let answers = Attack::python(code).answers();
    handle.cancel();
    waiting.join().unwrap();
    answers.is("lock", "ok");
}

#[test]
fn xr_13_cells_made_ahead_have_run_nothing() {
    // Cells wait for one job each. What a run did to its own is not there for the next, however alike
    // the jobs are.
    let code = r"
import glob
say('left', sorted(set(os.listdir('/work')) - {'main.py'}) + sorted(os.listdir('/tmp')) + sorted(os.listdir('/dev/shm')))
say('pids', sorted(p for p in os.listdir('/proc') if p.isdigit()))
say('self', os.getpid())
for dir in ('/work', '/tmp', '/dev/shm'): open(dir + '/dirt', 'w').write('x')
os.chmod('/tmp', 0)
libc.prctl(36, 1)
";
    for _ in 0..12 {
        let answers = Attack::python(code).answers();
        answers.are(&[("left", "[]"), ("pids", "['1', '2']"), ("self", "2")]);
    }
}
