//! Who may answer what, and until when.

use hotcell_approver::Approver;
use hotcell_record::Hex;
use hotcell_review::{Error, Item, MOST_GRANT, State, Terms, Verdict, answer, expire, get};
use hotcell_types::Name;
use serde_json::json;

use crate::common::*;

#[test]
fn an_answer_is_kept_as_it_was_signed_and_told_to_the_record() {
    for (verdict, state) in
        [(Verdict::Approve, State::Approved), (Verdict::Reject, State::Rejected)]
    {
        let mut desk = Desk::new();
        let item = desk.enqueue(&call(1), 5);
        let given = given(&desk.alice, &item, verdict, 10);
        let terms = desk.terms.clone();
        let (answered, drafts) =
            desk.write(|tx| answer(tx, &terms, &Name::LOCAL, item.id, given.clone(), 10)).unwrap();
        assert_eq!(answered.state, state);
        let kept = answered.answer.unwrap();
        assert_eq!((&kept.given, kept.name.as_str()), (&given, "alice"));
        let [draft] = &drafts[..] else { panic!("{drafts:?}") };
        assert_eq!((draft.call, draft.time), (Some(id(1)), 10));
        let told = document(draft);
        assert_eq!(told["state"], state.name());
        assert_eq!(told["answer"]["approver"], desk.alice.public().fingerprint().to_string());
        // From what the record has, a stranger can verify it.
        let signature: String = told["answer"]["signature"].as_str().unwrap().into();
        assert_eq!(hotcell_types::hex::text(&given.signature.to_bytes()), signature);
    }
}

/// An item, what holds, and an answer to another than this item.
fn refused(change: impl FnOnce(&mut Desk, &mut Item, &mut Terms)) -> Error {
    let mut desk = Desk::new();
    let item = desk.enqueue(&call(1), 5);
    let (mut signed, mut terms) = (item.clone(), desk.terms.clone());
    change(&mut desk, &mut signed, &mut terms);
    let given = given(&desk.alice, &signed, Verdict::Approve, 10);
    let result = desk.write(|tx| answer(tx, &terms, &Name::LOCAL, item.id, given, 10));
    assert_eq!(desk.get(item.id), item);
    result.unwrap_err()
}

#[test]
fn pol_17_an_answer_to_something_else_is_none() {
    let changes: [fn(&mut Item); 3] = [
        |item| item.id = hotcell_review::ItemId::from_bytes([7; 5]),
        |item| item.call_digest.0[31] ^= 1,
        |item| item.policy_digest.0[0] ^= 1,
    ];
    for (number, change) in changes.into_iter().enumerate() {
        let error = refused(|_, item, _| change(item));
        assert!(matches!(error, Error::NotSigned(_)), "change {number}: {error}");
    }
    // Given in another home.
    let error = refused(|_, _, terms| terms.home = Hex([9; 16]));
    assert!(matches!(error, Error::NotSigned(_)), "{error}");
}

#[test]
fn an_answer_is_not_changed_on_its_way() {
    let mut desk = Desk::new();
    let item = desk.enqueue(&call(1), 5);
    let changes: [fn(&mut hotcell_review::Given); 5] = [
        |given| given.verdict = Verdict::Reject,
        |given| given.reason = "looks wrong".parse().unwrap(),
        |given| given.time += 1,
        |given| given.expires += 1,
        |given| {
            let mut signature = given.signature.to_bytes();
            signature[63] ^= 1;
            given.signature = hotcell_review::Signature::from_bytes(signature);
        },
    ];
    for (number, change) in changes.into_iter().enumerate() {
        let mut given = given(&desk.alice, &item, Verdict::Approve, 10);
        change(&mut given);
        let error = desk.answer(item.id, given, 20).unwrap_err();
        assert!(matches!(error, Error::NotSigned(_)), "change {number}: {error}");
    }
}

#[test]
fn an_answer_counts_if_its_approver_is_known_and_somebody_else_and_the_policy_the_same() {
    let error = refused(|_, _, terms| terms.approvers = Default::default());
    assert!(matches!(error, Error::UnknownApprover), "{error}");
    let error = refused(|desk, _, _| {
        desk.alice = Approver::make("alice".parse().unwrap()).unwrap();
    });
    assert!(matches!(error, Error::UnknownApprover), "{error}");
    // Another key in the place of the known one.
    let error = refused(|desk, _, terms| {
        let other = Approver::make("alice".parse().unwrap()).unwrap();
        *terms = crate::common::terms(&[&other]);
        desk.terms = terms.clone();
    });
    assert!(matches!(error, Error::UnknownApprover), "{error}");
    let error = refused(|_, _, terms| terms.policy.0[5] ^= 1);
    assert!(matches!(error, Error::OtherPolicy(_)), "{error}");
    let error = refused(|desk, _, terms| {
        desk.alice = Approver::make("agent".parse().unwrap()).unwrap();
        *terms = crate::common::terms(&[&desk.alice]);
    });
    assert!(matches!(error, Error::OwnCall(_)), "{error}");
}

#[test]
fn tenants_do_not_see_each_others_items() {
    let mut desk = Desk::new();
    let item = desk.enqueue(&call(1), 5);
    let other: Name = "other".parse().unwrap();
    assert_eq!(get(&desk.conn, &other, item.id).unwrap(), None);
    let (given, terms) = (given(&desk.alice, &item, Verdict::Approve, 10), desk.terms.clone());
    let result = desk.write(|tx| answer(tx, &terms, &other, item.id, given, 10));
    assert!(matches!(result, Err(Error::NoItem(_))));
    let mut stranger = agent();
    stranger.subject = "stranger".parse().unwrap();
    let result = desk.write(|tx| hotcell_review::cancel(tx, &stranger, item.id, 10));
    assert!(matches!(result, Err(Error::NoItem(_))));
    // The same arguments, asked by somebody else, are another call.
    let theirs = call_by(stranger, 2, json!({"to": "production", "key": "hunter22"}));
    assert_ne!(desk.enqueue(&theirs, 10).id, item.id);
}

#[test]
fn an_answer_is_of_the_time_between_the_question_and_now() {
    for (time, clock, expires, is_good) in [
        (100, 100, 200, true),
        (100, 150, 200, true),
        (99, 150, 200, false),
        (151, 150, 200, false),
        (150, 150, 150, false),
        (100, 150, 150, false),
        (100, 150, 151, true),
        (100, 150, 100 + MOST_GRANT, true),
        (100, 150, 101 + MOST_GRANT, false),
        (100, 150, i64::MAX, false),
    ] {
        let mut desk = Desk::new();
        let item = desk.enqueue(&call(1), 100);
        let given = given_until(&desk.alice, &item, Verdict::Approve, time, expires);
        let result = desk.answer(item.id, given, clock);
        assert_eq!(result.is_ok(), is_good, "{time} {clock} {expires}: {result:?}");
    }
}

#[test]
fn tok_14_time_is_over_at_its_exact_end_and_does_not_come_back() {
    let mut desk = Desk::new();
    let item = desk.enqueue(&call(1), 0);
    let given = |desk: &Desk, time| given(&desk.alice, &item, Verdict::Approve, time);
    let (last, over) = (item.expires - 1, item.expires);
    let late = desk.answer(item.id, given(&desk, over), over);
    assert!(matches!(late, Err(Error::Expired(_))), "{late:?}");
    // Before the end, nothing ends; a refusal did not move time either.
    assert!(desk.write(|tx| expire(tx, last)).unwrap().0.is_empty());
    let (ended, drafts) = desk.write(|tx| expire(tx, over)).unwrap();
    assert_eq!((ended.len(), drafts.len(), ended[0].state), (1, 1, State::Expired));
    assert_eq!(ended[0].bearer.as_deref(), Some("bearer 7"));
    // The clock is set back a day.
    let back = desk.answer(item.id, given(&desk, 10), 10);
    assert!(matches!(back, Err(Error::Is { state: State::Expired, .. })), "{back:?}");
    assert_eq!(hotcell_review::now(&desk.conn, 10).unwrap(), over);
    let next = desk.enqueue(&call(2), 10);
    assert_eq!((next.asked, next.expires), (over, 2 * over));
    assert_ne!(next.id, item.id);

    // To answer at the last moment is in time.
    let mut desk = Desk::new();
    let item = desk.enqueue(&call(1), 0);
    let given = crate::common::given(&desk.alice, &item, Verdict::Approve, last);
    assert!(desk.answer(item.id, given, last).is_ok());
}
