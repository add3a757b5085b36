//! `toolward stdio`: the gateway for one client on standard input and output.

use std::io::Write;
use std::sync::Arc;

use clap::ArgMatches;
use toolward_config::config::Config;
use toolward_config::neutral::neutralise;
use toolward_gateway::client::{Caller, Scope};
use toolward_gateway::listen;
use toolward_gateway::listen::standard;
use toolward_gateway::listen::stdio::Ended;
use toolward_gateway::pipeline::Gateway;
use toolward_gateway::upstream::Log;

use crate::cli::StdioArgs;
use crate::commands::serve::load;
use crate::exit::{self, Failure};
use crate::gateway::{began, build, log, terminated};
use crate::identity::identities;
use crate::policy_input::options;
use crate::reload::Again;

/// The token of the agent that calls, where the client's configuration gives one.
const TOKEN_VARIABLE: &str = "TOOLWARD_TOKEN";

pub(crate) fn run(args: StdioArgs, matches: Option<&ArgMatches>) -> Result<u8, Failure> {
    let prepared = || {
        let log = log();
        let input = load(&args.policy, matches, args.on_invalid_policy, &log)?;
        let reads = input.reads.clone();
        let (gateway, begun) = build(input, args.allow_all, log.clone())?;
        let token = std::env::var(TOKEN_VARIABLE).ok().filter(|token| !token.is_empty());
        let caller = caller(args.agent.as_deref(), token.as_deref(), &begun, &log)?;
        let (options, allow_all) = (options(&args.policy, matches), args.allow_all);
        Ok((gateway, caller, Again { options, allow_all, servers: None, begun, reads }))
    };
    match prepared() {
        Ok((gateway, caller, again)) => serve(gateway, caller, Scope::All, again),
        // A client that is waiting for its first answer shall hear what is wrong.
        Err(failure) => {
            tell_first_request(&failure);
            Err(failure)
        }
    }
}

/// The agent that the operator named, by a flag, by a token, or by both alike.
fn caller(
    flag: Option<&str>,
    token: Option<&str>,
    config: &Config,
    log: &Log,
) -> Result<Caller, Failure> {
    let Some(token) = token else {
        return Ok(Caller::new(flag.map(Into::into), "launch-flag"));
    };
    let wrong = |why: &str| Failure::invalid(format!("error: {TOKEN_VARIABLE} {why}"));
    // A JWT ends, and nobody could give this process another one: only listed tokens count here.
    let agent = identities(config, true, false, log)?.of_token(token);
    let agent = agent.ok_or_else(|| wrong("is not the token of any agent"))?;
    if flag.is_some_and(|flag| *agent != *flag) {
        return Err(wrong("is the token of another agent than --agent names"));
    }
    Ok(Caller::new(Some(agent), "token"))
}

/// Serves the one client until it or the process ends.
pub(crate) fn serve(
    gateway: Gateway,
    caller: Caller,
    scope: Scope,
    again: Again,
) -> Result<u8, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let audit = gateway.audit.clone();
    let ended = runtime.block_on(async {
        let gateway = Arc::new(gateway);
        began(&gateway).await;
        tokio::spawn(again.reloader(gateway.clone(), None).run(None));
        if scope == Scope::All
            && let Err(why) = gateway.start().await
        {
            gateway.servers.close().await;
            tell_first_request(&Failure::invalid(format!("error: {}", neutralise(&why))));
            return Ended::NotStarted(why);
        }
        let (input, output) = (standard::input(), standard::output());
        let session = listen::stdio::serve(gateway.clone(), caller, scope, input, output);
        tokio::select! {
            ended = session => ended,
            () = terminated() => {
                gateway.servers.close().await;
                Ended::Closed
            }
        }
    });
    // Reading standard input cannot always be interrupted; nothing waits for it any more.
    runtime.shutdown_background();
    audit.close();
    match ended {
        Ended::Closed => Ok(exit::OK),
        Ended::NotStarted(why) => Err(Failure::invalid(format!("error: {}", neutralise(&why)))),
    }
}

/// Waits for the client's first request and answers it with what is wrong.
pub(crate) fn tell_first_request(failure: &Failure) {
    let mut line = String::new();
    while std::io::stdin().read_line(&mut line).is_ok_and(|read| read > 0) {
        if let Some(answer) = listen::startup_error(line.as_bytes(), &failure.text()) {
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
