//! Laws of claims, for any claims.

use hotcell_glob::Glob;
use hotcell_types::{CallId, Name};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use crate::check::{Facts, Who, Why};
use crate::claims::{Audience, Claims, Holder, MAX_USES, Paths, Scope, Tool};
use crate::id::BearerId;
use crate::rows::{Lineage, Stored};

/// Few values of everything, so that scopes often meet.
const GLOBS: [&str; 12] = [
    "**",
    "src/**",
    "/src/*",
    "/src/a",
    "/src/?",
    "*.rs",
    "/src/*.rs",
    "/a",
    "docs/",
    "/src/**/a",
    "[ab]",
    "/src/[ab]",
];
const PATHS: [&str; 10] =
    ["a", "b", "src/a", "src/b", "src/x/a", "src/m.rs", "m.rs", "docs/a", "docs/x/m.rs", "src"];

fn digest() -> impl Strategy<Value = [u8; 32]> {
    (0_u8..3).prop_map(|byte| [byte; 32])
}

fn name() -> impl Strategy<Value = Name> {
    prop_oneof![Just("alice"), Just("bob")].prop_map(|name| name.parse().unwrap())
}

fn run() -> impl Strategy<Value = Option<CallId>> {
    option::of((0_u8..2).prop_map(|byte| CallId::new(7, [byte; 10])))
}

fn scope() -> impl Strategy<Value = Scope> {
    let operation = prop_oneof![4 => Just("fs.write"), 1 => Just("fs.read")];
    let tool = (prop_oneof![Just("write"), Just("read")], digest());
    let globs = vec(proptest::sample::select(&GLOBS), 0..4);
    (operation, option::of(tool), globs, option::of(digest())).prop_map(
        |(operation, tool, globs, args)| Scope {
            operation: operation.parse().unwrap(),
            tool: tool.map(|(name, digest)| Tool { name: name.parse().unwrap(), digest }),
            paths: Paths::new(globs.iter().map(|glob| Glob::parse(glob).unwrap()).collect())
                .unwrap(),
            args,
        },
    )
}

prop_compose! {
    fn claims()(
        id: [u8; 16],
        audience in proptest::sample::select(&Audience::ALL),
        (tenant, subject, run) in (name(), name(), run()),
        scope in scope(),
        uses in 1..=MAX_USES,
        issued in 0..i64::MAX / 2,
        life in 1..3_600_000_000_000_i64,
        nonce in 1..i64::MAX as u64,
        policy in digest(),
        parent in option::of(any::<[u8; 16]>()),
    ) -> Claims {
        Claims {
            id: BearerId(id),
            audience,
            holder: Holder { tenant, subject, run },
            scope,
            uses,
            issued,
            expires: issued + life,
            nonce,
            policy,
            parent: parent.map(BearerId),
        }
    }
}

prop_compose! {
    /// A child of something, as it could be if nobody looked.
    fn pair()(mut parent in claims(), mut child in claims(), shared in vec(prop::bool::weighted(0.8), 6)) -> (Claims, Claims) {
        child.parent = Some(parent.id);
        parent.audience = Audience::Token;
        (parent.nonce, child.nonce) = (1, 2);
        parent.issued = 0;
        if shared[0] { child.holder = Holder { run: child.holder.run, ..parent.holder.clone() } }
        if shared[1] { child.policy = parent.policy }
        if shared[2] { child.audience = parent.audience }
        if shared[3] { child.scope.tool = parent.scope.tool.clone() }
        if shared[4] { child.scope.args = parent.scope.args }
        if shared[5] { (parent.uses, parent.expires) = (MAX_USES, i64::MAX) }
        (parent, child)
    }
}

/// What may happen, and whether that is a right of these claims.
fn has_right(claims: &Claims, call: &Happening) -> bool {
    let paths: Vec<&str> = call.paths.iter().map(|&place| PATHS[place]).collect();
    let facts = Facts {
        audience: call.audience,
        who: Who { tenant: &call.tenant, subject: &call.subject, run: call.run },
        operation: if call.is_write { "fs.write" } else { "fs.read" },
        tool: if call.is_write { "write" } else { "read" },
        tool_digest: call.digests[0],
        paths: &paths,
        args: call.digests[1],
        policy: call.digests[2],
        now: call.now,
    };
    claims.expires > call.now && claims.covers(&facts).is_ok()
}

#[derive(Debug)]
struct Happening {
    audience: Audience,
    tenant: Name,
    subject: Name,
    run: Option<CallId>,
    is_write: bool,
    paths: Vec<usize>,
    digests: Vec<[u8; 32]>,
    now: i64,
}

prop_compose! {
    fn happening()(
        audience in proptest::sample::select(&Audience::ALL),
        (tenant, subject, run) in (name(), name(), run()),
        is_write: bool,
        paths in vec(0..PATHS.len(), 0..5),
        digests in vec(digest(), 3),
        now in 0..i64::MAX / 2,
    ) -> Happening {
        Happening { audience, tenant, subject, run, is_write, paths, digests, now }
    }
}

/// The same call, as this bearer would like it to be.
fn fitting(mut call: Happening, claims: &Claims) -> Happening {
    call.audience = claims.audience;
    (call.tenant, call.subject) = (claims.holder.tenant.clone(), claims.holder.subject.clone());
    call.run = claims.holder.run.or(call.run);
    call.is_write = claims.scope.operation.as_str() == "fs.write";
    let tool = claims.scope.tool.as_ref();
    call.digests[0] = tool.map_or(call.digests[0], |tool| tool.digest);
    call.digests[1] = claims.scope.args.unwrap_or(call.digests[1]);
    call.digests[2] = claims.policy;
    call.now = call.now.min(claims.expires - 1);
    let globs = claims.scope.paths.globs();
    call.paths.retain(|&place| globs.iter().any(|glob| glob.matches(PATHS[place])));
    call
}

#[test]
fn tok_05_the_rights_of_a_child_are_rights_of_its_parent() {
    let mut runner = TestRunner::deterministic();
    let strategy = (pair(), happening());
    let (mut children, mut rights) = (0, 0);
    for _ in 0..8_000 {
        let ((parent, child), call) = strategy.new_tree(&mut runner).unwrap().current();
        if !parent.includes(&child) {
            continue;
        }
        children += 1;
        let call = fitting(call, &child);
        if has_right(&child, &call) {
            rights += 1;
            assert!(has_right(&parent, &call), "{parent:#?} {child:#?} {call:#?}");
        }
    }
    // Otherwise the law would hold of nothing.
    assert!(children > 200 && rights > 80, "{children} children, {rights} rights");
}

/// A row that nobody has touched.
fn stored(claims: Claims) -> Stored {
    let (body, left) = (claims.encode(), claims.uses);
    Stored { claims, body, left, held: 0, revoked: None, changes: 1 }
}

proptest! {
    #[test]
    fn tok_05_what_is_wider_than_its_parent_is_refused_at_use_too((parent, child) in pair()) {
        let now = parent.issued.max(child.issued);
        let parent = Claims { parent: None, ..parent };
        let is_alive = parent.expires > now && child.expires > now;
        let expected = match (is_alive, parent.includes(&child)) {
            (false, _) => Err(Why::Expired),
            (_, false) => Err(Why::Wider),
            _ => Ok(()),
        };
        let mut lineage = Lineage { own: stored(child), ancestors: vec![stored(parent)] };
        prop_assert_eq!(lineage.stands(Some(now)), expected);
        // Whatever is missing or revoked above it counts.
        lineage.ancestors[0].revoked = Some(now);
        prop_assert!(matches!(lineage.stands(Some(now)), Err(Why::Revoked | Why::Expired)));
        lineage.ancestors.clear();
        prop_assert!(lineage.stands(Some(now)).is_err());
    }

    #[test]
    fn claims_come_back_from_their_bytes(claims in claims()) {
        prop_assert!(claims.is_possible());
        prop_assert_eq!(Claims::decode(&claims.encode()), Some(claims));
    }

    #[test]
    fn no_two_claims_look_alike(one in claims(), other in claims()) {
        prop_assert_eq!(one == other, one.encode() == other.encode());
        // Nor is one the beginning of another.
        prop_assert!(one == other || !one.encode().starts_with(&other.encode()));
    }

    #[test]
    fn bytes_are_claims_in_their_one_spelling_or_nothing(
        claims in claims(),
        at: proptest::sample::Index,
        byte: u8,
        more in vec(any::<u8>(), 1..9),
    ) {
        let bytes = claims.encode();
        prop_assert_eq!(Claims::decode(&[&bytes[..], &more].concat()), None);
        prop_assert_eq!(Claims::decode(&bytes[..at.index(bytes.len())]), None);
        let mut changed = bytes.clone();
        changed[at.index(bytes.len())] = byte;
        if let Some(read) = Claims::decode(&changed) {
            prop_assert_eq!(read.encode(), changed);
        }
    }

    #[test]
    fn one_more_path_is_never_easier(claims in claims(), call in happening(), more in 0..PATHS.len()) {
        let paths = call.paths.clone();
        let mut call = Happening { paths, ..fitting(call, &claims) };
        let before = has_right(&claims, &call);
        if !call.paths.is_empty() {
            call.paths.push(more);
            prop_assert!(before || !has_right(&claims, &call));
        }
    }
}

type ChangeClaims = fn(&mut Claims, i64);

#[test]
fn tok_04_claims_that_were_never_minted_are_not_read() {
    let good = Claims {
        id: BearerId([1; 16]),
        audience: Audience::Token,
        holder: Holder { tenant: Name::LOCAL, subject: Name::LOCAL, run: None },
        scope: Scope::new("fs.write".parse().unwrap(), Paths::default()),
        uses: 1,
        issued: 5,
        expires: 6,
        nonce: 1,
        policy: [0; 32],
        parent: None,
    };
    assert_eq!(Claims::decode(&good.encode()), Some(good.clone()));
    let hour = 3_600_000_000_000;
    let changes: [(&str, ChangeClaims); 11] = [
        ("it ends when it begins", |claims, _| claims.expires = claims.issued),
        ("it ends before", |claims, _| claims.expires = 4),
        ("too long", |claims, hour| claims.expires = 5 + hour + 1),
        ("a hundred years", |claims, hour| claims.expires = 100 * 365 * 24 * hour),
        ("for ever", |claims, _| claims.expires = i64::MAX),
        ("over the edge", |claims, _| (claims.issued, claims.expires) = (i64::MIN, i64::MAX)),
        ("before 1970", |claims, _| claims.issued = -1),
        ("never", |claims, _| claims.uses = 0),
        ("too often", |claims, _| claims.uses = MAX_USES + 1),
        ("no number", |claims, _| claims.nonce = 0),
        ("too large a number", |claims, _| claims.nonce = u64::MAX),
    ];
    for (what, change) in changes {
        let mut bad = good.clone();
        change(&mut bad, hour);
        assert_eq!(Claims::decode(&bad.encode()), None, "{what}");
    }
}
