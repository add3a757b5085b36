//! The views, one module each.

pub(crate) mod agent;
pub(crate) mod allow;
pub(crate) mod approvals;
pub(crate) mod ask;
pub(crate) mod changes;
pub(crate) mod explain;
pub(crate) mod live;
pub(crate) mod matrix;
pub(crate) mod policy;
pub(crate) mod preview;
pub(crate) mod prose;
mod question;
pub(crate) mod servers;
pub(crate) mod steps;
pub(crate) mod words;

use askama::Template;
use toolward_gateway::downstream::response::{Content, Response};

use super::{AdminUi, Layout};

#[derive(Template)]
#[template(path = "problem.html")]
struct Problem<'a> {
    layout: Layout,
    why: &'a str,
}

/// A page with an error message.
pub(super) async fn problem(page: &AdminUi, status: u16, why: &str) -> Response {
    let layout = Layout::new(page, "", "Not found").await;
    let html = Problem { layout, why }.render().unwrap_or_default();
    Response::new(status, Content::Bytes("text/html; charset=utf-8", html.into()))
}

/// A location without the directories; the full path is shown as a tooltip.
pub(crate) fn short(place: &str) -> &str {
    place.rsplit('/').next().unwrap_or(place)
}

/// A point in time for people, to the second.
pub(super) fn moment(micros: u64) -> String {
    let time = toolward_gateway::audit::line::time(micros);
    format!("{} UTC", time.get(..19).unwrap_or(&time).replace('T', " "))
}
