//! Threads for what may wait: as many as are needed up to a maximum, and of each party no more than its share,
//! so that one that keeps many waiting does not keep others waiting.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// How long a thread without work stays.
const IDLE: Duration = Duration::from_secs(10);

type Work = Box<dyn FnOnce() + Send>;

/// How many there are of what.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    pub(crate) threads: usize,
    /// Of these, how many are for parties that have nothing under way.
    pub(crate) kept: usize,
    /// Of one party at once, and how many of it wait besides. Where none does, work begins at once or not at
    /// all.
    pub(crate) share: usize,
    pub(crate) waiting: usize,
    /// Bytes of each thread's stack.
    pub(crate) stack: usize,
}

/// Whether there are threads for parties that have one already.
fn has_free(running: usize, bounds: &Bounds) -> bool {
    running + bounds.kept < bounds.threads
}

/// Whether a party may have one more under way, besides so many of its own and of all.
fn has_turn(own: usize, running: usize, bounds: &Bounds) -> bool {
    own == 0 || (own < bounds.share && has_free(running, bounds))
}

/// No more of this party's can wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Full;

#[derive(Clone)]
pub(crate) struct Crew {
    inner: Arc<Inner>,
}

struct Inner {
    name: &'static str,
    bounds: Bounds,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    parties: HashMap<u64, Party>,
    /// Parties that have work waiting and less than their share under way, each once.
    turns: VecDeque<u64>,
    /// Work that is under way.
    running: usize,
    threads: usize,
    idle: usize,
    /// Idle threads that were woken and have not looked yet.
    called: usize,
    is_closed: bool,
}

#[derive(Default)]
struct Party {
    running: usize,
    waiting: VecDeque<Work>,
    is_in_turn: bool,
}

impl Crew {
    pub(crate) fn new(name: &'static str, bounds: Bounds) -> Crew {
        let state = Mutex::new(State::default());
        Crew { inner: Arc::new(Inner { name, bounds, state, changed: Condvar::new() }) }
    }

    /// Has `work` done, at once or when it is its party's turn.
    pub(crate) fn submit(
        &self,
        party: u64,
        work: impl FnOnce() + Send + 'static,
    ) -> Result<(), Full> {
        let inner = &self.inner;
        let mut guard = inner.state();
        let state = &mut *guard;
        let has_thread = state.idle > state.called || state.threads < inner.bounds.threads;
        let entry = state.parties.entry(party).or_default();
        let has_room = match inner.bounds.waiting {
            0 => has_thread && entry.running + entry.waiting.len() < inner.bounds.share,
            most => entry.waiting.len() < most,
        };
        if state.is_closed || !has_room {
            state.forget(party);
            return Err(Full);
        }
        entry.waiting.push_back(Box::new(work));
        let is_ready = state.offer(party, &inner.bounds);
        // Who has been called already has something else to do.
        if is_ready && state.idle > state.called {
            state.called += 1;
        } else if is_ready && state.threads < inner.bounds.threads {
            let worker = Arc::clone(inner);
            let spawned = thread::Builder::new()
                .name(inner.name.into())
                .stack_size(inner.bounds.stack)
                .spawn(move || worker.work());
            match spawned {
                Ok(_) => state.threads += 1,
                // Those that are there will come to it.
                Err(_) if state.threads > 0 => {}
                Err(_) => {
                    state.withdraw(party);
                    return Err(Full);
                }
            }
        }
        drop(guard);
        inner.changed.notify_one();
        Ok(())
    }

    /// What waits is dropped; what is under way comes to its end.
    pub(crate) fn close(&self) {
        let mut state = self.inner.state();
        state.is_closed = true;
        let dropped: Vec<Party> = state.parties.drain().map(|(_, party)| party).collect();
        state.turns.clear();
        drop(state);
        self.inner.changed.notify_all();
        drop(dropped);
    }
}

impl Inner {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(self: Arc<Inner>) {
        let mut state = self.state();
        loop {
            if let Some((party, work)) = state.take(&self.bounds) {
                drop(state);
                // What panics costs itself, and neither a thread nor a share.
                drop(std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)));
                state = self.state();
                state.done(party, &self.bounds);
                continue;
            }
            if state.is_closed {
                break;
            }
            state.idle += 1;
            let waited = self.changed.wait_timeout(state, IDLE);
            let (guard, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            state = guard;
            state.idle -= 1;
            state.called = state.called.saturating_sub(1);
            if timeout.timed_out() && state.turns.is_empty() {
                break;
            }
        }
        state.threads -= 1;
    }
}

impl State {
    /// Whether more of this party's could be done now than before.
    fn offer(&mut self, number: u64, bounds: &Bounds) -> bool {
        let Some(party) = self.parties.get_mut(&number) else { return false };
        let is_ready = !party.waiting.is_empty() && has_turn(party.running, self.running, bounds);
        if is_ready && !party.is_in_turn {
            party.is_in_turn = true;
            self.turns.push_back(number);
        }
        is_ready
    }

    fn take(&mut self, bounds: &Bounds) -> Option<(u64, Work)> {
        loop {
            let number = self.turns.pop_front()?;
            let Some(party) = self.parties.get_mut(&number) else { continue };
            party.is_in_turn = false;
            if !has_turn(party.running, self.running, bounds) {
                // Others have taken what was free. It is offered again when something is done.
                continue;
            }
            let Some(work) = party.waiting.pop_front() else { continue };
            party.running += 1;
            self.running += 1;
            self.offer(number, bounds);
            return Some((number, work));
        }
    }

    fn done(&mut self, number: u64, bounds: &Bounds) {
        let was_free = has_free(self.running, bounds);
        self.running = self.running.saturating_sub(1);
        if let Some(party) = self.parties.get_mut(&number) {
            party.running = party.running.saturating_sub(1);
        }
        self.forget(number);
        if was_free {
            self.offer(number, bounds);
        } else {
            // Whoever waits for more than its first could have it now.
            let all: Vec<u64> = self.parties.keys().copied().collect();
            for number in all {
                self.offer(number, bounds);
            }
        }
    }

    /// A party that has nothing is none.
    fn forget(&mut self, number: u64) {
        let is_idle = |party: &Party| party.running == 0 && party.waiting.is_empty();
        if self.parties.get(&number).is_some_and(is_idle) {
            self.parties.remove(&number);
        }
    }

    /// Takes back what was submitted last.
    fn withdraw(&mut self, number: u64) {
        if let Some(party) = self.parties.get_mut(&number) {
            party.waiting.pop_back();
        }
        self.turns.retain(|turn| *turn != number);
        self.parties.remove(&number);
    }
}

impl fmt::Debug for Crew {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Crew").field("name", &self.inner.name).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{self, channel};

    use super::*;

    fn crew(threads: usize, share: usize, waiting: usize) -> Crew {
        Crew::new("test", Bounds { threads, kept: 0, share, waiting, stack: 128 * 1024 })
    }

    /// Work that waits until it is let go.
    fn held(crew: &Crew, party: u64, started: &mpsc::Sender<u64>) -> mpsc::Sender<()> {
        let (go, gate) = channel::<()>();
        let started = started.clone();
        crew.submit(party, move || {
            started.send(party).unwrap();
            gate.recv().ok();
        })
        .unwrap();
        go
    }

    #[test]
    fn one_party_has_its_share_and_others_pass_it() {
        let crew = crew(8, 2, 100);
        let (started, order) = channel();
        let gates: Vec<_> = (0..5).map(|_| held(&crew, 1, &started)).collect();
        assert_eq!([order.recv().unwrap(), order.recv().unwrap()], [1, 1]);
        let other = held(&crew, 2, &started);
        assert_eq!(order.recv().unwrap(), 2);
        assert!(order.try_recv().is_err());
        drop(gates);
        drop(other);
        let rest: Vec<u64> = (0..3).map(|_| order.recv().unwrap()).collect();
        assert_eq!(rest, [1, 1, 1]);
    }

    #[test]
    fn out_10_what_many_parties_keep_waiting_leaves_room_for_one_more() {
        let bounds = Bounds { threads: 8, kept: 4, share: 4, waiting: 100, stack: 128 * 1024 };
        let crew = Crew::new("test", bounds);
        let (started, order) = channel();
        // Two parties with more than all threads could do: one has its share, the other its first alone.
        let gates: Vec<_> = (0..6).map(|_| held(&crew, 1, &started)).collect();
        assert_eq!([(); 4].map(|()| order.recv().unwrap()), [1; 4]);
        let more: Vec<_> = (0..4).map(|_| held(&crew, 2, &started)).collect();
        assert_eq!(order.recv().unwrap(), 2);
        // There is a thread for each of three more.
        let others: Vec<_> = (3..6).map(|party| held(&crew, party, &started)).collect();
        let mut next: Vec<u64> = (0..3).map(|_| order.recv().unwrap()).collect();
        next.sort_unstable();
        assert_eq!(next, [3, 4, 5]);
        assert!(order.try_recv().is_err());
        // And in the end, everything is done.
        drop((gates, more, others));
        let mut rest: Vec<u64> = (0..5).map(|_| order.recv().unwrap()).collect();
        rest.sort_unstable();
        assert_eq!(rest, [1, 1, 2, 2, 2]);
    }

    #[test]
    fn no_more_than_a_maximum_waits_and_work_that_panics_costs_nothing_else() {
        let crew = crew(1, 1, 1);
        let (started, order) = channel();
        let gate = held(&crew, 1, &started);
        order.recv().unwrap();
        crew.submit(1, || panic!("as intended")).unwrap();
        assert_eq!(crew.submit(1, || ()), Err(Full));
        let (done, finished) = channel();
        crew.submit(2, move || done.send(()).unwrap()).unwrap();
        drop(gate);
        finished.recv().unwrap();
        crew.close();
        assert_eq!(crew.submit(1, || ()), Err(Full));
    }
}
