//! Calls that nobody waits for any more: they end wherever they are, also while they wait for their turn.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use hotcell_engine::{Answer, Ask, Engine};
use hotcell_socket::Cancel;
use hotcell_types::{CallId, Caller};

/// How often a call is asked to end that cannot be found yet.
const AGAIN: Duration = Duration::from_millis(50);

/// Held while a call is answered: it ends as soon as it is unwanted.
pub(crate) struct Unwanted(Arc<Watch>);

struct Watch {
    /// Who keeps a word for the end of a call does not keep the engine.
    engine: Weak<Engine>,
    caller: Caller,
    call: CallId,
    is_over: AtomicBool,
    again: Mutex<Option<JoinHandle<()>>>,
}

impl Unwanted {
    pub(crate) fn ends(
        engine: &Arc<Engine>,
        caller: &Caller,
        call: CallId,
        cancel: &Cancel,
    ) -> Unwanted {
        let watch = Arc::new(Watch {
            engine: Arc::downgrade(engine),
            caller: caller.clone(),
            call,
            is_over: AtomicBool::new(false),
            again: Mutex::default(),
        });
        let told = Arc::clone(&watch);
        cancel.then(move || told.end());
        Unwanted(watch)
    }
}

impl Drop for Unwanted {
    fn drop(&mut self) {
        self.0.is_over.store(true, Ordering::SeqCst);
        // Who closes the engine finds nobody who still has it.
        let again = self.0.again().take();
        if let Some(again) = again {
            again.thread().unpark();
            again.join().ok();
        }
    }
}

impl Watch {
    /// Must not wait. One that cannot be found has not begun yet, or has ended: that is for a thread.
    fn end(self: Arc<Watch>) {
        let mut again = self.again();
        if self.is_over.load(Ordering::SeqCst) || self.is_ended() {
            return;
        }
        let watch = Arc::clone(&self);
        let ask_again = move || {
            while !watch.is_over.load(Ordering::SeqCst) && !watch.is_ended() {
                thread::park_timeout(AGAIN);
            }
        };
        *again = thread::Builder::new().name("unwanted".into()).spawn(ask_again).ok();
    }

    /// Whether it is there and was told to end, which it never forgets.
    fn is_ended(&self) -> bool {
        let Some(engine) = self.engine.upgrade() else { return true };
        matches!(engine.ask(&self.caller, Ask::Cancel(self.call)), Answer::Cancelled)
    }

    fn again(&self) -> MutexGuard<'_, Option<JoinHandle<()>>> {
        self.again.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
