//! What was settled about a call, and so about what comes of it: each file that it changes, each path that it
//! finds. Who agreed because a rule asked is not asked again by the same rule, and a token that a rule wanted is
//! not wanted again; what another rule says stands, and a deny in any case.

use std::fmt;

use hotcell_request::{Call, Digest, ToolName};
use hotcell_types::{CallId, Caller, Decision};

use crate::facts::Facts;
use crate::rule::{Answer, Rule};
use crate::snapshot::Snapshot;
use crate::subject::Subject;
use crate::verdict::{Account, GRANT, Permit, Spoken, TOKEN};

/// What the permit of a call settles about its changes. Nobody else can make one.
#[derive(Clone)]
pub struct Settled {
    call: CallId,
    caller: Caller,
    operation: ToolName,
    paths: Vec<String>,
    /// What its tool writes by itself, such as the repository of a commit.
    own: Vec<String>,
    policy: Digest,
    /// Who or what allowed it.
    allowed: Option<Spoken<'static>>,
    agreed: Option<Agreed>,
    /// Rules that want a token, and would allow the call with one. It has one.
    with_token: Vec<String>,
}

/// Somebody agreed to the call.
#[derive(Clone)]
struct Agreed {
    who: Spoken<'static>,
    /// The rules that had asked for it. None, where nobody had spoken.
    asked: Vec<String>,
}

impl Permit<'_> {
    /// What is settled about the changes of this call, by the policy that judges them. `own` are paths that its
    /// tool writes without being told to. Under another policy nothing is.
    pub fn settles(&self, snapshot: &Snapshot, facts: &Facts, own: &[&str]) -> Settled {
        let (call, account) = (self.call(), self.account());
        let said = |name: &str| account.spoken().iter().find(|spoken| spoken.rule == name);
        let allowing = account.spoken().iter().rev().find(|one| one.decision == Decision::Allow);
        let with_token = match said(TOKEN) {
            Some(_) => wanting_token(snapshot, call, facts),
            None => Vec::new(),
        };
        Settled {
            call: call.id(),
            caller: call.caller().clone(),
            operation: call.operation().clone(),
            paths: call.each_path().map(str::to_owned).collect(),
            own: own.iter().map(|&path| path.to_owned()).collect(),
            policy: self.policy(),
            allowed: allowing.cloned().map(Spoken::into_owned),
            agreed: said(GRANT).cloned().map(|who| Agreed::new(who.into_owned(), account)),
            with_token,
        }
    }
}

fn wanting_token(snapshot: &Snapshot, call: &Call, facts: &Facts) -> Vec<String> {
    let subject = Subject::new(call, facts);
    let wanting = snapshot.rules().iter().filter(|rule| rule.token_required);
    let wanting = wanting.filter(|rule| rule.ask(&subject) == Answer::Speaks);
    wanting.map(|rule| rule.name().to_owned()).collect()
}

impl Agreed {
    fn new(who: Spoken<'static>, account: &Account<'_>) -> Agreed {
        Agreed { who, asked: asking(account) }
    }

    /// Nobody had spoken but who agreed.
    fn was_silence(&self) -> bool {
        self.asked.is_empty()
    }
}

/// The rules that ask for somebody to agree.
fn asking(account: &Account<'_>) -> Vec<String> {
    let asking = account.spoken().iter().filter(|spoken| spoken.decision == Decision::Review);
    asking.map(|spoken| spoken.rule.to_string()).collect()
}

impl Settled {
    /// Whether it is about this very change, under this policy.
    pub(crate) fn is_about(&self, change: &Call, snapshot: &Snapshot) -> bool {
        change.parent() == Some(self.call)
            && *change.caller() == self.caller
            && snapshot.digest() == self.policy
    }

    pub(crate) fn has_token_for(&self, rule: &Rule) -> bool {
        self.with_token.iter().any(|name| *name == *rule.name)
    }

    /// Who has answered already what is said of a change, if that is all that stands against it.
    pub(crate) fn answers(
        &self,
        change: &Call,
        account: &Account<'_>,
        snapshot: &Snapshot,
    ) -> Option<Spoken<'static>> {
        let paths: Vec<&str> = change.each_path().collect();
        let named: Vec<&str> = self.paths.iter().map(String::as_str).collect();
        let asking = asking(account);
        if !asking.is_empty() {
            let agreed = self.agreed.as_ref()?;
            let is_answered = |rule: &String| {
                let was_asked = |path: &&str| was_asked_of(snapshot, rule, &named, path);
                agreed.asked.contains(rule) && paths.iter().all(was_asked)
            };
            return asking.iter().all(is_answered).then(|| agreed.who.clone());
        }
        if self.is_its_own(change.operation(), &paths, &named) {
            return self.allowed.clone();
        }
        let agreed = self.agreed.as_ref()?;
        agreed.was_silence().then(|| agreed.who.clone())
    }

    /// Whether a change is what the call says that it does, or what its tool does by itself.
    fn is_its_own(&self, operation: &ToolName, paths: &[&str], named: &[&str]) -> bool {
        let is_kept = |path: &&str| self.own.iter().any(|own| is_within(path, own));
        let is_said = *operation == self.operation && paths.iter().all(|path| named.contains(path));
        !paths.is_empty() && (is_said || paths.iter().all(is_kept))
    }
}

impl fmt::Debug for Settled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Settled({}, {:?})", self.call, self.allowed)
    }
}

/// What somebody who agreed to a call was asked about, for what the call finds.
#[derive(Debug)]
pub(crate) struct Asked(Vec<String>);

impl Asked {
    pub(crate) fn of(account: &Account<'_>) -> Asked {
        Asked(asking(account))
    }

    /// Whether everything that is said of a path was said of the call, where that leads to the path.
    pub(crate) fn covers(
        &self,
        account: &Account<'_>,
        snapshot: &Snapshot,
        call: &Call,
        path: &str,
    ) -> bool {
        let named: Vec<&str> = call.each_path().collect();
        let asking = asking(account);
        // Silence about the path is covered by who agreed where all was silence.
        if asking.is_empty() {
            return self.0.is_empty();
        }
        asking
            .iter()
            .all(|rule| self.0.contains(rule) && was_asked_of(snapshot, rule, &named, path))
    }
}

/// Whether a rule that spoke of a call with these paths spoke of this one as well: it looks at no path, or it
/// was about the one that leads there.
fn was_asked_of(snapshot: &Snapshot, rule: &str, named: &[&str], path: &str) -> bool {
    let rules = snapshot.rules();
    let known = rules.binary_search_by(|known| known.name().cmp(rule));
    match known.ok().and_then(|at| rules.get(at)) {
        Some(rule) if !rule.looks_at_places() => true,
        Some(rule) => named.iter().any(|name| is_within(path, name) && rule.is_about(name)),
        // A built-in one, or one in TypeScript: nobody knows which of several it was about.
        None => match named {
            [only] => is_within(path, only),
            many => many.contains(&path),
        },
    }
}

/// Whether a path is this one or below it.
fn is_within(path: &str, above: &str) -> bool {
    above == "."
        || path.strip_prefix(above).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}
