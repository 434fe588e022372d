//! Which rules could speak of a call: found by its operation, and then by what tells rules apart best, so
//! that what a decision costs does not grow with the number of rules that are about something else.

use std::collections::HashMap;

use hotcell_glob::{GlobSet, HostSet};
use hotcell_request::{Label, ToolName};
use smallvec::SmallVec;

use crate::rule::Rule;
use crate::subject::Subject;

/// The number of a rule.
pub(crate) type Id = u32;
/// Numbers of rules, in order.
pub(crate) type Candidates = SmallVec<[Id; 16]>;

#[derive(Debug, Default)]
pub(crate) struct Index {
    by_operation: HashMap<ToolName, Bucket>,
    /// Rules without an operation.
    others: Bucket,
}

/// Rules of one operation. Each rule is found by one field only.
#[derive(Debug, Default)]
struct Bucket {
    by_path: GlobSet<Id>,
    by_host: HostSet<Id>,
    by_tool: HashMap<ToolName, Vec<Id>>,
    by_tag: HashMap<Label, Vec<Id>>,
    others: Vec<Id>,
}

impl Index {
    pub(crate) fn new(rules: &[Rule]) -> Index {
        let mut index = Index::default();
        for (id, rule) in (0..).zip(rules) {
            match &rule.matching.operation {
                None => index.others.insert(id, rule),
                Some(operations) => {
                    for operation in operations {
                        index.by_operation.entry(operation.clone()).or_default().insert(id, rule);
                    }
                }
            }
        }
        index
    }

    /// Rules that may be about a call, in order. None that is about it is missing.
    pub(crate) fn candidates(&self, subject: &Subject<'_>) -> Candidates {
        let mut found = Candidates::new();
        let own = self.by_operation.get(subject.operation);
        for bucket in own.into_iter().chain([&self.others]) {
            bucket.find(subject, &mut found);
        }
        found.sort_unstable();
        found.dedup();
        found
    }
}

impl Bucket {
    fn insert(&mut self, id: Id, rule: &Rule) {
        let matching = &rule.matching;
        if let Some(globs) = &matching.path {
            globs.iter().for_each(|glob| self.by_path.insert(glob, id));
        } else if let Some(hosts) = &matching.host {
            hosts.iter().for_each(|host| self.by_host.insert(host, id));
        } else if let Some(tools) = &matching.tool {
            tools.iter().for_each(|tool| self.by_tool.entry(tool.clone()).or_default().push(id));
        } else if let Some(tags) = &matching.tag {
            tags.iter().for_each(|tag| self.by_tag.entry(tag.clone()).or_default().push(id));
        } else {
            self.others.push(id);
        }
    }

    fn find(&self, subject: &Subject<'_>, found: &mut Candidates) {
        for path in &subject.paths {
            self.by_path.each_match(path, |id| found.push(*id));
        }
        for host in &subject.hosts {
            self.by_host.each_match(host, |id| found.push(*id));
        }
        if !self.by_tool.is_empty() {
            found.extend(self.by_tool.get(subject.tool).into_iter().flatten().copied());
        }
        if !self.by_tag.is_empty() {
            let of_tags = subject.tags.iter().filter_map(|tag| self.by_tag.get(tag));
            found.extend(of_tags.flatten().copied());
        }
        found.extend_from_slice(&self.others);
    }
}
