//! The keys that callers give their calls: the same key is the same call, however often it is sent. A key is
//! claimed by the first call, in the transaction of its intent, so that of ten that are sent at once one is
//! carried out; whoever comes later finds which one that was, and what it replied.
//!
//! A claim is an index over what the chain has: the intent of the call names the key. It goes when the
//! record gives up what calls replied ([`prune`]), and not before.
//!
//! ```text
//! claim ─▶ taken ─keep─▶ (with its reply)
//!            └─release─▶ free again: nothing was done
//! ```

/// What rows are read from, and written in.
pub use rusqlite::{Connection, Transaction};

mod schema;

use hotcell_types::{CallId, Name};
use rusqlite::types::{FromSql, FromSqlResult, ValueRef};
use rusqlite::{OptionalExtension, params};

pub use schema::{is_current, migrate};

/// A SHA-256.
pub type Digest = [u8; 32];

/// Most claims that are kept.
pub const MAX_CLAIMS: u64 = 1_000_000;
/// How long a claim is kept at least, in nanoseconds: a day. Then it makes room where there is none.
pub const KEPT: i64 = 24 * 3600 * 1_000_000_000;
/// Most that one call removes to make room, and that [`prune`] does.
pub const MAX_REMOVED: usize = 1000;
/// Largest reply that is kept, in bytes. Whoever comes back gets the rest from the record and the ledger.
pub const MAX_REPLY: usize = 256 << 10;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    #[error("{MAX_CLAIMS} keys of calls are kept, all of them younger than a day")]
    Full,
    #[error("keys of calls cannot be read or written")]
    Sql(#[from] rusqlite::Error),
    #[error(
        "the keys of calls have version {found}, and this hotcell knows {known} at most; use a newer hotcell"
    )]
    Newer { found: i64, known: i64 },
}

/// A key, and whose it is. Two callers can use the same words.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Whose {
    pub tenant: Name,
    pub subject: Name,
    pub key: String,
}

/// The call that has a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    pub call: CallId,
    /// Of what was asked for: another one is another call.
    pub digest: Digest,
    /// What was replied, as it was kept.
    pub reply: Option<String>,
}

/// The call that has this key, if any has.
pub fn find(conn: &Connection, whose: &Whose) -> Result<Option<Claim>, Error> {
    if !schema::is_current(conn)? {
        return Ok(None);
    }
    let find =
        "SELECT call, digest, reply FROM once WHERE tenant = ?1 AND subject = ?2 AND key = ?3";
    let mut find = conn.prepare_cached(find)?;
    let Whose { tenant, subject, key } = whose;
    let found = find.query_row(params![tenant.as_str(), subject.as_str(), key], |row| {
        Ok(Claim { call: row.get::<_, Id>(0)?.0, digest: row.get(1)?, reply: row.get(2)? })
    });
    Ok(found.optional()?)
}

/// Takes a key for a call; gives back whose it is if somebody was first.
pub fn claim(
    tx: &Transaction<'_>,
    whose: &Whose,
    digest: Digest,
    call: CallId,
    now: i64,
) -> Result<Option<Claim>, Error> {
    schema::migrate(tx)?;
    if let Some(claim) = find(tx, whose)? {
        return Ok(Some(claim));
    }
    make_room(tx, now)?;
    let Whose { tenant, subject, key } = whose;
    tx.prepare_cached(
        "INSERT INTO once (tenant, subject, key, digest, call, time) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    )?
    .execute(params![tenant.as_str(), subject.as_str(), key, digest, call.to_bytes(), now])?;
    Ok(None)
}

/// Keeps what was replied, if it is not too large, for whoever comes back.
pub fn keep(tx: &Transaction<'_>, call: CallId, reply: &str) -> Result<(), Error> {
    if reply.len() <= MAX_REPLY && schema::is_current(tx)? {
        tx.prepare_cached("UPDATE once SET reply = ?2 WHERE call = ?1 AND reply IS NULL")?
            .execute(params![call.to_bytes(), reply])?;
    }
    Ok(())
}

/// Gives the key back: nothing was done under it, and somebody may try again.
pub fn release(tx: &Transaction<'_>, call: CallId) -> Result<(), Error> {
    if schema::is_current(tx)? {
        tx.prepare_cached("DELETE FROM once WHERE call = ?1")?.execute([call.to_bytes()])?;
    }
    Ok(())
}

/// Removes claims from before this time, [`MAX_REMOVED`] at most, and says how many. Not those of calls that
/// the record, in whose database this is, says are being carried out.
pub fn prune(tx: &Transaction<'_>, before: i64) -> Result<usize, Error> {
    if !schema::is_current(tx)? {
        return Ok(0);
    }
    let prune = "DELETE FROM once WHERE number IN
        (SELECT number FROM once WHERE time < ?1 AND call NOT IN (SELECT call FROM unfinished)
            ORDER BY time LIMIT ?2)";
    Ok(tx.prepare_cached(prune)?.execute(params![before, MAX_REMOVED as i64])?)
}

/// Where there are as many as there can be, those go that are old enough.
fn make_room(tx: &Transaction<'_>, now: i64) -> Result<(), Error> {
    // Numbers have gaps, so that this is the most that there can be; it costs two looks at an index.
    let span =
        "SELECT coalesce((SELECT max(number) FROM once) - (SELECT min(number) FROM once) + 1, 0)";
    let span: i64 = tx.prepare_cached(span)?.query_row([], |row| row.get(0))?;
    if span.unsigned_abs() < MAX_CLAIMS || prune(tx, now.saturating_sub(KEPT))? > 0 {
        return Ok(());
    }
    let count: i64 = tx.query_row("SELECT count(*) FROM once", [], |row| row.get(0))?;
    if count.unsigned_abs() < MAX_CLAIMS { Ok(()) } else { Err(Error::Full) }
}

struct Id(CallId);

impl FromSql for Id {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Id> {
        FromSql::column_result(value).map(|bytes| Id(CallId::from_bytes(bytes)))
    }
}

#[cfg(test)]
mod tests;
