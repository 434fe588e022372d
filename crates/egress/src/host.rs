//! Names of hosts in one spelling. Whatever a client writes is brought into it or refused, before anybody is
//! asked and before anything is looked up.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// Longest name of a host, and of one of its labels.
const HOST_MOST: usize = 253;
const LABEL_MOST: usize = 63;
/// Longest spelling that is looked at: letters of other scripts take more bytes than what stands for them.
const TEXT_MOST: usize = 1024;

/// A host as policies and certificates name it: lower-case ASCII without a dot at its end (`example.com`,
/// `xn--bcher-kva.example`), or an address (`192.0.2.1`, `[2001:db8::1]`). An IPv6 address that stands for
/// an IPv4 one is that one.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Host {
    text: Box<str>,
    address: Option<IpAddr>,
}

/// Why a text is not the name of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadHost {
    #[error("the name of a host is empty")]
    Empty,
    #[error("the name of a host has at most {HOST_MOST} characters, and {LABEL_MOST} between dots")]
    Long,
    #[error(
        "an address has one spelling: four decimal numbers without leading zeros, or `[…]` around IPv6"
    )]
    Address,
    #[error("a host is written with letters, digits, `-`, `_` and `.`, and nothing else")]
    Letters,
    #[error("the letters of an international name are not those that it is registered with")]
    International,
}

impl Host {
    pub fn parse(text: &str) -> Result<Host, BadHost> {
        if text.is_empty() {
            return Err(BadHost::Empty);
        }
        if text.len() > TEXT_MOST {
            return Err(BadHost::Long);
        }
        if let Some(rest) = text.strip_prefix('[') {
            let inner = rest.strip_suffix(']').ok_or(BadHost::Address)?;
            return inner.parse::<Ipv6Addr>().map(Host::from).map_err(|_| BadHost::Address);
        }
        let name = text.strip_suffix('.').unwrap_or(text);
        let name = if name.is_ascii() { name.to_ascii_lowercase() } else { registered(name)? };
        check(&name)?;
        if is_numeric(&name) {
            return name.parse::<Ipv4Addr>().map(Host::from).map_err(|_| BadHost::Address);
        }
        if name.split('.').any(|label| label.starts_with("xn--")) {
            stands_for_itself(&name)?;
        }
        Ok(Host { text: name.into(), address: None })
    }

    /// With brackets around an IPv6 address.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// If it is an address and no name.
    pub fn address(&self) -> Option<IpAddr> {
        self.address
    }
}

/// What an international name is registered as. A name that only looks like one in ASCII (full-width letters,
/// other dots) is nobody's.
fn registered(name: &str) -> Result<String, BadHost> {
    let ascii = idna::domain_to_ascii(name).map_err(|_| BadHost::International)?;
    let (shown, checked) = idna::domain_to_unicode(&ascii);
    let is_plain = checked.is_ok() && shown == name.to_lowercase();
    if is_plain { Ok(ascii) } else { Err(BadHost::International) }
}

/// `xn--` has to be followed by what some name is registered as.
fn stands_for_itself(name: &str) -> Result<(), BadHost> {
    match idna::domain_to_ascii(name) {
        Ok(ascii) if ascii == name => Ok(()),
        _ => Err(BadHost::International),
    }
}

fn check(name: &str) -> Result<(), BadHost> {
    if name.len() > HOST_MOST || name.split('.').any(|label| label.len() > LABEL_MOST) {
        return Err(BadHost::Long);
    }
    if name.split('.').all(is_label) { Ok(()) } else { Err(BadHost::Letters) }
}

fn is_label(label: &str) -> bool {
    let is_plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'_';
    !label.is_empty()
        && label.bytes().all(is_plain)
        && !label.starts_with('-')
        && !label.ends_with('-')
}

/// What ends in a number is an address to every resolver, in spellings such as `0x7f.1` or `2130706433`.
fn is_numeric(name: &str) -> bool {
    let last = name.rsplit('.').next().unwrap_or_default();
    let is_hex =
        last.strip_prefix("0x").is_some_and(|hex| hex.bytes().all(|b| b.is_ascii_hexdigit()));
    is_hex || last.bytes().all(|b| b.is_ascii_digit())
}

impl From<Ipv4Addr> for Host {
    fn from(address: Ipv4Addr) -> Host {
        Host { text: address.to_string().into(), address: Some(address.into()) }
    }
}

impl From<Ipv6Addr> for Host {
    fn from(address: Ipv6Addr) -> Host {
        match address.to_ipv4_mapped() {
            Some(mapped) => Host::from(mapped),
            None => Host { text: format!("[{address}]").into(), address: Some(address.into()) },
        }
    }
}

impl From<IpAddr> for Host {
    fn from(address: IpAddr) -> Host {
        match address {
            IpAddr::V4(address) => Host::from(address),
            IpAddr::V6(address) => Host::from(address),
        }
    }
}

impl FromStr for Host {
    type Err = BadHost;

    fn from_str(text: &str) -> Result<Host, BadHost> {
        Host::parse(text)
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn net_20_a_host_has_one_spelling() {
        for (text, expected) in [
            ("allowed.test", "allowed.test"),
            ("ALLOWED.TEST", "allowed.test"),
            ("allowed.test.", "allowed.test"),
            ("a_b.allowed.test", "a_b.allowed.test"),
            ("localhost", "localhost"),
            ("bücher.test", "xn--bcher-kva.test"),
            ("BÜCHER.TEST", "xn--bcher-kva.test"),
            ("xn--bcher-kva.test", "xn--bcher-kva.test"),
            ("XN--Bcher-KVA.test", "xn--bcher-kva.test"),
            ("192.0.2.1", "192.0.2.1"),
            ("[2001:DB8::0:1]", "[2001:db8::1]"),
            ("[::ffff:192.0.2.1]", "192.0.2.1"),
            ("[::ffff:c000:201]", "192.0.2.1"),
            (&"a".repeat(63), &"a".repeat(63)),
        ] {
            assert_eq!(Host::parse(text).as_ref().map(Host::as_str), Ok(expected), "{text}");
        }
    }

    #[test]
    fn net_20_odd_names_are_refused() {
        for (text, why) in [
            ("", BadHost::Empty),
            (".", BadHost::Letters),
            ("allowed.test..", BadHost::Letters),
            ("allowed..test", BadHost::Letters),
            (".allowed.test", BadHost::Letters),
            ("allowed.test@evil.test", BadHost::Letters),
            ("evil.test#allowed.test", BadHost::Letters),
            ("evil.test/allowed.test", BadHost::Letters),
            ("evil.test\\allowed.test", BadHost::Letters),
            ("evil.test?allowed.test", BadHost::Letters),
            ("allowed.test:443", BadHost::Letters),
            ("allowed.test ", BadHost::Letters),
            (" allowed.test", BadHost::Letters),
            ("allowed.test\t", BadHost::Letters),
            ("allowed.test\0", BadHost::Letters),
            ("allowed.test\r\n", BadHost::Letters),
            ("allowed%2etest", BadHost::Letters),
            ("*.allowed.test", BadHost::Letters),
            ("*", BadHost::Letters),
            ("-allowed.test", BadHost::Letters),
            ("allowed-.test", BadHost::Letters),
            ("xn--", BadHost::Letters),
            ("xn--a.test", BadHost::International),
            ("xn--allowed-.test", BadHost::Letters),
            ("ａｌｌｏｗｅｄ.test", BadHost::International),
            ("allowed。test", BadHost::International),
            ("allowed\u{ad}.test", BadHost::International),
            ("allowed.te\u{200b}st", BadHost::International),
            ("ⓐllowed.test", BadHost::International),
            (&"a".repeat(64), BadHost::Long),
            (&format!("{}test", "abcdefg.".repeat(32)), BadHost::Long),
            (&"ü".repeat(600), BadHost::Long),
        ] {
            assert_eq!(Host::parse(text), Err(why), "{text:?}");
        }
    }

    #[test]
    fn net_13_an_address_has_one_spelling() {
        for text in [
            "127.1",
            "0",
            "2130706433",
            "0x7f000001",
            "0X7F.1",
            "0177.0.0.1",
            "127.0.0.01",
            "127.0.0.0x1",
            "1.2.3.4.5",
            "256.0.0.1",
            "allowed.1",
            "[::1",
            "[]",
            "[127.0.0.1]",
            "[fe80::1%lo]",
            "[fe80::1%25lo]",
            "[::1]:80",
            "[*]",
        ] {
            assert_eq!(Host::parse(text), Err(BadHost::Address), "{text}");
        }
        assert_eq!(Host::parse("::1"), Err(BadHost::Letters));
        let address = Host::parse("[::ffff:7f00:1]").unwrap().address();
        assert_eq!(address, Some(IpAddr::from([127, 0, 0, 1])));
    }

    proptest! {
        #[test]
        fn what_was_spelled_once_stays(text in "\\PC{0,40}") {
            if let Ok(host) = Host::parse(&text) {
                prop_assert!(host.as_str().is_ascii());
                prop_assert!(!host.as_str().bytes().any(|b| b.is_ascii_uppercase()));
                prop_assert_eq!(Host::parse(host.as_str()), Ok(host.clone()));
            }
        }

        #[test]
        fn case_and_the_last_dot_make_no_difference(name in "[a-z]{1,8}(\\.[a-z]{1,8}){0,3}") {
            let host = Host::parse(&name).unwrap();
            prop_assert_eq!(Host::parse(&name.to_uppercase()).unwrap(), host.clone());
            prop_assert_eq!(Host::parse(&format!("{name}.")).unwrap(), host);
        }

        #[test]
        fn every_address_is_its_own_host(v4 in any::<[u8; 4]>(), v6 in any::<[u8; 16]>()) {
            for address in [IpAddr::from(v4), IpAddr::from(v6)] {
                let host = Host::from(address);
                prop_assert_eq!(host.address(), Some(address.to_canonical()));
                prop_assert_eq!(Host::parse(host.as_str()), Ok(host.clone()));
            }
        }
    }
}
