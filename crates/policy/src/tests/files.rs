//! Rule files that are refused, with the place of what is wrong.

use serde_json::json;

use super::{call, facts, loaded, policy, shared, verdict_of};
use crate::{FAULTS_MOST, FILE_MOST, Redact, Snapshot};

fn faults(text: &[u8]) -> Vec<String> {
    let loaded = Snapshot::load(text, &shared().tools());
    let faults = loaded.err().unwrap_or_default();
    faults.iter().map(ToString::to_string).collect()
}

fn place(fault: &str) -> String {
    let numbers = fault.split([' ', ',', ':']).filter(|word| word.parse::<usize>().is_ok());
    numbers.take(2).collect::<Vec<_>>().join(":")
}

/// The rest of a rule whose first lines are given.
fn rule(text: &str) -> String {
    format!("rules:\n- name: a\n  match: {{}}\n  action: allow\n{text}")
}

#[test]
fn a_wrong_file_is_refused_and_says_where() {
    let deep = format!("rules: {}{}", "[".repeat(20), "]".repeat(20));
    let rows: Vec<(String, &str, &str)> = vec![
        // POL-03: typing errors.
        ("alow: []".into(), "1:1", "`alow` is not known"),
        ("Rules: []".into(), "1:1", "did you mean `rules`?"),
        ("rules:\n\t- name: a".into(), "2:1", "a tab"),
        ("rules:\n- name: a # \t".into(), "2:13", "a tab"),
        ("rules: ~".into(), "1:8", "`rules` is not a list"),
        ("rules: all".into(), "1:8", "`rules` is not a list"),
        ("rules: {}".into(), "1:8", "`rules` is not a list"),
        ("- name: a".into(), "1:1", "this should be a rule file"),
        ("rules: [text]".into(), "1:9", "this should be a rule"),
        ("version: 2".into(), "1:10", "this version is not known"),
        ("rules:\n- match: {}\n  action: allow".into(), "2:3", "`name` is missing"),
        ("rules:\n- name: a\n  action: allow".into(), "2:3", "`match` is missing"),
        ("rules:\n- name: a\n  match: {}".into(), "2:3", "`action` is missing"),
        ("rules:\n- name: a\n  match: {}\n  action: alow".into(), "4:11", "did you mean `allow`?"),
        ("rules:\n- name: a\n  match: {}\n  action: pass".into(), "4:11", "`pass` is not an action"),
        ("rules:\n- name: a\n  match: {}\n  action:".into(), "4:", "nothing is not an action"),
        ("rules:\n- name: A b\n  match: {}\n  action: deny".into(), "2:9", "`A b` is not a name"),
        ("rules:\n- name: a\n  Match: {}".into(), "3:3", "did you mean `match`?"),
        (rule("  exept: []"), "5:3", "did you mean `except`?"),
        (rule("  except: {}"), "5:11", "`except` is not a list"),
        (rule("  except: [{}]"), "5:12", "this exempts everything"),
        (rule("- name: a\n  match: {}\n  action: deny"), "5:3", "there are two rules `a`"),
        ("rules: [{ name: protect-audit, match: {}, action: allow }]".into(), "1:9", "hotcell uses this one itself"),
        ("rules: [{ name: a, match: { Path: a }, action: deny }]".into(), "1:29", "did you mean `path`?"),
        ("rules: [{ name: a, match: { path: ~ }, action: deny }]".into(), "1:35", "nothing is not a value of `path`"),
        ("rules: [{ name: a, match: { path: {} }, action: deny }]".into(), "1:35", "a map is not a value of `path`"),
        ("rules: [{ name: a, match: { path: [a, ''] }, action: deny }]".into(), "1:39", "nothing is not a value of `path`"),
        ("rules: [{ name: a, match: { tag: [] }, action: deny }]".into(), "1:34", "`tag` is empty"),
        ("rules: [{ name: a, match: { tag: true }, action: deny }]".into(), "1:34", "`true` is not a value of `tag`"),
        ("rules: [{ name: token, match: {}, action: allow }]".into(), "1:9", "hotcell uses this one itself"),
        // POL-06, POL-07, POL-16: names in another than their one spelling.
        ("rules: [{ name: a, match: { operation: Shell }, action: deny }]".into(), "1:40", "`Shell` cannot be"),
        ("rules: [{ name: a, match: { operation: 'shell ' }, action: deny }]".into(), "1:40", "`shell ` cannot be"),
        ("rules: [{ name: a, match: { tool: ｓhell }, action: deny }]".into(), "1:35", "cannot be a value of `tool`"),
        ("rules: [{ name: a, match: { operation: 'fs.*' }, action: deny }]".into(), "1:40", "cannot be a value"),
        ("rules: [{ name: a, match: { path: ../etc }, action: deny }]".into(), "1:35", "`.` or `..`"),
        ("rules: [{ name: a, match: { path: ./a }, action: deny }]".into(), "1:35", "`.` or `..`"),
        ("rules: [{ name: a, match: { path: a//b }, action: deny }]".into(), "1:35", "an empty part"),
        ("rules: [{ name: a, match: { path: '!a' }, action: deny }]".into(), "1:35", "use `except`"),
        ("rules: [{ name: a, match: { path: 'a{b,c}' }, action: deny }]".into(), "1:35", "a brace"),
        ("rules: [{ name: a, match: { host: Example.com }, action: deny }]".into(), "1:35", "in lower case"),
        ("rules: [{ name: a, match: { host: '*' }, action: deny }]".into(), "1:35", "`*.` before a domain"),
        ("rules: [{ name: a, match: { method: get }, action: deny }]".into(), "1:37", "did you mean `GET`?"),
        ("rules: [{ name: a, match: { state: coding }, action: deny }]".into(), "1:36", "write one of idle"),
        ("rules: [{ name: a, match: { mode: strikt }, action: deny }]".into(), "1:35", "did you mean `strict`?"),
        ("rules: [{ name: a, match: { door: web }, action: deny }]".into(), "1:35", "cannot be a value of `door`"),
        ("rules: [{ name: a, match: { effect: writes }, action: deny }]".into(), "1:37", "did you mean `write`?"),
        // POL-04: what makes one text mean another.
        ("rules: []\nrules: []".into(), "2:1", "`rules` stands here twice"),
        (rule("  action: deny"), "5:3", "`action` stands here twice"),
        ("rules: &all []".into(), "1:8", "an anchor is not used"),
        ("rules: [&a {}, *a]".into(), "1:9", "an anchor is not used"),
        ("rules: *all".into(), "1:8", ""),
        ("rules: [{ <<: { name: a } }]".into(), "1:11", "a merge key is not used"),
        ("rules: !!seq []".into(), "1:8", "a tag is not used"),
        ("rules: !x []".into(), "1:8", "a tag is not used"),
        ("rules: []\n---\nrules: []".into(), "2:1", "a second document is not used"),
        ("? [a]\n: b".into(), "1:3", "a key that is not text"),
        ("rules: [".into(), "", "this is not YAML"),
        ("rules: \"a".into(), "", "this is not YAML"),
        ("rules: []\n a".into(), "", "this is not YAML"),
        ("rules: [] \0".into(), "1:11", "which nobody sees"),
        ("\u{feff}rules: []".into(), "1:1", "which nobody sees"),
        (deep, "1:23", "nested too deep"),
        // Units.
        (rule("  constraints: { memory: 1kb }"), "5:26", "unknown unit `kb`"),
        (rule("  constraints: { memory: 0 }"), "5:26", "`0` is zero"),
        (rule("  constraints: { memory: -1 }"), "5:26", "`-1` is not an amount of bytes"),
        (rule("  constraints: { memory: 9999999999GiB }"), "5:26", "too large"),
        (rule("  constraints: { memory: unlimited }"), "5:26", "`unlimited` is not an amount of bytes"),
        (rule("  constraints: { timeout: 30 }"), "5:27", "`30`"),
        (rule("  constraints: { timeout: 1S }"), "5:27", "unknown unit `S`"),
        (rule("  constraints: { processes: 1.5 }"), "5:29", "`1.5`"),
        (rule("  constraints: { sandbox: mine }"), "5:27", "there is no template `mine`"),
        (rule("  constraints: { token: optional }"), "5:25", "write `required`"),
        (rule("  constraints: { ram: 1GiB }"), "5:18", "`ram` is not known"),
        ("rules: [{ name: a, match: {}, action: deny, constraints: { memory: 1GiB } }]".into(), "1:58", "nothing to constrain"),
        ("rules: [{ name: a, match: {}, action: require_review, constraints: { token: required } }]".into(), "1:77", "a token gives"),
        (rule("  reason: [a]"), "5:11", "a list is not a reason"),
        // Examples.
        (rule("  examples: { match: [{ path: a }], no_match: [{ path: b }] }"), "5:48", "the rule is about this call"),
        ("rules: [{ name: a, match: { path: x }, action: deny, examples: { match: [{ path: y }] } }]".into(), "1:74", "`path` does not hold"),
        ("rules: [{ name: a, match: { path: x }, action: deny, examples: { match: [{ path: ../x }] } }]".into(), "1:82", "without `.` and `..`"),
        (rule("  examples: { matches: [] }"), "5:15", "did you mean `match`?"),
        // Extensions and secrets.
        ("extensions: [a.js]".into(), "1:14", "ends in `.ts`"),
        ("extensions: [a.ts, b.ts, a.ts]".into(), "1:26", "`a.ts` is there twice"),
        (
            "rules: [{ name: a.ts, match: {}, action: allow }]\nextensions: [a.ts]".into(),
            "2:14",
            "`a.ts` is there twice",
        ),
        ("extensions: [../a.ts]".into(), "1:14", "ends in `.ts`"),
        ("redact: [a]".into(), "1:10", "at least 3"),
        ("redact: [{ regex: '(' }]".into(), "1:19", "the pattern cannot be used"),
        ("redact: [{ regex: 'a*' }]".into(), "1:19", "matches nothing at all"),
    ];
    for (text, at, words) in rows {
        let found = faults(text.as_bytes());
        let first = found.iter().find(|fault| fault.contains(words));
        let first =
            first.unwrap_or_else(|| panic!("{text}\nshould say {words}, and says {found:?}"));
        assert!(place(first).starts_with(at), "{text}\nshould be at {at}, and is {first}");
    }
}

#[test]
fn a_bomb_is_refused_before_it_grows() {
    let mut laughs = String::from("a: &a [x, x]\n");
    for (one, next) in ('a'..'i').zip('b'..) {
        laughs += &format!("{next}: &{next} [*{one}, *{one}, *{one}]\n");
    }
    for (text, words) in [
        (laughs.into_bytes(), "an anchor is not used"),
        (vec![b'#'; FILE_MOST + 1], "the file has 1048577 bytes"),
        ("[".repeat(FILE_MOST).into_bytes(), "recursion limit exceeded"),
        ("{a: ".repeat(FILE_MOST / 4).into_bytes(), "recursion limit exceeded"),
        ("- ".repeat(FILE_MOST / 2).into_bytes(), "nested too deep"),
        (format!("rules: [{}]", "a,".repeat(400_000)).into_bytes(), "too much in the file"),
        (format!("rules: [{}]", "a,".repeat(20_000)).into_bytes(), "`rules` has 20000 items"),
        (b"rules: [\xff]".to_vec(), "line 1, column 9: this is not UTF-8"),
    ] {
        let found = faults(&text);
        assert!(found.iter().any(|fault| fault.contains(words)), "{words}: {found:?}");
    }
}

#[test]
fn a_file_of_one_line_is_kept_once() {
    let rules: Vec<String> = (0..10_000)
        .map(|n| format!("{{name: r{n}, match: {{path: a{n}}}, action: deny}}"))
        .collect();
    let text = format!("rules: [{}]", rules.join(", "));
    let snapshot = policy(&text);
    let kept: usize = snapshot.rules().iter().map(|rule| rule.text().len()).sum();
    assert_eq!((snapshot.rules().len(), kept), (10_000, text.len()));
}

#[test]
fn up_to_20_faults_are_told_at_once_in_their_order() {
    let found = faults(format!("rules:\n{}", "- nme: a\n".repeat(30)).as_bytes());
    assert_eq!(found.len(), FAULTS_MOST);
    let lines: Vec<usize> = found
        .iter()
        .map(|fault| place(fault).split(':').next().unwrap().parse().unwrap())
        .collect();
    assert!(lines.is_sorted(), "{lines:?}");
}

#[test]
fn a_fault_in_when_is_told_with_its_own_column() {
    for (text, at, words) in [
        (rule("  when: args.sise < 1"), "5:", ""),
        ("rules: [{ name: a, match: { tool: fs.write }, action: allow, when: 'args.sise < 1' }]".into(), "1:74", "did you mean `size`?"),
        ("rules:\n- name: a\n  match: { tool: fs.write }\n  action: allow\n  when: args.size < \"a\"".into(), "5:19", "a number and text are compared"),
        ("rules:\n- name: a\n  match: { tool: fs.write }\n  action: allow\n  when: \"args.size <\"".into(), "5:21", "ends too early"),
        ("rules:\n- name: a\n  match: {}\n  action: allow\n  when: >-\n    1 +\n    2".into(), "6:5", "`when` is a number (character 3)"),
    ] {
        let found = faults(text.as_bytes());
        if words.is_empty() {
            assert!(found.is_empty(), "of no tool in particular: {found:?}");
            continue;
        }
        assert!(found[0].contains(words) && place(&found[0]).starts_with(at), "{text}\n{found:?}");
    }
}

#[test]
fn the_example_of_the_documentation_is_read() {
    let page = include_str!("../../../../docs/rules.md");
    let text = page.split("```yaml").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let loaded = loaded(text);
    assert!(loaded.warnings.is_empty());
    let [rule] = loaded.snapshot.rules() else { panic!() };
    assert_eq!((rule.name(), rule.at().line), ("agents-may-write-source", 4));
    assert!(
        rule.text().starts_with("  - name: agents-may") && rule.text().contains("reason: source")
    );
    let constraints = "sandbox: code-executor, max_file_size: 1MiB";
    assert_eq!(rule.constraints.to_string(), constraints);
}

#[test]
fn what_is_never_shown_is_told() {
    let policy = policy("redact: [corp-, { regex: 'tok_[a-z]{8}' }]");
    let [Redact::Prefix(prefix), Redact::Regex(regex)] = policy.redact() else { panic!() };
    assert_eq!((prefix.as_str(), regex.as_str()), ("corp-", "tok_[a-z]{8}"));
}

/// A pattern of secrets looks at each byte once or is refused, whatever the text is.
#[test]
fn res_18_patterns_of_secrets_are_quick_or_refused() {
    let load = |pattern: &str| {
        Snapshot::load(format!("redact: [{{ regex: '{pattern}' }}]").as_bytes(), &shared().tools())
    };
    let texts = ["a".repeat(1 << 20), "ab".repeat(1 << 19), format!("{}!", "a".repeat(1 << 20))];
    for pattern in ["(a+)+$", "(a|a)*b", "(a*)*c", "tok_[a-z]{8,}", "(?-u:\\b)key=[^ ]+", "x\\w+y"]
    {
        let loaded = load(pattern).unwrap_or_else(|faults| panic!("{pattern}: {faults:?}"));
        let policy = loaded.snapshot;
        let [Redact::Regex(expression)] = policy.redact() else { panic!() };
        // Where this took time by the square, it would not come to an end.
        let found = texts.iter().filter(|text| expression.compiled().is_match(text.as_bytes()));
        assert!(found.count() <= texts.len());
    }
    for (pattern, why) in [
        ("[ab]*a[ab]{400}c", "could be slow"),
        ("c[ab]{400}a[ab]*", "could be slow"),
        ("(?:[ab]{1,100}){1,100}c", "cannot be used"),
        ("\\w{500}", "cannot be used"),
        ("(?=a)b", "look-around"),
        ("(a)\\1", "backreferences"),
        ("\\bkey", "word boundaries"),
    ] {
        let faults = load(pattern).unwrap_err();
        assert!(faults[0].to_string().contains(why), "{pattern}: {}", faults[0]);
    }
}

#[test]
fn a_digest_is_of_what_is_said_and_not_of_how() {
    let one = policy("rules: [{ name: a, match: { path: x }, action: deny }]");
    let same = policy("# a\nrules:\n  - name: 'a'\n    action: deny\n    match:\n      path: x\n");
    let other = policy("rules: [{ name: a, match: { path: y }, action: deny }]");
    assert_eq!(one.digest(), same.digest());
    assert_ne!(one.digest(), other.digest());
    assert!(one.name().starts_with("policy ") && one.name() == same.name());
    // Numbers to YAML, and different names.
    let [one, other] = ["1e2", "100.0"].map(|path| {
        policy(&format!("rules: [{{ name: a, match: {{ path: {path} }}, action: deny }}]")).digest()
    });
    assert_ne!(one, other);
}

/// POL-01 and POL-12: what is empty allows nothing, and what has no value denies and says which rule.
#[test]
fn nothing_is_not_everything_and_an_error_is_a_deny() {
    let one = call("fs.write", json!({"path": "a"}));
    for empty in ["", "\n", "# nothing\n", "rules: []", "version: 1"] {
        assert_eq!(verdict_of(empty, &one, &facts()), "deny [] no rule allows it", "{empty:?}");
    }
    let text = "
rules:
  - { name: may, match: {}, action: allow }
  - { name: small, match: { tool: fs.write }, action: allow, when: args.size < 10 }";
    let denied = "deny [may small] `when` of the rule `small` has no value: there is no `size`";
    assert_eq!(verdict_of(text, &one, &facts()), denied);
    let huge = call("fs.write", json!({"list": vec![1; 100_000]}));
    let slow = "rules: [{ name: slow, match: {}, action: require_review, when: 'args.list.all(x, x > 0)' }]";
    let steps =
        "deny [slow] `when` of the rule `slow` has no value: it takes more than 20000 steps";
    assert_eq!(verdict_of(slow, &huge, &facts()), steps);
}
