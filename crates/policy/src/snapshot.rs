//! A policy that was read, ready to be asked.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use hotcell_request::{Call, Digest, Label, Tools, canonical};
use hotcell_types::{Decision, Name};
use serde_json::{Value, json};

use crate::built_in::{BUILT_IN, BuiltIn, Protected};
use crate::facts::Facts;
use crate::fault::{Fault, Warning};
use crate::index::Index;
use crate::read::{self, File, Redact};
use crate::rule::{Answer, Rule};
use crate::subject::Subject;
use crate::verdict::SPEAKERS;
use crate::yaml;

/// The text of the policy of a home without one.
pub const DEFAULT: &str = include_str!("../policies/default.yaml");
const WORKSPACE_WRITES: &str = include_str!("../policies/workspace-writes.yaml");

/// One version of a policy. Never changes: another policy is another snapshot. A copy costs nothing.
#[derive(Clone)]
pub struct Snapshot {
    policy: Arc<Policy>,
    digest: Digest,
}

#[derive(Debug)]
pub(crate) struct Policy {
    name: String,
    /// Of what it says.
    digest: Digest,
    pub(crate) built_in: &'static [BuiltIn],
    pub(crate) protected: Protected,
    /// By name, so that their order in the file changes nothing.
    pub(crate) rules: Vec<Rule>,
    pub(crate) index: Index,
    pub(crate) extensions: Vec<String>,
    redact: Vec<Redact>,
    approvers: Vec<String>,
    identities: BTreeMap<Name, Vec<Label>>,
    depends_on_workflow: bool,
}

/// A policy, and what its author might not have meant.
#[derive(Debug)]
pub struct Loaded {
    pub snapshot: Snapshot,
    pub warnings: Vec<Warning>,
}

impl Snapshot {
    /// Reads a rule file. `tools` are those that `when` is checked against.
    pub fn load(text: &[u8], tools: &Tools) -> Result<Loaded, Vec<Fault>> {
        Snapshot::load_protecting(text, tools, Protected::default())
    }

    /// The same, with other names for what the built-in rules protect.
    pub fn load_protecting(
        text: &[u8],
        tools: &Tools,
        protected: Protected,
    ) -> Result<Loaded, Vec<Fault>> {
        let (policy, warnings) = Policy::compile(&[text], tools, protected, BUILT_IN)?;
        Ok(Loaded { snapshot: Snapshot::of(policy), warnings })
    }

    /// The same policy as one version of a home's, with the sources of its extensions, which are as much of it
    /// as its rules are. Another version is another policy, also if it says the same: what was agreed to under
    /// one that was replaced does not come back with its text.
    pub fn as_version(self, number: u64, sources: &BTreeMap<String, String>) -> Snapshot {
        let digest = canonical::digest(&json!({
            "policy": self.policy.digest.to_string(),
            "version": number,
            "sources": sources,
        }));
        Snapshot { digest, ..self }
    }

    /// The policy of a home without one.
    pub fn built_in() -> Snapshot {
        Snapshot::built_in_protecting(Protected::default())
    }

    /// The same, with other names for what the built-in rules protect.
    pub fn built_in_protecting(protected: Protected) -> Snapshot {
        Snapshot::embedded("built-in 1", &[DEFAULT], protected)
    }

    /// The same, and what runs change in a copy of the workspace is brought back, except where somebody
    /// else would execute it without being asked. For who embeds hotcell and owns the workspace.
    pub fn with_workspace_writes() -> Snapshot {
        let texts = [DEFAULT, WORKSPACE_WRITES];
        Snapshot::embedded("built-in 1, with writes", &texts, Protected::default())
    }

    /// Which version this is, for the record.
    pub fn name(&self) -> &str {
        &self.policy.name
    }

    /// Of what the policy says, not of how it is written: comments and spaces do not count. Of a version, of
    /// that as well.
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// Whether it could decide otherwise in another state or mode.
    pub fn depends_on_workflow(&self) -> bool {
        self.policy.depends_on_workflow
    }

    /// All rules, by name.
    pub fn rules(&self) -> &[Rule] {
        &self.policy.rules
    }

    /// Names of the rules that every policy has, with their reasons.
    pub fn built_in_rules(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        self.policy.built_in.iter().map(|rule| (rule.name, rule.reason))
    }

    /// Files of TypeScript that have a say in every decision.
    pub fn extensions(&self) -> &[String] {
        &self.policy.extensions
    }

    /// What is never kept, besides what is known anyway.
    pub fn redact(&self) -> &[Redact] {
        &self.policy.redact
    }

    /// The lines of those who may answer in its name.
    pub fn approvers(&self) -> &[String] {
        &self.policy.approvers
    }

    /// What the policy calls somebody.
    pub fn tags_of(&self, subject: &Name) -> &[Label] {
        self.policy.identities.get(subject).map_or(&[], Vec::as_slice)
    }

    /// Whether a rule that allows this very call names its hosts itself, and is not about any host there may
    /// be. What is inside somebody's network is reached by who names it only. Whether the call may happen is
    /// for [`judge`](crate::judge) to say.
    pub fn names_host(&self, call: &Call, facts: &Facts) -> bool {
        let subject = Subject::new(call, facts);
        self.rules().iter().any(|rule| {
            rule.decision == Decision::Allow
                && rule.matching.host.is_some()
                && !rule.token_required
                && matches!(rule.ask(&subject), Answer::Speaks)
        })
    }

    /// The rule, and its reason, that is against an address to which an allowed name leads: one that denies hosts
    /// of which this address is one, or wants them looked at. What is said of all hosts was said of the name, and
    /// an address stands in a rule only as itself.
    pub fn refuses_host(&self, call: &Call, facts: &Facts) -> Option<(&str, String)> {
        let subject = Subject::new(call, facts);
        let named = self.rules().iter().filter(|rule| rule.matching.host.is_some());
        named.filter(|rule| rule.decision != Decision::Allow).find_map(|rule| {
            match rule.ask(&subject) {
                Answer::Speaks => Some((rule.name(), rule.reason().to_owned())),
                Answer::Failed(wrong) => Some((rule.name(), wrong.to_string())),
                Answer::Unmet(_) | Answer::Excepted(_) | Answer::Not | Answer::Unseen(_) => None,
            }
        })
    }

    fn of(policy: Policy) -> Snapshot {
        Snapshot { digest: policy.digest, policy: Arc::new(policy) }
    }

    pub(crate) fn policy(&self) -> &Policy {
        &self.policy
    }

    #[cfg(test)]
    pub(crate) fn with_built_in(texts: &[&[u8]], built_in: &'static [BuiltIn]) -> Snapshot {
        let compiled = Policy::compile(texts, &Tools::default(), Protected::default(), built_in);
        Snapshot::of(compiled.unwrap().0)
    }

    /// A test reads them. If they could not be read, there would be no rules, and nothing allowed.
    fn embedded(name: &str, texts: &[&str], protected: Protected) -> Snapshot {
        let texts: Vec<&[u8]> = texts.iter().map(|text| text.as_bytes()).collect();
        let compiled = Policy::compile(&texts, &Tools::default(), protected.clone(), BUILT_IN);
        let policy = compiled.map_or_else(
            |_| Policy::of(File::default(), &[], protected, BUILT_IN),
            |(policy, _)| policy,
        );
        Snapshot::of(Policy { name: name.into(), ..policy })
    }
}

impl Policy {
    pub(crate) fn compile(
        texts: &[&[u8]],
        tools: &Tools,
        protected: Protected,
        built_in: &'static [BuiltIn],
    ) -> Result<(Policy, Vec<Warning>), Vec<Fault>> {
        let taken = built_in.iter().map(|rule| rule.name).chain(SPEAKERS);
        let taken: Vec<&str> = taken.collect();
        let mut file = File::default();
        let mut trees = Vec::new();
        for text in texts {
            let tree = yaml::parse(text).map_err(|fault| vec![fault])?;
            let part = read::read(tree.as_ref(), &String::from_utf8_lossy(text), tools, &taken)?;
            trees.push(tree.map_or(Value::Null, |tree| tree.written()));
            file.rules.extend(part.rules);
            file.extensions.extend(part.extensions);
            file.redact.extend(part.redact);
            file.approvers.extend(part.approvers);
            file.identities.extend(part.identities);
            file.warnings.extend(part.warnings);
        }
        let warnings = std::mem::take(&mut file.warnings);
        Ok((Policy::of(file, &trees, protected, built_in), warnings))
    }

    fn of(
        file: File,
        trees: &[Value],
        protected: Protected,
        built_in: &'static [BuiltIn],
    ) -> Policy {
        let names: Vec<&str> = built_in.iter().map(|rule| rule.name).collect();
        let Protected { policy, audit, state, bootstrap, kernel } = &protected;
        let digest = canonical::digest(&json!({
            "built_in": names,
            "protected": [policy, audit, state, bootstrap, kernel],
            "rules": trees,
        }));
        let mut rules = file.rules;
        rules.sort_by(|one, other| one.name.cmp(&other.name));
        let depends_on_workflow =
            !file.extensions.is_empty() || rules.iter().any(Rule::depends_on_workflow);
        Policy {
            name: format!("policy {:.12}", digest.to_string()),
            digest,
            built_in,
            protected,
            index: Index::new(&rules),
            rules,
            extensions: file.extensions,
            redact: file.redact,
            approvers: file.approvers,
            identities: file.identities,
            depends_on_workflow,
        }
    }
}

/// Whom a policy names as its approvers, whatever its rules say: it may be older than the tools.
pub fn approvers(text: &[u8]) -> Result<Vec<String>, Vec<Fault>> {
    let tree = yaml::parse(text).map_err(|fault| vec![fault])?;
    let tree = tree.map_or(Value::Null, |tree| tree.value());
    let lines = tree.get("approvers").and_then(Value::as_array).into_iter().flatten();
    Ok(lines.filter_map(|line| Some(line.as_str()?.to_owned())).collect())
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let policy = &self.policy;
        write!(f, "Snapshot({:?}, {}, {} rules)", policy.name, self.digest, policy.rules.len())
    }
}
