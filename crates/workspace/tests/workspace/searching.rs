//! Searching by names and by contents.

use std::fs;
use std::os::unix::fs::symlink;
use std::time::{Duration, Instant};

use hotcell_workspace::{Case, GlobOptions, Globs, GrepOptions, Grepped, Pattern};

use crate::support::*;

const GLOB: GlobOptions = GlobOptions { most: 100, hidden: false, within: Duration::from_secs(60) };

fn globs(patterns: &[&str]) -> Globs {
    Globs::new(patterns).unwrap()
}

fn pattern(text: &str) -> Pattern {
    Pattern::new(text, Case::Sensitive).unwrap()
}

/// Matches as `path:line:column`.
fn places(grepped: &Grepped) -> Vec<String> {
    let place = |m: &hotcell_workspace::Match| format!("{}:{}:{}", m.path, m.line.number, m.column);
    grepped.matches.iter().map(place).collect()
}

#[test]
fn names_are_found_by_patterns_sorted_and_bounded() {
    let dir =
        tree(&[("src/a.rs", ""), ("src/b/c.rs", ""), ("main.rs", ""), (".x/y.rs", ""), ("z", "")]);
    symlink("main.rs", dir.path().join("link.rs")).unwrap();
    let root = root(&dir);
    let find = |patterns: &[&str], options| {
        let globbed = root.glob(&globs(patterns), options).unwrap();
        let entries = globbed.entries.iter();
        let found: Vec<String> = entries.map(|entry| entry.path.to_string()).collect();
        (found.join(" "), globbed.left_out, globbed.truncated)
    };
    for (patterns, options, expected, left_out) in [
        (&["*.rs"][..], GLOB, "link.rs main.rs src/a.rs src/b/c.rs", 0),
        (&["src/**"], GLOB, "src/a.rs src/b src/b/c.rs", 0),
        (&["src/*", "!*.rs"], GLOB, "src/b", 0),
        (&["*/"], GLOB, "src src/b", 0),
        (
            &["*.rs"],
            GlobOptions { hidden: true, ..GLOB },
            ".x/y.rs link.rs main.rs src/a.rs src/b/c.rs",
            0,
        ),
        (&["*.rs"], GlobOptions { most: 1, ..GLOB }, "link.rs", 3),
    ] {
        assert_eq!(
            find(patterns, options),
            (expected.into(), left_out, left_out > 0),
            "{patterns:?}"
        );
    }
    let late = GlobOptions { within: Duration::ZERO, ..GLOB };
    assert!(root.glob(&globs(&["*"]), late).unwrap().truncated);
}

#[test]
fn lines_are_found_with_their_neighbours() {
    let dir = tree(&[("a.txt", "one\ntwo\nthree\r\nfour\n"), ("b.md", "two three"), ("c", "")]);
    let root = root(&dir);
    let find = |text: &str| places(&root.grep(&pattern(text), &GrepOptions::default()).unwrap());
    assert_eq!(find("t[wh]"), ["a.txt:2:1", "a.txt:3:1", "b.md:1:1"]);
    assert_eq!(find("three$"), ["a.txt:3:1", "b.md:1:5"]);
    assert_eq!(find("^two$"), ["a.txt:2:1"]);
    assert_eq!(find("one\\ntwo"), [""; 0]);
    let options = GrepOptions { context: 1, only: globs(&["*.txt"]), ..GrepOptions::default() };
    let grepped = root.grep(&pattern("two|four"), &options).unwrap();
    let shown = |lines: &[hotcell_workspace::Line]| {
        lines.iter().map(|line| format!("{}{}", line.number, line.text)).collect::<Vec<_>>()
    };
    let around: Vec<_> =
        grepped.matches.iter().map(|m| (shown(&m.before), shown(&m.after))).collect();
    let lines = |lines: &[&str]| lines.iter().map(|line| (*line).to_owned()).collect::<Vec<_>>();
    assert_eq!(around[0], (lines(&["1one"]), lines(&["3three"])));
    assert_eq!(around[1], (lines(&["3three"]), lines(&[])));
    assert_eq!(grepped.searched, 1);
}

#[test]
fn empty_lines_case_and_literals_are_searched_for() {
    let dir = tree(&[("a", "x\n\nY.\n")]);
    let root = root(&dir);
    let find = |pattern: Pattern| places(&root.grep(&pattern, &GrepOptions::default()).unwrap());
    assert_eq!(find(pattern("^$")), ["a:2:1"]);
    assert_eq!(find(Pattern::new("y", Case::Ignored).unwrap()), ["a:3:1"]);
    assert_eq!(find(Pattern::literal(".", Case::Sensitive).unwrap()), ["a:3:2"]);
}

#[test]
fn what_is_not_searched_is_counted() {
    let outside = tree(&[("secret", "CANARY find me")]);
    let dir = tree(&[("good", "find me"), (".hidden", "find me"), ("skip/x", "find me")]);
    put(dir.path(), "binary", b"find me\0");
    put(dir.path(), "large", "find me\n".repeat(100));
    put(dir.path(), "latin", b"find me \xe4");
    symlink(outside.path().join("secret"), dir.path().join("link")).unwrap();
    symlink(outside.path(), dir.path().join("out")).unwrap();
    fs::hard_link(outside.path().join("secret"), dir.path().join("hard")).unwrap();
    let options =
        GrepOptions { most_file: 200, except: globs(&["skip"]), ..GrepOptions::default() };
    let grepped = root(&dir).grep(&pattern("find me"), &options).unwrap();
    assert_eq!(places(&grepped), ["good:1:1", "latin:1:1"]);
    assert_eq!(grepped.matches[1].line.text, "find me \u{fffd}");
    let counts = (grepped.searched, grepped.binary, grepped.too_large, grepped.skipped);
    assert_eq!((counts, grepped.truncated), ((2, 1, 1, 3), false));
}

#[test]
fn long_lines_are_searched_in_pieces_and_shown_around_the_match() {
    let dir = tree(&[("a", &format!("{}NEEDLE{}\n", "x".repeat(50_000), "y".repeat(50_000)))]);
    let options = GrepOptions { most_line: 40, ..GrepOptions::default() };
    let grepped = root(&dir).grep(&pattern("NEEDLE"), &options).unwrap();
    assert_eq!(places(&grepped), ["a:1:50001"]);
    let line = &grepped.matches[0].line;
    assert_eq!(line.text, format!("{}NEEDLE{}", "x".repeat(10), "y".repeat(24)));
    assert!(line.cut && grepped.long_lines == 1);
}

#[test]
fn matches_and_their_bytes_are_bounded() {
    let dir = tree(&[("a", &"match\n".repeat(1000)), ("b", "match")]);
    let root = root(&dir);
    let few = GrepOptions { most: 10, ..GrepOptions::default() };
    let grepped = root.grep(&pattern("match"), &few).unwrap();
    assert_eq!((grepped.matches.len(), grepped.truncated), (10, true));
    let exact = GrepOptions { most: 1001, ..GrepOptions::default() };
    let grepped = root.grep(&pattern("match"), &exact).unwrap();
    assert_eq!((grepped.matches.len(), grepped.truncated), (1001, false));

    // Empty lines have no bytes, and are bounded all the same.
    put(dir.path(), "a", "\n".repeat(20_000));
    let endless = GrepOptions { most: usize::MAX, ..GrepOptions::default() };
    let grepped = root.grep(&pattern("^$"), &endless).unwrap();
    assert_eq!((grepped.matches.len(), grepped.truncated), (GrepOptions::MOST_MATCHES, true));

    put(dir.path(), "a", format!("{}\n", "m".repeat(4000)).repeat(1000));
    let wide =
        GrepOptions { most: 100_000, context: 1000, most_line: 1 << 30, ..GrepOptions::default() };
    let grepped = root.grep(&pattern("m"), &wide).unwrap();
    let lines =
        grepped.matches.iter().flat_map(|m| m.before.iter().chain([&m.line]).chain(&m.after));
    let shown: usize = lines.map(|line| line.text.len()).sum();
    assert!(grepped.truncated && shown <= GrepOptions::MOST_SHOWN, "{shown}");
}

#[test]
fn res_18_a_search_ends_in_time_whatever_the_pattern() {
    let dir = tree(&[]);
    for number in 0..50 {
        put(dir.path(), &format!("{number}"), "01".repeat(100_000));
    }
    // Large enough that the engine cannot remember what it has worked out.
    let hostile = pattern("(?:[01]{0,300}1){2}[01]{300}2");
    let options = GrepOptions { within: Duration::from_millis(200), ..GrepOptions::default() };
    let begun = Instant::now();
    let grepped = root(&dir).grep(&hostile, &options).unwrap();
    assert!(grepped.truncated);
    // One piece may be under way when the time is over; without optimisation that takes long.
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
}

#[test]
fn patterns_that_cost_too_much_or_mean_nothing_are_refused() {
    for (text, why) in [
        ("(", "unclosed group"),
        ("a{1,1000}{1,1000}", "too large"),
        ("\\w{500}", "too large"),
        ("(?=a)", "look-around"),
        (r"(a)\1", "backreferences"),
        (&"(".repeat(100), "un"),
        (&format!("{}a{}", "(".repeat(60), ")".repeat(60)), "nest"),
        (&"a".repeat(5000), "longer than 4096 bytes"),
    ] {
        let error = Pattern::new(text, Case::Sensitive).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
        assert!(!error.contains('\n'), "{error}");
    }
}
