//! What becomes of a bearer: reviews, lists, what is swept, and what the chain knows of it.

use hotcell_bearer::{
    Allowed, Change, Error, Fault, KEPT_EXPIRED, Minted, Moment, Said, What, Why, attenuate,
    consume, find, get, is_current, list, migrate, mint, redeem, release, reserve, sweep,
};
use hotcell_types::{Name, Span};
use rusqlite::Connection;

use crate::common::*;

fn reserved(house: &mut House, text: &str, number: u8) -> Result<Change, Error> {
    let presented = house.read(text).unwrap();
    let known = find(&house.conn, &presented).unwrap();
    let covered = presented.status(known.as_ref(), &alice().facts(house.now()))?;
    house.write(|tx, _, moment| reserve(tx, covered, call_id(number), moment))
}

fn left(house: &House, text: &str) -> (u32, u32) {
    let presented = house.read(text).unwrap();
    let own = find(&house.conn, &presented).unwrap().unwrap().own;
    (own.left, own.held)
}

#[test]
fn a_review_holds_an_operation_until_it_is_answered() {
    let mut house = House::new();
    let token = house.token(2).bearer;
    let text = token.reveal();
    assert_eq!(reserved(&mut house, text, 1).unwrap().what, What::Reserved);
    assert_eq!(left(&house, text), (1, 1));
    // Once for a call.
    assert!(matches!(reserved(&mut house, text, 1), Err(Error::Reserved)));
    reserved(&mut house, text, 2).unwrap();
    assert_eq!(house.status(text, &alice()), Err(Why::UsedUp));
    // Rejected: it is back, once.
    let released = house.write(|tx, _, _| release(tx, call_id(1))).unwrap();
    assert_eq!((released.what, released.left), (What::Released, 1));
    assert!(matches!(house.write(|tx, _, _| release(tx, call_id(1))), Err(Error::NotReserved)));
    // Approved, long after the token has expired: it is used, once.
    house.pass(3600 * SECOND);
    let used = house.write(|tx, _, _| redeem(tx, call_id(2))).unwrap();
    assert_eq!((used.what, left(&house, text)), (What::Used, (1, 0)));
    assert!(matches!(house.write(|tx, _, _| redeem(tx, call_id(2))), Err(Error::NotReserved)));
}

#[test]
fn what_was_revoked_during_its_review_is_not_used() {
    let mut house = House::new();
    let parent = house.token(2);
    let child = house.child(parent.bearer.reveal(), narrower(&["src/**"], 1)).unwrap();
    reserved(&mut house, child.bearer.reveal(), 1).unwrap();
    house.revoke(&parent);
    let used = house.write(|tx, _, _| redeem(tx, call_id(1)));
    assert_eq!(refused(used).unwrap_err(), Why::Revoked);
}

#[test]
fn a_tenant_sees_its_own_in_pages() {
    let mut house = House::new();
    let other = hotcell_bearer::Holder { tenant: "other".parse().unwrap(), ..holder() };
    for number in 0..25 {
        let holder = if number % 5 == 0 { other.clone() } else { holder() };
        house.mint(Allowed::by_policy(holder, writing(&["**"]), POLICY), 1);
    }
    let (mut after, mut seen) = (0, Vec::new());
    loop {
        let page = list(&house.conn, &Name::LOCAL, after, 7).unwrap();
        let Some(last) = page.last() else { break };
        after = last.stored.claims.nonce;
        seen.extend(page.into_iter().map(|listed| listed.stored.claims.nonce));
    }
    let expected: Vec<u64> = (1..=25).filter(|nonce| (nonce - 1) % 5 != 0).collect();
    assert_eq!(seen, expected);
    let theirs = list(&house.conn, &other.tenant, 0, 100).unwrap();
    assert_eq!(theirs.len(), 5);
    assert_eq!(get(&house.conn, &Name::LOCAL, theirs[0].stored.id()).unwrap(), None);
    assert!(get(&house.conn, &other.tenant, theirs[0].stored.id()).unwrap().is_some());
}

/// For as long as any token.
fn long_lived(house: &mut House) -> Minted {
    let allowed = Allowed::by_policy(holder(), writing(&["src/**"]), POLICY);
    house.write(|tx, ring, moment| mint(tx, ring, allowed, 1, seconds(3600), moment)).unwrap()
}

#[test]
fn what_expired_long_ago_is_swept_in_its_order_and_numbers_go_on() {
    let mut house = House::new();
    let first = house.token(1);
    let long = long_lived(&mut house);
    let last = house.token(1);
    let swept = |house: &mut House| house.write(|tx, _, moment| sweep(tx, moment)).unwrap();
    assert_eq!(swept(&mut house), None);
    house.pass(KEPT_EXPIRED + 31 * SECOND);
    let one = swept(&mut house).unwrap();
    assert_eq!((one.count, one.upto), (1, 1));
    // The second one is in the way of the third.
    assert_eq!(swept(&mut house), None);
    assert!(get(&house.conn, &Name::LOCAL, first.claims.id).unwrap().is_none());
    assert!(get(&house.conn, &Name::LOCAL, last.claims.id).unwrap().is_some());
    house.pass(3600 * SECOND);
    assert_eq!(swept(&mut house).unwrap().upto, 3);
    assert!(get(&house.conn, &Name::LOCAL, long.claims.id).unwrap().is_none());
    // Swept, it is worth nothing under any clock.
    house.moment.clock = START;
    assert!(house.status(last.bearer.reveal(), &alice()).is_err());
    assert_eq!(house.token(1).claims.nonce, 4);
}

/// What the chain would say, and the rows of a home in which everything has happened.
fn eventful() -> (House, Said) {
    let mut house = House::new();
    let mut said = Said::default();
    let mut hear = |change: &Change| {
        assert!(said.hear(change.statement.row(), change.statement.digest()));
    };
    let old = house.token(1);
    hear(&old.change);
    house.pass(KEPT_EXPIRED + 60 * SECOND);
    let parent = house.token(9);
    hear(&parent.change);
    let presented = house.read(parent.bearer.reveal()).unwrap();
    let (child, shared) = house
        .write(|tx, ring, moment| {
            let narrower = narrower(&["src/**"], 3);
            let call = alice();
            hotcell_bearer::attenuate(tx, ring, &presented, &call.who(), POLICY, narrower, moment)
        })
        .unwrap();
    hear(&child.change);
    hear(&shared);
    hear(&house.use_it(child.bearer.reveal(), &alice()).unwrap());
    hear(&reserved(&mut house, child.bearer.reveal(), 1).unwrap());
    hear(&reserved(&mut house, child.bearer.reveal(), 2).unwrap());
    hear(&house.write(|tx, _, _| release(tx, call_id(1))).unwrap());
    hear(&house.write(|tx, _, _| redeem(tx, call_id(2))).unwrap());
    hear(&house.token(1).change);
    hear(&house.revoke(&parent).unwrap());
    let swept = house.write(|tx, _, moment| sweep(tx, moment)).unwrap().unwrap();
    assert!(said.hear(swept.statement.row(), swept.statement.digest()));
    (house, said)
}

fn faults(house: &House, said: Said) -> Vec<Fault> {
    let mut faults = Vec::new();
    said.compare(&house.conn, |fault| faults.push(fault)).unwrap();
    faults
}

#[test]
fn rows_are_what_the_chain_says_or_it_is_found() {
    let (house, said) = eventful();
    assert_eq!(said.clone().compare(&house.conn, |fault| panic!("{fault}")).unwrap(), 3);
    for (change, expected) in [
        ("UPDATE bearer SET remains = remains + 1 WHERE nonce = 3", Fault::Changed(3)),
        ("UPDATE bearer SET revoked = NULL WHERE nonce = 2", Fault::Changed(2)),
        ("UPDATE bearer SET revoked = revoked + 1 WHERE nonce = 2", Fault::Changed(2)),
        ("UPDATE bearer SET held = held + 1 WHERE nonce = 4", Fault::Changed(4)),
        ("UPDATE bearer SET changes = changes + 2 WHERE nonce = 4", Fault::Changed(4)),
        ("UPDATE bearer SET claims = zeroblob(200) WHERE nonce = 3", Fault::Changed(3)),
        ("DELETE FROM bearer WHERE nonce = 3", Fault::Absent(3)),
    ] {
        let (house, said) = eventful();
        let drops = "SELECT group_concat('DROP TRIGGER ' || name || ';', '') FROM sqlite_schema
            WHERE type = 'trigger'";
        let drops: String = house.conn.query_row(drops, [], |row| row.get(0)).unwrap();
        // The triggers refuse it, and without them it is found.
        assert!(house.conn.execute_batch(change).is_err(), "{change}");
        house.conn.execute_batch(&drops).unwrap();
        house.conn.execute_batch(change).unwrap();
        assert_eq!(faults(&house, said), [expected], "{change}");
    }
    let mut unheard = Said::default();
    for row in ["artifact 1", "bearer", "bearer 1", "bearer x 1", "bearers up to 1", ""] {
        assert!(!unheard.hear(row, [0; 32]), "{row}");
    }
    assert_eq!(faults(&house, unheard), [2, 3, 4].map(Fault::Unknown));
}

/// Also for who goes on with the transaction in which something was refused.
#[test]
fn what_is_refused_has_changed_no_row() {
    let mut house = House::new();
    let token = house.token(2);
    let presented = house.read(token.bearer.reveal()).unwrap();
    reserved(&mut house, token.bearer.reveal(), 1).unwrap();
    let covered = || {
        let known = find(&house.conn, &presented).unwrap();
        presented.status(known.as_ref(), &alice().facts(house.now())).unwrap()
    };
    let (one, other, third) = (covered(), covered(), covered());
    let before = list(&house.conn, &Name::LOCAL, 0, 10).unwrap();
    let tx = house.conn.transaction().unwrap();
    let (ring, moment, call) = (&house.ring, &house.moment, alice());
    let child = |globs, uses| {
        let narrower = narrower(globs, uses);
        attenuate(&tx, ring, &presented, &call.who(), POLICY, narrower, moment).is_err()
    };
    assert!(child(&["**"], 1) && child(&["src/**"], 2) && child(&["src/**"], 0));
    assert!(reserve(&tx, one, call_id(1), moment).is_err());
    let token = || Allowed::by_policy(holder(), writing(&["**"]), POLICY);
    let too_long = Some(Span::seconds(8 * 24 * 3600));
    assert!(mint(&tx, ring, token(), 1, too_long, moment).is_err());
    assert!(mint(&tx, ring, token(), 0, None, moment).is_err());
    assert!(redeem(&tx, call_id(2)).is_err() && release(&tx, call_id(2)).is_err());
    let late = Moment { clock: moment.clock + 30 * SECOND, ..*moment };
    assert!(consume(&tx, other, &late).is_err() && consume(&tx, third, moment).is_err());
    tx.commit().unwrap();
    assert_eq!(list(&house.conn, &Name::LOCAL, 0, 10).unwrap(), before);
    // The numbers have no gap either.
    assert_eq!(house.token(1).claims.nonce, 2);
}

#[test]
fn the_database_itself_refuses_what_brings_something_back() {
    let (house, _) = eventful();
    for change in [
        "INSERT INTO bearer SELECT 99, randomblob(16), tenant, claims, expires, 1, 0, NULL, 1
            FROM bearer LIMIT 1",
        "UPDATE bearer SET expires = expires + 1, changes = changes + 1",
        "UPDATE bearer SET tenant = 'x', changes = changes + 1",
        "UPDATE bearer SET remains = remains + 1, changes = changes + 1",
        "UPDATE bearer SET remains = -1, changes = changes + 1",
        "UPDATE bearer SET revoked = NULL, changes = changes + 1 WHERE nonce = 2",
        "UPDATE bearer SET remains = 0",
        "DELETE FROM bearer",
        "DELETE FROM bearer_mark",
        "UPDATE bearer_mark SET time = time - 1",
        "UPDATE bearer_mark SET nonce = nonce - 1",
        "UPDATE bearer_mark SET swept = 0",
        "UPDATE bearer_mark SET swept = nonce + 1",
        "INSERT INTO bearer_mark VALUES (2, 0, 0, 0, zeroblob(16), 0)",
    ] {
        assert!(house.conn.execute_batch(change).is_err(), "{change}");
    }
}

/// Whoever can write to the database cannot make anything of it panic.
#[test]
fn damaged_rows_are_errors() {
    let mut house = House::new();
    let token = house.token(1);
    house.conn.execute_batch("DROP TRIGGER bearer_is_fixed; DROP TRIGGER bearer_counts;").unwrap();
    house.conn.execute_batch("DROP TRIGGER bearer_never_grows").unwrap();
    let presented = house.read(token.bearer.reveal()).unwrap();
    for damage in [
        "UPDATE bearer SET remains = 2",
        "UPDATE bearer SET remains = 1, claims = x'00'",
        "UPDATE bearer SET remains = 9223372036854775807",
    ] {
        house.conn.execute_batch(damage).unwrap();
        assert!(find(&house.conn, &presented).is_err(), "{damage}");
        assert!(list(&house.conn, &Name::LOCAL, 0, 10).is_err(), "{damage}");
    }
}

#[test]
fn tables_are_made_once_and_a_newer_hotcells_are_left_alone() {
    let mut conn = Connection::open_in_memory().unwrap();
    assert!(!is_current(&conn).unwrap());
    assert_eq!(list(&conn, &Name::LOCAL, 0, 10).unwrap(), []);
    let tx = conn.transaction().unwrap();
    migrate(&tx).unwrap();
    migrate(&tx).unwrap();
    assert!(is_current(&tx).unwrap());
    tx.execute_batch("INSERT INTO bearer_schema VALUES (2)").unwrap();
    assert!(matches!(is_current(&tx), Err(Error::Newer { found: 2, known: 1 })));
    assert!(migrate(&tx).is_err());
    drop(tx);
    let mut house = House::new();
    house.conn.execute_batch("INSERT INTO bearer_schema VALUES (2)").unwrap();
    let allowed = Allowed::by_policy(holder(), writing(&["**"]), POLICY);
    let made =
        house.write(|tx, ring, moment| hotcell_bearer::mint(tx, ring, allowed, 1, None, moment));
    assert!(matches!(made, Err(Error::Newer { .. })));
}
