//! What the tools say of themselves.

use std::collections::BTreeSet;
use std::sync::Arc;

use hotcell_request::{Effect, Later, Registered, Registry, VersionReq, canonical, json};
use hotcell_tools::{BuiltIn, built_in};

use crate::{absent_tool, assert_helps, call};
use serde_json::json;

/// The published names; `env.` and `sandbox.` and so on, which `hotcell env` and `hotcell sandbox` call; `run`, which is what `hotcell run` calls; `fs.change` and
/// `net.connect`, which runs make; and
/// `policy.update`, which approvers sign.
const NAMES: &str = "add average canvas_append code_execute count_characters count_words \
    current_datetime current_timestamp divide echo env.create env.list env.remove env.show extract_numbers file_read format_date fs.change fs.exists fs.list \
    fs.read fs.write git.commit git.diff git.log git.status http_fetch lowercase max min multiply net.connect \
    parse_json policy.update power reverse_text run sandbox.apply sandbox.create sandbox.diff sandbox.exec \
    sandbox.get sandbox.list sandbox.pause sandbox.put sandbox.remove sandbox.restart sandbox.resume \
    sandbox.show sandbox.stop search.glob search.grep shell.run sort sqrt subtract sum test.run \
    timestamp to_json unique uppercase web.search";

#[test]
fn every_published_name_is_there_in_order() {
    let names: Vec<String> =
        built_in().iter().map(|tool| tool.tool().unwrap().name.to_string()).collect();
    assert_eq!(names, NAMES.split_whitespace().collect::<Vec<_>>());
}

#[test]
fn every_tool_registers_with_an_example_and_a_category() {
    let registry = Registry::new();
    for built in built_in() {
        let tool = built.tool().unwrap();
        assert!(!tool.examples.is_empty() && tool.category.is_some(), "{built:?}");
        registry.register(tool).unwrap_or_else(|error| panic!("{built:?}: {:?}", error.faults()));
    }
    assert_eq!(registry.tools().list(None, None).len(), built_in().len());
}

/// A process makes only those that it uses, and believes what is proven here.
#[test]
fn a_tool_that_is_made_with_its_first_use_is_the_one_that_was_checked() {
    let later = |tool: Arc<BuiltIn>| Later::new(&tool.spec(), move || tool.tool()).unwrap();
    let registry = Registry::of(built_in().into_iter().map(Arc::new).map(later)).unwrap();
    assert_eq!(registry.tools().list(None, None).len(), built_in().len());
    for built in built_in() {
        let checked = Registered::new(built.tool().unwrap()).unwrap();
        let (name, version) = built.spec().name_and_version().unwrap();
        assert_eq!((&name, version), (&checked.tool().name, checked.tool().version));
        let made = registry.get(&name, Some(&VersionReq::exactly(version))).unwrap();
        assert_eq!(made.digest(), checked.digest(), "{name}");
        assert_eq!(made.tool(), &built.tool().unwrap(), "nothing was lost");
        let surface = json::adopt(serde_json::to_value(made.tool()).unwrap(), &json::Bounds::TOOL);
        assert_eq!(made.digest(), canonical::digest(&surface.unwrap()), "of all that it says");
        for example in &made.tool().examples {
            let mut args = example.input.clone();
            made.input().fill(&mut args).unwrap();
            for value in [args, json!({"no_such_argument": 1}), json!([]), json!({})] {
                assert_eq!(
                    made.input().validate(&value),
                    checked.input().validate(&value),
                    "{name}"
                );
            }
            for value in [example.output.clone(), json!(null), json!({}), json!("")] {
                assert_eq!(
                    made.output().validate(&value),
                    checked.output().validate(&value),
                    "{name}"
                );
            }
        }
    }
}

/// A tool in this process cannot write or execute, and one that looks at the clock is not pure.
#[test]
fn the_effects_go_with_the_way_it_is_carried_out() {
    let clocks = BTreeSet::from(["current_datetime", "current_timestamp", "timestamp"]);
    for built in built_in() {
        let tool = built.tool().unwrap();
        let name = tool.name.to_string();
        let effects: Vec<Effect> = tool.effects.iter().collect();
        match built {
            BuiltIn::Pure(_) if clocks.contains(name.as_str()) => {
                assert_eq!(effects, [Effect::Read], "{name}");
            }
            BuiltIn::Pure(_) => assert_eq!(effects, [Effect::Pure], "{name}"),
            BuiltIn::Tree(_) => assert_eq!(effects, [Effect::Read], "{name}"),
            BuiltIn::Web(_) => assert_eq!(effects, [Effect::Network], "{name}"),
            BuiltIn::Sandboxed(_)
            | BuiltIn::Environment(_)
            | BuiltIn::Stay(_)
            | BuiltIn::Absent(_) => {
                assert!(!effects.contains(&Effect::Pure));
            }
        }
    }
}

#[test]
fn a_plan_that_brings_changes_says_write() {
    for built in built_in() {
        let tool = built.tool().unwrap();
        if let BuiltIn::Sandboxed(sandboxed) = built {
            let args = call(&tool.name.to_string(), tool.examples[0].input.clone()).unwrap();
            let plan = sandboxed.plan(args.args()).unwrap();
            assert_eq!(plan.brings_changes, tool.effects.has(Effect::Write), "{}", tool.name);
            assert!(plan.working_copy || !plan.brings_changes, "{}", tool.name);
        }
    }
}

#[test]
fn what_names_a_file_is_judged_as_a_path() {
    for (name, args, paths) in [
        ("fs.read", json!({"path": "./a//b"}), &["a/b"][..]),
        ("file_read", json!({"path": "/work/a"}), &["a"]),
        ("fs.list", json!({}), &["."]),
        ("fs.exists", json!({"path": "a"}), &["a"]),
        ("fs.write", json!({"path": "a", "text": ""}), &["a"]),
        ("search.grep", json!({"pattern": "x"}), &["."]),
        ("search.glob", json!({"patterns": ["*"], "path": "src"}), &["src"]),
        ("git.status", json!({"paths": ["a", "./b"]}), &["a", "b"]),
        ("git.status", json!({}), &["."]),
        ("git.diff", json!({}), &["."]),
        ("git.log", json!({}), &["."]),
        ("git.diff", json!({"paths": ["a"]}), &["a"]),
        ("git.log", json!({"paths": ["a"]}), &["a"]),
        ("git.commit", json!({"message": "m", "paths": ["a"]}), &["a"]),
    ] {
        assert_eq!(call(name, args).unwrap().paths(), paths, "{name}");
    }
    for path in ["../a", "/etc/passwd", "a\0", ""] {
        for name in ["fs.read", "file_read", "fs.list", "fs.exists"] {
            assert_eq!(call(name, json!({"path": path})).unwrap_err(), ["/path"], "{name} {path}");
        }
        let args = json!({"paths": ["ok", path]});
        assert_eq!(call("git.status", args).unwrap_err(), ["/paths/1"], "{path}");
    }
    // No path would be everything, and nothing to judge.
    for name in ["git.status", "git.diff", "git.log"] {
        assert_eq!(call(name, json!({"paths": []})).unwrap_err(), ["/paths"], "{name}");
    }
    let fetch = call("http_fetch", json!({"url": "HTTPS://Example.com"})).unwrap();
    assert_eq!((fetch.hosts(), fetch.methods()), (vec!["example.com"], vec!["GET"]));
}

#[test]
fn another_name_is_the_same_operation() {
    assert_eq!(call("file_read", json!({"path": "a"})).unwrap().operation().to_string(), "fs.read");
    let code = json!({"language": "shell", "code": ""});
    assert_eq!(call("code_execute", code).unwrap().operation().to_string(), "code.execute");
}

#[test]
fn what_is_absent_says_why() {
    for (name, why) in [
        ("net.connect", "a connection is made by the run that wants it"),
        ("canvas_append", "there is no canvas yet"),
    ] {
        let absent = absent_tool(name);
        assert_helps(absent.error());
        assert_eq!(absent.error().why, why);
    }
}
