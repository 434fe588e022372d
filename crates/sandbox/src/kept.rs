//! Sandboxes that stay: one cell that is never given a job holds the namespaces, the places, the id and the
//! cgroup, and each program gets a cell of its own inside, with every layer on and read back, as any run. So
//! a program ends as a whole, whatever it left in the background, and what it wrote stays.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use hotcell_jail::wire::{Failed, Report, Step};
use hotcell_types::{Layer, Level, Limits, Profile};
use rustix::io::Errno;

use crate::cell::{Cell, Kind};
use crate::cgroup::Cgroup;
use crate::hold::Hold;
use crate::ids::Id;
use crate::keeper::Keeper;
use crate::native::{Base, Ground, Parts, check_line};
use crate::running::{Running, Shared, is_readable};
use crate::start::{BUILD_MOST, check_network, internal, next_report, nonsense, take_handed};
use crate::supplies::{self, Placed};
use crate::{Job, Network, Refusal, View, WorkingCopy, collect, start, steps};

/// Most programs at one time in one sandbox.
pub const PROGRAMS_MOST: usize = 16;
/// How long a sandbox that was ended may take to be gone.
const GONE_WITHIN: Duration = Duration::from_secs(10);
/// How long a pause waits for programs that are just being started.
const STARTED_WITHIN: Duration = Duration::from_secs(2);
/// How long it may take to put a working copy into it, once all of it was handed over.
const FILLED_WITHIN: Duration = Duration::from_secs(20);

/// What a sandbox is made with that stays.
#[derive(Debug, Clone)]
pub struct Keep {
    /// What its programs see of the host.
    pub view: View,
    /// Of the sandbox as a whole, but for `timeout` and `output`, which each program has for itself. There is
    /// no limit of processor time.
    pub limits: Limits,
    pub profile: Profile,
    pub network: Network,
    #[cfg(feature = "holes")]
    pub holes: crate::Holes,
}

/// What a sandbox that stays and everything in it have together. Goes when nothing is left in it.
#[derive(Debug)]
pub(crate) struct Standing {
    /// Its name for the launcher.
    pub(crate) number: u32,
    /// Removed before the id is given back.
    pub(crate) cgroup: Option<Cgroup>,
    pub(crate) id: Option<Id>,
}

impl Standing {
    pub(crate) fn owner(&self) -> Option<u32> {
        self.id.as_ref().map(Id::number)
    }
}

/// What a sandbox uses, and has used so far, with everything in it. `None` where this host cannot say.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Consumption {
    pub cpu: Option<Duration>,
    /// Files count as memory.
    pub memory_bytes: Option<u64>,
    pub memory_peak_bytes: Option<u64>,
    pub oom_kills: Option<u64>,
    pub disk_bytes: u64,
    pub files: u64,
}

/// A sandbox that stays until it is stopped. Dropping it stops it.
#[derive(Debug)]
pub struct Kept {
    view: View,
    kind: Kind,
    profile: Profile,
    /// To the spawner: closing it is the end of the sandbox.
    socket: OwnedFd,
    /// To the cell that holds it, which waits for a job as long as this is open.
    #[expect(dead_code, reason = "held, and nothing is ever said on it")]
    line: OwnedFd,
    /// Its writable file system.
    place: OwnedFd,
    listeners: Mutex<Vec<OwnedFd>>,
    /// A cell for the next program.
    spare: Mutex<Option<Cell>>,
    programs: Mutex<Programs>,
    /// Rung when a program was started, or could not be.
    started: Condvar,
    is_gone: AtomicBool,
    standing: Arc<Standing>,
    keeper: Arc<Keeper>,
    ground: Arc<Ground>,
    base: Arc<Base>,
}

#[derive(Debug, Default)]
struct Programs {
    running: Vec<Weak<Shared>>,
    /// Those that are half made, which must not be frozen.
    starting: usize,
    /// Somebody paused it.
    is_paused: bool,
    /// How many look at its files, which stand still meanwhile.
    looks: usize,
    frozen_since: Option<Instant>,
    is_stopping: bool,
}

/// A program that is being started.
struct Starting<'a>(&'a Kept);

impl Drop for Starting<'_> {
    fn drop(&mut self) {
        self.0.programs().starting -= 1;
        self.0.started.notify_all();
    }
}

/// Everything in a sandbox stands still as long as this is there.
#[derive(Debug)]
pub struct Still<'a>(&'a Kept);

impl Drop for Still<'_> {
    fn drop(&mut self) {
        let mut programs = self.0.programs();
        programs.looks -= 1;
        // Nobody is left to tell; the next one who pauses or resumes it hears of it.
        self.0.settle(&mut programs).ok();
    }
}

impl Programs {
    fn each(&mut self) -> impl Iterator<Item = Arc<Shared>> + '_ {
        self.running.retain(|program| program.strong_count() > 0);
        self.running.iter().filter_map(Weak::upgrade)
    }
}

impl Kept {
    pub(crate) fn make(parts: &Parts<'_>, keep: &Keep) -> Result<Kept, Refusal> {
        let base = parts.base;
        check_stays(base)?;
        check_network(base.level, base.setup.bare, keep.network)?;
        let kind = Kind {
            loopback: keep.profile == Profile::StandardNet,
            network: keep.network,
            #[cfg(feature = "holes")]
            holes: keep.holes,
            ..Kind::of_limits(Limits { cpu_time: None, ..keep.limits })
        };
        let number = base.names.fetch_add(1, Ordering::Relaxed).wrapping_add(1).max(1);
        let cell = Cell::order_kept(parts.ground, base, kind, number)?;
        let (place, listeners) = await_built(&cell, parts)?;
        let Cell { socket, line, hold, id, .. } = cell;
        let kept = Kept {
            view: keep.view.clone(),
            kind,
            profile: keep.profile,
            socket,
            line,
            place,
            listeners: Mutex::new(listeners),
            spare: Mutex::default(),
            programs: Mutex::default(),
            started: Condvar::new(),
            is_gone: AtomicBool::new(false),
            standing: Arc::new(Standing { number, cgroup: hold.into_own(), id }),
            keeper: Arc::clone(parts.keeper),
            ground: Arc::clone(parts.ground),
            base: Arc::clone(base),
        };
        kept.prepare();
        Ok(kept)
    }

    /// Starts a program in it. Of the job's limits only `timeout` and `output` count, the others are those of
    /// the sandbox, and so are profile and network.
    pub fn exec(&self, job: Job) -> Result<Running, Refusal> {
        let begun = Instant::now();
        let job = self.fit(job)?;
        let starting = self.begin()?;
        let parts = Parts { ground: &self.ground, base: &self.base, keeper: &self.keeper, begun };
        let given = self.give(&parts, &job)?;
        let running = start::run_inside(&parts, job, given)?;
        let mut programs = self.programs();
        programs.running.push(Arc::downgrade(&running.shared));
        if programs.is_stopping {
            running.shared.cancel();
        }
        drop(programs);
        drop(starting);
        self.prepare();
        Ok(running)
    }

    /// Puts a working copy into the working directory. What has the name of one of its files or links is
    /// replaced; directories stay and are added to.
    pub fn fill(&self, copy: &dyn WorkingCopy) -> Result<(), Refusal> {
        // Should it be paused meanwhile, this is late and gives up: nothing waits for it.
        drop(self.begin()?);
        let cell = self.cell()?;
        let mut placed = Placed::default();
        let sent = supplies::fill(&cell, copy, &mut placed);
        let ended = sent.and_then(|()| await_filled(&cell));
        self.prepare();
        ended.map_err(|refusal| self.failure_to_fill(refusal, &cell, &placed))
    }

    /// What a cell said before it was gone is more than that it is.
    fn failure_to_fill(&self, refusal: Refusal, cell: &Cell, placed: &Placed) -> Refusal {
        let said = refusal.is_lost().then(|| last_failure(cell)).flatten();
        match said {
            Some(failed) if failed.step == Step::Inputs => {
                let errno = Errno::from_raw_os_error(failed.errno);
                let name = placed.path(failed.index as usize);
                start::input_refusal(errno, &name, &self.kind.limits)
            }
            Some(failed) => steps::refusal(failed, &self.base.layout),
            None => refusal,
        }
    }

    /// Stops every program where it stands until they go on together. The time does not count for them.
    pub fn pause(&self) -> Result<(), Refusal> {
        let mut programs = self.programs();
        programs.is_paused = true;
        self.settle_started(programs).inspect_err(|_| self.programs().is_paused = false)
    }

    pub fn resume(&self) -> Result<(), Refusal> {
        let mut programs = self.programs();
        programs.is_paused = false;
        self.settle(&mut programs)
    }

    /// The same for as long as somebody looks at its files, whoever pauses or resumes it meanwhile.
    pub fn stand_still(&self) -> Result<Still<'_>, Refusal> {
        let mut programs = self.programs();
        programs.looks += 1;
        let still = Still(self);
        // Where nothing runs, nothing has to be stopped.
        if programs.starting == 0 && programs.each().next().is_none() {
            return Ok(still);
        }
        self.settle_started(programs).map(|()| still)
    }

    /// Freezes or thaws it as it is wanted, once nothing is half made.
    fn settle_started(&self, programs: MutexGuard<'_, Programs>) -> Result<(), Refusal> {
        let waited = self
            .started
            .wait_timeout_while(programs, STARTED_WITHIN, |programs| programs.starting > 0);
        let (mut programs, waited) = waited.unwrap_or_else(PoisonError::into_inner);
        if waited.timed_out() {
            return Err(Refusal::Busy { running: u32::try_from(programs.starting).unwrap_or(1) });
        }
        self.settle(&mut programs)
    }

    fn settle(&self, programs: &mut Programs) -> Result<(), Refusal> {
        let is_wanted = (programs.is_paused || programs.looks > 0) && !programs.is_stopping;
        match (is_wanted, programs.frozen_since) {
            (true, None) => {
                self.cgroup()?.freeze().map_err(freezing)?;
                let now = Instant::now();
                programs.frozen_since = Some(now);
                programs.each().for_each(|program| program.stand_still(now));
            }
            (false, Some(_)) => {
                self.cgroup()?.thaw().map_err(freezing)?;
                programs.frozen_since = None;
                programs.each().for_each(|program| program.go_on());
            }
            (true, Some(_)) | (false, None) => {}
        }
        Ok(())
    }

    /// What every program in it has at least.
    pub fn level(&self) -> Level {
        self.base.level
    }

    /// How many programs are in it now.
    pub fn programs_running(&self) -> usize {
        self.programs().each().count()
    }

    pub fn usage(&self) -> Consumption {
        let stats = self.standing.cgroup.as_ref().map(Cgroup::stats).unwrap_or_default();
        let disk = rustix::fs::fstatvfs(&self.place).ok();
        let used = |all: u64, free: u64| all.saturating_sub(free);
        Consumption {
            cpu: stats.cpu_us.map(Duration::from_micros),
            memory_bytes: stats.memory_now,
            memory_peak_bytes: stats.memory_peak,
            oom_kills: stats.oom_kills,
            disk_bytes: disk
                .as_ref()
                .map_or(0, |d| used(d.f_blocks, d.f_bfree).saturating_mul(d.f_frsize)),
            files: disk.as_ref().map_or(0, |d| used(d.f_files, d.f_ffree)),
        }
    }

    /// Its working directory. Names in it are not to be trusted: open them beneath, following nothing. What is
    /// in there changes under the reader's hands unless the sandbox is paused.
    pub fn work_dir(&self) -> io::Result<OwnedFd> {
        collect::open_work(&self.place)
    }

    /// Once, with [`Network::Proxied`]: sockets that listen in its namespaces, as
    /// [`Running::listeners`](crate::Running::listeners) gives them for a run.
    pub fn listeners(&self) -> Vec<OwnedFd> {
        std::mem::take(&mut *self.listeners.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether it is there no more: it was stopped, or its launcher was killed.
    pub fn has_ended(&self) -> bool {
        // Once it stands, the end is the only thing that is ever said of it.
        self.is_gone.load(Ordering::Acquire) || is_readable(&self.socket)
    }

    /// Ends every program, and removes everything. Again is no error.
    pub fn stop(&self) -> Result<(), Refusal> {
        self.condemn();
        drop(self.spare().take());
        // Any word means the end.
        rustix::io::write(&self.socket, b"k").ok();
        if let Some(cgroup) = &self.standing.cgroup {
            cgroup.kill().map_err(ending)?;
        }
        self.await_gone()?;
        match &self.standing.cgroup {
            Some(cgroup) => cgroup.remove().map_err(ending),
            None => Ok(()),
        }
    }

    /// No program begins any more, and those that run count as cancelled. Nobody in there is waited for.
    fn condemn(&self) {
        let mut programs = self.programs();
        programs.is_stopping = true;
        programs.frozen_since = None;
        for program in programs.each() {
            program.cancel();
            program.go_on();
        }
    }

    fn await_gone(&self) -> Result<(), Refusal> {
        let deadline = Instant::now() + GONE_WITHIN;
        while !self.is_gone.load(Ordering::Acquire) {
            match next_report(&self.socket, deadline) {
                Ok((Report::Gone(_), _)) => self.is_gone.store(true, Ordering::Release),
                Ok(_) => {}
                Err(refusal) if refusal.is_lost() => self.is_gone.store(true, Ordering::Release),
                Err(refusal) => return Err(refusal),
            }
        }
        Ok(())
    }

    /// As everything in it is.
    fn fit(&self, job: Job) -> Result<Job, Refusal> {
        check_line(&job)?;
        if !self.view.covers(&job.command.view()) {
            return Err(Refusal::Invalid {
                what: format!("`{}`", job.command.program.display()),
                why: "the sandbox was made without the directories that it needs".into(),
                fix: "make a sandbox for its language".into(),
            });
        }
        let (timeout, output) = (job.limits.timeout, job.limits.output);
        Ok(Job {
            limits: Limits { timeout, output, ..self.kind.limits },
            profile: self.profile,
            network: self.kind.network,
            #[cfg(feature = "holes")]
            holes: self.kind.holes,
            ..job
        })
    }

    /// Takes a place for a program that is to be started.
    fn begin(&self) -> Result<Starting<'_>, Refusal> {
        let mut programs = self.programs();
        let refused = |why: &str, fix: &str| {
            let what = "the sandbox".into();
            Err(Refusal::Invalid { what, why: why.into(), fix: fix.into() })
        };
        if programs.is_stopping {
            return refused("it is being stopped", "make another");
        }
        if programs.is_paused {
            return refused("it is paused", "resume it first");
        }
        let running = programs.each().count() + programs.starting;
        if running >= PROGRAMS_MOST || programs.looks > 0 {
            return Err(Refusal::Busy { running: u32::try_from(running).unwrap_or(u32::MAX) });
        }
        programs.starting += 1;
        Ok(Starting(self))
    }

    fn give(&self, parts: &Parts<'_>, job: &Job) -> Result<start::Given, Refusal> {
        if let Some(cell) = self.waiting() {
            match start::give_to(cell, parts, job) {
                // The waiting cell was lost; nothing of the job has run, so that another can take it.
                Err(refusal) if refusal.is_lost() => {}
                other => return other.map(start::Given::waited),
            }
        }
        start::give_to(self.new_cell()?, parts, job)
    }

    fn cell(&self) -> Result<Cell, Refusal> {
        match self.waiting() {
            Some(cell) => Ok(cell),
            None => self.new_cell(),
        }
    }

    /// The cell that waits. What happened meanwhile is not counted for it.
    fn waiting(&self) -> Option<Cell> {
        let cell = self.spare().take()?;
        Some(Cell { hold: Hold::inside(&self.standing), ..cell })
    }

    fn new_cell(&self) -> Result<Cell, Refusal> {
        Cell::order_inside(&self.base, self.kind, &self.standing)
    }

    /// Has a cell made for the next program, without waiting for it. If that fails, the program has one made
    /// itself, and hears why.
    fn prepare(&self) {
        let mut spare = self.spare();
        if spare.is_none() && !self.programs().is_stopping {
            *spare = self.new_cell().ok();
        }
    }

    fn cgroup(&self) -> Result<&Cgroup, Refusal> {
        self.standing.cgroup.as_ref().ok_or_else(|| Refusal::Layer {
            layer: Layer::CgroupPids,
            why: "a sandbox can be paused only in a cgroup".into(),
            fix: "`hotcell doctor` says how to get one".into(),
        })
    }

    fn programs(&self) -> MutexGuard<'_, Programs> {
        self.programs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn spare(&self) -> MutexGuard<'_, Option<Cell>> {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        // What stays behind even so is swept by the next process.
        self.stop().ok();
    }
}

/// Without namespaces a sandbox is nothing but its programs: there is nothing that could stay.
fn check_stays(base: &Base) -> Result<(), Refusal> {
    if !base.setup.bare {
        return Ok(());
    }
    Err(Refusal::Layer {
        layer: Layer::MountNamespace,
        why: format!("at level {} there is no sandbox that could stay", base.level),
        fix: "run programs one by one, or on a host with namespaces: `hotcell doctor` says what \
              forbids them here"
            .into(),
    })
}

/// Waits until the places stand.
fn await_built(cell: &Cell, parts: &Parts<'_>) -> Result<(OwnedFd, Vec<OwnedFd>), Refusal> {
    match next_report(&cell.socket, Instant::now() + BUILD_MOST)? {
        (Report::Built, fds) => {
            let (place, listeners) = take_handed(fds)?;
            if listeners.len() == cell.handed() { Ok((place, listeners)) } else { Err(nonsense()) }
        }
        (Report::Failed(failed), _) if failed.step == Step::Busy => {
            Err(Refusal::Busy { running: failed.index })
        }
        (Report::Failed(failed), _) => Err(steps::refusal(failed, &parts.base.layout)),
        (Report::Gone(_), _) => {
            Err(internal("building a sandbox, which was killed")(io::ErrorKind::Other.into()))
        }
        _ => Err(nonsense()),
    }
}

/// Why a cell ended, if it said so.
fn last_failure(cell: &Cell) -> Option<Failed> {
    let deadline = Instant::now() + GONE_WITHIN;
    loop {
        match next_report(&cell.socket, deadline).ok()?.0 {
            Report::Failed(failed) => return Some(failed),
            Report::Gone(_) => return None,
            _ => {}
        }
    }
}

/// Waits until the cell has taken everything and ended by itself.
fn await_filled(cell: &Cell) -> Result<(), Refusal> {
    let deadline = Instant::now() + FILLED_WITHIN;
    loop {
        match next_report(&cell.line, deadline)?.0 {
            Report::Taken => {}
            Report::Ended(ended) if ended.wait_status == Some(0) => return Ok(()),
            _ => return Err(nonsense()),
        }
    }
}

fn freezing(error: crate::cgroup::CgroupError) -> Refusal {
    internal("pausing or resuming a sandbox")(io::Error::other(error))
}

fn ending(error: crate::cgroup::CgroupError) -> Refusal {
    internal("ending a sandbox")(io::Error::other(error))
}
