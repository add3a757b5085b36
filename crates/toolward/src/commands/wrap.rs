//! `toolward wrap`: policy around one stdio server.

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::ArgMatches;
use toolward_config::neutral::neutralise;
use toolward_gateway::audit::Audit;
use toolward_gateway::decide::Client;
use toolward_gateway::listen::{self, Ended};
use toolward_gateway::pipeline::Gateway;
use toolward_gateway::upstream::{Launch, Log};

use crate::cli::{PolicyArgs, ToolsArgs, WrapArgs};
use crate::exit::{self, Failure};
use crate::policy_input::Input;
use crate::render::count;

pub(crate) fn run(args: WrapArgs, matches: Option<&ArgMatches>) -> Result<u8, Failure> {
    match prepare(&args, matches) {
        Ok(gateway) => serve(gateway),
        // A client that is waiting for its first answer shall hear what is wrong.
        Err(failure) => {
            tell_first_request(&failure);
            Err(failure)
        }
    }
}

fn prepare(args: &WrapArgs, matches: Option<&ArgMatches>) -> Result<Gateway, Failure> {
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
    let log: Log = Arc::new(|line: &str| {
        let _ = writeln!(std::io::stderr(), "toolward: {}", neutralise(line));
    });
    let layers = input.policy.layer_names().count();
    match layers {
        0 => log("there is no policy: everything that the server offers is allowed"),
        _ => log(&format!(
            "policy loaded: {}, {}, {}",
            count(layers, "layer"),
            count(input.policy.agents().len(), "agent"),
            count(input.selectors, "selector")
        )),
    }
    let (Some(program), arguments) = (args.command.first(), args.command.get(1..)) else {
        return Err(Failure::usage("error: the server's command is missing"));
    };
    let own_name = Path::new(program).file_stem().unwrap_or(program).to_string_lossy().into_owned();
    let launch = Launch {
        name: args.name.clone().unwrap_or(own_name),
        program: program.clone(),
        arguments: arguments.unwrap_or_default().to_vec(),
        environment: args.env.iter().map(|given| variable(given)).collect::<Result<_, _>>()?,
        folder: None,
    };
    let audit = Audit::open(&audit_folder(args.audit.as_deref())?)
        .map_err(|error| Failure::invalid(format!("error: {error}")))?;
    let client = Client { agent: args.agent.clone(), identity: "launch-flag" };
    let mut gateway = Gateway::new(input.policy, input.version, client, launch, audit, log);
    gateway.timeout = Duration::from_secs(args.timeout);
    Ok(gateway)
}

fn serve(gateway: Gateway) -> Result<u8, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let ended = runtime.block_on(async {
        let gateway = Arc::new(gateway);
        let session = listen::stdio(gateway.clone(), tokio::io::stdin(), tokio::io::stdout());
        tokio::select! {
            ended = session => ended,
            () = terminated() => {
                gateway.close().await;
                Ended::Closed
            }
        }
    });
    // Reading standard input cannot be interrupted; nothing waits for it any more.
    runtime.shutdown_background();
    match ended {
        Ended::Closed => Ok(exit::OK),
        Ended::NotStarted(why) => Err(Failure::invalid(format!("error: {}", neutralise(&why)))),
    }
}

async fn terminated() {
    use tokio::signal::unix::{SignalKind, signal};
    let kinds = [SignalKind::terminate(), SignalKind::hangup(), SignalKind::quit()];
    let [Ok(mut terminate), Ok(mut hang_up), Ok(mut quit)] = kinds.map(signal) else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = terminate.recv() => {}
        _ = hang_up.recv() => {}
        _ = quit.recv() => {}
        _ = tokio::signal::ctrl_c() => {}
    }
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

/// Waits for the client's first request and answers it with what is wrong.
fn tell_first_request(failure: &Failure) {
    let mut line = String::new();
    while std::io::stdin().read_line(&mut line).is_ok_and(|read| read > 0) {
        if let Some(answer) = listen::startup_error(line.as_bytes(), &failure.text()) {
            let mut stdout = std::io::stdout().lock();
            let _ = stdout.write_all(&answer);
            let _ = stdout.write_all(b"\n");
            return;
        }
        line.clear();
    }
}
