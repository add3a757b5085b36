//! `toolward serve`: the gateway over Streamable HTTP.

use std::path::PathBuf;
use std::sync::Arc;

use clap::ArgMatches;
use toolward_config::config::{Config, Listen};
use toolward_config::neutral::neutralise;
use toolward_gateway::listen::http::{Endpoint, Setup};
use toolward_gateway::listen::origin::Reachable;
use toolward_gateway::listen::serve::{Socket, serve};
use toolward_gateway::sealed::Sealer;
use toolward_gateway::upstream::Address;

use crate::cli::{ServeArgs, ToolsArgs};
use crate::exit::{self, Failure};
use crate::gateway::{GRACE, build, identities, log, state_folder, terminated};
use crate::policy_input::Input;

pub(crate) fn run(args: ServeArgs, matches: Option<&ArgMatches>) -> Result<u8, Failure> {
    let input = Input::load(&args.policy, &ToolsArgs { lists: Vec::new() }, matches)?;
    let has_policy = input.policy.layer_names().next().is_some();
    // Where some file speaks of agents, it matters who calls.
    let speaks_of_agents = input.has_agents_layer || !input.loaded.config.agents.is_empty();
    let needs_name = speaks_of_agents && input.loaded.config.deny_on_missing_agent;
    may_listen(&input.loaded.config, has_policy)?;
    let log = log();
    let (gateway, config) = build(input, log.clone())?;
    let sockets: Vec<Socket> = config.listen.iter().map(bind).collect::<Result<_, _>>()?;
    let state = state_folder(&config)?;
    let sealer = Sealer::in_folder(&state).map_err(|error| {
        let state = state.display().to_string();
        Failure::invalid(format!("error: {}: {error}", neutralise(&state)))
    })?;
    let identities = identities(&config, needs_name)?;
    if needs_name && identities.tokens.is_empty() {
        log("no agent has a token, and callers without a name are turned away: nobody can come in");
    }
    let gateway = Arc::new(gateway);
    let setup = Setup {
        identities,
        reachable: reachable(&config),
        sealer,
        state,
        request_bytes: usize::try_from(config.limits_of.request_bytes).unwrap_or(usize::MAX),
        buffered_bytes: usize::try_from(config.limits_of.buffered_bytes).unwrap_or(usize::MAX),
        session_idle: None,
    };
    let endpoint = Arc::new(Endpoint::new(gateway.clone(), setup));
    let (end, ending) = tokio::sync::watch::channel(false);
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(64);
    let most = config.limits_of.streams as usize;

    // Signals are waited for on a thread of their own; the others serve.
    let signals = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    if let Err(why) = signals.block_on(gateway.start()) {
        return Err(Failure::invalid(format!("error: {}", neutralise(&why))));
    }
    for socket in &sockets {
        log(&match socket {
            Socket::Tcp(_) => format!("listening on http://{}/mcp", socket.address()),
            Socket::Unix(..) => format!("listening on {}", socket.address()),
        });
    }
    std::thread::spawn(move || {
        signals.block_on(async {
            terminated().await;
            log("ending: requests under way are finished");
            let _ = end.send(true);
            // Whoever asks a second time does not want to wait.
            terminated().await;
            std::process::exit(i32::from(exit::NO));
        });
    });
    let paths: Vec<PathBuf> = sockets.iter().filter_map(Socket::path).collect();
    serve(endpoint, sockets, threads, most, &ending, GRACE)?;
    for path in paths {
        let _ = std::fs::remove_file(path);
    }
    Ok(exit::OK)
}

/// Nobody listens to the world without asking who comes.
fn may_listen(config: &Config, has_policy: bool) -> Result<(), Failure> {
    if !config.listens_beyond_loopback() {
        return Ok(());
    }
    let refuse = |why: &str, help: &str| {
        Err(Failure::invalid(format!(
            "error: `listen` reaches beyond this machine, and {why}\n  help: {help}"
        )))
    };
    if !config.authenticates() {
        return refuse(
            "no agent has a credential",
            "give agents `tokens`, or listen on 127.0.0.1 behind something that asks",
        );
    }
    if !config.deny_on_missing_agent {
        return refuse(
            "callers without a name are let in",
            "leave out `defaults.deny_on_missing_agent: false`, or listen on 127.0.0.1",
        );
    }
    if !has_policy {
        return refuse("there is no policy", "define `agents` or `allowed_tools`");
    }
    Ok(())
}

fn bind(listen: &Listen) -> Result<Socket, Failure> {
    let bound = match listen {
        Listen::Tcp(address) => Socket::tcp(*address),
        Listen::Unix(path) => Socket::unix(path.clone()),
    };
    bound.map_err(|error| {
        let at = match listen {
            Listen::Tcp(address) => address.to_string(),
            Listen::Unix(path) => format!("unix:{}", path.display()),
        };
        Failure::invalid(format!("error: cannot listen on {}: {error}", neutralise(&at)))
    })
}

/// The names under which the gateway may be asked.
fn reachable(config: &Config) -> Reachable {
    let mut hosts = config.allowed_hosts.clone();
    let mut origins = config.allowed_origins.clone();
    if let Some(url) = &config.public_url
        && let Ok(address) = Address::parse(url)
    {
        let scheme = if address.tls { "https" } else { "http" };
        origins.push(format!("{scheme}://{}", address.authority));
        hosts.push(address.authority);
    }
    for listen in &config.listen {
        if let Listen::Tcp(address) = listen
            && !address.ip().is_unspecified()
        {
            hosts.push(address.ip().to_string());
        }
    }
    Reachable::new(hosts, origins)
}
