//! The policy: what holds, what another one would decide, and changing it.

use std::collections::BTreeMap;

use hotcell_engine::policy as engine;
use hotcell_request::Label;
use hotcell_types::{CallId, Decision, Door, Name, hex};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::problem::Problem;
use crate::words;

/// A rule file, and the sources of extensions by the names that it has for them.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Rules {
    pub text: String,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub extensions: BTreeMap<String, String>,
}

/// The version that holds.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Policy {
    pub version: u32,
    /// 0 where nobody has written one.
    pub number: u64,
    pub digest: String,
    pub signed: Option<Signed>,
    pub approvers: Vec<String>,
    /// What keeps it from deciding anything, such as a copy that was changed.
    pub trouble: Option<Problem>,
    #[serde(flatten)]
    pub rules: Rules,
}

#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Signed {
    pub by: String,
    pub fingerprint: String,
    pub time_ns: i64,
}

/// Whether rules can be used.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Checked {
    pub version: u32,
    pub good: bool,
    pub rules: usize,
    pub faults: Vec<Fault>,
    pub warnings: Vec<Fault>,
    /// Files of TypeScript that they name.
    pub extensions: Vec<String>,
}

#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Fault {
    pub line: usize,
    pub column: usize,
    pub what: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub fix: String,
}

/// What is so, instead of what is known of the caller.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Suppose {
    #[schemars(with = "Vec<String>")]
    pub tags: Vec<Label>,
    pub state: Option<String>,
    pub mode: Option<String>,
    #[schemars(with = "Option<String>")]
    pub door: Option<Door>,
    #[schemars(with = "Option<String>")]
    pub subject: Option<Name>,
}

/// What every rule says of a call, and why.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Explained {
    pub version: u32,
    pub operation: String,
    /// `null` as long as an extension has to be asked.
    #[schemars(schema_with = "words::maybe_decision")]
    pub decision: Option<Decision>,
    pub reason: String,
    pub rules: Vec<RuleSaid>,
    /// The smallest rule that would allow it, where it is refused.
    pub would_allow: String,
    /// The same for people.
    pub text: String,
}

#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct RuleSaid {
    pub rule: String,
    /// What it says when it speaks.
    #[schemars(schema_with = "words::decision")]
    pub decision: Decision,
    pub spoke: bool,
}

/// Which of the last decisions rules would change.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Compared {
    pub version: u32,
    /// How many decisions were asked again.
    pub asked: usize,
    /// How many of those that were allowed would be refused.
    pub breaking: usize,
    pub changed: Vec<Changed>,
    /// Why others could not be asked again, and how many.
    pub left_out: BTreeMap<String, usize>,
}

#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Changed {
    #[schemars(schema_with = "words::id")]
    pub call: CallId,
    pub time_ns: i64,
    pub subject: String,
    pub tool: String,
    pub paths: Vec<String>,
    #[schemars(schema_with = "words::decision")]
    pub was: Decision,
    #[schemars(schema_with = "words::decision")]
    pub is: Decision,
    pub reason: String,
}

/// The smallest rules for what was refused, or approved.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Learned {
    pub version: u32,
    pub rules: String,
    pub calls: usize,
    pub left_out: BTreeMap<String, usize>,
}

/// What became of tests.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Tested {
    pub version: u32,
    pub tests: usize,
    pub failed: Vec<Fault>,
}

impl From<Rules> for engine::Rules {
    fn from(rules: Rules) -> engine::Rules {
        engine::Rules { text: rules.text, extensions: rules.extensions }
    }
}

impl From<engine::ShownPolicy> for Policy {
    fn from(shown: engine::ShownPolicy) -> Policy {
        let digest = hex::text(&shown.rules.digest());
        let signed = shown.signed.map(|(by, time_ns)| Signed {
            by: by.name().to_string(),
            fingerprint: by.fingerprint().to_string(),
            time_ns,
        });
        Policy {
            version: 1,
            number: shown.number,
            digest,
            signed,
            approvers: shown.approvers.iter().map(ToString::to_string).collect(),
            trouble: shown.trouble.map(Problem::from),
            rules: Rules { text: shown.rules.text, extensions: shown.rules.extensions },
        }
    }
}

impl From<engine::Fault> for Fault {
    fn from(fault: engine::Fault) -> Fault {
        let engine::Fault { at, what, fix } = fault;
        Fault { line: at.line, column: at.column, what, fix }
    }
}

impl Checked {
    pub fn good(checked: engine::Checked) -> Checked {
        let warning = |warning: engine::Warning| {
            let engine::Warning { at, what } = warning;
            Fault { line: at.line, column: at.column, what, fix: String::new() }
        };
        Checked {
            version: 1,
            good: true,
            rules: checked.rules,
            faults: Vec::new(),
            warnings: checked.warnings.into_iter().map(warning).collect(),
            extensions: checked.extensions,
        }
    }

    pub fn faulty(faults: Vec<engine::Fault>) -> Checked {
        let faults = faults.into_iter().map(Fault::from).collect();
        let (warnings, extensions) = (Vec::new(), Vec::new());
        Checked { version: 1, good: false, rules: 0, faults, warnings, extensions }
    }
}

impl From<Suppose> for engine::Suppose {
    fn from(suppose: Suppose) -> engine::Suppose {
        let Suppose { tags, state, mode, door, subject } = suppose;
        engine::Suppose { tags, state, mode, door, subject }
    }
}

impl Explained {
    pub fn of(explanation: &engine::Explanation, would_allow: String) -> Explained {
        let said = |one: &engine::Explained| RuleSaid {
            rule: one.rule.clone(),
            decision: one.decision,
            spoke: one.spoke(),
        };
        Explained {
            version: 1,
            operation: explanation.operation.to_string(),
            decision: explanation.decision,
            reason: explanation.reason.clone(),
            rules: explanation.rules.iter().map(said).collect(),
            would_allow,
            text: explanation.to_string(),
        }
    }
}

impl From<engine::Compared> for Compared {
    fn from(compared: engine::Compared) -> Compared {
        let breaking = compared.breaking();
        let changed = |one: engine::Changed| Changed {
            call: one.call,
            time_ns: one.time,
            subject: one.subject.to_string(),
            tool: one.tool,
            paths: one.paths,
            was: one.was,
            is: one.is,
            reason: one.reason,
        };
        Compared {
            version: 1,
            asked: compared.asked,
            breaking,
            changed: compared.changed.into_iter().map(changed).collect(),
            left_out: compared.left_out,
        }
    }
}

impl From<engine::Learned> for Learned {
    fn from(learned: engine::Learned) -> Learned {
        let engine::Learned { rules, calls, left_out } = learned;
        Learned { version: 1, rules, calls, left_out }
    }
}

impl Tested {
    pub fn of(tested: Vec<engine::Tested>) -> Tested {
        let tests = tested.len();
        let failed = |one: engine::Tested| {
            let what = format!("{}: {}", one.call, one.wrong?);
            Some(Fault { line: one.at.line, column: one.at.column, what, fix: String::new() })
        };
        Tested { version: 1, tests, failed: tested.into_iter().filter_map(failed).collect() }
    }
}
