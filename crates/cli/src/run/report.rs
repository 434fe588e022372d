//! What is said about a run: the JSON document (docs/result.md), or a few lines on stderr.

use std::io::{self, IsTerminal};

use hotcell_api::Called;
use hotcell_types::{
    Artifact, BlockedSyscall, CallId, Exit, LayerReport, Level, Limit, Limits, Outcome, Output,
    Refusal, Skipped, Start, Status, Timing, Traffic, Usage,
};
use serde::Serialize;

use crate::print::{harmless, harmless_json};
use crate::problem::Problem;

/// Raised when a field changes its meaning or goes away; new fields do not raise it.
const VERSION: u32 = 1;

/// The document of a run that took place. [`NothingRun`] begins with the same three fields.
#[derive(Serialize)]
struct Document<'a> {
    version: u32,
    /// The call, as `hotcell runs` lists it.
    id: CallId,
    status: Status,
    error: Option<OwnError<'a>>,
    exit: Option<Exit>,
    limit: Option<Limit>,
    limits_hit: &'a [Limit],
    stdout: &'a Output,
    stderr: &'a Output,
    artifacts: &'a [Artifact],
    skipped: &'a [Skipped],
    usage: &'a Usage,
    blocked_syscalls: &'a [BlockedSyscall],
    level: Level,
    layers: &'a [LayerReport],
    timings: &'a [Timing],
    network: Option<&'a Traffic>,
    interpreter: Option<&'a str>,
    start: Start,
}

/// In the form of every other error.
#[derive(Serialize)]
struct OwnError<'a> {
    what: &'static str,
    why: &'a str,
    fix: Option<&'static str>,
}

#[derive(Serialize)]
struct NothingRun<'a> {
    version: u32,
    status: &'static str,
    error: &'a Problem,
}

/// The document of a run that waits for somebody to agree, or that somebody else had carried out.
#[derive(Serialize)]
struct NotHere<'a> {
    version: u32,
    id: CallId,
    status: Status,
    error: Option<Problem>,
    /// The item of the queue.
    review: Option<String>,
    /// What came of it elsewhere, as the tool `run` says it.
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<&'a serde_json::Value>,
}

pub(super) fn not_here(reply: &Called) -> String {
    line(&NotHere {
        version: VERSION,
        id: reply.id,
        status: reply.status,
        error: reply.problems.first().map(|problem| problem.clone().into()),
        review: reply.review.clone(),
        value: reply.value.as_ref(),
    })
}

pub(super) fn run_document(id: CallId, outcome: &Outcome) -> String {
    // Each field by name, so that a new one cannot be forgotten here.
    let Outcome {
        status,
        exit,
        limit,
        limits_hit,
        stdout,
        stderr,
        artifacts,
        skipped,
        usage,
        blocked_syscalls,
        level,
        layers,
        timings,
        network,
        interpreter,
        start,
        error,
    } = outcome;
    let error = error.as_deref();
    line(&Document {
        version: VERSION,
        id,
        status: *status,
        error: error.map(|why| OwnError { what: "hotcell itself failed", why, fix: None }),
        exit: *exit,
        limit: *limit,
        limits_hit,
        stdout,
        stderr,
        artifacts,
        skipped,
        usage,
        blocked_syscalls,
        level: *level,
        layers,
        timings,
        network: network.as_ref(),
        interpreter: interpreter.as_deref(),
        start: *start,
    })
}

pub(crate) fn problem_document(problem: &Problem) -> String {
    line(&NothingRun { version: VERSION, status: problem.status(), error: problem })
}

/// One line, so that many documents make a stream.
fn line(document: &impl Serialize) -> String {
    match serde_json::to_string(document) {
        Ok(json) => harmless_json(json) + "\n",
        // Not reachable with these types; still a document if it were.
        Err(_) => "{\"version\":1,\"status\":\"error\"}\n".into(),
    }
}

/// What a person must know and the program's own output does not say.
pub(super) fn remarks(outcome: &Outcome, limits: &Limits) -> String {
    let mut text = String::new();
    for (name, output) in [("stdout", &outcome.stdout), ("stderr", &outcome.stderr)] {
        if output.truncated {
            let kept = output.bytes.len() as u64;
            text.push_str(&format!(
                "hotcell: {name} cut at {}; {} dropped\n",
                limits.output,
                size(output.total.saturating_sub(kept))
            ));
        }
    }
    if let Some(limit) = outcome.limit {
        text.push_str(&format!(
            "hotcell: ended by the limit on {limit}{}; {} raises it\n",
            value(limit, limits),
            limit.flag()
        ));
    }
    if outcome.status == Status::Killed && outcome.exit.is_none() {
        text.push_str(
            "hotcell: the run was killed from outside; how its program ended is not known\n",
        );
    }
    if let Some(traffic) = &outcome.network {
        text.push_str(&not_reached(traffic));
    }
    if let Some(why) = &outcome.error {
        text.push_str(
            &Problem::error("hotcell itself failed").why(why).text(crate::print::colour()),
        );
    }
    text
}

/// What the run wanted to reach and did not, the first few by host, each with what would allow it.
fn not_reached(traffic: &Traffic) -> String {
    const TOLD: usize = 3;
    let mut text = String::new();
    for refusal in traffic.refusals.iter().take(TOLD) {
        let Refusal { host, why, fix } = refusal;
        text.push_str(&format!(
            "hotcell: `{}` was not reached\n  why: {}\n",
            harmless(host),
            harmless(why)
        ));
        let fix: Vec<String> = fix.lines().map(harmless).collect();
        text.push_str(&format!("  fix: {}\n", fix.join("\n       ")));
    }
    if traffic.lost > 0 {
        let times = traffic.lost;
        text.push_str(&format!("hotcell: the proxy of the run was lost, {times} times\n"));
    }
    match traffic.refusals.len().checked_sub(TOLD) {
        Some(more) if more > 0 => {
            text.push_str(&format!("hotcell: {more} more were not reached; --json lists them\n"));
        }
        _ if traffic.refusals.is_empty() && traffic.refused > 0 => text.push_str(&format!(
            "hotcell: the proxy refused {} requests of the run as malformed\n",
            traffic.refused
        )),
        _ => {}
    }
    text
}

/// Whether what the program printed leaves the cursor in the middle of a line of stderr, or of a
/// terminal that both streams share.
pub(super) fn ends_within_a_line(outcome: &Outcome) -> bool {
    let open = |bytes: &[u8]| bytes.last().is_some_and(|&last| last != b'\n');
    open(&outcome.stderr.bytes) || (open(&outcome.stdout.bytes) && io::stdout().is_terminal())
}

/// What was left behind in the working directory, the first few by name.
pub(super) fn not_taken(skipped: &[Skipped]) -> String {
    const NAMED: usize = 5;
    let mut text = String::new();
    for item in skipped.iter().take(NAMED) {
        let path = harmless(&item.path);
        text.push_str(&format!("hotcell: `{path}` was not taken: {}\n", harmless(&item.why)));
    }
    if let Some(more) = skipped.len().checked_sub(NAMED).filter(|&more| more > 0) {
        text.push_str(&format!("hotcell: {more} more were not taken; --json lists them\n"));
    }
    text
}

fn value(limit: Limit, limits: &Limits) -> String {
    match limit {
        Limit::Memory => format!(" ({})", limits.memory),
        Limit::Pids => format!(" ({})", limits.pids),
        Limit::Timeout => format!(" ({})", limits.timeout),
        Limit::CpuTime => limits.cpu_time.map_or_else(String::new, |span| format!(" ({span})")),
        Limit::Disk => format!(" ({})", limits.disk),
        Limit::FileSize => format!(" ({})", limits.file_size.unwrap_or(limits.disk)),
        Limit::Files => format!(" ({})", limits.files),
        Limit::Output => format!(" ({})", limits.output),
    }
}

/// An amount that was measured, with one decimal; limits are shown exactly.
pub(crate) fn size(bytes: u64) -> String {
    for (shift, unit) in [(30, "GiB"), (20, "MiB"), (10, "KiB")] {
        if bytes >> shift > 0 {
            let tenths = (u128::from(bytes) * 10) >> shift;
            return format!("{}.{}{unit}", tenths / 10, tenths % 10);
        }
    }
    format!("{bytes} bytes")
}

#[cfg(test)]
pub(crate) mod tests {
    use hotcell_types::{Bytes, Layer, Span, Stage, Template};

    use super::*;

    pub(crate) fn outcome(status: Status) -> Outcome {
        Outcome {
            status,
            exit: None,
            limit: None,
            limits_hit: vec![],
            stdout: Output::default(),
            stderr: Output::default(),
            artifacts: vec![],
            skipped: vec![],
            usage: Usage::default(),
            blocked_syscalls: vec![],
            level: Level::Full,
            layers: vec![],
            timings: vec![],
            network: None,
            interpreter: None,
            start: Start::New,
            error: None,
        }
    }

    fn limits() -> Limits {
        Template::DEFAULT.limits
    }

    #[test]
    fn nothing_is_said_about_an_ordinary_end() {
        assert_eq!(remarks(&outcome(Status::Success), &limits()), "");
        assert_eq!(remarks(&outcome(Status::Failure), &limits()), "");
    }

    #[test]
    fn the_limit_that_ended_a_run_is_named_with_its_value_and_flag() {
        let mut limits = limits();
        limits.cpu_time = Some(Span::seconds(2));
        limits.file_size = Some(Bytes::mib(1));
        for (limit, expected) in [
            (Limit::Memory, "hotcell: ended by the limit on memory (1GiB); --mem raises it\n"),
            (
                Limit::Timeout,
                "hotcell: ended by the limit on wall time (5m); --timeout raises it\n",
            ),
            (
                Limit::CpuTime,
                "hotcell: ended by the limit on processor time (2s); --cpu-time raises it\n",
            ),
            (Limit::Disk, "hotcell: ended by the limit on disk (512MiB); --disk raises it\n"),
            (
                Limit::FileSize,
                "hotcell: ended by the limit on file size (1MiB); `max_file_size` in the policy raises it\n",
            ),
        ] {
            let mut outcome = outcome(Status::Limit);
            outcome.limit = Some(limit);
            assert_eq!(remarks(&outcome, &limits), expected);
        }
    }

    #[test]
    fn what_was_not_reached_is_named_with_the_rule_and_bounded() {
        let refusal = |n: usize| Refusal {
            host: format!("h{n}.test"),
            why: "no rule allows it\u{1b}[2J".into(),
            fix: "a policy with this:\n- a rule".into(),
        };
        let mut outcome = outcome(Status::Success);
        outcome.network = Some(Traffic { refused: 1, ..Traffic::default() });
        let unread = "hotcell: the proxy refused 1 requests of the run as malformed\n";
        assert_eq!(remarks(&outcome, &limits()), unread);
        let traffic = Traffic { refused: 9, refusals: vec![refusal(0)], ..Traffic::default() };
        outcome.network = Some(traffic);
        let text = remarks(&outcome, &limits());
        assert!(text.starts_with("hotcell: `h0.test` was not reached\n  why: no rule allows it"));
        assert!(text.ends_with("\n  fix: a policy with this:\n       - a rule\n"), "{text}");
        assert!(!text.contains('\u{1b}'), "{text:?}");
        let refusals = (0..5).map(refusal).collect();
        outcome.network = Some(Traffic { refused: 9, refusals, ..Traffic::default() });
        let text = remarks(&outcome, &limits());
        assert_eq!(text.matches("was not reached").count(), 3);
        assert!(text.ends_with("hotcell: 2 more were not reached; --json lists them\n"), "{text}");
    }

    #[test]
    fn a_cut_stream_is_marked() {
        let mut outcome = outcome(Status::Success);
        outcome.stdout = Output { bytes: vec![b'x'; 1 << 20], total: 13_946_060, truncated: true };
        outcome.stderr = Output { bytes: vec![b'x'; 10], total: 10, truncated: false };
        assert_eq!(remarks(&outcome, &limits()), "hotcell: stdout cut at 1MiB; 12.2MiB dropped\n");
    }

    #[test]
    fn sizes_are_readable_up_to_the_largest() {
        for (bytes, text) in [
            (0, "0 bytes"),
            (1023, "1023 bytes"),
            (1024, "1.0KiB"),
            (1536, "1.5KiB"),
            (12_897_484, "12.2MiB"),
            (u64::MAX, "17179869183.9GiB"),
        ] {
            assert_eq!(size(bytes), text);
        }
    }

    /// The example in docs/result.md is this outcome.
    #[test]
    fn the_documented_example_is_what_is_printed() {
        let mut outcome = outcome(Status::Timeout);
        outcome.exit = Some(Exit::Signal(9));
        outcome.limit = Some(Limit::Timeout);
        outcome.limits_hit = vec![Limit::Timeout];
        outcome.stdout = Output { bytes: b"working\n".to_vec(), total: 8, truncated: false };
        outcome.artifacts = vec![Artifact {
            path: "plot.png".into(),
            bytes: 20_631,
            sha256: "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08".into(),
        }];
        outcome.skipped = vec![Skipped { path: "link".into(), why: "not a regular file".into() }];
        outcome.usage = Usage {
            wall_ms: 2_004,
            cpu_ms: Some(31),
            peak_memory_bytes: Some(9_646_080),
            peak_pids: Some(1),
            written_bytes: Some(20_639),
            oom_kills: Some(0),
        };
        outcome.blocked_syscalls =
            vec![BlockedSyscall { number: 101, name: Some("ptrace".into()), count: 1 }];
        outcome.layers =
            vec![LayerReport { layer: Layer::Seccomp, active: true, seen: "mode 2".into() }];
        outcome.timings = vec![
            Timing { stage: Stage::Prepare, micros: 310 },
            Timing { stage: Stage::Execute, micros: 2_000_412 },
        ];
        outcome.interpreter = Some("/usr/bin/python3.11".into());
        in_docs(&run_document("01M7H273SCYEAF25DWQ59F196X".parse().unwrap(), &outcome));
        in_docs(&problem_document(
            &Problem::not_found("there is no file `missing.py`").fix("check the spelling"),
        ));
    }

    /// Compares with the JSON blocks of docs/result.md, whatever their layout.
    fn in_docs(document: &str) {
        let docs = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/result.md");
        let docs = std::fs::read_to_string(docs).unwrap();
        let got: serde_json::Value = serde_json::from_str(document).unwrap();
        let found = docs
            .split("```json\n")
            .skip(1)
            .filter_map(|block| block.split("```").next())
            .any(|block| serde_json::from_str::<serde_json::Value>(block).unwrap() == got);
        assert!(found, "docs/result.md has no such example:\n{got:#}");
    }
}
