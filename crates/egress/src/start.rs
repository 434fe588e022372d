//! The process that parses what runs send, as a run in hotcell's own sandbox.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;

use hotcell_sandbox::{Command, Input, Job, Network, Refusal, Running, Sink, Stdin, in_memory};
use hotcell_types::{Bytes, Count, Cpus, Profile, Span, Template};

/// The program, built by build.rs.
const PROGRAM: &[u8] = include_bytes!(env!("HOTCELL_AIRLOCK"));
const NAME: &str = "airlock";
/// Where a run finds what it is given.
const PATH: &str = "/work/airlock";

/// Whose limits it has, but for these: it stays as long as it is good, and has the connections of all runs.
const TEMPLATE: &str = "policy-sandbox";
const RESIDENT: Span = Span::seconds(366 * 24 * 60 * 60);
const MEMORY: Bytes = Bytes::mib(512);
const CPU: Cpus = Cpus::thousandths(2000);
const OPEN_FILES: Count = Count::of(16 * 1024);

/// Starts the airlock: `line` becomes its standard input.
pub trait Start: Send + Sync {
    fn start(&self, line: OwnedFd) -> Result<Started, String>;
}

/// A process that was started.
pub struct Started {
    /// Ends it, however it is. May be called more than once, and when it has ended.
    pub end: Box<dyn Fn() + Send + Sync>,
    /// Waits until it has ended, and says how.
    pub wait: Box<dyn FnOnce() -> String + Send>,
}

/// Starts a job in a sandbox.
pub type Starter = Box<dyn Fn(Job) -> Result<Running, Refusal> + Send + Sync>;

/// The airlock in a sandbox of its own, as it always is but in tests.
pub struct Jailed(pub Starter);

impl Start for Jailed {
    fn start(&self, line: OwnedFd) -> Result<Started, String> {
        let job = job(line).map_err(|error| error.to_string())?;
        let running = (self.0)(job).map_err(|refusal| refusal.to_string())?;
        let handle = running.handle();
        Ok(Started {
            end: Box::new(move || handle.cancel()),
            wait: Box::new(move || ended(running)),
        })
    }
}

fn job(line: OwnedFd) -> io::Result<Job> {
    let template: Template = TEMPLATE.parse().map_err(io::Error::other)?;
    let mut limits = template.limits;
    limits.timeout = RESIDENT;
    limits.cpu_time = None;
    limits.memory = MEMORY;
    limits.cpu = CPU;
    limits.open_files = OPEN_FILES;
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
        stdin: Stdin::Line(line),
        inputs: vec![Input { name: NAME.into(), file: in_memory(PROGRAM)? }],
        working_copy: None,
        limits,
        profile: Profile::Airlock,
        network: Network::None,
    })
}

/// How a process ended that should not have.
fn ended(running: Running) -> String {
    match running.wait(&mut Silence, None) {
        Ok(outcome) => {
            let said = String::from_utf8_lossy(&outcome.stderr.bytes).into_owned();
            let limit = outcome.limit.map(|limit| format!("by the limit on {limit} "));
            format!("{}{}", limit.unwrap_or_default(), said.trim())
        }
        Err(refusal) => refusal.to_string(),
    }
}

/// What it prints is nobody's to read.
struct Silence;

impl Sink for Silence {
    fn stdout(&mut self, _: &[u8]) {}
    fn stderr(&mut self, _: &[u8]) {}
}

impl fmt::Debug for Started {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Started").finish_non_exhaustive()
    }
}

impl fmt::Debug for Jailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Jailed").finish_non_exhaustive()
    }
}
