//! What the record costs, beside a bare SQLite with full synchronisation on the same file system:
//! durable appends in one process, short processes that open, record one call and close, and
//! verification beside a plain SHA-256 over as many bytes. Alternately in one run, and medians, since
//! disks and machines are noisy.
//!
//! `cargo run --release -p hotcell-record --example record_speed [DIRECTORY]`

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a measurement that cannot go on has nothing to say"
)]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use hotcell_record::{
    Digest, Draft, Durability, Filter, From, Intent, Kind, Options, Payload, Record, Standing,
    encode, now,
};
use hotcell_types::{CallId, Caller, Door, Name, Status};
use rusqlite::Connection;

const ROUNDS: usize = 9;
const SINGLE: usize = 300;
const THREADS: usize = 64;
const EACH: usize = 60;
/// Short processes that are measured, after so many that make the record older.
const PROCESSES: usize = 60;
const EARLIER: usize = 240;
/// Set for a process that is one of them.
const ROLE: &str = "HOTCELL_SPEED_ROLE";

fn main() {
    let directory = std::env::args_os().nth(1).map_or_else(std::env::temp_dir, PathBuf::from);
    match std::env::var(ROLE).as_deref() {
        Ok("record") => return tell(short_record(&directory)),
        Ok(_) => return tell(short_bare(&directory)),
        Err(_) => {}
    }
    let home = tempfile::tempdir_in(directory).unwrap();
    appends(home.path());
    processes(home.path());
    verification(&home.path().join("home"));
}

fn appends(directory: &Path) {
    let bare = bare(&directory.join("bare.db"));
    let record = Record::open(&directory.join("home"), Options::default()).unwrap();
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

/// Each of them a process of its own, as `hotcell run` is.
fn processes(directory: &Path) {
    let (home, bare) = (directory.join("short"), directory.join("short.db"));
    self::bare(&bare);
    for _ in 0..EARLIER {
        short_record(&home);
    }
    let mut times: [Vec<f64>; 8] = Default::default();
    for _ in 0..PROCESSES {
        let record = measured("record", &home);
        let bare = measured("bare", &bare);
        for (times, time) in times.iter_mut().zip(record.into_iter().chain(bare)) {
            times.push(time);
        }
    }
    let worst = |times: &Vec<f64>| times.iter().copied().fold(0.0, f64::max);
    let worst: Vec<f64> = times.iter().map(worst).collect();
    let medians = times.map(median);
    println!("\na short process, ms             median   worst");
    let names = ["record: open", "begin", "finish", "close"];
    let bare_names = ["bare SQLite: open", "commit", "commit", "close"];
    for ((name, median), worst) in names.iter().chain(&bare_names).zip(medians).zip(worst) {
        println!("{name:>28}  {median:>7.3} {worst:>7.3}");
    }
}

fn measured(role: &str, path: &Path) -> Vec<f64> {
    let mut command = Command::new(std::env::current_exe().unwrap());
    let output = command.arg(path).env(ROLE, role).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let times = String::from_utf8(output.stdout).unwrap();
    times.split_whitespace().map(|time| time.parse().unwrap()).collect()
}

fn tell(times: [Duration; 4]) {
    times.iter().for_each(|time| println!("{}", time.as_secs_f64() * 1e3));
}

fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let begun = Instant::now();
    let done = work();
    (done, begun.elapsed())
}

fn short_record(home: &Path) -> [Duration; 4] {
    let (record, open) = timed(|| Record::open(home, Options::default()).unwrap());
    let (intent, begin) = timed(|| self::begin(&record));
    let ((), finish) = timed(|| self::finish(intent));
    let ((), close) = timed(|| record.close().unwrap());
    [open, begin, finish, close]
}

fn short_bare(path: &Path) -> [Duration; 4] {
    let (bare, open) = timed(|| {
        let bare = Connection::open(path).unwrap();
        bare.pragma_update(None, "synchronous", "FULL").unwrap();
        bare.query_row("SELECT max(seq) FROM t", [], |_| Ok(())).unwrap();
        bare
    });
    let ((), first) = timed(|| commit(&bare));
    let ((), second) = timed(|| commit(&bare));
    let ((), close) = timed(|| bare.close().unwrap());
    [open, first, second, close]
}

/// Of a record with few checkpoints, and of one with a checkpoint for every call.
fn verification(home: &Path) {
    println!();
    for (what, home) in
        [("one process", home.to_owned()), ("short processes", home.with_file_name("short"))]
    {
        let record = Record::open(&home, Options::default()).unwrap();
        let bytes = hashed_bytes(&record);
        let (mut ours, mut plain) = (Vec::new(), Vec::new());
        for _ in 0..5 {
            let (verdict, time) = timed(|| record.verify(From::Start).unwrap());
            assert_eq!(verdict.standing, Standing::Sound, "{verdict}");
            ours.push(verdict.events as f64 / time.as_secs_f64());
            let (_, time) =
                timed(|| bytes.iter().map(|b| Digest::of(b)).fold(0, |n, d| n ^ d.0[0]));
            plain.push(verdict.events as f64 / time.as_secs_f64());
        }
        let (ours, plain) = (median(ours), median(plain));
        println!("verification, {what:<16} {ours:>9.0} events/s; SHA-256 alone {plain:>9.0}/s");
        record.close().unwrap();
    }
}

/// What verification hashes: each event, and each content.
fn hashed_bytes(record: &Record) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    let mut filter = Filter::of(Name::LOCAL);
    loop {
        let page = record.events(&filter).unwrap();
        let Some(last) = page.last() else { return all };
        filter.after = last.seq;
        for event in &page {
            let mut bytes = Vec::new();
            encode(event, &mut bytes).unwrap();
            all.push(bytes);
            all.extend(record.input(event).unwrap());
            all.extend(record.output(event).unwrap());
        }
    }
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
    finish(begin(record));
}

fn begin(record: &Record) -> Intent {
    let mut intent = draft(Kind::Intent);
    let chance: [u8; 10] = std::array::from_fn(|_| fastrand());
    intent.call = Some(CallId::new((now() / 1_000_000) as u64, chance));
    intent.input = Some(payload(&format!("{{\"code\":\"print(6 * 7)\",\"n\":{}}}", now())));
    record.begin(intent).unwrap()
}

fn finish(intent: Intent) {
    let mut outcome = draft(Kind::Outcome);
    outcome.status = Some(Status::Success);
    outcome.output = Some(payload(&format!("{{\"stdout\":\"42\",\"n\":{}}}", now())));
    intent.finish(outcome).unwrap();
}

fn payload(text: &str) -> Payload {
    Payload { media: "application/json".into(), content: text.into() }
}

fn fastrand() -> u8 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(0) as u8
}

/// A table with a row of about the same size.
fn bare(path: &Path) -> Connection {
    let connection = Connection::open(path).unwrap();
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
