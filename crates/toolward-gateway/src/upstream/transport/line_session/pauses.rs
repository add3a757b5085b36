//! How long a process shared by several agents may pause for the memory of one of them.
//!
//! While a result waits for memory of its agent, nothing is read from the process, so other agents
//! wait too. Each agent may cause a burst of such pauses, enough for a client that reads its
//! results to free memory, and after that half a percent of the time. Beyond that, results of this
//! agent that do not fit are discarded.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::budget::Account;

/// The maximum burst of pauses for one agent.
const MAX_PAUSE: Duration = Duration::from_secs(5);
/// It takes this many seconds to refill one second of pauses.
const REFILL_SECONDS: u32 = 200;

/// The pauses of one process, by agent. Agents that are absent have caused none.
#[derive(Default)]
pub(super) struct Pauses(Vec<Pause>);

struct Pause {
    account: Arc<Account>,
    left: Duration,
    /// When `left` was computed.
    since: Instant,
}

impl Pauses {
    /// Waits for memory within the remaining pause of an agent; false on timeout.
    pub(super) async fn wait(
        &mut self,
        account: &Arc<Account>,
        room: impl Future<Output = ()>,
    ) -> bool {
        let now = Instant::now();
        let spent = Spending { pause: self.of(account, now), begun: now };
        tokio::time::timeout(spent.pause.left, room).await.is_ok()
    }

    fn of(&mut self, account: &Arc<Account>, now: Instant) -> &mut Pause {
        for pause in &mut self.0 {
            let refilled = now.duration_since(pause.since) / REFILL_SECONDS;
            (pause.left, pause.since) = (MAX_PAUSE.min(pause.left + refilled), now);
        }
        self.0.retain(|pause| pause.left < MAX_PAUSE || Arc::ptr_eq(&pause.account, account));
        let known = self.0.iter().position(|pause| Arc::ptr_eq(&pause.account, account));
        let at = known.unwrap_or(self.0.len());
        if known.is_none() {
            self.0.push(Pause { account: account.clone(), left: MAX_PAUSE, since: now });
        }
        &mut self.0[at]
    }
}

/// A pause in progress. It is charged even if the wait is interrupted.
struct Spending<'p> {
    pause: &'p mut Pause,
    begun: Instant,
}

impl Drop for Spending<'_> {
    fn drop(&mut self) {
        self.pause.left = self.pause.left.saturating_sub(self.begun.elapsed());
        self.pause.since = Instant::now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::Budget;

    #[tokio::test]
    async fn an_agent_has_a_burst_of_pauses_and_then_few() {
        let budget = Budget::new(400);
        let [hostile, other] =
            ["hostile", "other"].map(|name| budget.account(Some(&Arc::from(name))));
        let mut pauses = Pauses::default();
        // Interrupted pauses count.
        let interrupted = pauses.wait(&hostile, std::future::pending());
        assert!(tokio::time::timeout(Duration::from_millis(50), interrupted).await.is_err());
        let now = Instant::now();
        assert!(pauses.of(&hostile, now).left < MAX_PAUSE - Duration::from_millis(40));
        assert_eq!(pauses.of(&other, now).left, MAX_PAUSE);
        pauses.of(&hostile, now).left = Duration::ZERO;
        assert!(!pauses.wait(&hostile, std::future::pending()).await);
        // Available memory is taken without a pause.
        assert!(pauses.wait(&hostile, async {}).await);
        let later = Instant::now() + Duration::from_secs(200);
        let refilled = pauses.of(&hostile, later).left;
        assert!((900..=1100).contains(&refilled.as_millis()), "{refilled:?}");
        // An agent with a full burst takes no memory.
        pauses.of(&other, later + Duration::from_secs(1000));
        assert_eq!(pauses.0.len(), 1);
    }
}
