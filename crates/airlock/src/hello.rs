//! The first thing that a TLS client says: for which host it wants the other side.
//!
//! Only the first greeting is looked at. A server that asks for a second one (HelloRetryRequest) has to check
//! by itself that its name is still the same.

use std::net::Ipv4Addr;

/// Longest greeting. Those of browsers, with keys that resist quantum computers, have about 2 KB.
pub const MOST_HELLO: usize = 16 * 1024;
/// Bytes before the content of a record, and before that of a message of the handshake.
const RECORD: usize = 5;
const MESSAGE: usize = 4;

const SERVER_NAME: u16 = 0;
const ENCRYPTED_CLIENT_HELLO: u16 = 0xfe0d;

/// It is not a greeting of TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotTls;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hello {
    /// The name in the open.
    pub name: Option<String>,
    /// There is another one that nobody on the way can read. Servers of many hosts may go by that one alone.
    pub encrypted: bool,
}

impl Hello {
    /// Whether it is for this host, of which a client names no address.
    pub fn is_for(&self, host: &str) -> bool {
        let host = host.strip_suffix('.').unwrap_or(host);
        let address = host.starts_with('[') || host.parse::<Ipv4Addr>().is_ok();
        match &self.name {
            Some(name) => !address && name.eq_ignore_ascii_case(host),
            None => address,
        }
    }
}

/// What the bytes so far say; nothing if more have to come.
pub fn hello(bytes: &[u8]) -> Result<Option<Hello>, NotTls> {
    let mut message = Vec::new();
    let mut rest = bytes;
    while let Some((content, after)) = record(rest)? {
        message.extend(content);
        rest = after;
        if message.len() > MOST_HELLO {
            return Err(NotTls);
        }
        // A client that has said this much waits for an answer: nothing may stand behind it.
        if let Some(length) = announced(&message)? {
            match message.len().checked_sub(MESSAGE + length) {
                None => {}
                Some(0) => return body(message.get(MESSAGE..).unwrap_or_default()).map(Some),
                Some(_) => return Err(NotTls),
            }
        }
    }
    Ok(None)
}

/// A part, and what comes after it.
type Split<'a> = (&'a [u8], &'a [u8]);

/// The content of the next record of a handshake, and what comes after it.
fn record(bytes: &[u8]) -> Result<Option<Split<'_>>, NotTls> {
    if bytes.first().is_some_and(|&kind| kind != 22)
        || bytes.get(1).is_some_and(|&major| major != 3)
    {
        return Err(NotTls);
    }
    let Some((header, rest)) = bytes.split_first_chunk::<RECORD>() else { return Ok(None) };
    let [_, _, _, high, low] = *header;
    let length = usize::from(u16::from_be_bytes([high, low]));
    if length == 0 || length > MOST_HELLO {
        return Err(NotTls);
    }
    Ok(rest.split_at_checked(length))
}

/// The length of a greeting, once it is there.
fn announced(message: &[u8]) -> Result<Option<usize>, NotTls> {
    match message {
        [1, 0, high, low, ..] => Ok(Some(usize::from(u16::from_be_bytes([*high, *low])))),
        [1] | [1, 0] | [1, 0, _] => Ok(None),
        _ => Err(NotTls),
    }
}

fn body(bytes: &[u8]) -> Result<Hello, NotTls> {
    let mut reader = Reader { rest: bytes };
    // The version of old, and a random number.
    reader.take(2 + 32)?;
    let session = usize::from(reader.byte()?);
    let suites = reader.take(session).and_then(|_| reader.short())?;
    reader.take(usize::from(suites))?;
    let compressions = usize::from(reader.byte()?);
    reader.take(compressions)?;
    let length = usize::from(reader.short()?);
    let mut extensions = Reader { rest: reader.take(length)? };
    if session > 32
        || suites == 0
        || suites % 2 == 1
        || compressions == 0
        || !reader.rest.is_empty()
    {
        return Err(NotTls);
    }
    let mut hello = Hello { name: None, encrypted: false };
    let mut seen = Vec::new();
    while !extensions.rest.is_empty() {
        let kind = extensions.short()?;
        let length = usize::from(extensions.short()?);
        let content = extensions.take(length)?;
        if seen.contains(&kind) {
            return Err(NotTls);
        }
        // More than there are kinds is nobody's greeting.
        seen.push(kind);
        if seen.len() > 128 {
            return Err(NotTls);
        }
        match kind {
            SERVER_NAME => hello.name = Some(name(content)?),
            ENCRYPTED_CLIENT_HELLO => hello.encrypted = true,
            _ => {}
        }
    }
    Ok(hello)
}

/// A list of one name of a host.
fn name(content: &[u8]) -> Result<String, NotTls> {
    let mut reader = Reader { rest: content };
    let (whole, kind, length) = (reader.short()?, reader.byte()?, reader.short()?);
    let name = reader.take(usize::from(length))?;
    let one = usize::from(whole) == content.len().saturating_sub(2) && reader.rest.is_empty();
    let good = name.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(byte));
    if kind != 0 || !one || !good || name.is_empty() || name.len() > 255 {
        return Err(NotTls);
    }
    String::from_utf8(name.to_vec()).map_err(|_| NotTls)
}

struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], NotTls> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(NotTls)?;
        self.rest = rest;
        Ok(taken)
    }

    fn byte(&mut self) -> Result<u8, NotTls> {
        let (first, rest) = self.rest.split_first().ok_or(NotTls)?;
        self.rest = rest;
        Ok(*first)
    }

    fn short(&mut self) -> Result<u16, NotTls> {
        Ok(u16::from_be_bytes([self.byte()?, self.byte()?]))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn extension(kind: u16, content: &[u8]) -> Vec<u8> {
        let length = u16::try_from(content.len()).unwrap();
        [&kind.to_be_bytes(), &length.to_be_bytes(), content].concat()
    }

    fn sni(name: &str) -> Vec<u8> {
        let length = u16::try_from(name.len()).unwrap();
        let list = [&(length + 3).to_be_bytes()[..], &[0], &length.to_be_bytes(), name.as_bytes()];
        extension(SERVER_NAME, &list.concat())
    }

    fn message(extensions: &[Vec<u8>]) -> Vec<u8> {
        let extensions = extensions.concat();
        let mut body = vec![3, 3];
        body.extend([7; 32]);
        body.extend([0, 0, 2, 0x13, 1, 1, 0]);
        body.extend(u16::try_from(extensions.len()).unwrap().to_be_bytes());
        body.extend(extensions);
        let length = u32::try_from(body.len()).unwrap().to_be_bytes();
        [&[1], &length[1..], &body].concat()
    }

    /// A message in records of this size.
    fn records(message: &[u8], size: usize) -> Vec<u8> {
        let record = |part: &[u8]| {
            [&[22, 3, 1], &u16::try_from(part.len()).unwrap().to_be_bytes()[..], part].concat()
        };
        message.chunks(size).flat_map(record).collect()
    }

    fn greeting(extensions: &[Vec<u8>]) -> Vec<u8> {
        records(&message(extensions), 4096)
    }

    #[test]
    fn net_08_a_greeting_says_its_host_however_it_is_cut() {
        let message = message(&[extension(43, &[2, 3, 4]), sni("A.test")]);
        for size in [1, 2, 3, 7, 4096] {
            let bytes = records(&message, size);
            for cut in 0..bytes.len() {
                assert_eq!(hello(&bytes[..cut]), Ok(None), "{size} {cut}");
            }
            let hello = hello(&bytes).unwrap().unwrap();
            assert_eq!(hello, Hello { name: Some("A.test".into()), encrypted: false });
            assert!(hello.is_for("a.test") && hello.is_for("a.test.") && !hello.is_for("b.test"));
            assert!(!hello.is_for("x.a.test") && !hello.is_for("test"));
        }
    }

    #[test]
    fn net_08_a_host_has_its_name_and_an_address_has_none() {
        let named = |name: &str| hello(&greeting(&[sni(name)])).unwrap().unwrap();
        let nameless = hello(&greeting(&[])).unwrap().unwrap();
        assert!(!nameless.is_for("a.test"));
        assert!(nameless.is_for("192.0.2.1") && nameless.is_for("[::1]"));
        assert!(!named("192.0.2.1").is_for("192.0.2.1"));
        let ech = extension(ENCRYPTED_CLIENT_HELLO, &[0; 40]);
        let hidden = hello(&greeting(&[sni("front.test"), ech])).unwrap().unwrap();
        assert!(hidden.encrypted && !hidden.is_for("a.test") && hidden.is_for("front.test"));
    }

    #[test]
    fn net_09_what_is_not_a_greeting_is_known_by_its_first_bytes() {
        for bytes in [
            &b"SSH-2.0-OpenSSH_9.6\r\n"[..],
            b"GET / HTTP/1.1\r\n",
            b"\x80\x2e\x01\x03\x01",
            b"\x16\x02",
            b"\x16\x03\x01\x00\x00",
            b"\x16\x03\x01\xff\xff",
            b"\x16\x03\x01\x00\x04\x02\x00\x00\x00",
            b"\x16\x03\x01\x00\x04\x01\x01\x00\x00",
            b"\x15\x03\x01\x00\x02\x02\x28",
            b"\0",
        ] {
            assert_eq!(hello(bytes), Err(NotTls), "{bytes:x?}");
        }
    }

    #[test]
    fn a_greeting_that_says_things_twice_or_half_is_none() {
        let two = [&[0, 8, 0, 0, 1, b'a', 0, 0, 1, b'b'][..]].concat();
        for extensions in [
            vec![sni("a.test"), sni("b.test")],
            vec![extension(SERVER_NAME, &two)],
            vec![extension(SERVER_NAME, &[0, 4, 1, 0, 1, b'a'])],
            vec![extension(SERVER_NAME, &[0, 9, 0, 0, 1, b'a'])],
            vec![extension(SERVER_NAME, &[])],
            vec![sni("a.test\0.evil")],
            vec![sni("")],
            vec![vec![0, 43, 0, 9, 1]],
        ] {
            assert_eq!(hello(&greeting(&extensions)), Err(NotTls), "{extensions:x?}");
        }
        let mut more = message(&[sni("a.test")]);
        more.push(0);
        assert_eq!(hello(&records(&more, 4096)), Err(NotTls));
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_greeting_or_none(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let content = [&[22, 3, 1, 0, 200, 1, 0, 0, 196][..], &bytes].concat();
            for bytes in [bytes, content] {
                if let Ok(Some(hello)) = hello(&bytes) {
                    prop_assert!(hello.name.is_none_or(|name| name.is_ascii()));
                }
            }
        }
    }
}
