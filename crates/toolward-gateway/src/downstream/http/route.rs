//! Admission and routing of a request by its head, before the body is read.

use std::sync::Arc;

use toolward_wire::http::{Method, RequestHead};

use super::Endpoint;
use crate::active::Active;
use crate::active::reachable::Base;
use crate::authn::{PresentedCredentials, Unidentified, Wrong};
use crate::client::{Caller, Scope};
use crate::downstream::peer::Peer;
use crate::downstream::response::{Response, json, refuse};
use crate::downstream::{cors, oauth_metadata};
use crate::responses::Answer;

/// An admitted request: its sender and its address, under one active configuration.
pub(in crate::downstream) struct Admitted {
    pub(in crate::downstream) active: Arc<Active>,
    pub(in crate::downstream) route: Route,
}

pub(in crate::downstream) enum Route {
    /// `/healthz` and `/readyz`, with the word in their response.
    Health(&'static str),
    Mcp {
        caller: Caller,
        scope: Scope,
        /// When the caller's credential expires.
        until: Option<u64>,
    },
}

impl Admitted {
    /// The caller's agent, for requests that need a credential. Health checks need none.
    pub(in crate::downstream) fn caller(&self) -> Option<Option<&Arc<str>>> {
        match &self.route {
            Route::Mcp { caller, .. } => Some(caller.agent.as_ref()),
            Route::Health(_) => None,
        }
    }

    /// The agent of the request, if it has a name.
    pub(in crate::downstream) fn agent(&self) -> Option<&Arc<str>> {
        match &self.route {
            Route::Mcp { caller, .. } => caller.agent.as_ref(),
            Route::Health(_) => None,
        }
    }
}

const NOWHERE: &str = "there is nothing at this address";
const NO_SERVER: &str = "the agent has no such server";

/// The canonical form of a path: `/SERVER/mcp` is an alias of `/mcp/SERVER`. Sessions and audiences are
/// bound to the latter.
pub(in crate::downstream) fn canonical(path: String) -> String {
    if let Some(about) = path.strip_prefix(oauth_metadata::WELL_KNOWN) {
        return format!("{}{}", oauth_metadata::WELL_KNOWN, canonical(about.into()));
    }
    let server = path.strip_prefix('/').and_then(|rest| rest.strip_suffix("/mcp"));
    match server {
        Some(name) if !name.is_empty() && !name.starts_with('.') && !name.contains('/') => {
            format!("/mcp/{name}")
        }
        _ => path,
    }
}

impl Endpoint {
    /// Authenticates and routes a request by its head, or returns the response that rejects it.
    pub(in crate::downstream) async fn admit(
        &self,
        active: Arc<Active>,
        peer: &Peer,
        head: &RequestHead,
    ) -> Result<Admitted, Box<Response>> {
        let reachable = &active.reachable;
        if !reachable.host(&head.host) {
            return Err(refuse(400, "the host is not this gateway's"));
        }
        if let Some(origin) = head.headers.values("origin").next()
            && !std::str::from_utf8(origin).is_ok_and(|origin| reachable.origin(origin))
        {
            return Err(refuse(403, "the origin is not allowed"));
        }
        if let Some(answer) = cors::preflight(reachable, head) {
            return Err(Box::new(answer));
        }
        let word = match head.path.as_str() {
            "/healthz" => Some("ok"),
            "/readyz" => Some("ready"),
            _ => None,
        };
        if let Some(word) = word {
            return match head.method {
                Method::Get => Ok(Admitted { active, route: Route::Health(word) }),
                _ => Err(Box::new(Response::empty(405).field("Allow", "GET"))),
            };
        }
        let server = match head.path.strip_prefix("/mcp") {
            Some("") => None,
            Some(rest) => Some(rest.strip_prefix('/').ok_or_else(|| refuse(404, NOWHERE))?),
            None => return Err(Box::new(document(&active, peer, head))),
        };
        let (caller, until) = self.authenticate(&active, peer, head).await?;
        let scope = match server {
            None => Scope::All,
            // A server that the agent may not use gets the same response as one that does not exist.
            Some(name) => {
                let found = active.server(name);
                let found = found.filter(|server| active.may_reach(&caller, server));
                let refused = || self.refuse_agent(peer, head, &caller, 404, NO_SERVER);
                Scope::One(found.ok_or_else(refused)?.id)
            }
        };
        match head.method {
            Method::Post => {
                let kind = head.headers.get("content-type").unwrap_or_default();
                let kind = kind.split(';').next().unwrap_or_default().trim();
                if !kind.eq_ignore_ascii_case("application/json")
                    || head.headers.count("content-encoding") > 0
                {
                    let why = "the content type is not plain JSON";
                    return Err(self.refuse_agent(peer, head, &caller, 415, why));
                }
            }
            Method::Get | Method::Delete => {}
            _ => return Err(Box::new(Response::empty(405).field("Allow", "POST, GET, DELETE"))),
        }
        Ok(Admitted { active, route: Route::Mcp { caller, scope, until } })
    }

    /// Admits a request again if another configuration was activated while its body arrived, so that a
    /// credential revoked in between cannot make the call.
    pub(in crate::downstream) async fn admit_again(
        &self,
        admitted: Admitted,
        peer: &Peer,
        head: &RequestHead,
    ) -> Result<Admitted, Box<Response>> {
        let active = self.gateway.active();
        if active.serial() == admitted.active.serial() {
            return Ok(admitted);
        }
        // Boxed because it is rare and would otherwise enlarge the future of every request.
        Box::pin(self.admit(active, peer, head)).await
    }

    /// Rejects a request of an authenticated agent, and counts it.
    fn refuse_agent(
        &self,
        peer: &Peer,
        head: &RequestHead,
        caller: &Caller,
        status: u16,
        why: &'static str,
    ) -> Box<Response> {
        let mut response = refuse(status, why);
        self.count(peer, head, caller.agent.as_ref(), &response);
        response.unrecorded = None;
        response
    }

    async fn authenticate(
        &self,
        active: &Active,
        peer: &Peer,
        head: &RequestHead,
    ) -> Result<(Caller, Option<u64>), Box<Response>> {
        let identities = &active.identities;
        let authorization = head.headers.get("authorization");
        let known = if authorization.is_none() && head.headers.count("authorization") > 0 {
            Err(Unidentified::Wrong(Wrong::Malformed))
        } else {
            let presented = PresentedCredentials {
                authorization,
                path: &head.path,
                uid: peer.uid,
                certificate: peer.certificate.as_ref(),
            };
            identities.identify(&presented).await
        };
        match known {
            Ok(known) => Ok((known.caller, known.until)),
            Err(why) => {
                match why {
                    // The usual first request of a client that has yet to log in.
                    Unidentified::Missing => self.turned_away(peer, Some(head), why.words()),
                    _ => self.reject_credential(peer, head, why.words()),
                }
                let base = (!identities.issuers.is_empty()).then(|| base(active, peer, head));
                let answer = oauth_metadata::challenge(identities, &why, base.as_ref(), &head.path);
                Err(Box::new(answer))
            }
        }
    }
}

impl Endpoint {
    /// The response to a call for which the caller's token lacks scopes, with the challenge.
    pub(super) fn insufficient_scope(
        &self,
        peer: &Peer,
        head: &RequestHead,
        answer: Answer,
    ) -> Response {
        let active = self.gateway.active();
        let why = Unidentified::Lacks(answer.scope.as_deref().unwrap_or_default().into());
        let base = base(&active, peer, head);
        let (identities, path) = (&active.identities, &head.path);
        let challenge = oauth_metadata::challenge_value(identities, &why, Some(&base), path);
        json(answer).field("WWW-Authenticate", challenge)
    }
}

/// Other paths: the OAuth protected resource metadata (RFC 9728), or 404.
fn document(active: &Active, peer: &Peer, head: &RequestHead) -> Response {
    let asked = oauth_metadata::asked(&head.path, active.reachable.public_base());
    let base = || base(active, peer, head);
    let answer = asked.and_then(|path| oauth_metadata::document(&active.identities, &base(), path));
    match answer {
        None => Response::refused(404, NOWHERE),
        Some(answer) if head.method == Method::Get => answer,
        Some(_) => Response::empty(405).field("Allow", "GET"),
    }
}

/// The base URL of the gateway as this client sees it.
fn base(active: &Active, peer: &Peer, head: &RequestHead) -> Base {
    let reachable = &active.reachable;
    match reachable.public_base() {
        Some(base) => base.clone(),
        None => Base::of_host(peer.is_secure(reachable, head), peer.host(reachable, head)),
    }
}
