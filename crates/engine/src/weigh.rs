//! What a decision rests on besides the call and the policy: who the caller is, the token that it shows,
//! and whether somebody has agreed to this very call.

use std::sync::Arc;

use hotcell_bearer::{self as bearer, Audience, Lineage, Moment, Presented, Ring, Who, Why};
use hotcell_extension::Extension as Rules;
use hotcell_policy::{
    Constraints, Extension, Facts, Grant, NotCovered, Scope, Snapshot, TokenStatus, Verdict, judge,
};
use hotcell_record::{Hex, now};
use hotcell_request::{Call, Registered};
use hotcell_review::{self as review, Item, ItemId, Kind, Terms, Workflow};
use hotcell_types::{Caller, Door};

use crate::engine::Engine;
use crate::extended;
use crate::once::Once;
use crate::queue::is_silence;
use crate::reply::Problem;
use crate::rulebook::{Book, Look, not_looked_up};
use crate::spend::{Approval, Spend, Token};

/// Facts about a call, and what a decision by them uses up.
#[derive(Debug)]
pub(crate) struct Weighed {
    pub(crate) facts: Facts,
    pub(crate) spend: Spend,
}

impl Weighed {
    pub(crate) fn judge<'a>(&mut self, call: &'a Call, book: &'a Book) -> Verdict<'a> {
        judge_asking(&book.policy, book.extension.as_ref(), call, &mut self.facts)
    }
}

/// The verdict; where it depends on the extensions, they are asked first, and what they say is one of the facts
/// then. Whatever goes wrong with them is a deny.
pub(crate) fn judge_asking<'a>(
    policy: &'a Snapshot,
    extension: Option<&Rules>,
    call: &'a Call,
    facts: &mut Facts,
) -> Verdict<'a> {
    if extension.is_some() {
        facts.extension = Extension::NotAsked;
    }
    let verdict = judge(policy, call, facts);
    let (Verdict::Ask(_), Some(extension)) = (&verdict, extension) else { return verdict };
    facts.extension = match extended::ask(extension, call, facts) {
        Ok(spoken) => Extension::Answered(spoken),
        Err(why) => Extension::Failed(why),
    };
    judge(policy, call, facts)
}

impl Engine {
    /// What is so of a caller, whatever it asks for. With the number of its place in the work, where anything
    /// depends on that; most policies do not, and nothing is looked up for them.
    pub(crate) fn facts_of(
        &self,
        caller: &Caller,
        book: &Book,
    ) -> Result<(Facts, Option<u64>), Problem> {
        let tags = book.policy.tags_of(&caller.subject).to_vec();
        let facts = Facts { now: now(), tags, ..Facts::default() };
        if !book.policy.depends_on_workflow() {
            return Ok((facts, None));
        }
        Ok(match self.workflow(caller)? {
            None => (facts, Some(0)),
            Some(Workflow { mode, state, number, .. }) => {
                (Facts { mode: Some(mode), state: Some(state), ..facts }, Some(number))
            }
        })
    }

    /// As far as it is known before anybody is asked.
    pub(crate) fn weigh(&self, call: &Call, book: &Book) -> Result<Weighed, Problem> {
        let (facts, workflow) = self.facts_of(call.caller(), book)?;
        let (version, once) = (book.must_hold(), Once::of(call));
        let spend = Spend { version, workflow, once, ..Spend::default() };
        let mut weighed = Weighed { facts, spend };
        if let Some(shown) = call.token() {
            weighed.facts.token = self.weigh_token(call, book, shown.reveal(), &mut weighed)?;
        }
        Ok(weighed)
    }

    /// A token that does not count is as good as none; the decision says why it did not.
    fn weigh_token(
        &self,
        call: &Call,
        book: &Book,
        shown: &str,
        weighed: &mut Weighed,
    ) -> Result<TokenStatus, Problem> {
        let invalid = |why: Why| Ok(TokenStatus::Invalid(why.to_string()));
        let presented = match Presented::read(self.ring()?, shown) {
            Ok(presented) => presented,
            Err(bearer::Error::Refused(why)) => return invalid(why),
            Err(error) => return Err(not_looked_up(&error.into())),
        };
        let moment = moment(weighed.facts.now)?;
        let looked = self.recording()?.look(|conn| -> Result<(Option<Lineage>, i64), Look> {
            Ok((bearer::find(conn, &presented)?, bearer::now(conn, &moment)?))
        });
        let (known, now) = looked.map_err(|error| not_looked_up(&error))?;
        let covered = match presented.status(known.as_ref(), &Asked::of(call).facts(book, now)) {
            Ok(covered) => covered,
            Err(why) => {
                weighed.spend.expired = (why == Why::Expired).then_some(moment);
                return invalid(why);
            }
        };
        let status = still_allowed(call, book, &presented.claims().scope, &weighed.facts);
        if matches!(status, TokenStatus::Valid(_)) {
            let id = presented.id().to_string();
            weighed.spend.token = Some(Token { id, covered, moment });
        }
        Ok(status)
    }

    /// The keys of tokens, opened when they are first needed.
    pub(crate) fn ring(&self) -> Result<&Arc<Ring>, Problem> {
        if let Some(ring) = self.ring.get() {
            return Ok(ring);
        }
        let ring = Ring::open(self.home()).map_err(|error| no_ring(&error))?;
        Ok(self.ring.get_or_init(|| Arc::new(ring)))
    }

    /// Looks for an approval: the one of an item, or any of this very call where the verdict wants one.
    /// Whether that changes anything is for the policy to say, when it is asked again.
    pub(crate) fn weigh_approval(
        &self,
        verdict: &Verdict<'_>,
        by: Option<ItemId>,
        call: &Call,
        book: &Book,
        weighed: &mut Weighed,
    ) -> Result<bool, Problem> {
        let is_wanted = match verdict {
            Verdict::Review(_) => true,
            Verdict::Deny(account) => is_silence(account),
            Verdict::Allow(_) | Verdict::Ask(_) => false,
        };
        if !book.can_answer() || !(is_wanted || by.is_some()) {
            return Ok(false);
        }
        let record = self.recording()?;
        let terms = self.terms(book)?;
        let clock = weighed.facts.now;
        let found = record.look(|conn| -> Result<Option<Item>, Look> {
            if !review::is_current(conn)? {
                return Ok(None);
            }
            let id = match by {
                Some(id) => Some(id),
                None => review::find(conn, call, terms.policy, clock)?.map(|item| item.id),
            };
            // What was approved under other terms, or is over, is asked for again.
            Ok(id.and_then(|id| review::check_grant(conn, &terms, id, call, clock).ok()))
        });
        let found = found.map_err(|error| not_looked_up(&error))?;
        let Some(item) = found.filter(|item| helps(item, verdict)) else { return Ok(false) };
        let Some(answer) = &item.answer else { return Ok(false) };
        weighed.facts.grant = Some(Grant {
            call: call.digest(),
            policy: book.policy.digest(),
            expires: answer.given.expires,
            approver: answer.name.to_string(),
        });
        // What was set aside for this is what is used.
        if item.bearer.is_some() {
            weighed.spend.held = Some(item.call);
        }
        let approval = Approval { item: item.id, terms, call: Box::new(call.clone()), clock };
        weighed.spend.approval = Some(approval);
        Ok(true)
    }

    /// What an answer has to hold against.
    pub(crate) fn terms(&self, book: &Book) -> Result<Terms, Problem> {
        Ok(Terms {
            home: self.recording()?.home_id(),
            policy: Hex(*book.policy.digest().as_bytes()),
            approvers: book.approvers.clone(),
        })
    }
}

/// Whether what was agreed to is what stands in the way. Who agreed to a call that some rule wanted looked at
/// did not agree to one that no rule speaks of; unless it is its token that spoke for it, which is kept.
fn helps(item: &Item, verdict: &Verdict<'_>) -> bool {
    match verdict {
        Verdict::Allow(_) | Verdict::Review(_) => true,
        Verdict::Deny(account) if is_silence(account) => {
            item.kind == Kind::Blocked || item.bearer.is_some()
        }
        Verdict::Deny(_) | Verdict::Ask(_) => false,
    }
}

/// What a call is for a token.
struct Asked<'a> {
    call: &'a Call,
    operation: String,
    tool: String,
    paths: Vec<&'a str>,
}

impl<'a> Asked<'a> {
    fn of(call: &'a Call) -> Asked<'a> {
        let (operation, tool) = (call.operation().to_string(), call.name().to_string());
        Asked { call, operation, tool, paths: call.paths() }
    }

    fn facts(&self, book: &Book, now: i64) -> bearer::Facts<'_> {
        bearer::Facts {
            audience: Audience::Token,
            who: who(self.call),
            operation: &self.operation,
            tool: &self.tool,
            tool_digest: *self.call.tool().digest().as_bytes(),
            paths: &self.paths,
            args: *self.call.args_digest().as_bytes(),
            policy: *book.policy.digest().as_bytes(),
            now,
        }
    }
}

/// Which run a call comes from is known only of those that come through its own door: everybody else just
/// says so.
fn who(call: &Call) -> Who<'_> {
    let Caller { tenant, subject, door } = call.caller();
    Who { tenant, subject, run: call.parent().filter(|_| *door == Door::Callback) }
}

/// What the policy binds the whole scope of a token to. It was asked when the token was made, by the same
/// policy: if it says otherwise now, what it depends on besides is another, such as the door.
fn still_allowed(call: &Call, book: &Book, scope: &bearer::Scope, facts: &Facts) -> TokenStatus {
    let exact = scope.args.map(|_| call);
    match allowed(book, call.caller(), call.tool(), scope, exact, facts) {
        Ok(constraints) => TokenStatus::Valid(constraints),
        Err(why) => TokenStatus::Invalid(why.to_string()),
    }
}

/// Whether the policy surely allows everything that a token would be for; `exact` is its only call, if its
/// arguments are fixed.
pub(crate) fn allowed(
    book: &Book,
    caller: &Caller,
    tool: &Registered,
    scope: &bearer::Scope,
    exact: Option<&Call>,
    facts: &Facts,
) -> Result<Constraints, NotCovered> {
    let tool = tool.tool();
    book.policy.allows_all_of(&Scope {
        operation: tool.operation(),
        tool: &tool.name,
        effects: tool.effects,
        door: caller.door,
        paths: scope.paths.globs().to_vec(),
        facts,
        call: exact,
    })
}

/// What all clocks say at the time of a decision.
pub(crate) fn moment(clock: i64) -> Result<Moment, Problem> {
    Moment::at(clock).map_err(|error| {
        let what = "nobody can say for how long the system is up";
        Problem::new(what, error.to_string(), "see that /proc is mounted")
    })
}

pub(crate) fn no_ring(error: &bearer::RingError) -> Problem {
    Problem::new("tokens cannot be used", error.to_string(), error.fix)
}
