//! `hotcell runs`: the calls so far, and everything that is known of one.
//!
//! It is `runs show` and not `run show`, since what follows `run` is the name of a file, and any name can
//! be one. Who writes `run show ID` all the same is told so.

use std::fmt::Display;

use hotcell_engine::{Answer, Ask, Kept, Shown};
use hotcell_ledger::{Artifact, Role};
use hotcell_record::{Filter, Run};
use hotcell_types::{CallId, Name};
use serde_json::Value;

use crate::audit::{event_line, no_answer};
use crate::print::{self, harmless};
use crate::problem::{self, Problem};
use crate::run::report::size;
use crate::{artifact, home};

/// Longest line of arguments or of a value, in characters; `--json` has all of it.
const MOST_LINE: usize = 400;

/// Lists calls, with what became of them
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    list: ListArgs,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Shows everything that is known of a call
    ///
    /// What was asked for and decided, what it was held to and used, what it was given, printed and made,
    /// the calls before and after it, and every event about it.
    Show {
        /// A call, as `hotcell runs` lists it; without it, the newest
        #[arg(value_name = "ID")]
        call: Option<CallId>,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, clap::Args)]
struct ListArgs {
    /// Most calls: the newest, the last of them at the end
    #[arg(long, value_name = "N", default_value_t = 100)]
    limit: usize,
    /// Print one JSON document for each
    #[arg(long)]
    json: bool,
}

pub(crate) fn main(args: Args) -> u8 {
    let (done, json) = match args.command {
        Some(Command::Show { call, json }) => (show(call, json), json),
        None => (list(&args.list), args.list.json),
    };
    done.unwrap_or_else(|problem| problem::report(&problem, json))
}

fn list(args: &ListArgs) -> Result<u8, Problem> {
    let filter = Filter { limit: args.limit, last: true, ..Filter::of(Name::LOCAL) };
    let Answer::Runs(runs) = home::ask(Ask::Runs(filter))? else { return Err(no_answer()) };
    let text: String = runs.iter().map(|run| run_line(run, args.json)).collect();
    Ok(print::data(&text))
}

fn run_line(run: &Run, json: bool) -> String {
    let status = run.end.as_ref().and_then(|end| end.status).map(|status| status.name());
    let tool = run.intent.tool.as_deref().unwrap_or("-");
    let call = run.intent.call.map(|call| call.to_string()).unwrap_or_default();
    let nanos = run.end.as_ref().and_then(|end| end.duration_ns);
    if json {
        return print::document(&hotcell_api::Run::from(run));
    }
    format!(
        "{call}  {}  {:<22} {:<8} {}\n",
        home::moment(run.intent.time),
        harmless(tool),
        status.unwrap_or("running"),
        nanos.map_or("-".to_owned(), took),
    )
}

fn took(nanos: u64) -> String {
    format!("{:.1}ms", nanos as f64 / 1e6)
}

fn show(call: Option<CallId>, json: bool) -> Result<u8, Problem> {
    let engine = home::look()?;
    let call = home::or_newest(&engine, call)?;
    let shown = match engine.ask(&home::caller(), Ask::Show(call)) {
        Answer::Shown(shown) => shown,
        Answer::Failed(problem) => return Err(problem.into()),
        _ => return Err(no_answer()),
    };
    Ok(print::data(&match json {
        true => print::document(&hotcell_api::Call::from(&*shown)),
        false => page(&shown),
    }))
}

fn page(shown: &Shown) -> String {
    let Shown { begin, end, .. } = shown;
    let mut page = Page::default();
    page.line("call", shown.id);
    page.maybe("tool", begin.tool.as_ref());
    page.line("by", format!("{} through {}", begin.caller.subject, begin.caller.door));
    page.line("began", home::moment(begin.time));
    page.maybe("decision", begin.decision.map(|decision| decision.name()));
    page.maybe("rules", Some(begin.rules.join(", ")).filter(|rules| !rules.is_empty()));
    page.maybe("reason", begin.reason.as_ref().filter(|reason| !reason.is_empty()));
    for event in shown.reviews() {
        page.maybe("review", event.reason.as_ref());
    }
    page.line("status", shown.status().map_or("running", |status| status.name()));
    if let Some(end) = end.as_ref().filter(|end| end.seq != begin.seq) {
        page.maybe("why", end.reason.as_ref());
    }
    page.maybe("took", end.as_ref().and_then(|end| end.duration_ns).map(took));
    if let Some(run) = shown.result.value().and_then(|result| result.get("run")) {
        page.run(run);
    }
    page.kept("arguments", &shown.arguments);
    match &shown.result {
        Kept::Whole(result) => page.maybe("value", result.get("value").map(line)),
        other => page.kept("value", other),
    }
    for artifact in &shown.artifacts {
        page.artifact(artifact);
    }
    page.maybe("parent", begin.parent);
    for child in &shown.children {
        page.line("child", child);
    }
    page.text.push_str("events\n");
    for event in &shown.events {
        page.text.push_str(&event_line(event));
    }
    page.text
}

/// One thing per line: what it is, and what is known of it.
#[derive(Default)]
struct Page {
    text: String,
}

impl Page {
    fn line(&mut self, what: &str, known: impl Display) {
        self.text.push_str(&format!("{what:<11} {}\n", harmless(&known.to_string())));
    }

    fn maybe(&mut self, what: &str, known: Option<impl Display>) {
        if let Some(known) = known {
            self.line(what, known);
        }
    }

    fn kept(&mut self, what: &str, kept: &Kept) {
        match (kept.value(), kept.why_not()) {
            (Some(value), _) => self.line(what, line(value)),
            (None, Some(why)) => self.line(what, why),
            (None, None) => {}
        }
    }

    fn run(&mut self, run: &Value) {
        let text = |at: &str| run.get(at).and_then(Value::as_str);
        let list = |at: &str| run.get(at).and_then(Value::as_array).into_iter().flatten();
        let number = |at: &str| run.pointer(at).and_then(Value::as_u64);
        let exit = [("code", "exit"), ("signal", "signal")].into_iter().find_map(|(key, word)| {
            number(&format!("/exit/{key}")).map(|number| format!("{word} {number}"))
        });
        self.maybe("ended with", exit);
        self.maybe("ended by", text("limit").map(|limit| format!("the limit `{limit}`")));
        self.maybe("level", text("level"));
        self.maybe("interpreter", text("interpreter"));
        let used = [
            number("/usage/wall_ms").map(|ms| format!("{ms}ms")),
            number("/usage/cpu_ms").map(|ms| format!("{ms}ms of processors")),
            number("/usage/peak_memory_bytes").map(|most| format!("{} of memory", size(most))),
            number("/usage/peak_pids").map(|most| format!("{most} processes")),
            number("/usage/written_bytes").map(|most| format!("{} written", size(most))),
        ];
        self.line("used", used.into_iter().flatten().collect::<Vec<_>>().join(", "));
        let limits = run.get("limits").and_then(Value::as_object).into_iter().flatten();
        let limits = limits.filter(|(_, limit)| !limit.is_null());
        let limits: Vec<String> =
            limits.map(|(name, limit)| format!("{name} {}", limit_text(name, limit))).collect();
        self.maybe("limits", (!limits.is_empty()).then(|| limits.join(", ")));
        for call in list("blocked_syscalls") {
            let name = call.get("name").filter(|name| !name.is_null());
            let name = name.or(call.get("number")).map(plain).unwrap_or_default();
            let times = call.get("count").map(plain).unwrap_or_default();
            self.line("refused", format!("{name}, {times} times"));
        }
    }

    fn artifact(&mut self, artifact: &Artifact) {
        let what = match artifact.role {
            Role::Script | Role::Input => "given",
            Role::Stdout | Role::Stderr => "printed",
            _ => "made",
        };
        let (id, bytes) = (artifact.id, size(artifact.blob.size));
        self.line(what, format!("{id}  {bytes:>10}  {}", artifact::title(artifact)));
    }
}

/// Bytes and milliseconds, as people write them.
fn limit_text(name: &str, limit: &Value) -> String {
    match (name, limit.as_u64()) {
        ("memory" | "disk" | "output", Some(bytes)) => size(bytes),
        ("timeout" | "cpu_time", Some(ms)) => format!("{}s", ms as f64 / 1e3),
        _ => plain(limit),
    }
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// As JSON, on one line that people can look at.
fn line(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(MOST_LINE) {
        Some((end, _)) => {
            format!("{}… (--json has all of it)", text.get(..end).unwrap_or_default())
        }
        None => text,
    }
}
