//! An approval is worth one execution of the exact call that was shown, as long as everything holds under
//! which it was given.

use hotcell_approver::{ItemId, Public, Verdict};
use hotcell_record::{Draft, Kind, is_told};
use hotcell_request::Call;
use rusqlite::{Connection, Transaction, params};

use crate::answer::Terms;
use crate::clock::{advance, now};
use crate::error::Error;
use crate::item::Item;
use crate::query::{self, digest_of};
use crate::story;
use crate::words::State;

/// Proof that somebody agreed to a call. Only [`take_grant`] makes one, and each only once.
///
/// ```compile_fail
/// fn twice(grant: hotcell_review::Grant) -> [hotcell_review::Grant; 2] {
///     [grant.clone(), grant]
/// }
/// ```
#[derive(Debug)]
#[must_use = "an approval that was taken is used up"]
pub struct Grant {
    item: Item,
    approver: Public,
}

impl Grant {
    /// As it is now that the grant is taken.
    pub fn item(&self) -> &Item {
        &self.item
    }

    pub fn approver(&self) -> &Public {
        &self.approver
    }
}

/// Whether [`take_grant`] would give one. Nothing is used up.
pub fn check_grant(
    conn: &Connection,
    terms: &Terms,
    id: ItemId,
    call: &Call,
    clock: i64,
) -> Result<Item, Error> {
    let now = now(conn, clock)?;
    usable(conn, terms, id, call, now).map(|(item, _)| item)
}

/// Takes the grant of an item for this call: exactly once, in the transaction of the call's intent.
pub fn take_grant(
    tx: &Transaction<'_>,
    terms: &Terms,
    id: ItemId,
    call: &Call,
    clock: i64,
) -> Result<(Grant, Vec<Draft>), Error> {
    let now = advance(tx, clock)?;
    let (_, approver) = usable(tx, terms, id, call, now)?;
    tx.prepare_cached(
        "UPDATE review SET state = 'carried_out', used = ?2, used_by = ?3, ended = ?2, call = NULL
             WHERE id = ?1",
    )?
    .execute(params![id.to_bytes(), now, call.id().to_bytes()])?;
    let item = query::demand(tx, &call.caller().tenant, id)?;
    let drafts = vec![story::event(&item, now)];
    Ok((Grant { item, approver }, drafts))
}

fn usable(
    conn: &Connection,
    terms: &Terms,
    id: ItemId,
    call: &Call,
    now: i64,
) -> Result<(Item, Public), Error> {
    let item = query::demand(conn, &call.caller().tenant, id)?;
    let given = match &item.answer {
        Some(answer) if item.state == State::Approved => &answer.given,
        _ => return Err(Error::Is { id, state: item.state }),
    };
    if item.call_digest != digest_of(call) {
        return Err(Error::OtherCall(id));
    }
    // A row can be put back to what it was before; what the chain says stays.
    if is_told(conn, Kind::Review, item.call, &story::used(id))? {
        return Err(Error::Is { id, state: State::CarriedOut });
    }
    // Signed and known, whatever the row says of itself.
    let approver = terms.check(&item, given)?.clone();
    if given.verdict != Verdict::Approve {
        return Err(Error::Is { id, state: State::Rejected });
    }
    if now >= given.expires {
        return Err(Error::GrantExpired(id));
    }
    Ok((item, approver))
}
