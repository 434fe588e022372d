//! Everything that is known of one call, from the record and the ledger.

use hotcell_ledger::{self as ledger, Artifact, Page};
use hotcell_record::{Event, Filter, Kind, ReadError, Record, Summary};
use hotcell_types::{CallId, Caller, Status};
use serde_json::Value;

use crate::artifacts::{LookError, not_read};
use crate::engine::Engine;
use crate::reply::{Problem, ProblemKind};

/// Most events and artifacts of a call that are shown. A call has no more than two thousand of each.
const MOST_SHOWN: usize = 4096;
/// Most calls that one made and that are shown.
const MOST_CHILDREN: usize = 1000;

/// A call, as far as it has come.
#[derive(Debug)]
pub struct Shown {
    pub id: CallId,
    /// What was asked for, and what was decided: an intent, a refusal, both ends in one, or that it waits
    /// for somebody to agree.
    pub begin: Event,
    /// What became of it, unless it still goes on or waits.
    pub end: Option<Event>,
    pub arguments: Kept,
    /// A document with `value` and `run` (docs/record-format.md).
    pub result: Kept,
    /// What it was given and what it made, in the order of registration.
    pub artifacts: Vec<Artifact>,
    pub events: Vec<Event>,
    /// The calls that were made by it, or again after it.
    pub children: Vec<CallId>,
}

/// What is left of a payload.
#[derive(Debug, Clone, PartialEq)]
pub enum Kept {
    /// There was none.
    None,
    Whole(Value),
    /// Only its beginning was kept.
    Cut,
    /// It was removed to make room.
    Pruned,
}

impl Kept {
    pub fn value(&self) -> Option<&Value> {
        match self {
            Kept::Whole(value) => Some(value),
            _ => None,
        }
    }

    /// Why there is nothing to see.
    pub fn why_not(&self) -> Option<&'static str> {
        match self {
            Kept::None | Kept::Whole(_) => None,
            Kept::Cut => Some("it was too large to be kept as a whole"),
            Kept::Pruned => Some("it was removed to make room"),
        }
    }
}

impl Shown {
    /// `None` while it goes on.
    pub fn status(&self) -> Option<Status> {
        match &self.end {
            Some(end) => end.status,
            None => (self.begin.kind == Kind::Review).then_some(Status::Review),
        }
    }

    /// What happened to it while it waited for somebody to agree, in order.
    pub fn reviews(&self) -> impl Iterator<Item = &Event> {
        self.events.iter().filter(|event| event.kind == Kind::Review)
    }
}

impl Engine {
    pub(crate) fn show(&self, caller: &Caller, id: CallId) -> Result<Shown, Problem> {
        let record = self.recording()?;
        shown(record, caller, id).map_err(|error| not_read(&error))?.ok_or_else(|| no_call(id))
    }
}

/// Also what is said of a call of somebody else.
pub(crate) fn no_call(id: CallId) -> Problem {
    Problem::new(format!("there is no call {id}"), "", "`hotcell runs` lists them")
        .of(ProblemKind::NotFound)
}

fn shown(record: &Record, caller: &Caller, id: CallId) -> Result<Option<Shown>, LookError> {
    let events = events_of(record, caller, id)?;
    let Some(begin) = begin(&events).cloned() else { return Ok(None) };
    let end = match begin.kind {
        Kind::Intent => events.iter().find(|event| event.kind.is_end()).cloned(),
        Kind::Review => events.iter().rfind(|event| ends_waiting(event)).cloned(),
        _ => Some(begin.clone()),
    };
    // What waited was described when it began to.
    let asked = if begin.input.is_some() { Some(&begin) } else { first_review(&events) };
    let asked = asked.unwrap_or(&begin);
    let arguments = kept(asked.input.as_ref(), || record.input(asked))?;
    let result = match &end {
        // That tells of the item, and not of a result.
        Some(end) if end.kind == Kind::Review => Kept::None,
        Some(end) => kept(end.output.as_ref(), || record.output(end))?,
        None => Kept::None,
    };
    let made_later = Filter {
        parent: Some(id),
        after: begin.seq,
        limit: MOST_CHILDREN,
        ..Filter::of(caller.tenant.clone())
    };
    let mut children: Vec<CallId> =
        record.events(&made_later)?.iter().filter_map(|event| event.call).collect();
    children.sort();
    children.dedup();
    let artifacts = artifacts_of(record, caller, id)?;
    Ok(Some(Shown { id, begin, end, arguments, result, artifacts, events, children }))
}

/// A call can wait before it is begun, and be refused in between.
fn begin(events: &[Event]) -> Option<&Event> {
    let intent = events.iter().find(|event| event.kind == Kind::Intent);
    let alone = || events.iter().rfind(|event| matches!(event.kind, Kind::Called | Kind::Denied));
    intent.or_else(alone).or_else(|| first_review(events))
}

fn first_review(events: &[Event]) -> Option<&Event> {
    events.iter().find(|event| event.kind == Kind::Review)
}

/// Rejected, expired or cancelled.
fn ends_waiting(event: &Event) -> bool {
    event.kind == Kind::Review && event.status.is_some_and(|status| status != Status::Review)
}

fn events_of(record: &Record, caller: &Caller, id: CallId) -> Result<Vec<Event>, LookError> {
    let mut filter = Filter { call: Some(id), ..Filter::of(caller.tenant.clone()) };
    let mut events = Vec::new();
    while events.len() < MOST_SHOWN {
        let page = record.events(&filter)?;
        let Some(last) = page.last() else { break };
        filter.after = last.seq;
        events.extend(page);
    }
    Ok(events)
}

pub(crate) fn artifacts_of(
    record: &Record,
    caller: &Caller,
    id: CallId,
) -> Result<Vec<Artifact>, LookError> {
    record.look(|conn| {
        if !ledger::is_current(conn)? {
            return Ok(Vec::new());
        }
        let filter = ledger::Filter { call: Some(id), ..ledger::Filter::of(caller.tenant.clone()) };
        let mut page = Page::first(ledger::MAX_PAGE);
        let mut artifacts: Vec<Artifact> = Vec::new();
        while artifacts.len() < MOST_SHOWN {
            let some = ledger::list(conn, &filter, page)?;
            let Some(last) = some.last() else { break };
            page.after = Some(last.id);
            artifacts.extend(some);
        }
        artifacts.reverse();
        Ok(artifacts)
    })
}

fn kept(
    summary: Option<&Summary>,
    content: impl FnOnce() -> Result<Option<Vec<u8>>, ReadError>,
) -> Result<Kept, LookError> {
    if summary.is_none() {
        return Ok(Kept::None);
    }
    let Some(content) = content()? else { return Ok(Kept::Pruned) };
    // What was recorded whole was written by us; what a secret was taken out of is still JSON.
    Ok(serde_json::from_slice(&content).map_or(Kept::Cut, Kept::Whole))
}
