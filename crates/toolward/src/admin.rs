//! The admin UI: who sees what, live decisions, explanations, and the queue of approvals. With
//! the approvals, proposed policy changes and changed definitions are the only things that it can change.
//!
//! It listens on the `admin` address, apart from the agents' endpoint, and has its own thread and runtime, so
//! that no call waits for it. Requests to servers run on the runtime that owns their connections.

mod admins;
mod answer;
mod assets;
mod auth;
mod connection;
mod connection_limit;
pub(crate) mod editor;
pub(crate) mod escape;
mod events;
pub(crate) mod layout;
mod listen;
pub(crate) mod lists;
pub(crate) mod query;
pub(crate) mod view;

use std::sync::Arc;
use std::time::Instant;

use askama::Template;
use tokio::sync::mpsc;
use toolward_gateway::active::Active;
use toolward_gateway::active::reachable::Reachable;
use toolward_gateway::clock::micros;
use toolward_gateway::downstream::response::Frame;
use toolward_gateway::gateway::Gateway;
use toolward_gateway::log::RejectedCredentials;

use self::answer::Tries;
use self::auth::TokenAuth;
use self::lists::Lists;
use crate::reload::Reloader;

pub(crate) use self::layout::Layout;
pub(crate) use self::listen::{Admin, ServeContext};
pub(crate) use self::query::Query;

/// The data that views are rendered from.
pub(crate) struct AdminUi {
    pub(crate) reloader: Arc<Reloader>,
    /// The servers' tools, as they were listed last.
    pub(crate) lists: Lists,
    begun: Instant,
    door: TokenAuth,
    /// Host names under which the admin UI can be reached.
    reachable: Reachable,
    tries: Tries,
    rejected: RejectedCredentials,
    matrix: view::matrix::MatrixCache,
}

impl AdminUi {
    pub(crate) fn gateway(&self) -> &Gateway {
        self.reloader.gateway()
    }

    /// Keeps the matrix before a reload, so that changed cells can be marked.
    fn reloading(&self, active: &Active) {
        let lists = self.lists.now(self.gateway());
        self.matrix.reloading(active, self.reloader.callers(), &lists, micros());
    }
}

/// The response of a view.
pub(crate) enum ViewResponse {
    /// A whole page, or a part of one.
    Html(String),
    /// Events, ready to be sent.
    Events(mpsc::Receiver<Frame>),
    Missing,
    /// The person may not do this.
    Forbidden(String),
    /// The request is invalid.
    Wrong(String),
}

impl ViewResponse {
    /// Renders a template.
    pub(crate) fn of(template: &impl Template) -> ViewResponse {
        match template.render() {
            Ok(html) => ViewResponse::Html(html),
            Err(error) => ViewResponse::Wrong(error.to_string()),
        }
    }
}
