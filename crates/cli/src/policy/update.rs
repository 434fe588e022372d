//! `hotcell policy update`: shows what another policy would change, and makes it the one that holds once an
//! approver has signed it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use hotcell_approver::{SignedPolicy, Terminal};
use hotcell_engine::policy::{Changed, Compared, PolicyAnswer, PolicyAsk, Rules, Statement};
use hotcell_engine::{Attached, Engine};
use hotcell_request::{Arguments, Request};
use similar::TextDiff;

use super::{ask, engine, source, unexpected};
use crate::config::Config;
use crate::kernel::Kernel;
use crate::print::{self, harmless};
use crate::problem::Problem;
use crate::{home, key, tool};

/// Makes a rule file the policy of this home
///
/// Shows how the text differs and which of the last 100 decisions would be others, and then asks for the
/// passphrase of the approver's key at the terminal. Calls that go on keep the policy they were judged by.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    file: PathBuf,
    /// Only put it before an approver, as any caller may
    #[arg(long, conflicts_with = "signature")]
    propose: bool,
    /// The signature that `hotcell policy sign` printed; no terminal is needed then
    #[arg(long, value_name = "FILE")]
    signature: Option<PathBuf>,
    /// With --signature: the phrase by which many decisions that would be refused are accepted
    #[arg(long, value_name = "PHRASE", requires = "signature")]
    accept: Option<String>,
    /// Print one JSON document
    #[arg(long)]
    pub(super) json: bool,
}

pub(super) fn main(args: Args) -> Result<u8, Problem> {
    let engine = engine()?;
    let rules = match source::rules(&engine, &args.file, args.json)? {
        Ok(rules) => rules,
        Err(code) => return Ok(code),
    };
    if args.propose {
        home::close(engine, 0);
        return propose(rules, args.json);
    }
    let PolicyAnswer::Shown(old) = ask(&engine, PolicyAsk::Show)? else { return Err(unexpected()) };
    let is_same = old.number > 0 && old.rules == rules;
    if is_same && old.trouble.is_none() {
        print::to_people("this is the policy that holds\n");
        let code = if args.json { print::data(&installed(old.number)) } else { 0 };
        return Ok(home::close(engine, code));
    }
    let Effect { text, phrase } = effect(&engine, &old.rules, &rules)?;
    print::to_people(&text);
    let (signed, accepted) = match &args.signature {
        Some(file) => {
            let signature = signature(file)?;
            let typed = |phrase: &str| match &args.accept {
                Some(typed) => Ok(typed.clone()),
                None => Err(Problem::blocked("the policy stays as it is")
                    .why("too many of the last decisions would be refused")
                    .fix(format!("accept that with `--accept '{phrase}'`, or change the rules"))),
            };
            (signature, accepted(phrase, typed)?)
        }
        None => signed(&engine, &rules, phrase)?,
    };
    let number = install(&engine, rules, signed, accepted)?;
    let text = match args.json {
        true => installed(number),
        false => holds(number),
    };
    Ok(home::close(engine, print::data(&text)))
}

/// What is to be signed for these rules to be the next version of this home.
pub(crate) fn prepared(engine: &Engine, rules: &Rules) -> Result<Statement, Problem> {
    match ask(engine, PolicyAsk::Prepare(rules.clone()))? {
        PolicyAnswer::Prepared(statement) => Ok(statement),
        _ => Err(unexpected()),
    }
}

/// What other rules would change.
pub(crate) struct Effect {
    /// For people: lines, and decisions.
    pub(crate) text: String,
    /// What has to be typed, if they would break much.
    pub(crate) phrase: Option<String>,
}

pub(crate) fn effect(engine: &Engine, old: &Rules, new: &Rules) -> Result<Effect, Problem> {
    let PolicyAnswer::Compared(compared) = ask(engine, PolicyAsk::Compare(new.clone()))? else {
        return Err(unexpected());
    };
    let mut text = difference("policy.yaml", &old.text, &new.text);
    let names: BTreeSet<&String> = old.extensions.keys().chain(new.extensions.keys()).collect();
    for name in names {
        let source = |rules: &Rules| rules.extensions.get(name).cloned().unwrap_or_default();
        text.push_str(&difference(name, &source(old), &source(new)));
    }
    text.push_str(&told(&compared));
    Ok(Effect { text, phrase: compared.phrase() })
}

/// Has somebody accept in words that so much would break. `ask` is told the phrase, and says what was typed.
fn accepted(
    phrase: Option<String>,
    ask: impl FnOnce(&str) -> Result<String, Problem>,
) -> Result<Option<String>, Problem> {
    let Some(phrase) = phrase else { return Ok(None) };
    if ask(&phrase)?.trim() == phrase {
        return Ok(Some(phrase));
    }
    Err(Problem::blocked("the policy stays as it is")
        .why("that is not the phrase")
        .fix(format!("type `{phrase}`, or change the rules")))
}

/// The same at the terminal.
pub(crate) fn accepted_at(
    terminal: &mut Terminal,
    phrase: Option<String>,
) -> Result<Option<String>, Problem> {
    accepted(phrase, |phrase| {
        let typed = terminal.line(&format!("To go on, type `{phrase}`: "));
        typed.map_err(|error| key::not_asked(&error))
    })
}

/// Signs at the terminal.
fn signed(
    engine: &Engine,
    rules: &Rules,
    phrase: Option<String>,
) -> Result<(SignedPolicy, Option<String>), Problem> {
    let statement = prepared(engine, rules)?;
    let mut terminal = key::terminal()?;
    let accepted = accepted_at(&mut terminal, phrase)?;
    let approver =
        key::open(&Config::load()?.settings().home, &mut terminal, "to sign the policy")?;
    Ok((SignedPolicy::sign(&approver, statement), accepted))
}

fn signature(file: &Path) -> Result<SignedPolicy, Problem> {
    let text = source::text(file)?;
    text.trim_end_matches('\n').parse().map_err(|error| {
        Problem::invalid(format!("`{}` cannot be used", file.display()))
            .why(format!("{error}"))
            .fix("write what `hotcell policy sign` prints, and nothing else")
    })
}

/// Makes signed rules the policy that holds.
pub(crate) fn install(
    engine: &Engine,
    rules: Rules,
    signed: SignedPolicy,
    accepted: Option<String>,
) -> Result<u64, Problem> {
    let ask_for = PolicyAsk::Install { rules, signed: Box::new(signed), accepted };
    match ask(engine, ask_for)? {
        PolicyAnswer::Installed(number) => Ok(number),
        _ => Err(unexpected()),
    }
}

/// Which version it is now, for people.
pub(crate) fn holds(number: u64) -> String {
    format!("version {number} of the policy holds\n")
}

/// The same for programs.
fn installed(number: u64) -> String {
    print::document(&hotcell_api::Installed { version: 1, number })
}

/// As any caller may: what comes of it is for an approver to say.
fn propose(rules: Rules, json: bool) -> Result<u8, Problem> {
    let arguments = serde_json::json!({ "rules": rules.text, "extensions": rules.extensions });
    let name = "policy.update".parse().map_err(|_| unexpected())?;
    let request = Request::new(name, Arguments::Value(arguments));
    let kernel = Kernel::open(None)?;
    let called = kernel.call(request, Attached::default())?;
    Ok(kernel.close(tool::tell(&called, json)))
}

fn difference(file: &str, old: &str, new: &str) -> String {
    let diff = TextDiff::from_lines(old, new);
    let mut text = String::new();
    let (old, new) = (format!("{file} (as it holds)"), format!("{file} (the new one)"));
    for line in diff.unified_diff().header(&old, &new).to_string().lines() {
        text.push_str(&harmless(line));
        text.push('\n');
    }
    text
}

/// The decisions that would be others, for people.
fn told(compared: &Compared) -> String {
    let Compared { asked, changed, left_out } = compared;
    let mut text = match changed.len() {
        0 => format!("none of the last {asked} decisions would be another\n"),
        count => format!("{count} of the last {asked} decisions would be others:\n"),
    };
    for one in changed {
        let Changed { time, subject, tool, paths, was, is, reason, .. } = one;
        let mark = if one.is_breaking() { "BREAKING " } else { "" };
        let (was, is) = (was.name(), is.name());
        let line = format!(
            "  {mark}{was} -> {is}  {}  {subject}  {tool} {}: {reason}",
            home::moment(*time),
            paths.join(" ")
        );
        text.push_str(&harmless(&line));
        text.push('\n');
    }
    for (why, count) in left_out {
        text.push_str(&format!("{count} could not be asked again: {}\n", harmless(why)));
    }
    match compared.breaking() {
        0 => {}
        breaking => text
            .push_str(&format!("warning: {breaking} of them were allowed and would be refused\n")),
    }
    text
}
