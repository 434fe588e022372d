//! All sandboxes of a process that stay, and the one who sees to it that none stays for longer than it may.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use hotcell_record::{Draft, Durability, Kind, Record, now};
use hotcell_tools::stay::STOP;
use hotcell_types::{Bytes, CallId, Span};

use super::life::Stay;
use crate::reply::{Problem, ProblemKind};

/// How often it is looked whether one has ended by itself.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// How many that were stopped are remembered, the newest.
const REMEMBERED_MOST: usize = 100;

/// A day.
const LONGEST: Span = Span::seconds(24 * 3600);

/// How many sandboxes may stay at one time, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StayBounds {
    /// In a process. With none, nobody can make any: it does not stay itself.
    pub most: usize,
    /// Of one subject of a tenant.
    pub each: usize,
    /// The longest lifetime that anybody may ask for.
    pub longest: Span,
}

impl StayBounds {
    /// For a process that ends with what it was asked for.
    pub const NONE: StayBounds = StayBounds { most: 0, each: 0, longest: LONGEST };
}

impl Default for StayBounds {
    fn default() -> StayBounds {
        StayBounds { most: 16, each: 8, longest: LONGEST }
    }
}

/// The sandboxes of a process.
#[derive(Debug)]
pub(crate) struct Stays {
    bounds: StayBounds,
    all: Arc<Mutex<BTreeMap<CallId, Arc<Stay>>>>,
    warden: Mutex<Option<Warden>>,
    /// Held while a file is taken out: each takes room on the disk.
    taking: Mutex<()>,
}

#[derive(Debug)]
struct Warden {
    bell: SyncSender<()>,
    thread: JoinHandle<()>,
}

impl Stays {
    pub(crate) fn new(bounds: StayBounds) -> Stays {
        Stays { bounds, all: Arc::default(), warden: Mutex::default(), taking: Mutex::default() }
    }

    /// One file is taken out at a time.
    pub(crate) fn taking(&self) -> MutexGuard<'_, ()> {
        lock(&self.taking)
    }

    /// Whether one may stay for so long.
    pub(crate) fn may_last(&self, lifetime: Span) -> Result<(), Problem> {
        let longest = self.bounds.longest;
        if lifetime <= longest {
            return Ok(());
        }
        let why = format!("it is to stay for {lifetime}, and {longest} is the most");
        let problem = Problem::new("the sandbox would stay for too long", why, "ask for less");
        Err(problem.of(ProblemKind::Blocked))
    }

    pub(crate) fn get(&self, id: CallId) -> Option<Arc<Stay>> {
        let found = lock(&self.all).get(&id).cloned();
        found.inspect(|stay| {
            stay.notice_end();
        })
    }

    /// The oldest first.
    pub(crate) fn all(&self) -> Vec<Arc<Stay>> {
        let all: Vec<_> = lock(&self.all).values().cloned().collect();
        all.iter().for_each(|stay| {
            stay.notice_end();
        });
        all
    }

    pub(crate) fn live(&self) -> usize {
        lock(&self.all).values().filter(|stay| stay.is_live()).count()
    }

    /// Takes one in that is to be made, if there is room.
    pub(crate) fn add(&self, stay: &Arc<Stay>, memory: Bytes) -> Result<(), Problem> {
        let mut all = lock(&self.all);
        self.has_room(&all, stay, memory)?;
        all.insert(stay.id, Arc::clone(stay));
        let stopped: Vec<CallId> =
            all.values().filter(|stay| !stay.is_live()).map(|stay| stay.id).collect();
        for old in stopped.iter().take(stopped.len().saturating_sub(REMEMBERED_MOST)) {
            all.remove(old);
        }
        Ok(())
    }

    /// The same for one that is to be made anew. Says whether it may.
    pub(crate) fn renew(&self, stay: &Stay, memory: Bytes) -> Result<bool, Problem> {
        let all = lock(&self.all);
        self.has_room(&all, stay, memory)?;
        Ok(stay.renew())
    }

    fn has_room(
        &self,
        all: &BTreeMap<CallId, Arc<Stay>>,
        wanted: &Stay,
        memory: Bytes,
    ) -> Result<(), Problem> {
        let StayBounds { most, each, .. } = self.bounds;
        if most == 0 {
            let why = "it would end with this process, and nobody else serves this home";
            let fix = "start one that stays: `hotcell resident start`";
            let what = "there can be no sandbox that stays";
            return Err(Problem::new(what, why, fix).of(ProblemKind::Refused));
        }
        let live = || all.values().filter(|stay| stay.is_live() && stay.id != wanted.id);
        let full = |why: String| {
            let fix = "stop some first: `hotcell sandbox stop`";
            let problem = Problem::new("there is no room for another sandbox", why, fix);
            Err(problem.of(ProblemKind::Busy))
        };
        if live().count() >= most {
            return full(format!("{most} stay, as many as there can be"));
        }
        let of_tenant = || live().filter(|stay| stay.owner.tenant == wanted.owner.tenant);
        // Through whatever door.
        let own = of_tenant().filter(|stay| stay.owner.subject == wanted.owner.subject).count();
        if own >= each {
            return full(format!("this caller has {own}, as many as one may have"));
        }
        // Some are for others.
        let share = most - most / 4;
        if of_tenant().count() >= share {
            return full(format!("this tenant has {share}, as many as one may have"));
        }
        let taken = live().map(|stay| stay.design.keep.limits.memory.get());
        let taken = taken.fold(wanted.design.keep.limits.memory.get(), u64::saturating_add);
        if taken > memory.get() {
            return full(format!("together they may use more memory than there is ({memory})"));
        }
        Ok(())
    }

    pub(crate) fn forget(&self, id: CallId) {
        lock(&self.all).remove(&id);
    }

    /// From now on somebody looks at the time.
    pub(crate) fn watch(&self, record: &Record) {
        let mut warden = lock(&self.warden);
        if warden.as_ref().is_none_or(|warden| warden.thread.is_finished()) {
            let (bell, rung) = sync_channel(1);
            let (all, record) = (Arc::clone(&self.all), record.clone());
            let work = move || watch(&all, &record, &rung);
            // Without a thread nothing would end by itself; it is tried again with the next one.
            let thread = thread::Builder::new().name("warden".into()).spawn(work).ok();
            *warden = thread.map(|thread| Warden { bell, thread });
        }
        drop(warden);
        self.ring();
    }

    /// Something may be due sooner, or later.
    pub(crate) fn ring(&self) {
        if let Some(warden) = &*lock(&self.warden) {
            // Once is enough.
            warden.bell.try_send(()).ok();
        }
    }

    /// Ends all of them, each with the reason in the record.
    pub(crate) fn end_all(&self, record: Option<&Record>) {
        let warden = lock(&self.warden).take();
        if let Some(Warden { bell, thread }) = warden {
            drop(bell);
            thread.join().ok();
        }
        let all: Vec<_> = std::mem::take(&mut *lock(&self.all)).into_values().collect();
        thread::scope(|scope| {
            for stay in all.iter().filter(|stay| stay.is_live()) {
                scope.spawn(|| end(stay, "hotcell, which kept it, has ended", record));
            }
        });
    }
}

impl Drop for Stays {
    fn drop(&mut self) {
        self.end_all(None);
    }
}

fn watch(all: &Mutex<BTreeMap<CallId, Arc<Stay>>>, record: &Record, rung: &Receiver<()>) {
    loop {
        let now = Instant::now();
        let stays: Vec<_> = lock(all).values().filter(|stay| stay.is_live()).cloned().collect();
        let mut next = None;
        for stay in &stays {
            let mut soon = |at: Instant| next = next.into_iter().chain([at]).min();
            if stay.notice_end() {
                end_beside(stay, stay.why().unwrap_or_default(), record);
                // What could not be removed is tried again.
                soon(now + LOOK_EVERY);
            }
            match stay.due() {
                Some((at, why)) if at <= now => end_beside(stay, why, record),
                Some((at, _)) => soon(at),
                None => {}
            }
        }
        drop(stays);
        let heard = match next {
            // Nothing is due: somebody rings when that changes.
            None => rung.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(at) => {
                rung.recv_timeout(at.saturating_duration_since(Instant::now()).min(LOOK_EVERY))
            }
        };
        if heard == Err(RecvTimeoutError::Disconnected) {
            return;
        }
    }
}

/// Others do not wait for the end of this one.
fn end_beside(stay: &Arc<Stay>, why: String, record: &Record) {
    let (own, record) = (Arc::clone(stay), record.clone());
    let end_it = move || end(&own, &why, Some(&record));
    // Without a thread it is tried again in the next round.
    thread::Builder::new().name("sandbox-end".into()).spawn(end_it).ok();
}

/// Stops one that nobody asked to be stopped, and records why.
fn end(stay: &Stay, why: &str, record: Option<&Record>) {
    // What cannot be removed now is tried again, or swept by the next process.
    if !matches!(stay.stop(Some(why.to_owned())), Ok(true)) {
        return;
    }
    let Some(record) = record else { return };
    let draft = Draft {
        parent: Some(stay.id),
        operation: Some(STOP.to_owned()),
        reason: Some(why.to_owned()),
        ..Draft::new(Kind::Note, stay.owner.clone(), now())
    };
    // The sandbox is gone whatever can be written about it.
    record.append(draft, Durability::Synced).ok();
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
