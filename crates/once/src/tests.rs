//! Claims in a database of their own.

use super::*;

const NOW: i64 = 1_700_000_000_000_000_000;

fn conn() -> Connection {
    let conn = Connection::open_in_memory().unwrap();
    // The record's.
    conn.execute_batch("CREATE TABLE unfinished (call BLOB PRIMARY KEY)").unwrap();
    conn
}

fn whose(subject: &str, key: &str) -> Whose {
    Whose { tenant: Name::LOCAL, subject: subject.parse().unwrap(), key: key.into() }
}

fn id(number: u8) -> CallId {
    CallId::from_bytes([number; 16])
}

fn taken(conn: &mut Connection, whose: &Whose, digest: u8, call: u8) -> Option<Claim> {
    let tx = conn.transaction().unwrap();
    let claimed = claim(&tx, whose, [digest; 32], id(call), NOW).unwrap();
    tx.commit().unwrap();
    claimed
}

#[test]
fn the_first_call_has_the_key_and_the_others_hear_which_that_is() {
    let mut conn = conn();
    let own = whose("alice", "k");
    assert_eq!(find(&conn, &own).unwrap(), None);
    assert_eq!(taken(&mut conn, &own, 1, 1), None);
    let first = Claim { call: id(1), digest: [1; 32], reply: None };
    assert_eq!(taken(&mut conn, &own, 2, 2), Some(first.clone()));
    assert_eq!(find(&conn, &own).unwrap(), Some(first));
    // The same words of somebody else are another key.
    assert_eq!(taken(&mut conn, &whose("bob", "k"), 2, 3), None);
    assert_eq!(taken(&mut conn, &whose("alice", "K"), 2, 4), None);
}

#[test]
fn a_reply_is_kept_once_and_a_key_that_was_not_used_is_free_again() {
    let mut conn = conn();
    let own = whose("alice", "k");
    taken(&mut conn, &own, 1, 1);
    let tx = conn.transaction().unwrap();
    keep(&tx, id(1), &"x".repeat(MAX_REPLY + 1)).unwrap();
    assert_eq!(find(&tx, &own).unwrap().unwrap().reply, None);
    keep(&tx, id(1), "one").unwrap();
    keep(&tx, id(1), "two").unwrap();
    assert_eq!(find(&tx, &own).unwrap().unwrap().reply.as_deref(), Some("one"));
    assert!(tx.execute("UPDATE once SET reply = NULL", []).is_err());
    assert!(tx.execute("UPDATE once SET call = zeroblob(16)", []).is_err());
    tx.commit().unwrap();
    let tx = conn.transaction().unwrap();
    release(&tx, id(1)).unwrap();
    assert_eq!(find(&tx, &own).unwrap(), None);
}

#[test]
fn old_claims_go_first_and_young_ones_never() {
    let mut conn = conn();
    for number in 0..3 {
        taken(&mut conn, &whose("alice", &number.to_string()), 1, number);
    }
    let tx = conn.transaction().unwrap();
    assert_eq!(prune(&tx, NOW).unwrap(), 0);
    tx.execute("INSERT INTO unfinished VALUES (?1)", [id(1).to_bytes()]).unwrap();
    assert_eq!(prune(&tx, NOW + 1).unwrap(), 2, "one goes on");
    tx.execute("DELETE FROM unfinished", []).unwrap();
    assert_eq!(prune(&tx, NOW + 1).unwrap(), 1);
    // As if there had been so many in between.
    let many = format!(
        "INSERT INTO once VALUES ({MAX_CLAIMS}, 't', 's', 'k', zeroblob(32), zeroblob(16), {NOW}, NULL)"
    );
    tx.execute(&many, []).unwrap();
    tx.execute(
        "INSERT INTO once VALUES (1, 't', 's', 'l', zeroblob(32), randomblob(16), 0, NULL)",
        [],
    )
    .unwrap();
    assert_eq!(claim(&tx, &whose("alice", "new"), [1; 32], id(9), NOW).unwrap(), None);
    let left: i64 = tx.query_row("SELECT count(*) FROM once", [], |row| row.get(0)).unwrap();
    assert_eq!(left, 2, "the old one made room");
}
