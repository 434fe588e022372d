//! The tools as a client sees them: those that the caller could use, or, where there are many, three tools by
//! which a model finds, reads and calls them.

use std::collections::BTreeMap;
use std::sync::Arc;

use hotcell_api::{Ask, Problem};
use hotcell_request as request;
use hotcell_types::{Effect, Effects};
use rmcp::model::{JsonObject, Tool, ToolAnnotations};
use serde_json::{Value, json};

use crate::found::Found;
use crate::gate::{Gate, Need, Room};
use crate::names::{NAME_MOST, to_client};
use crate::own;
use crate::server::Options;

/// Tools that `run_code` stands for: what goes along with a call of `run` is nothing that a client could send.
const STOOD_FOR: [&str; 2] = ["run", "code_execute"];
/// What no call can be made of.
const NOT_CALLED: [&str; 2] = ["fs.change", "net.connect"];

/// What somebody could use.
#[derive(Debug, Clone, Default)]
pub(crate) struct Catalog {
    /// By name.
    pub(crate) tools: BTreeMap<String, request::Tool>,
    /// The tool `run`, if the caller could use it.
    pub(crate) run: Option<request::Tool>,
    /// Whether there are too many to list, or some that cannot be listed.
    pub(crate) is_wide: bool,
    pub(crate) rights: Rights,
}

/// What somebody may have beside tools.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Rights {
    pub(crate) run: bool,
    pub(crate) artifacts: bool,
}

impl Catalog {
    pub(crate) async fn of(
        gate: &Gate,
        options: &Options,
        words: Option<String>,
    ) -> Result<Catalog, Problem> {
        let found = gate.look(Ask::Tools { words }).await?;
        Ok(Catalog::made(gate, options, found))
    }

    /// All of it, to see whether it is another.
    pub(crate) async fn watched(gate: &Gate, options: &Options) -> Result<Catalog, Problem> {
        let found = gate.look_from(Room::Watch, Ask::Tools { words: None }).await?;
        Ok(Catalog::made(gate, options, found))
    }

    fn made(gate: &Gate, options: &Options, found: Found) -> Catalog {
        let Found::Tools(known) = found else { return Catalog::default() };
        let rights = Rights { run: gate.may(Need::Run), artifacts: gate.may(Need::Artifacts) };
        let mut catalog = Catalog { rights, ..Catalog::default() };
        for listed in known.tools {
            let is_open = rights.run || !listed.tool.effects.has(Effect::Execute);
            if is_open && listed.enabled && is_usable(listed.outlook.as_deref(), options) {
                catalog.add(listed.tool);
            }
        }
        catalog.is_wide = options.search
            || catalog.tools.len() > options.many
            || !catalog.tools.values().all(fits);
        catalog
    }

    fn add(&mut self, tool: request::Tool) {
        let name = tool.name.to_string();
        if name == "run" {
            self.run = Some(tool.clone());
        }
        if [&STOOD_FOR, &NOT_CALLED].iter().any(|names| names.contains(&name.as_str())) {
            return;
        }
        let is_newer = |known: &request::Tool| known.version < tool.version;
        if self.tools.get(&name).is_none_or(is_newer) {
            self.tools.insert(name, tool);
        }
    }

    /// As they are listed, by name.
    pub(crate) fn listed(&self) -> Vec<Tool> {
        let mut tools = own::tools(self);
        if !self.is_wide {
            tools.extend(self.tools.values().map(described));
        }
        tools.sort_by(|one, other| one.name.cmp(&other.name));
        tools
    }

    /// What tells whether a list is another.
    pub(crate) fn fingerprint(&self) -> String {
        let names: Vec<String> = self
            .tools
            .values()
            .chain(&self.run)
            .map(|tool| format!("{}@{}", tool.name, tool.version))
            .collect();
        format!("{} {}", self.is_wide, names.join(" "))
    }
}

fn is_usable(outlook: Option<&str>, options: &Options) -> bool {
    match outlook {
        Some("never") => false,
        Some("unspoken") => options.ask,
        // Where there is no telling, the call tells what is wrong.
        _ => true,
    }
}

/// Whether a tool can be listed under a name that leads to it and to nothing else.
fn fits(tool: &request::Tool) -> bool {
    let name = to_client(&tool.name);
    name.len() <= NAME_MOST && !own::NAMES.contains(&name.as_str())
}

/// A tool in the words of the protocol.
pub(crate) fn described(tool: &request::Tool) -> Tool {
    let name = to_client(&tool.name);
    let mut described = Tool::new(name, tool.description.to_string(), schema(&tool.input))
        .with_annotations(annotations(tool.effects));
    described.title = tool.title.as_ref().map(ToString::to_string);
    described.output_schema = output_of(tool);
    described
}

/// The protocol knows schemas of objects only.
pub(crate) fn output_of(tool: &request::Tool) -> Option<Arc<JsonObject>> {
    let is_object = tool.output.get("type").and_then(Value::as_str) == Some("object");
    is_object.then(|| schema(&tool.output))
}

fn schema(schema: &Value) -> Arc<JsonObject> {
    let mut schema = schema.as_object().cloned().unwrap_or_default();
    schema.entry("type").or_insert_with(|| "object".into());
    let properties = schema.get_mut("properties").and_then(Value::as_object_mut);
    for property in properties.into_iter().flat_map(|all| all.values_mut()) {
        // Clients refuse the short forms of "anything" and "nothing", which mean the same.
        match property {
            Value::Bool(true) => *property = json!({}),
            Value::Bool(false) => *property = json!({ "not": {} }),
            _ => {}
        }
    }
    Arc::new(schema)
}

/// What a tool may do to the world. They are hints: what it can do is for the policy to say.
pub(crate) fn annotations(effects: Effects) -> ToolAnnotations {
    let changes = effects.can_change_something();
    ToolAnnotations::new()
        .read_only(!changes)
        .destructive(effects.has(Effect::Write))
        .idempotent(!changes)
        .open_world(effects.has(Effect::Network))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schema_is_one_of_an_object_whose_properties_are_objects() {
        let told =
            schema(&json!({ "properties": { "a": true, "b": false, "c": { "type": "null" } } }));
        let expected = json!({
            "type": "object",
            "properties": { "a": {}, "b": { "not": {} }, "c": { "type": "null" } },
        });
        assert_eq!(Value::Object(JsonObject::clone(&told)), expected);
    }

    #[test]
    fn annotations_follow_from_effects() {
        let told = |effects: &[Effect]| {
            let told = annotations(effects.iter().copied().collect());
            [told.read_only_hint, told.destructive_hint, told.idempotent_hint, told.open_world_hint]
                .map(Option::unwrap)
        };
        assert_eq!(told(&[]), [true, false, true, false]);
        assert_eq!(told(&[Effect::Read]), [true, false, true, false]);
        assert_eq!(told(&[Effect::Execute]), [false, false, false, false]);
        assert_eq!(told(&[Effect::Read, Effect::Write]), [false, true, false, false]);
        assert_eq!(told(&[Effect::Network]), [false, false, false, true]);
    }
}
