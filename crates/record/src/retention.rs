//! How large the record is, and what is removed from it: contents of payloads, never events. What goes is always
//! the beginning, and the event that says so says up to where: whatever else is missing was taken away by
//! somebody else.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rusqlite::{Connection, Transaction};

use crate::db::{pragma, wal};
use crate::error::{AppendError, ReadError};
use crate::event::Kind;
use crate::record::Record;
use crate::writer::Durability;

/// Contents after which a transaction takes no more.
const CHUNK: u64 = 1000;
/// Parts of a hundred of the expected size.
const WARNING: u64 = 80;
const CRITICAL: u64 = 95;

/// What is kept of payloads: what is younger, and what fits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetentionPolicy {
    pub keep: Duration,
    pub most_bytes: u64,
}

impl Default for RetentionPolicy {
    fn default() -> RetentionPolicy {
        RetentionPolicy { keep: Duration::from_secs(90 * 24 * 60 * 60), most_bytes: 1 << 30 }
    }
}

/// What was removed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pruned {
    pub contents: u64,
    pub bytes: u64,
}

/// What the record takes on the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    pub bytes: u64,
    pub most: u64,
    pub fill: Fill,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fill {
    Fine,
    /// At 80 % of what is expected.
    Warning,
    /// At 95 %.
    Critical,
}

impl Record {
    /// Removes contents that are older than the policy wants, then the oldest until the rest fits. What was
    /// removed is recorded. A content counts as no older than what was recorded before it, whatever the clock
    /// said: what goes is all contents up to one event.
    pub fn prune(&self, policy: &RetentionPolicy) -> Result<Pruned, AppendError> {
        let now = (self.shared().options.clock)();
        let keep = i64::try_from(policy.keep.as_nanos()).unwrap_or(i64::MAX);
        let wanted = Wanted { now, before: now.saturating_sub(keep), most: policy.most_bytes };
        let mut all = Pruned::default();
        loop {
            let pruned = self.prune_some(wanted)?;
            all.contents += pruned.contents;
            all.bytes += pruned.bytes;
            if pruned.contents == 0 {
                return Ok(all);
            }
        }
    }

    fn prune_some(&self, wanted: Wanted) -> Result<Pruned, AppendError> {
        let shared = Arc::clone(self.shared());
        let told = Arc::new(Mutex::new(Pruned::default()));
        let tell = Arc::clone(&told);
        let rows = move |tx: &Transaction<'_>| {
            let Some((up_to, pruned)) = remove(tx, wanted)? else { return Ok(Vec::new()) };
            *tell.lock().unwrap_or_else(PoisonError::into_inner) = pruned;
            let mut draft = shared.own_draft(Kind::Pruned);
            let Pruned { contents, bytes } = pruned;
            draft.reason = Some(format!("{contents} contents of {bytes} bytes were removed"));
            let mut prepared = shared.prepare(draft)?;
            // Verifiers read it: no pattern of secrets takes it out.
            prepared.event.state = Some(up_to.to_string());
            Ok(vec![prepared])
        };
        self.shared().open_house()?;
        self.shared().writer.rows(Box::new(rows), Durability::Synced)?;
        Ok(*told.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// What is free inside the database, and used before it grows.
    pub fn free(&self) -> Result<u64, ReadError> {
        self.read(|connection| {
            let pages: i64 = pragma(connection, "freelist_count")?;
            let size: i64 = pragma(connection, "page_size")?;
            Ok(pages.unsigned_abs().saturating_mul(size.unsigned_abs()))
        })
    }

    /// Every content that [`prune`](Record::prune) could remove, in its order: the time that it counts as, how
    /// many contents have that, and their bytes.
    pub fn prunable(&self, mut each: impl FnMut(i64, u64, u64)) -> Result<(), ReadError> {
        let now = (self.shared().options.clock)();
        self.read(|connection| {
            let lots = lots(connection, now, |lot| {
                each(lot.time, lot.contents, lot.bytes);
                true
            });
            Ok(lots?)
        })
    }

    /// Of the database and its write-ahead log, with what is free inside.
    pub fn size(&self) -> Size {
        let length = |path: &std::path::Path| path.metadata().map_or(0, |found| found.len());
        let bytes = length(self.database()) + length(&wal(self.database()));
        let most = self.shared().options.most_bytes;
        let fill = match bytes.saturating_mul(100) {
            part if part >= most.saturating_mul(CRITICAL) => Fill::Critical,
            part if part >= most.saturating_mul(WARNING) => Fill::Warning,
            _ => Fill::Fine,
        };
        Size { bytes, most, fill }
    }
}

#[derive(Debug, Clone, Copy)]
struct Wanted {
    now: i64,
    before: i64,
    most: u64,
}

/// Contents that go together.
#[derive(Debug, Clone, Copy)]
struct Lot {
    /// The last event that has one of them.
    up_to: i64,
    time: i64,
    contents: u64,
    bytes: u64,
}

/// Up to which event contents went, and what they were.
fn remove(connection: &Connection, wanted: Wanted) -> rusqlite::Result<Option<(i64, Pruned)>> {
    let total = "SELECT (SELECT coalesce(sum(length(content)), 0) FROM payload)
        + (SELECT coalesce(sum(coalesce(length(input), 0) + coalesce(length(output), 0)), 0) FROM small)";
    let total: i64 = connection.query_row(total, [], |row| row.get(0))?;
    let surplus = total.unsigned_abs().saturating_sub(wanted.most);
    let (mut up_to, mut all) = (None, Pruned::default());
    lots(connection, wanted.now, |lot| {
        let is_to_go = lot.time < wanted.before || all.bytes < surplus;
        if !is_to_go || all.contents >= CHUNK {
            return false;
        }
        up_to = Some(lot.up_to);
        all.contents += lot.contents;
        all.bytes += lot.bytes;
        true
    })?;
    let Some(up_to) = up_to else { return Ok(None) };
    connection.execute("DELETE FROM payload WHERE seq <= ?1", [up_to])?;
    connection.execute("DELETE FROM small WHERE seq <= ?1", [up_to])?;
    Ok(Some((up_to, all)))
}

/// All contents in the order of the chain, each with the latest time that was told so far. A time that is still
/// to come says nothing: what has one goes with what follows it, and if nothing does it counts as new. `each` says
/// whether to go on.
fn lots(
    connection: &Connection,
    now: i64,
    mut each: impl FnMut(Lot) -> bool,
) -> rusqlite::Result<()> {
    // No event is about a row beyond the last.
    let all = "SELECT seq, time, contents, bytes FROM (
            SELECT seq, time, 1 AS contents, length(content) AS bytes FROM payload
            UNION ALL
            SELECT seq, time, (input IS NOT NULL) + (output IS NOT NULL),
                coalesce(length(input), 0) + coalesce(length(output), 0)
                FROM small)
        WHERE seq <= (SELECT max(seq) FROM event) ORDER BY seq";
    let mut all = connection.prepare(all)?;
    let mut rows = all.query([])?;
    let (mut latest, mut last): (i64, Option<Lot>) = (i64::MIN, None);
    while let Some(row) = rows.next()? {
        let (contents, bytes): (i64, i64) = (row.get(2)?, row.get(3)?);
        let (contents, bytes) = (contents.unsigned_abs(), bytes.unsigned_abs());
        let next = Lot { up_to: row.get(0)?, time: row.get(1)?, contents, bytes };
        last = Some(match last {
            Some(lot) if lot.up_to == next.up_to || lot.time > now => lot.and(next),
            Some(lot) => {
                latest = latest.max(lot.time);
                if !each(Lot { time: latest, ..lot }) {
                    return Ok(());
                }
                next
            }
            None => next,
        });
    }
    if let Some(lot) = last {
        let time = if lot.time > now { now } else { latest.max(lot.time) };
        each(Lot { time, ..lot });
    }
    Ok(())
}

impl Lot {
    fn and(self, next: Lot) -> Lot {
        Lot { contents: self.contents + next.contents, bytes: self.bytes + next.bytes, ..next }
    }
}
