//! What changes bearers. Each function is part of the caller's transaction, and gives back a [`Change`]
//! that belongs into the chain in that transaction. What is refused has changed nothing but the time.

use hotcell_types::{CallId, Name, Span};
use rusqlite::{Transaction, params};

use crate::check::{Covered, Who, Why};
use crate::claims::{Audience, Claims, Digest, Holder, MAX_DEPTH, Scope};
use crate::error::Error;
use crate::id::BearerId;
use crate::ring::Ring;
use crate::rows::Stored;
use crate::schema;
use crate::statement::{Change, Statement, What};
use crate::store;
use crate::time::{Mark, Moment};
use crate::token::{Bearer, MAX_CLAIMS, Presented};

/// Most bearers that are kept, those that expired and were not swept included.
pub const MAX_KEPT: u64 = 10_000_000;
/// How long one is kept after it has expired, in nanoseconds: a week.
pub const KEPT_EXPIRED: i64 = 7 * 24 * 3600 * 1_000_000_000;
/// Most that one sweep removes.
pub const MAX_SWEPT: usize = 10_000;

/// Proof that somebody who may allow it has allowed every call of a scope. Only the engine makes these:
/// of an evaluation of the policy over the whole scope in which no deny and no review could speak.
#[derive(Debug, Clone)]
pub struct Allowed {
    audience: Audience,
    holder: Holder,
    scope: Scope,
    policy: Digest,
}

impl Allowed {
    /// By the policy of that digest: makes a token.
    pub fn by_policy(holder: Holder, scope: Scope, policy: Digest) -> Allowed {
        Allowed { audience: Audience::Token, holder, scope, policy }
    }
}

/// What a child is to be: no more than its parent.
#[derive(Debug, Clone)]
pub struct Narrower {
    pub run: Option<CallId>,
    pub scope: Scope,
    /// Operations that it takes from its parent.
    pub uses: u32,
    /// As long as its parent, if nobody says.
    pub life: Option<Span>,
}

/// A new bearer.
#[derive(Debug)]
#[non_exhaustive]
pub struct Minted {
    pub bearer: Bearer,
    pub claims: Claims,
    pub change: Change,
}

/// Makes a bearer of what was allowed: for so many operations, and for as long as is usual if nobody says.
pub fn mint(
    tx: &Transaction<'_>,
    ring: &Ring,
    allowed: Allowed,
    uses: u32,
    life: Option<Span>,
    moment: &Moment,
) -> Result<Minted, Error> {
    let now = advance(tx, moment)?;
    let Allowed { audience, holder, scope, policy } = allowed;
    let claims = Claims {
        id: new_id()?,
        audience,
        holder,
        scope,
        uses,
        issued: now,
        expires: end(now, life.unwrap_or(audience.usual_life()))?,
        nonce: next(tx)?,
        policy,
        parent: None,
    };
    Signed::new(ring, claims)?.keep(tx)
}

/// Makes a child of a bearer for the same holder. It takes its operations from the parent, whose change
/// comes second.
pub fn attenuate(
    tx: &Transaction<'_>,
    ring: &Ring,
    parent: &Presented,
    who: &Who<'_>,
    policy: Digest,
    narrower: Narrower,
    moment: &Moment,
) -> Result<(Minted, Change), Error> {
    let (now, own, depth) = stands(tx, parent, moment)?;
    let claims = own.claims;
    if !claims.holder.is(who) {
        return Err(Why::Subject.into());
    }
    if claims.policy != policy {
        return Err(Why::Policy.into());
    }
    if depth >= MAX_DEPTH {
        return Err(Why::Deep.into());
    }
    let Narrower { run, scope, uses, life } = narrower;
    let child = Claims {
        id: new_id()?,
        audience: claims.audience,
        holder: Holder { run: run.or(claims.holder.run), ..claims.holder.clone() },
        scope,
        uses,
        issued: now,
        expires: life.map_or(Ok(claims.expires), |life| end(now, life))?,
        nonce: next(tx)?,
        policy,
        parent: Some(claims.id),
    };
    let child = Signed::new(ring, child)?;
    if !claims.includes(&child.claims) {
        return Err(Why::Wider.into());
    }
    let shared = take(tx, claims.nonce, uses, What::Shared, now)?;
    Ok((child.keep(tx)?, shared))
}

/// Uses one operation. What the proof says of the call stays true; what may have changed since is looked
/// at again: time, revocation of it and of its ancestors, and what is left.
pub fn consume(tx: &Transaction<'_>, covered: Covered, moment: &Moment) -> Result<Change, Error> {
    let (now, own, _) = stands(tx, &covered.0, moment)?;
    take(tx, own.claims.nonce, 1, What::Used, now)
}

/// Sets one operation aside while a call waits for the answer to a review.
pub fn reserve(
    tx: &Transaction<'_>,
    covered: Covered,
    call: CallId,
    moment: &Moment,
) -> Result<Change, Error> {
    let (now, own, _) = stands(tx, &covered.0, moment)?;
    if store::holding(tx, call.to_bytes())?.is_some() {
        return Err(Error::Reserved);
    }
    let change = take(tx, own.claims.nonce, 1, What::Reserved, now)?;
    let hold = "INSERT INTO bearer_held (call, nonce) VALUES (?1, ?2)";
    tx.prepare_cached(hold)?.execute(params![call.to_bytes(), signed(own.claims.nonce)])?;
    Ok(change)
}

/// Uses the operation that the review of this call held, now that somebody has agreed. It may have expired
/// since, but not have been revoked.
pub fn redeem(tx: &Transaction<'_>, call: CallId) -> Result<Change, Error> {
    let lineage = store::held(tx, call)?.ok_or(Error::NotReserved)?;
    lineage.stands(None)?;
    unhold(tx, call, 0, What::Used)
}

/// Gives back the operation that the review of this call held.
pub fn release(tx: &Transaction<'_>, call: CallId) -> Result<Change, Error> {
    unhold(tx, call, 1, What::Released)
}

/// Makes a bearer worth nothing, and with it everything that was derived from it. `None` if it is revoked.
pub fn revoke(
    tx: &Transaction<'_>,
    tenant: &Name,
    id: BearerId,
    moment: &Moment,
) -> Result<Option<Change>, Error> {
    let stored = store::get(tx, tenant, id)?.ok_or(Error::NoBearer(id))?;
    let now = advance(tx, moment)?;
    let revoke = "UPDATE bearer SET revoked = ?1, changes = changes + 1
        WHERE nonce = ?2 AND revoked IS NULL";
    let nonce = stored.claims.nonce;
    let changed = tx.prepare_cached(revoke)?.execute(params![now, signed(nonce)])?;
    if changed == 0 { Ok(None) } else { change(tx, What::Revoked, nonce).map(Some) }
}

/// Bearers that were removed: all with numbers up to this one.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Swept {
    pub count: u64,
    pub upto: u64,
    pub statement: Statement,
}

/// Removes bearers that expired long ago, in their order; `None` if the first one did not. At most
/// [`MAX_SWEPT`] at a time.
pub fn sweep(tx: &Transaction<'_>, moment: &Moment) -> Result<Option<Swept>, Error> {
    if !schema::is_current(tx)? {
        return Ok(None);
    }
    let before = advance(tx, moment)?.saturating_sub(KEPT_EXPIRED);
    let mut first =
        tx.prepare_cached("SELECT nonce, expires FROM bearer ORDER BY nonce LIMIT ?1")?;
    let mut rows = first.query([MAX_SWEPT as i64])?;
    let (mut count, mut last) = (0, 0_i64);
    while let Some(row) = rows.next()?.filter(|row| row.get(1).is_ok_and(|end: i64| end < before)) {
        (count, last) = (count + 1, row.get(0)?);
    }
    drop(rows);
    let Some(upto) = u64::try_from(last).ok().filter(|upto| *upto > 0) else { return Ok(None) };
    for step in [
        "UPDATE bearer_mark SET swept = ?1",
        "DELETE FROM bearer_held WHERE nonce <= ?1",
        "DELETE FROM bearer WHERE nonce <= ?1",
    ] {
        tx.prepare_cached(step)?.execute([last])?;
    }
    Ok(Some(Swept { count, upto, statement: Statement::of_sweep(upto) }))
}

/// One that only wants to be written.
struct Signed {
    bearer: Bearer,
    claims: Claims,
    body: Vec<u8>,
}

impl Signed {
    fn new(ring: &Ring, claims: Claims) -> Result<Signed, Error> {
        if !claims.is_possible() {
            return Err(Error::Impossible("it lives too long, or has too many operations or none"));
        }
        let body = claims.encode();
        if body.len() > MAX_CLAIMS {
            return Err(Error::Impossible("its patterns of paths are too long"));
        }
        Ok(Signed { bearer: Bearer::sign(ring, &claims, &body)?, claims, body })
    }

    fn keep(self, tx: &Transaction<'_>) -> Result<Minted, Error> {
        let Signed { bearer, claims, body } = self;
        let nonce = signed(claims.nonce);
        tx.prepare_cached("UPDATE bearer_mark SET nonce = ?1")?.execute([nonce])?;
        tx.prepare_cached(
            "INSERT INTO bearer (nonce, id, tenant, claims, expires, remains, held, changes)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, 0, 1)",
        )?
        .execute(params![
            nonce,
            claims.id,
            claims.holder.tenant.as_str(),
            body,
            claims.expires,
            claims.uses
        ])?;
        let left = claims.uses;
        let stored = Stored { claims, body, left, held: 0, revoked: None, changes: 1 };
        let change = Change::new(What::Minted, &stored);
        Ok(Minted { bearer, claims: stored.claims, change })
    }
}

/// What time it is, and what holds of a bearer then: its row, and its place among its ancestors.
fn stands(
    tx: &Transaction<'_>,
    presented: &Presented,
    moment: &Moment,
) -> Result<(i64, Stored, usize), Error> {
    // Without tables nothing was ever minted.
    if !schema::is_current(tx)? {
        return Err(Why::Unknown.into());
    }
    let now = advance(tx, moment)?;
    let lineage = store::find(tx, presented)?;
    presented.stands(lineage.as_ref(), now)?;
    let lineage = lineage.ok_or(Why::Unknown)?;
    Ok((now, lineage.own, lineage.ancestors.len() + 1))
}

/// Takes operations away: all of them, or none.
fn take(
    tx: &Transaction<'_>,
    nonce: u64,
    uses: u32,
    what: What,
    now: i64,
) -> Result<Change, Error> {
    let held = if what == What::Reserved { uses } else { 0 };
    let take = "UPDATE bearer SET remains = remains - ?1, held = held + ?2, changes = changes + 1
        WHERE nonce = ?3 AND remains >= ?1 AND revoked IS NULL AND expires > ?4";
    let taken = tx.prepare_cached(take)?.execute(params![uses, held, signed(nonce), now])?;
    if taken == 1 { change(tx, what, nonce) } else { Err(Why::UsedUp.into()) }
}

/// Ends a reservation, and gives so much of it back.
fn unhold(tx: &Transaction<'_>, call: CallId, back: u32, what: What) -> Result<Change, Error> {
    let held = store::held(tx, call)?.ok_or(Error::NotReserved)?;
    let nonce = held.own.claims.nonce;
    tx.prepare_cached("DELETE FROM bearer_held WHERE call = ?1")?.execute([call.to_bytes()])?;
    let unhold = "UPDATE bearer SET remains = remains + ?1, held = held - 1, changes = changes + 1
        WHERE nonce = ?2";
    tx.prepare_cached(unhold)?.execute(params![back, signed(nonce)])?;
    change(tx, what, nonce)
}

fn change(tx: &Transaction<'_>, what: What, nonce: u64) -> Result<Change, Error> {
    let stored = store::by_nonce(tx, signed(nonce))?.ok_or(Error::Damaged(nonce))?;
    Ok(Change::new(what, &stored))
}

/// What time it is; from now on it is never earlier. Everything that changes a bearer does this; whoever
/// only refuses one because it has expired does well to remember that time too.
pub fn advance(tx: &Transaction<'_>, moment: &Moment) -> Result<i64, Error> {
    schema::migrate(tx)?;
    let (_, _, mark) = store::mark(tx)?;
    let Mark { time, boot, uptime } = mark.at(moment).ok_or(Error::Clock)?;
    let rise = "UPDATE bearer_mark SET time = ?1, boot = ?2, uptime = ?3";
    tx.prepare_cached(rise)?.execute(params![time, boot, uptime])?;
    Ok(time)
}

/// The next number. None is ever given twice, also not when rows are gone.
fn next(tx: &Transaction<'_>) -> Result<u64, Error> {
    let (last, swept, _) = store::mark(tx)?;
    let kept = last.saturating_sub(swept);
    if kept < MAX_KEPT { Ok(last + 1) } else { Err(Error::Full { most: MAX_KEPT }) }
}

fn new_id() -> Result<BearerId, Error> {
    BearerId::random().map_err(Error::Chance)
}

fn end(now: i64, life: Span) -> Result<i64, Error> {
    let life = i64::try_from(life.as_millis()).ok().and_then(|ms| ms.checked_mul(1_000_000));
    life.and_then(|life| now.checked_add(life)).ok_or(Error::Clock)
}

/// As a column has it: numbers come from one.
fn signed(nonce: u64) -> i64 {
    i64::try_from(nonce).unwrap_or(i64::MAX)
}
