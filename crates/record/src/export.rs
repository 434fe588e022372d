//! The whole record as JSON Lines, for verifiers and for whoever wants to search it elsewhere. Contents
//! of payloads stay where they are; their digests are in it.

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use rusqlite::Connection;
use serde::Serialize;

use crate::checkpoint::Checkpoint;
use crate::db::{self, Access};
use crate::error::ReadError;
use crate::event::{Event, Summary};
use crate::hex::{Digest, Hex, HomeId, OwnerId};
use crate::query::span;
use crate::record::{Record, home_id};
use crate::store;
use crate::verify::last_checkpoint;

/// Events, and checkpoints, that are read in one transaction. None is open while they are written: whoever takes
/// them may take their time, and until a transaction ends the write-ahead log only grows.
const CHUNK: u64 = 1000;
/// How long a lock is waited for.
const BUSY: Duration = Duration::from_secs(5);

/// Is told now and then how far something is, and how far there is to go.
pub type Watch<'a> = &'a mut dyn FnMut(u64, u64);

/// What was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exported {
    pub events: u64,
    pub checkpoints: u64,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Line<'a> {
    Header { format: &'static str, version: u64, home: HomeId, key: Option<Hex<32>> },
    Event(&'a EventLine<'a>),
    Checkpoint { line: &'a str },
    End { events: u64, checkpoints: u64, head: Digest },
}

/// Every field as it was hashed.
#[derive(Serialize)]
struct EventLine<'a> {
    seq: u64,
    version: u64,
    id: Hex<16>,
    time: i64,
    kind: &'static str,
    call: Option<Hex<16>>,
    parent: Option<Hex<16>>,
    operation: Option<&'a str>,
    tool: Option<&'a str>,
    tenant: &'a str,
    subject: &'a str,
    door: &'static str,
    mode: Option<&'a str>,
    state: Option<&'a str>,
    decision: Option<&'static str>,
    rules: &'a [String],
    bearer: Option<&'a str>,
    reason: Option<&'a str>,
    status: Option<&'static str>,
    input: Option<SummaryLine<'a>>,
    output: Option<SummaryLine<'a>>,
    duration_ns: Option<u64>,
    sandbox: Option<&'a str>,
    request: Option<&'a str>,
    owner: OwnerId,
    prev: Digest,
    hash: Digest,
}

#[derive(Serialize)]
struct SummaryLine<'a> {
    digest: Digest,
    length: u64,
    head: Option<Digest>,
    media: &'a str,
}

impl Record {
    /// Writes all events and checkpoints of the home, of all tenants.
    pub fn export(&self, out: &mut dyn Write) -> Result<Exported, ReadError> {
        self.read(|connection| export_connection(connection, out, &mut |_, _| {}))
    }
}

/// The same from a database file that need not be in a home.
pub fn export(database: &Path, out: &mut dyn Write) -> Result<Exported, ReadError> {
    export_watched(database, out, &mut |_, _| {})
}

/// The same; `watch` is told now and then how many events were written, and of how many.
pub fn export_watched(
    database: &Path,
    out: &mut dyn Write,
    watch: Watch<'_>,
) -> Result<Exported, ReadError> {
    export_connection(&db::connect(database, Access::Read, BUSY)?, out, watch)
}

fn export_connection(
    connection: &Connection,
    out: &mut dyn Write,
    watch: Watch<'_>,
) -> Result<Exported, ReadError> {
    let home = home_id(connection)?;
    let last = last_checkpoint(connection)?;
    let key = last.as_ref().and_then(|line| line.parse::<Checkpoint>().ok()).map(|last| last.key);
    write(out, &Line::Header { format: "hotcell-record", version: 1, home, key })?;
    // Checkpoints are counted first: what they speak of is there by then.
    let count = "SELECT coalesce(max(number), 0) FROM checkpoint";
    let signed: i64 = connection.query_row(count, [], |row| row.get(0))?;
    let (mut events, mut head) = (0, Digest::ZERO);
    let all = store::newest(connection);
    loop {
        watch(events, all);
        let page = span(connection, events, CHUNK)?;
        for event in &page {
            write(out, &Line::Event(&line(event)))?;
            (events, head) = (event.seq, event.hash);
        }
        if (page.len() as u64) < CHUNK {
            break;
        }
    }
    let (mut checkpoints, mut last) = (0, i64::MIN);
    loop {
        let page = checkpoints_after(connection, last, signed)?;
        for (number, line) in &page {
            write(out, &Line::Checkpoint { line })?;
            last = *number;
            checkpoints += 1;
        }
        if (page.len() as u64) < CHUNK {
            break;
        }
    }
    write(out, &Line::End { events, checkpoints, head })?;
    out.flush()?;
    Ok(Exported { events, checkpoints })
}

fn checkpoints_after(
    connection: &Connection,
    number: i64,
    signed: i64,
) -> rusqlite::Result<Vec<(i64, String)>> {
    let lines = "SELECT number, line FROM checkpoint WHERE number > ?1 AND number <= ?2
        ORDER BY number LIMIT ?3";
    let mut lines = connection.prepare_cached(lines)?;
    let rows =
        lines.query_map((number, signed, CHUNK as i64), |row| Ok((row.get(0)?, row.get(1)?)))?;
    rows.collect()
}

fn write(out: &mut dyn Write, line: &Line<'_>) -> Result<(), ReadError> {
    serde_json::to_writer(&mut *out, line).map_err(std::io::Error::from)?;
    Ok(out.write_all(b"\n")?)
}

fn line(event: &Event) -> EventLine<'_> {
    EventLine {
        seq: event.seq,
        version: event.version,
        id: event.id,
        time: event.time,
        kind: event.kind.name(),
        call: event.call.map(|call| Hex(call.to_bytes())),
        parent: event.parent.map(|call| Hex(call.to_bytes())),
        operation: event.operation.as_deref(),
        tool: event.tool.as_deref(),
        tenant: event.caller.tenant.as_str(),
        subject: event.caller.subject.as_str(),
        door: event.caller.door.name(),
        mode: event.mode.as_deref(),
        state: event.state.as_deref(),
        decision: event.decision.map(|decision| decision.name()),
        rules: &event.rules,
        bearer: event.bearer.as_deref(),
        reason: event.reason.as_deref(),
        status: event.status.map(|status| status.name()),
        input: event.input.as_ref().map(summary),
        output: event.output.as_ref().map(summary),
        duration_ns: event.duration_ns,
        sandbox: event.sandbox.as_deref(),
        request: event.request.as_deref(),
        owner: event.owner,
        prev: event.prev,
        hash: event.hash,
    }
}

fn summary(summary: &Summary) -> SummaryLine<'_> {
    let Summary { digest, length, head, media } = summary;
    SummaryLine { digest: *digest, length: *length, head: *head, media }
}
