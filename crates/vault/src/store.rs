//! What is read: secrets as they are now, without their values; and one value, with the key.

use std::fmt;

use hotcell_types::Name;
use rusqlite::{Connection, Params, Row, params};

use crate::binding::Binding;
use crate::error::Error;
use crate::key::Key;
use crate::name::SecretName;
use crate::schema;
use crate::seal::{self, Label};
use crate::value::Value;

const SELECT: &str =
    "SELECT number, tenant, name, hosts, tools, note, sealed, created FROM vault_secret";

/// A secret without its value.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Secret {
    /// 1, 2, 3 … of the home; what is set again has another.
    pub number: u64,
    pub tenant: Name,
    pub name: SecretName,
    pub binding: Binding,
    pub note: String,
    pub created: i64,
    pub(crate) sealed: Vec<u8>,
}

impl Secret {
    pub(crate) fn label(&self) -> Label<'_> {
        let Secret { number, tenant, name, binding, note, created, .. } = self;
        Label { number: *number, tenant, name, binding, note, created: *created }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Secret")
            .field("number", &self.number)
            .field("tenant", &self.tenant)
            .field("name", &self.name)
            .field("binding", &self.binding)
            .finish_non_exhaustive()
    }
}

/// A secret of a tenant.
pub fn get(conn: &Connection, tenant: &Name, name: &SecretName) -> Result<Option<Secret>, Error> {
    if !schema::is_current(conn)? {
        return Ok(None);
    }
    let rest = "WHERE tenant = ?1 AND name = ?2";
    Ok(select(conn, rest, params![tenant.as_str(), name.as_str()])?.pop())
}

/// All of them by name; of this tenant only, if one is named.
pub fn list(conn: &Connection, tenant: Option<&Name>) -> Result<Vec<Secret>, Error> {
    if !schema::is_current(conn)? {
        return Ok(Vec::new());
    }
    match tenant {
        Some(tenant) => select(conn, "WHERE tenant = ?1 ORDER BY name", [tenant.as_str()]),
        None => select(conn, "ORDER BY tenant, name", []),
    }
}

/// The value of a secret.
pub fn open(key: &Key, secret: &Secret) -> Result<Value, Error> {
    seal::open(key, &secret.label(), &secret.sealed)
}

/// The last number that was given, and how many there are.
pub(crate) fn mark(conn: &Connection) -> Result<(u64, u64), Error> {
    let mut mark = conn.prepare_cached("SELECT number, count FROM vault_mark")?;
    let (number, count) = mark.query_row([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let of = |number: i64| u64::try_from(number).map_err(|_| Error::Damaged(0));
    Ok((of(number)?, of(count)?))
}

pub(crate) fn select(
    conn: &Connection,
    rest: &str,
    params: impl Params,
) -> Result<Vec<Secret>, Error> {
    let mut select = conn.prepare_cached(&format!("{SELECT} {rest}"))?;
    let mut rows = select.query(params)?;
    let mut all = Vec::new();
    while let Some(row) = rows.next()? {
        all.push(secret(row)?);
    }
    Ok(all)
}

/// Every row in its order, with its number; without the rest if that is not one that we wrote.
pub(crate) fn each(
    conn: &Connection,
    mut each: impl FnMut(u64, Option<Secret>),
) -> Result<(), Error> {
    if !schema::is_current(conn)? {
        return Ok(());
    }
    let mut select = conn.prepare(&format!("{SELECT} ORDER BY number"))?;
    let mut rows = select.query([])?;
    while let Some(row) = rows.next()? {
        each(number(row)?, secret(row).ok());
    }
    Ok(())
}

fn number(row: &Row<'_>) -> Result<u64, Error> {
    u64::try_from(row.get::<_, i64>(0)?).map_err(|_| Error::Damaged(0))
}

/// Who writes to the database could write anything: what does not fit together is refused.
fn secret(row: &Row<'_>) -> Result<Secret, Error> {
    let number = number(row)?;
    let damaged = || Error::Damaged(number);
    let text = |at: usize| row.get::<_, String>(at);
    Ok(Secret {
        number,
        tenant: text(1)?.try_into().map_err(|_| damaged())?,
        name: text(2)?.parse().map_err(|_| damaged())?,
        binding: Binding::read(&text(3)?, &text(4)?).ok_or_else(damaged)?,
        note: text(5)?,
        sealed: row.get(6)?,
        created: row.get(7)?,
    })
}
