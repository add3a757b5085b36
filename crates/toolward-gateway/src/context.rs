//! Shared state of method handlers: servers, audit log, memory budget.

use std::sync::Arc;
use std::time::Duration;

use crate::active::CurrentActive;
use crate::audit::Audit;
use crate::budget::Budget;
use crate::guard::approvals::Approvals;
use crate::held::HeldCalls;
use crate::links::Links;
use crate::made_tasks::MadeTasks;
use crate::metrics::series::Series;
use crate::opaque_id::Sealer;
use crate::upstream::Servers;

/// The parts of the gateway that survive a reload.
pub struct Context {
    pub servers: Arc<Servers>,
    pub audit: Arc<Audit>,
    /// Seals what clients hold.
    pub sealer: Arc<Sealer>,
    /// Calls that wait for a person, and grants.
    pub approvals: Arc<Approvals>,
    /// Calls that wait for their client.
    pub held: HeldCalls,
    /// Resources that results linked to, by agent.
    pub links: Links,
    /// Tasks by the agent that made them.
    pub tasks: MadeTasks,
    /// The active configuration of the moment, for requests that outlive one.
    pub current: CurrentActive,
    /// Metrics by label.
    pub series: Series,
    /// The memory budget for clients.
    pub budget: Budget,
    /// How long a listing waits for a server that is starting.
    pub list_timeout: Duration,
}
