//! Configured roots: the gateway's answer to `roots/list`.
//!
//! They take precedence over the client's, and are the only roots outside of calls and for clients that cannot be
//! asked.

use std::path::Path;

use bytes::Bytes;
use serde_json::json;

/// The result of `roots/list`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Roots(Bytes);

impl Roots {
    /// Roots from `file://` URIs, each named after its last segment.
    pub fn new(uris: impl IntoIterator<Item = String>) -> Roots {
        let root = |uri: String| match uri.trim_end_matches('/').rsplit_once('/') {
            Some((_, name)) if !name.is_empty() => json!({"uri": uri, "name": name}),
            _ => json!({"uri": uri}),
        };
        let roots: Vec<_> = uris.into_iter().map(root).collect();
        Roots(json!({ "roots": roots }).to_string().into())
    }

    pub(crate) fn result(&self) -> &Bytes {
        &self.0
    }
}

/// The URI of an absolute path.
pub fn file_uri(path: &Path) -> String {
    let mut uri = String::from("file://");
    for byte in path.as_os_str().as_encoded_bytes() {
        match byte {
            b'/' | b'-' | b'.' | b'_' | b'~' => uri.push(char::from(*byte)),
            byte if byte.is_ascii_alphanumeric() => uri.push(char::from(*byte)),
            byte => uri.push_str(&format!("%{byte:02X}")),
        }
    }
    uri
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_escaped() {
        assert_eq!(file_uri(Path::new("/srv/a b/é#1")), "file:///srv/a%20b/%C3%A9%231");
    }

    #[test]
    fn roots_are_named_after_their_directories() {
        let roots = Roots::new(["file:///srv/project/".to_owned(), "file:///".to_owned()]);
        let expected = json!({"roots": [
            {"uri": "file:///srv/project/", "name": "project"},
            {"uri": "file:///"},
        ]});
        assert_eq!(serde_json::from_slice::<serde_json::Value>(roots.result()).unwrap(), expected);
    }
}
