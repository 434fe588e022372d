//! What is decided about connections, and what of it is in the record. Nothing is connected to here.

use std::path::Path;

use hotcell_egress::{End, Event as Happened, Host, Way};
use hotcell_policy::Snapshot;
use hotcell_record::{Event, Filter, Kind};
use hotcell_request::Tools;
use hotcell_types::{Door, Name};
use serde_json::{Value, json};

use super::*;
use crate::Options;

struct World {
    engine: Engine,
    call: CallId,
    _dir: tempfile::TempDir,
}

fn open(dir: &Path, rules: &[&str], recorded: Option<u64>) -> Engine {
    let rules: String = rules.iter().map(|rule| format!("\n  - {rule}")).collect();
    let policy = Snapshot::load(format!("rules:{rules}").as_bytes(), &Tools::default());
    let mut options = Options::at(dir.join("home"));
    options.policy = Some(policy.unwrap().snapshot);
    options.network.recorded = recorded;
    Engine::open(options).unwrap()
}

impl World {
    fn new(rules: &[&str], recorded: Option<u64>) -> (World, Border) {
        let dir = tempfile::tempdir().unwrap();
        let engine = open(dir.path(), rules, recorded);
        let request =
            Request::new("add".parse().unwrap(), Arguments::Value(json!({"a": 1, "b": 2})));
        let caller = Caller::local(Name::LOCAL, Door::Library);
        let call = Call::new(request, caller, new_id(), &engine.registry).unwrap();
        let book = engine.book().unwrap();
        let border = engine.border(&book, &Facts::default(), &call).unwrap();
        (World { engine, call: call.id(), _dir: dir }, border)
    }

    fn events(&self) -> Vec<Event> {
        let filter = Filter { parent: Some(self.call), limit: 1000, ..Filter::of(Name::LOCAL) };
        self.engine.recording().unwrap().events(&filter).unwrap()
    }

    fn of(&self, kind: Kind) -> Vec<Event> {
        self.events().into_iter().filter(|event| event.kind == kind).collect()
    }

    /// What is told at the end.
    fn rest(&self) -> Value {
        let notes = self.of(Kind::Note);
        let last = notes.last().expect("there is one");
        let told = self.engine.recording().unwrap().output(last).unwrap().unwrap();
        serde_json::from_slice(&told).unwrap()
    }
}

fn tunnel(host: &str) -> Wanted {
    Wanted {
        protocol: Protocol::Https,
        host: Host::parse(host).unwrap(),
        port: 443,
        method: None,
        path: None,
        intercepted: false,
    }
}

fn get(host: &str, path: &str) -> Wanted {
    let (method, path) = (Some("GET".into()), Some(path.into()));
    Wanted { protocol: Protocol::Http, port: 80, method, path, ..tunnel(host) }
}

fn is_allowed(border: &Border, wanted: &Wanted) -> bool {
    matches!(border.judge(wanted), Ruling::Allow { .. })
}

const OPEN: &str = "{ name: open, match: { host: a.test }, action: allow }";

#[test]
fn net_06_what_a_person_has_to_look_at_goes_through_no_tunnel() {
    for rule in [
        "{ name: ask, match: { host: a.test, method: [POST] }, action: require_review }",
        "{ name: ask, match: { host: a.test }, except: [{ method: [GET] }], action: require_review }",
        "{ name: ask, match: { host: a.test }, when: 'args.path == \"/admin\"', action: require_review }",
        "{ name: not, match: { host: a.test }, when: 'args.path == \"/admin\"', action: deny }",
        "{ name: not, match: { host: a.test, method: [DELETE] }, action: deny }",
    ] {
        let (world, border) = World::new(&[OPEN, rule], None);
        for protocol in [Protocol::Https, Protocol::Tcp] {
            let wanted = Wanted { protocol, ..tunnel("a.test") };
            assert!(!is_allowed(&border, &wanted), "{rule} {protocol:?}");
        }
        assert_eq!((world.of(Kind::Called).len(), world.of(Kind::Denied).len()), (0, 2), "{rule}");
        // What is seen, and is neither, is let through.
        assert!(is_allowed(&border, &get("a.test", "/public")), "{rule}");
    }
    let (_world, border) = World::new(&[OPEN], None);
    assert!(is_allowed(&border, &tunnel("a.test")));
}

#[test]
fn a_name_that_leads_to_an_address_that_is_denied_is_refused_and_recorded() {
    let never = "{ name: never, match: { host: 93.184.216.34 }, action: deny, reason: not there }";
    let (world, border) = World::new(&[OPEN, never], None);
    let wanted = tunnel("a.test");
    assert!(border.refuses("93.184.216.35".parse().unwrap(), &wanted).is_none());
    let (why, fix) = border.refuses("93.184.216.34".parse().unwrap(), &wanted).unwrap();
    assert!(why.contains("`never` is against that: not there") && fix.contains("`never`"), "{why}");
    let denied = world.of(Kind::Denied);
    assert_eq!(denied.len(), 1);
    assert!(denied[0].reason.as_ref().unwrap().contains("93.184.216.34"), "{denied:?}");
}

#[test]
fn net_29_what_repeats_is_counted_and_the_record_says_so_before_and_after() {
    let (world, border) = World::new(&[OPEN], Some(20));
    for number in 0..500 {
        let wanted = get("a.test", &format!("/{number}"));
        assert!(is_allowed(&border, &wanted), "{number}");
        if number == 10 {
            let reason = world.of(Kind::Note)[0].reason.clone().unwrap();
            assert!(reason.starts_with("from here on"), "{reason}");
        }
    }
    assert_eq!(world.of(Kind::Called).len(), 10);
    let addresses = vec!["93.184.216.34:80".parse().unwrap()];
    let (number, wanted) = (1, get("a.test", "/"));
    border.happened(&Happened::Allowed {
        number,
        wanted: wanted.clone(),
        addresses,
        way: Way::Plain,
    });
    let how = How::Proxy(End::Done);
    let (wanted, lasted) = (Some(wanted), std::time::Duration::ZERO);
    border.happened(&Happened::Ended { number, wanted, up: 100, down: 2000, how, lasted });
    border.tell_rest();
    border.tell_rest();
    assert_eq!(world.of(Kind::Note).len(), 2, "where it begins, and the rest, once");
    let expected = json!({
        "host": "a.test", "times": 500, "without_event": 490,
        "addresses": ["93.184.216.34"], "more_addresses": false, "up": 100, "down": 2000,
    });
    assert_eq!(world.rest(), json!({"hosts": [expected], "others": null, "proxy_lost": 0}));
}

#[test]
fn net_29_where_no_event_is_left_nothing_new_is_reached() {
    let all = "{ name: all, match: { operation: net.connect }, action: allow }";
    let (world, border) = World::new(&[all], Some(20));
    let reached = |host: &str| is_allowed(&border, &get(host, "/"));
    let hosts: Vec<String> = (0..30).map(|number| format!("h{number}.test")).collect();
    assert_eq!(hosts.iter().filter(|host| reached(host)).count(), 20);
    assert!(reached("h0.test"), "what has an event is still reached");
    let Ruling::Refuse { why, fix } = border.judge(&get("h29.test", "/")) else { panic!() };
    assert!(why.contains("the record") && fix.contains("`recorded`"), "{why} {fix}");
    assert_eq!((world.of(Kind::Called).len(), world.of(Kind::Denied).len()), (20, 11));
    border.tell_rest();
    assert_eq!(world.rest()["hosts"].as_array().unwrap().len(), 20);
}

#[test]
fn net_28_that_the_proxy_was_lost_is_in_the_record() {
    let (world, border) = World::new(&[OPEN], None);
    border.happened(&Happened::Lost { why: "the proxy ended".into() });
    let notes = world.of(Kind::Note);
    let reason = notes[0].reason.as_ref().unwrap();
    assert!(reason.contains("lost") && reason.contains("the proxy ended"), "{reason}");
    assert!(is_allowed(&border, &tunnel("a.test")));
    border.tell_rest();
    assert_eq!(world.rest()["proxy_lost"], 1);
}

#[test]
fn the_operator_says_what_a_run_may_have() {
    let usual = NetworkOptions::default().budget();
    assert_eq!(usual, BUDGET);
    let (requests, up, down) = (Some(5), Some(Bytes::kib(1)), Some(Bytes::kib(2)));
    let options = NetworkOptions { requests, up, down, ..NetworkOptions::default() };
    assert_eq!(options.budget(), Budget { requests: 5, up: 1024, down: 2048, ..BUDGET });
}
