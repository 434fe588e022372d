//! Who gets the next free place.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;

use crate::job::{Phase, Placed, Rank, level};
use crate::room::Lack;
use crate::state::{Act, Errand, State, Ticket};
use crate::want::Priority;

/// Who is to start, and who is passed although they were ahead.
#[derive(Debug)]
struct Next {
    ticket: Ticket,
    own: Priority,
    level: Priority,
    passed: Vec<Ticket>,
}

impl State {
    /// Gives away places until nobody can have one, and then sees for whom room has to be made.
    pub(crate) fn dispatch(&mut self) {
        while self.fill_one() {}
        self.make_room();
    }

    fn fill_one(&mut self) -> bool {
        if self.room.is_full() {
            return false;
        }
        let next = self.next_in_line();
        if let Some(ticket) = self.next_paused(next.as_ref()) {
            self.resume(ticket);
            return true;
        }
        let Some(next) = next else { return false };
        for passed in &next.passed {
            if let Some(waiter) = self.waiting.get_mut(passed) {
                waiter.passed = waiter.passed.saturating_add(1);
            }
        }
        self.start(next.ticket, next.level);
        true
    }

    /// Everybody who waits for a place and nothing else, in the order in which they should get one.
    pub(crate) fn line(&self) -> Vec<(Rank, Ticket)> {
        let ranked = self.waiting.iter().filter_map(|(ticket, waiter)| {
            let joined = waiter.joined?;
            let waited = self.now.saturating_sub(joined.since);
            let rank = Rank {
                level: level(waiter.job.priority, waited, self.room.limits.ageing),
                owed: Reverse(waiter.is_owed()),
                tenant: self.room.tenant(&waiter.job.tenant).standing(),
                party: self.room.party(&waiter.job.tenant, &waiter.job.party).standing(),
                number: joined.number,
            };
            Some((rank, *ticket))
        });
        let mut line: Vec<_> = ranked.collect();
        line.sort_unstable();
        line
    }

    /// The first in line that fits. One that was passed too often lets nobody pass any more, and none ever
    /// lets anybody pass whom it would stop at once.
    fn next_in_line(&self) -> Option<Next> {
        let mut passed = Vec::new();
        let mut most_urgent = Priority::LAST;
        for (rank, ticket) in self.line() {
            let waiter = self.waiting.get(&ticket)?;
            let lack = self.room.lacks(&waiter.job);
            if lack.is_nothing() && !most_urgent.may_stop(rank.level) {
                let (own, level) = (waiter.job.priority, rank.level);
                return Some(Next { ticket, own, level, passed });
            }
            // Who lacks a place of the template or the share loses nothing to others: those who could
            // take it away lack it too.
            if lack.is_memory_alone() {
                if waiter.is_owed() {
                    return None;
                }
                passed.push(ticket);
                most_urgent = most_urgent.min(waiter.job.priority);
            }
        }
        None
    }

    /// A paused job that can go on, unless the next in line is more urgent, as both are and as both have
    /// become by waiting.
    fn next_paused(&self, next: Option<&Next>) -> Option<Ticket> {
        let paused = self.placed.iter().filter_map(|(ticket, placed)| {
            let Phase::Paused { since } = placed.phase else { return None };
            let (own, waited) = (placed.job.priority, self.now.saturating_sub(since));
            let level = level(placed.level, waited, self.room.limits.ageing);
            let is_first = next.is_none_or(|next| next.own >= own || next.level >= level);
            let fits = !self.room.lacks(&placed.job).is_place();
            (is_first && fits).then_some((own, placed.number, *ticket))
        });
        paused.min().map(|(.., ticket)| ticket)
    }

    fn start(&mut self, ticket: Ticket, level: Priority) {
        let Some(waiter) = self.waiting.remove(&ticket) else { return };
        let number = self.number();
        self.room.admit(&waiter.job);
        self.room.take_place(&waiter.job, number);
        self.room.unqueue(&waiter.job);
        self.errands.bells.extend(waiter.bell);
        let placed = Placed {
            job: waiter.job,
            number,
            level,
            phase: Phase::Running,
            has_place: true,
            is_claimed: false,
            pauses: 0,
            is_stubborn: false,
            by: None,
            used: Duration::ZERO,
            running_since: Some(self.now),
        };
        self.placed.insert(ticket, placed);
    }

    fn resume(&mut self, ticket: Ticket) {
        let number = self.number();
        if let Some(placed) = self.placed.get_mut(&ticket) {
            placed.has_place = true;
            self.room.take_place(&placed.job, number);
        }
        self.act(ticket, Act::Resume);
    }

    pub(crate) fn lacks(&self, ticket: Ticket) -> Option<Lack> {
        self.waiting.get(&ticket).map(|waiter| self.room.lacks(&waiter.job))
    }

    /// Asks for something to be done to a job. [`State::acted`] hears how it went.
    pub(crate) fn act(&mut self, ticket: Ticket, act: Act) {
        let Some(placed) = self.placed.get_mut(&ticket) else { return };
        placed.phase = match act {
            Act::Pause => Phase::Pausing,
            Act::Resume => Phase::Resuming,
            Act::Destroy => Phase::Destroying,
        };
        let control = Arc::clone(&placed.job.control);
        self.errands.acts.push(Errand { ticket, act, control });
    }

    /// Something was done to a job, or could not be. It may have ended meanwhile.
    pub(crate) fn acted(&mut self, ticket: Ticket, act: Act, is_done: bool) {
        let number = self.number();
        let Some(placed) = self.placed.get_mut(&ticket) else { return };
        match (act, is_done) {
            (Act::Pause, true) => {
                placed.phase = Phase::Paused { since: self.now };
                placed.has_place = false;
                placed.pauses = placed.pauses.saturating_add(1);
                placed.stop_time(self.now);
                self.room.give_place(&placed.job, number);
            }
            (Act::Resume, true) => {
                placed.phase = Phase::Running;
                placed.running_since = Some(self.now);
            }
            // Nothing else would ever end it.
            (Act::Resume, false) => self.act(ticket, Act::Destroy),
            (Act::Destroy, true) => {}
            (Act::Pause | Act::Destroy, false) => {
                placed.is_stubborn = true;
                placed.phase = if placed.has_place {
                    placed.running_since.get_or_insert(self.now);
                    Phase::Running
                } else {
                    Phase::Paused { since: self.now }
                };
            }
        }
        self.dispatch();
    }
}
