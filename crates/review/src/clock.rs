//! Time that only goes forward. The latest that anybody saw is kept with the rows: if the clock is set
//! back, it stands still here until the clock has caught up, and nothing that was over comes back.
//!
//! A clock that once was far ahead therefore stops time for as long. Nothing expires then, and a grant is
//! still used once only.

use rusqlite::{Connection, OptionalExtension, Transaction};

/// The time now, in nanoseconds since 1970, for whoever reads. `clock` is what the clock says.
pub fn now(conn: &Connection, clock: i64) -> rusqlite::Result<i64> {
    let latest =
        conn.prepare_cached("SELECT latest FROM review_clock")?.query_one([], |row| row.get(0));
    Ok(latest.optional()?.map_or(clock, |latest: i64| latest.max(clock)))
}

/// The same, for whoever writes: it is never earlier again.
pub(crate) fn advance(tx: &Transaction<'_>, clock: i64) -> rusqlite::Result<i64> {
    tx.prepare_cached(
        "INSERT INTO review_clock (one, latest) VALUES (1, ?1)
         ON CONFLICT (one) DO UPDATE SET latest = max(latest, excluded.latest)
         RETURNING latest",
    )?
    .query_row([clock], |row| row.get(0))
}
