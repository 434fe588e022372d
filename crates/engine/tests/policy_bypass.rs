//! The catalogue of ways round a policy, by number: what it says of a write holds for every way to write.

#![expect(clippy::unwrap_used, clippy::panic, reason = "these are tests")]

mod common;

use std::fs;
use std::io::Read;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::Command;

use hotcell_engine::artifacts::{ArtifactAnswer, ArtifactAsk, Which};
use hotcell_engine::{Answer, Ask, Attached, Engine, Options, Policy, Reply, Step};
use hotcell_ledger::ArtifactName;
use hotcell_record::{Event, Filter, Kind};
use hotcell_request::{Arguments, Request};
use hotcell_types::{Caller, Door, Name, Status};
use serde_json::{Value, json};

use crate::common::{options, request};

/// Everything, but no write to `kept`.
const RULES: &str = "
rules:
  - { name: all, match: {}, action: allow }
  - { name: kept, match: { operation: fs.write, path: [kept, HEAD] }, action: deny, reason: it is kept }
";

struct World {
    dir: tempfile::TempDir,
    engine: Engine,
}

impl World {
    fn new(rules: &str) -> World {
        let dir = tempfile::tempdir().unwrap();
        let tree = dir.path().join("tree");
        fs::create_dir_all(tree.join("kept")).unwrap();
        fs::write(tree.join("kept/a"), "mine").unwrap();
        let policy = Policy::load(rules.as_bytes(), &Default::default()).unwrap().snapshot;
        let engine = Options { policy: Some(policy), ..options(dir.path()) };
        World { engine: Engine::open(engine).unwrap(), dir }
    }

    fn tree(&self) -> PathBuf {
        self.dir.path().join("tree")
    }

    fn by(&self, door: Door, tool: &str, args: Value) -> Reply {
        self.asked(door, Ask::Call(Box::new(request(tool, args))))
    }

    fn asked(&self, door: Door, ask: Ask<'_>) -> Reply {
        match self.engine.ask(&Caller::local(Name::LOCAL, door), ask) {
            Answer::Called(reply) => *reply,
            Answer::Batch(mut replies) => replies.pop().unwrap(),
            other => panic!("{other:?}"),
        }
    }

    fn call(&self, tool: &str, args: Value) -> Reply {
        self.by(Door::Library, tool, args)
    }

    fn kept(&self) -> Vec<(String, String)> {
        let mut all: Vec<(String, String)> = fs::read_dir(self.tree().join("kept"))
            .unwrap()
            .map(|entry| entry.unwrap())
            .map(|entry| {
                let text = fs::read_to_string(entry.path()).unwrap_or_default();
                (entry.file_name().into_string().unwrap(), text)
            })
            .collect();
        all.sort();
        all
    }

    fn events(&self, kind: Kind) -> Vec<Event> {
        let filter = Filter { kind: Some(kind), ..Filter::of(Name::LOCAL) };
        let caller = Caller::local(Name::LOCAL, Door::Library);
        match self.engine.ask(&caller, Ask::Events(filter)) {
            Answer::Events(events) => events,
            other => panic!("{other:?}"),
        }
    }
}

/// No argument of any tool, and no field of a request, is a directory to work in: what can be written lies
/// below the workspace that whoever starts the engine has named.
#[test]
fn pol_08_no_request_chooses_where_it_works() {
    let world = World::new(RULES);
    let outside = world.dir.path().join("outside");
    fs::create_dir(&outside).unwrap();
    std::os::unix::fs::symlink(&outside, world.tree().join("link")).unwrap();
    let out = outside.to_str().unwrap();
    for (path, text) in [
        ("/", "x"),
        ("/etc/x", "x"),
        ("/work/../x", "x"),
        ("../outside/x", "x"),
        (&format!("{out}/x"), "x"),
        ("link/x", "x"),
    ] {
        let reply = world.call("fs.write", json!({ "path": path, "text": text }));
        assert_ne!(reply.status, Status::Success, "{path}: {reply:?}");
    }
    // A name like any other, below the workspace.
    assert_eq!(world.call("fs.write", json!({"path": "~/x", "text": "x"})).status, Status::Success);
    assert!(world.tree().join("~/x").exists());
    for field in ["cwd", "workdir", "workspace", "root", "home", "writable_roots"] {
        for value in ["/", "~", "/work/..", "link", out] {
            for (tool, mut args) in [
                ("fs.write", json!({"path": "x", "text": "x"})),
                ("shell.run", json!({"command": "touch x"})),
                ("code_execute", json!({"language": "shell", "code": "touch x"})),
                ("git.commit", json!({"message": "x", "paths": ["x"]})),
                ("fs.read", json!({"path": "x"})),
            ] {
                args.as_object_mut().unwrap().insert(field.into(), value.into());
                let reply = world.call(tool, args);
                assert_eq!(reply.status, Status::Invalid, "{tool} {field}: {reply:?}");
            }
            let text = format!(
                r#"{{"tool": "fs.write", "arguments": {{"path": "x", "text": "x"}}, "{field}": "{value}"}}"#
            );
            assert!(Request::from_json(text.as_bytes()).is_err(), "{text}");
        }
    }
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
    assert!(!world.tree().join("x").exists());
}

/// By whichever tool, a write that the policy denies is refused for the same reason, and nothing of it is left.
#[test]
fn pol_09_every_way_to_write_is_refused_alike() {
    let world = World::new(RULES);
    let git = |args: &[&str]| {
        let done = Command::new("git").arg("-C").arg(world.tree()).args(args).output();
        done.is_ok_and(|done| done.status.success())
    };
    let has_git = git(&["init", "-q"]) && git(&["add", "."]);
    let before = world.kept();
    for (tool, args) in [
        ("fs.write", json!({"path": "kept/a", "text": "x"})),
        ("fs.write", json!({"path": "/work//kept/./b", "text": "x"})),
        ("shell.run", json!({"command": "echo x > kept/a"})),
        ("shell.run", json!({"command": "cd kept && touch b"})),
        ("shell.run", json!({"command": "rm kept/a"})),
        ("shell.run", json!({"command": "mv kept elsewhere"})),
        ("shell.run", json!({"command": "echo fine > fine; echo x > kept/a"})),
        ("shell.run", json!({"command": "echo x > new && mv new kept/a"})),
        ("shell.run", json!({"command": "mkdir d && echo x > d/a && cp -r d/. kept/"})),
        (
            "shell.run",
            json!({"command": "mkdir d && touch d/b && tar cf t d && cd kept && tar xf ../t"}),
        ),
        (
            "shell.run",
            json!({"command": "printf '%s\\n' '--- kept/a' '+++ kept/a' '@@ -1 +1 @@' '-mine' '+x' | patch -p0 || echo x > kept/a"}),
        ),
        ("shell.run", json!({"command": "ln -s kept k && echo x > k/b"})),
        ("shell.run", json!({"command": "chmod +x kept/a"})),
    ] {
        let reply = world.call(tool, args.clone());
        assert_eq!(reply.status, Status::Blocked, "{tool} {args}: {reply:?}");
        let why = reply.problems.iter().map(|problem| problem.why.as_str()).collect::<String>();
        assert!(why.contains("it is kept"), "{tool} {args}: {why}");
        assert_eq!(world.kept(), before, "{tool} {args}");
    }
    assert!(!world.tree().join("fine").exists() && !world.tree().join("elsewhere").exists());
    if has_git {
        let args = json!({"message": "x", "paths": ["kept/a"]});
        let reply = world.call("git.commit", args);
        assert_eq!(reply.status, Status::Blocked, "{reply:?}");
        assert!(!git(&["rev-parse", "HEAD"]));
    } else {
        eprintln!("SKIPPED a commit: there is no git");
    }
    // What is made where no workspace is never gets there.
    let code = json!({"language": "shell", "code": "mkdir -p kept; echo x > kept/a"});
    assert_eq!(world.call("code_execute", code).status, Status::Success);
    assert_eq!(world.kept(), before);
}

/// The same actions through every door and every way to ask: the same decision, for the same reasons, and the
/// same words in the record.
#[test]
fn pol_10_every_door_leads_to_the_same_decision() {
    let world = World::new(RULES);
    let denied = || request("fs.write", json!({"path": "kept/a", "text": "x"}));
    let allowed = || request("add", json!({"a": 1, "b": 2}));
    let mut told = Vec::new();
    for door in Door::ALL {
        let ways: [Ask<'_>; 3] = [
            Ask::Call(Box::new(denied())),
            Ask::Run(Box::new(denied()), Box::new(Attached::default())),
            Ask::Batch(vec![Step::from(denied())]),
        ];
        for way in ways {
            let reply = world.asked(door, way);
            let problem = &reply.problems[0];
            told.push((
                reply.status,
                reply.rules.clone(),
                problem.why.clone(),
                problem.fix.clone(),
            ));
        }
        let ways: [Ask<'_>; 3] = [
            Ask::Call(Box::new(allowed())),
            Ask::Run(Box::new(allowed()), Box::new(Attached::default())),
            Ask::Batch(vec![Step::from(allowed())]),
        ];
        for way in ways {
            let reply = world.asked(door, way);
            assert_eq!((reply.status, reply.value), (Status::Success, Some(json!(3))), "{door}");
        }
    }
    told.dedup();
    let [(status, rules, why, _)] = &told[..] else { panic!("{told:?}") };
    assert_eq!((*status, why.as_str()), (Status::Blocked, "it is kept"));
    assert_eq!(rules, &["all", "kept"]);
    let events = world.events(Kind::Denied);
    assert_eq!(events.len(), 3 * Door::ALL.len());
    let mut fields: Vec<_> = events
        .iter()
        .map(|event| {
            (
                event.operation.clone(),
                event.tool.clone(),
                event.decision,
                event.rules.clone(),
                event.reason.clone(),
                event.status,
                event.input.clone(),
            )
        })
        .collect();
    fields.dedup();
    assert_eq!(fields.len(), 1, "{fields:?}");
    let mut doors: Vec<String> = events.iter().map(|event| event.caller.door.to_string()).collect();
    doors.dedup();
    assert_eq!(doors, Door::ALL.map(|door| door.to_string()));
}

/// Of several calls in one batch each is judged alone: what one may, another may not, and none is begun before
/// its own decision.
#[test]
fn pol_11_an_allowed_call_carries_no_other_through() {
    let world = World::new(RULES);
    let write = |path: &str| request("fs.write", json!({"path": path, "text": "x"}));
    let steps =
        ["fine/1", "kept/a", "fine/2", "kept/b", "fine/3"].map(|path| Step::from(write(path)));
    let caller = Caller::local(Name::LOCAL, Door::Library);
    let Answer::Batch(replies) = world.engine.ask(&caller, Ask::Batch(steps.into())) else {
        panic!()
    };
    let statuses: Vec<Status> = replies.iter().map(|reply| reply.status).collect();
    let (yes, no) = (Status::Success, Status::Blocked);
    assert_eq!(statuses, [yes, no, yes, no, yes], "{replies:?}");
    assert_eq!(world.kept(), [("a".to_owned(), "mine".to_owned())]);
    assert_eq!(fs::read_dir(world.tree().join("fine")).unwrap().count(), 3);
    let intents = world.events(Kind::Intent);
    assert_eq!((intents.len(), world.events(Kind::Denied).len()), (3, 2));
    assert!(intents.iter().all(|intent| intent.rules == ["all"]));
    // A path more in one call is not carried through by the others either.
    let paths = json!({"message": "x", "paths": ["fine/1", "kept/a"]});
    let rules = "
rules:
  - { name: all, match: {}, action: allow }
  - { name: kept, match: { path: [kept] }, action: deny, reason: it is kept }";
    let reply = World::new(rules).call("git.commit", paths);
    assert_eq!((reply.status, reply.rules), (no, vec!["all".to_owned(), "kept".into()]));
    // One text is one call: a second object behind it is no second call.
    let two =
        br#"{"tool": "add", "arguments": {"a": 1, "b": 2}} {"tool": "fs.write", "arguments": {}}"#;
    assert!(Request::from_json(two).is_err());
    let twice = br#"{"a": 1, "b": 2, "b": 3}"#;
    let request = Request::new("add".parse().unwrap(), Arguments::Bytes(twice.to_vec()));
    assert_eq!(world.asked(Door::Library, Ask::Call(Box::new(request))).status, Status::Invalid);
}

/// Whatever a command is called, and however it starts another one, it is the sandbox that it is in.
#[test]
fn pol_19_no_name_of_a_command_leads_out() {
    let world = World::new("rules: [{ name: all, match: {}, action: allow }]");
    let canary = tempfile::tempdir_in("/var/tmp").unwrap();
    let (secret, made) = (canary.path().join("secret"), canary.path().join("made"));
    fs::write(&secret, "canary-4711").unwrap();
    let (secret, made) = (secret.to_str().unwrap(), made.to_str().unwrap());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let port = listener.local_addr().unwrap().port();
    let dial = format!("import socket; socket.create_connection(('127.0.0.1', {port}), 2)");
    for command in [
        format!("cat {secret}; touch {made}"),
        format!("find {secret} -exec cat {{}} ';'"),
        format!("find . -maxdepth 0 -exec touch {made} ';'"),
        format!("env cat {secret}; env touch {made}"),
        format!("echo {secret} | xargs cat; echo {made} | xargs touch"),
        format!("echo x > x; rg --pre 'cat {secret}' . x"),
        format!("git -c core.sshCommand='cat {secret}' ls-remote ssh://localhost/x"),
        format!("git -c alias.x='!cat {secret}' x"),
        format!("python3 -c \"print(open('{secret}').read())\""),
        format!("python3 -c \"open('{made}', 'w')\""),
        format!("busybox cat {secret}; busybox touch {made}"),
        format!("awk 'BEGIN {{ while ((getline line < \"{secret}\") > 0) print line }}'"),
        format!("tar cf - {secret}; dd if={secret}; cp {secret} here && cat here"),
        format!("ln -s {secret} link && cat link"),
        format!("python3 -c \"{dial}\""),
        format!("bash -c 'exec 3<>/dev/tcp/127.0.0.1/{port}'"),
        format!("curl -m 2 http://127.0.0.1:{port}/; wget -t 1 -T 2 -O- http://127.0.0.1:{port}/"),
    ] {
        let reply = world.call("shell.run", json!({ "command": command }));
        let run = reply.run.as_ref().unwrap_or_else(|| panic!("{command}: {reply:?}"));
        let printed = String::from_utf8_lossy(&run.stdout.bytes).into_owned();
        assert!(!printed.contains("canary-4711"), "{command}: {printed}");
        assert!(!PathBuf::from(made).exists(), "{command}");
        assert!(listener.accept().is_err(), "{command}");
    }
    // They do what they do, inside.
    let reply = world.call("shell.run", json!({"command": "find kept -name a -exec cat {} ';'"}));
    assert_eq!(reply.run.unwrap().stdout.bytes, b"mine");
}

/// What a rule that allows a call binds it to holds for everything that comes of it.
#[test]
fn constraints_of_a_call_hold_for_what_it_writes_and_for_where_it_runs() {
    let rules = "
rules:
  - { name: writes, match: { operation: fs.write }, action: allow }
  - { name: commands, match: { tool: shell.run }, action: allow, constraints: { max_file_size: 10 } }
  - { name: own, match: { tool: fs.write }, action: allow, constraints: { max_file_size: 20 } }
  - { name: pure, match: { effect: pure }, action: allow, constraints: { sandbox: code-executor } }";
    let world = World::new(rules);
    for (tool, args, status) in [
        ("shell.run", json!({"command": "printf 1234567890 > a"}), Status::Success),
        ("shell.run", json!({"command": "printf 12345678901 > b"}), Status::Blocked),
        ("fs.write", json!({"path": "c", "text": "12345678901234567890"}), Status::Success),
        ("fs.write", json!({"path": "d", "text": "123456789012345678901"}), Status::Blocked),
        ("add", json!({"a": 1, "b": 2}), Status::Blocked),
    ] {
        let reply = world.call(tool, args.clone());
        assert_eq!(reply.status, status, "{tool} {args}: {reply:?}");
    }
    for (path, is_there) in [("a", true), ("b", false), ("c", true), ("d", false)] {
        assert_eq!(world.tree().join(path).exists(), is_there, "{path}");
    }
}

/// A search names where it begins. What it finds is shown as far as the call could have named it.
#[test]
fn pol_09_no_search_shows_what_could_not_be_named() {
    let rules = "
rules:
  - { name: see, match: { effect: [pure, read] }, action: allow, except: [{ path: [secrets, '*.pem'] }] }
  - { name: not, match: { tool: fs.list, path: [kept] }, action: deny }";
    let world = World::new(rules);
    for path in ["secrets/a", "src/a", "src/key.pem"] {
        fs::create_dir_all(world.tree().join(path).parent().unwrap()).unwrap();
        fs::write(world.tree().join(path), "needle\n").unwrap();
    }
    for path in ["secrets/a", "src/key.pem"] {
        assert_eq!(world.call("fs.read", json!({ "path": path })).status, Status::Blocked);
    }
    for (tool, args, shown, not_shown) in [
        (
            "search.grep",
            json!({"pattern": "needle"}),
            &["src/a"][..],
            &["secrets/a", "key.pem"][..],
        ),
        ("search.grep", json!({"pattern": "needle", "path": "src"}), &["src/a"], &["key.pem"]),
        ("search.glob", json!({"patterns": ["**"]}), &["src/a", "kept/a"], &["secrets", "key.pem"]),
    ] {
        let reply = world.call(tool, args.clone());
        assert_eq!(reply.status, Status::Success, "{tool} {args}: {reply:?}");
        let text = reply.value.unwrap().to_string();
        assert!(shown.iter().all(|path| text.contains(path)), "{tool} {args}: {text}");
        assert!(!not_shown.iter().any(|path| text.contains(path)), "{tool} {args}: {text}");
    }
    // A list says what it leaves out.
    let reply = world.call("fs.list", json!({"path": ".", "depth": 2}));
    let list = reply.value.unwrap();
    let entries = list["entries"].to_string();
    assert!(
        entries.contains("src/a") && !entries.contains("kept") && !entries.contains("secrets"),
        "{list}"
    );
    assert!(list["skipped"].to_string().contains("the policy does not show it"), "{list}");
}

/// What others execute without being asked is not there at first, and is not made by any of these ways.
#[test]
fn fs_14_what_starts_itself_is_not_made_where_it_was_absent() {
    let world = World::new("rules: [{ name: all, match: {}, action: allow }]");
    for path in [
        ".git/hooks/pre-commit",
        ".git/config",
        ".envrc",
        ".vscode/tasks.json",
        ".githooks/pre-commit",
        ".claude/settings.json",
        ".mcp.json",
        "sub/.git/config",
        "sub/.envrc",
    ] {
        let (above, name) = path.rsplit_once('/').unwrap_or((".", path));
        let (top, rest) = path.split_once('/').unwrap_or((path, ""));
        let staged = if rest.is_empty() { "stage".into() } else { format!("stage/{rest}") };
        let put = format!("mkdir -p $(dirname {staged}) && echo x > {staged}");
        let shell = |command: String| world.call("shell.run", json!({ "command": command }));
        for (way, reply) in [
            ("write", world.call("fs.write", json!({"path": path, "text": "x"}))),
            ("command", shell(format!("mkdir -p {above} && echo x > {path}"))),
            ("rename", shell(format!("mkdir -p {above} && echo x > plain && mv plain {path}"))),
            ("link", shell(format!("mkdir -p {above} && echo x > plain && ln plain {path}"))),
            ("moved in", shell(format!("{put} && mv stage {top}"))),
            ("in a directory", shell(format!("mkdir -p in/{above} && echo x > in/{above}/{name}"))),
        ] {
            // What has two names is brought back under none of them.
            let expected = if way == "link" { Status::Success } else { Status::Blocked };
            assert_eq!(reply.status, expected, "{way} {path}: {reply:?}");
            assert!(!world.tree().join(path).exists(), "{way} {path}");
            assert!(!world.tree().join("in").exists(), "{way} {path}");
        }
        // In two steps, of which the first is harmless.
        if top == "sub" {
            continue;
        }
        assert_eq!(shell(put).status, Status::Success, "{path}");
        let reply = shell(format!("mv stage {top}"));
        assert_eq!(reply.status, Status::Blocked, "{path}: {reply:?}");
        assert!(!world.tree().join(path).exists() && world.tree().join("stage").exists(), "{path}");
        shell("rm -r stage".into());
    }
}

/// What a run leaves in the workspace is executed by nobody outside of a sandbox, whatever is done there next.
#[test]
fn xr_05_what_a_run_leaves_behind_is_not_executed_on_the_host() {
    let world = World::new("rules: [{ name: all, match: {}, action: allow }]");
    let outside = tempfile::tempdir_in("/var/tmp").unwrap();
    let canary = outside.path().join("canary");
    let touch = format!("touch {}", canary.display());
    let host = |args: &[&str]| {
        let mut git = Command::new("git");
        git.arg("-C").arg(world.tree()).args(args).env("HOME", "/nowhere");
        git.output().is_ok_and(|done| done.status.success())
    };
    if !host(&["init", "-q"]) {
        eprintln!("SKIPPED xr_05: there is no git on this host");
        return;
    }
    // Allowed by the policy, by a run of its own.
    let python = format!("import os; os.system('{touch}')");
    for (path, text) in [
        ("conftest.py", python.clone()),
        ("test_x.py", "def test_x(): pass\n".into()),
        ("sitecustomize.py", python.clone()),
        ("x.pth", python.clone()),
        ("package.json", json!({"scripts": {"test": touch, "preinstall": touch}}).to_string()),
        ("Makefile", format!("X := $(shell {touch})\nall:\n\t{touch}\n")),
        ("setup.py", python),
        (".gitattributes", "* diff=evil filter=evil\n".into()),
    ] {
        let code = format!("open({path:?}, 'w').write({})", json!(text));
        let reply =
            world.call("shell.run", json!({"command": format!("python3 -c {}", quoted(&code))}));
        assert_eq!(reply.status, Status::Success, "{path}: {reply:?}");
        assert_eq!(fs::read_to_string(world.tree().join(path)).unwrap(), text);
    }
    // Refused by it, and left there by somebody else.
    for key in
        ["core.fsmonitor", "core.pager", "diff.external", "diff.evil.textconv", "filter.evil.clean"]
    {
        assert!(host(&["config", key, &touch]));
    }
    let hooks = world.tree().join(".git/hooks");
    for hook in ["pre-commit", "commit-msg", "post-commit", "post-index-change", "post-checkout"] {
        fs::write(hooks.join(hook), format!("#!/bin/sh\n{touch}\n")).unwrap();
        let all = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(hooks.join(hook), all).unwrap();
    }
    // They would be executed by whoever is less careful.
    host(&["status"]);
    assert!(canary.exists(), "the trap does not work");
    fs::remove_file(&canary).unwrap();
    for (tool, args) in [
        ("git.status", json!({})),
        ("git.diff", json!({})),
        ("git.log", json!({})),
        ("git.commit", json!({"message": "x", "paths": ["conftest.py", "Makefile"]})),
        ("git.log", json!({})),
        ("test.run", json!({"command": ["make"]})),
        ("test.run", json!({"command": ["npm", "test"]})),
        ("test.run", json!({"command": ["python3", "-m", "pytest"]})),
        ("test.run", json!({"command": ["python3", "-c", "import conftest"]})),
        ("shell.run", json!({"command": "git status; make; python3 setup.py"})),
        ("search.grep", json!({"pattern": "touch", "hidden": true})),
        ("search.glob", json!({"patterns": ["**"], "hidden": true})),
        ("fs.list", json!({"path": ".", "depth": 9, "hidden": true})),
        ("fs.read", json!({"path": "Makefile"})),
        ("code_execute", json!({"language": "python", "code": "print(1)"})),
    ] {
        let reply = world.call(tool, args.clone());
        assert_ne!(reply.status, Status::Invalid, "{tool} {args}: {reply:?}");
        assert_ne!(reply.status, Status::Error, "{tool} {args}: {reply:?}");
        assert!(!canary.exists(), "{tool} {args}");
    }
}

/// As one word for the shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// Whoever publishes the same name makes another version, or something of another tenant; nothing becomes
/// something else.
#[test]
fn xr_07_no_name_that_others_publish_takes_the_place_of_ones_own() {
    let world = World::new("rules: [{ name: all, match: {}, action: allow }]");
    let [a, b] = ["a", "b"].map(|tenant| Caller {
        tenant: tenant.parse().unwrap(),
        ..Caller::local(Name::LOCAL, Door::Library)
    });
    let publish = |by: &Caller, text: &str| {
        let code = json!({"language": "shell", "code": format!("echo {text} > out.txt")});
        let Answer::Called(reply) =
            world.engine.ask(by, Ask::Call(Box::new(request("code_execute", code))))
        else {
            panic!()
        };
        let made = reply.artifacts.iter().find(|made| made.name == "out.txt");
        made.unwrap().id
    };
    let content = |by: &Caller, which: Which| match world
        .engine
        .ask(by, Ask::Artifact(ArtifactAsk::Content(which)))
    {
        Answer::Artifact(ArtifactAnswer::Content { mut content, .. }) => {
            let mut text = String::new();
            content.read_to_string(&mut text).unwrap();
            Some(text)
        }
        Answer::Failed(_) | Answer::Artifact(ArtifactAnswer::Absent(_)) => None,
        other => panic!("{other:?}"),
    };
    let of = |which: &str| which.parse::<Which>().unwrap();
    let first = publish(&a, "first");
    let others = publish(&b, "others");
    let second = publish(&a, "second");
    let same = publish(&b, "first");
    let ids = [first, others, second, same];
    assert!(ids.iter().enumerate().all(|(at, id)| !ids[..at].contains(id)), "{ids:?}");
    let unchanged = || {
        for (by, which, text) in [
            (&a, Which::Id(first), "first\n"),
            (&a, Which::Id(second), "second\n"),
            (&b, Which::Id(others), "others\n"),
            (&b, Which::Id(same), "first\n"),
            (&a, of("out.txt@1"), "first\n"),
            (&b, of("out.txt@1"), "others\n"),
        ] {
            let found = content(by, which.clone());
            assert_eq!(found.as_deref(), Some(text), "{} {which:?}", by.tenant);
        }
    };
    unchanged();
    // Nobody reads what is another tenant's, by id, by number or by what its content is.
    for which in [Which::Id(others), Which::Id(same)] {
        assert_eq!(content(&a, which), None);
    }
    assert_eq!(content(&a, of("out.txt@3")), None);
    let digest = "a0b4";
    for by in [&a, &b] {
        assert_eq!(content(by, of(digest)), None);
    }
    // Nor changes it: what is made the newest, marked or judged is one's own.
    let name: ArtifactName = "out.txt".parse().unwrap();
    let roll = ArtifactAsk::Rollback { name: name.clone(), version: 1 };
    assert!(matches!(world.engine.ask(&a, Ask::Artifact(roll)), Answer::Artifact(_)));
    let tag = |which| ArtifactAsk::Tag { which, tag: "best".parse().unwrap() };
    assert!(matches!(
        world.engine.ask(&a, Ask::Artifact(tag(Which::Id(others)))),
        Answer::Failed(_) | Answer::Artifact(ArtifactAnswer::Absent(_))
    ));
    let newest = |by: &Caller| content(by, Which::Named { name: name.clone(), version: None });
    assert_eq!((newest(&a), newest(&b)), (Some("first\n".into()), Some("first\n".into())));
    unchanged();
}
