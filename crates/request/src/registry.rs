//! The tools there are. Readers take a snapshot and are never in anybody's way; writers make a new one.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use crate::fault::Fault;
use crate::name::{ToolName, Version, VersionReq};
use crate::registered::{Later, RegisterError, Registered};
use crate::text::Label;
use crate::tool::Tool;

/// Why a tool was not found.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LookupError {
    #[error("there is no tool `{name}`")]
    Unknown { name: ToolName },
    #[error("there is no version {wanted} of `{name}`: there is {there}")]
    Version { name: ToolName, wanted: String, there: String },
    #[error("several tools are called `{name}`: say which of {candidates}")]
    Ambiguous { name: ToolName, candidates: String },
    #[error("the tool `{name}` is disabled")]
    Disabled { name: ToolName },
    /// It is one that is made with its first use, and could not be made.
    #[error("the tool `{name}` is broken: {why}")]
    Broken { name: ToolName, why: String },
}

/// A tool of the registry.
#[derive(Debug, Clone)]
enum Slot {
    Made(Arc<Registered>),
    Later(Arc<Later>),
}

impl Slot {
    /// Makes it, if that was not done yet.
    fn tool(&self) -> Result<&Arc<Registered>, &RegisterError> {
        match self {
            Slot::Made(tool) => Ok(tool),
            Slot::Later(later) => later.made(),
        }
    }
}

#[derive(Debug, Clone)]
struct Entry {
    slot: Slot,
    enabled: bool,
}

impl Entry {
    /// `None` for one that cannot be made; [`Tools::get`] says why.
    fn listed(&self) -> Option<Listed> {
        let tool = self.slot.tool().ok()?;
        Some(Listed { tool: Arc::clone(tool), enabled: self.enabled })
    }
}

/// The tools there are, for all threads of a process.
#[derive(Debug, Default)]
pub struct Registry {
    tools: RwLock<Arc<Tools>>,
}

/// The tools that there were at one time.
#[derive(Debug, Clone, Default)]
pub struct Tools {
    all: BTreeMap<ToolName, BTreeMap<Version, Entry>>,
}

/// A tool, and whether it can be called.
#[derive(Debug, Clone)]
pub struct Listed {
    pub tool: Arc<Registered>,
    pub enabled: bool,
}

impl Registry {
    /// Most tools, counting versions.
    pub const MAX: usize = 10_000;

    pub fn new() -> Registry {
        Registry::default()
    }

    /// A registry that begins with these, each of which is made with its first use.
    pub fn of(tools: impl IntoIterator<Item = Later>) -> Result<Registry, RegisterError> {
        let mut all = Tools::default();
        for tool in tools {
            all.add(tool.name().clone(), tool.version(), Slot::Later(Arc::new(tool)))?;
        }
        Ok(Registry { tools: RwLock::new(Arc::new(all)) })
    }

    /// The tools as they are now.
    pub fn tools(&self) -> Arc<Tools> {
        Arc::clone(&self.tools.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Checks a tool and adds it.
    pub fn register(&self, tool: Tool) -> Result<Arc<Registered>, RegisterError> {
        // Compiled before the lock is taken: only the exchange of the snapshot waits for others.
        let tool = Arc::new(Registered::new(tool)?);
        let (name, version) = (tool.tool().name.clone(), tool.tool().version);
        self.change(|tools| tools.add(name, version, Slot::Made(Arc::clone(&tool))))?;
        Ok(tool)
    }

    /// Removes a tool. Calls that have it keep it.
    pub fn unregister(&self, name: &ToolName, version: Version) -> Result<(), LookupError> {
        self.change(|tools| tools.remove(name, version))
    }

    pub fn enable(&self, name: &ToolName, version: Version) -> Result<(), LookupError> {
        self.change(|tools| tools.entry(name, version).map(|entry| entry.enabled = true))
    }

    pub fn disable(&self, name: &ToolName, version: Version) -> Result<(), LookupError> {
        self.change(|tools| tools.entry(name, version).map(|entry| entry.enabled = false))
    }

    /// See [`Tools::get`].
    pub fn get(
        &self,
        name: &ToolName,
        version: Option<&VersionReq>,
    ) -> Result<Arc<Registered>, LookupError> {
        self.tools().get(name, version)
    }

    fn change<E>(&self, change: impl FnOnce(&mut Tools) -> Result<(), E>) -> Result<(), E> {
        let mut current = self.tools.write().unwrap_or_else(PoisonError::into_inner);
        let mut next = Tools::clone(&current);
        change(&mut next)?;
        *current = Arc::new(next);
        Ok(())
    }
}

impl Tools {
    /// The newest enabled version that is accepted. A name without a namespace means the tool that has
    /// none, or else the only one of that name; if there are several, none is called by chance.
    pub fn get(
        &self,
        name: &ToolName,
        version: Option<&VersionReq>,
    ) -> Result<Arc<Registered>, LookupError> {
        let (name, versions) = self.versions(name)?;
        let accepted = |v: Version| version.is_none_or(|req| req.accepts(v));
        let mut fitting = versions.iter().rev().filter(|(v, _)| accepted(**v)).peekable();
        if fitting.peek().is_none() {
            let there: Vec<String> = versions.keys().take(8).map(ToString::to_string).collect();
            return Err(LookupError::Version {
                name: name.clone(),
                wanted: version.map(ToString::to_string).unwrap_or_default(),
                there: there.join(", "),
            });
        }
        let disabled = || LookupError::Disabled { name: name.clone() };
        let (_, entry) = fitting.find(|(_, entry)| entry.enabled).ok_or_else(disabled)?;
        let broken = |error: &RegisterError| LookupError::Broken {
            name: name.clone(),
            why: error.to_string(),
        };
        entry.slot.tool().map(Arc::clone).map_err(broken)
    }

    /// All of them, by name and version, or those with this category and this tag.
    pub fn list(&self, category: Option<&Label>, tag: Option<&Label>) -> Vec<Listed> {
        let fits = |tool: &Tool| {
            category.is_none_or(|c| tool.category.as_ref() == Some(c))
                && tag.is_none_or(|t| tool.tags.contains(t))
        };
        self.iter().filter(|listed| fits(listed.tool.tool())).collect()
    }

    /// The tools that the words speak of, the best first: those that more of the words fit, then those
    /// they fit better, then by name. At most `most`.
    pub fn search(&self, words: &str, most: usize) -> Vec<Listed> {
        let words = words_of(&words.chars().take(SEARCH_MOST).collect::<String>());
        let mut found: Vec<(usize, usize, Listed)> = Vec::new();
        for listed in self.iter() {
            let scores = scores(listed.tool.tool(), &words);
            let fitting = scores.iter().filter(|score| **score > 0).count();
            if fitting > 0 {
                found.push((fitting, scores.iter().sum(), listed));
            }
        }
        // Stable, and `iter` goes by name.
        found.sort_by_key(|(fitting, score, _)| std::cmp::Reverse((*fitting, *score)));
        found.into_iter().take(most).map(|(_, _, listed)| listed).collect()
    }

    /// What somebody sees: the enabled tools that the filter lets pass. The rest is not there for them.
    pub fn visible_to(&self, filter: impl Fn(&Registered) -> bool) -> Tools {
        let mut all = BTreeMap::new();
        for (name, versions) in &self.all {
            let passes =
                |entry: &Entry| entry.enabled && entry.slot.tool().is_ok_and(|t| filter(t));
            let seen = versions.iter().filter(|(_, entry)| passes(entry));
            let seen: BTreeMap<Version, Entry> = seen.map(|(v, e)| (*v, e.clone())).collect();
            if !seen.is_empty() {
                all.insert(name.clone(), seen);
            }
        }
        Tools { all }
    }

    fn iter(&self) -> impl Iterator<Item = Listed> {
        self.all.values().flat_map(BTreeMap::values).filter_map(Entry::listed)
    }

    fn versions(
        &self,
        name: &ToolName,
    ) -> Result<(&ToolName, &BTreeMap<Version, Entry>), LookupError> {
        if let Some(found) = self.all.get_key_value(name) {
            return Ok(found);
        }
        let unknown = || LookupError::Unknown { name: name.clone() };
        if name.namespace().is_some() {
            return Err(unknown());
        }
        // Tools of one name stand together, and the one without a namespace would come first.
        let mut same = self.all.range(name..).take_while(|(other, _)| other.bare() == name.bare());
        match (same.next(), same.next()) {
            (None, _) => Err(unknown()),
            (Some(only), None) => Ok(only),
            (Some(one), Some(two)) => {
                let all = [one, two].into_iter().chain(same).map(|(name, _)| name.to_string());
                let candidates = all.take(8).collect::<Vec<_>>().join(", ");
                Err(LookupError::Ambiguous { name: name.clone(), candidates })
            }
        }
    }

    fn entry(&mut self, name: &ToolName, version: Version) -> Result<&mut Entry, LookupError> {
        let unknown = || LookupError::Unknown { name: name.clone() };
        let versions = self.all.get_mut(name).ok_or_else(unknown)?;
        versions.get_mut(&version).ok_or_else(unknown)
    }

    fn add(&mut self, name: ToolName, version: Version, slot: Slot) -> Result<(), RegisterError> {
        if self.all.values().map(BTreeMap::len).sum::<usize>() >= Registry::MAX {
            return Err(RegisterError::Full { most: Registry::MAX });
        }
        let versions = self.all.entry(name.clone()).or_default();
        if versions.contains_key(&version) {
            return Err(RegisterError::Twice { tool: name, version });
        }
        versions.insert(version, Entry { slot, enabled: true });
        Ok(())
    }

    fn remove(&mut self, name: &ToolName, version: Version) -> Result<(), LookupError> {
        self.entry(name, version)?;
        if let Some(versions) = self.all.get_mut(name) {
            versions.remove(&version);
        }
        self.all.retain(|_, versions| !versions.is_empty());
        Ok(())
    }
}

/// Most characters of a search.
const SEARCH_MOST: usize = 256;

fn words_of(text: &str) -> Vec<String> {
    let words = text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    words.map(str::to_lowercase).collect()
}

/// How well each word fits a tool: where it is found counts, and whether as a whole word.
fn scores(tool: &Tool, words: &[String]) -> Vec<usize> {
    let title = tool.title.as_ref().map(|title| title.as_str()).unwrap_or_default();
    let labels: Vec<&str> = tool.tags.iter().chain(&tool.category).map(Label::as_str).collect();
    let places = [
        (words_of(&tool.name.to_string()), 8),
        (words_of(&labels.join(" ")), 6),
        (words_of(title), 4),
        (words_of(tool.description.as_str()), 2),
    ];
    let score = |word: &String| {
        let fits = places.iter().map(|(there, weight)| {
            if there.contains(word) {
                *weight
            } else if there.iter().any(|longer| longer.starts_with(word)) {
                weight / 2
            } else {
                0
            }
        });
        fits.sum()
    };
    words.iter().map(score).collect()
}

impl LookupError {
    /// The same, for whoever sent the name.
    pub fn fault(&self) -> Fault {
        let (why, fix) = match self {
            LookupError::Unknown { .. } => {
                ("nothing of that name is registered", "look at the list of tools")
            }
            LookupError::Version { .. } => {
                ("none of its versions is accepted", "accept another version")
            }
            LookupError::Ambiguous { .. } => {
                ("one would be called by chance", "write the namespace before the name")
            }
            LookupError::Disabled { .. } => {
                ("the operator disabled it", "ask the operator, or use another")
            }
            LookupError::Broken { .. } => {
                ("what it says of itself does not hold", "report it, and use another")
            }
        };
        Fault::new("/tool", self.to_string(), why, fix)
    }
}
