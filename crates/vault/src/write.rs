//! What changes secrets. Each function is part of the caller's transaction, and gives back what belongs into the
//! chain in that transaction. What is refused has changed nothing.

use hotcell_types::Name;
use rusqlite::{Transaction, params};

use crate::binding::Binding;
use crate::error::Error;
use crate::key::Key;
use crate::name::SecretName;
use crate::schema;
use crate::seal::{self, Label};
use crate::statement::{Change, What};
use crate::store::{self, Secret};
use crate::value::Value;

/// Most secrets of a home.
pub const MOST_SECRETS: u64 = 1000;
/// Longest note, in bytes.
pub const MOST_NOTE: usize = 256;

/// What a secret is to be.
#[derive(Debug)]
pub struct New {
    pub tenant: Name,
    pub name: SecretName,
    pub value: Value,
    pub binding: Binding,
    /// For people; not secret.
    pub note: String,
}

/// Sets a secret, in the place of the one of that name if there is one: that one and its bindings are gone.
pub fn set(
    tx: &Transaction<'_>,
    key: &Key,
    new: &New,
    now: i64,
) -> Result<(Secret, Vec<Change>), Error> {
    schema::migrate(tx)?;
    let New { tenant, name, value, binding, note } = new;
    if note.len() > MOST_NOTE || note.chars().any(char::is_control) {
        return Err(Error::Note { most: MOST_NOTE });
    }
    let mut changes: Vec<Change> = take(tx, tenant, name, What::Replaced)?.into_iter().collect();
    let (last, count) = store::mark(tx)?;
    if count >= MOST_SECRETS {
        return Err(Error::Full { most: MOST_SECRETS });
    }
    let number = last + 1;
    let label = Label { number, tenant, name, binding, note, created: now };
    let sealed = seal::seal(key, &label, value)?;
    let (hosts, tools) = binding.texts();
    let row = i64::try_from(number).map_err(|_| Error::Full { most: MOST_SECRETS })?;
    let mut insert =
        tx.prepare_cached("INSERT INTO vault_secret VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)")?;
    insert.execute(params![
        row,
        tenant.as_str(),
        name.as_str(),
        hosts,
        tools,
        note,
        sealed,
        now
    ])?;
    let secret = store::get(tx, tenant, name)?.ok_or_else(|| Error::NoSecret(name.clone()))?;
    changes.push(Change::new(What::Set, &secret));
    Ok((secret, changes))
}

/// Removes a secret of a tenant.
pub fn remove(tx: &Transaction<'_>, tenant: &Name, name: &SecretName) -> Result<Change, Error> {
    take(tx, tenant, name, What::Removed)?.ok_or_else(|| Error::NoSecret(name.clone()))
}

/// All that there are, whoever's they are.
pub fn remove_all(tx: &Transaction<'_>) -> Result<Vec<Change>, Error> {
    let all = store::list(tx, None)?;
    all.iter().map(|secret| remove(tx, &secret.tenant, &secret.name)).collect()
}

fn take(
    tx: &Transaction<'_>,
    tenant: &Name,
    name: &SecretName,
    what: What,
) -> Result<Option<Change>, Error> {
    let Some(secret) = store::get(tx, tenant, name)? else { return Ok(None) };
    let delete = "DELETE FROM vault_secret WHERE tenant = ?1 AND name = ?2";
    tx.prepare_cached(delete)?.execute(params![tenant.as_str(), name.as_str()])?;
    Ok(Some(Change::new(what, &secret)))
}
