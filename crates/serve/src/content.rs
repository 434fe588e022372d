//! The bytes of an artifact. They come from a run, which nobody trusts: a browser is told not to guess what
//! they are, and to store them instead of showing them.

use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use hotcell_api::{self as api, Answer, Artifact, Ask, With};
use hotcell_engine::{Attached, Engine};
use hotcell_types::Caller;
use tokio::task::JoinHandle;

use crate::connections::from_pieces;
use crate::hosts::one;
use crate::problem::Trouble;
use crate::under_way::Job;

/// Bytes that are asked for at once. Every time the whole content is hashed.
const CHUNK: u64 = 8 << 20;
/// Bytes that are sent at once: few enough that a slow client is not taken for one that is gone.
const PIECE: usize = 256 * 1024;

/// What of a content is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    All,
    /// From and until, both included.
    Some(u64, u64),
    /// It is the one that is known already.
    Known,
}

/// Beginning of a content, and how to go on.
#[derive(Debug)]
pub(crate) struct Begun {
    artifact: Artifact,
    part: Part,
    first: Bytes,
}

/// On a thread that may block: an artifact's row, and the beginning of what is wanted.
pub(crate) fn begin(
    engine: &Engine,
    caller: &Caller,
    named: String,
    headers: &HeaderMap,
    job: &Job,
) -> Result<Begun, Trouble> {
    let details = api::answer(
        engine,
        caller,
        Ask::Artifact { artifact: named },
        with(job, &mut |_, _| true),
    )?;
    let Answer::Details(details) = details else { return Err(no_answer()) };
    let artifact = details.artifact;
    let part = wanted(headers, &etag(&artifact), artifact.size)?;
    if !artifact.is_kept {
        let why = "it was too much, has a key in it, or was removed: its digest is known";
        let (what, fix) = ("the content was not kept", "have it from the run itself");
        return Err(Trouble::new(StatusCode::NOT_FOUND, "not-kept", what, why, fix));
    }
    let first = match part.bounds(artifact.size) {
        Some((from, until)) => chunk(engine, caller, &artifact.id, from, until, job)?,
        None => Bytes::new(),
    };
    Ok(Begun { artifact, part, first })
}

fn with<'a>(
    job: &'a Job,
    log: &'a mut dyn FnMut(api::Log, hotcell_engine::Position) -> bool,
) -> With<'a> {
    With { attached: Attached::default(), interrupt: &job.interrupt, log }
}

fn no_answer() -> Trouble {
    let status = StatusCode::INTERNAL_SERVER_ERROR;
    Trouble::new(status, "error", "there is no answer", "the engine gave another one", "report it")
}

fn chunk(
    engine: &Engine,
    caller: &Caller,
    id: &str,
    from: u64,
    until: u64,
    job: &Job,
) -> Result<Bytes, Trouble> {
    let length = Some((until - from).saturating_add(1).min(CHUNK));
    let ask = Ask::Content { artifact: id.to_owned(), from, length };
    match api::answer(engine, caller, ask, with(job, &mut |_, _| true))? {
        Answer::Content(content) => Ok(content.bytes.into()),
        _ => Err(no_answer()),
    }
}

/// A content is known by its digest, for ever.
fn etag(artifact: &Artifact) -> String {
    format!("\"{}\"", artifact.digest)
}

impl Part {
    /// From and until, both included; `None` if there is nothing to send.
    fn bounds(self, size: u64) -> Option<(u64, u64)> {
        match self {
            Part::All => size.checked_sub(1).map(|last| (0, last)),
            Part::Some(from, until) => Some((from, until)),
            Part::Known => None,
        }
    }
}

fn wanted(headers: &HeaderMap, etag: &str, size: u64) -> Result<Part, Trouble> {
    let is_listed = |list: &str| {
        list.split(',').map(str::trim).any(|one| one == "*" || one.trim_start_matches("W/") == etag)
    };
    if one(headers, header::IF_NONE_MATCH.as_str())?.is_some_and(is_listed) {
        return Ok(Part::Known);
    }
    if one(headers, header::IF_MATCH.as_str())?.is_some_and(|list| !is_listed(list)) {
        let (what, why) = ("it is another one now", "no digest of If-Match is its digest");
        let status = StatusCode::PRECONDITION_FAILED;
        return Err(Trouble::new(status, "changed", what, why, "ask without If-Match"));
    }
    let is_same = one(headers, header::IF_RANGE.as_str())?.is_none_or(|one| one == etag);
    match one(headers, header::RANGE.as_str())?.filter(|_| is_same) {
        Some(text) => range(text, size),
        None => Ok(Part::All),
    }
}

/// One range of bytes. What is none, or several, is as good as not said (RFC 9110, 14.2).
fn range(text: &str, size: u64) -> Result<Part, Trouble> {
    let number = |text: &str| {
        let is_plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        // Far beyond the end of everything is beyond the end.
        is_plain.then(|| text.parse::<u64>().unwrap_or(u64::MAX))
    };
    let Some((from, until)) = text.strip_prefix("bytes=").and_then(|text| text.split_once('-'))
    else {
        return Ok(Part::All);
    };
    let (from, until) = match (number(from.trim()), number(until.trim())) {
        (Some(from), Some(until)) if from <= until => (from, until),
        (Some(from), None) if until.trim().is_empty() => (from, u64::MAX),
        (None, Some(last)) if from.trim().is_empty() => match last {
            0 => return Err(beyond(size)),
            last => (size.saturating_sub(last), u64::MAX),
        },
        _ => return Ok(Part::All),
    };
    if from >= size {
        return Err(beyond(size));
    }
    Ok(Part::Some(from, until.min(size - 1)))
}

fn beyond(size: u64) -> Trouble {
    let why = format!("it has {size} bytes");
    let (what, status) = ("the range is beyond the content", StatusCode::RANGE_NOT_SATISFIABLE);
    Trouble::new(status, "beyond", what, why, "ask for bytes that it has").size(size)
}

impl Begun {
    pub(crate) fn response(
        self,
        engine: Arc<Engine>,
        caller: Caller,
        job: Arc<Job>,
    ) -> Response<Body> {
        let Begun { artifact, part, first } = self;
        let mut response = Response::new(Body::empty());
        let headers = response.headers_mut();
        let mut insert = |name, value: String| {
            if let Ok(value) = HeaderValue::from_str(&value) {
                headers.insert(name, value);
            }
        };
        insert(header::ETAG, etag(&artifact));
        insert(header::ACCEPT_RANGES, "bytes".into());
        insert(header::CONTENT_TYPE, artifact.media.into());
        insert(header::CONTENT_DISPOSITION, disposition(&artifact.name));
        insert(header::CONTENT_SECURITY_POLICY, "sandbox; default-src 'none'".into());
        insert(header::CACHE_CONTROL, "private, no-cache".into());
        if let Part::Some(from, until) = part {
            insert(header::CONTENT_RANGE, format!("bytes {from}-{until}/{}", artifact.size));
        }
        *response.status_mut() = match part {
            Part::All => StatusCode::OK,
            Part::Some(..) => StatusCode::PARTIAL_CONTENT,
            Part::Known => StatusCode::NOT_MODIFIED,
        };
        if let Some((from, until)) = part.bounds(artifact.size) {
            let sending = Sending { engine, caller, id: artifact.id, next: from, until, job };
            *response.body_mut() = sending.body(first);
        }
        response
    }
}

/// What is still to be sent.
#[derive(Clone)]
struct Sending {
    engine: Arc<Engine>,
    caller: Caller,
    id: String,
    next: u64,
    until: u64,
    job: Arc<Job>,
}

impl Sending {
    fn body(mut self, first: Bytes) -> Body {
        let size = self.until - self.next + 1;
        self.next += first.len() as u64;
        let mut held = first;
        let mut fetching: Option<JoinHandle<Result<Bytes, Trouble>>> = None;
        let next = move |context: &mut Context<'_>| {
            loop {
                if !held.is_empty() {
                    let piece = held.split_to(held.len().min(PIECE));
                    return Poll::Ready(Some(Ok(piece)));
                }
                if self.next > self.until {
                    return Poll::Ready(None);
                }
                let fetch = fetching.get_or_insert_with(|| self.clone().fetch());
                let fetched = match std::pin::Pin::new(fetch).poll(context) {
                    Poll::Ready(fetched) => fetched,
                    Poll::Pending => return Poll::Pending,
                };
                fetching = None;
                match fetched {
                    Ok(Ok(bytes)) if !bytes.is_empty() => {
                        self.next += bytes.len() as u64;
                        held = bytes;
                    }
                    // The connection breaks off, so that nobody takes it for the whole.
                    _ => return Poll::Ready(Some(Err("the content cannot be read any more"))),
                }
            }
        };
        from_pieces(next, Some(size))
    }

    fn fetch(self) -> JoinHandle<Result<Bytes, Trouble>> {
        tokio::task::spawn_blocking(move || {
            let Sending { engine, caller, id, next, until, job } = self;
            chunk(&engine, &caller, &id, next, until, &job)
        })
    }
}

/// A name for a file to store it in. The name of an artifact is data: no way leads anywhere from it.
fn disposition(name: &str) -> String {
    let last = name.rsplit(['/', '\\']).next().unwrap_or_default();
    let plain: String = last
        .chars()
        .take(100)
        .map(|c| {
            let is_fine =
                c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | ' ' | '+' | '@');
            if is_fine { c } else { '_' }
        })
        .collect();
    let plain = plain.trim_start_matches('.');
    let plain = if plain.is_empty() { "content" } else { plain };
    let mut coded = String::new();
    for byte in last.chars().take(100).filter(|c| !c.is_control()).collect::<String>().bytes() {
        match byte {
            byte if byte.is_ascii_alphanumeric() || b".-_~".contains(&byte) => {
                coded.push(char::from(byte));
            }
            byte => coded.push_str(&format!("%{byte:02X}")),
        }
    }
    format!("attachment; filename=\"{plain}\"; filename*=UTF-8''{coded}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_one_of_bytes_or_nothing() {
        for (text, expected) in [
            ("bytes=0-0", Ok(Part::Some(0, 0))),
            ("bytes=2-5", Ok(Part::Some(2, 5))),
            ("bytes=2-", Ok(Part::Some(2, 9))),
            ("bytes=-3", Ok(Part::Some(7, 9))),
            ("bytes=-99", Ok(Part::Some(0, 9))),
            ("bytes=0-99999999999999999999999", Ok(Part::Some(0, 9))),
            ("bytes=10-", Err(416)),
            ("bytes=99999999999999999999999-", Err(416)),
            ("bytes=-0", Err(416)),
            ("bytes=5-2", Ok(Part::All)),
            ("bytes=0-1,3-4", Ok(Part::All)),
            ("bytes=a-b", Ok(Part::All)),
            ("bytes=", Ok(Part::All)),
            ("lines=1-2", Ok(Part::All)),
        ] {
            let found = range(text, 10).map_err(|trouble| trouble.status().as_u16());
            assert_eq!(found, expected, "{text}");
        }
        assert_eq!(range("bytes=0-", 0).unwrap_err().status(), 416);
    }

    #[test]
    fn names_are_data() {
        for (name, expected) in [
            ("a.csv", "a.csv"),
            ("../../etc/passwd", "passwd"),
            ("a\"; filename=\"b", "a__ filename__b"),
            ("a\r\nSet-Cookie: x", "a__Set-Cookie_ x"),
            (".bashrc", "bashrc"),
            ("..", "content"),
            ("", "content"),
            ("ä", "_"),
        ] {
            let told = disposition(name);
            assert!(told.starts_with(&format!("attachment; filename=\"{expected}\"")), "{told}");
            assert!(HeaderValue::from_str(&told).is_ok() && !told.contains('\n'));
        }
    }
}
