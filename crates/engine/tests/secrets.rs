//! Secrets: set by whoever is at the machine only, for the tools and tenants that they name, and none in a home
//! that was restored.

#![expect(clippy::unwrap_used, clippy::panic, reason = "these are tests")]

mod common;

use std::fs;
use std::path::Path;

use hotcell_engine::artifacts::verify_artifacts;
use hotcell_engine::{
    Anchor, Answer, Ask, Engine, Ignore, Problem, ProblemKind, Reply, SecretAnswer, SecretAsk,
    restore,
};
use hotcell_record::{Filter, Kind};
use hotcell_types::{Caller, Door, Name, Status};
use hotcell_vault::{Binding, New, Secret, Value};
use serde_json::json;

use crate::common::{options, request};

const VALUE: &str = "value-that-is-in-no-event";

fn operator() -> Caller {
    Caller::local(Name::LOCAL, Door::Cli)
}

fn of(tenant: &str, door: Door) -> Caller {
    Caller { tenant: tenant.parse().unwrap(), subject: Name::LOCAL, door }
}

fn open(dir: &Path) -> Engine {
    fs::create_dir_all(dir.join("tree")).unwrap();
    Engine::open(options(dir)).unwrap()
}

fn new(tenant: &str, tools: &[&str]) -> SecretAsk {
    SecretAsk::Set(Box::new(New {
        tenant: tenant.parse().unwrap(),
        name: "TOKEN".parse().unwrap(),
        value: Value::new(VALUE.into()).unwrap(),
        binding: Binding::new(["api.example.com"], tools.iter().copied()).unwrap(),
        note: String::new(),
    }))
}

fn remove(tenant: &str) -> SecretAsk {
    SecretAsk::Remove { tenant: tenant.parse().unwrap(), name: "TOKEN".parse().unwrap() }
}

fn ask(engine: &Engine, caller: &Caller, ask: SecretAsk) -> Result<SecretAnswer, Problem> {
    match engine.ask(caller, Ask::Secret(ask)) {
        Answer::Secret(answer) => Ok(answer),
        Answer::Failed(problem) => Err(problem),
        other => panic!("{other:?}"),
    }
}

fn listed(engine: &Engine, caller: &Caller) -> Vec<Secret> {
    match ask(engine, caller, SecretAsk::List { tenant: None }).unwrap() {
        SecretAnswer::Listed(secrets) => secrets,
        other => panic!("{other:?}"),
    }
}

/// A run with the secret, which comes as far as it may without a network.
fn run(engine: &Engine, caller: &Caller) -> Reply {
    let args = json!({"command": ["true"], "placeholders": [{"name": "TOKEN"}]});
    match engine.ask(caller, Ask::Call(Box::new(request("run", args)))) {
        Answer::Called(reply) => *reply,
        other => panic!("{other:?}"),
    }
}

fn why(reply: &Reply) -> String {
    reply.problems.iter().map(|problem| format!("{}: {}", problem.what, problem.why)).collect()
}

#[test]
fn only_whoever_is_at_the_machine_sets_secrets_and_that_others_tried_is_recorded() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(dir.path());
    ask(&engine, &operator(), new("acme", &[])).unwrap();
    for door in Door::ALL.into_iter().filter(|door| !matches!(door, Door::Cli | Door::Library)) {
        for asked in [new("local", &[]), remove("acme"), SecretAsk::List { tenant: None }] {
            let problem = ask(&engine, &of("local", door), asked).unwrap_err();
            assert_eq!(problem.kind, ProblemKind::Blocked, "{problem:?}");
        }
    }
    let Answer::Events(events) =
        engine.ask(&operator(), Ask::Events(Filter { limit: 1000, ..Filter::of(Name::LOCAL) }))
    else {
        panic!()
    };
    let denied = events.iter().filter(|event| event.kind == Kind::Denied);
    assert_eq!(denied.filter(|event| event.status == Some(Status::Blocked)).count(), 7 * 3);
    assert!(!format!("{events:?}").contains(VALUE));
    // A tenant sees and sets its own.
    let (acme, other) = (of("acme", Door::Library), of("other", Door::Library));
    assert_eq!((listed(&engine, &acme).len(), listed(&engine, &other).len()), (1, 0));
    for asked in [new("acme", &[]), remove("acme")] {
        assert_eq!(ask(&engine, &other, asked).unwrap_err().kind, ProblemKind::Blocked);
    }
    ask(&engine, &acme, remove("acme")).unwrap();
    assert!(listed(&engine, &operator()).is_empty());
    assert_eq!(verify_artifacts(&dir.path().join("home")).unwrap().faults, 0);
}

#[test]
fn a_model_takes_no_secret_that_is_not_bound_to_the_tool() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(dir.path());
    let models = [Door::Mcp, Door::Rest, Door::Agent, Door::Callback, Door::Socket];
    ask(&engine, &operator(), new("local", &[])).unwrap();
    for door in models {
        let reply = run(&engine, &of("local", door));
        assert!(why(&reply).contains("it is bound to no tool"), "{door}: {reply:?}");
        assert_eq!(reply.status, Status::Blocked, "{door}");
    }
    // The control: who is at the command line gets to the next question, and so does whoever it is bound for.
    let next = "this run has no network";
    assert!(why(&run(&engine, &operator())).contains(next));
    ask(&engine, &operator(), new("local", &["run"])).unwrap();
    for door in models {
        assert!(why(&run(&engine, &of("local", door))).contains(next), "{door}");
    }
    ask(&engine, &operator(), new("local", &["http_fetch"])).unwrap();
    for door in models.into_iter().chain([Door::Cli]) {
        let reply = run(&engine, &of("local", door));
        assert!(why(&reply).contains("it is bound to other tools"), "{door}: {reply:?}");
    }
    // What is another tenant's is not there.
    let reply = run(&engine, &of("acme", Door::Cli));
    assert!(why(&reply).contains("there is no secret"), "{reply:?}");
}

#[test]
fn what_a_model_was_refused_is_not_given_to_it_by_whoever_replays_its_call() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(dir.path());
    ask(&engine, &operator(), new("local", &[])).unwrap();
    let replayed = |door| {
        let reply = run(&engine, &of("local", door));
        match engine.ask(&operator(), Ask::Replay(reply.id, Ignore::default())) {
            Answer::Failed(problem) => format!("{}: {}", problem.what, problem.why),
            Answer::Replayed(replayed) => why(&replayed.new),
            other => panic!("{other:?}"),
        }
    };
    assert!(replayed(Door::Mcp).contains("a door that is not a person's"));
    // The control: a person's call is asked for again, and refused for what it was refused for.
    ask(&engine, &operator(), new("local", &["http_fetch"])).unwrap();
    let persons = replayed(Door::Cli);
    assert!(persons.contains("it is bound to other tools"), "{persons}");
}

#[test]
fn a_restored_home_has_no_secret_and_no_key_of_one() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(dir.path());
    ask(&engine, &operator(), new("local", &[])).unwrap();
    let file = dir.path().join("backup.tar");
    engine.backup(&operator(), &file).unwrap();
    let key = fs::read_to_string(hotcell_vault::key_path(&dir.path().join("home"))).unwrap();
    let packed = fs::read(&file).unwrap();
    let has = |text: &str| packed.windows(text.len()).any(|window| window == text.as_bytes());
    // The control: what is recorded of it is in the backup.
    assert!(has("secret.set") && !has(VALUE) && !has(key.trim_end()));
    engine.close().unwrap();
    let other = tempfile::tempdir().unwrap();
    let home = other.path().join("home");
    let restored = restore(&operator(), &home, &Anchor::Home, &file).unwrap();
    assert_eq!((restored.artifacts.secrets, restored.artifacts.faults), (0, 0));
    assert!(!hotcell_vault::key_path(&home).exists());
}

#[test]
fn a_row_that_is_not_as_it_was_recorded_is_a_fault() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(dir.path());
    ask(&engine, &operator(), new("local", &[])).unwrap();
    let home = dir.path().join("home");
    engine.close().unwrap();
    let checked = verify_artifacts(&home).unwrap();
    assert_eq!((checked.secrets, checked.faults), (1, 0));
    let conn = rusqlite::Connection::open(home.join("hotcell.db")).unwrap();
    conn.execute_batch(
        "DROP TRIGGER vault_secret_is_fixed; UPDATE vault_secret SET hosts = 'evil.example.com'",
    )
    .unwrap();
    drop(conn);
    let checked = verify_artifacts(&home).unwrap();
    assert_eq!(checked.told, ["secret 1 is not as it was recorded"]);
    let engine = open(dir.path());
    assert!(why(&run(&engine, &operator())).contains("cannot be opened"));
}
