//! Whoever starts the process that parses what runs send.

use std::fmt;
use std::os::fd::OwnedFd;

/// Starts the airlock: `line` becomes its standard input.
pub trait Start: Send + Sync {
    fn start(&self, line: OwnedFd) -> Result<Started, String>;
}

/// A process that was started.
pub struct Started {
    /// Ends it, however it is. May be called more than once, and when it has ended.
    pub end: Box<dyn Fn() + Send + Sync>,
    /// Waits until it has ended, and says how.
    pub wait: Box<dyn FnOnce() -> String + Send>,
}

impl fmt::Debug for Started {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Started").finish_non_exhaustive()
    }
}
