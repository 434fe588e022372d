//! What calls were given and made.

use std::borrow::Cow;

use hotcell_ledger as ledger;
use hotcell_types::CallId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::words;

/// Something that was made or used, and under which name.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Artifact {
    /// 1, 2, 3 … in the order of registration.
    pub seq: u64,
    #[schemars(schema_with = "words::id")]
    pub id: String,
    pub tenant: String,
    pub subject: String,
    pub name: String,
    /// 1, 2, 3 … of the tenant's artifacts of this name.
    #[serde(rename = "version")]
    pub number: u64,
    pub digest: String,
    pub size: u64,
    /// Whether the content was kept. What was too much, or has a key in it, is known by its digest.
    pub is_kept: bool,
    pub media: Cow<'static, str>,
    #[serde(rename = "type")]
    pub kind: Cow<'static, str>,
    /// What it was to the call: `script`, `input`, `output`, `file`, `stdout` or `stderr`.
    pub role: Cow<'static, str>,
    /// Nanoseconds since 1970.
    pub created: i64,
    #[schemars(schema_with = "words::id")]
    pub call: CallId,
    pub tool: Option<String>,
}

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Artifacts {
    pub version: u32,
    pub artifacts: Vec<Artifact>,
    /// What to give as `after` for those that follow, if there may be any.
    pub next: Option<String>,
}

/// An artifact and everything that was said of it.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Details {
    pub version: u32,
    pub artifact: Artifact,
    pub came_from: Vec<Edge>,
    pub tags: Vec<String>,
    pub verdicts: Vec<Ruled>,
    /// The digest that the chain has of it.
    pub statement: String,
}

/// What an artifact came from, and how.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Edge {
    pub relation: &'static str,
    /// `{"artifact": ID}`, `{"call": ID}`, `{"text": TEXT}` or `"unknown"`.
    #[schemars(schema_with = "words::anything")]
    pub to: ledger::Target,
}

/// What somebody thinks of an artifact.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Ruled {
    pub aspect: &'static str,
    pub ruling: &'static str,
    pub by: String,
    pub note: Option<String>,
    pub time: i64,
}

/// The graph round an artifact.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Lineage {
    pub version: u32,
    pub artifact: Artifact,
    pub ancestors: Vec<Link>,
    pub descendants: Vec<Link>,
    /// Whether there is more than was told.
    pub cut: bool,
    /// Every artifact that occurs.
    pub artifacts: Vec<Artifact>,
}

/// One edge, and how many steps from the artifact it was found.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Link {
    #[schemars(schema_with = "words::id")]
    pub from: String,
    #[serde(flatten)]
    pub edge: Edge,
    pub depth: u32,
}

/// What an artifact is now, and whether it was something else before.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Written {
    pub version: u32,
    pub changed: bool,
    pub artifact: Artifact,
}

impl From<&ledger::Artifact> for Artifact {
    fn from(artifact: &ledger::Artifact) -> Artifact {
        Artifact {
            seq: artifact.seq,
            id: artifact.id.to_string(),
            tenant: artifact.tenant.to_string(),
            subject: artifact.subject.to_string(),
            name: artifact.name.to_string(),
            number: artifact.version,
            digest: artifact.blob.digest.to_string(),
            size: artifact.blob.size,
            is_kept: artifact.is_kept,
            media: artifact.media.name().into(),
            kind: artifact.kind.name().into(),
            role: artifact.role.name().into(),
            created: artifact.created,
            call: artifact.call,
            tool: artifact.tool.as_ref().map(ToString::to_string),
        }
    }
}

impl Artifacts {
    /// Of a page that may have been cut at `limit`.
    pub fn of(artifacts: &[ledger::Artifact], limit: usize) -> Artifacts {
        let next = artifacts.last().filter(|_| artifacts.len() >= limit);
        let next = next.map(|artifact| artifact.id.to_string());
        Artifacts { version: 1, artifacts: artifacts.iter().map(Artifact::from).collect(), next }
    }
}

impl From<&ledger::Edge> for Edge {
    fn from(edge: &ledger::Edge) -> Edge {
        Edge { relation: edge.relation.name(), to: edge.to.clone() }
    }
}

impl From<&ledger::Verdict> for Ruled {
    fn from(verdict: &ledger::Verdict) -> Ruled {
        Ruled {
            aspect: verdict.aspect.name(),
            ruling: verdict.ruling.name(),
            by: verdict.by.to_string(),
            note: verdict.note.as_ref().map(ToString::to_string),
            time: verdict.time,
        }
    }
}

impl From<&ledger::Details> for Details {
    fn from(details: &ledger::Details) -> Details {
        Details {
            version: 1,
            artifact: Artifact::from(&details.artifact),
            came_from: details.edges.iter().map(Edge::from).collect(),
            tags: details.tags.iter().map(ToString::to_string).collect(),
            verdicts: details.verdicts.iter().map(Ruled::from).collect(),
            statement: details.statement().digest().to_string(),
        }
    }
}

impl Lineage {
    pub fn of(
        artifact: &ledger::Artifact,
        lineage: &ledger::Lineage,
        others: &[ledger::Artifact],
    ) -> Lineage {
        let links = |links: &[ledger::Link]| links.iter().map(Link::from).collect();
        Lineage {
            version: 1,
            artifact: Artifact::from(artifact),
            ancestors: links(&lineage.ancestors),
            descendants: links(&lineage.descendants),
            cut: lineage.is_cut,
            artifacts: others.iter().map(Artifact::from).collect(),
        }
    }
}

impl Written {
    pub fn of(artifact: &ledger::Artifact, changed: bool) -> Written {
        Written { version: 1, changed, artifact: Artifact::from(artifact) }
    }
}

impl From<&ledger::Link> for Link {
    fn from(link: &ledger::Link) -> Link {
        Link { from: link.from.to_string(), edge: Edge::from(&link.edge), depth: link.depth }
    }
}
