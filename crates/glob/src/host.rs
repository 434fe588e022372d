//! Patterns of hosts: one host, or all below a domain.

use std::collections::HashMap;
use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// A host (`example.com`, `127.0.0.1`, `[::1]`), or `*.` and the domain of hosts: `*.example.com` is every
/// host below that domain, however deep, and not the domain itself. Addresses match only as a whole. It is
/// about the usual ports of the web, 80 and 443; another one is named after it (`example.com:8443`), and
/// `:*` is every port.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct HostPattern {
    text: Box<str>,
    /// How much of the text is the name.
    name: usize,
    below: bool,
    ports: Ports,
}

/// Which ports of a host a pattern is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Ports {
    /// 80 and 443, with which hosts are written without a port.
    Usual,
    Only(u16),
    All,
}

impl Ports {
    fn have(self, port: Option<u16>) -> bool {
        match self {
            Ports::Usual => port.is_none(),
            Ports::Only(only) => port == Some(only),
            Ports::All => true,
        }
    }

    fn cover(self, other: Ports) -> bool {
        self == Ports::All || self == other
    }
}

/// Why a text is not a pattern of hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadHost {
    #[error("a host is written in lower case")]
    Case,
    #[error("a host is written in ASCII: write `xn--` for other letters")]
    Ascii,
    #[error("a host is not written with a dot at its end")]
    Dot,
    #[error("`*` stands for whole names: write `*.` before a domain, and nowhere else")]
    Star,
    #[error(
        "an address has one spelling, and no hosts below it: write it like `127.0.0.1` or `[::1]`"
    )]
    Address,
    #[error("it is not the name of a host: letters, digits, `-`, `_` and `.`")]
    Name,
    #[error("a port is a number up to 65535, or `*`; 80 and 443 are meant without it")]
    Port,
}

/// Longest name of a host, and of one of its labels.
const HOST_MOST: usize = 253;
const LABEL_MOST: usize = 63;

impl HostPattern {
    pub fn parse(text: &str) -> Result<HostPattern, BadHost> {
        let (pattern, port) = split(text);
        let below = pattern.strip_prefix("*.");
        let host = below.unwrap_or(pattern);
        let is_address = check(host)?;
        if is_address && below.is_some() {
            return Err(BadHost::Address);
        }
        let ports = match port {
            None => Ports::Usual,
            Some("*") => Ports::All,
            Some(port) if port.bytes().any(|b| !b.is_ascii_digit()) => return Err(BadHost::Name),
            Some(port) => Ports::Only(unusual(port).ok_or(BadHost::Port)?),
        };
        Ok(HostPattern { text: text.into(), name: pattern.len(), below: below.is_some(), ports })
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The same, for every port unless it names one.
    pub fn and_ports(self) -> HostPattern {
        match self.ports {
            Ports::Usual => HostPattern { ports: Ports::All, ..self },
            Ports::Only(_) | Ports::All => self,
        }
    }

    /// Whether it matches a host in its one spelling.
    pub fn matches(&self, host: &str) -> bool {
        let (host, port) = host_and_port(host);
        self.matches_name(host) && self.ports.have(port)
    }

    /// Whether some host matches both.
    pub fn intersects(&self, other: &HostPattern) -> bool {
        let (a, b) = (self.name(), other.name());
        let names = match (self.below, other.below) {
            (false, _) => other.matches_name(a),
            (_, false) => self.matches_name(b),
            (true, true) => a == b || is_below(a, b) || is_below(b, a),
        };
        names && (self.ports.cover(other.ports) || other.ports.cover(self.ports))
    }

    /// Whether every host that matches the other matches this one.
    pub fn covers(&self, other: &HostPattern) -> bool {
        let names = match other.below {
            false => self.matches_name(other.name()),
            true => self.below && (self.name() == other.name() || self.matches_name(other.name())),
        };
        names && self.ports.cover(other.ports)
    }

    fn matches_name(&self, host: &str) -> bool {
        if self.below { is_below(host, self.name()) } else { host == self.name() }
    }

    /// Without `*.` and the port.
    fn name(&self) -> &str {
        let pattern = self.text.get(..self.name).unwrap_or_default();
        pattern.strip_prefix("*.").unwrap_or(pattern)
    }
}

/// What stands before the port, and the port.
fn split(host: &str) -> (&str, Option<&str>) {
    match host.rsplit_once(':') {
        // What follows the last colon of a bare address of version 6 is none, but ends in its bracket.
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (host, None),
    }
}

/// A host in its one spelling, and its port if that is not one of the usual ones.
fn host_and_port(host: &str) -> (&str, Option<u16>) {
    let (host, port) = split(host);
    (host, port.and_then(unusual))
}

/// A port in its one spelling that has to be written.
fn unusual(port: &str) -> Option<u16> {
    let number: u16 = port.parse().ok()?;
    let is_plain = !port.starts_with(['0', '+']);
    (is_plain && !matches!(number, 80 | 443)).then_some(number)
}

fn is_below(host: &str, domain: &str) -> bool {
    let rest = host.strip_suffix(domain).and_then(|rest| rest.strip_suffix('.'));
    rest.is_some_and(|rest| !rest.is_empty())
}

/// Whether a host is an address; an error if it is not the one spelling of a host.
fn check(host: &str) -> Result<bool, BadHost> {
    if !host.is_ascii() {
        return Err(BadHost::Ascii);
    }
    if host.contains('*') {
        return Err(BadHost::Star);
    }
    if let Some(inner) = host.strip_prefix('[') {
        let address = inner.strip_suffix(']').and_then(|inner| inner.parse::<Ipv6Addr>().ok());
        let is_plain = address.is_some_and(|address| format!("[{address}]") == host);
        return if is_plain { Ok(true) } else { Err(BadHost::Address) };
    }
    if host.bytes().any(|b| b.is_ascii_uppercase()) {
        return Err(BadHost::Case);
    }
    if host.len() > 1 && host.ends_with('.') {
        return Err(BadHost::Dot);
    }
    if host.len() > HOST_MOST || !host.split('.').all(is_label) {
        return Err(BadHost::Name);
    }
    // What ends in a number is an address to every resolver.
    let last = host.rsplit('.').next().unwrap_or_default();
    let is_hex =
        last.strip_prefix("0x").is_some_and(|hex| hex.bytes().all(|b| b.is_ascii_hexdigit()));
    if !is_hex && !last.bytes().all(|b| b.is_ascii_digit()) {
        return Ok(false);
    }
    match host.parse::<Ipv4Addr>() {
        Ok(_) => Ok(true),
        Err(_) => Err(BadHost::Address),
    }
}

fn is_label(label: &str) -> bool {
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
    !label.is_empty()
        && label.len() <= LABEL_MOST
        && label.bytes().all(is_plain)
        && !label.starts_with('-')
        && !label.ends_with('-')
}

impl FromStr for HostPattern {
    type Err = BadHost;

    fn from_str(text: &str) -> Result<HostPattern, BadHost> {
        HostPattern::parse(text)
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Many patterns at once, each with a value: a tree over labels, from the last to the first.
#[derive(Debug, Clone)]
pub struct HostSet<T> {
    labels: HashMap<Box<str>, HostSet<T>>,
    here: Vec<(Ports, T)>,
    below: Vec<(Ports, T)>,
}

impl<T> Default for HostSet<T> {
    fn default() -> HostSet<T> {
        HostSet { labels: HashMap::new(), here: Vec::new(), below: Vec::new() }
    }
}

impl<T> HostSet<T> {
    pub fn new() -> HostSet<T> {
        HostSet::default()
    }

    pub fn insert(&mut self, pattern: &HostPattern, value: T) {
        let mut node = self;
        for label in pattern.name().rsplit('.') {
            node = node.labels.entry(label.into()).or_default();
        }
        let values = if pattern.below { &mut node.below } else { &mut node.here };
        values.push((pattern.ports, value));
    }

    /// Calls `found` with the value of every pattern that matches, in no particular order.
    pub fn each_match<'a>(&'a self, host: &str, mut found: impl FnMut(&'a T)) {
        let (host, port) = host_and_port(host);
        let mut each = |values: &'a [(Ports, T)]| {
            let here = values.iter().filter(|(ports, _)| ports.have(port));
            here.for_each(|(_, value)| found(value));
        };
        let mut node = self;
        for label in host.rsplit('.') {
            // A label is left, so that the host is below what was passed.
            each(&node.below);
            let Some(next) = node.labels.get(label) else { return };
            node = next;
        }
        each(&node.here);
    }
}
