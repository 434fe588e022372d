//! The tables. A row is never changed: what is set again is another row, with another number.

use rusqlite::{Connection, OptionalExtension, Transaction};

use crate::error::Error;

/// Each step once, in this order. What is released is not changed; a change is another step.
const STEPS: &[&str] = &["
CREATE TABLE vault_secret (
    number  INTEGER PRIMARY KEY CHECK (number > 0),
    tenant  TEXT NOT NULL,
    name    TEXT NOT NULL,
    -- Patterns of hosts, and names of tools, with spaces between.
    hosts   TEXT NOT NULL CHECK (hosts <> ''),
    tools   TEXT NOT NULL,
    note    TEXT NOT NULL,
    -- Nonce, sealed value, tag.
    sealed  BLOB NOT NULL CHECK (length(sealed) BETWEEN 40 AND 8192),
    created INTEGER NOT NULL,
    UNIQUE (tenant, name)
) STRICT;

-- One row: the last number that was given, and how many secrets there are.
CREATE TABLE vault_mark (
    one    INTEGER PRIMARY KEY CHECK (one = 1),
    number INTEGER NOT NULL,
    count  INTEGER NOT NULL CHECK (count >= 0)
) STRICT;
INSERT INTO vault_mark VALUES (1, 0, 0);

CREATE TRIGGER vault_secret_is_new BEFORE INSERT ON vault_secret
    WHEN NEW.number IS NOT 1 + (SELECT number FROM vault_mark)
    BEGIN SELECT raise(ABORT, 'a secret has a number that was never given'); END;
CREATE TRIGGER vault_secret_is_fixed BEFORE UPDATE ON vault_secret
    BEGIN SELECT raise(ABORT, 'a secret is never changed'); END;
CREATE TRIGGER vault_secret_was_set AFTER INSERT ON vault_secret
    BEGIN UPDATE vault_mark SET number = NEW.number, count = count + 1; END;
CREATE TRIGGER vault_secret_was_removed AFTER DELETE ON vault_secret
    BEGIN UPDATE vault_mark SET count = count - 1; END;
CREATE TRIGGER vault_mark_stays BEFORE DELETE ON vault_mark
    BEGIN SELECT raise(ABORT, 'the mark of secrets stays'); END;
CREATE TRIGGER vault_mark_rises BEFORE UPDATE ON vault_mark WHEN NEW.number < OLD.number
    BEGIN SELECT raise(ABORT, 'the mark of secrets never falls'); END;
"];

/// Where the steps lead to.
const KNOWN: i64 = STEPS.len() as i64;

/// Whether the tables are there and up to date. Refused if a newer hotcell has been here.
pub fn is_current(conn: &Connection) -> Result<bool, Error> {
    let is_there = "SELECT 1 FROM sqlite_schema WHERE name = 'vault_schema'";
    Ok(conn.prepare_cached(is_there)?.exists([])? && version(conn)? == KNOWN)
}

fn version(conn: &Connection) -> Result<i64, Error> {
    let mut highest = conn.prepare_cached("SELECT max(version) FROM vault_schema")?;
    let found = highest.query_row([], |row| row.get(0)).optional()?.flatten().unwrap_or(0);
    if found > KNOWN { Err(Error::Newer { found, known: KNOWN }) } else { Ok(found) }
}

/// Makes the tables, or brings them up to date. Refused if a newer hotcell has been here.
pub fn migrate(tx: &Transaction<'_>) -> Result<(), Error> {
    if is_current(tx)? {
        return Ok(());
    }
    tx.execute_batch("CREATE TABLE IF NOT EXISTS vault_schema (version INTEGER NOT NULL) STRICT")?;
    let found = version(tx)?;
    for (version, step) in (1_i64..).zip(STEPS).filter(|(version, _)| *version > found) {
        tx.execute_batch(step)?;
        tx.execute("INSERT INTO vault_schema (version) VALUES (?1)", [version])?;
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
        tx.execute("INSERT INTO vault_schema VALUES (?1)", [KNOWN + 1]).unwrap();
        assert!(matches!(is_current(&tx), Err(Error::Newer { .. })));
        assert!(matches!(migrate(&tx), Err(Error::Newer { .. })));
    }
}
