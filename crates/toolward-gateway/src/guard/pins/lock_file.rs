//! The lock file: approved definitions of servers, as JSON that people can read and review.
//!
//! Digests repeat what the definitions say, so that a reviewer sees in a diff which part of a definition changed. They
//! are recomputed when the file is read; a digest that does not match its definition is corruption.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::Value;
use toolward_wire::list::ListKind;
use toolward_wire::{Raw, Shape};

use super::canonical::{Digest, pretty, quoted};
use super::definition::Definition;

/// The version of the format.
const VERSION: i64 = 1;
/// A larger file is not read.
pub const MAX_BYTES: usize = 64 << 20;
/// The kinds of entries that are pinned. Resources are data rather than definitions.
pub const PINNED_KINDS: [ListKind; 3] =
    [ListKind::Tools, ListKind::Prompts, ListKind::ResourceTemplates];

/// The approved definitions of all servers, by name.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LockFile {
    pub servers: BTreeMap<String, LockedServer>,
}

/// The approved definitions of one server.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LockedServer {
    /// Its command line or URL, without secrets.
    pub identity: Value,
    /// Its instructions: `None` if they are not known, `Some(None)` if it has none.
    pub instructions: Option<Option<String>>,
    /// By [`ListKind::index`]; `None` if the list is not known.
    lists: [Option<LockedList>; 4],
}

/// The approved definitions of one list, by name. A definition may have several forms, which a server sends to
/// different clients.
pub type LockedList = BTreeMap<String, Vec<Definition>>;

impl LockedServer {
    /// A server whose lists are not known.
    pub fn new(identity: Value, instructions: Option<Option<String>>) -> LockedServer {
        LockedServer { identity, instructions, lists: Default::default() }
    }

    pub fn list(&self, kind: ListKind) -> Option<&LockedList> {
        self.lists[kind.index()].as_ref()
    }

    pub fn list_mut(&mut self, kind: ListKind) -> &mut Option<LockedList> {
        &mut self.lists[kind.index()]
    }
}

/// Why a lock file cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockError(pub String);

impl std::fmt::Display for LockError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

type Parsed<T> = Result<T, LockError>;

impl LockFile {
    pub fn parse(bytes: &[u8]) -> Parsed<LockFile> {
        let root = Raw::scan(bytes, MAX_BYTES)
            .map_err(|error| LockError(format!("it is not valid JSON: {error}")))?;
        let mut file = LockFile::default();
        let mut version = None;
        for (key, value) in members(root, "the file")? {
            match key.as_str() {
                "version" => version = value.as_i64(),
                "servers" => {
                    for (name, server) in members(value, "servers")? {
                        file.servers.insert(name.clone(), parse_server(&name, server)?);
                    }
                }
                _ => return Err(unknown("the file", &key)),
            }
        }
        match version {
            Some(VERSION) => Ok(file),
            Some(other) => Err(LockError(format!("version {other} is not supported"))),
            None => Err(LockError("it has no `version`".into())),
        }
    }

    /// The text of the file. Equal values have equal texts.
    pub fn render(&self) -> String {
        let mut text = format!("{{\n \"version\": {VERSION},\n \"servers\": {{");
        for (at, (name, server)) in self.servers.iter().enumerate() {
            text.push_str(if at > 0 { ",\n" } else { "\n" });
            let _ = write!(text, "  {}: ", quoted(name));
            render_server(server, &mut text);
        }
        text.push_str(if self.servers.is_empty() { "}\n}\n" } else { "\n }\n}\n" });
        text
    }
}

fn parse_server(name: &str, raw: Raw<'_>) -> Parsed<LockedServer> {
    let mut server = LockedServer::default();
    for (key, value) in members(raw, name)? {
        let kind = PINNED_KINDS.into_iter().find(|kind| kind.member() == key);
        match (key.as_str(), kind) {
            ("identity", _) => server.identity = value.to_json(),
            ("instructions", _) => server.instructions = Some(parse_instructions(name, value)?),
            (_, Some(kind)) => {
                let mut list = LockedList::new();
                for (entry, forms) in members(value, name)? {
                    let at = format!("{name}/{entry}");
                    list.insert(entry.clone(), parse_forms(kind, (&at, &entry), forms)?);
                }
                *server.list_mut(kind) = Some(list);
            }
            _ => return Err(unknown(name, &key)),
        }
    }
    Ok(server)
}

fn parse_instructions(server: &str, raw: Raw<'_>) -> Parsed<Option<String>> {
    if raw.shape() == Shape::Null {
        return Ok(None);
    }
    let text = raw.member("text").and_then(Raw::as_str);
    let digest = raw.member("digest").and_then(Raw::as_str).and_then(|one| Digest::parse(&one));
    match (text, digest) {
        (Some(text), Some(digest)) if Digest::of_text(&text) == digest => {
            Ok(Some(text.into_owned()))
        }
        _ => Err(mismatch(&format!("the instructions of `{server}`"))),
    }
}

/// The forms of an entry: one, or one and others under `also`.
fn parse_forms(kind: ListKind, (at, name): (&str, &str), raw: Raw<'_>) -> Parsed<Vec<Definition>> {
    let mut forms = Vec::new();
    let (mut digest, mut fields, mut also) = (None, Vec::new(), Vec::new());
    for (key, value) in members(raw, at)? {
        match key.as_str() {
            "digest" => digest = value.as_str().and_then(|text| Digest::parse(&text)),
            "fields" => {
                for (field, value) in members(value, at)? {
                    let value = value.as_str().and_then(|text| Digest::parse(&text));
                    fields.push((field, value.ok_or_else(|| mismatch(&format!("`{at}`")))?));
                }
            }
            "definition" => {
                let (definition, entry) = Definition::parse(value.bytes(), kind)
                    .map_err(|error| LockError(format!("`{at}`: {error}")))?;
                if entry.name() != name {
                    return Err(LockError(format!("`{at}` has the definition of another name")));
                }
                forms.push(definition);
            }
            "also" => {
                for (element, _) in value.elements() {
                    also.extend(parse_forms(kind, (at, name), element)?);
                }
            }
            _ => return Err(unknown(at, &key)),
        }
    }
    fields.sort_unstable();
    match forms.first() {
        Some(form) if Some(form.digest()) == digest && form.fields() == fields => {
            forms.extend(also);
            Ok(forms)
        }
        _ => Err(mismatch(&format!("`{at}`"))),
    }
}

fn render_server(server: &LockedServer, text: &mut String) {
    text.push_str("{\n   \"identity\": ");
    let identity = server.identity.to_string();
    match Raw::scan(identity.as_bytes(), MAX_BYTES) {
        Ok(raw) => pretty(raw, 3, text),
        Err(_) => text.push_str("null"),
    }
    match &server.instructions {
        None => {}
        Some(None) => text.push_str(",\n   \"instructions\": null"),
        Some(Some(instructions)) => {
            let digest = Digest::of_text(instructions);
            let quoted = quoted(instructions);
            let _ = write!(
                text,
                ",\n   \"instructions\": {{\n    \"digest\": \"{digest}\",\n    \"text\": {quoted}\n   }}"
            );
        }
    }
    for kind in PINNED_KINDS {
        let Some(list) = server.list(kind) else { continue };
        let _ = write!(text, ",\n   \"{}\": {{", kind.member());
        for (at, (name, forms)) in list.iter().enumerate() {
            text.push_str(if at > 0 { ",\n" } else { "\n" });
            let _ = write!(text, "    {}: ", quoted(name));
            render_forms(forms, 4, text);
        }
        text.push_str(if list.is_empty() { "}" } else { "\n   }" });
    }
    text.push_str("\n  }");
}

fn render_forms(forms: &[Definition], indent: usize, text: &mut String) {
    let Some((first, others)) = forms.split_first() else { return text.push_str("{}") };
    let space = " ".repeat(indent + 1);
    let _ = write!(text, "{{\n{space}\"digest\": \"{}\",\n{space}\"fields\": {{", first.digest());
    for (at, (field, digest)) in first.fields().iter().enumerate() {
        text.push_str(if at > 0 { ",\n" } else { "\n" });
        let _ = write!(text, "{space} {}: \"{digest}\"", quoted(field));
    }
    let definition = first.indented(indent + 1);
    let _ = write!(text, "\n{space}}},\n{space}\"definition\": {definition}");
    if !others.is_empty() {
        let _ = write!(text, ",\n{space}\"also\": [");
        for (at, other) in others.iter().enumerate() {
            text.push_str(if at > 0 { ", " } else { "" });
            render_forms(std::slice::from_ref(other), indent + 1, text);
        }
        text.push(']');
    }
    let _ = write!(text, "\n{}}}", " ".repeat(indent));
}

/// The members of an object that must be one.
fn members<'b>(raw: Raw<'b>, what: &str) -> Parsed<Vec<(String, Raw<'b>)>> {
    match raw.is_object() {
        true => Ok(raw.members().map(|one| (one.name().into_owned(), one.value)).collect()),
        false => Err(LockError(format!("`{what}` is not an object"))),
    }
}

fn unknown(what: &str, key: &str) -> LockError {
    LockError(format!("`{what}` has the unknown member `{key}`"))
}

fn mismatch(what: &str) -> LockError {
    LockError(format!("{what} does not match its digest: the file is corrupt, or was edited"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn file() -> LockFile {
        let define = |text: &str| Definition::parse(text.as_bytes(), ListKind::Tools).unwrap().0;
        let mut server = LockedServer {
            identity: json!({"command": ["x", "${TOKEN}"]}),
            instructions: Some(Some("Use \u{200b}it".into())),
            ..LockedServer::default()
        };
        let forms = vec![
            define(r#"{"name": "a", "inputSchema": {"maximum": 1e2}}"#),
            define(r#"{"name": "a", "title": "A\nB"}"#),
        ];
        *server.list_mut(ListKind::Tools) = Some(LockedList::from([("a".to_string(), forms)]));
        *server.list_mut(ListKind::Prompts) = Some(LockedList::new());
        LockFile { servers: BTreeMap::from([("s".into(), server)]) }
    }

    #[test]
    fn a_lock_file_can_be_written_and_read() {
        let text = file().render();
        let read = LockFile::parse(text.as_bytes()).unwrap();
        assert_eq!(read, file());
        assert_eq!(read.render(), text);
        assert!(text.contains("1e2") && text.contains("\\u200b"), "{text}");
        assert_eq!(
            LockFile::parse(LockFile::default().render().as_bytes()).unwrap(),
            LockFile::default()
        );
    }

    #[test]
    fn a_lock_file_that_was_edited_is_corrupt() {
        let text = file().render();
        for (from, to) in [
            ("1e2", "1e3"),
            ("A\\nB", "A\\nC"),
            ("\"a\": {", "\"b\": {"),
            ("Use ", "Do "),
            ("\"version\": 1", "\"version\": 2"),
            ("\"version\": 1,", ""),
            ("\"identity\"", "\"other\""),
            ("\"title\": \"sha256:", "\"title\": \"sha256:0"),
            ("\"digest\": \"sha256:", "\"digest\": \"sha512:"),
            ("\n }\n}\n", ""),
        ] {
            assert!(text.contains(from), "{from}: {text}");
            let edited = text.replace(from, to);
            assert!(LockFile::parse(edited.as_bytes()).is_err(), "{from} -> {to}");
        }
        let twice = text.replacen("\"version\": 1,", "\"version\": 1, \"version\": 1,", 1);
        assert!(LockFile::parse(twice.as_bytes()).is_err());
    }
}
