//! Explanations of denied calls to names that the agent's listing does not contain.
//!
//! They are only for the audit log. The client gets the same response for a hidden tool and for one that
//! does not exist, by the same code path.

use std::sync::{Arc, Mutex};

use hashbrown::HashMap;
use toolward_policy::reason::{About, hidden_tool};
use toolward_policy::{Call, Decision, Policy, Step, Subject, Tool, Verdict};
use toolward_wire::list::ListKind;

use super::Rules;
use super::names::Naming;
use crate::audit::redact::outside;
use crate::client::{Client, Scope};
use crate::lock::LockUnpoisoned;
use crate::permit::{CallDecision, DeniedCall, Explanation, RawArguments, Would};
use crate::upstream::Server;
use crate::upstream::catalogue::Catalogue;

/// The tools of all servers by the names that clients use, regardless of who may see them.
#[derive(Debug)]
struct AllNames {
    lists: Vec<List>,
    exposed: Index,
    /// Renamed tools by their original names, which no client can call.
    original: Index,
}

/// Tools by the names that a client would use.
#[derive(Debug, Default)]
struct Index {
    /// By the name that clients of several servers use.
    several: HashMap<Box<str>, ToolPosition>,
    /// By the server's index and the name at its own address.
    alone: HashMap<(usize, Box<str>), ToolPosition>,
}

type List = (Arc<Server>, Option<Arc<Catalogue>>);

/// A tool's position: the index of its server, and its index in the server's list.
#[derive(Debug, Clone, Copy)]
struct ToolPosition {
    server: usize,
    tool: usize,
}

impl AllNames {
    fn new(policy: &Policy, naming: &Naming, lists: Vec<List>) -> AllNames {
        let (mut exposed, mut original) = (Index::default(), Index::default());
        for (server, (of, list)) in lists.iter().enumerate() {
            let exposure = policy.exposure(of.name());
            let tools = list.iter().flat_map(|list| list.tools().tools());
            for (tool, found) in tools.enumerate() {
                let shown = exposure.and_then(|exposure| exposure.show(found.name()));
                // A tool that is not exposed is still found by its own name.
                let name = shown.map_or_else(|| found.name().into(), |shown| shown.name);
                let spot = ToolPosition { server, tool };
                if *name != *found.name() {
                    let own = found.name();
                    original.add(spot, naming.called(of.name(), own), own.into());
                }
                exposed.add(spot, naming.called(of.name(), &name), name);
            }
        }
        AllNames { lists, exposed, original }
    }

    /// Whether it was built from these lists.
    fn is_of(&self, lists: &[List]) -> bool {
        let same = |(one, other): (&List, &List)| match (&one.1, &other.1) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (None, None) => true,
            _ => false,
        };
        self.lists.len() == lists.len() && self.lists.iter().zip(lists).all(same)
    }

    /// Why a renamed tool cannot be called by its original name.
    fn renamed(&self, policy: &Policy, spot: ToolPosition) -> Option<String> {
        let (server, _) = self.lists.get(spot.server)?;
        let (server, own) = (server.name(), self.tool(spot)?.name());
        let shown = policy.exposure(server)?.show(own)?;
        Some(format!("the server `{server}` exposes its tool `{own}` as `{}` only", shown.name))
    }

    fn tool(&self, spot: ToolPosition) -> Option<&Tool> {
        let (_, list) = self.lists.get(spot.server)?;
        list.as_ref()?.tools().tools().get(spot.tool)
    }
}

impl Index {
    fn add(&mut self, spot: ToolPosition, several: Box<str>, alone: Box<str>) {
        self.several.entry(several).or_insert(spot);
        self.alone.entry((spot.server, alone)).or_insert(spot);
    }

    /// The tool that a client means by `name`. `meant` is the server's index and the rest of the name.
    fn find(&self, scope: Scope, name: &str, meant: Option<(usize, &str)>) -> Option<ToolPosition> {
        match scope {
            Scope::All => self.several.get(name).copied(),
            Scope::One(_) | Scope::Discovery => {
                meant.and_then(|(at, rest)| self.alone.get(&(at, rest.into())).copied())
            }
        }
    }
}

/// The index of all names, built when a client first uses a name that its listing does not contain.
#[derive(Debug, Default)]
pub(crate) struct NameIndex(Mutex<Option<Arc<AllNames>>>);

impl NameIndex {
    fn names(&self, policy: &Policy, naming: &Naming, servers: &[Arc<Server>]) -> Arc<AllNames> {
        let list =
            |server: &Arc<Server>| (server.clone(), server.listed().map(|listed| listed.catalogue));
        let lists: Vec<List> = servers.iter().map(list).collect();
        let mut held = self.0.locked();
        match &*held {
            Some(names) if names.is_of(&lists) => names.clone(),
            _ => {
                let names = Arc::new(AllNames::new(policy, naming, lists));
                *held = Some(names.clone());
                names
            }
        }
    }

    /// The policy's decision about a call by a name that the agent's listing does not contain.
    pub(crate) fn explain(
        &self,
        rules: Rules<'_>,
        (naming, servers): (&Naming, &[Arc<Server>]),
        client: &Client,
        name: &str,
        denied: &DeniedCall,
    ) -> CallDecision {
        let names = self.names(rules.policy, naming, servers);
        // The server that the name refers to: the longest one that matches as a prefix.
        let naming = match client.scope {
            Scope::Discovery => &Naming::Address,
            _ => naming,
        };
        let rest = |server: &str| match client.scope {
            Scope::One(_) => Some(name),
            _ => naming.rest(name, server),
        };
        let meant = names.lists.iter().enumerate().filter_map(|(at, (server, _))| {
            let here = !matches!(client.scope, Scope::One(id) if id != server.id);
            rest(server.name()).filter(|_| here).map(|rest| (at, rest))
        });
        let meant = meant.min_by_key(|(_, rest)| rest.len());
        let spot = names.exposed.find(client.scope, name, meant);
        let renamed = names.original.find(client.scope, name, meant).filter(|_| spot.is_none());
        let found = spot.and_then(|spot| names.tool(spot));
        let at = spot.or(renamed).map(|spot| spot.server).or(meant.map(|(at, _)| at));
        let (server, list) = match at.and_then(|at| names.lists.get(at)) {
            Some((server, list)) => (server.name(), list.as_ref()),
            None => ("", None),
        };
        // Caller-supplied text is limited here as in the rest of the audit record.
        let written = outside(meant.map_or(name, |(_, rest)| rest));
        let stranger = Tool::named(&written);
        let tool = found.unwrap_or(&stranger);

        let (policy, agent) = (rules.policy, client.caller.agent.as_deref());
        let arguments = denied.message.arguments().map(RawArguments);
        let call = Call { action: None, arguments: arguments.as_ref().map(|given| given as _) };
        let hints = policy.hints(server, tool);
        let cell = policy.cell(agent, server, Subject::Tool(tool, &hints));
        let decided = cell.decide(client.caller.policy(), &call);
        // A hidden tool cannot be called, not even with an action that is not in the listing.
        let listing = cell.list(client.caller.policy()).decision;
        let hidden = decided.verdict != Verdict::Deny && listing.verdict == Verdict::Deny;
        let decided = if decided.verdict == Verdict::Deny { decided } else { listing };
        // A tool that may not exist is denied by the rules for its server, if they deny.
        let known = found.is_some() || (list.is_none() && !server.is_empty());
        let denied_by = |step| Decision { verdict: Verdict::Deny, step, layer: None, rule: None };
        // Why an existing tool cannot be called by this name, although the policy does not deny it.
        let quarantined = || rules.pins.quarantined(server, ListKind::Tools, tool.name());
        let unreachable = match (known && decided.verdict == Verdict::Deny, found, renamed) {
            (true, _, _) => None,
            (false, Some(_), _) if let Some(changed) = quarantined() => {
                let why = format!("it is quarantined: {}", changed.summary());
                Some((denied_by(Step::Pin), outside(&why).into_owned()))
            }
            (false, Some(_), _) => rules.discovery.direct_call_denial(policy, agent, server),
            (false, None, Some(spot)) => {
                names.renamed(policy, spot).map(|why| (denied_by(Step::NotExposed), why))
            }
            (false, None, None) => None,
        };
        let decision = match &unreachable {
            _ if known && decided.verdict == Verdict::Deny => decided,
            Some((decision, _)) => *decision,
            None => denied_by(Step::NoSuchTool),
        };
        // The response names an action by the default keys, so that it does not depend on the tool. The reason is
        // for the audit log alone.
        let action = cell.stated_action(&call);
        let action = action.as_deref().map(outside);
        let subject = tool.name();
        let about = About { agent, server, subject, action: action.as_deref() };
        let explanation = Explanation::new(policy, rules.hits, &decision, about);
        let why = policy.why(&cell, client.caller.policy(), &call, decision);
        let explanation = explanation.because(&policy.reason_why(&why, about));
        let explanation = match (found, decision.step) {
            _ if known && hidden => explanation.because(&hidden_tool(server, subject)),
            _ if let Some((_, why)) = &unreachable => explanation.because(why),
            (Some(_), Step::NoSuchTool) => {
                explanation.because("the agent has no tool of this name here")
            }
            (None, Step::NoSuchTool) if server.is_empty() => {
                explanation.because("no server has a tool of this name")
            }
            _ => explanation,
        };
        let would = rules.shadow.filter(|_| found.is_some()).and_then(|shadow| {
            let cell = shadow.cell(agent, server, Subject::Tool(tool, &hints));
            Would::instead_of(&decided, shadow, cell.decide(client.caller.policy(), &call))
        });
        let original = subject.into();
        CallDecision { server: server.into(), original, decision, explanation, would }
    }
}
