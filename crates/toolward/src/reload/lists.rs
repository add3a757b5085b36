//! Runs the policy's tests again when a server has listed its tools.

use std::sync::Arc;

use super::{Reloader, SETTLE};
use crate::exit::Failure;

impl Reloader {
    /// Runs the policy's tests again whenever a server has listed its tools.
    pub(super) async fn follow_lists(self: Arc<Self>) {
        let mut lists = self.gateway.context.servers.changes();
        while lists.changed().await.is_ok() {
            tokio::time::sleep(SETTLE).await;
            lists.borrow_and_update();
            let in_force = self.state().in_force.clone();
            let Some(in_force) = in_force.filter(|one| !one.loaded.tests.is_empty()) else {
                continue;
            };
            let active = self.gateway.active();
            let failing = in_force.failing_tests(&active);
            let failing: Vec<String> =
                failing.into_iter().map(|line| Failure::invalid(line).text()).collect();
            let mut state = self.state();
            for line in failing.iter().filter(|line| !state.failing.contains(line)) {
                tracing::error!(
                    target: "policy",
                    diagnostic = line,
                    "a test of the policy fails with the tools that servers list; the policy stays active"
                );
            }
            state.failing = failing;
        }
    }
}
