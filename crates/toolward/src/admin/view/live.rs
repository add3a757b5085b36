//! Live decisions. Rows are read from the audit log, as `toolward tail` does, so that watching does not affect
//! the request path.

mod after;
mod events;
mod filter;
mod one;
pub(in crate::admin::view) mod rows;

use std::sync::Arc;

use askama::Template;

use self::after::ResumePoint;
use self::filter::FilterForm;
use self::rows::Row;
use crate::admin::{AdminUi, Layout, Query, ViewResponse};
use crate::audit_log::dir::look;
use crate::audit_log::tail_rows::latest;

/// The number of rows in the initial page.
const LATEST: usize = 50;
/// The number of rows that a text search reads.
const SEARCHED: usize = 2000;
/// How many bytes of each stream are searched for them, from the end.
const BACK: u64 = 8 << 20;
const FURTHER_BACK: u64 = 32 << 20;

#[derive(Template)]
#[template(path = "live.html")]
struct LivePage {
    layout: Layout,
    wanted: FilterForm,
    agents: Vec<String>,
    servers: Vec<String>,
    rows: Vec<Row>,
    /// The position after the newest row.
    after: String,
    one: Option<one::One>,
}

pub(crate) async fn show(page: &Arc<AdminUi>, query: &Query) -> ViewResponse {
    match (&*query.rest, query.word("id")) {
        ("", Some(id)) if query.fragment => one::show(page, id).await,
        ("", id) => whole(page, query, id).await,
        ("events", _) => events::show(page, query),
        _ => ViewResponse::Missing,
    }
}

async fn whole(page: &Arc<AdminUi>, query: &Query, id: Option<&str>) -> ViewResponse {
    let wanted = FilterForm::read(query);
    let (rows, after) = recent(page, &wanted);
    let one = match id {
        Some(id) => one::of(page, id).await,
        None => None,
    };
    let active = page.gateway().active();
    ViewResponse::of(&LivePage {
        layout: Layout::new(page, "live", "Live").await,
        agents: page.reloader.callers().iter().flatten().cloned().collect(),
        servers: active.servers.iter().map(|server| server.name().to_string()).collect(),
        wanted,
        rows,
        after,
        one,
    })
}

/// The latest rows, newest first, and the id of the newest.
fn recent(page: &AdminUi, wanted: &FilterForm) -> (Vec<Row>, String) {
    let folder = &page.reloader.begun().audit.dir;
    let Ok(filter) = wanted.filter(page) else { return Default::default() };
    // There may be no audit log yet.
    let found = look(folder).unwrap_or_default();
    let looked_at = if wanted.is_sought() { SEARCHED } else { LATEST };
    let back = if wanted.is_narrow() { FURTHER_BACK } else { BACK };
    let Ok(latest) = latest(&found, &filter, looked_at, back) else { return Default::default() };
    let mut after = ResumePoint::default();
    latest.rows.iter().for_each(|row| after.tell(row));
    let rows = latest.rows.iter().rev().filter(|row| wanted.takes(row)).take(LATEST);
    (rows.map(|row| Row::of(page, row)).collect(), after.to_string())
}

/// The latest calls and refusals of one agent, newest first.
#[derive(Default)]
pub(in crate::admin::view) struct Latest {
    pub(in crate::admin::view) calls: Vec<Row>,
    pub(in crate::admin::view) refusals: Vec<Row>,
}

/// The latest calls and refusals of an agent; `None`: unnamed callers.
pub(in crate::admin::view) async fn latest_of(
    page: &Arc<AdminUi>,
    agent: Option<&str>,
    most: usize,
) -> Latest {
    let wanted = |verdict: &str| FilterForm {
        agent: format!("={}", agent.unwrap_or_default()),
        verdict: verdict.into(),
        kinds: "calls".into(),
        ..FilterForm::default()
    };
    let (calls, refusals) = (wanted("allow"), wanted("deny"));
    let page = page.clone();
    // Reading the end of the audit log blocks on the disk.
    let read = tokio::task::spawn_blocking(move || {
        let some = |wanted: &FilterForm| {
            let mut rows = recent(&page, wanted).0;
            rows.truncate(most);
            rows
        };
        Latest { calls: some(&calls), refusals: some(&refusals) }
    });
    read.await.unwrap_or_default()
}
