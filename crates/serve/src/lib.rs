//! The HTTP door. Every question of [`hotcell_api::Ask`] is a route of one table (`route`), from which the
//! router and the OpenAPI document are made; every answer comes from [`hotcell_api::answer`]. Read `door`
//! for the way of a request, and this file for how the server begins and ends.
//!
//! The engine blocks and tokio does not: what asks the engine runs on threads of a bounded pool (`lanes`).
//! HTTP/1.1 only, without TLS: what is in front of it can do better at both.

mod bodies;
mod connections;
mod content;
mod door;
mod events;
mod hosts;
mod input;
mod keys;
mod lanes;
mod lines;
mod lock;
mod log;
mod mcp;
mod metrics;
mod openapi;
mod probe;
mod problem;
mod rate;
mod rights;
mod route;
mod stream;
mod traces;
mod under_way;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use hotcell_engine::Engine;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tower_service::Service;

use crate::connections::{Bounds, Connections, Counted};
use crate::door::{Door, router};
use crate::hosts::Hosts;
use crate::log::Log;
use crate::metrics::Metrics;
use crate::stream::Stream;

pub use crate::keys::{Identity, Keys, Refused};
pub use crate::lock::{HomeLock, LockError};
pub use crate::log::LogForm;
pub use crate::openapi::openapi;
pub use crate::probe::Socket;
pub use crate::traces::{BadEndpoint, Endpoint, Traces};
pub use crate::under_way::Observer;

/// Connections that were closed without an answer of ours, by why.
const REFUSED: &str = "hotcell_connections_refused_total";
/// Longest that the head of a request may take to arrive, from its first byte on.
const HEAD_TIME: Duration = Duration::from_secs(10);
/// Largest head of a request, and most lines of it.
const MOST_HEAD: usize = 64 * 1024;
const MOST_HEADERS: usize = 64;
/// How long a peer may not acknowledge anything before it counts as dead.
const DEAD_AFTER: u32 = 30_000;
/// How often connections are looked at.
const SWEEP: Duration = Duration::from_millis(500);
/// How long the server rests when there is no descriptor for a connection.
const NO_ROOM: Duration = Duration::from_millis(50);
/// How long answers that are there may take to be read when the server is to end.
const LAST_ANSWERS: Duration = Duration::from_secs(2);
/// Threads for keys, contents and readiness, beside those of the lanes.
const FURTHER_THREADS: usize = 64;

/// How a server is set up.
#[derive(Debug, Clone)]
pub struct Settings {
    pub listen: SocketAddr,
    /// Names under which it is reached, beside its address.
    pub hosts: Vec<String>,
    pub log: LogForm,
    /// Most connections at one time.
    pub connections: usize,
    /// Longest that a connection waits for a request.
    pub idle: Duration,
    /// Longest that an answer is not taken.
    pub stall: Duration,
    /// How long what goes on may take to end by itself when the server is to end, and then by force.
    pub grace: Duration,
    pub force: Duration,
    /// A socket that is served beside this, for who asks whether the server is ready.
    pub socket: Option<Socket>,
}

impl Settings {
    pub fn at(listen: SocketAddr) -> Settings {
        Settings {
            listen,
            hosts: Vec::new(),
            log: LogForm::Text,
            connections: 1024,
            idle: Duration::from_secs(30),
            stall: Duration::from_secs(30),
            grace: Duration::from_secs(10),
            force: Duration::from_secs(15),
            socket: None,
        }
    }
}

/// Why there is no server.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error("`{address}` cannot be listened at")]
    Listen { address: SocketAddr, source: io::Error },
    #[error("there are no threads to serve with")]
    Threads(#[source] io::Error),
}

/// Serves until SIGTERM, SIGINT or SIGHUP. Then nobody is accepted any more, what goes on may end by itself
/// for a while, and is ended; a second signal ends it at once. `observer` is the one that the engine was
/// opened with, `listening` is told where the server is as soon as it is there.
pub fn serve(
    engine: Arc<Engine>,
    observer: Observer,
    settings: Settings,
    listening: impl FnOnce(SocketAddr),
) -> Result<(), ServeError> {
    let threads = lanes::threads() + FURTHER_THREADS;
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.enable_all().max_blocking_threads(threads).thread_name("serve").build();
    let runtime = runtime.map_err(ServeError::Threads)?;
    let served = runtime.block_on(run(engine, observer, settings, listening));
    // What did not end by force does not keep the process: its launcher ends what it runs.
    runtime.shutdown_timeout(Duration::from_millis(100));
    served
}

async fn run(
    engine: Arc<Engine>,
    observer: Observer,
    settings: Settings,
    listening: impl FnOnce(SocketAddr),
) -> Result<(), ServeError> {
    let failed = |source| ServeError::Listen { address: settings.listen, source };
    let signals = Signals::catch().map_err(ServeError::Threads)?;
    let listener = TcpListener::bind(settings.listen).await.map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    let log = Log::begin(settings.log, io::stderr());
    let Settings { connections: most, idle, stall, .. } = settings;
    let bounds = Bounds { most, idle, head: HEAD_TIME.min(idle), stall };
    let connections = Connections::new(bounds);
    let hosts = Hosts::new(address, &settings.hosts);
    let door = Door::new(engine, observer, hosts, connections, log);
    let door = door.beside(settings.socket.clone());
    let server = Server { router: None, door: Arc::new(door), settings };
    server.announce(address);
    listening(address);
    server.serve(listener, signals).await;
    Ok(())
}

struct Server {
    router: Option<Router>,
    door: Arc<Door>,
    settings: Settings,
}

/// How far a server is with its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Serves,
    /// Each connection ends with the request that it has.
    Drains,
}

impl Server {
    fn announce(&self, address: SocketAddr) {
        let log = &self.door.log;
        log.say("serving", json!({ "text": format!("at http://{address}") }));
        if !address.ip().is_loopback() {
            let text = "this is plain HTTP, and not only for this machine: keys and contents can be \
                        read on the way; put something with TLS in front of it";
            log.say("warning:", json!({ "text": text }));
        }
        if !self.door.has_keys() {
            let text = "nobody has a key yet: `hotcell key create NAME --scope run,runs:read,tools` makes one";
            log.say("note:", json!({ "text": text }));
        }
    }

    async fn serve(mut self, listener: TcpListener, mut signals: Signals) {
        self.router = Some(router(Arc::clone(&self.door)));
        let (phase, phases) = watch::channel(Phase::Serves);
        let mut sweep = tokio::time::interval(SWEEP);
        let name = loop {
            tokio::select! {
                name = signals.next() => break name,
                accepted = listener.accept() => match accepted {
                    Ok((stream, peer)) => self.accept(stream, peer, phases.clone()),
                    Err(_) => tokio::time::sleep(NO_ROOM).await,
                },
                _ = sweep.tick() => self.sweep(),
            }
        };
        drop(listener);
        self.door
            .log
            .say("stopping", json!({ "signal": name, "requests": self.door.under_way.count() }));
        self.door.is_stopping.store(true, Ordering::SeqCst);
        // Those who wait for nobody in particular need not hold up the end.
        self.door.mcp.stop_listening();
        phase.send_replace(Phase::Drains);
        let is_clean = self.end(&mut signals).await;
        if let Some(traces) = self.door.traces() {
            traces.finish();
        }
        self.door.log.say("stopped", json!({ "clean": is_clean }));
        self.door.log.finish();
    }

    fn sweep(&self) {
        for late in self.door.connections.sweep(Instant::now()) {
            self.door.metrics.count(REFUSED, &[("why", late.word())]);
        }
    }

    fn accept(&self, stream: TcpStream, peer: SocketAddr, phases: watch::Receiver<Phase>) {
        let (counted, has_evicted) = self.door.connections.admit(peer);
        let refused = |why| {
            self.door.metrics.count(REFUSED, &[("why", why)]);
        };
        if has_evicted {
            refused("made room");
        }
        let (Some(counted), Some(router)) = (counted, self.router.clone()) else {
            return refused("full");
        };
        stream.set_nodelay(true).ok();
        rustix::net::sockopt::set_tcp_user_timeout(&stream, DEAD_AFTER).ok();
        let metrics = Arc::clone(&self.door.metrics);
        tokio::spawn(converse(stream, counted, router, phases, metrics));
    }

    /// Whether everything came to its end.
    async fn end(&self, signals: &mut Signals) -> bool {
        let door = &self.door;
        let all_gone = async {
            door.under_way.gone().await;
            // Who still has an answer to take is given time for it; who waits for news is not.
            if tokio::time::timeout(LAST_ANSWERS, door.connections.gone()).await.is_err() {
                door.mcp.stop();
                door.connections.gone().await;
            }
        };
        tokio::pin!(all_gone);
        let waits = async {
            let deadline = tokio::time::sleep(self.settings.grace);
            tokio::pin!(deadline);
            let mut look = tokio::time::interval(SWEEP);
            loop {
                tokio::select! {
                    _ = look.tick() => door.under_way.interrupt_waits(),
                    () = &mut deadline => return,
                }
            }
        };
        tokio::select! {
            () = &mut all_gone => return true,
            () = waits => {}
            _ = signals.next() => {}
        }
        door.mcp.stop();
        door.log.say("cancelling", json!({ "requests": door.under_way.count() }));
        let force = async {
            let mut again = tokio::time::interval(SWEEP);
            loop {
                again.tick().await;
                let (engine, under_way) = (Arc::clone(&door.engine), Arc::clone(&door.under_way));
                tokio::task::spawn_blocking(move || under_way.cancel_all(&engine));
            }
        };
        tokio::select! {
            () = &mut all_gone => true,
            () = tokio::time::sleep(self.settings.force) => false,
            () = force => false,
        }
    }
}

/// One connection, until either side has had enough.
async fn converse(
    stream: TcpStream,
    counted: Counted,
    router: Router,
    mut phases: watch::Receiver<Phase>,
    metrics: Arc<Metrics>,
) {
    let connection = Arc::clone(&counted.connection);
    let service = hyper::service::service_fn(|mut request: hyper::Request<Incoming>| {
        connection.hears();
        request.extensions_mut().insert(Arc::clone(&connection));
        let (mut router, connection) = (router.clone(), Arc::clone(&connection));
        async move {
            let answered = router.call(request.map(Body::new)).await;
            connection.answers();
            answered
        }
    });
    let mut http = http1::Builder::new();
    // Its own clock for heads runs while nothing has come yet, and would end whoever may be idle for longer.
    http.header_read_timeout(None)
        .max_headers(MOST_HEADERS)
        .max_buf_size(MOST_HEAD)
        .half_close(false);
    let stream = Stream::new(stream, Arc::clone(&connection));
    let talk = http.serve_connection(TokioIo::new(stream.clone()), service);
    tokio::pin!(talk);
    let mut is_draining = false;
    let mut look = tokio::time::interval(SWEEP);
    loop {
        tokio::select! {
            ended = talk.as_mut() => {
                // What was wrong with it is of no interest to anybody but the client, who has heard of it.
                if ended.is_err_and(|error| error.is_parse()) {
                    metrics.count(REFUSED, &[("why", "malformed")]);
                }
                return;
            }
            () = connection.closed() => return,
            _ = look.tick() => {
                // What it asked for ends with it.
                let is_left = connection.is_in_use() && stream.is_left();
                if is_left || connection.lingers() {
                    return;
                }
            }
            _ = phases.changed(), if !is_draining => {
                is_draining = true;
                talk.as_mut().graceful_shutdown();
            }
        }
    }
}

struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    fn catch() -> io::Result<Signals> {
        Ok(Signals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.hangup.recv() => "SIGHUP",
        }
    }
}
