//! How often: requests of one key, and wrong keys of one address. Own buckets, and not `governor`: each key
//! brings a rate of its own that can be another tomorrow, and a bucket is one moment in a map.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use hotcell_access::Rate;

/// Most keys, and most addresses, that are counted. Those that have rested are forgotten first, which
/// favours nobody: they would be let in all the same. Where all are still counted, the one that has least to
/// wait for makes room: whoever is new is counted as everybody is.
const MOST: usize = 4096;

/// Wrong keys of one address at once, and how long it takes until there may be another.
const GUESSES: u32 = 10;
const GUESS_EVERY: Duration = Duration::from_secs(1);

/// By whatever is counted, the moment at which all would be forgotten.
#[derive(Debug)]
struct Buckets<K>(Mutex<HashMap<K, Instant>>);

impl<K> Default for Buckets<K> {
    fn default() -> Buckets<K> {
        Buckets(Mutex::default())
    }
}

impl<K: Eq + Hash + Clone> Buckets<K> {
    /// Takes one, or tells how long to wait for it.
    fn take(&self, key: K, each: Duration, burst: u32, now: Instant) -> Result<(), Duration> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let until = all.get(&key).copied().unwrap_or(now).max(now) + each;
        let over = until.saturating_duration_since(now).saturating_sub(each * burst);
        if !over.is_zero() {
            return Err(over);
        }
        if all.len() >= MOST && !all.contains_key(&key) {
            make_room(&mut all, now);
        }
        all.insert(key, until);
        Ok(())
    }
}

/// For one more.
fn make_room<K: Eq + Hash + Clone>(all: &mut HashMap<K, Instant>, now: Instant) {
    all.retain(|_, until| *until > now);
    if all.len() < MOST {
        return;
    }
    let first = all.iter().min_by_key(|(_, until)| **until).map(|(key, _)| key.clone());
    first.and_then(|first| all.remove(&first));
}

/// Requests, by key.
#[derive(Debug, Default)]
pub(crate) struct Requests(Buckets<String>);

impl Requests {
    pub(crate) fn take(&self, key: &str, rate: Rate, now: Instant) -> Result<(), Duration> {
        let each = Duration::from_secs(1) / rate.per_second.get();
        self.0.take(key.to_owned(), each, rate.burst.get(), now)
    }
}

/// Wrong keys, by address. A key that is right is let in however many were wrong: whoever shares the
/// address with somebody who guesses is not kept out.
#[derive(Debug, Default)]
pub(crate) struct Guesses(Buckets<IpAddr>);

impl Guesses {
    pub(crate) fn take(&self, from: IpAddr, now: Instant) -> Result<(), Duration> {
        self.0.take(network(from), GUESS_EVERY, GUESSES, now)
    }
}

/// Whoever has an address of IPv6 has 2^64 of them.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => {
            let [a, b, c, d, ..] = v6.segments();
            IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::*;

    #[test]
    fn a_key_has_its_burst_and_then_its_rate() {
        let (requests, start) = (Requests::default(), Instant::now());
        let n = |n| NonZeroU32::new(n).unwrap();
        let rate = Rate { per_second: n(10), burst: n(3) };
        for _ in 0..3 {
            assert_eq!(requests.take("a", rate, start), Ok(()));
        }
        let wait = requests.take("a", rate, start).unwrap_err();
        assert_eq!(wait, Duration::from_millis(100));
        assert_eq!(requests.take("b", rate, start), Ok(()), "another key is not concerned");
        assert_eq!(requests.take("a", rate, start + wait), Ok(()));
        assert!(requests.take("a", rate, start + wait).is_err());
    }

    /// However many others there are, and however many of them have used up what they may.
    #[test]
    fn who_comes_when_all_buckets_are_taken_is_counted_as_everybody_is() {
        let (requests, start) = (Requests::default(), Instant::now());
        let n = |n| NonZeroU32::new(n).unwrap();
        let rate = Rate { per_second: n(1), burst: n(2) };
        let take = |key: &str| requests.take(key, rate, start);
        assert_eq!((take("first"), take("first")), (Ok(()), Ok(())));
        for n in 0..2 * MOST {
            assert_eq!(take(&format!("k{n}")), Ok(()));
        }
        assert_eq!((take("new"), take("new")), (Ok(()), Ok(())));
        assert!(take("new").is_err(), "who is new has no more than anybody");
        assert!(take("first").is_err(), "who has most to wait for is not forgotten");
        assert_eq!(requests.0.0.lock().unwrap().len(), MOST);
    }

    #[test]
    fn who_guesses_from_many_addresses_takes_no_more_memory() {
        let (guesses, start) = (Guesses::default(), Instant::now());
        for n in 0..20_000_u32 {
            guesses.take(IpAddr::from(n.to_be_bytes()), start).ok();
        }
        assert!(guesses.0.0.lock().unwrap().len() <= MOST);
        let of_one_network = |n: u16| IpAddr::from([0x2001, 1, 2, 3, 0, 0, 0, n]);
        let guesses = Guesses::default();
        let refused = (0..100).filter(|n| guesses.take(of_one_network(*n), start).is_err()).count();
        assert_eq!(refused, 90);
    }
}
