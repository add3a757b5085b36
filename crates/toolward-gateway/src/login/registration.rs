//! Registration: how the gateway gets a client id at an authorization server.
//!
//! A configured client comes first, then a client id metadata document if one is configured and the authorization
//! server supports it, then dynamic registration (RFC 7591). [`EXCEPTIONS`] has authorization servers whose metadata is
//! not true.

use serde_json::{Value, json};

use super::LoginSettings;
use super::discovery::Discovered;
use super::error::{LoginError, known_code};
use super::grant::{AuthMethod, Client};
use super::network::{MAX_BYTES, json as parse, shown};
use super::registered;
use super::secret::Secret;
use super::settings::{DEVICE_GRANT, Flow};
use crate::http_client::fetch::Request;

const STEP: &str = "registration";

/// An authorization server that needs something other than its metadata states.
pub(crate) struct Exception {
    /// The beginning of its issuer.
    issuer: &'static str,
    /// It advertises client id metadata documents, but rejects the tokens of such clients.
    pub(crate) rejects_client_documents: bool,
    /// It rejects the parameter `resource`.
    pub(crate) rejects_resource: bool,
}

const EXCEPTIONS: [Exception; 3] = [
    Exception {
        issuer: "https://mcp.linear.app",
        rejects_client_documents: true,
        rejects_resource: false,
    },
    Exception {
        issuer: "https://login.microsoftonline.com/",
        rejects_client_documents: false,
        rejects_resource: true,
    },
    Exception {
        issuer: "https://sts.windows.net/",
        rejects_client_documents: false,
        rejects_resource: true,
    },
];

/// The exception for an issuer, if there is one.
pub(crate) fn exception(issuer: &str) -> Option<&'static Exception> {
    EXCEPTIONS.iter().find(|one| {
        let rest = issuer.strip_prefix(one.issuer);
        rest.is_some_and(|rest| {
            one.issuer.ends_with('/') || rest.is_empty() || rest.starts_with('/')
        })
    })
}

/// The client for a login, and whether it was registered dynamically. An earlier registration is used again while the
/// authorization server knows it.
pub(crate) async fn client(
    settings: &LoginSettings,
    discovered: &Discovered,
) -> Result<(Client, bool), LoginError> {
    let server = &discovered.server;
    if let Some((id, secret)) = &settings.client {
        let method = match secret {
            None => AuthMethod::None,
            Some(_) => AuthMethod::preferred(&server.auth_methods),
        };
        return Ok((Client { id: id.clone(), secret: secret.clone(), method }, false));
    }
    let rejects_documents =
        exception(&server.issuer).is_some_and(|exception| exception.rejects_client_documents);
    if let Some(url) = &settings.client_metadata_url
        && server.supports_client_documents
        && !rejects_documents
    {
        let client = Client { id: url.clone(), secret: None, method: AuthMethod::None };
        return Ok((client, false));
    }
    let Some(endpoint) = &server.registration_endpoint else {
        return Err(unregistered(settings, "the authorization server registers no clients"));
    };
    let client = match registered::take(settings, discovered).await {
        Some(client) => client,
        None => register(settings, discovered, endpoint).await?,
    };
    Ok((client, true))
}

async fn register(
    settings: &LoginSettings,
    discovered: &Discovered,
    endpoint: &str,
) -> Result<Client, LoginError> {
    let mut grants = vec!["authorization_code", "refresh_token"];
    if settings.flow == Flow::Device {
        grants.push(DEVICE_GRANT);
    }
    let mut request = json!({
        "client_name": "Toolward",
        "application_type": "native",
        "redirect_uris": [settings.redirect],
        "grant_types": grants,
        "response_types": ["code"],
        "token_endpoint_auth_method": "none",
    });
    if let Some(scope) = settings.scope.as_ref().or(discovered.scope.as_ref()) {
        request["scope"] = scope.as_str().into();
    }
    let request = request.to_string();
    let body = Some(("application/json", request.as_str()));
    let request = Request { method: "POST", fields: &[], body, limit: MAX_BYTES };
    let failed = |why: String| LoginError::new(STEP, why);
    let response = discovered.network.send(endpoint, request).await.map_err(failed)?;
    if !matches!(response.status, 200 | 201) {
        let code = parse(&response.body, endpoint).ok();
        let code = code.as_ref().and_then(|body| body.get("error")).and_then(Value::as_str);
        let code = code.map(|code| format!(" ({})", known_code(code))).unwrap_or_default();
        let why = format!("{}: status {}{code}", shown(endpoint), response.status);
        return Err(unregistered(settings, &why));
    }
    let body = parse(&response.body, endpoint).map_err(failed)?;
    let text = |name: &str| body.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
    let id = text("client_id").filter(|id| id.bytes().all(|byte| (32..127).contains(&byte)));
    let id = id.ok_or_else(|| failed(format!("{}: there is no `client_id`", shown(endpoint))))?;
    let secret = text("client_secret").map(Secret::new);
    let method = match (&secret, text("token_endpoint_auth_method")) {
        (None, _) | (_, Some("none")) => AuthMethod::None,
        (Some(_), Some("client_secret_post")) => AuthMethod::Post,
        (Some(_), Some("client_secret_basic")) => AuthMethod::Basic,
        (Some(_), _) => AuthMethod::preferred(&discovered.server.auth_methods),
    };
    let secret = secret.filter(|_| method != AuthMethod::None);
    Ok(Client { id: id.into(), secret, method })
}

/// The gateway has no client id; the operator has to configure one.
fn unregistered(settings: &LoginSettings, why: &str) -> LoginError {
    let help = format!(
        "register an OAuth client at the provider with the redirect address {}, and set \
         `login: {{ client_id: …, client_secret: \"${{NAME}}\" }}` for the server",
        settings.redirect
    );
    LoginError::new(STEP, why).help(help)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exceptions_belong_to_their_issuer() {
        assert!(exception("https://mcp.linear.app").unwrap().rejects_client_documents);
        assert!(exception("https://mcp.linear.app/").is_some());
        let entra = "https://login.microsoftonline.com/common/v2.0";
        assert!(exception(entra).unwrap().rejects_resource);
        assert!(exception("https://mcp.linear.app.evil.example").is_none());
        assert!(exception("https://id.example").is_none());
    }
}
