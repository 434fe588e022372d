//! What people write to say what is allowed: patterns, rule files, conditions.

use std::sync::OnceLock;

use hotcell_glob::{Glob, GlobSet, HostPattern};
use hotcell_policy::{FAULTS_MOST, Facts, Snapshot, TESTS_MOST, Verdict, expectations, judge};
use hotcell_request::{Arguments, Call, Registry, Request, Tool};
use hotcell_types::{CallId, Caller, Door, Name};
use serde_json::json;

use crate::outcome;

/// A pattern, a path and another pattern, one on each line.
pub fn glob(data: &[u8]) -> u64 {
    let text = String::from_utf8_lossy(data);
    let mut lines = text.split('\n');
    let mut next = || lines.next().unwrap_or_default();
    let (one, path, other) = (next(), next(), next());
    let host = HostPattern::parse(one);
    if let Ok(host) = &host {
        assert!(host.covers(host) && host.intersects(host), "{one:?}");
        assert_eq!(HostPattern::parse(host.as_str()).as_ref(), Ok(host));
    }
    let (Ok(glob), Ok(other)) = (Glob::parse(one), Glob::parse(other)) else {
        return outcome(&[host.is_ok(), Glob::parse(one).is_ok()]);
    };
    let is_path =
        path == "." || path.split('/').all(|part| !part.is_empty() && part != "." && part != "..");
    let mut found = false;
    let mut set = GlobSet::new();
    set.insert(&other, 1);
    set.insert(&glob, 0);
    set.each_match(path, |id| found |= *id == 0);
    let (matches, also) = (glob.matches(path), other.matches(path));
    assert_eq!(found, matches, "{one:?} {path:?}");
    assert!(glob.covers(&glob) && glob.intersects(&glob), "{one:?}");
    let (covers, meets) = (glob.covers(&other), glob.intersects(&other));
    if is_path {
        assert!(!also || !covers || matches, "{one:?} covers {other:?}, not {path:?}");
        assert!(!also || !matches || meets, "{one:?} and {other:?} share {path:?}");
    }
    outcome(&[true, matches, also, covers, meets, is_path])
}

pub(crate) fn glob_seeds() -> Vec<Vec<u8>> {
    let words = [
        "src/**\nsrc/a/b\n*.rs",
        "**/[a-c]?*\nx/abc\n/x/*",
        "/a/\na/b\na/**/b",
        "\\*\\[x]\n*[x]\n[!x]*",
        "*.example.com\n.\n**",
        "a/**/b/**/c\na/b/c\n**/c",
    ];
    words.map(|word| word.as_bytes().to_vec()).to_vec()
}

fn world() -> &'static (Registry, Vec<Call>) {
    static WORLD: OnceLock<(Registry, Vec<Call>)> = OnceLock::new();
    WORLD.get_or_init(|| {
        let registry = Registry::new();
        let tool = json!({
            "name": "fs.write", "version": "1.0.0", "title": "Write", "description": "Writes a file.",
            "input": {"type": "object", "properties": {
                "paths": {"type": "array", "items": {"type": "string", "x-hotcell": "path"}},
                "host": {"type": "string", "x-hotcell": "host"},
                "size": {"type": "integer"}, "text": {"type": "string"}, "open": {"type": "object"},
            }},
            "output": true, "effects": ["write"], "category": "files",
        });
        registry.register(Tool::from_json(tool.to_string().as_bytes()).expect("a tool")).expect("a tool");
        let all = [
            json!({}),
            json!({"paths": ["src/a.rs"], "size": 1, "text": "x"}),
            json!({"paths": ["a", "src/b"], "host": "example.com", "open": {"x": [1, 2.5, null]}}),
        ];
        let calls = all.map(|args| {
            let request = Request::new("fs.write".parse().expect("a name"), Arguments::Value(args));
            let caller = Caller::local(Name::LOCAL, Door::Cli);
            Call::new(request, caller, CallId::new(1, [0; 10]), &registry).expect("a call")
        });
        (registry, calls.to_vec())
    })
}

/// A file is refused with places in it, or it is a policy that says something of every call.
pub fn rule_file(data: &[u8]) -> u64 {
    let (registry, calls) = world();
    match Snapshot::load(data, &registry.tools()) {
        Ok(loaded) => {
            let decided = calls.iter().map(|call| {
                let verdict = judge(&loaded.snapshot, call, &Facts::default());
                let hint = verdict.would_allow(&loaded.snapshot, call);
                let allowed = matches!(verdict, Verdict::Allow(_));
                assert_eq!(allowed, hint.is_empty(), "{hint}");
                assert!(!loaded.snapshot.explain(call, &Facts::default()).to_string().is_empty());
                allowed
            });
            let mut answers: Vec<bool> = decided.collect();
            answers.extend([true, loaded.warnings.is_empty(), loaded.snapshot.rules().is_empty()]);
            outcome(&answers)
        }
        Err(faults) => {
            assert!(!faults.is_empty() && faults.len() <= FAULTS_MOST);
            let lines = data.iter().filter(|byte| **byte == b'\n' || **byte == b'\r').count() + 2;
            for fault in &faults {
                assert!((1..=lines).contains(&fault.at.line) && fault.at.column >= 1, "{fault}");
                assert!(!fault.what.is_empty() && !fault.fix.is_empty());
            }
            let kind = faults.first().map_or(0, |fault| fault.what.len() as u64);
            0x1000 | kind << 5 | faults.len() as u64
        }
    }
}

pub(crate) fn file_seeds() -> Vec<Vec<u8>> {
    let words = [
        "rules:\n- name: a\n  match: { operation: fs.write, path: [\"src/**\"] }\n  action: allow\n",
        "rules:\n- name: b\n  match: { tag: x, host: '*.a.b', method: GET, state: idle, mode: debug, door: cli }\n  action: deny\n  except: [{ path: a }]\n",
        "rules: [{ name: c, match: {}, action: require_review, when: args.size < 5, constraints: { memory: 1MiB, cpu: 0.5, timeout: 5s } }]\n",
        "version: 1\nextensions: [a.ts]\nredact: [abc, { regex: 'x+' }]\n",
        "rules: [{ name: d, match: { effect: [write] }, action: allow, examples: { match: [{ effect: write, args: { a: [1, ~, 2.5] } }], no_match: [] } }]\n",
        "a: &a [1]\nb: *a\n",
        "? a\n: !t b\n--- |\n x\n",
    ];
    words.map(|word| word.as_bytes().to_vec()).to_vec()
}

/// A test file is refused with places in it, or it has tests.
pub fn expectation(data: &[u8]) -> u64 {
    match expectations(data) {
        Ok(all) => {
            assert!(all.len() <= TESTS_MOST);
            outcome(&[true, all.is_empty(), all.iter().any(|one| one.rules.is_some())])
        }
        Err(faults) => {
            assert!(!faults.is_empty() && faults.len() <= FAULTS_MOST);
            faults
                .iter()
                .for_each(|fault| assert!(!fault.what.is_empty() && !fault.fix.is_empty()));
            0x1000
                | faults.first().map_or(0, |fault| fault.what.len() as u64) << 5
                | faults.len() as u64
        }
    }
}

pub(crate) fn expectation_seeds() -> Vec<Vec<u8>> {
    let words = [
        "tests:\n- call: fs.write\n  args: { path: a }\n  expect: allow\n  rules: [a]\n",
        "tests: [{ call: shell.run, args: { a: [1, ~, 2.5] }, state: idle, mode: debug, expect: review }]\n",
        "tests: []\n",
        "test:\n - &a *a\n",
    ];
    words.map(|word| word.as_bytes().to_vec()).to_vec()
}

/// A condition is refused, or it says something of every call.
pub fn when(data: &[u8]) -> u64 {
    let text =
        serde_json::Value::from(String::from_utf8_lossy(data).replace(char::is_control, " "));
    let rule = |action: &str| {
        format!(
            "rules: [{{ name: a, match: {{ tool: fs.write }}, action: {action}, when: {text} }}]"
        )
    };
    let (registry, calls) = world();
    match Snapshot::load(rule("allow").as_bytes(), &registry.tools()) {
        Ok(loaded) => {
            let decisions =
                calls.iter().map(|call| match judge(&loaded.snapshot, call, &Facts::default()) {
                    Verdict::Allow(_) => 0,
                    Verdict::Deny(account) if account.decision().is_none() => 1,
                    _ => 2,
                });
            decisions.fold(1, |all, decision| all << 2 | decision)
        }
        Err(faults) => 0x1000 | faults.first().map_or(0, |fault| fault.what.len() as u64),
    }
}

pub(crate) fn when_seeds() -> Vec<Vec<u8>> {
    let words = [
        "args.size < 65536",
        "args.text.startsWith('a') && !has(args.host)",
        "paths.all(p, p.startsWith(\"src/\")) || size(hosts) == 0",
        "args.open.x[1] * 2.0 == 5 ? true : 1 in [1, 2]",
        "args.text.matches(r'^x+$') == (state == null)",
        "caller.door in ['cli', \"mcp\"] && -1 % 2 != 0x10 / 3",
        "args.open.x.exists_one(a, a == null)",
    ];
    words.map(|word| word.as_bytes().to_vec()).to_vec()
}

#[test]
fn the_tests_among_the_seeds_are_read() {
    let read: Vec<bool> =
        expectation_seeds().iter().map(|seed| expectations(seed).is_ok()).collect();
    assert_eq!(read, [true, true, true, false]);
}
