//! Answers that come when nobody waits for them any more: what they took is given back.

use std::io;
use std::time::Duration;

use tokio::sync::oneshot;

use super::{Line, Order, Unreachable};

/// So long they are waited for.
const PATIENCE: Duration = Duration::from_secs(10);

impl Line {
    /// Whoever waits hears that the store cannot be used. The connection is read on for a while, by
    /// itself.
    pub(super) fn let_go(mut self, why: &io::Error) {
        let failed = why.to_string();
        for waiting in &mut self.waiting {
            if let Order::Take { done, .. } = &mut waiting.order {
                let (nobody, _) = oneshot::channel();
                let done = std::mem::replace(done, nobody);
                let _ = done.send(Err(Unreachable(failed.clone())));
            }
        }
        // Nothing more comes from a connection that was closed, and none that took half of a command
        // can be told anything.
        if why.kind() == io::ErrorKind::TimedOut && !self.waiting.is_empty() {
            tokio::spawn(async move {
                let _ = tokio::time::timeout(PATIENCE, self.settle()).await;
            });
        }
    }

    async fn settle(mut self) -> io::Result<()> {
        while !self.waiting.is_empty() || !self.out.is_empty() {
            let out = std::mem::take(&mut self.out);
            self.connection.write(&out).await?;
            if !self.connection.read_more().await? {
                break;
            }
            while let Some(reply) = self.reply()? {
                self.answered(reply)?;
            }
        }
        Ok(())
    }
}
