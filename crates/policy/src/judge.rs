//! From a call and facts to a verdict, layer by layer. The strictest answer counts, and silence is a refusal.

use std::sync::Arc;

use hotcell_request::Call;
use hotcell_types::Decision;
use smallvec::smallvec;

use crate::constraints::{Constraints, TwoSandboxes};
use crate::facts::{Extension, Facts, TokenStatus};
use crate::rule::{Answer, Rule};
use crate::settled::{Asked, Settled};
use crate::snapshot::{Policy, Snapshot};
use crate::subject::Subject;
use crate::verdict::{Account, GRANT, Permit, Spoken, TOKEN, Verdict};

/// The decision on a call.
///
/// Built-in rules come first; then a valid token, which stands for a decision that was made before; then the
/// rules of the policy, then its extensions. A deny ends it after its layer, nothing overrides a deny, and an
/// allow never ends it. Only a grant for exactly this call makes an allow of a review, or of silence; or, for a
/// change that another call made, what was settled about that one.
pub fn judge<'a>(snapshot: &'a Snapshot, call: &'a Call, facts: &Facts) -> Verdict<'a> {
    let policy = snapshot.policy();
    let subject = Subject::new(call, facts);
    let settled = facts.settled.as_ref().filter(|settled| settled.is_about(call, snapshot));
    let mut case = Case { settled: settled.cloned(), ..Case::default() };
    case.ask_built_in(policy, &subject);
    if case.account.has(Decision::Deny) {
        return case.denied();
    }
    match &facts.token {
        TokenStatus::Valid(constraints) => {
            case.account.say(Spoken::new(TOKEN, Decision::Allow, "its token allows it"));
            case.bind(*constraints);
            case.whole = true;
            return case.decided(snapshot, call, facts);
        }
        TokenStatus::Invalid(why) => case.account.bad_token = Some(why.clone()),
        TokenStatus::None => {}
    }
    case.ask_rules(policy, &subject);
    if case.account.has(Decision::Deny) {
        return case.denied();
    }
    match &facts.extension {
        Extension::NotAsked => return Verdict::Ask(case.account),
        Extension::Answered(spoken) => {
            case.whole |= !spoken.is_empty();
            case.account.spoken.extend(spoken.iter().cloned());
        }
        Extension::Failed(why) => {
            let reason = format!("the extension cannot be asked: {why}");
            case.account.say(Spoken::new("extension", Decision::Deny, reason));
        }
        Extension::NotConfigured if !policy.extensions.is_empty() => {
            let reason = "the policy has extensions, and nobody asks them";
            case.account.say(Spoken::new("extension", Decision::Deny, reason));
        }
        Extension::NotConfigured => {}
    }
    case.decided(snapshot, call, facts)
}

impl Snapshot {
    /// Whether a call that may happen may also show what it finds at a path, as if it had named that: a search
    /// names where it begins, and finds what it would not be let read. A token stands for no rule here, since
    /// it was made for the paths that are named; who agreed to the call agreed to what the same rules say of
    /// what it finds, and to nothing that another rule wants looked at. What the extensions say has to be
    /// said of this very path; where nobody asked them, nothing is shown.
    pub fn shows(&self, call: &Call, facts: &Facts, path: &str, said: &Extension) -> bool {
        let policy = self.policy();
        let mut subject = Subject::new(call, facts);
        subject.paths = smallvec![path];
        let mut case =
            Case { has_token: matches!(facts.token, TokenStatus::Valid(_)), ..Case::default() };
        case.ask_built_in(policy, &subject);
        case.ask_rules(policy, &subject);
        match said {
            Extension::Answered(spoken) => case.account.spoken.extend(spoken.iter().cloned()),
            _ if policy.extensions.is_empty() => {}
            _ => return false,
        }
        match case.account.spoken.iter().map(|spoken| spoken.decision).max() {
            Some(Decision::Allow) => true,
            Some(Decision::Deny) => false,
            Some(Decision::Review) | None => {
                granted(self, call, facts).is_some()
                    && self.asked(call, facts).covers(&case.account, self, call, path)
            }
        }
    }

    /// What somebody who agreed to a call was asked about.
    fn asked(&self, call: &Call, facts: &Facts) -> Asked {
        match judge(self, call, &Facts { grant: None, ..facts.clone() }) {
            Verdict::Review(account) | Verdict::Deny(account) | Verdict::Ask(account) => {
                Asked::of(&account)
            }
            Verdict::Allow(permit) => Asked::of(permit.account()),
        }
    }
}

/// What was said so far, and what an allow would be bound to.
struct Case<'a> {
    account: Account<'a>,
    constraints: Result<Constraints, TwoSandboxes>,
    /// Whether somebody spoke for the call as a whole. A review that is about one of its paths only does
    /// not, and the others would be refused alone.
    whole: bool,
    /// Rules that want a token speak.
    has_token: bool,
    /// About the call that made this change.
    settled: Option<Arc<Settled>>,
}

impl Default for Case<'_> {
    fn default() -> Self {
        let constraints = Ok(Constraints::default());
        let (account, settled) = (Account::default(), None);
        Case { account, constraints, whole: false, has_token: false, settled }
    }
}

impl<'a> Case<'a> {
    fn ask_built_in(&mut self, policy: &'a Policy, subject: &Subject<'_>) {
        for rule in policy.built_in {
            if (rule.speaks)(subject, &policy.protected) {
                self.whole |= rule.decision == Decision::Allow || subject.paths.len() <= 1;
                self.account.say(Spoken::new(rule.name, rule.decision, rule.reason));
            }
        }
    }

    fn ask_rules(&mut self, policy: &'a Policy, subject: &Subject<'_>) {
        for id in policy.index.candidates(subject) {
            if let Some(rule) = policy.rules.get(id as usize) {
                self.ask_rule(rule, subject);
            }
        }
    }

    fn ask_rule(&mut self, rule: &'a Rule, subject: &Subject<'_>) {
        match rule.ask(subject) {
            // Only a token could speak for it, and there is none.
            Answer::Speaks if rule.token_required && !self.has_token_for(rule) => {
                self.account.wants_token = Some(&rule.name);
            }
            Answer::Speaks => {
                self.whole |= rule.speaks_for_all(subject);
                self.account.say(Spoken::new(&*rule.name, rule.decision, &*rule.reason));
                self.bind(rule.constraints);
            }
            Answer::Failed(wrong) => {
                let reason = format!("`when` of the rule `{}` has no value: {wrong}", rule.name);
                self.account.say(Spoken::new(&*rule.name, Decision::Deny, reason));
            }
            Answer::Unmet(_) | Answer::Excepted(_) | Answer::Not | Answer::Unseen(_) => {}
        }
    }

    fn has_token_for(&self, rule: &Rule) -> bool {
        self.has_token || self.settled.as_ref().is_some_and(|settled| settled.has_token_for(rule))
    }

    fn bind(&mut self, constraints: Constraints) {
        self.constraints = self.constraints.and_then(|known| known.and(constraints));
    }

    fn denied(mut self) -> Verdict<'a> {
        self.account.decision = Some(Decision::Deny);
        Verdict::Deny(self.account)
    }

    fn decided(mut self, snapshot: &Snapshot, call: &'a Call, facts: &Facts) -> Verdict<'a> {
        let strictest = self.account.spoken.iter().map(|spoken| spoken.decision).max();
        let by_itself = match strictest {
            Some(Decision::Deny) => return self.denied(),
            strictest => strictest.filter(|_| self.whole),
        };
        let before = self.settled.as_ref();
        let before = before.and_then(|settled| settled.answers(call, &self.account, snapshot));
        match (by_itself, granted(snapshot, call, facts), before) {
            (Some(Decision::Allow), ..) => {}
            (_, Some(approver), _) => {
                let reason = format!("`{approver}` agreed to this call");
                self.account.say(Spoken::new(GRANT, Decision::Allow, reason));
            }
            (_, None, Some(before)) => self.account.say(before),
            (Some(_), None, None) => {
                self.account.decision = Some(Decision::Review);
                return Verdict::Review(self.account);
            }
            (None, None, None) => return Verdict::Deny(self.account),
        }
        match self.constraints {
            Ok(constraints) => {
                self.account.decision = Some(Decision::Allow);
                Verdict::Allow(Permit::new(call, self.account, constraints, snapshot.digest()))
            }
            Err(two) => {
                self.account.say(Spoken::new("constraints", Decision::Deny, two.to_string()));
                self.denied()
            }
        }
    }
}

/// Who agreed to exactly this call under exactly this policy, and not too long ago.
fn granted<'f>(snapshot: &Snapshot, call: &Call, facts: &'f Facts) -> Option<&'f str> {
    let grant = facts.grant.as_ref()?;
    let counts = facts.now < grant.expires
        && grant.policy == snapshot.digest()
        && grant.call == call.digest();
    counts.then_some(grant.approver.as_str())
}
