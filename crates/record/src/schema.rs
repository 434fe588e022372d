//! The tables, as steps from an empty database to today's. A step never changes once it is released;
//! new ones go to the end.

use rusqlite::{Connection, Transaction, TransactionBehavior};

/// Each is one transaction, together with its number in `user_version`.
pub(crate) const STEPS: &[&str] = &[EVENTS, CHECKPOINTS, SMALL, PARENTS];

/// Where `STEPS` lead to.
pub(crate) const VERSION: i64 = STEPS.len() as i64;

/// In the header of the file: `hotc`.
pub(crate) const APPLICATION_ID: i64 = 0x686f_7463;

/// An event goes to the end of the chain or nowhere, whoever writes it, and stays as it is. There is no
/// index over hashes: their places are random, and a batch would write a page for each of them. The
/// trigger demands more than uniqueness, and looks at the last page only.
const EVENTS: &str = "
CREATE TABLE meta (name TEXT PRIMARY KEY, value BLOB NOT NULL) STRICT, WITHOUT ROWID;
CREATE TRIGGER meta_stays BEFORE UPDATE ON meta
BEGIN SELECT RAISE(ABORT, 'what a home is stays'); END;
CREATE TRIGGER meta_remains BEFORE DELETE ON meta
BEGIN SELECT RAISE(ABORT, 'what a home is stays'); END;

CREATE TABLE event (
    seq INTEGER PRIMARY KEY,
    version INTEGER NOT NULL,
    id BLOB NOT NULL,
    time INTEGER NOT NULL,
    kind TEXT NOT NULL,
    call BLOB,
    parent BLOB,
    operation TEXT,
    tool TEXT,
    tenant TEXT NOT NULL,
    subject TEXT NOT NULL,
    door TEXT NOT NULL,
    mode TEXT,
    state TEXT,
    decision TEXT,
    rules BLOB NOT NULL,
    bearer TEXT,
    reason TEXT,
    status TEXT,
    input_digest BLOB,
    input_length INTEGER,
    input_head BLOB,
    input_media TEXT,
    output_digest BLOB,
    output_length INTEGER,
    output_head BLOB,
    output_media TEXT,
    duration_ns INTEGER,
    sandbox TEXT,
    request TEXT,
    owner BLOB NOT NULL,
    prev BLOB NOT NULL,
    hash BLOB NOT NULL
) STRICT;
CREATE INDEX event_tenant ON event (tenant);
-- A call is begun once and ends once; what else is said about it does not matter.
CREATE UNIQUE INDEX event_call ON event (call, CASE kind
    WHEN 'intent' THEN 0 WHEN 'outcome' THEN -1 WHEN 'recovered' THEN -1 ELSE seq END)
    WHERE call IS NOT NULL;
CREATE TRIGGER event_extends BEFORE INSERT ON event
WHEN NEW.seq IS NOT 1 + coalesce((SELECT max(seq) FROM event), 0)
    OR NEW.prev IS NOT coalesce((SELECT hash FROM event WHERE seq = NEW.seq - 1),
        (SELECT value FROM meta WHERE name = 'genesis'))
BEGIN SELECT RAISE(ABORT, 'an event goes to the end of the chain'); END;
CREATE TRIGGER event_stays BEFORE UPDATE ON event
BEGIN SELECT RAISE(ABORT, 'an event stays as it is'); END;
CREATE TRIGGER event_remains BEFORE DELETE ON event
BEGIN SELECT RAISE(ABORT, 'an event stays'); END;

-- Intents without an end: what follows from the events, kept so that recovery need not read them all.
CREATE TABLE unfinished (
    call BLOB PRIMARY KEY,
    seq INTEGER NOT NULL,
    owner BLOB NOT NULL
) STRICT, WITHOUT ROWID;

-- What payloads say, as far as it is kept. The chain has their digests.
CREATE TABLE payload (
    digest BLOB PRIMARY KEY,
    seq INTEGER NOT NULL,
    time INTEGER NOT NULL,
    content BLOB NOT NULL
) STRICT;
CREATE INDEX payload_seq ON payload (seq);
";

const CHECKPOINTS: &str = "
CREATE TABLE checkpoint (
    number INTEGER PRIMARY KEY,
    seq INTEGER NOT NULL,
    line TEXT NOT NULL,
    is_sunk INTEGER NOT NULL
) STRICT;
CREATE INDEX checkpoint_seq ON checkpoint (seq);
CREATE INDEX checkpoint_waits ON checkpoint (number) WHERE is_sunk = 0;
CREATE TRIGGER checkpoint_stays BEFORE UPDATE OF number, seq, line ON checkpoint
BEGIN SELECT RAISE(ABORT, 'a checkpoint stays as it is'); END;
CREATE TRIGGER checkpoint_remains BEFORE DELETE ON checkpoint
BEGIN SELECT RAISE(ABORT, 'a checkpoint stays'); END;
";

/// Small contents lie beside their events, in their order: whoever writes many of them writes the last page,
/// and not a page for each digest. A trigger that fails needs no copy of every page to go back to, as one
/// that aborts does; before the insertion of one event, both leave nothing of it.
const SMALL: &str = "
CREATE TABLE small (
    seq INTEGER PRIMARY KEY,
    time INTEGER NOT NULL,
    input BLOB,
    output BLOB
) STRICT;
DROP TRIGGER event_extends;
CREATE TRIGGER event_extends BEFORE INSERT ON event
WHEN NEW.seq IS NOT 1 + coalesce((SELECT max(seq) FROM event), 0)
    OR NEW.prev IS NOT coalesce((SELECT hash FROM event WHERE seq = NEW.seq - 1),
        (SELECT value FROM meta WHERE name = 'genesis'))
BEGIN SELECT RAISE(FAIL, 'an event goes to the end of the chain'); END;
";

/// Calls by the one in which they were made. Most have none, and cost nothing.
const PARENTS: &str = "
CREATE INDEX IF NOT EXISTS event_parent ON event (parent) WHERE parent IS NOT NULL;
";

/// Takes the steps that are left. Another process may be doing the same.
pub(crate) fn migrate(connection: &Connection, steps: &[&str]) -> rusqlite::Result<()> {
    let goal = steps.len();
    while version(connection)? < goal {
        let tx = Transaction::new_unchecked(connection, TransactionBehavior::Immediate)?;
        let done = version(&tx)?;
        let Some(step) = steps.get(done) else { break };
        tx.execute_batch(step)?;
        tx.pragma_update(None, "user_version", done as i64 + 1)?;
        tx.commit()?;
    }
    Ok(())
}

fn version(connection: &Connection) -> rusqlite::Result<usize> {
    let version: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    // A negative one was refused when the file was opened.
    Ok(usize::try_from(version).unwrap_or(usize::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_taken_whole_or_not_at_all_and_once() {
        let connection = Connection::open_in_memory().unwrap();
        let broken = ["CREATE TABLE a (x)", "CREATE TABLE b (x); INSERT INTO nothing VALUES (1)"];
        assert!(migrate(&connection, &broken).is_err());
        let tables = |c: &Connection| {
            c.query_row("SELECT group_concat(name) FROM sqlite_schema", [], |r| {
                r.get::<_, String>(0)
            })
        };
        assert_eq!((version(&connection), tables(&connection)), (Ok(1), Ok("a".into())));
        migrate(&connection, &["CREATE TABLE a (x)", "CREATE TABLE b (x)"]).unwrap();
        migrate(&connection, &["CREATE TABLE a (x)", "CREATE TABLE b (x)"]).unwrap();
        assert_eq!((version(&connection), tables(&connection)), (Ok(2), Ok("a,b".into())));
    }
}
