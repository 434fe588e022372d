//! Patterns of hosts: one host, or all below a domain.

use std::collections::HashMap;
use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// A host (`example.com`, `127.0.0.1`, `[::1]`), or `*.` and the domain of hosts: `*.example.com` is every
/// host below that domain, however deep, and not the domain itself. Addresses match only as a whole.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct HostPattern {
    text: Box<str>,
    below: bool,
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
    #[error("it is not the name of a host: letters, digits, `-`, `_` and `.`, and no port")]
    Name,
}

/// Longest name of a host, and of one of its labels.
const HOST_MOST: usize = 253;
const LABEL_MOST: usize = 63;

impl HostPattern {
    pub fn parse(text: &str) -> Result<HostPattern, BadHost> {
        let below = text.strip_prefix("*.");
        let host = below.unwrap_or(text);
        let is_address = check(host)?;
        if is_address && below.is_some() {
            return Err(BadHost::Address);
        }
        Ok(HostPattern { text: text.into(), below: below.is_some() })
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether it matches a host in its one spelling.
    pub fn matches(&self, host: &str) -> bool {
        if self.below { is_below(host, self.name()) } else { host == self.name() }
    }

    /// Whether some host matches both.
    pub fn intersects(&self, other: &HostPattern) -> bool {
        let (a, b) = (self.name(), other.name());
        match (self.below, other.below) {
            (false, _) => other.matches(a),
            (_, false) => self.matches(b),
            (true, true) => a == b || is_below(a, b) || is_below(b, a),
        }
    }

    /// Whether every host that matches the other matches this one.
    pub fn covers(&self, other: &HostPattern) -> bool {
        match other.below {
            false => self.matches(other.name()),
            true => self.below && (self.name() == other.name() || self.matches(other.name())),
        }
    }

    /// Without `*.`.
    fn name(&self) -> &str {
        self.text.strip_prefix("*.").unwrap_or(&self.text)
    }
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
    here: Vec<T>,
    below: Vec<T>,
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
        values.push(value);
    }

    /// Calls `found` with the value of every pattern that matches, in no particular order.
    pub fn each_match<'a>(&'a self, host: &str, mut found: impl FnMut(&'a T)) {
        let mut node = self;
        for label in host.rsplit('.') {
            // A label is left, so that the host is below what was passed.
            node.below.iter().for_each(&mut found);
            let Some(next) = node.labels.get(label) else { return };
            node = next;
        }
        node.here.iter().for_each(&mut found);
    }
}
