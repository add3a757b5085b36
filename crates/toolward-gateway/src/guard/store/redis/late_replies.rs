//! Requests to the store, each in its own task that also reads late replies.
//!
//! The caller waits only for `timeout`. If the request were dropped then, a late reply would be lost, and
//! with it the units that the script consumed. Here a late reply is still read, and its units are
//! returned.

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::line::{LiveConnection, RequestError, StoreConnection};
use super::scripts::{self, GIVE_BACK_SCRIPT, TAKE_SCRIPT};
use super::{ConsumedUnits, Outcome, Unreachable};
use crate::guard::store::counters::Pace;

/// Consumes one unit of each limit. Units consumed for a caller that has left are returned.
pub(super) async fn take(
    line: Arc<StoreConnection>,
    timeout: Duration,
    wanted: Vec<(Arc<str>, Pace)>,
    done: oneshot::Sender<Outcome>,
) {
    let live = match line.live().await {
        Ok(live) => live,
        Err(why) => return drop(done.send(Err(why))),
    };
    // The caller may have left while the connection was being made.
    if done.is_closed() {
        return;
    }
    let sent = Instant::now();
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
            live.learn_time(&reply, sent);
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

/// Returns units. If that fails, they refill over time.
pub(super) async fn give_back(line: Arc<StoreConnection>, taken: ConsumedUnits) {
    if let Ok(live) = line.live().await {
        give_back_on(&live, &taken).await;
    }
}

async fn give_back_on(live: &LiveConnection, taken: &ConsumedUnits) {
    let _ = live.run(&GIVE_BACK_SCRIPT, &scripts::give_back(taken)).await;
}
