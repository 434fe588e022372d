//! What becomes of a call.

use hotcell_engine as engine;
use hotcell_types::{CallId, Outcome, Status};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::problem::Problem;
use crate::words;

/// The one answer to a call.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Called {
    #[schemars(schema_with = "words::id")]
    pub id: CallId,
    #[schemars(schema_with = "words::status")]
    pub status: Status,
    /// What the tool gave back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<Value>,
    /// What went wrong: each by itself, the first being the one to tell.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<Problem>,
    /// The rules of the policy that spoke.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<String>,
    /// It was there already: the tool was not called.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cached: bool,
    /// What it made, and what it was given, as the ledger has it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub artifacts: Vec<Registered>,
    /// The item of the approval queue in which it waits, or waited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub review: Option<String>,
    /// What was seen of the run from outside, where there was one: docs/result.md.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "words::anything")]
    pub run: Option<Box<Outcome>>,
    /// It was told before, and nothing was carried out now: for whoever counts calls. It is not told.
    #[serde(skip)]
    pub again: bool,
}

/// Something that the ledger has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Registered {
    #[schemars(schema_with = "words::id")]
    pub id: String,
    pub name: String,
    /// What it was to the call: `script`, `input`, `output`, `file`, `stdout` or `stderr`.
    pub role: String,
    pub bytes: u64,
}

/// Of a batch: one for each request, in their order.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Calls {
    pub calls: Vec<Called>,
}

impl Called {
    /// Nothing is known but how it ended.
    pub fn new(id: CallId, status: Status) -> Called {
        Called {
            id,
            status,
            value: None,
            problems: Vec::new(),
            rules: Vec::new(),
            cached: false,
            artifacts: Vec::new(),
            review: None,
            run: None,
            again: false,
        }
    }
}

impl From<engine::Reply> for Called {
    fn from(reply: engine::Reply) -> Called {
        let engine::Reply {
            id,
            status,
            value,
            problems,
            rules,
            cached,
            artifacts,
            review,
            run,
            again,
            ..
        } = reply;
        let registered = |one: engine::Registered| Registered {
            id: one.id.to_string(),
            name: one.name,
            role: one.role.name().to_owned(),
            bytes: one.bytes,
        };
        Called {
            id,
            status,
            value,
            problems: problems.into_iter().map(Problem::from).collect(),
            rules,
            cached,
            artifacts: artifacts.into_iter().map(registered).collect(),
            review: review.map(|item| item.to_string()),
            run,
            again,
        }
    }
}
