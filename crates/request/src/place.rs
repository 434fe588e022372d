//! Arguments that name a place: a path, a host, a URL, a method. Each has one spelling, made once and
//! from the text alone; it is what is judged and what is executed.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::schema::Mark;

/// Where a run sees its workspace. Absolute paths below it are the same as relative ones.
pub const WORKSPACE: &str = "/work";
/// Most bytes of a path, and of one of its parts, as the kernel has them.
const PATH_MOST: usize = 4095;
const PART_MOST: usize = 255;
/// Most characters of a URL.
const URL_MOST: usize = 8192;
/// Most characters of a host's name, and of one of its parts (RFC 1035).
const HOST_MOST: usize = 253;
const LABEL_MOST: usize = 63;
/// The methods there are; what tunnels or echoes is not among them.
const METHODS: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];

/// Why a place was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadPlace {
    #[error("it is empty")]
    Empty,
    #[error("it has control characters")]
    Control,
    #[error("it has more than {0} bytes")]
    Long(usize),
    #[error("it goes up with `..`")]
    Up,
    #[error("it lies outside of the workspace")]
    Outside,
    #[error("it is not the name of a host, or its address")]
    Host,
    #[error("there is no such method")]
    Method,
    #[error("it is not an address of the web")]
    Url,
    #[error("it names a user")]
    User,
    #[error("its path has `.`, `..`, `//`, or escapes that not everybody reads alike")]
    UrlPath,
}

impl BadPlace {
    pub(crate) fn fix(&self) -> &'static str {
        match self {
            BadPlace::Empty => "name it",
            BadPlace::Control | BadPlace::Long(_) => "choose another",
            BadPlace::Up | BadPlace::Outside => "write it relative to the workspace's root",
            BadPlace::Host => {
                "letters, digits, `-` and `.` of ASCII, and a port if it is not 80 or 443"
            }
            BadPlace::Method => "GET, HEAD, POST, PUT, PATCH, DELETE or OPTIONS",
            BadPlace::Url => "http:// or https://, a host, and a path in plain ASCII",
            BadPlace::User => "leave credentials out",
            BadPlace::UrlPath => "write the path as it is meant",
        }
    }
}

/// The one spelling of an argument of this kind. What is secret has none.
pub(crate) fn spell(mark: Mark, text: &str) -> Result<String, BadPlace> {
    match mark {
        Mark::Path => path(text),
        Mark::Host => host(text),
        Mark::Method => method(text),
        Mark::Url => url(text),
        Mark::Secret => Ok(text.to_owned()),
    }
}

/// A path below the workspace's root: no `.`, no `..`, no empty parts; the root itself is `.`.
pub(crate) fn path(text: &str) -> Result<String, BadPlace> {
    if text.is_empty() {
        return Err(BadPlace::Empty);
    }
    if text.len() > PATH_MOST {
        return Err(BadPlace::Long(PATH_MOST));
    }
    if text.contains(char::is_control) {
        return Err(BadPlace::Control);
    }
    let mut parts: Vec<&str> = text.split('/').filter(|p| !p.is_empty() && *p != ".").collect();
    if parts.contains(&"..") {
        return Err(BadPlace::Up);
    }
    if parts.iter().any(|part| part.len() > PART_MOST) {
        return Err(BadPlace::Long(PART_MOST));
    }
    if text.starts_with('/') {
        let root = WORKSPACE.trim_start_matches('/');
        if parts.first() != Some(&root) {
            return Err(BadPlace::Outside);
        }
        parts.remove(0);
    }
    Ok(if parts.is_empty() { ".".into() } else { parts.join("/") })
}

/// The ports of the web. A host is written without them, and means both.
const USUAL_PORTS: [u16; 2] = [80, 443];

/// A host, and a port if it is not a usual one.
pub(crate) fn host(text: &str) -> Result<String, BadPlace> {
    let (name, port) = split_port(text).map_err(|_| BadPlace::Host)?;
    let port = port.filter(|port| !USUAL_PORTS.contains(port));
    Ok(format!("{}{}", host_name(name)?, port.map(|p| format!(":{p}")).unwrap_or_default()))
}

/// A host in lower case, without the dot at its end; an address as the standard library writes it.
fn host_name(text: &str) -> Result<String, BadPlace> {
    if let Some(inner) = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        let address: Ipv6Addr = inner.parse().map_err(|_| BadPlace::Host)?;
        return Ok(format!("[{address}]"));
    }
    let name = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
    let is_label = |label: &str| {
        let plain = |c: u8| c.is_ascii_alphanumeric() || c == b'-' || c == b'_';
        !label.is_empty()
            && label.len() <= LABEL_MOST
            && label.bytes().all(plain)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    if name.len() > HOST_MOST || !name.split('.').all(is_label) {
        return Err(BadPlace::Host);
    }
    // What ends in a number is an address to every resolver, in spellings such as 0x7f.1 or 2130706433.
    let last = name.rsplit('.').next().unwrap_or_default();
    let numeric = last.bytes().all(|b| b.is_ascii_digit())
        || last.strip_prefix("0x").is_some_and(|hex| hex.bytes().all(|b| b.is_ascii_hexdigit()));
    if numeric {
        let address: Ipv4Addr = name.parse().map_err(|_| BadPlace::Host)?;
        return Ok(address.to_string());
    }
    Ok(name)
}

pub(crate) fn method(text: &str) -> Result<String, BadPlace> {
    let upper = text.to_ascii_uppercase();
    match METHODS.contains(&upper.as_str()) {
        true => Ok(upper),
        false => Err(BadPlace::Method),
    }
}

/// A URL whose bytes are those that go out: scheme and host in lower case, no usual port, no fragment.
pub(crate) fn url(text: &str) -> Result<String, BadPlace> {
    if text.len() > URL_MOST {
        return Err(BadPlace::Long(URL_MOST));
    }
    if !text.bytes().all(|b| b.is_ascii_graphic())
        || text.contains(['\\', '"', '<', '>', '`', '{', '}', '|', '^'])
    {
        return Err(BadPlace::Url);
    }
    let (scheme, rest) = text.split_once("://").ok_or(BadPlace::Url)?;
    let scheme = scheme.to_ascii_lowercase();
    let usual_port = match scheme.as_str() {
        "http" => 80,
        "https" => 443,
        _ => return Err(BadPlace::Url),
    };
    let rest = rest.split('#').next().unwrap_or_default();
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at_checked(end).ok_or(BadPlace::Url)?;
    if authority.contains('@') {
        return Err(BadPlace::User);
    }
    let (name, port) = split_port(authority)?;
    let port = port.filter(|&port| port != usual_port).map(|p| format!(":{p}")).unwrap_or_default();
    let slash = if path.starts_with('/') { "" } else { "/" };
    check_url_path(path.split('?').next().unwrap_or_default())?;
    Ok(format!("{scheme}://{}{port}{slash}{path}", host_name(name)?))
}

/// The host of a URL in its one spelling, with its port if that is not a usual one.
pub(crate) fn host_of_url(url: &str) -> Option<&str> {
    let authority = url.split_once("://")?.1.split('/').next()?;
    match split_port(authority) {
        Ok((name, Some(port))) if USUAL_PORTS.contains(&port) => Some(name),
        _ => Some(authority),
    }
}

fn split_port(authority: &str) -> Result<(&str, Option<u16>), BadPlace> {
    match authority.rsplit_once(':') {
        Some((name, port)) if !port.ends_with(']') => {
            let plain = !port.starts_with('0') && port.bytes().all(|b| b.is_ascii_digit());
            let port = if plain { port.parse().ok() } else { None };
            port.map(|port| (name, Some(port))).ok_or(BadPlace::Url)
        }
        _ => Ok((authority, None)),
    }
}

/// Servers and proxies disagree about dots and about escaped dots, slashes, backslashes and NUL.
fn check_url_path(path: &str) -> Result<(), BadPlace> {
    let lower = path.to_ascii_lowercase();
    let ambiguous = ["%2e", "%2f", "%5c", "%00", "%25"].iter().any(|part| lower.contains(part));
    let dots = lower.split('/').any(|part| {
        let name = part.split(';').next().unwrap_or_default();
        name == "." || name == ".."
    });
    if ambiguous || dots || lower.contains("//") { Err(BadPlace::UrlPath) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_path_lies_below_the_workspace_and_has_one_spelling() {
        for (text, expected) in [
            ("a", "a"),
            ("a/b.txt", "a/b.txt"),
            ("./a//b/./c/", "a/b/c"),
            (".", "."),
            ("./", "."),
            ("/work", "."),
            ("/work/", "."),
            ("//work/./a", "a"),
            ("/work/src/main.rs", "src/main.rs"),
            ("...", "..."),
            ("a/..b/c..", "a/..b/c.."),
            ("work/a", "work/a"),
            ("äö/日本", "äö/日本"),
        ] {
            assert_eq!(path(text).as_deref(), Ok(expected), "{text}");
        }
        for (text, why) in [
            ("", BadPlace::Empty),
            ("..", BadPlace::Up),
            ("a/../b", BadPlace::Up),
            ("/work/../etc/passwd", BadPlace::Up),
            ("/", BadPlace::Outside),
            ("/etc/passwd", BadPlace::Outside),
            ("/workspace/a", BadPlace::Outside),
            ("a\0b", BadPlace::Control),
            ("a\nb", BadPlace::Control),
            (&"x".repeat(256), BadPlace::Long(255)),
            (&"x/".repeat(2048), BadPlace::Long(4095)),
        ] {
            assert_eq!(path(text), Err(why), "{text}");
        }
    }

    #[test]
    fn a_host_has_one_spelling() {
        for (text, expected) in [
            ("Example.COM", "example.com"),
            ("example.com.", "example.com"),
            ("xn--bcher-kva.example", "xn--bcher-kva.example"),
            ("127.0.0.1", "127.0.0.1"),
            ("[::1]", "[::1]"),
            ("[0:0:0:0:0:0:0:1]", "[::1]"),
            ("localhost", "localhost"),
            ("1.example.com", "1.example.com"),
            ("Example.com.:22", "example.com:22"),
            ("a:80", "a"),
            ("a:443", "a"),
            ("[0::1]:443", "[::1]"),
            ("[::1]:8080", "[::1]:8080"),
        ] {
            assert_eq!(host(text).as_deref(), Ok(expected), "{text}");
        }
        for bad in [
            "",
            ".",
            "..",
            "a..b",
            "a b",
            "a/b",
            "a:080",
            "a:0",
            "a:",
            "a:65536",
            "a:1:2",
            "a:*",
            "a@b",
            "bücher.example",
            "-a.example",
            "2130706433",
            "0x7f000001",
            "0x7f.1",
            "0177.0.0.1",
            "127.1",
            "256.0.0.1",
            "1.2.3.4.5",
            "::1",
            "[::1%eth0]",
            "[::1",
            "*.example.com",
            "a\0",
            "0x",
            &"a.".repeat(127).repeat(2),
        ] {
            assert_eq!(host(bad), Err(BadPlace::Host), "{bad}");
        }
    }

    #[test]
    fn tool_07_tool_08_a_url_has_one_spelling_and_one_host() {
        for (text, expected, name) in [
            ("HTTP://Example.com", "http://example.com/", "example.com"),
            ("https://example.com:443/a?b=/../c", "https://example.com/a?b=/../c", "example.com"),
            ("https://example.com:8443/a#top", "https://example.com:8443/a", "example.com:8443"),
            ("http://example.com:443/", "http://example.com:443/", "example.com"),
            ("http://[::1]:80?x", "http://[::1]/?x", "[::1]"),
            ("http://[::1]:8080/", "http://[::1]:8080/", "[::1]:8080"),
        ] {
            assert_eq!(url(text).as_deref(), Ok(expected), "{text}");
            assert_eq!(host_of_url(expected), Some(name));
        }
        for bad in [
            "",
            "example.com",
            "//example.com",
            "file:///etc/passwd",
            "ftp://a/",
            "http:///",
            "http://",
            "http://user@a/",
            "http://a:b@c/",
            "http://a:0/",
            "http://a:99999/",
            "http://a:/",
            "http://a b/",
            "http://a\\@b/",
            "http://a/\r\nHost: b",
            "http://2130706433/",
            "http://a/../b",
            "http://a/%2e%2e/b",
            "http://a/%252e%252e/",
            "http://a/..;x/b",
            "http://a//b",
            "http://a/%2Fb",
            "http://ä/",
            "http://a#@b/",
            "http://[::1%25eth0]/",
            "javascript:alert(1)",
        ] {
            let result = url(bad);
            // What follows `#` never leaves: the host is `a`.
            assert!(result.is_err() || bad == "http://a#@b/", "{bad}: {result:?}");
        }
    }

    #[test]
    fn tool_07_methods_are_the_usual_ones() {
        assert_eq!(method("get").as_deref(), Ok("GET"));
        for bad in ["", "CONNECT", "TRACE", "GET ", "GET\r\nX: y", "ＧET"] {
            assert_eq!(method(bad), Err(BadPlace::Method), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn a_spelling_is_its_own_spelling(text in "[a-zA-Z0-9./:\\[\\]@#?%é\u{0}-]{0,40}") {
            for one in [path, host, url, method] {
                if let Ok(once) = one(&text) {
                    prop_assert_eq!(one(&once), Ok(once.clone()));
                }
            }
        }

        #[test]
        fn a_path_never_leads_out(text in "(/work)?([/.a]|\\.\\.){0,30}") {
            if let Ok(path) = path(&text) {
                prop_assert!(!path.starts_with('/') && !path.split('/').any(|part| part == ".."));
            }
        }
    }
}
