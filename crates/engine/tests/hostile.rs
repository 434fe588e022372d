//! Somebody who wants to break the path, through the one way in.

#![expect(clippy::unwrap_used, clippy::panic, reason = "these are tests")]

mod common;

use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use hotcell_engine::{
    Answer, Ask, Attached, Attachment, Engine, Options, Reply, Stage, Step, Watch, run,
};
use hotcell_record::{Event, Filter, Kind};
use hotcell_types::{Caller, Door, Name, Status};
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
        World::watched(None)
    }

    fn watched(watch: Option<Watch>) -> World {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("tree")).unwrap();
        let engine = Engine::open(Options { watch, ..options(dir.path()) }).unwrap();
        World { engine, dir }
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

    fn shell(&self, command: &str) -> Reply {
        self.call("shell.run", json!({ "command": command }))
    }

    fn events(&self) -> Vec<Event> {
        let filter = Filter { limit: 1000, ..Filter::of(Name::LOCAL) };
        let Answer::Events(events) = self.engine.ask(&caller("local"), Ask::Events(filter)) else {
            panic!()
        };
        events
    }
}

fn stdout(reply: &Reply) -> String {
    let run = reply.run.as_ref().unwrap_or_else(|| panic!("{reply:?}"));
    String::from_utf8_lossy(&run.stdout.bytes).into_owned()
}

#[test]
fn files_in_directories_are_where_their_paths_say() {
    let world = World::new();
    let reply = world.call(
        "code_execute",
        json!({"language": "shell", "code": "cat d/e/x d/y z", "files": {"d/e/x": "1", "d/y": "2", "z": "3"}}),
    );
    assert_eq!(stdout(&reply), "123", "{reply:?}");
}

#[test]
fn a_file_never_takes_the_place_of_the_code() {
    let world = World::new();
    for name in ["main.sh", "main.sh/x"] {
        let reply = world.call(
            "code_execute",
            json!({"language": "shell", "code": "echo good", "files": {name: "echo evil"}}),
        );
        assert_eq!(reply.status, Status::Invalid, "{reply:?}");
        assert!(reply.run.is_none(), "{reply:?}");
        assert!(world.events().iter().all(|event| event.kind != Kind::Intent), "nothing was begun");
    }
}

#[test]
fn a_script_is_one_of_the_files() {
    let world = World::new();
    for name in ["/etc/passwd", "../etc/passwd", "other"] {
        let reply = world.call("run", json!({"script": name, "language": "shell"}));
        assert_eq!(reply.status, Status::Invalid, "{reply:?}");
        assert!(reply.run.is_none(), "{reply:?}");
    }
}

#[test]
fn a_path_of_a_program_is_one_of_the_sandbox() {
    let world = World::new();
    // Not below a place of which the sandbox has its own.
    let host = tempfile::tempdir_in("/var/tmp").unwrap();
    fs::set_permissions(host.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let tool = host.path().join("tool");
    fs::write(&tool, "#!/bin/sh\necho host\n").unwrap();
    fs::set_permissions(&tool, fs::Permissions::from_mode(0o755)).unwrap();
    for path in [tool.to_str().unwrap(), "/no/such/tool"] {
        let reply = world.call("run", json!({"command": [path]}));
        assert_eq!(reply.status, Status::Invalid, "{reply:?}");
        let why = &reply.problems[0].why;
        assert!(why.contains("No such file"), "nothing is told of the host: {why}");
    }
    let file = Attachment::of_bytes("tool", b"#!/bin/sh\necho $0 $1".to_vec());
    let run = json!({"command": ["./tool", "x"], "files": [file.described()]});
    let attached = Attached { files: vec![file], ..Attached::default() };
    let ask = Ask::Run(Box::new(request("run", run)), Box::new(attached));
    assert_eq!(stdout(&world.ask("local", ask)), "/work/./tool x\n");
    let reply = world.call("run", json!({"command": ["/bin/echo", "x"]}));
    assert_eq!(stdout(&reply), "x\n");
}

#[test]
fn the_name_of_a_variable_is_not_a_part_of_its_value() {
    let world = World::new();
    for name in ["A=B", "", "=", "A\0"] {
        let env = json!({"command": ["sh", "-c", "echo $A"], "env": {name: "c"}});
        let reply = world.call("run", env);
        assert_eq!(reply.status, Status::Invalid, "{name:?} {reply:?}");
        assert!(reply.run.is_none(), "{reply:?}");
    }
}

#[test]
fn xr_05_what_starts_itself_is_refused_however_it_is_named() {
    let world = World::new();
    for path in [
        ".git/hooks/pre-commit",
        ".GIT/Hooks/pre-commit",
        "sub/.git/config",
        // git goes where such a file says, and takes its settings from there.
        ".git",
        "sub/.git",
        ".git/commondir",
        ".git/config.worktree",
        ".git/worktrees/w/config.worktree",
        ".git/modules/m/config",
        ".git/modules/m/hooks/post-checkout",
        ".git/info/attributes",
        ".git/objects/info/alternates",
        ".hotcell/config.toml",
        ".husky/pre-commit",
        ".githooks/pre-commit",
        ".hg/hgrc",
        ".envrc",
        ".vscode/tasks.json",
        ".idea/workspace.xml",
        ".devcontainer/devcontainer.json",
        ".claude/settings.json",
        ".cursor/mcp.json",
        ".mcp.json",
        // As other file systems have it.
        "git~1/config",
        ".git./config",
        ".git /config",
        ".g\u{200c}it/config",
        ".git::$INDEX_ALLOCATION/config",
    ] {
        let reply = world.call("fs.write", json!({"path": path, "text": "x"}));
        assert_eq!(reply.status, Status::Blocked, "{path:?} {reply:?}");
        let (above, _) = path.rsplit_once('/').unwrap_or((".", ""));
        let reply = world.shell(&format!("mkdir -p '{above}' && echo x > '{path}'"));
        assert_eq!(reply.status, Status::Blocked, "{path:?} {reply:?}");
        assert_eq!(fs::read_dir(world.tree()).unwrap().count(), 0, "{path:?}");
    }
    for path in ["gitignore/x", ".gitignore", ".gitattributes", "hooks/x", "a.git/x", ".github/x"] {
        let reply = world.call("fs.write", json!({"path": path, "text": "x"}));
        assert_eq!(reply.status, Status::Success, "{path:?} {reply:?}");
    }
}

#[test]
fn commits_wait_for_each_other() {
    let world = World::new();
    let made = std::process::Command::new("git").args(["init", "-q"]).arg(world.tree()).status();
    if !made.is_ok_and(|status| status.success()) {
        eprintln!("SKIPPED: no git");
        return;
    }
    for n in 0..4 {
        fs::write(world.tree().join(format!("f{n}")), "x").unwrap();
    }
    let mut steps: Vec<Step> = (0..4)
        .map(|n| request("git.commit", json!({"message": "m", "paths": [format!("f{n}")]})).into())
        .collect();
    // Beside them, since it writes to another place.
    steps.push(request("fs.write", json!({"path": "f9", "text": "y"})).into());
    let Answer::Batch(replies) = world.engine.ask(&caller("local"), Ask::Batch(steps)) else {
        panic!()
    };
    for reply in replies {
        assert_eq!(reply.status, Status::Success, "{reply:?}");
    }
}

#[test]
fn an_attachment_is_what_was_judged_even_if_its_file_changes_later() {
    let file = tempfile::tempfile().unwrap();
    file.write_all_at(&vec![b'a'; 2 << 20], 0).unwrap();
    let same = file.try_clone().unwrap();
    let watch = Watch::new(move |_, stage| {
        if stage == Stage::Scheduled {
            same.write_all_at(b"evil", 0).unwrap();
        }
    });
    let world = World::watched(Some(watch));
    let file = Attachment::of_file("in", file, 4 << 20).unwrap();
    let run = run::Run {
        command: ["head", "-c", "4", "in"].map(|word| run::Word::new(word.into())).into(),
        files: vec![file.described()],
        ..run::Run::default()
    };
    let request = request("run", serde_json::to_value(&run).unwrap());
    let attached = Attached { files: vec![file], ..Attached::default() };
    let reply = world.ask("local", Ask::Run(Box::new(request), Box::new(attached)));
    if reply.run.is_some() {
        assert_eq!(stdout(&reply), "aaaa", "{reply:?}");
    }
}

#[test]
fn who_has_no_patience_does_not_close_a_tool() {
    let scheduled = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&scheduled);
    let world = World::watched(Some(Watch::new(move |_, stage| {
        if stage == Stage::Scheduled {
            counted.fetch_add(1, Ordering::SeqCst);
        }
    })));
    let code = |code: &str| json!({"language": "shell", "code": code});
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let request = request("code_execute", code("sleep 2"));
                world.ask("busy", Ask::Call(Box::new(request)))
            });
        }
        while scheduled.load(Ordering::SeqCst) == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        for _ in 0..6 {
            let mut request = request("code_execute", code("echo"));
            request.timeout = Some("1ms".parse().unwrap());
            let reply = world.ask("mallory", Ask::Call(Box::new(request)));
            assert_ne!(reply.status, Status::CircuitOpen, "{reply:?}");
        }
        let reply = world.call("code_execute", code("echo fine"));
        assert_eq!(reply.status, Status::Success, "{reply:?}");
    });
}

#[test]
fn a_panic_at_any_stage_costs_one_call() {
    for stage in Stage::ALL {
        let armed = Arc::new(AtomicBool::new(true));
        let is_armed = Arc::clone(&armed);
        let watch = Watch::new(move |_, now| {
            if now == stage && is_armed.swap(false, Ordering::SeqCst) {
                panic!("on purpose")
            }
        });
        let world = World::watched(Some(watch));
        let reply = world.call("fs.write", json!({"path": "a", "text": "1"}));
        assert_eq!(reply.status, Status::Error, "{stage:?} {reply:?}");
        for n in 0..6 {
            let reply = world.call("fs.write", json!({"path": "a", "text": n.to_string()}));
            assert_eq!(reply.status, Status::Success, "{stage:?} {reply:?}");
        }
        let kinds: Vec<_> = world
            .events()
            .into_iter()
            .filter(|e| e.call == Some(reply.id))
            .map(|e| e.kind)
            .filter(|kind| matches!(kind, Kind::Intent | Kind::Outcome))
            .collect();
        let expected: &[Kind] =
            if stage >= Stage::Intended { &[Kind::Intent, Kind::Outcome] } else { &[] };
        assert_eq!(kinds, expected, "{stage:?}");
    }
}

#[test]
fn output_of_any_bytes_is_recorded() {
    let world = World::new();
    for byte in ["\\377", "\\000"] {
        let command = format!("head -c 1048576 /dev/zero | tr '\\000' '{byte}' | tee /dev/stderr");
        let reply = world.shell(&command);
        assert_eq!(reply.status, Status::Success, "{:?}", reply.problems);
        let is_end = |e: &Event| e.call == Some(reply.id) && e.kind == Kind::Outcome;
        assert_eq!(world.events().into_iter().filter(is_end).count(), 1);
    }
}

#[test]
fn however_much_output_is_asked_for_an_answer_has_a_most() {
    let world = World::new();
    let command = ["head", "-c", "8000000", "/dev/zero"];
    let reply = world.call("run", json!({"command": command, "limits": {"output": "16MiB"}}));
    assert_eq!(reply.status, Status::Success, "{:?}", reply.problems);
    assert_eq!(stdout(&reply).len(), 8_000_000);
    let value = reply.value.unwrap();
    assert_eq!(value["stdout"].as_str().map(str::len), Some(1 << 20));
    assert_eq!(value["truncated"], json!(true));
}

#[test]
fn what_a_run_leaves_costs_the_host_no_more_than_the_run_may_have() {
    let world = World::new();
    let holes = "truncate -s 400M a; truncate -s 400M b";
    let odd = "mkfifo p; ln -s /etc/passwd l; echo x > h; ln h i; echo fine > f";
    // The second hole is beyond the 512 MiB of the template, and half of what changed is not applied.
    for (command, status, expected) in [
        (format!("{holes}; {odd}"), Status::Failure, &[][..]),
        (odd.into(), Status::Success, &["f"]),
    ] {
        let reply = world.shell(&command);
        assert_eq!(reply.status, status, "{reply:?}");
        let entries = fs::read_dir(world.tree()).unwrap().map(Result::unwrap);
        let left: Vec<_> = entries.map(|e| e.file_name().into_string().unwrap()).collect();
        assert_eq!(left, expected);
    }
}

#[test]
fn what_is_too_deep_to_be_brought_back_is_told() {
    let world = World::new();
    let reply = world.shell("for i in $(seq 70); do mkdir d; cd d; done; echo x > f");
    assert_eq!(reply.status, Status::Success, "{reply:?}");
    let changes = &reply.value.unwrap()["changes"];
    assert_eq!(changes["files"], json!([]));
    assert_eq!(changes["skipped"].as_array().map(Vec::len), Some(1), "{changes}");
}

#[test]
fn hotcells_own_home_is_not_a_part_of_the_workspace() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("tree")).unwrap();
    let mut options = options(dir.path());
    options.home = dir.path().join("tree/.local/share/hotcell");
    assert!(Engine::open(options).is_err());
}

#[test]
fn a_home_that_others_can_change_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("tree")).unwrap();
    let home = dir.path().join("home");
    fs::create_dir(&home).unwrap();
    for (mode, is_fine) in [(0o777, false), (0o770, false), (0o1777, false), (0o755, true)] {
        fs::set_permissions(&home, fs::Permissions::from_mode(mode)).unwrap();
        assert_eq!(Engine::open(options(dir.path())).is_ok(), is_fine, "{mode:o}");
    }
    let link = dir.path().join("link");
    std::os::unix::fs::symlink("home", &link).unwrap();
    let through_link = || Options { home: link.clone(), ..options(dir.path()) };
    assert!(Engine::open(through_link()).is_ok());
    fs::set_permissions(&home, fs::Permissions::from_mode(0o777)).unwrap();
    assert!(Engine::open(through_link()).is_err());
    fs::set_permissions(&home, fs::Permissions::from_mode(0o700)).unwrap();
    if std::os::unix::fs::chown(&home, Some(12345), None).is_ok() {
        assert!(Engine::open(options(dir.path())).is_err());
    } else {
        eprintln!("SKIPPED: only root gives directories away");
    }
}

#[test]
fn what_is_called_a_secret_is_not_in_the_record() {
    let world = World::new();
    let secret = "correct-horse-battery-staple";
    let reply = world.call(
        "run",
        json!({"command": ["sh", "-c", "echo $TOKEN; echo $TOKEN >&2"], "env": {"TOKEN": secret}}),
    );
    assert_eq!(reply.status, Status::Success);
    let World { engine, dir } = world;
    engine.close().unwrap();
    for entry in fs::read_dir(dir.path().join("home")).unwrap().flatten() {
        let Ok(bytes) = fs::read(entry.path()) else { continue };
        let found = bytes.windows(secret.len()).any(|window| window == secret.as_bytes());
        assert!(!found, "{}", entry.path().display());
    }
}

/// What a call leaves in the record, besides artifacts: exactly one beginning and one end, or a refusal.
#[test]
fn aud_08_every_way_a_call_can_go_is_in_the_record_once() {
    let world = World::new();
    fs::write(world.tree().join("old"), "old").unwrap();
    let ended = &[Kind::Intent, Kind::Outcome][..];
    let code = |code: &str| json!({"language": "shell", "code": code});
    let write = |path: &str| json!({"path": path, "text": "x"});
    let cases: &[(&str, Value, Status, &[Kind])] = &[
        ("add", json!({"a": 1, "b": 2}), Status::Success, &[Kind::Called]),
        ("fs.read", json!({"path": "old"}), Status::Success, &[Kind::Called]),
        ("fs.read", json!({"path": "none"}), Status::Failure, &[Kind::Called]),
        ("fs.write", write("new"), Status::Success, ended),
        ("fs.write", write(".git/hooks/x"), Status::Blocked, &[Kind::Denied]),
        ("fs.write", write("old/x"), Status::Failure, ended),
        ("code_execute", code("true"), Status::Success, ended),
        ("code_execute", code("exit 3"), Status::Failure, ended),
        ("code_execute", code("kill -9 $$"), Status::Killed, ended),
        ("code_execute", code("sleep 60"), Status::Timeout, ended),
        ("shell.run", json!({"command": "echo x > made"}), Status::Success, ended),
        // Refused after it ran: the change is a call of its own, within this one.
        ("shell.run", json!({"command": "echo x > .envrc"}), Status::Blocked, ended),
        ("web.search", json!({"query": "x"}), Status::Blocked, &[Kind::Denied]),
        ("run", json!({"command": ["no-such-program"]}), Status::Invalid, &[Kind::Called]),
        // What is not a call does nothing.
        ("fs.write", json!({"path": "../x", "text": "x"}), Status::Invalid, &[Kind::Called]),
        (
            "fs.write",
            json!({"path": "x", "text": "x", "force": true}),
            Status::Invalid,
            &[Kind::Called],
        ),
        ("no.such.tool", json!({}), Status::Invalid, &[Kind::Called]),
    ];
    for (tool, arguments, status, kinds) in cases {
        let mut request = request(tool, arguments.clone());
        request.timeout = Some("3s".parse().unwrap());
        let reply = world.ask("local", Ask::Call(Box::new(request)));
        assert_eq!(reply.status, *status, "{tool} {arguments}: {reply:?}");
        world.engine.record().unwrap().checkpoint().unwrap();
        let events = world.events();
        let of_call = || events.iter().filter(|event| event.call == Some(reply.id));
        let left: Vec<Kind> =
            of_call().map(|event| event.kind).filter(|kind| *kind != Kind::ArtifactAdded).collect();
        assert_eq!(left, *kinds, "{tool} {arguments}");
        let end = of_call().filter_map(|event| event.status).next_back();
        assert_eq!(end, kinds.last().map(|_| *status), "{tool} {arguments}");
    }
    let mut names: Vec<_> =
        fs::read_dir(world.tree()).unwrap().map(|e| e.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["made", "new", "old"], "what has an effect is what succeeded");
    // What is asked of the record itself changes nothing in it.
    let before = world.events().len();
    for ask in [Ask::Verify, Ask::Tools(None), Ask::Runs(Filter::of(Name::LOCAL))] {
        world.engine.ask(&caller("local"), ask);
    }
    assert_eq!(world.events().len(), before);
}

const DISK: &str = "HOTCELL_TEST_DISK";

/// Not a test: `tree` and `home/run` of this directory are small disks.
#[test]
#[ignore = "started by dsk_04"]
fn process_with_small_disks() {
    let Some(dir) = std::env::var_os(DISK).map(PathBuf::from) else { return };
    let engine = Engine::open(options(&dir)).unwrap();
    let tree = dir.join("tree");
    let shell = |command: &str| {
        let request = request("shell.run", json!({ "command": command }));
        match engine.ask(&caller("local"), Ask::Call(Box::new(request))) {
            Answer::Called(reply) => *reply,
            other => panic!("{other:?}"),
        }
    };
    let names = || {
        let mut names: Vec<_> =
            fs::read_dir(&tree).unwrap().map(|e| e.unwrap().file_name()).collect();
        names.sort();
        names
    };
    assert_eq!(shell("echo small > a").status, Status::Success);
    // More than the workspace has room for; and more than there is room for on the way to it.
    for size in ["3000000", "12000000"] {
        let reply =
            shell(&format!("echo changed > a; head -c {size} /dev/zero | tr '\\0' x > big"));
        assert_eq!(reply.status, Status::Error, "{reply:?}");
        let why = &reply.problems[0].why;
        assert!(why.contains("No space left") || why.contains("no storage space"), "{reply:?}");
        assert_eq!(names(), ["a"], "nothing of it stays");
        assert_eq!(fs::read_to_string(tree.join("a")).unwrap(), "small\n");
        // What runs beside it, or next, is not touched.
        assert_eq!(shell("true").status, Status::Success);
    }
    engine.close().unwrap();
}

#[test]
fn dsk_04_a_full_workspace_is_an_error_and_as_it_was() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED dsk_04: only root can mount a small disk");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let script = "mkdir -p \"$0/tree\" \"$0/home/run\" && chmod 700 \"$0/home\" \
        && mount -t tmpfs -o size=2m tmpfs \"$0/tree\" \
        && mount -t tmpfs -o size=8m,mode=700 tmpfs \"$0/home/run\" && exec \"$@\"";
    let said = std::process::Command::new("unshare")
        .args(["-m", "sh", "-c", script])
        .arg(dir.path())
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "process_with_small_disks", "--ignored", "--nocapture"])
        .env(DISK, dir.path())
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(said.status.success(), "{}{}", text(&said.stdout), text(&said.stderr));
    assert!(text(&said.stdout).contains("1 passed"), "{}", text(&said.stdout));
}
