//! Waiting for an answer that another process gives.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use hotcell_review::{Connection, Error, State, cancel, enqueue, migrate, wait};
use hotcell_types::Name;

use crate::common::*;

const LONG: Duration = Duration::from_secs(60);

#[test]
fn who_waits_hears_of_an_answer_an_interrupt_and_the_end_of_the_time() {
    let dir = tempfile::tempdir().unwrap();
    let database = dir.path().join("hotcell.db");
    let mut conn = Connection::open(&database).unwrap();
    conn.pragma_update(None, "journal_mode", "WAL").unwrap();
    let tx = conn.transaction().unwrap();
    migrate(&tx).unwrap();
    let (item, _) = enqueue(&tx, new(&call(1)), 0).unwrap();
    tx.commit().unwrap();
    let interrupt = AtomicBool::new(false);
    let wait_for = |time: Duration| {
        let until = Instant::now() + time;
        let is_wanted = |item: &hotcell_review::Item| item.state != State::Waiting;
        wait(&database, &Name::LOCAL, item.id, until, &interrupt, is_wanted)
    };

    assert_eq!(wait_for(Duration::ZERO).unwrap(), item);
    assert_eq!(wait_for(Duration::from_millis(150)).unwrap(), item);
    let begun = Instant::now();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| wait_for(LONG));
        // Something else is written, and it goes on waiting.
        conn.execute_batch("CREATE TABLE other (x)").unwrap();
        interrupt.store(true, Ordering::Relaxed);
        assert_eq!(waiting.join().unwrap().unwrap(), item);
    });
    interrupt.store(false, Ordering::Relaxed);
    thread::scope(|scope| {
        let waiting = scope.spawn(|| wait_for(LONG));
        let tx = conn.transaction().unwrap();
        cancel(&tx, &agent(), item.id, 10).unwrap();
        tx.commit().unwrap();
        assert_eq!(waiting.join().unwrap().unwrap().state, State::Cancelled);
    });
    assert!(begun.elapsed() < LONG);

    let other: Name = "other".parse().unwrap();
    let theirs = wait(&database, &other, item.id, Instant::now(), &interrupt, |_| true);
    assert!(matches!(theirs, Err(Error::NoItem(_))));
    let nowhere = dir.path().join("nothing.db");
    assert!(wait(&nowhere, &other, item.id, Instant::now(), &interrupt, |_| true).is_err());
}
