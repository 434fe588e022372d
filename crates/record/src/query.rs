//! Reading: always for one tenant, always hashed again, so that what was changed is never given out as
//! what was recorded.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use hotcell_types::{CallId, Name, Status};
use rusqlite::{Connection, named_params};

use crate::db::{self, Access, OpenError, pragma};
use crate::encode;
use crate::error::ReadError;
use crate::event::{Event, Kind, Side, Stated, Summary};
use crate::record::Record;
use crate::row::{self, COLUMNS};
use crate::verify::{From, Verdict, verify_connection};

/// Most events of one page.
pub const MOST_PAGE: usize = 1000;
/// Connections that are kept for the next reader.
const KEPT: usize = 4;
/// How long a lock is waited for.
const BUSY: Duration = Duration::from_secs(5);
/// How often it is looked whether somebody still waits.
const LOOK: Duration = Duration::from_millis(50);
/// How often other processes' events are looked for.
const POLL: Duration = Duration::from_millis(50);

/// Which events. Only those of the tenant, whatever else is asked for.
#[derive(Debug, Clone)]
pub struct Filter {
    pub tenant: Name,
    pub call: Option<CallId>,
    /// Asked for by this call.
    pub parent: Option<CallId>,
    pub tool: Option<String>,
    pub kind: Option<Kind>,
    pub status: Option<Status>,
    /// Nanoseconds since 1970: not before, and before.
    pub since: Option<i64>,
    pub until: Option<i64>,
    /// Only later ones.
    pub after: u64,
    /// At most `MOST_PAGE`.
    pub limit: usize,
    /// The last ones, if there are more. They come in their order all the same.
    pub last: bool,
}

impl Filter {
    /// Everything of a tenant, from the first event.
    pub fn of(tenant: Name) -> Filter {
        Filter {
            tenant,
            call: None,
            parent: None,
            tool: None,
            kind: None,
            status: None,
            since: None,
            until: None,
            after: 0,
            limit: MOST_PAGE,
            last: false,
        }
    }
}

/// A call: what was meant, and what became of it so far.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    pub intent: Event,
    /// An outcome, or what recovery put in its place.
    pub end: Option<Event>,
}

impl Record {
    /// Events in their order, a page at a time.
    pub fn events(&self, filter: &Filter) -> Result<Vec<Event>, ReadError> {
        self.read(|connection| page(connection, filter, filter.kind.map(Kind::name), EVENT_STATUS))
    }

    pub fn event(&self, tenant: &Name, seq: u64) -> Result<Option<Event>, ReadError> {
        let event = self.read(|connection| one(connection, seq))?;
        Ok(event.filter(|event| event.caller.tenant == *tenant))
    }

    /// What is kept of an event's input: its beginning, or nothing if it was pruned or there was none.
    pub fn input(&self, event: &Event) -> Result<Option<Vec<u8>>, ReadError> {
        self.content(event, Side::Input, event.input.as_ref())
    }

    /// The same of its output.
    pub fn output(&self, event: &Event) -> Result<Option<Vec<u8>>, ReadError> {
        self.content(event, Side::Output, event.output.as_ref())
    }

    fn content(
        &self,
        event: &Event,
        side: Side,
        summary: Option<&Summary>,
    ) -> Result<Option<Vec<u8>>, ReadError> {
        let Some(summary) = summary else { return Ok(None) };
        match self.read(|connection| Ok(row::content(connection, event.seq, side, summary)?))? {
            Some(content) if !summary.is_of(&content) => Err(ReadError::TamperedPayload),
            content => Ok(content),
        }
    }

    /// Whose call it is, if anything of it is recorded.
    pub fn tenant_of(&self, call: CallId) -> Result<Option<Name>, ReadError> {
        self.read(|connection| {
            let select = format!("SELECT {COLUMNS} FROM event WHERE call = ?1 LIMIT 1");
            let mut select = connection.prepare_cached(&select)?;
            let mut rows = select.query([call.to_bytes()])?;
            let event = rows.next()?.map(|row| checked(row, &mut Vec::new())).transpose()?;
            Ok(event.map(|event| event.caller.tenant))
        })
    }

    /// Calls in the order of their intents; `kind` is of no matter, `status` is that of the end.
    pub fn runs(&self, filter: &Filter) -> Result<Vec<Run>, ReadError> {
        self.read(|connection| {
            let intents = page(connection, filter, Some(Kind::Intent.name()), RUN_STATUS)?;
            let with_end = |intent: Event| {
                let end = intent.call.map(|call| end_of(connection, call)).transpose()?.flatten();
                Ok(Run { intent, end })
            };
            intents.into_iter().map(with_end).collect()
        })
    }

    /// Waits until there are such events, and no longer than that. Empty when the time is over, or the
    /// record closed.
    pub fn follow(&self, filter: &Filter, most: Duration) -> Result<Vec<Event>, ReadError> {
        let deadline = Instant::now() + most;
        self.read(|connection| {
            let writer = &self.shared().writer;
            loop {
                let commits = writer.desk().commits;
                let version: i64 = pragma(connection, "data_version")?;
                let kind = filter.kind.map(Kind::name);
                let events = page(connection, filter, kind, EVENT_STATUS)?;
                if !events.is_empty() {
                    return Ok(events);
                }
                loop {
                    let rest = deadline.saturating_duration_since(Instant::now());
                    let mut desk = writer.desk();
                    if rest.is_zero() || desk.is_closed() {
                        return Ok(Vec::new());
                    }
                    if desk.commits == commits {
                        desk.followers += 1;
                        let waited = writer.news.wait_timeout(desk, rest.min(POLL));
                        desk = waited.unwrap_or_else(PoisonError::into_inner).0;
                        desk.followers -= 1;
                    }
                    let is_news = desk.commits != commits;
                    drop(desk);
                    if is_news || pragma::<i64>(connection, "data_version")? != version {
                        break;
                    }
                }
            }
        })
    }

    /// Is the record what was recorded? Against the sink, if that is a file.
    pub fn verify(&self, from: From) -> Result<Verdict, ReadError> {
        self.read(|connection| Ok(self.verified(connection, from, &|| true)))
    }

    /// The same for somebody who may not wait for it to its end: then there is no verdict.
    pub fn verify_while(
        &self,
        from: From,
        is_wanted: &(dyn Fn() -> bool + Sync),
    ) -> Result<Verdict, ReadError> {
        self.read(|connection| {
            let verdict =
                while_wanted(connection, is_wanted, || self.verified(connection, from, is_wanted));
            if is_wanted() { Ok(verdict) } else { Err(ReadError::Unwanted) }
        })
    }

    fn verified(
        &self,
        connection: &Connection,
        from: From,
        is_wanted: &dyn Fn() -> bool,
    ) -> Verdict {
        let anchor = self.shared().options.sink.anchor(self.home());
        let mut goes_on = |_: u64, _: u64| is_wanted();
        verify_connection(connection, self.database(), anchor.as_deref(), from, &mut goes_on)
    }

    /// Reads other tables, and this one, as they were at one moment.
    pub fn look<T, E: std::convert::From<ReadError>>(
        &self,
        look: impl FnOnce(&Connection) -> Result<T, E>,
    ) -> Result<T, E> {
        let readers = &self.shared().readers;
        let connection = readers.take().map_err(ReadError::from)?;
        let result = at_one_moment(&connection, look);
        readers.give_back(connection);
        result
    }

    /// What one statement says, if that can be known without waiting: for a connection, or for a lock of
    /// another process. Whoever gets nothing asks in another way, and hears there what is wrong.
    pub fn glance<T, E>(&self, look: impl FnOnce(&Connection) -> Result<T, E>) -> Option<T> {
        let readers = &self.shared().readers;
        let connection = readers.idle()?;
        connection.busy_timeout(Duration::ZERO).ok()?;
        let seen = look(&connection).ok();
        connection.busy_timeout(readers.busy).ok()?;
        readers.give_back(connection);
        seen
    }

    pub(crate) fn read<T>(
        &self,
        read: impl FnOnce(&Connection) -> Result<T, ReadError>,
    ) -> Result<T, ReadError> {
        let readers = &self.shared().readers;
        let connection = readers.take()?;
        let result = read(&connection);
        readers.give_back(connection);
        result
    }
}

/// The same, of a database file that need not be in a home.
pub fn look<T, E: std::convert::From<ReadError>>(
    database: &Path,
    look: impl FnOnce(&Connection) -> Result<T, E>,
) -> Result<T, E> {
    let connection = db::connect(database, Access::Read, BUSY).map_err(ReadError::from)?;
    at_one_moment(&connection, look)
}

/// Whether the chain has an event of this kind about a call, with exactly this reason. Of a row that says
/// otherwise, the chain is believed.
pub fn is_told(
    connection: &Connection,
    kind: Kind,
    call: CallId,
    reason: &str,
) -> rusqlite::Result<bool> {
    let told = "SELECT 1 FROM event WHERE call = ?1 AND kind = ?2 AND reason = ?3";
    connection.prepare_cached(told)?.exists((call.to_bytes(), kind.name(), reason))
}

/// Breaks off what a connection looks for as soon as nobody waits for it: one statement can go through the whole
/// file.
fn while_wanted<T>(
    connection: &Connection,
    is_wanted: &(dyn Fn() -> bool + Sync),
    work: impl FnOnce() -> T,
) -> T {
    /// However the work ends.
    struct Over<'a>(&'a AtomicBool, Option<Thread>);
    impl Drop for Over<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
            self.1.iter().for_each(Thread::unpark);
        }
    }
    let (interrupt, is_over) = (connection.get_interrupt_handle(), AtomicBool::new(false));
    let watch = || {
        while !is_over.load(Ordering::SeqCst) {
            // Again, until it is heard: a statement that begins later hears nothing of it.
            if !is_wanted() {
                interrupt.interrupt();
            }
            thread::park_timeout(LOOK);
        }
    };
    thread::scope(|scope| {
        // Without a thread, it ends between two statements.
        let watcher = thread::Builder::new().name("unwanted".into()).spawn_scoped(scope, watch);
        let _over = Over(&is_over, watcher.ok().map(|watcher| watcher.thread().clone()));
        work()
    })
}

fn at_one_moment<T, E: std::convert::From<ReadError>>(
    connection: &Connection,
    look: impl FnOnce(&Connection) -> Result<T, E>,
) -> Result<T, E> {
    // Dropped, it ends: nothing was written.
    let moment = connection.unchecked_transaction().map_err(ReadError::from)?;
    look(&moment)
}

/// Every statement about a row of another table, of all tenants, in their order. Each is hashed again;
/// whether nothing is missing is for [`verify`](crate::verify()) to say.
pub fn statements(connection: &Connection, mut each: impl FnMut(Stated)) -> Result<(), ReadError> {
    let kinds = Kind::ALL.into_iter().filter(|kind| kind.is_of_rows());
    let kinds: Vec<String> = kinds.map(|kind| format!("'{kind}'")).collect();
    let select =
        format!("SELECT {COLUMNS} FROM event WHERE kind IN ({}) ORDER BY seq", kinds.join(", "));
    let mut select = connection.prepare(&select)?;
    let mut rows = select.query([])?;
    let mut buffer = Vec::new();
    while let Some(row) = rows.next()? {
        checked(row, &mut buffer)?.stated().into_iter().for_each(&mut each);
    }
    Ok(())
}

/// Connections that only read.
#[derive(Debug)]
pub(crate) struct Readers {
    database: PathBuf,
    busy: Duration,
    free: Mutex<Vec<Connection>>,
}

impl Readers {
    pub(crate) fn new(database: PathBuf, busy: Duration) -> Readers {
        Readers { database, busy, free: Mutex::default() }
    }

    fn take(&self) -> Result<Connection, OpenError> {
        self.idle().map_or_else(|| db::connect(&self.database, Access::Read, self.busy), Ok)
    }

    /// One that is open, and that nobody uses.
    fn idle(&self) -> Option<Connection> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }

    fn give_back(&self, connection: Connection) {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        if free.len() < KEPT && connection.is_autocommit() {
            free.push(connection);
        }
    }

    pub(crate) fn close(&self) {
        self.free.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

const EVENT_STATUS: &str = "(:status IS NULL OR status = :status)";
const RUN_STATUS: &str = "(:status IS NULL OR EXISTS (SELECT 1 FROM event AS ending
    WHERE ending.call = event.call AND ending.kind IN ('outcome', 'recovered')
    AND ending.status = :status))";

fn page(
    connection: &Connection,
    filter: &Filter,
    kind: Option<&str>,
    status: &str,
) -> Result<Vec<Event>, ReadError> {
    let select = select(filter, status);
    let mut select = connection.prepare_cached(&select)?;
    let mut rows = select.query(named_params! {
        ":tenant": filter.tenant.as_str(),
        ":call": filter.call.map(CallId::to_bytes),
        ":parent": filter.parent.map(CallId::to_bytes),
        ":status": filter.status.map(Status::name),
        ":tool": filter.tool,
        ":kind": kind,
        ":since": filter.since,
        ":until": filter.until,
        ":after": i64::try_from(filter.after).unwrap_or(i64::MAX),
        ":limit": filter.limit.min(MOST_PAGE) as i64,
    })?;
    let mut events = Vec::new();
    let mut buffer = Vec::new();
    while let Some(row) = rows.next()? {
        events.push(checked(row, &mut buffer)?);
    }
    if filter.last {
        events.reverse();
    }
    Ok(events)
}

/// A page as SQL, said so that the index over calls or that over parents is used where there is one to
/// look for, and not that over tenants.
fn select(filter: &Filter, status: &str) -> String {
    let (tenant, named) = match (filter.call, filter.parent) {
        (Some(_), _) => ("+tenant", "call = :call AND (:parent IS NULL OR parent = :parent)"),
        (None, Some(_)) => ("+tenant", ":call IS NULL AND parent = :parent"),
        (None, None) => ("tenant", ":call IS NULL AND :parent IS NULL"),
    };
    let order = if filter.last { "DESC" } else { "ASC" };
    format!(
        "SELECT {COLUMNS} FROM event WHERE {tenant} = :tenant AND {named} AND {status}
            AND (:tool IS NULL OR tool = :tool) AND (:kind IS NULL OR kind = :kind)
            AND (:since IS NULL OR time >= :since) AND (:until IS NULL OR time < :until)
            AND seq > :after ORDER BY seq {order} LIMIT :limit"
    )
}

/// An event, whoever's it is.
pub(crate) fn one(connection: &Connection, seq: u64) -> Result<Option<Event>, ReadError> {
    let select = format!("SELECT {COLUMNS} FROM event WHERE seq = ?1");
    let mut select = connection.prepare_cached(&select)?;
    let mut rows = select.query([i64::try_from(seq).unwrap_or(i64::MAX)])?;
    rows.next()?.map(|row| checked(row, &mut Vec::new())).transpose()
}

/// The events after this one, whoever's they are.
pub(crate) fn span(
    connection: &Connection,
    after: u64,
    most: u64,
) -> Result<Vec<Event>, ReadError> {
    let select = format!("SELECT {COLUMNS} FROM event WHERE seq > ?1 ORDER BY seq LIMIT ?2");
    let mut select = connection.prepare_cached(&select)?;
    let mut rows = select.query([after as i64, most as i64])?;
    let mut events = Vec::new();
    let mut buffer = Vec::new();
    while let Some(row) = rows.next()? {
        events.push(checked(row, &mut buffer)?);
    }
    Ok(events)
}

fn end_of(connection: &Connection, call: CallId) -> Result<Option<Event>, ReadError> {
    let select = format!(
        "SELECT {COLUMNS} FROM event WHERE call = ?1 AND kind IN ('outcome', 'recovered') LIMIT 1"
    );
    let mut select = connection.prepare_cached(&select)?;
    let mut rows = select.query([call.to_bytes()])?;
    rows.next()?.map(|row| checked(row, &mut Vec::new())).transpose()
}

/// A row, if it is what was hashed.
fn checked(row: &rusqlite::Row<'_>, buffer: &mut Vec<u8>) -> Result<Event, ReadError> {
    let seq: i64 = row.get(0)?;
    let tampered = |why: String| ReadError::Tampered { seq: seq.unsigned_abs(), why };
    let event = row::read(row).map_err(|bad| tampered(format!("column `{}`", bad.0)))?;
    let hash = encode::hash(&event, buffer).map_err(|unknown| tampered(unknown.to_string()))?;
    if hash == event.hash { Ok(event) } else { Err(tampered("its hash is another".to_owned())) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema;

    #[test]
    fn calls_and_those_that_were_made_by_one_are_found_without_reading_all() {
        let connection = Connection::open_in_memory().unwrap();
        schema::migrate(&connection, schema::STEPS).unwrap();
        let call = CallId::new(0, [1; 10]);
        let all = Filter::of(Name::LOCAL);
        let one = Filter { call: Some(call), ..all.clone() };
        let children = Filter { parent: Some(call), ..all.clone() };
        for (filter, index) in
            [(all, "event_tenant"), (one, "event_call"), (children, "event_parent")]
        {
            let plan = format!("EXPLAIN QUERY PLAN {}", select(&filter, EVENT_STATUS));
            let mut plan = connection.prepare(&plan).unwrap();
            let steps = plan.query_map([None::<i64>; 10], |row| row.get::<_, String>(3)).unwrap();
            let steps: Vec<String> = steps.map(Result::unwrap).collect();
            assert!(steps[0].contains(&format!("USING INDEX {index} ")), "{steps:?}");
        }
    }
}
