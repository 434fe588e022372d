//! `hotcell approve` and `hotcell reject`: a person sees the exact call, and signs the answer with a key that
//! only a passphrase typed at the terminal opens.

use hotcell_approver::{Approver, ItemId, Reason, SignedPolicy, Terminal, Verdict};
use hotcell_engine::policy::{PolicyAnswer, PolicyAsk, Rules};
use hotcell_engine::{Ask, Engine, QueueAnswer, QueueAsk, Queued};
use hotcell_review::{Given, Kind, State};
use hotcell_types::Span;

use crate::approvals::{self, Proposed, asked};
use crate::config::Config;
use crate::problem::{self, Problem};
use crate::{home, key, policy, print};

/// How long an approval can be used if nothing else is said, in hours.
const USUAL: u64 = 1;

/// Agrees to a call that waits: to exactly what is shown, once
///
/// Shows the call, and asks for the passphrase of the approver's key at the terminal: not without one, and
/// not from anything that hotcell runs or serves. Whoever asked for the call has it carried out then.
#[derive(Debug, clap::Args)]
pub(crate) struct ApproveArgs {
    #[command(flatten)]
    which: Which,
    /// How long there is to carry it out, at most 24h [default: 1h]
    #[arg(long = "for", value_name = "TIME")]
    lasts: Option<Span>,
}

/// Refuses a call that waits
///
/// As `hotcell approve` does, shows the call and asks for the passphrase of the approver's key.
#[derive(Debug, clap::Args)]
pub(crate) struct RejectArgs {
    #[command(flatten)]
    which: Which,
}

#[derive(Debug, clap::Args)]
struct Which {
    /// An item, as `hotcell approvals` lists it
    #[arg(value_name = "ID")]
    item: ItemId,
    /// What is recorded, and told to whoever asked: one line
    #[arg(long, value_name = "TEXT", default_value = "")]
    reason: Reason,
    #[command(flatten)]
    workspace: approvals::WorkspaceArgs,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

pub(crate) fn approve(args: ApproveArgs) -> u8 {
    let lasts = args.lasts.map_or(USUAL * 3_600_000, Span::as_millis);
    let lasts = i64::try_from(lasts).unwrap_or(i64::MAX).saturating_mul(1_000_000);
    done(args.which, Verdict::Approve, lasts)
}

pub(crate) fn reject(args: RejectArgs) -> u8 {
    done(args.which, Verdict::Reject, 1)
}

fn done(which: Which, verdict: Verdict, lasts: i64) -> u8 {
    let json = which.json;
    answer(which, verdict, lasts).unwrap_or_else(|problem| problem::report(&problem, json))
}

fn answer(which: Which, verdict: Verdict, lasts: i64) -> Result<u8, Problem> {
    let Which { item: id, reason, workspace, json } = which;
    let engine = home::look_with(workspace.dir);
    let terminal = key::terminal().inspect_err(|problem| {
        if let Ok(engine) = &engine {
            not_answered(engine, id, problem);
        }
    })?;
    let engine = engine?;
    let queued = approvals::one(&engine, id)?;
    let item = &queued.item;
    if item.state != State::Waiting {
        return Err(Problem::blocked(format!("item {id} is {}", item.state))
            .why("only what waits can be answered")
            .fix("`hotcell approvals` lists what waits"));
    }
    let kind = item.kind;
    let (approver, agreed) = proven(&engine, &queued, verdict, terminal)
        .inspect_err(|problem| not_answered(&engine, id, problem))?;
    let given = Box::new(sign(&engine, &approver, &queued, (verdict, reason, lasts))?);
    let queued = match (verdict, kind) {
        (Verdict::Approve, Kind::Policy) => {
            approve_policy(&engine, &approver, id, given, agreed.ok_or_else(no_answer)?)?
        }
        (Verdict::Reject, _) | (Verdict::Approve, Kind::Review | Kind::Blocked) => {
            let answer = asked(&engine, Ask::Queue(QueueAsk::Answer { item: id, given }))?;
            let QueueAnswer::Item(queued) = answer else { return Err(no_answer()) };
            *queued
        }
    };
    let code = if json {
        print::data(&approvals::document(&queued.item))
    } else {
        print::to_people(&format!("hotcell: item {id} is {}\n", queued.item.state));
        0
    };
    Ok(home::close(engine, code))
}

/// That somebody tried is for the approver to know. An item that there is not has nobody who would.
fn not_answered(engine: &Engine, item: ItemId, problem: &Problem) {
    let ask = QueueAsk::NotAnswered { item, why: problem.line() };
    engine.ask(&home::caller(), Ask::Queue(ask));
}

fn no_answer() -> Problem {
    Problem::error("the queue gave no answer")
}

/// The rules that were shown, and the phrase that was typed for them.
struct Agreed {
    rules: Rules,
    accepted: Option<String>,
}

/// Shows the call to whoever is at the terminal, and has the key opened there. With what was agreed to, if it is
/// a policy.
fn proven(
    engine: &Engine,
    queued: &Queued,
    verdict: Verdict,
    mut terminal: Terminal,
) -> Result<(Approver, Option<Agreed>), Problem> {
    let home = Config::load()?.settings().home;
    // Whether there is one is told before anything is shown.
    key::read(&home)?;
    let mut page = approvals::page(engine, queued);
    let proposed = approvals::proposed(engine, queued)?;
    if let Some(proposed) = &proposed {
        page.push_str(&proposed.text);
    }
    terminal.show(&page).map_err(|error| key::not_asked(&error.into()))?;
    let agreed = match (verdict, proposed) {
        (Verdict::Approve, Some(Proposed { rules, phrase, .. })) => {
            Some(Agreed { rules, accepted: policy::accepted_at(&mut terminal, phrase)? })
        }
        _ => None,
    };
    let why = format!("to {verdict} item {}", queued.item.id);
    let approver = key::open(&home, &mut terminal, &why)?;
    Ok((approver, agreed))
}

/// What the approver says of exactly the item that was shown.
fn sign(
    engine: &Engine,
    approver: &Approver,
    queued: &Queued,
    (verdict, reason, lasts): (Verdict, Reason, i64),
) -> Result<Given, Problem> {
    let record = engine.record().map_err(|error| {
        Problem::error("the home cannot be used").why(error.to_string()).fix(error.fix.clone())
    })?;
    let (time, expires) = (queued.now, queued.now.saturating_add(lasts));
    let home = record.home_id();
    let statement = queued.item.statement(home, verdict, reason.clone(), time, expires);
    let (signature, approver) = (approver.sign(&statement), approver.public().fingerprint());
    Ok(Given { verdict, reason, time, expires, approver, signature })
}

/// A policy holds when it is signed itself: that and the answer are one step.
fn approve_policy(
    engine: &Engine,
    approver: &Approver,
    item: ItemId,
    given: Box<Given>,
    Agreed { rules, accepted }: Agreed,
) -> Result<Queued, Problem> {
    let unexpected = || Problem::error("the policy gave no answer");
    // Of what was shown, whatever the row says by now.
    let signed = Box::new(SignedPolicy::sign(approver, policy::prepared(engine, &rules)?));
    match policy::ask(engine, PolicyAsk::Approve { item, given, signed, accepted })? {
        PolicyAnswer::Installed(_) => approvals::one(engine, item),
        _ => Err(unexpected()),
    }
}
