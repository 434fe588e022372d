//! What went wrong, as RFC 9457 has it: one mapping from what hotcell knows to a status of HTTP, and one
//! document with what, why and fix in it. docs/serve.md has the same table for people.

use axum::body::Body;
use axum::http::{HeaderValue, Response, StatusCode, header};
use hotcell_api::{Called, Problem, ProblemKind};
use hotcell_mcp::Found;
use hotcell_types::Status;
use schemars::JsonSchema;
use serde::Serialize;

/// The media type of these documents.
pub(crate) const MEDIA: &str = "application/problem+json";

/// How long somebody should wait before the same is tried again, if nothing else is known.
pub(crate) const SOON: u64 = 1;

/// What a request is answered with that comes to nothing.
#[derive(Debug, Clone)]
pub(crate) struct Trouble {
    status: StatusCode,
    /// The last part of the document's `type`.
    sort: &'static str,
    problem: Box<Problem>,
    /// Seconds after which the same may be tried again.
    retry_after: Option<u64>,
    /// Of a 405: what else the path takes.
    allow: Option<Box<str>>,
    /// Of a 416: how long the content is.
    size: Option<u64>,
    /// The call that it was about, where there was one.
    called: Option<Box<Called>>,
    is_last: bool,
}

/// The document.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ProblemDocument")]
pub(crate) struct Document<'a> {
    /// `urn:hotcell:problem:` and the sort of problem.
    #[serde(rename = "type")]
    kind_of: String,
    /// The same as `what`.
    title: &'a str,
    /// The status of HTTP.
    status: u16,
    /// The same as `why`.
    detail: &'a str,
    #[serde(flatten)]
    problem: &'a Problem,
    /// Under which the server's log has it.
    request_id: &'a str,
    /// What became of the call, where there was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    called: Option<&'a Called>,
}

impl Trouble {
    pub(crate) fn new(
        status: StatusCode,
        sort: &'static str,
        what: impl Into<String>,
        why: impl Into<String>,
        fix: impl Into<String>,
    ) -> Trouble {
        let problem = Problem::new(kind_of(status), what, why, fix);
        Trouble::of(status, sort, problem)
    }

    fn of(status: StatusCode, sort: &'static str, problem: Problem) -> Trouble {
        Trouble {
            status,
            sort,
            problem: Box::new(problem),
            retry_after: None,
            allow: None,
            size: None,
            called: None,
            is_last: false,
        }
    }

    pub(crate) fn bad_request(what: impl Into<String>, why: impl Into<String>) -> Trouble {
        let fix = "write it as /openapi.json says";
        Trouble::new(StatusCode::BAD_REQUEST, "bad-request", what, why, fix)
    }

    pub(crate) fn at(mut self, at: impl Into<String>) -> Trouble {
        self.problem.at = at.into();
        self
    }

    pub(crate) fn retry_after(self, seconds: u64) -> Trouble {
        Trouble { retry_after: Some(seconds.max(1)), ..self }
    }

    pub(crate) fn allow(self, methods: String) -> Trouble {
        Trouble { allow: Some(methods.into()), ..self }
    }

    pub(crate) fn size(self, size: u64) -> Trouble {
        Trouble { size: Some(size), ..self }
    }

    /// The connection is closed after it.
    pub(crate) fn last(self) -> Trouble {
        Trouble { is_last: true, ..self }
    }

    #[cfg(test)]
    pub(crate) fn status(&self) -> StatusCode {
        self.status
    }

    pub(crate) fn sort(&self) -> &'static str {
        self.sort
    }

    pub(crate) fn problem(&self) -> &Problem {
        &self.problem
    }

    /// What is ours to find out, and whoever asked cannot do anything about: paths of this machine, SQL and
    /// the like stay in the log.
    fn told(&self) -> Problem {
        let mut problem = Problem::clone(&self.problem);
        if self.status == StatusCode::INTERNAL_SERVER_ERROR {
            problem.why = "the server's log says more, under the request id".into();
            problem.fix = "try again, or have the operator look at the log".into();
        }
        problem
    }

    /// Without what only the log is to have.
    fn told_called(&self) -> Option<Called> {
        let mut called = self.called.as_deref().cloned()?;
        if self.status == StatusCode::INTERNAL_SERVER_ERROR {
            called.problems = vec![self.told()];
        }
        Some(called)
    }

    pub(crate) fn response(&self, request_id: &str) -> Response<Body> {
        let (problem, called) = (self.told(), self.told_called());
        let document = Document {
            kind_of: format!("urn:hotcell:problem:{}", self.sort),
            title: &problem.what,
            status: self.status.as_u16(),
            detail: &problem.why,
            problem: &problem,
            request_id,
            called: called.as_ref(),
        };
        let bytes = serde_json::to_vec(&document).unwrap_or_default();
        let mut response = Response::new(Body::from(bytes));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(MEDIA));
        if let Some(seconds) = self.retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if let Some(Ok(allow)) = self.allow.as_deref().map(HeaderValue::from_str) {
            headers.insert(header::ALLOW, allow);
        }
        if let Some(Ok(range)) = self.size.map(|s| HeaderValue::from_str(&format!("bytes */{s}"))) {
            headers.insert(header::CONTENT_RANGE, range);
        }
        if self.status == StatusCode::UNAUTHORIZED {
            let scheme = HeaderValue::from_static("Bearer realm=\"hotcell\"");
            headers.insert(header::WWW_AUTHENTICATE, scheme);
        }
        if self.is_last {
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}

/// The kind that a status of ours is.
fn kind_of(status: StatusCode) -> ProblemKind {
    match status {
        StatusCode::NOT_FOUND => ProblemKind::NotFound,
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::MISDIRECTED_REQUEST => {
            ProblemKind::Blocked
        }
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => ProblemKind::Busy,
        status if status.is_client_error() => ProblemKind::Invalid,
        _ => ProblemKind::Error,
    }
}

/// The status of HTTP that a kind of problem is, and what its `type` is called.
fn of_kind(kind: ProblemKind) -> (StatusCode, &'static str) {
    match kind {
        ProblemKind::Invalid => (StatusCode::UNPROCESSABLE_ENTITY, "invalid"),
        ProblemKind::NotFound => (StatusCode::NOT_FOUND, "not-found"),
        ProblemKind::NotRunnable => (StatusCode::UNPROCESSABLE_ENTITY, "not-runnable"),
        ProblemKind::Conflict => (StatusCode::CONFLICT, "conflict"),
        ProblemKind::Blocked => (StatusCode::FORBIDDEN, "blocked"),
        ProblemKind::Refused => (StatusCode::SERVICE_UNAVAILABLE, "refused"),
        ProblemKind::Busy => (StatusCode::SERVICE_UNAVAILABLE, "busy"),
        ProblemKind::Failed => (StatusCode::UNPROCESSABLE_ENTITY, "failed"),
        ProblemKind::Error => (StatusCode::INTERNAL_SERVER_ERROR, "error"),
    }
}

impl From<Problem> for Trouble {
    fn from(problem: Problem) -> Trouble {
        let (status, sort) = of_kind(problem.kind);
        let trouble = Trouble::of(status, sort, problem);
        match status {
            StatusCode::SERVICE_UNAVAILABLE => trouble.retry_after(SOON),
            _ => trouble,
        }
    }
}

/// How a call is answered. One that was carried out is a 200 however it ended; one that waits for somebody
/// is a 202; what kept a call from being carried out is a problem.
pub(crate) fn of_call(called: Box<Called>) -> Result<(StatusCode, Box<Called>), Trouble> {
    match called.status {
        Status::Success
        | Status::Failure
        | Status::Timeout
        | Status::Oom
        | Status::Limit
        | Status::Killed
        | Status::Cancelled
        | Status::Unknown => Ok((StatusCode::OK, called)),
        Status::Review => Ok((StatusCode::ACCEPTED, called)),
        // It was carried out, and what came of it is there.
        Status::Error if called.run.is_some() => Ok((StatusCode::OK, called)),
        Status::Blocked => Err(not_done(called, ProblemKind::Blocked)),
        Status::Invalid => Err(not_done(called, ProblemKind::Invalid)),
        Status::CircuitOpen => Err(not_done(called, ProblemKind::Busy)),
        Status::Error => Err(not_done(called, ProblemKind::Error)),
    }
}

fn not_done(called: Box<Called>, otherwise: ProblemKind) -> Trouble {
    let first = called.problems.first().cloned();
    let problem = first.unwrap_or_else(|| Problem::new(otherwise, "nothing came of it", "", ""));
    let trouble = match problem.kind {
        // There is no such tool; that there is no such program is something about the arguments.
        ProblemKind::Invalid if problem.at == "/tool" => {
            Trouble::of(StatusCode::NOT_FOUND, "not-found", problem)
        }
        ProblemKind::NotFound => {
            Trouble::of(StatusCode::UNPROCESSABLE_ENTITY, "not-found", problem)
        }
        _ => Trouble::from(problem),
    };
    Trouble { called: Some(called), ..trouble }
}

/// An answer that goes out in another way than as a document of this server: without what only the log is to
/// have, of which `log` is told.
pub(crate) fn harmless(
    answered: Result<Found, Problem>,
    log: impl Fn(&Problem),
) -> Result<Found, Problem> {
    match answered {
        Ok(Found::Called(called)) if called.status == Status::Error => match of_call(called) {
            Err(trouble) => {
                log(trouble.problem());
                trouble
                    .told_called()
                    .map(|called| Found::Called(Box::new(called)))
                    .ok_or_else(|| trouble.told())
            }
            Ok((_, called)) => Ok(Found::Called(called)),
        },
        Err(problem) if problem.kind == ProblemKind::Error => {
            log(&problem);
            Err(Trouble::from(problem).told())
        }
        answered => answered,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn called(status: Status, kind: Option<(ProblemKind, &str)>) -> Box<Called> {
        let problem = |(kind, at): (ProblemKind, &str)| Problem {
            at: at.into(),
            ..Problem::new(kind, "what", "/root/secret/path", "fix")
        };
        let problems = kind.map(problem).into_iter().collect();
        Box::new(Called { problems, ..Called::new(hotcell_engine::new_id(), status) })
    }

    #[test]
    fn every_end_of_a_call_has_its_status() {
        use ProblemKind::*;
        for (status, problem, expected) in [
            (Status::Success, None, 200),
            (Status::Failure, None, 200),
            (Status::Timeout, None, 200),
            (Status::Cancelled, None, 200),
            (Status::Review, None, 202),
            (Status::Blocked, Some((Blocked, "")), 403),
            (Status::Invalid, Some((Invalid, "/arguments/a")), 422),
            (Status::Invalid, Some((Invalid, "/tool")), 404),
            (Status::Invalid, Some((NotFound, "")), 422),
            (Status::Invalid, Some((Conflict, "/key")), 409),
            (Status::Error, Some((Busy, "")), 503),
            (Status::Error, Some((Refused, "")), 503),
            (Status::Error, Some((Error, "")), 500),
            (Status::Error, None, 500),
            (Status::CircuitOpen, Some((Busy, "")), 503),
            (Status::Failure, Some((Failed, "")), 200),
        ] {
            let answered = match of_call(called(status, problem)) {
                Ok((status, _)) => status,
                Err(trouble) => trouble.status(),
            };
            assert_eq!(answered, expected, "{status:?} {problem:?}");
        }
    }

    #[test]
    fn what_is_ours_to_find_out_stays_in_the_log() {
        let Err(trouble) = of_call(called(Status::Error, Some((ProblemKind::Error, "")))) else {
            panic!()
        };
        let told = serde_json::to_string(&trouble.told_called()).unwrap() + &trouble.told().why;
        assert!(!told.contains("/root"), "{told}");
        assert!(trouble.problem().why.contains("/root"));
    }

    #[test]
    fn what_may_be_tried_again_says_when() {
        for kind in [ProblemKind::Busy, ProblemKind::Refused] {
            let trouble = Trouble::from(Problem::new(kind, "a", "b", "c"));
            let response = trouble.response("r");
            assert_eq!(response.headers()[header::RETRY_AFTER], "1");
        }
    }
}
