//! The tables. Triggers refuse what would bring a key back or make it another, and count what happens, so
//! that one number tells whether anything did.

use rusqlite::{Connection, OptionalExtension, Transaction};

use crate::error::Error;

/// Each step once, in this order. What is released is not changed; a change is another step.
const STEPS: &[&str] = &["
CREATE TABLE access_key (
    number     INTEGER PRIMARY KEY CHECK (number > 0),
    id         BLOB NOT NULL UNIQUE CHECK (length(id) = 10),
    -- SHA-256 of the secret.
    digest     BLOB NOT NULL CHECK (length(digest) = 32),
    name       TEXT NOT NULL,
    tenant     TEXT NOT NULL,
    subject    TEXT NOT NULL,
    scopes     TEXT NOT NULL CHECK (scopes <> ''),
    rate       INTEGER CHECK (rate > 0),
    burst      INTEGER CHECK (burst > 0),
    concurrent INTEGER CHECK (concurrent > 0),
    created    INTEGER NOT NULL,
    expires    INTEGER CHECK (expires > created),
    revoked    INTEGER,
    changes    INTEGER NOT NULL CHECK (changes > 0),
    CHECK ((rate IS NULL) = (burst IS NULL))
) STRICT;
CREATE INDEX access_key_by_tenant ON access_key (tenant, number);

-- When a key was used last, roughly. The chain does not vouch for it.
CREATE TABLE access_used (
    number INTEGER PRIMARY KEY REFERENCES access_key (number) ON DELETE CASCADE,
    time   INTEGER NOT NULL
) STRICT;

-- One row: the last number that was given, how many keys there are, and how often any was made, changed or
-- removed.
CREATE TABLE access_mark (
    one     INTEGER PRIMARY KEY CHECK (one = 1),
    number  INTEGER NOT NULL,
    count   INTEGER NOT NULL CHECK (count >= 0),
    version INTEGER NOT NULL
) STRICT;
INSERT INTO access_mark VALUES (1, 0, 0, 0);

CREATE TRIGGER access_key_is_new BEFORE INSERT ON access_key
    WHEN NEW.number IS NOT 1 + (SELECT number FROM access_mark) OR NEW.changes IS NOT 1
    BEGIN SELECT raise(ABORT, 'a key has a number that was never given'); END;
CREATE TRIGGER access_key_is_fixed BEFORE UPDATE OF number, id, digest, name, tenant, subject, scopes, rate,
    burst, concurrent, created, expires ON access_key
    BEGIN SELECT raise(ABORT, 'what a key is for is never changed'); END;
CREATE TRIGGER access_key_stays_revoked BEFORE UPDATE ON access_key
    WHEN OLD.revoked IS NOT NULL AND NEW.revoked IS NOT OLD.revoked
    BEGIN SELECT raise(ABORT, 'what is revoked stays revoked'); END;
CREATE TRIGGER access_key_counts BEFORE UPDATE ON access_key WHEN NEW.changes IS NOT OLD.changes + 1
    BEGIN SELECT raise(ABORT, 'changes of a key are counted'); END;
CREATE TRIGGER access_key_was_made AFTER INSERT ON access_key
    BEGIN UPDATE access_mark SET number = NEW.number, count = count + 1, version = version + 1; END;
CREATE TRIGGER access_key_was_changed AFTER UPDATE ON access_key
    BEGIN UPDATE access_mark SET version = version + 1; END;
CREATE TRIGGER access_key_was_removed AFTER DELETE ON access_key
    BEGIN UPDATE access_mark SET count = count - 1, version = version + 1; END;
CREATE TRIGGER access_mark_stays BEFORE DELETE ON access_mark
    BEGIN SELECT raise(ABORT, 'the mark of keys stays'); END;
CREATE TRIGGER access_mark_rises BEFORE UPDATE ON access_mark
    WHEN NEW.number < OLD.number OR NEW.version <= OLD.version
    BEGIN SELECT raise(ABORT, 'the mark of keys never falls'); END;
"];

/// Where the steps lead to.
const KNOWN: i64 = STEPS.len() as i64;

/// Whether the tables are there and up to date. Refused if a newer hotcell has been here.
pub fn is_current(conn: &Connection) -> Result<bool, Error> {
    let is_there = "SELECT 1 FROM sqlite_schema WHERE name = 'access_schema'";
    Ok(conn.prepare_cached(is_there)?.exists([])? && version(conn)? == KNOWN)
}

fn version(conn: &Connection) -> Result<i64, Error> {
    let mut highest = conn.prepare_cached("SELECT max(version) FROM access_schema")?;
    let found = highest.query_row([], |row| row.get(0)).optional()?.flatten().unwrap_or(0);
    if found > KNOWN { Err(Error::Newer { found, known: KNOWN }) } else { Ok(found) }
}

/// Makes the tables, or brings them up to date. Refused if a newer hotcell has been here.
pub fn migrate(tx: &Transaction<'_>) -> Result<(), Error> {
    if is_current(tx)? {
        return Ok(());
    }
    tx.execute_batch("CREATE TABLE IF NOT EXISTS access_schema (version INTEGER NOT NULL) STRICT")?;
    let found = version(tx)?;
    for (version, step) in (1_i64..).zip(STEPS).filter(|(version, _)| *version > found) {
        tx.execute_batch(step)?;
        tx.execute("INSERT INTO access_schema (version) VALUES (?1)", [version])?;
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
        tx.execute("INSERT INTO access_schema VALUES (?1)", [KNOWN + 1]).unwrap();
        assert!(matches!(is_current(&tx), Err(Error::Newer { .. })));
        assert!(matches!(migrate(&tx), Err(Error::Newer { .. })));
    }
}
