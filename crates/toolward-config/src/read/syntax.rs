//! Which syntax a file is written in, and the parser for it.

use std::path::Path;

use super::node::Node;
use super::{json, toml, yaml};
use crate::diagnostics::fault::Fault;

/// How a text is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Syntax {
    Json,
    /// JSON with comments and trailing commas.
    Jsonc,
    Yaml,
    Toml,
}

impl Syntax {
    /// Detects the syntax by file extension, otherwise by content.
    pub(crate) fn of_file(path: &Path, content: &str) -> Self {
        match path.extension().and_then(|ending| ending.to_str()) {
            Some("json") => Syntax::Json,
            Some("yaml" | "yml") => Syntax::Yaml,
            Some("toml") => Syntax::Toml,
            _ => Syntax::of_content(content),
        }
    }

    /// JSON if it begins with `{`, TOML if it assigns `tools`, else YAML.
    pub(crate) fn of_content(content: &str) -> Self {
        if content.trim_start().starts_with('{') {
            Syntax::Json
        } else if content.lines().any(assigns_tools) {
            Syntax::Toml
        } else {
            Syntax::Yaml
        }
    }

    pub(crate) fn parse(self, content: &str) -> Result<Node<'_>, Vec<Fault>> {
        match self {
            Syntax::Json => json::parse(content).map_err(|fault| vec![fault]),
            Syntax::Jsonc => json::parse_with_comments(content).map_err(|fault| vec![fault]),
            Syntax::Yaml => yaml::parse(content),
            Syntax::Toml => toml::parse(content),
        }
    }
}

/// Whether a line is TOML's `tools = …`, `chat.tools = …` or `chat = { tools = … }`.
fn assigns_tools(line: &str) -> bool {
    let key_of = |text: &str| -> Option<String> {
        let (key, _) = text.split_once('=')?;
        Some(key.chars().filter(|c| !c.is_whitespace() && !matches!(c, '"' | '\'')).collect())
    };
    match key_of(line).as_deref() {
        Some("tools" | "chat.tools") => true,
        Some("chat") => {
            line.split_once('{').and_then(|(_, inner)| key_of(inner)).as_deref() == Some("tools")
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_distinguished_by_content() {
        for (content, syntax) in [
            ("{\"agents\": {}}", Syntax::Json),
            ("  \n{", Syntax::Json),
            ("tools = [\"shell\"]", Syntax::Toml),
            ("[chat]\n  tools=[]\n", Syntax::Toml),
            ("chat.tools = []", Syntax::Toml),
            ("chat = { tools = [] }", Syntax::Toml),
            ("allowed_tools: [\"a = b\"]\n", Syntax::Yaml),
            ("allowed_tools:\n- x\n", Syntax::Yaml),
            ("", Syntax::Yaml),
        ] {
            assert_eq!(Syntax::of_content(content), syntax, "{content}");
        }
        assert_eq!(Syntax::of_file(Path::new("a.yaml"), "{a: 1}"), Syntax::Yaml);
    }

    #[test]
    fn data_is_compared_without_comments_and_layout() {
        let node = |text: &'static str| Syntax::Yaml.parse(text).unwrap();
        let data = node("a: [1, 0.30000000000000001]\nb: {c: x}\n");
        for same in [
            "a: [1, 0.30000000000000001]\nb: {c: x}",
            "a: [1, 0.30000000000000001]\nb: {c: x}\n\n# more\n",
            "# first\na:\n- 1\n- 0.30000000000000001\nb:\n  c: 'x'\n",
        ] {
            assert!(data.has_data_of(&node(same)), "{same}");
        }
        for other in [
            "a: [1, 0.3]\nb: {c: x}\n",
            "a: [1, 0.30000000000000001]\n",
            "a: [1]\nb: {c: x}\n",
            "b: {c: x}\na: [1, 0.30000000000000001]\n",
            "a: [1, 0.30000000000000001]\nb: {c: y}\n",
            "a: ['1', 0.30000000000000001]\nb: {c: x}\n",
        ] {
            assert!(!data.has_data_of(&node(other)), "{other}");
        }
    }
}
