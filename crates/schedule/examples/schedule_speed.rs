//! What a turn costs: nobody else there, beside a long queue, and handed from thread to thread.
//!
//! `cargo run --release -p hotcell-schedule --example schedule_speed`

use std::error::Error;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use hotcell_schedule::{Control, Limits, Priority, Scheduler, Unstoppable, Want};
use hotcell_types::{Bytes, CallId, Count, Name};

fn want(n: u64) -> Want {
    Want {
        id: CallId::from_bytes(u128::from(n).to_be_bytes()),
        tenant: Name::LOCAL,
        party: Name::LOCAL,
        priority: Priority::USUAL,
        template: Name::LOCAL,
        memory: Bytes::mib(1),
        expected: Duration::from_secs(30),
        after: Vec::new(),
        patience: Duration::from_secs(3600),
    }
}

fn scheduler(places: u32) -> Scheduler {
    let mut limits = Limits::of_machine(2, Bytes::mib(100_000));
    limits.global = Count::of(places);
    limits.share.waiting = limits.queue;
    limits.share.party = limits.queue;
    Scheduler::new(limits)
}

/// The median of some rounds, per turn.
fn report(
    what: &str,
    turns: u32,
    mut round: impl FnMut() -> Result<(), Box<dyn Error>>,
) -> Result<(), Box<dyn Error>> {
    let mut times = Vec::new();
    for _ in 0..11 {
        let begun = Instant::now();
        round()?;
        times.push(begun.elapsed() / turns);
    }
    times.sort_unstable();
    println!("{what:<40} {:>8} ns", times.get(5).map_or(0, Duration::as_nanos));
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let control: Arc<dyn Control> = Arc::new(Unstoppable);
    let mut ids = 0..;
    let mut next = move || want(ids.next().unwrap_or_default());

    let alone = scheduler(4);
    report("request, wait, finish, uncontended", 10_000, || {
        for _ in 0..10_000 {
            alone.request(next(), Arc::clone(&control))?.wait()?.finish(true)?;
        }
        Ok(())
    })?;

    let queued = scheduler(1);
    let mut turn = Some(queued.request(next(), Arc::clone(&control))?.wait()?);
    let mut line = std::collections::VecDeque::new();
    for _ in 0..1000 {
        line.push_back(queued.request(next(), Arc::clone(&control))?);
    }
    report("the same with 1000 waiting", 1000, || {
        for _ in 0..1000 {
            line.push_back(queued.request(next(), Arc::clone(&control))?);
            drop(turn.take());
            turn = Some(line.pop_front().ok_or("the line is empty")?.wait()?);
        }
        Ok(())
    })?;

    let handed = scheduler(1);
    report("handed between 8 threads, 1 place", 8000, || {
        thread::scope(|scope| {
            for thread in 0..8 {
                let (handed, control) = (&handed, &control);
                scope.spawn(move || {
                    for n in 0..1000 {
                        let waiting = handed.request(want(thread << 32 | n), Arc::clone(control));
                        if let Ok(Ok(turn)) = waiting.map(hotcell_schedule::Waiting::wait) {
                            turn.finish(true).ok();
                        }
                    }
                });
            }
        });
        Ok(())
    })
}
