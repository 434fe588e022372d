//! The tables. Triggers refuse what would bring something back: operations, revoked bearers, a number, an
//! earlier time.

use rusqlite::{Connection, OptionalExtension, Transaction};

use crate::error::Error;

/// Each step once, in this order. What is released is not changed; a change is another step.
const STEPS: &[&str] = &["
CREATE TABLE bearer (
    nonce   INTEGER PRIMARY KEY CHECK (nonce > 0),
    id      BLOB NOT NULL UNIQUE CHECK (length(id) = 16),
    tenant  TEXT NOT NULL,
    claims  BLOB NOT NULL,
    expires INTEGER NOT NULL,
    remains INTEGER NOT NULL CHECK (remains >= 0),
    held    INTEGER NOT NULL CHECK (held >= 0),
    revoked INTEGER,
    changes INTEGER NOT NULL CHECK (changes > 0)
) STRICT;
CREATE INDEX bearer_by_tenant ON bearer (tenant, nonce);

-- Operations that wait for the answer to a review, by the call that is reviewed.
CREATE TABLE bearer_held (
    call  BLOB PRIMARY KEY CHECK (length(call) = 16),
    nonce INTEGER NOT NULL REFERENCES bearer (nonce)
) STRICT, WITHOUT ROWID;
CREATE INDEX bearer_held_by_bearer ON bearer_held (nonce);

-- One row: the last number that was given, up to which number rows were removed, and the highest time
-- that was seen, with the boot of the system and the time since then.
CREATE TABLE bearer_mark (
    one    INTEGER PRIMARY KEY CHECK (one = 1),
    nonce  INTEGER NOT NULL,
    swept  INTEGER NOT NULL CHECK (swept <= nonce),
    time   INTEGER NOT NULL,
    boot   BLOB NOT NULL CHECK (length(boot) = 16),
    uptime INTEGER NOT NULL
) STRICT;
INSERT INTO bearer_mark VALUES (1, 0, 0, 0, zeroblob(16), 0);

CREATE TRIGGER bearer_is_new BEFORE INSERT ON bearer
    WHEN NEW.nonce IS NOT (SELECT nonce FROM bearer_mark)
    BEGIN SELECT raise(ABORT, 'a bearer has a number that was never given'); END;
CREATE TRIGGER bearer_is_fixed BEFORE UPDATE OF nonce, id, tenant, claims, expires ON bearer
    BEGIN SELECT raise(ABORT, 'what a bearer says is never changed'); END;
CREATE TRIGGER bearer_never_grows BEFORE UPDATE ON bearer
    WHEN NEW.remains + NEW.held > OLD.remains + OLD.held
    BEGIN SELECT raise(ABORT, 'operations of a bearer never become more'); END;
CREATE TRIGGER bearer_stays_revoked BEFORE UPDATE ON bearer
    WHEN OLD.revoked IS NOT NULL AND NEW.revoked IS NOT OLD.revoked
    BEGIN SELECT raise(ABORT, 'what is revoked stays revoked'); END;
CREATE TRIGGER bearer_counts BEFORE UPDATE ON bearer
    WHEN NEW.changes IS NOT OLD.changes + 1
    BEGIN SELECT raise(ABORT, 'changes of a bearer are counted'); END;
CREATE TRIGGER bearer_is_kept BEFORE DELETE ON bearer
    WHEN OLD.nonce > (SELECT swept FROM bearer_mark)
    BEGIN SELECT raise(ABORT, 'bearers are removed in their order, long after they expired'); END;
CREATE TRIGGER bearer_mark_is_kept BEFORE DELETE ON bearer_mark
    BEGIN SELECT raise(ABORT, 'the mark of bearers stays'); END;
CREATE TRIGGER bearer_mark_rises BEFORE UPDATE ON bearer_mark
    WHEN NEW.nonce < OLD.nonce OR NEW.swept < OLD.swept OR NEW.time < OLD.time
    BEGIN SELECT raise(ABORT, 'the mark of bearers never falls'); END;
"];

/// Where the steps lead to.
const KNOWN: i64 = STEPS.len() as i64;

/// Whether the tables are there and up to date. Refused if a newer hotcell has been here.
pub fn is_current(conn: &Connection) -> Result<bool, Error> {
    let is_there = "SELECT 1 FROM sqlite_schema WHERE name = 'bearer_schema'";
    Ok(conn.prepare_cached(is_there)?.exists([])? && version(conn)? == KNOWN)
}

fn version(conn: &Connection) -> Result<i64, Error> {
    let mut highest = conn.prepare_cached("SELECT max(version) FROM bearer_schema")?;
    let found = highest.query_row([], |row| row.get(0)).optional()?.flatten().unwrap_or(0);
    if found > KNOWN { Err(Error::Newer { found, known: KNOWN }) } else { Ok(found) }
}

/// Makes the tables, or brings them up to date. Refused if a newer hotcell has been here.
pub fn migrate(tx: &Transaction<'_>) -> Result<(), Error> {
    if is_current(tx)? {
        return Ok(());
    }
    tx.execute_batch("CREATE TABLE IF NOT EXISTS bearer_schema (version INTEGER NOT NULL) STRICT")?;
    let found = version(tx)?;
    for (version, step) in (1_i64..).zip(STEPS).filter(|(version, _)| *version > found) {
        tx.execute_batch(step)?;
        tx.execute("INSERT INTO bearer_schema (version) VALUES (?1)", [version])?;
    }
    Ok(())
}
