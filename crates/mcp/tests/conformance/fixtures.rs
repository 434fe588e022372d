//! What the conformance suite expects to find in a server: tools of the engine where they can be, and a layer
//! over the server for what no tool of hotcell does (sounds, samples, prompts).

use std::time::Duration;

use hotcell_engine::Engine;
use hotcell_mcp::Server;
use hotcell_request::{Effect, Tool as EngineTool, ToolError, TypedTool, tool};
use rmcp::model::*;
use rmcp::service::{NotificationContext, RequestContext, RoleServer, SubscriptionContext};
use rmcp::{ErrorData, ServerHandler};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::sleep;

/// One red pixel, and no sound at all.
const PNG: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg==";
const WAV: &str = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAIA+AAACABAAZGF0YQAAAAA=";
const STEP: Duration = Duration::from_millis(50);

#[derive(Deserialize, JsonSchema)]
struct Nothing {}

/// Answers with a text.
#[tool(name = "test_simple_text", version = "1.0.0", effects(pure))]
fn simple_text(_: Nothing) -> Result<String, ToolError> {
    Ok("This is a simple text response for testing.".into())
}

/// Never does what it is asked for.
#[tool(name = "test_error_handling", version = "1.0.0", effects(pure))]
fn error_handling(_: Nothing) -> Result<String, ToolError> {
    let what = "This tool intentionally returns an error for testing";
    Err(ToolError::new(what, "that is what it is for", "call another one"))
}

/// Answers with nothing.
#[tool(name = "json_schema_2020_12_tool", version = "1.0.0", effects(pure))]
fn schema(_: Nothing) -> Result<String, ToolError> {
    Ok(String::new())
}

/// Those that are tools of the engine like any other.
pub(crate) fn register(engine: &Engine) {
    engine.add(SimpleTextTool.tool().unwrap(), SimpleTextTool).unwrap();
    engine.add(ErrorHandlingTool.tool().unwrap(), ErrorHandlingTool).unwrap();
    let input = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": { "address": {
            "type": "object",
            "properties": { "street": { "type": "string" }, "city": { "type": "string" } },
        } },
        "properties": { "name": { "type": "string" }, "address": { "$ref": "#/$defs/address" } },
        "additionalProperties": false,
    });
    let tool = SchemaTool.tool().unwrap();
    let effects = [Effect::Pure].into_iter().collect();
    let tool = EngineTool::new(tool.name, tool.version, tool.description, input, effects);
    engine.add(tool, SchemaTool).unwrap();
}

/// The server, with what only the suite wants.
pub(crate) struct Fixtures(pub(crate) Server);

type Context = RequestContext<RoleServer>;

fn text(text: &str) -> ContentBlock {
    ContentBlock::text(text)
}

fn embedded(uri: &str, media: &str, text: &str) -> ContentBlock {
    ContentBlock::resource(ResourceContents::text(text, uri).with_mime_type(media))
}

fn said(content: Vec<ContentBlock>) -> Result<CallToolResponse, ErrorData> {
    Ok(CallToolResult::success(content).into())
}

const TOOLS: [(&str, &str); 9] = [
    ("test_image_content", "{}"),
    ("test_audio_content", "{}"),
    ("test_embedded_resource", "{}"),
    ("test_multiple_content_types", "{}"),
    ("test_tool_with_logging", "{}"),
    ("test_tool_with_progress", "{}"),
    ("test_elicitation_sep1034_defaults", "{}"),
    ("test_elicitation_sep1330_enums", "{}"),
    ("test_reconnection", "{}"),
];

fn tools() -> Vec<Tool> {
    let with = |name: &'static str, properties: Value| {
        let schema = json!({ "type": "object", "properties": properties });
        Tool::new(name, "for the conformance suite", schema.as_object().unwrap().clone())
    };
    let mut tools: Vec<Tool> =
        TOOLS.iter().map(|(name, none)| with(name, serde_json::from_str(none).unwrap())).collect();
    tools.push(with("test_sampling", json!({ "prompt": { "type": "string" } })));
    tools.push(with("test_elicitation", json!({ "message": { "type": "string" } })));
    tools
}

async fn elicit(context: &Context, message: &str, schema: Value) -> Result<String, ErrorData> {
    let request = ElicitRequest::new(ElicitRequestParams::FormElicitationParams {
        meta: None,
        message: message.into(),
        requested_schema: serde_json::from_value(schema).unwrap(),
    });
    let answer = context.peer.send_request(ServerRequest::ElicitRequest(request)).await;
    match answer {
        Ok(ClientResult::ElicitResult(result)) => {
            let action = serde_json::to_value(&result.action).unwrap();
            let content = result.content.unwrap_or_default();
            Ok(format!("action={}, content={content}", action.as_str().unwrap()))
        }
        other => Err(ErrorData::internal_error(format!("{other:?}"), None)),
    }
}

fn defaults() -> Value {
    json!({ "type": "object", "properties": {
        "name": { "type": "string", "default": "John Doe" },
        "age": { "type": "integer", "default": 30 },
        "score": { "type": "number", "default": 95.5 },
        "status": {
            "type": "string", "enum": ["active", "inactive", "pending"], "default": "active",
        },
        "verified": { "type": "boolean", "default": true },
    } })
}

fn enums() -> Value {
    let titled = |word: &str| {
        json!([
            { "const": "value1", "title": format!("First {word}") },
            { "const": "value2", "title": format!("Second {word}") },
            { "const": "value3", "title": format!("Third {word}") },
        ])
    };
    let plain = json!(["option1", "option2", "option3"]);
    json!({ "type": "object", "properties": {
        "untitledSingle": { "type": "string", "enum": plain },
        "titledSingle": { "type": "string", "oneOf": titled("Option") },
        "legacyEnum": {
            "type": "string", "enum": ["opt1", "opt2", "opt3"],
            "enumNames": ["Option One", "Option Two", "Option Three"],
        },
        "untitledMulti": { "type": "array", "items": { "type": "string", "enum": plain } },
        "titledMulti": { "type": "array", "items": { "anyOf": titled("Choice") } },
    } })
}

async fn with_logging(context: &Context) -> Result<CallToolResponse, ErrorData> {
    for line in ["Tool execution started", "Tool processing data", "Tool execution completed"] {
        let param = LoggingMessageNotificationParam::new(LoggingLevel::Info, line.into());
        context.peer.notify_logging_message(param).await.unwrap();
        sleep(STEP).await;
    }
    said(vec![text("it has said three things")])
}

async fn with_progress(context: &Context) -> Result<CallToolResponse, ErrorData> {
    for progress in [0.0, 50.0, 100.0] {
        if let Some(token) = context.meta.get_progress_token() {
            let param = ProgressNotificationParam::new(token, progress).with_total(100.0);
            context.peer.notify_progress(param).await.unwrap();
        }
        sleep(STEP).await;
    }
    said(vec![text("it has told three times how far it is")])
}

async fn sample(context: &Context, prompt: &str) -> Result<CallToolResponse, ErrorData> {
    let params = CreateMessageRequestParams::new(vec![SamplingMessage::user_text(prompt)], 100);
    let result = context.peer.create_message(params).await;
    let result = result.map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
    let told = result.message.content.first().and_then(|content| match content {
        SamplingMessageContentBlock::Text(text) => Some(text.text.clone()),
        _ => None,
    });
    said(vec![text(&format!("LLM response: {}", told.unwrap_or_default()))])
}

fn prompts() -> Vec<Prompt> {
    let argument = |name: &str| PromptArgument::new(name).with_required(true);
    let prompt = |name: &str, arguments: Option<Vec<PromptArgument>>| {
        Prompt::new(name, Some("for the conformance suite"), arguments)
    };
    vec![
        prompt("test_simple_prompt", None),
        prompt("test_prompt_with_arguments", Some(vec![argument("arg1"), argument("arg2")])),
        prompt("test_prompt_with_embedded_resource", Some(vec![argument("resourceUri")])),
        prompt("test_prompt_with_image", None),
    ]
}

fn messages(request: &GetPromptRequestParams) -> Option<Vec<ContentBlock>> {
    let argument = |name: &str| {
        let arguments = request.arguments.as_ref();
        arguments.and_then(|all| all.get(name)?.as_str()).unwrap_or_default().to_owned()
    };
    Some(match request.name.as_str() {
        "test_simple_prompt" => vec![text("This is a simple prompt for testing.")],
        "test_prompt_with_arguments" => {
            let (one, two) = (argument("arg1"), argument("arg2"));
            vec![text(&format!("Prompt with arguments: arg1='{one}', arg2='{two}'"))]
        }
        "test_prompt_with_embedded_resource" => {
            let uri = argument("resourceUri");
            let content = "Embedded resource content for testing.";
            vec![
                embedded(&uri, "text/plain", content),
                text("Please process the embedded resource above."),
            ]
        }
        "test_prompt_with_image" => {
            vec![ContentBlock::image(PNG, "image/png"), text("Please analyze the image above.")]
        }
        _ => return None,
    })
}

fn resource(uri: &str) -> Option<ResourceContents> {
    if uri == "test://static-text" {
        let text = "This is the content of the static text resource.";
        return Some(ResourceContents::text(text, uri).with_mime_type("text/plain"));
    }
    if uri == "test://static-binary" {
        return Some(ResourceContents::blob(PNG, uri).with_mime_type("image/png"));
    }
    let id = uri.strip_prefix("test://template/")?.strip_suffix("/data")?;
    let text = json!({ "id": id, "templateTest": true, "data": format!("Data for ID: {id}") });
    Some(ResourceContents::text(text.to_string(), uri).with_mime_type("application/json"))
}

impl ServerHandler for Fixtures {
    fn get_info(&self) -> ServerConfig {
        let mut info = self.0.get_info();
        info.capabilities.prompts = Some(PromptsCapability::default());
        let mut resources = ResourcesCapability::default();
        resources.subscribe = Some(true);
        info.capabilities.resources = Some(resources);
        info
    }

    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        self.0.on_initialized(context).await;
    }

    async fn list_tools(
        &self,
        request: Option<PaginatedRequestParams>,
        context: Context,
    ) -> Result<ListToolsResult, ErrorData> {
        let mut list = self.0.list_tools(request, context).await?;
        list.tools.extend(tools());
        Ok(list)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: Context,
    ) -> Result<CallToolResponse, ErrorData> {
        let argument = |name: &str| {
            let arguments = request.arguments.as_ref();
            arguments.and_then(|all| all.get(name)?.as_str()).unwrap_or_default().to_owned()
        };
        let image = || ContentBlock::image(PNG, "image/png");
        match request.name.as_ref() {
            "test_image_content" => said(vec![image()]),
            "test_audio_content" => said(vec![ContentBlock::audio(WAV, "audio/wav")]),
            "test_embedded_resource" => said(vec![embedded(
                "test://embedded-resource",
                "text/plain",
                "This is an embedded resource content.",
            )]),
            "test_multiple_content_types" => said(vec![
                text("Multiple content types test:"),
                image(),
                embedded(
                    "test://mixed-content-resource",
                    "application/json",
                    "{\"test\":\"data\",\"value\":123}",
                ),
            ]),
            "test_tool_with_logging" => with_logging(&context).await,
            "test_tool_with_progress" => with_progress(&context).await,
            "test_sampling" => sample(&context, &argument("prompt")).await,
            "test_elicitation" => {
                let schema = json!({ "type": "object", "required": ["username", "email"],
                    "properties": {
                        "username": { "type": "string", "description": "User's response" },
                        "email": { "type": "string", "description": "User's email address" },
                    } });
                let told = elicit(&context, &argument("message"), schema).await?;
                said(vec![text(&format!("User response: {told}"))])
            }
            "test_elicitation_sep1034_defaults" => {
                let told = elicit(&context, "defaults", defaults()).await?;
                said(vec![text(&format!("Elicitation completed: {told}"))])
            }
            "test_elicitation_sep1330_enums" => {
                let told = elicit(&context, "enums", enums()).await?;
                said(vec![text(&format!("Elicitation completed: {told}"))])
            }
            "test_reconnection" => {
                sleep(10 * STEP).await;
                said(vec![text("Reconnection test completed successfully")])
            }
            _ => self.0.call_tool(request, context).await,
        }
    }

    async fn list_resources(
        &self,
        request: Option<PaginatedRequestParams>,
        context: Context,
    ) -> Result<ListResourcesResult, ErrorData> {
        let mut list = self.0.list_resources(request, context).await?;
        for (uri, media) in
            [("test://static-text", "text/plain"), ("test://static-binary", "image/png")]
        {
            let resource = Resource::new(uri, uri).with_description("for the conformance suite");
            list.resources.push(resource.with_mime_type(media));
        }
        Ok(list)
    }

    async fn list_resource_templates(
        &self,
        request: Option<PaginatedRequestParams>,
        context: Context,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        let mut list = self.0.list_resource_templates(request, context).await?;
        list.resource_templates.push(ResourceTemplate::new("test://template/{id}/data", "data"));
        Ok(list)
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: Context,
    ) -> Result<ReadResourceResponse, ErrorData> {
        match resource(&request.uri) {
            Some(contents) => Ok(ReadResourceResult::new(vec![contents]).into()),
            None => self.0.read_resource(request, context).await,
        }
    }

    async fn subscribe(&self, _: SubscribeRequestParams, _: Context) -> Result<(), ErrorData> {
        Ok(())
    }

    async fn unsubscribe(&self, _: UnsubscribeRequestParams, _: Context) -> Result<(), ErrorData> {
        Ok(())
    }

    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParams>,
        _: Context,
    ) -> Result<ListPromptsResult, ErrorData> {
        Ok(ListPromptsResult::with_all_items(prompts()))
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        _: Context,
    ) -> Result<GetPromptResponse, ErrorData> {
        let messages = messages(&request)
            .ok_or_else(|| ErrorData::invalid_params("there is no such prompt", None))?;
        let messages = messages.into_iter().map(|one| PromptMessage::new(Role::User, one));
        Ok(GetPromptResult::new(messages.collect()).into())
    }

    async fn complete(
        &self,
        request: CompleteRequestParams,
        context: Context,
    ) -> Result<CompleteResult, ErrorData> {
        if request.r#ref.as_prompt_name().is_some() {
            let words = vec!["paris".into(), "park".into(), "party".into()];
            return Ok(CompleteResult::new(CompletionInfo::with_all_values(words).unwrap()));
        }
        self.0.complete(request, context).await
    }

    async fn set_level(
        &self,
        request: SetLevelRequestParams,
        context: Context,
    ) -> Result<(), ErrorData> {
        self.0.set_level(request, context).await
    }

    fn accepted_subscription_filter(
        &self,
        requested: &SubscriptionFilter,
    ) -> Option<SubscriptionFilter> {
        self.0.accepted_subscription_filter(requested)
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        self.0.listen(context).await
    }
}
