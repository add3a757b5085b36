//! `toolward login`, `logins` and `logout`: logins of people at servers that need OAuth.

mod browser;
mod list;

use std::io::{BufRead, IsTerminal, Write};
use std::sync::Arc;

use clap::ArgMatches;
use serde_json::json;
use toolward_config::{Disk, sanitize, suggest};
use toolward_gateway::login::grant::Grant;
use toolward_gateway::login::store::{GrantKey, GrantStore};
use toolward_gateway::login::{
    self, Flow, Login, LoginError, LoginEvent, LoginSettings, Of, RemovedGrant, Revocation, Task,
};
use toolward_gateway::methods::logins;
use toolward_gateway::upstream::{OAuth, Reach};

pub(crate) use self::list::run as list;
use crate::cli::{LoginArgs, LogoutArgs, PolicyArgs, ToolsArgs};
use crate::exit::{self, Failure};
use crate::gateway::{audit_setup, open_audit, state_folder};
use crate::load::Input;
use crate::prepared::definitions;
use crate::render::{BOLD, YELLOW, paint};

/// `toolward login`.
pub(crate) fn run(args: &LoginArgs, matches: Option<&ArgMatches>) -> Result<u8, Failure> {
    let mut input = load(&args.policy, matches)?;
    let oauth = oauth_of(&mut input, &args.server)?;
    let Some(settings) = oauth.login_settings() else {
        return Err(Failure::usage(no_login(&args.server)));
    };
    let mut settings = settings.clone();
    let owner = owner(&settings, args.agent.as_deref(), &input)?;
    if args.paste && settings.flow != Flow::Device {
        settings.flow = Flow::Paste;
    }
    let runtime = runtime()?;
    let grant = runtime.block_on(log_in(args, settings, owner))?;
    let recorded = record(&runtime, &input, &LoginEvent::logged_in(&grant));
    let mut out = anstream::stdout();
    match args.output.json {
        true => writeln!(out, "{}", list::to_json(&grant))?,
        false => {
            let scope = grant.scope().map(|scope| format!(", scope {}", sanitize(scope)));
            writeln!(
                out,
                "logged in to {} at {}{}",
                paint(BOLD, sanitize(grant.server())),
                sanitize(grant.issuer()),
                scope.unwrap_or_default()
            )?;
            if !grant.can_refresh() {
                let warning =
                    "the provider gave no refresh token: log in again when this one expires";
                writeln!(anstream::stderr(), "{}", paint(YELLOW, format!("warning: {warning}")))?;
            }
        }
    }
    recorded.map(|()| exit::OK)
}

async fn log_in(
    args: &LoginArgs,
    settings: LoginSettings,
    owner: Option<String>,
) -> Result<Grant, Failure> {
    let failed = |error: LoginError| failure(&args.server, &error);
    let login = Login::begin(settings, owner).await.map_err(failed)?;
    let mut out = anstream::stderr();
    writeln!(out, "the login is at {}", paint(BOLD, sanitize(login.issuer())))?;
    match login.task() {
        Task::Open { url, shared } => {
            if args.no_browser || !browser::open(&url) {
                writeln!(out, "open this address in a browser on this machine:\n\n  {url}\n")?;
            } else {
                writeln!(
                    out,
                    "a browser has been opened; if not, open this address:\n\n  {url}\n"
                )?;
            }
            if shared {
                let why = "another process has the port of the redirect address: a running gateway passes the \
                           response on. If it is another program, stop it, or use --paste";
                writeln!(out, "{why}")?;
            }
            writeln!(out, "waiting for the login (Ctrl-C cancels) …")?;
            login.wait().await.map_err(failed)
        }
        Task::Paste { url } => {
            writeln!(out, "open this address in any browser:\n\n  {url}\n")?;
            writeln!(
                out,
                "after the login, the browser shows a page that cannot be loaded. Copy its address, and paste it here:"
            )?;
            let pasted = read_line()?;
            login.paste(&pasted).await.map_err(failed)
        }
        Task::Enter { url, code, complete } => {
            let (shown, code) = (sanitize(&url), paint(BOLD, sanitize(&code)));
            writeln!(out, "open {shown} in any browser, and enter the code {code}")?;
            let target = complete.as_deref().unwrap_or(&url);
            if !args.paste && !args.no_browser && std::io::stderr().is_terminal() {
                browser::open(target);
            }
            writeln!(out, "waiting for the login (Ctrl-C cancels) …")?;
            login.wait().await.map_err(failed)
        }
    }
}

/// `toolward logout`.
pub(crate) fn logout(args: &LogoutArgs, matches: Option<&ArgMatches>) -> Result<u8, Failure> {
    let mut input = load(&args.policy, matches)?;
    // The server may have been removed from the configuration.
    let oauth = oauth_of(&mut input, &args.server).ok();
    let tls = oauth.as_ref().and_then(|oauth| oauth.login_settings()?.tls.clone());
    let store = GrantStore::in_state(&state_folder(&input.loaded.config)?);
    let key = GrantKey { server: args.server.clone(), owner: args.agent.clone() };
    let runtime = runtime()?;
    let removed = runtime.block_on(login::logout(&store, &key, tls.as_ref()));
    let removed = removed.map_err(|error| {
        let error = error.to_string();
        Failure::invalid(format!("error: the login cannot be removed: {}", sanitize(&error)))
    })?;
    let server = sanitize(&args.server);
    let Some(RemovedGrant { grant, revocation }) = removed else {
        let help = "`toolward logins` shows all of them";
        return Err(Failure::denied(format!(
            "error: there is no login for `{server}`\n  help: {help}"
        )));
    };
    record(&runtime, &input, &LoginEvent::logged_out(&grant))?;
    let mut out = anstream::stdout();
    match args.output.json {
        true => {
            let revoked = revocation == Revocation::Revoked;
            let all = json!({"server": grant.server(), "agent": grant.owner(), "revoked": revoked});
            writeln!(out, "{all}")?;
        }
        false => {
            let issuer = sanitize(grant.issuer());
            let rest = match &revocation {
                Revocation::Revoked => format!("The access is revoked at {issuer}"),
                _ => format!("The access may still be listed at {issuer}"),
            };
            writeln!(out, "logged out of {server}. {rest}")?;
        }
    }
    if let Revocation::Failed(why) = &revocation {
        let warning = format!("warning: the provider did not revoke the access: {}", sanitize(why));
        writeln!(anstream::stderr(), "{}", paint(YELLOW, warning))?;
    }
    Ok(exit::OK)
}

fn load(policy: &PolicyArgs, matches: Option<&ArgMatches>) -> Result<Input, Failure> {
    Input::load(policy, &ToolsArgs { lists: Vec::new() }, matches)
}

/// The source of a server's tokens, with the secrets of this server only.
fn oauth_of(input: &mut Input, server: &str) -> Result<Arc<OAuth>, Failure> {
    let config = &mut input.loaded.config;
    let names = config.servers.iter().map(|server| server.name.as_str());
    if !names.clone().any(|name| name == server) {
        let help = match suggest::nearest(server, names) {
            Some(near) => format!("did you mean `{}`?", sanitize(near)),
            None => "servers are defined under `servers`".into(),
        };
        let server = sanitize(server);
        return Err(Failure::usage(format!("error: no server `{server}`\n  help: {help}")));
    }
    let mut own = config.clone();
    own.servers.retain(|one| one.name == server);
    own.builtin = false;
    let definitions = definitions(&mut own, &Disk)?;
    let oauth = definitions.into_iter().find_map(|definition| match definition.reach {
        Reach::Http(remote) => remote.oauth,
        _ => None,
    });
    oauth.ok_or_else(|| Failure::usage(no_login(server)))
}

fn no_login(server: &str) -> String {
    let server = sanitize(server);
    format!(
        "error: the server `{server}` has no `login`\n  help: add it to the configuration: `servers: {{ {server}: {{ url: \
         …, login: {{}} }} }}`"
    )
}

/// The owner of a login: the agent, if agents have their own.
fn owner(
    settings: &LoginSettings,
    agent: Option<&str>,
    input: &Input,
) -> Result<Option<String>, Failure> {
    let server = sanitize(&settings.server).into_owned();
    match (settings.of, agent) {
        (Of::Gateway, None) => Ok(None),
        (Of::Agent, Some(agent)) => {
            let known = input.policy.agents();
            if !known.contains(&agent) {
                let warning = format!("warning: the policy has no agent `{}`", sanitize(agent));
                writeln!(anstream::stderr(), "{}", paint(YELLOW, warning))?;
            }
            Ok(Some(agent.into()))
        }
        (Of::Gateway, Some(_)) => {
            let help = "for a login of each agent, set `login: { of: agent }`";
            Err(Failure::usage(format!(
                "error: all agents share the login of `{server}`\n  help: leave out --as; {help}"
            )))
        }
        (Of::Agent, None) => Err(Failure::usage(format!(
            "error: each agent has its own login at `{server}`\n  help: choose the agent with --as AGENT"
        ))),
    }
}

/// Writes an audit record, to the log of the configuration.
fn record(
    runtime: &tokio::runtime::Runtime,
    input: &Input,
    event: &LoginEvent,
) -> Result<(), Failure> {
    let config = &input.loaded.config;
    let setup = audit_setup(&config.audit, config.state.as_deref())?;
    let _runtime = runtime.enter();
    let audit = open_audit(setup)?;
    let written = runtime.block_on(audit.record(&audit.id(), logins::KIND, &logins::facts(event)));
    audit.close();
    written.map_err(|error| Failure::invalid(format!("error: {}", sanitize(&error.to_string()))))
}

fn failure(server: &str, error: &LoginError) -> Failure {
    let (server, why) = (sanitize(server), error.to_string());
    let help = error.help.as_deref().map(|help| format!("\n  help: {}", sanitize(help)));
    let help = help.unwrap_or_default();
    Failure::denied(format!("error: the login to `{server}` failed: {}{help}", sanitize(&why)))
}

fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| Failure::invalid(format!("error: {error}")))
}

/// Reads a line from standard input.
fn read_line() -> Result<String, Failure> {
    let mut line = String::new();
    let read = std::io::stdin().lock().read_line(&mut line);
    match read {
        Ok(1..) => Ok(line),
        Ok(0) => Err(Failure::usage("error: nothing was pasted")),
        Err(error) => Err(Failure::usage(format!("error: {error}"))),
    }
}
