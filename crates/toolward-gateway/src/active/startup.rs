//! What happens before the first client: servers that are to be there already, and names that no two
//! tools may share.

use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;
use tokio::task::JoinSet;
use toolward_wire::{Era, Revision};

use crate::client::{Caller, Client, Owner, Scope};
use crate::gateway::Gateway;
use crate::upstream::{Listed, Server, Servers, Unavailable};
use crate::view::names::Naming;

/// How long flat names wait for the lists in which they could meet.
const PATIENCE: Duration = Duration::from_secs(30);

impl Gateway {
    /// Starts persistent hooks and eager servers. With flat names, all lists are read, and two tools of one name are an
    /// error.
    pub async fn start(self: &Arc<Self>) -> Result<(), String> {
        self.current.get().guards.start();
        if let Naming::Flat(_) = self.naming {
            return self.claim_names().await;
        }
        for server in self.servers.all().iter().filter(|server| server.definition.eager) {
            let (gateway, server) = (self.clone(), server.clone());
            tokio::spawn(async move { gateway.servers.own_list(&server, PATIENCE).await });
        }
        Ok(())
    }

    async fn claim_names(self: &Arc<Self>) -> Result<(), String> {
        let mut asked = JoinSet::new();
        let all = self.servers.all();
        for server in all.iter() {
            let (gateway, server) = (self.clone(), server.clone());
            asked.spawn(async move {
                (server.index, gateway.servers.own_list(&server, PATIENCE).await)
            });
        }
        let mut lists = HashMap::new();
        while let Some(Ok((index, listed))) = asked.join_next().await {
            lists.extend(listed.ok().map(|listed| (index, listed)));
        }
        let mut twice = Vec::new();
        for server in all.iter() {
            let Some(listed) = lists.remove(&server.index) else {
                (self.log)(&format!(
                    "{}: its list is not known yet; a tool whose name is taken will be hidden",
                    server.name()
                ));
                continue;
            };
            let snapshot = self.current.get();
            let exposure = snapshot.policy.exposure(server.name());
            let mut claims = self.naming.claims(server.index);
            for tool in listed.catalogue.tools().tools() {
                let name = match exposure {
                    None => Some(tool.name().into()),
                    Some(exposure) => exposure.show(tool.name()).map(|shown| shown.name),
                };
                let Some(name) = name else { continue };
                if self.naming.expose(&mut claims, server.name(), &name).is_none() {
                    twice.push(format!("{}/{}", server.name(), tool.name()));
                }
            }
            claims.keep_latest(listed.catalogue.hash());
        }
        match twice.as_slice() {
            [] => Ok(()),
            some => Err(format!(
                "with `naming: flat` no two tools may have one name, and these repeat another \
                 server's: {}. Rename them with `expose`, or use `naming: prefix`",
                some.join(", ")
            )),
        }
    }
}

impl Servers {
    /// A server's list in whichever era it speaks, asked for by nobody in particular.
    pub async fn own_list(
        &self,
        server: &Arc<Server>,
        patience: Duration,
    ) -> Result<Listed, Unavailable> {
        let caller = Caller::new(None, "gateway");
        let revision = Revision::newest(Era::Modern);
        let client = Client::new(caller, Scope::All, revision, Owner::Everyone);
        self.list(server, &client, patience).await
    }
}
