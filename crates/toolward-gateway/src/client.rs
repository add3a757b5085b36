//! Who asks: the agent, how it was identified, what it may reach, and in which revision it speaks.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use bytes::Bytes;
use toolward_wire::{Era, Revision};

use crate::decide::View;

/// The agent behind a request, as the gateway established it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Caller {
    pub agent: Option<Arc<str>>,
    /// How the name was established.
    pub identity: &'static str,
}

impl Caller {
    /// The caller as policy sees it.
    pub fn policy(&self) -> toolward_policy::Caller<'_> {
        toolward_policy::Caller { agent: self.agent.as_deref(), claims: None }
    }
}

/// Which servers a client can reach, by the address it uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scope {
    /// All servers; tools are named after their server.
    All,
    /// One server, by its index; names stay as they are.
    One(usize),
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
    held: Mutex<Held>,
}

/// What is known of a client's sight.
#[derive(Debug, Default)]
pub(crate) struct Held {
    pub(crate) view: Option<HeldView>,
    /// The list that the client has been told last.
    pub(crate) told: Option<Arc<View>>,
}

#[derive(Debug, Clone)]
pub(crate) struct HeldView {
    pub(crate) view: Arc<View>,
    /// The count of changes at which it was made.
    pub(crate) generation: u64,
    pub(crate) fresh_until: Option<Instant>,
}

impl Client {
    pub fn new(caller: Caller, scope: Scope, revision: Revision, owner: Owner) -> Client {
        Client { caller, scope, revision, owner, info: None, held: Mutex::default() }
    }

    pub fn era(&self) -> Era {
        self.revision.era()
    }

    pub(crate) fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
