//! What went wrong, in the one form that every door has for it.

use hotcell_engine as engine;
use hotcell_request::Fault;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What, why, fix.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ProblemKind {
    /// Something in the request.
    Invalid,
    /// There is no such thing.
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

impl ProblemKind {
    pub const ALL: [ProblemKind; 9] = [
        ProblemKind::Invalid,
        ProblemKind::Conflict,
        ProblemKind::NotFound,
        ProblemKind::NotRunnable,
        ProblemKind::Blocked,
        ProblemKind::Refused,
        ProblemKind::Busy,
        ProblemKind::Failed,
        ProblemKind::Error,
    ];

    pub fn name(self) -> &'static str {
        match self {
            ProblemKind::Invalid => "invalid",
            ProblemKind::Conflict => "conflict",
            ProblemKind::NotFound => "not_found",
            ProblemKind::NotRunnable => "not_runnable",
            ProblemKind::Blocked => "blocked",
            ProblemKind::Refused => "refused",
            ProblemKind::Busy => "busy",
            ProblemKind::Failed => "failed",
            ProblemKind::Error => "error",
        }
    }
}

impl Problem {
    pub fn new(
        kind: ProblemKind,
        what: impl Into<String>,
        why: impl Into<String>,
        fix: impl Into<String>,
    ) -> Problem {
        Problem { kind, at: String::new(), what: what.into(), why: why.into(), fix: fix.into() }
    }

    /// With the kind of that name; what nobody knows is an error.
    pub fn of_kind(
        name: &str,
        what: impl Into<String>,
        why: impl Into<String>,
        fix: impl Into<String>,
    ) -> Problem {
        let kind = ProblemKind::ALL.into_iter().find(|kind| kind.name() == name);
        Problem::new(kind.unwrap_or(ProblemKind::Error), what, why, fix)
    }

    pub(crate) fn invalid(at: &str, what: impl Into<String>, why: impl ToString) -> Problem {
        let fix = "write it as the documentation says";
        let problem = Problem::new(ProblemKind::Invalid, what, why.to_string(), fix);
        Problem { at: at.into(), ..problem }
    }

    /// The engine answered with something else than was asked for, which it never does.
    pub(crate) fn no_answer() -> Problem {
        let fix = "report it, with what was asked for";
        Problem::new(ProblemKind::Error, "there is no answer", "the engine gave another one", fix)
    }
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.what, self.why)
    }
}

impl std::error::Error for Problem {}

impl From<engine::Problem> for Problem {
    fn from(problem: engine::Problem) -> Problem {
        let engine::Problem { kind, at, what, why, fix } = problem;
        Problem { kind: kind.into(), at, what, why, fix }
    }
}

impl From<engine::ProblemKind> for ProblemKind {
    fn from(kind: engine::ProblemKind) -> ProblemKind {
        match kind {
            engine::ProblemKind::Invalid => ProblemKind::Invalid,
            engine::ProblemKind::NotFound => ProblemKind::NotFound,
            engine::ProblemKind::NotRunnable => ProblemKind::NotRunnable,
            engine::ProblemKind::Conflict => ProblemKind::Conflict,
            engine::ProblemKind::Blocked => ProblemKind::Blocked,
            engine::ProblemKind::Refused => ProblemKind::Refused,
            engine::ProblemKind::Busy => ProblemKind::Busy,
            engine::ProblemKind::Failed => ProblemKind::Failed,
            engine::ProblemKind::Error => ProblemKind::Error,
        }
    }
}

impl From<&Fault> for Problem {
    fn from(fault: &Fault) -> Problem {
        engine::Problem::from(fault).into()
    }
}

/// What is wrong with a document, without the names of types.
pub fn without_types(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let Some((before, after)) = text.split_once("struct ") else { return text };
    let rest = after.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || c == '_');
    format!("{before}an object{rest}")
}
