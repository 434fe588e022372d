//! Where a collector listens.

use std::fmt;
use std::str::FromStr;

use axum::http::Uri;

/// What a collector has the traces at, if nothing else is said.
const USUAL_PATH: &str = "/v1/traces";
const USUAL_PORT: u16 = 4318;
/// Longest, in bytes.
const MOST: usize = 2048;

/// A collector of OpenTelemetry that takes OTLP over plain HTTP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// A name or an address; one of version 6 without its brackets.
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) path: String,
}

/// Why there is none.
#[derive(Debug, thiserror::Error)]
#[error("{0}: write it as http://127.0.0.1:4318/v1/traces")]
pub struct BadEndpoint(&'static str);

impl FromStr for Endpoint {
    type Err = BadEndpoint;

    fn from_str(text: &str) -> Result<Endpoint, BadEndpoint> {
        let uri: Uri = Some(text)
            .filter(|text| text.len() <= MOST && !text.contains('#'))
            .and_then(|text| text.parse().ok())
            .ok_or(BadEndpoint("it is not an address of a collector"))?;
        match uri.scheme_str() {
            Some("http") => {}
            Some("https") => {
                return Err(BadEndpoint(
                    "spans are sent over plain HTTP, to a collector that goes on with TLS",
                ));
            }
            _ => return Err(BadEndpoint("it does not begin with http://")),
        }
        let authority = uri.authority().ok_or(BadEndpoint("it names no host"))?;
        if authority.as_str().contains('@') {
            return Err(BadEndpoint("there is a name or a password in it"));
        }
        let port = match authority.as_str().strip_prefix(authority.host()) {
            Some("") => USUAL_PORT,
            Some(port) => port
                .strip_prefix(':')
                .and_then(|port| port.parse().ok())
                .filter(|port| *port != 0)
                .ok_or(BadEndpoint("its port is none"))?,
            None => return Err(BadEndpoint("it names no host")),
        };
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        if host.is_empty() {
            return Err(BadEndpoint("it names no host"));
        }
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        let path = if path == "/" { USUAL_PATH } else { path }.to_owned();
        Ok(Endpoint { host, port, path })
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}{}", self.authority(), self.path)
    }
}

impl Endpoint {
    pub(super) fn authority(&self) -> String {
        match self.host.contains(':') {
            true => format!("[{}]:{}", self.host, self.port),
            false => format!("{}:{}", self.host, self.port),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_plain_http_and_has_no_secret_in_it() {
        for (text, expected) in [
            ("http://127.0.0.1:4318/v1/traces", "http://127.0.0.1:4318/v1/traces"),
            ("http://collector", "http://collector:4318/v1/traces"),
            ("http://collector:99/", "http://collector:99/v1/traces"),
            ("http://[::1]:4318/x?y=z", "http://[::1]:4318/x?y=z"),
        ] {
            assert_eq!(text.parse::<Endpoint>().unwrap().to_string(), expected);
        }
        for text in [
            "",
            "collector:4318",
            "https://c/v1/traces",
            "http://me:pw@c/",
            "http://",
            "ftp://c",
            "http://c:99999/",
            "http://c:0/",
            "http://c:/",
            "http://c/a b",
            "http://c/#x",
            "/v1/traces",
            "http://c/\r\nX: y",
        ] {
            assert!(text.parse::<Endpoint>().is_err(), "{text}");
        }
    }
}
