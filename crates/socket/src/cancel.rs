//! Whether a request is still wanted.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

type Then = Box<dyn FnOnce() + Send>;

/// Asked for by the client, by its hanging up, or by a server that stops. It is never taken back.
#[derive(Clone, Default)]
pub struct Cancel(Arc<Inner>);

#[derive(Default)]
struct Inner {
    is_asked: AtomicBool,
    then: Mutex<Vec<Then>>,
}

impl Cancel {
    pub fn is_asked(&self) -> bool {
        self.flag().load(Ordering::Acquire)
    }

    /// The same, for whoever looks at a flag.
    pub fn flag(&self) -> &AtomicBool {
        &self.0.is_asked
    }

    /// Does this when it is asked for, at once if it was. It must not wait: it runs on the thread that reads
    /// for the whole connection.
    pub fn then(&self, act: impl FnOnce() + Send + 'static) {
        let mut list = self.0.then.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.is_asked() {
            list.push(Box::new(act));
            return;
        }
        drop(list);
        act();
    }

    pub(crate) fn ask(&self) {
        let mut list = self.0.then.lock().unwrap_or_else(PoisonError::into_inner);
        self.0.is_asked.store(true, Ordering::Release);
        let acts = std::mem::take(&mut *list);
        drop(list);
        for act in acts {
            // What fails here is its own request's trouble; its end is told in any case.
            drop(catch_unwind(AssertUnwindSafe(act)));
        }
    }
}

impl fmt::Debug for Cancel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cancel").field("is_asked", &self.is_asked()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[test]
    fn each_act_happens_once_however_often_and_early_it_is_asked_for() {
        let count = Arc::new(AtomicUsize::new(0));
        let counting = || {
            let count = Arc::clone(&count);
            move || {
                count.fetch_add(1, Ordering::Relaxed);
            }
        };
        let cancel = Cancel::default();
        cancel.then(counting());
        cancel.then(|| panic!("on purpose"));
        cancel.then(counting());
        assert!(!cancel.is_asked() && count.load(Ordering::Relaxed) == 0);
        cancel.ask();
        cancel.ask();
        assert!(cancel.is_asked() && count.load(Ordering::Relaxed) == 2);
        cancel.then(counting());
        assert_eq!(count.load(Ordering::Relaxed), 3);
    }
}
