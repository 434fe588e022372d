//! A call as the record tells it: every event about it is made here.

use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};
use std::time::Instant;

use hotcell_policy::{Account, Facts};
use hotcell_record::{Draft, Kind, Payload, Redactor, Secret, now};
use hotcell_request::{Call, ToolName, canonical};
use hotcell_types::{CallId, Caller, Decision, Status};
use serde_json::Value;

use crate::artifacts::Origin;
use crate::ended;
use crate::path::Done;
use crate::reply::Problem;
use crate::rulebook::Book;

/// What all events of one call have in common.
pub(crate) struct Story<'a> {
    call: &'a Call,
    facts: &'a Facts,
    begun: Instant,
    rules: Vec<String>,
    reason: String,
    /// The arguments, with what is secret left out.
    input: Value,
    secrets: Vec<String>,
    /// What the policy that judged it says is secret, where that is more than is usual.
    hidden: Option<Arc<Redactor>>,
    /// What was shown for it: the id of a token, or of an item that somebody agreed to.
    bearer: Option<String>,
}

impl<'a> Story<'a> {
    pub(crate) fn new(
        call: &'a Call,
        facts: &'a Facts,
        account: &Account<'_>,
        book: &Book,
    ) -> Story<'a> {
        let (rules, reason) = (account.rules(), account.reason());
        let (input, hidden) = (call.redacted_args(), book.hidden.clone());
        let secrets = secrets(call.args(), &input);
        let (begun, bearer) = (Instant::now(), None);
        Story { call, facts, begun, rules, reason, input, secrets, hidden, bearer }
    }

    pub(crate) fn with_bearer(self, bearer: Option<String>) -> Story<'a> {
        Story { bearer, ..self }
    }

    /// These are in no event about it either.
    pub(crate) fn hiding(mut self, secrets: Vec<String>) -> Story<'a> {
        self.secrets.extend(secrets);
        self
    }

    pub(crate) fn rules(&self) -> Vec<String> {
        self.rules.clone()
    }

    /// Where what it made comes from.
    pub(crate) fn origin(&self) -> Origin {
        let (call, caller) = (self.call.id(), self.call.caller().clone());
        let tool = Some(self.call.tool().label().to_owned());
        Origin { call, caller, tool, time: self.facts.now }
    }

    /// What is in no event about it.
    pub(crate) fn secrets(&self) -> Vec<Secret> {
        self.secrets.iter().map(Secret::new).collect()
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
    pub(crate) fn refusal(&self, decision: Decision) -> Draft {
        let kind = match decision {
            Decision::Review => Kind::Review,
            Decision::Deny | Decision::Allow => Kind::Denied,
        };
        Draft { status: Some(refused_as(decision)), ..self.judged(kind, decision) }
    }

    /// It was allowed, and something else of the operator's is against it.
    pub(crate) fn not_begun(&self, problem: &Problem) -> Draft {
        let reason = Some(format!("{}: {}", problem.what, problem.why));
        Draft { reason, ..self.refusal(Decision::Deny) }
    }

    /// What is not for the disk: what the call says is secret, and what looks like a key.
    pub(crate) fn hidden(&self) -> Arc<Redactor> {
        let known = self.hidden.as_ref().unwrap_or(&USUAL);
        if self.secrets.is_empty() {
            return Arc::clone(known);
        }
        Arc::new(known.with(&self.secrets()))
    }

    /// What is in no event about it, of the policy that judged it.
    pub(crate) fn hides(&self) -> Option<Arc<Redactor>> {
        self.hidden.clone()
    }

    /// A document that can still be read, whatever the policy takes out of it. The usual is taken out of its
    /// bytes by the record.
    fn document(&self, value: &Value) -> Payload {
        match &self.hidden {
            Some(hidden) => json(&hidden.redact_json(value)),
            None => json(value),
        }
    }

    fn judged(&self, kind: Kind, decision: Decision) -> Draft {
        let mut draft = self.draft(kind, self.facts.now);
        draft.mode = self.facts.mode.clone();
        draft.state = self.facts.state.clone();
        draft.input = Some(self.document(&self.input));
        draft.request = self.call.key().map(|key| key.as_str().to_owned());
        draft.decision = Some(decision);
        draft.bearer = self.bearer.clone();
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
        draft.output = ended::document(done).map(|output| self.document(&output));
        draft
    }

    fn draft(&self, kind: Kind, time: i64) -> Draft {
        let mut draft = Draft::new(kind, self.call.caller().clone(), time);
        draft.call = Some(self.call.id());
        draft.parent = self.call.parent();
        draft.operation = Some(self.call.operation().to_string());
        draft.tool = Some(self.call.tool().label().to_owned());
        draft.secrets = self.secrets();
        draft.hidden = self.hides();
        draft
    }
}

/// A call that nobody could decide about. Its arguments are not told: what is secret in them is for the policy
/// to say, and there is none that can be used.
pub(crate) fn undecided(call: &Call, problem: &Problem) -> Draft {
    Draft {
        call: Some(call.id()),
        parent: call.parent(),
        tool: Some(call.tool().label().to_owned()),
        ..refusal(call.caller(), &call.operation().to_string(), problem)
    }
}

/// A call that ended before anybody judged it. Its arguments are not told either.
pub(crate) fn unjudged(
    id: CallId,
    caller: &Caller,
    tool: &ToolName,
    status: Status,
    reason: String,
) -> Draft {
    Draft {
        call: Some(id),
        operation: Some(tool.to_string()),
        status: Some(status),
        reason: Some(reason),
        ..Draft::new(Kind::Called, caller.clone(), now())
    }
}

/// Something was refused that is no call of a tool, or none that can be told.
pub(crate) fn refusal(caller: &Caller, operation: &str, problem: &Problem) -> Draft {
    Draft {
        operation: Some(operation.to_owned()),
        decision: Some(Decision::Deny),
        status: Some(problem.status()),
        reason: Some(format!("{}: {}", problem.what, problem.why)),
        ..Draft::new(Kind::Denied, caller.clone(), now())
    }
}

/// What looks like a key, whoever calls.
static USUAL: LazyLock<Arc<Redactor>> = LazyLock::new(|| Arc::new(Redactor::new(&[])));

/// How a call ends that is not allowed.
pub(crate) fn refused_as(decision: Decision) -> Status {
    match decision {
        Decision::Review => Status::Review,
        Decision::Deny | Decision::Allow => Status::Blocked,
    }
}

fn json(value: &Value) -> Payload {
    Payload { media: "application/json".into(), content: canonical::bytes(value) }
}

/// Most secrets of one call. Each is looked for in everything that is recorded of it; a call with more of them is
/// refused, since none may be recorded.
pub(crate) const SECRETS_MOST: usize = 1024;

/// What the value of an argument, a variable or a header is called when it is not for others to read.
const SECRET_NAMES: [&str; 8] = [
    "token",
    "secret",
    "password",
    "passwd",
    "credential",
    "api_key",
    "private_key",
    "authorization",
];

/// Whether it has more of them than can be looked for. Mostly it has not even so many texts.
pub(crate) fn has_too_many_secrets(call: &Call) -> bool {
    texts(call.args()) > SECRETS_MOST
        && secrets(call.args(), &call.redacted_args()).len() > SECRETS_MOST
}

fn texts(value: &Value) -> usize {
    match value {
        Value::String(_) => 1,
        Value::Array(items) => items.iter().map(texts).sum(),
        Value::Object(members) => members.values().map(texts).sum(),
        _ => 0,
    }
}

/// Values that the tool says are secret, or whose names do: each once. They are in no event, wherever a program
/// says them again.
fn secrets(args: &Value, redacted: &Value) -> Vec<String> {
    let mut found = BTreeSet::new();
    let mut left = vec![(args, Some(redacted), false)];
    while let Some((value, redacted, is_secret)) = left.pop() {
        match value {
            Value::String(text) if is_secret || redacted.is_some_and(|other| other != value) => {
                found.insert(text.as_str());
            }
            Value::Array(items) => {
                let of = |at: usize| redacted.and_then(|value| value.get(at));
                left.extend(items.iter().enumerate().map(|(at, item)| (item, of(at), is_secret)));
            }
            Value::Object(members) => left.extend(members.iter().map(|(name, member)| {
                let redacted = redacted.and_then(|value| value.get(name));
                (member, redacted, is_secret || is_secret_name(name))
            })),
            _ => {}
        }
    }
    found.into_iter().map(str::to_owned).collect()
}

fn is_secret_name(name: &str) -> bool {
    let name = name.to_lowercase().replace('-', "_");
    SECRET_NAMES.iter().any(|secret| name.contains(secret)) || name.ends_with("apikey")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_declared_secret_or_called_so_is_found_wherever_it_is() {
        let args = json!({
            "env": {"GITHUB_TOKEN": "one", "PATH": "/bin", "MY_API_KEY": "two", "tokens": ["three"]},
            "headers": [{"Authorization": "four", "Accept": "all"}],
            "pin": "five",
            "password": 6,
        });
        let redacted = json!({"env": {}, "headers": [{}], "pin": "[secret]"});
        let found = secrets(&args, &redacted);
        assert_eq!(found.len(), 5, "{found:?}");
        let many: Vec<String> = (0..5000).map(|n| (n % 2500).to_string()).collect();
        assert_eq!(secrets(&json!({ "token": many }), &Value::Null).len(), 2500, "all, each once");
    }
}
