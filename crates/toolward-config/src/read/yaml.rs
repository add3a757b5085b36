//! YAML 1.2 parser (core schema), based on `granit-parser`, which reports byte offsets for every event and
//! typed error kinds, and forbids unsafe code.
//!
//! Surprising features are rejected: several documents, aliases, merge keys, tags, keys that are not strings,
//! directives.

mod scalar;
mod syntax;

use std::borrow::Cow;

use granit_parser::{Event, Parser, ScalarStyle, Span as YamlSpan};

use crate::diagnostics::fault::Fault;
use crate::diagnostics::sanitize::quoted;
use crate::diagnostics::text::Span;
use crate::read::node::{Key, MAX_DEPTH, Map, Node, Value};

/// Reads one YAML document. A text without any content is [`Value::Null`] with an empty span.
pub fn parse(text: &str) -> Result<Node<'_>, Vec<Fault>> {
    if let Some(fault) = syntax::unprintable(text) {
        return Err(vec![fault]);
    }
    let mut tree = Tree { text, open: Vec::new(), root: None, faults: Vec::new() };
    // The tree's own check comes first; the parser's limits bound its memory.
    let options = granit_parser::options! {
        disallow_directives: true,
        emit_unresolved_aliases: true,
        flow_nesting_limit: MAX_DEPTH + 1,
        block_nesting_limit: MAX_DEPTH + 1,
    };
    for event in Parser::new_from_str_with_options(text, options) {
        match event {
            Ok((event, span)) => {
                if tree.take(event, &span).is_err() {
                    break;
                }
            }
            Err(error) => {
                tree.faults.push(syntax::fault(text, &error));
                break;
            }
        }
    }
    match (tree.faults.is_empty(), tree.root) {
        (true, Some(root)) => Ok(root),
        (true, None) => Ok(Node::new(Span::default(), Value::Null)),
        (false, _) => Err(tree.faults),
    }
}

/// The document while it is built from events.
struct Tree<'t> {
    text: &'t str,
    open: Vec<OpenCollection<'t>>,
    root: Option<Node<'t>>,
    faults: Vec<Fault>,
}

/// A collection that is being read.
enum OpenCollection<'t> {
    Seq { start: u32, items: Vec<Node<'t>> },
    Map { start: u32, entries: Vec<(Key<'t>, Node<'t>)>, key: Option<Key<'t>> },
}

/// The rest of the text cannot be parsed.
struct Stop;

impl<'t> Tree<'t> {
    fn take(&mut self, event: Event<'t>, at: &YamlSpan) -> Result<(), Stop> {
        let span = span_of(at);
        match event {
            Event::DocumentStart(..) if self.root.is_some() => {
                self.faults.push(
                    Fault::new(span, "the file contains several YAML documents")
                        .label("another one begins here")
                        .help("keep one document per file, without a second `---`"),
                );
                return Err(Stop);
            }
            Event::Scalar(value, style, _, tag) => {
                if tag.is_some() {
                    self.refuse_tag(at);
                }
                if self.expects_key() {
                    self.key(value, style, span);
                } else {
                    self.add(Node::new(span, scalar::resolve(value, style)));
                }
            }
            Event::SequenceStart(_, _, tag) => {
                self.begin(at, tag.is_some())?;
                self.open.push(OpenCollection::Seq { start: span.start, items: Vec::new() });
            }
            Event::MappingStart(_, _, tag) => {
                self.begin(at, tag.is_some())?;
                self.open.push(OpenCollection::Map {
                    start: span.start,
                    entries: Vec::new(),
                    key: None,
                });
            }
            Event::SequenceEnd | Event::MappingEnd => self.close(span),
            Event::Alias(_) => {
                let message =
                    format!("YAML aliases such as {} are not supported", quoted(self.slice(span)));
                self.refuse_alias(span, Fault::new(span, message).help("repeat the value instead"));
            }
            Event::UnresolvedAlias(name) => {
                let written = self.slice(span);
                let message =
                    format!("{} is an alias in YAML, because it begins with `*`", quoted(written));
                let fault = Fault::new(span, message)
                    .help(format!("put it in quotes: {}", quoted(&format!("\"*{name}\""))));
                self.refuse_alias(span, fault);
            }
            _ => {}
        }
        Ok(())
    }

    fn expects_key(&self) -> bool {
        matches!(self.open.last(), Some(OpenCollection::Map { key: None, .. }))
    }

    fn key(&mut self, name: Cow<'t, str>, style: ScalarStyle, span: Span) {
        let plain = matches!(style, ScalarStyle::Plain);
        if plain && name == "<<" {
            self.faults.push(
                Fault::new(span, "YAML merge keys (`<<`) are not supported")
                    .help("repeat the keys instead"),
            );
        }
        let node = Node::new(span, scalar::resolve(name, style));
        let name = match node.value {
            Value::Str(name) => name,
            _ => {
                let written = self.slice(span);
                let fault = match node.value {
                    Value::Null if written.is_empty() => {
                        Fault::new(span, "a key is missing before `:`")
                    }
                    _ => Fault::new(
                        span,
                        format!(
                            "a key must be a string, and {} is {}",
                            quoted(written),
                            node.kind()
                        ),
                    )
                    .help(format!("put it in quotes: {}", quoted(&format!("\"{written}\"")))),
                };
                self.faults.push(fault);
                Cow::Borrowed(written)
            }
        };
        self.set_key(Key { span, name });
    }

    fn set_key(&mut self, found: Key<'t>) {
        if let Some(OpenCollection::Map { key, .. }) = self.open.last_mut() {
            *key = Some(found);
        }
    }

    fn add(&mut self, node: Node<'t>) {
        match self.open.last_mut() {
            None => self.root = Some(node),
            Some(OpenCollection::Seq { items, .. }) => items.push(node),
            Some(OpenCollection::Map { entries, key, .. }) => {
                if let Some(key) = key.take() {
                    entries.push((key, node));
                }
            }
        }
    }

    fn begin(&mut self, at: &YamlSpan, tagged: bool) -> Result<(), Stop> {
        if tagged {
            self.refuse_tag(at);
        }
        let span = first_char(self.text, span_of(at));
        if self.expects_key() {
            self.faults.push(
                Fault::new(span, "a key must be a string, not a list or a mapping")
                    .help("a name that contains brackets or braces needs quotes"),
            );
            return Err(Stop);
        }
        if self.open.len() >= MAX_DEPTH {
            self.faults.push(Fault::new(span, format!("nested more than {MAX_DEPTH} levels deep")));
            return Err(Stop);
        }
        Ok(())
    }

    fn close(&mut self, end: Span) {
        // A block collection has no closing bracket: it ends with its last value.
        let ends = |last: Option<u32>, start: u32| match end.end > end.start {
            true => end.end,
            false => last.unwrap_or(start).max(start),
        };
        let node = match self.open.pop() {
            Some(OpenCollection::Seq { start, items }) => {
                let end = ends(items.last().map(|item| item.span.end), start);
                Node::new(Span { start, end }, Value::Seq(items))
            }
            Some(OpenCollection::Map { start, entries, .. }) => {
                let end =
                    ends(entries.last().map(|(key, node)| node.span.end.max(key.span.end)), start);
                Node::new(Span { start, end }, Value::Map(Map::new(entries, &mut self.faults)))
            }
            None => return,
        };
        self.add(node);
    }

    fn refuse_alias(&mut self, span: Span, fault: Fault) {
        self.faults.push(fault);
        let name = Cow::Borrowed(self.slice(span));
        if self.expects_key() {
            self.set_key(Key { span, name });
        } else {
            self.add(Node::new(span, Value::Str(name)));
        }
    }

    fn refuse_tag(&mut self, at: &YamlSpan) {
        let span = at.tag_span().map_or_else(|| span_of(at), |tag| span_of(&tag));
        let written = self.slice(span);
        let message = format!("{} is a tag in YAML, because it begins with `!`", quoted(written));
        let help = match written.starts_with("!!") {
            true => "remove the tag; a quoted value is a string".to_owned(),
            false => format!("put it in quotes: {}", quoted(&format!("\"{written}\""))),
        };
        self.faults.push(Fault::new(span, message).help(help));
    }

    fn slice(&self, span: Span) -> &'t str {
        self.text.get(span.start as usize..span.end as usize).unwrap_or_default()
    }
}

fn span_of(at: &YamlSpan) -> Span {
    let offset = |marker: &granit_parser::Marker| marker.byte_offset().unwrap_or_default();
    Span::new(offset(&at.start), offset(&at.end))
}

fn first_char(text: &str, span: Span) -> Span {
    let start = span.start as usize;
    let len = text.get(start..).and_then(|rest| rest.chars().next()).map_or(0, char::len_utf8);
    Span::new(start, start + len)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(text: &str) -> Vec<String> {
        parse(text).unwrap_err().into_iter().map(|fault| fault.message).collect()
    }

    #[test]
    fn values_follow_the_core_schema() {
        let text = "a: [1, -0x1f, 0o17, 1e3, .5, true, no, ~, null, '1', \"x\", 2024-01-01, 1_000, .inf]\nb: |\n  x\n  y\n";
        let node = parse(text).unwrap();
        let kinds: Vec<_> = node.get("a").unwrap().items().iter().map(Node::kind).collect();
        assert_eq!(
            kinds,
            [
                "a number",
                "a string",
                "a number",
                "a number",
                "a number",
                "a boolean",
                "a string",
                "nothing",
                "nothing",
                "a string",
                "a string",
                "a string",
                "a string",
                "a number"
            ]
        );
        assert_eq!(node.get("b").unwrap().as_str(), Some("x\ny\n"));
    }

    #[test]
    fn spans_are_byte_offsets_of_the_written_value() {
        let text = "é: [ab, \"c d\"]\nlist:\n  - x y  # comment\n  - 'q'\nmap: {k: v}\n";
        let node = parse(text).unwrap();
        let slice =
            |node: &Node<'_>| text[node.span.start as usize..node.span.end as usize].to_owned();
        let first = node.get("é").unwrap();
        assert_eq!(slice(first), "[ab, \"c d\"]");
        assert_eq!(slice(&first.items()[1]), "\"c d\"");
        let list = node.get("list").unwrap();
        assert_eq!(slice(list), "- x y  # comment\n  - 'q'");
        assert_eq!(slice(&list.items()[0]), "x y");
        assert_eq!(slice(node.get("map").unwrap()), "{k: v}");
    }

    #[test]
    fn surprising_yaml_is_rejected() {
        for text in [
            "a: 1\na: 2\n",
            "a: 1\n---\nb: 2\n",
            "a: &x [1]\nb: *x\n",
            "b: *_query\n",
            "- *\n",
            "<<: {a: 1}\n",
            "a: !!str 1\n",
            "a: !x y\n",
            "1: x\n",
            "true: x\n",
            "? [a]\n: b\n",
            "%YAML 1.2\n---\na: 1\n",
            "a: \"x\n",
            "a: [1, 2\n",
            "a:\n\tb: 1\n",
            "a:\n\t- b\n",
            "a: b: c\n",
            "a: @x\n",
            "a: `x`\n",
            "a\0: 1\n",
            "- a\nb: 1\n",
            "a: \u{7}\n",
            ": x\n",
            "a: |\n x\n\ty\n- b",
        ] {
            assert!(parse(text).is_err(), "{text:?} {:?}", parse(text));
        }
    }

    #[test]
    fn every_alias_tag_and_duplicate_is_reported_in_one_run() {
        let found = faults("a: *one\nb: !two x\na: 1\n");
        assert_eq!(found.len(), 3, "{found:?}");
    }

    #[test]
    fn depth_is_bounded_in_both_styles() {
        let flow = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(parse(&flow(MAX_DEPTH)).is_ok());
        assert!(faults(&flow(MAX_DEPTH + 1))[0].contains("64 levels"));
        assert!(faults(&"- ".repeat(100_000))[0].contains("64 levels"));
        assert!(parse(&"[".repeat(100_000)).is_err());
    }

    #[test]
    fn empty_texts_have_no_value() {
        for text in ["", " \n", "# only a comment\n", "---\n", "---\n# c\n...\n"] {
            assert_eq!(parse(text).unwrap().value, Value::Null, "{text:?}");
        }
    }

    #[test]
    fn windows_line_ends_change_nothing() {
        let unix = parse("a:\n  - b\n  - c d\n").unwrap();
        let windows = parse("a:\r\n  - b\r\n  - c d\r\n").unwrap();
        assert_eq!(unix.to_json(), windows.to_json());
    }
}
