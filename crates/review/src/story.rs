//! An item as the record tells it: every event about it is made here. Whoever has the record and the
//! approver's public key can verify an answer from them alone.

use hotcell_approver::ItemId;
use hotcell_record::{Draft, Kind as EventKind, Payload};
use hotcell_request::canonical;
use hotcell_types::{Decision, Status, hex};
use serde_json::{Value, json};

use crate::item::{Answered, Item};
use crate::words::{Kind, State};

/// What an item has come to.
pub(crate) fn event(item: &Item, time: i64) -> Draft {
    let mut draft = Draft::new(EventKind::Review, item.caller.clone(), time);
    draft.call = Some(item.call);
    draft.operation = Some(item.operation.clone());
    draft.tool = Some(item.tool.clone());
    draft.rules = item.rules.iter().map(|rule| rule.name.clone()).collect();
    draft.bearer = item.bearer.clone();
    draft.decision = Some(decision(item));
    draft.status = status(item.state);
    draft.reason = Some(reason(item));
    // Once: what is asked for stays the same.
    if item.state == State::Waiting {
        let content = item.shown.clone().into_bytes();
        draft.input = Some(Payload { media: "application/json".into(), content });
    }
    let content = canonical::bytes(&document(item));
    draft.output = Some(Payload { media: "application/json".into(), content });
    draft
}

fn decision(item: &Item) -> Decision {
    match (item.state, item.kind) {
        (State::Waiting, Kind::Review | Kind::Policy) => Decision::Review,
        (State::Approved | State::CarriedOut, _) => Decision::Allow,
        (State::Waiting, Kind::Blocked) => Decision::Deny,
        (State::Rejected | State::Expired | State::Cancelled, _) => Decision::Deny,
    }
}

fn status(state: State) -> Option<Status> {
    match state {
        State::Waiting => Some(Status::Review),
        State::Rejected | State::Expired => Some(Status::Blocked),
        State::Cancelled => Some(Status::Cancelled),
        State::Approved | State::CarriedOut => None,
    }
}

fn reason(item: &Item) -> String {
    let Item { id, state, .. } = item;
    match (&item.answer, state) {
        (None, State::Waiting) => {
            let reasons: Vec<&str> = item.rules.iter().map(|rule| rule.reason.as_str()).collect();
            let reasons = if reasons.is_empty() { vec!["no rule allows it"] } else { reasons };
            format!("item {id} is waiting: {}", reasons.join("; "))
        }
        (Some(answer), State::Approved | State::Rejected) => {
            let by = format!("{} ({})", answer.name, answer.given.approver);
            format!("item {id} is {state}, by {by}: {}", answer.given.reason)
        }
        (_, State::CarriedOut) => used(*id),
        _ => format!("item {id} is {state}"),
    }
}

/// What the chain says of an approval that was taken.
pub(crate) fn used(id: ItemId) -> String {
    format!("item {id}: its approval is used")
}

fn document(item: &Item) -> Value {
    let mut document = json!({
        "item": item.id.to_string(),
        "kind": item.kind.name(),
        "state": item.state.name(),
        "call_digest": item.call_digest,
        "policy_digest": item.policy_digest,
        "asked": item.asked,
        "expires": item.expires,
    });
    let mut add = |name: &str, value: Value| {
        document.as_object_mut().map(|all| all.insert(name.into(), value))
    };
    if let Some(Answered { given, name }) = &item.answer {
        add(
            "answer",
            json!({
                "verdict": given.verdict.name(),
                "approver": given.approver.to_string(),
                "name": name.as_str(),
                "reason": given.reason.as_str(),
                "time": given.time,
                "expires": given.expires,
                "signature": hex::text(&given.signature.to_bytes()),
            }),
        );
    }
    if let Some((time, call)) = item.used {
        add("used", json!({"time": time, "call": call}));
    }
    document
}
