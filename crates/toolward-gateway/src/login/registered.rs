//! Registered clients that are used again: one for each issuer, redirect address, scope and kind of flow.
//!
//! A client is kept only after a successful login with it, and taken out of the store while a login uses it. An
//! authorization server that has forgotten a client may tell only the browser: if the person gives up there, the next
//! login registers again.

use ring::digest;

use super::discovery::Discovered;
use super::grant::Client;
use super::settings::{Flow, LoginSettings};
use super::store::GrantStore;
use super::token::{self, TokenError};

/// Takes a client that was registered earlier, if the authorization server still knows it.
pub(super) async fn take(settings: &LoginSettings, discovered: &Discovered) -> Option<Client> {
    let store = GrantStore::in_state(&settings.state);
    // A file that cannot be read is gone now, and a new client replaces it.
    let client = store.take_client(&name(settings, discovered)).ok().flatten()?;
    is_known(settings, discovered, &client).await.then_some(client)
}

/// Keeps a client after a successful login.
pub(super) async fn keep(settings: &LoginSettings, discovered: &Discovered, client: &Client) {
    let store = GrantStore::in_state(&settings.state);
    if let Err(error) = store.keep_client(&name(settings, discovered), client).await {
        // The login is complete; the next one registers again.
        tracing::warn!(target: "login", server = settings.server, "the client cannot be stored: {error}");
    }
}

/// Whether the authorization server knows a client: it rejects a code that does not exist with `invalid_grant`, and an
/// unknown client with `invalid_client`.
async fn is_known(settings: &LoginSettings, discovered: &Discovered, client: &Client) -> bool {
    let Ok(code) = super::random_id() else { return false };
    let parameters = [
        ("grant_type", "authorization_code"),
        ("code", code.as_str()),
        ("redirect_uri", settings.redirect.as_str()),
        ("code_verifier", "a-code-that-does-not-exist-has-no-verifier-0"),
    ];
    let endpoint = &discovered.server.token_endpoint;
    let asked = token::request(&discovered.network, endpoint, client, &parameters).await;
    matches!(asked, Err(TokenError::Rejected("invalid_grant")))
}

fn name(settings: &LoginSettings, discovered: &Discovered) -> String {
    let scope = settings.scope.as_ref().or(discovered.scope.as_ref());
    let flow = if settings.flow == Flow::Device { "device" } else { "code" };
    let scope = scope.map_or("", String::as_str);
    let mut context = digest::Context::new(&digest::SHA256);
    for part in ["client", &discovered.server.issuer, &settings.redirect, flow, scope] {
        context.update(&(part.len() as u64).to_le_bytes());
        context.update(part.as_bytes());
    }
    context.finish().as_ref().iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}
