//! What is asked of whoever has the policy, what it says, and what it is told.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use hotcell_airlock::wire::{End, Fault, Protocol};

use crate::{Host, Kind};

/// What somebody wants to reach.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// `Https` also for a tunnel, of which nobody knows yet what goes through it.
    pub protocol: Protocol,
    pub host: Host,
    pub port: u16,
    /// Of a request; a tunnel has neither. The path is without its query.
    pub method: Option<String>,
    pub path: Option<String>,
    /// It came out of a tunnel that hotcell looks into.
    pub intercepted: bool,
}

impl Wanted {
    pub fn is_tunnel(&self) -> bool {
        self.method.is_none()
    }
}

impl fmt::Display for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` at port {}", self.host, self.port)
    }
}

/// Whoever has the policy of a run, or of a call. It may be asked by several threads at once.
pub trait Judge: Send + Sync {
    /// Whether this may be reached, before anything of it is looked up.
    fn judge(&self, wanted: &Wanted) -> Ruling;
    /// Whether the policy names this very address, which is internal.
    fn names(&self, address: IpAddr, wanted: &Wanted) -> bool;
    /// Whether the policy is against this very address, to which an allowed host leads. Why, and what could be
    /// done.
    fn refuses(&self, address: IpAddr, wanted: &Wanted) -> Option<(String, String)>;
    /// Decisions before they have an effect, and ends.
    fn happened(&self, event: &Event);
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ruling {
    Allow {
        /// Tunnels are looked into: hotcell is the other side of their TLS.
        intercept: bool,
        /// Whatever a tunnel carries is passed on.
        raw: bool,
    },
    /// `fix` is the smallest rule of a policy that would allow it.
    Refuse { why: String, fix: String },
}

/// What happened with what was wanted. `number` is the same in all events about one thing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// It may be reached, and these addresses are what it is; none if an earlier connection is used.
    Allowed {
        number: u64,
        wanted: Wanted,
        addresses: Vec<SocketAddr>,
        way: Way,
    },
    Refused {
        number: u64,
        wanted: Option<Wanted>,
        refusal: Refusal,
    },
    /// What was allowed, or refused with an answer, is over.
    Ended {
        number: u64,
        wanted: Option<Wanted>,
        up: u64,
        down: u64,
        how: How,
        lasted: Duration,
    },
    /// The proxy refused what a run sent without asking anybody.
    Malformed {
        why: Fault,
    },
    /// The proxy's process is gone, and with it every connection. There is no way out until another is there.
    Lost {
        why: String,
    },
    /// Another is there.
    Restored,
}

/// How something is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// A request in plain HTTP.
    Plain,
    /// A tunnel with TLS from end to end.
    Tunnel,
    /// A tunnel with anything.
    Raw,
    /// A tunnel that ends in the proxy; the requests in it are asked for one by one.
    Intercepted,
    /// A request that hotcell sends over a TLS of its own.
    Relayed,
    /// A request of hotcell's own client.
    Fetched,
    /// On the connection of an earlier request.
    Again,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    Proxy(End),
    /// The proxy's process ended before.
    Lost,
    /// A request of hotcell's own client got its response, or none.
    Answered,
    Failed,
}

/// Why something is not reached, for people.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}: {why}; {fix}")]
pub struct Refusal {
    pub kind: Refused,
    pub what: String,
    pub why: String,
    pub fix: String,
}

/// Who or what refused it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Refused {
    /// What was asked for cannot be understood in one way.
    Malformed,
    Policy,
    /// It leads to an internal address that the policy does not name.
    Internal(Kind),
    /// No address, or none that answers.
    Unresolved,
    Unreachable,
    /// Its certificate does not prove that it is who was asked for.
    Untrusted,
    /// A secret would have gone where it is not meant to go.
    Secret,
    /// More than a run may have.
    Budget,
    /// hotcell itself cannot do it now.
    Busy,
}

impl Refusal {
    pub(crate) fn new(
        kind: Refused,
        what: impl Into<String>,
        why: impl Into<String>,
        fix: impl Into<String>,
    ) -> Refusal {
        Refusal { kind, what: what.into(), why: why.into(), fix: fix.into() }
    }

    /// As a proxy says it.
    pub fn status(&self) -> u16 {
        match self.kind {
            Refused::Malformed => 400,
            Refused::Policy | Refused::Internal(_) | Refused::Secret => 403,
            Refused::Unresolved | Refused::Unreachable | Refused::Untrusted => 502,
            Refused::Budget => 429,
            Refused::Busy => 503,
        }
    }

    /// The text of a response.
    pub fn text(&self) -> String {
        format!("hotcell: {}\n  why: {}\n  fix: {}\n", self.what, self.why, self.fix)
    }
}
