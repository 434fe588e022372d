//! Everything the lock protects, and each event that can change it. Nothing here waits or calls out: what
//! has to happen outside the lock is left in [`Errands`].

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::fmt;
use std::mem;
use std::sync::{Arc, Condvar};
use std::time::Duration;

use hotcell_types::{CallId, Name};

use crate::answer::{Full, Refused, Why};
use crate::clock::Moment;
use crate::job::{Job, Joined, Phase, Placed, Waiter};
use crate::limits::Limits;
use crate::pace::Pace;
use crate::remembered::Remembered;
use crate::room::Room;
use crate::want::{Control, MOST_AFTER, MOST_WAIT, Want};

/// One request. An id may come again when its job has ended; a ticket does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Ticket(u64);

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) room: Room,
    /// The latest moment that was seen.
    pub(crate) now: Moment,
    pub(crate) waiting: BTreeMap<Ticket, Waiter>,
    pub(crate) placed: BTreeMap<Ticket, Placed>,
    pub(crate) errands: Errands,
    /// Answers that were not heard yet.
    answers: HashMap<Ticket, Why>,
    /// Of everybody who waits or has a place.
    tickets: HashMap<CallId, Ticket>,
    /// Who waits for whom: the turned around `needs` of everybody.
    dependents: BTreeSet<(Ticket, Ticket)>,
    remembered: Remembered,
    pace: Pace,
    /// Nobody's patience ends before.
    soonest: Moment,
    is_closing: bool,
    /// Numbers things in the order in which they happen.
    count: u64,
}

/// What is to be done outside the lock.
#[derive(Default)]
pub(crate) struct Errands {
    pub(crate) bells: Vec<Arc<Condvar>>,
    pub(crate) acts: Vec<Errand>,
    /// To be dropped: that is somebody else's code too.
    pub(crate) over: Vec<Arc<dyn Control>>,
}

impl fmt::Debug for Errands {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ring {}, drop {}, {:?}", self.bells.len(), self.over.len(), self.acts)
    }
}

pub(crate) struct Errand {
    pub(crate) ticket: Ticket,
    pub(crate) act: Act,
    pub(crate) control: Arc<dyn Control>,
}

impl fmt::Debug for Errand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {:?}", self.act, self.ticket)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Act {
    Pause,
    Resume,
    Destroy,
}

/// What somebody who waits hears.
#[derive(Debug)]
pub(crate) enum Claim {
    Turn,
    Not(Why),
    NotYet(Arc<Condvar>),
}

impl State {
    pub(crate) fn new(limits: Limits) -> State {
        State {
            room: Room::new(limits),
            now: Moment::ZERO,
            waiting: BTreeMap::new(),
            placed: BTreeMap::new(),
            errands: Errands::default(),
            answers: HashMap::new(),
            tickets: HashMap::new(),
            dependents: BTreeSet::new(),
            remembered: Remembered::default(),
            pace: Pace::default(),
            soonest: Moment::MAX,
            is_closing: false,
            count: 0,
        }
    }

    /// Time has passed, never backwards. Whoever waited too long hears it.
    pub(crate) fn see(&mut self, now: Moment) {
        self.now = self.now.max(now);
        if self.now < self.soonest {
            return;
        }
        let due = self.waiting.iter().filter(|(_, waiter)| waiter.until <= self.now);
        let due: Vec<_> = due.map(|(ticket, _)| (*ticket, Why::Deadline)).collect();
        self.answer(due);
        self.soonest =
            self.waiting.values().map(|waiter| waiter.until).min().unwrap_or(Moment::MAX);
        self.dispatch();
    }

    /// Takes all of them or none.
    pub(crate) fn request(
        &mut self,
        wants: &mut Vec<(Want, Arc<dyn Control>)>,
    ) -> Result<Vec<Ticket>, Refused> {
        self.check(wants)?;
        if self.waiting.is_empty() && self.placed.is_empty() {
            self.pace.begin(self.now);
        }
        let mut queued = Vec::with_capacity(wants.len());
        for (mut want, control) in wants.drain(..) {
            let after = mem::take(&mut want.after);
            queued.push((self.queue(want, control), after));
        }
        for (ticket, after) in &queued {
            self.connect(*ticket, after);
        }
        self.dispatch();
        Ok(queued.into_iter().map(|(ticket, _)| ticket).collect())
    }

    fn check(&mut self, wants: &[(Want, Arc<dyn Control>)]) -> Result<(), Refused> {
        if self.is_closing {
            return Err(Refused::Closing);
        }
        let mut asked: HashMap<CallId, &Name> = HashMap::new();
        let mut tenants: BTreeMap<&Name, u64> = BTreeMap::new();
        let mut parties: BTreeMap<(&Name, &Name), u64> = BTreeMap::new();
        for (want, _) in wants {
            let is_live = self.tickets.contains_key(&want.id);
            if is_live || asked.insert(want.id, &want.tenant).is_some() {
                return Err(Refused::Duplicate(want.id));
            }
            let most = self.room.limits.memory;
            if want.memory > most {
                return Err(Refused::TooLarge { wanted: want.memory, most });
            }
            *tenants.entry(&want.tenant).or_default() += 1;
            *parties.entry((&want.tenant, &want.party)).or_default() += 1;
        }
        for (want, _) in wants {
            if want.after.len() > MOST_AFTER {
                return Err(Refused::TooManyDependencies { id: want.id });
            }
            let is_known = |id: &CallId| match asked.get(id) {
                Some(tenant) => **tenant == want.tenant,
                None => self.knows(*id, &want.tenant),
            };
            if let Some(&after) = want.after.iter().find(|id| !is_known(id)) {
                return Err(Refused::UnknownDependency { id: want.id, after });
            }
        }
        let (queue, share) = (self.room.limits.queue.get(), self.room.limits.share.waiting.get());
        let asked = wants.len() as u64;
        if self.waiting.len() as u64 + asked > queue {
            return Err(self.busy(Full::Queue, asked, queue));
        }
        for (tenant, asked) in tenants {
            if self.room.tenant(tenant).waiting + asked > share {
                return Err(self.busy(Full::Share, asked, share));
            }
        }
        let share = self.room.limits.share.party.get();
        for ((tenant, party), asked) in parties {
            if self.room.party(tenant, party).waiting + asked > share {
                return Err(self.busy(Full::Party, asked, share));
            }
        }
        Ok(())
    }

    /// Nobody hears of another tenant's jobs.
    fn knows(&self, id: CallId, tenant: &Name) -> bool {
        let live = self.tickets.get(&id).and_then(|ticket| {
            let waiting = self.waiting.get(ticket).map(|waiter| &waiter.job);
            waiting.or_else(|| self.placed.get(ticket).map(|placed| &placed.job))
        });
        match live {
            Some(job) => job.tenant == *tenant,
            None => self.remembered.is_success(id, tenant).is_some(),
        }
    }

    fn busy(&mut self, full: Full, asked: u64, most: u64) -> Refused {
        if asked > most {
            return Refused::TooMany { asked, most };
        }
        let left = |placed: &Placed| placed.job.expected.saturating_sub(placed.used(self.now));
        let first_end = self.placed.values().map(left).min().unwrap_or_default();
        let turns = match full {
            Full::Queue => 1,
            // A tenant gets one of as many turns as there are tenants; so does a party, of its tenant's.
            Full::Share => u32::try_from(self.room.tenants_waiting()).unwrap_or(u32::MAX),
            Full::Party => u32::try_from(self.room.parties_waiting()).unwrap_or(u32::MAX),
        };
        Refused::Busy { full, retry_after: self.pace.send_away(self.now, first_end, turns) }
    }

    fn queue(&mut self, want: Want, control: Arc<dyn Control>) -> Ticket {
        let Want { id, tenant, party, priority, template, memory, expected, after: _, patience } =
            want;
        let number = self.number();
        let ticket = Ticket(number);
        let until = self.now.saturating_add(patience.min(MOST_WAIT));
        self.soonest = self.soonest.min(until);
        self.tickets.insert(id, ticket);
        let job = Job { id, tenant, party, template, priority, memory, expected, control };
        self.room.queue(&job, number);
        let needs = BTreeSet::new();
        let waiter = Waiter { job, until, needs, joined: None, passed: 0, bell: None };
        self.waiting.insert(ticket, waiter);
        ticket
    }

    /// Lets a job wait for others, or join the line at once.
    fn connect(&mut self, ticket: Ticket, after: &[CallId]) {
        let Some(waiter) = self.waiting.get_mut(&ticket) else { return };
        let mut failed = None;
        for &id in after {
            if let Some(&needed) = self.tickets.get(&id) {
                self.dependents.insert((needed, ticket));
                waiter.needs.insert(needed);
            } else if self.remembered.is_success(id, &waiter.job.tenant) != Some(true) {
                failed = Some(id);
            }
        }
        match failed {
            Some(id) => self.answer(vec![(ticket, Why::Dependency(id))]),
            None => self.join_if_ready(ticket),
        }
    }

    fn join_if_ready(&mut self, ticket: Ticket) {
        let joined = Joined { number: self.number(), since: self.now };
        if let Some(waiter) = self.waiting.get_mut(&ticket)
            && waiter.needs.is_empty()
        {
            waiter.joined = Some(joined);
        }
    }

    /// Ends the waiting of these, and then of everybody who waits for them.
    fn answer(&mut self, due: Vec<(Ticket, Why)>) {
        let mut due = VecDeque::from(due);
        while let Some((ticket, why)) = due.pop_front() {
            let Some(waiter) = self.waiting.remove(&ticket) else { continue };
            for needed in waiter.needs {
                self.dependents.remove(&(needed, ticket));
            }
            self.room.unqueue(&waiter.job);
            self.answers.insert(ticket, why);
            self.errands.bells.extend(waiter.bell);
            let why = Why::Dependency(waiter.job.id);
            self.forget(waiter.job, false);
            due.extend(self.dependents_of(ticket).into_iter().map(|dependent| (dependent, why)));
        }
    }

    fn dependents_of(&self, ticket: Ticket) -> Vec<Ticket> {
        let all = (ticket, Ticket(u64::MIN))..=(ticket, Ticket(u64::MAX));
        self.dependents.range(all).map(|(_, dependent)| *dependent).collect()
    }

    /// The job is over: what is left of it is how it ended.
    fn forget(&mut self, job: Job, is_success: bool) {
        self.tickets.remove(&job.id);
        self.errands.over.push(job.control);
        self.remembered.ended(job.id, job.tenant, is_success);
    }

    /// What there is for somebody who waits. An answer is given once.
    pub(crate) fn claim(&mut self, ticket: Ticket) -> Claim {
        if let Some(waiter) = self.waiting.get_mut(&ticket) {
            return Claim::NotYet(Arc::clone(waiter.bell.get_or_insert_default()));
        }
        match self.placed.get_mut(&ticket) {
            Some(placed) if placed.phase != Phase::Destroying => {
                placed.is_claimed = true;
                Claim::Turn
            }
            Some(_) => Claim::Not(self.release(ticket, false).unwrap_or(Why::Cancelled)),
            None => Claim::Not(self.answers.remove(&ticket).unwrap_or(Why::Cancelled)),
        }
    }

    /// How long somebody has still to wait at most; `None` if there is an answer.
    pub(crate) fn patience(&self, ticket: Ticket, now: Moment) -> Option<Duration> {
        let left = self.waiting.get(&ticket)?.until.saturating_sub(self.now.max(now));
        (!left.is_zero()).then_some(left)
    }

    /// Takes somebody out who waits, or who has not taken the turn yet. Whether there was such.
    pub(crate) fn cancel(&mut self, ticket: Ticket) -> bool {
        if self.waiting.contains_key(&ticket) {
            self.answer(vec![(ticket, Why::Cancelled)]);
            self.dispatch();
            return true;
        }
        let is_unclaimed = self.placed.get(&ticket).is_some_and(|placed| !placed.is_claimed);
        if is_unclaimed {
            self.answers.insert(ticket, Why::Cancelled);
            self.release(ticket, false);
        }
        is_unclaimed
    }

    /// Nobody will ask for the answer.
    pub(crate) fn abandon(&mut self, ticket: Ticket) {
        self.cancel(ticket);
        self.answers.remove(&ticket);
    }

    /// A turn is over. Whether it was ended for somebody else.
    pub(crate) fn release(&mut self, ticket: Ticket, is_success: bool) -> Option<Why> {
        let placed = self.placed.remove(&ticket)?;
        let number = self.number();
        if placed.has_place {
            self.room.give_place(&placed.job, number);
        }
        self.room.dismiss(&placed.job);
        self.pace.ended(self.now);
        let was_destroyed = placed.phase == Phase::Destroying && !is_success;
        let why = placed.by.filter(|_| was_destroyed).map(|by| Why::Preempted { by });
        let failed = Why::Dependency(placed.job.id);
        self.forget(placed.job, is_success);
        let dependents = self.dependents_of(ticket);
        if is_success {
            for dependent in dependents {
                self.dependents.remove(&(ticket, dependent));
                if let Some(waiter) = self.waiting.get_mut(&dependent) {
                    waiter.needs.remove(&ticket);
                }
                self.join_if_ready(dependent);
            }
        } else {
            self.answer(dependents.into_iter().map(|dependent| (dependent, failed)).collect());
        }
        self.dispatch();
        why
    }

    /// Everybody who waits hears it, and nobody new is taken. Paused jobs still get their places.
    pub(crate) fn close(&mut self) {
        self.is_closing = true;
        self.answer(self.waiting.keys().map(|ticket| (*ticket, Why::Closing)).collect());
        self.dispatch();
    }

    pub(crate) fn number(&mut self) -> u64 {
        self.count = self.count.wrapping_add(1);
        self.count
    }

    pub(crate) fn take_errands(&mut self) -> Errands {
        mem::take(&mut self.errands)
    }

    #[cfg(test)]
    pub(crate) fn dependents_of_all(&self) -> usize {
        self.dependents.len()
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.errands.acts.is_empty()
            && self.room.is_empty()
            && self.waiting.is_empty()
            && self.placed.is_empty()
            && self.answers.is_empty()
            && self.tickets.is_empty()
            && self.dependents.is_empty()
    }
}
