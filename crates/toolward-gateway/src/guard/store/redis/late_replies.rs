//! Requests, each in a task of its own that waits for the reply to its end.
//!
//! The caller waits for `timeout` only. A dropped request would lose a reply that comes later, and with it what the
//! script took: here such a reply is still read, and its units are given back.

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::line::{Line, Live, RequestError};
use super::scripts::{self, GIVE_BACK_SCRIPT, TAKE_SCRIPT};
use super::{Outcome, Taken, Unreachable};
use crate::guard::store::counters::Pace;

/// Takes one of each limit. Units that were taken for a caller that has left are given back.
pub(super) async fn take(
    line: Arc<Line>,
    timeout: Duration,
    wanted: Vec<(Arc<str>, Pace)>,
    done: oneshot::Sender<Outcome>,
) {
    let live = match line.live().await {
        Ok(live) => live,
        Err(why) => return drop(done.send(Err(why))),
    };
    // The caller may have left while a connection was made.
    if done.is_closed() {
        return;
    }
    let asked = Instant::now();
    let arguments = scripts::take(&wanted, live.clock().after(timeout));
    let mut request = pin!(live.run(&TAKE_SCRIPT, &arguments));
    let (reply, done) = match tokio::time::timeout(timeout, &mut request).await {
        Ok(reply) => (reply, Some(done)),
        Err(_) => {
            let why = Unreachable("it did not answer in time".into());
            let _ = done.send(Err(why.clone()));
            line.replace(&live, &why).await;
            (request.await, None)
        }
    };
    let outcome = match reply {
        Ok(reply) => {
            live.learn_time(&reply, asked);
            if done.is_some() {
                line.answered();
            }
            scripts::outcome(wanted, &reply)
        }
        Err(RequestError::Refused(why)) => Err(why),
        Err(RequestError::Lost(why)) => {
            line.replace(&live, &why).await;
            Err(why)
        }
    };
    let unclaimed = match done {
        Some(done) => done.send(outcome).err(),
        None => Some(outcome),
    };
    if let Some(Ok(Ok(taken))) = unclaimed {
        give_back_on(&live, &taken).await;
    }
}

/// Gives units back. If that fails, they refill with time.
pub(super) async fn give_back(line: Arc<Line>, taken: Taken) {
    if let Ok(live) = line.live().await {
        give_back_on(&live, &taken).await;
    }
}

async fn give_back_on(live: &Live, taken: &Taken) {
    let _ = live.run(&GIVE_BACK_SCRIPT, &scripts::give_back(taken)).await;
}
