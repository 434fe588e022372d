//! What a call changes that somebody agreed to, or that has a token: judged path by path, and applied as far as
//! what was settled about the call goes. On the policies that are shipped, and those of the guide.

#![expect(clippy::unwrap_used, clippy::panic, reason = "these are tests")]

mod common;
#[path = "common/signed.rs"]
mod signed;

use std::fs;
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use hotcell_approver::{Approver, Verdict};
use hotcell_engine::{
    Answer, Ask, Engine, Options, QueueAnswer, QueueAsk, Reply, TokenAnswer, TokenAsk, TokenBounds,
    WorkflowAsk,
};
use hotcell_record::{Event, Filter, Kind};
use hotcell_request::Request;
use hotcell_review::Given;
use hotcell_types::{Caller, Door, Status};
use serde_json::{Value, json};

use crate::common::{options, request};
use crate::signed::follow;

const DEV: &str = include_str!("../../cli/profiles/dev.yaml");
const WORKFLOW: &str = include_str!("../../../examples/policies/workflow.yaml");
const GUIDE: &str = include_str!("../../../docs/policy.md");

struct World {
    dir: tempfile::TempDir,
    alice: Approver,
    engine: Engine,
    door: Door,
}

/// The policy of a number in the guide.
fn of_guide(number: usize) -> &'static str {
    let text = GUIDE.split(&format!("\n{number}. ")).nth(1).unwrap();
    text.split("```yaml\n").nth(1).and_then(|block| block.split("```").next()).unwrap()
}

impl World {
    fn new(rules: &str, door: Door) -> World {
        let dir = tempfile::tempdir().unwrap();
        let tree = dir.path().join("tree");
        fs::create_dir_all(tree.join("src")).unwrap();
        fs::write(tree.join("src/a"), "one\n").unwrap();
        let engine = Engine::open(Options { policy: None, ..options(dir.path()) }).unwrap();
        let alice = Approver::make("alice".parse().unwrap()).unwrap();
        follow(engine.record().unwrap(), &alice, rules);
        World { dir, alice, engine, door }
    }

    /// The same, whose workspace is a repository; `None` where there is no git.
    fn with_git(rules: &str, door: Door) -> Option<World> {
        let world = World::new(rules, door);
        if world.git(&["init", "-q"]).is_some() {
            return Some(world);
        }
        eprintln!("SKIPPED commits: there is no git");
        None
    }

    fn git(&self, args: &[&str]) -> Option<String> {
        let tree = self.dir.path().join("tree");
        let done = Command::new("git").arg("-C").arg(tree).args(args).output().ok()?;
        done.status.success().then(|| String::from_utf8_lossy(&done.stdout).trim().to_owned())
    }

    fn caller(&self) -> Caller {
        Caller::local("agent".parse().unwrap(), self.door)
    }

    fn call(&self, request: Request) -> Reply {
        match self.engine.ask(&self.caller(), Ask::Call(Box::new(request))) {
            Answer::Called(reply) => *reply,
            other => panic!("{other:?}"),
        }
    }

    fn ask(&self, tool: &str, args: Value) -> Reply {
        self.call(request(tool, args))
    }

    fn shell(&self, command: &str) -> Reply {
        self.ask("shell.run", json!({ "command": command }))
    }

    fn queue(&self, ask: QueueAsk<'_>) -> QueueAnswer {
        match self.engine.ask(&self.caller(), Ask::Queue(ask)) {
            Answer::Queue(answer) => answer,
            other => panic!("{other:?}"),
        }
    }

    /// What comes of a call that waits, once somebody has agreed.
    fn approved(&self, waits: &Reply) -> Reply {
        assert_eq!(waits.status, Status::Review, "{waits:?}");
        let id = waits.review.unwrap();
        let QueueAnswer::Item(queued) = self.queue(QueueAsk::Show(id)) else { panic!() };
        let (time, expires) = (queued.now, queued.now + 3_600_000_000_000);
        let home = self.engine.record().unwrap().home_id();
        let (verdict, reason) = (Verdict::Approve, "good".parse().unwrap());
        let statement = queued.item.statement(home, verdict, reason, time, expires);
        let given = Box::new(Given {
            verdict,
            reason: statement.reason.clone(),
            time,
            expires,
            approver: self.alice.public().fingerprint(),
            signature: self.alice.sign(&statement),
        });
        self.queue(QueueAsk::Answer { item: id, given });
        let wait = QueueAsk::Await {
            item: id,
            patience: Duration::from_secs(60),
            interrupt: &AtomicBool::new(false),
            attached: Box::default(),
        };
        let QueueAnswer::Reply(reply) = self.queue(wait) else { panic!() };
        *reply
    }

    fn works(&self, mode: &str, state: &str) {
        let (mode, state) = (mode.to_owned(), state.to_owned());
        let ask = WorkflowAsk::Set { subject: "agent".parse().unwrap(), mode, state };
        let by = Caller::local("agent".parse().unwrap(), Door::Library);
        let Answer::Workflow(_) = self.engine.ask(&by, Ask::Workflow(ask)) else { panic!() };
    }

    fn read(&self, path: &str) -> Option<String> {
        fs::read_to_string(self.dir.path().join("tree").join(path)).ok()
    }

    fn events(&self, kind: Kind) -> Vec<Event> {
        let filter = Filter { kind: Some(kind), ..Filter::of(self.caller().tenant) };
        match self.engine.ask(&self.caller(), Ask::Events(filter)) {
            Answer::Events(events) => events,
            other => panic!("{other:?}"),
        }
    }
}

fn commit(path: &str) -> Value {
    json!({ "message": "done", "paths": [path] })
}

#[track_caller]
fn is_refused(reply: &Reply, by: &str, fix: &str) {
    assert_eq!(reply.status, Status::Blocked, "{reply:?}");
    let problem = reply.problems.first().unwrap();
    assert!(problem.why.contains(by), "{problem:?}");
    assert!(problem.fix.contains(fix), "{problem:?}");
}

#[test]
fn what_an_approved_call_changes_is_applied_under_the_dev_profile() {
    let world = World::new(DEV, Door::Mcp);
    let command = "echo two > src/a; mkdir -p new/b; echo x > new/b/c";
    let reply = world.approved(&world.shell(command));
    assert_eq!(reply.status, Status::Success, "{reply:?}");
    assert_eq!(world.read("src/a").as_deref(), Some("two\n"));
    assert_eq!(world.read("new/b/c").as_deref(), Some("x\n"));
    // For one use: the next one waits again.
    assert_eq!(world.shell(command).status, Status::Review);
    // Nobody can agree to what a built-in rule denies, and nothing of such a call is applied.
    for path in ["policy.yaml", ".git/hooks/pre-commit", "x/.vscode/tasks.json"] {
        let command = format!("echo y > fine; mkdir -p $(dirname {path}); echo x > {path}");
        let reply = world.approved(&world.shell(&command));
        is_refused(&reply, path, "nothing overrides that");
        assert_eq!((world.read("fine"), world.read(path)), (None, None));
    }
    let Some(world) = World::with_git(DEV, Door::Mcp) else { return };
    let reply = world.approved(&world.ask("git.commit", commit("src/a")));
    assert_eq!(reply.status, Status::Success, "{reply:?}");
    assert_eq!(world.git(&["show", "HEAD:src/a"]).as_deref(), Some("one"));
}

#[test]
fn a_change_that_another_rule_wants_looked_at_is_refused_with_what_to_do() {
    let rules = format!(
        "{DEV}
  - name: build-files
    match: {{ operation: fs.write, path: [Cargo.toml] }}
    action: require_review
    reason: it changes what is built
  - {{ name: kept, match: {{ path: ['kept/**'] }}, action: deny, reason: it is kept }}
"
    );
    let world = World::new(&rules, Door::Mcp);
    let reply = world.approved(&world.shell("echo x > Cargo.toml; echo x > fine"));
    is_refused(
        &reply,
        "`build-files` wants somebody to agree to this very change",
        "`fs.write` by itself",
    );
    assert_eq!((world.read("Cargo.toml"), world.read("fine")), (None, None));
    let told = world.events(Kind::Denied).pop().unwrap();
    assert_eq!(told.rules, ["build-files", "write-to-the-workspace"]);
    assert_eq!(told.parent, Some(reply.id));
    // What it says to do can be done.
    let write = json!({ "path": "Cargo.toml", "text": "x" });
    let reply = world.approved(&world.ask("fs.write", write));
    assert_eq!(reply.status, Status::Success, "{reply:?}");
    assert_eq!(world.read("Cargo.toml").as_deref(), Some("x"));
    let reply = world.approved(&world.shell("mkdir kept; echo x > kept/a"));
    is_refused(
        &reply,
        "`kept` denies it: it is kept",
        "the rule `kept` denies it; it would not with",
    );
    assert_eq!(world.read("kept/a"), None);
    // A deletion is nothing that could be asked for by itself.
    let reply = world.approved(&world.shell("rm Cargo.toml"));
    is_refused(&reply, "`build-files` wants", "leave such paths alone");
    assert!(world.read("Cargo.toml").is_some());
}

#[test]
fn an_agreement_to_one_thing_is_none_to_what_no_rule_speaks_of() {
    let rules = "
rules:
  - { name: shell, match: { operation: shell.run }, action: require_review, reason: look }
  - { name: src, match: { operation: fs.write, path: ['src/**'] }, action: allow }
";
    let world = World::new(rules, Door::Mcp);
    let reply = world.approved(&world.shell("echo two > src/a"));
    assert_eq!(reply.status, Status::Success, "{reply:?}");
    assert_eq!(world.read("src/a").as_deref(), Some("two\n"));
    let reply = world.approved(&world.shell("echo three > src/a; echo x > docs"));
    is_refused(
        &reply,
        "no rule allows it",
        "- { name: allow-fs.change, match: { operation: fs.write",
    );
    assert_eq!(world.read("src/a").as_deref(), Some("two\n"));
    // Where no rule spoke of the call either, that is what somebody agreed to.
    let world = World::new("rules: []\n", Door::Mcp);
    let waits = world
        .call(Request { ask: true, ..request("shell.run", json!({"command": "echo x > docs"})) });
    let reply = world.approved(&waits);
    assert_eq!(reply.status, Status::Success, "{reply:?}");
    assert_eq!(world.read("docs").as_deref(), Some("x\n"));
}

#[test]
fn commits_of_the_eighth_and_the_tenth_policy_of_the_guide_are_applied() {
    let Some(world) = World::with_git(of_guide(8), Door::Mcp) else { return };
    let reply = world.approved(&world.ask("git.commit", commit("src/a")));
    assert_eq!(reply.status, Status::Success, "{reply:?}");
    assert_eq!(world.git(&["show", "HEAD:src/a"]).as_deref(), Some("one"));

    let world = World::with_git(of_guide(10), Door::Library).unwrap();
    assert_eq!(world.ask("git.commit", commit("src/a")).status, Status::Blocked);
    let paths = vec!["src/**".parse().unwrap()];
    let bounds = TokenBounds { paths, ..TokenBounds::default() };
    let mint = TokenAsk::Mint { tool: "git.commit".parse().unwrap(), bounds };
    let Answer::Token(TokenAnswer::Minted { bearer, .. }) =
        world.engine.ask(&world.caller(), Ask::Token(mint))
    else {
        panic!()
    };
    let mut request = request("git.commit", commit("src/a"));
    request.token = Some(bearer.reveal().parse().unwrap());
    let reply = world.call(request);
    assert_eq!(
        (reply.status, reply.rules.clone()),
        (Status::Success, vec!["token".to_owned()]),
        "{reply:?}"
    );
    assert_eq!(world.git(&["show", "HEAD:src/a"]).as_deref(), Some("one"));
}

#[test]
fn what_is_changed_in_a_workflow_is_what_its_state_lets_be_written() {
    let Some(world) = World::with_git(WORKFLOW, Door::Library) else { return };
    world.works("strict", "committing");
    let reply = world.ask("git.commit", commit("src/a"));
    assert_eq!(reply.status, Status::Success, "{reply:?}");
    assert_eq!(world.git(&["show", "HEAD:src/a"]).as_deref(), Some("one"));
    world.works("debug", "code_writing");
    let reply = world.approved(&world.shell("echo two > src/a"));
    assert_eq!(reply.status, Status::Success, "{reply:?}");
    let reply =
        world.approved(&world.shell("echo three > src/a; mkdir -p tests; echo x > tests/a"));
    is_refused(&reply, "no rule allows it", "operation: fs.write");
    world.works("debug", "validating");
    let reply = world.approved(&world.shell("echo three > src/a"));
    is_refused(&reply, "`nothing-while-validating` denies it", "nothing-while-validating");
    assert_eq!(world.read("src/a").as_deref(), Some("two\n"));
}

/// What a token was given for is not wanted again of what the call changes, where the same rule wants it.
#[test]
fn a_rule_that_wants_a_token_of_a_call_wants_no_other_of_its_changes() {
    let rules = "
rules:
  - name: scripted
    match: { operation: [shell.run, fs.write] }
    action: allow
    constraints: { token: required, max_file_size: 1KiB }
  - { name: kept, match: { path: ['kept/**'] }, action: deny }
";
    let world = World::new(rules, Door::Library);
    let with_token = |command: &str| {
        let args = json!({ "command": command });
        let bounds = TokenBounds::default();
        let mint = TokenAsk::Mint { tool: "shell.run".parse().unwrap(), bounds };
        let Answer::Token(TokenAnswer::Minted { bearer, .. }) =
            world.engine.ask(&world.caller(), Ask::Token(mint))
        else {
            panic!()
        };
        let mut request = request("shell.run", args);
        request.token = Some(bearer.reveal().parse().unwrap());
        world.call(request)
    };
    assert_eq!(world.shell("echo two > src/a").status, Status::Blocked);
    let reply = with_token("echo two > src/a");
    assert_eq!(reply.status, Status::Success, "{reply:?}");
    assert_eq!(world.read("src/a").as_deref(), Some("two\n"));
    is_refused(&with_token("mkdir kept; echo x > kept/a"), "`kept` denies it", "`kept`");
    is_refused(&with_token("head -c 2000 /dev/zero > src/b"), "2000 bytes", "write less");
    assert_eq!((world.read("kept/a"), world.read("src/b")), (None, None));
}
