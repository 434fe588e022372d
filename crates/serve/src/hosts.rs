//! Which names this server answers to. A page that a browser got from elsewhere can be made to ask a server
//! on the reader's own machine, under a name that its author chose (DNS rebinding): such a request names
//! another host than ours, or says where it comes from.

use std::net::{IpAddr, SocketAddr};

use axum::http::header::{HOST, ORIGIN};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, StatusCode, Uri};

use crate::problem::Trouble;

/// The names and ports that are ours.
#[derive(Debug, Clone)]
pub(crate) struct Hosts {
    listens: SocketAddr,
    /// That the operator gave besides, in lower case.
    names: Vec<String>,
}

impl Hosts {
    pub(crate) fn new(listens: SocketAddr, names: &[String]) -> Hosts {
        Hosts { listens, names: names.iter().map(|name| name.to_ascii_lowercase()).collect() }
    }

    pub(crate) fn check(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), Trouble> {
        let host = one(headers, HOST.as_str())?.ok_or_else(|| {
            Trouble::bad_request("the request names no host", "there is no Host header")
        })?;
        let named = uri.authority().map(Authority::as_str).into_iter().chain([host]);
        for name in named {
            if !self.is_ours(name) {
                let why = "it names a host that this server does not answer to";
                let fix = "ask for the address that the server printed, or have `--host` name it";
                let status = StatusCode::MISDIRECTED_REQUEST;
                let what = "this is another server";
                return Err(Trouble::new(status, "wrong-host", what, why, fix).last());
            }
        }
        self.check_origin(headers)
    }

    /// Only pages of this server itself may ask, and there are none yet.
    fn check_origin(&self, headers: &HeaderMap) -> Result<(), Trouble> {
        let origin = one(headers, ORIGIN.as_str())?;
        let is_ours =
            |origin: &str| origin.strip_prefix("http://").is_some_and(|host| self.is_ours(host));
        let site = one(headers, "sec-fetch-site")?;
        let is_foreign = site.is_some_and(|site| matches!(site, "cross-site" | "same-site"));
        if origin.is_none_or(is_ours) && !is_foreign {
            return Ok(());
        }
        let why = "it comes from a page of another site";
        let fix = "ask from a program; pages of other sites are not served";
        let what = "the request is refused";
        Err(Trouble::new(StatusCode::FORBIDDEN, "wrong-origin", what, why, fix).last())
    }

    fn is_ours(&self, authority: &str) -> bool {
        let Ok(authority) = authority.parse::<Authority>() else { return false };
        if authority.as_str().contains('@') {
            return false;
        }
        let port = authority.port_u16().unwrap_or(80);
        let host = authority.host().to_ascii_lowercase();
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        // One dot at the end is the same name.
        let bare = bare.strip_suffix('.').unwrap_or(bare);
        if self.names.iter().any(|name| name == bare) {
            return true;
        }
        if port != self.listens.port() {
            return false;
        }
        let own = self.listens.ip();
        match bare.parse::<IpAddr>() {
            // An address cannot be made to lead elsewhere.
            Ok(address) => {
                own.is_unspecified()
                    || own == address
                    || (own.is_loopback() && address.is_loopback())
            }
            Err(_) => bare == "localhost" && (own.is_loopback() || own.is_unspecified()),
        }
    }
}

/// A header that may be there once.
pub(crate) fn one<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<&'a str>, Trouble> {
    let mut all = headers.get_all(name).iter();
    let (first, second) = (all.next(), all.next());
    let odd = |why: &str| Trouble::bad_request(format!("the header `{name}` cannot be used"), why);
    match (first, second) {
        (None, _) => Ok(None),
        (Some(_), Some(_)) => Err(odd("it is there twice")),
        (Some(one), None) => one.to_str().map(Some).map_err(|_| odd("it is not plain text")),
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn status(listens: &str, names: &[&str], headers: &[(&'static str, &str)]) -> u16 {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        let hosts = Hosts::new(listens.parse().unwrap(), &names);
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, HeaderValue::from_str(value).unwrap());
        }
        hosts.check(&Uri::from_static("/"), &map).map_or_else(|t| t.status().as_u16(), |()| 200)
    }

    #[test]
    fn only_our_own_names_are_answered() {
        let local = "127.0.0.1:80";
        for (listens, host, expected) in [
            ("127.0.0.1:8642", "127.0.0.1:8642", 200),
            ("127.0.0.1:8642", "localhost:8642", 200),
            ("127.0.0.1:8642", "LOCALHOST.:8642", 200),
            ("127.0.0.1:8642", "[::1]:8642", 200),
            ("127.0.0.1:8642", "localhost", 421),
            ("127.0.0.1:8642", "localhost:8643", 421),
            ("127.0.0.1:8642", "evil.example:8642", 421),
            ("127.0.0.1:8642", "127.0.0.1.evil.example:8642", 421),
            ("127.0.0.1:8642", "192.168.1.1:8642", 421),
            ("127.0.0.1:8642", "user@localhost:8642", 421),
            ("127.0.0.1:8642", "", 421),
            (local, "localhost", 200),
            ("0.0.0.0:8642", "192.168.1.1:8642", 200),
            ("0.0.0.0:8642", "evil.example:8642", 421),
            ("192.168.1.1:8642", "192.168.1.1:8642", 200),
            ("192.168.1.1:8642", "192.168.1.2:8642", 421),
            ("192.168.1.1:8642", "localhost:8642", 421),
        ] {
            assert_eq!(status(listens, &[], &[("host", host)]), expected, "{listens} {host}");
        }
        assert_eq!(status("0.0.0.0:1", &["Cell.Example"], &[("host", "cell.example")]), 200);
    }

    #[test]
    fn other_pages_are_refused() {
        let host = ("host", "localhost:1");
        for (header, expected) in [
            (("origin", "http://localhost:1"), 200),
            (("origin", "https://localhost:1"), 403),
            (("origin", "http://evil.example"), 403),
            (("origin", "null"), 403),
            (("sec-fetch-site", "cross-site"), 403),
            (("sec-fetch-site", "none"), 200),
            (("host", "localhost:1"), 400),
        ] {
            assert_eq!(status("127.0.0.1:1", &[], &[host, header]), expected, "{header:?}");
        }
        assert_eq!(status("127.0.0.1:1", &[], &[]), 400);
    }
}
