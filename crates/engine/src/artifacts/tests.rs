//! Registration, questions and verification, on a real home.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use hotcell_ledger::{Aspect, Filter, MAX_SMALL, Page, Ruling};
use hotcell_record::{Durability, Event, Filter as Events, Options, Record, Standing};
use hotcell_types::{Door, Name, Status};
use proptest::prelude::*;

use super::*;

struct World {
    record: Record,
    artifacts: Artifacts,
    dir: tempfile::TempDir,
}

fn caller(tenant: &str) -> Caller {
    let (tenant, subject) = (tenant.parse().unwrap(), "alice".parse().unwrap());
    Caller { tenant, subject, door: Door::Library }
}

fn origin(number: u64) -> Origin {
    let call = CallId::new(number, [7; 10]);
    Origin { call, caller: caller("local"), tool: Some("run@1.0.0".into()), time: 1_000 }
}

fn script(text: &str) -> Product {
    Product::new(Role::Script, "hello.py", Content::Bytes(text.into()))
}

fn stdout(text: &str) -> Product {
    Product::printed(Role::Stdout, "hello.py", text.into(), 0).unwrap()
}

impl World {
    fn new() -> World {
        let dir = tempfile::tempdir().unwrap();
        let record = Record::open(dir.path(), Options::default()).unwrap();
        World { record, artifacts: Artifacts::at(dir.path()), dir }
    }

    /// A whole call, as the path makes it.
    fn run(
        &self,
        number: u64,
        given: Vec<Product>,
        sight: Sight,
        made: Vec<Product>,
    ) -> (Given, Vec<Artifact>) {
        let origin = origin(number);
        let intent = draft(&origin, Kind::Intent);
        let begun = self.artifacts.begin(&self.record, intent, &origin, given);
        let (given, intent) = begun.unwrap();
        let outcome = Draft { status: Some(Status::Success), ..draft(&origin, Kind::Outcome) };
        let ended = self.artifacts.finish(intent, outcome, &origin, &given, sight, made);
        (given, ended.unwrap().0)
    }

    fn usual(&self, number: u64, code: &str, printed: &str) -> (Given, Vec<Artifact>) {
        self.run(number, vec![script(code)], Sight::Given, vec![stdout(printed)])
    }

    fn ask(&self, ask: ArtifactAsk) -> ArtifactAnswer {
        self.artifacts.ask(&self.record, &caller("local"), ask).unwrap()
    }

    fn listed(&self, filter: Filter, words: Option<&str>) -> Vec<String> {
        let (filter, words) = (Box::new(filter), words.map(|words| words.parse().unwrap()));
        let ask = ArtifactAsk::List { filter, words, page: Page::first(100) };
        let ArtifactAnswer::Listed(listed) = self.ask(ask) else { panic!() };
        listed.iter().map(|one| format!("{}@{}", one.name, one.version)).collect()
    }

    fn events(&self, number: u64) -> Vec<Event> {
        let call = Some(origin(number).call);
        self.record.events(&Events { call, ..Events::of(Name::LOCAL) }).unwrap()
    }

    fn checked(&self) -> Checked {
        verify_artifacts(self.dir.path()).unwrap()
    }

    /// Changes the database as somebody would who has the file and another program.
    fn tamper(&self, sql: &str) {
        let conn = rusqlite::Connection::open(self.dir.path().join("hotcell.db")).unwrap();
        let triggers = "SELECT group_concat('DROP TRIGGER ' || name, ';') FROM sqlite_schema
                        WHERE type = 'trigger' AND name LIKE 'artifact%'";
        let drops: Option<String> = conn.query_row(triggers, [], |row| row.get(0)).unwrap();
        conn.execute_batch(&drops.unwrap_or_default()).unwrap();
        conn.execute_batch(&format!("PRAGMA foreign_keys = OFF; {sql}")).unwrap();
    }
}

fn edges_of(world: &World, artifact: &Artifact) -> Vec<Edge> {
    let ArtifactAnswer::Details(details) = world.ask(ArtifactAsk::Details(Which::Id(artifact.id)))
    else {
        panic!()
    };
    details.edges
}

#[test]
fn a_run_registers_what_it_was_given_and_what_it_made_with_where_it_came_from() {
    let world = World::new();
    let input = Product::new(Role::Input, "data.csv", Content::Bytes(b"a,1\n".into()));
    let file = Product::new(Role::File, "out/sorted.csv", Content::Bytes(b"a,1\n".into()));
    let given = vec![script("print(1)"), input];
    let (given, made) = world.run(1, given, Sight::Given, vec![file, stdout("1\n")]);
    let names: Vec<&str> = made.iter().map(|artifact| artifact.name.as_str()).collect();
    assert_eq!(names, ["out/sorted.csv", "hello.py:stdout"]);
    let expected = [
        Edge::new(Relation::Run, Target::Call(origin(1).call)),
        Edge::new(Relation::Tool, Target::Text("run@1.0.0".parse().unwrap())),
        Edge::new(Relation::Code, Target::Artifact(given.artifacts[0].id)),
        Edge::new(Relation::Input, Target::Artifact(given.artifacts[1].id)),
    ];
    for artifact in &made {
        assert_eq!(edges_of(&world, artifact), expected);
    }
    assert_eq!(edges_of(&world, &given.artifacts[0]), []);
    // The chain has a statement for each, between the intent and the outcome.
    let kinds: Vec<Kind> = world.events(1).iter().map(|event| event.kind).collect();
    let added = Kind::ArtifactAdded;
    assert_eq!(kinds, [Kind::Intent, added, added, added, added, Kind::Outcome]);
    // None of it was large, so that there is nothing on the disk but the database.
    assert!(!world.dir.path().join("artifacts").exists());
    let checked = world.checked();
    assert!(checked.is_fine(), "{checked:?}");
    assert_eq!((checked.artifacts, checked.contents), (4, 3));
}

#[test]
fn what_else_a_run_may_have_read_is_unknown_only_where_it_could() {
    let world = World::new();
    for (number, sight) in [(1, Sight::Given), (2, Sight::More)] {
        let (_, made) = world.run(number, vec![], sight, vec![stdout("x")]);
        let is_unknown = edges_of(&world, &made[0]).contains(&Edge::unknown_input());
        assert_eq!(is_unknown, sight == Sight::More);
    }
}

#[test]
fn a_name_has_a_version_for_each_run() {
    let world = World::new();
    world.usual(1, "print(1)", "1\n");
    world.usual(2, "print(2)", "2\n");
    let expected = ["hello.py:stdout@2", "hello.py@2", "hello.py:stdout@1", "hello.py@1"];
    assert_eq!(world.listed(Filter::of(Name::LOCAL), None), expected);
    let of_run = Filter { call: Some(origin(1).call), ..Filter::of(Name::LOCAL) };
    assert_eq!(world.listed(of_run, None), ["hello.py:stdout@1", "hello.py@1"]);
    let printed = Filter { role: Some(Role::Stdout), ..Filter::of(Name::LOCAL) };
    assert_eq!(world.listed(printed, Some("hello")).len(), 2);
    // Nothing printed is nothing registered; something dropped is.
    assert!(Product::printed(Role::Stderr, "x", vec![], 0).is_none());
    let cut = Product::printed(Role::Stderr, "x", b"ab".to_vec(), 7).unwrap();
    world.run(3, vec![], Sight::Given, vec![cut]);
    let reason = world.events(3)[1].reason.clone();
    assert_eq!(reason.as_deref(), Some("its end is missing: 7 bytes were dropped"));
}

#[test]
fn what_is_beyond_the_bounds_is_told() {
    let world = World::new();
    let file = |number: usize| {
        Product::new(Role::File, format!("f{number}"), Content::Bytes(b"abc".into()))
    };
    let (_, made) = world.run(1, vec![], Sight::Given, (0..MOST_ARTIFACTS + 2).map(file).collect());
    assert_eq!(made.len(), MOST_ARTIFACTS);
    let events = Events { kind: Some(Kind::Note), ..Events::of(Name::LOCAL) };
    let notes = world.record.events(&events).unwrap();
    let expected = "2 more artifacts, of 6 bytes, were not registered: a call has at most 1000";
    assert_eq!(notes[0].reason.as_deref(), Some(expected));
    // More events than a page has are no hindrance.
    edges_of(&world, made.last().unwrap());

    let large = |byte: u8| vec![byte; MOST_BYTES as usize / 2 + 1];
    let known = Blob { digest: hotcell_ledger::Digest::of(b"looked at"), size: 9 };
    let made = vec![
        Product::new(Role::File, "kept", Content::Bytes(large(1))),
        Product::new(Role::File, "too much", Content::Bytes(large(2))),
        Product::new(Role::File, "looked at", Content::Known(known)),
        Product::new(Role::File, "small", Content::Bytes(b"x".into())),
    ];
    let (_, made) = world.run(2, vec![], Sight::Given, made);
    let kept: Vec<bool> = made.iter().map(|artifact| artifact.is_kept).collect();
    assert_eq!(kept, [true, false, false, true]);
    assert_eq!(made[1].blob.size, MOST_BYTES / 2 + 1);
    let reasons: Vec<Option<String>> =
        world.events(2).iter().map(|event| event.reason.clone()).collect();
    assert_eq!(
        reasons[2].as_deref(),
        Some("its content was not kept: it is too much for one call")
    );
    assert_eq!(reasons[3].as_deref(), Some("its content was not kept"));
    let refused = world.artifacts.ask(
        &world.record,
        &caller("local"),
        ArtifactAsk::Content(Which::Id(made[1].id)),
    );
    assert!(refused.unwrap_err().what.contains("was not kept"));
    assert!(world.checked().is_fine());

    let inputs = (0..300).map(|number| Product { role: Role::Input, ..file(number) });
    let (_, made) = world.run(3, inputs.collect(), Sight::Given, vec![stdout("x")]);
    let edges = edges_of(&world, &made[0]);
    assert_eq!((edges.len(), edges.last()), (MAX_EDGES, Some(&Edge::unknown_input())));
}

#[test]
fn a_large_content_is_a_file_and_comes_back_whole_or_in_part() {
    let world = World::new();
    let content = vec![b'x'; MAX_SMALL as usize + 10];
    let file = Product::new(Role::File, "large.txt", Content::Bytes(content.clone()));
    world.run(1, vec![], Sight::Given, vec![file]);
    let which = Which::Named { name: "large.txt".parse().unwrap(), version: None };
    let ArtifactAnswer::Content { content: mut found, .. } =
        world.ask(ArtifactAsk::Content(which.clone()))
    else {
        panic!()
    };
    let mut bytes = Vec::new();
    found.read_to_end(&mut bytes).unwrap();
    assert!(bytes == content);
    let ask = ArtifactAsk::Range { which, from: MAX_SMALL, length: 100 };
    let ArtifactAnswer::Range { bytes, .. } = world.ask(ask) else { panic!() };
    assert_eq!(bytes, b"xxxxxxxxxx");
}

#[test]
fn what_cannot_be_kept_or_recorded_leaves_no_rows() {
    let world = World::new();
    // No file can be made where one is in the directory's place.
    fs::write(world.dir.path().join("artifacts"), "").unwrap();
    let large = || {
        let content = Content::Bytes(vec![b'x'; MAX_SMALL as usize + 1]);
        vec![Product::new(Role::Input, "large", content)]
    };
    let intent = draft(&origin(1), Kind::Intent);
    assert!(world.artifacts.begin(&world.record, intent, &origin(1), large()).is_err());
    assert_eq!(world.events(1), []);
    // What was done already is recorded all the same.
    let (_, made) = world.run(2, vec![script("x")], Sight::Given, large());
    assert_eq!(made, []);
    let outcome = world.events(2).pop().unwrap();
    assert_eq!((outcome.kind, outcome.status), (Kind::Outcome, Some(Status::Success)));
    assert!(outcome.reason.unwrap().starts_with("what it made could not be kept: "));
    assert_eq!(world.listed(Filter::of(Name::LOCAL), None), ["hello.py@1"]);
    // Nor does a row stay whose call cannot begin.
    let again = draft(&origin(2), Kind::Intent);
    let refused = world.artifacts.begin(&world.record, again, &origin(2), vec![script("y")]);
    assert!(matches!(refused, Err(RegisterError::Write(_))));
    assert_eq!(world.listed(Filter::of(Name::LOCAL), None), ["hello.py@1"]);
}

/// Until a row refers to it, and no longer.
#[test]
fn a_large_content_is_held_while_it_is_registered() {
    let world = World::new();
    let content = Content::Bytes(vec![b'x'; MAX_SMALL as usize + 1]);
    let made = vec![Product::new(Role::File, "large", content)];
    let (origin, store) = (origin(1), world.artifacts.store().unwrap());
    let batch = world.artifacts.batch(&origin, made, vec![]).unwrap();
    let held = batch.held();
    let sweep = || store.sweep(|_| Ok::<_, StoreError>(true));
    let rows = move |tx: &Transaction<'_>| batch.add(tx);
    world.record.write(Durability::Synced, rows).unwrap();
    assert!(matches!(sweep(), Err(StoreError::Busy)));
    drop(held);
    assert!(sweep().is_ok());
}

#[test]
fn a_change_is_an_event_of_whoever_made_it() {
    let world = World::new();
    world.usual(1, "print(1)", "1\n");
    world.usual(2, "print(2)", "2\n");
    let script = || Which::Named { name: "hello.py".parse().unwrap(), version: Some(1) };
    let tag = || "good".parse().unwrap();
    let changes = [
        (ArtifactAsk::Tag { which: script(), tag: tag() }, true),
        (ArtifactAsk::Tag { which: script(), tag: tag() }, false),
        (
            ArtifactAsk::Judge {
                which: script(),
                aspect: Aspect::Review,
                ruling: Ruling::Accept,
                note: Some("fine".parse().unwrap()),
            },
            true,
        ),
        (ArtifactAsk::Rollback { name: "hello.py".parse().unwrap(), version: 1 }, true),
    ];
    for (ask, expected) in changes {
        let ArtifactAnswer::Written { is_changed, .. } = world.ask(ask) else { panic!() };
        assert_eq!(is_changed, expected);
    }
    let tagged = Filter { tag: Some(tag()), ..Filter::of(Name::LOCAL) };
    assert_eq!(world.listed(tagged.clone(), None), ["hello.py@1"]);
    let which = Which::Named { name: "hello.py".parse().unwrap(), version: None };
    let ArtifactAnswer::Range { artifact, bytes } =
        world.ask(ArtifactAsk::Range { which, from: 0, length: 100 })
    else {
        panic!()
    };
    assert_eq!((artifact.version, bytes.as_slice()), (3, b"print(1)".as_slice()));
    world.ask(ArtifactAsk::Untag { which: script(), tag: tag() });
    assert_eq!(world.listed(tagged, None), [""; 0]);

    let events = world.record.events(&Events::of(Name::LOCAL)).unwrap();
    let operations: Vec<String> =
        events.iter().filter_map(|event| event.operation.clone()).collect();
    assert_eq!(
        operations,
        ["artifact.tag", "artifact.judge", "artifact.rollback", "artifact.untag"]
    );
    assert!(events.iter().skip(1).all(|event| event.caller == caller("local")));
    let checked = world.checked();
    assert!(checked.is_fine(), "{checked:?}");
    assert_eq!((checked.artifacts, checked.taggings, checked.verdicts), (5, 2, 1));
}

#[test]
fn nobody_sees_or_changes_what_is_another_tenants() {
    let world = World::new();
    let (given, _) = world.usual(1, "print(1)", "1\n");
    let which = || Which::Id(given.artifacts[0].id);
    let asks = [
        ArtifactAsk::Details(which()),
        ArtifactAsk::Content(which()),
        ArtifactAsk::Lineage { which: which(), depth: 3 },
        ArtifactAsk::Tag { which: which(), tag: "x".parse().unwrap() },
        ArtifactAsk::Rollback { name: "hello.py".parse().unwrap(), version: 1 },
    ];
    for ask in asks {
        let answer = world.artifacts.ask(&world.record, &caller("other"), ask).unwrap();
        assert!(matches!(answer, ArtifactAnswer::Absent(_)), "{answer:?}");
    }
    // A filter cannot say otherwise.
    let filter = Box::new(Filter::of(Name::LOCAL));
    let list = ArtifactAsk::List { filter, words: None, page: Page::first(9) };
    let answer = world.artifacts.ask(&world.record, &caller("other"), list).unwrap();
    assert!(matches!(answer, ArtifactAnswer::Listed(listed) if listed.is_empty()));
}

/// Rows and chain are compared both ways.
#[test]
fn what_is_missing_changed_or_surplus_is_found_and_named() {
    for (sql, expected) in [
        ("UPDATE artifact SET name = 'z' WHERE seq = 1", "is not what the record says"),
        ("DELETE FROM artifact_edge", "is not what the record says"),
        ("DELETE FROM artifact WHERE seq = 2; DELETE FROM artifact_edge", "is in the record, and not here"),
        ("DELETE FROM artifact_tag", "tag 1 is in the record, and not here"),
        (
            "INSERT INTO artifact SELECT 3, randomblob(16), tenant, subject, name, 9, digest, size,
             media, type, role, created, call, tool, is_kept FROM artifact WHERE seq = 1",
            "is not in the record",
        ),
        ("INSERT INTO artifact_verdict SELECT 1, artifact, 'test', 'accept', by, NULL, time
             FROM artifact_tag", "verdict 1 is not in the record"),
        ("UPDATE artifact_content SET bytes = x'00'", "has 1 bytes, and not"),
        ("DELETE FROM artifact_content", "is missing"),
        ("DROP VIEW artifact_tag_now; DROP VIEW artifact_verdict_now; DROP TABLE artifact_content; DROP TABLE artifact_edge; DROP TABLE artifact_tag;
          DROP TABLE artifact_verdict; DROP TABLE artifact; DROP TABLE artifact_schema",
         "is in the record, and not here"),
    ] {
        let world = World::new();
        let (given, _) = world.usual(1, "print(1)", "1\n");
        let which = Which::Id(given.artifacts[0].id);
        world.ask(ArtifactAsk::Tag { which, tag: "t".parse().unwrap() });
        assert!(world.checked().is_fine());
        world.tamper(sql);
        let checked = world.checked();
        assert!(!checked.is_fine(), "{sql}");
        assert!(checked.told.iter().any(|told| told.contains(expected)), "{sql}: {checked:?}");
    }
}

#[test]
fn a_changed_row_is_not_given_out() {
    let world = World::new();
    let (given, _) = world.usual(1, "print(1)", "1\n");
    world.tamper("UPDATE artifact SET subject = 'mallory' WHERE seq = 1");
    let ask = ArtifactAsk::Content(Which::Id(given.artifacts[0].id));
    let refused = world.artifacts.ask(&world.record, &caller("local"), ask).unwrap_err();
    assert!(refused.why.ends_with("is not what the record says"), "{refused:?}");
}

/// A statement that is taken out of the chain breaks the chain, and leaves its row alone.
#[test]
fn a_statement_that_is_gone_is_found_by_both() {
    let world = World::new();
    world.usual(1, "print(1)", "1\n");
    world.record.checkpoint().unwrap();
    world.tamper("DROP TRIGGER event_remains; DELETE FROM event WHERE kind = 'artifact_added'");
    assert!(world.checked().told.iter().any(|told| told.ends_with("is not in the record")));
    let database = world.dir.path().join("hotcell.db");
    let verdict = hotcell_record::verify(&database, None, hotcell_record::From::Start);
    assert_eq!(verdict.standing, Standing::Broken);
}

#[test]
fn what_is_being_written_is_no_fault() {
    let world = World::new();
    let is_done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..40 {
                world.usual(number, &format!("print({number})"), "x".repeat(70_000).as_str());
            }
            is_done.store(true, std::sync::atomic::Ordering::Release);
        });
        while !is_done.load(std::sync::atomic::Ordering::Acquire) {
            let checked = world.checked();
            assert!(checked.is_fine(), "{checked:?}");
        }
    });
    assert_eq!(world.checked().artifacts, 80);
}

#[test]
fn a_home_without_artifacts_is_fine() {
    let world = World::new();
    assert_eq!(world.checked(), Checked::default());
    assert_eq!(world.listed(Filter::of(Name::LOCAL), None), [""; 0]);
    world.record.append(draft(&origin(1), Kind::Note), Durability::Synced).unwrap();
    assert!(world.checked().is_fine());
}

proptest! {
    #[test]
    fn any_name_is_one_that_the_ledger_takes(name in ".{0,1100}") {
        let (plain, is_changed) = line(&name);
        prop_assert!(plain.parse::<ArtifactName>().is_ok());
        prop_assert_eq!(is_changed, name.parse::<ArtifactName>().is_err());
    }
}

/// Set for the process that is killed.
const HOME: &str = "HOTCELL_ENGINE_TEST_ARTIFACTS";
const ROUNDS: u64 = 8;

/// Not a test by itself: what the killed process does.
#[test]
fn child_that_registers_until_it_is_killed() {
    let Some(home) = std::env::var_os(HOME).map(PathBuf::from) else { return };
    let record = Record::open(&home, Options::default()).unwrap();
    let artifacts = Artifacts::at(&home);
    let first = u64::from(std::process::id()) * 1_000_000;
    for number in first.. {
        let origin = origin(number);
        let given = vec![script(&format!("print({number})"))];
        let begun = artifacts.begin(&record, draft(&origin, Kind::Intent), &origin, given);
        let (given, intent) = begun.unwrap();
        let mut content = format!("{number}").into_bytes();
        content.resize(MAX_SMALL as usize + 1, b' ');
        let file = Product::new(Role::File, "large", Content::Bytes(content));
        let made = vec![stdout(&format!("{number}\n")), file];
        let outcome = draft(&origin, Kind::Outcome);
        artifacts.finish(intent, outcome, &origin, &given, Sight::Given, made).unwrap();
        println!("\nregistered {number}");
    }
}

#[test]
fn kill_9_at_any_moment_leaves_rows_chain_and_contents_in_agreement() {
    let home = tempfile::tempdir().unwrap();
    let mut registered = 0;
    for round in 0..ROUNDS {
        registered += run_and_kill(home.path(), round);
        let checked = verify_artifacts(home.path()).unwrap();
        assert!(checked.is_fine(), "{checked:?}");
        assert!(checked.artifacts >= 3 * registered, "{checked:?}");
        let anchor = home.path().join("anchor.log");
        let database = home.path().join("hotcell.db");
        let verdict = hotcell_record::verify(&database, Some(&anchor), hotcell_record::From::Start);
        assert_ne!(verdict.standing, Standing::Broken, "{verdict}");
    }
}

/// How many calls it said were registered.
fn run_and_kill(home: &Path, round: u64) -> u64 {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "artifacts::tests::child_that_registers_until_it_is_killed"])
        .arg("--nocapture")
        .env(HOME, home)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut registered = 0;
    for line in BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok) {
        registered += u64::from(line.starts_with("registered "));
        if registered == 1 + round % 3 {
            // Somewhere in the next one: a different moment in each round.
            let spin = std::time::Instant::now();
            while spin.elapsed().as_micros() < 300 * u128::from(round) {
                std::hint::spin_loop();
            }
            child.kill().unwrap();
        }
    }
    child.wait().unwrap();
    registered
}
