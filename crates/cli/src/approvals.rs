//! `hotcell approvals`: what waits for somebody to agree, and what became of it.

use std::fmt::Display;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use hotcell_approver::ItemId;
use hotcell_engine::artifacts::{ArtifactAnswer, ArtifactAsk, Which};
use hotcell_engine::policy::{PolicyAnswer, PolicyAsk, Rules};
use hotcell_engine::{Answer, Ask, Engine, POLICY_FILE, QueueAnswer, QueueAsk, Queued};
use hotcell_ledger::{Artifact, Role};
use hotcell_review::{Item, Kind, MOST_PAGE, State};
use serde_json::Value;

use crate::kernel::Kernel;
use crate::policy::Effect;

use crate::print::{self, harmless};
use crate::problem::{self, Problem};
use crate::{home, policy, wait};

/// How often it is looked whether there is something new.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Most bytes of a script that are shown.
const MOST_SCRIPT: u64 = 256 * 1024;
/// Longest that a column is, in characters.
const MOST_WHAT: usize = 44;
const MOST_WHY: usize = 60;

/// Lists what waits for somebody to agree
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
    /// Lists what waits for somebody to agree
    Ls(ListArgs),
    /// Shows the exact call, who asked for it, the rules that asked, and what it would change
    Show {
        #[arg(value_name = "ID")]
        item: ItemId,
        #[command(flatten)]
        workspace: WorkspaceArgs,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
    /// Waits for the answer, has the call carried out if somebody agreed, and prints the result
    ///
    /// For whoever made the call; also after that process ended. Prints what `hotcell tool call` prints.
    Wait {
        #[arg(value_name = "ID")]
        item: ItemId,
        #[command(flatten)]
        workspace: WorkspaceArgs,
        /// Print the whole reply as one JSON document
        #[arg(long)]
        json: bool,
    },
    /// Takes back a call that waits, or that was approved and not carried out yet
    Cancel {
        #[arg(value_name = "ID")]
        item: ItemId,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, clap::Args)]
struct ListArgs {
    /// Also what was answered, is over or was taken back
    #[arg(long)]
    all: bool,
    /// Go on, and print new ones as they come, until Ctrl-C
    #[arg(long)]
    watch: bool,
    /// Print one JSON document; one for each item with --watch
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct WorkspaceArgs {
    /// The directory that the call is about
    #[arg(long = "workspace", value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
}

pub(crate) fn main(args: Args) -> u8 {
    let (done, json) = match args.command {
        None => (list(&args.list), args.list.json),
        Some(Command::Ls(list_args)) => (list(&list_args), list_args.json),
        Some(Command::Show { item, workspace, json }) => (show(item, workspace, json), json),
        Some(Command::Wait { item, workspace, json }) => (wait_for(item, workspace, json), json),
        Some(Command::Cancel { item, json }) => (cancel(item, json), json),
    };
    done.unwrap_or_else(|problem| problem::report(&problem, json))
}

fn list(args: &ListArgs) -> Result<u8, Problem> {
    let engine = home::look()?;
    let items = items(&engine, args.all)?;
    if !args.watch {
        let text = if args.json {
            print::document(&hotcell_api::Items::of(&items, None))
        } else {
            let rows: String = items.iter().map(|item| row(item, args.all)).collect();
            head(args.all) + &rows
        };
        return Ok(print::data(&text));
    }
    let mut last = 0;
    let mut code = if args.json { 0 } else { print::data(&head(args.all)) };
    let mut tell = |items: &[Item]| {
        for item in items.iter().filter(|item| item.seq > last) {
            let text = match args.json {
                true => document(item),
                false => row(item, args.all),
            };
            code = code.max(print::data(&text));
        }
        last = items.iter().map(|item| item.seq).fold(last, u64::max);
        if code == 0 { Ok(()) } else { Err(Problem::error("the output could not be written")) }
    };
    tell(&items)?;
    wait::until_interrupted(|| {
        thread::sleep(LOOK_EVERY);
        tell(&self::items(&engine, false)?)
    })
}

/// Those that wait, the oldest first; then all others, if they are wanted.
fn items(engine: &Engine, all: bool) -> Result<Vec<Item>, Problem> {
    let (mut items, mut after) = (Vec::new(), None);
    loop {
        let ask = Ask::Queue(QueueAsk::List { after, limit: MOST_PAGE });
        let QueueAnswer::Page(page) = asked(engine, ask)? else {
            return Err(Problem::error("the queue gave no answer"));
        };
        let is_wanted = |item: &Item| all || item.state == State::Waiting;
        let is_rest = page.items.iter().any(|item| !is_wanted(item));
        items.extend(page.items.into_iter().filter(is_wanted));
        after = page.next;
        if after.is_none() || is_rest {
            return Ok(items);
        }
    }
}

pub(crate) fn asked(engine: &Engine, ask: Ask<'_>) -> Result<QueueAnswer, Problem> {
    match engine.ask(&home::caller(), ask) {
        Answer::Queue(answer) => Ok(answer),
        Answer::Failed(problem) => Err(problem.into()),
        _ => Err(Problem::error("the queue gave no answer")),
    }
}

pub(crate) fn one(engine: &Engine, id: ItemId) -> Result<Queued, Problem> {
    match asked(engine, Ask::Queue(QueueAsk::Show(id)))? {
        QueueAnswer::Item(queued) => Ok(*queued),
        _ => Err(Problem::error("the queue gave no answer")),
    }
}

fn head(all: bool) -> String {
    let state = if all { format!("{:<12} ", "STATE") } else { String::new() };
    format!("{:<9} {state}{:<44} {:<12} {:<20} WHY\n", "ID", "WHAT", "WHO", "SINCE")
}

fn row(item: &Item, all: bool) -> String {
    let state = if all { format!("{:<12} ", item.state.name()) } else { String::new() };
    let id = item.id.to_string();
    let (what, who) = (cut(&what(item), MOST_WHAT), item.caller.subject.as_str());
    let (since, why) = (home::moment(item.asked), cut(&why(item), MOST_WHY));
    format!("{id:<9} {state}{what:<44} {who:<12} {since:<20} {why}\n")
}

/// The tool, and what it is about.
fn what(item: &Item) -> String {
    let tool = item.tool.split('@').next().unwrap_or_default();
    let shown: Value = serde_json::from_str(&item.shown).unwrap_or_default();
    let about = ["path", "command", "code", "url"].iter().find_map(|name| shown.get(name));
    let about = match about.unwrap_or(&shown) {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    harmless(&format!("{tool} {about}"))
}

fn why(item: &Item) -> String {
    match item.kind {
        Kind::Blocked => "no rule allows it".to_owned(),
        Kind::Review | Kind::Policy => {
            let reasons: Vec<&str> = item.rules.iter().map(|rule| rule.reason.as_str()).collect();
            harmless(&reasons.join("; "))
        }
    }
}

fn cut(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        None => text.to_owned(),
        Some(_) => text.chars().take(most.saturating_sub(1)).chain(['…']).collect(),
    }
}

/// One line for programs.
pub(crate) fn document(item: &Item) -> String {
    print::document(&hotcell_api::Item::of(item, None))
}

fn show(id: ItemId, workspace: WorkspaceArgs, json: bool) -> Result<u8, Problem> {
    let engine = home::look_with(workspace.dir)?;
    let queued = one(&engine, id)?;
    let text = match json {
        true => print::document(&hotcell_api::Item::of(&queued.item, Some(&queued))),
        false => {
            let proposed = proposed(&engine, &queued)?.map(|proposed| proposed.text);
            page(&engine, &queued) + &proposed.unwrap_or_default()
        }
    };
    Ok(print::data(&text))
}

/// Everything that somebody has to see before they answer. No byte of it can do anything to a terminal.
pub(crate) fn page(engine: &Engine, queued: &Queued) -> String {
    let item = &queued.item;
    let mut page = String::new();
    let mut line = |what: &str, known: &dyn Display| {
        page.push_str(&format!("{what:<10} {}\n", harmless(&known.to_string())));
    };
    line("item", &item.id);
    line("state", &item.state);
    line("tool", &item.tool);
    line("by", &format!("{} through {}", item.caller.subject, item.caller.door));
    line("asked", &home::moment(item.asked));
    line("until", &home::moment(item.expires));
    line("call", &item.call);
    line("sha256", &item.call_digest);
    match item.kind {
        Kind::Blocked => {
            line("why", &"no rule allows it, and whoever asks wants a person to decide")
        }
        Kind::Review | Kind::Policy => {}
    }
    for rule in &item.rules {
        line("rule", &format!("{}: {}", rule.name, rule.reason));
    }
    if let Some(answer) = &item.answer {
        let given = &answer.given;
        let by = format!("{} by {} ({})", given.verdict, answer.name, given.approver);
        line("answer", &format!("{by}: {}", given.reason));
    }
    match &queued.call {
        None => page.push_str("its arguments are kept only until it is over\n"),
        Some(arguments) => {
            page.push_str("arguments\n");
            page.push_str(&block(&format!("{arguments:#}")));
            page.push_str(&would_do(engine, queued, arguments));
        }
    }
    page
}

/// A policy that is proposed, and what it would change.
pub(crate) struct Proposed {
    pub(crate) rules: Rules,
    pub(crate) text: String,
    /// What has to be typed, if it would break much.
    pub(crate) phrase: Option<String>,
}

/// What a proposed policy would change, while it waits; `None` of everything else.
pub(crate) fn proposed(engine: &Engine, queued: &Queued) -> Result<Option<Proposed>, Problem> {
    let item = &queued.item;
    if item.kind != Kind::Policy || item.state != State::Waiting {
        return Ok(None);
    }
    let no_answer = || Problem::error("the policy gave no answer");
    let (proposed, shown) = (PolicyAsk::Proposed(item.id), PolicyAsk::Show);
    let PolicyAnswer::Proposed(rules) = policy::ask(engine, proposed)? else {
        return Err(no_answer());
    };
    let PolicyAnswer::Shown(old) = policy::ask(engine, shown)? else { return Err(no_answer()) };
    let PolicyAnswer::Checked(checked) = policy::ask(engine, PolicyAsk::Check(rules.clone()))?
    else {
        return Err(no_answer());
    };
    let warned = policy::warned(Path::new(POLICY_FILE), &rules.text, &checked.warnings);
    let Effect { text, phrase } = policy::effect(engine, &old.rules, &rules)?;
    let text = format!("change\n{}", block(&(text + &warned)));
    Ok(Some(Proposed { rules, text, phrase }))
}

/// The code that would run, or the lines that would change.
fn would_do(engine: &Engine, queued: &Queued, arguments: &Value) -> String {
    if let Some(difference) = &queued.difference {
        let nothing = "nothing: the file has this text already";
        let difference = if difference.is_empty() { nothing } else { difference };
        return format!("change\n{}", block(difference));
    }
    if let Some(code) = arguments.get("code").and_then(Value::as_str) {
        return format!("code\n{}", block(code));
    }
    let scripts = match engine.ask(&home::caller(), Ask::Show(queued.item.call)) {
        Answer::Shown(shown) => shown.artifacts,
        _ => Vec::new(),
    };
    let scripts = scripts.iter().filter(|artifact| artifact.role == Role::Script);
    scripts.map(|script| of_script(engine, script)).collect()
}

fn of_script(engine: &Engine, script: &Artifact) -> String {
    let ask = Ask::Artifact(ArtifactAsk::Content(Which::Id(script.id)));
    let mut text = String::new();
    let told = match engine.ask(&home::caller(), ask) {
        Answer::Artifact(ArtifactAnswer::Content { content, .. }) => {
            match content.take(MOST_SCRIPT + 1).read_to_string(&mut text) {
                Ok(length) if length as u64 <= MOST_SCRIPT => block(&text),
                Ok(_) => block("it is too long to be shown; `hotcell artifact get` writes it"),
                Err(_) => block("it cannot be read as text; `hotcell artifact get` writes it"),
            }
        }
        _ => block("it was not kept, since there may be a secret in it"),
    };
    format!("code of `{}`\n{told}", harmless(&script.name.to_string()))
}

/// Line by line, and nothing that could pass for a line of ours.
fn block(text: &str) -> String {
    let line = |line: &str| line.split('\t').map(harmless).collect::<Vec<_>>().join("\t");
    // `lines` would leave out what ends one besides.
    text.strip_suffix('\n')
        .unwrap_or(text)
        .split('\n')
        .map(|l| format!("  | {}\n", line(l)))
        .collect()
}

fn wait_for(id: ItemId, workspace: WorkspaceArgs, json: bool) -> Result<u8, Problem> {
    home::database()?;
    let kernel = Kernel::open(workspace.dir)?;
    let code = wait::to_the_end(&kernel, id, json)?;
    Ok(kernel.close(code))
}

fn cancel(id: ItemId, json: bool) -> Result<u8, Problem> {
    let engine = home::look()?;
    let QueueAnswer::Item(queued) = asked(&engine, Ask::Queue(QueueAsk::Cancel(id)))? else {
        return Err(Problem::error("the queue gave no answer"));
    };
    let code = match json {
        true => print::data(&document(&queued.item)),
        false => {
            print::to_people(&format!("hotcell: item {id} is {}\n", queued.item.state));
            0
        }
    };
    Ok(home::close(engine, code))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_line_of_a_call_passes_for_one_of_ours() {
        for (text, expected) in [
            ("a\nitem  X", "  | a\n  | item  X\n"),
            ("a\x1b[2J\r\u{202e}b\tc", "  | a\\u{1b}[2J\\r\\u{202e}b\tc\n"),
            ("print('\\t')\n", "  | print('\\t')\n"),
            ("", "  | \n"),
        ] {
            assert_eq!(block(text), expected);
        }
    }

    #[test]
    fn what_is_cut_says_so() {
        for (text, expected) in [("abcd", "abcd"), ("abcde", "abc…"), ("", "")] {
            assert_eq!(cut(text, 4), expected);
        }
    }
}
