//! How fast places become free, for those who are sent away and ask when to come again.

use std::collections::VecDeque;
use std::time::Duration;

use crate::clock::Moment;

/// How many ends count as recent.
const RECENT: usize = 32;
/// What anybody is told at least and at most. Asking again costs little, so that a wrong guess should be
/// no long one.
const LEAST: Duration = Duration::from_millis(1);
const MOST: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// Since when the ends are counted: the beginning of work, or the last end that is no longer recent.
    since: Moment,
    ends: VecDeque<Moment>,
    /// Who were sent away, and for whom no place has become free since.
    sent_away: u32,
}

impl Pace {
    /// Work begins. What was before says nothing about how fast it will go.
    pub(crate) fn begin(&mut self, now: Moment) {
        *self = Pace { since: now, ..Pace::default() };
    }

    pub(crate) fn ended(&mut self, now: Moment) {
        self.ends.push_back(now);
        if self.ends.len() > RECENT {
            self.since = self.ends.pop_front().unwrap_or(now);
        }
        self.sent_away = self.sent_away.saturating_sub(1);
    }

    /// When to come again: each who is sent away is told one mean time between two ends more than the one
    /// before. Until something has ended, `first_end` is when that has to happen. `turns` is how many
    /// places become free for each that such a caller can have.
    pub(crate) fn send_away(&mut self, now: Moment, first_end: Duration, turns: u32) -> Duration {
        let between = match u32::try_from(self.ends.len()) {
            Ok(count @ 1..) => now.saturating_sub(self.since) / count,
            _ => first_end,
        };
        self.sent_away = self.sent_away.saturating_add(1);
        between.saturating_mul(self.sent_away).saturating_mul(turns).clamp(LEAST, MOST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn millis(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    #[test]
    fn who_is_sent_away_is_told_the_recent_time_between_two_ends() {
        let mut pace = Pace::default();
        pace.begin(millis(1_000_000));
        assert_eq!(pace.send_away(millis(1_000_000), millis(300), 1), millis(300));
        pace.begin(millis(1_000_000));
        // A slow beginning is forgotten.
        let mut now = millis(1_500_000);
        for _ in 0..=RECENT {
            pace.ended(now);
            now += millis(50);
        }
        now -= millis(50);
        assert_eq!([(); 3].map(|()| pace.send_away(now, MOST, 1)), [50, 100, 150].map(millis));
        pace.ended(now);
        assert!(pace.send_away(now, MOST, 1) < millis(150));
        assert!(pace.send_away(now, MOST, 4) > millis(500));
    }

    #[test]
    fn no_clock_makes_it_wait_for_ever_or_not_at_all() {
        let mut pace = Pace::default();
        pace.begin(Duration::MAX);
        pace.ended(Duration::ZERO);
        assert_eq!(pace.send_away(Duration::ZERO, Duration::MAX, u32::MAX), LEAST);
        assert_eq!(pace.send_away(Duration::MAX, Duration::MAX, u32::MAX), LEAST);
        pace.begin(Duration::ZERO);
        pace.ended(Duration::MAX);
        assert_eq!(pace.send_away(Duration::MAX, Duration::MAX, u32::MAX), MOST);
    }
}
