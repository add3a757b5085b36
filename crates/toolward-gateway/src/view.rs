//! What an agent may see and call. Listing and calling come from the same cells.

pub mod names;
pub(crate) mod search_index;
pub(crate) mod unlisted;

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use hashbrown::HashMap;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use toolward_policy::allowed::{Allowed, Offer};
use toolward_policy::call::stated_action;
use toolward_policy::reason::About;
use toolward_policy::why::Why;
use toolward_policy::{
    Arguments, Call, Cell, Decision, LimitedRule, Listing, Row, ToolSet, Verdict,
};
use toolward_wire::headers::ParamHeaders;
use toolward_wire::{Message, MethodRow, Raw, list};

use self::names::{Claims, Naming};
use self::search_index::{Described, Index};
use crate::active::Snapshot;
use crate::audit::facts::Facts;
use crate::audit::redact::outside;
use crate::client::Caller;
use crate::guard::{Guards, Plan};
use crate::metrics::rule_hits::Place;
use crate::upstream::catalogue::Catalogue;
use crate::upstream::{Outgoing, Server, Unavailable};

/// What one agent may see of the servers it may use. What is hidden from it is not in here.
#[derive(Debug)]
pub struct View {
    shown: HashMap<Box<str>, Seen>,
    array: Bytes,
    allowed: Allowed,
    servers: Vec<OfServer>,
    /// A hash of everything that is shown and removed.
    id: String,
    /// What came of each server, for clients that see several.
    outcomes: Bytes,
    /// For how long a client may keep the list.
    ttl_ms: u64,
    /// Who the only server says it is, beside its list.
    server_info: Option<Bytes>,
    /// False: what the policy refuses passes.
    enforced: bool,
    /// The words of what is shown, once somebody searches.
    index: OnceLock<Index>,
    /// Keeps the names of its tools from other tools.
    _claims: Vec<Claims>,
}

/// No client keeps a list for longer.
const LONGEST_TTL_MS: u64 = 5_000;

/// A tool under the name that clients use.
#[derive(Debug)]
struct Seen {
    /// The server's place in the view.
    at: usize,
    original: Box<str>,
    cell: Cell,
    headers: Option<ParamHeaders>,
    /// What is said of a decision that does not depend on the call.
    settled: Option<Arc<Words>>,
    /// What stands in front of its calls.
    plan: Option<Arc<Plan>>,
}

/// A listed tool, before its entry is written.
struct Exposed {
    /// The name that clients use, and the one at the server's own address.
    name: Box<str>,
    plain: Box<str>,
    description: Option<Box<str>>,
    listing: Listing,
}

/// A decision in words.
#[derive(Debug)]
pub struct Words {
    /// Where it is counted.
    pub(crate) hit: Place,
    /// The rule that decided, by its path in its file.
    pub rule: Option<String>,
    /// The rule as written, and where.
    pub text: Option<(String, String)>,
    pub reason: String,
    /// The same as it is recorded, once it has been.
    recorded: OnceLock<Facts>,
}

impl Words {
    fn new(
        hit: Place,
        rule: Option<String>,
        text: Option<(String, String)>,
        reason: String,
    ) -> Arc<Words> {
        Arc::new(Words { hit, rule, text, reason, recorded: OnceLock::new() })
    }

    /// What the record says of it.
    pub(crate) fn recorded(&self) -> &Facts {
        self.recorded.get_or_init(|| {
            let mut facts = Facts::default();
            facts.maybe("rule", self.rule.as_deref());
            // Policies change: what the rule said and where it stood is part of the decision.
            if let Some((text, at)) = &self.text {
                facts.text("rule_text", text);
                facts.text("rule_at", at);
            }
            facts.text("reason", &self.reason);
            facts
        })
    }

    /// The same, with another sentence.
    pub(crate) fn because(&self, reason: &str) -> Arc<Words> {
        Words::new(self.hit, self.rule.clone(), self.text.clone(), reason.into())
    }

    pub(crate) fn of(snapshot: &Snapshot, decision: &Decision, about: About<'_>) -> Arc<Words> {
        let policy = &snapshot.policy;
        let rule = policy.rule(decision);
        let text = rule.as_ref().map(|rule| (rule.written(), rule.location()));
        let (hit, reason) = (snapshot.hits.place(decision), policy.reason(decision, about));
        Words::new(hit, rule.map(|rule| rule.path), text, reason)
    }
}

/// What a view has of one server.
#[derive(Debug)]
pub struct OfServer {
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

impl OfServer {
    pub(crate) fn entries(&self) -> &[Bytes] {
        &self.entries
    }
}

/// A server that the agent may use, and its list or why there is none.
pub struct Part<'a> {
    pub server: &'a Arc<Server>,
    pub list: Result<Arc<Catalogue>, Unavailable>,
}

impl View {
    /// `naming` is `None` where names stay as they are.
    pub fn new(
        snapshot: &Snapshot,
        caller: &Caller,
        naming: Option<&Naming>,
        parts: &[Part<'_>],
    ) -> View {
        let policy = &snapshot.policy;
        let unknown = ToolSet::new(Vec::new());
        let row = |part: &Part<'_>| {
            let tools = part.list.as_ref().map_or(&unknown, |list| list.tools());
            policy.row(caller.agent.as_deref(), part.server.name(), tools)
        };
        let rows: Vec<Row> = parts.iter().map(row).collect();
        let mut claims = Vec::with_capacity(parts.len());
        let exposed = |(part, row): (&Part<'_>, &Row)| -> Vec<Option<Exposed>> {
            let mut claimed =
                naming.map(|naming| naming.claims(part.server.index)).unwrap_or_default();
            let all = row.iter().map(|(tool, cell)| {
                let listing = cell.list(caller.policy());
                let visible = listing.decision.verdict != Verdict::Deny || !snapshot.enforced;
                let named = (naming, &mut claimed);
                exposed(snapshot, named, part, tool.name(), listing).filter(|_| visible)
            });
            let all = all.collect();
            if let Ok(list) = &part.list {
                claimed.keep_latest(list.hash());
            }
            claims.push(claimed);
            all
        };
        let exposed: Vec<Vec<Option<Exposed>>> = parts.iter().zip(&rows).map(exposed).collect();
        let mut offers = Vec::with_capacity(parts.len());
        for ((part, row), exposed) in parts.iter().zip(&rows).zip(&exposed) {
            let server = part.server.name();
            let prefix = naming.map(|naming| naming.prefix(server)).unwrap_or_default();
            let names = exposed.iter().map(|one| one.as_ref().map(|one| one.name.clone()));
            offers.push(Offer { server, prefix, row, names: names.collect() });
        }
        let mut view = View {
            shown: HashMap::new(),
            array: Bytes::new(),
            allowed: policy.allowed(caller.policy(), &offers),
            servers: Vec::with_capacity(parts.len()),
            id: String::new(),
            outcomes: Bytes::new(),
            enforced: snapshot.enforced,
            index: OnceLock::new(),
            _claims: claims,
            server_info: match parts {
                [only] => only.list.as_ref().ok().and_then(|list| list.server_info().cloned()),
                _ => None,
            },
            ttl_ms: parts
                .iter()
                .filter_map(|part| part.list.as_ref().ok()?.ttl_ms())
                .fold(LONGEST_TTL_MS, u64::min),
        };
        let mut entries = Vec::new();
        for ((part, row), exposed) in parts.iter().zip(&rows).zip(exposed) {
            view.add(snapshot, caller, naming, (part, row, exposed), &mut entries);
        }
        view.array = list::array(entries.iter().map(|entry| &entry[..]));
        view.id = view.hash();
        view.outcomes = view.outcomes_by_server();
        view
    }

    fn add(
        &mut self,
        snapshot: &Snapshot,
        caller: &Caller,
        naming: Option<&Naming>,
        (part, row, exposed): (&Part<'_>, &Row, Vec<Option<Exposed>>),
        entries: &mut Vec<Bytes>,
    ) {
        let (policy, server) = (&snapshot.policy, part.server.name());
        let mut of_server = OfServer {
            name: server.into(),
            offered: 0,
            shown: Vec::new(),
            removed: Vec::new(),
            unavailable: part.list.as_ref().err().cloned(),
            server: part.server.clone(),
            entries: Vec::new(),
        };
        // Tools that are found step by step are shown under their servers' names for them.
        let by_address = matches!(naming, Some(Naming::Address));
        let entries_of = part.list.as_ref().map_or(&[][..], |list| list.entries());
        of_server.offered = entries_of.len();
        for (((tool, cell), entry), exposed) in row.iter().zip(entries_of).zip(exposed) {
            let Some(Exposed { name, plain, description, listing }) = exposed else {
                of_server.removed.push(tool.name().into());
                continue;
            };
            let mut edit = entry.edit();
            let shown_as = if by_address { &plain } else { &name };
            if **shown_as != *tool.name() {
                edit = edit.name(shown_as);
            }
            if let Some(description) = &description {
                edit = edit.description(description);
            }
            if let Some(actions) = listing.actions.as_ref().filter(|_| self.enforced) {
                let keep: Vec<&str> = actions.iter().map(String::as_str).collect();
                for key in policy.action_keys(server, tool.name()) {
                    edit = edit.keep_enum(key, &keep);
                }
            }
            let shown = edit.finish();
            if by_address {
                of_server.entries.push(shown.clone());
            }
            entries.push(shown);
            of_server.shown.push(name.to_string());
            let headers = part.list.as_ref().ok().and_then(|list| list.headers(tool.name()));
            let settled = cell.settled().map(|decision| {
                let (agent, subject) = (caller.agent.as_deref(), tool.name());
                Words::of(snapshot, &decision, About { agent, server, subject, action: None })
            });
            let agent = caller.agent.as_deref();
            let seen = Seen {
                plan: snapshot.guards.before(policy, agent, server, tool),
                settled,
                at: self.servers.len(),
                original: tool.name().into(),
                cell: cell.clone(),
                headers: headers.cloned(),
            };
            self.shown.insert(name, seen);
        }
        self.servers.push(of_server);
    }

    fn hash(&self) -> String {
        let mut hash = Sha256::new();
        hash.update(&self.array);
        for server in &self.servers {
            hash.update(&*server.name);
            for name in &server.removed {
                hash.update([0]);
                hash.update(name);
            }
        }
        hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect()
    }

    fn outcomes_by_server(&self) -> Bytes {
        let outcomes: Map<String, Value> = self
            .servers
            .iter()
            .map(|of| {
                (of.name.to_string(), json!(of.unavailable.as_ref().map_or("ok", |u| u.word())))
            })
            .collect();
        Value::Object(outcomes).to_string().into()
    }

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

    pub fn servers(&self) -> &[OfServer] {
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

    /// Decides about a call. A name that is not shown reads like one that does not exist.
    pub fn decide(
        &self,
        snapshot: &Snapshot,
        caller: &Caller,
        name: &str,
        message: Message,
    ) -> Result<Permit, Box<Refused>> {
        let arguments = message.arguments().map(RawArguments);
        let call = Call { action: None, arguments: arguments.as_ref().map(|given| given as _) };
        let shown = self.shown.get(name);
        let Some((seen, of_server)) =
            shown.and_then(|seen| Some((seen, self.servers.get(seen.at)?)))
        else {
            let action = stated_action(&call);
            let refused = Refused { why: None, action, decided: None, message };
            return Err(Box::new(refused));
        };
        let server = &*of_server.name;
        let action = seen.cell.stated_action(&call);
        let decision = seen.cell.decide(caller.policy(), &call);
        // What is said of it goes into the record, where a caller's own words are kept short.
        let said = action.as_deref().map(outside);
        let about = About {
            agent: caller.agent.as_deref(),
            server,
            subject: &seen.original,
            action: said.as_deref(),
        };
        let words = match &seen.settled {
            Some(words) if action.is_none() => words.clone(),
            _ => Words::of(snapshot, &decision, about),
        };
        let why = (decision.verdict != Verdict::Allow)
            .then(|| snapshot.policy.why(&seen.cell, caller.policy(), &call, decision));
        let words = match &why {
            Some(why) => words.because(&snapshot.policy.reason_why(why, about)),
            None => words,
        };
        let original = seen.original.clone();
        let decided = Decided { server: server.into(), original, decision, words };
        match decision.verdict {
            verdict if verdict == Verdict::Allow || !self.enforced => {
                let limited = seen.cell.limits(caller.policy(), &call).into_owned();
                let headers = seen.headers.as_ref().map(|marks| marks.make(message.arguments()));
                Ok(Permit {
                    server: of_server.server.clone(),
                    headers: headers.unwrap_or_default(),
                    message,
                    exposed: name.into(),
                    action,
                    decided,
                    plan: seen.plan.clone(),
                    limited,
                })
            }
            // Nobody can be asked yet, so that asking refuses.
            _ => {
                let decided = Some(decided);
                Err(Box::new(Refused { why, action, decided, message }))
            }
        }
    }
}

/// How clients see a tool; `None` if the server does not expose it, or another tool has its name. A
/// name is claimed for all agents alike, so that it never depends on who may see the tool.
fn exposed(
    snapshot: &Snapshot,
    (naming, claims): (Option<&Naming>, &mut Claims),
    part: &Part<'_>,
    tool: &str,
    listing: Listing,
) -> Option<Exposed> {
    let server = part.server.name();
    let (plain, description): (Box<str>, _) = match snapshot.policy.exposure(server) {
        None => (tool.into(), None),
        Some(exposure) => exposure.show(tool).map(|shown| (shown.name, shown.description))?,
    };
    let name = match naming {
        None => plain.clone(),
        Some(naming) => naming.expose(claims, server, &plain)?,
    };
    Some(Exposed { name, plain, description, listing })
}

/// What was decided about a call.
#[derive(Debug)]
pub struct Decided {
    pub server: Box<str>,
    pub original: Box<str>,
    pub decision: Decision,
    pub words: Arc<Words>,
}

/// A call that may be forwarded. Only [`View::decide`] makes one, and it owns the request that was
/// decided on.
#[derive(Debug)]
pub struct Permit {
    server: Arc<Server>,
    /// What HTTP repeats of the arguments.
    headers: Vec<(String, String)>,
    message: Message,
    exposed: Box<str>,
    action: Option<String>,
    decided: Decided,
    plan: Option<Arc<Plan>>,
    /// Entries of the policy that let calls pass only so often.
    limited: Vec<LimitedRule>,
}

impl Permit {
    /// What stands in front of the call.
    pub(crate) fn plan(&self) -> Option<&Plan> {
        self.plan.as_deref()
    }

    /// Entries that let it pass, and not too often.
    pub(crate) fn limited(&self) -> &[LimitedRule] {
        &self.limited
    }

    pub fn decided(&self) -> &Decided {
        &self.decided
    }

    pub fn exposed(&self) -> &str {
        &self.exposed
    }

    pub fn action(&self) -> Option<&str> {
        self.action.as_deref()
    }

    pub fn message(&self) -> &Message {
        &self.message
    }

    /// The server that was decided on.
    pub fn server(&self) -> &Arc<Server> {
        &self.server
    }

    /// Gives up the permit for the frozen request, under the name by which the server knows the
    /// tool.
    pub(crate) fn spend(self, row: &'static MethodRow) -> Outgoing {
        let longest = Some(self.server.result_bytes(&self.decided.original));
        let renamed = (*self.exposed != *self.decided.original).then_some(self.decided.original);
        Outgoing {
            message: self.message,
            row,
            name: renamed,
            headers: self.headers,
            longest,
            room: None,
        }
    }
}

/// A call that is not forwarded.
#[derive(Debug)]
pub struct Refused {
    /// The engine's reason; `None` if the tool is not in the agent's listing.
    pub why: Option<Why>,
    pub action: Option<String>,
    pub decided: Option<Decided>,
    pub message: Message,
}

/// Arguments as the scanner left them: policy reads the bytes that are forwarded.
pub(crate) struct RawArguments<'b>(pub(crate) toolward_wire::Arguments<'b>);

impl Arguments for RawArguments<'_> {
    fn members(&self, show: &mut dyn FnMut(&str, Option<&str>)) {
        for (name, value) in self.0.members() {
            show(&name, value.as_str().as_deref());
        }
    }

    fn to_json(&self) -> Value {
        self.0.to_json()
    }

    fn numbers(&self, path: &[Box<str>], show: &mut dyn FnMut(&str)) {
        if let Some(value) = self.0.at(path.iter().map(|key| &**key)) {
            value.numbers(show);
        }
    }
}
