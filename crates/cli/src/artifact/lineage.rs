//! `hotcell artifact lineage`: the graph round an artifact, as an indented tree.

use std::collections::{HashMap, HashSet};

use hotcell_engine::artifacts::{ArtifactAnswer, ArtifactAsk, Which};
use hotcell_ledger::{Artifact, ArtifactId, Lineage, Link, Target};

use crate::artifact::{ask, no_answer, title};
use crate::print::{self, harmless};
use crate::problem::Problem;

pub(super) fn show(which: Which, depth: u32, json: bool) -> Result<u8, Problem> {
    let ArtifactAnswer::Lineage { artifact, lineage, others } =
        ask(ArtifactAsk::Lineage { which, depth })?
    else {
        return Err(no_answer());
    };
    Ok(print::data(&match json {
        true => print::document(&hotcell_api::Lineage::of(&artifact, &lineage, &others)),
        false => tree(&artifact, &lineage, &others),
    }))
}

fn tree(artifact: &Artifact, lineage: &Lineage, others: &[Artifact]) -> String {
    let names: HashMap<ArtifactId, &Artifact> = others.iter().map(|one| (one.id, one)).collect();
    let mut text = format!("{}  {}\n", title(artifact), artifact.id);
    let up = Branches {
        names: &names,
        links: by(&lineage.ancestors, |link| Some(link.from)),
        next: |link| match link.edge.to {
            Target::Artifact(id) => Some(id),
            _ => None,
        },
    };
    let down = Branches {
        names: &names,
        links: by(&lineage.descendants, |link| match link.edge.to {
            Target::Artifact(id) => Some(id),
            _ => None,
        }),
        next: |link| Some(link.from),
    };
    for (heading, branches) in [("came from", up), ("led to", down)] {
        if branches.links.contains_key(&artifact.id) {
            text.push_str(&format!("  {heading}\n"));
            branches.grow(artifact.id, 2, &mut HashSet::new(), &mut text);
        }
    }
    if lineage.is_cut {
        text.push_str("there is more than is shown\n");
    }
    text
}

fn by(
    links: &[Link],
    end: impl Fn(&Link) -> Option<ArtifactId>,
) -> HashMap<ArtifactId, Vec<&Link>> {
    let mut all: HashMap<ArtifactId, Vec<&Link>> = HashMap::new();
    for link in links {
        if let Some(end) = end(link) {
            all.entry(end).or_default().push(link);
        }
    }
    all
}

/// One direction of the graph.
struct Branches<'a> {
    names: &'a HashMap<ArtifactId, &'a Artifact>,
    links: HashMap<ArtifactId, Vec<&'a Link>>,
    /// Where a link leads.
    next: fn(&Link) -> Option<ArtifactId>,
}

impl Branches<'_> {
    /// Each artifact's own branches are shown once, where it is nearest: so that this is no deeper than
    /// what was asked for.
    fn grow(
        &self,
        id: ArtifactId,
        depth: usize,
        seen: &mut HashSet<ArtifactId>,
        text: &mut String,
    ) {
        for link in self.links.get(&id).into_iter().flatten() {
            let next = (self.next)(link);
            let what = match (next, &link.edge.to) {
                (Some(id), _) => self.name(id),
                (None, Target::Call(call)) => call.to_string(),
                (None, Target::Text(source)) => harmless(source.as_str()),
                (None, _) => "something that nobody recorded".to_owned(),
            };
            let branches =
                next.and_then(|next| Some((next, self.links.get(&next)?.first()?.depth)));
            let grows =
                branches.filter(|(next, depth)| *depth == link.depth + 1 && seen.insert(*next));
            let elsewhere =
                if branches.is_some() && grows.is_none() { " (shown elsewhere)" } else { "" };
            let relation = link.edge.relation.name().replace('_', " ");
            text.push_str(&format!("{:1$}{relation}: {what}{elsewhere}\n", "", 2 * depth));
            if let Some((next, _)) = grows {
                self.grow(next, depth + 1, seen, text);
            }
        }
    }

    fn name(&self, id: ArtifactId) -> String {
        match self.names.get(&id) {
            Some(artifact) => format!("{}  {id}", title(artifact)),
            None => id.to_string(),
        }
    }
}
