//! Who works when: one thread serves all runs, and none of them is to wait long for another.
//!
//! Work is counted, roughly in bytes. A run that has done its share waits for the next round, and a round is over
//! when everybody who could work has had a turn.

use std::cell::Cell;
use std::rc::Rc;

use tokio::sync::Notify;

/// What a run may do in one round: about a tenth of a millisecond of it.
const SHARE: u64 = 512 * 1024;
/// What a step costs besides its bytes, and what a request costs.
pub(crate) const STEP: u64 = 4 * 1024;
pub(crate) const REQUEST: u64 = 48 * 1024;

/// The round, for all runs.
#[derive(Default)]
pub(crate) struct Round {
    number: Cell<u64>,
    /// Somebody waits for the next one.
    wanted: Notify,
    begun: Notify,
}

/// What one run has done.
pub(crate) struct Share {
    round: Rc<Round>,
    number: Cell<u64>,
    done: Cell<u64>,
}

impl Round {
    /// Begins rounds as long as somebody waits for them.
    pub(crate) async fn turn(&self) {
        loop {
            self.wanted.notified().await;
            // Behind everybody who can work now, and after a look at what has come meanwhile.
            tokio::task::yield_now().await;
            self.number.set(self.number.get().wrapping_add(1));
            self.begun.notify_waiters();
        }
    }
}

impl Share {
    pub(crate) fn new(round: Rc<Round>) -> Share {
        Share { number: Cell::new(round.number.get()), done: Cell::new(0), round }
    }

    /// Counts what was done.
    pub(crate) fn worked(&self, cost: u64) {
        self.done.set(self.done.get().saturating_add(cost));
    }

    /// Waits until the run may work.
    pub(crate) async fn turn(&self) {
        loop {
            let begun = self.round.begun.notified();
            if self.number.get() != self.round.number.get() {
                self.number.set(self.round.number.get());
                self.done.set(0);
            }
            if self.done.get() < SHARE {
                return;
            }
            self.round.wanted.notify_one();
            begun.await;
        }
    }
}
