//! `toolward accept`: accepts a changed definition that was reviewed.

use std::io::Write;

use clap::ArgMatches;
use serde_json::json;
use toolward_config::sanitize;
use toolward_gateway::guard::pins::canonical::Digest;

use super::load;
use crate::cli::AcceptArgs;
use crate::control_client;
use crate::exit::{self, Failure};
use crate::pin_review::accept::{self, NotAccepted};
use crate::pin_review::{not_known, not_written};

pub(crate) fn run(args: &AcceptArgs, matches: Option<&ArgMatches>) -> Result<u8, Failure> {
    let Some(expected) = Digest::parse(&args.expect) else {
        let help = "copy the command that `toolward changes` prints";
        let message = "`--expect` is `sha256:` and 64 hexadecimal digits";
        return Err(Failure::usage(format!("error: {message}\n  help: {help}")));
    };
    let (server, entry) = match args.target.split_once('/') {
        Some((server, entry)) => (server, Some(entry)),
        None => (&*args.target, None),
    };
    let pinned = load(&args.policy, matches, (&[server.to_string()], args.timeout))?;
    let Some((approved, path)) = pinned.approved()? else {
        let help = "approve the definitions as they are now with `toolward lock`";
        return Err(Failure::invalid(format!(
            "error: no definitions are approved\n  help: {help}"
        )));
    };
    let Some(definition) = pinned.definitions.first() else {
        return Err(Failure::usage("error: the server is not configured"));
    };
    let survey = pinned.look(definition)?;
    let survey =
        survey.map_err(|why| Failure::invalid(format!("error: {}", not_known(server, &why))))?;
    let offered = pinned.offered(server, &survey);
    match accept::accept((&approved, path), server, (entry, expected), offered) {
        Ok(()) => {}
        Err(NotAccepted::Moved) => {
            let help = format!("look at it again: `toolward changes {}`", sanitize(server));
            let target = sanitize(&args.target);
            writeln!(
                anstream::stderr(),
                "error: {target} is not what was expected: it has changed since it was shown, or does not exist\n  help: {help}"
            )?;
            return Ok(exit::NO);
        }
        Err(NotAccepted::NotWritten(why)) => return Err(not_written(path, &why)),
    }
    // Gateways watch the lock file, and not the state directory.
    if *path != pinned.places.lock
        && let Some(state) = path.parent().and_then(|pins| pins.parent())
    {
        let states = [state.to_owned()];
        drop(control_client::ask(&states, "reload", control_client::CONTROL_TIMEOUT));
    }
    let mut out = anstream::stdout();
    match args.output.json {
        true => {
            let expected = expected.to_string();
            writeln!(
                out,
                "{}",
                json!({"accepted": args.target, "digest": expected, "file": path})
            )?;
        }
        false => {
            let shown = path.display().to_string();
            writeln!(out, "accepted {} in {}", sanitize(&args.target), sanitize(&shown))?;
        }
    }
    Ok(exit::OK)
}
