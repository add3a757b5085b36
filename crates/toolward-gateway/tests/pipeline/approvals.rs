//! Rules that ask: a person approves a call before it is forwarded.

mod attacks;
mod elicitation;
mod grants;
mod restart;
mod rounds;
mod waiting;

use std::time::Duration;

use serde_json::Value;
use toolward_gateway::guard::approvals::{Grant, Scope, Ticket};
use toolward_gateway::methods::approvals::{self, Approver, Rejected};

use super::kit::*;

pub const HOUR: Duration = Duration::from_secs(3600);

/// A configuration in which a person must approve calls of `echo`.
pub fn asks() -> String {
    allow("{tool: echo, ask: true}, other")
}

/// The user who runs the gateway.
pub fn operator() -> Approver {
    Approver { admin: None, channel: "cli", uid: Some(1000) }
}

impl Gate {
    /// The only ticket that waits, once there is one.
    pub async fn ticket(&self) -> Ticket {
        let waits = async {
            loop {
                let mut pending = self.tickets().await;
                match pending.len() {
                    0 => tokio::time::sleep(Duration::from_millis(10)).await,
                    1 => return pending.remove(0),
                    _ => panic!("several tickets: {pending:?}"),
                }
            }
        };
        within_an_hour("a ticket", waits).await
    }

    pub async fn tickets(&self) -> Vec<Ticket> {
        self.gateway().context.approvals.pending().await.unwrap()
    }

    pub async fn grants(&self) -> Vec<Grant> {
        self.gateway().context.approvals.grants().await.unwrap()
    }

    pub async fn approve(&self, ticket: &Ticket, scope: Scope) -> Result<Grant, Rejected> {
        self.approve_as(ticket, scope, &operator()).await
    }

    pub async fn approve_as(
        &self,
        ticket: &Ticket,
        scope: Scope,
        approver: &Approver,
    ) -> Result<Grant, Rejected> {
        let (context, active) = (&self.gateway().context, self.gateway().active());
        approvals::approve(context, &active, (&ticket.id, &scope), approver).await
    }

    pub async fn deny(&self, ticket: &Ticket, reason: Option<&str>) -> Result<(), Rejected> {
        let (context, active) = (&self.gateway().context, self.gateway().active());
        approvals::deny(context, &active, (&ticket.id, reason), &operator()).await
    }
}

/// Whether a call was carried out.
pub fn is_done(answer: &Value) -> bool {
    answer["result"].is_object()
        && answer["result"]["isError"].is_null()
        && answer["result"]["requestState"].is_null()
}
