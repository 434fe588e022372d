//! Requests and calls.

use std::time::{Duration, Instant};

use hotcell_request::{Arguments, Call, CallError, Fault, LookupError, Registry, Request};
use hotcell_types::{CallId, Caller, Door, Span};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::{takes_anything, tool};

fn id(n: u8) -> CallId {
    CallId::new(1_700_000_000_000, [n; 10])
}

fn caller() -> Caller {
    Caller::local("alice".parse().unwrap(), Door::Mcp)
}

fn registry() -> Registry {
    let registry = Registry::new();
    let copy = json!({
        "type": "object",
        "properties": {
            "from": {"type": "string", "x-hotcell": "path"},
            "to": {"type": "array", "items": {"type": "string", "x-hotcell": "path"}},
            "mode": {"enum": ["fast", "slow"], "default": "fast"},
            "log": {"type": "string", "x-hotcell": "path", "default": "./logs//copy.log"},
            "size": {"type": "integer", "maximum": 9}
        },
        "required": ["from"]
    });
    let fetch = json!({
        "type": "object",
        "properties": {
            "url": {"type": "string", "x-hotcell": "url"},
            "host": {"type": ["string", "null"], "x-hotcell": "host"},
            "method": {"enum": ["GET", "POST"], "x-hotcell": "method"},
            "key": {"type": "string", "maxLength": 20, "x-hotcell": "secret"},
            "headers": {"type": "array", "items": {"type": "object", "properties": {
                "name": {"type": "string"}, "value": {"type": "string", "x-hotcell": "secret"}}}}
        }
    });
    let both = json!({"type": "object", "properties": {"where": {"anyOf": [
        {"type": "string", "x-hotcell": "path"}, {"type": "string", "x-hotcell": "url"}]}}});
    let loose = json!({"type": "object", "properties": {"p": {"x-hotcell": "path"}}});
    for tool in [
        tool(
            "fs.copy",
            copy,
            &["read", "write"],
            json!({"operation": "fs.write", "tags": ["files"], "limits": {"timeout": "20s"}}),
        ),
        tool("web.fetch", fetch, &["network"], json!({})),
        tool("both", both, &["read"], json!({})),
        tool("loose", loose, &["read"], json!({})),
        tool("any", takes_anything(), &["pure"], json!({})),
        tool("one/same", takes_anything(), &["pure"], json!({})),
        tool("two/same", takes_anything(), &["pure"], json!({})),
    ] {
        registry.register(tool).unwrap();
    }
    registry
}

fn request(name: &str, args: Value) -> Request {
    Request::new(name.parse().unwrap(), Arguments::Value(args))
}

fn call(name: &str, args: Value) -> Result<Call, CallError> {
    Call::new(request(name, args), caller(), id(1), &registry())
}

fn places(faults: &[Fault]) -> Vec<&str> {
    faults.iter().map(Fault::at).collect()
}

#[test]
fn a_call_has_all_that_a_policy_asks_for() {
    let call = call("fs.copy", json!({"from": "/work/./a", "to": ["b//c/", "d"]})).unwrap();
    assert_eq!(
        (call.name().to_string(), call.version().to_string()),
        ("fs.copy".into(), "1.0.0".into())
    );
    assert_eq!(call.operation().to_string(), "fs.write");
    assert_eq!(call.tags()[0].as_str(), "files");
    assert!(call.effects().can_change_something());
    assert_eq!(call.paths(), ["a", "logs/copy.log", "b/c", "d"]);
    assert_eq!((call.caller(), call.id(), call.priority().get()), (&caller(), id(1), 3));
    assert_eq!((call.timeout(), call.limits().timeout), (Span::seconds(20), Span::seconds(20)));
    // The value that is judged is the one that is executed.
    let args = json!({"from": "a", "to": ["b/c", "d"], "mode": "fast", "log": "logs/copy.log"});
    assert_eq!(call.args(), &args);

    let fetch =
        json!({"url": "HTTPS://Example.COM:443", "host": "API.example.com.", "method": "get"});
    let call = self::call("web.fetch", fetch).unwrap();
    assert_eq!(call.hosts(), ["api.example.com", "example.com"]);
    assert_eq!(call.urls(), ["https://example.com/"]);
    assert_eq!(call.methods(), ["GET"]);
    assert!(self::call("web.fetch", json!({"host": null})).unwrap().hosts().is_empty());
}

#[test]
fn spelling_never_makes_another_call() {
    let bytes = |text: &str| {
        let request = Request::new("fs.copy".parse().unwrap(), Arguments::Bytes(text.into()));
        Call::new(request, caller(), id(1), &registry()).unwrap()
    };
    let one = bytes(r#"{"from":"a","size":1}"#);
    for other in [
        r#" { "size" : 1.0, "from" : "./a" } "#,
        r#"{"\u0066rom":"/work//a/","size":1e0,"mode":"fast"}"#,
        r#"{"from":"a","size":1,"log":"logs/copy.log"}"#,
    ] {
        let other = bytes(other);
        assert_eq!((one.digest(), one.args_digest()), (other.digest(), other.args_digest()));
        assert_eq!(one.to_bytes(), other.to_bytes());
    }
    assert_ne!(one.args_digest(), bytes(r#"{"from":"a","size":2}"#).args_digest());
    let mut elsewhere = caller();
    elsewhere.tenant = "other".parse().unwrap();
    let other = Call::new(
        request("fs.copy", json!({"from": "a", "size": 1})),
        elsewhere,
        id(2),
        &registry(),
    )
    .unwrap();
    assert_eq!(one.args_digest(), other.args_digest());
    assert_ne!(one.digest(), other.digest(), "an approval for one tenant is none for another");
}

#[test]
fn arguments_are_refused_by_their_places() {
    for (name, args, expected) in [
        ("fs.copy", json!({}), &["/from"][..]),
        ("fs.copy", json!({"from": 5}), &["/from"]),
        (
            "fs.copy",
            json!({"from": "../a", "to": ["b", "/etc/passwd", "c\0"]}),
            &["/from", "/to/1", "/to/2"],
        ),
        ("fs.copy", json!({"from": "a", "size": 10, "mode": "Fast"}), &["/mode", "/size"]),
        (
            "web.fetch",
            json!({"url": "file:///etc/passwd", "host": "0x7f.1", "method": "TRACE"}),
            &["/method", "/host", "/url"],
        ),
        ("web.fetch", json!({"method": "put"}), &["/method"]),
        ("both", json!({"where": "a"}), &["/where"]),
        ("loose", json!({"p": 5}), &["/p"]),
        ("loose", json!({"p": ["a"]}), &["/p"]),
        ("any", json!([]), &[""]),
        ("any", json!("text"), &[""]),
        ("any", json!({"n": 1e20}), &["/n"]),
    ] {
        let error = call(name, args.clone()).expect_err(&args.to_string());
        assert!(matches!(error, CallError::Arguments { .. }), "{error}");
        let mut found = error.faults();
        found.sort_by_key(|fault| expected.iter().position(|at| *at == fault.at()));
        assert_eq!(places(&found), expected, "{args}: {found:?}");
        assert!(
            found
                .iter()
                .all(|f| !f.what().is_empty() && !f.why().is_empty() && !f.fix().is_empty())
        );
    }
    let fault = &call("fs.copy", json!({"from": "../a"})).unwrap_err().faults()[0];
    assert_eq!(fault.to_string(), "/from: \"../a\" is not a path");
    assert_eq!(
        (fault.why(), fault.fix()),
        ("it goes up with `..`", "write it relative to the workspace's root")
    );
}

#[test]
fn tool_13_an_unknown_or_ambiguous_tool_is_refused() {
    assert!(matches!(call("none", json!({})), Err(CallError::Tool(LookupError::Unknown { .. }))));
    assert!(matches!(call("same", json!({})), Err(CallError::Tool(LookupError::Ambiguous { .. }))));
    assert_eq!(call("one/same", json!({})).unwrap().name().to_string(), "one/same");
    assert_eq!(call("none", json!({})).unwrap_err().faults()[0].at(), "/tool");
}

#[test]
fn a_disabled_tool_is_not_called() {
    let registry = registry();
    registry.disable(&"any".parse().unwrap(), "1.0.0".parse().unwrap()).unwrap();
    let error = Call::new(request("any", json!({})), caller(), id(1), &registry).unwrap_err();
    assert!(matches!(error, CallError::Tool(LookupError::Disabled { .. })), "{error}");
}

#[test]
fn tool_24_no_field_of_a_request_or_argument_loosens_anything() {
    let base = json!({"tool": "fs.copy", "arguments": {"from": "a"}});
    Request::from_json(base.to_string().as_bytes()).unwrap();
    for (key, value) in [
        ("sandbox", json!(false)),
        ("dangerouslyDisableSandbox", json!(true)),
        ("user", json!("root")),
        ("privileged", json!(true)),
        ("env", json!({"LD_PRELOAD": "x"})),
        ("policy", json!("allow")),
        ("level", json!("landlock-only")),
        ("caller", json!({"tenant": "other", "subject": "root", "door": "cli"})),
        ("id", json!(id(9))),
        ("approved", json!(true)),
        ("effects", json!(["pure"])),
    ] {
        let mut with = base.clone();
        with[key] = value.clone();
        let faults = Request::from_json(with.to_string().as_bytes()).expect_err(key);
        assert_eq!(places(&faults), [format!("/{key}")], "{faults:?}");
        let error = call("fs.copy", json!({"from": "a", key: value})).expect_err(key);
        assert_eq!(places(&error.faults()), [format!("/{key}")]);
    }
    for (key, value) in [
        ("timeout", json!(1e9)),
        ("timeout", json!("1000000000s")),
        ("timeout", json!("0s")),
        ("timeout", json!(null)),
        ("priority", json!(0)),
        ("priority", json!(6)),
        ("priority", json!("1")),
        ("version", json!("*")),
        ("tool", json!("FS.COPY")),
        ("arguments", json!([])),
        ("arguments", json!("{}")),
        ("key", json!("")),
        ("key", json!("a\nb")),
        ("token", json!("")),
        ("parent", json!("x")),
        ("after", json!(["x"])),
        ("after", json!(vec![id(2); 65])),
    ] {
        let mut with = base.clone();
        with[key] = value.clone();
        assert!(Request::from_json(with.to_string().as_bytes()).is_err(), "{key} {value}");
    }
    let mut long = request("fs.copy", json!({"from": "a"}));
    long.timeout = Some(Span::seconds(21));
    let error = Call::new(long.clone(), caller(), id(1), &registry()).unwrap_err();
    assert_eq!(places(&error.faults()), ["/timeout"]);
    long.timeout = Some(Span::seconds(19));
    assert_eq!(
        Call::new(long, caller(), id(1), &registry()).unwrap().limits().timeout,
        Span::seconds(19)
    );
}

#[test]
fn a_request_is_read_whole() {
    let text = json!({
        "tool": "fs.copy", "version": "1", "arguments": {"from": "a"}, "priority": 1, "timeout": "5s",
        "key": "k-1", "parent": id(2), "after": [id(4), id(3), id(4)], "token": "t0k3n"
    });
    let request = Request::from_json(text.to_string().as_bytes()).unwrap();
    assert!(!format!("{request:?}").contains("t0k3n"));
    let call = Call::new(request, caller(), id(1), &registry()).unwrap();
    assert_eq!((call.priority().get(), call.timeout()), (1, Span::seconds(5)));
    assert_eq!((call.key().unwrap().as_str(), call.parent()), ("k-1", Some(id(2))));
    assert_eq!(call.after(), [id(3), id(4)]);
    assert_eq!(call.token().unwrap().reveal(), "t0k3n");
    assert!(Request::from_json(b"{\"tool\": \"any\", \"tool\": \"fs.copy\"}").is_err());
    let text = json!({"tool": "any", "token": "s3cr3t ä"}).to_string();
    assert!(!format!("{:?}", Request::from_json(text.as_bytes())).contains("s3cr3t"));
}

#[test]
fn a_call_does_not_wait_for_itself() {
    for (parent, after) in
        [(Some(id(1)), vec![]), (None, vec![id(2), id(1)]), (None, vec![id(2); 65])]
    {
        let mut request = request("any", json!({}));
        (request.parent, request.after) = (parent, after);
        let error = Call::new(request, caller(), id(1), &registry()).unwrap_err();
        assert_eq!(places(&error.faults()), ["/after"]);
    }
}

#[test]
fn tool_19_the_edges_of_a_schema_are_edges() {
    for (args, at) in [
        (json!({"key": "x".repeat(10_000_000)}), "/key"),
        (json!({"method": "Get\0"}), "/method"),
        (json!({"method": "gEt "}), "/method"),
        (json!({"host": "\0"}), "/host"),
        (json!({"__proto__": {}}), "/__proto__"),
        (json!({"Key": "x"}), "/Key"),
        (json!({"headers": [{"name": false}]}), "/headers/0/name"),
    ] {
        let faults = call("web.fetch", args).expect_err(at).faults();
        assert_eq!(places(&faults), [at]);
        assert!(faults[0].to_string().len() < 200, "{}", faults[0]);
    }
    for number in ["NaN", "1e999", "9223372036854775808", "-0.5", "10"] {
        let bytes = format!(r#"{{"from": "a", "size": {number}}}"#).into_bytes();
        let request = Request::new("fs.copy".parse().unwrap(), Arguments::Bytes(bytes));
        let faults = Call::new(request, caller(), id(1), &registry()).expect_err(number).faults();
        assert_eq!(places(&faults), ["/size"], "{number}");
    }
}

#[test]
fn many_places_are_spelled_in_good_time() {
    let many = |name: &str| json!({"from": "a", "to": vec![name; 100_000]});
    let start = Instant::now();
    assert_eq!(call("fs.copy", many("./a")).unwrap().paths().len(), 100_002);
    assert_eq!(call("fs.copy", many("../a")).unwrap_err().faults().len(), 20);
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
}

#[test]
fn secrets_are_not_shown() {
    let args =
        json!({"key": "hunter2", "headers": [{"name": "A", "value": "hunter2"}, {"name": "B"}]});
    let call = call("web.fetch", args.clone()).unwrap();
    assert_eq!(call.args(), &args);
    assert_eq!(
        call.redacted_args(),
        json!({"key": "[secret]", "headers": [{"name": "A", "value": "[secret]"}, {"name": "B"}]})
    );
    assert!(!format!("{call:?}").contains("hunter2"));
    let error = self::call("web.fetch", json!({"key": "hunter2".repeat(9)})).unwrap_err();
    assert!(!format!("{error:?} {error}").contains("hunter2"));
}

#[test]
fn a_stored_call_reads_back_and_is_checked_again() {
    let registry = registry();
    let mut request = request("web.fetch", json!({"url": "http://a/", "key": "hunter2"}));
    request.key = Some("k".parse().unwrap());
    request.after = vec![id(3)];
    request.token = Some("t0k3n".parse().unwrap());
    let call = Call::new(request, caller(), id(1), &registry).unwrap();
    let bytes = call.to_bytes();
    let read = Call::from_bytes(&bytes, &registry).unwrap();
    assert_eq!(read, call);
    assert_eq!(
        (read.to_bytes(), read.digest(), read.hosts()),
        (bytes.clone(), call.digest(), vec!["a"])
    );
    assert!(read.token().is_none() && !String::from_utf8_lossy(&bytes).contains("t0k3n"));

    let stored: Value = serde_json::from_slice(&bytes).unwrap();
    for (at, value) in [
        ("/args/url", json!("HTTP://a")),
        ("/args/url", json!("file:///etc/passwd")),
        ("/args", json!({"sandbox": false})),
        ("/args/sandbox", json!(false)),
        ("/sandbox", json!(false)),
        ("/tool", json!("any")),
        ("/version", json!("1.0.1")),
        ("/surface", json!("0".repeat(64))),
        ("/priority", json!(0)),
        ("/timeout", json!("31s")),
        ("/id", json!("x")),
        ("/caller/door", json!("window")),
        ("/caller/role", json!("admin")),
    ] {
        let mut changed = stored.clone();
        let (parent, key) = at.rsplit_once('/').unwrap();
        changed.pointer_mut(parent).unwrap()[key] = value.clone();
        let read = Call::from_bytes(changed.to_string().as_bytes(), &registry);
        assert!(read.is_err(), "{at} {value}: {read:?}");
    }
    assert!(
        Call::from_bytes(b"", &registry).is_err()
            && Call::from_bytes(&bytes[1..], &registry).is_err()
    );
}

/// After an approval the tool was exchanged for one that says something else.
#[test]
fn tool_11_a_stored_call_is_not_for_a_tool_that_has_changed() {
    let registry = registry();
    let bytes =
        Call::new(request("any", json!({})), caller(), id(1), &registry).unwrap().to_bytes();
    assert!(Call::from_bytes(&bytes, &registry).is_ok());
    registry.unregister(&"any".parse().unwrap(), "1.0.0".parse().unwrap()).unwrap();
    assert!(matches!(Call::from_bytes(&bytes, &registry), Err(CallError::Tool(_))));
    registry.register(tool("any", takes_anything(), &["write"], json!({}))).unwrap();
    assert!(matches!(Call::from_bytes(&bytes, &registry), Err(CallError::Stored(_))));
}

#[test]
fn tool_02_arguments_of_100_mb_and_bombs_are_refused_at_once() {
    let registry = registry();
    for bytes in [vec![b'['; 100 << 20], vec![b'['; 100_000]] {
        let start = Instant::now();
        let request = Request::new("any".parse().unwrap(), Arguments::Bytes(bytes));
        assert!(Call::new(request, caller(), id(1), &registry).is_err());
        assert!(start.elapsed() < Duration::from_millis(100), "{:?}", start.elapsed());
    }
}

proptest! {
    /// Whatever a caller sends, there is a call that reads back as itself, or there are faults.
    #[test]
    fn every_call_reads_back(
        from in "[a-z./ é\u{0}\\\\]{0,12}",
        to in prop::collection::vec("(/work)?[a-z./]{0,8}", 0..4),
        size in prop::option::of(any::<f64>()),
        url in "(http|https|HTTP)://[a-zA-Z0-9.:@-]{1,12}[/a-z?#%.]{0,10}",
    ) {
        let registry = registry();
        let copy = json!({"from": from, "to": to, "size": size});
        for (name, args) in [("fs.copy", copy), ("web.fetch", json!({"url": url}))] {
            match Call::new(request(name, args), caller(), id(1), &registry) {
                Ok(call) => {
                    let again = Call::from_bytes(&call.to_bytes(), &registry);
                    prop_assert_eq!(again.as_ref(), Ok(&call));
                    let sent_again = Call::new(request(name, call.args().clone()), caller(), id(1), &registry);
                    prop_assert_eq!(sent_again.as_ref(), Ok(&call));
                    let inside = |path: &str| !path.starts_with('/') && path.split('/').all(|part| part != "..");
                    prop_assert!(call.paths().into_iter().all(inside));
                }
                Err(error) => prop_assert!(!error.faults().is_empty()),
            }
        }
    }
}

#[test]
fn a_kept_result_depends_on_the_paths_that_the_rule_names() {
    let path = json!({"type": "string", "x-hotcell": "path"});
    let input = json!({
        "type": "object",
        "properties": {
            "path": path,
            "paths": {"type": "array", "items": {"$ref": "#/$defs/Path"}},
            "config": {"type": "string", "x-hotcell": "path", "default": "lint.toml"},
            "into": path,
            "a/b": path
        },
        "$defs": {"Path": path}
    });
    let args = json!({"path": "./a", "paths": ["b", "c//d"], "into": "out", "a/b": "e"});
    let rule = |inputs: Value| json!({"cache": {"keep": {"for": "5m", "inputs": inputs}}});
    for (more, expected) in [
        (json!({}), None),
        (rule(json!([])), Some(&[][..])),
        (rule(json!(["path"])), Some(&["a"])),
        (rule(json!(["config", "paths"])), Some(&["lint.toml", "b", "c/d"])),
        (rule(json!(["a/b"])), Some(&["e"])),
    ] {
        let registry = Registry::new();
        registry.register(tool("lint", input.clone(), &["read"], more.clone())).unwrap();
        let call = Call::new(request("lint", args.clone()), caller(), id(1), &registry).unwrap();
        assert_eq!(call.cache_inputs().as_deref(), expected, "{more}");
    }
}
