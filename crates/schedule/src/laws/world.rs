//! A world to try schedules in: a clock that is moved by hand, jobs that can be acted on, and a record of
//! what happened that is kept apart from the scheduler's own.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hotcell_types::{Bytes, CallId, Count, Name};

use crate::job::{Phase, level};
use crate::{
    Clock, Control, Failed, Limits, MOST_PAUSES, MOST_WAIT, Moment, Priority, Refused, Scheduler,
    Share, Turn, Waiting, Want, Why,
};

pub(crate) const fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

pub(crate) fn id(n: usize) -> CallId {
    CallId::from_bytes((n as u128).to_be_bytes())
}

pub(crate) fn name(n: impl fmt::Display) -> Name {
    format!("n{n}").parse().unwrap()
}

pub(crate) fn priority(n: u8) -> Priority {
    n.try_into().unwrap()
}

/// Everything is plenty but the places.
pub(crate) fn limits(global: u32) -> Limits {
    Limits {
        global: Count::of(global),
        per_template: BTreeMap::new(),
        memory: Bytes::mib(1000),
        queue: Count::of(1000),
        share: Share { running: Count::of(1000), waiting: Count::of(1000), party: Count::of(1000) },
        ageing: seconds(30),
    }
}

pub(crate) fn want(n: usize, tenant: u8, own: u8) -> Want {
    Want {
        id: id(n),
        tenant: name(tenant),
        party: name("one"),
        priority: priority(own),
        template: name("plain"),
        memory: Bytes::mib(1),
        expected: seconds(100),
        after: vec![],
        patience: MOST_WAIT,
    }
}

/// Moved by hand, also backwards.
#[derive(Debug, Default)]
pub(crate) struct Hand(AtomicU64);

impl Hand {
    pub(crate) fn set(&self, now: Duration) {
        self.0.store(u64::try_from(now.as_nanos()).unwrap_or(u64::MAX), Ordering::SeqCst);
    }
}

impl Clock for Hand {
    fn now(&self) -> Moment {
        Duration::from_nanos(self.0.load(Ordering::SeqCst))
    }
}

/// How a job takes it when it is acted on.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Temper {
    pub(crate) no_pause: bool,
    pub(crate) no_resume: bool,
    pub(crate) no_destroy: bool,
}

/// A job that can be acted on, and says what was done.
#[derive(Debug, Default)]
pub(crate) struct Spy {
    temper: Temper,
    pub(crate) paused: AtomicBool,
    pub(crate) destroyed: AtomicBool,
    pub(crate) pauses: AtomicU32,
    /// It was asked for something that makes no sense.
    is_confused: AtomicBool,
    pub(crate) calls: Mutex<Vec<&'static str>>,
}

impl Spy {
    pub(crate) fn new(temper: Temper) -> Arc<Spy> {
        Arc::new(Spy { temper, ..Spy::default() })
    }

    fn called(&self, what: &'static str, fails: bool) -> Result<(), Failed> {
        self.calls.lock().unwrap().push(what);
        if fails { Err(Failed) } else { Ok(()) }
    }

    /// A panic here would count as failure.
    fn expect(&self, makes_sense: bool) {
        self.is_confused.fetch_or(!makes_sense, Ordering::SeqCst);
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.paused.load(Ordering::SeqCst)
    }

    pub(crate) fn is_destroyed(&self) -> bool {
        self.destroyed.load(Ordering::SeqCst)
    }

    pub(crate) fn calls(&self) -> Vec<&'static str> {
        self.calls.lock().unwrap().clone()
    }
}

impl Control for Spy {
    fn pause(&self) -> Result<(), Failed> {
        self.called("pause", self.temper.no_pause)?;
        self.expect(!self.paused.swap(true, Ordering::SeqCst));
        self.pauses.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    fn resume(&self) -> Result<(), Failed> {
        self.called("resume", self.temper.no_resume)?;
        self.expect(self.paused.swap(false, Ordering::SeqCst));
        Ok(())
    }

    fn destroy(&self) -> Result<(), Failed> {
        self.called("destroy", self.temper.no_destroy)?;
        self.expect(!self.destroyed.swap(true, Ordering::SeqCst));
        Ok(())
    }
}

/// A job from its request to its end.
pub(crate) struct Sim {
    pub(crate) want: Want,
    pub(crate) spy: Arc<Spy>,
    pub(crate) asked: Moment,
    pub(crate) waiting: Option<Waiting>,
    pub(crate) turn: Option<Turn>,
    pub(crate) answer: Option<Result<(), Why>>,
    pub(crate) success: Option<bool>,
    /// How high it was lifted when it started, and when that was.
    level: Option<(Priority, u64)>,
    used: Duration,
    was_paused: bool,
    was_destroyed: bool,
}

impl fmt::Debug for Sim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Want { id, tenant, priority, template, memory, .. } = &self.want;
        write!(f, "{id} of {tenant}, {priority}, {template}, {memory}, asked {:?}, ", self.asked)?;
        write!(f, "{:?} used {:?}, answer {:?}", self.spy.calls(), self.used, self.answer)
    }
}

impl Sim {
    /// Whether it takes a place: it runs, or was to be resumed.
    pub(crate) fn has_place(&self) -> bool {
        let calls = self.spy.calls.lock().unwrap();
        let was_resumed = calls.rsplit(|call| *call == "pause").next().unwrap().contains(&"resume");
        self.turn.is_some() && (!self.spy.is_paused() || was_resumed)
    }

    pub(crate) fn used(&self) -> Duration {
        self.used
    }

    pub(crate) fn can_end(&self) -> bool {
        self.has_place() || (self.turn.is_some() && self.spy.is_destroyed())
    }
}

#[derive(Debug)]
pub(crate) struct World {
    pub(crate) scheduler: Scheduler,
    pub(crate) clock: Arc<Hand>,
    pub(crate) limits: Limits,
    pub(crate) now: Moment,
    pub(crate) sims: Vec<Sim>,
    /// Those that were not over when it was last looked.
    live: Vec<usize>,
}

/// Who has what, by the world's own count.
#[derive(Default)]
struct Tally {
    places: i64,
    memory: i64,
    templates: BTreeMap<Name, i64>,
    tenants: BTreeMap<Name, i64>,
}

/// What is free for somebody.
struct Free {
    places: i64,
    template: i64,
    share: i64,
    memory: i64,
}

impl Free {
    fn has_place(&self) -> bool {
        self.places > 0 && self.template > 0 && self.share > 0
    }

    fn fits(&self, want: &Want) -> bool {
        self.has_place() && self.memory >= want.memory.get() as i64
    }
}

impl World {
    pub(crate) fn new(limits: Limits) -> World {
        let clock = Arc::new(Hand::default());
        let scheduler = Scheduler::with_clock(limits.clone(), clock.clone());
        World { scheduler, clock, limits, now: Duration::ZERO, sims: Vec::new(), live: Vec::new() }
    }

    pub(crate) fn ask(&mut self, want: Want) -> Result<usize, Refused> {
        self.ask_for(want, Temper::default())
    }

    pub(crate) fn ask_for(&mut self, want: Want, temper: Temper) -> Result<usize, Refused> {
        let spy = Spy::new(temper);
        let waiting = self.scheduler.request(want.clone(), spy.clone())?;
        self.sims.push(Sim {
            want,
            spy,
            asked: self.now,
            waiting: Some(waiting),
            turn: None,
            answer: None,
            success: None,
            level: None,
            used: Duration::ZERO,
            was_paused: false,
            was_destroyed: false,
        });
        self.live.push(self.sims.len() - 1);
        self.settle();
        Ok(self.sims.len() - 1)
    }

    pub(crate) fn advance(&mut self, by: Duration) {
        for at in self.live.iter().copied().filter(|at| self.runs(*at)).collect::<Vec<_>>() {
            self.sims[at].used += by;
        }
        self.now += by;
        self.clock.set(self.now);
        self.scheduler.look_at_clock();
        self.settle();
    }

    pub(crate) fn finish(&mut self, at: usize, success: bool) -> Option<Result<(), Why>> {
        let sim = &mut self.sims[at];
        let finished = sim.turn.take()?.finish(success);
        sim.success = Some(success);
        let is_preempted = matches!(finished, Err(Why::Preempted { .. }));
        assert_eq!(is_preempted, sim.spy.is_destroyed() && !success);
        self.settle();
        Some(finished)
    }

    pub(crate) fn cancel(&mut self, at: usize) -> bool {
        let handle = self.sims[at].waiting.as_ref().map(Waiting::cancel_handle);
        let cancelled = handle.is_some_and(|handle| handle.cancel());
        self.settle();
        cancelled
    }

    pub(crate) fn drop_waiting(&mut self, at: usize) {
        if self.sims[at].waiting.take().is_some() {
            self.sims[at].answer = Some(Err(Why::Cancelled));
            self.sims[at].success = Some(false);
        }
        self.settle();
    }

    pub(crate) fn runs(&self, at: usize) -> bool {
        self.sims[at].turn.is_some() && !self.sims[at].spy.is_paused()
    }

    pub(crate) fn running(&self) -> Vec<usize> {
        self.live.iter().copied().filter(|at| self.runs(*at)).collect()
    }

    pub(crate) fn destroyed(&self) -> Vec<usize> {
        let is_destroyed = |at: &usize| self.sims[*at].spy.is_destroyed();
        self.live.iter().copied().filter(is_destroyed).collect()
    }

    pub(crate) fn waiting(&self) -> usize {
        self.live().filter(|sim| sim.waiting.is_some()).count()
    }

    pub(crate) fn waits(&self, at: usize) -> bool {
        self.sims[at].waiting.is_some()
    }

    /// Takes all answers, and checks every law that can be seen at one moment.
    fn settle(&mut self) {
        let mut started = Vec::new();
        // An answer can be the cause of another.
        loop {
            let before = self.answered();
            self.hear(&mut started);
            if self.answered() == before {
                break;
            }
        }
        for at in &started {
            let (wanted, level) = (self.sims[*at].want.id, &mut self.sims[*at].level);
            self.scheduler.inspect(|state| {
                let placed = state.placed.values().find(|p| p.job.id == wanted).unwrap();
                *level = Some((placed.level, placed.number));
            });
        }
        started.sort_by_key(|at| self.sims[*at].level.map(|(_, number)| number));
        for sim in self.live() {
            assert!(!sim.spy.is_confused.load(Ordering::SeqCst), "{sim:?}");
        }
        let tally = &self.tally();
        self.limits(tally);
        self.answers();
        self.dependencies(&started);
        self.fifo(&started);
        // Hearing that a turn is gone gives its place back: what is free now was not when others started.
        let is_gone = |sim: &Sim| matches!(sim.answer, Some(Err(Why::Preempted { .. })));
        if !self.live().any(is_gone) {
            self.order(tally, &started);
        }
        self.no_place_is_wasted(tally);
        self.preemption();
        self.live.retain(|at| {
            let sim = &self.sims[*at];
            sim.waiting.is_some() || sim.turn.is_some()
        });
    }

    fn answered(&self) -> usize {
        self.live().filter(|sim| sim.answer.is_some()).count()
    }

    fn hear(&mut self, started: &mut Vec<usize>) {
        for &at in &self.live {
            let sim = &mut self.sims[at];
            let Some(waiting) = &mut sim.waiting else { continue };
            let Ok(answer) = waiting.look() else { continue };
            assert!(sim.answer.is_none(), "answered twice");
            sim.waiting = None;
            match answer {
                Ok(turn) => {
                    sim.answer = Some(Ok(()));
                    sim.turn = Some(turn);
                    started.push(at);
                }
                Err(why) => {
                    sim.answer = Some(Err(why));
                    sim.success = Some(false);
                }
            }
        }
    }

    /// Those that wait or have a turn.
    fn live(&self) -> impl Iterator<Item = &Sim> {
        self.live.iter().map(|at| &self.sims[*at])
    }

    fn tally(&self) -> Tally {
        let mut tally = Tally::default();
        for sim in self.live().filter(|sim| sim.turn.is_some()) {
            tally.memory += sim.want.memory.get() as i64;
            if sim.has_place() {
                tally.places += 1;
                *tally.templates.entry(sim.want.template.clone()).or_default() += 1;
                *tally.tenants.entry(sim.want.tenant.clone()).or_default() += 1;
            }
        }
        tally
    }

    fn free(&self, tally: &Tally, want: &Want) -> Free {
        let template = self.limits.per_template.get(&want.template).map_or(1 << 40, |c| c.get());
        let of = |map: &BTreeMap<Name, i64>, key| map.get(key).copied().unwrap_or_default();
        Free {
            places: self.limits.global.get() as i64 - tally.places,
            template: template as i64 - of(&tally.templates, &want.template),
            share: self.limits.share.running.get() as i64 - of(&tally.tenants, &want.tenant),
            memory: self.limits.memory.get() as i64 - tally.memory,
        }
    }

    /// What would be free for one job without another that runs.
    fn free_without(&self, tally: &Tally, want: &Want, other: &Want) -> Free {
        let mut free = self.free(tally, want);
        free.places += 1;
        free.template += i64::from(want.template == other.template);
        free.share += i64::from(want.tenant == other.tenant);
        free.memory += other.memory.get() as i64;
        free
    }

    fn limits(&self, tally: &Tally) {
        for sim in self.live() {
            let free = self.free(tally, &sim.want);
            assert!(free.places >= 0, "too many run");
            assert!(free.template >= 0, "too many of a template run");
            assert!(free.share >= 0, "too many of a tenant run");
            assert!(free.memory >= 0, "too much memory is admitted");
        }
        let waiting = self.live().filter(|sim| sim.waiting.is_some()).count();
        assert!(waiting as u64 <= self.limits.queue.get(), "too many wait");
    }

    fn answers(&self) {
        for sim in self.live() {
            let until = sim.asked + sim.want.patience.min(MOST_WAIT);
            match &sim.answer {
                None => assert!(self.now < until, "it waits beyond its patience"),
                Some(Err(Why::Deadline)) => assert!(until <= self.now, "too early"),
                Some(_) => {}
            }
        }
    }

    fn success_of(&self, id: CallId) -> Option<bool> {
        self.sims.iter().rev().find(|sim| sim.want.id == id).and_then(|sim| sim.success)
    }

    fn dependencies(&self, started: &[usize]) {
        for sim in started.iter().map(|at| &self.sims[*at]) {
            assert!(sim.want.after.iter().all(|id| self.success_of(*id) == Some(true)), "{sim:?}");
        }
        for sim in self.live() {
            if let Some(Err(Why::Dependency(id))) = sim.answer {
                assert!(sim.want.after.contains(&id) && self.success_of(id) == Some(false));
            }
        }
    }

    fn fifo(&self, started: &[usize]) {
        let class = |w: &Want| {
            (w.tenant.clone(), w.party.clone(), w.priority, w.template.clone(), w.memory)
        };
        for (nth, one) in started.iter().enumerate() {
            for two in started.iter().skip(nth).filter(|two| *two < one) {
                let [one, two] = [one, two].map(|at| &self.sims[*at].want);
                let are_alike = one.after.is_empty() && two.after.is_empty();
                assert!(!are_alike || class(one) != class(two), "{one:?} before {two:?}");
            }
        }
        for later in started.iter().map(|at| &self.sims[*at]).filter(|s| s.want.after.is_empty()) {
            let earlier = self.live().take_while(|sim| sim.want.id != later.want.id);
            for sim in earlier.filter(|sim| sim.want.after.is_empty() && sim.waiting.is_some()) {
                assert_ne!(class(&sim.want), class(&later.want), "{later:?} before {sim:?}");
            }
        }
    }

    /// Nobody waits at a higher level who would have fitted where the last one started, and no paused job
    /// of at least its priority could have its place.
    fn order(&self, tally: &Tally, started: &[usize]) {
        let Some(own) = started.last().map(|at| &self.sims[*at]) else { return };
        let level_of = |sim: &Sim| {
            let waited = self.now - sim.asked;
            level(sim.want.priority, waited, self.limits.ageing)
        };
        let waiting = self.live().filter(|s| s.waiting.is_some() && s.want.after.is_empty());
        for sim in waiting {
            // One that waited for others counts from a moment that is not known here.
            let is_above = own.want.after.is_empty() && level_of(sim) < level_of(own);
            let fitted = self.free_without(tally, &sim.want, &own.want).fits(&sim.want);
            assert!(!(is_above && fitted), "{own:?} before {sim:?}");
        }
        let paused = self.live().filter(|sim| sim.turn.is_some() && !sim.has_place());
        for sim in paused.filter(|sim| sim.was_paused && !sim.spy.is_destroyed()) {
            let is_above = own.want.priority >= sim.want.priority;
            let could = self.free_without(tally, &sim.want, &own.want).has_place();
            assert!(!(is_above && could), "{own:?} before the paused {sim:?}");
        }
    }

    fn no_place_is_wasted(&self, tally: &Tally) {
        let is_anybody_owed =
            self.scheduler.inspect(|state| state.waiting.values().any(|w| w.is_owed()));
        for sim in self.live().filter(|sim| sim.waiting.is_some()) {
            let is_ready = sim.want.after.iter().all(|id| self.success_of(*id) == Some(true));
            let fits = self.free(tally, &sim.want).fits(&sim.want);
            let would_be_stopped = self.live().any(|other| {
                other.waiting.is_some() && other.want.priority.may_stop(sim.want.priority)
            });
            let may_wait = is_anybody_owed || would_be_stopped;
            assert!(!(is_ready && fits) || may_wait, "{sim:?} could run");
        }
        for sim in self.live().filter(|sim| sim.turn.is_some() && !sim.has_place()) {
            let could_go_on = !sim.spy.is_destroyed() && self.free(tally, &sim.want).has_place();
            assert!(!could_go_on, "{sim:?} could go on");
        }
    }

    fn preemption(&mut self) {
        for at in self.live.clone() {
            let sim = &self.sims[at];
            let (paused, destroyed) = (sim.spy.is_paused(), sim.spy.is_destroyed());
            let is_stopped = (paused && !sim.was_paused) || (destroyed && !sim.was_destroyed);
            let could_not_resume = sim.spy.temper.no_resume && sim.was_paused;
            if is_stopped && sim.turn.is_some() && !could_not_resume {
                let urgent = self.live().any(|other| {
                    let is_here = other.waiting.is_some() || other.turn.is_some();
                    is_here && other.want.priority.may_stop(sim.level.unwrap().0)
                });
                assert!(urgent, "{sim:?} was stopped for nobody");
                let is_young = sim.used * 100 < sim.want.expected * 80;
                assert!(is_young || sim.was_paused, "{sim:?} was nearly done");
            }
            assert!(sim.spy.pauses.load(Ordering::SeqCst) <= MOST_PAUSES);
            let sim = &mut self.sims[at];
            (sim.was_paused, sim.was_destroyed) = (paused, destroyed);
        }
    }

    /// Lets everything come to its end, and finds nothing left.
    pub(crate) fn drain(mut self) {
        for _ in 0..=self.live.len() {
            for at in self.live.clone() {
                if self.sims[at].can_end() {
                    self.finish(at, true);
                }
            }
        }
        for sim in &self.sims {
            assert!(sim.waiting.is_none() && sim.turn.is_none() && sim.answer.is_some(), "{sim:?}");
        }
        self.scheduler.inspect(|state| assert!(state.is_empty(), "{state:?}"));
    }

    pub(crate) fn phase(&self, at: usize) -> Option<Phase> {
        let wanted = self.sims[at].want.id;
        self.scheduler
            .inspect(|s| s.placed.values().find(|p| p.job.id == wanted).map(|placed| placed.phase))
    }
}
