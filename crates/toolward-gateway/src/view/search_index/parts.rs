//! What of a definition is searched, part by part.

use serde_json::Value;

use super::words::{is_empty, split};
use super::{Described, PARTS};

/// No more of one tool's words are indexed: nobody's list makes searching slow for the others.
const MOST_INDEXED: usize = 2_000;
/// Parameters in parameters are followed so far.
const DEEPEST: usize = 4;
/// The longest summary, in characters.
pub(super) const SUMMARY: usize = 200;

/// The words of a tool by part.
pub(super) fn parts(tool: &Described<'_>) -> [Vec<String>; PARTS.len()] {
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
    let mut room = MOST_INDEXED;
    for words in &mut all {
        words.truncate(room);
        room -= words.len();
    }
    all
}

fn words(text: &str) -> Vec<String> {
    let words = split(text).into_iter().take(MOST_INDEXED);
    words.filter(|word| !is_empty(word)).collect()
}

/// A name's words, and two of them as one: who asks for `filesystem` means `file_system` too.
fn with_joined(mut words: Vec<String>) -> Vec<String> {
    if let [first, second] = words.as_slice() {
        words.push(format!("{first}{second}"));
    }
    words
}

/// Names and descriptions of parameters, also of those inside others.
fn parameters(schema: &Value, depth: usize, names: &mut Vec<String>, texts: &mut Vec<String>) {
    if depth > DEEPEST || names.len() + texts.len() > MOST_INDEXED {
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

/// The beginning of a description: what a tool is for stands there.
pub(crate) fn summary(description: &str) -> String {
    let mut words = description.split_whitespace();
    let mut summary = String::new();
    let mut length = 0;
    for word in &mut words {
        length += word.chars().count() + 1;
        if length > SUMMARY {
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
