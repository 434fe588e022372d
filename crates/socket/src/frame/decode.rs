//! Bytes → frame. First strict JSON, then exactly the members that the kind has.

use data_encoding::BASE64;
use hotcell_request::Value;
use hotcell_request::json::{Bounds, DEPTH_MOST, parse};
use serde_json::Map;

use super::{Asked, End, Frame, FrameError, Of, Reason};
use crate::bounds::{
    DEPTH_AROUND, FILES_MOST, FRAME_MOST, NODES_MOST, REQUESTS_MOST, VERSIONS_MOST, WHO_MOST,
};
use crate::problem::Problem;

/// Documents within a frame may be as deep as any; what is around them comes on top.
const BOUNDS: Bounds =
    Bounds { bytes: FRAME_MOST, nodes: NODES_MOST, depth: DEPTH_MOST + DEPTH_AROUND };

/// Reads what comes after the length.
pub fn decode(bytes: &[u8]) -> Result<Frame, FrameError> {
    let value = parse(bytes, &BOUNDS).map_err(FrameError::NotJson)?;
    let (kind, mut members) = kind(value)?;
    let frame = match kind.as_str() {
        "hello" => hello(&mut members)?,
        "welcome" => Frame::Welcome { version: members.number("version")?, who: members.who()? },
        "request" => request(&mut members)?,
        "part" => part(&mut members)?,
        "more" => Frame::More { id: members.id()?, bytes: members.number("bytes")? },
        "cancel" => Frame::Cancel { id: members.id()? },
        "event" => Frame::Event {
            id: members.id()?,
            seq: members.number("seq")?,
            event: members.need("event")?,
        },
        "answer" => Frame::Answer { id: members.id()?, answer: answer(&mut members)? },
        "end" => Frame::End(end(&mut members)?),
        _ => return Err(shape(format!("there is no kind `{}`", shown(&kind)))),
    };
    members.nothing_else()?;
    Ok(frame)
}

fn kind(value: Value) -> Result<(String, Members), FrameError> {
    let Value::Object(outer) = value else { return Err(shape("it is not an object")) };
    let mut outer = outer.into_iter();
    match (outer.next(), outer.next()) {
        (Some((kind, Value::Object(members))), None) => Ok((kind, Members(members))),
        (Some((kind, _)), None) => Err(shape(format!("`{}` is not an object", shown(&kind)))),
        _ => Err(shape("it does not have exactly one member, which names its kind")),
    }
}

fn hello(members: &mut Members) -> Result<Frame, FrameError> {
    let versions = members.numbers("versions", VERSIONS_MOST)?;
    let versions = versions.into_iter().map(u32::try_from).collect::<Result<_, _>>();
    let versions = versions.map_err(|_| shape("a version is too large a number"))?;
    Ok(Frame::Hello { versions, who: members.who()? })
}

fn request(members: &mut Members) -> Result<Frame, FrameError> {
    let files = members.maybe("files").map_or(Ok(0), |value| number("files", &value))?;
    if files > FILES_MOST {
        return Err(shape(format!("there are {files} files, and {FILES_MOST} is the most")));
    }
    let (id, ask, context) = (members.id()?, members.need("ask")?, members.maybe("context"));
    Ok(Frame::Request(Asked { id, ask, context, files, stdin: members.flag("stdin")? }))
}

fn part(members: &mut Members) -> Result<Frame, FrameError> {
    let of = match members.need("of")? {
        Value::String(name) if name == "stdin" => Of::Stdin,
        value => Of::File(number("of", &value)?),
    };
    let data = match members.maybe("data") {
        None => Vec::new(),
        Some(Value::String(text)) => BASE64
            .decode(text.as_bytes())
            .map_err(|error| shape(format!("`data` is not Base64: {error}")))?,
        Some(_) => return Err(shape("`data` is not text")),
    };
    Ok(Frame::Part { id: members.id()?, of, data, end: members.flag("end")? })
}

fn answer(members: &mut Members) -> Result<Result<Value, Problem>, FrameError> {
    match (members.maybe("answer"), members.maybe("problem")) {
        (Some(answer), None) => Ok(Ok(answer)),
        (None, Some(problem)) => self::problem(problem).map(Err),
        _ => Err(shape("it has not exactly one of `answer` and `problem`")),
    }
}

fn problem(value: Value) -> Result<Problem, FrameError> {
    let Value::Object(members) = value else { return Err(shape("`problem` is not an object")) };
    let mut members = Members(members);
    let problem = Problem {
        kind: members.text("kind")?.into(),
        at: members.maybe("at").map_or(Ok(String::new()), |value| text("at", value))?,
        what: members.text("what")?,
        why: members.text("why")?,
        fix: members.text("fix")?,
    };
    members.nothing_else()?;
    Ok(problem)
}

fn end(members: &mut Members) -> Result<End, FrameError> {
    let name = members.text("reason")?;
    let reason = Reason::ALL.into_iter().find(|reason| reason.name() == name);
    let reason = reason.ok_or_else(|| shape(format!("there is no reason `{}`", shown(&name))))?;
    let speaks = members.numbers("speaks", VERSIONS_MOST)?;
    let speaks = speaks.into_iter().filter_map(|version| u32::try_from(version).ok()).collect();
    let cut = members.numbers("cut", REQUESTS_MOST)?;
    Ok(End { reason, problem: problem(members.need("problem")?)?, cut, speaks })
}

/// What a frame has, until it was taken out.
struct Members(Map<String, Value>);

impl Members {
    fn maybe(&mut self, name: &str) -> Option<Value> {
        self.0.remove(name)
    }

    fn need(&mut self, name: &str) -> Result<Value, FrameError> {
        self.maybe(name).ok_or_else(|| shape(format!("`{name}` is missing")))
    }

    fn id(&mut self) -> Result<u64, FrameError> {
        self.number("id")
    }

    fn number<T: TryFrom<u64>>(&mut self, name: &str) -> Result<T, FrameError> {
        number(name, &self.need(name)?)
    }

    fn text(&mut self, name: &str) -> Result<String, FrameError> {
        text(name, self.need(name)?)
    }

    fn who(&mut self) -> Result<String, FrameError> {
        let who = self.text("who")?;
        if who.len() > WHO_MOST {
            return Err(shape(format!("`who` has more than {WHO_MOST} bytes")));
        }
        Ok(who)
    }

    /// `false` where it is not there.
    fn flag(&mut self, name: &str) -> Result<bool, FrameError> {
        let value = self.maybe(name).unwrap_or(Value::Bool(false));
        value.as_bool().ok_or_else(|| shape(format!("`{name}` is neither true nor false")))
    }

    fn numbers(&mut self, name: &str, most: usize) -> Result<Vec<u64>, FrameError> {
        let Value::Array(items) = self.need(name)? else {
            return Err(shape(format!("`{name}` is not a list")));
        };
        if items.len() > most {
            return Err(shape(format!("`{name}` has more than {most} items")));
        }
        items.iter().map(|item| number(name, item)).collect()
    }

    fn nothing_else(&self) -> Result<(), FrameError> {
        match self.0.keys().next() {
            None => Ok(()),
            Some(name) => Err(shape(format!("there is no member `{}`", shown(name)))),
        }
    }
}

fn number<T: TryFrom<u64>>(name: &str, value: &Value) -> Result<T, FrameError> {
    let number = value.as_u64().and_then(|number| T::try_from(number).ok());
    number.ok_or_else(|| shape(format!("`{name}` is not a whole number in its range")))
}

fn text(name: &str, value: Value) -> Result<String, FrameError> {
    match value {
        Value::String(text) => Ok(text),
        _ => Err(shape(format!("`{name}` is not text"))),
    }
}

fn shape(what: impl Into<String>) -> FrameError {
    FrameError::Shape(what.into())
}

/// Somebody else's text, short and without what steers a terminal.
fn shown(text: &str) -> String {
    text.chars().take(40).flat_map(char::escape_debug).collect()
}
