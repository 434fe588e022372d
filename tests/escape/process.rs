//! PN-*: other processes, namespaces, identity, terminals, and the end of a run.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use hotcell_sandbox::Sandbox;
use hotcell_tests::{
    Answers, Attack, Canary, GRACE, Process, Quiet, compile, holds_within, hole, is_root_for,
    sandbox, settings, skip, soak, text, timed, token, with_token,
};
use hotcell_types::{Count, Exit, Level, Limit, Status};

use crate::victim::{Victim, run_behind};

/// A neighbour that waits until it is killed, under a name that can be looked for.
fn neighbour(name: &str) -> hotcell_sandbox::Running {
    let code = format!(
        "libc.prctl(15, {name:?}.encode()); os.write(1, b'x')\nimport time\ntime.sleep(25)"
    );
    Attack::python(&code).env("SECRET", name).start().unwrap()
}

/// Runs `attack` while a neighbour is there, and says whether the neighbour was alive afterwards.
fn beside_a_neighbour(attack: impl FnOnce(&str) -> Answers) -> (Answers, bool) {
    let name = token()[..15].to_owned();
    let running = neighbour(&name);
    let handle = running.handle();
    let waiting = std::thread::spawn(move || running.wait(&mut Quiet, None).unwrap());
    let there = || hotcell_tests::processes().iter().any(|p| p.name == name);
    assert!(holds_within(Duration::from_secs(5), there), "the neighbour runs");
    let answers = attack(&name);
    let alive = there();
    handle.cancel();
    let outcome = waiting.join().unwrap();
    assert!(!alive || outcome.status == Status::Cancelled, "{outcome:?}");
    (answers, alive)
}

/// Looks for a process by its name, reads what it has and kills it.
fn hunt(name: &str) -> String {
    format!(
        r"
pids = [int(p) for p in os.listdir('/proc') if p.isdigit()]
say('pids', len(pids))
found = [p for p in pids if read(f'/proc/{{p}}/comm').strip('|') == {name:?}]
say('found', len(found))
for p in found:
    say('environ', read(f'/proc/{{p}}/environ').replace('\0', ' ').find({name:?}) >= 0)
    say('kill', attempt(os.kill, p, 9))
"
    )
}

#[test]
fn pn_01_other_processes_are_neither_seen_nor_killed() {
    let code = |name: &str| {
        format!(
            r"
{}
say('parent', os.getppid())
child = os.fork()
if child == 0:
    import signal
    os.kill(-1, 9)
    os._exit(0)
os.waitpid(child, 0)
say('killed all', 'and went on')
",
            hunt(name)
        )
    };
    let (answers, alive) = beside_a_neighbour(|name| {
        let outcome = Attack::python(&code(name)).run();
        // kill(-1) takes the attacker itself along.
        assert_eq!(outcome.exit, Some(Exit::Signal(9)));
        Answers::of(&outcome)
    });
    assert!(alive);
    answers.are(&[("pids", "2"), ("found", "0"), ("parent", "1")]);
}

#[test]
fn pn_01_pn_02_control_the_pid_namespace_the_id_and_landlock() {
    if !is_root_for("pn_01 control") {
        return;
    }
    let attack = |layers: u32, own_id: bool| {
        beside_a_neighbour(|name| {
            let attack = Attack::python(&hunt(name)).without(hole::PID | layers);
            if own_id { attack.without_own_id().answers() } else { attack.answers() }
        })
    };
    // The pid namespace alone hides that there is anybody.
    let (answers, alive) = attack(0, false);
    answers.are(&[("found", "1"), ("environ", "False"), ("kill", "EPERM")]);
    assert!(alive);
    // Then the id and Landlock each keep them apart.
    let (answers, alive) = attack(hole::LANDLOCK, false);
    answers.are(&[("found", "1"), ("environ", "False"), ("kill", "EPERM")]);
    assert!(alive);
    // The same id, and nothing between them. In a sandbox of their own: when the attacker ends, its
    // init kills whatever it can reach.
    let own = Sandbox::open(&settings()).unwrap();
    let name = token()[..15].to_owned();
    let code = format!("libc.prctl(15, {name:?}.encode())\nimport time\ntime.sleep(25)");
    let running = Attack::python(&code).without_own_id().start_in(&own);
    let waiting = std::thread::spawn(move || running.wait(&mut Quiet, None).unwrap());
    let there = || hotcell_tests::processes().iter().any(|p| p.name == name);
    assert!(holds_within(Duration::from_secs(5), there));
    let attack = |layers: u32| {
        let attack = Attack::python(&hunt(&name)).without(hole::PID | layers).without_own_id();
        Answers::of(&attack.start_in(&own).wait(&mut Quiet, None).unwrap())
    };
    attack(0).are(&[("found", "1"), ("kill", "EPERM")]);
    assert!(there());
    attack(hole::LANDLOCK).are(&[("found", "1"), ("kill", "ok")]);
    let outcome = waiting.join().unwrap();
    assert_eq!(outcome.status, Status::Killed, "{outcome:?}");
}

#[test]
fn pn_02_the_supervisor_s_secrets() {
    let secret = token();
    let code = r"
import glob
seen = dict(os.environ)
say('environment', sorted(seen))
text = repr(seen)
for path in glob.glob('/proc/[0-9]*/*') + glob.glob('/proc/[0-9]*/task/*/*'):
    if path.rsplit('/', 1)[1] in ('environ', 'cmdline', 'auxv', 'maps', 'comm', 'stat', 'cgroup', 'mountinfo'):
        text += read(path)
os.write(1, text.encode('utf-8', 'backslashreplace'))
";
    let victim = Victim::start(code, &[("HOTCELL_TEST_SECRET", &secret)]);
    let said = victim.finish();
    assert!(said.contains("status=Success"), "{said}");
    assert!(!said.contains(&secret), "the supervisor's environment is seen: {said}");
    // The control: what the job itself is given is found by the same search.
    let given = Attack::python(code).env("GIVEN", &secret).run();
    assert!(text(&given).contains(&secret));
    // (LC_CTYPE is the interpreter's own doing.)
    assert!(
        text(&given).contains("environment=['GIVEN', 'HOME', 'LC_CTYPE', 'PATH']"),
        "{}",
        text(&given)
    );
}

const ATTACH: &str = r"
import struct
say('attach', call(101, 16, 1, 0, 0))
say('seize', call(101, 0x4206, 1, 0, 0))
buffer = ctypes.create_string_buffer(8)
iov = struct.pack('<QQ', ctypes.addressof(buffer), 8)
remote = struct.pack('<QQ', 0x400000, 8)
say('readv', call(310, 1, iov, 1, remote, 1, 0))
say('writev', call(311, 1, iov, 1, remote, 1, 0))
say('kcmp', call(312, 1, os.getpid(), 0, 0, 0))
say('getfd', call(438, 0, 0, 0))
for name in ['mem', 'environ', 'maps', 'auxv', 'stack', 'syscall', 'io']:
    say(name, attempt(os.open, '/proc/1/' + name, os.O_RDONLY))
say('fd', attempt(os.listdir, '/proc/1/fd'))
";

#[test]
fn pn_03_attaching_to_the_init() {
    Attack::python(ATTACH).answers().all("EPERM|EACCES|ENOENT");
    // The init's opacity alone stops it when the filter does not.
    let opaque = Attack::python(ATTACH).without_seccomp().answers();
    opaque.are(&[
        ("attach", "EPERM"),
        ("readv", "EPERM"),
        ("kcmp", "EPERM"),
        ("environ", "EACCES"),
    ]);
    if !is_root_for("pn_03 control") {
        return;
    }
    // A change of id makes a process opaque too, and a Landlock domain above one's own is out of reach,
    // so that this needs all the holes.
    let control = Attack::python(ATTACH)
        .without_seccomp()
        .without_own_id()
        .without(hole::DUMPABLE | hole::LANDLOCK)
        .timeout(2000)
        .answers();
    control.are(&[("attach", "ok"), ("mem", "ok"), ("environ", "ok"), ("fd", "ok")]);
}

#[test]
fn pn_04_daemons_do_not_survive() {
    let token = token();
    let code = format!(
        r"
import time
for _ in range(50):
    if os.fork() == 0:
        os.setsid()
        if os.fork() != 0: os._exit(0)
        os.closerange(0, 256)
        os.execv('/usr/bin/python3', ['python3', '-I', '-S', '-c', 'import time; time.sleep(300)', {token:?}])
for _ in range(50): os.wait()
time.sleep(1)
say('started', sum(read(f'/proc/{{p}}/cmdline').find({token:?}) >= 0 for p in os.listdir('/proc') if p.isdigit()))
"
    );
    // Twice as many as there will be: those in between must not be refused.
    let running = Attack::python(&code).limits(|l| l.pids = Count::of(250)).start().unwrap();
    let waiting = std::thread::spawn(move || running.wait(&mut Quiet, None).unwrap());
    // The control: while the run lasts they are there.
    let seen = holds_within(Duration::from_secs(15), || with_token(&token).len() >= 50);
    assert!(seen, "{:?}", with_token(&token).len());
    let outcome = waiting.join().unwrap();
    assert_eq!(outcome.status, Status::Success, "{outcome:?}");
    // Already gone, not going: the outcome says that the run has ended as a whole.
    assert_eq!(with_token(&token), []);
}

#[test]
fn pn_05_a_background_child_that_keeps_the_pipe_open() {
    let attack = Attack::shell("(sleep 300 &) ; echo done");
    let (outcome, took) = timed(|| attack.run());
    assert_eq!(text(&outcome), "done\n");
    assert_eq!(outcome.status, Status::Success);
    assert!(took < Duration::from_secs(2), "{took:?}");
}

/// Programs that do not want to end.
const STUBBORN: &[(&str, &str)] = &[
    (
        "ignores every signal",
        "
import signal
for s in range(1, 65):
    try: signal.signal(s, signal.SIG_IGN)
    except (OSError, ValueError): pass
signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))
while True: pass
",
    ),
    (
        "stops itself and its children",
        "
import signal
for _ in range(5):
    if os.fork() == 0: break
os.kill(os.getpid(), signal.SIGSTOP)
while True: pass
",
    ),
    (
        "stops on terminal output",
        "import signal\nos.kill(0, signal.SIGTTOU)\nos.kill(0, signal.SIGTTIN)\nsignal.pause()",
    ),
    ("waits for nothing", "import signal\nwhile True: signal.pause()"),
    (
        "has a child that it traces no more",
        "
for _ in range(20):
    if os.fork() == 0:
        os.setsid()
        import signal
        signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))
        while True: signal.sigtimedwait([], 1000)
while True: os.wait()
",
    ),
];

#[test]
fn pn_06_pn_18_whatever_a_program_does_with_signals_it_ends_at_the_deadline() {
    const TIMEOUT: u32 = 700;
    for (what, code) in STUBBORN {
        let (outcome, took) = timed(|| Attack::python(code).timeout(TIMEOUT).run());
        assert_eq!(
            (outcome.status, outcome.limit),
            (Status::Timeout, Some(Limit::Timeout)),
            "{what}"
        );
        let most = Duration::from_millis(TIMEOUT.into()) + GRACE;
        assert!(took >= Duration::from_millis(TIMEOUT.into()) && took < most, "{what}: {took:?}");
    }
}

#[test]
fn pn_18_a_paused_run_ends_when_it_is_cancelled() {
    if sandbox().level() < Level::User {
        return skip("pn_18 pause", "there is no cgroup here");
    }
    let running = Attack::python("import time\ntime.sleep(60)").start().unwrap();
    let handle = running.handle();
    let waiting = std::thread::spawn(move || running.wait(&mut Quiet, None).unwrap());
    handle.pause().unwrap();
    std::thread::sleep(Duration::from_millis(300));
    let (outcome, took) = timed(|| {
        handle.cancel();
        waiting.join().unwrap()
    });
    assert_eq!(outcome.status, Status::Cancelled);
    assert!(took < GRACE, "{took:?}");
}

#[test]
fn pn_07_zombies() {
    let code = r"
import signal
# Never waited for by their parent, which dies at once: the init's to reap.
for round in range(150):
    first = os.fork()
    if first == 0:
        for _ in range(20):
            if os.fork() == 0: os._exit(0)
        os._exit(0)
    os.waitpid(first, 0)
import time
for _ in range(100):
    left = sum(p.isdigit() for p in os.listdir('/proc'))
    if left == 2: break
    time.sleep(0.05)
say('left', left)
say('kill init', attempt(os.kill, 1, 9))
say('stop init', attempt(os.kill, 1, 19))
child = os.fork()
if child == 0: os._exit(5)
say('still forks', os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
";
    let outcome = Attack::python(code).run();
    assert_eq!(outcome.status, Status::Success, "{outcome:?}");
    // A signal to the init is accepted and has no effect.
    Answers::of(&outcome).are(&[("left", "2"), ("still forks", "5")]);
    let ours = hotcell_tests::descendants(std::process::id());
    let zombies: Vec<&Process> =
        ours.iter().filter(|p| p.state == 'Z' && p.name == "python3").collect();
    assert!(zombies.is_empty(), "{zombies:?}");
}

const NAMESPACES: &str = r"
flags = {'user': 0x10000000, 'mount': 0x20000, 'net': 0x40000000, 'pid': 0x20000000,
    'ipc': 0x08000000, 'uts': 0x04000000, 'cgroup': 0x02000000, 'time': 0x80}
def child(f):
    read_end, write_end = os.pipe()
    if os.fork() == 0: os.write(write_end, f().encode()); os._exit(0)
    return os.read(read_end, 64).decode()
def clone(flag):
    parent = os.getpid()
    answer = call(56, flag | 17, 0, 0, 0, 0)
    if os.getpid() != parent: os._exit(0)
    return answer
for name, flag in flags.items():
    together = flag if name == 'user' else flag | flags['user']
    say('unshare ' + name, child(lambda: call(272, together)))
    if name != 'time': say('clone ' + name, child(lambda: clone(together)))
    say('alone ' + name, child(lambda: call(272, flag)))
";

#[test]
fn pn_08_nested_namespaces() {
    let outcome = Attack::python(NAMESPACES).run();
    Answers::of(&outcome).all("EPERM");
    let named: Vec<_> = outcome.blocked_syscalls.iter().filter_map(|b| b.name.as_deref()).collect();
    assert_eq!(named, ["unshare", "clone"], "{outcome:?}");
    // The filter alone: without it every namespace can be had, and with it root's powers over them.
    let control = Attack::python(NAMESPACES).without_seccomp().answers();
    for name in ["user", "mount", "net", "pid", "ipc", "uts", "cgroup"] {
        control.are(&[(&format!("unshare {name}"), "ok"), (&format!("clone {name}"), "ok")]);
    }
}

const CLONE3: &str = r"
import struct
def clone3(flags):
    parent = os.getpid()
    args = struct.pack('<11Q', flags, 0, 0, 0, 17, 0, 0, 0, 0, 0, 0)
    answer = call(435, args, len(args))
    if os.getpid() != parent: os._exit(0)
    return answer
say('plain', clone3(0))
say('user', clone3(0x10000000))
";

#[test]
fn pn_09_clone3_hides_its_flags() {
    Attack::python(CLONE3).answers().are(&[("plain", "ENOSYS"), ("user", "ENOSYS")]);
    let control = Attack::python(CLONE3).without_seccomp().answers();
    control.are(&[("plain", "ok"), ("user", "ok")]);
    // Threads go on without it.
    let threads = "
import threading
done = []
threads = [threading.Thread(target=lambda: done.append(1)) for _ in range(20)]
for t in threads: t.start()
for t in threads: t.join()
say('threads', len(done))
";
    Attack::python(threads).answers().is("threads", "20");
    if Path::new("/usr/bin/node").exists() {
        let code =
            "new (require('worker_threads').Worker)('console.log(\"worker\")', {eval: true})";
        let node = Attack::program("/usr/bin/node", &["node", "-e", code]).run();
        assert_eq!(text(&node), "worker\n", "{node:?}");
    } else {
        skip("pn_09 node", "there is no /usr/bin/node");
    }
}

const JOIN: &str = r"
import struct
for name in ['user', 'mnt', 'net', 'pid']:
    for pid in ['self', '1']:
        try: fd = os.open(f'/proc/{pid}/ns/{name}', os.O_RDONLY)
        except OSError as e: say(f'setns {pid} {name}', name_of(e.errno)); continue
        say(f'setns {pid} {name}', call(308, fd, 0))
handle = struct.pack('<II', 128, 0) + bytes(128)
say('handle', call(303, -100, b'/usr', ctypes.create_string_buffer(handle), ctypes.create_string_buffer(8), 0))
say('by handle', call(304, 0, ctypes.create_string_buffer(struct.pack('<IIQ', 8, 1, 2)), 0))
say('pidfd', call(434, 1, 0))
say('pidfd guess', call(434, 4242, 0))
";

#[test]
fn pn_10_joining_other_contexts() {
    Attack::python(JOIN).answers().all("EPERM|ENOSYS|EACCES|ENOENT");
    // A handle is had, and a pidfd, but neither opens anything without a capability.
    let control = Attack::python(JOIN).without_seccomp().answers();
    control.are(&[("handle", "ok"), ("pidfd", "ok"), ("by handle", "EPERM|ESTALE|EINVAL")]);
}

/// Where the run's program is seen from outside.
fn outside(running_for: &str) -> Option<Process> {
    let mut found = None;
    holds_within(Duration::from_secs(5), || {
        found = with_token(running_for).into_iter().next();
        found.is_some()
    });
    found
}

fn identity(own_id: bool) -> (Vec<String>, String) {
    let attacks = [token(), token()];
    let mut uids = Vec::new();
    let mut groups = String::new();
    let mut waits = Vec::new();
    for token in &attacks {
        let attack = Attack::executed(&format!("import time\ntime.sleep(20) # {token}"));
        let attack = if own_id { attack.without_own_id() } else { attack };
        let running = attack.start().unwrap();
        let handle = running.handle();
        waits.push((handle, std::thread::spawn(move || running.wait(&mut Quiet, None).unwrap())));
    }
    for token in &attacks {
        let process = outside(token).expect("the program is there");
        uids.push(process.status("Uid:"));
        groups += &process.status("Groups:");
    }
    for (handle, wait) in waits {
        handle.cancel();
        wait.join().unwrap();
    }
    (uids, groups)
}

#[test]
fn pn_11_identity() {
    let code = r"
say('ids', (os.getresuid(), os.getresgid(), os.getgroups()))
say('setgroups', attempt(os.setgroups, [0]))
say('setuid', attempt(os.setuid, 0))
say('setgid', attempt(os.setgid, 0))
say('overflow', attempt(os.setuid, 65534))
";
    let answers = Attack::python(code).answers();
    answers.is("ids", "((1000, 1000, 1000), (1000, 1000, 1000), [])");
    answers.are(&[("setgroups", "EPERM|EINVAL"), ("setuid", "EINVAL"), ("setgid", "EINVAL")]);
    answers.is("overflow", "EINVAL|EPERM");
    if !is_root_for("pn_11 outside") {
        return;
    }
    let (uids, groups) = identity(false);
    assert_ne!(uids[0], uids[1]);
    for uid in &uids {
        let ids: Vec<u32> = uid.split_whitespace().map(|id| id.parse().unwrap()).collect();
        assert!(ids.iter().all(|&id| id >= 0x7100_0000 && id == ids[0]), "{uid}");
    }
    assert_eq!(groups, "");
    // The layer alone: without an id of its own it is ours.
    assert_eq!(identity(true).0, ["0\t0\t0\t0", "0\t0\t0\t0"]);
}

#[test]
fn pn_12_capabilities_and_privileges_of_every_task() {
    let code = r"
import glob, threading, time
for _ in range(3): threading.Thread(target=time.sleep, args=(1,), daemon=True).start()
if os.fork() == 0: time.sleep(1); os._exit(0)
want = {'CapInh:': '0' * 16, 'CapPrm:': '0' * 16, 'CapEff:': '0' * 16, 'CapBnd:': '0' * 16,
    'CapAmb:': '0' * 16, 'NoNewPrivs:': '1', 'Seccomp:': '2', 'Groups:': ''}
tasks = glob.glob('/proc/[0-9]*/task/*/status')
say('tasks', len(tasks))
for name, value in want.items():
    seen = {field(read(task), name) for task in tasks if not task.startswith('/proc/1/')}
    say(name, 'ok' if seen == {value} else seen)
";
    let answers = Attack::python(code).answers();
    assert!(answers.number("tasks") >= 5);
    let names = ["CapInh:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:", "NoNewPrivs:", "Seccomp:"];
    for name in names {
        answers.is(name, "ok");
    }
    let control = Attack::python(code).without(hole::CAPABILITIES | hole::NO_NEW_PRIVS).answers();
    assert_ne!(control.get("CapBnd:"), "ok");
    control.is("NoNewPrivs:", "{'0'}");
}

#[test]
fn pn_13_set_uid_helpers() {
    let code = r"
import glob, subprocess
helpers = [p for d in ('/usr/bin', '/usr/sbin', '/usr/lib') for p in glob.glob(d + '/*') + glob.glob(d + '/*/*')
    if os.path.isfile(p) and os.stat(p).st_mode & 0o6000]
say('helpers', len(helpers))
for path in helpers:
    open('try.py', 'w').write('')
    done = subprocess.Popen([path, '--help'], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    status = read(f'/proc/{done.pid}/status')
    done.kill(); done.wait()
    say(path, field(status, 'Uid:') + '/' + field(status, 'CapEff:'))
";
    let answers = Attack::python(code).answers();
    assert!(answers.number("helpers") > 0, "there is something to try");
    for (name, answer) in answers.iter().filter(|(name, _)| name.starts_with('/')) {
        assert_eq!(answer, "1000\t1000\t1000\t1000/0000000000000000", "{name}");
    }
    // Their control is in filesystem.rs: a file with capabilities, with and without no_new_privs.
}

const TYPE: &str = r"
for fd in (0, 1, 2):
    say(f'TIOCSTI {fd}', call(16, fd, 0x5412, b'x'))
    say(f'TIOCLINUX {fd}', call(16, fd, 0x541c, b'\x02'))
    say(f'TIOCSCTTY {fd}', call(16, fd, 0x540e, 0))
say('tty', attempt(os.open, '/dev/tty', os.O_RDWR))
say('ptmx', attempt(os.open, '/dev/ptmx', os.O_RDWR))
say('session', os.getsid(0) == os.getpid())
";

#[test]
fn pn_14_terminal_injection() {
    let outcome = Attack::python(TYPE).run();
    let answers = Answers::of(&outcome);
    for (name, answer) in answers.iter().filter(|(name, _)| *name != "session") {
        assert!(["EPERM", "ENOTTY", "ENXIO", "ENOENT"].contains(&answer), "{name}: {answer}");
    }
    answers.is("session", "True");
    assert_eq!(outcome.blocked_syscalls.len(), 1, "{:?}", outcome.blocked_syscalls);
    assert_eq!(outcome.blocked_syscalls[0].name.as_deref(), Some("ioctl"));
}

#[test]
fn pn_14_control_a_new_session_alone_takes_the_terminal_away() {
    let test = "pn_14 control";
    if !is_root_for(test) {
        return;
    }
    let canary = Canary::plant();
    // What /dev/tty is, in a place that a run without the new root finds.
    let tty = canary.dir.join("tty");
    let made = Command::new("mknod").args(["-m", "666"]).arg(&tty).args(["c", "5", "0"]).status();
    if !made.is_ok_and(|made| made.success()) {
        return skip(test, "device nodes cannot be made here");
    }
    let code = format!(
        "
try: fd = os.open({:?}, os.O_RDWR | os.O_NOCTTY)
except OSError as e: say('open', name_of(e.errno)); sys.exit()
say('open', 'ok')
say('type', call(16, fd, 0x5412, b'#'))
",
        canary.at_host("tty")
    );
    // A helper that has a terminal, as a shell's child would.
    let terminal = [
        "/usr/bin/python3",
        "-c",
        "import pty, sys; pty.spawn(sys.argv[1:], lambda fd: __import__('os').read(fd, 4096))",
    ];
    let with = |layers: u32, flags: &str| run_behind(&terminal, &code, layers, flags);
    let refused = with(hole::LANDLOCK, "root,seccomp");
    assert!(refused.contains("open=ENXIO"), "{refused}");
    let control = with(hole::LANDLOCK | hole::SESSION, "root,seccomp");
    assert!(control.contains("open=ok"), "{control}");
    assert!(control.contains("type=ok") || control.contains("type=EIO"), "{control}");
    // The filter alone refuses the typing.
    let filtered = with(hole::LANDLOCK | hole::SESSION, "root");
    assert!(filtered.contains("open=ok") && filtered.contains("type=EPERM"), "{filtered}");
}

/// Runs that exit with `code` from 5 ms before to 5 ms after their deadline: each has one outcome, and
/// its status and exit agree.
fn exits_at_the_deadline(code: u8, wanted: Status) {
    let source = "
#include <stdlib.h>
#include <unistd.h>
int main(int c, char **v) { usleep(atoi(v[1])); _exit(atoi(v[2])); }
";
    let Some(image) = compile("pn_16", source, &[]) else { return };
    const TIMEOUT: u32 = 60;
    let runs = soak(60);
    for round in 0..runs {
        let micros = TIMEOUT as usize * 1000 - 5000 + round * 10_000 / runs;
        let args = ["sleep", &micros.to_string(), &code.to_string()];
        let attack = Attack::program("/work/sleep", &args).input_with("sleep", &image, 0o755);
        let outcome = attack.timeout(TIMEOUT).run();
        let by_itself = outcome.exit == Some(Exit::Code(code));
        let agree = match outcome.status {
            // Ended by us, so that it did not end by itself.
            Status::Timeout => !by_itself && outcome.limit == Some(Limit::Timeout),
            status => status == wanted && by_itself && outcome.limit.is_none(),
        };
        assert!(agree, "after {micros} us: {outcome:?}");
    }
}

#[test]
fn pn_16_an_exit_exactly_at_the_deadline() {
    exits_at_the_deadline(0, Status::Success);
}

#[test]
fn pn_16_a_failure_exactly_at_the_deadline() {
    exits_at_the_deadline(3, Status::Failure);
}

#[test]
fn pn_17_a_cancel_that_comes_too_late_hits_nobody() {
    // By held descriptors, never by number, so that there is nothing to be reused. Lowering the host's
    // pid_max to show it would touch others.
    let running = Attack::shell("true").start().unwrap();
    let handle = running.handle();
    let outcome = running.wait(&mut Quiet, None).unwrap();
    assert_eq!(outcome.status, Status::Success);
    let mut unrelated = Command::new("sleep").arg("30").spawn().unwrap();
    handle.cancel();
    std::thread::sleep(Duration::from_millis(50));
    assert!(unrelated.try_wait().unwrap().is_none());
    unrelated.kill().unwrap();
    unrelated.wait().unwrap();
}

const IDENTITY: &str = r"
say('node', os.uname().nodename)
name = ctypes.create_string_buffer(390); call(63, name)
say('domain', name.raw[325:390].split(b'\0')[0].decode())
for path in ['/etc/hostname', '/etc/machine-id', '/proc/sys/kernel/random/boot_id', '/proc/cmdline',
    '/proc/version', '/proc/sys/kernel/hostname', '/sys/class/dmi/id/product_uuid', '/sys/class/net',
    '/var/lib/dbus/machine-id', '/proc/sys/kernel/domainname', '/proc/net', '/proc/mounts', '/proc/partitions']:
    say(path, read(path))
say('cgroup', read('/proc/self/cgroup'))
say('mountinfo', read('/proc/self/mountinfo'))
say('devices', read('/proc/self/net/dev').count(':'))
say('sockets', read('/proc/self/net/unix').count('|'))
";

#[test]
fn pn_19_identity_of_the_host() {
    let answers = Attack::python(IDENTITY).answers();
    answers.is("node", "hotcell");
    assert_eq!(answers.get("/etc/hostname"), "hotcell|");
    let gone = [
        "/etc/machine-id",
        "/proc/sys/kernel/random/boot_id",
        "/proc/cmdline",
        "/proc/version",
        "/proc/sys/kernel/hostname",
        "/sys/class/dmi/id/product_uuid",
        "/sys/class/net",
        "/var/lib/dbus/machine-id",
        "/proc/partitions",
    ];
    for path in gone {
        answers.is(path, "ENOENT");
    }
    // One interface, lo, and no socket of the host's.
    answers.are(&[("devices", "1"), ("sockets", "1")]);
    let own: Vec<&str> = answers.get("cgroup").split('|').filter(|line| !line.is_empty()).collect();
    assert!(own.iter().all(|line| !line.contains("hotcell")), "{own:?}");
    // Sources of mounts: what a run shows is what its list has.
    for mount in answers.get("mountinfo").split('|').filter(|line| !line.is_empty()) {
        let fields: Vec<&str> = mount.split(' ').collect();
        let known = [
            "/usr", "/lib", "/bin", "/sbin", "/etc/", "/null", "/zero", "/full", "/random",
            "/urandom", "/work", "/tmp", "/shm",
        ];
        let (root, point) = (fields[3], fields[4]);
        assert!(root == "/" || known.iter().any(|k| root.starts_with(k)), "{point}: {mount}");
    }
}

#[test]
fn pn_19_control_each_namespace_alone_hides_its_part() {
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let uts = Attack::python(IDENTITY).without(hole::UTS).answers();
    uts.is("node", host.trim());
    let net = Attack::python(IDENTITY).without(hole::NET).answers();
    let interfaces = fs::read_to_string("/proc/net/dev").unwrap().matches(':').count() as u64;
    assert_eq!(net.number("devices"), interfaces);
    assert!(net.number("sockets") > 1, "{net:?}");
    if sandbox().level() < Level::User {
        return skip("pn_19 cgroup", "there is no cgroup here");
    }
    let cgroup = Attack::python(IDENTITY).without(hole::CGROUP_NAMESPACE).answers();
    assert!(cgroup.get("cgroup").contains("hotcell-"), "{cgroup:?}");
}

#[test]
fn pn_19_the_names_of_a_host_that_has_two() {
    let test = "pn_19 names";
    if !is_root_for(test) {
        return;
    }
    // In a UTS namespace of the helper's own, so that nobody else's name changes.
    let name = token();
    let before = format!(
        "echo {name} > /proc/sys/kernel/hostname && echo {name} > /proc/sys/kernel/domainname && exec \"$@\""
    );
    let unshare = ["unshare", "--uts", "--", "sh", "-c", &before, "sh"];
    let control = run_behind(&unshare, IDENTITY, hole::UTS, "");
    assert!(control.contains(&format!("node={name}")), "{control}");
    assert!(control.contains(&format!("domain={name}")), "{control}");
    let said = run_behind(&unshare, IDENTITY, 0, "");
    assert!(said.contains("node=hotcell"), "{said}");
    assert!(!said.contains(&name), "the host's domain name is seen: {said}");
}

#[test]
fn pn_20_core_dumps() {
    let code = "
import resource, signal
say('limit', resource.getrlimit(resource.RLIMIT_CORE))
say('raise', 'refused')
try: resource.setrlimit(resource.RLIMIT_CORE, (1 << 20, 1 << 20)); say('raise', 'ok')
except (ValueError, OSError): pass
big = bytearray(32 << 20)
for death in (signal.SIGABRT, signal.SIGSEGV):
    child = os.fork()
    if child == 0: os.kill(os.getpid(), death)
    status = os.waitpid(child, 0)[1]
    say(f'dumped {int(death)}', os.WCOREDUMP(status))
os.abort()
";
    let outcome = Attack::python(code).run();
    let answers = Answers::of(&outcome);
    answers.are(&[("limit", "(0, 0)"), ("raise", "refused"), ("dumped 6", "False")]);
    answers.is("dumped 11", "False");
    assert_eq!(outcome.exit, Some(Exit::Signal(6)));
    assert!(outcome.artifacts.is_empty() && outcome.skipped.is_empty(), "{outcome:?}");
    // The control, where the host's pattern writes a file and allows one to be as large.
    let pattern = fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap_or_default();
    let hard = rustix::process::getrlimit(rustix::process::Resource::Core).maximum;
    if pattern.trim() != "core" || hard.is_some() {
        return skip("pn_20 control", "this host writes no core files");
    }
    let control = Attack::python(&code.replace("(1 << 20, 1 << 20)", "(-1, -1)"))
        .without(hole::RLIMITS)
        .limits(|limits| limits.disk = hotcell_types::Bytes::mib(400))
        .run();
    Answers::of(&control).is("dumped 6", "True");
    assert!(control.artifacts.iter().any(|a| a.path.starts_with("core")), "{control:?}");
}

#[test]
fn pn_22_native_code_gains_nothing() {
    let canary = Canary::plant();
    // Python has ctypes, which every attack here uses. JavaScript the same way.
    if !Path::new("/usr/bin/node").exists() {
        return skip("pn_22 node", "there is no /usr/bin/node");
    }
    let code = format!(
        "
const found = [];
try {{ found.push(process.binding('fs') ? 'binding' : ''); }} catch (e) {{}}
Error.prepareStackTrace = (_, stack) => {{ found.push(stack[0].getThis() ? 'this' : 'stack'); }};
new Error().stack;
found.push(''.constructor.constructor('return process')().pid > 0 ? 'process' : '');
console.log(found.join());
try {{ console.log(require('fs').readFileSync({:?}, 'utf8')); }} catch (e) {{ console.log(e.code); }}
",
        canary.public()
    );
    let outcome = Attack::program("/usr/bin/node", &["node", "-e", &code]).run();
    canary.is_unseen_in(&outcome);
    assert!(
        text(&outcome).ends_with("ENOENT\n") && text(&outcome).contains("process"),
        "{outcome:?}"
    );
}
