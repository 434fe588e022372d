//! URLs as hotcell's own client takes them: two schemes, no user, a host in its one spelling.

use std::fmt;

use crate::Host;

/// Longest URL.
const MOST: usize = 8 * 1024;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Url {
    pub(crate) is_secure: bool,
    pub(crate) host: Host,
    pub(crate) port: u16,
    /// Path and query as they are sent.
    pub(crate) target: String,
}

/// Why a text is no URL that is fetched.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadUrl {
    #[error("it is longer than {MOST} bytes")]
    Long,
    #[error("only `http://` and `https://` are fetched")]
    Scheme,
    #[error("a URL with a user or password in it is not fetched: use a header")]
    User,
    #[error("{0}")]
    Host(#[from] crate::BadHost),
    #[error("its port is not a number from 1 to 65535")]
    Port,
    #[error("it has characters that have to be written with `%`")]
    Letters,
}

impl Url {
    pub(crate) fn parse(text: &str) -> Result<Url, BadUrl> {
        if text.len() > MOST {
            return Err(BadUrl::Long);
        }
        let (scheme, rest) = text.split_once("://").ok_or(BadUrl::Scheme)?;
        let is_secure = match scheme.to_ascii_lowercase().as_str() {
            "http" => false,
            "https" => true,
            _ => return Err(BadUrl::Scheme),
        };
        let rest = rest.split('#').next().unwrap_or_default();
        let end = rest.find(['/', '?', '\\']).unwrap_or(rest.len());
        let (authority, target) = rest.split_at_checked(end).ok_or(BadUrl::Letters)?;
        if authority.contains('@') {
            return Err(BadUrl::User);
        }
        let usual = if is_secure { 443 } else { 80 };
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, number(port)?),
            _ => (authority, usual),
        };
        check(target)?;
        let slash = if target.starts_with('/') { "" } else { "/" };
        let target = format!("{slash}{target}");
        Ok(Url { is_secure, host: Host::parse(host)?, port, target })
    }

    /// What a redirect from here leads to.
    pub(crate) fn join(&self, location: &str) -> Result<Url, BadUrl> {
        let location = location.split('#').next().unwrap_or_default();
        if let Some(rest) = location.strip_prefix("//") {
            return Url::parse(&format!("{}://{rest}", self.scheme()));
        }
        let colon = location.find(':');
        let slash = location.find(['/', '?']);
        if colon.is_some_and(|colon| slash.is_none_or(|slash| colon < slash)) {
            return Url::parse(location);
        }
        check(location)?;
        let (path, _) = self.target.split_once('?').unwrap_or((&self.target, ""));
        let target = if location.starts_with('/') {
            plain(location)
        } else if location.starts_with('?') {
            format!("{path}{location}")
        } else if location.is_empty() {
            self.target.clone()
        } else {
            let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
            plain(&format!("{folder}/{location}"))
        };
        if target.len() > MOST {
            return Err(BadUrl::Long);
        }
        Ok(Url { target, ..self.clone() })
    }

    pub(crate) fn path(&self) -> &str {
        self.target.split('?').next().unwrap_or_default()
    }

    /// The same scheme, host and port.
    pub(crate) fn is_with(&self, other: &Url) -> bool {
        (self.is_secure, &self.host, self.port) == (other.is_secure, &other.host, other.port)
    }

    /// As `Host` says it.
    pub(crate) fn authority(&self) -> String {
        let usual = if self.is_secure { 443 } else { 80 };
        if self.port == usual {
            self.host.to_string()
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }

    fn scheme(&self) -> &'static str {
        if self.is_secure { "https" } else { "http" }
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}{}", self.scheme(), self.authority(), self.target)
    }
}

fn number(port: &str) -> Result<u16, BadUrl> {
    let is_plain = !port.starts_with('0') && port.bytes().all(|b| b.is_ascii_digit());
    port.parse().ok().filter(|_| is_plain).ok_or(BadUrl::Port)
}

fn check(target: &str) -> Result<(), BadUrl> {
    let is_plain = |b: u8| b.is_ascii_graphic() && !b"\\\"<>`{}|^".contains(&b);
    if target.bytes().all(is_plain) { Ok(()) } else { Err(BadUrl::Letters) }
}

/// Without `.` and `..` in its path.
fn plain(target: &str) -> String {
    let (path, query) = match target.split_once('?') {
        Some((path, query)) => (path, format!("?{query}")),
        None => (target, String::new()),
    };
    let mut parts: Vec<&str> = Vec::new();
    let mut pieces = path.split('/').skip(1).peekable();
    while let Some(piece) = pieces.next() {
        let is_last = pieces.peek().is_none();
        match piece {
            "." => {}
            ".." => drop(parts.pop()),
            _ => parts.push(piece),
        }
        if is_last && matches!(piece, "." | "..") {
            parts.push("");
        }
    }
    format!("/{}{query}", parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn net_19_net_20_a_url_is_of_two_schemes_and_has_one_host() {
        for (text, expected) in [
            ("http://a.test", "http://a.test/"),
            ("HTTPS://A.Test:443/x?y#z", "https://a.test/x?y"),
            ("http://a.test:8080?q", "http://a.test:8080/?q"),
            ("http://[::1]:80/", "http://[::1]/"),
        ] {
            assert_eq!(Url::parse(text).unwrap().to_string(), expected);
        }
        for text in [
            "file:///etc/passwd",
            "gopher://a.test/",
            "unix:///run/x.sock",
            "ftp://a.test/",
            "a.test",
            "//a.test/",
            "http:a.test",
            "http://",
            "http://a.test@evil.test/",
            "http://user:password@a.test/",
            "http://a.test:0/",
            "http://a.test:080/",
            "http://a.test:/",
            "http://a.test:65536/",
            "http://a.test\\@evil.test/",
            "http://2130706433/",
            "http://a.test/ b",
            "http://a.test/\r\nX: y",
            "http://a.test/ü",
        ] {
            assert!(Url::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_redirect_leads_from_where_it_was() {
        let from = Url::parse("https://a.test/b/c?d").unwrap();
        for (location, expected) in [
            ("http://e.test/f", "http://e.test/f"),
            ("//e.test/f", "https://e.test/f"),
            ("/f?g", "https://a.test/f?g"),
            ("f", "https://a.test/b/f"),
            ("../f", "https://a.test/f"),
            ("../../../f", "https://a.test/f"),
            ("./", "https://a.test/b/"),
            ("?x", "https://a.test/b/c?x"),
            ("", "https://a.test/b/c?d"),
            ("#x", "https://a.test/b/c?d"),
        ] {
            assert_eq!(from.join(location).unwrap().to_string(), expected, "{location}");
        }
        for location in ["file:///etc/passwd", "javascript:1", "/\\e.test", "http://u@e.test/"] {
            assert!(from.join(location).is_err(), "{location}");
        }
    }
}
