//! The rules of a policy, ready to be asked.

use hotcell_request::Call;
use hotcell_types::{Decision, Effect};

use crate::{Facts, Spoken};

/// One version of a policy. Never changes: another policy is another snapshot.
#[derive(Debug, Clone)]
pub struct Snapshot {
    name: &'static str,
    rules: &'static [Rule],
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

impl Snapshot {
    /// The policy of a home without one.
    pub fn built_in() -> Snapshot {
        Snapshot { name: "built-in 1", rules: BUILT_IN }
    }

    /// Which version this is, for the record.
    pub fn name(&self) -> &str {
        self.name
    }

    /// What every rule says that does not abstain.
    pub(crate) fn speak(&self, call: &Call, _facts: &Facts) -> Vec<Spoken> {
        let speaking = self.rules.iter().filter(|rule| (rule.matches)(call));
        speaking
            .map(|rule| Spoken {
                rule: rule.name.into(),
                decision: rule.decision,
                reason: rule.reason.into(),
            })
            .collect()
    }
}
