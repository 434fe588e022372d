//! Real threads and the real clock: no wake-up is lost, and nothing is held by a thread that is gone.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use hotcell_types::{Bytes, Count};

use super::world::{Spy, Temper, id, limits, name, want};
use crate::state::State;
use crate::{Control, Failed, Limits, Scheduler, Want, Why};

/// Far more than any of this takes: only a lost wake-up is longer.
const BOUND: Duration = Duration::from_secs(120);

/// Does the work in another thread and fails if it does not come to its end.
fn within_bound<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, heard) = channel();
    thread::spawn(move || done.send(work()));
    heard.recv_timeout(BOUND).expect("it did not come to its end")
}

fn spy() -> Arc<Spy> {
    Spy::new(Temper::default())
}

#[test]
fn sixty_four_threads_take_a_thousand_turns_each() {
    const THREADS: usize = 64;
    const TURNS: usize = 1000;
    let per_template = [(name("t1"), Count::of(2))].into();
    let scheduler = Scheduler::new(Limits { per_template, memory: Bytes::mib(8), ..limits(4) });
    let running = Arc::new(AtomicI64::new(0));
    let threads: Vec<_> = (0..THREADS)
        .map(|thread| {
            let (scheduler, running) = (scheduler.clone(), Arc::clone(&running));
            thread::spawn(move || {
                for turn in 0..TURNS {
                    let n = thread * TURNS + turn;
                    let want = Want {
                        // Nobody is stopped, so that all who have a turn count.
                        priority: super::priority(3 + (n % 2) as u8),
                        template: name(format!("t{}", n % 3)),
                        memory: Bytes::mib(1 + (n % 5) as u32),
                        ..want(n, (thread % 7) as u8, 3)
                    };
                    let turn = scheduler.request(want, spy()).unwrap().wait().unwrap();
                    assert!(running.fetch_add(1, Ordering::SeqCst) < 4);
                    running.fetch_sub(1, Ordering::SeqCst);
                    turn.finish(true).unwrap();
                }
            })
        })
        .collect();
    within_bound(move || threads.into_iter().for_each(|thread| thread.join().unwrap()));
    assert!(scheduler.inspect(State::is_empty));
}

#[test]
fn threads_that_cancel_drop_pause_and_run_out_of_time_leave_nothing() {
    const THREADS: usize = 16;
    const TURNS: usize = 300;
    let scheduler = Scheduler::new(Limits { memory: Bytes::mib(20), ..limits(3) });
    let threads: Vec<_> = (0..THREADS)
        .map(|thread| {
            let scheduler = scheduler.clone();
            thread::spawn(move || {
                for turn in 0..TURNS {
                    let n = thread * TURNS + turn;
                    let patience =
                        if n.is_multiple_of(5) { Duration::from_micros(50) } else { BOUND };
                    let want = Want { patience, ..want(n, (n % 3) as u8, 1 + (n % 5) as u8) };
                    let waiting = scheduler.request(want, spy()).unwrap();
                    let handle = waiting.cancel_handle();
                    match n % 4 {
                        0 => drop(thread::spawn(move || handle.cancel())),
                        1 => {
                            drop(waiting);
                            continue;
                        }
                        _ => {}
                    }
                    match waiting.wait() {
                        // A paused job goes on ending in this test: nothing runs that could be frozen.
                        Ok(turn) => drop(turn.finish(!n.is_multiple_of(7))),
                        Err(why) => assert!(matches!(
                            why,
                            Why::Cancelled | Why::Deadline | Why::Preempted { .. }
                        )),
                    }
                }
            })
        })
        .collect();
    within_bound(move || threads.into_iter().for_each(|thread| thread.join().unwrap()));
    assert!(scheduler.inspect(State::is_empty));
}

#[test]
fn a_thread_that_panics_gives_its_place_back() {
    let scheduler = Scheduler::new(limits(1));
    let waiting = scheduler.request(want(0, 0, 3), spy()).unwrap();
    let dependent = scheduler.request(Want { after: vec![id(0)], ..want(1, 0, 3) }, spy()).unwrap();
    let next = scheduler.request(want(2, 0, 3), spy()).unwrap();
    let panicked = thread::spawn(move || {
        let _turn = waiting.wait().unwrap();
        panic!("on purpose");
    });
    assert!(panicked.join().is_err());
    let (dependent, next) = within_bound(move || (dependent.wait(), next.wait()));
    assert_eq!(dependent.unwrap_err(), Why::Dependency(id(0)));
    next.unwrap().finish(true).unwrap();
    assert!(scheduler.inspect(State::is_empty));
}

#[test]
fn patience_ends_by_the_real_clock() {
    let scheduler = Scheduler::new(limits(1));
    let turn = scheduler.request(want(0, 0, 3), spy()).unwrap().wait().unwrap();
    let patience = Duration::from_millis(20);
    let waiting = scheduler.request(Want { patience, ..want(1, 0, 3) }, spy()).unwrap();
    assert_eq!(within_bound(|| waiting.wait()).unwrap_err(), Why::Deadline);
    turn.finish(true).unwrap();
    assert!(scheduler.inspect(State::is_empty));
}

#[test]
fn a_panic_while_a_job_is_acted_on_is_a_failure_and_costs_nobody_else() {
    struct Rash;
    impl Control for Rash {
        fn pause(&self) -> Result<(), Failed> {
            panic!("on purpose")
        }
        fn resume(&self) -> Result<(), Failed> {
            panic!("on purpose")
        }
        fn destroy(&self) -> Result<(), Failed> {
            panic!("on purpose")
        }
    }
    let scheduler = Scheduler::new(limits(1));
    let turn = scheduler.request(want(0, 0, 5), Arc::new(Rash)).unwrap().wait().unwrap();
    let asked = catch_unwind(AssertUnwindSafe(|| scheduler.request(want(1, 0, 1), spy())));
    let urgent = asked.unwrap().unwrap();
    turn.finish(true).unwrap();
    within_bound(|| urgent.wait()).unwrap().finish(true).unwrap();
    assert!(scheduler.inspect(State::is_empty));
}

#[test]
fn a_job_may_be_given_back_by_whoever_acts_on_it() {
    /// Ends the job within the call, as a control that waits for the end would.
    struct Ends(std::sync::Mutex<Option<crate::Turn>>);
    impl Control for Ends {
        fn pause(&self) -> Result<(), Failed> {
            Err(Failed)
        }
        fn resume(&self) -> Result<(), Failed> {
            Err(Failed)
        }
        fn destroy(&self) -> Result<(), Failed> {
            drop(self.0.lock().unwrap().take());
            Ok(())
        }
    }
    let scheduler = Scheduler::new(Limits { memory: Bytes::mib(1), ..limits(1) });
    let control = Arc::new(Ends(Default::default()));
    let turn = scheduler.request(want(0, 0, 5), control.clone()).unwrap().wait().unwrap();
    *control.0.lock().unwrap() = Some(turn);
    let urgent = scheduler.request(want(1, 0, 1), spy()).unwrap();
    within_bound(|| urgent.wait()).unwrap().finish(true).unwrap();
    assert!(scheduler.inspect(State::is_empty));
}

#[test]
fn a_control_that_is_dropped_may_call_the_scheduler() {
    struct Nosy(Scheduler);
    impl Control for Nosy {
        fn pause(&self) -> Result<(), Failed> {
            Err(Failed)
        }
        fn resume(&self) -> Result<(), Failed> {
            Err(Failed)
        }
        fn destroy(&self) -> Result<(), Failed> {
            Err(Failed)
        }
    }
    impl Drop for Nosy {
        fn drop(&mut self) {
            self.0.snapshot();
        }
    }
    within_bound(|| {
        let scheduler = Scheduler::new(limits(1));
        let nosy = || Arc::new(Nosy(scheduler.clone()));
        let turn = scheduler.request(want(0, 0, 3), nosy()).unwrap().wait().unwrap();
        scheduler.request(want(0, 0, 3), nosy()).unwrap_err();
        drop(scheduler.request(want(1, 0, 3), nosy()).unwrap());
        turn.finish(true).unwrap();
    });
}
