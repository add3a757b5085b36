//! OAuth client credentials: tokens of the gateway itself for a server.
//!
//! A client's token is never used here.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use toolward_wire::Raw;

use crate::http_client::{Address, fetch};
use crate::lock::LockUnpoisoned;

/// The maximum size of a token endpoint's response.
const MAX_RESPONSE_BYTES: usize = 64 << 10;
/// The timeout for fetching a token.
const FETCH_TIMEOUT: Duration = Duration::from_secs(10);
/// The lifetime of a token without `expires_in`.
const DEFAULT_LIFETIME: Duration = Duration::from_secs(300);
/// A token is renewed this long before it expires, or after three quarters of its lifetime if that
/// is later.
const RENEW_AHEAD: Duration = Duration::from_secs(30);
/// The time between attempts after a failure.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// The source of tokens for a server.
pub struct OAuth {
    endpoint: Address,
    /// The gateway's client credentials, as an `Authorization` header.
    client: String,
    form: String,
    held: Mutex<TokenState>,
    /// Serializes token requests.
    asking: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct TokenState {
    token: Option<Token>,
    failed: Option<(Instant, String)>,
}

#[derive(Clone)]
struct Token {
    /// The value of `Authorization`.
    header: Arc<str>,
    renew: Instant,
    until: Instant,
}

impl OAuth {
    /// The gateway's client credentials.
    pub(super) fn credentials(&self) -> &str {
        &self.client
    }

    /// `resource` is the address of the server that the tokens are for.
    pub fn new(
        endpoint: Address,
        client_id: &str,
        client_secret: &str,
        scope: Option<&str>,
        resource: &str,
    ) -> OAuth {
        // RFC 6749 requires both to be form-encoded in this header.
        let pair = format!("{}:{}", encoded(client_id), encoded(client_secret));
        let mut form = format!("grant_type=client_credentials&resource={}", encoded(resource));
        if let Some(scope) = scope {
            form += &format!("&scope={}", encoded(scope));
        }
        OAuth {
            endpoint,
            client: format!("Basic {}", STANDARD.encode(pair)),
            form,
            held: Mutex::default(),
            asking: tokio::sync::Mutex::default(),
        }
    }

    fn held(&self) -> MutexGuard<'_, TokenState> {
        self.held.locked()
    }

    /// The value of `Authorization`, from a cached token or a new one.
    pub(crate) async fn authorization(&self) -> io::Result<Arc<str>> {
        if let Some(header) = self.fresh() {
            return Ok(header);
        }
        let _one = self.asking.lock().await;
        // Another task may have fetched one in the meantime.
        if let Some(header) = self.fresh() {
            return Ok(header);
        }
        let recently = |(at, _): &(Instant, String)| at.elapsed() < RETRY_INTERVAL;
        let failed = self.held().failed.clone().filter(recently);
        let asked = match failed {
            Some((_, why)) => Err(why),
            None => match tokio::time::timeout(FETCH_TIMEOUT, self.ask()).await {
                Ok(asked) => asked,
                Err(_) => Err("the token endpoint timed out".into()),
            },
        };
        let mut held = self.held();
        match asked {
            Ok(token) => {
                let header = token.header.clone();
                *held = TokenState { token: Some(token), failed: None };
                Ok(header)
            }
            Err(why) => {
                if held.failed.as_ref().is_none_or(|failed| !recently(failed)) {
                    held.failed = Some((Instant::now(), why.clone()));
                }
                // The old token is valid until it expires.
                let old = held.token.as_ref().filter(|token| Instant::now() < token.until);
                old.map(|token| token.header.clone()).ok_or_else(|| {
                    let why = format!("failed to get a token for it: {why}");
                    io::Error::new(io::ErrorKind::PermissionDenied, why)
                })
            }
        }
    }

    /// The value of `Authorization`, if a token is cached.
    pub(crate) fn known(&self) -> Option<Arc<str>> {
        let held = self.held();
        let token = held.token.as_ref().filter(|token| Instant::now() < token.until)?;
        Some(token.header.clone())
    }

    fn fresh(&self) -> Option<Arc<str>> {
        let held = self.held();
        let token = held.token.as_ref().filter(|token| Instant::now() < token.renew)?;
        Some(token.header.clone())
    }

    /// Discards a token that the server rejected.
    pub(crate) fn refused(&self, header: &str) {
        let mut held = self.held();
        if held.token.as_ref().is_some_and(|token| *token.header == *header) {
            held.token = None;
        }
    }

    async fn ask(&self) -> Result<Token, String> {
        let fields = [("Authorization", self.client.as_str())];
        let answer = fetch::post_form(&self.endpoint, &fields, &self.form, MAX_RESPONSE_BYTES);
        let answer = answer.await.map_err(|error| error.to_string())?;
        if answer.status != 200 {
            return Err(format!("the token endpoint returned status {}", answer.status));
        }
        let bad = |what: &str| format!("the token endpoint's response {what}");
        let body =
            Raw::scan(&answer.body, MAX_RESPONSE_BYTES).map_err(|error| bad(&error.to_string()))?;
        let text = |name: &str| body.member(name).and_then(Raw::as_str);
        if !text("token_type").is_some_and(|kind| kind.eq_ignore_ascii_case("bearer")) {
            return Err(bad("is not a bearer token"));
        }
        let token = text("access_token").filter(|token| !token.is_empty());
        let token = token.filter(|token| token.bytes().all(|byte| byte.is_ascii_graphic()));
        let token = token.ok_or_else(|| bad("has no token"))?;
        let seconds = body.member("expires_in").and_then(Raw::as_i64);
        let lasts = seconds.and_then(|seconds| u64::try_from(seconds).ok());
        let lasts =
            lasts.map_or(DEFAULT_LIFETIME, |seconds| Duration::from_secs(seconds.min(86_400)));
        let now = Instant::now();
        Ok(Token {
            header: format!("Bearer {token}").into(),
            renew: now + lasts - RENEW_AHEAD.min(lasts / 4),
            until: now + lasts,
        })
    }
}

/// Equal if they request the same token from the same endpoint; cached tokens do not matter.
impl PartialEq for OAuth {
    fn eq(&self, other: &OAuth) -> bool {
        (&self.endpoint, &self.client, &self.form) == (&other.endpoint, &other.client, &other.form)
    }
}

/// Prints nothing, because all of it is secret.
impl std::fmt::Debug for OAuth {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("OAuth(…)")
    }
}

/// Percent-encodes a value of a form.
fn encoded(text: &str) -> String {
    text.bytes().fold(String::with_capacity(text.len()), |mut out, byte| {
        match byte {
            b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' | b'-' | b'.' | b'_' | b'*' => {
                out.push(byte.into());
            }
            b' ' => out.push('+'),
            other => out += &format!("%{other:02X}"),
        }
        out
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_hold_any_text() {
        assert_eq!(encoded("a b&c=d/ü:~"), "a+b%26c%3Dd%2F%C3%BC%3A%7E");
        let endpoint = Address::parse("https://id.example/token").unwrap();
        let oauth = OAuth::new(endpoint, "gate:1", "s p", Some("a b"), "https://s.example/mcp");
        assert_eq!(oauth.client, format!("Basic {}", STANDARD.encode("gate%3A1:s+p")));
        assert_eq!(
            oauth.form,
            "grant_type=client_credentials&resource=https%3A%2F%2Fs.example%2Fmcp&scope=a+b"
        );
    }
}
