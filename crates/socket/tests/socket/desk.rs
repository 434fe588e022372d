//! A server with something to ask for, and a client that can say anything.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use hotcell_socket::frame::{Asked, Frame, FrameReader, Patience, ReadError};
use hotcell_socket::{
    Along, Answerer, Client, ClientSettings, Events, Gone, Incoming, Listener, Problem, Raw,
    Server, Settings,
};
use serde_json::{Value, json};

/// Longest that anything takes which has to happen.
pub(crate) const SOON: Duration = Duration::from_secs(20);

/// Answers, and tells the test what it did.
pub(crate) struct Desk {
    did: Mutex<Sender<&'static str>>,
    /// `deaf` waits for it, and for nothing else.
    gate: Mutex<Receiver<()>>,
}

impl Desk {
    fn did(&self, what: &'static str) {
        self.did.lock().unwrap().send(what).ok();
    }

    fn wait(&self, request: &Incoming) -> Value {
        let (sender, receiver) = channel();
        request.cancel().then(move || sender.send(()).unwrap_or_default());
        self.did("waits");
        receiver.recv_timeout(SOON).expect("it is cancelled");
        assert!(request.cancel().is_asked());
        self.did("cancelled");
        json!("cancelled")
    }

    fn flood(&self, request: &Incoming, events: &Events) -> Value {
        self.did("floods");
        let text = "x".repeat(10_000);
        while let Ok(()) = events.tell(&text) {}
        let (sender, receiver) = channel();
        request.cancel().then(move || sender.send(()).unwrap_or_default());
        receiver.recv_timeout(SOON).expect("it is cancelled");
        self.did("given up");
        Value::Null
    }
}

impl Answerer for Desk {
    fn answer(&self, mut request: Incoming, events: &Events) -> Result<Raw, Problem> {
        let ask = request.take_ask();
        let (verb, value) = ask.as_object().unwrap().iter().next().unwrap();
        let answer = match verb.as_str() {
            "echo" => value.clone(),
            "context" => request.take_context().unwrap_or_default(),
            "version" => json!([request.version(), request.who()]),
            "peer" => json!(request.peer().uid),
            "panic" => panic!("on purpose"),
            "problem" => return Err(Problem::new("special", "what", "why", "fix")),
            "large" => json!("x".repeat(value.as_u64().unwrap() as usize)),
            "deep" => (0..value.as_u64().unwrap()).fold(json!(0), |value, _| json!([value])),
            "files" => read_files(&mut request),
            "second" => {
                request.next_file().unwrap();
                json!(summed(request.next_file().unwrap()))
            }
            "stdin" => json!(summed(request.stdin().unwrap())),
            "converse" => converse(&mut request, events),
            "events" => {
                for number in 0..value.as_u64().unwrap() {
                    events.tell(&json!({ "number": number })).unwrap();
                }
                json!("told")
            }
            "unreadable" => {
                let error = request.next_file().unwrap().read_to_end(&mut Vec::new()).unwrap_err();
                json!(error.to_string())
            }
            "wait" => self.wait(&request),
            "flood" => self.flood(&request, events),
            "tell_after" => {
                let answer = self.wait(&request);
                assert!(matches!(events.tell(&answer), Err(Gone::HungUp)));
                self.did("nobody hears");
                answer
            }
            "deaf" => {
                self.did("is deaf");
                self.gate.lock().unwrap().recv_timeout(SOON).unwrap();
                json!("heard")
            }
            other => panic!("{other}"),
        };
        Raw::of(&answer).map_err(Problem::from)
    }
}

fn read_files(request: &mut Incoming) -> Value {
    let mut sums = Vec::new();
    while let Some(file) = request.next_file() {
        sums.push(summed(file));
    }
    json!(sums)
}

fn converse(request: &mut Incoming, events: &Events) -> Value {
    let mut stdin = request.stdin().unwrap();
    let mut piece = [0; 100];
    loop {
        match stdin.read(&mut piece).unwrap() {
            0 => return json!("bye"),
            count => events.tell(&String::from_utf8_lossy(&piece[..count])).unwrap(),
        }
    }
}

/// Number of bytes, and a sum of them that depends on their order.
fn summed(mut from: impl Read) -> (u64, u64) {
    let (mut count, mut sum) = (0, 0_u64);
    let mut piece = vec![0; 10_000];
    loop {
        match from.read(&mut piece).unwrap() {
            0 => return (count, sum),
            read => {
                count += read as u64;
                sum = sum_of(sum, &piece[..read]);
            }
        }
    }
}

pub(crate) fn sum_of(start: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(start, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(*byte)))
}

/// Does this in a process in which nothing else is done: this program again, with one test.
pub(crate) fn alone(test: &str, act: impl FnOnce()) {
    if std::env::var_os("SOCKET_TEST_ALONE").is_some_and(|name| name == test) {
        return act();
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    let output = command.args(["--exact", test]).env("SOCKET_TEST_ALONE", test).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}

/// A server in a directory of its own.
pub(crate) struct Served {
    pub(crate) server: Server,
    pub(crate) path: PathBuf,
    did: Mutex<Receiver<&'static str>>,
    pub(crate) gate: Sender<()>,
    _home: tempfile::TempDir,
}

pub(crate) fn desk() -> (Arc<Desk>, Receiver<&'static str>, Sender<()>) {
    let ((did, told), (gate, gated)) = (channel(), channel());
    (Arc::new(Desk { did: Mutex::new(did), gate: Mutex::new(gated) }), told, gate)
}

pub(crate) fn serve(settings: Settings) -> Served {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("run/socket");
    let (desk, did, gate) = desk();
    let server = Server::start(Listener::bind(&path).unwrap(), desk, settings).unwrap();
    Served { server, path, did: Mutex::new(did), gate, _home: home }
}

impl Served {
    pub(crate) fn client(&self) -> Client {
        Client::connect(&self.path, ClientSettings::default()).unwrap()
    }

    pub(crate) fn wire(&self) -> Wire {
        let mut wire = Wire::new(&self.path);
        wire.greet();
        wire
    }

    /// Another client is served as if nothing were.
    pub(crate) fn serves_others(&self) {
        let start = Instant::now();
        assert_eq!(ask(&mut self.client(), json!({"echo": 7})).unwrap(), json!(7));
        assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
    }

    pub(crate) fn expect(&self, what: &str) {
        self.expect_all(&[what]);
    }

    /// All of these, in any order.
    pub(crate) fn expect_all(&self, what: &[&str]) {
        let did = self.did.lock().unwrap();
        let mut done: Vec<_> = what.iter().map(|_| did.recv_timeout(SOON).unwrap()).collect();
        done.sort_unstable();
        assert_eq!(done, what);
    }

    pub(crate) fn did_nothing(&self) -> bool {
        self.did.lock().unwrap().try_recv().is_err()
    }

    /// Waits until there are so many connections and requests.
    pub(crate) fn settles_at(&self, connections: usize, requests: usize) {
        let start = Instant::now();
        while (self.server.connections(), self.server.requests()) != (connections, requests) {
            let now = (self.server.connections(), self.server.requests());
            assert!(start.elapsed() < SOON, "{now:?}, not {:?}", (connections, requests));
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

pub(crate) fn ask(client: &mut Client, ask: Value) -> Result<Value, hotcell_socket::AskError> {
    client.ask(&Raw::of(&ask).unwrap(), Along::default())
}

/// A client without manners.
pub(crate) struct Wire {
    pub(crate) stream: UnixStream,
    reader: FrameReader,
}

impl Wire {
    pub(crate) fn new(path: &Path) -> Wire {
        Wire { stream: UnixStream::connect(path).unwrap(), reader: FrameReader::new() }
    }

    pub(crate) fn greet(&mut self) {
        self.send(&Frame::Hello { versions: vec![1], who: "test".into() });
        assert!(matches!(self.next(), Frame::Welcome { version: 1, .. }));
    }

    pub(crate) fn send(&mut self, frame: &Frame) {
        self.bytes(&frame.encode().unwrap());
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    pub(crate) fn request(&mut self, id: u64, ask: Value) {
        let (context, files, stdin) = (None, 0, false);
        self.send(&Frame::Request(Asked { id, ask, context, files, stdin }));
    }

    pub(crate) fn try_next(&mut self) -> Result<Frame, ReadError> {
        self.reader.next(&self.stream, Patience { begin: Some(SOON), frame: SOON })
    }

    pub(crate) fn next(&mut self) -> Frame {
        self.try_next().unwrap()
    }

    /// The connection ends: with these words if it is told.
    pub(crate) fn is_ended(&mut self, word: &str) {
        match self.next() {
            Frame::End(end) => {
                let problem = format!("{} {}", end.problem, end.problem.fix);
                assert!(problem.contains(word), "{word}: {problem}");
            }
            other => panic!("{other:?}"),
        }
        assert!(matches!(self.try_next(), Err(ReadError::Closed)));
    }

    pub(crate) fn hang_up(self) {
        self.stream.shutdown(Shutdown::Both).unwrap();
    }
}
