//! `toolward wrap`: applies a policy to one stdio server.

pub(crate) mod name;

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use clap::ArgMatches;
use toolward_config::config::Config;
use toolward_gateway::active::Active;
use toolward_gateway::audit::{Setup, redact};
use toolward_gateway::budget::Budget;
use toolward_gateway::client::{Scope, ServerId};
use toolward_gateway::context::Context;
use toolward_gateway::gateway::Gateway;
use toolward_gateway::upstream::{Definition, Inherit, Launch, Reach, Timeouts};

use crate::approvals;
use crate::cli::{PolicyArgs, ToolsArgs, WrapArgs};
use crate::commands::stdio::{by_flag, is_known, may_be_unnamed, serve, tell_first_request};
use crate::exit::Failure;
use crate::gateway::{Announcement, open_audit, recorded_arguments};
use crate::load::{Input, options};
use crate::log;
use crate::ownership;
use crate::policy_gate::passes;
use crate::prepared::{Predecessor, Prepare, Prepared};
use crate::reload::{InitialLoad, ReloadContext, Restart};

pub(crate) fn run(args: WrapArgs, matches: Option<&ArgMatches>) -> Result<u8, Failure> {
    let caller = by_flag(args.agent.as_deref());
    match prepare(&args, matches) {
        Ok((gateway, again)) => {
            serve(gateway, caller, Scope::One(ServerId::FIRST), again, args.request_bytes)
        }
        // The client's first request is answered with the error.
        Err(failure) => {
            tell_first_request(&failure);
            Err(failure)
        }
    }
}

fn prepare(
    args: &WrapArgs,
    matches: Option<&ArgMatches>,
) -> Result<(Gateway, ReloadContext), Failure> {
    let policy = PolicyArgs {
        config: None,
        policy: args.policy.clone(),
        allowlist_config: args.allowlist_config.clone(),
        format: None,
        read_only: args.read_only,
        whole_configurations: false,
        search: false,
    };
    let input = Input::load(&policy, &ToolsArgs { lists: Vec::new() }, matches)?;
    passes(&input)?;
    if args.agent.is_none() && !args.allow_all {
        may_be_unnamed(&input, "start it with `--agent NAME`")?;
    }
    log::start(&input.loaded.config.telemetry);
    if let Some(agent) = args.agent.as_deref() {
        is_known(&input, agent, args.allow_all)?;
    }
    let options = options(&policy, matches);
    let first = InitialLoad::of(&input);
    ownership::log_warnings(&ownership::refuse(&input.loaded)?);
    Announcement::of(&input, args.allow_all).log("enabled");
    let (Some(program), arguments) = (args.command.first(), args.command.get(1..)) else {
        return Err(Failure::usage("error: the server's command is missing"));
    };
    let name = args.name.clone().unwrap_or_else(|| name::of_command(&args.command));
    let launch = Launch {
        name: name.clone(),
        program: program.clone(),
        file: None,
        arguments: arguments.unwrap_or_default().to_vec(),
        environment: args.env.iter().map(|given| variable(given)).collect::<Result<_, _>>()?,
        // The client chose this environment for the server.
        inherit: if args.clean_env { Inherit::default() } else { Inherit::Everything },
        folder: None,
    }
    .resolved();
    if args.max_timeout.is_some_and(|most| most < args.timeout) {
        return Err(Failure::usage("error: `--timeout` is longer than `--max-timeout`"));
    }
    let server = Definition {
        name: name.into(),
        reach: Reach::Child(launch),
        timeouts: Timeouts {
            otherwise: Some(Duration::from_secs(args.timeout)),
            most: args.max_timeout.map(Duration::from_secs),
            ..Timeouts::default()
        },
        share: false,
        max_children: 32,
        eager: false,
        answer_bytes: 64 << 20,
        cache: true,
        results: Default::default(),
        schemes: Vec::new(),
        roots: None,
    };
    let (allow_all, servers) = (args.allow_all, Some(vec![server]));
    let prepare = Prepare { allow_all, servers, only: None, authenticates: false };
    let servers = crate::gateway::servers(input.loaded.config.state.as_deref());
    let configuration = approvals::configuration(&input);
    let nothing = Predecessor { servers: &servers, active: None, accept: false };
    let Prepared { config, setup } = Prepared::from(input, &prepare, nothing)?;
    // Its client is its own, so it shares nothing with other gateways.
    let own = Config { state: config.state.clone(), ..Config::default() };
    let sealer = Arc::new(crate::gateway::sealer(&Config::default())?);
    let context = Context {
        servers: Arc::new(servers),
        audit: open_audit(audit_setup(args.audit.as_deref())?)?,
        sealer: sealer.clone(),
        // `wrap` also works if the home directory is not writable.
        approvals: approvals::open(&own, &configuration, &sealer)
            .or_else(|_| approvals::open(&Config::default(), &configuration, &sealer))?,
        held: Default::default(),
        links: Default::default(),
        series: Default::default(),
        tasks: Default::default(),
        current: Default::default(),
        budget: Budget::new(config.limits_of.buffered_bytes as usize),
        // There is no other server that could be listed in the meantime.
        list_timeout: Duration::from_secs(args.timeout),
    };
    let gateway = Gateway::new(context, Active::new(setup));
    let (anew, bearer, socket_files) = (Restart::ByOthers, None, Vec::new());
    let begun = config;
    let again = ReloadContext { options, prepare, begun, first, anew, bearer, socket_files };
    Ok((gateway, again))
}

/// `NAME` passes a variable on, `NAME=VALUE` sets one.
fn variable(given: &str) -> Result<(OsString, OsString), Failure> {
    match given.split_once('=') {
        Some((name, value)) => Ok((name.into(), value.into())),
        None => match std::env::var_os(given) {
            Some(value) => Ok((given.into(), value)),
            None => Err(Failure::usage(format!("error: the variable `{given}` is not set"))),
        },
    }
}

fn audit_setup(given: Option<&Path>) -> Result<Setup, Failure> {
    let home = std::env::var_os("HOME").filter(|home| home != OsStr::new(""));
    let state = home.map(|home| Path::new(&home).join(".local/state/toolward"));
    let folder = match (given, &state) {
        (Some(folder), _) => folder.into(),
        (None, Some(state)) => state.join("audit"),
        (None, None) => {
            return Err(Failure::usage(
                "error: HOME is not set; give a directory for the audit log: --audit DIR",
            ));
        }
    };
    // `wrap` also works if the home directory is not writable.
    let mode = redact::Arguments::default();
    let arguments = recorded_arguments(mode, state.as_deref()).unwrap_or_default();
    Ok(Setup { arguments, ..Setup::in_folder(folder) })
}
