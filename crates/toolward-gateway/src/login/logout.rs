//! Logout: removes a grant, and revokes its tokens at the provider (RFC 7009).

use std::io;

use serde_json::Value;

use super::error::known_code;
use super::grant::Grant;
use super::network::{Network, json, shown};
use super::store::{GrantKey, GrantStore};
use super::token;
use crate::http_client::{Address, ClientTls};

/// A grant that was removed.
#[derive(Debug)]
pub struct RemovedGrant {
    pub grant: Grant,
    pub revocation: Revocation,
}

/// Whether the provider revoked the tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Revocation {
    Revoked,
    /// The provider has no revocation endpoint, or there was no token.
    Unsupported,
    Failed(String),
}

/// Removes a login, and revokes it. `None` if there was no login. `tls` is that of the server.
pub async fn logout(
    store: &GrantStore,
    key: &GrantKey,
    tls: Option<&ClientTls>,
) -> io::Result<Option<RemovedGrant>> {
    let lock = store.lock(key).await?;
    // A login that cannot be read can be removed nevertheless.
    let grant = store.load(key).unwrap_or_default();
    let removed = store.remove(&lock, key)?;
    drop(lock);
    let Some(grant) = grant.filter(|_| removed) else { return Ok(None) };
    let revocation = revoke(&grant, tls).await;
    Ok(Some(RemovedGrant { grant, revocation }))
}

/// Revokes the refresh token first: that should end the access token, too, but not every provider does so.
async fn revoke(grant: &Grant, tls: Option<&ClientTls>) -> Revocation {
    let (Some(endpoint), Some(tokens)) = (&grant.revocation_endpoint, &grant.tokens) else {
        return Revocation::Unsupported;
    };
    let network = match Address::parse(&grant.origin) {
        Ok(server) => Network::new(grant.zone, &server, tls),
        Err(why) => return Revocation::Failed(why),
    };
    let refresh = tokens.refresh.as_ref().map(|token| (token, "refresh_token"));
    let access = (&tokens.access, "access_token");
    let mut revoked = false;
    for (token, hint) in refresh.into_iter().chain([access]) {
        let form = [("token", token.expose()), ("token_type_hint", hint)];
        let (status, body) = match token::post(&network, endpoint, &grant.client, &form).await {
            Ok(answered) => answered,
            Err(why) => return Revocation::Failed(why),
        };
        let code = json(&body, endpoint).ok();
        let code = code.as_ref().and_then(|body| body.get("error")).and_then(Value::as_str);
        match (status, code) {
            (200..300, None) => revoked = true,
            // It revokes refresh tokens only.
            (_, Some("unsupported_token_type")) if revoked => {}
            (_, code) => {
                let code = code.map(|code| format!(" (`{}`)", known_code(code)));
                let code = code.unwrap_or_default();
                return Revocation::Failed(format!("{}: status {status}{code}", shown(endpoint)));
            }
        }
    }
    Revocation::Revoked
}
