//! A process that was asked in an era that it does not know, and said so. It has heard nothing else, and
//! serves whoever asks next in the other era.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use super::line_session::Process;
use crate::lock::LockUnpoisoned;

/// For so long it waits.
const KEPT: Duration = Duration::from_secs(10);

#[derive(Default)]
pub(in crate::upstream) struct Spare(Mutex<Slot>);

#[derive(Default)]
struct Slot {
    process: Option<Process>,
    /// Counts what was put here.
    number: u64,
}

impl Spare {
    fn slot(&self) -> MutexGuard<'_, Slot> {
        self.0.locked()
    }

    pub(in crate::upstream) fn put(self: &Arc<Self>, process: Process) {
        let (before, number) = {
            let mut slot = self.slot();
            slot.number += 1;
            (slot.process.replace(process), slot.number)
        };
        let spare = Arc::downgrade(self);
        tokio::spawn(async move {
            if let Some(before) = before {
                before.end().await;
            }
            tokio::time::sleep(KEPT).await;
            let Some(spare) = spare.upgrade() else { return };
            let late = {
                let mut slot = spare.slot();
                if slot.number == number { slot.process.take() } else { None }
            };
            if let Some(late) = late {
                late.end().await;
            }
        });
    }

    pub(in crate::upstream) fn take(&self) -> Option<Process> {
        self.slot().process.take()
    }

    pub(in crate::upstream) fn is_there(&self) -> bool {
        self.slot().process.is_some()
    }
}
