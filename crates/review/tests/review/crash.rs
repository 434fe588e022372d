//! Several processes, and kill -9 at any moment: a grant is used once, together with its intent.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use hotcell_approver::{Approver, Approvers};
use hotcell_record::{
    Draft, Durability, Filter, Intent, Kind as EventKind, Options, Record, WriteError,
};
use hotcell_request::Call;
use hotcell_review::{
    Error, Given, Grant, ItemId, Reason, State, Terms, Verdict, answer, enqueue, expire, get,
    migrate, take_grant,
};
use hotcell_types::Name;
use rustix::process::{Signal, getpid, kill_process};

use crate::common::*;

const HOME_OF_CHILD: &str = "HOTCELL_TEST_HOME";
const ITEM: &str = "HOTCELL_TEST_ITEM";
const CALL: &str = "HOTCELL_TEST_CALL";
const APPROVERS: &str = "approvers";

fn terms_of(record: &Record) -> Terms {
    let approvers = std::fs::read_to_string(record.home().join(APPROVERS)).unwrap();
    let approvers: Approvers = approvers.parse().unwrap();
    Terms { home: record.home_id(), policy: POLICY, approvers }
}

type Taken = Result<(Grant, Intent), WriteError<Error>>;

fn take(record: &Record, item: ItemId, number: u64) -> Taken {
    take_for(record, item, call(number), terms_of(record))
}

fn take_for(record: &Record, item: ItemId, call: Call, terms: Terms) -> Taken {
    let mut intent = Draft::new(EventKind::Intent, agent(), 20);
    intent.call = Some(call.id());
    record.begin_with(intent, move |tx| take_grant(tx, &terms, item, &call, 20))
}

/// Not a test: takes the grant, says so, and is killed before it does anything with it.
#[test]
fn a_taking_process() {
    let Ok(home) = std::env::var(HOME_OF_CHILD) else { return };
    let item = std::env::var(ITEM).unwrap().parse().unwrap();
    let number = std::env::var(CALL).unwrap().parse().unwrap();
    let record = Record::open(Path::new(&home), Options::default()).unwrap();
    let (call, terms) = (call(number), terms_of(&record));
    let say = |what: &str| std::io::stdout().lock().write_all(what.as_bytes()).unwrap();
    say("SAID ready\n");
    std::io::stdin().read_line(&mut String::new()).unwrap();
    match take_for(&record, item, call, terms) {
        Ok(_taken) => {
            say("SAID took\n");
            kill_process(getpid(), Signal::KILL).unwrap();
        }
        Err(WriteError::Own(Error::Is { state: State::CarriedOut, .. })) => say("SAID refused\n"),
        Err(error) => say(&format!("SAID {error}\n")),
    }
}

struct Taker {
    child: Child,
    out: BufReader<std::process::ChildStdout>,
}

impl Taker {
    fn start(home: &Path, item: ItemId, number: u64) -> Taker {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["crash::a_taking_process", "--exact", "--nocapture"])
            .env(HOME_OF_CHILD, home)
            .env(ITEM, item.to_string())
            .env(CALL, number.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let mut taker = Taker { child, out };
        assert_eq!(taker.said().as_deref(), Some("ready"));
        taker
    }

    /// Now it may.
    fn go(&mut self) {
        self.child.stdin.take().unwrap().write_all(b"\n").unwrap();
    }

    fn said(&mut self) -> Option<String> {
        let mut line = String::new();
        while self.out.read_line(&mut line).unwrap() > 0 {
            if let Some((_, said)) = line.trim_end().split_once("SAID ") {
                return Some(said.to_owned());
            }
            line.clear();
        }
        None
    }
}

/// A home with an item that is approved.
fn home_with_grant(home: &Path) -> ItemId {
    let record = Record::open(home, Options::default()).unwrap();
    let alice = Approver::make("alice".parse().unwrap()).unwrap();
    std::fs::write(home.join(APPROVERS), format!("{}\n", alice.public())).unwrap();
    let terms = terms_of(&record);
    let asked = new(&call(1));
    let queued = record.write(Durability::Synced, move |tx| {
        migrate(tx)?;
        enqueue(tx, asked, 5)
    });
    let item = queued.unwrap().0;
    let reason: Reason = "fine".parse().unwrap();
    let (verdict, time, expires) = (Verdict::Approve, 10, HOUR);
    let statement = item.statement(terms.home, verdict, reason.clone(), time, expires);
    let (approver, signature) = (alice.public().fingerprint(), alice.sign(&statement));
    let given = Given { verdict, reason, time, expires, approver, signature };
    let id = item.id;
    let answered =
        record.write(Durability::Synced, move |tx| answer(tx, &terms, &Name::LOCAL, id, given, 10));
    assert_eq!(answered.unwrap().0.state, State::Approved);
    record.close().unwrap();
    id
}

/// On a disk, where this user may write to one.
pub(crate) fn real_home() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).or_else(|_| tempfile::tempdir()).unwrap()
}

fn intents(record: &Record) -> usize {
    let filter = Filter { kind: Some(EventKind::Intent), ..Filter::of(Name::LOCAL) };
    record.events(&filter).unwrap().len()
}

#[test]
fn of_two_processes_one_takes_the_grant_and_nobody_after_it_was_killed() {
    for _ in 0..3 {
        let home = real_home();
        let item = home_with_grant(home.path());
        let mut takers = [2, 3].map(|number| Taker::start(home.path(), item, number));
        takers.iter_mut().for_each(Taker::go);
        let mut said = takers.each_mut().map(|taker| taker.said().unwrap());
        said.sort();
        assert_eq!(said, ["refused", "took"]);
        for taker in &mut takers {
            taker.child.wait().unwrap();
        }

        // What it had begun is closed as unknown, and the grant is gone with it.
        let record = Record::open(home.path(), Options::default()).unwrap();
        let again = take(&record, item, 4);
        assert!(matches!(again, Err(WriteError::Own(Error::Is { state: State::CarriedOut, .. }))));
        assert_eq!(intents(&record), 1);
        let filter = Filter { kind: Some(EventKind::Recovered), ..Filter::of(Name::LOCAL) };
        assert_eq!(record.events(&filter).unwrap().len(), 1);
        record.close().unwrap();
    }
}

#[test]
fn killed_at_any_moment_a_grant_is_used_together_with_its_intent_or_not_at_all() {
    let mut taken = 0;
    for round in 0..24_u64 {
        let home = real_home();
        let item = home_with_grant(home.path());
        let mut taker = Taker::start(home.path(), item, 2);
        taker.go();
        // Not for luck: each is another moment, and all are to be right.
        thread::sleep(Duration::from_millis(2 * round));
        taker.child.kill().unwrap();
        taker.child.wait().unwrap();

        let record = Record::open(home.path(), Options::default()).unwrap();
        let is_used = intents(&record) == 1;
        let state = record.look(|conn| get(conn, &Name::LOCAL, item).map_err(Wrapped::Own));
        let state = state.unwrap().unwrap().state;
        assert_eq!(state == State::CarriedOut, is_used, "round {round}");
        assert_eq!(take(&record, item, 3).is_ok(), !is_used, "round {round}");
        assert_eq!(intents(&record), 1, "round {round}");
        taken += u64::from(is_used);
        record.close().unwrap();
    }
    println!("{taken} of 24 had taken it when they were killed");
}

/// What was over stays over for the next process, whatever its clock says.
#[test]
fn tok_14_a_clock_that_is_set_back_and_a_restart_revive_nothing() {
    let home = real_home();
    let item = home_with_grant(home.path());
    let record = Record::open(home.path(), Options::default()).unwrap();
    record.write(Durability::Synced, |tx| expire(tx, HOUR)).unwrap();
    record.close().unwrap();
    let record = Record::open(home.path(), Options::default()).unwrap();
    let taken = take(&record, item, 2);
    assert!(matches!(taken, Err(WriteError::Own(Error::Is { state: State::Expired, .. }))));
    record.close().unwrap();
}

#[derive(Debug)]
enum Wrapped {
    Own(#[expect(dead_code, reason = "shown when it fails")] Error),
    Record(#[expect(dead_code, reason = "shown when it fails")] hotcell_record::ReadError),
}

impl From<hotcell_record::ReadError> for Wrapped {
    fn from(error: hotcell_record::ReadError) -> Wrapped {
        Wrapped::Record(error)
    }
}
