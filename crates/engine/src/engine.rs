//! What a process keeps to carry out calls, and the one way to ask for something.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use hotcell_policy::Snapshot;
use hotcell_record::{Event, Filter, From as VerifyFrom, OpenFault, Record, Run, Verdict};
use hotcell_request::{Fault, Later, Listed, Registry, Request, ToolName, Version};
use hotcell_sandbox::{Refusal, Sandbox, Settings};
use hotcell_schedule::{Limits, Scheduler};
use hotcell_tools::BuiltIn;
use hotcell_types::{Bytes, Caller, Level};
use hotcell_workspace::Root;

use crate::guard::breaker::Breakers;
use crate::guard::cache::Cache;
use crate::guard::claims::Claims;
use crate::guard::rate::Rates;
use crate::reply::{Problem, Reply};

/// How an engine is set up, by whoever embeds it.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where the record is kept.
    pub home: PathBuf,
    /// The lowest level of isolation that is accepted.
    pub minimum: Level,
    /// The tree that tools read, and that working copies are taken from.
    pub workspace: Option<PathBuf>,
}

impl Options {
    pub fn at(home: impl Into<PathBuf>) -> Options {
        Options { home: home.into(), minimum: Level::User, workspace: None }
    }
}

/// Everything that can be asked for.
#[derive(Debug)]
pub enum Ask {
    Call(Box<Request>),
    /// Calls that go side by side, except where they write to the same place.
    Batch(Vec<Request>),
    /// Tools, by words, by category, or all.
    Tools(Option<String>),
    /// Calls so far.
    Runs(Filter),
    Events(Filter),
    /// Whether the record is what was recorded.
    Verify,
}

/// The one answer to each.
#[derive(Debug)]
pub enum Answer {
    Called(Box<Reply>),
    Batch(Vec<Reply>),
    Tools(Vec<Listed>),
    Runs(Vec<Run>),
    Events(Vec<Event>),
    Verified(Box<Verdict>),
    Failed(Problem),
}

/// Why there is no engine.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error(transparent)]
    Record(#[from] hotcell_record::OpenError),
    #[error("the workspace `{}` cannot be used: {why}", .path.display())]
    Workspace { path: PathBuf, why: String },
    #[error("the tool `{name}` cannot be registered: {why}")]
    Tool { name: String, why: String },
}

impl OpenError {
    /// The kind of the record's trouble, where it is that.
    pub fn record(&self) -> Option<&OpenFault> {
        match self {
            OpenError::Record(error) => Some(&error.fault),
            _ => None,
        }
    }
}

/// One per process and home.
#[derive(Debug)]
pub struct Engine {
    pub(crate) registry: Registry,
    pub(crate) built_in: BuiltIns,
    pub(crate) policy: Arc<Snapshot>,
    pub(crate) record: Record,
    pub(crate) scheduler: Scheduler,
    pub(crate) workspace: Option<Root>,
    pub(crate) breakers: Breakers,
    pub(crate) rates: Rates,
    pub(crate) cache: Cache,
    pub(crate) claims: Claims,
    settings: Settings,
    sandbox: OnceLock<Sandbox>,
}

impl Engine {
    pub fn open(options: Options) -> Result<Engine, OpenError> {
        let record = Record::open(&options.home, hotcell_record::Options::default())?;
        let workspace = options.workspace.as_deref().map(open_workspace).transpose()?;
        let (registry, built_in) = built_in()?;
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let processors = u32::try_from(processors).unwrap_or(u32::MAX);
        Ok(Engine {
            registry,
            built_in,
            policy: Arc::new(Snapshot::built_in()),
            record,
            scheduler: Scheduler::new(Limits::of_machine(processors, memory_of_machine())),
            workspace,
            breakers: Breakers::default(),
            rates: Rates::default(),
            cache: Cache::default(),
            claims: Claims::default(),
            settings: Settings { minimum: options.minimum, home: options.home },
            sandbox: OnceLock::new(),
        })
    }

    /// The one way in.
    pub fn ask(&self, caller: &Caller, ask: Ask) -> Answer {
        match ask {
            Ask::Call(request) => Answer::Called(Box::new(self.call(caller, *request))),
            Ask::Batch(requests) => Answer::Batch(self.batch(caller, requests)),
            Ask::Tools(words) => Answer::Tools(self.tools(words.as_deref())),
            Ask::Runs(filter) => read(self.record.runs(&own(caller, filter)), Answer::Runs),
            Ask::Events(filter) => read(self.record.events(&own(caller, filter)), Answer::Events),
            Ask::Verify => read(self.record.verify(VerifyFrom::Start), |verdict| {
                Answer::Verified(Box::new(verdict))
            }),
        }
    }

    /// The record, for what is done with it as a whole.
    pub fn record(&self) -> &Record {
        &self.record
    }

    /// Everything that can be called, by name.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Ends in order: what is recorded is on the disk and signed.
    pub fn close(self) -> Result<(), Problem> {
        self.record.close().map_err(|error| {
            Problem::new("the record could not be closed", error.to_string(), "see the disk")
        })
    }

    fn tools(&self, words: Option<&str>) -> Vec<Listed> {
        let tools = self.registry.tools();
        match words {
            Some(words) => tools.search(words, usize::MAX),
            None => tools.list(None, None),
        }
    }

    /// Opened with the first call that needs it.
    pub(crate) fn sandbox(&self) -> Result<&Sandbox, Refusal> {
        if let Some(sandbox) = self.sandbox.get() {
            return Ok(sandbox);
        }
        let opened = Sandbox::open(&self.settings)?;
        Ok(self.sandbox.get_or_init(|| opened))
    }
}

type BuiltIns = HashMap<(ToolName, Version), Arc<BuiltIn>>;

/// Each tool is made with its first use; a test of theirs has proven them.
fn built_in() -> Result<(Registry, BuiltIns), OpenError> {
    let (mut laters, mut all) = (Vec::new(), HashMap::new());
    for tool in hotcell_tools::built_in().into_iter().map(Arc::new) {
        let spec = tool.spec();
        let failed = |why: Fault| OpenError::Tool { name: spec.name.into(), why: why.to_string() };
        let key = spec.name_and_version().map_err(failed)?;
        let made = Arc::clone(&tool);
        laters.push(Later::new(&spec, move || made.tool()).map_err(failed)?);
        all.insert(key, tool);
    }
    let registry = Registry::of(laters)
        .map_err(|error| OpenError::Tool { name: String::new(), why: error.to_string() })?;
    Ok((registry, all))
}

/// Nobody reads what is another tenant's.
fn own(caller: &Caller, filter: Filter) -> Filter {
    Filter { tenant: caller.tenant.clone(), ..filter }
}

fn read<T, E: std::fmt::Display>(found: Result<T, E>, answer: impl FnOnce(T) -> Answer) -> Answer {
    found.map_or_else(
        |error| {
            let fix = "`hotcell audit verify` says more";
            Answer::Failed(Problem::new("the record cannot be read", error.to_string(), fix))
        },
        answer,
    )
}

fn open_workspace(path: &Path) -> Result<Root, OpenError> {
    Root::open(path)
        .map_err(|error| OpenError::Workspace { path: path.into(), why: error.to_string() })
}

/// What the jobs of a machine may be promised together: three quarters of what it has.
fn memory_of_machine() -> Bytes {
    const LEAST: u64 = 1 << 30;
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib = total.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    let bytes = kib.unwrap_or(0).saturating_mul(1024) / 4 * 3;
    bytes.max(LEAST).to_string().parse().unwrap_or(Bytes::mib(1024))
}
