//! Why every rule about an operation spoke of a call, or did not.

use std::fmt;

use hotcell_request::{Call, ToolName};
use hotcell_types::Decision;

use crate::condition::Field;
use crate::facts::{Extension, Facts};
use crate::judge::judge;
use crate::rule::{Answer, Rule};
use crate::snapshot::Snapshot;
use crate::subject::Subject;
use crate::verdict::Verdict;

/// What every rule about an operation says of one call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    pub operation: ToolName,
    /// `None` as long as an extension has to be asked.
    pub decision: Option<Decision>,
    pub reason: String,
    /// Built-in rules that spoke, then all rules of the operation by name, then extensions that spoke.
    pub rules: Vec<Explained>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explained {
    pub rule: String,
    /// What it says when it speaks.
    pub decision: Decision,
    pub outcome: Outcome,
}

impl Explained {
    pub fn spoke(&self) -> bool {
        matches!(self.outcome, Outcome::Spoke | Outcome::Failed(_))
    }
}

/// What became of asking a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    Spoke,
    /// This field of `match` does not hold.
    Unmet(Field),
    /// This item of `except` holds, counted from 1.
    Excepted(usize),
    /// `when` is false.
    Not,
    /// `when` asks for what nobody sees of the call.
    Unseen(&'static str),
    /// `when` has no value, and so the rule denies.
    Failed(String),
    /// It would allow it for a call with a token.
    WantsToken,
}

impl Snapshot {
    /// Every rule of the call's operation, with why it spoke or what did not hold.
    pub fn explain(&self, call: &Call, facts: &Facts) -> Explanation {
        let policy = self.policy();
        let subject = Subject::new(call, facts);
        let (decision, reason) = match judge(self, call, facts) {
            Verdict::Allow(permit) => (Some(Decision::Allow), permit.account().reason()),
            Verdict::Review(account) => (Some(Decision::Review), account.reason()),
            Verdict::Deny(account) => (Some(Decision::Deny), account.reason()),
            Verdict::Ask(_) => (None, "an extension has to be asked".to_owned()),
        };
        let built_in =
            policy.built_in.iter().filter(|rule| (rule.speaks)(&subject, &policy.protected));
        let built_in = built_in.map(|rule| Explained {
            rule: rule.name.to_owned(),
            decision: rule.decision,
            outcome: Outcome::Spoke,
        });
        let is_about = |rule: &&Rule| {
            let operations = rule.matching.operation.as_ref();
            operations.is_none_or(|operations| operations.contains(call.operation()))
        };
        let rules = policy.rules.iter().filter(is_about);
        let rules = rules.map(|rule| Explained {
            rule: rule.name.to_string(),
            decision: rule.decision,
            outcome: outcome(rule, &subject),
        });
        let spoken = match &facts.extension {
            Extension::Answered(spoken) => spoken.as_slice(),
            Extension::NotConfigured | Extension::NotAsked | Extension::Failed(_) => &[],
        };
        let extensions = spoken.iter().map(|spoken| Explained {
            rule: spoken.rule.to_string(),
            decision: spoken.decision,
            outcome: Outcome::Spoke,
        });
        let rules = built_in.chain(rules).chain(extensions).collect();
        let operation = call.operation().clone();
        Explanation { operation, decision, reason, rules }
    }
}

fn outcome(rule: &Rule, subject: &Subject<'_>) -> Outcome {
    match rule.ask(subject) {
        Answer::Speaks if rule.token_required => Outcome::WantsToken,
        Answer::Speaks => Outcome::Spoke,
        Answer::Unmet(field) => Outcome::Unmet(field),
        Answer::Excepted(item) => Outcome::Excepted(item + 1),
        Answer::Not => Outcome::Not,
        Answer::Unseen(what) => Outcome::Unseen(what),
        Answer::Failed(wrong) => Outcome::Failed(wrong.to_string()),
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Spoke => f.write_str("speaks"),
            Outcome::Unmet(field) => write!(f, "abstains: `{field}` does not hold"),
            Outcome::Excepted(item) => write!(f, "abstains: item {item} of `except` holds"),
            Outcome::Not => f.write_str("abstains: `when` is false"),
            Outcome::Unseen(what) => write!(f, "abstains: nobody sees the {what} of this call"),
            Outcome::Failed(why) => write!(f, "denies: `when` has no value: {why}"),
            Outcome::WantsToken => f.write_str("abstains: it wants a token"),
        }
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let decision = self.decision.map_or("ask", Decision::name);
        writeln!(f, "{}: {decision}: {}", self.operation, self.reason)?;
        for rule in &self.rules {
            writeln!(f, "  {} ({}): {}", rule.rule, rule.decision, rule.outcome)?;
        }
        Ok(())
    }
}
