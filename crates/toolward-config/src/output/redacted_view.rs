//! Redacted rendering of configuration files, for screens that others can see.
//!
//! Only known-harmless pieces are shown: keys, values whose shape is not secret, punctuation and comments.
//! Everything else is masked, including values that no rule anticipated.
//!
//! | masked | why |
//! |---|---|
//! | values of `env`, `headers`, `headers_for`, `oauth`, `tokens`, `jwks`, `store`, `sinks` | secrets, except for references |
//! | user, path and query of a server's or hook's URL | many servers accept a key there |
//! | `args` of a server, arguments of `exec` | many programs accept a key there |
//! | values of unknown keys | their meaning is unknown |
//! | in comments: secrets of the file, values of settings that were commented out, words that look like credentials | see [`comments`] |

mod comments;

use std::collections::HashSet;
use std::sync::Arc;

use self::comments::Around;
use crate::diagnostics::text::{Span, Text};
use crate::io::Files;
use crate::keys::shape::Shape;
use crate::keys::value_syntax::{ReferencePart, reference_parts};
use crate::keys::{CONFIGURATION, PLUGIN_FILE};
use crate::read::node::{Node, Value};
use crate::read::syntax::Syntax;
use crate::resolve::loaded::LoadedConfig;

/// Replaces masked text.
pub const MASK: &str = "•••";

/// An active file.
#[derive(Debug, Clone)]
pub struct ShownFile {
    pub name: String,
    /// Its lines; `None` if the file cannot be parsed, in which case nothing may be shown.
    pub lines: Option<Vec<String>>,
    text: Arc<Text>,
}

impl ShownFile {
    /// Whether the file was changed or removed since it was loaded.
    pub fn differs(&self, files: &impl Files) -> bool {
        let now = files.read(self.name.as_ref());
        let now = now.ok().and_then(|bytes| String::from_utf8(bytes).ok());
        let now = now.as_deref().map(|now| now.strip_prefix('\u{feff}').unwrap_or(now));
        now != Some(self.text.content())
    }
}

impl LoadedConfig {
    /// The files that were loaded, in their order, without secrets.
    pub fn shown(&self) -> Vec<ShownFile> {
        let file = |(text, syntax): &(Arc<Text>, Syntax)| ShownFile {
            name: text.name().into(),
            lines: lines(text, *syntax),
            text: Arc::clone(text),
        };
        self.texts.iter().map(file).collect()
    }
}

fn lines(text: &Text, syntax: Syntax) -> Option<Vec<String>> {
    let root = syntax.parse(text.content()).ok()?;
    let mut pieces = Pieces { text, list: Vec::new(), secrets: Vec::new() };
    let foreign = root.get("plugins").is_some();
    match (syntax, foreign) {
        (Syntax::Toml, _) => pieces.toml(&root),
        (_, true) => pieces.walk(&root, &PLUGIN_FILE),
        _ => pieces.walk(&root, &CONFIGURATION),
    }
    let shown = pieces.shown(syntax);
    Some(shown.lines().map(String::from).collect())
}

/// How a piece of text is shown.
enum Piece {
    AsItIs,
    As(String),
}

struct Pieces<'t> {
    text: &'t Text,
    list: Vec<(Span, Piece)>,
    /// Masked values, to mask repetitions as well.
    secrets: Vec<String>,
}

impl Pieces<'_> {
    fn push(&mut self, span: Span, piece: Piece) {
        if span.end > span.start {
            self.list.push((span, piece));
        }
    }

    fn line(&self, offset: u32) -> u32 {
        self.text.place(offset).line
    }

    /// Walks a value of a shape, and everything below it.
    fn walk(&mut self, node: &Node<'_>, shape: &Shape) {
        match (shape, &node.value) {
            (_, Value::Null) => {}
            (Shape::Keys(groups), Value::Map(map)) => {
                for (key, below) in map.iter() {
                    self.push(key.span, Piece::AsItIs);
                    let known = groups.iter().copied().flatten().find(|k| k.name == key.name);
                    match (&*key.name, known) {
                        (_, None) | ("args", _) => self.hide(below),
                        ("exec", _) => {
                            let (first, rest) = below.items().split_at(below.items().len().min(1));
                            first.iter().for_each(|node| self.show(node));
                            rest.iter().for_each(|node| self.hide(node));
                        }
                        ("store" | "jwks", _) => self.url(below, false),
                        (_, Some(known)) => self.walk(below, &known.shape),
                    }
                }
            }
            (Shape::Table { value, .. }, Value::Map(map)) => {
                for (key, below) in map.iter() {
                    self.push(key.span, Piece::AsItIs);
                    self.walk(below, value);
                }
            }
            (Shape::List(item) | Shape::OneOrList(item), Value::Seq(items)) => {
                items.iter().for_each(|below| self.walk(below, item));
            }
            (Shape::OneOrList(item), _) => self.walk(node, item),
            (Shape::Either(_, other), Value::Seq(_) | Value::Map(_)) => self.walk(node, other),
            (Shape::Either(one, _), _) => self.walk(node, one),
            (Shape::Any, _) | (_, Value::Seq(_) | Value::Map(_)) => self.hide(node),
            (Shape::Secret | Shape::Token, _) => self.secret(node),
            (Shape::SecretUrl, _) => self.url(node, false),
            (Shape::Url, _) => self.url(node, true),
            // All shapes are listed, so that a new one needs a decision here.
            (
                Shape::Text(_)
                | Shape::Name(_)
                | Shape::Message
                | Shape::Bool
                | Shape::Integer { .. }
                | Shape::Scalar
                | Shape::Duration
                | Shape::Leeway
                | Shape::DurationOr(_)
                | Shape::Size
                | Shape::Rate
                | Shape::Listen
                | Shape::AddressOrOff
                | Shape::AddressOrSwitch
                | Shape::Ratio
                | Shape::IpRange
                | Shape::Origin
                | Shape::Path
                | Shape::Certificate
                | Shape::Word(_),
                _,
            ) => self.show(node),
            // A value of another shape was not loaded.
            (Shape::Keys(_) | Shape::Table { .. } | Shape::List(_), _) => self.hide(node),
        }
    }

    /// The list of a foreign file; all other keys are unknown.
    fn toml(&mut self, root: &Node<'_>) {
        for (key, below) in root.entries() {
            self.push(key.span, Piece::AsItIs);
            match (&*key.name, &below.value) {
                ("tools", Value::Seq(items)) => items.iter().for_each(|item| self.show(item)),
                ("chat", Value::Map(_)) => self.toml(below),
                _ => self.hide(below),
            }
        }
    }

    fn show(&mut self, node: &Node<'_>) {
        match node.value {
            Value::Seq(_) | Value::Map(_) => self.hide(node),
            _ => self.push(node.span, Piece::AsItIs),
        }
    }

    /// Masks every value below.
    fn hide(&mut self, node: &Node<'_>) {
        match &node.value {
            Value::Seq(items) => items.iter().for_each(|item| self.hide(item)),
            Value::Map(map) => {
                for (key, below) in map.iter() {
                    self.push(key.span, Piece::AsItIs);
                    self.hide(below);
                }
            }
            Value::Null => {}
            _ => self.mask(node, MASK.into()),
        }
    }

    /// Masks a value except for its references.
    fn secret(&mut self, node: &Node<'_>) {
        let written = node.as_str().unwrap_or_default();
        // Keywords in place of a secret.
        if matches!(written, "memory" | "stdout" | "syslog") {
            return self.show(node);
        }
        let parts = reference_parts(written).unwrap_or_default();
        let literals = parts.iter().filter_map(|part| match part {
            ReferencePart::Literal(text) => Some(text.trim().to_string()),
            _ => None,
        });
        // `Bearer hunter2`: a comment may repeat the second word alone.
        let words: Vec<String> = literals
            .flat_map(|text| {
                let words: Vec<String> = text.split_whitespace().map(String::from).collect();
                std::iter::once(text).chain(words)
            })
            .collect();
        self.secrets.extend(words);
        let shown: String = parts.iter().map(shown_part).collect();
        self.mask(node, if shown.is_empty() { MASK.into() } else { shown });
    }

    /// Masks the parts of a URL that may be secret.
    fn url(&mut self, node: &Node<'_>, path: bool) {
        let written = node.as_str().unwrap_or_default();
        let Some((scheme, rest)) = written.split_once("://").filter(|(scheme, _)| {
            scheme.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.'))
        }) else {
            return self.secret(node);
        };
        let (authority, after) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        // A reference may contain a slash or an at sign.
        if authority.contains("${") || after.contains("${") && !authority.contains('@') && path {
            return self.secret(node);
        }
        let mut shown = format!("{scheme}://");
        let host = match authority.rsplit_once('@') {
            Some((user, host)) => {
                self.secrets.extend(user.split(':').map(String::from));
                shown += MASK;
                shown.push('@');
                host
            }
            None => authority,
        };
        shown += host;
        let (whole, query) = after.split_at(after.find(['?', '#']).unwrap_or(after.len()));
        match whole {
            "" | "/" | "/mcp" | "/sse" => shown += whole,
            _ if path => shown += whole,
            _ => {
                self.secrets
                    .extend(whole.split('/').filter(|part| !part.is_empty()).map(Into::into));
                shown.push('/');
                shown += &references(whole);
            }
        }
        if !query.is_empty() {
            self.secrets.extend(query.split(['?', '#', '&', '=']).map(String::from));
            shown.push('?');
            shown += &references(query);
        }
        self.mask(node, shown);
    }

    /// Shows something else, in the value's own quotes.
    fn mask(&mut self, node: &Node<'_>, shown: String) {
        let raw = self.text.slice(node.span);
        let quote = raw.chars().next().filter(|c| matches!(c, '"' | '\''));
        let quote = quote.map(String::from).unwrap_or_default();
        let breaks = "\n".repeat(raw.matches('\n').count());
        // The span of a multi-line value can include the indentation after it.
        let indent = raw.rsplit_once('\n').map(|(_, last)| last);
        let indent = indent.filter(|last| last.trim().is_empty()).unwrap_or_default();
        self.push(node.span, Piece::As(format!("{quote}{shown}{quote}{breaks}{indent}")));
    }

    /// The redacted text.
    fn shown(mut self, syntax: Syntax) -> String {
        self.list.sort_by_key(|(span, _)| span.start);
        // Short words occur everywhere.
        self.secrets.retain(|secret| secret.len() >= 5 && !secret.contains("${"));
        // Longest first: a secret may be part of another.
        self.secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        let beside = self.beside();
        let mut out = String::with_capacity(self.text.content().len());
        let mut at = 0;
        for (span, piece) in &self.list {
            if span.start < at {
                continue;
            }
            self.between(Span { start: at, end: span.start }, syntax, &beside, &mut out);
            match piece {
                Piece::AsItIs => out.push_str(self.text.slice(*span)),
                Piece::As(shown) => out.push_str(shown),
            }
            at = span.end;
        }
        let end = Span::new(self.text.content().len(), 0).start;
        self.between(Span { start: at, end }, syntax, &beside, &mut out);
        out
    }

    fn beside(&self) -> Beside {
        let mut masked = HashSet::new();
        for (span, piece) in &self.list {
            if matches!(piece, Piece::As(shown) if shown.contains(MASK)) {
                masked.extend(self.line(span.start)..=self.line(span.end));
            }
        }
        Beside { masked, below: comments::below_secrets(self.text.content()) }
    }

    /// Text between values: punctuation and comments are shown, anything else is masked.
    fn between(&self, span: Span, syntax: Syntax, beside: &Beside, out: &mut String) {
        let text = self.text.slice(span);
        let mut rest = text.char_indices();
        let mut masked = false;
        while let Some((at, c)) = rest.next() {
            let known = c.is_ascii_whitespace()
                || matches!(
                    c,
                    '{' | '}' | '[' | ']' | ',' | ':' | '-' | '"' | '\'' | '=' | '.' | '|' | '>'
                );
            if c == '#' && !matches!(syntax, Syntax::Json | Syntax::Jsonc) {
                let comment = text.get(at..).unwrap_or_default();
                let comment = comment.get(..comment.find('\n').unwrap_or(comment.len()));
                let comment = comment.unwrap_or_default();
                let line = self.line(span.start + Span::new(at, at).start);
                let around = Around {
                    secrets: &self.secrets,
                    near: [line, line.saturating_sub(1)]
                        .iter()
                        .any(|at| beside.masked.contains(at)),
                    below: beside.below.contains(&line),
                };
                out.push_str(&comments::shown(comment, &around));
                // Up to the end of the line; the comment was redacted as a whole.
                let end = at + comment.len();
                rest = text.char_indices();
                while rest.clone().next().is_some_and(|(at, _)| at < end) {
                    rest.next();
                }
                masked = false;
            } else if known {
                out.push(c);
                masked = false;
            } else if !masked {
                out.push_str(MASK);
                masked = true;
            }
        }
    }
}

/// Lines near which comments are redacted more strictly.
struct Beside {
    /// Lines with a masked value.
    masked: HashSet<u32>,
    /// Lines below a key of secrets that was commented out.
    below: HashSet<u32>,
}

fn shown_part(part: &ReferencePart) -> String {
    match part {
        ReferencePart::Literal(_) => MASK.into(),
        ReferencePart::Env(name) => format!("${{{name}}}"),
        ReferencePart::EnvOr(name, _) => format!("${{{name}:-{MASK}}}"),
        ReferencePart::File(path) => format!("${{file:{path}}}"),
    }
}

/// A text as its references, with everything else masked.
fn references(text: &str) -> String {
    let parts = reference_parts(text).unwrap_or_default();
    match parts.is_empty() {
        true => MASK.into(),
        false => parts.iter().map(shown_part).collect(),
    }
}

#[cfg(test)]
#[path = "redacted_view/tests.rs"]
mod tests;
