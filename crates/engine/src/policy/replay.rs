//! Recorded decisions, asked of rules again: which of them others would change, and which rules would
//! allow what was refused.

use std::collections::{BTreeMap, HashMap, HashSet};

use hotcell_extension::Extension;
use hotcell_policy::{Facts, Snapshot, Verdict, Wanted};
use hotcell_record::{Event, Filter, Kind, Record};
use hotcell_request::{Arguments, Call, Request, Value, VersionReq};
use hotcell_review as review;
use hotcell_review::versions::Rules;
use hotcell_types::{CallId, Caller, Decision, Name, Status};

use crate::artifacts::not_read;
use crate::engine::Engine;
use crate::replay::has_placeholder;
use crate::reply::{Problem, ProblemKind};
use crate::rulebook::{Look, newest};
use crate::weigh::judge_asking;

/// So many of the last decisions are asked again.
pub const DECISIONS_MOST: usize = 100;
/// More decisions that would be refused than this have to be accepted in words.
pub const BREAKING_MOST: usize = 5;
/// So many refusals, and so many answers, are learned from.
const LEARNED_MOST: usize = 1000;

/// What other rules would change.
#[derive(Debug, Default)]
pub struct Compared {
    /// How many decisions were asked again.
    pub asked: usize,
    pub changed: Vec<Changed>,
    /// Why others could not be, and how many.
    pub left_out: BTreeMap<String, usize>,
}

/// One decision that would be another.
#[derive(Debug, Clone)]
pub struct Changed {
    pub call: CallId,
    /// Nanoseconds since 1970.
    pub time: i64,
    pub subject: Name,
    /// `name@version`.
    pub tool: String,
    pub paths: Vec<String>,
    pub was: Decision,
    pub is: Decision,
    pub reason: String,
}

impl Changed {
    /// The same of another call that is alike.
    fn also_of(self, event: &Event) -> Changed {
        Changed { call: event.call.unwrap_or(self.call), time: event.time, ..self }
    }

    /// Whether something that is done now would be refused.
    pub fn is_breaking(&self) -> bool {
        (self.was, self.is) == (Decision::Allow, Decision::Deny)
    }
}

impl Compared {
    pub fn breaking(&self) -> usize {
        self.changed.iter().filter(|changed| changed.is_breaking()).count()
    }

    /// What has to be said for these rules to be installed, if they would break much.
    pub fn phrase(&self) -> Option<String> {
        let breaking = self.breaking();
        (breaking > BREAKING_MOST).then(|| phrase(breaking))
    }

    /// Whether that was said. Who accepted more has accepted this.
    fn is_accepted(&self, said: Option<&str>) -> bool {
        let accepted = said.and_then(|said| said.trim().split(' ').nth(1)?.parse().ok());
        let accepted =
            accepted.filter(|count| said.map(str::trim) == Some(phrase(*count).as_str()));
        self.phrase().is_none() || accepted.is_some_and(|count: usize| count >= self.breaking())
    }
}

fn phrase(breaking: usize) -> String {
    format!("break {breaking} calls")
}

/// Rules that would allow what was refused.
#[derive(Debug)]
pub struct Learned {
    pub rules: String,
    /// From so many calls.
    pub calls: usize,
    pub left_out: BTreeMap<String, usize>,
}

impl Engine {
    pub(super) fn compare_rules(
        &self,
        caller: &Caller,
        new: &Snapshot,
        extension: Option<&Extension>,
    ) -> Result<Compared, Problem> {
        let record = self.recording()?;
        let old = match newest(record)? {
            None => Some((Snapshot::built_in_protecting(self.protected.clone()), None)),
            // One that cannot be asked any more decided what was recorded.
            Some(version) => self.still_asked(&version.rules),
        };
        let old = old.as_ref().map(|(policy, extension)| (policy, extension.as_ref()));
        let new = (new, extension);
        let mut compared = Compared::default();
        // Rules in TypeScript know the time, so that no two calls are alike to them.
        let has_time = [Some(new), old].iter().flatten().any(|(_, extension)| extension.is_some());
        let mut known: HashMap<String, Result<Option<Changed>, String>> = HashMap::new();
        for event in decisions(record, caller)? {
            let alike = alike(&event).filter(|_| !has_time);
            let found = match alike.as_ref().and_then(|alike| known.get(alike)) {
                Some(found) => found.clone().map(|changed| changed.map(|one| one.also_of(&event))),
                None => self.compared(record, &event, old, new),
            };
            if let Some(alike) = alike {
                known.entry(alike).or_insert_with(|| found.clone());
            }
            match found {
                Ok(changed) => {
                    compared.asked += 1;
                    compared.changed.extend(changed);
                }
                Err(why) => *compared.left_out.entry(why).or_default() += 1,
            }
        }
        Ok(compared)
    }

    /// Refuses rules that would break much of what is done now, unless somebody has said that this is meant: at
    /// whatever door they come in.
    pub(super) fn is_accepted(
        &self,
        caller: &Caller,
        rules: &Rules,
        new: &Snapshot,
        accepted: Option<&str>,
    ) -> Result<(), Problem> {
        let extension = self.ready(rules, new)?;
        let compared = self.compare_rules(caller, new, extension.as_ref())?;
        if compared.is_accepted(accepted) {
            return Ok(());
        }
        let breaking = compared.breaking();
        let why = format!(
            "{breaking} of the last {} decisions were allowed and would be refused",
            compared.asked
        );
        let fix = format!("accept that with `{}`, or change the rules", phrase(breaking));
        Err(Problem::new("the policy stays as it is", why, fix).of(ProblemKind::Blocked))
    }

    /// Rules that can be asked, with their extensions.
    fn still_asked(&self, rules: &Rules) -> Option<(Snapshot, Option<Extension>)> {
        let policy = self.compiled(rules).ok()?.snapshot;
        let extension = self.extension_of(&policy, rules).ok()?;
        Some((policy, extension))
    }

    fn compared(
        &self,
        record: &Record,
        event: &Event,
        old: Option<Asked<'_>>,
        new: Asked<'_>,
    ) -> Result<Option<Changed>, String> {
        let call = self.rebuilt(record, event)?;
        let (is, reason) = decided(new, &call, event);
        let was = match old {
            Some(old) => decided(old, &call, event).0,
            // It says nothing of the rules, and nothing of what others say without it.
            None if event.bearer.is_some() => {
                return Err(
                    "a token or an approval decided it, and the policy of then cannot be asked"
                        .into(),
                );
            }
            None => event.decision.ok_or("no decision was recorded")?,
        };
        if was == is {
            return Ok(None);
        }
        if new.0.depends_on_workflow() && !self.knows_the_work(event)? {
            return Err(
                "where the work was then was not recorded, and it depends on that now".into()
            );
        }
        Ok(Some(Changed {
            call: call.id(),
            time: event.time,
            subject: event.caller.subject.clone(),
            tool: call.tool().label().to_owned(),
            paths: call.paths().into_iter().map(str::to_owned).collect(),
            was,
            is,
            reason,
        }))
    }

    /// Whether the record says where the work of a caller was: nobody asked, where no rule depended on it.
    fn knows_the_work(&self, event: &Event) -> Result<bool, String> {
        let is_driven = || self.workflow(&event.caller).map(|work| work.is_some());
        Ok(event.state.is_some() || !is_driven().map_err(|problem| problem.to_string())?)
    }

    pub(super) fn learn(&self, caller: &Caller, since: Option<i64>) -> Result<Learned, Problem> {
        let record = self.recording()?;
        let last = |kind| {
            let filter = Filter { since, ..last(caller, kind, LEARNED_MOST) };
            record.events(&filter).map_err(|error| not_read(&error.into()))
        };
        // No rule can allow what another denies.
        let denied = last(Kind::Denied)?.into_iter();
        let denied = denied.filter(|event| event.rules.is_empty() && is_decision(event));
        let is_approved =
            |event: &Event| event.decision == Some(Decision::Allow) && event.status.is_none();
        let approved = last(Kind::Review)?.into_iter().filter(is_approved);
        let mut calls = HashSet::new();
        let (mut wanted, mut left_out) = (Vec::new(), BTreeMap::new());
        for event in denied.chain(approved).filter(|event| calls.insert(event.call)) {
            match self.rebuilt(record, &event) {
                Ok(call) if call.operation().bare() == hotcell_tools::policy::NAME => {}
                Ok(call) => wanted.push(Wanted::from(&call)),
                Err(why) => *left_out.entry(why).or_default() += 1,
            }
        }
        Ok(Learned { rules: hotcell_policy::learn(&wanted), calls: wanted.len(), left_out })
    }

    /// The call that an event tells of.
    fn rebuilt(&self, record: &Record, event: &Event) -> Result<Call, String> {
        let arguments = arguments_of(record, event)?;
        if has_placeholder(&arguments) {
            return Err("something secret was among the arguments, and not recorded".into());
        }
        let tool = event.tool.as_deref().and_then(|tool| tool.rsplit_once('@'));
        let tool =
            tool.and_then(|(name, version)| Some((name.parse().ok()?, version.parse().ok()?)));
        let ((name, version), id) =
            tool.zip(event.call).ok_or("the event does not name a call of a tool")?;
        let mut request = Request::new(name, Arguments::Value(arguments));
        request.version = Some(VersionReq::exactly(version));
        Call::new(request, event.caller.clone(), id, &self.registry)
            .map_err(|_| "the tool takes other arguments now, or is gone".into())
    }
}

/// The last decisions, each call once, in their order.
fn decisions(record: &Record, caller: &Caller) -> Result<Vec<Event>, Problem> {
    let mut all = Vec::new();
    for kind in [Kind::Intent, Kind::Called, Kind::Denied, Kind::Review] {
        let events = record.events(&last(caller, kind, DECISIONS_MOST));
        all.extend(events.map_err(|error| not_read(&error.into()))?);
    }
    // What became of something that waits is not another decision.
    all.retain(|event| event.kind != Kind::Review || event.status == Some(Status::Review));
    all.retain(is_decision);
    all.sort_by_key(|event| event.seq);
    let mut calls = HashSet::new();
    all.retain(|event| calls.insert(event.call));
    let more = all.len().saturating_sub(DECISIONS_MOST);
    Ok(all.split_off(more))
}

/// What the events of calls have in common that rules cannot tell apart.
fn alike(event: &Event) -> Option<String> {
    let Event { tool, caller, mode, state, decision, bearer, .. } = event;
    let input = event.input.as_ref()?.digest;
    Some(format!("{:?}", (tool, input, caller, mode, state, decision, bearer.is_some())))
}

/// Whether a policy said so. What was refused because none could be used, or never got that far, says nothing about
/// any rule.
fn is_decision(event: &Event) -> bool {
    let is_of_policy = event.call.is_some() && event.status != Some(Status::Error);
    event.decision.is_some() && (event.kind != Kind::Denied || is_of_policy)
}

fn last(caller: &Caller, kind: Kind, limit: usize) -> Filter {
    Filter { kind: Some(kind), limit, last: true, ..Filter::of(caller.tenant.clone()) }
}

/// Those that were recorded, or, of what waits, those that people are shown.
fn arguments_of(record: &Record, event: &Event) -> Result<Value, String> {
    let whole = |bytes: Option<Vec<u8>>, length: u64| {
        let bytes = bytes.ok_or("the arguments were removed to make room")?;
        if bytes.len() as u64 != length {
            return Err("the arguments were too large to be kept");
        }
        serde_json::from_slice(&bytes).map_err(|_| "the arguments cannot be read")
    };
    let unread = |error: &dyn std::error::Error| format!("the record cannot be read: {error}");
    if let Some(input) = &event.input {
        let bytes = record.input(event).map_err(|error| unread(&error))?;
        return Ok(whole(bytes, input.length)?);
    }
    let output = event.output.as_ref().ok_or("no arguments were recorded")?;
    let bytes = record.output(event).map_err(|error| unread(&error))?;
    let document: Value = whole(bytes, output.length)?;
    let item = document.get("item").and_then(Value::as_str).and_then(|item| item.parse().ok());
    let item = item.ok_or("no arguments were recorded")?;
    let tenant = &event.caller.tenant;
    let item = record.look(|conn| review::get(conn, tenant, item).map_err(Look::from));
    let item = item.map_err(|error| unread(&error))?;
    let item = item.ok_or("the arguments were removed to make room")?;
    serde_json::from_str(&item.shown).map_err(|_| "the arguments cannot be read".into())
}

/// Rules, and the extensions that have a say as well.
type Asked<'a> = (&'a Snapshot, Option<&'a Extension>);

/// What rules say of a call as it was made, without a token or an approval.
fn decided((policy, extension): Asked<'_>, call: &Call, event: &Event) -> (Decision, String) {
    let mut facts = Facts {
        now: event.time,
        mode: event.mode.clone(),
        state: event.state.clone(),
        tags: policy.tags_of(&call.caller().subject).to_vec(),
        ..Facts::default()
    };
    match judge_asking(policy, extension, call, &mut facts) {
        Verdict::Allow(permit) => (Decision::Allow, permit.account().reason()),
        Verdict::Review(account) => (Decision::Review, account.reason()),
        Verdict::Deny(account) | Verdict::Ask(account) => (Decision::Deny, account.reason()),
    }
}
