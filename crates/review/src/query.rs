//! Reading the queue: always for one tenant.

use std::fmt;
use std::str::FromStr;

use hotcell_approver::ItemId;
use hotcell_record::{Digest, Hex};
use hotcell_request::Call;
use hotcell_types::Name;
use rusqlite::{Connection, OptionalExtension, Params, params};

use crate::clock::now;
use crate::error::Error;
use crate::item::Item;
use crate::row::{self, COLUMNS};
use crate::words::State;

/// Most items of one page.
pub const MOST_PAGE: usize = 100;
/// No item is added to a page that shows more than so many bytes.
pub const MOST_PAGE_BYTES: usize = 4 << 20;

/// Items, and where the rest begins.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Page {
    pub items: Vec<Item>,
    pub next: Option<Cursor>,
}

/// How far a list was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cursor {
    is_waiting: bool,
    seq: u64,
}

impl Cursor {
    fn after(item: &Item) -> Cursor {
        Cursor { is_waiting: item.state == State::Waiting, seq: item.seq }
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = if self.is_waiting { 'w' } else { 'r' };
        write!(f, "{of}{}", self.seq)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("that is no place in the queue: take it from the page before")]
pub struct BadCursor;

impl FromStr for Cursor {
    type Err = BadCursor;

    fn from_str(text: &str) -> Result<Cursor, BadCursor> {
        let is_waiting = text.starts_with('w');
        let seq = text.strip_prefix(['w', 'r']).and_then(|seq| seq.parse().ok());
        let cursor = Cursor { is_waiting, seq: seq.ok_or(BadCursor)? };
        // One spelling only.
        if cursor.to_string() == text { Ok(cursor) } else { Err(BadCursor) }
    }
}

/// One item; `None` if the tenant has none of this name.
pub fn get(conn: &Connection, tenant: &Name, id: ItemId) -> Result<Option<Item>, Error> {
    let one = format!("SELECT {COLUMNS} FROM review WHERE id = ?1 AND tenant = ?2");
    let item = conn
        .prepare_cached(&one)?
        .query_row(params![id.to_bytes(), tenant.as_str()], row::item)
        .optional()?;
    Ok(item)
}

/// The same, where it has to be there.
pub(crate) fn demand(conn: &Connection, tenant: &Name, id: ItemId) -> Result<Item, Error> {
    get(conn, tenant, id)?.ok_or(Error::NoItem(id))
}

/// First those that wait, the oldest first; then the others, the newest first. A page is full with
/// `limit` items, with [`MOST_PAGE`], or with what is more than [`MOST_PAGE_BYTES`] to show.
pub fn list(
    conn: &Connection,
    tenant: &Name,
    after: Option<Cursor>,
    limit: usize,
) -> Result<Page, Error> {
    let limit = limit.clamp(1, MOST_PAGE);
    let waiting = after.filter(|after| after.is_waiting).map_or(0, |after| after.seq);
    let waiting = ("state = 'waiting' AND seq > ?2 ORDER BY seq", waiting);
    let others = after.filter(|after| !after.is_waiting).map_or(u64::MAX, |after| after.seq);
    let others = ("state <> 'waiting' AND seq < ?2 ORDER BY seq DESC", others);
    let is_past_waiting = after.is_some_and(|after| !after.is_waiting);
    let (mut items, mut bytes) = (Vec::<Item>::new(), 0);
    for (which, after) in [waiting, others].into_iter().skip(is_past_waiting.into()) {
        let sql = format!("SELECT {COLUMNS} FROM review WHERE tenant = ?1 AND {which} LIMIT ?3");
        let mut rows = conn.prepare_cached(&sql)?;
        let after = i64::try_from(after).unwrap_or(i64::MAX);
        // One more than fits tells that there is more.
        let mut rows = rows.query(params![tenant.as_str(), after, limit as i64 + 1])?;
        while let Some(row) = rows.next()? {
            if items.len() == limit || bytes > MOST_PAGE_BYTES {
                let next = items.last().map(Cursor::after);
                return Ok(Page { items, next });
            }
            let item = row::item(row)?;
            bytes += item.shown.len() + item.result.as_ref().map_or(0, String::len);
            items.push(item);
        }
    }
    Ok(Page { items, next: None })
}

pub(crate) fn select(
    conn: &Connection,
    which: &str,
    params: impl Params,
) -> Result<Vec<Item>, Error> {
    let sql = format!("SELECT {COLUMNS} FROM review WHERE {which}");
    let mut items = conn.prepare_cached(&sql)?;
    let items = items.query_map(params, row::item)?;
    Ok(items.collect::<Result<_, _>>()?)
}

/// When an open item is over.
pub(crate) const OVER: &str = "CASE state WHEN 'waiting' THEN expires ELSE grant_expires END";

/// The open item about this very call under this policy: one that is approved, if there is one.
pub fn find(
    conn: &Connection,
    call: &Call,
    policy: Digest,
    clock: i64,
) -> Result<Option<Item>, Error> {
    let which = format!(
        "call_digest = ?1 AND policy_digest = ?2 AND tenant = ?3 AND ended IS NULL AND {OVER} > ?4
         ORDER BY state = 'waiting', seq LIMIT 1"
    );
    let (digest, tenant) = (digest_of(call).0, call.caller().tenant.as_str());
    let params = params![digest, policy.0, tenant, now(conn, clock)?];
    Ok(select(conn, &which, params)?.into_iter().next())
}

/// The call itself, with its secrets, for whoever carries it out or shows it anew; `None` when the item
/// has ended. `Call::from_bytes` reads it.
pub fn stored_call(conn: &Connection, tenant: &Name, id: ItemId) -> Result<Option<Vec<u8>>, Error> {
    let call = "SELECT call FROM review WHERE id = ?1 AND tenant = ?2";
    let call = conn
        .prepare_cached(call)?
        .query_row(params![id.to_bytes(), tenant.as_str()], |row| row.get(0))
        .optional()?;
    call.ok_or(Error::NoItem(id))
}

pub(crate) fn digest_of(call: &Call) -> Digest {
    Hex(*call.digest().as_bytes())
}
