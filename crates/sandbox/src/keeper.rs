//! Work beside the runs: cells for the next ones, and the burial of what ended ones leave.

use std::mem;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use hotcell_jail::wire::Report;

use crate::cell::{Cell, Kind};
use crate::cgroup::Cgroup;
use crate::ids::Id;
use crate::native::{Base, Ground};
use crate::start::next_report;
use crate::warm::Seed;

/// The job with which a process counts as one that goes on running jobs. One that runs a single job and
/// ends makes no cell for another.
const RESIDENT_SINCE: usize = 2;
/// Most cells that wait for jobs.
const MOST_SPARES: usize = 8;
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
}

impl Drop for Remains {
    fn drop(&mut self) {
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

    /// Makes cells of this kind until there are enough, in place of others. If that fails, the next
    /// job makes its own, and hears why.
    fn replenish(&self, ground: &Ground, base: &Base, kind: Kind, enough: usize) {
        loop {
            // Held while a cell is ordered, so that the job that needs it waits and orders no second.
            let mut waiting = self.waiting();
            if waiting.iter().filter(|cell| cell.kind == kind).count() >= enough {
                return;
            }
            let Ok(cell) = Cell::order(ground, base, kind) else { return };
            waiting.push(cell);
            let other = waiting.iter().position(|cell| cell.kind != kind);
            let surplus = other.filter(|_| waiting.len() > enough);
            let surplus = surplus.map(|place| waiting.remove(place));
            // Ending it takes a while.
            drop(waiting);
            drop(surplus);
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Vec<Cell>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sees to what needs not be waited for. In a process that goes on running jobs a thread does it;
/// otherwise it is left until the end, when launchers and runs end together. What the first job of a
/// process leaves is an empty cgroup and an id, until there is a second.
#[derive(Debug)]
pub(crate) struct Keeper {
    ground: Arc<Ground>,
    /// Jobs so far, those that run now, and the most that did at one time.
    jobs: AtomicUsize,
    running: AtomicUsize,
    at_once: AtomicUsize,
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
    Replenish { base: Arc<Base>, kind: Kind, seed: Option<Seed>, enough: usize },
    Bury(Remains),
}

/// A job's place among those that run. Dropping it makes way for another.
#[derive(Debug)]
pub(crate) struct Seat {
    kind: Kind,
    seed: Option<Seed>,
    /// Goes before the keeper, so that a launcher that nobody needs ends before its runs are buried.
    base: Arc<Base>,
    keeper: Arc<Keeper>,
}

impl Keeper {
    pub(crate) fn new(ground: Arc<Ground>) -> Keeper {
        Keeper {
            ground,
            jobs: AtomicUsize::new(0),
            running: AtomicUsize::new(0),
            at_once: AtomicUsize::new(0),
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
        let running = self.running.fetch_add(1, Ordering::Relaxed) + 1;
        self.at_once.fetch_max(running, Ordering::Relaxed);
        Seat { kind, seed, base: Arc::clone(base), keeper: Arc::clone(self) }
    }

    fn replenish(&self, base: &Arc<Base>, kind: Kind, seed: Option<Seed>) {
        if !self.is_resident() {
            return;
        }
        let most = processors().min(MOST_SPARES);
        let enough = self.at_once.load(Ordering::Relaxed).min(most);
        self.send(Errand::Replenish { base: Arc::clone(base), kind, seed, enough });
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
        let keeper = Arc::clone(&self.keeper);
        // Cells for the next jobs come before the burial, which nobody waits for.
        drop(self);
        keeper.send(Errand::Bury(remains));
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.keeper.running.fetch_sub(1, Ordering::Relaxed);
        self.keeper.replenish(&self.base, self.kind, self.seed.take());
    }
}

/// Asked once, since the answer is put together from several files.
fn processors() -> usize {
    static PROCESSORS: OnceLock<usize> = OnceLock::new();
    *PROCESSORS.get_or_init(|| thread::available_parallelism().map_or(1, usize::from))
}

fn work(ground: &Ground, errands: &Receiver<Errand>, is_closed: &AtomicBool) {
    for errand in errands {
        match errand {
            Errand::Replenish { .. } if is_closed.load(Ordering::Acquire) => {}
            Errand::Replenish { base, mut kind, seed, enough } => {
                if let Some(seed) = seed {
                    base.nursery.hatch(ground, &base, &seed);
                    kind.zygote = base.nursery.ready(&seed).unwrap_or(0);
                }
                base.spares.replenish(ground, &base, kind, enough);
            }
            Errand::Bury(remains) => drop(remains),
        }
    }
}
