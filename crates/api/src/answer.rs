//! From a question to its one answer. Every door goes through [`answer`].

use std::sync::atomic::AtomicBool;

use base64ct::{Base64, Encoding};
use hotcell_approver::{ItemId, SignedPolicy};
use hotcell_engine::artifacts::{ArtifactAnswer, ArtifactAsk, Which};
use hotcell_engine::policy::{PolicyAnswer, PolicyAsk, expectations};
use hotcell_engine::{
    self as engine, Asker, Attached, Engine, Ignore, Listen, Position, QueueAnswer, QueueAsk, Step,
    TokenAnswer, TokenAsk, Until,
};
use hotcell_ledger as ledger;
use hotcell_record as record;
use hotcell_request::{Fault, Listed, Request};
use hotcell_review as review;
use hotcell_types::{CallId, Caller, Name};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use crate::artifact::{Artifact, Artifacts, Details, Lineage, Written};
use crate::ask::{ArtifactFilter, Ask, Filter, Manner, PAGE, PAGE_MOST};
use crate::call::{Called, Calls};
use crate::event::{Call, Events, Log, Runs, Verified};
use crate::policy::{Checked, Compared, Explained, Learned, Policy, Tested};
use crate::problem::{Problem, ProblemKind};
use crate::queue::{Item, Items};
use crate::token::{Minted, Revoked, Tokens};
use crate::tool::{Tool, Tools};

/// Most bytes of a content that one answer has.
const CONTENT_MOST: u64 = 8 << 20;
/// How far a lineage goes if nothing is said.
const DEPTH: u32 = 8;

/// What a door has besides the question.
pub struct With<'a> {
    /// What came along, and who listens.
    pub attached: Attached<'a>,
    /// Set when whoever asked does not wait any more.
    pub interrupt: &'a AtomicBool,
    /// Hears what `logs` tells, and says whether it wants more.
    pub log: &'a mut dyn FnMut(Log, Position) -> bool,
}

impl std::fmt::Debug for With<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("With").field("attached", &self.attached).finish_non_exhaustive()
    }
}

/// The one answer. Each is a document of its own.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum Answer {
    Called(Box<Called>),
    Calls(Calls),
    Replayed(Replayed),
    Cancelled(Cancelled),
    Tools(Tools),
    Tool(Box<Tool>),
    Runs(Runs),
    Call(Box<Call>),
    Events(Events),
    Verified(Verified),
    Artifacts(Artifacts),
    Details(Box<Details>),
    Content(Content),
    Lineage(Lineage),
    Written(Written),
    Items(Items),
    Item(Box<Item>),
    Policy(Box<Policy>),
    Checked(Checked),
    Explained(Explained),
    Tested(Tested),
    Compared(Compared),
    Learned(Learned),
    Installed(Installed),
    Tokens(Tokens),
    Minted(Minted),
    Revoked(Revoked),
}

impl Answer {
    /// The calls that were made for it.
    pub fn calls(&self) -> impl Iterator<Item = &Called> {
        let (one, all) = match self {
            Answer::Called(called) => (Some(&**called), [].as_slice()),
            Answer::Calls(calls) => (None, calls.calls.as_slice()),
            Answer::Replayed(replayed) => (replayed.called.as_deref(), [].as_slice()),
            _ => (None, [].as_slice()),
        };
        one.into_iter().chain(all)
    }
}

/// How a call and its replay compare.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct Replayed {
    pub version: u32,
    #[schemars(schema_with = "crate::words::id")]
    pub old: CallId,
    #[schemars(schema_with = "crate::words::id")]
    pub new: CallId,
    pub same: bool,
    #[schemars(schema_with = "crate::words::status")]
    pub status: hotcell_types::Status,
    /// What was compared and is the same.
    pub alike: Vec<String>,
    pub differences: Vec<Difference>,
    pub more_differences: usize,
    pub ignored: Vec<String>,
    /// Arguments in which a placeholder stands for a secret that was not recorded: for that alone, what comes
    /// of the call may differ.
    pub placeholders: usize,
    /// What came of the new call, for whoever counts calls. It is not told.
    #[serde(skip)]
    pub called: Option<Box<Called>>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct Difference {
    pub what: String,
    pub was: String,
    pub is: String,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct Cancelled {
    pub version: u32,
    #[schemars(schema_with = "crate::words::id")]
    pub call: CallId,
}

/// The number of the version that holds now.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Installed {
    pub version: u32,
    pub number: u64,
}

/// Some of an artifact's content.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct Content {
    pub version: u32,
    pub artifact: Artifact,
    pub from: u64,
    #[serde(rename = "base64", serialize_with = "in_base64", deserialize_with = "of_base64")]
    #[schemars(with = "String")]
    pub bytes: Vec<u8>,
}

fn in_base64<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&Base64::encode_string(bytes))
}

fn of_base64<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
    let coded = String::deserialize(from)?;
    Base64::decode_vec(&coded).map_err(serde::de::Error::custom)
}

/// Asks the engine, for somebody.
pub fn answer(
    engine: &Engine,
    caller: &Caller,
    ask: Ask,
    with: With<'_>,
) -> Result<Answer, Problem> {
    let door = Door { engine, caller };
    match ask {
        Ask::Call { request } => {
            let attached = Attached { interrupt: Some(with.interrupt), ..with.attached };
            door.call(request_of(request)?, attached)
        }
        Ask::Run { run, manner } => {
            let made = run.make()?;
            let request = manner.of(made.request)?;
            let stdin = made.stdin.or(with.attached.stdin);
            let files = made.files;
            let interrupt = Some(with.interrupt);
            door.call(request, Attached { files, stdin, interrupt, ..with.attached })
        }
        Ask::Batch { calls } => door.batch(calls, asker(with)),
        Ask::Replay { call, ignore } => door.replay(call, &ignore, asker(with)),
        Ask::Cancel { call } => match door.ask(engine::Ask::Cancel(call))? {
            engine::Answer::Cancelled => Ok(Answer::Cancelled(Cancelled { version: 1, call })),
            _ => Err(Problem::no_answer()),
        },
        Ask::Tools { words } => door.tools(words),
        Ask::Tool { name } => door.tool(&name),
        Ask::Runs { filter } => {
            let filter = filter.read(caller)?;
            let limit = filter.limit;
            match door.ask(engine::Ask::Runs(filter))? {
                engine::Answer::Runs(runs) => Ok(Answer::Runs(Runs::of(&runs, limit))),
                _ => Err(Problem::no_answer()),
            }
        }
        Ask::Events { filter } => {
            let filter = filter.read(caller)?;
            let limit = filter.limit;
            match door.ask(engine::Ask::Events(filter))? {
                engine::Answer::Events(events) => Ok(Answer::Events(Events::of(&events, limit))),
                _ => Err(Problem::no_answer()),
            }
        }
        Ask::Show { call } => match door.ask(engine::Ask::Show(call))? {
            engine::Answer::Shown(shown) => Ok(Answer::Call(Box::new(Call::from(&*shown)))),
            _ => Err(Problem::no_answer()),
        },
        Ask::Logs { call, follow, stdout, stderr } => {
            let until = if follow { Until::TheEnd } else { Until::Now };
            door.logs(call, until, Position { stdout, stderr }, with)
        }
        Ask::Verify {} => match door
            .ask(engine::Ask::For(asker(with), Box::new(engine::Ask::Verify)))?
        {
            engine::Answer::Verified(verdict) => Ok(Answer::Verified(Verified::from(&*verdict))),
            _ => Err(Problem::no_answer()),
        },
        Ask::Artifacts { filter } => door.artifacts(*filter),
        Ask::Artifact { artifact } => door.artifact(ArtifactAsk::Details(which(&artifact)?)),
        Ask::Content { artifact, from, length } => {
            let length = length.unwrap_or(CONTENT_MOST).min(CONTENT_MOST);
            door.artifact(ArtifactAsk::Range { which: which(&artifact)?, from, length })
        }
        Ask::Lineage { artifact, depth } => {
            let depth = depth.unwrap_or(DEPTH);
            door.artifact(ArtifactAsk::Lineage { which: which(&artifact)?, depth })
        }
        Ask::Tag { artifact, tag } => {
            let (which, tag) = (which(&artifact)?, word("/tag", &tag)?);
            door.artifact(ArtifactAsk::Tag { which, tag })
        }
        Ask::Untag { artifact, tag } => {
            let (which, tag) = (which(&artifact)?, word("/tag", &tag)?);
            door.artifact(ArtifactAsk::Untag { which, tag })
        }
        Ask::Judge { artifact, aspect, ruling, note } => door.artifact(ArtifactAsk::Judge {
            which: which(&artifact)?,
            aspect: word("/aspect", &aspect)?,
            ruling: word("/ruling", &ruling)?,
            note: note.map(|note| word("/note", &note)).transpose()?,
        }),
        Ask::Rollback { name, version } => {
            let name = word("/name", &name)?;
            door.artifact(ArtifactAsk::Rollback { name, version })
        }
        Ask::Approvals { after, limit } => {
            let after = after.map(|after| word("/after", &after)).transpose()?;
            let limit = limit.unwrap_or(review::MOST_PAGE).min(review::MOST_PAGE);
            door.queue(QueueAsk::List { after, limit })
        }
        Ask::Approval { item } => door.queue(QueueAsk::Show(word("/item", &item)?)),
        Ask::Await { item } => {
            let (item, interrupt) = (word("/item", &item)?, with.interrupt);
            let attached = Box::new(with.attached);
            let patience = review::MOST_WAIT;
            door.queue(QueueAsk::Await { item, patience, interrupt, attached })
        }
        Ask::Withdraw { item } => door.queue(QueueAsk::Cancel(word("/item", &item)?)),
        Ask::Answer { item, given, policy, accepted } => {
            let (item, given) = (word("/item", &item)?, Box::new(given.read()?));
            match policy {
                None => door.queue(QueueAsk::Answer { item, given }),
                Some(signed) => door.approve_policy(item, given, &signed, accepted),
            }
        }
        Ask::Policy {} => door.policy(PolicyAsk::Show),
        Ask::PolicyCheck { rules } => door.policy(PolicyAsk::Check(rules.into())),
        Ask::PolicyExplain { request, suppose } => door.policy(PolicyAsk::Explain {
            request: Box::new(request_of(request)?),
            suppose: suppose.into(),
        }),
        Ask::PolicyTest { rules, tests } => {
            let tests = match expectations(tests.as_bytes()) {
                Ok(tests) => tests,
                Err(faults) => return Ok(Answer::Checked(Checked::faulty(faults))),
            };
            door.policy(PolicyAsk::Test { rules: rules.into(), tests })
        }
        Ask::PolicyCompare { rules } => door.policy(PolicyAsk::Compare(rules.into())),
        Ask::PolicyLearn { since_ns } => door.policy(PolicyAsk::Learn { since: since_ns }),
        Ask::PolicyInstall { rules, signature, accepted } => {
            let signed = Box::new(word::<SignedPolicy>("/signature", &signature)?);
            door.policy(PolicyAsk::Install { rules: rules.into(), signed, accepted })
        }
        Ask::Tokens { after, limit } => {
            let limit = limit.unwrap_or(PAGE).min(PAGE_MOST);
            door.token(TokenAsk::List { after, limit }, limit)
        }
        Ask::Mint { tool, bounds } => {
            let (tool, bounds) = (word("/tool", &tool)?, bounds.read()?);
            door.token(TokenAsk::Mint { tool, bounds }, 0)
        }
        Ask::Narrow { token, bounds } => {
            let (token, bounds) = (word("/token", &token)?, bounds.read()?);
            door.token(TokenAsk::Attenuate { token, bounds }, 0)
        }
        Ask::Revoke { token } => door.token(TokenAsk::Revoke(word("/token", &token)?), 0),
    }
}

/// Who waits for all that one question leads to.
fn asker(with: With<'_>) -> Asker<'_> {
    Asker { interrupt: Some(with.interrupt), from: with.attached.from }
}

/// The engine, for somebody.
struct Door<'a> {
    engine: &'a Engine,
    caller: &'a Caller,
}

impl Door<'_> {
    fn ask(&self, ask: engine::Ask<'_>) -> Result<engine::Answer, Problem> {
        match self.engine.ask(self.caller, ask) {
            engine::Answer::Failed(problem) => Err(problem.into()),
            answer => Ok(answer),
        }
    }

    fn call(&self, request: Request, attached: Attached<'_>) -> Result<Answer, Problem> {
        match self.ask(engine::Ask::Run(Box::new(request), Box::new(attached)))? {
            engine::Answer::Called(reply) => Ok(Answer::Called(Box::new((*reply).into()))),
            _ => Err(Problem::no_answer()),
        }
    }

    fn batch(&self, calls: Vec<crate::ask::Step>, asker: Asker<'_>) -> Result<Answer, Problem> {
        let step = |(place, step): (usize, crate::ask::Step)| {
            let request = request_of(step.request).map_err(|problem| Problem {
                at: format!("/calls/{place}{}", problem.at),
                ..problem
            })?;
            Ok(Step { request, after: step.after })
        };
        if calls.len() > engine::BATCH_MOST {
            let why = format!("there are {}, and {} are the most", calls.len(), engine::BATCH_MOST);
            return Err(Problem::invalid("/calls", "there are too many calls", why));
        }
        let steps = calls.into_iter().enumerate().map(step).collect::<Result<_, Problem>>()?;
        let ask = Box::new(engine::Ask::Batch(steps));
        match self.ask(engine::Ask::For(asker, ask))? {
            engine::Answer::Batch(replies) => {
                let calls = replies.into_iter().map(Called::from).collect();
                Ok(Answer::Calls(Calls { calls }))
            }
            _ => Err(Problem::no_answer()),
        }
    }

    fn replay(&self, call: CallId, ignore: &[String], asker: Asker<'_>) -> Result<Answer, Problem> {
        let ignore = Ignore::new(ignore);
        let ignore = ignore.map_err(|error| {
            Problem::invalid("/ignore", "what may differ cannot be read", error)
        })?;
        let ask = Box::new(engine::Ask::Replay(call, ignore));
        match self.ask(engine::Ask::For(asker, ask))? {
            engine::Answer::Replayed(replayed) => Ok(Answer::Replayed((*replayed).into())),
            _ => Err(Problem::no_answer()),
        }
    }

    fn tools(&self, words: Option<String>) -> Result<Answer, Problem> {
        match self.ask(engine::Ask::Tools(words))? {
            engine::Answer::Tools(tools) => {
                let tool = |listed: &Listed| {
                    Tool::of(&listed.tool, listed.enabled, self.engine, self.caller)
                };
                let tools = tools.iter().map(tool).collect();
                Ok(Answer::Tools(Tools { version: 1, tools }))
            }
            _ => Err(Problem::no_answer()),
        }
    }

    fn tool(&self, name: &str) -> Result<Answer, Problem> {
        let found = word("/name", name).and_then(|name| {
            self.engine.registry().get(&name, None).map_err(|error| {
                let problem = Problem::from(&error.fault());
                Problem { kind: ProblemKind::NotFound, ..problem }
            })
        })?;
        Ok(Answer::Tool(Box::new(Tool::of(&found, true, self.engine, self.caller))))
    }

    fn logs(
        &self,
        call: CallId,
        until: Until,
        from: Position,
        with: With<'_>,
    ) -> Result<Answer, Problem> {
        let (interrupt, tell) = (with.interrupt, with.log);
        let wanted = || !interrupt.load(std::sync::atomic::Ordering::SeqCst);
        let mut at = from;
        let mut each = |entry: engine::Entry| {
            match &entry.what {
                engine::Said::Stdout(bytes) => at.stdout += bytes.len() as u64,
                engine::Said::Stderr(bytes) => at.stderr += bytes.len() as u64,
                engine::Said::Used { .. } => {}
            }
            wanted() && tell(Log::from(entry), at)
        };
        let listen = Listen { until, from, still: &wanted };
        let shown = self.engine.logs(self.caller, call, listen, &mut each)?;
        Ok(Answer::Call(Box::new(Call::from(&shown))))
    }

    fn artifacts(&self, filter: ArtifactFilter) -> Result<Answer, Problem> {
        let limit = filter.limit.unwrap_or(PAGE).min(ledger::MAX_PAGE);
        let after = filter.after.as_deref().map(|after| word("/after", after)).transpose()?;
        let words = filter.words.as_deref().map(|words| word("/words", words)).transpose()?;
        let filter = Box::new(filter.read(self.caller.tenant.clone())?);
        let page = ledger::Page { after, limit };
        match self.ask_artifact(ArtifactAsk::List { filter, words, page })? {
            ArtifactAnswer::Listed(artifacts) => {
                Ok(Answer::Artifacts(Artifacts::of(&artifacts, limit)))
            }
            _ => Err(Problem::no_answer()),
        }
    }

    fn ask_artifact(&self, ask: ArtifactAsk) -> Result<ArtifactAnswer, Problem> {
        match self.ask(engine::Ask::Artifact(ask))? {
            engine::Answer::Artifact(ArtifactAnswer::Absent(problem)) => {
                Err(Problem { kind: ProblemKind::NotFound, ..problem.into() })
            }
            engine::Answer::Artifact(answer) => Ok(answer),
            _ => Err(Problem::no_answer()),
        }
    }

    fn artifact(&self, ask: ArtifactAsk) -> Result<Answer, Problem> {
        let first = match &ask {
            ArtifactAsk::Range { from, .. } => *from,
            _ => 0,
        };
        match self.ask_artifact(ask)? {
            ArtifactAnswer::Details(details) => {
                Ok(Answer::Details(Box::new(Details::from(&*details))))
            }
            ArtifactAnswer::Range { artifact, bytes } => {
                let (artifact, from) = (Artifact::from(&*artifact), first);
                Ok(Answer::Content(Content { version: 1, artifact, from, bytes }))
            }
            ArtifactAnswer::Lineage { artifact, lineage, others } => {
                Ok(Answer::Lineage(Lineage::of(&artifact, &lineage, &others)))
            }
            ArtifactAnswer::Written { artifact, is_changed } => {
                Ok(Answer::Written(Written::of(&artifact, is_changed)))
            }
            _ => Err(Problem::no_answer()),
        }
    }

    fn queue(&self, ask: QueueAsk<'_>) -> Result<Answer, Problem> {
        match self.ask(engine::Ask::Queue(ask))? {
            engine::Answer::Queue(QueueAnswer::Page(page)) => {
                Ok(Answer::Items(Items::of(&page.items, page.next)))
            }
            engine::Answer::Queue(QueueAnswer::Item(queued)) => {
                Ok(Answer::Item(Box::new(Item::of(&queued.item, Some(&queued)))))
            }
            engine::Answer::Queue(QueueAnswer::Reply(reply)) => {
                Ok(Answer::Called(Box::new((*reply).into())))
            }
            _ => Err(Problem::no_answer()),
        }
    }

    fn approve_policy(
        &self,
        item: ItemId,
        given: Box<review::Given>,
        signed: &str,
        accepted: Option<String>,
    ) -> Result<Answer, Problem> {
        let signed = Box::new(word::<SignedPolicy>("/policy", signed)?);
        self.policy(PolicyAsk::Approve { item, given, signed, accepted })
    }

    fn policy(&self, ask: PolicyAsk) -> Result<Answer, Problem> {
        let engine::Answer::Policy(answer) = self.ask(engine::Ask::Policy(Box::new(ask)))? else {
            return Err(Problem::no_answer());
        };
        Ok(match answer {
            PolicyAnswer::Shown(shown) => Answer::Policy(Box::new((*shown).into())),
            PolicyAnswer::Checked(checked) => Answer::Checked(Checked::good(checked)),
            PolicyAnswer::Faulty(faults) => Answer::Checked(Checked::faulty(faults)),
            PolicyAnswer::Explained(explanation, would_allow) => {
                Answer::Explained(Explained::of(&explanation, would_allow))
            }
            PolicyAnswer::Tested(tested) => Answer::Tested(Tested::of(tested)),
            PolicyAnswer::Compared(compared) => Answer::Compared(compared.into()),
            PolicyAnswer::Learned(learned) => Answer::Learned(learned.into()),
            PolicyAnswer::Installed(number) => Answer::Installed(Installed { version: 1, number }),
            PolicyAnswer::Prepared(_) | PolicyAnswer::Proposed(_) => {
                return Err(Problem::no_answer());
            }
        })
    }

    fn token(&self, ask: TokenAsk, limit: usize) -> Result<Answer, Problem> {
        let engine::Answer::Token(answer) = self.ask(engine::Ask::Token(ask))? else {
            return Err(Problem::no_answer());
        };
        Ok(match answer {
            TokenAnswer::Minted { bearer, claims } => Answer::Minted(Minted::of(&bearer, &claims)),
            TokenAnswer::Revoked(changed) => Answer::Revoked(Revoked { version: 1, changed }),
            TokenAnswer::Listed(page) => Answer::Tokens(Tokens::of(&page, limit, record::now())),
            TokenAnswer::Rotated => return Err(Problem::no_answer()),
        })
    }
}

impl From<engine::Replayed> for Replayed {
    fn from(replayed: engine::Replayed) -> Replayed {
        let difference = |one: &engine::Difference| {
            let engine::Difference { what, was, is } = one.clone();
            Difference { what, was, is }
        };
        Replayed {
            version: 1,
            old: replayed.old,
            new: replayed.new.id,
            same: replayed.is_same(),
            status: replayed.new.status,
            differences: replayed.differences.iter().map(difference).collect(),
            more_differences: replayed.more,
            alike: replayed.same,
            ignored: replayed.ignored,
            placeholders: replayed.placeholders,
            called: Some(Box::new((*replayed.new).into())),
        }
    }
}

impl Manner {
    fn of(self, request: Request) -> Result<Request, Problem> {
        let Manner { priority, key, parent, after, token, ask } = self;
        let token = token.map(|token| word("/manner/token", &token)).transpose()?;
        let priority = priority.unwrap_or_default();
        Ok(Request { priority, key, parent, after, token, ask, ..request })
    }
}

impl Filter {
    fn read(self, caller: &Caller) -> Result<record::Filter, Problem> {
        let kind = self.kind.map(|kind| {
            let known = record::Kind::ALL.into_iter().find(|known| known.name() == kind);
            known.ok_or_else(|| Problem::invalid("/kind", "there is no such kind of event", kind))
        });
        Ok(record::Filter {
            call: self.call,
            tool: self.tool,
            kind: kind.transpose()?,
            status: self.status,
            since: self.since_ns,
            until: self.until_ns,
            after: self.after.unwrap_or(0),
            limit: self.limit.unwrap_or(PAGE).min(PAGE_MOST),
            last: self.after.is_none(),
            ..record::Filter::of(caller.tenant.clone())
        })
    }
}

impl ArtifactFilter {
    fn read(self, tenant: Name) -> Result<ledger::Filter, Problem> {
        let name = self.name.map(|name| match name.strip_suffix('*') {
            Some(begin) => Ok(ledger::Named::Beginning(begin.to_owned())),
            None => word("/name", &name).map(ledger::Named::Exactly),
        });
        Ok(ledger::Filter {
            name: name.transpose()?,
            role: self.role.map(|role| word("/role", &role)).transpose()?,
            kind: self.kind.map(|kind| word("/type", &kind)).transpose()?,
            tag: self.tag.map(|tag| word("/tag", &tag)).transpose()?,
            call: self.call,
            ..ledger::Filter::of(tenant)
        })
    }
}

/// An artifact, as people and programs write it.
fn which(text: &str) -> Result<Which, Problem> {
    word("/artifact", text)
}

fn word<T: std::str::FromStr<Err: std::fmt::Display>>(at: &str, text: &str) -> Result<T, Problem> {
    text.parse().map_err(|error: T::Err| {
        let what = format!("`{}` cannot be used", at.trim_start_matches('/'));
        Problem::invalid(at, what, error)
    })
}

fn request_of(value: Value) -> Result<Request, Problem> {
    Request::from_value(value).map_err(|faults: Vec<Fault>| {
        let first = faults.first().map(Problem::from);
        let mut problem = first.unwrap_or_else(Problem::no_answer);
        problem.at = format!("/request{}", problem.at);
        problem
    })
}
