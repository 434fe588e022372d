//! From the tree of a rule file to its rules. Everything is checked here, so that what is kept can only
//! mean what it says; as many faults as a person can use are told at once.

mod example;
mod expectation;

use std::cell::OnceCell;
use std::collections::{BTreeMap, HashMap};
use std::str::FromStr;
use std::sync::Arc;

use hotcell_glob::{Glob, HostPattern};
use hotcell_request::{Label, Listed, Registered, ToolName, Tools};
use hotcell_types::{Decision, Door, Effect, Name, Template};
use regex_automata::dfa::{StartKind, dense};
use regex_automata::nfa::thompson;
use regex_automata::util::syntax;

use crate::condition::{Condition, Field};
use crate::constraints::Constraints;
use crate::fault::{At, FAULTS_MOST, Fault, Warning, instead, meant, shown};
use crate::rule::Rule;
use crate::when::{PATTERN_MOST, When};
use crate::yaml::{Key, Kind, Node, Text};

pub use expectation::{Expectation, TESTS_MOST, expectations};

/// Most rules of a policy.
pub const RULES_MOST: usize = 10_000;
/// Most values of a field, items of `except`, and examples of a kind.
const VALUES_MOST: usize = 1000;
/// Longest name of a rule, and longest reason.
pub(crate) const NAME_MOST: usize = 64;
const REASON_MOST: usize = 500;
/// Most extensions, and most patterns of secrets.
const EXTENSIONS_MOST: usize = 16;
const REDACT_MOST: usize = 256;
/// Most bytes of all the states in which a search for a pattern of secrets can be.
const STATES_MOST: usize = 4 << 20;
/// Most identities, and most people who approve.
const IDENTITIES_MOST: usize = 1000;
const APPROVERS_MOST: usize = 64;

/// What a workflow can be in.
pub const STATES: [&str; 9] = [
    "idle",
    "planning",
    "test_writing",
    "code_writing",
    "validating",
    "reviewing",
    "committing",
    "exploring",
    "retroactive_testing",
];
pub const MODES: [&str; 3] = ["strict", "explore", "debug"];
pub(crate) const METHODS: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];

/// A pattern of what is never shown or kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Redact {
    /// What follows this text, up to the next space or quote.
    Prefix(String),
    Regex(Expression),
}

/// A regular expression of bounded size, compiled once.
#[derive(Debug, Clone)]
pub struct Expression(regex::bytes::Regex);

impl Expression {
    fn compile(text: &str) -> Result<Expression, String> {
        let mut builder = regex::bytes::RegexBuilder::new(text);
        builder.size_limit(PATTERN_MOST).dfa_size_limit(2 * STATES_MOST);
        let compiled = builder.build().map_err(|error| {
            let error = error.to_string();
            error.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned()
        })?;
        for backward in [false, true] {
            all_states(text, backward)?;
        }
        Ok(Expression(compiled))
    }

    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }

    pub fn compiled(&self) -> &regex::bytes::Regex {
        &self.0
    }
}

/// Works out every state that a search can be in, forward from each place or back from the end of a match.
/// Where all of them fit, each byte costs one step, whatever the text is; other patterns may have to look at
/// each byte as often as they are large, for minutes where 1 MB of text is made for it.
fn all_states(text: &str, backward: bool) -> Result<(), String> {
    let syntax = syntax::Config::new().utf8(false);
    let nfa = thompson::Config::new().utf8(false).reverse(backward);
    let start = if backward { StartKind::Anchored } else { StartKind::Unanchored };
    let states = dense::Config::new()
        .dfa_size_limit(Some(STATES_MOST))
        .determinize_size_limit(Some(STATES_MOST))
        .start_kind(start);
    let mut builder = dense::Builder::new();
    builder.syntax(syntax).thompson(nfa.nfa_size_limit(Some(PATTERN_MOST))).configure(states);
    builder.build(text).map(drop).map_err(|error| match error.to_string() {
        why if why.contains("word boundaries") => {
            "it could be slow: write word boundaries as `(?-u:\\b)`".to_owned()
        }
        _ => "it could be slow: repeat less, or write (?-u) before classes".to_owned(),
    })
}

/// As they are written.
impl PartialEq for Expression {
    fn eq(&self, other: &Expression) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for Expression {}

/// What a rule file says.
#[derive(Debug, Default)]
pub(crate) struct File {
    pub(crate) rules: Vec<Rule>,
    pub(crate) extensions: Vec<String>,
    pub(crate) redact: Vec<Redact>,
    pub(crate) approvers: Vec<String>,
    pub(crate) identities: BTreeMap<Name, Vec<Label>>,
    pub(crate) warnings: Vec<Warning>,
}

/// Reads the tree of a file. `taken` are names that rules cannot have.
pub(crate) fn read(
    root: Option<&Node>,
    text: &str,
    tools: &Tools,
    taken: &[&str],
) -> Result<File, Vec<Fault>> {
    let mut reader = Reader::new(text, tools);
    if let Some(root) = root {
        reader.top(root, taken);
    }
    if reader.faults.is_empty() {
        return Ok(reader.file);
    }
    reader.faults.sort_by_key(|fault| fault.at);
    reader.faults.truncate(FAULTS_MOST);
    Err(reader.faults)
}

struct Reader<'a> {
    lines: Vec<&'a str>,
    /// The last line that is part of a rule's text.
    shown: usize,
    tools: &'a Tools,
    all_tools: OnceCell<Vec<Listed>>,
    faults: Vec<Fault>,
    file: File,
}

impl<'a> Reader<'a> {
    fn new(text: &'a str, tools: &'a Tools) -> Reader<'a> {
        Reader {
            lines: text.lines().collect(),
            shown: 0,
            tools,
            all_tools: OnceCell::new(),
            faults: Vec::new(),
            file: File::default(),
        }
    }
}

type Members<'n> = BTreeMap<&'n str, &'n Node>;

impl Reader<'_> {
    fn fault(&mut self, at: At, what: impl Into<String>, fix: impl Into<String>) {
        // Enough to choose the first ones from.
        if self.faults.len() < 4 * FAULTS_MOST {
            self.faults.push(Fault::new(at, what, fix));
        }
    }

    fn top(&mut self, root: &Node, taken: &[&str]) {
        let known = ["version", "approvers", "identities", "rules", "extensions", "redact"];
        let Some(members) = self.map(root, "a rule file", &known) else { return };
        if let Some(version) = members.get("version")
            && version.value() != 1
        {
            self.fault(
                version.at,
                "this version is not known",
                "write `version: 1`, or leave it out",
            );
        }
        let mut names: HashMap<String, At> =
            taken.iter().map(|name| ((*name).to_owned(), At::BEGIN)).collect();
        let rules = members.get("rules").map(|rules| self.list(rules, "`rules`", RULES_MOST));
        for node in rules.into_iter().flatten() {
            let Some(rule) = self.rule(node) else { continue };
            if let Some(first) = names.insert(rule.name.to_string(), rule.at) {
                let where_ = match taken.contains(&&*rule.name) {
                    true => "hotcell uses this one itself".to_owned(),
                    false => format!("the other one is at {first}"),
                };
                let what = format!("there are two rules `{}`", rule.name);
                self.fault(rule.at, what, format!("choose another name: {where_}"));
            }
            self.file.rules.push(rule);
        }
        if let Some(node) = members.get("extensions") {
            for node in self.list(node, "`extensions`", EXTENSIONS_MOST) {
                let Some(name) = self.extension(node) else { continue };
                // What an extension says is told under its name.
                if let Some(first) = names.insert(name.clone(), node.at) {
                    let what = format!("`{}` is there twice", shown(&name));
                    self.fault(
                        node.at,
                        what,
                        format!("the other one is at {first}: name one otherwise"),
                    );
                }
                self.file.extensions.push(name);
            }
        }
        if let Some(node) = members.get("redact") {
            for node in self.list(node, "`redact`", REDACT_MOST) {
                let redact = self.redact(node);
                self.file.redact.extend(redact);
            }
        }
        if let Some(node) = members.get("approvers") {
            for node in self.list(node, "`approvers`", APPROVERS_MOST) {
                let approver = self.text(node, "the line of an approver").map(str::to_owned);
                self.file.approvers.extend(approver);
            }
        }
        if let Some(node) = members.get("identities") {
            for node in self.list(node, "`identities`", IDENTITIES_MOST) {
                self.identity(node);
            }
        }
    }

    /// Tags are given to a caller by whoever signs the policy, and by nobody else.
    fn identity(&mut self, node: &Node) {
        let Some(members) = self.map(node, "an identity", &["subject", "tags"]) else { return };
        let subject = self.needed(&members, "subject", node.at);
        let Some(subject) = subject.and_then(|node| Some((node, self.text(node, "a subject")?)))
        else {
            return;
        };
        let Some(tags) = self.needed(&members, "tags", node.at) else { return };
        let Some(tags) = self.values(tags, Field::Tag, parsed::<Label>) else { return };
        match subject.1.parse::<Name>() {
            Ok(name) if !self.file.identities.contains_key(&name) => {
                self.file.identities.insert(name, tags);
            }
            Ok(name) => {
                let what = format!("`{name}` is there twice");
                self.fault(subject.0.at, what, "write all of its tags in one place");
            }
            Err(error) => {
                let what = format!("`{}` is not a subject: {error}", shown(subject.1));
                self.fault(subject.0.at, what, "write it as `hotcell runs` shows it");
            }
        }
    }

    fn extension(&mut self, node: &Node) -> Option<String> {
        let text = self.text(node, "the name of a file")?;
        let path = format!("/{text}");
        let is_plain = Glob::exactly(text).as_str() == path && Glob::parse(&path).is_ok();
        if text.ends_with(".ts") && is_plain {
            return Some(text.to_owned());
        }
        let what = format!("`{}` is not the name of an extension", shown(text));
        self.fault(node.at, what, "write a relative path that ends in `.ts`");
        None
    }

    fn redact(&mut self, node: &Node) -> Option<Redact> {
        let Kind::Map(_) = node.kind else {
            let prefix = self.text(node, "the beginning of a secret")?;
            if prefix.chars().count() < 3 {
                self.fault(node.at, "this would hide ordinary text", "write at least 3 characters");
            }
            return Some(Redact::Prefix(prefix.to_owned()));
        };
        let members = self.map(node, "a pattern of secrets", &["regex"])?;
        let node = self.needed(&members, "regex", node.at)?;
        let pattern = self.text(node, "a regular expression")?;
        match Expression::compile(pattern) {
            Ok(expression) if expression.compiled().is_match(b"") => {
                self.fault(
                    node.at,
                    "this matches nothing at all",
                    "write what a secret looks like",
                );
                None
            }
            Ok(expression) => Some(Redact::Regex(expression)),
            Err(why) => {
                self.fault(
                    node.at,
                    format!("the pattern cannot be used: {}", shown(&why)),
                    "correct it",
                );
                None
            }
        }
    }

    fn rule(&mut self, node: &Node) -> Option<Rule> {
        let known =
            ["name", "match", "action", "except", "when", "constraints", "reason", "examples"];
        let members = self.map(node, "a rule", &known)?;
        let before = self.faults.len();
        let name = self.needed(&members, "name", node.at).and_then(|node| self.name(node));
        let matching =
            self.needed(&members, "match", node.at).and_then(|node| self.condition(node));
        let decision = self.needed(&members, "action", node.at).and_then(|node| self.action(node));
        let except = match members.get("except") {
            Some(node) => self.except(node, matching.as_ref()),
            None => Vec::new(),
        };
        let reason = members.get("reason").and_then(|node| self.reason(node));
        let constraints = members.get("constraints").map(|node| self.constraints(node, decision));
        let (constraints, token_required) = constraints.unwrap_or_default();
        let tools =
            matching.as_ref().map(|matching| self.tools_of(matching, members.contains_key("when")));
        let when = members.get("when").and_then(|node| self.when(node, &tools.unwrap_or_default()));
        if self.faults.len() > before {
            return None;
        }
        let (name, decision) = (name?, decision?);
        let reason = reason.unwrap_or_else(|| match decision {
            Decision::Allow => format!("the rule `{name}` allows it"),
            Decision::Review => format!("the rule `{name}` asks for somebody to agree"),
            Decision::Deny => format!("the rule `{name}` denies it"),
        });
        let matching = match decision {
            Decision::Allow => matching?,
            Decision::Review | Decision::Deny => matching?.and_below(),
        };
        let rule = Rule {
            name: name.into(),
            decision,
            matching,
            except: except.into_iter().map(Condition::and_below).collect(),
            when,
            constraints,
            token_required,
            reason: reason.into(),
            at: node.at,
            text: self.source(node).into(),
        };
        if let Some(examples) = members.get("examples") {
            self.examples(examples, &rule);
        }
        Some(rule)
    }

    /// The lines of a rule, as they stand in the file. No line is kept twice: a file may be one line.
    fn source(&mut self, node: &Node) -> String {
        if node.at.line <= self.shown {
            return String::new();
        }
        self.shown = last_line(node);
        self.lines.get(node.at.line - 1..self.shown).unwrap_or_default().join("\n")
    }

    fn name(&mut self, node: &Node) -> Option<String> {
        let text = self.text(node, "a name")?;
        let is_plain =
            |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, b'-' | b'_' | b'.');
        if text.len() <= NAME_MOST && text.bytes().all(is_plain) {
            return Some(text.to_owned());
        }
        let fix = format!("write lowercase letters, digits, `-`, `_` and `.`, at most {NAME_MOST}");
        self.fault(node.at, format!("`{}` is not a name", shown(text)), fix);
        None
    }

    fn reason(&mut self, node: &Node) -> Option<String> {
        let text = self.text(node, "a reason")?;
        if text.chars().count() > REASON_MOST || text.contains(char::is_control) {
            let fix = format!("write one line of at most {REASON_MOST} characters");
            self.fault(node.at, "the reason is too long", fix);
            return None;
        }
        Some(text.to_owned())
    }

    fn action(&mut self, node: &Node) -> Option<Decision> {
        let known = ["allow", "deny", "require_review"];
        match self.text(node, "an action")? {
            "allow" => Some(Decision::Allow),
            "deny" => Some(Decision::Deny),
            "require_review" => Some(Decision::Review),
            other => {
                let what = format!("`{}` is not an action", shown(other));
                self.fault(node.at, what, instead(other, &known));
                None
            }
        }
    }

    fn except(&mut self, node: &Node, matching: Option<&Condition>) -> Vec<Condition> {
        let mut items = Vec::new();
        for node in self.list(node, "`except`", VALUES_MOST) {
            let Some(item) = self.condition(node) else { continue };
            if item == Condition::default() {
                let fix = "name what is exempt, or leave the rule out";
                self.fault(node.at, "this exempts everything", fix);
            }
            if Some(&item) == matching {
                let what = "this item of `except` is the same as `match`: the rule never speaks";
                self.file.warnings.push(Warning { at: node.at, what: what.into() });
            }
            items.push(item);
        }
        items
    }

    fn condition(&mut self, node: &Node) -> Option<Condition> {
        let known = Field::ALL.map(Field::name);
        let members = self.map(node, "a condition", &known)?;
        let before = self.faults.len();
        let mut condition = Condition::default();
        for (name, node) in members {
            let Some(field) = Field::ALL.into_iter().find(|field| field.name() == name) else {
                continue;
            };
            match field {
                Field::Operation => {
                    condition.operation = self.values(node, field, parsed::<ToolName>)
                }
                Field::Tool => condition.tool = self.values(node, field, parsed::<ToolName>),
                Field::Path => condition.path = self.values(node, field, parsed::<Glob>),
                Field::Host => condition.host = self.values(node, field, parsed::<HostPattern>),
                Field::Tag => condition.tag = self.values(node, field, parsed::<Label>),
                Field::Method => condition.method = self.values(node, field, |t| word(t, &METHODS)),
                Field::State => condition.state = self.values(node, field, |t| word(t, &STATES)),
                Field::Mode => condition.mode = self.values(node, field, |t| word(t, &MODES)),
                Field::Door => condition.door = self.values(node, field, door),
                Field::Effect => condition.effect = self.values(node, field, effect),
            }
        }
        (self.faults.len() == before).then_some(condition)
    }

    /// One value, or a list of them.
    fn values<T>(
        &mut self,
        node: &Node,
        field: Field,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Option<Vec<T>> {
        let nodes = match &node.kind {
            Kind::List(_) => self.list(node, &format!("`{field}`"), VALUES_MOST),
            _ => std::slice::from_ref(node),
        };
        if nodes.is_empty() {
            match field {
                Field::Path => {
                    let what = "this list of paths is empty: the condition never holds".to_owned();
                    self.file.warnings.push(Warning { at: node.at, what });
                }
                _ => self.fault(
                    node.at,
                    format!("`{field}` is empty"),
                    "write values, or leave it out",
                ),
            }
        }
        let mut values = Vec::with_capacity(nodes.len());
        for node in nodes {
            let Some(text) = self.text(node, &format!("a value of `{field}`")) else { continue };
            match parse(text) {
                Ok(value) => values.push(value),
                Err(why) => {
                    self.fault(
                        node.at,
                        format!("`{}` cannot be a value of `{field}`", shown(text)),
                        why,
                    );
                }
            }
        }
        Some(values)
    }

    fn constraints(&mut self, node: &Node, decision: Option<Decision>) -> (Constraints, bool) {
        let known = [
            "sandbox",
            "max_file_size",
            "token",
            "memory",
            "timeout",
            "cpu",
            "processes",
            "disk",
            "output",
        ];
        let mut constraints = Constraints::default();
        let mut token_required = false;
        let Some(members) = self.map(node, "a list of constraints", &known) else {
            return (constraints, false);
        };
        if decision == Some(Decision::Deny) && !members.is_empty() {
            self.fault(node.at, "a deny has nothing to constrain", "leave `constraints` out");
        }
        for (name, node) in members {
            match name {
                "sandbox" => constraints.sandbox = self.quantity(node).map(|t: Template| t.name),
                "max_file_size" => constraints.max_file_size = self.quantity(node),
                "memory" => constraints.memory = self.quantity(node),
                "timeout" => constraints.timeout = self.quantity(node),
                "cpu" => constraints.cpu = self.quantity(node),
                "processes" => constraints.processes = self.quantity(node),
                "disk" => constraints.disk = self.quantity(node),
                "output" => constraints.output = self.quantity(node),
                _ => {
                    token_required = true;
                    if self.text(node, "`required`").is_some_and(|text| text != "required") {
                        self.fault(
                            node.at,
                            "a token is `required` or not",
                            "write `required`, or leave it out",
                        );
                    }
                    if decision.is_some_and(|decision| decision != Decision::Allow) {
                        let fix = "write it in a rule that allows";
                        self.fault(node.at, "a token gives what a rule allows", fix);
                    }
                }
            }
        }
        (constraints, token_required)
    }

    fn quantity<T: FromStr<Err: std::fmt::Display>>(&mut self, node: &Node) -> Option<T> {
        let text = self.text(node, "a quantity")?;
        match text.parse() {
            Ok(quantity) => Some(quantity),
            Err(error) => {
                let error = error.to_string();
                let (what, fix) = error.split_once(": ").unwrap_or((&error, "correct it"));
                self.fault(node.at, what, fix);
                None
            }
        }
    }

    /// The tools that a condition names, or whose operation it does.
    fn tools_of(&self, matching: &Condition, is_needed: bool) -> Vec<Arc<Registered>> {
        if !is_needed || (matching.tool.is_none() && matching.operation.is_none()) {
            return Vec::new();
        }
        let names = |list: &Option<Vec<ToolName>>, name: &ToolName| {
            list.as_ref().is_none_or(|list| list.contains(name))
        };
        let fits = |tool: &Registered| {
            names(&matching.tool, &tool.tool().name)
                && names(&matching.operation, tool.tool().operation())
        };
        let all = self.all_tools.get_or_init(|| self.tools.list(None, None));
        let tools = all.iter().map(|listed| &listed.tool).filter(|tool| fits(tool));
        tools.map(Arc::clone).collect()
    }

    fn when(&mut self, node: &Node, tools: &[Arc<Registered>]) -> Option<When> {
        let text = self.text(node, "a condition")?;
        match When::parse(text, tools) {
            Ok(when) => Some(when),
            Err(bad) => {
                match self.exact(node) {
                    Some(at) => self.fault(at.right(bad.at), bad.what, bad.fix),
                    None => {
                        let what = format!("{} (character {})", bad.what, bad.at + 1);
                        self.fault(node.at, what, bad.fix);
                    }
                }
                None
            }
        }
    }

    /// Where a text begins, if the file has it as it is.
    fn exact(&self, node: &Node) -> Option<At> {
        let Kind::Text(Text { text, begins, .. }) = &node.kind else { return None };
        let at = (*begins)?;
        let mut written = self.lines.get(at.line - 1)?.chars().skip(at.column - 1);
        text.chars().all(|c| written.next() == Some(c)).then_some(at)
    }

    fn needed<'n>(&mut self, members: &Members<'n>, name: &str, at: At) -> Option<&'n Node> {
        let found = members.get(name).copied();
        if found.is_none() {
            self.fault(at, format!("`{name}` is missing"), "write it");
        }
        found
    }

    /// The members of a map, of which all are known.
    fn map<'n>(&mut self, node: &'n Node, what: &str, known: &[&str]) -> Option<Members<'n>> {
        let Kind::Map(members) = &node.kind else {
            let fix = format!(
                "write {}",
                known.iter().map(|k| format!("`{k}: …`")).collect::<Vec<_>>().join(", ")
            );
            self.fault(node.at, format!("this should be {what}"), fix);
            return None;
        };
        for (Key { at, text }, _) in members {
            if !known.contains(&text.as_str()) {
                let fix = match meant(text, known.iter().copied()) {
                    Some(word) => format!("did you mean `{word}`?"),
                    None => format!("{what} has {}", known.join(", ")),
                };
                self.fault(*at, format!("`{}` is not known", shown(text)), fix);
            }
        }
        let known = members.iter().filter(|(key, _)| known.contains(&key.text.as_str()));
        Some(known.map(|(key, node)| (key.text.as_str(), node)).collect())
    }

    fn list<'n>(&mut self, node: &'n Node, what: &str, most: usize) -> &'n [Node] {
        match &node.kind {
            Kind::List(items) if items.len() <= most => items,
            Kind::List(items) => {
                self.fault(
                    node.at,
                    format!("{what} has {} items", items.len()),
                    format!("at most {most}"),
                );
                &[]
            }
            _ => {
                self.fault(node.at, format!("{what} is not a list"), "write `- ` before each item");
                &[]
            }
        }
    }

    fn text<'n>(&mut self, node: &'n Node, what: &str) -> Option<&'n str> {
        if let Kind::Text(text) = &node.kind
            && !matches!(text.value(), serde_json::Value::Null | serde_json::Value::Bool(_))
            && !text.text.is_empty()
        {
            return Some(&text.text);
        }
        let found = match &node.kind {
            Kind::Text(text) if node.is_nothing() || text.text.is_empty() => "nothing".into(),
            Kind::Text(text) => format!("`{}`", shown(&text.text)),
            Kind::List(_) => "a list".into(),
            Kind::Map(_) => "a map".into(),
        };
        self.fault(node.at, format!("{found} is not {what}"), "write text, in quotes if need be");
        None
    }
}

fn last_line(node: &Node) -> usize {
    match &node.kind {
        Kind::Text(text) => node.at.line + text.text.matches('\n').count(),
        Kind::List(items) => items.last().map_or(node.at.line, last_line),
        Kind::Map(members) => members.last().map_or(node.at.line, |(_, node)| last_line(node)),
    }
}

fn parsed<T: FromStr<Err: std::fmt::Display>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|error: T::Err| error.to_string())
}

fn word(text: &str, known: &'static [&'static str]) -> Result<&'static str, String> {
    known.iter().find(|word| **word == text).copied().ok_or_else(|| instead(text, known))
}

pub(crate) fn door(text: &str) -> Result<Door, String> {
    let known = Door::ALL.map(Door::name);
    Door::ALL.into_iter().find(|door| door.name() == text).ok_or_else(|| instead(text, &known))
}

pub(crate) fn effect(text: &str) -> Result<Effect, String> {
    let known = Effect::ALL.map(Effect::name);
    Effect::ALL
        .into_iter()
        .find(|effect| effect.name() == text)
        .ok_or_else(|| instead(text, &known))
}
