//! What is added to the ledger. Each addition gives the row and a [`Statement`] about it, which belongs
//! into the chain in the same transaction.

use hotcell_types::{CallId, Name};
use rusqlite::{Transaction, params};

use crate::digest::Blob;
use crate::error::{Error, StoreError};
use crate::line::{ArtifactName, Note, Tag, ToolName};
use crate::rows::{Artifact, ArtifactId, Edge, Tagging, Target, Verdict};
use crate::statement::Statement;
use crate::store::Stored;
use crate::words::{Aspect, Media, Relation, Role, Ruling, Type};
use crate::{dir, query};

/// Most edges of an artifact, tags that it has at one time, and times that it is tagged or judged.
pub const MAX_EDGES: usize = 256;
pub const MAX_TAGS: usize = 64;
pub const MAX_CHANGES: usize = 4096;

/// Who does something, for whom, and when.
#[derive(Debug, Clone)]
pub struct By {
    pub tenant: Name,
    pub subject: Name,
    /// Nanoseconds since 1970. Kept as it is, also if the clock was wrong.
    pub time: i64,
}

/// What is known of an artifact besides its content.
#[derive(Debug, Clone)]
pub struct NewArtifact {
    pub by: By,
    pub call: CallId,
    pub tool: Option<ToolName>,
    pub name: ArtifactName,
    pub kind: Type,
    pub role: Role,
    /// What it came from. Where that is not known, say so with [`Edge::unknown_input`].
    pub edges: Vec<Edge>,
}

/// Registers a content under a name, as the next version of that name. An edge leads only to artifacts
/// of the same tenant that are there already, so that there can be no circle.
pub fn add(
    tx: &Transaction<'_>,
    content: &Stored,
    new: NewArtifact,
) -> Result<(Artifact, Statement), Error> {
    if let Some(bytes) = content.bytes() {
        // One that somebody has damaged is replaced.
        tx.prepare_cached(
            "INSERT INTO artifact_content (digest, bytes) VALUES (?1, ?2)
             ON CONFLICT (digest) DO UPDATE SET bytes = excluded.bytes
             WHERE bytes IS NOT excluded.bytes",
        )?
        .execute(params![content.blob().digest, bytes])?;
    }
    insert(tx, content.blob(), content.media(), true, new)
}

/// Registers what was too much to keep: all that remains of it is its digest and its size.
pub fn add_unkept(
    tx: &Transaction<'_>,
    content: Blob,
    new: NewArtifact,
) -> Result<(Artifact, Statement), Error> {
    insert(tx, content, Media::Unknown, false, new)
}

/// Makes an old version of a name its newest, with an edge to the old one.
pub fn rollback(
    tx: &Transaction<'_>,
    by: By,
    call: CallId,
    name: &ArtifactName,
    to_version: u64,
) -> Result<(Artifact, Statement), Error> {
    let old = query::version(tx, &by.tenant, name, to_version)?
        .ok_or_else(|| Error::NoVersion { name: name.to_string(), version: to_version })?;
    let edges = vec![Edge::new(Relation::DerivedFrom, Target::Artifact(old.id))];
    let (name, kind, role) = (old.name, old.kind, old.role);
    let new = NewArtifact { by, call, tool: None, name, kind, role, edges };
    // What was pruned since does not come back by being named.
    let is_kept = old.is_kept && query::is_referenced(tx, &old.blob.digest)?;
    insert(tx, old.blob, old.media, is_kept, new)
}

/// Sets a tag; `None` if it is set.
pub fn tag(
    tx: &Transaction<'_>,
    by: &By,
    artifact: ArtifactId,
    tag: Tag,
) -> Result<Option<(Tagging, Statement)>, Error> {
    set_tag(tx, by, artifact, tag, true)
}

/// Lifts a tag; `None` if it is not set.
pub fn untag(
    tx: &Transaction<'_>,
    by: &By,
    artifact: ArtifactId,
    tag: Tag,
) -> Result<Option<(Tagging, Statement)>, Error> {
    set_tag(tx, by, artifact, tag, false)
}

/// Says what somebody thinks of an artifact. What was said before remains.
pub fn judge(
    tx: &Transaction<'_>,
    by: &By,
    artifact: ArtifactId,
    aspect: Aspect,
    ruling: Ruling,
    note: Option<Note>,
) -> Result<(Verdict, Statement), Error> {
    query::artifact(tx, &by.tenant, artifact)?.ok_or(Error::NoArtifact(artifact))?;
    at_most(tx, "artifact_verdict", artifact, "verdicts")?;
    let seq = next(tx, "SELECT max(seq) FROM artifact_verdict")?;
    let (by, time) = (by.subject.clone(), by.time);
    let verdict = Verdict { seq, artifact, aspect, ruling, by, note, time };
    tx.prepare_cached(
        "INSERT INTO artifact_verdict (seq, artifact, aspect, ruling, by, note, time)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
    )?
    .execute(params![
        signed(seq)?,
        artifact,
        aspect,
        ruling,
        verdict.by.as_str(),
        verdict.note,
        time
    ])?;
    let statement = Statement::of_verdict(&verdict);
    Ok((verdict, statement))
}

fn insert(
    tx: &Transaction<'_>,
    blob: Blob,
    media: Media,
    is_kept: bool,
    new: NewArtifact,
) -> Result<(Artifact, Statement), Error> {
    if new.edges.len() > MAX_EDGES {
        return Err(Error::TooMany { what: "edges", most: MAX_EDGES });
    }
    let NewArtifact { by, call, tool, name, kind, role, edges } = new;
    let artifact = Artifact {
        seq: next(tx, "SELECT max(seq) FROM artifact")?,
        id: new_id(by.time)?,
        version: next_version(tx, &by.tenant, &name)?,
        tenant: by.tenant,
        subject: by.subject,
        name,
        blob,
        is_kept,
        media,
        kind,
        role,
        created: by.time,
        call,
        tool,
    };
    for edge in &edges {
        if let Target::Artifact(id) = edge.to {
            query::artifact(tx, &artifact.tenant, id)?.ok_or(Error::NoArtifact(id))?;
        }
    }
    write_artifact(tx, &artifact)?;
    for (place, edge) in (0_i64..).zip(&edges) {
        write_edge(tx, artifact.id, place, edge)?;
    }
    let statement = Statement::of_artifact(&artifact, &edges);
    Ok((artifact, statement))
}

fn write_artifact(tx: &Transaction<'_>, artifact: &Artifact) -> Result<(), Error> {
    tx.prepare_cached(
        "INSERT INTO artifact (seq, id, tenant, subject, name, version, digest, size, media, type,
                               role, created, call, tool, is_kept)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)",
    )?
    .execute(params![
        signed(artifact.seq)?,
        artifact.id,
        artifact.tenant.as_str(),
        artifact.subject.as_str(),
        artifact.name,
        signed(artifact.version)?,
        artifact.blob.digest,
        signed(artifact.blob.size)?,
        artifact.media,
        artifact.kind,
        artifact.role,
        artifact.created,
        artifact.call.to_bytes(),
        artifact.tool,
        artifact.is_kept,
    ])?;
    Ok(())
}

fn write_edge(
    tx: &Transaction<'_>,
    source: ArtifactId,
    place: i64,
    edge: &Edge,
) -> Result<(), Error> {
    let (mut artifact, mut call, mut text) = (None, None, None);
    match &edge.to {
        Target::Artifact(id) => artifact = Some(id),
        Target::Call(id) => call = Some(id.to_bytes()),
        Target::Text(source) => text = Some(source),
        Target::Unknown => {}
    }
    tx.prepare_cached(
        "INSERT INTO artifact_edge (source, place, relation, to_artifact, to_call, to_text)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    )?
    .execute(params![source, place, edge.relation, artifact, call, text])?;
    Ok(())
}

fn set_tag(
    tx: &Transaction<'_>,
    by: &By,
    artifact: ArtifactId,
    tag: Tag,
    is_set: bool,
) -> Result<Option<(Tagging, Statement)>, Error> {
    query::artifact(tx, &by.tenant, artifact)?.ok_or(Error::NoArtifact(artifact))?;
    let tags = query::tags(tx, artifact)?;
    if tags.contains(&tag) == is_set {
        return Ok(None);
    }
    if is_set && tags.len() >= MAX_TAGS {
        return Err(Error::TooMany { what: "tags", most: MAX_TAGS });
    }
    at_most(tx, "artifact_tag", artifact, "changes of tags")?;
    let seq = next(tx, "SELECT max(seq) FROM artifact_tag")?;
    let tagging = Tagging { seq, artifact, tag, is_set, by: by.subject.clone(), time: by.time };
    tx.prepare_cached(
        "INSERT INTO artifact_tag (seq, artifact, tag, is_set, by, time)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    )?
    .execute(params![
        signed(seq)?,
        artifact,
        tagging.tag,
        is_set,
        tagging.by.as_str(),
        tagging.time
    ])?;
    let statement = Statement::of_tagging(&tagging);
    Ok(Some((tagging, statement)))
}

/// Rows about one artifact have a maximum, too.
fn at_most(
    tx: &Transaction<'_>,
    table: &str,
    artifact: ArtifactId,
    what: &'static str,
) -> Result<(), Error> {
    let sql = format!("SELECT count(*) FROM {table} WHERE artifact = ?1");
    let rows: i64 = tx.prepare_cached(&sql)?.query_row([artifact], |row| row.get(0))?;
    if usize::try_from(rows).is_ok_and(|rows| rows < MAX_CHANGES) {
        return Ok(());
    }
    Err(Error::TooMany { what, most: MAX_CHANGES })
}

pub(crate) fn next(tx: &Transaction<'_>, highest: &str) -> Result<u64, Error> {
    let highest = tx.prepare_cached(highest)?.query_row([], |row| row.get(0))?;
    one_more(highest)
}

fn next_version(tx: &Transaction<'_>, tenant: &Name, name: &ArtifactName) -> Result<u64, Error> {
    let highest = tx
        .prepare_cached("SELECT max(version) FROM artifact WHERE tenant = ?1 AND name = ?2")?
        .query_row(params![tenant.as_str(), name], |row| row.get(0))?;
    one_more(highest)
}

fn one_more(highest: Option<i64>) -> Result<u64, Error> {
    let number = highest.unwrap_or(0).checked_add(1).ok_or(Error::TooLarge)?;
    u64::try_from(number).map_err(|_| Error::TooLarge)
}

/// As a column can hold it.
pub(crate) fn signed(number: u64) -> Result<i64, Error> {
    i64::try_from(number).map_err(|_| Error::TooLarge)
}

fn new_id(time: i64) -> Result<ArtifactId, Error> {
    let chance = dir::random().map_err(StoreError::io("make an id"))?;
    let millis = u64::try_from(time / 1_000_000).unwrap_or(0);
    Ok(ArtifactId(CallId::new(millis, chance)))
}
