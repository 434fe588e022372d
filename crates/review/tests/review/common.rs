//! A queue to try things on, with somebody who asks and somebody who answers.

use hotcell_approver::{Approver, Approvers};
use hotcell_record::{Digest, Draft, Hex, HomeId};
use hotcell_request::{Arguments, Call, Registry, Request, Tool, Value};
use hotcell_review::{
    Connection, Error, Given, Item, ItemId, Kind, New, Reason, Rule, State, Terms, Transaction,
    Verdict, answer, cancel, enqueue, expire, finish, get, migrate, take_grant,
};
use hotcell_types::{CallId, Caller, Door, Name};
use serde_json::json;

pub(crate) const HOUR: i64 = 3600 * 1_000_000_000;
pub(crate) const HOME: HomeId = Hex([1; 16]);
pub(crate) const POLICY: Digest = Hex([2; 32]);

pub(crate) fn registry() -> Registry {
    let registry = Registry::new();
    let tool = json!({
        "name": "deploy", "version": "1.0.0", "description": "Deploys.", "effects": ["network"],
        "input": {"type": "object", "properties": {
            "to": {"type": "string"},
            "key": {"type": "string", "x-hotcell": "secret"},
        }}
    });
    registry.register(Tool::from_json(tool.to_string().as_bytes()).unwrap()).unwrap();
    registry
}

pub(crate) fn agent() -> Caller {
    Caller::local("agent".parse().unwrap(), Door::Mcp)
}

pub(crate) fn id(number: u64) -> CallId {
    let mut chance = [0; 10];
    chance[2..].copy_from_slice(&number.to_be_bytes());
    CallId::new(1_700_000_000_000, chance)
}

pub(crate) fn call_by(caller: Caller, number: u64, args: Value) -> Call {
    let request = Request::new("deploy".parse().unwrap(), Arguments::Value(args));
    Call::new(request, caller, id(number), &registry()).unwrap()
}

/// Each time with another id, and the same in everything else.
pub(crate) fn call(number: u64) -> Call {
    call_by(agent(), number, json!({"to": "production", "key": "hunter22"}))
}

/// What holds where this approver answers.
pub(crate) fn terms(approvers: &[&Approver]) -> Terms {
    let approvers = Approvers::new(approvers.iter().map(|one| one.public())).unwrap();
    Terms { home: HOME, policy: POLICY, approvers }
}

/// What somebody signs to answer this item.
pub(crate) fn given(by: &Approver, item: &Item, verdict: Verdict, time: i64) -> Given {
    given_until(by, item, verdict, time, time + HOUR)
}

pub(crate) fn given_until(
    by: &Approver,
    item: &Item,
    verdict: Verdict,
    time: i64,
    expires: i64,
) -> Given {
    let reason: Reason = "looks right".parse().unwrap();
    let statement = item.statement(HOME, verdict, reason.clone(), time, expires);
    let (approver, signature) = (by.public().fingerprint(), by.sign(&statement));
    Given { verdict, reason, time, expires, approver, signature }
}

pub(crate) fn new(call: &Call) -> New {
    let rule = Rule { name: "look-first".into(), reason: "it reaches production".into() };
    let bearer = Some("bearer 7".to_owned());
    New { rules: vec![rule], bearer, ..New::of(call, Kind::Review, POLICY) }
}

/// A queue in memory.
pub(crate) struct Desk {
    pub(crate) conn: Connection,
    pub(crate) alice: Approver,
    pub(crate) terms: Terms,
}

impl Desk {
    pub(crate) fn new() -> Desk {
        let alice = Approver::make("alice".parse().unwrap()).unwrap();
        let terms = terms(&[&alice]);
        let mut desk = Desk { conn: Connection::open_in_memory().unwrap(), alice, terms };
        desk.write(migrate).unwrap();
        // What the chain says of a call, as far as anybody here looks.
        desk.conn.execute_batch("CREATE TABLE event (call BLOB, kind TEXT, reason TEXT)").unwrap();
        desk
    }

    /// As the record does it: all, or nothing.
    pub(crate) fn write<T>(
        &mut self,
        write: impl FnOnce(&Transaction<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let tx = self.conn.transaction().unwrap();
        let written = write(&tx)?;
        tx.commit().unwrap();
        Ok(written)
    }

    pub(crate) fn enqueue(&mut self, call: &Call, clock: i64) -> Item {
        self.write(|tx| enqueue(tx, new(call), clock)).unwrap().0
    }

    pub(crate) fn answer(&mut self, id: ItemId, given: Given, clock: i64) -> Result<Item, Error> {
        let terms = self.terms.clone();
        self.write(|tx| answer(tx, &terms, &Name::LOCAL, id, given, clock)).map(|done| done.0)
    }

    pub(crate) fn take(&mut self, id: ItemId, call: &Call, clock: i64) -> Result<Item, Error> {
        let terms = self.terms.clone();
        let taken = self.write(|tx| take_grant(tx, &terms, id, call, clock));
        taken.map(|(grant, _)| grant.item().clone())
    }

    pub(crate) fn get(&self, id: ItemId) -> Item {
        get(&self.conn, &Name::LOCAL, id).unwrap().unwrap()
    }

    /// An item of `call(1)` that was asked at 0 and answered at 10, in this state.
    pub(crate) fn item_in(&mut self, state: State) -> Item {
        let item = self.enqueue(&call(1), 0);
        match state {
            State::Waiting => {}
            State::Cancelled => drop(self.write(|tx| cancel(tx, &agent(), item.id, 10)).unwrap()),
            State::Expired => drop(self.write(|tx| expire(tx, item.expires)).unwrap()),
            State::Approved | State::Rejected | State::CarriedOut => {
                let is_rejected = state == State::Rejected;
                let verdict = if is_rejected { Verdict::Reject } else { Verdict::Approve };
                let given = given(&self.alice, &item, verdict, 10);
                self.answer(item.id, given, 10).unwrap();
            }
        }
        if state == State::CarriedOut {
            self.take(item.id, &call(2), 20).unwrap();
        }
        let item = self.get(item.id);
        assert_eq!(item.state, state);
        item
    }

    pub(crate) fn finish(&mut self, id: ItemId, result: &Value) -> Result<Item, Error> {
        self.write(|tx| finish(tx, &Name::LOCAL, id, result))
    }
}

/// What an event says, as the record would keep it.
pub(crate) fn document(draft: &Draft) -> Value {
    serde_json::from_slice(&draft.output.as_ref().unwrap().content).unwrap()
}
