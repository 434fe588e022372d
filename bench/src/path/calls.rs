//! Calls through the whole path of an embedded engine, and what they are compared with.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use hotcell_engine::{Answer, Ask, Engine, Options, Policy, Reply, Watch};
use hotcell_record::{AppendError, Draft, Durability, Filter, Kind, Payload, Record, encode, now};
use hotcell_request::{Arguments, Cache, Request, ToolError, ToolName, TypedTool, tool};
use hotcell_types::{CallId, Caller, Door, Name, Status};
use rusqlite::Connection;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::IN_A_ROW;
use crate::peers::{Failure, contestant};
use crate::rounds::Contestant;

pub(super) const BARE: &str = "bare SQLite commit";
pub(super) const DURABLE: &str = "durable call";
pub(super) const RECORD: &str = "its two events, without the path";
pub(super) const ECHO: &str = "socket echo";
pub(super) const BUFFERED: &str = "call of `add`, recorded";
pub(super) const KEPT: &str = "cache hit, recorded";

/// How long a full record is waited for, and how often it is tried.
const PATIENCE: Duration = Duration::from_secs(10);
const STEP: Duration = Duration::from_millis(1);

#[derive(Deserialize, JsonSchema)]
struct Place {
    /// What would be written to.
    #[schemars(length(max = 100), extend("x-hotcell" = "path"))]
    path: String,
}

/// Changes nothing, and is judged and recorded as if it did.
#[tool(name = "bench.write", version = "1.0.0", effects(write))]
fn write(input: Place) -> Result<usize, ToolError> {
    Ok(input.path.len())
}

#[derive(Deserialize, JsonSchema)]
struct Two {
    a: f64,
    b: f64,
}

/// Adds two numbers, once.
#[tool(name = "bench.keep", version = "1.0.0", effects(pure))]
fn keep(input: Two) -> Result<f64, ToolError> {
    Ok(input.a + input.b)
}

/// An engine with the tools that are called here.
pub(crate) fn engine(home: &Path, watch: Option<Watch>) -> Result<Engine, Failure> {
    let policy = Some(Policy::with_workspace_writes());
    let engine = Engine::open(Options { policy, watch, ..Options::at(home) })?;
    engine.add(WriteTool.tool()?, WriteTool)?;
    let mut keep = KeepTool.tool()?;
    keep.cache = Cache::Keep { span: "24h".parse()?, inputs: Vec::new() };
    engine.add(keep, KeepTool)?;
    Ok(engine)
}

/// An engine as a program that embeds it has it.
#[derive(Debug)]
pub(super) struct Calls {
    engine: Engine,
    caller: Caller,
    write: ToolName,
    add: ToolName,
    keep: ToolName,
    /// No two calls are alike, except where that is the point.
    number: AtomicU64,
}

/// How many calls were made in a row, and how many of them are in the record.
#[derive(Debug, Clone, Copy)]
pub(super) struct Burst {
    pub(super) calls: u64,
    pub(super) recorded: u64,
}

impl Calls {
    pub(super) fn open(home: &Path) -> Result<Calls, Failure> {
        Ok(Calls {
            engine: engine(home, None)?,
            caller: Caller::local(Name::LOCAL, Door::Library),
            write: "bench.write".parse()?,
            add: "add".parse()?,
            keep: "bench.keep".parse()?,
            number: AtomicU64::new(0),
        })
    }

    pub(super) fn durable(&self) -> Contestant<'_> {
        contestant(DURABLE, || self.write_once().map(|_| None))
    }

    /// What the path makes of a durable call, by hand: one event that is synced and one that is not.
    pub(super) fn record_alone(&self) -> Contestant<'_> {
        contestant(RECORD, || {
            let intent = self.record()?.begin(self.draft(Kind::Intent))?;
            intent.finish(self.draft(Kind::Outcome))?;
            Ok(None)
        })
    }

    /// Many in a row, until they are recorded.
    pub(super) fn buffered(&self) -> Contestant<'_> {
        contestant(BUFFERED, || self.until_recorded(Calls::add_once).map(Some))
    }

    /// The same, each but the very first given from what was kept.
    pub(super) fn kept(&self) -> Contestant<'_> {
        contestant(KEPT, || self.until_recorded(Calls::keep_once).map(Some))
    }

    /// Begins with the time until the last caller had its reply.
    fn until_recorded(
        &self,
        once: fn(&Calls) -> Result<Box<Reply>, Failure>,
    ) -> Result<[u64; 5], Failure> {
        let begun = Instant::now();
        (0..IN_A_ROW).try_for_each(|_| once(self).map(drop))?;
        let replied = begun.elapsed();
        self.write_rest()?;
        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        Ok([micros(replied), micros(begun.elapsed() - replied), 0, 0, 0])
    }

    /// Calls without a pause, as fast as one caller can.
    pub(super) fn burst(&self, calls: u64) -> Result<Burst, Failure> {
        let before = self.write_rest()?;
        (0..calls).try_for_each(|_| self.add_once().map(drop))?;
        // The event that counts is not counted.
        Ok(Burst { calls, recorded: self.write_rest()? - before - 1 })
    }

    pub(super) fn write_once(&self) -> Result<Box<Reply>, Failure> {
        // Calls that write to one place would wait for each other.
        self.call(&self.write, json!({"path": format!("out/{}.txt", self.next())}))
    }

    pub(super) fn add_once(&self) -> Result<Box<Reply>, Failure> {
        self.call(&self.add, json!({"a": self.next(), "b": 2}))
    }

    fn keep_once(&self) -> Result<Box<Reply>, Failure> {
        self.call(&self.keep, json!({"a": 1, "b": 2}))
    }

    fn call(&self, tool: &ToolName, arguments: Value) -> Result<Box<Reply>, Failure> {
        let request = Request::new(tool.clone(), Arguments::Value(arguments));
        match self.engine.ask(&self.caller, Ask::Call(Box::new(request))) {
            Answer::Called(reply) if reply.status == Status::Success => Ok(reply),
            other => Err(format!("`{tool}`: {other:?}").into()),
        }
    }

    fn next(&self) -> u64 {
        self.number.fetch_add(1, Ordering::Relaxed)
    }

    fn record(&self) -> Result<&Record, Failure> {
        self.engine.record().map_err(|error| error.clone().into())
    }

    /// Of a call like `write_once`.
    fn draft(&self, kind: Kind) -> Draft {
        let mut draft = Draft::new(kind, self.caller.clone(), now());
        let number = self.next();
        let payload = |text: String| {
            Some(Payload { media: "application/json".into(), content: text.into_bytes() })
        };
        draft.operation = Some("bench.write".into());
        draft.tool = Some("bench.write@1.0.0".into());
        match kind {
            Kind::Intent => {
                let mut chance = [0; 10];
                for (place, byte) in chance.iter_mut().zip(number.to_le_bytes()) {
                    *place = byte;
                }
                draft.call = Some(CallId::new(1, chance));
                draft.rules = vec!["workspace-writes".into()];
                draft.reason =
                    Some("it works on a copy, and what it changed is judged path by path".into());
                draft.input = payload(format!(r#"{{"path":"out/{number}.txt"}}"#));
            }
            _ => {
                draft.status = Some(Status::Success);
                draft.output = payload("10".into());
            }
        }
        draft
    }

    /// What a durable call leaves in the record: its events as they are hashed, and its contents.
    pub(super) fn bytes_of_one(&self) -> Result<usize, Failure> {
        let reply = self.write_once()?;
        let filter = Filter { call: Some(reply.id), ..Filter::of(self.caller.tenant.clone()) };
        let mut bytes = Vec::new();
        for event in self.record()?.events(&filter)? {
            encode(&event, &mut bytes)?;
            bytes.extend(self.record()?.input(&event)?.unwrap_or_default());
            bytes.extend(self.record()?.output(&event)?.unwrap_or_default());
        }
        Ok(bytes.len())
    }

    /// A request and its reply, as a door would spell them.
    pub(super) fn sizes_of_one(&self) -> Result<[usize; 2], Failure> {
        let request = json!({"tool": self.add.to_string(), "arguments": {"a": 1_000_000, "b": 2}});
        let reply = self.add_once()?;
        Ok([serde_json::to_vec(&request)?.len(), serde_json::to_vec(&*reply)?.len()])
    }

    /// Waits until everything before is written, and gives the number of the last event.
    pub(super) fn write_rest(&self) -> Result<u64, Failure> {
        let draft = Draft::new(Kind::Note, self.caller.clone(), now());
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.record()?.append(draft.clone(), Durability::Committed) {
                Ok(receipt) => return Ok(receipt.seq()),
                // After a burst there may be no room even for what somebody waits for.
                Err(AppendError::Busy) if Instant::now() < deadline => thread::sleep(STEP),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// SQLite as the record uses it, with nothing around it.
#[derive(Debug)]
pub(super) struct Bare {
    connection: Mutex<Connection>,
    row: Vec<u8>,
}

impl Bare {
    /// With rows of so many bytes.
    pub(super) fn new(path: &Path, bytes: usize) -> Result<Bare, Failure> {
        let connection = Connection::open(path)?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
        connection.pragma_update(None, "synchronous", "FULL")?;
        let table = "CREATE TABLE t (seq INTEGER PRIMARY KEY, content BLOB)";
        connection.execute_batch(table)?;
        Ok(Bare { connection: Mutex::new(connection), row: vec![7; bytes] })
    }

    pub(super) fn contestant(&self) -> Contestant<'_> {
        contestant(BARE, || {
            let connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
            let row = "INSERT INTO t (content) VALUES (?1)";
            connection.prepare_cached(row)?.execute([&self.row])?;
            Ok(None)
        })
    }
}

/// A thread that answers over a socket.
#[derive(Debug)]
pub(super) struct Echo {
    socket: Mutex<UnixStream>,
    sizes: [usize; 2],
}

impl Echo {
    /// With requests and replies of so many bytes. The thread ends with the socket.
    pub(super) fn new(sizes: [usize; 2]) -> Result<Echo, Failure> {
        let (socket, mut other) = UnixStream::pair()?;
        let (mut request, reply) = (vec![0; sizes[0]], vec![2; sizes[1]]);
        thread::Builder::new().name("echo".into()).spawn(move || {
            while other.read_exact(&mut request).is_ok() && other.write_all(&reply).is_ok() {}
        })?;
        Ok(Echo { socket: Mutex::new(socket), sizes })
    }

    pub(super) fn sizes(&self) -> [usize; 2] {
        self.sizes
    }

    /// Many in a row.
    pub(super) fn contestant(&self) -> Contestant<'_> {
        contestant(ECHO, || {
            let mut socket = self.socket.lock().unwrap_or_else(PoisonError::into_inner);
            let (request, mut reply) = (vec![1; self.sizes[0]], vec![0; self.sizes[1]]);
            for _ in 0..IN_A_ROW {
                socket.write_all(&request)?;
                socket.read_exact(&mut reply)?;
            }
            Ok(None)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_contestant_does_what_it_says() {
        let directory = tempfile::tempdir().unwrap();
        let calls = Calls::open(&directory.path().join("home")).unwrap();
        let kinds = |reply: &Reply| -> Vec<Kind> {
            let filter = Filter { call: Some(reply.id), ..Filter::of(Name::LOCAL) };
            let events = calls.record().unwrap().events(&filter).unwrap();
            events.iter().map(|event| event.kind).collect()
        };
        let durable = calls.write_once().unwrap();
        assert_eq!(kinds(&durable), [Kind::Intent, Kind::Outcome]);
        let (added, first, second) = (calls.add_once(), calls.keep_once(), calls.keep_once());
        assert!(!first.unwrap().cached && second.unwrap().cached);
        let last = calls.write_rest().unwrap();
        assert_eq!(kinds(&added.unwrap()), [Kind::Called]);
        assert_eq!(calls.burst(50).unwrap().recorded, 50);
        (calls.buffered().run)().unwrap();
        assert_eq!(calls.write_rest().unwrap(), last + 1 + 50 + 1 + IN_A_ROW as u64 + 2);
        let bytes = calls.bytes_of_one().unwrap();
        assert!((500..2000).contains(&bytes), "{bytes}");
        (calls.record_alone().run)().unwrap();
        let bare = Bare::new(&directory.path().join("bare.db"), bytes).unwrap();
        (bare.contestant().run)().unwrap();
        let echo = Echo::new(calls.sizes_of_one().unwrap()).unwrap();
        (echo.contestant().run)().unwrap();
    }
}
