//! Work beside the runs: cells for the next ones, and the burial of what ended ones leave.

use std::mem;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use hotcell_jail::wire::Report;

use crate::cell::{Cell, Kind};
use crate::cgroup::Cgroup;
use crate::demand::{Demand, Like};
use crate::ids::Id;
use crate::native::{Base, Ground};
use crate::pressure::Pressure;
use crate::start::next_report;
use crate::warm::Seed;

/// The job with which a process counts as one that goes on running jobs. One that runs a single job and
/// ends makes no cell for another.
const RESIDENT_SINCE: usize = 2;
/// Most cells that wait for jobs.
const MOST_SPARES: usize = 8;
/// How often it is looked what has waited for too long, and how much memory there is.
const ROUND: Duration = Duration::from_secs(2);
/// Most errands that wait for the thread.
const MOST_ERRANDS: usize = 256;
/// How long the init of an ended run may take to be gone.
const BURIED_WITHIN: Duration = Duration::from_secs(5);

/// What a run leaves whose processes have all ended but for its init, which is on its way out. Dropping
/// it waits for that and removes the rest.
#[derive(Debug)]
pub(crate) struct Remains {
    pub(crate) socket: OwnedFd,
    pub(crate) cgroup: Option<Cgroup>,
    #[expect(dead_code, reason = "held until nothing is left that has it")]
    pub(crate) id: Option<Id>,
    /// Nobody has to wait for anything of it.
    pub(crate) is_nothing: bool,
}

impl Remains {
    /// Leaves the rest to the launcher.
    fn forget(mut self) {
        debug_assert!(self.cgroup.is_none());
        self.is_nothing = true;
    }
}

impl Drop for Remains {
    fn drop(&mut self) {
        if self.is_nothing {
            return;
        }
        let deadline = Instant::now() + BURIED_WITHIN;
        let is_gone = loop {
            match next_report(&self.socket, deadline) {
                Ok((Report::Gone(_), _)) => break true,
                Ok(_) => {}
                // A closed socket says the same as the word.
                Err(refusal) => break refusal.is_lost(),
            }
        };
        if let Some(cgroup) = &self.cgroup {
            if !is_gone {
                cgroup.kill().ok();
            }
            // What cannot be removed is killed when it is dropped, and swept by the next process.
            cgroup.remove().ok();
        }
    }
}

/// Cells made ahead for jobs like the last ones.
#[derive(Debug, Default)]
pub(crate) struct Spares {
    demand: Mutex<Demand>,
    waiting: Mutex<Vec<Cell>>,
}

impl Spares {
    /// Takes a cell that was made for such a job, and has not waited for too long. Waits for one that is
    /// being made.
    pub(crate) fn take(&self, kind: Kind, wait_most: Duration) -> Option<Cell> {
        let mut waiting = self.waiting();
        let is_late = |cell: &Cell| cell.ordered.elapsed() > wait_most;
        let late: Vec<Cell> = waiting.extract_if(.., |cell| is_late(cell)).collect();
        let place = waiting.iter().position(|cell| cell.kind == kind);
        let taken = place.map(|place| waiting.remove(place));
        // Ending them takes a while.
        drop(waiting);
        drop(late);
        taken
    }

    /// Ends all that wait, and tells whether there were any.
    pub(crate) fn end_all(&self) -> bool {
        let ended = mem::take(&mut *self.waiting());
        !ended.is_empty()
    }

    pub(crate) fn add(&self, cell: Cell) {
        self.waiting().push(cell);
    }

    /// Makes cells until there are enough of this kind, and ends those that are too many. If that fails, the
    /// next job makes its own, and hears why.
    fn replenish(&self, ground: &Ground, base: &Base, kind: Kind, pressure: Pressure) {
        loop {
            let targets = self.targets(pressure);
            let enough = targets.iter().find(|(of, _)| *of == kind).map_or(0, |(_, count)| *count);
            // Held while a cell is ordered, so that the job that needs it waits and orders no second.
            let mut waiting = self.waiting();
            if waiting.iter().filter(|cell| cell.kind == kind).count() >= enough {
                let surplus = surplus(&mut waiting, &targets);
                // Ending them takes a while.
                drop(waiting);
                drop(surplus);
                return;
            }
            let Ok(cell) = Cell::order(ground, base, kind) else { return };
            waiting.push(cell);
        }
    }

    /// Ends what nobody has asked for in a while, or what there is no memory for. Tells whether any is left.
    fn shrink(&self, pressure: Pressure, wait_most: Duration) -> bool {
        self.demand().forget(Instant::now(), wait_most);
        let targets = self.targets(pressure);
        let mut waiting = self.waiting();
        let late: Vec<Cell> =
            waiting.extract_if(.., |cell| cell.ordered.elapsed() > wait_most).collect();
        let surplus = surplus(&mut waiting, &targets);
        let is_any_left = !waiting.is_empty();
        drop(waiting);
        drop((late, surplus));
        is_any_left
    }

    fn targets(&self, pressure: Pressure) -> Vec<(Kind, usize)> {
        let each = processors().min(MOST_SPARES);
        self.demand().targets(Instant::now(), pressure, each, MOST_SPARES)
    }

    fn demand(&self) -> MutexGuard<'_, Demand> {
        self.demand.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn waiting(&self) -> MutexGuard<'_, Vec<Cell>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes out what is beyond the targets, the oldest first.
fn surplus(waiting: &mut Vec<Cell>, targets: &[(Kind, usize)]) -> Vec<Cell> {
    let mut room = targets.to_vec();
    // From the end: the newest stay.
    let mut kept = Vec::with_capacity(waiting.len());
    let mut surplus = Vec::new();
    for cell in waiting.drain(..).rev() {
        match room.iter_mut().find(|(kind, count)| *kind == cell.kind && *count > 0) {
            Some((_, count)) => {
                *count -= 1;
                kept.push(cell);
            }
            None => surplus.push(cell),
        }
    }
    kept.reverse();
    *waiting = kept;
    surplus
}

/// Sees to what needs not be waited for. In a process that goes on running jobs a thread does it;
/// otherwise it is left until the end, when launchers and runs end together. What the first job of a
/// process leaves is an empty cgroup and an id, until there is a second.
#[derive(Debug)]
pub(crate) struct Keeper {
    ground: Arc<Ground>,
    /// Jobs so far.
    jobs: AtomicUsize,
    is_closed: Arc<AtomicBool>,
    desk: Mutex<Desk>,
}

#[derive(Debug, Default)]
struct Desk {
    thread: Option<(SyncSender<Errand>, JoinHandle<()>)>,
    /// Left until the end, or until there is a thread.
    remains: Vec<Remains>,
}

#[derive(Debug)]
enum Errand {
    Replenish { base: Arc<Base>, like: Like },
    Bury(Remains),
}

/// A job's place among those that run. Dropping it makes way for another.
#[derive(Debug)]
pub(crate) struct Seat {
    /// Jobs in a sandbox that stays say nothing about which cells are worth waiting.
    like: Option<Like>,
    /// Goes before the keeper, so that a launcher that nobody needs ends before its runs are buried.
    base: Arc<Base>,
    keeper: Arc<Keeper>,
}

impl Keeper {
    pub(crate) fn new(ground: Arc<Ground>) -> Keeper {
        Keeper {
            ground,
            jobs: AtomicUsize::new(0),
            is_closed: Arc::default(),
            desk: Mutex::default(),
        }
    }

    /// A job was let go.
    pub(crate) fn seat(
        self: &Arc<Keeper>,
        base: &Arc<Base>,
        kind: Kind,
        seed: Option<Seed>,
    ) -> Seat {
        self.jobs.fetch_add(1, Ordering::Relaxed);
        let like = Like { kind, seed };
        base.spares.demand().begin(&like, Instant::now());
        Seat { like: Some(like), base: Arc::clone(base), keeper: Arc::clone(self) }
    }

    /// The same in a sandbox that stays.
    pub(crate) fn seat_inside(self: &Arc<Keeper>, base: &Arc<Base>) -> Seat {
        self.jobs.fetch_add(1, Ordering::Relaxed);
        Seat { like: None, base: Arc::clone(base), keeper: Arc::clone(self) }
    }

    fn replenish(&self, base: &Arc<Base>, like: &Like) {
        if self.is_resident() {
            self.send(Errand::Replenish { base: Arc::clone(base), like: like.clone() });
        }
    }

    fn is_resident(&self) -> bool {
        self.jobs.load(Ordering::Relaxed) >= RESIDENT_SINCE
    }

    fn send(&self, errand: Errand) {
        let mut desk = self.desk();
        if desk.thread.is_none() && self.is_resident() && !self.is_closed.load(Ordering::Acquire) {
            desk.thread = self.hire(mem::take(&mut desk.remains));
        }
        let Some((errands, _)) = &desk.thread else {
            if let Errand::Bury(remains) = errand {
                desk.remains.push(remains);
            }
            return;
        };
        let errands = errands.clone();
        drop(desk);
        // What is too much for the thread is buried here and now, or made by who needs it.
        drop(errands.try_send(errand));
    }

    /// `None` where there can be no more threads.
    fn hire(&self, remains: Vec<Remains>) -> Option<(SyncSender<Errand>, JoinHandle<()>)> {
        let (errands, received) = sync_channel(MOST_ERRANDS);
        let (ground, is_closed) = (Arc::clone(&self.ground), Arc::clone(&self.is_closed));
        let work = move || {
            drop(remains);
            work(&ground, &received, &is_closed);
        };
        let thread = thread::Builder::new().name("keeper".into()).spawn(work).ok()?;
        Some((errands, thread))
    }

    /// Buries what is left until the end.
    pub(crate) fn bury(&self) {
        let remains = mem::take(&mut self.desk().remains);
        drop(remains);
    }

    /// Makes no more cells, and leaves burials until the launchers have ended.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        let thread = self.desk().thread.take();
        if let Some((errands, thread)) = thread {
            drop(errands);
            if thread.join().is_err() {
                debug_assert!(false, "the keeper panicked");
            }
        }
    }

    fn desk(&self) -> MutexGuard<'_, Desk> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Seat {
    /// The job's processes have ended.
    pub(crate) fn leave(self, remains: Remains) {
        if self.like.is_none() {
            // What it had is the sandbox's, so that nothing is to be removed, and nobody waits for its init.
            return remains.forget();
        }
        let keeper = Arc::clone(&self.keeper);
        // Cells for the next jobs come before the burial, which nobody waits for.
        drop(self);
        keeper.send(Errand::Bury(remains));
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let Some(like) = &self.like else { return };
        self.base.spares.demand().end(like, Instant::now());
        self.keeper.replenish(&self.base, like);
    }
}

/// Asked once, since the answer is put together from several files.
fn processors() -> usize {
    static PROCESSORS: OnceLock<usize> = OnceLock::new();
    *PROCESSORS.get_or_init(|| thread::available_parallelism().map_or(1, usize::from))
}

fn work(ground: &Ground, errands: &Receiver<Errand>, is_closed: &AtomicBool) {
    let mut rounds = Rounds::default();
    loop {
        let errand = match rounds.next_at() {
            None => errands.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(at) => errands.recv_timeout(at.saturating_duration_since(Instant::now())),
        };
        match errand {
            Ok(Errand::Replenish { .. }) if is_closed.load(Ordering::Acquire) => {}
            Ok(Errand::Replenish { base, like }) => {
                rounds.visit(&base);
                replenish(ground, &base, &like, rounds.pressure);
            }
            Ok(Errand::Bury(remains)) => drop(remains),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        if rounds.next_at().is_some_and(|at| at <= Instant::now()) {
            rounds.go();
        }
    }
}

fn replenish(ground: &Ground, base: &Base, like: &Like, pressure: Pressure) {
    let mut kind = like.kind;
    if let Some(seed) = &like.seed {
        if pressure < Pressure::Short {
            base.nursery.hatch(ground, base, seed);
        }
        kind.zygote = base.nursery.ready(seed).unwrap_or(0);
    }
    base.spares.demand().make(like, kind);
    base.spares.replenish(ground, base, kind, pressure);
}

/// What is looked after as long as something waits, also when no job comes.
#[derive(Debug)]
struct Rounds {
    pressure: Pressure,
    bases: Vec<Weak<Base>>,
    next: Instant,
}

impl Default for Rounds {
    fn default() -> Rounds {
        Rounds { pressure: Pressure::None, bases: Vec::new(), next: Instant::now() }
    }
}

impl Rounds {
    fn next_at(&self) -> Option<Instant> {
        (!self.bases.is_empty()).then_some(self.next)
    }

    fn visit(&mut self, base: &Arc<Base>) {
        let base = Arc::downgrade(base);
        if !self.bases.iter().any(|known| known.ptr_eq(&base)) {
            self.bases.push(base);
        }
    }

    /// Ends what is not worth its memory, and forgets bases where nothing waits.
    fn go(&mut self) {
        self.pressure = Pressure::now();
        let pressure = self.pressure;
        self.bases.retain(|base| {
            let Some(base) = base.upgrade() else { return false };
            let wait_most = base.nursery.wait_most();
            let is_any_left = base.spares.shrink(pressure, wait_most);
            let is_wanted = pressure < Pressure::Short || !base.spares.demand().is_idle();
            base.nursery.tend(is_wanted) || is_any_left
        });
        self.next = Instant::now() + ROUND;
    }
}
