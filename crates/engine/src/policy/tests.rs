//! On a real home, with keys made here.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use hotcell_approver::{Approver, SignedPolicy};
use hotcell_record::{Event, Filter, Kind, now};
use hotcell_request::{ToolError, TypedTool, tool};
use hotcell_review::Verdict;
use hotcell_types::Status;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::*;
use crate::reply::ProblemKind;
use crate::{Answer, Ask, Attached, Options, POLICY_FILE, QueueAnswer, QueueAsk, Reply};

fn caller() -> Caller {
    Caller::local(Name::LOCAL, Door::Library)
}

fn approver(name: &str) -> Approver {
    Approver::make(name.parse().unwrap()).unwrap()
}

#[derive(Deserialize, JsonSchema)]
struct Nothing {}

/// Something that is recorded before it happens.
#[tool(name = "own.note", version = "1.0.0", effects(write))]
fn note(_: Nothing) -> Result<u8, ToolError> {
    Ok(1)
}

struct Home {
    engine: Engine,
    dir: tempfile::TempDir,
}

impl Home {
    fn new() -> Home {
        let dir = tempfile::tempdir().unwrap();
        Home { engine: open(&dir), dir }
    }

    /// Another process, as far as anything is kept.
    fn again(self) -> Home {
        let Home { engine, dir } = self;
        engine.close().unwrap();
        Home { engine: open(&dir), dir }
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("home").join(POLICY_FILE)
    }

    fn ask(&self, ask: PolicyAsk) -> Result<PolicyAnswer, Problem> {
        match self.engine.ask(&caller(), Ask::Policy(Box::new(ask))) {
            Answer::Policy(answer) => Ok(answer),
            Answer::Failed(problem) => Err(problem),
            other => panic!("{other:?}"),
        }
    }

    fn statement(&self, rules: &Rules) -> Statement {
        match self.ask(PolicyAsk::Prepare(rules.clone())).unwrap() {
            PolicyAnswer::Prepared(statement) => statement,
            other => panic!("{other:?}"),
        }
    }

    fn install(&self, by: &Approver, rules: Rules) -> Result<u64, Problem> {
        let signed = SignedPolicy::sign(by, self.statement(&rules));
        self.install_signed(rules, signed)
    }

    fn install_signed(&self, rules: Rules, signed: SignedPolicy) -> Result<u64, Problem> {
        match self.ask(PolicyAsk::Install { rules, signed: Box::new(signed), accepted: None })? {
            PolicyAnswer::Installed(number) => Ok(number),
            other => panic!("{other:?}"),
        }
    }

    fn call(&self, tool: &str, arguments: Value) -> Reply {
        let request = Request::new(tool.parse().unwrap(), Arguments::Value(arguments));
        match self.engine.ask(&caller(), Ask::Call(Box::new(request))) {
            Answer::Called(reply) => *reply,
            other => panic!("{other:?}"),
        }
    }

    fn add(&self) -> Reply {
        self.call("add", json!({"a": 1, "b": 2}))
    }

    /// What somebody signs about an item that waits.
    fn given(&self, item: ItemId, by: &Approver, verdict: Verdict) -> Given {
        let shown = match self.engine.ask(&caller(), Ask::Queue(QueueAsk::Show(item))) {
            Answer::Queue(QueueAnswer::Item(queued)) => queued.item,
            other => panic!("{other:?}"),
        };
        let (time, hour) = (now(), 3_600_000_000_000);
        let home_id = self.engine.record().unwrap().home_id();
        let statement =
            shown.statement(home_id, verdict, "good".parse().unwrap(), time, time + hour);
        Given {
            verdict,
            reason: statement.reason.clone(),
            time,
            expires: time + hour,
            approver: by.public().fingerprint(),
            signature: by.sign(&statement),
        }
    }

    fn events(&self, kind: Kind) -> Vec<Event> {
        let mut filter = Filter { kind: Some(kind), ..Filter::of(Name::LOCAL) };
        let mut all = Vec::new();
        loop {
            let Answer::Events(page) = self.engine.ask(&caller(), Ask::Events(filter.clone()))
            else {
                panic!("the record cannot be read")
            };
            let Some(last) = page.last() else { return all };
            filter.after = last.seq;
            all.extend(page);
        }
    }
}

fn open(dir: &tempfile::TempDir) -> Engine {
    let engine = Engine::open(Options::at(dir.path().join("home"))).unwrap();
    engine.add(NoteTool.tool().unwrap(), NoteTool).unwrap();
    engine
}

/// Rules with these approvers.
fn rules(approvers: &[&Approver], text: &str) -> Rules {
    let lines: Vec<String> =
        approvers.iter().map(|one| format!("  - {}\n", one.public())).collect();
    let approvers =
        if lines.is_empty() { " []\n".to_owned() } else { format!("\n{}", lines.concat()) };
    Rules { text: format!("approvers:{approvers}{text}"), extensions: BTreeMap::new() }
}

const PURE: &str = "rules:\n  - { name: pure, match: { effect: pure }, action: allow }\n";
const NOTHING: &str = "rules: []\n";

#[test]
fn each_version_is_signed_by_one_whom_the_one_before_names() {
    let (alice, bob, mallory) = (approver("alice"), approver("bob"), approver("mallory"));
    let home = Home::new();
    let refused = |why: &str, done: Result<u64, Problem>| {
        let problem = done.unwrap_err();
        assert_eq!(problem.kind, ProblemKind::Blocked, "{problem:?}");
        assert!(problem.why.contains(why), "{problem:?}");
    };
    refused("no approver of this home", home.install(&mallory, rules(&[&alice], PURE)));
    refused("names no approver", home.install(&alice, rules(&[], PURE)));
    assert!(!home.path().exists());
    assert_eq!(home.install(&alice, rules(&[&alice], PURE)), Ok(1));
    assert_eq!(fs::metadata(home.path()).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(home.add().rules, ["pure"]);
    refused("no approver of this home", home.install(&mallory, rules(&[&mallory], NOTHING)));
    refused("no approver of this home", home.install(&bob, rules(&[&alice, &bob], NOTHING)));
    refused("names no approver", home.install(&alice, rules(&[], NOTHING)));
    refused("who signed it", home.install(&alice, rules(&[&bob], NOTHING)));
    assert_eq!(home.add().status, Status::Success, "the old one stays");
    // An older one, as it was signed; one for another home; one whose text is another.
    let old = rules(&[&alice], PURE);
    let first = SignedPolicy::sign(&alice, Statement { sequence: 1, ..home.statement(&old) });
    refused("the next one is 2", home.install_signed(old.clone(), first));
    let elsewhere = SignedPolicy::sign(&alice, Statement { home: [7; 16], ..home.statement(&old) });
    refused("another home", home.install_signed(old.clone(), elsewhere));
    let other = SignedPolicy::sign(&alice, home.statement(&rules(&[&alice], NOTHING)));
    refused("another policy was signed", home.install_signed(old.clone(), other));
    // A handover takes two steps.
    assert_eq!(home.install(&alice, rules(&[&alice, &bob], NOTHING)), Ok(2));
    assert_eq!(home.add().status, Status::Blocked);
    assert_eq!(home.install(&bob, rules(&[&bob], PURE)), Ok(3));
    refused("no approver of this home", home.install(&alice, rules(&[&alice], PURE)));
    let changes = home.events(Kind::PolicyChanged);
    let reasons: Vec<&str> = changes.iter().filter_map(|event| event.reason.as_deref()).collect();
    assert_eq!(reasons.len(), 3);
    assert!(reasons[1].starts_with("version 2 holds, signed by alice ("), "{reasons:?}");
    assert!(reasons[2].contains(" after "), "{reasons:?}");
    let home = home.again();
    assert_eq!(home.add().rules, ["pure"], "another process reads the same");
}

#[test]
fn pol_01_pol_18_what_is_not_the_signed_policy_decides_nothing() {
    let alice = approver("alice");
    let home = Home::new();
    // Before there is any.
    fs::write(home.path(), PURE).unwrap();
    is_refused_and_recorded(&home, &home.add(), "nobody has signed it");
    assert!(home.engine.can_decide().is_err());
    fs::remove_file(home.path()).unwrap();
    assert_eq!(home.add().status, Status::Success, "the built-in one");
    home.install(&alice, rules(&[&alice], PURE)).unwrap();
    home.install(&alice, rules(&[&alice], &format!("{PURE}# 2\n"))).unwrap();
    let text = fs::read(home.path()).unwrap();
    let aside = home.path().with_extension("aside");
    let old = rules(&[&alice], PURE).text;
    let put_back = |home: &Home| {
        fs::remove_file(home.path()).ok();
        fs::write(home.path(), &text).unwrap();
        fs::set_permissions(home.path(), fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(home.add().status, Status::Success, "it is as it was");
    };
    let changes: [(&str, &dyn Fn(), &str); 7] = [
        (
            "one space",
            &|| fs::write(home.path(), [&text[..], b" "].concat()).unwrap(),
            "not the policy",
        ),
        ("an older one", &|| fs::write(home.path(), &old).unwrap(), "not the policy"),
        ("nothing in it", &|| fs::write(home.path(), "").unwrap(), "not the policy"),
        ("missing", &|| fs::remove_file(home.path()).unwrap(), "is gone"),
        (
            "others may write",
            &|| fs::set_permissions(home.path(), fs::Permissions::from_mode(0o620)).unwrap(),
            "cannot be read",
        ),
        (
            "a link",
            &|| {
                fs::write(&aside, &text).unwrap();
                fs::remove_file(home.path()).unwrap();
                symlink(&aside, home.path()).unwrap();
            },
            "cannot be read",
        ),
        (
            "a directory",
            &|| {
                fs::remove_file(home.path()).unwrap();
                fs::create_dir(home.path()).unwrap();
            },
            "cannot be read",
        ),
    ];
    for (what, change, expected) in changes {
        change();
        for reply in [home.add(), home.call("own.note", json!({}))] {
            assert_eq!(reply.status, Status::Error, "{what}: {reply:?}");
            is_refused_and_recorded(&home, &reply, expected);
        }
        let problem = home.engine.can_decide().unwrap_err();
        assert!(problem.what.contains(expected) && !problem.fix.is_empty(), "{what}: {problem:?}");
        let place = home.dir.path().to_str().unwrap();
        assert!(!problem.what.contains(place), "it is told to whoever asks: {problem:?}");
        assert!(home.engine.health().policy.is_err(), "{what}");
        let PolicyAnswer::Shown(shown) = home.ask(PolicyAsk::Show).unwrap() else { panic!() };
        assert_eq!(shown.number, 2, "{what}");
        assert!(shown.trouble.unwrap().what.contains(expected), "{what}");
        assert_eq!(shown.rules.text.as_bytes(), text, "{what}");
        fs::remove_dir(home.path()).ok();
        put_back(&home);
        assert_eq!(home.engine.can_decide(), Ok(()), "{what}");
    }
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(home.path(), Some(12345), None).unwrap();
        is_refused_and_recorded(&home, &home.add(), "cannot be read");
        put_back(&home);
    }
}

/// One event for each, with the call and the reason, and without the arguments: which of them are secret nobody
/// can say.
fn is_refused_and_recorded(home: &Home, reply: &Reply, expected: &str) {
    assert!(reply.problems[0].what.contains(expected), "{reply:?}");
    let mut denied = home.events(Kind::Denied);
    denied.retain(|event| event.call == Some(reply.id));
    let [event] = &denied[..] else { panic!("{expected}: {denied:?}") };
    assert_eq!((event.decision, event.status), (Some(Decision::Deny), Some(Status::Error)));
    assert!(event.reason.as_ref().unwrap().contains(expected), "{event:?}");
    assert!(event.tool.is_some() && event.operation.is_some(), "{event:?}");
    assert!(event.rules.is_empty() && event.input.is_none(), "{event:?}");
}

/// A version that appears between judging and beginning is another thing than a policy that is gone.
#[test]
fn pol_18_a_call_that_was_judged_without_the_policy_of_its_home_is_recorded_as_refused() {
    let alice = approver("alice");
    let home = Home::new();
    // There is none, as far as it has seen.
    assert_eq!(home.add().status, Status::Success);
    let other = open(&home.dir);
    let elsewhere = Home { engine: other, dir: tempfile::tempdir().unwrap() };
    let may_note = "rules:\n  - { name: may, match: { tool: own.note }, action: allow }\n";
    elsewhere.install(&alice, rules(&[&alice], may_note)).unwrap();
    elsewhere.engine.close().unwrap();
    fs::remove_file(home.path()).unwrap();
    // What begins is asked with its intent.
    let reply = home.call("run", json!({"command": ["true"]}));
    is_refused_and_recorded(&home, &reply, "is gone");
    assert!(home.events(Kind::Intent).is_empty());
    // What has none is asked as well, however often there was none before.
    is_refused_and_recorded(&home, &home.add(), "is gone");
    let reply = home.call("fs.write", json!({"path": "a", "text": "b"}));
    is_refused_and_recorded(&home, &reply, "is gone");
    assert!(home.engine.can_decide().is_err());
}

#[test]
fn what_was_refused_for_want_of_a_policy_teaches_nothing_and_hides_no_decision() {
    let alice = approver("alice");
    let home = Home::new();
    home.install(&alice, rules(&[&alice], PURE)).unwrap();
    home.add();
    let path = json!({"path": "src/a.rs", "text": "x"});
    assert_eq!(home.call("fs.write", path.clone()).status, Status::Blocked);
    let text = fs::read(home.path()).unwrap();
    fs::write(home.path(), "rules: []\n").unwrap();
    for _ in 0..20 {
        assert_eq!(home.call("fs.write", path.clone()).status, Status::Error);
    }
    assert_eq!(home.events(Kind::Denied).len(), 21, "each is one event");
    fs::write(home.path(), text).unwrap();
    let new = PolicyAsk::Compare(rules(&[&alice], NOTHING));
    let PolicyAnswer::Compared(compared) = home.ask(new).unwrap() else { panic!() };
    assert_eq!((compared.asked, compared.breaking()), (2, 1), "{compared:?}");
    assert!(compared.left_out.is_empty(), "{compared:?}");
    let PolicyAnswer::Learned(learned) = home.ask(PolicyAsk::Learn { since: None }).unwrap() else {
        panic!()
    };
    assert_eq!((learned.calls, learned.left_out.len()), (1, 0), "{learned:?}");
}

#[test]
fn who_tries_to_change_the_policy_or_to_answer_and_may_not_is_recorded() {
    let (alice, mallory) = (approver("alice"), approver("mallory"));
    let home = Home::new();
    let looked = "rules:\n  - { name: look, match: { tool: own.note }, action: require_review }\n";
    home.install(&alice, rules(&[&alice], looked)).unwrap();
    let reasons = |kind| -> Vec<String> {
        home.events(kind).into_iter().filter_map(|event| event.reason).collect()
    };
    let says = |kind, text: &str| reasons(kind).iter().filter(|said| said.contains(text)).count();
    home.install(&mallory, rules(&[&mallory], PURE)).unwrap_err();
    assert_eq!(says(Kind::Denied, "this does not become the policy"), 1);
    let item = home.call("own.note", json!({})).review.unwrap();
    let given = home.given(item, &mallory, Verdict::Approve);
    let answer = || QueueAsk::Answer { item, given: Box::new(given.clone()) };
    assert!(matches!(home.engine.ask(&caller(), Ask::Queue(answer())), Answer::Failed(_)));
    assert_eq!(says(Kind::Review, &format!("an answer to item {item} was refused")), 1);
    // Nor with a policy that names them, and that nobody has signed.
    let text = fs::read(home.path()).unwrap();
    fs::write(home.path(), rules(&[&alice, &mallory], looked).text).unwrap();
    assert!(matches!(home.engine.ask(&caller(), Ask::Queue(answer())), Answer::Failed(_)));
    assert_eq!(says(Kind::Review, &format!("an answer to item {item} was refused")), 2);
    let bounds = crate::TokenBounds::default();
    let mint = crate::TokenAsk::Mint { tool: "own.note".parse().unwrap(), bounds };
    let cli = Caller { door: Door::Cli, ..caller() };
    assert!(matches!(home.engine.ask(&cli, Ask::Token(mint)), Answer::Failed(_)));
    assert_eq!(says(Kind::Denied, "`policy.yaml` is not the policy that holds"), 1);
    fs::write(home.path(), text).unwrap();
    assert_eq!(home.call("own.note", json!({})).status, Status::Review, "nothing was approved");
}

#[test]
fn rules_are_learned_from_what_was_approved_and_not_from_what_was_rejected() {
    let alice = approver("alice");
    let home = Home::new();
    let looked = "rules:\n  - { name: look, match: {}, action: require_review }\n";
    home.install(&alice, rules(&[&alice], looked)).unwrap();
    let answered = |tool: &str, arguments: Value, verdict| {
        let item = home.call(tool, arguments).review.unwrap();
        let given = Box::new(home.given(item, &alice, verdict));
        let answer = home.engine.ask(&caller(), Ask::Queue(QueueAsk::Answer { item, given }));
        assert!(matches!(answer, Answer::Queue(_)), "{answer:?}");
    };
    let learn = || match home.ask(PolicyAsk::Learn { since: None }).unwrap() {
        PolicyAnswer::Learned(learned) => learned,
        other => panic!("{other:?}"),
    };
    home.call("uppercase", json!({"text": "waits"}));
    assert_eq!((learn().calls, learn().rules.as_str()), (0, "rules: []\n"), "nobody has agreed");
    answered("add", json!({"a": 1, "b": 2}), Verdict::Reject);
    assert_eq!(learn().calls, 0, "somebody did not");
    answered("own.note", json!({}), Verdict::Approve);
    answered("multiply", json!({"a": 1, "b": 2}), Verdict::Approve);
    let learned = learn();
    assert_eq!((learned.calls, learned.left_out.len()), (2, 0), "{learned:?}");
    // They allow what was approved, and nothing else.
    let rules = Rules { text: learned.rules, ..Rules::default() };
    let tests = "
tests:
  - { call: own.note, args: {}, expect: allow }
  - { call: multiply, args: { a: 1, b: 2 }, expect: allow }
  - { call: add, args: { a: 1, b: 2 }, expect: deny }
  - { call: uppercase, args: { text: waits }, expect: deny }";
    let tests = expectations(tests.as_bytes()).unwrap();
    let PolicyAnswer::Tested(tested) = home.ask(PolicyAsk::Test { rules, tests }).unwrap() else {
        panic!()
    };
    assert_eq!(tested.len(), 4);
    assert!(tested.iter().all(|one| one.wrong.is_none()), "{tested:?}");
}

#[test]
fn rules_that_cannot_be_used_say_where_and_the_old_ones_stay() {
    let alice = approver("alice");
    let home = Home::new();
    home.install(&alice, rules(&[&alice], PURE)).unwrap();
    let bomb = format!("a: &a [x]\nb: [{}]\n", "*a, ".repeat(1000));
    let example = "rules:\n  - name: a\n    match: { operation: fs.write, path: [\"src/**\"] }\n    action: \
                   allow\n    examples:\n      match:\n        - { path: docs/a }\n";
    let wrong_type = "rules:\n  - name: a\n    match: { operation: fs.write }\n    action: allow\n    \
                      when: \"args.path > 3\"\n";
    for (text, line, what) in [
        ("rules: {".to_owned(), 2, "not YAML"),
        (bomb, 1, "anchor"),
        ("a: ".repeat(100_000), 1, ""),
        ("[".repeat(10_000), 1, ""),
        (format!("a: {}{}", "[".repeat(40), "]".repeat(40)), 1, "nested too deep"),
        (example.to_owned(), 7, "`path` does not hold"),
        (wrong_type.to_owned(), 5, ""),
        ("rules:\n  - { name: a, match: {}, action: alow }\n".into(), 2, "not an action"),
        (
            "rules: []\napprovers:\n  - hotcell-approver ed25519 x y\n".into(),
            3,
            "an approver who is none",
        ),
        (format!("rules: []\n{}", " ".repeat(2 << 20)), 1, "bytes"),
    ] {
        let shown: String = text.chars().take(60).collect();
        let rules = Rules { text, ..Rules::default() };
        let PolicyAnswer::Faulty(faults) = home.ask(PolicyAsk::Check(rules.clone())).unwrap()
        else {
            panic!("{shown}")
        };
        assert_eq!(faults[0].at.line, line, "{shown}: {faults:?}");
        assert!(faults[0].what.contains(what), "{shown}: {faults:?}");
        let statement = Statement {
            policy: rules.digest(),
            sequence: 2,
            ..home.statement(&self::rules(&[&alice], PURE))
        };
        let signed = Box::new(SignedPolicy::sign(&alice, statement));
        let installed = home.ask(PolicyAsk::Install { rules, signed, accepted: None }).unwrap();
        assert!(matches!(installed, PolicyAnswer::Faulty(_)), "{shown}");
    }
    assert_eq!(home.add().rules, ["pure"]);
    let named = rules(&[&alice], "rules: []\nextensions: [more.ts]\n");
    let problem = home.install(&alice, named).unwrap_err();
    assert!(problem.what.contains("more.ts"), "{problem:?}");
}

/// What is on the disk when a process ends after the transaction and before the rename.
#[test]
fn a_change_that_was_cut_short_is_finished_by_who_comes_next() {
    let alice = approver("alice");
    for is_first in [true, false] {
        let home = Home::new();
        if !is_first {
            home.install(&alice, rules(&[&alice], NOTHING)).unwrap();
        }
        let before = fs::read(home.path()).ok();
        home.install(&alice, rules(&[&alice], PURE)).unwrap();
        let beside = home.path().with_extension("yaml.new");
        fs::rename(home.path(), &beside).unwrap();
        if let Some(before) = before {
            fs::write(home.path(), before).unwrap();
        }
        let home = home.again();
        assert_eq!(home.add().rules, ["pure"], "{is_first}");
        assert!(!beside.exists());
        // What nobody has signed is not put in its place.
        fs::write(&beside, rules(&[&alice], "rules: []\n# other\n").text).unwrap();
        fs::remove_file(home.path()).unwrap();
        let home = home.again();
        assert_eq!(home.add().status, Status::Error, "{is_first}");
        assert!(beside.exists());
    }
}

/// Where the process changes the policy that is killed.
const KILLED_IN: &str = "HOTCELL_TEST_POLICY_HOME";

/// Not a test: a process that changes its policy until it is killed.
#[test]
fn process_that_is_killed() {
    let Some(dir) = std::env::var_os(KILLED_IN) else { return };
    let engine = Engine::open(Options::at(dir)).unwrap();
    let home = Home { engine, dir: tempfile::tempdir().unwrap() };
    let alice = approver("alice");
    for number in 1.. {
        let rule = format!(
            "rules:\n  - {{ name: v-{number}, match: {{ effect: pure }}, action: allow }}\n"
        );
        home.install(&alice, rules(&[&alice], &rule)).unwrap();
    }
}

#[test]
fn cr_09_a_process_that_is_killed_while_it_changes_the_policy_leaves_one_that_decides() {
    for delay in 0..12 {
        let dir = tempfile::tempdir().unwrap();
        let own = std::env::current_exe().unwrap();
        let mut child = std::process::Command::new(own)
            .args(["policy::tests::process_that_is_killed", "--exact"])
            .env(KILLED_IN, dir.path().join("home"))
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let deadline = Instant::now() + Duration::from_secs(30);
        while !dir.path().join("home").join(POLICY_FILE).exists() {
            assert!(Instant::now() < deadline, "it does not begin");
            std::thread::sleep(Duration::from_millis(1));
        }
        // At whatever it is then.
        std::thread::sleep(Duration::from_millis(delay * 3));
        child.kill().unwrap();
        child.wait().unwrap();
        let home = Home { engine: open(&dir), dir };
        let reply = home.add();
        let PolicyAnswer::Shown(shown) = home.ask(PolicyAsk::Show).unwrap() else { panic!() };
        assert_eq!(reply.rules, [format!("v-{}", shown.number)], "{reply:?}");
        assert_eq!(home.events(Kind::PolicyChanged).len() as u64, shown.number);
        assert_eq!(fs::read_to_string(home.path()).unwrap(), shown.rules.text);
    }
}

#[test]
fn pol_05_a_thousand_changes_against_a_thousand_calls_lose_nothing() {
    const EACH: usize = 250;
    let alice = approver("alice");
    let home = Home::new();
    let version = |number: usize| {
        let rule = |name: &str| {
            format!(
                "  - {{ name: {name}-{number}, match: {{ operation: own.note }}, action: allow }}\n"
            )
        };
        rules(&[&alice], &format!("rules:\n{}{}", rule("a"), rule("b")))
    };
    home.install(&alice, version(1)).unwrap();
    let replies = std::thread::scope(|scope| {
        let changes = scope.spawn(|| {
            for number in 2..=1000 {
                assert_eq!(home.install(&alice, version(number)), Ok(number as u64));
            }
        });
        let calls: Vec<_> = (0..4)
            .map(|_| {
                let call = || home.call("own.note", json!({}));
                scope.spawn(move || (0..EACH).map(|_| call()).collect::<Vec<Reply>>())
            })
            .collect();
        changes.join().unwrap();
        calls.into_iter().flat_map(|calls| calls.join().unwrap()).collect::<Vec<Reply>>()
    });
    assert_eq!(replies.len(), 4 * EACH);
    for reply in &replies {
        assert_eq!(reply.status, Status::Success, "{reply:?}");
    }
    // Each intent lies between the version that decided it and the next one.
    let changed: Vec<u64> =
        home.events(Kind::PolicyChanged).iter().map(|event| event.seq).collect();
    assert_eq!(changed.len(), 1000);
    let intents = home.events(Kind::Intent);
    assert_eq!(intents.len(), 4 * EACH);
    for intent in &intents {
        let number = changed.partition_point(|seq| *seq < intent.seq);
        assert_eq!(intent.rules, [format!("a-{number}"), format!("b-{number}")]);
    }
    assert_eq!(home.events(Kind::Outcome).len(), 4 * EACH);
}

/// The same with changes by another process, as far as a home can tell: nothing but the record and the file say
/// that there was one.
#[test]
fn pol_05_changes_by_another_process_lose_no_call_either() {
    const EACH: usize = 300;
    let alice = approver("alice");
    let version = |number: usize| {
        let rule = |name: &str| {
            format!(
                "  - {{ name: {name}-{number}, match: {{ effect: [pure, write] }}, action: allow }}\n"
            )
        };
        rules(&[&alice], &format!("rules:\n{}{}", rule("a"), rule("b")))
    };
    let home = Home::new();
    let other = Home { engine: open(&home.dir), dir: tempfile::tempdir().unwrap() };
    // Before there is a version, a call that changes nothing is allowed as well.
    assert_eq!(home.add().status, Status::Success);
    let (pure, writing, versions) = std::thread::scope(|scope| {
        let pure = scope.spawn(|| (0..EACH).map(|_| home.add()).collect::<Vec<Reply>>());
        let note = || home.call("own.note", json!({}));
        let writing = scope.spawn(move || (0..EACH).map(|_| note()).collect::<Vec<Reply>>());
        let mut versions = 0;
        while !pure.is_finished() || !writing.is_finished() {
            versions += 1;
            assert_eq!(other.install(&alice, version(versions)), Ok(versions as u64));
        }
        (pure.join().unwrap(), writing.join().unwrap(), versions)
    });
    for reply in &pure {
        assert_eq!(reply.status, Status::Success, "{reply:?}");
    }
    let changed: Vec<u64> =
        home.events(Kind::PolicyChanged).iter().map(|event| event.seq).collect();
    assert_eq!(changed.len(), versions);
    let intents = home.events(Kind::Intent);
    for intent in &intents {
        let number = changed.partition_point(|seq| *seq < intent.seq);
        assert_eq!(intent.rules, [format!("a-{number}"), format!("b-{number}")]);
    }
    // Without a version it is refused; with any it is allowed.
    let begun = writing.iter().filter(|reply| reply.status == Status::Success).count();
    assert_eq!(begun, intents.len());
    for reply in writing.iter().filter(|reply| reply.status != Status::Success) {
        let problem = reply.problems.first().unwrap();
        assert_eq!(problem.why, "no rule allows it", "{reply:?}");
    }
}

#[test]
fn a_process_that_goes_on_finishes_what_another_did_not() {
    let alice = approver("alice");
    let home = Home::new();
    let version = |number: u8| {
        let rule = format!(
            "rules:\n  - {{ name: v-{number}, match: {{ operation: own.note }}, action: allow }}\n"
        );
        rules(&[&alice], &rule)
    };
    home.install(&alice, version(1)).unwrap();
    assert_eq!(home.call("own.note", json!({})).rules, ["v-1"]);
    let old = home.path().with_extension("old");
    fs::hard_link(home.path(), &old).unwrap();
    let other = Home { engine: open(&home.dir), dir: tempfile::tempdir().unwrap() };
    other.install(&alice, version(2)).unwrap();
    let beside = home.path().with_extension("yaml.new");
    fs::rename(home.path(), &beside).unwrap();
    fs::rename(&old, home.path()).unwrap();
    assert_eq!(home.call("own.note", json!({})).rules, ["v-2"]);
    assert!(!beside.exists());
}

#[test]
fn a_call_is_explained_with_what_is_supposed() {
    let alice = approver("alice");
    let home = Home::new();
    let text = "identities:\n  - { subject: bob, tags: [agent] }\nrules:\n  - { name: pure, match: { effect: \
                pure, tag: agent }, action: allow }\n";
    home.install(&alice, rules(&[&alice], text)).unwrap();
    let explain = |suppose: Suppose| {
        let arguments = Arguments::Value(json!({"a": 1, "b": 2}));
        let request = Box::new(Request::new("add".parse().unwrap(), arguments));
        match home.ask(PolicyAsk::Explain { request, suppose }).unwrap() {
            PolicyAnswer::Explained(explanation, would_allow) => (*explanation, would_allow),
            other => panic!("{other:?}"),
        }
    };
    let (explanation, would_allow) = explain(Suppose::default());
    assert_eq!(explanation.decision, Some(Decision::Deny));
    assert!(would_allow.contains("name: allow-add,"), "{would_allow}");
    let tags = vec!["agent".parse().unwrap()];
    let bob = Some("bob".parse().unwrap());
    for suppose in
        [Suppose { tags, ..Suppose::default() }, Suppose { subject: bob, ..Suppose::default() }]
    {
        let (explanation, would_allow) = explain(suppose);
        assert_eq!((explanation.decision, would_allow.as_str()), (Some(Decision::Allow), ""));
    }
}

#[test]
fn tests_of_a_policy_say_what_is_not_as_expected() {
    let home = Home::new();
    let tests = "tests:\n  - { call: add, args: { a: 1, b: 2 }, expect: allow, rules: [pure] }\n  - { call: \
                 add, args: { a: 1, b: 2 }, expect: deny }\n  - { call: add, args: { a: 1 }, expect: allow \
                 }\n  - { call: add, args: { a: 1, b: 2 }, expect: allow, rules: [other] }\n  - { call: \
                 fs.read, args: { path: a }, token: valid, expect: allow }\n  - { call: add, args: { a: 1, b: \
                 2 }, token: valid, expect: allow, rules: [token] }\n";
    let tests = expectations(tests.as_bytes()).unwrap();
    let rules = Rules { text: PURE.into(), ..Rules::default() };
    let PolicyAnswer::Tested(tested) = home.ask(PolicyAsk::Test { rules, tests }).unwrap() else {
        panic!()
    };
    let wrong: Vec<Option<&str>> = tested.iter().map(|one| one.wrong.as_deref()).collect();
    assert_eq!(
        wrong,
        [
            None,
            Some("allow, and not deny: the rule `pure` allows it"),
            Some("this is not a call: /b: `b` is missing"),
            Some("pure spoke, and not other"),
            Some(
                "deny, and not allow: no rule allows it; its token does not count: none could be made for it: no \
                 rule allows all of it"
            ),
            None,
        ]
    );
    assert_eq!(tested[2].at.line, 4);
}

#[test]
fn the_last_decisions_are_asked_again_and_rules_are_learned_from_refusals() {
    let alice = approver("alice");
    let home = Home::new();
    home.install(&alice, rules(&[&alice], PURE)).unwrap();
    for _ in 0..3 {
        home.add();
    }
    for name in ["a", "b", "c"] {
        let path = format!("src/{name}.rs");
        let reply = home.call("fs.write", json!({"path": path, "text": "x"}));
        assert_eq!(reply.status, Status::Blocked);
    }
    home.call("fs.write", json!({"path": "b.txt", "text": format!("gh{}", "p_0123456789012345678901234567890123456789")}));
    home.engine.record().unwrap().checkpoint().unwrap();
    let new = "rules:\n  - { name: src, match: { operation: fs.write, path: [\"src/**\"] }, action: \
               require_review }\n";
    let new = rules(&[&alice], new);
    let PolicyAnswer::Compared(compared) = home.ask(PolicyAsk::Compare(new)).unwrap() else {
        panic!()
    };
    assert_eq!((compared.asked, compared.changed.len(), compared.breaking()), (6, 6, 3));
    assert_eq!(compared.left_out.values().sum::<usize>(), 1, "{compared:?}");
    let write = compared.changed.iter().find(|changed| !changed.is_breaking()).unwrap();
    assert_eq!((write.was, write.is), (Decision::Deny, Decision::Review));
    assert_eq!(write.paths, ["src/a.rs"]);
    let same = PolicyAsk::Compare(rules(&[&alice], PURE));
    let PolicyAnswer::Compared(compared) = home.ask(same).unwrap() else { panic!() };
    assert!(compared.changed.is_empty());

    let PolicyAnswer::Learned(learned) = home.ask(PolicyAsk::Learn { since: None }).unwrap() else {
        panic!()
    };
    assert_eq!(learned.calls, 3);
    assert!(learned.rules.contains("path: [\"/src/*\"]"), "{}", learned.rules);
    let later = PolicyAsk::Learn { since: Some(now()) };
    let PolicyAnswer::Learned(learned) = home.ask(later).unwrap() else { panic!() };
    assert_eq!((learned.calls, learned.rules.as_str()), (0, "rules: []\n"));
}

/// By whatever door it comes: what would break much is installed by who has said that this is meant.
#[test]
fn what_would_break_more_than_five_calls_is_not_installed_without_the_phrase() {
    let alice = approver("alice");
    let home = Home::new();
    home.install(&alice, rules(&[&alice], PURE)).unwrap();
    for a in 0..7 {
        assert_eq!(home.call("add", json!({"a": a, "b": 2})).status, Status::Success);
    }
    home.engine.record().unwrap().checkpoint().unwrap();
    let nothing = rules(&[&alice], NOTHING);
    let install = |accepted: Option<&str>| {
        let signed = Box::new(SignedPolicy::sign(&alice, home.statement(&nothing)));
        let accepted = accepted.map(str::to_owned);
        home.ask(PolicyAsk::Install { rules: nothing.clone(), signed, accepted })
    };
    for said in [
        None,
        Some(""),
        Some("yes"),
        Some("break 6 calls"),
        Some("break  7 calls"),
        Some("break +7 calls"),
    ] {
        let problem = install(said).unwrap_err();
        assert_eq!(problem.kind, ProblemKind::Blocked, "{said:?}: {problem:?}");
        assert!(problem.fix.contains("`break 7 calls`"), "{problem:?}");
    }
    assert_eq!(home.add().rules, ["pure"], "the old one holds");
    // A proposal is asked for it as well.
    let reply = home.call("policy.update", json!({"rules": nothing.text, "extensions": {}}));
    let item = reply.review.unwrap();
    let approve = |accepted: Option<&str>| {
        let signed = Box::new(SignedPolicy::sign(&alice, home.statement(&nothing)));
        let given = Box::new(home.given(item, &alice, Verdict::Approve));
        let accepted = accepted.map(str::to_owned);
        home.ask(PolicyAsk::Approve { item, given, signed, accepted })
    };
    let problem = approve(None).unwrap_err();
    assert!(problem.fix.contains(" calls`"), "{problem:?}");
    assert!(matches!(approve(Some("break 9 calls")), Ok(PolicyAnswer::Installed(2))));
    assert_eq!(home.add().status, Status::Blocked);
    // What breaks five or fewer needs none.
    let home = Home::new();
    home.install(&alice, rules(&[&alice], PURE)).unwrap();
    for a in 0..5 {
        home.call("add", json!({"a": a, "b": 2}));
    }
    home.engine.record().unwrap().checkpoint().unwrap();
    assert_eq!(home.install(&alice, rules(&[&alice], NOTHING)), Ok(2));
}

#[test]
fn a_proposed_policy_waits_and_becomes_the_policy_with_both_signatures() {
    let alice = approver("alice");
    let home = Home::new();
    let proposal = |rules: &Rules| json!({"rules": rules.text, "extensions": {}});
    let reply = home.call("policy.update", proposal(&rules(&[&alice], PURE)));
    assert_eq!(reply.status, Status::Blocked, "{reply:?}");
    home.install(&alice, rules(&[&alice], NOTHING)).unwrap();
    let reply = home.call("policy.update", json!({"rules": "rules: {"}));
    assert_eq!(
        reply.status,
        Status::Invalid,
        "what cannot be used is put before nobody: {reply:?}"
    );

    let new = rules(&[&alice], PURE);
    let reply = home.call("policy.update", proposal(&new));
    assert_eq!(
        (reply.status, reply.rules.clone()),
        (Status::Review, vec!["review-policy-update".into()])
    );
    let id = reply.review.unwrap();
    let item = || match home.engine.ask(&caller(), Ask::Queue(QueueAsk::Show(id))) {
        Answer::Queue(QueueAnswer::Item(queued)) => queued.item,
        other => panic!("{other:?}"),
    };
    let shown = item();
    assert_eq!(shown.kind, hotcell_review::Kind::Policy);
    let given = || Box::new(home.given(id, &alice, Verdict::Approve));
    // An answer alone is not enough.
    let answer = QueueAsk::Answer { item: id, given: given() };
    let Answer::Failed(problem) = home.engine.ask(&caller(), Ask::Queue(answer)) else { panic!() };
    assert!(problem.why.contains("sign"), "{problem:?}");
    // Nor is a signature of another policy.
    let approve = |rules: &Rules| {
        let signed = Box::new(SignedPolicy::sign(&alice, home.statement(rules)));
        home.ask(PolicyAsk::Approve { item: id, given: given(), signed, accepted: None })
    };
    assert!(approve(&rules(&[&alice], NOTHING)).is_err());
    assert_eq!(item().state, hotcell_review::State::Waiting);
    assert!(matches!(approve(&new), Ok(PolicyAnswer::Installed(2))));
    assert_eq!(home.add().rules, ["pure"]);
    assert_eq!(item().state, hotcell_review::State::CarriedOut);
    assert!(approve(&new).is_err(), "once");
    let interrupt = AtomicBool::new(false);
    let attached = Box::new(Attached::default());
    let patience = Duration::from_secs(5);
    let waits = QueueAsk::Await { item: id, patience, interrupt: &interrupt, attached };
    let Answer::Queue(QueueAnswer::Reply(told)) = home.engine.ask(&caller(), Ask::Queue(waits))
    else {
        panic!()
    };
    assert_eq!(told.value, Some(json!({"version": 2})));
}

/// Wherever it is, under whichever policy.
#[test]
fn no_tool_writes_to_an_anchor_that_was_configured_nor_to_what_else_is_protected() {
    let alice = approver("alice");
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("tree")).unwrap();
    let mut options = Options::at(dir.path().join("home"));
    options.workspace = Some(dir.path().join("tree"));
    options.anchor = crate::Anchor::File(dir.path().join("trail.txt"));
    options.protected.kernel.push("mine.toml".to_owned());
    let home = Home { engine: Engine::open(options).unwrap(), dir };
    let denied = |path: &str| home.call("fs.write", json!({"path": path, "text": "x"}));
    let all = "rules:\n  - { name: all, match: {}, action: allow }\n";
    for _ in 0..2 {
        for path in ["trail.txt", "deep/Trail.TXT", "anchor.log", "hotcell.db"] {
            let reply = denied(path);
            assert_eq!(
                (reply.status, reply.rules),
                (Status::Blocked, vec!["protect-audit".to_owned()]),
                "{path}"
            );
        }
        home.install(&alice, rules(&[&alice], all)).ok();
    }
    let reply = denied("a/mine.toml");
    assert_eq!((reply.status, &*reply.rules[0]), (Status::Review, "protect-kernel"), "{reply:?}");
}

#[test]
fn a_policy_that_a_program_has_set_is_not_changed_from_here() {
    let alice = approver("alice");
    let dir = tempfile::tempdir().unwrap();
    let mut options = Options::at(dir.path().join("home"));
    options.policy = Some(crate::Policy::built_in());
    let home = Home { engine: Engine::open(options).unwrap(), dir };
    let problem = home.install(&alice, rules(&[&alice], PURE)).unwrap_err();
    assert!(problem.why.contains("embeds"), "{problem:?}");
    assert!(home.ask(PolicyAsk::Show).is_err());
}

/// Rules with an extension, in whatever sandbox this host gives.
struct Extended {
    home: Home,
    alice: Approver,
}

impl Extended {
    fn new() -> Extended {
        let dir = tempfile::tempdir().unwrap();
        let mut options = Options::at(dir.path().join("home"));
        options.minimum = hotcell_types::Level::LandlockOnly;
        Extended {
            home: Home { engine: Engine::open(options).unwrap(), dir },
            alice: approver("alice"),
        }
    }

    /// The same, with a workspace that has these files.
    fn over(files: &[&str]) -> Extended {
        let dir = tempfile::tempdir().unwrap();
        let mut options = Options::at(dir.path().join("home"));
        options.minimum = hotcell_types::Level::LandlockOnly;
        options.workspace = Some(dir.path().join("tree"));
        for file in files {
            let path = dir.path().join("tree").join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "needle\n").unwrap();
        }
        let home = Home { engine: Engine::open(options).unwrap(), dir };
        Extended { home, alice: approver("alice") }
    }

    fn install(&self, source: &str) -> Result<u64, Problem> {
        self.install_with("rules: []\n", source)
    }

    fn install_with(&self, text: &str, source: &str) -> Result<u64, Problem> {
        let mut rules = rules(&[&self.alice], &format!("{text}extensions: [more.ts]\n"));
        rules.extensions.insert("more.ts".into(), source.into());
        self.home.install(&self.alice, rules)
    }

    fn add(&self, a: i64) -> Reply {
        self.home.call("add", json!({"a": a, "b": 2}))
    }
}

const BY_SIZE: &str = "
export default function size(call: { tool: string; args: any }) {
    if (call.tool !== 'add') return { decision: 'pass' };
    if (call.args.a > 1000) throw new Error('too much');
    if (call.args.a > 100) return { decision: 'require_review', reason: 'rather large' };
    return call.args.a > 10 ? { decision: 'pass' } : { decision: 'allow', reason: 'small' };
}";

#[test]
fn extensions_have_a_say_and_whatever_goes_wrong_with_them_is_a_refusal() {
    let extended = Extended::new();
    extended.install(BY_SIZE).unwrap();
    let small = extended.add(1);
    assert_eq!((small.status, small.rules), (Status::Success, vec!["more.ts".to_owned()]));
    assert_eq!(extended.add(50).status, Status::Blocked);
    let waits = extended.add(500);
    assert_eq!(waits.status, Status::Review, "{waits:?}");
    let broken = extended.add(5000);
    assert_eq!(broken.status, Status::Blocked, "{broken:?}");
    assert!(broken.problems[0].why.contains("too much"), "{broken:?}");
    // It goes on, and so does another process.
    assert_eq!(extended.add(2).status, Status::Success);
}

/// Two numbers that are one in TypeScript: a rule that allows one of them would allow the other.
#[test]
fn what_an_extension_cannot_tell_apart_it_does_not_judge() {
    let extended = Extended::new();
    let source = "export default (call) => ({ decision: call.args.a === 9007199254740992 ? 'allow' : 'pass', reason: 'it' });";
    extended.install(source).unwrap();
    for a in [9_007_199_254_740_992, 9_007_199_254_740_993, -9_007_199_254_740_993] {
        let reply = extended.add(a);
        assert_eq!(reply.status, Status::Blocked, "{reply:?}");
        assert!(reply.problems[0].why.contains("tell from its neighbours"), "{reply:?}");
    }
    let source = source.replace("9007199254740992", "9007199254740991");
    extended.install(&source).unwrap();
    let reply = extended.add(9_007_199_254_740_991);
    assert_eq!(reply.status, Status::Success, "{reply:?}");
}

/// What the pages show is what can be used, with the tools that there are.
#[test]
fn the_examples_of_the_page_about_rules_can_be_used() {
    let page = include_str!("../../../../docs/rules.md");
    let blocks = |language: &str| {
        let start = format!("```{language}\n");
        let parts = page.split(&start).skip(1).map(|rest| rest.split("```").next().unwrap());
        parts.collect::<Vec<&str>>()
    };
    let [first, second] = blocks("yaml")[..] else { panic!() };
    let [source] = blocks("ts")[..] else { panic!() };
    let extended = Extended::new();
    let mut with = Rules { text: second.into(), ..Rules::default() };
    with.extensions.insert("office-hours.ts".into(), source.into());
    for rules in [Rules { text: first.into(), ..Rules::default() }, with.clone()] {
        match extended.home.ask(PolicyAsk::Check(rules)).unwrap() {
            PolicyAnswer::Checked(checked) => assert!(checked.warnings.is_empty(), "{checked:?}"),
            other => panic!("{other:?}"),
        }
    }
    let tests = "tests:\n  - { call: fs.write, args: { path: a, text: x }, expect: deny, rules: [office-hours.ts] }\n  \
                 - { call: add, args: { a: 1, b: 2 }, expect: allow, rules: [read] }\n";
    let tests = expectations(tests.as_bytes()).unwrap();
    let PolicyAnswer::Tested(tested) =
        extended.home.ask(PolicyAsk::Test { rules: with, tests }).unwrap()
    else {
        panic!()
    };
    assert!(tested.iter().all(|one| one.wrong.is_none()), "{tested:?}");
}

const NO_SECRETS: &str = "
export default function secrets(call: { path?: string }) {
    if (/^secrets(\\/|$)/.test(call.path ?? '')) return { decision: 'deny', reason: 'private' };
    if (/broken$/.test(call.path ?? '')) throw new Error('cannot say');
    return { decision: 'allow', reason: 'open' };
}";

/// What an extension says of a path, it says of what a search finds there.
#[test]
fn pol_09_no_search_shows_what_an_extension_would_not_let_be_named() {
    let extended = Extended::over(&["secrets/a", "secrets/deep/b", "src/a", "src/key.pem"]);
    let pem = "rules: [{ name: pem, match: { path: ['*.pem'] }, action: deny }]\n";
    extended.install_with(pem, NO_SECRETS).unwrap();
    let call = |tool: &str, args: Value| extended.home.call(tool, args);
    for path in ["secrets/a", "secrets/deep/b", "src/key.pem"] {
        assert_eq!(call("fs.read", json!({ "path": path })).status, Status::Blocked, "{path}");
    }
    assert_eq!(call("fs.read", json!({"path": "src/a"})).status, Status::Success);
    for (tool, args) in [
        ("search.grep", json!({"pattern": "needle"})),
        ("search.glob", json!({"patterns": ["**"]})),
        ("fs.list", json!({"path": ".", "depth": 9})),
    ] {
        let reply = call(tool, args);
        assert_eq!(reply.status, Status::Success, "{tool}: {reply:?}");
        let mut value = reply.value.unwrap();
        // A list says what it leaves out.
        if let Some(skipped) = value.as_object_mut().unwrap().remove("skipped") {
            assert!(skipped != json!(0) && skipped != json!([]), "{tool}");
        }
        assert_eq!(value["truncated"], false, "{tool}: {value}");
        let text = value.to_string();
        assert!(text.contains("src/a"), "{tool}: {text}");
        assert!(!text.contains("secrets") && !text.contains("key.pem"), "{tool}: {text}");
    }
}

/// Where nothing can be said of a path, it is not shown, and the answer does not look whole.
#[test]
fn what_extensions_cannot_be_asked_about_is_not_shown_and_that_is_told() {
    let extended = Extended::over(&["a", "b/broken", "c"]);
    extended.install(NO_SECRETS).unwrap();
    for (tool, args) in [
        ("search.grep", json!({"pattern": "needle"})),
        ("search.glob", json!({"patterns": ["**"]})),
        ("fs.list", json!({"path": ".", "depth": 9})),
    ] {
        let value = extended.home.call(tool, args).value.unwrap();
        assert_eq!(value["truncated"], true, "{tool}: {value}");
        let shown = value.get("matches").or(value.get("entries")).unwrap().to_string();
        assert!(!shown.contains("broken"), "{tool}: {value}");
    }
    // Of more than it asks about.
    let names: Vec<String> = (0..4200).map(|number| format!("many/{number:04}")).collect();
    let extended = Extended::over(&names.iter().map(String::as_str).collect::<Vec<_>>());
    extended.install(NO_SECRETS).unwrap();
    let found = extended.home.call("search.glob", json!({"patterns": ["many/*"], "most": 10000}));
    let value = found.value.unwrap();
    let shown = value["entries"].as_array().unwrap().len();
    assert!(value["truncated"] == true && (1..=4096).contains(&shown), "{shown}");
}

/// What is only asked asks them, too: otherwise it would say deny of everything.
const NO_POST: &str = "
export default function requests(call: { tool: string, host?: string, method?: string }) {
    if (call.tool !== 'net.connect') return { decision: 'pass' };
    if (call.method === 'POST' && call.host !== 'all.test') return { decision: 'deny', reason: 'nothing is sent' };
    return { decision: 'allow', reason: 'open' };
}";

/// What goes through a tunnel that nobody looks into could be any request.
#[test]
fn a_method_that_an_extension_denies_is_denied_of_the_tunnel_that_could_carry_it() {
    use hotcell_egress::{Host, Judge, Protocol, Ruling, Wanted};
    let extended = Extended::new();
    extended.install(NO_POST).unwrap();
    let engine = &extended.home.engine;
    let arguments = Arguments::Value(json!({"a": 1, "b": 2}));
    let request = Request::new("add".parse().unwrap(), arguments);
    let call = Call::new(request, caller(), new_id(), &engine.registry).unwrap();
    let border = engine.border(&engine.book().unwrap(), &Facts::default(), &call).unwrap();
    let judged = |host: &str, method: Option<&str>| {
        let (host, method) = (Host::parse(host).unwrap(), method.map(str::to_owned));
        let path = method.as_ref().map(|_| "/".to_owned());
        let (protocol, intercepted) = (Protocol::Https, method.is_some());
        border.judge(&Wanted { protocol, host, port: 443, method, path, intercepted })
    };
    for (host, method, may) in [
        ("some.test", Some("GET"), true),
        ("some.test", Some("POST"), false),
        ("some.test", None, false),
        ("all.test", None, true),
    ] {
        match judged(host, method) {
            Ruling::Allow { .. } => assert!(may, "{host} {method:?}"),
            Ruling::Refuse { why, fix } => {
                assert!(!may && why == "nothing is sent", "{host} {method:?}: {why}");
                assert!(fix.contains("`more.ts`"), "{fix}");
            }
        }
    }
    let denied = extended.home.events(Kind::Denied);
    assert!(denied.iter().all(|event| event.rules == ["more.ts"]), "{denied:?}");
    assert_eq!(denied.len(), 2);
}

#[test]
fn extensions_are_asked_by_explain_test_and_compare() {
    let extended = Extended::new();
    extended.install(BY_SIZE).unwrap();
    for a in [1, 2] {
        assert_eq!(extended.add(a).status, Status::Success);
    }
    let explained = |a: i64| {
        let args = Arguments::Value(json!({"a": a, "b": 2}));
        let request = Box::new(Request::new("add".parse().unwrap(), args));
        let ask = PolicyAsk::Explain { request, suppose: Suppose::default() };
        match extended.home.ask(ask).unwrap() {
            PolicyAnswer::Explained(explained, _) => explained.to_string(),
            other => panic!("{other:?}"),
        }
    };
    assert!(explained(1).starts_with("add: allow: small\n  more.ts (allow): speaks\n"));
    assert!(explained(50).starts_with("add: deny: no rule allows it\n"), "{}", explained(50));
    assert!(explained(5000).contains("too much"), "{}", explained(5000));
    let with = |source: &str| {
        let mut rules = rules(&[&extended.alice], "rules: []\nextensions: [more.ts]\n");
        rules.extensions.insert("more.ts".into(), source.into());
        rules
    };
    let tests = "tests:\n  - { call: add, args: { a: 1, b: 2 }, expect: allow, rules: [more.ts] }\n  \
                 - { call: add, args: { a: 500, b: 2 }, expect: review }\n";
    let tests = expectations(tests.as_bytes()).unwrap();
    let PolicyAnswer::Tested(tested) =
        extended.home.ask(PolicyAsk::Test { rules: with(BY_SIZE), tests }).unwrap()
    else {
        panic!()
    };
    assert!(tested.iter().all(|one| one.wrong.is_none()), "{tested:?}");
    // Such calls are written within half a second.
    let begun = Instant::now();
    while extended.home.events(Kind::Called).len() < 2 && begun.elapsed() < Duration::from_secs(10)
    {
        std::thread::sleep(Duration::from_millis(20));
    }
    let stricter = BY_SIZE.replace("call.args.a > 1000", "call.args.a > 1");
    let PolicyAnswer::Compared(compared) =
        extended.home.ask(PolicyAsk::Compare(with(&stricter))).unwrap()
    else {
        panic!()
    };
    assert_eq!(
        (compared.asked, compared.changed.len(), compared.breaking()),
        (2, 1, 1),
        "{compared:?}"
    );
    // Source that cannot be loaded, and source that is missing.
    assert!(extended.home.ask(PolicyAsk::Check(with("export default ("))).is_err());
    let missing = rules(&[&extended.alice], "rules: []\nextensions: [more.ts]\n");
    assert!(extended.home.ask(PolicyAsk::Test { rules: missing, tests: Vec::new() }).is_err());
}

#[test]
fn an_extension_that_cannot_be_used_is_not_installed_and_the_old_policy_stays() {
    let extended = Extended::new();
    extended.install(BY_SIZE).unwrap();
    for (source, expected) in
        [("export default function (", "more.ts:1"), ("enum A { B }", "more.ts:1")]
    {
        let problem = extended.install(source).unwrap_err();
        assert!(problem.why.contains(expected), "{source}: {problem:?}");
    }
    assert_eq!(extended.add(1).status, Status::Success);
    // Another source is another policy: what was granted under one is worth nothing under the other.
    let digest = || extended.home.engine.book().unwrap().policy.digest();
    let before = digest();
    extended.install(&format!("{BY_SIZE}\n// more")).unwrap();
    assert_ne!(digest(), before);
}

#[test]
fn a_restored_home_follows_the_policy_that_it_had() {
    let alice = approver("alice");
    let home = Home::new();
    home.install(&alice, rules(&[&alice], PURE)).unwrap();
    let (file, other) = (home.dir.path().join("backup"), home.dir.path().join("other"));
    home.engine.backup(&caller(), &file).unwrap();
    crate::restore(&caller(), &other, &crate::Anchor::Home, &file).unwrap();
    let restored = Engine::open(Options::at(&other)).unwrap();
    let request = Request::new("add".parse().unwrap(), Arguments::Value(json!({"a": 1, "b": 2})));
    let Answer::Called(reply) = restored.ask(&caller(), Ask::Call(Box::new(request))) else {
        panic!()
    };
    assert_eq!((reply.status, reply.rules), (Status::Success, vec!["pure".to_owned()]));
}
