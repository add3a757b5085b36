//! Records that are written together, and the tasks that wait for them.
//!
//! A thread collects the records of all requests that are ready, and writes them together: one lock
//! and one write for many calls, and no delay for a single one.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};

use super::NotRecorded;
use super::line::Lines;
use crate::lock::LockUnpoisoned;

/// The records that a thread has collected.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) lines: Lines,
    /// A task waits for these records before it continues.
    pub(super) awaited: bool,
    /// A task that writes the batch is scheduled.
    pub(super) scheduled: bool,
    pub(super) written: Arc<Written>,
}

/// Whether a batch has been written, once that is known.
#[derive(Debug, Default)]
pub(super) struct Written(Mutex<WriteState>);

#[derive(Debug, Default)]
struct WriteState {
    result: Option<Result<(), NotRecorded>>,
    waiting: Vec<Waker>,
}

impl Written {
    fn state(&self) -> MutexGuard<'_, WriteState> {
        self.0.locked()
    }

    /// Whether the result is known.
    pub(super) fn is_known(&self) -> bool {
        self.state().result.is_some()
    }

    pub(super) fn set(&self, result: Result<(), NotRecorded>) {
        let waiting = {
            let mut state = self.state();
            state.result = Some(result);
            std::mem::take(&mut state.waiting)
        };
        waiting.into_iter().for_each(Waker::wake);
    }
}

/// Waits until a batch has been written or has failed.
pub(super) struct Wait(pub(super) Arc<Written>);

impl Future for Wait {
    type Output = Result<(), NotRecorded>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.0.state();
        match &state.result {
            Some(result) => Poll::Ready(result.clone()),
            None => {
                if !state.waiting.iter().any(|waker| waker.will_wake(context.waker())) {
                    state.waiting.push(context.waker().clone());
                }
                Poll::Pending
            }
        }
    }
}
