//! What every call leaves in the record, however it ends; and what the engine holds a tool to that whoever embeds
//! it has added.

#![expect(clippy::unwrap_used, clippy::panic, reason = "these are tests")]

mod common;

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hotcell_engine::{
    Answer, Ask, Asker, Brake, Engine, Options, Order, Pace, Patience, Policy, Reply, Stage, Step,
    Watch,
};
use hotcell_record::{Event, Filter, Kind};
use hotcell_request::{
    Arguments, Cache, Registry, Request, Spec, Tool, ToolError, ToolName, TypedTool, Version, tool,
};
use hotcell_types::{Caller, Count, Door, Name, Span, Status};
use serde_json::{Value, json};

use crate::common::{options, request};

struct World {
    engine: Engine,
    dir: tempfile::TempDir,
}

fn caller() -> Caller {
    Caller::local(Name::LOCAL, Door::Library)
}

impl World {
    fn new() -> World {
        World::set_up(|_| ())
    }

    fn set_up(set: impl FnOnce(&mut Options)) -> World {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("tree")).unwrap();
        let mut options = options(dir.path());
        set(&mut options);
        World { engine: Engine::open(options).unwrap(), dir }
    }

    fn ask(&self, request: Request) -> Reply {
        match self.engine.ask(&caller(), Ask::Call(Box::new(request))) {
            Answer::Called(reply) => *reply,
            other => panic!("{other:?}"),
        }
    }

    fn call(&self, tool: &str, arguments: Value) -> Reply {
        self.ask(request(tool, arguments))
    }

    /// Of a call, as they are on the disk.
    fn events_of(&self, reply: &Reply) -> Vec<Event> {
        self.engine.settle().unwrap();
        let filter = Filter { call: Some(reply.id), ..Filter::of(Name::LOCAL) };
        let Answer::Events(events) = self.engine.ask(&caller(), Ask::Events(filter)) else {
            panic!()
        };
        events
    }

    /// The one event of a call that came to nothing.
    #[track_caller]
    fn only_event(&self, reply: &Reply) -> Event {
        let mut events = self.events_of(reply);
        assert_eq!(events.len(), 1, "{reply:?} {events:?}");
        let event = events.remove(0);
        assert_eq!((event.kind, event.status), (Kind::Called, Some(reply.status)), "{event:?}");
        event
    }

    #[track_caller]
    fn sound(&self) {
        let Answer::Verified(verdict) = self.engine.ask(&caller(), Ask::Verify) else { panic!() };
        assert_eq!(verdict.fault, None, "{verdict}");
    }
}

/// Allows everything.
fn anything() -> Policy {
    let rules = "rules: [{ name: all, match: {}, action: allow }]";
    Policy::load(rules.as_bytes(), &Default::default()).unwrap().snapshot
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
enum How {
    Says,
    Lies,
    Fails,
    Panics,
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct What {
    how: How,
    #[serde(default)]
    text: String,
    #[serde(default)]
    millis: u64,
}

fn do_it(what: What) -> Result<Value, ToolError> {
    std::thread::sleep(Duration::from_millis(what.millis));
    match what.how {
        How::Says => Ok(json!(what.text)),
        How::Lies => Ok(json!(7)),
        How::Fails => Err(ToolError::new("it does not work", "so it was told", "tell it more")),
        How::Panics => panic!("as it was told"),
    }
}

/// Does what it is told.
#[tool(name = "own.told", version = "1.0.0", effects(pure))]
fn told(what: What) -> Result<Value, ToolError> {
    do_it(what)
}

/// Does what it is told, and could change something.
#[tool(name = "own.does", version = "1.0.0", effects(write))]
fn does(what: What) -> Result<Value, ToolError> {
    do_it(what)
}

fn described(tool: &impl TypedTool) -> Tool {
    let mut described = tool.tool().unwrap();
    described.output = json!({"type": "string"});
    described
}

fn with_told(set: impl FnOnce(&mut Tool), options: impl FnOnce(&mut Options)) -> World {
    let world = World::set_up(options);
    let mut described = described(&ToldTool);
    set(&mut described);
    world.engine.add(described, ToldTool).unwrap();
    world
}

fn says() -> Value {
    json!({"how": "says", "text": "fine"})
}

fn how(how: &str) -> Value {
    json!({ "how": how })
}

#[test]
fn aud_08_a_request_that_is_no_call_is_one_event_that_has_none_of_its_values() {
    let world = World::new();
    let secret = "S3cretInTheWrongPlace";
    for (tool, arguments, places) in [
        ("add", json!({"a": secret, "b": 1}), "the arguments are wrong at: /a"),
        ("fs.write", json!({"path": format!("../{secret}"), "text": "x"}), "at: /path"),
        ("no.such.tool", json!({"a": secret}), "there is no tool `no.such.tool`"),
        ("shell.run", json!({"command": [secret]}), "at: /command"),
    ] {
        let reply = world.call(tool, arguments);
        assert_eq!(reply.status, Status::Invalid, "{reply:?}");
        let event = world.only_event(&reply);
        assert_eq!(event.operation.as_deref(), Some(tool));
        assert_eq!((event.decision, &event.input), (None, &None), "nobody judged it");
        assert!(event.reason.as_deref().unwrap().contains(places), "{event:?}");
        assert!(!format!("{event:?}").contains(secret), "{event:?}");
    }
    let mut nobodys = request("add", json!({"a": 1, "b": 2}));
    nobodys.after = (0..100).map(|_| hotcell_engine::new_id()).collect();
    let reply = world.ask(nobodys);
    assert_eq!(reply.status, Status::Invalid, "{reply:?}");
    world.only_event(&reply);
    let mut first = request("fs.write", json!({"path": "a", "text": "1"}));
    first.key = Some("key".parse().unwrap());
    assert_eq!(world.ask(first.clone()).status, Status::Success);
    first.arguments = Arguments::Value(json!({"path": "a", "text": "2"}));
    let other = world.ask(first);
    assert_eq!(other.problems[0].kind, hotcell_engine::ProblemKind::Conflict, "{other:?}");
    world.only_event(&other);
    world.sound();
}

#[test]
fn aud_08_a_call_that_gives_up_is_one_event() {
    // The function itself.
    let world = with_told(|_| (), |_| ());
    let reply = world.call("own.told", how("panics"));
    assert_eq!(reply.status, Status::Error, "{reply:?}");
    assert_eq!(reply.problems[0].what, "`own.told` gave up");
    let event = world.only_event(&reply);
    assert!(event.decision.is_some() && event.input.is_some(), "it was judged: {event:?}");
    // Anything else on its way.
    for stage in [Stage::Called, Stage::Judged, Stage::Prepared, Stage::Scheduled] {
        let armed = Arc::new(AtomicBool::new(true));
        let watch = Watch::new(move |_, now| {
            if now == stage && armed.swap(false, Ordering::SeqCst) {
                panic!("on purpose")
            }
        });
        let world = World::set_up(|options| options.watch = Some(watch));
        let reply = world.call("fs.read", json!({"path": "a"}));
        assert_eq!(reply.status, Status::Error, "{stage:?} {reply:?}");
        assert_eq!(world.only_event(&reply).operation.as_deref(), Some("fs.read"), "{stage:?}");
        world.sound();
    }
}

#[test]
fn aud_08_what_a_call_that_gives_up_has_changed_nobody_knows() {
    let world = World::set_up(|options| options.policy = Some(anything()));
    world.engine.add(described(&DoesTool), DoesTool).unwrap();
    let reply = world.call("own.does", how("panics"));
    assert_eq!(reply.status, Status::Unknown, "{reply:?}");
    let events = world.events_of(&reply);
    let kinds: Vec<_> = events.iter().map(|event| (event.kind, event.status)).collect();
    assert_eq!(kinds, [(Kind::Intent, None), (Kind::Outcome, Some(Status::Unknown))]);
    assert_eq!(world.call("own.does", says()).status, Status::Success);
}

#[test]
fn aud_08_each_step_of_a_batch_is_one_event_also_where_it_was_not_begun() {
    let world = World::new();
    let step = |tool: &str, arguments, after: &[usize]| Step {
        request: request(tool, arguments),
        after: after.into(),
    };
    let add = || json!({"a": 1, "b": 2});
    let batch = |steps| match world.engine.ask(&caller(), Ask::Batch(steps)) {
        Answer::Batch(replies) => replies,
        other => panic!("{other:?}"),
    };
    let replies = batch(vec![
        step("divide", json!({"a": 1, "b": 0}), &[]),
        step("add", add(), &[0]),
        step("code_execute", json!({"language": "shell", "code": "true"}), &[1]),
        step("add", add(), &[]),
    ]);
    let statuses: Vec<_> = replies.iter().map(|reply| reply.status.name()).collect();
    assert_eq!(statuses, ["failure", "cancelled", "cancelled", "success"]);
    for (reply, tool) in replies.iter().zip(["divide", "add", "code_execute", "add"]) {
        assert_eq!(world.only_event(reply).operation.as_deref(), Some(tool));
    }
    // One that does not fit together.
    let replies = batch(vec![step("add", add(), &[1]), step("divide", add(), &[0])]);
    for (reply, tool) in replies.iter().zip(["add", "divide"]) {
        assert_eq!(reply.status, Status::Invalid);
        assert_eq!(world.only_event(reply).operation.as_deref(), Some(tool));
    }
    // One that nobody waits for any more.
    let is_over = AtomicBool::new(true);
    let asker = Asker { interrupt: Some(&is_over), ..Asker::default() };
    let ask = Ask::For(asker, Box::new(Ask::Batch(vec![step("add", add(), &[])])));
    let Answer::Batch(replies) = world.engine.ask(&caller(), ask) else { panic!() };
    assert_ne!(replies[0].status, Status::Success);
    world.only_event(&replies[0]);
    world.sound();
}

/// Whether a text is in any file below a directory.
fn is_below(directory: &Path, text: &str) -> bool {
    fs::read_dir(directory).unwrap().map(Result::unwrap).any(|entry| {
        let path = entry.path();
        match entry.file_type().unwrap() {
            kind if kind.is_dir() => is_below(&path, text),
            kind if kind.is_file() => {
                let bytes = fs::read(&path).unwrap();
                bytes.windows(text.len()).any(|window| window == text.as_bytes())
            }
            _ => false,
        }
    })
}

#[test]
fn aud_11_of_however_many_secrets_none_is_recorded() {
    const MARK: &str = "C4nary";
    let world = World::new();
    let run = |count: usize| {
        let env: serde_json::Map<_, _> = (0..count)
            .map(|number| (format!("V{number}_TOKEN"), json!(format!("{MARK}-{number}-{MARK}"))))
            .collect();
        world.call("run", json!({"command": ["sh", "-c", "env; echo fine"], "env": env}))
    };
    let reply = run(200);
    assert_eq!(reply.status, Status::Success, "{:?}", reply.problems);
    let printed = String::from_utf8_lossy(&reply.run.as_ref().unwrap().stdout.bytes).into_owned();
    assert_eq!(printed.matches(MARK).count(), 400, "the program had all of them");
    assert!(!world.events_of(&reply).is_empty());
    // More than anybody looks for is refused, and that is recorded without any of them.
    let tokens: Vec<String> = (0..5000).map(|number| format!("{MARK}-{number}-{MARK}")).collect();
    let reply = world.call("own.tokens", json!({ "tokens": tokens }));
    assert_eq!(reply.status, Status::Invalid, "{:?}", reply.problems);
    world.engine.add(TokensTool.tool().unwrap(), TokensTool).unwrap();
    let reply = world.call("own.tokens", json!({ "tokens": tokens }));
    assert_eq!(reply.status, Status::Invalid, "{:?}", reply.problems);
    assert!(reply.problems[0].what.contains("more secrets"), "{:?}", reply.problems);
    assert!(world.only_event(&reply).reason.unwrap().contains("more secrets"));
    // Each counts once.
    let same: Vec<String> = (0..5000).map(|number| format!("{MARK}-{}", number % 900)).collect();
    let reply = world.call("own.tokens", json!({ "tokens": same }));
    assert_eq!(reply.value, Some(json!(5000)), "{:?}", reply.problems);
    world.events_of(&reply);
    assert!(!is_below(&world.dir.path().join("home"), MARK));
    world.sound();
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Tokens {
    tokens: Vec<String>,
}

/// Counts.
#[tool(name = "own.tokens", version = "1.0.0", effects(pure))]
fn tokens(input: Tokens) -> Result<usize, ToolError> {
    Ok(input.tokens.len())
}

fn patient(failures: u32) -> impl FnOnce(&mut Options) {
    move |options| {
        options.patience = Patience { failures: Count::of(failures), rest: Span::seconds(3600) };
    }
}

#[test]
fn a_tool_is_left_alone_when_it_fails_itself_and_only_then() {
    for bad in ["fails", "panics", "lies"] {
        let world = with_told(|_| (), patient(3));
        for _ in 0..2 {
            assert_ne!(world.call("own.told", how(bad)).status, Status::CircuitOpen, "{bad}");
        }
        // A success in between forgets them.
        assert_eq!(world.call("own.told", says()).status, Status::Success, "{bad}");
        for _ in 0..3 {
            assert_ne!(world.call("own.told", how(bad)).status, Status::CircuitOpen, "{bad}");
        }
        let reply = world.call("own.told", says());
        assert_eq!(reply.status, Status::CircuitOpen, "{bad} {reply:?}");
        assert_eq!(world.only_event(&reply).status, Some(Status::CircuitOpen));
        assert_eq!(world.call("add", json!({"a": 1, "b": 2})).status, Status::Success);
    }
    // Late, and too much.
    let slow = json!({"how": "says", "millis": 30});
    let long = json!({"how": "says", "text": "x".repeat(2000)});
    for (bad, timeout, output) in [(slow, "1ms", None), (long, "10s", Some("1KiB"))] {
        let set = |tool: &mut Tool| {
            tool.limits.timeout = Some(timeout.parse().unwrap());
            tool.limits.output = output.map(|most: &str| most.parse().unwrap());
        };
        let world = with_told(set, patient(2));
        for _ in 0..2 {
            assert_ne!(world.call("own.told", bad.clone()).status, Status::CircuitOpen);
        }
        assert_eq!(world.call("own.told", bad).status, Status::CircuitOpen);
    }
}

#[test]
fn what_callers_ask_for_or_hotcell_cannot_do_is_no_failure_of_a_tool() {
    let world = World::set_up(patient(2));
    let shell = |code: &str| json!({"language": "shell", "code": code});
    for _ in 0..3 {
        for (tool, arguments, status) in [
            ("divide", json!({"a": 1, "b": 0}), Status::Failure),
            ("fs.read", json!({"path": "none"}), Status::Failure),
            ("code_execute", shell("exit 3"), Status::Failure),
            ("code_execute", shell("kill -9 $$"), Status::Killed),
            ("add", json!({"a": "one", "b": 2}), Status::Invalid),
        ] {
            assert_eq!(world.call(tool, arguments).status, status, "{tool}");
        }
    }
    assert_eq!(world.call("code_execute", shell("true")).status, Status::Success);
    // Nothing can be recorded any more, which is nobody's fault but ours.
    world.engine.record().unwrap().clone().close().unwrap();
    for _ in 0..4 {
        for (tool, arguments) in [("add", json!({"a": 1, "b": 2})), ("code_execute", shell("true"))]
        {
            assert_eq!(world.call(tool, arguments).status, Status::Error, "{tool}");
        }
    }
}

#[test]
fn after_its_rest_a_tool_is_tried_once_and_works_again_or_not() {
    let world = with_told(
        |_| (),
        |options| {
            let rest = "20ms".parse().unwrap();
            options.patience = Patience { failures: Count::of(1), rest };
        },
    );
    let until_tried = |arguments: Value| loop {
        let reply = world.call("own.told", arguments.clone());
        if reply.status != Status::CircuitOpen {
            return reply.status;
        }
    };
    assert_eq!(world.call("own.told", how("fails")).status, Status::Failure);
    assert_eq!(until_tried(how("fails")), Status::Failure);
    assert_eq!(until_tried(says()), Status::Success);
    for _ in 0..3 {
        assert_eq!(world.call("own.told", says()).status, Status::Success);
    }
}

#[test]
fn a_function_is_held_to_what_its_tool_says_and_the_request() {
    let set = |tool: &mut Tool| {
        tool.limits.timeout = Some("10s".parse().unwrap());
        tool.limits.output = Some("1KiB".parse().unwrap());
    };
    let world = with_told(set, |_| ());
    assert_eq!(world.call("own.told", says()).status, Status::Success);
    let fits = json!({"how": "says", "text": "x".repeat(1022)});
    assert_eq!(world.call("own.told", fits).status, Status::Success);
    let reply = world.call("own.told", json!({"how": "says", "text": "x".repeat(1023)}));
    assert_eq!((reply.status, &reply.value), (Status::Failure, &None), "{reply:?}");
    assert!(reply.problems[0].why.contains("output: 1KiB"), "{reply:?}");
    assert_eq!(world.only_event(&reply).status, Some(Status::Failure));
    let mut hurried = request("own.told", json!({"how": "says", "text": "late", "millis": 30}));
    hurried.timeout = Some("1ms".parse().unwrap());
    let reply = world.ask(hurried);
    assert_eq!((reply.status, &reply.value), (Status::Timeout, &None), "{reply:?}");
    assert!(reply.problems[0].why.contains("timeout: 1ms"), "{reply:?}");
}

/// A function of which it can be seen whether it is still there.
struct Counted {
    _is_there: Arc<()>,
    says: &'static str,
}

impl TypedTool for Counted {
    fn spec(&self) -> Spec {
        ToldTool.spec()
    }

    fn tool(&self) -> Result<Tool, hotcell_request::Fault> {
        ToldTool.tool()
    }

    fn call(&self, _: Value) -> Result<Value, ToolError> {
        Ok(json!(self.says))
    }
}

#[test]
fn a_tool_that_is_removed_takes_its_function_and_results_with_it() {
    let world = World::new();
    let (name, version): (ToolName, Version) = ToldTool.spec().name_and_version().unwrap();
    let described = || {
        let mut described = described(&ToldTool);
        described.cache = Cache::Keep { span: "1h".parse().unwrap(), inputs: vec![] };
        described
    };
    let add = |text| {
        let is_there = Arc::new(());
        let function = Counted { _is_there: Arc::clone(&is_there), says: text };
        world.engine.add(described(), function).unwrap();
        move || Arc::strong_count(&is_there) > 1
    };
    let call = || world.call("own.told", says());
    let first = add("first");
    assert_eq!(call().value, Some(json!("first")));
    assert!(call().cached);
    world.engine.remove(&name, version).unwrap();
    assert!(!first());
    assert!(world.engine.remove(&name, version).is_err());
    assert_eq!(call().status, Status::Invalid);
    // Another one of the same name, which says the same of itself.
    let second = add("second");
    let reply = call();
    assert_eq!((reply.value, reply.cached), (Some(json!("second")), false));
    // Taken out of the registry alone, and described again by somebody who has no function for it.
    let registry: &Registry = world.engine.registry();
    registry.unregister(&name, version).unwrap();
    registry.register(described()).unwrap();
    let reply = call();
    assert!(reply.value.is_none() && !reply.cached, "{reply:?}");
    assert!(reply.problems[0].what.contains("nobody carries out"), "{reply:?}");
    registry.unregister(&name, version).unwrap();
    let third = add("third");
    assert!(third() && !second(), "what nobody can call does not stay");
    assert_eq!(call().value, Some(json!("third")));
}

#[test]
fn a_tool_that_is_disabled_is_not_called_by_any_way_and_that_is_recorded() {
    let world = with_told(|_| (), |_| ());
    let (name, version) = ToldTool.spec().name_and_version().unwrap();
    world.engine.registry().disable(&name, version).unwrap();
    let step = || Step::from(request("own.told", says()));
    let Answer::Batch(mut replies) = world.engine.ask(&caller(), Ask::Batch(vec![step(), step()]))
    else {
        panic!()
    };
    replies.push(world.call("own.told", says()));
    let pace = Pace { jobs: 1, order: Order::Given };
    let (brake, whose) = (Brake::default(), caller());
    std::thread::scope(|scope| {
        let requests = [request("own.told", says())].into_iter();
        let streamed = world.engine.batch_stream(scope, &whose, pace, &brake, requests);
        replies.extend(streamed.map(|(_, reply)| reply));
    });
    assert_eq!(replies.len(), 4);
    for reply in &replies {
        assert_eq!((reply.status, &reply.value), (Status::Invalid, &None), "{reply:?}");
        let event = world.only_event(reply);
        assert!(event.reason.unwrap().contains("disabled"));
    }
    // People see that it is there, and that it cannot be called.
    let Answer::Tools(listed) = world.engine.ask(&caller(), Ask::Tools(None)) else { panic!() };
    let found = listed.iter().find(|one| one.tool.tool().name == name).unwrap();
    assert!(!found.enabled && listed.iter().filter(|one| !one.enabled).count() == 1);
    world.engine.registry().enable(&name, version).unwrap();
    assert_eq!(world.call("own.told", says()).status, Status::Success);
}
