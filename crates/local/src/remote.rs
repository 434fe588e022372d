//! The side of whoever asks.

use std::io;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use hotcell_api::{Called, Context, Problem, ProblemKind};
use hotcell_engine::run::Word;
use hotcell_engine::{Attachment, Input};
use hotcell_request::{Arguments, Request, json};
use hotcell_sandbox::Sink;
use hotcell_socket::{
    AskError, Canceller, Client, ClientSettings, ConnectError, Peer, Raw, Source,
};
use serde_json::{Map, Value};

use crate::along::{self, Along, Told};
use crate::socket;

/// Most bytes of an attachment that go with the request in one piece.
const INLINE_MOST: u64 = 64 * 1024;

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
    pub outputs: Option<&'a Path>,
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
        self.ask(&ask, from, with)
    }

    /// Waits for somebody to agree to a call, and has it carried out then.
    pub fn wait(&self, item: &str, from: Context, with: With<'_>) -> Result<Called, AskError> {
        self.ask(&serde_json::json!({ "ask": "await", "item": item }), from, with)
    }

    fn ask(&self, ask: &Value, from: Context, with: With<'_>) -> Result<Called, AskError> {
        let With { files, stdin, mut sink, outputs } = with;
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
        let mut tell = |event: Value| {
            if let (Some(sink), Ok(told)) = (&mut sink, serde_json::from_value(event)) {
                pass_on(*sink, told);
            }
        };
        let context = Raw::of(&along)?;
        let along = hotcell_socket::Along {
            context: Some(&context),
            files,
            stdin,
            events: Some(&mut tell),
        };
        let mut client = self.client.lock().unwrap_or_else(PoisonError::into_inner);
        let answer = client.ask(&Raw::of(ask)?, along)?;
        serde_json::from_value(answer)
            .map_err(|error| AskError::Lost { why: format!("the answer cannot be read: {error}") })
    }
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
