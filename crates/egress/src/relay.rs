//! Requests of a run that hotcell sends over a TLS of its own: here secrets go in, for the one host that was
//! judged, and are hidden again in what comes back. Nothing of a body is kept or looked at but for that.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use data_encoding::BASE64;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustls::{ClientConnection, StreamOwned};

use crate::Host;
use crate::body::{Body, LAST_CHUNK, chunk};
use crate::connect::until;
use crate::fill::{Fill, Mask, Seek, Site, Unfilled, masked};
use crate::head::{self, BadHead, Field, Framing, Request, Response, field, is_hop};
use crate::judge::{Refusal, Refused};
use crate::tls::Timed;

/// Most bytes that wait on either side.
const MOST_WAITING: usize = 64 * 1024;
/// Longest head of a request once its secrets are in it.
const MOST_FILLED: usize = 256 * 1024;
const PIECE: usize = 16 * 1024;

/// What would let a body come coded, in parts, or in letters of another kind, where no secret could be found in it.
const UNSEEN: [&str; 5] =
    ["accept-encoding", "accept-charset", "range", "if-range", "request-range"];

/// Whether texts of this type have ASCII as ASCII.
fn is_legible(content_type: &[u8]) -> bool {
    let lower = content_type.to_ascii_lowercase();
    let text = String::from_utf8_lossy(&lower);
    if text.contains("byteranges") {
        return false;
    }
    let charsets = text.split("charset=").skip(1).map(|charset| {
        let charset = charset.trim_start_matches(['"', '\'', ' ']);
        charset.split(['"', '\'', ';', ',', ' ']).next().unwrap_or_default()
    });
    let known = ["utf-8", "utf8", "us-ascii", "ascii"];
    charsets.into_iter().all(|charset| {
        known.contains(&charset)
            || charset.starts_with("iso-8859-")
            || charset.starts_with("windows-125")
    })
}

/// Asked with a method and a path.
type MaySend = Box<dyn Fn(&str, &str) -> bool + Send>;

/// Where requests go, and with what.
pub(crate) struct Relay {
    pub(crate) host: Host,
    pub(crate) port: u16,
    pub(crate) fill: Option<Arc<dyn Fill>>,
    /// How long nothing may happen.
    pub(crate) idle: Duration,
    /// Can be read once the run's passage is closed.
    pub(crate) closed: Arc<OwnedFd>,
    /// Is told of secrets that do not go along.
    pub(crate) tell: Box<dyn Fn(Refusal) + Send>,
    /// Whether a request with this method and path was judged, and not sent yet.
    pub(crate) may_send: MaySend,
}

/// Why a relay ends, besides that everything was said.
#[derive(Debug)]
enum Broken {
    Io(io::Error),
    /// The run's side; answered with 400.
    Request(BadHead),
    /// A secret that has no place here; answered with 403.
    Unfilled(Unfilled),
    /// The other side; answered with 502 if nothing has been answered yet.
    Response(BadHead),
}

impl Relay {
    /// Until one of both sides ends it, or nothing happens.
    pub(crate) fn run(&self, run: UnixStream, upstream: StreamOwned<ClientConnection, Timed>) {
        let (mut tls, Timed { tcp, .. }) = upstream.into_parts();
        tls.set_buffer_limit(Some(MOST_WAITING));
        let mut talk = Talk::new(self, run, tcp, tls);
        if let Err(broken) = talk.go() {
            talk.refuse(broken);
        }
    }

    fn masker(&self) -> Option<Box<dyn Mask>> {
        self.fill.as_ref()?.masker(self.site())
    }

    fn site(&self) -> Site<'_> {
        Site { host: &self.host, port: self.port, tls: true }
    }

    /// The request as it goes out.
    fn outward(&self, request: &Request, framing: Framing) -> Result<Request, Broken> {
        if let Some(fill) = &self.fill {
            let target = fill.refuse_in("its address", request.target.as_bytes());
            target.map_err(Broken::Unfilled)?;
        }
        let is_masked = self.masker().is_some();
        let mut fields = vec![Field::new("Host", authority(&self.host, self.port))];
        for one in &request.fields {
            let is_ours = is_hop(one, &request.fields) || one.is("host");
            // What is coded, or comes in parts, could not be looked into.
            let hides = UNSEEN.iter().any(|name| one.is(name));
            let is_dropped = is_ours || (hides && is_masked);
            if !is_dropped {
                fields.push(Field { name: one.name.clone(), value: self.filled(one)? });
            }
        }
        if is_masked {
            fields.push(Field::new("Accept-Encoding", "identity"));
        }
        match framing {
            Framing::Chunked => fields.push(Field::new("Transfer-Encoding", "chunked")),
            Framing::Length(0) if field(&request.fields, "content-length").is_none() => {}
            Framing::Length(length) => {
                fields.push(Field::new("Content-Length", length.to_string()));
            }
            Framing::Close => {}
        }
        Ok(Request { method: request.method.clone(), target: request.target.clone(), fields })
    }

    fn filled(&self, one: &Field) -> Result<Vec<u8>, Broken> {
        let Some(fill) = &self.fill else { return Ok(one.value.clone()) };
        let filled = fill_field(&**fill, self.site(), &one.name, &one.value);
        filled.map_err(Broken::Unfilled)
    }

    /// The response as the run gets it, and how its body is framed then.
    fn inward(&self, response: &Response, framing: Framing, to: &str) -> (Response, bool) {
        let is_masked = self.masker().is_some();
        let mut fields = Vec::new();
        for one in response.fields.iter().filter(|one| !is_hop(one, &response.fields)) {
            let name = masked(self.masker(), one.name.as_bytes());
            if name == one.name.as_bytes() {
                let value = masked(self.masker(), &one.value);
                fields.push(Field { name: one.name.clone(), value });
            }
        }
        let is_bodiless =
            to == "HEAD" || response.status < 200 || matches!(response.status, 204 | 304);
        let is_chunked = !is_bodiless
            && match framing {
                Framing::Length(0) => false,
                Framing::Length(_) => is_masked,
                Framing::Chunked | Framing::Close => true,
            };
        if is_chunked {
            fields.push(Field::new("Transfer-Encoding", "chunked"));
        } else if let Framing::Length(length) = framing
            && !is_bodiless
        {
            fields.push(Field::new("Content-Length", length.to_string()));
        } else if to == "HEAD"
            && !is_masked
            && let Some(length) = field(&response.fields, "content-length")
        {
            fields.push(Field::new("Content-Length", length));
        }
        (Response { status: response.status, is_old: false, fields }, is_chunked)
    }
}

/// A value with its secrets, also where it is the user and password of `Basic`.
pub(crate) fn fill_field(
    fill: &dyn Fill,
    to: Site<'_>,
    name: &str,
    value: &[u8],
) -> Result<Vec<u8>, Unfilled> {
    fill.refuse_in("the name of a header", name.as_bytes())?;
    let basic = value
        .split_at_checked(6)
        .filter(|(scheme, _)| scheme.eq_ignore_ascii_case(b"basic "))
        .filter(|_| name.eq_ignore_ascii_case("authorization"))
        .and_then(|(_, coded)| BASE64.decode(coded.trim_ascii()).ok());
    let filled = match basic {
        Some(plain) => {
            let filled = fill.fill(to, &plain)?;
            if filled == plain {
                value.to_vec()
            } else {
                format!("Basic {}", BASE64.encode(&filled)).into_bytes()
            }
        }
        None => fill.fill(to, value)?,
    };
    // A secret with a line's end in it would be more fields than one.
    match filled.iter().any(|b| b.is_ascii_control() && *b != b'\t') {
        true => {
            Err(Unfilled(format!("the secret in `{name}` has characters that no header can have")))
        }
        false => Ok(filled),
    }
}

/// As `Host` says it over TLS.
pub(crate) fn authority(host: &Host, port: u16) -> String {
    if port == 443 { host.to_string() } else { format!("{host}:{port}") }
}

/// One request and its response.
struct Exchange {
    method: String,
    request: Body,
    is_chunked: bool,
    /// Looks for placeholders in the request's body, where there are secrets.
    seeker: Option<Box<dyn Seek>>,
    response: Option<Inward>,
}

struct Inward {
    body: Body,
    is_chunked: bool,
    mask: Option<Box<dyn Mask>>,
    /// Nothing comes after it.
    is_last: bool,
}

struct Talk<'a> {
    relay: &'a Relay,
    run: UnixStream,
    tcp: TcpStream,
    tls: ClientConnection,
    from_run: Vec<u8>,
    to_run: Vec<u8>,
    from_host: Vec<u8>,
    to_host: Vec<u8>,
    exchange: Option<Exchange>,
    run_ended: bool,
    host_ended: bool,
    /// And not as TLS ends.
    host_broke: bool,
    /// A response has begun.
    answered: bool,
    /// Everything is said; what is written yet is the rest.
    is_over: bool,
}

impl<'a> Talk<'a> {
    fn new(relay: &'a Relay, run: UnixStream, tcp: TcpStream, tls: ClientConnection) -> Talk<'a> {
        Talk {
            relay,
            run,
            tcp,
            tls,
            from_run: Vec::new(),
            to_run: Vec::new(),
            from_host: Vec::new(),
            to_host: Vec::new(),
            exchange: None,
            run_ended: false,
            host_ended: false,
            host_broke: false,
            answered: false,
            is_over: false,
        }
    }

    fn go(&mut self) -> Result<(), Broken> {
        loop {
            while self.advance()? {}
            self.hand_over().map_err(Broken::Io)?;
            if self.is_over && self.to_run.is_empty() {
                return Ok(());
            }
            if self.exchange.is_none()
                && self.to_run.is_empty()
                && (self.run_ended || self.host_ended)
            {
                return Ok(());
            }
            if !self.wait().map_err(Broken::Io)? {
                return Ok(());
            }
        }
    }

    /// Whether something was done with what is there.
    fn advance(&mut self) -> Result<bool, Broken> {
        if self.is_over {
            return Ok(false);
        }
        Ok(self.take_request()? | self.take_body()? | self.take_response()?)
    }

    fn take_request(&mut self) -> Result<bool, Broken> {
        if self.exchange.is_some() || !self.to_run.is_empty() {
            return Ok(false);
        }
        let Some(end) = head::end(&self.from_run).map_err(Broken::Request)? else {
            return Ok(false);
        };
        let head: Vec<u8> = self.from_run.drain(..end).collect();
        let request = Request::read(&head).map_err(Broken::Request)?;
        if !request.target.starts_with('/') && request.target != "*" {
            return Err(Broken::Request(BadHead("the target of a request")));
        }
        let path = request.target.split('?').next().unwrap_or_default();
        if !(self.relay.may_send)(&request.method, path) {
            return Err(Broken::Request(BadHead("a request that nobody asked for")));
        }
        let framing = request.framing().map_err(Broken::Request)?;
        self.answered = false;
        let filled = self.relay.outward(&request, framing)?.write();
        if filled.len() > MOST_FILLED {
            let why = "with its secrets the request is longer than it may be";
            return Err(Broken::Unfilled(Unfilled(why.into())));
        }
        self.to_host.extend(filled);
        self.exchange = Some(Exchange {
            method: request.method,
            request: Body::new(framing),
            is_chunked: framing == Framing::Chunked,
            seeker: self.relay.fill.as_ref().map(|fill| fill.seeker()),
            response: None,
        });
        Ok(true)
    }

    fn take_body(&mut self) -> Result<bool, Broken> {
        let Some(exchange) = &mut self.exchange else { return Ok(false) };
        if exchange.request.is_done() || self.to_host.len() >= MOST_WAITING {
            return Ok(false);
        }
        if self.from_run.is_empty() {
            return match self.run_ended {
                true => Err(Broken::Request(BadHead("its body ends too early"))),
                false => Ok(false),
            };
        }
        let mut plain = Vec::new();
        let used = exchange.request.push(&self.from_run, &mut plain).map_err(Broken::Request)?;
        self.from_run.drain(..used);
        if let Some(seeker) = &mut exchange.seeker {
            // What went before is no whole request, and ends with the connection.
            seeker.push(&plain).map_err(Broken::Unfilled)?;
        }
        if exchange.is_chunked {
            chunk(&plain, &mut self.to_host);
            if exchange.request.is_done() {
                self.to_host.extend(LAST_CHUNK);
            }
        } else {
            self.to_host.extend(plain);
        }
        Ok(used > 0)
    }

    fn take_response(&mut self) -> Result<bool, Broken> {
        if self.to_run.len() >= MOST_WAITING {
            return Ok(false);
        }
        let Some(exchange) = &mut self.exchange else {
            // Nobody asked for anything.
            return match self.from_host.is_empty() {
                true => Ok(false),
                false => Err(Broken::Response(BadHead("a response that nobody asked for"))),
            };
        };
        match &mut exchange.response {
            None => self.take_response_head(),
            Some(inward) => {
                let mut plain = Vec::new();
                let used =
                    inward.body.push(&self.from_host, &mut plain).map_err(Broken::Response)?;
                self.from_host.drain(..used);
                if self.host_ended && self.from_host.is_empty() && !inward.body.is_done() {
                    // An end that the other side did not sign could be somebody else's.
                    if self.host_broke {
                        return Err(Broken::Response(BadHead("it broke off")));
                    }
                    inward.body.close().map_err(Broken::Response)?;
                }
                let is_done = inward.body.is_done();
                let mut shown = Vec::new();
                match &mut inward.mask {
                    Some(mask) => {
                        mask.push(&plain, &mut shown);
                        if is_done {
                            mask.finish(&mut shown);
                        }
                    }
                    None => shown = plain,
                }
                if inward.is_chunked {
                    chunk(&shown, &mut self.to_run);
                    if is_done {
                        self.to_run.extend(LAST_CHUNK);
                    }
                } else {
                    self.to_run.extend(shown);
                }
                if is_done {
                    // An early response ends the request, of which nobody knows what is still under way.
                    self.is_over = inward.is_last || !exchange.request.is_done();
                    self.exchange = None;
                }
                Ok(used > 0 || is_done)
            }
        }
    }

    fn take_response_head(&mut self) -> Result<bool, Broken> {
        let Some(exchange) = &mut self.exchange else { return Ok(false) };
        let Some(end) = head::end(&self.from_host).map_err(Broken::Response)? else {
            return match self.host_ended {
                true => Err(Broken::Response(BadHead("it ends before it answers"))),
                false => Ok(false),
            };
        };
        let bytes: Vec<u8> = self.from_host.drain(..end).collect();
        let response = Response::read(&bytes).map_err(Broken::Response)?;
        match response.status {
            101 => return Err(Broken::Response(BadHead("it changes the protocol"))),
            100..200 => {
                let plain = Response { status: response.status, is_old: false, fields: Vec::new() };
                self.to_run.extend(plain.write());
                return Ok(true);
            }
            _ => {}
        }
        let framing = response.framing(&exchange.method).map_err(Broken::Response)?;
        let mask = self.relay.masker();
        let is_coded = head::words(&response.fields, "content-encoding")
            .any(|coding| !coding.eq_ignore_ascii_case(b"identity"));
        let is_seen = !is_coded
            && response.status != 206
            && field(&response.fields, "content-range").is_none()
            && field(&response.fields, "content-type").is_none_or(is_legible);
        if mask.is_some() && !is_seen {
            let why = "its body is coded or a part of one, so that no secret in it could be hidden";
            return Err(Broken::Response(BadHead(why)));
        }
        let closes = head::words(&response.fields, "connection")
            .any(|word| word.eq_ignore_ascii_case(b"close"));
        let is_last = response.is_old || closes || framing == Framing::Close;
        let (inward, is_chunked) = self.relay.inward(&response, framing, &exchange.method);
        self.to_run.extend(inward.write());
        exchange.response = Some(Inward { body: Body::new(framing), is_chunked, mask, is_last });
        self.answered = true;
        Ok(true)
    }

    /// Moves what is to go out as far as it goes now.
    fn hand_over(&mut self) -> io::Result<()> {
        loop {
            let taken = self.tls.writer().write(&self.to_host)?;
            self.to_host.drain(..taken);
            if self.tls.wants_write() {
                match self.tls.write_tls(&mut self.tcp) {
                    Ok(_) => continue,
                    Err(error) if is_later(&error) => break,
                    Err(error) => return Err(error),
                }
            }
            break;
        }
        while !self.to_run.is_empty() {
            match self.run.write(&self.to_run) {
                Ok(written) => drop(self.to_run.drain(..written)),
                Err(error) if is_later(&error) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Waits for either side, and takes what came. `false` if it is time to end.
    fn wait(&mut self) -> io::Result<bool> {
        let wants = |yes: bool, flag: PollFlags| if yes { flag } else { PollFlags::empty() };
        let run = wants(!self.run_ended && self.from_run.len() < MOST_WAITING, PollFlags::IN)
            | wants(!self.to_run.is_empty(), PollFlags::OUT);
        let has_room = self.from_host.len() < MOST_WAITING && self.to_run.len() < MOST_WAITING;
        let host = wants(!self.host_ended && has_room, PollFlags::IN)
            | wants(self.tls.wants_write(), PollFlags::OUT);
        let mut fds = vec![
            PollFd::from_borrowed_fd(self.relay.closed.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.run.as_fd(), run),
        ];
        // A side that has ended is always ready, and would make a loop of the wait.
        if !host.is_empty() {
            fds.push(PollFd::from_borrowed_fd(self.tcp.as_fd(), host));
        }
        match poll(&mut fds, Some(&until(Instant::now() + self.relay.idle))) {
            Ok(0) => return Ok(false),
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let mut seen = fds.iter().map(PollFd::revents);
        let closed = seen.next().unwrap_or(PollFlags::empty());
        let from_run = seen.next().unwrap_or(PollFlags::empty());
        let from_host = seen.next().unwrap_or(PollFlags::empty());
        if !closed.is_empty() {
            return Ok(false);
        }
        if run.contains(PollFlags::IN) && !from_run.difference(PollFlags::OUT).is_empty() {
            self.read_run()?;
        } else if from_run.intersects(PollFlags::ERR | PollFlags::HUP) {
            // Nobody is there to read anything.
            return Ok(false);
        }
        if host.contains(PollFlags::IN) && !from_host.difference(PollFlags::OUT).is_empty() {
            self.read_host()?;
        } else if from_host.intersects(PollFlags::ERR) {
            (self.host_ended, self.host_broke) = (true, true);
        }
        Ok(true)
    }

    fn read_run(&mut self) -> io::Result<()> {
        let mut piece = [0; PIECE];
        match self.run.read(&mut piece) {
            Ok(0) => self.run_ended = true,
            Ok(count) => self.from_run.extend(piece.get(..count).unwrap_or_default()),
            Err(error) if is_later(&error) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn read_host(&mut self) -> io::Result<()> {
        match self.tls.read_tls(&mut self.tcp) {
            Ok(_) => {}
            Err(error) if is_later(&error) => return Ok(()),
            Err(_) => {
                (self.host_ended, self.host_broke) = (true, true);
                return Ok(());
            }
        }
        let state = self.tls.process_new_packets().map_err(io::Error::other)?;
        let mut piece = vec![0; state.plaintext_bytes_to_read()];
        self.tls.reader().read_exact(&mut piece)?;
        self.from_host.extend(piece);
        match self.tls.reader().read(&mut [0]) {
            Ok(0) => self.host_ended = true,
            Ok(_) => return Err(io::ErrorKind::InvalidData.into()),
            Err(error) if is_later(&error) => {}
            Err(_) => (self.host_ended, self.host_broke) = (true, true),
        }
        Ok(())
    }

    /// Says why, if there is still a place for it.
    fn refuse(&mut self, broken: Broken) {
        let what = "the request was not relayed";
        let refusal = match broken {
            Broken::Io(error) => {
                let why = crate::tls::words(&error);
                Refusal::new(Refused::Unreachable, what, why, "try it again")
            }
            Broken::Request(bad) => {
                let fix = "send a request that can be read in one way only";
                Refusal::new(Refused::Malformed, what, bad.to_string(), fix)
            }
            Broken::Response(bad) => {
                let fix = "see what the server answers without hotcell";
                Refusal::new(Refused::Unreachable, what, bad.to_string(), fix)
            }
            Broken::Unfilled(unfilled) => {
                let fix = "bind the secret to this host, or use it where it belongs";
                Refusal::new(Refused::Secret, what, unfilled.0, fix)
            }
        };
        if refusal.kind == Refused::Secret {
            (self.relay.tell)(refusal.clone());
        }
        if self.answered || (self.exchange.is_none() && refusal.kind == Refused::Unreachable) {
            return;
        }
        self.to_run.extend(plain_response(&refusal));
        let deadline = Instant::now() + Duration::from_secs(5);
        while !self.to_run.is_empty() && Instant::now() < deadline {
            match self.run.write(&self.to_run) {
                Ok(written) => drop(self.to_run.drain(..written)),
                Err(error) if is_later(&error) => {
                    if crate::connect::wait(&self.run, PollFlags::OUT, deadline).is_err() {
                        return;
                    }
                }
                Err(_) => return,
            }
        }
    }
}

fn plain_response(refusal: &Refusal) -> Vec<u8> {
    let text = refusal.text();
    let fields = vec![
        Field::new("Content-Type", "text/plain; charset=utf-8"),
        Field::new("Content-Length", text.len().to_string()),
        Field::new("Connection", "close"),
    ];
    let mut bytes = Response { status: refusal.status(), is_old: false, fields }.write();
    bytes.extend(text.into_bytes());
    bytes
}

fn is_later(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}
