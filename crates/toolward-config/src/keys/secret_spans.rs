//! Finds the spans of secrets in a file, so that no diagnostic prints one.
//!
//! A file that parses is matched against the key table. Otherwise secrets are guessed by key names, line by line.

use std::sync::Arc;

use crate::diagnostics::diagnostic::Diagnostic;
use crate::diagnostics::fault::Fault;
use crate::diagnostics::secret_lines::{self, SECRET_KEYS, names_secret};
use crate::diagnostics::suggest::nearest;
use crate::diagnostics::text::{Span, Text};
use crate::keys::CONFIGURATION;
use crate::keys::shape::{KeySpec, Shape};
use crate::keys::value_syntax::reference_parts;
use crate::read::node::{Node, Value};
use crate::read::syntax::Syntax;

/// Parses a text and registers its secrets; errors do not quote secrets.
pub(crate) fn parse<'t>(text: &'t Arc<Text>, syntax: Syntax) -> Result<Node<'t>, Vec<Diagnostic>> {
    match syntax.parse(text.content()) {
        Ok(root) => {
            hide(text, &root);
            Ok(root)
        }
        Err(faults) => {
            secret_lines::hide(text);
            let finding = |fault: Fault| fault.discreet(text).in_text(text);
            Err(faults.into_iter().map(finding).collect())
        }
    }
}

/// Hides the secrets of a tree that was read from a text.
pub(crate) fn hide(text: &Text, root: &Node<'_>) {
    let mut veil = SecretSpans { text, spans: Vec::new() };
    veil.value(root, &CONFIGURATION);
    text.hide_all(veil.spans);
}

struct SecretSpans<'t> {
    text: &'t Text,
    spans: Vec<Span>,
}

impl SecretSpans<'_> {
    fn value(&mut self, node: &Node<'_>, shape: &Shape) {
        match (shape, &node.value) {
            (_, Value::Null) => {}
            (Shape::SecretUrl, Value::Str(_)) => self.url(node),
            (Shape::Secret | Shape::Token, _) | (Shape::SecretUrl, _) => self.all(node),
            (Shape::Keys(groups), Value::Map(map)) => {
                for (key, below) in map.iter() {
                    let known = groups.iter().copied().flatten().find(|k| k.name == key.name);
                    match known {
                        // Nothing is known of what a key that is not built may contain.
                        Some(KeySpec { shape: Shape::Any, .. }) => self.all(below),
                        Some(known) => self.value(below, &known.shape),
                        None => self.unknown(&key.name, below),
                    }
                }
            }
            (Shape::Table { value, .. }, Value::Map(map)) => {
                map.iter().for_each(|(_, below)| self.value(below, value));
            }
            (Shape::List(item) | Shape::OneOrList(item), Value::Seq(items)) => {
                items.iter().for_each(|below| self.value(below, item));
            }
            (Shape::Either(_, other), Value::Seq(_) | Value::Map(_)) => self.value(node, other),
            (Shape::Either(one, _) | Shape::OneOrList(one), _) => self.value(node, one),
            // A value of another kind in place of a secret.
            _ if is_secret(shape) => self.all(node),
            (_, Value::Seq(_) | Value::Map(_)) => self.unknown("", node),
            _ if has_secrets(shape) => self.all(node),
            _ => self.unknown("", node),
        }
    }

    /// A value of an unknown key.
    fn unknown(&mut self, name: &str, node: &Node<'_>) {
        let known = || SECRET_KEYS.into_iter();
        if names_secret(name) || nearest(name, known()).is_some() {
            return self.all(node);
        }
        node.items().iter().for_each(|item| self.unknown("", item));
        node.entries().for_each(|(key, below)| self.unknown(&key.name, below));
    }

    /// The whole value, except for references, which may be shown.
    fn all(&mut self, node: &Node<'_>) {
        match &node.value {
            Value::Seq(items) => items.iter().for_each(|item| self.all(item)),
            Value::Map(map) => map.iter().for_each(|(key, below)| {
                self.spans.push(key.span);
                self.all(below);
            }),
            Value::Null => {}
            Value::Str(word) if matches!(&**word, "memory" | "stdout" | "syslog") => {}
            _ => self.literals(node.span),
        }
    }

    fn literals(&mut self, span: Span) {
        let written = self.text.slice(span);
        if reference_parts(written).is_err() {
            return self.spans.push(span);
        }
        let mut at = span.start as usize;
        let mut rest = written;
        while let Some((before, reference)) = rest.split_once("${") {
            self.piece(at, before);
            let length = reference.find('}').map_or(reference.len(), |end| end + 1);
            at += before.len() + 2 + length;
            rest = reference.get(length..).unwrap_or_default();
        }
        self.piece(at, rest);
    }

    /// Quotes, and the word before a credential, reveal nothing.
    fn piece(&mut self, at: usize, piece: &str) {
        let quotes = |c: char| matches!(c, '"' | '\'');
        let inside = piece.trim_start_matches(quotes);
        let skipped = piece.len() - inside.len();
        let inside = inside.trim_end_matches(quotes);
        if !inside.is_empty() && !matches!(inside, "Bearer " | "Basic ") {
            self.spans.push(Span::new(at + skipped, at + skipped + inside.len()));
        }
    }

    /// The host of a URL may be shown; user, path and query may not.
    fn url(&mut self, node: &Node<'_>) {
        let written = self.text.slice(node.span);
        let plain = |host: &str| {
            let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | ':');
            !host.is_empty() && host.chars().all(allowed)
        };
        let quote = usize::from(written.starts_with(['"', '\'']));
        let inside = written.get(quote..).unwrap_or_default();
        let scheme = ["https://", "http://"].into_iter().find(|scheme| inside.starts_with(scheme));
        let Some(rest) = scheme.and_then(|scheme| inside.strip_prefix(scheme)) else {
            return self.all(node);
        };
        let rest = rest.trim_end_matches(['"', '\'']);
        let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
        let path = rest.get(host.len()..).unwrap_or_default();
        if !plain(host) {
            return self.all(node);
        }
        if !matches!(path, "" | "/" | "/mcp" | "/sse") {
            let start = node.span.start as usize + quote + scheme.map_or(0, str::len) + host.len();
            self.literals(Span::new(start, start + path.len()));
        }
    }
}

/// Whether values of this shape are secrets.
fn is_secret(shape: &Shape) -> bool {
    match shape {
        Shape::Secret | Shape::SecretUrl | Shape::Token => true,
        Shape::List(item) | Shape::OneOrList(item) => is_secret(item),
        Shape::Table { value, .. } => is_secret(value),
        Shape::Either(one, other) => is_secret(one) || is_secret(other),
        _ => false,
    }
}

/// Whether this is a mapping with secrets: a scalar written in its place may be one of them.
fn has_secrets(shape: &Shape) -> bool {
    match shape {
        Shape::Keys(groups) => groups.iter().copied().flatten().any(|key| is_secret(&key.shape)),
        Shape::List(item) | Shape::OneOrList(item) => has_secrets(item),
        Shape::Table { value, .. } => has_secrets(value),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Keys with secret values must also be known by name, for files that cannot be parsed.
    #[test]
    fn every_key_that_holds_a_secret_is_known_by_name() {
        let mut seen = 0;
        crate::keys::walk(&CONFIGURATION, "", &mut |_, key| {
            if is_secret(&key.shape) {
                assert!(names_secret(key.name), "{}", key.name);
                seen += 1;
            }
            true
        });
        assert!(seen >= SECRET_KEYS.len() - 1, "{seen}");
    }
}
