//! Many at once, in several processes, some of which are killed: what can be used once is used once.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use hotcell_bearer::{Allowed, Said};
use hotcell_bearer::{Change, Error, Moment, Presented, Ring, Why, consume, find, mint, now};
use hotcell_record::{
    Digest, Draft, Filter, Kind, Options, Record, Stated, WriteError, statements,
};
use hotcell_types::{CallId, Caller, Door, Name};

use crate::common::*;

const HOME: &str = "HOTCELL_TEST_HOME";
const TOKEN: &str = "HOTCELL_TEST_TOKEN";
const TRIES: &str = "HOTCELL_TEST_TRIES";

fn caller() -> Caller {
    Caller::local("alice".parse().unwrap(), Door::Cli)
}

fn moment() -> Moment {
    Moment::at(hotcell_record::now()).unwrap()
}

/// As the engine records it.
fn draft(change: &Change) -> Draft {
    let (row, bytes) = (change.statement.row().to_owned(), change.statement.bytes());
    let (digest, length) = (Digest::of(bytes), bytes.len() as u64);
    Draft {
        bearer: Some(change.id.to_string()),
        operation: Some(change.operation.as_str().to_owned()),
        reason: Some(change.reason()),
        stated: Some(Stated { row, digest, length }),
        ..Draft::new(Kind::BearerChanged, caller(), hotcell_record::now())
    }
}

/// A token in the record of a home.
fn token(record: &Record, ring: &Arc<Ring>, uses: u32) -> String {
    let ring = Arc::clone(ring);
    let rows = move |tx: &rusqlite::Transaction<'_>| {
        let allowed = Allowed::by_policy(holder(), writing(&["src/**"]), POLICY);
        let minted = mint(tx, &ring, allowed, uses, seconds(3600), &moment())?;
        Ok::<_, Error>((minted.bearer.reveal().to_owned(), vec![draft(&minted.change)]))
    };
    record.write(hotcell_record::Durability::Synced, rows).unwrap().0
}

/// Begins a call with the token, as the engine does: intent and use in one transaction.
fn begin(record: &Record, ring: &Ring, text: &str) -> Result<hotcell_record::Intent, Why> {
    let presented = refused(Presented::read(ring, text))?;
    let (known, now) = record
        .look(|conn| {
            let found = find(conn, &presented).and_then(|known| Ok((known, now(conn, &moment())?)));
            Ok::<_, hotcell_record::ReadError>(found.unwrap())
        })
        .unwrap();
    let call = alice();
    let covered = presented.status(known.as_ref(), &call.facts(now))?;
    let mut chance = [0; 10];
    rustix::rand::getrandom(&mut chance, rustix::rand::GetRandomFlags::empty()).unwrap();
    let intent = Draft {
        call: Some(CallId::new(7, chance)),
        bearer: Some(presented.id().to_string()),
        ..Draft::new(Kind::Intent, caller(), hotcell_record::now())
    };
    let begun = record.begin_with(intent, move |tx| {
        let change = consume(tx, covered, &moment())?;
        Ok::<_, Error>(((), vec![draft(&change)]))
    });
    match begun {
        Ok(((), intent)) => Ok(intent),
        Err(WriteError::Own(Error::Refused(why))) => Err(why),
        Err(other) => panic!("{other:?}"),
    }
}

/// Not a test: a process that tries to use a token, many times at once, until it is killed or done.
#[test]
#[ignore = "started by the other tests"]
fn process_that_uses_a_token() {
    let Some(home) = std::env::var_os(HOME).map(PathBuf::from) else { return };
    let text = std::env::var(TOKEN).unwrap();
    let tries: usize = std::env::var(TRIES).unwrap().parse().unwrap();
    let record = Record::open(&home, Options::default()).unwrap();
    let ring = Ring::open(&home).unwrap();
    println!("ready");
    thread::scope(|scope| {
        for _ in 0..tries {
            scope.spawn(|| match begin(&record, &ring, &text) {
                // Not finished: whatever becomes of the call, its token is used.
                Ok(intent) => std::mem::forget(intent),
                Err(why) => assert_eq!(why, Why::UsedUp),
            });
        }
    });
}

fn process(home: &Path, text: &str, tries: usize) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "processes::process_that_uses_a_token", "--ignored", "--nocapture"])
        .env(HOME, home)
        .env(TOKEN, text)
        .env(TRIES, tries.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Lets a process get as far as to try, and kills it some time later.
fn kill(mut child: Child, micros: u64) {
    use std::io::{BufRead, BufReader};
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let is_ready = lines.by_ref().any(|line| line.contains("ready"));
    assert!(is_ready);
    thread::sleep(Duration::from_micros(micros));
    child.kill().unwrap();
    child.wait().unwrap();
    drop(lines);
}

fn intents(record: &Record, text: &str, ring: &Ring) -> usize {
    let id = Presented::read(ring, text).unwrap().id().to_string();
    let filter = Filter { limit: 1000, last: true, ..Filter::of(Name::LOCAL) };
    let events = record.events(&filter).unwrap();
    let is_begun = |event: &&hotcell_record::Event| {
        event.kind == Kind::Intent && event.bearer.as_ref() == Some(&id)
    };
    events.iter().filter(is_begun).count()
}

/// Are the rows of all bearers as the chain has them?
fn check_rows(record: &Record) {
    let compared = record.look(|conn| {
        let mut said = Said::default();
        statements(conn, |stated| {
            assert!(said.hear(&stated.row, stated.digest.0), "{}", stated.row);
        })?;
        said.compare(conn, |fault| panic!("{fault}")).unwrap();
        Ok::<_, hotcell_record::ReadError>(())
    });
    compared.unwrap();
}

#[test]
fn tok_07_ten_uses_in_two_processes_with_a_kill_in_between_are_one() {
    let home = home();
    let record = Record::open(home.path(), Options::default()).unwrap();
    let ring = Arc::new(Ring::open(home.path()).unwrap());
    let (mut by_the_killed, rounds) = (0, 12);
    for round in 0..rounds {
        let text = token(&record, &ring, 1);
        let one = process(home.path(), &text, 5);
        let mut two = process(home.path(), &text, 5);
        // Killed before it began, in the middle, or when all is over.
        kill(one, round * 700);
        assert!(two.wait().unwrap().success());
        assert_eq!(intents(&record, &text, &ring), 1, "round {round}");
        // Used is used, whoever did it and whatever became of it.
        assert_eq!(begin(&record, &ring, &text).unwrap_err(), Why::UsedUp);
        // And if the killed one is alone, it has used the token or has not.
        let text = token(&record, &ring, 1);
        kill(process(home.path(), &text, 5), round * 700);
        let used = intents(&record, &text, &ring);
        by_the_killed += used;
        assert_eq!(begin(&record, &ring, &text).is_ok(), used == 0, "round {round}");
        assert_eq!(intents(&record, &text, &ring), 1, "round {round}");
    }
    eprintln!("{by_the_killed} of {rounds} were used by a process that was killed");
    check_rows(&record);
    record.close().unwrap();
    verify_with_other_code(home.path());
}

/// The verifier that shares no code with the writer.
fn verify_with_other_code(home: &Path) {
    let verifier = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools/verify.py");
    let mut verify = Command::new("python3");
    verify.arg(verifier).arg("--anchor").args([home.join("anchor.log"), home.join("hotcell.db")]);
    match verify.output() {
        Ok(said) => assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stdout)),
        Err(error) => eprintln!("SKIPPED the independent verifier: {error}"),
    }
}

#[test]
fn pol_13_a_hundred_at_once_use_exactly_as_many_operations_as_there_are() {
    for uses in [1, 10] {
        let home = home();
        let record = Record::open(home.path(), Options::default()).unwrap();
        let ring = Arc::new(Ring::open(home.path()).unwrap());
        let text = token(&record, &ring, uses);
        let begun: usize = thread::scope(|scope| {
            let tries: Vec<_> =
                (0..100).map(|_| scope.spawn(|| begin(&record, &ring, &text))).collect();
            tries.into_iter().map(|t| usize::from(t.join().unwrap().is_ok())).sum()
        });
        assert_eq!(begun, uses as usize);
        assert_eq!(intents(&record, &text, &ring), uses as usize);
        check_rows(&record);
    }
}

/// Where the record is, the text of a token is not.
#[test]
fn tok_11_a_token_that_gets_into_an_event_is_not_recorded() {
    let home = home();
    let record = Record::open(home.path(), Options::default()).unwrap();
    let ring = Arc::new(Ring::open(home.path()).unwrap());
    let text = token(&record, &ring, 1);
    let note = Draft {
        reason: Some(format!("somebody said {text}, and more")),
        ..Draft::new(Kind::Note, caller(), 0)
    };
    record.append(note, hotcell_record::Durability::Synced).unwrap();
    let events = record.events(&Filter::of(Name::LOCAL)).unwrap();
    let reason = events.last().unwrap().reason.clone().unwrap();
    assert_eq!(reason, "somebody said [redacted:hotcell], and more");
    record.close().unwrap();
    for entry in std::fs::read_dir(home.path()).unwrap() {
        let path = entry.unwrap().path();
        let Ok(bytes) = std::fs::read(&path) else { continue };
        let canary = &text.as_bytes()[..40];
        assert!(!bytes.windows(40).any(|window| window == canary), "{}", path.display());
    }
}
