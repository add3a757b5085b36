//! Per-agent tool views: what an agent may see and call.
//!
//! A view is the filtered, renamed tool list of one agent: every server it may use, every tool the policy lists
//! for it. Listing and calling come from the same policy cells, so that a listed tool and an allowed call cannot
//! disagree. What is hidden from the agent is not in its view at all: a hidden name reads like one that does not
//! exist.
//!
//! | module | contains |
//! |---|---|
//! | [`build`] | building a view from tool lists and policy |
//! | [`cache`] | views by what they depend on, and the views a client holds |
//! | [`changes`] | `list_changed` notifications |
//! | [`discovery`] | how agents find tools: in lists, or step by step with the meta tools |
//! | [`names`] | names of tools where a client sees several servers |
//! | [`search_index`] | full-text search over a view |
//! | [`unlisted`] | explanations of denied calls to unlisted names, for the audit log alone |

pub mod build;
pub(crate) mod cache;
pub(crate) mod changes;
pub mod discovery;
pub mod names;
pub(crate) mod search_index;
pub(crate) mod unlisted;

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use hashbrown::HashMap;
use toolward_policy::allowed::Allowed;
use toolward_policy::call::stated_action;
use toolward_policy::reason::About;
use toolward_policy::{Call, Cell, Policy, Verdict};
use toolward_wire::headers::ParamHeaders;
use toolward_wire::{Message, Raw};

use self::discovery::Discovery;
use self::names::Claims;
use self::search_index::{Described, Index};
use crate::audit::redact::outside;
use crate::client::Caller;
use crate::guard::{Guards, Plan};
use crate::metrics::rule_hits::Hits;
use crate::permit::{CallDecision, DecidedCall, DeniedCall, Explanation, Permit, RawArguments};
use crate::upstream::{Server, Unavailable};

/// The part of the active configuration that views and decisions are made from.
#[derive(Clone, Copy)]
pub struct Rules<'a> {
    pub policy: &'a Policy,
    pub guards: &'a Guards,
    pub hits: &'a Hits,
    pub discovery: &'a Discovery,
    /// False: denied calls are recorded and forwarded.
    pub enforced: bool,
}

/// What one agent may see of the servers it may use.
#[derive(Debug)]
pub struct View {
    shown: HashMap<Box<str>, ListedTool>,
    array: Bytes,
    allowed: Allowed,
    servers: Vec<ServerView>,
    /// A hash of everything that is shown and removed.
    id: String,
    /// What came of each server, for clients that see several.
    outcomes: Bytes,
    /// For how long a client may keep the list.
    ttl_ms: u64,
    /// Who the only server says it is, beside its list.
    server_info: Option<Bytes>,
    /// False: denied calls are recorded and forwarded.
    enforced: bool,
    /// The search index, built at first use.
    index: OnceLock<Index>,
    /// Keeps the names of its tools from other tools.
    _claims: Vec<Claims>,
}

/// A tool under the name that clients use.
#[derive(Debug)]
struct ListedTool {
    /// The server's place in the view.
    at: usize,
    original: Box<str>,
    cell: Cell,
    headers: Option<ParamHeaders>,
    /// The explanation of a decision that does not depend on the call.
    settled: Option<Arc<Explanation>>,
    /// The guards in front of its calls.
    plan: Option<Arc<Plan>>,
}

/// What a view has of one server.
#[derive(Debug)]
pub struct ServerView {
    pub name: Box<str>,
    pub offered: usize,
    /// Names that clients use.
    pub shown: Vec<String>,
    /// Names that the server offers and the agent does not see; for the record only.
    pub removed: Vec<String>,
    pub unavailable: Option<Unavailable>,
    server: Arc<Server>,
    /// What is shown, where tools are found step by step: one definition each, in their order.
    entries: Vec<Bytes>,
}

impl ServerView {
    pub(crate) fn entries(&self) -> &[Bytes] {
        &self.entries
    }
}

/// An authorized call with the server it goes to and the guards in front of it.
#[derive(Debug)]
pub struct Authorization {
    pub(crate) permit: Permit,
    pub(crate) server: Arc<Server>,
    pub(crate) plan: Option<Arc<Plan>>,
}

impl View {
    /// The tools as a JSON array: the servers' own bytes, but for what the gateway owns.
    pub fn array(&self) -> &Bytes {
        &self.array
    }

    /// Who the server says it is, if there is only one.
    pub fn server_info(&self) -> Option<&Bytes> {
        self.server_info.as_ref()
    }

    /// A JSON object with one word for each server.
    pub fn outcomes(&self) -> &Bytes {
        &self.outcomes
    }

    /// For how long a client may keep the list, in milliseconds.
    pub fn ttl_ms(&self) -> u64 {
        self.ttl_ms
    }

    pub fn servers(&self) -> &[ServerView] {
        &self.servers
    }

    /// What identifies the view in the record.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The words of what is shown.
    pub(crate) fn index(&self) -> &Index {
        self.index.get_or_init(|| {
            let definition = |bytes: &Bytes| Raw::scan(bytes, bytes.len()).ok().map(Raw::to_json);
            let mut definitions = Vec::new();
            for (at, of) in self.servers.iter().enumerate() {
                let of_server = of.entries.iter().enumerate();
                definitions.extend(
                    of_server.filter_map(|(tool, bytes)| {
                        Some(((at, tool), &*of.name, definition(bytes)?))
                    }),
                );
            }
            Index::new(definitions.iter().map(|(at, server, definition)| Described {
                at: *at,
                server,
                definition,
            }))
        })
    }

    /// Limits that can stand over calls of what is shown, by their places.
    pub(crate) fn limits(&self, guards: &Guards) -> Vec<usize> {
        let shown = self.shown.values();
        shown.flat_map(|seen| guards.over(seen.plan.as_deref(), &seen.cell.all_limits())).collect()
    }

    /// What the agent can call, for refusals.
    pub fn allowed(&self) -> &Allowed {
        &self.allowed
    }

    pub fn has(&self, name: &str) -> bool {
        self.shown.contains_key(name)
    }

    /// Whether every server's list is in it.
    pub fn is_complete(&self) -> bool {
        self.servers.iter().all(|server| server.unavailable.is_none())
    }

    /// The headers that a call of a tool carries over HTTP.
    pub fn headers(&self, name: &str) -> Option<&ParamHeaders> {
        self.shown.get(name)?.headers.as_ref()
    }

    /// The first server whose tool list is not known.
    pub(crate) fn unavailable(&self) -> Option<(&str, &Unavailable)> {
        self.servers().iter().find_map(|of| Some((&*of.name, of.unavailable.as_ref()?)))
    }

    /// Decides about a call.
    pub fn decide(
        &self,
        rules: Rules<'_>,
        caller: &Caller,
        name: &str,
        message: Message,
    ) -> Result<Authorization, Box<DeniedCall>> {
        let policy = rules.policy;
        let arguments = message.arguments().map(RawArguments);
        let call = Call { action: None, arguments: arguments.as_ref().map(|given| given as _) };
        let listed = self.shown.get(name);
        let Some((tool, of)) = listed.and_then(|tool| Some((tool, self.servers.get(tool.at)?)))
        else {
            // The tool's own action keys would show that a hidden tool exists.
            let action = stated_action(&call);
            return Err(Box::new(DeniedCall { why: None, action, decision: None, message }));
        };
        let action = tool.cell.stated_action(&call);
        let (server, subject) = (&*of.name, &*tool.original);
        let decision = tool.cell.decide(caller.policy(), &call);
        // It goes into the audit log, which shortens the caller's own text.
        let stated = action.as_deref().map(outside);
        let agent = caller.agent.as_deref();
        let about = About { agent, server, subject, action: stated.as_deref() };
        let explanation = match &tool.settled {
            Some(settled) if action.is_none() => settled.clone(),
            _ => Explanation::new(policy, rules.hits, &decision, about),
        };
        let why = (decision.verdict != Verdict::Allow)
            .then(|| policy.why(&tool.cell, caller.policy(), &call, decision));
        let explanation = match &why {
            Some(why) => explanation.because(&policy.reason_why(why, about)),
            None => explanation,
        };
        let limited = tool.cell.limits(caller.policy(), &call).into_owned();
        let headers = tool.headers.as_ref().map(|marks| marks.make(message.arguments()));
        let original = tool.original.clone();
        let decision = CallDecision { server: server.into(), original, decision, explanation };
        let decided = DecidedCall {
            decision,
            why,
            server: of.server.id,
            exposed: name.into(),
            action,
            message,
            headers: headers.unwrap_or_default(),
            limited,
        };
        let permit = Permit::issue(decided, self.enforced)?;
        Ok(Authorization { permit, server: of.server.clone(), plan: tool.plan.clone() })
    }
}
