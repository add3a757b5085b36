//! Records that are written together, and whoever waits for them.
//!
//! A thread collects the records of all requests that are ready at the moment, and writes them at
//! once: one lock and one write for many calls, and no wait for one that is alone.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};

use super::NotRecorded;
use super::line::Lines;
use crate::lock::LockUnpoisoned;

/// What a thread has collected.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) lines: Lines,
    /// Something waits for these records before it happens.
    pub(super) awaited: bool,
    /// A task that writes it is about to run.
    pub(super) scheduled: bool,
    pub(super) written: Arc<Written>,
}

/// Whether a batch has been written, once that is known.
#[derive(Debug, Default)]
pub(super) struct Written(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    result: Option<Result<(), NotRecorded>>,
    waiting: Vec<Waker>,
}

impl Written {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.locked()
    }

    /// Whether it is known.
    pub(super) fn is_told(&self) -> bool {
        self.state().result.is_some()
    }

    pub(super) fn tell(&self, result: Result<(), NotRecorded>) {
        let waiting = {
            let mut state = self.state();
            state.result = Some(result);
            std::mem::take(&mut state.waiting)
        };
        waiting.into_iter().for_each(Waker::wake);
    }
}

/// Waits until a batch has been written or could not be.
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
