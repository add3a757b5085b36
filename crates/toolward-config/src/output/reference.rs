//! Renders the key table as JSON Schema and as the reference page.

use serde_json::{Value as Json, json};

use crate::diagnostics::diagnostic::Findings;
use crate::diagnostics::text::Text;
use crate::keys::check::Check;
use crate::keys::shape::{KeySpec, MAX_MESSAGE, Shape};
use crate::keys::{CONFIGURATION, walk};
use crate::read::yaml;

/// JSON Schema (draft 2020-12) of the main file, with descriptions and defaults.
pub fn schema() -> Json {
    whole(true, "Toolward configuration", "The main file, toolward.yaml.")
}

/// JSON Schema of a policy layer in the project's own format.
pub fn layer_schema() -> Json {
    whole(false, "Toolward policy layer", "A file of `policies` or `--policy`.")
}

fn whole(main: bool, title: &str, description: &str) -> Json {
    let mut schema = of_shape(&CONFIGURATION, main);
    if let Json::Object(object) = &mut schema {
        object.insert("$schema".into(), "https://json-schema.org/draft/2020-12/schema".into());
        object.insert("title".into(), title.into());
        object.insert("description".into(), description.into());
    }
    schema
}

fn of_shape(shape: &Shape, main: bool) -> Json {
    let matching = |pattern: &str| json!({"type": "string", "pattern": pattern});
    let duration = r"^[0-9]+ ?(ms|s|sec|seconds?|m|min|minutes?|h|hours?|d|days?)$";
    match shape {
        Shape::Text(_) | Shape::Secret | Shape::Listen | Shape::IpRange => {
            json!({"type": "string"})
        }
        Shape::Name(_) | Shape::Path | Shape::SecretUrl => {
            json!({"type": "string", "minLength": 1})
        }
        Shape::Message => json!({"type": "string", "minLength": 1, "maxLength": MAX_MESSAGE}),
        Shape::Bool => json!({"type": "boolean"}),
        Shape::Integer { least, most: i64::MAX } => json!({"type": "integer", "minimum": least}),
        Shape::Integer { least, most } => {
            json!({"type": "integer", "minimum": least, "maximum": most})
        }
        Shape::Scalar => json!({"type": ["string", "number", "boolean"]}),
        Shape::Any => json!(true),
        Shape::Duration | Shape::Leeway => matching(duration),
        Shape::DurationOr(word) => json!({"anyOf": [matching(duration), {"const": word}]}),
        Shape::Size => json!({"anyOf": [
            {"type": "integer", "minimum": 1},
            matching("^[0-9]+ ?(B|KiB|MiB|GiB|TiB|kB|KB|MB|GB|TB)?$"),
        ]}),
        Shape::Rate => matching("^[0-9]+/(s|min|h|hour|d|day)( burst [0-9]+)?$"),
        Shape::AddressOrSwitch => {
            json!({"anyOf": [{"type": "string", "minLength": 2}, {"type": "boolean"}]})
        }
        Shape::Ratio => json!({"anyOf": [
            {"type": "number", "minimum": 0, "maximum": 1},
            matching(r"^([0-9]+(\.[0-9]+)?%|[01](\.[0-9]+)?)$"),
        ]}),
        Shape::AddressOrOff => json!({"type": "string", "minLength": 3}),
        Shape::Url | Shape::Origin => matching("^https?://"),
        Shape::Token => matching(r"^(sha256:[0-9a-fA-F]{64}|\$\{[^}]+\})$"),
        Shape::Certificate => matching("^(CN=|DNS:|URI:|sha256:[0-9a-fA-F]{64}$)"),
        Shape::Word(words) => json!({"enum": words}),
        Shape::List(item) => json!({"type": "array", "items": of_shape(item, main)}),
        Shape::OneOrList(item) => {
            let one = of_shape(item, main);
            json!({"anyOf": [one, {"type": "array", "items": one}]})
        }
        Shape::Either(one, other) => json!({"anyOf": [of_shape(one, main), of_shape(other, main)]}),
        Shape::Table { value, .. } => {
            json!({"type": "object", "additionalProperties": of_shape(value, main)})
        }
        Shape::Keys(groups) => of_keys(groups.iter().copied().flatten(), main),
    }
}

fn of_keys(keys: impl Iterator<Item = &'static KeySpec>, main: bool) -> Json {
    let mut properties = serde_json::Map::new();
    let mut required = Vec::new();
    for key in keys.filter(|key| main || !key.main_only) {
        properties.insert(key.name.into(), of_key(key, main));
        if key.required {
            required.push(key.name);
        }
    }
    let mut schema =
        json!({"type": "object", "properties": properties, "additionalProperties": false});
    if let (Json::Object(schema), false) = (&mut schema, required.is_empty()) {
        schema.insert("required".into(), json!(required));
    }
    schema
}

fn of_key(key: &KeySpec, main: bool) -> Json {
    // Editors that use the schema mark such a key and show the reason.
    if key.not_yet {
        let description = format!("{} Not supported in this version.", key.doc);
        let default = key.default.and_then(|written| value_of(key, written));
        return match (&key.shape, default) {
            (_, None) => json!({"description": description, "not": {}}),
            (_, Some(default)) => json!({"description": description, "const": default}),
        };
    }
    let mut schema = of_shape(&key.shape, main);
    if let Json::Object(schema) = &mut schema {
        let default = key.default.map(|written| (written, value_of(key, written)));
        let description = match &default {
            Some((written, None)) => format!("{} Default: {written}.", key.doc),
            _ => key.doc.to_owned(),
        };
        schema.insert("description".into(), description.into());
        if let Some((_, Some(value))) = default {
            schema.insert("default".into(), value);
        }
    }
    schema
}

/// A default as a value, unless it is a description in words.
fn value_of(key: &KeySpec, written: &str) -> Option<Json> {
    let text = Text::new("default", written);
    let node = yaml::parse(text.content()).ok()?;
    let mut findings = Findings::default();
    Check::new(&text, &mut findings, true).run(&node, &key.shape, key.name);
    (!findings.has_errors()).then(|| node.to_json())
}

/// The reference page, in Markdown.
pub fn reference() -> String {
    let mut page = String::from(
        "# Configuration: every key\n\n\
         Generated from the table that the loader uses. `toolward schema` prints the same as JSON \
         Schema.\n",
    );
    for Section { paths, keys } in sections() {
        let title = match paths.as_slice() {
            [path] if path.is_empty() => "The file".to_owned(),
            paths => paths.iter().map(|path| format!("`{path}`")).collect::<Vec<_>>().join(", "),
        };
        page.push_str(&format!("\n## {title}\n\n"));
        page.push_str("| key | value | default | meaning |\n|---|---|---|---|\n");
        for key in keys {
            page.push_str(&row(key));
        }
    }
    page
}

fn row(key: &KeySpec) -> String {
    let default = match key.default {
        Some(written) if value_of(key, written).is_some() => format!("`{written}`"),
        Some(words) => words.to_owned(),
        None => "–".to_owned(),
    };
    let note = match (key.not_yet, key.required) {
        (true, _) => " *Not supported in this version.*",
        (_, true) => " Required.",
        _ => "",
    };
    format!("| `{}` | {} | {default} | {}{note} |\n", key.name, key.shape.expected(), key.doc)
}

/// A mapping, and all its paths.
struct Section {
    paths: Vec<String>,
    keys: Vec<&'static KeySpec>,
}

/// Mappings in the order in which they are first named; those with the same keys are one section.
fn sections() -> Vec<Section> {
    let mut sections: Vec<Section> = Vec::new();
    // Unsupported keys have no section, and `mcpServers` repeats `servers`.
    walk(&CONFIGURATION, "", &mut |path, key| {
        match sections.iter_mut().find(|section| section.paths == [path]) {
            Some(section) => section.keys.push(key),
            None => sections.push(Section { paths: vec![path.to_owned()], keys: vec![key] }),
        }
        !key.not_yet && key.name != "mcpServers"
    });
    let mut united: Vec<Section> = Vec::new();
    for section in sections {
        let same = |other: &&mut Section| {
            other.keys.len() == section.keys.len()
                && other.keys.iter().zip(&section.keys).all(|(a, b)| std::ptr::eq(*a, *b))
        };
        match united.iter_mut().find(same) {
            Some(other) => other.paths.extend(section.paths),
            None => united.push(section),
        }
    }
    united
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_has_words_and_a_default_that_fits_or_explains() {
        for key in sections().iter().flat_map(|section| &section.keys) {
            assert!(key.doc.ends_with('.'), "{}", key.name);
            assert!(!key.shape.expected().is_empty());
        }
    }

    #[test]
    fn the_schema_knows_defaults_and_refuses_what_is_not_built() {
        let schema = schema();
        let key = |name: &str| &schema["properties"][name];
        assert_eq!(key("listen")["default"], "127.0.0.1:7410");
        assert_eq!(key("read_only")["default"], false);
        let entry = &key("allowed_tools")["items"]["anyOf"][1]["properties"];
        // The default is the only value of a key that is not built.
        let server = &key("servers")["additionalProperties"]["properties"];
        assert_eq!(server["methods"]["const"], json!([]));
        assert_eq!(entry["shadow"]["default"], false);
        assert_eq!(key("limits")["properties"]["timeout"]["default"], "50ms");
        assert!(key("allowed_hosts")["description"].as_str().unwrap().contains("loopback names"));
        assert_eq!(schema["additionalProperties"], false);
        let agent = &layer_schema()["properties"]["agents"]["additionalProperties"]["properties"];
        assert!(agent["tokens"].is_null() && agent["allow"].is_object());
        assert!(layer_schema()["properties"]["servers"].is_null());
    }

    #[test]
    fn the_reference_names_every_mapping_once() {
        let page = reference();
        for title in ["The file", "`servers.SERVER`", "`agents.AGENT`", "`audit.rotate`"] {
            assert_eq!(page.matches(&format!("## {title}\n")).count(), 1, "{title}");
        }
    }

    /// A file with one key, in the mapping at a path such as `agents.AGENT.allow.tools.SERVER[]`.
    fn file(path: &str, key: &str, value: Json) -> Json {
        let parts: Vec<&str> = path.split('.').filter(|part| !part.is_empty()).collect();
        parts.iter().rev().fold(json!({key: value}), |below, part| {
            let name = part.trim_end_matches("[]");
            let lists = (part.len() - name.len()) / 2;
            json!({name: (0..lists).fold(below, |below, _| json!([below]))})
        })
    }

    /// The schema of the mapping at a path.
    fn schema_at<'s>(schema: &'s Json, path: &str) -> &'s Json {
        let mapping = |schema: &'s Json| match schema["anyOf"].as_array() {
            Some(any) => any.iter().find(|one| one["type"] != "string").unwrap(),
            None => schema,
        };
        path.split('.').filter(|part| !part.is_empty()).fold(schema, |schema, part| {
            let name = part.trim_end_matches("[]");
            let below = match schema["properties"].get(name) {
                Some(below) => below,
                None => &schema["additionalProperties"],
            };
            let below = mapping(below);
            if part == name { below } else { mapping(&below["items"]) }
        })
    }

    #[test]
    fn a_key_that_is_not_built_is_refused_by_the_loader_the_schema_and_the_reference_alike() {
        let (schema, page) = (schema(), reference());
        let mut unbuilt = Vec::new();
        walk(&CONFIGURATION, "", &mut |path, key| {
            unbuilt.extend(key.not_yet.then(|| (path.to_owned(), key)));
            // The note is the flag's, not the description's.
            assert!(!key.doc.contains("this version"), "{path}.{}", key.name);
            key.name != "mcpServers"
        });
        assert!(!unbuilt.is_empty());
        let refused = |content: &Json| {
            let text = Text::new("file", content.to_string());
            let node = yaml::parse(text.content()).unwrap();
            let mut findings = Findings::default();
            Check::new(&text, &mut findings, true).run(&node, &CONFIGURATION, "");
            let messages = findings.into_list().into_iter().map(|one| one.to_line());
            messages.filter(|line| line.contains("is not supported in this version")).count()
        };
        for (path, key) in unbuilt {
            let place = format!("{path}.{}", key.name);
            let value = match key.shape {
                Shape::Bool => json!(true),
                Shape::List(_) => json!(["https://unbuilt.example"]),
                _ => json!("https://unbuilt.example"),
            };
            assert_eq!(refused(&file(&path, key.name, value.clone())), 1, "{place}");
            let of_key = &schema_at(&schema, &path)["properties"][key.name];
            let words = of_key["description"].as_str().unwrap_or_default();
            assert!(words.ends_with("Not supported in this version."), "{place}: {of_key}");
            match key.default.and_then(|written| value_of(key, written)) {
                None => assert_eq!(of_key["not"], json!({}), "{place}"),
                // The default changes nothing.
                Some(default) => {
                    assert_eq!(refused(&file(&path, key.name, default.clone())), 0, "{place}");
                    let only = of_key["const"] == default || of_key["enum"][0] == default;
                    assert!(only && of_key["enum"][1] != value, "{place}: {of_key}");
                }
            }
            let row = page.lines().find(|line| line.contains(key.doc)).unwrap();
            assert!(row.ends_with("*Not supported in this version.* |"), "{place}: {row}");
        }
    }
}
