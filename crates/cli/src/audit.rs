//! `hotcell audit`: what was recorded, and whether that is still what is there.

use std::fs::OpenOptions;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use hotcell_engine::artifacts::{Checked, verify_artifacts};
use hotcell_engine::{Anchor, Answer, Ask};
use hotcell_record::{
    Event, Fault, Filter, From, Kind, Standing, Verdict, export_watched, verify_watched,
};
use hotcell_sandbox::cause;
use hotcell_types::Name;

use crate::print::{self, harmless};
use crate::problem::{self, Problem};
use crate::progress::{self, Progress};
use crate::{exit, home};

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Lists events, the oldest first
    Log(LogArgs),
    /// Checks the whole record: every event, the chain, the signed checkpoints outside, and the artifacts
    ///
    /// Exits with 0 if it is sound, 122 if something is missing that would prove it, 120 if it is broken.
    Verify {
        /// Checkpoints to compare with, in place of those where the setting `record.anchor` has them put: the
        /// anchor.log of another copy, or lines of the system's log
        #[arg(long, value_name = "FILE")]
        anchor: Option<PathBuf>,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
    /// Writes the record as JSON Lines, for `tools/verify.py` or anybody who reads docs/record-format.md
    Export {
        /// A file that is not there yet; without it, standard output
        file: Option<PathBuf>,
    },
}

#[derive(Debug, clap::Args)]
pub(crate) struct LogArgs {
    /// Events after this number [default: the newest]
    #[arg(long, value_name = "SEQ")]
    after: Option<u64>,
    /// Most events
    #[arg(long, value_name = "N", default_value_t = 100)]
    limit: usize,
    /// Of this tool only: `name@version`
    #[arg(long)]
    tool: Option<String>,
    /// Print one JSON document for each
    #[arg(long)]
    json: bool,
}

pub(crate) fn main(command: Command) -> u8 {
    let (done, json) = match command {
        Command::Log(args) => {
            let json = args.json;
            (log(args), json)
        }
        Command::Verify { anchor, json } => (verify(anchor, json), json),
        Command::Export { file } => (export(file), false),
    };
    done.unwrap_or_else(|problem| problem::report(&problem, json))
}

fn log(args: LogArgs) -> Result<u8, Problem> {
    let filter = Filter {
        after: args.after.unwrap_or(0),
        limit: args.limit,
        last: args.after.is_none(),
        tool: args.tool,
        ..Filter::of(Name::LOCAL)
    };
    let Answer::Events(events) = home::ask(Ask::Events(filter))? else { return Err(no_answer()) };
    let mut text = String::new();
    for event in &events {
        text.push_str(&match args.json {
            true => print::document(&hotcell_api::Event::from(event)),
            false => event_line(event),
        });
    }
    Ok(print::data(&text))
}

pub(crate) fn event_line(event: &Event) -> String {
    let or_dash = |text: Option<String>| text.map_or("-".to_owned(), |text| harmless(&text));
    // Who agreed, and to what, is nowhere else in it.
    let told = event.reason.as_ref().filter(|_| event.kind == Kind::Review);
    let told = told.map(|reason| format!("  {}", harmless(reason))).unwrap_or_default();
    format!(
        "{:>6}  {}  {:<9} {:<8} {:<22} {:<7} {}{told}\n",
        event.seq,
        home::moment(event.time),
        event.kind.name(),
        or_dash(event.decision.map(|decision| decision.name().to_owned())),
        or_dash(event.tool.clone().or_else(|| event.operation.clone())),
        or_dash(event.status.map(|status| status.name().to_owned())),
        or_dash(event.call.map(|call| call.to_string())),
    )
}

fn verify(anchor: Option<PathBuf>, json: bool) -> Result<u8, Problem> {
    // From its files alone: a record that cannot be opened any more is one to be verified.
    let (database, sink) = home::database_and_anchor()?;
    let mut verdict = match anchor {
        Some(anchor) => verified(&database, Some(&anchor)),
        None => verified_with(&database, &sink),
    };
    let artifacts =
        progress::while_doing("checking artifacts", || also_artifacts(&database, &mut verdict));
    let code = match verdict.standing {
        Standing::Sound => 0,
        Standing::Unproven => exit::REFUSED,
        Standing::Broken => exit::ERROR,
    };
    let text = if json {
        let fault = verdict.fault.as_ref().map(ToString::to_string);
        let document = serde_json::json!({
            "version": 1, "sound": code == 0, "events": verdict.events, "fault": fault,
            "covered": verdict.covered, "pending": verdict.pending, "checked": verdict.checked,
            "missing": verdict.missing, "cannot_be_found": verdict.cannot, "artifacts": artifacts,
        });
        format!("{document}\n")
    } else {
        verdict.to_string()
    };
    Ok(print::data_and(&text, code))
}

/// The record as it is on the disk, from its first event on.
fn verified(database: &Path, anchor: Option<&Path>) -> Verdict {
    let line = Progress::start("checking events");
    verify_watched(database, anchor, From::Start, &mut |done, all| line.at(done, all))
}

/// The same, against the checkpoints that went where the configuration says.
pub(crate) fn verified_with(database: &Path, sink: &Anchor) -> Verdict {
    let home = database.parent().unwrap_or(database);
    let mut verdict = verified(database, sink.anchor(home).as_deref());
    if matches!(sink, Anchor::Syslog(_)) {
        let how =
            "the system's log: its lines as a file, with `hotcell audit verify --anchor FILE`";
        verdict.missing.push(how.into());
    }
    verdict
}

/// What the chain vouches for in other tables is a part of it.
fn also_artifacts(database: &Path, verdict: &mut Verdict) -> Option<Checked> {
    let checked = match verify_artifacts(database.parent().unwrap_or(database)) {
        Ok(checked) => checked,
        // A record that cannot be read has been told of.
        Err(_) if verdict.standing == Standing::Broken => return None,
        Err(problem) => {
            verdict.standing = Standing::Unproven;
            verdict.missing.push(format!("the artifacts: {}", problem.why));
            return None;
        }
    };
    let Checked { artifacts, contents, tokens, keys, secrets, faults, .. } = checked;
    verdict.checked.push(format!(
        "{artifacts} artifacts, {contents} contents and {tokens} tokens against what the chain says of them"
    ));
    if keys > 0 {
        verdict.checked.push(format!("{keys} API keys against what the chain says of them"));
    }
    if secrets > 0 {
        verdict.checked.push(format!("{secrets} secrets against what the chain says of them"));
    }
    if let Some(why) = checked.told.first().cloned() {
        verdict.standing = Standing::Broken;
        let what = format!("artifacts, tokens, keys and secrets ({faults} faults)");
        verdict.fault.get_or_insert(Fault { seq: None, what, why });
    }
    Some(checked)
}

fn export(file: Option<PathBuf>) -> Result<u8, Problem> {
    let database = home::database()?;
    let not_written =
        |e: &io::Error| Problem::error("the export could not be written").why(cause(e));
    let mut out: Box<dyn Write> = match &file {
        None => Box::new(io::stdout().lock()),
        Some(path) => {
            let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
            Box::new(BufWriter::new(made.map_err(|e| not_written(&e))?))
        }
    };
    let line = Progress::start("writing events");
    let exported = export_watched(&database, &mut out, &mut |done, all| line.at(done, all));
    drop(line);
    let exported = exported.map_err(|error| {
        Problem::error("the export could not be written").why(error.to_string())
    })?;
    out.flush().map_err(|e| not_written(&e))?;
    if let Some(path) = file {
        let events = exported.events;
        print::to_people(&format!("hotcell: {events} events written to `{}`\n", path.display()));
    }
    Ok(0)
}

pub(crate) fn no_answer() -> Problem {
    Problem::error("the record gave no answer")
}
