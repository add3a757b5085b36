//! The tools of each server, as one agent may use them.

use toolward_gateway::active::Active;
use toolward_gateway::guard::InFront;
use toolward_policy::reason::About;
use toolward_policy::{Caller, Verdict};

use crate::admin::lists::List;
use crate::admin::query::encoded;
use crate::admin::view::prose::{Piece, pieces};
use crate::discovery::Route;

/// The maximum number of tools shown per server. Further ones are counted; the table has them all.
const MAX_TOOLS: usize = 200;

pub(in crate::admin::view) struct ServerTools {
    /// Its index among the servers, for element ids.
    pub(super) number: usize,
    pub(super) name: String,
    /// Why its tools are not known.
    pub(super) why: Option<String>,
    pub(super) offered: usize,
    pub(super) callable: Vec<Tool>,
    pub(super) more_callable: usize,
    pub(super) denied: Vec<Tool>,
    pub(super) more_denied: usize,
    /// How the agent calls the tools, if not directly.
    pub(super) note: Option<&'static str>,
    direct: bool,
}

pub(in crate::admin::view) struct Tool {
    pub(super) name: String,
    /// Its display name, if it is renamed.
    pub(super) shown: Option<String>,
    pub(super) verdict: &'static str,
    /// The allowed actions, if not all are.
    pub(super) actions: Option<Vec<String>>,
    pub(super) guards: InFront,
    /// The reason, in a sentence.
    pub(super) reason: Vec<Piece>,
    /// The address of the explanation.
    pub(super) explain: String,
}

impl ServerTools {
    /// Whether a limit or a hook applies to one of its tools.
    pub(super) fn is_guarded(&self) -> bool {
        self.callable.iter().any(|tool| !tool.guards.is_empty())
    }

    /// How many of its tools are in the agent's list.
    pub(super) fn listed(&self) -> usize {
        if self.direct { self.callable.len() + self.more_callable } else { 0 }
    }
}

pub(super) fn of(active: &Active, agent: Option<&str>, lists: &[List]) -> Vec<ServerTools> {
    lists.iter().enumerate().map(|(number, list)| server(active, agent, number, list)).collect()
}

fn server(active: &Active, agent: Option<&str>, number: usize, list: &List) -> ServerTools {
    let name = list.server.name();
    let route = active.discovery.route(&active.policy, agent, name);
    let mut server = ServerTools {
        number,
        name: name.into(),
        why: list.tools.as_ref().err().map(ToString::to_string),
        offered: 0,
        callable: Vec::new(),
        more_callable: 0,
        denied: Vec::new(),
        more_denied: 0,
        note: match route {
            Route::Direct | Route::ToolsOnly => None,
            Route::Execute => {
                Some("Called through toolward/execute_tool; a direct call is refused.")
            }
            Route::Closed(_) => {
                Some("Cannot be called: toolward/execute_tool is denied to this agent.")
            }
        },
        direct: route.is_direct(),
    };
    let Ok(catalogue) = &list.tools else { return server };
    let policy = &active.policy;
    let caller = Caller { agent, claims: None };
    for (tool, cell) in policy.row(agent, name, catalogue.tools()).iter() {
        let listing = cell.list(caller);
        let decision = match route {
            Route::Closed(denied) => denied,
            _ => listing.decision,
        };
        server.offered += 1;
        let denied = decision.verdict == Verdict::Deny;
        let (tools, more) = match denied {
            true => (&mut server.denied, &mut server.more_denied),
            false => (&mut server.callable, &mut server.more_callable),
        };
        if tools.len() >= MAX_TOOLS {
            *more += 1;
            continue;
        }
        let guards = match denied || active.guards.is_empty() {
            true => InFront::default(),
            false => {
                let hints = policy.hints(name, tool);
                let rules = (&*cell.all_limits(), cell.settled().is_some());
                active.guards.in_front((agent, name), (tool, &hints), rules)
            }
        };
        let shown = policy.exposure(name).and_then(|exposure| exposure.show(tool.name()));
        let shown = shown.map(|shown| String::from(shown.name));
        let about = About { agent, server: name, subject: tool.name(), action: None };
        tools.push(Tool {
            name: tool.name().into(),
            shown: shown.filter(|shown| shown != tool.name()),
            verdict: decision.verdict.as_str(),
            actions: listing.actions.filter(|actions| !actions.is_empty()),
            guards,
            reason: pieces(&policy.reason(&decision, about)),
            explain: format!(
                "explain?agent={}&server={}&tool={}",
                encoded(agent.unwrap_or_default()),
                encoded(name),
                encoded(tool.name())
            ),
        });
    }
    server
}
