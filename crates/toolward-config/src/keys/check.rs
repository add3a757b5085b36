//! Validates a file against the key table. All errors are reported, not only the first.

use std::sync::Arc;

use serde_json::Value as Json;

use crate::diagnostics::diagnostic::{Diagnostic, Findings};
use crate::diagnostics::sanitize::quoted;
use crate::diagnostics::suggest::nearest;
use crate::diagnostics::text::{Span, Text};
use crate::keys;
use crate::keys::fix_hints::{form, remedy};
use crate::keys::shape::{KeySpec, Shape, one_of};
use crate::keys::value_syntax::SyntaxError;
use crate::read::node::{Map, Node, Value};
use crate::read::reader::Reader;
use crate::read::yaml;

/// Checks a value against a shape. `main`: whether keys that only the main file may have are accepted.
pub(crate) fn check(
    reader: &mut Reader<'_>,
    node: &Node<'_>,
    shape: &Shape,
    key: &str,
    main: bool,
) {
    Check::new(reader.text, reader.findings, main).run(node, shape, key);
}

/// Checks a file's tree against a shape, and reports everything that does not fit.
pub(crate) struct Check<'a> {
    pub(crate) text: &'a Arc<Text>,
    pub(crate) findings: &'a mut Findings,
    /// Whether keys reserved for the main file are accepted.
    pub(crate) main: bool,
    path: Vec<String>,
}

/// The key that a value belongs to.
#[derive(Clone, Copy)]
struct Site<'k> {
    /// The nearest key above.
    key: &'k str,
    /// The span of that key, marked if the value is missing.
    at: Span,
    /// An entry of a list under the key, not the value itself.
    entry: bool,
}

impl Site<'_> {
    fn name(&self) -> String {
        match (self.key.is_empty(), self.entry) {
            (true, _) => "the file".into(),
            (false, true) => format!("an entry of {}", quoted(self.key)),
            (false, false) => quoted(self.key),
        }
    }
}

impl<'a> Check<'a> {
    pub(crate) fn new(text: &'a Arc<Text>, findings: &'a mut Findings, main: bool) -> Self {
        Check { text, findings, main, path: Vec::new() }
    }

    /// Checks a whole file, or a value under a key.
    pub(crate) fn run(&mut self, node: &Node<'_>, shape: &Shape, key: &str) {
        if !key.is_empty() {
            self.path.push(key.to_owned());
        }
        let site = Site { key, at: node.span, entry: false };
        self.node(node, shape, site);
    }

    fn node(&mut self, node: &Node<'_>, shape: &Shape, site: Site<'_>) {
        match (shape, &node.value) {
            (Shape::Either(one, other), value) => {
                let nested = matches!(value, Value::Seq(_) | Value::Map(_));
                let fits = |shape: &Shape| match shape {
                    Shape::List(_) => matches!(value, Value::Seq(_)),
                    Shape::Keys(_) | Shape::Table { .. } => matches!(value, Value::Map(_)),
                    _ => !nested,
                };
                match (fits(one), fits(other)) {
                    (true, _) if !matches!(value, Value::Null) => self.node(node, one, site),
                    (_, true) => self.node(node, other, site),
                    _ => self.wrong_kind(node, shape, site),
                }
            }
            (Shape::List(item), Value::Seq(items)) => self.items(items, item, site),
            (Shape::OneOrList(item), Value::Seq(items)) => self.items(items, item, site),
            (Shape::OneOrList(item), Value::Null | Value::Map(_))
                if !matches!((item, &node.value), (Shape::Keys(_), Value::Map(_))) =>
            {
                self.wrong_kind(node, &Shape::OneOrList(item), site);
            }
            (Shape::OneOrList(item), _) => self.node(node, item, site),
            (Shape::Keys(groups), Value::Map(map)) => self.mapping(node, map, groups),
            (Shape::Table { value, .. }, Value::Map(map)) => {
                for (key, node) in map.iter() {
                    self.path.push(key.name.to_string());
                    self.node(node, value, Site { key: &key.name, at: key.span, entry: false });
                    self.path.pop();
                }
            }
            (Shape::Any, _) => {}
            (Shape::Text(_), Value::Str(_)) | (Shape::Bool, Value::Bool(_)) => {}
            (Shape::AddressOrSwitch, Value::Bool(_)) => {}
            (Shape::Ratio, Value::Int(0 | 1)) => {}
            (Shape::Ratio, Value::Float(value)) if (0.0..=1.0).contains(value) => {}
            (Shape::Scalar, Value::Str(_) | Value::Bool(_) | Value::Int(_) | Value::UInt(_)) => {}
            (Shape::Integer { least, most }, Value::Int(value)) => {
                if !(least..=most).contains(&value) {
                    let message =
                        format!("{} must be {}, not {value}", site.name(), shape.expected());
                    self.findings.push(Diagnostic::error(message).at(self.text, node.span));
                }
            }
            (Shape::Size, Value::Int(value)) if *value > 0 => {}
            (Shape::Size, Value::Int(value)) => {
                let message = format!("{} must be more than zero, not {value}", site.name());
                self.findings.push(Diagnostic::error(message).at(self.text, node.span));
            }
            (Shape::Word(words), Value::Str(word)) => self.word(node, word, words, site),
            (_, Value::Str(written)) => match form(shape, written) {
                Some(Ok(())) => {}
                Some(Err(mut error)) => {
                    if self.text.hides(node.span) {
                        error.message = error.message.replace(&quoted(written), "`…`");
                    }
                    self.error(node, error);
                }
                None => self.wrong_kind(node, shape, site),
            },
            _ => self.wrong_kind(node, shape, site),
        }
    }

    fn items(&mut self, items: &[Node<'_>], shape: &Shape, site: Site<'_>) {
        for (index, item) in items.iter().enumerate() {
            if matches!((shape, &item.value), (Shape::Either(Shape::Text(_), _), Value::Str(_))) {
                continue;
            }
            self.path.push(format!("[{index}]"));
            self.node(item, shape, Site { at: item.span, entry: true, ..site });
            self.path.pop();
        }
    }

    fn mapping(&mut self, node: &Node<'_>, map: &Map<'_>, groups: &[&'static [KeySpec]]) {
        let known = || groups.iter().copied().flatten();
        for (key, value) in map.iter() {
            match known().find(|known| known.name == key.name) {
                None => self.unknown_key(&key.name, key.span, value, groups),
                Some(found) if found.main_only && !self.main => {
                    let message =
                        format!("{} is accepted in the main file only", quoted(&key.name));
                    self.findings.push(Diagnostic::error(message).at(self.text, key.span).help(
                        "a policy layer has `agents` (without identities), `defaults`, \
                         `allowed_…`, `case`, `message` and `tests`",
                    ));
                }
                Some(found) => {
                    self.path.push(key.name.to_string());
                    let site = Site { key: &key.name, at: key.span, entry: false };
                    self.node(value, &found.shape, site);
                    self.path.pop();
                    if found.not_yet && !is_default(found, value) {
                        let message =
                            format!("{} is not supported in this version", quoted(&key.name));
                        self.findings.push(
                            Diagnostic::error(message)
                                .at(self.text, key.span)
                                .help("remove the key"),
                        );
                    }
                }
            }
        }
        for missing in known().filter(|key| key.required && map.get(key.name).is_none()) {
            let message = format!("{} is missing{}", quoted(missing.name), self.place());
            let diagnostic = Diagnostic::error(message).at(self.text, node.span);
            self.findings.push(diagnostic.help(format!(
                "add {}: {}",
                quoted(missing.name),
                missing.shape.expected()
            )));
        }
    }

    fn unknown_key(
        &mut self,
        name: &str,
        span: Span,
        value: &Node<'_>,
        groups: &[&'static [KeySpec]],
    ) {
        // Keys that are not built are no help.
        let usable = |key: &&KeySpec| !key.not_yet && (self.main || !key.main_only);
        let known = || groups.iter().copied().flatten().filter(usable);
        let message = format!("unknown key {}{}", quoted(name), self.place());
        let diagnostic = Diagnostic::error(message).at(self.text, span);
        let near = nearest(name, known().map(|key| key.name));
        let here = if self.path.is_empty() { "" } else { " here" };
        let help = if let Some(near) = near {
            format!("did you mean `{near}`?")
        } else if self.path.is_empty()
            && (value.get("allow").is_some() || value.get("deny").is_some())
        {
            "the rules of an agent belong under `agents`".into()
        } else if let Some(advice) = keys::advice(name) {
            advice.into()
        } else if let [home, more @ ..] = self.homes(name).as_slice() {
            let also = more.first().map(|other| format!(" or `{other}`")).unwrap_or_default();
            format!("{} belongs under `{home}`{also}", quoted(name))
        } else {
            let names: Vec<_> = known().map(|key| format!("`{}`", key.name)).collect();
            format!("the keys{here} are {}", names.join(", "))
        };
        self.findings.push(diagnostic.help(help));
    }

    /// Paths where a misplaced key is valid; those under the same top-level key first.
    fn homes(&self, name: &str) -> Vec<String> {
        let homes = keys::homes(name);
        let near = |home: &&String| home.split('.').next() == self.path.first().map(String::as_str);
        let near: Vec<String> = homes.iter().filter(near).cloned().collect();
        if near.is_empty() { homes } else { near }
    }

    /// ` in `agents.reviewer``, or nothing at the top of the file.
    fn place(&self) -> String {
        let mut path = String::new();
        for part in &self.path {
            if !path.is_empty() && !part.starts_with('[') {
                path.push('.');
            }
            path.push_str(part);
        }
        if path.is_empty() { path } else { format!(" in {}", quoted(&path)) }
    }

    fn word(&mut self, node: &Node<'_>, word: &str, words: &[&'static str], site: Site<'_>) {
        if words.contains(&word) {
            return;
        }
        let message = format!("{} must be {}, not {}", site.name(), one_of(words), quoted(word));
        let near =
            nearest(word, words.iter().copied()).map(|near| format!("did you mean `{near}`?"));
        self.findings.push(Diagnostic::error(message).at(self.text, node.span).maybe_help(near));
    }

    fn error(&mut self, node: &Node<'_>, error: SyntaxError) {
        let secret = error.secret;
        let diagnostic =
            Diagnostic::error(error.message).at(self.text, node.span).maybe_help(error.help);
        self.findings.push(if secret { diagnostic.hide_marked() } else { diagnostic });
    }

    fn wrong_kind(&mut self, node: &Node<'_>, shape: &Shape, site: Site<'_>) {
        // An empty value never means a mapping.
        let shape = match (shape, &node.value) {
            (Shape::Either(one @ Shape::Text(_), _), Value::Null) => one,
            _ => shape,
        };
        let message = match node.value {
            Value::Null => format!("{} must be {}, and has no value", site.name(), shape.briefly()),
            _ => format!("{} must be {}, not {}", site.name(), shape.briefly(), node.kind()),
        };
        // A missing value has no location: its key is marked.
        let missing = matches!(node.value, Value::Null) && node.span.start == node.span.end;
        let span = if missing { site.at } else { node.span };
        let diagnostic = Diagnostic::error(message).at(self.text, span);
        let written = self.text.slice(node.span);
        let help = remedy(shape, node, written, site.key, site.entry, self.text.hides(node.span));
        self.findings.push(diagnostic.maybe_help(help));
    }
}

/// Whether a value is the key's default, which changes nothing.
fn is_default(key: &KeySpec, node: &Node<'_>) -> bool {
    let on_off = |value: Json| match (&key.shape, value.as_str()) {
        (Shape::AddressOrSwitch, Some("on")) => Json::Bool(true),
        (Shape::AddressOrSwitch, Some("off")) => Json::Bool(false),
        _ => value,
    };
    let default = key.default.and_then(|written| yaml::parse(written).ok());
    default.is_some_and(|default| on_off(default.to_json()) == on_off(node.to_json()))
}
