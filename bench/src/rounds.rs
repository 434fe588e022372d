//! Takes turns: whatever disturbs the machine disturbs everybody alike.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::peers::Failure;
use crate::stats::{Samples, percentile};

/// Rounds that do not count: they load files into memory, start the launcher, make the spare cell.
const WARM_UP: usize = 4;

/// Between two runs, so that what one leaves to be done in the background (a namespace that the kernel
/// takes apart, a cell that hotcell makes ahead) is not paid by the next. Rates have no such pause.
pub(crate) const SETTLE: Duration = Duration::from_millis(3);

/// One batch of runs without a pause.
const BATCH: Duration = Duration::from_millis(250);

/// Somebody who can run the program once, from nothing to nothing.
pub(crate) struct Contestant<'a> {
    pub(crate) name: &'static str,
    pub(crate) run: Box<dyn Fn() -> Result<Option<[u64; 5]>, Failure> + Sync + 'a>,
}

/// Everybody once per round, beginning with another one each round, `at_once` copies of the same
/// contestant together.
pub(crate) fn interleave(
    contestants: &[Contestant<'_>],
    rounds: usize,
    at_once: usize,
) -> Result<Vec<Samples>, Failure> {
    let barrier = Barrier::new(at_once);
    let lanes: Vec<_> = thread::scope(|scope| {
        let lanes: Vec<_> =
            (0..at_once).map(|_| scope.spawn(|| lane(contestants, rounds, &barrier))).collect();
        lanes
            .into_iter()
            .map(|lane| lane.join().unwrap_or_else(|_| Err("a lane died".into())))
            .collect()
    });
    let mut all: Vec<Samples> =
        contestants.iter().map(|c| Samples { name: c.name, ..Samples::default() }).collect();
    for lane in lanes {
        for (sum, part) in all.iter_mut().zip(lane?) {
            sum.micros.extend(part.micros);
            sum.stages.extend(part.stages);
        }
    }
    Ok(all)
}

/// One of the lanes. It goes on after a failure, because the others wait for it at the barrier.
fn lane(
    contestants: &[Contestant<'_>],
    rounds: usize,
    barrier: &Barrier,
) -> Result<Vec<Samples>, Failure> {
    let mut all: Vec<Samples> = vec![Samples::default(); contestants.len()];
    let mut failure = None;
    for round in 0..WARM_UP + rounds {
        for turn in 0..contestants.len() {
            let place = (round + turn) % contestants.len();
            let (Some(contestant), Some(samples)) = (contestants.get(place), all.get_mut(place))
            else {
                continue;
            };
            barrier.wait();
            let begun = Instant::now();
            let run = (contestant.run)();
            let micros = begun.elapsed().as_secs_f64() * 1e6;
            match run {
                Ok(stages) if round >= WARM_UP => {
                    samples.micros.push(micros);
                    samples.stages.extend(stages);
                }
                Ok(_) => {}
                Err(error) => {
                    failure.get_or_insert_with(|| format!("{}: {error}", contestant.name));
                }
            }
            barrier.wait();
            thread::sleep(SETTLE);
        }
    }
    failure.map_or(Ok(all), |failure| Err(failure.into()))
}

/// Runs per second with so many workers and no pause: the median of batches that take turns.
pub(crate) fn rates(
    contestants: &[Contestant<'_>],
    batches: usize,
    workers: usize,
) -> Result<Vec<(&'static str, f64)>, Failure> {
    let mut all: Vec<(&'static str, Vec<f64>)> =
        contestants.iter().map(|c| (c.name, Vec::new())).collect();
    for number in 0..=batches {
        for (contestant, (_, rates)) in contestants.iter().zip(&mut all) {
            let rate = batch(contestant, workers)?;
            if number > 0 {
                rates.push(rate);
            }
            thread::sleep(SETTLE);
        }
    }
    Ok(all.into_iter().map(|(name, rates)| (name, percentile(&rates, 50.0))).collect())
}

/// Runs per second in one batch.
pub(crate) fn batch(contestant: &Contestant<'_>, workers: usize) -> Result<f64, Failure> {
    let (done, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    let begun = Instant::now();
    let worker = || -> Result<(), Failure> {
        while !is_over.load(Ordering::Relaxed) {
            (contestant.run)()?;
            done.fetch_add(1, Ordering::Relaxed);
            if begun.elapsed() >= BATCH {
                is_over.store(true, Ordering::Relaxed);
            }
        }
        Ok(())
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..workers).map(|_| scope.spawn(worker)).collect();
        workers
            .into_iter()
            .try_for_each(|worker| worker.join().unwrap_or_else(|_| Err("a worker died".into())))
    })?;
    Ok(done.load(Ordering::Relaxed) as f64 / begun.elapsed().as_secs_f64())
}
