//! A server for the conformance suite, written with the Rust SDK, over stdio, or over HTTP on a loopback port.
//! It offers what `fixture.json` contains.
//!
//! ```text
//! conformance-server [PORT]
//! ```
#![allow(deprecated)] // sampling, roots and logging are deprecated in the newest revision

mod asking;

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rmcp::model::*;
use rmcp::service::{RequestContext, SubscriptionContext, SubscriptionSink};
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{ErrorData, RoleServer, ServerHandler, ServiceExt};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::time::sleep;

use asking::Asking;

type Context = RequestContext<RoleServer>;
type Result<T> = std::result::Result<T, ErrorData>;

const TTL_MS: u64 = 60_000;

#[derive(Clone)]
struct Server {
    fixture: Arc<Value>,
    asking: Asking,
    /// The kinds whose list has one entry more; calls change it.
    extended: Arc<Mutex<HashSet<String>>>,
    streams: Arc<Mutex<HashMap<u64, SubscriptionSink>>>,
    next_stream: Arc<AtomicU64>,
}

/// A value of the fixture as a type of the protocol.
fn typed<T: DeserializeOwned>(value: Value) -> Result<T> {
    let wrong = |error| ErrorData::internal_error(format!("{error}: {value}"), None);
    T::deserialize(&value).map_err(wrong)
}

fn text(text: &str) -> CallToolResult {
    CallToolResult::success(vec![ContentBlock::text(text)])
}

/// Fills a `{name}` placeholder in every string of a value.
fn fill(value: &mut Value, name: &str, with: &str) {
    match value {
        Value::String(text) => *text = text.replace(&format!("{{{name}}}"), with),
        Value::Array(values) => values.iter_mut().for_each(|one| fill(one, name, with)),
        Value::Object(values) => values.values_mut().for_each(|one| fill(one, name, with)),
        _ => {}
    }
}

impl Server {
    fn new() -> Server {
        let fixture = serde_json::from_str(include_str!("../../fixture.json")).unwrap();
        Server {
            fixture: Arc::new(fixture),
            asking: Asking::new(),
            extended: Arc::default(),
            streams: Arc::default(),
            next_stream: Arc::default(),
        }
    }

    fn entries(&self, kind: &str) -> &Vec<Value> {
        self.fixture[kind].as_array().unwrap()
    }

    fn definitions<T: DeserializeOwned>(&self, kind: &str) -> Result<Vec<T>> {
        let entries = self.entries(kind).iter().map(|entry| entry["definition"].clone());
        let extended = self.extended.lock().unwrap().contains(kind);
        let added = extended.then(|| self.fixture["added"][kind].clone());
        entries.chain(added).map(typed).collect()
    }

    /// The entry whose definition has this value.
    fn entry(&self, kind: &str, key: &str, value: &str) -> Option<&Value> {
        self.entries(kind).iter().find(|entry| entry["definition"][key] == value)
    }

    fn sinks(&self) -> Vec<SubscriptionSink> {
        self.streams.lock().unwrap().values().cloned().collect()
    }

    /// Changes a list, and announces it to streams of the modern version and to a legacy session.
    async fn change(&self, kind: &str, context: &Context) {
        let is_new = self.extended.lock().unwrap().insert(kind.into());
        if !is_new {
            self.extended.lock().unwrap().remove(kind);
        }
        for stream in self.sinks() {
            let _ = match kind {
                "tools" => stream.notify_tool_list_changed().await.is_ok(),
                _ => stream.notify_prompt_list_changed().await.is_ok(),
            };
        }
        if context.meta.client_capabilities().is_none() {
            let _ = match kind {
                "tools" => context.peer.notify_tool_list_changed().await.is_ok(),
                _ => context.peer.notify_prompt_list_changed().await.is_ok(),
            };
        }
    }

    /// Sends a request to the client during a call of a legacy session.
    async fn request(
        &self,
        request: &Value,
        arguments: &Value,
        context: &Context,
    ) -> std::result::Result<Value, String> {
        let wrong = |error: &dyn std::fmt::Display| error.to_string();
        if request["method"] == "sampling/createMessage" {
            let prompt = arguments["prompt"].as_str().unwrap_or_default();
            let params =
                CreateMessageRequestParams::new(vec![SamplingMessage::user_text(prompt)], 50);
            let result =
                context.peer.create_message(params).await.map_err(|error| wrong(&error))?;
            return Ok(json!(result));
        }
        let mut params = request["params"].clone();
        if arguments["message"].is_string() {
            params["message"] = arguments["message"].clone();
        }
        params["mode"] = json!("form");
        let params = typed(params).map_err(|error| error.message.to_string())?;
        let result =
            context.peer.create_elicitation(params).await.map_err(|error| wrong(&error))?;
        Ok(json!(result))
    }

    /// The side effects of a tool during a call.
    async fn act(
        &self,
        does: &Value,
        request: CallToolRequestParams,
        context: &Context,
    ) -> Result<CallToolResponse> {
        if does["returns"].is_array() {
            return Ok(CallToolResult::success(typed(does["returns"].clone())?).into());
        }
        if let Some(why) = does["fails"].as_str() {
            return Ok(CallToolResult::error(vec![ContentBlock::text(why)]).into());
        }
        if does["asks"].is_array() {
            let (state, responses) = (request.request_state, request.input_responses);
            let asked = self.asking.ask(does, state, responses, context)?;
            let done = || text("state-ok: all input was received").into();
            return Ok(asked.map_or_else(done, CallToolResponse::from));
        }
        if does["needs"] == "sampling" {
            let declared = context.meta.client_capabilities().unwrap_or_default();
            if declared.sampling.is_none() {
                let needed = ClientCapabilities::builder().enable_sampling().build();
                return Err(ErrorData::missing_required_client_capability(needed));
            }
        }
        if let Some(kind) = does["changes"].as_str() {
            self.change(kind, context).await;
        }
        if does["requests"].is_object() {
            let arguments = json!(request.arguments);
            let result = self.request(&does["requests"], &arguments, context).await;
            return Ok(match result {
                Ok(result) => text(&result.to_string()),
                Err(why) => CallToolResult::error(vec![ContentBlock::text(why)]),
            }
            .into());
        }
        self.notify(does, context).await;
        Ok(text("done").into())
    }

    /// Log messages and progress of a call.
    async fn notify(&self, does: &Value, context: &Context) {
        let modern = context.meta.client_capabilities().is_some();
        for message in does["logs"].as_array().into_iter().flatten() {
            // The modern version allows messages only if the request asks for them.
            if !modern || context.meta.log_level().is_some() {
                let params =
                    LoggingMessageNotificationParam::new(LoggingLevel::Info, message.clone());
                let _ = context.peer.notify_logging_message(params).await;
                sleep(Duration::from_millis(20)).await;
            }
        }
        let reports = does["reports"].as_array().into_iter().flatten().filter_map(Value::as_f64);
        if let Some(token) = context.meta.get_progress_token() {
            for progress in reports {
                let params = ProgressNotificationParam::new(token.clone(), progress);
                let _ = context.peer.notify_progress(params.with_total(100.0)).await;
                sleep(Duration::from_millis(20)).await;
            }
        }
    }
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerInfo {
        let capabilities = ServerCapabilities::builder()
            .enable_completions()
            .enable_logging()
            .enable_prompts()
            .enable_prompts_list_changed()
            .enable_resources()
            .enable_resources_list_changed()
            .enable_resources_subscribe()
            .enable_tools()
            .enable_tool_list_changed()
            .build();
        ServerInfo::new(capabilities)
            .with_server_info(Implementation::new("conformance-rust", "1.0.0"))
    }

    /// The transport validates mirrored headers against this definition.
    fn get_tool(&self, name: &str) -> Option<Tool> {
        typed(self.entry("tools", "name", name)?["definition"].clone()).ok()
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: Context,
    ) -> Result<ListToolsResult> {
        let result = ListToolsResult { tools: self.definitions("tools")?, ..Default::default() };
        Ok(result.with_ttl_ms(TTL_MS).with_cache_scope(CacheScope::Public))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: Context,
    ) -> Result<CallToolResponse> {
        let unknown = || ErrorData::invalid_params(format!("unknown tool: {}", request.name), None);
        let does = &self.entry("tools", "name", &request.name).ok_or_else(unknown)?["does"];
        self.act(does, request.clone(), &context).await
    }

    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParams>,
        _: Context,
    ) -> Result<ListPromptsResult> {
        let prompts = self.definitions("prompts")?;
        let result = ListPromptsResult { prompts, ..Default::default() };
        Ok(result.with_ttl_ms(TTL_MS).with_cache_scope(CacheScope::Public))
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        context: Context,
    ) -> Result<GetPromptResponse> {
        let unknown =
            || ErrorData::invalid_params(format!("unknown prompt: {}", request.name), None);
        let prompt = self.entry("prompts", "name", &request.name).ok_or_else(unknown)?;
        if prompt["asks"].is_array() {
            let (state, responses) = (request.request_state, request.input_responses);
            if let Some(asked) = self.asking.ask(prompt, state, responses, &context)? {
                return Ok(asked.into());
            }
        }
        let mut messages = prompt["messages"].clone();
        for (name, value) in json!(request.arguments).as_object().into_iter().flatten() {
            fill(&mut messages, name, value.as_str().unwrap_or_default());
        }
        Ok(GetPromptResult::new(typed(messages)?).into())
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        _: Context,
    ) -> Result<ListResourcesResult> {
        let resources = self.definitions("resources")?;
        let result = ListResourcesResult { resources, ..Default::default() };
        Ok(result.with_ttl_ms(TTL_MS).with_cache_scope(CacheScope::Public))
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: Context,
    ) -> Result<ListResourceTemplatesResult> {
        let resource_templates = self.definitions("templates")?;
        let result = ListResourceTemplatesResult { resource_templates, ..Default::default() };
        Ok(result.with_ttl_ms(TTL_MS).with_cache_scope(CacheScope::Public))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _: Context,
    ) -> Result<ReadResourceResponse> {
        let uri = request.uri.as_str();
        let id = uri.strip_prefix("test://template/").and_then(|rest| rest.strip_suffix("/data"));
        let template = id.map(|_| &self.entries("templates")[0]);
        let unknown = || {
            let why = format!("resource not found: {uri}");
            ErrorData::resource_not_found(why, Some(json!({"uri": uri})))
        };
        let entry = self.entry("resources", "uri", uri).or(template).ok_or_else(unknown)?;
        let mut contents = entry["contents"].clone();
        fill(&mut contents, "id", id.unwrap_or_default());
        contents["uri"] = json!(uri);
        contents["mimeType"] = entry["definition"]["mimeType"].clone();
        let result = ReadResourceResult::new(vec![typed(contents)?]);
        Ok(result.with_ttl_ms(TTL_MS).with_cache_scope(CacheScope::Public).into())
    }

    async fn subscribe(&self, _: SubscribeRequestParams, _: Context) -> Result<()> {
        Ok(())
    }

    async fn unsubscribe(&self, _: UnsubscribeRequestParams, _: Context) -> Result<()> {
        Ok(())
    }

    fn accepted_subscription_filter(
        &self,
        requested: &SubscriptionFilter,
    ) -> Option<SubscriptionFilter> {
        Some(requested.supported_by(&self.get_info().capabilities))
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<()> {
        let key = self.next_stream.fetch_add(1, Ordering::Relaxed);
        self.streams.lock().unwrap().insert(key, context.sink().clone());
        context.cancelled().await;
        self.streams.lock().unwrap().remove(&key);
        Ok(())
    }

    async fn complete(&self, _: CompleteRequestParams, _: Context) -> Result<CompleteResult> {
        let none = CompletionInfo::new(Vec::new());
        none.map(CompleteResult::new).map_err(|error| ErrorData::internal_error(error, None))
    }

    async fn set_level(&self, _: SetLevelRequestParams, _: Context) -> Result<()> {
        Ok(())
    }
}

async fn serve(server: Server) -> std::result::Result<(), Box<dyn std::error::Error>> {
    let Some(port) = std::env::args().nth(1) else {
        server.serve(rmcp::transport::stdio()).await?.waiting().await?;
        return Ok(());
    };
    let sessions = LocalSessionManager::default().into();
    let config = StreamableHttpServerConfig::default();
    let service = StreamableHttpService::new(move || Ok(server.clone()), sessions, config);
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", port.parse()?)).await?;
    axum::serve(listener, axum::Router::new().nest_service("/mcp", service)).await?;
    Ok(())
}

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    if let Err(error) = runtime.block_on(serve(Server::new())) {
        eprintln!("{error}");
        std::process::exit(1);
    }
}
