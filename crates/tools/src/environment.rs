//! Keeping environments: packages that are installed once, in a sandbox, and that runs name. What is done is
//! the engine's affair.

use hotcell_request::{Effect, Fault, Spec, Tool, ToolError};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::BuiltIn;
use crate::sandboxed::run::LimitWords;
use crate::spec::{read, spec, tool_of};

pub const CREATE: &str = "env.create";
pub const LIST: &str = "env.list";
pub const SHOW: &str = "env.show";
pub const REMOVE: &str = "env.remove";

/// Most packages that are asked for, and most characters of each.
const REQUIREMENTS_MOST: usize = 1000;
const REQUIREMENT_MOST: usize = 500;
/// Most characters of a name.
const NAME_MOST: usize = 64;

/// A tool about environments.
#[derive(Debug)]
pub struct EnvironmentTool {
    spec: &'static Spec,
    tool: fn() -> Result<Tool, Fault>,
    read: fn(Value) -> Result<Wanted, ToolError>,
}

/// What a call wants of it.
#[derive(Debug, Clone)]
pub enum Wanted {
    Create(Box<Create>),
    List,
    Show(String),
    Remove(String),
}

impl EnvironmentTool {
    pub fn spec(&self) -> &Spec {
        self.spec
    }

    pub fn tool(&self) -> Result<Tool, Fault> {
        (self.tool)()
    }

    /// What a call with these arguments wants, which have been checked by the tool's schema.
    pub fn wanted(&self, arguments: &Value) -> Result<Wanted, ToolError> {
        (self.read)(arguments.clone())
    }
}

pub(crate) fn tools() -> Vec<BuiltIn> {
    let tool = |spec, tool, read| BuiltIn::Environment(EnvironmentTool { spec, tool, read });
    vec![
        tool(&CREATE_SPEC, create, |args| Ok(Wanted::Create(Box::new(read(args)?)))),
        tool(&LIST_SPEC, list, |_| Ok(Wanted::List)),
        tool(&SHOW_SPEC, show, |args| Ok(Wanted::Show(read::<Named>(args)?.name))),
        tool(&REMOVE_SPEC, remove, |args| Ok(Wanted::Remove(read::<Named>(args)?.name))),
    ]
}

/// The arguments of `env.create`.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct Create {
    /// Lower-case letters and digits, with `.`, `_` and `-` between them.
    #[schemars(length(max = NAME_MOST))]
    pub name: String,
    /// Packages by name, with versions and markers, as lines of a `requirements.txt` have them. No options,
    /// paths or addresses: where packages come from is for the host's pip to say.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = REQUIREMENTS_MOST), inner(length(max = REQUIREMENT_MOST)))]
    pub python: Vec<String>,
    /// `python` is the interpreter alone; `data` is numpy, pandas and matplotlib. In place of `python`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preset: Option<Preset>,
    /// Have the name stand for this one, if it stands for another.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub replace: bool,
    /// Limits of the sandbox that installs the packages, in place of the usual ones. Its files live in its
    /// memory.
    #[serde(default, skip_serializing_if = "LimitWords::is_empty")]
    pub limits: LimitWords,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Preset {
    Python,
    Data,
}

impl Preset {
    pub fn name(self) -> &'static str {
        match self {
            Preset::Python => "python",
            Preset::Data => "data",
        }
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
struct Named {
    #[schemars(length(max = NAME_MOST))]
    name: String,
}

#[derive(Deserialize, JsonSchema)]
struct Nothing {}

/// What is known of an environment.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Environment {
    pub name: String,
    pub language: String,
    /// What it is known by: its content, and what that was made for.
    pub sha256: String,
    /// How its interpreter is called on the host.
    pub interpreter: String,
    pub interpreter_version: String,
    pub platform: String,
    /// What was asked for.
    pub requirements: Vec<String>,
    /// What was installed.
    pub packages: Vec<Package>,
    pub files: u64,
    pub bytes: u64,
    /// Nanoseconds since 1970.
    pub created_ns: i64,
    /// Whether its files are there. Those of a home that was restored from a copy are not.
    pub present: bool,
}

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Package {
    pub name: String,
    pub version: String,
}

/// The answer of `env.list`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Listed {
    /// By name.
    pub environments: Vec<Environment>,
}

/// The answer of `env.remove`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Removed {
    pub name: String,
    pub sha256: String,
    /// Whether its files are gone as well. They stay while another name or a run needs them.
    pub removed: bool,
}

static CREATE_SPEC: Spec = Spec {
    timeout: Some("30m"),
    template: Some("code-executor"),
    ..spec(
        CREATE,
        "env",
        &[Effect::Execute, Effect::Network],
        "Makes an environment: packages that runs can import. The host's pip downloads wheels, of which \
         nothing is executed there; a sandbox installs them, and what it made is kept read-only, under a name.",
    )
};

static LIST_SPEC: Spec = spec(LIST, "env", &[Effect::Read], "Lists environments by name.");

static SHOW_SPEC: Spec = spec(SHOW, "env", &[Effect::Read], "Tells what is in an environment.");

static REMOVE_SPEC: Spec = spec(
    REMOVE,
    "env",
    &[Effect::Write],
    "Takes the name of an environment away, and its files as soon as no other name and no run needs them.",
);

fn example() -> Value {
    json!({
        "name": "small",
        "language": "python",
        "sha256": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "interpreter": "/usr/bin/python3",
        "interpreter_version": "3.11.7",
        "platform": "cpython-311-linux-x86_64",
        "requirements": ["six==1.17.0"],
        "packages": [{"name": "six", "version": "1.17.0"}],
        "files": 7,
        "bytes": 81000,
        "created_ns": 1_700_000_000_000_000_000_i64,
        "present": true,
    })
}

fn create() -> Result<Tool, Fault> {
    let asked = json!({"name": "small", "python": ["six==1.17.0"]});
    tool_of::<Create, Environment>(&CREATE_SPEC, [(asked, example())])
}

fn list() -> Result<Tool, Fault> {
    tool_of::<Nothing, Listed>(&LIST_SPEC, [(json!({}), json!({"environments": [example()]}))])
}

fn show() -> Result<Tool, Fault> {
    tool_of::<Named, Environment>(&SHOW_SPEC, [(json!({"name": "small"}), example())])
}

fn remove() -> Result<Tool, Fault> {
    let removed = json!({"name": "small", "sha256": example().get("sha256"), "removed": true});
    tool_of::<Named, Removed>(&REMOVE_SPEC, [(json!({"name": "small"}), removed)])
}
