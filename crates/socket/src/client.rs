//! The client. It asks one thing at a time, and reads the answer on the thread that asked; whoever asks for
//! several things at once has several clients.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hotcell_request::Value;

use crate::bounds::{FILES_MOST, HANDSHAKE, WHO_MOST};
use crate::dial::{ConnectError, dial};
use crate::frame::{
    self, End, Frame, FrameError, FrameReader, Head, Of, Patience, Raw, ReadError, Reason,
};
use crate::outlet::Outlet;
use crate::problem::Problem;
use crate::supply::{Source, Supply, Window, inline};
use crate::transport::{Peer, Transport};
use crate::version::Versions;

/// A frame of the server's may take as long as the machine is slow; a client has nothing else to do.
const FRAME_TIME: Duration = Duration::from_secs(600);

/// How a client is known, and how long it waits for a server to be there.
#[derive(Debug, Clone)]
pub struct ClientSettings {
    /// What it calls itself, for logs.
    pub who: String,
    pub versions: Versions,
    /// For a server that accepts.
    pub connect: Duration,
    /// For its welcome.
    pub handshake: Duration,
}

impl Default for ClientSettings {
    fn default() -> ClientSettings {
        ClientSettings {
            who: concat!("hotcell ", env!("CARGO_PKG_VERSION")).into(),
            versions: Versions::default(),
            connect: HANDSHAKE,
            handshake: HANDSHAKE,
        }
    }
}

/// What goes along with a request.
#[derive(Default)]
pub struct Along<'a> {
    pub context: Option<&'a Raw>,
    pub files: Vec<Source>,
    pub stdin: Option<Source>,
    /// Hears events in their order. The server waits for it.
    pub events: Option<&'a mut dyn FnMut(Value)>,
}

impl fmt::Debug for Along<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Along { context, files, stdin, .. } = self;
        f.debug_struct("Along")
            .field("context", context)
            .field("files", files)
            .field("stdin", stdin)
            .finish_non_exhaustive()
    }
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// The server's answer, which is no.
    #[error(transparent)]
    Refused(Box<Problem>),
    /// Nothing was begun.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The connection ended before this was begun.
    #[error("the server did not begin: {0}")]
    NotBegun(Box<Problem>),
    /// It may have begun, or even have been done.
    #[error("the connection ended before the answer: {why}")]
    Lost { why: String },
    #[error("what goes along cannot be read")]
    Source(#[source] io::Error),
    #[error("this cannot be sent: {0}")]
    Unsendable(#[from] FrameError),
}

impl AskError {
    /// Whether it is certain that nothing was begun.
    pub fn is_unbegun(&self) -> bool {
        match self {
            AskError::Refused(problem) => {
                matches!(&*problem.kind, Problem::BUSY | Problem::STOPPING)
            }
            AskError::Connect(_) | AskError::NotBegun(_) | AskError::Unsendable(_) => true,
            AskError::Lost { .. } | AskError::Source(_) => false,
        }
    }
}

/// A connection to a server.
#[derive(Debug)]
pub struct Client {
    outlet: Arc<Outlet>,
    reader: FrameReader,
    /// Where to connect again, if the server speaks another version.
    path: Option<PathBuf>,
    settings: ClientSettings,
    server: Peer,
    /// Once there was a welcome.
    version: Option<u32>,
    last: u64,
    going: Arc<Mutex<Going>>,
    /// Why nothing can be asked any more.
    over: Option<Problem>,
}

impl Client {
    /// Connects, looks at whose server it is, and says hello. The welcome is waited for with the first answer;
    /// [`greet`](Client::greet) does so at once.
    pub fn connect(path: &Path, settings: ClientSettings) -> Result<Client, ConnectError> {
        let (stream, server) = dial(path, settings.connect)?;
        let mut client = Client::new(Arc::new(stream), server, settings)?;
        client.path = Some(path.to_owned());
        let best = client.settings.versions.best();
        client.hello(&[best]);
        Ok(client)
    }

    /// The same over a connection that is there already. It waits for the welcome, since there is no second
    /// attempt in another version.
    pub fn over(
        transport: Arc<dyn Transport>,
        settings: ClientSettings,
    ) -> Result<Client, ConnectError> {
        let server = transport.peer()?;
        if !server.is_ours() {
            return Err(ConnectError::NotOurs { uid: server.uid });
        }
        let mut client = Client::new(transport, server, settings)?;
        let versions = client.settings.versions.clone();
        client.hello(versions.all());
        client.greet()?;
        Ok(client)
    }

    fn new(
        transport: Arc<dyn Transport>,
        server: Peer,
        mut settings: ClientSettings,
    ) -> Result<Client, ConnectError> {
        settings.who = shortened(&settings.who);
        let outlet = Arc::new(Outlet::new(transport, None)?);
        let (reader, going) = (FrameReader::new(), Arc::default());
        let (path, version, over) = (None, None, None);
        Ok(Client { outlet, reader, path, settings, server, version, last: 0, going, over })
    }

    fn hello(&self, versions: &[u32]) {
        if let Ok(hello) = frame::hello(versions, &self.settings.who) {
            self.write(&hello);
        }
    }

    /// Who serves.
    pub fn server(&self) -> Peer {
        self.server
    }

    /// The version that is spoken, once that is known.
    pub fn version(&self) -> Option<u32> {
        self.version
    }

    /// Waits for the welcome.
    pub fn greet(&mut self) -> Result<(), ConnectError> {
        self.settle(&[])
    }

    /// Ends what another thread is asking for.
    pub fn canceller(&self) -> Canceller {
        Canceller { going: Arc::clone(&self.going) }
    }

    /// Asks, and waits for the answer.
    pub fn ask(&mut self, ask: &Raw, along: Along<'_>) -> Result<Value, AskError> {
        if let Some(problem) = &self.over {
            return Err(AskError::NotBegun(Box::new(problem.clone())));
        }
        let Along { context, files, stdin, events } = along;
        let count = u32::try_from(files.len()).ok().filter(|count| *count <= FILES_MOST);
        let count = count.ok_or_else(too_many_files)?;
        let id = self.last + 1;
        let head = Head { id, ask, context, files: count, stdin: stdin.is_some() };
        let mut sources: Vec<(Of, Source)> = (0..).map(Of::File).zip(files).collect();
        sources.extend(stdin.map(|source| (Of::Stdin, source)));

        let request = frame::request(head)?;
        let inline = inline(id, &sources)?;
        let window = Window::new();
        self.last = id;
        *lock(&self.going) = Going::Sending { is_unwanted: false };
        let sent = match inline {
            Some(parts) => self.send_at_once(&[request, parts].concat()),
            None => self.send_in_parts(&request, sources, &window),
        };
        let answer = sent.and_then(|()| self.answer(id, &window, events));
        *lock(&self.going) = Going::Nothing;
        match window.close() {
            Some(error) => Err(AskError::Source(error)),
            None => answer,
        }
    }

    /// Everything in one write, whether there was a welcome or not.
    fn send_at_once(&mut self, frames: &[u8]) -> Result<(), AskError> {
        self.write(frames);
        self.sent();
        Ok(self.settle(frames)?)
    }

    /// Waits for the welcome if there was none. These frames have been sent, in the version that was offered:
    /// where the server speaks another one, that takes another connection, and sending them again.
    fn settle(&mut self, frames: &[u8]) -> Result<(), ConnectError> {
        let mut tried = vec![self.settings.versions.best()];
        while self.version.is_none() {
            let Err(Unwelcome(error, speaks)) = self.welcome() else { break };
            let other = self.settings.versions.choose(&speaks);
            let other = other.filter(|other| !tried.contains(other));
            let (Some(other), Some(path)) = (other, self.path.clone()) else { return Err(error) };
            tried.push(other);
            self.reconnect(&path, other)?;
            self.write(frames);
            self.sent_again();
        }
        Ok(())
    }

    fn reconnect(&mut self, path: &Path, version: u32) -> Result<(), ConnectError> {
        let (stream, server) = dial(path, self.settings.connect)?;
        self.outlet = Arc::new(Outlet::new(Arc::new(stream), None)?);
        (self.reader, self.server, self.over) = (FrameReader::new(), server, None);
        self.hello(&[version]);
        Ok(())
    }

    fn send_in_parts(
        &mut self,
        request: &[u8],
        sources: Vec<(Of, Source)>,
        window: &Arc<Window>,
    ) -> Result<(), AskError> {
        self.greet()?;
        self.write(request);
        self.sent();
        let (outlet, window) = (Arc::clone(&self.outlet), Arc::clone(window));
        let started = Supply { id: self.last, outlet, window }.start(sources);
        started.map_err(|error| {
            self.end(Problem::new(Problem::ERROR, "the client failed", error.to_string(), ""));
            AskError::Lost { why: format!("no thread can be started: {error}") }
        })
    }

    /// From here on the server knows of the request, and can be told that it is not wanted.
    fn sent(&self) {
        let outlet = Arc::clone(&self.outlet);
        let going = Going::Sent { id: self.last, outlet };
        let before = std::mem::replace(&mut *lock(&self.going), going);
        if matches!(before, Going::Sending { is_unwanted: true }) {
            self.canceller().cancel();
        }
    }

    /// The same on another connection, unless it is only the hello that was sent.
    fn sent_again(&self) {
        if let Going::Sent { outlet, .. } = &mut *lock(&self.going) {
            *outlet = Arc::clone(&self.outlet);
        }
    }

    /// What cannot be written may have been answered all the same, by an end for instance; reading tells.
    fn write(&self, frames: &[u8]) {
        drop(self.outlet.send_or_leave(frames));
    }

    fn welcome(&mut self) -> Result<(), Unwelcome> {
        let wait = self.settings.handshake;
        let patience = Patience { begin: Some(wait), frame: wait };
        let refused = match self.reader.next(self.outlet.transport(), patience) {
            Ok(Frame::Welcome { version, .. }) => {
                self.version = Some(version);
                return Ok(());
            }
            Ok(Frame::End(end)) => Unwelcome(unwelcome(&end), end.speaks),
            Ok(_) => {
                Unwelcome(ConnectError::Protocol("it does not say welcome".into()), Vec::new())
            }
            Err(error) => Unwelcome(self.unheard(error), Vec::new()),
        };
        self.end(Problem::new(Problem::ERROR, "there is no connection", refused.0.to_string(), ""));
        Err(refused)
    }

    /// Nothing begins before the welcome: whoever ends the connection before it was not there for us.
    fn unheard(&self, error: ReadError) -> ConnectError {
        match error {
            ReadError::Closed | ReadError::Truncated => {
                ConnectError::Ended(Box::new(Problem::stopping()))
            }
            ReadError::Silent | ReadError::Slow => ConnectError::Silent,
            ReadError::Frame(error) => ConnectError::Protocol(error.to_string()),
            ReadError::Io(error) => ConnectError::Io(error),
        }
    }

    fn answer(
        &mut self,
        id: u64,
        window: &Window,
        mut events: Option<&mut dyn FnMut(Value)>,
    ) -> Result<Value, AskError> {
        let patience = Patience { begin: None, frame: FRAME_TIME };
        let mut told = 0;
        loop {
            let problem = match self.reader.next(self.outlet.transport(), patience) {
                Ok(Frame::Answer { id: of, answer }) if of == id => {
                    return answer.map_err(|problem| AskError::Refused(Box::new(problem)));
                }
                Ok(Frame::Event { id: of, seq, event }) if of == id && seq == told + 1 => {
                    told = seq;
                    if let Some(hear) = &mut events {
                        hear(event);
                    }
                    continue;
                }
                Ok(Frame::More { id: of, bytes }) => {
                    // What was read of an earlier request may be told late.
                    if of == id {
                        window.widen(bytes);
                    }
                    continue;
                }
                Ok(Frame::End(end)) if !end.cut.contains(&id) => {
                    self.end(end.problem.clone());
                    return Err(AskError::NotBegun(Box::new(end.problem)));
                }
                Ok(Frame::End(end)) => end.problem.to_string(),
                Ok(_) => "the server sent what does not belong here".into(),
                Err(error) => error.to_string(),
            };
            self.end(Problem::new(Problem::ERROR, "the connection has ended", &problem, ""));
            return Err(AskError::Lost { why: problem });
        }
    }

    /// Nothing can be asked any more.
    fn end(&mut self, problem: Problem) {
        self.over = Some(problem);
        self.outlet.close();
    }
}

impl Drop for Client {
    /// A thread that still reads what should go along holds the connection, which is to end all the same.
    fn drop(&mut self) {
        self.outlet.close();
    }
}

/// Why there was no welcome, and the versions that there would be.
struct Unwelcome(ConnectError, Vec<u32>);

fn unwelcome(end: &End) -> ConnectError {
    let problem = Box::new(end.problem.clone());
    match end.reason {
        Reason::Version => ConnectError::WrongVersion { speaks: end.speaks.clone() },
        Reason::Busy => ConnectError::Busy(problem),
        Reason::Protocol => ConnectError::Protocol(problem.to_string()),
        Reason::Peer | Reason::Idle | Reason::Stopping => ConnectError::Ended(problem),
    }
}

fn too_many_files() -> AskError {
    FrameError::Shape(format!("more than {FILES_MOST} files go along")).into()
}

fn shortened(who: &str) -> String {
    let mut bytes = 0;
    let fits = |c: &char| {
        bytes += c.len_utf8();
        bytes <= WHO_MOST
    };
    who.chars().take_while(fits).collect()
}

/// Cancels from another thread. The answer comes all the same, and says what became of it.
#[derive(Debug, Clone)]
pub struct Canceller {
    going: Arc<Mutex<Going>>,
}

/// How far a client is.
#[derive(Debug, Default)]
enum Going {
    #[default]
    Nothing,
    /// The server does not know of it: a cancellation has to wait.
    Sending {
        is_unwanted: bool,
    },
    Sent {
        id: u64,
        outlet: Arc<Outlet>,
    },
}

impl Canceller {
    /// Whether there was something to cancel.
    pub fn cancel(&self) -> bool {
        let mut going = lock(&self.going);
        let (id, outlet) = match &mut *going {
            Going::Nothing => return false,
            Going::Sending { is_unwanted } => {
                *is_unwanted = true;
                return true;
            }
            Going::Sent { id, outlet } => (*id, Arc::clone(outlet)),
        };
        drop(going);
        frame::cancel(id).is_ok_and(|frame| outlet.send(&frame).is_ok())
    }
}

fn lock(going: &Mutex<Going>) -> MutexGuard<'_, Going> {
    going.lock().unwrap_or_else(PoisonError::into_inner)
}
