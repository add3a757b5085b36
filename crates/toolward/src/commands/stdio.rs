//! `toolward stdio`: the gateway for one client on standard input and output.

use std::io::Write;
use std::sync::Arc;

use clap::ArgMatches;
use tokio::sync::watch;
use toolward_config::config::Config;
use toolward_config::sanitize;
use toolward_gateway::client::{Caller, Scope};
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

/// The token of the agent that calls, where the client's configuration gives one.
const TOKEN_VARIABLE: &str = "TOOLWARD_TOKEN";

pub(crate) fn run(args: StdioArgs, matches: Option<&ArgMatches>) -> Result<u8, Failure> {
    let prepared = || {
        let input = load(&args.policy, matches, args.on_invalid_policy)?;
        let (first, denying) = (InitialLoad::of(&input), input.denying.is_some());
        if args.agent.is_none() && std::env::var_os(TOKEN_VARIABLE).is_none() && !args.allow_all {
            may_be_unnamed(&input, "start it with `--agent NAME`, or set TOOLWARD_TOKEN")?;
        }
        if let Some(agent) = args.agent.as_deref() {
            is_known(&input, agent, args.allow_all)?;
        }
        let (allow_all, servers) = (args.allow_all, None);
        let prepare = Prepare { allow_all, servers, authenticates: false };
        let (gateway, begun) = build(input, &prepare)?;
        // An empty token is a wrong one: its variable may have been meant to hold another.
        let token =
            std::env::var_os(TOKEN_VARIABLE).map(|token| token.to_string_lossy().into_owned());
        let caller = match caller(args.agent.as_deref(), token.as_deref(), &begun) {
            // Nobody is known to a gateway that allows nobody anything.
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
        Ok((gateway, caller, again)) => {
            serve(gateway, caller, Scope::All, again, args.request_bytes)
        }
        // A client that is waiting for its first answer shall hear what is wrong.
        Err(failure) => {
            tell_first_request(&failure);
            Err(failure)
        }
    }
}

/// A caller without a name would be denied everything where the policy has agents: somebody forgot to say
/// which agent it is.
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
/// `default` apply, the log says so: it may be a typo.
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

/// The agent that the operator named by a flag. Without one there is no name, and nothing that gave it.
pub(crate) fn by_flag(flag: Option<&str>) -> Caller {
    match flag {
        Some(agent) => Caller::new(Some(agent.into()), "launch-flag"),
        None => Caller::new(None, "none"),
    }
}

/// Why the caller cannot be identified.
enum NotCaller {
    Failed(Failure),
    /// What was shown is wrong.
    Wrong(&'static str),
}

/// The agent that the operator named, by a flag, by a token, or by both alike.
fn caller(flag: Option<&str>, token: Option<&str>, config: &Config) -> Result<Caller, NotCaller> {
    let Some(token) = token else {
        return Ok(by_flag(flag));
    };
    // A JWT ends, and nobody could give this process another one: only listed tokens count here.
    let known = identities(config, true, false).map_err(NotCaller::Failed)?;
    let unknown = "TOOLWARD_TOKEN is not the token of any agent";
    let agent = known.of_token(token).ok_or(NotCaller::Wrong(unknown))?;
    if flag.is_some_and(|flag| *agent != *flag) {
        let other = "TOOLWARD_TOKEN is the token of another agent than --agent names";
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
        // Without a token it is never told, and the sender is kept.
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
            () = terminated() => {
                close(&gateway).await;
                Ended::Closed
            }
        }
    });
    // Reading standard input cannot always be interrupted; nothing waits for it any more.
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

/// Waits for the client's first request and answers it with what is wrong.
pub(crate) fn tell_first_request(failure: &Failure) {
    let mut line = String::new();
    while std::io::stdin().read_line(&mut line).is_ok_and(|read| read > 0) {
        if let Some(answer) = downstream::startup_error(line.as_bytes(), &failure.text()) {
            let mut stdout = std::io::stdout().lock();
            let _ = stdout.write_all(&answer.whole());
            let _ = stdout.write_all(b"\n");
            let _ = stdout.flush();
            // A client that only asks what it speaks to shows nobody the answer, and goes on.
            if !line.contains("server/discover") {
                return;
            }
        }
        line.clear();
    }
}
