//! Requests of servers to the client: there are few, so all of them are visited.

use std::ops::ControlFlow;

use super::search::{Asked, PointRef, Search, Visit};
use crate::call::{Call, Caller};
use crate::decision::{Decision, Kind};
use crate::hints::Annotations;
use crate::policy::{Policy, Subject};

/// The requests that servers can send to a client.
const CLIENT_REQUESTS: [&str; 6] = [
    "elicitation.form",
    "elicitation.url",
    "roots",
    "sampling",
    "sampling.thisServer",
    "sampling.allServers",
];

impl Search<'_> {
    pub(super) fn client_requests(
        &self,
        asked: &Asked<'_>,
        visit: &mut Visit<'_>,
    ) -> ControlFlow<()> {
        for name in CLIENT_REQUESTS {
            let caller = Caller { agent: asked.agent, claims: None };
            let decide = |policy: &&Policy| {
                let cell = policy.cell(asked.agent, asked.server, Subject::ClientRequest(name));
                cell.decide(caller, &Call::default())
            };
            let decisions: Vec<Decision> = self.policies.iter().map(decide).collect();
            let point = PointRef {
                agent: asked.agent,
                server: asked.server,
                kind: Kind::ClientRequests,
                name,
                claims: Annotations::default(),
                declared: &[],
                arguments: None,
                wider: None,
            };
            visit(&point, &decisions, &[])?;
        }
        ControlFlow::Continue(())
    }
}
