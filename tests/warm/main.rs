//! Runs that are forked from an interpreter which had started: they are as if it had been executed for
//! them, have nothing of each other, and survive what befalls the zygote.
//!
//! What attacks can do from there is tried by the suite `escape`, a second time, with `HOTCELL_WARM`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::OpenOptions;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use hotcell_sandbox::{Bounds, Refusal, Sandbox, chan, wire};
use hotcell_tests::{
    Attack, Process, Quiet, RUN_IDS, descendants, holds_within, host_place, is_forked, is_root_for,
    settings, skip, text, timed, token, warm_up,
};
use hotcell_types::{Count, Exit, Layer, Level, Outcome, Profile, Start, Status};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, Signal, kill_process};

/// A sandbox of a test's own, in which something can be forked.
fn warm() -> Sandbox {
    let sandbox = Sandbox::open(&settings()).expect("this host can run a sandbox");
    warm_up(&sandbox);
    sandbox
}

fn run(sandbox: &Sandbox, attack: Attack) -> Outcome {
    attack.start_in(sandbox).wait(&mut Quiet, None).unwrap()
}

#[track_caller]
fn forked(sandbox: &Sandbox, attack: Attack) -> Outcome {
    let outcome = run(sandbox, attack);
    assert!(is_forked(&outcome), "{outcome:?}");
    outcome
}

fn executed(mut attack: Attack) -> Attack {
    attack.job.command.forks = false;
    attack
}

fn kill_if_there(process: &Process) {
    kill_process(Pid::from_raw(process.pid as i32).unwrap(), Signal::KILL).ok();
}

fn kill(process: &Process, signal: Signal) {
    kill_process(Pid::from_raw(process.pid as i32).unwrap(), signal).unwrap();
}

/// Zygotes of this process: they alone have the script of one open, but for cells that are being born, which
/// have a pid namespace of their own already.
fn zygotes() -> Vec<Process> {
    let family = descendants(std::process::id());
    let has_script = |p: &Process| std::fs::read_link(format!("/proc/{}/fd/5", p.pid)).is_ok();
    let depth = |status: String| status.split_whitespace().count();
    let own = std::fs::read_to_string("/proc/self/status").unwrap();
    let own = own.lines().find_map(|line| line.strip_prefix("NSpid:")).unwrap().to_owned();
    let of_launcher = depth(own) + 1;
    family
        .into_iter()
        .filter(|p| p.file("cmdline").contains("-S\0/proc/self/fd/5") && has_script(p))
        .filter(|p| depth(p.status("NSpid:")) == of_launcher)
        .collect()
}

/// Programs whose end, output and files tell how they were started.
const PROGRAMS: &[(&str, &str)] = &[
    ("nothing", ""),
    (
        "output",
        "import sys\nprint('out'); print('err', file=sys.stderr); sys.stdout.write('no newline')",
    ),
    ("unicode", "print('\u{e9}\u{2713}')"),
    ("an encoding of its own", "# -*- coding: latin-1 -*-\nprint(len('\u{e9}'))"),
    ("a mark at its beginning", "\u{feff}print(1)"),
    ("an error", "def f():\n    return 1 / 0\n\nf()"),
    (
        "an error with a cause",
        "try:\n    {}['a']\nexcept KeyError as e:\n    raise ValueError('b') from e",
    ),
    ("an error with notes and groups", "raise ExceptionGroup('g', [ValueError(1), TypeError(2)])"),
    ("no program", "def f(:\n  pass"),
    ("wrong indentation", "if 1:\nprint(1)"),
    ("a NUL", "print(1)\0"),
    ("a deep recursion", "def f(): f()\ntry:\n    f()\nexcept RecursionError as e: print(e)"),
    ("exit 0", "import sys; sys.exit()"),
    ("exit 3", "import sys; sys.exit(3)"),
    ("exit 257", "import sys; sys.exit(257)"),
    ("exit -1", "import sys; sys.exit(-1)"),
    ("exit with words", "import sys; sys.exit('words')"),
    ("exit with True", "raise SystemExit(True)"),
    ("exit at once", "import os; print('lost?', flush=True); os._exit(4)"),
    ("quit", "quit(5)"),
    ("a signal to itself", "import os, signal; os.kill(os.getpid(), signal.SIGTERM)"),
    ("abort", "import os; os.abort()"),
    (
        "an interrupt",
        "import os, signal\ntry:\n    os.kill(os.getpid(), signal.SIGINT)\n    import time; time.sleep(5)\nexcept KeyboardInterrupt: print('caught')",
    ),
    (
        "what runs at the end",
        "import atexit\natexit.register(print, 'first')\natexit.register(print, 'second')\nclass A:\n    def __del__(self): print('gone')\na = A()\nb = [a]; b.append(b)\nprint('end')",
    ),
    ("an error at the end", "import atexit\natexit.register(lambda: 1 / 0)"),
    ("a file that nobody closes", "f = open('out.txt', 'w'); f.write('kept')"),
    (
        "a file in a circle that nobody closes",
        "class C: pass\nc = C(); c.me = c; c.f = open('out.txt', 'w'); c.f.write('kept')",
    ),
    (
        "threads",
        "import threading, time\ndef f():\n    time.sleep(0.1); print('thread')\nthreading.Thread(target=f).start()\nprint('main', threading.current_thread() is threading.main_thread(), threading.active_count())",
    ),
    (
        "a thread that goes with it",
        "import threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()\nprint('main')",
    ),
    (
        "an executor",
        "from concurrent.futures import ThreadPoolExecutor\nwith ThreadPoolExecutor(2) as e: print(list(e.map(len, ['a', 'bb'])))",
    ),
    (
        "processes",
        "import multiprocessing as m\nif __name__ == '__main__':\n    with m.get_context('fork').Pool(2) as p: print(p.map(abs, [-1, 2]))",
    ),
    (
        "processes of their own",
        "import multiprocessing as m\ndef f(x): return x + 1\nif __name__ == '__main__':\n    with m.get_context('spawn').Pool(1) as p: print(p.map(f, [1]))",
    ),
    (
        "a child",
        "import os\nif os.fork() == 0:\n    print('child'); raise SystemExit(7)\nprint(os.waitstatus_to_exitcode(os.wait()[1]))",
    ),
    (
        "a subprocess",
        "import subprocess, sys\nprint(subprocess.run([sys.executable, '-c', 'print(6 * 7)'], capture_output=True))",
    ),
    (
        "asyncio",
        "import asyncio\nasync def f():\n    await asyncio.sleep(0); return 5\nprint(asyncio.run(f()))",
    ),
    ("a module beside it", "import beside; print(beside.VALUE, beside.__file__)"),
    (
        "its own module",
        "import sys, pickle\nclass C: x = 1\nprint(sys.modules['__main__'] is sys.modules[__name__], pickle.loads(pickle.dumps(C)).x, C.__module__, C)",
    ),
    (
        "names",
        "print(sorted(k for k in globals()), __name__, __file__, __doc__, __spec__, __package__, __cached__, type(__loader__), __loader__.name, __loader__.path)",
    ),
    ("builtins", "print(sorted(vars(__builtins__)))"),
    (
        "arguments",
        "import sys; print(sys.argv, sys.orig_argv, sys.executable, sys.prefix, sys.base_prefix)",
    ),
    (
        "paths",
        "import sys, site; print(sys.path, site.ENABLE_USER_SITE, site.PREFIXES, site.getusersitepackages())",
    ),
    (
        "flags",
        "import sys; print(sys.flags, sys.warnoptions, sys._xoptions, sys.dont_write_bytecode)",
    ),
    ("variables", "import os; print(sorted(os.environ.items()))"),
    (
        "variables of the C library",
        "import ctypes; libc = ctypes.CDLL(None); libc.getenv.restype = ctypes.c_char_p; print(libc.getenv(b'GIVEN'), libc.getenv(b'HOME'))",
    ),
    (
        "streams",
        "import sys\nfor s in sys.stdin, sys.stdout, sys.stderr: print(s.fileno(), s.encoding, s.errors, s.line_buffering, getattr(s, 'write_through', None), s.name, s.mode, type(s.buffer))",
    ),
    (
        "what streams can do",
        "import sys\nfor s in sys.stdin, sys.stdout, sys.stderr: print(s.seekable(), s.readable(), s.writable(), s.isatty())",
    ),
    (
        "its threads",
        "import os, threading\nt = threading.main_thread(); print(t.native_id == os.getpid(), t.ident == threading.get_ident(), t.name)",
    ),
    ("input", "import sys; print(repr(sys.stdin.read()))"),
    ("no input", "print(input())"),
    ("closed streams", "import sys; sys.stdout.close(); sys.stderr.close()"),
    ("closed descriptors", "import os; os.close(1); os.close(2)"),
    ("a stream of its own", "import io, sys; sys.stdout = io.StringIO(); print('unseen')"),
    ("no streams", "import sys; sys.stdout = sys.stderr = None"),
    (
        "a hook of its own",
        "import sys\nsys.excepthook = lambda t, e, tb: print('hook', t, e, tb is None)\nraise ValueError(1)",
    ),
    (
        "a hook that fails",
        "import sys\ndef hook(t, e, tb): raise KeyError(2)\nsys.excepthook = hook\nraise ValueError(1)",
    ),
    ("warnings", "import warnings; warnings.warn('w'); warnings.warn('d', DeprecationWarning)"),
    (
        "where it is",
        "import os; print(os.getcwd(), oct(os.umask(0)), os.getppid(), os.getsid(0) == os.getpid())",
    ),
    (
        "frames",
        "import sys, traceback\ndef f(): return [s.name for s in traceback.extract_stack() if s.filename == __file__]\nprint(f())",
    ),
    ("its source", "import inspect\ndef f(): pass\nprint(inspect.getsource(f))"),
    (
        "signals",
        "import signal\nprint([(s, signal.getsignal(s)) for s in (signal.SIGINT, signal.SIGPIPE, signal.SIGTERM, signal.SIGCHLD)], signal.pthread_sigmask(signal.SIG_BLOCK, []))",
    ),
    ("the time zone", "import time; print(time.tzname, time.localtime(0).tm_hour)"),
    ("garbage collection", "import gc; print(gc.isenabled(), gc.get_threshold(), gc.get_debug())"),
    ("limits", "import resource\nprint([resource.getrlimit(r) for r in range(16)])"),
    (
        "rude: builtins that are replaced",
        "import builtins, sys, os, threading, atexit, gc\nfor m in builtins, threading, atexit, gc:\n    for n in dir(m):\n        if not n.startswith('__') and n not in ('setattr', 'dir', 'print'): setattr(m, n, None)\nprint('replaced')",
    ),
];

#[test]
fn a_forked_run_is_as_one_that_was_executed() {
    let sandbox = warm();
    let mut differ = Vec::new();
    for (name, code) in PROGRAMS {
        let attack = || {
            let attack = Attack::script(code).input("beside.py", b"VALUE = 5\n");
            let attack = attack.stdin(text_file("given")).env("GIVEN", "a=b\u{e9}");
            attack.env("TZ", "Etc/GMT-5").env("LANG", "C.UTF-8").env("PYTHONDONTWRITEBYTECODE", "1")
        };
        // Variables that are read at the start make another zygote.
        warm_up_as(&sandbox, &attack);
        let (warm, cold) = (run(&sandbox, attack()), run(&sandbox, executed(attack())));
        assert!(is_forked(&warm) && !is_forked(&cold), "{name}: {warm:?}");
        let (mut warm, mut cold) = (told(&warm), told(&cold));
        if name.starts_with("rude") {
            // What is said about it is another matter.
            [&mut warm, &mut cold].into_iter().for_each(|told| told.3.clear());
        }
        let (warm, cold) = (format!("{warm:?}"), format!("{cold:?}"));
        if warm != cold {
            differ.push(format!("{name}:\n  forked   {warm}\n  executed {cold}"));
        }
    }
    assert!(differ.is_empty(), "{}", differ.join("\n"));
}

fn warm_up_as(sandbox: &Sandbox, attack: &dyn Fn() -> Attack) {
    let forks = || is_forked(&run(sandbox, attack()));
    assert!(holds_within(Duration::from_secs(30), forks), "it is never forked");
}

fn text_file(text: &str) -> std::fs::File {
    hotcell_sandbox::in_memory(text.as_bytes()).unwrap()
}

/// What anybody sees of a run: how it ended, its output, its errors, its files.
fn told(outcome: &Outcome) -> (Status, Option<Exit>, String, String, Vec<(String, String)>) {
    let stderr = String::from_utf8_lossy(&outcome.stderr.bytes);
    let files = outcome.artifacts.iter().map(|a| (a.path.clone(), a.sha256.clone())).collect();
    (outcome.status, outcome.exit, text(outcome), without_addresses(&stderr), files)
}

fn without_addresses(text: &str) -> String {
    let mut parts = text.split("0x");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |said, part| {
        said + "0x" + part.trim_start_matches(|c: char| c.is_ascii_hexdigit())
    })
}

#[test]
fn every_layer_is_seen_as_without_a_zygote() {
    let sandbox = warm();
    let layers = |outcome: &Outcome| -> BTreeSet<(String, bool)> {
        outcome.layers.iter().map(|l| (format!("{:?}", l.layer), l.active)).collect()
    };
    let warm = forked(&sandbox, Attack::script(""));
    let cold = run(&sandbox, executed(Attack::script("")));
    assert_eq!(layers(&warm), layers(&cold));
    let session = warm.layers.iter().find(|l| l.layer == Layer::Session).unwrap();
    assert_eq!(session.seen, "own session, no terminal, 3 descriptors");
}

#[test]
fn namespaces_are_the_run_s_own() {
    let sandbox = warm();
    let zygote = zygotes().pop().expect("there is a zygote");
    let names = ["user", "mnt", "pid", "net", "ipc", "uts", "cgroup"];
    let link = |pid: u32, name: &str| {
        std::fs::read_link(format!("/proc/{pid}/ns/{name}")).unwrap().display().to_string()
    };
    let code = "import os\nfor n in ('user', 'mnt', 'pid', 'net', 'ipc', 'uts', 'cgroup'): print(os.readlink('/proc/self/ns/' + n))";
    let seen: Vec<String> = (0..3).map(|_| text(&forked(&sandbox, Attack::script(code)))).collect();
    for (index, name) in names.iter().enumerate() {
        let of_runs: BTreeSet<&str> = seen.iter().map(|s| s.lines().nth(index).unwrap()).collect();
        let others = [link(zygote.pid, name), link(std::process::id(), name)];
        assert!(
            others.iter().all(|other| !of_runs.contains(other.as_str())),
            "{name}: {of_runs:?}"
        );
    }
}

#[test]
fn a_zygote_has_no_powers() {
    let sandbox = warm();
    let zygote = zygotes().pop().expect("there is a zygote");
    for set in ["CapInh:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:"] {
        assert_eq!(zygote.status(set), "0000000000000000", "{set}");
    }
    assert_eq!(zygote.status("NoNewPrivs:"), "1");
    assert_eq!(zygote.status("Threads:"), "1");
    let uid: u32 = zygote.status("Uid:").split_whitespace().next().unwrap().parse().unwrap();
    if rustix::process::geteuid().is_root() {
        assert!(RUN_IDS.contains(&uid), "{uid}");
        assert_eq!(zygote.status("Groups:"), "");
    }
    assert_eq!(zygote.status("Seccomp:"), "2");
    let limits = zygote.file("limits");
    let core = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap();
    assert!(core.split_whitespace().skip(4).take(2).eq(["0", "0"]), "{core}");
    let cgroups = |pid: &str| std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
    let memory = |text: &str| {
        let is_memory = |l: &&str| l.contains(":memory:") || l.starts_with("0::/");
        text.lines().find(is_memory).unwrap_or_default().to_owned()
    };
    if sandbox.level() >= Level::User {
        let of_zygote = memory(&cgroups(&zygote.pid.to_string()));
        let is_own = of_zygote != memory(&cgroups("self"));
        assert!(of_zygote.contains("hotcell-") && is_own, "{of_zygote}");
    }
    // Beside what it has while it forks a cell.
    let open = || std::fs::read_dir(format!("/proc/{}/fd", zygote.pid)).unwrap().count();
    assert!(holds_within(Duration::from_secs(5), || open() == 6), "{}", open());
    for name in ["net", "ipc", "uts", "pid", "mnt"] {
        let of = |pid| std::fs::read_link(format!("/proc/{pid}/ns/{name}")).unwrap();
        assert_ne!(of(zygote.pid), of(std::process::id()), "{name}");
    }
    drop(sandbox);
    assert!(zygotes().is_empty(), "it ends with its sandbox");
}

#[test]
fn nothing_of_one_run_is_in_the_next() {
    let dirt = r"
import builtins, gc, json, os, random, re, signal, socket, sys, threading, time
builtins.mark = 1
json.mark = 1; json.loads = None; sys.modules['mark'] = json; sys.path.append('/mark')
os.environ['MARK'] = '1'; os.putenv('MARK2', '1')
for dir in ('/work', '/tmp', '/dev/shm'): open(dir + '/mark', 'w').write('x')
random.seed(1); sys.setrecursionlimit(77); signal.signal(signal.SIGUSR1, lambda *a: None); gc.disable()
os.umask(0o777); os.nice(1); held = [open('/work/mark') for _ in range(20)]
threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
s = socket.socket(socket.AF_UNIX); s.bind('\0mark'); s.listen()
if os.fork() == 0: time.sleep(60)
builtins.len = None
";
    let look = r"
import builtins, gc, json, os, random, signal, socket, sys, threading
said = [len([]), hasattr(builtins, 'mark'), hasattr(json, 'mark'), json.loads('1'), 'mark' in sys.modules, '/mark' in sys.path]
said += [os.environ.get('MARK'), os.getenv('MARK2'), sorted(set(os.listdir('/work')) - {'main.py'}), os.listdir('/tmp'), os.listdir('/dev/shm')]
said += [sys.getrecursionlimit(), signal.getsignal(signal.SIGUSR1), gc.isenabled(), oct(os.umask(0)), os.nice(0)]
said += [len(os.listdir('/proc/self/fd')), threading.active_count(), sorted(p for p in os.listdir('/proc') if p.isdigit())]
try: socket.socket(socket.AF_UNIX).connect('\0mark'); said.append('connected')
except OSError: pass
print(said)
";
    let sandbox = warm();
    let first = text(&forked(&sandbox, Attack::script(look)));
    for _ in 0..5 {
        assert_eq!(forked(&sandbox, Attack::script(dirt)).status, Status::Success);
        assert_eq!(text(&forked(&sandbox, Attack::script(look))), first);
    }
    assert!(first.contains("[0, False, False, 1, False, False, None, None, [], [], []"), "{first}");
}

#[test]
fn two_runs_differ_in_what_is_random_and_share_what_is_documented() {
    let code = r"
import hashlib, os, random, secrets, ssl, tempfile, uuid
print(random.random(), random.SystemRandom().random(), secrets.token_hex(), os.urandom(8), uuid.uuid4(), uuid.uuid1(), ssl.RAND_bytes(8), tempfile.mktemp(), sep='\n')
import ctypes
# What the kernel gave a program at its start, of which the C library makes the canary: AT_RANDOM.
words = memoryview(open('/proc/self/auxv', 'rb').read()).cast('N')
at_random = dict(zip(words[::2], words[1::2]))[25]
print('shared', hash('a'), id(object), ctypes.string_at(at_random, 16))
";
    let sandbox = warm();
    let seen: Vec<String> = (0..4).map(|_| text(&forked(&sandbox, Attack::script(code)))).collect();
    for line in 0..8 {
        let different: BTreeSet<&str> = seen.iter().map(|s| s.lines().nth(line).unwrap()).collect();
        assert_eq!(different.len(), seen.len(), "{different:?}");
    }
    // docs/warm.md says so; a zygote is renewed after a number of runs.
    let shared: BTreeSet<&str> = seen.iter().map(|s| s.lines().nth(8).unwrap()).collect();
    assert_eq!(shared.len(), 1, "{shared:?}");
    let other = warm();
    let elsewhere = text(&forked(&other, Attack::script(code)));
    assert_ne!(elsewhere.lines().nth(8), seen[0].lines().nth(8));
}

/// All tenants of a process have runs that are forked from one zygote: nothing that one of them gave to a run is in
/// it, nor in what waits for the next.
#[test]
fn nothing_that_a_run_was_given_is_in_its_zygote() {
    if !is_root_for("reading a zygote's memory") {
        return;
    }
    let sandbox = warm();
    let token = token();
    let code =
        format!("import time\nmark = '{token}'\nprint(input(), flush=True)\ntime.sleep(600)");
    let attack = || {
        let attack = Attack::script(&code).env("MARK", &token).input("mark", token.as_bytes());
        attack.stdin(text_file(&format!("{token}\n"))).timeout(600_000)
    };
    let as_it_is_called = || -> Vec<Process> {
        let family = descendants(std::process::id()).into_iter();
        family.filter(|p| p.file("cmdline").contains("/proc/self/fd/5")).collect()
    };
    let have_it = || as_it_is_called().iter().filter(|p| is_in_memory_of(p, &token)).count();
    let running = attack().start_in(&sandbox);
    // The control: it is in that of the run.
    assert!(holds_within(Duration::from_secs(20), || have_it() > 0), "nobody has it");
    let all = zygotes();
    assert!(!all.is_empty() && !all.iter().any(|zygote| is_in_memory_of(zygote, &token)));
    running.handle().cancel();
    assert!(is_forked(&running.wait(&mut Quiet, None).unwrap()));
    forked(&sandbox, Attack::script(""));
    // The run is gone, perhaps not at once; others wait that were forked after it.
    assert!(holds_within(Duration::from_secs(10), || have_it() == 0), "somebody has it still");
    assert!(!as_it_is_called().is_empty());
}

fn is_in_memory_of(process: &Process, token: &str) -> bool {
    let Ok(memory) = std::fs::File::open(format!("/proc/{}/mem", process.pid)) else {
        return false;
    };
    let maps = process.file("maps");
    let regions = maps.lines().filter_map(|line| {
        let mut words = line.split(' ');
        let (from, to) = words.next()?.split_once('-')?;
        let at = |text| u64::from_str_radix(text, 16).ok();
        words.next()?.starts_with('r').then_some((at(from)?, at(to)?))
    });
    regions.into_iter().any(|(from, to)| {
        // What is only reserved cannot be read; what can, comes from the beginning.
        let mut bytes = vec![0; usize::try_from((to - from).min(64 << 20)).unwrap()];
        let read = memory.read_at(&mut bytes, from).unwrap_or(0);
        bytes[..read].windows(token.len()).any(|part| part == token.as_bytes())
    })
}

#[test]
fn what_can_name_code_for_the_start_is_never_given_to_a_zygote() {
    let sandbox = warm();
    for (name, value) in [
        ("PYTHONPATH", "/work"),
        ("PYTHONHOME", "/usr"),
        ("PYTHONSAFEPATH", "1"),
        ("PYTHONWARNINGS", "error"),
        ("PYTHONDONTWRITEBYTECODE", "x"),
        ("PYTHON_CPU_COUNT", "default"),
        ("LD_PRELOAD", "/work/x.so"),
        ("LD_LIBRARY_PATH", "/work"),
        ("LD_AUDIT", "/work/x.so"),
        ("OPENSSL_CONF", "/work/ssl.cnf"),
        ("GCONV_PATH", "/work"),
        ("LOCPATH", "/work"),
        ("GLIBC_TUNABLES", "glibc.malloc.check=3"),
        ("LC_ALL", "C"),
        ("LANG", "de_DE.UTF-8"),
        ("HOME", "/work"),
    ] {
        for _ in 0..3 {
            let outcome = run(&sandbox, Attack::script("").env(name, value));
            assert!(!is_forked(&outcome), "{name}={value}");
        }
        // The control: the same run without it.
        forked(&sandbox, Attack::script("").env("OTHER", value));
    }
    assert_eq!(zygotes().len(), 1);
}

/// A file beside the interpreter says where a virtual environment has its library from: in a zygote that code
/// would run outside of every jail.
#[test]
fn a_virtual_environment_is_never_given_to_a_zygote() {
    // Nobody else has a place to write to that runs are shown.
    if !is_root_for("a virtual environment") {
        return;
    }
    let sandbox = warm();
    let venv = tempfile::tempdir_in(host_place()).unwrap();
    std::fs::set_permissions(venv.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::create_dir(venv.path().join("bin")).unwrap();
    let real = std::fs::canonicalize("/usr/bin/python3").unwrap();
    let python = venv.path().join("bin/python3");
    std::os::unix::fs::symlink(&real, &python).unwrap();
    let of = |name: &Path| {
        let mut attack = Attack::script("").shows(venv.path());
        attack.job.command.program = real.clone();
        attack.job.command.args[0] = name.into();
        attack
    };
    for cfg in ["home = /usr/bin\n", "HOME = /usr/bin\nhome = /usr/bin\n"] {
        std::fs::write(venv.path().join("pyvenv.cfg"), cfg).unwrap();
        let forks = || is_forked(&run(&sandbox, of(&python)));
        assert!(!holds_within(Duration::from_secs(2), forks), "{cfg}");
    }
    // The control: the same interpreter by its own name.
    warm_up_as(&sandbox, &|| of(&real));
}

/// An installation of Python that is root's, with the library of this machine and files of others in it.
fn installation(files: &[(&str, &str)]) -> (tempfile::TempDir, std::path::PathBuf) {
    let real = std::fs::canonicalize("/usr/bin/python3").unwrap();
    let name = real.file_name().unwrap().to_str().unwrap();
    let dir = tempfile::tempdir_in(host_place()).unwrap();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let (bin, library) = (dir.path().join("bin"), dir.path().join("lib").join(name));
    std::fs::create_dir(&bin).unwrap();
    std::fs::create_dir_all(&library).unwrap();
    std::fs::copy(&real, bin.join(name)).unwrap();
    for entry in std::fs::read_dir(Path::new("/usr/lib").join(name)).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        let is_given = files.iter().any(|(path, _)| path.split('/').nth(1) == Some(&name));
        if !is_given && !["sitecustomize.py", "__pycache__"].contains(&&*name) {
            std::os::unix::fs::symlink(entry.path(), library.join(entry.file_name())).unwrap();
        }
    }
    for (path, content) in files {
        let path = dir.path().join(path.replace("LIBRARY", &format!("lib/{name}")));
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }
    let python = bin.join(name);
    (dir, python)
}

fn of(python: &Path, code: &str) -> Attack {
    let prefix = python.parent().and_then(Path::parent).unwrap();
    let mut attack = Attack::script(code).shows(prefix);
    attack.job.command.program = python.into();
    attack.job.command.args[0] = python.into();
    attack
}

/// What `site` executes imports what it likes, from where nobody looks whose it is: Debian's `sitecustomize`
/// loads Apport's hook. In a zygote it would speak for all runs that are forked from that.
#[test]
fn what_site_executes_is_executed_in_the_jail() {
    // Nobody else has a place to write to that runs are shown.
    if !is_root_for("an installation of Python") {
        return;
    }
    let says_where = |name: &str| {
        format!(
            "import os, sys\nsys.planted = getattr(sys, 'planted', []) + [('{name}', os.getpid())]\n"
        )
    };
    // From among the packages, as Apport's; both places that distributions have.
    let loads_a_hook = "import site, sys\nsys.path += [p + '/x' for p in site.getsitepackages()]\n";
    let custom = format!("{loads_a_hook}import hook\n{}", says_where("sitecustomize"));
    let (hook, user) = (says_where("hook"), says_where("usercustomize"));
    let (_dir, python) = installation(&[
        ("LIBRARY/sitecustomize.py", &custom),
        ("LIBRARY/usercustomize.py", &user),
        ("LIBRARY/site-packages/x/hook.py", &hook),
        ("LIBRARY/dist-packages/x/hook.py", &hook),
        ("local/LIBRARY/dist-packages/x/hook.py", &hook),
        ("lib/python3/dist-packages/x/hook.py", &hook),
    ]);
    let sandbox = warm();
    let code = "import os, sys\nprint([(name, pid == os.getpid()) for name, pid in sys.planted])";
    warm_up_as(&sandbox, &|| of(&python, code));
    let warm = forked(&sandbox, of(&python, code));
    let cold = run(&sandbox, executed(of(&python, code)));
    assert_eq!(text(&warm), text(&cold), "{warm:?} {cold:?}");
    let (said, each) = (text(&warm), ["hook", "sitecustomize"]);
    assert!(each.iter().all(|name| said.contains(&format!("('{name}', True)"))), "{said}");
}

/// A module that is not the interpreter's own, however it came there, is the end of a zygote: there is none,
/// and programs are executed.
#[test]
fn nothing_is_forked_from_an_interpreter_with_a_module_of_others() {
    if !is_root_for("an installation of Python") {
        return;
    }
    let library = std::fs::canonicalize("/usr/bin/python3").unwrap();
    let json = Path::new("/usr/lib").join(library.file_name().unwrap()).join("json");
    let own = |name: &str| std::fs::read_to_string(json.join(name)).unwrap();
    // The library's own module, but for what it loads besides.
    let loads = "import os, sys\nsys.path.append(os.path.dirname(os.__file__) + '/site-packages')\nimport hook\n";
    let patched = own("__init__.py") + loads;
    for (json, is_its_own) in [(own("__init__.py"), true), (patched, false)] {
        let (_dir, python) = installation(&[
            ("LIBRARY/json/__init__.py", &json),
            ("LIBRARY/json/decoder.py", &own("decoder.py")),
            ("LIBRARY/json/encoder.py", &own("encoder.py")),
            ("LIBRARY/json/scanner.py", &own("scanner.py")),
            ("LIBRARY/site-packages/hook.py", ""),
        ]);
        let sandbox = warm();
        let forks = || is_forked(&run(&sandbox, of(&python, "")));
        let patience = Duration::from_secs(if is_its_own { 30 } else { 2 });
        assert_eq!(holds_within(patience, forks), is_its_own);
    }
}

/// `relativeCreated` counts from the start of the program, and not of the zygote.
#[test]
fn log_records_of_a_forked_run_count_from_its_own_start() {
    let sandbox = warm();
    let code = "import logging\nprint(logging._startTime)";
    let seconds = |attack| {
        let started: f64 = text(&run(&sandbox, attack)).trim().parse().unwrap();
        if started > 1e15 { started / 1e9 } else { started }
    };
    let now = || {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        since.unwrap().as_secs_f64()
    };
    for _ in 0..3 {
        let before = now();
        assert!(is_forked(&run(&sandbox, Attack::script(""))));
        let started = seconds(Attack::script(code));
        assert!(before < started && started < now(), "{before} {started}");
    }
}

/// The secret by which the strict profile allows its one execution would lie in a fork's memory.
#[test]
fn the_strict_profile_is_never_forked() {
    let sandbox = warm();
    for _ in 0..3 {
        assert!(!is_forked(&run(&sandbox, Attack::script("").profile(Profile::Strict))));
    }
}

#[test]
fn jobs_that_fail_by_themselves_cost_the_others_nothing() {
    let sandbox = warm();
    let zygote = zygotes().pop().expect("there is a zygote");
    for _ in 0..5 {
        let large = vec![0; 8 << 20];
        let attack = Attack::script("").input("large", &large);
        let attack = attack.limits(|limits| limits.disk = "1MiB".parse().unwrap());
        assert!(sandbox.start(attack.job).is_err());
    }
    forked(&sandbox, Attack::script(""));
    assert_eq!(zygotes().pop().expect("there is a zygote").pid, zygote.pid);
}

#[test]
fn a_job_that_could_never_start_is_told_so_and_costs_no_zygote() {
    let sandbox = warm();
    let zygote = zygotes().pop().expect("there is a zygote");
    for open_files in ["1", "2", "3", "3"] {
        let attack = Attack::script("").limits(|l| l.open_files = open_files.parse().unwrap());
        let refused = sandbox.start(attack.job).err();
        assert!(matches!(refused, Some(Refusal::Invalid { .. })), "{refused:?}");
    }
    let few = || Attack::script("").limits(|l| l.open_files = "4".parse().unwrap());
    forked(&sandbox, few());
    assert_eq!(zygotes().pop().expect("there is a zygote").pid, zygote.pid);
}

/// What children of a zygote have in common tells which they are of.
const WHOSE: &str = "print(hash('a'), id(object))";

fn whose(outcomes: impl Iterator<Item = Outcome>) -> Vec<usize> {
    let mut counts = BTreeMap::<String, usize>::new();
    outcomes.filter(is_forked).for_each(|outcome| *counts.entry(text(&outcome)).or_default() += 1);
    counts.into_values().collect()
}

#[test]
fn no_zygote_is_used_for_longer_than_its_bounds() {
    let never = Duration::from_secs(10_000);
    let usual =
        Bounds { forks: u32::MAX, age: never, forks_most: 6, age_most: never, wait_most: never };
    let open = |bounds| Sandbox::open_bounded(&settings(), bounds).unwrap();
    // Even where another never comes up.
    let sandbox = open(usual);
    warm_up(&sandbox);
    let counts = whose((0..60).map(|_| {
        std::thread::sleep(Duration::from_millis(20));
        run(&sandbox, Attack::script(WHOSE))
    }));
    assert!(counts.len() > 2 && counts.iter().all(|count| *count <= 6), "{counts:?}");
    // By renewal: there is always one.
    let sandbox = open(Bounds { forks: 5, forks_most: 10_000, ..usual });
    warm_up(&sandbox);
    let counts = whose((0..60).map(|_| {
        std::thread::sleep(Duration::from_millis(20));
        run(&sandbox, Attack::script(WHOSE))
    }));
    assert!(counts.len() > 2 && counts.iter().sum::<usize>() > 50, "{counts:?}");
    // By age.
    let age_most = Duration::from_millis(700);
    let sandbox = open(Bounds { forks_most: 10_000, age_most, ..usual });
    warm_up(&sandbox);
    let zygote = zygotes().pop().expect("there is a zygote");
    std::thread::sleep(age_most);
    assert!(!is_forked(&run(&sandbox, Attack::script(WHOSE))));
    // It was killed when it was found too old, and is reaped soon.
    let is_gone = || zygotes().iter().all(|other| other.pid != zygote.pid);
    assert!(holds_within(Duration::from_secs(5), is_gone), "it is not gone");
    // And what was forked ahead.
    let wait_most = Duration::from_millis(300);
    let sandbox = open(Bounds { forks_most: 10_000, wait_most, ..usual });
    warm_up(&sandbox);
    // Another may be forked a little later, and waits as long.
    let is_too_late = || {
        std::thread::sleep(wait_most);
        run(&sandbox, Attack::script(WHOSE)).start == Start::Forked
    };
    assert!(holds_within(Duration::from_secs(10), is_too_late));
}

/// A byte of each page of the files that it has loaded, written as it was: the pages are its own from then
/// on.
#[test]
fn a_zygote_that_grows_is_replaced_without_a_failed_call() {
    let sandbox = warm();
    let zygote = zygotes().pop().expect("there is a zygote");
    let path = format!("/proc/{}/mem", zygote.pid);
    let Ok(memory) = OpenOptions::new().read(true).write(true).open(path) else {
        return skip(
            "a_zygote_that_grows_is_replaced_without_a_failed_call",
            "it may not be traced",
        );
    };
    for line in zygote.file("maps").lines().filter(|line| line.contains(" /usr/")) {
        let (from, to) = line.split(' ').next().unwrap().split_once('-').unwrap();
        let [from, to] = [from, to].map(|at| u64::from_str_radix(at, 16).unwrap());
        for page in (from..to).step_by(4096) {
            let mut byte = [0];
            if memory.read_exact_at(&mut byte, page).is_ok() {
                memory.write_all_at(&byte, page).ok();
            }
        }
    }
    let begun = Instant::now();
    while zygotes().iter().any(|other| other.pid == zygote.pid) {
        let outcome = run(&sandbox, Attack::script("print(6 * 7)"));
        assert_eq!((outcome.status, &*text(&outcome)), (Status::Success, "42\n"));
        assert!(begun.elapsed() < Duration::from_secs(30), "it is kept");
    }
    warm_up(&sandbox);
}

/// Nobody else waits for a zygote that does not answer.
#[test]
fn a_zygote_that_hangs_holds_up_no_other_run() {
    let sandbox = warm();
    let long = executed(Attack::script("import time\nprint(1, flush=True)\ntime.sleep(60)"));
    let long = long.start_in(&sandbox);
    let zygote = zygotes().pop().expect("there is a zygote");
    kill(&zygote, Signal::STOP);
    // No cell that waited has these limits.
    let others = || Attack::script("").limits(|l| l.files = "78".parse().unwrap());
    std::thread::scope(|scope| {
        let hanging = scope.spawn(|| timed(|| run(&sandbox, others())));
        std::thread::sleep(Duration::from_millis(500));
        let begun = Instant::now();
        long.handle().cancel();
        let ended = long.wait(&mut Quiet, None).unwrap();
        assert_eq!(ended.status, Status::Cancelled);
        assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
        assert!(!hanging.is_finished(), "it was still waited for");
        let (outcome, _) = hanging.join().unwrap();
        assert_eq!(outcome.status, Status::Success);
    });
}

#[test]
fn what_is_born_while_its_zygote_dies_is_reaped() {
    let sandbox = warm();
    for round in 0..20 {
        std::thread::scope(|scope| {
            let sandbox = &sandbox;
            let work = || {
                for files in 100..103 {
                    // Each forked anew.
                    let attack = Attack::script("print(6 * 7)");
                    let attack = attack.limits(|l| l.files = Count::of(files));
                    assert_eq!(text(&run(sandbox, attack)), "42\n");
                }
            };
            let (one, another) = (scope.spawn(work), scope.spawn(work));
            std::thread::sleep(Duration::from_millis(round));
            zygotes().iter().for_each(kill_if_there);
            one.join().unwrap();
            another.join().unwrap();
        });
        warm_up(&sandbox);
    }
    let me = std::process::id();
    let zombies = || descendants(me).into_iter().filter(|p| p.state == 'Z').collect::<Vec<_>>();
    let gone = holds_within(Duration::from_secs(10), || {
        run(&sandbox, executed(Attack::script("")));
        zombies().is_empty()
    });
    assert!(gone, "{:?}", zombies());
}

/// Somebody whom all this is none of the business of.
struct Bystander(std::process::Child);

impl Bystander {
    fn new() -> Bystander {
        let mut command = std::process::Command::new("sleep");
        let quiet = std::process::Stdio::null;
        Bystander(command.arg("600").stdout(quiet()).stderr(quiet()).spawn().unwrap())
    }
}

impl Drop for Bystander {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// Stops a zygote, has it asked for a cell, and gives out somebody else as that. Nothing, if it could not be told.
fn lie(sandbox: &Sandbox, zygote: &Process, impostor: &OwnedFd, files: u32) -> Option<Outcome> {
    let pid = Pid::from_raw(zygote.pid as i32)?;
    let its = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).ok()?;
    rustix::process::pidfd_send_signal(&its, Signal::STOP).ok()?;
    let flags = rustix::process::PidfdGetfdFlags::empty();
    let line = rustix::process::pidfd_getfd(&its, wire::Zygote::LINE as i32, flags).ok()?;
    let (outcome, is_told) = std::thread::scope(|scope| {
        // Nothing that waits has these limits, so that it has to be forked.
        let attack = Attack::script("print(6 * 7)").limits(|l| l.files = Count::of(files));
        let job = scope.spawn(|| run(sandbox, attack));
        let is_asked = || {
            let mut fds = [PollFd::new(&line, PollFlags::IN)];
            let now = Timespec { tv_sec: 0, tv_nsec: 0 };
            rustix::event::poll(&mut fds, Some(&now)) == Ok(1)
                && fds.iter().all(|fd| fd.revents() == PollFlags::IN)
        };
        let is_asked = holds_within(Duration::from_secs(2), is_asked);
        let born = wire::Report::Born;
        let told = is_asked && chan::report(&line, &born, Some(impostor.as_fd())).is_ok();
        (job.join().unwrap(), told)
    });
    rustix::process::pidfd_send_signal(&its, Signal::CONT).ok();
    is_told.then_some(outcome)
}

/// What a zygote says of its children is looked at: a process that is not one is not let go in a run's place, and
/// nobody else's is ended for it.
#[test]
fn what_a_zygote_gives_out_as_its_child_has_to_be_one() {
    if !is_root_for("speaking in a zygote's place") {
        return;
    }
    let sandbox = warm();
    let mut bystander = Bystander::new();
    let other = executed(Attack::script("import time\nprint(1, flush=True)\ntime.sleep(600)"));
    let other = other.timeout(600_000).start_in(&sandbox);
    let program = || {
        let mut family = descendants(std::process::id()).into_iter();
        family.find(|p| p.file("cmdline").contains("/work/main.py"))
    };
    assert!(holds_within(Duration::from_secs(10), || program().is_some()));
    let program = program().unwrap();
    let fd_of = |pid: u32| {
        let pid = Pid::from_raw(pid as i32).unwrap();
        rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).unwrap()
    };
    for (files, who) in (300..).step_by(20).zip(["itself", "init", "program", "bystander"]) {
        // One that just then ends, for another reason, or is asked for nothing, can tell no lie.
        let told = (files..files + 20).find_map(|files| {
            let zygote = zygotes().pop()?;
            let impostor = match who {
                "itself" => zygote.pid,
                "init" => program.parent,
                "program" => program.pid,
                _ => bystander.0.id(),
            };
            let outcome = lie(&sandbox, &zygote, &fd_of(impostor), files);
            if outcome.is_none() {
                warm_up(&sandbox);
            }
            outcome.map(|outcome| (zygote, outcome))
        });
        let (zygote, outcome) = told.unwrap_or_else(|| panic!("{who}: no zygote is ever asked"));
        assert_eq!((outcome.status, &*text(&outcome)), (Status::Success, "42\n"), "{who}");
        assert!(!is_forked(&outcome), "{who}: {outcome:?}");
        assert!(zygotes().iter().all(|z| z.pid != zygote.pid), "{who}: who lied is gone");
        assert_eq!(bystander.0.try_wait().unwrap(), None, "{who}");
        let lives = descendants(std::process::id()).into_iter();
        assert_eq!(lives.filter(|p| p.pid == program.pid && p.state != 'Z').count(), 1, "{who}");
        warm_up(&sandbox);
    }
    drop(bystander);
    other.handle().cancel();
    assert_eq!(other.wait(&mut Quiet, None).unwrap().status, Status::Cancelled);
}

/// To the first process of a pid namespace only signals that it handles can be sent from inside.
#[test]
fn the_init_of_a_forked_run_handles_no_signal() {
    let sandbox = warm();
    let running = Attack::script("import time\ntime.sleep(60)").start_in(&sandbox);
    let inits = || -> Vec<Process> {
        let all = descendants(std::process::id()).into_iter();
        let inits = all.filter(|p| p.name == "hotcell-init");
        // Those that were forked from it are called as it is.
        inits.filter(|p| p.file("cmdline").contains("/proc/self/fd/5")).collect()
    };
    assert!(holds_within(Duration::from_secs(5), || !inits().is_empty()));
    let caught: BTreeSet<String> = inits().iter().map(|init| init.status("SigCgt:")).collect();
    assert_eq!(caught, BTreeSet::from(["0000000000000000".to_owned()]));
    drop(running);
}

#[test]
fn a_killed_zygote_costs_nobody_anything() {
    let sandbox = warm();
    for _ in 0..3 {
        let zygote = zygotes().pop().expect("there is a zygote");
        kill(&zygote, Signal::KILL);
        let outcome = run(&sandbox, Attack::script("print(6 * 7)"));
        assert_eq!((outcome.status, &*text(&outcome)), (Status::Success, "42\n"));
        warm_up(&sandbox);
        assert_ne!(zygotes().pop().expect("there is another").pid, zygote.pid);
    }
}

#[test]
fn a_zygote_that_hangs_is_given_up() {
    let sandbox = warm();
    let zygote = zygotes().pop().expect("there is a zygote");
    kill(&zygote, Signal::STOP);
    // Cells that waited are still good; the first that has to be forked is not answered.
    for _ in 0..4 {
        let outcome = run(
            &sandbox,
            Attack::script("print(6 * 7)").limits(|l| l.files = "77".parse().unwrap()),
        );
        assert_eq!((outcome.status, &*text(&outcome)), (Status::Success, "42\n"));
    }
    // It was killed when it was found too old, and is reaped soon.
    let is_gone = || zygotes().iter().all(|other| other.pid != zygote.pid);
    assert!(holds_within(Duration::from_secs(5), is_gone), "it is not gone");
    warm_up(&sandbox);
}

#[test]
fn many_at_once_are_kept_apart() {
    let sandbox = warm();
    let forked = AtomicU32::new(0);
    std::thread::scope(|scope| {
        for n in 0..8 {
            let (sandbox, forked) = (&sandbox, &forked);
            scope.spawn(move || {
                for round in 0..10 {
                    let code = format!("import os, time\nopen('/tmp/n', 'a').write('{n}')\ntime.sleep(0.01)\nprint(open('/tmp/n').read(), os.getpid())\nraise SystemExit({round})");
                    let outcome = run(sandbox, Attack::script(&code));
                    assert_eq!(text(&outcome), format!("{n} 2\n"));
                    assert_eq!(outcome.exit, Some(Exit::Code(round)));
                    forked.fetch_add(u32::from(is_forked(&outcome)), Ordering::Relaxed);
                }
            });
        }
    });
    let forked = forked.into_inner();
    assert!(forked >= 8, "{forked} of 80 were forked");
}

/// Cells for the limits of one do not take the place of those of another.
#[test]
fn who_alternates_limits_finds_something_that_waits() {
    let sandbox = warm();
    let with = |files: u32| Attack::script("").limits(|l| l.files = Count::of(files));
    let waits = |files: u32| run(&sandbox, with(files)).start == Start::Waiting;
    for files in [200, 201] {
        assert!(holds_within(Duration::from_secs(10), || waits(files)), "{files}");
    }
    let mut waited = 0;
    for _ in 0..10 {
        std::thread::sleep(Duration::from_millis(100));
        waited += usize::from(waits(200)) + usize::from(waits(201));
    }
    assert!(waited >= 16, "{waited} of 20");
}

/// A deadline is kept outside of what waits.
#[test]
fn what_waits_suits_jobs_with_another_deadline() {
    let sandbox = warm();
    // Each is the first of its deadline, so that nothing could have been made for it.
    let waits = |millis| run(&sandbox, Attack::script("").timeout(millis)).start == Start::Waiting;
    let mut deadlines = 20_000..;
    let waited = || waits(deadlines.next().unwrap());
    assert!(holds_within(Duration::from_secs(10), waited), "never");
    // What it was made for is not what holds: this job has a deadline of its own.
    let late = run(&sandbox, Attack::script("while True: pass").timeout(100));
    assert_eq!(late.status, Status::Timeout);
}

/// What was right when a cell was made has to be right when it gets its job.
#[test]
fn a_limit_that_was_lifted_while_a_cell_waited_is_seen_before_the_program_starts() {
    if !is_root_for("changing a cgroup behind hotcell's back") {
        return;
    }
    let sandbox = warm();
    if sandbox.level() < Level::User {
        return skip("lifting a limit", "there are no cgroups here");
    }
    let lift = || {
        let all = descendants(std::process::id()).into_iter();
        let inits = all.filter(|p| p.name == "hotcell-init" && p.state != 'Z');
        inits.filter(|init| lifts(&init.file("cgroup"))).count()
    };
    // What is lifted may be that of a run which is just being buried: one of the next is what waits.
    let mut refused = None;
    let is_refused = || {
        lift();
        refused = sandbox.start(Attack::script("print('ran')").job).err();
        refused.is_some()
    };
    assert!(holds_within(Duration::from_secs(10), is_refused), "it runs without a limit");
    let Some(Refusal::Layer { layer, why, .. }) = refused else { panic!("{refused:?}") };
    assert!(layer == Layer::CgroupMemory && why.contains("pids.max"), "{layer:?} {why}");
    // Only that cell is lost.
    let again = || sandbox.start(Attack::script("").job).is_ok();
    assert!(holds_within(Duration::from_secs(10), again));
}

/// Allows as many processes as there can be in the cgroup that this says.
fn lifts(membership: &str) -> bool {
    let own = membership.lines().find_map(|line| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        let points: &[&str] = match controllers {
            "pids" => &["/sys/fs/cgroup/pids"],
            "" => &["/sys/fs/cgroup"],
            _ => return None,
        };
        let file = Path::new(points.first()?).join(path.trim_start_matches('/')).join("pids.max");
        file.exists().then_some(file)
    });
    own.is_some_and(|file| std::fs::write(file, "max").is_ok())
}

/// What nobody asks for any more does not wait for ever.
#[test]
fn what_waits_expires() {
    let never = Duration::from_secs(10_000);
    let wait_most = Duration::from_secs(1);
    let bounds =
        Bounds { forks: u32::MAX, age: never, forks_most: u32::MAX, age_most: never, wait_most };
    let sandbox = Sandbox::open_bounded(&settings(), bounds).unwrap();
    warm_up(&sandbox);
    let inits = || {
        let all = descendants(std::process::id()).into_iter();
        all.filter(|p| p.name == "hotcell-init").count()
    };
    assert!(holds_within(Duration::from_secs(5), || inits() > 0), "something waits");
    assert!(holds_within(Duration::from_secs(10), || inits() == 0), "nothing waits any more");
    assert_eq!(zygotes().len(), 1, "the zygote is still there");
    forked(&sandbox, Attack::script(""));
}

/// Whoever was killed while it waited is nobody's loss.
#[test]
fn killed_cells_that_waited_are_replaced() {
    let sandbox = warm();
    let inits = || -> Vec<Process> {
        let all = descendants(std::process::id()).into_iter();
        all.filter(|p| p.name == "hotcell-init").collect()
    };
    for _ in 0..5 {
        assert!(holds_within(Duration::from_secs(5), || !inits().is_empty()), "something waits");
        let killed = inits();
        killed.iter().for_each(kill_if_there);
        // One that is dying can still be let go: that run is killed, and not what waited.
        let are_dead = || {
            let mut left = inits().into_iter().filter(|p| p.state != 'Z');
            left.all(|p| killed.iter().all(|killed| killed.pid != p.pid))
        };
        assert!(holds_within(Duration::from_secs(5), are_dead), "they end");
        let outcome = run(&sandbox, Attack::script("print(6 * 7)"));
        assert_eq!((outcome.status, &*text(&outcome)), (Status::Success, "42\n"));
    }
    warm_up(&sandbox);
}

#[test]
fn a_shell_has_a_jail_that_waits() {
    let sandbox = warm();
    let waits = || run(&sandbox, Attack::shell("true")).start == Start::Ready;
    assert!(holds_within(Duration::from_secs(10), waits));
}

/// What outlives a process is not seen by the next one either.
#[test]
fn no_object_of_one_run_is_in_the_next() {
    let sandbox = warm();
    let code = r"
import ctypes, ctypes.util, os
libc = ctypes.CDLL(None, use_errno=True)
def is_made(got): return got != -1
# System V objects by a key that all would have in common; files of POSIX ones; keys.
print([is_made(libc.shmget(77, 4096, 0o1600 | 0o2000)), is_made(libc.semget(78, 1, 0o1600 | 0o2000)), is_made(libc.msgget(79, 0o1600 | 0o2000))])
print(sorted(os.listdir('/dev/shm')))
open('/dev/shm/sem.mark', 'w').write('x'); open('/dev/shm/mark', 'w').write('x')
add_key = 248
print(libc.syscall(add_key, b'user', b'mark', b'x', 1, -3), ctypes.get_errno())
print(open('/proc/keys').read() if os.path.exists('/proc/keys') else '')
";
    let first = text(&forked(&sandbox, Attack::script(code)));
    assert!(first.lines().nth(1) == Some("[]"), "{first}");
    for _ in 0..4 {
        assert_eq!(text(&forked(&sandbox, Attack::script(code))), first);
    }
}

/// A program that ends its init ends its own run only.
#[test]
fn a_job_that_kills_its_parent_costs_the_others_nothing() {
    let sandbox = warm();
    let zygote = zygotes().pop().expect("there is a zygote");
    let long = Attack::script("import time\ntime.sleep(1)\nprint('still here')");
    let long = long.start_in(&sandbox);
    for _ in 0..5 {
        let code = "import os, signal\nfor s in range(1, 65):\n    try: os.kill(os.getppid(), s); os.kill(1, s)\n    except OSError: pass\nos.kill(-1, signal.SIGKILL)\n";
        let outcome = run(&sandbox, Attack::script(code));
        assert!(is_forked(&outcome), "{outcome:?}");
    }
    assert_eq!(text(&long.wait(&mut Quiet, None).unwrap()), "still here\n");
    assert_eq!(zygotes().pop().expect("there is a zygote").pid, zygote.pid);
}

#[test]
fn what_waits_takes_little_memory() {
    let sandbox = warm();
    let waiting = || -> Vec<Process> {
        let zygote = zygotes().pop().map(|p| p.pid);
        let family = descendants(std::process::id()).into_iter();
        family
            .filter(|p| Some(p.pid) != zygote && p.file("cmdline").contains("/proc/self/fd/5"))
            .collect()
    };
    assert!(holds_within(Duration::from_secs(10), || waiting().len() >= 2), "something waits");
    let private = |process: &Process| -> u64 {
        let fields = process.file("smaps_rollup");
        let lines = fields.lines().filter(|line| line.starts_with("Private_"));
        lines.filter_map(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok()).sum()
    };
    // The init and the program's process of one cell.
    let waiting = waiting();
    let each = waiting.iter().map(private).sum::<u64>() / (waiting.len() as u64 / 2);
    assert!(each < 3000, "{each} kB");
    drop(sandbox);
}
