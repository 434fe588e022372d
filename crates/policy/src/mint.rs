//! Whether a policy allows everything that a token would give. Sound: where it is not sure, it says no.

use hotcell_glob::Glob;
use hotcell_request::{Call, ToolName};
use hotcell_types::{Decision, Door, Effects};

use crate::condition::Condition;
use crate::constraints::{Constraints, TwoSandboxes};
use crate::facts::Facts;
use crate::rule::{Answer, Rule};
use crate::snapshot::Snapshot;
use crate::subject::Subject;

/// The calls that a token would be for: of one tool, through one door, with these facts.
#[derive(Debug, Clone)]
pub struct Scope<'a> {
    pub operation: &'a ToolName,
    pub tool: &'a ToolName,
    pub effects: Effects,
    pub door: Door,
    /// Each call has at least one path, and each path matches one of these. If there are none, no call has
    /// a path. Hosts and methods are open.
    pub paths: Vec<Glob>,
    /// Tags, state and mode.
    pub facts: &'a Facts,
    /// If the arguments are fixed as well, the only call there is; its paths count then.
    pub call: Option<&'a Call>,
}

/// Why a token would give more than the policy surely allows.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotCovered {
    #[error("no rule allows all of it")]
    NoRule,
    #[error("the rule `{0}` could deny some of it, or ask for somebody to agree")]
    Against(String),
    #[error("`when` of the rule `{0}` depends on arguments, and they are not fixed")]
    When(String),
    #[error("the extensions of the policy are asked for each call")]
    Extension,
    #[error(transparent)]
    TwoSandboxes(#[from] TwoSandboxes),
}

impl Snapshot {
    /// What a token for all of these calls has to be bound to, if every one of them would be allowed. A rule
    /// with `token: required` counts. Built-in rules do not: they are asked even with a token.
    pub fn allows_all_of(&self, scope: &Scope<'_>) -> Result<Constraints, NotCovered> {
        if !self.extensions().is_empty() {
            return Err(NotCovered::Extension);
        }
        let subject = scope.call.map(|call| Subject::new(call, scope.facts));
        let (mut allowed, mut constraints) = (false, Constraints::default());
        for rule in self.rules() {
            let said = match &subject {
                Some(subject) => asked(rule, subject)?,
                None => scope.asked(rule)?,
            };
            if said != Said::Nothing {
                constraints = constraints.and(rule.constraints)?;
            }
            allowed |= said == Said::AllowsAll;
        }
        if allowed { Ok(constraints) } else { Err(NotCovered::NoRule) }
    }
}

/// What a rule that stands against nothing says of a scope.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Said {
    Nothing,
    AllowsSome,
    AllowsAll,
}

fn asked(rule: &Rule, subject: &Subject<'_>) -> Result<Said, NotCovered> {
    match rule.ask(subject) {
        Answer::Speaks if rule.decision == Decision::Allow => Ok(Said::AllowsAll),
        Answer::Speaks | Answer::Failed(_) => Err(NotCovered::Against(rule.name.to_string())),
        Answer::Unmet(_) | Answer::Excepted(_) | Answer::Not | Answer::Unseen(_) => {
            Ok(Said::Nothing)
        }
    }
}

impl Scope<'_> {
    fn asked(&self, rule: &Rule) -> Result<Said, NotCovered> {
        let exempt = rule.except.iter().any(|item| self.is_within(item));
        if exempt || !self.meets(&rule.matching) {
            return Ok(Said::Nothing);
        }
        if rule.when.is_some() {
            return Err(NotCovered::When(rule.name.to_string()));
        }
        if rule.decision != Decision::Allow {
            return Err(NotCovered::Against(rule.name.to_string()));
        }
        let is_whole =
            self.is_within(&rule.matching) && !rule.except.iter().any(|item| self.meets(item));
        Ok(if is_whole { Said::AllowsAll } else { Said::AllowsSome })
    }

    /// Whether the condition holds for every path of every call.
    fn is_within(&self, condition: &Condition) -> bool {
        let covered = |globs: &Vec<Glob>| {
            let is_covered = |path: &Glob| globs.iter().any(|glob| glob.covers(path));
            !self.paths.is_empty() && self.paths.iter().all(is_covered)
        };
        self.has_facts_of(condition)
            && condition.path.as_ref().is_none_or(covered)
            && condition.host.is_none()
            && condition.method.is_none()
    }

    /// Whether the condition could hold for some path of some call.
    fn meets(&self, condition: &Condition) -> bool {
        let meets = |globs: &Vec<Glob>| {
            globs.iter().any(|glob| self.paths.iter().any(|path| glob.intersects(path)))
        };
        self.has_facts_of(condition) && condition.path.as_ref().is_none_or(meets)
    }

    /// Everything that is the same for all calls.
    fn has_facts_of(&self, condition: &Condition) -> bool {
        let is = |list: &Option<Vec<&'static str>>, word: &Option<String>| {
            list.as_ref()
                .is_none_or(|list| word.as_ref().is_some_and(|w| list.contains(&w.as_str())))
        };
        let has = |list: &Option<Vec<ToolName>>, name: &ToolName| {
            list.as_ref().is_none_or(|list| list.contains(name))
        };
        let tags = &self.facts.tags;
        has(&condition.operation, self.operation)
            && has(&condition.tool, self.tool)
            && is(&condition.state, &self.facts.state)
            && is(&condition.mode, &self.facts.mode)
            && condition.door.as_ref().is_none_or(|doors| doors.contains(&self.door))
            && condition.tag.as_ref().is_none_or(|list| tags.iter().any(|tag| list.contains(tag)))
            && condition
                .effect
                .as_ref()
                .is_none_or(|list| self.effects.iter().all(|e| list.contains(&e)))
    }
}
