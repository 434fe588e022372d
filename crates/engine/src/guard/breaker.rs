//! A tool that keeps failing is left alone for a while, and then tried once.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hotcell_types::{Count, Span};

/// When a tool is left alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// After so many failures in a row,
    pub failures: Count,
    /// for so long.
    pub rest: Span,
}

impl Default for Patience {
    fn default() -> Patience {
        Patience { failures: Count::of(5), rest: Span::seconds(30) }
    }
}

/// Tools that are counted at one time, of all tenants. Beyond that those that have rested are forgotten, and
/// then no more are counted.
const MOST: usize = 10_000;

/// The breakers of all tools that failed, each tenant's apart: what one does closes nothing for others.
#[derive(Debug, Default)]
pub(crate) struct Breakers {
    patience: Patience,
    tools: Mutex<HashMap<(String, String), Breaker>>,
}

/// A tenant, and a tool by name and version.
type Which<'a> = (&'a str, &'a str);

#[derive(Debug, Default)]
struct Breaker {
    failures: u64,
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

/// What a call says about its tool, whatever it was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Showed {
    /// It works, also if what it was asked came to no good end.
    Working,
    Failing,
    /// Nothing: the caller's arguments, others, the host or hotcell itself were the reason.
    Nothing,
}

/// The right to call a tool once; how it went is told with [`Trial::tell`].
#[derive(Debug)]
#[must_use = "what became of it has to be told"]
pub(crate) struct Trial<'a> {
    breakers: &'a Breakers,
    which: Which<'a>,
    /// The one after a rest.
    is_probe: bool,
}

impl Breakers {
    pub(crate) fn new(patience: Patience) -> Breakers {
        Breakers { patience, tools: Mutex::default() }
    }

    fn rest(&self) -> Duration {
        self.patience.rest.duration()
    }

    pub(crate) fn pass<'a>(
        &'a self,
        tenant: &'a str,
        tool: &'a str,
        now: Instant,
    ) -> Result<Trial<'a>, Open> {
        let (which, mut is_probe) = ((tenant, tool), false);
        if let Some(breaker) = found(&mut self.tools(), which)
            && let Some(since) = breaker.since
        {
            let rested = now.saturating_duration_since(since);
            if rested < self.rest() || breaker.is_tried {
                return Err(Open { retry_after: self.rest().saturating_sub(rested) });
            }
            breaker.is_tried = true;
            is_probe = true;
        }
        Ok(Trial { breakers: self, which, is_probe })
    }

    fn tools(&self) -> MutexGuard<'_, HashMap<(String, String), Breaker>> {
        self.tools.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, which: Which<'_>, is_probe: bool, works: bool, now: Instant) {
        let mut tools = self.tools();
        // What began before it was left alone says nothing about now.
        let is_late = found(&mut tools, which).is_some_and(|breaker| breaker.since.is_some());
        if is_late && !is_probe {
            return;
        }
        if works {
            if !tools.is_empty() {
                tools.remove(&owned(which));
            }
            return;
        }
        let which = owned(which);
        if tools.len() >= MOST && !tools.contains_key(&which) {
            let rests = |since: Instant| now.saturating_duration_since(since) < self.rest();
            tools.retain(|_, breaker| breaker.since.is_some_and(rests));
            if tools.len() >= MOST {
                return;
            }
        }
        let breaker = tools.entry(which).or_default();
        breaker.failures = breaker.failures.saturating_add(1);
        breaker.is_tried = false;
        if breaker.failures >= self.patience.failures.get() {
            breaker.since = Some(now);
        }
    }
}

/// Mostly nothing has failed, and there is nothing to look for.
fn found<'a>(
    tools: &'a mut HashMap<(String, String), Breaker>,
    which: Which<'_>,
) -> Option<&'a mut Breaker> {
    if tools.is_empty() { None } else { tools.get_mut(&owned(which)) }
}

fn owned((tenant, tool): Which<'_>) -> (String, String) {
    (tenant.to_owned(), tool.to_owned())
}

impl Trial<'_> {
    pub(crate) fn tell(mut self, showed: Showed, now: Instant) {
        if showed != Showed::Nothing {
            self.breakers.tell(self.which, self.is_probe, showed == Showed::Working, now);
            self.is_probe = false;
        }
    }
}

impl Drop for Trial<'_> {
    /// Neither good nor bad: another may try.
    fn drop(&mut self) {
        if self.is_probe
            && let Some(breaker) = found(&mut self.breakers.tools(), self.which)
        {
            breaker.is_tried = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAILURES: u32 = 5;
    const REST: Duration = Duration::from_secs(30);

    #[test]
    fn how_patient_it_is_can_be_said() {
        let patience = Patience { failures: Count::of(2), rest: Span::seconds(1) };
        let breakers = Breakers::new(patience);
        let start = Instant::now();
        breakers.pass("a", "t", start).unwrap().tell(Showed::Failing, start);
        breakers.pass("a", "t", start).unwrap().tell(Showed::Failing, start);
        let rest = Duration::from_secs(1);
        assert_eq!(breakers.pass("a", "t", start).unwrap_err().retry_after, rest);
        assert!(breakers.pass("a", "t", start + rest).is_ok());
    }

    #[test]
    fn a_tool_that_fails_is_left_alone_and_then_tried_once() {
        let breakers = Breakers::default();
        let start = Instant::now();
        for _ in 0..FAILURES {
            breakers.pass("a", "t", start).unwrap().tell(Showed::Failing, start);
        }
        assert_eq!(breakers.pass("a", "t", start).unwrap_err().retry_after, REST);
        assert!(breakers.pass("a", "other", start).is_ok());
        assert!(breakers.pass("b", "t", start).is_ok(), "each tenant has its own");
        let later = start + REST;
        let trial = breakers.pass("a", "t", later).unwrap();
        assert!(breakers.pass("a", "t", later).is_err(), "one at a time");
        trial.tell(Showed::Failing, later);
        assert!(breakers.pass("a", "t", later + REST / 2).is_err());
        breakers.pass("a", "t", later + REST).unwrap().tell(Showed::Working, later + REST);
        assert!(breakers.pass("a", "t", later + REST).is_ok());
    }

    #[test]
    fn a_trial_that_nobody_tells_of_is_none() {
        let breakers = Breakers::default();
        let start = Instant::now();
        for _ in 0..FAILURES {
            breakers.pass("a", "t", start).unwrap().tell(Showed::Failing, start);
        }
        drop(breakers.pass("a", "t", start + REST).unwrap());
        assert!(breakers.pass("a", "t", start + REST).is_ok());
    }

    #[test]
    fn what_says_nothing_is_no_trial_and_no_failure() {
        let breakers = Breakers::default();
        let start = Instant::now();
        for _ in 0..2 * FAILURES {
            breakers.pass("a", "t", start).unwrap().tell(Showed::Nothing, start);
        }
        for _ in 0..FAILURES {
            breakers.pass("a", "t", start).unwrap().tell(Showed::Failing, start);
        }
        breakers.pass("a", "t", start + REST).unwrap().tell(Showed::Nothing, start + REST);
        breakers.pass("a", "t", start + REST).unwrap().tell(Showed::Failing, start + REST);
        assert!(breakers.pass("a", "t", start + REST).is_err());
    }

    #[test]
    fn what_began_before_it_was_left_alone_neither_ends_nor_prolongs_that() {
        let breakers = Breakers::default();
        let start = Instant::now();
        let [good, bad] = [(); 2].map(|()| breakers.pass("a", "t", start).unwrap());
        for _ in 0..FAILURES {
            breakers.pass("a", "t", start).unwrap().tell(Showed::Failing, start);
        }
        good.tell(Showed::Working, start);
        assert!(breakers.pass("a", "t", start).is_err());
        let probe = breakers.pass("a", "t", start + REST).unwrap();
        bad.tell(Showed::Failing, start + REST);
        assert!(breakers.pass("a", "t", start + REST).is_err(), "one at a time");
        probe.tell(Showed::Working, start + REST);
        assert!(breakers.pass("a", "t", start + REST).is_ok());
    }

    #[test]
    fn a_success_forgets_the_failures_before_it() {
        let breakers = Breakers::default();
        let now = Instant::now();
        for _ in 0..3 {
            for _ in 1..FAILURES {
                breakers.pass("a", "t", now).unwrap().tell(Showed::Failing, now);
            }
            breakers.pass("a", "t", now).unwrap().tell(Showed::Working, now);
        }
        assert!(breakers.pass("a", "t", now).is_ok());
    }

    #[test]
    fn they_never_grow_beyond_their_bound() {
        let (breakers, now) = (Breakers::default(), Instant::now());
        let fail = |tenant: usize, now: Instant| {
            breakers.pass(&tenant.to_string(), "t", now).unwrap().tell(Showed::Failing, now);
        };
        (0..MOST + 10).for_each(|tenant| fail(tenant, now));
        assert!(breakers.tools().len() <= MOST);
    }
}
