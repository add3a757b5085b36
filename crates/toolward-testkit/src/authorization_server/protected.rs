//! The protected MCP server: the echo server behind access tokens of an authorization server.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};

use super::AuthorizationServer;
use super::http::{self, Exchanged, Response, Service, Thread};
use super::state::{AccessToken, State};
use super::switches::{bad, optional, texts};
use crate::echo::Server;

/// Behavior of the protected server. The default is a correct one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProtectedSwitches {
    pub challenge: Challenge,
    pub resource_metadata: ResourceMetadata,
    /// The announced resource, instead of the server's address.
    pub resource: Option<String>,
    /// The announced authorization servers, instead of the real one.
    pub authorization_servers: Option<Vec<String>>,
    /// The announced `scopes_supported`.
    pub scopes_supported: Vec<String>,
    /// The `scope` of challenges.
    pub challenge_scope: Option<String>,
    /// The number of next requests with a valid token that get 401 nevertheless.
    pub reject_next: u32,
    /// The same for `tools/call` only: 401 in the middle of work.
    pub reject_next_calls: u32,
    /// Calls need this scope, otherwise they get 403 `insufficient_scope`.
    pub required_scope: Option<String>,
    /// An audience that tokens may have, besides the server's address.
    pub audience: Option<String>,
    /// Whether tokens for other resources are rejected.
    pub check_audience: bool,
    /// Requests without a token are accepted: the server needs no login.
    pub open: bool,
}

/// `WWW-Authenticate` of a 401.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Challenge {
    /// With the address of the resource metadata.
    Metadata,
    /// With another address.
    MetadataAt(String),
    /// `Bearer` alone.
    Bare,
    /// No header.
    Missing,
}

/// The document of RFC 9728.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResourceMetadata {
    /// With the path of the server, and at the root.
    Everywhere,
    Path,
    Root,
    Missing,
    Huge,
    Redirects,
}

impl Default for ProtectedSwitches {
    fn default() -> ProtectedSwitches {
        ProtectedSwitches {
            challenge: Challenge::Metadata,
            resource_metadata: ResourceMetadata::Everywhere,
            resource: None,
            authorization_servers: None,
            scopes_supported: Vec::new(),
            challenge_scope: None,
            reject_next: 0,
            reject_next_calls: 0,
            required_scope: None,
            audience: None,
            check_audience: true,
            open: false,
        }
    }
}

impl ProtectedSwitches {
    /// Changes the switches that a JSON object names.
    pub fn apply(&mut self, changes: &Value) -> io::Result<()> {
        for (name, value) in changes.as_object().ok_or_else(|| bad("switches", changes))? {
            let wrong = || bad(name, value);
            let count = || value.as_u64().and_then(|n| n.try_into().ok()).ok_or_else(wrong);
            match name.as_str() {
                "challenge" => {
                    self.challenge = match (value["metadata_at"].as_str(), value.as_str()) {
                        (Some(at), _) => Challenge::MetadataAt(at.into()),
                        (_, Some("metadata")) => Challenge::Metadata,
                        (_, Some("bare")) => Challenge::Bare,
                        (_, Some("missing")) => Challenge::Missing,
                        _ => return Err(wrong()),
                    }
                }
                "resource_metadata" => {
                    self.resource_metadata = match value.as_str() {
                        Some("everywhere") => ResourceMetadata::Everywhere,
                        Some("path") => ResourceMetadata::Path,
                        Some("root") => ResourceMetadata::Root,
                        Some("missing") => ResourceMetadata::Missing,
                        Some("huge") => ResourceMetadata::Huge,
                        Some("redirects") => ResourceMetadata::Redirects,
                        _ => return Err(wrong()),
                    }
                }
                "resource" => self.resource = optional(value),
                "authorization_servers" => {
                    self.authorization_servers = (!value.is_null()).then(|| texts(value));
                }
                "scopes_supported" => self.scopes_supported = texts(value),
                "challenge_scope" => self.challenge_scope = optional(value),
                "reject_next" => self.reject_next = count()?,
                "reject_next_calls" => self.reject_next_calls = count()?,
                "required_scope" => self.required_scope = optional(value),
                "audience" => self.audience = optional(value),
                "check_audience" => self.check_audience = value.as_bool().ok_or_else(wrong)?,
                "open" => self.open = value.as_bool().ok_or_else(wrong)?,
                _ => return Err(bad("switches", &json!(name))),
            }
        }
        Ok(())
    }
}

/// A running protected server. It stops when it is dropped.
pub struct ProtectedServer {
    state: Arc<Protected>,
    _thread: Thread,
}

struct Protected {
    origin: String,
    echo: Server,
    tokens: Arc<State>,
    switches: Mutex<ProtectedSwitches>,
    seen: Mutex<Vec<Exchanged>>,
}

const PATH: &str = "/mcp";

impl ProtectedServer {
    /// Starts a server on a free loopback port that accepts the tokens of `tokens`.
    pub fn start(
        tokens: &AuthorizationServer,
        switches: ProtectedSwitches,
    ) -> io::Result<ProtectedServer> {
        ProtectedServer::listen(([127, 0, 0, 1], 0).into(), tokens, switches)
    }

    pub fn listen(
        listen: SocketAddr,
        tokens: &AuthorizationServer,
        switches: ProtectedSwitches,
    ) -> io::Result<ProtectedServer> {
        let (listener, origin) = http::bind(listen)?;
        let tool = |name: &str| json!({"name": name, "inputSchema": {"type": "object"}});
        let echo = Server::new(&json!([tool("echo"), tool("whoami")]).to_string())?;
        let state = Arc::new(Protected {
            origin,
            echo,
            tokens: tokens.state.clone(),
            switches: Mutex::new(switches),
            seen: Mutex::default(),
        });
        Ok(ProtectedServer { _thread: http::start(listener, state.clone())?, state })
    }

    /// The address of the MCP endpoint, which is also the resource.
    pub fn url(&self) -> String {
        format!("{}{PATH}", self.state.origin)
    }

    /// Changes switches while it runs.
    pub fn switch(&self, change: impl FnOnce(&mut ProtectedSwitches)) {
        change(&mut locked(&self.state.switches));
    }

    /// All requests so far.
    pub fn seen(&self) -> Vec<Exchanged> {
        locked(&self.state.seen).clone()
    }

    /// The calls that were carried out, each with its `Authorization`.
    pub fn calls(&self) -> Vec<Exchanged> {
        let call = |one: &Exchanged| one.status == 200 && one.body.contains("\"tools/call\"");
        self.seen().into_iter().filter(call).collect()
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Service for Protected {
    async fn respond(&self, request: &Exchanged) -> Option<Response> {
        Some(match &*request.path {
            PATH => self.mcp(request),
            path if path.starts_with("/.well-known/oauth-protected-resource") => {
                self.metadata(path)
            }
            "/control/seen" => {
                let seen: Vec<Value> = locked(&self.seen).iter().map(Exchanged::to_json).collect();
                Response::json(200, &json!(seen))
            }
            "/control/switches" => {
                super::switched(&request.body, |changes| locked(&self.switches).apply(changes))
            }
            _ => Response::empty(404),
        })
    }

    fn record(&self, exchanged: Exchanged) {
        if !exchanged.path.starts_with("/control/") {
            locked(&self.seen).push(exchanged);
        }
    }
}

impl Protected {
    fn resource(&self) -> String {
        format!("{}{PATH}", self.origin)
    }

    fn metadata(&self, path: &str) -> Response {
        let switches = locked(&self.switches).clone();
        let root = path == "/.well-known/oauth-protected-resource";
        let own = path == format!("/.well-known/oauth-protected-resource{PATH}");
        let served = match switches.resource_metadata {
            ResourceMetadata::Path => own,
            ResourceMetadata::Root => root,
            ResourceMetadata::Missing => false,
            _ => own || root,
        };
        if !served {
            return Response::empty(404);
        }
        if switches.resource_metadata == ResourceMetadata::Redirects {
            return Response::redirect(&format!("{}{path}", self.origin));
        }
        let issuer = vec![self.tokens.issuer.clone()];
        let mut document = json!({
            "resource": switches.resource.unwrap_or_else(|| self.resource()),
            "authorization_servers": switches.authorization_servers.unwrap_or(issuer),
            "bearer_methods_supported": ["header"],
        });
        if !switches.scopes_supported.is_empty() {
            document["scopes_supported"] = json!(switches.scopes_supported);
        }
        if switches.resource_metadata == ResourceMetadata::Huge {
            document["padding"] = json!("x".repeat(10 << 20));
        }
        Response::json(200, &document)
    }

    fn mcp(&self, request: &Exchanged) -> Response {
        let mut switches = locked(&self.switches);
        let call = request.body.contains("\"tools/call\"");
        let audience = |token: &AccessToken| {
            let Some(audience) = &token.audience else { return true };
            !switches.check_audience
                || *audience == self.resource()
                || switches.audience.as_ref() == Some(audience)
        };
        let authorization = request.field("authorization");
        if switches.open && authorization.is_empty() {
            drop(switches);
            return self.echoed(request, &request.body);
        }
        let token = self.tokens.valid(authorization).filter(audience);
        let Some(token) = token else { return self.challenge(&switches, "invalid_token") };
        if switches.reject_next > 0 {
            switches.reject_next -= 1;
            return self.challenge(&switches, "invalid_token");
        }
        if call && switches.reject_next_calls > 0 {
            switches.reject_next_calls -= 1;
            return self.challenge(&switches, "invalid_token");
        }
        if let Some(scope) = switches.required_scope.as_ref().filter(|_| call)
            && !token.scope.split(' ').any(|granted| granted == scope)
        {
            let fields = format!(
                "WWW-Authenticate: Bearer error=\"insufficient_scope\", scope=\"{scope}\"\r\n"
            );
            return Response { status: 403, fields, body: Vec::new() };
        }
        drop(switches);
        self.echoed(request, &known_caller(&request.body, &token))
    }

    fn echoed(&self, request: &Exchanged, body: &str) -> Response {
        let fields = request.fields.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        match self.echo.exchange(&request.method, fields, body) {
            Ok((status, fields, body)) => Response { status, fields, body },
            Err(_) => Response::empty(400),
        }
    }

    fn challenge(&self, switches: &ProtectedSwitches, error: &str) -> Response {
        let document = |at: &str| format!(" resource_metadata=\"{at}\", error=\"{error}\"");
        let own = format!("{}/.well-known/oauth-protected-resource{PATH}", self.origin);
        let mut challenge = match &switches.challenge {
            Challenge::Missing => return Response::empty(401),
            Challenge::Bare => String::new(),
            Challenge::Metadata => document(&own),
            Challenge::MetadataAt(at) => document(at),
        };
        if let Some(scope) = &switches.challenge_scope {
            let comma = if challenge.is_empty() { "" } else { "," };
            challenge += &format!("{comma} scope=\"{scope}\"");
        }
        let fields = format!("WWW-Authenticate: Bearer{challenge}\r\n");
        Response { status: 401, fields, body: Vec::new() }
    }
}

/// The tool `whoami` echoes what the token is about: its arguments are replaced by that.
fn known_caller(body: &str, token: &AccessToken) -> String {
    let Ok(mut message) = serde_json::from_str::<Value>(body) else { return body.into() };
    if message["params"]["name"] != "whoami" {
        return body.into();
    }
    message["params"]["arguments"] = json!({"subject": token.subject, "client": token.client,
        "scope": token.scope, "audience": token.audience});
    message.to_string()
}

#[cfg(test)]
impl ProtectedServer {
    /// The status and body of the response to a request.
    pub(super) fn state_for_tests(&self, request: &Exchanged) -> (u16, String) {
        let response = self.state.mcp(request);
        (response.status, String::from_utf8_lossy(&response.body).into_owned())
    }
}
