//! From a permitted call to something that can be started. Nothing is started or changed here.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::path::Path;
use std::sync::Arc;

use hotcell_environment::Held;
use hotcell_ledger::Role;
use hotcell_policy::Constraints;
use hotcell_record::Redactor;
use hotcell_request::{Call, TypedTool, WORKSPACE};
use hotcell_sandbox::lang::{self, Host, Language};
use hotcell_sandbox::{
    Command, Input, Item, Job, Network, Stdin, What, WorkingCopy, cause, in_memory,
};
use hotcell_tools::{BuiltIn, Plan, Program, SandboxedTool, Source, TreeTool};
use hotcell_types::{Bytes, Door, Effect, Limits, SomeLimits};
use hotcell_vault::Purse;
use hotcell_workspace::{Root, Window};

use crate::artifacts::{self, Product, Sight};
use crate::attached::{self, Attached};
use crate::changes::Copied;
use crate::engine::{Added, Engine};
use crate::environment::{Task, Used};
use crate::network::{self, BELIEVED, Border, CERTIFICATES, Crossing};
use crate::products::Provenance;
use crate::reply::{Problem, ProblemKind};
use crate::secrets;
use crate::stay::{self, Inside};
use crate::surroundings::Surroundings;
use crate::web::Errand;

/// A call that can be carried out at once.
pub(crate) struct Ready<'e> {
    pub(crate) limits: Limits,
    /// Paths that it writes besides those that the call names.
    pub(crate) also_writes: &'static [&'static str],
    pub(crate) work: Work<'e>,
    /// Of what runs in a sandbox.
    pub(crate) provenance: Option<Provenance>,
    /// What of the files that it makes is not to be kept; without it, nothing is.
    pub(crate) hidden: Option<Arc<Redactor>>,
    /// The environment that it uses, which is not removed meanwhile.
    pub(crate) held: Option<Held>,
}

pub(crate) enum Work<'e> {
    Here(Here<'e>),
    InSandbox {
        tool: &'e dyn SandboxedTool,
        job: Box<Job>,
        /// Its way out, if it has one.
        crossing: Option<Box<Crossing>>,
        /// Whose changes are brought back.
        copied: Option<(Arc<Copied>, Root)>,
        /// The sandbox that stays and that it runs in.
        inside: Option<Inside>,
    },
    Environment(Task),
    Stay(stay::Task),
    Web(Box<Errand>),
}

/// What is done in this process.
#[derive(Clone)]
pub(crate) enum Here<'e> {
    Pure(&'e dyn TypedTool),
    Added(Added),
    Tree(&'e dyn TreeTool, Root),
}

impl<'e> Ready<'e> {
    pub(crate) fn new(limits: Limits, work: Work<'e>) -> Ready<'e> {
        let (provenance, hidden, held) = (None, None, None);
        Ready { limits, also_writes: &[], work, provenance, hidden, held }
    }

    /// Lets a tool that searches the tree see only what the policy would let the call name.
    pub(crate) fn look_through(&mut self, window: impl FnOnce() -> Window) {
        if let Work::Here(Here::Tree(_, root)) = &mut self.work {
            *root = root.seen_through(window());
        }
    }

    /// Who decides where a call may go that has a way out.
    pub(crate) fn watch(
        &mut self,
        border: impl FnOnce() -> Result<Border, Problem>,
    ) -> Result<(), Problem> {
        match &mut self.work {
            Work::InSandbox { crossing: Some(crossing), .. } => {
                crossing.border = Some(Arc::new(border()?.with(crossing.purse.clone())));
            }
            Work::Web(errand) => errand.border = Some(border()?.with(errand.purse.clone())),
            Work::InSandbox { crossing: None, .. }
            | Work::Here(_)
            | Work::Environment(_)
            | Work::Stay(_) => {}
        }
        Ok(())
    }

    /// Texts that are secret whatever the call says of them.
    pub(crate) fn secrets(&self) -> Vec<String> {
        let purse = match &self.work {
            Work::InSandbox { crossing: Some(crossing), .. } => crossing.purse.as_ref(),
            Work::Web(errand) => errand.purse.as_ref(),
            _ => None,
        };
        purse.map(|purse| purse.spellings()).unwrap_or_default()
    }

    /// What a sandbox is needed for that is not there yet.
    pub(crate) fn job(&self) -> Option<&Job> {
        match &self.work {
            Work::InSandbox { job, inside: None, .. } => Some(job),
            Work::InSandbox { inside: Some(_), .. }
            | Work::Here(_)
            | Work::Environment(_)
            | Work::Stay(_)
            | Work::Web(_) => None,
        }
    }

    /// Memory that is to be there for it. A sandbox that stays has had its own since it was made.
    pub(crate) fn memory(&self) -> Bytes {
        match &self.work {
            Work::InSandbox { inside: Some(_), .. } => Bytes::mib(1),
            _ => self.limits.memory,
        }
    }

    /// Whether it runs in a sandbox, sooner or later.
    pub(crate) fn needs_a_turn(&self) -> bool {
        match &self.work {
            Work::Here(_) | Work::Web(_) | Work::Stay(_) => false,
            Work::InSandbox { .. } => true,
            Work::Environment(task) => matches!(task, Task::Create(_)),
        }
    }
}

impl Engine {
    /// Whether a call asks for no more than the operator lets anybody have.
    pub(crate) fn below_ceiling(
        &self,
        asked: &SomeLimits,
        from: Option<&Surroundings>,
    ) -> Result<(), Problem> {
        let Some(above) = asked.above(&self.ceiling_of(from)) else { return Ok(()) };
        let fix = "ask for less, or have the operator raise the ceiling";
        let what = "the call asks for more than the operator allows";
        Err(Problem::new(what, above.to_string(), fix).of(ProblemKind::Blocked))
    }

    pub(crate) fn prepare(
        &self,
        call: &Call,
        constraints: &Constraints,
        attached: &Attached<'_>,
    ) -> Result<Ready<'_>, Problem> {
        let key = (call.name().clone(), call.version());
        let Some(tool) = self.built_in.get(&key) else {
            return self.added(call.tool()).map_or_else(
                || Err(nobody(call)),
                |added| for_here(call, constraints, Here::Added(added)),
            );
        };
        match &**tool {
            BuiltIn::Pure(tool) => for_here(call, constraints, Here::Pure(&**tool)),
            BuiltIn::Tree(tool) => {
                let root = self.workspace_of(attached.from.as_ref()).ok_or_else(no_workspace)?;
                for_here(call, constraints, Here::Tree(&**tool, root.clone()))
            }
            BuiltIn::Sandboxed(tool) => self.for_a_sandbox(call, constraints, &**tool, attached),
            BuiltIn::Environment(tool) => {
                let wanted = tool.wanted(call.args());
                let wanted = wanted.map_err(|e| Problem::from(e).of(ProblemKind::Invalid))?;
                self.for_an_environment(call, constraints, wanted, attached)
            }
            BuiltIn::Stay(tool) => {
                let wanted = tool.wanted(call.args());
                let wanted = wanted.map_err(|e| Problem::from(e).of(ProblemKind::Invalid))?;
                self.for_a_stay(call, constraints, wanted, attached)
            }
            BuiltIn::Web(tool) => {
                let wanted = tool.wanted(call.args());
                let wanted = wanted.map_err(|e| Problem::from(e).of(ProblemKind::Invalid))?;
                self.for_the_web(call, constraints, wanted)
            }
            BuiltIn::Absent(absent) => {
                Err(Problem::from(absent.error().clone()).of(ProblemKind::Error))
            }
        }
    }

    fn for_a_sandbox<'e>(
        &'e self,
        call: &Call,
        constraints: &Constraints,
        tool: &'e dyn SandboxedTool,
        attached: &Attached<'_>,
    ) -> Result<Ready<'e>, Problem> {
        let plan = tool.plan(call.args());
        let mut plan = plan.map_err(|error| Problem::from(error).of(ProblemKind::Invalid))?;
        let from = attached.from.clone();
        let copied = match (plan.working_copy, self.workspace_of(from.as_ref())) {
            (false, _) => None,
            (true, Some(root)) => {
                let copied = Copied::new(root.clone(), self.copies.clone());
                Some((Arc::new(copied), root.clone()))
            }
            (true, None) => return Err(no_workspace()),
        };
        let (brings_changes, also_writes) = (plan.brings_changes, plan.also_writes);
        if let Some(template) = constraints.template() {
            network::suits(call, &plan, &template)?;
            plan.template = Some(template);
        }
        let inside = plan.inside.take();
        let inside = inside.map(|id| self.inside(call, constraints, &id, from.as_ref()));
        let inside = inside.transpose()?;
        let usual = match (&inside, &plan.template) {
            (Some((_, own)), _) => *own,
            (None, Some(own)) => own.limits,
            (None, None) => call.limits(),
        };
        let mut limits = self.limits_of(call, constraints, &plan.asked, usual, from.as_ref())?;
        if let Some((_, own)) = &inside {
            limits = Limits { timeout: limits.timeout, output: limits.output, ..*own };
        }
        if !brings_changes {
            // What is brought back is held to it when that is known: what a run keeps to itself is not.
            limits.file_size = constraints.max_file_size;
        }
        if let Some((copied, _)) = &copied {
            limits = copied.with_room(limits, self.machine().memory)?;
        }
        let provenance = Some(provenance(&plan, attached));
        let files = std::mem::take(&mut plan.files);
        let environment = match plan.environment.take() {
            Some(name) => Some(self.used_environment(call, &name, attached)?),
            None => None,
        };
        let purse = self.purse(call, &mut plan)?;
        let mut job = Box::new(job(call, plan, limits, attached, environment.as_ref())?);
        let crossing = self.crossing(&mut job, purse)?;
        let held = environment.map(|environment| environment.held);
        let given = Given::new(files, &job.inputs)?;
        job.working_copy = match &copied {
            Some((copied, _)) => Some(Arc::clone(copied) as _),
            None if given.is_empty() => None,
            None => Some(Arc::new(given)),
        };
        let copied = copied.filter(|_| brings_changes);
        let inside = inside.map(|(inside, _)| inside);
        let work = Work::InSandbox { tool, job, crossing, copied, inside };
        Ok(Ready { also_writes, provenance, held, ..Ready::new(limits, work) })
    }

    /// The way out of a run that has one. What its program is told of it stands below what it is given.
    fn crossing(
        &self,
        job: &mut Job,
        purse: Option<Arc<Purse>>,
    ) -> Result<Option<Box<Crossing>>, Problem> {
        if job.network == Network::None {
            return if purse.is_some() { Err(secrets::without_network()) } else { Ok(None) };
        }
        let crossing = Crossing::new(purse)?;
        let mut env = crossing.variables(job.profile);
        if !self.network.intercept.is_empty() || crossing.purse.is_some() {
            let file = in_memory(&crossing.certificates()?);
            let file = file.map_err(|error| unreadable(CERTIFICATES.as_ref(), &error))?;
            job.inputs.push(Input { name: CERTIFICATES.into(), file });
            let place: OsString = format!("{WORKSPACE}/{CERTIFICATES}").into();
            env.extend(BELIEVED.map(|name| (OsString::from(name), place.clone())));
        }
        env.append(&mut job.env);
        job.env = env;
        Ok(Some(Box::new(crossing)))
    }

    /// What a call is held to that asks for these limits: those of operator and policy are above them.
    pub(crate) fn limits_of(
        &self,
        call: &Call,
        constraints: &Constraints,
        asked: &SomeLimits,
        usual: Limits,
        from: Option<&Surroundings>,
    ) -> Result<Limits, Problem> {
        self.below_ceiling(asked, from)?;
        below_policy(asked, constraints)?;
        let most = ceilings(constraints);
        let mut limits = asked.over(most.cap(self.ceiling_of(from).cap(usual)));
        limits.timeout = limits.timeout.min(call.timeout());
        Ok(limits)
    }
}

fn for_here<'e>(
    call: &Call,
    constraints: &Constraints,
    here: Here<'e>,
) -> Result<Ready<'e>, Problem> {
    let may_write = matches!(here, Here::Added(_)) && call.effects().has(Effect::Write);
    can_be_kept_here(call, constraints, may_write)?;
    Ok(Ready::new(ceilings(constraints).cap(call.limits()), Work::Here(here)))
}

/// Whether a call asks for no more than the rules that allow it allow.
pub(crate) fn below_policy(asked: &SomeLimits, constraints: &Constraints) -> Result<(), Problem> {
    let Some(above) = asked.above(&ceilings(constraints)) else { return Ok(()) };
    let what = "the call asks for more than the policy allows";
    let fix = "ask for less, or have the policy changed";
    Err(Problem::new(what, above.to_string(), fix).of(ProblemKind::Blocked))
}

/// Refuses what nobody can hold a tool to that is carried out in this process: it is in no sandbox. Its time
/// and its output are looked at.
pub(crate) fn can_be_kept_here(
    call: &Call,
    constraints: &Constraints,
    may_write: bool,
) -> Result<(), Problem> {
    let Constraints { sandbox, max_file_size, memory, cpu, processes, disk, .. } = *constraints;
    let said = |name: &'static str, value: Option<String>| Some((name, value?));
    let not_kept = said("sandbox", sandbox.map(str::to_owned))
        .or_else(|| said("memory", memory.map(|most| most.to_string())))
        .or_else(|| said("cpu", cpu.map(|most| most.to_string())))
        .or_else(|| said("processes", processes.map(|most| most.to_string())))
        .or_else(|| said("disk", disk.map(|most| most.to_string())))
        .or_else(|| {
            let most = max_file_size.filter(|_| may_write);
            said("max_file_size", most.map(|most| most.to_string()))
        });
    let Some((name, value)) = not_kept else { return Ok(()) };
    let what = format!("`{}` cannot be carried out as the policy wants it", call.name());
    let why = match name {
        "sandbox" => format!("it would have to run in `{value}`, and it runs in no sandbox"),
        _ => format!("`{name}: {value}` can only be kept to in a sandbox, and it runs in none"),
    };
    let fix = format!("have the rule speak of tools that run in one, or leave `{name}` out");
    Err(Problem::new(what, why, fix).of(ProblemKind::Blocked))
}

/// The most that the rules allow what they allow.
pub(crate) fn ceilings(constraints: &Constraints) -> SomeLimits {
    let Constraints { memory, timeout, cpu, processes, disk, output, .. } = *constraints;
    SomeLimits { memory, timeout, cpu, pids: processes, disk, output, ..SomeLimits::default() }
}

fn nobody(call: &Call) -> Problem {
    let what = format!("nobody carries out `{}`", call.name());
    let why = "it is registered without a part that does it, or was removed";
    Problem::new(what, why, "add it with `Engine::add`")
}

fn job(
    call: &Call,
    plan: Plan,
    limits: Limits,
    attached: &Attached<'_>,
    environment: Option<&Used>,
) -> Result<Job, Problem> {
    let mut inputs = Vec::new();
    let of_host = plan.may_name_host && call.caller().door == Door::Cli;
    let host = host_of(attached);
    let mut env: BTreeMap<OsString, OsString> = lang::runtime_env(&limits);
    let no_zygote = plan.no_zygote;
    let mut command = match environment {
        None => {
            let command = resolve(plan.program, &host, of_host, &mut inputs)?;
            env.insert("PATH".into(), lang::search_path(&command));
            env.extend(plan.env);
            command
        }
        Some(used) => {
            let command = used.resolve(plan.program, &host, of_host, &mut inputs)?;
            env.insert("PATH".into(), used.search_path(&command));
            env.extend(plan.env);
            used.add_to(&mut env);
            command
        }
    };
    command.forks &= !no_zygote;
    for wanted in plan.attached {
        let found = attached.files.iter().find(|given| *given.name() == wanted.name);
        let found = found.filter(|given| *given.content() == wanted.content);
        let found = found.ok_or_else(|| not_attached(&wanted.name))?;
        let file = found.open().map_err(|error| unreadable(&wanted.name, &error))?;
        inputs.push(Input { name: wanted.name, file });
    }
    let stdin = stdin(plan.stdin, attached)?;
    let usual = || call.tool().tool().template.template().clone();
    let (profile, network) = network::of(&plan.template.unwrap_or_else(usual), plan.network);
    Ok(Job { command, env, stdin, inputs, working_copy: None, limits, profile, network })
}

/// Where the caller's programs are.
pub(crate) fn host_of(attached: &Attached<'_>) -> Host {
    let own = attached.from.as_ref().and_then(|from| from.host.clone());
    own.unwrap_or_else(Host::of_this_process)
}

/// Files that the arguments have as texts, by their paths in the working directory.
#[derive(Debug)]
struct Given(BTreeMap<String, String>);

impl Given {
    /// Refuses what would take the place of an input, or lie in it as in a directory.
    fn new(files: BTreeMap<String, String>, inputs: &[Input]) -> Result<Given, Problem> {
        let first = |path: &String| path.split('/').next().map(OsStr::new).map(OsStr::to_owned);
        let is_taken =
            |path: &&String| inputs.iter().any(|given| Some(&given.name) == first(path).as_ref());
        match files.keys().find(is_taken) {
            None => Ok(Given(files)),
            Some(path) => {
                let what = format!("the file `{path}` cannot be given to the run");
                let why = "the code itself, or another file, has that name";
                Err(Problem::new(what, why, "name it otherwise").of(ProblemKind::Invalid))
            }
        }
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl WorkingCopy for Given {
    fn items(&self) -> Box<dyn Iterator<Item = io::Result<Item>> + '_> {
        let above = |path: &str| -> Vec<String> {
            path.match_indices('/')
                .filter_map(|(end, _)| Some(path.get(..end)?.to_owned()))
                .collect()
        };
        let directories: BTreeSet<String> = self.0.keys().flat_map(|path| above(path)).collect();
        let directories = directories.into_iter().map(|path| item(&path, What::Directory));
        let file =
            |(path, text): (&String, &String)| item(path, What::File(in_memory(text.as_bytes())?));
        Box::new(directories.chain(self.0.iter().map(file)))
    }
}

fn item(path: &str, what: What) -> io::Result<Item> {
    Ok(Item { path: CString::new(path)?, what })
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
    // What nobody named does not get to the run, whoever handed it over.
    let is_named = |file: &&attached::Attachment| {
        plan.attached.iter().any(|wanted| wanted.name == *file.name())
    };
    given.extend(attached.files.iter().filter(is_named).filter_map(|file| {
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
///
/// Whoever is not a person at a terminal names paths of the sandbox only: one of the host would be shown to
/// the run, an interpreter's with all that is around it.
pub(crate) fn resolve(
    program: Program,
    host: &Host,
    of_host: bool,
    inputs: &mut Vec<Input>,
) -> Result<Command, Problem> {
    match program {
        Program::Command(words) => {
            let name = words.first().cloned().unwrap_or_default();
            if !of_host && name.as_encoded_bytes().contains(&b'/') {
                let program = Path::new(WORKSPACE).join(&name);
                let (read_only, tree, note, forks) = (Vec::new(), None, None, false);
                return Ok(Command { program, args: words, read_only, tree, note, forks });
            }
            let rest = words.get(1..).unwrap_or_default();
            Ok(lang::command(host, &name, rest)?)
        }
        Program::Script { name, language, arguments } => {
            let language: Language = language.parse()?;
            Ok(lang::script(host, language, &name, &arguments)?)
        }
        Program::Code { language, code } => {
            let language: Language = language.parse()?;
            let name = OsStr::new(language.main_file());
            inputs.push(Input { name: name.into(), file: kept(code.as_bytes())? });
            Ok(lang::script(host, language, name, &[])?)
        }
    }
}

/// What comes in stays attached until the call is begun: it may have to be judged and prepared again.
fn stdin(source: Source, attached: &Attached<'_>) -> Result<Stdin, Problem> {
    let stdin = attached.stdin.as_ref().map(attached::Input::try_clone).transpose();
    let stdin = stdin.map_err(|error| unreadable(OsStr::new("standard input"), &error))?;
    match (source, stdin) {
        (Source::Empty, None) => Ok(Stdin::Empty),
        (Source::Text(text), None) => Ok(Stdin::From(kept(text.as_bytes())?)),
        (Source::Live, Some(attached::Input::Live(file))) => Ok(Stdin::From(file)),
        (Source::Attached(wanted), Some(attached::Input::Content(given)))
            if *given.content() == wanted =>
        {
            let opened = given.open();
            Ok(Stdin::From(opened.map_err(|error| unreadable(given.name(), &error))?))
        }
        _ => Err(not_attached(OsStr::new("standard input"))),
    }
}

pub(crate) fn kept(bytes: &[u8]) -> Result<std::fs::File, Problem> {
    in_memory(bytes).map_err(|error| {
        Problem::new("an argument could not be kept in memory", cause(&error), "free some memory")
    })
}

pub(crate) fn no_workspace() -> Problem {
    let why = "no directory was given for tools to read";
    let fix = "give one with `--workspace DIR`";
    Problem::new("there is no workspace", why, fix).of(ProblemKind::NotFound)
}

pub(crate) fn not_attached(name: &OsStr) -> Problem {
    let what = format!("`{}` did not come along with the call as it is named", name.display());
    let why = "the arguments name contents by their digests, and this is not what was handed over";
    Problem::new(what, why, "hand over exactly what the arguments name").of(ProblemKind::Invalid)
}

fn unreadable(name: &OsStr, error: &io::Error) -> Problem {
    let what = format!("`{}` cannot be given to the run", name.display());
    Problem::new(what, cause(error), "free some memory, or close some files")
}
