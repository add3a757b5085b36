//! Builds views: the entries that a policy lists for an agent, under the names that clients use.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use hashbrown::HashMap;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use toolward_policy::allowed::Offer;
use toolward_policy::reason::About;
use toolward_policy::{Cell, Listing, Policy, Row, Subject, ToolSet, Verdict};
use toolward_wire::Raw;
use toolward_wire::list::{self, ListKind};

use super::names::{Claims, Naming};
use super::{ListedEntry, Rules, ServerView, View, resources};
use crate::client::Caller;
use crate::guard::approvals::definition_digest;
use crate::guard::pins::screen::Screened;
use crate::permit::Explanation;
use crate::upstream::catalogue::Catalogue;
use crate::upstream::{Server, Unavailable};

/// Entries in a page of resources or templates. Other lists are one page: many clients read only the first.
const PAGE_ENTRIES: usize = 1000;
/// Maximum time that clients may cache a list, in milliseconds.
const MAX_TTL_MS: u64 = 5_000;

/// A server that the agent may use, with its list or the reason why it is not known.
pub struct ServerList<'a> {
    pub server: &'a Arc<Server>,
    /// The entries that agents may see, with approved definitions.
    pub list: Result<Arc<Catalogue>, Unavailable>,
    /// How the list compares with the approved definitions, if it is pinned.
    pub screened: Option<Arc<Screened>>,
}

/// A listed entry, before it is written.
struct ExposedEntry {
    /// The name at the gateway's address, and at the server's own address.
    name: Box<str>,
    plain: Box<str>,
    description: Option<Box<str>>,
    listing: Listing,
}

/// The cells of a server's entries, in the order of its list.
struct Cells {
    by_entry: EntryCells,
    /// For tools whose approved and current hints differ, by index: the cell for the hints that are not shown.
    others: HashMap<usize, Cell>,
    /// The cells of the policy with its shadow rules.
    shadow: Option<EntryCells>,
}

enum EntryCells {
    /// Tools, with the hints and actions that policy reads.
    Tools(Row),
    Others(Vec<Cell>),
}

impl Cells {
    fn new(rules: Rules<'_>, caller: &Caller, kind: ListKind, part: &ServerList<'_>) -> Cells {
        let cells = |policy| EntryCells::new(policy, caller, kind, part);
        let (by_entry, shadow) = (cells(rules.policy), rules.shadow.map(cells));
        let (policy, agent, server) = (rules.policy, caller.agent.as_deref(), part.server.name());
        let mut others = HashMap::new();
        if let (EntryCells::Tools(row), Some(screened)) = (&by_entry, &part.screened) {
            for (at, (tool, _)) in row.iter().enumerate() {
                let Some(claims) = screened.other_hints.get(tool.name()) else { continue };
                let other = tool.clone().with_annotations(*claims);
                let hints = policy.hints(server, &other);
                if hints != policy.hints(server, tool) {
                    let subject = Subject::Tool(&other, &hints);
                    others.insert(at, policy.cell(agent, server, subject));
                }
            }
        }
        Cells { by_entry, others, shadow }
    }

    /// The listing of an entry: the stricter one, if its approved and current hints lead to different ones.
    fn list(&self, caller: &Caller, at: usize, cell: &Cell) -> Listing {
        let listing = cell.list(caller.policy());
        let Some(other) = self.others.get(&at) else { return listing };
        let other = other.list(caller.policy());
        let actions = match (&listing.actions, &other.actions) {
            (Some(one), Some(other)) => {
                Some(one.iter().filter(|action| other.contains(action)).cloned().collect())
            }
            (one, other) => one.clone().or_else(|| other.clone()),
        };
        let is_stricter = other.decision.verdict > listing.decision.verdict;
        Listing { decision: if is_stricter { other } else { listing }.decision, actions }
    }

    fn iter(&self) -> Box<dyn Iterator<Item = &Cell> + '_> {
        self.by_entry.iter()
    }
}

impl EntryCells {
    fn new(policy: &Policy, caller: &Caller, kind: ListKind, part: &ServerList<'_>) -> EntryCells {
        let (agent, server) = (caller.agent.as_deref(), part.server.name());
        let list = part.list.as_ref();
        if kind == ListKind::Tools {
            let tools = list.map_or_else(|_| ToolSet::new(Vec::new()), |list| list.tools().clone());
            return EntryCells::Tools(policy.row(agent, server, &tools));
        }
        let entries = list.map_or(&[][..], |list| list.entries());
        let subjects = entries.iter().map(|entry| subject(kind, entry.name()));
        EntryCells::Others(policy.cells(agent, server, subjects))
    }

    fn iter(&self) -> Box<dyn Iterator<Item = &Cell> + '_> {
        match self {
            EntryCells::Tools(row) => Box::new(row.iter().map(|(_, cell)| cell)),
            EntryCells::Others(cells) => Box::new(cells.iter()),
        }
    }
}

/// The subject that policy decides on, for kinds other than tools.
fn subject(kind: ListKind, name: &str) -> Subject<'_> {
    match kind {
        ListKind::Tools | ListKind::Prompts => Subject::Prompt(name),
        ListKind::Resources => Subject::Resource(name),
        ListKind::ResourceTemplates => Subject::Template(name),
    }
}

impl View {
    /// `naming` is `None` if entries keep their names.
    pub fn new(
        rules: Rules<'_>,
        caller: &Caller,
        (kind, naming): (ListKind, Option<&Naming>),
        parts: &[ServerList<'_>],
    ) -> View {
        let policy = rules.policy;
        let cells = |part: &ServerList<'_>| Cells::new(rules, caller, kind, part);
        let cells: Vec<Cells> = parts.iter().map(cells).collect();
        let mut claims = Vec::with_capacity(parts.len());
        let exposed = |(part, cells): (&ServerList<'_>, &Cells)| -> Vec<Option<ExposedEntry>> {
            let mut claimed = naming.map_or_else(
                || Claims::none(part.server.id),
                |naming| naming.claims(part.server.id),
            );
            let entries = part.list.as_ref().map_or(&[][..], |list| list.entries());
            let all = entries.iter().zip(cells.iter()).enumerate().map(|(at, (entry, cell))| {
                let listing = cells.list(caller, at, cell);
                let is_template = kind == ListKind::ResourceTemplates;
                let visible = listing.decision.verdict != Verdict::Deny
                    || !rules.enforced
                    || (is_template
                        && policy.shows_template(
                            caller.policy(),
                            part.server.name(),
                            entry.name(),
                        ));
                let named = (kind, naming, &mut claimed);
                exposed(rules, named, part, entry.name(), listing).filter(|_| visible)
            });
            let all = all.collect();
            if let Ok(list) = &part.list {
                claimed.keep_latest(list.hash());
            }
            claims.push(claimed);
            all
        };
        let exposed: Vec<Vec<Option<ExposedEntry>>> =
            parts.iter().zip(&cells).map(exposed).collect();
        let mut offers = Vec::with_capacity(parts.len());
        for ((part, cells), exposed) in parts.iter().zip(&cells).zip(&exposed) {
            let EntryCells::Tools(row) = &cells.by_entry else { continue };
            let server = part.server.name();
            let prefix = naming.map(|naming| naming.prefix(server)).unwrap_or_default();
            let names = exposed.iter().map(|one| one.as_ref().map(|one| one.name.clone()));
            offers.push(Offer { server, prefix, row, names: names.collect() });
        }
        let mut view = View {
            kind,
            shown: HashMap::new(),
            array: Bytes::new(),
            page_starts: Vec::new(),
            allowed: policy.allowed(caller.policy(), &offers),
            servers: Vec::with_capacity(parts.len()),
            id: String::new(),
            outcomes: Bytes::new(),
            enforced: rules.enforced,
            index: OnceLock::new(),
            _claims: claims,
            server_info: match parts {
                [only] => only.list.as_ref().ok().and_then(|list| list.server_info().cloned()),
                _ => None,
            },
            ttl_ms: parts
                .iter()
                .filter_map(|part| part.list.as_ref().ok()?.ttl_ms())
                .fold(MAX_TTL_MS, u64::min),
        };
        let mut entries = Vec::new();
        for ((part, cells), exposed) in parts.iter().zip(&cells).zip(exposed) {
            view.add(rules, caller, naming, (part, cells, exposed), &mut entries);
        }
        view.array = list::array(entries.iter().map(|entry| &entry[..]));
        view.page_starts = page_starts(kind, &entries);
        view.id = view.hash();
        view.outcomes = view.outcomes_by_server();
        view
    }

    fn add(
        &mut self,
        rules: Rules<'_>,
        caller: &Caller,
        naming: Option<&Naming>,
        (part, cells, exposed): (&ServerList<'_>, &Cells, Vec<Option<ExposedEntry>>),
        entries: &mut Vec<Bytes>,
    ) {
        let (policy, server) = (rules.policy, part.server.name());
        let mut of_server = ServerView {
            name: server.into(),
            offered: 0,
            shown: Vec::new(),
            removed: Vec::new(),
            would_hide: Vec::new(),
            would_show: Vec::new(),
            quarantined: 0,
            unavailable: part.list.as_ref().err().cloned(),
            server: part.server.clone(),
            entries: Vec::new(),
        };
        // With progressive discovery, tools are shown under their servers' own names.
        let by_address = matches!(naming, Some(Naming::Address));
        let list = part.list.as_ref().ok();
        let entries_of = list.map_or(&[][..], |list| list.entries());
        if let Some(screened) = &part.screened {
            of_server.removed.extend(screened.quarantined().map(|one| one.name.to_string()));
            of_server.quarantined = of_server.removed.len();
        }
        of_server.offered = entries_of.len() + of_server.quarantined;
        let shadow: Vec<&Cell> =
            cells.shadow.as_ref().map(|cells| cells.iter().collect()).unwrap_or_default();
        let tools = list.map_or(&[][..], |list| list.tools().tools());
        for (at, ((entry, cell), exposed)) in
            entries_of.iter().zip(cells.iter()).zip(exposed).enumerate()
        {
            let original = entry.name();
            if let Some(cell) = shadow.get(at) {
                let would_show = cell.list(caller.policy()).decision.verdict != Verdict::Deny;
                match (would_show, exposed.is_some()) {
                    (true, false) => of_server.would_show.push(original.into()),
                    (false, true) => of_server.would_hide.push(original.into()),
                    _ => {}
                }
            }
            // If two servers have the same resource, it belongs to the first.
            let exposed = exposed.filter(|exposed| !self.shown.contains_key(&exposed.name));
            let Some(ExposedEntry { name, plain, description, listing }) = exposed else {
                of_server.removed.push(original.into());
                continue;
            };
            let mut edit = entry.edit();
            let shown_as = if by_address { &plain } else { &name };
            if is_named(self.kind) && **shown_as != *original {
                edit = edit.name(shown_as);
            }
            if let Some(description) = &description {
                edit = edit.description(description);
            }
            if let Some(actions) = listing.actions.as_ref().filter(|_| self.enforced) {
                let keep: Vec<&str> = actions.iter().map(String::as_str).collect();
                for key in policy.action_keys(server, original) {
                    edit = edit.keep_enum(key, &keep);
                }
            }
            let shown = edit.finish();
            if by_address {
                of_server.entries.push(shown.clone());
            }
            entries.push(shown);
            of_server.shown.push(if is_named(self.kind) {
                name.to_string()
            } else {
                original.into()
            });
            let agent = caller.agent.as_deref();
            let settled = cell.settled().map(|decision| {
                let about = About { agent, server, subject: original, action: None };
                Explanation::new(policy, rules.hits, &decision, about)
            });
            let other_claims = part.screened.as_ref().and_then(|one| one.other_hints.get(original));
            let plan = match (tools.get(at), other_claims) {
                // Guards that apply to one of the definitions apply to the tool.
                (Some(tool), Some(claims)) => {
                    let claims = tool.annotations().least_safe(*claims);
                    let tool = tool.clone().with_annotations(claims);
                    rules.guards.before(policy, agent, server, &tool)
                }
                (Some(tool), None) => rules.guards.before(policy, agent, server, tool),
                (None, _) => rules.guards.before_other(agent, server),
            };
            let support = entry.raw().member("execution").and_then(|raw| raw.member("taskSupport"));
            let may_ask = cell.may_ask() || cells.others.get(&at).is_some_and(Cell::may_ask);
            let seen = ListedEntry {
                definition: may_ask.then(|| definition_digest(entry.raw()).into()),
                needs_task: support.and_then(Raw::as_str).as_deref() == Some("required"),
                plan,
                settled: settled.filter(|_| !cells.others.contains_key(&at)),
                at: self.servers.len(),
                original: original.into(),
                cell: cell.clone(),
                other_cell: cells.others.get(&at).cloned(),
                shadow_cell: shadow.get(at).map(|cell| (*cell).clone()),
                headers: list.and_then(|list| list.headers(original)).cloned(),
            };
            self.shown.insert(name, Box::new(seen));
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
            // The audit log has the names of each view once.
            for (mark, names) in [(1, &server.would_hide), (2, &server.would_show)] {
                for name in names {
                    hash.update([mark]);
                    hash.update(name);
                }
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
}

/// The positions of pages in the array of entries, and its end.
fn page_starts(kind: ListKind, entries: &[Bytes]) -> Vec<usize> {
    let most = if is_named(kind) { usize::MAX } else { PAGE_ENTRIES };
    let (mut starts, mut at) = (vec![1], 1);
    for (index, entry) in entries.iter().enumerate() {
        if index > 0 && index % most == 0 {
            starts.push(at);
        }
        at += entry.len() + 1;
    }
    starts.push(at.max(2));
    starts
}

/// Whether entries of a kind have names that the gateway may change. Resources are identified by URIs, which never
/// change.
fn is_named(kind: ListKind) -> bool {
    matches!(kind, ListKind::Tools | ListKind::Prompts)
}

/// The exposed form of an entry; `None` if the server does not expose it, or another one has its name. A
/// name is claimed for all agents alike, so that it never depends on who may see the tool.
fn exposed(
    rules: Rules<'_>,
    (kind, naming, claims): (ListKind, Option<&Naming>, &mut Claims),
    part: &ServerList<'_>,
    original: &str,
    listing: Listing,
) -> Option<ExposedEntry> {
    let server = part.server.name();
    let exposure = match kind {
        ListKind::Tools => rules.policy.exposure(server),
        ListKind::Prompts => rules.policy.prompt_exposure(server),
        ListKind::Resources | ListKind::ResourceTemplates => None,
    };
    let (plain, description): (Box<str>, _) = match exposure {
        Some(exposure) => exposure.show(original).map(|shown| (shown.name, shown.description))?,
        None => (original.into(), None),
    };
    let name = match (kind, naming) {
        (ListKind::Resources, _) => resources::key(original),
        (_, None) => plain.clone(),
        (_, Some(naming)) => naming.expose(claims, server, &plain)?,
    };
    Some(ExposedEntry { name, plain, description, listing })
}
