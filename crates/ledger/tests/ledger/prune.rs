//! Contents that are removed to make room, and what stays.

use hotcell_ledger::{
    Aspect, Error, MAX_PRUNED, Prunable, Ruling, StoreError, is_referenced, judge, prunable, prune,
    rollback, tag, untag, verify,
};

use crate::home::{Home, by, large, new};

/// An artifact of this time.
fn add_at(home: &mut Home, name: &str, content: &[u8], time: i64) -> hotcell_ledger::Artifact {
    let mut new = new(name);
    new.by.time = time;
    home.add_with(content, new)
}

fn prune_all(home: &mut Home, before: i64) -> Vec<u64> {
    let mut sizes = Vec::new();
    while let Some((pruning, statement)) = home.write(|tx| prune(tx, &by("a", 9), before).unwrap())
    {
        home.chain.take(&statement);
        sizes.extend(pruning.contents.iter().map(|pruned| pruned.blob.size));
    }
    sizes
}

fn is_there(home: &Home, artifact: &hotcell_ledger::Artifact) -> bool {
    match home.store.content(&home.conn, &artifact.blob) {
        Ok(_) => true,
        Err(Error::Store(StoreError::Missing(_))) => false,
        Err(error) => panic!("{error}"),
    }
}

#[track_caller]
fn is_sound(home: &Home) {
    let mut faults = Vec::new();
    let of = |row| home.chain.0.get(&row).copied();
    let tell = |fault: hotcell_ledger::Fault| faults.push(fault.to_string());
    verify(&home.conn, &home.store, home.chain.counts(), of, tell).unwrap();
    assert_eq!(faults, [""; 0]);
}

#[test]
fn what_is_old_goes_and_what_is_young_tagged_or_judged_stays() {
    let mut home = Home::new();
    let old = add_at(&mut home, "old", b"old", 1);
    let old_file = add_at(&mut home, "old file", &large(b"old"), 2);
    let tagged = add_at(&mut home, "tagged", b"tagged", 3);
    let judged = add_at(&mut home, "judged", &large(b"judged"), 4);
    // The same content, once old and once young.
    let shared = add_at(&mut home, "shared", b"shared", 5);
    add_at(&mut home, "shared again", b"shared", 100);
    // The same as what is tagged, under another name.
    let twin = add_at(&mut home, "twin", b"tagged", 6);
    let young = add_at(&mut home, "young", b"young", 100);
    let (_, said) =
        home.write(|tx| tag(tx, &by("a", 9), tagged.id, "keep".parse().unwrap()).unwrap().unwrap());
    home.chain.take(&said);
    let ruling = (Aspect::ALL[0], Ruling::ALL[0]);
    let (_, said) =
        home.write(|tx| judge(tx, &by("a", 9), judged.id, ruling.0, ruling.1, None).unwrap());
    home.chain.take(&said);

    let mut all: Vec<Prunable> = Vec::new();
    prunable(&home.conn, |one| all.push(one)).unwrap();
    all.sort_by_key(|one| (one.time, one.bytes));
    assert_eq!(all.iter().map(|one| one.time).collect::<Vec<_>>(), [1, 2, 100, 100]);
    assert_eq!(prune_all(&mut home, 50), [3, old_file.blob.size]);
    let swept = home.store.sweep(|digest| is_referenced(&home.conn, digest)).unwrap();
    assert_eq!((swept.contents, swept.bytes), (1, old_file.blob.size));
    for gone in [&old, &old_file] {
        assert!(!is_there(&home, gone), "{}", gone.name);
    }
    for stays in [&tagged, &judged, &shared, &twin, &young] {
        assert!(is_there(&home, stays), "{}", stays.name);
    }
    is_sound(&home);
    assert_eq!(prune_all(&mut home, 50), [0; 0]);
    // A tag that is lifted keeps nothing.
    let (_, said) = home
        .write(|tx| untag(tx, &by("a", 9), tagged.id, "keep".parse().unwrap()).unwrap().unwrap());
    home.chain.take(&said);
    assert_eq!(prune_all(&mut home, 50), [6]);
    is_sound(&home);
}

#[test]
fn a_content_that_is_made_again_is_there_again_and_can_be_pruned_again() {
    for content in [b"small".to_vec(), large(b"file")] {
        let mut home = Home::new();
        let first = add_at(&mut home, "first", &content, 1);
        for time in 2..4 {
            assert_eq!(prune_all(&mut home, 50), [content.len() as u64]);
            home.store.sweep(|digest| is_referenced(&home.conn, digest)).unwrap();
            assert!(!is_there(&home, &first));
            add_at(&mut home, "again", &content, time);
            assert!(is_there(&home, &first));
            is_sound(&home);
        }
    }
}

#[test]
fn going_back_to_what_was_pruned_brings_no_content_back() {
    let mut home = Home::new();
    let first = add_at(&mut home, "a", b"first", 1);
    prune_all(&mut home, 50);
    let (again, said) =
        home.write(|tx| rollback(tx, by("a", 9), first.call, &first.name, first.version).unwrap());
    home.chain.take(&said);
    assert!(!again.is_kept);
    is_sound(&home);
}

#[test]
fn who_removes_a_content_and_says_that_it_was_pruned_is_found() {
    let mut home = Home::new();
    add_at(&mut home, "a", b"one", 1);
    add_at(&mut home, "b", b"two", 2);
    assert!(home.conn.execute("DELETE FROM artifact_content", []).is_err());
    let tx = home.conn.transaction().unwrap();
    prune(&tx, &by("a", 9), 2).unwrap().unwrap();
    tx.commit().unwrap();
    let faults = |home: &Home| {
        let mut faults = Vec::new();
        let of = |row| home.chain.0.get(&row).copied();
        let tell = |fault: hotcell_ledger::Fault| faults.push(fault.to_string());
        verify(&home.conn, &home.store, home.chain.counts(), of, tell).unwrap();
        faults
    };
    assert_eq!(faults(&home)[0], "pruning 1 is not in the record");
    for change in ["UPDATE artifact_pruned SET upto = 9", "DELETE FROM artifact_pruning"] {
        assert!(home.conn.execute(change, []).is_err(), "{change}");
    }
}

#[test]
fn many_are_pruned_some_at_a_time() {
    let mut home = Home::new();
    let artifacts = MAX_PRUNED + 7;
    for number in 0..artifacts {
        let content = number.to_string();
        let stored = hotcell_ledger::Stored::small(content.into_bytes()).unwrap();
        let (_, said) = home.write(|tx| hotcell_ledger::add(tx, &stored, new("a")).unwrap());
        home.chain.take(&said);
    }
    assert_eq!(prune_all(&mut home, i64::MAX).len(), artifacts);
    assert_eq!(home.chain.counts().prunings, 2);
    is_sound(&home);
}
