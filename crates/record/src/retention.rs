//! How large the record is, and what is removed from it: contents of payloads, never events.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rusqlite::{Connection, Transaction};

use crate::db::{pragma, wal};
use crate::error::{AppendError, ReadError};
use crate::event::Kind;
use crate::record::Record;
use crate::writer::Durability;

/// Contents that are removed in one transaction.
const CHUNK: i64 = 1000;
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
    /// Removes contents that are older than the policy wants, then the oldest until the rest fits.
    /// What was removed is recorded.
    pub fn prune(&self, policy: &RetentionPolicy) -> Result<Pruned, AppendError> {
        let now = (self.shared().options.clock)();
        let keep = i64::try_from(policy.keep.as_nanos()).unwrap_or(i64::MAX);
        let (before, most) = (now.saturating_sub(keep), policy.most_bytes);
        let mut all = Pruned::default();
        loop {
            let pruned = self.prune_some(before, most)?;
            all.contents += pruned.contents;
            all.bytes += pruned.bytes;
            if pruned.contents == 0 {
                return Ok(all);
            }
        }
    }

    fn prune_some(&self, before: i64, most: u64) -> Result<Pruned, AppendError> {
        let shared = Arc::clone(self.shared());
        let told = Arc::new(Mutex::new(Pruned::default()));
        let tell = Arc::clone(&told);
        let rows = move |tx: &Transaction<'_>| {
            let pruned = remove(tx, before, most)?;
            *tell.lock().unwrap_or_else(PoisonError::into_inner) = pruned;
            if pruned.contents == 0 {
                return Ok(Vec::new());
            }
            let mut draft = shared.own_draft(Kind::Pruned);
            let Pruned { contents, bytes } = pruned;
            draft.reason = Some(format!("{contents} contents of {bytes} bytes were removed"));
            Ok(vec![shared.prepare(draft)?])
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

    /// The time and the bytes of every content that [`prune`](Record::prune) could remove, in no order.
    pub fn prunable(&self, mut each: impl FnMut(i64, u64)) -> Result<(), ReadError> {
        self.read(|connection| {
            let mut all = connection.prepare("SELECT time, length(content) FROM payload")?;
            let mut rows = all.query([])?;
            while let Some(row) = rows.next()? {
                each(row.get(0)?, row.get::<_, i64>(1)?.unsigned_abs());
            }
            Ok(())
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

fn remove(connection: &Connection, before: i64, most: u64) -> rusqlite::Result<Pruned> {
    let old = "DELETE FROM payload WHERE rowid IN
        (SELECT rowid FROM payload WHERE time < ?1 ORDER BY seq LIMIT ?2) RETURNING length(content)";
    let mut pruned = count(connection, old, [before, CHUNK])?;
    let total = "SELECT coalesce(sum(length(content)), 0) FROM payload";
    let total: i64 = connection.query_row(total, [], |row| row.get(0))?;
    let surplus = total.unsigned_abs().saturating_sub(most);
    if surplus > 0 {
        // The oldest, until what they have together is enough.
        let oldest = "DELETE FROM payload WHERE rowid IN (SELECT rowid FROM
            (SELECT rowid, sum(length(content)) OVER (ORDER BY seq, rowid) - length(content) AS before
                FROM (SELECT rowid, seq, content FROM payload ORDER BY seq, rowid LIMIT ?2))
            WHERE before < ?1) RETURNING length(content)";
        let surplus = i64::try_from(surplus).unwrap_or(i64::MAX);
        let further = count(connection, oldest, [surplus, CHUNK])?;
        pruned.contents += further.contents;
        pruned.bytes += further.bytes;
    }
    Ok(pruned)
}

fn count(connection: &Connection, delete: &str, values: [i64; 2]) -> rusqlite::Result<Pruned> {
    let mut delete = connection.prepare(delete)?;
    let lengths = delete.query_map(values, |row| row.get::<_, i64>(0))?;
    lengths.into_iter().try_fold(Pruned::default(), |pruned, length| {
        let bytes = pruned.bytes + length?.unsigned_abs();
        Ok(Pruned { contents: pruned.contents + 1, bytes })
    })
}
