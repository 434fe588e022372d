//! Frame → bytes, length included, so that one write sends it.

use std::io;

use data_encoding::BASE64;
use serde::Serialize;
use serde_json::json;

use super::{End, Frame, FrameError, Of};
use crate::bounds::FRAME_MOST;
use crate::problem::Problem;

/// A document as it goes over the wire. It was written by us, so that it is JSON.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Raw(Vec<u8>);

impl Raw {
    pub fn of<T: Serialize + ?Sized>(document: &T) -> Result<Raw, FrameError> {
        let mut bytes = Bounded(Vec::new());
        match serde_json::to_writer(&mut bytes, document) {
            Ok(()) => Ok(Raw(bytes.0)),
            Err(error) if error.is_io() => {
                Err(FrameError::TooLarge { bytes: bytes.0.len().max(FRAME_MOST + 1) })
            }
            Err(error) => Err(FrameError::Unwritable(error.to_string())),
        }
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Stops what would become too large for a frame.
struct Bounded(Vec<u8>);

impl io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len().saturating_add(bytes.len()) > FRAME_MOST {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A frame that is being written.
pub(crate) struct Draft {
    bytes: Vec<u8>,
    has_members: bool,
}

impl Draft {
    fn new(kind: &str) -> Draft {
        let mut bytes = Vec::with_capacity(256);
        bytes.extend_from_slice(&[0; 4]);
        for piece in ["{\"", kind, "\":{"] {
            bytes.extend_from_slice(piece.as_bytes());
        }
        Draft { bytes, has_members: false }
    }

    fn name(&mut self, name: &str) {
        let comma = if self.has_members { ",\"" } else { "\"" };
        self.has_members = true;
        for piece in [comma, name, "\":"] {
            self.bytes.extend_from_slice(piece.as_bytes());
        }
    }

    fn with(mut self, name: &str, value: impl Into<serde_json::Value>) -> Draft {
        self.name(name);
        self.bytes.extend_from_slice(value.into().to_string().as_bytes());
        self
    }

    fn with_raw(mut self, name: &str, raw: &Raw) -> Draft {
        self.name(name);
        self.bytes.extend_from_slice(&raw.0);
        self
    }

    fn with_data(mut self, data: &[u8]) -> Draft {
        self.name("data");
        self.bytes.push(b'"');
        let start = self.bytes.len();
        self.bytes.resize(start + BASE64.encode_len(data.len()), 0);
        if let Some(room) = self.bytes.get_mut(start..) {
            BASE64.encode_mut(data, room);
        }
        self.bytes.push(b'"');
        self
    }

    fn done(mut self) -> Result<Vec<u8>, FrameError> {
        self.bytes.extend_from_slice(b"}}");
        let bytes = self.bytes.len().saturating_sub(4);
        let length = u32::try_from(bytes).ok().filter(|_| bytes <= FRAME_MOST);
        let length = length.ok_or(FrameError::TooLarge { bytes })?;
        if let Some(head) = self.bytes.first_chunk_mut() {
            *head = length.to_be_bytes();
        }
        Ok(self.bytes)
    }
}

pub(crate) fn hello(versions: &[u32], who: &str) -> Result<Vec<u8>, FrameError> {
    Draft::new("hello").with("versions", versions).with("who", who).done()
}

pub(crate) fn welcome(version: u32, who: &str) -> Result<Vec<u8>, FrameError> {
    Draft::new("welcome").with("version", version).with("who", who).done()
}

/// What of a request is known before its parts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Head<'a> {
    pub(crate) id: u64,
    pub(crate) ask: &'a Raw,
    pub(crate) context: Option<&'a Raw>,
    pub(crate) files: u32,
    pub(crate) stdin: bool,
}

pub(crate) fn request(head: Head<'_>) -> Result<Vec<u8>, FrameError> {
    let mut draft = Draft::new("request").with("id", head.id);
    if let Some(context) = head.context {
        draft = draft.with_raw("context", context);
    }
    if head.files > 0 {
        draft = draft.with("files", head.files);
    }
    if head.stdin {
        draft = draft.with("stdin", true);
    }
    draft.with_raw("ask", head.ask).done()
}

pub(crate) fn part(id: u64, of: Of, data: &[u8], end: bool) -> Result<Vec<u8>, FrameError> {
    let draft = Draft::new("part").with("id", id);
    let mut draft = match of {
        Of::File(index) => draft.with("of", index),
        Of::Stdin => draft.with("of", "stdin"),
    };
    if !data.is_empty() {
        draft = draft.with_data(data);
    }
    if end {
        draft = draft.with("end", true);
    }
    draft.done()
}

pub(crate) fn more(id: u64, bytes: u64) -> Result<Vec<u8>, FrameError> {
    Draft::new("more").with("id", id).with("bytes", bytes).done()
}

pub(crate) fn cancel(id: u64) -> Result<Vec<u8>, FrameError> {
    Draft::new("cancel").with("id", id).done()
}

pub(crate) fn event(id: u64, seq: u64, event: &Raw) -> Result<Vec<u8>, FrameError> {
    Draft::new("event").with("id", id).with("seq", seq).with_raw("event", event).done()
}

pub(crate) fn answer(id: u64, answer: &Raw) -> Result<Vec<u8>, FrameError> {
    Draft::new("answer").with("id", id).with_raw("answer", answer).done()
}

pub(crate) fn problem(id: u64, problem: &Problem) -> Result<Vec<u8>, FrameError> {
    Draft::new("answer").with("id", id).with("problem", document(problem)).done()
}

pub(crate) fn end(end: &End) -> Result<Vec<u8>, FrameError> {
    Draft::new("end")
        .with("reason", end.reason.name())
        .with("problem", document(&end.problem))
        .with("cut", end.cut.as_slice())
        .with("speaks", end.speaks.as_slice())
        .done()
}

fn document(problem: &Problem) -> serde_json::Value {
    let Problem { kind, at, what, why, fix } = problem;
    match at.as_str() {
        "" => json!({"kind": kind, "what": what, "why": why, "fix": fix}),
        at => json!({"kind": kind, "at": at, "what": what, "why": why, "fix": fix}),
    }
}

impl Frame {
    /// Its bytes, with the length before them.
    pub fn encode(&self) -> Result<Vec<u8>, FrameError> {
        match self {
            Frame::Hello { versions, who } => hello(versions, who),
            Frame::Welcome { version, who } => welcome(*version, who),
            Frame::Request(asked) => {
                let (id, files, stdin) = (asked.id, asked.files, asked.stdin);
                let context = asked.context.as_ref().map(Raw::of).transpose()?;
                let ask = &Raw::of(&asked.ask)?;
                request(Head { id, ask, context: context.as_ref(), files, stdin })
            }
            Frame::Part { id, of, data, end } => part(*id, *of, data, *end),
            Frame::More { id, bytes } => more(*id, *bytes),
            Frame::Cancel { id } => cancel(*id),
            Frame::Event { id, seq, event } => self::event(*id, *seq, &Raw::of(event)?),
            Frame::Answer { id, answer: Ok(answer) } => self::answer(*id, &Raw::of(answer)?),
            Frame::Answer { id, answer: Err(problem) } => self::problem(*id, problem),
            Frame::End(end) => self::end(end),
        }
    }
}
