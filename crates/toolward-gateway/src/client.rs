//! The client of a request: its agent, how that was authenticated, the servers in its scope, its revision.

mod claims;

use std::borrow::Cow;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use bytes::Bytes;
use toolward_wire::{Era, Message, Raw, Revision, meta};

use crate::lock::LockUnpoisoned;

pub use self::claims::Claims;

/// The agent behind a request, as the gateway established it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Caller {
    pub agent: Option<Arc<str>>,
    /// How the name was established.
    pub identity: &'static str,
    /// What a JWT says of whoever holds it.
    pub claims: Option<Arc<Claims>>,
}

impl Caller {
    /// A caller of whom nothing but the name is known.
    pub fn new(agent: Option<Arc<str>>, identity: &'static str) -> Caller {
        Caller { agent, identity, claims: None }
    }

    /// The caller as policy sees it.
    pub fn policy(&self) -> toolward_policy::Caller<'_> {
        let claims = self.claims.as_ref().and_then(|claims| claims.for_policy());
        toolward_policy::Caller { agent: self.agent.as_deref(), claims }
    }

    /// The person or program behind the agent's name, as the issuer calls it.
    pub fn subject(&self) -> Option<&str> {
        self.claims.as_ref()?.subject()
    }
}

/// Identifies a server for as long as the process lives. Never reused: a removed server's id names nothing.
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
    /// All servers but the gateway's own, which reaches them for its client.
    Discovery,
}

/// Whom a link to a server belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Owner {
    Everyone,
    Session(u128),
    Agent(Option<Arc<str>>),
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
    /// What the client said it can do, where it said so once for all requests.
    pub capabilities: Option<Bytes>,
    /// When it began.
    pub(crate) since: Instant,
    /// How a `clientInfo` calls the program, for the one that was read last.
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
            since: Instant::now(),
            label: Mutex::default(),
        }
    }

    /// The same client with another scope.
    pub(crate) fn with_scope(&self, scope: Scope) -> Client {
        let (caller, owner) = (self.caller.clone(), self.owner.clone());
        let client = Client::new(caller, scope, self.revision, owner);
        let (info, capabilities) = (self.info.clone(), self.capabilities.clone());
        Client { info, capabilities, ..client }
    }

    /// The name and version in `clientInfo`, sanitized for the audit log. They decide nothing.
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
        // Whoever sends something long sends it for itself alone.
        if info.len() <= MOST_KEPT {
            *label = Some((Bytes::copy_from_slice(info), Arc::clone(&called)));
        }
        Some(called)
    }

    pub fn era(&self) -> Era {
        self.revision.era()
    }
}

/// What a client says of itself in `initialize`, for all requests of its session.
#[derive(Debug, Default)]
pub(crate) struct Stated {
    pub(crate) info: Option<Bytes>,
    pub(crate) capabilities: Option<Bytes>,
}

/// The longest `clientInfo`, and the longest `capabilities`: a session keeps them.
const MAX_STATED: usize = 16 << 10;

impl Stated {
    /// An error names the member that is too long.
    pub(crate) fn of(initialize: &Message) -> Result<Stated, String> {
        let member = |name: &str| {
            let Some(raw) = initialize.param(name).filter(|raw| raw.is_object()) else {
                return Ok(None);
            };
            match raw.bytes() {
                bytes if bytes.len() <= MAX_STATED => Ok(Some(Bytes::copy_from_slice(bytes))),
                bytes => {
                    let length = bytes.len();
                    Err(format!("`{name}` has {length} bytes, and at most {MAX_STATED} are kept"))
                }
            }
        };
        Ok(Stated { info: member("clientInfo")?, capabilities: member("capabilities")? })
    }
}

/// The longest `clientInfo` that is kept to be known again.
const MOST_KEPT: usize = 4096;

fn called(info: Raw<'_>) -> Option<String> {
    let name = info.member("name")?.as_str()?;
    Some(match info.member("version").and_then(|version| version.as_str()) {
        Some(version) => format!("{name} {version}"),
        None => name.into_owned(),
    })
}
