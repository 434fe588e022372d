//! docs/tools.md is what the tools say of themselves, and they are the one source of it.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use hotcell_request::Tool;
use hotcell_tools::{BuiltIn, built_in};
use serde_json::Value;

#[test]
fn the_reference_is_what_the_tools_say() {
    let mut text = String::from(
        "# The built-in tools\n\nMade from the tools by the tests (`UPDATE_DOCS=1 cargo test -p \
         hotcell-tools`); do not edit. What a tool can say of itself is in \
         [tool.schema.json](tool.schema.json).\n\n\
         Arguments that name a path are relative to the workspace's root.\n",
    );
    let mut all: Vec<(String, Tool, BuiltIn)> = built_in()
        .into_iter()
        .map(|built| (built.tool().unwrap(), built))
        .map(|(tool, built)| (tool.category.as_ref().unwrap().to_string(), tool, built))
        .collect();
    // Stable, and they are sorted by name.
    all.sort_by(|one, two| one.0.cmp(&two.0));
    let mut last = "";
    for (category, tool, built) in &all {
        if category != last {
            write!(text, "\n## {category}\n").unwrap();
            last = category;
        }
        section(&mut text, tool, built);
    }
    same_as_file("docs/tools.md", &text);
}

fn section(text: &mut String, tool: &Tool, built: &BuiltIn) {
    let where_it_runs = match built {
        BuiltIn::Pure(_) => "Carried out in hotcell itself",
        BuiltIn::Tree(_) => "Carried out in hotcell itself, by reading the workspace",
        BuiltIn::Sandboxed(_) => "Carried out in a sandbox",
        BuiltIn::Environment(_) => "Carried out in hotcell itself, which keeps environments",
        BuiltIn::Stay(_) => "Carried out in hotcell itself, which keeps sandboxes",
        BuiltIn::Web(_) => "Carried out in hotcell itself, which judges each connection",
        BuiltIn::Absent(_) => "Not carried out by a call",
    };
    let effects: Vec<&str> = tool.effects.iter().map(|effect| effect.name()).collect();
    write!(text, "\n### {}\n\n{}\n\n", tool.name, tool.description.as_str()).unwrap();
    write!(text, "Effects: {}. {where_it_runs}", effects.join(", ")).unwrap();
    if tool.operation().to_string() != tool.name.to_string() {
        write!(text, ". A policy calls it `{}`", tool.operation()).unwrap();
    }
    text.push_str(".\n");
    let properties = tool.input.get("properties").and_then(Value::as_object);
    if let Some(properties) = properties.filter(|properties| !properties.is_empty()) {
        text.push_str("\n| argument | type | default | |\n|---|---|---|---|\n");
        let required = tool.input["required"].as_array().cloned().unwrap_or_default();
        for (name, schema) in properties {
            let default = match schema.get("default") {
                Some(default) => format!("`{default}`"),
                None if required.contains(&Value::from(name.as_str())) => "needed".into(),
                None => "none".into(),
            };
            let about = schema.get("description").and_then(Value::as_str).unwrap_or_default();
            let kind = kind(&tool.input, schema);
            writeln!(text, "| `{name}` | {kind} | {default} | {} |", about.replace('\n', " "))
                .unwrap();
        }
    }
    let example = &tool.examples[0];
    write!(text, "\n```json\n{}\n{}\n```\n", example.input, example.output).unwrap();
}

/// The type of an argument, in words.
fn kind(root: &Value, schema: &Value) -> String {
    if let Some(target) = schema.get("$ref").and_then(Value::as_str) {
        return kind(root, root.pointer(target.trim_start_matches('#')).unwrap());
    }
    if let Some(mark) = schema.get("x-hotcell").and_then(Value::as_str) {
        return mark.into();
    }
    if let Some(choices) = schema.get("enum").and_then(Value::as_array) {
        return choices.iter().map(|c| format!("`{c}`")).collect::<Vec<_>>().join(", ");
    }
    if let Some(forms) = schema.get("anyOf").and_then(Value::as_array) {
        return forms.iter().map(|form| kind(root, form)).collect::<Vec<_>>().join(" or ");
    }
    match schema.get("type") {
        Some(Value::String(name)) if name == "array" => {
            format!("array of {}", kind(root, &schema["items"]))
        }
        Some(Value::String(name)) => name.clone(),
        Some(Value::Array(names)) => {
            let names = names.iter().filter_map(Value::as_str).filter(|name| *name != "null");
            names.collect::<Vec<_>>().join(" or ")
        }
        _ => "any".into(),
    }
}

fn same_as_file(path: &str, text: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(file, text).unwrap();
        return;
    }
    let expected = fs::read_to_string(&file).unwrap_or_default();
    assert!(text == expected, "{path} differs; UPDATE_DOCS=1 rewrites it");
}
