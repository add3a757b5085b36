//! Per-agent views: what an agent may see and use.
//!
//! A view is the filtered, renamed list of one agent and one kind (tools, prompts, resources or templates): every
//! server it may use, every entry the policy lists for it. Listing and calling use the same policy cells, so that a
//! listed tool and an allowed call cannot disagree. Hidden entries are not in the view at all: a hidden name is
//! treated like one that does not exist.
//!
//! | module | contains |
//! |---|---|
//! | [`build`] | building a view from tool lists and policy |
//! | [`cache`] | cached views, and the views a client holds |
//! | [`changes`] | `list_changed` notifications |
//! | [`discovery`] | how agents find tools: in lists, or step by step with the meta tools |
//! | [`names`] | names of tools and prompts for clients of several servers |
//! | [`resources`] | the server that owns a resource URI |
//! | [`search_index`] | full-text search over a view |
//! | `size` | the memory of a view |
//! | [`unlisted`] | explanations of denied calls to unlisted names, only for the audit log |

pub mod build;
pub(crate) mod cache;
pub(crate) mod changes;
pub mod discovery;
pub mod names;
pub(crate) mod resources;
pub(crate) mod search_index;
mod size;
pub(crate) mod unlisted;

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use hashbrown::HashMap;
use toolward_policy::allowed::Allowed;
use toolward_policy::call::stated_action;
use toolward_policy::reason::About;
use toolward_policy::{Call, Cell, Decision, Policy, Verdict};
use toolward_wire::headers::ParamHeaders;
use toolward_wire::list::ListKind;
use toolward_wire::{Message, Raw};

use self::discovery::Discovery;
use self::names::Claims;
use self::search_index::{Index, ToolDocument};
use crate::audit::redact::outside;
use crate::client::Caller;
use crate::guard::pins::Pins;
use crate::guard::{Guards, Plan};
use crate::metrics::rule_hits::Hits;
use crate::permit::{
    Asks, CallDecision, DecidedCall, DeniedCall, Explanation, Permit, RawArguments, Would,
};
use crate::upstream::{Server, Unavailable};

/// The part of the active configuration that views and decisions depend on.
#[derive(Clone, Copy)]
pub struct Rules<'a> {
    pub policy: &'a Policy,
    /// The policy with its shadow entries and layers, if it has any.
    pub shadow: Option<&'a Policy>,
    pub pins: &'a Pins,
    pub guards: &'a Guards,
    pub hits: &'a Hits,
    pub discovery: &'a Discovery,
    /// False: denied calls are recorded and forwarded.
    pub enforced: bool,
}

/// The entries of one kind that one agent may see, on the servers it may use.
#[derive(Debug)]
pub struct View {
    kind: ListKind,
    /// Boxed, because most views of many agents are small and a map has free slots.
    shown: HashMap<Box<str>, Box<ListedEntry>>,
    array: Bytes,
    /// The positions in `array` at which pages begin; one more at its end.
    page_starts: Vec<usize>,
    allowed: Allowed,
    servers: Vec<ServerView>,
    /// A hash of all shown and removed names.
    id: String,
    /// The outcome of each server, for clients that see several.
    outcomes: Bytes,
    /// How long a client may cache the list.
    ttl_ms: u64,
    /// The server info that came with the list, if there is only one server.
    server_info: Option<Bytes>,
    /// False: denied calls are recorded and forwarded.
    enforced: bool,
    /// The search index, built at first use.
    index: OnceLock<Index>,
    /// Reserves the names of its tools.
    _claims: Vec<Claims>,
}

/// An entry under the name that clients use, or under its normalized URI.
#[derive(Debug)]
struct ListedEntry {
    /// The server's index in the view.
    at: usize,
    original: Box<str>,
    cell: Cell,
    /// The cell for the hints of the tool's other definition, approved or current. The stricter decision counts.
    other_cell: Option<Cell>,
    /// The cell of the policy with its shadow rules.
    shadow_cell: Option<Cell>,
    headers: Option<ParamHeaders>,
    /// The tool can only be called as a task.
    needs_task: bool,
    /// The explanation of a decision that does not depend on the call.
    settled: Option<Arc<Explanation>>,
    /// The guards in front of its calls.
    plan: Option<Arc<Plan>>,
    /// A digest of its definition, if a rule may ask about its calls.
    definition: Option<Arc<str>>,
}

impl ListedEntry {
    /// The stricter of the decisions that the approved and the current hints lead to, with its cell.
    fn decide(&self, caller: &Caller, call: &Call<'_>) -> (&Cell, Decision) {
        let decision = self.cell.decide(caller.policy(), call);
        match &self.other_cell {
            None => (&self.cell, decision),
            Some(other) => match other.decide(caller.policy(), call) {
                stricter if stricter.verdict > decision.verdict => (other, stricter),
                _ => (&self.cell, decision),
            },
        }
    }
}

/// The part of a view that belongs to one server.
#[derive(Debug)]
pub struct ServerView {
    pub name: Box<str>,
    pub offered: usize,
    /// Names that clients use.
    pub shown: Vec<String>,
    /// Names that the server offers and that are hidden from the agent; only for the audit log.
    pub removed: Vec<String>,
    /// Names that shadow rules would hide, or show, in addition.
    pub would_hide: Vec<String>,
    pub would_show: Vec<String>,
    /// How many of the removed entries are quarantined.
    pub quarantined: usize,
    pub unavailable: Option<Unavailable>,
    server: Arc<Server>,
    /// The shown definitions in order, for progressive discovery.
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
    pub fn kind(&self) -> ListKind {
        self.kind
    }

    /// The shown entries as a JSON array: the servers' own bytes, except for the members that the gateway sets.
    pub fn array(&self) -> &Bytes {
        &self.array
    }

    /// The entries of a page, separated by commas, and whether another page follows. `None` if there is no such page.
    pub(crate) fn page(&self, page: usize) -> Option<(Bytes, bool)> {
        let (start, end) = (*self.page_starts.get(page)?, *self.page_starts.get(page + 1)?);
        let last = page + 2 == self.page_starts.len();
        // The comma, or the bracket, after the last entry is not part of the page.
        Some((self.array.slice(start..(end - 1).max(start)), !last))
    }

    /// The server info, if there is only one server.
    pub fn server_info(&self) -> Option<&Bytes> {
        self.server_info.as_ref()
    }

    /// A JSON object with the outcome of each server.
    pub fn outcomes(&self) -> &Bytes {
        &self.outcomes
    }

    /// How long a client may cache the list, in milliseconds.
    pub(crate) fn ttl_ms(&self) -> u64 {
        self.ttl_ms
    }

    pub fn servers(&self) -> &[ServerView] {
        &self.servers
    }

    /// The id of the view in the audit log.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The search index over the shown tools.
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
            Index::new(definitions.iter().map(|(at, server, definition)| ToolDocument {
                at: *at,
                server,
                definition,
            }))
        })
    }

    /// The indices of the rate limits that can apply to calls of the shown tools.
    pub(crate) fn limits(&self, guards: &Guards) -> Vec<usize> {
        let shown = self.shown.values();
        shown.flat_map(|seen| guards.over(seen.plan.as_deref(), &seen.cell.all_limits())).collect()
    }

    /// The tools that the agent can call, for refusals.
    pub fn allowed(&self) -> &Allowed {
        &self.allowed
    }

    pub fn has(&self, name: &str) -> bool {
        self.shown.contains_key(name)
    }

    /// The name that clients use for an entry of a server.
    pub(crate) fn exposed_name(&self, server: &str, original: &str) -> Option<&str> {
        let at = self.servers.iter().position(|of| *of.name == *server)?;
        let is = |entry: &ListedEntry| entry.at == at && *entry.original == *original;
        self.shown.iter().find(|(_, entry)| is(entry)).map(|(name, _)| &**name)
    }

    /// The names that clients use, or normalized URIs.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.shown.keys().map(|name| &**name)
    }

    /// Whether it has the list of every server.
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

    /// Decides about a call of a tool, or a request for a prompt.
    pub fn decide(
        &self,
        rules: Rules<'_>,
        caller: &Caller,
        name: &str,
        message: Message,
    ) -> Result<Authorization, Box<DeniedCall>> {
        match self.shown.get(name) {
            Some(listed) => self.decide_entry(rules, caller, (name, listed), message),
            None => Err(unlisted(message)),
        }
    }

    /// Decides about a completion, which follows the prompt or template that it refers to: it is allowed if that is
    /// listed, unless a person has to approve each use.
    pub(crate) fn decide_reference(
        &self,
        rules: Rules<'_>,
        caller: &Caller,
        name: &str,
        message: Message,
    ) -> Result<Authorization, Box<DeniedCall>> {
        self.decide_following(rules, caller, (name, None), message)
    }

    /// Decides about a request that follows a listed entry: it is allowed if that is listed. `other` is what is
    /// requested, as the client and the server call it, if it is not the entry itself.
    pub(crate) fn decide_following(
        &self,
        rules: Rules<'_>,
        caller: &Caller,
        (name, other): (&str, Option<(&str, &str)>),
        message: Message,
    ) -> Result<Authorization, Box<DeniedCall>> {
        let Some(listed) = self.shown.get(name) else { return Err(unlisted(message)) };
        let Some(of) = self.servers.get(listed.at) else { return Err(unlisted(message)) };
        let listing = listed.cell.list(caller.policy()).decision;
        let shadow = rules.shadow.zip(listed.shadow_cell.as_ref());
        let would = shadow.and_then(|(shadow, cell)| {
            let would = cell.list(caller.policy()).decision;
            let denies = would.verdict == Verdict::Deny && listing.verdict != Verdict::Deny;
            denies.then(|| Would::instead_of(&listing, shadow, would)).flatten()
        });
        // A task was approved when it was made. Values of a prompt that no one approved are not shown.
        let verdict = match (listing.verdict, other) {
            (Verdict::Ask, None) => Verdict::Ask,
            _ => Verdict::Allow,
        };
        let decision = Decision { verdict, ..listing };
        let (agent, server, subject) = (caller.agent.as_deref(), &*of.name, &*listed.original);
        let about = About { agent, server, subject, action: None };
        let explanation = Explanation::new(rules.policy, rules.hits, &decision, about);
        let original = other.map_or_else(|| listed.original.clone(), |(_, theirs)| theirs.into());
        let decided = DecidedCall {
            decision: CallDecision {
                server: server.into(),
                original,
                decision,
                explanation,
                would,
            },
            why: None,
            server: of.server.id,
            exposed: other.map_or(name, |(ours, _)| ours).into(),
            action: None,
            message,
            headers: Vec::new(),
            limited: Vec::new(),
            asks: Asks::default(),
            needs_task: false,
            made_by: other.map(|_| listed.original.clone()),
        };
        let permit = Permit::issue(decided, self.enforced)?;
        // Completions count as neither calls nor refusals.
        Ok(Authorization { permit, server: of.server.clone(), plan: None })
    }

    fn decide_entry(
        &self,
        rules: Rules<'_>,
        caller: &Caller,
        (name, listed): (&str, &ListedEntry),
        message: Message,
    ) -> Result<Authorization, Box<DeniedCall>> {
        let policy = rules.policy;
        let Some(of) = self.servers.get(listed.at) else { return Err(unlisted(message)) };
        let arguments = message.arguments().map(RawArguments);
        let call = Call { action: None, arguments: arguments.as_ref().map(|given| given as _) };
        let has_actions = self.kind == ListKind::Tools;
        let (cell, decision) = listed.decide(caller, &call);
        let action = cell.stated_action(&call).filter(|_| has_actions);
        let (server, subject) = (&*of.name, &*listed.original);
        let would = rules.shadow.zip(listed.shadow_cell.as_ref()).and_then(|(shadow, cell)| {
            Would::instead_of(&decision, shadow, cell.decide(caller.policy(), &call))
        });
        // For the audit log, where caller-supplied text is shortened.
        let stated = action.as_deref().map(outside);
        let agent = caller.agent.as_deref();
        let about = About { agent, server, subject, action: stated.as_deref() };
        let explanation = match &listed.settled {
            Some(settled) if action.is_none() => settled.clone(),
            _ => Explanation::new(policy, rules.hits, &decision, about),
        };
        let asks = match decision.verdict {
            Verdict::Ask => Asks {
                rules: cell.asks(caller.policy(), &call),
                definition: listed.definition.clone(),
            },
            _ => Asks::default(),
        };
        let why = (decision.verdict == Verdict::Deny)
            .then(|| policy.why(cell, caller.policy(), &call, decision));
        let explanation = match &why {
            Some(why) => explanation.because(&policy.reason_why(why, about)),
            None => explanation,
        };
        let limited = cell.limits(caller.policy(), &call).into_owned();
        let headers = listed.headers.as_ref().map(|marks| marks.make(message.arguments()));
        let original = listed.original.clone();
        let decision =
            CallDecision { server: server.into(), original, decision, explanation, would };
        let decided = DecidedCall {
            decision,
            why,
            server: of.server.id,
            exposed: name.into(),
            action,
            message,
            headers: headers.unwrap_or_default(),
            limited,
            asks,
            needs_task: listed.needs_task,
            made_by: None,
        };
        let permit = Permit::issue(decided, self.enforced)?;
        Ok(Authorization { permit, server: of.server.clone(), plan: listed.plan.clone() })
    }
}

/// The denial of a name that the agent's listing does not contain. The action is that of the default keys: a tool's
/// own action keys would show that it exists.
fn unlisted(message: Message) -> Box<DeniedCall> {
    let arguments = message.arguments().map(RawArguments);
    let call = Call { action: None, arguments: arguments.as_ref().map(|given| given as _) };
    let action = stated_action(&call);
    Box::new(DeniedCall { why: None, action, decision: None, message })
}
