//! What is decided, by whom, and the proof of it.

use std::marker::PhantomData;

use hotcell_request::Call;
use hotcell_types::Decision;

/// A decision, with everything that led to it.
#[derive(Debug)]
pub enum Verdict<'call> {
    Allow(Permit<'call>),
    Review(Account),
    Deny(Account),
}

/// The right to execute one call once.
#[derive(Debug)]
pub struct Permit<'call> {
    call: &'call Call,
    account: Account,
    /// Stays with the thread that judged.
    here: PhantomData<*const ()>,
}

impl<'call> Permit<'call> {
    pub(crate) fn new(call: &'call Call, account: Account) -> Permit<'call> {
        Permit { call, account, here: PhantomData }
    }

    pub fn call(&self) -> &'call Call {
        self.call
    }

    pub fn account(&self) -> &Account {
        &self.account
    }
}

/// All rules that spoke.
#[derive(Debug, Clone, Default)]
pub struct Account {
    pub spoken: Vec<Spoken>,
}

/// A rule that did not abstain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spoken {
    pub rule: String,
    pub decision: Decision,
    pub reason: String,
}

impl Account {
    /// The strictest of all; `None` when nobody spoke.
    pub fn decision(&self) -> Option<Decision> {
        self.spoken.iter().map(|spoken| spoken.decision).max()
    }

    /// Names of the rules, in their order.
    pub fn rules(&self) -> Vec<String> {
        self.spoken.iter().map(|spoken| spoken.rule.clone()).collect()
    }

    /// Why it was decided so: the reasons of those that decided.
    pub fn reason(&self) -> String {
        let Some(decision) = self.decision() else { return "no rule allows it".into() };
        let decided = self.spoken.iter().filter(|spoken| spoken.decision == decision);
        let reasons: Vec<&str> = decided.map(|spoken| spoken.reason.as_str()).collect();
        reasons.join("; ")
    }
}
