//! Threads that read connections and answer requests. Whoever reads a request answers it, and gives the
//! reading to somebody else: the answer waits for no thread to wake.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use crate::bounds::{ACCEPT_REST, LINGER};
use crate::connection::Reading;
use crate::hub::Hub;
use crate::listen::Listener;

pub(crate) enum Job {
    Accept(Arc<Hub>, Arc<Listener>),
    Read(Box<Reading>),
}

impl Job {
    fn run(self) {
        match self {
            Job::Accept(hub, listener) => accept(&hub, &listener),
            Job::Read(reading) => read(reading),
        }
    }
}

/// Whatever goes wrong with one connection, the next one is accepted.
fn accept(hub: &Arc<Hub>, listener: &Arc<Listener>) {
    loop {
        match catch_unwind(AssertUnwindSafe(|| hub.accept(listener))) {
            Ok(Some(reading)) => return read(reading),
            Ok(None) => return,
            // What fails every time does not take a processor.
            Err(_) => thread::sleep(ACCEPT_REST),
        }
    }
}

/// What goes wrong with a connection ends that one.
fn read(reading: Box<Reading>) {
    let connection = reading.connection();
    if catch_unwind(AssertUnwindSafe(|| reading.run())).is_err() {
        connection.fail();
    }
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    idle: usize,
    all: usize,
    is_over: bool,
}

pub(crate) struct Crew {
    state: Mutex<State>,
    given: Condvar,
    /// A thread has ended.
    ended: Condvar,
    most: usize,
}

impl Crew {
    pub(crate) fn new(most: usize) -> Arc<Crew> {
        let (given, ended) = (Condvar::new(), Condvar::new());
        Arc::new(Crew { state: Mutex::default(), given, ended, most })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has a thread do this. It comes back if there is none to be had.
    pub(crate) fn give(self: &Arc<Crew>, job: Job) -> Result<(), Job> {
        let mut state = self.state();
        if state.idle > state.jobs.len() {
            state.jobs.push_back(job);
            drop(state);
            self.given.notify_one();
            return Ok(());
        }
        if state.all >= self.most {
            return Err(job);
        }
        // It is in the list before there is a thread for it, so that no other takes its place.
        state.all += 1;
        state.jobs.push_back(job);
        let crew = Arc::clone(self);
        let spawned = thread::Builder::new().name("socket".into()).spawn(move || crew.work());
        match spawned {
            Ok(_) => Ok(()),
            Err(_) => {
                state.all -= 1;
                state.jobs.pop_back().map_or(Ok(()), Err)
            }
        }
    }

    fn work(&self) {
        while let Some(job) = self.next() {
            job.run();
        }
    }

    /// The next job, or none for a while.
    fn next(&self) -> Option<Job> {
        let mut state = self.state();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                return Some(job);
            }
            if state.is_over {
                break;
            }
            state.idle += 1;
            let (back, waited) =
                self.given.wait_timeout(state, LINGER).unwrap_or_else(PoisonError::into_inner);
            state = back;
            state.idle -= 1;
            if waited.timed_out() && state.jobs.is_empty() {
                break;
            }
        }
        state.all -= 1;
        self.ended.notify_all();
        None
    }

    /// Threads without work end.
    pub(crate) fn dismiss(&self) {
        self.state().is_over = true;
        self.given.notify_all();
    }

    /// Waits until they have, and with them what they had of the server: who goes on is not waited for
    /// longer than that.
    pub(crate) fn wait_gone(&self, most: Duration) {
        let are_there = |state: &mut State| state.all > 0;
        drop(self.ended.wait_timeout_while(self.state(), most, are_there));
    }
}
