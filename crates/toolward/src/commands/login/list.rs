//! `toolward logins`: the logins of servers, and which are missing.

use std::io::Write;

use anstyle::Style;
use clap::ArgMatches;
use serde_json::{Value, json};
use toolward_config::config::{Connect, LoginOf};
use toolward_config::sanitize;
use toolward_gateway::clock;
use toolward_gateway::login::grant::Grant;
use toolward_gateway::login::store::GrantStore;

use super::load;
use crate::cli::LoginsArgs;
use crate::exit::{self, Failure};
use crate::gateway::state_folder;
use crate::render::{Table, YELLOW};

pub(crate) fn run(args: &LoginsArgs, matches: Option<&ArgMatches>) -> Result<u8, Failure> {
    let input = load(&args.policy, matches)?;
    let config = &input.loaded.config;
    let grants = GrantStore::in_state(&state_folder(config)?).all().map_err(|error| {
        let help = "`toolward logout SERVER` removes a login";
        let error = error.to_string();
        Failure::invalid(format!("error: {}\n  help: {help}", sanitize(&error)))
    })?;
    let with_login = config.servers.iter().filter_map(|server| match &server.connect {
        Connect::Http { login: Some(login), .. } => Some((server.name.as_str(), login.of)),
        _ => None,
    });
    let missing: Vec<(&str, LoginOf)> = with_login
        .filter(|(name, _)| !grants.iter().any(|grant| grant.server() == *name))
        .collect();
    let mut out = anstream::stdout();
    if args.output.json {
        let missing = missing.iter().map(|(name, of)| {
            json!({"server": name, "agent": null, "state": "needs login", "command": command(name, *of)})
        });
        let all: Vec<Value> = grants.iter().map(to_json).chain(missing).collect();
        writeln!(out, "{}", json!(all))?;
        return Ok(exit::OK);
    }
    if grants.is_empty() && missing.is_empty() {
        writeln!(out, "no server has `login`")?;
        return Ok(exit::OK);
    }
    let plain = Style::new();
    let mut table = Table::new(&["server", "agent", "state", "issuer", "scope"]);
    for grant in &grants {
        let text = |text: &str| (sanitize(text).into_owned(), plain);
        let state = match grant.state() {
            "needs login" => ("needs login".into(), YELLOW),
            state => (with_time(grant, state), plain),
        };
        table.row(vec![
            text(grant.server()),
            text(grant.owner().unwrap_or("-")),
            state,
            text(grant.issuer()),
            text(grant.scope().unwrap_or("-")),
        ]);
    }
    for (name, of) in &missing {
        let state = format!("needs login: {}", sanitize(&command(name, *of)));
        let name = (sanitize(name).into_owned(), plain);
        let none = || ("-".to_string(), plain);
        table.row(vec![name, none(), (state, YELLOW), none(), none()]);
    }
    write!(out, "{}", table.render())?;
    Ok(exit::OK)
}

fn command(server: &str, of: LoginOf) -> String {
    match of {
        LoginOf::Gateway => format!("toolward login {server}"),
        LoginOf::Agent => format!("toolward login {server} --as AGENT"),
    }
}

fn with_time(grant: &Grant, state: &str) -> String {
    let left = grant.expires().map(|expires| expires.saturating_sub(clock::seconds()));
    match left.filter(|left| *left > 0) {
        Some(left) if left >= 7200 => format!("{state}, {} h", left / 3600),
        Some(left) if left >= 120 => format!("{state}, {} min", left / 60),
        Some(left) => format!("{state}, {left} s"),
        None => state.into(),
    }
}

/// A login without its tokens.
pub(super) fn to_json(grant: &Grant) -> Value {
    json!({
        "server": grant.server(),
        "agent": grant.owner(),
        "state": grant.state(),
        "issuer": grant.issuer(),
        "scope": grant.scope(),
        "expires": grant.expires(),
        "refreshable": grant.can_refresh(),
        "refreshes": grant.refreshes(),
        "lost": grant.lost(),
    })
}
