//! Names to addresses, within a time, with a share for everybody who asks.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::net::{IpAddr, ToSocketAddrs};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Instant;

use crate::Host;
use crate::crew::{Bounds, Crew};

/// Most addresses of one name; a name with more is refused.
pub(crate) const MOST_ANSWERS: usize = 64;

/// The C library waits for its servers as long as resolv.conf says, and cannot be told to stop. So each party
/// has a few lookups under way at most, and whoever waited too long leaves its thread behind for that long. Half of
/// the threads are for parties that have none: names that never come cost the others a share, and not all.
const LOOKUPS: Bounds =
    Bounds { threads: 256, kept: 128, share: 8, waiting: 1024, stack: 512 * 1024 };

/// Names that the host knows without asking anybody, and the most that is read of them.
const HOSTS: &str = "/etc/hosts";
const HOSTS_MOST: u64 = 16 * 1024 * 1024;

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

/// As other programs of the host do it: `/etc/hosts`, `/etc/resolv.conf`, and whatever else `/etc/nsswitch.conf`
/// names. A library of our own would know only the first two, and would be one more parser of answers from the
/// network in this process. But a name is a whole one, whatever `search` and `ndots` say: what a policy allows is
/// that name, and not whatever is called so in the domain of this host.
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
    let known = known_here(name)?;
    if !known.is_empty() {
        return Ok(few(known.into_iter()));
    }
    // The dot says that it is a whole name. The file is not looked into for it then, since nobody writes it there.
    let whole = format!("{}.", name.as_str());
    let found = (whole.as_str(), 0).to_socket_addrs().map_err(failed)?;
    Ok(few(found.map(|address| address.ip())))
}

/// What the file of the host says of a name.
fn known_here(name: &Host) -> Result<Vec<IpAddr>, Unresolved> {
    let unreadable =
        |error: io::Error| Unresolved::Failed(format!("{HOSTS} cannot be read: {error}"));
    let file = match File::open(HOSTS) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(unreadable(error)),
    };
    let mut bytes = Vec::new();
    file.take(HOSTS_MOST + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > HOSTS_MOST {
        return Err(Unresolved::Failed(format!("{HOSTS} is too long")));
    }
    Ok(listed(&bytes, name.as_str()))
}

/// The addresses of a name in a file like `/etc/hosts`.
pub(crate) fn listed(file: &[u8], name: &str) -> Vec<IpAddr> {
    let lines = file.split(|byte| *byte == b'\n').filter_map(|line| {
        let line = line.split(|byte| *byte == b'#').next().unwrap_or_default();
        let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        let address = str::from_utf8(words.next()?).ok()?.parse().ok()?;
        words.any(|word| word.eq_ignore_ascii_case(name.as_bytes())).then_some(address)
    });
    lines.collect()
}

/// Each once, and no more than are looked at.
fn few(found: impl Iterator<Item = IpAddr>) -> Vec<IpAddr> {
    let mut addresses: Vec<IpAddr> = Vec::new();
    for address in found {
        if addresses.len() > MOST_ANSWERS {
            break;
        }
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    addresses
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
    fn a_name_is_found_in_the_file_of_the_host_as_other_programs_find_it() {
        let file = b"# 10.0.0.9 a.test\n127.0.0.1\tlocalhost a.test # b.test\n\n::1 A.Test\r\n\
            10.0.0.1 a.test.evil.test xa.test\nnonsense a.test\nfe80::1%lo a.test\n10.0.0.2 a.test";
        let of = |name: &str| -> Vec<String> {
            listed(file, name).iter().map(ToString::to_string).collect()
        };
        assert_eq!(of("a.test"), ["127.0.0.1", "::1", "10.0.0.2"]);
        assert_eq!((of("localhost").len(), of("b.test").len(), of("test").len()), (1, 0, 0));
        assert_eq!(listed(&[0xff, b' ', b'a'], "a"), [] as [IpAddr; 0]);
        let many = (0..100).map(|n| IpAddr::from([10, 0, 0, n]));
        assert_eq!(few(many.clone().chain(many)).len(), MOST_ANSWERS + 1);
    }

    #[test]
    fn nobody_waits_beyond_the_time() {
        let name = "localhost".parse().unwrap();
        assert_eq!(System::new().resolve(&name, 1, Instant::now()), Err(Unresolved::Late));
    }
}
