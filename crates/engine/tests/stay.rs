//! Sandboxes that stay, from their making to their end, through the one way in.

#![expect(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "these are tests")]

mod common;

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use hotcell_engine::{
    Answer, Ask, Attached, Attachment, Bounds, Engine, Options, Policy, Reply, StayBounds,
    Surroundings,
};
use hotcell_record::{Event, Filter, Kind};
use hotcell_types::{Caller, Door, Level, Name, SomeLimits, Status};
use serde_json::{Value, json};

use crate::common::{options, request};

struct World {
    engine: Engine,
    dir: tempfile::TempDir,
}

fn caller(tenant: &str) -> Caller {
    Caller { tenant: tenant.parse().unwrap(), ..Caller::local(Name::LOCAL, Door::Library) }
}

impl World {
    fn new() -> World {
        World::with(|options| options)
    }

    fn with(change: impl FnOnce(Options) -> Options) -> World {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("tree")).unwrap();
        let options =
            Options { policy: Some(Policy::with_workspace_writes()), ..options(dir.path()) };
        World { engine: Engine::open(change(options)).unwrap(), dir }
    }

    fn tree(&self) -> PathBuf {
        self.dir.path().join("tree")
    }

    fn ask(&self, tenant: &str, ask: Ask<'_>) -> Reply {
        match self.engine.ask(&caller(tenant), ask) {
            Answer::Called(reply) => *reply,
            other => panic!("{other:?}"),
        }
    }

    fn call(&self, tool: &str, arguments: Value) -> Reply {
        self.ask("local", Ask::Call(Box::new(request(tool, arguments))))
    }

    #[track_caller]
    fn good(&self, tool: &str, arguments: Value) -> Value {
        let reply = self.call(tool, arguments);
        assert_eq!(reply.status, Status::Success, "{reply:?}");
        reply.value.unwrap()
    }

    #[track_caller]
    fn create(&self, arguments: Value) -> String {
        let made = self.good("sandbox.create", arguments);
        assert_eq!(made["state"], "running", "{made}");
        made["id"].as_str().unwrap().to_owned()
    }

    fn shell(&self, id: &str, code: &str) -> Reply {
        self.call("sandbox.exec", json!({"sandbox": id, "command": ["sh", "-c", code]}))
    }

    #[track_caller]
    fn says(&self, id: &str, code: &str) -> String {
        let reply = self.shell(id, code);
        assert_eq!(reply.status, Status::Success, "{reply:?}");
        String::from_utf8_lossy(&reply.run.unwrap().stdout.bytes).into_owned()
    }

    fn state(&self, id: &str) -> Value {
        self.good("sandbox.show", json!({ "sandbox": id }))["state"].clone()
    }

    /// How one thing is said about a sandbox.
    fn about(&self, what: &str, id: &str) -> Reply {
        self.call(&format!("sandbox.{what}"), json!({ "sandbox": id }))
    }

    fn events(&self) -> Vec<Event> {
        let filter = Filter { limit: 1000, ..Filter::of(Name::LOCAL) };
        let Answer::Events(events) = self.engine.ask(&caller("local"), Ask::Events(filter)) else {
            panic!()
        };
        events
    }

    /// Puts a file in, as a door does.
    fn put(&self, id: &str, name: &str, content: &str) -> Reply {
        let file = Attachment::of_bytes(name, content.as_bytes().to_vec());
        let arguments = json!({ "sandbox": id, "files": [file.described()] });
        let attached = Attached { files: vec![file], ..Attached::default() };
        self.ask("local", Ask::Run(Box::new(request("sandbox.put", arguments)), Box::new(attached)))
    }
}

fn first(reply: &Reply) -> String {
    let problem = reply.problems.first().unwrap_or_else(|| panic!("{reply:?}"));
    format!("{}: {}; {}", problem.what, problem.why, problem.fix)
}

fn until(holds: impl Fn() -> bool) -> bool {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(20) {
        if holds() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    false
}

#[test]
fn programs_run_one_after_the_other_and_each_is_a_call_in_the_record() {
    let world = World::new();
    let id = world.create(json!({}));
    assert_eq!(world.says(&id, "echo one > a; echo two"), "two\n");
    assert_eq!(world.says(&id, "cat a"), "one\n");
    let failed = world.shell(&id, "exit 3");
    assert_eq!(failed.status, Status::Failure);
    let python = json!({"sandbox": id, "language": "python", "code": "print(open('a').read())"});
    let reply = world.call("sandbox.exec", python);
    assert_eq!(reply.run.unwrap().stdout.bytes, b"one\n\n");
    // Code is no file among those of the sandbox.
    assert_eq!(world.says(&id, "ls -A"), "a\n");
    let shown = world.good("sandbox.show", json!({ "sandbox": id }));
    assert_eq!((&shown["programs"], &shown["running"]), (&json!(5), &json!(0)));
    assert!(shown["usage"]["files"].as_u64() >= Some(1), "{shown}");
    let events = world.events();
    let of = |kind: Kind| {
        let is_exec = |event: &&Event| {
            event.kind == kind && event.tool.as_deref() == Some("sandbox.exec@1.0.0")
        };
        events.iter().filter(is_exec).count()
    };
    assert_eq!((of(Kind::Intent), of(Kind::Outcome)), (5, 5));
}

#[test]
fn each_transition_and_each_that_is_not_there() {
    let world = World::new();
    let id = world.create(json!({}));
    let stays_here = |what: &str, status: Status, state: &str| {
        let reply = world.about(what, &id);
        assert_eq!((reply.status, world.state(&id)), (status, json!(state)), "{what}: {reply:?}");
    };
    let is_paused = world.about("pause", &id);
    if is_paused.status == Status::Success {
        stays_here("pause", Status::Success, "paused");
        let refused = world.shell(&id, "true");
        assert_eq!(refused.status, Status::Invalid);
        assert!(first(&refused).contains("it is paused"), "{}", first(&refused));
        assert_eq!(world.put(&id, "a", "x").status, Status::Invalid);
        stays_here("resume", Status::Success, "running");
        stays_here("resume", Status::Success, "running");
        world.about("pause", &id);
    }
    stays_here("stop", Status::Success, "destroyed");
    stays_here("stop", Status::Success, "destroyed");
    stays_here("pause", Status::Invalid, "destroyed");
    stays_here("resume", Status::Invalid, "destroyed");
    let refused = world.shell(&id, "true");
    assert!(first(&refused).contains("restart"), "{}", first(&refused));
    stays_here("restart", Status::Success, "running");
    assert_eq!(world.says(&id, "echo x > a; ls"), "a\n");
    // From running as well: nothing is left of what was there.
    stays_here("restart", Status::Success, "running");
    assert_eq!(world.says(&id, "ls -A"), "");
    assert_eq!(world.about("remove", &id).status, Status::Success);
    for what in ["show", "pause", "resume", "stop", "restart", "remove", "diff", "apply"] {
        let reply = world.about(what, &id);
        assert_eq!(reply.status, Status::Invalid, "{what}: {reply:?}");
        assert!(first(&reply).contains("there is no sandbox"), "{}", first(&reply));
    }
}

#[test]
fn nobody_of_another_tenant_knows_that_it_is_there() {
    let world = World::new();
    let id = world.create(json!({}));
    world.says(&id, "echo mine > a");
    for (tool, arguments) in [
        ("sandbox.exec", json!({"sandbox": id, "command": ["cat", "a"]})),
        ("sandbox.show", json!({ "sandbox": id })),
        ("sandbox.get", json!({"sandbox": id, "path": "a"})),
        ("sandbox.stop", json!({ "sandbox": id })),
    ] {
        let reply = world.ask("other", Ask::Call(Box::new(request(tool, arguments))));
        assert_eq!(reply.status, Status::Invalid, "{tool}: {reply:?}");
        assert!(first(&reply).contains("there is no sandbox"), "{}", first(&reply));
        assert!(reply.run.is_none());
    }
    let listed = world.ask("other", Ask::Call(Box::new(request("sandbox.list", json!({})))));
    assert_eq!(listed.value.unwrap()["sandboxes"], json!([]));
    assert_eq!(world.says(&id, "cat a"), "mine\n");
}

#[test]
fn it_ends_by_itself_when_nobody_uses_it_and_when_it_is_old() {
    let world = World::new();
    let unused = world.create(json!({"idle": "300ms"}));
    let old = world.create(json!({"lifetime": "1500ms"}));
    let begun = Instant::now();
    // Whoever runs something uses it, for as long as that takes.
    assert_eq!(world.says(&unused, "sleep 0.6; echo used"), "used\n");
    // Its lifetime waits for nobody.
    let ended = world.shell(&old, "sleep 60");
    assert_eq!(ended.status, Status::Cancelled, "{ended:?}");
    assert!(begun.elapsed() >= Duration::from_millis(1200), "{:?}", begun.elapsed());
    for (id, why) in [(&unused, "nobody used it for 300ms"), (&old, "its lifetime of 1500ms")] {
        assert!(until(|| world.state(id) == "destroyed"), "{id} stays");
        let shown = world.good("sandbox.show", json!({ "sandbox": id }));
        assert!(shown["why"].as_str().unwrap().starts_with(why), "{shown}");
        let noted = until(|| {
            world.events().iter().any(|event| {
                event.kind == Kind::Note
                    && event.parent.is_some_and(|parent| parent.to_string() == *id)
                    && event.reason.as_deref().is_some_and(|reason| reason.starts_with(why))
            })
        });
        assert!(noted, "the record does not say why {id} has ended");
    }
    // It can be made anew.
    world.good("sandbox.restart", json!({ "sandbox": old }));
    assert_eq!(world.says(&old, "echo back"), "back\n");
}

#[test]
fn there_are_only_so_many_of_each_caller_and_of_all() {
    let world = World::with(|options| Options {
        stays: StayBounds { most: 3, each: 2, ..StayBounds::default() },
        ..options
    });
    let own = [world.create(json!({})), world.create(json!({}))];
    let third = world.call("sandbox.create", json!({}));
    assert!(first(&third).contains("this caller has 2"), "{}", first(&third));
    let other = || world.ask("other", Ask::Call(Box::new(request("sandbox.create", json!({})))));
    assert_eq!(other().status, Status::Success);
    let full = other();
    assert!(first(&full).contains("3 stay"), "{}", first(&full));
    world.good("sandbox.stop", json!({"sandbox": own[0]}));
    assert_eq!(other().status, Status::Success);
    let anew = world.about("restart", &own[0]);
    assert!(first(&anew).contains("3 stay"), "{}", first(&anew));
    assert_eq!(world.engine.sandboxes(), 3);

    let none = World::with(|options| Options { stays: StayBounds::NONE, ..options });
    let refused = none.call("sandbox.create", json!({}));
    assert!(first(&refused).contains("hotcell resident start"), "{}", first(&refused));
}

#[test]
fn what_is_more_than_the_machine_has_is_refused_before_it_is_made() {
    let world = World::new();
    let huge = world.call("sandbox.create", json!({"limits": {"memory": "4096GiB"}}));
    assert!(first(&huge).contains("more memory than there is"), "{}", first(&huge));
    for (arguments, says) in [
        (json!({"limits": {"pids": "4"}}), "at least 6"),
        (json!({"languages": ["cobol"]}), "cobol"),
        (json!({"template": "nope"}), "template"),
        (json!({"idle": "soon"}), "idle"),
    ] {
        let reply = world.call("sandbox.create", arguments);
        assert_eq!(reply.status, Status::Invalid, "{reply:?}");
        assert!(first(&reply).contains(says), "{}", first(&reply));
    }
    let long = world.call("sandbox.create", json!({"lifetime": "25h"}));
    assert_eq!(long.status, Status::Blocked, "{long:?}");
    assert!(first(&long).contains("24h is the most"), "{}", first(&long));
    assert_eq!(world.engine.sandboxes(), 0);
    assert_eq!(world.good("sandbox.list", json!({}))["sandboxes"], json!([]));
}

#[test]
fn whoever_asks_is_held_to_what_holds_for_them_also_in_a_sandbox_that_is_there() {
    let world = World::new();
    let id = world.create(json!({}));
    let exec = || request("sandbox.exec", json!({"sandbox": id, "command": ["true"]}));
    let from = |bounds| {
        let mut from = Surroundings::default();
        from.bounds = bounds;
        Some(from)
    };
    let ask = |request, bounds| {
        let attached = Attached { from: from(bounds), ..Attached::default() };
        world.ask("local", Ask::Run(Box::new(request), Box::new(attached)))
    };
    // The level is refused where a run of its own would be.
    let strict = || Bounds { minimum: Some(Level::Full), ..Bounds::default() };
    let run = ask(request("run", json!({"command": ["true"]})), strict());
    assert_eq!(ask(exec(), strict()).status, run.status);
    assert_eq!(ask(request("sandbox.create", json!({})), strict()).status, run.status);
    let small = SomeLimits { memory: "64MiB".parse().ok(), ..SomeLimits::default() };
    let reply = ask(exec(), Bounds { ceiling: small, ..Bounds::default() });
    assert_eq!(reply.status, Status::Blocked, "{reply:?}");
    let short = SomeLimits { cpu_time: "1s".parse().ok(), ..SomeLimits::default() };
    for request in [exec(), request("sandbox.create", json!({}))] {
        let reply = ask(request, Bounds { ceiling: short, ..Bounds::default() });
        assert_eq!(reply.status, Status::Blocked, "{reply:?}");
        assert!(first(&reply).contains("processor time"), "{}", first(&reply));
    }
    assert_eq!(ask(exec(), Bounds::default()).status, Status::Success);
}

#[test]
fn one_that_is_paused_is_used_by_nobody() {
    let world = World::new();
    let id = world.create(json!({"idle": "400ms"}));
    if world.about("pause", &id).status != Status::Success {
        return;
    }
    assert!(until(|| world.state(&id) == "destroyed"), "it stays");
}

#[test]
fn files_go_in_and_out_and_links_lead_nowhere() {
    let world = World::new();
    let id = world.create(json!({}));
    assert_eq!(world.put(&id, "d/e/a.txt", "one").status, Status::Success);
    assert_eq!(world.says(&id, "cat d/e/a.txt; echo two > d/e/b"), "one");
    let taken = world.call("sandbox.get", json!({"sandbox": id, "path": "d/e/b"}));
    assert_eq!(taken.value.as_ref().unwrap()["bytes"], 4);
    assert_eq!(taken.artifacts[0].name, "d/e/b");
    world.says(&id, "ln -s /etc/passwd link; ln -s d dir; mkfifo pipe; ln -s nowhere gone");
    for (path, status) in [
        ("link", Status::Failure),
        ("dir/e/b", Status::Failure),
        ("pipe", Status::Invalid),
        ("d", Status::Invalid),
        ("missing", Status::Invalid),
        ("../a", Status::Invalid),
        ("/etc/passwd", Status::Invalid),
    ] {
        let reply = world.call("sandbox.get", json!({"sandbox": id, "path": path}));
        assert_eq!(reply.status, status, "{path}: {reply:?}");
        assert!(reply.artifacts.is_empty(), "{path}");
    }
    // Holes take no room there, and would here.
    world.says(&id, "truncate -s 300M sparse");
    let sparse = world.call("sandbox.get", json!({"sandbox": id, "path": "sparse"}));
    assert_eq!(sparse.status, Status::Failure, "{sparse:?}");
    for path in ["../x", "/x", "d/../../x"] {
        assert_eq!(world.put(&id, path, "x").status, Status::Invalid, "{path}");
    }
    // A link is replaced, and not written through.
    world.says(&id, "echo kept > target; ln -sf target d/link");
    assert_eq!(world.put(&id, "d/link", "new").status, Status::Success);
    assert_eq!(world.says(&id, "cat target d/link"), "kept\nnew");
}

#[test]
fn what_was_changed_is_shown_and_taken_over_path_by_path() {
    let world = World::new();
    let tree = world.tree();
    fs::write(tree.join("a"), "one\n").unwrap();
    fs::write(tree.join("b"), "two\n").unwrap();
    let id = world.create(json!({"workspace": true}));
    assert_eq!(world.good("sandbox.diff", json!({ "sandbox": id }))["files"], json!([]));
    world.says(&id, "echo more >> a; rm b; mkdir d; printf '\\0x' > d/c; chmod 755 d/c");
    let found = world.good("sandbox.diff", json!({ "sandbox": id }));
    let told: Vec<(String, String)> = found["files"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| (one["path"].as_str().unwrap().into(), one["kind"].as_str().unwrap().into()))
        .collect();
    let expected = [("a", "modified"), ("b", "deleted"), ("d/c", "added")];
    let expected: Vec<_> = expected.map(|(path, kind)| (path.into(), kind.into())).into();
    assert_eq!(told, expected, "{found}");
    assert_eq!(
        fs::read_to_string(tree.join("a")).unwrap(),
        "one\n",
        "nothing comes back by itself"
    );
    world.good("sandbox.apply", json!({ "sandbox": id }));
    assert_eq!(fs::read_to_string(tree.join("a")).unwrap(), "one\nmore\n");
    assert_eq!(fs::read(tree.join("d/c")).unwrap(), b"\0x");
    assert!(!tree.join("b").exists());
    // From there on: what is changed again is told, and nothing else.
    assert_eq!(world.good("sandbox.diff", json!({ "sandbox": id }))["files"], json!([]));
    world.says(&id, "echo again >> a");
    world.good("sandbox.apply", json!({ "sandbox": id }));
    assert_eq!(fs::read_to_string(tree.join("a")).unwrap(), "one\nmore\nagain\n");
}

#[test]
fn what_others_did_meanwhile_is_theirs() {
    let world = World::new();
    let tree = world.tree();
    for name in ["a", "b", "c"] {
        fs::write(tree.join(name), format!("{name}\n")).unwrap();
    }
    let id = world.create(json!({"workspace": true, "limits": {"disk": "2MiB"}}));
    // Nothing of what others add has to fit.
    world.says(&id, "echo inside > a; head -c 1500000 /dev/zero > /tmp/full");
    fs::write(tree.join("new"), vec![b'n'; 3 << 20]).unwrap();
    fs::remove_file(tree.join("b")).unwrap();
    world.good("sandbox.apply", json!({ "sandbox": id }));
    assert_eq!(fs::read_to_string(tree.join("a")).unwrap(), "inside\n");
    // Neither what they added nor what they removed is a change of the sandbox.
    assert_eq!(world.good("sandbox.diff", json!({ "sandbox": id }))["files"], json!([]));
    world.good("sandbox.apply", json!({ "sandbox": id }));
    assert_eq!(fs::metadata(tree.join("new")).unwrap().len(), 3 << 20);
    assert!(!tree.join("b").exists());
    // What both have changed since is a conflict.
    world.says(&id, "echo again > a");
    fs::write(tree.join("a"), "outside\n").unwrap();
    let reply = world.about("apply", &id);
    assert_eq!(reply.status, Status::Failure, "{reply:?}");
    assert_eq!(fs::read_to_string(tree.join("a")).unwrap(), "outside\n");
}

#[test]
fn an_apply_whose_target_changed_changes_nothing() {
    let world = World::new();
    let tree = world.tree();
    fs::write(tree.join("a"), "one\n").unwrap();
    fs::write(tree.join("b"), "one\n").unwrap();
    let id = world.create(json!({"workspace": true}));
    world.says(&id, "echo inside > a; echo inside > b");
    fs::write(tree.join("b"), "outside\n").unwrap();
    let reply = world.about("apply", &id);
    assert_eq!(reply.status, Status::Failure, "{reply:?}");
    assert!(first(&reply).contains("`b`"), "{}", first(&reply));
    assert_eq!(fs::read_to_string(tree.join("a")).unwrap(), "one\n");
    assert_eq!(fs::read_to_string(tree.join("b")).unwrap(), "outside\n");
    // The sandbox has what it had.
    assert_eq!(world.says(&id, "cat a b"), "inside\ninside\n");
}

#[test]
fn the_policy_decides_on_each_change_that_is_taken_over() {
    let world = World::with(|options| Options { policy: None, ..options });
    fs::write(world.tree().join("a"), "one\n").unwrap();
    let id = world.create(json!({"workspace": true}));
    world.says(&id, "echo two > a");
    let refused = world.about("apply", &id);
    assert_eq!(refused.status, Status::Blocked, "{refused:?}");
    assert_eq!(fs::read_to_string(world.tree().join("a")).unwrap(), "one\n");
    let without = world.create(json!({}));
    let refused = world.about("diff", &without);
    assert!(first(&refused).contains("no copy"), "{}", first(&refused));
}

#[test]
fn nothing_stays_when_hotcell_ends_and_the_record_says_so() {
    let world = World::new();
    let id = world.create(json!({}));
    let home = world.dir.path().join("home");
    let World { engine, dir } = world;
    engine.close().unwrap();
    let engine = Engine::open(options(dir.path())).unwrap();
    assert!(home.exists() || dir.path().exists());
    let world = World { engine, dir };
    let ended = world.events().into_iter().find(|event| event.kind == Kind::Note);
    let ended = ended.unwrap_or_else(|| panic!("nothing says that it has ended"));
    assert_eq!(ended.parent.unwrap().to_string(), id);
    assert!(ended.reason.unwrap().contains("has ended"));
    let reply = world.about("show", &id);
    assert!(first(&reply).contains("has ended"), "{}", first(&reply));
}
