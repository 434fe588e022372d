//! The database gets smaller where that pays, and nothing of the record changes.

use std::time::Duration;

use hotcell_record::{Compacted, Durability, Payload, Record, RetentionPolicy};

use crate::common::{assert_sound, database, note, open};

const NOTHING: RetentionPolicy = RetentionPolicy { keep: Duration::ZERO, most_bytes: 0 };

fn fill(record: &Record, count: usize) {
    for number in 0..count {
        let mut draft = note("large");
        let content = [vec![b'x'; 60_000], number.to_string().into_bytes()].concat();
        draft.input = Some(Payload { media: "text/plain".into(), content });
        record.append(draft, Durability::Committed).unwrap();
    }
}

#[test]
fn what_was_pruned_is_given_back_and_the_record_is_sound() {
    let home = tempfile::tempdir().unwrap();
    let record = open(home.path());
    fill(&record, 10);
    record.prune(&NOTHING).unwrap();
    assert_eq!(record.compact().unwrap(), Compacted::NotWorth);
    fill(&record, 200);
    record.prune(&NOTHING).unwrap();
    let other = open(home.path());
    assert_eq!(record.compact().unwrap(), Compacted::InUse);
    other.close().unwrap();
    let Compacted::Smaller { before, after } = record.compact().unwrap() else { panic!() };
    assert!(before > 10_000_000 && after < 1_000_000, "{before} {after}");
    assert_eq!(record.free().unwrap(), 0);
    // Connections that were there before go on.
    fill(&record, 3);
    record.close().unwrap();
    assert_sound(home.path());
}

#[test]
fn who_writes_is_not_disturbed() {
    let home = tempfile::tempdir().unwrap();
    let record = open(home.path());
    fill(&record, 200);
    record.prune(&NOTHING).unwrap();
    // Not a process of ours, so that only its lock shows that it is there.
    let writer = rusqlite::Connection::open(database(home.path())).unwrap();
    writer.execute_batch("BEGIN IMMEDIATE").unwrap();
    assert_eq!(record.compact().unwrap(), Compacted::InUse);
    writer.execute_batch("COMMIT").unwrap();
    drop(writer);
    assert!(matches!(record.compact().unwrap(), Compacted::Smaller { .. }));
    record.close().unwrap();
    assert_sound(home.path());
}
