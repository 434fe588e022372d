//! What an outcome says besides its status: one bounded document, which is the output of its event. It is
//! always whole, so that it can be read back: of what does not fit, the digest and the size are in it.

use hotcell_request::canonical;
use hotcell_types::{
    BlockedSyscall, Exit, LayerReport, Level, Limit, Limits, Outcome, Output, Timing, Traffic,
    Usage, hex,
};
use serde::Serialize;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::path::Done;

/// Largest value that is recorded as it is, written as JSON.
pub const MOST_VALUE: usize = 32 * 1024;
/// Most refused system calls that are told one by one.
const MOST_BLOCKED: usize = 64;
/// Longest of each text, in characters.
const MOST_TEXT: usize = 1024;

/// Nothing, if nothing came of it.
pub(crate) fn document(done: &Done) -> Option<Value> {
    let mut document = serde_json::Map::new();
    if let Some(run) = &done.run {
        let told = serde_json::to_value(Run::of(run, done.limits)).ok()?;
        document.insert("run".into(), told);
    }
    if let Some(value) = &done.value {
        let bytes = canonical::bytes(value);
        let (key, value) = if bytes.len() <= MOST_VALUE {
            ("value", value.clone())
        } else {
            let sha256 = hex::text(&Sha256::digest(&bytes));
            ("value_known", json!({ "bytes": bytes.len(), "sha256": sha256 }))
        };
        document.insert(key.into(), value);
    }
    (!document.is_empty()).then_some(Value::Object(document))
}

/// A run, without what it printed and made: the ledger has that.
#[derive(Serialize)]
struct Run<'a> {
    exit: Option<Exit>,
    limit: Option<Limit>,
    limits_hit: &'a [Limit],
    limits: Option<Limits>,
    usage: &'a Usage,
    stdout: Printed,
    stderr: Printed,
    /// Files that were there and not taken.
    skipped: usize,
    blocked_syscalls: &'a [BlockedSyscall],
    level: Level,
    layers: &'a [LayerReport],
    timings: &'a [Timing],
    #[serde(skip_serializing_if = "Option::is_none")]
    network: Option<&'a Traffic>,
    interpreter: Option<String>,
    error: Option<String>,
}

#[derive(Serialize)]
struct Printed {
    bytes: u64,
    truncated: bool,
}

impl Run<'_> {
    fn of(run: &Outcome, limits: Option<Limits>) -> Run<'_> {
        let cut = |text: &Option<String>| -> Option<String> {
            text.as_ref().map(|text| text.chars().take(MOST_TEXT).collect())
        };
        Run {
            exit: run.exit,
            limit: run.limit,
            limits_hit: &run.limits_hit,
            limits,
            usage: &run.usage,
            stdout: Printed::of(&run.stdout),
            stderr: Printed::of(&run.stderr),
            skipped: run.skipped.len(),
            blocked_syscalls: run
                .blocked_syscalls
                .get(..MOST_BLOCKED)
                .unwrap_or(&run.blocked_syscalls),
            level: run.level,
            layers: &run.layers,
            timings: &run.timings,
            network: run.network.as_ref(),
            interpreter: cut(&run.interpreter),
            error: cut(&run.error),
        }
    }
}

impl Printed {
    fn of(output: &Output) -> Printed {
        Printed { bytes: output.total, truncated: output.truncated }
    }
}
