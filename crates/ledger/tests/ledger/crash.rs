//! kill -9 while artifacts are stored and registered, on a real file system.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use hotcell_ledger::{Digest, Filter, MAX_SMALL, Page, add, is_referenced, list, verify_contents};
use hotcell_types::Name;

use crate::home::{files_below, large, new, open};

/// Set for the process that is killed.
const HOME: &str = "HOTCELL_LEDGER_TEST_HOME";
/// And how many artifacts it registers before it stops between storing one and registering it.
const STOPS_AFTER: &str = "HOTCELL_LEDGER_TEST_STOPS_AFTER";
/// How often it is killed.
const ROUNDS: usize = 20;

/// Not a test by itself: what the killed process does. It says each digest when it is committed.
#[test]
fn child_that_stores_until_it_is_killed() {
    let Some(home) = std::env::var_os(HOME) else { return };
    let stops_after: Option<u64> =
        std::env::var(STOPS_AFTER).ok().map(|number| number.parse().unwrap());
    let (mut conn, store) = open(Path::new(&home));
    for round in 0_u64.. {
        let seed = format!("{} {round} ", std::process::id());
        // Some are written in many pieces.
        let content = seed.repeat(1 + (round as usize % 7) * 3_000);
        // Every third is small, and comes with its row.
        let content = if round % 3 == 2 { seed.into_bytes() } else { large(content.as_bytes()) };
        let stored = store.hold().unwrap().put(&content[..], 1 << 30).unwrap();
        if stops_after == Some(round) {
            println!("\nstored");
            loop {
                std::thread::park();
            }
        }
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
    for round in 0..ROUNDS {
        // Every other time it is between the two, for certain; and otherwise wherever it happens to be.
        let stops_after = (round % 2 == 0).then_some(round % 5);
        let committed = run_and_kill(home.path(), round, stops_after);
        let (conn, store) = open(home.path());
        for digest in &committed {
            assert!(is_referenced(&conn, digest).unwrap(), "an acknowledged artifact is lost");
        }
        let verified = verify_contents(&conn, &store, |fault| panic!("{fault}")).unwrap();
        assert_eq!(verified.faults, 0);
        let swept = store.sweep(|digest| is_referenced(&conn, digest)).unwrap();
        // The third of each three is small: it is nowhere before it has a row.
        if stops_after.is_some_and(|count| count % 3 != 2) {
            assert!(swept.contents > 0, "what nobody registered was not found: {swept:?}");
        }
        let files = files_below(&home.path().join("artifacts"));
        let referenced = list(&conn, &Filter::of(Name::LOCAL), Page::first(1000)).unwrap();
        let large = referenced.iter().filter(|artifact| artifact.blob.size > MAX_SMALL).count();
        assert_eq!(files.len(), large, "{files:?}");
    }
}

/// Starts the child, kills it after some artifacts, and gives what it acknowledged.
fn run_and_kill(home: &Path, round: usize, stops_after: Option<usize>) -> Vec<Digest> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "crash::child_that_stores_until_it_is_killed", "--nocapture"])
        .env(HOME, home)
        .envs(stops_after.map(|count| (STOPS_AFTER, count.to_string())))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut committed = Vec::new();
    for line in lines {
        let Ok(line) = line else { break };
        if line == "stored" {
            child.kill().unwrap();
        }
        let Some(digest) = line.strip_prefix("committed ") else { continue };
        committed.push(digest.parse().unwrap());
        if stops_after.is_none() && committed.len() == 1 + round % 5 {
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
