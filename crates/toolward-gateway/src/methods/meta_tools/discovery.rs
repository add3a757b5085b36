//! The discovery tools, which show parts of an agent's view and nothing else.

use serde_json::{Value, json};
use toolward_policy::selector::Glob;
use toolward_policy::source::Case;
use toolward_wire::{Message, Raw};

use super::arguments::{MetaArguments, Wrong};
use crate::view::discovery::Discovery;
use crate::view::search_index::summary;
use crate::view::{ServerView, View};

/// Maximum length of a pattern or query in bytes, and of a list of names.
const MAX_LENGTH: usize = 1_000;
/// Estimated bytes per token.
const BYTES_PER_TOKEN: usize = 4;

/// The servers that an agent may use.
pub(super) fn servers(view: &View, discovery: &Discovery, call: &Message) -> Result<String, Wrong> {
    MetaArguments::only(call.arguments(), &[])?;
    let server = |of: &ServerView| {
        let mut server = json!({"name": of.name});
        if let Some(description) = discovery.description(&of.name) {
            server["description"] = json!(description);
        }
        match &of.unavailable {
            None => server["tools"] = json!(of.shown.len()),
            Some(why) => server["unavailable"] = json!(why.public().to_string()),
        }
        server
    };
    let servers: Vec<Value> = view.servers().iter().map(server).collect();
    Ok(json!({ "servers": servers }).to_string())
}

/// A server's tools, under the server's own names for them.
pub(super) fn tools(view: &View, call: &Message) -> Result<String, Wrong> {
    let known = ["server", "names", "pattern", "max_schema_tokens"];
    let given = MetaArguments::only(call.arguments(), &known)?;
    let (name, names) = (given.text("server")?, given.texts("names")?);
    let pattern = given.optional_text("pattern")?;
    let budget = given.number("max_schema_tokens", 0)?;
    if pattern.as_ref().is_some_and(|pattern| pattern.len() > MAX_LENGTH) {
        return Err(format!("`pattern` has more than {MAX_LENGTH} bytes"));
    }
    if names.as_ref().is_some_and(|names| names.len() > MAX_LENGTH) {
        return Err(format!("`names` has more than {MAX_LENGTH} entries"));
    }
    let server = view.servers().iter().find(|of| *of.name == *name);
    let server = server.ok_or_else(|| unknown_server(view, &name))?;
    if let Some(why) = &server.unavailable {
        return Err(format!("{name}: {}", why.public()));
    }
    let pattern = pattern.map(|pattern| Glob::new(&pattern, Case::Insensitive));
    let fits = |tool: &str| {
        let folded = tool.to_ascii_lowercase();
        names.as_ref().is_none_or(|names| names.iter().any(|name| *name == *tool))
            && pattern.as_ref().is_none_or(|pattern| pattern.matches(&folded))
    };
    let all: Vec<Tool<'_>> = server.entries().iter().filter_map(|entry| Tool::of(entry)).collect();
    let missing = names.iter().flatten().filter(|name| all.iter().all(|tool| tool.name != **name));
    let missing: Vec<&str> = missing.map(|name| &**name).collect();

    let mut out = String::from("{\"server\":");
    out.push_str(&json!(name).to_string());
    out.push_str(",\"tools\":[");
    let mut left = budget.map(|tokens| tokens as usize);
    let mut left_out: Vec<Value> = Vec::new();
    for (at, tool) in all.iter().filter(|tool| fits(&tool.name)).enumerate() {
        if at > 0 {
            out.push(',');
        }
        let cost = tool.schema_tokens();
        match &mut left {
            Some(left) if *left < cost => {
                tool.write_without_schemas(&mut out);
                left_out.push(json!({"name": tool.name, "schema_tokens": cost}));
            }
            left => {
                if let Some(left) = left {
                    *left -= cost;
                }
                out.push_str(tool.text());
            }
        }
    }
    out.push(']');
    if !left_out.is_empty() {
        let note = "these schemas are omitted because of `max_schema_tokens` (bytes divided by four); \
                    request them by `names`, with more tokens or without `max_schema_tokens`";
        out.push_str(&format!(
            ",\"schemas_left_out\":{},\"note\":{}",
            json!(left_out),
            json!(note)
        ));
    }
    if !missing.is_empty() {
        out.push_str(&format!(",\"not_found\":{}", json!(missing)));
    }
    out.push('}');
    Ok(out)
}

/// The tools that match a query.
pub(super) fn search(view: &View, call: &Message) -> Result<String, Wrong> {
    let given = MetaArguments::only(call.arguments(), &["query"])?;
    let query = given.text("query")?;
    if query.len() > MAX_LENGTH {
        return Err(format!("`query` has more than {MAX_LENGTH} bytes"));
    }
    let found = view.index().search(&query);
    let tool = |found: &crate::view::search_index::SearchResult| {
        let (server, tool) = found.at;
        let server = view.servers().get(server)?;
        let definition = Raw::scan(server.entries().get(tool)?, usize::MAX).ok()?.to_json();
        let mut shown = json!({"server": server.name, "name": definition["name"]});
        if definition["title"].is_string() {
            shown["title"] = definition["title"].clone();
        }
        let description = definition["description"].as_str().unwrap_or_default();
        shown["description"] = json!(summary(description));
        shown["why"] = json!(found.why);
        Some(shown)
    };
    let tools: Vec<Value> = found.iter().filter_map(tool).collect();
    let mut result = json!({ "tools": tools });
    let unavailable = view.servers().iter().filter(|of| of.unavailable.is_some());
    let unavailable: Vec<&str> = unavailable.map(|of| &*of.name).collect();
    if !unavailable.is_empty() {
        result["not_searched"] = json!(unavailable);
    }
    Ok(result.to_string())
}

/// The error for an unknown server. A hidden server gets the same one.
fn unknown_server(view: &View, name: &str) -> Wrong {
    let names: Vec<&str> = view.servers().iter().map(|of| &*of.name).collect();
    match names.as_slice() {
        [] => format!("there is no server `{name}`; no server is available"),
        names => format!("there is no server `{name}`; available: {}", names.join(", ")),
    }
}

/// A tool definition in the view.
struct Tool<'v> {
    raw: Raw<'v>,
    name: String,
}

/// Members that a model needs only for the tools it calls.
const SCHEMAS: [&str; 2] = ["inputSchema", "outputSchema"];

impl<'v> Tool<'v> {
    fn of(entry: &'v [u8]) -> Option<Tool<'v>> {
        let raw = Raw::scan(entry, usize::MAX).ok()?;
        Some(Tool { raw, name: raw.member("name")?.as_str()?.into_owned() })
    }

    fn text(&self) -> &'v str {
        std::str::from_utf8(self.raw.bytes()).unwrap_or("{}")
    }

    /// The estimated tokens of its schemas.
    fn schema_tokens(&self) -> usize {
        let schemas = SCHEMAS.iter().filter_map(|name| self.raw.member(name));
        schemas.map(|schema| schema.bytes().len()).sum::<usize>().div_ceil(BYTES_PER_TOKEN)
    }

    fn write_without_schemas(&self, out: &mut String) {
        let kept = self.raw.members().filter(|member| !SCHEMAS.iter().any(|name| member.is(name)));
        out.push('{');
        for (at, member) in kept.enumerate() {
            if at > 0 {
                out.push(',');
            }
            out.push_str(&json!(member.name()).to_string());
            out.push(':');
            out.push_str(std::str::from_utf8(member.value.bytes()).unwrap_or("null"));
        }
        out.push('}');
    }
}
