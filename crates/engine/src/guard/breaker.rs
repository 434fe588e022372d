//! A tool that keeps failing is left alone for a while, and then tried once.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Failures in a row after which a tool is left alone, and for how long.
const FAILURES: u32 = 5;
const REST: Duration = Duration::from_secs(30);

/// The breakers of all tools, by name and version.
#[derive(Debug, Default)]
pub(crate) struct Breakers {
    tools: Mutex<HashMap<String, Breaker>>,
}

#[derive(Debug, Default)]
struct Breaker {
    failures: u32,
    /// Since when it is left alone.
    since: Option<Instant>,
    /// Somebody tries whether it works again.
    is_tried: bool,
}

/// The tool is left alone for this much longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Open {
    pub(crate) retry_after: Duration,
}

/// The right to call a tool once; how it went is told with [`Breakers::tell`].
#[derive(Debug)]
#[must_use = "what became of it has to be told"]
pub(crate) struct Trial<'a> {
    breakers: &'a Breakers,
    tool: String,
    is_told: bool,
}

impl Breakers {
    pub(crate) fn pass(&self, tool: &str, now: Instant) -> Result<Trial<'_>, Open> {
        let mut tools = self.tools();
        let breaker = tools.entry(tool.to_owned()).or_default();
        if let Some(since) = breaker.since {
            let rested = now.saturating_duration_since(since);
            if rested < REST || breaker.is_tried {
                return Err(Open { retry_after: REST.saturating_sub(rested) });
            }
            breaker.is_tried = true;
        }
        Ok(Trial { breakers: self, tool: tool.to_owned(), is_told: false })
    }

    fn tools(&self) -> MutexGuard<'_, HashMap<String, Breaker>> {
        self.tools.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, tool: &str, went_well: bool, now: Instant) {
        let mut tools = self.tools();
        if went_well {
            tools.remove(tool);
            return;
        }
        let breaker = tools.entry(tool.to_owned()).or_default();
        breaker.failures = breaker.failures.saturating_add(1);
        breaker.is_tried = false;
        if breaker.failures >= FAILURES {
            breaker.since = Some(now);
        }
    }
}

impl Trial<'_> {
    pub(crate) fn tell(mut self, went_well: bool, now: Instant) {
        self.is_told = true;
        self.breakers.tell(&self.tool, went_well, now);
    }
}

impl Drop for Trial<'_> {
    /// Neither good nor bad: another may try.
    fn drop(&mut self) {
        if !self.is_told
            && let Some(breaker) = self.breakers.tools().get_mut(&self.tool)
        {
            breaker.is_tried = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_that_fails_is_left_alone_and_then_tried_once() {
        let breakers = Breakers::default();
        let start = Instant::now();
        for _ in 0..FAILURES {
            breakers.pass("t", start).unwrap().tell(false, start);
        }
        assert_eq!(breakers.pass("t", start).unwrap_err().retry_after, REST);
        assert!(breakers.pass("other", start).is_ok());
        let later = start + REST;
        let trial = breakers.pass("t", later).unwrap();
        assert!(breakers.pass("t", later).is_err(), "one at a time");
        trial.tell(false, later);
        assert!(breakers.pass("t", later + REST / 2).is_err());
        breakers.pass("t", later + REST).unwrap().tell(true, later + REST);
        assert!(breakers.pass("t", later + REST).is_ok());
    }

    #[test]
    fn a_trial_that_nobody_tells_of_is_none() {
        let breakers = Breakers::default();
        let start = Instant::now();
        for _ in 0..FAILURES {
            breakers.pass("t", start).unwrap().tell(false, start);
        }
        drop(breakers.pass("t", start + REST).unwrap());
        assert!(breakers.pass("t", start + REST).is_ok());
    }

    #[test]
    fn a_success_forgets_the_failures_before_it() {
        let breakers = Breakers::default();
        let now = Instant::now();
        for _ in 0..3 {
            for _ in 1..FAILURES {
                breakers.pass("t", now).unwrap().tell(false, now);
            }
            breakers.pass("t", now).unwrap().tell(true, now);
        }
        assert!(breakers.pass("t", now).is_ok());
    }
}
