//! Secrets that stay outside of sandboxes: set, listed and removed by whoever is at the machine, and put into the
//! requests of runs that were given placeholders of them. The record has their names and bindings, and what was
//! refused; it has no value, and neither has any error.

use std::ffi::OsString;
use std::sync::Arc;

use hotcell_egress::{Fill, Mask, Seek, Site, Unfilled};
use hotcell_record::{Draft, Durability, Hex, Kind, ReadError, Record, Stated, WriteError, now};
use hotcell_request::{Call, ToolName};
use hotcell_tools::Plan;
use hotcell_types::{Caller, Decision, Door, Name, Status};
use hotcell_vault::{
    self as vault, Binding, Change, Key, KeyError, Masker, Misplaced, New, Place, Purse, Secret,
    SecretName, Seeker,
};

use crate::engine::Engine;
use crate::network::with_port;
use crate::path::not_recorded;
use crate::reply::{Problem, ProblemKind};

/// What can be asked about secrets. Whoever belongs to the home's own tenant, `local`, is its operator and can
/// ask about the secrets of all tenants; everybody else about those of their own. Nobody is told a value.
#[derive(Debug)]
pub enum SecretAsk {
    /// In the place of the one of that name, if there is one.
    Set(Box<New>),
    Remove {
        tenant: Name,
        name: SecretName,
    },
    /// Of one tenant, or of all.
    List {
        tenant: Option<Name>,
    },
}

#[derive(Debug)]
pub enum SecretAnswer {
    /// Whether there was one of that name before.
    Set(bool),
    Removed,
    Listed(Vec<Secret>),
}

impl SecretAsk {
    fn operation(&self) -> &'static str {
        match self {
            SecretAsk::Set(_) => "secret.set",
            SecretAsk::Remove { .. } => "secret.remove",
            SecretAsk::List { .. } => "secret.list",
        }
    }

    fn tenant(&self) -> Option<&Name> {
        match self {
            SecretAsk::Set(new) => Some(&new.tenant),
            SecretAsk::Remove { tenant, .. } => Some(tenant),
            SecretAsk::List { tenant } => tenant.as_ref(),
        }
    }
}

impl Engine {
    /// What is refused here is on the disk before it is told.
    pub(crate) fn ask_secret(
        &self,
        caller: &Caller,
        ask: SecretAsk,
    ) -> Result<SecretAnswer, Problem> {
        let operation = ask.operation();
        let answer = may_ask(caller, &ask).and_then(|()| self.answer_about_secrets(caller, ask));
        answer.map_err(|problem| {
            if problem.kind != ProblemKind::Blocked {
                return problem;
            }
            let mut draft = Draft::new(Kind::Denied, caller.clone(), now());
            draft.operation = Some(operation.to_owned());
            draft.reason = Some(problem.to_string());
            draft.decision = Some(Decision::Deny);
            draft.status = Some(Status::Blocked);
            self.record_now(draft).err().unwrap_or(problem)
        })
    }

    fn answer_about_secrets(
        &self,
        caller: &Caller,
        ask: SecretAsk,
    ) -> Result<SecretAnswer, Problem> {
        match ask {
            SecretAsk::Set(new) => {
                self.are_tools(&new.binding)?;
                let record = self.recording()?;
                let key = Key::open(self.home()).map_err(no_key)?;
                let changes = change(record, caller, move |tx, time| {
                    vault::set(tx, &key, &new, time).map(|(_, changes)| changes)
                });
                changes.map(|changes| SecretAnswer::Set(changes > 1))
            }
            SecretAsk::Remove { tenant, name } => {
                let changes = change(self.recording()?, caller, move |tx, _| {
                    Ok(vec![vault::remove(tx, &tenant, &name)?])
                });
                changes.map(|_| SecretAnswer::Removed)
            }
            SecretAsk::List { tenant } => {
                let of = tenant.or_else(|| own(caller));
                let listed = self
                    .recording()?
                    .look(|conn| vault::list(conn, of.as_ref()).map_err(Look::Vault));
                listed.map(SecretAnswer::Listed).map_err(not_looked_up)
            }
        }
    }

    /// A secret that is bound to a name that nobody has would be for whoever gets the name.
    fn are_tools(&self, binding: &Binding) -> Result<(), Problem> {
        let is_known = |name: &&str| {
            name.parse::<ToolName>().is_ok_and(|name| self.registry.get(&name, None).is_ok())
        };
        match binding.tools().find(|name| !is_known(name)) {
            None => Ok(()),
            Some(name) => {
                let fix = "`hotcell tool ls` lists them";
                let what = format!("a secret cannot be bound to the tool `{name}`");
                Err(Problem::new(what, "there is none", fix).of(ProblemKind::Invalid))
            }
        }
    }

    /// The secrets that a call asks for, if it may have every one of them. Its program gets placeholders.
    pub(crate) fn purse(
        &self,
        call: &Call,
        plan: &mut Plan,
    ) -> Result<Option<Arc<Purse>>, Problem> {
        let purse = self.purse_of(call, plan.placeholders.values())?;
        let Some(purse) = purse else { return Ok(None) };
        for (variable, name) in std::mem::take(&mut plan.placeholders) {
            let name = name.parse().ok();
            if let Some(placeholder) = name.and_then(|name| purse.placeholder(&name)) {
                plan.env.insert(OsString::from(variable), placeholder.into());
            }
        }
        Ok(Some(Arc::new(purse)))
    }

    /// The secrets of these names, opened, if the call may have every one of them.
    pub(crate) fn purse_of<'a>(
        &self,
        call: &Call,
        asked: impl Iterator<Item = &'a String>,
    ) -> Result<Option<Purse>, Problem> {
        let mut names = Vec::new();
        for name in asked {
            let name: SecretName = name.parse().map_err(|error: vault::BadSecretName| {
                // Which could be a value that somebody has taken for one.
                let what = "what is asked for is not the name of a secret";
                let fix = "`hotcell secret ls` lists them";
                Problem::new(what, error.to_string(), fix).of(ProblemKind::Invalid)
            })?;
            if !names.contains(&name) {
                names.push(name);
            }
        }
        if names.is_empty() {
            return Ok(None);
        }
        let tenant = &call.caller().tenant;
        let found = self.recording()?.look(|conn| {
            let each = names.iter().map(|name| vault::get(conn, tenant, name));
            each.collect::<Result<Vec<_>, _>>().map_err(Look::Vault)
        });
        let found = found.map_err(not_looked_up)?;
        let mut secrets = Vec::new();
        for (name, secret) in names.iter().zip(found) {
            let secret = secret.ok_or_else(|| no_secret(name))?;
            may_use(call, &secret)?;
            secrets.push(secret);
        }
        let key = Key::read(self.home()).map_err(no_key)?;
        let opened = secrets.into_iter().map(|secret| {
            let key = key.as_ref().ok_or_else(|| not_opened(&secret.name))?;
            let value = vault::open(key, &secret).map_err(|_| not_opened(&secret.name))?;
            Ok((secret.name, secret.binding, value))
        });
        let opened = opened.collect::<Result<Vec<_>, Problem>>()?;
        let purse = Purse::new(opened).map_err(|error| {
            let what = "no placeholders can be made";
            Problem::new(what, error.to_string(), "free some memory, and run it again")
        })?;
        Ok(Some(purse))
    }
}

/// Whether a call may have a secret. One that names no tool is for people: whatever a model asks for comes through
/// another door.
fn may_use(call: &Call, secret: &Secret) -> Result<(), Problem> {
    let (name, tool) = (&secret.name, call.name().to_string());
    let what = format!("`{tool}` may not use the secret `{name}`");
    let refused = |why: String, fix: String| {
        Err(Problem::new(what.clone(), why, fix).of(ProblemKind::Blocked))
    };
    let binding = &secret.binding;
    if binding.names_tools() {
        if binding.has_tool(&tool) {
            return Ok(());
        }
        let tools = binding.tools().collect::<Vec<_>>().join(", ");
        let fix = format!("if it is meant to, set the secret again with `--tool {tool}` as well");
        return refused(format!("it is bound to other tools: {tools}"), fix);
    }
    let door = call.caller().door;
    if matches!(door, Door::Cli | Door::Library) {
        return Ok(());
    }
    let why = format!("it is bound to no tool, and so not for who comes through `{door}`");
    refused(why, format!("if it is meant to, set the secret again with `--tool {tool}`"))
}

/// Removes the secrets of a home that was put in the place of another: they were sealed with a key that is in no
/// backup, and some may have been removed since.
pub(crate) fn remove_restored(record: &Record, caller: &Caller) -> Result<(), Problem> {
    change(record, caller, |tx, _| vault::remove_all(tx)).map(drop)
}

/// Rows and what the chain says of them, on the disk. How many changes there were.
fn change(
    record: &Record,
    caller: &Caller,
    change: impl FnOnce(&vault::Transaction<'_>, i64) -> Result<Vec<Change>, vault::Error>
    + Send
    + 'static,
) -> Result<usize, Problem> {
    let (by, time) = (caller.clone(), now());
    let written = record.write(Durability::Synced, move |tx| {
        let changes = change(tx, time)?;
        let told: Vec<Draft> = changes.iter().map(|change| told(change, &by, time)).collect();
        Ok((changes.len(), told))
    });
    written.map(|(count, _)| count).map_err(not_changed)
}

/// A change of a secret, as the chain tells it.
fn told(change: &Change, by: &Caller, time: i64) -> Draft {
    let mut draft = Draft::new(Kind::BearerChanged, by.clone(), time);
    draft.operation = Some(change.what.operation().to_owned());
    draft.reason = Some(change.reason());
    let (row, digest) = (change.statement.row().to_owned(), Hex(change.statement.digest()));
    let length = change.statement.bytes().len() as u64;
    draft.stated = Some(Stated { row, digest, length });
    draft
}

/// The only tenant whose secrets a caller can ask about.
fn own(caller: &Caller) -> Option<Name> {
    (caller.tenant != Name::LOCAL).then(|| caller.tenant.clone())
}

fn may_ask(caller: &Caller, ask: &SecretAsk) -> Result<(), Problem> {
    let what = "secrets are not for everybody to set";
    let fix = "have somebody do it at the command line: `hotcell secret`";
    if !matches!(caller.door, Door::Cli | Door::Library) {
        let why = format!("nobody sets, removes or lists secrets through `{}`", caller.door);
        return Err(Problem::new(what, why, fix).of(ProblemKind::Blocked));
    }
    match (ask.tenant(), own(caller)) {
        (Some(of), Some(own)) if *of != own => {
            let why =
                format!("`{own}` is not the operator of this home, and `{of}` is another tenant");
            Err(Problem::new(what, why, fix).of(ProblemKind::Blocked))
        }
        _ => Ok(()),
    }
}

/// The secrets of a run, for whoever sends its requests.
pub(crate) struct Filler(pub(crate) Arc<Purse>);

fn host_of(site: Site<'_>) -> String {
    with_port(site.host.to_string(), site.port)
}

fn unfilled(misplaced: Misplaced) -> Unfilled {
    Unfilled(misplaced.to_string())
}

impl Fill for Filler {
    fn fill(&self, to: Site<'_>, value: &[u8]) -> Result<Vec<u8>, Unfilled> {
        let host = host_of(to);
        self.0.fill(Place { host: &host, tls: to.tls }, value).map_err(unfilled)
    }

    fn refuse_in(&self, place: &'static str, text: &[u8]) -> Result<(), Unfilled> {
        self.0.refuse_in(place, text).map_err(unfilled)
    }

    fn seeker(&self) -> Box<dyn Seek> {
        Box::new(Sought(Seeker::default()))
    }

    fn masker(&self, from: Site<'_>) -> Option<Box<dyn Mask>> {
        Some(Box::new(Masked(self.0.masker(&host_of(from))?)))
    }
}

struct Sought(Seeker);

impl Seek for Sought {
    fn push(&mut self, bytes: &[u8]) -> Result<(), Unfilled> {
        match self.0.push(bytes) {
            true => Err(unfilled(Misplaced::Elsewhere("its body"))),
            false => Ok(()),
        }
    }
}

struct Masked(Masker);

impl Mask for Masked {
    fn push(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        self.0.push(bytes, out);
    }

    fn finish(&mut self, out: &mut Vec<u8>) {
        self.0.finish(out);
    }
}

/// Why secrets could not be looked at.
#[derive(Debug, thiserror::Error)]
enum Look {
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Vault(#[from] vault::Error),
}

fn not_looked_up(error: Look) -> Problem {
    Problem::new("secrets cannot be read", error.to_string(), "`hotcell audit verify` says more")
}

fn no_key(error: KeyError) -> Problem {
    let fix = error.fix;
    Problem::new("secrets cannot be sealed or opened", error.to_string(), fix)
}

fn not_opened(name: &SecretName) -> Problem {
    let why = "it was sealed with another key than the one of this home, or its row was changed";
    let fix = "see what `hotcell audit verify` says, and set it again: `hotcell secret set`";
    Problem::new(format!("the secret `{name}` cannot be opened"), why, fix)
}

fn no_secret(name: &SecretName) -> Problem {
    let what = format!("there is no secret `{name}`");
    let fix = "`hotcell secret ls` lists them; `hotcell secret set` sets one";
    Problem::new(what, "it was never set, or was removed", fix).of(ProblemKind::NotFound)
}

pub(crate) fn without_network() -> Problem {
    let why = "secrets go into requests, and this run has no network to send any";
    let fix = "give it one (`--network`), or run it without the secret";
    Problem::new("the run cannot use a secret", why, fix).of(ProblemKind::Invalid)
}

fn not_changed(error: WriteError<vault::Error>) -> Problem {
    let error = match error {
        WriteError::Own(error) => error,
        WriteError::Append(error) => return not_recorded(&error),
    };
    match &error {
        vault::Error::NoSecret(name) => no_secret(name),
        vault::Error::Full { .. } => {
            let fix = "remove secrets that nobody uses";
            Problem::new("there is no room for it", error.to_string(), fix).of(ProblemKind::Busy)
        }
        vault::Error::Note { .. } => {
            let what = "there is no secret like this";
            Problem::new(what, error.to_string(), "note less").of(ProblemKind::Invalid)
        }
        _ => {
            let fix = "`hotcell audit verify` says more";
            Problem::new("secrets cannot be changed", error.to_string(), fix)
        }
    }
}
