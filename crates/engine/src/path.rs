//! The path: from a request to its one reply. Read [`Engine::call`] from top to bottom.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use hotcell_policy::{Account, Facts, Permit, Verdict, judge};
use hotcell_record::{Draft, Durability, Intent, now};
use hotcell_request::{Call, Request};
use hotcell_schedule::{Priority, Turn, Want};
use hotcell_types::{CallId, Caller, Decision, Effect, Limits, Name, Outcome, Status};
use serde_json::Value;

use crate::artifacts::{Given, Origin, Product, Sight};
use crate::attached::Attached;
use crate::engine::Engine;
use crate::guard::claims::WHOLE;
use crate::guard::crowd::Place;
use crate::guard::rate::Rate;
use crate::hands::{Reins, here};
use crate::live::Live;
use crate::prepare::{Ready, Work};
use crate::reply::{Problem, ProblemKind, Registered, Reply};
use crate::stage::Stage;
use crate::story::{Story, refused_as, tool_of};

/// What a tool gave back, before anybody else looks at it.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) status: Status,
    pub(crate) value: Option<Value>,
    pub(crate) problem: Option<Problem>,
    /// The run, where there was one, and the files that it made.
    pub(crate) run: Option<Box<Outcome>>,
    /// What the run was held to.
    pub(crate) limits: Option<Limits>,
    pub(crate) files: Vec<Product>,
    /// What others follow it by, until its outcome is recorded.
    pub(crate) live: Option<Live>,
}

impl Done {
    pub(crate) fn value(value: Value) -> Done {
        Done { value: Some(value), ..Done::new(Status::Success) }
    }

    pub(crate) fn failed(problem: Problem) -> Done {
        Done { problem: Some(problem.clone()), ..Done::new(problem.status()) }
    }

    fn new(status: Status) -> Done {
        let files = Vec::new();
        Done { status, value: None, problem: None, run: None, limits: None, files, live: None }
    }
}

impl Engine {
    /// Carries out one call, or says why not. Exactly one reply, whatever happens.
    pub(crate) fn call(
        &self,
        id: CallId,
        caller: &Caller,
        request: Request,
        attached: Attached<'_>,
    ) -> Reply {
        let call = match Call::new(request, caller.clone(), id, &self.registry) {
            Ok(call) => call,
            Err(error) => return Reply::invalid(id, &error),
        };
        self.passed(id, Stage::Called);
        let facts = Facts { now: now(), mode: None, state: None };
        match judge(&self.policy, &call, &facts) {
            Verdict::Allow(permit) => self.permitted(permit, &facts, attached),
            Verdict::Review(account) => {
                let what = format!("`{}` waits for somebody to agree", call.name());
                self.refused(&call, &facts, &account, Decision::Review, what)
            }
            Verdict::Deny(account) => {
                let what = format!("the policy does not allow `{}`", call.name());
                self.refused(&call, &facts, &account, Decision::Deny, what)
            }
        }
    }

    /// A refusal is on the disk before it is told.
    fn refused(
        &self,
        call: &Call,
        facts: &Facts,
        account: &Account,
        decision: Decision,
        what: String,
    ) -> Reply {
        match self.record_now(Story::new(call, facts, account).refusal(decision)) {
            Ok(()) => Reply::refused(call.id(), refused_as(decision), what, account),
            Err(problem) => Reply::failed(call.id(), problem),
        }
    }

    /// Everything that a verdict of allow leads to.
    fn permitted(&self, permit: Permit<'_>, facts: &Facts, mut attached: Attached<'_>) -> Reply {
        let call = permit.call();
        let story = Story::new(call, facts, permit.account());
        self.passed(call.id(), Stage::Judged);
        if let Err(problem) = self.within_its_rate(call, story.begun()) {
            return self.noted(call, &story, Done::failed(problem));
        }
        let key = self.key(call);
        if let Some(value) = key.and_then(|key| self.cached(&key, story.begun())) {
            return Reply { cached: true, ..self.noted(call, &story, Done::value(value)) };
        }
        let tenant = call.caller().tenant.as_str();
        let trial = match self.breakers.pass(tenant, &tool_of(call), story.begun()) {
            Ok(trial) => trial,
            Err(open) => return self.noted(call, &story, left_alone(call, open.retry_after)),
        };
        let ready = match self.prepare(call, &mut attached) {
            Ok(ready) => ready,
            Err(problem) => return self.noted(call, &story, Done::failed(problem)),
        };
        self.passed(call.id(), Stage::Prepared);
        let reply = if call.effects().can_change_something() {
            self.with_intent(permit, &story, ready, attached)
        } else {
            let done = self.tried(permit, ready, attached);
            self.noted(call, &story, done)
        };
        // What the caller's own arguments lead to, or that others are served first, says nothing about
        // the tool.
        if !reply.problems.iter().any(Problem::is_busy) {
            trial.tell(reply.status != Status::Error, Instant::now());
        }
        if let (Some(key), Some(value), Status::Success) = (key, &reply.value, reply.status) {
            self.keep(call, key, value, Instant::now());
        }
        reply
    }

    /// On the disk before it happens; what cannot be recorded does not happen.
    fn with_intent(
        &self,
        permit: Permit<'_>,
        story: &Story<'_>,
        mut ready: Ready<'_>,
        attached: Attached<'_>,
    ) -> Reply {
        let call = permit.call();
        let origin = story.origin();
        let mut provenance = ready.provenance.take();
        let given = provenance.as_mut().map(|known| std::mem::take(&mut known.given));
        let given = story.without_secrets(given.unwrap_or_default());
        let begun = self.begin(story.intent(), &origin, given, &ready);
        let (given, intent) = match begun {
            Ok(begun) => begun,
            Err(problem) => return Reply::failed(call.id(), problem),
        };
        self.passed(call.id(), Stage::Intended);
        let paths = written_paths(call, ready.also_writes);
        let mut done = match self.claims.take(paths, call.timeout().duration()) {
            Some(_claim) => self.in_turn(permit, ready, attached),
            None => {
                let why = "others write to the same paths";
                Done::failed(busy(why.into(), "try again later"))
            }
        };
        let files = std::mem::take(&mut done.files);
        let (sight, made) = match (provenance, &done.run) {
            (Some(known), Some(run)) => (known.sight, known.made(files, run)),
            _ => (Sight::Given, files),
        };
        let made = story.without_secrets(made);
        let outcome = story.outcome(&done);
        match self.artifacts.finish(intent, outcome, &origin, &given, sight, made) {
            Ok((made, _)) => {
                self.passed(call.id(), Stage::Recorded);
                let artifacts = made.iter().chain(&given.artifacts).map(Registered::from);
                Reply { artifacts: artifacts.collect(), ..reply_of(call, story, done) }
            }
            Err(error) => Reply::failed(call.id(), not_recorded(&error)),
        }
    }

    /// Records the intent, with what the call is given. The first sandbox of a process comes up meanwhile:
    /// nothing of the call runs before both are there.
    fn begin(
        &self,
        intent: Draft,
        origin: &Origin,
        given: Vec<Product>,
        ready: &Ready<'_>,
    ) -> Result<(Given, Intent), Problem> {
        let record = || {
            let begun = self.artifacts.begin(self.recording()?, intent, origin, given);
            begun.map_err(|error| not_recorded(&error))
        };
        let Some(job) = ready.job().filter(|_| self.is_cold()) else { return record() };
        thread::scope(|scope| {
            let recording = scope.spawn(record);
            // If it fails, so will the start, and that is told.
            self.sandbox().and_then(|sandbox| sandbox.warm(job)).ok();
            recording.join().unwrap_or_else(|_| Err(panicked()))
        })
    }

    /// What changes nothing is tried again, as often as its tool says, within its time.
    fn tried(&self, permit: Permit<'_>, ready: Ready<'_>, attached: Attached<'_>) -> Done {
        let call = permit.call();
        let deadline = Instant::now() + call.timeout().duration();
        let again = match (&ready.work, call.tool().tool().retry) {
            (Work::Here(tool), Some(retry)) => Some((tool.clone(), retry)),
            _ => None,
        };
        let mut done = self.in_turn(permit, ready, attached);
        let Some((tool, retry)) = again else { return done };
        for wait in retry.waits() {
            let can_help = matches!(done.status, Status::Failure | Status::Error);
            let is_busy = done.problem.as_ref().is_some_and(Problem::is_busy);
            if !can_help || is_busy || Instant::now() + wait >= deadline {
                break;
            }
            thread::sleep(wait);
            let patience = deadline.saturating_duration_since(Instant::now());
            let Some(_place) = self.place(call, patience) else { break };
            done = checked(call, here(call, &tool));
        }
        done
    }

    /// Waits for a turn, and does it.
    fn in_turn(&self, permit: Permit<'_>, ready: Ready<'_>, mut attached: Attached<'_>) -> Done {
        let call = permit.call();
        let Some(_place) = self.place(call, call.timeout().duration()) else {
            let why = "as many calls of it as it allows are going on";
            return Done::failed(busy(why.into(), "try again later"));
        };
        let reins = Arc::new(Reins::default());
        let turn = match self.turn(call, &ready, &reins) {
            Ok(turn) => turn,
            Err(problem) => return Done::failed(problem),
        };
        self.passed(call.id(), Stage::Scheduled);
        let done = checked(call, self.carry_out(permit, ready, &mut attached, &reins));
        self.passed(call.id(), Stage::CarriedOut);
        match turn.map(|turn| turn.finish(done.status == Status::Success)) {
            None | Some(Ok(())) => done,
            Some(Err(why)) => {
                let problem = Problem::new("it was ended", why.to_string(), "ask again");
                Done { status: Status::Cancelled, problem: Some(problem), ..done }
            }
        }
    }

    /// One of as many places as the tool allows at one time.
    fn place(&self, call: &Call, patience: Duration) -> Option<Place<'_>> {
        self.crowds.enter(&tool_of(call), call.tool().tool().concurrency, patience)
    }

    /// What runs in this process and waits for nobody needs no turn.
    fn turn(
        &self,
        call: &Call,
        ready: &Ready<'_>,
        reins: &Arc<Reins>,
    ) -> Result<Option<Turn>, Problem> {
        if ready.job().is_none() && call.after().is_empty() {
            return Ok(None);
        }
        let want = Want {
            id: call.id(),
            tenant: call.caller().tenant.clone(),
            priority: Priority::try_from(call.priority().get()).unwrap_or(Priority::USUAL),
            template: template_of(call),
            // Who asks for more than there is runs alone.
            memory: ready.limits.memory.min(self.machine().memory),
            expected: ready.limits.timeout.duration(),
            after: call.after().to_vec(),
            patience: ready.limits.timeout.duration(),
        };
        let waiting = self.machine().scheduler.request(want, Arc::clone(reins) as _);
        let waiting = waiting.map_err(|refused| busy(refused.to_string(), "try again later"))?;
        waiting.wait().map(Some).map_err(|why| busy(why.to_string(), "ask again"))
    }

    pub(crate) fn record_now(&self, draft: Draft) -> Result<(), Problem> {
        let recorded = self.recording()?.append(draft, Durability::Synced);
        recorded.map(drop).map_err(|error| not_recorded(&error))
    }

    /// A call that changed nothing is one event, written with the next ones. A crash may lose it; but where
    /// nothing can be recorded at all, nothing is answered either.
    fn noted(&self, call: &Call, story: &Story<'_>, done: Done) -> Reply {
        let noted = self.recording().and_then(|record| {
            record.append_later(story.called(&done)).map_err(|error| not_recorded(&error))
        });
        match noted {
            Err(problem) if done.problem.is_none() => return Reply::failed(call.id(), problem),
            // What went wrong before is what to tell.
            Err(_) => {}
            Ok(_) => self.passed(call.id(), Stage::Recorded),
        }
        reply_of(call, story, done)
    }

    fn within_its_rate(&self, call: &Call, now: Instant) -> Result<(), Problem> {
        let Some(rate) = call.tool().tool().rate else { return Ok(()) };
        let rate = Rate { count: rate.count.get(), per: rate.per.duration() };
        let tenant = call.caller().tenant.as_str();
        self.rates.take(tenant, &tool_of(call), rate, now).map_err(|wait| {
            let why = format!("it may be called {} times in {:?}", rate.count, rate.per);
            let fix = format!("try again in {:.1}s", wait.as_secs_f64());
            Problem::new("too many calls", why, fix).of(ProblemKind::Busy)
        })
    }
}

/// A result that the tool's own schema forbids does not leave.
fn checked(call: &Call, done: Done) -> Done {
    let Some(value) = &done.value else { return done };
    match call.tool().output().validate(value) {
        Ok(()) => done,
        Err(faults) => {
            let why = faults.first().map(ToString::to_string).unwrap_or_default();
            let what = format!("`{}` gave back what it must not", call.name());
            let problem = Problem::new(what, why, "report it to the tool's author");
            Done {
                run: done.run,
                limits: done.limits,
                files: done.files,
                live: done.live,
                ..Done::failed(problem.of(ProblemKind::Invalid))
            }
        }
    }
}

fn reply_of(call: &Call, story: &Story<'_>, done: Done) -> Reply {
    Reply {
        value: done.value,
        problems: done.problem.into_iter().collect(),
        rules: story.rules(),
        run: done.run,
        ..Reply::new(call.id(), done.status)
    }
}

fn not_recorded(error: &dyn std::error::Error) -> Problem {
    let what = "it was not carried out, or what became of it is not known";
    let fix = "make room for the record, or repair it: `hotcell audit verify`";
    Problem::new(what, error.to_string(), fix)
}

pub(crate) fn panicked() -> Problem {
    let why = "a part of hotcell gave up; what it was doing is recorded as unknown";
    Problem::new("hotcell itself failed", why, "report it")
}

fn busy(why: String, fix: &str) -> Problem {
    Problem::new("there is no room for it now", why, fix).of(ProblemKind::Busy)
}

fn left_alone(call: &Call, wait: Duration) -> Done {
    let what = format!("`{}` is left alone for a while", call.name());
    let fix = format!("try again in {:.0}s", wait.as_secs_f64().ceil());
    let problem = Problem::new(what, "it failed several times in a row", fix);
    Done { status: Status::CircuitOpen, ..Done::failed(problem.of(ProblemKind::Busy)) }
}

fn template_of(call: &Call) -> Name {
    call.tool().tool().template.to_string().parse().unwrap_or(Name::LOCAL)
}

/// What a call that writes may write to: the paths that it names and those that its tool has besides, or
/// everything when it names none.
fn written_paths(call: &Call, besides: &[&str]) -> Vec<String> {
    if !call.effects().has(Effect::Write) {
        return Vec::new();
    }
    let named = call.paths();
    if named.is_empty() {
        return vec![WHOLE.to_owned()];
    }
    named.iter().chain(besides).map(|&path| path.to_owned()).collect()
}
