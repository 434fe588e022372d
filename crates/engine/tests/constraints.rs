//! Constraints are enforced, not stored: each of them, on a tool that computes, one that reads the workspace
//! and one that runs something.

#![expect(clippy::unwrap_used, clippy::panic, reason = "these are tests")]

mod common;

use std::fs;
use std::thread;
use std::time::Duration;

use hotcell_engine::{Answer, Ask, Engine, Options, Policy, Reply};
use hotcell_request::{Tool, ToolError, TypedTool, tool};
use hotcell_types::{Caller, Door, Limit, Name, Status};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::common::{options, request};

struct World {
    engine: Engine,
    /// Removed with it.
    _dir: tempfile::TempDir,
}

impl World {
    /// Everything is allowed, within this.
    fn within(constraint: &str) -> World {
        let dir = tempfile::tempdir().unwrap();
        let tree = dir.path().join("tree");
        fs::create_dir(&tree).unwrap();
        fs::write(tree.join("a"), "needle\n".repeat(2000)).unwrap();
        let rules = format!(
            "rules: [{{ name: all, match: {{}}, action: allow, constraints: {{ {constraint} }} }}]"
        );
        let policy = Policy::load(rules.as_bytes(), &Default::default()).unwrap().snapshot;
        let engine = Options { policy: Some(policy), ..options(dir.path()) };
        World { engine: Engine::open(engine).unwrap(), _dir: dir }
    }

    fn call(&self, tool: &str, args: Value) -> Reply {
        self.ask(request(tool, args))
    }

    fn ask(&self, request: hotcell_request::Request) -> Reply {
        let caller = Caller::local(Name::LOCAL, Door::Library);
        match self.engine.ask(&caller, Ask::Call(Box::new(request))) {
            Answer::Called(reply) => *reply,
            other => panic!("{other:?}"),
        }
    }

    fn python(&self, code: &str) -> Reply {
        self.call("code_execute", json!({"language": "python", "code": code}))
    }
}

/// What a run says of the limits that it was held to.
fn limits_of(world: &World, reply: &Reply) -> Value {
    let caller = Caller::local(Name::LOCAL, Door::Library);
    match world.engine.ask(&caller, Ask::Show(reply.id)) {
        Answer::Shown(shown) => {
            shown.result.value().unwrap().pointer("/run/limits").unwrap().clone()
        }
        other => panic!("{other:?}"),
    }
}

const REPEAT: &str = "print('x' * 5000)";

#[test]
fn pol_15_each_constraint_holds_for_what_computes_what_reads_and_what_runs() {
    // What a sandbox is needed for is refused where there is none; nothing is let through.
    for constraint in
        ["memory: 300MiB", "cpu: 0.5", "processes: 20", "disk: 50MiB", "sandbox: code-executor"]
    {
        let name = constraint.split(':').next().unwrap();
        let world = World::within(constraint);
        for (tool, args) in [
            ("add", json!({"a": 1, "b": 2})),
            ("fs.read", json!({"path": "a"})),
            ("search.grep", json!({"pattern": "needle"})),
            ("env.list", json!({})),
        ] {
            let reply = world.call(tool, args);
            assert_eq!(reply.status, Status::Blocked, "{constraint} {tool}: {reply:?}");
            let problem = &reply.problems[0];
            assert!(problem.fix.contains(&format!("leave `{name}` out")), "{problem:?}");
        }
    }
    // What is kept to here is looked at.
    for (constraint, tool, args, status) in [
        ("output: 2", "add", json!({"a": 1, "b": 2}), Status::Success),
        ("output: 2", "add", json!({"a": 100, "b": 2}), Status::Failure),
        ("output: 20KiB", "fs.read", json!({"path": "a"}), Status::Success),
        ("output: 1KiB", "fs.read", json!({"path": "a"}), Status::Failure),
        ("output: 1KiB", "search.grep", json!({"pattern": "needle"}), Status::Failure),
        ("timeout: 20s", "add", json!({"a": 1, "b": 2}), Status::Success),
        ("timeout: 20s", "search.grep", json!({"pattern": "needle"}), Status::Success),
        // They write nothing.
        ("max_file_size: 1", "add", json!({"a": 1, "b": 2}), Status::Success),
        ("max_file_size: 1", "fs.read", json!({"path": "a"}), Status::Success),
    ] {
        let world = World::within(constraint);
        let reply = world.call(tool, args.clone());
        assert_eq!(reply.status, status, "{constraint} {tool} {args}: {reply:?}");
        assert_eq!(reply.value.is_some(), status == Status::Success, "{reply:?}");
    }
    // What runs is held to it, and says so.
    for (constraint, limit, expected) in [
        ("memory: 300MiB", "memory", json!(300 << 20)),
        ("cpu: 0.5", "cpu", json!(0.5)),
        ("processes: 20", "pids", json!(20)),
        ("disk: 50MiB", "disk", json!(50 << 20)),
        ("timeout: 7s", "timeout", json!(7000)),
        ("output: 2KiB", "output", json!(2048)),
        ("max_file_size: 3KiB", "file_size", json!(3072)),
    ] {
        let world = World::within(constraint);
        let reply = world.call("code_execute", json!({"language": "shell", "code": "true"}));
        assert_eq!(reply.status, Status::Success, "{constraint}: {reply:?}");
        assert_eq!(limits_of(&world, &reply)[limit], expected, "{constraint}");
    }
}

/// Seen by the program itself.
#[test]
fn pol_15_what_runs_runs_into_what_it_is_held_to() {
    let ended = |constraint: &str, code: &str| {
        let reply = World::within(constraint).python(code);
        let limit = reply.run.as_ref().and_then(|run| run.limit);
        (reply.status, limit)
    };
    let world = World::within("output: 2KiB");
    let printed = world.python(REPEAT).run.unwrap().stdout;
    assert_eq!((printed.bytes.len(), printed.truncated), (2048, true));
    assert_eq!(
        ended("timeout: 1s", "import time; time.sleep(30)"),
        (Status::Timeout, Some(Limit::Timeout))
    );
    let too_large = "file = open('a', 'wb'); file.write(b'x' * 4000); file.close()";
    assert_eq!(ended("max_file_size: 3KiB", too_large), (Status::Failure, None));
    assert_eq!(ended("max_file_size: 4KiB", too_large), (Status::Success, None));
    let disk = "
try: open('a', 'wb', 0).write(b'x' * (30 << 20)) == 30 << 20 and print('written')
except OSError as error: print(error.errno)";
    let reply = World::within("disk: 20MiB").python(disk);
    assert!(!reply.value.unwrap().to_string().contains("written"));
    // A file that is made longer without writing to it is as long as that.
    let holes = "import os; os.truncate(os.open('a', os.O_CREAT | os.O_WRONLY), 1 << 20)";
    assert_eq!(ended("max_file_size: 3KiB", holes), (Status::Failure, None));
    // It is what is written that counts, not what is given.
    let files = json!({"language": "shell", "code": "cat in", "files": {"in": "x".repeat(9000)}});
    let reply = World::within("max_file_size: 3KiB").call("code_execute", files);
    assert_eq!(reply.status, Status::Success, "{reply:?}");
    // What a command does to itself in a copy that is thrown away counts as well.
    let command = json!({"command": ["sh", "-c", "head -c 4000 /dev/zero > b && echo made"]});
    let reply = World::within("max_file_size: 3KiB").call("test.run", command);
    assert_ne!(reply.status, Status::Success, "{reply:?}");
}

#[test]
fn who_asks_for_more_time_than_the_policy_allows_is_refused() {
    let world = World::within("timeout: 2s");
    for (tool, args) in [
        ("add", json!({"a": 1, "b": 2})),
        ("fs.read", json!({"path": "a"})),
        ("code_execute", json!({"language": "shell", "code": "true"})),
    ] {
        for (timeout, status) in [("2s", Status::Success), ("3s", Status::Blocked)] {
            let mut request = request(tool, args.clone());
            request.timeout = Some(timeout.parse().unwrap());
            let reply = world.ask(request);
            assert_eq!(reply.status, status, "{tool} {timeout}: {reply:?}");
        }
    }
}

#[derive(Deserialize, JsonSchema)]
struct Nap {
    ms: u64,
}

/// Takes its time.
#[tool(name = "own.nap", version = "1.0.0", effects(pure))]
fn nap(args: Nap) -> Result<u64, ToolError> {
    thread::sleep(Duration::from_millis(args.ms));
    Ok(args.ms)
}

/// Writes who knows where.
#[tool(name = "own.write", version = "1.0.0", effects(write))]
fn write(args: Nap) -> Result<u64, ToolError> {
    Ok(args.ms)
}

fn add(world: &World, tool: impl TypedTool + 'static) {
    let described: Tool = tool.tool().unwrap();
    world.engine.add(described, tool).unwrap();
}

#[test]
fn tools_of_an_embedder_are_held_to_what_can_be_looked_at_and_refused_the_rest() {
    let world = World::within("timeout: 100ms");
    add(&world, NapTool);
    assert_eq!(world.call("own.nap", json!({"ms": 1})).status, Status::Success);
    let late = world.call("own.nap", json!({"ms": 300}));
    assert_eq!((late.status, late.value), (Status::Timeout, None));
    let world = World::within("max_file_size: 1MiB");
    add(&world, NapTool);
    add(&world, WriteTool);
    assert_eq!(world.call("own.nap", json!({"ms": 1})).status, Status::Success);
    assert_eq!(world.call("own.write", json!({"ms": 1})).status, Status::Blocked);
}
