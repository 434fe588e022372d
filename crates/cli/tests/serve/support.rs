//! A server in a home of its own, and a client that can say anything.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::person::{self, PASSPHRASE, at_terminal};

/// Longer than anything here takes, even on a busy machine.
pub(crate) const LONG: Duration = Duration::from_secs(60);

pub(crate) struct Server {
    dir: tempfile::TempDir,
    child: Child,
    pub(crate) address: SocketAddr,
    said: Arc<Mutex<String>>,
}

/// What came back.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

fn home() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("home")).unwrap();
    // Whatever the host gives is tested.
    fs::write(dir.path().join("home/config.toml"), "min_level = \"no-proc\"\n").unwrap();
    dir
}

pub(crate) fn command(dir: &tempfile::TempDir, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hotcell"));
    command.args(words).current_dir(dir.path()).env_clear();
    command.env("HOTCELL_HOME", dir.path().join("home"));
    for name in ["PATH", "HOME"] {
        command.envs(std::env::var_os(name).map(|value| (name, value)));
    }
    command.stdin(Stdio::null());
    command
}

/// Waits for that.
pub(crate) fn until(look: impl Fn() -> bool) {
    let begun = Instant::now();
    while !look() {
        assert!(begun.elapsed() < LONG);
        thread::sleep(Duration::from_millis(20));
    }
}

impl Server {
    /// With an approver, who has signed these rules.
    pub(crate) fn with_alice(rules: &str) -> Server {
        Server::prepared(|dir| {
            let typed =
                [("New passphrase for alice: ", PASSPHRASE), ("The same again: ", PASSPHRASE)];
            let (made, screen) = at_terminal(&command(dir, &["approver", "new", "alice"]), &typed);
            assert!(made.status.success(), "{screen}");
            let line = String::from_utf8(made.stdout).unwrap();
            person::follow(&dir.path().join("home"), &[line.trim_end().parse().unwrap()], rules);
        })
    }

    pub(crate) fn start() -> Server {
        Server::with(&[])
    }

    pub(crate) fn with(words: &[&str]) -> Server {
        Server::at(home(), words)
    }

    /// In a directory that somebody has prepared.
    pub(crate) fn prepared(prepare: impl FnOnce(&tempfile::TempDir)) -> Server {
        let dir = home();
        prepare(&dir);
        Server::at(dir, &[])
    }

    fn at(dir: tempfile::TempDir, words: &[&str]) -> Server {
        let mut serve = command(&dir, &["serve", "--listen", "127.0.0.1:0"]);
        serve.args(words);
        Server::started(dir, serve)
    }

    /// Where runs are refused: more is required than there is without the powers of root.
    pub(crate) fn powerless() -> Server {
        let dir = home();
        fs::write(dir.path().join("home/config.toml"), "min_level = \"full\"\n").unwrap();
        let mut serve = command(&dir, &["serve", "--listen", "127.0.0.1:0"]);
        if rustix::process::geteuid().is_root() {
            let own = serve;
            serve = Command::new("setpriv");
            serve.args(["--bounding-set=-all", "--inh-caps=-all"]).arg(own.get_program());
            serve.args(own.get_args()).current_dir(dir.path()).env_clear();
            serve.envs(own.get_envs().filter_map(|(name, value)| Some((name, value?))));
            serve.stdin(Stdio::null());
        }
        Server::started(dir, serve)
    }

    fn started(dir: tempfile::TempDir, mut serve: Command) -> Server {
        let mut child = serve.stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap());
        let said = Arc::new(Mutex::new(String::new()));
        let heard = Arc::clone(&said);
        let (tell, hear) = std::sync::mpsc::channel();
        thread::spawn(move || {
            let mut line = String::new();
            while lines.read_line(&mut line).is_ok_and(|length| length > 0) {
                if let Some((_, address)) = line.split_once("at http://") {
                    let end = address.find(|c: char| !c.is_ascii_digit() && c != '.' && c != ':');
                    tell.send(address[..end.unwrap()].to_owned()).ok();
                }
                heard.lock().unwrap().push_str(&line);
                line.clear();
            }
        });
        let address = hear.recv_timeout(LONG).expect("it serves").parse().unwrap();
        Server { dir, child, address, said }
    }

    /// Ends in order, and serves the same home again.
    pub(crate) fn restarted(mut self) -> Server {
        self.signal(Signal::TERM);
        assert_eq!(self.ended(LONG), Some(0), "{}", self.said());
        let dir = std::mem::replace(&mut self.dir, tempfile::tempdir().unwrap());
        Server::at(dir, &[])
    }

    /// Is gone at once. What is left is its directory, for [`Server::again`].
    pub(crate) fn killed(mut self) -> tempfile::TempDir {
        self.signal(Signal::KILL);
        assert_eq!(self.ended(LONG), Some(-1));
        std::mem::replace(&mut self.dir, tempfile::tempdir().unwrap())
    }

    pub(crate) fn again(dir: tempfile::TempDir) -> Server {
        Server::at(dir, &[])
    }

    pub(crate) fn home(&self) -> PathBuf {
        self.dir.path().join("home")
    }

    pub(crate) fn command(&self, words: &[&str]) -> Command {
        command(&self.dir, words)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it has said on stderr so far.
    pub(crate) fn said(&self) -> String {
        self.said.lock().unwrap().clone()
    }

    pub(crate) fn key(&self, scopes: &str) -> String {
        self.key_with(scopes, &[])
    }

    pub(crate) fn key_with(&self, scopes: &str, words: &[&str]) -> String {
        let made = self.command(&[&["key", "create", "me", "--scope", scopes], words].concat());
        let mut made = made;
        let made = made.output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        String::from_utf8(made.stdout).unwrap().trim_end().to_owned()
    }

    /// Whether runs are possible here; otherwise says that they are not.
    pub(crate) fn has_sandbox(&self) -> bool {
        let ready = self.get("/readyz", None).json();
        if ready["sandbox"] != "ok" {
            skip("no sandbox on this host");
        }
        ready["sandbox"] == "ok"
    }

    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        stream.set_write_timeout(Some(LONG)).unwrap();
        stream
    }

    /// Bytes as they are, and what comes back until the end.
    pub(crate) fn raw(&self, bytes: &[u8]) -> Option<Answer> {
        let mut stream = self.connect();
        // It may refuse to read any further.
        stream.write_all(bytes).ok();
        let mut all = Vec::new();
        stream.read_to_end(&mut all).ok();
        Answer::read(&all)
    }

    pub(crate) fn head(&self, method: &str, path: &str, key: Option<&str>, more: &str) -> String {
        let host = self.address;
        let key = key.map(|key| format!("Authorization: Bearer {key}\r\n")).unwrap_or_default();
        format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{key}{more}")
    }

    pub(crate) fn ask(
        &self,
        method: &str,
        path: &str,
        key: Option<&str>,
        more: &str,
        body: Option<&str>,
    ) -> Answer {
        let mut text = self.head(method, path, key, more);
        if let Some(body) = body {
            text.push_str(&format!(
                "Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            ));
        } else {
            text.push_str("\r\n");
        }
        self.raw(text.as_bytes()).unwrap_or_else(|| panic!("no answer to {method} {path}"))
    }

    pub(crate) fn get(&self, path: &str, key: Option<&str>) -> Answer {
        self.ask("GET", path, key, "", None)
    }

    pub(crate) fn post(&self, path: &str, key: &str, body: &str) -> Answer {
        self.ask("POST", path, Some(key), "", Some(body))
    }

    /// A shell script, as a call.
    pub(crate) fn shell(&self, key: &str, query: &str, code: &str) -> Answer {
        let body = serde_json::json!({"run": {"language": "shell", "code": code}});
        self.post(&format!("/v1/runs{query}"), key, &body.to_string())
    }

    /// A call that goes on by itself.
    pub(crate) fn left(&self, key: &str, code: &str) -> String {
        let answer = self.shell(key, "?wait=false", code);
        assert_eq!(answer.status, 202, "{answer:?}");
        answer.json()["id"].as_str().unwrap().to_owned()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_raw(self.child.id().cast_signed()).unwrap(), signal).unwrap();
    }

    /// How it ended.
    pub(crate) fn ended(&mut self, within: Duration) -> Option<i32> {
        let begun = Instant::now();
        while begun.elapsed() < within {
            if let Some(status) = self.child.try_wait().unwrap() {
                return Some(status.code().unwrap_or(-1));
            }
            thread::sleep(Duration::from_millis(20));
        }
        None
    }

    /// The most that it ever had, in KiB.
    pub(crate) fn most_memory(&self) -> u64 {
        self.status_of("VmHWM:")
    }

    /// In KiB.
    pub(crate) fn memory(&self) -> u64 {
        self.status_of("VmRSS:")
    }

    fn status_of(&self, name: &str) -> u64 {
        let text = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.split_whitespace().next().unwrap().parse().unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.child.try_wait().unwrap().is_none() {
            self.signal(Signal::TERM);
            if self.ended(Duration::from_secs(20)).is_none() {
                self.child.kill().unwrap();
                self.child.wait().unwrap();
            }
        }
        if thread::panicking() {
            eprintln!("--- the server said\n{}", self.said());
        }
    }
}

impl Answer {
    pub(crate) fn read(bytes: &[u8]) -> Option<Answer> {
        let end = bytes.windows(4).position(|window| window == b"\r\n\r\n")?;
        let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
        let mut lines = head.lines();
        let status = lines.next()?.split(' ').nth(1)?.parse().ok()?;
        let header = |line: &str| {
            let (name, value) = line.split_once(':').unwrap();
            (name.to_ascii_lowercase(), value.trim().to_owned())
        };
        let headers: Vec<_> = lines.map(header).collect();
        let is_chunked = headers.iter().any(|(name, _)| name == "transfer-encoding");
        let body = &bytes[end + 4..];
        let body = if is_chunked { unchunked(body) } else { body.to_vec() };
        Some(Answer { status, headers, body })
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(one, _)| one == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// A problem with everything that one has.
    pub(crate) fn is_problem(&self, status: u16, sort: &str) {
        assert_eq!(self.status, status, "{sort}: {self:?}");
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{self:?}");
        let document = self.json();
        assert_eq!(document["status"], status, "{document}");
        assert_eq!(document["type"], format!("urn:hotcell:problem:{sort}"), "{document}");
        for name in ["title", "detail", "what", "why", "fix", "kind", "request_id"] {
            assert!(document[name].is_string(), "{name}: {document}");
        }
        assert_eq!(document["request_id"], self.header("x-request-id").unwrap());
        assert_eq!(self.header("x-content-type-options"), Some("nosniff"));
    }
}

fn unchunked(mut bytes: &[u8]) -> Vec<u8> {
    let mut all = Vec::new();
    while let Some(end) = bytes.windows(2).position(|window| window == b"\r\n") {
        let length =
            usize::from_str_radix(std::str::from_utf8(&bytes[..end]).unwrap(), 16).unwrap();
        let begin = end + 2;
        all.extend(&bytes[begin..(begin + length).min(bytes.len())]);
        if length == 0 || begin + length + 2 > bytes.len() {
            break;
        }
        bytes = &bytes[begin + length + 2..];
    }
    all
}

/// Says on the terminal, whatever the harness captures, that the current test was skipped.
pub(crate) fn skip(why: &str) {
    let name = thread::current().name().unwrap_or_default().to_owned();
    let mut terminal = fs::File::from(std::io::stderr().as_fd().try_clone_to_owned().unwrap());
    terminal.write_all(format!("SKIPPED {name}: {why}\n").as_bytes()).unwrap();
}
