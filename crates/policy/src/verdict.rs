//! What is decided, by whom, and the proof of it.

use std::borrow::Cow;
use std::marker::PhantomData;

use hotcell_request::{Call, Digest};
use hotcell_types::Decision;
use smallvec::SmallVec;

use crate::constraints::Constraints;

/// A decision, with everything that led to it.
#[derive(Debug)]
pub enum Verdict<'a> {
    Allow(Permit<'a>),
    Review(Account<'a>),
    Deny(Account<'a>),
    /// Nothing decided it yet, and an extension has to be asked: judge again with what it answers.
    Ask(Account<'a>),
}

/// The right to execute one call once.
#[derive(Debug)]
pub struct Permit<'a> {
    call: &'a Call,
    account: Account<'a>,
    constraints: Constraints,
    policy: Digest,
    /// Stays with the thread that judged.
    here: PhantomData<*const ()>,
}

impl<'a> Permit<'a> {
    pub(crate) fn new(
        call: &'a Call,
        account: Account<'a>,
        constraints: Constraints,
        policy: Digest,
    ) -> Permit<'a> {
        Permit { call, account, constraints, policy, here: PhantomData }
    }

    pub fn call(&self) -> &'a Call {
        self.call
    }

    pub fn account(&self) -> &Account<'a> {
        &self.account
    }

    /// Of the policy that gave it.
    pub fn policy(&self) -> Digest {
        self.policy
    }

    /// What has to be kept to: the tightest of all that the rules say that allow it.
    pub fn constraints(&self) -> &Constraints {
        &self.constraints
    }
}

/// All rules that spoke.
#[derive(Debug, Clone, Default)]
pub struct Account<'a> {
    pub(crate) spoken: SmallVec<[Spoken<'a>; SPOKEN_INLINE]>,
    pub(crate) decision: Option<Decision>,
    /// A rule that would allow it if it came with a token.
    pub(crate) wants_token: Option<&'a str>,
    /// Why the token that it came with does not count.
    pub(crate) bad_token: Option<String>,
}

/// More rules than this hardly ever speak of one call; then the list is allocated.
const SPOKEN_INLINE: usize = 8;

/// Those who speak and are no rules; no rule has their names.
pub(crate) const SPEAKERS: [&str; 4] = [TOKEN, "extension", GRANT, "constraints"];
pub(crate) const TOKEN: &str = "token";
pub(crate) const GRANT: &str = "grant";

/// A rule that did not abstain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spoken<'a> {
    pub rule: Cow<'a, str>,
    pub decision: Decision,
    pub reason: Cow<'a, str>,
}

impl<'a> Spoken<'a> {
    pub fn new(
        rule: impl Into<Cow<'a, str>>,
        decision: Decision,
        reason: impl Into<Cow<'a, str>>,
    ) -> Spoken<'a> {
        Spoken { rule: rule.into(), decision, reason: reason.into() }
    }

    pub(crate) fn into_owned(self) -> Spoken<'static> {
        let Spoken { rule, decision, reason } = self;
        Spoken::new(rule.into_owned(), decision, reason.into_owned())
    }
}

impl<'a> Account<'a> {
    pub(crate) fn say(&mut self, spoken: Spoken<'a>) {
        self.spoken.push(spoken);
    }

    pub(crate) fn has(&self, decision: Decision) -> bool {
        self.spoken.iter().any(|spoken| spoken.decision == decision)
    }

    /// What was decided; `None` when nobody spoke, which is a refusal.
    pub fn decision(&self) -> Option<Decision> {
        self.decision
    }

    /// Everybody who spoke: built-in rules, then rules by their names, then extensions, then who agreed.
    pub fn spoken(&self) -> &[Spoken<'a>] {
        &self.spoken
    }

    /// Names of the rules, in their order.
    pub fn rules(&self) -> Vec<String> {
        self.spoken.iter().map(|spoken| spoken.rule.to_string()).collect()
    }

    /// Why it was decided so: the reasons of those that decided.
    pub fn reason(&self) -> String {
        let mut reasons: Vec<Cow<'_, str>> = match self.decision {
            Some(decision) => {
                let decided = self.spoken.iter().filter(|spoken| spoken.decision == decision);
                decided.map(|spoken| Cow::Borrowed(&*spoken.reason)).collect()
            }
            None => vec!["no rule allows it".into()],
        };
        if let (None, Some(rule)) = (self.decision, self.wants_token) {
            reasons.push(format!("`{rule}` allows it for a call with a token").into());
        }
        if let (true, Some(why)) = (self.decision != Some(Decision::Allow), &self.bad_token) {
            reasons.push(format!("its token does not count: {why}").into());
        }
        reasons.join("; ")
    }
}
