//! The policy as something people work with: what holds, what another one would decide, and changing it.
//! What is only asked changes nothing, and asks nothing of a home that it does not need.

pub(crate) mod install;
mod replay;

use hotcell_approver::{ItemId, Public, SignedPolicy};
use hotcell_extension::Extension;
use hotcell_policy::{Facts, Loaded, Scope, Snapshot, TokenStatus, Verdict};
use hotcell_request::{Arguments, Call, Label, Request, Tool};
use hotcell_review::versions::Version;
use hotcell_types::{Caller, Decision, Door, Name};

pub use hotcell_approver::Policy as Statement;
pub use hotcell_policy::{
    At, DEFAULT, Expectation, Explained, Explanation, FILE_MOST, Fault, MODES, Outlook, STATES,
    Warning, expectations,
};
pub use hotcell_review::Given;
pub use hotcell_review::versions::Rules;
pub use replay::{BREAKING_MOST, Changed, Compared, DECISIONS_MOST, Learned};

use crate::engine::{Engine, new_id};
use crate::reply::Problem;
use crate::rulebook::{approvers, named_by, newest};
use crate::weigh::judge_asking;
use install::has_its_sources;

/// What can be asked of the policy.
#[derive(Debug)]
pub enum PolicyAsk {
    /// The version that holds, also where its copy was changed.
    Show,
    /// Whether rules can be used with the tools of this engine; with the sources of their extensions, these too.
    Check(Rules),
    /// What every rule says of a call, and why.
    Explain {
        request: Box<Request>,
        suppose: Suppose,
    },
    Test {
        rules: Rules,
        tests: Vec<Expectation>,
    },
    /// Which of the last decisions these rules would change.
    Compare(Rules),
    /// The smallest rules for what was refused, or approved, since a moment in nanoseconds.
    Learn {
        since: Option<i64>,
    },
    /// What an approver signs to make these rules the next version.
    Prepare(Rules),
    /// The rules that were proposed and wait.
    Proposed(ItemId),
    Install {
        rules: Rules,
        signed: Box<SignedPolicy>,
        /// The phrase of [`Compared::phrase`], where there is one.
        accepted: Option<String>,
    },
    /// The same for rules that were proposed and wait, with the answer to that.
    Approve {
        item: ItemId,
        given: Box<Given>,
        signed: Box<SignedPolicy>,
        accepted: Option<String>,
    },
}

#[derive(Debug)]
pub enum PolicyAnswer {
    Shown(Box<ShownPolicy>),
    Checked(Checked),
    Explained(Box<Explanation>, String),
    Tested(Vec<Tested>),
    Compared(Compared),
    Learned(Learned),
    Prepared(Statement),
    Proposed(Rules),
    /// Its number.
    Installed(u64),
    /// The rules cannot be used.
    Faulty(Vec<Fault>),
}

/// A policy that holds.
#[derive(Debug)]
pub struct ShownPolicy {
    pub rules: Rules,
    /// 0 where nobody has written one.
    pub number: u64,
    /// Who signed it, and when, in nanoseconds since 1970.
    pub signed: Option<(Public, i64)>,
    pub approvers: Vec<Public>,
    /// What keeps it from deciding anything, such as a copy that was changed.
    pub trouble: Option<Problem>,
}

/// Rules that can be used.
#[derive(Debug)]
pub struct Checked {
    pub rules: usize,
    pub warnings: Vec<Warning>,
    /// Files of TypeScript that they name.
    pub extensions: Vec<String>,
    pub approvers: usize,
}

/// What is so, instead of what is known of the caller.
#[derive(Debug, Clone, Default)]
pub struct Suppose {
    /// Besides those that the policy gives to the subject.
    pub tags: Vec<Label>,
    pub state: Option<String>,
    pub mode: Option<String>,
    pub door: Option<Door>,
    pub subject: Option<Name>,
}

/// What became of one test.
#[derive(Debug)]
pub struct Tested {
    pub at: At,
    pub call: String,
    /// What was not as expected.
    pub wrong: Option<String>,
}

impl Engine {
    pub(crate) fn ask_policy(
        &self,
        caller: &Caller,
        ask: PolicyAsk,
    ) -> Result<PolicyAnswer, Problem> {
        match ask {
            PolicyAsk::Show => self.show_policy(),
            PolicyAsk::Explain { request, suppose } => self.explain(caller, *request, &suppose),
            PolicyAsk::Learn { since } => self.learn(caller, since).map(PolicyAnswer::Learned),
            PolicyAsk::Check(rules) => match self.compiled(&rules) {
                Ok(Loaded { snapshot, warnings }) => {
                    if !rules.extensions.is_empty() {
                        drop(self.ready(&rules, &snapshot)?);
                    }
                    Ok(PolicyAnswer::Checked(Checked {
                        rules: snapshot.rules().len(),
                        warnings,
                        extensions: snapshot.extensions().to_vec(),
                        approvers: snapshot.approvers().len(),
                    }))
                }
                Err(faults) => Ok(PolicyAnswer::Faulty(faults)),
            },
            PolicyAsk::Test { rules, tests } => match self.compiled(&rules) {
                Ok(Loaded { snapshot, .. }) => {
                    let extension = self.ready(&rules, &snapshot)?;
                    let tested = tests.into_iter();
                    let tested =
                        tested.map(|test| self.tested(&snapshot, extension.as_ref(), caller, test));
                    Ok(PolicyAnswer::Tested(tested.collect()))
                }
                Err(faults) => Ok(PolicyAnswer::Faulty(faults)),
            },
            PolicyAsk::Compare(rules) => match self.compiled(&rules) {
                Ok(Loaded { snapshot, .. }) => {
                    let extension = self.ready(&rules, &snapshot)?;
                    let compared = self.compare_rules(caller, &snapshot, extension.as_ref());
                    compared.map(PolicyAnswer::Compared)
                }
                Err(faults) => Ok(PolicyAnswer::Faulty(faults)),
            },
            PolicyAsk::Proposed(item) => {
                self.proposed_by(caller, item).map(|(_, rules)| PolicyAnswer::Proposed(rules))
            }
            PolicyAsk::Prepare(rules) => match self.compiled(&rules) {
                Ok(_) => self.statement(&rules).map(PolicyAnswer::Prepared),
                Err(faults) => Ok(PolicyAnswer::Faulty(faults)),
            },
            PolicyAsk::Install { rules, signed, accepted } => match self.compiled(&rules) {
                Ok(loaded) => {
                    let version = Version { rules, signed: *signed };
                    let installed = self.install(caller, version, &loaded, accepted.as_deref());
                    self.told_if_refused(caller, installed).map(PolicyAnswer::Installed)
                }
                Err(faults) => Ok(PolicyAnswer::Faulty(faults)),
            },
            PolicyAsk::Approve { item, given, signed, accepted } => {
                let accepted = accepted.as_deref();
                let installed = self.install_approved(caller, item, *given, *signed, accepted);
                self.told_if_refused(caller, installed).map(PolicyAnswer::Installed)
            }
        }
    }

    /// What a caller can hope for with a tool, for lists: the calls are judged by themselves.
    pub fn outlook(&self, caller: &Caller, tool: &Tool) -> Result<Outlook, Problem> {
        let book = self.book()?;
        Ok(book.policy.outlook(tool, caller, book.policy.tags_of(&caller.subject)))
    }

    /// The rules, ready to decide. Whoever they name as an approver has to be one.
    pub(crate) fn compiled(&self, rules: &Rules) -> Result<Loaded, Vec<Fault>> {
        let (text, protected) = (rules.text.as_bytes(), self.protected.clone());
        let loaded = Snapshot::load_protecting(text, &self.registry.tools(), protected)?;
        match approvers(loaded.snapshot.approvers()) {
            Ok(_) => Ok(loaded),
            Err(problem) => {
                let is_it = |line: &&String| approvers(std::slice::from_ref(*line)).is_err();
                let bad = loaded.snapshot.approvers().iter().find(is_it);
                let at = bad.and_then(|bad| place_of(&rules.text, bad));
                let at = at.or_else(|| place_of(&rules.text, "approvers"));
                let at = at.unwrap_or(At { line: 1, column: 1 });
                let what = format!("{}: {}", problem.what, problem.why);
                Err(vec![Fault { at, what, fix: problem.fix }])
            }
        }
    }

    /// The extensions of rules, each with its source, ready to be asked.
    fn ready(&self, rules: &Rules, policy: &Snapshot) -> Result<Option<Extension>, Problem> {
        has_its_sources(rules, policy)?;
        self.extension_of(policy, rules)
    }

    fn show_policy(&self) -> Result<PolicyAnswer, Problem> {
        self.not_set_by_others()?;
        let trouble = self.can_decide().err();
        let shown = match newest(self.recording()?)? {
            None => ShownPolicy {
                rules: Rules { text: DEFAULT.to_owned(), ..Rules::default() },
                number: 0,
                signed: None,
                approvers: Vec::new(),
                trouble,
            },
            Some(version) => ShownPolicy {
                number: version.number(),
                signed: Some((self.signer(&version)?, version.signed.statement.time)),
                approvers: named_by(&version)?.iter().cloned().collect(),
                rules: version.rules,
                trouble,
            },
        };
        Ok(PolicyAnswer::Shown(Box::new(shown)))
    }

    fn explain(
        &self,
        caller: &Caller,
        request: Request,
        suppose: &Suppose,
    ) -> Result<PolicyAnswer, Problem> {
        let call = self.supposed(caller, request, suppose)?;
        let book = self.book()?;
        self.surely_has(&book)?;
        let (known, _) = self.facts_of(call.caller(), &book)?;
        let mut facts = suppose.over(known);
        let verdict = judge_asking(&book.policy, book.extension.as_ref(), &call, &mut facts);
        let would_allow = verdict.would_allow(&book.policy, &call);
        let explanation = book.policy.explain(&call, &facts);
        Ok(PolicyAnswer::Explained(Box::new(explanation), would_allow))
    }

    fn supposed(
        &self,
        caller: &Caller,
        request: Request,
        suppose: &Suppose,
    ) -> Result<Call, Problem> {
        let caller = Caller {
            tenant: caller.tenant.clone(),
            subject: suppose.subject.clone().unwrap_or_else(|| caller.subject.clone()),
            door: suppose.door.unwrap_or(caller.door),
        };
        Call::new(request, caller, new_id(), &self.registry).map_err(|error| {
            let fault = error.faults().into_iter().next();
            fault.as_ref().map_or_else(
                || Problem::new("this is not a call", error.to_string(), "see `hotcell tool show`"),
                Problem::from,
            )
        })
    }

    fn tested(
        &self,
        policy: &Snapshot,
        extension: Option<&Extension>,
        caller: &Caller,
        test: Expectation,
    ) -> Tested {
        let Expectation { at, call: tool, args, token, expect, rules, .. } = test;
        let suppose = Suppose {
            tags: test.tags,
            state: test.state,
            mode: test.mode,
            door: test.door,
            subject: test.subject,
        };
        let name = tool.to_string();
        let request = Request::new(tool, Arguments::Value(args));
        let wrong = match self.supposed(caller, request, &suppose) {
            Err(problem) => Some(format!("this is not a call: {}: {}", problem.at, problem.what)),
            Ok(call) => {
                let tags = policy.tags_of(&call.caller().subject).to_vec();
                let mut facts = suppose.over(Facts { tags, ..Facts::default() });
                if token {
                    facts.token = token_for(policy, &call, &facts);
                }
                let verdict = judge_asking(policy, extension, &call, &mut facts);
                compared(&verdict, expect, rules.as_deref())
            }
        };
        Tested { at, call: name, wrong }
    }
}

impl Suppose {
    /// What is supposed, and otherwise what is known.
    fn over(&self, mut known: Facts) -> Facts {
        known.tags.extend(self.tags.iter().cloned());
        known.state = self.state.clone().or(known.state);
        known.mode = self.mode.clone().or(known.mode);
        known
    }
}

/// A token for just this call, if one could be made: no other is ever valid.
fn token_for(policy: &Snapshot, call: &Call, facts: &Facts) -> TokenStatus {
    let scope = Scope {
        operation: call.operation(),
        tool: call.name(),
        effects: call.effects(),
        door: call.caller().door,
        paths: Vec::new(),
        facts,
        call: Some(call),
    };
    match policy.allows_all_of(&scope) {
        Ok(constraints) => TokenStatus::Valid(constraints),
        Err(why) => TokenStatus::Invalid(format!("none could be made for it: {why}")),
    }
}

/// What a verdict is that is not as expected.
fn compared(verdict: &Verdict<'_>, expect: Decision, rules: Option<&[String]>) -> Option<String> {
    let (decision, account) = match verdict {
        Verdict::Allow(permit) => (Decision::Allow, permit.account()),
        Verdict::Review(account) => (Decision::Review, account),
        Verdict::Deny(account) => (Decision::Deny, account),
        Verdict::Ask(_) => return Some("an extension has to be asked, and none is here".into()),
    };
    if decision != expect {
        return Some(format!("{decision}, and not {expect}: {}", account.reason()));
    }
    let mut spoke = account.rules();
    let mut wanted = rules?.to_vec();
    spoke.sort();
    wanted.sort();
    if spoke == wanted {
        return None;
    }
    let told = |names: &[String]| match names {
        [] => "nobody".to_owned(),
        names => names.join(", "),
    };
    Some(format!("{} spoke, and not {}", told(&spoke), told(&wanted)))
}

/// Where a text stands in another.
fn place_of(text: &str, what: &str) -> Option<At> {
    let lines = text.lines().zip(1..);
    let mut found = lines.filter_map(|(line, number)| Some((line.find(what)?, line, number)));
    let (before, line, number) = found.next()?;
    let column = line.get(..before).unwrap_or_default().chars().count() + 1;
    Some(At { line: number, column })
}

#[cfg(test)]
mod tests;
