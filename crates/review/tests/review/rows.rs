//! Rows that somebody has damaged are errors: nothing panics, and nothing is made up.

use hotcell_review::{
    Error, MOST_PAGE, State, Verdict, cancel, check_grant, expire, find, get, list, stored_call,
};
use hotcell_types::Name;
use serde_json::json;

use crate::common::*;

#[test]
fn a_damaged_row_is_an_error() {
    const BAD: &[(&str, &str)] = &[
        ("seq", "-1"),
        ("kind", "''"),
        ("kind", "'Review'"),
        ("tenant", "'no name'"),
        ("subject", "CAST(x'ff' AS TEXT)"),
        ("door", "'window'"),
        ("call_id", "x'00'"),
        ("tool", "CAST(x'c3' AS TEXT)"),
        ("operation", "CAST(x'c3' AS TEXT)"),
        ("shown", "CAST(x'80' AS TEXT)"),
        ("call_digest", "zeroblob(31)"),
        ("policy_digest", "zeroblob(33)"),
        ("rules", "''"),
        ("rules", "'[[\"a\"]]'"),
        ("rules", "'{'"),
        ("bearer", "CAST(x'ff' AS TEXT)"),
        ("state", "'done'"),
        ("verdict", "'maybe'"),
        ("verdict", "NULL"),
        ("approver", "'0000'"),
        ("approver", "NULL"),
        ("approver_name", "''"),
        ("reason", "char(27) || '[2J'"),
        ("reason", "NULL"),
        ("answered", "NULL"),
        ("grant_expires", "NULL"),
        ("signature", "zeroblob(63)"),
        ("used", "1"),
        ("result", "CAST(x'ff' AS TEXT)"),
    ];
    for (column, value) in BAD {
        let mut desk = Desk::new();
        let item = desk.item_in(State::Approved);
        let damage = format!(
            "DROP TRIGGER review_is_fixed; DROP TRIGGER review_goes_on; DROP TRIGGER review_answer_stays;
             DROP TRIGGER review_use_stays; PRAGMA ignore_check_constraints = ON;
             UPDATE review SET {column} = {value};
             PRAGMA ignore_check_constraints = OFF;"
        );
        desk.conn.execute_batch(&damage).unwrap();
        let is_elsewhere = *column == "tenant";
        let got = get(&desk.conn, &Name::LOCAL, item.id);
        assert!(got.is_err() || is_elsewhere && got.unwrap().is_none(), "{column} {value}");
        let listed = list(&desk.conn, &Name::LOCAL, None, MOST_PAGE);
        assert!(listed.is_err() || is_elsewhere, "{column} {value}");
        // Whatever they say.
        let of_damaged = given(&desk.alice, &item, Verdict::Approve, 30);
        assert!(desk.answer(item.id, of_damaged, 30).is_err(), "{column} {value}");
        assert!(desk.take(item.id, &call(2), 30).is_err(), "{column} {value}");
        assert!(desk.finish(item.id, &json!(1)).is_err(), "{column} {value}");
        assert!(desk.write(|tx| cancel(tx, &agent(), item.id, 30)).is_err(), "{column} {value}");
        let grant = check_grant(&desk.conn, &desk.terms, item.id, &call(2), 30);
        assert!(grant.is_err(), "{column} {value}");
        drop(find(&desk.conn, &call(2), POLICY, 30));
        drop(desk.write(|tx| expire(tx, i64::MAX)));
        drop(stored_call(&desk.conn, &Name::LOCAL, item.id));
    }
}

#[test]
fn a_queue_that_is_not_there_is_an_error() {
    let mut desk = Desk::new();
    let item = desk.item_in(State::Approved);
    desk.conn.execute_batch("DROP TABLE review; DROP TABLE review_clock").unwrap();
    assert!(matches!(get(&desk.conn, &Name::LOCAL, item.id), Err(Error::Sql(_))));
    assert!(matches!(desk.take(item.id, &call(2), 30), Err(Error::Sql(_))));
    assert!(hotcell_review::now(&desk.conn, 1).is_err());
}
