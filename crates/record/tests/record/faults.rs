//! Each call that the record makes on its files fails once, is the last of its process, or is lost with
//! the power. The calls are counted by a library that is put before libc: `faults.c`.

use std::collections::{BTreeMap, HashSet};
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use hotcell_record::{Draft, Durability, Filter, Kind, Options, Record};
use rusqlite::Connection;
use tempfile::TempDir;

use crate::common::*;

/// `None`, loudly, where there is no compiler.
fn library() -> Option<&'static Path> {
    static BUILT: OnceLock<Option<(TempDir, PathBuf)>> = OnceLock::new();
    let built = BUILT.get_or_init(|| {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/record/faults.c");
        let dir = home();
        let library = dir.path().join("faults.so");
        let made = Command::new("gcc")
            .args(["-O1", "-shared", "-fPIC", "-o"])
            .args([&library, &source])
            .output();
        match made {
            Ok(made) if made.status.success() => Some((dir, library)),
            Ok(made) => panic!("gcc: {}", String::from_utf8_lossy(&made.stderr)),
            Err(error) => {
                eprintln!("SKIPPED faults: there is no gcc here: {error}");
                None
            }
        }
    });
    built.as_ref().map(|(_, library)| library.as_path())
}

const PROCESS: &str = "faults::a_process_whose_disk_fails";

/// Does a little of everything, tells what was acknowledged, and goes on whatever happens.
#[test]
fn a_process_whose_disk_fails() {
    let Some(home) = child_home() else { return };
    let record = match Record::open(&home, Options::default()) {
        Ok(record) => record,
        Err(error) => return println!("error {error}"),
    };
    for number in [1001, 1002] {
        match record.begin(full(Kind::Intent, number)) {
            Ok(intent) => {
                println!("ack {}", intent.receipt().hash());
                match intent.finish(full(Kind::Outcome, number)) {
                    Ok(receipt) => println!("ack {}", receipt.hash()),
                    Err(error) => println!("error {error}"),
                }
            }
            Err(error) => println!("error {error}"),
        }
    }
    if let Err(error) = record.events(&all()) {
        println!("error: it cannot be read: {error}");
    }
    if let Err(error) = record.checkpoint() {
        println!("error {error}");
    }
    if let Err(error) = record.close() {
        println!("error {error}");
    }
    println!("closed");
}

/// What stands before the process begins.
#[derive(Debug, Clone, Copy)]
enum Before {
    Nothing,
    /// Tables of the first version.
    OldTables,
    /// A write-ahead log that whoever writes first moves into the database.
    LongLog,
}

impl Before {
    fn make(self) -> TempDir {
        let home = match self {
            Before::Nothing => return self::home(),
            Before::OldTables => filled(3),
            Before::LongLog => self::home(),
        };
        if matches!(self, Before::OldTables) {
            to_first_version(home.path());
            return home;
        }
        let record = open(home.path());
        for number in 0..40_u64 {
            let content = number.to_le_bytes().repeat(2000);
            let input = Some(hotcell_record::Payload { media: "x".into(), content });
            record.append(Draft { input, ..note("large") }, Durability::Synced).unwrap();
        }
        let left = copied(home.path());
        drop(record);
        assert!(pages_in_log(left.path()) > 64, "whoever writes moves it");
        left
    }
}

/// A home as it stands, by a process that holds no locks. In memory where that can be: nothing here depends
/// on how long a sync takes, and there are thousands of them.
fn copied(home: &Path) -> TempDir {
    let copy = tempfile::tempdir_in("/dev/shm").unwrap_or_else(|_| self::home());
    let status = Command::new("cp").arg("-rT").args([home, copy.path()]).status().unwrap();
    assert!(status.success());
    copy
}

fn to_first_version(home: &Path) {
    let old = Connection::open(database(home)).unwrap();
    let change = "INSERT OR IGNORE INTO payload
            SELECT input_digest, seq, small.time, input FROM small JOIN event USING (seq)
            UNION ALL
            SELECT output_digest, seq, small.time, output FROM small JOIN event USING (seq);
        DROP TABLE small; DROP TABLE checkpoint; PRAGMA user_version = 1";
    old.execute_batch(change).unwrap();
    drop(old);
    fs::remove_file(home.join("anchor.log")).unwrap();
}

struct Met {
    output: Output,
    home: TempDir,
}

impl Met {
    /// Whether there was such a call.
    fn is_reached(&self) -> bool {
        String::from_utf8_lossy(&self.output.stderr).contains("FAULT")
    }

    fn said(&self) -> String {
        String::from_utf8_lossy(&self.output.stdout).into_owned()
    }

    /// All that was acknowledged is there, every intent has its end, and nothing else is wrong.
    fn check(&self, what: &str) {
        let said = self.said();
        let record = Record::open(self.home.path(), Options::default());
        let record = record.unwrap_or_else(|error| panic!("{what}: {error}\n{said}"));
        let there: HashSet<String> =
            record.events(&all()).unwrap().iter().map(|event| event.hash.to_string()).collect();
        for hash in said.lines().filter_map(|line| line.strip_prefix("ack ")) {
            assert!(there.contains(hash), "{what}: lost {hash}\n{said}");
        }
        assert!(record.runs(&all()).unwrap().iter().all(|run| run.end.is_some()), "{what}");
        append(&record, "and it goes on");
        record.close().unwrap();
        assert_sound(self.home.path());
        let connection = Connection::open(database(self.home.path())).unwrap();
        let whole: String =
            connection.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
        assert_eq!(whole, "ok", "{what}");
    }
}

fn meet(library: &Path, base: &Path, fault: Fault<'_>, at: usize) -> Met {
    let home = copied(base);
    let mut child = child(PROCESS, home.path());
    child.env("LD_PRELOAD", library).env("FAULT_HOME", home.path());
    child.env("FAULT_CALLS", fault.calls).env("FAULT_AT", at.to_string());
    child.env("FAULT_HOW", fault.how).envs(fault.stays.then_some(("FAULT_STAYS", "1")));
    Met { output: child.output().unwrap(), home }
}

/// As `faults.c` has it.
#[derive(Debug, Clone, Copy)]
struct Fault<'a> {
    calls: &'a str,
    how: &'a str,
    stays: bool,
}

impl<'a> Fault<'a> {
    fn once(calls: &'a str, how: &'a str) -> Fault<'a> {
        Fault { calls, how, stays: false }
    }

    fn for_ever(calls: &'a str, how: &'a str) -> Fault<'a> {
        Fault { calls, how, stays: true }
    }
}

/// At each call of these kinds in turn, or at some: `HOTCELL_FAULT_STEP` says how many are passed over.
fn at_each(before: Before, fault: Fault<'_>, check: impl Fn(&Met, &str)) {
    let Some(library) = library() else { return };
    let base = before.make();
    let mut at = 1;
    loop {
        let what = format!("{before:?}: {fault:?} at {at}");
        let met = meet(library, base.path(), fault, at);
        check(&met, &what);
        met.check(&what);
        if !met.is_reached() {
            assert!(at > 1, "{what}: nothing was counted");
            assert!(met.said().contains("closed") && !met.said().contains("error"), "{what}");
            return;
        }
        at += setting("HOTCELL_FAULT_STEP", 11);
    }
}

fn is_no_panic(met: &Met, what: &str) {
    let stderr = String::from_utf8_lossy(&met.output.stderr);
    assert!(met.output.status.success(), "{what}: {}\n{stderr}", met.said());
}

const EIO: &str = "5";
const ENOSPC: &str = "28";
const EROFS: &str = "30";
const EDQUOT: &str = "122";

#[test]
fn sql_08_each_read_write_sync_lock_map_and_open_fails_once() {
    for (calls, how) in
        [("r", EIO), ("w", EIO), ("w", ENOSPC), ("s", EIO), ("l", EIO), ("m", "12"), ("o", "24")]
    {
        at_each(Before::LongLog, Fault::once(calls, how), is_no_panic);
    }
}

#[test]
fn dsk_07_where_there_is_no_room_to_begin_or_to_migrate_it_is_told_and_done_the_next_time() {
    for before in [Before::Nothing, Before::OldTables] {
        at_each(before, Fault::once("ws", ENOSPC), is_no_panic);
        at_each(before, Fault::for_ever("w", ENOSPC), is_no_panic);
    }
}

#[test]
fn dsk_08_a_quota_or_a_disk_that_turns_read_only_is_an_error_and_what_is_there_can_be_read() {
    for how in [EDQUOT, EROFS] {
        at_each(Before::LongLog, Fault::for_ever("w", how), |met, what| {
            is_no_panic(met, what);
            assert!(!met.said().contains("cannot be read"), "{what}: {}", met.said());
        });
    }
}

/// What a write-ahead log cannot be without: an acknowledgement after a sync that failed would be a lie.
#[test]
fn cr_12_a_sync_that_fails_is_never_an_acknowledgement() {
    at_each(Before::LongLog, Fault::once("s", EIO), |met, what| {
        let said = met.said();
        let is_told = said.contains("error") || !met.is_reached();
        // Moving the log into the database is tried again, and nobody waits for it.
        let all = said.matches("ack ").count() == 4 && said.contains("closed");
        assert!(is_told || all, "{what}: {said}");
    });
}

fn is_killed(met: &Met, what: &str) {
    let is_killed = met.output.status.signal() == Some(9);
    assert!(is_killed || !met.is_reached(), "{what}: {:?}", met.output.status);
}

#[test]
fn cr_10_kill_9_at_each_call_of_a_checkpoint() {
    at_each(Before::LongLog, Fault::once("wsl", "kill"), is_killed);
}

#[test]
fn cr_10_cr_20_kill_9_at_each_call_of_a_migration() {
    at_each(Before::OldTables, Fault::once("wsl", "kill"), is_killed);
}

#[test]
fn cr_10_kill_9_at_each_call_of_making_a_home() {
    at_each(Before::Nothing, Fault::once("wsol", "kill"), is_killed);
}

#[test]
fn cr_13_a_write_of_which_half_is_there_is_recovered_from() {
    for before in [Before::LongLog, Before::OldTables, Before::Nothing] {
        at_each(before, Fault::once("w", "tear"), is_killed);
    }
}

const HEAP: &str = "faults::a_process_without_memory";

/// SQLite gets less memory with each round, until it has none.
#[test]
fn a_process_without_memory() {
    let Some(home) = child_home() else { return };
    let record = open(&home);
    append(&record, "before");
    let used = |record: &Record, limit: i64| {
        record.write(Durability::Committed, move |tx| {
            let limited = format!("PRAGMA hard_heap_limit = {limit}");
            tx.query_row(&limited, [], |row| row.get::<_, i64>(0)).map(|_| ((), Vec::new()))
        })
    };
    let (mut failed, mut done) = (0, 0);
    for limit in (1..400).rev() {
        // Once there is too little even for this, it stays as it is.
        used(&record, limit * 4096).ok();
        match record.append(full(Kind::Note, 1), Durability::Synced) {
            Ok(receipt) => {
                println!("ack {}", receipt.hash());
                done += 1;
            }
            Err(_) => failed += 1,
        }
        record.events(&all()).ok();
        record.begin(full(Kind::Intent, 1000 + limit as u64)).ok();
    }
    println!("DONE {done} {failed}");
    assert!(done > 10 && failed > 10, "{done} {failed}");
    record.close().ok();
}

#[test]
fn sql_08_each_want_of_memory_is_an_error_and_no_damage() {
    let home = home();
    let output = child(HEAP, home.path()).output().unwrap();
    let met = Met { output, home };
    let stderr = String::from_utf8_lossy(&met.output.stderr);
    assert!(met.output.status.success() && met.said().contains("DONE"), "{}{stderr}", met.said());
    met.check("without memory");
}

const BUSY: &str = "faults::a_process_that_writes_on_a_disk_with_a_cache";
/// Between two checkpoints of the log there is room for all that is tried here.
const CALLS: u64 = 40;

/// Writes down what was acknowledged as being on the disk, beside the files that it is in.
#[test]
fn a_process_that_writes_on_a_disk_with_a_cache() {
    let Some(home) = child_home() else { return };
    let options = Options { checkpoint_events: 20, ..Options::default() };
    let record = Record::open(&home, options).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let (record, home) = (&record, &home);
            scope.spawn(move || {
                let acks = OpenOptions::new().create(true).append(true).open(home.join("acks"));
                let mut acks = acks.unwrap();
                for number in 0..CALLS {
                    let number = (thread << 32) + number;
                    let content = number.to_le_bytes().repeat(7000);
                    let large = Some(hotcell_record::Payload { media: "x".into(), content });
                    let draft = Draft { input: large, ..full(Kind::Intent, number) };
                    let intent = record.begin(draft).unwrap();
                    let line = format!("{}\n", intent.receipt().hash());
                    acks.write_all(line.as_bytes()).unwrap();
                    intent.finish(full(Kind::Outcome, number)).unwrap();
                }
            });
        }
    });
    record.close().unwrap();
}

/// Something that was done to a file.
#[derive(Debug, Clone)]
enum Act {
    Write { at: usize, bytes: Vec<u8> },
    Cut(usize),
    Sync,
}

fn read_log(log: &Path) -> Vec<(PathBuf, Act)> {
    let log = fs::read(log).unwrap();
    let mut rest = log.as_slice();
    let mut all = Vec::new();
    while let Some((&kind, after)) = rest.split_first() {
        let number = |n: usize| {
            let bytes: [u8; 8] = after[8 * n..8 * n + 8].try_into().unwrap();
            i64::from_le_bytes(bytes) as usize
        };
        let (name, offset, length) = (number(0), number(1), number(2));
        let (name, after) = after[24..].split_at(name);
        let (bytes, after) = after.split_at(length);
        let act = match kind {
            b'w' => Act::Write { at: offset, bytes: bytes.to_vec() },
            b't' => Act::Cut(offset),
            b's' => Act::Sync,
            other => panic!("{other}"),
        };
        let name = Path::new(std::str::from_utf8(name).unwrap()).file_name().unwrap().into();
        all.push((name, act));
        rest = after;
    }
    all
}

/// A file on a disk with a cache.
#[derive(Debug, Default)]
struct Cached {
    synced: Vec<u8>,
    /// What was done since, all of which may be lost.
    since: Vec<Act>,
}

impl Cached {
    fn act(&mut self, act: &Act) {
        self.since.push(act.clone());
        if matches!(act, Act::Sync) {
            for act in self.since.drain(..) {
                apply(&mut self.synced, &act, usize::MAX);
            }
        }
    }

    /// After the power went: of what was not synced, any part may be there, in any order.
    fn after_loss(&self, dice: &mut Dice) -> Vec<u8> {
        const SECTOR: usize = 512;
        let mut left = self.synced.clone();
        for act in &self.since {
            match dice.roll(3) {
                0 => {}
                1 => apply(&mut left, act, usize::MAX),
                _ => apply(&mut left, act, SECTOR * dice.roll(9)),
            }
        }
        left
    }
}

fn apply(file: &mut Vec<u8>, act: &Act, most: usize) {
    match act {
        Act::Write { at, bytes } => {
            let bytes = &bytes[..bytes.len().min(most)];
            if file.len() < at + bytes.len() {
                file.resize(at + bytes.len(), 0);
            }
            file[*at..at + bytes.len()].copy_from_slice(bytes);
        }
        Act::Cut(length) => file.resize(*length, 0),
        Act::Sync => {}
    }
}

#[test]
fn cr_12_cr_13_what_was_acknowledged_survives_the_loss_of_power_at_any_moment() {
    let Some(library) = library() else { return };
    let base = home();
    let record = open(base.path());
    append(&record, "before");
    record.close().unwrap();
    let (work, log) = (copied(base.path()), home());
    let log = log.path().join("log");
    let status = child(BUSY, work.path())
        .env("LD_PRELOAD", library)
        .env("FAULT_HOME", work.path())
        .env("FAULT_LOG", &log)
        .status()
        .unwrap();
    assert!(status.success());
    let acts = read_log(&log);
    let mut dice = Dice(11);
    let cuts = setting("HOTCELL_CUTS", 30);
    let mut at: Vec<usize> = (0..cuts).map(|_| dice.roll(acts.len())).collect();
    at.sort_unstable();
    let mut files: BTreeMap<PathBuf, Cached> = BTreeMap::new();
    for name in ["hotcell.db", "hotcell.db-wal", "anchor.log"] {
        let synced = fs::read(base.path().join(name)).unwrap();
        files.insert(name.into(), Cached { synced, since: Vec::new() });
    }
    let (mut acknowledged, mut done, mut moved) = (Vec::new(), 0, false);
    for cut in at {
        for (name, act) in &acts[done..cut] {
            match act {
                Act::Write { bytes, .. } if name == Path::new("acks") => {
                    acknowledged.push(String::from_utf8(bytes.clone()).unwrap().trim().to_owned());
                }
                act => {
                    moved |= name == Path::new("hotcell.db");
                    files.entry(name.clone()).or_default().act(act);
                }
            }
        }
        done = cut;
        survives(base.path(), &files, &acknowledged, &mut dice, &format!("cut at {cut}"));
    }
    assert!(acknowledged.len() > CALLS as usize && moved, "{} {moved}", acknowledged.len());
}

fn survives(
    base: &Path,
    files: &BTreeMap<PathBuf, Cached>,
    acknowledged: &[String],
    dice: &mut Dice,
    what: &str,
) {
    let home = copied(base);
    // The index of the log is memory and not a file: it is made anew.
    fs::remove_file(home.path().join("hotcell.db-shm")).ok();
    for (name, file) in files {
        fs::write(home.path().join(name), file.after_loss(dice)).unwrap();
    }
    let record = Record::open(home.path(), Options::default());
    let record = record.unwrap_or_else(|error| panic!("{what}: {error}"));
    let mut there = HashSet::new();
    let mut filter = Filter { limit: 1000, ..all() };
    loop {
        let page = record.events(&filter).unwrap();
        let Some(last) = page.last() else { break };
        filter.after = last.seq;
        there.extend(page.iter().map(|event| event.hash.to_string()));
    }
    let lost = acknowledged.iter().filter(|hash| !there.contains(*hash)).count();
    assert_eq!(lost, 0, "{what}: of {}", acknowledged.len());
    record.close().unwrap();
    assert_sound(home.path());
}
