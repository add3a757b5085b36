//! Building a view: the tools a policy lists for an agent, under the names that clients use.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use hashbrown::HashMap;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use toolward_policy::allowed::Offer;
use toolward_policy::reason::About;
use toolward_policy::{Listing, Row, ToolSet, Verdict};
use toolward_wire::list;

use super::names::{Claims, Naming};
use super::{ListedTool, Rules, ServerView, View};
use crate::client::Caller;
use crate::permit::Explanation;
use crate::upstream::catalogue::Catalogue;
use crate::upstream::{Server, Unavailable};

/// No client keeps a list for longer.
const LONGEST_TTL_MS: u64 = 5_000;

/// A server that the agent may use, and its tool list or why that is not known.
pub struct ServerList<'a> {
    pub server: &'a Arc<Server>,
    pub list: Result<Arc<Catalogue>, Unavailable>,
}

/// A listed tool, before its entry is written.
struct ExposedTool {
    /// The name that clients use, and the one at the server's own address.
    name: Box<str>,
    plain: Box<str>,
    description: Option<Box<str>>,
    listing: Listing,
}

impl View {
    /// `naming` is `None` if tools keep their names.
    pub fn new(
        rules: Rules<'_>,
        caller: &Caller,
        naming: Option<&Naming>,
        parts: &[ServerList<'_>],
    ) -> View {
        let policy = rules.policy;
        let unknown = ToolSet::new(Vec::new());
        let row = |part: &ServerList<'_>| {
            let tools = part.list.as_ref().map_or(&unknown, |list| list.tools());
            policy.row(caller.agent.as_deref(), part.server.name(), tools)
        };
        let rows: Vec<Row> = parts.iter().map(row).collect();
        let mut claims = Vec::with_capacity(parts.len());
        let exposed = |(part, row): (&ServerList<'_>, &Row)| -> Vec<Option<ExposedTool>> {
            let mut claimed = naming.map_or_else(
                || Claims::none(part.server.id),
                |naming| naming.claims(part.server.id),
            );
            let all = row.iter().map(|(tool, cell)| {
                let listing = cell.list(caller.policy());
                let visible = listing.decision.verdict != Verdict::Deny || !rules.enforced;
                let named = (naming, &mut claimed);
                exposed(rules, named, part, tool.name(), listing).filter(|_| visible)
            });
            let all = all.collect();
            if let Ok(list) = &part.list {
                claimed.keep_latest(list.hash());
            }
            claims.push(claimed);
            all
        };
        let exposed: Vec<Vec<Option<ExposedTool>>> = parts.iter().zip(&rows).map(exposed).collect();
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
                .fold(LONGEST_TTL_MS, u64::min),
        };
        let mut entries = Vec::new();
        for ((part, row), exposed) in parts.iter().zip(&rows).zip(exposed) {
            view.add(rules, caller, naming, (part, row, exposed), &mut entries);
        }
        view.array = list::array(entries.iter().map(|entry| &entry[..]));
        view.id = view.hash();
        view.outcomes = view.outcomes_by_server();
        view
    }

    fn add(
        &mut self,
        rules: Rules<'_>,
        caller: &Caller,
        naming: Option<&Naming>,
        (part, row, exposed): (&ServerList<'_>, &Row, Vec<Option<ExposedTool>>),
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
        // Tools that are found step by step are shown under their servers' names for them.
        let by_address = matches!(naming, Some(Naming::Address));
        let entries_of = part.list.as_ref().map_or(&[][..], |list| list.entries());
        of_server.offered = entries_of.len();
        for (((tool, cell), entry), exposed) in row.iter().zip(entries_of).zip(exposed) {
            let Some(ExposedTool { name, plain, description, listing }) = exposed else {
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
                Explanation::new(
                    policy,
                    rules.hits,
                    &decision,
                    About { agent, server, subject, action: None },
                )
            });
            let agent = caller.agent.as_deref();
            let seen = ListedTool {
                plan: rules.guards.before(policy, agent, server, tool),
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
}

/// How clients see a tool; `None` if the server does not expose it, or another tool has its name. A
/// name is claimed for all agents alike, so that it never depends on who may see the tool.
fn exposed(
    rules: Rules<'_>,
    (naming, claims): (Option<&Naming>, &mut Claims),
    part: &ServerList<'_>,
    tool: &str,
    listing: Listing,
) -> Option<ExposedTool> {
    let server = part.server.name();
    let (plain, description): (Box<str>, _) = match rules.policy.exposure(server) {
        None => (tool.into(), None),
        Some(exposure) => exposure.show(tool).map(|shown| (shown.name, shown.description))?,
    };
    let name = match naming {
        None => plain.clone(),
        Some(naming) => naming.expose(claims, server, &plain)?,
    };
    Some(ExposedTool { name, plain, description, listing })
}
