//! The device flow (RFC 8628): the person enters a code in any browser, and the gateway polls.

use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use super::discovery::Discovered;
use super::error::{LoginError, known_code};
use super::grant::Client;
use super::network::{json, secure, shown};
use super::secret::Secret;
use super::settings::DEVICE_GRANT;
use super::token::{self, Issued, TokenError};

const STEP: &str = "device authorization";
const DEFAULT_INTERVAL: u64 = 5;
/// How much longer the interval becomes after `slow_down`.
const SLOW_DOWN: Duration = Duration::from_secs(5);
const MAX_LIFETIME: u64 = 1800;

/// A code that the person has to enter.
#[derive(Debug)]
pub(crate) struct DeviceCode {
    code: Secret,
    pub(crate) user_code: String,
    pub(crate) address: String,
    /// The address that contains the code.
    pub(crate) complete_address: Option<String>,
    interval: Duration,
    until: Instant,
}

/// Requests a code.
pub(crate) async fn begin(
    discovered: &Discovered,
    client: &Client,
    (scope, resource): (Option<&str>, Option<&str>),
) -> Result<DeviceCode, LoginError> {
    let failed = |why: String| LoginError::new(STEP, why);
    let endpoint = discovered.server.device_endpoint.as_deref().ok_or_else(|| {
        let why = "the authorization server has no device flow";
        failed(why.into()).help("remove `login.flow`, or use `toolward login SERVER --paste`")
    })?;
    let mut all = Vec::new();
    all.extend(scope.map(|scope| ("scope", scope)));
    all.extend(resource.map(|resource| ("resource", resource)));
    let sent = token::post(&discovered.network, endpoint, client, &all).await.map_err(failed)?;
    let (status, body) = sent;
    let body = json(&body, endpoint).map_err(failed)?;
    if let Some(code) = body.get("error").and_then(Value::as_str) {
        return Err(failed(format!("{}: `{}`", shown(endpoint), known_code(code))));
    }
    if status != 200 {
        return Err(failed(format!("{}: status {status}", shown(endpoint))));
    }
    let text = |name: &str| {
        let text = body.get(name).and_then(Value::as_str);
        text.filter(|text| {
            !text.is_empty()
                && text.len() <= 2048
                && text.bytes().all(|byte| (32..127).contains(&byte))
        })
    };
    let missing = |name: &str| failed(format!("{}: there is no `{name}`", shown(endpoint)));
    let needed = |name: &str| text(name).ok_or_else(|| missing(name));
    // GitHub's older form has `verification_url`.
    let address = text("verification_uri").or(text("verification_url"));
    let address = address.ok_or_else(|| missing("verification_uri"))?;
    let complete = text("verification_uri_complete");
    for url in std::iter::once(address).chain(complete) {
        secure(url).map_err(failed)?;
    }
    let seconds = |name: &str| body.get(name).and_then(Value::as_u64);
    let interval = seconds("interval").unwrap_or(DEFAULT_INTERVAL).clamp(1, 60);
    let lifetime = seconds("expires_in").unwrap_or(600).min(MAX_LIFETIME);
    Ok(DeviceCode {
        code: Secret::new(needed("device_code")?),
        user_code: needed("user_code")?.into(),
        address: address.into(),
        complete_address: complete.map(str::to_owned),
        interval: Duration::from_secs(interval),
        until: Instant::now() + Duration::from_secs(lifetime),
    })
}

impl DeviceCode {
    /// Polls until the person has decided.
    pub(crate) async fn poll(
        &self,
        discovered: &Discovered,
        client: &Client,
        resource: Option<&str>,
    ) -> Result<Issued, LoginError> {
        let failed = |why: &str| LoginError::new(STEP, why);
        let mut interval = self.interval;
        loop {
            tokio::time::sleep(interval).await;
            if Instant::now() > self.until {
                return Err(failed("the code has expired").help("log in again"));
            }
            let mut all = vec![("grant_type", DEVICE_GRANT), ("device_code", self.code.expose())];
            all.extend(resource.map(|resource| ("resource", resource)));
            let endpoint = &discovered.server.token_endpoint;
            let asked = token::request(&discovered.network, endpoint, client, &all).await;
            match asked {
                Ok(issued) => return Ok(issued),
                Err(TokenError::Rejected("authorization_pending")) => {}
                Err(TokenError::Rejected("slow_down")) => interval += SLOW_DOWN,
                Err(TokenError::Rejected("expired_token")) => {
                    return Err(failed("the code has expired").help("log in again"));
                }
                Err(TokenError::Rejected("access_denied")) => {
                    return Err(failed("access was denied at the provider"));
                }
                // The next attempt may succeed.
                Err(TokenError::Failed(why)) => {
                    tracing::debug!(target: "login", "{why}");
                    interval = (interval * 2).min(Duration::from_secs(60));
                }
                Err(error) => return Err(failed(&error.to_string())),
            }
        }
    }
}
