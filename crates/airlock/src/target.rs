//! What a request is for: the forms of a target that a proxy has, and the host and port in them.
//!
//! A host is only looked at as far as it takes to tell where it ends. Which name it is, and whether it is one at
//! all, is for hotcell to say: two opinions about that would be one too many.

use crate::wire::{Fault, MOST_HOST, MOST_PATH};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// `http://host/path`, and `https://` for what hotcell is to carry over TLS by itself.
    Absolute { secure: bool, authority: Authority, path: String },
    /// `host:port` of `CONNECT`.
    Tunnel(Authority),
    /// `/path`, to the server of a tunnel.
    Origin { path: String },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Authority {
    pub host: String,
    pub port: u16,
}

impl Authority {
    /// Whether both say the same.
    pub fn is(&self, other: &Authority) -> bool {
        self.port == other.port && self.host.eq_ignore_ascii_case(&other.host)
    }

    /// As it stands in `Host`, where this port is the usual one.
    pub fn shown(&self, usual: u16) -> String {
        if self.port == usual { self.host.clone() } else { format!("{}:{}", self.host, self.port) }
    }
}

/// A host of letters, digits and `-._`, or an IPv6 address in brackets; and a port, or the usual one.
pub fn authority(text: &str, usual: Option<u16>) -> Result<Authority, Fault> {
    let split = match text.strip_prefix('[') {
        Some(inner) => inner.find(']').and_then(|end| text.split_at_checked(end + 2)),
        None => Some(text.find(':').and_then(|at| text.split_at_checked(at)).unwrap_or((text, ""))),
    };
    let (host, rest) = split.ok_or(Fault::Target)?;
    let port = match rest.strip_prefix(':') {
        Some(digits) => port(digits)?,
        None if rest.is_empty() => usual.ok_or(Fault::Target)?,
        None => return Err(Fault::Target),
    };
    if is_host(host) { Ok(Authority { host: host.to_owned(), port }) } else { Err(Fault::Target) }
}

/// Whether it can be a host at all.
pub fn is_host(host: &str) -> bool {
    let inner = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let good = match inner {
        Some(address) => address.chars().all(|c| c.is_ascii_hexdigit() || c == ':' || c == '.'),
        None => host.chars().all(|c| c.is_ascii_alphanumeric() || "-._".contains(c)),
    };
    good && !inner.unwrap_or(host).is_empty() && host.len() <= MOST_HOST
}

/// A path as it is judged: without its query.
pub fn judged(path: &str) -> &str {
    path.split('?').next().unwrap_or_default()
}

pub(crate) fn tunnel(text: &str) -> Result<Target, Fault> {
    authority(text, None).map(Target::Tunnel)
}

pub(crate) fn absolute(text: &str, method: &str) -> Result<Target, Fault> {
    let (scheme, rest) = text.split_once("://").ok_or(Fault::Target)?;
    let secure = match scheme {
        _ if scheme.eq_ignore_ascii_case("http") => false,
        _ if scheme.eq_ignore_ascii_case("https") => true,
        _ => return Err(Fault::Target),
    };
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (host, path) = rest.split_at_checked(end).ok_or(Fault::Target)?;
    let authority = authority(host, Some(if secure { 443 } else { 80 }))?;
    let path = match path {
        "" if method == "OPTIONS" => "*".to_owned(),
        _ if path.starts_with('/') => path.to_owned(),
        _ => format!("/{path}"),
    };
    check_path(&path)?;
    // The port says what lies behind it more clearly than the scheme of a client that has no TLS of its own.
    let secure = secure || authority.port == 443;
    Ok(Target::Absolute { secure, authority, path })
}

pub(crate) fn origin(text: &str, method: &str) -> Result<Target, Fault> {
    let is_all = text == "*" && method == "OPTIONS";
    if !text.starts_with('/') && !is_all {
        return Err(Fault::Target);
    }
    check_path(text)?;
    Ok(Target::Origin { path: text.to_owned() })
}

/// No fragment, and no `\`, which some servers take for `/`.
fn check_path(path: &str) -> Result<(), Fault> {
    if judged(path).len() > MOST_PATH {
        return Err(Fault::Long);
    }
    let good =
        path.bytes().all(|byte| (b'!'..=b'~').contains(&byte) && byte != b'#' && byte != b'\\');
    if good { Ok(()) } else { Err(Fault::Target) }
}

fn port(digits: &str) -> Result<u16, Fault> {
    let plain = !digits.starts_with('0') && digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|_| plain).ok_or(Fault::Target)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is(text: &str) -> Option<(bool, String, u16, String)> {
        match absolute(text, "GET") {
            Ok(Target::Absolute { secure, authority, path }) => {
                Some((secure, authority.host, authority.port, path))
            }
            _ => None,
        }
    }

    #[test]
    fn a_target_says_host_port_and_path() {
        let some =
            |secure, host: &str, port, path: &str| Some((secure, host.into(), port, path.into()));
        assert_eq!(is("http://a.test"), some(false, "a.test", 80, "/"));
        assert_eq!(is("HTTP://a.test?x"), some(false, "a.test", 80, "/?x"));
        assert_eq!(
            is("http://a.test:8080/x?y=http://b/"),
            some(false, "a.test", 8080, "/x?y=http://b/")
        );
        assert_eq!(is("https://a.test/"), some(true, "a.test", 443, "/"));
        assert_eq!(is("http://a.test:443/"), some(true, "a.test", 443, "/"));
        assert_eq!(is("http://[::ffff:7f00:1]:81/"), some(false, "[::ffff:7f00:1]", 81, "/"));
        assert_eq!(
            absolute("http://a.test", "OPTIONS").map(|target| match target {
                Target::Absolute { path, .. } => path,
                _ => String::new(),
            }),
            Ok("*".to_owned())
        );
    }

    #[test]
    fn net_20_a_spelling_is_passed_on_and_what_is_no_host_is_a_fault() {
        for host in
            ["ALLOWED.TEST", "allowed.test.", "xn--a", "under_score.test", "127.1", "0x7f000001"]
        {
            assert_eq!(
                is(&format!("http://{host}/")).map(|(_, host, ..)| host),
                Some(host.to_owned())
            );
            assert!(tunnel(&format!("{host}:443")).is_ok());
        }
        let long = "a".repeat(256);
        for host in [
            "allowed.test@evil",
            "evil#allowed.test",
            "me:you@evil",
            "allowed.test\\",
            "allowed.test%2f",
            "ａllowed.test",
            "a,b",
            "[::1",
            "::1",
            "[::1%25lo]",
            "[]",
            "[::1]x",
            "a:80:80",
            "a:",
            "a:0",
            "a:080",
            "a:+80",
            "a:65536",
            "a:80x",
            "*",
            "",
            long.as_str(),
        ] {
            assert_eq!(absolute(&format!("http://{host}/"), "GET"), Err(Fault::Target), "{host}");
            assert_eq!(tunnel(&format!("{host}:443")), Err(Fault::Target), "{host}");
        }
    }

    #[test]
    fn what_a_proxy_is_not_asked_is_a_fault() {
        for target in [
            "/",
            "*",
            "a.test",
            "a.test:80",
            "ftp://a.test/",
            "file:///etc/passwd",
            "http:/a.test/",
            "http:///x",
            "//a.test/",
            "http://a.test/x#y",
            "http://a.test/\\x",
            "http://a.test/\u{e4}",
            "",
        ] {
            assert_eq!(absolute(target, "GET"), Err(Fault::Target), "{target}");
        }
        for target in ["a.test", "http://a.test:443", "a.test:443/", ":443", "a.test:https"] {
            assert_eq!(tunnel(target), Err(Fault::Target), "{target}");
        }
        for target in ["http://a.test/", "x", "*", "", "/x#y"] {
            assert_eq!(origin(target, "GET"), Err(Fault::Target), "{target}");
        }
        let long = format!("http://a.test/{}", "x".repeat(MOST_PATH));
        assert_eq!(absolute(&long, "GET"), Err(Fault::Long));
        assert!(absolute(&format!("http://a.test/?{}", "x".repeat(MOST_PATH)), "GET").is_ok());
    }
}
