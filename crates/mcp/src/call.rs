//! A call from its beginning to its end: how far it is, while somebody wants to know; its end, if nobody
//! does any more.

#![expect(deprecated, reason = "clients of 2025-11-25 have no other way to follow than messages")]

use std::sync::atomic::Ordering;
use std::time::Duration;

use hotcell_api::{Ask, Called, Problem, ProblemKind};
use hotcell_types::Status;
use rmcp::ErrorData;
use rmcp::model::{
    CallToolResponse, LoggingLevel, LoggingMessageNotificationParam, ProgressNotificationParam,
};
use serde_json::json;
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::approval;
use crate::found::Found;
use crate::gate::{Room, Talk, UnderWay};
use crate::result::{refused, result};
use crate::server::{Asked, Server};

/// How often it is told how far a call is.
const TOLD_EVERY: Duration = Duration::from_secs(1);

/// Makes a call, and has a person asked if it needs one.
pub(crate) async fn carry_out(
    server: &Server,
    asked: &Asked,
    ask: Ask,
) -> Result<CallToolResponse, ErrorData> {
    let called = match make(server, asked, ask).await {
        Ok(called) => called,
        Err(problem) => return Ok(refused(&problem).into()),
    };
    match called.review.clone() {
        Some(item) if called.status == Status::Review => {
            approval::put_before_somebody(server, asked, called, item).await
        }
        _ => Ok(told(server, asked, called).await),
    }
}

/// The result of a call, for whoever made it, and a line for whoever follows.
pub(crate) async fn told(server: &Server, asked: &Asked, called: Called) -> CallToolResponse {
    log(server, asked, &called).await;
    result(server.gate(), called).await.into()
}

async fn make(server: &Server, asked: &Asked, ask: Ask) -> Result<Called, Problem> {
    let given_up = &asked.context.ct;
    let mut call = server.gate().begin(ask, Room::Call, &asked.context).await?;
    let mut progress = Progress::of(asked);
    let done = loop {
        tokio::select! {
            biased;
            done = call.done() => break done,
            () = given_up.cancelled() => break server.gate().end(call).await,
            () = progress.is_due() => progress.tell(&call).await,
        }
    };
    called(done)
}

pub(crate) fn called(answer: Result<Found, Problem>) -> Result<Called, Problem> {
    match answer? {
        Found::Called(called) => Ok(*called),
        _ => {
            let why = "the engine gave another one";
            Err(Problem::new(ProblemKind::Error, "there is no answer", why, "report it"))
        }
    }
}

/// How far a call is, for a client that wants to know.
pub(crate) struct Progress<'a> {
    asked: &'a Asked,
    begun: Instant,
    ticks: tokio::time::Interval,
}

impl<'a> Progress<'a> {
    pub(crate) fn of(asked: &'a Asked) -> Progress<'a> {
        let mut ticks = interval(TOLD_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Progress { asked, begun: Instant::now(), ticks }
    }

    /// At once, and then every second; never, if nobody wants to know.
    pub(crate) async fn is_due(&mut self) {
        if self.asked.context.meta.get_progress_token().is_none() {
            return std::future::pending().await;
        }
        self.ticks.tick().await;
    }

    pub(crate) async fn tell(&self, call: &UnderWay) {
        self.say(&words(&call.talk)).await;
    }

    /// The number is the seconds so far: nobody knows how many there will be.
    pub(crate) async fn say(&self, message: &str) {
        let Some(token) = self.asked.context.meta.get_progress_token() else { return };
        let seconds = self.begun.elapsed().as_secs_f64();
        let param = ProgressNotificationParam::new(token, seconds).with_message(message);
        // A client that does not listen is none of the call's affair.
        self.asked.context.peer.notify_progress(param).await.ok();
    }
}

fn words(talk: &Talk) -> String {
    if !talk.is_running.load(Ordering::Relaxed) {
        return "begun".into();
    }
    format!("running, {} bytes printed", talk.printed.load(Ordering::Relaxed))
}

/// A line about the end of a call, if the client has asked for that.
async fn log(server: &Server, asked: &Asked, called: &Called) {
    let level = match called.status {
        Status::Success => LoggingLevel::Info,
        Status::Blocked | Status::Review | Status::Invalid => LoggingLevel::Warning,
        _ => LoggingLevel::Notice,
    };
    if !server.wants(asked, level) {
        return;
    }
    let data = json!({ "call": called.id.to_string(), "status": called.status.name() });
    let param = LoggingMessageNotificationParam::new(level, data).with_logger("hotcell");
    asked.context.peer.notify_logging_message(param).await.ok();
}
