//! The view of a client: tool lists of the servers it may use, fetched or known, and the view over them.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::active::Active;
use crate::client::{Client, Scope};
use crate::context::Context;
use crate::upstream::{Link, Listed, Server, Unavailable};
use crate::view::View;
use crate::view::cache::{FetchedList, ViewVersion, Viewer};
use crate::view::names::Naming;

/// How often a call that waits for a busy server checks whether it is its turn.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// The client's view. A view that has the `wanted` tool is enough; otherwise the lists of all its servers are waited
/// for, whatever the name, so that response times reveal nothing about hidden tools.
pub(crate) async fn view(
    context: &Context,
    active: &Active,
    client: &Arc<Viewer>,
    wanted: Option<&str>,
) -> Arc<View> {
    let generation = context.servers.generation();
    let version = ViewVersion { active: active.serial(), generation };
    if let Some(view) = client.held_view(version, wanted) {
        return view;
    }
    if let Some(name) = wanted {
        let lists = known_lists(context, active, client, Link::known);
        let view = view_of(active, client, &lists);
        if view.has(name) {
            refresh(context, active, client);
            client.hold(&view, version, &lists);
            return view;
        }
    }
    // Boxed: it is rare, and would make the future of every call larger.
    let lists = Box::pin(fetch_lists(context, active, client)).await;
    let view = view_of(active, client, &lists);
    client.hold(&view, version, &lists);
    view
}

/// The client's view. If all processes of the wanted server are busy, this waits for one.
pub(crate) async fn view_in_line(
    context: &Context,
    active: &Active,
    client: &Arc<Viewer>,
    wanted: Option<&str>,
) -> Arc<View> {
    let view = view(context, active, client, wanted).await;
    match lacking(active, client, &view, wanted) {
        Some((server, Unavailable::Full(_))) => {
            let timeout = queue_timeout(active, server, wanted);
            Box::pin(wait_in_line(context, active, client, wanted, timeout)).await
        }
        _ => view,
    }
}

async fn wait_in_line(
    context: &Context,
    active: &Active,
    client: &Arc<Viewer>,
    wanted: Option<&str>,
    timeout: Duration,
) -> Arc<View> {
    let deadline = Instant::now() + timeout;
    let mut changes = context.servers.changes();
    loop {
        let _ = tokio::time::timeout(POLL_INTERVAL, changes.changed()).await;
        let view = view(context, active, client, wanted).await;
        // A process that was just assigned has to list first.
        let waits = matches!(
            lacking(active, client, &view, wanted),
            Some((_, Unavailable::Full(_) | Unavailable::Slow))
        );
        if !waits || Instant::now() >= deadline {
            return view;
        }
    }
}

/// The view over the lists that servers last sent, for notifications: nothing is started or waited for.
pub(crate) fn remembered(context: &Context, active: &Active, client: &Client) -> Arc<View> {
    let lists = known_lists(context, active, client, Link::remembered);
    view_of(active, client, &lists)
}

/// The client's view of a server by the list that any client got last. Nothing is started or waited for.
pub(crate) fn last_known(
    active: &Active,
    client: &Client,
    server: &Arc<Server>,
) -> Option<Arc<View>> {
    let list = FetchedList { server: server.clone(), list: Ok(server.listed()?) };
    Some(view_of(active, client, &[list]))
}

/// A server that could have the tool and whose list is not known: nothing can be decided about the name, allowed or
/// not.
pub(crate) fn undecidable<'v>(
    active: &Active,
    client: &Client,
    view: &'v View,
    name: &str,
) -> Option<(&'v str, &'v Unavailable)> {
    if view.has(name) {
        return None;
    }
    let fits = |server: &str| match client.scope {
        Scope::One(_) => true,
        Scope::All => active.naming.could_be(name, server),
        Scope::Discovery => Naming::Address.could_be(name, server),
    };
    let mut unknown =
        view.servers().iter().filter_map(|of| Some((&*of.name, of.unavailable.as_ref()?)));
    unknown.find(|(server, _)| fits(server))
}

/// The wanted server, if its list is not known.
fn lacking<'v>(
    active: &Active,
    client: &Client,
    view: &'v View,
    wanted: Option<&str>,
) -> Option<(&'v str, &'v Unavailable)> {
    match (wanted, client.scope) {
        (Some(name), _) => undecidable(active, client, view, name),
        (None, Scope::One(_)) => view.unavailable(),
        (None, Scope::All | Scope::Discovery) => None,
    }
}

/// How long to wait in line for a server: its idle timeout for the tool.
fn queue_timeout(active: &Active, server: &str, wanted: Option<&str>) -> Duration {
    let tool = wanted.map(|name| active.naming.rest(name, server).unwrap_or(name));
    let server = active.server(server);
    server
        .map_or(Duration::ZERO, |server| server.definition.timeouts.idle(tool.unwrap_or_default()))
}

fn view_of(active: &Active, client: &Client, lists: &[FetchedList]) -> Arc<View> {
    active.views.view(active.rules(), &active.naming, client, lists)
}

/// Refreshes stale lists in the background.
fn refresh(context: &Context, active: &Active, client: &Client) {
    for server in active.usable(client) {
        let stale = context.servers.existing(&server, client).filter(|link| link.is_overdue());
        if let Some(link) = stale {
            let timeout = context.list_timeout;
            tokio::spawn(async move { link.list(timeout).await.map(drop) });
        }
    }
}

/// The lists that are known already; nothing is started or waited for.
fn known_lists(
    context: &Context,
    active: &Active,
    client: &Client,
    list: impl Fn(&Link) -> Option<Listed>,
) -> Vec<FetchedList> {
    let known = |server: Arc<Server>| {
        let known = || list(&*context.servers.existing(&server, client)?);
        let list = server.own_list(client.revision).or_else(known).ok_or(Unavailable::Slow);
        FetchedList { server, list }
    };
    active.usable(client).into_iter().map(known).collect()
}

/// The lists of all servers that the client may use, fetched concurrently.
async fn fetch_lists(context: &Context, active: &Active, client: &Arc<Viewer>) -> Vec<FetchedList> {
    let slow = |server| FetchedList { server, list: Err(Unavailable::Slow) };
    let mut lists: Vec<FetchedList> = active.usable(client).into_iter().map(slow).collect();
    let mut tasks = JoinSet::new();
    for (at, one) in lists.iter().enumerate() {
        let (servers, client) = (context.servers.clone(), client.clone());
        let (server, timeout) = (one.server.clone(), context.list_timeout);
        tasks.spawn(async move { (at, servers.list(&server, &client, timeout).await) });
    }
    while let Some(done) = tasks.join_next().await {
        if let Ok((at, list)) = done
            && let Some(one) = lists.get_mut(at)
        {
            one.list = list;
        }
    }
    lists
}
