//! So many calls of a tool in so much time, for each tenant.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Tenants and tools that are counted at one time. Who would be one more waits until one of them has nothing left
/// to count: forgetting another would give it more than its rate.
const MOST: usize = 10_000;

/// How often at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rate {
    pub(crate) count: u32,
    pub(crate) per: Duration,
}

/// When each next call may come, by tenant and tool: a leaky bucket told by one moment.
#[derive(Debug, Default)]
pub(crate) struct Rates {
    /// The moment at which the bucket would be empty.
    full_until: Mutex<HashMap<(String, String), Instant>>,
}

impl Rates {
    /// Takes one call, or tells how long to wait for it.
    pub(crate) fn take(
        &self,
        tenant: &str,
        tool: &str,
        rate: Rate,
        now: Instant,
    ) -> Result<(), Duration> {
        let each = rate.per / rate.count.max(1);
        let mut all = self.full_until.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (tenant.to_owned(), tool.to_owned());
        if all.len() >= MOST && !all.contains_key(&key) {
            all.retain(|_, until| *until > now);
            if all.len() >= MOST {
                let first = all.values().min().copied().unwrap_or(now);
                return Err(first.saturating_duration_since(now));
            }
        }
        let until = all.get(&key).copied().unwrap_or(now).max(now) + each;
        let over = until.saturating_duration_since(now).saturating_sub(rate.per);
        if !over.is_zero() {
            return Err(over);
        }
        all.insert(key, until);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_than_the_count_in_any_span() {
        let rates = Rates::default();
        let rate = Rate { count: 3, per: Duration::from_secs(3) };
        let start = Instant::now();
        for _ in 0..3 {
            assert_eq!(rates.take("a", "t", rate, start), Ok(()));
        }
        assert_eq!(rates.take("a", "t", rate, start), Err(Duration::from_secs(1)));
        assert_eq!(rates.take("b", "t", rate, start), Ok(()), "each tenant has its own");
        let later = start + Duration::from_secs(1);
        assert_eq!(rates.take("a", "t", rate, later), Ok(()));
        assert!(rates.take("a", "t", rate, later).is_err());
    }

    #[test]
    fn they_never_grow_beyond_their_bound_and_nobody_gets_more_for_it() {
        let rates = Rates::default();
        let rate = Rate { count: 1, per: Duration::from_secs(60) };
        let start = Instant::now();
        for tenant in 0..MOST {
            assert_eq!(rates.take(&tenant.to_string(), "t", rate, start), Ok(()));
        }
        for tenant in 0..100 {
            let wait = rates.take(&format!("more {tenant}"), "t", rate, start);
            assert_eq!(wait, Err(rate.per));
        }
        assert!(rates.take("0", "t", rate, start).is_err(), "who is counted is not forgotten");
        assert_eq!(rates.full_until.lock().unwrap().len(), MOST);
        let later = start + rate.per;
        assert_eq!(rates.take("more 0", "t", rate, later), Ok(()));
        assert_eq!(rates.full_until.lock().unwrap().len(), 1);
    }

    #[test]
    fn clk_05_a_clock_that_stands_still_gives_nothing_for_nothing() {
        let rates = Rates::default();
        let rate = Rate { count: 1, per: Duration::from_secs(60) };
        let now = Instant::now();
        assert!(rates.take("a", "t", rate, now).is_ok());
        for _ in 0..100 {
            assert!(rates.take("a", "t", rate, now).is_err());
        }
    }
}
