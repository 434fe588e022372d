//! Sends spans to a collector, from a thread of its own: OTLP as JSON, over HTTP/1.1. A collector that is not
//! there, or slow, costs spans and nothing else; they are counted.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use hotcell_record::Redactor;
use serde_json::{Value, json};

use super::{Endpoint, Span};

/// Spans that wait to be sent.
const MOST_WAITING: usize = 8192;
/// Most spans of one message.
const MOST_BATCH: usize = 512;
/// How long a span waits for others to go with it.
const LINGER: Duration = Duration::from_millis(500);
/// Longest that a message may take, from connecting to its answer.
const MOST_TIME: Duration = Duration::from_secs(5);
/// Most bytes of an answer that are looked at.
const MOST_ANSWER: usize = 4096;
/// How long the last spans may take.
const LAST: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(super) struct Queue {
    spans: SyncSender<Item>,
    counts: Arc<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    sent: AtomicU64,
    no_room: AtomicU64,
    not_taken: AtomicU64,
}

#[derive(Debug)]
enum Item {
    Span(Span),
    /// Is told when everything before has been sent, or given up.
    Last(Sender<()>),
}

impl Queue {
    /// Without a thread nothing is sent, and everything is counted.
    pub(super) fn begin(endpoint: Endpoint) -> Arc<Queue> {
        let (spans, come) = sync_channel(MOST_WAITING);
        let counts = Arc::<Counts>::default();
        let queue = Arc::new(Queue { spans, counts: Arc::clone(&counts) });
        let send = move || send_all(&come, &endpoint, &counts);
        thread::Builder::new().name("traces".into()).spawn(send).ok();
        queue
    }

    pub(super) fn add(&self, span: Span) {
        if self.spans.try_send(Item::Span(span)).is_err() {
            self.counts.no_room.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn counts(&self) -> (u64, u64, u64) {
        let Counts { sent, no_room, not_taken } = &*self.counts;
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        (read(sent), read(no_room), read(not_taken))
    }

    pub(super) fn finish(&self) {
        let (done, wait) = channel();
        if self.spans.try_send(Item::Last(done)).is_ok() {
            wait.recv_timeout(LAST).ok();
        }
    }
}

fn send_all(come: &Receiver<Item>, endpoint: &Endpoint, counts: &Counts) {
    let redactor = Redactor::new(&[]);
    while let Ok(first) = come.recv() {
        let (batch, done) = batch(come, first);
        let count = batch.len() as u64;
        if count > 0 {
            let message = message(&batch).to_string();
            // A request can be named by anything that looks like a plain word.
            let sent = post(endpoint, &redactor.redact(message.as_bytes()));
            let counted = if sent.is_ok() { &counts.sent } else { &counts.not_taken };
            counted.fetch_add(count, Ordering::Relaxed);
        }
        if let Some(done) = done {
            // Whoever waited may have had enough.
            done.send(()).ok();
        }
    }
}

/// What goes into one message, and who wants to know when it is sent.
fn batch(come: &Receiver<Item>, first: Item) -> (Vec<Span>, Option<Sender<()>>) {
    let until = Instant::now() + LINGER;
    let mut batch = Vec::new();
    let mut next = first;
    loop {
        match next {
            Item::Last(done) => return (batch, Some(done)),
            Item::Span(span) => batch.push(span),
        }
        if batch.len() >= MOST_BATCH {
            return (batch, None);
        }
        next = match come.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(item) => item,
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                return (batch, None);
            }
        };
    }
}

fn message(batch: &[Span]) -> Value {
    let version = env!("CARGO_PKG_VERSION");
    let spans: Vec<Value> = batch.iter().map(Span::document).collect();
    json!({ "resourceSpans": [{
        "resource": { "attributes": [
            { "key": "service.name", "value": { "stringValue": "hotcell" } },
            { "key": "service.version", "value": { "stringValue": version } },
        ] },
        "scopeSpans": [{ "scope": { "name": "hotcell", "version": version }, "spans": spans }],
    }] })
}

/// One message on a connection of its own: there is one in half a second at most.
fn post(endpoint: &Endpoint, body: &[u8]) -> io::Result<()> {
    let deadline = Instant::now() + MOST_TIME;
    let mut stream = connect(endpoint, deadline)?;
    let head = format!(
        "POST {} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n",
        endpoint.path,
        endpoint.authority(),
        body.len()
    );
    write_all(&mut stream, head.as_bytes(), deadline)?;
    write_all(&mut stream, body, deadline)?;
    match status(&mut stream, deadline)? {
        200..=299 => Ok(()),
        other => Err(io::Error::other(format!("the collector answered {other}"))),
    }
}

fn connect(endpoint: &Endpoint, deadline: Instant) -> io::Result<TcpStream> {
    let mut failed = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    for address in (endpoint.host.as_str(), endpoint.port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, left(deadline)?) {
            Ok(stream) => return Ok(stream),
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

/// What is left of the time, which is never nothing.
fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

/// Piece by piece: each may take what is left, and not what it likes.
fn write_all(stream: &mut TcpStream, mut bytes: &[u8], deadline: Instant) -> io::Result<()> {
    while !bytes.is_empty() {
        stream.set_write_timeout(Some(left(deadline)?))?;
        match stream.write(bytes)? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            written => bytes = bytes.get(written..).unwrap_or_default(),
        }
    }
    Ok(())
}

/// The number in the first line of the answer.
fn status(stream: &mut TcpStream, deadline: Instant) -> io::Result<u16> {
    let mut answer = Vec::new();
    let mut piece = [0; 512];
    while !answer.contains(&b'\n') && answer.len() < MOST_ANSWER {
        stream.set_read_timeout(Some(left(deadline)?))?;
        match stream.read(&mut piece)? {
            0 => break,
            read => answer.extend_from_slice(piece.get(..read).unwrap_or_default()),
        }
    }
    let line = answer.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let line = std::str::from_utf8(line).unwrap_or_default();
    let number = line.strip_prefix("HTTP/1.").and_then(|rest| rest.split_whitespace().nth(1));
    let number = number.and_then(|number| number.parse().ok());
    number.ok_or_else(|| io::Error::other("the collector does not speak HTTP"))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::super::Context;
    use super::*;

    fn span() -> Span {
        let context = Context { trace: [1; 16], span: [2; 8], parent: None };
        let attributes = vec![("hotcell.request_id", "hct_0123456789abcdef".into())];
        let (name, kind, begun, ended, has_failed) = ("request", 2, 1, 2, true);
        Span { context, name, kind, begun, ended, has_failed, attributes }
    }

    fn at(listener: &TcpListener) -> Endpoint {
        format!("http://{}", listener.local_addr().unwrap()).parse().unwrap()
    }

    #[test]
    fn what_does_not_fit_is_counted_and_holds_up_nobody() {
        // Connections are accepted by the system, and never read from.
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let queue = Queue::begin(at(&listener));
        let all = MOST_WAITING + MOST_BATCH + 100;
        (0..all).for_each(|_| queue.add(span()));
        let (sent, no_room, _) = queue.counts();
        assert!(sent == 0 && no_room > 0, "{sent} {no_room}");
        let begun = Instant::now();
        queue.finish();
        assert!(begun.elapsed() < LAST + MOST_TIME);
    }

    /// A collector that says this and closes.
    fn answered(answer: &'static [u8]) -> (Result<(), io::Error>, String) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = at(&listener);
        let hears = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut heard = vec![0; 64 * 1024];
            let mut length = 0;
            while !heard[..length].ends_with(b"}") {
                length += stream.read(&mut heard[length..]).unwrap();
            }
            stream.write_all(answer).unwrap();
            String::from_utf8_lossy(&heard[..length]).into_owned()
        });
        let sent = post(&endpoint, message(&[span()]).to_string().as_bytes());
        (sent, hears.join().unwrap())
    }

    #[test]
    fn only_what_a_collector_says_it_has_taken_is_sent() {
        for (answer, expected) in [
            (&b"HTTP/1.1 200 OK\r\n\r\n{}"[..], true),
            (b"HTTP/1.0 204 \r\n\r\n", true),
            (b"HTTP/1.1 400 Bad Request\r\n\r\n", false),
            (b"HTTP/1.1 503\r\n\r\n", false),
            (b"SSH-2.0-x\r\n", false),
            (b"", false),
        ] {
            let (sent, heard) = answered(answer);
            assert_eq!(sent.is_ok(), expected, "{sent:?}");
            assert!(heard.starts_with("POST /v1/traces HTTP/1.1\r\nHost: 127.0.0.1:"), "{heard}");
        }
    }

    #[test]
    fn a_span_is_written_as_the_protocol_has_it() {
        let document = span().document();
        assert_eq!(document["traceId"], "01".repeat(16));
        assert_eq!(document["spanId"], "02".repeat(8));
        assert_eq!((&document["parentSpanId"], &document["kind"]), (&"".into(), &2.into()));
        assert_eq!(
            (&document["startTimeUnixNano"], &document["status"]["code"]),
            (&"1".into(), &2.into())
        );
    }
}
