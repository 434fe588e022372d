//! Where an artifact comes from, and what came from it.

use std::collections::{HashSet, VecDeque};

use hotcell_types::Name;
use rusqlite::{Connection, params};

use crate::error::Error;
use crate::query;
use crate::rows::{ArtifactId, Edge, Target};

/// Most edges in each direction.
pub const MAX_LINKS: usize = 10_000;

/// The edges round an artifact, the nearest first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Lineage {
    pub ancestors: Vec<Link>,
    pub descendants: Vec<Link>,
    /// Whether there is more than [`MAX_LINKS`]. What is deeper than was asked for does not count.
    pub is_cut: bool,
}

/// One edge, and how many steps from the artifact it was found.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Link {
    pub from: ArtifactId,
    pub edge: Edge,
    pub depth: u32,
}

/// What an artifact came from, and what came from it. Neither leads to another tenant.
const UP: &str = "artifact_edge.source = ?1";
const DOWN: &str = "artifact_edge.to_artifact = ?1";

/// The graph round an artifact, `depth` steps in each direction.
pub fn lineage(
    conn: &Connection,
    tenant: &Name,
    id: ArtifactId,
    depth: u32,
) -> Result<Lineage, Error> {
    query::artifact(conn, tenant, id)?.ok_or(Error::NoArtifact(id))?;
    let (ancestors, more_above) = walk(conn, tenant, UP, id, depth, |link| match link.edge.to {
        Target::Artifact(next) => Some(next),
        _ => None,
    })?;
    let (descendants, more_below) = walk(conn, tenant, DOWN, id, depth, |link| Some(link.from))?;
    Ok(Lineage { ancestors, descendants, is_cut: more_above || more_below })
}

/// Breadth first, each artifact once: a circle, which only tampering can make, has an end as well.
fn walk(
    conn: &Connection,
    tenant: &Name,
    direction: &str,
    start: ArtifactId,
    depth: u32,
    next: impl Fn(&Link) -> Option<ArtifactId>,
) -> Result<(Vec<Link>, bool), Error> {
    // A cross join keeps its order: first the edges, which are few.
    let sql = format!(
        "SELECT artifact_edge.source, {} FROM artifact_edge CROSS JOIN artifact ON artifact.id = source
         WHERE {direction} AND artifact.tenant = ?2 ORDER BY artifact.seq, artifact_edge.place",
        Edge::COLUMNS
    );
    let mut statement = conn.prepare_cached(&sql)?;
    let mut links = Vec::new();
    let mut seen = HashSet::from([start]);
    let mut waiting = VecDeque::from([(start, 0)]);
    while let Some((id, steps)) = waiting.pop_front().filter(|(_, steps)| *steps < depth) {
        let mut rows = statement.query(params![id, tenant.as_str()])?;
        while let Some(row) = rows.next()? {
            if links.len() >= MAX_LINKS {
                return Ok((links, true));
            }
            let link = Link { from: row.get(0)?, edge: Edge::from_row(row, 1)?, depth: steps + 1 };
            if let Some(next) = next(&link).filter(|next| seen.insert(*next)) {
                waiting.push_back((next, steps + 1));
            }
            links.push(link);
        }
    }
    Ok((links, false))
}
