//! A policy made of what was refused.

use std::collections::{BTreeMap, BTreeSet};

use hotcell_glob::Glob;
use hotcell_request::{Call, ToolName};

use crate::hint::{Places, rule};

/// A call that was refused and is wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    pub operation: ToolName,
    pub tool: ToolName,
    pub paths: Vec<String>,
    pub hosts: Vec<String>,
    pub methods: Vec<String>,
}

impl From<&Call> for Wanted {
    fn from(call: &Call) -> Wanted {
        let texts = |places: Vec<&str>| places.into_iter().map(str::to_owned).collect();
        Wanted {
            operation: call.operation().clone(),
            tool: call.name().clone(),
            paths: texts(call.paths()),
            hosts: texts(call.hosts()),
            methods: texts(call.methods()),
        }
    }
}

/// So many files of one directory stand for the directory.
const FILES_OF_A_DIRECTORY: usize = 3;

/// What one rule is made of. Calls that have paths and calls that have none need two.
type Group<'a> = (&'a ToolName, &'a ToolName, [bool; 3]);

/// The smallest policy that allows these calls: a rule for each tool, with the very paths, hosts and methods
/// that were asked for. Three files of a directory become all files right in it; the root never does.
pub fn learn(denied: &[Wanted]) -> String {
    let mut groups: BTreeMap<Group<'_>, Vec<&Wanted>> = BTreeMap::new();
    for wanted in denied {
        let has = [&wanted.paths, &wanted.hosts, &wanted.methods].map(|places| !places.is_empty());
        groups.entry((&wanted.operation, &wanted.tool, has)).or_default().push(wanted);
    }
    let mut text = String::from(if groups.is_empty() { "rules: []\n" } else { "rules:\n" });
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for ((operation, tool, _), wanted) in groups {
        let name = format!("learned-{}", tool.to_string().replace('/', "."));
        let name: String = name.chars().take(60).collect();
        let count = counts.entry(name.clone()).or_default();
        *count += 1;
        let name = if *count == 1 { name } else { format!("{name}-{count}") };
        let places = Places {
            operation: operation.clone(),
            tool: tool.clone(),
            paths: globs(wanted.iter().flat_map(|wanted| &wanted.paths)),
            hosts: all(wanted.iter().flat_map(|wanted| &wanted.hosts)),
            methods: all(wanted.iter().flat_map(|wanted| &wanted.methods)),
        };
        text += &rule(&name, &places, 2);
    }
    text
}

fn all<'a>(values: impl Iterator<Item = &'a String>) -> Vec<String> {
    values.cloned().collect::<BTreeSet<String>>().into_iter().collect()
}

fn globs<'a>(paths: impl Iterator<Item = &'a String>) -> Vec<String> {
    let mut by_directory: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for path in paths {
        let directory = path.rsplit_once('/').map_or("", |(directory, _)| directory);
        by_directory.entry(directory).or_default().insert(path);
    }
    let mut globs = Vec::new();
    for (directory, files) in by_directory {
        if files.len() >= FILES_OF_A_DIRECTORY && !directory.is_empty() {
            globs.push(format!("{}/*", Glob::exactly(directory)));
        } else {
            globs.extend(files.into_iter().map(|file| Glob::exactly(file).to_string()));
        }
    }
    globs
}
