//! A job in its two lives: first it waits, then it has a turn, and may be paused in it.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Condvar};
use std::time::Duration;

use hotcell_types::{Bytes, CallId, Name};

use crate::clock::Moment;
use crate::state::Ticket;
use crate::want::{Control, Priority};

/// How often a job that does not fit is passed by such as have waited less; then those behind it wait.
pub const MOST_PASSED: u32 = 8;
/// How often a job is paused; then it is let be.
pub const MOST_PAUSES: u32 = 3;
/// From this part of its time on, a job is waited for and not stopped.
const NEARLY_DONE_PERCENT: u128 = 80;

/// What stays the same.
pub(crate) struct Job {
    pub(crate) id: CallId,
    pub(crate) tenant: Name,
    pub(crate) party: Name,
    pub(crate) template: Name,
    pub(crate) priority: Priority,
    pub(crate) memory: Bytes,
    pub(crate) expected: Duration,
    pub(crate) control: Arc<dyn Control>,
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}, priority {}", self.id, self.tenant, self.priority)
    }
}

/// A job that waits, for others or for its turn.
#[derive(Debug)]
pub(crate) struct Waiter {
    pub(crate) job: Job,
    pub(crate) until: Moment,
    /// What still has to succeed before it.
    pub(crate) needs: BTreeSet<Ticket>,
    /// Its place in the line, once it needs nothing.
    pub(crate) joined: Option<Joined>,
    pub(crate) passed: u32,
    /// Rung when there is an answer.
    pub(crate) bell: Option<Arc<Condvar>>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Joined {
    pub(crate) number: u64,
    pub(crate) since: Moment,
}

/// Who goes first: the least.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rank {
    pub(crate) level: Priority,
    pub(crate) owed: Reverse<bool>,
    /// What its tenant has, and then what its party has of that.
    pub(crate) tenant: Standing,
    pub(crate) party: Standing,
    pub(crate) number: u64,
}

/// How much somebody has who is to share: the least goes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Standing {
    /// Places, and since when there are so many.
    pub(crate) held: u64,
    pub(crate) last: u64,
}

impl Waiter {
    pub(crate) fn is_owed(&self) -> bool {
        self.passed >= MOST_PASSED
    }
}

/// The priority of somebody who has waited so long.
pub(crate) fn level(own: Priority, waited: Duration, ageing: Duration) -> Priority {
    own.lifted(waited.as_nanos().checked_div(ageing.as_nanos()).unwrap_or(u128::MAX))
}

/// A job that has its turn.
#[derive(Debug)]
pub(crate) struct Placed {
    pub(crate) job: Job,
    /// Grows with each start.
    pub(crate) number: u64,
    /// As high as it was lifted when it started. It keeps that, or those whom it waited for longest could
    /// stop it at once.
    pub(crate) level: Priority,
    pub(crate) phase: Phase,
    pub(crate) has_place: bool,
    /// Its caller has taken the turn.
    pub(crate) is_claimed: bool,
    pub(crate) pauses: u32,
    /// It could not be acted on once, and is not asked again.
    pub(crate) is_stubborn: bool,
    /// For whom it was stopped last.
    pub(crate) by: Option<CallId>,
    /// Time that it has had, until the moment since which it runs again.
    pub(crate) used: Duration,
    pub(crate) running_since: Option<Moment>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    Running,
    Pausing,
    Paused { since: Moment },
    Resuming,
    Destroying,
}

impl Placed {
    /// The time that it has had, without pauses.
    pub(crate) fn used(&self, now: Moment) -> Duration {
        let latest = self.running_since.map(|since| now.saturating_sub(since));
        self.used.saturating_add(latest.unwrap_or_default())
    }

    pub(crate) fn is_nearly_done(&self, now: Moment) -> bool {
        self.used(now).as_nanos() * 100 >= self.job.expected.as_nanos() * NEARLY_DONE_PERCENT
    }

    pub(crate) fn stop_time(&mut self, now: Moment) {
        self.used = self.used(now);
        self.running_since = None;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_level_never_falls_and_never_goes_above_two(
            own in 1..=5_u8, one in any::<u64>(), two in any::<u64>(), ageing in any::<u64>(),
        ) {
            let own = Priority::try_from(own).unwrap();
            let (short, long) = (one.min(two), one.max(two));
            let at = |waited| level(own, Duration::from_nanos(waited), Duration::from_nanos(ageing));
            prop_assert!(at(long) <= at(short) && at(short) <= own);
            prop_assert!(at(long) >= own.min(Priority::LIFTED));
        }
    }
}
