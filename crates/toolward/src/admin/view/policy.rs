//! The active policy: its files, the hit counts of its rules, and findings.

mod files;
mod hits;

use std::sync::Arc;

use askama::Template;

use self::files::File;
use self::hits::{Hit, Hits, Name};
use crate::active_config::Report;
use crate::admin::view::moment;
use crate::admin::{AdminUi, Layout, Query, ViewResponse};
use crate::reload::Attempt;

#[derive(Template)]
#[template(path = "policy.html")]
struct PolicyPage {
    layout: Layout,
    told: PolicyDetails,
}

#[derive(Template)]
#[template(path = "policy_part.html")]
struct PolicyPart {
    told: PolicyDetails,
}

/// Counts only, swapped into an open view.
#[derive(Template)]
#[template(path = "policy_hits.html")]
struct Counts {
    hits: Vec<Hit>,
    decided: u64,
    unseen: u64,
}

struct PolicyDetails {
    version: String,
    since: String,
    /// The time from which calls are counted.
    counted: String,
    reloaded: bool,
    last: Option<Last>,
    layers: Vec<LayerRow>,
    decided: u64,
    by_no_rule: u64,
    unseen: u64,
    names: Vec<Name>,
    report: Arc<Report>,
    passed: usize,
    failed: usize,
    unknown: usize,
    files: Vec<File>,
    /// Rules that are not from a file, or from a file that cannot be shown.
    loose: Vec<Hit>,
}

/// The last reload.
struct Last {
    time: String,
    by: &'static str,
    refused: Option<Vec<String>>,
}

struct LayerRow {
    number: usize,
    kind: &'static str,
    name: String,
}

pub(crate) async fn show(page: &Arc<AdminUi>, query: &Query) -> ViewResponse {
    match &*query.rest {
        "" if query.fragment => match told(page).await {
            Some(told) => ViewResponse::of(&PolicyPart { told }),
            None => ViewResponse::Missing,
        },
        "" => {
            // Findings depend on the tool lists of the servers.
            drop(page.lists.ask(page.gateway()).await);
            let layout = Layout::new(page, "policy", "Policy").await;
            let Some(told) = told(page).await else { return ViewResponse::Missing };
            ViewResponse::of(&PolicyPage { layout, told })
        }
        "hits" => {
            let active = page.gateway().active();
            let hits = Hits::count(page, &active, false).into_list();
            let (decided, unseen) = (active.hits.total(), active.unlisted.total());
            ViewResponse::of(&Counts { hits, decided, unseen })
        }
        _ => ViewResponse::Missing,
    }
}

async fn told(page: &Arc<AdminUi>) -> Option<PolicyDetails> {
    let active = page.gateway().active();
    let (in_force, last, taken_up) = {
        let state = page.reloader.state();
        (state.in_force.clone()?, state.last.clone(), state.taken_up)
    };
    // Checking a large policy takes a while.
    let (of, page_of, at) = (in_force.clone(), page.clone(), active.clone());
    let report = tokio::task::spawn_blocking(move || of.report(page_of.gateway(), &at));
    let report = report.await.ok()?;
    let hits = Hits::count(page, &active, true);
    let (files, loose) = files::with_hits(&in_force.loaded, &hits);
    let kinds = active.policy.layer_kinds().zip(active.policy.layer_names());
    let layer = |(number, (kind, name)): (usize, (&'static str, &str))| LayerRow {
        number,
        kind,
        name: name.into(),
    };
    Some(PolicyDetails {
        version: active.version.clone(),
        since: moment(page.matrix.reloaded().unwrap_or(active.hits.since())),
        counted: moment(active.hits.since()),
        reloaded: taken_up > 0,
        last: last.map(Last::of),
        layers: kinds.enumerate().map(layer).collect(),
        decided: active.hits.total(),
        by_no_rule: active.hits.of_no_rule(),
        unseen: active.unlisted.total(),
        names: hits.names,
        passed: report.tests.iter().filter(|case| case.passed).count(),
        unknown: report.tests.iter().filter(|case| case.unknown).count(),
        failed: report.tests.iter().filter(|case| !case.passed && !case.unknown).count(),
        report,
        files,
        loose,
    })
}

impl Last {
    fn of(attempt: Attempt) -> Last {
        let Attempt { at, by, brief, .. } = attempt;
        let refused = brief.map(|why| why.lines().map(String::from).collect());
        Last { time: moment(at), by, refused }
    }
}
