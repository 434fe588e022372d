//! One process whose Python runs are forked from an interpreter that had started.

use std::ffi::OsStr;
use std::time::{Duration, Instant};

use hotcell_sandbox::lang::{self, Host, Language};
use hotcell_sandbox::{Holes, Input, Job, Network, Sandbox, Settings, Sink, Stdin, in_memory};
use hotcell_types::{Level, Limits, Outcome, Profile, Start, Status, Template};

use crate::Stages;
use crate::census::{self, Census, home};

/// Runs after which everything that is made once has been made.
const WARM: usize = 30;

/// Leaves whatever a program can leave.
const CLUTTER: &str = "import ctypes, fcntl, os, socket, threading, time
libc = ctypes.CDLL(None)
libc.shmget(1, 4096, 0o1600); libc.semget(2, 1, 0o1600); libc.msgget(3, 0o1600)
for _ in range(3):
    if os.fork() == 0: os.setsid(); time.sleep(1000)
for n in range(20): open(f'/work/{n}', 'w').write('x'); open(f'/tmp/{n}', 'w')
s = socket.socket(socket.AF_UNIX); s.bind('/tmp/socket'); s.listen()
open('/dev/shm/x', 'w').write('x'); f = open('/work/0'); fcntl.flock(f, fcntl.LOCK_EX)
threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
held = bytearray(20 << 20)
raise SystemExit(3)
";

struct Quiet;
impl Sink for Quiet {
    fn stdout(&mut self, _: &[u8]) {}
    fn stderr(&mut self, _: &[u8]) {}
}

fn job(code: &str) -> Job {
    let limits: Limits = Template::DEFAULT.limits;
    let name = OsStr::new("main.py");
    Job {
        command: lang::script(&Host::of_this_process(), Language::Python, name, &[]).unwrap(),
        env: lang::runtime_env(&limits),
        stdin: Stdin::Empty,
        inputs: vec![Input { name: name.into(), file: in_memory(code.as_bytes()).unwrap() }],
        working_copy: None,
        limits,
        profile: Profile::Standard,
        network: Network::None,
        holes: Holes::default(),
    }
}

fn run(sandbox: &Sandbox, code: &str) -> Outcome {
    sandbox.start(job(code)).unwrap().wait(&mut Quiet, None).unwrap()
}

fn is_forked(outcome: &Outcome) -> bool {
    matches!(outcome.start, Start::Forked | Start::Waiting)
}

/// Mostly nothing, now and then everything. Tells how many were forked.
fn run_many(sandbox: &Sandbox, count: usize) -> usize {
    let one = |number: usize| {
        let clutters = number.is_multiple_of(50);
        let (code, expected) =
            if clutters { (CLUTTER, Status::Failure) } else { ("", Status::Success) };
        let outcome = run(sandbox, code);
        assert_eq!(outcome.status, expected, "{outcome:?}");
        is_forked(&outcome)
    };
    (1..=count).map(one).filter(|is_forked| *is_forked).count()
}

/// Runs until there is one zygote that is not about to be replaced, and the cells that wait are its own.
fn settle(sandbox: &Sandbox) {
    let deadline = Instant::now() + Duration::from_secs(30);
    let mut forked = 0;
    // One that was replaced stays until the next run is forked from the other.
    while forked < 10 || census::zygotes().len() != 1 {
        assert!(Instant::now() < deadline, "nothing is ever forked");
        forked = if is_forked(&run(sandbox, "")) { forked + 1 } else { 0 };
        std::thread::sleep(Duration::from_millis(50));
    }
}

pub(crate) fn stages(stages: &mut Stages, runs: usize) {
    let settings = Settings { minimum: Level::NoProc, home: home().to_owned() };
    // What is made once and kept for the life of the process is made now.
    let first = Sandbox::open(&settings).unwrap();
    settle(&first);
    drop(first);
    let start = Census::settled();
    let mut sandbox = None;
    let opened = sandbox.insert(Sandbox::open(&settings).unwrap());
    run_many(opened, WARM);
    settle(opened);
    let warm = Census::settled();
    let mut forked = 0;
    stages.from(&format!("{runs} forked runs in a row"), &warm, || {
        forked = run_many(opened, runs);
        settle(opened);
    });
    // The others were executed while there was no zygote, which its bounds bring about now and then.
    let most = forked * 10 >= runs * 9;
    stages.check("forked runs", most, &format!("only {forked} of {runs} were forked"));
    stages.from("forked runs that are dropped or cancelled", &warm, || {
        for _ in 0..(runs / 20).max(3) {
            let sleep = "import time; time.sleep(100)";
            drop(opened.start(job(sleep)).unwrap());
            let running = opened.start(job(sleep)).unwrap();
            running.handle().cancel();
            let ended = running.wait(&mut Quiet, None).unwrap();
            assert_eq!(ended.status, Status::Cancelled);
        }
        settle(opened);
    });
    stages.from("kill -9 of zygotes, and what they are replaced by", &warm, || {
        for _ in 0..(runs / 50).clamp(3, 100) {
            census::zygotes().into_iter().for_each(census::kill);
            assert_eq!(run(opened, "").status, Status::Success);
            settle(opened);
        }
    });
    stages.from("everything, once the warm sandbox is closed", &start, || drop(sandbox.take()));
}
