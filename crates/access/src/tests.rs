//! Keys in a database of their own.

use std::num::NonZeroU32;

use hotcell_types::{Name, Span};
use proptest::prelude::*;

use super::*;

const SECOND: i64 = 1_000_000_000;
const NOW: i64 = 1_700_000_000 * SECOND;

fn conn() -> Connection {
    let conn = Connection::open_in_memory().unwrap();
    conn.pragma_update(None, "foreign_keys", true).unwrap();
    conn
}

fn name(text: &str) -> Name {
    text.parse().unwrap()
}

fn new(tenant: &str) -> New {
    New {
        name: name("ci"),
        tenant: name(tenant),
        subject: name("build"),
        scopes: [Scope::Run, Scope::ArtifactsRead].into_iter().collect(),
        life: None,
        rate: None,
        concurrent: None,
    }
}

fn within<T>(conn: &mut Connection, work: impl FnOnce(&Transaction<'_>) -> T) -> T {
    let tx = conn.transaction().unwrap();
    let done = work(&tx);
    tx.commit().unwrap();
    done
}

fn made(conn: &mut Connection, new: New) -> (Shown, Key, Change) {
    within(conn, |tx| create(tx, new, NOW)).unwrap()
}

fn checked(conn: &Connection, text: &str, now: i64) -> Result<KeyId, Refused> {
    Keys::load(conn).unwrap().check(text, now).map(|key| key.id)
}

#[test]
fn a_key_is_shown_once_and_is_what_was_asked_for() {
    let mut conn = conn();
    let two = NonZeroU32::new(2).unwrap();
    let rate = Some(Rate { per_second: two, burst: two });
    let wanted = New { rate, concurrent: Some(two), life: Some(Span::seconds(60)), ..new("acme") };
    let (shown, key, change) = made(&mut conn, wanted);
    assert!(shown.reveal().starts_with(&format!("hck_{}", key.id)), "{key:?}");
    assert_eq!(shown.reveal().len(), TEXT);
    assert_eq!((key.rate, key.concurrent, key.expires), (rate, Some(two), Some(NOW + 60 * SECOND)));
    assert_eq!((key.created, key.revoked, key.used), (NOW, None, None));
    assert!(change.reason().contains("for run artifacts:read"), "{}", change.reason());
    for told in [format!("{shown:?}"), format!("{key:?}"), format!("{change:?}")] {
        assert!(!told.contains(shown.reveal()) && !told.contains("digest"), "{told}");
    }
    let all: Vec<u8> = conn
        .query_row("SELECT group_concat(hex(id) || hex(digest)) FROM access_key", [], |row| {
            row.get::<_, String>(0)
        })
        .unwrap()
        .into_bytes();
    let secret = shown.reveal().get(20..52).unwrap();
    assert!(!String::from_utf8(all).unwrap().contains(secret));
    assert_eq!(checked(&conn, shown.reveal(), NOW), Ok(key.id));
    assert_eq!(get(&conn, Some(&name("other")), key.id).unwrap(), None);
    assert_eq!(get(&conn, Some(&name("acme")), key.id).unwrap(), Some(key));
}

#[test]
fn nothing_is_a_key_before_one_was_made() {
    let conn = conn();
    let mut other = self::conn();
    let (shown, ..) = made(&mut other, new("acme"));
    assert_eq!(version(&conn).unwrap(), 0);
    assert_eq!(checked(&conn, shown.reveal(), NOW), Err(Refused::Unknown));
    for text in ["", "hck_", "admin", "hotcell", "hck_0000"] {
        assert_eq!(checked(&conn, text, NOW), Err(Refused::Malformed(Malformed)), "{text}");
    }
}

#[test]
fn a_wrong_secret_and_an_unknown_id_are_one_answer() {
    let mut conn = conn();
    let (one, ..) = made(&mut conn, new("acme"));
    let (two, ..) = made(&mut self::conn(), new("acme"));
    // The id of one with the secret of the other, and a checksum that fits.
    let bytes = |shown: &Shown| {
        data_encoding::BASE32HEX_NOPAD
            .decode(shown.reveal().strip_prefix(PREFIX).unwrap().as_bytes())
            .unwrap()
    };
    let mut mixed = [&bytes(&one)[..10], &bytes(&two)[10..30]].concat();
    let sum =
        <sha2::Sha256 as sha2::Digest>::digest([b"hotcell key check 1\n", &mixed[..]].concat());
    mixed.extend_from_slice(&sum[..5]);
    let mixed = format!("{PREFIX}{}", data_encoding::BASE32HEX_NOPAD.encode(&mixed));
    assert_eq!(Presented::read(&mixed).unwrap().id(), one.id());
    assert_eq!(checked(&conn, &mixed, NOW), Err(Refused::Unknown));
    assert_eq!(checked(&conn, two.reveal(), NOW), Err(Refused::Unknown));
    assert_eq!(checked(&conn, one.reveal(), NOW), Ok(one.id()));
}

#[test]
fn a_key_ends_when_it_expires_or_is_revoked_and_never_comes_back() {
    let mut conn = conn();
    let (shown, key, _) = made(&mut conn, New { life: Some(Span::seconds(60)), ..new("acme") });
    let end = NOW + 60 * SECOND;
    assert_eq!(checked(&conn, shown.reveal(), end - 1), Ok(key.id));
    assert_eq!(checked(&conn, shown.reveal(), end), Err(Refused::Expired));
    let other = name("other");
    let refused = within(&mut conn, |tx| revoke(tx, Some(&other), key.id, NOW));
    assert!(matches!(refused, Err(Error::NoKey(_))));
    let revoked = within(&mut conn, |tx| revoke(tx, Some(&name("acme")), key.id, NOW)).unwrap();
    assert_eq!(revoked.unwrap().what, What::Revoked);
    assert_eq!(within(&mut conn, |tx| revoke(tx, None, key.id, NOW)).unwrap(), None);
    assert_eq!(checked(&conn, shown.reveal(), NOW), Err(Refused::Revoked));
    for sql in [
        "UPDATE access_key SET revoked = NULL, changes = changes + 1",
        "UPDATE access_key SET scopes = 'admin', changes = changes + 1",
        "UPDATE access_key SET expires = NULL, changes = changes + 1",
        "UPDATE access_key SET changes = 1",
        "UPDATE access_mark SET version = 0",
        "DELETE FROM access_mark",
        "INSERT INTO access_key SELECT 1, zeroblob(10), digest, name, tenant, subject, scopes, NULL, NULL,
            NULL, created, NULL, NULL, 1 FROM access_key",
    ] {
        assert!(conn.execute(sql, []).is_err(), "{sql}");
    }
}

#[test]
fn keys_know_whether_they_are_still_all_there_is() {
    let mut conn = conn();
    let none = Keys::load(&conn).unwrap();
    assert!(none.is_empty() && none.are_current(&conn).unwrap());
    let (_, key, _) = made(&mut conn, new("acme"));
    assert!(!none.are_current(&conn).unwrap());
    let one = Keys::load(&conn).unwrap();
    assert!(one.are_current(&conn).unwrap() && !one.is_empty());
    within(&mut conn, |tx| used(tx, [(key.id, NOW + 5), (key.id, NOW + 3)])).unwrap();
    assert!(one.are_current(&conn).unwrap(), "using one changes none");
    assert_eq!(get(&conn, None, key.id).unwrap().unwrap().used, Some(NOW + 5));
    within(&mut conn, |tx| revoke(tx, None, key.id, NOW)).unwrap();
    assert!(!one.are_current(&conn).unwrap());
}

#[test]
fn the_chain_vouches_for_every_row_and_what_is_gone() {
    let mut conn = conn();
    let mut said = Said::default();
    let hear = |said: &mut Said, change: &Change| {
        assert!(said.hear(change.statement.row(), change.statement.digest()));
    };
    let (_, first, change) = made(&mut conn, new("acme"));
    hear(&mut said, &change);
    let (_, _, change) = made(&mut conn, new("other"));
    hear(&mut said, &change);
    let change = within(&mut conn, |tx| revoke(tx, None, first.id, NOW)).unwrap().unwrap();
    hear(&mut said, &change);
    let faults = |said: &Said, conn: &Connection| {
        let mut faults = Vec::new();
        said.clone().compare(conn, |fault| faults.push(fault)).unwrap();
        faults
    };
    assert_eq!(faults(&said, &conn), []);
    let later = NOW + KEPT_ENDED;
    assert_eq!(within(&mut conn, |tx| remove_ended(tx, later)).unwrap(), []);
    let removed = within(&mut conn, |tx| remove_ended(tx, later + 1)).unwrap();
    assert_eq!(removed.iter().map(|change| change.id).collect::<Vec<_>>(), [first.id]);
    assert_eq!(faults(&said, &conn), [Fault::Absent(1)]);
    hear(&mut said, &removed[0]);
    assert_eq!(faults(&said, &conn), []);
    assert!(!said.hear("key 1 removed", removed[0].statement.digest()), "it is gone already");
    for row in ["key", "key 1", "key x 1", "key 1 x", "bearer 1 1", "keys 1 1"] {
        assert!(!said.clone().hear(row, [0; 32]), "{row}");
    }
    // Whoever writes to the file can do what triggers forbid.
    conn.execute_batch(
        "DROP TRIGGER access_key_is_fixed; UPDATE access_key SET scopes = 'admin', changes = 2",
    )
    .unwrap();
    assert_eq!(faults(&said, &conn), [Fault::Changed(2)]);
    conn.execute_batch("UPDATE access_key SET scopes = 'root', changes = 3").unwrap();
    assert_eq!(faults(&said, &conn), [Fault::Changed(2)]);
    assert!(matches!(Keys::load(&conn), Err(Error::Damaged(2))));
    let mut deaf = Said::default();
    hear(&mut deaf, &change);
    assert_eq!(faults(&deaf, &conn), [Fault::Unknown(2), Fault::Absent(1)]);
}

#[test]
fn a_number_is_never_given_twice_and_there_is_a_most() {
    let mut conn = conn();
    let (_, first, _) = made(&mut conn, new("acme"));
    assert_eq!(within(&mut conn, |tx| revoke_all(tx, NOW)).unwrap().len(), 1);
    within(&mut conn, |tx| remove_ended(tx, NOW + KEPT_ENDED + 1)).unwrap();
    let (_, second, _) = made(&mut conn, new("acme"));
    assert_eq!((first.number, second.number), (1, 2));
    conn.execute_batch(&format!(
        "UPDATE access_mark SET count = {MAX_KEYS}, version = version + 1"
    ))
    .unwrap();
    let full = within(&mut conn, |tx| create(tx, new("acme"), NOW));
    assert!(matches!(full, Err(Error::Full { .. })));
}

#[test]
fn what_would_be_no_key_is_refused() {
    let mut conn = conn();
    let many = NonZeroU32::new(MAX_NUMBER + 1);
    for (bad, now) in [
        (New { scopes: Scopes::default(), ..new("a") }, NOW),
        (New { concurrent: many, ..new("a") }, NOW),
        (New { life: Some(Span::seconds(1)), ..new("a") }, i64::MAX),
    ] {
        let refused = within(&mut conn, |tx| create(tx, bad, now));
        assert!(matches!(refused, Err(Error::Impossible(_))), "{refused:?}");
    }
}

#[test]
fn pages_are_of_one_tenant_or_of_all() {
    let mut conn = conn();
    for tenant in ["a", "b", "a"] {
        made(&mut conn, new(tenant));
    }
    let numbers = |tenant: Option<&str>, after, limit| -> Vec<u64> {
        let tenant = tenant.map(name);
        list(&conn, tenant.as_ref(), after, limit).unwrap().iter().map(|key| key.number).collect()
    };
    assert_eq!(numbers(Some("a"), 0, 10), [1, 3]);
    assert_eq!(numbers(Some("a"), 1, 10), [3]);
    assert_eq!(numbers(Some("c"), 0, 10), [0; 0]);
    assert_eq!(numbers(None, 0, 2), [1, 2]);
}

#[test]
fn scopes_have_one_spelling_and_admin_is_all_of_them() {
    for scope in Scope::ALL {
        assert_eq!(scope.name().parse(), Ok(scope));
        let alone: Scopes = [scope].into_iter().collect();
        assert!(alone.has(scope) && Scopes::read(scope.name()) == Some(alone));
        assert_eq!(alone.has(Scope::Admin), scope == Scope::Admin);
        let admin: Scopes = [Scope::Admin].into_iter().collect();
        assert!(admin.has(scope) && !Scopes::default().has(scope));
    }
    assert_eq!(Scopes::read("run tools").unwrap().to_string(), "run tools");
    for bad in ["", " ", "run ", "tools run", "run run", "run,tools", "Run", "root"] {
        assert_eq!(Scopes::read(bad), None, "{bad:?}");
    }
    assert!("\u{1b}".parse::<Scope>().unwrap_err().to_string().contains("\\u{1b}"));
}

proptest! {
    #[test]
    fn a_text_with_a_slip_is_no_key(at in 4..TEXT, letter in "[0-9A-Va-z_-]") {
        let (shown, _) = Shown::new().unwrap();
        let mut text = shown.reveal().to_owned();
        text.replace_range(at..=at, &letter);
        let is_same = text == shown.reveal();
        prop_assert_eq!(Presented::read(&text).is_ok(), is_same);
        for other in [format!("{} ", shown.reveal()), shown.reveal().to_lowercase(), format!("{text}=")] {
            prop_assert!(Presented::read(&other).is_err());
        }
    }
}
