//! From a loaded configuration to a gateway that can run.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use toolward_config::config::{
    Arguments, Config, Connect, Durability, InheritEnv, Naming, Secret, ServerTls, Start,
    Telemetry, Transport,
};
use toolward_config::sanitize;
use toolward_config::{Files, ProcessEnv};
use toolward_gateway::active::Current;
use toolward_gateway::audit::arguments::{HashKey, RecordedArguments};
use toolward_gateway::audit::redact::{self, Redact};
use toolward_gateway::audit::{self, Audit, UNRECORDED};
use toolward_gateway::budget::Budget;
use toolward_gateway::gateway::Gateway;
use toolward_gateway::http_client::{Address, ClientTls};
use toolward_gateway::log::Log;
use toolward_gateway::methods::events;
use toolward_gateway::methods::meta_tools;
use toolward_gateway::upstream::{
    Caps, Definition, Inherit, Launch, OAuth, Reach, Remote, Servers, Timeouts, Wire,
};
use toolward_gateway::view::names;
use toolward_policy::selector::Glob;
use toolward_policy::source::Case;

use crate::exit::Failure;
use crate::guards;
use crate::load::{Input, invalid};
use crate::render::count;

/// Lines that wait for whoever reads standard error; more are lost.
const WAITING_LINES: usize = 1024;

/// Lines for the operator, on standard error. Nothing waits for them to be read.
pub(crate) fn log() -> Log {
    let (lines, waiting) = std::sync::mpsc::sync_channel::<String>(WAITING_LINES);
    std::thread::spawn(move || {
        for line in waiting {
            let _ = writeln!(std::io::stderr(), "toolward: {line}");
        }
    });
    Arc::new(move |line: &str| {
        let _ = lines.try_send(sanitize(line).into_owned());
    })
}

/// Says which policy is in force, in numbers.
pub(crate) fn announce(input: &Input, allow_all: bool, word: &str, log: &Log) {
    if UNRECORDED {
        log("THIS BUILD RECORDS NOTHING. It is for measuring alone");
    }
    if allow_all {
        log("--allow-all: POLICY IS NOT ENFORCED. What it refuses is recorded, and passes");
    }
    match input.policy.layer_names().count() {
        0 => log("there is no policy: everything that the servers offer is allowed"),
        layers => log(&format!(
            "policy loaded: {}, {}, {}",
            count(layers, "layer"),
            count(input.policy.agents().len(), "agent"),
            count(input.selectors, "selector")
        )),
    }
    for permitted in &input.allowlists {
        log(&format!("Allowlist {word}, {permitted} tools/actions permitted"));
    }
}

/// Refuses what the configuration asks for and this version does not do.
pub(crate) fn supported(config: &Config) -> Result<(), Failure> {
    let audit = &config.audit;
    let wanted = [
        (config.telemetry != Telemetry::default(), "telemetry"),
        (config.servers.iter().any(|server| !server.methods.is_empty()), "servers.S.methods"),
        (!audit.sinks.is_empty(), "audit.sinks"),
    ];
    let unbuilt: Vec<&str> =
        wanted.iter().filter(|(wanted, _)| *wanted).map(|(_, key)| *key).collect();
    match unbuilt.as_slice() {
        [] => Ok(()),
        keys => {
            let keys = keys.join("`, `");
            Err(Failure::invalid(format!("error: not supported in this version: `{keys}`")))
        }
    }
}

/// The servers of the configuration, with their secrets resolved.
pub(crate) fn definitions(
    config: &mut Config,
    files: &impl Files,
) -> Result<Vec<Definition>, Failure> {
    let unresolved = config.resolve_secrets(&ProcessEnv, files);
    if !unresolved.is_empty() {
        return Err(invalid(&unresolved));
    }
    let answer_bytes = usize::try_from(config.limits_of.response_bytes).unwrap_or(usize::MAX);
    let own = config.builtin.then(|| Ok(meta_tools::definition()));
    config.servers.iter().map(|server| definition(server, answer_bytes)).chain(own).collect()
}

fn definition(
    server: &toolward_config::config::Server,
    answer_bytes: usize,
) -> Result<Definition, Failure> {
    let name = &server.name;
    let value = |secret: &Secret| {
        secret.value().map(String::from).ok_or_else(|| {
            Failure::invalid(format!("error: a value of the server `{name}` is not resolved"))
        })
    };
    let resolved = |headers: &[(String, Secret)]| -> Result<Vec<(String, String)>, Failure> {
        headers.iter().map(|(name, secret)| Ok((name.clone(), value(secret)?))).collect()
    };
    let reach = match &server.connect {
        Connect::Stdio { command, args, env, inherit_env, cwd, .. } => Reach::Child(
            Launch {
                name: name.clone(),
                program: command.into(),
                file: None,
                arguments: args
                    .iter()
                    .map(|secret| Ok(value(secret)?.into()))
                    .collect::<Result<_, Failure>>()?,
                environment: env
                    .iter()
                    .map(|(name, secret)| Ok((name.into(), value(secret)?.into())))
                    .collect::<Result<_, Failure>>()?,
                inherit: match inherit_env {
                    InheritEnv::All => Inherit::Everything,
                    InheritEnv::Patterns(patterns) => Inherit::Also(
                        patterns.iter().map(|one| Glob::new(one, Case::Sensitive)).collect(),
                    ),
                },
                folder: cwd.clone(),
            }
            .resolved(),
        ),
        Connect::Http { url, headers, headers_for, oauth, tls, transport } => Reach::Http(Remote {
            address: Address::parse(&value(url)?).map_err(|why| {
                Failure::invalid(format!("error: the URL of the server `{name}`: {why}"))
            })?,
            headers: resolved(headers)?,
            headers_for: headers_for
                .iter()
                .map(|(agent, headers)| Ok((agent.clone(), resolved(headers)?)))
                .collect::<Result<_, Failure>>()?,
            oauth: match oauth {
                Some(oauth) => Some(Arc::new(credentials(name, oauth, &value(url)?, &value)?)),
                None => None,
            },
            tls: match tls {
                Some(tls) => Some(client_tls(name, tls)?),
                None => None,
            },
            transport: transport.map(|transport| match transport {
                Transport::Streamable => Wire::Streamable,
                Transport::Sse => Wire::Sse,
            }),
        }),
    };
    let by_tool = server.timeout.by_tool.iter();
    let bytes = |size: u64| usize::try_from(size).unwrap_or(usize::MAX);
    let caps = server.result_bytes.by_tool.iter();
    let caps = caps.map(|(tool, size)| (Glob::new(tool, Case::Sensitive), bytes(*size)));
    Ok(Definition {
        name: name.as_str().into(),
        reach,
        timeouts: Timeouts {
            by_tool: by_tool
                .map(|(tool, time)| (Glob::new(tool, Case::Sensitive), *time))
                .collect(),
            otherwise: server.timeout.otherwise,
            most: server.timeout.most,
        },
        share: server.share,
        max_children: server.max_children as usize,
        eager: server.start == Start::Eager,
        answer_bytes,
        results: Caps {
            by_tool: caps.collect(),
            otherwise: server.result_bytes.otherwise.map(bytes),
        },
    })
}

/// Reads the files of a server's `tls`.
fn client_tls(name: &str, tls: &ServerTls) -> Result<ClientTls, Failure> {
    let wrong =
        |why: String| Failure::invalid(format!("error: `tls` of the server `{name}`: {why}"));
    let read = |path: &PathBuf| {
        std::fs::read(path).map_err(|error| wrong(format!("{}: {error}", path.display())))
    };
    let ca = tls.ca.as_ref().map(read).transpose()?;
    let identity = match &tls.identity {
        Some((cert, key)) => Some((read(cert)?, read(key)?)),
        None => None,
    };
    let identity = identity.as_ref().map(|(cert, key)| (&cert[..], &key[..]));
    ClientTls::new(ca.as_deref(), identity).map_err(wrong)
}

/// How the gateway gets tokens for a server.
fn credentials(
    server: &str,
    oauth: &toolward_config::config::OAuth,
    url: &str,
    value: &dyn Fn(&Secret) -> Result<String, Failure>,
) -> Result<OAuth, Failure> {
    let wrong = |why: &str| {
        Failure::invalid(format!("error: `oauth.token_url` of the server `{server}`: {why}"))
    };
    let endpoint = Address::parse(&value(&oauth.token_url)?).map_err(|why| wrong(&why))?;
    if !endpoint.tls && !endpoint.is_loopback() {
        return Err(wrong("the secret would go over `http` in the clear\n  help: use `https`"));
    }
    let (id, secret) = (value(&oauth.client_id)?, value(&oauth.client_secret)?);
    // What follows a `?` may be a secret of the server's.
    let resource = url.split(['?', '#']).next().unwrap_or(url);
    Ok(OAuth::new(endpoint, &id, &secret, oauth.scope.as_deref(), resource))
}

/// The gateway of a configuration.
pub(crate) fn build(
    mut input: Input,
    allow_all: bool,
    log: Log,
) -> Result<(Gateway, Config), Failure> {
    supported(&input.loaded.config)?;
    let definitions = definitions(&mut input.loaded.config, &input.reads)?;
    let denies_all = input.denying.is_some();
    announce(&input, allow_all, "enabled", &log);
    let config = input.loaded.config;
    if definitions.is_empty() && !denies_all {
        let help = "servers are defined under `servers`, as in a client's `.mcp.json`";
        return Err(Failure::invalid(format!("error: there are no servers\n  help: {help}")));
    }
    let naming = naming(&config);
    let policy = (input.policy, input.version);
    let servers = Servers::new(definitions, log.clone());
    let snapshot = guards::snapshot(policy, &config, allow_all, servers.all(), None, &log)?;
    let gateway = Gateway {
        current: Current::new(snapshot),
        servers: Arc::new(servers),
        naming,
        audit: open_audit(audit_setup(&config.audit, config.state.as_deref())?, log.clone())?,
        budget: Budget::new(usize::try_from(config.limits_of.buffered_bytes).unwrap_or(usize::MAX)),
        log,
        list_timeout: config.list_timeout,
    };
    Ok((gateway, config))
}

/// How clients of several servers name tools.
pub(crate) fn naming(config: &Config) -> names::Naming {
    match config.naming {
        Naming::Prefix => names::Naming::Prefix { separator: config.separator.clone() },
        Naming::Flat => names::Naming::Flat(names::Taken::default()),
    }
}

/// How the configuration wants the record kept.
fn audit_setup(
    audit: &toolward_config::config::Audit,
    state: Option<&Path>,
) -> Result<audit::Setup, Failure> {
    let mode = match audit.arguments {
        Arguments::None => redact::Arguments::Nothing,
        Arguments::Hash => redact::Arguments::Hash,
        Arguments::Redacted => redact::Arguments::Redacted(Redact::new(&audit.redact)),
        Arguments::Full => redact::Arguments::Full,
    };
    Ok(audit::Setup {
        arguments: recorded_arguments(mode, state)?,
        refusals: audit.refusals,
        reserve: audit.reserve,
        folder: audit.dir.clone(),
        on_disk: audit.durability == Durability::Disk,
        required: audit.required,
        keep: audit::Keep {
            rotate_size: audit.rotate_size,
            rotate_age: audit.rotate_age,
            retain: audit.retain,
        },
    })
}

/// How arguments are recorded. Their hashes can be compared later if there is a state directory.
pub(crate) fn recorded_arguments(
    mode: redact::Arguments,
    state: Option<&Path>,
) -> Result<RecordedArguments, Failure> {
    let Some(state) = state else { return Ok(RecordedArguments::passing(mode)) };
    let key = HashKey::in_state(state).map_err(|error| {
        let state = state.display().to_string();
        Failure::invalid(format!("error: {}: {error}", sanitize(&state)))
    })?;
    Ok(RecordedArguments::new(mode, key))
}

pub(crate) fn open_audit(setup: audit::Setup, log: Log) -> Result<Arc<Audit>, Failure> {
    let folder = setup.folder.display().to_string();
    Audit::open(setup, log)
        .map_err(|error| Failure::invalid(format!("error: {}: {error}", sanitize(&folder))))
}

/// The record says under which policy the process began. Where it cannot, calls are refused.
pub(crate) async fn began(gateway: &Gateway) {
    let facts = events::start(&gateway.current.get());
    let _ = gateway.audit.record(&gateway.audit.id(), "start", &facts).await;
}

/// The folder of what outlives a process.
pub(crate) fn state_folder(config: &Config) -> Result<PathBuf, Failure> {
    config.state.clone().ok_or_else(|| {
        Failure::invalid("error: HOME is not set\n  help: say where the state goes: `state: DIR`")
    })
}

/// Resolves when the process is asked to end.
pub(crate) async fn terminated() {
    use tokio::signal::unix::{SignalKind, signal};
    let kinds = [SignalKind::terminate(), SignalKind::quit()];
    let [Ok(mut terminate), Ok(mut quit)] = kinds.map(signal) else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = terminate.recv() => {}
        _ = quit.recv() => {}
        _ = tokio::signal::ctrl_c() => {}
    }
}

/// How long requests under way may take at the end.
pub(crate) const GRACE: Duration = Duration::from_secs(10);
