//! Startup: eager servers, persistent hooks, and the check for colliding flat names.

use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;
use tokio::task::JoinSet;

use super::Active;
use crate::upstream::Servers;
use crate::view::names::Naming;

/// How long startup waits for tool lists, to find colliding flat names.
const LIST_TIMEOUT: Duration = Duration::from_secs(30);

/// Starts persistent hooks and eager servers. With flat names, all lists are fetched, and two tools with
/// the same name are an error.
pub(crate) async fn start(active: &Active, servers: &Arc<Servers>) -> Result<(), String> {
    active.guards.start();
    if let Naming::Flat(_) = active.naming {
        return claim_names(active, servers).await;
    }
    for server in active.servers.iter().filter(|server| server.definition.eager) {
        let (servers, server) = (servers.clone(), server.clone());
        tokio::spawn(async move { servers.own_list(&server, LIST_TIMEOUT).await });
    }
    Ok(())
}

async fn claim_names(active: &Active, servers: &Arc<Servers>) -> Result<(), String> {
    let mut tasks = JoinSet::new();
    for server in active.servers.iter() {
        let (servers, server) = (servers.clone(), server.clone());
        tasks.spawn(async move { (server.id, servers.own_list(&server, LIST_TIMEOUT).await) });
    }
    let mut lists = HashMap::new();
    while let Some(Ok((id, listed))) = tasks.join_next().await {
        lists.extend(listed.ok().map(|listed| (id, listed)));
    }
    let mut duplicates = Vec::new();
    for server in active.servers.iter() {
        let Some(listed) = lists.remove(&server.id) else {
            tracing::warn!(
                target: "upstream",
                server = server.name(),
                "its tool list is not known yet; a tool whose name is taken will be hidden"
            );
            continue;
        };
        let exposure = active.policy.exposure(server.name());
        let mut claims = active.naming.claims(server.id);
        for tool in listed.catalogue.tools().tools() {
            let name = match exposure {
                None => Some(tool.name().into()),
                Some(exposure) => exposure.show(tool.name()).map(|shown| shown.name),
            };
            let Some(name) = name else { continue };
            if active.naming.expose(&mut claims, server.name(), &name).is_none() {
                duplicates.push(format!("{}/{}", server.name(), tool.name()));
            }
        }
        claims.keep_latest(listed.catalogue.hash());
    }
    match duplicates.as_slice() {
        [] => Ok(()),
        some => Err(format!(
            "with `naming: flat`, tool names must be unique, and these are used by another server \
             too: {}. Rename them with `expose`, or use `naming: prefix`",
            some.join(", ")
        )),
    }
}
