//! kill -9 while artifacts are stored and registered, on a real file system.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use hotcell_ledger::{Digest, Filter, MAX_SMALL, Page, add, is_referenced, list, verify_contents};
use hotcell_types::Name;

use crate::home::{files_below, large, new, open};

/// Set for the process that is killed.
const HOME: &str = "HOTCELL_LEDGER_TEST_HOME";
/// How often it is killed.
const ROUNDS: usize = 20;

/// Not a test by itself: what the killed process does. It says each digest when it is committed.
#[test]
fn child_that_stores_until_it_is_killed() {
    let Some(home) = std::env::var_os(HOME) else { return };
    let (mut conn, store) = open(Path::new(&home));
    for round in 0_u64.. {
        let seed = format!("{} {round} ", std::process::id());
        // Some are written in many pieces.
        let content = seed.repeat(1 + (round as usize % 7) * 3_000);
        // Every third is small, and comes with its row.
        let content = if round % 3 == 2 { seed.into_bytes() } else { large(content.as_bytes()) };
        let stored = store.hold().unwrap().put(&content[..], 1 << 30).unwrap();
        let tx = conn.transaction().unwrap();
        let (artifact, _) = add(&tx, &stored, new("a")).unwrap();
        tx.commit().unwrap();
        println!("\ncommitted {}", artifact.blob.digest);
    }
}

/// CR-04, CR-05: no half artifact is ever seen, what was acknowledged is there, and a sweep leaves
/// exactly what rows refer to.
#[test]
fn cr_04_kill_9_while_storing_leaves_no_half_artifact_and_loses_none() {
    let home = tempfile::tempdir().unwrap();
    open(home.path());
    let mut left_behind = 0;
    for round in 0..ROUNDS {
        let committed = run_and_kill(home.path(), round);
        let (conn, store) = open(home.path());
        for digest in &committed {
            assert!(is_referenced(&conn, digest).unwrap(), "an acknowledged artifact is lost");
        }
        let verified = verify_contents(&conn, &store, |fault| panic!("{fault}")).unwrap();
        assert_eq!(verified.faults, 0);
        let swept = store.sweep(|digest| is_referenced(&conn, digest)).unwrap();
        left_behind += swept.partials + swept.contents;
        let files = files_below(&home.path().join("artifacts"));
        let referenced = list(&conn, &Filter::of(Name::LOCAL), Page::first(1000)).unwrap();
        let large = referenced.iter().filter(|artifact| artifact.blob.size > MAX_SMALL).count();
        assert_eq!(files.len(), large, "{files:?}");
    }
    // That it was killed in between at all.
    assert!(left_behind > 0, "no kill hit a moment that matters in {ROUNDS} rounds");
}

/// Starts the child, kills it after some artifacts, and gives what it acknowledged.
fn run_and_kill(home: &Path, round: usize) -> Vec<Digest> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "crash::child_that_stores_until_it_is_killed", "--nocapture"])
        .env(HOME, home)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut committed = Vec::new();
    for line in lines {
        let Ok(line) = line else { break };
        let Some(digest) = line.strip_prefix("committed ") else { continue };
        committed.push(digest.parse().unwrap());
        if committed.len() == 1 + round % 5 {
            // Somewhere in the next one: a different moment in each round.
            let spin = std::time::Instant::now();
            while spin.elapsed().as_micros() < 150 * round as u128 {
                std::hint::spin_loop();
            }
            child.kill().unwrap();
        }
    }
    child.wait().unwrap();
    committed
}
