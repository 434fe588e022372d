//! What can come of calls of a tool, before there is one: for whoever lists tools. It says "never" only
//! where it is sure, and decides nothing.

use hotcell_request::{Label, Tool, ToolName};
use hotcell_types::{Caller, Decision};

use crate::condition::Condition;
use crate::rule::Rule;
use crate::snapshot::Snapshot;

/// The best that a caller can hope for with a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outlook {
    /// A rule denies every call of it, whatever its arguments are.
    Never,
    /// No rule speaks for it. Only a person could agree, if the caller asks for one.
    Unspoken,
    /// Some call of it could be allowed, or put before a person.
    Possible,
}

impl Outlook {
    pub fn name(self) -> &'static str {
        match self {
            Outlook::Never => "never",
            Outlook::Unspoken => "unspoken",
            Outlook::Possible => "possible",
        }
    }
}

impl Snapshot {
    /// What somebody with these tags can hope for. Paths, hosts, arguments, state and mode are open.
    pub fn outlook(&self, tool: &Tool, caller: &Caller, tags: &[Label]) -> Outlook {
        let of = Of { tool, caller, tags };
        let about = || self.rules().iter().filter(|rule| of.could_meet(&rule.matching));
        if about().any(denies_all) {
            return Outlook::Never;
        }
        // A built-in rule has every change of the policy looked at.
        let is_proposal = tool.operation().bare() == "policy.update";
        let is_spoken_for = about().any(|rule| rule.decision != Decision::Deny);
        if is_proposal || is_spoken_for || !self.extensions().is_empty() {
            Outlook::Possible
        } else {
            Outlook::Unspoken
        }
    }
}

/// Whether a rule that is about a tool denies each of its calls.
fn denies_all(rule: &Rule) -> bool {
    let Condition { path, host, method, state, mode, .. } = &rule.matching;
    let is_open = path.is_none() && host.is_none() && method.is_none();
    let is_always = state.is_none() && mode.is_none() && rule.when.is_none();
    rule.decision == Decision::Deny && is_open && is_always && rule.except.is_empty()
}

struct Of<'a> {
    tool: &'a Tool,
    caller: &'a Caller,
    tags: &'a [Label],
}

impl Of<'_> {
    /// Whether a condition holds as far as it is about the tool and the caller.
    fn could_meet(&self, condition: &Condition) -> bool {
        let Of { tool, caller, tags } = self;
        let has = |list: &Option<Vec<ToolName>>, name: &ToolName| {
            list.as_ref().is_none_or(|list| list.contains(name))
        };
        has(&condition.operation, tool.operation())
            && has(&condition.tool, &tool.name)
            && condition.door.as_ref().is_none_or(|doors| doors.contains(&caller.door))
            && condition.tag.as_ref().is_none_or(|list| tags.iter().any(|tag| list.contains(tag)))
            && condition
                .effect
                .as_ref()
                .is_none_or(|list| tool.effects.iter().all(|effect| list.contains(&effect)))
    }
}

#[cfg(test)]
mod tests {
    use hotcell_request::{Tools, Version};
    use hotcell_types::{Door, Effect, Name};
    use serde_json::json;

    use super::*;

    fn outlook(rules: &str, name: &str, effects: &[Effect], tags: &[&str]) -> Outlook {
        let text = format!("version: 1\nrules:\n{rules}");
        let snapshot = Snapshot::load(text.as_bytes(), &Tools::default()).unwrap().snapshot;
        let version = Version { major: 1, minor: 0, patch: 0 };
        let description = "does something".parse().unwrap();
        let effects = effects.iter().copied().collect();
        let input = json!({"type": "object"});
        let tool = Tool::new(name.parse().unwrap(), version, description, input, effects);
        let tags: Vec<Label> = tags.iter().map(|tag| tag.parse().unwrap()).collect();
        snapshot.outlook(&tool, &Caller::local(Name::LOCAL, Door::Mcp), &tags)
    }

    #[test]
    fn it_says_never_only_where_every_call_is_denied() {
        use Outlook::{Never, Possible, Unspoken};
        let allow = "  - { name: a, match: { operation: x }, action: allow }\n";
        for (rules, expected) in [
            ("  []\n", Unspoken),
            (allow, Possible),
            ("  - { name: a, match: { operation: y }, action: allow }\n", Unspoken),
            ("  - { name: a, match: { operation: x }, action: require_review }\n", Possible),
            ("  - { name: a, match: { operation: x, path: [\"/a\"] }, action: allow }\n", Possible),
            ("  - { name: a, match: { operation: x, door: cli }, action: allow }\n", Unspoken),
            ("  - { name: a, match: { operation: x, door: mcp }, action: allow }\n", Possible),
            ("  - { name: a, match: { operation: x, tag: admin }, action: allow }\n", Unspoken),
            ("  - { name: a, match: { operation: x, tag: dev }, action: allow }\n", Possible),
            ("  - { name: a, match: { effect: pure }, action: allow }\n", Unspoken),
            ("  - { name: a, match: { effect: [read, write] }, action: allow }\n", Possible),
            ("  - { name: d, match: { operation: x }, action: deny }\n", Never),
            (
                "  - { name: a, match: { operation: x }, action: allow }\n  \
                 - { name: d, match: { operation: x, path: [\"/a\"] }, action: deny }\n",
                Possible,
            ),
            (
                "  - { name: a, match: { operation: x }, action: allow }\n  \
                 - { name: d, match: { effect: write }, action: deny }\n",
                Never,
            ),
            (
                "  - { name: a, match: { operation: x }, action: allow }\n  \
                 - { name: d, match: { operation: x, door: rest }, action: deny }\n",
                Possible,
            ),
        ] {
            assert_eq!(outlook(rules, "x", &[Effect::Write], &["dev"]), expected, "{rules}");
        }
    }

    #[test]
    fn a_proposal_of_another_policy_is_always_looked_at() {
        assert_eq!(outlook("  []\n", "policy.update", &[Effect::Write], &[]), Outlook::Possible);
    }
}
