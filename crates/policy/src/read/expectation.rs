//! A test file: calls, what is so when they are made, and what the policy has to say of them. As strict as
//! a rule file.

use hotcell_request::{Label, ToolName, Tools, Value};
use hotcell_types::{Decision, Door, Name};

use super::{MODES, Reader, STATES, VALUES_MOST, door, parsed, word};
use crate::condition::Field;
use crate::fault::{At, FAULTS_MOST, Fault, instead, shown};
use crate::yaml::{self, Node};

/// Most tests of one file.
pub const TESTS_MOST: usize = 10_000;

/// One call, and what is expected of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Expectation {
    pub at: At,
    pub call: ToolName,
    pub args: Value,
    /// Besides those that the policy gives to the subject.
    pub tags: Vec<Label>,
    pub state: Option<String>,
    pub mode: Option<String>,
    pub door: Option<Door>,
    pub subject: Option<Name>,
    /// Whether it comes with a token that is for it.
    pub token: bool,
    pub expect: Decision,
    /// The rules that have to speak, and no others, in any order.
    pub rules: Option<Vec<String>>,
}

/// Reads a test file.
pub fn expectations(text: &[u8]) -> Result<Vec<Expectation>, Vec<Fault>> {
    let tree = yaml::parse(text).map_err(|fault| vec![fault])?;
    let tools = Tools::default();
    let mut reader = Reader::new("", &tools);
    let mut all = Vec::new();
    match &tree {
        Some(root) => reader.expectations(root, &mut all),
        None => reader.fault(At::BEGIN, "`tests` is missing", "write `tests:` and a list"),
    }
    if reader.faults.is_empty() {
        return Ok(all);
    }
    reader.faults.sort_by_key(|fault| fault.at);
    reader.faults.truncate(FAULTS_MOST);
    Err(reader.faults)
}

impl Reader<'_> {
    fn expectations(&mut self, root: &Node, all: &mut Vec<Expectation>) {
        let Some(members) = self.map(root, "a test file", &["tests"]) else { return };
        let Some(tests) = self.needed(&members, "tests", root.at) else { return };
        for node in self.list(tests, "`tests`", TESTS_MOST) {
            all.extend(self.expectation(node));
        }
    }

    fn expectation(&mut self, node: &Node) -> Option<Expectation> {
        let known = [
            "call", "args", "tags", "state", "mode", "door", "subject", "token", "expect", "rules",
        ];
        let members = self.map(node, "a test", &known)?;
        let before = self.faults.len();
        let call = self.needed(&members, "call", node.at);
        let call = call.and_then(|node| self.one(node, "the name of a tool", parsed::<ToolName>));
        let expect = self.needed(&members, "expect", node.at);
        let expect = expect.and_then(|node| self.one(node, "a decision", decision));
        let mut one = |name: &str, what: &str, known: &'static [&'static str]| {
            members.get(name).and_then(|node| self.one(node, what, |text| word(text, known)))
        };
        let state = one("state", "a state", &STATES).map(str::to_owned);
        let mode = one("mode", "a mode", &MODES).map(str::to_owned);
        let token = one("token", "`valid` or `none`", &["valid", "none"]) == Some("valid");
        let door = members.get("door").and_then(|node| self.one(node, "a door", door));
        let subject = members.get("subject");
        let subject = subject.and_then(|node| self.one(node, "a subject", parsed::<Name>));
        let tags = members.get("tags");
        let tags = tags.and_then(|node| self.values(node, Field::Tag, parsed::<Label>));
        let rules = members.get("rules").map(|node| {
            let nodes = self.list(node, "`rules`", VALUES_MOST);
            nodes.iter().filter_map(|node| self.name(node)).collect()
        });
        let args = members
            .get("args")
            .map_or_else(|| Value::Object(Default::default()), |node| node.value());
        if self.faults.len() > before {
            return None;
        }
        let (call, expect, tags) = (call?, expect?, tags.unwrap_or_default());
        let at = node.at;
        Some(Expectation { at, call, args, tags, state, mode, door, subject, token, expect, rules })
    }

    fn one<T>(
        &mut self,
        node: &Node,
        what: &str,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Option<T> {
        let text = self.text(node, what)?;
        let parsed = parse(text);
        if let Err(why) = &parsed {
            self.fault(node.at, format!("`{}` is not {what}", shown(text)), why.clone());
        }
        parsed.ok()
    }
}

fn decision(text: &str) -> Result<Decision, String> {
    match text {
        "allow" => Ok(Decision::Allow),
        "deny" => Ok(Decision::Deny),
        "review" => Ok(Decision::Review),
        other => Err(instead(other, &["allow", "deny", "review"])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_says_what_is_so_and_what_is_expected() {
        let text = "tests:\n  - { call: add, expect: deny }\n  - call: fs.write\n    args: { path: a, \
                    text: \"1\" }\n    tags: [agent]\n    state: validating\n    mode: strict\n    \
                    door: mcp\n    subject: bob\n    token: valid\n    expect: review\n    rules: [one]\n";
        let all = expectations(text.as_bytes()).unwrap();
        assert_eq!((all[0].at, all[0].expect), (At { line: 2, column: 5 }, Decision::Deny));
        let Expectation { args, tags, state, door, token, rules, .. } = &all[1];
        assert_eq!(*args, serde_json::json!({"path": "a", "text": "1"}));
        assert_eq!((tags.len(), state.as_deref(), *token), (1, Some("validating"), true));
        assert_eq!((*door, rules.as_deref()), (Some(Door::Mcp), Some(&["one".to_owned()][..])));
    }

    #[test]
    fn what_is_not_known_or_missing_is_told_with_its_place() {
        for (text, expected) in [
            ("", "line 1, column 1: `tests` is missing: write `tests:` and a list"),
            ("rules: []", "line 1, column 1: `rules` is not known: a test file has tests"),
            ("tests:\n  - { expect: allow }", "line 2, column 5: `call` is missing: write it"),
            ("tests:\n  - { call: add }", "line 2, column 5: `expect` is missing: write it"),
            (
                "tests:\n  - { call: add, expect: alow }",
                "line 2, column 26: `alow` is not a decision: did you mean `allow`?",
            ),
            (
                "tests:\n  - { call: add, expect: allow, sate: idle }",
                "line 2, column 33: `sate` is not known: did you mean `state`?",
            ),
            (
                "tests:\n  - { call: add, expect: allow, token: stolen }",
                "line 2, column 40: `stolen` is not `valid` or `none`: write one of valid, none",
            ),
        ] {
            let faults = expectations(text.as_bytes()).unwrap_err();
            assert!(faults.iter().any(|fault| fault.to_string() == expected), "{text}: {faults:?}");
        }
    }
}
