//! What is removed to make room: contents, never rows. A content goes only if all rows that have it are
//! old and none of them has a tag or a verdict; each removal is itself a row that the chain vouches for.

use hotcell_types::Name;
use rusqlite::{Connection, Row, Transaction, params};

use crate::digest::Blob;
use crate::error::Error;
use crate::rows::{Count, Short};
use crate::statement::Statement;
use crate::write::{By, next, signed};

/// Most contents that are removed at once.
pub const MAX_PRUNED: usize = 1000;

/// Contents were removed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Pruning {
    pub seq: u64,
    pub by: Name,
    pub time: i64,
    /// At most [`MAX_PRUNED`].
    pub contents: Vec<Pruned>,
}

/// A content that no artifact up to this one has any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pruned {
    pub blob: Blob,
    pub upto: u64,
}

/// A content that could be removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prunable {
    /// When it was registered last.
    pub time: i64,
    pub bytes: u64,
}

/// Of all tenants. What one of them has tagged or judged stays for all.
const CANDIDATES: &str = "SELECT digest, max(size), max(seq) AS upto, max(created) AS last
    FROM artifact_wanted GROUP BY digest
    HAVING last < ?1 AND NOT EXISTS (
        SELECT 1 FROM artifact AS one WHERE one.digest = artifact_wanted.digest AND (
            EXISTS (SELECT 1 FROM artifact_tag_now WHERE artifact = one.id)
            OR EXISTS (SELECT 1 FROM artifact_verdict WHERE artifact = one.id)))";

/// Gives up the oldest contents that were registered before this time for the last time; `None` if there
/// are none. Small ones are gone with this; files are for [`Store::sweep`](crate::Store::sweep) to remove,
/// once it is committed.
pub fn prune(
    tx: &Transaction<'_>,
    by: &By,
    before: i64,
) -> Result<Option<(Pruning, Statement)>, Error> {
    let mut candidates = tx.prepare_cached(&format!("{CANDIDATES} ORDER BY upto LIMIT ?2"))?;
    let contents = candidates.query_map(params![before, MAX_PRUNED as i64], pruned)?;
    let contents = contents.collect::<Result<Vec<Pruned>, _>>()?;
    if contents.is_empty() {
        return Ok(None);
    }
    let seq = next(tx, "SELECT max(seq) FROM artifact_pruning")?;
    let pruning = Pruning { seq, by: by.subject.clone(), time: by.time, contents };
    tx.prepare_cached("INSERT INTO artifact_pruning (seq, by, time) VALUES (?1, ?2, ?3)")?
        .execute(params![signed(seq)?, pruning.by.as_str(), pruning.time])?;
    let mut insert = tx.prepare_cached(
        "INSERT INTO artifact_pruned (pruning, place, digest, size, upto)
         VALUES (?1, ?2, ?3, ?4, ?5)",
    )?;
    let mut delete = tx.prepare_cached("DELETE FROM artifact_content WHERE digest = ?1")?;
    for (place, Pruned { blob, upto }) in (0_i64..).zip(&pruning.contents) {
        let (size, upto) = (signed(blob.size)?, signed(*upto)?);
        insert.execute(params![signed(seq)?, place, blob.digest, size, upto])?;
        delete.execute([blob.digest])?;
    }
    let statement = Statement::of_pruning(&pruning);
    Ok(Some((pruning, statement)))
}

/// Everything that could be removed now, in no order.
pub fn prunable(conn: &Connection, mut each: impl FnMut(Prunable)) -> Result<(), Error> {
    let mut candidates = conn.prepare(CANDIDATES)?;
    let mut rows = candidates.query([i64::MAX])?;
    while let Some(row) = rows.next()? {
        each(Prunable { time: row.get(3)?, bytes: row.get::<_, Count>(1)?.0 });
    }
    Ok(())
}

fn pruned(row: &Row<'_>) -> rusqlite::Result<Pruned> {
    let blob = Blob { digest: row.get(0)?, size: row.get::<_, Count>(1)?.0 };
    Ok(Pruned { blob, upto: row.get::<_, Count>(2)?.0 })
}

impl Pruning {
    pub(crate) const COLUMNS: &str = "seq, by, time";

    pub(crate) fn from_row(conn: &Connection, row: &Row<'_>) -> rusqlite::Result<Pruning> {
        let seq: i64 = row.get(0)?;
        let mut contents = conn.prepare_cached(
            "SELECT digest, size, upto FROM artifact_pruned WHERE pruning = ?1 ORDER BY place",
        )?;
        let contents = contents.query_map([seq], pruned)?.collect::<Result<_, _>>()?;
        Ok(Pruning {
            seq: row.get::<_, Count>(0)?.0,
            by: row.get::<_, Short>(1)?.0,
            time: row.get(2)?,
            contents,
        })
    }
}
