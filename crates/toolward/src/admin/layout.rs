//! The layout that all views share.

use askama::Template;

use toolward_gateway::audit::Recording;

use super::{AdminUi, ViewResponse, assets, events};

const UNRECORDED: &str = "The audit log cannot be written, and audit.required is false: calls are \
                          forwarded and go unrecorded.";
const NOT_REQUIRED: &str = "audit.required is false: if the audit log cannot be written, calls are \
                            forwarded and go unrecorded.";

/// The parts that all pages share: title, navigation and banners.
pub(crate) struct Layout {
    /// The view's path, which the navigation marks.
    pub(crate) here: &'static str,
    pub(crate) title: &'static str,
    /// The directory of styles and scripts.
    pub(crate) assets: String,
    pub(crate) banners: Vec<Banner>,
    /// The number of calls that wait for a person.
    pub(crate) waiting: usize,
    /// The version of the data before the view was rendered.
    pub(crate) seen: String,
}

/// A message that is shown on every view.
pub(crate) struct Banner {
    pub(crate) loud: bool,
    pub(crate) text: &'static str,
    /// Its details, line by line.
    pub(crate) lines: Vec<String>,
}

impl Layout {
    /// Taken before the view is rendered, so that later changes cause a refresh once the view is open.
    pub(crate) async fn new(page: &AdminUi, here: &'static str, title: &'static str) -> Layout {
        Layout {
            seen: events::mark(page),
            here,
            title,
            assets: format!("../{}", assets::folder()),
            banners: banners(page).await,
            waiting: page.gateway().context.approvals.pending_count(),
        }
    }
}

#[derive(Template)]
#[template(path = "banners.html")]
struct Banners {
    banners: Vec<Banner>,
}

/// The banners alone, for an open view.
pub(super) async fn show(page: &AdminUi) -> ViewResponse {
    ViewResponse::of(&Banners { banners: banners(page).await })
}

async fn banners(page: &AdminUi) -> Vec<Banner> {
    let gateway = page.gateway();
    let active = gateway.active();
    let mut banners = Vec::new();
    let mut say = |loud: bool, text: &'static str, lines: Vec<String>| {
        banners.push(Banner { loud, text, lines });
    };
    if !active.enforced {
        let text =
            "--allow-all: the policy is not enforced. Denied calls are recorded and forwarded.";
        say(true, text, Vec::new());
    }
    if active.policy.layer_names().next().is_none() {
        say(true, "There is no policy: everything that the servers offer is allowed.", Vec::new());
    }
    match gateway.context.audit.recording().await {
        Recording::Recorded if gateway.context.audit.is_low_on_space() => {
            say(true, "The disk of the audit log is nearly full.", Vec::new());
        }
        Recording::Recorded if gateway.context.audit.is_required() => {}
        Recording::Recorded => say(false, NOT_REQUIRED, Vec::new()),
        Recording::Refused => {
            say(true, "The audit log cannot be written: calls are refused.", Vec::new());
        }
        Recording::Unrecorded => say(true, UNRECORDED, Vec::new()),
    }
    let refused = page.reloader.state().last.as_ref().and_then(|last| last.brief.clone());
    if let Some(why) = refused {
        let text = "The last reload was rejected; the previous configuration stays active.";
        say(true, text, why.lines().map(String::from).collect());
    }
    if active.policy.is_read_only() {
        say(false, "Read-only mode: only tools with the hint read-only can be called.", Vec::new());
    }
    banners
}
