//! API keys: made by whoever is at the machine only, good for whom they name, and gone for every process
//! when one of them says so.

#![expect(clippy::unwrap_used, clippy::panic, reason = "these are tests")]

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use hotcell_access::{Key, KeyId, New, Refused, Scope, Shown};
use hotcell_engine::artifacts::verify_artifacts;
use hotcell_engine::{
    Admitted, Answer, Ask, Engine, KeyAnswer, KeyAsk, NotAdmitted, Problem, ProblemKind, restore,
};
use hotcell_record::{Event, Filter, Kind, now};
use hotcell_types::{Caller, Door, Name, Span, Status};

use crate::common::{options, request};

const DIR: &str = "HOTCELL_TEST_DIR";
const KEY: &str = "HOTCELL_TEST_KEY";
const HOUR: i64 = 3600 * 1_000_000_000;

fn operator() -> Caller {
    Caller::local(Name::LOCAL, Door::Cli)
}

fn of(tenant: &str, door: Door) -> Caller {
    Caller { tenant: tenant.parse().unwrap(), subject: Name::LOCAL, door }
}

fn new(tenant: &str) -> New {
    New {
        name: "ci".parse().unwrap(),
        tenant: tenant.parse().unwrap(),
        subject: "build".parse().unwrap(),
        scopes: [Scope::Run].into_iter().collect(),
        life: None,
        rate: None,
        concurrent: None,
    }
}

fn open(dir: &Path) -> Engine {
    fs::create_dir_all(dir.join("tree")).unwrap();
    Engine::open(options(dir)).unwrap()
}

fn ask(engine: &Engine, caller: &Caller, ask: KeyAsk) -> Result<KeyAnswer, Problem> {
    match engine.ask(caller, Ask::Key(ask)) {
        Answer::Key(answer) => Ok(answer),
        Answer::Failed(problem) => Err(problem),
        other => panic!("{other:?}"),
    }
}

fn made(engine: &Engine, new: New) -> (Shown, Key) {
    match ask(engine, &operator(), KeyAsk::Create(Box::new(new))).unwrap() {
        KeyAnswer::Created { text, key } => (text, *key),
        other => panic!("{other:?}"),
    }
}

fn revoke(engine: &Engine, caller: &Caller, id: KeyId) -> Result<bool, Problem> {
    ask(engine, caller, KeyAsk::Revoke(id)).map(|answer| match answer {
        KeyAnswer::Revoked(is_new) => is_new,
        other => panic!("{other:?}"),
    })
}

fn listed(engine: &Engine, caller: &Caller, tenant: Option<&str>) -> Result<Vec<Key>, Problem> {
    let tenant = tenant.map(|tenant| tenant.parse().unwrap());
    ask(engine, caller, KeyAsk::List { tenant, after: 0, limit: 100 }).map(|answer| match answer {
        KeyAnswer::Listed(keys) => keys,
        other => panic!("{other:?}"),
    })
}

fn check(engine: &Engine, text: &str) -> Result<Admitted, NotAdmitted> {
    engine.check_key(text, Door::Rest, now())
}

fn events(engine: &Engine) -> Vec<Event> {
    let filter = Filter { limit: 1000, ..Filter::of(Name::LOCAL) };
    let Answer::Events(events) = engine.ask(&operator(), Ask::Events(filter)) else { panic!() };
    events
}

#[test]
fn a_key_lets_in_whom_it_names_and_the_chain_tells_of_it() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(dir.path());
    assert!(!engine.has_keys().unwrap(), "none exists by default");
    let (text, key) = made(&engine, new("acme"));
    assert!(engine.has_keys().unwrap());
    let admitted = check(&engine, text.reveal()).unwrap();
    let caller = Caller { subject: "build".parse().unwrap(), ..of("acme", Door::Rest) };
    assert_eq!((admitted.key, &admitted.caller), (key.id, &caller));
    // What is done with it is the tenant's own.
    let add = request("add", serde_json::json!({"a": 1, "b": 2}));
    let Answer::Called(reply) = engine.ask(&caller, Ask::Call(Box::new(add))) else { panic!() };
    assert_eq!(reply.status, Status::Success, "{reply:?}");
    assert!(admitted.scopes.has(Scope::Run) && !admitted.scopes.has(Scope::Audit));
    assert!(revoke(&engine, &operator(), key.id).unwrap());
    assert!(!revoke(&engine, &operator(), key.id).unwrap());
    assert_eq!(check(&engine, text.reveal()), Err(Refused::Revoked.into()));
    let told: Vec<_> = events(&engine)
        .into_iter()
        .filter(|event| event.kind == Kind::BearerChanged)
        .map(|event| (event.bearer.unwrap(), event.operation.unwrap()))
        .collect();
    let id = key.id.to_string();
    assert_eq!(told, [(id.clone(), "key.create".into()), (id, "key.revoke".to_owned())]);
    let used = listed(&engine, &operator(), None).unwrap()[0].used;
    assert!(used.is_some_and(|used| (now() - used) < HOUR));
    engine.close().unwrap();
    let checked = verify_artifacts(&dir.path().join("home")).unwrap();
    assert_eq!((checked.keys, checked.faults), (1, 0), "{:?}", checked.told);
    let sql = rusqlite::Connection::open(dir.path().join("home/hotcell.db")).unwrap();
    let forged =
        "DROP TRIGGER access_key_stays_revoked; UPDATE access_key SET revoked = NULL, changes = 3";
    sql.execute_batch(forged).unwrap();
    let checked = verify_artifacts(&dir.path().join("home")).unwrap();
    assert_eq!(checked.told, ["key 1 is not as it was recorded last"]);
}

#[test]
fn only_whoever_is_at_the_machine_makes_keys_and_that_others_tried_is_recorded() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(dir.path());
    let (_, key) = made(&engine, new("acme"));
    for door in Door::ALL.into_iter().filter(|door| !matches!(door, Door::Cli | Door::Library)) {
        for asked in [
            KeyAsk::Create(Box::new(new("local"))),
            KeyAsk::Revoke(key.id),
            KeyAsk::List { tenant: None, after: 0, limit: 1 },
        ] {
            let problem = ask(&engine, &of("local", door), asked).unwrap_err();
            assert_eq!(problem.kind, ProblemKind::Blocked, "{problem:?}");
        }
    }
    let denied = events(&engine).into_iter().filter(|event| event.kind == Kind::Denied);
    assert_eq!(denied.filter(|event| event.status == Some(Status::Blocked)).count(), 7 * 3);
    // A tenant sees and makes its own.
    let (acme, other) = (of("acme", Door::Library), of("other", Door::Library));
    assert_eq!(listed(&engine, &acme, None).unwrap().len(), 1);
    assert_eq!(listed(&engine, &other, None).unwrap().len(), 0);
    assert_eq!(listed(&engine, &other, Some("acme")).unwrap_err().kind, ProblemKind::Blocked);
    let asked = KeyAsk::Create(Box::new(new("acme")));
    assert_eq!(ask(&engine, &other, asked).unwrap_err().kind, ProblemKind::Blocked);
    assert_eq!(revoke(&engine, &other, key.id).unwrap_err().kind, ProblemKind::NotFound);
    assert!(revoke(&engine, &acme, key.id).unwrap());
}

#[test]
fn an_expired_key_stays_expired_whatever_the_clock_says() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(dir.path());
    let (text, key) = made(&engine, New { life: Some(Span::seconds(3600)), ..new("acme") });
    let at = |engine: &Engine, clock: i64| engine.check_key(text.reveal(), Door::Rest, clock);
    let start = key.created;
    assert!(at(&engine, start).is_ok());
    assert!(at(&engine, start - 24 * HOUR).is_ok(), "a clock that was set back shuts nobody out");
    assert_eq!(at(&engine, start + HOUR + 1), Err(Refused::Expired.into()));
    assert_eq!(at(&engine, start), Err(Refused::Expired.into()));
    assert!(matches!(at(&engine, i64::MAX), Err(NotAdmitted::Failed(_))), "that is no time");
}

#[test]
fn a_check_that_waits_for_nothing_tells_what_another_would_or_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (engine, other) = (open(dir.path()), open(dir.path()));
    let (text, key) = made(&engine, new("acme"));
    let text = text.reveal();
    let at_once = |text: &str| engine.check_key_at_once(text, Door::Rest, now());
    assert!(at_once(text).is_none(), "the first one has to look");
    let admitted = check(&engine, text).unwrap();
    assert_eq!(at_once(text).unwrap().unwrap(), admitted);
    let (most, last) = text.split_at(text.len() - 1);
    let unknown = format!("{most}{}", if last == "0" { "1" } else { "0" });
    let refused = [unknown.as_str(), "", "hck_"].map(|text| at_once(text).unwrap().unwrap_err());
    assert_eq!(
        refused,
        [unknown.as_str(), "", "hck_"].map(|text| check(&engine, text).unwrap_err())
    );
    revoke(&other, &operator(), key.id).unwrap();
    assert!(at_once(text).is_none(), "what another one changed has to be looked at");
    assert_eq!(check(&engine, text).unwrap_err(), NotAdmitted::Refused(Refused::Revoked));
    assert_eq!(at_once(text).unwrap().unwrap_err(), NotAdmitted::Refused(Refused::Revoked));
}

/// Not a test: another process, which revokes a key.
#[test]
#[ignore = "started by another test"]
fn process_that_revokes() {
    let Some(dir) = std::env::var_os(DIR).map(PathBuf::from) else { return };
    let engine = open(&dir);
    let id = std::env::var(KEY).unwrap().parse().unwrap();
    assert!(revoke(&engine, &operator(), id).unwrap());
    engine.close().unwrap();
}

fn other_process(dir: &Path, key: KeyId) {
    let status = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "process_that_revokes", "--ignored", "--nocapture"])
        .env(DIR, dir)
        .env(KEY, key.to_string())
        .output()
        .unwrap()
        .status;
    assert!(status.success());
}

#[test]
fn what_another_process_revoked_is_refused_at_the_next_check() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(dir.path());
    for _ in 0..3 {
        let (text, key) = made(&engine, new("acme"));
        let (other, _) = made(&engine, new("acme"));
        for _ in 0..100 {
            assert!(check(&engine, text.reveal()).is_ok());
        }
        other_process(dir.path(), key.id);
        assert_eq!(check(&engine, text.reveal()), Err(Refused::Revoked.into()));
        assert!(check(&engine, other.reveal()).is_ok());
    }
}

#[test]
fn many_check_at_once_while_keys_come_and_go() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(dir.path());
    let (stays, _) = made(&engine, new("acme"));
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| (0..200).for_each(|_| drop(check(&engine, stays.reveal()).unwrap())));
        }
        for _ in 0..10 {
            let (text, key) = made(&engine, new("other"));
            assert!(check(&engine, text.reveal()).is_ok());
            revoke(&engine, &operator(), key.id).unwrap();
            assert_eq!(check(&engine, text.reveal()), Err(Refused::Revoked.into()));
        }
    });
}

#[test]
fn a_check_costs_little_whoever_asks() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(dir.path());
    let (known, _) = made(&engine, new("acme"));
    let elsewhere = tempfile::tempdir().unwrap();
    let (unknown, _) = made(&open(elsewhere.path()), new("acme"));
    let begun = std::time::Instant::now();
    for _ in 0..1000 {
        assert!(check(&engine, known.reveal()).is_ok());
        assert_eq!(check(&engine, unknown.reveal()), Err(Refused::Unknown.into()));
    }
    let each = begun.elapsed() / 2000;
    eprintln!("a check takes {each:?}");
    assert!(each < std::time::Duration::from_millis(5), "{each:?}");
}

#[test]
fn no_key_of_before_is_good_in_a_home_that_was_restored() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(dir.path());
    let (text, key) = made(&engine, new("acme"));
    let file = dir.path().join("backup.tar");
    engine.backup(&operator(), &file).unwrap();
    revoke(&engine, &operator(), key.id).unwrap();
    engine.close().unwrap();
    let other = tempfile::tempdir().unwrap();
    let restored =
        restore(&operator(), &other.path().join("home"), &hotcell_engine::Anchor::Home, &file)
            .unwrap();
    assert_eq!((restored.artifacts.keys, restored.artifacts.faults), (1, 0));
    let engine = open(other.path());
    assert_eq!(check(&engine, text.reveal()), Err(Refused::Revoked.into()));
}
