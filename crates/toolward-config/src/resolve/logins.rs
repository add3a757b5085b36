//! Resolves `login` of a server: how a person logs in to it (OAuth).

use crate::config::{Login, LoginFlow, LoginOf, LoginResource, Secret};
use crate::diagnostics::diagnostic::Diagnostic;
use crate::diagnostics::text::Span;
use crate::io::Directories;
use crate::keys::value_syntax::in_the_clear;
use crate::read::node::{Map, Node};
use crate::read::reader::Reader;

/// Reads `login`.
pub(super) fn read(
    reader: &mut Reader<'_>,
    node: &Node<'_>,
    directories: &Directories<'_>,
) -> Login {
    if let Some(value) = node.get("client_secret") {
        if value.as_str().is_some_and(|value| !value.contains("${")) {
            let diagnostic = Diagnostic::error("`client_secret` is in the file in plain text")
                .help("write a reference such as `${NAME}` or `${file:PATH}`")
                .hide_marked();
            reader.report(value.span, diagnostic);
        }
        if node.get("client_id").is_none() {
            let help = "give the id of the client, too";
            reader.error(value.span, "`client_secret` without `client_id`", help);
        }
    }
    for key in ["issuer", "client_metadata_url", "redirect"] {
        if let Some(url) = node.get(key).filter(|url| url.as_str().is_some_and(in_the_clear)) {
            let message = format!("`{key}` is neither `https` nor on this machine");
            reader.error(url.span, message, "use `https`");
        }
    }
    let text = |key: &str| node.get(key).and_then(Node::as_str).map(str::to_owned);
    let secret = |key: &str| Secret::read(reader, node.get(key)?, directories);
    Login {
        client_id: secret("client_id"),
        client_secret: secret("client_secret"),
        scope: text("scope"),
        flow: match node.get("flow").and_then(Node::as_str) {
            Some("device") => LoginFlow::Device,
            Some("paste") => LoginFlow::Paste,
            _ => LoginFlow::Browser,
        },
        of: match node.get("of").and_then(Node::as_str) {
            Some("agent") => LoginOf::Agent,
            _ => LoginOf::Gateway,
        },
        resource: match node.get("resource") {
            Some(node) if node.as_bool() == Some(false) => LoginResource::Omitted,
            Some(node) => node
                .as_str()
                .map_or(LoginResource::Discovered, |url| LoginResource::Url(url.to_owned())),
            None => LoginResource::Discovered,
        },
        redirect: text("redirect"),
        client_metadata_url: text("client_metadata_url"),
        issuer: text("issuer"),
    }
}

/// Reports other credentials beside a login, and addresses to which its token must not be sent.
pub(super) fn check(
    reader: &mut Reader<'_>,
    (server, at): (&Map<'_>, Span),
    url: &Node<'_>,
    headers: &[(String, Secret)],
) {
    let is_header = headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("authorization"));
    for (other, is_set) in [("headers", is_header), ("oauth", server.entry("oauth").is_some())] {
        if is_set {
            let message = format!("both `login` and `{other}` set `Authorization`");
            let help = "keep one of them; `headers_for` may set another one for an agent";
            reader.error(at, message, help);
        }
    }
    if url.as_str().is_some_and(in_the_clear) {
        reader.error(url.span, "the token would be sent over `http` in plain text", "use `https`");
    }
}
