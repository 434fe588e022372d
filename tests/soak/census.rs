//! What is counted. What belongs to this process is counted exactly; what the whole machine shares may
//! also be less than before, since others work on it too.

use std::collections::BTreeSet;
use std::fs;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, WaitOptions};

/// The kernel frees network namespaces, keys and dying cgroups in its own time.
const SETTLE: Duration = Duration::from_secs(20);

/// A resident process may not grow by more: 300 runs that leak 8 KiB each do.
const GROWTH_KIB: i64 = 2048;

/// Nor may launchers, zygotes and what waits, of which some are renewed meanwhile.
const GROWTH_BELOW_KIB: i64 = 6 * 1024;

/// The kernel's count of network namespaces is of whole slabs on each processor.
const SLAB_SLACK: i64 = 64;

/// Where the ids of runs are kept apart.
const ID_DIR: &str = "/run/hotcell";

static HOME: OnceLock<tempfile::TempDir> = OnceLock::new();
static APART: OnceLock<Vec<PathBuf>> = OnceLock::new();

/// The home of all runs here.
pub(crate) fn home() -> &'static Path {
    HOME.get_or_init(|| {
        let home = tempfile::tempdir().unwrap();
        fs::write(home.path().join("config.toml"), "min_level = \"no-proc\"\n").unwrap();
        home
    })
    .path()
}

/// Adopts orphans, so that whatever a killed hotcell leaves is ours to see, and enters cgroups of our own
/// where v1 lets us make them, so that no other hotcell process sweeps them.
pub(crate) fn prepare() {
    rustix::process::set_child_subreaper(Pid::from_raw(1)).unwrap();
    let name = format!("soak-{}", std::process::id());
    let mounts = ["memory", "pids", "cpu", "cpuacct", "freezer"].iter().filter_map(|c| v1_mount(c));
    let mounts: BTreeSet<PathBuf> = mounts.collect();
    let enter = |dir: &PathBuf| {
        fs::create_dir(dir).is_ok()
            && fs::write(dir.join("cgroup.procs"), std::process::id().to_string()).is_ok()
    };
    APART.get_or_init(|| mounts.into_iter().map(|mount| mount.join(&name)).filter(enter).collect());
}

/// Leaves the cgroups of our own and removes them.
pub(crate) fn conclude() {
    for dir in APART.get().into_iter().flatten() {
        fs::write(dir.join("../cgroup.procs"), std::process::id().to_string()).unwrap();
        fs::remove_dir(dir).unwrap();
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Census {
    counts: Vec<Count>,
}

#[derive(Debug, Clone)]
struct Count {
    what: &'static str,
    number: i64,
    /// How much more there may be.
    slack: i64,
    /// Whether less is a difference too.
    exact: bool,
}

impl Census {
    pub(crate) fn take() -> Census {
        let exact =
            |what, number: usize| Count { what, number: number as i64, slack: 0, exact: true };
        let shared = |what, number: i64, slack| Count { what, number, slack, exact: false };
        let (processes, zombies) = descendants();
        let counts = vec![
            exact("processes", processes.len()),
            exact("zombies", zombies),
            exact("namespaces of processes", namespaces(&processes)),
            exact("descriptors", entries("/proc/self/fd")),
            exact("threads", entries("/proc/self/task")),
            shared("cgroups of our own", below(APART.get().into_iter().flatten()) as i64, 0),
            exact("files in the home", files(home())),
            shared("files in the directory of ids", files(Path::new(ID_DIR)) as i64, 1),
            shared("mounts", lines("/proc/self/mountinfo", |_| true), 0),
            shared("cgroups that nobody holds", abandoned(), 0),
            shared("network namespaces", network_namespaces(), SLAB_SLACK),
            shared("keys", lines("/proc/keys", |_| true), foreign_runs()),
            shared("users of keys", lines("/proc/key-users", |_| true), foreign_runs()),
            shared("System V objects", sysv(), 0),
            shared("id reservations", reserved_ids(), foreign_runs()),
            shared("resident KiB", resident_kib(), GROWTH_KIB),
            shared("KiB of processes below", below_kib(&processes), GROWTH_BELOW_KIB),
        ];
        Census { counts }
    }

    /// Counts once nothing changes any more: what a run leaves is taken down beside the next.
    pub(crate) fn settled() -> Census {
        let deadline = Instant::now() + SETTLE;
        let mut last = Census::take();
        while Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(50));
            let now = Census::take();
            if last.differences(&now).is_empty() {
                return now;
            }
            last = now;
        }
        last
    }

    /// Waits until everything is as it was then; otherwise what is not.
    pub(crate) fn is_restored(&self, reap: impl Fn()) -> Result<(), String> {
        let deadline = Instant::now() + SETTLE;
        loop {
            let late = Instant::now() >= deadline;
            reap();
            let left = self.differences(&Census::take());
            if left.is_empty() {
                return Ok(());
            }
            if late {
                return Err(left.join(", "));
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    fn differences(&self, now: &Census) -> Vec<String> {
        let pairs = self.counts.iter().zip(&now.counts);
        let differ = pairs.filter(|(before, now)| {
            let more = now.number - before.number;
            more > before.slack.max(now.slack) || (before.exact && more != 0)
        });
        differ
            .map(|(before, now)| format!("{} {} → {}", before.what, before.number, now.number))
            .collect()
    }
}

/// Reaps the orphans that we adopted. Not while this process has children that it will wait for itself.
pub(crate) fn reap_orphans() {
    while let Ok(Some(_)) = rustix::process::wait(WaitOptions::NOHANG) {}
}

/// The living descendants of this process, and how many only wait to be reaped.
fn descendants() -> (Vec<i32>, usize) {
    let all: Vec<(i32, i32, bool)> = entries_of("/proc")
        .filter_map(|name| {
            let pid: i32 = name.parse().ok()?;
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
            let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
            let dead = ["Z", "X"].contains(&fields.next()?);
            Some((pid, fields.next()?.parse().ok()?, dead))
        })
        .collect();
    let (mut found, mut zombies) = (Vec::new(), 0);
    let mut parents = vec![std::process::id().cast_signed()];
    while let Some(parent) = parents.pop() {
        for (pid, _, dead) in all.iter().filter(|(_, ppid, _)| *ppid == parent) {
            parents.push(*pid);
            if *dead { zombies += 1 } else { found.push(*pid) }
        }
    }
    (found, zombies)
}

/// Guards and what they started, of this process.
pub(crate) fn living() -> Vec<i32> {
    descendants().0
}

/// How many namespaces other than our own our descendants are in.
fn namespaces(processes: &[i32]) -> usize {
    let names = ["user", "mnt", "pid", "net", "ipc", "uts", "cgroup"];
    let of = |pid: &str| -> BTreeSet<PathBuf> {
        names.iter().filter_map(|n| fs::read_link(format!("/proc/{pid}/ns/{n}")).ok()).collect()
    };
    let own = of("self");
    let all: BTreeSet<PathBuf> = processes.iter().flat_map(|pid| of(&pid.to_string())).collect();
    all.difference(&own).count()
}

fn entries_of(dir: impl AsRef<Path>) -> impl Iterator<Item = String> {
    let entries = fs::read_dir(dir).into_iter().flatten();
    entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok())
}

fn entries(dir: &str) -> usize {
    entries_of(dir).count()
}

fn lines(file: &str, wanted: impl Fn(&str) -> bool) -> i64 {
    let text = fs::read_to_string(file).unwrap_or_default();
    text.lines().filter(|line| wanted(line)).count() as i64
}

/// Directories below these, at any depth.
fn below<'a>(dirs: impl Iterator<Item = &'a PathBuf>) -> usize {
    let mut rest: Vec<PathBuf> = dirs.cloned().collect();
    let tops = rest.len();
    let mut count = 0;
    while let Some(dir) = rest.pop() {
        count += 1;
        let inner =
            fs::read_dir(dir).into_iter().flatten().filter_map(Result::ok).map(|e| e.path());
        rest.extend(inner.filter(|path| path.is_dir()));
    }
    count - tops
}

/// Files and directories, at any depth.
fn files(dir: &Path) -> usize {
    let mut count = 0;
    let mut rest = vec![dir.to_owned()];
    while let Some(dir) = rest.pop() {
        for entry in fs::read_dir(dir).into_iter().flatten().filter_map(Result::ok) {
            count += 1;
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                rest.push(entry.path());
            }
        }
    }
    count
}

fn v1_mount(controller: &str) -> Option<PathBuf> {
    cgroup_mounts().into_iter().find_map(|(point, kind, options)| {
        let has = options.split(',').any(|option| option == controller);
        (kind == "cgroup" && has).then_some(point)
    })
}

/// Mount point, type, options.
fn cgroup_mounts() -> Vec<(PathBuf, String, String)> {
    let text = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let mount = |line: &str| {
        let (before, after) = line.split_once(" - ")?;
        let after: Vec<&str> = after.split(' ').collect();
        let is_cgroup = after[0].starts_with("cgroup");
        is_cgroup
            .then(|| (before.split(' ').nth(4).unwrap().into(), after[0].into(), after[2].into()))
    };
    text.lines().filter_map(mount).collect()
}

/// Directories of hotcell, near the root of any hierarchy, whose owner does not live.
fn abandoned() -> i64 {
    let tops = cgroup_mounts().into_iter().map(|(point, _, _)| point);
    let own = APART.get().into_iter().flatten().cloned();
    let places = tops.chain(own).flat_map(|top| {
        fs::read_dir(top).into_iter().flatten().filter_map(Result::ok).map(|entry| entry.path())
    });
    let ours = places.filter(|path| {
        let name = path.file_name().unwrap_or_default().as_encoded_bytes();
        name.starts_with(b"hotcell-") && path.is_dir()
    });
    let free = ours.filter(|path| {
        let Ok(dir) = fs::File::open(path) else { return false };
        // Its owner, and whoever acts for it, holds the lock.
        rustix::fs::flock(dir.as_fd(), rustix::fs::FlockOperation::NonBlockingLockExclusive).is_ok()
    });
    free.count() as i64
}

/// All that the kernel has, but those that other processes on this machine are in.
fn network_namespaces() -> i64 {
    let slabs = fs::read_to_string("/proc/slabinfo").unwrap_or_default();
    let line = slabs.lines().find(|line| line.starts_with("net_namespace "));
    let all: i64 = line.and_then(|l| l.split_whitespace().nth(1)?.parse().ok()).unwrap_or(0);
    let ours: BTreeSet<i32> = living().into_iter().collect();
    let foreign: BTreeSet<PathBuf> = entries_of("/proc")
        .filter_map(|name| name.parse::<i32>().ok())
        .filter(|pid| !ours.contains(pid))
        .filter_map(|pid| fs::read_link(format!("/proc/{pid}/ns/net")).ok())
        .collect();
    all - foreign.len() as i64
}

fn sysv() -> i64 {
    ["shm", "sem", "msg"].iter().map(|kind| lines(&format!("/proc/sysvipc/{kind}"), |_| true)).sum()
}

/// Locked bytes of the file of ids, by whomever.
fn reserved_ids() -> i64 {
    use std::os::unix::fs::MetadataExt;
    let Ok(file) = fs::metadata(Path::new(ID_DIR).join("ids")) else { return 0 };
    let inode = format!(":{} ", file.ino());
    lines("/proc/locks", |line| line.contains(&inode))
}

/// Runs on this machine that are not ours: each has an id, and perhaps keys.
fn foreign_runs() -> i64 {
    use std::os::unix::fs::MetadataExt;
    let ours: BTreeSet<i32> = living().into_iter().collect();
    let of_runs =
        |pid: &i32| fs::metadata(format!("/proc/{pid}")).is_ok_and(|m| m.uid() >= 0x7100_0000);
    let pids = entries_of("/proc").filter_map(|name| name.parse::<i32>().ok());
    pids.filter(|pid| !ours.contains(pid)).filter(of_runs).count() as i64
}

fn resident_kib() -> i64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

/// Memory that is not a file's, of all of them.
fn below_kib(processes: &[i32]) -> i64 {
    let of = |pid: &i32| -> Option<i64> {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
        line.split_whitespace().next()?.parse().ok()
    };
    processes.iter().filter_map(of).sum()
}

/// Zygotes of this process: they alone have their script open.
pub(crate) fn zygotes() -> Vec<i32> {
    let is_one = |pid: &i32| {
        let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&words).contains("-S\0/proc/self/fd/5")
            && fs::read_link(format!("/proc/{pid}/fd/5")).is_ok()
    };
    living().into_iter().filter(is_one).collect()
}

/// A process of the launcher that `parent` started: generation 0 is the guard, 1 the spawner.
pub(crate) fn launcher_of(parent: i32, generation: usize) -> i32 {
    let child_of = |parent: i32| -> i32 {
        let of = |pid: &i32| {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            let fields =
                stat.rsplit_once(')').map(|(_, rest)| rest.split_whitespace().collect::<Vec<_>>());
            fields.is_some_and(|f| f[1] == parent.to_string() && f[0] != "Z")
        };
        let mut pids = entries_of("/proc").filter_map(|name| name.parse::<i32>().ok());
        pids.find(of).expect("a launcher")
    };
    let guard = child_of(parent);
    if generation == 0 { guard } else { child_of(guard) }
}

pub(crate) fn kill(pid: i32) {
    let pid = Pid::from_raw(pid).expect("a process");
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}
