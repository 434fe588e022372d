//! What a sandbox costs in memory while its program sleeps: pages that are its own, and what the kernel
//! charges to its cgroup.

use std::fs;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use hotcell_sandbox::Running;

use crate::peers::{Failure, open_sandbox, sleeping};

/// Sandboxes at one time, for what they share and for what only the whole machine shows.
const MANY: usize = 32;

/// What a bare `sleep` may cost, in kilobytes: something else means that others came or went.
const PLAUSIBLE: RangeInclusive<f64> = 20.0..=400.0;

/// Until a program that was let go has started and sleeps.
const SETTLE: Duration = Duration::from_millis(300);

/// In kilobytes.
#[derive(Debug, Clone, Default)]
pub(crate) struct Memory {
    pub(crate) init: f64,
    pub(crate) guard: f64,
    pub(crate) spawner: f64,
    /// Charged to the run's cgroup, the program's own share of it included.
    pub(crate) charged: Option<f64>,
    /// The whole machine's, for each of many sandboxes, and of as many bare programs. `None` when
    /// others changed it more than those did.
    pub(crate) of_many: Option<(f64, f64)>,
}

impl Memory {
    /// One sandbox alone, which carries guard and spawner by itself.
    pub(crate) fn alone(&self) -> f64 {
        self.init + self.guard + self.spawner + self.charged.unwrap_or(0.0)
    }

    pub(crate) fn among_many(&self) -> f64 {
        self.init + (self.guard + self.spawner) / MANY as f64 + self.charged.unwrap_or(0.0)
    }

    pub(crate) const MANY: usize = MANY;
}

pub(crate) fn measure() -> Result<Memory, Failure> {
    let mut memory = one()?;
    let (sandboxes, bare) = (many_sandboxes()?, many_bare()?);
    memory.of_many = (PLAUSIBLE.contains(&bare) && sandboxes > bare).then_some((sandboxes, bare));
    Ok(memory)
}

/// The first job of a process: no other cell is there yet.
fn one() -> Result<Memory, Failure> {
    let sandbox = open_sandbox()?;
    let running = sleeping(&sandbox)?;
    thread::sleep(SETTLE);
    let guard = only_child(std::process::id())?;
    let spawner = only_child(guard)?;
    let init = only_child(spawner)?;
    let program = only_child(init)?;
    let memory = Memory {
        init: unshared(init)?,
        guard: unshared(guard)?,
        spawner: unshared(spawner)?,
        charged: charged(program),
        ..Memory::default()
    };
    drop(running);
    Ok(memory)
}

/// What an interpreter costs that waits in its sandbox: it and its init, and what the kernel charges to
/// their cgroup. The most that any costs which waits under this process.
pub(crate) fn waiting() -> Result<f64, Failure> {
    let mut most: Option<f64> = None;
    for init in descendants(std::process::id())? {
        // Others that are named like this have nobody yet.
        let programs = children(init)?;
        let (true, &[program]) = (is_init(init), programs.as_slice()) else { continue };
        let all = unshared(init)? + unshared(program)? + charged(program).unwrap_or(0.0);
        most = Some(most.map_or(all, |most| most.max(all)));
    }
    most.ok_or_else(|| "nothing waits".into())
}

fn is_init(pid: u32) -> bool {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    name.trim_end() == "hotcell-init"
}

fn descendants(of: u32) -> Result<Vec<u32>, Failure> {
    let mut all = children(of)?;
    let mut next = 0;
    while let Some(&one) = all.get(next) {
        all.extend(children(one)?);
        next += 1;
    }
    Ok(all)
}

fn only_child(parent: u32) -> Result<u32, Failure> {
    match children(parent)?.as_slice() {
        [child] => Ok(*child),
        other => Err(format!("{} children where one was expected", other.len()).into()),
    }
}

fn children(parent: u32) -> Result<Vec<u32>, Failure> {
    let mut children = Vec::new();
    for entry in fs::read_dir("/proc")?.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let Ok(stat) = fs::read_to_string(entry.path().join("stat")) else { continue };
        let after_name = stat.rsplit(')').next().unwrap_or_default();
        if after_name.split_whitespace().nth(1).and_then(|p| p.parse().ok()) == Some(parent) {
            children.push(pid);
        }
    }
    Ok(children)
}

/// Pages that nobody else has, in kilobytes.
fn unshared(pid: u32) -> Result<f64, Failure> {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
    Ok(text.lines().filter(|line| line.starts_with("Private_")).filter_map(kilobytes).sum())
}

fn kilobytes(line: &str) -> Option<f64> {
    line.split_whitespace().nth(1)?.parse().ok()
}

/// Kernel memory that the cgroup of a process is charged with, in kilobytes.
fn charged(pid: u32) -> Option<f64> {
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    groups.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':');
        let (_, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
        let path = path.trim_start_matches('/');
        if controllers.split(',').any(|c| c == "memory") {
            let file = PathBuf::from("/sys/fs/cgroup/memory").join(path);
            let text = fs::read_to_string(file.join("memory.kmem.usage_in_bytes")).ok()?;
            return Some(text.trim().parse::<f64>().ok()? / 1024.0);
        }
        if !controllers.is_empty() {
            return None;
        }
        let file = PathBuf::from("/sys/fs/cgroup").join(path).join("memory.stat");
        let text = fs::read_to_string(file).ok()?;
        let line = text.lines().find(|line| line.starts_with("kernel "))?;
        Some(kilobytes(line)? / 1024.0)
    })
}

/// What the machine has less of for each sandbox, namespaces and mounts included, wherever they are
/// charged.
fn many_sandboxes() -> Result<f64, Failure> {
    let sandbox = open_sandbox()?;
    drop(sleeping(&sandbox)?);
    thread::sleep(SETTLE);
    let before = used()?;
    let running: Vec<Running> = (0..MANY).map(|_| sleeping(&sandbox)).collect::<Result<_, _>>()?;
    thread::sleep(SETTLE);
    let after = used()?;
    drop(running);
    Ok((after - before) / MANY as f64)
}

fn many_bare() -> Result<f64, Failure> {
    let before = used()?;
    let mut children = Vec::new();
    for _ in 0..MANY {
        children.push(Command::new("/bin/sleep").arg("60").stdin(Stdio::null()).spawn()?);
    }
    thread::sleep(SETTLE);
    let after = used()?;
    for child in &mut children {
        child.kill()?;
        child.wait()?;
    }
    Ok((after - before) / MANY as f64)
}

/// Memory of programs and of the kernel that cannot be given back, in kilobytes.
fn used() -> Result<f64, Failure> {
    const COUNTED: [&str; 6] =
        ["AnonPages:", "Shmem:", "Slab:", "KernelStack:", "PageTables:", "Percpu:"];
    let text = fs::read_to_string("/proc/meminfo")?;
    let lines = text.lines().filter(|line| COUNTED.iter().any(|name| line.starts_with(name)));
    Ok(lines.filter_map(kilobytes).sum())
}
