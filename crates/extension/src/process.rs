//! The evaluator as a run in the policy sandbox.

use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant};

use hotcell_evaluator::wire::{Answer, Place};
use hotcell_sandbox::{Command, Input, Job, Network, Refusal, Running, Sink, Stdin, in_memory};
use hotcell_types::{Span, Template};

use crate::extension::Fault;
use crate::line::{Line, Lost};

/// The program, built by build.rs.
const PROGRAM: &[u8] = include_bytes!(env!("HOTCELL_EVALUATOR"));
const NAME: &str = "evaluator";
/// Where a run finds what it is given.
const PATH: &str = "/work/evaluator";

const TEMPLATE: &str = "policy-sandbox";
/// The template's time is for one evaluation; the process itself stays as long as it is good.
const RESIDENT: Span = Span::seconds(366 * 24 * 60 * 60);

/// How long loading may take.
const LOADED_WITHIN: Duration = Duration::from_secs(10);

/// Starts a job in a sandbox.
pub(crate) type Starter = Box<dyn Fn(Job) -> Result<Running, Refusal> + Send>;

/// An evaluator that has its rules.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) running: Running,
    pub(crate) line: Line,
    pub(crate) rules: Vec<String>,
}

impl Process {
    /// Starts it and loads the rules, which `frame` spells.
    pub(crate) fn start(starter: &Starter, frame: &[u8]) -> Result<Process, Fault> {
        let job = job().map_err(|error| Fault::internal(error.to_string()))?;
        let mut running = starter(job).map_err(|refusal| Fault::internal(refusal.to_string()))?;
        let talk = running.talk().ok_or_else(|| Fault::internal("it has no input".into()))?;
        let mut line = Line::new(talk);
        match line.ask(frame, Instant::now() + LOADED_WITHIN) {
            Ok(Answer::Loaded(rules)) => Ok(Process { running, line, rules }),
            Ok(Answer::Fault(place)) => Err(Fault::from(place)),
            Ok(_) | Err(Lost::Malformed) => {
                Err(Fault::internal("it gave no sensible answer".into()))
            }
            Err(Lost::Late) => Err(Fault::internal("loading takes too long".into())),
            Err(Lost::Ended) => Err(Fault::internal(ended(running))),
        }
    }
}

fn job() -> io::Result<Job> {
    let template: Template = TEMPLATE.parse().map_err(io::Error::other)?;
    let mut limits = template.limits;
    limits.timeout = RESIDENT;
    Ok(Job {
        command: Command {
            program: PATH.into(),
            args: vec![PATH.into()],
            read_only: Vec::new(),
            tree: None,
            note: None,
            forks: false,
        },
        env: BTreeMap::new(),
        stdin: Stdin::Held,
        inputs: vec![Input { name: NAME.into(), file: in_memory(PROGRAM)? }],
        working_copy: None,
        limits,
        profile: template.profile,
        network: Network::None,
    })
}

/// How a process ended that should not have.
fn ended(running: Running) -> String {
    match running.wait(&mut Silence, None) {
        Ok(outcome) => {
            let said = String::from_utf8_lossy(&outcome.stderr.bytes).into_owned();
            let limit = outcome.limit.map(|limit| format!(", by the limit on {limit}"));
            format!("it ended{}: {}", limit.unwrap_or_default(), said.trim())
        }
        Err(refusal) => refusal.to_string(),
    }
}

/// What it prints besides its answers is nobody's to read.
pub(crate) struct Silence;

impl Sink for Silence {
    fn stdout(&mut self, _: &[u8]) {}
    fn stderr(&mut self, _: &[u8]) {}
}

impl From<Place> for Fault {
    fn from(place: Place) -> Fault {
        let Place { file, line, column, what, why, fix } = place;
        Fault { file, line, column, what, why, fix }
    }
}
