//! Heads of HTTP/1.1, strictly: what can be read in two ways is an error. One reader for both directions, the
//! relay and hotcell's own client.

/// Longest head, most fields in it.
pub(crate) const MOST_HEAD: usize = 64 * 1024;
pub(crate) const MOST_FIELDS: usize = 128;

/// The other side does not speak HTTP/1.1 as it has to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("what it says is not HTTP/1.1: {0}")]
pub(crate) struct BadHead(pub(crate) &'static str);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Field {
    pub(crate) name: String,
    pub(crate) value: Vec<u8>,
}

impl Field {
    pub(crate) fn new(name: &str, value: impl Into<Vec<u8>>) -> Field {
        Field { name: name.to_owned(), value: value.into() }
    }

    pub(crate) fn is(&self, name: &str) -> bool {
        self.name.eq_ignore_ascii_case(name)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) target: String,
    pub(crate) fields: Vec<Field>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Response {
    pub(crate) status: u16,
    /// Of HTTP/1.0, after which the connection ends.
    pub(crate) is_old: bool,
    pub(crate) fields: Vec<Field>,
}

/// How the end of a body is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Framing {
    Length(u64),
    Chunked,
    /// It ends with the connection.
    Close,
}

/// Where the head ends that begins here; nothing if it has not arrived as a whole.
pub(crate) fn end(bytes: &[u8]) -> Result<Option<usize>, BadHead> {
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n").map(|at| at + 4);
    match end {
        Some(end) if end <= MOST_HEAD => Ok(Some(end)),
        None if bytes.len() < MOST_HEAD => Ok(None),
        _ => Err(BadHead("its head is too long")),
    }
}

impl Request {
    pub(crate) fn read(head: &[u8]) -> Result<Request, BadHead> {
        let (line, fields) = split(head)?;
        let bad = BadHead("its first line");
        let mut parts = line.split(' ');
        let (method, target, version) = (parts.next(), parts.next(), parts.next());
        let (Some(method), Some(target), Some("HTTP/1.1"), None) =
            (method, target, version, parts.next())
        else {
            return Err(bad);
        };
        if !is_token(method) || target.is_empty() || !target.bytes().all(|b| b.is_ascii_graphic()) {
            return Err(bad);
        }
        Ok(Request { method: method.into(), target: target.into(), fields })
    }

    pub(crate) fn framing(&self) -> Result<Framing, BadHead> {
        match (coded(&self.fields)?, length(&self.fields)?) {
            (true, None) => Ok(Framing::Chunked),
            (false, length) => Ok(Framing::Length(length.unwrap_or(0))),
            (true, Some(_)) => Err(BadHead("its body ends in two ways")),
        }
    }

    pub(crate) fn write(&self) -> Vec<u8> {
        let mut bytes = format!("{} {} HTTP/1.1\r\n", self.method, self.target).into_bytes();
        write_fields(&self.fields, &mut bytes);
        bytes
    }
}

impl Response {
    pub(crate) fn read(head: &[u8]) -> Result<Response, BadHead> {
        let (line, fields) = split(head)?;
        let bad = BadHead("its first line");
        let (version, rest) = line.split_once(' ').ok_or(bad)?;
        let is_old = match version {
            "HTTP/1.1" => false,
            "HTTP/1.0" => true,
            _ => return Err(bad),
        };
        let status = rest.split(' ').next().unwrap_or_default();
        if status.len() != 3 || !status.bytes().all(|b| b.is_ascii_digit()) {
            return Err(bad);
        }
        let status = status.parse().map_err(|_| bad)?;
        if !(100..600).contains(&status) {
            return Err(bad);
        }
        Ok(Response { status, is_old, fields })
    }

    /// `to` is the method of what it answers.
    pub(crate) fn framing(&self, to: &str) -> Result<Framing, BadHead> {
        if to == "HEAD" || self.status < 200 || matches!(self.status, 204 | 304) {
            return Ok(Framing::Length(0));
        }
        match (coded(&self.fields)?, length(&self.fields)?) {
            (true, None) => Ok(Framing::Chunked),
            (false, Some(length)) => Ok(Framing::Length(length)),
            (false, None) => Ok(Framing::Close),
            (true, Some(_)) => Err(BadHead("its body ends in two ways")),
        }
    }

    pub(crate) fn write(&self) -> Vec<u8> {
        // The words of a server after its status are nobody's to rely on.
        let mut bytes = format!("HTTP/1.1 {} \r\n", self.status).into_bytes();
        write_fields(&self.fields, &mut bytes);
        bytes
    }
}

fn write_fields(fields: &[Field], bytes: &mut Vec<u8>) {
    for field in fields {
        bytes.extend(field.name.as_bytes());
        bytes.extend(b": ");
        bytes.extend(&field.value);
        bytes.extend(b"\r\n");
    }
    bytes.extend(b"\r\n");
}

pub(crate) fn field<'a>(fields: &'a [Field], name: &str) -> Option<&'a [u8]> {
    fields.iter().find(|field| field.is(name)).map(|field| field.value.as_slice())
}

/// The words of all fields of this name, without the blanks around them.
pub(crate) fn words<'a>(fields: &'a [Field], name: &str) -> impl Iterator<Item = &'a [u8]> {
    fields
        .iter()
        .filter(move |field| field.is(name))
        .flat_map(|field| field.value.split(|b| *b == b','))
        .map(<[u8]>::trim_ascii)
        .filter(|word| !word.is_empty())
}

/// Fields that are about one connection, and those that `Connection` names.
pub(crate) fn is_hop(field: &Field, fields: &[Field]) -> bool {
    const HOP: [&str; 9] = [
        "connection",
        "keep-alive",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "content-length",
        "upgrade",
        "via",
    ];
    HOP.iter().any(|name| field.is(name))
        || field.name.to_ascii_lowercase().starts_with("proxy-")
        || words(fields, "connection").any(|word| word.eq_ignore_ascii_case(field.name.as_bytes()))
}

fn split(head: &[u8]) -> Result<(&str, Vec<Field>), BadHead> {
    let mut lines = head.split_inclusive(|b| *b == b'\n').map(|line| line.strip_suffix(b"\r\n"));
    let first = lines.next().flatten().ok_or(BadHead("its first line"))?;
    let first = str::from_utf8(first).map_err(|_| BadHead("its first line"))?;
    if first.bytes().any(|b| b.is_ascii_control()) {
        return Err(BadHead("its first line"));
    }
    let mut fields = Vec::new();
    for line in lines {
        let line = line.ok_or(BadHead("a line without its end"))?;
        if line.is_empty() {
            break;
        }
        if fields.len() >= MOST_FIELDS {
            return Err(BadHead("it has too many fields"));
        }
        fields.push(read_field(line)?);
    }
    Ok((first, fields))
}

fn read_field(line: &[u8]) -> Result<Field, BadHead> {
    let bad = BadHead("a field of its head");
    let colon = line.iter().position(|b| *b == b':').ok_or(bad)?;
    let (name, value) = line.split_at_checked(colon).ok_or(bad)?;
    let name = str::from_utf8(name).ok().filter(|name| is_token(name)).ok_or(bad)?;
    let value = value.get(1..).unwrap_or_default().trim_ascii();
    if value.iter().any(|b| b.is_ascii_control() && *b != b'\t') {
        return Err(bad);
    }
    Ok(Field::new(name, value))
}

pub(crate) fn is_token(text: &str) -> bool {
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    !text.is_empty() && text.bytes().all(is_plain)
}

/// Whether the body comes in chunks. Any other coding is one that nobody asked for.
fn coded(fields: &[Field]) -> Result<bool, BadHead> {
    let mut codings = words(fields, "transfer-encoding");
    let is_there = fields.iter().any(|field| field.is("transfer-encoding"));
    match (is_there, codings.next(), codings.next()) {
        (false, ..) => Ok(false),
        (true, Some(coding), None) if coding.eq_ignore_ascii_case(b"chunked") => Ok(true),
        _ => Err(BadHead("its body is coded in an unknown way")),
    }
}

fn length(fields: &[Field]) -> Result<Option<u64>, BadHead> {
    let mut found = None;
    for field in fields.iter().filter(|field| field.is("content-length")) {
        let text = str::from_utf8(&field.value).unwrap_or_default();
        let is_plain = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        let length = text.parse::<u64>().ok().filter(|_| is_plain);
        if length.is_none() || found.is_some() {
            return Err(BadHead("the length of its body"));
        }
        found = length;
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn response(head: &str) -> Result<Framing, BadHead> {
        let bytes = head.replace('\n', "\r\n").into_bytes();
        assert_eq!(end(&bytes), Ok(Some(bytes.len())));
        Response::read(&bytes)?.framing("GET")
    }

    #[test]
    fn the_end_of_a_body_is_clear_or_it_is_an_error() {
        for (fields, expected) in [
            ("", Some(Framing::Close)),
            ("Content-Length: 5\n", Some(Framing::Length(5))),
            ("content-length:5\n", Some(Framing::Length(5))),
            ("Transfer-Encoding: chunked\n", Some(Framing::Chunked)),
            ("Transfer-Encoding: Chunked\n", Some(Framing::Chunked)),
            ("Transfer-Encoding: gzip, chunked\n", None),
            ("Transfer-Encoding: xchunked\n", None),
            ("Transfer-Encoding: chunked, chunked\n", None),
            ("Transfer-Encoding:\n", None),
            ("Transfer-Encoding: chunked\nContent-Length: 5\n", None),
            ("Content-Length: 5\nContent-Length: 5\n", None),
            ("Content-Length: 5, 5\n", None),
            ("Content-Length: +5\n", None),
            ("Content-Length: -1\n", None),
            ("Content-Length: 99999999999999999999\n", None),
            ("Content-Length: 0x5\n", None),
            ("Content-Length : 5\n", None),
            (" folded\n", None),
            ("A\u{b}: b\n", None),
            ("A: b\0c\n", None),
            ("no colon\n", None),
        ] {
            let framing = response(&format!("HTTP/1.1 200 OK\n{fields}\n")).ok();
            assert_eq!(framing, expected, "{fields:?}");
        }
    }

    #[test]
    fn lines_have_their_whole_end() {
        assert!(Response::read(b"HTTP/1.1 200 OK\nA: b\r\n\r\n").is_err());
        assert!(Response::read(b"HTTP/1.1 200 OK\r\nA: b\n\r\n").is_err());
        assert!(Response::read(b"HTTP/1.1 200 OK\r\nA: b\rC: d\r\n\r\n").is_err());
        for first in ["HTTP/2 200", "HTTP/1.1 20", "HTTP/1.1 099", "HTTP/1.1 600", "hello", ""] {
            assert!(Response::read(format!("{first}\r\n\r\n").as_bytes()).is_err(), "{first}");
        }
        for first in ["GET / HTTP/1.0", "GET  / HTTP/1.1", "GET /", "G@T / HTTP/1.1"] {
            assert!(Request::read(format!("{first}\r\n\r\n").as_bytes()).is_err(), "{first}");
        }
    }

    #[test]
    fn a_head_has_an_end() {
        assert_eq!(end(b"HTTP/1.1 200 OK\r\n"), Ok(None));
        assert!(end(&vec![b'a'; MOST_HEAD]).is_err());
        let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "a: b\r\n".repeat(MOST_FIELDS + 1));
        assert!(Response::read(many.as_bytes()).is_err());
    }
}
