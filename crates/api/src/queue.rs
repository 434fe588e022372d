//! What waits for somebody to agree.

use hotcell_approver::{Signature, Verdict};
use hotcell_engine::Queued;
use hotcell_review as review;
use hotcell_types::{CallId, Caller, hex};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::problem::Problem;
use crate::words;

/// A call that somebody has to agree to, and what became of that.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Item {
    pub version: u32,
    pub id: String,
    /// Why it is here: `review` (rules ask for it), `blocked` (its caller asks for it) or `policy`.
    pub kind: &'static str,
    pub state: &'static str,
    #[schemars(schema_with = "words::id")]
    pub call: CallId,
    pub tool: String,
    pub operation: String,
    #[schemars(schema_with = "words::caller")]
    pub caller: Caller,
    /// Exactly what would be carried out, with what is secret left out.
    #[schemars(schema_with = "words::anything")]
    pub arguments: Value,
    pub call_sha256: String,
    pub rules: Vec<Rule>,
    pub asked_ns: i64,
    /// From then on nobody can answer.
    pub expires_ns: i64,
    pub answer: Option<Answered>,
    #[schemars(schema_with = "words::maybe_id")]
    pub used_by: Option<CallId>,
    /// What it would change in the workspace, where that can be told before.
    pub difference: Option<String>,
}

/// A rule that asked, and why.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Rule {
    pub name: String,
    pub reason: String,
}

#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Answered {
    /// `approve` or `reject`.
    pub verdict: &'static str,
    pub by: String,
    /// The fingerprint of the key.
    pub approver: String,
    pub reason: String,
    pub time_ns: i64,
    pub expires_ns: i64,
}

/// Those that wait first.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Items {
    pub version: u32,
    pub items: Vec<Item>,
    /// What to give as `after` for those that follow.
    pub next: Option<String>,
}

/// An answer that an approver has signed (docs/approvals.md).
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Given {
    /// `approve` or `reject`.
    pub verdict: String,
    #[serde(default)]
    pub reason: String,
    pub time_ns: i64,
    pub expires_ns: i64,
    pub approver: String,
    /// 128 hexadecimal digits.
    pub signature: String,
}

impl Item {
    /// With the exact call, where it is still there.
    pub fn of(item: &review::Item, queued: Option<&Queued>) -> Item {
        let shown = || serde_json::from_str(&item.shown).unwrap_or_default();
        let rule =
            |rule: &review::Rule| Rule { name: rule.name.clone(), reason: rule.reason.clone() };
        Item {
            version: 1,
            id: item.id.to_string(),
            kind: item.kind.name(),
            state: item.state.name(),
            call: item.call,
            tool: item.tool.clone(),
            operation: item.operation.clone(),
            caller: item.caller.clone(),
            arguments: queued.and_then(|queued| queued.call.clone()).unwrap_or_else(shown),
            call_sha256: item.call_digest.to_string(),
            rules: item.rules.iter().map(rule).collect(),
            asked_ns: item.asked,
            expires_ns: item.expires,
            answer: item.answer.as_ref().map(Answered::from),
            used_by: item.used.map(|(_, call)| call),
            difference: queued.and_then(|queued| queued.difference.clone()),
        }
    }
}

impl From<&review::Answered> for Answered {
    fn from(answer: &review::Answered) -> Answered {
        let given = &answer.given;
        Answered {
            verdict: given.verdict.name(),
            by: answer.name.to_string(),
            approver: given.approver.to_string(),
            reason: given.reason.as_str().to_owned(),
            time_ns: given.time,
            expires_ns: given.expires,
        }
    }
}

impl Items {
    pub fn of(items: &[review::Item], next: Option<review::Cursor>) -> Items {
        let items = items.iter().map(|item| Item::of(item, None)).collect();
        Items { version: 1, items, next: next.map(|cursor| cursor.to_string()) }
    }
}

impl Given {
    pub(crate) fn read(&self) -> Result<review::Given, Problem> {
        let wrong = |at, why: &dyn std::fmt::Display| {
            Problem::invalid(at, "the answer cannot be read", why.to_string())
        };
        let verdict = Verdict::ALL.into_iter().find(|verdict| verdict.name() == self.verdict);
        let signature = hex::parse(&self.signature).map(Signature::from_bytes);
        Ok(review::Given {
            verdict: verdict.ok_or_else(|| wrong("/verdict", &"it is `approve` or `reject`"))?,
            reason: self.reason.parse().map_err(|error| wrong("/reason", &error))?,
            time: self.time_ns,
            expires: self.expires_ns,
            approver: self.approver.parse().map_err(|error| wrong("/approver", &error))?,
            signature: signature
                .ok_or_else(|| wrong("/signature", &"it is 64 bytes in hexadecimal"))?,
        })
    }
}
