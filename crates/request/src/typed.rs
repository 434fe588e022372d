//! Tools that are Rust functions: arguments and result have types, and the schemas follow from them.

use hotcell_types::Effect;
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::fault::Fault;
use crate::name::{ToolName, Version};
use crate::tool::{Retry, Tool};

/// A tool that is a function. `#[tool]` makes one.
pub trait TypedTool: Send + Sync {
    /// What is written above the function. It costs nothing to ask for.
    fn spec(&self) -> Spec;

    /// What it says of itself, with the schemas that follow from its types.
    fn tool(&self) -> Result<Tool, Fault>;

    /// Carries out a call, whose arguments have been checked against the tool's schema.
    fn call(&self, arguments: Value) -> Result<Value, ToolError>;
}

/// Why a tool could not do it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{what}: {why}")]
pub struct ToolError {
    pub what: String,
    pub why: String,
    pub fix: String,
}

impl ToolError {
    pub fn new(
        what: impl Into<String>,
        why: impl Into<String>,
        fix: impl Into<String>,
    ) -> ToolError {
        ToolError { what: what.into(), why: why.into(), fix: fix.into() }
    }
}

/// What is written in `#[tool(...)]`, as text.
#[derive(Debug, Clone, Copy)]
pub struct Spec {
    pub name: &'static str,
    pub version: &'static str,
    pub description: &'static str,
    pub effects: &'static [Effect],
    pub title: Option<&'static str>,
    pub category: Option<&'static str>,
    pub operation: Option<&'static str>,
    pub template: Option<&'static str>,
    pub timeout: Option<&'static str>,
    pub memory: Option<&'static str>,
    /// How many attempts, and how long to wait before the second.
    pub retry: Option<(u8, &'static str)>,
    pub tags: &'static [&'static str],
    pub hosts: &'static [&'static str],
    pub paths: &'static [&'static str],
    pub varies: &'static [&'static str],
}

impl Spec {
    pub fn name_and_version(&self) -> Result<(ToolName, Version), Fault> {
        Ok((read("/name", self.name)?, read("/version", self.version)?))
    }

    /// The tool that a function of these types is.
    pub fn tool_of<I, O>(&self, _: fn(I) -> Result<O, ToolError>) -> Result<Tool, Fault>
    where
        I: DeserializeOwned + JsonSchema,
        O: Serialize + JsonSchema,
    {
        let (name, version) = self.name_and_version()?;
        let description = read("/description", self.description)?;
        let effects = self.effects.iter().copied().collect();
        let mut tool = Tool::new(name, version, description, schema_of::<I>(), effects);
        tool.output = schema_of::<O>();
        tool.title = self.title.map(|text| read("/title", text)).transpose()?;
        tool.category = self.category.map(|text| read("/category", text)).transpose()?;
        tool.operation = self.operation.map(|text| read("/operation", text)).transpose()?;
        tool.template =
            self.template.map(|text| read("/template", text)).transpose()?.unwrap_or_default();
        tool.limits.timeout = self.timeout.map(|text| read("/limits/timeout", text)).transpose()?;
        tool.limits.memory = self.memory.map(|text| read("/limits/memory", text)).transpose()?;
        tool.retry = self.retry.map(retry).transpose()?;
        tool.tags = all("/tags", self.tags)?;
        tool.permissions.hosts = all("/permissions/hosts", self.hosts)?;
        tool.permissions.paths = all("/permissions/paths", self.paths)?;
        tool.varies = all("/varies", self.varies)?;
        Ok(tool)
    }
}

fn retry((attempts, wait): (u8, &str)) -> Result<Retry, Fault> {
    Ok(Retry { attempts, wait: read("/retry/wait", wait)? })
}

/// Carries out a call: arguments in, the function, its result out.
pub fn typed_call<I, O>(
    function: fn(I) -> Result<O, ToolError>,
    arguments: Value,
) -> Result<Value, ToolError>
where
    I: DeserializeOwned,
    O: Serialize,
{
    // What serde says would show values, and some are secret.
    let input = serde_json::from_value(arguments).map_err(|_| {
        let why = "they are not of the type that the function takes";
        ToolError::new("the arguments cannot be read", why, "send them as the tool's schema says")
    })?;
    serde_json::to_value(function(input)?).map_err(|_| {
        let why = "it has something that JSON does not have";
        ToolError::new("the result cannot be written", why, "report it: the tool is broken")
    })
}

/// One schema for what goes in and one for what comes out, each as it is on the wire.
fn schema_of<T: JsonSchema>() -> Value {
    SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<T>().to_value()
}

fn read<T>(at: &str, text: &str) -> Result<T, Fault>
where
    T: std::str::FromStr<Err: std::fmt::Display>,
{
    text.parse().map_err(|error: T::Err| {
        Fault::new(at, error.to_string(), "`#[tool]` says so", "change it there")
    })
}

fn all<T>(at: &str, texts: &[&str]) -> Result<Vec<T>, Fault>
where
    T: std::str::FromStr<Err: std::fmt::Display>,
{
    texts.iter().enumerate().map(|(index, text)| read(&format!("{at}/{index}"), text)).collect()
}
