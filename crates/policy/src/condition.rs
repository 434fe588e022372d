//! When a rule applies. Fields are joined by "and", the values of a field by "or".
//!
//! A call may have several paths (and hosts, and methods). It is judged as if each of them were asked for
//! alone: an allow holds only if it holds for every one, a deny or a review already if it does for one.
//! Otherwise a second path would be carried through by the first. `except` is the other way round: an item
//! takes an allow away if it fits one of the paths, and frees from a deny only what it fits. `when` is asked
//! about the call as a whole.
//!
//! A tunnel has one method, which nobody sees. It is judged as if it had each of them: see [`Subject::is_blind`].
//!
//! A pattern of a directory is about everything below it, as in gitignore: who denies `secrets` means what
//! lies in there. So is a host about all of its ports. Only an allow is for exactly the paths and hosts that
//! its `match` names, so that none is wider than it reads.

use std::fmt;

use hotcell_glob::{Glob, HostPattern};
use hotcell_request::{Label, ToolName};
use hotcell_types::{Door, Effect};

use crate::subject::Subject;

#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Condition {
    pub(crate) operation: Option<Vec<ToolName>>,
    pub(crate) tool: Option<Vec<ToolName>>,
    pub(crate) path: Option<Vec<Glob>>,
    pub(crate) host: Option<Vec<HostPattern>>,
    pub(crate) method: Option<Vec<&'static str>>,
    pub(crate) tag: Option<Vec<Label>>,
    pub(crate) state: Option<Vec<&'static str>>,
    pub(crate) mode: Option<Vec<&'static str>>,
    pub(crate) door: Option<Vec<Door>>,
    /// All effects of the call are among these.
    pub(crate) effect: Option<Vec<Effect>>,
}

/// One of the things a condition is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Field {
    Operation,
    Tool,
    Path,
    Host,
    Method,
    Tag,
    State,
    Mode,
    Door,
    Effect,
}

/// For how many of several paths, hosts or methods something has to hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Of {
    Each,
    Any,
}

impl Field {
    pub(crate) const ALL: [Field; 10] = [
        Field::Operation,
        Field::Tool,
        Field::Path,
        Field::Host,
        Field::Method,
        Field::Tag,
        Field::State,
        Field::Mode,
        Field::Door,
        Field::Effect,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Field::Operation => "operation",
            Field::Tool => "tool",
            Field::Path => "path",
            Field::Host => "host",
            Field::Method => "method",
            Field::Tag => "tag",
            Field::State => "state",
            Field::Mode => "mode",
            Field::Door => "door",
            Field::Effect => "effect",
        }
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Condition {
    /// The same, for everything below the paths and on the hosts that it names as well.
    pub(crate) fn and_below(self) -> Condition {
        let path = self.path.map(|globs| globs.into_iter().map(Glob::and_below).collect());
        let host = self.host.map(|hosts| hosts.into_iter().map(HostPattern::and_ports).collect());
        Condition { path, host, ..self }
    }

    /// The first field that does not hold; `None` if all do.
    pub(crate) fn unmet(&self, subject: &Subject<'_>, of: Of) -> Option<Field> {
        let places = [
            (Field::Path, self.fits_paths(&subject.paths, of)),
            (Field::Host, self.fits_hosts(&subject.hosts, of)),
            (Field::Method, self.fits_method_of(subject, of)),
        ];
        let unmet = || places.into_iter().find(|(_, holds)| !holds).map(|(field, _)| field);
        self.unmet_besides_places(subject).or_else(unmet)
    }

    /// Whether an item of `except` frees what a deny or a review says of one path of the call, or of a call
    /// without any. Hosts and methods are freed together: all that the rule is about.
    pub(crate) fn frees(
        &self,
        path: Option<&str>,
        rule: &Condition,
        subject: &Subject<'_>,
    ) -> bool {
        let hosts = subject.hosts.iter().filter(|host| rule.fits_hosts(&[*host], Of::Any));
        let methods =
            subject.methods.iter().filter(|method| rule.fits_methods(&[*method], Of::Any));
        self.unmet_besides_places(subject).is_none()
            && self.fits_paths(path.as_slice(), Of::Each)
            && fits(self.host.as_deref(), hosts, Of::Each, |pattern, host| pattern.matches(host))
            && fits(self.method.as_deref(), methods, Of::Each, |known, method| **known == *method)
    }

    pub(crate) fn fits_paths(&self, paths: &[&str], of: Of) -> bool {
        fits(self.path.as_deref(), paths.iter(), of, |glob, path| glob.matches(path))
    }

    fn fits_hosts(&self, hosts: &[&str], of: Of) -> bool {
        fits(self.host.as_deref(), hosts.iter(), of, |pattern, host| pattern.matches(host))
    }

    /// What nobody sees could be any method: one of them fits, and not each.
    fn fits_method_of(&self, subject: &Subject<'_>, of: Of) -> bool {
        let could = of == Of::Any && subject.has_unseen_method();
        could || self.fits_methods(&subject.methods, of)
    }

    fn fits_methods(&self, methods: &[&str], of: Of) -> bool {
        fits(self.method.as_deref(), methods.iter(), of, |known, method| **known == *method)
    }

    fn unmet_besides_places(&self, subject: &Subject<'_>) -> Option<Field> {
        let has = |list: &Option<Vec<ToolName>>, name: &ToolName| {
            list.as_ref().is_none_or(|list| list.contains(name))
        };
        let is = |list: &Option<Vec<&'static str>>, word: Option<&str>| {
            list.as_ref().is_none_or(|list| word.is_some_and(|word| list.contains(&word)))
        };
        let tag = |list: &Vec<Label>| subject.tags.iter().any(|tag| list.contains(tag));
        let effect =
            |list: &Vec<Effect>| subject.effects.iter().all(|effect| list.contains(&effect));
        let door = |list: &Vec<Door>| list.contains(&subject.caller.door);
        if !has(&self.operation, subject.operation) {
            Some(Field::Operation)
        } else if !has(&self.tool, subject.tool) {
            Some(Field::Tool)
        } else if !self.tag.as_ref().is_none_or(tag) {
            Some(Field::Tag)
        } else if !is(&self.state, subject.state) {
            Some(Field::State)
        } else if !is(&self.mode, subject.mode) {
            Some(Field::Mode)
        } else if !self.door.as_ref().is_none_or(door) {
            Some(Field::Door)
        } else if !self.effect.as_ref().is_none_or(effect) {
            Some(Field::Effect)
        } else {
            None
        }
    }
}

/// A condition on something that the call does not have never holds.
fn fits<'v, P>(
    patterns: Option<&[P]>,
    mut values: impl Iterator<Item = &'v &'v str>,
    of: Of,
    matches: impl Fn(&P, &str) -> bool,
) -> bool {
    let Some(patterns) = patterns else { return true };
    let fits = |value: &str| patterns.iter().any(|pattern| matches(pattern, value));
    match of {
        Of::Any => values.any(|value| fits(value)),
        Of::Each => {
            values.next().is_some_and(|first| fits(first)) && values.all(|value| fits(value))
        }
    }
}
