//! Ctrl-C and its like. The first ends the run and waits for its end; the second ends hotcell at
//! once, and the launcher ends the run when it sees that nobody is there.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::thread;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use signal_hook::iterator;

use crate::exit;

const CAUGHT: [i32; 3] = [SIGINT, SIGTERM, SIGHUP];

/// Signals are caught; those that arrive are kept until there is a run to cancel.
pub(super) struct Signals {
    arriving: iterator::Signals,
}

/// The run ends with the first signal.
pub(super) struct Cancelling {
    /// Zero until there is one.
    first: Arc<AtomicU8>,
}

impl Signals {
    pub(super) fn catch() -> io::Result<Signals> {
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

    /// Calls `cancel` with the first signal.
    pub(super) fn cancel(
        mut self,
        cancel: impl FnOnce() + Send + 'static,
    ) -> io::Result<Cancelling> {
        let first = Arc::new(AtomicU8::new(0));
        let seen = Arc::clone(&first);
        thread::Builder::new().name("signals".into()).spawn(move || {
            if let Some(signal) = self.arriving.forever().next() {
                seen.store(u8::try_from(signal).unwrap_or_default(), Ordering::SeqCst);
                cancel();
            }
        })?;
        Ok(Cancelling { first })
    }
}

impl Cancelling {
    pub(super) fn first(&self) -> Option<u8> {
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
        let cancelling = signals.cancel(move || cancelled.send(()).unwrap()).unwrap();
        hears.recv_timeout(Duration::from_secs(10)).unwrap();
        assert_eq!(cancelling.first(), Some(1));
    }
}
