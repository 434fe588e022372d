//! How much of what one run reaches stands in the record. Whoever runs code can make any number of connections, so
//! the first are told one by one, then only what is new, and what repeats is counted: by host, with the addresses
//! that it led to and the bytes that went there and back. What would be new beyond that is not reached.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::net::IpAddr;

use hotcell_egress::Protocol;
use serde_json::{Value, json};

/// Events about what was allowed to one run, unless the operator says otherwise. Half of them are for what is new.
pub(crate) const MOST_ALLOWED: u64 = 1000;
/// Most refusals of a run that are recorded one by one: they have no effect, and whoever makes them could make
/// any number. The rest is recorded as a number.
pub(crate) const MOST_REFUSED: u64 = 200;
/// Most hosts that are counted by themselves, and most addresses of each that are told.
const MOST_HOSTS: usize = 32;
const MOST_ADDRESSES: usize = 8;

/// What tells one thing that is reached from another.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Sort {
    pub(crate) host: String,
    pub(crate) protocol: Protocol,
    pub(crate) method: Option<String>,
}

/// What becomes of something that is allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Told {
    /// It gets an event of its own.
    Itself,
    /// It repeats what has one.
    Counted,
    /// It is new, and nothing new gets an event any more.
    NoRoom,
}

#[derive(Debug)]
pub(crate) struct Tally {
    most: u64,
    allowed: u64,
    refused: u64,
    /// Refusals without an event.
    refused_alike: u64,
    /// What has an event.
    known: HashSet<Sort>,
    hosts: BTreeMap<String, Reached>,
    /// All other hosts.
    others: Reached,
    lost: u64,
}

#[derive(Debug, Default)]
struct Reached {
    /// Connections and requests.
    times: u64,
    /// Of these, how many have no event.
    alike: u64,
    addresses: BTreeSet<IpAddr>,
    /// There were more.
    more_addresses: bool,
    up: u64,
    down: u64,
}

/// What is left to say at the end.
#[derive(Debug)]
pub(crate) struct Rest {
    pub(crate) refused_alike: u64,
    /// Nothing if nothing was reached.
    pub(crate) reached: Option<(String, Value)>,
}

impl Tally {
    pub(crate) fn new(most: u64) -> Tally {
        Tally {
            most,
            allowed: 0,
            refused: 0,
            refused_alike: 0,
            known: HashSet::new(),
            hosts: BTreeMap::new(),
            others: Reached::default(),
            lost: 0,
        }
    }

    /// Something is about to be allowed.
    pub(crate) fn allow(&mut self, sort: &Sort) -> Told {
        let is_known = self.known.contains(sort);
        let has_room = self.allowed < self.most / 2 || (!is_known && self.allowed < self.most);
        if has_room {
            self.allowed += 1;
            return Told::Itself;
        }
        if !is_known {
            return Told::NoRoom;
        }
        let host = self.of(&sort.host);
        host.times += 1;
        host.alike += 1;
        Told::Counted
    }

    /// It has an event, which is on the disk.
    pub(crate) fn told(&mut self, sort: Sort) {
        self.of(&sort.host).times += 1;
        self.known.insert(sort);
    }

    /// Whether one more refusal has an event of its own; it is counted in either case.
    pub(crate) fn refuse(&mut self) -> bool {
        let is_one = self.refused < MOST_REFUSED;
        let count = if is_one { &mut self.refused } else { &mut self.refused_alike };
        *count += 1;
        is_one
    }

    pub(crate) fn led_to(&mut self, host: &str, addresses: impl Iterator<Item = IpAddr>) {
        let reached = self.of(host);
        for address in addresses {
            if reached.addresses.len() < MOST_ADDRESSES || reached.addresses.contains(&address) {
                reached.addresses.insert(address);
            } else {
                reached.more_addresses = true;
            }
        }
    }

    pub(crate) fn carried(&mut self, host: &str, up: u64, down: u64) {
        let reached = self.of(host);
        reached.up = reached.up.saturating_add(up);
        reached.down = reached.down.saturating_add(down);
    }

    pub(crate) fn lose(&mut self) {
        self.lost += 1;
    }

    /// What is left to say. It is said once.
    pub(crate) fn close(&mut self) -> Rest {
        let Tally { refused_alike, hosts, others, lost, .. } =
            std::mem::replace(self, Tally::new(self.most));
        let all = || hosts.values().chain([&others]);
        let (times, alike): (u64, u64) =
            all().fold((0, 0), |(times, alike), one| (times + one.times, alike + one.alike));
        let reached = (times > 0).then(|| {
            let why = format!(
                "{times} connections and requests, {alike} of them without an event of their own"
            );
            let told: Vec<Value> = hosts.iter().map(|(host, one)| one.told(Some(host))).collect();
            let others = (others.times > 0).then(|| others.told(None));
            (why, json!({ "hosts": told, "others": others, "proxy_lost": lost }))
        });
        Rest { refused_alike, reached }
    }

    fn of(&mut self, host: &str) -> &mut Reached {
        if !self.hosts.contains_key(host) && self.hosts.len() >= MOST_HOSTS {
            return &mut self.others;
        }
        self.hosts.entry(host.to_owned()).or_default()
    }
}

impl Reached {
    fn told(&self, host: Option<&str>) -> Value {
        json!({
            "host": host,
            "times": self.times,
            "without_event": self.alike,
            "addresses": self.addresses.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "more_addresses": self.more_addresses,
            "up": self.up,
            "down": self.down,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sort(host: &str, method: &str) -> Sort {
        Sort { host: host.into(), protocol: Protocol::Http, method: Some(method.into()) }
    }

    fn allow(tally: &mut Tally, host: &str, method: &str) -> Told {
        let sort = sort(host, method);
        let told = tally.allow(&sort);
        if told == Told::Itself {
            tally.told(sort);
        }
        told
    }

    #[test]
    fn the_first_are_told_then_only_what_is_new_and_then_nothing_new_is_reached() {
        let mut tally = Tally::new(10);
        for _ in 0..5 {
            assert_eq!(allow(&mut tally, "a.test", "GET"), Told::Itself);
        }
        for _ in 0..1000 {
            assert_eq!(allow(&mut tally, "a.test", "GET"), Told::Counted);
        }
        for host in ["b", "c", "d", "e"] {
            assert_eq!(allow(&mut tally, host, "GET"), Told::Itself, "{host}");
        }
        assert_eq!(allow(&mut tally, "a.test", "POST"), Told::Itself);
        assert_eq!(allow(&mut tally, "f", "GET"), Told::NoRoom);
        assert_eq!(allow(&mut tally, "a.test", "PUT"), Told::NoRoom);
        assert_eq!(allow(&mut tally, "a.test", "POST"), Told::Counted);
        let (why, told) = tally.close().reached.unwrap();
        assert!(why.starts_with("1011 connections") && why.contains("1001 of them"), "{why}");
        assert_eq!(told["hosts"][0]["times"], 1007);
        assert_eq!(told["hosts"][0]["without_event"], 1001);
        assert!(tally.close().reached.is_none(), "it is said once");
    }

    /// What could not be recorded was not allowed, and is no reason to count what is like it.
    #[test]
    fn what_has_no_event_yet_is_new() {
        let mut tally = Tally::new(4);
        for _ in 0..4 {
            assert_eq!(tally.allow(&sort("a", "GET")), Told::Itself);
        }
        assert_eq!(tally.allow(&sort("a", "GET")), Told::NoRoom);
        assert!(tally.close().reached.is_none());
    }

    #[test]
    fn what_is_counted_is_bounded_whatever_is_reached() {
        let mut tally = Tally::new(100_000);
        for number in 0..10_000_u32 {
            let host = format!("{number}.test");
            allow(&mut tally, &host, "GET");
            let addresses = (0..3).map(|n| IpAddr::from((number * 3 + n).to_be_bytes()));
            tally.led_to(&host, addresses);
            tally.carried(&host, 1, 2);
        }
        let (_, told) = tally.close().reached.unwrap();
        assert_eq!(told["hosts"].as_array().unwrap().len(), MOST_HOSTS);
        let others = &told["others"];
        let rest = 10_000 - MOST_HOSTS;
        assert_eq!((&others["times"], &others["down"]), (&json!(rest), &json!(2 * rest)));
        assert_eq!(others["addresses"].as_array().unwrap().len(), MOST_ADDRESSES);
        assert_eq!(others["more_addresses"], true);
        assert!(told.to_string().len() < 32 * 1024, "{}", told.to_string().len());
    }

    #[test]
    fn refusals_are_counted_where_they_are_too_many() {
        let mut tally = Tally::new(10);
        let told = (0..500).filter(|_| tally.refuse()).count() as u64;
        assert_eq!((told, tally.close().refused_alike), (MOST_REFUSED, 500 - MOST_REFUSED));
    }
}
