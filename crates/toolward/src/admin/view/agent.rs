//! The view of one agent: the tools it may call, their limits and hooks, and its latest calls.

mod guards;
mod tools;

use std::sync::Arc;

use askama::Template;

use self::guards::{HookRow, LimitRow};
use self::tools::ServerTools;
use super::live::{Latest, latest_of};
use crate::admin::lists::List;
use crate::admin::query::encoded;
use crate::admin::{AdminUi, Layout, Query, ViewResponse};

/// How many calls and refusals are shown.
const MAX_ROWS: usize = 10;

#[derive(Template)]
#[template(path = "agent.html")]
struct AgentPage {
    layout: Layout,
    told: AgentDetails,
    latest: Latest,
}

#[derive(Template)]
#[template(path = "agent_part.html")]
struct AgentPart {
    told: AgentDetails,
}

#[derive(Template)]
#[template(path = "agent_calls.html")]
struct Calls {
    who: Who,
    latest: Latest,
}

/// The agent of this view.
struct Who {
    /// `None`: unnamed callers.
    name: Option<String>,
    /// The query parameter that identifies it in URLs of this view, of the table and of the live view.
    query: String,
    table: String,
    live: String,
}

struct AgentDetails {
    who: Who,
    /// All callers that have a view, to switch between them.
    others: Vec<(Option<String>, bool)>,
    /// The rules that apply to it: its own or those of `default`.
    rules: Option<&'static str>,
    /// Requests without a name are rejected before any rule.
    rejected: bool,
    /// The policy is not enforced.
    unenforced: bool,
    progressive: bool,
    listed: usize,
    callable: usize,
    offered: usize,
    servers: Vec<ServerTools>,
    limits: Vec<LimitRow>,
    hooks: Vec<HookRow>,
}

pub(crate) async fn show(page: &Arc<AdminUi>, query: &Query) -> ViewResponse {
    let agent = query.word("name");
    let who = Who::new(agent);
    match &*query.rest {
        "" if query.fragment => {
            let lists = page.lists.now(page.gateway());
            ViewResponse::of(&AgentPart { told: AgentDetails::of(page, who, &lists) })
        }
        "" => {
            let layout = Layout::new(page, "agent", "Agent").await;
            let lists = page.lists.ask(page.gateway()).await;
            let latest = latest_of(page, agent, MAX_ROWS).await;
            ViewResponse::of(&AgentPage {
                layout,
                told: AgentDetails::of(page, who, &lists),
                latest,
            })
        }
        "calls" => {
            let latest = latest_of(page, agent, MAX_ROWS).await;
            ViewResponse::of(&Calls { who, latest })
        }
        _ => ViewResponse::Missing,
    }
}

impl Who {
    fn new(agent: Option<&str>) -> Who {
        let name = agent.map(encoded).unwrap_or_default();
        Who {
            name: agent.map(String::from),
            query: format!("name={name}"),
            table: format!("./?agent={name}"),
            live: format!("live?agent={}", encoded(&format!("={}", agent.unwrap_or_default()))),
        }
    }
}

impl AgentDetails {
    fn of(page: &AdminUi, who: Who, lists: &[List]) -> AgentDetails {
        let active = page.gateway().active();
        let callers = page.reloader.callers();
        let agent = who.name.as_deref();
        let servers = tools::of(&active, agent, lists);
        let (limits, hooks) = guards::of(&active, agent, &servers);
        let own = agent.is_some_and(|agent| active.policy.has_rules_of(agent));
        let count = |wanted: fn(&ServerTools) -> usize| servers.iter().map(wanted).sum();
        AgentDetails {
            others: callers.iter().map(|one| (one.clone(), *one == who.name)).collect(),
            rules: match own {
                true => Some("its own rules"),
                false if active.policy.agents().is_empty() => None,
                false => Some("the rules of the agent default, if it exists"),
            },
            rejected: agent.is_none() && !callers.contains(&None),
            unenforced: !active.enforced,
            progressive: active.discovery.is_progressive(agent),
            listed: count(ServerTools::listed),
            callable: count(|server| server.callable.len() + server.more_callable),
            offered: count(|server| server.offered),
            servers,
            limits,
            hooks,
            who,
        }
    }
}
