//! How long it takes to look at a token and to use it, with one row in the store and with a million; and
//! whether a signature that is right in more of its bytes takes longer to refuse.
//!
//! `cargo run --release -p hotcell-bearer --example bearer_speed [DIRECTORY]`; with HOTCELL_ONLY_TIMING=1
//! only the latter.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a measurement that cannot go on has nothing to say"
)]

use std::path::PathBuf;
use std::time::Instant;

use data_encoding::BASE64URL_NOPAD;
use hotcell_bearer::{
    Allowed, Audience, Connection, Facts, Holder, Moment, Narrower, Paths, Presented, Ring, Scope,
    Who, attenuate, consume, find, migrate, mint, now,
};
use hotcell_types::{Name, Span};

const ROWS: [u64; 5] = [1, 1_000, 10_000, 100_000, 1_000_000];
const LOOKS: usize = 2_000;
const USES: usize = 500;
const REFUSALS: usize = 100_000;
const POLICY: [u8; 32] = [9; 32];

fn main() {
    let directory = std::env::args_os().nth(1).map_or_else(std::env::temp_dir, PathBuf::from);
    let home = tempfile::tempdir_in(directory).unwrap();
    let ring = Ring::open(home.path()).unwrap();
    let mut conn = Connection::open(home.path().join("bearers.db")).unwrap();
    conn.execute_batch("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL").unwrap();
    let tx = conn.transaction().unwrap();
    migrate(&tx).unwrap();
    tx.commit().unwrap();
    if std::env::var_os("HOTCELL_ONLY_TIMING").is_some() {
        return timing(&mut conn, &ring);
    }
    println!("{:>9}  {:>12} {:>12} {:>12} {:>12}", "rows", "read", "status", "eighth", "use");
    for rows in ROWS {
        fill(&mut conn, &ring, rows);
        measure(&mut conn, &ring, rows);
    }
    timing(&mut conn, &ring);
}

fn moment() -> Moment {
    Moment::at(1_700_000_000_000_000_000).unwrap()
}

fn allowed() -> Allowed {
    let holder = Holder { tenant: Name::LOCAL, subject: Name::LOCAL, run: None };
    Allowed::by_policy(holder, scope(), POLICY)
}

fn scope() -> Scope {
    let paths = Paths::new(vec!["src/**".parse().unwrap()]).unwrap();
    Scope::new("fs.write".parse().unwrap(), paths)
}

/// Up to so many rows, in one transaction.
fn fill(conn: &mut Connection, ring: &Ring, rows: u64) {
    let tx = conn.transaction().unwrap();
    let there: i64 = tx.query_row("SELECT count(*) FROM bearer", [], |row| row.get(0)).unwrap();
    for _ in there.unsigned_abs()..rows {
        mint(&tx, ring, allowed(), 1, Some(Span::seconds(3600)), &moment()).unwrap();
    }
    tx.commit().unwrap();
}

fn measure(conn: &mut Connection, ring: &Ring, rows: u64) {
    let tx = conn.transaction().unwrap();
    let life = Some(Span::seconds(3600));
    let token = mint(&tx, ring, allowed(), 1_000_000, life, &moment()).unwrap().bearer;
    let mut deep = token.clone();
    for generation in 0..7 {
        let parent = Presented::read(ring, deep.reveal()).unwrap();
        let uses = 10_000 - generation;
        let narrower = Narrower { run: None, scope: scope(), uses, life: None };
        let child = attenuate(&tx, ring, &parent, &who(), POLICY, narrower, &moment()).unwrap();
        deep = child.0.bearer;
    }
    tx.commit().unwrap();
    let read = median(LOOKS, || drop(Presented::read(ring, token.reveal()).unwrap()));
    let one = Presented::read(ring, token.reveal()).unwrap();
    let eighth = Presented::read(ring, deep.reveal()).unwrap();
    let status = median(LOOKS, || look(conn, &one));
    let of_eighth = median(LOOKS, || look(conn, &eighth));
    // One transaction, so that the disk is left out.
    let tx = conn.transaction().unwrap();
    let used = median(USES, || {
        let known = find(&tx, &one).unwrap();
        let covered = one.status(known.as_ref(), &facts(now(&tx, &moment()).unwrap())).unwrap();
        consume(&tx, covered, &moment()).unwrap();
    });
    tx.commit().unwrap();
    println!("{rows:>9}  {read:>9.1} us {status:>9.1} us {of_eighth:>9.1} us {used:>9.1} us");
}

fn look(conn: &Connection, presented: &Presented) {
    let known = find(conn, presented).unwrap();
    let now = now(conn, &moment()).unwrap();
    drop(presented.status(known.as_ref(), &facts(now)).unwrap());
}

fn who() -> Who<'static> {
    Who { tenant: &Name::LOCAL, subject: &Name::LOCAL, run: None }
}

fn facts(now: i64) -> Facts<'static> {
    Facts {
        audience: Audience::Token,
        who: who(),
        operation: "fs.write",
        tool: "fs.write",
        tool_digest: [0; 32],
        paths: &["src/main.rs"],
        args: [0; 32],
        policy: POLICY,
        now,
    }
}

/// Microseconds.
fn median(times: usize, mut work: impl FnMut()) -> f64 {
    let mut spans: Vec<f64> = (0..times).map(|_| span(&mut work)).collect();
    spans.sort_by(f64::total_cmp);
    spans[times / 2]
}

fn span(work: &mut impl FnMut()) -> f64 {
    let begun = Instant::now();
    work();
    begun.elapsed().as_secs_f64() * 1e6
}

/// Refusals of a signature whose first byte is wrong and of one whose last is. Samples of one machine are
/// not independent, so Welch's t alone proves nothing: the same input in another string is the control,
/// and each of the three comes first as often as the others.
fn timing(conn: &mut Connection, ring: &Ring) {
    let tx = conn.transaction().unwrap();
    let token = mint(&tx, ring, allowed(), 1, None, &moment()).unwrap().bearer;
    drop(tx);
    let bytes = BASE64URL_NOPAD.decode(&token.reveal().as_bytes()[4..]).unwrap();
    let (first, last) = (bytes.len() - 32, bytes.len() - 1);
    let wrong = [first, last, first].map(|place| {
        let mut bytes = bytes.clone();
        bytes[place] ^= 1;
        format!("hct_{}", BASE64URL_NOPAD.encode(&bytes))
    });
    let mut spans = [const { Vec::new() }; 3];
    for round in 0..REFUSALS {
        for turn in 0..3 {
            let arm = (round + turn) % 3;
            let took = span(&mut || assert!(Presented::read(ring, &wrong[arm]).is_err()));
            spans[arm].push(took * 1000.0);
        }
    }
    let [first, last, again] = spans.map(mean);
    let told = |name: &str, one: (f64, f64), other: (f64, f64)| {
        let (apart, t) = (one.0 - other.0, (one.0 - other.0) / (one.1 + other.1).sqrt());
        println!("refused in {:.0} ns, {name}: {apart:+.2} ns, t = {t:+.1}", one.0);
    };
    told("first byte wrong against last", first, last);
    told("first byte wrong against itself", first, again);
}

/// Without the slowest tenth, which is the scheduler's; and the square of its standard error.
fn mean(mut spans: Vec<f64>) -> (f64, f64) {
    spans.sort_by(f64::total_cmp);
    spans.truncate(spans.len() * 9 / 10);
    let count = spans.len() as f64;
    let mean = spans.iter().sum::<f64>() / count;
    let apart = spans.iter().map(|span| (span - mean).powi(2)).sum::<f64>();
    (mean, apart / (count - 1.0) / count)
}
