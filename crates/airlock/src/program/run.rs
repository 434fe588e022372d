//! A run, as far as it is known here: a number, a credential, and what is left of its budget.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use base64ct::{Base64, Encoding};
use subtle::ConstantTimeEq;
use tokio::sync::{Notify, Semaphore};

use super::share::{Round, Share};
use crate::head::Limits;
use crate::wire::{Budget, CREDENTIAL};

/// The user of every run.
const USER: &[u8] = b"run";
/// After so many wrong credentials nobody listens to a run any more.
const MOST_FAILURES: u32 = 16;

pub(crate) struct Run {
    pub(crate) number: u32,
    pub(crate) budget: Budget,
    pub(crate) share: Share,
    /// For each connection that there is.
    pub(crate) places: Arc<Semaphore>,
    credential: [u8; CREDENTIAL],
    requests: Cell<u64>,
    up: Cell<u64>,
    down: Cell<u64>,
    failures: Cell<u32>,
    closed: Cell<bool>,
    closing: Notify,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    Up,
    Down,
}

impl Run {
    pub(crate) fn new(
        number: u32,
        credential: [u8; CREDENTIAL],
        budget: Budget,
        round: Rc<Round>,
    ) -> Run {
        let places = usize::try_from(budget.connections).unwrap_or(usize::MAX);
        Run {
            number,
            budget,
            share: Share::new(round),
            places: Arc::new(Semaphore::new(places.min(Semaphore::MAX_PERMITS))),
            credential,
            requests: Cell::new(0),
            up: Cell::new(0),
            down: Cell::new(0),
            failures: Cell::new(0),
            closed: Cell::new(false),
            closing: Notify::new(),
        }
    }

    /// One more request, if there may be one.
    pub(crate) fn request(&self) -> bool {
        let number = self.requests.get().saturating_add(1);
        self.requests.set(number);
        number <= self.budget.requests
    }

    /// How many more bytes may go this way.
    pub(crate) fn left(&self, direction: Direction) -> u64 {
        match direction {
            Direction::Up => self.budget.up.saturating_sub(self.up.get()),
            Direction::Down => self.budget.down.saturating_sub(self.down.get()),
        }
    }

    pub(crate) fn spend(&self, direction: Direction, count: u64) {
        let spent = match direction {
            Direction::Up => &self.up,
            Direction::Down => &self.down,
        };
        spent.set(spent.get().saturating_add(count));
    }

    /// Whether a value of `Proxy-Authorization` is that of this run.
    pub(crate) fn admits_basic(&self, value: &[u8]) -> bool {
        let ours = Base64::encode_string(&[USER, b":", &self.credential].concat());
        let theirs = match value.split_first_chunk::<6>() {
            Some((scheme, token)) if scheme.eq_ignore_ascii_case(b"basic ") => token,
            _ => &[],
        };
        self.checked(theirs.ct_eq(ours.as_bytes()).into())
    }

    pub(crate) fn admits(&self, user: &[u8], password: &[u8]) -> bool {
        self.checked(user == USER && password.ct_eq(&self.credential).into())
    }

    fn checked(&self, good: bool) -> bool {
        if !good {
            self.failures.set(self.failures.get().saturating_add(1));
        }
        good && self.is_heard()
    }

    /// Whether it has not guessed too often.
    pub(crate) fn is_heard(&self) -> bool {
        self.failures.get() < MOST_FAILURES
    }

    pub(crate) fn limits(&self) -> Limits {
        Limits { bytes: self.budget.head as usize, fields: self.budget.fields as usize }
    }

    pub(crate) fn head_time(&self) -> Duration {
        Duration::from_millis(self.budget.head_time.into())
    }

    pub(crate) fn connect_time(&self) -> Duration {
        Duration::from_millis(self.budget.connect_time.into())
    }

    pub(crate) fn idle_time(&self) -> Duration {
        Duration::from_millis(self.budget.idle_time.into())
    }

    pub(crate) fn close(&self) {
        self.closed.set(true);
        self.closing.notify_waiters();
    }

    pub(crate) async fn closed(&self) {
        let closing = self.closing.notified();
        if !self.closed.get() {
            closing.await;
        }
    }
}
