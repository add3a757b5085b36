//! Fetches tool lists from the servers if no saved list is given.

use std::collections::{BTreeSet, HashMap};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use toolward_config::config::{Config, Naming, Telemetry};
use toolward_config::sanitize;
use toolward_gateway::upstream::{Definition, Listed, Servers, Unavailable};
use toolward_policy::{Family, ToolSet, Verdict};
use toolward_wire::list::ListKind;

use crate::control_client;
use crate::exit::Failure;
use crate::load::Input;
use crate::log;
use crate::prepared::definitions;
use crate::render::{DIM, paint};
use crate::running;

/// Fetches the tool lists of servers that the policy's tests refer to. Annotations can affect a decision, and
/// a test that passes only because its tool is unknown is worthless.
pub(crate) fn ask_for_tests(input: &mut Input) -> Result<(), Failure> {
    let tests = &input.loaded.tests;
    let outcomes = toolward_policy::testing::run(&input.policy, &input.catalogue, tests);
    let of_tools = outcomes.iter().filter(|outcome| outcome.case.family == Family::Tools);
    let servers = of_tools.map(|outcome| &outcome.case.server);
    let unknown = servers.filter(|server| input.catalogue.tools(server).is_none());
    let unknown: BTreeSet<String> = unknown.cloned().collect();
    ask_those(input, |server| unknown.contains(server))
}

/// Fetches unknown tool lists if duplicate names would keep the gateway from starting.
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

/// The tools of all configured servers, or of the given one: from a running gateway with this configuration,
/// or else from the server itself. A server that does not respond is reported and left out.
pub(crate) fn ask(input: &mut Input, only: Option<&str>) -> Result<(), Failure> {
    let known = from_running(input, |server| only.is_none_or(|only| server == only))?;
    ask_those(input, |server| {
        only.is_none_or(|only| server == only) && !known.iter().any(|known| known == server)
    })
}

/// Fetches the unknown tool lists of servers that the agent may use, except `asked`.
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
    let (known, processes) = ask_running(input, these);
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

/// Adds the tool lists of running gateways with this configuration. Returns the servers that they know, and the
/// processes.
pub(crate) fn ask_running(
    input: &mut Input,
    these: impl Fn(&str) -> bool,
) -> (Vec<String>, Vec<u32>) {
    let (mut known, mut processes) = (Vec::new(), Vec::new());
    let servers: Vec<String> =
        input.loaded.config.servers.iter().map(|server| server.name.clone()).collect();
    for (process, answer) in running_lists(input, "tools") {
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
    (known, processes)
}

/// The lists of running gateways with this configuration, by process.
fn running_lists(input: &Input, kind: &str) -> Vec<(u32, Value)> {
    let main = input.loaded.main_file().and_then(|main| main.canonicalize().ok());
    let Some(main) = main else { return Vec::new() };
    let configured = input.loaded.config.state.clone();
    let registered = running::with_config(&main).into_iter().map(|entry| entry.state);
    let mut states: Vec<PathBuf> = registered.chain(configured).collect();
    states.dedup();
    let mut found = control_client::ask(&states, kind, control_client::CONTROL_TIMEOUT).answers;
    found.retain(|(_, answer)| answer["config"].as_str().map(Path::new) == Some(&*main));
    found
}

/// The names of one kind of entries, by server, in configuration order: from a running gateway with this
/// configuration, or else from the servers. Prompts have names, resources and templates URIs.
pub(crate) fn names(
    input: &Input,
    kind: ListKind,
    only: Option<&str>,
) -> Result<Vec<(String, Vec<String>)>, Failure> {
    let (word, _) = words(kind);
    let wanted = |server: &str| only.is_none_or(|only| server == only);
    let mut known: HashMap<String, Vec<String>> = running_names(input, kind).into_iter().collect();
    let asked = usable(input, word, |server| wanted(server) && !known.contains_key(server))?;
    for (server, listed) in lists_of(kind, asked, input.loaded.config.list_timeout)? {
        match listed {
            Ok(listed) => {
                let entries = listed.catalogue.entries().iter();
                known.insert(server, entries.map(|entry| entry.name().to_string()).collect());
            }
            Err(why) => not_known(word, &server, &why.to_string())?,
        }
    }
    let servers = input.loaded.config.servers.iter().filter(|server| wanted(&server.name));
    Ok(servers.filter_map(|server| known.remove_entry(&server.name)).collect())
}

/// The same, of running gateways alone.
pub(crate) fn running_names(input: &Input, kind: ListKind) -> Vec<(String, Vec<String>)> {
    let (word, member) = words(kind);
    let running = running_lists(input, word);
    let servers = input.loaded.config.servers.iter().filter_map(|server| {
        let mut lists = running.iter().map(|(_, answer)| &answer["servers"][&server.name]);
        let entries = lists.find_map(Value::as_array)?.iter();
        let names = entries.filter_map(|entry| Some(entry[member].as_str()?.to_string()));
        Some((server.name.clone(), names.collect()))
    });
    servers.collect()
}

/// The gateway's word for a kind of list, and the member that names an entry.
fn words(kind: ListKind) -> (&'static str, &'static str) {
    match kind {
        ListKind::Tools => ("tools", "name"),
        ListKind::Prompts => ("prompts", "name"),
        ListKind::Resources => ("resources", "uri"),
        ListKind::ResourceTemplates => ("templates", "uriTemplate"),
    }
}

fn not_known(lists: &str, server: &str, why: &str) -> Result<(), Failure> {
    let (server, why) = (sanitize(server), sanitize(why));
    writeln!(anstream::stderr(), "warning: the {lists} of {server} are not known: {why}")?;
    Ok(())
}

fn ask_those(input: &mut Input, these: impl Fn(&str) -> bool) -> Result<(), Failure> {
    let wanted = usable(input, "tools", these)?;
    for (server, listed) in lists_of(ListKind::Tools, wanted, input.loaded.config.list_timeout)? {
        match listed {
            Ok(listed) => input.catalogue.insert(&server, Some(listed.catalogue.tools().clone())),
            Err(why) => not_known("tools", &server, &why.to_string())?,
        }
    }
    Ok(())
}

/// How these servers are reached. A policy query needs no secrets: servers without theirs are reported, and left out.
fn usable(
    input: &Input,
    lists: &str,
    these: impl Fn(&str) -> bool,
) -> Result<Vec<Definition>, Failure> {
    let config = &input.loaded.config;
    if !config.servers.iter().any(|server| these(&server.name)) {
        return Ok(Vec::new());
    }
    let mut usable = Config { servers: Vec::new(), builtin: config.builtin, ..Config::default() };
    usable.limits_of = config.limits_of;
    for server in config.servers.iter().filter(|server| these(&server.name)) {
        let mut alone = Config { servers: vec![server.clone()], ..Config::default() };
        match definitions(&mut alone, &toolward_config::Disk) {
            Ok(_) => usable.servers.push(server.clone()),
            Err(failure) => {
                let why = failure.text();
                let why = why.lines().next().unwrap_or_default();
                not_known(lists, &server.name, why.strip_prefix("error: ").unwrap_or(why))?;
            }
        }
    }
    let mut wanted = definitions(&mut usable, &toolward_config::Disk)?;
    wanted.retain(|server| these(&server.name));
    Ok(wanted)
}

/// Lists by server, or the errors.
pub(crate) type Listings = Vec<(String, Result<Listed, Unavailable>)>;

/// Fetches the tool lists of servers, by name. `aloud`: their standard error is shown.
pub(crate) fn lists(
    wanted: Vec<Definition>,
    timeout: Duration,
    aloud: bool,
) -> Result<Listings, Failure> {
    if aloud {
        log::start(&Telemetry::default());
    }
    lists_of(ListKind::Tools, wanted, timeout)
}

/// Fetches the lists of one kind, by server.
fn lists_of(
    kind: ListKind,
    wanted: Vec<Definition>,
    timeout: Duration,
) -> Result<Listings, Failure> {
    if wanted.is_empty() {
        return Ok(Vec::new());
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
                tokio::spawn(async move { servers.own_list_as((&server, kind), timeout).await })
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
