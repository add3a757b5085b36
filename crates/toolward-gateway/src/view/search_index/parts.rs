//! The searched fields of a tool definition.

use serde_json::Value;

use super::words::{is_empty, split};
use super::{FIELDS, ToolDocument};

/// Maximum number of indexed words of one tool, so that no server's list can slow down the search for
/// others.
const MAX_INDEXED_WORDS: usize = 2_000;
/// Maximum depth of nested parameters.
const MAX_DEPTH: usize = 4;
/// Maximum length of a summary, in characters.
pub(super) const MAX_SUMMARY_CHARS: usize = 200;

/// The words of a tool, by field.
pub(super) fn parts(tool: &ToolDocument<'_>) -> [Vec<String>; FIELDS.len()] {
    let text = |value: &Value| words(value.as_str().unwrap_or_default());
    let definition = tool.definition;
    let annotated = &definition["annotations"]["title"];
    let title = if definition["title"].is_string() { &definition["title"] } else { annotated };
    let (mut names, mut descriptions) = (Vec::new(), Vec::new());
    parameters(&definition["inputSchema"], 0, &mut names, &mut descriptions);
    let mut all = [
        with_joined(text(&definition["name"])),
        text(title),
        words(tool.server),
        text(&definition["description"]),
        names,
        descriptions,
    ];
    let mut room = MAX_INDEXED_WORDS;
    for words in &mut all {
        words.truncate(room);
        room -= words.len();
    }
    all
}

fn words(text: &str) -> Vec<String> {
    let words = split(text).into_iter().take(MAX_INDEXED_WORDS);
    words.filter(|word| !is_empty(word)).collect()
}

/// A name's words, and a two-word name also as one word, so that `filesystem` finds `file_system`.
fn with_joined(mut words: Vec<String>) -> Vec<String> {
    if let [first, second] = words.as_slice() {
        words.push(format!("{first}{second}"));
    }
    words
}

/// Names and descriptions of parameters, including nested ones.
fn parameters(schema: &Value, depth: usize, names: &mut Vec<String>, texts: &mut Vec<String>) {
    if depth > MAX_DEPTH || names.len() + texts.len() > MAX_INDEXED_WORDS {
        return;
    }
    for (name, schema) in schema["properties"].as_object().into_iter().flatten() {
        names.extend(words(name));
        texts.extend(words(schema["description"].as_str().unwrap_or_default()));
        let values = schema["enum"].as_array().into_iter().flatten();
        texts.extend(values.filter_map(Value::as_str).flat_map(words));
        parameters(schema, depth + 1, names, texts);
        parameters(&schema["items"], depth + 1, names, texts);
    }
}

/// The beginning of a description, which usually states the tool's purpose.
pub(crate) fn summary(description: &str) -> String {
    let mut words = description.split_whitespace();
    let mut summary = String::new();
    let mut length = 0;
    for word in &mut words {
        length += word.chars().count() + 1;
        if length > MAX_SUMMARY_CHARS {
            summary.push_str(" …");
            break;
        }
        if !summary.is_empty() {
            summary.push(' ');
        }
        summary.push_str(word);
    }
    summary
}
