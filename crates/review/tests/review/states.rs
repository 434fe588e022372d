//! Every pair of a state and something that is done.

use hotcell_review::{Error, State, Verdict, cancel, expire};
use proptest::prelude::*;
use serde_json::json;

use crate::common::*;

#[derive(Debug, Clone, Copy, PartialEq)]
enum Action {
    Approve,
    Reject,
    Cancel,
    /// A while after, and when the time to answer, and to use an approval, is over.
    ExpireEarly,
    ExpireLate,
    Take,
    Finish,
}

use Action::*;

const ACTIONS: [Action; 7] = [Approve, Reject, Cancel, ExpireEarly, ExpireLate, Take, Finish];

/// Some time after everything that `item_in` does, and before anything is over.
const LATER: i64 = 30;

fn act(desk: &mut Desk, item: &hotcell_review::Item, action: Action) -> Result<(), Error> {
    let late = item.expires.max(LATER);
    match action {
        Approve | Reject => {
            let verdict = if action == Approve { Verdict::Approve } else { Verdict::Reject };
            let given = given(&desk.alice, item, verdict, LATER);
            desk.answer(item.id, given, LATER).map(drop)
        }
        Cancel => desk.write(|tx| cancel(tx, &agent(), item.id, LATER)).map(drop),
        ExpireEarly => desk.write(|tx| expire(tx, LATER)).map(drop),
        ExpireLate => desk.write(|tx| expire(tx, late)).map(drop),
        Take => desk.take(item.id, &call(3), LATER).map(drop),
        Finish => desk.finish(item.id, &json!({"status": "success"})).map(drop),
    }
}

/// Where it leads, or `None` if it is refused.
fn expected(state: State, action: Action) -> Option<State> {
    use State::*;
    match (state, action) {
        (Waiting, Action::Approve) => Some(Approved),
        (Waiting, Action::Reject) => Some(Rejected),
        (Waiting | Approved, Action::Cancel) => Some(Cancelled),
        (Waiting | Approved, Action::ExpireLate) => Some(Expired),
        // There is nothing to do, and it is not an error.
        (state, Action::ExpireEarly | Action::ExpireLate) => Some(state),
        (Approved, Action::Take) => Some(CarriedOut),
        (CarriedOut, Action::Finish) => Some(CarriedOut),
        _ => None,
    }
}

#[test]
fn every_action_leads_on_in_one_way_from_every_state() {
    for state in State::ALL {
        for action in ACTIONS {
            let mut desk = Desk::new();
            let item = desk.item_in(state);
            let result = act(&mut desk, &item, action);
            let now = desk.get(item.id);
            match expected(state, action) {
                Some(next) => {
                    assert!(result.is_ok(), "{state} {action:?}: {result:?}");
                    assert_eq!(now.state, next, "{state} {action:?}");
                }
                None => {
                    let is_told =
                        matches!(result, Err(Error::Is { state: told, .. }) if told == state);
                    assert!(is_told, "{state} {action:?}: {result:?}");
                    assert_eq!(now, item, "{state} {action:?}");
                }
            }
            // The call with its secrets is there exactly as long as somebody may have to carry it out.
            let stored = hotcell_review::stored_call(&desk.conn, &item.caller.tenant, item.id);
            assert_eq!(stored.unwrap().is_some(), !now.state.is_end(), "{state} {action:?}");
            assert_eq!(now.ended.is_some(), now.state.is_end(), "{state} {action:?}");
        }
    }
}

/// Whoever goes round the functions meets the tables themselves.
#[test]
fn the_database_itself_refuses_what_no_action_does() {
    for state in State::ALL {
        let mut desk = Desk::new();
        let item = desk.item_in(state);
        let legal = |to: State| ACTIONS.iter().any(|action| expected(state, *action) == Some(to));
        for to in State::ALL.into_iter().filter(|to| *to != state && !legal(*to)) {
            let sql = "UPDATE review SET state = ?1,
                call = CASE WHEN ?1 IN ('waiting', 'approved') THEN x'00' END,
                ended = CASE WHEN ?1 NOT IN ('waiting', 'approved') THEN coalesce(ended, 1) END,
                used = CASE WHEN ?1 = 'carried_out' THEN 1 END";
            assert!(desk.conn.execute(sql, [to.name()]).is_err(), "{state} to {to}");
        }
        for column in ["shown", "subject", "tenant", "rules", "tool"] {
            let sql = format!("UPDATE review SET {column} = 'x'");
            assert!(desk.conn.execute(&sql, []).is_err(), "{state} {column}");
        }
        for sql in [
            "UPDATE review SET call_digest = zeroblob(32)",
            "UPDATE review SET policy_digest = zeroblob(32)",
            "UPDATE review SET expires = expires + 1",
            "UPDATE review_clock SET latest = latest - 1",
            "DELETE FROM review_clock",
        ] {
            assert!(desk.conn.execute(sql, []).is_err(), "{state} {sql}");
        }
        if item.answer.is_some() {
            for sql in [
                "UPDATE review SET grant_expires = grant_expires + 1",
                "UPDATE review SET signature = zeroblob(64)",
                "UPDATE review SET verdict = 'approve'",
            ] {
                assert!(desk.conn.execute(sql, []).is_err(), "{state} {sql}");
            }
        }
        assert_eq!(desk.conn.execute("DELETE FROM review", []).is_ok(), state.is_end(), "{state}");
    }
}

fn actions() -> impl Strategy<Value = Vec<(Action, i64)>> {
    let clock = prop_oneof![-2 * HOUR..30 * HOUR, Just(0), Just(HOUR), Just(24 * HOUR)];
    prop::collection::vec((prop::sample::select(&ACTIONS[..]), clock), 1..12)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// Whatever is done in whatever order, and whatever the clock says meanwhile.
    #[test]
    fn a_grant_is_used_at_most_once_and_only_in_its_time(actions in actions()) {
        let mut desk = Desk::new();
        let item = desk.enqueue(&call(1), 0);
        let (mut used, mut latest) = (0, 0);
        for (action, clock) in actions {
            let before = desk.get(item.id);
            let now = hotcell_review::now(&desk.conn, clock).unwrap();
            prop_assert!(now >= latest && now >= clock);
            let done = match action {
                Approve | Reject => {
                    let verdict = if action == Approve { Verdict::Approve } else { Verdict::Reject };
                    let given = given(&desk.alice, &item, verdict, now);
                    desk.answer(item.id, given, clock).is_ok()
                }
                Cancel => desk.write(|tx| cancel(tx, &agent(), item.id, clock)).is_ok(),
                ExpireEarly | ExpireLate => desk.write(|tx| expire(tx, clock)).is_ok(),
                Take => {
                    let taken = desk.take(item.id, &call(2), clock).is_ok();
                    if taken {
                        used += 1;
                        let answer = before.answer.as_ref().unwrap();
                        prop_assert!(now < answer.given.expires && now >= answer.given.time);
                    }
                    taken
                }
                Finish => desk.finish(item.id, &json!(1)).is_ok(),
            };
            let after = desk.get(item.id);
            prop_assert!(done || after == before);
            prop_assert!(after.state == before.state
                || expected(before.state, action) == Some(after.state)
                || (action == ExpireEarly && after.state == State::Expired));
            if done && action != Finish {
                latest = now;
            }
        }
        prop_assert!(used <= 1);
        prop_assert_eq!(used == 1, desk.get(item.id).used.is_some());
    }
}
