//! The life of a sandbox that stays: its states, who is in it, and how long nobody was.

use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hotcell_sandbox::{Keep, Kept, Refusal};
use hotcell_tools::stay::State;
use hotcell_types::{CallId, Caller, Level, Limits, Span};
use hotcell_workspace::Root;

use crate::changes::Copied;

/// Whether a sandbox goes from one state into another.
pub(crate) fn follows(from: State, to: State) -> bool {
    use State::{Cleanup, Creating, Destroyed, Failed, Paused, Running, Stopping};
    matches!(
        (from, to),
        (Creating, Running | Failed)
            | (Running, Paused | Stopping | Failed)
            | (Paused, Running | Stopping | Failed)
            | (Stopping | Failed, Cleanup)
            | (Cleanup, Destroyed | Failed)
            | (Destroyed, Creating)
    )
}

/// What a sandbox is made with, for good.
#[derive(Debug)]
pub(crate) struct Design {
    pub(crate) keep: Keep,
    /// The lowest level that whoever asked for it accepts.
    pub(crate) minimum: Level,
    /// What was asked for, without what the copy takes on top.
    pub(crate) bounds: Limits,
    pub(crate) template: &'static str,
    pub(crate) languages: Vec<String>,
    pub(crate) copy: Option<(Arc<Copied>, Root)>,
    pub(crate) idle: Span,
    pub(crate) lifetime: Span,
}

/// A sandbox of this process.
#[derive(Debug)]
pub(crate) struct Stay {
    pub(crate) id: CallId,
    pub(crate) owner: Caller,
    pub(crate) design: Design,
    pub(crate) created_ns: i64,
    now: Mutex<Now>,
    /// Rung when somebody leaves.
    left: Condvar,
}

/// How it stands.
#[derive(Debug)]
struct Now {
    state: State,
    why: Option<String>,
    kept: Option<Arc<Kept>>,
    born: Instant,
    /// Since when nobody is in it.
    idle_since: Instant,
    /// Calls that are in it, and whether one is that wants to be alone.
    inside: usize,
    is_taken: bool,
    programs: u64,
}

/// Why a sandbox cannot be used now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unfit {
    State(State),
    /// Somebody is in it, or wants to be alone in it.
    Taken,
}

/// A call in a sandbox. Dropping it leaves.
#[derive(Debug)]
pub(crate) struct Inside {
    stay: Arc<Stay>,
    pub(crate) kept: Arc<Kept>,
    is_alone: bool,
}

impl Inside {
    /// A program was started in it.
    pub(crate) fn count_program(&self) {
        self.stay.count_program();
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        let mut now = self.stay.now();
        now.inside = now.inside.saturating_sub(1);
        now.is_taken &= !self.is_alone;
        now.idle_since = Instant::now();
        drop(now);
        self.stay.left.notify_all();
    }
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unfit::State(state) => write!(f, "it is {}", name(*state)),
            Unfit::Taken => f.write_str("something else goes on in it that must be alone"),
        }
    }
}

pub(crate) fn name(state: State) -> &'static str {
    match state {
        State::Creating => "being made",
        State::Running => "running",
        State::Paused => "paused",
        State::Stopping => "being stopped",
        State::Cleanup => "being removed",
        State::Destroyed => "stopped",
        State::Failed => "failed",
    }
}

impl Stay {
    /// One that is being made.
    pub(crate) fn new(id: CallId, owner: Caller, design: Design, created_ns: i64) -> Stay {
        let moment = Instant::now();
        let now = Now {
            state: State::Creating,
            why: None,
            kept: None,
            born: moment,
            idle_since: moment,
            inside: 0,
            is_taken: false,
            programs: 0,
        };
        Stay { id, owner, design, created_ns, now: Mutex::new(now), left: Condvar::new() }
    }

    pub(crate) fn state(&self) -> State {
        self.now().state
    }

    pub(crate) fn why(&self) -> Option<String> {
        self.now().why.clone()
    }

    /// Programs so far.
    pub(crate) fn programs(&self) -> u64 {
        self.now().programs
    }

    /// A program was started.
    pub(crate) fn count_program(&self) {
        self.now().programs += 1;
    }

    pub(crate) fn kept(&self) -> Option<Arc<Kept>> {
        self.now().kept.clone()
    }

    /// Whether it takes room.
    pub(crate) fn is_live(&self) -> bool {
        !matches!(self.state(), State::Destroyed)
    }

    /// It stands.
    pub(crate) fn begin(&self, kept: Kept) {
        let mut now = self.now();
        now.to(State::Running);
        now.why = None;
        now.kept = Some(Arc::new(kept));
        now.born = Instant::now();
        now.idle_since = now.born;
        self.left.notify_all();
    }

    /// Comes in, for a program or for something that wants nobody else to be there.
    pub(crate) fn enter(self: &Arc<Stay>, alone: bool) -> Result<Inside, Unfit> {
        let mut now = self.now();
        if now.state != State::Running {
            return Err(Unfit::State(now.state));
        }
        if now.is_taken || (alone && now.inside > 0) {
            return Err(Unfit::Taken);
        }
        let kept = now.kept.clone().ok_or(Unfit::State(State::Failed))?;
        now.inside += 1;
        now.is_taken |= alone;
        drop(now);
        Ok(Inside { stay: Arc::clone(self), kept, is_alone: alone })
    }

    pub(crate) fn pause(&self) -> Result<Result<(), Refusal>, Unfit> {
        self.turn(State::Running, State::Paused, Kept::pause)
    }

    pub(crate) fn resume(&self) -> Result<Result<(), Refusal>, Unfit> {
        self.turn(State::Paused, State::Running, Kept::resume)
    }

    /// Others can look at it meanwhile, and stop it.
    fn turn(
        &self,
        from: State,
        to: State,
        act: fn(&Kept) -> Result<(), Refusal>,
    ) -> Result<Result<(), Refusal>, Unfit> {
        let now = self.now();
        if now.state == to {
            return Ok(Ok(()));
        }
        let kept = now.kept.as_ref().filter(|_| now.state == from);
        let kept = Arc::clone(kept.ok_or(Unfit::State(now.state))?);
        if now.is_taken {
            return Err(Unfit::Taken);
        }
        drop(now);
        if let Err(refusal) = act(&kept) {
            return Ok(Err(refusal));
        }
        let mut now = self.now();
        if now.state == from {
            now.to(to);
            now.idle_since = Instant::now();
        }
        if now.state == to { Ok(Ok(())) } else { Err(Unfit::State(now.state)) }
    }

    /// Ends everything in it and removes it, as far as that goes; again goes on where it stopped. Says whether
    /// this call did.
    pub(crate) fn stop(&self, why: Option<String>) -> Result<bool, Refusal> {
        let mut now = self.now();
        let kept = match now.state {
            State::Running | State::Paused | State::Failed => now.kept.take(),
            // Somebody else does.
            State::Creating | State::Stopping | State::Cleanup | State::Destroyed => {
                return Ok(false);
            }
        };
        // From here on nobody else does.
        let next = if now.state == State::Failed { State::Cleanup } else { State::Stopping };
        now.to(next);
        if why.is_some() {
            now.why = why;
        }
        drop(now);
        let stopped = kept.as_ref().map_or(Ok(()), |kept| kept.stop());
        let mut now = self.now();
        if now.state == State::Stopping {
            now.to(State::Cleanup);
        }
        self.left.notify_all();
        match stopped {
            Ok(()) => {
                now.to(State::Destroyed);
                Ok(true)
            }
            Err(refusal) => {
                now.to(State::Failed);
                now.why = Some(format!("not all of it could be removed: {refusal}"));
                now.kept = kept;
                Err(refusal)
            }
        }
    }

    /// Waits until it was made, or for so long.
    pub(crate) fn wait_made(&self, most: Duration) {
        let is_made = |now: &mut Now| now.state == State::Creating;
        let waited = self.left.wait_timeout_while(self.now(), most, is_made);
        drop(waited.map_err(PoisonError::into_inner));
    }

    /// It is to be made anew. Says whether it may.
    pub(crate) fn renew(&self) -> bool {
        let mut now = self.now();
        // Who is still in there goes by what it was before.
        let may = now.state == State::Destroyed && now.inside == 0;
        if may {
            now.to(State::Creating);
        }
        may
    }

    /// It could not be made: nothing of it is there.
    pub(crate) fn give_up(&self, why: String) {
        let mut now = self.now();
        if now.state != State::Creating {
            return;
        }
        now.why = Some(why);
        for state in [State::Failed, State::Cleanup, State::Destroyed] {
            now.to(state);
        }
        self.left.notify_all();
    }

    /// Notices an end that nobody asked for. Says whether something of it is to be removed.
    pub(crate) fn notice_end(&self) -> bool {
        let mut now = self.now();
        let has_ended = now.kept.as_ref().is_some_and(|kept| kept.has_ended());
        if has_ended && matches!(now.state, State::Running | State::Paused) {
            now.to(State::Failed);
            now.why = Some("it was killed from outside".into());
        }
        now.state == State::Failed
    }

    /// When its time is over, and why, if nothing happens until then.
    pub(crate) fn due(&self) -> Option<(Instant, String)> {
        let now = self.now();
        let Design { idle, lifetime, .. } = &self.design;
        let at = |since: Instant, span: &Span| since.checked_add(span.duration());
        let old =
            at(now.born, lifetime).map(|at| (at, format!("its lifetime of {lifetime} is over")));
        // One that is paused is used by nobody, whoever waits in it.
        let unused = (now.state == State::Paused || now.inside == 0)
            .then(|| at(now.idle_since, idle))
            .flatten()
            .map(|at| (at, format!("nobody used it for {idle}")));
        match now.state {
            State::Running | State::Paused => {
                [old, unused].into_iter().flatten().min_by_key(|(at, _)| *at)
            }
            _ => None,
        }
    }

    /// Waits until nobody is in it and nobody makes or removes it, or for so long.
    pub(crate) fn wait_settled(&self, most: Duration) {
        let is_busy = |now: &mut Now| {
            let is_turning =
                matches!(now.state, State::Creating | State::Stopping | State::Cleanup);
            now.inside > 0 || is_turning
        };
        let waited = self.left.wait_timeout_while(self.now(), most, is_busy);
        drop(waited.map_err(PoisonError::into_inner));
    }

    fn now(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Now {
    fn to(&mut self, next: State) {
        debug_assert!(follows(self.state, next), "{:?} is not followed by {next:?}", self.state);
        self.state = next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_transition_that_is_not_in_the_table_is_forbidden() {
        use State::{Cleanup, Creating, Destroyed, Failed, Paused, Running, Stopping};
        let all = [Creating, Running, Paused, Stopping, Cleanup, Destroyed, Failed];
        let allowed: Vec<(State, State)> = all
            .into_iter()
            .flat_map(|from| all.into_iter().map(move |to| (from, to)))
            .filter(|(from, to)| follows(*from, *to))
            .collect();
        let expected = [
            (Creating, Running),
            (Creating, Failed),
            (Running, Paused),
            (Running, Stopping),
            (Running, Failed),
            (Paused, Running),
            (Paused, Stopping),
            (Paused, Failed),
            (Stopping, Cleanup),
            (Cleanup, Destroyed),
            (Cleanup, Failed),
            (Destroyed, Creating),
            (Failed, Cleanup),
        ];
        assert_eq!(allowed, expected);
    }
}
