//! What is read: bearers as they are now, and what time it is for them.

use hotcell_types::{CallId, Name};
use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, ValueRef};
use rusqlite::{Connection, OptionalExtension, Params, Row, params};

use crate::claims::{Claims, MAX_DEPTH};
use crate::error::Error;
use crate::id::BearerId;
use crate::rows::{Lineage, Stored};
use crate::schema;
use crate::time::{Mark, Moment};
use crate::token::Presented;

/// Most bearers of one page.
pub const MAX_PAGE: usize = 1000;

const COLUMNS: &str = "nonce, id, claims, remains, held, revoked, changes";

/// What time it is for bearers: never earlier than it ever was, whatever the clock says.
pub fn now(conn: &Connection, moment: &Moment) -> Result<i64, Error> {
    let mark = match schema::is_current(conn)? {
        true => mark(conn)?.2,
        false => Mark { time: 0, boot: [0; 16], uptime: 0 },
    };
    mark.at(moment).map(|mark| mark.time).ok_or(Error::Clock)
}

/// The last number, up to which number rows are gone, and the highest time.
pub(crate) fn mark(conn: &Connection) -> Result<(u64, u64, Mark), Error> {
    let mark = "SELECT nonce, swept, time, boot, uptime FROM bearer_mark";
    let mark = conn.prepare_cached(mark)?.query_row([], |row| {
        let mark = Mark { time: row.get(2)?, boot: row.get(3)?, uptime: row.get(4)? };
        Ok((row.get::<_, Count>(0)?.0, row.get::<_, Count>(1)?.0, mark))
    })?;
    Ok(mark)
}

/// What is known of a bearer that was presented; `None` if nothing is.
pub fn find(conn: &Connection, presented: &Presented) -> Result<Option<Lineage>, Error> {
    lineage(conn, presented.id())
}

/// A bearer of a tenant's.
pub fn get(conn: &Connection, tenant: &Name, id: BearerId) -> Result<Option<Stored>, Error> {
    if !schema::is_current(conn)? {
        return Ok(None);
    }
    Ok(by_id(conn, id)?.filter(|stored| stored.claims.holder.tenant == *tenant))
}

/// A bearer in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    pub stored: Stored,
    /// Or one that it was derived from.
    pub is_revoked: bool,
}

/// A tenant's bearers with higher numbers than that, in their order, [`MAX_PAGE`] at most.
pub fn list(
    conn: &Connection,
    tenant: &Name,
    after: u64,
    limit: usize,
) -> Result<Vec<Listed>, Error> {
    if !schema::is_current(conn)? {
        return Ok(Vec::new());
    }
    let after = i64::try_from(after).unwrap_or(i64::MAX);
    let limit = limit.min(MAX_PAGE) as i64;
    let rest = "WHERE tenant = ?1 AND nonce > ?2 ORDER BY nonce LIMIT ?3";
    let stored = select(conn, rest, params![tenant.as_str(), after, limit])?;
    stored.into_iter().map(|stored| listed(conn, stored)).collect()
}

fn listed(conn: &Connection, stored: Stored) -> Result<Listed, Error> {
    let above = match stored.claims.parent {
        Some(_) => lineage(conn, stored.id())?,
        None => None,
    };
    let above = above.is_some_and(|line| line.ancestors.iter().any(|one| one.revoked.is_some()));
    let is_revoked = stored.revoked.is_some() || above;
    Ok(Listed { stored, is_revoked })
}

/// The bearer of which the review of a call holds an operation.
pub(crate) fn held(conn: &Connection, call: CallId) -> Result<Option<Lineage>, Error> {
    if !schema::is_current(conn)? {
        return Ok(None);
    }
    let Some(nonce) = holding(conn, call.to_bytes())? else { return Ok(None) };
    let own = by_nonce(conn, nonce)?.ok_or(Error::Damaged(nonce.unsigned_abs()))?;
    lineage(conn, own.id())
}

pub(crate) fn lineage(conn: &Connection, id: BearerId) -> Result<Option<Lineage>, Error> {
    if !schema::is_current(conn)? {
        return Ok(None);
    }
    let Some(own) = by_id(conn, id)? else { return Ok(None) };
    let mut ancestors: Vec<Stored> = Vec::new();
    let mut parent = own.claims.parent;
    while let Some(id) = parent.filter(|_| ancestors.len() + 1 < MAX_DEPTH) {
        let Some(stored) = by_id(conn, id)? else { break };
        parent = stored.claims.parent;
        ancestors.push(stored);
    }
    Ok(Some(Lineage { own, ancestors }))
}

pub(crate) fn by_id(conn: &Connection, id: BearerId) -> Result<Option<Stored>, Error> {
    Ok(select(conn, "WHERE id = ?1", [id])?.pop())
}

pub(crate) fn by_nonce(conn: &Connection, nonce: i64) -> Result<Option<Stored>, Error> {
    Ok(select(conn, "WHERE nonce = ?1", [nonce])?.pop())
}

pub(crate) fn select(
    conn: &Connection,
    rest: &str,
    params: impl Params,
) -> Result<Vec<Stored>, Error> {
    let mut select = conn.prepare_cached(&format!("SELECT {COLUMNS} FROM bearer {rest}"))?;
    let mut rows = select.query(params)?;
    let mut all = Vec::new();
    while let Some(row) = rows.next()? {
        all.push(stored(row)?);
    }
    Ok(all)
}

/// Every row in its order, with its number; without the rest if that is not one that we wrote.
pub(crate) fn each(
    conn: &Connection,
    mut each: impl FnMut(u64, Option<Stored>),
) -> Result<(), Error> {
    if !schema::is_current(conn)? {
        return Ok(());
    }
    let mut select = conn.prepare(&format!("SELECT {COLUMNS} FROM bearer ORDER BY nonce"))?;
    let mut rows = select.query([])?;
    while let Some(row) = rows.next()? {
        each(row.get::<_, Count>(0)?.0, stored(row).ok());
    }
    Ok(())
}

/// Who writes to the database could write anything: what does not fit together is refused.
fn stored(row: &Row<'_>) -> Result<Stored, Error> {
    let nonce = row.get::<_, Count>(0)?.0;
    let body: Vec<u8> = row.get(2)?;
    let claims = Claims::decode(&body).ok_or(Error::Damaged(nonce))?;
    let stored = Stored {
        claims,
        body,
        left: row.get(3)?,
        held: row.get(4)?,
        revoked: row.get(5)?,
        changes: row.get::<_, Count>(6)?.0,
    };
    let is_its_own = stored.claims.nonce == nonce && stored.claims.id == row.get(1)?;
    let is_within = stored.left.checked_add(stored.held).is_some_and(|n| n <= stored.claims.uses);
    if is_its_own && is_within { Ok(stored) } else { Err(Error::Damaged(nonce)) }
}

/// Which bearer a review holds an operation of.
pub(crate) fn holding(conn: &Connection, call: [u8; 16]) -> Result<Option<i64>, Error> {
    let holding = "SELECT nonce FROM bearer_held WHERE call = ?1";
    Ok(conn.prepare_cached(holding)?.query_row([call], |row| row.get(0)).optional()?)
}

/// A number that is never negative.
struct Count(u64);

impl FromSql for Count {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Count> {
        let number = value.as_i64()?;
        u64::try_from(number).map(Count).map_err(|_| FromSqlError::OutOfRange(number))
    }
}
