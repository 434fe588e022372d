//! What the record has: events, calls, and whether it is still what was recorded.

use base64ct::{Base64, Encoding};
use hotcell_engine::{self as engine, Kept, Said};
use hotcell_record as record;
use hotcell_types::{CallId, Caller, Decision, Status};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use crate::artifact::Artifact;
use crate::words;

/// One link of the chain.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Event {
    /// 1, 2, 3 and so on, without gaps.
    pub seq: u64,
    /// Nanoseconds since 1970.
    pub time_ns: i64,
    pub kind: &'static str,
    #[schemars(schema_with = "words::maybe_id")]
    pub call: Option<CallId>,
    #[schemars(schema_with = "words::maybe_id")]
    pub parent: Option<CallId>,
    pub operation: Option<String>,
    /// `name@version`.
    pub tool: Option<String>,
    #[schemars(schema_with = "words::caller")]
    pub caller: Caller,
    #[schemars(schema_with = "words::maybe_decision")]
    pub decision: Option<Decision>,
    pub rules: Vec<String>,
    pub bearer: Option<String>,
    pub reason: Option<String>,
    #[schemars(schema_with = "words::maybe_status")]
    pub status: Option<Status>,
    pub duration_ns: Option<u64>,
    pub sandbox: Option<String>,
    /// SHA-256 over every field and the hash of the event before.
    pub hash: String,
}

/// In their order.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Events {
    pub events: Vec<Event>,
    /// What to give as `after` for those that follow, if there may be any.
    pub next: Option<u64>,
}

/// A call in short.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Run {
    #[schemars(schema_with = "words::maybe_id")]
    pub call: Option<CallId>,
    pub seq: u64,
    pub time_ns: i64,
    pub tool: Option<String>,
    /// `null` while it goes on.
    #[schemars(schema_with = "words::maybe_status")]
    pub status: Option<Status>,
    pub duration_ns: Option<u64>,
}

#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Runs {
    pub runs: Vec<Run>,
    /// What to give as `after` for those that follow, if there may be any.
    pub next: Option<u64>,
}

/// Everything that is known of one call.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Call {
    pub version: u32,
    #[schemars(schema_with = "words::id")]
    pub call: CallId,
    pub tool: Option<String>,
    pub operation: Option<String>,
    #[schemars(schema_with = "words::caller")]
    pub caller: Caller,
    #[schemars(schema_with = "words::maybe_id")]
    pub parent: Option<CallId>,
    /// The calls that were made by it, or again after it.
    #[schemars(schema_with = "words::ids")]
    pub children: Vec<CallId>,
    pub began_ns: i64,
    pub ended_ns: Option<i64>,
    pub duration_ns: Option<u64>,
    #[schemars(schema_with = "words::maybe_decision")]
    pub decision: Option<Decision>,
    pub rules: Vec<String>,
    pub reason: Option<String>,
    /// `null` while it goes on.
    #[schemars(schema_with = "words::maybe_status")]
    pub status: Option<Status>,
    pub why: Option<String>,
    /// With what is secret left out.
    #[schemars(schema_with = "words::anything")]
    pub arguments: Option<Value>,
    pub arguments_missing: Option<&'static str>,
    #[schemars(schema_with = "words::anything")]
    pub run: Option<Value>,
    #[schemars(schema_with = "words::anything")]
    pub value: Option<Value>,
    #[schemars(schema_with = "words::anything")]
    pub value_known: Option<Value>,
    pub result_missing: Option<&'static str>,
    pub artifacts: Vec<Artifact>,
    pub events: Vec<Event>,
}

/// Something that a call printed, or what it has used so far.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Log {
    /// Milliseconds since the run was let go, where that is known.
    pub at_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stream: Option<&'static str>,
    /// What was printed, with U+FFFD for what is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The same exactly, where it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base64: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
}

/// Whether the record is what was recorded.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Verified {
    pub version: u32,
    /// `sound`, `unproven` (something is missing that would prove it) or `broken`.
    pub standing: &'static str,
    pub sound: bool,
    pub events: u64,
    pub fault: Option<String>,
    /// The last event that a checkpoint outside the database speaks for.
    pub covered: u64,
    pub pending: u64,
    pub checked: Vec<String>,
    pub missing: Vec<String>,
    pub cannot_be_found: Vec<String>,
}

impl From<&record::Event> for Event {
    fn from(event: &record::Event) -> Event {
        Event {
            seq: event.seq,
            time_ns: event.time,
            kind: event.kind.name(),
            call: event.call,
            parent: event.parent,
            operation: event.operation.clone(),
            tool: event.tool.clone(),
            caller: event.caller.clone(),
            decision: event.decision,
            rules: event.rules.clone(),
            bearer: event.bearer.clone(),
            reason: event.reason.clone(),
            status: event.status,
            duration_ns: event.duration_ns,
            sandbox: event.sandbox.clone(),
            hash: event.hash.to_string(),
        }
    }
}

impl Events {
    /// Of a page that may have been cut at `limit`.
    pub(crate) fn of(events: &[record::Event], limit: usize) -> Events {
        let next = events.last().filter(|_| events.len() >= limit).map(|event| event.seq);
        Events { events: events.iter().map(Event::from).collect(), next }
    }
}

impl Runs {
    pub(crate) fn of(runs: &[record::Run], limit: usize) -> Runs {
        let next = runs.last().filter(|_| runs.len() >= limit).map(|run| run.intent.seq);
        Runs { runs: runs.iter().map(Run::from).collect(), next }
    }
}

impl From<&record::Run> for Run {
    fn from(run: &record::Run) -> Run {
        Run {
            call: run.intent.call,
            seq: run.intent.seq,
            time_ns: run.intent.time,
            tool: run.intent.tool.clone(),
            status: run.end.as_ref().and_then(|end| end.status),
            duration_ns: run.end.as_ref().and_then(|end| end.duration_ns),
        }
    }
}

impl From<&engine::Shown> for Call {
    fn from(shown: &engine::Shown) -> Call {
        let (begin, end) = (&shown.begin, shown.end.as_ref());
        let part = |name| shown.result.value().and_then(|result| result.get(name)).cloned();
        let other_end = end.filter(|end| end.seq != begin.seq);
        Call {
            version: 1,
            call: shown.id,
            tool: begin.tool.clone(),
            operation: begin.operation.clone(),
            caller: begin.caller.clone(),
            parent: begin.parent,
            children: shown.children.clone(),
            began_ns: begin.time,
            ended_ns: end.map(|end| end.time),
            duration_ns: end.and_then(|end| end.duration_ns),
            decision: begin.decision,
            rules: begin.rules.clone(),
            reason: begin.reason.clone(),
            status: shown.status(),
            why: other_end.and_then(|end| end.reason.clone()),
            arguments: shown.arguments.value().cloned(),
            arguments_missing: Kept::why_not(&shown.arguments),
            run: part("run"),
            value: part("value"),
            value_known: part("value_known"),
            result_missing: Kept::why_not(&shown.result),
            artifacts: shown.artifacts.iter().map(Artifact::from).collect(),
            events: shown.events.iter().map(Event::from).collect(),
        }
    }
}

impl From<engine::Entry> for Log {
    fn from(entry: engine::Entry) -> Log {
        let millis = |time: std::time::Duration| time.as_secs_f64() * 1e3;
        let mut log = Log {
            at_ms: entry.at.map(millis),
            stream: None,
            text: None,
            base64: None,
            cpu_ms: None,
            memory_bytes: None,
        };
        let mut printed = |stream, bytes: Vec<u8>| {
            log.stream = Some(stream);
            log.text = Some(match String::from_utf8(bytes) {
                Ok(text) => text,
                Err(other) => {
                    log.base64 = Some(Base64::encode_string(other.as_bytes()));
                    String::from_utf8_lossy(other.as_bytes()).into_owned()
                }
            });
        };
        match entry.what {
            Said::Stdout(bytes) => printed("stdout", bytes),
            Said::Stderr(bytes) => printed("stderr", bytes),
            Said::Used { cpu, memory_bytes } => {
                log.cpu_ms = cpu.map(millis);
                log.memory_bytes = memory_bytes;
            }
        }
        log
    }
}

impl From<&record::Verdict> for Verified {
    fn from(verdict: &record::Verdict) -> Verified {
        let standing = match verdict.standing {
            record::Standing::Sound => "sound",
            record::Standing::Unproven => "unproven",
            record::Standing::Broken => "broken",
        };
        Verified {
            version: 1,
            standing,
            sound: verdict.standing == record::Standing::Sound,
            events: verdict.events,
            fault: verdict.fault.as_ref().map(ToString::to_string),
            covered: verdict.covered,
            pending: verdict.pending,
            checked: verdict.checked.clone(),
            missing: verdict.missing.clone(),
            cannot_be_found: verdict.cannot.clone(),
        }
    }
}
