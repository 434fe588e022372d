//! Examples of a rule: calls that it is about and calls that it is not, asked when the file is read.

use hotcell_request::{Label, ToolName, Value};
use hotcell_types::{Caller, Effects, Name};

use super::{METHODS, MODES, Reader, STATES, VALUES_MOST, door, effect, parsed, word};
use crate::condition::Field;
use crate::rule::{Answer, Rule};
use crate::subject::Subject;
use crate::yaml::Node;
use hotcell_glob::{Glob, HostPattern};
use hotcell_types::Door;

/// A call as an example names it. What is left out is what the rule asks for, or nothing.
struct Example {
    operation: ToolName,
    tool: ToolName,
    paths: Vec<String>,
    hosts: Vec<String>,
    methods: Vec<&'static str>,
    tags: Vec<Label>,
    state: Option<&'static str>,
    mode: Option<&'static str>,
    caller: Caller,
    effects: Effects,
    args: Value,
}

impl Reader<'_> {
    pub(super) fn examples(&mut self, node: &Node, rule: &Rule) {
        let Some(members) = self.map(node, "a list of examples", &["match", "no_match"]) else {
            return;
        };
        for (kind, node) in members {
            for node in self.list(node, &format!("`{kind}`"), VALUES_MOST) {
                let Some(example) = self.example(node, rule) else { continue };
                let answer = example.ask(rule);
                let speaks = answer == Answer::Speaks;
                if speaks != (kind == "match") {
                    let what = match answer {
                        Answer::Speaks => "the rule is about this call".to_owned(),
                        Answer::Unmet(field) => {
                            format!("the rule is not about this call: `{field}` does not hold")
                        }
                        Answer::Excepted(item) => {
                            format!(
                                "the rule is not about this call: item {} of `except` holds",
                                item + 1
                            )
                        }
                        Answer::Not => {
                            "the rule is not about this call: `when` is false".to_owned()
                        }
                        Answer::Unseen(what) => {
                            format!("the rule is not about this call: nobody sees its {what}")
                        }
                        Answer::Failed(wrong) => {
                            format!("`when` has no value for this call: {wrong}")
                        }
                    };
                    self.fault(node.at, what, "correct the rule or the example");
                }
            }
        }
    }

    fn example(&mut self, node: &Node, rule: &Rule) -> Option<Example> {
        let mut known = Field::ALL.map(Field::name).to_vec();
        known.push("args");
        let members = self.map(node, "an example", &known)?;
        let before = self.faults.len();
        let first = |list: &Option<Vec<ToolName>>| list.as_ref()?.first().cloned();
        let mut operation = first(&rule.matching.operation);
        let mut tool = first(&rule.matching.tool);
        let (mut paths, mut hosts, mut methods, mut tags) = (vec![], vec![], vec![], vec![]);
        let (mut state, mut mode, mut doors, mut effects) = (vec![], vec![], vec![], vec![]);
        let mut args = Value::Object(Default::default());
        for (name, node) in members {
            let Some(field) = Field::ALL.into_iter().find(|field| field.name() == name) else {
                args = node.value();
                continue;
            };
            let one =
                |values: Option<Vec<ToolName>>| values.and_then(|values| values.into_iter().next());
            match field {
                Field::Operation => operation = one(self.values(node, field, parsed)),
                Field::Tool => tool = one(self.values(node, field, parsed)),
                Field::Path => paths = self.values(node, field, path).unwrap_or_default(),
                Field::Host => hosts = self.values(node, field, host).unwrap_or_default(),
                Field::Method => {
                    methods = self.values(node, field, |t| word(t, &METHODS)).unwrap_or_default();
                }
                Field::Tag => tags = self.values(node, field, parsed).unwrap_or_default(),
                Field::State => {
                    state = self.values(node, field, |t| word(t, &STATES)).unwrap_or_default()
                }
                Field::Mode => {
                    mode = self.values(node, field, |t| word(t, &MODES)).unwrap_or_default()
                }
                Field::Door => doors = self.values(node, field, door).unwrap_or_default(),
                Field::Effect => effects = self.values(node, field, effect).unwrap_or_default(),
            }
        }
        let any = || "example".parse::<ToolName>().ok();
        let operation = operation.or_else(|| tool.clone()).or_else(any)?;
        let tool = tool.unwrap_or_else(|| operation.clone());
        let caller = Caller::local(Name::LOCAL, doors.first().copied().unwrap_or(Door::Cli));
        let (state, mode) = (state.first().copied(), mode.first().copied());
        let effects = effects.into_iter().collect();
        let example = Example {
            operation,
            tool,
            paths,
            hosts,
            methods,
            tags,
            state,
            mode,
            caller,
            effects,
            args,
        };
        (self.faults.len() == before).then_some(example)
    }
}

impl Example {
    fn ask(&self, rule: &Rule) -> Answer {
        rule.ask(&Subject {
            operation: &self.operation,
            tool: &self.tool,
            effects: self.effects,
            caller: &self.caller,
            args: &self.args,
            paths: self.paths.iter().map(String::as_str).collect(),
            hosts: self.hosts.iter().map(String::as_str).collect(),
            methods: self.methods.iter().copied().collect(),
            tags: &self.tags,
            state: self.state,
            mode: self.mode,
            // What an example leaves out is nothing.
            is_blind: false,
            texts: Default::default(),
        })
    }
}

/// A path as calls have it.
fn path(text: &str) -> Result<String, String> {
    match text == "." || Glob::parse(Glob::exactly(text).as_str()).is_ok() {
        true => Ok(text.to_owned()),
        false => Err("write it relative to the workspace's root, without `.` and `..`".into()),
    }
}

/// A host as calls have it.
fn host(text: &str) -> Result<String, String> {
    match HostPattern::parse(text) {
        Ok(_) if !text.contains('*') => Ok(text.to_owned()),
        Ok(_) => Err("write one host".into()),
        Err(why) => Err(why.to_string()),
    }
}
