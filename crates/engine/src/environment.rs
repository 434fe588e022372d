//! Environments: made once, in a sandbox, kept read-only, and named. The host's pip downloads and nothing of
//! what it downloads is executed here; what the sandbox made of it is data.

mod build;
mod used;

use hotcell_environment::requirement::{self, PRESETS, Requirement};
use hotcell_environment::{self as environment, Digest, Environment, Name, Store, rows};
use hotcell_policy::Constraints;
use hotcell_record::{Durability, ReadError, Record, WriteError};
use hotcell_request::Call;
use hotcell_sandbox::lang::{self, Host, Language};
use hotcell_sandbox::{Command, cause};
use hotcell_tools::environment::{self as tool, Create, Wanted};
use hotcell_types::{Bytes, Count, Cpus, Door, Limits, Name as Tenant, Profile, Span, Template};
use serde::Serialize;

use crate::attached::Attached;
use crate::engine::Engine;
use crate::gc::Amount;
use crate::hands::Reins;
use crate::path::{Done, not_recorded};
use crate::prepare::{Ready, Work, can_be_kept_here, host_of};
use crate::reply::{Problem, ProblemKind};
pub(crate) use used::Used;

/// What the sandbox that installs packages is held to, unless the call asks for other limits. Its files live
/// in its memory: numpy, pandas and matplotlib are about 240 MiB in 7,000 files, their compiled modules
/// included, and pip unpacks into the place where they stay. Four times as much is room for most; memory is
/// as much again, for pip itself and for what the kernel keeps of each file.
const USUAL: Limits = Limits {
    memory: Bytes::mib(2048),
    cpu: Cpus::thousandths(2000),
    pids: Count::of(64),
    timeout: Span::seconds(30 * 60),
    cpu_time: None,
    disk: Bytes::mib(1024),
    file_size: None,
    files: Count::of(100_000),
    open_files: Count::of(1024),
    output: Bytes::mib(1),
};

/// What is to be done.
#[derive(Debug)]
pub(crate) enum Task {
    Create(Box<Creation>),
    List,
    Show(Name),
    Remove(Name),
}

#[derive(Debug)]
pub(crate) struct Creation {
    name: Name,
    requirements: Vec<Requirement>,
    replace: bool,
    interpreter: Command,
    limits: Limits,
    profile: Profile,
}

/// Why environments could not be looked at.
#[derive(Debug, thiserror::Error)]
enum Look {
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Rows(#[from] rows::Error),
}

impl Engine {
    pub(crate) fn for_an_environment<'e>(
        &'e self,
        call: &Call,
        constraints: &Constraints,
        wanted: Wanted,
        attached: &Attached<'_>,
    ) -> Result<Ready<'e>, Problem> {
        if !matches!(wanted, Wanted::Create(_)) {
            can_be_kept_here(call, constraints, false)?;
        }
        let (task, limits) = match wanted {
            Wanted::Create(create) => {
                let creation = self.creation(call, constraints, *create, attached)?;
                let limits = creation.limits;
                (Task::Create(Box::new(creation)), limits)
            }
            Wanted::List => (Task::List, call.limits()),
            Wanted::Show(name) => (Task::Show(name_of(&name)?), call.limits()),
            Wanted::Remove(name) => (Task::Remove(name_of(&name)?), call.limits()),
        };
        Ok(Ready::new(limits, Work::Environment(task)))
    }

    fn creation(
        &self,
        call: &Call,
        constraints: &Constraints,
        create: Create,
        attached: &Attached<'_>,
    ) -> Result<Creation, Problem> {
        let name = name_of(&create.name)?;
        let requirements = requirements_of(&create)?;
        let asked = create.limits.read();
        let asked = asked.map_err(|error| Problem::from(error).of(ProblemKind::Invalid))?;
        let template = constraints.template();
        let usual = template.as_ref().map_or(USUAL, |own| own.limits);
        let limits = self.limits_of(call, constraints, &asked, usual, attached.from.as_ref())?;
        let limits = Limits { file_size: constraints.max_file_size, ..limits };
        let profile = template.map_or(Template::DEFAULT.profile, |own| own.profile);
        // It is executed to download: only a person at a terminal chooses it by what is on their path.
        let host = match call.caller().door {
            Door::Cli => host_of(attached),
            _ => Host::of_this_process(),
        };
        let interpreter = lang::interpreter(&host, Language::Python)?;
        Ok(Creation { name, requirements, replace: create.replace, interpreter, limits, profile })
    }

    /// Carries it out.
    pub(crate) fn about_environments(
        &self,
        call: &Call,
        task: Task,
        attached: &mut Attached<'_>,
        reins: &Reins,
    ) -> Done {
        let tenant = &call.caller().tenant;
        match task {
            Task::Create(creation) => self.create_environment(tenant, *creation, attached, reins),
            Task::List => answered(self.environments(tenant).map(|all| tool::Listed {
                environments: all.iter().map(|one| self.tell_environment(one)).collect(),
            })),
            Task::Show(name) => {
                answered(self.environment(tenant, &name).map(|one| self.tell_environment(&one)))
            }
            Task::Remove(name) => answered(self.remove_environment(tenant, name)),
        }
    }

    pub(crate) fn environment(&self, tenant: &Tenant, name: &Name) -> Result<Environment, Problem> {
        let found = self.recording()?.look(|conn| Ok(rows::get(conn, tenant, name)?));
        let found = found.map_err(|error: Look| not_looked_up(&error))?;
        found.ok_or_else(|| {
            let fix = format!("`hotcell env ls` lists them; `hotcell env create {name}` makes it");
            let what = format!("there is no environment `{name}`");
            Problem::new(what, "nobody made one of that name", fix).of(ProblemKind::NotFound)
        })
    }

    fn environments(&self, tenant: &Tenant) -> Result<Vec<Environment>, Problem> {
        let listed = self.recording()?.look(|conn| Ok(rows::list(conn, tenant)?));
        listed.map_err(|error: Look| not_looked_up(&error))
    }

    fn remove_environment(&self, tenant: &Tenant, name: Name) -> Result<tool::Removed, Problem> {
        let (of, called) = (tenant.clone(), name.clone());
        let unname = move |tx: &environment::rows::Transaction<'_>| {
            Ok((rows::unname(tx, &of, &called)?, Vec::new()))
        };
        let written = self.recording()?.write(Durability::Synced, unname);
        let (was, _) = written.map_err(not_changed)?;
        let digest = was.made.digest;
        let removed = self.remove_tree(&digest)?;
        Ok(tool::Removed { name: name.to_string(), sha256: digest.to_string(), removed })
    }

    /// Removes a tree that no name stands for and that nobody uses. Says whether it is gone.
    pub(crate) fn remove_tree(&self, digest: &Digest) -> Result<bool, Problem> {
        let record = self.recording()?;
        let store = Store::at(self.home());
        let is_gone = store.remove(digest, &|| is_named(record, digest)).map_err(|error| {
            let fix = "`hotcell gc` tries again";
            Problem::new("not all of it could be removed", cause(&error), fix)
        })?;
        if is_gone {
            let digest = *digest;
            let forgotten = record.write(Durability::Committed, move |tx| {
                rows::forget(tx, &digest)?;
                Ok::<_, rows::Error>(((), Vec::new()))
            });
            forgotten.map_err(not_changed)?;
        }
        Ok(is_gone)
    }

    /// Removes trees that no name stands for and that nobody uses; or only says how many there are.
    pub(crate) fn collect_environments(&self, removes: bool) -> Result<Amount, Problem> {
        let record = self.recording()?;
        let unnamed = record.look(|conn| {
            let sizes = rows::unnamed(conn)?;
            Ok(sizes)
        });
        let unnamed = unnamed.map_err(|error: Look| not_looked_up(&error))?;
        let mut amount = Amount::default();
        for (digest, bytes) in unnamed {
            if !removes || self.remove_tree(&digest)? {
                amount.add(bytes);
            }
        }
        if removes {
            // Nothing depends on what is left over then.
            sweep(record).ok();
        }
        Ok(amount)
    }

    /// Bytes of all trees.
    pub(crate) fn environments_used(&self) -> Result<u64, Problem> {
        let bytes = self.recording()?.look(|conn| Ok(rows::bytes(conn)?));
        bytes.map_err(|error: Look| not_looked_up(&error))
    }

    fn tell_environment(&self, environment: &Environment) -> tool::Environment {
        let Environment { name, requirements, created, made } = environment;
        let interpreter = &made.interpreter;
        let package = |package: &environment::Package| tool::Package {
            name: package.name.clone(),
            version: package.version.clone(),
        };
        tool::Environment {
            name: name.to_string(),
            language: interpreter.language.clone(),
            sha256: made.digest.to_string(),
            interpreter: interpreter.path.clone(),
            interpreter_version: interpreter.version.clone(),
            platform: interpreter.platform.clone(),
            requirements: requirements.clone(),
            packages: made.packages.iter().map(package).collect(),
            files: made.files,
            bytes: made.bytes,
            created_ns: *created,
            present: Store::at(self.home()).hold(&made.digest).is_ok_and(|held| held.is_some()),
        }
    }
}

/// Removes what processes left that ended while they made or removed an environment. Only if one ended badly
/// can there be a tree that never got its name, and does anybody ask for names.
pub(crate) fn sweep_at_start(record: &Record) -> std::io::Result<()> {
    let found_dead = record.found_dead();
    Store::at(record.home()).sweep(&|digest| !found_dead || is_named(record, digest))
}

/// The same, whoever ended how.
fn sweep(record: &Record) -> std::io::Result<()> {
    Store::at(record.home()).sweep(&|digest| is_named(record, digest))
}

/// If that cannot be said, it is.
fn is_named(record: &Record, digest: &Digest) -> bool {
    let named = record.look(|conn| Ok::<_, Look>(rows::is_named(conn, digest)?));
    named.unwrap_or(true)
}

fn answered(answer: Result<impl Serialize, Problem>) -> Done {
    let value = answer.and_then(|answer| {
        serde_json::to_value(answer).map_err(|error| {
            Problem::new("the answer cannot be written", error.to_string(), "report it")
        })
    });
    value.map_or_else(Done::failed, Done::value)
}

pub(crate) fn name_of(text: &str) -> Result<Name, Problem> {
    text.parse().map_err(|bad: environment::BadName| {
        let problem = Problem::new(bad.to_string(), bad.why(), "name it otherwise");
        problem.of(ProblemKind::Invalid)
    })
}

fn requirements_of(create: &Create) -> Result<Vec<Requirement>, Problem> {
    let invalid = |what: &str, why: &str, fix: &str| {
        Err(Problem::new(what, why, fix).of(ProblemKind::Invalid))
    };
    let lines: Vec<String> = match (create.preset, create.python.as_slice()) {
        (Some(_), [_, ..]) => {
            let why = "there are both a preset and packages";
            return invalid("it is not clear what to install", why, "give one of them");
        }
        (None, []) => {
            let why = "there are neither packages nor a preset";
            let fix = "name packages, or the preset `data` or `python`";
            return invalid("it is not clear what to install", why, fix);
        }
        (None, lines) => lines.to_vec(),
        (Some(preset), []) => {
            let found = PRESETS.into_iter().find(|(name, _)| *name == preset.name());
            found.map(|(_, names)| names).unwrap_or_default().iter().map(|&n| n.into()).collect()
        }
    };
    if lines.len() > requirement::MOST {
        return invalid("too much is asked for", "1000 packages are the most", "ask for less");
    }
    let parsed = lines.iter().map(|line| Requirement::parse(line)).collect::<Result<Vec<_>, _>>();
    let parsed = parsed.map_err(|refused| {
        let fix = "write names with versions and markers, such as `numpy>=2`";
        Problem::new(refused.to_string(), refused.why(), fix).of(ProblemKind::Invalid)
    });
    parsed.map(|mut all| {
        // The order does not matter to pip, and the same list is the same.
        all.sort();
        all.dedup();
        all
    })
}

fn not_looked_up(error: &Look) -> Problem {
    let fix = "`hotcell audit verify` says more";
    Problem::new("environments cannot be read", error.to_string(), fix)
}

fn not_changed(error: WriteError<rows::Error>) -> Problem {
    let error = match error {
        WriteError::Own(error) => error,
        WriteError::Append(error) => return not_recorded(&error),
    };
    let (kind, why, fix) = match &error {
        rows::Error::Unknown(_) => {
            (ProblemKind::NotFound, "nobody made one of that name", "`hotcell env ls` lists them")
        }
        rows::Error::Taken(_) => (
            ProblemKind::Conflict,
            "the name stands for it, and nobody said that it is to be replaced",
            "choose another name, or replace it: `--replace`",
        ),
        rows::Error::Full => {
            (ProblemKind::Busy, "each of them takes room", "remove some: `hotcell env rm`")
        }
        _ => (ProblemKind::Error, "the record has them", "`hotcell audit verify` says more"),
    };
    Problem::new(error.to_string(), why, fix).of(kind)
}
