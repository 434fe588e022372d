//! Carries out a permitted call: in this process where it only reads, in a sandbox otherwise.

use std::collections::BTreeMap;
use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::io;
use std::sync::Arc;

use hotcell_policy::Permit;
use hotcell_request::{Call, ToolError};
use hotcell_sandbox::lang::{self, Host, Language};
use hotcell_sandbox::{Command, Input, Item, Job, Refusal, Sink, Stdin, What, WorkingCopy};
use hotcell_tools::{BuiltIn, Deadline, Plan, Program, Ran, SandboxedTool};
use hotcell_types::{Exit, Outcome, Status};
use hotcell_workspace::{Root, SnapshotBounds};
use serde_json::Value;

use crate::engine::Engine;
use crate::path::{Done, failed};
use crate::reply::Problem;

impl Engine {
    /// Only who holds the permit gets here.
    pub(crate) fn carry_out(&self, permit: &Permit<'_>) -> Done {
        let call = permit.call();
        let key = (call.name().clone(), call.version());
        let Some(tool) = self.built_in.get(&key) else { return nobody(call) };
        let within = Deadline::after(call.timeout().duration());
        match &**tool {
            BuiltIn::Pure(tool) => done(tool.call(call.args().clone())),
            BuiltIn::Tree(tool) => match &self.workspace {
                Some(root) => done(tool.call(root, call.args().clone(), within)),
                None => failed(Status::Error, no_workspace()),
            },
            BuiltIn::Sandboxed(tool) => self.in_a_sandbox(call, &**tool),
            BuiltIn::Absent(absent) => failed(Status::Error, absent.error().clone().into()),
        }
    }

    fn in_a_sandbox(&self, call: &Call, tool: &dyn SandboxedTool) -> Done {
        let plan = match tool.plan(call.args()) {
            Ok(plan) => plan,
            Err(error) => return failed(Status::Invalid, error.into()),
        };
        if plan.brings_changes {
            return failed(Status::Error, no_changes());
        }
        let job = match self.job(call, &plan) {
            Ok(job) => job,
            Err(problem) => return failed(Status::Error, problem),
        };
        let ran = self.sandbox().and_then(|sandbox| sandbox.start(job)?.wait(&mut Unheard, None));
        let outcome = match ran {
            Ok(outcome) => outcome,
            Err(refusal) => return failed(Status::Error, of_refusal(&refusal)),
        };
        let status = outcome.status;
        let answer = tool.answer(&ran_of(&outcome));
        Done { status, sandbox: Some(outcome.level.to_string()), ..done(answer).or(status) }
    }

    fn job(&self, call: &Call, plan: &Plan) -> Result<Job, Problem> {
        let limits = call.limits();
        let host = Host::of_this_process();
        let (command, script) = resolve(&host, &plan.program)?;
        let mut env: BTreeMap<OsString, OsString> = lang::runtime_env(&limits);
        env.insert("PATH".into(), lang::search_path(&command));
        env.extend(plan.env.iter().map(|(key, value)| (key.into(), value.into())));
        let mut inputs: Vec<Input> = script.into_iter().collect();
        for (name, text) in &plan.files {
            inputs.push(Input { name: name.into(), file: in_memory(text.as_bytes())? });
        }
        let stdin = match &plan.stdin {
            Some(text) => Stdin::From(in_memory(text.as_bytes())?),
            None => Stdin::Empty,
        };
        let working_copy = match (plan.working_copy, &self.workspace) {
            (false, _) => None,
            (true, Some(root)) => Some(Arc::new(Copied(root.clone())) as Arc<dyn WorkingCopy>),
            (true, None) => return Err(no_workspace()),
        };
        let profile = call.tool().tool().template.template().profile;
        Ok(Job { command, env, stdin, inputs, working_copy, limits, profile })
    }
}

/// The workspace, as it is when the run begins.
#[derive(Debug)]
struct Copied(Root);

impl WorkingCopy for Copied {
    fn items(&self) -> Box<dyn Iterator<Item = io::Result<Item>> + '_> {
        let handover = match self.0.snapshot(SnapshotBounds::default()) {
            Ok(handover) => handover,
            Err(error) => {
                return Box::new(std::iter::once(Err(io::Error::other(error.to_string()))));
            }
        };
        Box::new(handover.map(|opened| {
            let opened = opened.map_err(|error| io::Error::other(error.to_string()))?;
            let what = match opened.what {
                hotcell_workspace::What::File { file, .. } => What::File(file),
                hotcell_workspace::What::Directory => What::Directory,
                hotcell_workspace::What::Symlink { target } => What::Link(CString::new(target)?),
            };
            Ok(Item { path: CString::new(opened.path.as_str())?, what })
        }))
    }
}

/// What a call prints is in its result.
struct Unheard;

impl Sink for Unheard {
    fn stdout(&mut self, _: &[u8]) {}
    fn stderr(&mut self, _: &[u8]) {}
}

fn resolve(host: &Host, program: &Program) -> Result<(Command, Option<Input>), Problem> {
    let of_language =
        |error: lang::Error| Problem::new(error.to_string(), error.why(), error.fix());
    match program {
        Program::Command(words) => {
            let mut words = words.iter().map(OsString::from);
            let name = words.next().unwrap_or_default();
            let rest: Vec<OsString> = words.collect();
            Ok((lang::command(host, &name, &rest).map_err(of_language)?, None))
        }
        Program::Code { language, code } => {
            let language: Language = language.parse().map_err(of_language)?;
            let name = OsStr::new(language.main_file());
            let command = lang::script(host, language, name, &[]).map_err(of_language)?;
            Ok((command, Some(Input { name: name.into(), file: in_memory(code.as_bytes())? })))
        }
    }
}

fn in_memory(bytes: &[u8]) -> Result<File, Problem> {
    hotcell_sandbox::in_memory(bytes).map_err(|error| {
        Problem::new(
            "an argument could not be kept in memory",
            error.to_string(),
            "free some memory",
        )
    })
}

fn done(answer: Result<Value, ToolError>) -> Done {
    match answer {
        Ok(value) => {
            Done { status: Status::Success, value: Some(value), problem: None, sandbox: None }
        }
        Err(error) => failed(Status::Failure, error.into()),
    }
}

impl Done {
    /// A run that ended badly is told so, with what it printed.
    fn or(self, status: Status) -> Done {
        Done { status: if status == Status::Success { self.status } else { status }, ..self }
    }
}

fn ran_of(outcome: &Outcome) -> Ran {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ran {
        status: outcome.status,
        exit_code: match outcome.exit {
            Some(Exit::Code(code)) => Some(code.into()),
            _ => None,
        },
        signal: match outcome.exit {
            Some(Exit::Signal(signal)) => Some(signal.into()),
            _ => None,
        },
        stdout: text(&outcome.stdout.bytes),
        stderr: text(&outcome.stderr.bytes),
        truncated: outcome.stdout.truncated || outcome.stderr.truncated,
        artifacts: outcome.artifacts.clone(),
        changes: None,
    }
}

fn of_refusal(refusal: &Refusal) -> Problem {
    Problem::new(
        "it was not run",
        refusal.to_string(),
        "`hotcell doctor` says what this host allows",
    )
}

/// Until changesets are judged and applied path by path, a run whose point they are is not begun.
fn no_changes() -> Problem {
    let why = "what a run changed cannot be brought back into the workspace yet";
    Problem::new("it was not run", why, "use `code_execute`, whose files are in its answer")
}

fn no_workspace() -> Problem {
    let why = "no directory was given for tools to read";
    Problem::new("there is no workspace", why, "give one with `--workspace DIR`")
}

fn nobody(call: &Call) -> Done {
    let what = format!("nobody carries out `{}`", call.name());
    failed(
        Status::Error,
        Problem::new(what, "it is registered without a part that does it", "report it"),
    )
}
