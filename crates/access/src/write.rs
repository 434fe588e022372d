//! What changes keys. Each function is part of the caller's transaction, and gives back a [`Change`] that
//! belongs into the chain in that transaction. What is refused has changed nothing.

use hotcell_types::{Name, Span};
use rusqlite::{Transaction, params};

use crate::error::Error;
use crate::id::KeyId;
use crate::key::{Key, MAX_NUMBER, New};
use crate::schema;
use crate::statement::{Change, What};
use crate::store;
use crate::text::Shown;

/// Most keys that are kept, those that ended included: what a server has all of in memory.
pub const MAX_KEYS: u64 = 10_000;
/// How long a key is kept after it was revoked or has expired, in nanoseconds: 90 days.
pub const KEPT_ENDED: i64 = 90 * 24 * 3600 * 1_000_000_000;
/// Most that are removed at one time.
pub const MAX_REMOVED: usize = 100;

/// Makes a key. Its text is in what this gives back, and nowhere else.
pub fn create(tx: &Transaction<'_>, new: New, now: i64) -> Result<(Shown, Key, Change), Error> {
    schema::migrate(tx)?;
    let New { name, tenant, subject, scopes, life, rate, concurrent } = new;
    if scopes.is_empty() {
        return Err(Error::Impossible("it has no scope, and would be for nothing"));
    }
    let numbers = rate.map(|rate| [rate.per_second, rate.burst]).into_iter().flatten();
    if numbers.chain(concurrent).any(|number| number.get() > MAX_NUMBER) {
        return Err(Error::Impossible("more than a million requests is no limit"));
    }
    if store::mark(tx)?.1 >= MAX_KEYS {
        return Err(Error::Full { most: MAX_KEYS });
    }
    let expires = life.map(|life| end(now, life)).transpose()?;
    let (shown, digest) = Shown::new().map_err(Error::Chance)?;
    let mut insert = tx.prepare_cached(
        "INSERT INTO access_key VALUES ((SELECT number + 1 FROM access_mark),
            ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, NULL, 1)",
    )?;
    insert.execute(params![
        shown.id(),
        digest,
        name.as_str(),
        tenant.as_str(),
        subject.as_str(),
        scopes.to_string(),
        rate.map(|rate| rate.per_second.get()),
        rate.map(|rate| rate.burst.get()),
        concurrent.map(u32::from),
        now,
        expires,
    ])?;
    let key = store::get(tx, None, shown.id())?.ok_or(Error::NoKey(shown.id()))?;
    let change = Change::new(What::Created, &key);
    Ok((shown, key, change))
}

/// Makes a key worth nothing; of this tenant only, if one is named. `None` if it was revoked before.
pub fn revoke(
    tx: &Transaction<'_>,
    tenant: Option<&Name>,
    id: KeyId,
    now: i64,
) -> Result<Option<Change>, Error> {
    let key = store::get(tx, tenant, id)?.ok_or(Error::NoKey(id))?;
    if key.revoked.is_some() {
        return Ok(None);
    }
    let revoke = "UPDATE access_key SET revoked = ?1, changes = changes + 1 WHERE id = ?2";
    tx.prepare_cached(revoke)?.execute(params![now, id])?;
    let key = store::get(tx, None, id)?.ok_or(Error::NoKey(id))?;
    Ok(Some(Change::new(What::Revoked, &key)))
}

/// All that are not, whoever's they are.
pub fn revoke_all(tx: &Transaction<'_>, now: i64) -> Result<Vec<Change>, Error> {
    if !schema::is_current(tx)? {
        return Ok(Vec::new());
    }
    let good = store::select(tx, "WHERE revoked IS NULL ORDER BY number", [])?;
    let each = good.iter().map(|key| revoke(tx, None, key.id, now));
    each.filter_map(Result::transpose).collect()
}

/// Removes keys that ended long ago, [`MAX_REMOVED`] at most.
pub fn remove_ended(tx: &Transaction<'_>, now: i64) -> Result<Vec<Change>, Error> {
    if !schema::is_current(tx)? {
        return Ok(Vec::new());
    }
    let before = now.saturating_sub(KEPT_ENDED);
    let ended = "WHERE revoked < ?1 OR expires < ?1 ORDER BY number LIMIT ?2";
    let ended = store::select(tx, ended, params![before, MAX_REMOVED as i64])?;
    for key in &ended {
        tx.prepare_cached("DELETE FROM access_key WHERE id = ?1")?.execute([key.id])?;
    }
    Ok(ended.iter().map(|key| Change::new(What::Removed, key)).collect())
}

/// Notes when keys were used last. The chain says nothing of it: every request would be an event.
pub fn used(
    tx: &Transaction<'_>,
    uses: impl IntoIterator<Item = (KeyId, i64)>,
) -> Result<(), Error> {
    if !schema::is_current(tx)? {
        return Ok(());
    }
    let mut note = tx.prepare_cached(
        "INSERT INTO access_used SELECT number, ?2 FROM access_key WHERE id = ?1
         ON CONFLICT DO UPDATE SET time = max(time, excluded.time)",
    )?;
    for (id, time) in uses {
        note.execute(params![id, time])?;
    }
    Ok(())
}

fn end(now: i64, life: Span) -> Result<i64, Error> {
    let life = i64::try_from(life.as_millis()).ok().and_then(|ms| ms.checked_mul(1_000_000));
    let end = life.filter(|life| *life > 0).and_then(|life| now.checked_add(life));
    end.ok_or(Error::Impossible("it would end at once, or never"))
}
