//! What a process keeps to carry out calls, and the one way to ask for something.

use std::collections::HashMap;
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, Weak};
use std::thread;
use std::time::Instant;

use hotcell_bearer::Ring;
use hotcell_egress::Gate as WayOut;
use hotcell_policy::{Protected, Snapshot};
use hotcell_record::{
    AppendError, Event, Filter, From as VerifyFrom, OpenFault, Record, Run, Verdict, now,
};
use hotcell_request::{
    Fault, Later, Listed, LookupError, Priority, RegisterError, Registered, Registry, Request,
    Tool, ToolName, TypedTool, Version,
};
use hotcell_review::Workflow;
use hotcell_sandbox::{Job, Refusal, Sandbox, Settings};
use hotcell_schedule::Scheduler;
use hotcell_tools::BuiltIn;
use hotcell_types::{Bytes, CallId, Caller, Level, SomeLimits};
use hotcell_workspace::{Root, SnapshotBounds};

use crate::artifacts::{ArtifactAnswer, ArtifactAsk, Artifacts};
use crate::at_once::AtOnce;
use crate::attached::Attached;
use crate::batch::Step;
use crate::early::{Early, Made, Soon};
use crate::environment;
use crate::guard::breaker::{Breakers, Patience};
use crate::guard::cache::Cache;
use crate::guard::claims::Claims;
use crate::guard::crowd::Crowds;
use crate::guard::rate::Rates;
use crate::keys::{Gate, KeyAnswer, KeyAsk};
use crate::live;
use crate::network::NetworkOptions;
use crate::once::Flights;
use crate::path::{not_recorded, panicked};
use crate::policy::{PolicyAnswer, PolicyAsk};
use crate::queue::{QueueAnswer, QueueAsk};
use crate::replay::{Ignore, Replayed};
use crate::reply::{Problem, ProblemKind, Reply};
use crate::rulebook::Rulebook;
use crate::secrets::{SecretAnswer, SecretAsk};
use crate::show::Shown;
use crate::stage::{Stage, Watch};
use crate::stay::{StayBounds, Stays};
use crate::surroundings::Surroundings;
use crate::tokens::{TokenAnswer, TokenAsk};
use crate::under_way::UnderWay;
use crate::web::Outside;
use crate::workflow::WorkflowAsk;

/// Where checkpoints of a record go.
pub use hotcell_record::Sink as Anchor;

/// How an engine is set up, by whoever embeds it.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where the record is kept.
    pub home: PathBuf,
    /// The most that the home may have on the disk: large inputs are kept only as long as they fit. Nothing
    /// is removed without [`Engine::gc`].
    pub quota: Bytes,
    /// The lowest level of isolation that is accepted, whatever door a call comes through.
    pub minimum: Level,
    /// Whether runs may be forked from an interpreter that had started, with which they share some things
    /// (docs/warm.md). Otherwise each is executed.
    pub zygotes: bool,
    /// The most that a call may use, whatever door it comes through. Who asks for more is refused; limits
    /// that nobody asked for, those of tools and templates, are lowered to it.
    pub ceiling: SomeLimits,
    /// Who may ask for a priority above the usual one, and for which at most. Nobody may who is not here:
    /// priority 1 stops the runs of others.
    pub urgent: Vec<(Caller, Priority)>,
    /// The tree that tools read, and that working copies are taken from.
    pub workspace: Option<PathBuf>,
    /// How much of it runs can have a copy of, and what is left out. Files of runs live in memory: what a
    /// copy takes comes on top of the limits of a run, and of the ceiling.
    pub copies: SnapshotBounds,
    /// How many calls go on at one time.
    pub at_once: AtOnce,
    /// When a tool that keeps failing is left alone, and for how long.
    pub patience: Patience,
    /// How many sandboxes may stay in this process.
    pub stays: StayBounds,
    /// Where checkpoints of the record go. The further away from the home, the more can be proven.
    pub anchor: Anchor,
    /// How runs and tools reach a network, where the policy lets them.
    pub network: NetworkOptions,
    /// What the built-in rules of the home's policy protect by name, besides the anchor if it is a file.
    pub protected: Protected,
    /// What decides on calls in place of the home's own policy.
    pub policy: Option<Snapshot>,
    /// Who is told how far each call has come.
    pub watch: Option<Watch>,
}

impl Options {
    pub fn at(home: impl Into<PathBuf>) -> Options {
        Options {
            home: home.into(),
            quota: Bytes::mib(10 * 1024),
            minimum: Level::User,
            zygotes: true,
            ceiling: SomeLimits::default(),
            urgent: Vec::new(),
            workspace: None,
            copies: SnapshotBounds::default(),
            at_once: AtOnce::default(),
            patience: Patience::default(),
            stays: StayBounds::default(),
            anchor: Anchor::Home,
            network: NetworkOptions::default(),
            protected: Protected::default(),
            policy: None,
            watch: None,
        }
    }

    pub(crate) fn settings(&self) -> Settings {
        Settings { minimum: self.minimum, home: self.home.clone() }
    }

    /// Wherever the anchor is, no tool writes to a file of its name.
    fn protected(&self) -> Protected {
        let mut protected = self.protected.clone();
        if let Anchor::File(path) = &self.anchor
            && let Some(name) = path.file_name()
        {
            protected.audit.push(name.to_string_lossy().into_owned());
        }
        protected
    }

    fn of_record(&self) -> hotcell_record::Options {
        hotcell_record::Options { sink: self.anchor.clone(), ..hotcell_record::Options::default() }
    }
}

/// Everything that can be asked for.
#[derive(Debug)]
pub enum Ask<'a> {
    Call(Box<Request>),
    /// A call with what goes along with it.
    Run(Box<Request>, Box<Attached<'a>>),
    /// Calls that go side by side, except where they write to the same place.
    Batch(Vec<Step>),
    /// Tools, by words, by category, or all.
    Tools(Option<String>),
    /// Calls so far.
    Runs(Filter),
    Events(Filter),
    /// Everything that is known of one call.
    Show(CallId),
    /// Ends a call that goes on in this process.
    Cancel(CallId),
    /// A recorded call again, as a new one, and how the two compare.
    Replay(CallId, Ignore),
    /// A batch, a replay or a verification for somebody who waits for it where they are.
    For(Asker<'a>, Box<Ask<'a>>),
    /// Whether the record is what was recorded.
    Verify,
    Artifact(ArtifactAsk),
    /// What waits for somebody to agree.
    Queue(QueueAsk<'a>),
    Token(TokenAsk),
    /// API keys: who may come through a server's door.
    Key(KeyAsk),
    /// Secrets that stay outside of sandboxes.
    Secret(SecretAsk),
    /// The policy: what it says, what another would, and changing it.
    Policy(Box<PolicyAsk>),
    /// Where the work of a subject is.
    Workflow(WorkflowAsk),
}

/// Whoever waits for calls that are made for one question.
#[derive(Debug, Clone, Default)]
pub struct Asker<'a> {
    /// Set when nobody waits any more: the calls end. Without it, they go on to their ends.
    pub interrupt: Option<&'a AtomicBool>,
    /// Where the calls are made from, if that is not where the engine is.
    pub from: Option<Surroundings>,
}

/// The one answer to each.
#[derive(Debug)]
pub enum Answer {
    Called(Box<Reply>),
    Batch(Vec<Reply>),
    Tools(Vec<Listed>),
    Runs(Vec<Run>),
    Events(Vec<Event>),
    Shown(Box<Shown>),
    Cancelled,
    Replayed(Box<Replayed>),
    Verified(Box<Verdict>),
    Failed(Problem),
    Artifact(ArtifactAnswer),
    Queue(QueueAnswer),
    Token(TokenAnswer),
    Key(KeyAnswer),
    Secret(SecretAnswer),
    Policy(PolicyAnswer),
    Workflow(Option<Workflow>),
}

/// Why there is no engine.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error(transparent)]
    Record(#[from] hotcell_record::OpenError),
    #[error("`{}` cannot be hotcell's home: {why}", .path.display())]
    Home { path: PathBuf, why: &'static str },
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

/// A tool of whoever embeds this.
#[derive(Clone)]
pub(crate) struct Added {
    pub(crate) tool: Arc<dyn TypedTool>,
    /// What it was registered as. It carries out nothing that is registered later under the same name.
    known: Weak<Registered>,
    /// Another one for each, so that nobody is given what another has found out.
    pub(crate) number: u64,
}

impl std::fmt::Debug for Added {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Added").field(&self.tool.spec().name).finish()
    }
}

/// What there is to run on.
#[derive(Debug)]
pub(crate) struct Machine {
    pub(crate) scheduler: Scheduler,
    /// What all runs together may be promised.
    pub(crate) memory: Bytes,
}

impl Machine {
    pub(crate) fn new(at_once: &AtOnce) -> Machine {
        let memory = memory_of_machine();
        Machine { scheduler: Scheduler::new(at_once.limits(memory)), memory }
    }
}

/// One per process and home. What is not needed is not made.
#[derive(Debug)]
pub struct Engine {
    pub(crate) registry: Registry,
    pub(crate) built_in: BuiltIns,
    /// Those of whoever embeds this.
    added: RwLock<HashMap<(ToolName, Version), Added>>,
    /// How many there were so far.
    ever_added: AtomicU64,
    pub(crate) rulebook: Rulebook,
    /// What the built-in rules protect by name.
    pub(crate) protected: Protected,
    pub(crate) zygotes: bool,
    pub(crate) ceiling: SomeLimits,
    urgent: Vec<(Caller, Priority)>,
    /// How the record is kept.
    of_record: hotcell_record::Options,
    /// Opened when it is first needed.
    record: OnceLock<Result<Record, hotcell_record::OpenError>>,
    /// The same, where it is being opened beside what else is done.
    soon: Option<Soon<Result<Record, hotcell_record::OpenError>>>,
    /// Makes the first sandbox beside what else is done.
    early: OnceLock<Early>,
    /// How the record was closed.
    ended: OnceLock<Result<(), AppendError>>,
    at_once: AtOnce,
    /// Asked when something is first run.
    machine: OnceLock<Machine>,
    pub(crate) workspace: Option<Root>,
    pub(crate) copies: SnapshotBounds,
    pub(crate) breakers: Breakers,
    pub(crate) rates: Rates,
    pub(crate) cache: Cache,
    pub(crate) claims: Claims,
    pub(crate) crowds: Crowds,
    pub(crate) under_way: UnderWay,
    watch: Option<Watch>,
    pub(crate) artifacts: Artifacts,
    /// The keys of tokens.
    pub(crate) ring: OnceLock<Arc<Ring>>,
    /// Calls that come with a key.
    pub(crate) flights: Flights,
    /// What is remembered of API keys.
    pub(crate) gate: Gate,
    pub(crate) network: NetworkOptions,
    /// The way out for runs, made when the first one needs it.
    pub(crate) way_out: OnceLock<WayOut>,
    /// The same for hotcell itself.
    pub(crate) outside: OnceLock<Outside>,
    /// Sandboxes that stay. They end before what they stand on.
    pub(crate) stays: Stays,
    settings: Settings,
    sandbox: OnceLock<Sandbox>,
    /// Held by whoever opens it: a second launcher would be one too many.
    opening: Mutex<()>,
}

impl Engine {
    /// Opens the record and everything else that a process needs.
    pub fn open(options: Options) -> Result<Engine, OpenError> {
        let mut engine = Engine::new(options)?;
        if engine.record().is_err()
            && let Some(Err(error)) = engine.record.take()
        {
            return Err(error.into());
        }
        Ok(engine)
    }

    /// The same for a process that is about to make a call, and has something else to do meanwhile: record
    /// and sandbox are opened on threads of their own. What cannot be recorded does not happen in any case.
    pub fn soon(options: Options, early: Early) -> Result<Engine, OpenError> {
        must_be_ours(&options.home)?;
        let home = options.home.clone();
        let of_record = options.of_record();
        let soon = Some(Soon::begin("opening", move || open_record(&home, of_record)));
        early.open(options.settings(), options.at_once.clone());
        Ok(Engine { soon, early: OnceLock::from(early), ..Engine::new(options)? })
    }

    /// The same, except that the record is opened when it is first needed, as the sandbox is.
    pub fn new(options: Options) -> Result<Engine, OpenError> {
        let home = options.home.as_path();
        must_be_ours(home)?;
        let workspace = options.workspace.as_deref().map(|path| open_workspace(path, home));
        let workspace = workspace.transpose()?;
        let (registry, built_in) = built_in()?;
        let settings = options.settings();
        let (of_record, protected) = (options.of_record(), options.protected());
        Ok(Engine {
            registry,
            built_in,
            added: RwLock::default(),
            ever_added: AtomicU64::new(0),
            rulebook: Rulebook::new(&options.home, options.policy),
            protected,
            zygotes: options.zygotes,
            ceiling: options.ceiling,
            urgent: options.urgent,
            of_record,
            record: OnceLock::new(),
            soon: None,
            early: OnceLock::new(),
            ended: OnceLock::new(),
            at_once: options.at_once,
            machine: OnceLock::new(),
            workspace,
            copies: options.copies,
            breakers: Breakers::new(options.patience),
            rates: Rates::default(),
            cache: Cache::default(),
            claims: Claims::default(),
            crowds: Crowds::default(),
            under_way: UnderWay::default(),
            watch: options.watch,
            artifacts: Artifacts::at(&options.home).within(options.quota.get()),
            ring: OnceLock::new(),
            flights: Flights::default(),
            gate: Gate::default(),
            network: options.network,
            way_out: OnceLock::new(),
            outside: OnceLock::new(),
            stays: Stays::new(options.stays),
            settings,
            sandbox: OnceLock::new(),
            opening: Mutex::default(),
        })
    }

    /// The one way in.
    pub fn ask(&self, caller: &Caller, ask: Ask<'_>) -> Answer {
        match ask {
            Ask::Call(request) => self.asked(caller, *request, Attached::default()),
            Ask::Run(request, attached) => self.asked(caller, *request, *attached),
            Ask::Batch(steps) => Answer::Batch(self.batch(caller, steps, Asker::default())),
            Ask::Tools(words) => Answer::Tools(self.tools(words.as_deref())),
            Ask::Runs(filter) => {
                self.read(|record| record.runs(&own(caller, filter)).map(Answer::Runs))
            }
            Ask::Events(filter) => {
                self.read(|record| record.events(&own(caller, filter)).map(Answer::Events))
            }
            Ask::Show(id) => self
                .show(caller, id)
                .map_or_else(Answer::Failed, |shown| Answer::Shown(Box::new(shown))),
            Ask::Cancel(id) => {
                self.cancel(caller, id).map_or_else(Answer::Failed, |()| Answer::Cancelled)
            }
            Ask::Replay(id, ignore) => replayed(self.replay(caller, id, &ignore, Asker::default())),
            Ask::For(asker, ask) => match *ask {
                Ask::Batch(steps) => Answer::Batch(self.batch(caller, steps, asker)),
                Ask::Replay(id, ignore) => replayed(self.replay(caller, id, &ignore, asker)),
                Ask::Verify => self.verify(asker.interrupt),
                other => self.ask(caller, other),
            },
            Ask::Verify => self.verify(None),
            Ask::Queue(ask) => {
                self.ask_queue(caller, ask).map_or_else(Answer::Failed, Answer::Queue)
            }
            Ask::Token(ask) => {
                self.ask_token(caller, ask).map_or_else(Answer::Failed, Answer::Token)
            }
            Ask::Key(ask) => self.ask_key(caller, ask).map_or_else(Answer::Failed, Answer::Key),
            Ask::Secret(ask) => {
                self.ask_secret(caller, ask).map_or_else(Answer::Failed, Answer::Secret)
            }
            Ask::Policy(ask) => {
                self.ask_policy(caller, *ask).map_or_else(Answer::Failed, Answer::Policy)
            }
            Ask::Workflow(ask) => {
                self.ask_workflow(caller, ask).map_or_else(Answer::Failed, Answer::Workflow)
            }
            Ask::Artifact(ask) => {
                let asked =
                    self.recording().and_then(|record| self.artifacts.ask(record, caller, ask));
                asked.map_or_else(Answer::Failed, Answer::Artifact)
            }
        }
    }

    fn asked(&self, caller: &Caller, request: Request, attached: Attached<'_>) -> Answer {
        Answer::Called(Box::new(self.guarded(caller, request, attached)))
    }

    /// A panic costs one call. What had begun is `unknown` to the record, since nobody says otherwise; of what had
    /// not, this is all that it has.
    pub(crate) fn guarded(
        &self,
        caller: &Caller,
        request: Request,
        attached: Attached<'_>,
    ) -> Reply {
        let (id, tool) = (attached.id.unwrap_or_else(new_id), request.tool.clone());
        let called = catch_unwind(AssertUnwindSafe(|| self.call(id, caller, request, attached)));
        called.unwrap_or_else(|_| {
            let reply = Reply::failed(id, panicked());
            if self.is_recorded(caller, id) { reply } else { self.unjudged(caller, &tool, reply) }
        })
    }

    /// Whether there is anything about a call, as far as can be known.
    fn is_recorded(&self, caller: &Caller, call: CallId) -> bool {
        let Ok(record) = self.recording() else { return false };
        let filter = Filter { call: Some(call), limit: 1, ..Filter::of(caller.tenant.clone()) };
        record.settle().is_ok() && record.events(&filter).is_ok_and(|events| !events.is_empty())
    }

    /// Reads all that there is, which takes as long as it is much.
    fn verify(&self, interrupt: Option<&AtomicBool>) -> Answer {
        let is_wanted = || !interrupt.is_some_and(|interrupt| interrupt.load(Ordering::SeqCst));
        let verify = |record: &Record| match interrupt {
            Some(_) => record.verify_while(VerifyFrom::Start, &is_wanted),
            None => record.verify(VerifyFrom::Start),
        };
        let answer = self.read(|record| verify(record).map(|v| Answer::Verified(Box::new(v))));
        if is_wanted() {
            return answer;
        }
        let (what, why) = ("it was broken off", "whoever asked does not wait any more");
        Answer::Failed(Problem::new(what, why, "ask again").of(ProblemKind::Busy))
    }

    fn read<E: std::fmt::Display>(
        &self,
        look: impl FnOnce(&Record) -> Result<Answer, E>,
    ) -> Answer {
        let record = match self.recording() {
            Ok(record) => record,
            Err(problem) => return Answer::Failed(problem),
        };
        look(record).unwrap_or_else(|error| {
            let fix = "`hotcell audit verify` says more";
            Answer::Failed(Problem::new("the record cannot be read", error.to_string(), fix))
        })
    }

    /// The record, for what is done with it as a whole.
    pub fn record(&self) -> Result<&Record, &hotcell_record::OpenError> {
        let soon = || self.soon.as_ref().and_then(Soon::take);
        let open =
            || soon().unwrap_or_else(|| open_record(&self.settings.home, self.of_record.clone()));
        self.record.get_or_init(open).as_ref()
    }

    /// The same, if it is open by now.
    pub(crate) fn record_at_once(&self) -> Option<&Record> {
        self.record.get()?.as_ref().ok()
    }

    /// The same, for the path.
    pub(crate) fn recording(&self) -> Result<&Record, Problem> {
        self.record().map_err(|error| {
            Problem::new("the home cannot be used", error.to_string(), error.fix.clone())
        })
    }

    /// Returns when every call so far is on the disk, where other processes see it.
    pub fn settle(&self) -> Result<(), Problem> {
        self.recording()?.settle().map_err(|error| not_recorded(&error))
    }

    /// The same, and with it what is otherwise written down from time to time.
    pub fn settle_all(&self) -> Result<(), Problem> {
        self.note_uses(Instant::now())?;
        self.settle()
    }

    /// Adds a tool of whoever embeds this: a function of its own process, called on the one path like any
    /// other. `described` is what `tool` says of itself, with whatever is set besides; all of it is checked.
    pub fn add(
        &self,
        described: Tool,
        tool: impl TypedTool + 'static,
    ) -> Result<(), RegisterError> {
        let known = self.registry.register(described)?;
        let key = (known.tool().name.clone(), known.tool().version);
        let number = self.ever_added.fetch_add(1, Ordering::Relaxed);
        let tool = Added { tool: Arc::new(tool), known: Arc::downgrade(&known), number };
        let mut added = self.added.write().unwrap_or_else(PoisonError::into_inner);
        // Also those that were taken out of the registry alone.
        added.retain(|_, added| added.known.strong_count() > 0);
        added.insert(key, tool);
        Ok(())
    }

    /// Removes a tool that was added, with its function. Calls that are being carried out go on to their ends;
    /// what waits for somebody to agree is not carried out any more.
    pub fn remove(&self, name: &ToolName, version: Version) -> Result<(), LookupError> {
        self.registry.unregister(name, version)?;
        let mut added = self.added.write().unwrap_or_else(PoisonError::into_inner);
        added.remove(&(name.clone(), version));
        Ok(())
    }

    /// The function of a tool as it was added.
    pub(crate) fn added(&self, tool: &Arc<Registered>) -> Option<Added> {
        let key = (tool.tool().name.clone(), tool.tool().version);
        let added = self.added.read().unwrap_or_else(PoisonError::into_inner);
        added.get(&key).filter(|added| added.known.as_ptr() == Arc::as_ptr(tool)).cloned()
    }

    /// Everything that can be called, by name.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Ends in order: what is recorded is on the disk and signed, and no process is left.
    pub fn close(self) -> Result<(), Problem> {
        self.stays.end_all(self.record_at_once());
        // That is worth knowing, and no reason not to end.
        self.note_uses(Instant::now()).ok();
        if self.ended.get().is_none() {
            self.end(|| ());
        }
        let ended = self.ended.get().cloned().unwrap_or(Ok(()));
        ended.map_err(|error| {
            Problem::new("the record could not be closed", error.to_string(), "see the disk")
        })
    }

    /// The same for a process that ends with it: what takes nothing but memory is left to the system, since
    /// taking it apart takes as long as making it did.
    pub fn close_with_process(mut self) -> Result<(), Problem> {
        std::mem::forget(std::mem::take(&mut self.registry));
        std::mem::forget(std::mem::take(&mut self.built_in));
        self.close()
    }

    /// Closes the record, once, after what is the last to be recorded; beside it, the sandbox ends.
    pub(crate) fn end<T>(&self, last: impl FnOnce() -> T) -> T {
        let record = || {
            let done = last();
            let opened = self.record.get().and_then(|record| record.as_ref().ok());
            self.ended.get_or_init(|| opened.map_or(Ok(()), |record| record.clone().close()));
            done
        };
        let Some(sandbox) = self.sandbox.get() else { return record() };
        thread::scope(|scope| {
            // Without a thread it ends when it is dropped.
            thread::Builder::new().spawn_scoped(scope, || sandbox.rest()).ok();
            record()
        })
    }

    fn tools(&self, words: Option<&str>) -> Vec<Listed> {
        let tools = self.registry.tools();
        match words {
            Some(words) => tools.search(words, usize::MAX),
            None => tools.list(None, None),
        }
    }

    pub(crate) fn passed(&self, call: CallId, stage: Stage) {
        if let Some(watch) = &self.watch {
            watch.tell(call, stage);
        }
    }

    /// The first priority that somebody may ask for.
    pub(crate) fn first_priority(&self, caller: &Caller) -> Priority {
        let own = self.urgent.iter().filter(|(urgent, _)| urgent == caller);
        own.map(|(_, first)| *first).fold(Priority::default(), Priority::min)
    }

    pub(crate) fn machine(&self) -> &Machine {
        if self.machine.get().is_none() && self.early.get().is_some() {
            // It comes along. A refusal is told to the call that is refused.
            self.sandbox().ok();
        }
        self.machine.get_or_init(|| Machine::new(&self.at_once))
    }

    /// The same, if anything was run yet.
    pub(crate) fn machine_if_used(&self) -> Option<&Machine> {
        self.machine.get()
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    pub(crate) fn home(&self) -> &Path {
        &self.settings.home
    }

    pub(crate) fn anchor(&self) -> &Anchor {
        &self.of_record.sink
    }

    /// Where contents wait that have no place yet.
    pub(crate) fn spool_directory(&self) -> PathBuf {
        self.settings.home.join("run")
    }

    /// Before the first call that needs a sandbox is recorded: it comes up meanwhile, with a cell for the
    /// call. Nothing of the call runs before both are there.
    pub(crate) fn warm(&self, job: &Job) {
        if self.sandbox.get().is_some() {
            return;
        }
        let early = self.early.get_or_init(|| {
            let early = Early::begin();
            early.open(self.settings.clone(), self.at_once.clone());
            early
        });
        early.warm(job);
    }

    /// Opened with the first call that needs it.
    pub(crate) fn sandbox(&self) -> Result<&Sandbox, Refusal> {
        if let Some(sandbox) = self.sandbox.get() {
            return Ok(sandbox);
        }
        let _opening = self.opening.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(sandbox) = self.sandbox.get() {
            return Ok(sandbox);
        }
        let opened = match self.early.get().and_then(Early::take) {
            Some(Made { sandbox, machine }) => {
                self.machine.get_or_init(|| machine);
                sandbox?
            }
            None => Sandbox::open(&self.settings)?,
        };
        Ok(self.sandbox.get_or_init(|| opened))
    }
}

fn open_record(
    home: &Path,
    options: hotcell_record::Options,
) -> Result<Record, hotcell_record::OpenError> {
    let record = Record::open(home, options)?;
    if record.found_dead() {
        // What cannot be removed now is swept by the next run that is followed, and by `gc`.
        live::sweep(&live::directory(home)).ok();
    }
    environment::sweep_at_start(&record).ok();
    Ok(record)
}

pub(crate) type BuiltIns = HashMap<(ToolName, Version), Arc<BuiltIn>>;

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

fn replayed(replayed: Result<Replayed, Problem>) -> Answer {
    replayed.map_or_else(Answer::Failed, |replayed| Answer::Replayed(Box::new(replayed)))
}

/// Nobody reads what is another tenant's.
fn own(caller: &Caller, filter: Filter) -> Filter {
    Filter { tenant: caller.tenant.clone(), ..filter }
}

/// A name for a call that is about to be made: its time and place among all calls.
pub fn new_id() -> CallId {
    let mut chance = [0; 10];
    // Without chance there is still the time; two in one nanosecond would be refused by the record.
    rustix::rand::getrandom(&mut chance, rustix::rand::GetRandomFlags::empty()).ok();
    CallId::new(u64::try_from(now() / 1_000_000).unwrap_or(0), chance)
}

/// Whoever can rename what is in the home, or the way to it, can put another record in its place.
pub(crate) fn must_be_ours(home: &Path) -> Result<(), OpenError> {
    /// Others may write, and rename what is not theirs.
    const OTHERS: u32 = 0o022;
    let own = rustix::process::geteuid().as_raw();
    let unfit = |why| Err(OpenError::Home { path: home.into(), why });
    // What is not there is made by us; what cannot be looked at cannot be used either, and that is told then.
    for found in [home.symlink_metadata(), home.metadata()].into_iter().flatten() {
        if found.uid() != own && found.uid() != 0 {
            return unfit("it belongs to somebody else");
        }
        if found.is_dir() && found.mode() & OTHERS != 0 {
            return unfit("others may write to it");
        }
    }
    Ok(())
}

/// The record and the key that signs it are not for runs to read, let alone to change.
pub(crate) fn open_workspace(path: &Path, home: &Path) -> Result<Root, OpenError> {
    let unusable = |why: String| OpenError::Workspace { path: path.into(), why };
    let root = Root::open(path).map_err(|error| unusable(error.to_string()))?;
    if lies_in(home, path).map_err(|error| unusable(error.to_string()))? {
        return Err(unusable(format!("hotcell's own home `{}` lies in it", home.display())));
    }
    Ok(root)
}

/// Whether a directory, which need not be there yet, is another or lies in it, under whatever names.
fn lies_in(inner: &Path, outer: &Path) -> io::Result<bool> {
    let outer = std::fs::metadata(outer)?;
    let inner = std::path::absolute(inner)?;
    let there = inner.ancestors().find_map(|above| above.canonicalize().ok());
    let is_outer = |data: Metadata| (data.dev(), data.ino()) == (outer.dev(), outer.ino());
    let above = there.iter().flat_map(|there| there.ancestors());
    Ok(above.filter_map(|above| std::fs::metadata(above).ok()).any(is_outer))
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
