//! What the tools cost a process: from nothing to the first call, to a list of all, and each call after.
//! `cargo run --release -p hotcell-tools --example tools_speed`

use std::error::Error;
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hotcell_request::{Arguments, Call, Later, Registered, Registry, Request};
use hotcell_tools::built_in;
use hotcell_types::{CallId, Caller, Door};
use serde_json::{Value, json};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// So many times, to tell the time of one.
const TIMES: u32 = 10_000;

fn main() -> Result<()> {
    // The first things first: what a process does once is paid for once.
    let args = json!({"language": "python", "code": "print(6 * 7)"});
    let begun = Instant::now();
    let registry = registry()?;
    say("a registry of all built-in tools", begun.elapsed());
    let made = call(&registry, "code_execute", &args)?;
    say("and the first call of code_execute", begun.elapsed());
    black_box(made.digest());
    say("and the digest it is approved by", begun.elapsed());
    let result = json!({"status": "success", "stdout": "42\n", "stderr": "", "truncated": false,
        "artifacts": [], "exit_code": 0});
    made.tool().output().validate(&result).map_err(|faults| format!("{faults:?}"))?;
    say("and its result, checked", begun.elapsed());

    let begun = Instant::now();
    let listed = registry.tools().list(None, None).len();
    say(&format!("a list of all {listed}"), begun.elapsed());
    let begun = Instant::now();
    registry.tools().search("read a file", listed);
    say("a search", begun.elapsed());

    for (name, args) in [
        ("code_execute", args),
        ("add", json!({"a": 1, "b": 2})),
        ("fs.read", json!({"path": "a/b.txt"})),
    ] {
        let begun = Instant::now();
        for _ in 0..TIMES {
            black_box(call(&registry, name, &args)?);
        }
        say(&format!("each further call of {name}"), begun.elapsed() / TIMES);
    }

    let begun = Instant::now();
    let mut tools = built_in().into_iter().map(|tool| tool.tool());
    Registered::new(tools.next().ok_or("there are no tools")??)?;
    say("a tool from outside, checked and compiled: the first", begun.elapsed());
    let (begun, count) = (Instant::now(), tools.len());
    for tool in tools {
        Registered::new(tool?)?;
    }
    say("each of the others", begun.elapsed() / u32::try_from(count)?);
    Ok(())
}

fn registry() -> Result<Registry> {
    let mut all = Vec::new();
    for tool in built_in().into_iter().map(Arc::new) {
        all.push(Later::new(&tool.spec(), move || tool.tool())?);
    }
    Ok(Registry::of(all)?)
}

fn call(registry: &Registry, name: &str, args: &Value) -> Result<Call> {
    let request = Request::new(name.parse()?, Arguments::Value(args.clone()));
    let caller = Caller::local("alice".parse()?, Door::Library);
    Ok(Call::new(request, caller, CallId::new(0, [0; 10]), registry)?)
}

fn say(what: &str, time: Duration) {
    println!("{what:<56} {time:?}");
}
