//! The rows of the ledger. None of them is ever changed or removed: a new version, a lifted tag or
//! another verdict is another row.

use std::fmt;
use std::str::FromStr;

use hotcell_types::{BadId, CallId, Name};
use rusqlite::Row;
use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, ToSql, ToSqlOutput, ValueRef};
use serde::{Serialize, Serializer};

use crate::digest::{Blob, Digest};
use crate::line::{ArtifactName, Note, Source, Tag, ToolName};
use crate::words::{Aspect, Media, Relation, Role, Ruling, Type};

/// An artifact, as a call's id is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ArtifactId(pub(crate) CallId);

/// Something that was made or used, and under which name. What it came from is in its [`Edge`]s.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Artifact {
    /// 1, 2, 3 … in the order of registration.
    pub seq: u64,
    pub id: ArtifactId,
    pub tenant: Name,
    pub subject: Name,
    pub name: ArtifactName,
    /// 1, 2, 3 … of the tenant's artifacts of this name.
    pub version: u64,
    #[serde(flatten)]
    pub blob: Blob,
    /// Whether the content was kept. What was too much has its digest and its size here all the same.
    pub is_kept: bool,
    pub media: Media,
    #[serde(rename = "type")]
    pub kind: Type,
    pub role: Role,
    /// Nanoseconds since 1970, as the clock was then.
    pub created: i64,
    pub call: CallId,
    pub tool: Option<ToolName>,
}

/// What an artifact came from, and how.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Edge {
    pub relation: Relation,
    pub to: Target,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Target {
    Artifact(ArtifactId),
    Call(CallId),
    Text(Source),
    /// There was something, and nobody knows what.
    Unknown,
}

/// A tag was set or lifted. The last one for a tag counts.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tagging {
    pub seq: u64,
    pub artifact: ArtifactId,
    pub tag: Tag,
    pub is_set: bool,
    pub by: Name,
    pub time: i64,
}

/// What somebody thinks of an artifact. The last one for an aspect counts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Verdict {
    pub seq: u64,
    pub artifact: ArtifactId,
    pub aspect: Aspect,
    pub ruling: Ruling,
    pub by: Name,
    pub note: Option<Note>,
    pub time: i64,
}

/// Which row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RowId {
    Artifact(ArtifactId),
    Tagging(u64),
    Verdict(u64),
    Pruning(u64),
}

impl Edge {
    pub fn new(relation: Relation, to: Target) -> Edge {
        Edge { relation, to }
    }

    /// For what was made from something that was not recorded.
    pub fn unknown_input() -> Edge {
        Edge { relation: Relation::Input, to: Target::Unknown }
    }
}

impl fmt::Display for ArtifactId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for ArtifactId {
    type Err = BadId;

    fn from_str(text: &str) -> Result<ArtifactId, BadId> {
        text.parse().map(ArtifactId)
    }
}

impl Serialize for ArtifactId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl ToSql for ArtifactId {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::from(self.0.to_bytes().to_vec()))
    }
}

impl FromSql for ArtifactId {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<ArtifactId> {
        Id::column_result(value).map(|id| ArtifactId(id.0))
    }
}

/// What is not the name of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a row is called `artifact ID`, `tag N`, `verdict N` or `pruning N`")]
pub struct BadRow;

impl FromStr for RowId {
    type Err = BadRow;

    /// One spelling only.
    fn from_str(text: &str) -> Result<RowId, BadRow> {
        let row = match text.split_once(' ').ok_or(BadRow)? {
            ("artifact", id) => RowId::Artifact(id.parse().map_err(|_| BadRow)?),
            ("tag", seq) => RowId::Tagging(seq.parse().map_err(|_| BadRow)?),
            ("verdict", seq) => RowId::Verdict(seq.parse().map_err(|_| BadRow)?),
            ("pruning", seq) => RowId::Pruning(seq.parse().map_err(|_| BadRow)?),
            _ => return Err(BadRow),
        };
        if row.to_string() == text { Ok(row) } else { Err(BadRow) }
    }
}

impl fmt::Display for RowId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RowId::Artifact(id) => write!(f, "artifact {id}"),
            RowId::Tagging(seq) => write!(f, "tag {seq}"),
            RowId::Verdict(seq) => write!(f, "verdict {seq}"),
            RowId::Pruning(seq) => write!(f, "pruning {seq}"),
        }
    }
}

/// A call's id and a short name, as they are in a column.
pub(crate) struct Id(pub(crate) CallId);
pub(crate) struct Short(pub(crate) Name);

impl FromSql for Id {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Id> {
        FromSql::column_result(value).map(|bytes| Id(CallId::from_bytes(bytes)))
    }
}

impl FromSql for Short {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Short> {
        let name = value.as_str()?.parse();
        name.map(Short).map_err(|error| FromSqlError::Other(Box::new(error)))
    }
}

/// What is in a column is nothing that we write.
pub(crate) fn unreadable(column: usize, why: &'static str) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(column, rusqlite::types::Type::Null, why.into())
}

fn yes_or_no(row: &Row<'_>, column: usize) -> rusqlite::Result<bool> {
    match row.get(column)? {
        0 => Ok(false),
        1 => Ok(true),
        other => Err(rusqlite::Error::IntegralValueOutOfRange(column, other)),
    }
}

/// A number that is never negative.
pub(crate) struct Count(pub(crate) u64);

impl FromSql for Count {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Count> {
        let number = value.as_i64()?;
        u64::try_from(number).map(Count).map_err(|_| FromSqlError::OutOfRange(number))
    }
}

impl Artifact {
    pub(crate) const COLUMNS: &str = "artifact.seq, artifact.id, artifact.tenant, \
        artifact.subject, artifact.name, artifact.version, artifact.digest, artifact.size, \
        artifact.media, artifact.type, artifact.role, artifact.created, artifact.call, artifact.tool, \
        artifact.is_kept";

    pub(crate) fn from_row(row: &Row<'_>) -> rusqlite::Result<Artifact> {
        Ok(Artifact {
            seq: row.get::<_, Count>(0)?.0,
            id: row.get(1)?,
            tenant: row.get::<_, Short>(2)?.0,
            subject: row.get::<_, Short>(3)?.0,
            name: row.get(4)?,
            version: row.get::<_, Count>(5)?.0,
            blob: Blob { digest: row.get::<_, Digest>(6)?, size: row.get::<_, Count>(7)?.0 },
            media: row.get(8)?,
            kind: row.get(9)?,
            role: row.get(10)?,
            created: row.get(11)?,
            call: row.get::<_, Id>(12)?.0,
            tool: row.get(13)?,
            is_kept: yes_or_no(row, 14)?,
        })
    }
}

impl Edge {
    pub(crate) const COLUMNS: &str = "artifact_edge.relation, artifact_edge.to_artifact, \
        artifact_edge.to_call, artifact_edge.to_text";
    /// How many these are.
    pub(crate) const WIDTH: usize = 4;

    /// From the columns from `first` on.
    pub(crate) fn from_row(row: &Row<'_>, first: usize) -> rusqlite::Result<Edge> {
        let artifact = row.get::<_, Option<ArtifactId>>(first + 1)?.map(Target::Artifact);
        let call = row.get::<_, Option<Id>>(first + 2)?.map(|id| Target::Call(id.0));
        let text = row.get::<_, Option<Source>>(first + 3)?.map(Target::Text);
        let to = match (artifact, call, text) {
            (None, None, None) => Target::Unknown,
            (Some(to), None, None) | (None, Some(to), None) | (None, None, Some(to)) => to,
            _ => return Err(unreadable(first, "an edge leads to one thing")),
        };
        Ok(Edge { relation: row.get(first)?, to })
    }
}

impl Tagging {
    pub(crate) const COLUMNS: &str = "seq, artifact, tag, is_set, by, time";

    pub(crate) fn from_row(row: &Row<'_>) -> rusqlite::Result<Tagging> {
        Ok(Tagging {
            seq: row.get::<_, Count>(0)?.0,
            artifact: row.get(1)?,
            tag: row.get(2)?,
            is_set: yes_or_no(row, 3)?,
            by: row.get::<_, Short>(4)?.0,
            time: row.get(5)?,
        })
    }
}

impl Verdict {
    pub(crate) const COLUMNS: &str = "seq, artifact, aspect, ruling, by, note, time";

    pub(crate) fn from_row(row: &Row<'_>) -> rusqlite::Result<Verdict> {
        Ok(Verdict {
            seq: row.get::<_, Count>(0)?.0,
            artifact: row.get(1)?,
            aspect: row.get(2)?,
            ruling: row.get(3)?,
            by: row.get::<_, Short>(4)?.0,
            note: row.get(5)?,
            time: row.get(6)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_one_name() {
        let id = ArtifactId(CallId::new(7, [1; 10]));
        let numbered = [RowId::Tagging(1), RowId::Verdict(u64::MAX), RowId::Pruning(7)];
        for row in numbered.into_iter().chain([RowId::Artifact(id)]) {
            assert_eq!(row.to_string().parse(), Ok(row));
        }
        for bad in ["", "artifact", "artifact x", "tag 01", "tag +1", "tag -1", "verdict 1 ", "x 1"]
        {
            assert_eq!(bad.parse::<RowId>(), Err(BadRow), "{bad}");
        }
    }
}
