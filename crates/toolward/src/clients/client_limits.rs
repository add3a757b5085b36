//! Tools that a client would drop or rename, by its limits on the number of tools and the length of names.

use crate::clients::table::{Client, Limits};

/// A limit that the tools of a client's servers exceed.
#[derive(Debug)]
pub(crate) struct Exceeded {
    pub(crate) client: &'static Client,
    pub(crate) what: String,
    pub(crate) help: &'static str,
}

/// The names that are shown of those that are too long.
const MAX_SHOWN: usize = 3;

/// The limits that a client's tools exceed. `servers`: the names of the client's entries, with their tools.
pub(crate) fn exceeded(client: &'static Client, servers: &[(&str, Vec<&str>)]) -> Vec<Exceeded> {
    let Limits { tools, name } = client.limits;
    let mut found = Vec::new();
    let count: usize = servers.iter().map(|(_, tools)| tools.len()).sum();
    if let Some(max) = tools.filter(|max| count > *max) {
        found.push(Exceeded {
            client,
            what: format!("its servers offer {count} tools, and it uses about {max}"),
            help: "hide tools that the agent does not need, with `expose` or the policy",
        });
    }
    if let Some((form, max)) = name {
        let (own, of_server) = (form.len(), form.contains("SERVER"));
        let long = |server: &str, tool: &str| {
            let name = own + tool.chars().count() - "TOOL".len();
            let name = match of_server {
                true => (name + server.chars().count()).saturating_sub("SERVER".len()),
                false => name,
            };
            (name > max).then(|| format!("{server}/{tool}"))
        };
        let names =
            servers.iter().flat_map(|(server, tools)| tools.iter().map(|tool| (*server, *tool)));
        let names: Vec<String> = names.filter_map(|(server, tool)| long(server, tool)).collect();
        if !names.is_empty() {
            let shown = names.iter().take(MAX_SHOWN).cloned().collect::<Vec<_>>().join(", ");
            let more = match names.len().saturating_sub(MAX_SHOWN) {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            found.push(Exceeded {
                client,
                what: format!(
                    "names of tools are too long for it (more than {max} characters as `{form}`): {shown}{more}"
                ),
                help: "shorten the server's name in the client's file, or rename the tool with `expose`",
            });
        }
    }
    found
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::clients::table::client;

    #[test]
    fn counts_and_names_are_compared_with_the_clients_limits() {
        let many: Vec<String> = (0..41).map(|number| format!("t{number}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let of = |id: &str, servers: &[(&str, Vec<&str>)]| {
            let found = exceeded(client(id).unwrap(), servers);
            found.into_iter().map(|one| one.what).collect::<Vec<_>>()
        };
        let cursor = of("cursor", &[("a", many.clone())]);
        assert_eq!(cursor, ["its servers offer 41 tools, and it uses about 40"]);
        assert_eq!(of("cursor", &[("a", many[..40].to_vec())]), [""; 0]);
        assert_eq!(of("vscode", &[("a", many)]), [""; 0]);
        // `mcp__` and `__` count for Claude Code.
        let tool = "x".repeat(57);
        let fits = "x".repeat(56);
        assert_eq!(of("claude-code", &[("s", vec![&fits])]), [""; 0]);
        let long = of("claude-code", &[("s", vec![&tool, &fits])]);
        assert!(long.len() == 1 && long[0].ends_with(&format!("s/{tool}")), "{long:?}");
        assert_eq!(of("cline", &[("s", vec![&tool])]), [""; 0]);
    }
}
