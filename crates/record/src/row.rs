//! Events as rows of the database. What is read back must be exactly what could have been written.

use hotcell_types::{CallId, Caller, Decision, Door, Name, Status};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::encode::{list, unlist};
use crate::event::{Event, Kind, Side, Summary};
use crate::hex::Hex;
use crate::prepare::Prepared;

/// All columns, in the order in which `read` takes them.
pub(crate) const COLUMNS: &str = "seq, version, id, time, kind, call, parent, operation, tool, \
    tenant, subject, door, mode, state, decision, rules, bearer, reason, status, \
    input_digest, input_length, input_head, input_media, \
    output_digest, output_length, output_head, output_media, \
    duration_ns, sandbox, request, owner, prev, hash";

/// `OR FAIL` for the sake of speed: see the trigger `event_extends`.
const INSERT: &str = "INSERT OR FAIL INTO event VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, \
    ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22, ?23, ?24, ?25, ?26, ?27, ?28, ?29, \
    ?30, ?31, ?32, ?33)";

/// Largest content that lies beside its event. What is larger is kept once for all events that have it, which
/// takes longer: a digest is a random place in an index.
const MOST_SMALL: usize = 1024;

/// A later use of the same content keeps it for longer.
const INSERT_CONTENT: &str = "INSERT INTO payload VALUES (?1, ?2, ?3, ?4)
    ON CONFLICT (digest) DO UPDATE SET seq = excluded.seq, time = excluded.time";

/// A column that has nothing in it that hotcell writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BadColumn(pub(crate) String);

pub(crate) fn insert(connection: &Connection, event: &Event) -> rusqlite::Result<()> {
    let (input, output) = (event.input.as_ref(), event.output.as_ref());
    connection.prepare_cached(INSERT)?.execute(params![
        event.seq as i64,
        event.version as i64,
        event.id.0,
        event.time,
        event.kind.name(),
        event.call.map(CallId::to_bytes),
        event.parent.map(CallId::to_bytes),
        event.operation,
        event.tool,
        event.caller.tenant.as_str(),
        event.caller.subject.as_str(),
        event.caller.door.name(),
        event.mode,
        event.state,
        event.decision.map(Decision::name),
        list(&event.rules),
        event.bearer,
        event.reason,
        event.status.map(Status::name),
        input.map(|summary| summary.digest.0),
        input.map(|summary| summary.length as i64),
        input.and_then(|summary| summary.head).map(|head| head.0),
        input.map(|summary| summary.media.as_str()),
        output.map(|summary| summary.digest.0),
        output.map(|summary| summary.length as i64),
        output.and_then(|summary| summary.head).map(|head| head.0),
        output.map(|summary| summary.media.as_str()),
        event.duration_ns.map(|span| span as i64),
        event.sandbox,
        event.request,
        event.owner.0,
        event.prev.0,
        event.hash.0,
    ])?;
    Ok(())
}

/// What an event's payloads say, as far as it is kept.
pub(crate) fn insert_contents(connection: &Connection, of: &Prepared) -> rusqlite::Result<()> {
    let event = &of.event;
    let is_small = |content: &&Vec<u8>| content.len() <= MOST_SMALL;
    let (input, output) = (of.input.as_ref(), of.output.as_ref());
    let small = (input.filter(is_small), output.filter(is_small));
    if small != (None, None) {
        let row = params![event.seq as i64, event.time, small.0, small.1];
        connection.prepare_cached("INSERT INTO small VALUES (?1, ?2, ?3, ?4)")?.execute(row)?;
    }
    for (summary, content) in event.input.iter().zip(input).chain(event.output.iter().zip(output)) {
        if !is_small(&content) {
            let row = params![summary.digest.0, event.seq as i64, event.time, content];
            connection.prepare_cached(INSERT_CONTENT)?.execute(row)?;
        }
    }
    Ok(())
}

/// What is kept of a payload, whether or not it is what was hashed.
pub(crate) fn content(
    connection: &Connection,
    seq: u64,
    side: Side,
    summary: &Summary,
) -> rusqlite::Result<Option<Vec<u8>>> {
    let small = match side {
        Side::Input => "SELECT input FROM small WHERE seq = ?1",
        Side::Output => "SELECT output FROM small WHERE seq = ?1",
    };
    let mut small = connection.prepare_cached(small)?;
    let small = small.query_row([seq as i64], |row| row.get(0)).optional()?.flatten();
    if small.is_some() { Ok(small) } else { shared_content(connection, summary) }
}

/// The same in tables older than version 3, which have no place for small ones.
pub(crate) fn shared_content(
    connection: &Connection,
    summary: &Summary,
) -> rusqlite::Result<Option<Vec<u8>>> {
    let mut content = connection.prepare_cached("SELECT content FROM payload WHERE digest = ?1")?;
    content.query_row([summary.digest.0], |row| row.get(0)).optional()
}

/// From a row of `COLUMNS`.
pub(crate) fn read(row: &Row<'_>) -> Result<Event, BadColumn> {
    let mut columns = Columns { row, next: 0 };
    let c = &mut columns;
    Ok(Event {
        seq: c.must(Columns::natural)?,
        version: c.must(Columns::natural)?,
        id: c.must(Columns::hex)?,
        time: c.must(Columns::integer)?,
        kind: c.must(|c| c.one_of(&Kind::ALL, Kind::name))?,
        call: c.hex()?.map(|Hex(bytes)| CallId::from_bytes(bytes)),
        parent: c.hex()?.map(|Hex(bytes)| CallId::from_bytes(bytes)),
        operation: c.text()?,
        tool: c.text()?,
        caller: Caller {
            tenant: c.must(Columns::name)?,
            subject: c.must(Columns::name)?,
            door: c.must(|c| c.one_of(&Door::ALL, Door::name))?,
        },
        mode: c.text()?,
        state: c.text()?,
        decision: c.one_of(&[Decision::Allow, Decision::Review, Decision::Deny], Decision::name)?,
        rules: c.must(Columns::list)?,
        bearer: c.text()?,
        reason: c.text()?,
        status: c.one_of(&Status::ALL, Status::name)?,
        input: c.summary()?,
        output: c.summary()?,
        duration_ns: c.natural()?,
        sandbox: c.text()?,
        request: c.text()?,
        owner: c.must(Columns::hex)?,
        prev: c.must(Columns::hex)?,
        hash: c.must(Columns::hex)?,
    })
}

/// Takes one column after the other.
struct Columns<'a, 'row> {
    row: &'a Row<'row>,
    next: usize,
}

impl Columns<'_, '_> {
    fn take(&mut self) -> Result<ValueRef<'_>, BadColumn> {
        self.next += 1;
        self.row.get_ref(self.next - 1).map_err(|_| self.bad())
    }

    /// The one that was taken last.
    fn bad(&self) -> BadColumn {
        let name = COLUMNS.split(", ").nth(self.next.saturating_sub(1)).unwrap_or("a column");
        BadColumn(name.trim().to_owned())
    }

    fn must<T>(
        &mut self,
        take: impl FnOnce(&mut Self) -> Result<Option<T>, BadColumn>,
    ) -> Result<T, BadColumn> {
        take(self)?.ok_or_else(|| self.bad())
    }

    fn integer(&mut self) -> Result<Option<i64>, BadColumn> {
        match self.take()? {
            ValueRef::Null => Ok(None),
            ValueRef::Integer(number) => Ok(Some(number)),
            _ => Err(self.bad()),
        }
    }

    fn natural(&mut self) -> Result<Option<u64>, BadColumn> {
        let number = self.integer()?;
        number.map(u64::try_from).transpose().map_err(|_| self.bad())
    }

    fn text(&mut self) -> Result<Option<String>, BadColumn> {
        let text = match self.take()? {
            ValueRef::Null => return Ok(None),
            ValueRef::Text(bytes) => String::from_utf8(bytes.to_vec()).ok(),
            _ => None,
        };
        text.map(Some).ok_or_else(|| self.bad())
    }

    fn blob(&mut self) -> Result<Option<Vec<u8>>, BadColumn> {
        match self.take()? {
            ValueRef::Null => Ok(None),
            ValueRef::Blob(bytes) => Ok(Some(bytes.to_vec())),
            _ => Err(self.bad()),
        }
    }

    fn hex<const N: usize>(&mut self) -> Result<Option<Hex<N>>, BadColumn> {
        let Some(bytes) = self.blob()? else { return Ok(None) };
        Hex::from_slice(&bytes).map(Some).ok_or_else(|| self.bad())
    }

    fn name(&mut self) -> Result<Option<Name>, BadColumn> {
        let name = self.text()?.map(Name::try_from);
        name.transpose().map_err(|_| self.bad())
    }

    fn one_of<T: Copy>(
        &mut self,
        all: &[T],
        name: impl Fn(T) -> &'static str,
    ) -> Result<Option<T>, BadColumn> {
        let Some(text) = self.text()? else { return Ok(None) };
        let found = all.iter().copied().find(|&one| name(one) == text);
        found.map(Some).ok_or_else(|| self.bad())
    }

    fn list(&mut self) -> Result<Option<Vec<String>>, BadColumn> {
        let Some(bytes) = self.blob()? else { return Ok(None) };
        unlist(&bytes).map(Some).ok_or_else(|| self.bad())
    }

    /// All of its four columns, or none; only the head can be missing alone.
    fn summary(&mut self) -> Result<Option<Summary>, BadColumn> {
        let digest = self.hex()?;
        let length = self.natural()?;
        let head = self.hex()?;
        let media = self.text()?;
        match (digest, length, head, media) {
            (None, None, None, None) => Ok(None),
            (Some(digest), Some(length), head, Some(media)) => {
                Ok(Some(Summary { digest, length, head, media }))
            }
            _ => Err(self.bad()),
        }
    }
}
