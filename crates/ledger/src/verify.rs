//! Compares every row with what the chain says of it, and every content with its digest. Needs the same
//! memory for a large ledger as for a small one.

use std::fmt;

use rusqlite::{Connection, Row, params};

use crate::digest::{Blob, Digest};
use crate::error::{Damage, Error, StoreError};
use crate::prune::Pruning;
use crate::query::{edges, is_referenced};
use crate::rows::{Artifact, RowId, Tagging, Verdict};
use crate::statement::Statement;
use crate::store::Store;
use crate::sweep::digests;

/// How many contents are asked for at once.
const PAGE: i64 = 256;

/// How many rows there are, or how many the chain has statements of.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    pub artifacts: u64,
    pub taggings: u64,
    pub verdicts: u64,
    pub prunings: u64,
}

/// What was looked at. Fine only if there is no fault.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Verified {
    pub rows: Counts,
    pub contents: u64,
    pub bytes: u64,
    pub faults: u64,
    /// Contents that no row has: what a crash left, or a run that is just being registered. Not a fault.
    pub unreferenced: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Table {
    Artifact,
    Tagging,
    Verdict,
    Pruning,
}

/// What is not as it was.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    #[error("{0} is not what the record says")]
    Changed(RowId),
    #[error("{0} is not in the record")]
    Unstated(RowId),
    /// For whoever can go through the record and find it.
    #[error("{0} is in the record, and not here")]
    Absent(RowId),
    #[error("the record speaks twice of {0}")]
    Twice(RowId),
    #[error("row {seq} of the {table}s cannot be understood")]
    Unreadable { table: Table, seq: i64 },
    #[error("rows {first} to {last} of the {table}s are gone")]
    Gone { table: Table, first: i64, last: i64 },
    #[error("the record knows of {stated} {table}s, and there are {found}")]
    Count { table: Table, stated: u64, found: u64 },
    #[error("{0} edges belong to no artifact")]
    StrayEdges(u64),
    #[error("{0} contents were pruned by nobody")]
    StrayPruned(u64),
    #[error("the content {0} is missing")]
    Missing(Digest),
    #[error("the content {digest} has {found} bytes, and not {expected}")]
    Size { digest: Digest, expected: u64, found: u64 },
    #[error("the content {0} was changed")]
    Content(Digest),
    #[error("the content {digest} is that of {with}")]
    Swapped { digest: Digest, with: Digest },
    #[error("the content {0} is not a regular file with one name")]
    NotPlain(Digest),
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Table::Artifact => "artifact",
            Table::Tagging => "tagging",
            Table::Verdict => "verdict",
            Table::Pruning => "pruning",
        })
    }
}

/// Looks at everything, of every tenant. `stated` and `digest_of` come from a chain that was itself
/// verified: how many statements of each kind it has, and the digest of the one about a row. Each fault
/// is told as it is found.
///
/// Where others write at the same time, verify the rows in a transaction that also reads the chain
/// ([`verify_rows`]), and the contents outside of it ([`verify_contents`]).
pub fn verify(
    conn: &Connection,
    store: &Store,
    stated: Counts,
    digest_of: impl Fn(RowId) -> Option<Digest>,
    mut tell: impl FnMut(Fault),
) -> Result<Verified, Error> {
    let rows = verify_rows(conn, stated, digest_of, &mut tell)?;
    let contents = verify_contents(conn, store, &mut tell)?;
    Ok(Verified { rows: rows.rows, faults: rows.faults + contents.faults, ..contents })
}

/// Compares what a row says now with the digest that the chain has of it. Ask this before an artifact is
/// handed out: the store checks only its content.
pub fn verify_row(now: &Statement, stated: Option<Digest>) -> Result<(), Fault> {
    match stated {
        Some(digest) if digest == now.digest() => Ok(()),
        Some(_) => Err(Fault::Changed(now.row())),
        None => Err(Fault::Unstated(now.row())),
    }
}

/// Compares the rows with the chain.
pub fn verify_rows(
    conn: &Connection,
    stated: Counts,
    digest_of: impl Fn(RowId) -> Option<Digest>,
    mut tell: impl FnMut(Fault),
) -> Result<Verified, Error> {
    let mut verified = Verified::default();
    let mut tell = |fault| {
        verified.faults += 1;
        tell(fault);
    };
    let mut rows = Rows { conn, digest_of: &digest_of, tell: &mut tell };
    let found = Counts {
        artifacts: rows.check(Table::Artifact, stated.artifacts, |row| {
            let artifact = Artifact::from_row(row)?;
            let edges = edges(conn, artifact.id)?;
            Ok(Statement::of_artifact(&artifact, &edges))
        })?,
        taggings: rows.check(Table::Tagging, stated.taggings, |row| {
            Ok(Statement::of_tagging(&Tagging::from_row(row)?))
        })?,
        verdicts: rows.check(Table::Verdict, stated.verdicts, |row| {
            Ok(Statement::of_verdict(&Verdict::from_row(row)?))
        })?,
        prunings: rows.check(Table::Pruning, stated.prunings, |row| {
            Ok(Statement::of_pruning(&Pruning::from_row(conn, row)?))
        })?,
    };
    let sql = "SELECT count(*) FROM artifact_edge WHERE source NOT IN (SELECT id FROM artifact)";
    let stray: i64 = conn.query_row(sql, [], |row| row.get(0))?;
    if stray != 0 {
        tell(Fault::StrayEdges(stray.unsigned_abs()));
    }
    let sql = "SELECT count(*) FROM artifact_pruned
               WHERE pruning NOT IN (SELECT seq FROM artifact_pruning)";
    let stray: i64 = conn.query_row(sql, [], |row| row.get(0))?;
    if stray != 0 {
        tell(Fault::StrayPruned(stray.unsigned_abs()));
    }
    Ok(Verified { rows: found, ..verified })
}

struct Rows<'a> {
    conn: &'a Connection,
    digest_of: &'a dyn Fn(RowId) -> Option<Digest>,
    tell: &'a mut dyn FnMut(Fault),
}

impl Rows<'_> {
    /// Goes through a table from 1 on without a gap, and says how many rows it has.
    fn check(
        &mut self,
        table: Table,
        stated: u64,
        state: impl Fn(&Row<'_>) -> Result<Statement, Error>,
    ) -> Result<u64, Error> {
        let (name, columns) = match table {
            Table::Artifact => ("artifact", Artifact::COLUMNS),
            Table::Tagging => ("artifact_tag", Tagging::COLUMNS),
            Table::Verdict => ("artifact_verdict", Verdict::COLUMNS),
            Table::Pruning => ("artifact_pruning", Pruning::COLUMNS),
        };
        let mut statement =
            self.conn.prepare(&format!("SELECT {columns} FROM {name} ORDER BY seq"))?;
        let mut rows = statement.query([])?;
        let (mut found, mut expected) = (0, 1);
        while let Some(row) = rows.next()? {
            let seq: i64 = row.get(0)?;
            if seq > expected {
                (self.tell)(Fault::Gone { table, first: expected, last: seq - 1 });
            }
            match state(row) {
                Ok(statement) => {
                    let stated = (self.digest_of)(statement.row());
                    verify_row(&statement, stated).unwrap_or_else(|fault| (self.tell)(fault));
                }
                Err(Error::Sql(error)) if is_unreadable(&error) => {
                    (self.tell)(Fault::Unreadable { table, seq });
                }
                Err(error) => return Err(error),
            }
            found += 1;
            expected = expected.max(seq.saturating_add(1));
        }
        if found != stated {
            (self.tell)(Fault::Count { table, stated, found });
        }
        Ok(found)
    }
}

/// Whether a column has what none of ours can have.
fn is_unreadable(error: &rusqlite::Error) -> bool {
    use rusqlite::Error::{
        FromSqlConversionFailure, IntegralValueOutOfRange, InvalidColumnType, Utf8Error,
    };
    matches!(
        error,
        FromSqlConversionFailure(..)
            | IntegralValueOutOfRange(..)
            | InvalidColumnType(..)
            | Utf8Error(..)
    )
}

/// Compares the contents with their digests.
pub fn verify_contents(
    conn: &Connection,
    store: &Store,
    mut tell: impl FnMut(Fault),
) -> Result<Verified, Error> {
    let mut verified = Verified::default();
    let mut last = None;
    loop {
        let page = contents_after(conn, last)?;
        let Some(next) = page.last() else { break };
        last = Some(*next);
        for blob in &page {
            verified.contents += 1;
            verified.bytes = verified.bytes.saturating_add(blob.size);
            if let Some(fault) = fault(conn, store, blob)? {
                verified.faults += 1;
                tell(fault);
            }
        }
    }
    for shard in store.shards()? {
        let (shard, dir) = shard?;
        for digest in digests(&shard, &dir)? {
            verified.unreferenced += u64::from(!is_referenced(conn, &digest?)?);
        }
    }
    let sql = "SELECT count(*) FROM artifact_content
               WHERE digest NOT IN (SELECT digest FROM artifact_wanted)";
    let unreferenced: i64 = conn.query_row(sql, [], |row| row.get(0))?;
    verified.unreferenced += unreferenced.unsigned_abs();
    Ok(verified)
}

/// Without those of rows that cannot be read, which are faults by themselves.
fn contents_after(conn: &Connection, last: Option<Blob>) -> Result<Vec<Blob>, Error> {
    let digest = last.map_or_else(Vec::new, |last| last.digest.to_bytes().to_vec());
    let size = last.map_or(-1, |last| last.size as i64);
    let mut statement = conn.prepare_cached(
        "SELECT DISTINCT digest, size FROM artifact_wanted
         WHERE (digest, size) > (?1, ?2) AND length(digest) = 32 AND size >= 0
         ORDER BY digest, size LIMIT ?3",
    )?;
    let blobs = statement.query_map(params![digest, size, PAGE], |row| {
        let size = row.get::<_, i64>(1)?.unsigned_abs();
        Ok(Blob { digest: row.get(0)?, size })
    })?;
    Ok(blobs.collect::<Result<_, _>>()?)
}

fn fault(conn: &Connection, store: &Store, blob: &Blob) -> Result<Option<Fault>, Error> {
    let digest = blob.digest;
    let found = match store.found(conn, &digest) {
        Ok(found) if found == *blob => return Ok(None),
        Ok(found) => found,
        Err(Error::Store(StoreError::Missing(_))) => return Ok(Some(Fault::Missing(digest))),
        Err(Error::Store(StoreError::Tampered { damage: Damage::Size(found), .. })) => {
            return Ok(Some(Fault::Size { digest, expected: blob.size, found }));
        }
        Err(Error::Store(StoreError::Tampered { .. })) => {
            return Ok(Some(Fault::NotPlain(digest)));
        }
        Err(error) => return Err(error),
    };
    Ok(Some(if found.digest != digest && is_referenced(conn, &found.digest)? {
        Fault::Swapped { digest, with: found.digest }
    } else if found.size != blob.size {
        Fault::Size { digest, expected: blob.size, found: found.size }
    } else {
        Fault::Content(digest)
    }))
}
