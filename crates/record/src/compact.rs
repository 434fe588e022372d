//! Gives back to the file system what is free inside the database. SQLite writes all of it anew for that, so
//! it is done only where it pays, where nobody else is, and not for longer than others would wait.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use rusqlite::{Connection, ErrorCode};

use crate::db::{self, Access};
use crate::error::ReadError;
use crate::owner;
use crate::record::Record;

/// Free bytes from which on it pays, and the part of the database, in hundredths, that they are at least.
const LEAST_FREE: u64 = 8 * 1024 * 1024;
const LEAST_PART: u64 = 25;
/// Most bytes that are written anew: they are held in memory meanwhile, since a file elsewhere would be
/// a copy of the record elsewhere.
const MOST_WRITTEN: u64 = 256 * 1024 * 1024;
/// Most time for it. Whoever comes meanwhile waits for longer than that.
const MOST_TIME: Duration = Duration::from_secs(3);
/// How long others who write are waited for.
const BUSY: Duration = Duration::from_secs(1);

/// What became of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compacted {
    /// Bytes of the database.
    Smaller { before: u64, after: u64 },
    /// There is too little to gain.
    NotWorth,
    /// Other processes use the home.
    InUse,
    /// There is too much to write anew, or it took too long. Nothing has changed.
    TooMuch,
}

impl Record {
    /// Makes the database smaller, if that pays and nobody else uses the home. Nothing of the record
    /// changes.
    pub fn compact(&self) -> Result<Compacted, ReadError> {
        let (before, free) = (self.database_bytes(), self.free()?);
        let least = LEAST_FREE.max(before / 100 * LEAST_PART);
        if free < least {
            return Ok(Compacted::NotWorth);
        }
        if before.saturating_sub(free) > MOST_WRITTEN {
            return Ok(Compacted::TooMuch);
        }
        if !owner::is_alone(self.home(), self.owner()) {
            return Ok(Compacted::InUse);
        }
        let connection = db::connect(self.database(), Access::Write, BUSY)?;
        connection.pragma_update(None, "temp_store", "MEMORY")?;
        match vacuum(&connection) {
            Ok(()) => Ok(Compacted::Smaller { before, after: self.database_bytes() }),
            Err(error) => match error.sqlite_error_code() {
                Some(ErrorCode::OperationInterrupted | ErrorCode::OutOfMemory) => {
                    Ok(Compacted::TooMuch)
                }
                Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Ok(Compacted::InUse),
                _ => Err(error.into()),
            },
        }
    }

    fn database_bytes(&self) -> u64 {
        self.database().metadata().map_or(0, |found| found.len())
    }
}

fn vacuum(connection: &Connection) -> rusqlite::Result<()> {
    let interrupt = connection.get_interrupt_handle();
    thread::scope(|scope| {
        let (done, is_done) = mpsc::channel::<()>();
        scope.spawn(move || {
            if is_done.recv_timeout(MOST_TIME) == Err(mpsc::RecvTimeoutError::Timeout) {
                interrupt.interrupt();
            }
        });
        let written = connection.execute_batch("VACUUM");
        drop(done);
        written
    })?;
    // What was written is in the log, and the database is cut when it is moved. If others read meanwhile,
    // whoever closes last does that.
    connection.pragma_update_and_check(None, "wal_checkpoint", "TRUNCATE", |_| Ok(()))
}
