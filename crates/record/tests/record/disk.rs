//! No space, no right to write: nothing is recorded, everybody hears of it, and it goes on after.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use hotcell_record::{AppendError, Draft, Durability, Kind, Options, Payload, Record};

use crate::common::*;

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
    let child = child(CHILD, &home);
    let script = "mount -t tmpfs -o size=2m tmpfs \"$0\" && head -c 400000 /dev/zero > \"$0/ballast\" && exec \"$@\"";
    let output = Command::new("unshare")
        .args(["-m", "sh", "-c", script])
        .arg(disk.path())
        .arg(child.get_program())
        .args(child.get_args())
        .env("HOTCELL_CHILD", &home)
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

#[test]
fn aud_07_a_home_that_cannot_be_written_is_not_opened() {
    let disk = home();
    let inner = disk.path().join("home");
    open(&inner).close().unwrap();
    if rustix::process::geteuid().is_root() {
        // Root writes to read-only directories, not to read-only mounts.
        let test = "disk::a_process_that_may_not_write";
        let child = child(test, &inner);
        let script = "mount --bind \"$0\" \"$0\" && mount -o remount,ro,bind \"$0\" && exec \"$@\"";
        let output = Command::new("unshare")
            .args(["-m", "sh", "-c", script])
            .arg(disk.path())
            .arg(child.get_program())
            .args(child.get_args())
            .env("HOTCELL_CHILD", &inner)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(said.contains("DONE"), "{said}{}", String::from_utf8_lossy(&output.stderr));
    } else {
        make_read_only(&inner);
        assert!(Record::open(&inner, Options::default()).is_err());
        // What is in the way of writing is in the way of SQLite's reading as well.
        let mode = |mode| std::os::unix::fs::PermissionsExt::from_mode(mode);
        std::fs::set_permissions(&inner, mode(0o700)).unwrap();
        for entry in std::fs::read_dir(&inner).unwrap() {
            let entry = entry.unwrap();
            let is_dir = entry.file_type().unwrap().is_dir();
            std::fs::set_permissions(entry.path(), mode(if is_dir { 0o700 } else { 0o600 }))
                .unwrap();
        }
        assert_sound(&inner);
    }
}

#[test]
fn a_process_that_may_not_write() {
    let Some(home) = child_home() else { return };
    let error = Record::open(&home, Options::default()).unwrap_err();
    println!("DONE {error}");
}

fn make_read_only(home: &Path) {
    use std::os::unix::fs::PermissionsExt;
    for name in ["run/owners", ""] {
        fs::set_permissions(home.join(name), PermissionsExt::from_mode(0o500)).unwrap();
    }
}
