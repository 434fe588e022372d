//! The tables. What a tree is never changes; which one a name stands for does.

use rusqlite::{Connection, OptionalExtension, Transaction};

use crate::rows::Error;

/// Each step once, in this order. What is released is not changed; a change is another step.
const STEPS: &[&str] = &["
CREATE TABLE environment (
    digest      TEXT PRIMARY KEY CHECK (length(digest) = 64),
    language    TEXT NOT NULL,
    interpreter TEXT NOT NULL,
    program     TEXT NOT NULL,
    size        INTEGER NOT NULL,
    modified    INTEGER NOT NULL,
    version     TEXT NOT NULL,
    platform    TEXT NOT NULL,
    packages    TEXT NOT NULL,
    files       INTEGER NOT NULL,
    bytes       INTEGER NOT NULL,
    created     INTEGER NOT NULL
) STRICT;
CREATE TABLE environment_name (
    number       INTEGER PRIMARY KEY,
    tenant       TEXT NOT NULL,
    name         TEXT NOT NULL,
    digest       TEXT NOT NULL REFERENCES environment (digest),
    requirements TEXT NOT NULL,
    created      INTEGER NOT NULL,
    UNIQUE (tenant, name)
) STRICT;
CREATE INDEX environment_name_by_digest ON environment_name (digest);
"];

/// Where the steps lead to.
const KNOWN: i64 = STEPS.len() as i64;

/// Whether the tables are there and up to date. Refused if a newer hotcell has been here.
pub(crate) fn is_current(conn: &Connection) -> Result<bool, Error> {
    let is_there = "SELECT 1 FROM sqlite_schema WHERE name = 'environment_schema'";
    Ok(conn.prepare_cached(is_there)?.exists([])? && version(conn)? == KNOWN)
}

fn version(conn: &Connection) -> Result<i64, Error> {
    let mut highest = conn.prepare_cached("SELECT max(version) FROM environment_schema")?;
    let found = highest.query_row([], |row| row.get(0)).optional()?.flatten().unwrap_or(0);
    if found > KNOWN { Err(Error::Newer { found, known: KNOWN }) } else { Ok(found) }
}

/// Makes the tables, or brings them up to date. Refused if a newer hotcell has been here.
pub(crate) fn migrate(tx: &Transaction<'_>) -> Result<(), Error> {
    if is_current(tx)? {
        return Ok(());
    }
    let own = "CREATE TABLE IF NOT EXISTS environment_schema (version INTEGER NOT NULL) STRICT";
    tx.execute_batch(own)?;
    let found = version(tx)?;
    for (version, step) in (1_i64..).zip(STEPS).filter(|(version, _)| *version > found) {
        tx.execute_batch(step)?;
        tx.execute("INSERT INTO environment_schema (version) VALUES (?1)", [version])?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_taken_once_and_a_newer_hotcell_is_respected() {
        let mut conn = Connection::open_in_memory().unwrap();
        let tx = conn.transaction().unwrap();
        assert!(!is_current(&tx).unwrap());
        migrate(&tx).unwrap();
        migrate(&tx).unwrap();
        assert!(is_current(&tx).unwrap());
        tx.execute("INSERT INTO environment_schema VALUES (?1)", [KNOWN + 1]).unwrap();
        assert!(matches!(is_current(&tx), Err(Error::Newer { .. })));
        assert!(matches!(migrate(&tx), Err(Error::Newer { .. })));
    }
}
