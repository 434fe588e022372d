//! The cgroup of one run.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hotcell_types::Limits;
use rustix::io::Errno;
use rustix::path::DecInt;

use super::dir::Dir;
use super::error::CgroupError;
use super::find::{Role, Roles};
use super::kill::{WAIT_MOST, kill_at_once, kill_members, thaw_v1, wait_until};
use super::limits::{self, Dies};
use super::parent::{Parent, Place};
use super::parse::{self, Version};

/// A cgroup with limits, for one run. Dropping it kills what is inside and removes it, as a last
/// resort: call [`remove`](Cgroup::remove) to hear of trouble.
#[derive(Debug)]
pub struct Cgroup {
    parent: Arc<Parent>,
    /// Its name in the parent. No two runs of a process have the same.
    number: u64,
    limits: Limits,
    dies: Dies,
    parts: Vec<Part>,
    is_removed: AtomicBool,
}

/// Its directory in one hierarchy.
#[derive(Debug)]
struct Part {
    version: Version,
    roles: Roles,
    label: &'static str,
    dir: Dir,
    /// Open `tasks`, where entering is by writing to it.
    tasks: Option<OwnedFd>,
}

/// How a process gets in: on a mixed host by both ways.
#[derive(Debug)]
pub struct Entry<'a> {
    /// The v2 directory, for `CLONE_INTO_CGROUP`.
    pub born: Option<BorrowedFd<'a>>,
    /// Open `tasks` files of v1: the process, while it has one thread, writes `0` to each. Of all ways
    /// in, this one alone does not wait for every processor (measured: 13 ms against 20 µs).
    pub joins: Vec<BorrowedFd<'a>>,
}

/// What the run used. `None` where this host cannot say.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    pub cpu_us: Option<u64>,
    pub memory_peak: Option<u64>,
    pub memory_now: Option<u64>,
    /// Most processes and threads at one time.
    pub pids_peak: Option<u64>,
    /// How often a process or thread was refused.
    pub pids_max_hits: Option<u64>,
    /// Processes killed for want of memory.
    pub oom_kills: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Frozen,
    Thawed,
}

impl Cgroup {
    /// On a failure half-way, dropping what there is removes it.
    pub(super) fn create(
        parent: Arc<Parent>,
        number: u64,
        limits: &Limits,
        dies: Dies,
    ) -> Result<Cgroup, CgroupError> {
        let parts = Vec::with_capacity(parent.places.len());
        let is_removed = AtomicBool::new(false);
        let mut cgroup = Cgroup { parent, number, limits: *limits, dies, parts, is_removed };
        let parent = cgroup.parent.clone();
        for place in &parent.places {
            let part = Part::make(place, number)?;
            cgroup.parts.push(part);
        }
        for part in &cgroup.parts {
            limits::apply(&part.dir, part.version, part.roles, limits, dies)?;
        }
        Ok(cgroup)
    }

    /// How its path ends in every hierarchy, as `/proc/PID/cgroup` shows it.
    pub fn name(&self) -> String {
        format!("{}/{}", self.parent.name(), self.number)
    }

    pub fn entry(&self) -> Entry<'_> {
        let v2 = self.parts.iter().find(|part| part.version == Version::V2);
        let tasks = self.parts.iter().filter_map(|part| part.tasks.as_ref());
        Entry { born: v2.map(|part| part.dir.as_fd()), joins: tasks.map(AsFd::as_fd).collect() }
    }

    /// Open files through which a process gets in by writing `0`, whoever it is: what counts is who opened
    /// them.
    pub fn joins(&self) -> Result<Vec<OwnedFd>, CgroupError> {
        let join = |part: &Part| {
            let file = if part.version == Version::V1 { c"tasks" } else { c"cgroup.procs" };
            let refused = |errno| CgroupError::io("open", part.label, "cgroup.procs", errno);
            part.dir.open_to_write(file).map_err(refused)
        };
        self.parts.iter().map(join).collect()
    }

    /// Stops every process, and returns when all have stopped. On a failure all go on.
    pub fn freeze(&self) -> Result<(), CgroupError> {
        let frozen = self.become_state(State::Frozen);
        if frozen.is_err() {
            // Half frozen would be neither; the failure to freeze is the one to tell.
            self.become_state(State::Thawed).ok();
        }
        frozen
    }

    /// Lets every process go on.
    pub fn thaw(&self) -> Result<(), CgroupError> {
        self.become_state(State::Thawed)
    }

    fn become_state(&self, state: State) -> Result<(), CgroupError> {
        let part = self.part(Role::Freezer).ok_or_else(|| {
            let fix =
                "mount the freezer: mount -t cgroup -o freezer freezer /sys/fs/cgroup/freezer";
            CgroupError::missing(state.doing(), "freezer", "cgroup.freeze", fix)
        })?;
        let file = part.freezer_file();
        let refused = |errno| CgroupError::io(state.doing(), "freezer", file, errno);
        let deadline = Instant::now() + WAIT_MOST;
        // v1 may stay half-way when processes are born meanwhile; writing again finishes it.
        let is_done = wait_until(deadline, || {
            part.ask_for(state)?;
            part.is_in(state)
        })
        .map_err(refused)?;
        if is_done {
            return Ok(());
        }
        Err(CgroupError::timed_out(state.doing(), "freezer", file, WAIT_MOST))
    }

    /// Lifts the processor share: dying takes time as well, and must not wait for its turn.
    pub fn hurry(&self) {
        for part in self.parts.iter().filter(|part| part.roles.has(Role::Cpu)) {
            // If it cannot be lifted, the end only takes longer.
            match part.version {
                Version::V1 => part.dir.write(c"cpu.cfs_quota_us", b"-1").ok(),
                Version::V2 => part.dir.write(c"cpu.max", b"max").ok(),
            };
        }
    }

    /// Kills every process, frozen ones too, and returns when none is left. Once it is removed there is none.
    pub fn kill(&self) -> Result<(), CgroupError> {
        if self.is_removed.load(Ordering::Acquire) {
            return Ok(());
        }
        self.hurry();
        for part in &self.parts {
            let file = if part.version == Version::V2 { "cgroup.kill" } else { "freezer.state" };
            kill_at_once(&part.dir)
                .and_then(|()| thaw_v1(&part.dir))
                .map_err(|errno| CgroupError::io("kill through", part.label, file, errno))?;
        }
        let deadline = Instant::now() + WAIT_MOST;
        for part in &self.parts {
            let refused = |e| CgroupError::io("kill the members in", part.label, PROCS, e);
            let is_empty = wait_until(deadline, || kill_members(&part.dir)).map_err(refused)?;
            if !is_empty {
                let doing = "kill the members in";
                return Err(CgroupError::timed_out(doing, part.label, PROCS, WAIT_MOST));
            }
        }
        Ok(())
    }

    pub fn stats(&self) -> Stats {
        let memory = self.part(Role::Memory);
        let pids = self.part(Role::Pids);
        Stats {
            cpu_us: self.cpu_us(),
            memory_peak: memory.and_then(Part::memory_peak),
            memory_now: memory.and_then(Part::memory_now),
            pids_peak: pids.and_then(|p| parse::number(p.dir.read(c"pids.peak").ok()?.as_bytes())),
            pids_max_hits: pids
                .and_then(|p| parse::keyed(p.dir.read(c"pids.events").ok()?.as_bytes(), "max")),
            oom_kills: memory.and_then(Part::oom_kills),
        }
    }

    /// Memory that is held for all processes together.
    pub fn memory_now(&self) -> Option<u64> {
        self.part(Role::Memory).and_then(Part::memory_now)
    }

    /// Processor time of all processes so far, dead ones included.
    pub fn cpu_used(&self) -> Option<Duration> {
        self.cpu_us().map(Duration::from_micros)
    }

    fn cpu_us(&self) -> Option<u64> {
        let part = self.part(Role::Usage)?;
        match part.version {
            Version::V1 => {
                let nanos = parse::number(part.dir.read(c"cpuacct.usage").ok()?.as_bytes())?;
                Some(nanos / 1000)
            }
            Version::V2 => parse::keyed(part.dir.read(c"cpu.stat").ok()?.as_bytes(), "usage_usec"),
        }
    }

    /// What the limits are at this moment, controller by controller, in the kernel's words. That one is not
    /// what it was set to is an error.
    pub fn read_back(&self) -> Result<Vec<(&'static str, String)>, CgroupError> {
        let mut all = Vec::new();
        for part in &self.parts {
            limits::check_all(&part.dir, part.version, part.roles, &self.limits, self.dies)?;
            all.extend(limits::seen(&part.dir, part.version, part.roles)?);
        }
        Ok(all)
    }

    /// Removes it, waiting briefly for processes that are dying. Again is no error.
    pub fn remove(&self) -> Result<(), CgroupError> {
        if self.is_removed.load(Ordering::Acquire) {
            return Ok(());
        }
        let deadline = Instant::now() + WAIT_MOST;
        let name = DecInt::new(self.number);
        for (place, part) in self.parent.places.iter().zip(&self.parts) {
            let is_gone = wait_until(deadline, || match place.dir.remove(name.as_c_str()) {
                Ok(()) | Err(Errno::NOENT) => Ok(true),
                Err(Errno::BUSY) => Ok(false),
                Err(errno) => Err(errno),
            })
            .map_err(|errno| CgroupError::io("remove", part.label, name.as_str(), errno))?;
            if !is_gone {
                let file = name.as_str();
                return Err(CgroupError::timed_out("remove", part.label, file, WAIT_MOST));
            }
        }
        self.is_removed.store(true, Ordering::Release);
        Ok(())
    }

    fn part(&self, role: Role) -> Option<&Part> {
        self.parts.iter().find(|p| p.roles.has(role))
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        if *self.is_removed.get_mut() {
            return;
        }
        // Nobody is left to tell. What stays is removed by the sweep of the next process.
        self.kill().ok();
        self.remove().ok();
    }
}

const PROCS: &str = "cgroup.procs";

impl Part {
    fn make(place: &Place, number: u64) -> Result<Part, CgroupError> {
        let name = DecInt::new(number);
        let refused = |doing: &'static str| {
            move |errno| CgroupError::io(doing, place.label(), &number.to_string(), errno)
        };
        place.dir.make(name.as_c_str()).map_err(refused("make"))?;
        let opened = place.dir.child(name.as_c_str()).and_then(|dir| {
            let is_v1 = place.version == Version::V1;
            let tasks = is_v1.then(|| dir.open_to_write(c"tasks")).transpose()?;
            Ok((dir, tasks))
        });
        match opened {
            Ok((dir, tasks)) => Ok(Part {
                version: place.version,
                roles: place.roles,
                label: place.label(),
                dir,
                tasks,
            }),
            Err(errno) => {
                place.dir.remove(name.as_c_str()).ok();
                Err(refused("open")(errno))
            }
        }
    }

    fn freezer_file(&self) -> &'static str {
        match self.version {
            Version::V1 => "freezer.state",
            Version::V2 => "cgroup.freeze",
        }
    }

    fn ask_for(&self, state: State) -> Result<(), Errno> {
        match (self.version, state) {
            (Version::V1, State::Frozen) => self.dir.write(c"freezer.state", b"FROZEN"),
            (Version::V1, State::Thawed) => self.dir.write(c"freezer.state", b"THAWED"),
            (Version::V2, State::Frozen) => self.dir.write(c"cgroup.freeze", b"1"),
            (Version::V2, State::Thawed) => self.dir.write(c"cgroup.freeze", b"0"),
        }
    }

    fn is_in(&self, state: State) -> Result<bool, Errno> {
        let now = match self.version {
            Version::V1 => match self.dir.read(c"freezer.state")?.as_bytes().trim_ascii() {
                b"FROZEN" => Some(State::Frozen),
                b"THAWED" => Some(State::Thawed),
                _ => None,
            },
            Version::V2 => {
                match parse::keyed(self.dir.read(c"cgroup.events")?.as_bytes(), "frozen") {
                    Some(1) => Some(State::Frozen),
                    Some(0) => Some(State::Thawed),
                    _ => None,
                }
            }
        };
        Ok(now == Some(state))
    }

    fn memory_peak(&self) -> Option<u64> {
        let file = match self.version {
            Version::V1 => c"memory.max_usage_in_bytes",
            Version::V2 => c"memory.peak",
        };
        parse::number(self.dir.read(file).ok()?.as_bytes())
    }

    fn memory_now(&self) -> Option<u64> {
        let file = match self.version {
            Version::V1 => c"memory.usage_in_bytes",
            Version::V2 => c"memory.current",
        };
        parse::number(self.dir.read(file).ok()?.as_bytes())
    }

    fn oom_kills(&self) -> Option<u64> {
        let file = match self.version {
            Version::V1 => c"memory.oom_control",
            Version::V2 => c"memory.events",
        };
        parse::keyed(self.dir.read(file).ok()?.as_bytes(), "oom_kill")
    }
}

impl State {
    fn doing(self) -> &'static str {
        match self {
            State::Frozen => "freeze through",
            State::Thawed => "thaw through",
        }
    }
}
