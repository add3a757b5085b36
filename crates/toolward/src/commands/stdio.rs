//! `toolward stdio`: the gateway for one client on standard input and output.

mod bridge;

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

use clap::ArgMatches;
use tokio::sync::watch;
use toolward_config::config::Config;
use toolward_config::{CONFIG_VARIABLE, USER_CONFIGURATION, sanitize};
use toolward_gateway::client::{Caller, Scope, ServerId};
use toolward_gateway::downstream;
use toolward_gateway::downstream::stdio::Ended;
use toolward_gateway::downstream::stdio_pipes;
use toolward_gateway::gateway::Gateway;

use crate::cli::StdioArgs;
use crate::commands::serve::load;
use crate::control;
use crate::exit::{self, Failure};
use crate::gateway::{began, build, terminated};
use crate::identity::identities;
use crate::load::{Input, UnknownAgent, options};
use crate::prepared::Prepare;
use crate::reload::{Bearer, InitialLoad, ReloadContext, Restart};
use crate::sinks;

/// The variable with the token of the calling agent, set in the client's configuration.
pub(crate) const TOKEN_VARIABLE: &str = "TOOLWARD_TOKEN";

pub(crate) fn run(mut args: StdioArgs, matches: Option<&ArgMatches>) -> Result<u8, Failure> {
    if let Some(url) = &args.connect {
        return bridge::run(url, args.request_bytes);
    }
    if args.server.is_some() && args.policy.config.is_none() {
        args.policy.config = user_configuration();
    }
    let scope = match args.server {
        // No other server is created in this process.
        Some(_) => Scope::One(ServerId::FIRST),
        None => Scope::All,
    };
    let prepared = || {
        let (allow_all, servers, only) = (args.allow_all, None, args.server.clone());
        let prepare = Prepare { allow_all, servers, only, authenticates: false };
        let restrict = |config: &mut Config| prepare.restrict(config);
        let input = load(&args.policy, matches, args.on_invalid_policy, restrict)?;
        sinks::reject_stdout(&input.loaded.config)?;
        let (first, denying) = (InitialLoad::of(&input), input.denying.is_some());
        if args.agent.is_none() && std::env::var_os(TOKEN_VARIABLE).is_none() && !args.allow_all {
            may_be_unnamed(&input, "start it with `--agent NAME`, or set TOOLWARD_TOKEN")?;
        }
        if let Some(agent) = args.agent.as_deref() {
            is_known(&input, agent, args.allow_all)?;
        }
        let (gateway, begun) = build(input, &prepare)?;
        // An empty token is invalid: the variable was probably meant to contain one.
        let token =
            std::env::var_os(TOKEN_VARIABLE).map(|token| token.to_string_lossy().into_owned());
        let caller = match caller(args.agent.as_deref(), token.as_deref(), &begun) {
            // A gateway that denies everything cannot authenticate.
            Err(_) if denying => by_flag(None),
            Err(NotCaller::Failed(failure)) => return Err(failure),
            Err(NotCaller::Wrong(why)) => {
                gateway.context.audit.turned_away("stdio", why);
                gateway.context.audit.close();
                return Err(Failure::invalid(format!("error: {why}")));
            }
            Ok(caller) => caller,
        };
        let options = options(&args.policy, matches);
        let (anew, socket_files) = (Restart::ByOthers, Vec::new());
        // A reload looks the token up again.
        let prepare = Prepare { authenticates: token.is_some(), ..prepare };
        let revoked = watch::Sender::new(false);
        let agent = caller.agent.clone();
        let bearer = token.map(|token| Bearer { token, agent, revoked });
        let again = ReloadContext { options, prepare, begun, first, anew, bearer, socket_files };
        Ok((gateway, caller, again))
    };
    match prepared() {
        Ok((gateway, caller, again)) => serve(gateway, caller, scope, again, args.request_bytes),
        // The client's first request is answered with the error.
        Err(failure) => {
            tell_first_request(&failure);
            Err(failure)
        }
    }
}

/// The user's configuration, unless `TOOLWARD_CONFIG` names another one. Clients start the entries of `toolward init`
/// in the directory of a project, whose `toolward.yaml` must not take effect: it could start any program, with the
/// secrets of the entry. Some clients do not pass on `HOME`.
fn user_configuration() -> Option<PathBuf> {
    let is_named = std::env::var_os(CONFIG_VARIABLE).is_some_and(|file| !file.is_empty());
    let home = std::env::home_dir().filter(|home| home.is_absolute() && !is_named)?;
    Some(home.join(USER_CONFIGURATION))
}

/// Rejects an unnamed caller if the policy has agents: everything would be denied, because the agent was not
/// given.
pub(crate) fn may_be_unnamed(input: &Input, help: &str) -> Result<(), Failure> {
    if !input.needs_name() || input.denying.is_some() {
        return Ok(());
    }
    let mut agents = input.policy.agents().join(", ");
    if agents.is_empty() {
        agents = "none".into();
    }
    Err(Failure::invalid(format!(
        "error: the agent has no name, and the policy denies everything to unnamed callers\n  \
         help: {help}; agents: {}",
        sanitize(&agents)
    )))
}

/// Refuses to start for an agent that no rule names if everything would be denied to it. If the rules of
/// `default` apply, this is logged, because the name may be a typo.
pub(crate) fn is_known(input: &Input, agent: &str, allow_all: bool) -> Result<(), Failure> {
    let Some(unknown) = input.unknown_agent(agent).filter(|_| input.denying.is_none()) else {
        return Ok(());
    };
    if !unknown.is_denied || allow_all {
        tracing::warn!(target: "policy", "{} (--agent)", unknown.note());
        return Ok(());
    }
    let UnknownAgent { message, help, rules, .. } = unknown;
    Err(Failure::invalid(format!("error: {message}, and {rules}\n  help: {help}")))
}

/// The caller named by the operator with a flag; without the flag, an unnamed caller.
pub(crate) fn by_flag(flag: Option<&str>) -> Caller {
    match flag {
        Some(agent) => Caller::new(Some(agent.into()), "launch-flag"),
        None => Caller::new(None, "none"),
    }
}

/// Why the caller cannot be identified.
enum NotCaller {
    Failed(Failure),
    /// The credential is invalid.
    Wrong(&'static str),
}

/// The caller identified by a flag, a token, or both if they agree.
fn caller(flag: Option<&str>, token: Option<&str>, config: &Config) -> Result<Caller, NotCaller> {
    let Some(token) = token else {
        return Ok(by_flag(flag));
    };
    // Only listed tokens are accepted here: a JWT expires, and this process could not get a new one.
    let known = identities(config, true, false).map_err(NotCaller::Failed)?;
    let unknown = "TOOLWARD_TOKEN is not the token of any agent";
    let agent = known.of_token(token).ok_or(NotCaller::Wrong(unknown))?;
    if flag.is_some_and(|flag| *agent != *flag) {
        let other = "TOOLWARD_TOKEN is the token of another agent than --agent";
        return Err(NotCaller::Wrong(other));
    }
    Ok(Caller::new(Some(agent), "token"))
}

/// Serves the one client until it or the process ends.
pub(crate) fn serve(
    gateway: Gateway,
    caller: Caller,
    scope: Scope,
    again: ReloadContext,
    request_bytes: u64,
) -> Result<u8, Failure> {
    let request_bytes = usize::try_from(request_bytes).unwrap_or(usize::MAX);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let audit = gateway.context.audit.clone();
    let ended = runtime.block_on(async {
        let gateway = Arc::new(gateway);
        // Without a token nothing is ever sent, and the sender stays alive.
        let never = watch::Sender::new(false);
        let revoked = again.bearer.as_ref().map_or(&never, |bearer| &bearer.revoked).subscribe();
        began(&gateway).await;
        tokio::spawn(control::run(again.reloader(gateway.clone()), None));
        if scope == Scope::All
            && let Err(why) = gateway.start().await
        {
            close(&gateway).await;
            tell_first_request(&Failure::invalid(format!("error: {}", sanitize(&why))));
            return Ended::NotStarted(why);
        }
        let ends = (stdio_pipes::input(), stdio_pipes::output());
        let session =
            downstream::stdio::serve(gateway.clone(), caller, scope, revoked, request_bytes, ends);
        tokio::select! {
            ended = session => ended,
            _ = terminated() => {
                close(&gateway).await;
                Ended::Closed
            }
        }
    });
    // Reading standard input cannot always be interrupted, so nothing waits for it.
    runtime.shutdown_background();
    audit.close();
    match ended {
        Ended::Closed => Ok(exit::OK),
        Ended::NotStarted(why) => Err(Failure::invalid(format!("error: {}", sanitize(&why)))),
    }
}

/// Ends all servers.
async fn close(gateway: &Gateway) {
    let servers = gateway.active().servers.clone();
    gateway.context.servers.close(&servers).await;
}

/// Waits for the client's first request and answers it with the error.
pub(crate) fn tell_first_request(failure: &Failure) {
    let mut line = String::new();
    while std::io::stdin().read_line(&mut line).is_ok_and(|read| read > 0) {
        if let Some(answer) = downstream::startup_error(line.as_bytes(), &failure.text()) {
            let mut stdout = std::io::stdout().lock();
            let _ = stdout.write_all(&answer.whole());
            let _ = stdout.write_all(b"\n");
            let _ = stdout.flush();
            // A client does not show the response to `server/discover` to anyone, and continues with another
            // request.
            if !line.contains("server/discover") {
                return;
            }
        }
        line.clear();
    }
}
