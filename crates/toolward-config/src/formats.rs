//! Which system a file belongs to, told by its content. Every format loads as policy layers; none
//! can do more than the project's own.

pub(crate) mod client;
pub(crate) mod expose;
pub(crate) mod hint_names;
pub(crate) mod plugin;
pub(crate) mod policy_tests;
pub(crate) mod rules;
pub(crate) mod toml_list;

use std::fmt;
use std::path::Path;

use crate::read::node::{Fault, Node};
use crate::read::{json, toml, yaml};

/// A format that loads, under the name that `--format` and `import` use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// The project's own policy layer: `agents`, `defaults`, `allowed_tools`, `case`, `tests`.
    Policy,
    /// A YAML or JSON file with `allowed_tools` alone.
    Allowlist,
    /// A JSON or YAML file with `agents` and `defaults` alone.
    Agents,
    /// A plugin YAML: `plugins.middleware.<server|_global>[].handler: tool_manager`.
    Plugin,
    /// A TOML file with a list `tools`, at the top or under `[chat]`.
    Toml,
}

impl Format {
    pub const ALL: [Format; 5] =
        [Format::Policy, Format::Allowlist, Format::Agents, Format::Plugin, Format::Toml];

    pub fn name(self) -> &'static str {
        match self {
            Format::Policy => "policy",
            Format::Allowlist => "allowlist",
            Format::Agents => "agents",
            Format::Plugin => "plugin",
            Format::Toml => "toml",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        Format::ALL.into_iter().find(|format| format.name() == name)
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

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
    /// By the file's ending, and where that says nothing by its content.
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

/// Whether the bytes are a program or a shell script, which would be a hook.
pub(crate) fn is_script(path: &Path, bytes: &[u8]) -> bool {
    let program = [&b"#!"[..], b"\x7fELF", b"MZ\x90", b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe"];
    let function = b"mcp_tools_policy_check()";
    path.extension().is_some_and(|ending| ending == "sh")
        || program.iter().any(|magic| bytes.starts_with(magic))
        || bytes.windows(function.len()).any(|window| window == function)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_told_apart_by_content() {
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
    fn scripts_are_recognised() {
        assert!(is_script(Path::new("hook"), b"#!/bin/sh\n"));
        assert!(is_script(Path::new("x"), b"\nmcp_tools_policy_check() {\n"));
        assert!(is_script(Path::new("policy.sh"), b""));
        assert!(!is_script(Path::new("p.yaml"), b"# a comment\nallowed_tools: []\n"));
    }
}
