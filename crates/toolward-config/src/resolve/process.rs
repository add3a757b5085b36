//! Programs that the gateway starts for servers and hooks: path and environment variables.

use crate::config::Secret;
use crate::diagnostics::diagnostic::Diagnostic;
use crate::diagnostics::sanitize::quoted;
use crate::io::Directories;
use crate::read::node::{Key, Node};
use crate::read::reader::Reader;

pub(super) fn variables(
    reader: &mut Reader<'_>,
    node: &Node<'_>,
    directories: &Directories<'_>,
) -> Vec<(String, Secret)> {
    let mut variables = Vec::new();
    for (key, value) in node.get("env").into_iter().flat_map(Node::entries) {
        if key.name.is_empty() || key.name.contains(['=', '\0']) {
            reader.error(
                key.span,
                format!("{} is not a valid variable name", quoted(&key.name)),
                "use letters, digits and `_`",
            );
        }
        warn_of_plain_secret(reader, key, value);
        variables.extend(
            Secret::read(reader, value, directories).map(|value| (key.name.to_string(), value)),
        );
    }
    variables
}

/// Warns about a value that looks like a secret in plain text.
pub(super) fn warn_of_plain_secret(reader: &mut Reader<'_>, key: &Key<'_>, value: &Node<'_>) {
    let name = key.name.to_ascii_lowercase();
    let secret =
        ["authorization", "token", "secret", "password", "api_key", "api-key", "apikey", "cookie"];
    let plain = value.as_str().is_some_and(|value| !value.is_empty() && !value.contains("${"));
    if plain && secret.iter().any(|word| name.contains(word)) {
        let diagnostic =
            Diagnostic::warning(format!("{} looks like a secret in plain text", quoted(&key.name)))
                .help("write a reference such as `${NAME}` or `${file:PATH}`")
                .hide_marked();
        reader.report(value.span, diagnostic);
    }
}
