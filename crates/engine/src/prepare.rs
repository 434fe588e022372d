//! From a permitted call to something that can be started. Nothing is started or changed here.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::Path;
use std::sync::Arc;

use hotcell_ledger::Role;
use hotcell_request::{Call, TypedTool};
use hotcell_sandbox::lang::{self, Host, Language};
use hotcell_sandbox::{Command, Input, Job, Stdin, cause, in_memory};
use hotcell_tools::run::Content;
use hotcell_tools::{BuiltIn, Plan, Program, SandboxedTool, Source, TreeTool};
use hotcell_types::Limits;
use hotcell_workspace::Root;

use crate::artifacts::{self, Product, Sight};
use crate::attached::{self, Attached};
use crate::changes::Copied;
use crate::engine::{Added, Engine};
use crate::products::Provenance;
use crate::reply::{Problem, ProblemKind};

/// A call that can be carried out at once.
pub(crate) struct Ready<'e> {
    pub(crate) limits: Limits,
    pub(crate) work: Work<'e>,
    /// Of what runs in a sandbox.
    pub(crate) provenance: Option<Provenance>,
}

pub(crate) enum Work<'e> {
    Here(Here<'e>),
    InSandbox {
        tool: &'e dyn SandboxedTool,
        job: Box<Job>,
        /// Whose changes are brought back.
        copied: Option<(Arc<Copied>, &'e Root)>,
    },
}

/// What is done in this process.
#[derive(Clone)]
pub(crate) enum Here<'e> {
    Pure(&'e dyn TypedTool),
    Added(Added),
    Tree(&'e dyn TreeTool, &'e Root),
}

impl Ready<'_> {
    /// What a sandbox is needed for.
    pub(crate) fn job(&self) -> Option<&Job> {
        match &self.work {
            Work::Here(_) => None,
            Work::InSandbox { job, .. } => Some(job),
        }
    }
}

impl Engine {
    pub(crate) fn prepare(
        &self,
        call: &Call,
        attached: &mut Attached<'_>,
    ) -> Result<Ready<'_>, Problem> {
        let here = |here| {
            let (limits, work) = (call.limits(), Work::Here(here));
            Ok(Ready { limits, work, provenance: None })
        };
        let key = (call.name().clone(), call.version());
        let Some(tool) = self.built_in.get(&key) else {
            return self.added(&key).map(Here::Added).map_or_else(|| Err(nobody(call)), here);
        };
        match &**tool {
            BuiltIn::Pure(tool) => here(Here::Pure(&**tool)),
            BuiltIn::Tree(tool) => {
                here(Here::Tree(&**tool, self.workspace.as_ref().ok_or_else(no_workspace)?))
            }
            BuiltIn::Sandboxed(tool) => self.for_a_sandbox(call, &**tool, attached),
            BuiltIn::Absent(absent) => {
                Err(Problem::from(absent.error().clone()).of(ProblemKind::Error))
            }
        }
    }

    fn for_a_sandbox<'e>(
        &'e self,
        call: &Call,
        tool: &'e dyn SandboxedTool,
        attached: &mut Attached<'_>,
    ) -> Result<Ready<'e>, Problem> {
        let plan = tool.plan(call.args());
        let plan = plan.map_err(|error| Problem::from(error).of(ProblemKind::Invalid))?;
        let copied = match (plan.working_copy, &self.workspace) {
            (false, _) => None,
            (true, Some(root)) => Some((Arc::new(Copied::new(root.clone())), root)),
            (true, None) => return Err(no_workspace()),
        };
        let brings_changes = plan.brings_changes;
        let mut limits = plan.limits.unwrap_or_else(|| call.limits());
        limits.timeout = limits.timeout.min(call.timeout());
        let provenance = Some(provenance(&plan, attached));
        let mut job = Box::new(job(call, plan, limits, attached)?);
        job.working_copy = copied.as_ref().map(|(copied, _)| Arc::clone(copied) as _);
        let copied = copied.filter(|_| brings_changes);
        Ok(Ready { limits, work: Work::InSandbox { tool, job, copied }, provenance })
    }
}

fn nobody(call: &Call) -> Problem {
    let what = format!("nobody carries out `{}`", call.name());
    Problem::new(what, "it is registered without a part that does it", "add it with `Engine::add`")
}

fn job(
    call: &Call,
    plan: Plan,
    limits: Limits,
    attached: &mut Attached<'_>,
) -> Result<Job, Problem> {
    let mut inputs = Vec::new();
    let command = resolve(plan.program, &mut inputs)?;
    let mut env: BTreeMap<OsString, OsString> = lang::runtime_env(&limits);
    env.insert("PATH".into(), lang::search_path(&command));
    env.extend(plan.env);
    for (name, text) in plan.files {
        inputs.push(Input { name: name.into(), file: kept(text.as_bytes())? });
    }
    for wanted in plan.attached {
        let found = attached.files.iter().find(|given| *given.name() == wanted.name);
        let found = found.filter(|given| *given.content() == wanted.content);
        let found = found.ok_or_else(|| not_attached(&wanted.name))?;
        let file = found.open().map_err(|error| unreadable(&wanted.name, &error))?;
        inputs.push(Input { name: wanted.name, file });
    }
    let stdin = stdin(plan.stdin, attached)?;
    let profile = plan.profile.unwrap_or(call.tool().tool().template.template().profile);
    Ok(Job { command, env, stdin, inputs, working_copy: None, limits, profile })
}

/// What the run is given, and whether it sees more than that.
fn provenance(plan: &Plan, attached: &Attached<'_>) -> Provenance {
    let mut given = Vec::new();
    let text = |role, name: &str, text: &str| {
        Product::new(role, name, artifacts::Content::Bytes(text.as_bytes().to_vec()))
    };
    let (program, script) = match &plan.program {
        Program::Command(words) => {
            let name = words.first().map(Path::new).and_then(Path::file_name);
            (name.unwrap_or_default().to_string_lossy().into_owned(), None)
        }
        Program::Script { name, .. } => (name.to_string_lossy().into_owned(), Some(name)),
        Program::Code { language, code } => {
            let name = language.parse().map_or("code", |language: Language| language.main_file());
            given.push(text(Role::Script, name, code));
            (name.to_owned(), None)
        }
    };
    given.extend(attached.files.iter().filter_map(|file| {
        file.product(if Some(file.name()) == script { Role::Script } else { Role::Input })
    }));
    given.extend(plan.files.iter().map(|(name, content)| text(Role::Input, name, content)));
    let stdin = format!("{program}:stdin");
    match (&plan.stdin, &attached.stdin) {
        (Source::Text(content), _) => given.push(text(Role::Input, &stdin, content)),
        (Source::Attached(_), Some(attached::Input::Content(content))) => {
            let product = content.product(Role::Input);
            given.extend(product.map(|product| Product { name: stdin, ..product }));
        }
        _ => {}
    }
    let sees_more = plan.working_copy || plan.stdin == Source::Live;
    Provenance { program, given, sight: if sees_more { Sight::More } else { Sight::Given } }
}

/// The command, with the file that it needs among the inputs.
fn resolve(program: Program, inputs: &mut Vec<Input>) -> Result<Command, Problem> {
    let host = Host::of_this_process();
    match program {
        Program::Command(words) => {
            let mut words = words.into_iter();
            let name = words.next().unwrap_or_default();
            let rest: Vec<OsString> = words.collect();
            Ok(lang::command(&host, &name, &rest)?)
        }
        Program::Script { name, language, arguments } => {
            let language: Language = language.parse()?;
            Ok(lang::script(&host, language, &name, &arguments)?)
        }
        Program::Code { language, code } => {
            let language: Language = language.parse()?;
            let name = OsStr::new(language.main_file());
            inputs.push(Input { name: name.into(), file: kept(code.as_bytes())? });
            Ok(lang::script(&host, language, name, &[])?)
        }
    }
}

fn stdin(source: Source, attached: &mut Attached<'_>) -> Result<Stdin, Problem> {
    let is_it = |given: &Content, wanted: &Content| given == wanted;
    match (source, attached.stdin.take()) {
        (Source::Empty, None) => Ok(Stdin::Empty),
        (Source::Text(text), None) => Ok(Stdin::From(kept(text.as_bytes())?)),
        (Source::Live, Some(attached::Input::Live(file))) => Ok(Stdin::From(file)),
        (Source::Attached(wanted), Some(attached::Input::Content(given)))
            if is_it(given.content(), &wanted) =>
        {
            let opened = given.open();
            Ok(Stdin::From(opened.map_err(|error| unreadable(given.name(), &error))?))
        }
        _ => Err(not_attached(OsStr::new("standard input"))),
    }
}

fn kept(bytes: &[u8]) -> Result<std::fs::File, Problem> {
    in_memory(bytes).map_err(|error| {
        Problem::new("an argument could not be kept in memory", cause(&error), "free some memory")
    })
}

fn no_workspace() -> Problem {
    let why = "no directory was given for tools to read";
    Problem::new("there is no workspace", why, "give one with `--workspace DIR`")
}

fn not_attached(name: &OsStr) -> Problem {
    let what = format!("`{}` did not come along with the call as it is named", name.display());
    let why = "the arguments name contents by their digests, and this is not what was handed over";
    Problem::new(what, why, "hand over exactly what the arguments name").of(ProblemKind::Invalid)
}

fn unreadable(name: &OsStr, error: &io::Error) -> Problem {
    let what = format!("`{}` cannot be given to the run", name.display());
    Problem::new(what, cause(error), "leave the file as it is until the run has begun")
        .of(ProblemKind::Invalid)
}
