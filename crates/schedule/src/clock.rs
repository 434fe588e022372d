//! Where time comes from. Moments are lengths of time since the clock's own start, and have nothing to do
//! with the time of day.

use std::fmt;
use std::time::{Duration, Instant};

/// A moment of a [`Clock`].
pub type Moment = Duration;

/// A clock that never goes back. One that does all the same is taken to stand still meanwhile. It is read
/// under the scheduler's lock, and must not call the scheduler.
pub trait Clock: fmt::Debug + Send + Sync {
    fn now(&self) -> Moment;
}

/// The machine's monotonic clock: no change of the time of day moves it.
#[derive(Debug)]
pub struct Monotonic {
    start: Instant,
}

impl Default for Monotonic {
    fn default() -> Monotonic {
        Monotonic { start: Instant::now() }
    }
}

impl Clock for Monotonic {
    fn now(&self) -> Moment {
        self.start.elapsed()
    }
}
