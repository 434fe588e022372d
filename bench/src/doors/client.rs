//! A client that does as little as it can, so that what is measured is the server: requests are made by
//! hand, and of an answer no more is read than how it went and where it ends.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Barrier;

use super::server::Share;
use crate::peers::Failure;

/// Longest that an answer is waited for.
const PATIENCE: Duration = Duration::from_secs(60);
/// Largest answer, which is far more than any has that is asked for here.
const MOST: usize = 64 * 1024;

/// Where a server is, and with which key.
#[derive(Debug, Clone)]
pub(super) struct Target {
    pub(super) address: SocketAddr,
    pub(super) key: String,
}

/// One request. No two are alike.
#[derive(Debug, Clone)]
pub(super) struct Ask {
    path: &'static str,
    body: Value,
}

impl Ask {
    /// A call that is recorded with the next ones.
    pub(super) fn add(number: u64) -> Ask {
        let body = json!({"arguments": {"a": 1_000_000 + number, "b": 2}});
        Ask { path: "/v1/tools/add/call", body }
    }

    /// A call that is on the disk before it happens. Those that write to one place would wait for each other.
    pub(super) fn write(number: u64) -> Ask {
        let body = json!({"arguments": {"path": format!("out/{number}.txt")}});
        Ask { path: "/v1/tools/bench.write/call", body }
    }

    /// A program that does nothing, in a sandbox.
    pub(super) fn nothing() -> Ask {
        Ask { path: "/v1/runs", body: json!({"run": {"command": ["/bin/true"]}}) }
    }

    pub(super) fn body(&self) -> String {
        self.body.to_string()
    }

    pub(super) fn body_as_value(self) -> Value {
        self.body
    }

    fn bytes(&self, target: &Target) -> Vec<u8> {
        let (Target { address, key }, body) = (target, self.body());
        let (path, length) = (self.path, body.len());
        format!(
            "POST {path} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {key}\r\n\
             Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
        )
        .into_bytes()
    }
}

/// What came back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) status: u16,
    has_retry_after: bool,
    pub(super) body: Vec<u8>,
}

impl Answer {
    /// The first one of what was received, and how many bytes it has; `None` when it is not all there.
    fn read(received: &[u8]) -> io::Result<Option<(Answer, usize)>> {
        let wrong = |what| io::Error::new(io::ErrorKind::InvalidData, what);
        if received.len() > MOST {
            return Err(wrong("the answer has no end"));
        }
        let Some(end) = received.windows(4).position(|four| four == b"\r\n\r\n") else {
            return Ok(None);
        };
        let head = received.get(..end).unwrap_or_default();
        let head = str::from_utf8(head).map_err(|_| wrong("a head that is no text"))?;
        let mut lines = head.split("\r\n");
        let status = lines.next().and_then(|line| line.split(' ').nth(1)?.parse().ok());
        let status = status.ok_or_else(|| wrong("an answer without a status"))?;
        let (mut length, mut has_retry_after) = (None, false);
        for (name, value) in lines.filter_map(|line| line.split_once(':')) {
            if name.eq_ignore_ascii_case("content-length") {
                length = value.trim().parse::<usize>().ok();
            }
            has_retry_after |= name.eq_ignore_ascii_case("retry-after");
        }
        let begin = end + 4;
        let end = begin + length.ok_or_else(|| wrong("an answer without a length"))?;
        let body = received.get(begin..end).map(<[u8]>::to_vec);
        Ok(body.map(|body| (Answer { status, has_retry_after, body }, end)))
    }
}

/// Kept alive as long as the server keeps it.
#[derive(Debug)]
struct Connection {
    stream: TcpStream,
    received: Vec<u8>,
}

impl Connection {
    async fn open(address: SocketAddr) -> io::Result<Connection> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Connection { stream, received: Vec::new() })
    }

    async fn ask(&mut self, request: &[u8]) -> io::Result<Answer> {
        let late = |_| io::Error::from(io::ErrorKind::TimedOut);
        tokio::time::timeout(PATIENCE, self.converse(request)).await.map_err(late)?
    }

    async fn converse(&mut self, request: &[u8]) -> io::Result<Answer> {
        let mut rest = request;
        while !rest.is_empty() {
            self.stream.writable().await?;
            match self.stream.try_write(rest) {
                Ok(sent) => rest = rest.get(sent..).unwrap_or_default(),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        let mut piece = [0; 4096];
        loop {
            if let Some((answer, length)) = Answer::read(&self.received)? {
                self.received.drain(..length);
                return Ok(answer);
            }
            self.stream.readable().await?;
            match self.stream.try_read(&mut piece) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => self.received.extend(piece.get(..count).unwrap_or_default()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// When a load is over.
#[derive(Debug, Clone, Copy)]
pub(super) enum Until {
    Over(Duration),
    Made(u64),
}

/// One of a burst: what came back, if anything did, and after how many microseconds.
#[derive(Debug)]
pub(super) struct Answered {
    pub(super) status: Option<u16>,
    pub(super) has_retry_after: bool,
    pub(super) micros: f64,
}

/// Many connections to one server.
#[derive(Debug)]
pub(super) struct Client {
    runtime: Runtime,
    target: Arc<Target>,
    connections: Vec<Connection>,
    many: usize,
    number: Arc<AtomicU64>,
}

impl Client {
    pub(super) fn new(target: &Target, many: usize, share: Share) -> Result<Client, Failure> {
        let runtime = Builder::new_multi_thread()
            .enable_all()
            .worker_threads(share.count()?)
            // Where a thread may not be bound it has all processors, and the ratios are a little worse.
            .on_thread_start(move || share.take().unwrap_or_default())
            .build()?;
        let (target, number) = (Arc::new(target.clone()), Arc::default());
        let mut client = Client { runtime, target, connections: Vec::new(), many, number };
        client.connect()?;
        Ok(client)
    }

    /// As many connections as there have to be.
    fn connect(&mut self) -> io::Result<()> {
        while self.connections.len() < self.many {
            let opened = self.runtime.block_on(Connection::open(self.target.address))?;
            self.connections.push(opened);
        }
        Ok(())
    }

    /// Every connection asks again as soon as it has its answer. How many there were, and in which time.
    pub(super) fn load(
        &mut self,
        ask: fn(u64) -> Ask,
        until: Until,
    ) -> Result<(u64, Duration), Failure> {
        let begun = Instant::now();
        let left = Arc::new(AtomicU64::new(match until {
            Until::Over(_) => u64::MAX,
            Until::Made(count) => count,
        }));
        let is_over = move || match until {
            Until::Over(span) => begun.elapsed() >= span,
            Until::Made(_) => false,
        };
        let tasks: Vec<_> = std::mem::take(&mut self.connections)
            .into_iter()
            .map(|mut connection| {
                let (target, number) = (Arc::clone(&self.target), Arc::clone(&self.number));
                let left = Arc::clone(&left);
                let take = move || {
                    left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1))
                };
                self.runtime.spawn(async move {
                    let mut made = 0;
                    while !is_over() && take().is_ok() {
                        let request = ask(number.fetch_add(1, Ordering::Relaxed)).bytes(&target);
                        let answer = connection.ask(&request).await?;
                        good(&answer)?;
                        made += 1;
                    }
                    Ok::<_, Failure>((connection, made))
                })
            })
            .collect();
        let mut made = 0;
        for task in tasks {
            let (connection, count) = self.runtime.block_on(task)??;
            self.connections.push(connection);
            made += count;
        }
        Ok((made, begun.elapsed()))
    }

    /// All connections at one moment, once. Those that were closed are opened again before the next time.
    pub(super) fn burst(&mut self, ask: fn(u64) -> Ask) -> Result<Vec<Answered>, Failure> {
        self.connect()?;
        let barrier = Arc::new(Barrier::new(self.connections.len()));
        let tasks: Vec<_> = std::mem::take(&mut self.connections)
            .into_iter()
            .map(|mut connection| {
                let number = self.number.fetch_add(1, Ordering::Relaxed);
                let (barrier, request) = (Arc::clone(&barrier), ask(number).bytes(&self.target));
                self.runtime.spawn(async move {
                    barrier.wait().await;
                    let begun = Instant::now();
                    let answer = connection.ask(&request).await;
                    (answer, begun.elapsed(), connection)
                })
            })
            .collect();
        let mut all = Vec::new();
        for task in tasks {
            let (answer, took, connection) = self.runtime.block_on(task)?;
            let answer = answer.ok();
            all.push(Answered {
                status: answer.as_ref().map(|answer| answer.status),
                has_retry_after: answer.as_ref().is_some_and(|answer| answer.has_retry_after),
                micros: took.as_secs_f64() * 1e6,
            });
            if answer.is_some() {
                self.connections.push(connection);
            }
        }
        Ok(all)
    }
}

/// One connection, for one request after the other.
#[derive(Debug)]
pub(super) struct Single {
    target: Target,
    inner: Mutex<(Runtime, Connection)>,
}

impl Single {
    pub(super) fn new(target: &Target) -> Result<Single, Failure> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let connection = runtime.block_on(Connection::open(target.address))?;
        Ok(Single { target: target.clone(), inner: Mutex::new((runtime, connection)) })
    }

    pub(super) fn ask(&self, ask: &Ask) -> Result<Answer, Failure> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let (runtime, connection) = &mut *inner;
        Ok(runtime.block_on(connection.ask(&ask.bytes(&self.target)))?)
    }

    /// A call that does not is a failure.
    pub(super) fn succeeds(&self, ask: &Ask) -> Result<(), Failure> {
        let answer = self.ask(ask)?;
        good(&answer)?;
        let called: Value = serde_json::from_slice(&answer.body)?;
        match called.get("status").and_then(Value::as_str) {
            Some("success") => Ok(()),
            _ => Err(format!("the call did not succeed: {called}").into()),
        }
    }
}

fn good(answer: &Answer) -> Result<(), Failure> {
    match answer.status {
        200 => Ok(()),
        status => Err(format!("{status}: {}", String::from_utf8_lossy(&answer.body)).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read_when_all_of_it_is_there() {
        let whole =
            b"HTTP/1.1 429 Too Many Requests\r\ncontent-length: 2\r\nRetry-After: 1\r\n\r\nnoHTTP";
        for length in 0..whole.len() - 4 {
            assert_eq!(Answer::read(&whole[..length]).unwrap(), None, "{length}");
        }
        let answer = Answer { status: 429, has_retry_after: true, body: b"no".to_vec() };
        assert_eq!(Answer::read(whole).unwrap(), Some((answer, whole.len() - 4)));
    }

    #[test]
    fn an_answer_without_an_end_is_an_error() {
        for wrong in [&b"HTTP/1.1 200 OK\r\n\r\n"[..], b"what\r\ncontent-length: 0\r\n\r\n"] {
            assert!(Answer::read(wrong).is_err());
        }
        assert!(Answer::read(&[b'a'; MOST + 1]).is_err());
    }
}
