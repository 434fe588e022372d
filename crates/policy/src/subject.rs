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
    /// It stands for requests that nobody sees: what goes through a tunnel could have any method and any path. What
    /// of them its arguments do not say is unknown, and not nothing.
    pub(crate) is_blind: bool,
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
            is_blind: is_blind(call),
            texts: Default::default(),
        }
    }

    /// The name of a field of the arguments, if what is in it is unknown.
    pub(crate) fn unseen(&self, name: &str) -> Option<&'static str> {
        let known = UNSEEN.into_iter().filter(|_| self.is_blind).find(|known| *known == name);
        known.filter(|known| is_open(self.args, known))
    }

    /// Whether its method is unknown.
    pub(crate) fn has_unseen_method(&self) -> bool {
        self.is_blind && self.methods.is_empty()
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

/// The operation that connections are judged as, and what of a request it may leave open.
const CONNECT: &str = "net.connect";
const UNSEEN: [&str; 2] = ["method", "path"];

fn is_blind(call: &Call) -> bool {
    let operation = call.operation();
    let is_connect = operation.namespace().is_none() && operation.bare() == CONNECT;
    is_connect && UNSEEN.into_iter().any(|name| is_open(call.args(), name))
}

fn is_open(args: &Value, name: &str) -> bool {
    args.get(name).is_none_or(Value::is_null)
}

fn text<'a>(name: &'a ToolName, kept: &'a OnceCell<String>) -> &'a str {
    match name.namespace() {
        None => name.bare(),
        Some(_) => kept.get_or_init(|| name.to_string()),
    }
}
