//! Routes a request: checks host, origin and token, then calls the view.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use askama::Template;
use bytes::Bytes;
use tokio::sync::{Mutex, Semaphore};
use toolward_config::config::Metrics;
use toolward_gateway::downstream::response::{Content, Response};
use toolward_gateway::login::{Verdict, deliver};
use toolward_wire::http::{Method, RequestHead};

use super::admins::SignedIn;
use super::auth;
use super::query::fields_of;
use super::{AdminUi, Query, ViewResponse, assets, events, layout, view};
use crate::{metrics, status_report};

const HTML: &str = "text/html; charset=utf-8";
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
    img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";
/// The redirect address of logins at servers, which needs no token.
const CALLBACK: &str = "/oauth/callback";
/// Delay of the response to a wrong token. Such requests are answered one after the other.
const WRONG_TOKEN_DELAY: Duration = Duration::from_millis(250);
/// The maximum number of requests with a wrong token that are delayed at a time.
const MAX_DELAYED: usize = 8;

/// Views that depend on who is logged in. Their forms change something.
const PERSONAL: [&str; 3] = ["approvals", "allow", "changes"];

/// The target of an admitted request.
#[derive(Debug)]
pub(super) enum AdminRoute {
    /// A login link: the token is in the URL.
    Entrance(String),
    Login,
    Asset,
    Status,
    Metrics,
    /// A view, by its path.
    View(String),
    /// The form of a view.
    Ask,
    /// A view that depends on the person who is logged in, by its path.
    Personal(String, SignedIn),
    /// An action of the person who is logged in, by the path of its form.
    Act(String, SignedIn),
    /// A candidate policy.
    Preview,
}

/// Requests with a wrong token, answered one after the other.
pub(super) struct Tries {
    turn: Mutex<()>,
    waiting: Semaphore,
}

impl Default for Tries {
    fn default() -> Tries {
        Tries { turn: Mutex::default(), waiting: Semaphore::new(MAX_DELAYED) }
    }
}

#[derive(Template)]
#[template(path = "login.html")]
struct Login<'a> {
    assets: &'a str,
}

impl AdminUi {
    /// Admits a request before any of its body is read.
    pub(super) async fn admit(
        &self,
        from: IpAddr,
        head: &RequestHead,
    ) -> Result<AdminRoute, Response> {
        if !self.reachable.host(&head.host) {
            self.turned_away(from, "the host name is not the admin UI's");
            return Err(refused("the admin UI is not served under this host name"));
        }
        if !matches!(head.method, Method::Get | Method::Post) {
            return Err(Response::empty(405).field("Allow", "GET, POST"));
        }
        let posted = head.method == Method::Post;
        if !posted && head.path.starts_with(assets::PATH) {
            return Ok(AdminRoute::Asset);
        }
        // A provider redirects the browser here; only the login that waits knows the `state`.
        if !posted && head.path == CALLBACK {
            return Err(self.login_response(head.query.as_deref().unwrap_or_default()));
        }
        if posted && !is_own_origin(head) {
            self.turned_away(from, "the origin is not allowed");
            return Err(refused("web pages of other origins cannot send requests here"));
        }
        let entrance = !posted && head.path == "/";
        if !entrance && !is_own_site(head) {
            self.turned_away(from, "the origin is not allowed");
            return Err(refused("web pages of other origins cannot read this"));
        }
        match (&*head.path, posted) {
            ("/", false) => {
                let query = head.query.as_deref().unwrap_or_default();
                let token = fields_of(query)
                    .and_then(|fields| fields.into_iter().find(|(name, _)| name == "token"));
                token.map(|(_, token)| AdminRoute::Entrance(token)).ok_or_else(login)
            }
            ("/login", true) => Ok(AdminRoute::Login),
            (path @ ("/status" | "/metrics"), false) => match self.door.bearer(head) {
                auth::TokenCheck::Valid if path == "/status" => Ok(AdminRoute::Status),
                auth::TokenCheck::Valid
                    if self.reloader.begun().telemetry.metrics != Metrics::Off =>
                {
                    Ok(AdminRoute::Metrics)
                }
                auth::TokenCheck::Valid => Err(Response::empty(404)),
                auth::TokenCheck::Missing => Err(login()),
                auth::TokenCheck::Invalid => Err(self.wrong(from).await),
            },
            (path, posted) => {
                // Credentials are checked first, so that existing and unknown paths are indistinguishable.
                let admin = self.door.admin(head, self.gateway().active().admins.as_ref());
                match self.door.look(head) {
                    _ if admin.is_some() => {}
                    auth::TokenCheck::Valid => {}
                    auth::TokenCheck::Missing => return Err(login()),
                    auth::TokenCheck::Invalid => return Err(self.wrong(from).await),
                }
                let signed = SignedIn { admin };
                let under = path.strip_prefix('/').and_then(|path| path.split_once('/'));
                match under.filter(|(prefix, _)| **prefix == *self.door.prefix) {
                    Some((_, "ask")) if posted => Ok(AdminRoute::Ask),
                    Some((_, path)) if posted && PERSONAL.contains(&path) => {
                        Ok(AdminRoute::Act(path.into(), signed))
                    }
                    Some((_, path)) if !posted && is_personal(path) => {
                        Ok(AdminRoute::Personal(path.into(), signed))
                    }
                    Some((_, "preview")) if posted => Ok(AdminRoute::Preview),
                    Some(_) if posted => Err(Response::empty(405).field("Allow", "GET")),
                    Some((_, path)) => Ok(AdminRoute::View(path.into())),
                    None => Err(login()),
                }
            }
        }
    }

    pub(super) async fn respond(
        self: &Arc<Self>,
        from: IpAddr,
        place: AdminRoute,
        head: &RequestHead,
        body: Bytes,
    ) -> Response {
        match place {
            AdminRoute::Asset => assets::answer(&head.path),
            AdminRoute::Entrance(token) => self.enter(from, &token).await,
            AdminRoute::Login => {
                let fields = std::str::from_utf8(&body).ok().and_then(fields_of);
                let mut fields = fields.unwrap_or_default().into_iter();
                let token = fields.find(|(name, _)| name == "token").map(|(_, token)| token);
                self.enter(from, token.unwrap_or_default().trim()).await
            }
            AdminRoute::Status => {
                let status = status_report::status(&self.reloader, self.begun).await;
                let status = Bytes::from(status.to_string());
                Response::new(200, Content::Bytes("application/json", status))
            }
            AdminRoute::Metrics => {
                let text = Bytes::from(metrics::text(&self.reloader).await);
                Response::new(200, Content::Bytes(metrics::CONTENT_TYPE, text))
            }
            AdminRoute::View(path) => {
                let (view, rest) = path.split_once('/').unwrap_or((&path, ""));
                let fields = head.query.as_deref().unwrap_or_default();
                let Some(query) = Query::read(head, fields, rest) else { return unreadable() };
                let shown = match view {
                    "" => view::matrix::show(self, &query).await,
                    "rows" => view::matrix::rows(self, &query).await,
                    "agent" => view::agent::show(self, &query).await,
                    "explain" => view::explain::show(self, &query).await,
                    "ask" => view::ask::show(self, &query).await,
                    "live" => view::live::show(self, &query).await,
                    "policy" => view::policy::show(self, &query).await,
                    "preview" => view::preview::show(self, &query).await,
                    "servers" => view::servers::show(self, &query).await,
                    "events" => events::show(self, &query),
                    "badge" if rest.is_empty() => view::approvals::badge(self),
                    "banners" if rest.is_empty() => layout::show(self).await,
                    _ => ViewResponse::Missing,
                };
                self.shown(shown).await
            }
            AdminRoute::Personal(path, signed) => {
                let (view, rest) = path.split_once('/').unwrap_or((&path, ""));
                let fields = head.query.as_deref().unwrap_or_default();
                let Some(query) = Query::read(head, fields, rest) else { return unreadable() };
                let shown = match view {
                    "approvals" => view::approvals::show(self, &query, &signed).await,
                    "allow" => view::allow::show(self, &query, &signed).await,
                    _ => view::changes::show(self, &query, &signed).await,
                };
                self.shown(shown).await
            }
            AdminRoute::Act(path, signed) => {
                let form = std::str::from_utf8(&body).ok();
                let query = form.and_then(|form| Query::read(head, form, ""));
                let Some(query) = query else { return unreadable() };
                let shown = match &*path {
                    "approvals" => view::approvals::decide(self, &query, &signed).await,
                    "allow" => view::allow::save(self, &query, &signed).await,
                    _ => view::changes::accept(self, &query, &signed).await,
                };
                self.shown(shown).await
            }
            place @ (AdminRoute::Ask | AdminRoute::Preview) => {
                let form = std::str::from_utf8(&body).ok();
                let query = form.and_then(|form| Query::read(head, form, ""));
                let Some(query) = query else { return unreadable() };
                let shown = match place {
                    AdminRoute::Preview => view::preview::compare(self, &query).await,
                    _ => view::ask::answer(self, &query).await,
                };
                self.shown(shown).await
            }
        }
    }

    async fn shown(&self, shown: ViewResponse) -> Response {
        match shown {
            ViewResponse::Html(html) => Response::new(200, Content::Bytes(HTML, html.into())),
            ViewResponse::Events(events) => Response::new(200, Content::Stream(events)),
            ViewResponse::Missing => view::problem(self, 404, "There is no such page.").await,
            ViewResponse::Forbidden(why) => view::problem(self, 403, &why).await,
            ViewResponse::Wrong(why) => view::problem(self, 400, &why).await,
        }
    }

    /// Sets the cookie after a valid token, and redirects to the UI.
    async fn enter(&self, from: IpAddr, token: &str) -> Response {
        if token.is_empty() {
            return login();
        }
        let active = self.gateway().active();
        let is_admin = active.admins.as_ref().is_some_and(|admins| admins.agent(token).is_some());
        if is_admin {
            return Response::empty(303)
                .field("Location", format!("/{}/approvals", self.door.prefix))
                .field("Set-Cookie", self.door.admin_cookie(token));
        }
        if !self.door.is_token(token) {
            return self.wrong(from).await;
        }
        Response::empty(303)
            .field("Location", format!("/{}/", self.door.prefix))
            .field("Set-Cookie", self.door.set_cookie())
    }

    /// The delayed response to a wrong token.
    async fn wrong(&self, from: IpAddr) -> Response {
        let why = "the admin UI's token is wrong";
        self.turned_away(from, why);
        self.rejected.log(&from.to_canonical().to_string(), why);
        let Ok(_waiting) = self.tries.waiting.try_acquire() else {
            return Response::empty(429).field("Retry-After", "2");
        };
        let _turn = self.tries.turn.lock().await;
        tokio::time::sleep(WRONG_TOKEN_DELAY).await;
        login()
    }

    /// Passes the response of a login at a server to the process that waits for it.
    fn login_response(&self, query: &str) -> Response {
        let running = self.reloader.running();
        let verdict = running.map_or(Verdict::Foreign, |running| deliver(&running.state, query));
        let page = Content::Bytes(HTML, verdict.page().into());
        Response::new(verdict.status(), page).field("Cache-Control", "no-store")
    }

    /// Counts an unauthenticated request.
    pub(super) fn turned_away(&self, from: IpAddr, why: &'static str) {
        self.gateway().context.audit.turned_away(&from.to_canonical().to_string(), why);
    }
}

/// The login form: the response to every unauthenticated request, whatever its path.
fn login() -> Response {
    let assets = assets::folder();
    let html = Login { assets: &assets }.render().unwrap_or_default();
    Response::new(401, Content::Bytes(HTML, html.into()))
}

fn refused(why: &'static str) -> Response {
    Response::new(403, Content::Text(why))
}

fn unreadable() -> Response {
    Response::new(400, Content::Text("the fields cannot be read"))
}

/// Whether a form was sent from a page of the same origin.
fn is_own_origin(head: &RequestHead) -> bool {
    let origin = head.headers.get("origin").unwrap_or_default();
    let host = ["http://", "https://"].iter().find_map(|scheme| origin.strip_prefix(scheme));
    host.is_some_and(|host| host.eq_ignore_ascii_case(&head.host))
}

/// Checks the origin: another port of this host is another origin.
fn is_own_site(head: &RequestHead) -> bool {
    let said = |value: &[u8]| matches!(value, b"same-origin" | b"none");
    head.headers.values("sec-fetch-site").all(said)
}

fn is_personal(path: &str) -> bool {
    PERSONAL.contains(&path.split('/').next().unwrap_or(path))
}

/// Headers of every response.
pub(super) fn secured(response: Response) -> Response {
    response
        .field("Content-Security-Policy", POLICY)
        .field("X-Content-Type-Options", "nosniff")
        // With `no-referrer`, browsers would hide the origin of the admin UI's own forms as well.
        .field("Referrer-Policy", "same-origin")
        .field("Cross-Origin-Resource-Policy", "same-origin")
        .field("Cross-Origin-Opener-Policy", "same-origin")
}
