//! The tables. What an item is about never changes, states follow each other in one way, and a call
//! without an end is the only one with its secrets: the database refuses the rest, whoever writes.

use rusqlite::{Connection, OptionalExtension, Transaction};

use crate::error::Error;

/// Each step once, in this order. What is released is not changed; a change is another step.
const STEPS: &[&str] = &["
CREATE TABLE review (
    seq           INTEGER PRIMARY KEY CHECK (seq > 0),
    id            BLOB NOT NULL UNIQUE CHECK (length(id) = 5),
    kind          TEXT NOT NULL,
    tenant        TEXT NOT NULL,
    subject       TEXT NOT NULL,
    door          TEXT NOT NULL,
    call_id       BLOB NOT NULL CHECK (length(call_id) = 16),
    tool          TEXT NOT NULL,
    operation     TEXT NOT NULL,
    shown         TEXT NOT NULL,
    call_digest   BLOB NOT NULL CHECK (length(call_digest) = 32),
    policy_digest BLOB NOT NULL CHECK (length(policy_digest) = 32),
    rules         TEXT NOT NULL,
    bearer        TEXT,
    asked         INTEGER NOT NULL,
    expires       INTEGER NOT NULL CHECK (expires > asked),
    state         TEXT NOT NULL,
    -- As it is carried out, with its secrets.
    call          BLOB,
    -- The answer, as it was signed.
    verdict       TEXT,
    approver      TEXT,
    approver_name TEXT,
    reason        TEXT,
    answered      INTEGER,
    grant_expires INTEGER,
    signature     BLOB CHECK (length(signature) = 64),
    -- When the grant was taken, and for which call.
    used          INTEGER,
    used_by       BLOB CHECK (length(used_by) = 16),
    ended         INTEGER,
    result        TEXT,
    CHECK ((state IN ('waiting', 'approved')) = (call IS NOT NULL)),
    CHECK ((state IN ('waiting', 'approved')) = (ended IS NULL)),
    CHECK ((state = 'carried_out') = (used IS NOT NULL)),
    CHECK (state = 'carried_out' OR result IS NULL)
) STRICT;
CREATE INDEX review_by_tenant ON review (tenant, state, seq);
CREATE INDEX review_open ON review (call_digest) WHERE ended IS NULL;

CREATE TRIGGER review_is_fixed BEFORE UPDATE OF seq, id, kind, tenant, subject, door, call_id, tool,
    operation, shown, call_digest, policy_digest, rules, bearer, asked, expires ON review
BEGIN SELECT raise(ABORT, 'what an item is about stays'); END;
CREATE TRIGGER review_goes_on BEFORE UPDATE OF state ON review
WHEN NOT (
    OLD.state = 'waiting' AND NEW.state IN ('approved', 'rejected', 'expired', 'cancelled')
    OR OLD.state = 'approved' AND NEW.state IN ('carried_out', 'expired', 'cancelled'))
BEGIN SELECT raise(ABORT, 'an item goes on in one way'); END;
CREATE TRIGGER review_answer_stays BEFORE UPDATE OF verdict, approver, approver_name, reason, answered,
    grant_expires, signature ON review WHEN OLD.signature IS NOT NULL
BEGIN SELECT raise(ABORT, 'an answer stays'); END;
CREATE TRIGGER review_use_stays BEFORE UPDATE OF used, used_by, ended, result ON review
WHEN OLD.ended IS NOT NULL AND (OLD.result IS NOT NULL OR NEW.used IS NOT OLD.used
    OR NEW.used_by IS NOT OLD.used_by OR NEW.ended IS NOT OLD.ended)
BEGIN SELECT raise(ABORT, 'what was used stays used'); END;
CREATE TRIGGER review_remains BEFORE DELETE ON review WHEN OLD.ended IS NULL
BEGIN SELECT raise(ABORT, 'an item that is open remains'); END;

-- The latest time that was seen.
CREATE TABLE review_clock (
    one    INTEGER PRIMARY KEY CHECK (one = 1),
    latest INTEGER NOT NULL
) STRICT;
CREATE TRIGGER review_clock_goes_forward BEFORE UPDATE ON review_clock WHEN NEW.latest < OLD.latest
BEGIN SELECT raise(ABORT, 'time does not run back'); END;
CREATE TRIGGER review_clock_remains BEFORE DELETE ON review_clock
BEGIN SELECT raise(ABORT, 'time does not run back'); END;
", "
CREATE TABLE policy_version (
    number     INTEGER PRIMARY KEY CHECK (number > 0),
    digest     BLOB NOT NULL CHECK (length(digest) = 32),
    text       TEXT NOT NULL,
    -- An object: names and sources.
    extensions TEXT NOT NULL,
    signature  TEXT NOT NULL
) STRICT;
CREATE TRIGGER policy_version_follows BEFORE INSERT ON policy_version
WHEN NEW.number IS NOT 1 + coalesce((SELECT max(number) FROM policy_version), 0)
BEGIN SELECT raise(ABORT, 'a version of the policy follows the last one'); END;
CREATE TRIGGER policy_version_stays BEFORE UPDATE ON policy_version
BEGIN SELECT raise(ABORT, 'a version of the policy stays as it is'); END;
CREATE TRIGGER policy_version_remains BEFORE DELETE ON policy_version
BEGIN SELECT raise(ABORT, 'a version of the policy remains'); END;
", "
-- Where the work of each session is.
CREATE TABLE workflow (
    tenant  TEXT NOT NULL,
    subject TEXT NOT NULL,
    mode    TEXT NOT NULL,
    state   TEXT NOT NULL,
    number  INTEGER NOT NULL CHECK (number > 0),
    PRIMARY KEY (tenant, subject)
) STRICT, WITHOUT ROWID;
CREATE TRIGGER workflow_counts BEFORE UPDATE ON workflow WHEN NEW.number IS NOT OLD.number + 1
BEGIN SELECT raise(ABORT, 'changes of a workflow are counted'); END;
CREATE TRIGGER workflow_remains BEFORE DELETE ON workflow
BEGIN SELECT raise(ABORT, 'a workflow remains'); END;
"];

/// Where the steps lead to.
const KNOWN: i64 = STEPS.len() as i64;

/// Whether the tables are there and up to date. Refused if a newer hotcell has been here.
pub fn is_current(conn: &Connection) -> Result<bool, Error> {
    let is_there = "SELECT 1 FROM sqlite_schema WHERE name = 'review_schema'";
    Ok(conn.prepare_cached(is_there)?.exists([])? && version(conn)? == KNOWN)
}

fn version(conn: &Connection) -> Result<i64, Error> {
    let mut highest = conn.prepare_cached("SELECT max(version) FROM review_schema")?;
    let found = highest.query_row([], |row| row.get(0)).optional()?.flatten().unwrap_or(0);
    if found > KNOWN { Err(Error::Newer { found, known: KNOWN }) } else { Ok(found) }
}

/// Makes the tables, or brings them up to date. Refused if a newer hotcell has been here.
pub fn migrate(tx: &Transaction<'_>) -> Result<(), Error> {
    tx.execute_batch("CREATE TABLE IF NOT EXISTS review_schema (version INTEGER NOT NULL) STRICT")?;
    let found = version(tx)?;
    for (version, step) in (1_i64..).zip(STEPS).filter(|(version, _)| *version > found) {
        tx.execute_batch(step)?;
        tx.execute("INSERT INTO review_schema (version) VALUES (?1)", [version])?;
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
        tx.execute("INSERT INTO review_schema VALUES (?1)", [KNOWN + 1]).unwrap();
        assert!(matches!(is_current(&tx), Err(Error::Newer { .. })));
        assert!(matches!(migrate(&tx), Err(Error::Newer { .. })));
    }
}
