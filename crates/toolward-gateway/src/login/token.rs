//! Requests to a token endpoint.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::error::known_code;
use super::form::{encoded, form};
use super::grant::{AuthMethod, Client, MAX_LIFETIME, Tokens};
use super::network::{MAX_BYTES, Network, json, shown};
use super::secret::Secret;
use crate::clock;
use crate::http_client::fetch::Request;

/// The maximum length of a token.
const MAX_TOKEN: usize = 64 << 10;

/// Why a token endpoint issued no token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TokenError {
    /// It rejected the request, with a code of RFC 6749.
    Rejected(&'static str),
    /// It could not be reached, or did not answer properly. The same request may succeed later.
    Failed(String),
    /// It sent a refresh token that must be kept, and an access token that cannot be used.
    Partial(Secret, String),
}

impl std::fmt::Display for TokenError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            TokenError::Rejected(code) => write!(f, "the token endpoint returned `{code}`"),
            TokenError::Failed(why) | TokenError::Partial(_, why) => f.write_str(why),
        }
    }
}

/// The tokens of a response, and the scopes if they differ from the requested ones.
#[derive(Debug)]
pub(crate) struct Issued {
    pub(crate) tokens: Tokens,
    pub(crate) scope: Option<String>,
}

/// Requests a token.
pub(crate) async fn request(
    network: &Network,
    endpoint: &str,
    client: &Client,
    parameters: &[(&str, &str)],
) -> Result<Issued, TokenError> {
    let sent = post(network, endpoint, client, parameters).await.map_err(TokenError::Failed)?;
    let (status, body) = sent;
    let failed = |why: String| TokenError::Failed(format!("{}: {why}", shown(endpoint)));
    let body = match (status, json(&body, endpoint)) {
        (_, Ok(body)) => body,
        (200, Err(why)) => return Err(TokenError::Failed(why)),
        (status, Err(_)) => return Err(failed(format!("status {status}"))),
    };
    // GitHub sends errors with status 200.
    if let Some(code) = body.get("error").and_then(Value::as_str) {
        return Err(match (status, known_code(code)) {
            (500.., _) => failed(format!("status {status}")),
            (429, _) => failed("it limits the rate of requests (status 429)".into()),
            (_, code @ ("temporarily_unavailable" | "server_error")) => failed(code.into()),
            (_, code) => TokenError::Rejected(code),
        });
    }
    if status != 200 {
        return Err(failed(format!("status {status}")));
    }
    read(&body, endpoint)
}

/// Sends a form with the client's credentials.
pub(crate) async fn post(
    network: &Network,
    endpoint: &str,
    client: &Client,
    parameters: &[(&str, &str)],
) -> Result<(u16, bytes::Bytes), String> {
    let mut all = parameters.to_vec();
    let mut basic = None;
    match (&client.secret, client.method) {
        (Some(secret), AuthMethod::Basic) => {
            let pair = format!("{}:{}", encoded(&client.id), encoded(secret.expose()));
            basic = Some(format!("Basic {}", STANDARD.encode(pair)));
        }
        (Some(secret), AuthMethod::Post) => {
            all.extend([("client_id", client.id.as_str()), ("client_secret", secret.expose())]);
        }
        (_, AuthMethod::None) | (None, _) => all.push(("client_id", &client.id)),
    }
    let form = form(&all);
    let fields: Vec<(&str, &str)> =
        basic.as_deref().map(|basic| ("Authorization", basic)).into_iter().collect();
    let response = network.send(endpoint, Request::form(&form, &fields, MAX_BYTES)).await?;
    Ok((response.status, response.body))
}

fn read(body: &Value, endpoint: &str) -> Result<Issued, TokenError> {
    let refresh = match body.get("refresh_token").and_then(Value::as_str) {
        Some(token) if is_token(token) => Some(Secret::new(token)),
        _ => None,
    };
    let wrong = |why: &str| {
        let why = format!("{}: {why}", shown(endpoint));
        match &refresh {
            Some(refresh) => TokenError::Partial(refresh.clone(), why),
            None => TokenError::Failed(why),
        }
    };
    match body.get("token_type").and_then(Value::as_str) {
        Some(kind) if kind.eq_ignore_ascii_case("bearer") => {}
        Some(_) => return Err(wrong("the token is not a bearer token")),
        None => return Err(wrong("the response has no `token_type`")),
    }
    let access = body.get("access_token").and_then(Value::as_str).unwrap_or_default();
    if !is_token(access) {
        return Err(wrong("the response has no valid `access_token`"));
    }
    let lifetime = match body.get("expires_in") {
        None | Some(Value::Null) => None,
        // Some servers write the number as a string.
        Some(Value::String(text)) => Some(text.parse::<u64>().unwrap_or(0)),
        Some(number) => Some(number.as_u64().unwrap_or(0)),
    };
    if lifetime == Some(0) {
        return Err(wrong("`expires_in` is not a positive number of seconds"));
    }
    let issued = clock::seconds();
    let expires = lifetime.map(|lifetime| issued + lifetime.min(MAX_LIFETIME));
    let scope = body.get("scope").and_then(Value::as_str).filter(|scope| is_scope(scope));
    Ok(Issued {
        tokens: Tokens { access: Secret::new(access), refresh, issued, expires },
        scope: scope.map(str::to_owned),
    })
}

/// Whether a token can be sent in a header.
fn is_token(token: &str) -> bool {
    !token.is_empty()
        && token.len() <= MAX_TOKEN
        && token.bytes().all(|byte| byte.is_ascii_graphic())
}

fn is_scope(scope: &str) -> bool {
    scope.len() <= 4096 && scope.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_response_is_checked() {
        let good = json!({"access_token": "a", "token_type": "Bearer", "expires_in": 15});
        let with = |name: &str, value: Value| {
            let mut body = good.clone();
            body[name] = value;
            read(&body, "https://id.example/token")
        };
        let issued = with("expires_in", json!("3600")).unwrap();
        assert_eq!(issued.tokens.expires, Some(issued.tokens.issued + 3600));
        assert_eq!(with("expires_in", Value::Null).unwrap().tokens.expires, None);
        for (name, value) in [
            ("expires_in", json!(-5)),
            ("expires_in", json!(0)),
            ("expires_in", json!(1.5)),
            ("expires_in", json!("soon")),
            ("expires_in", json!([])),
            ("token_type", json!("mac")),
            ("token_type", Value::Null),
            ("access_token", json!("a\r\nX-Evil: 1")),
            ("access_token", json!("")),
            ("access_token", json!("ü")),
            ("access_token", json!("a".repeat(MAX_TOKEN + 1))),
        ] {
            let wrong = with(name, value.clone()).unwrap_err();
            assert!(matches!(wrong, TokenError::Failed(_)), "{name} {value}");
            assert!(wrong.to_string().contains("https://id.example/token"));
        }
        let huge = with("expires_in", json!(u64::MAX)).unwrap().tokens;
        assert_eq!(huge.expires, Some(huge.issued + MAX_LIFETIME));
    }

    #[test]
    fn a_new_refresh_token_is_kept_even_if_the_access_token_is_invalid() {
        let body = json!({"access_token": "a", "token_type": "mac", "refresh_token": "next"});
        let wrong = read(&body, "https://id.example/token").unwrap_err();
        assert!(matches!(&wrong, TokenError::Partial(refresh, _) if refresh.expose() == "next"));
        assert!(!format!("{wrong:?}{wrong}").contains("next"));
    }
}
