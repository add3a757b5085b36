//! Resolves `identity.jwt`: the issuers of JWTs.

use std::collections::HashMap;
use std::time::Duration;

use crate::config::{Jwks, Jwt, Secret};
use crate::diagnostics::diagnostic::Diagnostic;
use crate::diagnostics::sanitize::quoted;
use crate::diagnostics::text::Span;
use crate::io::Directories;
use crate::keys::value_syntax;
use crate::read::node::{Node, Value};
use crate::read::reader::Reader;
use crate::resolve::values::{duration, list, one_or_many};

/// The default algorithms.
const ALGORITHMS: [&str; 4] = ["RS256", "PS256", "ES256", "EdDSA"];

/// The issuers of a file.
pub(crate) fn issuers(
    reader: &mut Reader<'_>,
    root: &Node<'_>,
    directories: &Directories<'_>,
) -> Vec<Jwt> {
    let Some(node) = root.get("identity").and_then(|node| node.get("jwt")) else {
        return Vec::new();
    };
    if matches!(&node.value, Value::Seq(items) if items.is_empty()) {
        reader.error(node.span, "`jwt` is empty", "list the issuers, or remove the key");
        return Vec::new();
    }
    let mut known: HashMap<&str, Span> = HashMap::new();
    for issuer in one_or_many(node).filter_map(|one| one.get("issuer")) {
        let Some(name) = issuer.as_str() else { continue };
        if let Some(first) = known.insert(name, issuer.span) {
            let first = reader.mark(first);
            let diagnostic =
                Diagnostic::error(format!("the issuer {} is listed twice", quoted(name)))
                    .related(first, "first listed here")
                    .help("list each issuer once");
            reader.report(issuer.span, diagnostic);
        }
    }
    one_or_many(node).filter_map(|one| issuer(reader, one, directories)).collect()
}

fn issuer(reader: &mut Reader<'_>, node: &Node<'_>, directories: &Directories<'_>) -> Option<Jwt> {
    let name = node.get("issuer")?;
    let keys = node.get("jwks");
    match keys.and_then(Node::as_str) {
        Some(written) if written.contains("://") && !written.contains("${") => {
            let span = keys.map_or(node.span, |keys| keys.span);
            if let Err(error) = value_syntax::url(written) {
                reader.error(span, error.message, "write a URL, or the path of a file");
            } else if value_syntax::in_the_clear(written) {
                reader.error(
                    span,
                    "keys fetched over `http` could come from anyone",
                    "use `https`",
                );
            }
        }
        None if name.as_str().is_some_and(value_syntax::in_the_clear) => {
            let help = "use `https`, or `jwks` with a file";
            reader.error(name.span, "keys fetched over `http` could come from anyone", help);
        }
        _ => {}
    }
    let algorithms = list(node, "algorithms");
    if let Some(node) = node.get("algorithms")
        && node.as_map().is_none()
        && node.items().is_empty()
    {
        reader.error(node.span, "`algorithms` is empty", "leave the key out for the default");
    }
    Some(Jwt {
        issuer: Secret::read(reader, name, directories)?,
        jwks: match (keys, keys.and_then(Node::as_str)) {
            (Some(keys), Some(written)) if written.contains("://") || written.contains("${") => {
                Jwks::Url(Secret::read(reader, keys, directories)?)
            }
            (_, Some(written)) => Jwks::File(directories.path(written)),
            (Some(_), None) => return None,
            (None, None) => Jwks::Discovered,
        },
        audience: node
            .get("audience")
            .into_iter()
            .flat_map(one_or_many)
            .filter_map(Node::as_str)
            .map(str::to_owned)
            .collect(),
        algorithms: match algorithms.is_empty() {
            true => ALGORITHMS.iter().map(|name| (*name).to_owned()).collect(),
            false => algorithms,
        },
        leeway: duration(node, "leeway", Duration::from_secs(60)),
        agent_claim: node.get("agent_claim").and_then(Node::as_str).map(str::to_owned),
    })
}
