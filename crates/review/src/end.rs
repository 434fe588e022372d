//! The other ends of an item, and what comes after.

use hotcell_approver::ItemId;
use hotcell_record::Draft;
use hotcell_request::{Value, canonical};
use hotcell_types::{Caller, Name};
use rusqlite::{Connection, Transaction, params};
use serde_json::json;

use crate::clock::{advance, now};
use crate::error::Error;
use crate::item::Item;
use crate::query::{self, OVER};
use crate::story;
use crate::words::State;

/// Most items that one transaction lets expire, and removes.
pub const MOST_EXPIRED: usize = 32;
pub const MOST_PRUNED: usize = 1000;
/// Largest result that is kept for a caller who comes back, in bytes.
pub const MOST_RESULT: usize = 256 << 10;

/// Takes back what was asked, answered or not. Only whoever asked can do that.
pub fn cancel(
    tx: &Transaction<'_>,
    by: &Caller,
    id: ItemId,
    clock: i64,
) -> Result<(Item, Vec<Draft>), Error> {
    let now = advance(tx, clock)?;
    let item = query::demand(tx, &by.tenant, id)?;
    if item.caller.subject != by.subject {
        return Err(Error::NoItem(id));
    }
    if item.state.is_end() {
        return Err(Error::Is { id, state: item.state });
    }
    let item = end(tx, &item, State::Cancelled, now)?;
    let drafts = vec![story::event(&item, now)];
    Ok((item, drafts))
}

/// Ends what nobody answered in time, and approvals that nobody used in time, of all tenants. At most
/// [`MOST_EXPIRED`]: whoever gets so many asks again.
///
/// A refusal changes nothing, not even the latest time that was seen. Write this before an answer or a
/// grant is looked at, so that what was over once stays over when the clock is set back.
pub fn expire(tx: &Transaction<'_>, clock: i64) -> Result<(Vec<Item>, Vec<Draft>), Error> {
    let now = advance(tx, clock)?;
    let over = format!("ended IS NULL AND {OVER} <= ?1 ORDER BY seq LIMIT ?2");
    let over = query::select(tx, &over, params![now, MOST_EXPIRED as i64])?;
    let ended = over.iter().map(|item| end(tx, item, State::Expired, now));
    let items = ended.collect::<Result<Vec<Item>, Error>>()?;
    let drafts = items.iter().map(|item| story::event(item, now)).collect();
    Ok((items, drafts))
}

/// Whether there is anything for [`expire`] to end.
pub fn is_any_over(conn: &Connection, clock: i64) -> Result<bool, Error> {
    let over = format!("SELECT 1 FROM review WHERE ended IS NULL AND {OVER} <= ?1");
    Ok(conn.prepare_cached(&over)?.exists([now(conn, clock)?])?)
}

fn end(tx: &Transaction<'_>, item: &Item, state: State, now: i64) -> Result<Item, Error> {
    tx.prepare_cached("UPDATE review SET state = ?2, ended = ?3, call = NULL WHERE id = ?1")?
        .execute(params![item.id.to_bytes(), state.name(), now])?;
    query::demand(tx, &item.caller.tenant, item.id)
}

/// Keeps what came of a call whose grant was taken, for a caller who comes back. The outcome is the
/// event about it, so that there is no other. What is too large is left out, and that is said.
pub fn finish(
    tx: &Transaction<'_>,
    tenant: &Name,
    id: ItemId,
    result: &Value,
) -> Result<Item, Error> {
    let item = query::demand(tx, tenant, id)?;
    match (item.state, &item.result) {
        (State::CarriedOut, None) => {}
        (State::CarriedOut, Some(_)) => return Err(Error::HasResult(id)),
        (state, _) => return Err(Error::Is { id, state }),
    }
    let mut bytes = canonical::bytes(result);
    if bytes.len() > MOST_RESULT {
        bytes = canonical::bytes(&json!({"left_out": {"bytes": bytes.len(), "most": MOST_RESULT}}));
    }
    tx.prepare_cached("UPDATE review SET result = ?2 WHERE id = ?1")?
        .execute(params![id.to_bytes(), String::from_utf8_lossy(&bytes)])?;
    query::demand(tx, tenant, id)
}

/// Removes items that ended before this time, at most [`MOST_PRUNED`]; how many. The record still tells
/// about them.
pub fn prune(tx: &Transaction<'_>, before: i64) -> Result<usize, Error> {
    let old = "DELETE FROM review WHERE seq IN
        (SELECT seq FROM review WHERE ended < ?1 ORDER BY seq LIMIT ?2)";
    Ok(tx.prepare_cached(old)?.execute(params![before, MOST_PRUNED as i64])?)
}
