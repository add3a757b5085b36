//! Tickets, which wait for a person, and grants, which a person gave.

use std::sync::Arc;

use super::keys::{Keys, Tag};

/// A record that is this much newer than the clock, in microseconds, was made before the clock was turned back, and is
/// void: it could live longer than it should. Less than that is a difference between the clocks of two gateways.
pub(super) const CLOCK_TOLERANCE: u64 = 60_000_000;

/// The subject of an approval: whose call of what, under which definition and rules. A grant is valid for exactly one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subject {
    pub agent: Option<Arc<str>>,
    /// A digest of the holder of a JWT; two holders are different callers, even if both are the same agent.
    pub holder: Option<String>,
    pub server: String,
    pub method: String,
    /// The server's own name of the tool, prompt or resource.
    pub name: String,
    /// A digest of its definition.
    pub definition: String,
    /// Digests of the entries that ask, in the order of their layers.
    pub entries: Vec<String>,
    /// Digests of the server's command line or URL, and of the agent's credentials. An approval is void for another
    /// program under the same name, and for an agent that was revoked and created again.
    pub origin: String,
}

impl Subject {
    /// The tool of the caller, whatever its definition and rules are.
    fn tool_tag(&self, keys: &Keys) -> Tag {
        let named = [u8::from(self.agent.is_some())];
        let agent = self.agent.as_deref().unwrap_or_default();
        let holder = self.holder.as_deref().unwrap_or_default();
        let parts = [agent, holder, &self.server, &self.method, &self.name].map(str::as_bytes);
        let [agent, holder, server, method, name] = parts;
        keys.tag(&[b"tool", &named, agent, holder, server, method, name])
    }

    fn tag(&self, keys: &Keys, tool: &Tag) -> Tag {
        let entries = self.entries.iter().map(String::as_bytes);
        let first = [&b"subject"[..], tool, self.definition.as_bytes(), self.origin.as_bytes()];
        keys.tag(&first.into_iter().chain(entries).collect::<Vec<_>>())
    }
}

/// A call, as approvals recognize it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Binding {
    pub subject: Subject,
    /// The caller and the tool, whatever its definition and rules are.
    pub(super) tool_tag: Tag,
    pub(super) subject_tag: Tag,
    /// The subject and all forwarded parameters.
    pub(super) call: Tag,
    /// The top-level arguments, each by its name and the hash of its value. Empty if nothing needs them.
    pub(super) arguments: Vec<(String, Tag)>,
}

impl Binding {
    /// A call without its arguments; `params` are in canonical form.
    pub(super) fn new(keys: &Keys, subject: Subject, params: &[u8]) -> Binding {
        let tool_tag = subject.tool_tag(keys);
        let subject_tag = subject.tag(keys, &tool_tag);
        let call = keys.tag(&[b"call", &subject_tag, params]);
        Binding { subject, tool_tag, subject_tag, call, arguments: Vec::new() }
    }

    /// Adds the arguments, with their values in canonical form.
    pub(super) fn add_arguments(
        &mut self,
        keys: &Keys,
        arguments: impl IntoIterator<Item = (String, Vec<u8>)>,
    ) {
        let argument = |(name, value): (String, Vec<u8>)| {
            let tag = keys.tag(&[b"argument", name.as_bytes(), &value]);
            (name, tag)
        };
        self.arguments = arguments.into_iter().map(argument).collect();
    }

    /// The names of the top-level arguments.
    pub fn argument_names(&self) -> impl Iterator<Item = &str> {
        self.arguments.iter().map(|(name, _)| name.as_str())
    }
}

/// An entry that asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AskedBy {
    /// Its path in its file.
    pub path: String,
    /// Its text.
    pub written: String,
    /// `file:line:column`.
    pub location: String,
    /// The admins that can approve; empty: anyone who may approve calls of the tool.
    pub approvers: Vec<String>,
}

/// A call that waits for a person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ticket {
    /// For approvers only.
    pub id: String,
    /// For the agent. It approves nothing.
    pub reference: String,
    pub binding: Binding,
    /// The name that the client used.
    pub exposed: String,
    /// The `sub` claim of the caller.
    pub holder_name: Option<String>,
    pub rules: Vec<AskedBy>,
    /// In microseconds since 1970.
    pub created: u64,
    pub expires: u64,
    /// The beginning of the parameters, encrypted. `None` once the ticket is decided.
    pub(super) sealed: Option<Vec<u8>>,
    /// The length of all parameters in bytes.
    pub bytes: usize,
    pub state: TicketState,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TicketState {
    Pending,
    Approved { grant: String },
    Denied { reason: Option<String> },
}

impl Ticket {
    pub fn is_pending(&self) -> bool {
        self.state == TicketState::Pending
    }
}

/// A permission that a person gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    pub id: String,
    pub subject: Subject,
    pub(super) tool_tag: Tag,
    pub(super) subject_tag: Tag,
    pub scope: GrantScope,
    /// It is used up by one call.
    pub once: bool,
    pub created: u64,
    pub expires: u64,
    /// The approver, and how they approved.
    pub by: String,
    pub channel: String,
    pub ticket: String,
}

/// The calls of a subject that a grant covers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GrantScope {
    /// One call with exactly these parameters.
    Call(Tag),
    /// Calls with these values of some arguments.
    Arguments(Vec<(String, Tag)>),
    /// All calls.
    Tool,
}

impl Grant {
    /// Whether it covers a call. A grant from the future is not valid: the clock was changed.
    pub(super) fn covers(&self, binding: &Binding, now: u64) -> bool {
        let in_scope = || match &self.scope {
            GrantScope::Call(call) => *call == binding.call,
            GrantScope::Arguments(wanted) => {
                wanted.iter().all(|wanted| binding.arguments.contains(wanted))
            }
            GrantScope::Tool => true,
        };
        self.created <= now.saturating_add(CLOCK_TOLERANCE)
            && now < self.expires
            && self.subject_tag == binding.subject_tag
            && in_scope()
    }

    /// The scope in words.
    pub fn scope_words(&self) -> String {
        match &self.scope {
            GrantScope::Call(_) => "this call".into(),
            GrantScope::Tool => "all calls".into(),
            GrantScope::Arguments(arguments) => {
                let names: Vec<&str> = arguments.iter().map(|(name, _)| name.as_str()).collect();
                format!("calls with the same {}", names.join(", "))
            }
        }
    }
}
