//! What is in the ledger. Every question is asked for one tenant, and what belongs to another is not
//! there.

use hotcell_types::{CallId, Name};
use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, Row, params, params_from_iter};

use crate::digest::Digest;
use crate::error::Error;
use crate::line::{ArtifactName, Search, Tag};
use crate::rows::{Artifact, ArtifactId, Edge, Verdict, unreadable};
use crate::statement::Statement;
use crate::words::{Aspect, Role, Ruling, Type};
use crate::write::MAX_EDGES;

/// Most artifacts of one answer.
pub const MAX_PAGE: usize = 1000;
/// Most words of a search that count.
const MAX_TERMS: usize = 8;

/// Which artifacts. Everything that is given has to hold.
#[derive(Debug, Clone)]
pub struct Filter {
    pub tenant: Name,
    pub subject: Option<Name>,
    pub name: Option<Named>,
    pub kind: Option<Type>,
    pub role: Option<Role>,
    /// That is set now.
    pub tag: Option<Tag>,
    /// That is the last one of its aspect.
    pub verdict: Option<(Aspect, Ruling)>,
    pub call: Option<CallId>,
    /// Created at this time or later.
    pub from: Option<i64>,
    /// Created before this time.
    pub until: Option<i64>,
}

#[derive(Debug, Clone)]
pub enum Named {
    Exactly(ArtifactName),
    Beginning(String),
}

/// Which part of the answer.
#[derive(Debug, Clone, Copy)]
pub struct Page {
    /// The last artifact of the page before.
    pub after: Option<ArtifactId>,
    /// At most [`MAX_PAGE`].
    pub limit: usize,
}

/// An artifact and everything that was said of it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Details {
    pub artifact: Artifact,
    pub edges: Vec<Edge>,
    /// Those that are set now, in their own order.
    pub tags: Vec<Tag>,
    /// All, the oldest first.
    pub verdicts: Vec<Verdict>,
}

/// How much a tenant has, for quotas.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    pub artifacts: u64,
    /// Of all artifacts together.
    pub bytes: u64,
    /// On disk: each content once.
    pub stored_bytes: u64,
}

impl Filter {
    /// Everything of a tenant.
    pub fn of(tenant: Name) -> Filter {
        Filter {
            tenant,
            subject: None,
            name: None,
            kind: None,
            role: None,
            tag: None,
            verdict: None,
            call: None,
            from: None,
            until: None,
        }
    }
}

impl Details {
    /// What the chain must say of the artifact, if nobody has changed its row or its edges.
    pub fn statement(&self) -> Statement {
        Statement::of_artifact(&self.artifact, &self.edges)
    }
}

impl Page {
    pub fn first(limit: usize) -> Page {
        Page { after: None, limit }
    }

    fn limit(self) -> i64 {
        self.limit.min(MAX_PAGE) as i64
    }
}

/// Artifacts, those that were registered last first.
pub fn list(conn: &Connection, filter: &Filter, page: Page) -> Result<Vec<Artifact>, Error> {
    let mut question = Question::of(&filter.tenant);
    question.narrow(filter);
    if let Some(after) = page.after {
        question.and(
            "artifact.seq < (SELECT seq FROM artifact WHERE id = ? AND tenant = ?)",
            [id(after.0), text(filter.tenant.as_str())],
        );
    }
    let sql = format!(
        "SELECT {} FROM artifact WHERE {} ORDER BY artifact.seq DESC LIMIT ?",
        Artifact::COLUMNS,
        question.sql
    );
    question.values.push(Value::Integer(page.limit()));
    all(conn, &sql, question.values)
}

/// All versions of a name, the newest first.
pub fn versions(
    conn: &Connection,
    tenant: &Name,
    name: &ArtifactName,
    page: Page,
) -> Result<Vec<Artifact>, Error> {
    let name = Some(Named::Exactly(name.clone()));
    list(conn, &Filter { name, ..Filter::of(tenant.clone()) }, page)
}

/// An artifact and everything that was said of it.
pub fn get(conn: &Connection, tenant: &Name, id: ArtifactId) -> Result<Option<Details>, Error> {
    let Some(artifact) = artifact(conn, tenant, id)? else { return Ok(None) };
    let (edges, tags, verdicts) = (edges(conn, id)?, tags(conn, id)?, verdicts(conn, id)?);
    Ok(Some(Details { artifact, edges, tags, verdicts }))
}

/// Artifacts that the filter lets through and in which every word of the text is found: in the name, a
/// tag, the tool or the media type. The best come first, and of equals those that were registered last.
/// Capital and small letters of ASCII are the same.
pub fn search(
    conn: &Connection,
    filter: &Filter,
    words: &Search,
    limit: usize,
) -> Result<Vec<Artifact>, Error> {
    let terms: Vec<String> =
        words.as_str().split_whitespace().take(MAX_TERMS).map(str::to_ascii_lowercase).collect();
    if terms.is_empty() {
        return Ok(Vec::new());
    }
    let scores: Vec<String> = (1..=terms.len()).map(score).collect();
    let each: Vec<String> = scores.iter().map(|score| format!("{score} > 0")).collect();
    let mut question = Question::of(&filter.tenant);
    question.narrow(filter);
    // What has no number of its own comes after those that have.
    let sql = format!(
        "SELECT {} FROM artifact WHERE {} AND {} ORDER BY {} DESC, seq DESC LIMIT ?",
        Artifact::COLUMNS,
        each.join(" AND "),
        question.sql,
        scores.join(" + "),
    );
    let mut values: Vec<Value> = terms.into_iter().map(Value::Text).collect();
    values.append(&mut question.values);
    values.push(Value::Integer(Page::first(limit).limit()));
    all(conn, &sql, values)
}

/// How well the word with this number fits. No part of the word is a pattern.
fn score(term: usize) -> String {
    format!(
        "CASE
           WHEN lower(name) = ?{term} THEN 5
           WHEN instr(lower(name), ?{term}) = 1 THEN 4
           WHEN EXISTS (SELECT 1 FROM artifact_tag_now
                        WHERE artifact = artifact.id AND lower(tag) = ?{term}) THEN 3
           WHEN instr(lower(name), ?{term}) > 0 THEN 2
           WHEN instr(lower(ifnull(tool, '')), ?{term}) > 0 OR instr(media, ?{term}) > 0
             OR EXISTS (SELECT 1 FROM artifact_tag_now
                        WHERE artifact = artifact.id AND instr(lower(tag), ?{term}) > 0) THEN 1
           ELSE 0
         END"
    )
}

/// How much a tenant has.
pub fn usage(conn: &Connection, tenant: &Name) -> Result<Usage, Error> {
    let mut statement = conn.prepare_cached(
        "SELECT count(*), ifnull(sum(size), 0), ifnull(
             (SELECT sum(size) FROM (SELECT DISTINCT digest, size FROM artifact_wanted
                               WHERE tenant = ?1)), 0)
         FROM artifact WHERE tenant = ?1",
    )?;
    let count = |row: &Row<'_>, at| row.get::<_, i64>(at).map(|n| u64::try_from(n).unwrap_or(0));
    Ok(statement.query_row([tenant.as_str()], |row| {
        Ok(Usage { artifacts: count(row, 0)?, bytes: count(row, 1)?, stored_bytes: count(row, 2)? })
    })?)
}

/// Whether any artifact of anybody has this content, and it was not pruned since: for
/// [`Store::sweep`](crate::Store::sweep), and for whoever wants to read it.
pub fn is_referenced(conn: &Connection, digest: &Digest) -> Result<bool, Error> {
    let sql = "SELECT 1 FROM artifact_wanted WHERE digest = ?1";
    Ok(conn.prepare_cached(sql)?.exists([digest])?)
}

pub(crate) fn artifact(
    conn: &Connection,
    tenant: &Name,
    id: ArtifactId,
) -> Result<Option<Artifact>, Error> {
    let sql = format!("SELECT {} FROM artifact WHERE id = ?1 AND tenant = ?2", Artifact::COLUMNS);
    let mut statement = conn.prepare_cached(&sql)?;
    Ok(statement.query_row(params![id, tenant.as_str()], Artifact::from_row).optional()?)
}

/// A version of a name, or its newest.
pub fn find(
    conn: &Connection,
    tenant: &Name,
    name: &ArtifactName,
    number: Option<u64>,
) -> Result<Option<Artifact>, Error> {
    match number {
        Some(number) => version(conn, tenant, name, number),
        None => Ok(versions(conn, tenant, name, Page::first(1))?.pop()),
    }
}

pub(crate) fn version(
    conn: &Connection,
    tenant: &Name,
    name: &ArtifactName,
    version: u64,
) -> Result<Option<Artifact>, Error> {
    let sql = format!(
        "SELECT {} FROM artifact WHERE tenant = ?1 AND name = ?2 AND version = ?3",
        Artifact::COLUMNS
    );
    let Ok(number) = i64::try_from(version) else { return Ok(None) };
    let mut statement = conn.prepare_cached(&sql)?;
    let values = params![tenant.as_str(), name, number];
    Ok(statement.query_row(values, Artifact::from_row).optional()?)
}

/// Of an artifact that the caller has found to be the tenant's, as the next two.
pub(crate) fn edges(conn: &Connection, id: ArtifactId) -> Result<Vec<Edge>, Error> {
    let sql = format!(
        "SELECT {}, place FROM artifact_edge WHERE source = ?1 ORDER BY place",
        Edge::COLUMNS
    );
    let mut statement = conn.prepare_cached(&sql)?;
    let mut rows = statement.query([id])?;
    let mut edges = Vec::new();
    while let Some(row) = rows.next()? {
        if row.get(Edge::WIDTH) != Ok(edges.len() as i64) || edges.len() >= MAX_EDGES {
            return Err(unreadable(Edge::WIDTH, "edges stand one after the other").into());
        }
        edges.push(Edge::from_row(row, 0)?);
    }
    Ok(edges)
}

pub(crate) fn tags(conn: &Connection, id: ArtifactId) -> Result<Vec<Tag>, Error> {
    let sql = "SELECT tag FROM artifact_tag_now WHERE artifact = ?1 ORDER BY tag";
    let mut statement = conn.prepare_cached(sql)?;
    let tags = statement.query_map([id], |row| row.get(0))?;
    Ok(tags.collect::<Result<_, _>>()?)
}

fn verdicts(conn: &Connection, id: ArtifactId) -> Result<Vec<Verdict>, Error> {
    let sql = format!(
        "SELECT {} FROM artifact_verdict WHERE artifact = ?1 ORDER BY seq",
        Verdict::COLUMNS
    );
    let mut statement = conn.prepare_cached(&sql)?;
    let verdicts = statement.query_map([id], Verdict::from_row)?;
    Ok(verdicts.collect::<Result<_, _>>()?)
}

/// A condition that grows.
struct Question {
    sql: String,
    values: Vec<Value>,
}

impl Question {
    fn of(tenant: &Name) -> Question {
        Question { sql: "artifact.tenant = ?".into(), values: vec![text(tenant.as_str())] }
    }

    fn and<const N: usize>(&mut self, clause: &str, values: [Value; N]) {
        self.sql.push_str(" AND ");
        self.sql.push_str(clause);
        self.values.extend(values);
    }

    fn narrow(&mut self, filter: &Filter) {
        if let Some(subject) = &filter.subject {
            self.and("artifact.subject = ?", [text(subject.as_str())]);
        }
        match &filter.name {
            Some(Named::Exactly(name)) => self.and("artifact.name = ?", [text(name.as_str())]),
            Some(Named::Beginning(begin)) => {
                self.and("substr(artifact.name, 1, length(?)) = ?", [text(begin), text(begin)]);
            }
            None => {}
        }
        if let Some(kind) = filter.kind {
            self.and("artifact.type = ?", [text(kind.name())]);
        }
        if let Some(role) = filter.role {
            self.and("artifact.role = ?", [text(role.name())]);
        }
        if let Some(tag) = &filter.tag {
            self.and(
                "artifact.id IN (SELECT artifact FROM artifact_tag_now WHERE tag = ?)",
                [text(tag.as_str())],
            );
        }
        if let Some((aspect, ruling)) = filter.verdict {
            self.and(
                "EXISTS (SELECT 1 FROM artifact_verdict_now
                         WHERE artifact = artifact.id AND aspect = ? AND ruling = ?)",
                [text(aspect.name()), text(ruling.name())],
            );
        }
        if let Some(call) = filter.call {
            self.and("artifact.call = ?", [id(call)]);
        }
        if let Some(from) = filter.from {
            self.and("artifact.created >= ?", [Value::Integer(from)]);
        }
        if let Some(until) = filter.until {
            self.and("artifact.created < ?", [Value::Integer(until)]);
        }
    }
}

fn text(text: &str) -> Value {
    Value::Text(text.to_owned())
}

fn id(id: CallId) -> Value {
    Value::Blob(id.to_bytes().to_vec())
}

fn all(conn: &Connection, sql: &str, values: Vec<Value>) -> Result<Vec<Artifact>, Error> {
    let mut statement = conn.prepare_cached(sql)?;
    let rows = statement.query_map(params_from_iter(values), Artifact::from_row)?;
    Ok(rows.collect::<Result<_, _>>()?)
}
