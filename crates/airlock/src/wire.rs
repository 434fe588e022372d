//! What is said to the airlock and what it says: one packet each on a socket that keeps packets apart
//! (`SOCK_SEQPACKET`), with the descriptors that belong to it. Numbers are little-endian, texts are UTF-8
//! with their length before them, everything has a maximum, and nothing may be left over.
//!
//! A conversation about one request or tunnel: the airlock says [`FromAirlock::Ask`] with a ticket of its own
//! making, hotcell says [`ToAirlock::Answer`] with that ticket. If what was connected cannot be reached after
//! all, the airlock says [`FromAirlock::Unreached`], and hotcell answers the same ticket once more. Each ticket
//! that was asked ends with exactly one [`FromAirlock::Ended`], whatever the answer was and also without one.

use std::fmt;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::ops::RangeInclusive;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

/// Longest packet in either direction.
pub const MOST_PACKET: usize = 64 * 1024;
/// Most descriptors with a packet: the listeners of a run.
pub const MOST_DESCRIPTORS: usize = 2;
/// Longest host as a client spelled it, method and path without its query, in bytes.
pub const MOST_HOST: usize = 255;
pub const MOST_METHOD: usize = 32;
pub const MOST_PATH: usize = 8 * 1024;
/// Longest text of a refusal.
pub const MOST_BODY: usize = 8 * 1024;
/// Most certificates of a chain, and the size of each and of its key, in bytes.
pub const MOST_CERTIFICATES: usize = 4;
pub const MOST_CERTIFICATE: usize = 8 * 1024;
/// How many bytes of one ticket go either way at most before [`FromAirlock::Moved`] is said again: so many are unknown
/// of each when the airlock is lost.
pub const MOST_UNTOLD: u64 = 1 << 20;
/// Bytes of a credential: 32 digits of a hexadecimal number, as a client sends them.
pub const CREDENTIAL: usize = 32;

/// What hotcell says.
#[derive(Clone, PartialEq, Eq)]
pub enum ToAirlock {
    /// A run has a passage from now on. With one or two listeners.
    Open {
        run: u32,
        credential: [u8; CREDENTIAL],
        budget: Budget,
    },
    /// All of its connections end, and nothing more is said about it but that they did.
    Close {
        run: u32,
    },
    Answer {
        ticket: u64,
        answer: Answer,
    },
}

/// What becomes of what was asked.
#[derive(Clone, PartialEq, Eq)]
pub enum Answer {
    /// With a socket that is connected or about to be. What is asked goes there as it is: a request in
    /// origin form, or the bytes of a tunnel, which begin with the greeting of TLS unless it is raw.
    Connected { raw: bool },
    /// With a socket on which requests are spoken in plain HTTP/1.1, in origin form, whatever lies behind.
    /// Not for a tunnel.
    Relay,
    /// What an earlier answer for the same host and port gave is used again; only if `Wanted::kept` was said.
    Again,
    /// The airlock is the TLS server of this tunnel, and asks for each request in it. Certificates and key
    /// (PKCS #8) are in DER, the chain begins with the host's own.
    Intercept { chain: Vec<Vec<u8>>, key: Vec<u8> },
    /// The text is shown where the protocol has a place for one. `status` is an error of HTTP.
    Refused { status: u16, body: String },
}

/// What a run may have. Durations are in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// Connections at once. What comes beyond waits in the queue of the listener.
    pub connections: u32,
    /// Requests and tunnels in all.
    pub requests: u64,
    /// Bytes in all towards the network, and back.
    pub up: u64,
    pub down: u64,
    /// Longest head of a request or response in bytes, and most fields in it.
    pub head: u32,
    pub fields: u32,
    /// How long a head, the greeting of TLS or a handshake may take.
    pub head_time: u32,
    /// How long an answer of hotcell's and connecting may take, each.
    pub connect_time: u32,
    /// How long a connection may lie still.
    pub idle_time: u32,
}

/// What the airlock says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FromAirlock {
    /// It is there.
    Ready,
    Ask {
        run: u32,
        ticket: u64,
        connection: u64,
        wanted: Wanted,
    },
    /// What was connected for this ticket cannot be reached: the number of the error, 0 for too late.
    Unreached {
        ticket: u64,
        error: u32,
    },
    /// A request or tunnel is over: the bytes that went towards the network, and back.
    Ended {
        run: u32,
        ticket: u64,
        connection: u64,
        up: u64,
        down: u64,
        how: End,
    },
    /// What came from a run was refused without asking.
    Malformed {
        run: u32,
        connection: u64,
        why: Fault,
    },
    /// How much went either way so far, of something that goes on.
    Moved {
        ticket: u64,
        up: u64,
        down: u64,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    pub protocol: Protocol,
    /// As the client spelled it, except that an IPv6 address always has its brackets. Of letters, digits and
    /// `-._`, or brackets around digits, `:` and `.`; not canonical and not checked beyond that.
    pub host: String,
    pub port: u16,
    /// Of a request; neither of a tunnel. The path is without its query, begins with `/` or is `*`, and is
    /// otherwise as the client spelled it.
    pub method: Option<String>,
    pub path: Option<String>,
    /// It came out of a tunnel that the airlock is the TLS server of.
    pub intercepted: bool,
    /// There is a connection from an earlier answer on this connection, for the same spelling of the host, the
    /// same protocol and port: [`Answer::Again`] uses it, any other answer closes it.
    pub kept: bool,
}

/// What lies behind a host and port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Protocol {
    Http,
    /// A tunnel, or a request for a relay (`https://` to the proxy itself), or one that was intercepted.
    Https,
    /// Never asked by the airlock, which cannot know: that a tunnel is raw is in the answer.
    Tcp,
}

/// How what was asked came to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    Done,
    /// As hotcell answered.
    Refused,
    /// The client went away.
    Left,
    /// The other side could not be reached, or went away too early.
    Broken,
    /// No answer of hotcell's, or one that does not fit.
    Unanswered,
    /// Nothing went on for too long.
    Idle,
    /// A body of the client's, or what it said in a tunnel that is intercepted, is not as it has to be.
    Malformed,
    /// A response is not as it has to be.
    BadResponse,
    /// What came through a tunnel is not a greeting of TLS, or is one for another host.
    NotTls,
    OtherName,
    OverUp,
    OverDown,
    /// hotcell closed the run.
    Closed,
}

/// Why something was refused without asking.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// A head that can be understood in two ways, or in none.
    Head,
    /// Too long a head, or too many fields in it.
    Long,
    /// A head that does not come to its end.
    Slow,
    /// A form of the target that a proxy does not have, or a host that is none.
    Target,
    /// `Host` is missing, there twice, or not what the target says.
    Host,
    /// The end of the body is not clear.
    Framing,
    Upgrade,
    /// Something that has no place here: another method of SOCKS, or an expectation.
    Unsupported,
    /// No credential, or a wrong one.
    Anonymous,
    Credential,
    OverRequests,
}

/// For whoever reads what was refused.
impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Fault::Head => "the head can be understood in two ways, or in none",
            Fault::Long => "the head is too long",
            Fault::Slow => "the head did not come to its end in time",
            Fault::Target => "its target is none that a proxy has",
            Fault::Host => "its `Host` is missing, there twice, or another than its target's",
            Fault::Framing => "where its body ends is not clear",
            Fault::Upgrade => "it asks for another protocol",
            Fault::Unsupported => "it asks for something that is not done here",
            Fault::Anonymous => "it came without the credential of its run",
            Fault::Credential => "it came with a credential that is not its run's",
            Fault::OverRequests => "the run has made all the requests that it may make",
        })
    }
}

/// What is not as it has to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed;

impl From<Malformed> for io::Error {
    fn from(_: Malformed) -> io::Error {
        io::Error::new(io::ErrorKind::InvalidData, "a packet is not as it has to be")
    }
}

/// A message as it arrived.
#[derive(Debug)]
pub struct Received<T> {
    pub message: T,
    pub descriptors: Vec<OwnedFd>,
}

/// Both kinds of messages.
pub trait Message: Sized {
    /// Nothing if it would be too long.
    fn packet(&self) -> Option<Vec<u8>>;
    fn read(packet: &[u8]) -> Result<Self, Malformed>;
    /// How many descriptors go with it.
    fn descriptors(&self) -> RangeInclusive<usize>;
}

/// Says one message. A socket without room is `WouldBlock`, if it does not block.
pub fn send<T: Message>(
    socket: BorrowedFd<'_>,
    message: &T,
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let packet = message.packet().ok_or(Malformed)?;
    if !message.descriptors().contains(&descriptors.len()) {
        return Err(Malformed.into());
    }
    let flags = SendFlags::NOSIGNAL;
    // Without descriptors it is a call that could not carry any: the airlock is allowed no other.
    let sent = match descriptors {
        [] => rustix::io::retry_on_intr(|| rustix::net::send(socket, &packet, flags))?,
        _ => with_descriptors(socket, &packet, descriptors, flags)?,
    };
    if sent == packet.len() { Ok(()) } else { Err(Malformed.into()) }
}

fn with_descriptors(
    socket: BorrowedFd<'_>,
    packet: &[u8],
    descriptors: &[BorrowedFd<'_>],
    flags: SendFlags,
) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(Malformed.into());
    }
    let pieces = [IoSlice::new(packet)];
    Ok(rustix::io::retry_on_intr(|| sendmsg(socket, &pieces, &mut control, flags))?)
}

/// The next message, or nothing at the end. `buffer` has room for [`MOST_PACKET`] and is there to be used again.
pub fn receive<T: Message>(
    socket: BorrowedFd<'_>,
    buffer: &mut [u8],
) -> io::Result<Option<Received<T>>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let got = rustix::io::retry_on_intr(|| {
        recvmsg(socket, &mut [IoSliceMut::new(buffer)], &mut control, RecvFlags::CMSG_CLOEXEC)
    })?;
    let mut descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            descriptors.extend(rights);
        }
    }
    if got.bytes == 0 {
        return Ok(None);
    }
    if got.flags.contains(ReturnFlags::TRUNC) {
        return Err(Malformed.into());
    }
    let packet = buffer.get(..got.bytes).ok_or(Malformed)?;
    Ok(Some(Received { message: T::read(packet)?, descriptors }))
}

impl<T: Message> Received<T> {
    /// Whether all of its descriptors came along. They do not where no more may be open.
    pub fn is_complete(&self) -> bool {
        self.message.descriptors().contains(&self.descriptors.len())
    }
}

impl Message for ToAirlock {
    fn packet(&self) -> Option<Vec<u8>> {
        let mut writer = Writer::default();
        match self {
            ToAirlock::Open { run, credential, budget } => {
                writer.byte(1);
                writer.small(*run);
                writer.bytes.extend(credential);
                budget.write(&mut writer);
            }
            ToAirlock::Close { run } => {
                writer.byte(2);
                writer.small(*run);
            }
            ToAirlock::Answer { ticket, answer } => {
                writer.byte(3);
                writer.number(*ticket);
                answer.write(&mut writer);
            }
        }
        writer.finish()
    }

    fn read(packet: &[u8]) -> Result<ToAirlock, Malformed> {
        let mut reader = Reader { rest: packet };
        let message = match reader.byte()? {
            1 => ToAirlock::Open {
                run: reader.small()?,
                credential: reader.array()?,
                budget: Budget::read(&mut reader)?,
            },
            2 => ToAirlock::Close { run: reader.small()? },
            3 => {
                let ticket = reader.number()?;
                ToAirlock::Answer { ticket, answer: Answer::read(&mut reader)? }
            }
            _ => return Err(Malformed),
        };
        reader.end(message)
    }

    fn descriptors(&self) -> RangeInclusive<usize> {
        match self {
            ToAirlock::Open { .. } => 1..=MOST_DESCRIPTORS,
            ToAirlock::Answer { answer: Answer::Connected { .. } | Answer::Relay, .. } => 1..=1,
            ToAirlock::Close { .. } | ToAirlock::Answer { .. } => 0..=0,
        }
    }
}

/// Neither a credential nor a key is shown.
impl std::fmt::Debug for ToAirlock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ToAirlock::Open { run, budget, .. } => f
                .debug_struct("Open")
                .field("run", run)
                .field("budget", budget)
                .finish_non_exhaustive(),
            ToAirlock::Close { run } => f.debug_struct("Close").field("run", run).finish(),
            ToAirlock::Answer { ticket, answer } => {
                f.debug_struct("Answer").field("ticket", ticket).field("answer", answer).finish()
            }
        }
    }
}

impl std::fmt::Debug for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Answer::Connected { raw } => f.debug_struct("Connected").field("raw", raw).finish(),
            Answer::Relay => f.write_str("Relay"),
            Answer::Again => f.write_str("Again"),
            Answer::Intercept { .. } => f.debug_struct("Intercept").finish_non_exhaustive(),
            Answer::Refused { status, body } => {
                f.debug_struct("Refused").field("status", status).field("body", body).finish()
            }
        }
    }
}

impl Answer {
    fn write(&self, writer: &mut Writer) {
        match self {
            Answer::Connected { raw } => {
                writer.byte(1);
                writer.flag(*raw);
            }
            Answer::Relay => writer.byte(2),
            Answer::Again => writer.byte(3),
            Answer::Intercept { chain, key } => {
                writer.byte(4);
                writer.count(chain.len(), MOST_CERTIFICATES);
                chain.iter().for_each(|certificate| writer.blob(certificate, MOST_CERTIFICATE));
                writer.blob(key, MOST_CERTIFICATE);
            }
            Answer::Refused { status, body } => {
                writer.byte(5);
                writer.short(*status);
                writer.blob(body.as_bytes(), MOST_BODY);
                // Anything else would not be a refusal.
                writer.fits &= (400..=599).contains(status);
            }
        }
    }

    fn read(reader: &mut Reader<'_>) -> Result<Answer, Malformed> {
        Ok(match reader.byte()? {
            1 => Answer::Connected { raw: reader.flag()? },
            2 => Answer::Relay,
            3 => Answer::Again,
            4 => {
                let count = reader.count(MOST_CERTIFICATES)?;
                let chain = (0..count).map(|_| reader.blob(MOST_CERTIFICATE));
                Answer::Intercept {
                    chain: chain.collect::<Result<_, _>>()?,
                    key: reader.blob(MOST_CERTIFICATE)?,
                }
            }
            5 => {
                let status = reader.short()?;
                if !(400..=599).contains(&status) {
                    return Err(Malformed);
                }
                Answer::Refused { status, body: reader.text(MOST_BODY)? }
            }
            _ => return Err(Malformed),
        })
    }
}

impl Budget {
    fn write(&self, writer: &mut Writer) {
        writer.small(self.connections);
        writer.number(self.requests);
        writer.number(self.up);
        writer.number(self.down);
        writer.small(self.head);
        writer.small(self.fields);
        writer.small(self.head_time);
        writer.small(self.connect_time);
        writer.small(self.idle_time);
    }

    fn read(reader: &mut Reader<'_>) -> Result<Budget, Malformed> {
        Ok(Budget {
            connections: reader.small()?,
            requests: reader.number()?,
            up: reader.number()?,
            down: reader.number()?,
            head: reader.small()?,
            fields: reader.small()?,
            head_time: reader.small()?,
            connect_time: reader.small()?,
            idle_time: reader.small()?,
        })
    }
}

impl Message for FromAirlock {
    fn packet(&self) -> Option<Vec<u8>> {
        let mut writer = Writer::default();
        match self {
            FromAirlock::Ready => writer.byte(1),
            FromAirlock::Ask { run, ticket, connection, wanted } => {
                writer.byte(2);
                writer.small(*run);
                writer.number(*ticket);
                writer.number(*connection);
                wanted.write(&mut writer);
            }
            FromAirlock::Unreached { ticket, error } => {
                writer.byte(3);
                writer.number(*ticket);
                writer.small(*error);
            }
            FromAirlock::Ended { run, ticket, connection, up, down, how } => {
                writer.byte(4);
                writer.small(*run);
                for number in [ticket, connection, up, down] {
                    writer.number(*number);
                }
                writer.code(&END, how);
            }
            FromAirlock::Malformed { run, connection, why } => {
                writer.byte(5);
                writer.small(*run);
                writer.number(*connection);
                writer.code(&FAULT, why);
            }
            FromAirlock::Moved { ticket, up, down } => {
                writer.byte(6);
                for number in [ticket, up, down] {
                    writer.number(*number);
                }
            }
        }
        writer.finish()
    }

    fn read(packet: &[u8]) -> Result<FromAirlock, Malformed> {
        let mut reader = Reader { rest: packet };
        let message = match reader.byte()? {
            1 => FromAirlock::Ready,
            2 => FromAirlock::Ask {
                run: reader.small()?,
                ticket: reader.number()?,
                connection: reader.number()?,
                wanted: Wanted::read(&mut reader)?,
            },
            3 => FromAirlock::Unreached { ticket: reader.number()?, error: reader.small()? },
            4 => FromAirlock::Ended {
                run: reader.small()?,
                ticket: reader.number()?,
                connection: reader.number()?,
                up: reader.number()?,
                down: reader.number()?,
                how: reader.code(&END)?,
            },
            5 => FromAirlock::Malformed {
                run: reader.small()?,
                connection: reader.number()?,
                why: reader.code(&FAULT)?,
            },
            6 => FromAirlock::Moved {
                ticket: reader.number()?,
                up: reader.number()?,
                down: reader.number()?,
            },
            _ => return Err(Malformed),
        };
        reader.end(message)
    }

    /// None ever comes out of there.
    fn descriptors(&self) -> RangeInclusive<usize> {
        0..=0
    }
}

impl Wanted {
    fn write(&self, writer: &mut Writer) {
        writer.code(&PROTOCOL, &self.protocol);
        writer.blob(self.host.as_bytes(), MOST_HOST);
        writer.short(self.port);
        writer.option(self.method.as_deref(), MOST_METHOD);
        writer.option(self.path.as_deref(), MOST_PATH);
        writer.flag(self.intercepted);
        writer.flag(self.kept);
    }

    fn read(reader: &mut Reader<'_>) -> Result<Wanted, Malformed> {
        Ok(Wanted {
            protocol: reader.code(&PROTOCOL)?,
            host: reader.text(MOST_HOST)?,
            port: reader.short()?,
            method: reader.option(MOST_METHOD)?,
            path: reader.option(MOST_PATH)?,
            intercepted: reader.flag()?,
            kept: reader.flag()?,
        })
    }
}

/// What has a number is told by its place.
const PROTOCOL: [Protocol; 3] = [Protocol::Http, Protocol::Https, Protocol::Tcp];
const END: [End; 13] = [
    End::Done,
    End::Refused,
    End::Left,
    End::Broken,
    End::Unanswered,
    End::Idle,
    End::Malformed,
    End::BadResponse,
    End::NotTls,
    End::OtherName,
    End::OverUp,
    End::OverDown,
    End::Closed,
];
const FAULT: [Fault; 11] = [
    Fault::Head,
    Fault::Long,
    Fault::Slow,
    Fault::Target,
    Fault::Host,
    Fault::Framing,
    Fault::Upgrade,
    Fault::Unsupported,
    Fault::Anonymous,
    Fault::Credential,
    Fault::OverRequests,
];

struct Writer {
    bytes: Vec<u8>,
    /// Nothing so far was more than the other side reads.
    fits: bool,
}

impl Default for Writer {
    fn default() -> Writer {
        Writer { bytes: Vec::with_capacity(128), fits: true }
    }
}

impl Writer {
    fn byte(&mut self, value: u8) {
        self.bytes.push(value);
    }

    fn flag(&mut self, value: bool) {
        self.byte(u8::from(value));
    }

    fn short(&mut self, value: u16) {
        self.bytes.extend(value.to_le_bytes());
    }

    fn small(&mut self, value: u32) {
        self.bytes.extend(value.to_le_bytes());
    }

    fn number(&mut self, value: u64) {
        self.bytes.extend(value.to_le_bytes());
    }

    fn count(&mut self, value: usize, most: usize) {
        self.fits &= value <= most;
        self.short(u16::try_from(value).unwrap_or(u16::MAX));
    }

    fn blob(&mut self, blob: &[u8], most: usize) {
        self.count(blob.len(), most);
        self.bytes.extend(blob);
    }

    fn option(&mut self, text: Option<&str>, most: usize) {
        self.flag(text.is_some());
        if let Some(text) = text {
            self.blob(text.as_bytes(), most);
        }
    }

    fn code<T: PartialEq>(&mut self, of: &[T], value: &T) {
        let place = of.iter().position(|one| one == value);
        self.byte(place.and_then(|place| u8::try_from(place).ok()).unwrap_or(u8::MAX));
    }

    fn finish(self) -> Option<Vec<u8>> {
        (self.fits && self.bytes.len() <= MOST_PACKET).then_some(self.bytes)
    }
}

struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(Malformed)?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        self.take(N)?.try_into().map_err(|_| Malformed)
    }

    fn byte(&mut self) -> Result<u8, Malformed> {
        self.array().map(u8::from_le_bytes)
    }

    fn flag(&mut self) -> Result<bool, Malformed> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Malformed),
        }
    }

    fn short(&mut self) -> Result<u16, Malformed> {
        self.array().map(u16::from_le_bytes)
    }

    fn small(&mut self) -> Result<u32, Malformed> {
        self.array().map(u32::from_le_bytes)
    }

    fn number(&mut self) -> Result<u64, Malformed> {
        self.array().map(u64::from_le_bytes)
    }

    fn count(&mut self, most: usize) -> Result<usize, Malformed> {
        let count = usize::from(self.short()?);
        if count <= most { Ok(count) } else { Err(Malformed) }
    }

    fn blob(&mut self, most: usize) -> Result<Vec<u8>, Malformed> {
        let count = self.count(most)?;
        Ok(self.take(count)?.to_vec())
    }

    fn text(&mut self, most: usize) -> Result<String, Malformed> {
        let count = self.count(most)?;
        let text = str::from_utf8(self.take(count)?).map_err(|_| Malformed)?;
        Ok(text.to_owned())
    }

    fn option(&mut self, most: usize) -> Result<Option<String>, Malformed> {
        if self.flag()? { self.text(most).map(Some) } else { Ok(None) }
    }

    fn code<T: Copy>(&mut self, of: &[T]) -> Result<T, Malformed> {
        of.get(usize::from(self.byte()?)).copied().ok_or(Malformed)
    }

    fn end<T>(&self, value: T) -> Result<T, Malformed> {
        if self.rest.is_empty() { Ok(value) } else { Err(Malformed) }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use proptest::prelude::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::*;

    fn budgets() -> impl Strategy<Value = Budget> {
        (any::<[u32; 6]>(), any::<[u64; 3]>()).prop_map(|(small, number)| Budget {
            connections: small[0],
            requests: number[0],
            up: number[1],
            down: number[2],
            head: small[1],
            fields: small[2],
            head_time: small[3],
            connect_time: small[4],
            idle_time: small[5],
        })
    }

    fn answers() -> impl Strategy<Value = Answer> {
        let bytes = || prop::collection::vec(any::<u8>(), 0..40);
        prop_oneof![
            any::<bool>().prop_map(|raw| Answer::Connected { raw }),
            Just(Answer::Relay),
            Just(Answer::Again),
            (prop::collection::vec(bytes(), 0..=MOST_CERTIFICATES), bytes())
                .prop_map(|(chain, key)| Answer::Intercept { chain, key }),
            (400_u16..600, ".{0,60}").prop_map(|(status, body)| Answer::Refused { status, body }),
        ]
    }

    fn towards() -> impl Strategy<Value = ToAirlock> {
        prop_oneof![
            (any::<u32>(), any::<[u8; CREDENTIAL]>(), budgets())
                .prop_map(|(run, credential, budget)| ToAirlock::Open { run, credential, budget }),
            any::<u32>().prop_map(|run| ToAirlock::Close { run }),
            (any::<u64>(), answers())
                .prop_map(|(ticket, answer)| ToAirlock::Answer { ticket, answer }),
        ]
    }

    fn wanted() -> impl Strategy<Value = Wanted> {
        let option = || prop::option::of(".{0,8}");
        let protocol = prop::sample::select(PROTOCOL.to_vec());
        (protocol, ".{0,60}", any::<u16>(), option(), option(), any::<[bool; 2]>()).prop_map(
            |(protocol, host, port, method, path, [intercepted, kept])| Wanted {
                protocol,
                host,
                port,
                method,
                path,
                intercepted,
                kept,
            },
        )
    }

    fn from() -> impl Strategy<Value = FromAirlock> {
        prop_oneof![
            Just(FromAirlock::Ready),
            (any::<u32>(), any::<[u64; 2]>(), wanted()).prop_map(
                |(run, [ticket, connection], wanted)| {
                    FromAirlock::Ask { run, ticket, connection, wanted }
                }
            ),
            (any::<u64>(), any::<u32>())
                .prop_map(|(ticket, error)| FromAirlock::Unreached { ticket, error }),
            (any::<u32>(), any::<[u64; 4]>(), prop::sample::select(END.to_vec())).prop_map(
                |(run, [ticket, connection, up, down], how)| {
                    FromAirlock::Ended { run, ticket, connection, up, down, how }
                }
            ),
            (any::<u32>(), any::<u64>(), prop::sample::select(FAULT.to_vec()))
                .prop_map(|(run, connection, why)| FromAirlock::Malformed { run, connection, why }),
            any::<[u64; 3]>().prop_map(|[ticket, up, down]| FromAirlock::Moved {
                ticket,
                up,
                down
            }),
        ]
    }

    fn pair() -> (OwnedFd, OwnedFd) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap()
    }

    /// Through a real socket, with as many descriptors as belong to it.
    fn through<T: Message>(message: &T) -> Received<T> {
        let (ours, theirs) = pair();
        let some = [ours.as_fd(), theirs.as_fd()];
        send(ours.as_fd(), message, &some[..*message.descriptors().end()]).unwrap();
        receive(theirs.as_fd(), &mut vec![0; MOST_PACKET]).unwrap().unwrap()
    }

    proptest! {
        #[test]
        fn what_is_said_is_heard(towards in towards(), from in from()) {
            let received = through(&towards);
            prop_assert!(received.is_complete());
            prop_assert_eq!(received.message, towards);
            let received = through(&from);
            prop_assert!(received.is_complete());
            prop_assert_eq!(received.message, from);
        }

        #[test]
        fn a_packet_that_is_cut_or_goes_on_is_malformed(
            towards in towards(),
            from in from(),
            at in any::<prop::sample::Index>(),
        ) {
            let packet = towards.packet().unwrap();
            prop_assert!(ToAirlock::read(&packet[..at.index(packet.len())]).is_err());
            prop_assert!(ToAirlock::read(&[packet.as_slice(), &[0]].concat()).is_err());
            let packet = from.packet().unwrap();
            prop_assert!(FromAirlock::read(&packet[..at.index(packet.len())]).is_err());
            prop_assert!(FromAirlock::read(&[packet.as_slice(), &[0]].concat()).is_err());
        }

        #[test]
        fn any_bytes_are_read_or_malformed(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(message) = ToAirlock::read(&bytes) {
                prop_assert_eq!(message.packet().unwrap(), bytes.clone());
            }
            if let Ok(message) = FromAirlock::read(&bytes) {
                prop_assert_eq!(message.packet().unwrap(), bytes);
            }
        }
    }

    #[test]
    fn nothing_longer_than_its_maximum_is_said() {
        let refusal = |length| ToAirlock::Answer {
            ticket: 1,
            answer: Answer::Refused { status: 403, body: "x".repeat(length) },
        };
        assert!(refusal(MOST_BODY).packet().is_some());
        assert_eq!(refusal(MOST_BODY + 1).packet(), None);
        let many = vec![vec![0; MOST_CERTIFICATE]; MOST_CERTIFICATES];
        let answer = Answer::Intercept { chain: many, key: vec![0; MOST_CERTIFICATE] };
        assert!(ToAirlock::Answer { ticket: 1, answer }.packet().is_some());
        let path = Some("x".repeat(MOST_PATH + 1));
        let wanted = Wanted {
            protocol: Protocol::Http,
            host: "a.test".into(),
            port: 80,
            method: None,
            path,
            intercepted: false,
            kept: false,
        };
        assert_eq!(FromAirlock::Ask { run: 1, ticket: 1, connection: 1, wanted }.packet(), None);
    }

    #[test]
    fn an_answer_that_is_no_refusal_refuses_nothing() {
        for status in [0, 200, 302, 399, 600] {
            let answer = Answer::Refused { status, body: String::new() };
            assert_eq!(ToAirlock::Answer { ticket: 1, answer }.packet(), None, "{status}");
        }
    }

    #[test]
    fn descriptors_that_do_not_belong_to_a_message_are_not_sent_and_are_noticed() {
        let (ours, theirs) = pair();
        let close = ToAirlock::Close { run: 1 };
        assert!(send(ours.as_fd(), &close, &[theirs.as_fd()]).is_err());
        let relay = ToAirlock::Answer { ticket: 1, answer: Answer::Relay };
        assert!(send(ours.as_fd(), &relay, &[]).is_err());
        rustix::net::send(&ours, &relay.packet().unwrap(), SendFlags::empty()).unwrap();
        let received: Received<ToAirlock> =
            receive(theirs.as_fd(), &mut vec![0; MOST_PACKET]).unwrap().unwrap();
        assert!(!received.is_complete());
    }

    #[test]
    fn the_end_and_what_is_no_packet_are_told_apart() {
        let (ours, theirs) = pair();
        let mut buffer = vec![0; MOST_PACKET];
        let hear = |buffer: &mut Vec<u8>| receive::<FromAirlock>(theirs.as_fd(), buffer);
        assert_eq!(hear(&mut buffer).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        rustix::net::send(&ours, &[77], SendFlags::empty()).unwrap();
        assert_eq!(hear(&mut buffer).unwrap_err().kind(), io::ErrorKind::InvalidData);
        rustix::net::send(&ours, &vec![1; MOST_PACKET + 1], SendFlags::empty()).unwrap();
        assert_eq!(hear(&mut buffer).unwrap_err().kind(), io::ErrorKind::InvalidData);
        drop(ours);
        assert!(hear(&mut buffer).unwrap().is_none());
    }

    #[test]
    fn neither_credentials_nor_keys_are_shown() {
        let budget = Budget {
            connections: 0,
            requests: 0,
            up: 0,
            down: 0,
            head: 0,
            fields: 0,
            head_time: 0,
            connect_time: 0,
            idle_time: 0,
        };
        let shown =
            format!("{:?}", ToAirlock::Open { run: 1, credential: [77; CREDENTIAL], budget });
        assert!(!shown.contains("77"), "{shown}");
        let answer = Answer::Intercept { chain: vec![vec![77]], key: vec![77] };
        assert!(!format!("{answer:?}").contains("77"));
    }
}
