//! `toolward stdio`: the gateway for one client on standard input and output.

use std::io::Write;
use std::sync::Arc;

use clap::ArgMatches;
use toolward_config::neutral::neutralise;
use toolward_gateway::client::{Caller, Scope};
use toolward_gateway::listen;
use toolward_gateway::listen::standard;
use toolward_gateway::listen::stdio::Ended;
use toolward_gateway::pipeline::Gateway;

use crate::cli::{StdioArgs, ToolsArgs};
use crate::exit::{self, Failure};
use crate::gateway::{build, log, terminated};
use crate::policy_input::Input;

pub(crate) fn run(args: StdioArgs, matches: Option<&ArgMatches>) -> Result<u8, Failure> {
    let caller = Caller { agent: args.agent.as_deref().map(Into::into), identity: "launch-flag" };
    let prepared = || {
        let input = Input::load(&args.policy, &ToolsArgs { lists: Vec::new() }, matches)?;
        Ok(build(input, log())?.0)
    };
    match prepared() {
        Ok(gateway) => serve(gateway, caller, Scope::All),
        // A client that is waiting for its first answer shall hear what is wrong.
        Err(failure) => {
            tell_first_request(&failure);
            Err(failure)
        }
    }
}

/// Serves the one client until it or the process ends.
pub(crate) fn serve(gateway: Gateway, caller: Caller, scope: Scope) -> Result<u8, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let ended = runtime.block_on(async {
        let gateway = Arc::new(gateway);
        if scope == Scope::All
            && let Err(why) = gateway.start().await
        {
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
            return;
        }
        line.clear();
    }
}
