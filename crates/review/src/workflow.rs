//! Where the work of a caller is: the mode and the state that rules ask for. It stays, also when hotcell ends,
//! until whoever drives the work says otherwise. Which words there are, and which may follow which, is for
//! others to say.

use hotcell_types::Caller;
use rusqlite::{Connection, OptionalExtension, Transaction, params};

use crate::error::Error;
use crate::schema;

/// A place in the work, and how often it was another one before.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Workflow {
    pub mode: String,
    pub state: String,
    /// 1, 2, 3 … : another one is another place, also if it has the same name.
    pub number: u64,
}

/// Where the session of a caller is; `None` if nobody drives it. A session is a tenant and a subject.
pub fn workflow(conn: &Connection, of: &Caller) -> Result<Option<Workflow>, Error> {
    let is_there = "SELECT 1 FROM sqlite_schema WHERE name = 'workflow'";
    if !conn.prepare_cached(is_there)?.exists([])? {
        return Ok(None);
    }
    let place = "SELECT mode, state, number FROM workflow WHERE tenant = ?1 AND subject = ?2";
    let place = conn.prepare_cached(place)?.query_row(
        params![of.tenant.as_str(), of.subject.as_str()],
        |row| {
            let number: i64 = row.get(2)?;
            Ok(Workflow { mode: row.get(0)?, state: row.get(1)?, number: number.unsigned_abs() })
        },
    );
    Ok(place.optional()?)
}

/// Its number, 0 if nobody drives it.
pub fn workflow_number(conn: &Connection, of: &Caller) -> Result<u64, Error> {
    Ok(workflow(conn, of)?.map_or(0, |workflow| workflow.number))
}

/// Says where the session of a caller is from now on.
pub fn set_workflow(
    tx: &Transaction<'_>,
    of: &Caller,
    mode: &str,
    state: &str,
) -> Result<(), Error> {
    schema::migrate(tx)?;
    let set =
        "INSERT INTO workflow (tenant, subject, mode, state, number) VALUES (?1, ?2, ?3, ?4, 1)
        ON CONFLICT (tenant, subject) DO UPDATE SET mode = ?3, state = ?4, number = number + 1";
    tx.prepare_cached(set)?.execute(params![
        of.tenant.as_str(),
        of.subject.as_str(),
        mode,
        state
    ])?;
    Ok(())
}
