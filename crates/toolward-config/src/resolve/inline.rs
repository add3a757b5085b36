//! Inline policies: a policy that is part of a request, as a JSON object or as the text of a file.

use std::sync::Arc;

use toolward_policy::source::RulesSource;

use crate::diagnostics::diagnostic::Diagnostic;
use crate::diagnostics::text::{Span, Text};
use crate::formats::is_script;
use crate::keys::secret_spans;
use crate::read::node::{Node, Value};
use crate::read::syntax::Syntax;
use crate::resolve::loaded::{LoadFailure, LoadedConfig};
use crate::resolve::merge::{Assembly, LayerOptions, Role};

/// The name of an inline policy in rules and diagnostics.
const NAME: &str = "policy";

/// A policy without a file: a layer, a foreign file, or a whole configuration, whose servers need
/// neither `command` nor `url`. Environment and files are not used.
#[derive(Debug, Clone, Copy)]
pub enum Inline<'a> {
    /// A file's text: JSON if it begins with `{`, TOML if it assigns `tools`, else YAML.
    Text(&'a str),
    /// A parsed JSON value, and the text that contains it.
    Node(&'a Node<'a>, &'a Arc<Text>),
}

/// Loads an inline policy.
///
/// ```
/// use toolward_config::{Inline, load_inline};
/// let loaded = load_inline(Inline::Text("allowed_tools: [\"observe.*\"]")).unwrap();
/// assert_eq!(loaded.source.layers.len(), 1);
/// ```
pub fn load_inline(policy: Inline<'_>) -> Result<LoadedConfig, LoadFailure> {
    let given = LayerOptions { role: Role::Either, format: None, allowlist: false, reload: false };
    let mut assembly = Assembly::inline();
    match policy {
        Inline::Text(content) => {
            let text = Text::new(NAME, content.strip_prefix('\u{feff}').unwrap_or(content));
            if is_script("".as_ref(), content.as_bytes()) {
                let message = "the policy is a program, which is a hook";
                let diagnostic = Diagnostic::error(message).at(&text, Span::default());
                assembly.report(diagnostic.help("hooks run only when a call is made"));
            } else {
                assembly.layer(&text, Syntax::of_content(text.content()), given);
            }
        }
        Inline::Node(node, text) => match node.value {
            Value::Map(_) => {
                assembly.know(text, Syntax::Json);
                secret_spans::hide(text, node);
                assembly.policy(text, node, Syntax::Json, given);
            }
            _ => {
                let message = format!("a policy is an object or a string, not {}", node.kind());
                assembly.report(Diagnostic::error(message).at(text, node.span));
            }
        },
    }
    if assembly.config.read_only {
        assembly.push_layer("read_only", RulesSource::ReadOnly);
    }
    assembly.finish()
}
