//! The tool standard: everything that a tool says of itself, in one document. It is what people approve,
//! models read, the policy judges and the sandbox enforces. Its JSON Schema is docs/tool.schema.json.

use std::num::{NonZeroU16, NonZeroU32};
use std::str::FromStr;
use std::sync::LazyLock;
use std::time::Duration;

use hotcell_types::{Bytes, Effect, Effects, Limits, Span, Template, UnknownTemplate};
use schemars::{JsonSchema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::fault::Fault;
use crate::json::{self, Bounds};
use crate::name::{ToolName, Version};
use crate::schema::Schema;
use crate::text::{Description, Label, Title, as_text, hidden_in, shown, shows_itself};
use crate::{place, units};

/// What a tool says of itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Tool {
    /// The name it is called by, such as `fs.read`; of an imported one with its namespace before it.
    pub name: ToolName,
    pub version: Version,
    /// A few words, for lists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<Title>,
    /// What it does, for whoever decides to use it.
    pub description: Description,
    /// The JSON Schema of its arguments, which are an object. `"x-hotcell"` beside a property's type says
    /// that it is a `path`, `host`, `method`, `url` or `secret`.
    #[schemars(schema_with = "object_schema")]
    pub input: Value,
    /// The JSON Schema of its result; without it, the result can be anything.
    #[serde(default = "anything", skip_serializing_if = "is_anything")]
    #[schemars(schema_with = "schema_schema")]
    pub output: Value,
    /// What it may do to the world.
    #[schemars(schema_with = "effects_schema")]
    pub effects: Effects,
    /// What a policy calls it; by default its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<ToolName>,
    #[serde(default, skip_serializing_if = "Permissions::is_empty")]
    pub permissions: Permissions,
    #[serde(default, skip_serializing_if = "Overrides::is_empty")]
    pub limits: Overrides,
    /// How often it can be called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
    /// How many calls of it run at a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<NonZeroU16>,
    /// The template of its sandbox.
    #[serde(default, skip_serializing_if = "TemplateName::is_usual")]
    pub template: TemplateName,
    #[serde(default, skip_serializing_if = "Cache::is_never")]
    pub cache: Cache,
    /// How a call that failed is tried again. Only for tools that change nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<Retry>,
    /// What of its result differs from call to call though nothing else does: a time, an id. JSON pointers,
    /// of which the empty one is all of it. A replay does not compare what is there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = Tool::PLACES_MOST))]
    pub varies: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = Tool::EXAMPLES_MOST))]
    pub examples: Vec<Example>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = Tool::TAGS_MOST))]
    pub tags: Vec<Label>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub category: Option<Label>,
}

/// What a tool asks for. What it gets is for the policy to say.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Permissions {
    /// Hosts it reaches.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = Tool::PLACES_MOST))]
    pub hosts: Vec<HostPattern>,
    /// Files it uses, relative to the workspace.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = Tool::PLACES_MOST))]
    pub paths: Vec<PathPattern>,
    /// How much it keeps between calls.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "units::option")]
    #[schemars(schema_with = "units::bytes_schema")]
    pub storage: Option<Bytes>,
}

/// Limits in place of those of the template.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Overrides {
    #[serde(default, skip_serializing_if = "Option::is_none", with = "units::option")]
    #[schemars(schema_with = "units::span_schema")]
    pub timeout: Option<Span>,
    #[serde(default, skip_serializing_if = "Option::is_none", with = "units::option")]
    #[schemars(schema_with = "units::bytes_schema")]
    pub memory: Option<Bytes>,
    /// Bytes kept of its output.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "units::option")]
    #[schemars(schema_with = "units::bytes_schema")]
    pub output: Option<Bytes>,
}

/// So many calls in so much time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Rate {
    pub count: NonZeroU32,
    #[serde(with = "units")]
    #[schemars(schema_with = "units::span_schema")]
    pub per: Span,
}

/// Attempts after one that failed, each after twice the wait of the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Retry {
    /// How often it is tried at most, the first time included.
    #[schemars(range(min = 2, max = Retry::ATTEMPTS_MOST))]
    pub attempts: u8,
    /// How long to wait before the second attempt: at most 10 seconds.
    #[serde(with = "units")]
    #[schemars(schema_with = "units::span_schema")]
    pub wait: Span,
}

/// Whether a result is used again.
///
/// A kept result stands for calls of one tenant, of one tool down to the last word of what it says of
/// itself, with the same arguments. Where a tool reads something, the rule names its inputs: arguments that
/// are marked as paths. What a call has there are its declared inputs, in the spelling that a policy
/// judges: each a file of the workspace, or a directory with everything in it. Their content belongs to
/// what the result stands for, and so does that there is nothing. A file that a tool always reads is
/// an argument with a default. What a result depends on besides can be as old as it.
// [`Call::cache_inputs`](crate::Call::cache_inputs) has them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Cache {
    #[default]
    Never,
    /// For so long, and as long as its inputs stay as they are.
    Keep {
        #[serde(rename = "for", with = "units")]
        #[schemars(schema_with = "units::span_schema")]
        span: Span,
        /// The arguments that name what the result is read from: files and directories of the workspace.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        #[schemars(length(max = Tool::PLACES_MOST))]
        inputs: Vec<String>,
    },
}

/// Arguments, and what the tool answers to them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Example {
    #[schemars(schema_with = "object_schema")]
    pub input: Value,
    pub output: Value,
}

impl Tool {
    pub const EXAMPLES_MOST: usize = 16;
    pub const TAGS_MOST: usize = 16;
    /// Most hosts, and most paths, of one list.
    pub const PLACES_MOST: usize = 64;
    /// Longest JSON pointer, in bytes.
    pub const POINTER_MOST: usize = 256;

    /// A tool with nothing but what every tool has.
    pub fn new(
        name: ToolName,
        version: Version,
        description: Description,
        input: Value,
        effects: Effects,
    ) -> Tool {
        Tool {
            name,
            version,
            title: None,
            description,
            input,
            output: anything(),
            effects,
            operation: None,
            permissions: Permissions::default(),
            limits: Overrides::default(),
            rate: None,
            concurrency: None,
            template: TemplateName::default(),
            cache: Cache::Never,
            retry: None,
            varies: Vec::new(),
            examples: Vec::new(),
            tags: Vec::new(),
            category: None,
        }
    }

    /// Reads a tool from JSON. Every fault has its place.
    pub fn from_json(bytes: &[u8]) -> Result<Tool, Vec<Fault>> {
        let value = json::parse(bytes, &Bounds::TOOL).map_err(|fault| vec![fault])?;
        if let Some(fault) = hidden_in(&value) {
            return Err(vec![fault]);
        }
        crate::read_as(&STANDARD, value)
    }

    /// The JSON Schema of this document.
    pub fn standard() -> Value {
        schemars::schema_for!(Tool).to_value()
    }

    /// The limits of its template, with its own in their place.
    pub fn limits(&self) -> Limits {
        let limits = self.template.0.limits;
        Limits {
            timeout: self.limits.timeout.unwrap_or(limits.timeout),
            memory: self.limits.memory.unwrap_or(limits.memory),
            output: self.limits.output.unwrap_or(limits.output),
            ..limits
        }
    }

    /// What a policy calls it.
    pub fn operation(&self) -> &ToolName {
        self.operation.as_ref().unwrap_or(&self.name)
    }

    /// Everything that it says of itself, as one document. Its schemas, which are most of that, are moved
    /// and not copied; [`Tool::put_schemas`] puts them back.
    pub(crate) fn take_surface(&mut self) -> Result<Value, serde_json::Error> {
        let output = std::mem::replace(&mut self.output, anything());
        let schemas = [("input", self.input.take()), ("output", output)];
        let mut surface = serde_json::to_value(&*self)?;
        if let Some(members) = surface.as_object_mut() {
            let said = schemas.into_iter().filter(|(_, schema)| !is_anything(schema));
            members.extend(said.map(|(which, schema)| (which.into(), schema)));
        }
        Ok(surface)
    }

    pub(crate) fn put_schemas(&mut self, mut surface: Value) {
        for (which, schema) in [("input", &mut self.input), ("output", &mut self.output)] {
            if let Some(said) = surface.get_mut(which) {
                *schema = said.take();
            }
        }
    }

    /// Whether what it says of itself fits together.
    pub(crate) fn check(&self) -> Vec<Fault> {
        let mut faults = Vec::new();
        let mut refuse = |when: bool, at: &str, what: String, why: &str, fix: &str| {
            if when {
                faults.push(Fault::new(at, what, why, fix));
            }
        };
        let changes = self.effects.can_change_something();
        let has = |effect| self.effects.has(effect);
        refuse(
            self.retry.is_some() && changes,
            "/retry",
            "a tool that can change something is tried again".into(),
            "it could do twice what was asked for once",
            "leave `retry` out",
        );
        refuse(
            self.retry.is_some_and(|retry| !(2..=Retry::ATTEMPTS_MOST).contains(&retry.attempts)),
            "/retry/attempts",
            "this is not how often it can be tried".into(),
            "once is without `retry`, and everything has a most",
            &format!("from 2 to {}", Retry::ATTEMPTS_MOST),
        );
        refuse(
            self.retry.is_some_and(|retry| retry.wait > Retry::WAIT_MOST),
            "/retry/wait",
            "it waits too long before it tries again".into(),
            "somebody waits for the answer",
            &format!("at most {}", Retry::WAIT_MOST),
        );
        refuse(
            !self.cache.is_never() && (has(Effect::Write) || has(Effect::Execute)),
            "/cache",
            "the results of a tool that writes or executes are kept".into(),
            "a kept result does not do anything",
            "leave `cache` out",
        );
        refuse(
            !self.permissions.hosts.is_empty() && !has(Effect::Network),
            "/permissions/hosts",
            "a tool without the effect `network` asks for hosts".into(),
            "who approves it reads the effects",
            "add `network` to `effects`",
        );
        refuse(
            !self.permissions.paths.is_empty() && has(Effect::Pure),
            "/permissions/paths",
            "a pure tool asks for files".into(),
            "who approves it reads the effects",
            "add `read` or `write` to `effects`",
        );
        refuse(
            self.operation.as_ref().is_some_and(|o| o.namespace() != self.name.namespace()),
            "/operation",
            format!("the operation `{}` is in another namespace than the tool", self.operation()),
            "an imported tool would be judged as if it were another",
            "give the operation the namespace of the tool",
        );
        let is_pointer =
            |at: &String| (at.is_empty() || at.starts_with('/')) && at.len() <= Tool::POINTER_MOST;
        refuse(
            !self.varies.iter().all(is_pointer),
            "/varies",
            "there is something that is not a place in the result".into(),
            "a JSON pointer is empty or begins with `/`, and everything has a most",
            "write it as `/created/at`",
        );
        for (at, count, most) in [
            ("/examples", self.examples.len(), Tool::EXAMPLES_MOST),
            ("/tags", self.tags.len(), Tool::TAGS_MOST),
            ("/permissions/hosts", self.permissions.hosts.len(), Tool::PLACES_MOST),
            ("/permissions/paths", self.permissions.paths.len(), Tool::PLACES_MOST),
            ("/varies", self.varies.len(), Tool::PLACES_MOST),
            ("/cache/keep/inputs", self.cache.inputs().len(), Tool::PLACES_MOST),
        ] {
            let fix = format!("at most {most}");
            refuse(
                count > most,
                at,
                format!("{count} are too many"),
                "everything has a most",
                &fix,
            );
        }
        faults
    }
}

static STANDARD: LazyLock<Result<Schema, Fault>> = LazyLock::new(|| Schema::new(&Tool::standard()));

impl Permissions {
    fn is_empty(&self) -> bool {
        *self == Permissions::default()
    }
}

impl Overrides {
    fn is_empty(&self) -> bool {
        *self == Overrides::default()
    }
}

impl Retry {
    pub const ATTEMPTS_MOST: u8 = 5;
    /// Most time before the second attempt.
    pub const WAIT_MOST: Span = Span::seconds(10);

    /// How long to wait before each further attempt.
    pub fn waits(self) -> impl Iterator<Item = Duration> {
        let first = self.wait.min(Retry::WAIT_MOST).duration();
        let further = u32::from(self.attempts.min(Retry::ATTEMPTS_MOST)).saturating_sub(1);
        (0..further).map(move |doubled| first * (1 << doubled))
    }
}

impl Cache {
    pub fn is_never(&self) -> bool {
        *self == Cache::Never
    }

    /// The names of the arguments.
    pub(crate) fn inputs(&self) -> &[String] {
        match self {
            Cache::Never => &[],
            Cache::Keep { inputs, .. } => inputs,
        }
    }
}

fn anything() -> Value {
    Value::Bool(true)
}

fn is_anything(schema: &Value) -> bool {
    *schema == anything()
}

fn schema_schema(_: &mut SchemaGenerator) -> schemars::Schema {
    json_schema!({ "type": ["object", "boolean"] })
}

fn object_schema(_: &mut SchemaGenerator) -> schemars::Schema {
    json_schema!({ "type": "object" })
}

fn effects_schema(_: &mut SchemaGenerator) -> schemars::Schema {
    let names = Effect::ALL.map(Effect::name);
    json_schema!({ "type": "array", "items": { "enum": names }, "minItems": 1, "uniqueItems": true })
}

/// A host, or `*.` and the domain of hosts.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct HostPattern(String);

/// A path below the workspace's root, in which `*` and `**` stand for anything.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PathPattern(String);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{shown}` cannot be asked for: {why}")]
pub struct BadPattern {
    shown: String,
    why: String,
}

impl HostPattern {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl PathPattern {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for HostPattern {
    type Err = BadPattern;

    fn from_str(text: &str) -> Result<HostPattern, BadPattern> {
        let (star, name) = match text.strip_prefix("*.") {
            Some(domain) => ("*.", domain),
            None => ("", text),
        };
        let host = place::host(name).map_err(|why| bad_pattern(text, &why))?;
        Ok(HostPattern(format!("{star}{host}")))
    }
}

impl FromStr for PathPattern {
    type Err = BadPattern;

    fn from_str(text: &str) -> Result<PathPattern, BadPattern> {
        place::path(text).map(PathPattern).map_err(|why| bad_pattern(text, &why))
    }
}

fn bad_pattern(text: &str, why: &place::BadPlace) -> BadPattern {
    BadPattern { shown: shown(text, 80), why: why.to_string() }
}

shows_itself!(HostPattern, PathPattern);
as_text!(HostPattern, BadPattern, {
    "type": "string",
    "maxLength": 255,
    "pattern": r"^(\*\.)?([A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+\])(:[1-9][0-9]{0,4})?$"
});
as_text!(PathPattern, BadPattern, { "type": "string", "minLength": 1, "maxLength": 4095 });

/// A template that there is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TemplateName(Template);

impl TemplateName {
    /// What tools run in unless they say otherwise.
    const USUAL: &str = "tool";

    pub fn template(&self) -> &Template {
        &self.0
    }

    fn is_usual(&self) -> bool {
        self.0.name == TemplateName::USUAL
    }
}

impl Default for TemplateName {
    fn default() -> TemplateName {
        TemplateName::USUAL.parse().unwrap_or(TemplateName(Template::DEFAULT))
    }
}

impl FromStr for TemplateName {
    type Err = UnknownTemplate;

    fn from_str(name: &str) -> Result<TemplateName, UnknownTemplate> {
        name.parse().map(TemplateName)
    }
}

impl std::fmt::Display for TemplateName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0.name)
    }
}

as_text!(TemplateName, UnknownTemplate, { "enum": Template::BUILT_IN.map(|t| t.name) });
