//! AUD-19: whatever is changed behind the ledger's back is found.

use std::fs;

use hotcell_ledger::{
    Artifact, Aspect, Counts, Digest, Error, Fault, MAX_SMALL, Page, Ruling, StoreError, Table,
    Verified, get, judge, list, tag, verify, verify_row,
};
use hotcell_ledger::{Filter, RowId};
use hotcell_types::Name;

use crate::home::{Home, by, from, large};

/// Bytes of the first one.
const OF_FIRST: u64 = 5 + MAX_SMALL + 1;

/// Three artifacts with different contents, a tag and a verdict; the last came from the first.
fn home() -> (Home, Vec<Artifact>) {
    let mut home = Home::new();
    let first = home.add("a", &large(b"first"));
    let second = home.add("b", &large(b"other"));
    let third = home.add_from("c", &large(b"a longer one"), vec![from(first.id), from(second.id)]);
    let (_, tagged) =
        home.write(|tx| tag(tx, &by("bob", 1), first.id, "t".parse().unwrap())).unwrap().unwrap();
    let note = Some("why".parse().unwrap());
    let (_, judged) = home
        .write(|tx| judge(tx, &by("bob", 1), first.id, Aspect::Test, Ruling::Accept, note))
        .unwrap();
    home.chain.take(&tagged);
    home.chain.take(&judged);
    (home, vec![first, second, third])
}

fn faults(home: &Home) -> (Verified, Vec<Fault>) {
    let mut faults = Vec::new();
    let digest_of = |row| home.chain.0.get(&row).copied();
    let counts = home.chain.counts();
    let verified =
        verify(&home.conn, &home.store, counts, digest_of, |fault| faults.push(fault)).unwrap();
    assert_eq!(verified.faults, faults.len() as u64);
    (verified, faults)
}

/// Changes the database as somebody would who has the file and another program.
fn tamper(home: &Home, sql: &str) {
    for table in ["artifact", "artifact_edge", "artifact_tag", "artifact_verdict"] {
        for trigger in ["kept", "fixed"] {
            let drop = format!("DROP TRIGGER IF EXISTS {table}_is_{trigger}");
            home.conn.execute_batch(&drop).unwrap();
        }
    }
    home.conn
        .execute_batch("PRAGMA foreign_keys = OFF; PRAGMA ignore_check_constraints = ON")
        .unwrap();
    home.conn.execute_batch(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
}

#[test]
fn what_nobody_touched_is_fine() {
    let (home, _) = home();
    let (verified, faults) = faults(&home);
    assert_eq!(faults, []);
    assert_eq!(verified.rows, Counts { artifacts: 3, taggings: 1, verdicts: 1, prunings: 0 });
    assert_eq!(
        (verified.contents, verified.bytes, verified.unreferenced),
        (3, 22 + 3 * (MAX_SMALL + 1), 0)
    );
}

/// Every column of every table.
#[test]
fn aud_19_every_changed_column_is_found() {
    let (home, _) = home();
    for (table, column, kind) in columns(&home) {
        let values: &[&str] = match kind.as_str() {
            "INTEGER" => &["1000", "-1", "7", "0"],
            "TEXT" => {
                &["'x'", "'escalate'", "'test'", "'input'", "'image'", "''", "'a' || char(10)"]
            }
            _ => &["zeroblob(16)", "zeroblob(32)", "x''"],
        };
        // One row of each: there is one second edge, and the others begin with 1.
        let row = if table == "artifact_edge" { "place = 1" } else { "seq = 1" };
        let mut changes = 0;
        for value in values {
            let sql = format!(
                "UPDATE {table} SET {column} = {value}
                 WHERE {row} AND {column} IS NOT {value}"
            );
            // There is one with this number, and a second would not be let in.
            if (column.as_str(), *value) == ("place", "0") {
                continue;
            }
            assert_eq!(faults(&home).1, []);
            tamper(&home, &format!("SAVEPOINT before; {sql}"));
            changes += home.conn.changes();
            let is_found = !faults(&home).1.is_empty();
            assert_eq!(is_found, home.conn.changes() == 1, "{sql}");
            home.conn.execute_batch("ROLLBACK TO before; RELEASE before").unwrap();
        }
        assert!(changes >= 2, "{table}.{column} was hardly changed");
    }
}

/// Table, name and type of all columns.
fn columns(home: &Home) -> Vec<(String, String, String)> {
    let sql = "SELECT m.name, c.name, c.type FROM sqlite_schema m, pragma_table_info(m.name) c
               WHERE m.type = 'table' AND m.name IN
                   ('artifact', 'artifact_edge', 'artifact_tag', 'artifact_verdict')";
    let mut statement = home.conn.prepare(sql).unwrap();
    let row = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
    let columns: Vec<_> = statement.query_map([], row).unwrap().map(Result::unwrap).collect();
    assert_eq!(columns.len(), 15 + 6 + 6 + 7);
    columns
}

/// Rows that are removed, added, exchanged or copied.
#[test]
fn aud_19_rows_that_come_and_go_are_found() {
    for sql in [
        "DELETE FROM artifact WHERE seq = 1",
        "DELETE FROM artifact WHERE seq = 2",
        "DELETE FROM artifact WHERE seq = 3",
        "DELETE FROM artifact WHERE seq = 3; DELETE FROM artifact_edge
             WHERE source NOT IN (SELECT id FROM artifact)",
        "DELETE FROM artifact",
        "DELETE FROM artifact_edge WHERE place = 1",
        "DELETE FROM artifact_edge",
        "DELETE FROM artifact_tag",
        "DELETE FROM artifact_verdict",
        "INSERT INTO artifact SELECT 4, randomblob(16), tenant, subject, name, 9, digest, size, media,
             type, role, created, call, tool, is_kept FROM artifact WHERE seq = 1",
        "INSERT INTO artifact_tag SELECT 2, artifact, 'more', 1, by, time FROM artifact_tag",
        "INSERT INTO artifact_tag SELECT 2, artifact, tag, 0, by, time FROM artifact_tag",
        "INSERT INTO artifact_verdict SELECT 2, artifact, aspect, 'reject', by, note, time
             FROM artifact_verdict",
        "INSERT INTO artifact_edge SELECT source, 2, relation, to_artifact, to_call, to_text
             FROM artifact_edge WHERE place = 1",
        "INSERT INTO artifact_edge VALUES (zeroblob(16), 0, 'input', NULL, NULL, NULL)",
        "UPDATE artifact SET seq = 100 WHERE seq = 1; UPDATE artifact SET seq = 1 WHERE seq = 2;
             UPDATE artifact SET seq = 2 WHERE seq = 100",
        "UPDATE artifact SET digest = (SELECT digest FROM artifact WHERE seq = 2) WHERE seq = 1",
        "UPDATE artifact_edge SET to_text = 'more' WHERE place = 0",
        "UPDATE artifact SET tenant = 'other'",
    ] {
        let (home, _) = home();
        tamper(&home, sql);
        assert!(!faults(&home).1.is_empty(), "{sql}");
    }
}

#[test]
fn aud_19_a_fault_says_what_it_is() {
    let (home, artifacts) = home();
    tamper(&home, "UPDATE artifact SET name = 'z' WHERE seq = 1");
    assert_eq!(faults(&home).1, [Fault::Changed(RowId::Artifact(artifacts[0].id))]);
    tamper(&home, "UPDATE artifact SET type = 'nonsense' WHERE seq = 1");
    assert_eq!(faults(&home).1, [Fault::Unreadable { table: Table::Artifact, seq: 1 }]);
    tamper(&home, "DELETE FROM artifact_edge; DELETE FROM artifact WHERE seq < 3");
    let expected = [
        Fault::Gone { table: Table::Artifact, first: 1, last: 2 },
        Fault::Changed(RowId::Artifact(artifacts[2].id)),
        Fault::Count { table: Table::Artifact, stated: 3, found: 1 },
    ];
    assert_eq!(faults(&home).1, expected);
    assert_eq!(expected[0].to_string(), "rows 1 to 2 of the artifacts are gone");
}

/// AUD-20: nothing there is not the same as everything fine.
#[test]
fn aud_20_an_empty_ledger_is_not_fine_if_the_chain_says_otherwise() {
    let (home, _) = home();
    let fresh = Home::new();
    let mut faults = Vec::new();
    let digest_of = |row| home.chain.0.get(&row).copied();
    let counts = home.chain.counts();
    verify(&fresh.conn, &fresh.store, counts, digest_of, |fault| faults.push(fault)).unwrap();
    assert_eq!(faults.len(), 3, "{faults:?}");
    let (verified, faults) = {
        let mut faults = Vec::new();
        let verified = verify(
            &home.conn,
            &home.store,
            Counts::default(),
            |_| None,
            |fault| {
                faults.push(fault);
            },
        );
        (verified.unwrap(), faults)
    };
    assert!(verified.faults == 8 && faults.contains(&Fault::Unstated(RowId::Tagging(1))));
    home.conn.execute_batch("DROP TABLE artifact_verdict").ok();
    fresh
        .conn
        .execute_batch("DROP VIEW artifact_verdict_now; DROP TABLE artifact_verdict")
        .unwrap();
    let none = verify(&fresh.conn, &fresh.store, Counts::default(), |_| None, |_| {});
    assert!(none.is_err());
}

#[test]
fn aud_19_contents_that_are_changed_swapped_cut_or_gone_are_found() {
    let write = |home: &Home, digest: &Digest, content: &[u8]| {
        let file = home.file_of(digest);
        fs::remove_file(&file).ok();
        fs::write(&file, large(content)).unwrap();
    };
    type Tamper<'a> = &'a dyn Fn(&Home, [Digest; 3]);
    type Expected<'a> = &'a dyn Fn([Digest; 3]) -> Vec<Fault>;
    let table: &[(&str, Tamper<'_>, Expected<'_>)] = &[
        ("changed", &|home, [a, ..]| write(home, &a, b"FIRST"), &|[a, ..]| vec![Fault::Content(a)]),
        ("gone", &|home, [a, ..]| fs::remove_file(home.file_of(&a)).unwrap(), &|[a, ..]| {
            vec![Fault::Missing(a)]
        }),
        ("cut", &|home, [a, ..]| write(home, &a, b"fir"), &|[a, ..]| {
            vec![Fault::Size { digest: a, expected: OF_FIRST, found: OF_FIRST - 2 }]
        }),
        (
            "swapped, of one size",
            &|home, [a, b, _]| {
                write(home, &a, b"other");
                write(home, &b, b"first");
            },
            &|[a, b, _]| {
                vec![Fault::Swapped { digest: a, with: b }, Fault::Swapped { digest: b, with: a }]
            },
        ),
        (
            "another's, of another size",
            &|home, [a, _, _]| write(home, &a, b"a longer one"),
            &|[a, _, c]| vec![Fault::Swapped { digest: a, with: c }],
        ),
        (
            "a link",
            &|home, [a, b, _]| {
                fs::remove_file(home.file_of(&a)).unwrap();
                std::os::unix::fs::symlink(home.file_of(&b), home.file_of(&a)).unwrap();
            },
            &|[a, ..]| vec![Fault::NotPlain(a)],
        ),
        (
            "huge and empty",
            &|home, [a, ..]| {
                write(home, &a, b"first");
                let file = fs::OpenOptions::new().write(true).open(home.file_of(&a)).unwrap();
                file.set_len(1 << 40).unwrap();
            },
            &|[a, ..]| vec![Fault::Size { digest: a, expected: OF_FIRST, found: 1 << 40 }],
        ),
    ];
    for (what, tamper, expected) in table {
        let (home, artifacts) = home();
        let digests: [Digest; 3] = std::array::from_fn(|at| artifacts[at].blob.digest);
        tamper(&home, digests);
        let (mut found, mut expected) = (faults(&home).1, expected(digests));
        found.sort_by_key(|fault| fault.to_string());
        expected.sort_by_key(|fault| fault.to_string());
        assert_eq!(found, expected, "{what}");
        // Reading refuses as well.
        let refused = home.store.content(&home.conn, &artifacts[0].blob).unwrap_err();
        assert!(
            matches!(refused, Error::Store(StoreError::Tampered { .. } | StoreError::Missing(_))),
            "{what}: {refused}"
        );
    }
}

/// A row that was changed to have another size, name or owner is found when it is downloaded.
#[test]
fn aud_19_a_download_finds_a_changed_row() {
    for change in ["size = 6", "name = 'z'", "subject = 'mallory'", "media = 'image/png'"] {
        let (home, artifacts) = home();
        tamper(&home, &format!("UPDATE artifact SET {change} WHERE seq = 1"));
        let details = get(&home.conn, &Name::LOCAL, artifacts[0].id).unwrap().unwrap();
        let row = RowId::Artifact(artifacts[0].id);
        let stated = home.chain.0.get(&row).copied();
        assert_eq!(verify_row(&details.statement(), stated), Err(Fault::Changed(row)), "{change}");
        assert_eq!(verify_row(&details.statement(), None), Err(Fault::Unstated(row)));
    }
    // A tenant's artifact that was given to another is there for neither as it was.
    let (home, artifacts) = home();
    tamper(&home, "UPDATE artifact SET tenant = 'other' WHERE seq = 1");
    assert!(get(&home.conn, &Name::LOCAL, artifacts[0].id).unwrap().is_none());
    assert_eq!(list(&home.conn, &Filter::of(Name::LOCAL), Page::first(9)).unwrap().len(), 2);
}

#[test]
fn contents_that_nothing_refers_to_are_counted() {
    let (home, _) = home();
    home.put_large(b"orphan");
    let (verified, faults) = faults(&home);
    assert_eq!((verified.unreferenced, faults), (1, vec![]));
}

/// More contents than are asked for at once.
#[test]
fn a_large_ledger_is_verified_to_its_end() {
    let mut home = Home::new();
    let hold = home.store.hold().unwrap();
    let stored: Vec<_> =
        (0..300_u32).map(|n| hold.put(&large(&n.to_le_bytes())[..], 1 << 20).unwrap()).collect();
    let statements = home.write(|tx| {
        let add = |stored| hotcell_ledger::add(tx, stored, crate::home::new("n")).unwrap().1;
        stored.iter().map(add).collect::<Vec<_>>()
    });
    statements.iter().for_each(|statement| home.chain.take(statement));
    let (verified, none) = faults(&home);
    assert_eq!((verified.contents, verified.rows.artifacts, none), (300, 300, vec![]));
    let last = stored.iter().map(|stored| stored.blob().digest).max().unwrap();
    fs::remove_file(home.file_of(&last)).unwrap();
    assert_eq!(faults(&home).1, [Fault::Missing(last)]);
}
