//! Where a secret may go, and who may take it there.

use std::collections::BTreeSet;

use hotcell_glob::{BadHost, HostPattern};

/// Most hosts and tools of one secret.
pub const MOST_HOSTS: usize = 16;
pub const MOST_TOOLS: usize = 16;
/// Longest name of a tool, in bytes.
const MOST_NAME: usize = 128;

/// Hosts that a secret may be sent to, and tools that may use it. There is always a host. Without a tool it is
/// for whoever is at the command line, and for nobody else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Binding {
    hosts: Vec<HostPattern>,
    tools: BTreeSet<String>,
}

/// Why a secret cannot be bound to that.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadBinding {
    #[error("it is bound to no host, and could go nowhere")]
    NoHost,
    #[error("a secret is bound to {MOST_HOSTS} hosts and {MOST_TOOLS} tools at most")]
    Many,
    #[error("`{0}` is no host: {1}")]
    Host(String, BadHost),
    #[error("`{0}` is every host of a domain that anybody can have one in")]
    Wide(String),
    #[error("`{0}` is every port, and whoever listens at one of them would have the secret")]
    Ports(String),
    #[error("`{0}` is not the name of a tool")]
    Tool(String),
}

impl Binding {
    /// Hosts are written as policies write them: `api.example.com`, `*.example.com`, `host:8443`.
    pub fn new<'a>(
        hosts: impl IntoIterator<Item = &'a str>,
        tools: impl IntoIterator<Item = &'a str>,
    ) -> Result<Binding, BadBinding> {
        let mut all: Vec<HostPattern> = Vec::new();
        for text in hosts {
            let host = HostPattern::parse(text);
            let host = host.map_err(|why| BadBinding::Host(text.to_owned(), why))?;
            if text.strip_prefix("*.").is_some_and(|domain| !domain.contains('.')) {
                return Err(BadBinding::Wide(text.to_owned()));
            }
            if text.ends_with(":*") {
                return Err(BadBinding::Ports(text.to_owned()));
            }
            if !all.contains(&host) {
                all.push(host);
            }
        }
        all.sort_by(|a, b| a.as_str().cmp(b.as_str()));
        let tools: BTreeSet<String> = tools.into_iter().map(str::to_owned).collect();
        if let Some(bad) = tools.iter().find(|name| !is_tool(name)) {
            return Err(BadBinding::Tool(bad.clone()));
        }
        if all.is_empty() {
            return Err(BadBinding::NoHost);
        }
        if all.len() > MOST_HOSTS || tools.len() > MOST_TOOLS {
            return Err(BadBinding::Many);
        }
        Ok(Binding { hosts: all, tools })
    }

    pub fn hosts(&self) -> impl Iterator<Item = &str> {
        self.hosts.iter().map(HostPattern::as_str)
    }

    pub fn tools(&self) -> impl Iterator<Item = &str> {
        self.tools.iter().map(String::as_str)
    }

    /// Whether it is for this host, which is written as policies write it: with its port, if that is neither
    /// 80 nor 443.
    pub fn has_host(&self, host: &str) -> bool {
        self.hosts.iter().any(|pattern| pattern.matches(host))
    }

    /// Whether it is for this host at any port.
    pub fn has_name(&self, host: &str) -> bool {
        let of_name = |pattern: &HostPattern| {
            let name = match pattern.as_str().rsplit_once(':') {
                Some((name, port)) if !port.ends_with(']') => name,
                _ => pattern.as_str(),
            };
            HostPattern::parse(name).is_ok_and(|pattern| pattern.and_ports().matches(host))
        };
        self.hosts.iter().any(of_name)
    }

    pub fn has_tool(&self, tool: &str) -> bool {
        self.tools.contains(tool)
    }

    /// Whether tools are named.
    pub fn names_tools(&self) -> bool {
        !self.tools.is_empty()
    }

    /// In one spelling, for rows.
    pub(crate) fn texts(&self) -> (String, String) {
        let tools: Vec<&str> = self.tools().collect();
        (self.hosts().collect::<Vec<_>>().join(" "), tools.join(" "))
    }

    pub(crate) fn read(hosts: &str, tools: &str) -> Option<Binding> {
        let words = |text| str::split_ascii_whitespace(text);
        let read = Binding::new(words(hosts), words(tools)).ok()?;
        (read.texts() == (hosts.to_owned(), tools.to_owned())).then_some(read)
    }
}

fn is_tool(name: &str) -> bool {
    let is_fine =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.' | b'/');
    (1..=MOST_NAME).contains(&name.len()) && name.bytes().all(is_fine)
}
