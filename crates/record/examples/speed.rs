//! What durable appends cost, beside a bare SQLite commit with full synchronisation: alternately in one
//! run, and medians of all rounds, since disks and machines are noisy.
//!
//! `cargo run --release -p hotcell-record --example speed [DIRECTORY]`

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a measurement that cannot go on has nothing to say"
)]

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use hotcell_record::{Draft, Durability, Kind, Options, Record, now};
use hotcell_types::{CallId, Caller, Door, Name, Status};
use rusqlite::Connection;

const ROUNDS: usize = 9;
const SINGLE: usize = 300;
const THREADS: usize = 64;
const EACH: usize = 60;

fn main() {
    let directory = std::env::args_os().nth(1).map_or_else(std::env::temp_dir, PathBuf::from);
    let home = tempfile::tempdir_in(directory).unwrap();
    let bare = bare(home.path());
    let record = Record::open(&home.path().join("home"), Options::default()).unwrap();
    let mut times: [Vec<f64>; 5] = Default::default();
    for _ in 0..ROUNDS {
        times[0].push(per_second(SINGLE, || (0..SINGLE).for_each(|_| commit(&bare))));
        times[1].push(per_second(SINGLE, || {
            (0..SINGLE).for_each(|_| append(&record, Durability::Synced));
        }));
        times[2].push(per_second(THREADS * EACH, || {
            std::thread::scope(|scope| {
                for _ in 0..THREADS {
                    scope.spawn(|| (0..EACH).for_each(|_| append(&record, Durability::Synced)));
                }
            });
        }));
        times[3].push(per_second(SINGLE, || {
            (0..SINGLE).for_each(|_| append(&record, Durability::Committed));
        }));
        times[4].push(per_second(SINGLE, || (0..SINGLE).for_each(|_| call(&record))));
    }
    let [bare, single, many, lazy, calls] = times.map(median);
    println!("bare SQLite commit            {bare:>9.0}/s  {:>7.1} us", 1e6 / bare);
    println!("append, synced, 1 thread      {single:>9.0}/s  {:>7.1} us", 1e6 / single);
    println!("append, synced, {THREADS} threads    {many:>9.0}/s");
    println!("append, committed, 1 thread   {lazy:>9.0}/s  {:>7.1} us", 1e6 / lazy);
    println!("begin and finish, 1 thread    {calls:>9.0}/s  {:>7.1} us", 1e6 / calls);
    println!("one append costs {:.2} bare commits", bare / single);
    println!("{THREADS} threads get {:.1} times the appends of one", many / single);
    record.close().unwrap();
}

fn caller() -> Caller {
    Caller::local(Name::LOCAL, Door::Library)
}

fn draft(kind: Kind) -> Draft {
    let mut draft = Draft::new(kind, caller(), now());
    draft.operation = Some("fs.write".into());
    draft.tool = Some("files@1".into());
    draft.rules = vec!["agents-may-write-source".into()];
    draft.reason = Some("source files belong to the agent".into());
    draft
}

fn append(record: &Record, durability: Durability) {
    record.append(draft(Kind::Denied), durability).unwrap();
}

fn call(record: &Record) {
    let mut intent = draft(Kind::Intent);
    let chance: [u8; 10] = std::array::from_fn(|_| fastrand());
    intent.call = Some(CallId::new((now() / 1_000_000) as u64, chance));
    let intent = record.begin(intent).unwrap();
    let mut outcome = draft(Kind::Outcome);
    outcome.status = Some(Status::Success);
    intent.finish(outcome).unwrap();
}

fn fastrand() -> u8 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(0) as u8
}

/// A table with a row of about the same size.
fn bare(directory: &Path) -> Connection {
    let connection = Connection::open(directory.join("bare.db")).unwrap();
    connection.pragma_update(None, "journal_mode", "WAL").unwrap();
    connection.pragma_update(None, "synchronous", "FULL").unwrap();
    connection.execute_batch("CREATE TABLE t (seq INTEGER PRIMARY KEY, content BLOB)").unwrap();
    connection
}

fn commit(connection: &Connection) {
    let row = "INSERT INTO t (content) VALUES (?1)";
    connection.prepare_cached(row).unwrap().execute([[7_u8; 400]]).unwrap();
}

fn per_second(count: usize, work: impl FnOnce()) -> f64 {
    let begun = Instant::now();
    work();
    count as f64 / begun.elapsed().max(Duration::from_nanos(1)).as_secs_f64()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
