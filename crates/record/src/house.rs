//! What is done beside the appends: late flushes and syncs, and checkpoints with their way to the sink.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::checkpoint::{self, Sunk, Written};
use crate::db::{WAL_FOUND, WAL_LEFT};
use crate::error::AppendError;
use crate::event::Kind;
use crate::record::Shared;
use crate::store::{Done, Rows};
use crate::writer::{Durability, Failing};

/// Most checkpoints that are handed to the sink at one time.
const MOST_SUNK: usize = 256;
/// How long the housekeeper sleeps when there is nothing to do.
const IDLE: Duration = Duration::from_secs(3600);

/// A thread that begins with the first event: a process that only reads pays nothing for it.
#[derive(Debug, Default)]
pub(crate) struct House {
    is_open: AtomicBool,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Shared {
    /// Before anything is written that must be looked after.
    pub(crate) fn open_house(self: &Arc<Shared>) -> Result<(), AppendError> {
        if self.house.is_open.load(Ordering::Acquire) {
            return Ok(());
        }
        let mut kept = self.house.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.house.is_open.load(Ordering::Acquire) {
            let shared = Arc::clone(self);
            let thread = thread::Builder::new().name("record".into());
            *kept = Some(thread.spawn(move || keep(&shared))?);
            // Before a commit, which begins the log anew.
            self.writer.shorten_wal(WAL_FOUND);
            self.house.is_open.store(true, Ordering::Release);
        }
        Ok(())
    }

    /// Waits until the housekeeper has done what it is doing.
    pub(crate) fn close_house(&self) -> Result<(), AppendError> {
        let is_idle = self.writer.end_house();
        let thread = self.house.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        match thread {
            Some(thread) if !is_idle => thread.join().map_err(|_| AppendError::Panicked),
            _ => Ok(()),
        }
    }
}

fn keep(shared: &Shared) {
    let writer = &shared.writer;
    let mut is_warm = false;
    let mut desk = writer.desk();
    while !desk.is_ending {
        let did;
        (desk, did) = writer.flush(desk);
        if did {
            continue;
        }
        let did;
        (desk, did) = writer.sync(desk);
        if did {
            continue;
        }
        if desk.sign_by().is_some_and(|at| at <= Instant::now()) {
            drop(desk);
            // It is tried again when the next one is due; what waits for the sink is in the database.
            shared.checkpoint().ok();
            desk = writer.desk();
            continue;
        }
        if !is_warm && desk.commits > 0 {
            drop(desk);
            writer.warm();
            is_warm = true;
            desk = writer.desk();
            continue;
        }
        let at = desk.next_deadline().unwrap_or_else(|| Instant::now() + IDLE);
        desk.wakes_at = Some(at);
        let wait = at.saturating_duration_since(Instant::now());
        desk = writer.bell.wait_timeout(desk, wait).unwrap_or_else(PoisonError::into_inner).0;
        desk.wakes_at = None;
    }
}

impl Shared {
    /// Signs the end of the chain, and hands it to the sink.
    pub(crate) fn checkpoint(self: &Shared) -> Result<(), AppendError> {
        let mut desk = self.writer.desk();
        (desk.unsigned, desk.unsigned_since) = (0, None);
        drop(desk);
        let signed = self.writer.rows(self.signing(), Durability::Synced);
        if let Err(error) = signed {
            self.writer.desk().unsigned_since.get_or_insert_with(Instant::now);
            return Err(error);
        }
        self.sink_pending();
        Ok(())
    }

    /// Takes no more, and commits these as the last: one sync for them and for the signature that a clean
    /// end has. What is left is done when the record is closed.
    pub(crate) fn write_last(&self, rows: Rows) -> Done {
        self.close_house()?;
        // Whether others' events could be written is told to who closes the record.
        self.writer.close().ok();
        let is_read = self.options.sink.anchor(&self.home).is_some();
        let (tell, told) = channel();
        let signing = self.signing_as(if is_read { Sunk::Soon } else { Sunk::Later }, tell);
        let [last, signed] = self.writer.last([rows, signing], Durability::Synced)?;
        if let (Ok(_), Ok(written)) = (signed, told.try_recv()) {
            self.writer.desk().unsigned = 0;
            self.is_sealed.store(self.hand_over(&written), Ordering::Relaxed);
        }
        last
    }

    /// Whether the sink has it, as the database says.
    fn hand_over(&self, written: &Written) -> bool {
        if !written.is_sunk {
            return false;
        }
        let is_there = self.options.sink.write(&self.home, &written.line).is_ok();
        if !is_there {
            // If this fails, whoever opens the record next finds that out.
            self.writer.last([unsunk(written.number - 1)], Durability::Committed).ok();
        }
        is_there
    }

    /// The same when nothing else is written any more: a clean end is signed. It cannot be part of the
    /// last event's transaction, whose caller does not say that it is the last; but one sync serves
    /// both, since the outcome of a call is committed without one.
    pub(crate) fn last_checkpoint(&self) -> Result<(), AppendError> {
        if self.is_sealed.load(Ordering::Relaxed) {
            return Ok(());
        }
        let is_signed = self.writer.desk().unsigned == 0 && self.is_signed()?;
        let signed = if is_signed {
            self.writer.sync_rest()
        } else {
            let signed = self.writer.last([self.signing()], Durability::Synced);
            signed.and_then(|[signed]| signed).map(drop)
        };
        if let Err(error) = signed {
            // What was committed before is kept nevertheless.
            self.writer.sync_rest()?;
            return Err(error);
        }
        if let Ok(waiting) = self.waiting_checkpoints()
            && let Some(last) = self.sink(&waiting).0
        {
            // After what matters, since it may take the last space of a disk; before a commit, which
            // begins the log anew. If that is lost, they are handed over once more.
            self.writer.shorten_wal(WAL_LEFT);
            self.writer.last([sunk(last)], Durability::Committed).ok();
        }
        Ok(())
    }

    /// Whether the last checkpoint speaks of the last event.
    fn is_signed(&self) -> Result<bool, AppendError> {
        let store = self.writer.store();
        let store = store.as_ref().ok_or(AppendError::Closed)?;
        let is_signed =
            "SELECT coalesce((SELECT seq FROM checkpoint ORDER BY number DESC LIMIT 1), 0)
            >= coalesce((SELECT max(seq) FROM event), 0)";
        Ok(store.connection().query_row(is_signed, [], |row| row.get(0))?)
    }

    /// Takes back that the sink has what comes after this number. A sink that is not synced may have
    /// lost it with the system's end.
    pub(crate) fn unsink_after(&self, number: i64) -> Result<(), AppendError> {
        self.writer.rows(unsunk(number), Durability::Committed).map(drop)
    }

    /// Hands over what the sink does not have yet, in order. A sink that fails stops nothing: the gap is
    /// recorded once, and what waits is tried again with the next checkpoint.
    pub(crate) fn sink_pending(&self) {
        let Ok(waiting) = self.waiting_checkpoints() else { return };
        let (last, failure) = self.sink(&waiting);
        if let Some(last) = last {
            self.is_missed.store(false, Ordering::Relaxed);
            // If this fails, they are handed over once more.
            self.writer.rows(sunk(last), Durability::Committed).ok();
        }
        if let Some(error) = failure
            && !self.is_missed.swap(true, Ordering::Relaxed)
        {
            let mut draft = self.own_draft(Kind::CheckpointMissed);
            draft.reason = Some(format!("the sink did not take a checkpoint: {error}"));
            let recorded = self.prepare(draft).and_then(|prepared| {
                self.writer.event(prepared, Durability::Committed, Failing::Keep)
            });
            // It is kept and written later.
            recorded.ok();
        }
    }

    /// The number of the last one that the sink took, and why it took no more.
    fn sink(&self, waiting: &[(i64, String)]) -> (Option<i64>, Option<io::Error>) {
        let mut last = None;
        for (number, line) in waiting {
            match self.options.sink.write(&self.home, line) {
                Ok(()) => last = Some(*number),
                Err(error) => return (last, Some(error)),
            }
        }
        (last, None)
    }

    fn waiting_checkpoints(&self) -> Result<Vec<(i64, String)>, AppendError> {
        let store = self.writer.store();
        let store = store.as_ref().ok_or(AppendError::Closed)?;
        let waiting =
            "SELECT number, line FROM checkpoint WHERE is_sunk = 0 ORDER BY number LIMIT ?1";
        let mut waiting = store.connection().prepare_cached(waiting)?;
        let rows = waiting.query_map([MOST_SUNK as i64], |row| Ok((row.get(0)?, row.get(1)?)))?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    fn signing(&self) -> Rows {
        self.signing_as(Sunk::Later, channel().0)
    }

    fn signing_as(&self, sunk: Sunk, tell: Sender<Written>) -> Rows {
        let (home, time) = (self.id, (self.options.clock)());
        let key = self.key.clone();
        Box::new(move |tx| {
            if let Some(written) = checkpoint::write(tx, home, &key, time, sunk)? {
                // Nobody may want to know.
                tell.send(written).ok();
            }
            Ok(Vec::new())
        })
    }
}

fn unsunk(after: i64) -> Rows {
    Box::new(move |tx| {
        tx.execute("UPDATE checkpoint SET is_sunk = 0 WHERE number > ?1", [after])?;
        Ok(Vec::new())
    })
}

fn sunk(last: i64) -> Rows {
    Box::new(move |tx| {
        let sunk = "UPDATE checkpoint SET is_sunk = 1 WHERE is_sunk = 0 AND number <= ?1";
        tx.prepare_cached(sunk)?.execute([last])?;
        Ok(Vec::new())
    })
}
