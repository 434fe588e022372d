//! Ctrl-C and its like. The first ends what runs and waits for its end, or hotcell itself if nothing runs
//! yet; the second ends hotcell at once, and the launcher ends what runs when it sees that nobody is there.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use signal_hook::iterator;

use crate::exit;

const CAUGHT: [i32; 3] = [SIGINT, SIGTERM, SIGHUP];

/// How long a run that is about to begin is waited for, so that it is cancelled in order, and how often to
/// look. Who waits longer waits for something else: for others who write to the record, for instance.
const ABOUT_TO_BEGIN: Duration = Duration::from_millis(200);
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Signals are caught; those that arrive are kept until somebody listens.
pub(crate) struct Signals {
    arriving: iterator::Signals,
}

/// The run ends with the first signal.
pub(crate) struct Cancelling {
    /// Zero until there is one.
    first: Arc<AtomicU8>,
}

impl Signals {
    pub(crate) fn catch() -> io::Result<Signals> {
        let arriving = iterator::Signals::new(CAUGHT)?;
        let once = Arc::new(AtomicBool::new(false));
        for signal in CAUGHT {
            // In this order: the first signal finds the flag unset and sets it.
            let status = i32::from(exit::SIGNAL) + signal;
            flag::register_conditional_shutdown(signal, status, Arc::clone(&once))?;
            flag::register(signal, Arc::clone(&once))?;
        }
        Ok(Signals { arriving })
    }

    /// With the first signal, calls `cancel` until it says that there was something to cancel. If there is
    /// nothing, `give_up` is called, and this process ends: nothing was begun, or what was is ended as if
    /// hotcell had been killed.
    pub(crate) fn listen(
        mut self,
        cancel: impl Fn() -> bool + Send + 'static,
        give_up: impl FnOnce() + Send + 'static,
    ) -> io::Result<Cancelling> {
        let first = Arc::new(AtomicU8::new(0));
        let seen = Arc::clone(&first);
        thread::Builder::new().name("signals".into()).spawn(move || {
            if let Some(signal) = self.arriving.forever().next() {
                seen.store(u8::try_from(signal).unwrap_or_default(), Ordering::SeqCst);
                let deadline = Instant::now() + ABOUT_TO_BEGIN;
                while !cancel() {
                    if Instant::now() >= deadline {
                        give_up();
                        signal_hook::low_level::exit(i32::from(exit::SIGNAL) + signal);
                    }
                    thread::sleep(LOOK_EVERY);
                }
            }
        })?;
        Ok(Cancelling { first })
    }
}

impl Cancelling {
    pub(crate) fn first(&self) -> Option<u8> {
        Some(self.first.load(Ordering::SeqCst)).filter(|&signal| signal != 0)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_first_signal_cancels_and_is_remembered() {
        let (cancelled, hears) = mpsc::channel();
        let signals = Signals::catch().unwrap();
        // Before there is a run: it must not be lost.
        signal_hook::low_level::raise(SIGHUP).unwrap();
        let cancel = move || cancelled.send(()).is_ok();
        let cancelling = signals.listen(cancel, || panic!("it was cancelled")).unwrap();
        hears.recv_timeout(Duration::from_secs(10)).unwrap();
        assert_eq!(cancelling.first(), Some(1));
    }
}
