//! Recording and reading, as the rest of hotcell does it.

use std::os::unix::fs::PermissionsExt;
use std::sync::mpsc::{channel, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use hotcell_record::{
    AppendError, Draft, Durability, Fill, Filter, From, Kind, MOST_BUFFERED, MOST_WAITING, Options,
    Record, RetentionPolicy, Sink, Standing, WriteError, restore, statements,
};
use hotcell_types::{Caller, Door, Name, Status};

use crate::common::*;

#[test]
fn a_home_is_private_and_begins_with_one_event_and_one_checkpoint() {
    let home = home();
    let inner = home.path().join("a/b");
    let record = open(&inner);
    let mode = |name: &str| inner.join(name).metadata().unwrap().permissions().mode() & 0o777;
    for (name, expected) in [
        ("", 0o700),
        ("hotcell.db", 0o600),
        ("hotcell.db-wal", 0o600),
        ("anchor.log", 0o600),
        ("keys", 0o700),
        ("keys/record.key", 0o600),
        ("run/owners", 0o700),
    ] {
        assert_eq!(mode(name), expected, "{name}");
    }
    let events = record.events(&all()).unwrap();
    assert_eq!((events.len(), events[0].kind, events[0].seq), (1, Kind::Opened, 1));
    assert_eq!(events[0].prev, hotcell_record::genesis(record.home_id()));
    assert_eq!(record.verify(From::Start).unwrap().standing, Standing::Sound);
    record.close().unwrap();
    assert_eq!(inner.join("run/owners").read_dir().unwrap().count(), 0);
}

#[test]
fn what_is_recorded_is_read_back() {
    let home = home();
    let record = open(home.path());
    let given = full(Kind::Review, 1);
    let receipt = record.append(given.clone(), Durability::Synced).unwrap();
    let event = record.event(&Name::LOCAL, receipt.seq()).unwrap().unwrap();
    assert_eq!((event.seq, event.hash, event.id), (2, receipt.hash(), receipt.id()));
    assert_eq!(record.input(&event).unwrap(), Some(given.input.unwrap().content));
    assert_eq!(record.output(&event).unwrap(), Some(given.output.unwrap().content));
    assert_eq!((event.kind, event.time, event.caller), (given.kind, given.time, given.caller));
    assert_eq!((event.call, event.parent), (given.call, given.parent));
    assert_eq!((event.operation, event.tool), (given.operation, given.tool));
    assert_eq!((event.mode, event.state), (given.mode, given.state));
    assert_eq!((event.decision, event.status), (given.decision, given.status));
    assert_eq!(
        (event.rules, event.bearer, event.reason),
        (given.rules, given.bearer, given.reason)
    );
    assert_eq!((event.sandbox, event.request), (given.sandbox, given.request));
    assert_eq!((event.duration_ns, event.owner), (given.duration_ns, record.owner()));
}

#[test]
fn kinds_that_belong_to_hotcell_are_not_appended_by_hand() {
    let home = home();
    let record = open(home.path());
    for kind in Kind::ALL {
        let done = record.append(full(kind, 1), Durability::Committed);
        let is_ours = matches!(
            kind,
            Kind::Opened
                | Kind::Intent
                | Kind::Outcome
                | Kind::Recovered
                | Kind::Pruned
                | Kind::CheckpointMissed
        );
        assert_eq!(done.is_err(), is_ours, "{kind}");
    }
    assert!(matches!(record.begin(draft(Kind::Intent)), Err(AppendError::NoCall(_))));
}

#[test]
fn an_intent_ends_once_by_its_outcome_or_as_unknown() {
    let home = home();
    let record = open(home.path());
    let intent = record.begin(full(Kind::Note, 1)).unwrap();
    assert!(matches!(record.begin(full(Kind::Intent, 1)), Err(AppendError::AlreadyBegun(_))));
    intent.finish(full(Kind::Note, 7)).unwrap();
    assert!(matches!(record.begin(full(Kind::Intent, 1)), Err(AppendError::AlreadyBegun(_))));
    drop(record.begin(full(Kind::Intent, 2)).unwrap());
    let open = record.begin(full(Kind::Intent, 3)).unwrap();
    assert_eq!(record.recover().unwrap(), 0, "this process lives");
    let runs = record.runs(&all()).unwrap();
    let ends: Vec<_> = runs
        .iter()
        .map(|run| run.end.as_ref().map(|end| (end.kind, end.call, end.status)))
        .collect();
    assert_eq!(
        ends,
        [
            Some((Kind::Outcome, Some(call(1)), Some(Status::Success))),
            Some((Kind::Outcome, Some(call(2)), Some(Status::Unknown))),
            None,
        ]
    );
    let unknown = Filter { status: Some(Status::Unknown), ..all() };
    assert_eq!(record.runs(&unknown).unwrap().len(), 1);
    open.finish(full(Kind::Outcome, 3)).unwrap();
    record.close().unwrap();
    assert_sound(home.path());
}

#[test]
fn rows_and_events_are_there_together_or_not_at_all() {
    let home = home();
    let record = open(home.path());
    let make = "CREATE TABLE mine (x INTEGER PRIMARY KEY)";
    let made = record.write(Durability::Synced, move |tx| {
        tx.execute_batch(make)?;
        Ok::<_, rusqlite::Error>((7, vec![note("made"), note("twice")]))
    });
    let (value, receipts) = made.unwrap();
    assert_eq!((value, receipts.len(), receipts[1].seq()), (7, 2, 3));
    let insert = |x: i64, fail: bool| {
        record.write(Durability::Committed, move |tx| {
            tx.execute("INSERT INTO mine VALUES (?1)", [x]).map_err(|error| error.to_string())?;
            if fail { Err("on purpose".to_owned()) } else { Ok(((), vec![note("row")])) }
        })
    };
    insert(1, false).unwrap();
    assert_eq!(insert(2, true).unwrap_err(), WriteError::Own("on purpose".to_owned()));
    assert!(matches!(insert(1, false), Err(WriteError::Own(_))), "it is there already");
    let panicked = record.write(Durability::Committed, |_| -> Result<((), Vec<Draft>), ()> {
        panic!("in the middle")
    });
    assert_eq!(panicked.unwrap_err(), WriteError::Append(AppendError::Panicked));
    let ended = record.write(Durability::Committed, |tx| {
        tx.execute_batch("ROLLBACK").map(|()| ((), vec![note("outside")]))
    });
    assert!(matches!(ended, Err(WriteError::Append(_))));
    let refused =
        record.write(Durability::Committed, |_| Ok::<_, ()>(((), vec![draft(Kind::Opened)])));
    assert!(matches!(refused, Err(WriteError::Append(AppendError::NotByItself(_)))));
    let ((), intent) = record
        .begin_with(full(Kind::Intent, 5), |tx| {
            tx.execute_batch("INSERT INTO mine VALUES (5)").map(|()| ((), vec![stated(5)]))
        })
        .unwrap();
    let failed = intent.finish_with(full(Kind::Outcome, 5), |_| Err::<((), Vec<Draft>), _>("no"));
    assert_eq!(failed.unwrap_err(), WriteError::Own("no"));
    assert_eq!(record.runs(&all()).unwrap()[0].end.as_ref().unwrap().status, Some(Status::Unknown));
    let ((), intent) =
        record.begin_with(full(Kind::Intent, 6), |_| Ok::<_, ()>(((), vec![]))).unwrap();
    intent
        .finish_with(full(Kind::Outcome, 6), |tx| {
            tx.execute_batch("INSERT INTO mine VALUES (6)").map(|()| ((), vec![stated(6)]))
        })
        .unwrap();
    record.close().unwrap();
    let connection = rusqlite::Connection::open(database(home.path())).unwrap();
    let rows: String =
        connection.query_row("SELECT group_concat(x) FROM mine", [], |row| row.get(0)).unwrap();
    assert_eq!(rows, "1,5,6");
    // Another kind would be taken for a payload that is lost.
    let record = open(home.path());
    let other = Draft { kind: Kind::Note, ..stated(7) };
    let refused = record.append(other, Durability::Synced);
    assert_eq!(refused.unwrap_err(), AppendError::NoRow(Kind::Note));
    drop(record);
    // What is said of rows stands between an intent and its outcome, and is no payload.
    let kinds: Vec<Kind> = open(home.path())
        .events(&Filter { call: Some(call(6)), ..all() })
        .unwrap()
        .iter()
        .map(|event| event.kind)
        .collect();
    assert_eq!(kinds, [Kind::Intent, Kind::ArtifactAdded, Kind::Outcome]);
    let mut found = Vec::new();
    statements(&connection, |stated| found.push(stated)).unwrap();
    assert_eq!(found, [5, 6].map(|number| stated(number).stated.unwrap()));
    drop(connection);
    assert_sound(home.path());
    assert_sound(home.path());
}

#[test]
fn an_entry_that_fails_does_not_take_the_others_with_it() {
    let home = home();
    let record = open(home.path());
    thread::scope(|scope| {
        for thread in 0..16 {
            let record = &record;
            scope.spawn(move || {
                for number in 0..20 {
                    match (thread + number) % 3 {
                        0 => drop(record.append(note("good"), Durability::Synced).unwrap()),
                        1 => drop(
                            record
                                .write(Durability::Committed, |_| -> Result<((), Vec<Draft>), ()> {
                                    Err(())
                                })
                                .unwrap_err(),
                        ),
                        _ => drop(record.append_later(note("later")).unwrap()),
                    }
                }
            });
        }
    });
    record.close().unwrap();
    assert_sound(home.path());
    let record = open(home.path());
    let count = |reason: &str| {
        let events = record.events(&all()).unwrap();
        events.iter().filter(|event| event.reason.as_deref() == Some(reason)).count()
    };
    assert!(
        count("good") > 0
            && count("good") + count("later")
                == 16 * 20
                    - (0..16)
                        .flat_map(|t| (0..20).map(move |n| t + n))
                        .filter(|x| x % 3 == 1)
                        .count()
    );
}

#[test]
fn events_that_nobody_waits_for_come_after_half_a_second_or_a_hundred() {
    let home = home();
    let record = open(home.path());
    record.append_later(note("alone")).unwrap();
    wait_for("half a second", || record.events(&all()).unwrap().len() == 2);
    let options = Options { checkpoint_time: PATIENCE, ..Options::default() };
    record.close().unwrap();
    let record = Record::open(home.path(), options).unwrap();
    let begun = Instant::now();
    for _ in 0..MOST_BUFFERED {
        record.append_later(note("many")).unwrap();
    }
    wait_for("a hundred", || record.events(&all()).unwrap().len() == 2 + MOST_BUFFERED);
    assert!(begun.elapsed() < PATIENCE);
    record.append_later(note("with the next")).unwrap();
    let receipt = record.append(note("next"), Durability::Committed).unwrap();
    assert_eq!(receipt.seq() as usize, 2 + MOST_BUFFERED + 2);
    record.append_later(note("at the end")).unwrap();
    record.close().unwrap();
    assert_eq!(assert_sound(home.path()).events as usize, 2 + MOST_BUFFERED + 3);
}

#[test]
fn a_full_queue_says_so_and_a_closed_record_too() {
    let home = home();
    let record = open(home.path());
    let (inside, is_inside) = channel();
    let (go, may_go) = sync_channel::<()>(1);
    let slow = record.clone();
    let slow = thread::spawn(move || {
        slow.write(Durability::Committed, move |_| {
            inside.send(()).unwrap();
            may_go.recv().unwrap();
            Ok::<_, ()>(((), vec![note("slow")]))
        })
        .unwrap();
    });
    is_inside.recv().unwrap();
    for _ in 0..MOST_WAITING {
        record.append_later(note("waits")).unwrap();
    }
    assert_eq!(record.append_later(note("too many")), Err(AppendError::Busy));
    assert_eq!(record.append(note("too many"), Durability::Synced), Err(AppendError::Busy));
    go.send(()).unwrap();
    slow.join().unwrap();
    let receipt = record.append(note("after"), Durability::Synced).unwrap();
    assert_eq!(receipt.seq() as usize, 1 + 1 + MOST_WAITING + 1);
    let other = record.clone();
    let intent = other.begin(full(Kind::Intent, 1)).unwrap();
    record.close().unwrap();
    assert_eq!(other.append(note("late"), Durability::Synced), Err(AppendError::Closed));
    assert_eq!(intent.finish(full(Kind::Outcome, 1)), Err(AppendError::Closed));
    drop(other);
    // Its owner is gone, so that the next one closes it.
    let record = open(home.path());
    let end = record.runs(&all()).unwrap()[0].end.clone().unwrap();
    assert_eq!((end.kind, end.status), (Kind::Recovered, Some(Status::Unknown)));
}

#[test]
fn nobody_reads_what_is_anothers() {
    let home = home();
    let record = open(home.path());
    let (one, two): (Name, Name) = ("one".parse().unwrap(), "two".parse().unwrap());
    for (number, tenant) in [(1, &one), (2, &two), (3, &one)] {
        let caller = Caller { tenant: tenant.clone(), subject: Name::LOCAL, door: Door::Rest };
        let intent =
            record.begin(Draft { caller: caller.clone(), ..full(Kind::Intent, number) }).unwrap();
        intent.finish(Draft { caller, ..full(Kind::Outcome, number) }).unwrap();
    }
    let of = |tenant: &Name| Filter::of(tenant.clone());
    assert_eq!(record.events(&of(&one)).unwrap().len(), 4);
    assert_eq!(record.runs(&of(&two)).unwrap().len(), 1);
    assert_eq!(record.events(&Filter { call: Some(call(2)), ..of(&one) }).unwrap(), []);
    assert_eq!(record.events(&Filter { call: Some(call(2)), ..of(&two) }).unwrap().len(), 2);
    assert!(record.event(&one, 4).unwrap().is_none() && record.event(&two, 4).unwrap().is_some());
    assert_eq!(record.follow(&of(&Name::LOCAL), Duration::ZERO).unwrap().len(), 1);
}

#[test]
fn a_filter_finds_what_it_says() {
    let home = home();
    let record = open(home.path());
    for number in 0..10 {
        let time = 1000 + number as i64;
        let tool = Some(format!("tool@{}", number % 2));
        let draft = Draft { time, tool, ..full(Kind::Denied, number) };
        record.append(draft, Durability::Committed).unwrap();
    }
    let seqs = |filter: Filter| -> Vec<u64> {
        record.events(&filter).unwrap().iter().map(|event| event.seq).collect()
    };
    for (filter, expected) in [
        (Filter { kind: Some(Kind::Opened), ..all() }, vec![1]),
        (Filter { tool: Some("tool@1".into()), limit: 2, ..all() }, vec![3, 5]),
        (Filter { since: Some(1003), until: Some(1005), ..all() }, vec![5, 6]),
        (Filter { after: 9, ..all() }, vec![10, 11]),
        (Filter { call: Some(call(4)), ..all() }, vec![6]),
        (Filter { status: Some(Status::Oom), ..all() }, vec![]),
        (Filter { limit: 0, ..all() }, vec![]),
        (Filter { after: u64::MAX, ..all() }, vec![]),
    ] {
        assert_eq!(seqs(filter.clone()), expected, "{filter:?}");
    }
}

#[test]
fn a_follower_hears_of_this_process_and_of_others() {
    let home = home();
    let record = open(home.path());
    assert_eq!(record.follow(&Filter { after: 1, ..all() }, Duration::from_millis(1)).unwrap(), []);
    let follower = record.clone();
    let follower = thread::spawn(move || {
        let first = follower.follow(&Filter { after: 1, ..all() }, PATIENCE).unwrap();
        let second = follower.follow(&Filter { after: 2, ..all() }, PATIENCE).unwrap();
        (first[0].reason.clone(), second[0].reason.clone())
    });
    record.append(note("ours"), Durability::Committed).unwrap();
    // Another owner of the same home, as another process would be.
    let other = open(home.path());
    other.append(note("theirs"), Durability::Committed).unwrap();
    assert_eq!(follower.join().unwrap(), (Some("ours".into()), Some("theirs".into())));
}

#[test]
fn contents_of_every_size_are_kept_and_the_oldest_go_first() {
    let home = home();
    let record = open(home.path());
    let sizes = [0, 1, 1024, 1025, 5000];
    for (number, size) in (0..).zip(sizes) {
        let content = Some(payload(&"x".repeat(size)));
        let draft = Draft { input: content.clone(), output: content, ..full(Kind::Denied, number) };
        record.append(draft, Durability::Committed).unwrap();
    }
    let kept = || -> Vec<Option<usize>> {
        let events = record.events(&Filter { kind: Some(Kind::Denied), ..all() }).unwrap();
        let kept = events.iter().map(|event| {
            let input = record.input(event).unwrap();
            assert_eq!(input, record.output(event).unwrap());
            input.map(|content| content.len())
        });
        kept.collect()
    };
    assert_eq!(kept(), sizes.map(Some));
    let prune = |most_bytes: u64| {
        let pruned = record.prune(&RetentionPolicy { keep: Duration::MAX, most_bytes });
        pruned.map(|pruned| (pruned.contents, pruned.bytes)).unwrap()
    };
    // Of the large ones there is one, although input and output are the same.
    assert_eq!(prune(1025 + 5000), (6, 2 + 2048));
    assert_eq!(kept(), [None, None, None, Some(1025), Some(5000)]);
    assert_eq!(prune(5000), (1, 1025));
    assert_eq!(kept(), [None, None, None, None, Some(5000)]);
    record.close().unwrap();
    assert_sound(home.path());
}

#[test]
fn pruning_removes_contents_and_says_so_and_the_chain_stays() {
    let home = home();
    let clock = || 1_700_000_000_000_000_000;
    let record = Record::open(home.path(), Options { clock, ..Options::default() }).unwrap();
    let day = 24 * 60 * 60 * 1_000_000_000;
    for number in 0..10 {
        let time = clock() - day * (10 - number as i64);
        let draft = Draft {
            time,
            output: None,
            input: Some(payload(&format!("{number:0>100}"))),
            ..full(Kind::Denied, number)
        };
        record.append(draft, Durability::Committed).unwrap();
    }
    let kept = |record: &Record| -> Vec<bool> {
        let events = record.events(&Filter { kind: Some(Kind::Denied), ..all() }).unwrap();
        events.iter().map(|event| record.input(event).unwrap().is_some()).collect()
    };
    let week = RetentionPolicy {
        keep: Duration::from_secs(7 * 24 * 60 * 60),
        ..RetentionPolicy::default()
    };
    let pruned = record.prune(&week).unwrap();
    assert_eq!((pruned.contents, pruned.bytes), (3, 300));
    assert_eq!(kept(&record), [[false; 3].as_slice(), &[true; 7]].concat());
    let small = RetentionPolicy { most_bytes: 250, ..RetentionPolicy::default() };
    assert_eq!(record.prune(&small).unwrap().contents, 5);
    assert_eq!(kept(&record), [[false; 8].as_slice(), &[true; 2]].concat());
    assert_eq!(record.prune(&small).unwrap().contents, 0);
    let events = record.events(&Filter { kind: Some(Kind::Pruned), ..all() }).unwrap();
    assert_eq!(events[0].reason.as_deref(), Some("3 contents of 300 bytes were removed"));
    // The first event opened the home.
    let up_to: Vec<_> = events.iter().map(|event| event.state.as_deref().unwrap()).collect();
    assert_eq!(up_to, ["4", "9"]);
    assert_eq!(events.len(), 2);
    record.close().unwrap();
    let verdict = assert_sound(home.path());
    assert!(verdict.cannot.iter().any(|what| what.contains("no longer kept")), "{verdict}");
}

/// Times in days from 0 on; today is the hundredth. `None` goes, `Some` stays, with 10 days to keep.
#[test]
fn clk_05_a_clock_that_was_wrong_neither_takes_away_what_is_young_nor_keeps_what_is_old() {
    const DAY: i64 = 24 * 60 * 60 * 1_000_000_000;
    for (days, kept) in [
        (&[80, 85, 95, 99][..], 2),
        // What came after something young is no older.
        (&[80, 99, 1, 99], 3),
        // A time to come holds nobody up, and is as old as what followed it.
        (&[80, 5000, 85, 99], 1),
        (&[80, 5000, 99, 99], 3),
        (&[5000, 5000], 2),
        (&[85, 5000], 1),
    ] {
        let home = home();
        let clock = || 100 * DAY;
        let record = Record::open(home.path(), Options { clock, ..Options::default() }).unwrap();
        for (number, day) in days.iter().enumerate() {
            let input = Some(payload(&format!("{number}")));
            let draft = Draft { time: day * DAY, input, ..note("has something") };
            record.append(draft, Durability::Committed).unwrap();
        }
        let keep = Duration::from_secs(10 * 24 * 60 * 60);
        let (mut old, mut all) = (0, 0);
        record
            .prunable(|time, contents, _| {
                all += contents;
                old += if time < 90 * DAY { contents } else { 0 };
            })
            .unwrap();
        let pruned = record.prune(&RetentionPolicy { keep, most_bytes: u64::MAX }).unwrap();
        assert_eq!(all - pruned.contents, kept, "{days:?}");
        assert_eq!(pruned.contents, old, "{days:?}: as it was told before");
        // Room is made whatever the times say.
        record.prune(&RetentionPolicy { keep, most_bytes: 0 }).unwrap();
        record.prunable(|_, _, _| panic!("{days:?}: something is left")).unwrap();
        record.close().unwrap();
        assert_sound(home.path());
    }
}

#[test]
fn size_is_told_before_it_is_too_late() {
    let home = home();
    open(home.path()).close().unwrap();
    for (most, expected) in [(u64::MAX, Fill::Fine), (1 << 30, Fill::Fine), (1, Fill::Critical)] {
        let options = Options { most_bytes: most, ..Options::default() };
        let record = Record::open(home.path(), options).unwrap();
        let size = record.size();
        assert_eq!((size.fill, size.most), (expected, most));
        let exactly = Options { most_bytes: size.bytes * 100 / 85, ..Options::default() };
        record.close().unwrap();
        let record = Record::open(home.path(), exactly).unwrap();
        assert!(record.size().bytes > 0);
    }
}

#[test]
fn a_backup_is_whole_and_a_home_in_use_is_not_replaced() {
    let home = home();
    let record = open(home.path());
    record.append(note("one"), Durability::Synced).unwrap();
    let backup = home.path().join("backup.db");
    record.backup(&backup).unwrap();
    assert!(record.backup(&backup).is_err(), "it is there already");
    let error = restore(home.path(), &backup).unwrap_err();
    assert!(error.to_string().contains("in use"), "{error}");
    record.append(note("two"), Durability::Synced).unwrap();
    record.close().unwrap();
    // A backup of another home, a broken one, and something else.
    let other = filled(1);
    assert!(restore(home.path(), &database(other.path())).is_err());
    let broken = home.path().join("broken.db");
    std::fs::copy(&backup, &broken).unwrap();
    enemy(&broken).execute_batch("UPDATE event SET reason = 'x' WHERE seq = 2").unwrap();
    assert!(restore(home.path(), &broken).is_err());
    assert!(restore(home.path(), &home.path().join("anchor.log")).is_err());
    assert_eq!(assert_sound(home.path()).events, 3);
    let old = restore(home.path(), &backup).unwrap();
    let record = open(home.path());
    assert_eq!(record.events(&all()).unwrap().len(), 2);
    record.close().unwrap();
    let verdict = hotcell_record::verify(&old, None, From::Start);
    assert!(verdict.fault.is_none() && verdict.events == 3, "{verdict}");
}

#[test]
fn out_14_a_sink_that_fails_stops_nothing_and_the_gap_is_recorded_once() {
    let home = home();
    let away = home.path().join("away/anchor.log");
    let sink = Sink::File(away.clone());
    let record = Record::open(home.path(), Options { sink, ..Options::default() }).unwrap();
    for number in 0..5 {
        record.append(note(&number.to_string()), Durability::Synced).unwrap();
        record.checkpoint().unwrap();
    }
    let missed = Filter { kind: Some(Kind::CheckpointMissed), ..all() };
    assert_eq!(record.events(&missed).unwrap().len(), 1);
    let verdict = record.verify(From::Start).unwrap();
    assert_eq!((verdict.standing, verdict.fault), (Standing::Unproven, None));
    // It comes back, and catches up.
    std::fs::create_dir(home.path().join("away")).unwrap();
    record.append(note("back"), Durability::Synced).unwrap();
    record.checkpoint().unwrap();
    let lines = std::fs::read_to_string(&away).unwrap();
    assert!(lines.lines().count() >= 6, "{lines}");
    let verdict = record.verify(From::Start).unwrap();
    assert_eq!((verdict.standing, verdict.pending), (Standing::Sound, 0), "{verdict}");
    record.close().unwrap();
}

#[test]
fn checkpoints_go_to_syslog() {
    let home = home();
    let socket = home.path().join("log");
    let log = std::os::unix::net::UnixDatagram::bind(&socket).unwrap();
    log.set_read_timeout(Some(PATIENCE)).unwrap();
    let options = Options { sink: Sink::Syslog(socket), ..Options::default() };
    let record = Record::open(&home.path().join("home"), options).unwrap();
    record.append(note("x"), Durability::Synced).unwrap();
    record.close().unwrap();
    let mut lines = String::new();
    for _ in 0..2 {
        let mut message = [0; 2048];
        let length = log.recv(&mut message).unwrap();
        let text = std::str::from_utf8(&message[..length]).unwrap();
        assert!(text.starts_with("<85>hotcell: hotcell-checkpoint 1 home="), "{text}");
        lines += &format!("Jan  1 00:00:00 host hotcell: {}\n", text.split_once(": ").unwrap().1);
    }
    // What a log makes of it is an anchor.
    let anchor = home.path().join("messages");
    std::fs::write(&anchor, format!("other\n{lines}other\n")).unwrap();
    let verdict =
        hotcell_record::verify(&home.path().join("home/hotcell.db"), Some(&anchor), From::Start);
    assert_eq!(verdict.standing, Standing::Sound, "{verdict}");
}

#[test]
fn checkpoints_come_by_count_and_by_time() {
    let home = home();
    let count = || std::fs::read_to_string(home.path().join("anchor.log")).unwrap().lines().count();
    let options = Options { checkpoint_events: 10, ..Options::default() };
    let record = Record::open(home.path(), options).unwrap();
    assert_eq!(count(), 1);
    (0..10).for_each(|_| append(&record, "x"));
    wait_for("ten events", || count() == 2);
    record.close().unwrap();
    let options = Options { checkpoint_time: Duration::from_millis(20), ..Options::default() };
    let record = Record::open(home.path(), options).unwrap();
    let before = count();
    record.append(note("x"), Durability::Committed).unwrap();
    wait_for("some time", || count() == before + 1);
    record.close().unwrap();
    assert_eq!(count(), before + 1, "nothing new to say");
    let verdict = assert_sound(home.path());
    assert_eq!(verdict.covered, verdict.events);
}

#[test]
fn verification_goes_on_beside_writers() {
    let home = home();
    let options = Options { checkpoint_events: 7, ..Options::default() };
    let record = Record::open(home.path(), options).unwrap();
    thread::scope(|scope| {
        let writers: Vec<_> = (0..4_u64)
            .map(|thread| {
                let record = &record;
                scope.spawn(move || {
                    for number in 0..60 {
                        let intent =
                            record.begin(full(Kind::Intent, thread * 1000 + number)).unwrap();
                        intent.finish(full(Kind::Outcome, number)).unwrap();
                    }
                })
            })
            .collect();
        while !writers.iter().all(|writer| writer.is_finished()) {
            let verdict = record.verify(From::Start).unwrap();
            assert_eq!(verdict.standing, Standing::Sound, "{verdict}");
            let mut export = Vec::new();
            let exported = record.export(&mut export).unwrap();
            assert_eq!(
                export.iter().filter(|&&byte| byte == b'\n').count() as u64,
                exported.events + exported.checkpoints + 2
            );
        }
    });
    record.close().unwrap();
    assert_eq!(assert_sound(home.path()).events, 1 + 4 * 60 * 2);
}

#[test]
fn two_processes_that_begin_a_home_at_once_share_it() {
    for _ in 0..10 {
        let home = home();
        let ids: Vec<_> = thread::scope(|scope| {
            let open = || {
                scope.spawn(|| {
                    let record = open(home.path());
                    record.append(note("x"), Durability::Synced).unwrap();
                    (record.home_id(), record.key())
                })
            };
            [open(), open(), open(), open()].map(|thread| thread.join().unwrap()).to_vec()
        });
        assert!(ids.iter().all(|id| *id == ids[0]));
        assert_eq!(assert_sound(home.path()).events, 5);
    }
}

#[test]
fn however_many_come_at_once_nothing_is_lost() {
    let home = home();
    let record = open(home.path());
    let each = 3 * MOST_WAITING / 4;
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..each {
                    record.append_later(note("one of many")).unwrap();
                }
                record.append(note("waited for"), Durability::Synced).unwrap();
            });
        }
    });
    record.close().unwrap();
    let verdict = assert_sound(home.path());
    assert_eq!(verdict.events as usize, 1 + 8 * (each + 1));
}
