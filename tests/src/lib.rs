//! What the tests share: attacks, canaries, and looks at the host.
//!
//! An attack is a program that tries things and prints one line `name=answer` for each. A test runs
//! it twice: in the full sandbox, where every answer must be the expected refusal, and without the
//! set of layers that stops it, where it must succeed. Without the second run the first proves
//! nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{Seek, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use hotcell_sandbox::{
    Command, Holes, Input, Job, Network, Refusal, Running, Sandbox, Settings, Sink, Stdin,
};
use hotcell_types::{Level, Limits, Outcome, Profile, Span, Start, Template};

pub use hotcell_sandbox::hole;

/// Put in front of every Python attack.
const PRELUDE: &str = include_str!("prelude.py");

/// The distribution's own: behind no shim, and seen by every run.
const PYTHON: &str = "/usr/bin/python3";

/// How much longer than its deadline a run may take as a whole.
pub const GRACE: Duration = Duration::from_secs(1);

/// Output is kept by the outcome; nobody listens meanwhile.
#[derive(Debug)]
pub struct Quiet;

impl Sink for Quiet {
    fn stdout(&mut self, _: &[u8]) {}
    fn stderr(&mut self, _: &[u8]) {}
}

pub fn settings() -> Settings {
    Settings { minimum: Level::NoProc, home: home() }
}

/// A home that is this process's own.
fn home() -> PathBuf {
    std::env::temp_dir().join(format!("hotcell-tests-{}", std::process::id()))
}

/// Ids that runs are given.
pub const RUN_IDS: std::ops::Range<u32> = 0x7100_0000..0x7101_0000;

/// Where everybody can write.
pub const SHARED_PLACES: [&str; 5] = ["/tmp", "/var/tmp", "/dev/shm", "/dev/mqueue", "/run"];

/// The sandbox as it is shipped, but for the launcher's switch.
pub fn sandbox() -> &'static Sandbox {
    static SANDBOX: OnceLock<Sandbox> = OnceLock::new();
    SANDBOX.get_or_init(|| {
        let sandbox = Sandbox::open(&settings()).expect("this host can run a sandbox");
        if let Ok(level) = std::env::var("HOTCELL_TEST_LEVEL") {
            assert_eq!(sandbox.level().to_string(), level, "what is tested is that level");
        }
        if is_warm() {
            warm_up(&sandbox);
        }
        sandbox
    })
}

/// Whether attacks in Python are forked from an interpreter that has started, as in a process that stays.
pub fn is_warm() -> bool {
    std::env::var_os("HOTCELL_WARM").is_some()
}

pub fn is_forked(outcome: &Outcome) -> bool {
    matches!(outcome.start, Start::Forked | Start::Waiting)
}

/// Runs something until it is forked.
pub fn warm_up(sandbox: &Sandbox) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !is_forked(&Attack::script("").start_in(sandbox).wait(&mut Quiet, None).unwrap()) {
        assert!(Instant::now() < deadline, "nothing is ever forked");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The same with the host's root at /host, which is what the new root keeps away.
fn sandbox_with_host() -> &'static Sandbox {
    static SANDBOX: OnceLock<Sandbox> = OnceLock::new();
    SANDBOX.get_or_init(|| Sandbox::open_with_host(&settings()).expect("this host can run one"))
}

/// A program, what it may see, and which layers are left out.
#[derive(Debug)]
pub struct Attack {
    pub job: Job,
    sees_host: bool,
    outputs: Option<PathBuf>,
}

impl Attack {
    /// Python, with the helpers of the prelude.
    pub fn python(code: &str) -> Attack {
        let code = format!("{PRELUDE}{code}");
        if is_warm() {
            return Attack::script(&code);
        }
        Attack::in_arguments(&code)
    }

    /// The same, always executed: its code is what it is found by from outside.
    pub fn executed(code: &str) -> Attack {
        Attack::in_arguments(&format!("{PRELUDE}{code}"))
    }

    fn in_arguments(code: &str) -> Attack {
        Attack::program(PYTHON, &["python3", "-I", "-c", code])
    }

    /// Python as `hotcell run FILE` starts it, without the prelude: forked, once there is something to be
    /// forked from.
    pub fn script(code: &str) -> Attack {
        let attack = Attack::program(PYTHON, &[PYTHON, "-u", "/work/main.py"]);
        let mut attack = attack.input("main.py", code.as_bytes());
        attack.job.command.forks = true;
        attack
    }

    pub fn shell(code: &str) -> Attack {
        Attack::program("/bin/sh", &["sh", "-c", code])
    }

    pub fn program(program: impl Into<PathBuf>, args: &[&str]) -> Attack {
        let command = Command {
            program: program.into(),
            args: args.iter().map(OsString::from).collect(),
            read_only: vec![],
            tree: None,
            note: None,
            forks: false,
        };
        let limits = Limits { timeout: Span::seconds(30), ..Template::DEFAULT.limits };
        let env = [("PATH", "/usr/bin:/bin:/usr/sbin:/sbin"), ("HOME", "/tmp")];
        let job = Job {
            command,
            env: env.map(|(key, value)| (key.into(), value.into())).into(),
            stdin: Stdin::Empty,
            inputs: vec![],
            working_copy: None,
            limits,
            profile: Profile::Standard,
            network: Network::None,
            holes: Holes::default(),
        };
        Attack { job, sees_host: false, outputs: None }
    }

    /// With sockets that listen inside, and come out.
    pub fn proxied(mut self) -> Attack {
        self.job.network = Network::Proxied;
        self
    }

    /// Leaves out layers: bits of [`hole`].
    pub fn without(mut self, layers: u32) -> Attack {
        self.job.holes.layers |= layers;
        self
    }

    pub fn without_seccomp(mut self) -> Attack {
        self.job.holes.seccomp = true;
        self
    }

    /// The run has the id of this process outside.
    pub fn without_own_id(mut self) -> Attack {
        self.job.holes.own_id = true;
        self
    }

    pub fn without_cgroup(mut self) -> Attack {
        self.job.holes.cgroup = true;
        self
    }

    /// The host's root is at /host: the new root is left out.
    pub fn without_root(mut self) -> Attack {
        self.sees_host = true;
        self
    }

    pub fn profile(mut self, profile: Profile) -> Attack {
        self.job.profile = profile;
        self
    }

    pub fn limits(mut self, change: impl FnOnce(&mut Limits)) -> Attack {
        change(&mut self.job.limits);
        self
    }

    pub fn timeout(self, millis: u32) -> Attack {
        self.limits(|limits| limits.timeout = Span::millis(millis))
    }

    pub fn env(mut self, key: &str, value: &str) -> Attack {
        self.job.env.insert(key.into(), value.into());
        self
    }

    pub fn stdin(mut self, file: File) -> Attack {
        self.job.stdin = Stdin::From(file);
        self
    }

    pub fn input(self, name: &str, content: &[u8]) -> Attack {
        self.input_with(name, content, 0o644)
    }

    pub fn input_with(mut self, name: &str, content: &[u8], mode: u32) -> Attack {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(content).unwrap();
        file.rewind().unwrap();
        file.set_permissions(fs::Permissions::from_mode(mode)).unwrap();
        self.job.inputs.push(Input { name: name.into(), file });
        self
    }

    pub fn shows(mut self, path: &Path) -> Attack {
        self.job.command.read_only.push(path.to_path_buf());
        self
    }

    /// Artifacts are copied there.
    pub fn outputs(mut self, dir: &Path) -> Attack {
        self.outputs = Some(dir.to_path_buf());
        self
    }

    pub fn start(self) -> Result<Running, Refusal> {
        let sandbox = if self.sees_host { sandbox_with_host() } else { sandbox() };
        sandbox.start(self.job)
    }

    /// Starts it with a launcher that no other test shares.
    pub fn start_in(self, sandbox: &Sandbox) -> Running {
        sandbox.start(self.job).unwrap_or_else(|refusal| panic!("it did not start: {refusal:?}"))
    }

    pub fn try_run(mut self) -> Result<Outcome, Refusal> {
        let outputs = self.outputs.take();
        self.start()?.wait(&mut Quiet, outputs.as_deref())
    }

    pub fn run(self) -> Outcome {
        self.try_run().unwrap_or_else(|refusal| panic!("the attack did not run: {refusal:?}"))
    }

    /// Runs it and reads its answers.
    pub fn answers(self) -> Answers {
        Answers::of(&self.run())
    }
}

/// What an attack said about each thing that it tried.
#[derive(Debug)]
pub struct Answers {
    by_name: BTreeMap<String, String>,
    context: String,
}

impl Answers {
    pub fn of(outcome: &Outcome) -> Answers {
        let lines = text(outcome);
        let pairs = lines.lines().filter_map(|line| line.split_once('='));
        let by_name = pairs.map(|(name, answer)| (name.into(), answer.into())).collect();
        let stderr = String::from_utf8_lossy(&outcome.stderr.bytes).into_owned();
        let context = format!("{:?} {:?}\n{lines}\n{stderr}", outcome.status, outcome.exit);
        Answers { by_name, context }
    }

    pub fn get(&self, name: &str) -> &str {
        match self.by_name.get(name) {
            Some(answer) => answer,
            None => panic!("the attack says nothing about `{name}`: {}", self.context),
        }
    }

    pub fn number(&self, name: &str) -> u64 {
        self.get(name).parse().unwrap_or_else(|_| panic!("`{name}` is no number: {}", self.context))
    }

    /// `wanted` is one answer, or several with `|` between.
    #[track_caller]
    pub fn is(&self, name: &str, wanted: &str) -> &Answers {
        let answer = self.get(name);
        let good = wanted.split('|').any(|one| one == answer);
        assert!(good, "`{name}` is `{answer}`, not `{wanted}`: {}", self.context);
        self
    }

    #[track_caller]
    pub fn are(&self, wanted: &[(&str, &str)]) -> &Answers {
        for (name, answer) in wanted {
            self.is(name, answer);
        }
        self
    }

    /// Everything that was tried has one of these answers.
    #[track_caller]
    pub fn all(&self, wanted: &str) -> &Answers {
        assert!(!self.by_name.is_empty(), "the attack says nothing: {}", self.context);
        for name in self.by_name.keys() {
            self.is(name, wanted);
        }
        self
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.by_name.iter().map(|(name, answer)| (name.as_str(), answer.as_str()))
    }
}

pub fn text(outcome: &Outcome) -> String {
    String::from_utf8_lossy(&outcome.stdout.bytes).into_owned()
}

/// Everything that left the run by any way, for the search for canaries.
pub fn everything(outcome: &Outcome) -> String {
    let json = serde_json::to_string(outcome).unwrap();
    format!("{}{}{json}", text(outcome), String::from_utf8_lossy(&outcome.stderr.bytes))
}

/// A secret on the host, in a place that runs must not see. Removed when dropped.
#[derive(Debug)]
pub struct Canary {
    pub dir: PathBuf,
    pub token: String,
}

impl Canary {
    /// `public` can be read by everybody, `secret` by its owner only.
    pub fn plant() -> Canary {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("hotcell-canary-{}-{count}", std::process::id());
        let dir = host_place().join(name);
        fs::create_dir(&dir).unwrap();
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o755)).unwrap();
        let canary = Canary { token: token(), dir };
        for (name, mode) in [("public", 0o644), ("secret", 0o600)] {
            fs::write(canary.dir.join(name), &canary.token).unwrap();
            let mode = fs::Permissions::from_mode(mode);
            fs::set_permissions(canary.dir.join(name), mode).unwrap();
        }
        canary
    }

    pub fn public(&self) -> PathBuf {
        self.dir.join("public")
    }

    pub fn secret(&self) -> PathBuf {
        self.dir.join("secret")
    }

    /// Where a run without the new root finds it.
    pub fn at_host(&self, name: &str) -> String {
        format!("/host{}", self.dir.join(name).display())
    }

    #[track_caller]
    pub fn is_unseen_in(&self, outcome: &Outcome) {
        let seen = everything(outcome);
        assert!(!seen.contains(&self.token), "the canary got out: {seen}");
    }

    /// What an attack could have changed about its files.
    pub fn state(&self) -> Vec<(PathBuf, u32, u32, i64, Vec<u8>)> {
        let files = [self.public(), self.secret()];
        let describe = |path: PathBuf| {
            let m = fs::symlink_metadata(&path).unwrap();
            let content = fs::read(&path).unwrap();
            (path, m.mode(), m.uid(), m.mtime(), content)
        };
        files.map(describe).to_vec()
    }
}

impl Drop for Canary {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.dir) {
            eprintln!("{} stays: {error}", self.dir.display());
        }
    }
}

/// A directory on the file system of the host's root: that is what /host shows.
pub fn host_place() -> PathBuf {
    let root = fs::metadata("/").unwrap().dev();
    let places = ["/srv", "/var/lib", "/var/tmp", "/tmp"].map(PathBuf::from);
    let fits = |place: &PathBuf| {
        let same = fs::metadata(place).is_ok_and(|m| m.dev() == root);
        same && tempfile::tempfile_in(place).is_ok()
    };
    places.into_iter().find(fits).expect("a place to write on the root file system")
}

/// Random enough to be found nowhere by chance, and hard to be made by formatting.
pub fn token() -> String {
    let mut bytes = [0; 12];
    let mut source = File::open("/dev/urandom").unwrap();
    std::io::Read::read_exact(&mut source, &mut bytes).unwrap();
    let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("canary{digits}")
}

/// Whether this is root. If not, says so where nobody can miss it.
pub fn is_root_for(test: &str) -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        skip(test, "it needs root");
    }
    root
}

/// Written past the test harness, which would swallow it.
pub fn skip(test: &str, why: &str) {
    let line = format!("\nSKIPPED {test}: {why}\n");
    std::io::stderr().write_all(line.as_bytes()).ok();
}

/// Compiles a C program, statically. `None`, loudly, where there is no compiler.
pub fn compile(test: &str, source: &str, flags: &[&str]) -> Option<Vec<u8>> {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (dir.path().join("a.c"), dir.path().join("a.out"));
    fs::write(&from, source).unwrap();
    let made = std::process::Command::new("gcc")
        .args(["-O1", "-static", "-o"])
        .args([&to, &from])
        .args(flags)
        .output();
    match made {
        Ok(made) if made.status.success() => Some(fs::read(to).unwrap()),
        Ok(made) => panic!("gcc: {}", String::from_utf8_lossy(&made.stderr)),
        Err(error) => {
            skip(test, &format!("there is no gcc here: {error}"));
            None
        }
    }
}

/// Runs `work` and says how long it took.
pub fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let begun = Instant::now();
    let done = work();
    (done, begun.elapsed())
}

/// Waits until something holds; `false` when it did not within `most`.
pub fn holds_within(most: Duration, mut holds: impl FnMut() -> bool) -> bool {
    let begun = Instant::now();
    while !holds() {
        if begun.elapsed() > most {
            return false;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    true
}

/// How much a soak test does.
pub fn soak(default: usize) -> usize {
    let wanted = std::env::var("HOTCELL_SOAK").ok().and_then(|n| n.parse().ok());
    wanted.unwrap_or(default)
}

/// A process of the host.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Process {
    pub pid: u32,
    pub parent: u32,
    /// With the pid, the same for no two processes.
    pub started: u64,
    pub name: String,
    pub state: char,
}

impl Process {
    fn read(pid: u32) -> Option<Process> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let (head, rest) = stat.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        Some(Process {
            pid,
            parent: fields.get(1)?.parse().ok()?,
            started: fields.get(19)?.parse().ok()?,
            name: head.split_once('(')?.1.to_owned(),
            state: fields.first()?.chars().next()?,
        })
    }

    pub fn file(&self, name: &str) -> String {
        let bytes = fs::read(format!("/proc/{}/{name}", self.pid)).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    pub fn status(&self, field: &str) -> String {
        let text = self.file("status");
        let line = text.lines().find_map(|line| line.strip_prefix(field));
        line.unwrap_or_default().trim().to_owned()
    }
}

pub fn processes() -> Vec<Process> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter_map(Process::read).collect()
}

/// Everything below a process, itself not among them.
pub fn descendants(of: u32) -> Vec<Process> {
    let all = processes();
    let mut family = BTreeSet::from([of]);
    loop {
        let more: Vec<u32> = all
            .iter()
            .filter(|p| family.contains(&p.parent) && !family.contains(&p.pid))
            .map(|p| p.pid)
            .collect();
        if more.is_empty() {
            break;
        }
        family.extend(more);
    }
    all.into_iter().filter(|p| p.pid != of && family.contains(&p.pid)).collect()
}

/// Processes with a token in their arguments. The helper that carries it is not one of them.
pub fn with_token(token: &str) -> Vec<Process> {
    let has = |p: &Process| p.pid != std::process::id() && p.file("cmdline").contains(token);
    processes().into_iter().filter(|p| has(p) && p.name != "victim").collect()
}

/// What is on the host now, of what a run could leave. Each item is told from all others, so that
/// what is there afterwards and was not before can be named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    items: BTreeSet<String>,
}

impl Snapshot {
    pub fn take() -> Snapshot {
        let mut items = BTreeSet::new();
        let me = std::process::id();
        for p in descendants(me) {
            items.insert(format!("process {} {} {}", p.pid, p.started, p.name));
        }
        let lines = |path: &str| fs::read_to_string(path).unwrap_or_default();
        for line in lines("/proc/self/mountinfo").lines() {
            items.insert(format!("mount {line}"));
        }
        for group in cgroups() {
            items.insert(format!("cgroup {}", group.display()));
        }
        for (inode, of) in network_namespaces() {
            items.insert(format!("network namespace {inode}{of}"));
        }
        for kind in ["shm", "sem", "msg"] {
            for line in lines(&format!("/proc/sysvipc/{kind}")).lines().skip(1) {
                let id: Vec<&str> = line.split_whitespace().take(2).collect();
                items.insert(format!("{kind} {}", id.join(" ")));
            }
        }
        for fd in fs::read_dir("/proc/self/fd").unwrap().flatten() {
            let to = fs::read_link(fd.path()).unwrap_or_default();
            items.insert(format!("descriptor {} {}", fd.file_name().display(), to.display()));
        }
        // Ours by the place, or by the id of a run.
        for entry in
            ["/run/hotcell".into(), home()].iter().flat_map(fs::read_dir).flatten().flatten()
        {
            items.insert(format!("file {}", entry.path().display()));
        }
        for entry in SHARED_PLACES.iter().flat_map(fs::read_dir).flatten().flatten() {
            if entry.metadata().is_ok_and(|m| RUN_IDS.contains(&m.uid())) {
                items.insert(format!("file {}", entry.path().display()));
            }
        }
        Snapshot { items }
    }

    /// What is there now and was not then. Others may use this host at the same time, so that only
    /// what stays counts.
    pub fn left_over(&self) -> Vec<String> {
        /// Longer than any neighbour's run of these tests lasts, and than the kernel takes to free
        /// what has ended.
        const MOST: Duration = Duration::from_secs(8);
        let mut left: BTreeSet<String> = BTreeSet::new();
        let mut first = true;
        holds_within(MOST, || {
            let new: BTreeSet<String> =
                Snapshot::take().items.difference(&self.items).cloned().collect();
            left = if first { new } else { left.intersection(&new).cloned().collect() };
            first = false;
            left.is_empty()
        });
        left.into_iter().collect()
    }
}

/// hotcell's cgroups in every hierarchy, but for those that belong to a living process that is not
/// ours: others may use this host too.
fn cgroups() -> Vec<PathBuf> {
    let owners = lock_owners();
    let mine: BTreeSet<u32> = descendants(std::process::id()).iter().map(|p| p.pid).collect();
    let is_others = |path: &Path| {
        let owner = fs::metadata(path).ok().and_then(|m| owners.get(&m.ino()).copied());
        owner.is_some_and(|pid| {
            let ours = pid == std::process::id() || mine.contains(&pid);
            !ours && Process::read(pid).is_some()
        })
    };
    let mut found = Vec::new();
    let mut open = vec![(PathBuf::from("/sys/fs/cgroup"), false, 0)];
    while let Some((dir, inside, depth)) = open.pop() {
        for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
            let path = entry.path();
            if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                continue;
            }
            let named = entry.file_name().to_string_lossy().starts_with("hotcell-");
            if named && is_others(&path) {
                continue;
            }
            if named || inside {
                found.push(path.clone());
            }
            if depth < 8 {
                open.push((path, inside || named, depth + 1));
            }
        }
    }
    found
}

/// Which process holds a lock on which inode.
fn lock_owners() -> BTreeMap<u64, u32> {
    let text = fs::read_to_string("/proc/locks").unwrap_or_default();
    let owner = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().filter(|word| *word != "->").collect();
        let pid = fields.get(4)?.parse().ok()?;
        let inode = fields.get(5)?.rsplit(':').next()?.parse().ok()?;
        Some((inode, pid))
    };
    text.lines().filter_map(owner).collect()
}

/// Kernel objects that no list shows, by number: keys of this user and namespaces. Others make and
/// drop theirs meanwhile, so that only growth in step with what was done means anything.
pub fn kernel_counts() -> BTreeMap<&'static str, u64> {
    let mut counts = BTreeMap::new();
    let keys = fs::read_to_string("/proc/keys").unwrap_or_default();
    counts.insert("keys", keys.lines().count() as u64);
    let slabs = fs::read_to_string("/proc/slabinfo").unwrap_or_default();
    for name in ["net_namespace", "pid_namespace", "user_namespace", "mnt_cache"] {
        let line = slabs.lines().find(|line| line.split_whitespace().next() == Some(name));
        let active = line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok());
        counts.extend(active.map(|active| (name, active)));
    }
    counts
}

/// By inode, with the processes in them that are ours.
fn network_namespaces() -> BTreeMap<u64, String> {
    let mut found: BTreeMap<u64, String> = BTreeMap::new();
    for p in descendants(std::process::id()) {
        if let Ok(m) = fs::metadata(format!("/proc/{}/ns/net", p.pid)) {
            found.entry(m.ino()).or_default();
        }
    }
    found
}
