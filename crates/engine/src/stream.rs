//! Jobs that are carried out side by side while others are still to come, and whose results are taken while
//! others go on. Nothing here grows with the number of jobs: who takes results slowly, or waits for an early
//! one, holds up whoever would begin another.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Scope};
use std::time::Duration;

use hotcell_request::Request;
use hotcell_types::{CallId, Caller, Status};

use crate::attached::{Attached, Attachment, Input};
use crate::engine::{Engine, new_id};
use crate::reply::{Problem, Reply};

/// Most jobs that go at one time: each is a thread. The scheduler has its own limits.
pub const SIDE_BY_SIDE_MOST: usize = 128;
/// Results that wait to be taken, for each job that goes at one time.
pub const WAITING_EACH: usize = 4;
/// How often calls are told to end that were not there yet when they were told first.
const AGAIN: Duration = Duration::from_millis(5);

/// How many go at one time, and in which order their results come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// At least 1, at most [`SIDE_BY_SIDE_MOST`].
    pub jobs: usize,
    pub order: Order,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Order {
    /// As they finish.
    #[default]
    Finished,
    /// As the jobs came. A result that is early waits; when so many wait as there is room for, nothing is
    /// begun until the one that all wait for is there.
    Given,
}

impl Pace {
    /// One for each processor, as they finish.
    pub fn of_machine() -> Pace {
        let jobs = thread::available_parallelism().map_or(1, usize::from);
        Pace { jobs: jobs.min(SIDE_BY_SIDE_MOST), order: Order::Finished }
    }

    fn threads(self) -> usize {
        self.jobs.clamp(1, SIDE_BY_SIDE_MOST)
    }

    /// Most jobs that are begun and whose results nobody has taken.
    fn window(self) -> u64 {
        (self.threads() * (1 + WAITING_EACH)) as u64
    }
}

/// Carries jobs out on threads of a scope. The next job is asked for when there is a thread for it, by one
/// thread at a time; what was begun has a result, unless it panicked.
pub fn side_by_side<'scope, J, R>(
    scope: &'scope Scope<'scope, '_>,
    pace: Pace,
    jobs: impl Iterator<Item = J> + Send + 'scope,
    carry_out: impl Fn(J) -> R + Send + Sync + 'scope,
) -> Results<'scope, R>
where
    R: Send + 'scope,
{
    let shared = Arc::new(Shared::new(pace.window()));
    let jobs = Mutex::new(Some(jobs));
    let own = Arc::clone(&shared);
    let one: Arc<One<'scope>> = Arc::new(move || {
        let Some((ticket, job)) = own.take(&jobs) else { return false };
        let result = carry_out(job);
        ticket.done(result);
        true
    });
    let mut threads = 0;
    for _ in 0..pace.threads() {
        let (one, worker) = (Arc::clone(&one), shared.worker());
        let work = move || {
            let _worker = worker;
            // A panic costs one job.
            while catch_unwind(AssertUnwindSafe(|| one())).unwrap_or(true) {}
        };
        if thread::Builder::new().name("job".into()).spawn_scoped(scope, work).is_err() {
            break;
        }
        threads += 1;
    }
    // Where there can be no threads, whoever takes the results does it all.
    let alone = (threads == 0).then_some(one);
    Results { shared, order: pace.order, alone }
}

/// One job, if there is another.
type One<'scope> = dyn Fn() -> bool + Send + Sync + 'scope;

/// Results, as they are taken. Whoever drops it takes no more: nothing is begun after that.
pub struct Results<'scope, R> {
    shared: Arc<Shared<R>>,
    order: Order,
    alone: Option<Arc<One<'scope>>>,
}

impl<R> fmt::Debug for Results<'_, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Results").field("order", &self.order).finish_non_exhaustive()
    }
}

/// The number of the job, counted from 0, and its result.
impl<R> Iterator for Results<'_, R> {
    type Item = (u64, R);

    fn next(&mut self) -> Option<(u64, R)> {
        loop {
            let mut state = self.shared.lock();
            while let Some((number, result)) = state.first(self.order) {
                state.handed += 1;
                self.shared.changed.notify_all();
                // Without a result, it panicked.
                if let Some(result) = result {
                    return Some((number, result));
                }
            }
            match &self.alone {
                None if state.workers == 0 => return None,
                None => drop(self.shared.wait(state)),
                Some(one) => {
                    drop(state);
                    if !one() {
                        return None;
                    }
                }
            }
        }
    }
}

impl<R> Drop for Results<'_, R> {
    fn drop(&mut self) {
        self.shared.lock().is_left = true;
        self.shared.changed.notify_all();
    }
}

struct Shared<R> {
    window: u64,
    state: Mutex<State<R>>,
    changed: Condvar,
}

struct State<R> {
    /// Jobs that were begun, and results that were taken.
    begun: u64,
    handed: u64,
    finished: BTreeMap<u64, Option<R>>,
    /// Threads that may still begin something, or finish it.
    workers: usize,
    /// Nobody takes results any more.
    is_left: bool,
}

impl<R> State<R> {
    fn first(&mut self, order: Order) -> Option<(u64, Option<R>)> {
        let first = self.finished.first_entry()?;
        let is_next = order == Order::Finished || *first.key() == self.handed;
        is_next.then(|| first.remove_entry())
    }
}

impl<R> Shared<R> {
    fn new(window: u64) -> Shared<R> {
        let state =
            State { begun: 0, handed: 0, finished: BTreeMap::new(), workers: 0, is_left: false };
        Shared { window, state: Mutex::new(state), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State<R>> {
        lock(&self.state)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State<R>>) -> MutexGuard<'a, State<R>> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    fn worker(self: &Arc<Shared<R>>) -> Worker<R> {
        self.lock().workers += 1;
        Worker(Arc::clone(self))
    }

    /// The next job, once there is room for its result.
    fn take<J>(
        self: &Arc<Shared<R>>,
        jobs: &Mutex<Option<impl Iterator<Item = J>>>,
    ) -> Option<(Ticket<R>, J)> {
        let mut jobs = lock(jobs);
        let mut state = self.lock();
        while !state.is_left && state.begun - state.handed >= self.window {
            state = self.wait(state);
        }
        if state.is_left {
            return None;
        }
        drop(state);
        // That can take long: it is not known when the next one comes. Whoever panics is not asked again.
        let mut all = jobs.take()?;
        let job = all.next()?;
        *jobs = Some(all);
        let mut state = self.lock();
        let number = state.begun;
        state.begun += 1;
        Some((Ticket { number, result: None, shared: Arc::clone(self) }, job))
    }
}

/// Of a thread that works.
struct Worker<R>(Arc<Shared<R>>);

impl<R> Drop for Worker<R> {
    fn drop(&mut self) {
        self.0.lock().workers -= 1;
        self.0.changed.notify_all();
    }
}

/// Of a job that was begun. Dropped, it is over, with a result or without.
struct Ticket<R> {
    number: u64,
    result: Option<R>,
    shared: Arc<Shared<R>>,
}

impl<R> Ticket<R> {
    fn done(mut self, result: R) {
        self.result = Some(result);
    }
}

impl<R> Drop for Ticket<R> {
    fn drop(&mut self) {
        let result = self.result.take();
        self.shared.lock().finished.insert(self.number, result);
        self.shared.changed.notify_all();
    }
}

/// A request, and the contents that go along with it.
#[derive(Debug)]
pub struct Job {
    pub request: Request,
    pub files: Vec<Attachment>,
    pub stdin: Option<Input>,
}

impl From<Request> for Job {
    fn from(request: Request) -> Job {
        Job { request, files: Vec::new(), stdin: None }
    }
}

/// Calls that go on together, for whoever wants all of them to end.
#[derive(Debug, Default)]
pub struct Brake {
    is_pulled: AtomicBool,
    calls: Mutex<HashSet<CallId>>,
}

impl Brake {
    /// Whether nothing is to be begun any more.
    pub fn is_pulled(&self) -> bool {
        self.is_pulled.load(Ordering::SeqCst)
    }

    /// From now on nothing is begun. [`Engine::brake`] also ends what goes on.
    pub fn pull(&self) {
        self.is_pulled.store(true, Ordering::SeqCst);
    }

    /// The same, for whoever looks by itself.
    pub fn flag(&self) -> &AtomicBool {
        &self.is_pulled
    }

    /// Whether nothing goes on.
    pub fn is_idle(&self) -> bool {
        lock(&self.calls).is_empty()
    }

    /// Until it is dropped, the call goes on. `None` if it is too late to begin it.
    pub fn holds(&self, call: CallId) -> Option<Held<'_>> {
        lock(&self.calls).insert(call);
        let held = Held { brake: self, call };
        // Looked at after it can be found: whoever pulls sees the call, or the call sees that.
        (!self.is_pulled()).then_some(held)
    }
}

/// A call that a [`Brake`] can end.
#[derive(Debug)]
pub struct Held<'a> {
    brake: &'a Brake,
    call: CallId,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        lock(&self.brake.calls).remove(&self.call);
    }
}

impl Engine {
    /// Calls that go side by side while others are still to come. Nothing is begun, and everything ends
    /// that goes on, when `brake` is pulled or the results are dropped.
    pub fn batch_stream<'scope, J: Into<Job>>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        caller: &'scope Caller,
        pace: Pace,
        brake: &'scope Brake,
        jobs: impl Iterator<Item = J> + Send + 'scope,
    ) -> Streamed<'scope> {
        let mut jobs = jobs;
        let jobs = std::iter::from_fn(move || match brake.is_pulled() {
            true => None,
            false => jobs.next(),
        });
        let results = side_by_side(scope, pace, jobs, move |job| {
            let Job { request, files, stdin } = job.into();
            let id = new_id();
            let Some(_held) = brake.holds(id) else {
                return self.unjudged(caller, &request.tool, not_begun(id));
            };
            let attached = Attached { id: Some(id), files, stdin, ..Attached::default() };
            self.guarded(caller, request, attached)
        });
        Streamed { results, engine: self, caller, brake, is_over: false }
    }

    /// Begins nothing any more of what a brake holds, and tells everything to end that goes on. A call that
    /// is about to begin cannot be told yet: again, until nothing goes on.
    pub fn brake(&self, caller: &Caller, brake: &Brake) {
        brake.pull();
        let calls: Vec<CallId> = lock(&brake.calls).iter().copied().collect();
        for call in calls {
            // That it is not there yet, or any more, is found out by looking again.
            self.cancel(caller, call).ok();
        }
    }

    /// The same, until nothing goes on.
    pub fn brake_until_idle(&self, caller: &Caller, brake: &Brake) {
        self.brake(caller, brake);
        while !brake.is_idle() {
            thread::sleep(AGAIN);
            self.brake(caller, brake);
        }
    }
}

/// Replies, as they are taken: the number of the job, counted from 0, and what became of it.
#[derive(Debug)]
pub struct Streamed<'scope> {
    results: Results<'scope, Reply>,
    engine: &'scope Engine,
    caller: &'scope Caller,
    brake: &'scope Brake,
    is_over: bool,
}

impl Iterator for Streamed<'_> {
    type Item = (u64, Reply);

    fn next(&mut self) -> Option<(u64, Reply)> {
        let next = self.results.next();
        self.is_over = next.is_none();
        next
    }
}

impl Drop for Streamed<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            self.engine.brake_until_idle(self.caller, self.brake);
        }
    }
}

fn not_begun(id: CallId) -> Reply {
    let why = "the batch was ended before its turn came";
    let problem = Problem::new("it was not begun", why, "ask for it again");
    Reply { status: Status::Cancelled, ..Reply::failed(id, problem) }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;
    use std::sync::mpsc;

    use super::*;

    fn pace(jobs: usize, order: Order) -> Pace {
        Pace { jobs, order }
    }

    #[test]
    fn each_job_has_one_result_whatever_the_order_and_number_of_threads() {
        for order in [Order::Finished, Order::Given] {
            for threads in [0, 1, 3, 999] {
                let results: Vec<_> = thread::scope(|scope| {
                    side_by_side(scope, pace(threads, order), 0..500_u64, |n| n * 2).collect()
                });
                let mut sorted = results.clone();
                sorted.sort_unstable();
                assert_eq!(sorted, (0..500).map(|n| (n, n * 2)).collect::<Vec<_>>());
                assert!(order == Order::Finished || results == sorted);
            }
        }
    }

    #[test]
    fn jobs_begin_before_the_last_one_is_known() {
        let (give, given) = mpsc::channel();
        thread::scope(|scope| {
            let mut results =
                side_by_side(scope, pace(2, Order::Finished), given.into_iter(), |n: u64| n);
            for n in 0..20 {
                give.send(n).unwrap();
                assert_eq!(results.next(), Some((n, n)));
            }
            drop(give);
            assert_eq!(results.next(), None);
        });
    }

    /// How many jobs are begun while nobody takes results, or while the first does not end.
    #[test]
    fn no_more_is_begun_than_there_is_room_for_results() {
        for order in [Order::Finished, Order::Given] {
            let (begun, (open, gate)) = (AtomicU64::new(0), mpsc::channel::<()>());
            let gate = Mutex::new(gate);
            let window = pace(2, order).window();
            thread::scope(|scope| {
                let mut results = side_by_side(scope, pace(2, order), 0..1000_u64, |n| {
                    begun.fetch_add(1, Ordering::SeqCst);
                    if n == 0 && order == Order::Given {
                        lock(&gate).recv().unwrap();
                    }
                    n
                });
                while begun.load(Ordering::SeqCst) < window {
                    thread::yield_now();
                }
                thread::sleep(Duration::from_millis(50));
                assert_eq!(begun.load(Ordering::SeqCst), window, "{order:?}");
                open.send(()).unwrap();
                assert_eq!(results.by_ref().count(), 1000);
            });
        }
    }

    #[test]
    fn who_leaves_early_begins_nothing_more() {
        let begun = AtomicU64::new(0);
        thread::scope(|scope| {
            let count = |_| begun.fetch_add(1, Ordering::SeqCst);
            let mut results = side_by_side(scope, pace(2, Order::Finished), 0.., count);
            results.next().unwrap();
        });
        assert!(begun.into_inner() <= pace(2, Order::Finished).window() + 2);
    }

    #[test]
    fn a_job_that_panics_costs_its_own_result() {
        let numbers = thread::scope(|scope| {
            let work = |n: u64| {
                if n % 10 == 3 {
                    std::panic::resume_unwind(Box::new(()));
                }
            };
            let results = side_by_side(scope, pace(2, Order::Given), 0..50, work);
            results.map(|(number, ())| number).collect::<Vec<u64>>()
        });
        assert_eq!(numbers.len(), 45);
        assert!(numbers.is_sorted() && !numbers.contains(&3));
    }
}
