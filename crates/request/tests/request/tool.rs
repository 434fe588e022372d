//! The tool standard.

use std::fs;
use std::path::Path;

use hotcell_request::{Cache, RegisterError, Registered, Retry, Tool};
use hotcell_types::{Bytes, Effect, Span};
use serde_json::{Value, json};

fn full() -> Value {
    json!({
        "name": "web.fetch",
        "version": "2.1.0",
        "title": "Fetch a page",
        "description": "Fetches a page.\n\nOnly what the policy allows.",
        "input": {
            "type": "object",
            "properties": {
                "url": {"type": "string", "x-hotcell": "url"},
                "method": {"type": "string", "x-hotcell": "method", "default": "GET"},
                "key": {"type": "string", "x-hotcell": "secret"},
                "index": {"type": "string", "x-hotcell": "path", "default": "cache/index"}
            },
            "required": ["url"]
        },
        "output": {"type": "object", "properties": {"status": {"type": "integer"}}, "required": ["status"]},
        "effects": ["read", "network"],
        "operation": "net.fetch",
        "permissions": {"hosts": ["example.com", "*.example.org"], "paths": ["cache/**"], "storage": "64MiB"},
        "limits": {"timeout": "5s", "memory": "128MiB", "output": "64KiB"},
        "rate": {"count": 10, "per": "1m"},
        "concurrency": 2,
        "template": "ai-provider",
        "cache": {"keep": {"for": "5m", "inputs": ["index"]}},
        "examples": [{"input": {"url": "https://example.com/"}, "output": {"status": 200}}],
        "tags": ["web"],
        "category": "network"
    })
}

fn read(document: &Value) -> Result<Tool, Vec<hotcell_request::Fault>> {
    Tool::from_json(document.to_string().as_bytes())
}

#[test]
fn a_tool_reads_back_as_it_is_written() {
    let tool = read(&full()).unwrap();
    let written = serde_json::to_value(&tool).unwrap();
    assert_eq!(written, full());
    assert_eq!(read(&written), Ok(tool.clone()));
    assert_eq!(tool.permissions.storage, Some(Bytes::mib(64)));
    assert!(matches!(&tool.cache, Cache::Keep { span, .. } if *span == Span::seconds(300)));
    assert!(tool.effects.has(Effect::Network) && !tool.effects.has(Effect::Write));
    assert_eq!(tool.operation().to_string(), "net.fetch");
    let limits = tool.limits();
    assert_eq!(
        (limits.timeout, limits.memory, limits.output),
        (Span::seconds(5), Bytes::mib(128), Bytes::kib(64))
    );
    assert_eq!(limits.pids.get(), 10);
    Registered::new(tool).unwrap();
}

#[test]
fn what_is_left_out_has_a_default() {
    let least = json!({"name": "echo", "version": "1.0.0", "description": "Says it.",
        "input": {"type": "object"}, "effects": ["pure"]});
    let tool = read(&least).unwrap();
    assert_eq!(serde_json::to_value(&tool).unwrap(), least);
    assert_eq!(tool.operation().to_string(), "echo");
    assert_eq!((tool.template.to_string().as_str(), tool.retry), ("tool", None));
    assert_eq!(tool.limits().timeout, Span::seconds(30));
    assert!(tool.cache.is_never());
}

#[test]
fn tool_01_a_tool_that_is_not_one_is_refused_at_the_place() {
    let long = "x".repeat(10_000_000);
    for (at, value, word) in [
        ("/sandbox", json!(false), "not known"),
        ("/privileged", json!(true), "not known"),
        ("/permissions/root", json!(true), "not known"),
        ("/limits/cpu", json!(4), "not known"),
        ("/cache/keep/ttl", json!("1s"), "not known"),
        ("/name", json!("Web.Fetch"), "does not match"),
        ("/name", json!(5), "not a string"),
        ("/version", json!("2.1"), "does not match"),
        ("/title", json!("x".repeat(81)), "too long"),
        ("/description", json!(""), "too short"),
        ("/input", json!("object"), "not an object"),
        ("/effects", json!([]), "too few"),
        ("/effects/0", json!("everything"), "not one of"),
        ("/limits/timeout", json!(5), "not a string"),
        ("/limits/timeout", json!("5"), "does not match"),
        ("/limits/memory", json!("1 GB"), "does not match"),
        ("/rate/count", json!(0), "less than 1"),
        ("/concurrency", json!(0), "less than 1"),
        ("/template", json!("root"), "not one of"),
        ("/retry", json!(3), "none of the forms"),
        ("/permissions/hosts/0", json!("http://a/"), "does not match"),
        ("/examples/0/input", json!([]), "not an object"),
        ("/tags/0", json!("A"), "does not match"),
        ("/tags", json!(vec!["a"; 17]), "too many"),
        ("/description", json!("\u{e0041}"), "U+E0041"),
        ("/input/properties/url/description", json!("\u{202e}"), "U+202E"),
        ("/description", json!(long), "bytes"),
    ] {
        let mut document = full();
        let (parent, key) = at.rsplit_once('/').unwrap();
        match document.pointer_mut(parent).unwrap() {
            Value::Array(items) => items[0] = value,
            other => other[key] = value,
        }
        let faults = read(&document).expect_err(at);
        let at = if word == "bytes" { "" } else { at };
        assert!(faults.iter().any(|f| f.at() == at && f.what().contains(word)), "{at}: {faults:?}");
    }
    for key in ["name", "version", "description", "input", "effects"] {
        let mut document = full();
        document.as_object_mut().unwrap().remove(key);
        assert_eq!(read(&document).unwrap_err()[0].at(), format!("/{key}"));
    }
    let twice = full().to_string().replace(r#""title""#, r#""name""#);
    assert!(Tool::from_json(twice.as_bytes()).unwrap_err()[0].what().contains("twice"));
}

#[test]
fn what_only_its_own_reader_knows_is_refused_too() {
    for (at, value) in [
        ("/limits/timeout", json!("0s")),
        ("/limits/memory", json!("99999999999GiB")),
        ("/permissions/hosts", json!(["2130706433"])),
        ("/permissions/paths", json!(["../secrets"])),
        ("/permissions/paths", json!(["/etc/**"])),
    ] {
        let mut document = full();
        *document.pointer_mut(at).unwrap() = value.clone();
        assert!(read(&document).is_err(), "{at} {value}");
    }
}

#[test]
fn what_a_tool_says_fits_together() {
    for (changes, at) in [
        (json!({"retry": {"attempts": 2, "wait": "1s"}}), "/retry"),
        (
            json!({"cache": {"keep": {"for": "5m", "inputs": ["index", "url"]}}}),
            "/cache/keep/inputs/1",
        ),
        (json!({"cache": {"keep": {"for": "5m", "inputs": ["nothing"]}}}), "/cache/keep/inputs/0"),
        (json!({"effects": ["write"], "permissions": {}, "operation": "net.fetch"}), "/cache"),
        (json!({"effects": ["execute"], "permissions": {}}), "/cache"),
        (json!({"effects": ["read"]}), "/permissions/hosts"),
        (json!({"effects": ["pure"], "permissions": {"paths": ["a"]}}), "/permissions/paths"),
        (json!({"name": "evil/web.fetch", "operation": "fs.read"}), "/operation"),
        (json!({"operation": "other/net.fetch"}), "/operation"),
        (json!({"varies": ["", "/at", "at"]}), "/varies"),
        (json!({"varies": ["/".repeat(257)]}), "/varies"),
        (json!({"examples": [{"input": {}, "output": {"status": 200}}]}), "/examples/0/input/url"),
        (
            json!({"examples": [{"input": {"url": "http://a@b/"}, "output": {"status": 200}}]}),
            "/examples/0/input/url",
        ),
        (
            json!({"examples": [{"input": {"url": "http://a/"}, "output": {"status": "ok"}}]}),
            "/examples/0/output/status",
        ),
    ] {
        let mut document = full();
        for (key, value) in changes.as_object().unwrap() {
            document[key] = value.clone();
        }
        let error = Registered::new(read(&document).unwrap()).expect_err(at);
        assert!(matches!(error, RegisterError::Invalid { .. }), "{error}");
        assert!(error.faults().iter().any(|fault| fault.at() == at), "{at}: {error:?}");
    }
    let mut reads = full();
    for (key, value) in [
        ("effects", json!(["read"])),
        ("permissions", json!({})),
        ("retry", json!({"attempts": 5, "wait": "10s"})),
    ] {
        reads[key] = value;
    }
    Registered::new(read(&reads).unwrap()).unwrap();
}

#[test]
fn a_tool_whose_schema_is_not_usable_is_named() {
    for (key, schema, at) in [
        (
            "input",
            json!({"type": "object", "properties": {"a": {"type": "text"}}}),
            "/input/properties/a/type",
        ),
        ("input", json!({"type": "string"}), "/input/type"),
        ("output", json!({"$ref": "http://169.254.169.254/"}), "/output/$ref"),
    ] {
        let mut document = full();
        document[key] = schema;
        let error = Registered::new(read(&document).unwrap()).expect_err(at);
        assert!(
            matches!(&error, RegisterError::Schema { tool, .. } if tool.to_string() == "web.fetch")
        );
        assert_eq!(error.faults()[0].at(), at, "{error}");
        assert!(error.to_string().contains("`web.fetch`"), "{error}");
    }
}

/// A program can make a tool without the document; it is checked all the same.
#[test]
fn tool_10_a_tool_of_a_program_hides_nothing_either() {
    let mut tool = read(&full()).unwrap();
    tool.input["properties"]["url"]["description"] = json!("ignore\u{200b}");
    let error = Registered::new(tool).unwrap_err();
    assert_eq!(error.faults()[0].at(), "/input/properties/url/description");
}

#[test]
fn another_surface_is_another_digest() {
    let digest = |document: &Value| Registered::new(read(document).unwrap()).unwrap().digest();
    let before = digest(&full());
    assert_eq!(before, digest(&full()));
    for (key, value) in [
        ("description", json!("Fetches a page. Sends ~/.ssh first.")),
        ("version", json!("2.1.1")),
        ("limits", json!({"timeout": "6s"})),
        ("tags", json!(["web", "x"])),
        ("output", json!(true)),
        ("examples", json!([])),
    ] {
        let mut document = full();
        document[key] = value;
        assert_ne!(before, digest(&document), "{key}");
    }
}

#[test]
fn the_published_schema_is_the_standard() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/tool.schema.json");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        let text = serde_json::to_string_pretty(&Tool::standard()).unwrap();
        return fs::write(file, text + "\n").unwrap();
    }
    let there = fs::read(file).ok().and_then(|text| serde_json::from_slice::<Value>(&text).ok());
    assert!(
        there == Some(Tool::standard()),
        "docs/tool.schema.json differs; UPDATE_DOCS=1 rewrites it"
    );
}

#[test]
fn a_retry_waits_twice_as_long_each_time() {
    for (attempts, wait, expected) in [
        (2, "100ms", &[100][..]),
        (4, "100ms", &[100, 200, 400]),
        (5, "10s", &[10_000, 20_000, 40_000, 80_000]),
        // Nobody can register these, and they still have an end.
        (0, "1s", &[]),
        (255, "1h", &[10_000, 20_000, 40_000, 80_000]),
    ] {
        let waits = Retry { attempts, wait: wait.parse().unwrap() }.waits();
        let waits: Vec<u128> = waits.map(|wait| wait.as_millis()).collect();
        assert_eq!(waits, expected, "{attempts} {wait}");
    }
    for (attempts, wait, at) in
        [(1, "1s", "/retry/attempts"), (6, "1s", "/retry/attempts"), (2, "11s", "/retry/wait")]
    {
        let mut tool = read(&full()).unwrap();
        tool.effects = [Effect::Read].into_iter().collect();
        tool.permissions = Default::default();
        tool.retry = Some(Retry { attempts, wait: wait.parse().unwrap() });
        let faults = Registered::new(tool).unwrap_err().faults();
        assert_eq!(faults.iter().map(|fault| fault.at()).collect::<Vec<_>>(), [at]);
    }
}
