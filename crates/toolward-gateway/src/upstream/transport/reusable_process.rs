//! The process of a server whose protocol version is not known yet.
//!
//! A server is started once. A process that rejected one protocol version continues in the other, and a process that
//! has not responded to `server/discover` yet can be claimed by the connection that would send `initialize`.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::oneshot;
use toolward_wire::Era;

use super::line_session::{Claim, Process};
use crate::lock::LockUnpoisoned;
use crate::upstream::Unavailable;
use crate::upstream::handshake::Opening;

/// How long a process that rejected a protocol version is kept.
const REUSE_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Default)]
pub(in crate::upstream) struct Spare(Mutex<Slot>);

#[derive(Default)]
struct Slot {
    /// A process, and the protocol version that it rejected. It has received nothing else.
    rejected: Option<(Era, Process)>,
    /// Counts the processes put here.
    number: u64,
    /// The way to the process that is asked `server/discover` now.
    asked: Option<oneshot::Sender<Claim>>,
}

impl Spare {
    fn slot(&self) -> MutexGuard<'_, Slot> {
        self.0.locked()
    }

    /// Keeps a process that rejected a protocol version.
    pub(in crate::upstream) fn put(self: &Arc<Self>, rejected: Era, process: Process) {
        let (before, number) = {
            let mut slot = self.slot();
            slot.number += 1;
            (slot.rejected.replace((rejected, process)), slot.number)
        };
        let spare = Arc::downgrade(self);
        tokio::spawn(async move {
            if let Some((_, before)) = before {
                before.end().await;
            }
            tokio::time::sleep(REUSE_TIMEOUT).await;
            let Some(spare) = spare.upgrade() else { return };
            let late = {
                let mut slot = spare.slot();
                if slot.number == number { slot.rejected.take() } else { None }
            };
            if let Some((_, late)) = late {
                late.end().await;
            }
        });
    }

    /// The process that was kept, whichever protocol version it rejected.
    pub(in crate::upstream) fn take(&self) -> Option<Process> {
        self.slot().rejected.take().map(|(_, process)| process)
    }

    /// A process that can be asked in this protocol version, because it rejected the other.
    pub(in crate::upstream) fn take_for(&self, era: Era) -> Option<Process> {
        let kept = self.slot().rejected.take_if(|(rejected, _)| *rejected != era);
        kept.map(|(_, process)| process)
    }

    /// Offers the process that is asked `server/discover` now. Resolves when it is claimed.
    pub(in crate::upstream) fn offer(&self) -> impl Future<Output = Claim> + Send + use<> {
        let (sender, claim) = oneshot::channel();
        self.slot().asked = Some(sender);
        async {
            match claim.await {
                Ok(claim) => claim,
                // Another process is offered instead.
                Err(_) => std::future::pending().await,
            }
        }
    }

    /// Claims the process that is asked `server/discover` now. The reply is the process, after a successful handshake
    /// with `opening`, or why it cannot be had; it is missing if the process ended.
    pub(in crate::upstream) fn claim(
        &self,
        opening: &Opening,
    ) -> Option<oneshot::Receiver<Result<Process, Unavailable>>> {
        let asked = self.slot().asked.take()?;
        let (reply, replied) = oneshot::channel();
        asked.send(Claim::new(opening.clone(), reply)).ok().map(|()| replied)
    }
}
