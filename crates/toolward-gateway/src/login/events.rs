//! Events of logins, for the audit log. No event has a token.

use std::collections::VecDeque;
use std::sync::Mutex;

use super::grant::Grant;
use crate::lock::LockUnpoisoned;

/// The maximum number of events that wait to be recorded.
const MAX_WAITING: usize = 256;

/// An event of a login.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoginEvent {
    /// `login`, `refresh`, `loss` or `logout`.
    pub what: &'static str,
    pub server: String,
    pub owner: Option<String>,
    pub issuer: String,
    pub scope: Option<String>,
    /// Why a login was lost.
    pub reason: Option<&'static str>,
}

impl LoginEvent {
    fn new(what: &'static str, grant: &Grant, reason: Option<&'static str>) -> LoginEvent {
        LoginEvent {
            what,
            server: grant.server.clone(),
            owner: grant.owner.clone(),
            issuer: grant.issuer.clone(),
            scope: grant.scope.clone(),
            reason,
        }
    }

    pub fn logged_in(grant: &Grant) -> LoginEvent {
        LoginEvent::new("login", grant, None)
    }

    pub fn logged_out(grant: &Grant) -> LoginEvent {
        LoginEvent::new("logout", grant, None)
    }

    pub(crate) fn refreshed(grant: &Grant) -> LoginEvent {
        LoginEvent::new("refresh", grant, None)
    }

    pub(crate) fn lost(grant: &Grant, reason: &'static str) -> LoginEvent {
        LoginEvent::new("loss", grant, Some(reason))
    }
}

/// Events that wait to be recorded. The oldest are dropped if they are not recorded.
#[derive(Debug, Default)]
pub(crate) struct LoginEvents(Mutex<VecDeque<LoginEvent>>);

impl LoginEvents {
    pub(crate) fn add(&self, event: LoginEvent) {
        let mut waiting = self.0.locked();
        if waiting.len() >= MAX_WAITING {
            waiting.pop_front();
        }
        waiting.push_back(event);
    }

    pub(crate) fn take(&self) -> Vec<LoginEvent> {
        self.0.locked().drain(..).collect()
    }
}
