//! Carries out a permitted call: in this process where it only reads, in a sandbox otherwise.

use std::io;
use std::os::fd::BorrowedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use hotcell_policy::Permit;
use hotcell_record::Redactor;
use hotcell_request::{Call, ToolError};
use hotcell_sandbox::{Handle, Job, Refusal, Running, cause};
use hotcell_schedule::{Control, Failed};
use hotcell_tools::{Deadline, Ran, SandboxedTool};
use hotcell_types::{CallId, Exit, Limits, Outcome, Output, Span, Status, Traffic};
use hotcell_workspace::{Changeset, Root};
use serde_json::Value;

use crate::artifacts::Product;
use crate::attached::Attached;
use crate::changes::{Copied, Spool};
use crate::engine::Engine;
use crate::live::{Live, Teller};
use crate::network::{Crossing, Opened};
use crate::path::Done;
use crate::prepare::{Here, Ready, Work};
use crate::products;
use crate::reply::{Problem, ProblemKind};
use crate::stay::Inside;
use crate::under_way::Rope;

/// What the scheduler holds of a call: its run, as soon as there is one.
#[derive(Debug)]
pub(crate) struct Reins {
    run: Mutex<Option<Handle>>,
    /// The same for whoever wants the call to end.
    pub(crate) rope: Arc<Rope>,
}

impl Reins {
    pub(crate) fn of(rope: Arc<Rope>) -> Reins {
        Reins { run: Mutex::default(), rope }
    }

    /// There is a run: who holds the reins can end it.
    pub(crate) fn take(&self, run: &Handle) {
        *self.run() = Some(run.clone());
        self.rope.runs(run.clone());
    }

    fn run(&self) -> MutexGuard<'_, Option<Handle>> {
        self.run.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is not in a sandbox runs to its end once it has begun.
    fn act(&self, act: impl FnOnce(&Handle) -> Result<(), Refusal>) -> Result<(), Failed> {
        self.run().as_ref().ok_or(Failed).and_then(|run| act(run).map_err(|_| Failed))
    }
}

impl Control for Reins {
    fn pause(&self) -> Result<(), Failed> {
        self.act(Handle::pause)
    }

    fn resume(&self) -> Result<(), Failed> {
        self.act(Handle::resume)
    }

    fn destroy(&self) -> Result<(), Failed> {
        self.act(|run| {
            run.cancel();
            Ok(())
        })
    }
}

impl Engine {
    /// Only who holds the permit gets here, and only once.
    pub(crate) fn carry_out(
        &self,
        permit: Permit<'_>,
        ready: Ready<'_>,
        attached: &mut Attached<'_>,
        reins: &Reins,
    ) -> Done {
        let call = permit.call();
        match ready.work {
            Work::Here(tool) => here(call, &tool, Until::after(ready.limits.timeout)),
            Work::Environment(task) => self.about_environments(call, task, attached, reins),
            Work::Stay(task) => self.about_stays(&permit, task),
            Work::Web(errand) => self.go_out(call, *errand, ready.limits.timeout),
            Work::InSandbox { tool, job, crossing, copied, inside } => {
                // Until the run is over.
                let _held = ready.held;
                let (id, hidden, own) = (call.id(), ready.hidden, ready.also_writes);
                let job = *job;
                let run = Run { id, job, crossing, copied, inside, own, attached, reins, hidden };
                self.in_a_sandbox(&permit, tool, run)
            }
        }
    }

    fn in_a_sandbox(
        &self,
        permit: &Permit<'_>,
        tool: &dyn SandboxedTool,
        run: Run<'_, '_>,
    ) -> Done {
        let root = run.copied.as_ref().map(|(_, root)| root.clone());
        let (limits, own) = (Some(run.job.limits), run.own);
        let (mut outcome, Left { brought, files, live, traffic }) = match self.run(run) {
            Ok(ran) => ran,
            Err(refusal) => return Done::failed(refusal.into()),
        };
        outcome.network = traffic;
        let mut ran = ran_of(&outcome);
        let done = match (brought, root) {
            (None, _) | (_, None) => Done::of(tool.answer(&ran)),
            (Some(Err(problem)), _) => Done::failed(problem),
            (Some(Ok((changes, spool))), Some(root)) => {
                ran.changes = Some(changes);
                let done = Done::of(tool.answer(&ran));
                self.bring(permit, &ran, (&root, own), &spool, done)
            }
        };
        // A run that ended badly is told so, with what it printed.
        let is_fine = outcome.status == Status::Success || done.status == Status::Blocked;
        let status = if is_fine { done.status } else { outcome.status };
        Done { status, run: Some(Box::new(outcome)), limits, files, live, ..done }
    }

    /// Applies what a run changed, if it came to its own end and its tool has nothing against it.
    fn bring(
        &self,
        permit: &Permit<'_>,
        ran: &Ran,
        (root, own): (&Root, &[&str]),
        spool: &Spool,
        done: Done,
    ) -> Done {
        let came_to_its_end = matches!(ran.status, Status::Success | Status::Failure);
        let changes = ran.changes.as_ref().filter(|_| came_to_its_end && done.value.is_some());
        match changes.map(|changes| self.apply(permit, root, changes, spool, own)) {
            None | Some(Ok(())) => done,
            Some(Err(problem)) => Done::failed(problem),
        }
    }

    fn run(&self, run: Run<'_, '_>) -> Result<(Outcome, Left), Refusal> {
        let Run { id, mut job, crossing, copied, inside, own: _, attached, reins, hidden } = run;
        let limits = job.limits;
        let bounds = attached.from.as_ref().map(|from| from.bounds);
        job.command.forks &= self.zygotes && !bounds.is_some_and(|bounds| bounds.no_zygote);
        let demanded = bounds.and_then(|bounds| bounds.minimum);
        let minimum = demanded.unwrap_or(self.settings().minimum);
        let mut running = match &inside {
            Some(inside) => {
                let running = inside.kept.exec(job)?;
                inside.count_program();
                running
            }
            None => self.sandbox()?.start_at(minimum, job)?,
        };
        reins.take(&running.handle());
        let opened = crossing.map(|crossing| self.let_out(crossing, &mut running)).transpose()?;
        if let Some(started) = attached.started.take() {
            started(running.handle());
        }
        let mut teller = Teller::new(self.home(), id, attached.sink.take());
        if inside.is_some() {
            let outcome = running.wait_for_end(&mut teller)?;
            let (brought, files, traffic) = (None, Vec::new(), None);
            return Ok((outcome, Left { brought, files, live: teller.into_live(), traffic }));
        }
        let (outcome, left) =
            running.wait_and_look(&mut teller, attached.outputs, |left, made| {
                let brought = copied.map(|(copied, _)| self.brought(&copied, left, &limits));
                let files =
                    |hidden: Arc<Redactor>| products::files(&self.artifacts, &hidden, left, made);
                (brought, hidden.map(files).unwrap_or_default())
            })?;
        let (brought, files) = left;
        let traffic = opened.map(Opened::close);
        Ok((outcome, Left { brought, files, live: teller.into_live(), traffic }))
    }

    /// Opens the way out of a run. Until then its connections wait.
    fn let_out(&self, crossing: Box<Crossing>, running: &mut Running) -> Result<Opened, Refusal> {
        let budget = self.network.budget();
        crossing.open(self.way_out()?, running.listeners(), budget).map_err(|closed| {
            let doing = "opening the network of the run".to_owned();
            Refusal::Internal { doing, source: io::Error::other(closed) }
        })
    }

    pub(crate) fn brought(
        &self,
        copied: &Copied,
        left: BorrowedFd<'_>,
        limits: &Limits,
    ) -> Brought {
        let mut spool = Spool::new(&self.spool_directory()).map_err(|error| {
            let fix = "see that hotcell's home can be written and has room";
            Problem::new("what the run changed cannot be kept", cause(&error), fix)
        })?;
        Ok((copied.changes(left, limits, &mut spool)?, spool))
    }
}

/// A job, with everybody who has a part in it.
struct Run<'a, 'b> {
    id: CallId,
    job: Job,
    crossing: Option<Box<Crossing>>,
    copied: Option<(Arc<Copied>, Root)>,
    /// The sandbox that stays and that it runs in, which it leaves when it has ended.
    inside: Option<Inside>,
    /// What its tool writes without being told to.
    own: &'static [&'static str],
    attached: &'a mut Attached<'b>,
    reins: &'a Reins,
    /// What of the files that it makes is not kept.
    hidden: Option<Arc<Redactor>>,
}

/// What a run left behind.
struct Left {
    brought: Option<Brought>,
    files: Vec<Product>,
    live: Option<Live>,
    traffic: Option<Traffic>,
}

/// What a run changed, with the contents.
pub(crate) type Brought = Result<(Changeset, Spool), Problem>;

/// How long a call may take in this process, however often it is tried.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Until {
    most: Span,
    pub(crate) end: Instant,
}

impl Until {
    pub(crate) fn after(most: Span) -> Until {
        Until { most, end: Instant::now() + most.duration() }
    }
}

pub(crate) fn here(call: &Call, tool: &Here<'_>, until: Until) -> Done {
    let args = call.args().clone();
    let answer = catch_unwind(AssertUnwindSafe(|| match tool {
        Here::Pure(tool) => tool.call(args),
        Here::Added(added) => added.tool.call(args),
        // It looks at the time itself, and says what it had no time for.
        Here::Tree(tool, root) => {
            let left = until.end.saturating_duration_since(Instant::now());
            tool.call(root, args, Deadline::after(left))
        }
    }));
    let is_added = matches!(tool, Here::Added(_));
    let is_late = !matches!(tool, Here::Tree(..)) && Instant::now() > until.end;
    match answer {
        Err(_) => gave_up(call),
        Ok(_) if is_late => Done { is_faulty: is_added, ..too_late(call, until.most) },
        // A function of ours that fails does so because of its arguments.
        Ok(answer) => Done { is_faulty: is_added && answer.is_err(), ..Done::of(answer) },
    }
}

/// Nobody can end a function of this process; what it gives back too late does not count.
fn too_late(call: &Call, most: Span) -> Done {
    let what = format!("`{}` took longer than it may", call.name());
    let why = format!("`timeout: {most}` was over before it had its answer");
    let fix = "ask for less at a time, or have the limit or the policy changed";
    let problem = Problem::new(what, why, fix).of(ProblemKind::Failed);
    Done { status: Status::Timeout, ..Done::failed(problem) }
}

/// A panic costs one call. What a tool did before it that can change something, nobody knows.
fn gave_up(call: &Call) -> Done {
    let what = format!("`{}` gave up", call.name());
    let why = "it panicked, and has no answer";
    let done = Done::faulty(Problem::new(what, why, "report it to the tool's author"));
    match call.effects().can_change_something() {
        true => Done { status: Status::Unknown, ..done },
        false => done,
    }
}

impl Done {
    fn of(answer: Result<Value, ToolError>) -> Done {
        match answer {
            Ok(value) => Done::value(value),
            Err(error) => Done::failed(Problem::from(error)),
        }
    }
}

/// Most bytes of each stream that are a part of a tool's answer: as many as every template keeps. The run
/// itself has all of them; the answer is checked, written out and recorded, at several times its size.
const ANSWERED_MOST: usize = 1 << 20;

fn ran_of(outcome: &Outcome) -> Ran {
    let text = |bytes: &[u8]| {
        let kept = bytes.get(..ANSWERED_MOST).unwrap_or(bytes);
        String::from_utf8_lossy(kept).into_owned()
    };
    let is_cut = |output: &Output| output.truncated || output.bytes.len() > ANSWERED_MOST;
    let (exit_code, signal) = match outcome.exit {
        Some(Exit::Code(code)) => (Some(code.into()), None),
        Some(Exit::Signal(signal)) => (None, Some(signal.into())),
        None => (None, None),
    };
    Ran {
        status: outcome.status,
        exit_code,
        signal,
        stdout: text(&outcome.stdout.bytes),
        stderr: text(&outcome.stderr.bytes),
        truncated: is_cut(&outcome.stdout) || is_cut(&outcome.stderr),
        artifacts: outcome.artifacts.clone(),
        changes: None,
        network: outcome.network.clone(),
    }
}
