//! The path: from a request to its one reply. Read [`Engine::call`] from top to bottom.

use std::sync::Arc;
use std::time::Instant;

use hotcell_policy::{Facts, Permit, Verdict, judge};
use hotcell_record::{AppendError, Draft, Durability, Kind, Payload, now};
use hotcell_request::{Call, Request};
use hotcell_schedule::{Priority, Turn, Unstoppable, Want};
use hotcell_types::{CallId, Caller, Decision, Effect, Name, Status};
use serde_json::Value;

use crate::engine::Engine;
use crate::guard::rate::Rate;
use crate::reply::{Problem, Reply};

/// What a tool gave back, before anybody else looks at it.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) status: Status,
    pub(crate) value: Option<Value>,
    pub(crate) problem: Option<Problem>,
    /// The run, where there was one.
    pub(crate) sandbox: Option<String>,
}

impl Engine {
    /// Carries out one call, or says why not. Exactly one reply, whatever happens.
    pub(crate) fn call(&self, caller: &Caller, request: Request) -> Reply {
        let id = new_id();
        let call = match Call::new(request, caller.clone(), id, &self.registry) {
            Ok(call) => call,
            Err(error) => return Reply::invalid(id, &error),
        };
        let facts = Facts { now: now(), mode: None, state: None };
        match judge(&self.policy, &call, &facts) {
            Verdict::Allow(permit) => self.permitted(permit, &facts),
            Verdict::Review(account) => {
                let what = format!("`{}` waits for somebody to agree", call.name());
                let reply = Reply::refused(id, Status::Review, what, &account);
                self.recorded_refusal(&call, &facts, Kind::Review, Decision::Review, reply)
            }
            Verdict::Deny(account) => {
                let what = format!("the policy does not allow `{}`", call.name());
                let reply = Reply::refused(id, Status::Blocked, what, &account);
                self.recorded_refusal(&call, &facts, Kind::Denied, Decision::Deny, reply)
            }
        }
    }

    /// Everything that a verdict of allow leads to.
    fn permitted(&self, permit: Permit<'_>, facts: &Facts) -> Reply {
        let call = permit.call();
        let (id, begun) = (call.id(), Instant::now());
        if let Err(reply) = self.within_its_rate(call, begun) {
            return reply;
        }
        if let Some(value) = self.cached(call, begun) {
            let done =
                Done { status: Status::Success, value: Some(value), problem: None, sandbox: None };
            self.note(call, facts, &permit, &done, begun);
            return Reply { cached: true, ..reply_of(id, done, &permit) };
        }
        let trial = match self.breakers.pass(&breaker_of(call), begun) {
            Ok(trial) => trial,
            Err(open) => return left_alone(call, open.retry_after),
        };
        let rules = permit.account().rules();
        let reply = if call.effects().can_change_something() {
            self.with_intent(permit, facts, begun)
        } else {
            let done = self.in_turn(&permit);
            self.note(call, facts, &permit, &done, begun);
            reply_of(id, done, &permit)
        };
        // What the caller's own arguments lead to says nothing about the tool.
        trial.tell(reply.status != Status::Error, Instant::now());
        if reply.status == Status::Success {
            self.keep(call, reply.value.as_ref(), Instant::now());
        }
        Reply { rules, ..reply }
    }

    /// On the disk before it happens; what cannot be recorded does not happen.
    fn with_intent(&self, permit: Permit<'_>, facts: &Facts, begun: Instant) -> Reply {
        let call = permit.call();
        let mut draft = draft_of(call, facts, Kind::Intent);
        draft.decision = Some(Decision::Allow);
        draft.rules = permit.account().rules();
        draft.reason = Some(permit.account().reason());
        let intent = match self.record.begin(draft) {
            Ok(intent) => intent,
            Err(error) => return not_recorded(call, &error),
        };
        let claim = self.claims.take(written_paths(call));
        let done = self.in_turn(&permit);
        drop(claim);
        let outcome = outcome_of(call, &done, begun, Kind::Outcome);
        let reply = reply_of(call.id(), done, &permit);
        match intent.finish(outcome) {
            Ok(_) => reply,
            Err(error) => not_recorded(call, &error),
        }
    }

    /// Waits for a turn, and does it.
    fn in_turn(&self, permit: &Permit<'_>) -> Done {
        let call = permit.call();
        let turn = match self.turn(call) {
            Ok(turn) => turn,
            Err(problem) => return failed(Status::Error, problem),
        };
        let done = self.checked(call, self.carry_out(permit));
        match turn.finish(done.status == Status::Success) {
            Ok(()) => done,
            Err(why) => failed(
                Status::Cancelled,
                Problem::new("it was ended", why.to_string(), "ask again"),
            ),
        }
    }

    fn turn(&self, call: &Call) -> Result<Turn, Problem> {
        let limits = call.limits();
        let want = Want {
            id: call.id(),
            tenant: call.caller().tenant.clone(),
            priority: Priority::try_from(call.priority().get()).unwrap_or(Priority::USUAL),
            template: template_of(call),
            memory: limits.memory,
            expected: call.timeout().duration(),
            after: call.after().to_vec(),
            patience: call.timeout().duration(),
        };
        let busy = |why: String, fix: &str| Problem::new("there is no room for it now", why, fix);
        let waiting = self.scheduler.request(want, Arc::new(Unstoppable));
        let waiting = waiting.map_err(|refused| busy(refused.to_string(), "try again later"))?;
        waiting.wait().map_err(|why| busy(why.to_string(), "ask again"))
    }

    /// A result that the tool's own schema forbids does not leave.
    fn checked(&self, call: &Call, done: Done) -> Done {
        let Some(value) = &done.value else { return done };
        match call.tool().output().validate(value) {
            Ok(()) => done,
            Err(faults) => {
                let why = faults.first().map(ToString::to_string).unwrap_or_default();
                let what = format!("`{}` gave back what it must not", call.name());
                let problem = Problem::new(what, why, "report it to the tool's author");
                failed(Status::Invalid, problem)
            }
        }
    }

    /// A refusal is on the disk before it is told.
    fn recorded_refusal(
        &self,
        call: &Call,
        facts: &Facts,
        kind: Kind,
        decision: Decision,
        reply: Reply,
    ) -> Reply {
        let mut draft = draft_of(call, facts, kind);
        draft.decision = Some(decision);
        draft.rules = reply.rules.clone();
        draft.reason = reply.problems.first().map(|problem| problem.why.clone());
        draft.status = Some(reply.status);
        match self.record.append(draft, Durability::Synced) {
            Ok(_) => reply,
            Err(error) => not_recorded(call, &error),
        }
    }

    /// A call that changes nothing is one event, written with the next ones. A crash may lose it.
    fn note(&self, call: &Call, facts: &Facts, permit: &Permit<'_>, done: &Done, begun: Instant) {
        let mut draft = outcome_of(call, done, begun, Kind::Called);
        draft.time = facts.now;
        draft.input = input_of(call);
        draft.decision = Some(Decision::Allow);
        draft.rules = permit.account().rules();
        // Nothing has happened that the record would have to know of.
        self.record.append_later(draft).ok();
    }

    fn within_its_rate(&self, call: &Call, now: Instant) -> Result<(), Reply> {
        let Some(rate) = call.tool().tool().rate else { return Ok(()) };
        let rate = Rate { count: rate.count.get(), per: rate.per.duration() };
        let (tenant, tool) = (call.caller().tenant.as_str(), call.name().to_string());
        self.rates.take(tenant, &tool, rate, now).map_err(|wait| {
            let why = format!("it may be called {} times in {:?}", rate.count, rate.per);
            let fix = format!("try again in {:.1}s", wait.as_secs_f64());
            Reply::problem(call.id(), Status::Error, Problem::new("too many calls", why, fix))
        })
    }
}

/// Its time and place among all calls.
fn new_id() -> CallId {
    let mut chance = [0; 10];
    // Without chance there is still the time; two in one nanosecond would be refused by the record.
    rustix::rand::getrandom(&mut chance, rustix::rand::GetRandomFlags::empty()).ok();
    CallId::new(u64::try_from(now() / 1_000_000).unwrap_or(0), chance)
}

fn draft_of(call: &Call, facts: &Facts, kind: Kind) -> Draft {
    let mut draft = Draft::new(kind, call.caller().clone(), facts.now);
    draft.call = Some(call.id());
    draft.parent = call.parent();
    draft.operation = Some(call.operation().to_string());
    draft.tool = Some(breaker_of(call));
    draft.mode = facts.mode.clone();
    draft.state = facts.state.clone();
    draft.input = input_of(call);
    draft.request = call.key().map(|key| key.as_str().to_owned());
    draft
}

fn input_of(call: &Call) -> Option<Payload> {
    let content = hotcell_request::canonical::bytes(&call.redacted_args());
    Some(Payload { media: "application/json".into(), content })
}

fn outcome_of(call: &Call, done: &Done, begun: Instant, kind: Kind) -> Draft {
    let mut draft = Draft::new(kind, call.caller().clone(), now());
    draft.call = Some(call.id());
    draft.parent = call.parent();
    draft.operation = Some(call.operation().to_string());
    draft.tool = Some(breaker_of(call));
    draft.status = Some(done.status);
    draft.reason =
        done.problem.as_ref().map(|problem| format!("{}: {}", problem.what, problem.why));
    draft.duration_ns = Some(u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX));
    draft.sandbox = done.sandbox.clone();
    draft.output = done.value.as_ref().map(|value| Payload {
        media: "application/json".into(),
        content: hotcell_request::canonical::bytes(value),
    });
    draft
}

fn reply_of(id: CallId, done: Done, permit: &Permit<'_>) -> Reply {
    Reply {
        value: done.value,
        problems: done.problem.into_iter().collect(),
        rules: permit.account().rules(),
        ..Reply::new(id, done.status)
    }
}

pub(crate) fn failed(status: Status, problem: Problem) -> Done {
    Done { status, value: None, problem: Some(problem), sandbox: None }
}

fn not_recorded(call: &Call, error: &AppendError) -> Reply {
    let what = format!("`{}` was not carried out, or what became of it is not known", call.name());
    let fix = "make room for the record, or repair it: `hotcell audit verify`";
    Reply::problem(call.id(), Status::Error, Problem::new(what, error.to_string(), fix))
}

fn left_alone(call: &Call, wait: std::time::Duration) -> Reply {
    let what = format!("`{}` is left alone for a while", call.name());
    let fix = format!("try again in {:.0}s", wait.as_secs_f64().ceil());
    let problem = Problem::new(what, "it failed several times in a row", fix);
    Reply::problem(call.id(), Status::CircuitOpen, problem)
}

/// `name@version`.
fn breaker_of(call: &Call) -> String {
    format!("{}@{}", call.name(), call.version())
}

fn template_of(call: &Call) -> Name {
    call.tool().tool().template.to_string().parse().unwrap_or(Name::LOCAL)
}

/// What a call that writes may write to: the paths that it names, or everything when it names none.
fn written_paths(call: &Call) -> Vec<String> {
    if !call.effects().has(Effect::Write) {
        return Vec::new();
    }
    let paths: Vec<String> = call.paths().into_iter().map(str::to_owned).collect();
    if paths.is_empty() { vec![String::new()] } else { paths }
}
