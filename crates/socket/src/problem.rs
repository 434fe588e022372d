//! Why a request was not answered with what was asked for.

use std::borrow::Cow;

use hotcell_request::Fault;

use crate::frame::FrameError;

/// What, why, fix, and a word for programs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}: {why}")]
pub struct Problem {
    /// Those of this crate are the constants of this type; whoever answers may have others.
    pub kind: Cow<'static, str>,
    /// Where in the request, as a JSON pointer.
    pub at: String,
    pub what: String,
    pub why: String,
    pub fix: String,
}

impl Problem {
    /// Something in the request.
    pub const INVALID: &'static str = "invalid";
    /// There is no room for it now. From this crate: nothing was begun.
    pub const BUSY: &'static str = "busy";
    /// The server is on its way out, and nothing was begun.
    pub const STOPPING: &'static str = "stopping";
    /// hotcell, or what it stands on.
    pub const ERROR: &'static str = "error";

    pub fn new(
        kind: impl Into<Cow<'static, str>>,
        what: impl Into<String>,
        why: impl Into<String>,
        fix: impl Into<String>,
    ) -> Problem {
        let (kind, at) = (kind.into(), String::new());
        Problem { kind, at, what: what.into(), why: why.into(), fix: fix.into() }
    }

    pub(crate) fn too_many(what: &str, most: usize) -> Problem {
        let why = format!("{most} are under way, as many as there can be");
        Problem::new(Problem::BUSY, what, why, "ask again when one of them has ended")
    }

    pub(crate) fn stopping() -> Problem {
        let why = "the server is stopping and begins nothing new";
        Problem::new(Problem::STOPPING, "this was not begun", why, "ask again when it is back")
    }

    pub(crate) fn panicked() -> Problem {
        let why = "hotcell failed while it answered: this is a defect, and this request's alone";
        let fix = "report it, with what was asked for";
        Problem::new(Problem::ERROR, "there is no answer", why, fix)
    }
}

impl From<&Fault> for Problem {
    fn from(fault: &Fault) -> Problem {
        let at = fault.at().to_owned();
        Problem { at, ..Problem::new(Problem::INVALID, fault.what(), fault.why(), fault.fix()) }
    }
}

impl From<FrameError> for Problem {
    fn from(error: FrameError) -> Problem {
        match error {
            FrameError::NotJson(fault) => Problem::from(&fault),
            other => Problem::new(Problem::INVALID, other.to_string(), other.why(), other.fix()),
        }
    }
}
