//! For whom room is made, and by whom.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use crate::job::{Job, MOST_PAUSES, Phase, Placed};
use crate::room::Lack;
use crate::state::{Act, State, Ticket};

/// A job that makes room, and what has to be done for it: nothing, if it is about to end or to be stopped.
#[derive(Debug, Clone, Copy)]
struct Victim {
    ticket: Ticket,
    act: Option<Act>,
}

/// What stopping one job would give.
#[derive(Debug, Clone, Copy)]
struct Gain {
    act: Option<Act>,
    place: bool,
    memory: u64,
}

impl State {
    /// Stops jobs for others that are more urgent. Nobody is stopped for one that would not be next, nor
    /// for one whom that would not help.
    pub(crate) fn make_room(&mut self) {
        if !self.is_anybody_urgent() {
            return;
        }
        let mut taken = BTreeSet::new();
        for (_, ticket) in self.line() {
            let Some(lack) = self.lacks(ticket) else { continue };
            match self.plan(ticket, lack, &taken) {
                Some(victims) => {
                    for victim in victims {
                        taken.insert(victim.ticket);
                        self.stop(victim, ticket);
                    }
                }
                // It would take the place that were made for somebody behind it.
                None if !lack.template && !lack.share => return,
                None => {}
            }
        }
    }

    /// Whether anybody in line may stop anybody.
    fn is_anybody_urgent(&self) -> bool {
        let Some(last) = self.placed.values().map(|placed| placed.level).max() else {
            return false;
        };
        let in_line = self.waiting.values().filter(|waiter| waiter.joined.is_some());
        in_line.map(|waiter| waiter.job.priority).min().is_some_and(|first| first.may_stop(last))
    }

    /// Who has to make room for a job, from the least urgent and youngest on; `None` if all of them
    /// together cannot. Those that are taken make room for another.
    fn plan(&self, ticket: Ticket, lack: Lack, taken: &BTreeSet<Ticket>) -> Option<Vec<Victim>> {
        // Somebody without patience is gone before anybody could make room.
        let waiter = self.waiting.get(&ticket).filter(|waiter| waiter.until > self.now)?;
        let job = &waiter.job;
        let may_stop = |placed: &Placed| job.priority.may_stop(placed.level);
        let mut candidates: Vec<_> = self
            .placed
            .iter()
            .filter(|(ticket, placed)| !taken.contains(ticket) && may_stop(placed))
            .collect();
        candidates.sort_by_key(|(_, placed)| Reverse((placed.level, placed.number)));

        let (mut needs_place, mut short) = (lack.is_place(), lack.memory);
        let mut victims = Vec::new();
        for (&ticket, placed) in candidates {
            if !needs_place && short == 0 {
                break;
            }
            let Some(gain) = self.gain(job, lack, placed) else { continue };
            if (needs_place && gain.place) || (short > 0 && gain.memory > 0) {
                needs_place &= !gain.place;
                short = short.saturating_sub(gain.memory);
                victims.push(Victim { ticket, act: gain.act });
            }
        }
        (!needs_place && short == 0).then_some(victims)
    }

    /// What a job would get if this one made room for it.
    fn gain(&self, job: &Job, lack: Lack, placed: &Placed) -> Option<Gain> {
        let is_right_place = (!lack.template || placed.job.template == job.template)
            && (!lack.share || placed.job.tenant == job.tenant);
        let place = placed.has_place && is_right_place;
        let memory = placed.job.memory.get();
        let ending = |act| Some(Gain { act, place, memory });
        // A paused job keeps its memory.
        let is_memory_needed = lack.memory > 0 || self.room.is_tight();
        match placed.phase {
            Phase::Destroying => ending(None),
            Phase::Pausing => Some(Gain { act: None, place, memory: 0 }),
            Phase::Resuming => None,
            Phase::Running if placed.is_nearly_done(self.now) => ending(None),
            _ if placed.is_stubborn => None,
            _ if is_memory_needed => ending(Some(Act::Destroy)),
            Phase::Running if placed.pauses < MOST_PAUSES => {
                Some(Gain { act: Some(Act::Pause), place, memory: 0 })
            }
            Phase::Running | Phase::Paused { .. } => None,
        }
    }

    fn stop(&mut self, victim: Victim, for_whom: Ticket) {
        let Some(act) = victim.act else { return };
        let by = self.waiting.get(&for_whom).map(|waiter| waiter.job.id);
        if let Some(placed) = self.placed.get_mut(&victim.ticket) {
            placed.by = by;
        }
        self.act(victim.ticket, act);
    }
}
