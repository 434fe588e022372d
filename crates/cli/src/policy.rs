//! `hotcell policy`: what is allowed, why, what another policy would change, and changing it.

mod source;
mod update;

use std::path::{Path, PathBuf};

use hotcell_approver::SignedPolicy;
use hotcell_engine::policy::{
    MODES, PolicyAnswer, PolicyAsk, Rules, STATES, ShownPolicy, Statement, Suppose, expectations,
};
use hotcell_engine::{Answer, Ask, Engine, POLICY_FILE};
use hotcell_request::{Arguments, Label, Request, ToolName};
use hotcell_types::{Door, Name, hex};
use serde_json::json;

use crate::config::Config;
use crate::gc::Age;
use crate::print::{self, harmless};
use crate::problem::{self, Problem};
use crate::{exit, home, key};

use source::told_at;
pub(crate) use source::{text, warned};
pub(crate) use update::{Effect, accepted_at, effect, holds, install, prepared};

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Checks whether a rule file can be used, with its examples
    Check {
        file: PathBuf,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
    /// Says what every rule says of a call, and why; nothing is called
    Explain(ExplainArgs),
    /// Runs the tests of a test file against a rule file
    Test {
        policy: PathBuf,
        tests: PathBuf,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
    /// Shows the policy that holds, and who signed it
    Show {
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
    Update(update::Args),
    /// Writes the smallest rules for what was refused, or approved, to standard output
    Learn {
        /// Only what happened in the last time, such as 2h or 7d
        #[arg(long, value_name = "SPAN")]
        since: Option<Age>,
        /// Print one JSON document, with the rules in it
        #[arg(long)]
        json: bool,
    },
    /// Signs a rule file as the next version of a home's policy, and prints the signature
    ///
    /// The passphrase of this home's approver key is asked for at the terminal. `hotcell policy update FILE
    /// --signature` installs what was signed.
    Sign(SignArgs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct ExplainArgs {
    tool: ToolName,
    /// The arguments as a JSON object
    #[arg(default_value = "{}")]
    arguments: String,
    /// Suppose that the caller has this tag besides; can be given several times
    #[arg(long = "tag", value_name = "TAG")]
    tags: Vec<Label>,
    /// Suppose that the caller's workflow is in this state
    #[arg(long, value_parser = clap::builder::PossibleValuesParser::new(STATES))]
    state: Option<String>,
    /// Suppose that it is in this mode
    #[arg(long, value_parser = clap::builder::PossibleValuesParser::new(MODES))]
    mode: Option<String>,
    /// Suppose that the call came through this door
    #[arg(long, value_parser = door)]
    door: Option<Door>,
    /// Suppose that this is who calls
    #[arg(long)]
    subject: Option<Name>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct SignArgs {
    file: PathBuf,
    /// The home to sign for, as `hotcell init --approver` prints it [default: this one]
    #[arg(long, value_name = "ID", requires = "number")]
    home_id: Option<String>,
    /// Which version of its policy it is to be
    #[arg(long, value_name = "N", requires = "home_id")]
    number: Option<u64>,
    /// Print one JSON document, with the signature in it
    #[arg(long)]
    json: bool,
}

fn door(text: &str) -> Result<Door, String> {
    let known = Door::ALL.map(Door::name);
    let found = Door::ALL.into_iter().find(|door| door.name() == text);
    found.ok_or_else(|| format!("there is no such door: write one of {}", known.join(", ")))
}

pub(crate) fn main(command: Command) -> u8 {
    let (done, json) = match command {
        Command::Check { file, json } => (check(&file, json), json),
        Command::Explain(args) => {
            let json = args.json;
            (explain(args), json)
        }
        Command::Test { policy, tests, json } => (test(&policy, &tests, json), json),
        Command::Show { json } => (show(json), json),
        Command::Update(args) => {
            let json = args.json;
            (update::main(args), json)
        }
        Command::Learn { since, json } => (learn(since, json), json),
        Command::Sign(args) => (sign(&args), args.json),
    };
    done.unwrap_or_else(|problem| problem::report(&problem, json))
}

/// The engine of this home, whose record is opened when it is needed.
fn engine() -> Result<Engine, Problem> {
    let config = Config::load()?;
    // Decisions of the last moment count when another policy is compared.
    home::settle(&config.settings().home);
    home::engine(home::options(&config, None))
}

pub(crate) fn ask(engine: &Engine, ask: PolicyAsk) -> Result<PolicyAnswer, Problem> {
    match engine.ask(&home::caller(), Ask::Policy(Box::new(ask))) {
        Answer::Policy(answer) => Ok(answer),
        Answer::Failed(problem) => Err(problem.into()),
        _ => Err(unexpected()),
    }
}

/// That the policy that holds can be used, with what its authors might not have meant.
pub(crate) fn ready(engine: &Engine) -> Result<(), Problem> {
    engine.can_decide()?;
    let warnings = engine.policy_warnings()?;
    if warnings.is_empty() {
        return Ok(());
    }
    let PolicyAnswer::Shown(shown) = ask(engine, PolicyAsk::Show)? else {
        return Err(unexpected());
    };
    print::to_people(&warned(Path::new(POLICY_FILE), &shown.rules.text, &warnings));
    Ok(())
}

fn some(count: usize, what: &str) -> String {
    let more = if count == 1 { "" } else { "s" };
    format!("{count} {what}{more}")
}

fn unexpected() -> Problem {
    Problem::error("the policy gave no answer")
}

fn check(file: &Path, json: bool) -> Result<u8, Problem> {
    let engine = engine()?;
    let rules = match source::rules(&engine, file, json)? {
        Ok(rules) => rules,
        Err(code) => return Ok(home::close(engine, code)),
    };
    let code = match ask(&engine, PolicyAsk::Check(rules.clone()))? {
        PolicyAnswer::Faulty(faults) => source::tell(file, &rules.text, faults, json),
        PolicyAnswer::Checked(checked) if json => {
            print::data(&print::document(&hotcell_api::Checked::good(checked)))
        }
        PolicyAnswer::Checked(checked) => {
            print::data(&format!("good: {}\n", some(checked.rules, "rule")))
        }
        _ => return Err(unexpected()),
    };
    Ok(home::close(engine, code))
}

fn explain(args: ExplainArgs) -> Result<u8, Problem> {
    let engine = engine()?;
    let ExplainArgs { tool, arguments, tags, state, mode, door, subject, json } = args;
    let request = Request::new(tool, Arguments::Bytes(arguments.into_bytes()));
    let suppose = Suppose { tags, state, mode, door, subject };
    let ask_for = PolicyAsk::Explain { request: Box::new(request), suppose };
    let PolicyAnswer::Explained(explanation, would_allow) = ask(&engine, ask_for)? else {
        return Err(unexpected());
    };
    if json {
        let document = hotcell_api::Explained::of(&explanation, would_allow);
        return Ok(home::close(engine, print::data(&print::document(&document))));
    }
    let mut text = explanation.to_string();
    if !would_allow.is_empty() {
        text.push_str("\nwhat would allow it:\n");
        for line in would_allow.lines() {
            text.push_str(&format!("  {line}\n"));
        }
    }
    Ok(home::close(engine, print::data(&text)))
}

fn test(policy: &Path, tests: &Path, json: bool) -> Result<u8, Problem> {
    let engine = engine()?;
    let written = text(tests)?;
    let expected = match expectations(written.as_bytes()) {
        Ok(expected) => expected,
        Err(faults) => return Ok(source::tell(tests, &written, faults, json)),
    };
    let rules = match source::rules(&engine, policy, json)? {
        Ok(rules) => rules,
        Err(code) => return Ok(home::close(engine, code)),
    };
    let ask_for = PolicyAsk::Test { rules: rules.clone(), tests: expected };
    let tested = match ask(&engine, ask_for)? {
        PolicyAnswer::Faulty(faults) => {
            return Ok(source::tell(policy, &rules.text, faults, json));
        }
        PolicyAnswer::Tested(tested) => tested,
        _ => return Err(unexpected()),
    };
    if json {
        let document = hotcell_api::Tested::of(tested);
        let code = if document.failed.is_empty() { 0 } else { 1 };
        return Ok(home::close(engine, print::data_and(&print::document(&document), code)));
    }
    let mut failed = 0;
    for one in &tested {
        if let Some(wrong) = &one.wrong {
            failed += 1;
            let what = format!("{}: {wrong}", one.call);
            print::to_people(&told_at(tests, &written, one.at, "", &what));
        }
    }
    let count = tested.len();
    let code = if failed == 0 { 0 } else { 1 };
    let said = match failed {
        0 => format!("good: {}\n", some(count, "test")),
        failed => format!("{failed} of {} failed\n", some(count, "test")),
    };
    Ok(home::close(engine, print::data_and(&said, code)))
}

fn show(json: bool) -> Result<u8, Problem> {
    let engine = engine()?;
    let PolicyAnswer::Shown(shown) = ask(&engine, PolicyAsk::Show)? else {
        return Err(unexpected());
    };
    let mut code = match json {
        true => print::data(&format!("{:#}\n", document(&shown))),
        false => {
            print::to_people(&heading(&shown));
            print::data(&shown.rules.text)
        }
    };
    if let Some(trouble) = shown.trouble {
        let trouble = Problem::from(trouble);
        if !json {
            print::to_people(&trouble.text(print::colour()));
        }
        code = if code == 0 { exit::ERROR } else { code };
    }
    Ok(home::close(engine, code))
}

/// For people, beside the text itself.
fn heading(shown: &ShownPolicy) -> String {
    let Some((by, time)) = &shown.signed else {
        return "the built-in policy: nobody has written one for this home\n".into();
    };
    let mut text = format!(
        "version {}, signed by {} ({}) at {}\n",
        shown.number,
        by.name(),
        by.fingerprint(),
        home::moment(*time),
    );
    for approver in &shown.approvers {
        text.push_str(&format!("approver {} ({})\n", approver.name(), approver.fingerprint()));
    }
    text
}

fn document(shown: &ShownPolicy) -> serde_json::Value {
    let signed = shown.signed.as_ref().map(|(by, time)| {
        json!({
            "by": by.name().as_str(),
            "fingerprint": by.fingerprint().to_string(),
            "at": home::moment(*time),
        })
    });
    let approvers: Vec<String> = shown.approvers.iter().map(ToString::to_string).collect();
    json!({
        "version": 1,
        "number": shown.number,
        "digest": hex::text(&shown.rules.digest()),
        "signed": signed,
        "approvers": approvers,
        "trouble": shown.trouble.as_ref().map(ToString::to_string),
        "text": shown.rules.text,
        "extensions": shown.rules.extensions,
    })
}

fn learn(since: Option<Age>, json: bool) -> Result<u8, Problem> {
    let engine = home::look()?;
    let since = since.map(|age| {
        let nanos = i64::try_from(age.0.as_nanos()).unwrap_or(i64::MAX);
        hotcell_record::now().saturating_sub(nanos)
    });
    let PolicyAnswer::Learned(learned) = ask(&engine, PolicyAsk::Learn { since })? else {
        return Err(unexpected());
    };
    if json {
        let document = hotcell_api::Learned::from(learned);
        return Ok(home::close(engine, print::data(&print::document(&document))));
    }
    let mut text = format!(
        "# Learned from {} that {} refused, or approved. Read it before you use it.\n",
        some(learned.calls, "call"),
        if learned.calls == 1 { "was" } else { "were" },
    );
    for (why, count) in &learned.left_out {
        text.push_str(&format!("# {count} left out: {}\n", harmless(why)));
    }
    text.push_str(&learned.rules);
    Ok(home::close(engine, print::data(&text)))
}

fn sign(args: &SignArgs) -> Result<u8, Problem> {
    let engine = engine()?;
    let rules = match source::rules(&engine, &args.file, args.json)? {
        Ok(rules) => rules,
        Err(code) => return Ok(code),
    };
    let statement = match (&args.home_id, args.number) {
        (Some(id), Some(number)) => elsewhere(&rules, id, number)?,
        _ => prepared(&engine, &rules)?,
    };
    let mut terminal = key::terminal()?;
    let approver =
        key::open(&Config::load()?.settings().home, &mut terminal, "to sign the policy")?;
    let signed = SignedPolicy::sign(&approver, statement);
    let text = match args.json {
        true => print::document(&json!({ "version": 1, "signature": signed.to_string() })),
        false => format!("{signed}\n"),
    };
    Ok(home::close(engine, print::data(&text)))
}

/// What is signed for a home that is not this one.
fn elsewhere(rules: &Rules, id: &str, number: u64) -> Result<Statement, Problem> {
    let home = hex::parse(id).ok_or_else(|| {
        Problem::invalid(format!("`{}` is not the id of a home", harmless(id)))
            .fix("write it as `hotcell init --approver` prints it")
    })?;
    let time = hotcell_record::now();
    Ok(Statement { home, policy: rules.digest(), sequence: number, time })
}
