//! kill -9 at any moment: what was acknowledged is there, and every intent ends once.

use std::collections::HashSet;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Stdio;
use std::thread;
use std::time::Duration;

use hotcell_record::{
    AppendError, Draft, Durability, Filter, From, Kind, Options, Record, Standing, WriteError,
    verify,
};
use hotcell_types::Status;
use rustix::process::{Signal, getpid, kill_process};

use crate::common::*;

const WRITER: &str = "crash::a_writing_process";

/// Begins, finishes and appends until it is killed, and says what was acknowledged.
#[test]
fn a_writing_process() {
    let Some(home) = child_home() else { return };
    let options = Options { checkpoint_events: 20, ..Options::default() };
    let record = Record::open(&home, options).unwrap();
    let first = u64::from(std::process::id()) << 32;
    thread::scope(|scope| {
        for thread in 0..4_u64 {
            let record = &record;
            scope.spawn(move || write_for_ever(record, first + (thread << 24)));
        }
    });
}

fn write_for_ever(record: &Record, first: u64) {
    let say = |what: &str, receipt: &hotcell_record::Receipt| {
        // In one piece, as the pipe takes it.
        let line = format!("{what} {} {} {}\n", receipt.seq(), receipt.hash(), receipt.id());
        std::io::stdout().lock().write_all(line.as_bytes()).unwrap();
    };
    for number in first.. {
        let intent = record.begin(full(Kind::Intent, number)).unwrap();
        say("intent", &intent.receipt());
        say("note", &record.append(note("x"), Durability::Committed).unwrap());
        record.append_later(note("perhaps")).unwrap();
        if number % 5 != 0 {
            say("end", &intent.finish(full(Kind::Outcome, number)).unwrap());
        }
    }
}

/// Lets it write for a while, kills it, and returns what it acknowledged.
fn kill_after(home: &Path, lines: usize, micros: u64) -> Vec<String> {
    let mut child =
        child(WRITER, home).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap()).lines();
    let is_said = |line: &String| line.split(' ').count() == 4 && line.len() > 100;
    let mut acknowledged: Vec<String> =
        output.by_ref().map(Result::unwrap).filter(is_said).take(lines).collect();
    thread::sleep(Duration::from_micros(micros));
    child.kill().unwrap();
    child.wait().unwrap();
    // What it said before it died is still in the pipe; the last line may be half a one.
    acknowledged.extend(output.map_while(Result::ok).filter(is_said));
    acknowledged
}

#[test]
fn cr_01_kill_9_thirty_times_loses_nothing_acknowledged_and_leaves_nothing_open() {
    let home = home();
    let survivor = open(home.path());
    let living = survivor.begin(full(Kind::Intent, 1)).unwrap();
    let mut dice = Dice(3);
    let mut acknowledged = Vec::new();
    for round in 0..setting("HOTCELL_KILLS", 30) {
        let (lines, micros) = (1 + dice.roll(60), dice.roll(3000) as u64);
        acknowledged.extend(kill_after(home.path(), lines, micros));
        if round % 2 == 0 {
            // Two recoverers at once.
            thread::scope(|scope| {
                let one = scope.spawn(|| survivor.recover().unwrap());
                let two = scope.spawn(|| drop(open(home.path())));
                (one.join().unwrap(), two.join().unwrap())
            });
        }
        // All of it now and then, which takes longer each time.
        let from = if round % 10 == 0 { From::Start } else { From::LastCheckpoint };
        let verdict = survivor.verify(from).unwrap();
        assert_ne!(verdict.standing, Standing::Broken, "round {round}: {verdict}");
    }
    survivor.recover().unwrap();
    assert!(survivor.runs(&Filter { call: Some(call(1)), ..all() }).unwrap()[0].end.is_none());
    living.finish(full(Kind::Outcome, 1)).unwrap();
    check(&survivor, &acknowledged);
    survivor.close().unwrap();
    assert_sound(home.path());
}

fn check(record: &Record, acknowledged: &[String]) {
    let mut there = HashSet::new();
    let (mut open, mut ended, mut recovered) = (HashSet::new(), HashSet::new(), 0);
    let mut filter = all();
    loop {
        let page = record.events(&filter).unwrap();
        let Some(last) = page.last() else { break };
        filter.after = last.seq;
        for event in page {
            there.insert(format!("{} {} {}", event.seq, event.hash, event.id));
            match event.kind {
                Kind::Intent => assert!(open.insert(event.call)),
                Kind::Outcome | Kind::Recovered => {
                    assert!(open.remove(&event.call) && ended.insert(event.call));
                    recovered += usize::from(event.kind == Kind::Recovered);
                    if event.kind == Kind::Recovered {
                        assert_eq!(event.status, Some(Status::Unknown));
                    }
                }
                _ => {}
            }
        }
    }
    assert!(open.is_empty(), "{open:?}");
    assert!(recovered > 0);
    for line in acknowledged {
        let (_, receipt) = line.split_once(' ').unwrap();
        assert!(there.contains(receipt), "lost: {line}");
    }
    eprintln!("{} acknowledged, {} there, {recovered} recovered", acknowledged.len(), there.len());
}

#[test]
fn cr_11_an_anchor_that_is_behind_is_pending_and_the_next_start_heals_it() {
    let home = home();
    let anchor = home.path().join("anchor.log");
    let record = open(home.path());
    record.append(note("one"), Durability::Synced).unwrap();
    record.checkpoint().unwrap();
    let behind = std::fs::read(&anchor).unwrap();
    record.append(note("two"), Durability::Synced).unwrap();
    record.checkpoint().unwrap();
    record.close().unwrap();
    // Killed between the commit and the sink, or in the middle of a line.
    let whole = std::fs::read(&anchor).unwrap();
    for length in [behind.len(), behind.len() + 30, whole.len() - 1] {
        std::fs::write(&anchor, &whole[..length]).unwrap();
        let verdict = checked(home.path());
        assert_eq!((verdict.standing, verdict.fault.clone()), (Standing::Sound, None), "{verdict}");
        let pending = u64::from(length < whole.len() - 1);
        assert_eq!(verdict.pending, pending, "{verdict}");
        let mark = rusqlite::Connection::open(database(home.path())).unwrap();
        mark.execute_batch("UPDATE checkpoint SET is_sunk = 0 WHERE number = 3").unwrap();
        drop(mark);
        open(home.path()).close().unwrap();
        let verdict = assert_sound(home.path());
        assert_eq!((verdict.pending, verdict.covered), (0, verdict.events), "{verdict}");
    }
    // Ahead of the database is another thing: that was written after.
    let ahead = verify(&database(filled(1).path()), Some(&anchor), From::Start);
    assert_ne!(ahead.standing, Standing::Sound);
}

#[test]
fn an_intent_of_a_living_process_is_not_closed_by_another() {
    let home = home();
    let one = open(home.path());
    let intent = one.begin(full(Kind::Intent, 1)).unwrap();
    let two = open(home.path());
    assert_eq!(two.recover().unwrap(), 0);
    assert!(two.runs(&all()).unwrap()[0].end.is_none());
    intent.finish(full(Kind::Outcome, 1)).unwrap();
    assert_eq!(two.runs(&all()).unwrap()[0].end.as_ref().unwrap().kind, Kind::Outcome);
}

const KILLED: &str = "crash::a_process_that_is_killed_between_outcome_and_checkpoint";

/// Once with little in the log, and once with more than a process leaves there when it closes.
#[test]
fn a_process_that_is_killed_between_outcome_and_checkpoint() {
    let Some(home) = child_home() else { return };
    let record = open(&home);
    let large = setting("HOTCELL_LARGE", 0) as u64;
    for number in 0..large {
        let content = number.to_le_bytes().repeat(7000);
        let input = Some(hotcell_record::Payload { media: "x".into(), content });
        record.append(Draft { input, ..note("large") }, Durability::Committed).unwrap();
    }
    let intent = record.begin(full(Kind::Intent, 1 + large)).unwrap();
    intent.finish(full(Kind::Outcome, 1 + large)).unwrap();
    kill_process(getpid(), Signal::KILL).unwrap();
}

#[test]
fn cr_11_an_outcome_without_its_checkpoint_is_there_and_the_next_end_signs_it() {
    let home = home();
    open(home.path()).close().unwrap();
    for large in [0, 20, 40] {
        let mut child = child(KILLED, home.path());
        let status = child.env("HOTCELL_LARGE", large.to_string()).stdout(Stdio::null()).status();
        assert!(!status.unwrap().success());
        let left = log_length(home.path());
        assert!(left > 0 && (large == 0 || left > 256 * 1024), "{left}");
        // Everything is read from the log, and nothing of it is closed a second time.
        let record = open(home.path());
        assert_eq!(record.start().fault, None);
        assert!(record.start().events >= 2 + large, "{}", record.start());
        let runs = record.runs(&all()).unwrap();
        assert!(runs.iter().all(|run| run.end.as_ref().unwrap().kind == Kind::Outcome));
        record.close().unwrap();
        assert!(pages_in_log(home.path()) <= 512, "{}", pages_in_log(home.path()));
        // Who writes moves what others left.
        let record = open(home.path());
        append(&record, "after");
        record.close().unwrap();
        assert!(pages_in_log(home.path()) <= 64, "{}", pages_in_log(home.path()));
        let verdict = assert_sound(home.path());
        assert_eq!((verdict.covered, verdict.pending), (verdict.events, 0), "{verdict}");
    }
}

const LAST: &str = "crash::a_process_that_is_killed_after_its_last_call";

#[test]
fn a_process_that_is_killed_after_its_last_call() {
    let Some(home) = child_home() else { return };
    let record = open(&home);
    record.append_later(note("waits")).unwrap();
    let intent = record.begin(full(Kind::Intent, 1)).unwrap().last();
    intent
        .finish_with(full(Kind::Outcome, 1), |_| Ok::<_, ()>(((), vec![note("with it")])))
        .unwrap();
    assert_eq!(record.append_later(note("late")).unwrap_err(), AppendError::Closed);
    kill_process(getpid(), Signal::KILL).unwrap();
}

#[test]
fn the_end_of_a_last_call_is_signed_when_it_is_told() {
    let home = home();
    open(home.path()).close().unwrap();
    let status = child(LAST, home.path()).stdout(Stdio::null()).status().unwrap();
    assert_eq!(status.signal(), Some(Signal::KILL.as_raw()));
    let record = open(home.path());
    // Nothing comes after the last checkpoint, and nothing is left to be closed.
    assert_eq!((record.start().events, record.start().fault.as_ref()), (0, None));
    let last = record.events(&all()).unwrap().pop().unwrap();
    assert_eq!((last.kind, last.call), (Kind::Outcome, Some(call(1))));
    record.close().unwrap();
    let verdict = assert_sound(home.path());
    assert_eq!((verdict.covered, verdict.pending), (verdict.events, 0), "{verdict}");
}

#[test]
fn a_last_call_that_cannot_be_recorded_is_closed_by_the_next_process() {
    let home = home();
    let record = open(home.path());
    let intent = record.begin(full(Kind::Intent, 1)).unwrap().last();
    let failed = intent.finish_with(full(Kind::Outcome, 1), |_| Err::<((), Vec<Draft>), _>("no"));
    assert_eq!(failed.unwrap_err(), WriteError::Own("no"));
    record.close().unwrap();
    let record = open(home.path());
    assert_eq!(record.runs(&all()).unwrap()[0].end.as_ref().unwrap().kind, Kind::Recovered);
    record.close().unwrap();
    assert_sound(home.path());
}

#[test]
fn the_end_of_a_last_call_without_rows_is_one_transaction_with_its_signature() {
    let home = home();
    open(home.path()).close().unwrap();
    let record = open(home.path());
    let intent = record.begin(full(Kind::Intent, 1)).unwrap().last();
    let outcome = intent.finish(full(Kind::Outcome, 1)).unwrap();
    assert_eq!(record.append_later(note("late")).unwrap_err(), AppendError::Closed);
    // Before it is closed: somebody else finds it whole.
    let verdict = assert_sound(home.path());
    assert_eq!((verdict.covered, verdict.pending), (verdict.events, 0), "{verdict}");
    assert_eq!(verdict.events, outcome.seq());
    record.close().unwrap();
    assert_sound(home.path());
}

const SHORT: &str = "crash::short_processes";
const ROUNDS: usize = 25;

/// Opens, records one call and closes, many times.
#[test]
fn short_processes() {
    let Some(home) = child_home() else { return };
    for round in 0..ROUNDS {
        let record = open(&home);
        let number = (u64::from(std::process::id()) << 16) + round as u64;
        let intent = record.begin(full(Kind::Intent, number)).unwrap();
        intent.finish(full(Kind::Outcome, number)).unwrap();
        record.close().unwrap();
    }
}

#[test]
fn processes_that_open_while_others_close_lose_nothing() {
    let home = home();
    open(home.path()).close().unwrap();
    let start = || child(SHORT, home.path()).stdout(Stdio::null()).spawn().unwrap();
    for mut child in [start(), start(), start()] {
        assert!(child.wait().unwrap().success());
    }
    let verdict = assert_sound(home.path());
    assert_eq!(verdict.events as usize, 1 + 3 * 2 * ROUNDS);
    assert_eq!((verdict.covered, verdict.pending), (verdict.events, 0), "{verdict}");
    let record = open(home.path());
    let recovered = Filter { kind: Some(Kind::Recovered), ..all() };
    assert_eq!(record.events(&recovered).unwrap(), []);
    let owners = home.path().join("run/owners").read_dir().unwrap().count();
    assert_eq!(owners, 1, "only our own");
}

#[test]
fn cr_11_a_line_that_the_anchor_lost_with_the_power_is_written_again() {
    let home = filled(2);
    let anchor = home.path().join("anchor.log");
    let whole = std::fs::read_to_string(&anchor).unwrap();
    let lines: Vec<&str> = whole.split_inclusive('\n').collect();
    // Its last line, half of that, all of it but one line, everything, the file itself.
    let cases = [
        Some(lines[..lines.len() - 1].concat()),
        whole.get(..whole.len() - 100).map(str::to_owned),
        Some(lines[0].to_owned()),
        Some(String::new()),
        None,
    ];
    for (number, left) in cases.into_iter().enumerate() {
        match left {
            Some(left) => std::fs::write(&anchor, left).unwrap(),
            None => std::fs::remove_file(&anchor).unwrap(),
        }
        open(home.path()).close().unwrap();
        let verdict = assert_sound(home.path());
        assert_eq!((verdict.covered, verdict.pending), (verdict.events, 0), "case {number}");
    }
}

#[test]
fn opening_reads_the_end_of_the_anchor_and_checks_one_signature() {
    let home = filled(3);
    let anchor = home.path().join("anchor.log");
    let whole = std::fs::read_to_string(&anchor).unwrap();
    let copies = 100_000 / whole.lines().count() + 1;
    std::fs::write(&anchor, whole.repeat(copies)).unwrap();
    let record = open(home.path());
    assert_eq!(record.start().signatures, 1, "{}", record.start());
    assert_eq!((record.start().events, record.start().covered), (0, 10));
    let said = &record.start().checked;
    assert!(said.contains(&"the last 9 checkpoints in the anchor".to_owned()), "{said:?}");
    record.close().unwrap();
    // One that the database does not have is seen at once, wherever it stands among the last.
    let cut = copy(home.path());
    std::fs::create_dir(cut.path().join("keys")).unwrap();
    let key = "keys/record.key";
    std::fs::copy(home.path().join(key), cut.path().join(key)).unwrap();
    let record = open(home.path());
    append(&record, "later");
    record.close().unwrap();
    let later = std::fs::read_to_string(&anchor).unwrap();
    let later = later.lines().last().unwrap();
    std::fs::write(cut.path().join("anchor.log"), format!("{later}\n{whole}")).unwrap();
    let error = Record::open(cut.path(), Options::default()).unwrap_err();
    assert!(error.why.contains("old copy"), "{error}");
}

const READER: &str = "crash::a_process_that_only_reads";

#[test]
fn a_process_that_only_reads() {
    let Some(home) = child_home() else { return };
    let threads = || std::fs::read_dir("/proc/self/task").unwrap().count();
    let before = threads();
    let record = open(&home);
    assert_eq!((record.events(&all()).unwrap().len(), threads()), (1, before));
    append(&record, "x");
    assert_eq!(threads(), before + 1);
    record.close().unwrap();
}

#[test]
fn a_process_that_only_reads_has_no_housekeeper() {
    let home = home();
    open(home.path()).close().unwrap();
    assert!(child(READER, home.path()).stdout(Stdio::null()).status().unwrap().success());
}
