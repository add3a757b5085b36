//! Responses to clients without a valid token: the challenge, and the protected resource metadata that
//! names the issuer (RFC 9728). Both exist only if an issuer is configured.

use serde_json::json;

use super::response::{Content, Response};
use crate::active::reachable::Base;
use crate::authn::{Identities, Issuer, Unidentified};

pub(super) const WELL_KNOWN: &str = "/.well-known/oauth-protected-resource";

/// The endpoint path whose metadata is requested; `None` for other paths. Whether a server of that name
/// exists is not checked, so the response does not reveal it.
pub(super) fn asked<'p>(path: &'p str, base: Option<&Base>) -> Option<&'p str> {
    let about = path.strip_prefix(WELL_KNOWN)?;
    let prefix = base.map_or("", Base::prefix);
    let about = about.strip_prefix(prefix).unwrap_or(about);
    match about {
        "" | "/" => Some("/mcp"),
        "/mcp" => Some(about),
        one if one.starts_with("/mcp/") => Some(about),
        _ => None,
    }
}

/// The metadata document of an endpoint path.
pub(super) fn document(identities: &Identities, base: &Base, path: &str) -> Option<Response> {
    let issuers: Vec<&str> = identities.issuers.iter().map(Issuer::name).collect();
    if issuers.is_empty() {
        return None;
    }
    let mut document = json!({
        "resource": base.resource(path),
        "authorization_servers": issuers,
        "bearer_methods_supported": ["header"],
    });
    let (scopes, _) = identities.scopes();
    if !scopes.is_empty() {
        document["scopes_supported"] = scopes.into();
    }
    let body = bytes::Bytes::from(document.to_string());
    Some(Response::new(200, Content::Json(body.into())))
}

/// The response to an unauthenticated or insufficiently authorized caller. `base` is set if there is an
/// issuer.
pub(super) fn challenge(
    identities: &Identities,
    why: &Unidentified,
    base: Option<&Base>,
    path: &str,
) -> Response {
    let status = if matches!(why, Unidentified::Lacks(_)) { 403 } else { 401 };
    let challenge = challenge_value(identities, why, base, path);
    Response::empty(status).field("WWW-Authenticate", challenge)
}

/// The value of `WWW-Authenticate`.
pub(super) fn challenge_value(
    identities: &Identities,
    why: &Unidentified,
    base: Option<&Base>,
    path: &str,
) -> String {
    let mut parameters: Vec<(&str, String)> = Vec::new();
    let error = match why {
        Unidentified::Missing => None,
        Unidentified::Nobody | Unidentified::Wrong(_) => Some("invalid_token"),
        Unidentified::Lacks(_) => Some("insufficient_scope"),
    };
    parameters.extend(error.map(|error| ("error", error.into())));
    if let Some(base) = base {
        if error.is_some() {
            parameters.push(("error_description", why.words().into()));
        }
        let scopes = match why {
            Unidentified::Lacks(scopes) => scopes.clone(),
            _ => identities.scopes().1.join(" "),
        };
        if !scopes.is_empty() {
            parameters.push(("scope", scopes));
        }
        parameters.push(("resource_metadata", base.well_known(WELL_KNOWN, path)));
    }
    let parameters: Vec<String> = parameters
        .into_iter()
        .map(|(name, value)| format!("{name}=\"{}\"", value.replace(['"', '\\'], "")))
        .collect();
    match parameters.as_slice() {
        [] => "Bearer".into(),
        some => format!("Bearer {}", some.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_base_is_the_part_before_the_path() {
        for (url, resource, document) in [
            (
                "https://Gate.example/",
                "https://gate.example/mcp",
                "https://gate.example/.well-known/oauth-protected-resource/mcp",
            ),
            (
                "http://localhost:7410/mcp",
                "http://localhost:7410/mcp",
                "http://localhost:7410/.well-known/oauth-protected-resource/mcp",
            ),
            (
                "https://corp.example/Gate/",
                "https://corp.example/Gate/mcp",
                "https://corp.example/.well-known/oauth-protected-resource/Gate/mcp",
            ),
        ] {
            let base = Base::of_url(url);
            assert_eq!(
                (&*base.resource("/mcp"), &*base.well_known(WELL_KNOWN, "/mcp")),
                (resource, document)
            );
        }
    }

    #[test]
    fn documents_are_asked_for_about_the_endpoint_only() {
        let base = Base::of_url("https://corp.example/gate");
        let about = |path: &'static str| asked(path, Some(&base));
        let at = |rest: &str| format!("{WELL_KNOWN}{rest}");
        for (rest, path) in [
            ("", Some("/mcp")),
            ("/mcp", Some("/mcp")),
            ("/gate/mcp", Some("/mcp")),
            ("/gate/mcp/files", Some("/mcp/files")),
            ("/mcpx", None),
            ("x", None),
            ("/other", None),
        ] {
            let asked_path = at(rest).leak();
            assert_eq!(about(asked_path), path, "{rest}");
        }
        assert_eq!(about("/mcp"), None);
    }
}
