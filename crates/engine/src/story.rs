//! A call as the record tells it: every event about it is made here.

use std::time::Instant;

use hotcell_policy::{Account, Facts};
use hotcell_record::{Draft, Kind, Payload, now};
use hotcell_request::{Call, canonical};
use hotcell_types::{Decision, Status};
use serde_json::Value;

use crate::artifacts::Origin;
use crate::ended;
use crate::path::Done;

/// What all events of one call have in common.
pub(crate) struct Story<'a> {
    call: &'a Call,
    facts: &'a Facts,
    begun: Instant,
    rules: Vec<String>,
    reason: String,
}

impl<'a> Story<'a> {
    pub(crate) fn new(call: &'a Call, facts: &'a Facts, account: &Account) -> Story<'a> {
        let (rules, reason) = (account.rules(), account.reason());
        Story { call, facts, begun: Instant::now(), rules, reason }
    }

    pub(crate) fn rules(&self) -> Vec<String> {
        self.rules.clone()
    }

    /// Where what it made comes from.
    pub(crate) fn origin(&self) -> Origin {
        let (call, caller) = (self.call.id(), self.call.caller().clone());
        Origin { call, caller, tool: Some(tool_of(self.call)), time: self.facts.now }
    }

    pub(crate) fn begun(&self) -> Instant {
        self.begun
    }

    /// It is about to be carried out.
    pub(crate) fn intent(&self) -> Draft {
        self.judged(Kind::Intent, Decision::Allow)
    }

    /// It was carried out.
    pub(crate) fn outcome(&self, done: &Done) -> Draft {
        self.with_end(self.draft(Kind::Outcome, now()), done)
    }

    /// It was carried out and changed nothing: one event for both.
    pub(crate) fn called(&self, done: &Done) -> Draft {
        let judged = self.judged(Kind::Called, Decision::Allow);
        self.with_end(Draft { reason: None, ..judged }, done)
    }

    /// It was not carried out.
    pub(crate) fn refusal(&self, kind: Kind, decision: Decision, status: Status) -> Draft {
        Draft { status: Some(status), ..self.judged(kind, decision) }
    }

    fn judged(&self, kind: Kind, decision: Decision) -> Draft {
        let mut draft = self.draft(kind, self.facts.now);
        draft.mode = self.facts.mode.clone();
        draft.state = self.facts.state.clone();
        draft.input = Some(json(&self.call.redacted_args()));
        draft.request = self.call.key().map(|key| key.as_str().to_owned());
        draft.decision = Some(decision);
        draft.rules = self.rules.clone();
        draft.reason = Some(self.reason.clone());
        draft
    }

    fn with_end(&self, mut draft: Draft, done: &Done) -> Draft {
        draft.status = Some(done.status);
        let problem = done.problem.as_ref();
        draft.reason = problem.map(|problem| format!("{}: {}", problem.what, problem.why));
        let nanos = u64::try_from(self.begun.elapsed().as_nanos());
        draft.duration_ns = Some(nanos.unwrap_or(u64::MAX));
        draft.sandbox = done.run.as_ref().map(|run| run.level.to_string());
        draft.output = ended::document(done).as_ref().map(json);
        draft
    }

    fn draft(&self, kind: Kind, time: i64) -> Draft {
        let mut draft = Draft::new(kind, self.call.caller().clone(), time);
        draft.call = Some(self.call.id());
        draft.parent = self.call.parent();
        draft.operation = Some(self.call.operation().to_string());
        draft.tool = Some(tool_of(self.call));
        draft
    }
}

/// `name@version`.
pub(crate) fn tool_of(call: &Call) -> String {
    format!("{}@{}", call.name(), call.version())
}

fn json(value: &Value) -> Payload {
    Payload { media: "application/json".into(), content: canonical::bytes(value) }
}
