//! The path as a whole, on a real home.

mod turns;

use std::path::PathBuf;

use hotcell_record::{Filter, Kind};
use hotcell_request::{Arguments, Request};
use hotcell_types::{Caller, Door, Name, Status};
use serde_json::{Value, json};

use crate::{
    Answer, Ask, Attached, Attachment, Early, Engine, Input, Options, Policy, Reply, Step, run,
};

fn caller() -> Caller {
    Caller::local(Name::LOCAL, Door::Library)
}

struct World {
    engine: Engine,
    dir: tempfile::TempDir,
}

impl World {
    fn new() -> World {
        World::with(Policy::built_in())
    }

    fn with(policy: Policy) -> World {
        World::set_up(|options| options.policy = Some(policy))
    }

    fn set_up(set: impl FnOnce(&mut Options)) -> World {
        let dir = tempfile::tempdir().unwrap();
        let tree = dir.path().join("tree");
        std::fs::create_dir(&tree).unwrap();
        std::fs::write(tree.join("a.txt"), "one\ntwo\n").unwrap();
        let mut options = Options::at(dir.path().join("home"));
        options.workspace = Some(tree);
        options.minimum = hotcell_types::Level::NoProc;
        set(&mut options);
        World { engine: Engine::open(options).unwrap(), dir }
    }

    fn tree(&self) -> PathBuf {
        self.dir.path().join("tree")
    }

    fn read(&self, path: &str) -> Option<String> {
        std::fs::read_to_string(self.tree().join(path)).ok()
    }

    fn shell(&self, command: &str) -> Reply {
        self.call("shell.run", json!({ "command": command }))
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
    let artifact = Kind::ArtifactAdded;
    assert_eq!(world.kinds_of(&reply), [Kind::Intent, artifact, artifact, Kind::Outcome]);
    let Answer::Verified(verdict) = world.engine.ask(&caller(), Ask::Verify) else { panic!() };
    assert!(verdict.fault.is_none(), "{verdict:?}");
}

#[test]
fn a_batch_has_a_reply_for_each_in_order() {
    let world = World::new();
    let request =
        |n: i64| Request::new("add".parse().unwrap(), Arguments::Value(json!({"a": n, "b": n})));
    let requests = (0..40).map(|n| Step::from(request(n))).collect();
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
    let calls = [
        ("code_execute", json!({"language": "shell", "code": "echo ran"})),
        ("add", json!({"a": 1, "b": 2})),
        ("fs.write", json!({"path": "a.txt", "text": "x"})),
    ];
    for (tool, arguments) in calls {
        let reply = world.call(tool, arguments);
        assert_eq!(reply.status, Status::Error, "{reply:?}");
        assert!(reply.value.is_none(), "{reply:?}");
    }
}

#[test]
fn what_a_run_changed_is_applied_as_a_whole() {
    let world = World::with(Policy::with_workspace_writes());
    let reply = world.shell("mkdir d && echo new > d/n && echo more >> a.txt && echo out");
    assert_eq!(reply.status, Status::Success, "{reply:?}");
    assert_eq!(world.read("d/n").as_deref(), Some("new\n"));
    assert_eq!(world.read("a.txt").as_deref(), Some("one\ntwo\nmore\n"));
    let artifact = Kind::ArtifactAdded;
    let expected = [Kind::Intent, artifact, artifact, artifact, Kind::Outcome];
    assert_eq!(world.kinds_of(&reply), expected, "two files and what it printed");
    let reply = world.shell("rm -r d a.txt; exit 3");
    assert_eq!(reply.status, Status::Failure, "{reply:?}");
    assert_eq!((world.read("d/n"), world.read("a.txt")), (None, None));
}

#[test]
fn fs_14_one_refused_change_refuses_all_and_is_recorded() {
    let world = World::with(Policy::with_workspace_writes());
    let reply = world.shell("mkdir -p .git/hooks && echo evil > .git/hooks/pre-commit; echo x > x");
    assert_eq!(reply.status, Status::Blocked, "{reply:?}");
    assert!(reply.problems[0].why.contains(".git/hooks/pre-commit"), "{reply:?}");
    assert_eq!((world.read("x"), world.read(".git/hooks/pre-commit")), (None, None));
    let filter = Filter { limit: 100, ..Filter::of(Name::LOCAL) };
    let Answer::Events(events) = world.engine.ask(&caller(), Ask::Events(filter)) else { panic!() };
    let denied: Vec<_> = events.iter().filter(|event| event.kind == Kind::Denied).collect();
    assert_eq!(denied.len(), 1);
    assert_eq!(denied[0].parent, Some(reply.id));
    assert_eq!(denied[0].operation.as_deref(), Some("fs.write"));
}

#[test]
fn a_run_that_was_ended_changes_nothing() {
    let world = World::with(Policy::with_workspace_writes());
    let arguments = Arguments::Value(json!({"command": "echo x > x; sleep 60"}));
    let mut request = Request::new("shell.run".parse().unwrap(), arguments);
    request.timeout = Some("300ms".parse().unwrap());
    let Answer::Called(reply) = world.engine.ask(&caller(), Ask::Call(Box::new(request))) else {
        panic!()
    };
    assert_eq!(reply.status, Status::Timeout, "{reply:?}");
    assert_eq!(world.read("x"), None);
}

#[test]
fn a_run_without_changes_to_bring_leaves_the_workspace_alone() {
    let world = World::with(Policy::with_workspace_writes());
    let reply = world.call("test.run", json!({"command": ["sh", "-c", "cat a.txt; rm a.txt"]}));
    // It executes, and no rule allows that.
    assert_eq!(reply.status, Status::Blocked, "{reply:?}");
    let reply = world.call("fs.write", json!({"path": "deep/er.txt", "text": "hello"}));
    assert_eq!(reply.status, Status::Success, "{reply:?}");
    assert_eq!(world.read("deep/er.txt").as_deref(), Some("hello"));
    let reply = world.call(
        "fs.change",
        json!({"path": "x", "kind": "added", "bytes": 1, "sha256": null, "executable": false}),
    );
    assert_eq!(reply.status, Status::Error, "{reply:?}");
}

#[test]
fn contents_come_along_with_a_call_and_are_what_its_arguments_name() {
    let world = World::new();
    let file = Attachment::of_bytes("in.txt", b"given\n".to_vec());
    let run = run::Run {
        command: ["cat", "in.txt", "-"].map(|word| run::Word::new(word.into())).into(),
        files: vec![file.described()],
        stdin: Some(run::Input::Live),
        ..run::Run::default()
    };
    let ask = |file: Attachment| {
        let (read, mut write) = std::io::pipe().unwrap();
        std::io::Write::write_all(&mut write, b"live").unwrap();
        drop(write);
        let stdin = Some(Input::Live(std::os::fd::OwnedFd::from(read).into()));
        let attached = Attached { files: vec![file], stdin, ..Attached::default() };
        let arguments = Arguments::Value(serde_json::to_value(&run).unwrap());
        let request = Request::new("run".parse().unwrap(), arguments);
        match world.engine.ask(&caller(), Ask::Run(Box::new(request), Box::new(attached))) {
            Answer::Called(reply) => *reply,
            other => panic!("{other:?}"),
        }
    };
    let reply = ask(Attachment::of_bytes("in.txt", b"another\n".to_vec()));
    assert_eq!(reply.status, Status::Invalid, "{reply:?}");
    let reply = ask(file);
    assert_eq!(reply.status, Status::Success, "{reply:?}");
    assert_eq!(reply.run.unwrap().stdout.bytes, b"given\nlive");
}

#[test]
fn the_last_call_of_a_process_leaves_nothing_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let options = || {
        let home = Options::at(dir.path().join("home"));
        Options { minimum: hotcell_types::Level::NoProc, ..home }
    };
    let ask = |engine: &Engine, is_last| {
        let arguments = Arguments::Value(json!({ "command": ["echo", "1"] }));
        let request = Request::new("run".parse().unwrap(), arguments);
        let attached = Attached { is_last, ..Attached::default() };
        match engine.ask(&caller(), Ask::Run(Box::new(request), Box::new(attached))) {
            Answer::Called(reply) => *reply,
            other => panic!("{other:?}"),
        }
    };
    let engine = Engine::soon(options(), Early::begin()).unwrap();
    let last = ask(&engine, true);
    assert_eq!(last.run.unwrap().stdout.bytes, b"1\n");
    // What cannot be recorded does not happen.
    let late = ask(&engine, false);
    assert!(late.run.is_none() && late.status == Status::Error, "{late:?}");
    engine.close().unwrap();
    let record = Engine::open(options()).unwrap();
    let start = record.record().unwrap().start();
    assert_eq!((start.events, start.fault.as_ref()), (0, None), "{start}");
    assert_eq!(ask(&record, false).status, Status::Success);
}

#[test]
fn what_is_expected_comes_up_ahead_and_what_is_not_runs_all_the_same() {
    let command = |words: &[&str]| {
        let words = words.iter().map(|word| run::Word::Text((*word).into()));
        run::Run { command: words.collect(), ..run::Run::default() }
    };
    let script = run::Run {
        script: Some(run::Word::Text("main.py".into())),
        language: Some("python".into()),
        ..run::Run::default()
    };
    for expected in [command(&["echo", "1"]), script, command(&["/no/such/program"])] {
        let dir = tempfile::tempdir().unwrap();
        let home = Options::at(dir.path().join("home"));
        let options = Options { minimum: hotcell_types::Level::NoProc, ..home };
        let early = Early::begin();
        early.expect(&options, &expected);
        let engine = Engine::soon(options, early).unwrap();
        let arguments = Arguments::Value(json!({ "command": ["echo", "1"] }));
        let request = Box::new(Request::new("run".parse().unwrap(), arguments));
        let Answer::Called(reply) = engine.ask(&caller(), Ask::Call(request)) else { panic!() };
        assert_eq!(reply.run.unwrap().stdout.bytes, b"1\n", "{expected:?}");
        engine.close_with_process().unwrap();
    }
}

#[test]
fn what_was_expected_in_vain_ends() {
    let dir = tempfile::tempdir().unwrap();
    let early = Early::begin();
    let run = run::Run { command: vec![run::Word::Text("true".into())], ..run::Run::default() };
    early.expect(&Options::at(dir.path().join("home")), &run);
    drop(early);
    drop(Early::begin());
    assert!(!dir.path().join("home").exists());
}

#[test]
fn a_sandbox_that_was_put_to_rest_runs_the_next_call() {
    let world = World::new();
    for _ in 0..2 {
        let reply = world.call("run", json!({"command": ["echo", "1"]}));
        assert_eq!(reply.status, Status::Success, "{reply:?}");
        world.engine.sandbox().unwrap().rest();
    }
}

#[test]
fn a_word_that_is_text_is_not_taken_as_bytes() {
    let world = World::new();
    let reply = world.call("run", json!({"command": ["echo", {"bytes": [97]}]}));
    assert_eq!(reply.status, Status::Invalid, "{reply:?}");
    let reply = world.call("run", json!({"command": ["echo", {"bytes": [255]}]}));
    assert_eq!(reply.run.unwrap().stdout.bytes, b"\xff\n");
}

mod own {
    //! Tools of whoever embeds the engine.

    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use hotcell_request::{Cache, Rate, Retry, ToolError, TypedTool, tool};
    use schemars::JsonSchema;
    use serde::Deserialize;

    use super::*;

    #[derive(Deserialize, JsonSchema)]
    struct Nothing {}

    #[derive(Deserialize, JsonSchema)]
    #[expect(dead_code, reason = "what it counts is its calls")]
    struct Path {
        #[schemars(extend("x-hotcell" = "path"))]
        path: String,
    }

    static TRIED: AtomicUsize = AtomicUsize::new(0);

    /// Fails twice, and then does not.
    #[tool(name = "own.moody", version = "1.0.0", effects(read))]
    fn moody(_: Nothing) -> Result<usize, ToolError> {
        match TRIED.fetch_add(1, Ordering::SeqCst) {
            tried @ 0..2 => Err(ToolError::new("not now", format!("try {tried}"), "try again")),
            tried => Ok(tried),
        }
    }

    #[test]
    fn a_read_is_tried_again_as_its_tool_says() {
        let world = World::new();
        let mut described = MoodyTool.tool().unwrap();
        described.retry = Some(Retry { attempts: 3, wait: "1ms".parse().unwrap() });
        world.engine.add(described, MoodyTool).unwrap();
        let reply = world.call("own.moody", json!({}));
        assert_eq!(
            (reply.status, reply.value.clone()),
            (Status::Success, Some(json!(2))),
            "{reply:?}"
        );
        world.engine.record().unwrap().checkpoint().unwrap();
        assert_eq!(world.kinds_of(&reply), [Kind::Called], "one call, however often it was tried");
    }

    static COUNTED: AtomicUsize = AtomicUsize::new(0);

    /// Counts its calls.
    #[tool(name = "own.count", version = "1.0.0", effects(read))]
    fn count(_: Path) -> Result<usize, ToolError> {
        Ok(COUNTED.fetch_add(1, Ordering::SeqCst))
    }

    #[test]
    fn a_kept_result_is_good_while_its_inputs_are_what_they_were() {
        let world = World::new();
        let mut described = CountTool.tool().unwrap();
        let inputs = vec!["path".into()];
        described.cache = Cache::Keep { span: "1h".parse().unwrap(), inputs };
        world.engine.add(described, CountTool).unwrap();
        let count = || {
            let reply = world.call("own.count", json!({"path": "a.txt"}));
            (reply.value.unwrap().as_u64().unwrap(), reply.cached)
        };
        let (first, _) = count();
        assert_eq!(count(), (first, true));
        std::fs::write(world.tree().join("a.txt"), "changed").unwrap();
        assert_eq!(count(), (first + 1, false));
        std::fs::remove_file(world.tree().join("a.txt")).unwrap();
        assert_eq!(count(), (first + 2, false));
        assert_eq!(count(), (first + 2, true));
        std::fs::write(world.tree().join("a.txt"), "changed").unwrap();
        assert_eq!(count(), (first + 1, true));
        let other = Caller { tenant: "other".parse().unwrap(), ..caller() };
        let arguments = Arguments::Value(json!({"path": "a.txt"}));
        let request = Request::new("own.count".parse().unwrap(), arguments);
        let Answer::Called(reply) = world.engine.ask(&other, Ask::Call(Box::new(request))) else {
            panic!()
        };
        assert!(!reply.cached, "another tenant's results are nobody else's");
    }

    /// Says hello.
    #[tool(name = "own.hello", version = "1.0.0", effects(pure))]
    fn hello(_: Nothing) -> Result<&'static str, ToolError> {
        Ok("hello")
    }

    #[test]
    fn calls_beyond_the_rate_are_told_when_to_come_back() {
        let world = World::new();
        let mut described = HelloTool.tool().unwrap();
        described.rate = Some(Rate { count: 2.try_into().unwrap(), per: "1h".parse().unwrap() });
        world.engine.add(described, HelloTool).unwrap();
        let statuses: Vec<_> =
            (0..3).map(|_| world.call("own.hello", json!({})).status.name()).collect();
        assert_eq!(statuses, ["success", "success", "error"]);
    }

    static CALLED: AtomicUsize = AtomicUsize::new(0);

    /// Says how often it was called.
    #[tool(name = "own.varied", version = "1.0.0", effects(read), varies("/count", "/absent"))]
    fn varied(_: Nothing) -> Result<Value, ToolError> {
        let count = CALLED.fetch_add(1, Ordering::SeqCst);
        Ok(json!({"count": count, "fixed": count / 2}))
    }

    #[test]
    fn a_replay_leaves_out_what_the_tool_says_varies_and_says_so() {
        let world = World::new();
        world.engine.add(VariedTool.tool().unwrap(), VariedTool).unwrap();
        let reply = world.call("own.varied", json!({}));
        world.engine.record().unwrap().checkpoint().unwrap();
        for is_same in [true, false] {
            let replay = Ask::Replay(reply.id, crate::Ignore::default());
            let Answer::Replayed(replayed) = world.engine.ask(&caller(), replay) else { panic!() };
            assert_eq!(replayed.is_same(), is_same, "{replayed:?}");
            assert_eq!(replayed.ignored, ["value/count", "value/absent"]);
        }
    }

    static INSIDE: AtomicUsize = AtomicUsize::new(0);

    /// Is somewhere for a while, and says how many were there.
    #[tool(name = "own.crowd", version = "1.0.0", effects(read))]
    fn crowd(_: Nothing) -> Result<usize, ToolError> {
        let inside = INSIDE.fetch_add(1, Ordering::SeqCst) + 1;
        std::thread::sleep(Duration::from_millis(5));
        INSIDE.fetch_sub(1, Ordering::SeqCst);
        Ok(inside)
    }

    #[test]
    fn no_more_calls_of_a_tool_at_one_time_than_it_allows() {
        let world = World::new();
        let mut described = CrowdTool.tool().unwrap();
        described.concurrency = Some(2.try_into().unwrap());
        world.engine.add(described, CrowdTool).unwrap();
        let request =
            || Request::new("own.crowd".parse().unwrap(), Arguments::Value(json!({}))).into();
        let steps = (0..12).map(|_| request()).collect();
        let Answer::Batch(replies) = world.engine.ask(&caller(), Ask::Batch(steps)) else {
            panic!()
        };
        let inside = replies.iter().map(|reply| reply.value.as_ref().unwrap().as_u64().unwrap());
        assert_eq!(inside.max(), Some(2));
    }

    static ALONE: AtomicUsize = AtomicUsize::new(0);
    static MOST_ALONE: AtomicUsize = AtomicUsize::new(0);

    /// Never works, and counts who is there.
    #[tool(name = "own.alone", version = "1.0.0", effects(read))]
    fn alone(_: Nothing) -> Result<usize, ToolError> {
        let inside = ALONE.fetch_add(1, Ordering::SeqCst) + 1;
        MOST_ALONE.fetch_max(inside, Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(5));
        ALONE.fetch_sub(1, Ordering::SeqCst);
        Err(ToolError::new("it never works", "so it is", "leave it"))
    }

    #[test]
    fn a_second_try_is_one_of_the_calls_at_one_time_as_well() {
        let world = World::new();
        let mut described = AloneTool.tool().unwrap();
        described.concurrency = Some(1.try_into().unwrap());
        described.retry = Some(Retry { attempts: 3, wait: "1ms".parse().unwrap() });
        world.engine.add(described, AloneTool).unwrap();
        let request =
            || Request::new("own.alone".parse().unwrap(), Arguments::Value(json!({}))).into();
        let steps = (0..8).map(|_| request()).collect();
        let Answer::Batch(replies) = world.engine.ask(&caller(), Ask::Batch(steps)) else {
            panic!()
        };
        assert!(replies.iter().all(|reply| reply.status == Status::Failure), "{replies:?}");
        assert_eq!(MOST_ALONE.load(Ordering::SeqCst), 1);
    }

    /// Gives back what its schema forbids, or panics.
    #[tool(name = "own.broken", version = "1.0.0", effects(pure))]
    fn broken(input: Broken) -> Result<Value, ToolError> {
        assert!(!input.panics, "as it was asked to");
        Ok(json!("not a number"))
    }

    #[derive(Deserialize, JsonSchema)]
    struct Broken {
        panics: bool,
    }

    #[test]
    fn tool_09_a_broken_tool_costs_one_call() {
        let world = World::new();
        let mut described = BrokenTool.tool().unwrap();
        described.output = json!({"type": "number"});
        world.engine.add(described, BrokenTool).unwrap();
        let reply = world.call("own.broken", json!({"panics": false}));
        assert_eq!((reply.status, &reply.value), (Status::Invalid, &None), "{reply:?}");
        let reply = world.call("own.broken", json!({"panics": true}));
        assert_eq!(reply.status, Status::Error, "{reply:?}");
        assert!(!reply.problems[0].why.contains("as it was asked"), "{reply:?}");
        assert_eq!(world.call("add", json!({"a": 1, "b": 2})).status, Status::Success);
    }

    /// More than anybody can use: very long, or very deep.
    #[tool(name = "own.flood", version = "1.0.0", effects(pure))]
    fn flood(input: Flood) -> Result<Value, ToolError> {
        Ok(match input.deep {
            true => (0..500).fold(json!(1), |inner, _| Value::Array(vec![inner])),
            false => json!("x".repeat(64 << 20)),
        })
    }

    #[derive(Deserialize, JsonSchema)]
    struct Flood {
        deep: bool,
    }

    #[test]
    fn tool_09_tool_15_a_flood_from_a_tool_is_bounded_and_costs_one_call() {
        let world = World::new();
        world.engine.add(FloodTool.tool().unwrap(), FloodTool).unwrap();
        for deep in [false, true] {
            let reply = world.call("own.flood", json!({ "deep": deep }));
            assert_eq!((reply.status, reply.value), (Status::Invalid, None));
            assert_eq!(world.call("add", json!({"a": 1, "b": 2})).status, Status::Success);
        }
        world.engine.record().unwrap().checkpoint().unwrap();
        let database = world.dir.path().join("home/hotcell.db-wal");
        assert!(database.metadata().unwrap().len() < 4 << 20, "what is kept of it is bounded");
    }
}

fn shown(world: &World, id: hotcell_types::CallId) -> Result<Box<crate::Shown>, crate::Problem> {
    match world.engine.ask(&caller(), Ask::Show(id)) {
        Answer::Shown(shown) => Ok(shown),
        Answer::Failed(problem) => Err(problem),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_value_that_is_too_large_is_known_by_its_digest_and_the_rest_is_whole() {
    let world = World::new();
    for (times, is_whole) in [(10, true), (crate::MOST_VALUE, false)] {
        let code = format!("yes | head -c {times}; exit 3");
        let reply = world.call("code_execute", json!({"language": "shell", "code": code}));
        let shown = shown(&world, reply.id).unwrap();
        let result = shown.result.value().unwrap();
        assert_eq!(result["run"]["exit"], json!({"code": 3}), "{result}");
        assert_eq!(result["run"]["stdout"]["bytes"], json!(times));
        assert_eq!(result.get("value").is_some(), is_whole, "{result}");
        assert_eq!(result["value_known"]["bytes"].is_u64(), !is_whole, "{result}");
        assert_eq!(shown.status(), Some(Status::Failure));
    }
}

#[test]
fn a_call_of_another_tenant_is_not_there() {
    let world = World::new();
    let reply = world.call("code_execute", json!({"language": "shell", "code": "true"}));
    shown(&world, reply.id).unwrap();
    let other = Caller { tenant: "other".parse().unwrap(), ..caller() };
    let show = Ask::Show(reply.id);
    let replay = Ask::Replay(reply.id, crate::Ignore::default());
    let mut problems = Vec::new();
    for ask in [show, replay] {
        let Answer::Failed(problem) = world.engine.ask(&other, ask) else { panic!("it is there") };
        problems.push(problem);
    }
    let logs =
        world
            .engine
            .logs(&other, reply.id, crate::Listen::new(crate::Until::TheEnd), &mut |_| true);
    problems.push(logs.unwrap_err());
    for problem in problems {
        assert_eq!(problem.kind, crate::ProblemKind::NotFound);
        assert_eq!(problem.what, format!("there is no call {}", reply.id));
    }
}

#[test]
fn pol_15_tool_22_who_asks_for_more_than_the_ceiling_is_refused_and_what_nobody_asked_for_is_lowered()
 {
    let world = World::set_up(|options| {
        options.ceiling.memory = Some("200MiB".parse().unwrap());
        options.ceiling.timeout = Some("20s".parse().unwrap());
    });
    let run = |limits: Value, timeout: Option<&str>| {
        let arguments = json!({"command": ["echo", "ran"], "limits": limits});
        let mut request = Request::new("run".parse().unwrap(), Arguments::Value(arguments));
        request.timeout = timeout.map(|timeout| timeout.parse().unwrap());
        match world.engine.ask(&caller(), Ask::Call(Box::new(request))) {
            Answer::Called(reply) => *reply,
            other => panic!("{other:?}"),
        }
    };
    for (limits, timeout, why) in [
        (
            json!({"memory": "201MiB"}),
            None,
            "201MiB of `memory` is above the most that is allowed, 200MiB",
        ),
        (json!({"timeout": "1m"}), None, "1m of `timeout` is above the most that is allowed, 20s"),
        (json!({}), Some("21s"), "21s of `timeout` is above the most that is allowed, 20s"),
    ] {
        let reply = run(limits, timeout);
        assert_eq!(reply.status, Status::Blocked, "{reply:?}");
        assert_eq!(reply.problems[0].why, why);
        assert_eq!(world.kinds_of(&reply), [Kind::Denied], "on the disk before it is told");
        let reason = shown(&world, reply.id).unwrap().begin.reason.unwrap();
        assert!(reason.ends_with(why), "{reason}");
    }
    for (limits, memory) in [(json!({}), 200 << 20), (json!({"memory": "64MiB"}), 64 << 20)] {
        let reply = run(limits, None);
        assert_eq!(reply.status, Status::Success, "{reply:?}");
        let shown = shown(&world, reply.id).unwrap();
        let held_to = &shown.result.value().unwrap()["run"]["limits"];
        assert_eq!((&held_to["memory"], &held_to["timeout"]), (&json!(memory), &json!(20_000)));
    }
}

/// Every file below a directory, the database with its log among them.
fn bytes_below(directory: &std::path::Path) -> Vec<u8> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap().map(Result::unwrap) {
        match entry.file_type().unwrap() {
            kind if kind.is_dir() => all.extend(bytes_below(&entry.path())),
            kind if kind.is_file() => all.extend(std::fs::read(entry.path()).unwrap()),
            _ => {}
        }
    }
    all
}

#[test]
fn tok_11_what_looks_like_a_key_is_nowhere_in_the_home() {
    const CANARY: &str = "C4naryC4naryC4nary";
    let world = World::new();
    let code = format!(
        "k=ghp_{CANARY}; echo printed $k; echo said $k >&2; echo small $k > small; \
         {{ yes | head -c 200000; echo $k; }} > large; echo x > $k; echo fine > fine"
    );
    let reply = world.call("code_execute", json!({"language": "shell", "code": code}));
    assert_eq!(reply.status, Status::Success, "{reply:?}");
    let shown = shown(&world, reply.id).unwrap();
    let kept: Vec<_> = shown.artifacts.iter().map(|a| (a.name.to_string(), a.is_kept)).collect();
    let expected = [
        ("main.sh", false),
        ("fine", true),
        ("[redacted:github]", true),
        ("large", false),
        ("small", false),
        ("main.sh:stdout", false),
        ("main.sh:stderr", false),
    ];
    assert_eq!(kept, expected.map(|(name, is_kept)| (name.to_owned(), is_kept)));
    let notes = shown.events.iter().filter_map(|event| event.reason.as_deref());
    assert_eq!(notes.filter(|note| note.contains("what looks like one")).count(), 5);
    world.engine.record().unwrap().checkpoint().unwrap();
    let home = bytes_below(&world.dir.path().join("home"));
    let is_there = |text: &str| home.windows(text.len()).any(|window| window == text.as_bytes());
    assert!(is_there("fine") && !is_there(CANARY));
}

/// What a policy calls secret is as secret as what looks like a key to everybody.
#[test]
fn tok_11_what_a_policy_calls_secret_is_nowhere_in_the_home() {
    const RULES: &str = r"
redact: [corp-, { regex: 'tok_[A-Za-z]{10,}' }]
rules:
  - { name: all, match: {}, action: allow }
  - { name: not-here, match: { path: [no] }, action: deny }
";
    const CANARY: &str = "C4naryC4naryC4nary";
    const LETTERS: &str = "CanaryCanaryCanary";
    let policy = Policy::load(RULES.as_bytes(), &Default::default()).unwrap().snapshot;
    let world = World::with(policy);
    let code = format!(
        "k=corp-{CANARY}; t=tok_{LETTERS}; echo printed $k; echo said $t >&2; echo small $t > small; \
         {{ yes | head -c 200000; echo $k; }} > large; echo x > $k; echo x > $t; echo fine > fine"
    );
    let reply = world.call("code_execute", json!({"language": "shell", "code": code}));
    assert_eq!(reply.status, Status::Success, "{reply:?}");
    let all = shown(&world, reply.id).unwrap();
    let mut kept: Vec<_> = all.artifacts.iter().map(|a| (a.name.to_string(), a.is_kept)).collect();
    kept.sort();
    let expected = [
        ("[redacted:policy]", true),
        ("[redacted:policy]", true),
        ("fine", true),
        ("large", false),
        ("main.sh", false),
        ("main.sh:stderr", false),
        ("main.sh:stdout", false),
        ("small", false),
    ];
    assert_eq!(kept, expected.map(|(name, is_kept)| (name.to_owned(), is_kept)));
    // In arguments that are allowed, refused and wrong, in reasons, in results, and under a key.
    for secret in [format!("corp-{CANARY}"), format!("tok_{LETTERS}")] {
        let text = format!("say \"{secret}\"");
        for path in [format!("a/{secret}"), "no/b".into()] {
            world.call("fs.write", json!({"path": path, "text": text}));
        }
        world.call("search.grep", json!({ "pattern": text }));
        world.call("fs.read", json!({ "path": format!("none/{secret}") }));
        let arguments =
            Arguments::Value(json!({"language": "shell", "code": format!("echo {secret}")}));
        let mut once = Request::new("code_execute".parse().unwrap(), arguments);
        once.key = Some("one".parse().unwrap());
        world.engine.ask(&caller(), Ask::Call(Box::new(once)));
    }
    world.engine.record().unwrap().checkpoint().unwrap();
    let home = bytes_below(&world.dir.path().join("home"));
    let is_there = |text: &str| home.windows(text.len()).any(|window| window == text.as_bytes());
    assert!(is_there("fine") && is_there("[redacted:policy]"));
    assert!(!is_there(CANARY) && !is_there(LETTERS));
    // The documents can still be read.
    let event = all.events.first().unwrap();
    assert!(all.arguments.value().is_some(), "{event:?}");
}

#[test]
fn who_finds_others_applying_changes_waits_for_them_and_not_for_ever() {
    let world = World::with(Policy::with_workspace_writes());
    let write = |path: &str, timeout: &str| {
        let arguments = Arguments::Value(json!({"path": path, "text": "x"}));
        let mut request = Request::new("fs.write".parse().unwrap(), arguments);
        request.timeout = Some(timeout.parse().unwrap());
        match world.engine.ask(&caller(), Ask::Call(Box::new(request))) {
            Answer::Called(reply) => *reply,
            other => panic!("{other:?}"),
        }
    };
    let others = std::fs::File::open(world.tree()).unwrap();
    others.lock().unwrap();
    let reply = write("b.txt", "2s");
    assert_eq!(reply.problems[0].kind, crate::ProblemKind::Busy, "{reply:?}");
    assert_eq!(world.read("b.txt"), None);
    std::thread::scope(|scope| {
        let writing = scope.spawn(|| write("c.txt", "30s"));
        // Longer than two seconds, which was all that anybody waited.
        std::thread::sleep(std::time::Duration::from_millis(2500));
        assert!(!writing.is_finished());
        others.unlock().unwrap();
        let reply = writing.join().unwrap();
        assert_eq!(reply.status, Status::Success, "{reply:?}");
    });
    assert_eq!(world.read("c.txt").as_deref(), Some("x"));
}

#[test]
fn changes_that_are_too_large_are_refused_as_a_whole_with_the_path() {
    let world = World::set_up(|options| {
        options.policy = Some(Policy::with_workspace_writes());
        options.ceiling.disk = Some("16MiB".parse().unwrap());
    });
    let reply = world.shell("echo x > small; truncate -s 10M big1 big2");
    assert_eq!(reply.status, Status::Failure, "{reply:?}");
    let why = &reply.problems[0].why;
    assert!(why.contains("with `big2` the changes have more than"), "{why}");
    assert_eq!((world.read("small"), world.tree().join("big1").exists()), (None, false));
}

#[test]
fn a_workspace_of_many_files_is_copied_and_one_beyond_the_operators_bounds_is_refused_with_them() {
    let world = World::set_up(|options| {
        options.policy = Some(Policy::with_workspace_writes());
        options.ceiling.disk = Some("8MiB".parse().unwrap());
    });
    let (many, large) = (world.tree().join("many"), world.tree().join("large"));
    std::fs::create_dir(&many).unwrap();
    // More than the files, and the bytes, that a run of the tool has otherwise.
    for number in 0..10_050 {
        std::fs::write(many.join(number.to_string()), "").unwrap();
    }
    std::fs::File::create(large).unwrap().set_len(20 << 20).unwrap();
    let reply = world.shell("ls many | wc -l; stat -c %s large; echo new > b.txt");
    assert_eq!(reply.status, Status::Success, "{reply:?}");
    assert_eq!(reply.run.unwrap().stdout.bytes, b"10050\n20971520\n");
    assert_eq!(world.read("b.txt").as_deref(), Some("new\n"));
    let with = |set: fn(&mut crate::SnapshotBounds)| {
        let mut options = Options::at(world.dir.path().join("home2"));
        options.workspace = Some(world.tree());
        options.minimum = hotcell_types::Level::NoProc;
        options.policy = Some(Policy::with_workspace_writes());
        set(&mut options.copies);
        let engine = Engine::open(options).unwrap();
        let arguments = Arguments::Value(json!({"command": "ls"}));
        let request = Request::new("shell.run".parse().unwrap(), arguments);
        match engine.ask(&caller(), Ask::Call(Box::new(request))) {
            Answer::Called(reply) => *reply,
            other => panic!("{other:?}"),
        }
    };
    let few = with(|copies| copies.entries = 1000);
    let problem = &few.problems[0];
    assert!(problem.why.contains("more than 1000 files and directories"), "{problem:?}");
    assert!(problem.why.contains("in `many`"), "{problem:?}");
    assert!(problem.fix.contains("`files`"), "{problem:?}");
    let small = with(|copies| copies.bytes = 1 << 20);
    assert!(small.problems[0].why.contains("more than 1048576 bytes"), "{small:?}");
    let without = with(|copies| {
        (copies.entries, copies.bytes) = (1000, 1 << 20);
        copies.except = crate::Globs::new(["many/", "large"]).unwrap();
    });
    assert_eq!(without.run.unwrap().stdout.bytes, b"a.txt\nb.txt\n");
}

#[test]
fn a_large_input_is_kept_as_long_as_the_home_has_room_and_so_the_run_can_be_replayed() {
    for (quota, is_kept) in [("10GiB", true), ("2MiB", false)] {
        let world = World::set_up(|options| options.quota = quota.parse().unwrap());
        let large: Vec<u8> = (0..3 << 20).map(|at: u32| (at % 251) as u8).collect();
        let file = Attachment::of_file("in", in_a_file(&large), u64::MAX).unwrap();
        let stdin = Attachment::of_file("stdin", in_a_file(&large), u64::MAX).unwrap();
        let stdin = Input::Content(stdin);
        let run = run::Run {
            command: ["sha256sum", "in", "-"].map(|word| run::Word::new(word.into())).into(),
            files: vec![file.described()],
            stdin: Some(stdin.described()),
            ..run::Run::default()
        };
        let arguments = Arguments::Value(serde_json::to_value(&run).unwrap());
        let request = Request::new("run".parse().unwrap(), arguments);
        let attached = Attached { files: vec![file], stdin: Some(stdin), ..Attached::default() };
        let answer = world.engine.ask(&caller(), Ask::Run(Box::new(request), Box::new(attached)));
        let Answer::Called(reply) = answer else { panic!("{answer:?}") };
        assert_eq!(reply.status, Status::Success, "{reply:?}");
        let shown = shown(&world, reply.id).unwrap();
        let kept = shown.artifacts.iter().filter(|artifact| artifact.is_kept).count();
        assert_eq!(kept, if is_kept { 3 } else { 1 }, "and what it printed");
        let again = world.engine.ask(&caller(), Ask::Replay(reply.id, crate::Ignore::default()));
        match again {
            Answer::Replayed(replayed) => assert!(is_kept && replayed.is_same(), "{replayed:?}"),
            Answer::Failed(problem) => {
                assert!(!is_kept && problem.why.ends_with("was not kept"), "{problem:?}");
            }
            other => panic!("{other:?}"),
        }
    }
}

/// It reads everything that there is: not for somebody who has gone.
#[test]
fn a_verification_ends_with_whoever_asked_for_it() {
    let world = World::new();
    for (is_left, is_told) in [(false, true), (true, false)] {
        let interrupt = std::sync::atomic::AtomicBool::new(is_left);
        let asker = crate::Asker { interrupt: Some(&interrupt), ..crate::Asker::default() };
        let answer = world.engine.ask(&caller(), Ask::For(asker, Box::new(Ask::Verify)));
        match answer {
            Answer::Verified(_) => assert!(is_told),
            Answer::Failed(problem) => assert!(!is_told && problem.is_busy(), "{problem:?}"),
            other => panic!("{other:?}"),
        }
    }
}

fn in_a_file(bytes: &[u8]) -> std::fs::File {
    let mut file = tempfile::tempfile().unwrap();
    std::io::Write::write_all(&mut file, bytes).unwrap();
    file
}

#[test]
fn who_comes_after_a_call_that_nobody_knows_is_told_which() {
    let world = World::new();
    let unknown = crate::engine::new_id();
    for (tool, arguments) in [
        ("add", json!({"a": 1, "b": 2})),
        ("code_execute", json!({"language": "shell", "code": "true"})),
    ] {
        let mut request = Request::new(tool.parse().unwrap(), Arguments::Value(arguments));
        request.after = vec![unknown];
        let Answer::Called(reply) = world.engine.ask(&caller(), Ask::Call(Box::new(request)))
        else {
            panic!()
        };
        assert_eq!(reply.status, Status::Invalid, "{reply:?}");
        let problem = &reply.problems[0];
        assert_eq!((problem.kind, problem.at.as_str()), (crate::ProblemKind::Invalid, "/after"));
        assert_eq!(problem.what, format!("there is no call {unknown} to come after"));
    }
}

#[test]
fn only_who_the_operator_names_comes_before_others() {
    let urgent = Caller { subject: "urgent".parse().unwrap(), ..caller() };
    let named = urgent.clone();
    let world = World::set_up(|options| options.urgent = vec![(named, 2.try_into().unwrap())]);
    for (caller, priority, expected) in [
        (caller(), 1, Status::Blocked),
        (caller(), 2, Status::Blocked),
        (caller(), 3, Status::Success),
        (caller(), 5, Status::Success),
        (urgent.clone(), 1, Status::Blocked),
        (urgent.clone(), 2, Status::Success),
        (Caller { door: Door::Rest, ..urgent }, 2, Status::Blocked),
    ] {
        let arguments = Arguments::Value(json!({"a": 1, "b": 2}));
        let mut request = Request::new("add".parse().unwrap(), arguments);
        request.priority = priority.try_into().unwrap();
        let answer = world.engine.ask(&caller, Ask::Call(Box::new(request)));
        let Answer::Called(reply) = answer else { panic!("{answer:?}") };
        assert_eq!(reply.status, expected, "{caller:?} {priority} {reply:?}");
        if expected == Status::Blocked {
            assert_eq!(world.kinds_of(&reply), [Kind::Denied]);
        }
    }
}

#[test]
fn api_02_a_parent_of_another_tenant_is_not_there() {
    let world = World::new();
    let other = Caller { tenant: "other".parse().unwrap(), ..caller() };
    let call = |caller: &Caller, parent| {
        let arguments = json!({"language": "shell", "code": "true"});
        let mut request =
            Request::new("code_execute".parse().unwrap(), Arguments::Value(arguments));
        request.parent = parent;
        match world.engine.ask(caller, Ask::Call(Box::new(request))) {
            Answer::Called(reply) => *reply,
            answer => panic!("{answer:?}"),
        }
    };
    let parent = call(&other, None).id;
    let refused = call(&caller(), Some(parent));
    assert_eq!(refused.status, Status::Invalid, "{refused:?}");
    assert_eq!(refused.problems[0].at, "/parent");
    assert!(!format!("{refused:?}").contains("other"), "{refused:?}");
    assert_eq!(call(&other, Some(parent)).status, Status::Success);
}

#[test]
fn who_is_asked_to_make_room_when_it_has_ended_is_told_how_it_ended() {
    use std::sync::{Mutex, mpsc};
    const LONG: std::time::Duration = std::time::Duration::from_secs(30);
    let (told, ended) = mpsc::channel();
    let (go, may_go) = mpsc::channel::<()>();
    let is_first = Mutex::new(Some((told, may_go)));
    // The first call that was carried out waits where its turn is not given back yet.
    let watch = crate::Watch::new(move |_, stage| {
        if stage == crate::Stage::CarriedOut
            && let Some((told, may_go)) = is_first.lock().unwrap().take()
        {
            told.send(()).unwrap();
            may_go.recv_timeout(LONG).unwrap();
        }
    });
    let world = World::set_up(|options| {
        options.watch = Some(watch);
        options.urgent = vec![(caller(), 1.try_into().unwrap())];
    });
    let run = |code: &str, priority: u8| {
        // All the memory that there is.
        let limits = json!({"memory": "1000GiB"});
        let arguments = json!({"command": ["sh", "-c", code], "limits": limits});
        let mut request = Request::new("run".parse().unwrap(), Arguments::Value(arguments));
        request.priority = priority.try_into().unwrap();
        match world.engine.ask(&caller(), Ask::Call(Box::new(request))) {
            Answer::Called(reply) => *reply,
            answer => panic!("{answer:?}"),
        }
    };
    std::thread::scope(|scope| {
        let first = scope.spawn(|| run("exit 3", 3));
        ended.recv_timeout(LONG).unwrap();
        let second = scope.spawn(|| run("true", 1));
        let deadline = std::time::Instant::now() + LONG;
        let makes_room = || {
            let now = world.engine.machine().scheduler.snapshot();
            now.running.iter().any(|job| job.now == hotcell_schedule::Doing::Ends)
        };
        while !makes_room() && std::time::Instant::now() < deadline {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        assert!(makes_room());
        go.send(()).unwrap();
        let first = first.join().unwrap();
        assert_eq!(first.status, Status::Failure, "{first:?}");
        assert!(first.problems.is_empty(), "{first:?}");
        assert_eq!(second.join().unwrap().status, Status::Success);
        let shown = shown(&world, first.id).unwrap();
        assert_eq!(shown.status(), Some(Status::Failure));
    });
}

#[test]
fn the_next_process_sweeps_what_killed_ones_left_of_their_output() {
    let home = tempfile::tempdir().unwrap();
    Engine::open(Options::at(home.path())).unwrap().close().unwrap();
    let live = home.path().join("run/live");
    std::fs::create_dir_all(&live).unwrap();
    let left = live.join("01900000000070008000000000000000");
    let owner = home.path().join("run/owners").join(format!("{}.lock", "ab".repeat(16)));
    for file in [&left, &owner] {
        std::fs::write(file, "").unwrap();
    }
    Engine::open(Options::at(home.path())).unwrap().close().unwrap();
    assert!(!left.exists() && !owner.exists());
}
