//! What is read: keys as they are now.

use std::num::NonZeroU32;

use hotcell_types::Name;
use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, ValueRef};
use rusqlite::{Connection, Params, Row, params};

use crate::error::Error;
use crate::id::KeyId;
use crate::key::{Key, Rate};
use crate::schema;
use crate::scope::Scopes;

/// Most keys of one page.
pub const MAX_PAGE: usize = 1000;

const SELECT: &str = "SELECT number, id, digest, name, tenant, subject, scopes, rate, burst, concurrent,
    created, expires, revoked, changes, (SELECT time FROM access_used WHERE access_used.number = access_key.number)
    FROM access_key";

/// A key; of this tenant only, if one is named.
pub fn get(conn: &Connection, tenant: Option<&Name>, id: KeyId) -> Result<Option<Key>, Error> {
    if !schema::is_current(conn)? {
        return Ok(None);
    }
    let key = select(conn, "WHERE id = ?1", [id])?.pop();
    Ok(key.filter(|key| tenant.is_none_or(|tenant| key.tenant == *tenant)))
}

/// Keys with higher numbers than that, in their order, [`MAX_PAGE`] at most; of this tenant only, if one is
/// named.
pub fn list(
    conn: &Connection,
    tenant: Option<&Name>,
    after: u64,
    limit: usize,
) -> Result<Vec<Key>, Error> {
    if !schema::is_current(conn)? {
        return Ok(Vec::new());
    }
    let after = i64::try_from(after).unwrap_or(i64::MAX);
    let limit = limit.min(MAX_PAGE) as i64;
    match tenant {
        Some(tenant) => {
            let rest = "WHERE tenant = ?1 AND number > ?2 ORDER BY number LIMIT ?3";
            select(conn, rest, params![tenant.as_str(), after, limit])
        }
        None => select(conn, "WHERE number > ?1 ORDER BY number LIMIT ?2", params![after, limit]),
    }
}

/// How often keys were changed, and how many there are.
pub(crate) fn mark(conn: &Connection) -> Result<(u64, u64), Error> {
    let mut mark = conn.prepare_cached("SELECT version, count FROM access_mark")?;
    let mark =
        mark.query_row([], |row| Ok((row.get::<_, Count>(0)?.0, row.get::<_, Count>(1)?.0)))?;
    Ok(mark)
}

pub(crate) fn select(
    conn: &Connection,
    rest: &str,
    params: impl Params,
) -> Result<Vec<Key>, Error> {
    let mut select = conn.prepare_cached(&format!("{SELECT} {rest}"))?;
    let mut rows = select.query(params)?;
    let mut all = Vec::new();
    while let Some(row) = rows.next()? {
        all.push(key(row)?);
    }
    Ok(all)
}

/// Every row in its order, with its number; without the rest if that is not one that we wrote.
pub(crate) fn each(conn: &Connection, mut each: impl FnMut(u64, Option<Key>)) -> Result<(), Error> {
    if !schema::is_current(conn)? {
        return Ok(());
    }
    let mut select = conn.prepare(&format!("{SELECT} ORDER BY number"))?;
    let mut rows = select.query([])?;
    while let Some(row) = rows.next()? {
        each(row.get::<_, Count>(0)?.0, key(row).ok());
    }
    Ok(())
}

/// Who writes to the database could write anything: what does not fit together is refused.
fn key(row: &Row<'_>) -> Result<Key, Error> {
    let number = row.get::<_, Count>(0)?.0;
    let damaged = || Error::Damaged(number);
    let name = |at: usize| -> Result<Name, Error> {
        row.get::<_, String>(at)?.try_into().map_err(|_| damaged())
    };
    let some = |at: usize| -> Result<Option<NonZeroU32>, Error> {
        let number: Option<u32> = row.get(at)?;
        number.map(|number| NonZeroU32::new(number).ok_or_else(damaged)).transpose()
    };
    let rate = match (some(7)?, some(8)?) {
        (Some(per_second), Some(burst)) => Some(Rate { per_second, burst }),
        (None, None) => None,
        _ => return Err(damaged()),
    };
    Ok(Key {
        number,
        id: row.get(1)?,
        digest: row.get(2)?,
        name: name(3)?,
        tenant: name(4)?,
        subject: name(5)?,
        scopes: Scopes::read(&row.get::<_, String>(6)?).ok_or_else(damaged)?,
        rate,
        concurrent: some(9)?,
        created: row.get(10)?,
        expires: row.get(11)?,
        revoked: row.get(12)?,
        changes: row.get::<_, Count>(13)?.0,
        used: row.get(14)?,
    })
}

/// A number that is never negative.
pub(crate) struct Count(pub(crate) u64);

impl FromSql for Count {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Count> {
        let number = value.as_i64()?;
        u64::try_from(number).map(Count).map_err(|_| FromSqlError::OutOfRange(number))
    }
}
