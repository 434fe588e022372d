//! Tools that are a program in a sandbox. What a caller sends becomes an element of `argv`, a value in
//! the environment, standard input or the content of a file, and never a part of a script of ours.

mod code;
pub mod exec;
mod git;
pub mod run;
mod write;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use hotcell_request::{Fault, Spec, Tool, ToolError};
use hotcell_types::{Artifact, Refusal, SomeLimits, Status, Template, Traffic};
use hotcell_workspace::{Change, ChangeKind, Changeset};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::BuiltIn;
use crate::path::NotUsed;
use crate::spec::{Shown, read, tool_of, written};
use run::Content;

/// A tool that is carried out by a program.
pub trait SandboxedTool: Send + Sync {
    /// What it says of itself in words. It costs nothing to ask for.
    fn spec(&self) -> &Spec;

    /// What it says of itself, with its schemas and examples.
    fn tool(&self) -> Result<Tool, Fault>;

    /// What to run for a call, whose arguments have been checked and spelled by the tool's schema.
    fn plan(&self, args: &Value) -> Result<Plan, ToolError>;

    /// What the call is answered with. After an error, nothing that the program changed is to be applied.
    fn answer(&self, ran: &Ran) -> Result<Value, ToolError>;
}

/// What to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    pub program: Program,
    /// Standard input.
    pub stdin: Source,
    /// Variables on top of those that every run has.
    pub env: BTreeMap<OsString, OsString>,
    /// Files for the working directory, by their paths in it.
    pub files: BTreeMap<String, String>,
    /// Files for the working directory whose contents come along with the call.
    pub attached: Vec<Attached>,
    /// The environment whose packages it can use, by name.
    pub environment: Option<String>,
    /// Whether it is always executed, and never forked from an interpreter that had started.
    pub no_zygote: bool,
    /// Whether it asks for a network.
    pub network: bool,
    /// Secrets that it asks for, by the variables in which their placeholders are given.
    pub placeholders: BTreeMap<String, String>,
    /// Limits and seccomp profile in place of those of the tool.
    pub template: Option<Template>,
    /// Limits that the call asks for itself.
    pub asked: SomeLimits,
    /// Whether the working directory is a copy of the workspace. Otherwise it is empty.
    pub working_copy: bool,
    /// Whether what was changed in the copy is to be applied to the workspace, each path judged.
    pub brings_changes: bool,
    /// Paths of the workspace that it changes besides those that the arguments name.
    pub also_writes: &'static [&'static str],
    /// Whether a path that a person typed as the program is one of the host, which is shown to the run.
    pub may_name_host: bool,
    /// The sandbox that stays and that it runs in, by its id.
    pub inside: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Program {
    /// For the interpreter of a language: `python`, `javascript` or `shell`.
    Code { language: String, code: String },
    /// A file of the working directory, for the interpreter of its language.
    Script { name: OsString, language: String, arguments: Vec<OsString> },
    /// `argv`, with a name that is looked up on the sandbox's path, or is a path in the sandbox.
    Command(Vec<OsString>),
}

impl Program {
    fn command(words: impl IntoIterator<Item = String>) -> Program {
        Program::Command(words.into_iter().map(OsString::from).collect())
    }
}

/// A file that comes along with the call: a name in the working directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attached {
    pub name: OsString,
    pub content: Content,
}

/// Where standard input comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    Empty,
    Text(String),
    /// It comes along with the call.
    Attached(Content),
    /// So it does, while the program reads.
    Live,
}

impl From<Option<String>> for Source {
    fn from(text: Option<String>) -> Source {
        text.map_or(Source::Empty, Source::Text)
    }
}

fn variables(env: BTreeMap<String, String>) -> BTreeMap<OsString, OsString> {
    env.into_iter().map(|(name, value)| (name.into(), value.into())).collect()
}

/// What became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ran {
    pub status: Status,
    pub exit_code: Option<i32>,
    pub signal: Option<i32>,
    pub stdout: String,
    pub stderr: String,
    /// Something of the output is missing.
    pub truncated: bool,
    /// Files that were made or changed in the working directory.
    pub artifacts: Vec<Artifact>,
    /// What was changed in the working copy, if there was one.
    pub changes: Option<Changeset>,
    /// What it did with its network, if it had one.
    pub network: Option<Traffic>,
}

impl Plan {
    /// Runs this in an empty directory, with nothing else.
    fn new(program: Program) -> Plan {
        Plan {
            program,
            stdin: Source::Empty,
            env: BTreeMap::new(),
            files: BTreeMap::new(),
            attached: Vec::new(),
            environment: None,
            no_zygote: false,
            network: false,
            placeholders: BTreeMap::new(),
            template: None,
            asked: SomeLimits::default(),
            working_copy: false,
            brings_changes: false,
            also_writes: &[],
            may_name_host: false,
            inside: None,
        }
    }

    /// Runs this in a copy of the workspace.
    fn in_copy(program: Program) -> Plan {
        Plan { working_copy: true, ..Plan::new(program) }
    }
}

pub(crate) fn tools() -> Vec<BuiltIn> {
    [code::tools(), exec::tools(), run::tools(), write::tools(), git::tools()]
        .into_iter()
        .flatten()
        .collect()
}

/// A way from arguments to a plan, and from what became of it to an answer.
struct InSandbox<I, O, const N: usize> {
    spec: Spec,
    examples: fn() -> [Shown; N],
    plan: fn(I) -> Result<Plan, ToolError>,
    answer: fn(&Ran) -> Result<O, ToolError>,
}

impl<I, O, const N: usize> SandboxedTool for InSandbox<I, O, N>
where
    I: DeserializeOwned + JsonSchema,
    O: Serialize + JsonSchema,
{
    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn tool(&self) -> Result<Tool, Fault> {
        tool_of::<I, O>(&self.spec, (self.examples)())
    }

    fn plan(&self, args: &Value) -> Result<Plan, ToolError> {
        let plan = (self.plan)(read(args.clone())?)?;
        check(&plan)?;
        Ok(plan)
    }

    fn answer(&self, ran: &Ran) -> Result<Value, ToolError> {
        written((self.answer)(ran)?)
    }
}

fn in_sandbox<I, O, const N: usize>(
    spec: Spec,
    examples: fn() -> [Shown; N],
    plan: fn(I) -> Result<Plan, ToolError>,
    answer: fn(&Ran) -> Result<O, ToolError>,
) -> BuiltIn
where
    I: DeserializeOwned + JsonSchema + 'static,
    O: Serialize + JsonSchema + 'static,
{
    BuiltIn::Sandboxed(Box::new(InSandbox { spec, examples, plan, answer }))
}

/// Most bytes of one argument or variable: the kernel takes no more, its end mark included.
const ARGUMENT_MOST: usize = 128 * 1024 - 1;
/// Most bytes of all of them, below what the kernel takes with the usual limit on the stack.
const ARGUMENTS_MOST: usize = 1 << 20;

/// Refuses what a kernel would refuse, in words for whoever called.
fn check(plan: &Plan) -> Result<(), ToolError> {
    let argv: &[OsString] = match &plan.program {
        Program::Command(argv) => argv,
        Program::Script { arguments, .. } => arguments,
        Program::Code { .. } => &[],
    };
    let is_command = matches!(plan.program, Program::Command(_));
    if is_command && argv.first().is_some_and(|name| name.is_empty()) {
        let why = "the name of the program is empty";
        return Err(ToolError::new("nothing was run", why, "name a program first"));
    }
    let is_bad_name = |name: &OsString| name.is_empty() || name.as_bytes().contains(&b'=');
    if let Some(name) = plan.env.keys().find(|name| is_bad_name(name)) {
        // To the program, all behind the first `=` is the value, whatever was judged as the name.
        let why = format!("`{}` is not the name of a variable", name.display());
        return Err(ToolError::new("nothing was run", why, "names are not empty and have no `=`"));
    }
    let has_nul = |text: &OsString| text.as_bytes().contains(&0);
    let arguments = argv.iter().map(|text| (text.len(), has_nul(text)));
    // One text to the kernel, as `name=value`.
    let variables = plan
        .env
        .iter()
        .map(|(name, value)| (name.len() + 1 + value.len(), has_nul(name) || has_nul(value)));
    let mut total = 0;
    for (length, has_nul) in arguments.chain(variables) {
        total += length;
        let why = if has_nul {
            "an argument or variable has a NUL character"
        } else if length > ARGUMENT_MOST {
            "an argument or variable is longer than 128 KiB"
        } else if total > ARGUMENTS_MOST {
            "arguments and variables are longer than 1 MiB"
        } else {
            continue;
        };
        let fix = "put it into a file, or send it as standard input";
        return Err(ToolError::new("nothing was run", why, fix));
    }
    Ok(())
}

/// The answer of tools whose program may fail: how it ended, and what it said.
#[derive(Serialize, JsonSchema)]
struct Ended {
    #[schemars(schema_with = "status_schema")]
    status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    exit_code: Option<i32>,
    /// The signal that ended it.
    #[serde(skip_serializing_if = "Option::is_none")]
    signal: Option<i32>,
    stdout: String,
    stderr: String,
    /// Whether something of the output is missing.
    truncated: bool,
    /// Files that it made or changed.
    artifacts: Vec<File>,
    /// What it changed in its copy of the workspace, if it had one.
    #[serde(skip_serializing_if = "Option::is_none")]
    changes: Option<Changes>,
    /// What it did with its network, if it had one.
    #[serde(skip_serializing_if = "Option::is_none")]
    network: Option<Reached>,
}

/// What went over a run's network, as it was seen from outside.
#[derive(Serialize, JsonSchema)]
struct Reached {
    /// Connections and requests that were let through, and that were not.
    allowed: u64,
    refused: u64,
    /// Bytes towards the network, and back.
    up: u64,
    down: u64,
    /// How often the proxy was lost, and every connection with it.
    lost: u64,
    /// The first of what was refused, each once.
    refusals: Vec<NotReached>,
}

#[derive(Serialize, JsonSchema)]
struct NotReached {
    host: String,
    why: String,
    /// What would allow it.
    fix: String,
}

impl From<Traffic> for Reached {
    fn from(traffic: Traffic) -> Reached {
        let Traffic { allowed, refused, up, down, lost, refusals } = traffic;
        let told = |Refusal { host, why, fix }| NotReached { host, why, fix };
        let refusals = refusals.into_iter().map(told).collect();
        Reached { allowed, refused, up, down, lost, refusals }
    }
}

#[derive(Serialize, JsonSchema)]
struct File {
    path: String,
    bytes: u64,
    sha256: String,
}

/// What was changed in a copy of the workspace.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Changes {
    pub files: Vec<Changed>,
    /// What is not taken over, and why.
    pub skipped: Vec<NotUsed>,
    /// How many of both are not told here.
    pub left_out: usize,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct Changed {
    pub path: String,
    pub kind: Way,
    pub bytes: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Way {
    Added,
    Modified,
    Deleted,
}

fn status_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({ "enum": Status::ALL.map(Status::name) })
}

fn ended(ran: &Ran) -> Result<Ended, ToolError> {
    let artifacts = ran.artifacts.iter().cloned();
    Ok(Ended {
        status: ran.status.name(),
        exit_code: ran.exit_code,
        signal: ran.signal,
        stdout: ran.stdout.clone(),
        stderr: ran.stderr.clone(),
        truncated: ran.truncated,
        artifacts: artifacts
            .map(|Artifact { path, bytes, sha256 }| File { path, bytes, sha256 })
            .collect(),
        changes: changes(ran),
        network: ran.network.clone().map(Reached::from),
    })
}

/// Most changes, and most skipped things, that an answer tells. The whole changeset is judged.
const CHANGES_MOST: usize = 1000;

fn changes(ran: &Ran) -> Option<Changes> {
    ran.changes.as_ref().map(Changes::from)
}

impl From<&Changeset> for Changes {
    fn from(set: &Changeset) -> Changes {
        let (all, skipped) = (set.changes(), set.skipped());
        let over = |count: usize| count.saturating_sub(CHANGES_MOST);
        Changes {
            files: all.iter().take(CHANGES_MOST).map(Changed::from).collect(),
            skipped: skipped.iter().take(CHANGES_MOST).cloned().map(NotUsed::from).collect(),
            left_out: over(all.len()) + over(skipped.len()),
        }
    }
}

impl From<&Change> for Changed {
    fn from(change: &Change) -> Changed {
        let kind = match change.kind {
            ChangeKind::Added => Way::Added,
            ChangeKind::Modified => Way::Modified,
            ChangeKind::Deleted => Way::Deleted,
        };
        Changed { path: change.path.to_string(), kind, bytes: change.bytes }
    }
}

/// Most characters of what a program said that are shown in an error.
const SAID_MOST: usize = 1000;

/// The run of a program that is not expected to fail.
fn succeeded<'r>(ran: &'r Ran, doing: &str, fix: &str) -> Result<&'r Ran, ToolError> {
    if ran.status == Status::Success {
        return Ok(ran);
    }
    // It is shown, and must not steer a terminal.
    let harmless = |c: char| if c.is_control() { ' ' } else { c };
    let said: String = ran.stderr.trim().chars().take(SAID_MOST).map(harmless).collect();
    let why = match (ran.status, said.is_empty()) {
        (Status::Failure, false) => said,
        (Status::Failure, true) => "the program failed and did not say why".into(),
        (other, _) => format!("the run ended with the status `{}`", other.name()),
    };
    Err(ToolError::new(format!("{doing} failed"), why, fix))
}
