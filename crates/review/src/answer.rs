//! Answers, checked against the item as it is stored and against what holds now.

use hotcell_approver::{Approvers, ItemId, Public, Verdict};
use hotcell_record::{Digest, Draft, HomeId};
use hotcell_types::Name;
use rusqlite::{Transaction, params};

use crate::clock::advance;
use crate::error::Error;
use crate::item::{Given, Item};
use crate::query;
use crate::story;
use crate::words::State;

/// Longest time that an approval can be used, in nanoseconds: a day.
pub const MOST_GRANT: i64 = 24 * 3600 * 1_000_000_000;

/// What holds now in a home.
#[derive(Debug, Clone)]
pub struct Terms {
    pub home: HomeId,
    /// The policy that is followed.
    pub policy: Digest,
    /// Whose answers count.
    pub approvers: Approvers,
}

/// Answers an item that waits.
pub fn answer(
    tx: &Transaction<'_>,
    terms: &Terms,
    tenant: &Name,
    id: ItemId,
    given: Given,
    clock: i64,
) -> Result<(Item, Vec<Draft>), Error> {
    let now = advance(tx, clock)?;
    let item = query::demand(tx, tenant, id)?;
    if item.state != State::Waiting {
        return Err(Error::Is { id, state: item.state });
    }
    if now >= item.expires {
        return Err(Error::Expired(id));
    }
    let name = terms.check(&item, &given)?.name();
    if given.time < item.asked || given.time > now {
        return Err(Error::OtherTime);
    }
    let latest = given.time.checked_add(MOST_GRANT).ok_or(Error::Time)?;
    if given.verdict == Verdict::Approve && (given.expires <= now || given.expires > latest) {
        return Err(Error::BadExpiry);
    }
    write(tx, id, &given, name, now)?;
    let item = query::demand(tx, tenant, id)?;
    let drafts = vec![story::event(&item, now)];
    Ok((item, drafts))
}

impl Terms {
    /// Whether somebody who may answers this item so, under the policy that asked.
    pub(crate) fn check(&self, item: &Item, given: &Given) -> Result<&Public, Error> {
        if item.policy_digest != self.policy {
            return Err(Error::OtherPolicy(item.id));
        }
        let known = self.approvers.by_fingerprint(given.approver);
        let approver = known.ok_or(Error::UnknownApprover)?;
        let Given { verdict, reason, time, expires, .. } = given.clone();
        let statement = item.statement(self.home, verdict, reason, time, expires);
        approver.verify(&statement, &given.signature)?;
        if *approver.name() == item.caller.subject {
            return Err(Error::OwnCall(approver.name().clone()));
        }
        Ok(approver)
    }
}

fn write(
    tx: &Transaction<'_>,
    id: ItemId,
    given: &Given,
    name: &Name,
    now: i64,
) -> Result<(), Error> {
    let state = match given.verdict {
        Verdict::Approve => State::Approved,
        Verdict::Reject => State::Rejected,
    };
    let ended = state.is_end().then_some(now);
    tx.prepare_cached(
        "UPDATE review SET state = ?2, verdict = ?3, approver = ?4, approver_name = ?5, reason = ?6,
             answered = ?7, grant_expires = ?8, signature = ?9, ended = ?10,
             call = CASE WHEN ?10 IS NULL THEN call END
         WHERE id = ?1",
    )?
    .execute(params![
        id.to_bytes(),
        state.name(),
        given.verdict.name(),
        given.approver.to_string(),
        name.as_str(),
        given.reason.as_str(),
        given.time,
        given.expires,
        given.signature.to_bytes(),
        ended,
    ])?;
    Ok(())
}
