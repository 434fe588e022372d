//! Removes what processes that were killed left behind.

use std::ffi::CString;
use std::time::Instant;

use rustix::io::Errno;

use super::dir::Dir;
use super::error::CgroupError;
use super::find::Hierarchy;
use super::kill::{WAIT_MOST, kill_at_once, kill_members, thaw_v1, wait_until};
use super::name::{Ours, ours};

/// What a sweep found.
#[derive(Debug, Default)]
pub struct Swept {
    /// Directories of dead processes that were removed, in all hierarchies together.
    pub removed: usize,
    /// Directories whose owner lives.
    pub alive: usize,
    /// What could not be removed.
    pub failed: Vec<CgroupError>,
}

/// A parent whose lock was free. Holding it keeps other sweeps away.
struct Orphan<'a> {
    base: &'a Dir,
    name: CString,
    dir: Dir,
}

pub(super) fn sweep(hierarchies: &[Hierarchy]) -> Swept {
    let mut swept = Swept::default();
    let scopes: Vec<Dir> = hierarchies.iter().flat_map(sibling_scopes).collect();
    let bases = hierarchies.iter().map(|h| &h.base).chain(&scopes);
    let orphans: Vec<Orphan<'_>> = bases.flat_map(|base| orphans(base, &mut swept)).collect();
    // A process is in several hierarchies, and frozen in one it dies in none: all are thawed before
    // any is waited for.
    for orphan in &orphans {
        orphan.release().unwrap_or_else(|e| swept.failed.push(orphan.error("thaw", e)));
    }
    let deadline = Instant::now() + WAIT_MOST;
    for orphan in &orphans {
        match orphan.clear(deadline) {
            Ok(true) => swept.removed += 1,
            Ok(false) => swept.failed.push(CgroupError::timed_out(
                "remove",
                "cgroup",
                &orphan.name.to_string_lossy(),
                WAIT_MOST,
            )),
            Err(errno) => swept.failed.push(orphan.error("remove", errno)),
        }
    }
    swept
}

/// Where systemd gives every process a scope, what others left is in theirs.
fn sibling_scopes(hierarchy: &Hierarchy) -> Vec<Dir> {
    if !hierarchy.is_own_scope() {
        return Vec::new();
    }
    let Ok(above) = hierarchy.base.child(c"..") else { return Vec::new() };
    let names = above.children().unwrap_or_default();
    let scopes = names.iter().filter(|n| ours(n.to_bytes()) == Some(Ours::Scope));
    // The own one is among them: its parents are locked or were swept.
    scopes.filter_map(|name| above.child(name.as_c_str()).ok()).collect()
}

fn orphans<'a>(base: &'a Dir, swept: &mut Swept) -> Vec<Orphan<'a>> {
    let names = match base.children() {
        Ok(names) => names,
        Err(errno) => {
            swept.failed.push(CgroupError::io("list", "cgroup", ".", errno));
            return Vec::new();
        }
    };
    let mut found = Vec::new();
    for name in names {
        match ours(name.to_bytes()) {
            // Its owner is inside while it lives, and then it is busy.
            Some(Ours::Leaf) => {
                base.remove(name.as_c_str()).ok();
            }
            Some(Ours::Parent) => match claim(base, name, swept) {
                Ok(orphan) => found.extend(orphan),
                Err(error) => swept.failed.push(error),
            },
            Some(Ours::Scope) | None => {}
        }
    }
    found
}

fn claim<'a>(
    base: &'a Dir,
    name: CString,
    swept: &mut Swept,
) -> Result<Option<Orphan<'a>>, CgroupError> {
    let dir = match base.child(name.as_c_str()) {
        Ok(dir) => dir,
        // Removed by its owner meanwhile.
        Err(Errno::NOENT) => return Ok(None),
        Err(e) => return Err(CgroupError::io("open", "cgroup", &name.to_string_lossy(), e)),
    };
    match dir.lock() {
        Ok(()) => Ok(Some(Orphan { base, name, dir })),
        Err(Errno::WOULDBLOCK) => {
            swept.alive += 1;
            Ok(None)
        }
        Err(e) => Err(CgroupError::io("lock", "cgroup", &name.to_string_lossy(), e)),
    }
}

impl Orphan<'_> {
    /// Kills at once where that is possible, and thaws so that the rest can die.
    fn release(&self) -> Result<(), Errno> {
        kill_at_once(&self.dir)?;
        for run in self.runs()? {
            thaw_v1(&run.1)?;
        }
        thaw_v1(&self.dir)
    }

    /// Kills and removes until nothing is left; `false` when the deadline passed first.
    fn clear(&self, deadline: Instant) -> Result<bool, Errno> {
        wait_until(deadline, || {
            let mut is_empty = kill_members(&self.dir)?;
            for (name, run) in self.runs()? {
                is_empty &= kill_members(&run)? && is_gone(self.dir.remove(name.as_c_str()))?;
            }
            Ok(is_empty && is_gone(self.base.remove(self.name.as_c_str()))?)
        })
    }

    fn runs(&self) -> Result<Vec<(CString, Dir)>, Errno> {
        let mut runs = Vec::new();
        for name in self.dir.children()? {
            match self.dir.child(name.as_c_str()) {
                Ok(dir) => runs.push((name, dir)),
                Err(Errno::NOENT) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(runs)
    }

    fn error(&self, doing: &'static str, errno: Errno) -> CgroupError {
        CgroupError::io(doing, "cgroup", &self.name.to_string_lossy(), errno)
    }
}

fn is_gone(removed: Result<(), Errno>) -> Result<bool, Errno> {
    match removed {
        Ok(()) | Err(Errno::NOENT) => Ok(true),
        Err(Errno::BUSY) => Ok(false),
        Err(errno) => Err(errno),
    }
}
