//! The path as a whole, on a real home.

use std::path::PathBuf;

use hotcell_record::{Filter, Kind};
use hotcell_request::{Arguments, Request};
use hotcell_types::{Caller, Door, Name, Status};
use serde_json::{Value, json};

use crate::{Answer, Ask, Attached, Attachment, Engine, Input, Options, Policy, Reply, Step, run};

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
        let dir = tempfile::tempdir().unwrap();
        let tree = dir.path().join("tree");
        std::fs::create_dir(&tree).unwrap();
        std::fs::write(tree.join("a.txt"), "one\ntwo\n").unwrap();
        let mut options = Options::at(dir.path().join("home"));
        options.workspace = Some(tree);
        options.minimum = hotcell_types::Level::NoProc;
        options.policy = policy;
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
fn one_refused_change_refuses_all_and_is_recorded() {
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
    fn a_broken_tool_costs_one_call() {
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
    let logs = world.engine.logs(&other, reply.id, crate::Until::TheEnd, &mut |_| true);
    problems.push(logs.unwrap_err());
    for problem in problems {
        assert_eq!(problem.kind, crate::ProblemKind::NotFound);
        assert_eq!(problem.what, format!("there is no call {}", reply.id));
    }
}
