//! Tool lists from the servers themselves, where no saved list is given.

use std::collections::BTreeSet;
use std::io::Write;
use std::sync::Arc;

use toolward_config::neutral::neutralise;
use toolward_gateway::upstream::{Log, Servers};

use crate::exit::Failure;
use crate::gateway::definitions;
use crate::policy_input::Input;

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

/// Asks the configured servers, or the one that is named, for their tools. One that does not answer
/// is told of and left out.
pub(crate) fn ask(input: &mut Input, only: Option<&str>) -> Result<(), Failure> {
    ask_those(input, |server| only.is_none_or(|only| server == only))
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
    // What a server says on its way is not what was asked for.
    let quiet: Log = Arc::new(|_| {});
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let lists = runtime.block_on(async {
        let servers = Arc::new(Servers::new(wanted, quiet));
        let asked: Vec<_> = servers
            .all()
            .iter()
            .cloned()
            .map(|server| {
                let servers = servers.clone();
                tokio::spawn(async move { servers.own_list(&server, patience).await })
            })
            .collect();
        let mut lists = Vec::new();
        for (server, asked) in servers.all().iter().zip(asked) {
            if let Ok(listed) = asked.await {
                lists.push((server.name().to_string(), listed));
            }
        }
        servers.close().await;
        lists
    });
    runtime.shutdown_background();
    for (server, listed) in lists {
        match listed {
            Ok(listed) => input.catalogue.insert(&server, Some(listed.catalogue.tools().clone())),
            Err(why) => {
                let (server, why) = (neutralise(&server), why.to_string());
                let why = neutralise(&why);
                writeln!(anstream::stderr(), "warning: {server} does not list its tools: {why}")?;
            }
        }
    }
    Ok(())
}
