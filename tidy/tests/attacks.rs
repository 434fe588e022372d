//! Every published attack that concerns what there is has a test that carries its id (`fs_01`, `tool_14`), or a
//! reason why it has none. The ids are those of a catalogue of attacks and faults; what each of them is, the test
//! says that carries it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use hotcell_tidy::{files, root, skip};

/// Groups, and the numbers that are published of each.
const PUBLISHED: &[(&str, &[u32])] = &[
    ("FS", &[1, 2, 3, 4, 5, 7, 9, 10, 11, 12, 14, 16, 17, 18, 20, 21, 22, 23, 24, 25, 26]),
    ("PN", &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 16, 17, 18, 19, 20, 22]),
    ("SC", &[1, 2, 3, 4, 6, 7, 8, 10, 11, 12, 13, 14]),
    (
        "NET",
        &[
            1, 2, 4, 5, 6, 7, 8, 9, 10, 11, 13, 14, 16, 18, 19, 20, 22, 23, 24, 26, 27, 28, 29, 30,
            31, 32, 33,
        ],
    ),
    ("RES", &[1, 2, 3, 4, 5, 6, 8, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 24, 25, 26]),
    ("XR", &[1, 2, 3, 5, 7, 8, 9, 10, 11, 12, 13]),
    ("TOOL", &[1, 2, 3, 5, 6, 7, 8, 9, 10, 11, 13, 14, 15, 16, 17, 18, 19, 22, 23, 24]),
    ("POL", &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 15, 16, 17, 18, 19]),
    ("TOK", &[1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 12, 13, 14, 16, 17, 18]),
    ("AUD", &[1, 2, 3, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 18, 19, 20]),
    ("API", &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 19, 20, 21]),
    ("CR", &[1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 12, 13, 14, 16, 17, 18, 20]),
    ("DSK", &[1, 3, 4, 5, 6, 7, 8]),
    ("SQL", &[1, 2, 3, 4, 5, 6, 8, 9, 10]),
    ("OUT", &[1, 2, 3, 4, 5, 7, 8, 9, 10, 11, 12, 13, 14]),
    ("CLK", &[1, 2, 3, 4, 5, 7]),
];

/// Covered by a test under another name: the id, and that name.
const ELSEWHERE: &[(&str, &str)] = &[
    ("POL-02", "deny_wins_in_ten_thousand_policies"),
    ("POL-03", "a_wrong_file_is_refused_and_says_where"),
    ("POL-04", "a_wrong_file_is_refused_and_says_where"),
    ("POL-06", "another_spelling_of_a_name_is_the_same_name_or_none"),
    ("POL-07", "another_spelling_of_a_name_is_the_same_name_or_none"),
    ("POL-12", "nothing_is_not_everything_and_an_error_is_a_deny"),
    ("POL-16", "another_spelling_of_a_name_is_the_same_name_or_none"),
    ("API-13", "what_is_not_a_dead_socket_of_ours_is_left_alone"),
    ("API-13", "another_user_is_sent_away_even_where_the_modes_were_opened"),
    ("API-14", "lengths_that_nobody_may_send_end_the_connection_at_once"),
    ("API-14", "descriptors_that_come_along_are_dropped"),
    ("OUT-07", "a_collector_that_never_answers_costs_spans_and_nothing_else"),
    ("OUT-13", "problems_panics_and_answers_that_are_too_large_cost_one_request"),
];

const NO_BROKER: &str = "there is no broker of messages";
const NO_MODEL: &str = "there is no language model";

/// Why there is nothing yet that it applies to.
const NOT_YET: &[(&str, &str)] = &[
    ("API-06", "the server speaks HTTP/1.1 and no HTTP/2"),
    ("OUT-01", NO_BROKER),
    ("OUT-02", NO_BROKER),
    ("OUT-03", NO_BROKER),
    ("OUT-04", NO_BROKER),
    ("OUT-05", NO_BROKER),
    ("OUT-08", NO_MODEL),
    ("OUT-09", NO_MODEL),
    ("OUT-11", "there is no client of other servers of tools"),
];

fn published() -> BTreeSet<String> {
    let of_group = |(group, numbers): &(&str, &[u32])| {
        let ids = numbers.iter().map(|number| format!("{group}-{number:02}"));
        ids.collect::<Vec<_>>()
    };
    PUBLISHED.iter().flat_map(of_group).collect()
}

/// The names of all tests: functions that come after `#[test]`, and those of the suite that is no harness's.
fn tests() -> Option<BTreeSet<String>> {
    let sources = files()?.into_iter().filter(|path| path.ends_with(".rs"));
    let mut names = BTreeSet::new();
    for path in sources {
        let text = fs::read_to_string(root().join(&path)).expect("a source can be read");
        let mut is_test = path.starts_with("tests/soak/");
        for line in text.lines().map(str::trim_start) {
            if line.starts_with("#[test]") || line.starts_with("#[tokio::test") {
                is_test = true;
            }
            let name = line.strip_prefix("fn ").or_else(|| line.strip_prefix("async fn "));
            if let (Some(name), true) = (name, is_test) {
                let end = name.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
                names.insert(name[..end.unwrap_or(name.len())].to_owned());
                is_test = path.starts_with("tests/soak/");
            }
        }
    }
    Some(names)
}

/// `res_01_res_08_memory` carries RES-01 and RES-08.
fn carried(name: &str) -> Vec<String> {
    let words: Vec<&str> = name.split('_').collect();
    let pairs = words.windows(2).filter(|pair| {
        let [_, number] = pair else { return false };
        number.len() == 2 && number.bytes().all(|byte| byte.is_ascii_digit())
    });
    pairs.map(|pair| format!("{}-{}", pair[0].to_ascii_uppercase(), pair[1])).collect()
}

#[test]
fn every_published_attack_has_a_test_or_a_reason() {
    let Some(tests) = tests() else { return skip("attacks", "this is not a git clone") };
    let carried: BTreeSet<String> = tests.iter().flat_map(|name| carried(name)).collect();
    let elsewhere: BTreeMap<&str, &str> = ELSEWHERE.iter().copied().collect();
    let not_yet: BTreeMap<&str, &str> = NOT_YET.iter().copied().collect();
    let published = published();
    let mut wrong = Vec::new();
    for id in &published {
        let has = [
            carried.contains(id),
            elsewhere.contains_key(id.as_str()),
            not_yet.contains_key(id.as_str()),
        ];
        match has.iter().filter(|has| **has).count() {
            0 => wrong.push(format!("{id}: no test has it in its name: write one, or say why not")),
            1 => {}
            _ => wrong
                .push(format!("{id}: it has a test, and a row in a table besides: remove that")),
        }
    }
    for (id, name) in ELSEWHERE {
        if !tests.contains(*name) {
            wrong.push(format!("{id}: there is no test `{name}`"));
        }
    }
    for id in ELSEWHERE.iter().chain(NOT_YET).map(|(id, _)| *id) {
        if !published.contains(id) {
            wrong.push(format!("{id}: it is in no list above"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn an_id_is_found_wherever_it_stands_in_a_name() {
    for (name, ids) in [
        ("fs_01_secrets", vec!["FS-01"]),
        ("res_01_res_08_res_10_memory", vec!["RES-01", "RES-08", "RES-10"]),
        ("slow_senders_are_closed_api_05", vec!["API-05"]),
        ("one_in_100_of_64", vec!["OF-64"]),
        ("nothing", vec![]),
    ] {
        assert_eq!(carried(name), ids, "{name}");
    }
}

/// What is decompressed ends by a limit only in a sandbox: on the host there is nothing that could.
#[test]
fn nothing_in_the_product_decompresses() {
    let lock = fs::read_to_string(root().join("Cargo.lock")).expect("Cargo.lock is there");
    let decompress = ["flate2", "miniz_oxide", "zstd", "brotli", "bzip2", "xz2", "lz4_flex", "zip"];
    let found: Vec<_> = decompress
        .iter()
        .filter(|name| lock.lines().any(|line| line == format!("name = \"{name}\"")))
        .collect();
    assert!(found.is_empty(), "{found:?}: SECURITY.md says that the host decompresses nothing");
}
