//! A proposal as YAML with comments.

use std::time::Duration;

use toolward_config::{sanitize, yaml_scalar};
use toolward_policy::Family;
use toolward_policy::source::{Ask, Case, Entry, KeyedList, SideSource};

use super::proposal::{Line, Proposal};
use super::real_calls::RealCalls;

/// The maximum number of tools that a comment names.
const MAX_NAMED: usize = 8;

/// Everything that is printed.
pub(super) struct PrintedPolicy<'a> {
    pub(super) agent: &'a str,
    /// Comments at the top.
    pub(super) head: Vec<String>,
    pub(super) proposal: &'a Proposal,
    pub(super) tests: &'a RealCalls,
}

impl PrintedPolicy<'_> {
    pub(super) fn text(&self) -> String {
        let mut yaml = Yaml::default();
        self.head.iter().for_each(|line| yaml.comment(0, line));
        let Proposal { unused, uncovered, .. } = self.proposal;
        if !unused.is_empty() {
            yaml.comment(0, "Not needed by any recorded call, and left out:");
        }
        for grant in unused {
            let text = format!("  {}: {} ({})", grant.list, grant.written, grant.location);
            yaml.comment(0, &text);
        }
        if !uncovered.is_empty() {
            yaml.comment(0, "Not covered:");
        }
        for one in uncovered {
            let calls = plural(one.calls, "call");
            yaml.comment(0, &format!("  {}: {calls}, {}", one.target.text(), one.why));
        }
        self.rules(&mut yaml);
        self.write_tests(&mut yaml);
        yaml.0
    }

    fn rules(&self, yaml: &mut Yaml) {
        let proposal = self.proposal;
        yaml.line(0, "agents:", "");
        yaml.line(1, &format!("{}:", yaml_scalar(self.agent)), "");
        if proposal.case == Case::Insensitive {
            yaml.line(2, "case: insensitive", "");
        }
        yaml.line(2, "allow:", "");
        yaml.lines(3, ("servers", ""), &proposal.servers);
        for (family, name, word) in FAMILIES {
            let lists: Vec<_> =
                proposal.lists.iter().filter(|((of, _), _)| *of == family).collect();
            if !lists.is_empty() {
                yaml.line(3, &format!("{name}:"), "");
            }
            for ((_, key), lines) in lists {
                yaml.lines(4, (&yaml_scalar(key), word), lines);
            }
        }
        if let Some(requests) = &proposal.client_requests {
            let requests: Vec<String> = requests.iter().map(|one| yaml_scalar(one)).collect();
            yaml.line(3, &format!("client_requests: [{}]", requests.join(", ")), "");
        }
        self.denials(yaml);
    }

    fn denials(&self, yaml: &mut Yaml) {
        let deny = self.proposal.all_denials();
        let SideSource { servers, tools, prompts, resources } = &deny;
        if servers.is_empty() && tools.is_empty() && prompts.is_empty() && resources.is_empty() {
            return;
        }
        let note = "denied by the current policy, or not used of these servers";
        yaml.line(2, "deny:", note);
        if !servers.is_empty() {
            yaml.entries(3, ("servers", ""), servers);
        }
        for (lists, (_, name, word)) in [tools, prompts, resources].into_iter().zip(FAMILIES) {
            let merged = merged(lists);
            if !merged.is_empty() {
                yaml.line(3, &format!("{name}:"), "");
            }
            for (key, entries) in merged {
                yaml.entries(4, (&yaml_scalar(key), word), &entries);
            }
        }
    }

    fn write_tests(&self, yaml: &mut Yaml) {
        let RealCalls { allow, ask, deny } = self.tests;
        let lists = [("allow", allow), ("ask", ask), ("deny", deny)];
        if lists.iter().all(|(_, calls)| calls.is_empty()) {
            return;
        }
        yaml.line(0, "tests:", "recorded calls");
        yaml.line(1, &format!("- as: {}", yaml_scalar(self.agent)), "");
        for (name, calls) in lists.into_iter().filter(|(_, calls)| !calls.is_empty()) {
            yaml.line(2, &format!("{name}:"), "");
            for call in calls {
                yaml.line(3, &format!("- {}", yaml_scalar(call)), "");
            }
        }
    }
}

/// The families, with the names of their lists and the key of an entry's selector.
const FAMILIES: [(Family, &str, &str); 3] = [
    (Family::Tools, "tools", "tool"),
    (Family::Prompts, "prompts", "prompt"),
    (Family::Resources, "resources", "resource"),
];

/// Lists by key: roles and agents may have lists under the same one.
fn merged(lists: &[KeyedList]) -> Vec<(&str, Vec<Entry>)> {
    let mut merged: Vec<(&str, Vec<Entry>)> = Vec::new();
    for list in lists.iter().filter(|list| !list.entries.is_empty()) {
        match merged.iter_mut().find(|(key, _)| *key == list.key) {
            Some((_, entries)) => entries.extend(list.entries.iter().cloned()),
            None => merged.push((&list.key, list.entries.clone())),
        }
    }
    merged
}

/// The number of calls of a line, its last use, and hints that a person should look at.
fn note(line: &Line) -> String {
    let calls = line.uses.made + if line.is_new { line.uses.refused } else { 0 };
    let last = line.uses.last.get(..10).unwrap_or(&line.uses.last);
    let mut note = format!("{}, last {last}", plural(calls, "call"));
    if line.is_new {
        note = format!("NEW: {note}, refused until now");
    }
    let mut names: Vec<&str> = line.targets.iter().map(|target| target.name.as_str()).collect();
    names.dedup();
    if names.len() > 1 {
        let more = names.len().saturating_sub(MAX_NAMED);
        names.truncate(MAX_NAMED);
        note += &format!("; {}", names.join(", "));
        if more > 0 {
            note += &format!(" and {more} more");
        }
    }
    match &line.attention {
        Some(hints) if hints.is_empty() => {}
        Some(hints) => note += &format!("; REVIEW: {}", hints.join(", ")),
        None => note += "; REVIEW: hints not known",
    }
    note
}

pub(super) fn plural(count: u64, thing: &str) -> String {
    crate::render::count(usize::try_from(count).unwrap_or(usize::MAX), thing)
}

#[derive(Default)]
struct Yaml(String);

impl Yaml {
    fn line(&mut self, depth: usize, text: &str, note: &str) {
        self.0.push_str(&"  ".repeat(depth));
        self.0.push_str(text);
        if !note.is_empty() {
            self.0.push_str(&format!(" # {}", comment(note)));
        }
        self.0.push('\n');
    }

    fn comment(&mut self, depth: usize, text: &str) {
        self.0.push_str(&format!("{}# {}\n", "  ".repeat(depth), comment(text)));
    }

    fn lines(&mut self, depth: usize, (key, word): (&str, &str), lines: &[Line]) {
        if lines.is_empty() {
            return self.line(depth, &format!("{key}: []"), "");
        }
        self.line(depth, &format!("{key}:"), "");
        for line in lines {
            // A server's line only repeats the notes of its tools.
            let server = word.is_empty();
            let note = if server { plural(line.uses.made, "call") } else { note(line) };
            self.entry(depth + 1, (word, &line.entry), &note);
        }
    }

    fn entries(&mut self, depth: usize, (key, word): (&str, &str), entries: &[Entry]) {
        self.line(depth, &format!("{key}:"), "");
        for entry in entries {
            self.entry(depth + 1, (word, entry), "");
        }
    }

    fn entry(&mut self, depth: usize, (word, entry): (&str, &Entry), note: &str) {
        let Entry { selector, when, scope, ask, limit, message, shadow, .. } = entry;
        let selector = yaml_scalar(selector);
        let plain = when.is_none() && scope.is_none() && ask.is_none();
        if plain && limit.is_none() && message.is_none() && !shadow {
            return self.line(depth, &format!("- {selector}"), note);
        }
        self.line(depth, &format!("- {word}: {selector}"), note);
        if let Some(when) = when {
            self.line(depth + 1, &format!("when: {}", yaml_scalar(when)), "");
        }
        if let Some(scope) = scope {
            self.line(depth + 1, &format!("scope: {}", yaml_scalar(scope)), "");
        }
        if let Some(ask) = ask {
            self.line(depth + 1, &format!("ask: {}", ask_options(ask)), "");
        }
        if let Some(limit) = limit {
            self.line(depth + 1, &format!("limit: {limit}"), "");
        }
        if let Some(message) = message {
            self.line(depth + 1, &format!("message: {}", yaml_scalar(message)), "");
        }
        if *shadow {
            self.line(depth + 1, "shadow: true", "");
        }
    }
}

fn ask_options(ask: &Ask) -> String {
    let Ask { hold, ttl, approvers } = ask;
    let time = |name: &str, time: &Option<Duration>| {
        time.map(|time| match time.subsec_millis() {
            0 => format!("{name}: {}s", time.as_secs()),
            _ => format!("{name}: {}ms", time.as_millis()),
        })
    };
    let approvers: Vec<String> = approvers.iter().map(|name| yaml_scalar(name)).collect();
    let approvers =
        (!approvers.is_empty()).then(|| format!("approvers: [{}]", approvers.join(", ")));
    let options: Vec<String> =
        [time("hold", hold), time("ttl", ttl), approvers].into_iter().flatten().collect();
    match options.is_empty() {
        true => "true".into(),
        false => format!("{{ {} }}", options.join(", ")),
    }
}

/// Text of servers and agents in a comment: it must not end the line.
fn comment(text: &str) -> String {
    sanitize(text).into_owned()
}
