//! `toolward accept`: accepts a changed definition that was reviewed.

use std::io::Write;

use clap::ArgMatches;
use serde_json::json;
use toolward_config::sanitize;
use toolward_gateway::guard::pins::canonical::Digest;
use toolward_gateway::guard::pins::lock_file::{LockFile, LockedServer, PINNED_KINDS};

use super::{Pinned, not_known, not_written};
use crate::cli::AcceptArgs;
use crate::clients::replace_file;
use crate::control_client;
use crate::exit::{self, Failure};
use crate::pins::survey::{digest_of, digest_of_server};

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
    let pinned = Pinned::load(&args.policy, matches, (&[server.to_string()], args.timeout))?;
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
    let mut file = approved.clone();
    let accepted = accept(&mut file, server, (entry, expected), offered);
    if !accepted {
        let help = format!("look at it again: `toolward changes {}`", sanitize(server));
        let target = sanitize(&args.target);
        writeln!(
            anstream::stderr(),
            "error: {target} is not what was expected: it has changed since it was shown, or does not exist\n  help: {help}"
        )?;
        return Ok(exit::NO);
    }
    let written = replace_file::read(path).and_then(|old| {
        // The file must still be the one that was compared.
        match LockFile::parse(&old) {
            Ok(now) if now == approved => {
                replace_file::replace(path, &old, file.render().as_bytes())
            }
            _ => Err(replace_file::NotReplaced::Changed),
        }
    });
    written.map_err(|why| not_written(path, &why))?;
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

/// Replaces approved definitions by offered ones, if these have the expected digest.
fn accept(
    file: &mut LockFile,
    server: &str,
    (entry, expected): (Option<&str>, Digest),
    offered: LockedServer,
) -> bool {
    let Some(entry) = entry else {
        let is_expected = digest_of_server(&offered) == expected;
        if is_expected {
            file.servers.insert(server.into(), offered);
        }
        return is_expected;
    };
    for kind in PINNED_KINDS {
        let Some(forms) = offered.list(kind).and_then(|list| list.get(entry)) else { continue };
        let old = file.servers.get(server).and_then(|known| known.list(kind));
        let old = old.and_then(|list| list.get(entry)).cloned().unwrap_or_default();
        let one = forms.iter().find(|form| form.digest() == expected);
        let accepted = match one {
            _ if digest_of(forms) == expected => Some(forms.clone()),
            // The admin UI shows one form; the approved ones that are still offered stay.
            Some(form) => {
                let others = old.into_iter().filter(|other| other != form && forms.contains(other));
                Some(std::iter::once(form.clone()).chain(others).collect())
            }
            None => None,
        };
        if let Some(forms) = accepted {
            let known = file.servers.entry(server.into()).or_default();
            if known.identity.is_null() {
                known.identity = offered.identity.clone();
            }
            let list = known.list_mut(kind).get_or_insert_default();
            list.insert(entry.into(), forms);
            return true;
        }
    }
    false
}
