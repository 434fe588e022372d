//! Numbers that are set by file: how many calls go on at once, when a tool is left alone, and what is kept of
//! the record and where its checkpoints go. A project can make what holds stricter, never laxer; of the record
//! it can say nothing.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use hotcell_engine::{AtOnce, Patience};
use hotcell_record::{RetentionPolicy, Sink};
use hotcell_types::{Bytes, Count, Name, Span, Template};
use serde::Deserialize;

use super::{DEFAULT, Named, Setting, by_default, parse};
use crate::gc::Age;
use crate::problem::Problem;

const RUNNING: &str = "schedule.running";
const TEMPLATES: &str = "schedule.templates";
const FAILURES: &str = "breaker.failures";
const REST: &str = "breaker.rest";
const ANCHOR: &str = "record.anchor";
const KEEP: &str = "record.keep";
const MOST: &str = "record.most";

/// Where the system takes messages for its log.
const SYSLOG: &str = "/dev/log";

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct ScheduleWords {
    running: Option<u32>,
    templates: BTreeMap<String, u32>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct BreakerWords {
    failures: Option<u32>,
    rest: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RecordWords {
    anchor: Option<String>,
    keep: Option<String>,
    most: Option<String>,
}

/// What one file says.
#[derive(Debug, Default)]
pub(super) struct Words {
    running: Option<Setting<Count>>,
    templates: BTreeMap<Name, Setting<Count>>,
    failures: Option<Setting<Count>>,
    rest: Option<Setting<Span>>,
    anchor: Option<Setting<Anchor>>,
    keep: Option<Setting<Age>>,
    most: Option<Setting<Bytes>>,
}

impl Words {
    pub(super) fn read(
        schedule: ScheduleWords,
        breaker: BreakerWords,
        record: RecordWords,
        source: &str,
    ) -> Result<Words, Problem> {
        Ok(Words {
            running: schedule.running.map(|most| count(most, source)).transpose()?,
            templates: templates(schedule.templates, source)?,
            failures: breaker.failures.map(|most| count(most, source)).transpose()?,
            rest: read(breaker.rest, source)?,
            anchor: read(record.anchor, source)?,
            keep: read(record.keep, source)?,
            most: read(record.most, source)?,
        })
    }

    /// Everything in it, as it is shown.
    pub(super) fn tell(&self, all: &mut Vec<Named>) {
        all.extend(self.running.iter().map(|said| named(RUNNING, said)));
        all.extend(self.templates.iter().map(|(name, said)| named(&of_template(name), said)));
        all.extend(self.failures.iter().map(|said| named(FAILURES, said)));
        all.extend(self.rest.iter().map(|said| named(REST, said)));
        all.extend(self.anchor.iter().map(|said| named(ANCHOR, said)));
        all.extend(self.keep.iter().map(|said| named(KEEP, said)));
        all.extend(self.most.iter().map(|said| named(MOST, said)));
    }

    /// What a project may not speak of.
    pub(super) fn of_record(&self) -> Option<&str> {
        let anchor = self.anchor.as_ref().map(|said| said.source.as_str());
        let keep = || self.keep.as_ref().map(|said| said.source.as_str());
        anchor.or_else(keep).or_else(|| self.most.as_ref().map(|said| said.source.as_str()))
    }
}

fn templates(
    said: BTreeMap<String, u32>,
    source: &str,
) -> Result<BTreeMap<Name, Setting<Count>>, Problem> {
    let each = said.into_iter().map(|(name, most)| {
        // A name with a typing error must not be taken for one that is limited.
        let template: Setting<Template> = parse((name, source.into()))?;
        let name = parse((template.value.name.into(), source.into()))?;
        Ok((name.value, count(most, source)?))
    });
    each.collect()
}

fn count(number: u32, source: &str) -> Result<Setting<Count>, Problem> {
    parse((number.to_string(), source.into()))
}

fn read<T: FromStr<Err: ToString>>(
    text: Option<String>,
    source: &str,
) -> Result<Option<Setting<T>>, Problem> {
    text.map(|text| parse((text, source.into()))).transpose()
}

fn named<T: ToString>(name: &str, said: &Setting<T>) -> Named {
    said.named(name, T::to_string)
}

fn of_template(name: &Name) -> String {
    format!("{TEMPLATES}.{name}")
}

/// Where checkpoints of the record go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Anchor(pub(super) Sink);

impl FromStr for Anchor {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Anchor, &'static str> {
        match text {
            "home" => Ok(Anchor(Sink::Home)),
            "syslog" => Ok(Anchor(Sink::Syslog(SYSLOG.into()))),
            text if text.contains("://") => {
                Err("checkpoints cannot go to a URL yet: give the path of a file, or `syslog`")
            }
            text if Path::new(text).is_absolute() => Ok(Anchor(Sink::File(PathBuf::from(text)))),
            _ => Err("an anchor is `home`, `syslog`, or a file by its path from the root"),
        }
    }
}

impl fmt::Display for Anchor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Sink::Home => f.write_str("home"),
            Sink::Syslog(_) => f.write_str("syslog"),
            Sink::File(path) => write!(f, "{}", path.display()),
        }
    }
}

/// What holds.
#[derive(Debug)]
pub(super) struct Numbers {
    running: Option<Setting<Count>>,
    templates: BTreeMap<Name, Setting<Count>>,
    failures: Setting<Count>,
    rest: Setting<Span>,
    anchor: Setting<Anchor>,
    keep: Setting<Age>,
    most: Setting<Bytes>,
}

impl Numbers {
    pub(super) fn of(operator: Words, user: Words, project: Words) -> Result<Numbers, Problem> {
        if let Some(source) = project.of_record() {
            return Err(Problem::invalid(format!("{source} cannot say anything of [record]"))
                .why("what proves the record, and what is kept of it, is not the project's")
                .fix("remove it, and set it in the operator's or the user's config.toml"));
        }
        // Asked of the machine only where a project alone speaks.
        let usual = (project.running.is_some() || !project.templates.is_empty())
            .then(AtOnce::of_machine)
            .unwrap_or_default();
        let running =
            strictest([operator.running, user.running, project.running], usual.running, |a, b| {
                a < b
            });
        let mut own = [operator.templates, user.templates, project.templates];
        let mut names: Vec<Name> = own.iter().flat_map(BTreeMap::keys).cloned().collect();
        names.sort();
        names.dedup();
        let templates = names.into_iter().filter_map(|name| {
            let said = own.each_mut().map(|each| each.remove(&name));
            let usual = usual.templates.get(&name).or(usual.running.as_ref()).copied();
            Some((name, strictest(said, usual, |a, b| a < b)?))
        });
        let templates = templates.collect();
        let patience = Patience::default();
        let failures = [operator.failures, user.failures, project.failures];
        let rest = [operator.rest, user.rest, project.rest];
        let kept = RetentionPolicy::default();
        Ok(Numbers {
            running,
            templates,
            failures: strictest(failures, Some(patience.failures), |a, b| a < b)
                .unwrap_or_else(|| by_default(patience.failures)),
            rest: strictest(rest, Some(patience.rest), |a, b| a > b)
                .unwrap_or_else(|| by_default(patience.rest)),
            anchor: operator.anchor.or(user.anchor).unwrap_or(by_default(Anchor(Sink::Home))),
            keep: user.keep.or(operator.keep).unwrap_or(by_default(Age(kept.keep))),
            most: user.most.or(operator.most).unwrap_or_else(|| by_default(most_of(&kept))),
        })
    }

    pub(super) fn at_once(&self) -> AtOnce {
        AtOnce {
            running: self.running.as_ref().map(|said| said.value),
            templates: self
                .templates
                .iter()
                .map(|(name, said)| (name.clone(), said.value))
                .collect(),
        }
    }

    pub(super) fn patience(&self) -> Patience {
        Patience { failures: self.failures.value, rest: self.rest.value }
    }

    pub(super) fn retention(&self) -> RetentionPolicy {
        RetentionPolicy { keep: self.keep.value.0, most_bytes: self.most.value.get() }
    }

    pub(super) fn anchor(&self) -> Sink {
        self.anchor.value.0.clone()
    }

    /// In the order in which they are shown.
    pub(super) fn holding(&self) -> Vec<Named> {
        let usual = AtOnce::of_machine();
        let running = self.running.clone().or(usual.running.map(by_default));
        let mut templates: BTreeMap<Name, Setting<Count>> =
            usual.templates.into_iter().map(|(name, most)| (name, by_default(most))).collect();
        templates.extend(self.templates.clone());
        let all = Words {
            running,
            templates,
            failures: Some(self.failures.clone()),
            rest: Some(self.rest.clone()),
            anchor: Some(self.anchor.clone()),
            keep: Some(self.keep.clone()),
            most: Some(self.most.clone()),
        };
        let mut shown = Vec::new();
        all.tell(&mut shown);
        shown
    }
}

/// What holds where nobody says anything.
pub(super) fn defaults() -> Vec<Named> {
    let (at_once, patience, kept) =
        (AtOnce::of_machine(), Patience::default(), RetentionPolicy::default());
    let of_template = |(name, most): (&Name, &Count)| Named::new(&of_template(name), most, DEFAULT);
    let mut all: Vec<Named> = Vec::new();
    all.extend(at_once.running.map(|most| Named::new(RUNNING, most, DEFAULT)));
    all.extend(at_once.templates.iter().map(of_template));
    all.extend([
        Named::new(FAILURES, patience.failures, DEFAULT),
        Named::new(REST, patience.rest, DEFAULT),
        Named::new(ANCHOR, Anchor(Sink::Home), DEFAULT),
        Named::new(KEEP, Age(kept.keep), DEFAULT),
        Named::new(MOST, most_of(&kept), DEFAULT),
    ]);
    all
}

fn most_of(kept: &RetentionPolicy) -> Bytes {
    Bytes::kib(u32::try_from(kept.most_bytes / 1024).unwrap_or(u32::MAX))
}

/// The stricter of what operator and user say, in place of what is usual. A project's word counts only where
/// it is stricter still.
fn strictest<T: Copy>(
    [operator, user, project]: [Option<Setting<T>>; 3],
    usual: Option<T>,
    is_stricter: impl Fn(&T, &T) -> bool,
) -> Option<Setting<T>> {
    let stricter =
        |a: Setting<T>, b: Setting<T>| if is_stricter(&b.value, &a.value) { b } else { a };
    let own = [operator, user].into_iter().flatten().reduce(stricter);
    let holds = own.or(usual.map(by_default));
    [holds, project].into_iter().flatten().reduce(stricter)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_anchor_is_a_place_that_does_not_depend_on_the_directory() {
        for (text, expected) in [
            ("home", Some(Sink::Home)),
            ("syslog", Some(Sink::Syslog(SYSLOG.into()))),
            ("/var/log/hotcell.log", Some(Sink::File("/var/log/hotcell.log".into()))),
            ("anchor.log", None),
            ("../anchor.log", None),
            ("https://example.org/anchor", None),
            ("", None),
        ] {
            let read = text.parse::<Anchor>().ok();
            assert_eq!(read.as_ref().map(|anchor| &anchor.0), expected.as_ref(), "{text}");
            if let Some(anchor) = read {
                assert_eq!(anchor.to_string(), text);
            }
        }
    }
}
