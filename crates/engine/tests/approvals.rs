//! Calls that wait for somebody to agree, from the request to the one result, with real keys, rows and kills.

#![expect(clippy::unwrap_used, clippy::panic, reason = "these are tests")]

mod common;
#[path = "common/signed.rs"]
mod signed;

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use hotcell_approver::{Approver, ItemId, Reason, Verdict};
use hotcell_engine::run::{Run, Word};
use hotcell_engine::{
    Answer, Ask, Attached, Attachment, Engine, Gc, Keep, Options, Problem, QueueAnswer, QueueAsk,
    Queued, Reply, Shown, Stage, Watch,
};
use hotcell_record::{Filter, Kind};
use hotcell_request::{Arguments, Request};
use hotcell_review::{Given, State};
use hotcell_types::{CallId, Caller, Door, Status};
use serde_json::json;

use crate::common::{options, request};
use crate::signed::follow;

const RULES: &str = "
rules:
  - { name: look, match: { operation: fs.write, path: ['looked/**'] }, action: require_review, reason: writes are looked at }
  - { name: runs, match: { tool: run }, action: require_review, reason: runs are looked at }
  - { name: never, match: { operation: fs.write, path: ['never/**'] }, action: deny, reason: not there }
";
const DAY: i64 = 24 * 3600 * 1_000_000_000;
/// Longer than anything here takes.
const LONG: Duration = Duration::from_secs(60);

fn caller() -> Caller {
    Caller::local("agent".parse().unwrap(), Door::Library)
}

struct World {
    dir: tempfile::TempDir,
    alice: Approver,
    engine: Engine,
}

fn alice() -> Approver {
    Approver::make("alice".parse().unwrap()).unwrap()
}

fn open(dir: &Path) -> Engine {
    Engine::open(Options { policy: None, ..options(dir) }).unwrap()
}

impl World {
    fn new() -> World {
        World::of(alice())
    }

    fn of(alice: Approver) -> World {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("tree")).unwrap();
        let engine = open(dir.path());
        follow(engine.record().unwrap(), &alice, RULES);
        World { dir, alice, engine }
    }

    /// Another process, as far as the home can tell.
    fn restarted(self) -> World {
        let World { dir, alice, engine } = self;
        engine.close().unwrap();
        World { engine: open(dir.path()), dir, alice }
    }

    fn read(&self, path: &str) -> Option<String> {
        fs::read_to_string(self.dir.path().join("tree").join(path)).ok()
    }

    fn call(&self, request: Request) -> Reply {
        match self.engine.ask(&caller(), Ask::Call(Box::new(request))) {
            Answer::Called(reply) => *reply,
            other => panic!("{other:?}"),
        }
    }

    fn run_with(&self, run: &Run, file: Attachment) -> Reply {
        let arguments = Arguments::Value(serde_json::to_value(run).unwrap());
        let request = Request::new("run".parse().unwrap(), arguments);
        let attached = Attached { files: vec![file], ..Attached::default() };
        match self.engine.ask(&caller(), Ask::Run(Box::new(request), Box::new(attached))) {
            Answer::Called(reply) => *reply,
            other => panic!("{other:?}"),
        }
    }

    fn write(&self, path: &str, text: &str) -> Reply {
        self.call(request("fs.write", json!({ "path": path, "text": text })))
    }

    /// A call that waits.
    fn asked(&self, path: &str, text: &str) -> ItemId {
        let reply = self.write(path, text);
        assert_eq!(reply.status, Status::Review, "{reply:?}");
        reply.review.unwrap()
    }

    fn queue(&self, ask: QueueAsk<'_>) -> Result<QueueAnswer, Problem> {
        match self.engine.ask(&caller(), Ask::Queue(ask)) {
            Answer::Queue(answer) => Ok(answer),
            Answer::Failed(problem) => Err(problem),
            other => panic!("{other:?}"),
        }
    }

    fn show(&self, item: ItemId) -> Result<Queued, Problem> {
        match self.queue(QueueAsk::Show(item))? {
            QueueAnswer::Item(queued) => Ok(*queued),
            other => panic!("{other:?}"),
        }
    }

    fn signed(&self, item: ItemId, verdict: Verdict, lasts: i64) -> Given {
        let Queued { item, now, .. } = self.show(item).unwrap();
        let home = self.engine.record().unwrap().home_id();
        let reason: Reason = "looks right".parse().unwrap();
        let expires = now + lasts;
        let statement = item.statement(home, verdict, reason.clone(), now, expires);
        let signature = self.alice.sign(&statement);
        let approver = self.alice.public().fingerprint();
        Given { verdict, reason, time: now, expires, approver, signature }
    }

    fn answer(&self, item: ItemId, given: Given) -> Result<State, Problem> {
        match self.queue(QueueAsk::Answer { item, given: Box::new(given) })? {
            QueueAnswer::Item(queued) => Ok(queued.item.state),
            other => panic!("{other:?}"),
        }
    }

    fn approve(&self, item: ItemId) {
        let given = self.signed(item, Verdict::Approve, DAY / 24);
        assert_eq!(self.answer(item, given).unwrap(), State::Approved);
    }

    fn await_with(&self, item: ItemId, attached: Attached<'_>) -> Result<Reply, Problem> {
        static NEVER: AtomicBool = AtomicBool::new(false);
        let (patience, interrupt, attached) = (LONG, &NEVER, Box::new(attached));
        match self.queue(QueueAsk::Await { item, patience, interrupt, attached })? {
            QueueAnswer::Reply(reply) => Ok(*reply),
            other => panic!("{other:?}"),
        }
    }

    fn wait(&self, item: ItemId) -> Reply {
        self.await_with(item, Attached::default()).unwrap()
    }

    fn kinds(&self, call: CallId) -> Vec<Kind> {
        let filter = Filter { call: Some(call), ..Filter::of(caller().tenant) };
        match self.engine.ask(&caller(), Ask::Events(filter)) {
            Answer::Events(events) => events.iter().map(|event| event.kind).collect(),
            other => panic!("{other:?}"),
        }
    }

    fn shown(&self, call: CallId) -> Box<Shown> {
        match self.engine.ask(&caller(), Ask::Show(call)) {
            Answer::Shown(shown) => shown,
            other => panic!("{other:?}"),
        }
    }

    fn sql(&self, statement: &str) {
        let database = rusqlite::Connection::open(self.dir.path().join("home/hotcell.db")).unwrap();
        database.busy_timeout(LONG).unwrap();
        database.execute_batch(statement).unwrap();
    }

    fn is_sound(&self) {
        let Answer::Verified(verdict) = self.engine.ask(&caller(), Ask::Verify) else { panic!() };
        assert!(verdict.fault.is_none(), "{verdict:?}");
    }
}

#[test]
fn what_was_approved_is_carried_out_once_and_the_record_tells_how() {
    let world = World::new();
    let item = world.asked("looked/a", "one");
    let waiting = world.show(item).unwrap();
    assert_eq!(waiting.call, Some(json!({"path": "looked/a", "text": "one"})));
    assert_eq!(waiting.item.rules[0].name, "look");
    assert!(waiting.difference.unwrap().contains("+one"));
    let call = waiting.item.call;
    assert_eq!(world.shown(call).status(), Some(Status::Review));
    assert_eq!(world.shown(call).arguments.value(), waiting.call.as_ref());
    assert_eq!(world.read("looked/a"), None);
    world.approve(item);
    assert_eq!(world.read("looked/a"), None);
    let reply = world.wait(item);
    assert_eq!((reply.status, reply.id), (Status::Success, call), "{reply:?}");
    assert_eq!(world.read("looked/a").as_deref(), Some("one"));
    // Whoever comes back gets the same, and nothing is done again.
    fs::remove_file(world.dir.path().join("tree/looked/a")).unwrap();
    let again = world.wait(item);
    assert_eq!((again.status, again.value), (Status::Success, reply.value));
    assert_eq!(world.read("looked/a"), None);
    let told: Vec<String> =
        world.shown(call).reviews().map(|e| e.reason.clone().unwrap()).collect();
    assert!(told[0].contains("is waiting: writes are looked at"), "{told:?}");
    assert!(told[1].contains("is approved, by alice") && told[1].ends_with(": looks right"));
    assert!(told[2].ends_with("its approval is used"), "{told:?}");
    let kinds = world.kinds(call);
    assert_eq!(kinds[..2], [Kind::Review, Kind::Review]);
    assert_eq!(kinds.iter().filter(|kind| **kind == Kind::Intent).count(), 1);
    assert_eq!(kinds.last(), Some(&Kind::Outcome));
    assert_eq!(world.shown(call).begin.kind, Kind::Intent);
    world.is_sound();
    // POL-17: the approval is used up for the same call, too.
    let other = world.asked("looked/a", "one");
    assert_ne!(other, item);
    // Room is made of what is over, and of nothing else.
    let keep = Keep { age: Some(Duration::ZERO), quota: u64::MAX, payloads: Default::default() };
    world.engine.gc(&caller(), keep, Gc::Remove).unwrap();
    assert!(world.show(item).is_err() && world.show(other).is_ok());
    world.is_sound();
}

#[test]
fn what_ends_otherwise_is_told_and_never_carried_out() {
    let world = World::new();
    let rejected = world.asked("looked/a", "1");
    let given = world.signed(rejected, Verdict::Reject, DAY);
    assert_eq!(world.answer(rejected, given).unwrap(), State::Rejected);
    let cancelled = world.asked("looked/a", "2");
    world.approve(cancelled);
    world.queue(QueueAsk::Cancel(cancelled)).unwrap();
    let unused = world.asked("looked/a", "3");
    world.approve(unused);
    let unanswered = world.asked("looked/a", "4");
    // A day later.
    world.sql(&format!("UPDATE review_clock SET latest = latest + {DAY} + 60000000000"));
    for (item, state, status, word) in [
        (rejected, State::Rejected, Status::Blocked, "`alice` rejected it: looks right"),
        (cancelled, State::Cancelled, Status::Cancelled, "taken back"),
        (unused, State::Expired, Status::Blocked, "somebody agreed"),
        (unanswered, State::Expired, Status::Blocked, "nobody answered in time"),
    ] {
        let reply = world.wait(item);
        assert_eq!(reply.status, status, "{reply:?}");
        assert!(reply.problems[0].why.contains(word), "{reply:?}");
        let queued = world.show(item).unwrap();
        assert_eq!((queued.item.state, queued.call), (state, None));
        let shown = world.shown(queued.item.call);
        assert_eq!(shown.status(), Some(status));
        assert!(shown.begin.kind == Kind::Review && shown.end.is_some());
    }
    assert_eq!(world.read("looked/a"), None);
    world.is_sound();
}

#[test]
fn pol_17_an_approval_is_for_one_use_of_exactly_what_was_shown() {
    let world = World::new();
    let item = world.asked("looked/a", "one");
    world.approve(item);
    for (path, text) in [("looked/a", "onE"), ("looked/b", "one"), ("looked/a", "one ")] {
        world.asked(path, text);
    }
    assert_eq!(world.read("looked/a"), None);
    // The same call under another id is what was agreed to; and then it is over.
    let reply = world.write("looked/a", "one");
    assert_eq!(reply.status, Status::Success, "{reply:?}");
    fs::write(world.dir.path().join("tree/looked/a"), "mine").unwrap();
    world.asked("looked/a", "one");
    let reply = world.wait(item);
    assert_eq!(reply.status, Status::Success, "{reply:?}");
    assert_eq!(world.read("looked/a").as_deref(), Some("mine"));
    // Another subject is another caller, and knows nothing of it.
    let mallory = Caller::local("mallory".parse().unwrap(), Door::Library);
    let interrupt = AtomicBool::new(false);
    for ask in [
        QueueAsk::Cancel(item),
        QueueAsk::Await {
            item,
            patience: LONG,
            interrupt: &interrupt,
            attached: Box::new(Attached::default()),
        },
    ] {
        let Answer::Failed(problem) = world.engine.ask(&mallory, Ask::Queue(ask)) else { panic!() };
        assert!(problem.why.contains("there is no item"), "{problem:?}");
    }
}

#[test]
fn pol_17_what_nobody_signed_is_no_answer() {
    let world = World::new();
    let (one, two) = (world.asked("looked/a", "one"), world.asked("looked/a", "two"));
    // The answer to another item.
    let given = world.signed(one, Verdict::Approve, DAY / 2);
    let refused = world.answer(two, given.clone()).unwrap_err();
    assert!(refused.why.contains("not one to this item"), "{refused:?}");
    // A rejection turned round.
    let rejected = world.signed(two, Verdict::Reject, DAY / 2);
    let turned = Given { verdict: Verdict::Approve, ..rejected };
    assert!(world.answer(two, turned).is_err());
    // A longer one.
    let longer = Given { expires: given.expires + 1, ..given.clone() };
    assert!(world.answer(one, longer).is_err());
    // Somebody who is no approver, under the name of one.
    let mallory = World { alice: alice(), ..World::new() };
    let other = mallory.asked("looked/a", "one");
    let forged = mallory.signed(other, Verdict::Approve, DAY / 2);
    assert!(mallory.answer(other, forged).is_err());
    // Rows that say so, with a signature that was given for something else.
    world.answer(one, given).unwrap();
    world.sql(
        "UPDATE review SET (state, verdict, approver, approver_name, reason, answered, grant_expires, signature)
         = (SELECT state, verdict, approver, approver_name, reason, answered, grant_expires, signature
            FROM review WHERE state = 'approved') WHERE state = 'waiting'",
    );
    assert_eq!(world.show(two).unwrap().item.state, State::Approved);
    let reply = world.wait(two);
    assert_eq!(reply.status, Status::Blocked, "{reply:?}");
    assert_eq!(world.read("looked/a"), None);
    let call = world.show(two).unwrap().item.call;
    assert_eq!(world.kinds(call), [Kind::Review, Kind::Denied]);
}

/// Whoever can write to the database can take its triggers away, and puts back a row with the real signature.
#[test]
fn pol_17_a_row_that_is_put_back_is_no_second_use() {
    let world = World::new();
    let item = world.asked("looked/a", "one");
    world.approve(item);
    let seq = world.show(item).unwrap().item.seq;
    world.sql(&format!(
        "DROP TRIGGER review_goes_on; DROP TRIGGER review_use_stays; DROP TRIGGER review_answer_stays;
         CREATE TABLE aside AS SELECT * FROM review WHERE seq = {seq}"
    ));
    assert_eq!(world.wait(item).status, Status::Success);
    fs::write(world.dir.path().join("tree/looked/a"), "mine").unwrap();
    world.sql(&format!(
        "UPDATE review SET (state, call, used, used_by, ended, result)
         = (SELECT state, call, used, used_by, ended, result FROM aside) WHERE seq = {seq}"
    ));
    assert_eq!(world.show(item).unwrap().item.state, State::Approved);
    let reply = world.wait(item);
    assert_eq!(reply.status, Status::Blocked, "{reply:?}");
    assert_eq!(world.read("looked/a").as_deref(), Some("mine"));
    // Nor for the same call made anew.
    assert_eq!(world.write("looked/a", "one").status, Status::Review);
    assert_eq!(world.read("looked/a").as_deref(), Some("mine"));
}

#[test]
fn pol_17_what_was_agreed_to_does_not_come_back_with_the_text_of_its_policy() {
    let world = World::new();
    let item = world.asked("looked/a", "one");
    world.approve(item);
    let record = world.engine.record().unwrap();
    follow(record, &world.alice, "rules: []");
    assert_eq!(world.write("looked/a", "one").status, Status::Blocked);
    follow(record, &world.alice, RULES);
    let reply = world.wait(item);
    assert_eq!(reply.status, Status::Blocked, "{reply:?}");
    world.asked("looked/a", "one");
    assert_eq!(world.read("looked/a"), None);
}

#[test]
fn a_row_that_shows_another_call_than_it_is_about_is_not_shown() {
    let world = World::new();
    let (one, two) = (world.asked("looked/a", "harmless"), world.asked("looked/a", "not so"));
    let of = |item: ItemId| world.show(item).unwrap().item.seq;
    let (one, two) = ((one, of(one)), (two, of(two)));
    world.sql(&format!(
        "UPDATE review SET call = (SELECT call FROM review WHERE seq = {}) WHERE seq = {}",
        one.1, two.1
    ));
    let refused = world.show(two.0).unwrap_err();
    assert!(refused.why.contains("its row was changed"), "{refused:?}");
    assert!(world.show(one.0).is_ok());
}

#[test]
fn nobody_agrees_to_a_call_of_their_own() {
    let world = World::of(Approver::make("agent".parse().unwrap()).unwrap());
    let item = world.asked("looked/a", "one");
    let given = world.signed(item, Verdict::Approve, DAY / 2);
    let refused = world.answer(item, given).unwrap_err();
    assert!(refused.why.contains("cannot be the one who agrees"), "{refused:?}");
}

#[test]
fn an_approval_under_another_policy_does_not_count() {
    let world = World::new();
    let (answered, waiting) = (world.asked("looked/a", "one"), world.asked("looked/a", "two"));
    world.approve(answered);
    let given = world.signed(waiting, Verdict::Approve, DAY / 2);
    // It would even be allowed now; but nobody asked for that.
    let rules = "rules: [{ name: may, match: { operation: fs.write }, action: allow }]";
    follow(world.engine.record().unwrap(), &world.alice, rules);
    let reply = world.wait(answered);
    assert_eq!(reply.status, Status::Blocked, "{reply:?}");
    assert!(reply.problems[0].what.contains("does not count"), "{reply:?}");
    let refused = world.answer(waiting, given).unwrap_err();
    assert!(refused.why.contains("the policy has changed"), "{refused:?}");
    assert_eq!(world.read("looked/a"), None);
    let call = world.show(answered).unwrap().item.call;
    assert_eq!(world.kinds(call), [Kind::Review, Kind::Review, Kind::Denied]);
    assert_eq!(world.write("looked/a", "one").status, Status::Success);
}

#[test]
fn who_comes_back_after_a_restart_has_it_carried_out_with_what_went_along() {
    let world = World::new();
    let file = Attachment::of_bytes("in.txt", b"given\n".to_vec());
    let run = Run {
        command: ["cat", "in.txt"].map(|word| Word::new(word.into())).into(),
        files: vec![file.described()],
        ..Run::default()
    };
    let reply = world.run_with(&run, file.try_clone().unwrap());
    assert_eq!(reply.status, Status::Review, "{reply:?}");
    // Whoever asks again has one place.
    assert_eq!(world.run_with(&run, file).review, reply.review);
    let (item, call) = (reply.review.unwrap(), reply.id);
    let world = world.restarted();
    world.approve(item);
    let world = world.restarted();
    let reply = world.wait(item);
    assert_eq!((reply.status, reply.id), (Status::Success, call), "{reply:?}");
    assert_eq!(reply.run.unwrap().stdout.bytes, b"given\n");
    // The file is there once, and so is what came of it.
    let names: Vec<String> =
        world.shown(call).artifacts.iter().map(|artifact| artifact.name.to_string()).collect();
    assert_eq!(names, ["in.txt", "cat:stdout"]);
    let world = world.restarted();
    let again = world.wait(item);
    assert_eq!(again.status, Status::Success, "{again:?}");
    assert!(again.value.unwrap().to_string().contains("given"));
    world.is_sound();
    assert_eq!(
        hotcell_engine::artifacts::verify_artifacts(&world.dir.path().join("home")).unwrap().faults,
        0
    );
}

#[test]
fn a_key_that_went_along_is_not_kept_and_the_same_call_again_is_what_was_agreed_to() {
    let world = World::new();
    let secret = format!("sk-{}", "a1B2".repeat(10));
    let file = Attachment::of_bytes("key.txt", secret.clone().into_bytes());
    let run = Run {
        command: ["cat", "key.txt"].map(|word| Word::new(word.into())).into(),
        files: vec![file.described()],
        ..Run::default()
    };
    let item = world.run_with(&run, file.try_clone().unwrap()).review.unwrap();
    world.approve(item);
    let refused = world.await_with(item, Attached::default()).unwrap_err();
    assert!(refused.fix.contains("make the same call again"), "{refused:?}");
    let attached = Attached { files: vec![file], ..Attached::default() };
    let reply = world.await_with(item, attached).unwrap();
    assert_eq!(reply.status, Status::Success, "{reply:?}");
    world.engine.record().unwrap().checkpoint().unwrap();
    for file in ["hotcell.db", "hotcell.db-wal"] {
        let bytes = fs::read(world.dir.path().join("home").join(file)).unwrap_or_default();
        let is_there = bytes.windows(secret.len()).any(|part| part == secret.as_bytes());
        assert!(!is_there, "{file}");
    }
}

#[test]
fn of_ten_who_wait_one_carries_it_out_and_all_get_the_result() {
    let world = World::new();
    let other =
        World { dir: tempfile::tempdir().unwrap(), alice: alice(), engine: open(world.dir.path()) };
    let item = world.asked("looked/a", "one");
    let call = world.show(item).unwrap().item.call;
    std::thread::scope(|scope| {
        let both = [&world, &other];
        let waiting: Vec<_> =
            (0..10).map(|n| scope.spawn(move || both[n % 2].wait(item))).collect();
        world.approve(item);
        for waiter in waiting {
            let reply = waiter.join().unwrap();
            assert_eq!((reply.status, reply.id), (Status::Success, call), "{reply:?}");
        }
    });
    let kinds = world.kinds(call);
    assert_eq!(kinds.iter().filter(|kind| **kind == Kind::Intent).count(), 1, "{kinds:?}");
    assert!(!kinds.contains(&Kind::Denied), "{kinds:?}");
    assert_eq!(world.read("looked/a").as_deref(), Some("one"));
}

#[test]
fn who_asks_has_a_person_decide_where_no_rule_speaks_and_not_where_one_denies() {
    let world = World::new();
    let write = |path: &str, ask: bool| {
        let write = request("fs.write", json!({ "path": path, "text": "x" }));
        world.call(Request { ask, ..write })
    };
    for (path, ask, expected) in [
        ("silent/a", false, Status::Blocked),
        ("silent/a", true, Status::Review),
        ("never/a", false, Status::Blocked),
        ("never/a", true, Status::Blocked),
        ("looked/a", true, Status::Review),
    ] {
        assert_eq!(write(path, ask).status, expected, "{path} {ask}");
    }
    let item = write("silent/a", true).review.unwrap();
    assert_eq!(world.show(item).unwrap().item.kind, hotcell_review::Kind::Blocked);
    world.approve(item);
    let reply = world.wait(item);
    assert_eq!(reply.status, Status::Success, "{reply:?}");
    assert_eq!(world.read("silent/a").as_deref(), Some("x"));
    assert_eq!(write("silent/a", false).status, Status::Blocked);
}

#[test]
fn without_an_approver_nobody_is_asked_and_the_refusal_is_recorded() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("tree")).unwrap();
    let engine = open(dir.path());
    let ask = Request { ask: true, ..request("fs.write", json!({"path": "a", "text": "x"})) };
    let Answer::Called(reply) = engine.ask(&caller(), Ask::Call(Box::new(ask))) else { panic!() };
    assert_eq!(reply.status, Status::Blocked, "{reply:?}");
    let Answer::Shown(shown) = engine.ask(&caller(), Ask::Show(reply.id)) else { panic!() };
    assert_eq!(shown.begin.kind, Kind::Denied);
}

#[test]
fn who_stops_waiting_leaves_the_item_as_it_is() {
    let world = World::new();
    let item = world.asked("looked/a", "one");
    for (patience, stop) in
        [(Duration::from_millis(50), false), (LONG, true), (Duration::MAX, true)]
    {
        let interrupt = AtomicBool::new(stop);
        let (interrupt, attached) = (&interrupt, Box::new(Attached::default()));
        let begun = Instant::now();
        let answer = world.queue(QueueAsk::Await { item, patience, interrupt, attached }).unwrap();
        let QueueAnswer::Reply(reply) = answer else { panic!() };
        assert_eq!(reply.status, Status::Review, "{reply:?}");
        assert!(reply.problems[0].fix.contains(&format!("hotcell approvals wait {item}")));
        assert!(begun.elapsed() < LONG);
    }
    assert_eq!(world.show(item).unwrap().item.state, State::Waiting);
}

const DIR: &str = "HOTCELL_TEST_DIR";
const ITEM: &str = "HOTCELL_TEST_ITEM";
const STAGE: &str = "HOTCELL_TEST_STAGE";

/// Not a test: the process that is killed while it carries out what was approved.
#[test]
#[ignore = "started by the other tests"]
fn process_that_gets_killed() {
    let Some(dir) = std::env::var_os(DIR).map(PathBuf::from) else { return };
    let item = std::env::var(ITEM).unwrap().parse().unwrap();
    let stage: usize = std::env::var(STAGE).unwrap().parse().unwrap();
    let fatal = Stage::ALL[stage];
    let watch = Watch::new(move |_, stage| {
        if stage == fatal {
            let own = rustix::process::getpid();
            rustix::process::kill_process(own, rustix::process::Signal::KILL).unwrap();
        }
    });
    let options = Options { policy: None, watch: Some(watch), ..options(&dir) };
    let engine = Engine::open(options).unwrap();
    let interrupt = AtomicBool::new(false);
    let (interrupt, attached) = (&interrupt, Box::new(Attached::default()));
    let ask = QueueAsk::Await { item, patience: LONG, interrupt, attached };
    engine.ask(&caller(), Ask::Queue(ask));
}

#[test]
fn cr_07_whoever_is_killed_while_carrying_it_out_leaves_one_effect_and_one_result() {
    for (number, stage) in Stage::ALL.into_iter().enumerate() {
        let world = World::new();
        let item = world.asked("looked/a", "one");
        world.approve(item);
        let status = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "process_that_gets_killed", "--ignored", "--nocapture"])
            .env(DIR, world.dir.path())
            .env(ITEM, item.to_string())
            .env(STAGE, number.to_string())
            .status()
            .unwrap();
        assert_eq!(status.signal(), Some(9), "{stage:?}");
        // This process was there all the time, and nobody told it.
        let is_written = world.read("looked/a").is_some();
        let reply = world.wait(item);
        let expected = match stage {
            // Nothing was begun: it still can be.
            Stage::Called | Stage::Judged | Stage::Prepared => Status::Success,
            Stage::Intended | Stage::Scheduled | Stage::CarriedOut => Status::Unknown,
            Stage::Recorded => Status::Success,
        };
        assert_eq!(reply.status, expected, "{stage:?} {reply:?}");
        let now_written = world.read("looked/a").is_some();
        if stage >= Stage::Intended {
            assert_eq!(now_written, is_written, "{stage:?}: nothing is done again");
        } else {
            assert!(!is_written && now_written, "{stage:?}");
        }
        assert_eq!(world.wait(item).status, expected, "{stage:?}: the same for everybody");
        let kinds = world.kinds(world.show(item).unwrap().item.call);
        assert_eq!(kinds.iter().filter(|kind| **kind == Kind::Intent).count(), 1, "{stage:?}");
        world.is_sound();
    }
}

#[test]
fn a_call_with_a_key_that_waited_is_carried_out_once_under_it() {
    let world = World::new();
    let asked = || {
        let mut request = request("fs.write", json!({"path": "looked/a", "text": "one"}));
        request.key = Some("k".parse().unwrap());
        world.call(request)
    };
    let waits = asked();
    assert_eq!(waits.status, Status::Review, "{waits:?}");
    assert_eq!(asked().review, waits.review, "it waits already");
    world.approve(waits.review.unwrap());
    let reply = world.wait(waits.review.unwrap());
    assert_eq!((reply.status, reply.again), (Status::Success, false), "{reply:?}");
    fs::remove_file(world.dir.path().join("tree/looked/a")).unwrap();
    let again = asked();
    assert_eq!((again.status, again.id, again.again), (Status::Success, reply.id, true));
    assert_eq!((again.value, world.read("looked/a")), (reply.value, None));
}
