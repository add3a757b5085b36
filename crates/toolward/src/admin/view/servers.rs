//! The servers: definition, health, and how many of their tools each agent sees.

mod plot;

use std::sync::Arc;

use askama::Template;
use toolward_gateway::guard::pins::Mode;
use toolward_gateway::guard::pins::change::Change;
use toolward_gateway::guard::pins::screen::ChangedEntry;
use toolward_gateway::metrics::calls::Span;
use toolward_gateway::upstream::{Reach, Server};

use self::plot::Plot;
use crate::active_config::ToolVisibility;
use crate::admin::query::encoded;
use crate::admin::view::moment;
use crate::admin::{AdminUi, Layout, Query, ViewResponse};
use crate::audit_log::row::took;
use crate::status_report::era;

#[derive(Template)]
#[template(path = "servers.html")]
struct ServersPage {
    layout: Layout,
    servers: Vec<ServerDetails>,
}

#[derive(Template)]
#[template(path = "servers_part.html")]
struct ServersPart<'a> {
    servers: &'a [ServerDetails],
}

/// The changing parts, swapped into an open view.
#[derive(Template)]
#[template(path = "servers_now.html")]
struct Now<'a> {
    servers: &'a [ServerDetails],
}

struct ServerDetails {
    /// Its index, used in element ids.
    number: usize,
    name: String,
    /// Its name in URLs.
    address: String,
    kind: String,
    eras: Vec<&'static str>,
    revisions: Vec<&'static str>,
    /// `Some` if its tools are known.
    sees: Option<ToolCounts>,
    /// Why its pins cannot be used.
    refused: Option<String>,
    /// Definitions that are not the approved ones.
    changed: Vec<ChangedDefinition>,
    now: ServerState,
    /// The part is sent alone and swapped into an open view.
    alone: bool,
}

/// A definition that is not the approved one.
struct ChangedDefinition {
    noun: &'static str,
    name: String,
    class: &'static str,
    outcome: &'static str,
    changes: Vec<String>,
}

impl ChangedDefinition {
    fn of(changed: &ChangedEntry) -> ChangedDefinition {
        let change = |one: &Change| format!("{} {} ({})", one.at, one.what, one.class.as_str());
        ChangedDefinition {
            noun: changed.kind.noun(),
            name: changed.name.to_string(),
            class: changed.class.as_str(),
            outcome: changed.outcome.as_str(),
            changes: changed.changes.iter().map(|one| change(one).trim().to_string()).collect(),
        }
    }
}

struct ToolCounts {
    offered: usize,
    shown: usize,
    by_agent: Vec<(Option<String>, usize)>,
}

/// The current state of a server.
struct ServerState {
    word: &'static str,
    calls: u64,
    errors: u64,
    under_way: usize,
    starts: u64,
    restarts: u64,
    failure: Option<(String, String)>,
    recent: u64,
    p50: Option<String>,
    p95: Option<String>,
    plot: Plot,
    /// The command that logs in, if a login is missing.
    login: Option<String>,
}

pub(crate) async fn show(page: &Arc<AdminUi>, query: &Query) -> ViewResponse {
    match &*query.rest {
        "" if query.fragment => ViewResponse::of(&ServersPart { servers: &told(page, false) }),
        "" => {
            // Servers that have not been queried yet are queried now, with a short wait.
            drop(page.lists.ask(page.gateway()).await);
            let layout = Layout::new(page, "servers", "Servers").await;
            ViewResponse::of(&ServersPage { layout, servers: told(page, false) })
        }
        "now" => ViewResponse::of(&Now { servers: &told(page, true) }),
        _ => ViewResponse::Missing,
    }
}

fn told(page: &AdminUi, alone: bool) -> Vec<ServerDetails> {
    let gateway = page.gateway();
    let active = gateway.active();
    let in_force = page.reloader.state().in_force.clone();
    let sees = in_force.map(|in_force| in_force.sees(gateway, &active)).unwrap_or_default();
    let one = |(number, server): (usize, &Arc<Server>)| {
        let seen = sees.iter().find(|sees| sees.server == server.name());
        let (word, revisions) = server.state();
        let mut eras: Vec<&str> = revisions.iter().map(|one| era(one.era())).collect();
        eras.dedup();
        ServerDetails {
            number,
            name: server.name().into(),
            address: encoded(server.name()),
            kind: kind(server),
            eras,
            revisions: revisions.iter().map(|revision| revision.as_str()).collect(),
            sees: seen.map(ToolCounts::of),
            refused: active
                .pins
                .refusal()
                .filter(|_| active.pins.mode(server.name()) != Mode::Off)
                .map(String::from),
            changed: active
                .pins
                .changed(server.name())
                .iter()
                .flat_map(|list| &list.changed)
                .map(ChangedDefinition::of)
                .collect(),
            now: state(server, word),
            alone,
        }
    };
    active.servers.iter().enumerate().map(one).collect()
}

impl ToolCounts {
    fn of(sees: &ToolVisibility) -> ToolCounts {
        let by_agent = sees.by_agent.clone();
        ToolCounts { offered: sees.offered, shown: sees.shown, by_agent }
    }
}

/// How a server is reached: the program or the host. Arguments, headers and paths may be secrets.
fn kind(server: &Server) -> String {
    match &server.definition.reach {
        Reach::Own => "built in".into(),
        Reach::InMemory(_) => "in memory".into(),
        Reach::Child(launch) => {
            let program = std::path::Path::new(&launch.program);
            let name = program.file_name().unwrap_or(program.as_os_str());
            format!("stdio, {}", name.to_string_lossy())
        }
        Reach::Http(remote) => {
            let scheme = if remote.address.tls { "https" } else { "http" };
            format!("{scheme}, {}", remote.address.authority)
        }
    }
}

fn state(server: &Server, word: &'static str) -> ServerState {
    let lived = server.life.so_far();
    let spans = server.calls.recent();
    let recent = Span::sum(&spans);
    ServerState {
        word,
        calls: server.calls.total(),
        errors: server.calls.errors(),
        under_way: server.calls.under_way(),
        starts: lived.starts,
        restarts: lived.restarts,
        failure: lived.last_failure.map(|last| (moment(last.at), last.why)),
        recent: recent.calls(),
        p50: recent.percentile(50).map(took),
        p95: recent.percentile(95).map(took),
        plot: Plot::of(&spans),
        login: server.missing_login().map(|needs| needs.command()),
    }
}
