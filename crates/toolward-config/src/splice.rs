//! Lossless edits of one entry in a JSON, JSONC, TOML or YAML file, by spans.
//!
//! For files that belong to others, such as the configuration of an MCP client: only the bytes of the one entry
//! change. Comments, line ends, indentation, trailing commas and a byte order mark of everything else stay as they
//! are, because nothing is ever rendered from the tree. A file that does not parse or has duplicate keys is
//! refused. Every result is parsed again and compared with what was meant before it is returned.
//!
//! ```
//! use serde_json::json;
//! use toolward_config::splice::{Edit, FileFormat, SourceText, Step};
//!
//! let file = b"{\n  // mine\n  \"mcpServers\": {\"a\": {\"command\": \"npx\", \"env\": {}}},\n}\n";
//! let text = SourceText::decode(file, FileFormat::Jsonc).unwrap();
//! let path = [Step::key("mcpServers"), Step::key("a")];
//! let edited = text.edit(&path, &[Edit::set("command", json!("toolward"))]).unwrap();
//! assert_eq!(
//!     edited.encode(),
//!     b"{\n  // mine\n  \"mcpServers\": {\"a\": {\"command\": \"toolward\", \"env\": {}}},\n}\n"
//! );
//! let (before, after) = (text.entry(&path).unwrap(), edited.entry(&path).unwrap());
//! assert_eq!(edited.replace(&path, after, before).unwrap().encode(), file);
//! ```

mod flow;
mod section;
mod sequence;
mod yaml_block;

use std::fmt;
use std::ops::Range;

use serde_json::Value as Json;

use crate::diagnostics::fault::Fault;
use crate::diagnostics::text::Span;
use crate::read::node::{Node, Value};
use crate::read::{json, toml, yaml};

/// How a file is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileFormat {
    /// JSON; comments and trailing commas are accepted, because many programs accept them in `.json` files.
    Jsonc,
    Toml,
    Yaml,
}

/// One step of the path to an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// The value under a key.
    Key(String),
    /// The item of a list whose `name` is this.
    Named(String),
}

impl Step {
    pub fn key(name: impl Into<String>) -> Step {
        Step::Key(name.into())
    }
}

/// One change to an entry, which is a mapping.
#[derive(Debug, Clone, PartialEq)]
pub enum Edit {
    /// Sets a member, or a member of a member, to a value.
    Set(Vec<String>, Json),
    /// Removes a member, if it is there.
    Remove(String),
}

impl Edit {
    pub fn set(name: impl Into<String>, value: Json) -> Edit {
        Edit::Set(vec![name.into()], value)
    }
}

/// Why a file is not edited.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refused {
    NotUtf8,
    /// With line and column, beginning with 1.
    Unparsable {
        line: usize,
        column: usize,
        message: String,
    },
    /// There is no such entry.
    Missing,
    /// The entry is not a mapping, or is written in a form that cannot be edited.
    Unsupported(&'static str),
    /// The entry is not what it was expected to be.
    Changed,
    /// The result would not mean what was asked for. Nothing is changed.
    Unsafe,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::NotUtf8 => f.write_str("it is not valid UTF-8"),
            Refused::Unparsable { line, column, message } => {
                write!(f, "line {line}, column {column}: {message}")
            }
            Refused::Missing => f.write_str("the entry is not there"),
            Refused::Unsupported(why) => f.write_str(why),
            Refused::Changed => f.write_str("the entry was changed"),
            Refused::Unsafe => f.write_str("the edit would change other parts of the file"),
        }
    }
}

impl std::error::Error for Refused {}

/// The text of a file that parses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceText {
    text: String,
    has_bom: bool,
    format: FileFormat,
}

const BOM: &str = "\u{feff}";

impl SourceText {
    pub fn decode(bytes: &[u8], format: FileFormat) -> Result<SourceText, Refused> {
        let text = std::str::from_utf8(bytes).map_err(|_| Refused::NotUtf8)?;
        let (has_bom, text) = match text.strip_prefix(BOM) {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let source = SourceText { text: text.into(), has_bom, format };
        source.tree()?;
        Ok(source)
    }

    /// The file's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let bom = if self.has_bom { BOM } else { "" };
        [bom.as_bytes(), self.text.as_bytes()].concat()
    }

    /// The parsed file. A file without any content is an empty mapping or nothing.
    pub fn tree(&self) -> Result<Node<'_>, Refused> {
        let text = self.text.as_str();
        let parsed = match self.format {
            FileFormat::Jsonc if text.trim().is_empty() => {
                return Ok(Node::new(Span::default(), Value::Null));
            }
            FileFormat::Jsonc => json::parse_with_comments(text).map_err(|fault| vec![fault]),
            FileFormat::Toml => toml::parse(text),
            FileFormat::Yaml => yaml::parse(text),
        };
        parsed.map_err(|faults| unparsable(text, faults.first()))
    }

    /// The text of an entry.
    pub fn entry(&self, path: &[Step]) -> Option<&str> {
        let tree = self.tree().ok()?;
        self.text.get(self.region(&tree, path).ok()?)
    }

    /// The part of the file that has to be parsed to work with an entry, and the path of the entry in it: the entry
    /// alone in JSON, where the file may be large, and otherwise the whole file.
    pub fn narrowed<'p>(&self, path: &'p [Step]) -> (SourceText, &'p [Step]) {
        match self.entry(path).filter(|_| self.format == FileFormat::Jsonc) {
            Some(entry) => (SourceText { text: entry.into(), has_bom: false, ..*self }, &[]),
            None => (self.clone(), path),
        }
    }

    /// The text of an entry with some of its scalar values masked, for people to read. `is_secret` gets the keys
    /// and list positions on the way to a value, and the value.
    pub fn masked_entry(
        &self,
        path: &[Step],
        is_secret: &dyn Fn(&[String], &Node<'_>) -> bool,
    ) -> Option<String> {
        let tree = self.tree().ok()?;
        let region = self.region(&tree, path).ok()?;
        let mut spans = Vec::new();
        secret_spans(find(&tree, path)?, &mut Vec::new(), is_secret, &mut spans);
        spans.sort_by_key(|span| span.start);
        let (mut masked, mut at) = (String::new(), region.start);
        for span in spans.into_iter().filter(|span| region.contains(&span.start)) {
            masked.push_str(self.text.get(at..span.start)?);
            masked.push_str("\"…\"");
            at = span.end;
        }
        masked.push_str(self.text.get(at..region.end)?);
        Some(masked)
    }

    /// Changes members of an entry.
    pub fn edit(&self, path: &[Step], edits: &[Edit]) -> Result<SourceText, Refused> {
        let tree = self.tree()?;
        let entry = find(&tree, path).ok_or(Refused::Missing)?;
        Style::of(self, entry)?;
        let mut meant = entry.to_json();
        edits.iter().for_each(|edit| apply(&mut meant, edit));
        let edited = match self.format {
            // The entry is a document of its own, and the file may be large.
            FileFormat::Jsonc => {
                let region = range(entry.span);
                let text = self.text.get(region.clone()).unwrap_or_default().into();
                let alone = SourceText { text, has_bom: false, format: self.format };
                let alone = edits.iter().try_fold(alone, |text, edit| text.edit_once(&[], edit))?;
                self.with(region, &alone.text)
            }
            FileFormat::Toml | FileFormat::Yaml => {
                edits.iter().try_fold(self.clone(), |text, edit| text.edit_once(path, edit))?
            }
        };
        edited.verify((self, &tree), path, Some(&meant))
    }

    /// Appends an item to a list, which is a member of the entry. Not for TOML.
    ///
    /// ```
    /// use serde_json::json;
    /// use toolward_config::splice::{FileFormat, SourceText, Step};
    ///
    /// let file = b"agents:\n  dev:\n    tools:\n      - a   # mine\n  ops: {}\n";
    /// let text = SourceText::decode(file, FileFormat::Yaml).unwrap();
    /// let path = [Step::key("agents"), Step::key("dev")];
    /// assert_eq!(
    ///     text.append(&path, "tools", &json!("b")).unwrap().encode(),
    ///     b"agents:\n  dev:\n    tools:\n      - a   # mine\n      - \"b\"\n  ops: {}\n"
    /// );
    /// ```
    pub fn append(&self, path: &[Step], list: &str, item: &Json) -> Result<SourceText, Refused> {
        if self.format == FileFormat::Toml {
            return Err(Refused::Unsupported("lists of TOML files cannot be edited"));
        }
        let tree = self.tree()?;
        let entry = find(&tree, path).ok_or(Refused::Missing)?;
        let node = entry.get(list).ok_or(Refused::Missing)?;
        let mut meant = entry.to_json();
        if let Some(items) = meant.get_mut(list).and_then(Json::as_array_mut) {
            items.push(item.clone());
        }
        let changed = sequence::append(&self.text, node, item)?.in_source(self);
        let now = changed.tree().map_err(|_| Refused::Unsafe)?;
        let is_meant = find(&now, path).is_some_and(|entry| entry.to_json() == meant);
        match is_meant && without(&now, path) == without(&tree, path) {
            true => Ok(changed.clone()),
            false => Err(Refused::Unsafe),
        }
    }

    /// Replaces the text of an entry, if it is still `expected`.
    pub fn replace(
        &self,
        path: &[Step],
        expected: &str,
        replacement: &str,
    ) -> Result<SourceText, Refused> {
        let tree = self.tree()?;
        let region = self.region(&tree, path)?;
        if self.text.get(region.clone()) != Some(expected) {
            return Err(Refused::Changed);
        }
        let replaced = self.with(region, replacement);
        let replaced = replaced.verify((self, &tree), path, None)?;
        match replaced.entry(path) == Some(replacement) {
            true => Ok(replaced),
            false => Err(Refused::Unsafe),
        }
    }

    /// Whether an entry has the data of this text, however it is written: some programs format their files again.
    pub fn entry_means(&self, path: &[Step], text: &str) -> bool {
        let Some(now) = self.entry(path) else { return false };
        let value = |source: &SourceText| Some(find(&source.tree().ok()?, path)?.to_json());
        now == text || self.replace(path, now, text).is_ok_and(|other| value(&other) == value(self))
    }

    fn edit_once(&self, path: &[Step], edit: &Edit) -> Result<SourceText, Refused> {
        let tree = self.tree()?;
        let entry = find(&tree, path).ok_or(Refused::Missing)?;
        let style = Style::of(self, entry)?;
        let text = self.text.as_str();
        let changed = match edit {
            Edit::Set(names, value) => {
                let [first, rest @ ..] = names.as_slice() else { return Err(Refused::Missing) };
                match (entry.as_map().and_then(|map| map.entry(first)), rest) {
                    (Some((key, node)), []) => style.set(text, key, node, value),
                    (None, _) => {
                        let nested = rest.iter().rev();
                        let value = nested.fold(value.clone(), |inner, name| {
                            Json::Object([(name.clone(), inner)].into_iter().collect())
                        });
                        style.insert(text, entry, first, &value)?
                    }
                    (Some(_), rest) => {
                        let mut inner = path.to_vec();
                        inner.push(Step::key(first.clone()));
                        return self.edit_once(&inner, &Edit::Set(rest.to_vec(), value.clone()));
                    }
                }
            }
            Edit::Remove(name) => match entry.as_map().and_then(|map| map.entry(name)) {
                Some(_) => style.remove(text, entry, name)?,
                None => return Ok(self.clone()),
            },
        };
        Ok(changed.in_source(self))
    }

    /// The bytes of an entry. For a TOML table they begin with its header.
    fn region(&self, tree: &Node<'_>, path: &[Step]) -> Result<Range<usize>, Refused> {
        let entry = find(tree, path).ok_or(Refused::Missing)?;
        match Style::of(self, entry)? {
            Style::Section => section::region(&self.text, tree, entry),
            Style::Flow(_) => Ok(range(entry.span)),
            Style::YamlBlock => Ok(range(entry.span).start..yaml_block::end(&self.text, entry)),
        }
    }

    /// Checks that only the entry differs from `before`, and that it is what was meant.
    fn verify(
        self,
        (before, then): (&SourceText, &Node<'_>),
        path: &[Step],
        meant: Option<&Json>,
    ) -> Result<SourceText, Refused> {
        let now = self.tree().map_err(|_| Refused::Unsafe)?;
        let entry = find(&now, path).ok_or(Refused::Unsafe)?;
        let is_meant = meant.is_none_or(|meant| *meant == entry.to_json());
        // The bytes around the entry are the same by construction; this checks the construction.
        let (region, old) = (self.region(&now, path)?, before.region(then, path)?);
        let same_around = self.text.get(..region.start) == before.text.get(..old.start)
            && self.text.get(region.end..) == before.text.get(old.end..);
        // In JSON, the same bytes around an entry mean the same. Files may be large, so they are not compared again.
        let is_same =
            self.format == FileFormat::Jsonc || without(&now, path) == without(then, path);
        match is_same && is_meant && same_around {
            true => Ok(self),
            false => Err(Refused::Unsafe),
        }
    }

    fn with(&self, region: Range<usize>, replacement: &str) -> SourceText {
        Change { region, replacement: replacement.into() }.in_source(self)
    }
}

/// A replacement of some bytes.
struct Change {
    region: Range<usize>,
    replacement: String,
}

impl Change {
    fn in_source(self, source: &SourceText) -> SourceText {
        let mut text = source.text.clone();
        text.replace_range(self.region, &self.replacement);
        SourceText { text, ..*source }
    }
}

/// How a mapping is written.
enum Style {
    /// `{"key": value}`, with the sign between key and value.
    Flow(&'static str),
    /// A TOML table with a header.
    Section,
    YamlBlock,
}

impl Style {
    fn of(source: &SourceText, entry: &Node<'_>) -> Result<Style, Refused> {
        if entry.as_map().is_none() {
            return Err(Refused::Unsupported("the entry is not a mapping"));
        }
        let first = source.text.as_bytes().get(range(entry.span).start);
        match (source.format, first) {
            (FileFormat::Jsonc, _) | (FileFormat::Yaml, Some(b'{')) => Ok(Style::Flow(": ")),
            (FileFormat::Toml, Some(b'{')) => Ok(Style::Flow(" = ")),
            (FileFormat::Toml, Some(b'[')) => Ok(Style::Section),
            (FileFormat::Toml, _) => {
                Err(Refused::Unsupported("the entry is written with dotted keys"))
            }
            (FileFormat::Yaml, _) => Ok(Style::YamlBlock),
        }
    }

    fn set(
        &self,
        text: &str,
        key: &crate::read::node::Key<'_>,
        node: &Node<'_>,
        value: &Json,
    ) -> Change {
        match self {
            Style::YamlBlock => yaml_block::set(text, key, node, value),
            Style::Flow(": ") => {
                Change { region: range(node.span), replacement: value.to_string() }
            }
            Style::Flow(_) | Style::Section => {
                Change { region: range(node.span), replacement: section::value(value) }
            }
        }
    }

    fn insert(
        &self,
        text: &str,
        entry: &Node<'_>,
        name: &str,
        value: &Json,
    ) -> Result<Change, Refused> {
        match self {
            Style::Flow(sign) => flow::insert(text, entry, sign, name, value),
            Style::Section => section::insert(text, entry, name, value),
            Style::YamlBlock => yaml_block::insert(text, entry, name, value),
        }
    }

    fn remove(&self, text: &str, entry: &Node<'_>, name: &str) -> Result<Change, Refused> {
        match self {
            Style::Flow(_) => flow::remove(text, entry, name),
            Style::Section => section::remove(text, entry, name),
            Style::YamlBlock => yaml_block::remove(text, entry, name),
        }
    }
}

/// The node at the end of a path.
pub fn find<'n, 't>(tree: &'n Node<'t>, path: &[Step]) -> Option<&'n Node<'t>> {
    path.iter().try_fold(tree, |node, step| match step {
        Step::Key(name) => node.get(name),
        Step::Named(name) => {
            let is_it = |item: &&Node<'_>| item.get("name").and_then(Node::as_str) == Some(name);
            let mut items = node.items().iter().filter(is_it);
            // Two items of one name could be confused.
            items.next().filter(|_| items.next().is_none())
        }
    })
}

/// Collects the spans of secret scalars.
fn secret_spans(
    node: &Node<'_>,
    at: &mut Vec<String>,
    is_secret: &dyn Fn(&[String], &Node<'_>) -> bool,
    found: &mut Vec<Range<usize>>,
) {
    match &node.value {
        Value::Map(map) => map.iter().for_each(|(key, inner)| {
            at.push(key.name.to_string());
            secret_spans(inner, at, is_secret, found);
            at.pop();
        }),
        Value::Seq(items) => items.iter().enumerate().for_each(|(position, inner)| {
            at.push(position.to_string());
            secret_spans(inner, at, is_secret, found);
            at.pop();
        }),
        _ if is_secret(at, node) => found.push(range(node.span)),
        _ => {}
    }
}

/// The data of a tree without the value at the end of a path.
fn without(tree: &Node<'_>, path: &[Step]) -> Option<Json> {
    let mut json = tree.to_json();
    let node = path.iter().try_fold(&mut json, |node, step| match step {
        Step::Key(name) => node.get_mut(name),
        Step::Named(name) => {
            node.as_array_mut()?.iter_mut().find(|item| item["name"].as_str() == Some(name))
        }
    })?;
    *node = Json::Null;
    Some(json)
}

/// Does to a value what an edit does to its text.
fn apply(value: &mut Json, edit: &Edit) {
    match edit {
        Edit::Set(names, new) => {
            let target = names.iter().fold(value, |node, name| &mut node[name.as_str()]);
            *target = new.clone();
        }
        Edit::Remove(name) => {
            if let Some(map) = value.as_object_mut() {
                map.shift_remove(name);
            }
        }
    }
}

fn unparsable(text: &str, fault: Option<&Fault>) -> Refused {
    let (at, message) = match fault {
        Some(fault) => (fault.span.start as usize, fault.message.clone()),
        None => (0, "it cannot be parsed".into()),
    };
    let before = text.get(..at).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    Refused::Unparsable { line, column, message }
}

fn range(span: Span) -> Range<usize> {
    span.start as usize..span.end as usize
}

/// The line ends of a text.
fn line_end(text: &str) -> &'static str {
    match text.find('\n') {
        Some(at) if text.as_bytes().get(at.wrapping_sub(1)) == Some(&b'\r') => "\r\n",
        _ => "\n",
    }
}
