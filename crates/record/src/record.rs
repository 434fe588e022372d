//! The record of a home: opened once per process, cheap to clone, written by everybody at once.

use std::convert::Infallible;
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use hotcell_types::{CallId, Caller, Door, Name, Status};
use rusqlite::{Connection, Transaction};

use crate::checkpoint::Key;
use crate::db::{self, Access, OpenError, OpenFault};
use crate::encode;
use crate::error::{AppendError, WriteError};
use crate::event::{Draft, Event, Kind, genesis};
use crate::hex::{EventId, Hex, HomeId, OwnerId};
use crate::house::House;
use crate::owner::{self, Owner};
use crate::prepare::{Prepared, prepare};
use crate::query::Readers;
use crate::redact::{Pattern, Redactor};
use crate::row;
use crate::schema;
use crate::sink::Sink;
use crate::store::{Receipt, Rows, Store};
use crate::verify::{Last, Start, Verdict, verify_start};
use crate::writer::{Durability, Failing, Lag, Writer};

/// The file in a home.
pub(crate) const DATABASE: &str = "hotcell.db";

/// How a record is kept.
#[derive(Debug, Clone)]
pub struct Options {
    /// For whom hotcell itself records: recovery, pruning, missed checkpoints.
    pub caller: Caller,
    /// What to redact besides the usual.
    pub patterns: Vec<Pattern>,
    pub sink: Sink,
    /// A checkpoint is made after so many events,
    pub checkpoint_events: u64,
    /// or after so much time with at least one.
    pub checkpoint_time: Duration,
    /// How long another process that writes is waited for.
    pub busy: Duration,
    /// The size that the record is expected to stay below.
    pub most_bytes: u64,
    /// Nanoseconds since 1970, for events that hotcell itself records.
    pub clock: fn() -> i64,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            caller: Caller::local(Name::LOCAL, Door::Library),
            patterns: Vec::new(),
            sink: Sink::Home,
            checkpoint_events: 1000,
            checkpoint_time: Duration::from_secs(60),
            busy: Duration::from_secs(5),
            most_bytes: 1 << 30,
            clock: now,
        }
    }
}

/// As far as 64 bits go.
pub fn now() -> i64 {
    match SystemTime::now().duration_since(SystemTime::UNIX_EPOCH) {
        Ok(after) => i64::try_from(after.as_nanos()).unwrap_or(i64::MAX),
        Err(before) => i64::try_from(before.duration().as_nanos()).map_or(i64::MIN, |nanos| -nanos),
    }
}

/// The record of a home. Clones share everything.
#[derive(Debug, Clone)]
pub struct Record {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    shared: Arc<Shared>,
    is_closed: AtomicBool,
    /// Goes last.
    owner: Mutex<Option<Owner>>,
}

/// What the record's users and its housekeeper share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) home: PathBuf,
    pub(crate) database: PathBuf,
    pub(crate) id: HomeId,
    pub(crate) key: Key,
    pub(crate) owner: OwnerId,
    pub(crate) options: Options,
    pub(crate) redactor: Redactor,
    pub(crate) writer: Writer,
    pub(crate) readers: Readers,
    pub(crate) house: House,
    /// A missed checkpoint was recorded, and none reached the sink since.
    pub(crate) is_missed: AtomicBool,
    found_dead: AtomicBool,
    /// The last event is signed, and the sink has it.
    pub(crate) is_sealed: AtomicBool,
    start: Verdict,
}

impl Record {
    /// Opens the record of a home, or makes one where there is nothing. Closes the intents of processes
    /// that have ended.
    pub fn open(home: &Path, options: Options) -> Result<Record, OpenError> {
        let io = |error: io::Error| OpenError::io(home, &error);
        DirBuilder::new().recursive(true).mode(0o700).create(home).map_err(io)?;
        let home = home.canonicalize().map_err(io)?;
        let owner = Owner::new(&home).map_err(|error| cannot_own(&home, &error))?;
        let database = home.join(DATABASE);
        let redactor = Redactor::new(&options.patterns);
        if !db::inspect(&database)? {
            make(&home, &database, &options, &redactor, owner.id())?;
            db::inspect(&database)?;
        }
        let connection = db::connect(&database, Access::Write, options.busy)?;
        let key = Key::open(&home)?;
        let start =
            verify_start(&connection, &database, options.sink.anchor(&home).as_deref(), &key);
        check_start(&database, &home, &key, &start)?;
        let sign_after = (options.checkpoint_events, options.checkpoint_time);
        let shared = Arc::new(Shared {
            writer: Writer::new(Store::new(connection, &database, options.busy), sign_after),
            readers: Readers::new(database.clone(), options.busy),
            house: House::default(),
            owner: owner.id(),
            is_missed: AtomicBool::new(false),
            found_dead: AtomicBool::new(false),
            is_sealed: AtomicBool::new(false),
            id: start.home,
            home,
            database,
            key,
            options,
            redactor,
            start: start.verdict,
        });
        if let Err(error) = shared.begin(start.last.as_ref(), start.anchored) {
            shared.give_up();
            return Err(cannot_begin(&shared, &error));
        }
        let (is_closed, owner) = (AtomicBool::new(false), Mutex::new(Some(owner)));
        Ok(Record { inner: Arc::new(Inner { shared, is_closed, owner }) })
    }

    /// Records one event, and answers when it is as durable as that.
    pub fn append(&self, draft: Draft, durability: Durability) -> Result<Receipt, AppendError> {
        let prepared = self.shared().prepare_single(draft)?;
        self.shared().open_house()?;
        self.shared().writer.event(prepared, durability, Failing::Drop)
    }

    /// Records one event within half a second, unless the process is killed before. What cannot be
    /// written is tried again.
    pub fn append_later(&self, draft: Draft) -> Result<EventId, AppendError> {
        let prepared = self.shared().prepare_single(draft)?;
        self.shared().open_house()?;
        self.shared().writer.later(prepared)
    }

    /// Records that a call is about to be carried out: on the disk, when this answers.
    pub fn begin(&self, draft: Draft) -> Result<Intent, AppendError> {
        let (call, end) = end_of(&draft)?;
        let prepared = self.shared().prepare(Draft { kind: Kind::Intent, ..draft })?;
        self.shared().open_house()?;
        let receipt = self.shared().writer.event(prepared, Durability::Synced, Failing::Drop)?;
        Ok(Intent { record: Some(self.clone()), receipt, call, end, is_last: false })
    }

    /// The same, together with rows of other tables and the events about them, which follow the intent:
    /// all are there, or nothing is.
    pub fn begin_with<T, E>(
        &self,
        draft: Draft,
        rows: impl FnOnce(&Transaction<'_>) -> Result<(T, Vec<Draft>), E> + Send + 'static,
    ) -> Result<(T, Intent), WriteError<E>>
    where
        T: Send + 'static,
        E: Send + 'static,
    {
        let (call, end) = end_of(&draft)?;
        let prepared = self.shared().prepare(Draft { kind: Kind::Intent, ..draft })?;
        let prepare = Shared::prepare_all(self.shared(), move |mut all| {
            all.insert(0, prepared);
            all
        });
        let way = Way::Next(Durability::Synced);
        let (value, receipts) = self.shared().write_rows(way, prepare, rows)?;
        let receipt = receipts.first().copied().ok_or(AppendError::Panicked)?;
        Ok((value, Intent { record: Some(self.clone()), receipt, call, end, is_last: false }))
    }

    /// Writes rows of other tables and the events about them in one transaction. If `rows` fails or
    /// panics, nothing of it stays; what others write at the same time is not touched. It runs while the
    /// database is locked, perhaps on another thread, and cannot use the record itself to write.
    pub fn write<T, E>(
        &self,
        durability: Durability,
        rows: impl FnOnce(&Transaction<'_>) -> Result<(T, Vec<Draft>), E> + Send + 'static,
    ) -> Result<(T, Vec<Receipt>), WriteError<E>>
    where
        T: Send + 'static,
        E: Send + 'static,
    {
        let prepare = Shared::prepare_all(self.shared(), |all| all);
        self.shared().write_rows(Way::Next(durability), prepare, rows)
    }

    /// Closes every intent whose process has ended: once, whoever else does the same.
    pub fn recover(&self) -> Result<u64, AppendError> {
        self.shared().recover()
    }

    /// Returns when everything that was noted so far is on the disk, and seen by other processes.
    pub fn settle(&self) -> Result<(), AppendError> {
        let settled = self.write(Durability::Synced, |_| Ok::<_, Infallible>(((), Vec::new())));
        settled.map(drop).map_err(|error| match error {
            WriteError::Append(error) => error,
            WriteError::Own(never) => match never {},
        })
    }

    /// Signs the end of the chain now, and hands it to the sink.
    pub fn checkpoint(&self) -> Result<(), AppendError> {
        self.shared().open_house()?;
        self.shared().checkpoint()
    }

    /// How far the disk is behind, at this moment.
    pub fn lag(&self) -> Lag {
        self.shared().writer.lag()
    }

    /// Whether processes had been killed that used the home before, and may have left something in it.
    pub fn found_dead(&self) -> bool {
        self.shared().found_dead.load(Ordering::Relaxed)
    }

    /// What was found when the record was opened.
    pub fn start(&self) -> &Verdict {
        &self.shared().start
    }

    pub fn home(&self) -> &Path {
        &self.shared().home
    }

    pub fn database(&self) -> &Path {
        &self.shared().database
    }

    pub fn home_id(&self) -> HomeId {
        self.shared().id
    }

    /// The public half of the key that signs checkpoints.
    pub fn key(&self) -> Hex<32> {
        self.shared().key.public()
    }

    /// The name under which this process records.
    pub fn owner(&self) -> OwnerId {
        self.shared().owner
    }

    /// Writes what is left, with a checkpoint, for all clones.
    pub fn close(self) -> Result<(), AppendError> {
        self.inner.close()
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.inner.shared
    }
}

impl Inner {
    fn close(&self) -> Result<(), AppendError> {
        self.shared.writer.desk().refuse_leader()?;
        if self.is_closed.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        let kept = self.shared.close_house();
        let written = self.shared.writer.close();
        let signed = self.shared.last_checkpoint();
        self.shared.readers.close();
        self.shared.writer.end();
        self.owner.lock().unwrap_or_else(PoisonError::into_inner).take();
        written.and(signed).and(kept)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // Whoever wants to know closes it.
        self.close().ok();
    }
}

impl Shared {
    /// Does what others left to do; mostly that is nothing.
    fn begin(
        self: &Arc<Shared>,
        last: Option<&Last>,
        anchored: Option<i64>,
    ) -> Result<(), AppendError> {
        self.recover()?;
        let dead = owner::sweep(&self.home, self.owner)?;
        self.found_dead.store(dead > 0, Ordering::Relaxed);
        self.catch_up(last, anchored)?;
        let is_lazy = self.writer.desk().next_deadline().is_some();
        if is_lazy { self.open_house() } else { Ok(()) }
    }

    /// Leaves everything as it is.
    fn give_up(&self) {
        self.close_house().ok();
        self.writer.end();
    }

    /// Signs where nothing was signed yet, and hands over what the sink does not have.
    fn catch_up(&self, last: Option<&Last>, anchored: Option<i64>) -> Result<(), AppendError> {
        let Some(last) = last else { return self.checkpoint() };
        let is_lost = last.is_sunk && anchored.is_some_and(|anchored| anchored < last.number);
        if is_lost {
            // If the anchor has none, the last one speaks for all.
            let after = anchored.filter(|&anchored| anchored > 0).unwrap_or(last.number - 1);
            self.unsink_after(after)?;
        }
        if is_lost || !last.is_sunk {
            self.sink_pending();
        }
        Ok(())
    }

    pub(crate) fn prepare(&self, draft: Draft) -> Result<Prepared, AppendError> {
        if draft.stated.is_some() && !draft.kind.is_of_rows() {
            return Err(AppendError::NoRow(draft.kind));
        }
        Ok(prepare(draft, &self.redactor, self.owner)?)
    }

    /// Of a kind that stands by itself.
    fn prepare_single(&self, draft: Draft) -> Result<Prepared, AppendError> {
        match draft.kind {
            Kind::Opened
            | Kind::Intent
            | Kind::Outcome
            | Kind::Recovered
            | Kind::Pruned
            | Kind::CheckpointMissed => Err(AppendError::NotByItself(draft.kind)),
            _ => self.prepare(draft),
        }
    }

    /// Of events that stand by themselves, to which somebody adds.
    fn prepare_all(
        shared: &Arc<Shared>,
        add: impl FnOnce(Vec<Prepared>) -> Vec<Prepared> + Send + 'static,
    ) -> impl FnOnce(Vec<Draft>) -> Result<Vec<Prepared>, AppendError> + Send + 'static {
        let shared = Arc::clone(shared);
        move |drafts| {
            let all = drafts.into_iter().map(|draft| shared.prepare_single(draft));
            all.collect::<Result<_, _>>().map(add)
        }
    }

    /// By hotcell itself, now.
    pub(crate) fn own_draft(&self, kind: Kind) -> Draft {
        Draft::new(kind, self.options.caller.clone(), (self.options.clock)())
    }

    fn write_rows<T, E>(
        self: &Arc<Shared>,
        way: Way,
        prepare: impl FnOnce(Vec<Draft>) -> Result<Vec<Prepared>, AppendError> + Send + 'static,
        rows: impl FnOnce(&Transaction<'_>) -> Result<(T, Vec<Draft>), E> + Send + 'static,
    ) -> Result<(T, Vec<Receipt>), WriteError<E>>
    where
        T: Send + 'static,
        E: Send + 'static,
    {
        self.open_house()?;
        let own = Arc::new(Mutex::new(None));
        let set = Arc::clone(&own);
        let rows: Rows = Box::new(move |tx| {
            let (value, prepared) = match rows(tx) {
                Ok((value, drafts)) => (Ok(value), prepare(drafts)),
                Err(error) => (Err(error), Err(AppendError::Failed("its own rows failed".into()))),
            };
            *set.lock().unwrap_or_else(PoisonError::into_inner) = Some(value);
            prepared
        });
        let done = match way {
            Way::Next(durability) => self.writer.rows(rows, durability),
            Way::Last => self.write_last(rows),
        };
        let own = own.lock().unwrap_or_else(PoisonError::into_inner).take();
        match (done, own) {
            (Ok(receipts), Some(Ok(value))) => Ok((value, receipts)),
            (_, Some(Err(error))) => Err(WriteError::Own(error)),
            (Err(error), _) => Err(error.into()),
            (Ok(_), None) => Err(AppendError::Panicked.into()),
        }
    }
}

/// A call that was begun. It has exactly one end: what `finish` says, or `unknown`.
#[derive(Debug)]
#[must_use = "a call that is begun and dropped ends as `unknown`"]
pub struct Intent {
    /// Until it is finished.
    record: Option<Record>,
    receipt: Receipt,
    call: CallId,
    /// How it ends if nobody says.
    end: Draft,
    is_last: bool,
}

/// How rows get into the database.
#[derive(Debug, Clone, Copy)]
enum Way {
    /// With whatever else waits.
    Next(Durability),
    /// As the last that this process records.
    Last,
}

impl Intent {
    pub fn call(&self) -> CallId {
        self.call
    }

    pub fn receipt(&self) -> Receipt {
        self.receipt
    }

    /// Nothing is recorded after its end: that of the chain is signed in the same transaction, which is on the
    /// disk when [`finish`](Intent::finish) answers. What is left to do is [`Record::close`].
    pub fn last(mut self) -> Intent {
        self.is_last = true;
        self
    }

    /// Records what became of the call. If that fails, the caller hears of it, and it is tried again
    /// until the record is closed, which it is with the last.
    pub fn finish(mut self, draft: Draft) -> Result<Receipt, AppendError> {
        if self.is_last {
            let alone = |_: &Transaction<'_>| Ok(((), Vec::new()));
            return match self.finish_with::<(), Infallible>(draft, alone) {
                Ok(((), receipt)) => Ok(receipt),
                Err(WriteError::Append(error)) => Err(error),
                Err(WriteError::Own(never)) => match never {},
            };
        }
        let record = self.record.take().ok_or(AppendError::Closed)?;
        record.shared().finish(self.call, draft)
    }

    /// The same, together with rows of other tables and the events about them, which the outcome
    /// follows: all are there, or nothing is. If that fails, the call ends as `unknown`.
    pub fn finish_with<T, E>(
        mut self,
        draft: Draft,
        rows: impl FnOnce(&Transaction<'_>) -> Result<(T, Vec<Draft>), E> + Send + 'static,
    ) -> Result<(T, Receipt), WriteError<E>>
    where
        T: Send + 'static,
        E: Send + 'static,
    {
        let record = self.record.clone().ok_or(AppendError::Closed)?;
        let outcome = Draft { kind: Kind::Outcome, call: Some(self.call), ..draft };
        let prepared = record.shared().prepare(outcome)?;
        let prepare = Shared::prepare_all(record.shared(), move |mut all| {
            all.push(prepared);
            all
        });
        let way = if self.is_last { Way::Last } else { Way::Next(Durability::Committed) };
        let (value, receipts) = record.shared().write_rows(way, prepare, rows)?;
        self.record = None;
        let receipt = receipts.last().copied().ok_or(AppendError::Panicked)?;
        Ok((value, receipt))
    }
}

/// The call of an intent, and how it ends if nobody says.
fn end_of(intent: &Draft) -> Result<(CallId, Draft), AppendError> {
    let call = intent.call.ok_or(AppendError::NoCall(Kind::Intent))?;
    let mut end = Draft::new(Kind::Outcome, intent.caller.clone(), intent.time);
    end.parent = intent.parent;
    end.operation = intent.operation.clone();
    end.tool = intent.tool.clone();
    end.status = Some(Status::Unknown);
    end.reason = Some("it was given up without an outcome".to_owned());
    end.secrets = intent.secrets.clone();
    end.hidden = intent.hidden.clone();
    Ok((call, end))
}

impl Drop for Intent {
    fn drop(&mut self) {
        let Some(record) = self.record.take() else { return };
        let time = (record.shared().options.clock)();
        // If it cannot be written, recovery closes it when this process has ended.
        record.shared().finish(self.call, Draft { time, ..self.end.clone() }).ok();
    }
}

impl Shared {
    fn finish(&self, call: CallId, draft: Draft) -> Result<Receipt, AppendError> {
        let prepared = self.prepare(Draft { kind: Kind::Outcome, call: Some(call), ..draft })?;
        self.writer.event(prepared, Durability::Committed, Failing::Keep)
    }
}

fn cannot_begin(shared: &Shared, error: &AppendError) -> OpenError {
    let fix = "free some space, or end whoever holds the database locked";
    OpenError::new(OpenFault::Io, &shared.database, &error.to_string(), fix)
}

fn cannot_own(home: &Path, error: &io::Error) -> OpenError {
    if error.kind() == io::ErrorKind::WouldBlock {
        let why = "a backup is being put in its place";
        return OpenError::new(OpenFault::InUse, home, why, "try again when that is done");
    }
    OpenError::io(home, error)
}

/// Makes the database of a home that has none, with its first event.
fn make(
    home: &Path,
    database: &Path,
    options: &Options,
    redactor: &Redactor,
    owner: OwnerId,
) -> Result<(), OpenError> {
    refuse_if_gone(home, database)?;
    let io = |error: io::Error| OpenError::io(home, &error);
    Key::make(home).map_err(io)?;
    let id = HomeId::random().map_err(io)?;
    let draft = Draft::new(Kind::Opened, options.caller.clone(), (options.clock)());
    let mut event = prepare(draft, redactor, owner).map_err(io)?.event;
    event.seq = 1;
    event.prev = genesis(id);
    let hash = encode::hash(&event, &mut Vec::new());
    event.hash = hash.map_err(|error| OpenError::damaged(database, &error.to_string()))?;
    db::create(database, schema::STEPS, |connection| fill(connection, id, &event))
}

fn fill(connection: &Connection, id: HomeId, first: &Event) -> rusqlite::Result<()> {
    let meta = "INSERT INTO meta VALUES ('home', ?1), ('genesis', ?2)";
    connection.execute(meta, (id.0, genesis(id).0))?;
    row::insert(connection, first)
}

/// A database that was there and is not any more is not begun anew.
fn refuse_if_gone(home: &Path, database: &Path) -> Result<(), OpenError> {
    for left in ["hotcell.db-wal", "anchor.log"] {
        let is_left = home.join(left).symlink_metadata().is_ok_and(|found| found.len() > 0);
        // Another process may have made it all just now.
        if is_left && !db::inspect(database)? {
            let why = format!("it is not there, and `{left}` beside it says that it was");
            let fix =
                "restore a backup, or move `hotcell.db-wal` and `anchor.log` away to begin anew";
            return Err(OpenError::new(OpenFault::Gone, database, &why, fix));
        }
    }
    Ok(())
}

pub(crate) fn home_id(connection: &Connection) -> rusqlite::Result<HomeId> {
    let home = "SELECT value FROM meta WHERE name = 'home'";
    connection.query_row(home, [], |row| row.get(0)).map(Hex)
}

/// Nothing is wrong, and the key that will sign the next checkpoint has signed the last.
fn check_start(database: &Path, home: &Path, key: &Key, start: &Start) -> Result<(), OpenError> {
    if let Some(fault) = &start.verdict.fault {
        return Err(OpenError::damaged(database, &fault.to_string()));
    }
    if let Some(why) = &start.unread {
        let fix = "make it readable, or end whoever holds it locked";
        return Err(OpenError::new(OpenFault::Io, database, why, fix));
    }
    if start.last.as_ref().is_none_or(|last| last.checkpoint.key == key.public()) {
        return Ok(());
    }
    let why = "another key signed the last checkpoint";
    let fix = "put the home's own key back";
    Err(OpenError::new(OpenFault::Key, &home.join("keys/record.key"), why, fix))
}
