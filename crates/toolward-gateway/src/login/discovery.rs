//! Discovery: from a server's URL to its authorization server, in the order of the MCP specification.
//!
//! 1. An unauthenticated request. A 401 challenge may name the resource metadata (RFC 9728) and scopes.
//! 2. Otherwise the resource metadata is at its well-known address, with the server's path and then without.
//! 3. The metadata of the authorization server, in all forms of RFC 8414 and OpenID Connect Discovery.
//!
//! The resource metadata must be about this server, and the metadata of an authorization server must have the issuer
//! that it was requested for: otherwise a server could present the login of another one as its own.

use serde_json::Value;

use super::LoginSettings;
use super::challenge::Challenge;
use super::error::LoginError;
use super::network::{MAX_BYTES, Network, secure, shown};
use crate::http_client::Address;
use crate::http_client::fetch::Request;

const STEP: &str = "discovery";
const RESOURCE: &str = "/.well-known/oauth-protected-resource";
/// The request that a server challenges. It has no effect: a session that it opens is not used.
const PROBE: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"toolward","version":"0"}}}"#;

/// The result of discovery.
#[derive(Debug, Clone)]
pub(crate) struct Discovered {
    pub(crate) network: Network,
    /// The resource that tokens are requested for (RFC 8707).
    pub(crate) resource: String,
    /// Scopes that the server asks for.
    pub(crate) scope: Option<String>,
    pub(crate) server: ServerMetadata,
}

/// The metadata of an authorization server.
#[derive(Debug, Clone)]
pub(crate) struct ServerMetadata {
    pub(crate) issuer: String,
    pub(crate) authorization_endpoint: Option<String>,
    pub(crate) token_endpoint: String,
    pub(crate) registration_endpoint: Option<String>,
    pub(crate) device_endpoint: Option<String>,
    /// Where tokens are revoked (RFC 7009).
    pub(crate) revocation_endpoint: Option<String>,
    /// The keys of its JWTs.
    pub(crate) jwks_uri: Option<String>,
    pub(crate) supports_pkce: bool,
    pub(crate) supports_client_documents: bool,
    /// It sends `iss` with every authorization response (RFC 9207).
    pub(crate) sends_issuer: bool,
    pub(crate) auth_methods: Vec<String>,
    /// It issues refresh tokens for the scope `offline_access`.
    pub(crate) has_offline_access: bool,
}

/// Discovers the authorization server of a server.
pub(crate) async fn discover(settings: &LoginSettings) -> Result<Discovered, LoginError> {
    let failed = |why: String| LoginError::new(STEP, why);
    secure(&settings.url).map_err(failed)?;
    let tls = settings.tls.as_ref();
    let network = Network::unlimited(&settings.address, tls);
    discover_on(settings, &network.limited_to(&settings.address).await.map_err(failed)?).await
}

/// The same, with a given network.
pub(super) async fn discover_on(
    settings: &LoginSettings,
    network: &Network,
) -> Result<Discovered, LoginError> {
    let failed = |why: String| LoginError::new(STEP, why);
    let (status, challenge) = challenge(settings, network).await.map_err(failed)?;
    let resource = resource_metadata(settings, network, &challenge).await.map_err(failed)?;
    let named = resource.as_ref().map(|document| texts(document, "authorization_servers"));
    let named = named.unwrap_or_default();
    let issuer = match &settings.issuer {
        Some(issuer) if named.is_empty() || named.iter().any(|one| same_issuer(one, issuer)) => {
            issuer.clone()
        }
        Some(issuer) => {
            let why = format!(
                "the server does not name `{}` as its authorization server, but `{}`",
                shown(issuer),
                named.iter().map(|one| shown(one)).collect::<Vec<_>>().join("`, `")
            );
            return Err(failed(why).help("correct `login.issuer`, or remove it"));
        }
        // Servers of 2025-03-26 have no resource metadata: they are their own authorization server.
        None => named.into_iter().next().unwrap_or_else(|| origin(&settings.address)),
    };
    let is_found = resource.is_some() || settings.issuer.is_some();
    let server = server_metadata(network, &issuer).await.map_err(|error| match status {
        200..300 if !is_found => {
            let why = "the server does not ask for a login";
            LoginError::new(STEP, why).help("remove `login` from the server")
        }
        _ => error,
    })?;
    let text = |name: &str| Some(resource.as_ref()?.get(name)?.as_str()?.to_owned());
    let scopes = resource.as_ref().map(|document| texts(document, "scopes_supported").join(" "));
    Ok(Discovered {
        network: network.clone(),
        resource: text("resource").unwrap_or_else(|| settings.url.clone()),
        scope: challenge.scope.or(scopes.filter(|scopes| !scopes.is_empty())),
        server,
    })
}

/// The status of the response to a request without credentials, and its challenge. A server may not challenge this request, but others.
async fn challenge(
    settings: &LoginSettings,
    network: &Network,
) -> Result<(u16, Challenge), String> {
    let fields = [("MCP-Protocol-Version", "2025-11-25")];
    let body = Some(("application/json", PROBE));
    let request = Request { method: "POST", fields: &fields, body, limit: MAX_BYTES };
    let response = network.send(&settings.address_with_target(), request).await;
    let response = match response {
        Ok(response) => response,
        Err(why) => return Err(format!("the server cannot be reached: {why}")),
    };
    let values = response.headers.values("www-authenticate");
    let challenges = values.filter_map(|value| std::str::from_utf8(value).ok());
    let challenge = challenges.filter_map(Challenge::parse).next().unwrap_or_default();
    Ok((response.status, challenge))
}

/// The resource metadata of the server, if it has some.
async fn resource_metadata(
    settings: &LoginSettings,
    network: &Network,
    challenge: &Challenge,
) -> Result<Option<Value>, String> {
    let candidates = match &challenge.resource_metadata {
        Some(url) => vec![url.clone()],
        None => {
            let (origin, path) = (origin(&settings.address), path(&settings.address));
            let mut all = vec![format!("{origin}{RESOURCE}{path}"), format!("{origin}{RESOURCE}")];
            all.dedup();
            all
        }
    };
    for url in &candidates {
        let Some(document) = network.document(url).await? else { continue };
        let resource = document.get("resource").and_then(Value::as_str);
        let resource =
            resource.ok_or_else(|| format!("{}: the metadata has no `resource`", shown(url)))?;
        if !covers(resource, &settings.address) {
            return Err(format!(
                "{}: the metadata is about `{}`, not about this server",
                shown(url),
                shown(resource)
            ));
        }
        return Ok(Some(document));
    }
    match &challenge.resource_metadata {
        Some(url) => Err(format!("{}: there is no metadata", shown(url))),
        None => Ok(None),
    }
}

/// Whether a resource is the server: the same origin, and its path or a parent of it.
fn covers(resource: &str, server: &Address) -> bool {
    let Ok(resource_address) = Address::parse(resource) else { return false };
    let (resource, own) = (path(&resource_address), path(server));
    let is_parent = own.strip_prefix(&resource).is_some_and(|rest| rest.starts_with('/'));
    origin(&resource_address) == origin(server) && (own == resource || is_parent)
}

/// The metadata of an authorization server, which must have the issuer that it is requested for.
pub(crate) async fn server_metadata(
    network: &Network,
    issuer: &str,
) -> Result<ServerMetadata, LoginError> {
    let failed = |why: String| LoginError::new(STEP, why);
    let address = secure(issuer).map_err(failed)?;
    if issuer.contains(['?', '#']) {
        return Err(failed(format!("the issuer `{}` has a query", shown(issuer))));
    }
    let (origin, path) = (origin(&address), path(&address));
    let mut candidates = vec![
        format!("{origin}/.well-known/oauth-authorization-server{path}"),
        format!("{origin}/.well-known/openid-configuration{path}"),
        format!("{origin}{path}/.well-known/openid-configuration"),
        // Not in the specification, but some servers have it only there. The issuer must match nevertheless.
        format!("{origin}/.well-known/oauth-authorization-server"),
    ];
    candidates.dedup();
    for url in &candidates {
        let Some(document) = network.document(url).await.map_err(failed)? else { continue };
        let stated = document.get("issuer").and_then(Value::as_str).unwrap_or_default();
        if !same_issuer(stated, issuer) {
            return Err(failed(format!(
                "{}: the metadata has the issuer `{}` instead of `{}`",
                shown(url),
                shown(stated),
                shown(issuer)
            )));
        }
        return ServerMetadata::read(&document, stated).map_err(failed);
    }
    let why = format!("the authorization server `{}` has no metadata", shown(issuer));
    let help = "if the server needs no OAuth login, use `headers`; else set `login.issuer`";
    Err(failed(why).help(help))
}

impl ServerMetadata {
    fn read(document: &Value, issuer: &str) -> Result<ServerMetadata, String> {
        let endpoint = |name: &str| -> Result<Option<String>, String> {
            let Some(url) = document.get(name).and_then(Value::as_str) else { return Ok(None) };
            secure(url).map_err(|why| format!("`{name}`: {why}"))?;
            Ok(Some(url.to_owned()))
        };
        let flag = |name: &str| document.get(name).and_then(Value::as_bool) == Some(true);
        let methods = texts(document, "code_challenge_methods_supported");
        Ok(ServerMetadata {
            issuer: issuer.to_owned(),
            authorization_endpoint: endpoint("authorization_endpoint")?,
            token_endpoint: endpoint("token_endpoint")?
                .ok_or("the metadata of the authorization server has no `token_endpoint`")?,
            registration_endpoint: endpoint("registration_endpoint")?,
            jwks_uri: endpoint("jwks_uri")?,
            device_endpoint: endpoint("device_authorization_endpoint")?,
            // A login does not depend on it.
            revocation_endpoint: endpoint("revocation_endpoint").unwrap_or_default(),
            supports_pkce: methods.iter().any(|method| method == "S256"),
            supports_client_documents: flag("client_id_metadata_document_supported"),
            sends_issuer: flag("authorization_response_iss_parameter_supported"),
            auth_methods: texts(document, "token_endpoint_auth_methods_supported"),
            has_offline_access: texts(document, "scopes_supported")
                .iter()
                .any(|scope| scope == "offline_access"),
        })
    }
}

/// The strings of an array.
fn texts(document: &Value, name: &str) -> Vec<String> {
    let all = document.get(name).and_then(Value::as_array).into_iter().flatten();
    all.filter_map(|text| text.as_str().map(str::to_owned)).collect()
}

/// Issuers are compared as strings, except that an empty path may be written as `/`.
pub(crate) fn same_issuer(one: &str, other: &str) -> bool {
    let trimmed = |issuer: &'_ str| -> String {
        match issuer.matches('/').count() {
            3 => issuer.trim_end_matches('/').to_owned(),
            _ => issuer.to_owned(),
        }
    };
    !one.is_empty() && trimmed(one) == trimmed(other)
}

/// Scheme, host and port.
pub(crate) fn origin(address: &Address) -> String {
    let scheme = if address.tls { "https" } else { "http" };
    let host = match address.host.contains(':') {
        true => format!("[{}]", address.host),
        false => address.host.to_ascii_lowercase(),
    };
    match (address.tls, address.port) {
        (true, 443) | (false, 80) => format!("{scheme}://{host}"),
        (_, port) => format!("{scheme}://{host}:{port}"),
    }
}

/// The path without a trailing slash.
fn path(address: &Address) -> String {
    let path = address.target.split(['?', '#']).next().unwrap_or_default();
    path.trim_end_matches('/').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resource_is_the_server_or_a_parent_of_it() {
        let server = Address::parse("https://mcp.example/a/mcp").unwrap();
        for resource in [
            "https://mcp.example/a/mcp",
            "https://mcp.example/a/mcp/",
            "https://mcp.example/a",
            "https://mcp.example",
            "https://mcp.example/",
            "https://MCP.example:443/a",
        ] {
            assert!(covers(resource, &server), "{resource}");
        }
        for resource in [
            "https://other.example/a/mcp",
            "http://mcp.example/a/mcp",
            "https://mcp.example:8443/a/mcp",
            "https://mcp.example/a/m",
            "https://mcp.example/a/mcp/more",
            "https://mcp.example.evil/a/mcp",
            "mcp.example/a/mcp",
            "",
        ] {
            assert!(!covers(resource, &server), "{resource}");
        }
    }

    #[test]
    fn issuers_are_compared_as_strings() {
        assert!(same_issuer("https://id.example", "https://id.example/"));
        assert!(same_issuer("https://id.example/a", "https://id.example/a"));
        for other in ["https://id.example/a/", "https://ID.example/a", "https://id.example", ""] {
            assert!(!same_issuer("https://id.example/a", other), "{other}");
        }
        assert!(!same_issuer("", ""));
    }
}
