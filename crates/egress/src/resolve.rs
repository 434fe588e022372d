//! Names to addresses, within a time, with a share for everybody who asks.

use std::fmt;
use std::io;
use std::net::{IpAddr, ToSocketAddrs};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Instant;

use crate::Host;
use crate::crew::{Bounds, Crew};

/// Most addresses of one name; a name with more is refused.
pub(crate) const MOST_ANSWERS: usize = 64;

/// The C library waits for its servers as long as resolv.conf says, and cannot be told to stop. So each party
/// has a few lookups under way at most, and whoever waited too long leaves its thread behind for that long.
const LOOKUPS: Bounds = Bounds { threads: 128, share: 8, waiting: 1024, stack: 512 * 1024 };

/// Whoever knows the addresses of names.
pub trait Resolver: Send + Sync {
    /// All addresses of a name, which is none itself. `party` is who asks, and has a share of what there is.
    fn resolve(
        &self,
        name: &Host,
        party: u64,
        deadline: Instant,
    ) -> Result<Vec<IpAddr>, Unresolved>;
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unresolved {
    #[error("it has no address")]
    Nothing,
    #[error("it has more than {MOST_ANSWERS} addresses")]
    Many,
    #[error("no answer came in time")]
    Late,
    #[error("too many names are being looked up already")]
    Busy,
    #[error("{0}")]
    Failed(String),
}

/// As every other program of the host does it: `/etc/hosts`, `/etc/resolv.conf`, and whatever else
/// `/etc/nsswitch.conf` names. A library of our own would know only the first two, and would be one more
/// parser of answers from the network in this process.
pub struct System {
    crew: Crew,
}

impl System {
    pub fn new() -> System {
        System { crew: Crew::new("hotcell-lookup", LOOKUPS) }
    }
}

impl Default for System {
    fn default() -> System {
        System::new()
    }
}

impl Drop for System {
    fn drop(&mut self) {
        self.crew.close();
    }
}

impl fmt::Debug for System {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("System").finish_non_exhaustive()
    }
}

impl Resolver for System {
    fn resolve(
        &self,
        name: &Host,
        party: u64,
        deadline: Instant,
    ) -> Result<Vec<IpAddr>, Unresolved> {
        let (answer, answered) = sync_channel(1);
        let name = name.clone();
        let work = move || {
            // Nobody waits any more for what comes too late, and then it need not even be begun.
            if Instant::now() < deadline {
                drop(answer.send(look_up(&name)));
            }
        };
        self.crew.submit(party, work).map_err(|_| Unresolved::Busy)?;
        match answered.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(found) => found,
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                Err(Unresolved::Late)
            }
        }
    }
}

fn look_up(name: &Host) -> Result<Vec<IpAddr>, Unresolved> {
    let found = (name.as_str(), 0).to_socket_addrs().map_err(failed)?;
    let mut addresses: Vec<IpAddr> = Vec::new();
    for address in found.map(|address| address.ip()) {
        if addresses.len() > MOST_ANSWERS {
            break;
        }
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    Ok(addresses)
}

fn failed(error: io::Error) -> Unresolved {
    let text = error.to_string();
    let said = text.rsplit_once(": ").map_or(text.as_str(), |(_, last)| last);
    Unresolved::Failed(said.to_lowercase())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_the_host_knows_by_itself_is_found() {
        let resolver = System::new();
        let deadline = Instant::now() + Duration::from_secs(30);
        let found = resolver.resolve(&"localhost".parse().unwrap(), 1, deadline).unwrap();
        assert!(!found.is_empty() && found.iter().all(IpAddr::is_loopback), "{found:?}");
    }

    #[test]
    fn nobody_waits_beyond_the_time() {
        let name = "localhost".parse().unwrap();
        assert_eq!(System::new().resolve(&name, 1, Instant::now()), Err(Unresolved::Late));
    }
}
