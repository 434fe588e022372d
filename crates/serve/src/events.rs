//! What a call prints, as server-sent events. The id of an event is how far both streams are with it, so
//! that whoever comes back with `Last-Event-ID` is sent exactly what is missing.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, HeaderValue, Response, header};
use hotcell_api::{self as api, Answer, Ask, With};
use hotcell_engine::{Attached, Engine, Position};
use hotcell_types::{CallId, Caller, Status};
use schemars::JsonSchema;
use serde::Serialize;
use tokio::sync::{mpsc, watch};

use crate::connections::from_pieces;
use crate::hosts::one;
use crate::problem::Trouble;
use crate::under_way::Job;

/// Events that wait to be sent. Whoever produces them waits; a client that takes nothing for long is closed.
const WAITING: usize = 16;
/// How often something is sent when there is nothing to say: so that a connection that is dead is found.
const HEARTBEAT: Duration = Duration::from_secs(10);

/// What the data of an event is.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(untagged)]
#[schemars(rename = "RunEvent")]
pub(crate) enum Event {
    /// `state`: how far it is. The first, and whenever that has changed.
    State(State),
    /// `output` and `usage`.
    Log(api::Log),
    /// `end`: everything that is known of it then.
    End(Box<api::Call>),
    /// `error`: why there is no more.
    Error(api::Problem),
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "RunState")]
pub(crate) struct State {
    #[schemars(with = "String")]
    call: CallId,
    state: Phase,
    /// `null` while it goes on.
    #[schemars(with = "Option<String>")]
    status: Option<Status>,
}

/// How far a call is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "RunPhase")]
pub(crate) enum Phase {
    /// It is in the record, and waits for its turn.
    Queued,
    /// It has its turn, or goes on in another process.
    Running,
    Ended,
}

/// How far a call of this process is, as long as it goes on.
pub(crate) type Phases = watch::Receiver<Phase>;

/// What is sent, and where whoever has it stands.
pub(crate) type Piece = (Position, Bytes);

impl Event {
    pub(crate) const NAMES: [&str; 5] = ["state", "output", "usage", "end", "error"];

    fn name(&self) -> &'static str {
        match self {
            Event::State(_) => "state",
            Event::Log(log) if log.stream.is_some() => "output",
            Event::Log(_) => "usage",
            Event::End(_) => "end",
            Event::Error(_) => "error",
        }
    }

    /// As it is sent. JSON has no line breaks, so that there is one line of data.
    fn bytes(&self, at: Position) -> Bytes {
        let data = serde_json::to_string(self).unwrap_or_default();
        let (name, Position { stdout, stderr }) = (self.name(), at);
        format!("id: {stdout}-{stderr}\nevent: {name}\ndata: {data}\n\n").into()
    }
}

/// Where somebody was who comes back.
pub(crate) fn last_event(headers: &HeaderMap) -> Result<Option<Position>, Trouble> {
    let Some(text) = one(headers, "last-event-id")? else { return Ok(None) };
    let number = |text: &str| {
        let is_plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        is_plain.then(|| text.parse::<u64>().ok()).flatten()
    };
    let position = text.split_once('-').and_then(|(stdout, stderr)| {
        Some(Position { stdout: number(stdout)?, stderr: number(stderr)? })
    });
    position.map(Some).ok_or_else(|| {
        let why = "it is not the id of an event of this server";
        Trouble::bad_request("the header `last-event-id` cannot be used", why)
    })
}

/// Sent before anything else, or instead of it.
pub(crate) type Begun = Result<(), Trouble>;

/// What goes on between the engine and a connection.
pub(crate) struct Line {
    begun: Option<tokio::sync::oneshot::Sender<Begun>>,
    out: mpsc::Sender<Piece>,
}

impl Line {
    pub(crate) fn new() -> (Line, tokio::sync::oneshot::Receiver<Begun>, mpsc::Receiver<Piece>) {
        let (out, taken) = mpsc::channel(WAITING);
        let (begun, hear) = tokio::sync::oneshot::channel();
        (Line { begun: Some(begun), out }, hear, taken)
    }

    /// Tells everything, until there is no more or nobody listens. That a call which is `first` queued runs
    /// is told by [`response`]. On a thread that may block.
    pub(crate) fn tell(
        mut self,
        engine: &Arc<Engine>,
        caller: &Caller,
        (ask, first): (Ask, Phase),
        job: &Job,
    ) {
        let Ask::Logs { call, stdout, stderr, .. } = ask else { return };
        let mut at = Position { stdout, stderr };
        let shown = api::answer(engine, caller, Ask::Show { call }, with(job, &mut |_, _| true));
        let status = match shown {
            Ok(Answer::Call(shown)) => shown.status,
            Ok(_) => None,
            Err(problem) => return self.begin(Err(problem.into())),
        };
        self.begin(Ok(()));
        let state = status.map_or(first, |_| Phase::Ended);
        if !self.send(&Event::State(State { call, state, status }), at) {
            return;
        }
        let mut tell = |log: api::Log, position: Position| {
            at = position;
            self.send(&Event::Log(log), position)
        };
        let told = api::answer(engine, caller, ask, with(job, &mut tell));
        let last = match told {
            // Nobody listens any more, or the server is about to end: the end is not known.
            Ok(Answer::Call(shown)) if shown.status.is_none() => return,
            Ok(Answer::Call(shown)) => {
                let ended = State { call, state: Phase::Ended, status: shown.status };
                if state != Phase::Ended && !self.send(&Event::State(ended), at) {
                    return;
                }
                Event::End(shown)
            }
            Ok(_) => return,
            Err(problem) => Event::Error(problem),
        };
        self.send(&last, at);
    }

    fn begin(&mut self, begun: Begun) {
        if let Some(tell) = self.begun.take() {
            // Whoever asked may be gone.
            tell.send(begun).ok();
        }
    }

    /// Waits for room; whether anybody listens.
    fn send(&self, event: &Event, at: Position) -> bool {
        self.out.blocking_send((at, event.bytes(at))).is_ok()
    }
}

fn with<'a>(job: &'a Job, log: &'a mut dyn FnMut(api::Log, Position) -> bool) -> With<'a> {
    With { attached: Attached::default(), interrupt: &job.interrupt, log }
}

/// When a call of this process has its turn that waits for it.
type Turn = Pin<Box<dyn Future<Output = bool> + Send>>;

fn turn(mut phases: Phases) -> Turn {
    Box::pin(async move { phases.wait_for(|phase| *phase == Phase::Running).await.is_ok() })
}

/// What a call prints, and in between that it has its turn: before anything that it prints.
struct Told {
    call: CallId,
    events: mpsc::Receiver<Piece>,
    /// Of a call that was told to wait.
    turn: Option<Turn>,
    /// Where whoever listens stands, once anything was told.
    at: Option<Position>,
}

impl Told {
    fn next(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if let (Some(at), Some(turn)) = (self.at, &mut self.turn)
            && let Poll::Ready(has_turn) = turn.as_mut().poll(context)
        {
            self.turn = None;
            if has_turn {
                let state = State { call: self.call, state: Phase::Running, status: None };
                return Poll::Ready(Some(Event::State(state).bytes(at)));
            }
        }
        self.events.poll_recv(context).map(|piece| {
            let (at, bytes) = piece?;
            self.at = Some(at);
            Some(bytes)
        })
    }
}

/// The stream, with a sign of life now and again. `phases` is that of a call which is told to be queued.
pub(crate) fn response(
    call: CallId,
    events: mpsc::Receiver<Piece>,
    phases: Option<Phases>,
) -> Response<Body> {
    let mut beat = Box::pin(tokio::time::sleep(HEARTBEAT));
    let mut told = Told { call, events, turn: phases.map(turn), at: None };
    let next = move |context: &mut Context<'_>| {
        let piece = match told.next(context) {
            Poll::Ready(piece) => piece,
            Poll::Pending => match beat.as_mut().poll(context) {
                Poll::Ready(()) => Some(Bytes::from_static(b": \n\n")),
                Poll::Pending => return Poll::Pending,
            },
        };
        beat.as_mut().reset(tokio::time::Instant::now() + HEARTBEAT);
        Poll::Ready(piece.map(Ok::<_, std::convert::Infallible>))
    };
    let mut response = Response::new(from_pieces(next, None));
    let media = HeaderValue::from_static("text/event-stream");
    response.headers_mut().insert(header::CONTENT_TYPE, media);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_ids_of_our_own_are_understood() {
        let of = |text: &'static str| {
            let value = HeaderValue::from_static(text);
            last_event(&HeaderMap::from_iter([("last-event-id".parse().unwrap(), value)]))
        };
        assert_eq!(of("12-3").unwrap(), Some(Position { stdout: 12, stderr: 3 }));
        for text in ["", "1", "-", "1-", "-1-2", "+1-2", "1-2-3", "a-b", "99999999999999999999-1"] {
            assert_eq!(of(text).unwrap_err().status(), 400, "{text}");
        }
    }
}
