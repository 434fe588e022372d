//! Waiting for somebody in another process. SQLite has no way to be told, so that a number is looked at
//! ten times a second which changes when somebody writes; only then is the item read again.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use hotcell_approver::ItemId;
use hotcell_types::Name;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use crate::error::Error;
use crate::item::Item;
use crate::query;

/// Longest wait, whatever was asked for.
pub const MOST_WAIT: Duration = Duration::from_secs(24 * 3600);
/// How often it is looked.
const STEP: Duration = Duration::from_millis(100);
/// How long a lock is waited for.
const BUSY: Duration = Duration::from_secs(5);

/// Waits until an item is as somebody wants it, the time is over or `interrupt` is set; the item as it is
/// then. It is not ended by its expiry: whoever waits calls [`expire`](crate::expire).
pub fn wait(
    database: &Path,
    tenant: &Name,
    id: ItemId,
    until: Instant,
    interrupt: &AtomicBool,
    is_wanted: impl Fn(&Item) -> bool,
) -> Result<Item, Error> {
    let until = until.min(Instant::now() + MOST_WAIT);
    // One of its own: those of the record are for short looks.
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let conn = Connection::open_with_flags(database, flags)?;
    conn.busy_timeout(BUSY)?;
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    loop {
        // Before it is read, so that nothing is missed.
        let version = data_version(&conn)?;
        let item = query::demand(&conn, tenant, id)?;
        if is_wanted(&item) {
            return Ok(item);
        }
        while data_version(&conn)? == version {
            let rest = until.saturating_duration_since(Instant::now());
            if rest.is_zero() || interrupt.load(Ordering::Relaxed) {
                return Ok(item);
            }
            thread::sleep(rest.min(STEP));
        }
    }
}

fn data_version(conn: &Connection) -> rusqlite::Result<i64> {
    conn.pragma_query_value(None, "data_version", |row| row.get(0))
}
