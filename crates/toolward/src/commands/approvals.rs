//! `pending`, `approve`, `deny`, `grants` and `revoke`: decisions about calls that wait for a person.

mod rule;

use std::collections::HashSet;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};
use toolward_config::sanitize;

use crate::cli::{ApproveArgs, DenyArgs, GrantsArgs, PendingArgs, RevokeArgs, RunningArgs};
use crate::commands::status::{none, say_silent, states};
use crate::control_approvals::WORD;
use crate::control_client::{self, CONTROL_TIMEOUT};
use crate::exit::{self, Failure};
use crate::render::{BOLD, DIM, RED, Table, YELLOW, paint};

/// The variable with the token of an admin. A flag would be visible to other users.
const TOKEN_VARIABLE: &str = "TOOLWARD_ADMIN_TOKEN";
/// The interval of `--watch`.
const WATCH_INTERVAL: Duration = Duration::from_millis(500);
/// The characters of parameters that a table shows.
const SHOWN_PARAMS: usize = 80;

/// `toolward pending`.
pub(crate) fn pending(args: &PendingArgs) -> Result<u8, Failure> {
    let states = states(&args.running, false)?;
    let mut out = anstream::stdout();
    let mut tickets = listed(&states, "pending", "tickets")?;
    if !args.watch {
        match args.output.json {
            true => writeln!(out, "{}", json!(tickets))?,
            false if tickets.is_empty() => writeln!(out, "no call waits for a person")?,
            false => write!(out, "{}", table(&tickets))?,
        }
        return Ok(exit::OK);
    }
    let mut seen = HashSet::new();
    loop {
        for ticket in &tickets {
            let id = ticket["id"].as_str().unwrap_or_default().to_string();
            if seen.insert(id) {
                match args.output.json {
                    true => writeln!(out, "{ticket}")?,
                    false => write!(out, "{}", details(ticket))?,
                }
                out.flush()?;
            }
        }
        std::thread::sleep(WATCH_INTERVAL);
        tickets = listed(&states, "pending", "tickets")?;
    }
}

/// `toolward approve`.
pub(crate) fn approve(args: &ApproveArgs) -> Result<u8, Failure> {
    let (scope, keys) = match args.scope.split_once('=') {
        Some(("args", keys)) => ("args", keys.split(',').map(str::trim).collect()),
        _ => (args.scope.as_str(), Vec::new()),
    };
    let lifetime = args.lifetime.as_deref().map(toolward_config::duration).transpose();
    let lifetime = lifetime.map_err(|why| Failure::usage(format!("error: --for: {why}")))?;
    let mut request = json!({"do": "approve", "id": id(&args.id), "scope": scope, "keys": keys});
    if let Some(lifetime) = lifetime {
        request["for_s"] = json!(lifetime.as_secs());
    }
    if args.write_rule {
        return write_rule(args, &request);
    }
    // A wrong scope is wrong usage, regardless of the gateway's response.
    crate::control_approvals::scope(&request)
        .map_err(|why| Failure::usage(format!("error: {why}")))?;
    let answer = decided(&args.running, request, "approved")?;
    if args.output.json {
        writeln!(anstream::stdout(), "{answer}")?;
        return Ok(exit::OK);
    }
    let grant = &answer["grant"];
    let text = |key: &str| sanitize(grant[key].as_str().unwrap_or("?")).into_owned();
    let (agent, tool) = (agent(grant), format!("{}/{}", text("server"), text("tool")));
    let mut out = anstream::stdout();
    match grant["once"].as_bool() {
        Some(true) => {
            writeln!(out, "approved: {agent} may call {tool} once, with these arguments")?
        }
        _ => writeln!(
            out,
            "approved: {agent} may use {tool} until {} ({}); `toolward revoke {}` ends it",
            text("expires"),
            text("scope"),
            text("id")
        )?,
    }
    Ok(exit::OK)
}

/// `toolward approve --write-rule`: prints a change of the policy.
fn write_rule(args: &ApproveArgs, request: &Value) -> Result<u8, Failure> {
    let states = states(&args.running, false)?;
    let tickets = listed(&states, "pending", "tickets")?;
    let wanted = id(&args.id);
    let ticket = tickets.iter().find(|one| one["id"] == *wanted);
    let ticket = ticket.ok_or_else(|| no("there is no such ticket"))?;
    let keys = request["keys"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let change = rule::change(ticket, &keys.collect::<Vec<_>>()).map_err(|why| no(&why))?;
    let mut out = anstream::stdout();
    match args.output.json {
        true => {
            writeln!(out, "{}", json!({"at": change.at, "rule": change.rule, "how": change.how}))?
        }
        false => writeln!(out, "{}\n{}", sanitize(&change.how), sanitize(&change.rule))?,
    }
    Ok(exit::OK)
}

/// `toolward deny`.
pub(crate) fn deny(args: &DenyArgs) -> Result<u8, Failure> {
    let request = json!({"do": "deny", "id": id(&args.id), "reason": args.reason});
    let answer = decided(&args.running, request, "denied")?;
    match args.output.json {
        true => writeln!(anstream::stdout(), "{answer}")?,
        false => writeln!(anstream::stdout(), "denied")?,
    }
    Ok(exit::OK)
}

/// `toolward grants`.
pub(crate) fn grants(args: &GrantsArgs) -> Result<u8, Failure> {
    let grants = listed(&states(&args.running, false)?, "grants", "grants")?;
    let mut out = anstream::stdout();
    if args.output.json {
        writeln!(out, "{}", json!(grants))?;
        return Ok(exit::OK);
    }
    if grants.is_empty() {
        writeln!(out, "there are no grants")?;
        return Ok(exit::OK);
    }
    let mut table = Table::new(&["ID", "AGENT", "TOOL", "COVERS", "EXPIRES", "APPROVED BY"]);
    for grant in &grants {
        let text = |key: &str| sanitize(grant[key].as_str().unwrap_or("?")).into_owned();
        let plain = |text: String| (text, Default::default());
        table.row(vec![
            (text("id"), BOLD),
            plain(agent(grant)),
            plain(format!("{}/{}", text("server"), text("tool"))),
            plain(text("scope")),
            plain(text("expires")),
            plain(format!("{} ({})", text("by"), text("channel"))),
        ]);
    }
    write!(out, "{}", table.render())?;
    Ok(exit::OK)
}

/// `toolward revoke`.
pub(crate) fn revoke(args: &RevokeArgs) -> Result<u8, Failure> {
    let request = json!({"do": "revoke", "id": id(&args.id)});
    let answer = decided(&args.running, request, "revoked")?;
    match args.output.json {
        true => writeln!(anstream::stdout(), "{answer}")?,
        false => writeln!(anstream::stdout(), "revoked")?,
    }
    Ok(exit::OK)
}

/// Ids are shown in capital letters.
fn id(given: &str) -> String {
    given.trim().to_ascii_uppercase()
}

fn word(mut request: Value) -> String {
    if let Ok(token) = std::env::var(TOKEN_VARIABLE) {
        request["token"] = json!(token);
    }
    format!("{WORD}{request}")
}

/// The records of all gateways, each once: gateways with the same configuration share them.
fn listed(states: &[PathBuf], what: &str, key: &str) -> Result<Vec<Value>, Failure> {
    let replies = control_client::ask(states, &word(json!({"do": what})), CONTROL_TIMEOUT);
    if replies.answers.is_empty() && replies.silent.is_empty() {
        return Err(none(states));
    }
    say_silent(&replies.silent)?;
    let mut all: Vec<Value> = Vec::new();
    let mut known = HashSet::new();
    let mut error = None;
    for (_, mut answer) in replies.answers {
        match answer[key].take() {
            Value::Array(records) => {
                for record in records {
                    let id = record["id"].as_str().unwrap_or_default().to_string();
                    if known.insert(id.clone()) {
                        all.push(record);
                    } else if record["waiting"].as_u64() > Some(0)
                        && let Some(same) = all.iter_mut().find(|one| one["id"] == *id)
                    {
                        // The calls that wait are counted by each gateway.
                        let sum = same["waiting"].as_u64().unwrap_or(0)
                            + record["waiting"].as_u64().unwrap_or(0);
                        same["waiting"] = json!(sum);
                    }
                }
            }
            _ => error = answer["error"].as_str().map(String::from).or(error),
        }
    }
    match error {
        Some(error) if all.is_empty() => Err(no(&error)),
        _ => Ok(all),
    }
}

/// The answer of the gateway that made a decision.
fn decided(running: &RunningArgs, request: Value, key: &str) -> Result<Value, Failure> {
    let states = states(running, false)?;
    let replies = control_client::ask(&states, &word(request), CONTROL_TIMEOUT);
    if replies.answers.is_empty() && replies.silent.is_empty() {
        return Err(none(&states));
    }
    say_silent(&replies.silent)?;
    let mut answers = replies.answers.into_iter().map(|(_, answer)| answer);
    let mut errors = Vec::new();
    for answer in answers.by_ref() {
        match answer["error"].as_str() {
            None if answer[key] == true => return Ok(answer),
            why => errors.push(why.unwrap_or("the answer is not known").to_string()),
        }
    }
    // A gateway with another configuration does not know the ticket.
    let known = errors.iter().find(|error| !error.starts_with("there is no such"));
    Err(no(known.or(errors.first()).map_or("no gateway responds", String::as_str)))
}

fn no(why: &str) -> Failure {
    Failure::denied(format!("{} {}", paint(RED, "error:"), sanitize(why)))
}

fn agent(record: &Value) -> String {
    record["agent"].as_str().map_or_else(|| "unnamed".into(), |name| sanitize(name).into_owned())
}

/// The tickets as a table.
fn table(tickets: &[Value]) -> String {
    let mut table = Table::new(&["ID", "AGENT", "CALL", "LEFT", "PARAMETERS"]);
    for ticket in tickets {
        let text = |key: &str| sanitize(ticket[key].as_str().unwrap_or("?")).into_owned();
        let plain = |text: String| (text, Default::default());
        let params = sanitize(ticket["params"].as_str().unwrap_or("?")).into_owned();
        let is_long = params.chars().count() > SHOWN_PARAMS;
        let mut shown: String = params.chars().take(SHOWN_PARAMS).collect();
        if is_long || ticket["params_cut"] == true {
            shown.push('…');
        }
        table.row(vec![
            (text("id"), BOLD),
            plain(agent(ticket)),
            plain(format!("{}/{}", text("server"), text("tool"))),
            plain(format!("{}s", ticket["expires_in_s"])),
            (shown, DIM),
        ]);
    }
    let mut text = table.render();
    text.push_str(
        "\ntoolward approve ID, or toolward deny ID; all parameters: toolward pending --json\n",
    );
    text
}

/// One ticket with everything that an approver needs.
fn details(ticket: &Value) -> String {
    let text = |key: &str| sanitize(ticket[key].as_str().unwrap_or("?")).into_owned();
    let (id, server, tool) = (text("id"), text("server"), text("tool"));
    let mut out = format!("{}  {} wants to use {server}/{tool}\n", paint(BOLD, &id), agent(ticket));
    out += &format!("  parameters  {}\n", text("params"));
    if ticket["params_cut"] == true {
        let bytes = &ticket["params_bytes"];
        out += &format!("  {}\n", paint(YELLOW, format!("cut: all parameters are {bytes} bytes")));
    }
    for rule in ticket["rules"].as_array().into_iter().flatten() {
        let part = |key: &str| sanitize(rule[key].as_str().unwrap_or("?")).into_owned();
        out += &format!("  rule        {} ({})\n", part("rule"), part("at"));
    }
    out + &format!("  expires     {}\n\n", text("expires"))
}
