//! The event stream of the live view: new rows, and refresh events, because browsers limit connections per host.
//!
//! Work is bounded: each poll reads at most a fixed number of bytes and sends at most a fixed number of rows. The
//! rest is skipped and counted, as are rows that a slow browser does not read.

use std::sync::{Arc, Weak};
use std::time::Duration;

use askama::Template;
use bytes::Bytes;
use serde_json::Value;
use tokio::sync::mpsc;
use toolward_gateway::downstream::response::Frame;

use super::after::ResumePoint;
use super::filter::FilterForm;
use super::rows::Row;
use super::{BACK, LATEST};
use crate::admin::events::{Changes, missed};
use crate::admin::{AdminUi, Query, ViewResponse};
use crate::audit_log::dir::look;
use crate::audit_log::filter::Matcher;
use crate::audit_log::follow::{NewRows, RowFollower, SkippedRecords};
use crate::audit_log::tail_rows::latest;
use crate::exit::Failure;

/// The polling interval of files.
const POLL_INTERVAL: Duration = Duration::from_millis(220);
/// A call that takes longer is shown before it has ended.
const LONG_CALL: Duration = Duration::from_millis(500);
/// The maximum number of bytes read from a stream per poll: if all lines match, and if lines are searched.
const READ: u64 = 128 << 10;
const SEARCHED: u64 = 1 << 20;
/// The maximum number of rows per event.
const MAX_ROWS: usize = 50;
/// Keep-alive interval, so that closed connections are noticed.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);
/// The retry interval if the audit log cannot be read.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Template)]
#[template(path = "live_rows.html")]
struct LiveRows<'a> {
    rows: &'a [Row],
}

pub(super) fn show(page: &Arc<AdminUi>, query: &Query) -> ViewResponse {
    let (send, events) = mpsc::channel(2);
    let after = query.last_event.as_deref().or(query.word("after")).unwrap_or_default();
    let watcher = LiveStream {
        page: Arc::downgrade(page),
        wanted: FilterForm::read(query),
        after: ResumePoint::parse(after),
        changes: Changes::new(page),
        send,
    };
    tokio::spawn(watcher.run(missed(page, query)));
    ViewResponse::Events(events)
}

/// One watcher of the live view.
struct LiveStream {
    page: Weak<AdminUi>,
    wanted: FilterForm,
    after: ResumePoint,
    changes: Changes,
    send: mpsc::Sender<Frame>,
}

impl LiveStream {
    async fn run(mut self, missed: Option<Bytes>) {
        // The reconnection delay of browsers, in milliseconds.
        let retry = Bytes::from_static(b"retry: 1000\n\n");
        for first in [Some(retry), missed].into_iter().flatten() {
            if self.send.send(first.into()).await.is_err() {
                return;
            }
        }
        while !self.send.is_closed() && self.page.strong_count() > 0 {
            // An audit log that does not exist may be created, and one that was moved may be restored.
            let _ = self.follow().await;
            tokio::time::sleep(RETRY_INTERVAL).await;
            self.look().await;
        }
    }

    /// Sends an event if something has changed; returns whether it did.
    async fn look(&mut self) -> bool {
        let Some(page) = self.page.upgrade() else { return false };
        let news = self.changes.look(&page).await;
        drop(page);
        match news {
            Some(news) => self.send.send(news.into()).await.is_ok(),
            None => false,
        }
    }

    async fn follow(&mut self) -> Result<(), Failure> {
        let gone = || Failure::usage("the browser disconnected");
        let page = self.page.upgrade().ok_or_else(gone)?;
        let folder = page.reloader.begun().audit.dir.clone();
        let found = look(&folder)?;
        // Rows that were written while the browser was disconnected, up to the number of initial rows.
        let missed = latest(&found, &self.wanted.filter(&page)?, LATEST, BACK)?.rows;
        let mut matcher = Matcher::new(self.wanted.filter(&page)?);
        for row in missed.iter().filter(|row| row["kind"] == "intent" && row["outcome"].is_null()) {
            matcher.expect(row);
        }
        let missed: Vec<Value> =
            missed.into_iter().filter(|row| self.after.is_before(row)).collect();
        // If all of them are new, there may be more.
        let more = !self.after.is_nothing() && missed.len() >= LATEST;
        let skipped = more.then_some(SkippedRecords { records: None });
        self.tell(&page, NewRows { rows: missed, skipped }).await;
        let most = if self.wanted.is_narrow() { SEARCHED } else { READ };
        let mut arriving = RowFollower::after(folder, &found, matcher, LONG_CALL)?;
        drop(page);
        let mut silent = Duration::ZERO;
        loop {
            tokio::time::sleep(POLL_INTERVAL).await;
            let Some(page) = self.page.upgrade().filter(|_| !self.send.is_closed()) else {
                return Ok(());
            };
            // A browser that has not read the last event gets only the latest rows, later.
            if self.send.capacity() == 0 {
                continue;
            }
            let told = self.tell(&page, arriving.poll(Some(most))?).await;
            drop(page);
            let told = self.look().await || told;
            silent = if told { Duration::ZERO } else { silent + POLL_INTERVAL };
            if silent >= KEEP_ALIVE_INTERVAL {
                silent = Duration::ZERO;
                let _ = self.send.send(Bytes::from_static(b": \n\n").into()).await;
            }
        }
    }

    /// Sends new rows; returns whether there were any.
    async fn tell(&mut self, page: &AdminUi, arrived: NewRows) -> bool {
        let NewRows { mut rows, skipped } = arrived;
        // It is unknown how many of the skipped records match.
        let mut more = skipped.map(|skipped| skipped.records.filter(|_| !self.wanted.is_narrow()));
        rows.retain(|row| self.wanted.takes(row));
        let too_many = rows.len().saturating_sub(MAX_ROWS);
        if too_many > 0 {
            rows.drain(..too_many);
            let so_far = more.unwrap_or(Some(0));
            more = Some(so_far.map(|so_far| so_far + too_many as u64));
        }
        rows.iter().for_each(|row| self.after.tell(row));
        let mut said = String::new();
        if let Some(more) = more {
            let more = more.map_or(String::new(), |more| more.to_string());
            said += &format!("event: more\ndata: {more}\n\n");
        }
        if !rows.is_empty() {
            let rows: Vec<Row> = rows.iter().map(|row| Row::of(page, row)).collect();
            let html = LiveRows { rows: &rows }.render().unwrap_or_default();
            said += &format!("event: rows\nid: {}\n", self.after);
            for line in html.lines() {
                said += &format!("data: {line}\n");
            }
            said.push('\n');
        }
        let any = !said.is_empty();
        if any {
            let _ = self.send.send(Bytes::from(said).into()).await;
        }
        any
    }
}
