//! What a row says, as bytes: the chain carries their digest, and a row of which any column was changed
//! has another. FORMAT.md describes them for whoever checks without this code.

use crate::digest::Digest;
use crate::prune::{Pruned, Pruning};
use crate::rows::{Artifact, Edge, RowId, Tagging, Target, Verdict};

/// The canonical bytes of a row, and their digest. Two different rows never have the same bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Statement {
    row: RowId,
    bytes: Vec<u8>,
}

impl Statement {
    pub fn row(&self) -> RowId {
        self.row
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub fn digest(&self) -> Digest {
        Digest::of(&self.bytes)
    }

    /// About an artifact, with what it came from.
    pub fn of_artifact(artifact: &Artifact, edges: &[Edge]) -> Statement {
        let mut fields = Fields::begin(match artifact.is_kept {
            true => "hotcell artifact 1\n",
            false => "hotcell artifact not kept 1\n",
        });
        fields.number(artifact.seq);
        fields.bytes(&artifact.id.0.to_bytes());
        fields.text(artifact.tenant.as_str());
        fields.text(artifact.subject.as_str());
        fields.text(artifact.name.as_str());
        fields.number(artifact.version);
        fields.bytes(&artifact.blob.digest.to_bytes());
        fields.number(artifact.blob.size);
        fields.text(artifact.media.name());
        fields.text(artifact.kind.name());
        fields.text(artifact.role.name());
        fields.time(artifact.created);
        fields.bytes(&artifact.call.to_bytes());
        fields.maybe(artifact.tool.as_ref().map(|tool| tool.as_str()));
        fields.number(edges.len() as u64);
        for edge in edges {
            fields.text(edge.relation.name());
            match &edge.to {
                Target::Artifact(id) => fields.text("artifact").bytes(&id.0.to_bytes()),
                Target::Call(id) => fields.text("call").bytes(&id.to_bytes()),
                Target::Text(text) => fields.text("text").text(text.as_str()),
                Target::Unknown => fields.text("unknown").maybe(None),
            };
        }
        fields.finish(RowId::Artifact(artifact.id))
    }

    pub fn of_tagging(tagging: &Tagging) -> Statement {
        let mut fields = Fields::begin("hotcell artifact tag 1\n");
        fields.number(tagging.seq);
        fields.bytes(&tagging.artifact.0.to_bytes());
        fields.text(tagging.tag.as_str());
        fields.number(u64::from(tagging.is_set));
        fields.text(tagging.by.as_str());
        fields.time(tagging.time);
        fields.finish(RowId::Tagging(tagging.seq))
    }

    pub fn of_verdict(verdict: &Verdict) -> Statement {
        let mut fields = Fields::begin("hotcell artifact verdict 1\n");
        fields.number(verdict.seq);
        fields.bytes(&verdict.artifact.0.to_bytes());
        fields.text(verdict.aspect.name());
        fields.text(verdict.ruling.name());
        fields.text(verdict.by.as_str());
        fields.maybe(verdict.note.as_ref().map(|note| note.as_str()));
        fields.time(verdict.time);
        fields.finish(RowId::Verdict(verdict.seq))
    }

    /// About a pruning, with what was removed by it.
    pub fn of_pruning(pruning: &Pruning) -> Statement {
        let mut fields = Fields::begin("hotcell artifact pruning 1\n");
        fields.number(pruning.seq);
        fields.text(pruning.by.as_str());
        fields.time(pruning.time);
        fields.number(pruning.contents.len() as u64);
        for Pruned { blob, upto } in &pruning.contents {
            fields.bytes(&blob.digest.to_bytes()).number(blob.size).number(*upto);
        }
        fields.finish(RowId::Pruning(pruning.seq))
    }
}

/// Each field is 0 if it is absent, or else 1, its length as eight bytes and itself.
struct Fields(Vec<u8>);

impl Fields {
    fn begin(title: &str) -> Fields {
        Fields(title.as_bytes().to_vec())
    }

    fn bytes(&mut self, bytes: &[u8]) -> &mut Fields {
        self.0.push(1);
        self.0.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
        self.0.extend_from_slice(bytes);
        self
    }

    fn text(&mut self, text: &str) -> &mut Fields {
        self.bytes(text.as_bytes())
    }

    fn maybe(&mut self, text: Option<&str>) -> &mut Fields {
        match text {
            Some(text) => self.text(text),
            None => {
                self.0.push(0);
                self
            }
        }
    }

    fn number(&mut self, number: u64) -> &mut Fields {
        self.bytes(&number.to_le_bytes())
    }

    fn time(&mut self, nanos: i64) -> &mut Fields {
        self.bytes(&nanos.to_le_bytes())
    }

    fn finish(self, row: RowId) -> Statement {
        Statement { row, bytes: self.0 }
    }
}
