//! The path as a whole, on a real home.

use hotcell_record::{Filter, Kind};
use hotcell_request::{Arguments, Request};
use hotcell_types::{Caller, Door, Name, Status};
use serde_json::{Value, json};

use crate::{Answer, Ask, Engine, Options, Reply};

fn caller() -> Caller {
    Caller::local(Name::LOCAL, Door::Library)
}

struct World {
    engine: Engine,
    _dir: tempfile::TempDir,
}

impl World {
    fn new() -> World {
        let dir = tempfile::tempdir().unwrap();
        let tree = dir.path().join("tree");
        std::fs::create_dir(&tree).unwrap();
        std::fs::write(tree.join("a.txt"), "one\ntwo\n").unwrap();
        let mut options = Options::at(dir.path().join("home"));
        options.workspace = Some(tree);
        options.minimum = hotcell_types::Level::NoProc;
        World { engine: Engine::open(options).unwrap(), _dir: dir }
    }

    fn call(&self, tool: &str, arguments: Value) -> Reply {
        let request = Request::new(tool.parse().unwrap(), Arguments::Value(arguments));
        match self.engine.ask(&caller(), Ask::Call(Box::new(request))) {
            Answer::Called(reply) => *reply,
            other => panic!("{other:?}"),
        }
    }

    fn kinds_of(&self, reply: &Reply) -> Vec<Kind> {
        let filter = Filter { call: Some(reply.id), ..Filter::of(Name::LOCAL) };
        let Answer::Events(events) = self.engine.ask(&caller(), Ask::Events(filter)) else {
            panic!("the record cannot be read")
        };
        events.iter().map(|event| event.kind).collect()
    }
}

#[test]
fn a_pure_call_is_answered_and_noted() {
    let world = World::new();
    let reply = world.call("add", json!({"a": 1, "b": 2}));
    assert_eq!((reply.status, reply.value.clone()), (Status::Success, Some(json!(3))), "{reply:?}");
    assert_eq!(reply.rules, ["pure-tools"]);
    world.engine.record().unwrap().checkpoint().unwrap();
    assert_eq!(world.kinds_of(&reply), [Kind::Called]);
}

#[test]
fn wrong_arguments_name_their_field_and_nothing_runs() {
    let world = World::new();
    let reply = world.call("add", json!({"a": 1, "b": "two"}));
    assert_eq!(reply.status, Status::Invalid, "{reply:?}");
    assert_eq!(reply.problems.first().map(|p| p.at.as_str()), Some("/b"), "{reply:?}");
    let reply = world.call("no_such_tool", json!({}));
    assert_eq!(reply.status, Status::Invalid, "{reply:?}");
}

#[test]
fn what_no_rule_allows_is_refused_and_that_is_recorded() {
    let world = World::new();
    let reply = world.call("fs.write", json!({"path": "a.txt", "text": "x"}));
    assert_eq!(reply.status, Status::Blocked, "{reply:?}");
    assert_eq!(world.kinds_of(&reply), [Kind::Denied]);
}

#[test]
fn a_tree_is_read_in_this_process() {
    let world = World::new();
    let reply = world.call("fs.read", json!({"path": "a.txt"}));
    assert_eq!(reply.status, Status::Success, "{reply:?}");
    assert!(reply.value.unwrap().to_string().contains("one\\ntwo"));
    let reply = world.call("fs.read", json!({"path": "../home/hotcell.db"}));
    assert_eq!(reply.status, Status::Invalid, "{reply:?}");
}

#[test]
fn code_runs_in_a_sandbox_between_its_intent_and_its_outcome() {
    let world = World::new();
    let arguments = json!({"language": "shell", "code": "echo $((6 * 7)); exit 3"});
    let reply = world.call("code_execute", arguments);
    assert_eq!(reply.status, Status::Failure, "{reply:?}");
    assert!(reply.value.as_ref().unwrap().to_string().contains("42"), "{reply:?}");
    assert_eq!(world.kinds_of(&reply), [Kind::Intent, Kind::Outcome]);
    let Answer::Verified(verdict) = world.engine.ask(&caller(), Ask::Verify) else { panic!() };
    assert!(verdict.fault.is_none(), "{verdict:?}");
}

#[test]
fn a_batch_has_a_reply_for_each_in_order() {
    let world = World::new();
    let request =
        |n: i64| Request::new("add".parse().unwrap(), Arguments::Value(json!({"a": n, "b": n})));
    let requests = (0..40).map(request).collect();
    let Answer::Batch(replies) = world.engine.ask(&caller(), Ask::Batch(requests)) else {
        panic!()
    };
    let sums: Vec<Value> = replies.into_iter().filter_map(|reply| reply.value).collect();
    assert_eq!(sums, (0..40).map(|n| json!(2 * n)).collect::<Vec<_>>());
}

#[test]
fn what_cannot_be_recorded_does_not_happen() {
    let world = World::new();
    world.engine.record().unwrap().clone().close().unwrap();
    let reply = world.call("code_execute", json!({"language": "shell", "code": "echo ran"}));
    assert_eq!(reply.status, Status::Error, "{reply:?}");
    assert!(reply.value.is_none(), "{reply:?}");
}
