//! The gate between runs and the network: gives a run its passage, keeps the process that parses what runs send,
//! and answers what that process asks. It dies closed: without the process there is no way out.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use hotcell_airlock::wire::{
    self, Answer, Budget, CREDENTIAL, End, Fault, FromAirlock, MOST_BODY, MOST_PACKET, MOST_UNTOLD,
    Protocol, ToAirlock,
};
use rustix::event::{EventfdFlags, eventfd};
use rustix::net::sockopt;
use rustix::rand::{GetRandomFlags, getrandom};

use crate::authority::Authority;
use crate::connect::begin;
use crate::crew::{Bounds, Crew};
use crate::decide::{ask, locate};
use crate::fill::Fill;
use crate::judge::{Event, How, Judge, Refusal, Refused, Wanted, Way};
use crate::line::{Line, Ticket};
use crate::relay::Relay;
use crate::resolve::Resolver;
use crate::start::{Start, Started};
use crate::tls::{Tls, reach, secure};
use crate::{Host, tls};

/// What a run may have if nobody says otherwise.
pub const BUDGET: Budget = Budget {
    connections: 64,
    requests: 10_000,
    up: 1 << 30,
    down: 4 << 30,
    head: 64 * 1024,
    fields: 100,
    head_time: 10_000,
    connect_time: 10_000,
    idle_time: 5 * 60 * 1000,
};

/// Questions that are being answered, most of which take no time; some wait for names and for TLS. Half of the
/// threads are for runs that have none.
const ASKS: Bounds = Bounds { threads: 512, kept: 256, share: 16, waiting: 256, stack: 512 * 1024 };
/// Each stays as long as its connection, so that nobody waits for one.
const RELAYS: Bounds = Bounds { threads: 1024, kept: 0, share: 32, waiting: 0, stack: 512 * 1024 };
/// What the kernel keeps of a run's connection, in either direction.
const BUFFERED: usize = 256 * 1024;
/// Most events that nobody has been told of yet.
const MOST_LATE: usize = 1024;
/// How long the process may take to tell what the connections of a run carried that has ended.
const TOLD_WITHIN: Duration = Duration::from_secs(2);

/// How long the process may take to be there, and how long nothing is started after it failed twice in a row
/// and more often.
const READY_WITHIN: Duration = Duration::from_secs(10);
const REST_LEAST: Duration = Duration::from_millis(100);
const REST_MOST: Duration = Duration::from_secs(30);
/// A process that lived as long did not fail at once.
const GOOD: Duration = Duration::from_secs(60);
/// How often it is looked at.
const BEAT: Duration = Duration::from_secs(1);
/// Most events about one run's malformed requests; the rest is only counted.
const MOST_MALFORMED: u64 = 8;

/// The way out for runs. One for a process is enough.
pub struct Gate {
    inner: Arc<Inner>,
}

/// One run's way out. Dropping it closes all of its connections, and there are no others.
pub struct Passage {
    run: Arc<Run>,
    inner: Arc<Inner>,
}

/// What a run is told about its way out before there is one.
pub struct Pass {
    credential: [u8; CREDENTIAL],
    authority: OnceLock<Result<Authority, String>>,
}

/// There is no way out for a run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the network cannot be opened for a run: {0}")]
pub struct Closed(pub String);

/// What a run has done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    pub requests: u64,
    pub refused: u64,
    /// Refused by the proxy without asking anybody.
    pub malformed: u64,
    pub up: u64,
    pub down: u64,
    /// So many more may have gone either way through a process that was lost. They count as if they had.
    pub unknown: u64,
}

/// What an operator may say.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// A file with certificates (PEM) of authorities that are trusted besides those of the host.
    pub authorities: Option<PathBuf>,
}

pub(crate) struct Run {
    number: u32,
    credential: [u8; CREDENTIAL],
    listeners: Vec<OwnedFd>,
    budget: Budget,
    judge: Arc<dyn Judge>,
    fill: Option<Arc<dyn Fill>>,
    authority: OnceLock<Result<Authority, String>>,
    closed: Arc<OwnedFd>,
    is_closed: AtomicBool,
    used: Mutex<Counts>,
    /// Events that nobody has been told of yet.
    late: Mutex<VecDeque<Event>>,
    permitted: Permitted,
}

/// Requests that were judged and are still to be sent by a relay. The process that asks for them is not believed
/// when it hands over others.
#[derive(Default)]
struct Permitted {
    keys: RandomState,
    requests: Mutex<HashMap<u64, u32>>,
}

impl Permitted {
    fn key(&self, host: &Host, port: u16, method: &str, path: &str) -> u64 {
        self.keys.hash_one((host.as_str(), port, method, path))
    }

    fn give(&self, wanted: &Wanted) {
        let (Some(method), Some(path)) = (&wanted.method, &wanted.path) else { return };
        let key = self.key(&wanted.host, wanted.port, method, path);
        *lock(&self.requests).entry(key).or_default() += 1;
    }

    /// Whether there was one. It is used up.
    fn take(&self, host: &Host, port: u16, method: &str, path: &str) -> bool {
        let key = self.key(host, port, method, path);
        let mut requests = lock(&self.requests);
        let Some(count) = requests.get_mut(&key) else { return false };
        *count -= 1;
        if *count == 0 {
            requests.remove(&key);
        }
        true
    }
}

struct Inner {
    start: Box<dyn Start>,
    resolver: Arc<dyn Resolver>,
    tls: Arc<Tls>,
    asks: Crew,
    relays: Crew,
    numbers: AtomicU64,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    runs: HashMap<u32, Arc<Run>>,
    last: u32,
    seat: Seat,
    /// Somebody keeps the process.
    is_kept: bool,
    is_closed: bool,
}

enum Seat {
    /// None, or one that is on its way.
    Empty,
    There(Arc<Line>),
    Failed(String),
}

impl Gate {
    pub fn new(start: Box<dyn Start>, resolver: Arc<dyn Resolver>, settings: Settings) -> Gate {
        let state = State {
            runs: HashMap::new(),
            last: 0,
            seat: Seat::Empty,
            is_kept: false,
            is_closed: false,
        };
        let inner = Inner {
            start,
            resolver,
            tls: Arc::new(Tls::new(settings.authorities)),
            asks: Crew::new("hotcell-egress", ASKS),
            relays: Crew::new("hotcell-relay", RELAYS),
            numbers: AtomicU64::new(1),
            state: Mutex::new(state),
            changed: Condvar::new(),
        };
        Gate { inner: Arc::new(inner) }
    }

    /// Opens the way out for one run, at sockets that listen where only the run is. Starts the process if there
    /// is none, and waits for it.
    pub fn open(
        &self,
        pass: Pass,
        listeners: Vec<OwnedFd>,
        judge: Arc<dyn Judge>,
        fill: Option<Arc<dyn Fill>>,
        budget: Budget,
    ) -> Result<Passage, Closed> {
        let said = |error: io::Error| Closed(tls::words(&error));
        let run = Run {
            number: self.inner.next_run(),
            credential: pass.credential,
            listeners,
            budget,
            judge,
            fill,
            authority: pass.authority,
            closed: Arc::new(eventfd(0, EventfdFlags::CLOEXEC).map_err(|e| said(e.into()))?),
            is_closed: AtomicBool::new(false),
            used: Mutex::new(Counts::default()),
            late: Mutex::default(),
            permitted: Permitted::default(),
        };
        for listener in &run.listeners {
            // Whoever comes in by it has the same.
            sockopt::set_socket_recv_buffer_size(listener, BUFFERED).map_err(|e| said(e.into()))?;
            sockopt::set_socket_send_buffer_size(listener, BUFFERED).map_err(|e| said(e.into()))?;
        }
        let run = Arc::new(run);
        let line = self.inner.enter(&run)?;
        let passage = Passage { run, inner: Arc::clone(&self.inner) };
        match line {
            Some(line) => line.say_open(&passage.run).map_err(said)?,
            None => self.inner.wait_for(&passage.run)?,
        }
        Ok(passage)
    }
}

impl Pass {
    pub fn new() -> Result<Pass, Closed> {
        let credential = credential().map_err(|error| Closed(tls::words(&error)))?;
        Ok(Pass { credential, authority: OnceLock::new() })
    }

    /// The password of the user `run`, 32 hexadecimal digits.
    pub fn credential(&self) -> &str {
        str::from_utf8(&self.credential).unwrap_or_default()
    }

    /// The certificate (PEM) of the authority that a run has to trust for the tunnels that are looked into. It
    /// is made when it is asked for first.
    pub fn authority(&self) -> Result<String, Closed> {
        made(&self.authority).map(Authority::pem).map_err(Closed)
    }
}

impl Passage {
    pub fn counts(&self) -> Counts {
        *lock(&self.run.used)
    }

    /// Closes it, waits a moment until it is known what its last connections carried, and tells all of it.
    pub fn close(self) -> Counts {
        let (run, inner) = (Arc::clone(&self.run), Arc::clone(&self.inner));
        drop(self);
        inner.settle(&run);
        run.tell_late();
        *run.used()
    }
}

impl Drop for Passage {
    fn drop(&mut self) {
        self.run.close();
        let mut state = self.inner.state();
        state.runs.remove(&self.run.number);
        let line = state.line();
        drop(state);
        self.inner.changed.notify_all();
        if let Some(line) = line {
            // A process that cannot be told is one that is being ended.
            drop(line.say(&ToAirlock::Close { run: self.run.number }, &[]));
        }
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        let mut state = self.inner.state();
        state.is_closed = true;
        let line = state.line();
        drop(state);
        self.inner.changed.notify_all();
        if let Some(line) = line {
            line.hang_up();
        }
        self.inner.asks.close();
        self.inner.relays.close();
    }
}

fn made(authority: &OnceLock<Result<Authority, String>>) -> Result<&Authority, String> {
    let made = authority.get_or_init(|| Authority::new().map_err(|error| error.to_string()));
    made.as_ref().map_err(String::clone)
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate").finish_non_exhaustive()
    }
}

/// The credential is not shown.
impl fmt::Debug for Pass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pass").finish_non_exhaustive()
    }
}

impl fmt::Debug for Passage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Passage").field("run", &self.run.number).finish_non_exhaustive()
    }
}

impl Run {
    fn party(&self) -> u64 {
        u64::from(self.number)
    }

    fn authority(&self) -> Result<&Authority, String> {
        made(&self.authority)
    }

    fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        // Its relays see it; it can hold so much.
        rustix::io::write(&*self.closed, &1_u64.to_ne_bytes()).ok();
    }

    fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    fn used(&self) -> MutexGuard<'_, Counts> {
        lock(&self.used)
    }

    fn tell_late(&self) {
        loop {
            let Some(event) = lock(&self.late).pop_front() else { return };
            self.judge.happened(&event);
        }
    }

    /// What is left of its budget.
    fn left(&self) -> Budget {
        let used = *self.used();
        Budget {
            requests: self.budget.requests.saturating_sub(used.requests),
            up: self.budget.up.saturating_sub(used.up).saturating_sub(used.unknown),
            down: self.budget.down.saturating_sub(used.down).saturating_sub(used.unknown),
            ..self.budget
        }
    }

    fn time(&self) -> Duration {
        Duration::from_millis(u64::from(self.budget.connect_time))
    }
}

impl Line {
    fn say_open(&self, run: &Run) -> io::Result<()> {
        let message =
            ToAirlock::Open { run: run.number, credential: run.credential, budget: run.left() };
        let listeners: Vec<_> = run.listeners.iter().map(AsFd::as_fd).collect();
        self.say(&message, &listeners)
    }

    fn answer(&self, ticket: u64, answer: Answer, with: Option<&OwnedFd>) -> io::Result<()> {
        let with: Vec<_> = with.map(AsFd::as_fd).into_iter().collect();
        self.say(&ToAirlock::Answer { ticket, answer }, &with)
    }
}

impl State {
    fn line(&self) -> Option<Arc<Line>> {
        match &self.seat {
            Seat::There(line) => Some(Arc::clone(line)),
            Seat::Empty | Seat::Failed(_) => None,
        }
    }
}

/// The process, from its start to its end.
impl Inner {
    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// A number that no living run has, and not 0.
    fn next_run(&self) -> u32 {
        let mut state = self.state();
        loop {
            state.last = state.last.wrapping_add(1);
            if state.last != 0 && !state.runs.contains_key(&state.last) {
                return state.last;
            }
        }
    }

    /// From now on the run is one of those that a process is told of. The process that is there is told by
    /// whoever calls.
    fn enter(self: &Arc<Inner>, run: &Arc<Run>) -> Result<Option<Arc<Line>>, Closed> {
        let mut state = self.state();
        if state.is_closed {
            return Err(Closed("the gate is closed".into()));
        }
        if let Seat::Failed(_) = state.seat {
            state.seat = Seat::Empty;
        }
        if !state.is_kept {
            let inner = Arc::clone(self);
            let spawned =
                thread::Builder::new().name("hotcell-gate".into()).spawn(move || inner.keep());
            spawned.map_err(|error| Closed(tls::words(&error)))?;
            state.is_kept = true;
        }
        state.runs.insert(run.number, Arc::clone(run));
        Ok(state.line())
    }

    /// Until a process is there, which was told of this run.
    fn wait_for(&self, run: &Run) -> Result<(), Closed> {
        let deadline = Instant::now() + READY_WITHIN;
        let mut state = self.state();
        loop {
            match &state.seat {
                Seat::There(_) => return Ok(()),
                Seat::Failed(why) => return Err(Closed(why.clone())),
                Seat::Empty => {}
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || run.is_closed() {
                return Err(Closed("its proxy did not start in time".into()));
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Starts processes one after the other, as long as somebody needs one.
    fn keep(self: Arc<Inner>) {
        let mut failures = 0;
        let mut is_first = true;
        while self.rest(failures) {
            let since = Instant::now();
            let why = match self.begin() {
                Ok((line, started)) => self.attend(&line, started, is_first),
                Err(why) => why,
            };
            is_first = false;
            failures = if since.elapsed() > GOOD { 1 } else { failures + 1 };
            self.lost(&why);
        }
    }

    /// Waits until a process may be started; `false` if none is needed any more.
    fn rest(&self, failures: u32) -> bool {
        let deadline = Instant::now() + rest(failures);
        let mut state = self.state();
        loop {
            if state.is_closed || state.runs.is_empty() {
                state.is_kept = false;
                state.seat = Seat::Empty;
                return false;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return true;
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn begin(&self) -> Result<(Arc<Line>, Started), String> {
        let (line, theirs) = Line::new().map_err(|error| tls::words(&error))?;
        let started = self.start.start(theirs)?;
        Ok((Arc::new(line), started))
    }

    /// Hears what a process says until it ends. Why it did.
    fn attend(self: &Arc<Inner>, line: &Arc<Line>, started: Started, is_first: bool) -> String {
        let Started { end, wait } = started;
        line.ended_by(end);
        let waited = Arc::clone(line);
        let waiter = thread::Builder::new().name("hotcell-gate-end".into()).spawn(move || {
            let how = wait();
            waited.hang_up();
            how
        });
        let said = self.hear(line, is_first);
        self.state().seat = Seat::Empty;
        line.hang_up();
        let how = waiter.ok().and_then(|waiter| waiter.join().ok()).unwrap_or_default();
        let how = if how.is_empty() { said } else { format!("{said}: {how}") };
        self.drop_tickets(line);
        how
    }

    fn hear(self: &Arc<Inner>, line: &Arc<Line>, is_first: bool) -> String {
        let mut buffer = vec![0; MOST_PACKET];
        match line.hear(&mut buffer, READY_WITHIN) {
            Ok(Some(FromAirlock::Ready)) => {}
            Ok(Some(_)) => return "the proxy began with something else".into(),
            Ok(None) => return "the proxy did not start in time".into(),
            Err(error) => return format!("the proxy did not start, {}", tls::words(&error)),
        }
        if let Err(error) = self.seat(line, is_first) {
            return format!("the proxy did not take its runs, {}", tls::words(&error));
        }
        let mut looked = Instant::now();
        loop {
            match line.hear(&mut buffer, BEAT) {
                Ok(Some(message)) => {
                    if !self.take(line, message) {
                        return "the proxy said what it must not say".into();
                    }
                }
                Ok(None) => {}
                Err(error) => return format!("the proxy ended, {}", tls::words(&error)),
            }
            if looked.elapsed() >= BEAT {
                looked = Instant::now();
                if line.is_deaf() {
                    return "the proxy stood still, and was ended".into();
                }
            }
        }
    }

    /// Tells a new process of all runs, with nobody entering meanwhile.
    fn seat(&self, line: &Arc<Line>, is_first: bool) -> io::Result<()> {
        let mut state = self.state();
        if state.is_closed {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        for run in state.runs.values() {
            line.say_open(run)?;
        }
        state.seat = Seat::There(Arc::clone(line));
        let runs: Vec<_> = state.runs.values().cloned().collect();
        drop(state);
        self.changed.notify_all();
        if !is_first {
            runs.iter().for_each(|run| self.tell(run, Event::Restored));
        }
        Ok(())
    }

    fn lost(&self, why: &str) {
        let mut state = self.state();
        state.seat = Seat::Failed(why.to_owned());
        let runs: Vec<_> = state.runs.values().cloned().collect();
        drop(state);
        self.changed.notify_all();
        for run in runs {
            self.tell(&run, Event::Lost { why: why.to_owned() });
        }
    }

    fn drop_tickets(&self, line: &Line) {
        let tickets = std::mem::take(&mut *line.tickets());
        for ticket in tickets.into_values() {
            let run = Arc::clone(&ticket.run);
            let (up, down) = (ticket.up, ticket.down);
            if ticket.is_open {
                let mut used = run.used();
                used.unknown = used.unknown.saturating_add(MOST_UNTOLD);
            }
            self.tell(&run, ended(ticket, up, down, How::Lost));
        }
        self.notify();
    }

    /// Waits until nothing of a closed run is under way in the process.
    fn settle(&self, run: &Arc<Run>) {
        let deadline = Instant::now() + TOLD_WITHIN;
        let mut state = self.state();
        loop {
            let has_tickets =
                |line: Arc<Line>| line.tickets().values().any(|open| Arc::ptr_eq(&open.run, run));
            let left = deadline.saturating_duration_since(Instant::now());
            if !state.line().is_some_and(has_tickets) || left.is_zero() {
                return;
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Whoever looks at the state either sees a change that was made before, or hears of it.
    fn notify(&self) {
        drop(self.state());
        self.changed.notify_all();
    }

    /// Tells whoever judges, on a thread that may wait for a disk. Where none is to be had, those that are at work
    /// for the run tell it when they are done.
    fn tell(&self, run: &Arc<Run>, event: Event) {
        let mut late = lock(&run.late);
        if late.len() >= MOST_LATE {
            return;
        }
        late.push_back(event);
        drop(late);
        let told = Arc::clone(run);
        self.asks.submit(run.party(), move || told.tell_late()).ok();
    }
}

/// What the process says.
impl Inner {
    /// Whether it may say so.
    fn take(self: &Arc<Inner>, line: &Arc<Line>, message: FromAirlock) -> bool {
        match message {
            FromAirlock::Ready => false,
            FromAirlock::Ask { run, ticket, wanted, .. } => self.asked(line, run, ticket, wanted),
            FromAirlock::Unreached { ticket, error } => {
                self.unreached(line, ticket, error);
                true
            }
            FromAirlock::Ended { ticket, up, down, how, .. } => {
                self.ended(line, ticket, up, down, how);
                true
            }
            FromAirlock::Malformed { run, why, .. } => {
                self.malformed(run, why);
                true
            }
            FromAirlock::Moved { ticket, up, down } => {
                if let Some(open) = line.tickets().get_mut(&ticket) {
                    open.moved(up, down);
                }
                true
            }
        }
    }

    fn asked(
        self: &Arc<Inner>,
        line: &Arc<Line>,
        run: u32,
        ticket: u64,
        said: wire::Wanted,
    ) -> bool {
        let Some(run) = self.state().runs.get(&run).cloned() else {
            // Its passage has just been closed.
            return true;
        };
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        let mut tickets = line.tickets();
        let open = tickets.values().filter(|open| Arc::ptr_eq(&open.run, &run)).count();
        // A tunnel that is looked into has one ticket, and the request in it another.
        if open > 2 * run.budget.connections as usize || tickets.contains_key(&ticket) {
            return false;
        }
        let since = Instant::now();
        let entry = Ticket {
            number,
            run: Arc::clone(&run),
            wanted: None,
            is_raw: false,
            is_open: false,
            up: 0,
            down: 0,
            rest: Vec::new(),
            since,
        };
        tickets.insert(ticket, entry);
        drop(tickets);
        run.used().requests += 1;
        let question =
            Question { line: Arc::clone(line), run: Arc::clone(&run), ticket, number, since };
        let inner = Arc::clone(self);
        let refused = question.clone();
        if self.asks.submit(run.party(), move || inner.answer(&question, said)).is_err() {
            run.used().refused += 1;
            refused.refuse(&busy("too much is being asked for by this run"));
        }
        true
    }

    fn unreached(self: &Arc<Inner>, line: &Arc<Line>, ticket: u64, error: u32) {
        let mut tickets = line.tickets();
        let Some(open) = tickets.get_mut(&ticket) else { return };
        let question = Question {
            line: Arc::clone(line),
            run: Arc::clone(&open.run),
            ticket,
            number: open.number,
            since: open.since,
        };
        let wanted = open.wanted.clone();
        let is_raw = open.is_raw;
        let rest = std::mem::take(&mut open.rest);
        drop(tickets);
        let why = match i32::try_from(error) {
            Ok(number @ 1..) => tls::words(&io::Error::from_raw_os_error(number)),
            _ => "it does not answer in time".into(),
        };
        if question.connect(rest, is_raw) {
            return;
        }
        let refusal = unreachable(wanted.as_ref(), &why);
        question.run.used().refused += 1;
        self.tell(
            &question.run,
            Event::Refused { number: question.number, wanted, refusal: refusal.clone() },
        );
        question.refuse(&refusal);
    }

    fn ended(&self, line: &Line, ticket: u64, up: u64, down: u64, how: End) {
        let Some(mut ticket) = line.tickets().remove(&ticket) else { return };
        let run = Arc::clone(&ticket.run);
        ticket.moved(up, down);
        self.tell(&run, ended(ticket, up, down, How::Proxy(how)));
        if run.is_closed() {
            self.notify();
        }
    }

    fn malformed(&self, run: u32, why: Fault) {
        let Some(run) = self.state().runs.get(&run).cloned() else { return };
        let count = {
            let mut used = run.used();
            used.malformed += 1;
            used.malformed
        };
        if count <= MOST_MALFORMED {
            self.tell(&run, Event::Malformed { why });
        }
    }
}

const INTERNAL_FIX: &str = "the result of the run says which address a policy would have to name";

/// Something that was asked, and whom to answer.
#[derive(Clone)]
struct Question {
    line: Arc<Line>,
    run: Arc<Run>,
    ticket: u64,
    number: u64,
    since: Instant,
}

impl Inner {
    fn answer(self: &Arc<Inner>, question: &Question, said: wire::Wanted) {
        if question.run.is_closed() {
            return;
        }
        let mut wanted = None;
        if let Err(refusal) = self.try_answer(question, said, &mut wanted) {
            let run = &question.run;
            run.used().refused += 1;
            let event =
                Event::Refused { number: question.number, wanted, refusal: refusal.clone() };
            run.judge.happened(&event);
            question.refuse(&refusal);
        }
        question.run.tell_late();
    }

    fn try_answer(
        self: &Arc<Inner>,
        question: &Question,
        said: wire::Wanted,
        noted: &mut Option<Wanted>,
    ) -> Result<(), Refusal> {
        let run = &question.run;
        let kept = said.kept;
        let wanted = understood(said)?;
        *noted = Some(wanted.clone());
        question.note(|ticket| ticket.wanted = Some(wanted.clone()));
        if run.used().requests > run.budget.requests {
            return Err(over(&wanted));
        }
        let permitted = ask(&wanted, &*run.judge)?;
        if kept {
            if wanted.protocol == Protocol::Https {
                run.permitted.give(&wanted);
            }
            question.allow(&wanted, Vec::new(), Way::Again);
            question.say(Answer::Again, None);
            return Ok(());
        }
        if wanted.is_tunnel() && permitted.intercept && !permitted.raw {
            let leaf = run.authority().and_then(|authority| {
                authority.leaf(&wanted.host).map_err(|error| error.to_string())
            });
            let leaf = leaf.map_err(|why| busy(&format!("no certificate could be made: {why}")))?;
            question.allow(&wanted, Vec::new(), Way::Intercepted);
            question.say(Answer::Intercept { chain: leaf.chain, key: leaf.key }, None);
            return Ok(());
        }
        let deadline = question.since + run.time();
        let addresses = locate(&wanted, &*run.judge, &*self.resolver, run.party(), deadline)?;
        if run.is_closed() {
            return Ok(());
        }
        if !wanted.is_tunnel() && wanted.protocol == Protocol::Https {
            question.allow(&wanted, addresses.clone(), Way::Relayed);
            return self.relay(question, &wanted, &addresses, deadline);
        }
        let (way, is_raw) = match (wanted.is_tunnel(), permitted.raw) {
            (false, _) => (Way::Plain, false),
            (true, false) => (Way::Tunnel, false),
            (true, true) => (Way::Raw, true),
        };
        question.allow(&wanted, addresses.clone(), way);
        if question.connect(addresses, is_raw) {
            Ok(())
        } else {
            Err(unreachable(Some(&wanted), "this host has no way there"))
        }
    }

    /// Connects, proves who it is, and leaves the rest to a thread of its own.
    fn relay(
        self: &Arc<Inner>,
        question: &Question,
        wanted: &Wanted,
        addresses: &[SocketAddr],
        deadline: Instant,
    ) -> Result<(), Refusal> {
        let run = &question.run;
        let upstream = secure(&self.tls, wanted, reach(wanted, addresses, deadline)?)?;
        let failed = |error: io::Error| busy(&tls::words(&error));
        let (ours, theirs) = UnixStream::pair().map_err(failed)?;
        ours.set_nonblocking(true).map_err(failed)?;
        theirs.set_nonblocking(true).map_err(failed)?;
        let told = (Arc::clone(self), Arc::clone(run), question.number, wanted.clone());
        let tell = move |refusal: Refusal| {
            let (inner, run, number, wanted) = &told;
            run.used().refused += 1;
            let wanted = Some(wanted.clone());
            inner.tell(run, Event::Refused { number: *number, wanted, refusal });
        };
        let relay = Relay {
            host: wanted.host.clone(),
            port: wanted.port,
            fill: run.fill.clone(),
            idle: Duration::from_millis(u64::from(run.budget.idle_time)),
            closed: Arc::clone(&run.closed),
            tell: Box::new(tell),
            may_send: Box::new({
                let (run, host, port) = (Arc::clone(run), wanted.host.clone(), wanted.port);
                move |method, path| run.permitted.take(&host, port, method, path)
            }),
        };
        if run.is_closed() {
            return Ok(());
        }
        run.permitted.give(wanted);
        let work = move || relay.run(ours, upstream);
        self.relays
            .submit(run.party(), work)
            .map_err(|_| busy("too many connections of this run are relayed already"))?;
        question.say(Answer::Relay, Some(&theirs.into()));
        Ok(())
    }
}

impl Ticket {
    /// So much went either way so far. It counts at once, and once.
    fn moved(&mut self, up: u64, down: u64) {
        let mut used = self.run.used();
        used.up = used.up.saturating_add(up.saturating_sub(self.up));
        used.down = used.down.saturating_add(down.saturating_sub(self.down));
        drop(used);
        (self.up, self.down) = (self.up.max(up), self.down.max(down));
    }
}

impl Question {
    fn note(&self, change: impl FnOnce(&mut Ticket)) {
        if let Some(ticket) = self.line.tickets().get_mut(&self.ticket) {
            change(ticket);
        }
    }

    /// What is allowed is told before it has an effect.
    fn allow(&self, wanted: &Wanted, addresses: Vec<SocketAddr>, way: Way) {
        self.note(|ticket| ticket.is_open = true);
        let (number, wanted) = (self.number, wanted.clone());
        self.run.judge.happened(&Event::Allowed { number, wanted, addresses, way });
    }

    /// Gives the first address that a socket can be on its way to; `false` if there is none.
    fn connect(&self, mut addresses: Vec<SocketAddr>, is_raw: bool) -> bool {
        while !addresses.is_empty() {
            let address = addresses.remove(0);
            if let Ok(socket) = begin(address) {
                self.note(|ticket| {
                    ticket.is_raw = is_raw;
                    ticket.rest = addresses;
                });
                self.say(Answer::Connected { raw: is_raw }, Some(&socket));
                return true;
            }
        }
        false
    }

    fn refuse(&self, refusal: &Refusal) {
        let mut body = match refusal.kind {
            // Which address a name has inside somebody's network is for who reads the result, not for the run.
            Refused::Internal(kind) => {
                let (why, fix) = (format!("it leads to {kind}"), INTERNAL_FIX.to_owned());
                Refusal { why, fix, ..refusal.clone() }.text()
            }
            _ => refusal.text(),
        };
        while body.len() > MOST_BODY {
            body.pop();
        }
        self.say(Answer::Refused { status: refusal.status(), body }, None);
    }

    /// A process that cannot be answered is on its end, and with it what was asked.
    fn say(&self, answer: Answer, with: Option<&OwnedFd>) {
        if !self.run.is_closed() && self.line.answer(self.ticket, answer, with).is_err() {
            self.line.hang_up();
        }
    }
}

/// In the one spelling. `http://host:443/` is a request over TLS: nobody speaks plainly there.
fn understood(said: wire::Wanted) -> Result<Wanted, Refusal> {
    let host = Host::parse(&said.host).map_err(|bad| {
        Refusal::new(
            Refused::Malformed,
            format!("`{}` is not reached", said.host.escape_debug()),
            bad.to_string(),
            "write the host as it is registered",
        )
    })?;
    let is_secure = said.protocol == Protocol::Http && said.port == 443 && said.method.is_some();
    let protocol = if is_secure { Protocol::Https } else { said.protocol };
    let wire::Wanted { port, method, path, intercepted, .. } = said;
    Ok(Wanted { protocol, host, port, method, path, intercepted })
}

fn ended(ticket: Ticket, up: u64, down: u64, how: How) -> Event {
    let Ticket { number, wanted, since, .. } = ticket;
    Event::Ended { number, wanted, up, down, how, lasted: since.elapsed() }
}

fn over(wanted: &Wanted) -> Refusal {
    Refusal::new(
        Refused::Budget,
        format!("{wanted} is not reached"),
        "this run has made all the requests that it may make",
        "make fewer, or several runs",
    )
}

fn busy(why: &str) -> Refusal {
    Refusal::new(Refused::Busy, "nothing is reached", why, "try again, with fewer at once")
}

fn unreachable(wanted: Option<&Wanted>, why: &str) -> Refusal {
    let what = wanted.map_or("it".to_owned(), Wanted::to_string);
    Refusal::new(
        Refused::Unreachable,
        format!("{what} is not reached"),
        format!("it cannot be connected to: {why}"),
        "see whether the service runs, and whether this host reaches it",
    )
}

/// 32 hexadecimal digits that nobody guesses.
fn credential() -> io::Result<[u8; CREDENTIAL]> {
    let mut bytes = [0; CREDENTIAL / 2];
    let filled = rustix::io::retry_on_intr(|| getrandom(&mut bytes, GetRandomFlags::empty()))?;
    let text = data_encoding::HEXLOWER.encode(&bytes);
    let whole = text.into_bytes().try_into().ok().filter(|_| filled == bytes.len());
    whole.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
}

/// How long nothing is started after so many failures in a row.
fn rest(failures: u32) -> Duration {
    match failures.checked_sub(2) {
        None => Duration::ZERO,
        Some(doubled) => REST_LEAST.saturating_mul(1 << doubled.min(16)).min(REST_MOST),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_judged_once_is_sent_once() {
        let wanted = |method: &str, path: &str| Wanted {
            protocol: Protocol::Https,
            host: Host::parse("allowed.test").unwrap(),
            port: 443,
            method: Some(method.into()),
            path: Some(path.into()),
            intercepted: true,
        };
        let permitted = Permitted::default();
        permitted.give(&wanted("GET", "/a"));
        permitted.give(&wanted("GET", "/a"));
        let take = |port, method, path| {
            permitted.take(&Host::parse("allowed.test").unwrap(), port, method, path)
        };
        let others = [take(443, "POST", "/a"), take(443, "GET", "/b"), take(444, "GET", "/a")];
        assert_eq!(others, [false; 3]);
        assert_eq!([(); 3].map(|()| take(443, "GET", "/a")), [true, true, false]);
    }
}
