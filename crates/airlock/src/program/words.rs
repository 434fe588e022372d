//! What a client is told where hotcell was not asked, or gave no answer.

use super::flow::Inbox;
use super::socket::Side;
use crate::wire::Fault;

/// How much of what a client goes on to say is thrown away, and for how long, so that it reads the answer before
/// it learns that nobody listens.
const MOST_IGNORED: usize = 1024 * 1024;
const IGNORING: std::time::Duration = std::time::Duration::from_secs(1);

pub(crate) const UNANSWERED: &str = "hotcell: this cannot be reached now: hotcell gave no answer, or the host did not take the connection\n";
pub(crate) const BROKEN: &str =
    "hotcell: the host closed the connection before it gave an answer\n";
pub(crate) const BAD_RESPONSE: &str = "hotcell: the host's response is not HTTP/1.1 that can be understood in one way only, and was not passed on\n";
pub(crate) const BAD_BODY: &str = "hotcell: the body of this request is not in chunks as it says\n";
pub(crate) const OVER: &str =
    "hotcell: this run has used up the requests or bytes that it may exchange with the network\n";
pub(crate) const LATE: &str = "hotcell: the host gave no answer in time\n";

/// Whether the connection goes on after an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    GoesOn,
    Ends,
}

impl Fault {
    pub(crate) fn status(self) -> u16 {
        match self {
            Fault::Head | Fault::Target | Fault::Host | Fault::Framing => 400,
            Fault::Long => 431,
            Fault::Slow => 408,
            Fault::Upgrade => 403,
            Fault::Unsupported => 417,
            Fault::Anonymous | Fault::Credential => 407,
            Fault::OverRequests => 429,
        }
    }

    pub(crate) fn body(self) -> &'static str {
        match self {
            Fault::Head => "hotcell: this request is not written in strict HTTP/1.1\n",
            Fault::Long => {
                "hotcell: the head of this request is too long, or has too many fields\n"
            }
            Fault::Slow => "hotcell: the head of this request did not come to its end in time\n",
            Fault::Target => {
                "hotcell: this is a proxy: a request needs the whole address, such as http://host/path, and CONNECT \
                 needs host:port, with a host of letters, digits, '-', '.' and '_'\n"
            }
            Fault::Host => {
                "hotcell: the field Host has to be there once and say the host of the address\n"
            }
            Fault::Framing => "hotcell: it is not clear where the body of this request ends\n",
            Fault::Upgrade => {
                "hotcell: a request cannot be upgraded to another protocol, since what follows could not be judged: \
                 use a tunnel (CONNECT) where the policy allows it\n"
            }
            Fault::Unsupported => "hotcell: the only expectation that is known is 100-continue\n",
            Fault::Anonymous => {
                "hotcell: the proxy needs the credential of this run, which is part of HTTP_PROXY and HTTPS_PROXY\n"
            }
            Fault::Credential => "hotcell: this is not the credential of this run\n",
            Fault::OverRequests => OVER,
        }
    }
}

/// Answers a request with an error of this proxy.
pub(crate) async fn refuse(client: &Side, method: &str, status: u16, body: &str, next: Next) {
    let mut answer = format!(
        "HTTP/1.1 {status} {}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\n",
        reason(status),
        body.len()
    );
    if status == 407 {
        answer.push_str("Proxy-Authenticate: Basic realm=\"hotcell\"\r\n");
    }
    answer.push_str(if next == Next::Ends { "Connection: close\r\n\r\n" } else { "\r\n" });
    if method != "HEAD" {
        answer.push_str(body);
    }
    // Who has gone learns it in another way.
    drop(client.write(answer.as_bytes()).await);
    if next == Next::Ends {
        part(client).await;
    }
}

/// Ends a connection so that what was said last arrives.
pub(crate) async fn part(client: &Side) {
    let ignore = async {
        client.end().await;
        let (mut inbox, mut ignored) = (Inbox::default(), 0);
        while let Ok(count @ 1..) = inbox.fill(client, usize::MAX).await {
            ignored += count;
            inbox.used(count);
            if ignored > MOST_IGNORED {
                return;
            }
        }
    };
    // Whether it listened or not, it is over.
    drop(tokio::time::timeout(IGNORING, ignore).await);
}

fn reason(status: u16) -> &'static str {
    match status {
        400 => "Bad Request",
        403 => "Forbidden",
        407 => "Proxy Authentication Required",
        408 => "Request Timeout",
        414 => "URI Too Long",
        417 => "Expectation Failed",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        _ => "Refused",
    }
}
