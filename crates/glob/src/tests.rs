//! What matches, by table and by law.

use std::collections::BTreeSet;

use proptest::prelude::*;

use crate::{BadHost, Glob, GlobSet, HostPattern, HostSet};

fn glob(text: &str) -> Glob {
    Glob::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

#[test]
fn a_pattern_matches_what_gitignore_says_and_nothing_more() {
    for (pattern, yes, no) in [
        ("src/**", &["src", "src/a", "src/a/b.rs"][..], &["srcs", "a/src/b", "."][..]),
        ("src/", &["src", "src/a/b", "x/src", "x/src/a"], &["srcs/a", "a"]),
        ("/src/", &["src", "src/a/b"], &["x/src/a"]),
        ("*.rs", &["a.rs", "x/y/a.rs", ".rs"], &["a.rs/b", "ars", "a.rs.bak"]),
        ("/*.rs", &["a.rs"], &["x/a.rs"]),
        ("a/*", &["a/b"], &["a", "a/b/c", "x/a/b"]),
        ("a/**/b", &["a/b", "a/x/b", "a/x/y/b"], &["a/bc", "ab", "a/b/c"]),
        ("**/a", &["a", "x/a", "x/y/a"], &["xa", "a/x"]),
        ("**", &[".", "a", "a/b"], &[]),
        ("**/*", &["a", "a/b"], &["."]),
        ("*", &["a", "a/b"], &["."]),
        ("/.", &["."], &["a"]),
        ("a?c", &["abc", "aäc", "x/a/c/abc"], &["ac", "a/c", "abbc"]),
        ("[a-c]x", &["ax", "cx"], &["dx", "-x", "x"]),
        ("[!a-c]x", &["dx", "äx"], &["ax", "x"]),
        ("[^a-c]x", &["dx"], &["bx"]),
        ("[]a]x", &["]x", "ax"], &["x"]),
        ("[a-]x", &["-x", "ax"], &["bx"]),
        ("[\\]\\-]x", &["]x", "-x"], &["\\x"]),
        ("\\*\\?\\[\\{", &["*?[{"], &["a?[{"]),
        ("\\!x", &["!x"], &["x"]),
        ("api.example", &["api.example"], &["apiXexample"]),
        ("Shell", &["Shell"], &["shell", "Shell ", "Shell/x"]),
        ("*a*b*", &["ab", "xaxbx", "aab"], &["ba", "a/b"]),
        ("a**/../b", &[], &[]),
    ] {
        let Ok(glob) = Glob::parse(pattern) else {
            assert!(yes.is_empty() && no.is_empty(), "{pattern}");
            continue;
        };
        for path in yes {
            assert!(glob.matches(path), "{pattern} should match {path}");
        }
        for path in no {
            assert!(!glob.matches(path), "{pattern} should not match {path}");
        }
    }
}

#[test]
fn what_could_mean_two_things_is_refused_with_its_place() {
    for (pattern, at, what) in [
        ("", 1, "the pattern is empty"),
        ("/", 1, "the pattern is empty"),
        ("!a", 1, "`!`"),
        (" a", 1, "a space at an end"),
        ("a ", 2, "a space at an end"),
        ("a//b", 1, "an empty part"),
        ("a/./b", 3, "`.` or `..`"),
        ("../a", 1, "`.` or `..`"),
        ("a/..", 3, "`.` or `..`"),
        ("./a", 1, "`.` or `..`"),
        ("a**", 3, "`**` beside other text"),
        ("x/a**b/c", 5, "`**` beside other text"),
        ("a/***", 4, "`**` beside other text"),
        ("a{b,c}", 2, "a brace"),
        ("a[b", 2, "`[` without `]`"),
        ("[a/b]", 1, "`[` without `]`"),
        ("[]", 1, "`[` without `]`"),
        ("[z-a]", 2, "a range that goes backwards"),
        ("[[:alpha:]]", 2, "a named class"),
        ("a\\", 2, "`\\` at the end"),
        ("a\\/b", 2, "`\\` before `/`"),
        ("a\0", 2, "a character that is not shown"),
        ("a\n", 2, "a character that is not shown"),
        (&"a/".repeat(2048), 1, "the pattern is too long"),
        (&"a/".repeat(200), 1, "the pattern has too many parts"),
        (&"a".repeat(256), 1, "a part that is too long"),
    ] {
        let error = Glob::parse(pattern).expect_err(pattern);
        assert_eq!((error.at, error.what), (at, what), "{pattern}");
    }
}

#[test]
fn patterns_relate_as_their_paths_do() {
    for (a, b, meets, covers) in [
        ("src/**", "src/a/*.rs", true, true),
        ("src/*", "src/**", true, false),
        ("src/**", "src", false, false),
        ("src/**", "/src", true, true),
        ("**", "anything/[a-z]/**", true, true),
        ("**/*.rs", "src/**/*.rs", true, true),
        ("src/**/*.rs", "*.rs", true, false),
        ("a/b", "a/c", false, false),
        ("a*", "*b", true, false),
        ("*b", "a*b", true, true),
        ("[a-m]*", "[c-d]x", true, true),
        ("[a-m]*", "[l-z]x", true, false),
        ("[a-m]*", "[n-z]x", false, false),
        ("[!a]x", "[b-d]x", true, true),
        ("a/**/b/**/c", "a/b/c", true, true),
        ("a/**/b/**/c", "a/**/c", true, false),
        ("a/**", "b/**", false, false),
        ("?", "??", false, false),
    ] {
        let (one, other) = (glob(a), glob(b));
        if b == "src" {
            // At any depth, so that only one of its paths is below ours.
            assert!(one.intersects(&other) && !one.covers(&other), "{a} {b}");
            continue;
        }
        assert_eq!(one.intersects(&other), meets, "{a} meets {b}");
        assert_eq!(other.intersects(&one), meets, "{b} meets {a}");
        assert_eq!(one.covers(&other), covers, "{a} covers {b}");
    }
}

/// Every way to read a pattern, tried one after the other.
mod reference {
    pub(super) fn matches(pattern: &str, path: &str) -> bool {
        let path: Vec<&str> = if path == "." { vec![] } else { path.split('/').collect() };
        let trimmed = pattern.trim_matches('/');
        let mut parts: Vec<&str> = trimmed.split('/').collect();
        if !pattern.starts_with('/') && !trimmed.contains('/') {
            parts.insert(0, "**");
        }
        if pattern.ends_with('/') {
            parts.push("**");
        }
        path_matches(&parts, &path)
    }

    fn path_matches(parts: &[&str], path: &[&str]) -> bool {
        match parts {
            [] => path.is_empty(),
            ["**", rest @ ..] => (0..=path.len()).any(|n| path_matches(rest, &path[n..])),
            [part, rest @ ..] => path.split_first().is_some_and(|(first, path)| {
                let (part, first): (Vec<char>, Vec<char>) =
                    (part.chars().collect(), first.chars().collect());
                part_matches(&part, &first) && path_matches(rest, path)
            }),
        }
    }

    fn part_matches(part: &[char], text: &[char]) -> bool {
        match part {
            [] => text.is_empty(),
            ['*', rest @ ..] => (0..=text.len()).any(|n| part_matches(rest, &text[n..])),
            ['[', '!', from, '-', to, ']', rest @ ..] => text
                .split_first()
                .is_some_and(|(c, text)| !(from <= c && c <= to) && part_matches(rest, text)),
            ['[', from, '-', to, ']', rest @ ..] => text
                .split_first()
                .is_some_and(|(c, text)| from <= c && c <= to && part_matches(rest, text)),
            ['?', rest @ ..] => !text.is_empty() && part_matches(rest, &text[1..]),
            [c, rest @ ..] => text.first() == Some(c) && part_matches(rest, &text[1..]),
        }
    }
}

fn part() -> impl Strategy<Value = String> {
    prop_oneof![
        2 => Just("**".to_owned()),
        3 => "[ab]{1,2}",
        5 => prop::collection::vec(
            prop_oneof![Just("a"), Just("b"), Just("?"), Just("*"), Just("[a-b]"), Just("[!a-a]")], 1..5
        ).prop_map(|pieces| pieces.concat().replace("**", "*a").replace("**", "*b")),
    ]
}

fn pattern() -> impl Strategy<Value = String> {
    (prop::collection::vec(part(), 1..5), any::<bool>(), any::<bool>()).prop_map(
        |(parts, tied, directory)| {
            let (first, last) = (if tied { "/" } else { "" }, if directory { "/" } else { "" });
            format!("{first}{}{last}", parts.join("/"))
        },
    )
}

fn path() -> impl Strategy<Value = String> {
    prop_oneof![1 => Just(".".to_owned()), 12 => "[abc]{1,4}(/[abc]{1,3}){0,4}"]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn matching_is_what_trying_everything_says(pattern in pattern(), path in path()) {
        prop_assert_eq!(glob(&pattern).matches(&path), reference::matches(&pattern, &path));
    }

    #[test]
    fn where_both_mean_the_same_globset_agrees(pattern in pattern(), path in "[abc]{1,4}(/[abc]{1,3}){0,4}") {
        // There, `a/**` and `a/` are not `a`, and `[!a]` can be a `/`.
        let pattern = format!("{}b", pattern.replace('!', "").trim_end_matches(['/', '*']));
        let tied = pattern.trim_matches('/').contains('/') || pattern.starts_with('/');
        let theirs = if tied { pattern.trim_start_matches('/').to_owned() } else { format!("**/{pattern}") };
        let theirs = globset::GlobBuilder::new(&theirs).literal_separator(true).build().unwrap();
        prop_assert_eq!(glob(&pattern).matches(&path), theirs.compile_matcher().is_match(&path));
    }

    #[test]
    fn a_set_finds_what_each_pattern_matches(
        patterns in prop::collection::vec(pattern(), 0..30), path in path(),
    ) {
        let mut set = GlobSet::new();
        for (id, pattern) in patterns.iter().enumerate() {
            set.insert(&glob(pattern), id);
        }
        let mut found = Vec::new();
        set.each_match(&path, |id| found.push(*id));
        let expected: Vec<usize> =
            (0..patterns.len()).filter(|&id| glob(&patterns[id]).matches(&path)).collect();
        found.sort_unstable();
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn overlap_and_inclusion_are_never_wrong_about_a_path(
        a in pattern(), b in pattern(), path in path(),
    ) {
        let (a, b) = (glob(&a), glob(&b));
        if a.matches(&path) && b.matches(&path) {
            prop_assert!(a.intersects(&b) && b.intersects(&a));
        }
        if a.covers(&b) && b.matches(&path) {
            prop_assert!(a.matches(&path));
        }
        prop_assert!(a.covers(&a) && a.intersects(&a));
    }

    #[test]
    fn one_path_is_its_own_pattern(a in pattern(), path in "[ab*?!{} \\\\\\[\\]ä/]{1,12}", other in path()) {
        let path = path.split('/').filter(|part| !part.is_empty()).collect::<Vec<_>>().join("/");
        prop_assume!(!path.is_empty());
        let exact = Glob::exactly(&path);
        prop_assert!(exact.matches(&path));
        prop_assert_eq!(&Glob::parse(exact.as_str()).unwrap(), &exact);
        prop_assert_eq!(exact.matches(&other), path == other);
        let (a, other_exact) = (glob(&a), Glob::exactly(&other));
        prop_assert_eq!(a.matches(&other), a.intersects(&other_exact));
        prop_assert_eq!(a.matches(&other), a.covers(&other_exact));
    }

    #[test]
    fn no_text_is_too_odd_to_be_read(text in "\\PC{0,30}|[\\[\\]!^*?/a-]{0,20}", path in path()) {
        if let Ok(glob) = Glob::parse(&text) {
            glob.matches(&path);
            prop_assert!(glob.covers(&glob));
        }
    }
}

#[test]
fn a_pattern_that_could_be_slow_is_not() {
    let many = glob(&"*a".repeat(100));
    assert!(!many.matches(&format!("{}b", "a".repeat(254))));
    let deep = glob(&"**/a/".repeat(60));
    assert!(!deep.matches(&"a/".repeat(59).trim_end_matches('/').replace("a/a/a", "a/b/a")));
    assert!(deep.covers(&deep) && deep.intersects(&deep));
}

#[test]
fn net_22_a_host_is_matched_by_whole_labels_and_written_in_one_way() {
    for (pattern, yes, no) in [
        (
            "example.com",
            &["example.com"][..],
            &["a.example.com", "example.com.evil", "xexample.com"][..],
        ),
        ("*.example.com", &["a.example.com", "a.b.example.com"], &["example.com", "xexample.com"]),
        ("127.0.0.1", &["127.0.0.1"], &["127.0.0.11", "1.127.0.0.1"]),
        ("[::1]", &["[::1]"], &["[::11]"]),
        ("api.example.test", &["api.example.test"], &["apiXexample.test"]),
        // Nobody who names a host means every service on it.
        ("a.test", &["a.test"], &["a.test:22", "a.test:8080"]),
        ("a.test:22", &["a.test:22"], &["a.test", "a.test:2", "a.test:222", "b.test:22"]),
        ("a.test:*", &["a.test", "a.test:1", "a.test:65535"], &["b.test", "b.test:1", "b.a.test"]),
        ("*.a.test:22", &["b.a.test:22"], &["a.test:22", "b.a.test"]),
        ("[::1]:22", &["[::1]:22"], &["[::1]", "[::2]:22"]),
        ("127.0.0.1:*", &["127.0.0.1", "127.0.0.1:8642"], &["127.0.0.2"]),
    ] {
        let host = HostPattern::parse(pattern).unwrap();
        let mut set = HostSet::new();
        set.insert(&host, ());
        let found = |name: &str| {
            let mut count = 0;
            set.each_match(name, |()| count += 1);
            count == 1
        };
        for name in yes {
            assert!(host.matches(name) && found(name), "{pattern} {name}");
        }
        for name in no {
            assert!(!host.matches(name) && !found(name), "{pattern} {name}");
        }
    }
    for (text, why) in [
        ("Example.com", BadHost::Case),
        ("bücher.example", BadHost::Ascii),
        ("example.com.", BadHost::Dot),
        ("*", BadHost::Star),
        ("a.*.com", BadHost::Star),
        ("*.*.com", BadHost::Star),
        ("*example.com", BadHost::Star),
        ("*.127.0.0.1", BadHost::Address),
        ("*.[::1]", BadHost::Address),
        ("127.1", BadHost::Address),
        ("0x7f.1", BadHost::Address),
        ("2130706433", BadHost::Address),
        ("[0:0:0:0:0:0:0:1]", BadHost::Address),
        ("[::1", BadHost::Address),
        ("", BadHost::Name),
        ("*.", BadHost::Name),
        ("example.com:443", BadHost::Port),
        ("example.com:80", BadHost::Port),
        ("example.com:0", BadHost::Port),
        ("example.com:022", BadHost::Port),
        ("example.com:+22", BadHost::Name),
        ("example.com:65536", BadHost::Port),
        ("example.com:", BadHost::Port),
        ("example.com:2*", BadHost::Name),
        ("example.com:1:2", BadHost::Name),
        ("::1", BadHost::Name),
        ("[::1]22", BadHost::Address),
        ("https://example.com", BadHost::Name),
        ("a..b", BadHost::Name),
        ("-a.b", BadHost::Name),
        ("a b", BadHost::Name),
    ] {
        assert_eq!(HostPattern::parse(text), Err(why), "{text}");
    }
}

proptest! {
    #[test]
    fn hosts_relate_as_their_names_do(
        a in "(\\*\\.)?[ab](\\.[ab]){0,2}(:[12*])?", b in "(\\*\\.)?[ab](\\.[ab]){0,2}(:[12*])?",
        host in "[ab](\\.[ab]){0,4}(:[123])?",
    ) {
        let (a, b) = (HostPattern::parse(&a).unwrap(), HostPattern::parse(&b).unwrap());
        let (in_a, in_b) = (a.matches(&host), b.matches(&host));
        prop_assert!(!(in_a && in_b) || (a.intersects(&b) && b.intersects(&a)));
        prop_assert!(!(in_b && a.covers(&b)) || in_a);
        prop_assert!(a.covers(&a) && a.intersects(&a) && a.clone().and_ports().covers(&a));
        let mut set = HostSet::new();
        set.insert(&a, 'a');
        set.insert(&b, 'b');
        let mut found = BTreeSet::new();
        set.each_match(&host, |value| { found.insert(*value); });
        prop_assert_eq!((found.contains(&'a'), found.contains(&'b')), (in_a, in_b));
    }
}
