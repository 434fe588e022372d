//! Two verifiers, written apart, on the same damaged records: they must say the same.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use hotcell_record::{
    Digest, Draft, Durability, Event, From, Kind, Record, RetentionPolicy, Standing, encode,
    export, verify,
};
use tempfile::TempDir;

use crate::common::*;

pub(crate) fn python(file: &Path, anchor: Option<&Path>) -> (Standing, String) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools/verify.py");
    let mut command = Command::new("python3");
    command.arg(script);
    if let Some(anchor) = anchor {
        command.arg("--anchor").arg(anchor);
    }
    let output = command.arg(file).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let standing = match output.status.code() {
        Some(0) => Standing::Sound,
        Some(1) if output.stderr.is_empty() => Standing::Broken,
        Some(2) if output.stderr.is_empty() => Standing::Unproven,
        other => panic!("{other:?}: {}", String::from_utf8_lossy(&output.stderr)),
    };
    (standing, said)
}

/// With everything in it: open and recovered calls, cut payloads, pruned ones, a row of another table.
fn rich() -> TempDir {
    let home = filled(4);
    let record = open(home.path());
    std::mem::forget(record.begin(full(Kind::Intent, 100)).unwrap());
    record
        .append(
            Draft { output: Some(payload(&"x".repeat(70_000))), ..full(Kind::Denied, 101) },
            Durability::Synced,
        )
        .unwrap();
    record.append(stated(102), Durability::Synced).unwrap();
    prune_first(&record);
    record.checkpoint().unwrap();
    record.append(note("not covered yet"), Durability::Synced).unwrap();
    record.clone().close().unwrap();
    settle(home.path());
    home
}

/// Removes what the first event has that has any contents.
fn prune_first(record: &Record) {
    let mut total = 0;
    record.prunable(|_, _, bytes| total += bytes).unwrap();
    let policy = RetentionPolicy { keep: Duration::MAX, most_bytes: total - 1 };
    assert!(record.prune(&policy).unwrap().contents > 0);
}

/// Both verifiers find that a content was taken away by hand, also where others were pruned; and where nobody
/// said which those were, both say what that leaves open.
#[test]
fn aud_14_a_content_that_was_taken_away_beside_those_that_were_pruned_is_found() {
    let home = rich();
    let anchor = home.path().join("anchor.log");
    let both = |home: &Path| {
        let (standing, said) = python(&database(home), Some(&anchor));
        let verdict = checked(home);
        assert_eq!(verdict.standing, standing, "{verdict}{said}");
        (verdict, said)
    };
    assert_sound(home.path());
    let (verdict, said) = both(home.path());
    assert_eq!(verdict.standing, Standing::Sound);
    assert!(said.contains("no longer kept") && !said.contains("did not say which"), "{said}");
    for sql in [
        "DELETE FROM small WHERE seq = (SELECT max(seq) FROM small)",
        "DELETE FROM small WHERE seq = (SELECT min(seq) FROM small)",
        "UPDATE small SET input = NULL WHERE seq = (SELECT max(seq) FROM small)",
        "DELETE FROM payload",
        "DELETE FROM small; DELETE FROM payload",
    ] {
        let copy = copy(home.path());
        assert!(enemy(&database(copy.path())).execute_batch(sql).is_ok());
        let (verdict, said) = both(copy.path());
        assert_eq!(verdict.standing, Standing::Broken, "{sql}: {verdict}");
        let fault = verdict.fault.unwrap();
        assert_eq!(fault.what, "payload", "{sql}: {fault}");
        let at = fault.seq.unwrap();
        assert!(said.contains(&format!("event {at} is missing, and was not pruned")), "{said}");
    }
    // Another prune of the same record, and the same again.
    let record = open(home.path());
    record.prune(&RetentionPolicy { keep: Duration::MAX, most_bytes: 65_566 }).unwrap();
    record.clone().close().unwrap();
    settle(home.path());
    assert_eq!(both(home.path()).0.standing, Standing::Sound);
    enemy(&database(home.path())).execute_batch("DELETE FROM payload").unwrap();
    assert_eq!(both(home.path()).0.standing, Standing::Broken);
}

/// Adds an event to a closed record, in its place in the chain, that says that something was pruned.
fn forge_pruned(home: &Path, state: Option<&str>) {
    let record = open(home);
    let receipt = record.append(note("before it"), Durability::Synced).unwrap();
    let last = record.event(&caller().tenant, receipt.seq()).unwrap().unwrap();
    record.close().unwrap();
    let state = state.map(str::to_owned);
    let forged =
        Event { seq: last.seq + 1, kind: Kind::Pruned, state, prev: last.hash, ..last.clone() };
    let mut bytes = Vec::new();
    encode(&forged, &mut bytes).unwrap();
    let insert = "INSERT INTO event SELECT seq + 1, version, id, time, 'pruned', call, parent,
        operation, tool, tenant, subject, door, mode, ?1, decision, rules, bearer, reason, status,
        input_digest, input_length, input_head, input_media, output_digest, output_length,
        output_head, output_media, duration_ns, sandbox, request, owner, hash, ?2
        FROM event WHERE seq = ?3";
    let row = (&forged.state, Digest::of(&bytes).0, last.seq as i64);
    assert_eq!(enemy(&database(home)).execute(insert, row).unwrap(), 1);
    settle(home);
}

#[test]
fn what_an_older_hotcell_pruned_is_told_apart_from_what_is_known() {
    let home = filled(2);
    // As it was written before it was said up to where.
    forge_pruned(home.path(), None);
    let record = open(home.path());
    record.append(full(Kind::Denied, 7), Durability::Synced).unwrap();
    record.close().unwrap();
    settle(home.path());
    let anchor = home.path().join("anchor.log");
    let remove = |which: &str| {
        let sql = format!("DELETE FROM small WHERE {which} (SELECT max(seq) FROM small)");
        enemy(&database(home.path())).execute_batch(&sql).unwrap();
        let verdict = checked(home.path());
        let (standing, said) = python(&database(home.path()), Some(&anchor));
        assert_eq!(verdict.standing, standing, "{verdict}{said}");
        (verdict, said)
    };
    let (verdict, said) = remove("seq <");
    assert_eq!(verdict.standing, Standing::Sound, "{verdict}");
    assert!(verdict.cannot.iter().any(|what| what.contains("did not say which")), "{verdict}");
    assert!(said.contains("did not say which"), "{said}");
    assert_eq!(remove("seq =").0.standing, Standing::Broken);
}

#[test]
fn what_was_pruned_is_the_number_of_an_earlier_event_or_the_record_is_broken() {
    for (state, expected) in [
        (Some("0"), Standing::Sound),
        (Some("2"), Standing::Sound),
        (Some("3"), Standing::Broken),
        (Some("01"), Standing::Broken),
        (Some("+1"), Standing::Broken),
        (Some("-1"), Standing::Broken),
        (Some(""), Standing::Broken),
        (Some("18446744073709551616"), Standing::Broken),
        (None, Standing::Sound),
    ] {
        let home = home();
        forge_pruned(home.path(), state);
        let verdict = checked(home.path());
        assert_eq!(verdict.standing, expected, "{state:?}: {verdict}");
        let anchor = home.path().join("anchor.log");
        let (standing, said) = python(&database(home.path()), Some(&anchor));
        assert_eq!(standing, expected, "{state:?}: {said}");
    }
}

#[test]
fn aud_14_a_sound_record_is_sound_to_both_as_a_database_and_as_an_export() {
    let home = rich();
    let (db, anchor) = (database(home.path()), home.path().join("anchor.log"));
    for anchor in [Some(anchor.as_path()), None] {
        let expected = verify(&db, anchor, From::Start);
        let (standing, said) = python(&db, anchor);
        assert_eq!(standing, expected.standing, "{said}{expected}");
    }
    let lines = home.path().join("export.jsonl");
    let exported = export(&db, &mut fs::File::create(&lines).unwrap()).unwrap();
    let (standing, said) = python(&lines, Some(&anchor));
    assert_eq!(standing, Standing::Sound, "{said}");
    assert!(said.contains(&format!("{} events checked", exported.events)), "{said}");
    assert_eq!(python(&lines, None).0, Standing::Unproven);
    let record = open(home.path());
    record.prune(&RetentionPolicy { most_bytes: 0, ..RetentionPolicy::default() }).unwrap();
    record.close().unwrap();
    assert_eq!(checked(home.path()).standing, Standing::Sound);
    assert_eq!(python(&db, Some(&anchor)).0, Standing::Sound);
}

fn mutate(home: &Path, dice: &mut Dice) -> String {
    let db = database(home);
    let columns = "version id time kind call parent operation tool tenant subject door mode state \
        decision rules bearer reason status input_digest input_length input_head input_media \
        output_digest output_length output_head output_media duration_ns sandbox request owner prev hash";
    let columns: Vec<&str> = columns.split_whitespace().collect();
    let values = [
        "NULL",
        "0",
        "1",
        "-1",
        "9223372036854775807",
        "''",
        "'x'",
        "'intent'",
        "'pruned'",
        "x''",
        "x'00'",
        "zeroblob(16)",
        "zeroblob(32)",
        "randomblob(16)",
        "randomblob(32)",
        "char(0)",
        "CAST(x'ff' AS TEXT)",
        "zeroblob(8)",
    ];
    let seq = 1 + dice.roll(16);
    let sql = match dice.roll(16) {
        0..=5 => {
            let column = columns[dice.roll(columns.len())];
            let value = values[dice.roll(values.len())];
            format!("UPDATE OR IGNORE event SET {column} = {value} WHERE seq = {seq}")
        }
        6 => format!("DELETE FROM event WHERE seq = {seq}"),
        7 => {
            format!("DELETE FROM event WHERE seq > {seq}; DELETE FROM checkpoint WHERE seq > {seq}")
        }
        8 => format!(
            "UPDATE OR IGNORE event SET seq = seq + {} WHERE seq = {seq}",
            1 + dice.roll(40)
        ),
        9 => format!(
            "UPDATE {} WHERE seq = {seq}",
            [
                "payload SET content = CAST(content || 'x' AS BLOB)",
                "small SET input = x''",
                "small SET output = CAST(output || 'x' AS BLOB)",
                "small SET input = output",
                "small SET output = NULL",
            ][dice.roll(5)]
        ),
        10 => format!("DELETE FROM {} WHERE seq = {seq}", ["payload", "small"][dice.roll(2)]),
        11 => [
            "DELETE FROM unfinished",
            "UPDATE unfinished SET seq = seq + 1",
            "UPDATE unfinished SET owner = zeroblob(16)",
        ][dice.roll(3)]
        .to_owned(),
        12 => {
            let digit = dice.roll(10);
            format!(
                "UPDATE checkpoint SET line = replace(line, '{digit}', '{}') WHERE number = {}",
                (digit + 1) % 10,
                1 + dice.roll(4)
            )
        }
        13 => [
            "DELETE FROM checkpoint",
            "DELETE FROM checkpoint WHERE number > 1",
            "UPDATE checkpoint SET is_sunk = 0",
            "UPDATE checkpoint SET seq = 1 WHERE number = 2",
            "UPDATE checkpoint SET line = line || ' '",
            "DROP TABLE checkpoint",
            "INSERT INTO checkpoint SELECT -1, seq, line, 1 FROM checkpoint WHERE number = 1",
        ][dice.roll(7)]
        .to_owned(),
        14 => [
            "PRAGMA user_version = 1",
            "PRAGMA user_version = 9",
            "PRAGMA application_id = 1",
            "DELETE FROM meta WHERE name = 'genesis'",
            "UPDATE meta SET value = zeroblob(16) WHERE name = 'home'",
            "DROP TABLE event",
            "VACUUM",
        ][dice.roll(7)]
        .to_owned(),
        _ => return flip(&[db, home.join("anchor.log")][dice.roll(2)], dice),
    };
    // What its types forbid is not done, and then the record is sound.
    enemy(&db).execute_batch(&sql).ok();
    sql
}

fn flip(path: &PathBuf, dice: &mut Dice) -> String {
    let mut bytes = fs::read(path).unwrap();
    let place = dice.roll(bytes.len());
    match dice.roll(3) {
        0 => bytes.truncate(place),
        _ => bytes[place] ^= 1 << dice.roll(8),
    }
    fs::write(path, bytes).unwrap();
    format!("flip or cut at {place} of {}", path.display())
}

#[test]
fn aud_14_both_say_the_same_of_damaged_records() {
    let home = rich();
    assert_sound(home.path());
    let count = setting("HOTCELL_MUTATIONS", 200);
    let broken: usize = thread::scope(|scope| {
        let halves = [0, 1].map(|half| {
            let home = home.path();
            scope.spawn(move || {
                (half..count).step_by(2).map(|seed| agree(home, seed as u64)).sum::<usize>()
            })
        });
        halves.map(|half| half.join().unwrap()).into_iter().sum()
    });
    assert!(broken > count / 2, "{broken} of {count} were broken: the damage is too mild");
}

/// 1 if it was found to be broken.
fn agree(home: &Path, seed: u64) -> usize {
    let copy = copy(home);
    let mut dice = Dice(seed * 1_000_003);
    let what = mutate(copy.path(), &mut dice);
    let anchor = copy.path().join("anchor.log");
    let ours = checked(copy.path());
    let (theirs, said) = python(&database(copy.path()), Some(&anchor));
    assert_eq!(ours.standing, theirs, "seed {seed}: {what}\nhere: {ours}\nthere: {said}");
    usize::from(theirs == Standing::Broken)
}

#[test]
fn aud_14_every_change_to_an_export_is_found() {
    let home = rich();
    let (lines, anchor) = (home.path().join("export.jsonl"), home.path().join("anchor.log"));
    export(&database(home.path()), &mut fs::File::create(&lines).unwrap()).unwrap();
    let good = fs::read_to_string(&lines).unwrap();
    let rows: Vec<&str> = good.lines().collect();
    let mut dice = Dice(11);
    for trial in 0..setting("HOTCELL_MUTATIONS", 200) / 4 {
        let mut changed: Vec<String> = rows.iter().map(|row| (*row).to_owned()).collect();
        let place = dice.roll(changed.len());
        match dice.roll(4) {
            0 => drop(changed.remove(place)),
            1 => changed.insert(place, rows[place].to_owned()),
            2 => changed.swap(place, (place + 1) % rows.len()),
            _ => {
                let at = dice.roll(rows[place].len());
                let mut bytes = rows[place].as_bytes().to_vec();
                bytes[at] = if bytes[at] == b'7' { b'8' } else { b'7' };
                changed[place] = String::from_utf8_lossy(&bytes).into_owned();
            }
        }
        let path = home.path().join("changed.jsonl");
        fs::write(&path, changed.join("\n") + "\n").unwrap();
        let (standing, said) = python(&path, Some(&anchor));
        assert_eq!(standing, Standing::Broken, "trial {trial}, line {place}: {said}");
    }
}
