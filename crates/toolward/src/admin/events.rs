//! Server-sent events that tell open views to refresh.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;

use super::{AdminUi, Query, ViewResponse};

/// Changes within this time are sent as one event.
const SETTLE: Duration = Duration::from_millis(100);
/// The polling interval of state without change notifications.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Detects changes of the data that views show.
pub(super) struct Changes {
    last: ViewVersions,
}

impl Changes {
    pub(super) fn new(page: &AdminUi) -> Changes {
        Changes { last: seen(page) }
    }

    /// The event for a change since the last call.
    pub(super) async fn look(&mut self, page: &AdminUi) -> Option<Bytes> {
        // A view is open: servers that have failed are queried again.
        page.lists.retry(page.gateway());
        page.gateway().context.approvals.look().await;
        let now = seen(page);
        let changed = now != self.last;
        self.last = now;
        changed.then(|| event(page))
    }
}

/// The event for changes between the rendering of a view and the opening of its event stream.
pub(super) fn missed(page: &AdminUi, query: &Query) -> Option<Bytes> {
    query.word("seen").filter(|made_of| *made_of != mark(page)).map(|_| event(page))
}

/// Contains the current versions, which the view sends back when it reconnects.
fn event(page: &AdminUi) -> Bytes {
    format!("event: changed\ndata: {}\n\n", mark(page)).into()
}

/// The versions of the data that views show.
type ViewVersions = (u64, u64, u64, u64, u64, u64, Vec<&'static str>);

pub(super) fn show(page: &Arc<AdminUi>, query: &Query) -> ViewResponse {
    let (send, events) = mpsc::channel(4);
    let gateway = page.gateway();
    let (mut servers, mut lists) = (gateway.context.servers.changes(), page.lists.changes());
    let mut approvals = gateway.context.approvals.changes();
    // In this order: a change between the two is sent twice rather than never.
    let (mut changes, missed) = (Changes::new(page), missed(page, query));
    let page = Arc::downgrade(page);
    tokio::spawn(async move {
        for first in [Some(Bytes::from_static(b": here\n\n")), missed].into_iter().flatten() {
            if send.send(first.into()).await.is_err() {
                return;
            }
        }
        loop {
            tokio::select! {
                _ = servers.changed() => {}
                _ = lists.changed() => {}
                _ = approvals.changed() => {}
                () = tokio::time::sleep(POLL_INTERVAL) => {}
                () = send.closed() => return,
            }
            tokio::time::sleep(SETTLE).await;
            let Some(page) = page.upgrade() else { return };
            let news = changes.look(&page).await;
            drop(page);
            if let Some(news) = news
                && send.send(news.into()).await.is_err()
            {
                return;
            }
        }
    });
    ViewResponse::Events(events)
}

/// The same as an opaque string, by which an open view identifies its data. It is specific to the process.
pub(super) fn mark(page: &AdminUi) -> String {
    let mut hasher = DefaultHasher::new();
    (page.begun, seen(page)).hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}

fn seen(page: &AdminUi) -> ViewVersions {
    let gateway = page.gateway();
    let active = gateway.active();
    let states = active.servers.iter().map(|server| server.state().0).collect();
    let (taken_up, refused) = {
        let state = page.reloader.state();
        (state.taken_up, state.refused)
    };
    let generation = gateway.context.servers.generation();
    let approvals = *gateway.context.approvals.changes().borrow();
    (active.serial(), generation, page.lists.generation(), taken_up, refused, approvals, states)
}
