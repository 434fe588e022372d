//! Questions as they come through a door, and the documents that answer them.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "these are tests")]

use std::fs;
use std::sync::atomic::AtomicBool;

use hotcell_api::{Answer, Ask, Context, Problem, ProblemKind, With, answer};
use hotcell_engine::{Attached, Bounds, Engine, Options, Policy, Surroundings};
use hotcell_types::{Caller, Door, Level, Name};
use serde_json::{Value, json};

struct World {
    engine: Engine,
    dir: tempfile::TempDir,
}

impl World {
    fn new() -> World {
        World::with(Some(Policy::with_workspace_writes()))
    }

    fn with(policy: Option<Policy>) -> World {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("tree")).unwrap();
        fs::write(dir.path().join("tree/note"), "hello").unwrap();
        let mut options = Options::at(dir.path().join("home"));
        options.workspace = Some(dir.path().join("tree"));
        options.minimum = Level::LandlockOnly;
        options.policy = policy;
        World { engine: Engine::open(options).unwrap(), dir }
    }

    fn from(&self, ask: Value, from: Option<Surroundings>) -> Result<Value, Problem> {
        let ask: Ask = serde_json::from_value(ask).unwrap();
        let mut logs = Vec::new();
        let with = With {
            attached: Attached { from, ..Attached::default() },
            interrupt: &AtomicBool::new(false),
            log: &mut |log, at| {
                logs.push(json!({ "log": log, "stdout": at.stdout, "stderr": at.stderr }));
                true
            },
        };
        let caller = Caller::local(Name::LOCAL, Door::Library);
        let answer: Answer = answer(&self.engine, &caller, ask, with)?;
        let mut document = serde_json::to_value(answer).unwrap();
        if !logs.is_empty() {
            document["logs"] = Value::Array(logs);
        }
        Ok(document)
    }

    #[track_caller]
    fn ask(&self, ask: Value) -> Value {
        self.from(ask, None).unwrap()
    }

    fn problem(&self, ask: Value) -> Problem {
        self.from(ask, None).unwrap_err()
    }

    fn run(&self, code: &str) -> Value {
        self.ask(json!({"ask": "run", "run": {"language": "shell", "code": code}}))
    }
}

fn call(tool: &str, arguments: Value) -> Value {
    json!({"ask": "call", "request": {"tool": tool, "arguments": arguments}})
}

#[test]
fn a_tool_is_called_and_what_is_wrong_is_told_with_its_place() {
    let world = World::new();
    let called = world.ask(call("add", json!({"a": 1, "b": 2})));
    assert_eq!((&called["status"], &called["value"]), (&json!("success"), &json!(3)));
    let called = world.ask(call("add", json!({"a": 1})));
    assert_eq!(called["status"], "invalid");
    assert_eq!(called["problems"][0]["kind"], "invalid");
    let problem = world.problem(json!({"ask": "call", "request": {"tool": "add", "sudo": true}}));
    assert_eq!(problem.kind, ProblemKind::Invalid);
    assert!(problem.at.starts_with("/request"), "{problem:?}");
}

#[test]
fn code_runs_with_everything_in_one_document() {
    let world = World::new();
    let called = world.ask(json!({"ask": "run", "run": {
        "language": "shell", "code": "cat; echo \"$1 $NAME\"; cat data; echo made > out", "arguments": ["a"],
        "env": {"NAME": "you"}, "stdin": "in\n", "limits": {"memory": "64MiB"},
        "files": [{"name": "data", "base64": "AP8="}],
    }}));
    assert_eq!(called["status"], "success", "{called}");
    assert_eq!(called["run"]["stdout"]["text"], "in\na you\n\u{0}\u{fffd}");
    let made = called["artifacts"].as_array().unwrap();
    assert!(made.iter().any(|one| one["role"] == "file" && one["name"] == "out"), "{called}");
    for wrong in [
        json!({}),
        json!({"code": "x", "command": ["x"]}),
        json!({"command": ["x"], "language": "shell"}),
        json!({"code": "no one knows"}),
        json!({"code": "x", "language": "klingon"}),
        json!({"language": "shell", "code": "x", "files": [{"name": "a"}]}),
        json!({"language": "shell", "code": "x", "files": [{"name": "a", "base64": "?"}]}),
    ] {
        let problem = world.problem(json!({"ask": "run", "run": wrong}));
        assert_eq!(problem.kind, ProblemKind::Invalid, "{wrong} {problem:?}");
    }
    let called = world.ask(
        json!({"ask": "run", "run": {"command": ["x"], "files": [{"name": "../a", "text": ""}]}}),
    );
    assert_eq!(called["status"], "invalid", "{called}");
}

#[test]
fn what_happened_is_told_call_by_call_event_by_event_and_piece_by_piece() {
    let world = World::new();
    let ran = world.run("printf out; printf err >&2");
    let id = &ran["id"];
    let shown = world.ask(json!({"ask": "show", "call": id}));
    assert_eq!((&shown["call"], &shown["status"]), (id, &json!("success")));
    let runs = world.ask(json!({"ask": "runs", "limit": 1}));
    assert_eq!(&runs["runs"][0]["call"], id);
    let logs = world.ask(json!({"ask": "logs", "call": id, "follow": true, "stdout": 1}));
    let texts: Vec<_> =
        logs["logs"].as_array().unwrap().iter().map(|log| &log["log"]["text"]).collect();
    assert_eq!(texts, ["ut", "err"]);
    assert_eq!(logs["logs"][1]["stdout"], 3);
    let first = world.ask(json!({"ask": "events", "after": 0, "limit": 1}));
    assert_eq!(first["events"][0]["seq"], 1);
    let next = world.ask(json!({"ask": "events", "after": first["next"], "limit": 1}));
    assert_eq!(next["events"][0]["seq"], 2);
    let verified = world.ask(json!({"ask": "verify"}));
    assert_ne!(verified["standing"], "broken", "{verified}");
    assert_eq!(
        world.problem(json!({"ask": "show", "call": "01ARZ3NDEKTSV4RRFFQ69G5FAV"})).kind,
        ProblemKind::NotFound
    );
}

#[test]
fn artifacts_are_listed_read_in_parts_and_marked() {
    let world = World::new();
    world.run("printf 0123456789 > made");
    let listed = world.ask(json!({"ask": "artifacts", "name": "made"}));
    let id = &listed["artifacts"][0]["id"];
    let part = world.ask(json!({"ask": "content", "artifact": id, "from": 2, "length": 3}));
    assert_eq!((&part["base64"], &part["from"]), (&json!("MjM0"), &json!(2)));
    assert_eq!(
        world.ask(json!({"ask": "tag", "artifact": "made@1", "tag": "good"}))["changed"],
        true
    );
    let details = world.ask(json!({"ask": "artifact", "artifact": "made"}));
    assert_eq!(details["tags"], json!(["good"]));
    let lineage = world.ask(json!({"ask": "lineage", "artifact": id}));
    assert!(!lineage["ancestors"].as_array().unwrap().is_empty());
    for absent in ["no such thing", "made@7", "01ARZ3NDEKTSV4RRFFQ69G5FAV"] {
        let problem = world.problem(json!({"ask": "artifact", "artifact": absent}));
        assert_eq!(problem.kind, ProblemKind::NotFound, "{absent}");
    }
    for wrong in ["", "a\nb", "a@99999999999999999999"] {
        let problem = world.problem(json!({"ask": "artifact", "artifact": wrong}));
        assert_eq!((problem.kind, problem.at.as_str()), (ProblemKind::Invalid, "/artifact"));
    }
}

#[test]
fn tools_policy_and_tokens_are_told() {
    let world = World::new();
    let tools = world.ask(json!({"ask": "tools"}));
    assert!(tools["tools"].as_array().unwrap().len() > 20);
    assert_eq!(world.ask(json!({"ask": "tool", "name": "add"}))["name"], "add");
    assert_eq!(world.problem(json!({"ask": "tool", "name": "nope"})).kind, ProblemKind::NotFound);
    assert_eq!(World::with(None).ask(json!({"ask": "policy"}))["number"], 0);
    let rules = json!({"text": "rules:\n  - { name: a, match: {}, action: maybe }\n"});
    let checked = world.ask(json!({"ask": "policy_check", "rules": rules}));
    assert_eq!((&checked["good"], &checked["faults"][0]["line"]), (&json!(false), &json!(2)));
    let explain = json!({"ask": "policy_explain", "request": {"tool": "http_fetch", "arguments": {"url": "https://a.example/"}}});
    let explained = world.ask(explain);
    assert_eq!(explained["decision"], "deny", "{explained}");
    let minted = world
        .ask(json!({"ask": "mint", "tool": "fs.write", "bounds": {"paths": ["a/**"], "uses": 2}}));
    assert_eq!(minted["uses"], 2);
    let tokens = world.ask(json!({"ask": "tokens"}));
    assert_eq!(
        (&tokens["tokens"][0]["id"], &tokens["tokens"][0]["state"]),
        (&minted["id"], &json!("good"))
    );
    assert_eq!(world.ask(json!({"ask": "revoke", "token": minted["id"]}))["changed"], true);
    let items = world.ask(json!({"ask": "approvals"}));
    assert_eq!(items["items"], json!([]));
}

#[test]
fn whoever_asks_from_elsewhere_works_there() {
    let world = World::new();
    let there = tempfile::tempdir().unwrap();
    fs::write(there.path().join("note"), "there").unwrap();
    let context = Context::here(Door::Cli, Some(there.path()), Bounds::default());
    let text = serde_json::to_string(&context).unwrap();
    let read: Context = serde_json::from_str(&text).unwrap();
    assert_eq!(read.door().unwrap(), Door::Cli);
    let from = read.read(&world.engine).unwrap();
    let called = world.from(call("fs.read", json!({"path": "note"})), Some(from)).unwrap();
    assert!(called["value"].to_string().contains("there"), "{called}");
    let home = Context::here(Door::Cli, Some(world.dir.path()), Bounds::default());
    assert_eq!(home.read(&world.engine).unwrap_err().kind, ProblemKind::Invalid);
    let other = Context { door: Door::Library, ..context };
    assert!(other.door().is_err(), "that is not who asks through a socket");
}

#[test]
fn what_nobody_knows_is_refused() {
    for wrong in [
        json!({"ask": "everything"}),
        json!({"ask": "verify", "really": true}),
        json!({"ask": "cancel"}),
        json!({"ask": "show", "call": "no id"}),
        json!({"call": {}}),
        json!([]),
    ] {
        assert!(serde_json::from_value::<Ask>(wrong.clone()).is_err(), "{wrong}");
    }
}

#[test]
fn every_document_has_a_schema() {
    let schemas =
        [schemars::schema_for!(Ask), schemars::schema_for!(Answer), schemars::schema_for!(Problem)];
    for schema in schemas {
        hotcell_request::Schema::new(schema.as_value()).unwrap_or_else(|fault| panic!("{fault:?}"));
    }
}
