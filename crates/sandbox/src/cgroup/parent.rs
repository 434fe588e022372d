//! The directory of one hotcell process in each hierarchy, and the lock that says it lives.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::io::Errno;

use super::dir::Dir;
use super::error::CgroupError;
use super::find::{Hierarchy, Role, Roles, pass_on};
use super::name::Name;
use super::parse::{self, Version};

/// How often a parent is made anew when a sweep of another process, which cannot tell a parent that
/// is not yet locked from one whose owner died, removes it first.
const TRIES: usize = 5;

/// `hotcell-<random>` in every hierarchy that is used. Removed when dropped; what is still busy then
/// is left to a sweep.
#[derive(Debug)]
pub(super) struct Parent {
    name: Name,
    hierarchies: Arc<Vec<Hierarchy>>,
    pub(super) places: Vec<Place>,
}

#[derive(Debug)]
pub(super) struct Place {
    /// Which of the hierarchies.
    hierarchy: usize,
    pub(super) version: Version,
    pub(super) roles: Roles,
    pub(super) dir: Dir,
}

impl Parent {
    pub(super) fn name(&self) -> &str {
        self.name.parent()
    }

    pub(super) fn make(hierarchies: &Arc<Vec<Hierarchy>>) -> Result<Parent, CgroupError> {
        let mut lost = Errno::NOENT;
        for _ in 0..TRIES {
            let name = Name::random()
                .map_err(|errno| CgroupError::io("name", "cgroup", "hotcell-", errno))?;
            let places = Vec::with_capacity(hierarchies.len());
            let mut parent = Parent { name, hierarchies: hierarchies.clone(), places };
            match parent.fill() {
                Ok(()) => return Ok(parent),
                Err(Failure::Lost(errno)) => lost = errno,
                Err(Failure::Refused(error)) => return Err(error),
            }
        }
        Err(CgroupError::io("make and lock", "cgroup", "hotcell-", lost))
    }

    /// v2 first: what it can do, v1 need not.
    fn fill(&mut self) -> Result<(), Failure> {
        let hierarchies = self.hierarchies.clone();
        let mut taken = Roles::default();
        for wanted in [Version::V2, Version::V1] {
            for (i, h) in hierarchies.iter().enumerate().filter(|(_, h)| h.version == wanted) {
                let roles = taken.iter().fold(h.roles, Roles::without);
                if roles.is_empty() {
                    continue;
                }
                let place = self.place(i, h, roles)?;
                taken = place.iter().fold(taken, |t, p| p.roles.iter().fold(t, Roles::with));
                self.places.extend(place);
            }
        }
        Ok(())
    }

    fn place(
        &self,
        hierarchy: usize,
        h: &Hierarchy,
        roles: Roles,
    ) -> Result<Option<Place>, Failure> {
        let dir = make_locked(&h.base, &self.name).map_err(|f| f.at(h))?;
        let place = Place { hierarchy, version: h.version, roles, dir };
        let usable = place.prepare();
        match usable {
            Ok(roles) if !roles.is_empty() => Ok(Some(Place { roles, ..place })),
            Ok(_) => {
                self.remove(&place);
                Ok(None)
            }
            Err(error) => {
                self.remove(&place);
                Err(Failure::Refused(error))
            }
        }
    }

    fn remove(&self, place: &Place) {
        if let Some(h) = self.hierarchies.get(place.hierarchy) {
            // What is busy, or gone already, is the business of a sweep.
            h.base.remove(self.name.parent()).ok();
        }
    }

    /// Whether nobody else has removed it.
    pub(super) fn is_there(&self) -> bool {
        self.places.iter().all(|place| {
            let h = self.hierarchies.get(place.hierarchy);
            h.is_some_and(|h| h.base.holds(self.name.parent(), &place.dir))
        })
    }

    /// Copies that share the lock.
    pub(super) fn lock_fds(&self) -> Result<Vec<OwnedFd>, CgroupError> {
        let copy = |p: &Place| p.dir.as_fd().try_clone_to_owned();
        self.places.iter().map(copy).collect::<Result<_, _>>().map_err(|e| {
            let errno = Errno::from_io_error(&e).unwrap_or(Errno::IO);
            CgroupError::io("hold", "cgroup", self.name.parent(), errno)
        })
    }
}

impl Drop for Parent {
    fn drop(&mut self) {
        for place in &self.places {
            self.remove(place);
        }
    }
}

impl Place {
    /// The controller to name when it is about the directory as such.
    pub(super) fn label(&self) -> &'static str {
        match self.version {
            Version::V1 => self.roles.iter().next().map_or("cgroup", Role::controller),
            Version::V2 => "cgroup",
        }
    }

    /// Sets what the runs inherit, and tells which roles this kernel really fills here.
    fn prepare(&self) -> Result<Roles, CgroupError> {
        match self.version {
            Version::V1 => {
                if self.roles.has(Role::Memory) {
                    self.prepare_v1_memory()?;
                }
                Ok(self.roles)
            }
            Version::V2 => {
                let file = "cgroup.subtree_control";
                pass_on(&self.dir, self.roles)
                    .map_err(|errno| CgroupError::io("set", "cgroup", file, errno))?;
                Ok(self.v2_roles())
            }
        }
    }

    /// Kernels before 5.2 cannot freeze here, and only later ones count time without a controller.
    fn v2_roles(&self) -> Roles {
        let mut roles = self.roles;
        if !self.dir.has(c"cgroup.freeze") {
            roles = roles.without(Role::Freezer);
        }
        if !self.dir.has(c"cpu.stat") {
            roles = roles.without(Role::Usage);
        }
        roles
    }

    /// Runs inherit both: nothing is swapped out, and who has too much memory dies instead of
    /// waiting for a manager that does not exist.
    fn prepare_v1_memory(&self) -> Result<(), CgroupError> {
        let refused =
            |file: &'static str| move |errno| CgroupError::io("set", "memory", file, errno);
        match self.dir.write(c"memory.swappiness", b"0") {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(refused("memory.swappiness")(errno)),
        }
        let file = "memory.oom_control";
        let oom = self.dir.read(c"memory.oom_control").map_err(refused(file))?;
        if parse::keyed(oom.as_bytes(), "oom_kill_disable") == Some(1) {
            self.dir.write(c"memory.oom_control", b"0").map_err(refused(file))?;
        }
        Ok(())
    }
}

enum Failure {
    /// Another process took it for an orphan.
    Lost(Errno),
    Refused(CgroupError),
}

/// A failure that does not yet say where.
enum Raw {
    Lost(Errno),
    Refused(Errno),
}

impl Raw {
    fn at(self, h: &Hierarchy) -> Failure {
        match self {
            Raw::Lost(errno) => Failure::Lost(errno),
            Raw::Refused(errno) => {
                let controller = h.roles.iter().next().map_or("cgroup", Role::controller);
                let path = h.path.to_string_lossy();
                Failure::Refused(CgroupError::io("make a cgroup in", controller, &path, errno))
            }
        }
    }
}

fn make_locked(base: &Dir, name: &Name) -> Result<Dir, Raw> {
    let name = name.parent();
    base.make(name).map_err(Raw::Refused)?;
    let locked = open_locked(base, name);
    if matches!(locked, Err(Raw::Refused(_))) {
        // Out of descriptors, perhaps. The failure is told; what stays is for a sweep.
        base.remove(name).ok();
    }
    locked
}

fn open_locked(base: &Dir, name: &str) -> Result<Dir, Raw> {
    let dir = base.child(name).map_err(|errno| match errno {
        Errno::NOENT => Raw::Lost(errno),
        other => Raw::Refused(other),
    })?;
    match dir.lock() {
        Ok(()) if base.holds(name, &dir) => Ok(dir),
        Ok(()) => Err(Raw::Lost(Errno::NOENT)),
        // Whoever holds the lock of a directory that was just made is a sweep.
        Err(errno @ Errno::WOULDBLOCK) => Err(Raw::Lost(errno)),
        Err(errno) => Err(Raw::Refused(errno)),
    }
}
