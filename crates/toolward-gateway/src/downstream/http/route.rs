//! Whether a request may be read at all, judged by its head and by the connection on which it came.

use std::sync::Arc;

use toolward_wire::http::{Method, RequestHead};

use super::{Access, Endpoint};
use crate::authn::{Shown, Unidentified, Wrong};
use crate::client::{Caller, Scope};
use crate::downstream::connection::{Content, Response};
use crate::downstream::oauth_metadata::{self, Base};
use crate::downstream::peer::Peer;

/// A request whose sender and address are known.
pub(in crate::downstream) struct Admitted(pub(in crate::downstream) Place);

pub(in crate::downstream) enum Place {
    /// `/healthz` and `/readyz`, with the one word that they say.
    Health(&'static str),
    Mcp {
        caller: Caller,
        scope: Scope,
        /// When the caller's credential ends.
        until: Option<u64>,
    },
}

impl Admitted {
    /// The caller's agent, for a request that needs a credential where credentials are needed.
    pub(in crate::downstream) fn caller(&self) -> Option<Option<&Arc<str>>> {
        match &self.0 {
            Place::Mcp { caller, .. } => Some(caller.agent.as_ref()),
            Place::Health(_) => None,
        }
    }

    /// The agent that asks, where it has a name.
    pub(in crate::downstream) fn agent(&self) -> Option<&Arc<str>> {
        match &self.0 {
            Place::Mcp { caller, .. } => caller.agent.as_ref(),
            Place::Health(_) => None,
        }
    }
}

const NOWHERE: &str = "there is nothing at this address";
const NO_SERVER: &str = "the agent has no such server";

/// The path by which an address is known: `/SERVER/mcp` is another way to write `/mcp/SERVER`. Sessions
/// and audiences belong to the latter.
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
    /// Admits a request; or gives the answer, which needs nothing but the head.
    pub(in crate::downstream) async fn admit(
        &self,
        peer: &Peer,
        head: &RequestHead,
    ) -> Result<Admitted, Box<Response>> {
        let access = self.access();
        let reachable = &access.reachable;
        if !reachable.host(&head.host) {
            return Err(refuse(400, "the host is not this gateway's"));
        }
        if let Some(origin) = head.headers.values("origin").next()
            && !std::str::from_utf8(origin).is_ok_and(|origin| reachable.origin(origin))
        {
            return Err(refuse(403, "the origin is a foreign page"));
        }
        if let Some(answer) = reachable.preflight(head) {
            return Err(Box::new(answer));
        }
        let word = match head.path.as_str() {
            "/healthz" => Some("ok"),
            "/readyz" => Some("ready"),
            _ => None,
        };
        if let Some(word) = word {
            return match head.method {
                Method::Get => Ok(Admitted(Place::Health(word))),
                _ => Err(Box::new(Response::empty(405).field("Allow", "GET"))),
            };
        }
        let server = match head.path.strip_prefix("/mcp") {
            Some("") => None,
            Some(rest) => Some(rest.strip_prefix('/').ok_or_else(|| refuse(404, NOWHERE))?),
            None => return Err(Box::new(document(&access, peer, head))),
        };
        let (caller, until) = self.identify(&access, peer, head).await?;
        let scope = match server {
            None => Scope::All,
            // A server that the agent may not use is one that does not exist.
            Some(name) => {
                let snapshot = self.gateway.current.get();
                let found = snapshot.server(name);
                let found = found.filter(|server| snapshot.may_reach(&caller, server));
                let refused = || self.refuse_agent(peer, head, &caller, 404, NO_SERVER);
                Scope::One(found.ok_or_else(refused)?.index)
            }
        };
        match head.method {
            Method::Post => {
                let kind = head.headers.get("content-type").unwrap_or_default();
                let kind = kind.split(';').next().unwrap_or_default().trim();
                if !kind.eq_ignore_ascii_case("application/json")
                    || head.headers.count("content-encoding") > 0
                {
                    let why = "the content is not plain JSON by its type";
                    return Err(self.refuse_agent(peer, head, &caller, 415, why));
                }
            }
            Method::Get | Method::Delete => {}
            _ => return Err(Box::new(Response::empty(405).field("Allow", "POST, GET, DELETE"))),
        }
        Ok(Admitted(Place::Mcp { caller, scope, until }))
    }

    /// Refuses a request of an agent that is known already, and counts it.
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

    async fn identify(
        &self,
        access: &Access,
        peer: &Peer,
        head: &RequestHead,
    ) -> Result<(Caller, Option<u64>), Box<Response>> {
        let identities = &access.identities;
        let authorization = head.headers.get("authorization");
        let known = if authorization.is_none() && head.headers.count("authorization") > 0 {
            Err(Unidentified::Wrong(Wrong::Malformed))
        } else {
            let shown = Shown {
                authorization,
                path: &head.path,
                uid: peer.uid,
                certificate: peer.certificate.as_ref(),
            };
            identities.identify(&shown).await
        };
        match known {
            Ok(known) => Ok((known.caller, known.until)),
            Err(why) => {
                self.turned_away(peer, Some(head), why.words());
                let base = identities.issuer.is_some().then(|| base(access, peer, head));
                let answer = oauth_metadata::challenge(identities, &why, base.as_ref(), &head.path);
                Err(Box::new(answer))
            }
        }
    }
}

/// What is beside the endpoint: the document that says where tokens come from.
fn document(access: &Access, peer: &Peer, head: &RequestHead) -> Response {
    let asked = oauth_metadata::asked(&head.path, access.reachable.written());
    let base = || base(access, peer, head);
    let answer = asked.and_then(|path| oauth_metadata::document(&access.identities, &base(), path));
    match answer {
        None => Response::refused(404, NOWHERE),
        Some(answer) if head.method == Method::Get => answer,
        Some(_) => Response::empty(405).field("Allow", "GET"),
    }
}

/// The address as this client writes it.
fn base(access: &Access, peer: &Peer, head: &RequestHead) -> Base {
    let reachable = &access.reachable;
    match reachable.written() {
        Some(base) => base.clone(),
        None => Base::of_host(peer.is_secure(reachable, head), peer.host(reachable, head)),
    }
}

/// What the caller of a stream showed, by which it can be asked again.
#[derive(Debug)]
pub struct Ticket {
    pub(in crate::downstream) agent: Option<Arc<str>>,
    pub(in crate::downstream) authorization: Option<String>,
    pub(in crate::downstream) path: String,
}

impl Ticket {
    /// Streams outlast their request, and keep what it showed.
    pub(in crate::downstream) fn keep(
        response: Response,
        agent: Option<Arc<str>>,
        head: RequestHead,
    ) -> Response {
        if !matches!(response.content, Content::Events(_) | Content::Stream(_)) {
            return response;
        }
        let authorization = head.headers.get("authorization").map(String::from);
        let ticket = Some(Ticket { agent, authorization, path: head.path });
        Response { ticket, ..response }
    }
}

pub(in crate::downstream) fn refuse(status: u16, why: &'static str) -> Box<Response> {
    Box::new(Response::refused(status, why))
}
