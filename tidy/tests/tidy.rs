//! What must hold for the code, its dependencies and what is checked in. Each message says what to do
//! instead.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use hotcell_tidy::{cargo, files, output_of, root, skip};
use serde_json::Value;

/// Crates of ours, what each may use of ours, and where to go with what does not fit.
const GRAPH: &[(&str, &[&str], &str)] = &[
    ("hotcell-types", &[], "types are nouns without IO: put the code into the crate that acts"),
    (
        "hotcell-jail",
        &[],
        "the launcher stands alone: what it must know comes over its socket (crates/jail/src/wire.rs)",
    ),
    (
        "hotcell-zygote",
        &["hotcell-jail"],
        "the library is one function: what it does is for hotcell-jail to do",
    ),
    (
        "hotcell-access",
        &["hotcell-types"],
        "keys take a transaction and give back changes: who records them, and what a scope opens, is for others",
    ),
    (
        "hotcell-once",
        &["hotcell-types"],
        "a claim takes a transaction: what a call is, and what it replied, is the engine's affair",
    ),
    (
        "hotcell-approver",
        &["hotcell-types"],
        "an approver signs what is put before them: what it is about is for others to know",
    ),
    (
        "hotcell-request",
        &["hotcell-request-macros", "hotcell-types"],
        "a request becomes a call without IO and without a decision",
    ),
    ("hotcell-request-macros", &[], "what it writes names everything by `hotcell_request`"),
    (
        "hotcell-schedule",
        &["hotcell-types"],
        "who runs when is decided by ids, priorities and limits; what runs is not its affair",
    ),
    (
        "hotcell-socket",
        &["hotcell-request"],
        "the socket carries documents and reads none: what is asked is for both of its ends to know",
    ),
    (
        "hotcell-workspace",
        &["hotcell-types"],
        "a tree is touched through held descriptors, and knows no call",
    ),
    ("hotcell-glob", &[], "a pattern is text; who asks for what is no affair of it"),
    (
        "hotcell-policy",
        &["hotcell-glob", "hotcell-request", "hotcell-types"],
        "a decision depends on the call and on facts that the engine brings, and on nothing else",
    ),
    (
        "hotcell-sandbox",
        &["hotcell-jail", "hotcell-types"],
        "sandbox serves every door: what a door needs is for the door to do, through `Job` and `Outcome`",
    ),
    (
        "hotcell-record",
        &["hotcell-types"],
        "the record takes drafts and keeps them: what they mean is the engine's affair",
    ),
    (
        "hotcell-review",
        &["hotcell-approver", "hotcell-record", "hotcell-request", "hotcell-types"],
        "the queue takes a transaction and gives back drafts: what an approval leads to is the engine's affair",
    ),
    (
        "hotcell-ledger",
        &["hotcell-types"],
        "the ledger takes a transaction and gives back statements: who records them is the engine's affair",
    ),
    ("hotcell-strip", &[], "text becomes text: who asks for it, and for what, is not its affair"),
    (
        "hotcell-evaluator",
        &["hotcell-strip"],
        "the evaluator stands alone in its sandbox: what it must know comes over its standard input",
    ),
    (
        "hotcell-environment",
        &["hotcell-types", "hotcell-workspace"],
        "trees and names take a directory and a transaction: who may have one, and what runs in a sandbox, is \
         the engine's affair",
    ),
    (
        "hotcell-airlock",
        &[],
        "the airlock stands alone in its sandbox: what it must know comes over its control socket",
    ),
    (
        "hotcell-egress",
        &["hotcell-airlock", "hotcell-sandbox", "hotcell-types"],
        "it asks a judge and is given secrets by a trait: policy, record and store are the engine's affair",
    ),
    (
        "hotcell-extension",
        &["hotcell-evaluator", "hotcell-sandbox", "hotcell-types"],
        "it asks rules and tells what they said: what follows from that is the policy's affair",
    ),
    (
        "hotcell-bearer",
        &["hotcell-glob", "hotcell-types"],
        "bearers take facts and a transaction and give back changes: who asks and who records is the \
         engine's affair",
    ),
    (
        "hotcell-vault",
        &["hotcell-glob", "hotcell-types"],
        "secrets take a key and a transaction and give back changes: who asks, who records and what a request is \
         belongs to the engine",
    ),
    (
        "hotcell-tools",
        &["hotcell-request", "hotcell-types", "hotcell-workspace"],
        "a tool says what is to be run; who runs it is the engine",
    ),
    (
        "hotcell-engine",
        &[
            "hotcell-access",
            "hotcell-approver",
            "hotcell-bearer",
            "hotcell-egress",
            "hotcell-environment",
            "hotcell-extension",
            "hotcell-glob",
            "hotcell-ledger",
            "hotcell-once",
            "hotcell-policy",
            "hotcell-record",
            "hotcell-request",
            "hotcell-review",
            "hotcell-sandbox",
            "hotcell-schedule",
            "hotcell-tools",
            "hotcell-types",
            "hotcell-vault",
            "hotcell-workspace",
        ],
        "the engine is the one crate that sees every stage, and knows no door",
    ),
    (
        "hotcell-api",
        &[
            "hotcell-approver",
            "hotcell-bearer",
            "hotcell-engine",
            "hotcell-glob",
            "hotcell-ledger",
            "hotcell-record",
            "hotcell-request",
            "hotcell-review",
            "hotcell-types",
        ],
        "documents are what doors say and hear: what they lead to is the engine's affair",
    ),
    (
        "hotcell-local",
        &[
            "hotcell-api",
            "hotcell-engine",
            "hotcell-request",
            "hotcell-sandbox",
            "hotcell-socket",
            "hotcell-types",
        ],
        "a door asks through `hotcell_api::answer` and has no way of its own to the engine",
    ),
    (
        "hotcell-serve",
        &[
            "hotcell-access",
            "hotcell-api",
            "hotcell-engine",
            "hotcell-mcp",
            "hotcell-record",
            "hotcell-request",
            "hotcell-types",
        ],
        "the HTTP door asks through `hotcell_api::answer` and knows no stage of the path",
    ),
    (
        "hotcell-mcp",
        &["hotcell-api", "hotcell-engine", "hotcell-request", "hotcell-types"],
        "a door asks through `hotcell_api::answer` and has no way of its own to the engine",
    ),
    (
        "hotcell",
        &[
            "hotcell-api",
            "hotcell-access",
            "hotcell-approver",
            "hotcell-bearer",
            "hotcell-engine",
            "hotcell-glob",
            "hotcell-ledger",
            "hotcell-local",
            "hotcell-mcp",
            "hotcell-record",
            "hotcell-request",
            "hotcell-review",
            "hotcell-sandbox",
            "hotcell-serve",
            "hotcell-socket",
            "hotcell-types",
            "hotcell-vault",
        ],
        "the command line reaches the launcher through `hotcell_sandbox::Sandbox` only",
    ),
    (
        "hotcell-bench",
        &[
            "hotcell-access",
            "hotcell-api",
            "hotcell-engine",
            "hotcell-record",
            "hotcell-request",
            "hotcell-sandbox",
            "hotcell-serve",
            "hotcell-types",
        ],
        "measure what users can reach",
    ),
    ("hotcell-tidy", &[], "checks of the repository look at files and at the binary"),
];

/// Crates whose dependencies are a closed list.
const CLOSED: &[(&str, &[&str], &str)] = &[
    ("hotcell-types", &["serde", "thiserror"], "types do no IO; parse and print at the edges"),
    (
        "hotcell-jail",
        &["linux-raw-sys", "rustix"],
        "the launcher has no libc, no allocator and no threads: use rustix without `std`, or do it in \
         hotcell-sandbox",
    ),
];

/// Where `unsafe` may be written: the launcher's entry points and its system calls.
const UNSAFE: [&str; 3] =
    ["crates/jail/src/main.rs", "crates/jail/src/sys.rs", "crates/zygote/src/lib.rs"];

/// Crates that may be there in two versions, and why.
const TWICE: &[(&str, &str)] = &[
    ("base64", "rmcp, and cel, which only tests of the policy use"),
    ("bit-set", "fancy-regex, of jsonschema, and proptest"),
    ("bit-vec", "of bit-set"),
    ("getrandom", "ahash, of jsonschema"),
    ("hashbrown", "oxc_allocator still uses 0.16"),
    ("synstructure", "an option of rcgen that is not built, and icu of idna"),
    ("syn", "schemars_derive and others still use 2"),
];

/// Largest file that is checked in.
const MAX_BYTES: u64 = 512 * 1024;

fn metadata(further: &[&str]) -> Value {
    let mut command = cargo();
    command.args(["metadata", "--format-version=1", "--locked"]).args(further);
    serde_json::from_str(&output_of(&mut command)).unwrap()
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().unwrap()
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

/// What a package needs to be built; what its tests need does not count.
fn needs(package: &Value) -> impl Iterator<Item = &str> {
    list(package, "dependencies").iter().filter(|d| d["kind"] != "dev").map(|d| text(d, "name"))
}

#[test]
fn crates_depend_in_one_direction() {
    let metadata = metadata(&["--no-deps"]);
    let mut wrong = Vec::new();
    for package in list(&metadata, "packages") {
        let name = text(package, "name");
        let Some((_, ours, instead)) = GRAPH.iter().find(|row| row.0 == name) else {
            wrong.push(format!("`{name}` is not in the graph: add it to GRAPH in {}", file!()));
            continue;
        };
        for needed in needs(package).filter(|n| n.starts_with("hotcell") && !ours.contains(n)) {
            wrong.push(format!("`{name}` must not depend on `{needed}`: {instead}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_launcher_and_the_nouns_need_next_to_nothing() {
    let metadata = metadata(&["--no-deps"]);
    for (name, allowed, instead) in CLOSED {
        let package = list(&metadata, "packages").iter().find(|p| text(p, "name") == *name);
        for needed in needs(package.unwrap()) {
            assert!(allowed.contains(&needed), "`{name}` must not use `{needed}`: {instead}");
        }
    }
}

#[test]
fn unsafe_stays_with_the_launchers_system_calls() {
    let Some(files) = files() else { return skip("unsafe", "this is not a git clone") };
    let code = files.iter().filter(|f| f.ends_with(".rs") && !UNSAFE.contains(&f.as_str()));
    let mut wrong = Vec::new();
    for file in code {
        let content = fs::read_to_string(root().join(file)).unwrap();
        for (number, line) in (1..).zip(content.lines()) {
            if has_unsafe(line) {
                wrong.push(format!("{file}:{number}: {}", line.trim()));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "`unsafe` belongs into crates/jail/src/sys.rs: add a function there, or use rustix\n{}",
        wrong.join("\n")
    );
}

/// Whether the keyword is in the code of a line: not in a comment, a string or a longer word.
fn has_unsafe(line: &str) -> bool {
    let line = line.replace("\\\"", "");
    let code = line.split("//").next().unwrap();
    let outside = code.split('"').step_by(2).collect::<String>();
    let word = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
    outside.split(|c| !word(c)).any(|w| w == "unsafe")
}

#[test]
fn the_keyword_is_found_where_it_counts() {
    for (line, expected) in [
        ("unsafe { f() }", true),
        ("    let x = unsafe{ f() };", true),
        ("pub unsafe fn f() {}", true),
        ("// unsafe { f() }", false),
        ("#![deny(unsafe_code)]", false),
        ("for flag in [\"--unsafe\", \"unsafe\"] {", false),
    ] {
        assert_eq!(has_unsafe(line), expected, "{line}");
    }
}

/// Dependencies for Linux, with what the tests need.
fn dependencies() -> Vec<Value> {
    let metadata = metadata(&["--filter-platform", "x86_64-unknown-linux-gnu"]);
    let used: BTreeSet<&str> =
        list(&metadata["resolve"], "nodes").iter().map(|n| text(n, "id")).collect();
    let packages = list(&metadata, "packages").iter();
    packages.filter(|p| used.contains(text(p, "id"))).cloned().collect()
}

#[test]
fn dependencies_come_from_the_registry_under_licences_that_fit() {
    let allowed = licences();
    for package in dependencies() {
        let (name, licence) = (text(&package, "name"), text(&package, "license"));
        let ours = package["source"].is_null();
        let from_registry = text(&package, "source").starts_with("registry+");
        assert!(
            from_registry || (ours && name.starts_with("hotcell")),
            "`{name}` comes from elsewhere: use a published version"
        );
        assert!(
            fits(licence, &allowed),
            "`{name}` has the licence `{licence}`: find another crate"
        );
    }
}

/// Licences that go with ours, from deny.toml.
fn licences() -> Vec<String> {
    let text = fs::read_to_string(root().join("deny.toml")).unwrap();
    let list = text.split("[licenses]\nallow = [").nth(1).unwrap().split(']').next().unwrap();
    list.split('"').skip(1).step_by(2).map(str::to_owned).collect()
}

/// Whether one may choose licences of the list only.
fn fits(expression: &str, allowed: &[String]) -> bool {
    let known = |l: &str| allowed.iter().any(|a| a == l.trim_matches(['(', ')', ' ']));
    // `A/B` is the old way to write `A OR B`.
    let expression = expression.replace('/', " OR ");
    expression.split(" AND ").all(|part| part.split(" OR ").any(known))
}

#[test]
fn licences_are_understood() {
    let allowed = licences();
    for (expression, expected) in [
        ("MIT", true),
        ("MIT/Apache-2.0", true),
        ("GPL-3.0", false),
        ("GPL-3.0 OR MIT", true),
        ("MIT AND GPL-3.0", false),
        ("(MIT OR Apache-2.0) AND Unicode-3.0", true),
        ("Apache-2.0 WITH LLVM-exception OR Apache-2.0 OR MIT", true),
        ("", false),
    ] {
        assert_eq!(fits(expression, &allowed), expected, "{expression}");
    }
}

#[test]
fn every_dependency_is_there_in_one_version() {
    let mut versions: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for package in dependencies() {
        let name = text(&package, "name").to_owned();
        versions.entry(name).or_default().insert(text(&package, "version").into());
    }
    versions.retain(|name, found| found.len() > 1 && !TWICE.iter().any(|(n, _)| n == name));
    assert!(
        versions.is_empty(),
        "in several versions: {versions:?}\nupdate whoever wants the old one, or give the reason in \
         TWICE in {}",
        file!()
    );
}

/// Name and version of each package in a lock file.
fn locked(path: &str) -> BTreeMap<String, String> {
    let text = fs::read_to_string(root().join(path)).unwrap();
    let value = |line: &str, key: &str| Some(line.strip_prefix(key)?.trim_matches('"').to_owned());
    let names = text.lines().filter_map(|line| value(line, "name = "));
    let versions = text.lines().filter(|line| *line != "version = 4");
    names.zip(versions.filter_map(|line| value(line, "version = "))).collect()
}

/// Otherwise the same crates are built twice, and the tests do not test what is shipped.
#[test]
fn the_tests_use_the_versions_of_the_product() {
    let product = locked("Cargo.lock");
    for (name, version) in locked("tests/Cargo.lock") {
        let shipped = product.get(&name).unwrap_or(&version);
        assert_eq!(
            &version, shipped,
            "run `cargo update --manifest-path tests/Cargo.toml -p {name} --precise {shipped}`"
        );
    }
}

#[test]
fn the_index_of_the_documentation_names_every_page() {
    let index = fs::read_to_string(root().join("docs/README.md")).unwrap();
    for page in fs::read_dir(root().join("docs")).unwrap() {
        let name = page.unwrap().file_name().into_string().unwrap();
        let named = name == "README.md" || index.contains(&format!("({name})"));
        assert!(named, "docs/README.md does not name {name}: add a row");
    }
}

/// A test that passes is silent otherwise, also about what it could not do: that would look as if it were tested.
#[test]
fn what_a_test_skips_is_shown_by_every_group() {
    let script = fs::read_to_string(root().join("test")).unwrap();
    let calls: Vec<&str> = script.lines().filter(|line| line.contains("cargo test")).collect();
    assert_eq!(calls, ["    cargo test --locked \"${options[@]}\" -- --show-output \"${@:2}\""]);
    assert!(script.matches("cargo_test ").count() > 8, "the groups use it");
    assert!(script.contains("SKIPPED /    skipped: /p"), "and what it shows is told");
}

#[test]
fn nothing_that_was_built_or_is_huge_is_checked_in() {
    let Some(files) = files() else { return skip("checked-in files", "this is not a git clone") };
    let mut wrong = Vec::new();
    for file in &files {
        if file.split('/').any(|part| part == "target") {
            wrong.push(format!("{file}: made by a build; `git rm --cached` it"));
        } else if fs::symlink_metadata(root().join(file)).unwrap().len() > MAX_BYTES {
            wrong.push(format!("{file}: larger than {MAX_BYTES} bytes; make it when it is needed"));
        }
    }
    wrong.truncate(10);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
