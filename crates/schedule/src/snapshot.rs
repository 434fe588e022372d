//! What goes on, for people to look at.

use std::fmt;
use std::time::Duration;

use hotcell_types::{Bytes, CallId, Count, Name};

use crate::job::{Phase, Placed};
use crate::limits::Limits;
use crate::state::State;
use crate::want::Priority;

/// A moment of a scheduler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// Jobs that have their turn, in the order of their starts; paused ones too.
    pub running: Vec<Running>,
    /// How many wait for a place, by their own priority: 1 is first.
    pub waiting: [usize; 5],
    /// How many wait for other jobs.
    pub dependent: usize,
    /// Places taken, and for each template that has a limit.
    pub places: u64,
    pub templates: Vec<(Name, u64, Count)>,
    /// Bytes that are admitted.
    pub memory: u64,
    pub limits: Limits,
}

/// A job that has its turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Running {
    pub id: CallId,
    pub tenant: Name,
    pub template: Name,
    pub priority: Priority,
    pub memory: Bytes,
    /// The time that it has had, without pauses, and its limit.
    pub used: Duration,
    pub expected: Duration,
    pub now: Doing,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Doing {
    Runs,
    /// Or is about to be.
    Paused,
    /// It was asked to make room for another.
    Ends,
}

impl Snapshot {
    pub(crate) fn of(state: &State) -> Snapshot {
        let mut waiting = [0; 5];
        let mut dependent = 0;
        for waiter in state.waiting.values() {
            let place = usize::from(waiter.job.priority.get()).saturating_sub(1);
            match waiting.get_mut(place) {
                Some(count) if waiter.joined.is_some() => *count += 1,
                _ => dependent += 1,
            }
        }
        let mut placed: Vec<_> = state.placed.values().collect();
        placed.sort_by_key(|placed| placed.number);
        Snapshot {
            running: placed.into_iter().map(|placed| Running::of(placed, state.now)).collect(),
            waiting,
            dependent,
            places: state.room.held(),
            templates: state.room.templates().map(|(n, held, m)| (n.clone(), held, m)).collect(),
            memory: state.room.admitted(),
            limits: state.room.limits.clone(),
        }
    }
}

impl Running {
    fn of(placed: &Placed, now: Duration) -> Running {
        let job = &placed.job;
        Running {
            id: job.id,
            tenant: job.tenant.clone(),
            template: job.template.clone(),
            priority: job.priority,
            memory: job.memory,
            used: placed.used(now),
            expected: job.expected,
            now: match placed.phase {
                Phase::Running | Phase::Resuming => Doing::Runs,
                Phase::Pausing | Phase::Paused { .. } => Doing::Paused,
                Phase::Destroying => Doing::Ends,
            },
        }
    }
}

impl fmt::Display for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let waiting: usize = self.waiting.iter().sum();
        writeln!(
            f,
            "{} of {} places taken, {} of {} waiting, {} of {} bytes of memory admitted",
            self.places,
            self.limits.global,
            waiting.saturating_add(self.dependent),
            self.limits.queue,
            self.memory,
            self.limits.memory.get(),
        )?;
        for (name, held, most) in &self.templates {
            writeln!(f, "template {name}: {held} of {most}")?;
        }
        for (priority, count) in (1..).zip(self.waiting).filter(|(_, count)| *count > 0) {
            writeln!(f, "priority {priority}: {count} waiting")?;
        }
        if self.dependent > 0 {
            writeln!(f, "{} waiting for other jobs", self.dependent)?;
        }
        for job in &self.running {
            let doing = match job.now {
                Doing::Runs => "runs",
                Doing::Paused => "is paused",
                Doing::Ends => "is being ended",
            };
            writeln!(
                f,
                "{} {doing}: {} of {}, priority {}, {} memory, {}s of {}s",
                job.id,
                job.template,
                job.tenant,
                job.priority,
                job.memory,
                job.used.as_secs(),
                job.expected.as_secs(),
            )?;
        }
        Ok(())
    }
}
