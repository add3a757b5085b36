//! Finds what has to change in which file.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use toolward_config::splice::{Edit, FileFormat, Refused, SourceText, Step as PathStep, find};
use toolward_policy::explain::{LayerTrace, Query};
use toolward_policy::fnmatch::is_pattern;
use toolward_policy::reason::About;
use toolward_policy::{Caller, Step, Subject, Verdict};

use crate::load::Input;

/// A file with another content.
pub(crate) struct FileChange {
    pub(crate) path: PathBuf,
    pub(crate) before: Vec<u8>,
    pub(crate) after: Vec<u8>,
}

impl FileChange {
    /// Whether the change adds to what an agent may use, and touches nothing else of the file.
    pub(crate) fn is_only_allow_of(&self, agent: &str) -> bool {
        let format = format(&self.path);
        let rest = |bytes: &[u8]| -> Option<(Value, Value)> {
            let text = SourceText::decode(bytes, format).ok()?;
            let mut whole = text.tree().ok()?.to_json();
            let own = whole.get_mut("agents")?.get_mut(agent)?;
            // An agent without any key yet.
            if own.is_null() {
                *own = json!({});
            }
            let allow = own.as_object_mut()?.remove("allow").unwrap_or_default();
            Some((whole, allow))
        };
        match (rest(&self.before), rest(&self.after)) {
            (Some((before, _)), Some((after, allow))) => before == after && allow.is_object(),
            _ => false,
        }
    }
}

pub(crate) enum Proposal {
    Change(Vec<FileChange>),
    /// The agent sees the tool already, for this reason.
    Allowed(String),
    /// No entry could permit it.
    Refused(String),
}

impl Proposal {
    pub(crate) fn new(
        input: &Input,
        agent: &str,
        (server, name): (&str, &str),
        when: Option<&str>,
    ) -> Proposal {
        let policy = &input.policy;
        let Some(tool) = input.catalogue.tool(server, name) else {
            return Proposal::Refused(format!("the server `{server}` has no tool `{name}`"));
        };
        if input.catalogue.tools(server).is_none() {
            return Proposal::Refused(format!("the tools of `{server}` are not known"));
        }
        if is_pattern(name) {
            return Proposal::Refused(format!("`{name}` is a pattern: no entry matches it alone"));
        }
        let hints = policy.hints(server, &tool);
        let (caller, subject) = (Caller::named(agent), Subject::Tool(&tool, &hints));
        let explained = policy.explain(caller, server, subject, Query::List);
        let about = About { agent: Some(agent), server, subject: name, action: None };
        let reason = policy.reason(&explained.decision, about);
        if explained.decision.verdict != Verdict::Deny {
            return Proposal::Allowed(reason);
        }
        if explained.layers.is_empty() {
            return Proposal::Refused(reason);
        }
        let mut changes: Vec<FileChange> = Vec::new();
        let denying = explained.layers.iter().filter(|one| one.decision.verdict == Verdict::Deny);
        for layer in denying {
            let what = Permit { agent, server, name, when };
            if let Err(why) =
                what.add_to(input, layer, &mut changes, &|decision| policy.reason(decision, about))
            {
                return Proposal::Refused(why);
            }
        }
        Proposal::Change(changes)
    }
}

/// The permission to add.
struct Permit<'a> {
    agent: &'a str,
    server: &'a str,
    name: &'a str,
    when: Option<&'a str>,
}

impl Permit<'_> {
    fn add_to(
        &self,
        input: &Input,
        layer: &LayerTrace,
        changes: &mut Vec<FileChange>,
        reason: &dyn Fn(&toolward_policy::Decision) -> String,
    ) -> Result<(), String> {
        let (policy, decision) = (&input.policy, &layer.decision);
        let file = policy.layer_names().nth(usize::from(layer.layer)).unwrap_or_default();
        let place = policy.rule(decision).map(|rule| format!("\n  at {}", rule.location()));
        match decision.step {
            Step::ServerNotAllowed | Step::DefaultDeny | Step::AllowlistNone => {}
            Step::ServerDeny | Step::ExactDeny | Step::WildcardDeny => {
                let place = place.unwrap_or_default();
                let help = "a deny wins over every allow: change that rule by hand";
                return Err(format!("{}{place}\n  help: {help}", reason(decision)));
            }
            _ => return Err(reason(decision)),
        }
        let is_list = decision.step == Step::AllowlistNone;
        if !is_list && layer.agent.as_deref() != Some(self.agent) {
            let whose = layer.agent.as_deref().unwrap_or("default");
            return Err(format!(
                "in {file}, the rules of `{whose}` apply, which other agents have too\n  help: give `{}` an entry of its own",
                self.agent
            ));
        }
        let path = input.loaded.files.iter().find(|path| path.display().to_string() == *file);
        let Some(path) = path else {
            return Err(format!("{file} is not a file that can be edited"));
        };
        let change = match changes.iter_mut().find(|change| change.path == *path) {
            Some(change) => change,
            None => {
                let before = std::fs::read(path).map_err(|error| format!("{file}: {error}"))?;
                changes.push(FileChange { path: path.clone(), after: before.clone(), before });
                changes.last_mut().ok_or("no file")?
            }
        };
        let edited =
            SourceText::decode(&change.after, format(path)).and_then(|text| match is_list {
                true => text.append(
                    &[],
                    "allowed_tools",
                    &self.item(&format!("{}.{}", self.server, self.name)),
                ),
                false => self.add_to_agent(text, decision.step == Step::ServerNotAllowed),
            });
        change.after = edited.map_err(|why| format!("{file} cannot be edited: {why}"))?.encode();
        Ok(())
    }

    fn add_to_agent(&self, text: SourceText, needs_server: bool) -> Result<SourceText, Refused> {
        let agent = [PathStep::key("agents"), PathStep::key(self.agent)];
        let below = |keys: &[&str]| -> Vec<PathStep> {
            agent.iter().cloned().chain(keys.iter().map(|key| PathStep::key(*key))).collect()
        };
        let has = |text: &SourceText, path: &[PathStep]| -> Result<bool, Refused> {
            Ok(find(&text.tree()?, path).is_some())
        };
        let mut text = text;
        // Tools first: a server without a list of tools would be permitted as a whole.
        let item = self.item(self.name);
        text = match has(&text, &below(&["allow", "tools", self.server]))? {
            true => text.append(&below(&["allow", "tools"]), self.server, &item)?,
            false => {
                let names = ["allow", "tools", self.server].map(String::from).to_vec();
                text.edit(&agent, &[Edit::Set(names, json!([item]))])?
            }
        };
        if needs_server {
            text = match has(&text, &below(&["allow", "servers"]))? {
                true => text.append(&below(&["allow"]), "servers", &json!(self.server))?,
                false => {
                    let names = ["allow", "servers"].map(String::from).to_vec();
                    text.edit(&agent, &[Edit::Set(names, json!([self.server]))])?
                }
            };
        }
        Ok(text)
    }

    /// The entry.
    fn item(&self, selector: &str) -> Value {
        match self.when {
            None => json!(selector),
            Some(when) => json!({"tool": selector, "when": when}),
        }
    }
}

fn format(path: &Path) -> FileFormat {
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("toml") => FileFormat::Toml,
        Some("json" | "jsonc") => FileFormat::Jsonc,
        _ => FileFormat::Yaml,
    }
}
