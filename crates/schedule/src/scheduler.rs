//! The scheduler as callers see it: their own threads ask, wait and give back.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hotcell_types::CallId;

use crate::answer::{Refused, Why};
use crate::clock::{Clock, Monotonic};
use crate::graph;
use crate::limits::Limits;
use crate::snapshot::Snapshot;
use crate::state::{Act, Claim, Errand, Errands, State, Ticket};
use crate::want::{Control, Want};

/// Shortest sleep: a clock that stands still wakes nobody more often than this.
const LEAST_SLEEP: Duration = Duration::from_millis(1);

/// Gives turns. Clones are the same scheduler.
#[derive(Debug, Clone)]
pub struct Scheduler {
    shared: Arc<Shared>,
}

/// A request that was taken. Dropping it without waiting cancels it.
#[derive(Debug)]
#[must_use = "without waiting for it there is no turn"]
pub struct Waiting {
    shared: Arc<Shared>,
    ticket: Ticket,
    id: CallId,
    is_answered: bool,
}

/// Takes a job out of the queue from another thread.
#[derive(Debug, Clone)]
pub struct Canceller {
    shared: Arc<Shared>,
    ticket: Ticket,
}

/// A job's turn. Dropping it gives the place back, and counts as failure.
#[derive(Debug)]
#[must_use = "dropping it gives the place back"]
pub struct Turn {
    shared: Arc<Shared>,
    ticket: Ticket,
    id: CallId,
    is_over: bool,
}

#[derive(Debug)]
struct Shared {
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
}

impl Scheduler {
    pub fn new(limits: Limits) -> Scheduler {
        Scheduler::with_clock(limits, Arc::new(Monotonic::default()))
    }

    pub fn with_clock(limits: Limits, clock: Arc<dyn Clock>) -> Scheduler {
        Scheduler { shared: Arc::new(Shared { clock, state: Mutex::new(State::new(limits)) }) }
    }

    /// Asks for a turn. Does not wait, except for the [`Control`] of jobs that have to make room.
    pub fn request(&self, want: Want, control: Arc<dyn Control>) -> Result<Waiting, Refused> {
        let mut waiting = self.request_all(vec![(want, control)])?;
        // One request has one ticket.
        waiting.pop().ok_or(Refused::Closing)
    }

    /// Asks for turns of jobs that may wait for each other, in any order. All are taken, or none.
    pub fn request_all(
        &self,
        mut wants: Vec<(Want, Arc<dyn Control>)>,
    ) -> Result<Vec<Waiting>, Refused> {
        if let Some(ids) = graph::circle(wants.iter().map(|(want, _)| want)) {
            return Err(Refused::Cycle(ids));
        }
        let ids: Vec<_> = wants.iter().map(|(want, _)| want.id).collect();
        let tickets = self.shared.step(|state| state.request(&mut wants))?;
        let waiting = tickets.into_iter().zip(ids).map(|(ticket, id)| {
            let shared = Arc::clone(&self.shared);
            Waiting { shared, ticket, id, is_answered: false }
        });
        Ok(waiting.collect())
    }

    /// Ends the waiting of everybody with [`Why::Closing`]. Those that run go on.
    pub fn close(&self) {
        self.shared.step(State::close);
    }

    /// Looks at the clock again. Only needed with a clock that does not run by itself.
    pub fn look_at_clock(&self) {
        self.shared.step(|_| ());
    }

    pub fn snapshot(&self) -> Snapshot {
        self.shared.step(|state| Snapshot::of(state))
    }

    #[cfg(test)]
    pub(crate) fn inspect<T>(&self, look: impl FnOnce(&State) -> T) -> T {
        look(&self.shared.lock())
    }
}

impl Waiting {
    pub fn id(&self) -> CallId {
        self.id
    }

    /// Waits for the turn, or for why there is none.
    pub fn wait(mut self) -> Result<Turn, Why> {
        loop {
            match self.look() {
                Ok(answer) => return answer,
                Err(bell) => self.shared.sleep(self.ticket, &bell),
            }
        }
    }

    /// The answer, or what is rung when there is one.
    pub(crate) fn look(&mut self) -> Result<Result<Turn, Why>, Arc<Condvar>> {
        let answer = match self.shared.step(|state| state.claim(self.ticket)) {
            Claim::NotYet(bell) => return Err(bell),
            Claim::Not(why) => Err(why),
            Claim::Turn => {
                let shared = Arc::clone(&self.shared);
                Ok(Turn { shared, ticket: self.ticket, id: self.id, is_over: false })
            }
        };
        self.is_answered = true;
        Ok(answer)
    }

    pub fn cancel_handle(&self) -> Canceller {
        Canceller { shared: Arc::clone(&self.shared), ticket: self.ticket }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if !self.is_answered {
            self.shared.step(|state| state.abandon(self.ticket));
        }
    }
}

impl Canceller {
    /// Whether it still waited: its caller hears [`Why::Cancelled`]. A job whose caller has its turn is not
    /// touched.
    pub fn cancel(&self) -> bool {
        self.shared.step(|state| state.cancel(self.ticket))
    }
}

impl Turn {
    pub fn id(&self) -> CallId {
        self.id
    }

    /// Gives the place back. Those that wait for this job start if it is a success, and fail otherwise.
    /// [`Why::Preempted`] if the job had to make room and did not succeed.
    pub fn finish(mut self, success: bool) -> Result<(), Why> {
        self.is_over = true;
        match self.shared.step(|state| state.release(self.ticket, success)) {
            Some(why) => Err(why),
            None => Ok(()),
        }
    }
}

impl Drop for Turn {
    /// Also when its thread panics.
    fn drop(&mut self) {
        if !self.is_over {
            self.shared.step(|state| state.release(self.ticket, false));
        }
    }
}

impl Shared {
    /// Takes one step under the lock, and does outside it what that asks for.
    fn step<T>(&self, step: impl FnOnce(&mut State) -> T) -> T {
        let (answer, errands) = self.locked(step);
        let mut acts = ring(errands);
        while let Some(Errand { ticket, act, control }) = acts.pop_front() {
            let is_done = perform(act, &*control);
            let ((), errands) = self.locked(|state| state.acted(ticket, act, is_done));
            acts.extend(ring(errands));
        }
        answer
    }

    fn locked<T>(&self, step: impl FnOnce(&mut State) -> T) -> (T, Errands) {
        let mut state = self.lock();
        state.see(self.clock.now());
        (step(&mut state), state.take_errands())
    }

    /// Sleeps until the bell is rung or the patience is over, or for no reason: the caller looks again.
    fn sleep(&self, ticket: Ticket, bell: &Condvar) {
        let state = self.lock();
        if let Some(left) = state.patience(ticket, self.clock.now()) {
            drop(bell.wait_timeout(state, left.max(LEAST_SLEEP)));
        }
    }

    /// A panic while it was held can only have come from the clock, which is read before anything changes.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Wakes and drops. What is left is to be acted on.
fn ring(errands: Errands) -> VecDeque<Errand> {
    for bell in errands.bells {
        bell.notify_one();
    }
    drop(errands.over);
    errands.acts.into()
}

fn perform(act: Act, control: &dyn Control) -> bool {
    let done = catch_unwind(AssertUnwindSafe(|| match act {
        Act::Pause => control.pause(),
        Act::Resume => control.resume(),
        Act::Destroy => control.destroy(),
    }));
    matches!(done, Ok(Ok(())))
}
