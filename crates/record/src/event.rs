//! What happened: as it is given (`Draft`) and as it stands in the chain (`Event`).

use std::fmt;
use std::sync::Arc;

use hotcell_types::{CallId, Caller, Decision, Status};

use crate::hex::{Digest, EventId, Hex, OwnerId};
use crate::redact::Redactor;

/// What an event is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The home was made. The first event, and only the first.
    Opened,
    /// A call is about to be carried out.
    Intent,
    /// What became of it.
    Outcome,
    /// A call that changes nothing, and what became of it, in one.
    Called,
    /// The policy refused a call.
    Denied,
    /// A call was put before somebody, or answered by them.
    Review,
    /// The process of an intent ended before the outcome.
    Recovered,
    PolicyChanged,
    BearerChanged,
    ArtifactAdded,
    ArtifactChanged,
    /// Contents of payloads were removed.
    Pruned,
    /// A checkpoint could not be handed to its sink.
    CheckpointMissed,
    Note,
}

impl Kind {
    pub const ALL: [Kind; 14] = [
        Kind::Opened,
        Kind::Intent,
        Kind::Outcome,
        Kind::Called,
        Kind::Denied,
        Kind::Review,
        Kind::Recovered,
        Kind::PolicyChanged,
        Kind::BearerChanged,
        Kind::ArtifactAdded,
        Kind::ArtifactChanged,
        Kind::Pruned,
        Kind::CheckpointMissed,
        Kind::Note,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Kind::Opened => "opened",
            Kind::Intent => "intent",
            Kind::Outcome => "outcome",
            Kind::Called => "called",
            Kind::Denied => "denied",
            Kind::Review => "review",
            Kind::Recovered => "recovered",
            Kind::PolicyChanged => "policy_changed",
            Kind::BearerChanged => "bearer_changed",
            Kind::ArtifactAdded => "artifact_added",
            Kind::ArtifactChanged => "artifact_changed",
            Kind::Pruned => "pruned",
            Kind::CheckpointMissed => "checkpoint_missed",
            Kind::Note => "note",
        }
    }

    /// Whether it can be about a row of another table.
    pub fn is_of_rows(self) -> bool {
        matches!(self, Kind::ArtifactAdded | Kind::ArtifactChanged | Kind::BearerChanged)
    }

    /// Whether it closes an intent.
    pub fn is_end(self) -> bool {
        matches!(self, Kind::Outcome | Kind::Recovered)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What is to be recorded. Texts and contents may be of any size and have secrets in them: what is
/// hashed and stored is redacted and bounded first.
#[derive(Debug, Clone)]
pub struct Draft {
    pub kind: Kind,
    pub caller: Caller,
    /// Nanoseconds since 1970, UTC, as the caller's clock said. Any value is taken as it is.
    pub time: i64,
    pub call: Option<CallId>,
    /// The call that asked for this one.
    pub parent: Option<CallId>,
    pub operation: Option<String>,
    /// `name@version`.
    pub tool: Option<String>,
    pub mode: Option<String>,
    pub state: Option<String>,
    pub decision: Option<Decision>,
    /// The rules that spoke.
    pub rules: Vec<String>,
    pub bearer: Option<String>,
    pub reason: Option<String>,
    pub status: Option<Status>,
    pub input: Option<Payload>,
    pub output: Option<Payload>,
    /// The row of another table that this is about. It stands in place of an output.
    pub stated: Option<Stated>,
    pub duration_ns: Option<u64>,
    pub sandbox: Option<String>,
    /// The idempotency key, or the request's id.
    pub request: Option<String>,
    /// Values that are redacted wherever they occur in this draft.
    pub secrets: Vec<Secret>,
    /// What is taken out of it besides what the record takes out of everything.
    pub hidden: Option<Arc<Redactor>>,
}

impl Draft {
    /// With nothing but what every event has.
    pub fn new(kind: Kind, caller: Caller, time: i64) -> Draft {
        Draft {
            kind,
            caller,
            time,
            call: None,
            parent: None,
            operation: None,
            tool: None,
            mode: None,
            state: None,
            decision: None,
            rules: Vec::new(),
            bearer: None,
            reason: None,
            status: None,
            input: None,
            output: None,
            stated: None,
            duration_ns: None,
            sandbox: None,
            request: None,
            secrets: Vec::new(),
            hidden: None,
        }
    }
}

/// Arguments or a result, whole.
#[derive(Debug, Clone)]
pub struct Payload {
    pub media: String,
    pub content: Vec<u8>,
}

/// Which payload of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Input,
    Output,
}

/// A row of another table, and the digest of what it says. Both are recorded as they are: nothing in
/// them may be secret. The row itself is kept elsewhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stated {
    /// In the words of whoever keeps it, at most [`MOST_ROW`] bytes.
    pub row: String,
    pub digest: Digest,
    /// Of what was hashed, in bytes.
    pub length: u64,
}

/// Longest name of a row.
pub const MOST_ROW: usize = 128;
/// What the media type of a summary begins with that is of a row.
const ROW: &str = "row:";

impl Stated {
    pub(crate) fn summary(self) -> Summary {
        let row = (0..=MOST_ROW).rev().find_map(|end| self.row.get(..end)).unwrap_or(&self.row);
        let media = format!("{ROW}{row}");
        Summary { digest: self.digest, length: self.length, head: None, media }
    }
}

impl Event {
    /// The row of another table that it is about.
    pub fn stated(&self) -> Option<Stated> {
        let summary = self.output.as_ref().filter(|_| self.kind.is_of_rows())?;
        let row = summary.media.strip_prefix(ROW)?.to_owned();
        Some(Stated { row, digest: summary.digest, length: summary.length })
    }

    /// What was summed up, and may be kept as a payload.
    pub(crate) fn payloads(&self) -> impl Iterator<Item = (Side, &Summary)> {
        let input = self.input.iter().map(|summary| (Side::Input, summary));
        let output = self.output.iter().map(|summary| (Side::Output, summary));
        input.chain(output.filter(|_| self.stated().is_none()))
    }
}

/// A value that must not be recorded. Never shown.
#[derive(Clone)]
pub struct Secret(pub(crate) String);

impl Secret {
    pub fn new(value: impl Into<String>) -> Secret {
        Secret(value.into())
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// What the chain knows of a payload. The content itself can be pruned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    /// Of the whole redacted content.
    pub digest: Digest,
    /// Of the whole redacted content, in bytes.
    pub length: u64,
    /// Of the kept beginning, where not all was kept.
    pub head: Option<Digest>,
    pub media: String,
}

/// One link of the chain. `hash` covers every other field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// 1, 2, 3 and so on, without gaps.
    pub seq: u64,
    /// Of the encoding that was hashed.
    pub version: u64,
    pub id: EventId,
    pub time: i64,
    pub kind: Kind,
    pub call: Option<CallId>,
    pub parent: Option<CallId>,
    pub operation: Option<String>,
    pub tool: Option<String>,
    pub caller: Caller,
    pub mode: Option<String>,
    pub state: Option<String>,
    pub decision: Option<Decision>,
    pub rules: Vec<String>,
    pub bearer: Option<String>,
    pub reason: Option<String>,
    pub status: Option<Status>,
    pub input: Option<Summary>,
    pub output: Option<Summary>,
    pub duration_ns: Option<u64>,
    pub sandbox: Option<String>,
    pub request: Option<String>,
    /// The process that wrote it.
    pub owner: OwnerId,
    /// The hash of the event before; of the first, the genesis of its home.
    pub prev: Digest,
    pub hash: Digest,
}

/// What the first event has in place of a previous hash.
pub fn genesis(home: Hex<16>) -> Digest {
    let mut text = b"hotcell home 1\n".to_vec();
    text.extend(home.0);
    Digest::of(&text)
}
