//! The one decision: what is asked, what is looked up, and what is refused.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use crate::support::{Names, Rules};
use hotcell_egress::{Decided, Host, Kind, Protocol, Refusal, Refused, Wanted, decide};
use proptest::prelude::*;

fn wanted(host: &str, port: u16) -> Wanted {
    Wanted {
        protocol: Protocol::Https,
        host: Host::parse(host).unwrap(),
        port,
        method: None,
        path: None,
        intercepted: false,
    }
}

fn decided(host: &str, rules: &Rules, names: &Names) -> Result<Decided, Refusal> {
    decide(&wanted(host, 443), rules, names, 1, Instant::now() + Duration::from_secs(20))
}

fn kind(host: &str, rules: &Rules, names: &Names) -> Refused {
    decided(host, rules, names).unwrap_err().kind
}

/// A rule that allows every host, and names no address.
fn all() -> Rules {
    Rules { everything: true, ..Rules::default() }
}

#[test]
fn net_02_nothing_is_looked_up_for_what_is_denied() {
    let names = Names::of(&[("denied.test", &["1.1.1.1"]), ("allowed.test", &["1.1.1.1"])]);
    let rules = Rules::of(&[("allowed.test", 443)]);
    assert_eq!(kind("denied.test", &rules, &names), Refused::Policy);
    assert_eq!(names.asked(), 0);
    assert!(decided("allowed.test", &rules, &names).is_ok());
    assert_eq!(names.asked(), 1);
}

#[test]
fn net_06_a_path_that_a_server_could_take_for_another_is_refused() {
    let names = Names::of(&[("allowed.test", &["1.1.1.1"])]);
    let rules = Rules::of(&[("allowed.test", 443)]);
    let asked = |path: &str| {
        let (method, path) = (Some("GET".into()), Some(path.into()));
        let wanted = Wanted { method, path, ..wanted("allowed.test", 443) };
        decide(&wanted, &rules, &*names, 1, Instant::now() + Duration::from_secs(20))
    };
    for path in
        ["/", "*", "/a", "/a/", "/a.b/..c/.d", "/@types%2fnode", "/%e2%82%ac", "/a;v=1", "/a%20b"]
    {
        assert!(asked(path).is_ok(), "{path}");
    }
    for path in [
        "/public/../admin",
        "/public/%2e%2e/admin",
        "/public/..%2Fadmin",
        "/public/..;/admin",
        "/./a",
        "/..",
        "/%61dmin",
        "//admin",
        "/a//b",
        "/a%2f%2fb",
        "/a%5cb",
        "/a%00",
        "/a%",
        "/a%zz",
        "/a%2",
        "/%7Eme",
    ] {
        let refusal = asked(path).unwrap_err();
        assert_eq!((refusal.kind, refusal.status()), (Refused::Malformed, 400), "{path}");
    }
    // Nothing was looked up for those.
    assert_eq!(names.asked(), 9);
}

#[test]
fn net_07_a_port_is_part_of_what_is_allowed() {
    let names = Names::of(&[("allowed.test", &["1.1.1.1"])]);
    let rules = Rules::of(&[("allowed.test", 443)]);
    for port in [0, 22, 25, 80, 2375, 6379] {
        let deadline = Instant::now() + Duration::from_secs(20);
        let refusal = decide(&wanted("allowed.test", port), &rules, &*names, 1, deadline);
        let refusal = refusal.unwrap_err();
        assert!(matches!(refusal.status(), 400 | 403), "{port}");
    }
    assert_eq!(names.asked(), 0);
}

#[test]
fn net_13_internal_addresses_are_refused_under_a_rule_for_everything() {
    let names = Names::default();
    for literal in [
        "127.0.0.1",
        "0.0.0.0",
        "10.0.0.1",
        "172.16.0.1",
        "192.168.0.1",
        "169.254.169.254",
        "100.100.100.200",
        "168.63.129.16",
        "198.18.0.1",
        "240.0.0.1",
        "255.255.255.255",
        "[::]",
        "[::1]",
        "[fd00:ec2::254]",
        "[::ffff:127.0.0.1]",
        "[::ffff:a9fe:a9fe]",
        "[64:ff9b::7f00:1]",
    ] {
        assert!(matches!(kind(literal, &all(), &names), Refused::Internal(_)), "{literal}");
    }
    assert!(decided("1.1.1.1", &all(), &names).is_ok());
    assert_eq!(names.asked(), 0);
}

#[test]
fn a_policy_that_names_an_address_allows_that_address_only() {
    let names = Names::of(&[("in.test", &["127.0.0.1"]), ("other.test", &["127.0.0.2"])]);
    let rules = Rules { addresses: vec!["127.0.0.1".parse().unwrap()], ..all() };
    assert!(decided("in.test", &rules, &names).is_ok());
    assert_eq!(kind("other.test", &rules, &names), Refused::Internal(Kind::Loopback));
}

#[test]
fn net_14_an_answer_that_maps_an_internal_address_is_refused() {
    let names = Names::of(&[("a.test", &["::ffff:10.0.0.1"]), ("b.test", &["::ffff:1.1.1.1"])]);
    assert_eq!(kind("a.test", &all(), &names), Refused::Internal(Kind::Private));
    // What is judged is what is connected to.
    let addresses = decided("b.test", &all(), &names).unwrap().addresses;
    assert_eq!(addresses, ["1.1.1.1:443".parse().unwrap()]);
}

#[test]
fn net_16_one_bad_answer_refuses_the_name_and_each_time_is_judged_anew() {
    let names = Names::of(&[("mixed.test", &["1.1.1.1", "10.0.0.1"])]);
    assert_eq!(kind("mixed.test", &all(), &names), Refused::Internal(Kind::Private));
    names.then("rebound.test", &["1.1.1.1"]);
    names.then("rebound.test", &["127.0.0.1"]);
    let addresses = decided("rebound.test", &all(), &names).unwrap().addresses;
    assert_eq!(addresses, ["1.1.1.1:443".parse().unwrap()]);
    assert_eq!(kind("rebound.test", &all(), &names), Refused::Internal(Kind::Loopback));
}

#[test]
fn net_16_a_name_that_leads_to_an_address_that_a_rule_is_against_is_refused() {
    let names = Names::of(&[
        ("one.test", &["93.184.216.34"]),
        ("mixed.test", &["1.1.1.1", "93.184.216.34"]),
        ("mapped.test", &["::ffff:93.184.216.34"]),
        ("nat.test", &["64:ff9b::5db8:d822"]),
        ("six.test", &["2002:5db8:d822::1"]),
        ("teredo.test", &["2001:0:5db8:d822::f7f7:f7f7"]),
        ("other.test", &["93.184.216.35"]),
    ]);
    let rules = Rules { refused: vec!["93.184.216.34".parse().unwrap()], ..all() };
    for host in ["one.test", "mixed.test", "mapped.test", "nat.test", "six.test", "teredo.test"] {
        let refusal = decided(host, &rules, &names).unwrap_err();
        assert_eq!((refusal.kind, refusal.status()), (Refused::Policy, 403), "{host}");
        assert_eq!(refusal.why, "a rule is against it", "{host}");
        assert!(decided(host, &all(), &names).is_ok(), "{host}");
    }
    // What stands for it as a literal, too. The address itself was judged as the host that it is.
    assert_eq!(kind("[64:ff9b::5db8:d822]", &rules, &names), Refused::Policy);
    assert!(decided("other.test", &rules, &names).is_ok());
    assert!(decided("93.184.216.34", &rules, &names).is_ok());
}

#[test]
fn a_name_without_addresses_or_with_too_many_is_refused() {
    let names = Names::of(&[("none.test", &[])]);
    let many: Vec<String> = (0..65).map(|n| format!("1.1.1.{n}")).collect();
    names.then("many.test", &many.iter().map(String::as_str).collect::<Vec<_>>());
    for host in ["none.test", "many.test", "unknown.test"] {
        assert_eq!(kind(host, &all(), &names), Refused::Unresolved, "{host}");
    }
}

#[test]
fn net_23_nothing_is_allowed_by_an_empty_list() {
    let names = Names::of(&[("a.test", &["1.1.1.1"])]);
    let refusal = decided("a.test", &Rules::of(&[]), &names).unwrap_err();
    assert_eq!((refusal.kind, refusal.status()), (Refused::Policy, 403));
    let text = refusal.text();
    assert!(
        text.contains("`a.test` at port 443") && text.contains("net.connect: a.test:443"),
        "{text}"
    );
}

#[test]
fn net_26_this_hosts_own_addresses_are_refused() {
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
    let Ok(()) = socket.connect("198.51.100.1:9") else {
        return eprintln!("SKIPPED own addresses: this host has no way out");
    };
    let own = socket.local_addr().unwrap().ip();
    assert!(matches!(kind(&own.to_string(), &all(), &Names::default()), Refused::Internal(_)));
}

proptest! {
    /// Whatever answers there are: what is connected to is public, or named.
    #[test]
    fn no_answer_leads_inside(answers in prop::collection::vec(any::<u32>(), 1..4)) {
        let addresses: Vec<IpAddr> = answers.iter().map(|bits| IpAddr::from(bits.to_be_bytes())).collect();
        let texts: Vec<String> = addresses.iter().map(IpAddr::to_string).collect();
        let names = Names::of(&[("a.test", &texts.iter().map(String::as_str).collect::<Vec<_>>())]);
        let has_internal = addresses.iter().any(|address| hotcell_egress::internal(*address).is_some());
        prop_assert_eq!(decided("a.test", &all(), &names).is_err(), has_internal);
    }
}
