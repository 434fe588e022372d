//! What callers and tool authors write as JSON: requests, calls that were stored, tools, schemas, and the lines
//! of a batch.

use std::collections::HashSet;
use std::sync::OnceLock;

use hotcell_api::batch::{JobId, Jobs, Name as BatchName};
use hotcell_request::json::{self, Bounds};
use hotcell_request::{Call, Fault, Registry, Request, Schema, Tool, canonical};
use hotcell_types::{CallId, Caller, Door, Name};

use crate::outcome;

/// Every fault says where, what, why and what to do about it.
fn all_told(faults: &[Fault]) {
    assert!(!faults.is_empty());
    for fault in faults {
        assert!(fault.at().is_empty() || fault.at().starts_with('/'), "{fault:?}");
        assert!(!fault.what().is_empty() && !fault.why().is_empty() && !fault.fix().is_empty());
    }
}

/// A document has one spelling, which is read as the same document.
fn document(data: &[u8]) -> bool {
    match json::parse(data, &Bounds::CALL) {
        Ok(value) => {
            let spelled = canonical::bytes(&value);
            assert_eq!(json::parse(&spelled, &Bounds::CALL).as_ref(), Ok(&value));
            assert_eq!(canonical::bytes(&value), spelled);
            assert_eq!(json::adopt(value.clone(), &Bounds::CALL), Ok(value));
            true
        }
        Err(fault) => {
            all_told(&[fault]);
            false
        }
    }
}

/// A request is refused with places in it, or it can be called or is refused as a call; what is called has one
/// form, in which it is read again.
pub fn request(data: &[u8]) -> u64 {
    let is_document = document(data);
    let request = Request::from_json(data);
    assert!(is_document || request.is_err());
    let request = match request {
        Err(faults) => {
            all_told(&faults);
            return outcome(&[is_document, false, faults.len() > 1]);
        }
        Ok(request) => request,
    };
    let has_key = request.key.is_some();
    let called = Call::new(request, caller(), CallId::new(2, [0; 10]), registry());
    match &called {
        Ok(call) => {
            let stored = call.to_bytes();
            let again = Call::from_bytes(&stored, registry()).expect("a call that was written");
            assert_eq!(again.to_bytes(), stored);
            assert_eq!(again.digest(), call.digest());
        }
        Err(error) => all_told(&error.faults()),
    }
    outcome(&[true, true, called.is_ok(), has_key])
}

pub(crate) fn request_seeds() -> Vec<Vec<u8>> {
    let words = [
        r#"{"tool":"fs.write","arguments":{"path":"a/b","text":"x"}}"#,
        r#"{"tool":"fs.write","version":"1.0.0","arguments":{"path":"a","size":1e2,"open":{"x":[1,2.5,null]}},"priority":3,"timeout":"5s","key":"k","after":["00000000010000000000000000"],"token":"hct_x","ask":true}"#,
        r#"{"tool":"fs.write","arguments":{"path":"../a","path":1,"size":-0.0,"x":18446744073709551616}}"#,
        "[1e400,\"\\ud800\",[[[]]],{\"\":0.1}]",
    ];
    words.map(|word| word.as_bytes().to_vec()).to_vec()
}

/// A call that was stored is the one that was made, or it is refused.
pub fn call(data: &[u8]) -> u64 {
    match Call::from_bytes(data, registry()) {
        Ok(call) => {
            assert_eq!(call.to_bytes(), data);
            outcome(&[true, call.key().is_some(), call.after().is_empty()])
        }
        Err(error) => {
            let faults = error.faults();
            all_told(&faults);
            0x1000 | faults.first().map_or(0, |fault| fault.what().len() as u64)
        }
    }
}

pub(crate) fn call_seeds() -> Vec<Vec<u8>> {
    let requests = request_seeds();
    let requests = requests.iter().filter_map(|text| Request::from_json(text).ok());
    let calls = requests.filter_map(|request| {
        Call::new(request, caller(), CallId::new(2, [0; 10]), registry()).ok()
    });
    let calls: Vec<Vec<u8>> = calls.map(|call| call.to_bytes()).collect();
    assert!(!calls.is_empty());
    calls.into_iter().chain([b"{}".to_vec()]).collect()
}

/// A tool is refused with places in it, or it can be registered or is refused as one that cannot.
pub fn tool(data: &[u8]) -> u64 {
    match Tool::from_json(data) {
        Ok(tool) => {
            let registered = Registry::new().register(tool);
            outcome(&[true, registered.is_ok()])
        }
        Err(faults) => {
            all_told(&faults);
            0x1000
                | faults.first().map_or(0, |fault| fault.what().len() as u64) << 4
                | faults.len().min(15) as u64
        }
    }
}

pub(crate) fn tool_seeds() -> Vec<Vec<u8>> {
    let least = r#"{"name":"a","version":"1.0.0","description":"x","input":{},"output":true,"effects":["pure"],"category":"c"}"#;
    vec![TOOL.as_bytes().to_vec(), least.into(), least.replace("[\"pure\"]", "[]").into()]
}

/// A schema and a document, one on each line: both are refused, or the schema says something of it.
pub fn schema(data: &[u8]) -> u64 {
    let mut lines = data.splitn(2, |byte| *byte == b'\n');
    let mut next = || json::parse(lines.next().unwrap_or_default(), &Bounds::TOOL);
    let (Ok(source), value) = (next(), next()) else { return 1 };
    let schema = match Schema::new(&source) {
        Ok(schema) => schema,
        Err(fault) => {
            all_told(std::slice::from_ref(&fault));
            return 0x1000 | fault.what().len() as u64;
        }
    };
    let as_arguments = Schema::of_arguments(&source).is_ok();
    let Ok(mut value) = value else { return outcome(&[true, as_arguments]) };
    let validated = schema.validate(&value);
    if let Err(faults) = &validated {
        all_told(faults);
    }
    let marked = schema.marks(&value).is_ok_and(|marks| !marks.is_empty());
    let before = value.clone();
    let filled = schema.fill(&mut value).is_ok() && value != before;
    outcome(&[true, as_arguments, true, validated.is_ok(), marked, filled])
}

pub(crate) fn schema_seeds() -> Vec<Vec<u8>> {
    let words = [
        "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"string\",\"x-hotcell\":\"path\"}},\"required\":[\"a\"]}\n{\"a\":\"x\"}",
        "{\"$ref\":\"#/$defs/a\",\"$defs\":{\"a\":{\"anyOf\":[{\"$ref\":\"#/$defs/a\"},{\"type\":\"null\"}]}}}\nnull",
        "{\"properties\":{\"a\":{\"default\":1,\"minimum\":0.5}},\"additionalProperties\":false}\n{}",
        "{\"pattern\":\"^(a+)+$\",\"maxLength\":10,\"enum\":[\"a\",1]}\n\"aaaa\"",
        "{\"items\":{\"type\":\"integer\"},\"prefixItems\":[true],\"contains\":{\"const\":2},\"uniqueItems\":true}\n[1,2]",
        "true\nfalse",
    ];
    words.map(|word| word.as_bytes().to_vec()).to_vec()
}

/// Every line that is not blank is one job, with its number; no id is there twice.
pub fn batch_lines(data: &[u8]) -> u64 {
    let mut ids = HashSet::new();
    let (mut good, mut bad, mut last) = (0_u64, 0_u64, 0);
    for task in Jobs::new(data, Some(BatchName::new("fuzz"))) {
        let task = task.expect("bytes can be read");
        assert!(task.line > last);
        last = task.line;
        match &task.ask {
            Ok(_) => good += 1,
            Err(_) => bad += 1,
        }
        if let (JobId::Given(id), true) = (&task.id, task.ask.is_ok()) {
            assert!(ids.insert(id.clone()), "{id:?} is there twice");
        }
    }
    assert_eq!(Jobs::new(data, None).count() as u64, good + bad);
    good.min(7) << 8 | bad.min(7) << 4 | u64::from(!ids.is_empty())
}

pub(crate) fn batch_seeds() -> Vec<Vec<u8>> {
    let one = r#"{"id":"a","run":{"language":"python","code":"print(1)"}}"#;
    let two = r#"{"run":{"command":["true"],"limits":{"timeout":"1s"}},"manner":{"priority":3}}"#;
    [format!("{one}\n{two}\n"), format!("\n {one}\r\n{one}\n[]"), String::new()]
        .map(String::into_bytes)
        .to_vec()
}

const TOOL: &str = r#"{"name":"fs.write","version":"1.0.0","title":"Write","description":"Writes a file.","input":{"type":"object","properties":{"path":{"type":"string","x-hotcell":"path"},"size":{"type":"integer"},"text":{"type":"string"},"open":{"type":"object"}},"required":["path"]},"output":true,"effects":["write"],"category":"files","tags":["a"],"limits":{"timeout":"30s"},"examples":[{"input":{"path":"a"},"output":1}]}"#;

fn caller() -> Caller {
    Caller::local(Name::LOCAL, Door::Cli)
}

fn registry() -> &'static Registry {
    static REGISTRY: OnceLock<Registry> = OnceLock::new();
    REGISTRY.get_or_init(|| {
        let registry = Registry::new();
        let plain = TOOL.replace(r#","examples":[{"input":{"path":"a"},"output":1}]"#, "");
        let plain = plain.replace(r#","limits":{"timeout":"30s"}"#, "");
        registry.register(Tool::from_json(plain.as_bytes()).expect("a tool")).expect("a tool");
        registry
    })
}

#[test]
fn arguments_as_bytes_and_as_a_value_are_the_same() {
    let bytes = br#"{"path":"a","size":1.0}"#;
    let value = json::parse(bytes, &Bounds::CALL).unwrap();
    use hotcell_request::Arguments;

    let calls = [Arguments::Bytes(bytes.to_vec()), Arguments::Value(value)].map(|arguments| {
        let request = Request::new("fs.write".parse().unwrap(), arguments);
        Call::new(request, caller(), CallId::new(2, [0; 10]), registry()).unwrap().to_bytes()
    });
    assert_eq!(calls[0], calls[1]);
}

#[test]
fn the_seeds_get_as_far_as_they_can() {
    let tools: Vec<bool> = tool_seeds().iter().map(|seed| Tool::from_json(seed).is_ok()).collect();
    assert_eq!(tools, [true, true, false], "{:?}", Tool::from_json(TOOL.as_bytes()));
    let requests: Vec<bool> =
        request_seeds().iter().map(|seed| Request::from_json(seed).is_ok()).collect();
    assert_eq!(requests, [true, true, false, false]);
    assert_eq!(call_seeds().len(), 3);
    let jobs = |seed: &Vec<u8>| {
        let jobs = Jobs::new(seed.as_slice(), None);
        jobs.map(|task| task.unwrap().ask.is_ok()).collect::<Vec<_>>()
    };
    let jobs: Vec<_> = batch_seeds().iter().map(jobs).collect();
    assert_eq!(jobs, [vec![true, true], vec![true, false, false], vec![]]);
    let schemas = schema_seeds();
    let source = |seed: &Vec<u8>| {
        let line = seed.split(|byte| *byte == b'\n').next().unwrap().to_vec();
        Schema::new(&json::parse(&line, &Bounds::TOOL).unwrap()).is_ok()
    };
    assert!(schemas.iter().filter(|seed| source(seed)).count() >= 3, "schemas");
}
