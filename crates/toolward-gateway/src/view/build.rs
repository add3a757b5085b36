//! Builds views: the entries that a policy lists for an agent, under the names that clients use.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use hashbrown::HashMap;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use toolward_policy::allowed::Offer;
use toolward_policy::reason::About;
use toolward_policy::{Cell, Listing, Row, Subject, ToolSet, Verdict};
use toolward_wire::Raw;
use toolward_wire::list::{self, ListKind};

use super::names::{Claims, Naming};
use super::{ListedEntry, Rules, ServerView, View, resources};
use crate::client::Caller;
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
    pub list: Result<Arc<Catalogue>, Unavailable>,
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
enum Cells {
    /// Tools, with the hints and actions that policy reads.
    Tools(Row),
    Others(Vec<Cell>),
}

impl Cells {
    fn new(rules: Rules<'_>, caller: &Caller, kind: ListKind, part: &ServerList<'_>) -> Cells {
        let (agent, server) = (caller.agent.as_deref(), part.server.name());
        let list = part.list.as_ref();
        if kind == ListKind::Tools {
            let tools = list.map_or_else(|_| ToolSet::new(Vec::new()), |list| list.tools().clone());
            return Cells::Tools(rules.policy.row(agent, server, &tools));
        }
        let entries = list.map_or(&[][..], |list| list.entries());
        let subjects = entries.iter().map(|entry| subject(kind, entry.name()));
        Cells::Others(rules.policy.cells(agent, server, subjects))
    }

    fn iter(&self) -> Box<dyn Iterator<Item = &Cell> + '_> {
        match self {
            Cells::Tools(row) => Box::new(row.iter().map(|(_, cell)| cell)),
            Cells::Others(cells) => Box::new(cells.iter()),
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
            let all = entries.iter().zip(cells.iter()).map(|(entry, cell)| {
                let listing = cell.list(caller.policy());
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
            let Cells::Tools(row) = cells else { continue };
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
            unavailable: part.list.as_ref().err().cloned(),
            server: part.server.clone(),
            entries: Vec::new(),
        };
        // With progressive discovery, tools are shown under their servers' own names.
        let by_address = matches!(naming, Some(Naming::Address));
        let list = part.list.as_ref().ok();
        let entries_of = list.map_or(&[][..], |list| list.entries());
        of_server.offered = entries_of.len();
        let tools = list.map_or(&[][..], |list| list.tools().tools());
        for (at, ((entry, cell), exposed)) in
            entries_of.iter().zip(cells.iter()).zip(exposed).enumerate()
        {
            let original = entry.name();
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
            let plan = match tools.get(at) {
                Some(tool) => rules.guards.before(policy, agent, server, tool),
                None => rules.guards.before_other(agent, server),
            };
            let support = entry.raw().member("execution").and_then(|raw| raw.member("taskSupport"));
            let seen = ListedEntry {
                needs_task: support.and_then(Raw::as_str).as_deref() == Some("required"),
                plan,
                settled,
                at: self.servers.len(),
                original: original.into(),
                cell: cell.clone(),
                headers: list.and_then(|list| list.headers(original)).cloned(),
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
