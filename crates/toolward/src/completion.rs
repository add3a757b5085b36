//! Completion of agents, servers and tools of the configuration, when a shell asks.
//!
//! The shell starts this program with [`VARIABLE`] set and the words of the command line. Arguments are found by
//! name, so that those of new commands are completed too. No server is started: tools come from a running gateway.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Arg, Command, CommandFactory};
use clap_complete::engine::{ArgValueCandidates, CompletionCandidate};
use clap_complete::env::CompleteEnv;
use toolward_config::Options;

use crate::cli::Cli;
use crate::clients::table::CLIENTS;
use crate::fetch_tools::ask_running;
use crate::load::Input;
use crate::reads::Reads;

/// Set by the script of `toolward completions`, to the name of the shell.
pub(crate) const VARIABLE: &str = "TOOLWARD_COMPLETE";

/// Answers a shell that asks for completions. Returns whether one did.
pub(crate) fn completes() -> bool {
    if std::env::var_os(VARIABLE).is_none() {
        return false;
    }
    let here = std::env::current_dir().ok();
    let asked = CompleteEnv::with_factory(command).var(VARIABLE);
    // A shell cannot show an error here.
    asked.try_complete(std::env::args_os(), here.as_deref()).unwrap_or(true)
}

fn command() -> Command {
    with_candidates(Cli::command())
}

fn with_candidates(command: Command) -> Command {
    command.mut_args(candidates).mut_subcommands(with_candidates)
}

fn candidates(arg: Arg) -> Arg {
    let value = arg.get_value_names().and_then(|names| names.first()).map(|name| name.to_string());
    let find: fn() -> Vec<String> = match (arg.get_id().as_str(), value.as_deref()) {
        ("agent", _) | (_, Some("AGENT")) => agents,
        ("server", _) | (_, Some("SERVER")) => servers,
        (_, Some("SERVER/TOOL" | "SERVER/SELECTOR")) => tools,
        ("client", _) => clients,
        _ => return arg,
    };
    arg.add(ArgValueCandidates::new(move || {
        find().into_iter().map(CompletionCandidate::new).collect::<Vec<_>>()
    }))
}

fn clients() -> Vec<String> {
    CLIENTS.iter().map(|client| client.id.into()).collect()
}

fn agents() -> Vec<String> {
    let Some(input) = input() else { return Vec::new() };
    let configured = input.loaded.config.agents.iter().map(|agent| agent.name.clone());
    let mut agents: Vec<String> =
        input.policy.agents().into_iter().map(String::from).chain(configured).collect();
    agents.sort();
    agents.dedup();
    agents
}

fn servers() -> Vec<String> {
    let Some(input) = input() else { return Vec::new() };
    input.loaded.config.servers.iter().map(|server| server.name.clone()).collect()
}

/// `SERVER/TOOL` of servers whose list a running gateway knows, and `SERVER/` of the others.
fn tools() -> Vec<String> {
    let Some(mut input) = input() else { return Vec::new() };
    ask_running(&mut input, |_| true);
    let servers = input.loaded.config.servers.iter().map(|server| server.name.as_str());
    servers
        .flat_map(|server| match input.catalogue.tools(server) {
            Some(known) => {
                known.tools().iter().map(|tool| format!("{server}/{}", tool.name())).collect()
            }
            None => vec![format!("{server}/")],
        })
        .collect()
}

/// The configuration of the command line that is being completed, or the one that is found.
fn input() -> Option<Input> {
    let words: Vec<OsString> = std::env::args_os().skip_while(|word| word != "--").collect();
    let named = words.windows(2).find_map(|pair| match pair {
        [flag, file] if flag == "-c" || flag == "--config" => Some(PathBuf::from(file)),
        _ => None,
    });
    let options = Options { main: named, search: true, ..Options::default() };
    Input::from(&options, Vec::new(), &Reads::default()).ok()
}
