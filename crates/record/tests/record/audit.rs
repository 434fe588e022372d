//! Somebody changes the record, or tries to make it say what did not happen.

use std::fs;
use std::io::BufRead;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use hotcell_record::{
    Draft, Durability, Filter, From, Kind, MOST_CONTENT, MOST_NAME, MOST_REASON, MOST_RULES,
    Options, Pattern, Payload, ReadError, Record, Secret, Sink, Standing, restore, verify,
};
use hotcell_types::Name;
use rusqlite::Connection;

use crate::common::*;

fn columns(connection: &Connection) -> Vec<(String, String)> {
    let mut columns =
        connection.prepare("SELECT name, type FROM pragma_table_info('event')").unwrap();
    let rows = columns.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    rows.map(Result::unwrap).collect()
}

#[test]
fn aud_01_a_change_to_any_column_of_any_row_is_found() {
    let home = filled(4);
    let good = assert_sound(home.path());
    let names = columns(&Connection::open(database(home.path())).unwrap());
    assert_eq!(names.len(), 33);
    let mut dice = Dice(1);
    for (name, kind) in &names {
        for null in [false, true] {
            let seq = 2 + dice.roll(good.events as usize - 2) as i64;
            let copy = copy(home.path());
            let enemy = enemy(&database(copy.path()));
            let change = match (null, name.as_str(), kind.as_str()) {
                (true, ..) => "NULL",
                (false, "seq", _) => "seq + 100",
                (false, _, "INTEGER") => "ifnull(%, 0) + 1",
                (false, _, "BLOB") => "CAST(ifnull(hex(%), '') || 'x' AS BLOB)",
                _ => "ifnull(%, '') || 'x'",
            };
            let change = change.replace('%', name);
            let update = format!(
                "UPDATE event SET {name} = {change} WHERE seq = ?1 AND {name} IS NOT {change}"
            );
            // Some columns cannot be null, and some are.
            let changed = enemy.execute(&update, [seq]);
            if null && changed != Ok(1) {
                continue;
            }
            assert_eq!(changed, Ok(1), "{name}");
            drop(enemy);
            let verdict = checked(copy.path());
            assert_eq!(verdict.standing, Standing::Broken, "{name}: {verdict}");
            let found = verdict.fault.unwrap();
            let near = if name == "seq" { seq..=seq + 100 } else { seq..=seq };
            assert!(
                found.seq.is_some_and(|found| near.contains(&(found as i64))),
                "{name}: {found}"
            );
        }
    }
}

#[test]
fn aud_01_a_change_beside_the_chain_is_found() {
    let home = filled(4);
    let record = open(home.path());
    let large = Draft { input: Some(payload(&"x".repeat(2000))), ..note("large") };
    record.append(large, Durability::Synced).unwrap();
    record.close().unwrap();
    settle(home.path());
    for change in [
        "UPDATE meta SET value = randomblob(16) WHERE name = 'home'",
        "UPDATE meta SET value = randomblob(32) WHERE name = 'genesis'",
        "DELETE FROM meta",
        "UPDATE payload SET content = CAST(content || 'x' AS BLOB)",
        "UPDATE payload SET digest = randomblob(32)",
        "DELETE FROM payload",
        "UPDATE small SET input = CAST(input || 'x' AS BLOB) WHERE seq = 4",
        "UPDATE small SET input = output, output = input WHERE seq = 4",
        "UPDATE small SET output = NULL WHERE seq = 4",
        "UPDATE small SET seq = -seq WHERE seq = 4",
        "DELETE FROM small WHERE seq = 4",
        "INSERT INTO unfinished VALUES (randomblob(16), 2, randomblob(16))",
        "UPDATE checkpoint SET line = replace(line, 'count=', 'count=1') WHERE number = 1",
        "UPDATE checkpoint SET seq = seq + 1 WHERE number = 2",
        "DELETE FROM checkpoint WHERE number = 1",
        "DELETE FROM checkpoint WHERE number = (SELECT max(number) FROM checkpoint)",
        "UPDATE checkpoint SET number = number + 1 WHERE number = (SELECT max(number) FROM checkpoint)",
        "DELETE FROM checkpoint",
        "INSERT INTO checkpoint SELECT -1, seq, line, 1 FROM checkpoint WHERE number = 1",
        "PRAGMA application_id = 7",
        "DROP TABLE event",
        "DROP TABLE unfinished",
        "DROP TABLE payload",
        "DROP TABLE small",
        "DROP TABLE checkpoint",
    ] {
        let copy = copy(home.path());
        enemy(&database(copy.path())).execute_batch(change).unwrap();
        let verdict = checked(copy.path());
        assert_eq!(verdict.standing, Standing::Broken, "{change}: {verdict}");
    }
}

#[test]
fn aud_02_rows_that_are_deleted_inserted_swapped_doubled_or_renumbered_are_found() {
    let home = filled(6);
    let all = "version, id, time, kind, call, parent, operation, tool, tenant, subject, door, mode, \
        state, decision, rules, bearer, reason, status, input_digest, input_length, input_head, \
        input_media, output_digest, output_length, output_head, output_media, duration_ns, sandbox, \
        request, owner, prev, hash";
    for change in [
        "DELETE FROM event WHERE seq = 7".to_owned(),
        "DELETE FROM event WHERE seq = 1".to_owned(),
        "DELETE FROM event WHERE seq < 8".to_owned(),
        "DELETE FROM event".to_owned(),
        // As if it had never been there.
        "DELETE FROM event WHERE seq = 7; UPDATE event SET seq = -seq WHERE seq > 7;
            UPDATE event SET seq = -seq - 1 WHERE seq < 0"
            .to_owned(),
        "UPDATE event SET seq = -5 WHERE seq = 5; UPDATE event SET seq = 5 WHERE seq = 6;
            UPDATE event SET seq = 6 WHERE seq = -5"
            .to_owned(),
        "UPDATE event SET seq = seq + 1000".to_owned(),
        format!(
            "DROP INDEX event_call; INSERT INTO event SELECT seq + 1000, {all} FROM event WHERE seq = 5"
        ),
        format!(
            "DROP INDEX event_call; INSERT INTO event SELECT -1, {all} FROM event WHERE seq = 5"
        ),
        format!(
            "DROP INDEX event_call; INSERT INTO event SELECT 0, {all} FROM event WHERE seq = 5"
        ),
        format!(
            "DROP INDEX event_call; CREATE TEMP TABLE five AS SELECT * FROM event WHERE seq = 5;
            UPDATE event SET seq = -seq WHERE seq > 5; UPDATE event SET seq = 1 - seq WHERE seq < 0;
            INSERT INTO event SELECT 6, {all} FROM five"
        ),
    ] {
        let copy = copy(home.path());
        enemy(&database(copy.path())).execute_batch(&change).unwrap();
        let verdict = checked(copy.path());
        assert_eq!(verdict.standing, Standing::Broken, "{change}: {verdict}");
    }
}

#[test]
fn aud_03_a_cut_end_is_found_by_the_checkpoint_outside() {
    let home = filled(6);
    let last = assert_sound(home.path()).events;
    for cut in [1, 2, 5, last - 1] {
        let copy = copy(home.path());
        let enemy = enemy(&database(copy.path()));
        // Everything that could give it away inside the database goes as well.
        enemy.execute("DELETE FROM event WHERE seq > ?1", [(last - cut) as i64]).unwrap();
        enemy.execute("DELETE FROM checkpoint WHERE seq > ?1", [(last - cut) as i64]).unwrap();
        enemy.execute_batch("DELETE FROM unfinished").unwrap();
        let open =
            "INSERT INTO unfinished SELECT call, seq, owner FROM event AS i WHERE kind = 'intent'
            AND NOT EXISTS (SELECT 1 FROM event WHERE call = i.call AND kind = 'outcome')";
        enemy.execute_batch(open).unwrap();
        drop(enemy);
        let verdict = checked(copy.path());
        assert_eq!(verdict.standing, Standing::Broken, "{cut}: {verdict}");
        // Without what is outside nothing is wrong, and nothing is proven.
        let inside = verify(&database(copy.path()), None, From::Start);
        assert_eq!(inside.standing, Standing::Unproven, "{cut}: {inside}");
    }
}

#[test]
fn aud_03_a_rewrite_with_right_hashes_and_an_old_copy_are_found_by_the_checkpoint_outside() {
    let home = home();
    let record = open(home.path());
    (0..20).for_each(|n| append(&record, &n.to_string()));
    let backup = home.path().join("backup.db");
    record.backup(&backup).unwrap();
    (0..20).for_each(|n| append(&record, &n.to_string()));
    record.close().unwrap();
    settle(home.path());
    let old = copy(home.path());
    fs::copy(&backup, database(old.path())).unwrap();
    let verdict = checked(old.path());
    assert_eq!(verdict.standing, Standing::Broken, "{verdict}");
    assert!(verdict.fault.unwrap().to_string().contains("old copy"));
    // Another history under the same name: hotcell itself writes it, and its checkpoints are put in.
    let other = self::home();
    let forger = open(other.path());
    (0..40).for_each(|n| append(&forger, &n.to_string()));
    forger.close().unwrap();
    fs::copy(home.path().join("anchor.log"), other.path().join("anchor.log")).unwrap();
    let verdict = checked(other.path());
    assert_ne!(verdict.standing, Standing::Sound, "{verdict}");
    // And it does not open.
    fs::copy(home.path().join("anchor.log"), old.path().join("anchor.log")).unwrap();
    fs::create_dir(old.path().join("keys")).unwrap();
    fs::copy(home.path().join("keys/record.key"), old.path().join("keys/record.key")).unwrap();
    let error = Record::open(old.path(), Options::default()).unwrap_err();
    assert!(error.why.contains("old copy"), "{error}");
}

#[test]
fn aud_06_eight_threads_and_two_processes_make_one_chain() {
    if let Some(home) = child_home() {
        return append_from_threads(&home);
    }
    let home = home();
    open(home.path()).close().unwrap();
    let test = "audit::aud_06_eight_threads_and_two_processes_make_one_chain";
    let children: Vec<_> =
        (0..2).map(|_| child(test, home.path()).stdout(Stdio::null()).spawn().unwrap()).collect();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    let each = setting("HOTCELL_SOAK", 2000) as u64;
    let verdict = assert_sound(home.path());
    assert_eq!(verdict.events, 1 + 2 * 8 * each);
    let connection = Connection::open(database(home.path())).unwrap();
    let links = "SELECT count(DISTINCT prev), count(DISTINCT hash), count(DISTINCT id) FROM event";
    let links: (i64, i64, i64) =
        connection.query_row(links, [], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).unwrap();
    let events = verdict.events as i64;
    assert_eq!(links, (events, events, events));
}

fn append_from_threads(home: &std::path::Path) {
    let options = Options { busy: std::time::Duration::from_secs(60), ..Options::default() };
    let record = Record::open(home, options).unwrap();
    let each = setting("HOTCELL_SOAK", 2000);
    thread::scope(|scope| {
        for thread in 0..8 {
            let record = &record;
            scope.spawn(move || {
                for number in 0..each {
                    let durability =
                        if number % 10 == 0 { Durability::Synced } else { Durability::Committed };
                    record.append(note(&format!("{thread} {number}")), durability).unwrap();
                }
            });
        }
    });
    record.close().unwrap();
}

#[test]
fn aud_09_text_of_any_kind_is_data_in_the_record_and_in_its_export() {
    let home = home();
    let record = open(home.path());
    let hostile = [
        "line\nfeed\r\n",
        "\u{1b}[2J\u{1b}]0;title\u{7}",
        "{\"type\":\"end\",\"events\":0}",
        "=cmd|' /C calc'!A0,\"",
        "a\u{0}b",
        "\u{202e}gnp.exe \u{feff}\u{2028}",
        "'; DROP TABLE event; --",
    ];
    for text in hostile {
        let text = text.to_owned();
        let draft = Draft {
            operation: Some(text.clone()),
            tool: Some(text.clone()),
            rules: vec![text.clone(), text.clone()],
            request: Some(text.clone()),
            input: Some(Payload { media: text.clone(), content: text.clone().into_bytes() }),
            ..note(&text)
        };
        record.append(draft, Durability::Committed).unwrap();
    }
    let events = record.events(&Filter { after: 1, ..all() }).unwrap();
    for (event, text) in events.iter().zip(hostile) {
        assert_eq!(event.reason.as_deref(), Some(text));
        assert_eq!(record.input(event).unwrap().unwrap(), text.as_bytes());
    }
    let mut export = Vec::new();
    record.export(&mut export).unwrap();
    let lines: Vec<serde_json::Value> =
        export.lines().map(|line| serde_json::from_str(&line.unwrap()).unwrap()).collect();
    assert_eq!(lines.len(), 1 + 1 + hostile.len() + 1 + 1);
    for (line, text) in lines[2..].iter().zip(hostile) {
        assert_eq!((&line["reason"], &line["rules"][1]), (&text.into(), &text.into()));
    }
    // Nothing in it that a terminal or a reader of lines would take for its own.
    let raw = String::from_utf8(export).unwrap();
    assert!(!raw.contains(['\u{1b}', '\u{7}', '\r', '\u{0}']));
    record.close().unwrap();
    assert_sound(home.path());
}

#[test]
fn aud_10_what_is_huge_is_kept_in_part_with_the_digest_and_length_of_the_whole() {
    let home = home();
    let record = open(home.path());
    let (huge, long) = (".".repeat(100 << 20), ".".repeat(1 << 20));
    let draft = Draft {
        operation: Some("é".repeat(1 << 20)),
        rules: vec!["r".repeat(1 << 10); 1000],
        input: Some(payload(&huge)),
        ..note(&long)
    };
    let receipt = record.append(draft, Durability::Committed).unwrap();
    let event = record.event(&Name::LOCAL, receipt.seq()).unwrap().unwrap();
    assert_eq!(record.input(&event).unwrap().unwrap(), huge.as_bytes()[..MOST_CONTENT]);
    let reason = event.reason.unwrap();
    let more = format!("…[{} bytes more]", (1 << 20) - MOST_REASON);
    assert!(reason.ends_with(&more) && reason.len() <= MOST_REASON + more.len());
    assert!(event.operation.unwrap().len() <= MOST_NAME + 40);
    assert_eq!(event.rules.len(), MOST_RULES + 1);
    assert_eq!(event.rules[MOST_RULES], format!("…[{} rules more]", 1000 - MOST_RULES));
    let input = event.input.unwrap();
    assert_eq!(input.length, 100 << 20);
    assert_eq!(input.digest, hotcell_record::Digest::of(huge.as_bytes()));
    record.close().unwrap();
    assert_sound(home.path());
    settle(home.path());
    assert!(database(home.path()).metadata().unwrap().len() < 1 << 20);
}

#[test]
fn aud_11_secrets_reach_neither_the_database_nor_its_log() {
    let home = home();
    let patterns = vec![Pattern::prefix("ours", "hc_live_", 4)];
    let record = Record::open(home.path(), Options { patterns, ..Options::default() }).unwrap();
    let secrets = [
        "sk-proj-S3CRETS3CRETS3CRET",
        "ghp_S3CRETS3CRETS3CRET",
        "AKIAS3CRETS3CRETS3CR",
        "hc_live_S3CRETS3CRET",
        "declared S3CRET value",
        "-----BEGIN PRIVATE KEY-----\nS3CRETS3CRET\n-----END PRIVATE KEY-----",
    ];
    for secret in secrets {
        let text = format!("{{\"a\":\"{secret}\"}}");
        let draft = Draft {
            operation: Some(text.clone()),
            tool: Some(text.clone()),
            mode: Some(text.clone()),
            state: Some(text.clone()),
            rules: vec![text.clone()],
            bearer: Some(text.clone()),
            sandbox: Some(text.clone()),
            request: Some(text.clone()),
            input: Some(Payload { media: text.clone(), content: text.clone().into_bytes() }),
            output: Some(payload(&format!("{} {text}", "x".repeat(MOST_CONTENT - 20)))),
            secrets: vec![Secret::new("declared S3CRET value")],
            ..note(&text)
        };
        record.append(draft, Durability::Synced).unwrap();
    }
    let is_clean = |name: &str| {
        let bytes = fs::read(home.path().join(name)).unwrap();
        !bytes.windows(6).any(|window| window == b"S3CRET")
    };
    assert!(is_clean("hotcell.db-wal"));
    let verdict = record.verify(From::Start).unwrap();
    assert_eq!(verdict.standing, Standing::Sound, "{verdict}");
    let event = record.event(&Name::LOCAL, 2).unwrap().unwrap();
    assert_eq!(event.reason.as_deref(), Some("{\"a\":\"[redacted:sk]\"}"));
    record.close().unwrap();
    settle(home.path());
    assert!(is_clean("hotcell.db"));
    assert_sound(home.path());
}

#[test]
fn aud_12_the_record_verifies_after_reopening_vacuum_backup_restore_and_export() {
    let home = home();
    let record = open(home.path());
    for time in [1, 999_999_999, 1_700_000_000_123_456_789, -1, i64::MAX, i64::MIN] {
        let unicode = "e\u{301} é \u{1f9ea} \u{fffd}";
        record.append(Draft { time, ..note(unicode) }, Durability::Committed).unwrap();
    }
    let mut before = Vec::new();
    record.export(&mut before).unwrap();
    let events = record.events(&all()).unwrap();
    record.close().unwrap();
    assert_eq!(assert_sound(home.path()).events, 7);
    Connection::open(database(home.path()))
        .unwrap()
        .execute_batch("VACUUM; REINDEX; ANALYZE")
        .unwrap();
    assert_sound(home.path());
    let record = open(home.path());
    assert_eq!(record.events(&all()).unwrap(), events);
    let backup = home.path().join("backup.db");
    record.backup(&backup).unwrap();
    record.close().unwrap();
    let old = restore(home.path(), &backup).unwrap();
    assert!(old.exists());
    let record = open(home.path());
    assert_eq!(record.events(&all()).unwrap(), events);
    let mut after = Vec::new();
    record.export(&mut after).unwrap();
    let only_events = |export: &[u8]| {
        let lines: Vec<String> = export.lines().map(Result::unwrap).collect();
        lines.into_iter().filter(|line| line.contains("\"type\":\"event\"")).collect::<Vec<_>>()
    };
    assert_eq!(only_events(&before), only_events(&after));
    record.checkpoint().unwrap();
    record.append(note("later"), Durability::Synced).unwrap();
    record.close().unwrap();
    assert_sound(home.path());
}

#[test]
fn aud_15_the_records_own_connection_cannot_rewrite_it() {
    let home = home();
    let record = open(home.path());
    record.append(note("stays"), Durability::Synced).unwrap();
    let before = record.events(&all()).unwrap();
    for attempt in [
        "UPDATE event SET reason = 'other' WHERE seq = 2",
        "DELETE FROM event WHERE seq = 2",
        "DELETE FROM event",
        "INSERT OR REPLACE INTO event SELECT * FROM event WHERE seq = 2",
        "REPLACE INTO event SELECT * FROM event WHERE seq = 1",
        "UPDATE meta SET value = x'00'",
        "DELETE FROM meta",
        "DELETE FROM checkpoint",
        "UPDATE checkpoint SET line = 'x'",
        "PRAGMA writable_schema = 1; DELETE FROM sqlite_schema WHERE type = 'trigger'",
    ] {
        let tried = record.write(Durability::Committed, move |tx| {
            tx.execute_batch(attempt)?;
            Ok::<_, rusqlite::Error>(((), Vec::new()))
        });
        assert!(tried.is_err(), "{attempt}");
    }
    assert_eq!(record.events(&all()).unwrap(), before);
    record.append(note("goes on"), Durability::Synced).unwrap();
    record.close().unwrap();
    assert_sound(home.path());
}

#[test]
fn aud_16_older_tables_are_brought_up_to_date_and_newer_ones_refused() {
    let home = filled(2);
    // As the first version left it: without checkpoints, and with all contents by their digests.
    let enemy = Connection::open(database(home.path())).unwrap();
    enemy
        .execute_batch(
            "INSERT OR IGNORE INTO payload
                SELECT input_digest, seq, small.time, input FROM small JOIN event USING (seq)
                UNION ALL
                SELECT output_digest, seq, small.time, output FROM small JOIN event USING (seq);
            DROP TABLE small; DROP TABLE checkpoint; PRAGMA user_version = 1",
        )
        .unwrap();
    drop(enemy);
    fs::remove_file(home.path().join("anchor.log")).unwrap();
    assert_eq!(checked(home.path()).standing, Standing::Unproven);
    let record = open(home.path());
    record.append(note("new"), Durability::Synced).unwrap();
    record.close().unwrap();
    assert_sound(home.path());
    let newer = Connection::open(database(home.path())).unwrap();
    newer.execute_batch("PRAGMA user_version = 5").unwrap();
    drop(newer);
    let error = Record::open(home.path(), Options::default()).unwrap_err();
    assert_eq!(error.fault, hotcell_record::OpenFault::Newer, "{error}");
    assert_eq!(checked(home.path()).standing, Standing::Unproven);
}

#[test]
fn aud_16_an_event_of_an_unknown_encoding_is_not_taken_for_sound() {
    let home = filled(2);
    enemy(&database(home.path()))
        .execute_batch("UPDATE event SET version = 2 WHERE seq = 4")
        .unwrap();
    let verdict = checked(home.path());
    let fault = verdict.fault.unwrap();
    assert_eq!((fault.seq, fault.what.as_str()), (Some(4), "version"));
}

/// Into which nobody writes.
fn fifo(home: &Path) -> PathBuf {
    let path = home.join("fifo.log");
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    path
}

#[test]
fn checkpoints_are_not_poured_into_what_keeps_nothing() {
    let home = home();
    let sink = Sink::File(fifo(home.path()));
    let record = Record::open(&home.path().join("home"), Options { sink, ..Options::default() });
    let record = record.unwrap();
    record.checkpoint().unwrap();
    let missed = Filter { kind: Some(Kind::CheckpointMissed), ..all() };
    let missed = record.events(&missed).unwrap();
    let why = missed.first().and_then(|event| event.reason.clone()).unwrap_or_default();
    assert!(why.contains("not a regular file"), "{why}");
    record.close().unwrap();
}

#[test]
fn aud_20_what_is_not_there_is_never_fine() {
    let home = filled(2);
    let anchor = home.path().join("anchor.log");
    let db = database(home.path());
    assert_sound(home.path());
    let never = |verdict: hotcell_record::Verdict, what: &str| {
        assert_ne!(verdict.standing, Standing::Sound, "{what}: {verdict}");
        assert!(verdict.fault.is_some() || !verdict.missing.is_empty(), "{what}");
    };
    never(verify(&db, None, From::Start), "no anchor");
    never(verify(&db, Some(&home.path().join("none")), From::Start), "no such anchor");
    never(verify(&db, Some(home.path()), From::Start), "a directory as an anchor");
    never(verify(&db, Some(&fifo(home.path())), From::Start), "a FIFO as an anchor");
    never(verify(&db, Some(Path::new("/dev/zero")), From::Start), "a device as an anchor");
    let empty = home.path().join("empty.log");
    fs::write(&empty, "").unwrap();
    never(verify(&db, Some(&empty), From::Start), "an empty anchor");
    fs::write(&empty, "hotcell-checkpoint 1 home=\nnothing\n").unwrap();
    never(verify(&db, Some(&empty), From::Start), "an anchor of half lines");
    let other = filled(1);
    never(verify(&db, Some(&other.path().join("anchor.log")), From::Start), "another's anchor");
    never(verify(&home.path().join("none.db"), Some(&anchor), From::Start), "no database");
    never(verify(home.path(), Some(&anchor), From::Start), "a directory as a database");
    for (name, content) in
        [("zero.db", &b""[..]), ("text.db", b"SQLite format 3\0 but not"), ("x.db", b"x")]
    {
        let path = home.path().join(name);
        fs::write(&path, content).unwrap();
        never(verify(&path, Some(&anchor), From::Start), name);
    }
    let blank = home.path().join("blank.db");
    let connection = Connection::open(&blank).unwrap();
    connection
        .execute_batch("PRAGMA application_id = 0x686f7463; PRAGMA user_version = 3")
        .unwrap();
    drop(connection);
    never(verify(&blank, Some(&anchor), From::Start), "no tables");
    // A chain that begins in its middle, with everything else in order.
    let copy = copy(home.path());
    enemy(&database(copy.path())).execute_batch("DELETE FROM event WHERE seq < 3").unwrap();
    never(checked(copy.path()), "no genesis");
}

const VERIFIER: &str = "audit::a_process_that_verifies_a_long_record";

/// How much memory this process has had at most, in KiB.
fn peak() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn a_process_that_verifies_a_long_record() {
    let Some(home) = child_home() else { return };
    assert_sound(&home);
    println!("PEAK {}", peak());
}

#[test]
fn aud_13_a_long_record_is_verified_as_a_stream_and_who_writes_does_not_wait() {
    const TOGETHER: usize = 500;
    let home = home();
    let record = open(home.path());
    // With contents, of which there is more than a verifier may have.
    for turn in 0..setting("HOTCELL_EVENTS", 4000) / TOGETHER {
        let drafts = (0..TOGETHER).map(|number| Draft {
            input: Some(payload(&format!("{turn} {number} {}", "x".repeat(8000)))),
            ..note("long")
        });
        let drafts: Vec<_> = drafts.collect();
        record.write(Durability::Committed, move |_| Ok::<_, ()>(((), drafts))).unwrap();
    }
    record.checkpoint().unwrap();
    let mut verifier = child(VERIFIER, home.path());
    let mut verifier = verifier.stdout(Stdio::piped()).spawn().unwrap();
    let mut longest = std::time::Duration::ZERO;
    let mut beside = 0;
    while verifier.try_wait().unwrap().is_none() {
        let begun = std::time::Instant::now();
        append(&record, "beside");
        longest = longest.max(begun.elapsed());
        beside += 1;
        thread::sleep(std::time::Duration::from_millis(2));
    }
    let said = std::io::read_to_string(verifier.stdout.take().unwrap()).unwrap();
    let (_, peak) = said.split_once("PEAK ").expect(&said);
    let peak: u64 = peak.lines().next().unwrap().parse().unwrap();
    assert!(peak < 24 << 10, "{peak} KiB");
    assert!(beside > 5, "{beside}: it was over before anybody wrote");
    // A disk that others use takes its time as well.
    assert!(longest < std::time::Duration::from_millis(1000), "{longest:?}");
    record.close().unwrap();
}

/// Two that write make one chain (`aud_06`); what has to be alone is refused as long as somebody is there.
#[test]
fn aud_18_a_home_in_use_is_not_replaced() {
    let home = home();
    let one = open(home.path());
    append(&one, "one");
    let backup = home.path().join("backup.db");
    one.backup(&backup).unwrap();
    let two = open(home.path());
    append(&two, "two");
    assert!(restore(home.path(), &backup).is_err(), "two others use it");
    one.close().unwrap();
    assert!(restore(home.path(), &backup).is_err(), "another uses it");
    append(&two, "three");
    two.close().unwrap();
    assert_eq!(assert_sound(home.path()).events, 4);
}

/// Whoever asked may go away: a long record is not read to its end for nobody.
#[test]
fn a_verification_that_nobody_waits_for_is_broken_off() {
    let home = home();
    let record = open(home.path());
    for number in 0..3500 {
        record.append_later(note(&number.to_string())).unwrap();
    }
    record.settle().unwrap();
    let here = thread::current().id();
    // How often it is looked between two steps, whatever is looked for beside that.
    let looks = |is_wanted: bool| {
        let looks = AtomicUsize::new(0);
        let verdict = record.verify_while(From::Start, &|| {
            let own = usize::from(thread::current().id() == here);
            looks.fetch_add(own, Ordering::SeqCst);
            is_wanted
        });
        (verdict, looks.into_inner())
    };
    let (verdict, steps) = looks(true);
    assert!(verdict.unwrap().events > 3500 && steps > 4, "{steps}");
    let (verdict, steps) = looks(false);
    assert!(matches!(verdict, Err(ReadError::Unwanted)), "{verdict:?}");
    assert!(steps <= 2, "{steps}");
    // The connection is as good as before.
    assert_eq!(record.verify(From::Start).unwrap().fault, None);
}
