//! Heads of HTTP/1.1 messages: bytes → what they say, and the head that is passed on instead of them.
//!
//! Whatever could be understood in two ways is a fault. Nothing is repaired, since the other side would
//! repair it differently: a line ends with CR and LF, a field has one line, a length is said once.

use crate::target::{self, Authority, Target};
use crate::wire::{Fault, MOST_METHOD};

/// Most of a head, and of its fields.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    pub bytes: usize,
    pub fields: usize,
}

/// Who is asked.
#[derive(Debug, Clone)]
pub enum Form {
    /// A proxy: with the whole address, or for a tunnel.
    Proxy,
    /// The server of a tunnel, for a path of this one authority.
    Within(Authority),
}

/// How far a body goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    None,
    Length(u64),
    Chunked,
    /// Until the connection ends. Never that of a request.
    End,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    pub method: String,
    pub target: Target,
    pub body: Extent,
    /// It is HTTP/1.0.
    pub old: bool,
    /// The client wants to go on with this connection.
    pub keep: bool,
    /// The value of `Proxy-Authorization`.
    pub credential: Option<Vec<u8>>,
    /// The lines that are passed on: nothing of one hop, no length, no `Host`.
    pub fields: Vec<u8>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    pub status: u16,
    pub reason: Vec<u8>,
    pub body: Extent,
    /// What `Content-Length` says, also where no body follows.
    pub length: Option<u64>,
    /// The connection can be used again.
    pub keep: bool,
    /// The lines that are passed on.
    pub fields: Vec<u8>,
}

/// Where a head ends, once it does. `seen` is how far it was looked at: 0 at first.
pub fn end(bytes: &[u8], seen: &mut usize) -> Result<Option<usize>, Fault> {
    for &byte in bytes.get(*seen..).unwrap_or_default() {
        let before = bytes.get(..*seen).unwrap_or_default();
        // A line feed belongs to a carriage return, and the other way round.
        if (byte == b'\n') != before.ends_with(b"\r") || is_control(byte) {
            return Err(Fault::Head);
        }
        *seen += 1;
        if byte == b'\n' && before.ends_with(b"\r\n\r") {
            return Ok(Some(*seen));
        }
    }
    Ok(None)
}

/// The head of a request, as [`end`] found it.
pub fn request(head: &[u8], form: &Form, limits: Limits) -> Result<Request, Fault> {
    let mut lines = lines(head);
    let first = lines.next().and_then(|line| str::from_utf8(line).ok()).ok_or(Fault::Head)?;
    let mut words = first.split(' ');
    let (Some(method), Some(target), Some(version), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(Fault::Head);
    };
    let old = is_old(version.as_bytes())?;
    if !is_method(method) {
        return Err(Fault::Head);
    }
    let target = match form {
        Form::Proxy if method == "CONNECT" => target::tunnel(target)?,
        Form::Proxy => target::absolute(target, method)?,
        Form::Within(_) => target::origin(target, method)?,
    };
    let fields = fields(lines, limits)?;
    check_host(&fields, &target, form, old)?;
    let options = options(&fields)?;
    let body = request_body(&fields, &target, old)?;
    if one(&fields, "upgrade", Fault::Upgrade)?.is_some() {
        return Err(Fault::Upgrade);
    }
    let expects = one(&fields, "expect", Fault::Unsupported)?;
    if expects.is_some_and(|value| !value.eq_ignore_ascii_case(b"100-continue")) {
        return Err(Fault::Unsupported);
    }
    let credential = one(&fields, "proxy-authorization", Fault::Credential)?;
    Ok(Request {
        method: method.to_owned(),
        body,
        old,
        keep: !old && !options.close,
        credential: credential.map(<[u8]>::to_vec),
        // What is HTTP/1.0 does not wait for an answer to an expectation.
        fields: passed_on(&fields, &options, if old { &["host", "expect"] } else { &["host"] }),
        target,
    })
}

/// The head of a response to a request with this method.
pub fn response(head: &[u8], method: &str, limits: Limits) -> Result<Response, Fault> {
    let mut lines = lines(head);
    let first = lines.next().ok_or(Fault::Head)?;
    let (version, rest) = first.split_at_checked(9).ok_or(Fault::Head)?;
    let old = is_old(version.strip_suffix(b" ").ok_or(Fault::Head)?)?;
    let (digits, reason) = rest.split_at_checked(3).ok_or(Fault::Head)?;
    let status = number(digits).filter(|status| (100..=599).contains(status)).ok_or(Fault::Head)?;
    let status = u16::try_from(status).map_err(|_| Fault::Head)?;
    if !reason.is_empty() && !reason.starts_with(b" ") {
        return Err(Fault::Head);
    }
    let fields = fields(lines, limits)?;
    let options = options(&fields)?;
    let framing = framing(&fields)?;
    if old && framing == Extent::Chunked {
        return Err(Fault::Framing);
    }
    let body = match framing {
        _ if method == "HEAD" || status < 200 || status == 204 || status == 304 => Extent::None,
        Extent::None => Extent::End,
        framing => framing,
    };
    Ok(Response {
        status,
        reason: reason.trim_ascii().to_vec(),
        body,
        length: match framing {
            Extent::Length(length) if status >= 200 && status != 204 => Some(length),
            _ => None,
        },
        keep: !old && !options.close && body != Extent::End,
        fields: passed_on(&fields, &options, &[]),
    })
}

impl Request {
    /// The head that goes on to the server of its target.
    pub fn forwarded(&self, host: &str, path: &str, last: Connection) -> Vec<u8> {
        let mut head = Vec::with_capacity(self.fields.len() + path.len() + host.len() + 96);
        for part in [&self.method, " ", path, " HTTP/1.1\r\nHost: ", host, "\r\n"] {
            head.extend(part.as_bytes());
        }
        head.extend(&self.fields);
        self.body.write(&mut head);
        last.write(&mut head);
        head
    }
}

impl Response {
    /// The head that goes on to the client, of a body that is framed like this.
    pub fn forwarded(&self, body: Extent, last: Connection) -> Vec<u8> {
        let mut head = Vec::with_capacity(self.fields.len() + self.reason.len() + 96);
        head.extend(format!("HTTP/1.1 {} ", self.status).as_bytes());
        head.extend(&self.reason);
        head.extend(b"\r\n");
        head.extend(&self.fields);
        match (body, self.length) {
            (Extent::None, Some(length)) => Extent::Length(length).write(&mut head),
            _ => body.write(&mut head),
        }
        last.write(&mut head);
        head
    }
}

/// Whether a connection goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Connection {
    Keep,
    Close,
}

impl Connection {
    fn write(self, head: &mut Vec<u8>) {
        if self == Connection::Close {
            head.extend(b"Connection: close\r\n");
        }
        head.extend(b"\r\n");
    }
}

impl Extent {
    fn write(self, head: &mut Vec<u8>) {
        match self {
            Extent::None | Extent::End => {}
            Extent::Length(length) => {
                head.extend(format!("Content-Length: {length}\r\n").as_bytes())
            }
            Extent::Chunked => head.extend(b"Transfer-Encoding: chunked\r\n"),
        }
    }
}

struct Field<'a> {
    name: &'a str,
    value: &'a [u8],
}

/// What `Connection` says.
struct Options<'a> {
    close: bool,
    names: Vec<&'a str>,
}

/// Fields of one hop. `Proxy-` is a prefix.
const HOP: [&str; 8] = [
    "connection",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "content-length",
    "upgrade",
    "http2-settings",
];

/// What `Connection` may not take out: the other side would see another message than was judged.
const STAYS: [&str; 5] = ["host", "content-length", "transfer-encoding", "expect", "upgrade"];

fn lines(head: &[u8]) -> impl Iterator<Item = &[u8]> {
    let head = head.strip_suffix(b"\r\n\r\n").unwrap_or(head);
    head.split(|&byte| byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line))
}

fn is_control(byte: u8) -> bool {
    (byte < b' ' && !b"\t\r\n".contains(&byte)) || byte == 0x7f
}

fn is_token(text: &str) -> bool {
    let special = "!#$%&'*+-.^_`|~";
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || special.contains(c))
}

/// Servers that take `post` for `POST` would not see what was judged.
fn is_method(text: &str) -> bool {
    let first = text.starts_with(|c: char| c.is_ascii_uppercase());
    let rest = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '-' || c == '_';
    first && text.len() <= MOST_METHOD && text.chars().all(rest)
}

fn is_old(version: &[u8]) -> Result<bool, Fault> {
    match version {
        b"HTTP/1.1" => Ok(false),
        b"HTTP/1.0" => Ok(true),
        _ => Err(Fault::Head),
    }
}

/// Digits and nothing else, in the one way to write a number.
fn number(digits: &[u8]) -> Option<u64> {
    let plain = digits.iter().all(u8::is_ascii_digit)
        && (digits.len() == 1 || digits.first() != Some(&b'0'));
    str::from_utf8(digits).ok().filter(|_| plain && digits.len() <= 19)?.parse().ok()
}

fn fields<'a>(
    lines: impl Iterator<Item = &'a [u8]>,
    limits: Limits,
) -> Result<Vec<Field<'a>>, Fault> {
    let mut fields = Vec::new();
    for line in lines {
        let colon = line.iter().position(|&byte| byte == b':').ok_or(Fault::Head)?;
        let (name, value) = line.split_at_checked(colon).ok_or(Fault::Head)?;
        let name = str::from_utf8(name).ok().filter(|name| is_token(name)).ok_or(Fault::Head)?;
        let value = value.strip_prefix(b":").ok_or(Fault::Head)?.trim_ascii();
        if value.iter().any(|&byte| is_control(byte) || byte == b'\r' || byte == b'\n') {
            return Err(Fault::Head);
        }
        if fields.len() >= limits.fields {
            return Err(Fault::Long);
        }
        fields.push(Field { name, value });
    }
    Ok(fields)
}

/// The value of a field that may be there once.
fn one<'a>(fields: &[Field<'a>], name: &str, fault: Fault) -> Result<Option<&'a [u8]>, Fault> {
    let mut values = fields.iter().filter(|field| field.name.eq_ignore_ascii_case(name));
    let value = values.next().map(|field| field.value);
    if values.next().is_some() { Err(fault) } else { Ok(value) }
}

fn check_host(fields: &[Field<'_>], target: &Target, form: &Form, old: bool) -> Result<(), Fault> {
    let Some(value) = one(fields, "host", Fault::Host)? else {
        return if old { Ok(()) } else { Err(Fault::Host) };
    };
    let asked = match (target, form) {
        (Target::Absolute { authority, .. } | Target::Tunnel(authority), _)
        | (Target::Origin { .. }, Form::Within(authority)) => authority,
        (Target::Origin { .. }, Form::Proxy) => return Err(Fault::Target),
    };
    // Some clients leave the port out although the tunnel is for another one than that of its scheme.
    let usual = match target {
        Target::Absolute { secure: false, .. } => 80,
        Target::Absolute { secure: true, .. } | Target::Origin { .. } => 443,
        Target::Tunnel(authority) => authority.port,
    };
    let said =
        str::from_utf8(value).ok().and_then(|value| target::authority(value, Some(usual)).ok());
    if said.is_some_and(|said| said.is(asked)) { Ok(()) } else { Err(Fault::Host) }
}

fn options<'a>(fields: &[Field<'a>]) -> Result<Options<'a>, Fault> {
    let mut names = Vec::new();
    for field in fields.iter().filter(|field| field.name.eq_ignore_ascii_case("connection")) {
        let value = str::from_utf8(field.value).map_err(|_| Fault::Head)?;
        for name in value.split(',').map(str::trim).filter(|name| !name.is_empty()) {
            if !is_token(name) {
                return Err(Fault::Head);
            }
            names.push(name);
        }
    }
    let is = |name: &str, of: &[&str]| of.iter().any(|one| name.eq_ignore_ascii_case(one));
    // `Connection: upgrade` comes along with `Upgrade`, which has its own answer.
    if names.iter().any(|name| is(name, &STAYS) && !is(name, &["upgrade"])) {
        return Err(Fault::Head);
    }
    Ok(Options { close: names.iter().any(|name| is(name, &["close"])), names })
}

fn framing(fields: &[Field<'_>]) -> Result<Extent, Fault> {
    let length = one(fields, "content-length", Fault::Framing)?;
    let coding = one(fields, "transfer-encoding", Fault::Framing)?;
    match (length, coding) {
        (None, None) => Ok(Extent::None),
        (Some(digits), None) => number(digits).map(Extent::Length).ok_or(Fault::Framing),
        (None, Some(coding)) if coding.eq_ignore_ascii_case(b"chunked") => Ok(Extent::Chunked),
        _ => Err(Fault::Framing),
    }
}

fn request_body(fields: &[Field<'_>], target: &Target, old: bool) -> Result<Extent, Fault> {
    match (framing(fields)?, target) {
        (Extent::Chunked, _) if old => Err(Fault::Framing),
        (Extent::None | Extent::Length(0), Target::Tunnel(_)) => Ok(Extent::None),
        (_, Target::Tunnel(_)) => Err(Fault::Framing),
        (body, _) => Ok(body),
    }
}

fn passed_on(fields: &[Field<'_>], options: &Options<'_>, without: &[&str]) -> Vec<u8> {
    let mut kept = Vec::new();
    for Field { name, value } in fields {
        let is = |other: &&str| name.eq_ignore_ascii_case(other);
        let proxy = name.get(..6).is_some_and(|start| start.eq_ignore_ascii_case("proxy-"));
        if proxy || HOP.iter().chain(without).chain(&options.names).any(is) {
            continue;
        }
        for part in [name.as_bytes(), b": ", value, b"\r\n"] {
            kept.extend(part);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { bytes: 1 << 16, fields: 10 };

    /// Bytes of a whole head, or the fault that they are.
    fn read(text: &[u8]) -> Result<Request, Fault> {
        let at = end(text, &mut 0)?.expect("the head ends");
        request(&text[..at], &Form::Proxy, LIMITS)
    }

    fn reply(text: &str, method: &str) -> Result<Response, Fault> {
        let at = end(text.as_bytes(), &mut 0)?.expect("the head ends");
        response(&text.as_bytes()[..at], method, LIMITS)
    }

    /// A request with these lines after its first and its `Host`.
    fn with(lines: &str) -> Result<Request, Fault> {
        read(format!("POST http://a.test/ HTTP/1.1\r\nHost: a.test\r\n{lines}\r\n").as_bytes())
    }

    #[test]
    fn a_plain_request_is_passed_on_in_origin_form() {
        let request = read(
            b"GET http://A.test:8080/x?y=1 HTTP/1.1\r\nhost: a.test:8080\r\nAccept:  */* \r\n\
              Proxy-Authorization: Basic eA==\r\nConnection: keep-alive, X-One\r\nX-One: 1\r\n\r\n",
        )
        .unwrap();
        assert_eq!(request.credential.as_deref(), Some(&b"Basic eA=="[..]));
        assert!(request.keep);
        let Target::Absolute { authority, path, .. } = &request.target else { panic!() };
        let head = request.forwarded(&authority.shown(80), path, Connection::Keep);
        assert_eq!(
            String::from_utf8(head).unwrap(),
            "GET /x?y=1 HTTP/1.1\r\nHost: A.test:8080\r\nAccept: */*\r\n\r\n"
        );
    }

    #[test]
    fn net_11_what_could_end_in_two_ways_is_a_fault() {
        for lines in [
            "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
            "Transfer-Encoding: chunked\r\nContent-Length: 0\r\n",
            "Content-Length: 5\r\nContent-Length: 5\r\n",
            "Content-Length: 5\r\nContent-Length: 6\r\n",
            "Content-Length: 5, 5\r\n",
            "Content-Length: +5\r\n",
            "Content-Length: -5\r\n",
            "Content-Length: 05\r\n",
            "Content-Length: 0x5\r\n",
            "Content-Length: 5 5\r\n",
            "Content-Length:\r\n",
            "Content-Length: 99999999999999999999\r\n",
            "Transfer-Encoding: xchunked\r\n",
            "Transfer-Encoding: chunked, chunked\r\n",
            "Transfer-Encoding: gzip, chunked\r\n",
            "Transfer-Encoding: identity\r\n",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
            "Transfer-Encoding: \"chunked\"\r\n",
            "Transfer-Encoding:\r\n",
        ] {
            assert_eq!(with(lines), Err(Fault::Framing), "{lines:?}");
        }
        for (lines, body) in [
            ("", Extent::None),
            ("Content-Length: 0\r\n", Extent::Length(0)),
            ("content-length: 5\r\n", Extent::Length(5)),
            ("Transfer-Encoding: Chunked\r\n", Extent::Chunked),
        ] {
            assert_eq!(with(lines).map(|request| request.body), Ok(body), "{lines:?}");
        }
    }

    #[test]
    fn net_11_what_is_not_written_as_it_has_to_be_is_a_fault() {
        for lines in [
            " folded: 1\r\n",
            "X: 1\r\n folded\r\n",
            "X: 1\r\n\tfolded\r\n",
            "X : 1\r\n",
            "X\t: 1\r\n",
            "X\u{b}: 1\r\n",
            "\u{b}X: 1\r\n",
            "X: 1\u{b}\r\n",
            "X: 1\0\r\n",
            "X: 1\r2\r\n",
            "X: 1\n",
            "X: 1\n\r\n",
            "X\r\n",
            ": 1\r\n",
            "X(y): 1\r\n",
            "Transfer-Encoding\u{a0}: chunked\r\n",
            "Connection: host\r\n",
            "Connection: close, Content-Length\r\nContent-Length: 3\r\n",
            "Connection: transfer-encoding\r\nTransfer-Encoding: chunked\r\n",
            "Connection: a b\r\n",
        ] {
            assert_eq!(with(lines), Err(Fault::Head), "{lines:?}");
        }
        for first in [
            "GET http://a.test/ HTTP/1.1 ",
            " GET http://a.test/ HTTP/1.1",
            "GET  http://a.test/ HTTP/1.1",
            "GET\thttp://a.test/\tHTTP/1.1",
            "GET http://a.test/ HTTP/1.1\u{b}",
            "GET http://a.test/",
            "GET http://a.test/ HTTP/0.9",
            "GET http://a.test/ HTTP/2.0",
            "GET http://a.test/ HTTP/1.10",
            "GET http://a.test/ http/1.1",
            "get http://a.test/ HTTP/1.1",
            "G@T http://a.test/ HTTP/1.1",
            "",
        ] {
            let text = format!("{first}\r\nHost: a.test\r\n\r\n");
            assert_eq!(read(text.as_bytes()), Err(Fault::Head), "{first:?}");
        }
        assert_eq!(end(b"GET http://a.test/ HTTP/1.1\n", &mut 0), Err(Fault::Head));
        assert_eq!(end(b"GET \rX", &mut 0), Err(Fault::Head));
        assert_eq!(end(b"PRI * HTTP/2.0\r\n\r", &mut 0), Ok(None));
    }

    #[test]
    fn net_10_a_host_that_is_not_that_of_the_target_is_a_fault() {
        for lines in [
            "Host: denied.test\r\n",
            "Host: a.test\r\nHost: a.test\r\n",
            "Host: a.test\r\nhost: denied.test\r\n",
            "Host:\r\n",
            "",
            "Host: a.test:81\r\n",
            "Host: a.test:80:80\r\n",
            "Host: a.test, denied.test\r\n",
            "Host: a.test/\r\n",
            "Host: me@a.test\r\n",
            "Host: a.test.\r\n",
        ] {
            let text = format!("GET http://a.test/ HTTP/1.1\r\n{lines}\r\n");
            assert_eq!(read(text.as_bytes()), Err(Fault::Host), "{lines:?}");
        }
        for (target, host) in [
            ("http://a.test/", "A.TEST"),
            ("http://a.test/", "a.test:80"),
            ("http://a.test:80/", "a.test"),
            ("https://a.test/", "a.test:443"),
            ("http://[::1]:81/", "[::1]:81"),
        ] {
            let text = format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n");
            assert!(read(text.as_bytes()).is_ok(), "{target} {host}");
        }
        assert!(read(b"GET http://a.test/ HTTP/1.0\r\n\r\n").is_ok());
        let within = Form::Within(target::authority("a.test", Some(443)).unwrap());
        let inner = |host| {
            let text = format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n");
            request(text.as_bytes(), &within, LIMITS).map(|_| ())
        };
        assert_eq!(inner("a.test"), Ok(()));
        assert_eq!(inner("other.test"), Err(Fault::Host));
        assert_eq!(inner("a.test:80"), Err(Fault::Host));
    }

    #[test]
    fn net_11_a_tunnel_has_no_body() {
        let connect = |lines| {
            read(
                format!("CONNECT a.test:443 HTTP/1.1\r\nHost: a.test:443\r\n{lines}\r\n")
                    .as_bytes(),
            )
            .map(|request| request.body)
        };
        assert_eq!(connect("Content-Length: 3\r\n"), Err(Fault::Framing));
        assert_eq!(connect("Transfer-Encoding: chunked\r\n"), Err(Fault::Framing));
        assert_eq!(connect(""), Ok(Extent::None));
        assert_eq!(connect("Content-Length: 0\r\n"), Ok(Extent::None));
    }

    #[test]
    fn net_31_an_upgrade_is_a_fault_and_not_stripped() {
        assert_eq!(with("Connection: Upgrade\r\nUpgrade: websocket\r\n"), Err(Fault::Upgrade));
        assert_eq!(with("Upgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n"), Err(Fault::Upgrade));
        assert!(with("X-Upgrade: h2c\r\n").is_ok());
    }

    #[test]
    fn net_32_nothing_of_one_hop_is_passed_on() {
        let request = with(
            "Proxy-Authorization: Basic eA==\r\nProxy-Connection: keep-alive\r\nproxy-x: 1\r\n\
             TE: trailers\r\nTrailer: X\r\nKeep-Alive: 5\r\nConnection: close, x-mine\r\nX-Mine: 1\r\n\
             X-Stays: 1\r\n",
        )
        .unwrap();
        assert_eq!(String::from_utf8(request.fields).unwrap(), "X-Stays: 1\r\n");
        assert!(!request.keep);
    }

    #[test]
    fn only_one_expectation_is_known_and_an_old_client_has_none() {
        assert!(with("Expect: 100-continue\r\n").is_ok());
        assert_eq!(with("Expect: 200-ok\r\n"), Err(Fault::Unsupported));
        let old = read(
            b"POST http://a.test/ HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\n",
        );
        assert!(old.is_ok_and(|old| old.fields.is_empty() && old.old && !old.keep));
        let old = read(b"POST http://a.test/ HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n");
        assert_eq!(old, Err(Fault::Framing));
    }

    #[test]
    fn more_fields_than_may_be_are_too_many() {
        let lines = "X: 1\r\n".repeat(9);
        assert!(with(&lines).is_ok());
        assert_eq!(with(&format!("{lines}X: 1\r\n")), Err(Fault::Long));
    }

    #[test]
    fn a_response_ends_where_its_head_says() {
        for (lines, method, status, body) in [
            ("", "GET", 200, Extent::End),
            ("Content-Length: 3\r\n", "GET", 200, Extent::Length(3)),
            ("Transfer-Encoding: chunked\r\n", "GET", 200, Extent::Chunked),
            ("Content-Length: 3\r\n", "HEAD", 200, Extent::None),
            ("Transfer-Encoding: chunked\r\n", "HEAD", 200, Extent::None),
            ("Content-Length: 3\r\n", "GET", 304, Extent::None),
            ("", "GET", 204, Extent::None),
            ("Content-Length: 3\r\n", "GET", 204, Extent::None),
            ("", "POST", 100, Extent::None),
        ] {
            let response = reply(&format!("HTTP/1.1 {status} OK\r\n{lines}\r\n"), method).unwrap();
            assert_eq!(response.body, body, "{status} {method} {lines:?}");
        }
        let head =
            reply("HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: close\r\n\r\n", "HEAD")
                .unwrap();
        assert!(!head.keep);
        assert_eq!(
            String::from_utf8(head.forwarded(head.body, Connection::Keep)).unwrap(),
            "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n"
        );
        assert!(reply("HTTP/1.1 200\r\n\r\n", "GET").is_ok());
    }

    #[test]
    fn a_response_that_can_be_understood_in_two_ways_is_a_fault() {
        for text in [
            "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\n",
            "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
            "HTTP/1.1 200 OK\r\nX: 1\r\n folded\r\n\r\n",
            "HTTP/1.1 200 OK\r\nX : 1\r\n\r\n",
            "HTTP/1.1 2000 OK\r\n\r\n",
            "HTTP/1.1 099 OK\r\n\r\n",
            "HTTP/1.1 +20 OK\r\n\r\n",
            "HTTP/1.1  200 OK\r\n\r\n",
            "HTTP/2 200 OK\r\n\r\n",
            "ICY 200 OK\r\n\r\n",
            "HTTP/1.1 200 OK\nX: 1\r\n\r\n",
        ] {
            assert!(reply(text, "GET").is_err(), "{text:?}");
        }
    }

    #[test]
    fn the_end_of_a_head_is_found_however_it_arrives() {
        let text = b"GET / HTTP/1.1\r\nA: b\r\n\r\nrest";
        let whole = text.len() - 4;
        for cut in 0..whole {
            let mut seen = 0;
            assert_eq!(end(&text[..cut], &mut seen), Ok(None));
            assert_eq!(seen, cut);
            assert_eq!(end(text, &mut seen), Ok(Some(whole)));
        }
    }
}
