//! What would allow a call that was refused: the smallest rule, or what stands against it.

use hotcell_glob::Glob;
use hotcell_request::{Call, ToolName};
use hotcell_types::{Decision, Effect, Effects};

use crate::read::NAME_MOST;
use crate::snapshot::Snapshot;
use crate::verdict::{Spoken, Verdict};

impl Verdict<'_> {
    /// What would allow a call that was refused, as rules are written. Empty for one that is allowed.
    pub fn would_allow(&self, snapshot: &Snapshot, call: &Call) -> String {
        let account = match self {
            Verdict::Allow(_) => return String::new(),
            Verdict::Ask(_) => return "an extension of the policy has to be asked first".into(),
            Verdict::Review(_) => return "somebody who may has to agree to this call".into(),
            Verdict::Deny(account) => account,
        };
        if let Some(rule) = account.wants_token.filter(|_| account.spoken.is_empty()) {
            return format!("a token for this call: the rule `{rule}` allows it with one");
        }
        let places = places_of(call);
        let denying = account.spoken.iter().filter(|spoken| spoken.decision == Decision::Deny);
        let (mut told, mut can_be_met) = (Vec::new(), true);
        for spoken in denying {
            let against = against(spoken, snapshot, &places);
            told.push(against.text);
            can_be_met &= against.can_be_met;
        }
        // Without what denies it there would be silence.
        let is_spoken_for = account.spoken.iter().any(|spoken| spoken.decision != Decision::Deny);
        if told.is_empty() {
            return smallest(snapshot, call, &places);
        }
        if can_be_met && !is_spoken_for && snapshot.extensions().is_empty() {
            told.push(match account.wants_token {
                Some(rule) => {
                    format!("and then a token for this call: the rule `{rule}` allows it with one")
                }
                None => format!(
                    "and nothing allows it then; this would: {}",
                    smallest(snapshot, call, &places)
                ),
            });
        }
        told.join("; ")
    }
}

/// The smallest rule that allows a call, under a name that the policy does not have. In one line: it is told
/// where there is no room for more.
fn smallest(snapshot: &Snapshot, call: &Call, places: &Places) -> String {
    let name = unused(&format!("allow-{}", call.name()).replace('/', "."), snapshot);
    let when = match missing(places, call.effects()) {
        Some(when) => format!("when: \"{when}\", "),
        None => String::new(),
    };
    format!("- {{ name: {name}, match: {}, {when}action: allow }}", condition(places))
}

/// The name, or with a number behind it the first that no rule has.
fn unused(name: &str, snapshot: &Snapshot) -> String {
    let is_taken = |name: &str| {
        snapshot.rules().binary_search_by(|rule| rule.name().cmp(name)).is_ok()
            || snapshot.built_in_rules().any(|(known, _)| known == name)
    };
    let numbered = (2..).map(|number| format!("-{number}"));
    let mut names = std::iter::once(String::new()).chain(numbered).map(|end| {
        let most = NAME_MOST.saturating_sub(end.len());
        name.chars().take(most).collect::<String>() + &end
    });
    // There are fewer rules than numbers.
    names.find(|name| !is_taken(name)).unwrap_or_default()
}

/// What to do about a deny.
struct Against {
    text: String,
    /// Whether it would be gone with that.
    can_be_met: bool,
}

/// What to do about a deny, if anything.
fn against(spoken: &Spoken<'_>, snapshot: &Snapshot, places: &Places) -> Against {
    let (name, reason) = (&spoken.rule, &spoken.reason);
    let no_way = |text: String| Against { text, can_be_met: false };
    match snapshot.rules().iter().find(|rule| rule.name() == spoken.rule) {
        None => no_way(format!("`{name}` denies it, and nothing overrides that: {reason}")),
        Some(rule) if rule.decision != Decision::Deny => {
            no_way(format!("{reason}; correct `when` of the rule `{name}`"))
        }
        // An item without a place would free more than this call.
        Some(_) if places.paths.is_empty() && places.hosts.is_empty() => {
            no_way(format!("the rule `{name}` denies it, and no `except` is just for this call"))
        }
        Some(_) => {
            let item = condition(places);
            let text = format!(
                "the rule `{name}` denies it; it would not with this among its `except`: - {item}"
            );
            Against { text, can_be_met: true }
        }
    }
}

/// What a call asks for, as far as rules tell calls apart.
pub(crate) struct Places {
    pub(crate) operation: ToolName,
    pub(crate) tool: ToolName,
    /// Patterns of paths.
    pub(crate) paths: Vec<String>,
    pub(crate) hosts: Vec<String>,
    pub(crate) methods: Vec<String>,
}

fn places_of(call: &Call) -> Places {
    let texts = |places: Vec<&str>| {
        let mut texts: Vec<String> = places.into_iter().map(str::to_owned).collect();
        texts.sort();
        texts.dedup();
        texts
    };
    Places {
        operation: call.operation().clone(),
        tool: call.name().clone(),
        paths: texts(call.paths()).iter().map(|path| Glob::exactly(path).to_string()).collect(),
        hosts: texts(call.hosts()),
        methods: texts(call.methods()),
    }
}

/// A rule that allows just this, each line after so many spaces.
pub(crate) fn rule(name: &str, places: &Places, spaces: usize) -> String {
    let before = " ".repeat(spaces);
    let mut text = format!("{before}- name: {name}\n{before}  match: {}\n", condition(places));
    if let Some(when) = missing(places, all()) {
        text += &format!("{before}  when: {when}\n");
    }
    text + &format!("{before}  action: allow\n")
}

/// Of somebody about whom nothing is known.
fn all() -> Effects {
    Effect::ALL.into_iter().collect()
}

/// That a call has no place of a sort which a call with these effects may have: without a condition on them,
/// there could be any.
fn missing(places: &Places, effects: Effects) -> Option<String> {
    let in_tree = effects.has(Effect::Read) || effects.has(Effect::Write);
    let sorts =
        [("paths", in_tree, &places.paths), ("hosts", effects.has(Effect::Network), &places.hosts)];
    let missing = sorts.iter().filter(|(_, may_be, values)| *may_be && values.is_empty());
    let missing: Vec<String> = missing.map(|(name, ..)| format!("size({name}) == 0")).collect();
    (!missing.is_empty()).then(|| missing.join(" && "))
}

pub(crate) fn condition(places: &Places) -> String {
    let mut text = format!("{{ operation: {}", places.operation);
    if places.tool != places.operation {
        text += &format!(", tool: {}", places.tool);
    }
    for (name, values) in
        [("path", &places.paths), ("host", &places.hosts), ("method", &places.methods)]
    {
        if !values.is_empty() {
            let quoted: Vec<String> = values.iter().map(|value| quoted(value)).collect();
            text += &format!(", {name}: [{}]", quoted.join(", "));
        }
    }
    text + " }"
}

/// Text as YAML reads it back, whatever is in it.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
