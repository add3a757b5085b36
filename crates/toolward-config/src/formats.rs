//! File formats: which one a file has, detected by content, and how each becomes policy layers.
//!
//! Every format loads as layers of the native policy, so no foreign format can express more than the native one.

pub(crate) mod agent_names;
pub(crate) mod client;
pub(crate) mod expose;
pub(crate) mod hint_names;
pub(crate) mod plugin;
pub(crate) mod policy_tests;
pub(crate) mod rules;
pub(crate) mod toml_list;

use std::fmt;
use std::path::Path;

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
    fn scripts_are_recognised() {
        assert!(is_script(Path::new("hook"), b"#!/bin/sh\n"));
        assert!(is_script(Path::new("x"), b"\nmcp_tools_policy_check() {\n"));
        assert!(is_script(Path::new("policy.sh"), b""));
        assert!(!is_script(Path::new("p.yaml"), b"# a comment\nallowed_tools: []\n"));
    }
}
