//! The Rust MCP client in front of a server: lists tools, makes calls, prints what it got as JSON.
//!
//! ```text
//! rmcp-client CALLS_JSON [--legacy|--modern|--auto] --stdio COMMAND ARGS…
//! rmcp-client CALLS_JSON [--legacy|--modern|--auto] --url URL [--token TOKEN]
//! ```
//!
//! CALLS_JSON is a list of [name, arguments]. Without a flag the client chooses the protocol version
//! itself, which for this client means `--legacy`.

use std::error::Error;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rmcp::model::{
    CallToolRequestParams, ClientRequest, JsonObject, ProgressNotificationParam, ProgressToken,
    ProtocolVersion, Request,
};
use rmcp::service::{NotificationContext, PeerRequestOptions, RunningService};
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::transport::{StreamableHttpClientTransport, TokioChildProcess};
use rmcp::{ClientHandler, ClientLifecycleMode, ClientServiceExt, RoleClient, ServiceError};
use serde_json::{Value, json};
use tokio::time::timeout;

/// The token of each progress notification received.
#[derive(Clone, Default)]
struct Client(Arc<Mutex<Vec<ProgressToken>>>);

impl ClientHandler for Client {
    async fn on_progress(
        &self,
        params: ProgressNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        self.0.lock().unwrap().push(params.progress_token);
    }
}

type Failure = Box<dyn Error>;
type Service = RunningService<RoleClient, Client>;

async fn connect(client: Client, words: &[String]) -> Result<Service, Failure> {
    let preferred_versions = vec![ProtocolVersion::V_2026_07_28];
    let (mode, words) = match words[0].as_str() {
        "--modern" => (ClientLifecycleMode::Discover { preferred_versions }, &words[1..]),
        "--auto" => {
            (ClientLifecycleMode::Auto { preferred_versions, legacy_version: None }, &words[1..])
        }
        "--legacy" => (ClientLifecycleMode::Initialize, &words[1..]),
        _ => (ClientLifecycleMode::Initialize, words),
    };
    if words[0] == "--url" {
        let mut config = StreamableHttpClientTransportConfig::with_uri(words[1].as_str());
        if words.get(2).is_some_and(|word| word == "--token") {
            config = config.auth_header(words[3].as_str());
        }
        let transport = StreamableHttpClientTransport::from_config(config);
        Ok(client.serve_with_lifecycle(transport, mode).await?)
    } else {
        let mut command = tokio::process::Command::new(&words[1]);
        command.args(&words[2..]);
        Ok(client.serve_with_lifecycle(TokioChildProcess::new(command)?, mode).await?)
    }
}

/// The result of a call; the token of its progress goes into `token`.
async fn call(
    service: &Service,
    (name, arguments): (String, JsonObject),
    token: &mut Option<ProgressToken>,
) -> Result<Value, ServiceError> {
    let params = CallToolRequestParams::new(name).with_arguments(arguments);
    let request = ClientRequest::CallToolRequest(Request::new(params.clone()));
    let options = PeerRequestOptions::no_options();
    let handle = service.send_cancellable_request(request, options).await?;
    *token = Some(handle.progress_token.clone());
    let result = json!(handle.await_response().await?);
    match result["resultType"] == "input_required" {
        // The client's own loop repeats the call until it has a result.
        true => Ok(json!(service.call_tool(params).await?)),
        false => Ok(result),
    }
}

async fn look(words: &[String]) -> Result<Value, Failure> {
    let calls: Vec<(String, JsonObject)> = serde_json::from_str(&words[0])?;
    let client = Client::default();
    let mut service = connect(client.clone(), &words[1..]).await?;
    let info = service.peer_info().ok_or("the server said nothing of itself")?;
    let tools = service.list_all_tools().await?;
    let (mut results, mut tokens) = (Vec::new(), Vec::new());
    for wanted in calls {
        let mut token = None;
        results.push(match call(&service, wanted, &mut token).await {
            Ok(result) => result,
            Err(ServiceError::McpError(error)) => {
                json!({"error": error.message, "code": error.code, "data": error.data})
            }
            Err(error) => json!({"error": error.to_string(), "code": null, "data": null}),
        });
        tokens.push(token);
    }
    if let Err(error) = service.close().await {
        eprintln!("{error}");
    }
    let came = client.0.lock().unwrap();
    let progress: Vec<usize> = tokens
        .iter()
        .map(|token| came.iter().filter(|one| Some(*one) == token.as_ref()).count())
        .collect();
    Ok(json!({
        "revision": info.protocol_version,
        "server": info.server_info,
        "tools": tools,
        "calls": results,
        "progress": progress,
    }))
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let seen = runtime.block_on(async { timeout(Duration::from_secs(60), look(&words)).await });
    match seen {
        Ok(Ok(seen)) => println!("{seen}"),
        Ok(Err(error)) => {
            let mut words = error.to_string();
            let mut source = error.source();
            while let Some(error) = source {
                words += &format!(": {error}");
                source = error.source();
            }
            eprintln!("{words}");
            std::process::exit(1);
        }
        Err(_) => {
            eprintln!("no end after 60 seconds");
            std::process::exit(1);
        }
    }
}
