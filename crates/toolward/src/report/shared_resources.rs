//! Resources that two servers list. Clients get such a resource from the first server; the other entry is hidden.

use std::collections::HashMap;

use toolward_config::{Diagnostic, sanitize};
use toolward_policy::uri;

/// A resource or template that is hidden, because an earlier server lists it too.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Hidden {
    pub(crate) server: String,
    pub(crate) uri: String,
    pub(crate) owner: String,
}

/// Finds hidden entries in lists of one kind, by server in configuration order.
pub(crate) fn hidden(lists: &[(String, Vec<String>)]) -> Vec<Hidden> {
    let mut owners: HashMap<String, &str> = HashMap::new();
    let mut hidden = Vec::new();
    for (server, uris) in lists {
        for uri in uris {
            let key = uri::normalise(uri).unwrap_or_else(|_| uri.clone());
            let owner = *owners.entry(key).or_insert(server);
            if owner != server {
                let (server, uri, owner) = (server.clone(), uri.clone(), owner.to_string());
                hidden.push(Hidden { server, uri, owner });
            }
        }
    }
    hidden
}

/// A warning for each server with hidden entries.
pub(crate) fn findings(hidden: &[Hidden]) -> Vec<Diagnostic> {
    let mut findings: Vec<Diagnostic> = Vec::new();
    for (at, one) in hidden.iter().enumerate() {
        let same = |other: &&Hidden| other.server == one.server && other.owner == one.owner;
        if hidden.iter().take(at).any(|other| same(&other)) {
            continue;
        }
        let count = hidden.iter().filter(same).count();
        let (server, uri) = (sanitize(&one.server), sanitize(&one.uri));
        let owner = sanitize(&one.owner);
        let more = match count {
            1 => String::new(),
            count => format!(" and {} more", count - 1),
        };
        let message = format!(
            "`{uri}`{more} of `{server}` is hidden: `{owner}` lists it too, and comes first"
        );
        let help =
            "clients of `/mcp` read it from the first server; `/mcp/SERVER` has each server's own";
        findings.push(Diagnostic::warning(message).help(help));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_later_server_is_hidden_in_any_spelling() {
        let list = |server: &str, uris: &[&str]| {
            (server.to_string(), uris.iter().map(|uri| uri.to_string()).collect())
        };
        let lists = [
            list("a", &["note:1", "file:///x"]),
            list("b", &["NOTE:1", "note:2"]),
            list("c", &["file://localhost/x", "note:2", "note:1"]),
        ];
        let found = hidden(&lists);
        let said: Vec<String> =
            found.iter().map(|one| format!("{} {} {}", one.server, one.uri, one.owner)).collect();
        let expected = ["b NOTE:1 a", "c file://localhost/x a", "c note:2 b", "c note:1 a"];
        assert_eq!(said, expected);
        let findings = findings(&found);
        assert_eq!(findings.len(), 3);
        assert!(findings[1].message().contains("`file://localhost/x` and 1 more of `c`"));
    }
}
