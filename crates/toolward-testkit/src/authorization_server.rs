//! A fake authorization server, and an MCP server that it protects.
//!
//! ```
//! use toolward_testkit::authorization_server::*;
//!
//! let tokens = AuthorizationServer::start(Switches {
//!     registration: Registration::Refused,
//!     lifetime: 15.0,
//!     ..Switches::default()
//! })?;
//! let protected = ProtectedServer::start(&tokens, ProtectedSwitches::default())?;
//! let configuration = format!("servers: {{ it: {{ url: '{}', login: {{}} }} }}", protected.url());
//! // … and later, while they run:
//! tokens.switch(|switches| switches.refresh = Refresh::Fixed);
//! tokens.expire_access_tokens();
//! assert_eq!(tokens.counts().overlapping, 0);
//! assert!(tokens.seen().iter().all(|request| request.path != "/register"));
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! With `SignIn::Automatic`, the authorization endpoint redirects at once as `subject`: a test only
//! needs to follow redirects ([`follow`]). With `SignIn::Page` it is an HTML page with the buttons
//! `#as-alice`, `#as-bob` and `#deny`, for a browser.
//!
//! The protected server has the tools `echo` (returns its arguments) and `whoami` (returns
//! `subject`, `client`, `scope` and `audience` of the token). Requests, issued secrets and the use of
//! refresh tokens are recorded: [`AuthorizationServer::seen`], [`secrets`](AuthorizationServer::secrets),
//! [`counts`](AuthorizationServer::counts), [`ProtectedServer::seen`]. To stop a refresh in the
//! middle, set `hold`, and wait until [`held`](AuthorizationServer::held) is not 0.
//!
//! As a program: `testkit authorization-server --switches '{"refresh": "fixed"}'` prints the issuer
//! and the MCP server's URL. `POST /control/switches` changes switches by the same JSON, on either
//! server; `GET /control/seen` returns all requests; on the authorization server there are also
//! `GET /control/counts`, and `POST /control/forget-clients`, `/control/expire-access-tokens` and
//! `/control/revoke-grants`.
//!
//! Values that it compares exactly: redirect URIs, `resource` of a code and a refresh, the client of
//! a code and a refresh token, PKCE verifiers. A code that is used twice revokes its grant, and so
//! does a rotated refresh token.

mod authorize;
mod endpoints;
mod http;
mod protected;
mod signing;
mod state;
mod switches;
mod token;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use serde_json::{Value, json};

pub use self::http::{Exchanged, Form, encoded, form};
use self::http::{Response, Thread};
pub use self::protected::{Challenge, ProtectedServer, ProtectedSwitches, ResourceMetadata};
use self::signing::Key;
use self::state::State;
pub use self::state::{AccessToken, Counts};
pub use self::switches::{
    Device, Documents, Exchange, Hold, Iss, KnownClient, Metadata, Pkce, Refresh, Registration,
    Revocation, SignIn, Switches, TokenFault,
};

/// A running authorization server. It stops when it is dropped.
pub struct AuthorizationServer {
    state: Arc<State>,
    _thread: Thread,
}

impl AuthorizationServer {
    /// Starts a server on a free loopback port.
    pub fn start(switches: Switches) -> io::Result<AuthorizationServer> {
        AuthorizationServer::listen(([127, 0, 0, 1], 0).into(), switches)
    }

    pub fn listen(listen: SocketAddr, switches: Switches) -> io::Result<AuthorizationServer> {
        let (listener, origin) = http::bind(listen)?;
        let state = Arc::new(State::new(origin, switches, Key::generate()?));
        Ok(AuthorizationServer { _thread: http::start(listener, state.clone())?, state })
    }

    /// The issuer: the server's address with the path.
    pub fn issuer(&self) -> &str {
        &self.state.issuer
    }

    /// The address of its key set.
    pub fn jwks(&self) -> String {
        format!("{}/keys", self.state.issuer)
    }

    /// Changes switches while it runs.
    pub fn switch(&self, change: impl FnOnce(&mut Switches)) {
        self.state.switches.send_modify(change);
    }

    /// All requests so far.
    pub fn seen(&self) -> Vec<Exchanged> {
        self.state.inner().seen.clone()
    }

    /// The requests for a path below the issuer, such as `/token`.
    pub fn seen_at(&self, path: &str) -> Vec<Exchanged> {
        let path = format!("{}{path}", self.state.path);
        self.seen().into_iter().filter(|request| request.path == path).collect()
    }

    /// The number of requests by method, path and status, for messages.
    pub fn summary(&self) -> String {
        format!("{:?}", self.state.inner().summary())
    }

    /// Tokens, codes and client secrets that were issued so far. None may appear in any output.
    pub fn secrets(&self) -> Vec<String> {
        self.state.inner().secrets.clone()
    }

    pub fn counts(&self) -> Counts {
        self.state.counts()
    }

    /// The number of token requests that wait because of the switch `hold`.
    pub fn held(&self) -> usize {
        self.state.inner().held
    }

    /// The access token in this `Authorization` header, if a protected server would accept it.
    pub fn valid(&self, authorization: &str) -> Option<AccessToken> {
        self.state.valid(authorization)
    }

    /// Forgets all registered clients, so that their requests fail with `invalid_client`.
    pub fn forget_clients(&self) {
        self.state.inner().clients.clear();
    }

    /// Makes all access tokens invalid. Refresh tokens remain valid.
    pub fn expire_access_tokens(&self) {
        self.state.inner().access.clear();
    }

    /// Revokes all grants, as a person can on the provider's page.
    pub fn revoke_grants(&self) {
        self.state.inner().grants.iter_mut().for_each(|grant| grant.alive = false);
    }

    /// A JWT of this issuer for a client of the gateway. `more` has further claims.
    pub fn jwt(&self, subject: &str, audience: &str, more: &Value) -> String {
        self.state.jwt("at+jwt", subject, audience, more)
    }
}

impl State {
    /// Requests of tests in other languages.
    fn control(&self, request: &Exchanged) -> Option<Response> {
        let action = request.path.strip_prefix("/control/")?;
        let done = || Response::json(200, &json!({}));
        Some(match (&*request.method, action) {
            ("POST", "switches") => switched(&request.body, |changes| {
                let mut applied = Ok(());
                self.switches.send_modify(|switches| applied = switches.apply(changes));
                applied
            }),
            ("GET", "seen") => {
                let inner = self.inner();
                let seen: Vec<Value> = inner.seen.iter().map(Exchanged::to_json).collect();
                Response::json(200, &json!(seen))
            }
            ("GET", "counts") => {
                let counts = self.counts();
                Response::json(
                    200,
                    &json!({"refreshes": counts.refreshes, "overlapping": counts.overlapping,
                        "reused": counts.reused, "live_grants": counts.live_grants,
                        "revoked_grants": counts.revoked_grants, "clients": counts.clients,
                        "exchanges": counts.exchanges, "held": self.inner().held}),
                )
            }
            ("GET", "secrets") => Response::json(200, &json!(self.inner().secrets)),
            ("POST", "forget-clients") => {
                self.inner().clients.clear();
                done()
            }
            ("POST", "expire-access-tokens") => {
                self.inner().access.clear();
                done()
            }
            ("POST", "revoke-grants") => {
                self.inner().grants.iter_mut().for_each(|grant| grant.alive = false);
                done()
            }
            _ => Response::empty(404),
        })
    }
}

/// Applies a JSON object of switches.
fn switched(body: &str, apply: impl FnOnce(&Value) -> io::Result<()>) -> Response {
    let changes = serde_json::from_str(body).map_err(io::Error::from);
    match changes.and_then(|changes| apply(&changes)) {
        Ok(()) => Response::json(200, &json!({})),
        Err(error) => Response::error(400, "invalid_request", &error.to_string()),
    }
}

/// Follows redirects from `url` as a browser would, without scripts and pages: returns the last
/// status and body, and all addresses that were visited.
pub fn follow(url: &str) -> io::Result<Followed> {
    let mut cookies = String::new();
    let mut visited = vec![url.to_string()];
    loop {
        let at = visited.last().cloned().unwrap_or_default();
        let response = client::get(&at, &cookies)?;
        for cookie in &response.cookies {
            cookies =
                if cookies.is_empty() { cookie.clone() } else { format!("{cookies}; {cookie}") };
        }
        match response.location {
            Some(to) if visited.len() < MAX_REDIRECTS => visited.push(client::joined(&at, &to)),
            Some(_) => return Err(io::Error::other(format!("too many redirects: {visited:?}"))),
            None => {
                let (status, body) = (response.status, response.body);
                return Ok(Followed { status, body, visited });
            }
        }
    }
}

const MAX_REDIRECTS: usize = 20;

/// The end of a chain of redirects.
#[derive(Debug, Clone)]
pub struct Followed {
    pub status: u16,
    pub body: String,
    pub visited: Vec<String>,
}

mod client;

#[cfg(test)]
mod tests;
