//! Tokens on the one path: made only for what the policy allows, used once, and never anywhere to be read.

#![expect(clippy::unwrap_used, clippy::panic, reason = "these are tests")]

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use hotcell_approver::{Approver, Reason, SignedPolicy, Verdict};
use hotcell_bearer::{Bearer, Claims};
use hotcell_engine::artifacts::verify_artifacts;
use hotcell_engine::{
    Answer, Ask, Engine, Options, Policy, Problem, ProblemKind, QueueAnswer, QueueAsk, Reply,
    Stage, TokenAnswer, TokenAsk, TokenBounds, Watch, restore,
};
use hotcell_record::{Durability, Event, Filter, Kind, now};
use hotcell_request::{Arguments, ToolError, TypedTool, tool};
use hotcell_review::Given;
use hotcell_review::versions::{self, Rules, Version};
use hotcell_types::{Caller, Door, Name, Status};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::common::{options, request};

const POLICY: &str = "
rules:
  - { name: reads, match: { effect: [read] }, action: allow }
  - name: source-with-a-token
    match: { operation: fs.write, path: ['src/**', 'keys/**'] }
    action: allow
    constraints: { token: required, max_file_size: 1KiB }
  - { name: no-keys, match: { operation: fs.write, path: ['keys/**'] }, action: deny, except: [{ path: ['keys/*.pub'] }] }
  - { name: calls, match: { tool: own.post }, action: allow }
";

fn caller() -> Caller {
    Caller::local(Name::LOCAL, Door::Library)
}

fn by(subject: &str, door: Door) -> Caller {
    Caller::local(subject.parse().unwrap(), door)
}

fn policy(text: &str) -> Option<Policy> {
    Some(Policy::load(text.as_bytes(), &Default::default()).unwrap().snapshot)
}

struct World {
    engine: Engine,
    dir: tempfile::TempDir,
}

fn prepared() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir_all(dir.path().join("tree/src")).unwrap();
    fs::write(dir.path().join("tree/src/a.txt"), "one\n").unwrap();
    dir
}

fn open(dir: &Path, text: &str) -> Engine {
    Engine::open(Options { policy: policy(text), ..options(dir) }).unwrap()
}

impl World {
    fn new() -> World {
        let dir = prepared();
        World { engine: open(dir.path(), POLICY), dir }
    }

    /// The same home under another policy.
    fn reopened(self, text: &str) -> World {
        let World { engine, dir } = self;
        engine.close().unwrap();
        World { engine: open(dir.path(), text), dir }
    }

    fn ask(&self, caller: &Caller, ask: TokenAsk) -> Result<TokenAnswer, Problem> {
        match self.engine.ask(caller, Ask::Token(ask)) {
            Answer::Token(answer) => Ok(answer),
            Answer::Failed(problem) => Err(problem),
            other => panic!("{other:?}"),
        }
    }

    fn made(&self, caller: &Caller, ask: TokenAsk) -> Result<(Bearer, Claims), Problem> {
        match self.ask(caller, ask)? {
            TokenAnswer::Minted { bearer, claims } => Ok((bearer, *claims)),
            other => panic!("{other:?}"),
        }
    }

    fn mint(&self, tool: &str, bounds: TokenBounds) -> Result<(Bearer, Claims), Problem> {
        self.made(&caller(), TokenAsk::Mint { tool: tool.parse().unwrap(), bounds })
    }

    /// A token for one write below `src`.
    fn token(&self) -> Bearer {
        self.mint("fs.write", on(&["src/**"])).unwrap().0
    }

    fn call(&self, caller: &Caller, tool: &str, args: Value, token: Option<&str>) -> Reply {
        called(&self.engine, caller, tool, args, token)
    }

    fn write(&self, path: &str, token: Option<&str>) -> Reply {
        self.call(&caller(), "fs.write", json!({"path": path, "text": "two\n"}), token)
    }

    fn has(&self, path: &str) -> bool {
        self.dir.path().join("tree").join(path).exists()
    }

    fn events(&self) -> Vec<Event> {
        events(&self.engine)
    }

    fn sql(&self) -> rusqlite::Connection {
        rusqlite::Connection::open(self.dir.path().join("home/hotcell.db")).unwrap()
    }
}

fn called(engine: &Engine, caller: &Caller, tool: &str, args: Value, token: Option<&str>) -> Reply {
    let mut request = request(tool, args);
    request.token = token.map(|token| token.parse().unwrap());
    match engine.ask(caller, Ask::Call(Box::new(request))) {
        Answer::Called(reply) => *reply,
        other => panic!("{other:?}"),
    }
}

fn events(engine: &Engine) -> Vec<Event> {
    engine.record().unwrap().checkpoint().unwrap();
    let filter = Filter { limit: 1000, ..Filter::of(Name::LOCAL) };
    let Answer::Events(events) = engine.ask(&caller(), Ask::Events(filter)) else { panic!() };
    events
}

fn on(paths: &[&str]) -> TokenBounds {
    let paths = paths.iter().map(|path| path.parse().unwrap()).collect();
    TokenBounds { paths, ..TokenBounds::default() }
}

fn why(reply: &Reply) -> String {
    reply.problems.iter().map(|problem| problem.why.as_str()).collect::<Vec<_>>().join("; ")
}

/// Without this a token of a millisecond might be good for a while.
fn wait_until(moment: i64) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while now() <= moment {
        assert!(Instant::now() < deadline);
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_rule_that_requires_a_token_allows_a_call_with_one() {
    let world = World::new();
    let reply = world.write("src/b.txt", None);
    assert_eq!(reply.status, Status::Blocked, "{reply:?}");
    assert!(why(&reply).contains("`source-with-a-token` allows it for a call with a token"));
    let (token, claims) = world.mint("fs.write", on(&["src/**"])).unwrap();
    let reply = world.write("src/b.txt", Some(token.reveal()));
    assert_eq!(reply.status, Status::Success, "{reply:?}");
    assert!(world.has("src/b.txt") && reply.rules == ["token"]);
    let events = world.events();
    let told: Vec<_> = events
        .iter()
        .filter(|event| event.bearer.as_deref() == Some(&claims.id.to_string()))
        .map(|event| (event.kind, event.reason.clone().unwrap_or_default()))
        .collect();
    let changed = Kind::BearerChanged;
    let expected = [
        (changed, "token minted, 1 left"),
        (Kind::Intent, "its token allows it"),
        (changed, "token used, 0 left"),
    ];
    assert_eq!(told, expected.map(|(kind, reason)| (kind, reason.to_owned())));
    // What the rule binds it to counts with a token, too.
    let token = world.token();
    let args = json!({"path": "src/large", "text": "x".repeat(2000)});
    let reply = world.call(&caller(), "fs.write", args, Some(token.reveal()));
    assert_eq!(reply.status, Status::Blocked, "{reply:?}");
    assert!(!world.has("src/large"));
}

#[derive(Deserialize, JsonSchema)]
struct Post {
    #[schemars(extend("x-hotcell" = "host"))]
    host: String,
}

/// Reaches others, or says so.
#[tool(name = "own.post", version = "1.0.0", effects(network))]
fn post(to: Post) -> Result<String, ToolError> {
    Ok(to.host)
}

#[test]
fn a_token_is_not_made_for_more_than_the_policy_surely_allows() {
    let world = World::new();
    world.engine.add(PostTool.tool().unwrap(), PostTool).unwrap();
    let exact =
        |args: Value| TokenBounds { args: Some(Arguments::Value(args)), ..TokenBounds::default() };
    let open = TokenBounds::default;
    for (tool, bounds, refused) in [
        ("fs.write", on(&["src/**"]), ""),
        ("fs.write", on(&["src/a/*.rs", "/src/b"]), ""),
        ("fs.write", on(&["keys/*.pub"]), ""),
        ("fs.write", exact(json!({"path": "src/a", "text": ""})), ""),
        ("fs.read", on(&["**"]), ""),
        ("own.post", exact(json!({"host": "example.com"})), ""),
        // Wider than the policy.
        ("fs.write", on(&["**"]), "no-keys"),
        ("fs.write", on(&["*.rs"]), "no-keys"),
        ("fs.write", on(&["docs/**"]), "no rule allows all of it"),
        ("fs.write", on(&["src/**", "docs/**"]), "no rule allows all of it"),
        ("fs.write", open(), "no rule allows all of it"),
        ("fs.write", exact(json!({"path": "docs/a", "text": ""})), "no rule allows all of it"),
        // A deny could intersect.
        ("fs.write", on(&["keys/**"]), "no-keys"),
        ("fs.write", on(&["keys/a*"]), "no-keys"),
        ("fs.write", exact(json!({"path": "keys/a", "text": ""})), "no-keys"),
        // Where it goes is open.
        ("own.post", open(), "reaches others"),
        ("code_execute", open(), "no rule allows all of it"),
    ] {
        match world.mint(tool, bounds.clone()) {
            Ok(_) => assert_eq!(refused, "", "{tool} {bounds:?}"),
            Err(problem) => {
                assert_eq!(problem.kind, ProblemKind::Blocked, "{problem:?}");
                assert!(!refused.is_empty() && problem.why.contains(refused), "{problem:?}");
                let last = world.events().pop().unwrap();
                assert_eq!(
                    (last.kind, last.operation.as_deref()),
                    (Kind::Denied, Some("token.mint"))
                );
            }
        }
    }
    // What no token can be is the fault of whoever asks.
    let uses = |uses| TokenBounds { uses, ..on(&["src/**"]) };
    let life = |life: &str| TokenBounds { life: Some(life.parse().unwrap()), ..on(&["src/**"]) };
    let elsewhere =
        TokenBounds { paths: on(&["src/b"]).paths, ..exact(json!({"path": "src/a", "text": ""})) };
    let many: Vec<String> = (0..40).map(|number| format!("src/{number}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    for bounds in
        [uses(0), uses(u32::MAX), life("2h"), elsewhere, on(&many), exact(json!({"path": 1}))]
    {
        let problem = world.mint("fs.write", bounds).unwrap_err();
        assert_eq!(problem.kind, ProblemKind::Invalid, "{problem:?}");
    }
    assert_eq!(world.mint("no.such", open()).unwrap_err().kind, ProblemKind::Invalid);
}

#[test]
fn a_token_that_does_not_count_is_as_good_as_none_and_the_reason_says_why() {
    let world = World::new();
    let (spent, revoked, good) = (world.token(), world.token(), world.token());
    assert_eq!(world.write("src/1", Some(spent.reveal())).status, Status::Success);
    let id = revoked.id();
    assert!(matches!(world.ask(&caller(), TokenAsk::Revoke(id)), Ok(TokenAnswer::Revoked(true))));
    assert!(matches!(world.ask(&caller(), TokenAsk::Revoke(id)), Ok(TokenAnswer::Revoked(false))));
    let soon = TokenBounds { life: Some("1ms".parse().unwrap()), ..on(&["src/**"]) };
    let (expired, claims) = world.mint("fs.write", soon).unwrap();
    wait_until(claims.expires);
    let bound = TokenBounds {
        args: Some(Arguments::Value(json!({"path": "src/2", "text": "other"}))),
        ..TokenBounds::default()
    };
    let (bound, _) = world.mint("fs.write", bound).unwrap();
    let (read, _) = world.mint("fs.read", on(&["**"])).unwrap();
    let (alice, _) = world
        .made(
            &by("alice", Door::Cli),
            TokenAsk::Mint { tool: "fs.write".parse().unwrap(), bounds: on(&["src/**"]) },
        )
        .unwrap();
    let run = Some(
        world.events()[0].call.unwrap_or_else(|| "01ARZ3NDEKTSV4RRFFQ69G5FAV".parse().unwrap()),
    );
    let (of_run, _) = world.mint("fs.write", TokenBounds { run, ..on(&["src/**"]) }).unwrap();
    for (text, expected) in [
        (spent.reveal(), "all its operations are used"),
        (revoked.reveal(), "it was revoked"),
        (expired.reveal(), "it has expired"),
        (bound.reveal(), "it is for other arguments"),
        (read.reveal(), "it is for another operation"),
        (alice.reveal(), "it belongs to somebody else"),
        (of_run.reveal(), "or to another run"),
        ("hct_AAAA", "it is not spelled as a token"),
        ("nonsense", "it is not spelled as a token"),
    ] {
        let reply = world.write("src/2", Some(text));
        assert_eq!(reply.status, Status::Blocked, "{reply:?}");
        let why = why(&reply);
        assert!(why.contains("allows it for a call with a token"), "{why}");
        assert!(why.contains("its token does not count: ") && why.contains(expected), "{why}");
        assert!(!world.has("src/2"));
        // What is allowed anyway is, whatever it comes with.
        let args = json!({"path": "src/a.txt"});
        let reply =
            world.call(&caller(), "fs.read", args, Some(text).filter(|_| text != read.reveal()));
        assert_eq!(reply.status, Status::Success, "{reply:?}");
    }
    // Only what comes through its own door is known to come from a run.
    for (door, expected) in [(Door::Library, Status::Blocked), (Door::Callback, Status::Success)] {
        let mut request = request("fs.write", json!({"path": "src/3", "text": ""}));
        (request.parent, request.token) = (run, Some(of_run.reveal().parse().unwrap()));
        let caller = Caller { door, ..caller() };
        let Answer::Called(reply) = world.engine.ask(&caller, Ask::Call(Box::new(request))) else {
            panic!()
        };
        assert_eq!(reply.status, expected, "{door}: {reply:?}");
    }
    let world = world.reopened(&POLICY.replace("1KiB", "2KiB"));
    let reply = world.write("src/2", Some(good.reveal()));
    assert_eq!(reply.status, Status::Blocked, "{reply:?}");
    assert!(why(&reply).contains("the policy is another one"), "{reply:?}");
    // With the old one it is what it was.
    let world = world.reopened(POLICY);
    assert_eq!(world.write("src/2", Some(good.reveal())).status, Status::Success);
}

/// Case 22 of the rule language: one reading of the clock, at the start, is what every expiry is compared with.
#[test]
fn a_token_that_expires_while_its_call_is_decided_counts_and_never_again() {
    use std::sync::atomic::{AtomicI64, Ordering};
    static EXPIRES: AtomicI64 = AtomicI64::new(0);
    let dir = prepared();
    // The verdict is there, and nothing has been begun until the token is over.
    let watch = Watch::new(|_, stage| {
        if stage == Stage::Judged {
            wait_until(EXPIRES.load(Ordering::SeqCst));
        }
    });
    let options = Options { policy: policy(POLICY), watch: Some(watch), ..options(dir.path()) };
    let world = World { engine: Engine::open(options).unwrap(), dir };
    // Long enough for a call to begin, however busy the machine is.
    let bounds = TokenBounds { uses: 2, life: Some("5s".parse().unwrap()), ..on(&["src/**"]) };
    let (token, claims) = world.mint("fs.write", bounds).unwrap();
    EXPIRES.store(claims.expires, Ordering::SeqCst);
    let begun = world.write("src/1", Some(token.reveal()));
    assert_eq!(begun.status, Status::Success, "{begun:?}");
    assert!(now() > claims.expires, "it is over since before it was used");
    let later = world.write("src/2", Some(token.reveal()));
    assert_eq!(later.status, Status::Blocked, "{later:?}");
    assert!(later.problems[0].why.contains("it has expired"), "{later:?}");
}

#[test]
fn tok_14_an_expired_token_is_remembered_with_the_refusal() {
    let world = World::new();
    let soon = || TokenBounds { life: Some("1ms".parse().unwrap()), ..on(&["src/**"]) };
    let mark = |world: &World| -> i64 {
        world.sql().query_row("SELECT time FROM bearer_mark", [], |row| row.get(0)).unwrap()
    };
    for tool in ["fs.write", "fs.read"] {
        let (token, claims) = world.mint(tool, soon()).unwrap();
        wait_until(claims.expires);
        assert!(mark(&world) < claims.expires);
        let args = match tool {
            "fs.write" => json!({"path": "src/1", "text": ""}),
            _ => json!({"path": "src/a.txt"}),
        };
        let reply = world.call(&caller(), tool, args, Some(token.reveal()));
        assert_eq!(reply.status == Status::Success, tool == "fs.read", "{reply:?}");
        assert!(mark(&world) >= claims.expires, "{tool}");
    }
}

#[test]
fn a_narrower_token_is_for_less_and_falls_with_the_other() {
    let world = World::new();
    let (parent, _) = world.mint("fs.write", TokenBounds { uses: 3, ..on(&["src/**"]) }).unwrap();
    let narrow = |bounds: TokenBounds| {
        let token = parent.reveal().parse().unwrap();
        world.made(&caller(), TokenAsk::Attenuate { token, bounds })
    };
    let exact = |path: &str| TokenBounds {
        args: Some(Arguments::Value(json!({"path": path, "text": "two\n"}))),
        ..TokenBounds::default()
    };
    let (child, _) = narrow(on(&["src/a/**"])).unwrap();
    let (exactly, claims) = narrow(exact("src/b")).unwrap();
    assert!(claims.scope.args.is_some() && claims.parent == Some(parent.id()));
    for bounds in [on(&["**"]), TokenBounds { uses: 2, ..on(&["src/a"]) }] {
        let problem = narrow(bounds).unwrap_err();
        assert_eq!(problem.kind, ProblemKind::Blocked, "{problem:?}");
        let last = world.events().pop().unwrap();
        assert_eq!((last.kind, last.operation.as_deref()), (Kind::Denied, Some("token.narrow")));
    }
    assert_eq!(narrow(exact("docs/b")).unwrap_err().kind, ProblemKind::Invalid);
    assert_eq!(world.write("src/b", Some(child.reveal())).status, Status::Blocked);
    assert_eq!(world.write("src/c", Some(exactly.reveal())).status, Status::Blocked);
    assert_eq!(world.write("src/b", Some(exactly.reveal())).status, Status::Success);
    world.ask(&caller(), TokenAsk::Revoke(parent.id())).unwrap();
    let reply = world.write("src/a/b", Some(child.reveal()));
    assert!(why(&reply).contains("it was revoked"), "{reply:?}");
    let listed = world.ask(&caller(), TokenAsk::List { after: 0, limit: 100 });
    let Ok(TokenAnswer::Listed(all)) = listed else { panic!("{listed:?}") };
    let left: Vec<_> = all.iter().map(|token| (token.stored.left, token.is_revoked)).collect();
    assert_eq!(left, [(1, true), (1, true), (0, true)]);
}

#[test]
fn tok_12_who_comes_from_a_sandbox_or_for_a_model_makes_and_changes_no_tokens() {
    let world = World::new();
    let (token, _) = world.mint("fs.write", TokenBounds { uses: 5, ..on(&["src/**"]) }).unwrap();
    let id = token.id();
    for door in Door::ALL.into_iter().filter(|door| !matches!(door, Door::Cli | Door::Library)) {
        let caller = Caller { door, ..caller() };
        let mut asks = vec![
            TokenAsk::Mint { tool: "fs.read".parse().unwrap(), bounds: on(&["**"]) },
            TokenAsk::Rotate { grace: None },
        ];
        if door != Door::Rest {
            let token = token.reveal().parse().unwrap();
            asks.push(TokenAsk::Attenuate { token, bounds: on(&["src/a"]) });
            asks.push(TokenAsk::Revoke(id));
            asks.push(TokenAsk::List { after: 0, limit: 10 });
        }
        for ask in asks {
            let problem = world.ask(&caller, ask).unwrap_err();
            assert_eq!(problem.kind, ProblemKind::Blocked, "{problem:?}");
            let last = world.events().pop().unwrap();
            assert_eq!((last.kind, last.caller.door), (Kind::Denied, door));
        }
    }
    assert_eq!(world.write("src/1", Some(token.reveal())).status, Status::Success);
    // Nor does another tenant take away what is not its own.
    let other = Caller { tenant: "other".parse().unwrap(), ..caller() };
    let problem = world.ask(&other, TokenAsk::Revoke(token.id())).unwrap_err();
    assert_eq!(problem.kind, ProblemKind::NotFound, "{problem:?}");
}

/// What a key with the scope for it can do with tokens, and with whose.
#[test]
fn tok_12_who_comes_with_a_key_lists_narrows_and_revokes_their_own_and_no_others() {
    let world = World::new();
    let (alice, mallory) = (by("alice", Door::Cli), by("mallory", Door::Cli));
    let made = |caller: &Caller, uses| {
        let bounds = TokenBounds { uses, ..on(&["src/**"]) };
        let ask = TokenAsk::Mint { tool: "fs.write".parse().unwrap(), bounds };
        world.made(caller, ask).unwrap().0
    };
    let theirs: Vec<_> = (0..3).map(|_| made(&mallory, 1)).collect();
    let own = made(&alice, 5);
    let at_the_server = |caller: &Caller| Caller { door: Door::Rest, ..caller.clone() };
    let (alice, mallory) = (at_the_server(&alice), at_the_server(&mallory));
    let listed = |caller: &Caller, limit| {
        let ask = TokenAsk::List { after: 0, limit };
        let TokenAnswer::Listed(all) = world.ask(caller, ask).unwrap() else { panic!() };
        all.iter().map(|one| one.stored.id()).collect::<Vec<_>>()
    };
    assert_eq!(listed(&alice, 10), [own.id()]);
    assert_eq!(listed(&mallory, 2), [theirs[0].id(), theirs[1].id()]);

    let narrow = |caller: &Caller, token: &Bearer, bounds| {
        world.made(caller, TokenAsk::Attenuate { token: token.reveal().parse().unwrap(), bounds })
    };
    let (child, claims) = narrow(&alice, &own, on(&["src/a"])).unwrap();
    assert_eq!(claims.uses, 1);
    // Never for more, and never for somebody who only has its text.
    for bounds in [on(&["**"]), TokenBounds { uses: 9, ..on(&["src/a"]) }] {
        assert!(narrow(&alice, &own, bounds).is_err());
    }
    assert!(narrow(&mallory, &own, on(&["src/a"])).is_err());

    for token in [&own, &child] {
        let problem = world.ask(&mallory, TokenAsk::Revoke(token.id())).unwrap_err();
        assert_eq!(problem.kind, ProblemKind::NotFound, "{problem:?}");
    }
    let other = Caller { tenant: "other".parse().unwrap(), ..alice.clone() };
    assert!(world.ask(&other, TokenAsk::Revoke(own.id())).is_err());
    assert_eq!(listed(&other, 10), []);
    let write = |token: &Bearer| {
        let args = json!({"path": "src/a", "text": "two\n"});
        world.call(&alice, "fs.write", args, Some(token.reveal())).status
    };
    assert_eq!(write(&child), Status::Success);
    let revoked = world.ask(&alice, TokenAsk::Revoke(own.id())).unwrap();
    assert!(matches!(revoked, TokenAnswer::Revoked(true)), "{revoked:?}");
    assert_eq!(write(&own), Status::Blocked);
}

#[test]
fn tok_13_with_new_keys_old_tokens_are_good_for_as_long_as_was_said() {
    let world = World::new();
    let rotate = |grace: Option<&str>| {
        let grace = grace.map(|grace| grace.parse().unwrap());
        world.ask(&caller(), TokenAsk::Rotate { grace }).unwrap();
    };
    let (one, two) = (world.token(), world.token());
    rotate(Some("1h"));
    assert_eq!(world.write("src/1", Some(one.reveal())).status, Status::Success);
    rotate(None);
    let reply = world.write("src/2", Some(two.reveal()));
    assert_eq!(reply.status, Status::Blocked, "{reply:?}");
    assert!(why(&reply).contains("its token does not count"), "{reply:?}");
    assert_eq!(world.write("src/2", Some(world.token().reveal())).status, Status::Success);
    let told = world.events().into_iter().filter(|event| event.kind == Kind::BearerChanged);
    let told = told.filter(|event| event.operation.as_deref() == Some("token.rotate"));
    assert_eq!(told.count(), 2);
}

/// Every file below a directory, the database with its log among them.
fn bytes_below(directory: &Path) -> Vec<u8> {
    let mut all = Vec::new();
    for entry in fs::read_dir(directory).unwrap().map(Result::unwrap) {
        match entry.file_type().unwrap() {
            kind if kind.is_dir() => all.extend(bytes_below(&entry.path())),
            kind if kind.is_file() => all.extend(fs::read(entry.path()).unwrap()),
            _ => {}
        }
    }
    all
}

#[test]
fn tok_11_the_text_of_a_token_is_nowhere() {
    let world = World::new();
    let (token, _) = world.mint("fs.write", TokenBounds { uses: 4, ..on(&["src/**"]) }).unwrap();
    let text = token.reveal();
    let narrowed = TokenAsk::Attenuate { token: text.parse().unwrap(), bounds: on(&["src/a"]) };
    assert!(!format!("{token:?} {narrowed:?}").contains(text));
    let (child, _) = world.made(&caller(), narrowed).unwrap();
    let mut said = Vec::new();
    for path in ["src/1", "docs/1", "src/2"] {
        said.push(format!("{:?}", world.write(path, Some(text))));
        said.push(format!("{:?}", world.write(path, Some(child.reveal()))));
    }
    // What a program prints and writes of it is not kept either.
    let args = json!({"path": "src/3", "text": format!("it is {text}")});
    said.push(format!("{:?}", world.call(&caller(), "fs.write", args, Some(text))));
    world.ask(&caller(), TokenAsk::Revoke(token.id())).unwrap();
    said.push(format!("{:?}", world.write("src/4", Some(text))));
    let wide = TokenAsk::Attenuate { token: text.parse().unwrap(), bounds: on(&["**"]) };
    said.push(format!("{:?}", world.ask(&caller(), wide).unwrap_err()));
    said.push(format!("{:?}", world.events()));
    let mut export = Vec::new();
    world.engine.record().unwrap().checkpoint().unwrap();
    hotcell_record::export(&world.dir.path().join("home/hotcell.db"), &mut export).unwrap();
    world.engine.backup(&caller(), &world.dir.path().join("home/copy.tar")).unwrap();
    let home = bytes_below(&world.dir.path().join("home"));
    let is_in = |bytes: &[u8], text: &str| bytes.windows(text.len()).any(|w| w == text.as_bytes());
    assert!(is_in(&home, &token.id().to_string()));
    for token in [&token, &child] {
        // The end of it is what nobody can make.
        let (_, end) = token.reveal().split_at(token.reveal().len() - 40);
        assert!(!is_in(&home, end) && !is_in(&export, end));
        assert!(said.iter().all(|said| !said.contains(end)), "{said:?}");
    }
}

#[test]
fn rows_of_tokens_are_verified_against_the_record() {
    let world = World::new();
    let (token, _) = world.mint("fs.write", TokenBounds { uses: 2, ..on(&["src/**"]) }).unwrap();
    assert_eq!(world.write("src/1", Some(token.reveal())).status, Status::Success);
    world.ask(&caller(), TokenAsk::Revoke(token.id())).unwrap();
    let home = world.dir.path().join("home");
    world.engine.record().unwrap().checkpoint().unwrap();
    let checked = verify_artifacts(&home).unwrap();
    assert!(checked.is_fine() && checked.tokens == 1, "{checked:?}");
    let drop_all = "SELECT group_concat('DROP TRIGGER ' || name || ';', '') FROM sqlite_schema
        WHERE type = 'trigger' AND name LIKE 'bearer%'";
    let drop_all: String = world.sql().query_row(drop_all, [], |row| row.get(0)).unwrap();
    world.sql().execute_batch(&drop_all).unwrap();
    for change in ["remains = remains + 1", "revoked = NULL", "changes = changes - 1"] {
        let undo = world.sql();
        let tamper = format!(
            "BEGIN; CREATE TABLE kept AS SELECT * FROM bearer; UPDATE bearer SET {change}; COMMIT"
        );
        undo.execute_batch(&tamper).unwrap();
        let checked = verify_artifacts(&home).unwrap();
        assert_eq!(checked.told, ["token 1 is not as it was recorded last"], "{change}");
        undo.execute_batch("BEGIN; DELETE FROM bearer; INSERT INTO bearer SELECT * FROM kept; DROP TABLE kept; COMMIT").unwrap();
    }
    assert!(verify_artifacts(&home).unwrap().is_fine());
    world.sql().execute_batch("DELETE FROM bearer").unwrap();
    assert_eq!(verify_artifacts(&home).unwrap().told, ["token 1 is recorded, and is not there"]);
}

#[test]
fn in_a_restored_home_no_token_of_before_is_worth_anything() {
    let world = World::new();
    let token = world.token();
    let (copy, other) = (world.dir.path().join("copy.tar"), prepared());
    world.engine.backup(&caller(), &copy).unwrap();
    // Used after the copy was made: in the copy it was not.
    assert_eq!(world.write("src/1", Some(token.reveal())).status, Status::Success);
    let restored =
        restore(&caller(), &other.path().join("home"), &hotcell_engine::Anchor::Home, &copy)
            .unwrap();
    assert!(restored.artifacts.is_fine() && restored.artifacts.tokens == 1, "{restored:?}");
    let world = World { engine: open(other.path(), POLICY), dir: other };
    let reply = world.write("src/1", Some(token.reveal()));
    assert_eq!(reply.status, Status::Blocked, "{reply:?}");
    assert!(why(&reply).contains("its signature is not ours"), "{reply:?}");
    assert_eq!(world.write("src/1", Some(world.token().reveal())).status, Status::Success);
}

/// Says that it changes the policy: a built-in rule wants somebody to agree, with a token as well.
#[tool(name = "own.update", version = "1.0.0", effects(write))]
fn update(_: Nothing) -> Result<u8, ToolError> {
    Ok(1)
}

#[derive(Deserialize, JsonSchema)]
struct Nothing {}

/// A home with a policy that somebody signed.
fn signed(alice: &Approver) -> World {
    let dir = prepared();
    let text = format!(
        "approvers: ['{}']\nrules: [{{ name: own, match: {{ tool: own.update }}, action: allow }}]\n",
        alice.public()
    );
    let engine = Engine::open(Options { policy: None, ..options(dir.path()) }).unwrap();
    let rules = Rules { text: text.clone(), extensions: Default::default() };
    let record = engine.record().unwrap();
    let statement = versions::statement(&rules, record.home_id().0, 0, now());
    let version = Version { rules, signed: SignedPolicy::sign(alice, statement) };
    let written = record.write(Durability::Synced, move |tx| {
        hotcell_review::migrate(tx)?;
        versions::add(tx, &version)?;
        Ok::<_, hotcell_review::Error>(((), Vec::new()))
    });
    written.unwrap();
    let file = dir.path().join("home/policy.yaml");
    fs::write(&file, text).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    World { engine, dir }
}

#[test]
fn what_a_review_holds_of_a_token_is_used_when_somebody_agrees_and_given_back_otherwise() {
    let alice = Approver::make("alice".parse().unwrap()).unwrap();
    for (verdict, left, expected) in
        [(Verdict::Approve, 0, Status::Success), (Verdict::Reject, 1, Status::Blocked)]
    {
        let world = signed(&alice);
        let mut described = UpdateTool.tool().unwrap();
        described.operation = Some("policy.update".parse().unwrap());
        world.engine.add(described, UpdateTool).unwrap();
        let (token, _) = world.mint("own.update", TokenBounds::default()).unwrap();
        let reply = world.call(&caller(), "own.update", json!({}), Some(token.reveal()));
        assert_eq!(reply.status, Status::Review, "{reply:?}");
        let of_token = || {
            let listed = world.ask(&caller(), TokenAsk::List { after: 0, limit: 1 });
            let Ok(TokenAnswer::Listed(all)) = listed else { panic!("{listed:?}") };
            all.first().map(|token| (token.stored.left, token.stored.held))
        };
        assert_eq!(of_token(), Some((0, 1)));
        let id = reply.review.unwrap();
        let queue = |ask| world.engine.ask(&caller(), Ask::Queue(ask));
        let Answer::Queue(QueueAnswer::Item(queued)) = queue(QueueAsk::Show(id)) else { panic!() };
        let (home, time) = (world.engine.record().unwrap().home_id(), now());
        let (reason, expires): (Reason, i64) = ("fine".parse().unwrap(), time + 3_600_000_000_000);
        let statement = queued.item.statement(home, verdict, reason.clone(), time, expires);
        let (approver, signature) = (alice.public().fingerprint(), alice.sign(&statement));
        let given = Box::new(Given { verdict, reason, time, expires, approver, signature });
        let answered = queue(QueueAsk::Answer { item: id, given });
        assert!(matches!(answered, Answer::Queue(_)), "{answered:?}");
        let wait = QueueAsk::Await {
            item: id,
            patience: Duration::from_secs(10),
            interrupt: &AtomicBool::new(false),
            attached: Box::default(),
        };
        let Answer::Queue(QueueAnswer::Reply(reply)) = queue(wait) else { panic!() };
        assert_eq!(reply.status, expected, "{reply:?}");
        assert_eq!(of_token(), Some((left, 0)));
        world.events();
        assert!(verify_artifacts(&world.dir.path().join("home")).unwrap().is_fine());
    }
}

const DIR: &str = "HOTCELL_TEST_DIR";
const TOKEN: &str = "HOTCELL_TEST_TOKEN";
const FATAL: &str = "HOTCELL_TEST_FATAL";

/// Not a test: a process that uses a token, five times at once, and may be killed while it does.
#[test]
#[ignore = "started by the other tests"]
fn process_that_uses_a_token() {
    let Some(dir) = std::env::var_os(DIR).map(PathBuf::from) else { return };
    let token = std::env::var(TOKEN).unwrap();
    let fatal = std::env::var(FATAL).ok().and_then(|stage| stage.parse::<usize>().ok());
    let fatal = fatal.and_then(|stage| Stage::ALL.get(stage).copied());
    let watch = Watch::new(move |_, stage| {
        if Some(stage) == fatal {
            let own = rustix::process::getpid();
            rustix::process::kill_process(own, rustix::process::Signal::KILL).unwrap();
        }
    });
    let mut options = Options { policy: policy(POLICY), ..options(&dir) };
    options.watch = Some(watch);
    let engine = Engine::open(options).unwrap();
    std::thread::scope(|scope| {
        for number in 0..5 {
            let (engine, token) = (&engine, &token);
            scope.spawn(move || {
                let path = format!("src/{}-{number}", std::process::id());
                let args = json!({"path": path, "text": "made"});
                called(engine, &caller(), "fs.write", args, Some(token));
            });
        }
    });
    // Without closing: what was used is on the disk already.
    std::process::abort();
}

fn start(dir: &Path, token: &str, fatal: Option<Stage>) -> Child {
    let fatal = Stage::ALL.iter().position(|stage| Some(*stage) == fatal);
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "process_that_uses_a_token", "--ignored"])
        .env(DIR, dir)
        .env(TOKEN, token)
        .env(FATAL, fatal.map_or(String::new(), |stage| stage.to_string()))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Ten uses in two processes, one of which is killed at a stage; then ten more.
#[test]
fn tok_07_of_ten_uses_at_once_in_two_processes_one_has_an_effect_also_with_kill_9() {
    for fatal in [None, Some(Stage::Judged), Some(Stage::Intended), Some(Stage::CarriedOut)] {
        let world = World::new();
        let bounds = TokenBounds { life: Some("10m".parse().unwrap()), ..on(&["src/**"]) };
        let (token, claims) = world.mint("fs.write", bounds).unwrap();
        let World { engine, dir } = world;
        engine.close().unwrap();
        for fatal in [fatal, None] {
            let children =
                [start(dir.path(), token.reveal(), fatal), start(dir.path(), token.reveal(), None)];
            for mut child in children {
                let signal = child.wait().unwrap().signal();
                assert!(matches!(signal, Some(6 | 9)), "{signal:?}");
            }
        }
        let engine = open(dir.path(), POLICY);
        let used = events(&engine);
        let of = |kind: Kind| used.iter().filter(move |event| event.kind == kind);
        let uses = of(Kind::BearerChanged)
            .filter(|event| event.reason.as_deref() == Some("token used, 0 left"));
        assert_eq!((uses.count(), of(Kind::Intent).count()), (1, 1), "{fatal:?}");
        assert_eq!(of(Kind::Outcome).count() + of(Kind::Recovered).count(), 1, "{fatal:?}");
        let made = fs::read_dir(dir.path().join("tree/src")).unwrap().count() - 1;
        let was_killed = of(Kind::Recovered).count() == 1;
        assert!(made == 1 || (made == 0 && was_killed), "{fatal:?}: {made}");
        let Answer::Token(TokenAnswer::Listed(all)) =
            engine.ask(&caller(), Ask::Token(TokenAsk::List { after: 0, limit: 10 }))
        else {
            panic!()
        };
        let token = &all[0].stored;
        assert_eq!((token.id(), token.left, token.held), (claims.id, 0, 0));
        engine.close().unwrap();
        assert!(verify_artifacts(&dir.path().join("home")).unwrap().is_fine());
    }
}

/// Not a test: the process of the next one.
#[test]
#[ignore = "started by the other tests"]
fn process_that_reads_with_a_token() {
    let Some(dir) = std::env::var_os(DIR).map(PathBuf::from) else { return };
    let token = std::env::var(TOKEN).unwrap();
    let engine = open(&dir, POLICY);
    let reply = called(&engine, &caller(), "fs.read", json!({"path": "src/a.txt"}), Some(&token));
    assert_eq!(reply.status, Status::Success);
    std::process::abort();
}

#[test]
fn a_read_with_a_token_is_on_the_disk_when_it_is_answered() {
    let world = World::new();
    let (token, _) = world.mint("fs.read", on(&["src/**"])).unwrap();
    let World { engine, dir } = world;
    engine.close().unwrap();
    let status = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "process_that_reads_with_a_token", "--ignored"])
        .env(DIR, dir.path())
        .env(TOKEN, token.reveal())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .unwrap();
    assert!(!status.success());
    let world = World { engine: open(dir.path(), POLICY), dir };
    let kinds: Vec<Kind> = world.events().iter().map(|event| event.kind).collect();
    let count = |kind: Kind| kinds.iter().filter(|one| **one == kind).count();
    assert_eq!((count(Kind::Intent), count(Kind::Outcome), count(Kind::BearerChanged)), (1, 1, 2));
    let args = json!({"path": "src/a.txt"});
    let reply = world.call(&caller(), "fs.read", args, Some(token.reveal()));
    // Allowed by a rule as well, and used up: it is the rule that speaks.
    assert_eq!((reply.status, reply.rules), (Status::Success, vec!["reads".to_owned()]));
}
