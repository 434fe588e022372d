//! No space, no right to write: nothing is recorded, everybody hears of it, and it goes on after.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use hotcell_record::{AppendError, Draft, Durability, Kind, Options, Payload, Record, Standing};

use crate::common::*;
use crate::mutations::python;

const CHILD: &str = "disk::a_process_on_a_full_disk";

/// Random enough that nothing is kept twice.
fn large(number: u64) -> Draft {
    let content: Vec<u8> =
        (0..60_000_u64).map(|n| (n * n + number * 7919 + n * number) as u8).collect();
    let content = [number.to_le_bytes().to_vec(), content].concat();
    Draft { input: Some(Payload { media: "x".into(), content }), ..note("large") }
}

/// The home is on a file system of two megabytes, beside a file that can be removed to make room.
#[test]
fn a_process_on_a_full_disk() {
    let Some(home) = child_home() else { return };
    let record = Record::open(&home, Options::default()).unwrap();
    let intent = record.begin(full(Kind::Intent, 1)).unwrap();
    let mut number = 0;
    let error = loop {
        number += 1;
        assert!(number < 1000, "the disk does not fill");
        if let Err(error) = record.append(large(number), Durability::Synced) {
            break error;
        }
    };
    assert!(matches!(error, AppendError::Full | AppendError::Failed(_)), "{error}");
    let head = record.events(&all()).unwrap().len() as u64;
    assert_eq!(head, 1 + 1 + number - 1, "what failed is not there in part");
    // No intent, no effect. Small ones may still fit; large ones do not.
    let mut failed = 0;
    for number in 0..20 {
        let begun = Draft { call: Some(call(100 + number)), ..large(number + 5000) };
        failed += u64::from(record.begin(begun).is_err());
    }
    assert!(failed > 0);
    // An outcome that did not fit comes when there is room.
    let outcome = Draft { output: large(9999).input, ..full(Kind::Outcome, 1) };
    let finished = intent.finish(outcome);
    fs::remove_file(home.parent().unwrap().join("ballast")).unwrap();
    record.append(note("room"), Durability::Synced).unwrap();
    let end = record.runs(&all()).unwrap()[0].end.clone();
    assert_eq!(end.map(|end| end.kind), Some(Kind::Outcome), "{finished:?}");
    record.close().unwrap();
    assert_sound(&home);
    println!("DONE {error}");
}

#[test]
fn aud_07_dsk_01_on_a_full_disk_nothing_is_begun_and_it_recovers() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED aud_07 on a full disk: only root can mount one");
        return;
    }
    let disk = home();
    let home = disk.path().join("home");
    let script = "mount -t tmpfs -o size=2m tmpfs \"$0\" && head -c 400000 /dev/zero > \"$0/ballast\" && exec \"$@\"";
    mounted(script, disk.path(), CHILD, &home);
}

const LIMITED: &str = "disk::a_process_with_limited_files";

/// No file can grow beyond a limit: what an ordinary user can try.
#[test]
fn a_process_with_limited_files() {
    let Some(home) = child_home() else { return };
    let record = Record::open(&home, Options::default()).unwrap();
    let mut number = 0;
    let error = loop {
        number += 1;
        assert!(number < 1000, "there is no limit");
        if let Err(error) = record.append(large(number), Durability::Synced) {
            break error;
        }
    };
    let events = record.events(&all()).unwrap().len() as u64;
    assert_eq!(events, number, "what failed is not there");
    println!("DONE {error}");
    // Without a clean end: it cannot write any more.
    std::process::exit(0);
}

#[test]
fn aud_07_a_file_that_cannot_grow_refuses_and_stays_whole() {
    let home = home();
    open(home.path()).close().unwrap();
    let child = child(LIMITED, home.path());
    let output = Command::new("sh")
        .args(["-c", "trap '' XFSZ; ulimit -f 2000; exec \"$0\" \"$@\""])
        .arg(child.get_program())
        .args(child.get_args())
        .env("HOTCELL_CHILD", home.path())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("DONE"), "{said}{}", String::from_utf8_lossy(&output.stderr));
    open(home.path()).close().unwrap();
    assert_sound(home.path());
}

const FULL_AT_END: &str = "disk::a_process_whose_disk_is_full_at_the_end";

#[test]
fn a_process_whose_disk_is_full_at_the_end() {
    let Some(home) = child_home() else { return };
    let record = Record::open(&home, Options::default()).unwrap();
    let intent = record.begin(full(Kind::Intent, 1)).unwrap();
    intent.finish(full(Kind::Outcome, 1)).unwrap();
    let more = home.parent().unwrap().join("more");
    let mut file = fs::File::create(&more).unwrap();
    while file.write_all(&[7; 4096]).is_ok() {}
    let error = record.close().unwrap_err();
    assert!(matches!(error, AppendError::Full | AppendError::Failed(_)), "{error}");
    drop(file);
    fs::remove_file(&more).unwrap();
    // Only the signature is missing, and the next end makes it.
    let verdict = checked(&home);
    assert!(verdict.fault.is_none() && verdict.events == 3, "{verdict}");
    let record = Record::open(&home, Options::default()).unwrap();
    assert_eq!(record.runs(&all()).unwrap()[0].end.as_ref().unwrap().kind, Kind::Outcome);
    record.close().unwrap();
    let verdict = assert_sound(&home);
    assert_eq!((verdict.covered, verdict.events), (3, 3), "{verdict}");
    println!("DONE {error}");
}

#[test]
fn dsk_02_a_disk_that_is_full_at_the_end_costs_the_signature_and_nothing_else() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED dsk_02 on a full disk: only root can mount one");
        return;
    }
    let disk = home();
    let script = "mount -t tmpfs -o size=2m tmpfs \"$0\" && exec \"$@\"";
    mounted(script, disk.path(), FULL_AT_END, &disk.path().join("home"));
}

const NO_INODES: &str = "disk::a_process_that_can_make_no_files";

#[test]
fn a_process_that_can_make_no_files() {
    let Some(home) = child_home() else { return };
    let disk = home.parent().unwrap();
    let fill = |most: usize| {
        let made = (0..most).take_while(|n| fs::write(disk.join(format!("f{n}")), "").is_ok());
        made.count()
    };
    // Before there is anything, and before there is anything but the record.
    for round in 0..2 {
        let made = fill(1000);
        assert!(made < 1000, "there is no end to them");
        let error = Record::open(&home, Options::default()).unwrap_err();
        assert!(error.to_string().contains("No space left"), "{error}");
        assert_eq!(home.join("hotcell.db").exists(), round == 1);
        (0..made).for_each(|n| fs::remove_file(disk.join(format!("f{n}"))).unwrap());
        let record = open(&home);
        // One that is open needs no more of them.
        let made = fill(1000);
        append(&record, "goes on");
        (0..made).for_each(|n| fs::remove_file(disk.join(format!("f{n}"))).unwrap());
        record.close().unwrap();
        assert_eq!(assert_sound(&home).events, 2 + round);
    }
    println!("DONE");
}

#[test]
fn dsk_05_a_disk_without_inodes_is_told_and_a_record_that_is_open_goes_on() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED dsk_05 without inodes: only root can mount such a disk");
        return;
    }
    let disk = home();
    let script = "mount -t tmpfs -o size=16m,nr_inodes=40 tmpfs \"$0\" && exec \"$@\"";
    mounted(script, disk.path(), NO_INODES, &disk.path().join("home"));
}

/// Takes a line, and then nothing until somebody says so.
struct Slow {
    lines: usize,
    stops_at: usize,
    stopped: std::sync::mpsc::Sender<()>,
    go: std::sync::mpsc::Receiver<()>,
}

impl Write for Slow {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.lines += bytes.iter().filter(|&&byte| byte == b'\n').count();
        if self.lines >= self.stops_at {
            self.stops_at = usize::MAX;
            self.stopped.send(()).unwrap();
            self.go.recv().unwrap();
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn dsk_06_an_export_that_nobody_takes_does_not_make_the_log_grow() {
    // In the midst of the events, and of the checkpoints after them.
    for stops_at in [10, 43] {
        let home = home();
        let options = Options { checkpoint_events: 2, ..Options::default() };
        let record = Record::open(home.path(), options).unwrap();
        for _ in 0..20 {
            append(&record, "x");
            append(&record, "y");
            record.checkpoint().unwrap();
        }
        let (say, go) = std::sync::mpsc::channel();
        let (stopped, is_stopped) = std::sync::mpsc::channel();
        let exporting = record.clone();
        let export = std::thread::spawn(move || {
            exporting.export(&mut Slow { lines: 0, stops_at, stopped, go }).unwrap()
        });
        is_stopped.recv().unwrap();
        // More than a log has before it is begun anew.
        for number in 0..300 {
            record.append(large(number), Durability::Committed).unwrap();
        }
        let length = log_length(home.path());
        say.send(()).unwrap();
        export.join().unwrap();
        assert!(length < 10 << 20, "stopped at {stops_at}: {length} bytes");
        record.close().unwrap();
        assert_sound(home.path());
    }
}

/// Runs a child of its own mount namespace, after this script.
fn mounted(script: &str, disk: &Path, test: &str, home: &Path) {
    let child = child(test, home);
    let output = Command::new("unshare")
        .args(["-m", "sh", "-c", script])
        .arg(disk)
        .arg(child.get_program())
        .args(child.get_args())
        .env("HOTCELL_CHILD", home)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && said.contains("DONE"),
        "{said}{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Homes that are then made read-only, and what a verifier can say of them.
const READ_ONLY: [(&str, Standing); 3] = [
    // As they are left, with a log and its index.
    ("closed", Standing::Sound),
    // One file, beside which SQLite would make others.
    ("settled", Standing::Sound),
    // A log that cannot be read without making an index: the database alone is too old.
    ("without index", Standing::Unproven),
];

fn make_read_only_homes(disk: &Path) {
    for (name, _) in READ_ONLY {
        let home = disk.join(name);
        let record = open(&home);
        append(&record, "x");
        record.close().unwrap();
        assert!(log_length(&home) > 0);
        if name == "settled" {
            settle(&home);
            assert!(!home.join("hotcell.db-wal").exists(), "SQLite itself leaves one file");
        }
        if name == "without index" {
            fs::remove_file(home.join("hotcell.db-shm")).unwrap();
        }
    }
}

/// A home that cannot be written is not opened, and verified as far as it can be read.
fn check_read_only_homes(disk: &Path) {
    for (name, expected) in READ_ONLY {
        let home = disk.join(name);
        let before = fs::read_dir(&home).unwrap().count();
        assert!(Record::open(&home, Options::default()).is_err(), "{name}");
        let verdict = checked(&home);
        assert_eq!((verdict.standing, &verdict.fault), (expected, &None), "{name}: {verdict}");
        let (theirs, said) = python(&database(&home), Some(&home.join("anchor.log")));
        assert_eq!(theirs, expected, "{name}: {said}");
        assert_eq!(fs::read_dir(&home).unwrap().count(), before, "{name}");
    }
}

#[test]
fn aud_07_a_home_that_cannot_be_written_is_not_opened_and_not_called_broken() {
    let disk = home();
    make_read_only_homes(disk.path());
    if rustix::process::geteuid().is_root() {
        // Root writes to read-only directories, not to read-only mounts.
        let script = "mount --bind \"$0\" \"$0\" && mount -o remount,ro,bind \"$0\" && exec \"$@\"";
        let test = "disk::a_process_that_may_not_write";
        mounted(script, disk.path(), test, disk.path());
        return;
    }
    for (name, _) in READ_ONLY {
        for (mode, name) in
            [(0o500, "run/owners"), (0o500, "")].map(|(m, n)| (m, format!("{name}/{n}")))
        {
            fs::set_permissions(disk.path().join(name), PermissionsExt::from_mode(mode)).unwrap();
        }
    }
    check_read_only_homes(disk.path());
    for (name, _) in READ_ONLY {
        let home = disk.path().join(name);
        fs::set_permissions(&home, PermissionsExt::from_mode(0o700)).unwrap();
        fs::set_permissions(home.join("run/owners"), PermissionsExt::from_mode(0o700)).unwrap();
        // Writable again, it is what it was.
        open(&home).close().unwrap();
        assert_sound(&home);
        let db = database(&home);
        fs::set_permissions(&db, PermissionsExt::from_mode(0o000)).unwrap();
        let verdict = checked(&home);
        assert_eq!(verdict.standing, Standing::Unproven, "{verdict}");
        assert_eq!(python(&db, None).0, Standing::Unproven);
    }
}

#[test]
fn a_process_that_may_not_write() {
    let Some(disk) = child_home() else { return };
    check_read_only_homes(&disk);
    println!("DONE");
}
