//! The side of whoever asks.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use hotcell_api::{Ask, Called, Context, Problem, ProblemKind, Replayed};
use hotcell_engine::run::Word;
use hotcell_engine::{Attachment, Input};
use hotcell_request::{Arguments, Request, json};
use hotcell_sandbox::Sink;
use hotcell_socket::{
    AskError, Canceller, Client, ClientSettings, ConnectError, Peer, Raw, Source,
};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::along::{self, Along, Told};
use crate::socket;

/// Most bytes of an attachment that go with the request in one piece.
const INLINE_MOST: u64 = 64 * 1024;

/// How often it is looked whether somebody gave up waiting.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// How long whoever serves may take to say so.
const ANSWERS_WITHIN: Duration = Duration::from_secs(1);

/// A hotcell that serves this user.
#[derive(Debug)]
pub struct Remote {
    client: Mutex<Client>,
    canceller: Canceller,
}

/// Why somebody who is there cannot be asked.
#[derive(Debug)]
pub struct Unreached(pub Problem);

impl std::fmt::Debug for With<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let With { files, stdin, outputs, .. } = self;
        f.debug_struct("With")
            .field("files", files)
            .field("stdin", stdin)
            .field("outputs", outputs)
            .finish_non_exhaustive()
    }
}

/// What goes along with a call.
#[derive(Default)]
pub struct With<'a> {
    pub files: Vec<Attachment>,
    pub stdin: Option<Input>,
    pub sink: Option<&'a mut dyn Sink>,
    /// Is told when there is a run, if an agent asks.
    pub started: Option<&'a dyn Fn()>,
    pub outputs: Option<&'a Path>,
}

/// Whether this process is who answers at the socket of a home: it is tried.
pub fn serves(home: &Path) -> bool {
    let wait = ClientSettings {
        connect: ANSWERS_WITHIN,
        handshake: ANSWERS_WITHIN,
        ..ClientSettings::default()
    };
    let Ok(mut client) = Client::connect(&socket(home), wait) else { return false };
    let is_own = u32::try_from(client.server().pid).is_ok_and(|pid| pid == std::process::id());
    // Who says that there is no room has answered.
    is_own && matches!(client.greet(), Ok(()) | Err(ConnectError::Busy(_)))
}

impl Remote {
    /// Whoever serves a home, if anybody does.
    pub fn find(home: &Path) -> Result<Option<Remote>, Unreached> {
        let path = socket(home);
        // Most homes have none, and looking is cheaper than trying.
        if !path.exists() {
            return Ok(None);
        }
        match Client::connect(&path, ClientSettings::default()) {
            Ok(client) => {
                let canceller = client.canceller();
                Ok(Some(Remote { client: Mutex::new(client), canceller }))
            }
            Err(error) if error.is_nobody() => Ok(None),
            Err(error) => Err(Unreached(not_reached(&error))),
        }
    }

    /// Who serves.
    pub fn server(&self) -> Peer {
        self.client.lock().unwrap_or_else(PoisonError::into_inner).server()
    }

    /// Ends what is asked for at this moment.
    pub fn canceller(&self) -> Canceller {
        self.canceller.clone()
    }

    /// One call, and what comes of it.
    pub fn call(
        &self,
        request: Request,
        from: Context,
        with: With<'_>,
    ) -> Result<Called, AskError> {
        let ask = serde_json::json!({ "ask": "call", "request": document(request) });
        self.ask(&ask, from, with).and_then(read)
    }

    /// Waits for somebody to agree to a call, and has it carried out then. Whoever waits can be interrupted.
    pub fn wait(
        &self,
        item: &str,
        from: Context,
        with: With<'_>,
        interrupt: &AtomicBool,
    ) -> Result<Called, AskError> {
        let ask = serde_json::json!({ "ask": "await", "item": item });
        let is_unwanted = || interrupt.load(Ordering::SeqCst);
        self.ask_unless(&is_unwanted, &ask, from, with).and_then(read)
    }

    /// Any question, which is given up as soon as it is unwanted: somebody has to look, and tell.
    pub fn ask_unless(
        &self,
        is_unwanted: &(dyn Fn() -> bool + Sync),
        ask: &Value,
        from: Context,
        with: With<'_>,
    ) -> Result<Value, AskError> {
        let is_over = AtomicBool::new(false);
        let pass_on = || {
            while !is_over.load(Ordering::SeqCst) {
                if is_unwanted() && self.canceller.cancel() {
                    return;
                }
                thread::park_timeout(LOOK_EVERY);
            }
        };
        thread::scope(|scope| {
            let passing_on = scope.spawn(pass_on);
            let answer = self.ask(ask, from, with);
            is_over.store(true, Ordering::SeqCst);
            passing_on.thread().unpark();
            answer
        })
    }

    /// The same as [`call`](Remote::call), of a question that is written already and has everything in it.
    pub fn run(&self, ask: &Ask, from: Context) -> Result<Called, AskError> {
        let ask = serde_json::to_value(ask).map_err(|error| AskError::Source(error.into()))?;
        self.ask(&ask, from, With::default()).and_then(read)
    }

    /// Returns when what it has answered so far is in the record, where other processes see it.
    pub fn settle(&self) -> Result<(), AskError> {
        let along = hotcell_socket::Along::default();
        let mut client = self.client.lock().unwrap_or_else(PoisonError::into_inner);
        client.ask(&Raw::of(&along::settle())?, along).map(drop)
    }

    /// The same call again, and how the two compare.
    pub fn replay(&self, ask: &Ask, from: Context) -> Result<Replayed, AskError> {
        let ask = serde_json::to_value(ask).map_err(|error| AskError::Source(error.into()))?;
        self.ask(&ask, from, With::default()).and_then(read)
    }

    /// Any question, and its answer as a document.
    pub fn ask(&self, ask: &Value, from: Context, with: With<'_>) -> Result<Value, AskError> {
        let With { files, stdin, mut sink, started, outputs } = with;
        let outputs = outputs.map(std::path::absolute).transpose().map_err(AskError::Source)?;
        let along = Along {
            from,
            files: files.iter().map(named).collect(),
            stdin: stdin.as_ref().map(announced),
            outputs: outputs.map(|path| Word::new(path.into_os_string())),
        };
        let files = files.iter().map(source).collect::<io::Result<Vec<_>>>();
        let files = files.map_err(AskError::Source)?;
        let stdin = stdin.map(source_of).transpose().map_err(AskError::Source)?;
        let mut tell = |event: Value| match (serde_json::from_value(event), &mut sink) {
            (Ok(Told::Started), _) => started.into_iter().for_each(|tell| tell()),
            (Ok(told), Some(sink)) => pass_on(*sink, told),
            _ => {}
        };
        let context = Raw::of(&along)?;
        let along = hotcell_socket::Along {
            context: Some(&context),
            files,
            stdin,
            events: Some(&mut tell),
        };
        let mut client = self.client.lock().unwrap_or_else(PoisonError::into_inner);
        client.ask(&Raw::of(ask)?, along)
    }
}

fn read<T: DeserializeOwned>(answer: Value) -> Result<T, AskError> {
    serde_json::from_value(answer)
        .map_err(|error| AskError::Lost { why: format!("the answer cannot be read: {error}") })
}

/// As the other side reads it.
fn document(request: Request) -> Value {
    let Request { tool, version, arguments, priority, timeout, key, parent, after, token, ask } =
        request;
    let arguments = match arguments {
        Arguments::Value(value) => value,
        // What is no JSON was told before it came here.
        Arguments::Bytes(bytes) => json::parse(&bytes, &json::Bounds::CALL).unwrap_or(Value::Null),
    };
    let mut document = Map::new();
    let mut put = |name: &str, value: Value| document.insert(name.to_owned(), value);
    put("tool", tool.to_string().into());
    put("arguments", arguments);
    put("priority", priority.get().into());
    put("ask", ask.into());
    put("after", after.iter().map(|call| Value::from(call.to_string())).collect());
    if let Some(version) = version {
        put("version", version.to_string().into());
    }
    if let Some(timeout) = timeout {
        put("timeout", timeout.to_string().into());
    }
    if let Some(key) = key {
        put("key", key.as_str().into());
    }
    if let Some(parent) = parent {
        put("parent", parent.to_string().into());
    }
    if let Some(token) = token {
        put("token", token.reveal().into());
    }
    Value::Object(document)
}

fn pass_on(sink: &mut dyn Sink, told: Told) {
    match told {
        Told::Stdout(output) => sink.stdout(&output.bytes().unwrap_or_default()),
        Told::Stderr(output) => sink.stderr(&output.bytes().unwrap_or_default()),
        Told::Started => {}
    }
}

fn named(file: &Attachment) -> along::File {
    along::File { name: Word::new(file.name().clone()), bytes: file.content().bytes }
}

fn announced(stdin: &Input) -> along::Stdin {
    match stdin {
        Input::Live(_) => along::Stdin::Live,
        Input::Content(content) => along::Stdin::Bytes(content.content().bytes),
    }
}

fn source(file: &Attachment) -> io::Result<Source> {
    let mut reader = file.reader()?;
    if file.content().bytes > INLINE_MOST {
        return Ok(Source::reader(reader));
    }
    let mut bytes = Vec::new();
    io::Read::read_to_end(&mut reader, &mut bytes)?;
    Ok(Source::Bytes(bytes))
}

fn source_of(stdin: Input) -> io::Result<Source> {
    match stdin {
        Input::Live(file) => Ok(Source::reader(file)),
        Input::Content(content) => source(&content),
    }
}

fn not_reached(error: &ConnectError) -> Problem {
    let what = "the hotcell that serves this home cannot be asked";
    let fix = "`hotcell resident stop` ends it; or see who has the socket in the home's `door`";
    Problem::new(ProblemKind::Error, what, error.to_string(), fix)
}
