//! A full disk: a small file system in memory, in a mount namespace of its own.

use std::io::{self, Read};
use std::path::Path;
use std::process::Command;

use hotcell_ledger::{StoreError, is_referenced};

use crate::home::{files_below, large, open};

/// Set for the process that sees the small file system.
const HOME: &str = "HOTCELL_LEDGER_TEST_FULL";

/// Not a test by itself: what is done on the small file system.
#[test]
fn child_on_a_full_disk() {
    let Some(home) = std::env::var_os(HOME) else { return };
    let home = Path::new(&home);
    let artifacts = home.join("artifacts");
    let (conn, store) = open(home);
    let hold = store.hold().unwrap();
    let kept = hold.put(&large(b"before")[..], 1 << 20).unwrap();
    let before = files_below(&artifacts);

    let full = hold.put(io::repeat(7).take(64 << 20), 1 << 30);
    assert!(matches!(full, Err(StoreError::Full { .. })), "{full:?}");
    assert_eq!(files_below(&artifacts), before, "the partial file is left");
    assert!(store.content(&conn, &kept.blob()).is_ok());

    // Room is made, and everything goes on.
    let after = hold.put(&large(b"after")[..], 1 << 20).unwrap();
    assert!(store.content(&conn, &after.blob()).is_ok());
    assert!(!is_referenced(&conn, &after.blob().digest).unwrap());
    println!("\nfull disk seen");
}

/// DSK-03: the partial file is removed, the error says what it is, and there is no row.
#[test]
fn dsk_03_a_full_disk_removes_the_partial_file_and_is_named() {
    let home = tempfile::tempdir().unwrap();
    let script = "mount -t tmpfs -o size=4m none \"$1\" || exit 77
                  exec \"$2\" --exact full::child_on_a_full_disk --nocapture";
    let is_root = rustix::process::geteuid().is_root();
    let output = Command::new("unshare")
        .args(if is_root { &["-m"][..] } else { &["-r", "-m"] })
        .args(["sh", "-c", script, "sh"])
        .arg(home.path())
        .arg(std::env::current_exe().unwrap())
        .env(HOME, home.path())
        .output();
    let output = match output {
        Ok(output) if output.status.code() != Some(77) => output,
        refused => {
            eprintln!("SKIPPED a full disk: no file system can be mounted here ({refused:?})");
            return;
        }
    };
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("full disk seen"), "{output:?}");
}
