//! Zygotes: interpreters that have started and wait to be forked into jails. A base has one for each start
//! that its runs have in common. What a zygote shares with its children, and what not, is in
//! docs/warm.md.

mod trust;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hotcell_jail::wire::{Report, ZygoteParts};
use hotcell_types::Profile;

use crate::cell::reserve_id;
use crate::ids::Id;
use crate::image::{library, sealed};
use crate::launcher::packet_pair;
use crate::native::{Base, Ground};
use crate::start::next_report;
use crate::{Job, Refusal, start};

/// What a Python zygote does with its life.
const PYTHON: &str = include_str!("warm/python.py");

/// How the interpreter is told to start: as for a run, but for `site`, which runs what others wrote, and
/// does so in the jail.
const START: [&str; 3] = ["-u", "-S", "/proc/self/fd/5"];

/// Children of one zygote have its hash secret, stack canary and address layout in common. After so many
/// there is another zygote.
const RENEWED_AFTER: u32 = 1000;
/// Most zygotes of one base.
const MOST: usize = 4;
/// And after so long: what it has loaded may have been replaced on the disk.
const AGE_MOST: Duration = Duration::from_secs(600);
/// How long one may take to start.
const READY_WITHIN: Duration = Duration::from_secs(30);
/// How often in a row zygotes of a base may fail before they are left alone for a while.
const FAILURES_MOST: u32 = 3;
const REST: Duration = Duration::from_secs(60);

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
        // Strict allows one execution, by a secret that has to be gone from memory: a fork replaces none.
        if !job.command.forks || job.profile == Profile::Strict {
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
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    zygotes: Vec<Zygote>,
    last_number: u8,
    failures: u32,
    failed_at: Option<Instant>,
}

/// One that was started. Dropping it ends it; what was forked from it goes on.
#[derive(Debug)]
struct Zygote {
    seed: Seed,
    number: u8,
    socket: OwnedFd,
    is_ready: bool,
    forks: u32,
    begun: Instant,
    used: Instant,
    /// Given back when it has ended.
    _id: Option<Id>,
}

impl Nursery {
    /// The zygote that such a run can be forked from, if there is one by now.
    pub(crate) fn ready(&self, seed: &Seed) -> Option<u8> {
        let mut state = self.state();
        state.look();
        // The newest first: it replaces those that are worn.
        let ready = state.zygotes.iter_mut().rev().find(|z| z.is_ready && z.seed == *seed)?;
        ready.used = Instant::now();
        let number = ready.number;
        state.zygotes.retain(|z| z.seed != *seed || z.number == number || !z.is_ready);
        Some(number)
    }

    /// Starts a zygote unless there is one that is not worn. It is ready a little later, or never.
    pub(crate) fn hatch(&self, ground: &Ground, base: &Base, seed: &Seed) {
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
            let oldest = state.zygotes.iter().enumerate().min_by_key(|(_, z)| z.used);
            if let Some(oldest) = oldest.map(|(index, _)| index) {
                state.zygotes.remove(oldest);
            }
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
        state.look();
        let is_fresh = |z: &Zygote| z.seed == *seed && !z.is_worn();
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
        let known = state.zygotes.len();
        state.zygotes.retain(|z| z.number != number);
        if state.zygotes.len() < known {
            state.failed();
        }
    }

    /// A run that was forked was let go.
    pub(crate) fn worked(&self) {
        self.state().failures = 0;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Hears which have become ready and which have ended.
    fn look(&mut self) {
        let mut stillborn = 0;
        self.zygotes.retain_mut(|zygote| {
            let is_late = !zygote.is_ready && zygote.begun.elapsed() > READY_WITHIN;
            let stays = zygote.is_there() && !is_late;
            // One that never came up will not do so the next time either.
            stillborn += u32::from(!stays && !zygote.is_ready);
            stays
        });
        (0..stillborn).for_each(|_| self.failed());
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
        let (socket, theirs) =
            packet_pair().map_err(start::internal("making a zygote's socket"))?;
        let library = library().map_err(start::internal("making a zygote's library"))?;
        let script = sealed(PYTHON.as_bytes());
        let script = script.map_err(|e| start::internal("making a zygote's script")(e.into()))?;
        let env: Vec<Vec<u8>> = seed.env.iter().map(crate::start::variable).collect();
        let env: Vec<&[u8]> = env.iter().map(Vec::as_slice).collect();
        let args: Vec<&[u8]> =
            [seed.name.as_bytes()].into_iter().chain(START.map(str::as_bytes)).collect();
        let parts = ZygoteParts {
            number,
            uid: id.as_ref().map_or_else(|| rustix::process::geteuid().as_raw(), Id::number),
            gid: id.as_ref().map_or_else(|| rustix::process::getegid().as_raw(), Id::number),
            program: seed.program.as_os_str().as_bytes(),
            args: &args,
            env: &env,
        };
        let fds = [theirs.as_fd(), library.as_fd(), script.as_fd()];
        let started = base.launcher.start_zygote(&parts, &fds);
        started.map_err(|e| Refusal::of_talking("starting a zygote", e))?;
        let now = Instant::now();
        let (is_ready, forks) = (false, 0);
        Ok(Zygote { seed, number, socket, is_ready, forks, begun: now, used: now, _id: id })
    }

    fn is_worn(&self) -> bool {
        self.forks >= RENEWED_AFTER || self.begun.elapsed() > AGE_MOST
    }

    /// Whether it has not ended; and notes whether it is ready.
    fn is_there(&mut self) -> bool {
        loop {
            match next_report(&self.socket, Instant::now()) {
                Ok((Report::Hatched, _)) => self.is_ready = true,
                Ok(_) => return false,
                Err(Refusal::Internal { source, .. }) => {
                    return source.kind() == io::ErrorKind::TimedOut;
                }
                Err(_) => return false,
            }
        }
    }
}
