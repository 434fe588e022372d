//! As much D-Bus as it takes to call one method and wait for its reply.
//!
//! The crates for it bring an async runtime or the C library; this is one call. Blocking, with a
//! deadline for the whole exchange and a maximum for everything that is read.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use hotcell_types::hex;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

/// Largest message that is read. Replies are some hundred bytes.
const MESSAGE_MOST: usize = 64 << 10;
/// Most messages that are read while waiting for the reply: a bus sends a few signals of its own.
const MESSAGES_MOST: usize = 64;
/// Longest line of the handshake.
const LINE_MOST: usize = 512;

const METHOD_CALL: u8 = 1;
const METHOD_RETURN: u8 = 2;
const ERROR: u8 = 3;

const FIELD_PATH: u8 = 1;
const FIELD_INTERFACE: u8 = 2;
const FIELD_MEMBER: u8 = 3;
const FIELD_ERROR_NAME: u8 = 4;
const FIELD_REPLY_SERIAL: u8 = 5;
const FIELD_DESTINATION: u8 = 6;
const FIELD_SIGNATURE: u8 = 8;

#[derive(Debug, thiserror::Error)]
pub(super) enum DbusError {
    #[error("the bus cannot be reached: {0}")]
    Connect(io::Error),
    #[error("the bus went away or did not answer in time: {0}")]
    Broken(io::Error),
    #[error("the bus does not accept this user: `{0}`")]
    Refused(String),
    #[error("the answer is not D-Bus")]
    Malformed,
    #[error("`{name}`: {text}")]
    Reply { name: String, text: String },
}

/// One method to call.
#[derive(Debug)]
pub(super) struct Call<'a> {
    pub(super) destination: &'a str,
    pub(super) path: &'a str,
    pub(super) interface: &'a str,
    pub(super) member: &'a str,
    pub(super) signature: &'a str,
    pub(super) body: Body,
}

/// Says hello to the bus at `socket`, calls, and waits for the reply to that call.
pub(super) fn call(socket: &Path, call: &Call<'_>, deadline: Instant) -> Result<(), DbusError> {
    let stream = connect(socket).map_err(DbusError::Connect)?;
    let mut link = Link { stream, deadline };
    link.authenticate(rustix::process::geteuid().as_raw())?;
    let hello = Call {
        destination: "org.freedesktop.DBus",
        path: "/org/freedesktop/DBus",
        interface: "org.freedesktop.DBus",
        member: "Hello",
        signature: "",
        body: Body::default(),
    };
    link.send(&encode(&hello, 1))?;
    link.send(&encode(call, 2))?;
    link.reply_to(2)
}

/// Without waiting: a bus whose queue is full counts as one that cannot be reached.
fn connect(path: &Path) -> io::Result<UnixStream> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    let stream = UnixStream::from(socket);
    stream.set_nonblocking(false)?;
    Ok(stream)
}

struct Link {
    stream: UnixStream,
    deadline: Instant,
}

impl Link {
    fn authenticate(&mut self, uid: u32) -> Result<(), DbusError> {
        let id = hex::text(uid.to_string().as_bytes());
        self.send(format!("\0AUTH EXTERNAL {id}\r\n").as_bytes())?;
        let line = self.line()?;
        if !line.starts_with("OK ") {
            return Err(DbusError::Refused(line));
        }
        self.send(b"BEGIN\r\n")
    }

    fn reply_to(&mut self, serial: u32) -> Result<(), DbusError> {
        for _ in 0..MESSAGES_MOST {
            let message = self.message()?;
            match message.kind {
                // An error to anything that was sent, the greeting included, is the end.
                ERROR => return Err(message.into_error()),
                METHOD_RETURN if message.reply_to == Some(serial) => return Ok(()),
                _ => {}
            }
        }
        Err(DbusError::Malformed)
    }

    fn message(&mut self) -> Result<Message, DbusError> {
        let mut fixed = [0; FIXED_HEADER];
        self.fill(&mut fixed)?;
        let sizes = Sizes::of(&fixed).ok_or(DbusError::Malformed)?;
        let mut rest = vec![0; sizes.rest];
        self.fill(&mut rest)?;
        Message::parse(&fixed, &rest, sizes).ok_or(DbusError::Malformed)
    }

    fn send(&mut self, bytes: &[u8]) -> Result<(), DbusError> {
        let left = self.left()?;
        self.stream.set_write_timeout(Some(left)).map_err(DbusError::Broken)?;
        self.stream.write_all(bytes).map_err(DbusError::Broken)
    }

    /// One read at a time, so that a peer that trickles cannot stretch the deadline.
    fn fill(&mut self, mut buffer: &mut [u8]) -> Result<(), DbusError> {
        while !buffer.is_empty() {
            let left = self.left()?;
            self.stream.set_read_timeout(Some(left)).map_err(DbusError::Broken)?;
            match self.stream.read(buffer) {
                Ok(0) => return Err(DbusError::Broken(io::ErrorKind::UnexpectedEof.into())),
                Ok(n) => buffer = buffer.split_at_mut_checked(n).map(|b| b.1).unwrap_or_default(),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(DbusError::Broken(e)),
            }
        }
        Ok(())
    }

    fn line(&mut self) -> Result<String, DbusError> {
        let mut line = Vec::new();
        while line.len() < LINE_MOST {
            let mut byte = [0];
            self.fill(&mut byte)?;
            line.extend_from_slice(&byte);
            if line.ends_with(b"\r\n") {
                return Ok(String::from_utf8_lossy(line.trim_ascii()).into_owned());
            }
        }
        Err(DbusError::Malformed)
    }

    fn left(&self) -> Result<Duration, DbusError> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(DbusError::Broken(io::ErrorKind::TimedOut.into()));
        }
        Ok(left)
    }
}

/// Values in the wire format, always little-endian; the first byte of a message says so.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Body(Vec<u8>);

impl Body {
    fn align(&mut self, to: usize) {
        self.0.resize(self.0.len().next_multiple_of(to), 0);
    }

    pub(super) fn u32(&mut self, value: u32) {
        self.align(4);
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    pub(super) fn bool(&mut self, value: bool) {
        self.u32(value.into());
    }

    pub(super) fn string(&mut self, value: &str) {
        // Every string here is a constant or a unit name: far below 4 GiB and without NUL.
        self.u32(u32::try_from(value.len()).unwrap_or(u32::MAX));
        self.0.extend_from_slice(value.as_bytes());
        self.0.push(0);
    }

    fn signature(&mut self, value: &str) {
        self.0.push(u8::try_from(value.len()).unwrap_or(u8::MAX));
        self.0.extend_from_slice(value.as_bytes());
        self.0.push(0);
    }

    /// An array whose elements are aligned to `element`. The padding before the first element is
    /// there even when the array is empty, and does not count as its length.
    pub(super) fn array(&mut self, element: usize, fill: impl FnOnce(&mut Body)) {
        self.u32(0);
        let length_ends = self.0.len();
        self.align(element);
        let start = self.0.len();
        fill(self);
        let length = u32::try_from(self.0.len() - start).unwrap_or(u32::MAX).to_le_bytes();
        if let Some(place) = self.0.get_mut(length_ends - length.len()..length_ends) {
            place.copy_from_slice(&length);
        }
    }

    /// One `(sv)`.
    pub(super) fn property(&mut self, key: &str, signature: &str, value: impl FnOnce(&mut Body)) {
        self.align(8);
        self.string(key);
        self.signature(signature);
        value(self);
    }
}

fn encode(call: &Call<'_>, serial: u32) -> Vec<u8> {
    let mut message = Body(vec![b'l', METHOD_CALL, 0, 1]);
    message.u32(u32::try_from(call.body.0.len()).unwrap_or(u32::MAX));
    message.u32(serial);
    message.array(8, |fields| {
        let mut field = |code: u8, signature: &str, value: &str| {
            fields.align(8);
            fields.0.push(code);
            fields.signature(signature);
            match signature {
                "g" => fields.signature(value),
                _ => fields.string(value),
            }
        };
        field(FIELD_PATH, "o", call.path);
        field(FIELD_INTERFACE, "s", call.interface);
        field(FIELD_MEMBER, "s", call.member);
        field(FIELD_DESTINATION, "s", call.destination);
        if !call.signature.is_empty() {
            field(FIELD_SIGNATURE, "g", call.signature);
        }
    });
    message.align(8);
    message.0.extend_from_slice(&call.body.0);
    message.0
}

/// Endianness, type, flags, version, length of the body, serial, length of the header fields.
const FIXED_HEADER: usize = 16;

#[derive(Debug, Clone, Copy)]
struct Sizes {
    /// Header fields without the padding behind them.
    fields: usize,
    body_starts: usize,
    /// Everything after the fixed header.
    rest: usize,
}

impl Sizes {
    fn of(fixed: &[u8; FIXED_HEADER]) -> Option<Sizes> {
        let big_endian = is_big_endian(*fixed.first()?)?;
        let at = |offset| Cursor { bytes: fixed, at: offset, big_endian }.u32();
        let body = usize::try_from(at(4)?).ok()?;
        let fields = usize::try_from(at(12)?).ok()?;
        let body_starts = fields.checked_next_multiple_of(8)?;
        let rest = body_starts.checked_add(body).filter(|&rest| rest <= MESSAGE_MOST)?;
        Some(Sizes { fields, body_starts, rest })
    }
}

fn is_big_endian(mark: u8) -> Option<bool> {
    match mark {
        b'l' => Some(false),
        b'B' => Some(true),
        _ => None,
    }
}

/// The parts of a message that matter to a caller.
#[derive(Debug, Default, PartialEq, Eq)]
struct Message {
    kind: u8,
    reply_to: Option<u32>,
    error_name: Option<String>,
    /// The first value of the body, if it is a string.
    text: Option<String>,
}

impl Message {
    fn parse(fixed: &[u8; FIXED_HEADER], rest: &[u8], sizes: Sizes) -> Option<Message> {
        let [mark, kind, ..] = *fixed;
        let big_endian = is_big_endian(mark)?;
        let mut message = Message { kind, ..Message::default() };
        let mut signature = String::new();
        let mut fields = Cursor { bytes: rest.get(..sizes.fields)?, at: 0, big_endian };
        while !fields.is_at_end() {
            // The fixed header is two times eight bytes, so alignment counts from here as well.
            fields.align(8);
            let code = fields.byte()?;
            match (code, fields.variant()?) {
                (FIELD_REPLY_SERIAL, Value::Number(n)) => message.reply_to = Some(n),
                (FIELD_ERROR_NAME, Value::Text(name)) => message.error_name = Some(name),
                (FIELD_SIGNATURE, Value::Text(types)) => signature = types,
                _ => {}
            }
        }
        if signature.starts_with('s') {
            let body = rest.get(sizes.body_starts..)?;
            message.text = Some(Cursor { bytes: body, at: 0, big_endian }.string()?);
        }
        Some(message)
    }

    fn into_error(self) -> DbusError {
        DbusError::Reply {
            name: self.error_name.unwrap_or_default(),
            text: self.text.unwrap_or_else(|| "no reason given".into()),
        }
    }
}

enum Value {
    Number(u32),
    Text(String),
}

struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
    big_endian: bool,
}

impl Cursor<'_> {
    fn is_at_end(&self) -> bool {
        self.at >= self.bytes.len()
    }

    fn align(&mut self, to: usize) {
        self.at = self.at.next_multiple_of(to);
    }

    fn take(&mut self, n: usize) -> Option<&[u8]> {
        let end = self.at.checked_add(n)?;
        let taken = self.bytes.get(self.at..end)?;
        self.at = end;
        Some(taken)
    }

    fn byte(&mut self) -> Option<u8> {
        self.take(1)?.first().copied()
    }

    fn u32(&mut self) -> Option<u32> {
        self.align(4);
        let big_endian = self.big_endian;
        let bytes = *self.take(4)?.first_chunk()?;
        Some(if big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) })
    }

    fn string(&mut self) -> Option<String> {
        let length = usize::try_from(self.u32()?).ok()?;
        self.terminated(length)
    }

    fn signature(&mut self) -> Option<String> {
        let length = self.byte()?;
        self.terminated(length.into())
    }

    fn terminated(&mut self, length: usize) -> Option<String> {
        let text = String::from_utf8_lossy(self.take(length)?).into_owned();
        (self.byte()? == 0).then_some(text)
    }

    /// Header fields have only these types.
    fn variant(&mut self) -> Option<Value> {
        match self.signature()?.as_str() {
            "u" => self.u32().map(Value::Number),
            "s" | "o" => self.string().map(Value::Text),
            "g" => self.signature().map(Value::Text),
            _ => None,
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::os::unix::net::UnixListener;
    use std::thread;

    use proptest::prelude::*;

    use super::*;

    fn sample() -> Call<'static> {
        let mut body = Body::default();
        body.string("a.scope");
        body.array(8, |b| b.property("Delegate", "b", |b| b.bool(true)));
        Call {
            destination: "org.example.D",
            path: "/org/example",
            interface: "org.example.I",
            member: "Do",
            signature: "sa(sv)",
            body,
        }
    }

    /// A message as a peer would send it, in either byte order.
    pub(in super::super) fn reply(kind: u8, to: u32, error: Option<(&str, &str)>) -> Vec<u8> {
        let mut body = Body::default();
        if let Some((_, text)) = error {
            body.string(text);
        }
        let mut message = Body(vec![b'l', kind, 0, 1]);
        message.u32(body.0.len() as u32);
        message.u32(99);
        message.array(8, |fields| {
            fields.0.push(FIELD_REPLY_SERIAL);
            fields.signature("u");
            fields.u32(to);
            if let Some((name, _)) = error {
                fields.align(8);
                fields.0.push(FIELD_ERROR_NAME);
                fields.signature("s");
                fields.string(name);
                fields.align(8);
                fields.0.push(FIELD_SIGNATURE);
                fields.signature("g");
                fields.signature("s");
            }
        });
        message.align(8);
        message.0.extend_from_slice(&body.0);
        message.0
    }

    fn parse(bytes: &[u8]) -> Option<Message> {
        let (fixed, rest) = bytes.split_first_chunk()?;
        let sizes = Sizes::of(fixed)?;
        Message::parse(fixed, rest.get(..sizes.rest)?, sizes)
    }

    #[test]
    fn a_call_is_marshalled_byte_for_byte() {
        let bytes = encode(&sample(), 7);
        let body = b"\x07\0\0\0a.scope\0\x14\0\0\0\x08\0\0\0Delegate\0\x01b\0\x01\0\0\0";
        // The string ends at 12, the array's length at 16, where its first element may begin.
        assert_eq!(&bytes[bytes.len() - body.len()..], body.as_slice(), "{bytes:?}");
        assert_eq!(&bytes[..4], b"l\x01\0\x01");
        assert_eq!(u32::from_le_bytes(bytes[4..8].try_into().unwrap()), body.len() as u32);
        assert_eq!(u32::from_le_bytes(bytes[8..12].try_into().unwrap()), 7);
        assert_eq!(&bytes[16..36], b"\x01\x01o\0\x0c\0\0\0/org/example");
        assert_eq!((bytes.len() - body.len()) % 8, 0);
    }

    #[test]
    fn an_empty_array_of_structs_still_has_its_padding() {
        let mut body = Body::default();
        body.array(8, |_| {});
        assert_eq!(body.0, [0; 8]);
    }

    #[test]
    fn replies_and_errors_are_told_apart() {
        let ok = parse(&reply(METHOD_RETURN, 2, None)).unwrap();
        assert_eq!((ok.kind, ok.reply_to), (METHOD_RETURN, Some(2)));
        let bad = parse(&reply(ERROR, 2, Some(("org.x.Denied", "no")))).unwrap();
        assert_eq!(bad.error_name.as_deref(), Some("org.x.Denied"));
        assert_eq!(bad.text.as_deref(), Some("no"));
    }

    #[test]
    fn a_big_endian_reply_is_understood() {
        let bytes = b"B\x02\0\x01\0\0\0\0\0\0\0\x05\0\0\0\x08\x05\x01u\0\0\0\0\x02";
        assert_eq!(parse(bytes).unwrap().reply_to, Some(2));
    }

    #[test]
    fn lengths_that_lie_are_refused() {
        for bytes in [
            b"l\x02\0\x01\xff\xff\xff\xff\0\0\0\0\0\0\0\0".as_slice(),
            b"l\x02\0\x01\0\0\0\0\0\0\0\0\xff\xff\xff\xff",
            b"x\x02\0\x01\0\0\0\0\0\0\0\0\0\0\0\0",
            b"l\x02\0\x01\0\0\0\0\0\0\0\0\x08\0\0\0\x06\x01s\0\xff\0\0\0",
            b"l\x02\0\x01\0\0\0\0\0\0\0\0\x08\0\0\0\x06\x01x\0\x01\0\0\0",
        ] {
            assert_eq!(parse(bytes), None, "{bytes:?}");
        }
    }

    proptest! {
        #[test]
        fn nothing_panics(bytes: Vec<u8>) {
            parse(&bytes);
            let mut framed = b"l\x03\0\x01\0\0\0\0\0\0\0\0".to_vec();
            framed.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
            framed.extend_from_slice(&bytes);
            framed.resize(framed.len().next_multiple_of(8), 0);
            parse(&framed);
        }
    }

    /// A bus that takes one connection, answers the handshake with `line`, and sends `answers`.
    pub(in super::super) fn fake_bus(
        socket: &Path,
        line: &'static [u8],
        answers: Vec<u8>,
    ) -> thread::JoinHandle<Vec<u8>> {
        let listener = UnixListener::bind(socket).unwrap();
        thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
            let mut seen = Vec::new();
            let mut byte = [0];
            while !seen.ends_with(b"\r\n") && stream.read(&mut byte).unwrap() == 1 {
                seen.push(byte[0]);
            }
            stream.write_all(line).unwrap();
            stream.write_all(&answers).ok();
            let mut piece = [0; 4096];
            while let Ok(n @ 1..) = stream.read(&mut piece) {
                seen.extend_from_slice(&piece[..n]);
            }
            seen
        })
    }

    fn call_fake(line: &'static [u8], answers: Vec<u8>) -> (Result<(), DbusError>, Vec<u8>) {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("bus");
        let bus = fake_bus(&socket, line, answers);
        let result = call(&socket, &sample(), Instant::now() + Duration::from_millis(200));
        (result, bus.join().unwrap())
    }

    #[test]
    fn the_reply_to_the_call_ends_the_wait() {
        let mut answers = reply(METHOD_RETURN, 1, None);
        answers.extend(reply(4, 0, None));
        answers.extend(reply(METHOD_RETURN, 2, None));
        let (result, seen) = call_fake(b"OK 0123\r\n", answers);
        result.unwrap();
        let uid = rustix::process::geteuid().as_raw().to_string();
        let hex: String = uid.bytes().map(|b| format!("{b:02x}")).collect();
        assert!(seen.starts_with(format!("\0AUTH EXTERNAL {hex}\r\nBEGIN\r\nl").as_bytes()));
        assert!(seen.ends_with(&encode(&sample(), 2)));
    }

    #[test]
    fn refusals_silence_and_floods_end_with_an_error() {
        let (result, _) = call_fake(b"REJECTED EXTERNAL\r\n", Vec::new());
        assert!(matches!(result, Err(DbusError::Refused(line)) if line == "REJECTED EXTERNAL"));
        let (result, _) = call_fake(b"OK 1\r\n", reply(ERROR, 2, Some(("a.B", "denied"))));
        assert!(matches!(result, Err(DbusError::Reply { text, .. }) if text == "denied"));
        let (result, _) = call_fake(b"OK 1\r\n", Vec::new());
        assert!(matches!(result, Err(DbusError::Broken(_))));
        let (result, _) = call_fake(b"OK 1\r\n", reply(4, 0, None).repeat(MESSAGES_MOST + 1));
        assert!(matches!(result, Err(DbusError::Malformed)));
        let (result, _) = call_fake(&[b'x'; LINE_MOST + 1], Vec::new());
        assert!(matches!(result, Err(DbusError::Malformed)));
        let nowhere = call(Path::new("/nonexistent/bus"), &sample(), Instant::now());
        assert!(matches!(nowhere, Err(DbusError::Connect(_))));
    }
}
