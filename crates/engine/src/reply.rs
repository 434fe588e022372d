//! What becomes of a call, as its caller hears it.

use hotcell_approver::ItemId;
use hotcell_ledger::{Artifact, ArtifactId, Role};
use hotcell_policy::Account;
use hotcell_request::{CallError, Fault, ToolError};
use hotcell_sandbox::{Refusal, cause, lang};
use hotcell_types::{CallId, Outcome, Status};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::guard::breaker::Showed;

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
    /// It was replied before, to a call with the same key or to whoever waited for an approval: nothing was
    /// carried out now.
    #[serde(skip)]
    pub again: bool,
    /// What it made, and what it was given, as the ledger has it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub artifacts: Vec<Registered>,
    /// Where it waits, or waited, for somebody to agree.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "as_text")]
    pub review: Option<ItemId>,
    /// What became of the run, where there was one. Its value says the same in the tool's own words.
    #[serde(skip)]
    pub run: Option<Box<Outcome>>,
    /// What would have allowed it could not be used, and nothing was begun.
    #[serde(skip)]
    pub(crate) is_unspent: bool,
    /// What it says about its tool.
    #[serde(skip)]
    pub(crate) showed: Showed,
}

/// What is read of a reply that was kept.
#[derive(Deserialize)]
struct Kept {
    status: Status,
    value: Option<Value>,
    #[serde(default)]
    problems: Vec<Problem>,
    #[serde(default)]
    rules: Vec<String>,
}

fn as_text<S: serde::Serializer>(item: &Option<ItemId>, to: S) -> Result<S::Ok, S::Error> {
    match item {
        Some(item) => to.collect_str(item),
        None => to.serialize_none(),
    }
}

/// Something that the ledger has.
#[derive(Debug, Clone, Serialize)]
pub struct Registered {
    pub id: ArtifactId,
    pub name: String,
    pub role: Role,
    pub bytes: u64,
}

impl From<&Artifact> for Registered {
    fn from(artifact: &Artifact) -> Registered {
        Registered {
            id: artifact.id,
            name: artifact.name.to_string(),
            role: artifact.role,
            bytes: artifact.blob.size,
        }
    }
}

/// What, why, fix.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{what}: {why}")]
pub struct Problem {
    pub kind: ProblemKind,
    /// Where in the request, as a JSON pointer.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub at: String,
    pub what: String,
    pub why: String,
    pub fix: String,
}

/// What sort of thing went wrong, for programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProblemKind {
    /// Something in the request.
    Invalid,
    /// No such file, command or interpreter.
    NotFound,
    /// A program that is there and cannot be executed.
    NotRunnable,
    /// What was asked for before stands against it: the key is that of another call.
    Conflict,
    /// The policy.
    Blocked,
    /// The host cannot give what is required.
    Refused,
    /// There is no room for it now.
    Busy,
    /// The tool itself.
    Failed,
    /// hotcell, or what it stands on.
    Error,
}

impl Problem {
    /// One of ours, unless [`of`](Problem::of) says otherwise.
    pub(crate) fn new(
        what: impl Into<String>,
        why: impl Into<String>,
        fix: impl Into<String>,
    ) -> Problem {
        let (kind, at) = (ProblemKind::Error, String::new());
        Problem { kind, at, what: what.into(), why: why.into(), fix: fix.into() }
    }

    pub(crate) fn of(self, kind: ProblemKind) -> Problem {
        Problem { kind, ..self }
    }

    /// Whether others are only served first.
    pub(crate) fn is_busy(&self) -> bool {
        self.kind == ProblemKind::Busy
    }

    /// How a call ends that comes no further because of it.
    pub(crate) fn status(&self) -> Status {
        match self.kind {
            ProblemKind::Invalid
            | ProblemKind::NotFound
            | ProblemKind::NotRunnable
            | ProblemKind::Conflict => Status::Invalid,
            ProblemKind::Blocked => Status::Blocked,
            ProblemKind::Failed => Status::Failure,
            ProblemKind::Refused | ProblemKind::Busy | ProblemKind::Error => Status::Error,
        }
    }
}

impl From<&Fault> for Problem {
    fn from(fault: &Fault) -> Problem {
        Problem {
            kind: ProblemKind::Invalid,
            at: fault.at().into(),
            what: fault.what().into(),
            why: fault.why().into(),
            fix: fault.fix().into(),
        }
    }
}

impl From<ToolError> for Problem {
    fn from(error: ToolError) -> Problem {
        Problem::new(error.what, error.why, error.fix).of(ProblemKind::Failed)
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Problem {
        match refusal {
            Refusal::Level { given, minimum, why, fix } => {
                let what = format!(
                    "this host gives level `{given}`, and `{minimum}` is the lowest accepted"
                );
                Problem::new(what, why, fix).of(ProblemKind::Refused)
            }
            Refusal::Layer { layer, why, fix } => {
                let what = format!("layer `{layer}` could not be set up");
                Problem::new(what, why, fix).of(ProblemKind::Refused)
            }
            Refusal::Invalid { what, why, fix } => {
                Problem::new(what, why, fix).of(ProblemKind::Invalid)
            }
            Refusal::NotRunnable { program, why } => {
                let what = format!("`{program}` cannot be executed");
                Problem::new(what, why, "").of(ProblemKind::NotRunnable)
            }
            Refusal::Busy { running } => {
                let why = format!("{running} are running, as many as there can be");
                let fix = "try again when one of them has ended";
                Problem::new("no room for another run", why, fix).of(ProblemKind::Refused)
            }
            Refusal::Internal { doing, source } => {
                Problem::new(format!("{doing} failed"), cause(&source), "")
            }
        }
    }
}

impl From<lang::Error> for Problem {
    fn from(error: lang::Error) -> Problem {
        let kind = match error {
            lang::Error::UnknownLanguage { .. } => ProblemKind::Invalid,
            lang::Error::NoInterpreter { .. } | lang::Error::NoCommand { .. } => {
                ProblemKind::NotFound
            }
            lang::Error::NotRunnable { .. } => ProblemKind::NotRunnable,
        };
        Problem::new(error.to_string(), error.why(), error.fix()).of(kind)
    }
}

impl Reply {
    pub(crate) fn new(id: CallId, status: Status) -> Reply {
        Reply {
            id,
            status,
            value: None,
            problems: Vec::new(),
            rules: Vec::new(),
            cached: false,
            again: false,
            artifacts: Vec::new(),
            review: None,
            run: None,
            is_unspent: false,
            showed: Showed::Nothing,
        }
    }

    /// Nothing came of it.
    pub(crate) fn failed(id: CallId, problem: Problem) -> Reply {
        Reply { problems: vec![problem.clone()], ..Reply::new(id, problem.status()) }
    }

    /// The same as was replied before, as far as that was kept.
    pub(crate) fn again(id: CallId, kept: &str) -> Option<Reply> {
        let Kept { status, value, problems, rules } = serde_json::from_str(kept).ok()?;
        Some(Reply { value, problems, rules, ..Reply::new(id, status) })
    }

    pub(crate) fn invalid(id: CallId, error: &CallError) -> Reply {
        let problems = error.faults().iter().map(Problem::from).collect();
        Reply { problems, ..Reply::new(id, Status::Invalid) }
    }

    pub(crate) fn refused(id: CallId, what: String, fix: String, account: &Account<'_>) -> Reply {
        let problem = Problem::new(what, account.reason(), fix).of(ProblemKind::Blocked);
        let problems = vec![problem];
        Reply { rules: account.rules(), problems, ..Reply::new(id, Status::Blocked) }
    }
}
