//! What a process that makes one call can begin before it knows which.

use std::sync::{Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use hotcell_sandbox::{Refusal, Site};

/// Finds out what the host gives, and starts a launcher, while the process finds out what it is to do.
#[derive(Debug)]
pub struct Early(pub(crate) Soon<Result<Site, Refusal>>);

impl Early {
    pub fn begin() -> Early {
        Early(Soon::begin("site", Site::explore))
    }
}

/// Something that is being made on a thread of its own. Dropping it waits for that.
#[derive(Debug)]
pub(crate) struct Soon<T> {
    making: Mutex<Option<JoinHandle<T>>>,
}

impl<T: Send + 'static> Soon<T> {
    pub(crate) fn begin(name: &str, make: impl FnOnce() -> T + Send + 'static) -> Soon<T> {
        // Without a thread whoever needs it makes it.
        let thread = thread::Builder::new().name(name.to_owned()).spawn(make).ok();
        Soon { making: Mutex::new(thread) }
    }
}

impl<T> Soon<T> {
    /// Waits until it is there. `None` if somebody took it already, or if nothing came of it.
    pub(crate) fn take(&self) -> Option<T> {
        let making = self.making.lock().unwrap_or_else(PoisonError::into_inner).take();
        making.and_then(|making| making.join().ok())
    }
}

impl<T> Drop for Soon<T> {
    fn drop(&mut self) {
        self.take();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_made_soon_is_taken_once() {
        let soon = Soon::begin("seven", || 7);
        assert_eq!((soon.take(), soon.take()), (Some(7), None));
        assert_eq!(Soon::<u8>::begin("none", || panic!("as it is meant to")).take(), None);
    }
}
