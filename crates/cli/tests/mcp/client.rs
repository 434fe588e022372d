//! A client of our own: lines in, lines out, and never a wait without a bound.

use std::collections::VecDeque;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// Longer than anything here takes: reaching it is a failure.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// A directory with a home and a workspace of its own. With `HOTCELL_RESIDENT`, somebody serves every home:
/// what a client sees is the same.
#[derive(Clone)]
pub(crate) struct World {
    _resident: Option<Arc<Resident>>,
    dir: Arc<tempfile::TempDir>,
}

/// Whoever serves a home, until nobody works in it any more.
struct Resident(Child);

impl Resident {
    fn new(mut command: Command) -> Resident {
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut said = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut said).unwrap();
        assert_eq!(said, "ready\n");
        Resident(child)
    }
}

impl Drop for Resident {
    fn drop(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.0);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        self.0.wait().unwrap();
    }
}

impl World {
    pub(crate) fn new() -> World {
        let dir = Arc::new(tempfile::tempdir().unwrap());
        for name in ["home", "work"] {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        fs::write(dir.path().join("home/config.toml"), "min_level = \"landlock-only\"\n").unwrap();
        let world = World { _resident: None, dir };
        match std::env::var_os("HOTCELL_RESIDENT") {
            Some(_) => world.served(),
            None => world,
        }
    }

    /// The same with somebody who serves it.
    pub(crate) fn served(self) -> World {
        let resident = Resident::new(self.command(&["resident", "serve", "--idle", "10m"]));
        World { _resident: Some(Arc::new(resident)), ..self }
    }

    /// Whoever serves it ends, if somebody does.
    pub(crate) fn unserved(self) -> World {
        World { _resident: None, ..self }
    }

    /// `None`, and a word on the terminal, where nothing can be run.
    pub(crate) fn with_sandbox() -> Option<World> {
        static WHY_NOT: OnceLock<Option<String>> = OnceLock::new();
        let world = World::new();
        let why_not = WHY_NOT.get_or_init(|| {
            let ran = world.run(&["run", "--", "true"]);
            (!ran.status.success()).then(|| String::from_utf8_lossy(&ran.stderr).into_owned())
        });
        match why_not {
            None => Some(world),
            Some(why) => {
                let stderr = std::io::stderr().as_fd().try_clone_to_owned().unwrap();
                let line = format!("SKIPPED runs through mcp: {}\n", why.replace('\n', " "));
                fs::File::from(stderr).write_all(line.as_bytes()).unwrap();
                None
            }
        }
    }

    pub(crate) fn home(&self) -> PathBuf {
        self.dir.path().join("home")
    }

    pub(crate) fn work(&self) -> PathBuf {
        self.dir.path().join("work")
    }

    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_hotcell"));
        command.args(words).env_clear().current_dir(self.work());
        command.env("HOTCELL_HOME", self.home()).env("HOME", self.dir.path());
        command.env("PATH", "/usr/local/bin:/usr/bin:/bin");
        command
    }

    pub(crate) fn run(&self, words: &[&str]) -> Output {
        self.command(words).stdin(Stdio::null()).output().unwrap()
    }

    /// A client that has said hello.
    pub(crate) fn client(&self, words: &[&str]) -> Client {
        self.client_with(words, json!({}))
    }

    pub(crate) fn client_with(&self, words: &[&str], capabilities: Value) -> Client {
        World::greeted(self.silent(words), capabilities)
    }

    /// The same with a command that was prepared otherwise.
    pub(crate) fn started(&self, command: Command) -> Client {
        World::greeted(Client::start(self.clone(), command), json!({}))
    }

    fn greeted(mut client: Client, capabilities: Value) -> Client {
        let hello = client.ask("initialize", hello(capabilities));
        assert_eq!(hello["result"]["protocolVersion"], "2025-11-25", "{hello}");
        client.tell("notifications/initialized", json!({}));
        client
    }

    /// A client that has said nothing yet.
    pub(crate) fn silent(&self, words: &[&str]) -> Client {
        Client::start(self.clone(), self.command(&[&["mcp"], words].concat()))
    }
}

pub(crate) fn hello(capabilities: Value) -> Value {
    json!({
        "protocolVersion": "2025-11-25",
        "capabilities": capabilities,
        "clientInfo": { "name": "test", "version": "1" },
    })
}

pub(crate) struct Client {
    pub(crate) child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    /// What came while something else was waited for.
    kept: VecDeque<Value>,
    last_id: u64,
    /// It stays as long as somebody works in it.
    _world: World,
}

impl Client {
    fn start(world: World, mut command: Command) -> Client {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let (tell, lines) = channel();
        thread::spawn(move || {
            for line in stdout.lines() {
                let Ok(line) = line else { return };
                if tell.send(line).is_err() {
                    return;
                }
            }
        });
        let stdin = child.stdin.take();
        Client { child, stdin, lines, kept: VecDeque::new(), last_id: 0, _world: world }
    }

    /// Bytes as they are.
    pub(crate) fn write(&mut self, bytes: &[u8]) {
        self.stdin.as_mut().unwrap().write_all(bytes).unwrap();
    }

    pub(crate) fn say(&mut self, message: &Value) {
        self.write(format!("{message}\n").as_bytes());
    }

    pub(crate) fn tell(&mut self, method: &str, params: Value) {
        self.say(&json!({ "jsonrpc": "2.0", "method": method, "params": params }));
    }

    /// Sends a request, and gives its id.
    pub(crate) fn begin(&mut self, method: &str, params: Value) -> u64 {
        self.last_id += 1;
        let id = self.last_id;
        self.say(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
        id
    }

    /// The next message that is wanted. Everything on standard output is a message.
    pub(crate) fn until(&mut self, wanted: impl Fn(&Value) -> bool) -> Value {
        if let Some(place) = self.kept.iter().position(&wanted) {
            return self.kept.remove(place).unwrap();
        }
        let deadline = Instant::now() + LONG;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let line = match self.lines.recv_timeout(left) {
                Ok(line) => line,
                Err(RecvTimeoutError::Timeout) => panic!("nothing came but {:?}", self.kept),
                Err(RecvTimeoutError::Disconnected) => panic!("it ended after {:?}", self.kept),
            };
            let message: Value = serde_json::from_str(&line).expect(&line);
            assert_eq!(message["jsonrpc"], "2.0", "{line}");
            if wanted(&message) {
                return message;
            }
            self.kept.push_back(message);
        }
    }

    pub(crate) fn answer(&mut self, id: u64) -> Value {
        self.until(|message| message["id"] == id && message.get("method").is_none())
    }

    pub(crate) fn ask(&mut self, method: &str, params: Value) -> Value {
        let id = self.begin(method, params);
        self.answer(id)
    }

    /// The result of a call of a tool.
    pub(crate) fn call(&mut self, name: &str, arguments: Value) -> Value {
        let answer = self.ask("tools/call", json!({ "name": name, "arguments": arguments }));
        assert!(answer.get("error").is_none(), "{answer}");
        answer["result"].clone()
    }

    pub(crate) fn kept(&self) -> impl Iterator<Item = &Value> {
        self.kept.iter()
    }

    pub(crate) fn hang_up(&mut self) {
        self.stdin = None;
    }

    /// Waits for the end of the process.
    pub(crate) fn end(&mut self) -> i32 {
        let deadline = Instant::now() + LONG;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code().unwrap_or(-1);
            }
            assert!(Instant::now() < deadline, "it does not end");
            thread::sleep(Duration::from_millis(5));
        }
    }

    pub(crate) fn is_alive(&mut self) -> bool {
        self.ask("ping", json!({}))["result"] == json!({})
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.hang_up();
        if self.child.try_wait().unwrap().is_none() && !thread::panicking() {
            self.end();
        }
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// All texts of a result together.
pub(crate) fn text(result: &Value) -> String {
    let blocks = result["content"].as_array().unwrap();
    blocks.iter().filter_map(|block| block["text"].as_str()).collect::<Vec<_>>().join("\n")
}

pub(crate) fn write(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
}
