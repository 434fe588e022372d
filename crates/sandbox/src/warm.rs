//! Zygotes: interpreters that have started and wait to be forked into jails. A base has one for each start
//! that its runs have in common. What a zygote shares with its children, and what not, is in
//! docs/warm.md.

mod trust;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use std::{io, mem};

use hotcell_jail::wire::{Report, ZygoteParts};
use hotcell_types::{Bytes, Count, Cpus, Limits, Template};

use crate::cell::{cgroup_refusal, enter, reserve_id};
use crate::ids::Id;
use crate::image::{library, sealed};
use crate::keeper::Remains;
use crate::launcher::packet_pair;
use crate::native::{Base, Ground};
use crate::start::next_report;
use crate::{Job, Refusal, seccomp, start};

/// What a Python zygote does with its life.
const PYTHON: &str = include_str!("warm/python.py");

/// How the interpreter is told to start: as for a run, but for `site`, which runs what others wrote, and
/// does so in the jail.
const START: [&str; 3] = ["-u", "-S", "/proc/self/fd/5"];

/// Most zygotes of one base.
const MOST: usize = 4;
/// How long one may take to start.
const READY_WITHIN: Duration = Duration::from_secs(30);
/// How often in a row zygotes of a base may fail before they are left alone for a while.
const FAILURES_MOST: u32 = 3;
const REST: Duration = Duration::from_secs(60);

/// What all zygotes together with what they have just forked may take: some thirty MiB of memory in fact,
/// and one process at a time.
const LIMITS: Limits = Limits {
    memory: Bytes::mib(256),
    cpu: Cpus::thousandths(2000),
    pids: Count::of(128),
    ..Template::DEFAULT.limits
};

/// Children of one zygote have its hash secret, stack canary and address layout in common, and what it has
/// loaded may have been replaced on the disk: how long it is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// After so many forks, or so long, another is started.
    pub forks: u32,
    pub age: Duration,
    /// Whatever has become of that, here it ends.
    pub forks_most: u32,
    pub age_most: Duration,
    /// How long something that was forked, or made, ahead may wait.
    pub wait_most: Duration,
}

impl Default for Bounds {
    fn default() -> Bounds {
        Bounds {
            forks: 1000,
            age: Duration::from_secs(600),
            forks_most: 1500,
            age_most: Duration::from_secs(900),
            wait_most: Duration::from_secs(300),
        }
    }
}

/// How variables begin that are read when an interpreter or a library of it starts, before any program
/// could change them.
const READ_AT_START: [&str; 12] = [
    "PYTHON",
    "HOME",
    "LD_",
    "LC_",
    "LANG",
    "GLIBC_",
    "MALLOC_",
    "OPENSSL_",
    "LOCPATH",
    "GCONV_PATH",
    "TZDIR",
    "NLSPATH",
];
/// Those of them that hotcell itself sets, with their values. A run that has any other is executed: a
/// variable can name code, which would then run in the zygote and not in a jail.
const OURS: [(&str, &str); 3] =
    [("HOME", "/tmp"), ("LANG", "C.UTF-8"), ("PYTHONDONTWRITEBYTECODE", "1")];
/// And one whose value is a number.
const PROCESSORS: &str = "PYTHON_CPU_COUNT";

/// What decides how an interpreter starts. A run is forked only from one that started as it would have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seed {
    program: PathBuf,
    /// Device, inode and time of change: an interpreter that was replaced is another one.
    file: (u64, u64, i64, i64),
    name: OsString,
    env: BTreeMap<OsString, OsString>,
}

impl Seed {
    /// Nothing where a job cannot be forked at all.
    pub(crate) fn of(job: &Job) -> Option<Seed> {
        #[cfg(feature = "holes")]
        if job.holes != crate::Holes::default() {
            // A hole that a zygote does not have shows nothing.
            return None;
        }
        // Such a profile allows one execution, by a secret that has to be gone from memory: a fork replaces none.
        if !job.command.forks || job.profile.executes_once() {
            return None;
        }
        let env = || job.env.iter().filter(|(key, _)| is_read_at_start(key));
        if !env().all(|(key, value)| is_ours(key, value)) {
            return None;
        }
        let name = job.command.args.first()?.clone();
        if !trust::is_trusted(&job.command.program, Path::new(&name)) {
            return None;
        }
        let file = std::fs::metadata(&job.command.program).ok()?;
        Some(Seed {
            file: (file.dev(), file.ino(), file.ctime(), file.ctime_nsec()),
            program: job.command.program.clone(),
            name,
            env: env().map(|(key, value)| (key.clone(), value.clone())).collect(),
        })
    }
}

fn is_read_at_start(key: &OsStr) -> bool {
    READ_AT_START.iter().any(|prefix| key.as_bytes().starts_with(prefix.as_bytes()))
}

fn is_ours(key: &OsStr, value: &OsStr) -> bool {
    let is_number = !value.is_empty() && value.as_bytes().iter().all(u8::is_ascii_digit);
    OURS.iter().any(|(k, v)| key == *k && value == *v) || (key == PROCESSORS && is_number)
}

/// The zygotes of a base.
#[derive(Debug, Default)]
pub(crate) struct Nursery {
    bounds: Bounds,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    zygotes: Vec<Zygote>,
    /// On their way out, and not to be waited for here.
    dying: Vec<Remains>,
    last_number: u8,
    failures: u32,
    failed_at: Option<Instant>,
}

/// One that was started. What was forked from it goes on when it ends.
#[derive(Debug)]
struct Zygote {
    seed: Seed,
    number: u8,
    is_ready: bool,
    /// It is not what it was when it hatched.
    is_outgrown: bool,
    forks: u32,
    begun: Instant,
    used: Instant,
    /// Its socket closes when it is dead. Its id and cgroup go back then, and not before.
    body: Option<Remains>,
}

impl Nursery {
    pub(crate) fn new(bounds: Bounds) -> Nursery {
        Nursery { bounds, state: Mutex::default() }
    }

    /// How long something that was made ahead may wait.
    pub(crate) fn wait_most(&self) -> Duration {
        self.bounds.wait_most
    }

    /// The zygote that such a run can be forked from, if there is one by now.
    pub(crate) fn ready(&self, seed: &Seed) -> Option<u8> {
        let mut state = self.state();
        state.look(&self.bounds);
        // The newest first: it replaces those that are worn.
        let ready = state.zygotes.iter_mut().rev().find(|z| z.is_ready && z.seed == *seed)?;
        ready.used = Instant::now();
        let number = ready.number;
        state.end(|z| z.seed == *seed && z.number != number && z.is_ready);
        Some(number)
    }

    /// Starts a zygote unless there is one that is not worn. It is ready a little later, or never.
    pub(crate) fn hatch(&self, ground: &Ground, base: &Base, seed: &Seed) {
        self.bury();
        let has_proc = base.setup.proc && !base.setup.bare;
        if !has_proc || !self.wants(seed) {
            return;
        }
        // It takes some milliseconds, in which others ask what is ready.
        let is_trusted = trust::has_trusted_library(&seed.program);
        let mut state = self.state();
        if !is_trusted {
            return state.failed();
        }
        if state.zygotes.len() >= MOST {
            let oldest = state.zygotes.iter().min_by_key(|z| z.used).map(|z| z.number);
            state.end(|z| Some(z.number) == oldest);
        }
        let number = state.next_number();
        match Zygote::start(ground, base, seed.clone(), number) {
            Ok(zygote) => state.zygotes.push(zygote),
            Err(_) => state.failed(),
        }
    }

    /// Whether there is none of them that is not worn, and should be.
    fn wants(&self, seed: &Seed) -> bool {
        let mut state = self.state();
        state.look(&self.bounds);
        let is_fresh = |z: &Zygote| z.seed == *seed && !z.is_worn(&self.bounds);
        !state.rests() && !state.zygotes.iter().any(is_fresh)
    }

    /// A cell is forked from one.
    pub(crate) fn forks(&self, number: u8) {
        let mut state = self.state();
        let zygote = state.zygotes.iter_mut().find(|z| z.number == number);
        zygote.into_iter().for_each(|zygote| zygote.forks = zygote.forks.saturating_add(1));
    }

    /// One was of no use: it is gone, and so many times is enough.
    pub(crate) fn give_up(&self, number: u8) {
        let mut state = self.state();
        if state.end(|z| z.number == number) {
            state.failed();
        }
    }

    /// A run that was forked was let go.
    pub(crate) fn worked(&self) {
        self.state().failures = 0;
    }

    /// Ends those that were used for too long, or all that are not wanted. Tells whether any is left.
    pub(crate) fn tend(&self, is_wanted: bool) -> bool {
        let mut state = self.state();
        state.look(&self.bounds);
        if !is_wanted {
            state.end(|_| true);
        }
        let is_any_left = !state.zygotes.is_empty();
        drop(state);
        self.bury();
        is_any_left
    }

    /// Waits until those are dead that were told to end.
    fn bury(&self) {
        let dying = mem::take(&mut self.state().dying);
        drop(dying);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Hears which have become ready and which have ended, and ends those that were used for too long.
    fn look(&mut self, bounds: &Bounds) {
        self.zygotes.iter_mut().for_each(Zygote::listen);
        let is_stillborn =
            |z: &Zygote| !z.is_ready && (z.body.is_none() || z.begun.elapsed() > READY_WITHIN);
        // One that never came up will not do so the next time either.
        let stillborn = self.zygotes.iter().filter(|z| is_stillborn(z)).count();
        (0..stillborn).for_each(|_| self.failed());
        self.end(|z| z.body.is_none() || is_stillborn(z) || z.is_spent(bounds));
    }

    /// Tells those to end, and whether there were any.
    fn end(&mut self, is_to_end: impl Fn(&Zygote) -> bool) -> bool {
        let mut ended = self.zygotes.extract_if(.., |zygote| is_to_end(zygote)).peekable();
        let were_any = ended.peek().is_some();
        self.dying.extend(ended.filter_map(|mut zygote| zygote.end()));
        were_any
    }

    fn failed(&mut self) {
        self.failures += 1;
        self.failed_at = Some(Instant::now());
    }

    /// Whether they have failed so often that they are left alone for now.
    fn rests(&mut self) -> bool {
        if self.failed_at.is_none_or(|at| at.elapsed() > REST) {
            self.failures = 0;
        }
        self.failures >= FAILURES_MOST
    }

    /// One that nobody has.
    fn next_number(&mut self) -> u8 {
        loop {
            self.last_number = self.last_number.checked_add(1).unwrap_or(1);
            if self.zygotes.iter().all(|z| z.number != self.last_number) {
                return self.last_number;
            }
        }
    }
}

impl Zygote {
    fn start(ground: &Ground, base: &Base, seed: Seed, number: u8) -> Result<Zygote, Refusal> {
        let id = ground.ids.as_ref().map(reserve_id).transpose()?;
        let cgroup = ground.cgroups.as_ref().map(|cgroups| cgroups.create(&LIMITS)).transpose();
        let cgroup = cgroup.map_err(cgroup_refusal)?;
        let (socket, theirs) =
            packet_pair().map_err(start::internal("making a zygote's socket"))?;
        let library = library().map_err(start::internal("making a zygote's library"))?;
        let script = sealed(PYTHON.as_bytes());
        let script = script.map_err(|e| start::internal("making a zygote's script")(e.into()))?;
        let filter = seccomp::Arch::native().map(seccomp::zygote_filter).unwrap_or_default();
        let env: Vec<Vec<u8>> = seed.env.iter().map(crate::start::variable).collect();
        let env: Vec<&[u8]> = env.iter().map(Vec::as_slice).collect();
        let args: Vec<&[u8]> =
            [seed.name.as_bytes()].into_iter().chain(START.map(str::as_bytes)).collect();
        let mut fds = vec![theirs.as_fd(), library.as_fd(), script.as_fd()];
        let entrance = enter(cgroup.as_ref(), &mut fds);
        let parts = ZygoteParts {
            number,
            uid: id.as_ref().map_or_else(|| rustix::process::geteuid().as_raw(), Id::number),
            gid: id.as_ref().map_or_else(|| rustix::process::getegid().as_raw(), Id::number),
            entrance,
            filter: &filter,
            program: seed.program.as_os_str().as_bytes(),
            args: &args,
            env: &env,
        };
        let started = base.launcher.start_zygote(&parts, &fds);
        started.map_err(|e| Refusal::of_talking("starting a zygote", e))?;
        drop(fds);
        let body = Some(Remains { socket, cgroup, id, is_nothing: false });
        let now = Instant::now();
        let (is_ready, is_outgrown, forks) = (false, false, 0);
        Ok(Zygote { seed, number, is_ready, is_outgrown, forks, begun: now, used: now, body })
    }

    /// Another one is wanted.
    fn is_worn(&self, bounds: &Bounds) -> bool {
        self.forks >= bounds.forks || self.begun.elapsed() > bounds.age
    }

    /// Nothing is forked from it any more.
    fn is_spent(&self, bounds: &Bounds) -> bool {
        let is_beyond = self.forks >= bounds.forks_most || self.begun.elapsed() > bounds.age_most;
        is_beyond || self.is_outgrown
    }

    /// Notes what it says: that it is ready, that it is not what it was, or by its silence that it is dead.
    fn listen(&mut self) {
        while let Some(body) = &self.body {
            match next_report(&body.socket, Instant::now()) {
                Ok((Report::Hatched, _)) => self.is_ready = true,
                Ok((Report::Outgrown, _)) => self.is_outgrown = true,
                Err(Refusal::Internal { source, .. })
                    if source.kind() == io::ErrorKind::TimedOut =>
                {
                    return;
                }
                // What else it could say is its end as well.
                _ => drop(self.end()),
            }
        }
    }

    /// Tells it to end, and gives what is to be waited for.
    fn end(&mut self) -> Option<Remains> {
        let body = self.body.take()?;
        // If it cannot be said, nobody is there who would hear it.
        rustix::net::shutdown(&body.socket, rustix::net::Shutdown::Write).ok();
        Some(body)
    }
}

impl Drop for Zygote {
    fn drop(&mut self) {
        drop(self.end());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zygote(forks: u32, age: Duration) -> Zygote {
        let begun = Instant::now().checked_sub(age).unwrap();
        let seed = Seed {
            program: "/usr/bin/python3".into(),
            file: (0, 0, 0, 0),
            name: "python3".into(),
            env: BTreeMap::new(),
        };
        let (is_ready, is_outgrown) = (true, false);
        Zygote { seed, number: 1, is_ready, is_outgrown, forks, begun, used: begun, body: None }
    }

    #[test]
    fn a_zygote_is_worn_before_it_is_spent() {
        let bounds = Bounds::default();
        let second = Duration::from_secs(1);
        for (forks, age, expected) in [
            (0, second, (false, false)),
            (bounds.forks, second, (true, false)),
            (0, bounds.age + second, (true, false)),
            (bounds.forks_most, second, (true, true)),
            (0, bounds.age_most + second, (true, true)),
        ] {
            let zygote = zygote(forks, age);
            let is = (zygote.is_worn(&bounds), zygote.is_spent(&bounds));
            assert_eq!(is, expected, "{forks} {age:?}");
        }
        let mut outgrown = zygote(0, second);
        outgrown.is_outgrown = true;
        assert!(outgrown.is_spent(&bounds));
    }
}
