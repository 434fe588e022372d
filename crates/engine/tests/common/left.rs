//! What the sandboxes of a process have on the host, and whether any of it is still there afterwards.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long everything may take to be gone, on a machine that has other things to do.
const GONE: Duration = Duration::from_secs(10);

/// Of all processes below one: number, start, and cgroups.
#[derive(Debug)]
pub(crate) struct Traces {
    pub(crate) processes: Vec<(i32, String)>,
    cgroups: BTreeSet<PathBuf>,
}

impl Traces {
    pub(crate) fn below(root: i32) -> Traces {
        let mut traces = Traces { processes: Vec::new(), cgroups: BTreeSet::new() };
        let mut left = children(root);
        while let Some(pid) = left.pop() {
            left.extend(children(pid));
            traces.processes.extend(started(pid).map(|started| (pid, started)));
            traces.cgroups.extend(cgroups_of(pid));
        }
        traces
    }

    /// Waits until nothing of it is left.
    #[track_caller]
    pub(crate) fn are_gone(&self) {
        let deadline = Instant::now() + GONE;
        loop {
            let lives = |(pid, then): &&(i32, String)| started(*pid).as_ref() == Some(then);
            let processes: Vec<_> = self.processes.iter().filter(lives).collect();
            let cgroups: Vec<_> = self.cgroups.iter().filter(|dir| dir.exists()).collect();
            if processes.is_empty() && cgroups.is_empty() {
                return;
            }
            assert!(Instant::now() < deadline, "{processes:?} {cgroups:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// The fields of `/proc/PID/stat` after the name: the state first.
pub(crate) fn stat(pid: i32) -> Option<Vec<String>> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    Some(text.rsplit_once(')')?.1.split_whitespace().map(Into::into).collect())
}

pub(crate) fn children(parent: i32) -> Vec<i32> {
    let names = fs::read_dir("/proc").unwrap().flatten();
    let pids = names.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let is_child = |pid: &i32| stat(*pid).is_some_and(|fields| fields[1] == parent.to_string());
    pids.filter(is_child).collect()
}

/// `None` when there is no such process, or when it only waits to be reaped.
fn started(pid: i32) -> Option<String> {
    let fields = stat(pid).filter(|fields| !["Z", "X"].contains(&fields[0].as_str()))?;
    Some(fields[19].clone())
}

/// Those of hotcell that a process is in.
fn cgroups_of(pid: i32) -> Vec<PathBuf> {
    let text = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    let mut found = Vec::new();
    for line in text.lines() {
        let [_, controllers, path] = line.splitn(3, ':').collect::<Vec<_>>()[..] else { continue };
        let Some(mount) = cgroup_mount(controllers) else { continue };
        let dir = mount.join(path.trim_start_matches('/'));
        let is_ours = |dir: &&Path| {
            dir.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"hotcell-"))
        };
        if dir.ancestors().any(|above| is_ours(&above)) {
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
        let is_it = match (after[0], wanted) {
            ("cgroup2", "") => true,
            ("cgroup", wanted) => after[2].split(',').any(|option| option == wanted),
            _ => false,
        };
        is_it.then(|| before.split(' ').nth(4).unwrap().into())
    })
}
