//! `toolward wrap`: policy around one stdio server.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::ArgMatches;
use toolward_gateway::audit::Setup;
use toolward_gateway::client::Scope;
use toolward_gateway::names::Naming;
use toolward_gateway::pipeline::Gateway;
use toolward_gateway::sight::Current;
use toolward_gateway::upstream::{Definition, Launch, Reach, Servers};

use crate::cli::{PolicyArgs, ToolsArgs, WrapArgs};
use crate::commands::stdio::{by_flag, serve, tell_first_request};
use crate::exit::Failure;
use crate::gateway::{announce, log, open_audit};
use crate::guards;
use crate::policy_input::{Input, options};
use crate::reload::{Again, Anew, First};
use crate::tested::passes;

pub(crate) fn run(args: WrapArgs, matches: Option<&ArgMatches>) -> Result<u8, Failure> {
    let caller = by_flag(args.agent.as_deref());
    match prepare(&args, matches) {
        Ok((gateway, again)) => serve(gateway, caller, Scope::One(0), again),
        // A client that is waiting for its first answer shall hear what is wrong.
        Err(failure) => {
            tell_first_request(&failure);
            Err(failure)
        }
    }
}

fn prepare(args: &WrapArgs, matches: Option<&ArgMatches>) -> Result<(Gateway, Again), Failure> {
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
    let options = options(&policy, matches);
    let (log, first) = (log(), First::of(&input));
    announce(&input, args.allow_all, "enabled", &log);
    let policy = (input.policy, input.version);
    let config = input.loaded.config;
    let (Some(program), arguments) = (args.command.first(), args.command.get(1..)) else {
        return Err(Failure::usage("error: the server's command is missing"));
    };
    let own_name = Path::new(program).file_stem().unwrap_or(program).to_string_lossy().into_owned();
    let name = args.name.clone().unwrap_or(own_name);
    let launch = Launch {
        name: name.clone(),
        program: program.clone(),
        arguments: arguments.unwrap_or_default().to_vec(),
        environment: args.env.iter().map(|given| variable(given)).collect::<Result<_, _>>()?,
        folder: None,
    };
    let server = Definition {
        name: name.into(),
        reach: Reach::Child(launch),
        timeouts: Vec::new(),
        timeout: Duration::from_secs(args.timeout),
        share: false,
        max_children: 8,
        eager: false,
        answer_bytes: 64 << 20,
        results: Default::default(),
    };
    let servers = Servers::new(vec![server.clone()], log.clone());
    let snapshot = guards::snapshot(policy, &config, args.allow_all, servers.all(), None, &log)?;
    let gateway = Gateway {
        current: Current::new(snapshot),
        servers: Arc::new(servers),
        naming: Naming::Prefix { separator: "__".into() },
        audit: open_audit(Setup::in_folder(audit_folder(args.audit.as_deref())?), log.clone())?,
        log,
        // There is no other server that could be listed in the meantime.
        list_timeout: Duration::from_secs(args.timeout),
    };
    let (servers, allow_all) = (Some(vec![server]), args.allow_all);
    let (anew, bearer, socket_files) = (Anew::ByOthers, None, Vec::new());
    let begun = config;
    let again = Again { options, allow_all, servers, begun, first, anew, bearer, socket_files };
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

fn audit_folder(given: Option<&Path>) -> Result<PathBuf, Failure> {
    if let Some(folder) = given {
        return Ok(folder.into());
    }
    match std::env::var_os("HOME").filter(|home| home != OsStr::new("")) {
        Some(home) => Ok(Path::new(&home).join(".local/state/toolward/audit")),
        None => Err(Failure::usage(
            "error: HOME is not set; say where the audit record goes: --audit DIR",
        )),
    }
}
