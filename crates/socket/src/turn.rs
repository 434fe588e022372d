//! A lock that can be waited for with a limit, which those of the standard library cannot.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

#[derive(Debug, Default)]
pub(crate) struct Turn {
    state: Mutex<State>,
    given_back: Condvar,
}

#[derive(Debug, Default)]
struct State {
    is_taken: bool,
    waiting: usize,
}

/// Somebody's turn, until it is dropped.
#[derive(Debug)]
pub(crate) struct Taken<'a>(&'a Turn);

impl Turn {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn take(&self) -> Taken<'_> {
        let mut state = self.state();
        while state.is_taken {
            state.waiting += 1;
            state = self.given_back.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.waiting -= 1;
        }
        state.is_taken = true;
        Taken(self)
    }

    pub(crate) fn take_within(&self, most: Duration) -> Option<Taken<'_>> {
        let until = Instant::now() + most;
        let mut state = self.state();
        while state.is_taken {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            state.waiting += 1;
            state = match self.given_back.wait_timeout(state, left) {
                Ok((state, _)) => state,
                Err(poisoned) => poisoned.into_inner().0,
            };
            state.waiting -= 1;
        }
        state.is_taken = true;
        Some(Taken(self))
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.is_taken = false;
        let is_wanted = state.waiting > 0;
        drop(state);
        // One who gave up at this moment may be the one that is woken, so that all are.
        if is_wanted {
            self.0.given_back.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_at_a_time_has_its_turn_and_whoever_cannot_wait_gives_up() {
        let turn = Turn::default();
        let count = Mutex::new(0);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..1000 {
                        let _taken = turn.take();
                        *count.try_lock().unwrap() += 1;
                    }
                });
            }
        });
        assert_eq!(*count.lock().unwrap(), 8000);
        let taken = turn.take();
        assert!(turn.take_within(Duration::from_millis(1)).is_none());
        drop(taken);
        assert!(turn.take_within(Duration::ZERO).is_some());
    }
}
