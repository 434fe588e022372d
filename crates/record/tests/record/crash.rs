//! kill -9 at any moment: what was acknowledged is there, and every intent ends once.

use std::collections::HashSet;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::Stdio;
use std::thread;
use std::time::Duration;

use hotcell_record::{Durability, Filter, From, Kind, Options, Record, Standing, verify};
use hotcell_types::Status;

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
