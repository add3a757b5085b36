//! `toolward ls`: the tools, prompts and resources an agent may use.

mod others;

use std::io::Write;

use clap::ArgMatches;
use serde_json::json;
use toolward_config::sanitize;
use toolward_gateway::upstream::built_in::EXECUTE;
use toolward_policy::reason::About;
use toolward_policy::{Caller, Decision, Step, Verdict};

use crate::cli::LsArgs;
use crate::discovery::{Route, route};
use crate::exit::{self, Failure};
use crate::fetch_tools;
use crate::guards::discovery;
use crate::load::{Input, UnknownAgent};
use crate::pins::quarantine::Quarantine;
use crate::query::decision_json;
use crate::render::{BOLD, DIM, Table, count, paint, verdict};

pub(crate) fn run(args: LsArgs, matches: Option<&ArgMatches>) -> Result<u8, Failure> {
    let mut input = Input::load(&args.policy, &args.tools, matches)?;
    match args.agent.as_deref().and_then(|agent| input.unknown_agent(agent)) {
        Some(UnknownAgent { message, help, is_denied: true, .. }) => {
            return Err(Failure::usage(format!("error: {message}\n  help: {help}")));
        }
        Some(unknown) => {
            writeln!(anstream::stderr(), "{}", paint(DIM, format!("note: {}", unknown.note())))?;
        }
        None => {}
    }
    if args.prompts || args.resources {
        return others::run(&args, &input);
    }
    if args.tools.lists.is_empty() {
        fetch_tools::ask(&mut input, args.server.as_deref())?;
    }
    if input.catalogue.lists().next().is_none() {
        return Err(Failure::usage(
            "error: no tools are known\n  help: define `servers`, or give saved tool lists with --tools FILE",
        ));
    }
    if let Some(server) =
        args.server.as_deref().filter(|server| !input.catalogue.has_server(server))
    {
        let known: Vec<&str> = input.catalogue.servers().collect();
        let known = known.join(", ");
        let (server, known) = (sanitize(server), sanitize(&known));
        let message = format!("error: there is no server named `{server}`; there are {known}");
        return Err(Failure::usage(message));
    }
    let agent = args.agent.as_deref();
    let caller = Caller { agent, claims: None };
    let mut table = Table::new(&["SERVER", "TOOL", "VERDICT", "HINTS", "RULE"]);
    let (mut shown, mut offered) = (0, 0);
    let mut rows = Vec::new();
    let mut through = 0;
    let quarantine = Quarantine::new(&input.loaded, &input.reads);
    for (server, tools) in input.catalogue.lists() {
        if args.server.as_deref().is_some_and(|only| only != server) {
            continue;
        }
        let route = route(&input.policy, &input.loaded.config, agent, server);
        for (tool, cell) in input.policy.row(agent, server, tools).iter() {
            let listing = cell.list(caller);
            let pinned = quarantine.of(server, tool).is_some();
            let decision = match route {
                _ if pinned && listing.decision.verdict != Verdict::Deny => {
                    let (verdict, step) = (Verdict::Deny, Step::Pin);
                    Decision { verdict, step, layer: None, rule: None }
                }
                Route::Closed(denied) => denied,
                _ => listing.decision,
            };
            offered += 1;
            let allowed = decision.verdict != Verdict::Deny;
            shown += usize::from(allowed && route.is_direct());
            through += usize::from(allowed && !route.is_direct());
            if !allowed && !args.all {
                continue;
            }
            let hints = input.policy.hints(server, tool);
            let exposed =
                input.policy.exposure(server).and_then(|exposure| exposure.show(tool.name()));
            if args.output.json {
                let about = About { agent, server, subject: tool.name(), action: None };
                let mut row = json!({
                    "server": server,
                    "tool": tool.name(),
                    "name": exposed.map_or_else(|| tool.name().into(), |shown| shown.name),
                    "hints": hints.iter().collect::<Vec<_>>(),
                    "actions": listing.actions,
                    "listed": allowed && route.is_direct(),
                });
                if !route.is_direct() {
                    row["route"] = json!(route.as_str());
                }
                let reason = input.policy.reason(&decision, about);
                if let (Some(row), Some(decision)) = (
                    row.as_object_mut(),
                    decision_json(&input.policy, &decision, &reason).as_object(),
                ) {
                    row.extend(decision.clone());
                }
                rows.push(row);
                continue;
            }
            let mut name = sanitize(tool.name()).into_owned();
            if let Some(shown) = exposed.filter(|shown| *shown.name != *tool.name()) {
                name = format!("{name} as {}", sanitize(&shown.name));
            }
            if let Some(actions) = listing.actions.as_ref().filter(|actions| !actions.is_empty()) {
                name = format!("{name} ({})", sanitize(&actions.join(", ")));
            }
            if route == Route::Execute && allowed {
                name = format!("{name} through execute_tool");
            }
            let rule = match input.policy.rule(&decision) {
                Some(rule) => format!("{} {}", rule.selector, rule.location()),
                None => decision.step.as_str().into(),
            };
            table.row(vec![
                (sanitize(server).into_owned(), BOLD),
                (name, anstyle::Style::new()),
                (decision.verdict.as_str().into(), verdict(decision.verdict)),
                (sanitize(&hints.iter().collect::<Vec<_>>().join(" ")).into_owned(), DIM),
                (sanitize(&rule).into_owned(), DIM),
            ]);
        }
    }
    let mut out = anstream::stdout();
    if args.output.json {
        writeln!(out, "{}", json!(rows))?;
        return Ok(exit::OK);
    }
    if shown + through > 0 || args.all {
        write!(out, "{}", table.render())?;
    }
    let who = agent.map_or("an unnamed caller".into(), |agent| format!("`{}`", sanitize(agent)));
    let mut summary = format!("{who} sees {shown} of {}", count(offered, "tool"));
    if discovery(&input.loaded.config).is_progressive(agent) {
        summary.push_str(&format!(
            " (progressive discovery), and calls {through} through `{EXECUTE}`; a direct call is refused"
        ));
    }
    writeln!(out, "{}", paint(DIM, summary))?;
    Ok(exit::OK)
}
