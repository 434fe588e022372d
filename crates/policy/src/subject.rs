//! What conditions are asked about: a call and the facts that it is judged by, or an example of a rule.

use std::cell::OnceCell;

use hotcell_request::{Call, Label, ToolName, Value};
use hotcell_types::{Caller, Effects};
use smallvec::SmallVec;

use crate::Facts;

/// Few calls have more than one path, and hardly any more than four.
pub(crate) type Places<'a> = SmallVec<[&'a str; 4]>;

#[derive(Debug)]
pub(crate) struct Subject<'a> {
    pub(crate) operation: &'a ToolName,
    pub(crate) tool: &'a ToolName,
    pub(crate) effects: Effects,
    pub(crate) caller: &'a Caller,
    pub(crate) args: &'a Value,
    pub(crate) paths: Places<'a>,
    pub(crate) hosts: Places<'a>,
    pub(crate) methods: Places<'a>,
    pub(crate) tags: &'a [Label],
    pub(crate) state: Option<&'a str>,
    pub(crate) mode: Option<&'a str>,
    /// Names of tools and operations of others, which are not text as they are.
    pub(crate) texts: [OnceCell<String>; 2],
}

impl<'a> Subject<'a> {
    pub(crate) fn new(call: &'a Call, facts: &'a Facts) -> Subject<'a> {
        Subject {
            operation: call.operation(),
            tool: call.name(),
            effects: call.effects(),
            caller: call.caller(),
            args: call.args(),
            paths: call.each_path().collect(),
            hosts: call.each_host().collect(),
            methods: call.each_method().collect(),
            tags: &facts.tags,
            state: facts.state.as_deref(),
            mode: facts.mode.as_deref(),
            texts: Default::default(),
        }
    }

    pub(crate) fn tool_text(&self) -> &str {
        let [tool, _] = &self.texts;
        text(self.tool, tool)
    }

    pub(crate) fn operation_text(&self) -> &str {
        let [_, operation] = &self.texts;
        text(self.operation, operation)
    }
}

fn text<'a>(name: &'a ToolName, kept: &'a OnceCell<String>) -> &'a str {
    match name.namespace() {
        None => name.bare(),
        Some(_) => kept.get_or_init(|| name.to_string()),
    }
}
