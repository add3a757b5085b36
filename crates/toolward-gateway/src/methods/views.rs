//! Finds the view of a client: fetches or reuses the lists of its servers, and builds the view from them.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::Instant;
use toolward_wire::list::ListKind;

use crate::active::Active;
use crate::audit::Audit;
use crate::audit::facts::Facts;
use crate::client::{Client, Scope};
use crate::context::Context;
use crate::guard::pins::Pins;
use crate::methods::logins;
use crate::upstream::{Listed, Server, ServerConnection, Unavailable};
use crate::view::View;
use crate::view::cache::{FetchedList, ViewVersion, Viewer};
use crate::view::names::Naming;

/// Interval at which a call that waits for a busy server checks again.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// The client's view of one kind. A cached view that has the `wanted` entry is enough; otherwise this waits for the
/// lists of all its servers, whatever the name, so that response times reveal nothing about hidden tools.
pub(crate) async fn view(
    context: &Context,
    active: &Active,
    client: &Arc<Viewer>,
    (kind, wanted): (ListKind, Option<&str>),
) -> Arc<View> {
    let generation = context.servers.generation();
    let version = ViewVersion { active: active.serial(), generation };
    if let Some(view) = client.held_view(kind, version, wanted) {
        return view;
    }
    if let Some(name) = wanted {
        let lists = known_lists(context, active, (client, kind), ServerConnection::known);
        let view = view_of(active, (client, kind), &lists);
        record_changes(context, active).await;
        if view.has(name) {
            refresh(context, active, client, kind);
            client.hold(&view, version, &lists);
            return view;
        }
    }
    // Boxed because it is rare and would otherwise enlarge the future of every call.
    let lists = Box::pin(fetch_lists(context, active, client, (kind, Vec::new()))).await;
    let view = view_of(active, (client, kind), &lists);
    record_changes(context, active).await;
    client.hold(&view, version, &lists);
    view
}

/// The client's view from lists that are known already and not known to have changed; `None` if one is missing. Old
/// lists are refreshed in the background.
pub(crate) fn known_view(
    context: &Context,
    active: &Active,
    client: &Arc<Viewer>,
    kind: ListKind,
) -> Option<Arc<View>> {
    let version = ViewVersion { active: active.serial(), generation: context.servers.generation() };
    if let Some(view) = client.complete_view(kind, version) {
        return Some(view);
    }
    let lists = known_lists(context, active, (client, kind), ServerConnection::known);
    let view = view_of(active, (client, kind), &lists);
    if !view.is_complete() {
        return None;
    }
    refresh(context, active, client, kind);
    client.hold(&view, version, &lists);
    Some(view)
}

/// The client's view. If all processes of the wanted server are busy, this waits for one.
pub(crate) async fn view_in_line(
    context: &Context,
    active: &Active,
    client: &Arc<Viewer>,
    (kind, wanted): (ListKind, Option<&str>),
) -> Arc<View> {
    let view = view(context, active, client, (kind, wanted)).await;
    match lacking(active, client, &view, wanted) {
        Some((server, Unavailable::Full(_))) => {
            let timeout = queue_timeout(active, server, wanted);
            Box::pin(wait_in_line(context, active, client, (kind, wanted), timeout)).await
        }
        _ => view,
    }
}

async fn wait_in_line(
    context: &Context,
    active: &Active,
    client: &Arc<Viewer>,
    (kind, wanted): (ListKind, Option<&str>),
    timeout: Duration,
) -> Arc<View> {
    let deadline = Instant::now() + timeout;
    let mut changes = context.servers.changes();
    loop {
        let _ = tokio::time::timeout(POLL_INTERVAL, changes.changed()).await;
        let view = view(context, active, client, (kind, wanted)).await;
        // A process that was just assigned has to send its list first.
        let waits = matches!(
            lacking(active, client, &view, wanted),
            Some((_, Unavailable::Full(_) | Unavailable::Slow))
        );
        if !waits || Instant::now() >= deadline {
            return view;
        }
    }
}

/// The view from the lists that servers last sent, for notifications: nothing is started or waited for.
pub(crate) fn remembered(
    context: &Context,
    active: &Active,
    (client, kind): (&Client, ListKind),
) -> Arc<View> {
    let mut lists = known_lists(context, active, (client, kind), ServerConnection::remembered);
    for one in &mut lists {
        let first = || first_list(context, active, client, (&one.server, kind));
        if let Some(list) = one.list.is_err().then(first).flatten() {
            one.list = Ok(list);
        }
    }
    let view = view_of(active, (client, kind), &lists);
    report_changes(context, active);
    view
}

/// The view for a listing. A server that has not responded since the start is shown with its last known list, while its
/// own is fetched. The client does not hold such a view, so that no call is decided on it.
pub(crate) async fn view_to_list(
    context: &Context,
    active: &Active,
    client: &Arc<Viewer>,
    kind: ListKind,
) -> Arc<View> {
    let generation = context.servers.generation();
    let version = ViewVersion { active: active.serial(), generation };
    if let Some(view) = client.held_view(kind, version, None) {
        return view;
    }
    let known = |server: &Arc<Server>| {
        let declared = active.declared(client, server);
        let existing = context.servers.existing(server, client, declared);
        existing.is_some_and(|connection| connection.remembered(kind).is_some())
    };
    let first = |server: Arc<Server>| {
        let unknown = !server.is_own() && !known(&server);
        let list = unknown.then(|| first_list(context, active, client, (&server, kind))).flatten();
        list.map(|list| FetchedList { server, list: Ok(list) })
    };
    let first: Vec<FetchedList> = active.usable(client).into_iter().filter_map(first).collect();
    if first.is_empty() {
        return view_in_line(context, active, client, (kind, None)).await;
    }
    let lists = Box::pin(fetch_lists(context, active, client, (kind, first))).await;
    view_of(active, (client, kind), &lists)
}

/// Whether a listing shows the last known list of a server that has not responded since the start.
pub(crate) fn has_first_list(
    context: &Context,
    active: &Active,
    (client, kind): (&Client, ListKind),
) -> bool {
    let usable = active.usable(client);
    usable.iter().any(|server| first_list(context, active, client, (server, kind)).is_some())
}

/// The last known list of a server that has not responded since the start. Flat names are claimed, which only a server's
/// own list may do.
fn first_list(
    context: &Context,
    active: &Active,
    client: &Client,
    (server, kind): (&Arc<Server>, ListKind),
) -> Option<Listed> {
    if matches!(active.naming_of(kind), Some(Naming::Flat(_))) && client.scope == Scope::All {
        return None;
    }
    context.servers.first_list((server, kind), (client, active.declared(client, server)))
}

/// The client's view of a server's list of one kind, from the list that the server last sent to any client. Nothing is
/// started or waited for.
pub(crate) fn last_known(
    active: &Active,
    client: &Client,
    (server, kind): (&Arc<Server>, ListKind),
) -> Option<Arc<View>> {
    let list = FetchedList { server: server.clone(), list: Ok(server.listed_as(kind)?) };
    Some(view_of(active, (client, kind), &[list]))
}

/// A server that could have the tool or prompt and whose list is not known: the call can be neither allowed
/// nor denied.
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

fn view_of(
    active: &Active,
    (client, kind): (&Client, ListKind),
    lists: &[FetchedList],
) -> Arc<View> {
    active.views.view(active.rules(), active.naming_of(kind), (client, kind), lists)
}

/// Records the definitions that were found to differ from the approved ones, before the client sees the result. Changes
/// that cannot be recorded now are recorded with the next view.
async fn record_changes(context: &Context, active: &Active) {
    let reports = active.pins.take_reports();
    if !reports.is_empty() {
        // Boxed because it is rare and would otherwise enlarge the future of every call.
        Box::pin(record_reports(&context.audit, &active.pins, reports)).await;
    }
}

async fn record_reports(audit: &Arc<Audit>, pins: &Pins, reports: Vec<(&'static str, Facts)>) {
    for (kind, facts) in reports {
        if let Err(error) = audit.record(&audit.id(), kind, &facts).await {
            tracing::error!(target: "pins", "a changed definition is not recorded yet: {error}");
            pins.put_back(kind, facts);
        }
    }
}

/// The same where nothing can wait: for notifications, and when a configuration is activated.
pub(crate) fn report_changes(context: &Context, active: &Active) {
    for (kind, facts) in active.pins.take_reports() {
        context.audit.note(kind, &facts);
    }
}

/// Refreshes stale lists in the background.
fn refresh(context: &Context, active: &Active, client: &Client, kind: ListKind) {
    for server in active.usable(client) {
        let declared = active.declared(client, &server);
        let known = context.servers.existing(&server, client, declared);
        if let Some(connection) = known.filter(|known| known.is_overdue(kind)) {
            let timeout = context.list_timeout;
            tokio::spawn(async move { connection.list(kind, timeout).await.map(drop) });
        }
    }
}

/// The lists that are known already; nothing is started or waited for.
fn known_lists(
    context: &Context,
    active: &Active,
    (client, kind): (&Client, ListKind),
    list: impl Fn(&ServerConnection, ListKind) -> Option<Listed>,
) -> Vec<FetchedList> {
    let known = |server: Arc<Server>| {
        let declared = active.declared(client, &server);
        let known = || list(&*context.servers.existing(&server, client, declared)?, kind);
        let list = server.own_list(kind, client.revision).or_else(known).ok_or(Unavailable::Slow);
        FetchedList { server, list }
    };
    active.usable(client).into_iter().map(known).collect()
}

/// The lists of all servers that the client may use, fetched concurrently. Those in `first` are fetched in the
/// background.
async fn fetch_lists(
    context: &Context,
    active: &Active,
    client: &Arc<Viewer>,
    (kind, mut first): (ListKind, Vec<FetchedList>),
) -> Vec<FetchedList> {
    let slow = |server| FetchedList { server, list: Err(Unavailable::Slow) };
    let mut lists: Vec<FetchedList> = active.usable(client).into_iter().map(slow).collect();
    let mut tasks = JoinSet::new();
    for (at, one) in lists.iter_mut().enumerate() {
        let (servers, client) = (context.servers.clone(), client.clone());
        let (server, timeout) = (one.server.clone(), context.list_timeout);
        let declared = active.declared(&client, &server);
        let fetched =
            async move { (at, servers.list((&server, kind), (&client, declared), timeout).await) };
        match first.iter().position(|first| first.server.id == one.server.id) {
            Some(at) => {
                *one = first.swap_remove(at);
                tokio::spawn(fetched);
            }
            None => drop(tasks.spawn(fetched)),
        }
    }
    while let Some(done) = tasks.join_next().await {
        if let Ok((at, list)) = done
            && let Some(one) = lists.get_mut(at)
        {
            one.list = list;
        }
    }
    for one in &lists {
        logins::record(context, &one.server);
    }
    lists
}
