//! `toolward ls --prompts` and `--resources`.

use std::borrow::Cow;
use std::collections::HashMap;
use std::io::Write;

use serde_json::json;
use toolward_config::sanitize;
use toolward_policy::reason::About;
use toolward_policy::{Caller, Decision, Verdict};
use toolward_wire::list::ListKind;

use crate::cli::LsArgs;
use crate::exit::{self, Failure};
use crate::fetch_tools;
use crate::guards::discovery;
use crate::listing;
use crate::load::Input;
use crate::query::decision_json;
use crate::render::{BOLD, DIM, Table, paint, verdict};

/// An entry of a server's list.
struct Entry {
    server: String,
    kind: ListKind,
    name: String,
    /// The name that clients see instead.
    renamed: Option<Box<str>>,
    decision: Decision,
    /// The reason, if it is not a rule.
    why: Option<String>,
    /// An earlier server that lists the same resource, to which it belongs.
    owner: Option<String>,
}

impl Entry {
    fn is_visible(&self) -> bool {
        self.decision.verdict != Verdict::Deny && self.owner.is_none()
    }

    fn noun(&self) -> &'static str {
        match self.kind {
            ListKind::Prompts => "prompt",
            ListKind::ResourceTemplates => "template",
            ListKind::Tools | ListKind::Resources => "resource",
        }
    }
}

pub(super) fn run(args: &LsArgs, input: &Input) -> Result<u8, Failure> {
    let agent = args.agent.as_deref();
    if input.loaded.config.servers.is_empty() {
        return Err(Failure::usage(
            "error: the configuration has no servers\n  help: prompts and resources are fetched from `servers`",
        ));
    }
    let kinds: &[ListKind] = match args.prompts {
        true => &[ListKind::Prompts],
        false => &[ListKind::Resources, ListKind::ResourceTemplates],
    };
    let mut entries = Vec::new();
    for kind in kinds {
        entries.extend(listed(args, input, *kind)?);
    }
    let shown = entries.iter().filter(|entry| entry.is_visible()).count();
    let offered = entries.len();
    entries.retain(|entry| args.all || entry.is_visible());
    let mut out = anstream::stdout();
    if args.output.json {
        let rows: Vec<_> = entries.iter().map(|entry| to_json(input, agent, entry)).collect();
        writeln!(out, "{}", json!(rows))?;
        return Ok(exit::OK);
    }
    let head = if args.prompts { "PROMPT" } else { "RESOURCE" };
    let mut table = Table::new(&["SERVER", head, "VERDICT", "RULE"]);
    for entry in &entries {
        table.row(to_row(input, entry));
    }
    if !entries.is_empty() {
        write!(out, "{}", table.render())?;
    }
    let who = agent.map_or("an unnamed caller".into(), |agent| format!("`{}`", sanitize(agent)));
    let what = if args.prompts { "prompts" } else { "resources and templates" };
    let mut summary = format!("{who} sees {shown} of {offered} {what}");
    if discovery(&input.loaded.config).is_progressive(agent) {
        summary =
            format!("{who} has progressive discovery, which offers tools only, and no {what}");
    }
    writeln!(out, "{}", paint(DIM, summary))?;
    Ok(exit::OK)
}

/// The entries of one kind, with the listing's decision about each. If two servers have the same resource, it
/// belongs to the first that the agent may use.
fn listed(args: &LsArgs, input: &Input, kind: ListKind) -> Result<Vec<Entry>, Failure> {
    let (policy, agent) = (&input.policy, args.agent.as_deref());
    let caller = Caller { agent, claims: None };
    let route = discovery(&input.loaded.config).route_to_others(agent);
    let mut owners: HashMap<String, String> = HashMap::new();
    let mut entries = Vec::new();
    // The owner of a resource depends on the lists of all servers.
    let only = args.server.as_deref();
    for (server, names) in fetch_tools::names(input, kind, only.filter(|_| args.prompts))? {
        let decided = names.iter().map(String::as_str);
        let decided = listing::decisions(policy, (caller, &server), kind, decided);
        for (name, decided) in names.iter().zip(decided) {
            let allowed = decided.decision.verdict != Verdict::Deny;
            let closed = route.denial().zip(route.note()).filter(|_| allowed);
            let (decision, why) = match closed {
                Some((denied, why)) => (denied, Some(why)),
                None => (decided.decision, decided.expands.then(|| listing::EXPANDS.into())),
            };
            let key = listing::shared_key(kind, name).map(Cow::into_owned);
            let key = key.filter(|_| decision.verdict != Verdict::Deny);
            let owner = match key.as_ref().and_then(|key| owners.get(key)) {
                None => {
                    owners.extend(key.map(|key| (key, server.clone())));
                    None
                }
                Some(owner) => Some(owner.clone()),
            };
            let exposure = policy.prompt_exposure(&server).filter(|_| kind == ListKind::Prompts);
            let shown = exposure.and_then(|exposure| exposure.show(name)).map(|shown| shown.name);
            let renamed = shown.filter(|shown| **shown != **name);
            let (server, name) = (server.clone(), name.clone());
            entries.push(Entry { server, kind, name, renamed, decision, why, owner });
        }
    }
    entries.retain(|entry| only.is_none_or(|only| entry.server == only));
    Ok(entries)
}

fn to_json(input: &Input, agent: Option<&str>, entry: &Entry) -> serde_json::Value {
    let about = About { agent, server: &entry.server, subject: &entry.name, action: None };
    let reason = entry.why.clone().unwrap_or_else(|| input.policy.reason(&entry.decision, about));
    let mut row = decision_json(&input.policy, &entry.decision, &reason);
    row["server"] = json!(entry.server);
    row[entry.noun()] = json!(entry.name);
    if entry.kind == ListKind::Prompts {
        row["name"] = json!(entry.renamed.as_deref().unwrap_or(&entry.name));
    }
    row["listed"] = json!(entry.is_visible());
    if let Some(owner) = &entry.owner {
        row["belongs_to"] = json!(owner);
    }
    row
}

fn to_row(input: &Input, entry: &Entry) -> Vec<(String, anstyle::Style)> {
    let mut name = sanitize(&entry.name).into_owned();
    if let Some(renamed) = &entry.renamed {
        name = format!("{name} as {}", sanitize(renamed));
    }
    if entry.kind == ListKind::ResourceTemplates {
        name = format!("{name} (template)");
    }
    let rule = match (&entry.owner, input.policy.rule(&entry.decision)) {
        (Some(owner), _) => format!("hidden: it belongs to {owner}, which lists it too"),
        (None, Some(rule)) => format!("{} {}", rule.selector, rule.location()),
        (None, None) => match &entry.why {
            Some(why) => why.clone(),
            None => entry.decision.step.as_str().into(),
        },
    };
    vec![
        (sanitize(&entry.server).into_owned(), BOLD),
        (name, anstyle::Style::new()),
        (entry.decision.verdict.as_str().into(), verdict(entry.decision.verdict)),
        (sanitize(&rule).into_owned(), DIM),
    ]
}
