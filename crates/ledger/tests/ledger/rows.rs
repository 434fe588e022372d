//! What is written to the ledger.

use hotcell_ledger::{
    Aspect, Edge, Error, MAX_EDGES, MAX_TAGS, NewArtifact, Note, Relation, Ruling, Statement, Tag,
    Target, add, get, judge, migrate, rollback, tag, untag, versions,
};
use hotcell_ledger::{By, Page};
use hotcell_types::Name;

use crate::home::{Home, by, call, from, new};

fn named(text: &str) -> Tag {
    text.parse().unwrap()
}

fn other_tenant() -> By {
    By { tenant: "other".parse().unwrap(), ..by("mallory", 1) }
}

#[test]
fn xr_07_versions_count_up_for_each_name_and_tenant() {
    let mut home = Home::new();
    for (name, version) in [("a", 1), ("b", 1), ("a", 2), ("A", 1), ("a", 3)] {
        assert_eq!(home.add(name, b"same").version, version, "{name}");
    }
    let theirs = NewArtifact { by: other_tenant(), ..new("a") };
    assert_eq!(home.add_with(b"same", theirs).version, 1);
    let seen = versions(&home.conn, &Name::LOCAL, &"a".parse().unwrap(), Page::first(10)).unwrap();
    assert_eq!(seen.iter().map(|a| a.version).collect::<Vec<_>>(), [3, 2, 1]);
    assert_eq!(seen.iter().map(|a| a.seq).collect::<Vec<_>>(), [5, 3, 1]);
}

#[test]
fn what_is_written_is_what_is_read() {
    let mut home = Home::new();
    let first = home.add("input", b"in");
    let edges = vec![
        from(first.id),
        Edge::new(Relation::Run, Target::Call(call(9))),
        Edge::new(Relation::Tool, Target::Text("sort@1".parse().unwrap())),
        Edge::unknown_input(),
    ];
    let made = home.add_from("output", b"out", edges.clone());
    let details = get(&home.conn, &Name::LOCAL, made.id).unwrap().unwrap();
    assert_eq!((details.artifact, details.edges), (made, edges));
}

#[test]
fn rolling_back_makes_the_old_content_the_newest_version() {
    let mut home = Home::new();
    let first = home.add("a", b"good");
    home.add("a", b"bad");
    let name = "a".parse().unwrap();
    let (back, statement) = home.write(|tx| rollback(tx, by("bob", 5), call(2), &name, 1)).unwrap();
    home.chain.take(&statement);
    assert_eq!((back.version, back.blob, back.subject.as_str()), (3, first.blob, "bob"));
    let details = get(&home.conn, &Name::LOCAL, back.id).unwrap().unwrap();
    assert_eq!(details.edges, [from(first.id)]);
    assert_eq!(details.statement(), statement);
    for (who, version) in [(by("bob", 5), 0), (by("bob", 5), 4), (other_tenant(), 1)] {
        let refused = home.write(|tx| rollback(tx, who, call(2), &name, version));
        assert!(matches!(refused, Err(Error::NoVersion { .. })), "{version}");
    }
    let huge = home.write(|tx| rollback(tx, by("bob", 5), call(2), &name, u64::MAX));
    assert!(matches!(huge, Err(Error::NoVersion { version: u64::MAX, .. })));
}

#[test]
fn a_tag_is_set_and_lifted_and_set_again() {
    let mut home = Home::new();
    let id = home.add("a", b"x").id;
    let tags = |home: &Home| get(&home.conn, &Name::LOCAL, id).unwrap().unwrap().tags;
    let bob = by("bob", 7);
    for (is_set, changes) in
        [(true, true), (true, false), (false, true), (false, false), (true, true)]
    {
        let change = if is_set { tag } else { untag };
        let done = home.write(|tx| change(tx, &bob, id, named("final"))).unwrap();
        assert_eq!(done.is_some(), changes);
        if let Some((tagging, statement)) = done {
            assert_eq!((tagging.is_set, tagging.by.as_str(), tagging.time), (is_set, "bob", 7));
            assert_eq!(statement, Statement::of_tagging(&tagging));
            home.chain.take(&statement);
        }
        assert_eq!(tags(&home), if is_set { vec![named("final")] } else { vec![] });
    }
    assert_eq!(home.chain.counts().taggings, 3);
}

#[test]
fn verdicts_are_kept_in_their_order() {
    let mut home = Home::new();
    let id = home.add("a", b"x").id;
    let note: Option<Note> = Some("flaky".parse().unwrap());
    for (aspect, ruling, note) in [
        (Aspect::Test, Ruling::Reject, note.clone()),
        (Aspect::Security, Ruling::Escalate, None),
        (Aspect::Test, Ruling::Accept, None),
    ] {
        let (verdict, statement) =
            home.write(|tx| judge(tx, &by("bob", 7), id, aspect, ruling, note.clone())).unwrap();
        assert_eq!((verdict.aspect, verdict.ruling, &verdict.note), (aspect, ruling, &note));
        home.chain.take(&statement);
    }
    let verdicts = get(&home.conn, &Name::LOCAL, id).unwrap().unwrap().verdicts;
    let seen: Vec<_> = verdicts.iter().map(|v| (v.seq, v.aspect, v.ruling)).collect();
    assert_eq!(
        seen,
        [
            (1, Aspect::Test, Ruling::Reject),
            (2, Aspect::Security, Ruling::Escalate),
            (3, Aspect::Test, Ruling::Accept)
        ]
    );
    assert_eq!(verdicts[0].note, note);
}

/// API-02: somebody else's artifact is not there, whatever is done with its id.
#[test]
fn api_02_another_tenants_artifact_is_not_there() {
    let mut home = Home::new();
    let id = home.add("a", b"x").id;
    let (who, stored) = (other_tenant(), home.put(b"y"));
    assert!(get(&home.conn, &who.tenant, id).unwrap().is_none());
    let refusals = home.write(|tx| {
        let new = NewArtifact { by: who.clone(), edges: vec![from(id)], ..new("b") };
        [
            add(tx, &stored, new).map(drop),
            tag(tx, &who, id, named("t")).map(drop),
            untag(tx, &who, id, named("t")).map(drop),
            judge(tx, &who, id, Aspect::Test, Ruling::Accept, None).map(drop),
        ]
    });
    for refused in refusals {
        assert!(matches!(refused, Err(Error::NoArtifact(no)) if no == id), "{refused:?}");
    }
    assert_eq!(home.chain.counts().artifacts, 1);
}

#[test]
fn everything_has_a_maximum() {
    let mut home = Home::new();
    let id = home.add("a", b"x").id;
    let stored = home.put(b"y");
    let edges = vec![Edge::unknown_input(); MAX_EDGES + 1];
    let many = home.write(|tx| add(tx, &stored, NewArtifact { edges, ..new("b") }).map(drop));
    assert!(matches!(many, Err(Error::TooMany { what: "edges", .. })));
    for number in 0..MAX_TAGS {
        home.write(|tx| tag(tx, &by("bob", 1), id, named(&format!("t{number}")))).unwrap();
    }
    let many = home.write(|tx| tag(tx, &by("bob", 1), id, named("one more")).map(drop));
    assert!(matches!(many, Err(Error::TooMany { what: "tags", .. })));
}

/// CLK-01, CLK-03: a clock that is wrong makes no row that is wrong.
#[test]
fn any_clock_reading_is_kept_as_it_is() {
    let mut home = Home::new();
    for time in [i64::MIN, -1, 0, 1, i64::MAX] {
        let artifact = home.add_with(b"x", NewArtifact { by: by("alice", time), ..new("a") });
        let read = get(&home.conn, &Name::LOCAL, artifact.id).unwrap().unwrap().artifact;
        assert_eq!((read.created, read.version), (time, artifact.version));
    }
}

/// AUD-15: the application itself cannot rewrite what is there.
#[test]
fn aud_15_rows_are_neither_changed_nor_removed() {
    let mut home = Home::new();
    let id = home.add("a", b"x").id;
    home.write(|tx| tag(tx, &by("bob", 1), id, named("t"))).unwrap();
    home.write(|tx| judge(tx, &by("bob", 1), id, Aspect::Test, Ruling::Accept, None)).unwrap();
    for (table, column) in [
        ("artifact", "name"),
        ("artifact_edge", "to_text"),
        ("artifact_tag", "tag"),
        ("artifact_verdict", "note"),
    ] {
        for sql in [format!("DELETE FROM {table}"), format!("UPDATE {table} SET {column} = 'x'")] {
            let error = home.conn.execute(&sql, []).unwrap_err().to_string();
            assert!(error.contains("never"), "{sql}: {error}");
        }
    }
}

#[test]
fn tables_are_made_once_and_those_of_a_newer_version_are_left_alone() {
    let mut home = Home::new();
    home.add("a", b"x");
    home.write(migrate).unwrap();
    assert_eq!(home.add("a", b"x").version, 2);
    home.conn.execute("INSERT INTO artifact_schema VALUES (99)", []).unwrap();
    let tx = home.conn.transaction().unwrap();
    assert!(matches!(migrate(&tx), Err(Error::Newer { found: 99, .. })));
}

/// The row and what the chain says of it come and go together.
#[test]
fn cr_06_a_transaction_that_does_not_commit_leaves_no_row() {
    let mut home = Home::new();
    let stored = home.put(b"x");
    let tx = home.conn.transaction().unwrap();
    let (artifact, _) = add(&tx, &stored, new("a")).unwrap();
    drop(tx);
    assert!(get(&home.conn, &Name::LOCAL, artifact.id).unwrap().is_none());
    assert_eq!(home.add("a", b"x").seq, 1);
}
