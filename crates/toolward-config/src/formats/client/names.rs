//! Server names in clients' files.
//!
//! Clients accept any text as a server name, such as `io.github.acme/files` or `My files`. Here the
//! name becomes part of tool names and paths, so an invalid one is replaced by a derived name.

use std::borrow::Cow;
use std::collections::HashSet;

use crate::diagnostics::sanitize::quoted;
use crate::read::node::{Key, Map};
use crate::read::reader::Reader;

/// The names of the servers of one file.
pub(super) struct ServerNames(HashSet<String>);

impl ServerNames {
    pub(super) fn of(servers: &Map<'_>) -> ServerNames {
        ServerNames(servers.iter().map(|(key, _)| key.name.to_string()).collect())
    }

    /// The key itself, or a derived name, with a warning.
    pub(super) fn legal<'t>(&mut self, reader: &mut Reader<'_>, key: Key<'t>) -> Key<'t> {
        let derived = derived(&key.name);
        if derived == key.name {
            return key;
        }
        let numbered = (2..).map(|number| format!("{derived}-{number}"));
        let mut candidates = std::iter::once(derived.clone()).chain(numbered);
        let name = candidates.find(|name| !self.0.contains(name)).unwrap_or(derived);
        self.0.insert(name.clone());
        let message = format!("the server {} is named {} here", quoted(&key.name), quoted(&name));
        let help = "use this name in rules; to choose another, rename the server in the file";
        reader.warning(key.span, message, help);
        Key { name: Cow::Owned(name), ..key }
    }
}

/// A name without spaces, slashes, control characters and `__`, which separates server and tool.
fn derived(name: &str) -> String {
    let is_separator = |c: char| c == '/' || c.is_whitespace() || c.is_control();
    let words = name.split(is_separator).filter(|word| !word.is_empty());
    let mut derived = words.collect::<Vec<_>>().join("-");
    while derived.contains("__") {
        derived = derived.replace("__", "_");
    }
    let derived = derived.trim_end_matches('_');
    // For an empty name, the error about it is the better message.
    if derived.is_empty() { name.to_owned() } else { derived.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::derived;

    #[test]
    fn names_become_legal_and_stay_recognizable() {
        for (name, expected) in [
            ("files", "files"),
            ("io.github.acme/files", "io.github.acme-files"),
            ("My files", "My-files"),
            (" a / b ", "a-b"),
            ("a__b", "a_b"),
            ("tail__", "tail"),
            ("@scope/x\ty", "@scope-x-y"),
            ("/", "/"),
            ("", ""),
        ] {
            assert_eq!(derived(name), expected);
        }
    }
}
