//! The rules of a policy, ready to be asked.

use hotcell_request::Call;
use hotcell_types::{Decision, Effect};

use crate::{Facts, Spoken};

/// One version of a policy. Never changes: another policy is another snapshot.
#[derive(Debug, Clone)]
pub struct Snapshot {
    name: &'static str,
    rules: Vec<&'static [Rule]>,
}

#[derive(Debug)]
struct Rule {
    name: &'static str,
    reason: &'static str,
    decision: Decision,
    matches: fn(&Call) -> bool,
}

/// What holds where nobody has written a policy: nothing outside a sandbox is changed.
const BUILT_IN: &[Rule] = &[
    Rule {
        name: "pure-tools",
        reason: "it depends on its arguments alone",
        decision: Decision::Allow,
        matches: |call| call.effects().has(Effect::Pure),
    },
    Rule {
        name: "read-tools",
        reason: "it only reads",
        decision: Decision::Allow,
        matches: |call| {
            let effects = call.effects();
            effects.has(Effect::Read) && !effects.can_change_something()
        },
    },
    Rule {
        name: "code-in-a-sandbox",
        reason: "it runs in a sandbox without a network, and only files that it made come back",
        decision: Decision::Allow,
        matches: |call| {
            call.operation().bare() == "code.execute" && call.operation().namespace().is_none()
        },
    },
];

/// What others execute without being asked: hooks of version control, and hotcell's own settings.
const SELF_STARTING: &[&str] = &[".git/hooks", ".git/config", ".hotcell"];

/// What is added where whoever embeds hotcell lets runs change the workspace.
const WORKSPACE_WRITES: &[Rule] = &[
    Rule {
        name: "workspace-writes",
        reason: "it works on a copy, and what it changed is judged path by path",
        decision: Decision::Allow,
        matches: |call| call.effects().has(Effect::Write) && !call.effects().has(Effect::Network),
    },
    Rule {
        name: "nothing-that-starts-itself",
        reason: "somebody else would execute it without being asked",
        decision: Decision::Deny,
        matches: |call| {
            call.effects().has(Effect::Write) && call.paths().into_iter().any(starts_itself)
        },
    },
];

/// Whether a path is one of those, or lies in one, in whatever directory that is.
fn starts_itself(path: &str) -> bool {
    let path = format!("/{}/", path.to_lowercase());
    SELF_STARTING.iter().any(|place| path.contains(&format!("/{place}/")))
}

impl Snapshot {
    /// The policy of a home without one.
    pub fn built_in() -> Snapshot {
        Snapshot { name: "built-in 1", rules: vec![BUILT_IN] }
    }

    /// The same, and what runs change in a copy of the workspace is brought back, except where somebody
    /// else would execute it without being asked. For who embeds hotcell and owns the workspace.
    pub fn with_workspace_writes() -> Snapshot {
        Snapshot { name: "built-in 1, with writes", rules: vec![BUILT_IN, WORKSPACE_WRITES] }
    }

    /// Which version this is, for the record.
    pub fn name(&self) -> &str {
        self.name
    }

    /// What every rule says that does not abstain.
    pub(crate) fn speak(&self, call: &Call, _facts: &Facts) -> Vec<Spoken> {
        let speaking = self.rules.iter().copied().flatten().filter(|rule| (rule.matches)(call));
        speaking
            .map(|rule| Spoken {
                rule: rule.name.into(),
                decision: rule.decision,
                reason: rule.reason.into(),
            })
            .collect()
    }
}
