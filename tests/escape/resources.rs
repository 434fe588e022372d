//! RES-*: what a run can use up, and whether it ends when it must.
//!
//! Not here, because more than a sandbox is what they are about: RES-16 (`res_16_a_wheel_that_is_a_bomb_ends_by_a_limit`
//! in tests/programs/environments.rs; nothing else is decompressed), RES-17
//! (`tool_02_res_17_bombs_are_refused_at_once` in crates/request/tests/request/json.rs, and
//! `res_17_output_that_means_no_good_is_read_at_once` in crates/tools/tests/tools/git.rs), RES-18
//! (`res_18_a_search_ends_in_time_whatever_the_pattern` in crates/workspace/tests/workspace/searching.rs; patterns
//! of policies in crates/policy/src/when/tests.rs), RES-21
//! (`res_21_a_run_that_writes_and_syncs_does_not_hold_up_the_record` in crates/cli/tests/live/record.rs).

use std::fs::{self, File};
use std::path::Path;
use std::time::{Duration, Instant};

use hotcell_tests::{
    Answers, Attack, GRACE, Quiet, compile, holds_within, hole, is_root_for, sandbox, skip, text,
    timed, token, with_token,
};
use hotcell_types::{Bytes, Count, Cpus, Exit, Level, Limit, Limits, Outcome, Span, Status};

/// Whether totals are enforced here. If not, says so.
fn has_cgroups(test: &str) -> bool {
    let has = sandbox().level() >= Level::User;
    if !has {
        skip(test, "there is no cgroup here");
    }
    has
}

fn memory(mib: u32) -> impl FnOnce(&mut Limits) {
    move |limits| {
        limits.memory = Bytes::mib(mib);
        limits.disk = Bytes::mib(mib * 8);
    }
}

#[track_caller]
fn is_oom(outcome: &Outcome) {
    assert_eq!((outcome.status, outcome.limit), (Status::Oom, Some(Limit::Memory)), "{outcome:?}");
    assert!(outcome.usage.oom_kills > Some(0));
    assert!(outcome.limits_hit.contains(&Limit::Memory));
}

/// Ways to take 320 MiB where 32 are allowed.
const HOGS: &[(&str, &str)] = &[
    ("touched pages", "x = bytearray(320 << 20)\nfor i in range(0, len(x), 4096): x[i] = 1"),
    (
        "anonymous maps",
        "
import mmap
maps = []
for _ in range(320):
    m = mmap.mmap(-1, 1 << 20); m.write(b'x' * (1 << 20)); maps.append(m)
",
    ),
    (
        "a tree of processes, each below the limit",
        "
import time
for _ in range(16):
    if os.fork() == 0:
        x = bytearray(20 << 20)
        for i in range(0, len(x), 4096): x[i] = 1
        time.sleep(20)
sys.exit(os.wait()[1] != 0)
",
    ),
    ("files in /tmp", "f = open('/tmp/f', 'wb')\nfor _ in range(320): f.write(bytes(1 << 20))"),
    (
        "files in /dev/shm",
        "f = open('/dev/shm/f', 'wb')\nfor _ in range(320): f.write(bytes(1 << 20))",
    ),
    ("files in /work", "f = open('/work/f', 'wb')\nfor _ in range(320): f.write(bytes(1 << 20))"),
    (
        "memory files",
        "
fd = os.memfd_create('x')
for i in range(320): os.pwrite(fd, b'x' * (1 << 20), i << 20)
",
    ),
    (
        "System V shared memory",
        "
libc.shmat.restype = ctypes.c_void_p
for n in range(320):
    id = libc.shmget(0, 1 << 20, 0o1600)
    if id < 0: say('refused', name_of(ctypes.get_errno())); break
    place = libc.shmat(id, None, 0)
    ctypes.memset(place, 1, 1 << 20)
",
    ),
    (
        "pipes",
        "
import fcntl
ends = []
for _ in range(400):
    r, w = os.pipe(); ends.append((r, w))
    try: fcntl.fcntl(w, 1031, 1 << 20)
    except OSError: pass
    os.set_blocking(w, False)
    try:
        while True: os.write(w, b'x' * 65536)
    except BlockingIOError: pass
say('pipes', len(ends))
",
    ),
    (
        "datagrams",
        "
import socket
held = []
for _ in range(450):
    a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM); held.append((a, b))
    a.setblocking(False)
    a.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 22)
    try:
        while True: a.send(b'x' * 65536)
    except (BlockingIOError, OSError): pass
",
    ),
];

#[test]
fn res_01_res_08_res_10_memory_by_every_way() {
    if !has_cgroups("res_01") {
        return;
    }
    let free = available();
    for (what, code) in HOGS {
        let attack = Attack::python(code).limits(memory(32)).timeout(15_000);
        let (outcome, took) = timed(|| attack.run());
        // What the kernel gives anybody little of is capped and not killed for, and some calls are refused.
        let little = ["pipes", "datagrams", "System V shared memory"].contains(what);
        let capped = little && outcome.usage.oom_kills == Some(0);
        if !capped {
            let oom = outcome.usage.oom_kills > Some(0);
            assert!(oom, "{what}: {outcome:?}");
        }
        let peak = outcome.usage.peak_memory_bytes.unwrap();
        assert!(peak <= 33 << 20, "{what}: {peak}");
        assert!(took < Duration::from_secs(16), "{what}: {took:?}");
    }
    // Nothing is still taken, ten times as much as was allowed included, and a neighbour is not touched.
    let given_back = || available() + (200 << 10) > free;
    assert!(holds_within(Duration::from_secs(10), given_back), "{free} before, {}", available());
    let next = Attack::python("x = bytearray(8 << 20); say('x', len(x))").limits(memory(32)).run();
    assert_eq!(next.status, Status::Success, "{next:?}");
}

/// Memory of the host that nobody uses, in KiB.
fn available() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap();
    let line = text.lines().find(|line| line.starts_with("MemAvailable:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn res_01_status_and_limit_of_a_memory_hog() {
    if !has_cgroups("res_01 status") {
        return;
    }
    is_oom(&Attack::python(HOGS[0].1).limits(memory(32)).run());
}

#[test]
fn res_01_control_the_memory_cgroup_alone_counts_the_tree() {
    if !has_cgroups("res_01 control") {
        return;
    }
    // Each process is below the limit, which is all that limits per process can see.
    let code = r"
import time
ready, go = os.pipe()
for _ in range(4):
    if os.fork() == 0:
        x = bytearray(30 << 20)
        for i in range(0, len(x), 4096): x[i] = 1
        os.write(go, b'x'); time.sleep(20)
got = b''
while len(got) < 4: got += os.read(ready, 1)
say('together', sum(int(field(read(f'/proc/{p}/status'), 'RssAnon:').split()[0]) for p in os.listdir('/proc') if p.isdigit() and p != '1') // 1024 > 100)
";
    let attack = || Attack::python(code).limits(memory(64)).timeout(4000);
    let outcome = attack().run();
    assert!(outcome.usage.oom_kills > Some(0), "{outcome:?}");
    let control = attack().without_cgroup().run();
    Answers::of(&control).is("together", "True");
}

const FORK_BOMB: &str = r"
import time
count = 0
stopped = 'nothing'
while count < 400:
    try: child = os.fork()
    except OSError as e: stopped = name_of(e.errno); break
    if child == 0: time.sleep(20); os._exit(0)
    count += 1
say('children', count)
say('stopped', stopped)
";

#[test]
fn res_02_fork_bombs() {
    if !has_cgroups("res_02") {
        return;
    }
    let outcome = Attack::python(FORK_BOMB).limits(|l| l.pids = Count::of(50)).run();
    let answers = Answers::of(&outcome);
    answers.is("stopped", "EAGAIN");
    assert!(answers.number("children") < 50, "{answers:?}");
    assert!(outcome.limits_hit.contains(&Limit::Pids), "{outcome:?}");
    assert!(outcome.usage.peak_pids <= Some(50));
    // The classic one, until the deadline.
    let name = token();
    let bomb = format!("bomb() {{ bomb {name} | bomb {name} & }}; bomb; wait; sleep 30");
    let attack = Attack::program("/bin/bash", &["bash", "-c", &bomb]).timeout(1500);
    let (outcome, took) = timed(|| attack.limits(|l| l.pids = Count::of(60)).run());
    assert!(took < Duration::from_millis(1500) + GRACE, "{took:?}");
    assert!(outcome.usage.peak_pids <= Some(60), "{outcome:?}");
    assert_eq!(with_token(&name), []);
}

#[test]
fn res_02_control_the_pids_cgroup_and_the_rlimit_each_hold() {
    if !has_cgroups("res_02 control") {
        return;
    }
    let attack = || Attack::python(FORK_BOMB).limits(|l| l.pids = Count::of(50));
    let children = |attack: Attack| attack.answers().number("children");
    assert!(children(attack().without(hole::RLIMITS)) < 50);
    // Per user id, which no other run has.
    assert!(children(attack().without_cgroup()) < 50);
    assert_eq!(children(attack().without_cgroup().without(hole::RLIMITS)), 400);
}

#[test]
fn res_03_thread_bombs() {
    if !has_cgroups("res_03") {
        return;
    }
    let code = r"
import threading, time
threading.stack_size(64 << 10)
count = 0
stopped = 'nothing'
while count < 5000:
    try: threading.Thread(target=time.sleep, args=(20,), daemon=True).start()
    except RuntimeError: stopped = 'refused'; break
    count += 1
say('threads', count < 80)
say('stopped', stopped)
os._exit(0)
";
    let outcome = Attack::python(code).limits(|l| l.pids = Count::of(80)).run();
    Answers::of(&outcome).are(&[("threads", "True"), ("stopped", "refused")]);
    assert!(outcome.limits_hit.contains(&Limit::Pids));
    // Children of vfork that never execute.
    let source = r#"
#include <stdio.h>
#include <errno.h>
#include <unistd.h>
#include <sched.h>
#include <sys/syscall.h>
static char stacks[2000][4096];
static int sleeper(void *x) { for (;;) pause(); }
int main(void) {
    int count = 0;
    while (count < 2000 && clone(sleeper, stacks[count] + 4096, CLONE_VM, 0) > 0) count++;
    printf("children=%d\nstopped=%d\n", count, errno);
    return 0;
}
"#;
    let Some(image) = compile("res_03", source, &["-D_GNU_SOURCE"]) else { return };
    let attack = Attack::program("/work/a", &["a"]).input_with("a", &image, 0o755);
    let answers = attack.limits(|l| l.pids = Count::of(80)).answers();
    assert!(answers.number("children") < 80, "{answers:?}");
    answers.is("stopped", "11");
}

const SPIN: &str = r"
import threading, time
for _ in range(8):
    if os.fork() == 0:
        end = time.monotonic() + 2
        while time.monotonic() < end: pass
        os._exit(0)
for _ in range(8): os.wait()
";

#[test]
fn res_04_processor_quota() {
    if !has_cgroups("res_04") {
        return;
    }
    let share =
        |outcome: &Outcome| outcome.usage.cpu_ms.unwrap() as f64 / outcome.usage.wall_ms as f64;
    let attack = || Attack::python(SPIN).limits(|limits| limits.cpu = Cpus::thousandths(100));
    let held = share(&attack().run());
    assert!(held < 0.2, "a quota of 0.1 processors, and {held} used");
    // The layer alone.
    let control = share(&attack().without_cgroup().run());
    assert!(control > 0.3, "{control}");
}

#[test]
fn res_04_processor_time() {
    if !has_cgroups("res_04 time") {
        return;
    }
    let attack = Attack::python("while True: pass");
    let attack = attack.limits(|limits| limits.cpu_time = Some(Span::millis(300))).timeout(10_000);
    let (outcome, took) = timed(|| attack.run());
    assert_eq!(
        (outcome.status, outcome.limit),
        (Status::Limit, Some(Limit::CpuTime)),
        "{outcome:?}"
    );
    assert!(took < Duration::from_secs(5), "{took:?}");
    assert!(outcome.usage.cpu_ms < Some(600), "{outcome:?}");
}

#[test]
fn res_05_hangs() {
    const TIMEOUT: u32 = 500;
    let hangs = [
        "import time\ntime.sleep(3600)",
        "import signal\nsignal.pause()",
        "r, w = os.pipe()\nos.read(r, 1)",
        "import threading\nthreading.Lock().acquire(); l = threading.Lock(); l.acquire(); l.acquire()",
    ];
    for code in hangs {
        let (outcome, took) = timed(|| Attack::python(code).timeout(TIMEOUT).run());
        assert_eq!(outcome.status, Status::Timeout, "{code}");
        assert!(took < Duration::from_millis(TIMEOUT.into()) + GRACE, "{code}: {took:?}");
    }
    // Standard input that nobody gives ends at once.
    let (outcome, took) = timed(|| Attack::python("say('read', sys.stdin.read())").run());
    Answers::of(&outcome).is("read", "");
    assert!(took < Duration::from_secs(2), "{took:?}");
}

const FILL: &str = r"
def fill(dir):
    written = 0
    try:
        for n in range(64):
            with open(f'{dir}/fill{n}', 'wb', buffering=0) as f:
                for _ in range(16): written += f.write(bytes(1 << 20))
    except OSError as e: return name_of(e.errno), written >> 20
    return 'never', written >> 20
for dir in ['/work', '/tmp', '/dev/shm', '/var/tmp', os.environ['HOME']]:
    say(dir, fill(dir)[0])
    for name in os.listdir(dir):
        if name.startswith('fill'): os.unlink(f'{dir}/{name}')
kinds = set()
for dir in ['/work', '/tmp', '/dev/shm']:
    stat = os.statvfs(dir)
    kinds.add((stat.f_blocks * stat.f_frsize >> 20, stat.f_namemax))
say('kinds', kinds)
say('together', 'x')
answers = [fill(dir) for dir in ['/work', '/tmp', '/dev/shm']]
say('together', sum(mib for _, mib in answers) <= 24)
";

#[test]
fn res_06_filling_the_disk() {
    let attack = |disk: u32| Attack::python(FILL).limits(|limits| limits.disk = Bytes::mib(disk));
    let outcome = attack(24).run();
    let answers = Answers::of(&outcome);
    for dir in ["/work", "/tmp", "/dev/shm", "/var/tmp"] {
        answers.is(dir, "ENOSPC");
    }
    answers.is("together", "True");
    // In memory that is the run's own, and nowhere on the host's disk.
    answers.is("kinds", "{(24, 1016)}|{(24, 255)}");
    assert!(outcome.limits_hit.contains(&Limit::Disk), "{outcome:?}");
    // The control: the limit is what stops it.
    Attack::python("open('/tmp/x', 'wb').write(bytes(40 << 20)); say('x', 'ok')")
        .limits(|limits| limits.disk = Bytes::mib(64))
        .answers()
        .is("x", "ok");
}

#[test]
fn res_06_many_files() {
    let code = r"
count = 0
stopped = 'never'
try:
    while count < 2000:
        open(f'/tmp/{count}', 'w').close(); count += 1
except OSError as e: stopped = name_of(e.errno)
say('stopped', stopped)
say('count', count)
";
    let attack = |files: u32| Attack::python(code).limits(|limits| limits.files = Count::of(files));
    let outcome = attack(200).run();
    let answers = Answers::of(&outcome);
    answers.is("stopped", "ENOSPC");
    assert!(answers.number("count") <= 200);
    assert!(outcome.limits_hit.contains(&Limit::Files), "{outcome:?}");
    attack(3000).answers().is("stopped", "never");
}

#[test]
fn res_11_descriptors_in_flight() {
    let code = r"
import array, resource, socket
sent = 0
held = []
stopped = 'never'
try:
    while sent < 20000:
        a, b = socket.socketpair(); held.append((a, b)); a.setblocking(False)
        for _ in range(50):
            fds = array.array('i', [a.fileno(), b.fileno()] * 50)
            a.sendmsg([b'x'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)]); sent += len(fds)
except OSError as e: stopped = name_of(e.errno)
say('stopped', stopped)
say('sent', sent)
import select
try:
    nests = [select.epoll() for _ in range(20)]
    for outer, inner in zip(nests, nests[1:]): outer.register(inner.fileno())
    say('epoll', 'ok')
except OSError as e: say('epoll', name_of(e.errno))
";
    let before = open_files();
    let answers = Attack::python(code).limits(|l| l.open_files = Count::of(256)).answers();
    answers.is("stopped", "ETOOMANYREFS|EMFILE|EAGAIN").is("epoll", "ELOOP|EINVAL");
    assert!(answers.number("sent") <= 600, "{answers:?}");
    let back = holds_within(Duration::from_secs(5), || open_files() < before + 2000);
    assert!(back, "{before} before, {} after", open_files());
}

fn open_files() -> u64 {
    let text = fs::read_to_string("/proc/sys/fs/file-nr").unwrap();
    text.split_whitespace().next().unwrap().parse().unwrap()
}

const DESCRIPTORS: &str = r"
import resource
def open_all():
    count = 0
    try:
        while count < 3000: os.dup(0); count += 1
    except OSError as e: return count, name_of(e.errno)
    return count, 'never'
say('limit', resource.getrlimit(resource.RLIMIT_NOFILE))
try: resource.setrlimit(resource.RLIMIT_NOFILE, (4000, 4000)); say('raise', 'ok')
except (ValueError, OSError): say('raise', 'refused')
count, stopped = open_all()
say('count', count)
say('stopped', stopped)
";

#[test]
fn res_12_descriptors() {
    let attack = || Attack::python(DESCRIPTORS).limits(|l| l.open_files = Count::of(128));
    let answers = attack().answers();
    answers.are(&[("limit", "(128, 128)"), ("raise", "refused"), ("stopped", "EMFILE")]);
    assert!(answers.number("count") < 128);
    // The rlimits alone, where this process may open more.
    let own = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum;
    if own.is_some_and(|most| most < 4000) {
        return skip("res_12 control", "this process may not open more either");
    }
    attack().without(hole::RLIMITS).answers().is("stopped", "never");
}

#[test]
fn res_13_floods_of_output() {
    const KEPT: u32 = 256;
    let floods = [
        "while True: os.write(1, b'A' * 65536)",
        "while True: os.write(2, b'A' * 65536)",
        "while True: os.write(1, b'x'); os.write(2, b'y' * 100000)",
    ];
    for code in floods {
        let attack = Attack::python(code).limits(|limits| limits.output = Bytes::kib(KEPT));
        let (outcome, took) = timed(|| attack.timeout(1000).run());
        assert_eq!(outcome.status, Status::Timeout);
        assert!(took < Duration::from_secs(1) + GRACE, "{took:?}");
        assert!(outcome.limits_hit.contains(&Limit::Output));
        for stream in [&outcome.stdout, &outcome.stderr] {
            assert!(stream.bytes.len() as u64 <= Bytes::kib(KEPT).get());
            assert_eq!(stream.truncated, stream.total > stream.bytes.len() as u64);
        }
        let total = outcome.stdout.total + outcome.stderr.total;
        assert!(total > 10 * Bytes::kib(KEPT).get(), "it was drained all the time: {total}");
    }
}

#[test]
fn res_14_hostile_bytes() {
    let code = r#"
os.write(1, b'no newline ' * 10000)
os.write(1, bytes(range(256)) + b'\x1b[2J\x1b]0;title\x07' + '\ud800'.encode('utf-8', 'surrogatepass'))
os.write(1, b'"}\n{"status":"success"}\x1e\x1d\0\r\n--end-of-output--\n')
os.write(2, b'\xff\xfe' * 100)
"#;
    let outcome = Attack::python(code).run();
    assert_eq!(outcome.status, Status::Success);
    let json = serde_json::to_string(&outcome).unwrap();
    let back: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(back["status"], "success");
    assert!(
        outcome.stdout.bytes.windows(256).any(|w| w.iter().copied().eq(0..=255)),
        "kept as it was"
    );
    assert!(back["stdout"]["text"].as_str().unwrap().contains('\u{fffd}'));
}

#[test]
fn res_15_pipes_in_the_wrong_order() {
    let orders = [
        "os.write(2, b'e' * 1); [os.write(2, b'e' * 65536) for _ in range(160)]; [os.write(1, b'o' * 65536) for _ in range(160)]",
        "[os.write(1, b'o' * 65536) for _ in range(160)]; [os.write(2, b'e' * 65536) for _ in range(160)]",
        "os.close(0); os.close(2); [os.write(1, b'o' * 65536) for _ in range(160)]",
    ];
    for code in orders {
        let (outcome, took) = timed(|| Attack::python(code).timeout(10_000).run());
        assert_eq!(outcome.status, Status::Success, "{code}");
        assert!(outcome.stdout.total >= 10 << 20 && outcome.stdout.truncated);
        assert!(took < Duration::from_secs(8), "{took:?}");
    }
    // More standard input than is ever read, and more than fits a pipe.
    let mut input = tempfile::tempfile().unwrap();
    std::io::Write::write_all(&mut input, &vec![b'i'; 4 << 20]).unwrap();
    std::io::Seek::rewind(&mut input).unwrap();
    let outcome = Attack::python("os.write(1, b'o' * 200000)").stdin(input).run();
    assert_eq!((outcome.status, outcome.stdout.total), (Status::Success, 200_000));
    // Standard input that never comes and never ends.
    let (reader, writer) = std::io::pipe().unwrap();
    let attack =
        Attack::python("sys.stdin.read()").stdin(File::from(std::os::fd::OwnedFd::from(reader)));
    let (outcome, took) = timed(|| attack.timeout(500).run());
    assert_eq!(outcome.status, Status::Timeout);
    assert!(took < Duration::from_millis(500) + GRACE, "{took:?}");
    drop(writer);
}

#[test]
fn res_19_storms_of_signals() {
    let code = r"
import signal
signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))
sent = 0
stopped = 'never'
value = ctypes.c_void_p(0)
while sent < 1000000:
    if libc.sigqueue(os.getpid(), 40, value) != 0: stopped = name_of(ctypes.get_errno()); break
    sent += 1
say('stopped', stopped)
say('sent', sent)
for _ in range(20000):
    try: os.kill(1, signal.SIGCHLD)
    except OSError: break
say('timers', 'ok')
timer = ctypes.c_int(0)
count = 0
while count < 100000 and call(222, 1, 0, ctypes.byref(timer)) == 'ok': count += 1
say('timers', count)
";
    let (outcome, took) = timed(|| Attack::python(code).run());
    let answers = Answers::of(&outcome);
    answers.is("stopped", "EAGAIN");
    assert!(answers.number("sent") <= 1024, "{answers:?}");
    assert!(answers.number("timers") <= 1024, "{answers:?}");
    assert!(took < Duration::from_secs(10), "{took:?}");
}

#[test]
fn res_20_one_sparse_giant() {
    let code = r"
def grow(name, size):
    fd = os.open(name, os.O_WRONLY | os.O_CREAT)
    import signal
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    return attempt(os.ftruncate, fd, size)
say('8E', grow('giant', (1 << 63) - 1))
say('1G', grow('large', 1 << 30))
say('fallocate', call(285, os.open('allocated', os.O_WRONLY | os.O_CREAT), 0, 0, 1 << 40))
";
    let (outcome, took) = timed(|| Attack::python(code).limits(memory(8)).run());
    Answers::of(&outcome).are(&[("8E", "EFBIG"), ("1G", "EFBIG"), ("fallocate", "EFBIG|ENOSPC")]);
    assert!(took < Duration::from_secs(5), "{took:?}");
}

#[test]
fn res_20_many_sparse_files() {
    // None is larger than the disk that the run may use, and together they would be 20 times that:
    // files that were never written must not be read, nor filled with zeros on the host's disk.
    let code = r"
for n in range(20):
    fd = os.open(f'sparse{n:03}', os.O_WRONLY | os.O_CREAT)
    os.ftruncate(fd, 16 << 20)
    os.close(fd)
";
    let outputs = tempfile::tempdir().unwrap();
    let attack = Attack::python(code).limits(|limits| limits.disk = Bytes::mib(16));
    let (outcome, took) = timed(|| attack.outputs(outputs.path()).run());
    let stored: u64 = fs::read_dir(outputs.path())
        .unwrap()
        .map(|entry| entry.unwrap().metadata().unwrap().len())
        .sum();
    assert!(
        stored <= 2 * (16 << 20),
        "{} MiB were written to the host's disk, in {took:?}",
        stored >> 20
    );
    assert!(took < Duration::from_secs(5), "{took:?}: {:?}", outcome.status);
}

#[test]
fn res_22_swap() {
    if !has_cgroups("res_22") {
        return;
    }
    let running = Attack::executed("import time\ntime.sleep(5) # hotcell-swap").limits(memory(32));
    let running = running.start().unwrap();
    let handle = running.handle();
    let waiting = std::thread::spawn(move || running.wait(&mut Quiet, None).unwrap());
    let mut checked = 0;
    let found = holds_within(Duration::from_secs(5), || {
        with_token("# hotcell-swap").iter().any(|p| p.file("cgroup").contains("/hotcell-"))
    });
    assert!(found);
    let process = with_token("# hotcell-swap").remove(0);
    for line in process.file("cgroup").lines() {
        let fields: Vec<&str> = line.splitn(3, ':').collect();
        let (controllers, path) = (fields[1], fields[2]);
        let v1 = Path::new("/sys/fs/cgroup/memory").join(path.trim_start_matches('/'));
        if controllers == "memory" && v1.exists() {
            let read = |name: &str| fs::read_to_string(v1.join(name)).unwrap_or_default();
            let both = read("memory.memsw.limit_in_bytes");
            let one = read("memory.limit_in_bytes");
            // Kernels without swap accounting have no such file; then no page may go there.
            assert!(both == one || read("memory.swappiness").trim() == "0", "{both} {one}");
            checked += 1;
        }
        for root in ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"] {
            let v2 = Path::new(root).join(path.trim_start_matches('/')).join("memory.swap.max");
            if let (true, Ok(most)) = (controllers.is_empty(), fs::read_to_string(v2)) {
                assert_eq!(most.trim(), "0");
                checked += 1;
            }
        }
    }
    handle.cancel();
    waiting.join().unwrap();
    assert!(checked > 0, "{}", process.file("cgroup"));
}

/// Takes as much as it gets of what the kernel counts per user, holds it, and says how much.
const HOARD: &str = r"
import time
def inotify():
    count = 0
    while count < 600 and libc.inotify_init() >= 0: count += 1
    return count
say('instances', inotify())
os.write(1, b'holding\n')
time.sleep(float(os.environ['HOLD']))
";

#[test]
fn res_24_tables_that_the_kernel_keeps_per_user() {
    if !is_root_for("res_24") {
        return;
    }
    // The kernel counts these for whoever made the namespaces, which is the same for all runs: nobody
    // gets any.
    let hoard = || Attack::python(HOARD).env("HOLD", "0");
    assert_eq!(hoard().answers().number("instances"), 0);
    assert!(hoard().without_seccomp().answers().number("instances") > 0);
}

#[test]
fn res_24_signals_descriptors_and_timers_of_a_neighbour() {
    let code = r"
import signal, time
signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))
sent = 0
while sent < 3000 and libc.sigqueue(os.getpid(), 40, ctypes.c_void_p(0)) == 0: sent += 1
import select
poll = select.epoll(); count = 0
held = []
try:
    while count < 900: held.append(os.pipe()); poll.register(held[-1][0], select.EPOLLIN); count += 1
except OSError: pass
say('sent', sent)
say('polled', count)
time.sleep(float(os.environ['HOLD']))
";
    let hoarders: Vec<_> = (0..3)
        .map(|_| {
            let running = Attack::python(code).env("HOLD", "10").start().unwrap();
            let handle = running.handle();
            (handle, std::thread::spawn(move || running.wait(&mut Quiet, None).unwrap()))
        })
        .collect();
    std::thread::sleep(Duration::from_millis(700));
    let neighbour = Attack::python(code).env("HOLD", "0").answers();
    let mut first = Vec::new();
    for (handle, waiting) in hoarders {
        handle.cancel();
        first.push(Answers::of(&waiting.join().unwrap()));
    }
    for name in ["sent", "polled"] {
        assert_eq!(neighbour.get(name), first[0].get(name), "{name}");
    }
}

#[test]
fn res_25_priorities() {
    let code = r"
import resource
for name, policy in [('FIFO', 1), ('RR', 2), ('DEADLINE', 6)]:
    say(name, call(144, 0, policy, b'\x01\0\0\0'))
say('setattr', call(314, 0, ctypes.create_string_buffer(b'\x30\0\0\0\x01\0\0\0' + bytes(40)), 0))
say('nice', attempt(os.setpriority, os.PRIO_PROCESS, 0, -20))
say('ioprio', call(251, 1, 0, (1 << 13) | 0))
say('mlockall', call(151, 3))
buffer = ctypes.create_string_buffer(1 << 20)
say('mlock', call(149, buffer, 1 << 20))
say('latency', attempt(os.open, '/dev/cpu_dma_latency', os.O_RDWR))
say('oom', attempt(os.open, '/proc/self/oom_score_adj', os.O_WRONLY))
say('autogroup', attempt(os.open, '/proc/self/autogroup', os.O_WRONLY))
";
    Attack::python(code).answers().all("EPERM|EACCES|ENOENT|ENOMEM|EINVAL|EROFS");
}

#[test]
fn res_26_runs_die_before_us() {
    let code = "say('score', read('/proc/self/oom_score_adj').strip('|'))";
    let inside: i32 = Attack::python(code).answers().get("score").parse().unwrap();
    let ours = fs::read_to_string("/proc/self/oom_score_adj").unwrap();
    let ours: i32 = ours.trim().parse().unwrap();
    assert!(inside > ours, "a run has {inside}, and this process {ours}");
}

#[test]
fn a_single_file_larger_than_the_limit_ends_its_writer() {
    let code = "
f = open('/tmp/x', 'wb', buffering=0)
import signal
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
os.ftruncate(f.fileno(), 65 << 20)
";
    let outcome = Attack::python(code).limits(|limits| limits.disk = Bytes::mib(64)).run();
    assert_eq!(outcome.exit, Some(Exit::Signal(25)), "{outcome:?}");
    assert_eq!((outcome.status, outcome.limit), (Status::Limit, Some(Limit::Disk)));
    let smaller = Attack::python(code).limits(|limits| {
        limits.disk = Bytes::mib(128);
        limits.file_size = Some(Bytes::mib(64));
    });
    let outcome = smaller.run();
    assert_eq!((outcome.status, outcome.limit), (Status::Limit, Some(Limit::FileSize)));
    // The rlimits alone: a file may look as large as it likes where it has no bytes.
    let code = code.replace("65 << 20", "1 << 40");
    let control = Attack::python(&code).limits(|limits| limits.disk = Bytes::mib(64));
    let control = control.without(hole::RLIMITS).timeout(20_000);
    let running = control.start().unwrap();
    let handle = running.handle();
    let begun = Instant::now();
    let outcome = running.wait(&mut Quiet, None).unwrap();
    drop(handle);
    assert_eq!(outcome.exit, Some(Exit::Code(0)), "{} {:?}", text(&outcome), begun.elapsed());
}
