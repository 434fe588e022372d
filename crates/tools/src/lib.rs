//! The tools that every hotcell has. Each says what it is in the tool standard, and is carried out in one
//! of seven ways: as a function of its arguments ([`TypedTool`]), on a held tree of the host
//! ([`TreeTool`]), as a program in a sandbox ([`SandboxedTool`]), by the engine, which keeps environments
//! ([`EnvironmentTool`]) and sandboxes ([`StayTool`]) or has a network of its own ([`WebTool`]), or not at
//! all yet ([`Absent`]).
//!
//! Nothing here starts a program, writes a file or decides whether a call may happen: a sandboxed tool
//! turns arguments into a [`Plan`] and what became of it into an answer; the rest is for whoever runs it.
//!
//! ```
//! use hotcell_tools::{BuiltIn, built_in};
//! use serde_json::json;
//!
//! let tools = built_in();
//! let add = tools.iter().find(|tool| tool.spec().name == "add");
//! let Some(BuiltIn::Pure(add)) = add else { panic!("there is no `add`") };
//! assert_eq!(add.call(json!({"a": 1, "b": 2})).unwrap(), 3);
//! ```

mod absent;
pub mod change;
pub mod connect;
pub mod environment;
mod number;
mod path;
pub mod policy;
mod pure;
mod sandboxed;
mod spec;
pub mod stay;
mod tree;
pub mod web;

use std::fmt;

use hotcell_request::{Fault, Spec, Tool, TypedTool};

pub use absent::Absent;
pub use environment::EnvironmentTool;
pub use path::NotUsed;
pub use sandboxed::{
    Attached, Changed, Changes, Plan, Program, Ran, SandboxedTool, Source, Way, exec, run,
};
pub use stay::StayTool;
pub use tree::{Deadline, TreeTool};
pub use web::WebTool;

/// A tool, by the way it is carried out.
pub enum BuiltIn {
    /// In this process, from its arguments alone; the clock is the one thing besides that some look at.
    Pure(Box<dyn TypedTool>),
    /// In this process, by reading a held tree.
    Tree(Box<dyn TreeTool>),
    /// By a program in a sandbox.
    Sandboxed(Box<dyn SandboxedTool>),
    /// By the engine, which keeps environments.
    Environment(EnvironmentTool),
    /// By the engine, which keeps sandboxes.
    Stay(StayTool),
    /// By the engine, which judges each connection.
    Web(WebTool),
    /// Not yet: a call of it is answered with why.
    Absent(Absent),
}

impl BuiltIn {
    /// What it says of itself in words. It costs nothing to ask for.
    pub fn spec(&self) -> Spec {
        match self {
            BuiltIn::Pure(tool) => tool.spec(),
            BuiltIn::Tree(tool) => *tool.spec(),
            BuiltIn::Sandboxed(tool) => *tool.spec(),
            BuiltIn::Environment(tool) => *tool.spec(),
            BuiltIn::Stay(tool) => *tool.spec(),
            BuiltIn::Web(tool) => *tool.spec(),
            BuiltIn::Absent(tool) => *tool.spec(),
        }
    }

    /// What it says of itself, with its schemas and examples, which are made each time.
    pub fn tool(&self) -> Result<Tool, Fault> {
        match self {
            BuiltIn::Pure(tool) => tool.tool(),
            BuiltIn::Tree(tool) => tool.tool(),
            BuiltIn::Sandboxed(tool) => tool.tool(),
            BuiltIn::Environment(tool) => tool.tool(),
            BuiltIn::Stay(tool) => tool.tool(),
            BuiltIn::Web(tool) => tool.tool(),
            BuiltIn::Absent(tool) => tool.tool(),
        }
    }
}

impl fmt::Debug for BuiltIn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self {
            BuiltIn::Pure(_) => "Pure",
            BuiltIn::Tree(_) => "Tree",
            BuiltIn::Sandboxed(_) => "Sandboxed",
            BuiltIn::Environment(_) => "Environment",
            BuiltIn::Stay(_) => "Stay",
            BuiltIn::Web(_) => "Web",
            BuiltIn::Absent(_) => "Absent",
        };
        f.debug_tuple(kind).field(&self.spec().name).finish()
    }
}

/// All of them, by name.
pub fn built_in() -> Vec<BuiltIn> {
    let ways = [
        pure::tools(),
        tree::tools(),
        sandboxed::tools(),
        environment::tools(),
        stay::tools(),
        web::tools(),
        absent::tools(),
    ];
    let mut all: Vec<BuiltIn> = ways.into_iter().flatten().collect();
    all.sort_by_cached_key(|tool| tool.spec().name);
    all
}
