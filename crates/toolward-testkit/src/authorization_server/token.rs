//! The token endpoint: codes, refreshes, device codes, client credentials and token exchange.

use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::http::{Exchanged, Form, Response, form};
use super::signing;
use super::state::{AccessToken, Client, Grant, State};
use super::switches::{Device, Documents, Exchange, Hold, Refresh, Revocation, TokenFault};

impl State {
    pub(super) async fn token(&self, request: &Exchanged) -> Option<Response> {
        let form = request.form();
        let refreshed = form.get("refresh_token").and_then(|token| self.begin_refresh(token));
        let response = self.timed_token(request, &form).await;
        if let Some(grant) = refreshed {
            self.inner().grants[grant].refreshing -= 1;
        }
        response
    }

    /// Counts the refreshes of a grant that overlap.
    fn begin_refresh(&self, token: &str) -> Option<usize> {
        let mut inner = self.inner();
        let (grant, _) = *inner.refresh.get(token)?;
        let refreshing = &mut inner.grants[grant].refreshing;
        *refreshing += 1;
        let overlaps = *refreshing > 1;
        inner.counts.overlapping += usize::from(overlaps);
        Some(grant)
    }

    async fn timed_token(&self, request: &Exchanged, form: &Form) -> Option<Response> {
        let delay = self.switches.borrow().token_delay;
        if delay > 0 {
            tokio::time::sleep(Duration::from_millis(delay)).await;
        }
        self.hold(Hold::Before).await;
        let mut fault = None;
        self.switches.send_modify(|switches| {
            fault = (!switches.token_faults.is_empty()).then(|| switches.token_faults.remove(0));
        });
        match fault {
            Some(TokenFault::CloseBefore) => return None,
            Some(TokenFault::Status(status, body)) => {
                let fields = "Content-Type: application/json\r\n".into();
                return Some(Response { status, fields, body: body.into_bytes() });
            }
            _ => {}
        }
        let response = self.granted(request, form).unwrap_or_else(|error| error);
        self.hold(Hold::After).await;
        (fault != Some(TokenFault::CloseAfter)).then_some(response)
    }

    /// Waits while the switch is set to `point`.
    async fn hold(&self, point: Hold) {
        let mut switches = self.switches.subscribe();
        if switches.borrow().hold != point {
            return;
        }
        self.inner().held += 1;
        // The sender is `self`, so waiting ends only because of the value.
        let _ = switches.wait_for(|switches| switches.hold != point).await;
        self.inner().held -= 1;
    }

    fn granted(&self, request: &Exchanged, form: &Form) -> Result<Response, Response> {
        let text = |name: &str| form.get(name).map_or("", String::as_str);
        let (id, client) = self.authenticated(request, form)?;
        if self.switches.borrow().reject_resource && form.contains_key("resource") {
            return Err(Response::error(400, "invalid_target", "AADSTS9010010"));
        }
        let kind = text("grant_type");
        match kind {
            "authorization_code" => self.code(&id, &client, form),
            "refresh_token" => self.refresh(&id, form),
            "urn:ietf:params:oauth:grant-type:device_code" => self.device(&id, form),
            "client_credentials" if client.secret.is_some() => {
                let (_, answer) = self.issue(access(&id, &id, form));
                Ok(Response::json(200, &answer))
            }
            "urn:ietf:params:oauth:grant-type:token-exchange" => self.exchange(&id, form),
            _ => Err(Response::error(400, "unsupported_grant_type", kind)),
        }
    }

    /// RFC 7009: a refresh token ends its grant, an access token only itself.
    pub(super) fn revoke(&self, request: &Exchanged) -> Response {
        let form = request.form();
        match self.switches.borrow().revocation {
            Revocation::Absent => return Response::empty(404),
            Revocation::Fails => return Response::empty(503),
            Revocation::Supported => {}
        }
        let (client, _) = match self.authenticated(request, &form) {
            Ok(client) => client,
            Err(response) => return response,
        };
        let token = form.get("token").map_or("", String::as_str);
        let mut inner = self.inner();
        if let Some((grant, _)) = inner.refresh.get(token).copied()
            && inner.grants[grant].client == client
        {
            inner.grants[grant].alive = false;
        }
        if inner.access.get(token).is_some_and(|access| access.client == client) {
            inner.access.remove(token);
        }
        Response::empty(200)
    }

    /// The client that makes a request, by one authentication method.
    fn authenticated(
        &self,
        request: &Exchanged,
        sent: &Form,
    ) -> Result<(String, Client), Response> {
        let wrong = |why: &str| Response::error(401, "invalid_client", why);
        let basic = request.field("authorization").strip_prefix("Basic ");
        if basic.is_some() && sent.contains_key("client_secret") {
            return Err(wrong("multiple authentication methods"));
        }
        let (id, secret) = match basic {
            Some(pair) => {
                let pair = STANDARD.decode(pair).map_err(|_| wrong("bad header"))?;
                let pair = String::from_utf8_lossy(&pair).into_owned();
                let (id, secret) = pair.split_once(':').ok_or_else(|| wrong("bad header"))?;
                // Both are form-encoded.
                let pair = form(&format!("id={id}&secret={secret}"));
                (pair["id"].clone(), Some(pair["secret"].clone()))
            }
            None => (
                sent.get("client_id").cloned().unwrap_or_default(),
                sent.get("client_secret").cloned(),
            ),
        };
        let client = self.client(&id).ok_or_else(|| wrong("unknown client"))?;
        match client.secret == secret {
            true => Ok((id, client)),
            false => Err(wrong("wrong secret")),
        }
    }

    fn code(&self, client: &str, registered: &Client, form: &Form) -> Result<Response, Response> {
        let text = |name: &str| form.get(name).map_or("", String::as_str);
        let wrong = |why: &str| Response::error(400, "invalid_grant", why);
        let mut inner = self.inner();
        let code = inner.codes.get(text("code")).ok_or_else(|| wrong("unknown code"))?;
        if let Some(grant) = code.used {
            inner.grants[grant].alive = false;
            return Err(wrong("the code was used before; its grant is revoked"));
        }
        if code.client != client || code.redirect_uri != text("redirect_uri") {
            return Err(wrong("the code belongs to another client or redirect URI"));
        }
        if code.challenge.as_deref() != Some(&signing::challenge(text("code_verifier"))) {
            return Err(wrong("the verifier does not match"));
        }
        if form.get("resource").is_some_and(|asked| Some(asked) != code.resource.as_ref()) {
            return Err(Response::error(400, "invalid_target", "another resource"));
        }
        let nonce = code.nonce.clone();
        let granted = Grant {
            client: client.into(),
            subject: code.subject.clone(),
            scope: code.scope.clone(),
            resource: code.resource.clone(),
            alive: true,
            refreshing: 0,
            rejected: registered.document
                && self.switches.borrow().documents == Documents::TokensRejected,
        };
        let grant = inner.grants.len();
        inner.grants.push(granted.clone());
        if let Some(code) = inner.codes.get_mut(text("code")) {
            code.used = Some(grant);
        }
        drop(inner);
        let may_refresh = registered.grant_types.iter().any(|kind| kind == "refresh_token");
        let mut answer = self.tokens(grant, &granted, may_refresh);
        if granted.scope.split(' ').any(|scope| scope == "openid") {
            let more = nonce.map_or_else(|| json!({}), |nonce| json!({"nonce": nonce}));
            answer["id_token"] = json!(self.jwt("JWT", &granted.subject, client, &more));
        }
        Ok(Response::json(200, &answer))
    }

    /// The response with new tokens of a grant.
    fn tokens(&self, grant: usize, granted: &Grant, may_refresh: bool) -> Value {
        let (_, mut answer) = self.issue(AccessToken {
            subject: granted.subject.clone(),
            client: granted.client.clone(),
            scope: granted.scope.clone(),
            audience: granted.resource.clone(),
            grant: Some(grant),
            until: Instant::now(),
            rejected: granted.rejected,
        });
        if may_refresh && let Some(token) = self.issue_refresh(grant) {
            answer["refresh_token"] = json!(token);
        }
        answer
    }

    fn refresh(&self, client: &str, form: &Form) -> Result<Response, Response> {
        let wrong = |why: &str| Response::error(400, "invalid_grant", why);
        let switches = self.switches();
        let token = form.get("refresh_token").map_or("", String::as_str);
        let mut inner = self.inner();
        let (grant, newest) = *inner.refresh.get(token).ok_or_else(|| wrong("unknown token"))?;
        let granted = inner.grants[grant].clone();
        if !granted.alive || granted.client != client {
            return Err(wrong("the grant is revoked, or belongs to another client"));
        }
        if !newest {
            inner.grants[grant].alive = false;
            inner.counts.reused += 1;
            return Err(wrong("the token was used before; the grant is revoked"));
        }
        let asked = form.get("resource");
        if asked.is_some() && asked != granted.resource.as_ref()
            || switches.refresh_needs_resource && asked != granted.resource.as_ref()
        {
            return Err(Response::error(400, "invalid_target", "another resource"));
        }
        let more = |scope: &str| !granted.scope.split(' ').any(|known| known == scope);
        if form.get("scope").is_some_and(|scope| scope.split(' ').any(more)) {
            return Err(Response::error(400, "invalid_scope", "more than was granted"));
        }
        inner.counts.refreshes += 1;
        drop(inner);
        let rotates = switches.refresh == Refresh::Rotating;
        Ok(Response::json(200, &self.tokens(grant, &granted, rotates)))
    }

    fn device(&self, client: &str, form: &Form) -> Result<Response, Response> {
        let wrong = |error: &str| Response::error(400, error, "");
        let (behavior, subject) = {
            let switches = self.switches.borrow();
            (switches.device, switches.subject.clone())
        };
        let code = form.get("device_code").map_or("", String::as_str);
        let mut inner = self.inner();
        let device = inner.devices.get_mut(code).filter(|device| device.client == client);
        let device = device.ok_or_else(|| wrong("invalid_grant"))?;
        device.polls += 1;
        let approved = match (behavior, device.polls) {
            (Device::Absent, _) => return Err(wrong("unsupported_grant_type")),
            (Device::Denies, 2..) => return Err(wrong("access_denied")),
            (Device::Expires, 2..) => return Err(wrong("expired_token")),
            (Device::SlowsDown, 1) => return Err(wrong("slow_down")),
            (Device::Approves, 2..) | (Device::SlowsDown, 3..) => Some(subject),
            (Device::Page, _) => device.approved.clone(),
            _ => None,
        };
        let Some(subject) = approved else { return Err(wrong("authorization_pending")) };
        if subject.is_empty() {
            return Err(wrong("access_denied"));
        }
        let granted = Grant {
            client: client.into(),
            subject,
            scope: device.scope.clone(),
            resource: device.resource.clone(),
            alive: true,
            refreshing: 0,
            rejected: false,
        };
        inner.devices.remove(code);
        let grant = inner.grants.len();
        inner.grants.push(granted.clone());
        drop(inner);
        Ok(Response::json(200, &self.tokens(grant, &granted, true)))
    }

    /// RFC 8693. The subject token's signature is not verified: the issuer may be another server.
    fn exchange(&self, client: &str, form: &Form) -> Result<Response, Response> {
        let text = |name: &str| form.get(name).map_or("", String::as_str);
        let wrong = |error: &str, why: &str| Response::error(400, error, why);
        match self.switches.borrow().exchange {
            Exchange::Absent => return Err(wrong("unsupported_grant_type", "")),
            Exchange::Refused => return Err(wrong("invalid_target", "not for this audience")),
            Exchange::Supported => {}
        }
        const TYPES: [&str; 2] = [
            "urn:ietf:params:oauth:token-type:access_token",
            "urn:ietf:params:oauth:token-type:jwt",
        ];
        if !TYPES.contains(&text("subject_token_type")) {
            return Err(wrong("invalid_request", "unknown type of the subject token"));
        }
        let claims = signing::claims(text("subject_token"));
        let claims = claims.ok_or_else(|| wrong("invalid_request", "not a JWT"))?;
        if claims["exp"].as_u64().is_none_or(|until| until <= signing::now()) {
            return Err(wrong("invalid_grant", "the subject token has expired"));
        }
        let subject = claims["sub"].as_str().unwrap_or_default();
        let mut token = access(client, subject, form);
        token.audience = form.get("audience").or(form.get("resource")).cloned();
        let (_, mut answer) = self.issue(token);
        answer["issued_token_type"] = json!(TYPES[0]);
        self.inner().counts.exchanges += 1;
        Ok(Response::json(200, &answer))
    }
}

/// A token without a grant.
fn access(client: &str, subject: &str, form: &Form) -> AccessToken {
    AccessToken {
        subject: subject.into(),
        client: client.into(),
        scope: form.get("scope").cloned().unwrap_or_default(),
        audience: form.get("resource").cloned(),
        grant: None,
        until: Instant::now(),
        rejected: false,
    }
}
