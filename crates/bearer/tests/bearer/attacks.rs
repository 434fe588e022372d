//! The catalogue of attacks on tokens, by number.

use std::time::{Duration, Instant};

use data_encoding::BASE64URL_NOPAD;
use hotcell_bearer::{
    Allowed, Audience, Error, Holder, MAX_DEPTH, MAX_PATHS, MAX_TEXT, Moment, Narrower, Paths,
    Presented, Ring, Scope, Tool, Why, advance, consume, find, mint,
};
use hotcell_glob::Glob;
use hotcell_types::{Name, Span};

use crate::common::*;

type ChangeCall = fn(&mut Call);

#[test]
fn tok_01_what_is_no_token_is_refused_at_once() {
    let mut house = House::new();
    let good = house.token(1).bearer.reveal().to_owned();
    let body = good.strip_prefix("hct_").unwrap();
    let mut other_version = BASE64URL_NOPAD.decode(body.as_bytes()).unwrap();
    other_version[0] = 2;
    let other_version = format!("hct_{}", BASE64URL_NOPAD.encode(&other_version));
    for text in [
        "",
        "hct_",
        "hct_A",
        "hct_AAAA",
        body,
        &format!("HCT_{body}"),
        &format!("hct-{body}"),
        &format!(" {good}"),
        &format!("{good}\n"),
        &format!("{good}="),
        &format!("{good}A"),
        &good.replacen("hct_", "hct_+", 1),
        &good.replacen("hct_", "hct_/", 1),
        &good.replacen("hct_", "hct_ä", 1),
        &good.replacen("hct_", "hct_\u{0}", 1),
        &other_version,
        &"a".repeat(1 << 20),
        &format!("hct_{}", "A".repeat(1 << 20)),
        &format!("hct_{}", "A".repeat(MAX_TEXT)),
        "none",
        "null",
        "eyJhbGciOiJub25lIn0.eyJleHAiOjk5OTk5OTk5OTl9.",
    ] {
        let begun = Instant::now();
        let why = house.read(text).unwrap_err();
        let shown: String = text.chars().take(40).collect();
        assert!(matches!(why, Why::Malformed | Why::Signature), "{shown}: {why:?}");
        assert!(begun.elapsed() < Duration::from_millis(5), "{shown}: {:?}", begun.elapsed());
    }
    for end in 0..good.len() {
        assert!(house.read(good.get(..end).unwrap()).is_err(), "cut after {end}");
    }
    assert_eq!(house.status(&good, &alice()), Ok(()));
}

#[test]
fn tok_02_every_bit_counts() {
    let mut house = House::new();
    let good = house.token(1).bearer.reveal().to_owned();
    let bytes = BASE64URL_NOPAD.decode(good.trim_start_matches("hct_").as_bytes()).unwrap();
    for bit in 0..bytes.len() * 8 {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        let text = format!("hct_{}", BASE64URL_NOPAD.encode(&flipped));
        assert!(house.read(&text).is_err(), "bit {bit} of the bytes");
    }
    let mut texts = 0;
    for bit in 0..good.len() * 8 {
        let mut flipped = good.clone().into_bytes();
        flipped[bit / 8] ^= 1 << (bit % 8);
        let Ok(text) = String::from_utf8(flipped) else { continue };
        texts += 1;
        assert!(house.read(&text).is_err(), "bit {bit} of the text");
    }
    assert!(texts > good.len() * 6);
}

#[test]
fn tok_03_the_number_of_a_key_leads_to_a_key_of_the_ring_or_nowhere() {
    let mut house = House::new();
    let good = house.token(1).bearer.reveal().to_owned();
    let bytes = BASE64URL_NOPAD.decode(good.trim_start_matches("hct_").as_bytes()).unwrap();
    for number in [0, 2, 255, u32::MAX] {
        let mut other = bytes.clone();
        other[1..5].copy_from_slice(&number.to_le_bytes());
        let text = format!("hct_{}", BASE64URL_NOPAD.encode(&other));
        assert_eq!(house.read(&text), Err(Why::Signature), "key {number}");
    }
    // Another home's key has the same number.
    let other = House::new();
    assert_eq!(other.read(&good), Err(Why::Signature));
    // No signature at all.
    let unsigned = [&bytes[..bytes.len() - 32], &[0; 32]].concat();
    let text = format!("hct_{}", BASE64URL_NOPAD.encode(&unsigned));
    assert_eq!(house.read(&text), Err(Why::Signature));
}

#[test]
fn tok_04_a_token_is_good_until_it_expires_and_no_moment_longer() {
    let mut house = House::new();
    let token = house.token(5);
    assert_eq!(token.claims.expires - token.claims.issued, 30 * SECOND);
    house.pass(30 * SECOND - 1);
    assert!(house.use_it(token.bearer.reveal(), &alice()).is_ok());
    house.pass(1);
    assert_eq!(house.status(token.bearer.reveal(), &alice()), Err(Why::Expired));
    assert_eq!(house.use_it(token.bearer.reveal(), &alice()).unwrap_err(), Why::Expired);
    let allowed = || Allowed::by_policy(holder(), writing(&["src/**"]), POLICY);
    for (uses, life, is_made) in [
        (1, Span::millis(1), true),
        (1, Span::seconds(3600), true),
        (1, Span::seconds(3601), false),
        (1, Span::seconds(u32::MAX), false),
        (0, Span::seconds(1), false),
        (1_000_000, Span::seconds(1), true),
        (1_000_001, Span::seconds(1), false),
    ] {
        let made =
            house.write(|tx, ring, moment| mint(tx, ring, allowed(), uses, Some(life), moment));
        assert_eq!(made.is_ok(), is_made, "{uses} {life}");
    }
    // A clock that has gone mad makes nothing.
    for clock in [i64::MAX, i64::MAX - SECOND] {
        house.moment.clock = clock;
        let made = house.write(|tx, ring, moment| mint(tx, ring, allowed(), 1, None, moment));
        assert!(matches!(made, Err(Error::Clock)), "{made:?}");
    }
}

#[test]
fn tok_05_a_child_is_a_part_of_its_parent() {
    let run = Some(call_id(1));
    let tool = Tool { name: "fs.write".parse().unwrap(), digest: TOOL };
    let other_tool = Tool { digest: [8; 32], ..tool.clone() };
    let read = Scope::new("fs.read".parse().unwrap(), paths(&["src/**"]));
    let with = |change: fn(&mut Scope)| {
        let mut scope = writing(&["src/**"]);
        change(&mut scope);
        scope
    };
    let exact = Scope { tool: Some(tool.clone()), args: Some(ARGS), ..writing(&["src/**"]) };
    let table: Vec<(&str, Scope, Scope, bool)> = vec![
        ("the same", writing(&["src/**"]), writing(&["src/**"]), true),
        ("less", writing(&["src/**", "docs/**"]), writing(&["src/lib/**"]), true),
        ("one file", writing(&["src/**"]), writing(&["src/main.rs"]), true),
        ("one more", writing(&["src/**"]), writing(&["src/main.rs", "a"]), false),
        ("all", writing(&["src/**"]), writing(&["**"]), false),
        ("none", writing(&["src/**"]), writing(&[]), false),
        ("some", writing(&[]), writing(&["a"]), false),
        ("another operation", writing(&["src/**"]), read, false),
        ("a tool more", writing(&["src/**"]), with(|s| s.tool = None), true),
        ("the tool", writing(&["src/**"]), Scope { tool: Some(tool), ..exact.clone() }, true),
        ("any tool", exact.clone(), Scope { tool: None, ..exact.clone() }, false),
        ("another tool", exact.clone(), Scope { tool: Some(other_tool), ..exact.clone() }, false),
        ("the arguments", writing(&["src/**"]), with(|s| s.args = Some(ARGS)), true),
        ("any arguments", exact.clone(), Scope { args: None, ..exact.clone() }, false),
        ("other arguments", exact.clone(), Scope { args: Some([8; 32]), ..exact.clone() }, false),
    ];
    let mut house = House::new();
    for (what, wide, narrow, is_made) in table {
        let parent = house.mint(Allowed::by_policy(holder(), wide, POLICY), 3);
        let narrower = Narrower { run, scope: narrow, uses: 2, life: None };
        let child = house.child(parent.bearer.reveal(), narrower);
        assert_eq!(child.as_ref().err(), (!is_made).then_some(&Why::Wider), "{what}");
        // What was refused has cost nothing.
        let left = find(&house.conn, &house.read(parent.bearer.reveal()).unwrap()).unwrap();
        assert_eq!(left.unwrap().own.left, if is_made { 1 } else { 3 }, "{what}");
    }
    // Not longer, not more often, not for another run.
    let parent = house.token(2);
    let mut child = |change: fn(&mut Narrower)| {
        let mut narrower = narrower(&["src/**"], 1);
        change(&mut narrower);
        house.child(parent.bearer.reveal(), narrower).map(|child| child.bearer)
    };
    assert_eq!(child(|n| n.life = seconds(31)), Err(Why::Wider));
    assert_eq!(child(|n| n.uses = 3), Err(Why::Wider));
    assert!(child(|n| n.life = seconds(30)).is_ok());
    let bound = child(|n| n.run = Some(call_id(1))).unwrap();
    assert_eq!(child(|n| n.uses = 1), Err(Why::UsedUp));
    let other_run = Narrower { run: Some(call_id(2)), ..narrower(&["src/**"], 1) };
    assert_eq!(house.child(bound.reveal(), other_run).unwrap_err(), Why::Subject);
}

/// Each of these differs from a call that the token is good for in one thing.
#[test]
fn tok_06_in_another_context_it_is_worth_nothing() {
    let mut house = House::new();
    let tool = Some(Tool { name: "fs.write".parse().unwrap(), digest: TOOL });
    let scope = Scope { tool, args: Some(ARGS), ..writing(&["src/**"]) };
    let holder = Holder { run: Some(call_id(1)), ..holder() };
    let token = house.mint(Allowed::by_policy(holder, scope, POLICY), 1);
    let good = Call { run: Some(call_id(1)), ..alice() };
    assert_eq!(house.status(token.bearer.reveal(), &good), Ok(()));
    let table: [(Why, ChangeCall); 18] = [
        (Why::Audience, |call| call.audience = Audience::Run),
        (Why::Audience, |call| call.audience = Audience::Proxy),
        (Why::Subject, |call| call.tenant = "other".parse().unwrap()),
        (Why::Subject, |call| call.subject = "bob".parse().unwrap()),
        (Why::Subject, |call| call.run = Some(call_id(2))),
        (Why::Subject, |call| call.run = None),
        (Why::Operation, |call| call.operation = "fs.read"),
        (Why::Operation, |call| call.operation = "fs.write2"),
        (Why::Tool, |call| call.tool = "x/fs.write"),
        (Why::Tool, |call| call.tool_digest[31] ^= 1),
        (Why::Path, |call| call.paths = vec!["etc/passwd"]),
        (Why::Path, |call| call.paths = vec!["src/main.rs", "etc/passwd"]),
        (Why::Path, |call| call.paths = vec!["etc/passwd", "src/main.rs"]),
        (Why::Path, |call| call.paths = vec![]),
        (Why::Path, |call| call.paths = vec!["SRC/main.rs"]),
        (Why::Path, |call| call.paths = vec![""]),
        (Why::Arguments, |call| call.args[0] ^= 1),
        (Why::Policy, |call| call.policy[0] ^= 1),
    ];
    for (why, change) in table {
        let mut call = good.clone();
        change(&mut call);
        assert_eq!(house.status(token.bearer.reveal(), &call), Err(why), "{call:?}");
    }
    assert!(house.use_it(token.bearer.reveal(), &good).is_ok());
}

/// The first thing that is wrong is the one that is told.
#[test]
fn checks_are_made_in_their_order() {
    let mut house = House::new();
    let token = house.token(1);
    let text = token.bearer.reveal().to_owned();
    let mut call = Call { policy: [0; 32], ..alice() };
    assert_eq!(house.status(&text, &call), Err(Why::Policy));
    // Arguments are not bound in this one.
    call.paths = vec!["x"];
    assert_eq!(house.status(&text, &call), Err(Why::Path));
    call.operation = "x";
    assert_eq!(house.status(&text, &call), Err(Why::Operation));
    call.subject = "bob".parse().unwrap();
    assert_eq!(house.status(&text, &call), Err(Why::Subject));
    house.use_it(&text, &alice()).unwrap();
    assert_eq!(house.status(&text, &call), Err(Why::UsedUp));
    house.revoke(&token);
    assert_eq!(house.status(&text, &call), Err(Why::Revoked));
    house.pass(60 * SECOND);
    assert_eq!(house.status(&text, &call), Err(Why::Expired));
    assert_eq!(house.status(&format!("{text}AAAA"), &call), Err(Why::Signature));
}

#[test]
fn tok_09_what_was_derived_is_revoked_with_it_and_stays_so() {
    let mut house = House::new();
    let parent = house.token(9);
    let child = house.child(parent.bearer.reveal(), narrower(&["src/**"], 5)).unwrap();
    let grandchild = house.child(child.bearer.reveal(), narrower(&["src/main.rs"], 2)).unwrap();
    let texts = [&grandchild, &child, &parent].map(|minted| minted.bearer.reveal().to_owned());
    assert!(house.use_it(&texts[0], &alice()).is_ok());
    assert!(house.revoke(&child).is_some());
    assert!(house.revoke(&child).is_none());
    for restarted in [false, true] {
        if restarted {
            house.restart();
        }
        for text in &texts[..2] {
            assert_eq!(house.status(text, &alice()), Err(Why::Revoked), "{restarted}");
            let again = narrower(&["src/main.rs"], 1);
            assert_eq!(house.child(text, again).unwrap_err(), Why::Revoked);
        }
        assert_eq!(house.status(&texts[2], &alice()), Ok(()));
    }
    // Somebody else's cannot be revoked, or seen.
    let (other, id) = ("other".parse::<Name>().unwrap(), parent.claims.id);
    let revoked = house.write(|tx, _, moment| hotcell_bearer::revoke(tx, &other, id, moment));
    assert!(matches!(revoked, Err(Error::NoBearer(_))));
    assert_eq!(hotcell_bearer::get(&house.conn, &other, id).unwrap(), None);
    assert_eq!(hotcell_bearer::list(&house.conn, &other, 0, 10).unwrap(), []);
}

/// A call that was begun goes on; the next one is refused, also if it was judged before.
#[test]
fn tok_10_between_the_look_and_the_use_it_can_be_revoked() {
    let mut house = House::new();
    let parent = house.token(9);
    let child = house.child(parent.bearer.reveal(), narrower(&["src/**"], 5)).unwrap();
    for (revoked, why) in [(None, None), (Some(&parent), Some(Why::Revoked))] {
        let presented = house.read(child.bearer.reveal()).unwrap();
        let known = find(&house.conn, &presented).unwrap();
        let call = alice();
        let covered = presented.status(known.as_ref(), &call.facts(house.now())).unwrap();
        revoked.map(|minted| house.revoke(minted));
        let used = refused(house.write(|tx, _, moment| consume(tx, covered, moment)));
        assert_eq!(used.err(), why);
    }
    // And it can expire.
    let token = house.token(1);
    let presented = house.read(token.bearer.reveal()).unwrap();
    let known = find(&house.conn, &presented).unwrap();
    let covered = presented.status(known.as_ref(), &alice().facts(house.now())).unwrap();
    house.pass(30 * SECOND);
    let used = refused(house.write(|tx, _, moment| consume(tx, covered, moment)));
    assert_eq!(used.unwrap_err(), Why::Expired);
}

#[test]
fn tok_11_neither_tokens_nor_keys_are_shown() {
    let mut house = House::new();
    let minted = house.token(1);
    let text = minted.bearer.reveal().to_owned();
    let secret = text.get(24..).unwrap();
    let presented = house.read(&text).unwrap();
    let covered = presented
        .status(find(&house.conn, &presented).unwrap().as_ref(), &alice().facts(house.now()));
    let error = Presented::read(&house.ring, &format!("{text}A")).unwrap_err();
    let key = std::fs::read_to_string(house.dir.path().join("keys/bearer-1.key")).unwrap();
    let (_, key) = key.trim_end().split_once(" key=").unwrap();
    let said = [
        format!("{minted:?} {:?} {presented:?} {covered:?} {:?}", minted.bearer, house.ring),
        format!("{error} {error:?} {}", minted.change.reason()),
        format!("{:?}", house.use_it(&text, &alice())),
    ];
    for said in &said {
        assert!(!said.contains(secret) && !said.contains(key), "{said}");
        assert!(!said.contains("hct_"), "{said}");
    }
    let database = std::fs::read(house.dir.path().join("bearers.db")).unwrap();
    let bytes = BASE64URL_NOPAD.decode(&text.as_bytes()["hct_".len()..]).unwrap();
    let mac = &bytes[bytes.len() - 32..];
    for canary in [secret.as_bytes(), mac, key.as_bytes()] {
        assert!(!database.windows(canary.len()).any(|window| window == canary));
    }
}

#[test]
fn tok_12_whoever_has_a_token_makes_nothing_wider_of_it() {
    let mut house = House::new();
    // Somebody else cannot make a child of it, nor is there one under another policy.
    let token = house.token(2);
    let bob = Call { subject: "bob".parse().unwrap(), ..alice() };
    for (text, call, policy, why) in [
        (token.bearer.reveal(), &bob, POLICY, Why::Subject),
        (token.bearer.reveal(), &alice(), [0; 32], Why::Policy),
    ] {
        let presented = house.read(text).unwrap();
        let narrower = narrower(&["src/**"], 1);
        let made = house.write(|tx, ring, moment| {
            hotcell_bearer::attenuate(tx, ring, &presented, &call.who(), policy, narrower, moment)
        });
        assert_eq!(refused(made).unwrap_err(), why);
    }
}

#[test]
fn tok_14_a_clock_that_is_set_back_brings_nothing_back() {
    let mut house = House::new();
    let (expired, used) = (house.token(1), house.token(1));
    house.use_it(used.bearer.reveal(), &alice()).unwrap();
    house.pass(40 * SECOND);
    // Something happens at that time, and is remembered.
    let later = house.token(1);
    let day = 24 * 3600 * SECOND;
    for (what, boot, uptime) in
        [("the same boot", 1, house.moment.uptime), ("after a restart of the system", 2, SECOND)]
    {
        house.restart();
        house.moment.clock = START - day;
        (house.moment.boot, house.moment.uptime) = ([boot; 16], uptime);
        assert_eq!(house.status(expired.bearer.reveal(), &alice()), Err(Why::Expired), "{what}");
        assert_eq!(house.status(used.bearer.reveal(), &alice()), Err(Why::Expired), "{what}");
        assert_eq!(house.status(later.bearer.reveal(), &alice()), Ok(()), "{what}");
        // What is made now ends in half a minute, by the system's own count.
        let fresh = house.token(1);
        house.moment.uptime += 29 * SECOND;
        assert_eq!(house.status(fresh.bearer.reveal(), &alice()), Ok(()), "{what}");
        house.moment.uptime += SECOND;
        assert_eq!(house.status(fresh.bearer.reveal(), &alice()), Err(Why::Expired), "{what}");
        house.moment.uptime -= 30 * SECOND;
    }
}

/// Nothing was written when it was seen to have expired: what is left is how long the system is up.
#[test]
fn tok_14_an_expired_token_stays_so_after_a_restart_with_a_clock_that_is_behind() {
    let mut house = House::new();
    let token = house.token(1);
    house.pass(40 * SECOND);
    assert_eq!(house.status(token.bearer.reveal(), &alice()), Err(Why::Expired));
    house.restart();
    house.moment = Moment { clock: START - SECOND, boot: [2; 16], uptime: 30 * SECOND };
    assert_eq!(house.status(token.bearer.reveal(), &alice()), Err(Why::Expired));
    // If that time is kept, not even the moment after a boot is early enough.
    house.write(|tx, _, moment| advance(tx, moment)).unwrap();
    house.moment = Moment { clock: START - SECOND, boot: [3; 16], uptime: 0 };
    assert_eq!(house.status(token.bearer.reveal(), &alice()), Err(Why::Expired));
}

/// Set ahead by mistake and back again: what was made in between does not live until then.
#[test]
fn a_clock_that_was_ahead_makes_nothing_that_lasts() {
    let mut house = House::new();
    house.moment.clock = START + 1_000_000 * SECOND;
    let token = house.token(1);
    house.moment.clock = START;
    house.moment.uptime += 29 * SECOND;
    assert_eq!(house.status(token.bearer.reveal(), &alice()), Ok(()));
    house.moment.uptime += SECOND;
    assert_eq!(house.status(token.bearer.reveal(), &alice()), Err(Why::Expired));
}

/// Welch's t of the times that two refusals take: of a signature that is wrong from its first byte on, and of
/// one that is right up to its last. A difference that tells anything shows in so many.
#[test]
fn tok_16_how_much_of_a_signature_is_right_does_not_show_in_time() {
    const EACH: usize = 50_000;
    let mut house = House::new();
    let good = house.token(1).bearer.reveal().to_owned();
    let bytes = BASE64URL_NOPAD.decode(good.trim_start_matches("hct_").as_bytes()).unwrap();
    let wrong_at = |place: usize| {
        let mut other = bytes.clone();
        other[place] ^= 1;
        format!("hct_{}", BASE64URL_NOPAD.encode(&other))
    };
    let texts = [wrong_at(bytes.len() - 32), wrong_at(bytes.len() - 1)];
    let mut times: [Vec<f64>; 2] = [Vec::with_capacity(EACH), Vec::with_capacity(EACH)];
    for round in 0..2 * EACH {
        // In no order that something else could follow.
        let which = (round.wrapping_mul(0x9e37_79b9) >> 7) & 1;
        let begun = Instant::now();
        let refused = house.read(&texts[which]);
        times[which].push(begun.elapsed().as_nanos() as f64);
        assert_eq!(refused, Err(Why::Signature));
    }
    let of = |times: &mut Vec<f64>| {
        times.sort_by(f64::total_cmp);
        // What others did to the machine meanwhile is at the upper end.
        times.truncate(times.len() * 8 / 10);
        let (count, sum) = (times.len() as f64, times.iter().sum::<f64>());
        let mean = sum / count;
        let variance = times.iter().map(|time| (time - mean).powi(2)).sum::<f64>() / (count - 1.0);
        (mean, variance / count)
    };
    let [(one, of_one), (other, of_other)] = times.each_mut().map(of);
    let t = (one - other) / (of_one + of_other).sqrt();
    let difference = (one - other).abs() / one;
    assert!(t.abs() < 10.0 || difference < 0.01, "t = {t}, {one} ns and {other} ns");
}

#[test]
fn tok_17_there_are_bounds_on_everything() {
    let globs = |count: usize, length: usize| {
        let name = |number: usize| format!("/{number:04}{}", "/x".repeat(length / 2));
        (0..count).map(|number| Glob::parse(&name(number)).unwrap()).collect::<Vec<_>>()
    };
    assert!(Paths::new(globs(10_000, 1)).is_err());
    assert!(Paths::new(globs(MAX_PATHS + 1, 1)).is_err());
    let mut house = House::new();
    for (count, length, is_made) in
        [(MAX_PATHS, 70, true), (MAX_PATHS, 200, false), (1, 200, true), (1, 250, true)]
    {
        let scope =
            Scope::new("fs.write".parse().unwrap(), Paths::new(globs(count, length)).unwrap());
        let allowed = Allowed::by_policy(holder(), scope, POLICY);
        let made = house.write(|tx, ring, moment| mint(tx, ring, allowed, 1, None, moment));
        assert_eq!(made.is_ok(), is_made, "{count} {length}");
        if let Ok(minted) = made {
            assert!(minted.bearer.reveal().len() <= MAX_TEXT);
            assert!(house.read(minted.bearer.reveal()).is_ok());
        }
    }
    // Generations.
    let mut last = house.token(100);
    for depth in 2..=MAX_DEPTH {
        last = house.child(last.bearer.reveal(), narrower(&["src/**"], 50 - depth as u32)).unwrap();
    }
    assert!(house.use_it(last.bearer.reveal(), &alice()).is_ok());
    let beyond = house.child(last.bearer.reveal(), narrower(&["src/**"], 1));
    assert_eq!(beyond.unwrap_err(), Why::Deep);
}

#[test]
fn tok_18_arguments_are_bound_to_the_byte() {
    let mut house = House::new();
    let scope = Scope { args: Some(ARGS), ..writing(&["src/**"]) };
    let token = house.mint(Allowed::by_policy(holder(), scope, POLICY), 1);
    for bit in 0..256 {
        let mut call = alice();
        call.args[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(house.status(token.bearer.reveal(), &call), Err(Why::Arguments));
    }
    assert!(house.use_it(token.bearer.reveal(), &alice()).is_ok());
}

/// One that we signed, and that the store does not have: of a home that lost its record.
#[test]
fn a_token_that_is_not_in_the_store_is_unknown() {
    let mut house = House::new();
    let token = house.token(1);
    let presented = house.read(token.bearer.reveal()).unwrap();
    assert_eq!(presented.status(None, &alice().facts(START)).unwrap_err(), Why::Unknown);
    let other = house.token(1);
    let other = find(&house.conn, &house.read(other.bearer.reveal()).unwrap()).unwrap();
    let status = presented.status(other.as_ref(), &alice().facts(START));
    assert_eq!(status.unwrap_err(), Why::Unknown);
    let empty = rusqlite::Connection::open_in_memory().unwrap();
    assert_eq!(find(&empty, &presented).unwrap(), None);
    assert_eq!(hotcell_bearer::now(&empty, &house.moment).unwrap(), START);
    assert!(Ring::open(house.dir.path()).is_ok());
}
