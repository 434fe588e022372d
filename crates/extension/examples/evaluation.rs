//! How long an evaluation takes, beside a question over bare pipes to a process without a sandbox.
//!
//! `cargo run --release -p hotcell-extension --example evaluation`

use std::error::Error;
use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use hotcell_extension::{CallView, Extension, FactsView, Source};
use hotcell_sandbox::{Sandbox, Settings};
use hotcell_types::Level;
use serde_json::json;

const ROUNDS: usize = 300;
/// Between questions, as calls come.
const PAUSE: Duration = Duration::from_millis(10);

const RULES: &str = "
interface Call { operation: string; path: string | null; tags: string[] }
export default function source(call: Call) {
    if (call.operation !== 'fs.write' || !/^src\\//.test(call.path ?? '')) return { decision: 'pass' };
    return { decision: 'allow', reason: 'source files belong to the agent' };
}
export function agents(call: Call) {
    return call.tags.includes('agent') ? { decision: 'pass' } : { decision: 'deny', reason: 'agents only' };
}";

fn main() -> Result<(), Box<dyn Error>> {
    let home = std::env::temp_dir();
    let sandbox = Arc::new(Sandbox::open(&Settings { minimum: Level::LandlockOnly, home })?);
    let begun = Instant::now();
    let sources = [Source { name: "rules.ts".into(), text: RULES.into() }];
    let extension = Extension::start(&sources, move |job| sandbox.start(job))?;
    println!("start, with the first launcher: {:?}", begun.elapsed());
    let args = json!({ "path": "src/a.rs", "text": "hello" });
    let tags = ["agent".to_owned()];
    let call = CallView {
        operation: "fs.write",
        tool: "fs.write",
        args: &args,
        path: Some("src/a.rs"),
        host: None,
        method: None,
        tenant: "local",
        subject: "me",
        door: "cli",
        tags: &tags,
    };
    let facts = FactsView { now: 0, state: None, mode: None };
    let first = Instant::now();
    extension.evaluate(&call, &facts)?;
    println!("the first evaluation: {:?}", first.elapsed());
    let mut evaluate = || {
        extension.evaluate(&call, &facts)?;
        Ok(())
    };
    measure("evaluation, one each 10 ms", PAUSE, &mut evaluate)?;
    let all = Instant::now();
    measure("evaluation, one after the other", Duration::ZERO, &mut evaluate)?;
    println!("in all: {:?} for {ROUNDS}", all.elapsed());

    let mut cat = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let (mut to, mut from) = (cat.stdin.take().ok_or("stdin")?, cat.stdout.take().ok_or("stdout")?);
    let question = [b'x'; 300];
    let mut answer = [0; 300];
    measure("bare pipes, one each 10 ms", PAUSE, || {
        to.write_all(&question)?;
        from.read_exact(&mut answer)?;
        Ok(())
    })?;
    drop(to);
    cat.wait()?;
    Ok(())
}

fn measure(
    name: &str,
    pause: Duration,
    mut act: impl FnMut() -> Result<(), Box<dyn Error>>,
) -> Result<(), Box<dyn Error>> {
    let mut times = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        thread::sleep(pause);
        let begun = Instant::now();
        act()?;
        times.push(begun.elapsed());
    }
    times.sort_unstable();
    let at = |part: usize| times.get(ROUNDS * part / 1000).copied().unwrap_or_default();
    println!("{name}: median {:?}, 99 % {:?}, most {:?}", at(500), at(990), at(999));
    Ok(())
}
