//! Spans for a collector of OpenTelemetry: one for each request, one for each call that it makes, and one for
//! each stage of the path. They say how long things took and under which ids; nothing of what was asked for or
//! answered is in them. Whoever serves never waits for a collector: what does not fit is counted (`export`).

mod endpoint;
mod export;

use std::cell::RefCell;
use std::sync::Arc;

use axum::http::HeaderMap;
use hotcell_engine::{Stage, new_id};
use hotcell_record::now;
use hotcell_types::{CallId, hex};
use serde_json::{Value, json};

use crate::hosts::one;
use crate::metrics::word;

pub use endpoint::{BadEndpoint, Endpoint};
use export::Queue;

/// Where spans go. Clones go to the same place.
#[derive(Debug, Clone)]
pub struct Traces(Arc<Queue>);

/// What a span belongs to, and its own number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Context {
    trace: [u8; 16],
    span: [u8; 8],
    parent: Option<[u8; 8]>,
}

/// What took from then to then.
#[derive(Debug)]
struct Span {
    context: Context,
    name: &'static str,
    /// As the protocol has it: 1 is what happens inside, 2 is what somebody outside asked for.
    kind: u8,
    begun: i64,
    ended: i64,
    has_failed: bool,
    attributes: Vec<(&'static str, Value)>,
}

impl Traces {
    /// Begins to send spans to a collector, whether that is there or not.
    pub fn to(endpoint: Endpoint) -> Traces {
        Traces(Queue::begin(endpoint))
    }

    /// How many spans a collector has taken, how many were lost because there was no room, and how many because
    /// no collector took them.
    pub(crate) fn counts(&self) -> (u64, u64, u64) {
        self.0.counts()
    }

    /// Waits until what there is was sent, if that does not take long.
    pub fn finish(&self) {
        self.0.finish();
    }

    /// A request that has come to its end.
    pub(crate) fn answered(&self, context: Context, request: Answered<'_>) {
        let Answered { id, method, route, status, begun } = request;
        self.0.add(Span {
            context,
            name: "request",
            kind: 2,
            begun,
            ended: now(),
            has_failed: status >= 500,
            attributes: vec![
                ("hotcell.request_id", id.into()),
                ("http.request.method", method.into()),
                ("http.route", route.into()),
                ("http.response.status_code", status.into()),
            ],
        });
    }

    /// Calls that this thread makes from now on belong to a request.
    pub(crate) fn enter(&self, context: Context) -> Entered {
        HERE.set(Here { request: Some(context), entered: Some(now()), open: None });
        Entered
    }

    /// That a call has come so far, on its own thread.
    pub(crate) fn passed(&self, call: CallId, stage: Stage) {
        HERE.with_borrow_mut(|here| here.passed(self, call, stage));
    }
}

/// What is told of a request.
#[derive(Debug)]
pub(crate) struct Answered<'a> {
    pub(crate) id: &'a str,
    /// A word of ours for it: methods are what a client likes.
    pub(crate) method: &'static str,
    pub(crate) route: &'static str,
    pub(crate) status: u16,
    pub(crate) begun: i64,
}

impl Context {
    /// Goes on with what the caller has begun, or begins. That it is not to be seen is not for a caller to say.
    pub(crate) fn of(headers: &HeaderMap) -> Context {
        let header = one(headers, "traceparent").ok().flatten();
        match header.and_then(parse) {
            Some((trace, parent)) => Context { trace, span: number(), parent: Some(parent) },
            None => Context { trace: new_id().to_bytes(), span: number(), parent: None },
        }
    }

    fn below(self) -> Context {
        Context { span: number(), parent: Some(self.span), ..self }
    }
}

/// The trace and the span of a `traceparent`, as <https://www.w3.org/TR/trace-context/> has it.
fn parse(header: &str) -> Option<([u8; 16], [u8; 8])> {
    let mut parts = header.trim().split('-');
    let (version, trace, span, flags) =
        (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let is_hex = |text: &str, length| {
        text.len() == length && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
    };
    // A later version may have more to say, and begins in the same way.
    let is_known = is_hex(version, 2) && version != "ff" && is_hex(flags, 2);
    if !is_known || (version == "00" && parts.next().is_some()) {
        return None;
    }
    let trace: [u8; 16] = hex::parse(trace).filter(|_| is_hex(trace, 32))?;
    let span: [u8; 8] = hex::parse(span).filter(|_| is_hex(span, 16))?;
    (trace != [0; 16] && span != [0; 8]).then_some((trace, span))
}

/// The part of a new id that is chance.
fn number() -> [u8; 8] {
    let [.., a, b, c, d, e, f, g, h] = new_id().to_bytes();
    [a, b, c, d, e, f, g, h]
}

thread_local! {
    /// Stages of a call are told on the call's own thread, one after the other.
    static HERE: RefCell<Here> = const { RefCell::new(Here { request: None, entered: None, open: None }) };
}

/// What this thread is at.
#[derive(Debug, Default)]
struct Here {
    request: Option<Context>,
    entered: Option<i64>,
    open: Option<Open>,
}

/// A call that has not ended as far as anybody told.
#[derive(Debug)]
struct Open {
    traces: Traces,
    context: Context,
    call: CallId,
    begun: i64,
    last: i64,
}

impl Here {
    fn passed(&mut self, traces: &Traces, call: CallId, stage: Stage) {
        let is_new = self.open.as_ref().is_none_or(|open| open.call != call);
        let now = now();
        if is_new {
            // The one before has come as far as it will.
            self.open = None;
            let context = match self.request {
                Some(request) => request.below(),
                None => Context { trace: new_id().to_bytes(), span: number(), parent: None },
            };
            let begun = self.entered.take().unwrap_or(now);
            self.open = Some(Open { traces: traces.clone(), context, call, begun, last: begun });
        }
        let Some(open) = &mut self.open else { return };
        if open.last < now || stage != Stage::Called {
            open.passed(stage, now);
        }
        if stage == Stage::Recorded {
            self.open = None;
        }
    }
}

impl Open {
    fn passed(&mut self, stage: Stage, now: i64) {
        self.traces.0.add(Span {
            context: self.context.below(),
            name: word(stage),
            kind: 1,
            begun: self.last,
            ended: now,
            has_failed: false,
            attributes: vec![("hotcell.call", self.call.to_string().into())],
        });
        self.last = now;
    }
}

/// However far it came.
impl Drop for Open {
    fn drop(&mut self) {
        self.traces.0.add(Span {
            context: self.context,
            name: "call",
            kind: if self.context.parent.is_none() { 2 } else { 1 },
            begun: self.begun,
            ended: self.last,
            has_failed: false,
            attributes: vec![("hotcell.call", self.call.to_string().into())],
        });
    }
}

/// Until this goes, calls of the thread belong to a request.
#[derive(Debug)]
pub(crate) struct Entered;

impl Drop for Entered {
    fn drop(&mut self) {
        HERE.take();
    }
}

impl Span {
    /// As the protocol has it in JSON.
    fn document(&self) -> Value {
        let Context { trace, span, parent } = &self.context;
        let attributes: Vec<Value> = self.attributes.iter().map(attribute).collect();
        json!({
            "traceId": hex::text(trace), "spanId": hex::text(span),
            "parentSpanId": parent.map_or_else(String::new, |parent| hex::text(&parent)),
            "name": self.name, "kind": self.kind,
            "startTimeUnixNano": self.begun.to_string(), "endTimeUnixNano": self.ended.to_string(),
            "attributes": attributes,
            "status": { "code": if self.has_failed { 2 } else { 0 } },
        })
    }
}

fn attribute((key, value): &(&'static str, Value)) -> Value {
    let value = match value {
        // The protocol writes whole numbers as text.
        Value::Number(number) => json!({ "intValue": number.to_string() }),
        other => json!({ "stringValue": other }),
    };
    json!({ "key": key, "value": value })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_traceparent_is_read_as_it_is_specified_and_not_otherwise() {
        let (trace, span) = ("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7");
        for good in [
            format!("00-{trace}-{span}-01"),
            format!("00-{trace}-{span}-00"),
            format!(" 00-{trace}-{span}-01 "),
            format!("cc-{trace}-{span}-01-what-the-future-brings"),
        ] {
            let (read, below) = parse(&good).unwrap();
            assert_eq!((hex::text(&read).as_str(), hex::text(&below).as_str()), (trace, span));
        }
        for bad in [
            String::new(),
            "00".into(),
            format!("00-{trace}-{span}"),
            format!("00-{trace}-{span}-01-more"),
            format!("ff-{trace}-{span}-01"),
            format!("0-{trace}-{span}-01"),
            format!("00-{}-{span}-01", "0".repeat(32)),
            format!("00-{trace}-{}-01", "0".repeat(16)),
            format!("00-{}-{span}-01", trace.to_uppercase()),
            format!("00-{trace}00-{span}-01"),
            format!("00-{trace}-{span}-0g"),
            format!("00-{trace}-é0f067aa0ba902b-01"),
        ] {
            assert_eq!(parse(&bad), None, "{bad}");
        }
    }

    #[test]
    fn a_request_goes_on_with_what_its_caller_has_begun() {
        let mut headers = HeaderMap::new();
        let own = Context::of(&headers);
        assert_eq!(own.parent, None);
        let value = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00";
        headers.insert("traceparent", value.parse().unwrap());
        let next = Context::of(&headers);
        assert_eq!(hex::text(&next.trace), "4bf92f3577b34da6a3ce929d0e0e4736");
        assert_eq!(next.parent.map(|parent| hex::text(&parent)).unwrap(), "00f067aa0ba902b7");
        // Two of them are none.
        headers.append("traceparent", value.parse().unwrap());
        assert_eq!(Context::of(&headers).parent, None);
    }
}
