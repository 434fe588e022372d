//! How many cells are worth waiting for jobs, of which kinds: as many as such jobs ran at one time lately, for
//! the few kinds that were asked for last. What nobody asks for any more is not kept.

use std::time::{Duration, Instant};

use crate::cell::Kind;
use crate::pressure::Pressure;
use crate::warm::Seed;

/// Most kinds of jobs of one base that cells wait for. Who asks for more of them is not waited for, and
/// takes nothing from the others but the oldest of these.
const MOST_KINDS: usize = 4;
/// How long it takes for half of a peak to be forgotten.
const HALVED_AFTER: Duration = Duration::from_secs(10);

/// Jobs that the same cells are good for.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Like {
    pub(crate) kind: Kind,
    pub(crate) seed: Option<Seed>,
}

/// The last used last.
#[derive(Debug, Default)]
pub(crate) struct Demand {
    wants: Vec<Want>,
}

#[derive(Debug)]
struct Want {
    like: Like,
    /// What is made for them: cells of a zygote, once there is one.
    cells: Kind,
    running: usize,
    /// The most that ran at one time, when that was last looked at.
    peak: usize,
    peaked: Instant,
    used: Instant,
}

impl Want {
    /// Halved again and again, but never below the one that the next job takes.
    fn enough(&self, now: Instant) -> usize {
        let halvings =
            now.saturating_duration_since(self.peaked).as_secs() / HALVED_AFTER.as_secs();
        let left = u32::try_from(halvings).ok().and_then(|n| self.peak.checked_shr(n));
        left.unwrap_or(0).max(self.running).max(1)
    }
}

impl Demand {
    /// Such a job was let go.
    pub(crate) fn begin(&mut self, like: &Like, now: Instant) {
        let found = self.wants.iter().position(|want| want.like == *like);
        let mut want = match found {
            Some(place) => self.wants.remove(place),
            None => {
                let (like, cells) = (like.clone(), like.kind);
                Want { like, cells, running: 0, peak: 0, peaked: now, used: now }
            }
        };
        want.running += 1;
        want.used = now;
        let enough = want.enough(now);
        (want.peak, want.peaked) = (enough, now);
        self.wants.push(want);
        let surplus = self.wants.len().saturating_sub(MOST_KINDS);
        let mut forgotten = 0;
        self.wants.retain(|want| {
            let goes = forgotten < surplus && want.running == 0;
            forgotten += usize::from(goes);
            !goes
        });
    }

    /// It has ended.
    pub(crate) fn end(&mut self, like: &Like, now: Instant) {
        if let Some(want) = self.wants.iter_mut().find(|want| want.like == *like) {
            want.running = want.running.saturating_sub(1);
            want.used = now;
        }
    }

    /// What is made for such jobs from now on.
    pub(crate) fn make(&mut self, like: &Like, cells: Kind) {
        if let Some(want) = self.wants.iter_mut().find(|want| want.like == *like) {
            want.cells = cells;
        }
    }

    /// Whether nothing runs.
    pub(crate) fn is_idle(&self) -> bool {
        self.wants.iter().all(|want| want.running == 0)
    }

    /// Forgets what nobody has asked for in so long.
    pub(crate) fn forget(&mut self, now: Instant, most: Duration) {
        let is_late = |want: &Want| now.saturating_duration_since(want.used) > most;
        self.wants.retain(|want| want.running > 0 || !is_late(want));
    }

    /// How many of which cells are to wait: one of each kind first, and then more of the last ones.
    pub(crate) fn targets(
        &self,
        now: Instant,
        pressure: Pressure,
        each: usize,
        all: usize,
    ) -> Vec<(Kind, usize)> {
        let kinds = match pressure {
            Pressure::None => MOST_KINDS,
            Pressure::Tight => 1,
            Pressure::Short => 0,
        };
        let last = || self.wants.iter().rev().take(kinds.min(all));
        let each = if pressure == Pressure::None { each } else { 1 };
        let mut room = all.saturating_sub(last().count());
        let enough = |want: &Want| {
            let more = want.enough(now).min(each).saturating_sub(1).min(room);
            room -= more;
            (want.cells, 1 + more)
        };
        last().map(enough).collect()
    }
}

#[cfg(test)]
mod tests {
    use hotcell_types::{Count, Limits, Template};

    use super::*;

    fn like(files: u32) -> Like {
        let limits = Limits { files: Count::of(files), ..Template::DEFAULT.limits };
        Like { kind: Kind::of_limits(limits), seed: None }
    }

    fn counts(demand: &Demand, now: Instant, pressure: Pressure) -> Vec<(u64, usize)> {
        let targets = demand.targets(now, pressure, 4, 8);
        targets.into_iter().map(|(kind, count)| (kind.limits.files.get(), count)).collect()
    }

    #[test]
    fn demand_rises_at_once_and_is_forgotten_by_and_by() {
        let (mut demand, begun) = (Demand::default(), Instant::now());
        (0..3).for_each(|_| demand.begin(&like(1), begun));
        (0..3).for_each(|_| demand.end(&like(1), begun));
        let after = |seconds| begun + Duration::from_secs(seconds);
        let enough = |demand: &Demand, at| counts(demand, after(at), Pressure::None);
        assert_eq!(enough(&demand, 0), [(1, 3)]);
        assert_eq!(enough(&demand, 11), [(1, 1)]);
        assert_eq!(enough(&demand, 100_000), [(1, 1)]);
        demand.forget(after(300), Duration::from_secs(301));
        assert_eq!(enough(&demand, 300), [(1, 1)]);
        demand.forget(after(302), Duration::from_secs(301));
        assert_eq!(enough(&demand, 302), []);
    }

    #[test]
    fn what_runs_is_not_forgotten() {
        let (mut demand, begun) = (Demand::default(), Instant::now());
        demand.begin(&like(1), begun);
        let late = begun + Duration::from_secs(1000);
        demand.forget(late, Duration::from_secs(1));
        assert!(!demand.is_idle());
        demand.end(&like(1), late);
        demand.forget(late, Duration::from_secs(1));
        assert_eq!(counts(&demand, late, Pressure::None), [(1, 1)]);
        assert!(demand.is_idle());
    }

    #[test]
    fn who_alternates_limits_has_a_cell_of_each_and_nobody_has_them_without_bound() {
        let (mut demand, now) = (Demand::default(), Instant::now());
        for round in 0..100 {
            demand.begin(&like(1 + round % 2), now);
            demand.end(&like(1 + round % 2), now);
        }
        assert_eq!(counts(&demand, now, Pressure::None), [(2, 1), (1, 1)]);
        for kind in 3..1000 {
            demand.begin(&like(kind), now);
            demand.end(&like(kind), now);
        }
        assert_eq!(counts(&demand, now, Pressure::None), [(999, 1), (998, 1), (997, 1), (996, 1)]);
        assert_eq!(demand.wants.len(), MOST_KINDS);
    }

    #[test]
    fn there_is_one_of_each_before_there_are_two_of_any() {
        let (mut demand, now) = (Demand::default(), Instant::now());
        for kind in 1..=3 {
            (0..9).for_each(|_| demand.begin(&like(kind), now));
        }
        assert_eq!(counts(&demand, now, Pressure::None), [(3, 4), (2, 3), (1, 1)]);
    }

    #[test]
    fn short_of_memory_one_waits_and_then_none() {
        let (mut demand, now) = (Demand::default(), Instant::now());
        for kind in 1..=2 {
            (0..3).for_each(|_| demand.begin(&like(kind), now));
        }
        assert_eq!(counts(&demand, now, Pressure::Tight), [(2, 1)]);
        assert_eq!(counts(&demand, now, Pressure::Short), []);
    }
}
