//! One item of the queue, as it is stored.

use hotcell_approver::{Answer, Fingerprint, ItemId, Reason, Signature, Verdict};
use hotcell_record::{Digest, HomeId};
use hotcell_types::{CallId, Caller, Name};

use crate::words::{Kind, State};

/// Something to answer, and what became of it. Times are nanoseconds since 1970.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Item {
    /// 1, 2, 3 … in the order of asking.
    pub seq: u64,
    pub id: ItemId,
    pub kind: Kind,
    /// Who asked.
    pub caller: Caller,
    pub call: CallId,
    /// `name@version`.
    pub tool: String,
    pub operation: String,
    /// The arguments as people see them: canonical JSON, with what is secret left out.
    pub shown: String,
    /// Of the exact call, as [`Call::digest`](hotcell_request::Call::digest) gives it.
    pub call_digest: Digest,
    /// Of the policy that asked.
    pub policy_digest: Digest,
    pub rules: Vec<Rule>,
    /// What is reserved for the call until the item ends.
    pub bearer: Option<String>,
    pub asked: i64,
    /// From then on nobody can answer.
    pub expires: i64,
    pub state: State,
    pub answer: Option<Answered>,
    /// When the grant was taken, and for which call: the one that was asked about, or one that is the
    /// same in everything but its id.
    pub used: Option<(i64, CallId)>,
    pub ended: Option<i64>,
    /// What came of it, for a caller who comes back: JSON.
    pub result: Option<String>,
}

/// A rule that asked, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    pub name: String,
    pub reason: String,
}

/// An answer, and the name of whoever gave it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Answered {
    pub given: Given,
    pub name: Name,
}

/// An answer as it comes from an approver. What it is about is not in it: that is looked up, so that a
/// signature on anything else is none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Given {
    pub verdict: Verdict,
    pub reason: Reason,
    pub time: i64,
    /// From then on an approval is worth nothing.
    pub expires: i64,
    pub approver: Fingerprint,
    pub signature: Signature,
}

impl Item {
    /// What an approver signs to answer this item. Take `time` from [`now`](crate::now).
    pub fn statement(
        &self,
        home: HomeId,
        verdict: Verdict,
        reason: Reason,
        time: i64,
        expires: i64,
    ) -> Answer {
        Answer {
            item: self.id,
            home: home.0,
            call: self.call_digest.0,
            policy: self.policy_digest.0,
            verdict,
            reason,
            time,
            expires,
        }
    }
}
