//! `schemes` and `roots` of a server: the resources that it owns, and the directories that it may use.

use std::collections::HashMap;

use crate::config::{Root, Scheme, Server};
use crate::diagnostics::diagnostic::Diagnostic;
use crate::diagnostics::sanitize::quoted;
use crate::io::Directories;
use crate::read::node::Node;
use crate::read::reader::Reader;

/// The `schemes` of a server, in lower case.
pub(crate) fn schemes(reader: &mut Reader<'_>, list: &Node<'_>) -> Vec<Scheme> {
    let mut schemes = Vec::new();
    for node in list.items() {
        let Some(written) = node.as_str() else { continue };
        match scheme(written) {
            Some(text) => schemes.push(Scheme { text, mark: reader.mark(node.span) }),
            None => {
                let message = format!("{} is not a URI scheme", quoted(written));
                let help = "write a scheme such as `jira`, or a scheme and host such as `https://docs.example`";
                reader.error(node.span, message, help);
            }
        }
    }
    schemes
}

/// `jira`, or `https://docs.example`. A colon or a slash at the end, as in a URI, is left out.
fn scheme(written: &str) -> Option<String> {
    let written = written.to_ascii_lowercase();
    let (scheme, host) = match written.split_once("://") {
        Some((scheme, host)) => (scheme, host.strip_suffix('/').unwrap_or(host)),
        None => (written.strip_suffix(':').unwrap_or(&written), ""),
    };
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.');
    let is_scheme = scheme.starts_with(|c: char| c.is_ascii_alphabetic());
    let is_host =
        |c: char| c.is_ascii_graphic() && !matches!(c, '/' | '?' | '#' | '\\' | '{' | '*');
    if !is_scheme || !scheme.chars().all(is_plain) || !host.chars().all(is_host) {
        return None;
    }
    Some(if host.is_empty() { scheme.to_owned() } else { format!("{scheme}://{host}") })
}

/// Reports schemes that two servers claim: the owner of a resource would be ambiguous.
pub(crate) fn check_owners(servers: &[Server]) -> Vec<Diagnostic> {
    let mut owners: HashMap<&str, (&Server, &Scheme)> = HashMap::new();
    let mut found = Vec::new();
    for server in servers {
        for scheme in &server.schemes {
            let Some((owner, first)) = owners.insert(&scheme.text, (server, scheme)) else {
                continue;
            };
            let shown = quoted(&scheme.text);
            let message = match owner.name == server.name {
                true => format!("the scheme {shown} is listed twice"),
                false => format!("the scheme {shown} already belongs to {}", quoted(&owner.name)),
            };
            found.push(
                Diagnostic::error(message)
                    .at_mark(scheme.mark.clone())
                    .related(first.mark.clone(), "first listed here")
                    .help("a resource has one owner: list each scheme, or scheme and host, once"),
            );
        }
    }
    found
}

/// The `roots` of a server.
pub(crate) fn roots(
    reader: &mut Reader<'_>,
    list: &Node<'_>,
    directories: &Directories<'_>,
) -> Vec<Root> {
    let mut roots = Vec::new();
    for node in list.items() {
        let Some(written) = node.as_str() else { continue };
        match written.split_once("://") {
            None => roots.push(Root::Path(directories.path(written))),
            Some(("file", path)) if path.starts_with('/') => {
                roots.push(Root::Uri(written.to_owned()));
            }
            Some(_) => {
                let message = format!("{} is not a root", quoted(written));
                reader.error(
                    node.span,
                    message,
                    "a root is a path, or a URI such as `file:///srv/project`",
                );
            }
        }
    }
    roots
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemes_have_one_spelling() {
        for (written, expected) in [
            ("jira", Some("jira")),
            ("Jira:", Some("jira")),
            ("jira://", Some("jira")),
            ("HTTPS://Docs.Example:8443/", Some("https://docs.example:8443")),
            ("git+ssh", Some("git+ssh")),
            ("", None),
            ("1x", None),
            ("jira:ABC", None),
            ("https://docs.example/path", None),
            ("https://*.example", None),
            ("a b", None),
        ] {
            assert_eq!(scheme(written).as_deref(), expected, "{written}");
        }
    }
}
