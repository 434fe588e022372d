//! What becomes of a call, as its caller hears it.

use hotcell_policy::Account;
use hotcell_request::{CallError, Fault, ToolError};
use hotcell_types::{CallId, Status};
use serde::Serialize;
use serde_json::Value;

/// The one answer to a call.
#[derive(Debug, Clone, Serialize)]
pub struct Reply {
    pub id: CallId,
    pub status: Status,
    /// What the tool gave back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<Value>,
    /// What went wrong: each by itself, the first being the one to tell.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<Problem>,
    /// The rules that spoke.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<String>,
    /// It was there already.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub cached: bool,
}

/// What, why, fix.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// Where in the request, as a JSON pointer.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub at: String,
    pub what: String,
    pub why: String,
    pub fix: String,
}

impl Problem {
    pub(crate) fn new(
        what: impl Into<String>,
        why: impl Into<String>,
        fix: impl Into<String>,
    ) -> Problem {
        Problem { at: String::new(), what: what.into(), why: why.into(), fix: fix.into() }
    }
}

impl From<&Fault> for Problem {
    fn from(fault: &Fault) -> Problem {
        Problem {
            at: fault.at().into(),
            what: fault.what().into(),
            why: fault.why().into(),
            fix: fault.fix().into(),
        }
    }
}

impl From<ToolError> for Problem {
    fn from(error: ToolError) -> Problem {
        Problem::new(error.what, error.why, error.fix)
    }
}

impl Reply {
    pub(crate) fn new(id: CallId, status: Status) -> Reply {
        Reply { id, status, value: None, problems: Vec::new(), rules: Vec::new(), cached: false }
    }

    pub(crate) fn problem(id: CallId, status: Status, problem: Problem) -> Reply {
        Reply { problems: vec![problem], ..Reply::new(id, status) }
    }

    pub(crate) fn invalid(id: CallId, error: &CallError) -> Reply {
        let problems = error.faults().iter().map(Problem::from).collect();
        Reply { problems, ..Reply::new(id, Status::Invalid) }
    }

    pub(crate) fn refused(id: CallId, status: Status, what: String, account: &Account) -> Reply {
        let fix = "ask for something that is allowed, or have the policy changed";
        let problem = Problem::new(what, account.reason(), fix);
        Reply { rules: account.rules(), ..Reply::problem(id, status, problem) }
    }
}
