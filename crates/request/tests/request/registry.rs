//! The registry.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use hotcell_request::{
    Arguments, Call, Fault, Later, LookupError, RegisterError, Registered, Registry, Request, Spec,
    Tool, Tools, Version, VersionReq, canonical,
};
use hotcell_types::{CallId, Caller, Door};
use serde_json::{Value, json};

use crate::{takes_anything, tool};

fn registry(tools: &[(&str, &str)]) -> Registry {
    let registry = Registry::new();
    for (name, version) in tools {
        registry
            .register(tool(name, takes_anything(), &["read"], json!({"version": version})))
            .unwrap();
    }
    registry
}

fn version(text: &str) -> Version {
    text.parse().unwrap()
}

fn get(registry: &Registry, name: &str, req: Option<&str>) -> Result<String, LookupError> {
    let req: Option<VersionReq> = req.map(|req| req.parse().unwrap());
    let found = registry.get(&name.parse().unwrap(), req.as_ref())?;
    Ok(format!("{} {}", found.tool().name, found.tool().version))
}

fn names(tools: Vec<hotcell_request::Listed>) -> Vec<String> {
    tools.iter().map(|l| format!("{} {}", l.tool.tool().name, l.tool.tool().version)).collect()
}

#[test]
fn the_newest_enabled_version_that_is_accepted_is_found() {
    let registry = registry(&[("a", "1.0.0"), ("a", "1.2.0"), ("a", "1.10.0"), ("a", "2.0.0")]);
    for (req, expected) in [
        (None, "a 2.0.0"),
        (Some("1"), "a 1.10.0"),
        (Some("1.2"), "a 1.2.0"),
        (Some("1.0.0"), "a 1.0.0"),
    ] {
        assert_eq!(get(&registry, "a", req).unwrap(), expected);
    }
    registry.disable(&"a".parse().unwrap(), version("2.0.0")).unwrap();
    assert_eq!(get(&registry, "a", None).unwrap(), "a 1.10.0");
    assert!(matches!(get(&registry, "a", Some("2")), Err(LookupError::Disabled { .. })));
    registry.enable(&"a".parse().unwrap(), version("2.0.0")).unwrap();
    assert_eq!(get(&registry, "a", None).unwrap(), "a 2.0.0");
    let error = get(&registry, "a", Some("3")).unwrap_err();
    assert_eq!(
        error.to_string(),
        "there is no version 3 of `a`: there is 1.0.0, 1.2.0, 1.10.0, 2.0.0"
    );
    assert!(matches!(get(&registry, "b", None), Err(LookupError::Unknown { .. })));
}

#[test]
fn a_tool_is_registered_once_and_until_it_is_unregistered() {
    let registry = registry(&[("a", "1.0.0")]);
    let again = || registry.register(tool("a", takes_anything(), &["read"], json!({})));
    assert!(matches!(again(), Err(RegisterError::Twice { .. })));
    let before = registry.tools();
    registry.unregister(&"a".parse().unwrap(), version("1.0.0")).unwrap();
    assert!(get(&registry, "a", None).is_err());
    assert!(before.get(&"a".parse().unwrap(), None).is_ok(), "a snapshot stays as it was");
    assert!(registry.unregister(&"a".parse().unwrap(), version("1.0.0")).is_err());
    assert!(registry.enable(&"a".parse().unwrap(), version("1.0.0")).is_err());
    again().unwrap();
}

#[test]
fn tool_13_a_name_in_two_namespaces_has_to_be_qualified() {
    let registry = registry(&[
        ("one/read", "1.0.0"),
        ("two/read", "1.0.0"),
        ("two/write", "1.0.0"),
        ("two/readme", "1.0.0"),
    ]);
    assert_eq!(
        get(&registry, "read", None).unwrap_err().to_string(),
        "several tools are called `read`: say which of one/read, two/read"
    );
    assert_eq!(get(&registry, "one/read", None).unwrap(), "one/read 1.0.0");
    assert_eq!(get(&registry, "write", None).unwrap(), "two/write 1.0.0");
    assert!(matches!(get(&registry, "one/write", None), Err(LookupError::Unknown { .. })));
    // Whoever is imported cannot take over a name that is in use without a namespace.
    registry.register(tool("read", takes_anything(), &["read"], json!({}))).unwrap();
    assert_eq!(get(&registry, "read", None).unwrap(), "read 1.0.0");
}

#[test]
fn tools_are_listed_by_category_and_tag() {
    let registry = Registry::new();
    for (name, category, tags) in
        [("b", "x", json!(["t"])), ("a", "x", json!([])), ("c", "y", json!(["t", "u"]))]
    {
        registry
            .register(tool(
                name,
                takes_anything(),
                &["pure"],
                json!({"category": category, "tags": tags}),
            ))
            .unwrap();
    }
    let tools = registry.tools();
    let list = |category: Option<&str>, tag: Option<&str>| {
        let (category, tag) =
            (category.map(|c| c.parse().unwrap()), tag.map(|t| t.parse().unwrap()));
        names(tools.list(category.as_ref(), tag.as_ref()))
    };
    assert_eq!(list(None, None), ["a 1.0.0", "b 1.0.0", "c 1.0.0"]);
    assert_eq!(list(Some("x"), None), ["a 1.0.0", "b 1.0.0"]);
    assert_eq!(list(None, Some("t")), ["b 1.0.0", "c 1.0.0"]);
    assert_eq!(list(Some("x"), Some("t")), ["b 1.0.0"]);
    assert!(list(Some("z"), None).is_empty());
}

#[test]
fn a_search_ranks_by_what_fits_and_is_always_the_same() {
    let registry = Registry::new();
    for (name, more) in [
        (
            "fs.read",
            json!({"title": "Read a file", "description": "Reads a file.", "tags": ["files"]}),
        ),
        (
            "fs.write",
            json!({"title": "Write a file", "description": "Writes a file.", "tags": ["files"]}),
        ),
        ("search.grep", json!({"description": "Finds lines in files.", "category": "search"})),
        ("math.add", json!({"description": "Adds numbers. Does not read anything."})),
    ] {
        registry.register(tool(name, takes_anything(), &["read"], more)).unwrap();
    }
    let tools = registry.tools();
    let search = |words: &str| names(tools.search(words, 3));
    for (words, expected) in [
        ("read", &["fs.read 1.0.0", "math.add 1.0.0"][..]),
        ("READ file!", &["fs.read 1.0.0", "fs.write 1.0.0", "math.add 1.0.0"]),
        ("fs", &["fs.read 1.0.0", "fs.write 1.0.0"]),
        ("grep", &["search.grep 1.0.0"]),
        ("nothing", &[]),
        ("", &[]),
        ("…", &[]),
    ] {
        assert_eq!(search(words), expected, "{words}");
    }
    assert!(search(&"read ".repeat(100_000)).starts_with(&["fs.read 1.0.0".to_owned()]));
}

#[test]
fn a_caller_sees_only_enabled_tools_that_it_may_use() {
    let registry = registry(&[
        ("fs.read", "1.0.0"),
        ("fs.write", "1.0.0"),
        ("fs.list", "1.0.0"),
        ("x/fs.write", "1.0.0"),
    ]);
    registry.disable(&"fs.list".parse().unwrap(), version("1.0.0")).unwrap();
    let seen: Tools =
        registry.tools().visible_to(|tool| tool.tool().name.to_string() != "fs.write");
    assert_eq!(names(seen.list(None, None)), ["fs.read 1.0.0", "x/fs.write 1.0.0"]);
    assert_eq!(names(seen.search("fs", 9)), ["fs.read 1.0.0", "x/fs.write 1.0.0"]);
    assert!(matches!(
        seen.get(&"fs.list".parse().unwrap(), None),
        Err(LookupError::Unknown { .. })
    ));
}

#[test]
fn readers_and_writers_are_not_in_each_others_way() {
    let registry = Arc::new(registry(&[("stays", "1.0.0")]));
    let writers: Vec<_> = (0..4)
        .map(|n| {
            let registry = Arc::clone(&registry);
            thread::spawn(move || {
                let name = format!("t{n}");
                for _ in 0..50 {
                    registry.register(tool(&name, takes_anything(), &["pure"], json!({}))).unwrap();
                    registry.disable(&name.parse().unwrap(), version("1.0.0")).unwrap();
                    registry.unregister(&name.parse().unwrap(), version("1.0.0")).unwrap();
                }
            })
        })
        .collect();
    while !writers.iter().all(thread::JoinHandle::is_finished) {
        assert_eq!(get(&registry, "stays", None).unwrap(), "stays 1.0.0");
        assert!(registry.tools().list(None, None).len() <= 5);
    }
    for writer in writers {
        writer.join().unwrap();
    }
    assert_eq!(names(registry.tools().list(None, None)), ["stays 1.0.0"]);
}

fn spec(name: &'static str) -> Spec {
    Spec {
        name,
        version: "1.0.0",
        description: "Does something.",
        effects: &[],
        title: None,
        category: None,
        operation: None,
        template: None,
        timeout: None,
        memory: None,
        retry: None,
        tags: &[],
        hosts: &[],
        paths: &[],
        varies: &[],
    }
}

fn counting(name: &str) -> Tool {
    let input = json!({
        "type": "object",
        "properties": {"path": {"type": "string", "x-hotcell": "path"}, "count": {"type": "integer"}},
        "required": ["path"]
    });
    tool(name, input, &["read"], json!({"examples": [{"input": {"path": "a"}, "output": 1}]}))
}

/// Tools that count how often they are made.
fn later(names: &[&'static str], count: &Arc<AtomicUsize>) -> Registry {
    let later = |name: &&'static str| {
        let (name, count) = (*name, Arc::clone(count));
        let make = move || {
            count.fetch_add(1, Ordering::SeqCst);
            Ok(counting(name))
        };
        Later::new(&spec(name), make).unwrap()
    };
    Registry::of(names.iter().map(later)).unwrap()
}

#[test]
fn a_tool_of_the_program_is_made_once_and_with_its_first_use() {
    let count = Arc::new(AtomicUsize::new(0));
    let registry = Arc::new(later(&["a", "b", "c"], &count));
    let before = registry.tools();
    registry.disable(&"a".parse().unwrap(), version("1.0.0")).unwrap();
    registry.unregister(&"c".parse().unwrap(), version("1.0.0")).unwrap();
    assert!(matches!(get(&registry, "a", None), Err(LookupError::Disabled { .. })));
    assert!(matches!(get(&registry, "b", Some("2")), Err(LookupError::Version { .. })));
    assert_eq!(count.load(Ordering::SeqCst), 0, "nothing was used yet");
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| assert_eq!(get(&registry, "b", None).unwrap(), "b 1.0.0"));
        }
    });
    assert_eq!(count.load(Ordering::SeqCst), 1);
    assert_eq!(names(registry.tools().list(None, None)), ["a 1.0.0", "b 1.0.0"]);
    assert_eq!(names(before.search("a b c", 9)), ["a 1.0.0", "b 1.0.0", "c 1.0.0"]);
    assert_eq!(count.load(Ordering::SeqCst), 3, "a snapshot stays as it was");
}

#[test]
fn a_tool_that_is_made_later_is_the_tool_that_is_registered() {
    let registered = Registry::new();
    registered.register(counting("a")).unwrap();
    for args in [
        json!({"path": "./b//c"}),
        json!({"path": "b", "count": 2}),
        json!({"path": "b", "count": 2.0}),
        json!({}),
        json!({"path": 1}),
        json!({"path": "../b"}),
        json!({"path": "b", "count": "2"}),
        json!({"path": "b", "more": 1}),
        json!([]),
    ] {
        let count = Arc::new(AtomicUsize::new(0));
        let made_later = later(&["a"], &count);
        let call = |registry: &Registry, args: Value| {
            let request = Request::new("a".parse().unwrap(), Arguments::Value(args));
            let caller = Caller::local("alice".parse().unwrap(), Door::Library);
            Call::new(request, caller, CallId::new(0, [0; 10]), registry)
        };
        assert_eq!(call(&made_later, args.clone()), call(&registered, args.clone()), "{args}");
        let name = "a".parse().unwrap();
        let digest = |registry: &Registry| registry.get(&name, None).unwrap().digest();
        assert_eq!(digest(&made_later), digest(&registered));
        let surface = serde_json::to_value(counting("a")).unwrap();
        assert_eq!(digest(&registered), canonical::digest(&surface), "of all that it says");
        assert_eq!(registered.get(&name, None).unwrap().tool(), &counting("a"));
    }
}

#[test]
fn a_tool_that_cannot_be_made_is_broken_and_in_nobodys_way() {
    let other = || Ok(counting("other"));
    let hidden = || {
        let mut tool = counting("hides");
        tool.input["description"] = "\u{200b}".into();
        Ok(tool)
    };
    let fails = || Err(Fault::new("/name", "no", "why", "fix"));
    let all = [
        Later::new(&spec("good"), || Ok(counting("good"))).unwrap(),
        Later::new(&spec("renamed"), other).unwrap(),
        Later::new(&spec("hides"), hidden).unwrap(),
        Later::new(&spec("fails"), fails).unwrap(),
    ];
    let registry = Registry::of(all).unwrap();
    assert_eq!(names(registry.tools().list(None, None)), ["good 1.0.0"]);
    for (name, why) in [
        ("renamed", "it says that it is `other` 1.0.0"),
        ("hides", "U+200B"),
        ("fails", "/name: no"),
    ] {
        let error = get(&registry, name, None).unwrap_err();
        assert!(matches!(error, LookupError::Broken { .. }), "{error}");
        assert!(error.to_string().contains(why), "{error}");
    }
    let twice = [(); 2].map(|()| Later::new(&spec("good"), || Ok(counting("good"))).unwrap());
    assert!(matches!(Registry::of(twice).unwrap_err(), RegisterError::Twice { .. }));
    assert_eq!(Later::new(&spec("Bad Name"), other).unwrap_err().at(), "/name");
}

/// Nobody has proven what comes from outside.
#[test]
fn a_tool_from_outside_is_checked_as_a_whole_when_it_is_registered() {
    let mut broken = counting("a");
    broken.output = json!({"type": "text"});
    let mut wrong = counting("a");
    wrong.examples[0].output = json!("one");
    wrong.output = json!({"type": "integer"});
    let registry = later(&["b"], &Arc::new(AtomicUsize::new(0)));
    assert!(matches!(registry.register(broken), Err(RegisterError::Schema { .. })));
    assert!(matches!(registry.register(wrong.clone()), Err(RegisterError::Invalid { .. })));
    assert!(Registered::new(wrong).is_err());
    registry.register(counting("a")).unwrap();
    assert_eq!(names(registry.tools().list(None, None)), ["a 1.0.0", "b 1.0.0"]);
}
