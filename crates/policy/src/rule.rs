//! A rule, and what it says of a call.

use hotcell_types::Decision;

use crate::condition::{Condition, Field, Of};
use crate::constraints::Constraints;
use crate::fault::At;
use crate::subject::Subject;
use crate::when::{When, Wrong};

/// One rule of a policy.
#[derive(Debug)]
pub struct Rule {
    pub(crate) name: Box<str>,
    pub(crate) decision: Decision,
    pub(crate) matching: Condition,
    pub(crate) except: Vec<Condition>,
    pub(crate) when: Option<When>,
    pub(crate) constraints: Constraints,
    pub(crate) token_required: bool,
    pub(crate) reason: Box<str>,
    pub(crate) at: At,
    /// As it stands in the file.
    pub(crate) text: Box<str>,
}

/// What became of asking a rule.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Answer {
    Speaks,
    /// This field of `match` does not hold.
    Unmet(Field),
    /// This item of `except` holds, counted from 0.
    Excepted(usize),
    /// `when` is false.
    Not,
    /// `when` asks for what nobody sees of the call, so that nobody knows whether it would be allowed.
    Unseen(&'static str),
    /// `when` has no value: the rule denies.
    Failed(Wrong),
}

impl Rule {
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it says when it applies.
    pub fn decision(&self) -> Decision {
        self.decision
    }

    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// Where it begins in the file.
    pub fn at(&self) -> At {
        self.at
    }

    /// The lines that it is written in; nothing if it shares them with a rule before it.
    pub fn text(&self) -> &str {
        &self.text
    }

    pub(crate) fn depends_on_workflow(&self) -> bool {
        let names = |condition: &Condition| condition.state.is_some() || condition.mode.is_some();
        names(&self.matching)
            || self.except.iter().any(names)
            || self.when.as_ref().is_some_and(When::depends_on_workflow)
    }

    /// Whether what it says can depend on where a call goes, or on its arguments.
    pub(crate) fn looks_at_places(&self) -> bool {
        let Condition { path, host, method, .. } = &self.matching;
        let is_open = path.is_none() && host.is_none() && method.is_none();
        !is_open || self.when.as_ref().is_some_and(When::looks_at_places)
    }

    /// Whether its `match` is about this path.
    pub(crate) fn is_about(&self, path: &str) -> bool {
        self.matching.fits_paths(&[path], Of::Any)
    }

    pub(crate) fn ask(&self, subject: &Subject<'_>) -> Answer {
        let fits = match self.decision {
            Decision::Allow => self.fits_all(subject),
            Decision::Review | Decision::Deny => self.fits_one(subject),
        };
        if let Err(answer) = fits {
            return answer;
        }
        match self.when.as_ref().map(|when| when.holds(subject)) {
            None | Some(Ok(true)) => Answer::Speaks,
            Some(Ok(false)) => Answer::Not,
            Some(Err(Wrong::Unseen(what))) if self.decision == Decision::Allow => {
                Answer::Unseen(what)
            }
            Some(Err(wrong)) => Answer::Failed(wrong),
        }
    }

    /// Whether it is about every path of a call that it speaks of.
    pub(crate) fn speaks_for_all(&self, subject: &Subject<'_>) -> bool {
        self.decision == Decision::Allow || self.fits_all(subject).is_ok()
    }

    fn fits_all(&self, subject: &Subject<'_>) -> Result<(), Answer> {
        if let Some(field) = self.matching.unmet(subject, Of::Each) {
            return Err(Answer::Unmet(field));
        }
        let holds = |item: &Condition| item.unmet(subject, Of::Any).is_none();
        match self.except.iter().position(holds) {
            Some(item) => Err(Answer::Excepted(item)),
            None => Ok(()),
        }
    }

    fn fits_one(&self, subject: &Subject<'_>) -> Result<(), Answer> {
        if let Some(field) = self.matching.unmet(subject, Of::Any) {
            return Err(Answer::Unmet(field));
        }
        let freed = |path: Option<&str>| {
            self.except.iter().position(|item| item.frees(path, &self.matching, subject))
        };
        if subject.paths.is_empty() {
            return freed(None).map_or(Ok(()), |item| Err(Answer::Excepted(item)));
        }
        let mut last = None;
        for &path in &subject.paths {
            if self.matching.fits_paths(&[path], Of::Any) {
                last = freed(Some(path));
                if last.is_none() {
                    return Ok(());
                }
            }
        }
        last.map_or(Ok(()), |item| Err(Answer::Excepted(item)))
    }
}
