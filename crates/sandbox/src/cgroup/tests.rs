//! Against the real cgroups of the machine. `legacy` hides the v2 hierarchy from the same code, so
//! that both ways of freezing, killing and counting are tried where both exist.

use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsRawFd;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use hotcell_types::{Bytes, Count, Cpus, Span};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tempfile::TempDir;

use super::dir::Dir;
use super::find::Roles;
use super::parse::{Mount, Version};
use super::*;

pub(super) const LIMITS: Limits = Limits {
    memory: Bytes::mib(64),
    cpu: Cpus::thousandths(1000),
    pids: Count::of(32),
    timeout: Span::seconds(10),
    cpu_time: None,
    disk: Bytes::mib(64),
    file_size: None,
    files: Count::of(1000),
    open_files: Count::of(64),
    output: Bytes::kib(64),
};

/// How long a test waits for what has to come.
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    AsIs,
    Legacy,
}

/// `None`, loudly, where the machine cannot give what the test needs.
fn cgroups(kind: Kind, test: &str) -> Option<Cgroups> {
    let found = match kind {
        Kind::AsIs => Cgroups::find(),
        Kind::Legacy => legacy(),
    };
    found.map_err(|e| eprintln!("SKIPPED {test} ({kind:?}): {e}")).ok()
}

fn legacy() -> Result<Cgroups, Unavailable> {
    let dir = tempfile::tempdir().unwrap();
    let without = |file: &str, mark: &str| {
        let text = std::fs::read_to_string(format!("/proc/self/{file}")).unwrap();
        let kept: Vec<&str> = text.lines().filter(|l| !l.contains(mark)).collect();
        std::fs::write(dir.path().join(file), kept.join("\n")).unwrap();
    };
    without("mountinfo", " - cgroup2 ");
    without("cgroup", "0::");
    Cgroups::find_on(&Host::fake(dir.path(), &dir.path().join("no-systemd")))
}

/// An empty directory of one test in each of the usual places. Others come and go in those, and sweep
/// them; here a test can count. `proc_self` leads whoever looks there to these bases.
struct Bases {
    paths: Vec<PathBuf>,
    proc_self: TempDir,
}

impl Bases {
    fn make(kind: Kind, test: &str) -> Option<Bases> {
        let usual = cgroups(kind, test)?;
        let name = format!("{test}-{kind:?}-{}", std::process::id());
        let proc_self = tempfile::tempdir().unwrap();
        std::fs::copy("/proc/self/mountinfo", proc_self.path().join("mountinfo")).unwrap();
        let mounts = parse::mounts(&std::fs::read("/proc/self/mountinfo").unwrap());
        let mut bases = Bases { paths: Vec::new(), proc_self };
        let mut own = String::new();
        for (number, hierarchy) in usual.hierarchies.iter().enumerate() {
            let path = hierarchy.path.join(&name);
            std::fs::create_dir(&path).unwrap();
            let shows = |m: &&Mount| path.starts_with(&m.point);
            let mount = mounts.iter().filter(shows).max_by_key(|m| m.point.as_os_str().len());
            let mount = mount.unwrap();
            let within = mount.root.join(path.strip_prefix(&mount.point).unwrap());
            let (number, controllers) = match hierarchy.version {
                Version::V1 => (number + 1, hierarchy.roles.iter().map(Role::controller).collect()),
                Version::V2 => (0, Vec::new()),
            };
            own += &format!("{number}:{}:{}\n", controllers.join(","), within.display());
            bases.paths.push(path);
        }
        std::fs::write(bases.proc_self.path().join("cgroup"), own).unwrap();
        Some(bases)
    }

    fn cgroups(&self) -> Cgroups {
        cgroups_at(self.proc_self.path()).unwrap()
    }
}

impl Drop for Bases {
    fn drop(&mut self) {
        for path in &self.paths {
            let removed = std::fs::remove_dir(path);
            assert!(thread::panicking() || removed.is_ok(), "{}: {removed:?}", path.display());
        }
    }
}

fn cgroups_at(proc_self: &Path) -> Result<Cgroups, Unavailable> {
    Cgroups::find_on(&Host::fake(proc_self, Path::new("/nonexistent")))
}

/// Only the v2 hierarchy, without controllers where v1 has them.
fn unified(test: &str) -> Option<Cgroups> {
    let points = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"];
    let point = points.iter().find(|p| Path::new(p).join("cgroup.subtree_control").exists());
    let base = point.and_then(|p| Dir::open(Path::new(p)).ok());
    let base = base.filter(|b| b.writable(c".").is_ok());
    let Some((path, base)) = point.zip(base) else {
        eprintln!("SKIPPED {test}: needs root and a v2 hierarchy");
        return None;
    };
    let roles = Roles::of_one(Role::Freezer).with(Role::Usage);
    let hierarchy = Hierarchy { version: Version::V2, roles, base, path: path.into() };
    let hierarchies = Arc::new(vec![hierarchy]);
    Some(Cgroups { hierarchies, parent: Mutex::default(), next: AtomicU64::new(1) })
}

fn each_kind(test: &str, check: impl Fn(&Cgroups)) {
    for kind in [Kind::AsIs, Kind::Legacy] {
        let Some(cgroups) = cgroups(kind, test) else { continue };
        check(&cgroups);
        let left = directories(&cgroups);
        drop(cgroups);
        for path in left {
            assert!(!path.exists(), "{} was left", path.display());
        }
    }
}

/// The parents of this process, by way of their descriptors.
fn directories(cgroups: &Cgroups) -> Vec<PathBuf> {
    let path = |fd: &OwnedFd| std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd()));
    cgroups.keep_alive_fds().unwrap().iter().map(|fd| path(fd).unwrap()).collect()
}

/// A shell that waits outside until it is placed, and then runs `script`.
fn spawn_in(cgroup: &Cgroup, script: &str) -> Child {
    let mut child = Command::new("sh")
        .arg("-c")
        .arg(format!("read go\n{script}"))
        .stdin(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let pid = child.id().to_string();
    let Entry { born, joins } = cgroup.entry();
    assert!(born.is_some() || !joins.is_empty());
    joins.iter().for_each(|tasks| dir::write_all(*tasks, pid.as_bytes()).unwrap());
    if let Some(dir) = born {
        let path = format!("/proc/self/fd/{}/cgroup.procs", dir.as_raw_fd());
        std::fs::write(path, pid).unwrap();
    }
    child.stdin.take().unwrap().write_all(b"go\n").unwrap();
    child
}

fn eventually(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "{what} did not come true");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn finding_says_where_or_what_is_missing() {
    match Cgroups::find() {
        Ok(found) => {
            let all: Vec<String> = found.places().map(|p| p.0).collect();
            let all = all.join(",");
            for controller in ["memory", "pids", "cpu"] {
                assert!(all.split(',').any(|c| c == controller), "{all}");
            }
        }
        Err(unavailable) => {
            assert!(!unavailable.missing.is_empty());
            assert!(unavailable.missing.iter().all(|m| !m.why.is_empty() && !m.fix.is_empty()));
            eprintln!("{unavailable}");
        }
    }
}

#[test]
fn memory_hog_is_killed_and_counted() {
    each_kind("memory_hog_is_killed_and_counted", |cgroups| {
        let limits = Limits { memory: Bytes::mib(24), ..LIMITS };
        let cgroup = cgroups.create(&limits).unwrap();
        let mut hog = spawn_in(&cgroup, "exec tail /dev/zero");
        assert_eq!(hog.wait().unwrap().signal(), Some(9));
        let stats = cgroup.stats();
        assert!(stats.oom_kills >= Some(1), "{stats:?}");
        let peak = stats.memory_peak.unwrap();
        assert!((16 << 20..=24 << 20).contains(&peak), "{stats:?}");
        assert!(stats.cpu_us > Some(0), "{stats:?}");
        cgroup.remove().unwrap();
        cgroup.remove().unwrap();
    });
}

#[test]
fn forks_beyond_the_limit_fail_and_are_counted() {
    each_kind("forks_beyond_the_limit_fail_and_are_counted", |cgroups| {
        let limits = Limits { pids: Count::of(4), ..LIMITS };
        let cgroup = cgroups.create(&limits).unwrap();
        let mut bomb = spawn_in(&cgroup, "for i in 1 2 3 4 5 6 7 8; do sleep 60 & done; wait");
        assert!(!bomb.wait().unwrap().success());
        let stats = cgroup.stats();
        assert!(stats.pids_max_hits >= Some(1), "{stats:?}");
        assert!(stats.pids_peak.is_none_or(|peak| peak == 4), "{stats:?}");
        cgroup.kill().unwrap();
        cgroup.remove().unwrap();
    });
}

#[test]
fn cpu_time_is_held_to_the_share() {
    each_kind("cpu_time_is_held_to_the_share", |cgroups| {
        let limits = Limits { cpu: Cpus::thousandths(100), ..LIMITS };
        let cgroup = cgroups.create(&limits).unwrap();
        let mut spinner = spawn_in(&cgroup, "while :; do :; done");
        thread::sleep(Duration::from_millis(600));
        let used = cgroup.cpu_used().unwrap();
        // A tenth, with a period's grace at both ends.
        assert!((20..=90).contains(&used.as_millis()), "{used:?}");
        cgroup.kill().unwrap();
        assert_eq!(spinner.wait().unwrap().signal(), Some(9));
    });
}

fn freezing_stops(cgroup: &Cgroup) {
    let mut spinner = spawn_in(cgroup, "while :; do :; done");
    eventually("spinning", || cgroup.cpu_used() > Some(Duration::from_millis(10)));
    cgroup.freeze().unwrap();
    let before = cgroup.cpu_used().unwrap();
    thread::sleep(Duration::from_millis(60));
    assert_eq!(cgroup.cpu_used().unwrap(), before);
    cgroup.thaw().unwrap();
    eventually("going on", || cgroup.cpu_used().unwrap() > before);
    cgroup.freeze().unwrap();
    cgroup.kill().unwrap();
    assert_eq!(spinner.wait().unwrap().signal(), Some(9));
    cgroup.remove().unwrap();
}

#[test]
fn freezing_stops_progress_and_the_frozen_can_be_killed() {
    each_kind("freezing_stops_progress_and_the_frozen_can_be_killed", |cgroups| {
        freezing_stops(&cgroups.create(&LIMITS).unwrap());
    });
    if let Some(cgroups) = unified("freezing_stops_progress_and_the_frozen_can_be_killed") {
        freezing_stops(&cgroups.create(&LIMITS).unwrap());
    }
}

#[test]
fn frozen_members_die_after_a_thaw() {
    each_kind("frozen_members_die_after_a_thaw", |cgroups| {
        let cgroup = cgroups.create(&LIMITS).unwrap();
        let mut sleeper = spawn_in(&cgroup, "exec sleep 60");
        cgroup.freeze().unwrap();
        sleeper.kill().unwrap();
        cgroup.thaw().unwrap();
        assert_eq!(sleeper.wait().unwrap().signal(), Some(9));
        cgroup.kill().unwrap();
        cgroup.remove().unwrap();
    });
}

#[test]
fn killing_takes_daemons_too() {
    let check = |cgroups: &Cgroups| {
        let cgroup = cgroups.create(&LIMITS).unwrap();
        let script = "for i in 1 2 3 4 5; do (setsid sleep 60 &) ; done; exec sleep 60";
        let mut child = spawn_in(&cgroup, script);
        thread::sleep(Duration::from_millis(100));
        cgroup.kill().unwrap();
        cgroup.remove().unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(9));
    };
    each_kind("killing_takes_daemons_too", check);
    if let Some(cgroups) = unified("killing_takes_daemons_too") {
        check(&cgroups);
    }
}

#[test]
fn limits_read_back_as_the_kernel_holds_them() {
    each_kind("limits_read_back_as_the_kernel_holds_them", |cgroups| {
        let memory = Bytes::kib(1025);
        let limits = Limits { memory, cpu: Cpus::thousandths(5), ..LIMITS };
        let cgroup = cgroups.create(&limits).unwrap();
        let seen = cgroup.read_back().unwrap();
        let of = |name: &str| seen.iter().find(|s| s.0 == name).unwrap().1.clone();
        assert!(of("memory").contains("=1048576"), "{seen:?}");
        assert_eq!(of("pids"), "pids.max=32");
        assert!(of("cpu").contains("5000") && of("cpu").contains("1000000"), "{seen:?}");
        if of("memory").contains("limit_in_bytes") {
            assert!(of("memory").contains("memory.swappiness=0"), "{seen:?}");
        }
    });
}

#[test]
fn the_largest_limits_that_can_be_asked_for_are_taken() {
    each_kind("the_largest_limits_that_can_be_asked_for_are_taken", |cgroups| {
        let limits = Limits {
            memory: "9223372036854775807".parse().unwrap(),
            cpu: "4096".parse().unwrap(),
            pids: "2147483648".parse().unwrap(),
            ..LIMITS
        };
        cgroups.create(&limits).unwrap().remove().unwrap();
    });
}

#[test]
fn failed_creation_leaves_nothing() {
    let Some(cgroups) = cgroups(Kind::Legacy, "failed_creation_leaves_nothing") else { return };
    let places = directories(&cgroups);
    let quota = places.iter().map(|p| p.join("cpu.cfs_quota_us")).find(|p| p.exists()).unwrap();
    std::fs::write(quota, "10000").unwrap();
    let error = cgroups.create(&LIMITS).unwrap_err();
    assert_eq!(error.controller, "cpu");
    assert!(error.fix().contains("fewer processors"), "{}", error.fix());
    for place in places {
        let children = Dir::open(&place).unwrap().children().unwrap();
        assert!(children.is_empty(), "{} holds {children:?}", place.display());
    }
}

/// Not a test: a process of its own, whose descriptors can be taken away.
#[test]
#[ignore = "started by running_out_of_descriptors_anywhere_leaves_nothing"]
fn process_without_descriptors() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Some(bases) = std::env::var_os("HOTCELL_TEST_BASES") else { return };
    let bases: Vec<PathBuf> = std::env::split_paths(&bases).collect();
    let proc_self = PathBuf::from(std::env::var_os("HOTCELL_TEST_PROC").unwrap());
    let usual = getrlimit(Resource::Nofile);
    let free = std::fs::File::open("/proc/self/stat").unwrap().as_raw_fd() as u64;
    let (mut failed, mut made) = (0, 0);
    for more in 0..40 {
        let most = Some(free + more);
        setrlimit(Resource::Nofile, Rlimit { current: most, ..usual }).unwrap();
        let created = cgroups_at(&proc_self)
            .map_err(|e| e.to_string())
            .and_then(|c| c.create(&LIMITS).map_err(|e| e.to_string()));
        setrlimit(Resource::Nofile, usual).unwrap();
        if created.is_ok() {
            made += 1
        } else {
            failed += 1
        }
        drop(created);
        for base in &bases {
            let left = Dir::open(base).unwrap().children().unwrap();
            assert!(left.is_empty(), "with {more} more: {left:?} in {}", base.display());
        }
    }
    assert!(failed > 10 && made > 10, "{failed} failed, {made} made");
}

#[test]
fn running_out_of_descriptors_anywhere_leaves_nothing() {
    let test = "running_out_of_descriptors_anywhere_leaves_nothing";
    let Some(bases) = Bases::make(Kind::Legacy, test) else { return };
    let status = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "cgroup::tests::process_without_descriptors", "--ignored"])
        .env("HOTCELL_TEST_BASES", std::env::join_paths(&bases.paths).unwrap())
        .env("HOTCELL_TEST_PROC", bases.proc_self.path())
        .status();
    assert!(status.unwrap().success());
}

#[test]
fn a_parent_that_was_removed_is_made_anew() {
    each_kind("a_parent_that_was_removed_is_made_anew", |cgroups| {
        cgroups.create(&LIMITS).unwrap().remove().unwrap();
        for place in directories(cgroups) {
            std::fs::remove_dir(place).unwrap();
        }
        cgroups.create(&LIMITS).unwrap().remove().unwrap();
    });
}

#[test]
fn dropping_removes_even_what_is_still_running() {
    each_kind("dropping_removes_even_what_is_still_running", |cgroups| {
        let cgroup = cgroups.create(&LIMITS).unwrap();
        let mut child = spawn_in(&cgroup, "exec sleep 60");
        drop(cgroup);
        assert_eq!(child.wait().unwrap().signal(), Some(9));
    });
}

#[test]
fn many_threads_make_and_remove_at_once() {
    each_kind("many_threads_make_and_remove_at_once", |cgroups| {
        thread::scope(|s| {
            for _ in 0..4 {
                s.spawn(|| {
                    for _ in 0..10 {
                        let cgroup = cgroups.create(&LIMITS).unwrap();
                        let mut child = spawn_in(&cgroup, "exit 3");
                        assert_eq!(child.wait().unwrap().code(), Some(3));
                        cgroup.remove().unwrap();
                    }
                });
            }
        });
    });
}

const OWNER: &str = "OWNER ";

/// Not a test: the process that `sweeping_…` starts and kills. It says where its directories are and
/// who is frozen inside, and waits as long as there is somebody to kill it.
#[test]
#[ignore = "started by sweeping_removes_what_a_killed_owner_left_and_nothing_else"]
fn owner_that_gets_killed() {
    let Some(proc_self) = std::env::var_os("HOTCELL_TEST_PROC") else { return };
    let cgroups = cgroups_at(Path::new(&proc_self)).unwrap();
    let cgroup = cgroups.create(&LIMITS).unwrap();
    let mut inmate = spawn_in(&cgroup, "exec sleep 600");
    cgroup.freeze().unwrap();
    // The guard holds the lock of one hierarchy as its stdin.
    let held = cgroups.keep_alive_fds().unwrap().into_iter().next().unwrap();
    let mut guard = Command::new("sleep")
        .arg("600")
        .stdin(held)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let places: Vec<_> = directories(&cgroups).iter().map(|p| p.display().to_string()).collect();
    println!("\n{OWNER}{} {} {}", inmate.id(), guard.id(), places.join(" "));
    std::io::stdin().read_line(&mut String::new()).unwrap();
    guard.kill().unwrap();
    guard.wait().unwrap();
    cgroup.kill().unwrap();
    inmate.wait().unwrap();
}

/// Ends with all that it started, however the test ends.
struct Owner {
    process: Child,
    inmate: Stranger,
    guard: Stranger,
    places: Vec<PathBuf>,
}

impl Owner {
    fn start(bases: &Bases) -> Owner {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "cgroup::tests::owner_that_gets_killed", "--ignored", "--nocapture"])
            .env("HOTCELL_TEST_PROC", bases.proc_self.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines =
            BufReader::new(process.stdout.take().unwrap()).lines().map_while(Result::ok);
        let line = lines.find_map(|l| l.strip_prefix(OWNER).map(String::from)).unwrap();
        let words: Vec<&str> = line.split(' ').collect();
        let [inmate, guard] = [0, 1].map(|n| Stranger::find(words[n]));
        let places = words[2..].iter().map(PathBuf::from).collect();
        let owner = Owner { process, inmate, guard, places };
        // A spawn returns a moment before the kernel closes, in the child, what it must not inherit.
        eventually("a guard with one lock", || owner.locks_of(words[1]) == 1);
        owner
    }

    fn locks_of(&self, pid: &str) -> usize {
        let fds = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
        let paths = fds.filter_map(|fd| std::fs::read_link(fd.ok()?.path()).ok());
        paths.filter(|path| self.places.contains(path)).count()
    }

    fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.kill();
        for run in self.places.iter().map(|p| p.join("1")) {
            // Each file is in one kind of hierarchy, and nowhere once the directory is removed.
            std::fs::write(run.join("cgroup.freeze"), "0").ok();
            std::fs::write(run.join("freezer.state"), "THAWED").ok();
        }
        let ended = [&self.guard, &self.inmate].map(|s| s.kill() && s.has_ended(PATIENCE));
        for place in &self.places {
            std::fs::remove_dir(place.join("1")).ok();
            std::fs::remove_dir(place).ok();
        }
        assert!(thread::panicking() || ended == [true, true], "{ended:?}");
    }
}

/// A process that is not a child of this one, held so that its number is nobody else's.
struct Stranger(OwnedFd);

impl Stranger {
    fn find(number: &str) -> Stranger {
        let pid = Pid::from_raw(number.parse().unwrap()).unwrap();
        Stranger(pidfd_open(pid, PidfdFlags::empty()).unwrap())
    }

    /// Whether it is on its way out, or gone already.
    fn kill(&self) -> bool {
        matches!(pidfd_send_signal(&self.0, Signal::KILL), Ok(()) | Err(Errno::SRCH))
    }

    fn has_ended(&self, within: Duration) -> bool {
        let within = Timespec::try_from(within).unwrap();
        poll(&mut [PollFd::new(&self.0, PollFlags::IN)], Some(&within)) == Ok(1)
    }

    fn is_alive(&self) -> bool {
        !self.has_ended(Duration::ZERO)
    }
}

#[test]
fn sweeping_removes_what_a_killed_owner_left_and_nothing_else() {
    for kind in [Kind::AsIs, Kind::Legacy] {
        let test = "sweeping_removes_what_a_killed_owner_left_and_nothing_else";
        let Some(bases) = Bases::make(kind, test) else { continue };
        let cgroups = bases.cgroups();
        let own = cgroups.create(&LIMITS).unwrap();
        let own_places = directories(&cgroups);
        let mut owner = Owner::start(&bases);
        let sweep = |removed: usize, alive: usize| {
            let swept = cgroups.sweep();
            assert!(swept.failed.is_empty(), "{swept:?}");
            assert_eq!((swept.removed, swept.alive), (removed, alive), "{swept:?}");
            assert!(own_places.iter().all(|p| p.join("1").exists()));
        };

        sweep(0, own_places.len() + owner.places.len());
        assert!(owner.places.iter().all(|p| p.exists()));
        assert!(owner.inmate.is_alive());

        owner.kill();
        assert!(owner.inmate.is_alive(), "frozen, it outlives its owner");
        sweep(owner.places.len() - 1, own_places.len() + 1);
        assert!(owner.places[0].exists(), "the guard's lock holds");
        assert!(owner.places[1..].iter().all(|p| !p.exists()));

        assert!(owner.guard.kill() && owner.guard.has_ended(PATIENCE));
        sweep(1, own_places.len());
        assert!(!owner.places[0].exists());
        assert!(owner.inmate.has_ended(PATIENCE));
        own.remove().unwrap();
    }
}

/// The descriptor that `entry` gives is one that the kernel clones into.
#[test]
fn clone_into_cgroup_takes_the_descriptor() {
    let test = "clone_into_cgroup_takes_the_descriptor";
    let Some(cgroups) = unified(test) else { return };
    let cgroup = cgroups.create(&LIMITS).unwrap();
    let dir = cgroup.entry().born.expect("v2");
    let script = "
import ctypes, os, struct
args = ctypes.create_string_buffer(struct.pack('11Q', 0x200000000, 0, 0, 0, 17, 0, 0, 0, 0, 0, 9))
pid = ctypes.CDLL(None).syscall(435, args, 88)
if pid == 0:
    print([l for l in open('/proc/self/cgroup') if l.startswith('0::')][0].strip(), flush=True)
    os._exit(0)
os.waitpid(pid, 0)
";
    let stdin = dir.try_clone_to_owned().unwrap();
    let output = Command::new("sh")
        .args(["-c", "exec python3 -c \"$0\" 9<&0 </dev/null", script])
        .stdin(stdin)
        .output()
        .unwrap();
    if output.status.code() == Some(127) {
        eprintln!("SKIPPED {test}: needs python3");
        return;
    }
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("/hotcell-") && text.trim().ends_with("/1"), "{output:?}");
    cgroup.remove().unwrap();
}

/// `cargo test --release -p hotcell-sandbox -- --ignored --nocapture cgroup_speed`
#[test]
#[ignore = "prints times"]
fn cgroup_speed() {
    const ROUNDS: usize = 1000;
    fn median(mut times: Vec<Duration>) -> (u128, u128) {
        times.sort();
        (times[times.len() / 2].as_micros(), times[times.len() * 99 / 100].as_micros())
    }
    fn timed<T>(times: &mut Vec<Duration>, work: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let done = work();
        times.push(start.elapsed());
        done
    }
    for kind in [Kind::AsIs, Kind::Legacy] {
        let Some(cgroups) = cgroups(kind, "cgroup_speed") else { continue };
        let [mut find, mut sweep, mut create, mut stats, mut cpu, mut remove] =
            [const { Vec::new() }; 6];
        for _ in 0..ROUNDS {
            if kind == Kind::AsIs {
                timed(&mut find, Cgroups::find).unwrap();
            } else {
                find.push(Duration::ZERO);
            }
            timed(&mut sweep, || cgroups.sweep());
            let cgroup = timed(&mut create, || cgroups.create(&LIMITS)).unwrap();
            timed(&mut stats, || cgroup.stats());
            timed(&mut cpu, || cgroup.cpu_used());
            timed(&mut remove, || cgroup.remove()).unwrap();
        }
        let mut one_shot = Vec::new();
        for _ in 0..ROUNDS / 10 {
            timed(&mut one_shot, || {
                let cgroups = if kind == Kind::AsIs { Cgroups::find() } else { legacy() }.unwrap();
                cgroups.sweep();
                cgroups.create(&LIMITS).unwrap().remove().unwrap();
            });
        }
        println!("{kind:?}, µs (median, p99):");
        for (what, times) in [
            ("all, once", one_shot),
            ("find", find),
            ("sweep", sweep),
            ("create", create),
            ("stats", stats),
            ("cpu_used", cpu),
            ("remove", remove),
        ] {
            println!("  {what:9} {:?}", median(times));
        }
    }
}
