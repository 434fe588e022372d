//! The path: from a request to its one reply. Read [`Engine::call`] from top to bottom.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use hotcell_approver::ItemId;
use hotcell_bearer as bearer;
use hotcell_policy::{Facts, Permit, Verdict, judge};
use hotcell_record::{Draft, Durability, Intent};
use hotcell_request::{Call, CallError, Request, ToolName, canonical};
use hotcell_schedule::{Priority, Refused, Turn, Want};
use hotcell_types::{
    Bytes, CallId, Caller, Decision, Effect, Limits, Name, Outcome, SomeLimits, Status,
};
use serde_json::Value;

use crate::artifacts::{BeginError, Given, Origin, Product, Sight, not_read};
use crate::attached::Attached;
use crate::engine::Engine;
use crate::extended;
use crate::guard::breaker::Showed;
use crate::guard::claims::WHOLE;
use crate::guard::crowd::Place;
use crate::guard::rate::Rate;
use crate::guard::size;
use crate::hands::{Reins, Until, here};
use crate::live::Live;
use crate::once::{Ending, Once, goes_on, not_claimed};
use crate::prepare::{Here, Ready, Work, below_policy};
use crate::products::without_secrets;
use crate::queue::{Wanting, is_silence};
use crate::reply::{Problem, ProblemKind, Registered, Reply};
use crate::rulebook::{Book, PATIENCE, Steady, stale};
use crate::spend::{Spend, Unspent};
use crate::stage::Stage;
use crate::story::{self, Story};
use crate::weigh::Weighed;

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
    /// The tool itself failed, and not what it was asked to do.
    pub(crate) is_faulty: bool,
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

    /// What a tool of this process does not do as it says it would.
    pub(crate) fn faulty(problem: Problem) -> Done {
        Done { is_faulty: true, ..Done::failed(problem) }
    }

    pub(crate) fn cancelled() -> Done {
        let problem = Problem::new("it was ended", "somebody cancelled it", "ask again");
        Done { problem: Some(problem), ..Done::new(Status::Cancelled) }
    }

    fn new(status: Status) -> Done {
        let files = Vec::new();
        let (value, problem, run, limits, live) = (None, None, None, None, None);
        Done { status, value, problem, run, limits, files, is_faulty: false, live }
    }
}

/// What a call was judged by.
struct Basis<'a> {
    book: &'a Arc<Book>,
    facts: &'a Facts,
    /// It was judged before, by a policy that has been replaced, and nothing came of that.
    is_again: bool,
    /// Until it is begun, this process changes no policy.
    steady: Steady<'a>,
}

/// Why nothing was begun.
enum NotBegun {
    /// Somebody else has used up what it was allowed by, or that is over.
    Unspent(Problem),
    /// Another call has its key.
    Taken,
    /// The policy that judged it does not hold.
    Stale(Problem),
    Other(Problem),
}

/// A call that was judged by a policy that holds no more, before it was begun.
struct Replaced<'a> {
    /// Everything that came with it.
    attached: Attached<'a>,
    /// The version that judged it.
    number: u64,
    problem: Problem,
}

/// The reply, or a call that has to be judged again.
type Judged<'a> = Result<Reply, Box<Replaced<'a>>>;

impl Engine {
    /// Carries out one call, or says why not. Exactly one reply, whatever happens.
    pub(crate) fn call(
        &self,
        id: CallId,
        caller: &Caller,
        request: Request,
        attached: Attached<'_>,
    ) -> Reply {
        let asked = SomeLimits { timeout: request.timeout, ..SomeLimits::default() };
        let tool = request.tool.clone();
        let call = match Call::new(request, caller.clone(), id, &self.registry) {
            Ok(call) => call,
            Err(error) => return self.invalid(caller, &tool, id, &error),
        };
        let call = match self.ceiling_of(attached.from.as_ref()).timeout {
            Some(most) => call.within(most),
            None => call,
        };
        if let Err(problem) = self.parent_is_own(&call).and_then(|()| few_secrets(&call)) {
            return self.unjudged(caller, &tool, Reply::failed(id, problem));
        }
        match Once::of(&call) {
            Some(once) => self.once(&call, &once, &asked, attached),
            None => self.judged(&call, None, &asked, attached),
        }
    }

    /// A request that is no call. Of its arguments only the places are told that are wrong: what is secret in them
    /// nobody can say.
    fn invalid(&self, caller: &Caller, tool: &ToolName, id: CallId, error: &CallError) -> Reply {
        let reply = Reply::invalid(id, error);
        let CallError::Arguments { faults, .. } = error else {
            return self.unjudged(caller, tool, reply);
        };
        let places: Vec<&str> = faults.iter().map(|fault| fault.at()).take(PLACES_TOLD).collect();
        let places = places.join(", ");
        self.note_unjudged(caller, tool, &reply, format!("the arguments are wrong at: {places}"));
        reply
    }

    /// A call that came to nothing before it was judged is one event as any other.
    pub(crate) fn unjudged(&self, caller: &Caller, tool: &ToolName, reply: Reply) -> Reply {
        let why = reply.problems.first().map(ToString::to_string).unwrap_or_default();
        self.note_unjudged(caller, tool, &reply, why);
        reply
    }

    fn note_unjudged(&self, caller: &Caller, tool: &ToolName, reply: &Reply, why: String) {
        let mut draft = story::unjudged(reply.id, caller, tool, reply.status, why);
        match self.book() {
            Ok(book) => draft.hidden = book.hidden.clone(),
            // What may be told is for the policy to say.
            Err(_) => draft.reason = None,
        }
        // What went wrong before is what to tell, also if this cannot be recorded.
        if let Ok(record) = self.recording() {
            record.append_later(draft).ok();
        }
    }

    /// Decides, and does what was decided. Another process may replace the policy before the call is begun: then
    /// it is judged again, by the version that holds now, so that each call is decided by one and none is lost.
    /// A call that comes from the queue (`by`) is carried out with the approval that was given there, or not at
    /// all: otherwise it could be carried out twice.
    pub(crate) fn judged(
        &self,
        call: &Call,
        by: Option<ItemId>,
        asked: &SomeLimits,
        mut attached: Attached<'_>,
    ) -> Reply {
        self.passed(call.id(), Stage::Called);
        let (until, mut is_again) = (Instant::now() + PATIENCE, false);
        loop {
            let replaced = match self.judged_once(call, (by, is_again), asked, attached) {
                Ok(reply) => return reply,
                Err(replaced) => replaced,
            };
            self.rulebook.forget();
            let is_replaced = match self.book() {
                Ok(book) => book.number != replaced.number,
                Err(problem) => return self.undecided(call, problem),
            };
            // One that is gone judges nobody; who changes it without end is waited for so long.
            if !is_replaced || Instant::now() >= until {
                return match (replaced.problem.is_busy(), by) {
                    (false, _) => self.undecided(call, replaced.problem),
                    (true, Some(_)) => Reply::failed(call.id(), replaced.problem),
                    (true, None) => {
                        let reply = Reply::failed(call.id(), replaced.problem);
                        self.unjudged(call.caller(), call.name(), reply)
                    }
                };
            }
            (attached, is_again) = (replaced.attached, true);
        }
    }

    /// The same by one version of the policy. An extension or an approver is asked only where that could change
    /// something.
    fn judged_once<'a>(
        &self,
        call: &Call,
        (by, is_again): (Option<ItemId>, bool),
        asked: &SomeLimits,
        attached: Attached<'a>,
    ) -> Judged<'a> {
        let steady = self.rulebook.steady();
        let weighed = self.book().and_then(|book| Ok((self.weigh(call, &book)?, book)));
        let (mut weighed, book) = match weighed {
            Ok(weighed) => weighed,
            Err(problem) => return Ok(self.undecided(call, problem)),
        };
        let verdict = weighed.judge(call, &book);
        let verdict = match self.weigh_approval(&verdict, by, call, &book, &mut weighed) {
            Ok(false) => match by {
                Some(item) => return Ok(self.drifted(call, item, (&weighed, &book), &verdict)),
                None => verdict,
            },
            Ok(true) => judge(&book.policy, call, &weighed.facts),
            Err(problem) => return Ok(self.undecided(call, problem)),
        };
        match verdict {
            Verdict::Allow(permit) => {
                let Weighed { facts, spend } = weighed;
                let basis = Basis { book: &book, facts: &facts, is_again, steady };
                self.permitted(permit, basis, spend, asked, attached)
            }
            Verdict::Review(account) => {
                let wanting = Wanting::review(call, &book, account);
                Ok(self.put_before_somebody(&wanting, weighed, asked, attached))
            }
            Verdict::Deny(account) if call.asks() && is_silence(&account) && book.can_answer() => {
                let wanting = Wanting::blocked(call, &book, account);
                Ok(self.put_before_somebody(&wanting, weighed, asked, attached))
            }
            Verdict::Deny(_) | Verdict::Ask(_) => match self.surely_has(&book) {
                Ok(()) => Ok(self.refused(call, &book, &weighed, &verdict)),
                Err(problem) => Err(Box::new(Replaced { attached, number: book.number, problem })),
            },
        }
    }

    /// Somebody agreed, and not to what would be done now; or somebody else was first.
    fn drifted(
        &self,
        call: &Call,
        item: ItemId,
        (weighed, book): (&Weighed, &Book),
        verdict: &Verdict<'_>,
    ) -> Reply {
        let account = match verdict {
            Verdict::Allow(permit) => permit.account(),
            Verdict::Review(account) | Verdict::Deny(account) | Verdict::Ask(account) => account,
        };
        let story = Story::new(call, &weighed.facts, account, book);
        let why = "it is over or used, or the policy, its approvers or the call are others now";
        let problem = Problem::new("the approval does not count", why, "make the call again");
        let problem = problem.of(ProblemKind::Blocked);
        let reply = match self.is_approved(call.caller(), item) {
            Ok(true) => self.not_begun(call, &story, problem),
            // That is no refusal of this call.
            Ok(false) => Reply::failed(call.id(), problem),
            Err(problem) => Reply::failed(call.id(), problem),
        };
        Reply { is_unspent: true, ..reply }
    }

    /// A refusal is on the disk before it is told, and says what would allow the call.
    fn refused(&self, call: &Call, book: &Book, weighed: &Weighed, verdict: &Verdict<'_>) -> Reply {
        let (Verdict::Deny(account) | Verdict::Ask(account) | Verdict::Review(account)) = verdict
        else {
            return Reply::failed(call.id(), panicked());
        };
        let story = Story::new(call, &weighed.facts, account, book);
        let refusal = story.refusal(Decision::Deny);
        match self.record_refusal(refusal, &weighed.spend) {
            Ok(()) => {
                let what = format!("the policy does not allow `{}`", call.name());
                let help = verdict.would_allow(&book.policy, call);
                let is_rule = help.starts_with("- ");
                let fix = if is_rule { format!("a policy with this:\n{help}") } else { help };
                Reply::refused(call.id(), what, fix, account)
            }
            Err(problem) => Reply::failed(call.id(), problem),
        }
    }

    /// Without a policy that can be used nothing is decided, and that is a refusal as any other: on the disk
    /// before it is told. Where not even that can be written, what went wrong first is what to tell.
    fn undecided(&self, call: &Call, problem: Problem) -> Reply {
        self.record_now(story::undecided(call, &problem)).ok();
        Reply::failed(call.id(), problem)
    }

    /// Everything that a verdict of allow leads to.
    fn permitted<'a>(
        &self,
        permit: Permit<'_>,
        basis: Basis<'_>,
        spend: Spend,
        asked: &SomeLimits,
        mut attached: Attached<'a>,
    ) -> Judged<'a> {
        let call = permit.call();
        let story =
            Story::new(call, basis.facts, permit.account(), basis.book).with_bearer(spend.bearer());
        self.passed(call.id(), Stage::Judged);
        let constraints = permit.constraints();
        let allowed = self.below_ceiling(asked, attached.from.as_ref());
        let allowed = allowed.and_then(|()| below_policy(asked, constraints));
        let allowed = allowed.and_then(|()| self.may_be_so_soon(call));
        if let Err(problem) = allowed {
            return Ok(self.not_begun(call, &story, problem));
        }
        // However often it is judged, it is one call.
        if !basis.is_again
            && let Err(problem) = self.within_its_rate(call, story.begun())
        {
            return Ok(self.noted(call, &story, Done::failed(problem)));
        }
        // What uses something up is carried out.
        let uses_up = spend.is_of_bearers();
        let from = attached.from.clone();
        let key = self.key(call, from.as_ref()).filter(|_| !uses_up);
        if let Some(value) = key.and_then(|key| self.cached(&key, story.begun())) {
            let most = Most { policy: constraints.output, own: None };
            let done = within_output(call, most, Done::value(value));
            return Ok(Reply { cached: true, ..self.noted(call, &story, done) });
        }
        let tenant = call.caller().tenant.as_str();
        let trial = match self.breakers.pass(tenant, call.tool().label(), story.begun()) {
            Ok(trial) => trial,
            Err(open) => return Ok(self.noted(call, &story, left_alone(call, open.retry_after))),
        };
        let mut ready = match self.prepare(call, constraints, &attached) {
            Ok(ready) => ready,
            Err(problem) => return Ok(self.not_begun(call, &story, problem)),
        };
        let story = story.hiding(ready.secrets());
        ready.look_through(|| extended::window(basis.book, call, basis.facts));
        if let Err(problem) = ready.watch(|| self.border(basis.book, basis.facts, call)) {
            return Ok(self.not_begun(call, &story, problem));
        }
        self.passed(call.id(), Stage::Prepared);
        let reply = if call.effects().can_change_something() || uses_up {
            self.with_intent(permit, &story, (basis, spend), ready, attached)?
        } else if let Err(problem) = self.surely_has(basis.book) {
            return Err(Box::new(Replaced { attached, number: basis.book.number, problem }));
        } else {
            drop(basis.steady);
            attached.stdin = None;
            let done = self.tried(permit, ready, attached);
            self.noted(call, &story, done)
        };
        trial.tell(reply.showed, Instant::now());
        if let (Some(key), Some(value), Status::Success) = (key, &reply.value, reply.status) {
            self.keep(call, from.as_ref(), (key, value), Instant::now());
        }
        Ok(reply)
    }

    /// A call of another tenant is as good as none.
    fn parent_is_own(&self, call: &Call) -> Result<(), Problem> {
        let Some(parent) = call.parent() else { return Ok(()) };
        let tenant =
            self.recording()?.tenant_of(parent).map_err(|error| not_read(&error.into()))?;
        if tenant.is_none_or(|tenant| tenant == call.caller().tenant) {
            return Ok(());
        }
        let what = format!("there is no call {parent} in which this one could be made");
        let fix = "name a call of your own as `parent`, or none";
        let problem = Problem::new(what, "it is not known here", fix).of(ProblemKind::Invalid);
        Err(Problem { at: "/parent".into(), ..problem })
    }

    pub(crate) fn may_be_so_soon(&self, call: &Call) -> Result<(), Problem> {
        let (asked, first) = (call.priority(), self.first_priority(call.caller()));
        if asked >= first {
            return Ok(());
        }
        let (asked, first) = (asked.get(), first.get());
        let why =
            format!("priority {asked} comes before {first}, the first that this caller may have");
        let fix = format!("ask for {first} or later, or have the operator allow more");
        let what = "the call asks for more than the operator allows";
        let problem = Problem::new(what, why, fix).of(ProblemKind::Blocked);
        Err(Problem { at: "/priority".into(), ..problem })
    }

    /// What the operator does not allow is on the disk before it is told, as any refusal is.
    pub(crate) fn not_begun(&self, call: &Call, story: &Story<'_>, problem: Problem) -> Reply {
        if problem.kind != ProblemKind::Blocked {
            return self.noted(call, story, Done::failed(problem));
        }
        let told = self.record_now(story.not_begun(&problem)).err().unwrap_or(problem);
        Reply { rules: story.rules(), ..Reply::failed(call.id(), told) }
    }

    /// On the disk before it happens; what cannot be recorded does not happen.
    fn with_intent<'a>(
        &self,
        permit: Permit<'_>,
        story: &Story<'_>,
        (basis, spend): (Basis<'_>, Spend),
        mut ready: Ready<'_>,
        mut attached: Attached<'a>,
    ) -> Judged<'a> {
        let call = permit.call();
        let item = spend.approval.as_ref().map(|approval| approval.item);
        let origin = story.origin();
        let mut provenance = ready.provenance.take();
        let given = provenance.as_mut().map(|known| std::mem::take(&mut known.given));
        let hidden = story.hidden();
        let mut given = without_secrets(&hidden, given.unwrap_or_default());
        ready.hidden = Some(Arc::clone(&hidden));
        let kept = match item.map_or(Ok(Vec::new()), |_| self.kept_while_waiting(call)) {
            Ok(kept) => kept,
            Err(problem) => return Ok(Reply::failed(call.id(), problem)),
        };
        given.retain(|product| !kept.iter().any(|kept| product.is(kept)));
        let begun = self.begin(story.intent(), (basis.book, spend), &origin, given, &ready);
        let number = basis.book.number;
        drop(basis.steady);
        let (mut given, intent) = match begun {
            Ok(begun) => begun,
            // Somebody else was first. What is still in the queue is told by whoever carries it out.
            Err(NotBegun::Unspent(problem)) => {
                let reply = match item {
                    Some(_) => Reply::failed(call.id(), problem),
                    None => self.not_begun(call, story, problem),
                };
                return Ok(Reply { is_unspent: true, ..reply });
            }
            Err(NotBegun::Taken) => {
                return Ok(Reply { is_unspent: true, ..Reply::failed(call.id(), goes_on()) });
            }
            Err(NotBegun::Stale(problem)) => {
                return Err(Box::new(Replaced { attached, number, problem }));
            }
            Err(NotBegun::Other(problem)) => {
                return Ok(match item {
                    Some(_) => Reply::failed(call.id(), problem),
                    None => self.noted(call, story, Done::failed(problem)),
                });
            }
        };
        attached.stdin = None;
        given.artifacts.extend(kept);
        self.passed(call.id(), Stage::Intended);
        // There is something to be kept after the outcome.
        let is_last = attached.is_last && item.is_none();
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
        let made = without_secrets(&hidden, made);
        let outcome = story.outcome(&done);
        let ending = Ending::of(call, story, &done, &hidden);
        let finish = |intent| {
            self.artifacts.finish_keeping(intent, outcome, &origin, &given, sight, made, ending)
        };
        let finished = if is_last { self.end(|| finish(intent.last())) } else { finish(intent) };
        let reply = match finished {
            Ok((made, _)) => {
                self.passed(call.id(), Stage::Recorded);
                let artifacts = made.iter().chain(&given.artifacts).map(Registered::from);
                Reply { artifacts: artifacts.collect(), ..reply_of(call, story, done) }
            }
            Err(error) => Reply::failed(call.id(), not_recorded(&error)),
        };
        Ok(match item {
            Some(item) => self.keep_result(&call.caller().tenant, item, &hidden, reply),
            None => reply,
        })
    }

    /// Records the intent, with what the call is given.
    fn begin(
        &self,
        intent: Draft,
        (book, spend): (&Book, Spend),
        origin: &Origin,
        given: Vec<Product>,
        ready: &Ready<'_>,
    ) -> Result<(Given, Intent), NotBegun> {
        let record = || {
            let record = self.recording().map_err(NotBegun::Other)?;
            let begun = self.artifacts.begin_spending(record, intent, origin, given, spend);
            begun.map_err(|error| match error {
                BeginError::Unspent(Unspent::Stale) => NotBegun::Stale(stale(book)),
                BeginError::Unspent(Unspent::Taken) => NotBegun::Taken,
                BeginError::Unspent(Unspent::Once(error)) => NotBegun::Other(not_claimed(&error)),
                BeginError::Unspent(error) => NotBegun::Unspent(used_up(&error)),
                BeginError::Register(error) => NotBegun::Other(not_recorded(&error)),
            })
        };
        if let Some(job) = ready.job() {
            self.warm(job);
        }
        record()
    }

    /// What changes nothing is tried again, as often as its tool says, within its time.
    fn tried(&self, permit: Permit<'_>, ready: Ready<'_>, attached: Attached<'_>) -> Done {
        let (call, most) = (permit.call(), Most::of(&permit, &ready));
        let until = Until::after(ready.limits.timeout);
        let again = match (&ready.work, call.tool().tool().retry) {
            (Work::Here(tool), Some(retry)) => Some((tool.clone(), retry)),
            _ => None,
        };
        let mut done = self.in_turn(permit, ready, attached);
        let Some((tool, retry)) = again else { return done };
        for wait in retry.waits() {
            let can_help = matches!(done.status, Status::Failure | Status::Error);
            let is_busy = done.problem.as_ref().is_some_and(Problem::is_busy);
            if !can_help || is_busy || Instant::now() + wait >= until.end {
                break;
            }
            thread::sleep(wait);
            let patience = until.end.saturating_duration_since(Instant::now());
            let Some(_place) = self.place(call, patience) else { break };
            done = checked(call, most, here(call, &tool, until));
        }
        done
    }

    /// Waits for a turn, and does it.
    fn in_turn(&self, permit: Permit<'_>, ready: Ready<'_>, mut attached: Attached<'_>) -> Done {
        let (call, most) = (permit.call(), Most::of(&permit, &ready));
        let Some(_place) = self.place(call, call.timeout().duration()) else {
            let why = "as many calls of it as it allows are going on";
            return Done::failed(busy(why.into(), "try again later"));
        };
        let findable = self.under_way.begin(call, attached.id);
        let reins = Arc::new(Reins::of(Arc::clone(&findable.rope)));
        let turn = match self.turn(call, &ready, &reins) {
            Ok(turn) => turn,
            Err(_) if reins.rope.is_pulled() => return Done::cancelled(),
            Err(problem) => return Done::failed(problem),
        };
        self.passed(call.id(), Stage::Scheduled);
        if reins.rope.is_pulled() {
            return Done::cancelled();
        }
        let done = self.carry_out(permit, ready, &mut attached, &reins);
        let done = checked(call, most, done);
        self.passed(call.id(), Stage::CarriedOut);
        match turn.map(|turn| turn.finish(done.status == Status::Success)) {
            // Who was asked to make room, and had come to an end by then, ended as it did.
            Some(Err(why)) if done.status == Status::Cancelled => {
                let problem = Problem::new("it was ended", why.to_string(), "ask again");
                Done { problem: Some(problem), ..done }
            }
            _ => done,
        }
    }

    /// One of as many places as the tool allows at one time.
    fn place(&self, call: &Call, patience: Duration) -> Option<Place<'_>> {
        self.crowds.enter(call.tool().label(), call.tool().tool().concurrency, patience)
    }

    /// What runs in this process and waits for nobody needs no turn.
    fn turn(
        &self,
        call: &Call,
        ready: &Ready<'_>,
        reins: &Arc<Reins>,
    ) -> Result<Option<Turn>, Problem> {
        if !ready.needs_a_turn() && call.after().is_empty() {
            return Ok(None);
        }
        let want = Want {
            id: call.id(),
            tenant: call.caller().tenant.clone(),
            party: call.caller().subject.clone(),
            priority: Priority::try_from(call.priority().get()).unwrap_or(Priority::USUAL),
            template: template_of(call),
            // Who asks for more than there is runs alone.
            memory: ready.memory().min(self.machine().memory),
            expected: ready.limits.timeout.duration(),
            after: call.after().to_vec(),
            patience: ready.limits.timeout.duration(),
        };
        let waiting = self.machine().scheduler.request(want, Arc::clone(reins) as _);
        let waiting = waiting.map_err(not_taken)?;
        reins.rope.waits(waiting.cancel_handle());
        waiting.wait().map(Some).map_err(|why| busy(why.to_string(), "ask again"))
    }

    /// A refusal, and with it that a token has expired by now.
    fn record_refusal(&self, draft: Draft, spend: &Spend) -> Result<(), Problem> {
        let Some(moment) = spend.expired else { return self.record_now(draft) };
        let recorded = self.recording()?.write(Durability::Synced, move |tx| {
            bearer::advance(tx, &moment)?;
            Ok::<_, bearer::Error>(((), vec![draft]))
        });
        recorded.map(drop).map_err(|error| not_recorded(&error))
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
        self.rates.take(tenant, call.tool().label(), rate, now).map_err(|wait| {
            let why = format!("it may be called {} times in {:?}", rate.count, rate.per);
            let fix = format!("try again in {:.1}s", wait.as_secs_f64());
            Problem::new("too many calls", why, fix).of(ProblemKind::Busy)
        })
    }
}

/// Most places of one call that the record has.
const PLACES_TOLD: usize = 16;

/// Every secret is looked for in everything that is recorded; where that cannot be done, nothing is.
fn few_secrets(call: &Call) -> Result<(), Problem> {
    if !story::has_too_many_secrets(call) {
        return Ok(());
    }
    let what = "the call has more secrets than can be kept out of the record";
    let most = story::SECRETS_MOST;
    let why = format!("more than {most} of its values are secret, or are called so");
    let fix = "make several calls, or give what is not secret a name that does not say so";
    Err(Problem::new(what, why, fix).of(ProblemKind::Invalid))
}

/// How many bytes may be given back by what runs in no sandbox.
#[derive(Debug, Clone, Copy)]
struct Most {
    policy: Option<Bytes>,
    /// Of a tool of whoever embeds this: what it says of itself. Ours have their own.
    own: Option<Bytes>,
}

impl Most {
    fn of(permit: &Permit<'_>, ready: &Ready<'_>) -> Most {
        let is_added = matches!(ready.work, Work::Here(Here::Added(_)));
        let own = is_added.then(|| permit.call().limits().output);
        Most { policy: permit.constraints().output, own }
    }
}

/// A result that is too large, or that the tool's own schema forbids, does not leave.
fn checked(call: &Call, most: Most, mut done: Done) -> Done {
    let Some(value) = done.value.take() else { return done };
    let valid = size::fits(value).and_then(|value| {
        let faults = call.tool().output().validate(&value).err();
        let why = faults.as_ref().and_then(|faults| faults.first()).map(ToString::to_string);
        if faults.is_none() { Ok(value) } else { Err(why.unwrap_or_default()) }
    });
    match valid {
        Ok(value) => within_output(call, most, Done { value: Some(value), ..done }),
        Err(why) => {
            let what = format!("`{}` gave back what it must not", call.name());
            let problem = Problem::new(what, why, "report it to the tool's author");
            Done {
                run: done.run,
                limits: done.limits,
                files: done.files,
                live: done.live,
                ..Done::faulty(problem.of(ProblemKind::Invalid))
            }
        }
    }
}

/// What a tool gives back that ran in no sandbox is as little as it says itself, and as the rules that allow it want
/// it.
fn within_output(call: &Call, most: Most, done: Done) -> Done {
    if done.run.is_some() || (most.policy, most.own) == (None, None) {
        return done;
    }
    let Some(value) = &done.value else { return done };
    let bytes = canonical::bytes(value).len();
    let above = |most: Option<Bytes>| most.filter(|most| bytes as u64 > most.get());
    let more = |whose: &str, most: Bytes| {
        let what = format!("`{}` gave back more than {whose} allows", call.name());
        let why = format!("it has {bytes} bytes, and `output: {most}` is the most");
        let fix = format!("ask for less at a time, or have {whose} changed");
        Problem::new(what, why, fix).of(ProblemKind::Failed)
    };
    match (above(most.policy), above(most.own)) {
        (Some(most), _) => Done::failed(more("the policy", most)),
        (None, Some(most)) => Done::faulty(more("its own limit", most)),
        (None, None) => done,
    }
}

fn reply_of(call: &Call, story: &Story<'_>, done: Done) -> Reply {
    Reply {
        value: done.value,
        problems: done.problem.into_iter().collect(),
        rules: story.rules(),
        run: done.run,
        showed: match done.status {
            _ if done.is_faulty => Showed::Failing,
            Status::Success | Status::Failure => Showed::Working,
            _ => Showed::Nothing,
        },
        ..Reply::new(call.id(), done.status)
    }
}

fn used_up(error: &Unspent) -> Problem {
    let what = "what the call was allowed by cannot be used any more";
    Problem::new(what, error.to_string(), "ask again").of(ProblemKind::Blocked)
}

pub(crate) fn not_recorded(error: &dyn std::error::Error) -> Problem {
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

/// What nobody can ever wait for is the request's own fault.
fn not_taken(refused: Refused) -> Problem {
    match refused {
        Refused::UnknownDependency { after, .. } => {
            let what = format!("there is no call {after} to come after");
            let why = "it was never made here, needed no turn, or ended long ago";
            let fix = "name calls in `after` that wait or run, or that ended lately";
            let problem = Problem::new(what, why, fix).of(ProblemKind::Invalid);
            Problem { at: "/after".into(), ..problem }
        }
        refused => busy(refused.to_string(), "try again later"),
    }
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
