//! What waits for somebody to agree: put there by the path, answered by an approver, and carried out then
//! for whoever still waits, or comes back.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hotcell_bearer as bearer;
use hotcell_ledger::Artifact;
use hotcell_policy::{Account, Constraints};
use hotcell_record::{Draft, Durability, Kind as EventKind, Redactor, WriteError, now};
use hotcell_request::Call;
use hotcell_review::{self as review, Cursor, Given, Item, ItemId, Kind, New, Page, Rule, State};
use hotcell_tools::policy;
use hotcell_types::{Caller, Decision, Name, SomeLimits, Status};
use hotcell_workspace::{Relative, unified_text};
use serde_json::Value;

use crate::artifacts::{BeginError, not_read};
use crate::attached::Attached;
use crate::engine::Engine;
use crate::path::{not_recorded, panicked};
use crate::products::without_secrets;
use crate::reply::{Problem, ProblemKind, Reply};
use crate::rulebook::{Book, Look, not_looked_up};
use crate::show::artifacts_of;
use crate::spend::{Spend, Unspent, of_bearer};
use crate::story::{self, Story};
use crate::weigh::Weighed;

/// How often the record is asked about a call that somebody else carries out: if that process dies, nobody
/// tells.
const CARRIED_OUT_STEP: Duration = Duration::from_millis(500);
/// Shortest wait for an item to be over, so that a clock that stands still costs little.
const LEAST_STEP: Duration = Duration::from_millis(20);

/// What can be asked of the queue.
#[derive(Debug)]
pub enum QueueAsk<'a> {
    /// Those that wait first.
    List {
        after: Option<Cursor>,
        limit: usize,
    },
    Show(ItemId),
    /// Waits until it is answered, for so long at most, and carries the call out if somebody agreed. Only
    /// whoever asked can do that.
    Await {
        item: ItemId,
        patience: Duration,
        interrupt: &'a AtomicBool,
        /// Who listens then. What went along with the call is taken from the ledger if it is not here.
        attached: Box<Attached<'a>>,
    },
    /// An answer with the signature of an approver.
    Answer {
        item: ItemId,
        given: Box<Given>,
    },
    /// Somebody tried to answer, and did not prove to be an approver. Only that is recorded.
    NotAnswered {
        item: ItemId,
        why: String,
    },
    /// Whoever asked does not want it any more.
    Cancel(ItemId),
}

#[derive(Debug)]
pub enum QueueAnswer {
    Page(Page),
    Item(Box<Queued>),
    /// What came of the call that was waited for.
    Reply(Box<Reply>),
}

/// An item, and the call that it is about.
#[derive(Debug)]
pub struct Queued {
    pub item: Item,
    /// Exactly what would be carried out, with what is secret left out; `None` when it is over.
    pub call: Option<Value>,
    /// What it would change in the workspace, where that can be told before.
    pub difference: Option<String>,
    /// The time that an answer is to have.
    pub now: i64,
}

/// A call that somebody has to agree to, and why.
pub(crate) struct Wanting<'a> {
    call: &'a Call,
    book: &'a Book,
    account: Account<'a>,
    kind: Kind,
}

impl<'a> Wanting<'a> {
    /// Rules want it looked at.
    pub(crate) fn review(call: &'a Call, book: &'a Book, account: Account<'a>) -> Wanting<'a> {
        let is_policy = call.name().to_string() == policy::NAME;
        let kind = if is_policy { Kind::Policy } else { Kind::Review };
        Wanting { call, book, account, kind }
    }

    /// No rule speaks of it, and whoever asks for it wants a person to decide.
    pub(crate) fn blocked(call: &'a Call, book: &'a Book, account: Account<'a>) -> Wanting<'a> {
        Wanting { call, book, account, kind: Kind::Blocked }
    }

    fn rules(&self) -> Vec<Rule> {
        let asking = self.account.spoken().iter();
        let asking = asking.filter(|spoken| spoken.decision == Decision::Review);
        asking
            .map(|spoken| Rule { name: spoken.rule.to_string(), reason: spoken.reason.to_string() })
            .collect()
    }
}

/// Whether a call was refused because nobody spoke for it, and not because a rule denies it.
pub(crate) fn is_silence(account: &Account<'_>) -> bool {
    account.decision().is_none()
}

impl Engine {
    /// A call that somebody has to agree to goes into the queue, and that is on the disk before it is told.
    /// Nobody is asked about a call that could not be carried out.
    pub(crate) fn put_before_somebody(
        &self,
        wanting: &Wanting<'_>,
        weighed: Weighed,
        asked: &SomeLimits,
        attached: Attached<'_>,
    ) -> Reply {
        let Wanting { call, account, book, .. } = wanting;
        let Weighed { facts, spend } = weighed;
        let story = Story::new(call, &facts, account, book);
        let allowed = self.below_ceiling(asked, attached.from.as_ref());
        let allowed = allowed.and_then(|()| self.may_be_so_soon(call));
        let item = match allowed.and_then(|()| self.enqueue(wanting, &story, spend, &attached)) {
            Ok(item) => item,
            Err(problem) => return self.not_begun(call, &story, problem),
        };
        let what = format!("`{}` waits for somebody to agree", call.name());
        let fix = format!(
            "an approver answers with `hotcell approve {0}` or `hotcell reject {0}`",
            item.id
        );
        let problem = Problem::new(what, account.reason(), fix).of(ProblemKind::Blocked);
        Reply {
            problems: vec![problem],
            rules: account.rules(),
            review: Some(item.id),
            ..Reply::new(item.call, Status::Review)
        }
    }

    fn enqueue(
        &self,
        wanting: &Wanting<'_>,
        story: &Story<'_>,
        spend: Spend,
        attached: &Attached<'_>,
    ) -> Result<Item, Problem> {
        let Wanting { call, book, ref account, kind } = *wanting;
        if !book.can_answer() {
            let fix = "`hotcell init` makes an approver and a policy that names one";
            let why =
                format!("{}; and this home has no approver who could agree", account.reason());
            return Err(
                Problem::new("somebody has to agree to it", why, fix).of(ProblemKind::Blocked)
            );
        }
        let brought = attached.contents();
        let mut given = match kind {
            Kind::Policy => {
                self.could_be_installed(call)?;
                Vec::new()
            }
            Kind::Review | Kind::Blocked => {
                let ready = self.prepare(call, &Constraints::default(), attached)?;
                ready.provenance.map(|known| known.given).unwrap_or_default()
            }
        };
        // The rest is in the arguments.
        given.retain(|product| brought.contains(&product.content.blob().digest.to_string()));
        let hidden = story.hidden();
        let given = without_secrets(&hidden, given);
        let mut new = New::of(call, kind, self.terms(book)?.policy);
        new.rules = wanting.rules();
        new.rules.iter_mut().for_each(|rule| rule.reason = hidden.redact_text(&rule.reason));
        new.bearer = spend.token.as_ref().map(|token| token.id.clone());
        // It stays when the item is over.
        new.shown = hidden.redact_json(&new.shown);
        let origin = story.origin();
        let (clock, id, caller) = (origin.time, origin.call, origin.caller.clone());
        let (secrets, hides) = (story.secrets(), story.hides());
        let (token, expired) = (spend.token, spend.expired);
        let written = self.artifacts.put_aside(self.recording()?, &origin, given, move |tx| {
            review::migrate(tx)?;
            let mut drafts = end_what_is_over(tx, clock)?;
            if let Some(moment) = expired {
                bearer::advance(tx, &moment)?;
            }
            let (item, mut events) = review::enqueue(tx, new, clock)?;
            for event in &mut events {
                event.secrets.clone_from(&secrets);
                event.hidden.clone_from(&hides);
            }
            drafts.extend(events);
            // One that waited already has what it needs.
            let is_new = item.call == id;
            if let Some(token) = token.filter(|_| is_new) {
                let change = bearer::reserve(tx, token.covered, id, &token.moment)?;
                drafts.push(of_bearer(&change, &caller, Some(id), clock));
            }
            Ok((item, drafts, is_new))
        });
        written.map_err(|error| match error {
            BeginError::Unspent(error) => not_queued(WriteError::Own(error)),
            BeginError::Register(error) => not_recorded(&error),
        })
    }

    /// What a call was given when it was put into the queue.
    pub(crate) fn kept_while_waiting(&self, call: &Call) -> Result<Vec<Artifact>, Problem> {
        let kept = artifacts_of(self.recording()?, call.caller(), call.id());
        kept.map_err(|error| not_read(&error))
    }

    pub(crate) fn ask_queue(
        &self,
        caller: &Caller,
        ask: QueueAsk<'_>,
    ) -> Result<QueueAnswer, Problem> {
        self.expire()?;
        match ask {
            QueueAsk::List { after, limit } => {
                let tenant = &caller.tenant;
                let page = self.look_at_queue(|conn| review::list(conn, tenant, after, limit))?;
                Ok(QueueAnswer::Page(page))
            }
            QueueAsk::Show(item) => self.queued(&caller.tenant, item),
            QueueAsk::Await { item, patience, interrupt, attached } => {
                let reply = self.await_reply(caller, item, (patience, interrupt), *attached)?;
                Ok(QueueAnswer::Reply(Box::new(reply)))
            }
            QueueAsk::Answer { item, given } => {
                self.answer(caller, item, *given).inspect_err(|problem| {
                    if matches!(problem.kind, ProblemKind::Blocked | ProblemKind::Error) {
                        self.record_now(not_answered(caller, item, &problem.to_string())).ok();
                    }
                })?;
                self.queued(&caller.tenant, item)
            }
            QueueAsk::NotAnswered { item, why } => {
                let queued = self.queued(&caller.tenant, item)?;
                self.record_now(not_answered(caller, item, &why))?;
                Ok(queued)
            }
            QueueAsk::Cancel(item) => {
                let by = caller.clone();
                self.write_to_queue(move |tx, clock| {
                    let (item, mut drafts) = review::cancel(tx, &by, item, clock)?;
                    drafts.extend(release(tx, &item, clock)?);
                    Ok(((), drafts))
                })?;
                self.queued(&caller.tenant, item)
            }
        }
    }

    fn answer(&self, caller: &Caller, id: ItemId, given: Given) -> Result<(), Problem> {
        self.needs_no_policy(&caller.tenant, id, &given)?;
        let (terms, tenant) = (self.terms(&*self.book()?)?, caller.tenant.clone());
        let rejected = given.verdict == review::Verdict::Reject;
        self.write_to_queue(move |tx, clock| {
            let (item, mut drafts) = review::answer(tx, &terms, &tenant, id, given, clock)?;
            if rejected {
                drafts.extend(release(tx, &item, clock)?);
            }
            Ok(((), drafts))
        })
    }

    fn queued(&self, tenant: &Name, id: ItemId) -> Result<QueueAnswer, Problem> {
        let (item, bytes, now) = self.look_at_queue(|conn| {
            let item = review::get(conn, tenant, id)?.ok_or(review::Error::NoItem(id))?;
            let bytes = review::stored_call(conn, tenant, id)?;
            Ok((item, bytes, review::now(conn, hotcell_record::now())?))
        })?;
        let call = bytes.map(|bytes| self.stored(&item, &bytes)).transpose()?;
        let difference = call.as_ref().and_then(|call| self.difference(call));
        let call = call.map(|call| call.redacted_args());
        Ok(QueueAnswer::Item(Box::new(Queued { item, call, difference, now })))
    }

    /// The call of an item. What is signed is its digest, and not the words beside it: a row in which the
    /// two differ shows one call and asks for the approval of another.
    pub(crate) fn stored(&self, item: &Item, bytes: &[u8]) -> Result<Call, Problem> {
        let what = format!("item {} cannot be shown as what it is", item.id);
        let refused = |why: String| {
            let fix = "have it taken back (`hotcell approvals cancel`), and the call made again";
            Problem::new(what.clone(), why, fix).of(ProblemKind::Blocked)
        };
        let call = Call::from_bytes(bytes, &self.registry);
        let call = call.map_err(|error| refused(error.to_string()))?;
        if *call.digest().as_bytes() != item.call_digest.0 || call.id() != item.call {
            return Err(refused("its row was changed: it has another call than it says".into()));
        }
        Ok(call)
    }

    fn difference(&self, call: &Call) -> Option<String> {
        if call.name().to_string() != "fs.write" {
            return None;
        }
        let text = |name| call.args().get(name).and_then(Value::as_str);
        let (path, new) = (Relative::parse(text("path")?).ok()?, text("text")?);
        let shown = unified_text(self.workspace.as_ref()?, &path, new);
        Some(shown.unwrap_or_else(|why| format!("{path}: {why}\n")))
    }

    /// The one result of a call that waited. Of several who wait for it, one carries it out, and the others
    /// get what came of that.
    fn await_reply(
        &self,
        caller: &Caller,
        id: ItemId,
        (patience, interrupt): (Duration, &AtomicBool),
        attached: Attached<'_>,
    ) -> Result<Reply, Problem> {
        let until = Instant::now() + patience.min(review::MOST_WAIT);
        let item = self.await_answer(caller, id, until, interrupt)?;
        if item.state != State::Approved || interrupt.load(Ordering::Relaxed) {
            return self.told(caller, &item);
        }
        let reply = self.carry_out_approved(caller, &item, attached)?;
        if !reply.is_unspent {
            return Ok(reply);
        }
        // Somebody else was first, or it does not count any more: then that is the answer.
        if self.is_approved(caller, id)? {
            return Ok(reply);
        }
        self.told(caller, &self.await_answer(caller, id, until, interrupt)?)
    }

    /// Waits until there is something to do or to tell.
    fn await_answer(
        &self,
        caller: &Caller,
        id: ItemId,
        until: Instant,
        interrupt: &AtomicBool,
    ) -> Result<Item, Problem> {
        let database = self.recording()?.database().to_owned();
        loop {
            self.expire()?;
            let item = self.own_item(caller, id)?;
            let step = match item.state {
                State::Waiting => left(&item).max(LEAST_STEP),
                State::CarriedOut if !self.is_over(caller, &item)? => CARRIED_OUT_STEP,
                _ => return Ok(item),
            };
            let now = Instant::now();
            if now >= until || interrupt.load(Ordering::Relaxed) {
                return Ok(item);
            }
            let is_other = |other: &Item| other.state != item.state || other.result.is_some();
            let until = until.min(now + step);
            review::wait(&database, &caller.tenant, id, until, interrupt, is_other)
                .map_err(|error| of_queue(&error))?;
        }
    }

    /// An item of somebody else is as good as none.
    fn own_item(&self, caller: &Caller, id: ItemId) -> Result<Item, Problem> {
        self.look_at_queue(|conn| {
            let item = review::get(conn, &caller.tenant, id)?;
            let own = item.filter(|item| item.caller.subject == caller.subject);
            own.ok_or(review::Error::NoItem(id))
        })
    }

    pub(crate) fn is_approved(&self, caller: &Caller, id: ItemId) -> Result<bool, Problem> {
        Ok(self.own_item(caller, id)?.state == State::Approved)
    }

    /// Whether a call whose approval was taken has come to its end, also if that was the end of its process.
    fn is_over(&self, caller: &Caller, item: &Item) -> Result<bool, Problem> {
        if item.result.is_some() {
            return Ok(true);
        }
        self.recording()?.recover().map_err(|error| not_recorded(&error))?;
        let (_, call) = item.used.unwrap_or((0, item.call));
        Ok(self.show(caller, call)?.end.is_some())
    }

    /// Judged anew, by the policy that holds now; the approval is one of the facts.
    fn carry_out_approved(
        &self,
        caller: &Caller,
        item: &Item,
        attached: Attached<'_>,
    ) -> Result<Reply, Problem> {
        let bytes =
            self.look_at_queue(|conn| review::stored_call(conn, &caller.tenant, item.id))?;
        // It is gone as soon as somebody else carries it out.
        let Some(bytes) = bytes else {
            return Ok(Reply { is_unspent: true, ..waits(item) });
        };
        let call = self.stored(item, &bytes).inspect_err(|problem| {
            // Somebody wrote into the database. Which call it is now nobody can tell.
            let refusal = story::refusal(caller, &item.operation, problem);
            self.record_now(Draft { call: Some(item.call), ..refusal }).ok();
        })?;
        // The ceiling may have been another.
        let call = match self.ceiling_of(attached.from.as_ref()).timeout {
            Some(most) => call.within(most),
            None => call,
        };
        let attached = if attached.brings_nothing() {
            let Attached { files, stdin, .. } = self.given_again(caller, &call)?;
            Attached { files, stdin, ..attached }
        } else {
            attached
        };
        let judged = || self.judged(&call, Some(item.id), &SomeLimits::default(), attached);
        let reply = catch_unwind(AssertUnwindSafe(judged));
        Ok(reply.unwrap_or_else(|_| Reply::failed(item.call, panicked())))
    }

    /// For a caller who comes back, without what is not for the disk. If it cannot be kept, there is still
    /// the outcome in the record.
    pub(crate) fn keep_result(
        &self,
        tenant: &Name,
        id: ItemId,
        hidden: &Redactor,
        reply: Reply,
    ) -> Reply {
        let reply = Reply { review: Some(id), ..reply };
        let result = hidden.redact_json(&serde_json::to_value(&reply).unwrap_or_default());
        let tenant = tenant.clone();
        self.write_to_queue(move |tx, _| {
            review::finish(tx, &tenant, id, &result)?;
            Ok(((), Vec::new()))
        })
        .ok();
        reply
    }

    /// What became of an item that nobody carries out now.
    fn told(&self, caller: &Caller, item: &Item) -> Result<Reply, Problem> {
        let id = item.id;
        let (status, why, fix) = match item.state {
            State::Waiting | State::Approved => return Ok(waits(item)),
            State::CarriedOut => return self.came_of_it(caller, item),
            State::Rejected => {
                let answer = item.answer.as_ref();
                let by = answer.map(|answer| {
                    format!("`{}` rejected it: {}", answer.name, answer.given.reason)
                });
                (Status::Blocked, by.unwrap_or_default(), "ask for something else")
            }
            State::Expired => {
                let why = match &item.answer {
                    Some(_) => "somebody agreed, and nobody had it carried out in time",
                    None => "nobody answered in time",
                };
                (Status::Blocked, why.to_owned(), "ask again")
            }
            State::Cancelled => (Status::Cancelled, "it was taken back".to_owned(), "ask again"),
        };
        let problem = Problem::new(format!("item {id} is {}", item.state), why, fix);
        Ok(Reply {
            problems: vec![problem.of(ProblemKind::Blocked)],
            review: Some(id),
            again: true,
            ..Reply::new(item.call, status)
        })
    }

    /// What was replied when it was carried out, or what the record has of it.
    fn came_of_it(&self, caller: &Caller, item: &Item) -> Result<Reply, Problem> {
        let (_, call) = item.used.unwrap_or((0, item.call));
        let kept = item.result.as_deref().and_then(|kept| Reply::again(call, kept));
        if let Some(reply) = kept {
            return Ok(Reply { review: Some(item.id), again: true, ..reply });
        }
        let shown = self.show(caller, call)?;
        let what = format!("item {} is {}", item.id, item.state);
        let fix = format!("`hotcell runs show {call}` tells what is known of it");
        let (status, why) = match shown.status() {
            Some(Status::Unknown) => {
                (Status::Unknown, "whoever carried it out ended before it did")
            }
            Some(status) => (status, "what was replied then was not kept"),
            None => (Status::Unknown, "somebody is carrying it out"),
        };
        let value = shown.result.value().and_then(|result| result.get("value")).cloned();
        let problems = vec![Problem::new(what, why, fix)];
        let review = Some(item.id);
        Ok(Reply { value, problems, review, again: true, ..Reply::new(call, status) })
    }

    /// Before an answer or an approval is looked at, so that what was over once stays over.
    fn expire(&self) -> Result<(), Problem> {
        let is_current = self.look_at_queue(review::is_current)?;
        let clock = hotcell_record::now();
        if is_current && !self.look_at_queue(|conn| review::is_any_over(conn, clock))? {
            return Ok(());
        }
        self.write_to_queue(|tx, clock| Ok(((), end_what_is_over(tx, clock)?)))
    }

    /// Removes items that ended before this time. The record still tells about them.
    pub(crate) fn forget_items(&self, before: i64) -> Result<(), Problem> {
        if !self.look_at_queue(review::is_current)? {
            return Ok(());
        }
        let some =
            || self.write_to_queue(move |tx, _| Ok((review::prune(tx, before)?, Vec::new())));
        while some()? == review::MOST_PRUNED {}
        Ok(())
    }

    fn look_at_queue<T>(
        &self,
        look: impl FnOnce(&review::Connection) -> Result<T, review::Error>,
    ) -> Result<T, Problem> {
        let looked = self.recording()?.look(|conn| look(conn).map_err(Look::from));
        looked.map_err(|error| match error {
            Look::Review(error) => of_queue(&error),
            error => not_looked_up(&error),
        })
    }

    fn write_to_queue<T: Send + 'static>(
        &self,
        write: impl FnOnce(&review::Transaction<'_>, i64) -> Result<(T, Vec<Draft>), Unspent>
        + Send
        + 'static,
    ) -> Result<T, Problem> {
        let clock = hotcell_record::now();
        let written = self.recording()?.write(Durability::Synced, move |tx| {
            review::migrate(tx)?;
            write(tx, clock)
        });
        written.map(|(value, _)| value).map_err(not_queued)
    }
}

/// Somebody tried to answer, and that did not count.
fn not_answered(caller: &Caller, item: ItemId, why: &str) -> Draft {
    let mut draft = Draft::new(EventKind::Review, caller.clone(), now());
    draft.operation = Some("review.answer".to_owned());
    draft.status = Some(Status::Blocked);
    draft.decision = Some(Decision::Deny);
    draft.reason = Some(format!("an answer to item {item} was refused: {why}"));
    draft
}

/// How long there is to answer.
fn left(item: &Item) -> Duration {
    let left = item.expires.saturating_sub(hotcell_record::now());
    Duration::from_nanos(u64::try_from(left).unwrap_or(0))
}

/// Ends what nobody answered or used in time.
fn end_what_is_over(tx: &review::Transaction<'_>, clock: i64) -> Result<Vec<Draft>, Unspent> {
    let (items, mut drafts) = review::expire(tx, clock)?;
    for item in &items {
        drafts.extend(release(tx, item, clock)?);
    }
    Ok(drafts)
}

/// What was kept for a call that will not be made goes back to where it came from.
fn release(
    tx: &review::Transaction<'_>,
    item: &Item,
    clock: i64,
) -> Result<Option<Draft>, Unspent> {
    if item.bearer.is_none() {
        return Ok(None);
    }
    match bearer::release(tx, item.call) {
        Ok(change) => Ok(Some(of_bearer(&change, &item.caller, Some(item.call), clock))),
        Err(bearer::Error::NotReserved) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The reply for whoever has to come back.
fn waits(item: &Item) -> Reply {
    let Item { id, state, .. } = item;
    let why = match state {
        State::Waiting => "nobody has answered yet",
        _ => "somebody agreed, and it was not carried out yet",
    };
    let fix = format!("come back with `hotcell approvals wait {id}`");
    let problem = Problem::new(format!("item {id} is {state}"), why, fix);
    let problems = vec![problem.of(ProblemKind::Blocked)];
    Reply { problems, review: Some(*id), again: true, ..Reply::new(item.call, Status::Review) }
}

fn of_queue(error: &review::Error) -> Problem {
    let kind = match error {
        review::Error::NoItem(_) => ProblemKind::NotFound,
        review::Error::Sql(_) | review::Error::Newer { .. } => ProblemKind::Error,
        review::Error::Full { .. } => ProblemKind::Busy,
        _ => ProblemKind::Blocked,
    };
    let fix = "`hotcell approvals` lists what waits";
    Problem::new("the queue does not take that", error.to_string(), fix).of(kind)
}

fn not_queued(error: WriteError<Unspent>) -> Problem {
    match error {
        WriteError::Own(Unspent::Approval(error)) => of_queue(&error),
        WriteError::Own(error) => {
            Problem::new("it could not be put before anybody", error.to_string(), "ask again")
                .of(ProblemKind::Blocked)
        }
        WriteError::Append(error) => not_recorded(&error),
    }
}
