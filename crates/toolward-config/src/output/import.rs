//! Converts a policy of another system to native YAML.

use toolward_policy::source::{
    AgentsSource, AllowlistSource, Case, Entry, ExposeSource, KeyedList, RefusalsSource,
    RulesSource, SideSource, Source,
};

use crate::diagnostics::diagnostic::Diagnostic;
use crate::diagnostics::sanitize::quoted;
use crate::diagnostics::text::Text;
use crate::formats::Format;
use crate::formats::expose::is_pattern;
use crate::read::syntax::Syntax;
use crate::resolve::loaded::{LoadFailure, LoadedConfig};
use crate::resolve::merge::{Assembly, LayerOptions, Role};

/// Converts a policy file to equivalent native YAML. `servers` are the servers to which a list for
/// every server (`_global` of a plugin file) is expanded.
pub fn import(
    format: Format,
    name: &str,
    content: &str,
    servers: &[&str],
) -> Result<ImportedPolicy, LoadFailure> {
    let text = Text::new(name, content);
    let mut assembly = Assembly::default();
    let given =
        LayerOptions { role: Role::Layer, format: Some(format), allowlist: false, reload: true };
    let syntax = match format {
        Format::Toml => Syntax::Toml,
        _ => Syntax::of_content(content),
    };
    assembly.layer(&text, syntax, given);
    let loaded = assembly.finish()?;
    match write(&loaded.source, servers) {
        Ok(yaml) => Ok(ImportedPolicy { yaml, warnings: loaded.warnings }),
        Err(diagnostic) => Err(failed(diagnostic, loaded)),
    }
}

/// The native YAML, and warnings about omitted parts.
#[derive(Debug)]
pub struct ImportedPolicy {
    pub yaml: String,
    pub warnings: Vec<Diagnostic>,
}

fn failed(diagnostic: Diagnostic, loaded: LoadedConfig) -> LoadFailure {
    LoadFailure {
        config: Box::new(loaded.config),
        diagnostics: std::iter::once(diagnostic).chain(loaded.warnings).collect(),
        files: loaded.files,
    }
}

fn write(source: &Source, servers: &[&str]) -> Result<String, Diagnostic> {
    let mut yaml = Yaml::default();
    write_servers(&mut yaml, source, servers)?;
    if let Some(message) = &source.refusals.everyone.message {
        yaml.line(0, &format!("message: {}", scalar(message)));
    }
    for layer in &source.layers {
        match &layer.rules {
            RulesSource::Agents(agents) => write_agents(&mut yaml, agents, &source.refusals),
            RulesSource::Allowlist(list) => write_allowlist(&mut yaml, list),
            RulesSource::ReadOnly => yaml.line(0, "read_only: true"),
        }
    }
    if yaml.0.is_empty() {
        yaml.line(0, "{}");
    }
    Ok(yaml.0)
}

fn write_servers(yaml: &mut Yaml, source: &Source, servers: &[&str]) -> Result<(), Diagnostic> {
    let own = source
        .servers
        .iter()
        .filter_map(|server| Some((server.name.as_str(), server.expose.as_ref()?)));
    let every = source
        .expose_everywhere
        .iter()
        .flat_map(|expose| servers.iter().map(move |name| (*name, expose)));
    if source.expose_everywhere.is_some() && servers.is_empty() {
        return Err(Diagnostic::error(
            "the file's list applies to every server, but native lists apply to one each",
        )
        .help("pass each server that the list applies to with `--server`"));
    }
    let mut lists = own.chain(every).peekable();
    if lists.peek().is_some() {
        yaml.line(0, "servers:");
    }
    for (name, expose) in lists {
        yaml.line(1, &format!("{}:", scalar(name)));
        write_expose(yaml, expose)?;
    }
    Ok(())
}

fn write_expose(yaml: &mut Yaml, expose: &ExposeSource) -> Result<(), Diagnostic> {
    if expose.entries.is_empty() {
        yaml.line(2, "expose: []");
        return Ok(());
    }
    yaml.line(2, "expose:");
    for entry in &expose.entries {
        let pattern = expose.literal && is_pattern(&entry.name);
        if pattern && entry.display_name.is_some() {
            let message = format!(
                "{} is a name in the file, but would be a pattern here",
                quoted(&entry.name)
            );
            return Err(Diagnostic::error(message)
                .help("a pattern cannot have a display name: remove the entry"));
        }
        let tool = if pattern { escape_pattern(&entry.name) } else { entry.name.clone() };
        if entry.display_name.is_none() && entry.display_description.is_none() {
            yaml.line(3, &format!("- {}", scalar(&tool)));
            continue;
        }
        yaml.line(3, &format!("- tool: {}", scalar(&tool)));
        if let Some(name) = &entry.display_name {
            yaml.line(4, &format!("display_name: {}", scalar(name)));
        }
        if let Some(description) = &entry.display_description {
            yaml.line(4, &format!("display_description: {}", scalar(description)));
        }
    }
    Ok(())
}

/// A pattern that matches exactly this name.
pub fn escape_pattern(name: &str) -> String {
    name.chars().fold(String::new(), |mut pattern, c| {
        match c {
            '*' | '?' | '[' => pattern.extend(['[', c, ']']),
            _ => pattern.push(c),
        }
        pattern
    })
}

fn write_agents(yaml: &mut Yaml, layer: &AgentsSource, refusals: &RefusalsSource) {
    if layer.agents.is_empty() {
        yaml.line(0, "agents: {}");
    } else {
        yaml.line(0, "agents:");
    }
    for (name, agent) in &layer.agents {
        yaml.line(1, &format!("{}:", scalar(name)));
        if !agent.roles.is_empty() {
            let roles: Vec<_> = agent.roles.iter().map(|role| scalar(role)).collect();
            yaml.line(2, &format!("roles: [{}]", roles.join(", ")));
        }
        if agent.case == Case::Insensitive {
            yaml.line(2, "case: insensitive");
        }
        if let Some((_, wording)) = refusals.agents.iter().find(|(known, _)| known == name) {
            if let Some(explain) = wording.explain_to_agent {
                yaml.line(2, &format!("explain_to_agent: {explain}"));
            }
            if let Some(message) = &wording.message {
                yaml.line(2, &format!("message: {}", scalar(message)));
            }
        }
        write_side(yaml, "allow", &agent.allow, agent.client_requests.as_deref());
        write_side(yaml, "deny", &agent.deny, None);
    }
    if !layer.roles.is_empty() {
        yaml.line(0, "roles:");
    }
    for (name, role) in &layer.roles {
        yaml.line(1, &format!("{}:", scalar(name)));
        write_side(yaml, "allow", &role.allow, role.client_requests.as_deref());
        write_side(yaml, "deny", &role.deny, None);
    }
    if !layer.deny_on_missing_agent {
        yaml.line(0, "defaults:");
        yaml.line(1, "deny_on_missing_agent: false");
    }
}

fn write_side(yaml: &mut Yaml, name: &str, side: &SideSource, client_requests: Option<&[String]>) {
    let lists =
        [("tools", &side.tools), ("prompts", &side.prompts), ("resources", &side.resources)];
    // `allow` is written even if it grants nothing: in a main file, an agent without it is only an
    // identity.
    let allow = name == "allow";
    if !allow
        && side.servers.is_empty()
        && lists.iter().all(|(_, list)| list.is_empty())
        && client_requests.is_none()
    {
        return;
    }
    yaml.line(2, &format!("{name}:"));
    if allow || !side.servers.is_empty() {
        write_list(yaml, 3, "servers", &side.servers);
    }
    for (key, lists) in lists.into_iter().filter(|(_, lists)| !lists.is_empty()) {
        yaml.line(3, &format!("{key}:"));
        for KeyedList { key, entries, .. } in lists {
            write_list(yaml, 4, &scalar(key), entries);
        }
    }
    if let Some(requests) = client_requests {
        let requests: Vec<_> = requests.iter().map(|request| scalar(request)).collect();
        yaml.line(3, &format!("client_requests: [{}]", requests.join(", ")));
    }
}

fn write_allowlist(yaml: &mut Yaml, list: &AllowlistSource) {
    write_list(yaml, 0, "allowed_tools", &list.tools);
    for (key, entries) in
        [("allowed_prompts", &list.prompts), ("allowed_resources", &list.resources)]
    {
        if let Some(entries) = entries {
            write_list(yaml, 0, key, entries);
        }
    }
    if list.case == Case::Sensitive {
        yaml.line(0, "case: sensitive");
    }
}

fn write_list(yaml: &mut Yaml, depth: usize, key: &str, entries: &[Entry]) {
    if entries.is_empty() {
        yaml.line(depth, &format!("{key}: []"));
        return;
    }
    yaml.line(depth, &format!("{key}:"));
    for entry in entries {
        let is_plain = entry.when.is_none() && entry.scope.is_none() && entry.limit.is_none();
        if is_plain && entry.message.is_none() {
            yaml.line(depth + 1, &format!("- {}", scalar(&entry.selector)));
            continue;
        }
        yaml.line(depth + 1, &format!("- tool: {}", scalar(&entry.selector)));
        if let Some(when) = &entry.when {
            yaml.line(depth + 2, &format!("when: {}", scalar(when)));
        }
        if let Some(scope) = &entry.scope {
            yaml.line(depth + 2, &format!("scope: {}", scalar(scope)));
        }
        if let Some(limit) = entry.limit {
            yaml.line(depth + 2, &format!("limit: {limit}"));
        }
        if let Some(message) = &entry.message {
            yaml.line(depth + 2, &format!("message: {}", scalar(message)));
        }
    }
}

#[derive(Default)]
struct Yaml(String);

impl Yaml {
    fn line(&mut self, depth: usize, line: &str) {
        self.0.push_str(&"  ".repeat(depth));
        self.0.push_str(line);
        self.0.push('\n');
    }
}

/// A string as YAML: plain if unambiguous, otherwise in double quotes.
pub fn scalar(text: &str) -> String {
    let plain =
        text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '/'))
            && text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    let words = ["true", "false", "null", "yes", "no", "on", "off", "y", "n"];
    if plain && !words.contains(&text.to_ascii_lowercase().as_str()) {
        return text.to_owned();
    }
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            '\r' => quoted.push_str("\\r"),
            c if c.is_control() || is_special(c) => {
                quoted.push_str(&format!("\\U{:08X}", c as u32))
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

/// Characters that YAML reads as line breaks or refuses to read.
fn is_special(c: char) -> bool {
    matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::yaml;

    #[test]
    fn any_string_round_trips() {
        for text in [
            "a",
            "",
            " ",
            "true",
            "1",
            "*",
            "!x",
            "a: b",
            "a\"b\\c",
            "é\n\t\r\0\u{7f}\u{85}\u{2028}\u{feff}",
            "- x",
            "#",
            "a #b",
            "~",
        ] {
            let written = format!("- {}\n", scalar(text));
            let node = yaml::parse(&written).unwrap();
            assert_eq!(node.items()[0].as_str(), Some(text), "{written}");
        }
    }
}
