//! `hotcell secret`: values that runs use and never see.

use std::io::{self, IsTerminal};

use hotcell_approver::AskError;
use hotcell_engine::{Answer, Ask, Engine, SecretAnswer, SecretAsk};
use hotcell_sandbox::cause;
use hotcell_types::Name;
use hotcell_vault::{Binding, New, Secret, SecretName, Value as Hidden};
use serde_json::{Value, json};

use crate::home;
use crate::key;
use crate::print;
use crate::problem::{self, Problem};

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Sets a secret, in the place of the one of that name if there is one
    ///
    /// The value is read from standard input, or typed where nobody sees it. There is no option for it: whoever
    /// lists processes would see it. A program that is given the secret (`hotcell run --secret`) gets a
    /// placeholder; hotcell puts the value in where a request goes over TLS to one of the hosts.
    Set(SetArgs),
    /// Lists secrets, without their values
    Ls {
        /// Of one tenant only
        #[arg(long)]
        tenant: Option<Name>,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
    /// Removes a secret: no run that begins from now on has it
    Rm {
        name: SecretName,
        /// Whose it is
        #[arg(long, default_value = "local")]
        tenant: Name,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, clap::Args)]
pub(crate) struct SetArgs {
    /// What it is called: as a variable is
    name: SecretName,
    /// A host that it may be sent to, several times or with commas between, as policies write it:
    /// api.example.com, *.example.com, api.example.com:8443
    #[arg(long = "host", value_name = "HOST", required = true, value_delimiter = ',')]
    hosts: Vec<String>,
    /// A tool whose calls may use it, whoever makes them, several times or with commas between [default: calls
    /// at this command line, and of programs that embed hotcell]
    #[arg(long = "tool", value_name = "TOOL", value_delimiter = ',')]
    tools: Vec<String>,
    /// What you want to remember of it; not secret
    #[arg(long, default_value = "", hide_default_value = true)]
    note: String,
    /// Whose calls may use it
    #[arg(long, default_value = "local")]
    tenant: Name,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

pub(crate) fn main(command: Command) -> u8 {
    let (done, json) = match command {
        Command::Set(args) => {
            let json = args.json;
            (set(args), json)
        }
        Command::Ls { tenant, json } => (list(tenant, json), json),
        Command::Rm { name, tenant, json } => (remove(name, tenant, json), json),
    };
    done.unwrap_or_else(|problem| problem::report(&problem, json))
}

fn ask(engine: &Engine, ask: SecretAsk) -> Result<SecretAnswer, Problem> {
    match engine.ask(&home::caller(), Ask::Secret(ask)) {
        Answer::Secret(answer) => Ok(answer),
        Answer::Failed(problem) => Err(problem.into()),
        _ => Err(no_answer()),
    }
}

fn set(args: SetArgs) -> Result<u8, Problem> {
    let SetArgs { name, hosts, tools, note, tenant, json } = args;
    let binding = Binding::new(hosts.iter().map(String::as_str), tools.iter().map(String::as_str));
    let binding = binding.map_err(|error| {
        let fix = "name the hosts that it is for as a policy does, such as `api.example.com`";
        Problem::invalid(format!("`{name}` cannot be bound like this"))
            .why(error.to_string())
            .fix(fix)
    })?;
    let value = value(&name)?;
    let engine = home::open(None)?;
    let to = binding.hosts().collect::<Vec<_>>().join(", ");
    let new = New { tenant, name: name.clone(), value, binding, note };
    let SecretAnswer::Set(was_there) = ask(&engine, SecretAsk::Set(Box::new(new)))? else {
        return Err(no_answer());
    };
    if json {
        let document = json!({"version": 1, "name": name.as_str(), "replaced": was_there});
        return Ok(home::close(engine, print::data(&format!("{document}\n"))));
    }
    let how = if was_there { "replaced" } else { "set" };
    print::to_people(&format!("hotcell: secret {name} is {how}, and goes to {to} only\n"));
    Ok(home::close(engine, 0))
}

/// What was piped in, or what somebody types.
fn value(name: &SecretName) -> Result<Hidden, Problem> {
    let unread = || Problem::invalid(format!("there is no value for `{name}`"));
    let fix = "give it on standard input, as one line: `hotcell secret set … < FILE`";
    let stdin = io::stdin();
    let read = if stdin.is_terminal() {
        let mut terminal = key::terminal()?;
        let typed = terminal.hidden(&format!("Value of {name} (not shown): "));
        let mut typed = typed.map_err(|error| match error {
            AskError::Cancelled => unread().why("given up").fix(fix),
            error => unread().why(error.to_string()).fix(fix),
        })?;
        Hidden::new(std::mem::take(&mut *typed))
    } else {
        Hidden::read(stdin.lock()).map_err(|error| unread().why(cause(&error)).fix(fix))?
    };
    read.map_err(|error| unread().why(error.to_string()).fix(fix))
}

fn remove(name: SecretName, tenant: Name, json: bool) -> Result<u8, Problem> {
    let engine = home::look()?;
    let asked = SecretAsk::Remove { tenant, name: name.clone() };
    let SecretAnswer::Removed = ask(&engine, asked)? else { return Err(no_answer()) };
    if json {
        let document = json!({"version": 1, "name": name.as_str()});
        return Ok(home::close(engine, print::data(&format!("{document}\n"))));
    }
    print::to_people(&format!("hotcell: secret {name} is removed\n"));
    Ok(home::close(engine, 0))
}

fn list(tenant: Option<Name>, json: bool) -> Result<u8, Problem> {
    let engine = home::look()?;
    let SecretAnswer::Listed(secrets) = ask(&engine, SecretAsk::List { tenant })? else {
        return Err(no_answer());
    };
    let code = print::data(&if json { document(&secrets) } else { table(&secrets) });
    Ok(home::close(engine, code))
}

fn table(secrets: &[Secret]) -> String {
    let row = |name: &str, tenant: &str, set: &str, tools: &str, hosts: &str, note: &str| {
        let line = format!("{name:<20}  {tenant:<8}  {set:<20}  {tools:<12}  {hosts:<28}  {note}");
        format!("{}\n", line.trim_end())
    };
    let mut text = row("NAME", "TENANT", "SET", "TOOLS", "HOSTS", "NOTE");
    for secret in secrets {
        let Secret { name, tenant, binding, note, created, .. } = secret;
        let tools = match binding.names_tools() {
            true => binding.tools().collect::<Vec<_>>().join(","),
            false => "-".into(),
        };
        let hosts = binding.hosts().collect::<Vec<_>>().join(",");
        let set = home::moment(*created);
        text.push_str(&row(name.as_str(), tenant.as_str(), &set, &tools, &hosts, note));
    }
    text
}

fn document(secrets: &[Secret]) -> String {
    let secrets: Vec<Value> = secrets.iter().map(of).collect();
    format!("{}\n", json!({ "version": 1, "secrets": secrets }))
}

fn of(secret: &Secret) -> Value {
    json!({
        "name": secret.name.as_str(), "tenant": secret.tenant,
        "hosts": secret.binding.hosts().collect::<Vec<_>>(),
        "tools": secret.binding.tools().collect::<Vec<_>>(),
        "note": secret.note, "created_ns": secret.created,
    })
}

fn no_answer() -> Problem {
    Problem::error("the record gave no answer about secrets")
}
