//! The servers that are measured, each a process of its own: hotcell's, and an axum handler that does nothing
//! but read and write as many bytes of JSON.

use std::ffi::{OsStr, OsString};
use std::io::{self, BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, Response, StatusCode, header};
use axum::routing::post;
use hotcell_access::{New, Scope};
use hotcell_engine::{Answer, Ask, Engine, KeyAnswer, KeyAsk};
use hotcell_serve::{Observer, Settings};
use hotcell_types::{Caller, Door, Name};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use rustix::process::{Resource, Rlimit, Signal, getpid, getrlimit, kill_process, setrlimit};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde::{Deserialize, Serialize};
use tokio::net::{TcpListener, TcpStream};
use tower_service::Service;

use super::client::{self, Single, Target};
use crate::host;
use crate::path::{Memory, calls};
use crate::peers::Failure;

/// How long a server may take to end before it is killed, and how often it is looked.
const PATIENCE: Duration = Duration::from_secs(30);
const STEP: Duration = Duration::from_millis(10);
/// Anybody's, on a port that is free.
const LOCAL: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

/// What this program does when a measurement starts it again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// `hotcell serve`, with the tools of this benchmark.
    Hotcell,
    /// The least that a server can do.
    Axum,
}

impl Role {
    fn name(self) -> &'static str {
        match self {
            Role::Hotcell => "as-server",
            Role::Axum => "as-bare-axum",
        }
    }

    pub(crate) fn named(name: &OsStr) -> Option<Role> {
        [Role::Hotcell, Role::Axum].into_iter().find(|role| role.name() == name)
    }
}

/// Which processors somebody has: servers that are compared the same, the client the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Share {
    All,
    First,
    Second,
}

impl Share {
    fn name(self) -> &'static str {
        match self {
            Share::All => "all",
            Share::First => "first",
            Share::Second => "second",
        }
    }

    fn named(name: &OsStr) -> Option<Share> {
        [Share::All, Share::First, Share::Second].into_iter().find(|share| share.name() == name)
    }

    /// With one processor there is nothing to share.
    fn of(self, all: &[usize]) -> &[usize] {
        let (first, second) = all.split_at(all.len() / 2);
        match self {
            Share::First if !first.is_empty() => first,
            Share::Second => second,
            _ => all,
        }
    }

    fn processors(self) -> io::Result<Vec<usize>> {
        let allowed = sched_getaffinity(None)?;
        let all: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|&one| allowed.is_set(one)).collect();
        Ok(self.of(&all).to_vec())
    }

    pub(super) fn count(self) -> io::Result<usize> {
        Ok(self.processors()?.len().max(1))
    }

    /// Binds this thread, and those that it starts from now on.
    pub(super) fn take(self) -> io::Result<()> {
        let mut set = CpuSet::new();
        self.processors()?.into_iter().for_each(|one| set.set(one));
        Ok(sched_setaffinity(None, &set)?)
    }
}

/// Each connection is a descriptor, on both sides.
pub(super) fn raise_open_files() {
    let maximum = getrlimit(Resource::Nofile).maximum;
    // Where it cannot be raised, connections fail, and that is told.
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).ok();
}

/// A server for as long as this is there.
#[derive(Debug)]
pub(super) struct Served {
    process: Child,
    target: Target,
}

impl Served {
    /// What the server says of requests goes nowhere; what went wrong when it began is told.
    pub(super) fn start(role: Role, home: &Path, share: Share) -> Result<Served, Failure> {
        let mut process = Command::new(std::env::current_exe()?)
            .args([role.name(), share.name()])
            .arg(home)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let target = read(process.stdout.take());
        // Whatever it said: it ends with this.
        let unknown = Target { address: LOCAL, key: String::new() };
        let mut served = Served { process, target: unknown };
        served.target = target?;
        Ok(served)
    }

    pub(super) fn target(&self) -> &Target {
        &self.target
    }

    pub(super) fn asked_once(&self, ask: &client::Ask) -> Result<client::Answer, Failure> {
        Single::new(&self.target)?.ask(ask)
    }

    /// Processor time so far, in seconds.
    pub(super) fn spent(&self) -> Result<f64, Failure> {
        host::spent(self.process.id())
    }

    pub(super) fn memory(&self) -> Result<Memory, Failure> {
        Memory::of(self.process.id())
    }
}

/// `ADDRESS KEY`, on its first line.
fn read(stdout: Option<ChildStdout>) -> Result<Target, Failure> {
    let mut line = String::new();
    BufReader::new(stdout.ok_or("there is no pipe")?).read_line(&mut line)?;
    let target = line.trim_end().split_once(' ').and_then(|(address, key)| {
        Some(Target { address: address.parse().ok()?, key: key.to_owned() })
    });
    target.ok_or_else(|| format!("the server says `{}`", line.trim_end()).into())
}

impl Drop for Served {
    fn drop(&mut self) {
        // The end of its standard input is the end of it.
        drop(self.process.stdin.take());
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            if !matches!(self.process.try_wait(), Ok(None)) {
                return;
            }
            thread::sleep(STEP);
        }
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

/// The other process. Its words are a share of the processors and a home.
pub(crate) fn play(role: Role, words: Vec<OsString>) -> ExitCode {
    let played = (|| {
        let [share, home] = words.as_slice() else { return Err("a share and a home".into()) };
        Share::named(share).ok_or("there is no such share")?.take()?;
        raise_open_files();
        end_with_input()?;
        match role {
            Role::Hotcell => hotcell(Path::new(home)),
            Role::Axum => axum(),
        }
    })();
    match played {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            // Where whoever started it looks.
            println!("{}: {failure}", role.name());
            ExitCode::from(2)
        }
    }
}

/// Whoever started this is gone, or wants it to be over.
fn end_with_input() -> Result<(), Failure> {
    thread::Builder::new().name("input".into()).spawn(|| {
        io::stdin().read_to_end(&mut Vec::new()).ok();
        kill_process(getpid(), Signal::TERM).ok();
    })?;
    Ok(())
}

fn hotcell(home: &Path) -> Result<(), Failure> {
    let observer = Observer::new(None);
    let engine = Arc::new(calls::engine(home, Some(observer.watch()))?);
    let key = key(&engine)?;
    let listening = |address| println!("{address} {key}");
    Ok(hotcell_serve::serve(engine, observer, Settings::at(LOCAL), listening)?)
}

fn key(engine: &Engine) -> Result<String, Failure> {
    let new = New {
        name: "bench".parse()?,
        tenant: Name::LOCAL,
        subject: "bench".parse()?,
        scopes: [Scope::Run, Scope::Tools].into_iter().collect(),
        life: None,
        rate: None,
        concurrent: None,
    };
    let caller = Caller::local(Name::LOCAL, Door::Library);
    match engine.ask(&caller, Ask::Key(KeyAsk::Create(Box::new(new)))) {
        Answer::Key(KeyAnswer::Created { text, .. }) => Ok(text.reveal().to_owned()),
        other => Err(format!("no key was made: {other:?}").into()),
    }
}

#[derive(Deserialize)]
struct Call {
    arguments: Two,
}

#[derive(Deserialize)]
struct Two {
    a: f64,
    b: f64,
}

/// As hotcell answers a call.
#[derive(Serialize)]
struct Called {
    id: String,
    status: &'static str,
    value: f64,
    rules: [&'static str; 1],
}

fn axum() -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind(LOCAL).await?;
        println!("{} none", listener.local_addr()?);
        let router = Router::new().route("/v1/tools/add/call", post(add));
        loop {
            let (stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            tokio::spawn(converse(stream, router.clone()));
        }
    })
}

/// As hotcell's server does it, without what that looks at besides.
async fn converse(stream: TcpStream, router: Router) {
    let service = hyper::service::service_fn(|request: hyper::Request<Incoming>| {
        let mut router = router.clone();
        async move { router.call(request.map(Body::new)).await }
    });
    // A connection that fails is the client's to tell.
    http1::Builder::new().serve_connection(TokioIo::new(stream), service).await.ok();
}

async fn add(body: Bytes) -> Response<Body> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let answer = serde_json::from_slice(&body).and_then(|Call { arguments: Two { a, b } }| {
        let id = format!("{:026}", COUNT.fetch_add(1, Ordering::Relaxed));
        serde_json::to_vec(&Called { id, status: "success", value: a + b, rules: ["pure-tools"] })
    });
    match answer {
        Ok(bytes) => {
            let mut response = Response::new(Body::from(bytes));
            let json = HeaderValue::from_static("application/json");
            response.headers_mut().insert(header::CONTENT_TYPE, json);
            response
        }
        Err(_) => {
            let mut response = Response::new(Body::empty());
            *response.status_mut() = StatusCode::BAD_REQUEST;
            response
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_have_what_the_client_has_not() {
        let all = [0, 1, 2, 5, 7];
        assert_eq!(Share::First.of(&all), [0, 1]);
        assert_eq!(Share::Second.of(&all), [2, 5, 7]);
        assert_eq!(Share::All.of(&all), all);
        for share in [Share::All, Share::First, Share::Second] {
            assert_eq!(share.of(&all[..1]), [0]);
            assert_eq!(Share::named(OsStr::new(share.name())), Some(share));
        }
    }
}
