//! Who has the line to the evaluator, and what holds while there is none.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hotcell_sandbox::Handle;

use crate::extension::Failed;
use crate::line::Line;

/// Most callers that wait for their turn, and how long each does.
const MOST_WAITING: usize = 64;
const TURN_WITHIN: Duration = Duration::from_secs(1);

/// After the first failure the process is started again at once; from the second in a row on, after this
/// long, and twice as long each time.
const REST_LEAST: Duration = Duration::from_millis(100);
const REST_MOST: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(crate) struct Desk {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    seat: Seat,
    /// Which process it is; an answer of one that is gone changes nothing.
    generation: u64,
    /// Ends the process.
    handle: Option<Handle>,
    waiting: usize,
    /// Since the last good answer.
    failures: u32,
    questions: u64,
    is_closed: bool,
}

#[derive(Debug)]
enum Seat {
    Free(Line),
    Taken,
    /// A process is on its way.
    Starting,
    /// No process is started before a while has passed.
    Resting,
}

/// The line, for one question.
#[derive(Debug)]
pub(crate) struct Turn {
    pub(crate) line: Line,
    pub(crate) number: u64,
    generation: u64,
}

impl Desk {
    pub(crate) fn new() -> Desk {
        let state = State {
            seat: Seat::Starting,
            generation: 0,
            handle: None,
            waiting: 0,
            failures: 0,
            questions: 0,
            is_closed: false,
        };
        Desk { state: Mutex::new(state), changed: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the line.
    pub(crate) fn turn(&self) -> Result<Turn, Failed> {
        let deadline = Instant::now() + TURN_WITHIN;
        let mut state = self.state();
        if state.waiting >= MOST_WAITING {
            return Err(Failed::Missing { why: format!("{MOST_WAITING} calls wait already") });
        }
        state.waiting += 1;
        let taken = loop {
            match std::mem::replace(&mut state.seat, Seat::Taken) {
                Seat::Free(line) => break Ok(line),
                Seat::Resting => {
                    state.seat = Seat::Resting;
                    let why = "it failed several times, and is given a rest";
                    break Err(Failed::Missing { why: why.into() });
                }
                other => state.seat = other,
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break Err(Failed::Late { why: "it was not free in time".into() });
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        };
        state.waiting -= 1;
        state.questions += 1;
        taken.map(|line| Turn { line, number: state.questions, generation: state.generation })
    }

    /// Gives the line back after a good answer.
    pub(crate) fn done(&self, turn: Turn) {
        let mut state = self.state();
        if state.generation == turn.generation {
            state.failures = 0;
            state.seat = Seat::Free(turn.line);
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Ends the process, which did not answer as it has to.
    pub(crate) fn give_up(&self, turn: &Turn) {
        let state = self.state();
        if state.generation == turn.generation
            && let Some(handle) = &state.handle
        {
            handle.cancel();
        }
    }

    /// There is a process; if nobody wants it any more, it is ended at once.
    pub(crate) fn open(&self, line: Line, handle: Handle) {
        let mut state = self.state();
        if state.is_closed {
            handle.cancel();
        }
        state.generation += 1;
        state.handle = Some(handle);
        state.seat = Seat::Free(line);
        drop(state);
        self.changed.notify_all();
    }

    /// The process has ended, or there could be none.
    pub(crate) fn lost(&self) {
        let mut state = self.state();
        state.generation += 1;
        state.handle = None;
        state.failures = state.failures.saturating_add(1);
        state.seat = if rest(state.failures).is_zero() { Seat::Starting } else { Seat::Resting };
        drop(state);
        self.changed.notify_all();
    }

    /// Waits until a process may be started; `false` if none is to be.
    pub(crate) fn rest(&self) -> bool {
        let mut state = self.state();
        let deadline = Instant::now() + rest(state.failures);
        while !state.is_closed {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                state.seat = Seat::Starting;
                return true;
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        false
    }

    /// Ends the process for good.
    pub(crate) fn close(&self) {
        let mut state = self.state();
        state.is_closed = true;
        if let Some(handle) = &state.handle {
            handle.cancel();
        }
        drop(state);
        self.changed.notify_all();
    }
}

/// How long nothing is started after so many failures in a row.
fn rest(failures: u32) -> Duration {
    match failures.checked_sub(2) {
        None => Duration::ZERO,
        Some(doubled) => REST_LEAST.saturating_mul(1 << doubled.min(16)).min(REST_MOST),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rests_grow_and_have_an_end() {
        let rests: Vec<u128> = (0..6).map(|failures| rest(failures).as_millis()).collect();
        assert_eq!(rests, [0, 0, 100, 200, 400, 800]);
        assert_eq!(rest(u32::MAX), REST_MOST);
    }
}
