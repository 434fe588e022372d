//! Group commit. Whoever comes when nobody is committing commits everything that waits, for all; who
//! comes meanwhile waits for the next turn. One sync serves all of a turn, and a lone caller pays for no
//! other thread.

use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Thread, ThreadId};
use std::time::{Duration, Instant};

use crate::error::AppendError;
use crate::hex::EventId;
use crate::prepare::Prepared;
use crate::store::{Done, Receipt, Rows, Store, Work, sync};

/// Most entries that wait.
pub const MOST_WAITING: usize = 1024;
/// Most events that nobody waits for before they are written.
pub const MOST_BUFFERED: usize = 100;
/// How long they are kept, and how long a commit stays unsynced.
pub const LAZY_MOST: Duration = Duration::from_millis(500);

/// How long a turn waits for those of the last one.
const GATHER_MOST: Duration = Duration::from_micros(100);
/// How long somebody waits for room.
const ROOM_MOST: Duration = Duration::from_secs(5);
/// How often a record that is closed looks whether the last turn is over.
const CLOSE_STEP: Duration = Duration::from_millis(1);

/// What an answer means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Durability {
    /// It survives the end of this process, however it ends. The system's end after half a second.
    Committed,
    /// It is on the disk.
    Synced,
}

/// How far the disk, and the signatures, are behind what was recorded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Lag {
    /// Entries that wait to be written.
    pub waiting: usize,
    /// Of these and before, events that nobody waits for.
    pub buffered: usize,
    /// Events since the last signed checkpoint.
    pub unsigned: u64,
}

#[derive(Debug)]
pub(crate) struct Writer {
    desk: Mutex<Desk>,
    /// Held by whoever commits.
    store: Mutex<Option<Store>>,
    /// Rung when the housekeeper has something to wait for.
    pub(crate) bell: Condvar,
    /// Rung when there are new events.
    pub(crate) news: Condvar,
    /// Rung when a turn is over, for those who wait for room.
    room: Condvar,
}

/// What waits, and until when it may.
#[derive(Debug)]
pub(crate) struct Desk {
    waiting: VecDeque<Entry>,
    /// How many waited in the last turn.
    expected: usize,
    /// Whoever commits at present.
    leader: Option<ThreadId>,
    is_closed: bool,
    /// The housekeeper is to go.
    pub(crate) is_ending: bool,
    buffered: usize,
    flush_by: Option<Instant>,
    sync_by: Option<Instant>,
    /// When the housekeeper looks next, by itself.
    pub(crate) wakes_at: Option<Instant>,
    /// Counts commits with events.
    pub(crate) commits: u64,
    /// After how many events, or how much time, a checkpoint is due.
    sign_after: (u64, Duration),
    /// Events since the last checkpoint, and the time of the first of them.
    pub(crate) unsigned: u64,
    pub(crate) unsigned_since: Option<Instant>,
    pub(crate) followers: usize,
}

struct Entry {
    work: Work,
    /// `None` if nobody waits for it.
    reply: Option<Arc<Reply>>,
    is_kept: bool,
}

/// Where somebody waits for what becomes of an entry.
struct Reply {
    wants: Durability,
    /// With what was done, which is given back to whoever made it: what one thread allocates and another
    /// frees costs both of them more.
    done: Mutex<Option<(Done, Option<Work>)>>,
    waiter: Thread,
}

impl Reply {
    fn done(&self) -> MutexGuard<'_, Option<(Done, Option<Work>)>> {
        self.done.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What becomes of an event that could not be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failing {
    /// It is forgotten.
    Drop,
    /// The caller hears of it, and it is written as soon as it can be.
    Keep,
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry").field("waits", &self.reply.is_some()).finish_non_exhaustive()
    }
}

impl Writer {
    pub(crate) fn new(store: Store, sign_after: (u64, Duration)) -> Writer {
        let desk = Desk {
            waiting: VecDeque::new(),
            expected: 0,
            leader: None,
            is_closed: false,
            is_ending: false,
            buffered: 0,
            flush_by: None,
            sync_by: None,
            wakes_at: None,
            commits: 0,
            sign_after,
            unsigned: 0,
            unsigned_since: None,
            followers: 0,
        };
        let [bell, news, room] = [const { Condvar::new() }; 3];
        Writer { desk: Mutex::new(desk), store: Mutex::new(Some(store)), bell, news, room }
    }

    /// What is on its way.
    pub(crate) fn lag(&self) -> Lag {
        let desk = self.desk();
        Lag { waiting: desk.waiting.len(), buffered: desk.buffered, unsigned: desk.unsigned }
    }

    pub(crate) fn desk(&self) -> MutexGuard<'_, Desk> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn event(
        &self,
        prepared: Prepared,
        durability: Durability,
        failing: Failing,
    ) -> Result<Receipt, AppendError> {
        let work = Work::Event(Box::new(prepared));
        let receipts = self.submit(work, durability, failing == Failing::Keep)?;
        receipts.first().copied().ok_or(AppendError::Panicked)
    }

    pub(crate) fn rows(&self, rows: Rows, durability: Durability) -> Done {
        self.submit(Work::Rows(Some(rows)), durability, false)
    }

    fn submit(&self, work: Work, wants: Durability, is_kept: bool) -> Done {
        let reply = Reply { wants, done: Mutex::new(None), waiter: thread::current() };
        let reply = Arc::new(reply);
        let mut desk = self.desk_with_room();
        desk.admit(Entry { work, reply: Some(Arc::clone(&reply)), is_kept })?;
        drop(desk);
        loop {
            if let Some((done, _work)) = reply.done().take() {
                return done;
            }
            let desk = self.desk();
            if desk.is_led() {
                drop(desk);
                // Whoever leads wakes those whom it served, and one of those who came meanwhile.
                thread::park();
            } else {
                self.lead(desk);
            }
        }
    }

    /// Takes an event that nobody waits for.
    pub(crate) fn later(&self, prepared: Prepared) -> Result<EventId, AppendError> {
        let id = prepared.event.id;
        let mut desk = self.desk_with_room();
        let work = Work::Event(Box::new(prepared));
        desk.admit(Entry { work, reply: None, is_kept: true })?;
        desk.buffered += 1;
        if desk.buffered == MOST_BUFFERED {
            desk.flush_by = Some(Instant::now());
        } else if desk.flush_by.is_none() {
            desk.flush_by = Some(Instant::now() + LAZY_MOST);
        }
        self.ring(&desk);
        Ok(id)
    }

    /// Who comes to a full desk makes room, or waits until somebody has. It is still full only if nothing
    /// can be written, and for whoever commits, who cannot wait for itself.
    fn desk_with_room(&self) -> MutexGuard<'_, Desk> {
        let deadline = Instant::now() + ROOM_MOST;
        let mut desk = self.desk();
        while desk.is_full() && !desk.is_closed && desk.refuse_leader().is_ok() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            if desk.is_led() {
                desk = self.room.wait_timeout(desk, left).unwrap_or_else(PoisonError::into_inner).0;
                continue;
            }
            let commits = desk.commits;
            self.lead(desk);
            desk = self.desk();
            if desk.commits == commits {
                break;
            }
        }
        desk
    }

    /// Commits everything that waits.
    fn lead<'a>(&'a self, mut desk: MutexGuard<'a, Desk>) {
        let this = thread::current().id();
        desk.leader = Some(this);
        desk = self.gather(desk);
        let entries = desk.take();
        drop(desk);
        let (led, served) = Led::commit(&self.store, entries);
        let mut desk = self.desk();
        desk.leader = None;
        desk.expected = served.len();
        if led.events > 0 && desk.followers > 0 {
            self.news.notify_all();
        }
        desk.settle(led);
        self.ring(&desk);
        self.room.notify_all();
        let next = desk.waiting.iter().find_map(|entry| entry.reply.clone());
        drop(desk);
        // The next turn begins while those of this one are woken.
        for reply in next.iter().chain(&served).filter(|reply| reply.waiter.id() != this) {
            reply.waiter.unpark();
        }
    }

    /// Where many write at once, those who were served last are about to come back: a moment's patience
    /// lets them share this sync. Who writes alone does not wait.
    fn gather<'a>(&'a self, mut desk: MutexGuard<'a, Desk>) -> MutexGuard<'a, Desk> {
        if desk.waiting.len() >= desk.expected {
            return desk;
        }
        let deadline = Instant::now() + GATHER_MOST;
        while desk.waiting.len() < desk.expected && Instant::now() < deadline {
            drop(desk);
            thread::yield_now();
            desk = self.desk();
        }
        desk
    }

    /// Wakes the housekeeper, if it would look too late.
    fn ring(&self, desk: &Desk) {
        if desk.wakes_at.is_some_and(|at| desk.next_deadline().is_some_and(|next| next < at)) {
            self.bell.notify_one();
        }
    }

    /// Writes what nobody waits for, if it is time.
    pub(crate) fn flush<'a>(&'a self, desk: MutexGuard<'a, Desk>) -> (MutexGuard<'a, Desk>, bool) {
        if !is_over(desk.flush_by) || desk.waiting.is_empty() || desk.is_led() {
            return (desk, false);
        }
        self.lead(desk);
        (self.desk(), true)
    }

    /// Syncs lazy commits, if it is time.
    pub(crate) fn sync<'a>(
        &'a self,
        mut desk: MutexGuard<'a, Desk>,
    ) -> (MutexGuard<'a, Desk>, bool) {
        if !is_over(desk.sync_by) {
            return (desk, false);
        }
        desk.sync_by = None;
        drop(desk);
        let is_synced = self.sync_now().is_ok();
        desk = self.desk();
        if !is_synced {
            desk.sync_by.get_or_insert_with(|| Instant::now() + LAZY_MOST);
        }
        (desk, true)
    }

    fn sync_now(&self) -> std::io::Result<()> {
        let wal = self.store().as_ref().map(Store::wal);
        wal.map_or(Ok(()), |wal| sync(&wal))
    }

    /// Tells the housekeeper to go, when it has done what it is doing. Whether it is doing nothing: it
    /// need not be waited for, since it wakes up only to go.
    pub(crate) fn end_house(&self) -> bool {
        let mut desk = self.desk();
        desk.is_ending = true;
        self.bell.notify_all();
        desk.wakes_at.is_some()
    }

    /// Takes no more, and writes what waits.
    pub(crate) fn close(&self) -> Result<(), AppendError> {
        let mut desk = self.desk();
        desk.is_closed = true;
        self.news.notify_all();
        self.room.notify_all();
        while desk.is_led() {
            let waited = self.bell.wait_timeout(desk, CLOSE_STEP);
            desk = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        if !desk.waiting.is_empty() {
            self.lead(desk);
            desk = self.desk();
        }
        if !desk.waiting.is_empty() {
            Err(AppendError::Failed("buffered events were lost".into()))
        } else {
            Ok(())
        }
    }

    /// Has the statements compiled that the end of a call needs, while the call goes on.
    pub(crate) fn warm(&self) {
        if let Some(store) = self.store().as_ref() {
            store.warm();
        }
    }

    pub(crate) fn shorten_wal(&self, most: i64) {
        if let Some(store) = self.store().as_ref() {
            store.shorten_wal(most);
        }
    }

    /// Commits by itself, beside the desk: for what is written when the desk is closed already. What became
    /// of each.
    pub(crate) fn last<const N: usize>(
        &self,
        rows: [Rows; N],
        durability: Durability,
    ) -> Result<[Done; N], AppendError> {
        let mut store = self.store();
        let store = store.as_mut().ok_or(AppendError::Closed)?;
        let mut batch = rows.map(|rows| Work::Rows(Some(rows)));
        let done = store.commit(&mut batch, durability == Durability::Synced)?;
        done.try_into().map_err(|_| AppendError::Panicked)
    }

    /// Syncs what was committed and is not synced yet.
    pub(crate) fn sync_rest(&self) -> Result<(), AppendError> {
        if self.desk().sync_by.is_none() { Ok(()) } else { Ok(self.sync_now()?) }
    }

    /// Ends the connection.
    pub(crate) fn end(&self) {
        self.store().take();
    }

    pub(crate) fn store(&self) -> MutexGuard<'_, Option<Store>> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_over(deadline: Option<Instant>) -> bool {
    deadline.is_some_and(|deadline| deadline <= Instant::now())
}

impl Desk {
    fn is_led(&self) -> bool {
        self.leader.is_some()
    }

    fn admit(&mut self, entry: Entry) -> Result<(), AppendError> {
        self.refuse_leader()?;
        if self.is_closed {
            return Err(AppendError::Closed);
        }
        if self.is_full() {
            return Err(AppendError::Busy);
        }
        self.waiting.push_back(entry);
        Ok(())
    }

    /// Whoever commits cannot wait for a turn of its own.
    pub(crate) fn refuse_leader(&self) -> Result<(), AppendError> {
        let is_leader = self.leader == Some(thread::current().id());
        if is_leader { Err(AppendError::Nested) } else { Ok(()) }
    }

    fn is_full(&self) -> bool {
        self.waiting.len() >= MOST_WAITING
    }

    fn take(&mut self) -> VecDeque<Entry> {
        self.buffered = 0;
        self.flush_by = None;
        std::mem::take(&mut self.waiting)
    }

    fn settle(&mut self, led: Led) {
        if led.events > 0 {
            self.commits += 1;
            self.unsigned += led.events;
            self.unsigned_since.get_or_insert_with(Instant::now);
        }
        match led.is_synced {
            Some(true) => self.sync_by = None,
            Some(false) => {
                self.sync_by.get_or_insert_with(|| Instant::now() + LAZY_MOST);
            }
            None => {}
        }
        if !led.again.is_empty() {
            self.buffered += led.again.len();
            led.again.into_iter().rev().for_each(|entry| self.waiting.push_front(entry));
            self.flush_by = Some(Instant::now() + LAZY_MOST);
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// When the housekeeper has something to do next.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        // While somebody commits, flushing is not the housekeeper's: it is rung for when that is over.
        let flush_by = self.flush_by.filter(|_| !self.is_led());
        flush_by.into_iter().chain(self.sync_by).chain(self.sign_by()).min()
    }

    /// When a checkpoint is due.
    pub(crate) fn sign_by(&self) -> Option<Instant> {
        let since = self.unsigned_since?;
        Some(if self.unsigned >= self.sign_after.0 { since } else { since + self.sign_after.1 })
    }
}

/// What became of a turn.
struct Led {
    events: u64,
    /// `None` if nothing was committed.
    is_synced: Option<bool>,
    /// Events that nobody waits for, and that are still to be written.
    again: Vec<Entry>,
}

impl Led {
    /// Everybody who waits is answered, whatever happens.
    fn commit(store: &Mutex<Option<Store>>, entries: VecDeque<Entry>) -> (Led, Vec<Arc<Reply>>) {
        let mut batch = Vec::with_capacity(entries.len());
        let mut rest = Vec::with_capacity(entries.len());
        for entry in entries {
            batch.push(entry.work);
            rest.push((entry.reply, entry.is_kept));
        }
        let is_wanted = |reply: &Arc<Reply>| reply.wants == Durability::Synced;
        let is_synced = rest.iter().any(|(reply, _)| reply.as_ref().is_some_and(is_wanted));
        let committed = catch_unwind(AssertUnwindSafe(|| {
            let mut store = store.lock().unwrap_or_else(PoisonError::into_inner);
            store.as_mut().ok_or(AppendError::Closed)?.commit(&mut batch, is_synced)
        }));
        let mut led = Led { events: 0, is_synced: None, again: Vec::new() };
        let mut served = Vec::with_capacity(rest.len());
        let mut answer = |reply: Option<Arc<Reply>>, done: Done, work: Option<Work>| {
            if let Some(reply) = reply {
                let before = reply.done().replace((done, work));
                debug_assert!(before.is_none(), "an entry was answered twice");
                served.push(reply);
            }
        };
        match committed.unwrap_or(Err(AppendError::Panicked)) {
            Ok(all) => {
                led.is_synced = Some(is_synced);
                for ((done, work), (reply, _)) in all.into_iter().zip(batch).zip(rest) {
                    led.events += done.as_ref().map_or(0, |receipts| receipts.len() as u64);
                    answer(reply, done, Some(work));
                }
            }
            Err(error) => {
                let is_final = matches!(error, AppendError::Panicked | AppendError::Closed);
                for (work, (reply, is_kept)) in batch.into_iter().zip(rest) {
                    answer(reply, Err(error.clone()), None);
                    if is_kept && !is_final {
                        led.again.push(Entry { work, reply: None, is_kept });
                    }
                }
            }
        }
        (led, served)
    }
}
