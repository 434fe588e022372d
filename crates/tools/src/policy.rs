//! Proposing another policy. It always waits for an approver, whose signature of that very policy is what
//! changes it: nobody carries the call out in any other way.

use std::collections::BTreeMap;

use hotcell_request::{Effect, Fault, Spec, Tool, ToolError};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::spec::{read, spec, tool_of};

pub const NAME: &str = "policy.update";

/// Most characters of the rules, and of the source of an extension.
const TEXT_MOST: usize = 1 << 20;

/// The arguments.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct Update {
    /// All of the rule file, as YAML.
    #[schemars(length(max = TEXT_MOST))]
    pub rules: String,
    /// Sources of the extensions that the rules name.
    #[serde(default)]
    pub extensions: BTreeMap<String, String>,
}

impl Update {
    /// What a call proposes.
    pub fn of(arguments: &Value) -> Result<Update, ToolError> {
        read(arguments.clone())
    }
}

#[derive(Serialize, JsonSchema)]
struct Updated {
    /// Which version of the policy it is.
    version: u64,
}

pub(crate) const SPEC: Spec = spec(
    NAME,
    "policy",
    &[Effect::Write],
    "Proposes another policy. It waits until an approver agrees and signs it; a policy that cannot be \
     used is refused at once.",
);

pub(crate) fn tool() -> Result<Tool, Fault> {
    let example = json!({"rules": "approvers: []\nrules: []\n", "extensions": {}});
    tool_of::<Update, Updated>(&SPEC, [(example, json!({"version": 2}))])
}
