//! How large the record is, and what is removed from it: contents of payloads, never events.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rusqlite::{Connection, Transaction, params};

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
            let all = "SELECT time, length(content) FROM payload
                UNION ALL SELECT time, length(input) FROM small WHERE input IS NOT NULL
                UNION ALL SELECT time, length(output) FROM small WHERE output IS NOT NULL";
            let mut all = connection.prepare(all)?;
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
    let mut pruned = remove_oldest(connection, Some(before), u64::MAX)?;
    let total = "SELECT (SELECT coalesce(sum(length(content)), 0) FROM payload)
        + (SELECT coalesce(sum(coalesce(length(input), 0) + coalesce(length(output), 0)), 0) FROM small)";
    let total: i64 = connection.query_row(total, [], |row| row.get(0))?;
    let surplus = total.unsigned_abs().saturating_sub(most);
    if surplus > 0 {
        let further = remove_oldest(connection, None, surplus)?;
        pruned.contents += further.contents;
        pruned.bytes += further.bytes;
    }
    Ok(pruned)
}

/// Of both tables, the oldest first: those from before a time, until what they have together is enough.
fn remove_oldest(
    connection: &Connection,
    before: Option<i64>,
    enough: u64,
) -> rusqlite::Result<Pruned> {
    let oldest = "SELECT is_small, place, contents, bytes FROM (
            SELECT 0 AS is_small, rowid AS place, seq, time, 1 AS contents, length(content) AS bytes
                FROM payload
            UNION ALL
            SELECT 1, seq, seq, time, (input IS NOT NULL) + (output IS NOT NULL),
                coalesce(length(input), 0) + coalesce(length(output), 0)
                FROM small)
        WHERE ?1 IS NULL OR time < ?1 ORDER BY seq LIMIT ?2";
    let mut oldest = connection.prepare(oldest)?;
    let oldest = oldest.query_map(params![before, CHUNK], |row| {
        let (contents, bytes): (i64, i64) = (row.get(2)?, row.get(3)?);
        let pruned = Pruned { contents: contents.unsigned_abs(), bytes: bytes.unsigned_abs() };
        Ok((row.get::<_, bool>(0)?, row.get::<_, i64>(1)?, pruned))
    })?;
    let oldest = oldest.collect::<rusqlite::Result<Vec<_>>>()?;
    let mut shared = connection.prepare("DELETE FROM payload WHERE rowid = ?1")?;
    let mut small = connection.prepare("DELETE FROM small WHERE seq = ?1")?;
    let mut all = Pruned::default();
    for (is_small, place, pruned) in oldest {
        if all.bytes >= enough {
            break;
        }
        if is_small { &mut small } else { &mut shared }.execute([place])?;
        all.contents += pruned.contents;
        all.bytes += pruned.bytes;
    }
    Ok(all)
}
