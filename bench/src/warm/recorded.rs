//! Warm starts as whoever calls an engine has them: judged, digested and recorded.

use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Instant;

use hotcell_api::{self as api, With};
use hotcell_engine::{Attached, Engine};
use hotcell_types::{Caller, Door, Name, Start, Status};
use serde_json::{Value, json};

use super::{First, HATCHED_WITHIN, SETTLE, Times};
use crate::peers::Failure;
use crate::scratch::Scratch;

/// An engine in a home of its own, and a piece of code.
#[derive(Debug)]
pub(super) struct Recorded {
    engine: Engine,
    ask: Value,
    // After the engine.
    _scratch: Scratch,
}

impl Recorded {
    pub(super) fn new(
        scratch: Scratch,
        code: &str,
        environment: Option<&str>,
    ) -> Result<Recorded, Failure> {
        let engine = crate::path::calls::engine(&scratch.home(), None)?;
        let mut run = json!({"language": "python", "code": code});
        if let (Some(run), Some(name)) = (run.as_object_mut(), environment) {
            run.insert("environment".into(), name.into());
        }
        Ok(Recorded { engine, ask: json!({"ask": "run", "run": run}), _scratch: scratch })
    }

    /// Until an interpreter waits, or nothing is expected any more. What the last run began with.
    pub(super) fn warm_up(&self) -> Result<Start, Failure> {
        let begun = Instant::now();
        loop {
            let (_, start) = self.run()?;
            if start == Start::Waiting || begun.elapsed() > HATCHED_WITHIN {
                return Ok(start);
            }
            thread::sleep(SETTLE);
        }
    }

    pub(super) fn run(&self) -> Result<(Times, Start), Failure> {
        let (interrupt, caller) =
            (AtomicBool::new(false), Caller::local(Name::LOCAL, Door::Library));
        let ask = serde_json::from_value(self.ask.clone())?;
        let mut first = First(None);
        let attached = Attached { sink: Some(&mut first), ..Attached::default() };
        let with = With { attached, interrupt: &interrupt, log: &mut |_, _| true };
        let begun = Instant::now();
        let answer = api::answer(&self.engine, &caller, ask, with);
        let end = begun.elapsed();
        let called = match answer {
            Ok(api::Answer::Called(called)) if called.status == Status::Success => called,
            other => return Err(format!("a recorded run: {other:?}").into()),
        };
        let start = called.run.map_or(Start::New, |outcome| outcome.start);
        let first = first.0.ok_or("it printed nothing")?.duration_since(begun);
        Ok(([first, end], start))
    }
}
