//! hotcell's own way out: one request at a time, each redirect decided anew, and everything with a maximum.

use std::fmt;
use std::io::{self, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use data_encoding::BASE64;
use hotcell_airlock::wire::Protocol;

use crate::body::Body;
use crate::decide::decide;
use crate::fill::{Fill, Site, Unfilled, masked};
use crate::head::{self, BadHead, Field, Request, Response, field, is_token};
use crate::judge::{Event, How, Judge, Refusal, Refused, Wanted, Way};
use crate::relay::fill_field;
use crate::resolve::Resolver;
use crate::tls::{Timed, Tls, reach, secure, words};
use crate::url::Url;

/// What is kept of a body if nobody says otherwise, and the most that anybody may say.
pub const KEPT: usize = 1 << 20;
pub const MOST_KEPT: usize = 16 << 20;
/// Redirects that are followed.
pub const MOST_REDIRECTS: usize = 5;
/// How long all of it may take together if nobody says otherwise.
pub const WITHIN: Duration = Duration::from_secs(30);
/// Longest body that is sent, and most headers.
const MOST_SENT: usize = 1 << 20;
const MOST_HEADERS: usize = 64;
/// Read beyond what is kept, so that no secret is cut in two before it is hidden.
const SLACK: usize = 256 * 1024;
/// Answers that are no answer yet.
const MOST_INTERIM: usize = 8;

const AGENT: &str = concat!("hotcell/", env!("CARGO_PKG_VERSION"));

/// Headers that the connection, and not its user, decides on.
const OURS: [&str; 15] = [
    "host",
    "connection",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "content-length",
    "upgrade",
    "expect",
    "via",
    "accept-encoding",
    "accept-charset",
    "range",
    "request-range",
    "if-range",
];
/// What may go along to another server than the one that it was meant for.
const HARMLESS: [&str; 4] = ["accept", "accept-language", "content-type", "user-agent"];

/// What is to be fetched.
#[derive(Debug, Clone)]
pub struct Fetch {
    pub url: String,
    pub method: String,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    /// Bytes of the body that are kept; the rest is not read.
    pub most: usize,
    /// For all of it.
    pub within: Duration,
}

impl Fetch {
    pub fn get(url: &str) -> Fetch {
        Fetch {
            url: url.to_owned(),
            method: "GET".into(),
            headers: Vec::new(),
            body: Vec::new(),
            most: KEPT,
            within: WITHIN,
        }
    }
}

/// What came back. All of it is masked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fetched {
    pub status: u16,
    /// Where it came from in the end.
    pub url: String,
    pub redirects: usize,
    pub headers: Vec<(String, String)>,
    pub content: Content,
    /// There was more.
    pub truncated: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    Text(String),
    /// What is not text, or not UTF-8, in Base64.
    Base64(String),
}

pub struct Client {
    resolver: Arc<dyn Resolver>,
    tls: Arc<Tls>,
    numbers: AtomicU64,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").finish_non_exhaustive()
    }
}

impl Client {
    pub fn new(resolver: Arc<dyn Resolver>, tls: Arc<Tls>) -> Client {
        Client { resolver, tls, numbers: AtomicU64::new(1) }
    }

    /// Fetches it, and waits for it. `party` is whoever asks, for its share of lookups. The secrets go along in
    /// headers, over TLS only; what has a placeholder in it and goes elsewhere is refused.
    pub fn fetch(
        &self,
        request: &Fetch,
        judge: &dyn Judge,
        fill: Option<&dyn Fill>,
        party: u64,
    ) -> Result<Fetched, Refusal> {
        let mut next = Next::of(request)?;
        let deadline = Instant::now() + request.within;
        for redirects in 0..=MOST_REDIRECTS {
            let number = self.numbers.fetch_add(1, Ordering::Relaxed);
            let hop = Hop { client: self, judge, fill, party, number, deadline };
            let answer = hop.go(&next, request.most.min(MOST_KEPT))?;
            let location = field(&answer.head.fields, "location");
            let Some(location) = location.filter(|_| is_redirect(answer.head.status)) else {
                return Ok(fetched(&next, redirects, answer));
            };
            let location = String::from_utf8_lossy(location).into_owned();
            next = next.follow(&location, answer.head.status)?;
        }
        Err(not_fetched(
            &next.url,
            Refused::Unreachable,
            format!("it redirects more than {MOST_REDIRECTS} times"),
            "fetch what it redirects to",
        ))
    }
}

/// One request on the way.
struct Next {
    url: Url,
    method: String,
    fields: Vec<Field>,
    body: Vec<u8>,
}

impl Next {
    fn of(request: &Fetch) -> Result<Next, Refusal> {
        let refused = |why: String, fix: &str| {
            Refusal::new(Refused::Malformed, "nothing is fetched", why, fix)
        };
        let url = Url::parse(&request.url).map_err(|bad| {
            refused(bad.to_string(), "give an absolute URL, such as `https://example.com/path`")
        })?;
        let is_known = is_token(&request.method) && request.method.len() <= 32;
        if !is_known || matches!(request.method.as_str(), "CONNECT" | "TRACE") {
            return Err(refused("its method is not one that is sent".into(), "use GET or POST"));
        }
        if request.body.len() > MOST_SENT || request.headers.len() > MOST_HEADERS {
            let why =
                format!("more than {MOST_SENT} bytes or {MOST_HEADERS} headers would be sent");
            return Err(refused(why, "send less"));
        }
        let mut fields = Vec::new();
        for (name, value) in &request.headers {
            let lower = name.to_ascii_lowercase();
            if OURS.contains(&lower.as_str()) || lower.starts_with("proxy-") {
                let why = format!("`{lower}` is for the connection, and not for its user to say");
                return Err(refused(why, "leave it out"));
            }
            if !is_token(name) || value.bytes().any(|b| b.is_ascii_control() && b != b'\t') {
                return Err(refused(
                    "a header has characters that no header can have".into(),
                    "leave them out",
                ));
            }
            fields.push(Field::new(name, value.trim()));
        }
        Ok(Next { url, method: request.method.clone(), fields, body: request.body.clone() })
    }

    fn follow(mut self, location: &str, status: u16) -> Result<Next, Refusal> {
        let from = self.url.clone();
        let refused = |why: String| {
            let fix = "fetch what it redirects to by itself, if it is meant";
            not_fetched(&from, Refused::Malformed, why, fix)
        };
        let to = from
            .join(location)
            .map_err(|bad| refused(format!("it redirects to what is not fetched: {bad}")))?;
        if from.is_secure && !to.is_secure {
            return Err(refused("it redirects from `https` to `http`".into()));
        }
        if !to.is_with(&from) {
            self.fields.retain(|field| HARMLESS.iter().any(|name| field.is(name)));
        }
        let becomes_get = match status {
            303 => self.method != "HEAD",
            301 | 302 => self.method == "POST",
            _ => false,
        };
        if becomes_get {
            self.method = "GET".into();
            self.body.clear();
            self.fields.retain(|field| !field.is("content-type"));
        }
        self.url = to;
        Ok(self)
    }

    fn site(&self) -> Site<'_> {
        Site { host: &self.url.host, port: self.url.port, tls: self.url.is_secure }
    }

    fn wanted(&self) -> Wanted {
        Wanted {
            protocol: if self.url.is_secure { Protocol::Https } else { Protocol::Http },
            host: self.url.host.clone(),
            port: self.url.port,
            method: Some(self.method.clone()),
            path: Some(self.url.path().to_owned()),
            intercepted: false,
        }
    }
}

/// A request that is decided on and sent by itself.
struct Hop<'a> {
    client: &'a Client,
    judge: &'a dyn Judge,
    fill: Option<&'a dyn Fill>,
    party: u64,
    number: u64,
    deadline: Instant,
}

struct Answered {
    head: Response,
    body: Vec<u8>,
    truncated: bool,
}

impl Hop<'_> {
    fn go(&self, next: &Next, most: usize) -> Result<Answered, Refusal> {
        let since = Instant::now();
        let wanted = next.wanted();
        let number = self.number;
        let refused = |refusal: Refusal| {
            let wanted = Some(wanted.clone());
            self.judge.happened(&Event::Refused { number, wanted, refusal: refusal.clone() });
            refusal
        };
        let resolver = &*self.client.resolver;
        let decided =
            decide(&wanted, self.judge, resolver, self.party, self.deadline).map_err(refused)?;
        let request = self.request(next).map_err(refused)?;
        let (addresses, way) = (decided.addresses.clone(), Way::Fetched);
        self.judge.happened(&Event::Allowed { number, wanted: wanted.clone(), addresses, way });
        let mut count = Counted::default();
        let answered = self.talk(&wanted, &decided.addresses, next, &request, most, &mut count);
        let how = if answered.is_ok() { How::Answered } else { How::Failed };
        let (up, down, lasted) = (count.up, count.down, since.elapsed());
        self.judge.happened(&Event::Ended { number, wanted: Some(wanted), up, down, how, lasted });
        answered
    }

    fn request(&self, next: &Next) -> Result<Vec<u8>, Refusal> {
        if let Some(fill) = self.fill {
            let sent = [("its address", next.url.target.as_bytes()), ("its body", &next.body)];
            sent.iter()
                .try_for_each(|(place, text)| fill.refuse_in(place, text))
                .map_err(|unfilled| misplaced(next, unfilled))?;
        }
        let mut fields = vec![Field::new("Host", next.url.authority())];
        for one in &next.fields {
            let value = match self.fill {
                Some(fill) => fill_field(fill, next.site(), &one.name, &one.value),
                None => Ok(one.value.clone()),
            };
            let value = value.map_err(|unfilled| misplaced(next, unfilled))?;
            fields.push(Field { name: one.name.clone(), value });
        }
        for (name, value) in [("User-Agent", AGENT), ("Accept", "*/*")] {
            if !fields.iter().any(|field| field.is(name)) {
                fields.push(Field::new(name, value));
            }
        }
        fields.push(Field::new("Accept-Encoding", "identity"));
        fields.push(Field::new("Connection", "close"));
        if !next.body.is_empty() || matches!(next.method.as_str(), "POST" | "PUT" | "PATCH") {
            fields.push(Field::new("Content-Length", next.body.len().to_string()));
        }
        let head = Request { method: next.method.clone(), target: next.url.target.clone(), fields };
        let mut bytes = head.write();
        bytes.extend(&next.body);
        Ok(bytes)
    }

    fn talk(
        &self,
        wanted: &Wanted,
        addresses: &[std::net::SocketAddr],
        next: &Next,
        request: &[u8],
        most: usize,
        count: &mut Counted,
    ) -> Result<Answered, Refusal> {
        let stream = reach(wanted, addresses, self.deadline)?;
        let mut stream: Box<dyn Stream> = match next.url.is_secure {
            true => Box::new(secure(&self.client.tls, wanted, stream)?),
            false => Box::new(stream),
        };
        let failed = |error: Failed| {
            let fix = "see what the server answers without hotcell, or ask for less";
            not_fetched(&next.url, Refused::Unreachable, error.to_string(), fix)
        };
        // A server may answer before it has read everything, and then close.
        let sent = stream.write_all(request).and_then(|()| stream.flush());
        count.up = request.len() as u64;
        let mut answered = match (read(&mut *stream, &next.method, most + SLACK, count), sent) {
            (Ok(answered), _) => answered,
            (Err(_), Err(error)) => return Err(failed(Failed::Io(error))),
            (Err(error), Ok(())) => return Err(failed(error)),
        };
        self.mask(next, &mut answered)?;
        if answered.body.len() > most {
            answered.body.truncate(most);
            answered.truncated = true;
        }
        Ok(answered)
    }

    fn mask(&self, next: &Next, answered: &mut Answered) -> Result<(), Refusal> {
        let masker = || self.fill.and_then(|fill| fill.masker(next.site()));
        if masker().is_none() {
            return Ok(());
        }
        if is_coded(&answered.head) {
            let why = "its body is coded, so that no secret in it could be hidden";
            let fix = "have the server send it as it is";
            return Err(not_fetched(&next.url, Refused::Unreachable, why.into(), fix));
        }
        answered.body = masked(masker(), &answered.body);
        for one in &mut answered.head.fields {
            one.value = masked(masker(), &one.value);
        }
        answered
            .head
            .fields
            .retain(|one| masked(masker(), one.name.as_bytes()) == one.name.as_bytes());
        Ok(())
    }
}

trait Stream: Read + Write {}
impl Stream for Timed {}
impl Stream for rustls::StreamOwned<rustls::ClientConnection, Timed> {}

#[derive(Default)]
struct Counted {
    up: u64,
    down: u64,
}

#[derive(Debug, thiserror::Error)]
enum Failed {
    #[error("{}", words(.0))]
    Io(io::Error),
    #[error(transparent)]
    Bad(#[from] BadHead),
    #[error("it ends before it answers")]
    Early,
}

fn read(
    stream: &mut dyn Stream,
    method: &str,
    most: usize,
    count: &mut Counted,
) -> Result<Answered, Failed> {
    let mut bytes = Vec::new();
    for _ in 0..MOST_INTERIM {
        let head = read_head(stream, &mut bytes, count)?;
        match head.status {
            101 => return Err(BadHead("it changes the protocol").into()),
            100..200 => {}
            _ => return read_body(stream, head, method, bytes, most, count),
        }
    }
    Err(BadHead("it does not come to an answer").into())
}

fn read_head(
    stream: &mut dyn Stream,
    bytes: &mut Vec<u8>,
    count: &mut Counted,
) -> Result<Response, Failed> {
    loop {
        if let Some(end) = head::end(bytes)? {
            let head: Vec<u8> = bytes.drain(..end).collect();
            return Ok(Response::read(&head)?);
        }
        let piece = piece(stream, count)?;
        if piece.is_empty() {
            return Err(Failed::Early);
        }
        bytes.extend(piece);
    }
}

fn read_body(
    stream: &mut dyn Stream,
    head: Response,
    method: &str,
    mut bytes: Vec<u8>,
    most: usize,
    count: &mut Counted,
) -> Result<Answered, Failed> {
    let framing = head.framing(method)?;
    let mut frames = Body::new(framing);
    let mut body = Vec::new();
    loop {
        frames.push(&bytes, &mut body)?;
        if body.len() > most {
            body.truncate(most);
            return Ok(Answered { head, body, truncated: true });
        }
        if frames.is_done() {
            return Ok(Answered { head, body, truncated: false });
        }
        bytes = piece(stream, count)?;
        if bytes.is_empty() {
            frames.close()?;
        }
    }
}

fn piece(stream: &mut dyn Stream, count: &mut Counted) -> Result<Vec<u8>, Failed> {
    let mut piece = vec![0; 16 * 1024];
    let length = stream.read(&mut piece).map_err(Failed::Io)?;
    piece.truncate(length);
    count.down += length as u64;
    Ok(piece)
}

fn is_redirect(status: u16) -> bool {
    matches!(status, 301 | 302 | 303 | 307 | 308)
}

fn is_coded(head: &Response) -> bool {
    head::words(&head.fields, "content-encoding")
        .any(|word| !word.eq_ignore_ascii_case(b"identity"))
}

fn fetched(next: &Next, redirects: usize, answered: Answered) -> Fetched {
    let Answered { head, body, truncated } = answered;
    let is_text = !is_coded(&head) && is_text(field(&head.fields, "content-type"));
    let content = match String::from_utf8(body) {
        Ok(text) if is_text => Content::Text(text),
        Ok(text) => Content::Base64(BASE64.encode(text.as_bytes())),
        // What was cut may end within a character.
        Err(error) if is_text && truncated && error.utf8_error().error_len().is_none() => {
            let whole = error.utf8_error().valid_up_to();
            let mut bytes = error.into_bytes();
            bytes.truncate(whole);
            Content::Text(String::from_utf8_lossy(&bytes).into_owned())
        }
        Err(error) => Content::Base64(BASE64.encode(error.as_bytes())),
    };
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let headers = head.fields.iter().map(|one| (one.name.clone(), text(&one.value))).collect();
    let url = next.url.to_string();
    Fetched { status: head.status, url, redirects, headers, content, truncated }
}

/// What does not say what it is, is text if it can be.
fn is_text(kind: Option<&[u8]>) -> bool {
    let Some(kind) = kind else { return true };
    let kind = String::from_utf8_lossy(kind).to_ascii_lowercase();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    const TEXT: [&str; 6] = [
        "application/json",
        "application/xml",
        "application/javascript",
        "application/x-www-form-urlencoded",
        "application/yaml",
        "application/toml",
    ];
    kind.starts_with("text/")
        || TEXT.contains(&kind)
        || ["+json", "+xml", "+yaml"].iter().any(|end| kind.ends_with(end))
}

fn misplaced(next: &Next, unfilled: Unfilled) -> Refusal {
    let fix = "use the secret in a header, with `https`, at a host that it is bound to";
    not_fetched(&next.url, Refused::Secret, unfilled.0, fix)
}

fn not_fetched(url: &Url, kind: Refused, why: String, fix: &str) -> Refusal {
    Refusal::new(kind, format!("`{}` at port {} is not fetched", url.host, url.port), why, fix)
}
