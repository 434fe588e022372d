//! SOCKS 5 (RFC 1928) with user and password (RFC 1929): what a client says, one message at a time.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::target::{Authority, is_host};

/// The one method that there is: user and password.
const PASSWORD: u8 = 2;
/// Longest message: the version, and a user and a password with their lengths.
pub const MOST_MESSAGE: usize = 3 + 2 * 255;

/// How a request ended, in its words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reply {
    Granted,
    Failed,
    NotAllowed,
    Unreachable,
    NoSuchCommand,
    NoSuchAddress,
}

/// What the client says cannot be followed, and what it is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refused(pub &'static [u8]);

pub const CHOSEN: &[u8] = &[5, PASSWORD];
pub const WELCOME: &[u8] = &[1, 0];
pub const UNWELCOME: &[u8] = &[1, 1];
const NO_METHOD: &[u8] = &[5, 0xff];

/// A message, and how many bytes it has. Nothing if more have to come.
pub type Step<T> = Result<Option<(T, usize)>, Refused>;

impl Reply {
    /// With an address of zeros: where a connection comes from is nobody's business.
    pub fn bytes(self) -> &'static [u8] {
        match self {
            Reply::Granted => &[5, 0, 0, 1, 0, 0, 0, 0, 0, 0],
            Reply::Failed => &[5, 1, 0, 1, 0, 0, 0, 0, 0, 0],
            Reply::NotAllowed => &[5, 2, 0, 1, 0, 0, 0, 0, 0, 0],
            Reply::Unreachable => &[5, 4, 0, 1, 0, 0, 0, 0, 0, 0],
            Reply::NoSuchCommand => &[5, 7, 0, 1, 0, 0, 0, 0, 0, 0],
            Reply::NoSuchAddress => &[5, 8, 0, 1, 0, 0, 0, 0, 0, 0],
        }
    }
}

/// Which methods a client offers: the one that is taken has to be among them.
pub fn greeting(bytes: &[u8]) -> Step<()> {
    match bytes {
        [] | [5] => Ok(None),
        [5, count, rest @ ..] => match rest.get(..usize::from(*count)) {
            None => Ok(None),
            Some(methods) if methods.contains(&PASSWORD) => Ok(Some(((), 2 + methods.len()))),
            Some(_) => Err(Refused(NO_METHOD)),
        },
        // It is another protocol or version, whose words are not known.
        _ => Err(Refused(&[])),
    }
}

/// User and password.
pub fn credential(bytes: &[u8]) -> Step<(&[u8], &[u8])> {
    if bytes.first().is_some_and(|&version| version != 1) {
        return Err(Refused(UNWELCOME));
    }
    let both = || {
        let (user, rest) = counted(bytes.get(1..)?)?;
        let (password, _) = counted(rest)?;
        Some(((user, password), 3 + user.len() + password.len()))
    };
    Ok(both())
}

/// Where the client wants to be connected to.
pub fn request(bytes: &[u8]) -> Step<Authority> {
    match bytes.first_chunk::<4>() {
        Some([5, 1, 0, kind @ (1 | 3 | 4)]) => address(*kind, bytes.get(4..).unwrap_or_default()),
        // BIND, UDP ASSOCIATE and what others have thought of.
        Some([5, command, 0, _]) if *command != 1 => Err(Refused(Reply::NoSuchCommand.bytes())),
        Some([5, 1, 0, _]) => Err(Refused(Reply::NoSuchAddress.bytes())),
        Some(_) => Err(Refused(Reply::Failed.bytes())),
        None if bytes.first().is_some_and(|&version| version != 5) => {
            Err(Refused(Reply::Failed.bytes()))
        }
        None => Ok(None),
    }
}

fn address(kind: u8, bytes: &[u8]) -> Step<Authority> {
    let parts = match kind {
        1 => bytes
            .split_first_chunk::<4>()
            .map(|(address, rest)| (Ipv4Addr::from(*address).to_string(), rest)),
        4 => bytes
            .split_first_chunk::<16>()
            .map(|(address, rest)| (format!("[{}]", Ipv6Addr::from(*address)), rest)),
        _ => match counted(bytes) {
            Some((name, rest)) => {
                let name = str::from_utf8(name)
                    .ok()
                    .filter(|name| is_host(name) && !name.starts_with('['));
                Some((name.ok_or(Refused(Reply::Failed.bytes()))?.to_owned(), rest))
            }
            None => None,
        },
    };
    let Some((host, rest)) = parts else { return Ok(None) };
    let Some((port, rest)) = rest.split_first_chunk() else { return Ok(None) };
    match u16::from_be_bytes(*port) {
        0 => Err(Refused(Reply::Failed.bytes())),
        port => Ok(Some((Authority { host, port }, 4 + bytes.len() - rest.len()))),
    }
}

/// As many bytes as the first one says, and what comes after them.
fn counted(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (count, rest) = bytes.split_first()?;
    rest.split_at_checked(usize::from(*count))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn only_user_and_password_are_taken() {
        assert_eq!(greeting(&[5, 1, 2]), Ok(Some(((), 3))));
        assert_eq!(greeting(&[5, 3, 0, 1, 2, 9]), Ok(Some(((), 5))));
        assert_eq!(greeting(&[5, 2, 0]), Ok(None));
        for offer in [&[5, 0][..], &[5, 1, 0], &[5, 2, 0, 1]] {
            assert_eq!(greeting(offer), Err(Refused(NO_METHOD)), "{offer:?}");
        }
        assert_eq!(greeting(&[4, 1, 0, 80]), Err(Refused(&[])));
        assert_eq!(
            credential(&[1, 1, b'u', 2, b'p', b'w', 5]),
            Ok(Some(((&b"u"[..], &b"pw"[..]), 6)))
        );
        assert_eq!(credential(&[1, 3, b'u']), Ok(None));
        assert_eq!(credential(&[5]), Err(Refused(UNWELCOME)));
    }

    #[test]
    fn net_24_nothing_but_a_connection_is_made() {
        let rest = [0, 1, 127, 0, 0, 1, 0, 80];
        for command in [0, 2, 3, 4, 0xf0] {
            let refused = Err(Refused(Reply::NoSuchCommand.bytes()));
            assert_eq!(request(&[&[5, command], &rest[..]].concat()), refused, "{command}");
        }
        assert!(request(&[&[5, 1], &rest[..]].concat()).is_ok_and(|step| step.is_some()));
        assert_eq!(request(&[4, 1]), Err(Refused(Reply::Failed.bytes())));
        assert_eq!(request(&[5, 1, 1, 1]), Err(Refused(Reply::Failed.bytes())));
        assert_eq!(request(&[5, 1, 0, 2]), Err(Refused(Reply::NoSuchAddress.bytes())));
    }

    #[test]
    fn an_address_is_a_host_whatever_its_kind() {
        let is = |kind: u8, bytes: &[u8]| {
            let bytes = [&[5, 1, 0, kind], bytes, &[1, 187, 99]].concat();
            let (authority, length) = request(&bytes).unwrap().unwrap();
            assert_eq!((authority.port, length), (443, bytes.len() - 1));
            for cut in 0..length {
                assert_eq!(request(&bytes[..cut]), Ok(None));
            }
            authority.host
        };
        assert_eq!(is(1, &[192, 0, 2, 1]), "192.0.2.1");
        assert_eq!(is(3, b"\x06A.test"), "A.test");
        assert_eq!(
            is(4, &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, 1]),
            "[::ffff:127.0.0.1]"
        );
    }

    #[test]
    fn net_20_a_name_that_is_no_host_is_refused() {
        for name in ["", "a b", "a@b", "a/b", "a\0b", "[::1]", "::1", "a:80", "\u{e4}"] {
            let length = u8::try_from(name.len()).unwrap();
            let bytes = [&[5, 1, 0, 3, length], name.as_bytes(), &[1, 187]].concat();
            assert_eq!(request(&bytes), Err(Refused(Reply::Failed.bytes())), "{name}");
        }
        assert_eq!(request(&[5, 1, 0, 1, 192, 0, 2, 1, 0, 0]), Err(Refused(Reply::Failed.bytes())));
    }

    proptest! {
        #[test]
        fn any_bytes_have_an_answer(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            if let Ok(Some((_, length))) = greeting(&bytes) {
                prop_assert!(length <= bytes.len());
            }
            if let Ok(Some((_, length))) = credential(&bytes) {
                prop_assert!(length <= bytes.len());
            }
            if let Ok(Some((_, length))) = request(&bytes) {
                prop_assert!(length <= bytes.len());
            }
        }
    }
}
