//! The one decision, for everything that leaves: runs and hotcell itself, whatever the protocol.

use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

use crate::address::{Kind, internal, reached_by};
use crate::judge::{Judge, Refusal, Refused, Ruling, Wanted};
use crate::own::is_own;
use crate::resolve::{MOST_ANSWERS, Resolver, Unresolved};

/// What may be connected to, and these addresses only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decided {
    pub addresses: Vec<SocketAddr>,
    pub intercept: bool,
    pub raw: bool,
}

/// What the policy lets through; nothing has been looked up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Permitted {
    pub(crate) intercept: bool,
    pub(crate) raw: bool,
}

/// Asks the policy, then looks the name up once, then judges every answer. The name and the port are in their one
/// spelling already, since there is no other [`Wanted`].
pub fn decide(
    wanted: &Wanted,
    judge: &dyn Judge,
    resolver: &dyn Resolver,
    party: u64,
    deadline: Instant,
) -> Result<Decided, Refusal> {
    let Permitted { intercept, raw } = ask(wanted, judge)?;
    let addresses = locate(wanted, judge, resolver, party, deadline)?;
    Ok(Decided { addresses, intercept, raw })
}

pub(crate) fn ask(wanted: &Wanted, judge: &dyn Judge) -> Result<Permitted, Refusal> {
    if wanted.port == 0 {
        return Err(Refusal::new(
            Refused::Malformed,
            not_reached(wanted),
            "there is no port 0",
            "name the port that the service listens on",
        ));
    }
    if let Some(why) = wanted.path.as_deref().and_then(unclear) {
        let fix = "ask for the path as the server serves it, without detours";
        return Err(Refusal::new(Refused::Malformed, not_reached(wanted), why, fix));
    }
    match judge.judge(wanted) {
        Ruling::Allow { intercept, raw } => Ok(Permitted { intercept, raw }),
        Ruling::Refuse { why, fix } => {
            Err(Refusal::new(Refused::Policy, not_reached(wanted), why, fix))
        }
    }
}

pub(crate) fn locate(
    wanted: &Wanted,
    judge: &dyn Judge,
    resolver: &dyn Resolver,
    party: u64,
    deadline: Instant,
) -> Result<Vec<SocketAddr>, Refusal> {
    let found = match wanted.host.address() {
        Some(address) => vec![address],
        None => resolver
            .resolve(&wanted.host, party, deadline)
            .and_then(bounded)
            .map_err(|why| unresolved(wanted, &why))?,
    };
    // What stands for an IPv4 address is connected to as that address, so that what was judged is what is used.
    let addresses: Vec<IpAddr> = found.into_iter().map(|address| address.to_canonical()).collect();
    for &address in &addresses {
        if let Some(kind) = kind_of(address)
            && !judge.names(address, wanted)
        {
            return Err(leads_inside(wanted, address, kind));
        }
        for reached in reached_by(address).filter(|reached| wanted.host.address() != Some(*reached))
        {
            if let Some((why, fix)) = judge.refuses(reached, wanted) {
                return Err(Refusal::new(Refused::Policy, not_reached(wanted), why, fix));
            }
        }
    }
    Ok(addresses.into_iter().map(|address| SocketAddr::new(address, wanted.port)).collect())
}

/// Why a path could be taken for another one than it says: by a server that resolves dots, drops what is empty
/// or decodes what need not be coded. What was judged would not be what is served then. A coded slash is part of
/// some names (packages of npm have one); it counts as one wherever that could matter.
fn unclear(path: &str) -> Option<&'static str> {
    let mut plain = String::new();
    let mut rest = path;
    while let Some((before, coded)) = rest.split_once('%') {
        plain.push_str(before);
        let digits = coded.get(..2).and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match digits {
            Some(b'/') => plain.push('/'),
            Some(0 | b'\\') => return Some("its path has a character that no path has"),
            Some(b'-' | b'.' | b'_' | b'~' | b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z') => {
                return Some("its path has characters coded that need not be");
            }
            Some(_) => plain.push('%'),
            None => return Some("its path has a `%` that codes nothing"),
        }
        rest = coded.get(2..).unwrap_or_default();
    }
    plain.push_str(rest);
    let mut parts = plain.strip_prefix('/').unwrap_or(&plain).split('/').peekable();
    while let Some(part) = parts.next() {
        let name = part.split(';').next().unwrap_or_default();
        if matches!(name, "." | "..") {
            return Some("its path has `.` or `..` as a part");
        }
        if name.is_empty() && parts.peek().is_some() {
            return Some("its path has a part without a name");
        }
    }
    None
}

fn bounded(found: Vec<IpAddr>) -> Result<Vec<IpAddr>, Unresolved> {
    match found.len() {
        0 => Err(Unresolved::Nothing),
        1..=MOST_ANSWERS => Ok(found),
        _ => Err(Unresolved::Many),
    }
}

fn kind_of(address: IpAddr) -> Option<Kind> {
    internal(address).or_else(|| is_own(address).then_some(Kind::Own))
}

fn not_reached(wanted: &Wanted) -> String {
    format!("{wanted} is not reached")
}

fn unresolved(wanted: &Wanted, why: &Unresolved) -> Refusal {
    let (kind, fix) = match why {
        Unresolved::Busy => (Refused::Busy, "try again, with fewer at once".to_owned()),
        _ => (
            Refused::Unresolved,
            format!("see what `getent ahosts {}.` says on this host", wanted.host),
        ),
    };
    Refusal::new(kind, not_reached(wanted), format!("its name leads nowhere: {why}"), fix)
}

fn leads_inside(wanted: &Wanted, address: IpAddr, kind: Kind) -> Refusal {
    let why = match wanted.host.address() {
        Some(_) => format!("it is {kind}"),
        None => format!("one of its addresses is {address}, {kind}"),
    };
    // As a policy writes it: 80 and 443 are meant without a port.
    let spelled = match (address, wanted.port) {
        (IpAddr::V4(address), 80 | 443) => address.to_string(),
        (IpAddr::V6(address), 80 | 443) => format!("[{address}]"),
        (address, port) => SocketAddr::new(address, port).to_string(),
    };
    let fix = match wanted.host.address() {
        Some(_) => format!("a policy has to name this very address to allow it: `{spelled}`"),
        None => format!("a policy has to name `{spelled}` itself besides the host to allow it"),
    };
    Refusal::new(Refused::Internal(kind), not_reached(wanted), why, fix)
}
