//! The protocol over standard input and output: a message is a line. Standard output carries nothing else.
//!
//! The SDK's own transport passes over what it cannot read; here each line that is not a message is answered
//! with what is wrong, and everything has a most: lines, requests under way, and answers that nobody reads.

use std::collections::HashSet;
use std::io::{self, Read, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use hotcell_request::json::{self, Bounds};
use rmcp::model::{
    ClientJsonRpcMessage, ClientNotification, ClientRequest, ErrorCode, ErrorData, JsonRpcMessage,
    RequestId, ServerJsonRpcMessage,
};
use rmcp::service::{QuitReason, RoleServer, RxJsonRpcMessage, ServiceExt, TxJsonRpcMessage};
use rmcp::transport::Transport;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::server::{Server, not_understood};

/// Longest line.
const LINE_MOST: usize = Bounds::CALL.bytes;
/// Longest id of a request, in bytes: it is said again in the answer.
const ID_MOST: usize = 256;
/// Most requests that have no answer yet.
const UNDER_WAY_MOST: usize = 256;
/// What is read at once, and how much of that waits.
const CHUNK: usize = 64 << 10;
const CHUNKS_MOST: usize = 4;
/// Answers that wait for the client to read.
const ANSWERS_MOST: usize = 64;
/// How long what was asked for before the end of the input may still take. Clients end a server that has not
/// ended by itself after two seconds.
const GRACE: Duration = Duration::from_secs(1);
/// How long it takes at most to end everything.
const END_MOST: Duration = Duration::from_secs(10);
/// How long the last answers are offered to a client that does not read.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Ends a server from outside.
#[derive(Debug, Clone, Default)]
pub struct Stop(CancellationToken);

impl Stop {
    pub fn now(&self) {
        self.0.cancel();
    }
}

/// Serves whoever is at the other end of standard input and output, until they go or `stop` is set. Calls that
/// go on then are ended. The engine is not used any more when it returns.
pub fn serve(server: &Server, stop: &Stop) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    let served = runtime.block_on(async {
        let lines = Lines::of_this_process(stop.0.clone())?;
        let written = lines.written();
        // Whoever never began has nothing to wait for.
        if let Ok(running) = server.session().serve_with_ct(lines, stop.0.clone()).await
            && let Ok(QuitReason::JoinError(error)) = running.waiting().await
        {
            return Err(io::Error::other(error));
        }
        stop.now();
        server.idle(END_MOST).await;
        tokio::time::timeout(LAST_WORDS, written.notified()).await.ok();
        Ok(())
    });
    runtime.shutdown_timeout(END_MOST);
    served
}

/// The transport.
struct Lines {
    input: mpsc::Receiver<Vec<u8>>,
    /// What was read and is not a whole line yet, and how much of that has no end of line in it.
    buffer: Vec<u8>,
    looked_at: usize,
    /// The rest of a line that was too long is passed over.
    is_passing_over: bool,
    output: Option<mpsc::Sender<Vec<u8>>>,
    /// What is to be answered before anything else is read.
    answer: Option<Vec<u8>>,
    /// Requests that were read and have no answer yet.
    under_way: UnderWay,
    /// Whether a session was begun: what is no request before that is passed over.
    is_begun: bool,
    ended: Option<Instant>,
    stop: CancellationToken,
    written: Arc<tokio::sync::Notify>,
}

type UnderWay = Arc<Mutex<HashSet<RequestId>>>;

/// What a line is.
enum Line {
    Message(Box<ClientJsonRpcMessage>),
    Wrong(Option<Value>, ErrorData),
    Nothing,
}

impl Lines {
    fn of_this_process(stop: CancellationToken) -> io::Result<Lines> {
        let (chunks, input) = mpsc::channel(CHUNKS_MOST);
        // Threads of their own, which end with the process: a read that waits cannot be called back.
        thread::Builder::new().name("stdin".into()).spawn(move || read_all(&chunks))?;
        let (output, lines) = mpsc::channel(ANSWERS_MOST);
        let written = Arc::new(tokio::sync::Notify::new());
        let done = Arc::clone(&written);
        thread::Builder::new().name("stdout".into()).spawn(move || {
            write_all(lines);
            done.notify_one();
        })?;
        Ok(Lines {
            input,
            buffer: Vec::new(),
            looked_at: 0,
            is_passing_over: false,
            output: Some(output),
            answer: None,
            under_way: UnderWay::default(),
            is_begun: false,
            ended: None,
            stop,
            written,
        })
    }

    /// Told when everything has been written that ever will be.
    fn written(&self) -> Arc<tokio::sync::Notify> {
        Arc::clone(&self.written)
    }

    /// The next whole line that was read.
    fn line(&mut self) -> Option<Result<Vec<u8>, ErrorData>> {
        loop {
            let fresh = self.buffer.get(self.looked_at..).unwrap_or_default();
            let Some(end) = fresh.iter().position(|byte| *byte == b'\n') else {
                self.looked_at = self.buffer.len();
                if self.is_passing_over {
                    self.forget();
                } else if self.buffer.len() > LINE_MOST {
                    self.forget();
                    self.is_passing_over = true;
                    return Some(Err(too_long()));
                }
                return None;
            };
            let line: Vec<u8> = self.buffer.drain(..=self.looked_at + end).collect();
            self.looked_at = 0;
            if std::mem::take(&mut self.is_passing_over) {
                continue;
            }
            return Some(if line.len() > LINE_MOST { Err(too_long()) } else { Ok(line) });
        }
    }

    fn forget(&mut self) {
        // Also its memory: the next line is probably a short one.
        self.buffer = Vec::new();
        self.looked_at = 0;
    }

    /// A message for the session, or `None` after having put down what to answer.
    fn take(&mut self, line: Result<Vec<u8>, ErrorData>) -> Option<ClientJsonRpcMessage> {
        let read = line.map_or_else(|error| Line::Wrong(None, error), |line| read(&line));
        let (id, error) = match read {
            Line::Nothing => return None,
            Line::Wrong(id, error) => (id, error),
            Line::Message(message) => match self.admit(&message) {
                Ok(true) => return Some(*message),
                Ok(false) => return None,
                Err((id, error)) => (serde_json::to_value(id).ok(), error),
            },
        };
        let mut answer = json!({ "jsonrpc": "2.0", "error": error });
        if let (Some(id), Some(members)) = (id, answer.as_object_mut()) {
            members.insert("id".into(), id);
        }
        self.answer = Some(line_of(&answer));
        None
    }

    /// Whether a message goes on to the session.
    fn admit(&mut self, message: &ClientJsonRpcMessage) -> Result<bool, (RequestId, ErrorData)> {
        match message {
            JsonRpcMessage::Request(request) => {
                if let ClientRequest::CustomRequest(custom) = &request.request {
                    return Err((request.id.clone(), not_understood(&custom.method)));
                }
                self.is_begun |= !matches!(
                    request.request,
                    ClientRequest::PingRequest(_) | ClientRequest::DiscoverRequest(_)
                );
                let mut under_way = lock(&self.under_way);
                if under_way.len() >= UNDER_WAY_MOST {
                    let text =
                        format!("{UNDER_WAY_MOST} requests have no answer yet: wait for some");
                    return Err((
                        request.id.clone(),
                        ErrorData::new(ErrorCode(-32000), text, None),
                    ));
                }
                if !under_way.insert(request.id.clone()) {
                    let text = "a request of the same id has no answer yet";
                    return Err((request.id.clone(), ErrorData::invalid_request(text, None)));
                }
                Ok(true)
            }
            JsonRpcMessage::Notification(notification) => {
                if let ClientNotification::CancelledNotification(cancelled) =
                    &notification.notification
                    && let Some(id) = &cancelled.params.request_id
                {
                    // It gets no answer any more.
                    lock(&self.under_way).remove(id);
                }
                Ok(self.is_begun)
            }
            _ => Ok(self.is_begun),
        }
    }

    /// Puts what is to be answered where it is written. Can be given up at any point.
    async fn flush(&mut self) -> bool {
        if self.answer.is_none() {
            return true;
        }
        let Some(output) = &self.output else { return false };
        match output.reserve().await {
            Ok(place) => {
                if let Some(answer) = self.answer.take() {
                    place.send(answer);
                }
                true
            }
            Err(_) => false,
        }
    }

    /// The client is gone. What was asked for before may take a little longer; then everything is stopped.
    async fn wait_for_the_end(&mut self) {
        let ended = *self.ended.get_or_insert_with(Instant::now);
        while ended.elapsed() < GRACE && !lock(&self.under_way).is_empty() {
            sleep(Duration::from_millis(10)).await;
        }
        self.stop().await;
    }

    /// Never comes back: the session ends by being stopped, which also ends what it carries out. An input that
    /// is only over would have it wait for that first.
    async fn stop(&self) {
        self.stop.cancel();
        std::future::pending().await
    }
}

impl Transport<RoleServer> for Lines {
    type Error = io::Error;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = Result<(), io::Error>> + Send + 'static {
        let (output, under_way) = (self.output.clone(), Arc::clone(&self.under_way));
        async move {
            let gone = || io::Error::from(io::ErrorKind::BrokenPipe);
            let answered = answered(&message);
            let line = line_of(&message);
            output.ok_or_else(gone)?.send(line).await.map_err(|_| gone())?;
            if let Some(id) = answered {
                lock(&under_way).remove(&id);
            }
            Ok(())
        }
    }

    /// Can be given up at any point, and is: whenever there is something to send.
    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        loop {
            if !self.flush().await {
                self.stop().await;
            }
            if let Some(line) = self.line() {
                match self.take(line) {
                    Some(message) => return Some(message),
                    None => continue,
                }
            }
            if self.ended.is_some() {
                self.wait_for_the_end().await;
            }
            let output = self.output.clone()?;
            tokio::select! {
                chunk = self.input.recv() => match chunk {
                    Some(chunk) => self.buffer.extend(chunk),
                    None => self.ended = Some(Instant::now()),
                },
                // Nobody reads what is answered.
                () = output.closed() => self.ended = Some(Instant::now()),
            }
        }
    }

    async fn close(&mut self) -> Result<(), io::Error> {
        self.output = None;
        Ok(())
    }
}

fn lock(under_way: &UnderWay) -> MutexGuard<'_, HashSet<RequestId>> {
    under_way.lock().unwrap_or_else(PoisonError::into_inner)
}

fn answered(message: &ServerJsonRpcMessage) -> Option<RequestId> {
    match message {
        JsonRpcMessage::Response(response) => Some(response.id.clone()),
        JsonRpcMessage::Error(error) => error.id.clone(),
        _ => None,
    }
}

fn line_of(message: &impl serde::Serialize) -> Vec<u8> {
    let mut line = serde_json::to_vec(message).unwrap_or_default();
    line.push(b'\n');
    line
}

fn too_long() -> ErrorData {
    ErrorData::invalid_request(format!("the message has more than {LINE_MOST} bytes"), None)
}

/// Reads a line, strictly: what two readers could take for two things is refused.
fn read(line: &[u8]) -> Line {
    let line = line.trim_ascii();
    if line.is_empty() {
        return Line::Nothing;
    }
    let value = match json::parse(line, &Bounds::CALL) {
        Ok(value) => value,
        Err(fault) => return Line::Wrong(None, ErrorData::parse_error(fault.to_string(), None)),
    };
    let wrong = |id: Option<&Value>, text: &str| {
        Line::Wrong(id.cloned(), ErrorData::invalid_request(text.to_owned(), None))
    };
    let Some(members) = value.as_object() else {
        return wrong(None, "a message is one object: there are no batches");
    };
    let id = members.get("id");
    if !id.is_none_or(is_id) {
        return wrong(None, "the id is neither a whole number nor a short text");
    }
    if members.get("jsonrpc").and_then(Value::as_str) != Some("2.0") {
        return wrong(id, "`jsonrpc` is not \"2.0\"");
    }
    let id = id.cloned();
    let method = members.get("method").and_then(Value::as_str).map(str::to_owned);
    match (serde_json::from_value(value), method) {
        (Ok(message), _) => Line::Message(Box::new(message)),
        // Nobody waits for an answer.
        (Err(_), _) if id.is_none() => Line::Nothing,
        (Err(_), Some(method)) => Line::Wrong(id, not_understood(&method)),
        (Err(_), None) => wrong(id.as_ref(), "this is neither a request nor a response"),
    }
}

fn is_id(id: &Value) -> bool {
    match id {
        Value::Number(number) => number.is_i64(),
        Value::String(text) => text.len() <= ID_MOST,
        _ => false,
    }
}

fn read_all(chunks: &mpsc::Sender<Vec<u8>>) {
    let mut input = io::stdin().lock();
    let mut chunk = vec![0; CHUNK];
    loop {
        match input.read(&mut chunk) {
            Ok(0) => return,
            Ok(length) => {
                let some = chunk.get(..length).unwrap_or_default().to_vec();
                if chunks.blocking_send(some).is_err() {
                    return;
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}

/// Whole lines, so that nothing comes between.
fn write_all(mut lines: mpsc::Receiver<Vec<u8>>) {
    let mut output = io::stdout().lock();
    while let Some(line) = lines.blocking_recv() {
        if output.write_all(&line).and_then(|()| output.flush()).is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(line: &str) -> (Option<Value>, i32) {
        match read(line.as_bytes()) {
            Line::Wrong(id, error) => (id, error.code.0),
            Line::Message(message) => panic!("{line} is {message:?}"),
            Line::Nothing => panic!("{line} is nothing"),
        }
    }

    #[test]
    fn what_is_no_message_is_answered_with_what_is_wrong() {
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        let long_id =
            format!("{{\"jsonrpc\":\"2.0\",\"id\":\"{}\",\"method\":\"ping\"}}", "x".repeat(300));
        for (line, id, code) in [
            ("x", None, -32700),
            ("{", None, -32700),
            ("{\"a\":1,\"a\":2}", None, -32700),
            (deep.as_str(), None, -32700),
            ("[]", None, -32600),
            ("[{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}]", None, -32600),
            ("1", None, -32600),
            ("{}", None, -32600),
            ("{\"id\":1,\"method\":\"ping\"}", Some(json!(1)), -32600),
            ("{\"jsonrpc\":\"1.0\",\"id\":1,\"method\":\"ping\"}", Some(json!(1)), -32600),
            ("{\"jsonrpc\":\"2.0\",\"id\":null,\"method\":\"ping\"}", None, -32600),
            ("{\"jsonrpc\":\"2.0\",\"id\":1.5,\"method\":\"ping\"}", None, -32600),
            ("{\"jsonrpc\":\"2.0\",\"id\":{},\"method\":\"ping\"}", None, -32600),
            (long_id.as_str(), None, -32600),
            ("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":7}", Some(json!(1)), -32600),
            ("{\"jsonrpc\":\"2.0\",\"id\":1}", Some(json!(1)), -32600),
        ] {
            assert_eq!(wrong(line), (id, code), "{:.80}", line);
        }
    }

    #[test]
    fn messages_are_read_and_what_nobody_waits_for_is_passed_over() {
        for line in [
            "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}",
            "  {\"jsonrpc\":\"2.0\",\"id\":\"a\",\"method\":\"no/such\",\"params\":{}}\r\n",
            "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}",
            "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}",
        ] {
            assert!(matches!(read(line.as_bytes()), Line::Message(_)), "{line}");
        }
        for line in ["", " \r\n", "{\"jsonrpc\":\"2.0\",\"method\":7}"] {
            assert!(matches!(read(line.as_bytes()), Line::Nothing), "{line}");
        }
    }
}
