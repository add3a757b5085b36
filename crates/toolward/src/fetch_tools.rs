//! Fetches tool lists from the servers if no saved list is given.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use toolward_config::config::{Naming, Telemetry};
use toolward_config::sanitize;
use toolward_gateway::upstream::{Definition, Listed, Servers, Unavailable};
use toolward_policy::{ToolSet, Verdict};

use crate::control_client;
use crate::exit::Failure;
use crate::load::Input;
use crate::log;
use crate::prepared::definitions;
use crate::render::{DIM, paint};
use crate::running;

/// Asks the servers that the policy's tests speak of: what a tool says of itself can decide, and a test
/// that passes only because nothing is known of its tool says nothing.
pub(crate) fn ask_for_tests(input: &mut Input) -> Result<(), Failure> {
    let tests = &input.loaded.tests;
    let outcomes = toolward_policy::testing::run(&input.policy, &input.catalogue, tests);
    let servers = outcomes.iter().map(|outcome| &outcome.case.server);
    let unknown = servers.filter(|server| input.catalogue.tools(server).is_none());
    let unknown: BTreeSet<String> = unknown.cloned().collect();
    ask_those(input, |server| unknown.contains(server))
}

/// Asks the servers whose tools are not known, where two tools of one name would keep the gateway from
/// starting.
pub(crate) fn ask_for_names(input: &mut Input) -> Result<(), Failure> {
    if input.loaded.config.naming != Naming::Flat {
        return Ok(());
    }
    let servers = input.loaded.config.servers.iter().map(|server| server.name.clone());
    let unknown = servers.filter(|server| input.catalogue.tools(server).is_none());
    let unknown: BTreeSet<String> = unknown.collect();
    let known = from_running(input, |server| unknown.contains(server))?;
    ask_those(input, |server| unknown.contains(server) && !known.iter().any(|one| one == server))
}

/// The tools of the configured servers, or of the one that is named: those that a running gateway of this
/// configuration knows, or else the server is asked. One that does not answer is reported and left out.
pub(crate) fn ask(input: &mut Input, only: Option<&str>) -> Result<(), Failure> {
    let known = from_running(input, |server| only.is_none_or(|only| server == only))?;
    ask_those(input, |server| {
        only.is_none_or(|only| server == only) && !known.iter().any(|known| known == server)
    })
}

/// Asks the servers whose tools are not known yet and that the agent may use, except `asked`.
pub(crate) fn ask_unknown(
    input: &mut Input,
    agent: Option<&str>,
    asked: &str,
) -> Result<(), Failure> {
    let servers = input.loaded.config.servers.iter().map(|server| server.name.as_str());
    let wanted = servers.filter(|server| {
        *server != asked
            && input.catalogue.tools(server).is_none()
            && input.policy.decide_server(agent, server).verdict != Verdict::Deny
    });
    let wanted: BTreeSet<String> = wanted.map(String::from).collect();
    let known = from_running(input, |server| wanted.contains(server))?;
    ask_those(input, |server| wanted.contains(server) && !known.iter().any(|known| known == server))
}

/// Uses the tool lists of a running gateway, and prints a note. Returns the servers it knows.
fn from_running(input: &mut Input, these: impl Fn(&str) -> bool) -> Result<Vec<String>, Failure> {
    let mut known = Vec::new();
    let Some(main) = input.loaded.main_file().and_then(|main| main.canonicalize().ok()) else {
        return Ok(known);
    };
    let configured = input.loaded.config.state.clone();
    let registered = running::with_config(&main).into_iter().map(|entry| entry.state);
    let mut states: Vec<PathBuf> = registered.chain(configured).collect();
    states.dedup();
    let servers: Vec<String> =
        input.loaded.config.servers.iter().map(|server| server.name.clone()).collect();
    let mut processes = Vec::new();
    for (process, answer) in control_client::ask(&states, "tools", control_client::PATIENCE).answers
    {
        if answer["config"].as_str().map(Path::new) != Some(&*main) {
            continue;
        }
        for server in servers.iter().filter(|server| these(server)) {
            let listed = answer["servers"].get(server).and_then(Value::as_array);
            if let Some(listed) = listed.filter(|_| !known.contains(server)) {
                input.catalogue.insert(server, Some(ToolSet::read(listed).0));
                known.push(server.clone());
                processes.push(process);
            }
        }
    }
    processes.dedup();
    if !processes.is_empty() {
        let processes: Vec<String> = processes.iter().map(u32::to_string).collect();
        let note = format!(
            "note: using the tool lists of the running gateway (process {})",
            processes.join(", ")
        );
        writeln!(anstream::stderr(), "{}", paint(DIM, note))?;
    }
    Ok(known)
}

fn ask_those(input: &mut Input, these: impl Fn(&str) -> bool) -> Result<(), Failure> {
    let config = &mut input.loaded.config;
    if !config.servers.iter().any(|server| these(&server.name)) {
        return Ok(());
    }
    // A question about policy needs no secrets: without them, it is answered without lists.
    let mut wanted = match definitions(config, &toolward_config::Disk) {
        Ok(wanted) => wanted,
        Err(failure) => {
            let why = failure.text();
            let why = why.lines().next().unwrap_or_default();
            writeln!(anstream::stderr(), "warning: the servers cannot be asked: {why}")?;
            return Ok(());
        }
    };
    wanted.retain(|server| these(&server.name));
    let patience = config.list_timeout;
    for (server, listed) in lists(wanted, patience, false)? {
        match listed {
            Ok(listed) => input.catalogue.insert(&server, Some(listed.catalogue.tools().clone())),
            Err(why) => {
                let (server, why) = (sanitize(&server), why.to_string());
                let why = sanitize(&why);
                writeln!(
                    anstream::stderr(),
                    "warning: the tools of {server} are not known: {why}"
                )?;
            }
        }
    }
    Ok(())
}

/// Lists by server, or the errors.
pub(crate) type Listings = Vec<(String, Result<Listed, Unavailable>)>;

/// What servers list, each by its name. `aloud`: their standard error is shown.
pub(crate) fn lists(
    wanted: Vec<Definition>,
    patience: Duration,
    aloud: bool,
) -> Result<Listings, Failure> {
    if aloud {
        log::start(&Telemetry::default());
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let lists = runtime.block_on(async {
        let servers = Arc::new(Servers::new());
        let all = servers.create(wanted, &[]);
        let asked: Vec<_> = all
            .iter()
            .cloned()
            .map(|server| {
                let servers = servers.clone();
                tokio::spawn(async move { servers.own_list(&server, patience).await })
            })
            .collect();
        let mut lists = Vec::new();
        for (server, asked) in all.iter().zip(asked) {
            if let Ok(listed) = asked.await {
                lists.push((server.name().to_string(), listed));
            }
        }
        servers.close(&all).await;
        lists
    });
    runtime.shutdown_background();
    Ok(lists)
}
