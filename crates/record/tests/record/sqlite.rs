//! Damage below the record: to files, pages, locks and settings.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::time::{Duration, Instant};

use hotcell_record::{AppendError, Durability, From, OpenFault, Options, Record, Standing, verify};
use rusqlite::Connection;

use crate::common::*;

#[test]
fn sql_01_a_flipped_byte_is_found_or_changes_nothing_that_is_read() {
    let home = filled(40);
    let pristine = fs::read(database(home.path())).unwrap();
    let rows = |path: &std::path::Path| -> Vec<Vec<rusqlite::types::Value>> {
        let connection = Connection::open(path).unwrap();
        let mut all = connection.prepare("SELECT * FROM event ORDER BY seq").unwrap();
        let rows =
            all.query_map([], |row| (0..33).map(|column| row.get(column)).collect()).unwrap();
        rows.map(Result::unwrap).collect()
    };
    let expected = rows(&database(home.path()));
    let mut dice = Dice(7);
    let mut found = 0;
    let trials = setting("HOTCELL_FLIPS", 200);
    for _ in 0..trials {
        let copy = copy(home.path());
        let (place, bit) = (dice.roll(pristine.len()), dice.roll(8));
        let mut bytes = pristine.clone();
        bytes[place] ^= 1 << bit;
        fs::write(database(copy.path()), &bytes).unwrap();
        let verdict = checked(copy.path());
        if verdict.standing == Standing::Sound {
            // It was in space that nothing uses.
            assert_eq!(rows(&database(copy.path())), expected, "byte {place}, bit {bit}");
        } else {
            found += 1;
        }
    }
    assert!(found > trials / 4, "{found}");
}

/// Leaves a home as a killed process does: with its log, and no clean end.
fn killed_home() -> tempfile::TempDir {
    let home = home();
    let record = open(home.path());
    for number in 0..10 {
        record.append(note(&number.to_string()), Durability::Synced).unwrap();
    }
    record.checkpoint().unwrap();
    let left = self::home();
    for name in ["hotcell.db", "hotcell.db-wal", "hotcell.db-shm", "anchor.log"] {
        fs::copy(home.path().join(name), left.path().join(name)).unwrap();
    }
    fs::create_dir(left.path().join("keys")).unwrap();
    let key = "keys/record.key";
    fs::copy(home.path().join(key), left.path().join(key)).unwrap();
    left
}

#[test]
fn sql_02_a_damaged_log_is_recovered_from_or_reported() {
    let whole = |_: &std::path::Path| {};
    let no_shm = |home: &std::path::Path| fs::remove_file(home.join("hotcell.db-shm")).unwrap();
    let bad_shm =
        |home: &std::path::Path| fs::write(home.join("hotcell.db-shm"), [0xaa; 32768]).unwrap();
    let no_wal = |home: &std::path::Path| fs::remove_file(home.join("hotcell.db-wal")).unwrap();
    let cut_wal = |home: &std::path::Path| {
        let wal = fs::read(home.join("hotcell.db-wal")).unwrap();
        fs::write(home.join("hotcell.db-wal"), &wal[..wal.len() / 2]).unwrap();
    };
    let flipped_wal = |home: &std::path::Path| {
        let mut wal = fs::read(home.join("hotcell.db-wal")).unwrap();
        wal[5000] ^= 1;
        fs::write(home.join("hotcell.db-wal"), wal).unwrap();
    };
    type Case<'a> = (&'a str, &'a dyn Fn(&std::path::Path), bool);
    let cases: [Case<'_>; 6] = [
        ("as it was", &whole, true),
        ("without its index", &no_shm, true),
        ("with a wrong index", &bad_shm, true),
        ("without its log", &no_wal, false),
        ("with half a log", &cut_wal, false),
        ("with a flipped log", &flipped_wal, false),
    ];
    for (what, damage, is_sound) in cases {
        let home = killed_home();
        damage(home.path());
        let opened = Record::open(home.path(), Options::default());
        if is_sound {
            opened.unwrap_or_else(|error| panic!("{what}: {error}")).close().unwrap();
            assert_eq!(assert_sound(home.path()).events, 11, "{what}");
        } else {
            // The checkpoint outside knows of events that are lost.
            let error = opened.err().unwrap_or_else(|| panic!("{what} was opened"));
            assert_eq!(error.fault, OpenFault::Damaged, "{what}: {error}");
            let verdict = checked(home.path());
            assert_eq!(verdict.standing, Standing::Broken, "{what}: {verdict}");
        }
    }
}

#[test]
fn sql_03_what_is_not_ours_is_refused_and_left_as_it_is() {
    let sound = filled(1);
    let bytes = fs::read(database(sound.path())).unwrap();
    let private = |path: &std::path::Path, content: &[u8]| {
        fs::write(path, content).unwrap();
        fs::set_permissions(path, PermissionsExt::from_mode(0o600)).unwrap();
    };
    type Case<'a> = (&'a str, OpenFault, &'a dyn Fn(&std::path::Path));
    let cases: [Case<'_>; 8] = [
        ("directory", OpenFault::NotAFile, &|db| fs::create_dir(db).unwrap()),
        ("empty", OpenFault::NotADatabase, &|db| private(db, b"")),
        ("garbage", OpenFault::NotADatabase, &|db| private(db, &[0x5a; 8192])),
        ("short garbage", OpenFault::NotADatabase, &|db| private(db, b"hello")),
        ("link", OpenFault::NotAFile, &|db| {
            let target = db.with_extension("elsewhere");
            private(&target, &bytes);
            symlink(target, db).unwrap();
        }),
        ("foreign", OpenFault::Foreign, &|db| {
            let connection = Connection::open(db).unwrap();
            connection.execute_batch("PRAGMA application_id = 7; CREATE TABLE t (x)").unwrap();
            fs::set_permissions(db, PermissionsExt::from_mode(0o600)).unwrap();
        }),
        ("open to others", OpenFault::OpenToOthers, &|db| {
            private(db, &bytes);
            fs::set_permissions(db, PermissionsExt::from_mode(0o644)).unwrap();
        }),
        ("log without a database", OpenFault::Gone, &|db| {
            private(&db.with_extension("db-wal"), b"something");
        }),
    ];
    for (what, expected, make) in cases {
        let home = home();
        let db = database(home.path());
        make(&db);
        let before = fs::read(&db).ok();
        let error = Record::open(home.path(), Options::default()).unwrap_err();
        assert_eq!(error.fault, expected, "{what}: {error}");
        assert!(!error.why.is_empty() && !error.fix.is_empty(), "{what}");
        assert_eq!(fs::read(&db).ok(), before, "{what}");
    }
    // A database that was there before is not begun anew.
    let home = filled(1);
    fs::remove_file(database(home.path())).unwrap();
    let error = Record::open(home.path(), Options::default()).unwrap_err();
    assert_eq!(error.fault, OpenFault::Gone, "{error}");
}

#[test]
fn sql_03_a_file_of_another_user_is_refused() {
    if !rustix::process::geteuid().is_root() {
        eprintln!(
            "SKIPPED sql_03_a_file_of_another_user_is_refused: only root can give files away"
        );
        return;
    }
    let home = filled(1);
    std::os::unix::fs::chown(database(home.path()), Some(12345), None).unwrap();
    let error = Record::open(home.path(), Options::default()).unwrap_err();
    assert_eq!(error.fault, OpenFault::OtherOwner, "{error}");
}

#[test]
fn a_missing_or_foreign_key_is_not_replaced() {
    let home = filled(1);
    let key = home.path().join("keys/record.key");
    let own = fs::read(&key).unwrap();
    fs::write(&key, format!("{}\n", "07".repeat(32))).unwrap();
    assert_eq!(Record::open(home.path(), Options::default()).unwrap_err().fault, OpenFault::Key);
    fs::remove_file(&key).unwrap();
    assert_eq!(Record::open(home.path(), Options::default()).unwrap_err().fault, OpenFault::Key);
    assert!(!key.exists());
    fs::write(&key, own).unwrap();
    assert_eq!(Record::open(home.path(), Options::default()).unwrap_err().fault, OpenFault::Key);
    fs::set_permissions(&key, PermissionsExt::from_mode(0o600)).unwrap();
    open(home.path()).close().unwrap();
}

#[test]
fn sql_04_this_sqlite_is_one_that_loses_nothing() {
    let version = rusqlite::version_number();
    assert!(version >= 3_051_003 && version != 3_052_000, "{version}");
}

#[test]
fn sql_06_a_lock_is_waited_for_then_refused_and_nothing_is_lost() {
    let home = home();
    let busy = Duration::from_millis(300);
    let record = Record::open(home.path(), Options { busy, ..Options::default() }).unwrap();
    let other = Connection::open(database(home.path())).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let begun = Instant::now();
    assert_eq!(record.append(note("no"), Durability::Synced), Err(AppendError::Locked));
    assert!(begun.elapsed() >= busy);
    record.append_later(note("kept")).unwrap();
    let reader = Connection::open(database(home.path())).unwrap();
    reader.execute_batch("BEGIN; SELECT count(*) FROM event").unwrap();
    assert_eq!(
        record.begin(full(hotcell_record::Kind::Intent, 1)).unwrap_err(),
        AppendError::Locked
    );
    // Somebody who waits is served as soon as the lock is gone.
    std::thread::scope(|scope| {
        // Opening and closing write nothing where there is nothing to write.
        open(home.path()).close().unwrap();
        let waiter = scope.spawn(|| {
            loop {
                match record.append(note("yes"), Durability::Synced) {
                    Err(AppendError::Locked) => {}
                    done => return done,
                }
            }
        });
        other.execute_batch("COMMIT").unwrap();
        waiter.join().unwrap().unwrap();
    });
    reader.execute_batch("COMMIT").unwrap();
    drop((other, reader));
    record.close().unwrap();
    assert_eq!(assert_sound(home.path()).events, 3);
}

#[test]
fn sql_09_a_backup_under_load_is_sound_and_a_plain_copy_is_found_out() {
    let home = home();
    let record = open(home.path());
    let backup = home.path().join("backup.db");
    let naive = home.path().join("naive.db");
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            (0..300).for_each(|_| append(&record, "x"));
        });
        let verdict = record.backup(&backup).unwrap();
        assert!(verdict.fault.is_none(), "{verdict}");
        writer.join().unwrap();
    });
    record.checkpoint().unwrap();
    let anchor = home.path().join("anchor.log");
    let verdict = verify(&backup, None, From::Start);
    assert!(verdict.fault.is_none() && verdict.events >= 1, "{verdict}");
    // Read through SQLite, so that this process keeps its locks on the file.
    let status = std::process::Command::new("cp").arg(database(home.path())).arg(&naive).status();
    assert!(status.unwrap().success());
    let verdict = verify(&naive, Some(&anchor), From::Start);
    assert_eq!(verdict.standing, Standing::Broken, "{verdict}");
    record.close().unwrap();
}

#[test]
fn sql_10_settings_are_what_they_have_to_be_where_it_is_written() {
    let home = home();
    let record = open(home.path());
    for durability in [Durability::Synced, Durability::Committed, Durability::Synced] {
        let read = move |tx: &rusqlite::Transaction<'_>| -> rusqlite::Result<_> {
            let number = |name: &str| tx.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
            let mode: String = tx.pragma_query_value(None, "journal_mode", |row| row.get(0))?;
            let names =
                ["synchronous", "foreign_keys", "trusted_schema", "application_id", "user_version"];
            let values = names.into_iter().map(number).collect::<Result<Vec<_>, _>>()?;
            Ok(((mode, values), Vec::new()))
        };
        let ((mode, values), _) = record.write(durability, read).unwrap();
        let synchronous = if durability == Durability::Synced { 2 } else { 1 };
        assert_eq!((mode.as_str(), values), ("wal", vec![synchronous, 1, 0, 0x686f_7463, 4]));
    }
}

#[test]
fn sql_05_checkpoints_of_every_kind_beside_eight_writers_lose_no_row() {
    const WRITERS: u64 = 8;
    let home = home();
    open(home.path()).close().unwrap();
    let each = setting("HOTCELL_SOAK", 100).min(2000) as u64;
    let is_over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|_| {
                scope.spawn(|| {
                    let busy = Duration::from_secs(60);
                    let options = Options { busy, checkpoint_events: 50, ..Options::default() };
                    let record = Record::open(home.path(), options).unwrap();
                    (0..each).for_each(|_| append(&record, "x"));
                    record.close().unwrap();
                })
            })
            .collect();
        for _ in 0..2 {
            scope.spawn(|| {
                let connection = Connection::open(database(home.path())).unwrap();
                let kinds = ["PASSIVE", "FULL", "RESTART", "TRUNCATE"].into_iter().cycle();
                for kind in kinds {
                    if is_over.load(std::sync::atomic::Ordering::Relaxed) {
                        return;
                    }
                    let kind = format!("PRAGMA wal_checkpoint({kind})");
                    // That it is busy is one of the answers.
                    connection.query_row(&kind, [], |_| Ok(())).ok();
                }
            });
        }
        for writer in writers {
            writer.join().unwrap();
        }
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    assert_eq!(assert_sound(home.path()).events, 1 + WRITERS * each);
    let connection = Connection::open(database(home.path())).unwrap();
    let whole: String =
        connection.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(whole, "ok");
}
