//! What holds for all policies.

use std::sync::Arc;

use hotcell_request::{Call, Value};
use hotcell_types::Decision;
use proptest::prelude::*;
use serde_json::json;

use super::{call, facts, policy, said, tag};
use crate::{Constraints, Extension, Facts, Grant, Snapshot, TokenStatus, Verdict, judge};

const PATHS: [&str; 6] = ["src/a.rs", "src/b/c.rs", "docs/x.md", "x", "src/kernel/k.rs", "lib/y"];
const GLOBS: [&str; 8] =
    ["src/**", "*.rs", "docs/*", "**", "src/kernel/**", "/x", "[a-m]*/**", "**/c.rs"];

fn condition() -> impl Strategy<Value = String> {
    let paths = prop::collection::vec(prop::sample::select(GLOBS.to_vec()), 1..3)
        .prop_map(|globs| format!("path: {}", serde_json::to_string(&globs).unwrap()));
    let field = prop_oneof![
        3 => paths,
        2 => prop::sample::select(vec!["operation: fs.write", "operation: [fs.write, fs.read]"]).prop_map(str::to_owned),
        1 => prop::sample::select(vec!["tool: fs.write", "tag: agent", "tag: [agent, other]", "state: planning",
            "door: cli", "effect: [read, write]", "host: '*.example.com'", "method: GET"]).prop_map(str::to_owned),
    ];
    prop::collection::vec(field, 0..4).prop_map(|mut fields| {
        fields.sort();
        fields.dedup_by_key(|field| field.split(':').next().unwrap().to_owned());
        format!("{{ {} }}", fields.join(", "))
    })
}

fn action() -> impl Strategy<Value = &'static str> {
    prop_oneof![3 => Just("allow"), 1 => Just("deny"), 1 => Just("require_review")]
}

/// All of a rule but its name.
fn rule() -> impl Strategy<Value = String> {
    let item = condition().prop_filter("an item names something", |item| item != "{  }");
    let when = prop_oneof![
        8 => Just(""),
        1 => Just(", when: args.size < 10"),
        1 => Just(", when: args.size > 3 || args.size == 2"),
    ];
    (condition(), action(), prop::collection::vec(item, 0..3), when).prop_map(
        |(matching, action, items, when)| {
            let except = if items.is_empty() {
                String::new()
            } else {
                format!(", except: [{}]", items.join(", "))
            };
            format!("match: {matching}, action: {action}{except}{when}")
        },
    )
}

fn rules(most: usize) -> impl Strategy<Value = Vec<String>> {
    prop::collection::vec(rule(), 0..most)
}

fn file<'a>(rules: impl IntoIterator<Item = (usize, &'a String)>) -> Snapshot {
    let rules: Vec<String> =
        rules.into_iter().map(|(id, rule)| format!("- {{ name: r{id:02}, {rule} }}\n")).collect();
    policy(&if rules.is_empty() { String::new() } else { format!("rules:\n{}", rules.concat()) })
}

fn args() -> impl Strategy<Value = Value> {
    let places = prop::collection::vec(prop::sample::select(PATHS.to_vec()), 0..4);
    let hosts =
        prop::collection::vec(prop::sample::select(vec!["a.example.com", "example.org"]), 0..2);
    (places, hosts, 0..20)
        .prop_map(|(paths, hosts, size)| json!({"paths": paths, "hosts": hosts, "size": size}))
}

fn any_facts() -> impl Strategy<Value = Facts> {
    (any::<bool>(), any::<bool>()).prop_map(|(agent, planning)| Facts {
        tags: agent.then(|| tag("agent")).into_iter().collect(),
        state: planning.then(|| "planning".into()),
        ..facts()
    })
}

/// With a token, valid or not, or without.
fn with_token() -> impl Strategy<Value = Facts> {
    (any_facts(), 0..3).prop_map(|(facts, token)| {
        let token = match token {
            0 => TokenStatus::None,
            1 => TokenStatus::Invalid("it is over".into()),
            _ => TokenStatus::Valid(Constraints::default()),
        };
        Facts { token, ..facts }
    })
}

fn any_call() -> impl Strategy<Value = Call> {
    (prop::sample::select(vec!["fs.write", "fs.read", "fs.copy"]), args())
        .prop_map(|(name, args)| call(name, args))
}

/// 0 allow, 1 review, 2 deny.
fn strictness(verdict: &Verdict<'_>) -> u8 {
    match verdict {
        Verdict::Allow(_) => 0,
        Verdict::Review(_) => 1,
        Verdict::Deny(_) | Verdict::Ask(_) => 2,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn the_order_of_rules_changes_nothing(
        rules in rules(8), call in any_call(), facts in with_token(), seed in any::<u64>(),
    ) {
        let one = file(rules.iter().enumerate());
        let mut shuffled: Vec<(usize, &String)> = rules.iter().enumerate().collect();
        shuffled.sort_by_key(|(id, _)| (*id as u64 + 1).wrapping_mul(seed | 1) % 1009);
        let other = file(shuffled);
        prop_assert_eq!(said(&judge(&one, &call, &facts)), said(&judge(&other, &call, &facts)));
    }

    #[test]
    fn a_rule_twice_and_one_about_something_else_change_nothing(
        rules in rules(6), call in any_call(), facts in with_token(),
    ) {
        let one = file(rules.iter().enumerate());
        let twice = file(rules.iter().chain(&rules).enumerate());
        prop_assert_eq!(strictness(&judge(&one, &call, &facts)), strictness(&judge(&twice, &call, &facts)));
        let elsewhere = [
            "match: { operation: http.fetch }, action: deny".to_owned(),
            "match: { path: ['nowhere/**'] }, action: require_review".to_owned(),
            "match: { tag: [nobody] }, action: deny".to_owned(),
        ];
        let more = file(rules.iter().chain(&elsewhere).enumerate());
        prop_assert_eq!(said(&judge(&one, &call, &facts)), said(&judge(&more, &call, &facts)));
    }

    #[test]
    fn a_deny_more_never_widens_and_a_review_more_never_allows(
        rules in rules(6), more in rule(), call in any_call(), facts in with_token(),
    ) {
        let one = file(rules.iter().enumerate());
        let before = strictness(&judge(&one, &call, &facts));
        let deny = more.replace("action: allow", "action: deny").replace("require_review", "deny");
        let other = file(rules.iter().chain([&deny]).enumerate());
        prop_assert!(strictness(&judge(&other, &call, &facts)) >= before);
        let review = deny.replace("action: deny", "action: require_review");
        let other = file(rules.iter().chain([&review]).enumerate());
        prop_assert!(strictness(&judge(&other, &call, &facts)) >= before.min(1));
    }

    #[test]
    fn several_paths_are_never_judged_wider_than_each(
        rules in rules(6), args in args(), facts in with_token(),
    ) {
        let policy = file(rules.iter().enumerate());
        let whole = strictness(&judge(&policy, &call("fs.write", args.clone()), &facts));
        for path in args["paths"].as_array().unwrap() {
            let mut alone = args.clone();
            alone["paths"] = json!([path]);
            prop_assert!(whole >= strictness(&judge(&policy, &call("fs.write", alone), &facts)), "{}", path);
        }
        for host in args["hosts"].as_array().unwrap() {
            let mut alone = args.clone();
            alone["hosts"] = json!([host]);
            prop_assert!(whole >= strictness(&judge(&policy, &call("fs.write", alone), &facts)), "{}", host);
        }
    }

    /// What the index leaves out would not have spoken.
    #[test]
    fn the_index_misses_no_rule(rules in rules(8), call in any_call(), facts in any_facts()) {
        let policy = file(rules.iter().enumerate());
        let verdict = judge(&policy, &call, &facts);
        let spoken: Vec<String> = match &verdict {
            Verdict::Allow(permit) => permit.account().rules(),
            Verdict::Review(account) | Verdict::Deny(account) | Verdict::Ask(account) => account.rules(),
        };
        let explained = policy.explain(&call, &facts);
        let would: Vec<String> = explained.rules.iter()
            .filter(|rule| rule.outcome == crate::Outcome::Spoke || matches!(rule.outcome, crate::Outcome::Failed(_)))
            .map(|rule| rule.rule.clone())
            .collect();
        prop_assert_eq!(spoken, would);
    }

    /// The hint is a rule that does what it promises.
    #[test]
    fn what_would_allow_a_call_allows_it(rules in rules(4), call in any_call(), facts in any_facts()) {
        let text: Vec<String> =
            rules.iter().enumerate().map(|(id, rule)| format!("- {{ name: r{id:02}, {rule} }}\n")).collect();
        let policy = policy(&format!("rules:\n{}- {{ name: z, match: {{ tag: nobody }}, action: deny }}", text.concat()));
        let verdict = judge(&policy, &call, &facts);
        let hint = verdict.would_allow(&policy, &call);
        match &verdict {
            Verdict::Deny(account) if account.decision().is_none() => {
                let with = super::policy(&format!("rules:\n{}{hint}\n", text.concat()));
                // Where a rule asks for somebody to agree about one of the paths, that is what is left.
                let most = if account.spoken().is_empty() { 0 } else { 1 };
                prop_assert_eq!(strictness(&judge(&with, &call, &facts)), most, "{}", hint);
            }
            Verdict::Allow(_) => prop_assert!(hint.is_empty()),
            _ => prop_assert!(!hint.is_empty()),
        }
    }

    /// A token stands for the rules of the file and its extensions, and for nothing that is built in; one that does
    /// not count is as good as none.
    #[test]
    fn a_token_gives_what_it_is_for_and_a_bad_one_nothing(
        rules in rules(6), call in any_call(), facts in any_facts(), extension in prop::bool::ANY,
    ) {
        let policy = file(rules.iter().enumerate());
        let failed = Extension::Failed("gone".into());
        let extension = if extension { failed } else { Extension::NotConfigured };
        let facts = Facts { extension, ..facts };
        let with = |token| Facts { token, ..facts.clone() };
        let (valid, bad) = (TokenStatus::Valid(Constraints::default()), TokenStatus::Invalid("over".into()));
        let verdict = judge(&policy, &call, &with(valid.clone()));
        prop_assert_eq!(said(&verdict), "allow [token] its token allows it");
        let (none, bad) = (judge(&policy, &call, &facts), with(bad));
        let bad = judge(&policy, &call, &bad);
        prop_assert_eq!(strictness(&none), strictness(&bad));
        let protected = super::call("fs.write", json!({"paths": ["src/a.rs", "policy.yaml"]}));
        prop_assert_eq!(strictness(&judge(&policy, &protected, &with(valid))), 2);
    }

    /// What was settled about a call opens nothing that a rule denies of its change, and closes nothing.
    #[test]
    fn what_was_settled_about_a_call_is_never_against_a_rule(
        rules in rules(6), call in any_call(), facts in any_facts(), path in prop::sample::select(PATHS.to_vec()),
    ) {
        let policy = file(rules.iter().enumerate());
        let grant = Grant {
            call: call.digest(), policy: policy.digest(), expires: facts.now + 1, approver: "anna".into(),
        };
        let Verdict::Allow(permit) = judge(&policy, &call, &Facts { grant: Some(grant), ..facts.clone() }) else {
            return Ok(());
        };
        let settled = Some(Arc::new(permit.settles(&policy, &facts, &[])));
        let change = super::settled::change(&call, path);
        let plain = judge(&policy, &change, &facts);
        let with = Facts { settled, ..facts.clone() };
        let after = strictness(&judge(&policy, &change, &with));
        match &plain {
            Verdict::Deny(account) if account.decision().is_some() => prop_assert_eq!(after, 2),
            Verdict::Allow(_) => prop_assert_eq!(after, 0),
            // By whoever asked of the call as well, and by nobody else.
            Verdict::Review(account) if after == 0 => {
                let said = permit.account().rules();
                let asking = account.spoken().iter().filter(|one| one.decision == Decision::Review);
                prop_assert!(asking.into_iter().all(|one| said.contains(&one.rule.to_string())));
            }
            _ => {}
        }
    }

    #[test]
    fn no_file_is_too_odd_to_be_read(text in "\\PC{0,60}|[a-z:{}\\[\\], \\n'\"&*!|>#-]{0,80}") {
        drop(Snapshot::load(text.as_bytes(), &super::shared().tools()));
    }
}

/// POL-02: over 10,000 random policies, one deny that applies is enough, in whatever company.
#[test]
fn deny_wins_in_ten_thousand_policies() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;
    let mut runner = TestRunner::deterministic();
    let one = call("fs.write", json!({"paths": ["src/a.rs"], "size": 1}));
    let right = facts();
    let denies = [
        "match: {}",
        "match: { path: ['*.rs'] }",
        "match: { operation: fs.write }",
        "match: { tool: fs.write }",
    ];
    let pool: Vec<String> =
        (0..400).map(|_| rule().new_tree(&mut runner).unwrap().current()).collect();
    let mut denied = 0;
    for round in 0..10_000_usize {
        let pick = |n: usize| &pool[(round * 31 + n * 97) % pool.len()];
        let deny = format!("{}, action: deny", denies[round % denies.len()]);
        let mut rules = vec![pick(1).clone(), pick(2).clone(), pick(3).clone()];
        rules.insert(round % 4, deny);
        let policy = file(rules.iter().enumerate());
        denied += usize::from(matches!(judge(&policy, &one, &right), Verdict::Deny(_)));
    }
    assert_eq!(denied, 10_000);
}
