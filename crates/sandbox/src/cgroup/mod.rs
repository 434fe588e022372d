//! Cgroups: what keeps a run as a whole within its memory, its processes and its processor time.
//!
//! [`Cgroups::find`] looks once per process for a place where cgroups may be made, on v2, v1 or a
//! mixture of both; [`Cgroups::create`] makes one for a run. All work is done relative to held
//! directories. [`Cgroups::sweep`] removes what killed processes left.

mod dbus;
mod dir;
mod error;
mod find;
mod group;
mod kill;
mod limits;
mod name;
mod parent;
mod parse;
mod sweep;
mod systemd;
#[cfg(test)]
mod tests;

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use hotcell_types::Limits;

pub use error::{Cause, CgroupError, Missing, Unavailable};
pub use group::{Cgroup, Entry, Stats};
pub use limits::Dies;
pub use sweep::Swept;

use find::{Hierarchy, Host, Role};
use parent::Parent;

/// Where this process may make cgroups.
#[derive(Debug)]
pub struct Cgroups {
    hierarchies: Arc<Vec<Hierarchy>>,
    /// Made with the first run.
    parent: Mutex<Option<Arc<Parent>>>,
    next: AtomicU64,
}

impl Cgroups {
    /// Finds the place. On v2 this may let a cgroup pass its controllers on, and may move this
    /// process into a leaf or, by way of systemd, into a scope of its own.
    pub fn find() -> Result<Cgroups, Unavailable> {
        Cgroups::find_on(&Host::real())
    }

    fn find_on(host: &Host) -> Result<Cgroups, Unavailable> {
        let hierarchies = find::hierarchies(host, systemd::enter_scope)?;
        Ok(Cgroups {
            hierarchies: Arc::new(hierarchies),
            parent: Mutex::default(),
            next: AtomicU64::new(1),
        })
    }

    /// The controllers and the directory below which their cgroups are made, for `hotcell doctor`.
    pub fn places(&self) -> impl Iterator<Item = (String, &Path)> {
        self.hierarchies.iter().map(|h| {
            let controllers: Vec<_> = h.roles.iter().map(Role::controller).collect();
            (controllers.join(","), h.path.as_path())
        })
    }

    /// Kills and removes what processes left that did not end in order. Waits at most two seconds.
    pub fn sweep(&self) -> Swept {
        sweep::sweep(&self.hierarchies)
    }

    /// A cgroup with these limits, set and read back. After a failure nothing is left.
    pub fn create(&self, limits: &Limits) -> Result<Cgroup, CgroupError> {
        self.create_for(limits, Dies::Together)
    }

    /// The same, and who dies when there is no memory left.
    pub fn create_for(&self, limits: &Limits, dies: Dies) -> Result<Cgroup, CgroupError> {
        let parent = self.parent()?;
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        match Cgroup::create(parent.clone(), number, limits, dies) {
            // systemd may remove an empty directory when a session ends that this process outlives.
            Err(_) if !parent.is_there() => {
                Cgroup::create(self.replace(&parent)?, number, limits, dies)
            }
            done => done,
        }
    }

    /// Copies of the descriptors whose lock tells other processes that the runs of this one are
    /// cared for. Whoever inherits them keeps the lock until it has closed them or died.
    pub fn keep_alive_fds(&self) -> Result<Vec<OwnedFd>, CgroupError> {
        self.parent()?.lock_fds()
    }

    /// The name of the directory behind each of those.
    pub fn name(&self) -> Result<String, CgroupError> {
        Ok(self.parent()?.name().to_owned())
    }

    fn parent(&self) -> Result<Arc<Parent>, CgroupError> {
        let mut held = self.parent.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(parent) = held.as_ref() {
            return Ok(parent.clone());
        }
        let made = Arc::new(Parent::make(&self.hierarchies)?);
        *held = Some(made.clone());
        Ok(made)
    }

    /// Another parent than `gone`, made by this call or by another thread's.
    fn replace(&self, gone: &Arc<Parent>) -> Result<Arc<Parent>, CgroupError> {
        let mut held = self.parent.lock().unwrap_or_else(PoisonError::into_inner);
        if held.as_ref().is_some_and(|now| Arc::ptr_eq(now, gone)) {
            *held = None;
        }
        drop(held);
        self.parent()
    }
}
