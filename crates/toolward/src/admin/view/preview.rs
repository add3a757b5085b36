//! Preview of a candidate policy: what it would change. Nothing is applied.
//!
//! The candidate comes from a form. It is loaded like a file, but reads no other file and no environment variable: its
//! references to secrets stay references, and what it names is not opened. Only the policy files of the active
//! configuration can be referenced, because the gateway reads them anyway.

mod candidate;
mod cells;
mod history;

use std::sync::Arc;

use askama::Template;
use tokio::sync::Semaphore;
use toolward_policy::analyse::{self, Change, Subjects};
use toolward_policy::{Catalogue, Policy};

use self::candidate::Candidate;
use self::cells::ChangedCells;
use self::history::PastChanges;
use crate::active_config::{ActiveConfig, Case, Finding, cases, known};
use crate::admin::{AdminUi, Layout, Query, ViewResponse};
use crate::load::{CheckedPolicy, Input};
use crate::report::points;

/// A comparison may use much memory for a moment, so there is one at a time.
static ONE_AT_A_TIME: Semaphore = Semaphore::const_new(1);
/// The maximum number of differences shown.
const MAX_DIFFERENCES: usize = 50;
/// The maximum number of failing tests shown.
const MAX_TESTS: usize = 100;

#[derive(Template)]
#[template(path = "preview.html")]
struct PreviewPage {
    layout: Layout,
    form: Form,
    result: Option<Preview>,
}

#[derive(Template)]
#[template(path = "preview_part.html")]
struct PreviewPart {
    form: Form,
    result: Option<Preview>,
}

/// The text as it was sent, and what is wrong with the request.
#[derive(Default)]
struct Form {
    text: String,
    wrong: Option<String>,
}

/// The effects of a candidate.
struct Preview {
    /// Findings in a candidate that cannot be loaded.
    invalid: Vec<Finding>,
    compared: Option<Comparison>,
}

struct Comparison {
    /// It is a whole configuration, and not a policy alone.
    is_whole: bool,
    warnings: Vec<Finding>,
    /// `None`: undecided.
    wider: Option<bool>,
    differences: Vec<Difference>,
    more_differences: usize,
    undecided: Vec<String>,
    cells: ChangedCells,
    tests: usize,
    failing: Vec<Case>,
    more_failing: usize,
    past: Result<PastChanges, String>,
}

/// A difference between the policies, with an example.
struct Difference {
    word: &'static str,
    wider: bool,
    example: String,
    before: &'static str,
    after: &'static str,
    before_rule: String,
    after_rule: String,
    depends_on: String,
}

/// The empty form.
pub(crate) async fn show(page: &Arc<AdminUi>, query: &Query) -> ViewResponse {
    if !query.rest.is_empty() {
        return ViewResponse::Missing;
    }
    let layout = Layout::new(page, "policy", "Preview").await;
    ViewResponse::of(&PreviewPage { layout, form: Form::default(), result: None })
}

/// Compares the submitted candidate with the active policy.
pub(crate) async fn compare(page: &Arc<AdminUi>, query: &Query) -> ViewResponse {
    let text = query.get("text").unwrap_or_default().replace("\r\n", "\n");
    let mut form = Form { text, wrong: None };
    let result = match form.text.trim().is_empty() {
        true => Err("Paste a policy, or choose a file.".to_string()),
        false => preview(page, &form.text).await,
    };
    let result = match result {
        Ok(preview) => Some(preview),
        Err(why) => {
            form.wrong = Some(why);
            None
        }
    };
    if query.fragment {
        return ViewResponse::of(&PreviewPart { form, result });
    }
    let layout = Layout::new(page, "policy", "Preview").await;
    ViewResponse::of(&PreviewPage { layout, form, result })
}

async fn preview(page: &Arc<AdminUi>, text: &str) -> Result<Preview, String> {
    let Ok(_permit) = ONE_AT_A_TIME.try_acquire() else {
        return Err("Another preview is being computed. Try again in a moment.".into());
    };
    drop(page.lists.ask(page.gateway()).await);
    let in_force = page.reloader.state().in_force.clone();
    let in_force = in_force.ok_or("There is no active configuration.")?;
    let (active, text) = (page.gateway().active(), text.to_string());
    let computed = tokio::task::spawn_blocking(move || {
        let catalogue = known(&active);
        let layers = active.policy.layer_names();
        let candidate = Candidate::new(&text, &in_force.loaded, layers);
        match candidate.load(&in_force.servers) {
            Ok(input) => {
                let current = Current { policy: &active.policy, in_force: &in_force, catalogue };
                let compared = Some(current.compare(&input, candidate.is_whole));
                Preview { invalid: Vec::new(), compared }
            }
            Err(invalid) => Preview { invalid, compared: None },
        }
    });
    computed.await.map_err(|_| "The comparison failed.".into())
}

/// The active policy, and what is known about tools.
struct Current<'a> {
    policy: &'a Policy,
    in_force: &'a ActiveConfig,
    catalogue: Catalogue,
}

impl Current<'_> {
    fn compare(&self, new: &Input, is_whole: bool) -> Comparison {
        let found = analyse::diff(self.policy, &new.policy, &Subjects::default());
        let mut all: Vec<&Change> = found.changes.iter().collect();
        all.sort_by_key(|change| !change.is_wider());
        let all: Vec<(&Change, bool)> = all
            .into_iter()
            .map(|change| (change, true))
            .chain(found.possible.iter().map(|change| (change, false)))
            .collect();
        let tests = cases(&CheckedPolicy { catalogue: &self.catalogue, ..new.checked() });
        let (passing, failing): (Vec<Case>, Vec<Case>) =
            tests.into_iter().partition(|case| case.passed);
        Comparison {
            is_whole,
            warnings: new.loaded.warnings.iter().map(Finding::of).collect(),
            wider: found.is_wider(),
            more_differences: all.len().saturating_sub(MAX_DIFFERENCES),
            differences: all
                .into_iter()
                .take(MAX_DIFFERENCES)
                .map(|(change, certain)| self.difference(&new.policy, change, certain))
                .collect(),
            undecided: found.undecided.iter().map(points::undecided).collect(),
            cells: ChangedCells::new(self.policy, new, &self.in_force.callers, &self.catalogue),
            tests: passing.len() + failing.len(),
            more_failing: failing.len().saturating_sub(MAX_TESTS),
            failing: failing.into_iter().take(MAX_TESTS).collect(),
            past: PastChanges::new(self.in_force, (self.policy, &new.policy), &self.catalogue),
        }
    }

    fn difference(&self, new: &Policy, change: &Change, certain: bool) -> Difference {
        Difference {
            word: match (change.is_wider(), certain) {
                (true, true) => "wider",
                (true, false) => "possibly wider",
                (false, true) => "narrower",
                (false, false) => "possibly narrower",
            },
            wider: change.is_wider(),
            example: points::text(&change.point),
            before: change.before.verdict.as_str(),
            after: change.after.verdict.as_str(),
            before_rule: points::rule(self.policy, &change.before),
            after_rule: points::rule(new, &change.after),
            depends_on: change.depends_on.join(", "),
        }
    }
}
