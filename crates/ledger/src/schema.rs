//! The tables. Rows are only ever added: triggers refuse the rest, and [`verify`](crate::verify) finds
//! what goes round them.

use rusqlite::{OptionalExtension, Transaction};

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
"];

/// Makes the tables, or brings them up to date. Refused if a newer hotcell has been here.
pub fn migrate(tx: &Transaction<'_>) -> Result<(), Error> {
    tx.execute_batch(
        "CREATE TABLE IF NOT EXISTS artifact_schema (version INTEGER NOT NULL) STRICT",
    )?;
    let found = tx
        .query_row("SELECT max(version) FROM artifact_schema", [], |row| row.get(0))
        .optional()?
        .flatten()
        .unwrap_or(0_i64);
    let known = i64::try_from(STEPS.len()).unwrap_or(i64::MAX);
    if found > known {
        return Err(Error::Newer { found, known });
    }
    for (version, step) in (1_i64..).zip(STEPS).filter(|(version, _)| *version > found) {
        tx.execute_batch(step)?;
        tx.execute("INSERT INTO artifact_schema (version) VALUES (?1)", [version])?;
    }
    Ok(())
}
