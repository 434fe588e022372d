//! One transaction: a batch of entries goes to the end of the chain, or none of it does.

use std::fs::File;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use hotcell_types::CallId;
use rusqlite::{
    Connection, ErrorCode, OptionalExtension, Transaction, TransactionBehavior, params,
};

use crate::checkpoint;
use crate::db;
use crate::encode;
use crate::error::AppendError;
use crate::event::Kind;
use crate::hex::{Digest, EventId};
use crate::prepare::Prepared;
use crate::row;

/// How often a lock is tried.
const BUSY_STEP: Duration = Duration::from_micros(500);

const CLOSE: &str = "DELETE FROM unfinished WHERE call = ?1";

/// Proof that an event is in the chain. Only the record makes them.
///
/// ```compile_fail
/// fn forge(hash: hotcell_record::Digest, id: hotcell_record::EventId) -> hotcell_record::Receipt {
///     hotcell_record::Receipt { seq: 1, hash, id }
/// }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Receipt {
    pub(crate) seq: u64,
    pub(crate) hash: Digest,
    pub(crate) id: EventId,
}

impl Receipt {
    pub fn seq(&self) -> u64 {
        self.seq
    }

    pub fn hash(&self) -> Digest {
        self.hash
    }

    pub fn id(&self) -> EventId {
        self.id
    }
}

/// What one caller wants recorded.
pub(crate) enum Work {
    Event(Box<Prepared>),
    /// Rows of other tables, and the events about them.
    Rows(Option<Rows>),
}

pub(crate) type Rows =
    Box<dyn FnOnce(&Transaction<'_>) -> Result<Vec<Prepared>, AppendError> + Send>;

/// What became of it. Events of a caller that does not wait can be tried again.
pub(crate) type Done = Result<Vec<Receipt>, AppendError>;

/// The connection that writes.
#[derive(Debug)]
pub(crate) struct Store {
    connection: Connection,
    database: PathBuf,
    busy: Duration,
    /// Commits are not synced at present.
    is_lazy: bool,
    buffer: Vec<u8>,
}

/// Where the chain ends, within a transaction.
struct End<'a> {
    tx: &'a Transaction<'a>,
    seq: u64,
    hash: Digest,
    buffer: &'a mut Vec<u8>,
}

/// What ends one entry, or all.
enum Trouble {
    Entry(AppendError),
    Batch(AppendError),
}

impl From<rusqlite::Error> for Trouble {
    fn from(error: rusqlite::Error) -> Trouble {
        Trouble::Batch(error.into())
    }
}

impl Store {
    pub(crate) fn new(connection: Connection, database: &Path, busy: Duration) -> Store {
        let database = database.to_owned();
        Store { connection, database, busy, is_lazy: false, buffer: Vec::new() }
    }

    /// What became of each entry, when all that went well is in the database; or why nothing is.
    pub(crate) fn commit(
        &mut self,
        batch: &mut [Work],
        is_synced: bool,
    ) -> Result<Vec<Done>, AppendError> {
        self.synchronise(is_synced)?;
        let Store { connection, buffer, busy, .. } = self;
        let tx = begin(connection, *busy)?;
        let (seq, hash) = head(&tx)?;
        let mut end = End { tx: &tx, seq, hash, buffer };
        let mut done = Vec::with_capacity(batch.len());
        for work in batch {
            match end.take(work) {
                Ok(receipts) => done.push(Ok(receipts)),
                Err(Trouble::Entry(error)) => done.push(Err(error)),
                Err(Trouble::Batch(error)) => return Err(error),
            }
        }
        tx.commit()?;
        Ok(done)
    }

    fn synchronise(&mut self, is_synced: bool) -> rusqlite::Result<()> {
        if self.is_lazy == is_synced {
            let mode = if is_synced { "FULL" } else { "NORMAL" };
            self.connection.pragma_update(None, "synchronous", mode)?;
            self.is_lazy = !is_synced;
        }
        Ok(())
    }

    /// The file whose contents must reach the disk for lazy commits to be safe. The locks of SQLite are
    /// on other files, so that it can be opened and closed.
    pub(crate) fn wal(&self) -> PathBuf {
        db::wal(&self.database)
    }

    pub(crate) fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Compiles what the end of a call needs.
    pub(crate) fn warm(&self) {
        for sql in [CLOSE, checkpoint::LAST, checkpoint::INSERT] {
            // What cannot be compiled now cannot be then, and that is told.
            self.connection.prepare_cached(sql).ok();
        }
    }

    /// Before a commit.
    pub(crate) fn shorten_wal(&self, most: i64) {
        db::shorten_wal(&self.connection, &self.database, self.busy, most);
    }
}

/// Waits for other processes in small steps: SQLite's own grow to a tenth of a second, and who takes them
/// hardly ever gets a turn beside somebody who writes all the time.
fn begin(connection: &Connection, busy: Duration) -> rusqlite::Result<Transaction<'_>> {
    connection.busy_timeout(Duration::ZERO)?;
    let deadline = Instant::now() + busy;
    let begun = loop {
        let begun = Transaction::new_unchecked(connection, TransactionBehavior::Immediate);
        match begun {
            Err(error) if is_locked(&error) && Instant::now() < deadline => {
                thread::sleep(BUSY_STEP)
            }
            begun => break begun,
        }
    };
    connection.busy_timeout(busy)?;
    begun
}

fn is_locked(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy)
}

/// What is no longer in the write-ahead log was synced when it was moved.
pub(crate) fn sync(wal: &Path) -> io::Result<()> {
    match File::open(wal) {
        Ok(file) => file.sync_data(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// The last event's number, for whoever watches how far something is: 0 where it cannot be read, which is for
/// others to tell.
pub(crate) fn newest(connection: &Connection) -> u64 {
    let newest = "SELECT coalesce(max(seq), 0) FROM event";
    connection.query_row(newest, [], |row| row.get::<_, i64>(0)).unwrap_or(0).unsigned_abs()
}

/// The last event's number and hash; the genesis before the first.
pub(crate) fn head(connection: &Connection) -> rusqlite::Result<(u64, Digest)> {
    let mut last =
        connection.prepare_cached("SELECT seq, hash FROM event ORDER BY seq DESC LIMIT 1")?;
    let last = last.query_row([], |row| Ok((row.get::<_, i64>(0)?, row.get(1)?))).optional()?;
    match last {
        Some((seq, hash)) => Ok((seq.unsigned_abs(), crate::hex::Hex(hash))),
        None => {
            let genesis = "SELECT value FROM meta WHERE name = 'genesis'";
            let genesis = connection.query_row(genesis, [], |row| row.get(0))?;
            Ok((0, crate::hex::Hex(genesis)))
        }
    }
}

impl End<'_> {
    fn take(&mut self, work: &mut Work) -> Result<Vec<Receipt>, Trouble> {
        match work {
            Work::Event(prepared) => Ok(vec![self.append(prepared)?]),
            Work::Rows(rows) => {
                let rows = rows.take().ok_or(Trouble::Entry(AppendError::Panicked))?;
                let (seq, hash) = (self.seq, self.hash);
                self.tx.prepare_cached("SAVEPOINT entry")?.execute([])?;
                match self.write(rows) {
                    Ok(receipts) => {
                        self.tx.prepare_cached("RELEASE entry")?.execute([])?;
                        Ok(receipts)
                    }
                    Err(Trouble::Entry(error)) => {
                        self.tx.execute_batch("ROLLBACK TO entry; RELEASE entry")?;
                        (self.seq, self.hash) = (seq, hash);
                        Err(Trouble::Entry(error))
                    }
                    Err(batch) => Err(batch),
                }
            }
        }
    }

    fn write(&mut self, rows: Rows) -> Result<Vec<Receipt>, Trouble> {
        let tx = self.tx;
        let written = catch_unwind(AssertUnwindSafe(|| rows(tx)));
        // Some errors end the whole transaction, and nothing may be written outside one.
        if tx.is_autocommit() {
            let error = written.unwrap_or(Err(AppendError::Panicked)).err();
            let error = error.unwrap_or(AppendError::Failed("its transaction was ended".into()));
            return Err(Trouble::Batch(error));
        }
        let prepared = written.unwrap_or(Err(AppendError::Panicked)).map_err(Trouble::Entry)?;
        prepared.into_iter().map(|mut prepared| self.append(&mut prepared)).collect()
    }

    fn append(&mut self, prepared: &mut Prepared) -> Result<Receipt, Trouble> {
        let event = &mut prepared.event;
        event.seq = self.seq + 1;
        event.prev = self.hash;
        let unknown = |error: encode::UnknownVersion| AppendError::Failed(error.to_string());
        event.hash = encode::hash(event, self.buffer).map_err(|e| Trouble::Entry(unknown(e)))?;
        let call = match (event.kind, event.call) {
            (kind, None) if kind == Kind::Intent || kind.is_end() => {
                return Err(Trouble::Entry(AppendError::NoCall(kind)));
            }
            (_, call) => call,
        };
        if let Some(call) = call.filter(|_| event.kind.is_end())
            && !self.close(call)?
        {
            return Err(Trouble::Entry(AppendError::NotOpen(call)));
        }
        match row::insert(self.tx, event) {
            Err(error) if is_taken(&error) && event.kind == Kind::Intent => {
                let known = call.map(AppendError::AlreadyBegun);
                return Err(known.map_or(Trouble::from(error), Trouble::Entry));
            }
            inserted => inserted?,
        }
        if let Some(call) = call.filter(|_| event.kind == Kind::Intent) {
            let open = "INSERT INTO unfinished VALUES (?1, ?2, ?3)";
            let row = params![call.to_bytes(), event.seq as i64, event.owner.0];
            self.tx.prepare_cached(open)?.execute(row)?;
        }
        let receipt = Receipt { seq: event.seq, hash: event.hash, id: event.id };
        row::insert_contents(self.tx, prepared)?;
        (self.seq, self.hash) = (receipt.seq, receipt.hash);
        Ok(receipt)
    }

    /// Whether the call was open.
    fn close(&self, call: CallId) -> rusqlite::Result<bool> {
        Ok(self.tx.prepare_cached(CLOSE)?.execute([call.to_bytes()])? == 1)
    }
}

fn is_taken(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(ErrorCode::ConstraintViolation)
}
