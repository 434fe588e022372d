//! `hotcell key`: who may come through the door of a server, for whom and for what.

use std::num::NonZeroU32;

use hotcell_access::{Key, KeyId, MAX_PAGE, New, Rate, Scope, State};
use hotcell_engine::{Answer, Ask, Engine, KeyAnswer, KeyAsk};
use hotcell_record::now;
use hotcell_types::{Name, Span};
use serde_json::{Value, json};

use crate::home;
use crate::print;
use crate::problem::{self, Problem};

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Makes an API key
    ///
    /// It is printed to standard output, once: only a digest of it is kept. Whoever has it can ask a server of
    /// this home for what the scopes say, as the subject and tenant that it names; what is asked for is judged
    /// by the policy as any other call.
    Create(CreateArgs),
    /// Lists keys that are good
    Ls {
        /// Those that expired or were revoked as well
        #[arg(long)]
        all: bool,
        /// Of one tenant only
        #[arg(long)]
        tenant: Option<Name>,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
    /// Makes a key worth nothing, from the next request on
    Revoke {
        /// As `hotcell key ls` shows it
        id: KeyId,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, clap::Args)]
pub(crate) struct CreateArgs {
    /// What you know it by
    name: Name,
    /// What it is for, several times or with commas between: run, tools, runs:read, artifacts:read,
    /// artifacts:write, audit, approvals:read, approvals:write, policy:read, policy:write, tokens, metrics, or
    /// admin for all of them; sandboxes opens nothing yet
    #[arg(long = "scope", value_name = "SCOPE", required = true, value_delimiter = ',')]
    scopes: Vec<Scope>,
    /// Whose calls are made with it, as policies have it [default: the key's name]
    #[arg(long)]
    subject: Option<Name>,
    /// To whom everything belongs that is made with it
    #[arg(long, default_value = "local")]
    tenant: Name,
    /// For how long [default: until it is revoked]
    #[arg(long = "for", value_name = "TIME")]
    life: Option<Span>,
    /// Most requests in a second [default: as many as there is room for]
    #[arg(long, value_name = "N")]
    rate: Option<NonZeroU32>,
    /// How many of them may come at once after a rest [default: as many as in a second]
    #[arg(long, value_name = "N", requires = "rate")]
    burst: Option<NonZeroU32>,
    /// Most requests at one time [default: as many as there is room for]
    #[arg(long, value_name = "N")]
    concurrent: Option<NonZeroU32>,
    /// Print one JSON document, with the key in it
    #[arg(long)]
    json: bool,
}

impl From<CreateArgs> for New {
    fn from(args: CreateArgs) -> New {
        let CreateArgs { name, scopes, subject, tenant, life, rate, burst, concurrent, .. } = args;
        let subject = subject.unwrap_or_else(|| name.clone());
        let rate = rate.map(|per_second| Rate { per_second, burst: burst.unwrap_or(per_second) });
        New { name, tenant, subject, scopes: scopes.into_iter().collect(), life, rate, concurrent }
    }
}

pub(crate) fn main(command: Command) -> u8 {
    let (done, json) = match command {
        Command::Create(args) => {
            let json = args.json;
            (create(args), json)
        }
        Command::Ls { all, tenant, json } => (list(all, tenant, json), json),
        Command::Revoke { id, json } => (revoke(id, json), json),
    };
    done.unwrap_or_else(|problem| problem::report(&problem, json))
}

fn ask(engine: &Engine, ask: KeyAsk) -> Result<KeyAnswer, Problem> {
    match engine.ask(&home::caller(), Ask::Key(ask)) {
        Answer::Key(answer) => Ok(answer),
        Answer::Failed(problem) => Err(problem.into()),
        _ => Err(no_answer()),
    }
}

/// The key to programs, what it is for to people.
fn create(args: CreateArgs) -> Result<u8, Problem> {
    let json = args.json;
    let engine = home::open(None)?;
    let KeyAnswer::Created { text, key } = ask(&engine, KeyAsk::Create(Box::new(args.into())))?
    else {
        return Err(no_answer());
    };
    if json {
        let mut document = of(&key);
        if let Some(members) = document.as_object_mut() {
            members.insert("key".into(), text.reveal().into());
            members.insert("version".into(), 1.into());
        }
        return Ok(home::close(engine, print::data(&format!("{document}\n"))));
    }
    let code = print::data(&format!("{}\n", text.reveal()));
    if code == 0 {
        let Key { id, subject, tenant, scopes, .. } = &*key;
        let until = until(&key);
        print::to_people(&format!(
            "hotcell: key {id} is for {scopes}, as {subject} in {tenant}, until {until}\n"
        ));
    }
    Ok(home::close(engine, code))
}

fn revoke(id: KeyId, json: bool) -> Result<u8, Problem> {
    let engine = home::look()?;
    let KeyAnswer::Revoked(is_new) = ask(&engine, KeyAsk::Revoke(id))? else {
        return Err(no_answer());
    };
    if json {
        let document = json!({"version": 1, "id": id.to_string(), "was_good": is_new});
        return Ok(home::close(engine, print::data(&format!("{document}\n"))));
    }
    print::to_people(&match is_new {
        true => format!("hotcell: key {id} is worth nothing now\n"),
        false => format!("hotcell: key {id} was revoked before\n"),
    });
    Ok(home::close(engine, 0))
}

fn list(all: bool, tenant: Option<Name>, json: bool) -> Result<u8, Problem> {
    let engine = home::look()?;
    let (mut keys, mut after) = (Vec::new(), 0);
    // There are no more than fit into memory, and a table of them.
    loop {
        let (tenant, limit) = (tenant.clone(), MAX_PAGE);
        let KeyAnswer::Listed(page) = ask(&engine, KeyAsk::List { tenant, after, limit })? else {
            return Err(no_answer());
        };
        let Some(last) = page.last() else { break };
        after = last.number;
        keys.extend(page.into_iter().filter(|key| all || key.state(now()) == State::Good));
    }
    let code = print::data(&if json { document(&keys) } else { table(&keys) });
    Ok(home::close(engine, code))
}

fn until(key: &Key) -> String {
    key.expires.map_or_else(|| "it is revoked".into(), home::moment)
}

fn table(keys: &[Key]) -> String {
    let row = |id: &str, state: &str, who: [&str; 3], used: &str, until: &str, scopes: &str| {
        let [name, tenant, subject] = who;
        format!(
            "{id:<16}  {state:<7}  {name:<12}  {tenant:<8}  {subject:<12}  {used:<20}  {until:<20}  {scopes}\n"
        )
    };
    let mut text = row("ID", "STATE", ["NAME", "TENANT", "SUBJECT"], "USED", "UNTIL", "SCOPES");
    for key in keys {
        let who = [&key.name, &key.tenant, &key.subject].map(Name::as_str);
        let or_dash = |moment: Option<i64>| moment.map_or_else(|| "-".into(), home::moment);
        let (id, scopes) = (key.id.to_string(), key.scopes.to_string());
        let state = key.state(now()).name();
        text.push_str(&row(&id, state, who, &or_dash(key.used), &or_dash(key.expires), &scopes));
    }
    text
}

fn document(keys: &[Key]) -> String {
    let keys: Vec<Value> = keys.iter().map(of).collect();
    format!("{}\n", json!({ "version": 1, "keys": keys }))
}

fn of(key: &Key) -> Value {
    let scopes: Vec<&str> = key.scopes.each().map(Scope::name).collect();
    let rate = key.rate.map(|rate| json!({"per_second": rate.per_second, "burst": rate.burst}));
    json!({
        "id": key.id.to_string(), "name": key.name, "state": key.state(now()).name(),
        "tenant": key.tenant, "subject": key.subject, "scopes": scopes, "rate": rate,
        "concurrent": key.concurrent, "created_ns": key.created, "expires_ns": key.expires,
        "revoked_ns": key.revoked, "used_ns": key.used,
    })
}

fn no_answer() -> Problem {
    Problem::error("the record gave no answer about keys")
}
