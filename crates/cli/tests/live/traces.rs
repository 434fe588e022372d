//! What a run has on the host while it lasts, and whether any of it is still there afterwards. Only what
//! belongs to the one run is looked at, so that other runs on the machine do not matter.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::support::until;

/// How long everything may take to be gone.
const GONE: Duration = Duration::from_secs(2);

const NAMESPACES: [&str; 7] = ["user", "mnt", "pid", "net", "ipc", "uts", "cgroup"];

/// A process, told from a later one with the same number.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Process {
    pid: i32,
    started: u64,
    what: String,
}

/// Everything that belongs to the processes below one.
#[derive(Debug)]
pub(crate) struct Traces {
    processes: Vec<Process>,
    /// Held open: the kernel gives the number of one that is gone to the next, which is somebody else's.
    namespaces: BTreeMap<PathBuf, File>,
    cgroups: BTreeSet<PathBuf>,
}

impl Traces {
    /// Of everything that descends from `root`, itself excluded.
    pub(crate) fn below(root: i32) -> Traces {
        let mut traces =
            Traces { processes: vec![], namespaces: BTreeMap::new(), cgroups: BTreeSet::new() };
        let own = namespaces_of(std::process::id().cast_signed());
        let mut pids = children(root);
        while let Some(pid) = pids.pop() {
            pids.extend(children(pid));
            traces.processes.extend(process(pid));
            let others =
                held_namespaces_of(pid).into_iter().filter(|(name, _)| !own.contains(name));
            traces.namespaces.extend(others);
            traces.cgroups.extend(cgroups_of(pid));
        }
        traces
    }

    /// The guard, the spawner, the run's init and its program, and what they live in.
    #[track_caller]
    pub(crate) fn of_a_run(hotcell: i32) -> Traces {
        let traces = Traces::below(hotcell);
        assert!(traces.processes.len() >= 4, "{traces:?}");
        assert!(traces.namespaces.len() >= NAMESPACES.len(), "{traces:?}");
        traces
    }

    /// How many processes descend from one.
    pub(crate) fn count_below(root: i32) -> usize {
        Traces::below(root).processes.len()
    }

    /// A process of the launcher: 0 is the guard, 1 the spawner, 2 the init of the first run.
    pub(crate) fn launcher(hotcell: i32, generation: usize) -> i32 {
        (0..=generation).fold(hotcell, |above, _| children(above)[0])
    }

    /// Waits until nothing of it is left.
    #[track_caller]
    pub(crate) fn are_gone(&self) {
        if until(GONE, || self.left().is_empty().then_some(())).is_none() {
            panic!("left after {GONE:?}: {:#?}", self.left());
        }
    }

    fn left(&self) -> Vec<String> {
        let alive = self
            .processes
            .iter()
            .filter(|p| process(p.pid).is_some_and(|now| now.started == p.started));
        let mut left: Vec<String> =
            alive.map(|p| format!("process {} {}", p.pid, p.what)).collect();
        let used: BTreeSet<PathBuf> = pids().into_iter().flat_map(namespaces_of).collect();
        let namespaces = self.namespaces.keys().filter(|name| used.contains(*name));
        left.extend(namespaces.map(|name| format!("namespace {}", name.display())));
        left.extend(
            self.cgroups
                .iter()
                .filter(|dir| dir.exists())
                .map(|dir| format!("cgroup {}", dir.display())),
        );
        left
    }
}

fn pids() -> Vec<i32> {
    let names = fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names.filter_map(|name| name.parse().ok()).collect()
}

/// The fields of `/proc/PID/stat` after the name: the state first.
fn stat(pid: i32) -> Option<Vec<String>> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    Some(text.rsplit_once(')')?.1.split_whitespace().map(Into::into).collect())
}

fn children(parent: i32) -> Vec<i32> {
    let is_child = |pid: &i32| stat(*pid).is_some_and(|fields| fields[1] == parent.to_string());
    pids().into_iter().filter(is_child).collect()
}

/// `None` when there is no such process, or when it only waits to be reaped.
fn process(pid: i32) -> Option<Process> {
    let fields = stat(pid).filter(|fields| !["Z", "X"].contains(&fields[0].as_str()))?;
    let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let what = String::from_utf8_lossy(&words).replace('\0', " ");
    Some(Process { pid, started: fields[19].parse().unwrap(), what })
}

fn namespaces_of(pid: i32) -> BTreeSet<PathBuf> {
    NAMESPACES
        .iter()
        .filter_map(|name| fs::read_link(format!("/proc/{pid}/ns/{name}")).ok())
        .collect()
}

fn held_namespaces_of(pid: i32) -> BTreeMap<PathBuf, File> {
    let open = |name: &&str| {
        let file = File::open(format!("/proc/{pid}/ns/{name}")).ok()?;
        let name = fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).ok()?;
        Some((name, file))
    };
    NAMESPACES.iter().filter_map(open).collect()
}

/// The directories of hotcell that a process is in, with those above it that are hotcell's too.
fn cgroups_of(pid: i32) -> Vec<PathBuf> {
    let Ok(text) = fs::read_to_string(format!("/proc/{pid}/cgroup")) else { return vec![] };
    let mut found = Vec::new();
    for line in text.lines() {
        let [_, controllers, path] = line.splitn(3, ':').collect::<Vec<_>>()[..] else { continue };
        let Some(mount) = cgroup_mount(controllers) else { continue };
        let dir = mount.join(path.trim_start_matches('/'));
        let ours = |dir: &&Path| {
            dir.file_name().is_some_and(|n| n.as_encoded_bytes().starts_with(b"hotcell-"))
        };
        found.extend(dir.ancestors().filter(ours).map(Path::to_owned));
        if dir.ancestors().any(|above| ours(&above)) {
            found.push(dir);
        }
    }
    found
}

/// Where a hierarchy is mounted: by a controller for v1, by none for v2.
fn cgroup_mount(controllers: &str) -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let wanted = controllers.split(',').next().unwrap_or_default();
    mounts.lines().find_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        let after: Vec<&str> = after.split(' ').collect();
        let matches = match (after[0], wanted) {
            ("cgroup2", "") => true,
            ("cgroup", wanted) => after[2].split(',').any(|option| option == wanted),
            _ => false,
        };
        matches.then(|| before.split(' ').nth(4).unwrap().into())
    })
}

/// Cgroups of our own to start hotcell in, so that no other hotcell process on the machine sweeps up what
/// this one may leave. Only where v1 lets us make them.
pub(crate) struct Apart {
    dirs: Vec<PathBuf>,
}

impl Apart {
    pub(crate) fn new() -> Apart {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("live-test-{}-{number}", std::process::id());
        let mounts: BTreeSet<PathBuf> = ["memory", "pids", "cpu", "cpuacct", "freezer"]
            .iter()
            .filter_map(|c| cgroup_mount(c))
            .collect();
        let dirs = mounts.into_iter().map(|mount| mount.join(&name));
        Apart { dirs: dirs.filter(|dir| fs::create_dir(dir).is_ok()).collect() }
    }

    /// The command, but started inside.
    pub(crate) fn inside(&self, command: &Command) -> Command {
        let mut wrapped = Command::new("/bin/sh");
        let enter: String = self
            .dirs
            .iter()
            .map(|dir| format!("echo $$ > {}/cgroup.procs && ", dir.display()))
            .collect();
        wrapped
            .args(["-c", &format!("{enter} exec \"$@\""), "sh"])
            .arg(command.get_program())
            .args(command.get_args());
        wrapped.current_dir(command.get_current_dir().unwrap()).env_clear();
        wrapped.envs(command.get_envs().filter_map(|(key, value)| Some((key, value?))));
        wrapped.stdin(std::process::Stdio::null());
        wrapped.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
        wrapped
    }

    /// What is left in them.
    pub(crate) fn left(&self) -> Vec<PathBuf> {
        let entries = self
            .dirs
            .iter()
            .flat_map(|dir| fs::read_dir(dir).unwrap())
            .map(|entry| entry.unwrap().path());
        entries.filter(|path| path.is_dir()).collect()
    }
}

impl Drop for Apart {
    fn drop(&mut self) {
        // What a failed test found here does not stay for the next: deepest first.
        let inner = |dir: &PathBuf| -> Vec<PathBuf> {
            let entries = fs::read_dir(dir).into_iter().flatten().filter_map(Result::ok);
            entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect()
        };
        for dir in &self.dirs {
            let owners = inner(dir);
            for dir in owners.iter().flat_map(&inner).chain(owners.clone()).chain([dir.clone()]) {
                fs::remove_dir(dir).ok();
            }
        }
    }
}
