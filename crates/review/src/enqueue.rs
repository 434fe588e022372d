//! What comes into the queue, and how much of it.

use hotcell_approver::ItemId;
use hotcell_record::{Digest, Draft};
use hotcell_request::{Call, Value, canonical};
use hotcell_types::{CallId, Caller};
use rusqlite::{Transaction, params};

use crate::clock::advance;
use crate::error::Error;
use crate::item::{Item, Rule};
use crate::query::{self, digest_of};
use crate::row::rules_text;
use crate::story;
use crate::words::{Kind, State};

/// How long there is to answer, in nanoseconds, unless something else is said: a day.
pub const LASTS: i64 = 24 * 3600 * 1_000_000_000;
/// Longest that can be said.
pub const MOST_LASTS: i64 = 7 * LASTS;
/// Most items that wait: of a tenant, and of one caller, so that a model cannot flood people.
pub const MOST_WAITING: usize = 200;
pub const MOST_WAITING_OF_CALLER: usize = 20;
/// Largest call, in bytes, with and without its secrets. Nobody looks at more.
pub const MOST_CALL: usize = 1 << 20;
/// Most rules that are told about, and longest text of one.
pub const MOST_RULES: usize = 64;
pub const MOST_TEXT: usize = 1000;
/// Longest id of a bearer, in bytes.
pub const MOST_BEARER: usize = 128;
/// Other items may have the name that chance gave.
const TRIES: usize = 8;

/// A call that somebody has to answer.
#[derive(Debug, Clone)]
pub struct New {
    pub kind: Kind,
    /// The policy that asked.
    pub policy: Digest,
    pub rules: Vec<Rule>,
    /// The id of a bearer that is kept for this call.
    pub bearer: Option<String>,
    /// How long there is to answer, in nanoseconds, up to [`MOST_LASTS`].
    pub lasts: i64,
    /// What people see. More can be left out than what the tool says is secret, and nothing added.
    pub shown: Value,
    pub exact: Exact,
}

/// A call, as it is stored: only a call makes one.
#[derive(Clone)]
pub struct Exact {
    caller: Caller,
    call: CallId,
    tool: String,
    operation: String,
    digest: Digest,
    bytes: Vec<u8>,
}

impl std::fmt::Debug for Exact {
    /// Without its secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Exact").field("call", &self.call).finish_non_exhaustive()
    }
}

impl New {
    /// To be answered within a day.
    pub fn of(call: &Call, kind: Kind, policy: Digest) -> New {
        let exact = Exact {
            caller: call.caller().clone(),
            call: call.id(),
            tool: format!("{}@{}", call.name(), call.version()),
            operation: call.operation().to_string(),
            digest: digest_of(call),
            bytes: call.to_bytes(),
        };
        let (rules, shown) = (Vec::new(), call.redacted_args());
        New { kind, policy, rules, bearer: None, lasts: LASTS, shown, exact }
    }
}

/// Puts a call into the queue. If the same call of the same caller waits there already, that item is the
/// answer, and nothing is to be recorded: whoever asks again and again gets one place.
pub fn enqueue(tx: &Transaction<'_>, new: New, clock: i64) -> Result<(Item, Vec<Draft>), Error> {
    let now = advance(tx, clock)?;
    let New { kind, policy, rules, bearer, lasts, shown, exact } = new;
    let shown = canonical::bytes(&shown);
    let bytes = shown.len().max(exact.bytes.len());
    if bytes > MOST_CALL {
        return Err(Error::TooLarge { bytes, most: MOST_CALL });
    }
    if bearer.as_ref().is_some_and(|bearer| bearer.len() > MOST_BEARER) {
        return Err(Error::LongBearer { most: MOST_BEARER });
    }
    if let Some(item) = waiting_already(tx, &exact, kind, policy, now)? {
        return Ok((item, Vec::new()));
    }
    leave_room(tx, &exact.caller, now)?;
    let item = Item {
        // The database says which.
        seq: 0,
        id: free_id(tx)?,
        kind,
        caller: exact.caller,
        call: exact.call,
        tool: exact.tool,
        operation: exact.operation,
        shown: String::from_utf8_lossy(&shown).into_owned(),
        call_digest: exact.digest,
        policy_digest: policy,
        rules: bounded(rules),
        bearer,
        asked: now,
        expires: now.checked_add(lasts.clamp(1, MOST_LASTS)).ok_or(Error::Time)?,
        state: State::Waiting,
        answer: None,
        used: None,
        ended: None,
        result: None,
    };
    insert(tx, &item, &exact.bytes)?;
    let item = query::demand(tx, &item.caller.tenant, item.id)?;
    let drafts = vec![story::event(&item, now)];
    Ok((item, drafts))
}

fn waiting_already(
    tx: &Transaction<'_>,
    exact: &Exact,
    kind: Kind,
    policy: Digest,
    now: i64,
) -> Result<Option<Item>, Error> {
    let which = "call_digest = ?1 AND policy_digest = ?2 AND kind = ?3 AND tenant = ?4
        AND ended IS NULL AND state = 'waiting' AND expires > ?5 LIMIT 1";
    let tenant = exact.caller.tenant.as_str();
    let params = params![exact.digest.0, policy.0, kind.name(), tenant, now];
    Ok(query::select(tx, which, params)?.into_iter().next())
}

fn leave_room(tx: &Transaction<'_>, caller: &Caller, now: i64) -> Result<(), Error> {
    let Caller { tenant, subject, .. } = caller;
    let waiting = "SELECT count(*), count(*) FILTER (WHERE subject = ?2) FROM review
        WHERE tenant = ?1 AND state = 'waiting' AND expires > ?3";
    let (all, own): (i64, i64) = tx
        .prepare_cached(waiting)?
        .query_row(params![tenant.as_str(), subject.as_str(), now], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })?;
    if own >= MOST_WAITING_OF_CALLER as i64 {
        return Err(Error::Full { of: subject.clone(), most: MOST_WAITING_OF_CALLER });
    }
    if all >= MOST_WAITING as i64 {
        return Err(Error::Full { of: tenant.clone(), most: MOST_WAITING });
    }
    Ok(())
}

fn free_id(tx: &Transaction<'_>) -> Result<ItemId, Error> {
    let mut taken = tx.prepare_cached("SELECT 1 FROM review WHERE id = ?1")?;
    for _ in 0..TRIES {
        let id = ItemId::make().map_err(Error::Chance)?;
        if !taken.exists([id.to_bytes()])? {
            return Ok(id);
        }
    }
    Err(Error::Chance(std::io::Error::other("the same ones again and again")))
}

fn insert(tx: &Transaction<'_>, item: &Item, call: &[u8]) -> Result<(), Error> {
    tx.prepare_cached(
        "INSERT INTO review (id, kind, tenant, subject, door, call_id, tool, operation, shown,
             call_digest, policy_digest, rules, bearer, asked, expires, state, call)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17)",
    )?
    .execute(params![
        item.id.to_bytes(),
        item.kind.name(),
        item.caller.tenant.as_str(),
        item.caller.subject.as_str(),
        item.caller.door.name(),
        item.call.to_bytes(),
        item.tool,
        item.operation,
        item.shown,
        item.call_digest.0,
        item.policy_digest.0,
        rules_text(&item.rules),
        item.bearer,
        item.asked,
        item.expires,
        item.state.name(),
        call,
    ])?;
    Ok(())
}

/// What is left out is counted.
fn bounded(mut rules: Vec<Rule>) -> Vec<Rule> {
    let more = rules.len().saturating_sub(MOST_RULES);
    rules.truncate(MOST_RULES);
    for rule in &mut rules {
        cut(&mut rule.name);
        cut(&mut rule.reason);
    }
    if more > 0 {
        rules.push(Rule { name: "…".into(), reason: format!("{more} more rules asked") });
    }
    rules
}

fn cut(text: &mut String) {
    if text.len() > MOST_TEXT {
        let end = (0..=MOST_TEXT).rev().find(|&end| text.is_char_boundary(end));
        text.truncate(end.unwrap_or(0));
        text.push('…');
    }
}
