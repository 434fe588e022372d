//! The table. What a key was claimed for never changes.

use rusqlite::{Connection, OptionalExtension, Transaction};

use crate::Error;

/// Each step once, in this order. What is released is not changed; a change is another step.
const STEPS: &[&str] = &["
CREATE TABLE once (
    number  INTEGER PRIMARY KEY,
    tenant  TEXT NOT NULL,
    subject TEXT NOT NULL,
    key     TEXT NOT NULL,
    digest  BLOB NOT NULL CHECK (length(digest) = 32),
    call    BLOB NOT NULL UNIQUE CHECK (length(call) = 16),
    time    INTEGER NOT NULL,
    reply   TEXT,
    UNIQUE (tenant, subject, key)
) STRICT;
CREATE INDEX once_by_time ON once (time);
CREATE TRIGGER once_is_fixed BEFORE UPDATE ON once
    WHEN OLD.reply IS NOT NULL OR NEW.number IS NOT OLD.number OR NEW.tenant IS NOT OLD.tenant
    OR NEW.subject IS NOT OLD.subject OR NEW.key IS NOT OLD.key OR NEW.digest IS NOT OLD.digest
    OR NEW.call IS NOT OLD.call OR NEW.time IS NOT OLD.time
    BEGIN SELECT raise(ABORT, 'what a key was claimed for stays'); END;
"];

/// Where the steps lead to.
const KNOWN: i64 = STEPS.len() as i64;

/// Whether the table is there and up to date. Refused if a newer hotcell has been here.
pub fn is_current(conn: &Connection) -> Result<bool, Error> {
    let is_there = "SELECT 1 FROM sqlite_schema WHERE name = 'once_schema'";
    Ok(conn.prepare_cached(is_there)?.exists([])? && version(conn)? == KNOWN)
}

fn version(conn: &Connection) -> Result<i64, Error> {
    let mut highest = conn.prepare_cached("SELECT max(version) FROM once_schema")?;
    let found = highest.query_row([], |row| row.get(0)).optional()?.flatten().unwrap_or(0);
    if found > KNOWN { Err(Error::Newer { found, known: KNOWN }) } else { Ok(found) }
}

/// Makes the table, or brings it up to date. Refused if a newer hotcell has been here.
pub fn migrate(tx: &Transaction<'_>) -> Result<(), Error> {
    if is_current(tx)? {
        return Ok(());
    }
    tx.execute_batch("CREATE TABLE IF NOT EXISTS once_schema (version INTEGER NOT NULL) STRICT")?;
    let found = version(tx)?;
    for (version, step) in (1_i64..).zip(STEPS).filter(|(version, _)| *version > found) {
        tx.execute_batch(step)?;
        tx.execute("INSERT INTO once_schema (version) VALUES (?1)", [version])?;
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
        tx.execute("INSERT INTO once_schema VALUES (?1)", [KNOWN + 1]).unwrap();
        assert!(matches!(is_current(&tx), Err(Error::Newer { .. })));
        assert!(matches!(migrate(&tx), Err(Error::Newer { .. })));
    }
}
