//! The side of whoever serves: one engine, and a question at a time on each thread.

use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::thread::{self, Scope};

use hotcell_api::{Answer, Ask, Called, With, answer};
use hotcell_engine::{Attached, Attachment, Engine, Input, new_id};
use hotcell_sandbox::Sink;
use hotcell_socket::{Answerer, Cancel, Events, Incoming, Problem, Raw};
use hotcell_types::{Caller, Door, Name};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::along::{self, Along, Output, Told};
use crate::unwanted::Unwanted;

/// Most bytes that come along with one question: they are held in memory.
const ALONG_MOST: u64 = 4 << 30;

/// Hears what became of each call.
type Counts = dyn Fn(&Called) + Send + Sync;

/// Answers for one user.
pub struct Desk {
    engine: Arc<Engine>,
    counts: Option<Box<Counts>>,
}

impl fmt::Debug for Desk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Desk").field("engine", &self.engine).finish_non_exhaustive()
    }
}

impl Desk {
    pub fn new(engine: Arc<Engine>) -> Desk {
        Desk { engine, counts: None }
    }

    /// Has somebody hear what became of each call.
    pub fn counted(self, by: impl Fn(&Called) + Send + Sync + 'static) -> Desk {
        Desk { counts: Some(Box::new(by)), ..self }
    }

    fn asked(&self, mut request: Incoming, events: &Events) -> Result<Answer, Problem> {
        let ask: Ask = read(request.take_ask(), "the question")?;
        let along = request.take_context().map(|value| read::<Along>(value, "the context"));
        let along = along.transpose()?;
        let cancel = request.cancel().clone();
        let door = match &along {
            Some(along) => along.from.door().map_err(told)?,
            None => Door::Socket,
        };
        // Whoever is let in here could name anybody in a process of their own as well.
        let named = along.as_ref().and_then(|along| along.from.subject.clone());
        let named = named.filter(|_| door == Door::Mcp);
        let subject = named.unwrap_or_else(|| subject(request.peer().uid));
        let caller = Caller::local(subject, door);
        let attached = match along {
            Some(along) => self.attached(along, &mut request)?,
            None => Held::default(),
        };
        let answered = thread::scope(|scope| {
            // Everything is told before the answer is: the thread that tells ends with the sink.
            let mut sink = Teller::new(scope, events);
            self.carried_out(&caller, ask, (attached, &mut sink), &cancel, events)
        });
        if door == Door::Cli {
            // A command that has ended has left all of its record, whoever wrote it.
            self.engine.settle().map_err(|problem| told(problem.into()))?;
        }
        answered
    }

    fn carried_out(
        &self,
        caller: &Caller,
        ask: Ask,
        (held, sink): (Held, &mut dyn Sink),
        cancel: &Cancel,
        events: &Events,
    ) -> Result<Answer, Problem> {
        let Held { from, files, stdin, outputs } = held;
        let is_agent = caller.door == Door::Mcp;
        let id = new_id();
        let _unwanted = Unwanted::ends(&self.engine, caller, id, cancel);
        let with = With {
            attached: Attached {
                id: Some(id),
                from,
                files,
                stdin,
                sink: Some(sink),
                outputs: outputs.as_deref(),
                started: Some(Box::new(move |_| {
                    if is_agent {
                        // Who is gone has hung up, which ends the run.
                        events.tell(&Told::Started).ok();
                    }
                })),
                ..Attached::default()
            },
            interrupt: cancel.flag(),
            log: &mut |log, at| {
                let event = serde_json::json!({ "log": log, "at": [at.stdout, at.stderr] });
                events.tell(&event).is_ok()
            },
        };
        let answer = answer(&self.engine, caller, ask, with).map_err(told)?;
        if let Some(counts) = &self.counts {
            answer.calls().for_each(counts);
        }
        Ok(answer)
    }

    /// Everything that comes along, held.
    fn attached(&self, along: Along, request: &mut Incoming) -> Result<Held, Problem> {
        let Along { from, files, stdin, outputs } = along;
        let from = Some(from.read(&self.engine).map_err(told)?);
        let of_stdin = match stdin {
            Some(along::Stdin::Bytes(bytes)) => bytes,
            Some(along::Stdin::Live) | None => 0,
        };
        let total = files.iter().map(|file| file.bytes).fold(of_stdin, u64::saturating_add);
        if total > ALONG_MOST {
            let why = format!("{total} bytes come along, and {ALONG_MOST} are the most");
            return Err(invalid("too much comes along", why));
        }
        let files = files.into_iter().map(|file| next_file(request, file));
        let files = files.collect::<Result<_, _>>()?;
        let stdin = stdin.map(|stdin| self.stdin(stdin, request)).transpose()?;
        Ok(Held {
            from,
            files,
            stdin,
            outputs: outputs.map(|path| PathBuf::from(OsString::from(path))),
        })
    }

    fn stdin(&self, stdin: along::Stdin, request: &mut Incoming) -> Result<Input, Problem> {
        let cancel = request.cancel().clone();
        let Some(source) = request.stdin() else {
            return Err(invalid("standard input does not come along", "though it is announced"));
        };
        match stdin {
            along::Stdin::Bytes(bytes) => held("stdin".into(), source, bytes).map(Input::Content),
            along::Stdin::Live => piped(source, cancel).map(Input::Live).map_err(|error| {
                Problem::new(
                    Problem::ERROR,
                    "standard input cannot be passed on",
                    error.to_string(),
                    "",
                )
            }),
        }
    }
}

impl Answerer for Desk {
    fn answer(&self, request: Incoming, events: &Events) -> Result<Raw, Problem> {
        if along::is_settle(request.ask()) {
            self.engine.settle_all().map_err(|problem| told(problem.into()))?;
            return Raw::of(&serde_json::json!({ "version": 1 })).map_err(Problem::from);
        }
        let answer = self.asked(request, events)?;
        Raw::of(&answer).map_err(Problem::from)
    }
}

/// What came along.
#[derive(Default)]
struct Held {
    from: Option<hotcell_engine::Surroundings>,
    files: Vec<Attachment>,
    stdin: Option<Input>,
    outputs: Option<PathBuf>,
}

fn next_file(request: &mut Incoming, file: along::File) -> Result<Attachment, Problem> {
    let Some(part) = request.next_file() else {
        return Err(invalid("a file does not come along", "though it is announced"));
    };
    held(file.name.into(), part, file.bytes)
}

fn held(name: OsString, source: impl Read, bytes: u64) -> Result<Attachment, Problem> {
    let shown = name.display().to_string();
    Attachment::of_source(name, source, bytes)
        .map_err(|error| invalid(format!("`{shown}` cannot be taken"), error.to_string()))
}

/// What is written to a pipe while the program reads. Ends with the request, when reading it fails.
fn piped(mut source: impl Read + Send + 'static, cancel: Cancel) -> io::Result<File> {
    let (from, to) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    let mut to = File::from(to);
    thread::Builder::new().name("stdin".into()).spawn(move || {
        let mut part = vec![0; 64 * 1024];
        while !cancel.is_asked() {
            let length = source.read(&mut part).unwrap_or(0);
            let Some(some) = part.get(..length).filter(|some| !some.is_empty()) else { break };
            if to.write_all(some).is_err() {
                break;
            }
        }
    })?;
    Ok(File::from(from))
}

/// Passes on what a run prints, on a thread of its own: the deadline of a run does not wait for whoever
/// reads. What waits is bounded by the limit on output. Who is not there any more has hung up, which ends
/// the run.
struct Teller<'s, 'e> {
    scope: &'s Scope<'s, 'e>,
    events: &'e Events,
    /// Many runs print nothing, and need no thread.
    lines: Option<Sender<Told>>,
}

impl<'s, 'e> Teller<'s, 'e> {
    fn new(scope: &'s Scope<'s, 'e>, events: &'e Events) -> Teller<'s, 'e> {
        Teller { scope, events, lines: None }
    }

    fn tell(&mut self, told: Told) {
        let (scope, events) = (self.scope, self.events);
        let lines = self.lines.get_or_insert_with(|| {
            let (lines, waiting) = mpsc::channel::<Told>();
            let pass_on = move || {
                for told in waiting {
                    if events.tell(&told).is_err() {
                        return;
                    }
                }
            };
            // Without a thread nothing is passed on; the answer has all of it.
            thread::Builder::new().name("teller".into()).spawn_scoped(scope, pass_on).ok();
            lines
        });
        lines.send(told).ok();
    }
}

impl Sink for Teller<'_, '_> {
    fn stdout(&mut self, chunk: &[u8]) {
        self.tell(Told::Stdout(Output::of(chunk)));
    }

    fn stderr(&mut self, chunk: &[u8]) {
        self.tell(Told::Stderr(Output::of(chunk)));
    }
}

/// As the command line calls whoever runs it.
fn subject(uid: u32) -> Name {
    format!("uid{uid}").parse().unwrap_or(Name::LOCAL)
}

fn read<T: DeserializeOwned>(value: Value, what: &str) -> Result<T, Problem> {
    serde_json::from_value(value)
        .map_err(|error| invalid(format!("{what} cannot be read"), error.to_string()))
}

fn invalid(what: impl Into<String>, why: impl Into<String>) -> Problem {
    Problem::new(Problem::INVALID, what, why, "write it as the documentation says")
}

fn told(problem: hotcell_api::Problem) -> Problem {
    let hotcell_api::Problem { kind, at, what, why, fix } = problem;
    Problem { at, ..Problem::new(kind.name(), what, why, fix) }
}
