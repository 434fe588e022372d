//! Closes what dead processes left open: each intent once, however many processes do it at a time.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use hotcell_types::Status;
use rusqlite::{Connection, Transaction};

use crate::error::AppendError;
use crate::event::{Draft, Event, Kind};
use crate::hex::{Hex, OwnerId};
use crate::owner;
use crate::query::one;
use crate::record::Shared;
use crate::writer::Durability;

/// Intents that are closed in one transaction.
const CHUNK: usize = 1000;

impl Shared {
    /// How many were closed. Where none is left, nothing is locked and nothing written.
    pub(crate) fn recover(self: &Arc<Shared>) -> Result<u64, AppendError> {
        if !self.is_any_left()? {
            return Ok(0);
        }
        self.open_house()?;
        let mut closed = 0;
        loop {
            let shared = Arc::clone(self);
            let rows = move |tx: &Transaction<'_>| {
                let left = left(tx, &shared.home)?;
                left.iter().map(|intent| shared.prepare(shared.end_of(intent))).collect()
            };
            let receipts = self.writer.rows(Box::new(rows), Durability::Synced)?;
            closed += receipts.len() as u64;
            if receipts.len() < CHUNK {
                return Ok(closed);
            }
        }
    }

    /// A first look. One that is left stays so; one that is left a moment later is the next one's.
    fn is_any_left(&self) -> Result<bool, AppendError> {
        let store = self.writer.store();
        let store = store.as_ref().ok_or(AppendError::Closed)?;
        Ok(!dead_owners(store.connection(), &self.home)?.is_empty())
    }

    fn end_of(&self, intent: &Event) -> Draft {
        let mut end = self.own_draft(Kind::Recovered);
        end.caller = intent.caller.clone();
        end.call = intent.call;
        end.parent = intent.parent;
        end.operation = intent.operation.clone();
        end.tool = intent.tool.clone();
        end.request = intent.request.clone();
        end.status = Some(Status::Unknown);
        end.reason = Some("its process ended before the outcome".to_owned());
        end
    }
}

/// Intents whose process is gone. In a transaction that writes, so that none of them can end meanwhile.
fn left(tx: &Transaction<'_>, home: &Path) -> Result<Vec<Event>, AppendError> {
    let mut left = Vec::new();
    for dead in dead_owners(tx, home)? {
        let of_dead = "SELECT seq FROM unfinished WHERE owner = ?1 ORDER BY seq LIMIT ?2";
        let mut of_dead = tx.prepare_cached(of_dead)?;
        let most = (CHUNK - left.len()) as i64;
        let rows = of_dead.query_map((dead.0, most), |row| row.get::<_, i64>(0))?;
        for seq in rows {
            let intent = one(tx, seq?.unsigned_abs());
            let intent = intent.map_err(|error| AppendError::Failed(error.to_string()))?;
            left.extend(intent);
        }
    }
    Ok(left)
}

fn dead_owners(connection: &Connection, home: &Path) -> rusqlite::Result<Vec<OwnerId>> {
    let mut owners = connection.prepare_cached("SELECT owner FROM unfinished")?;
    let owners = owners.query_map([], |row| row.get(0).map(Hex))?;
    let owners = owners.collect::<rusqlite::Result<BTreeSet<OwnerId>>>()?;
    Ok(owners.into_iter().filter(|&owner| !owner::is_alive(home, owner)).collect())
}
