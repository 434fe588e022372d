//! The tables. Rows are only ever added: triggers refuse the rest, and [`verify`](crate::verify) finds
//! what goes round them.

use rusqlite::{Connection, OptionalExtension, Transaction};

use crate::error::Error;

/// Each step once, in this order. What is released is not changed; a change is another step.
const STEPS: &[&str] = &["
CREATE TABLE artifact (
    seq      INTEGER PRIMARY KEY CHECK (seq > 0),
    id       BLOB NOT NULL UNIQUE CHECK (length(id) = 16),
    tenant   TEXT NOT NULL,
    subject  TEXT NOT NULL,
    name     TEXT NOT NULL,
    version  INTEGER NOT NULL CHECK (version > 0),
    digest   BLOB NOT NULL CHECK (length(digest) = 32),
    size     INTEGER NOT NULL CHECK (size >= 0),
    media    TEXT NOT NULL,
    type     TEXT NOT NULL,
    role     TEXT NOT NULL,
    created  INTEGER NOT NULL,
    call     BLOB NOT NULL CHECK (length(call) = 16),
    tool     TEXT,
    UNIQUE (tenant, name, version)
) STRICT;
CREATE INDEX artifact_by_tenant ON artifact (tenant, seq);
CREATE INDEX artifact_by_call ON artifact (call);
CREATE INDEX artifact_by_content ON artifact (digest, size);

-- What an artifact came from. No target at all means that it is unknown.
CREATE TABLE artifact_edge (
    source      BLOB NOT NULL REFERENCES artifact (id),
    place       INTEGER NOT NULL,
    relation    TEXT NOT NULL,
    to_artifact BLOB REFERENCES artifact (id),
    to_call     BLOB CHECK (length(to_call) = 16),
    to_text     TEXT,
    PRIMARY KEY (source, place),
    CHECK ((to_artifact IS NOT NULL) + (to_call IS NOT NULL) + (to_text IS NOT NULL) <= 1)
) STRICT, WITHOUT ROWID;
CREATE INDEX artifact_edge_by_target ON artifact_edge (to_artifact) WHERE to_artifact IS NOT NULL;

CREATE TABLE artifact_tag (
    seq      INTEGER PRIMARY KEY CHECK (seq > 0),
    artifact BLOB NOT NULL REFERENCES artifact (id),
    tag      TEXT NOT NULL,
    is_set   INTEGER NOT NULL CHECK (is_set IN (0, 1)),
    by       TEXT NOT NULL,
    time     INTEGER NOT NULL
) STRICT;
CREATE INDEX artifact_tag_by_artifact ON artifact_tag (artifact, tag, seq);
CREATE INDEX artifact_tag_by_tag ON artifact_tag (tag);
CREATE VIEW artifact_tag_now AS
    SELECT artifact, tag FROM artifact_tag AS one WHERE is_set = 1 AND seq = (
        SELECT max(seq) FROM artifact_tag WHERE artifact = one.artifact AND tag = one.tag);

CREATE TABLE artifact_verdict (
    seq      INTEGER PRIMARY KEY CHECK (seq > 0),
    artifact BLOB NOT NULL REFERENCES artifact (id),
    aspect   TEXT NOT NULL,
    ruling   TEXT NOT NULL,
    by       TEXT NOT NULL,
    note     TEXT,
    time     INTEGER NOT NULL
) STRICT;
CREATE INDEX artifact_verdict_by_artifact ON artifact_verdict (artifact, aspect, seq);
CREATE VIEW artifact_verdict_now AS
    SELECT * FROM artifact_verdict AS one WHERE seq = (
        SELECT max(seq) FROM artifact_verdict WHERE artifact = one.artifact AND aspect = one.aspect);

CREATE TRIGGER artifact_is_kept BEFORE DELETE ON artifact
    BEGIN SELECT raise(ABORT, 'rows of the artifact ledger are never removed'); END;
CREATE TRIGGER artifact_is_fixed BEFORE UPDATE ON artifact
    BEGIN SELECT raise(ABORT, 'rows of the artifact ledger are never changed'); END;
CREATE TRIGGER artifact_edge_is_kept BEFORE DELETE ON artifact_edge
    BEGIN SELECT raise(ABORT, 'rows of the artifact ledger are never removed'); END;
CREATE TRIGGER artifact_edge_is_fixed BEFORE UPDATE ON artifact_edge
    BEGIN SELECT raise(ABORT, 'rows of the artifact ledger are never changed'); END;
CREATE TRIGGER artifact_tag_is_kept BEFORE DELETE ON artifact_tag
    BEGIN SELECT raise(ABORT, 'rows of the artifact ledger are never removed'); END;
CREATE TRIGGER artifact_tag_is_fixed BEFORE UPDATE ON artifact_tag
    BEGIN SELECT raise(ABORT, 'rows of the artifact ledger are never changed'); END;
CREATE TRIGGER artifact_verdict_is_kept BEFORE DELETE ON artifact_verdict
    BEGIN SELECT raise(ABORT, 'rows of the artifact ledger are never removed'); END;
CREATE TRIGGER artifact_verdict_is_fixed BEFORE UPDATE ON artifact_verdict
    BEGIN SELECT raise(ABORT, 'rows of the artifact ledger are never changed'); END;
",
"
-- Small contents. Written with the first row that refers to them, so that there is none without a row.
CREATE TABLE artifact_content (
    digest BLOB PRIMARY KEY CHECK (length(digest) = 32),
    bytes  BLOB NOT NULL
) STRICT;
CREATE TRIGGER artifact_content_is_kept BEFORE DELETE ON artifact_content
    WHEN EXISTS (SELECT 1 FROM artifact WHERE digest = OLD.digest)
    BEGIN SELECT raise(ABORT, 'contents that rows refer to are never removed'); END;

-- 0 if the content was too much to keep: the row has its digest and its size all the same.
ALTER TABLE artifact ADD COLUMN is_kept INTEGER NOT NULL DEFAULT 1 CHECK (is_kept IN (0, 1));
",
"
-- Contents that were removed to make room, many at a time: those of all rows up to `upto`. One that is
-- registered again later is there again.
CREATE TABLE artifact_pruning (
    seq  INTEGER PRIMARY KEY CHECK (seq > 0),
    by   TEXT NOT NULL,
    time INTEGER NOT NULL
) STRICT;
CREATE TABLE artifact_pruned (
    pruning INTEGER NOT NULL REFERENCES artifact_pruning (seq),
    place   INTEGER NOT NULL,
    digest  BLOB NOT NULL CHECK (length(digest) = 32),
    size    INTEGER NOT NULL CHECK (size >= 0),
    upto    INTEGER NOT NULL CHECK (upto > 0),
    PRIMARY KEY (pruning, place)
) STRICT, WITHOUT ROWID;
CREATE INDEX artifact_pruned_by_content ON artifact_pruned (digest, upto);

-- The rows whose contents have to be there.
CREATE VIEW artifact_wanted AS SELECT seq, id, tenant, digest, size, created FROM artifact
    WHERE is_kept = 1 AND seq > coalesce(
        (SELECT max(upto) FROM artifact_pruned WHERE artifact_pruned.digest = artifact.digest), 0);

DROP TRIGGER artifact_content_is_kept;
CREATE TRIGGER artifact_content_is_kept BEFORE DELETE ON artifact_content
    WHEN EXISTS (SELECT 1 FROM artifact_wanted WHERE digest = OLD.digest)
    BEGIN SELECT raise(ABORT, 'contents that rows refer to are never removed'); END;
CREATE TRIGGER artifact_pruning_is_kept BEFORE DELETE ON artifact_pruning
    BEGIN SELECT raise(ABORT, 'rows of the artifact ledger are never removed'); END;
CREATE TRIGGER artifact_pruning_is_fixed BEFORE UPDATE ON artifact_pruning
    BEGIN SELECT raise(ABORT, 'rows of the artifact ledger are never changed'); END;
CREATE TRIGGER artifact_pruned_is_kept BEFORE DELETE ON artifact_pruned
    BEGIN SELECT raise(ABORT, 'rows of the artifact ledger are never removed'); END;
CREATE TRIGGER artifact_pruned_is_fixed BEFORE UPDATE ON artifact_pruned
    BEGIN SELECT raise(ABORT, 'rows of the artifact ledger are never changed'); END;
"];

/// Where the steps lead to.
const KNOWN: i64 = STEPS.len() as i64;

/// Whether the tables are there and up to date. Refused if a newer hotcell has been here.
pub fn is_current(conn: &Connection) -> Result<bool, Error> {
    let is_there = "SELECT 1 FROM sqlite_schema WHERE name = 'artifact_schema'";
    Ok(conn.prepare_cached(is_there)?.exists([])? && version(conn)? == KNOWN)
}

fn version(conn: &Connection) -> Result<i64, Error> {
    let mut highest = conn.prepare_cached("SELECT max(version) FROM artifact_schema")?;
    let found = highest.query_row([], |row| row.get(0)).optional()?.flatten().unwrap_or(0);
    if found > KNOWN { Err(Error::Newer { found, known: KNOWN }) } else { Ok(found) }
}

/// Makes the tables, or brings them up to date. Refused if a newer hotcell has been here.
pub fn migrate(tx: &Transaction<'_>) -> Result<(), Error> {
    if is_current(tx)? {
        return Ok(());
    }
    tx.execute_batch(
        "CREATE TABLE IF NOT EXISTS artifact_schema (version INTEGER NOT NULL) STRICT",
    )?;
    let found = version(tx)?;
    for (version, step) in (1_i64..).zip(STEPS).filter(|(version, _)| *version > found) {
        tx.execute_batch(step)?;
        tx.execute("INSERT INTO artifact_schema (version) VALUES (?1)", [version])?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Filter, Page, list};

    /// Rows of an older hotcell stay what they were.
    #[test]
    fn every_step_can_be_the_last_one_so_far() {
        for taken in 0..=STEPS.len() {
            let mut conn = Connection::open_in_memory().unwrap();
            let tx = conn.transaction().unwrap();
            for (version, step) in (1_i64..).zip(&STEPS[..taken]) {
                tx.execute_batch(step).unwrap();
                tx.execute_batch(
                    "CREATE TABLE IF NOT EXISTS artifact_schema (version INTEGER) STRICT",
                )
                .unwrap();
                tx.execute("INSERT INTO artifact_schema VALUES (?1)", [version]).unwrap();
            }
            let row = "INSERT INTO artifact (seq, id, tenant, subject, name, version, digest, size,
                    media, type, role, created, call)
                VALUES (1, zeroblob(16), 'local', 'a', 'a', 1, zeroblob(32), 3, 'text/plain', 'data',
                    'file', 0, zeroblob(16))";
            assert_eq!(tx.execute_batch(row).is_ok(), taken > 0);
            assert_eq!(is_current(&tx).unwrap(), taken == STEPS.len());
            migrate(&tx).unwrap();
            migrate(&tx).unwrap();
            assert!(is_current(&tx).unwrap());
            let rows = list(&tx, &Filter::of(hotcell_types::Name::LOCAL), Page::first(9)).unwrap();
            assert!(rows.len() == usize::from(taken > 0) && rows.iter().all(|row| row.is_kept));
            tx.execute("INSERT INTO artifact_schema VALUES (?1)", [KNOWN + 1]).unwrap();
            assert!(is_current(&tx).is_err() && migrate(&tx).is_err());
        }
    }
}
