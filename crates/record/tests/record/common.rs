//! Homes to try things on, and the means to damage them.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use hotcell_record::{
    Digest, Draft, Durability, Filter, From, Kind, Options, Payload, Record, Standing, Stated,
    Verdict, verify,
};
use hotcell_types::{CallId, Caller, Decision, Door, Name, Status};
use rusqlite::Connection;
use tempfile::TempDir;

/// Long enough for any machine; nothing waits for it to pass.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// On a real file system, where this user can write to one.
pub(crate) fn home() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).or_else(|_| tempfile::tempdir()).unwrap()
}

pub(crate) fn open(home: &Path) -> Record {
    Record::open(home, Options::default()).unwrap()
}

pub(crate) fn database(home: &Path) -> PathBuf {
    home.join("hotcell.db")
}

pub(crate) fn caller() -> Caller {
    Caller::local("tester".parse().unwrap(), Door::Cli)
}

pub(crate) fn draft(kind: Kind) -> Draft {
    Draft::new(kind, caller(), 1_700_000_000_000_000_000)
}

pub(crate) fn note(text: &str) -> Draft {
    Draft { reason: Some(text.to_owned()), ..draft(Kind::Note) }
}

/// About a row that somebody else keeps.
pub(crate) fn stated(number: u64) -> Draft {
    let row = format!("thing {number}");
    let stated = Stated { digest: Digest::of(row.as_bytes()), row, length: 7 };
    Draft { call: Some(call(number)), stated: Some(stated), ..draft(Kind::ArtifactAdded) }
}

pub(crate) fn append(record: &Record, text: &str) {
    record.append(note(text), Durability::Committed).unwrap();
}

/// With a value in every field.
pub(crate) fn full(kind: Kind, number: u64) -> Draft {
    Draft {
        call: Some(call(number)),
        parent: Some(call(number + 1_000_000)),
        operation: Some("fs.write".into()),
        tool: Some("files@1".into()),
        mode: Some("strict".into()),
        state: Some("code_writing".into()),
        decision: Some(Decision::Allow),
        rules: vec!["one".into(), "two".into()],
        bearer: Some("bearer".into()),
        reason: Some("because".into()),
        status: Some(Status::Success),
        input: Some(payload(&format!("input {number}"))),
        output: Some(payload(&format!("output {number}"))),
        duration_ns: Some(5),
        sandbox: Some("native".into()),
        request: Some(format!("request {number}")),
        ..draft(kind)
    }
}

pub(crate) fn payload(text: &str) -> Payload {
    Payload { media: "text/plain".into(), content: text.as_bytes().to_vec() }
}

pub(crate) fn call(number: u64) -> CallId {
    let mut chance = [0; 10];
    chance[2..].copy_from_slice(&number.to_be_bytes());
    CallId::new(1_700_000_000_000, chance)
}

pub(crate) fn all() -> Filter {
    Filter::of(Name::LOCAL)
}

/// A closed home with so many calls, begun and finished, and some other events.
pub(crate) fn filled(calls: u64) -> TempDir {
    let home = home();
    let record = open(home.path());
    for number in 0..calls {
        let intent = record.begin(full(Kind::Intent, number)).unwrap();
        record.append_later(note(&format!("meanwhile {number}"))).unwrap();
        intent.finish(full(Kind::Outcome, number)).unwrap();
        if number == calls / 2 {
            record.checkpoint().unwrap();
        }
    }
    record.close().unwrap();
    settle(home.path());
    home
}

/// Moves what is in the write-ahead log into the database, so that all of the record is in one file.
pub(crate) fn settle(home: &Path) {
    let connection = Connection::open(database(home)).unwrap();
    let settled = "PRAGMA wal_checkpoint(TRUNCATE)";
    let busy: i64 = connection.query_row(settled, [], |row| row.get(0)).unwrap();
    assert_eq!(busy, 0);
}

/// What the next process that opens the record reads of its write-ahead log.
pub(crate) fn pages_in_log(home: &Path) -> i64 {
    let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY;
    let connection = Connection::open_with_flags(database(home), flags).unwrap();
    connection.query_row("SELECT count(*) FROM event", [], |_| Ok(())).unwrap();
    connection.query_row("PRAGMA wal_checkpoint(NOOP)", [], |row| row.get(1)).unwrap()
}

/// The length of the write-ahead log.
pub(crate) fn log_length(home: &Path) -> u64 {
    home.join("hotcell.db-wal").metadata().map_or(0, |log| log.len())
}

pub(crate) fn checked(home: &Path) -> Verdict {
    verify(&database(home), Some(&home.join("anchor.log")), From::Start)
}

#[track_caller]
pub(crate) fn assert_sound(home: &Path) -> Verdict {
    let verdict = checked(home);
    assert_eq!(verdict.standing, Standing::Sound, "{verdict}");
    verdict
}

/// A connection of somebody who does not care about triggers.
pub(crate) fn enemy(database: &Path) -> Connection {
    let connection = Connection::open(database).unwrap();
    let triggers =
        "SELECT 'DROP TRIGGER ' || name || ';' AS line FROM sqlite_schema WHERE type = 'trigger'";
    let drops = format!("SELECT group_concat(line, '') FROM ({triggers})");
    let drops: Option<String> = connection.query_row(&drops, [], |row| row.get(0)).unwrap();
    connection.execute_batch(&drops.unwrap_or_default()).unwrap();
    connection
}

/// Copies a closed home.
pub(crate) fn copy(home: &Path) -> TempDir {
    assert_eq!(log_length(home), 0, "the database is not the whole record");
    let copy = self::home();
    for name in ["hotcell.db", "anchor.log"] {
        std::fs::copy(home.join(name), copy.path().join(name)).unwrap();
    }
    copy
}

/// This test program again, with only one test, which does what the variable says.
pub(crate) fn child(test: &str, home: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture", "--test-threads=1"]);
    command.env("HOTCELL_CHILD", home).stdin(Stdio::null());
    command
}

/// The home that a child works on; `None` in the parent.
pub(crate) fn child_home() -> Option<PathBuf> {
    std::env::var_os("HOTCELL_CHILD").map(PathBuf::from)
}

/// A number from the environment.
pub(crate) fn setting(name: &str, default: usize) -> usize {
    std::env::var(name).map_or(default, |value| value.parse().expect("a number"))
}

/// Numbers that are the same in every run with the same seed.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % sides as u64) as usize
    }
}
