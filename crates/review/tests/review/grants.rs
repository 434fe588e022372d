//! What an approval is worth.

use std::sync::Arc;
use std::thread;

use hotcell_approver::Approver;
use hotcell_record::{Draft, Durability, Filter, Kind as EventKind, Options, Record, WriteError};
use hotcell_review::{
    Error, MOST_RESULT, State, Verdict, answer, check_grant, enqueue, expire, find, migrate,
    take_grant,
};
use hotcell_types::{Door, Name};
use serde_json::{Value, json};

use crate::common::*;
use crate::crash::real_home;

#[test]
fn a_grant_is_for_the_exact_call_under_the_exact_policy_of_a_known_approver() {
    let mut desk = Desk::new();
    let item = desk.item_in(State::Approved);
    let args = |to: &str, key: &str| json!({"to": to, "key": key});
    let mut stranger = agent();
    stranger.subject = "stranger".parse().unwrap();
    let mut by_the_door = agent();
    by_the_door.door = Door::Cli;
    for other in [
        call_by(agent(), 2, args("production ", "hunter22")),
        call_by(agent(), 2, args("productioN", "hunter22")),
        // Nobody was shown the secret, and it counts all the same.
        call_by(agent(), 2, args("production", "hunter23")),
        call_by(agent(), 2, json!({"to": "production"})),
        call_by(stranger, 2, args("production", "hunter22")),
        call_by(by_the_door, 2, args("production", "hunter22")),
    ] {
        let taken = desk.take(item.id, &other, 30);
        assert!(matches!(taken, Err(Error::OtherCall(_))), "{other:?}: {taken:?}");
        assert_eq!(find(&desk.conn, &other, POLICY, 30).unwrap(), None);
    }
    let good = desk.terms.clone();
    for bit in 0..256 {
        desk.terms.policy.0[bit / 8] ^= 1 << (bit % 8);
        let taken = desk.take(item.id, &call(2), 30);
        assert!(matches!(taken, Err(Error::OtherPolicy(_))), "bit {bit}: {taken:?}");
        desk.terms = good.clone();
    }
    desk.terms.approvers = Default::default();
    assert!(matches!(desk.take(item.id, &call(2), 30), Err(Error::UnknownApprover)));
    let other = Approver::make("alice".parse().unwrap()).unwrap();
    desk.terms = terms(&[&other]);
    assert!(matches!(desk.take(item.id, &call(2), 30), Err(Error::UnknownApprover)));
    desk.terms = good.clone();
    desk.terms.home.0[0] ^= 1;
    assert!(matches!(desk.take(item.id, &call(2), 30), Err(Error::NotSigned(_))));

    desk.terms = good;
    let found = find(&desk.conn, &call(2), POLICY, 30).unwrap().unwrap();
    assert_eq!(found, desk.get(item.id));
    check_grant(&desk.conn, &desk.terms, item.id, &call(2), 30).unwrap();
    let taken = desk.take(item.id, &call(2), 30).unwrap();
    assert_eq!((taken.state, taken.used), (State::CarriedOut, Some((30, id(2)))));
    assert!(matches!(
        desk.take(item.id, &call(2), 30),
        Err(Error::Is { state: State::CarriedOut, .. })
    ));
    assert_eq!(find(&desk.conn, &call(2), POLICY, 30).unwrap(), None);
}

/// Whoever can write the row cannot sign.
#[test]
fn a_row_that_says_it_is_approved_grants_nothing_by_itself() {
    for sql in [
        "UPDATE review SET grant_expires = grant_expires + 1",
        "UPDATE review SET answered = answered - 1",
        "UPDATE review SET reason = 'looks good'",
        "UPDATE review SET signature = zeroblob(64)",
        "UPDATE review SET policy_digest = zeroblob(32)",
        "UPDATE review SET verdict = 'reject'",
        "UPDATE review SET id = x'0101010101'",
    ] {
        let mut desk = Desk::new();
        let item = desk.item_in(State::Approved);
        desk.conn
            .execute_batch("DROP TRIGGER review_is_fixed; DROP TRIGGER review_answer_stays")
            .unwrap();
        assert_eq!(desk.conn.execute(sql, []).unwrap(), 1);
        assert!(desk.take(item.id, &call(2), 30).is_err(), "{sql}");
    }
}

#[test]
fn tok_14_a_grant_is_over_at_its_exact_end_and_does_not_come_back() {
    let over = 10 + HOUR;
    let mut desk = Desk::new();
    let item = desk.item_in(State::Approved);
    assert_eq!(item.answer.as_ref().unwrap().given.expires, over);
    assert!(check_grant(&desk.conn, &desk.terms, item.id, &call(2), over - 1).is_ok());
    let late = desk.take(item.id, &call(2), over);
    assert!(matches!(late, Err(Error::GrantExpired(_))), "{late:?}");
    assert_eq!(desk.write(|tx| expire(tx, over)).unwrap().0.len(), 1);
    let back = desk.take(item.id, &call(2), 20);
    assert!(matches!(back, Err(Error::Is { state: State::Expired, .. })), "{back:?}");

    let mut desk = Desk::new();
    let item = desk.item_in(State::Approved);
    assert!(desk.take(item.id, &call(2), over - 1).is_ok());

    // Somebody saw a later time, about something else.
    let mut desk = Desk::new();
    let item = desk.item_in(State::Approved);
    let other = call_by(agent(), 9, json!({"to": "elsewhere"}));
    desk.enqueue(&other, over);
    let back = desk.take(item.id, &call(2), 20);
    assert!(matches!(back, Err(Error::GrantExpired(_))), "{back:?}");
}

#[test]
fn a_result_is_kept_once_and_bounded() {
    let mut desk = Desk::new();
    let item = desk.item_in(State::CarriedOut);
    let finished = desk.finish(item.id, &json!({"status": "success", "value": 1})).unwrap();
    assert_eq!(finished.result.as_deref(), Some(r#"{"status":"success","value":1}"#));
    assert!(matches!(desk.finish(item.id, &json!(2)), Err(Error::HasResult(_))));
    assert_eq!(desk.get(item.id), finished);

    let mut desk = Desk::new();
    let item = desk.item_in(State::CarriedOut);
    let finished = desk.finish(item.id, &json!("x".repeat(MOST_RESULT))).unwrap();
    let result: Value = serde_json::from_str(&finished.result.unwrap()).unwrap();
    assert_eq!(result["left_out"]["bytes"], MOST_RESULT + 2);
}

/// In a home, with the intent of the call in the same transaction.
#[test]
fn of_ten_at_once_exactly_one_takes_the_grant() {
    let home = real_home();
    let record = Record::open(home.path(), Options::default()).unwrap();
    let alice = Approver::make("alice".parse().unwrap()).unwrap();
    let mut terms = terms(&[&alice]);
    terms.home = record.home_id();
    let terms = Arc::new(terms);
    for round in 0..5_u64 {
        let args = json!({"to": round.to_string()});
        let asked = call_by(agent(), round * 100, args.clone());
        let of_asked = new(&asked);
        let (item, _) = record
            .write(Durability::Synced, move |tx| {
                migrate(tx)?;
                enqueue(tx, of_asked, 5)
            })
            .unwrap();
        let reason: hotcell_review::Reason = "fine".parse().unwrap();
        let (verdict, time, expires) = (Verdict::Approve, item.asked, HOUR);
        let statement = item.statement(terms.home, verdict, reason.clone(), time, expires);
        let (approver, signature) = (alice.public().fingerprint(), alice.sign(&statement));
        let given = hotcell_review::Given { verdict, reason, time, expires, approver, signature };
        let (of_terms, id) = (Arc::clone(&terms), item.id);
        let written = record.write(Durability::Synced, move |tx| {
            answer(tx, &of_terms, &Name::LOCAL, id, given, 10)
        });
        assert_eq!(written.unwrap().1.len(), 1);

        let taken: Vec<bool> = thread::scope(|scope| {
            let takers: Vec<_> = (1..=10)
                .map(|number| {
                    let call = call_by(agent(), round * 100 + number, args.clone());
                    let (record, terms) = (record.clone(), Arc::clone(&terms));
                    scope.spawn(move || {
                        let mut intent = Draft::new(EventKind::Intent, agent(), 20);
                        intent.call = Some(call.id());
                        let begun = record
                            .begin_with(intent, move |tx| take_grant(tx, &terms, id, &call, 20));
                        match begun {
                            Ok((grant, intent)) => {
                                assert_eq!(grant.approver().name().as_str(), "alice");
                                let outcome = Draft::new(EventKind::Outcome, agent(), 30);
                                intent.finish(outcome).unwrap();
                                true
                            }
                            Err(WriteError::Own(Error::Is {
                                state: State::CarriedOut, ..
                            })) => false,
                            Err(other) => panic!("{other}"),
                        }
                    })
                })
                .collect();
            takers.into_iter().map(|taker| taker.join().unwrap()).collect()
        });
        assert_eq!(taken.iter().filter(|taken| **taken).count(), 1, "round {round}");
    }
    let of_kind = |kind| Filter { kind: Some(kind), ..Filter::of(Name::LOCAL) };
    assert_eq!(record.events(&of_kind(EventKind::Intent)).unwrap().len(), 5);
    // Asked, answered and used.
    assert_eq!(record.events(&of_kind(EventKind::Review)).unwrap().len(), 15);
    record.close().unwrap();
}
