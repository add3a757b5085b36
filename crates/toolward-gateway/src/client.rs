//! The client of a request: its agent and how that was authenticated, the servers in its scope, its
//! protocol version.

mod claims;
pub(crate) mod outlet;
mod subject_tokens;

use std::borrow::Cow;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use bytes::Bytes;
use toolward_wire::{ClientCapabilities, Era, Message, Raw, Revision, meta};

use crate::lock::LockUnpoisoned;

pub use self::claims::Claims;
pub use self::outlet::Outlet;
pub use self::subject_tokens::SubjectTokens;

/// The authenticated caller of a request.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Caller {
    pub agent: Option<Arc<str>>,
    /// How the agent was identified.
    pub identity: &'static str,
    /// The claims of its JWT.
    pub claims: Option<Arc<Claims>>,
}

impl Caller {
    /// A caller without claims.
    pub fn new(agent: Option<Arc<str>>, identity: &'static str) -> Caller {
        Caller { agent, identity, claims: None }
    }

    /// The caller for the policy engine.
    pub fn policy(&self) -> toolward_policy::Caller<'_> {
        let claims = self.claims.as_ref().and_then(|claims| claims.for_policy());
        toolward_policy::Caller { agent: self.agent.as_deref(), claims }
    }

    /// The `sub` claim: the issuer's name for the person or program behind the agent.
    pub fn subject(&self) -> Option<&str> {
        self.claims.as_ref()?.subject()
    }

    pub(crate) fn holder(&self) -> Holder {
        let claims = self.claims.as_ref().map(|claims| *claims.digest());
        Holder { agent: self.agent.clone(), claims }
    }
}

/// The owner of everything that outlives a request: an agent and, if it has a JWT, the holder of that. Two holders are
/// different callers, even if both are the same agent.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Holder {
    pub agent: Option<Arc<str>>,
    claims: Option<[u8; 32]>,
}

/// Identifies a server for the lifetime of the process. Ids are never reused, so the id of a removed
/// server matches nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ServerId(u64);

impl ServerId {
    /// The first id of a process.
    pub const FIRST: ServerId = ServerId(0);

    pub(crate) fn new(number: u64) -> ServerId {
        ServerId(number)
    }
}

/// The servers a client can reach, by the address it uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scope {
    /// All servers; tools are named after their server.
    All,
    /// One server; tools keep their names.
    One(ServerId),
    /// All servers except the built-in one, which calls them for its client.
    Discovery,
}

/// The owner of a connection to a server.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Owner {
    Everyone,
    Session(u128),
    Agent(Holder),
}

/// One client: a connection over stdio, a session over HTTP, or all stateless requests of an agent.
#[derive(Debug)]
pub struct Client {
    pub caller: Caller,
    pub scope: Scope,
    pub revision: Revision,
    pub owner: Owner,
    /// `clientInfo` as the client wrote it.
    pub info: Option<Bytes>,
    /// The client's capabilities, if it declared them once for all requests.
    pub capabilities: Option<Bytes>,
    /// The requests of servers that the client can handle.
    pub declared: ClientCapabilities,
    /// Sends requests to the client outside of its own requests, if it has a session.
    pub outlet: Option<Arc<Outlet>>,
    /// When it began.
    pub(crate) since: Instant,
    /// The name and version of the last `clientInfo` that was parsed.
    label: Mutex<Option<(Bytes, Arc<str>)>>,
}

impl Client {
    pub fn new(caller: Caller, scope: Scope, revision: Revision, owner: Owner) -> Client {
        Client {
            caller,
            scope,
            revision,
            owner,
            info: None,
            capabilities: None,
            declared: ClientCapabilities::NONE,
            outlet: None,
            since: Instant::now(),
            label: Mutex::default(),
        }
    }

    /// The same client with another scope.
    pub(crate) fn with_scope(&self, scope: Scope) -> Client {
        let (caller, owner) = (self.caller.clone(), self.owner.clone());
        let client = Client::new(caller, scope, self.revision, owner);
        let (info, capabilities) = (self.info.clone(), self.capabilities.clone());
        Client {
            info,
            capabilities,
            declared: self.declared,
            outlet: self.outlet.clone(),
            ..client
        }
    }

    /// Sets what the client stated in `initialize`.
    pub(crate) fn state(&mut self, stated: ClientStatement) {
        let read = |json: &Bytes| Raw::scan(json, json.len()).ok().map(ClientCapabilities::read);
        let declared = stated.capabilities.as_ref().and_then(read).unwrap_or_default();
        self.declared = declared.in_era(Era::Legacy);
        (self.info, self.capabilities) = (stated.info, stated.capabilities);
    }

    /// The name and version in `clientInfo`, sanitized for the audit log. They do not affect any
    /// decision.
    pub(crate) fn program(
        &self,
        message: &Message,
        sanitize: fn(&str) -> Cow<'_, str>,
    ) -> Option<Arc<str>> {
        let info = match &self.info {
            Some(info) => info,
            None => message.meta(meta::CLIENT_INFO)?.bytes(),
        };
        let mut label = self.label.locked();
        if let Some((_, label)) = label.as_ref().filter(|(read, _)| read == info) {
            return Some(label.clone());
        }
        let called = Arc::from(sanitize(&called(Raw::scan(info, info.len()).ok()?)?));
        // A long `clientInfo` is not cached.
        if info.len() <= MAX_CACHED_INFO {
            *label = Some((Bytes::copy_from_slice(info), Arc::clone(&called)));
        }
        Some(called)
    }

    pub fn era(&self) -> Era {
        self.revision.era()
    }
}

/// The capabilities that a modern client declares with each request.
pub(crate) fn declared(message: &Message) -> ClientCapabilities {
    let capabilities = message.meta(meta::CLIENT_CAPABILITIES).filter(|raw| raw.is_object());
    capabilities.map(ClientCapabilities::read).unwrap_or_default()
}

/// The client info and capabilities of `initialize`, for all requests of its session.
#[derive(Debug, Default)]
pub(crate) struct ClientStatement {
    pub(crate) info: Option<Bytes>,
    pub(crate) capabilities: Option<Bytes>,
}

/// Maximum size of `clientInfo` and of `capabilities`, which a session stores.
const MAX_STATED_BYTES: usize = 16 << 10;

impl ClientStatement {
    /// The error names the member that is too long.
    pub(crate) fn of(initialize: &Message) -> Result<ClientStatement, String> {
        let member = |name: &str| {
            let Some(raw) = initialize.param(name).filter(|raw| raw.is_object()) else {
                return Ok(None);
            };
            match raw.bytes() {
                bytes if bytes.len() <= MAX_STATED_BYTES => Ok(Some(Bytes::copy_from_slice(bytes))),
                bytes => {
                    let length = bytes.len();
                    Err(format!("`{name}` has {length} bytes, and the limit is {MAX_STATED_BYTES}"))
                }
            }
        };
        Ok(ClientStatement { info: member("clientInfo")?, capabilities: member("capabilities")? })
    }
}

/// Maximum size of a `clientInfo` that is cached.
const MAX_CACHED_INFO: usize = 4096;

fn called(info: Raw<'_>) -> Option<String> {
    let name = info.member("name")?.as_str()?;
    Some(match info.member("version").and_then(|version| version.as_str()) {
        Some(version) => format!("{name} {version}"),
        None => name.into_owned(),
    })
}
