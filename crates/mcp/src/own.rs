//! The tools that this door has beside those of the engine: code in a sandbox, what it made, and calls that
//! wait; and the three that stand for many.

use std::sync::Arc;

use hotcell_api::{Ask, Code, Manner, Problem, ProblemKind};
use hotcell_types::{Effect, Effects};
use rmcp::ErrorData;
use rmcp::model::{
    CallToolResponse, CallToolResult, ContentBlock, JsonObject, ResourceContents, Tool,
};
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::catalog::{Catalog, annotations, described, output_of};
use crate::found::Found;
use crate::names::{of_client, to_client};
use crate::result::{error_of, refused};
use crate::server::{Asked, Server};
use crate::{approval, call, page, resources};

pub(crate) const RUN_CODE: &str = "run_code";
pub(crate) const READ_ARTIFACT: &str = "read_artifact";
pub(crate) const AWAIT_APPROVAL: &str = "await_approval";
pub(crate) const SEARCH_TOOLS: &str = "search_tools";
pub(crate) const DESCRIBE_TOOL: &str = "describe_tool";
pub(crate) const CALL_TOOL: &str = "call_tool";

/// Nothing else is listed under these.
pub(crate) const NAMES: [&str; 6] =
    [RUN_CODE, READ_ARTIFACT, AWAIT_APPROVAL, SEARCH_TOOLS, DESCRIBE_TOOL, CALL_TOOL];

/// Most tools that a search tells.
const FOUND_MOST: usize = 20;

/// Which part of an artifact.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ReadArtifact {
    /// Its `artifact://` address, or its id alone.
    uri: String,
    /// The first byte that is wanted.
    #[serde(default)]
    from: u64,
    /// How many bytes: at most 65536.
    #[serde(default)]
    #[schemars(range(min = 1, max = 65536))]
    length: Option<u64>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct AwaitApproval {
    /// What a call that waits was answered with.
    item: String,
    /// How long to wait: at most 300.
    #[serde(default)]
    #[schemars(range(min = 0, max = 300))]
    seconds: Option<u64>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SearchTools {
    /// What the tool is to do, in a few words. Without it, all tools are told by name.
    #[serde(default)]
    query: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct DescribeTool {
    name: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct CallTool {
    name: String,
    /// As the tool's input schema says.
    #[serde(default)]
    arguments: JsonObject,
}

/// Those that are listed for somebody.
pub(crate) fn tools(catalog: &Catalog) -> Vec<Tool> {
    let mut tools = Vec::new();
    if let Some(run) = catalog.run.as_ref().filter(|_| catalog.rights.run) {
        let what = "Runs code (python, javascript, shell) or a command in a sandbox, in an empty directory with \
                    the given files. It sees nothing of the host, and has no network unless `network` is true: \
                    then it reaches the hosts that the policy allows, through the proxy that its variables name. \
                    What it prints and the files it makes are the answer; images are shown, everything else is \
                    an artifact:// link.";
        let mut tool = new::<Code>(RUN_CODE, "Run code in a sandbox", what, &[Effect::Execute]);
        tool.output_schema = output_of(run);
        tools.push(tool);
    }
    if catalog.rights.artifacts {
        let what = "Reads what a call was given or made, by its artifact:// address, in parts if it is large.";
        tools.push(new::<ReadArtifact>(READ_ARTIFACT, "Read an artifact", what, &[Effect::Read]));
    }
    let what = "Waits for a person to answer a call that needs approval, and gives the call's result once \
                it is approved. It approves nothing itself.";
    let effects = [Effect::Read, Effect::Write, Effect::Execute];
    tools.push(new::<AwaitApproval>(AWAIT_APPROVAL, "Wait for an approval", what, &effects));
    if catalog.is_wide {
        let what = format!(
            "Finds tools by what they do. There are {}: search, then describe, then call.",
            catalog.tools.len()
        );
        tools.push(new::<SearchTools>(SEARCH_TOOLS, "Search tools", &what, &[Effect::Read]));
        let what = "Tells everything of a tool: what it does, its input and output schema.";
        tools.push(new::<DescribeTool>(DESCRIBE_TOOL, "Describe a tool", what, &[Effect::Read]));
        let what = "Calls a tool by its name. The policy decides on it as on any other call.";
        let effects = [Effect::Read, Effect::Write, Effect::Execute, Effect::Network];
        tools.push(new::<CallTool>(CALL_TOOL, "Call a tool", what, &effects));
    }
    tools
}

fn new<A: JsonSchema>(name: &'static str, title: &str, what: &str, effects: &[Effect]) -> Tool {
    let effects: Effects = effects.iter().copied().collect();
    let schema = SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<A>();
    let mut schema = schema.to_value().as_object().cloned().unwrap_or_default();
    schema.remove("description");
    schema.remove("title");
    Tool::new(name, what.to_owned(), Arc::new(schema))
        .with_title(title)
        .with_annotations(annotations(effects))
}

/// Carries out a call of whatever is called so.
pub(crate) async fn carry_out(
    server: &Server,
    asked: &Asked,
    name: &str,
    arguments: JsonObject,
) -> Result<CallToolResponse, ErrorData> {
    match name {
        RUN_CODE => match read::<Code>(arguments) {
            Ok(code) => {
                let manner = Manner {
                    ask: server.options().ask,
                    token: asked.token.clone(),
                    ..Manner::default()
                };
                let ask = Ask::Run { run: Box::new(code), manner };
                call::carry_out(server, asked, ask).await
            }
            Err(problem) => Ok(refused(&problem).into()),
        },
        READ_ARTIFACT => said(read_artifact(server, arguments).await),
        AWAIT_APPROVAL => match read::<AwaitApproval>(arguments) {
            Ok(wait) => approval::come_back(server, asked, wait.item, wait.seconds).await,
            Err(problem) => Ok(refused(&problem).into()),
        },
        SEARCH_TOOLS => said(search(server, arguments).await),
        DESCRIBE_TOOL => said(describe(server, arguments).await),
        CALL_TOOL => match read::<CallTool>(arguments) {
            // One of ours is called by its own name: it would be called by itself otherwise.
            Ok(inner) if NAMES.contains(&inner.name.as_str()) => {
                let fix = format!("call `{}` itself", inner.name);
                let what = "this is not one of the tools that can be called so";
                Ok(refused(&Problem::new(ProblemKind::Invalid, what, "", fix)).into())
            }
            Ok(inner) => tool(server, asked, &inner.name, inner.arguments).await,
            Err(problem) => Ok(refused(&problem).into()),
        },
        name => tool(server, asked, name, arguments).await,
    }
}

/// A tool of the engine. What is not there is an error of the protocol; everything else is for the policy.
async fn tool(
    server: &Server,
    asked: &Asked,
    name: &str,
    arguments: JsonObject,
) -> Result<CallToolResponse, ErrorData> {
    let tool = find(server, name).await.map_err(|problem| page::error(&problem))?;
    let mut request = json!({
        "tool": tool.name.to_string(),
        "arguments": arguments,
        "ask": server.options().ask,
    });
    if let (Some(token), Some(request)) = (&asked.token, request.as_object_mut()) {
        request.insert("token".into(), token.clone().into());
    }
    call::carry_out(server, asked, Ask::Call { request }).await
}

async fn find(server: &Server, name: &str) -> Result<hotcell_request::Tool, Problem> {
    let named = of_client(name).ok_or_else(|| unknown(name))?.to_string();
    match server.gate().look(Ask::Tool { name: named }).await {
        Ok(Found::Tool(tool)) => Ok(tool.tool),
        Ok(_) => Err(unknown(name)),
        Err(problem) if problem.kind == ProblemKind::NotFound => Err(unknown(name)),
        Err(problem) => Err(problem),
    }
}

fn unknown(name: &str) -> Problem {
    let shown: String = name.chars().take(80).collect();
    let what = format!("there is no tool `{}`", shown.escape_debug());
    let (why, fix) = ("nothing of that name is registered", "look at the list of tools");
    Problem::new(ProblemKind::Invalid, what, why, fix)
}

async fn read_artifact(server: &Server, arguments: JsonObject) -> Result<CallToolResult, Problem> {
    /// What a model can take in at once.
    const MOST: u64 = 64 << 10;
    let ReadArtifact { uri, from, length } = read(arguments)?;
    let artifact = uri.strip_prefix(resources::SCHEME).unwrap_or(&uri).to_owned();
    let length = length.unwrap_or(MOST).min(MOST);
    let part = resources::Part { artifact, from, length };
    let contents = resources::content(server.gate(), &part).await?;
    let mut blocks = Vec::new();
    if let Some(next) = contents.next {
        let text = format!(
            "bytes {from} to {} of {}; the next are at {next}",
            contents.end, contents.size
        );
        blocks.push(ContentBlock::text(text));
    }
    blocks.push(match contents.contents {
        ResourceContents::TextResourceContents { text, .. } => ContentBlock::text(text),
        other => ContentBlock::resource(other),
    });
    Ok(CallToolResult::success(blocks))
}

async fn search(server: &Server, arguments: JsonObject) -> Result<CallToolResult, Problem> {
    let SearchTools { query } = read(arguments)?;
    let is_all = query.is_none();
    let found = Catalog::of(server.gate(), server.options(), query).await?;
    let most = if is_all { usize::MAX } else { FOUND_MOST };
    let line = |tool: &hotcell_request::Tool| {
        let description = tool.description.to_string();
        let first = description.lines().next().unwrap_or_default().to_owned();
        json!({ "name": to_client(&tool.name), "description": first })
    };
    let tools: Vec<Value> = found.tools.values().take(most).map(line).collect();
    let more = found.tools.len().saturating_sub(tools.len());
    Ok(CallToolResult::structured(json!({ "tools": tools, "more": more })))
}

async fn describe(server: &Server, arguments: JsonObject) -> Result<CallToolResult, Problem> {
    let DescribeTool { name } = read(arguments)?;
    let tool = find(server, &name).await?;
    // What somebody can never use is not there for them.
    let known = Catalog::of(server.gate(), server.options(), None).await?;
    let tool = known.tools.get(&tool.name.to_string()).ok_or_else(|| unknown(&name))?;
    let described = serde_json::to_value(described(tool)).unwrap_or_default();
    Ok(CallToolResult::structured(described))
}

fn said(result: Result<CallToolResult, Problem>) -> Result<CallToolResponse, ErrorData> {
    Ok(result.unwrap_or_else(|problem| refused(&problem)).into())
}

/// Arguments of one of these tools.
fn read<A: DeserializeOwned>(arguments: JsonObject) -> Result<A, Problem> {
    serde_json::from_value(Value::Object(arguments)).map_err(|error| {
        let fix = "send them as the tool's input schema says";
        error_of(ProblemKind::Invalid, "the arguments cannot be read", &error, fix)
    })
}
