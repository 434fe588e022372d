//! What a caller brings: what it wants to run, how urgently, and how its job can be acted on.

use std::fmt;
use std::time::Duration;

use hotcell_types::{Bytes, CallId, Name};

/// Most jobs that one job can wait for.
pub const MOST_AFTER: usize = 64;
/// Longest that anybody waits for a turn, however patient.
pub const MOST_WAIT: Duration = Duration::from_secs(24 * 3600);

/// A job that wants to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Want {
    pub id: CallId,
    pub tenant: Name,
    /// Who asks, of the tenant's: one of them does not wait for all that another has asked for.
    pub party: Name,
    pub priority: Priority,
    pub template: Name,
    /// Its memory limit. How much it really uses does not matter here.
    pub memory: Bytes,
    /// Its time limit.
    pub expected: Duration,
    /// What has to succeed before it: jobs of the same tenant, at most [`MOST_AFTER`].
    pub after: Vec<CallId>,
    /// How long it may wait for its turn, at most [`MOST_WAIT`].
    pub patience: Duration,
}

/// From 1, which goes first, to 5. Sorts like its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Priority(u8);

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a priority: 1 (goes first) to 5")]
pub struct BadPriority(u8);

impl Priority {
    pub const FIRST: Priority = Priority(1);
    /// As high as waiting can lift.
    pub const LIFTED: Priority = Priority(2);
    pub const USUAL: Priority = Priority(3);
    pub const LAST: Priority = Priority(5);

    pub fn get(self) -> u8 {
        self.0
    }

    /// The priority after so many steps of waiting.
    pub(crate) fn lifted(self, steps: u128) -> Priority {
        let steps = u8::try_from(steps).unwrap_or(u8::MAX);
        Priority(self.0.saturating_sub(steps)).max(self.min(Priority::LIFTED))
    }

    /// Whether a running job of the other priority may be stopped for one of this.
    pub(crate) fn may_stop(self, other: Priority) -> bool {
        let above = other.0.saturating_sub(self.0);
        above >= 2 || (self == Priority::FIRST && above >= 1)
    }
}

impl TryFrom<u8> for Priority {
    type Error = BadPriority;

    fn try_from(number: u8) -> Result<Priority, BadPriority> {
        match number {
            1..=5 => Ok(Priority(number)),
            _ => Err(BadPriority(number)),
        }
    }
}

impl fmt::Display for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// How a job that has its turn can be acted on, by the thread of whoever is the cause. No lock is held
/// meanwhile. Each may be called when the job has not begun or has already ended; a panic counts as failure.
pub trait Control: Send + Sync {
    /// Stops the job until it is resumed. The job's own time has to stop as well. On failure the job must
    /// go on as before.
    fn pause(&self) -> Result<(), Failed>;

    fn resume(&self) -> Result<(), Failed>;

    /// Asks for the job's end, paused or not, and does not wait for it: the place is free when its
    /// [`Turn`](crate::Turn) is.
    fn destroy(&self) -> Result<(), Failed>;
}

/// A job could not be acted on. Whoever knows why says it where it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the job could not be paused, resumed or ended")]
pub struct Failed;

/// The control of a job that runs to its end once it has begun: nothing preempts it.
#[derive(Debug, Clone, Copy)]
pub struct Unstoppable;

impl Control for Unstoppable {
    fn pause(&self) -> Result<(), Failed> {
        Err(Failed)
    }

    fn resume(&self) -> Result<(), Failed> {
        Err(Failed)
    }

    fn destroy(&self) -> Result<(), Failed> {
        Err(Failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_priority_is_from_one_to_five() {
        for number in 0..=u8::MAX {
            assert_eq!(Priority::try_from(number).is_ok(), (1..=5).contains(&number));
        }
    }

    #[test]
    fn waiting_lifts_step_by_step_and_never_above_two() {
        let after = |own: u8| [0, 1, 2, 3, 4, u128::MAX].map(|s| Priority(own).lifted(s).get());
        assert_eq!(after(1), [1, 1, 1, 1, 1, 1]);
        assert_eq!(after(2), [2, 2, 2, 2, 2, 2]);
        assert_eq!(after(3), [3, 2, 2, 2, 2, 2]);
        assert_eq!(after(5), [5, 4, 3, 2, 2, 2]);
    }

    #[test]
    fn only_the_first_stops_its_neighbour() {
        let stops =
            |own: u8| (1..=5).filter(|&o| Priority(own).may_stop(Priority(o))).collect::<Vec<_>>();
        let expected = [vec![2, 3, 4, 5], vec![4, 5], vec![5], vec![], vec![]];
        assert_eq!([1, 2, 3, 4, 5].map(stops), expected);
    }
}
