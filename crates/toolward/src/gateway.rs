//! From a loaded configuration to a gateway that can run.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use toolward_config::config::{Config, Connect, Durability, Naming, Start, Token, Transport};
use toolward_config::neutral::neutralise;
use toolward_config::{Disk, ProcessEnv};
use toolward_gateway::audit::Audit;
use toolward_gateway::identity::Identities;
use toolward_gateway::names;
use toolward_gateway::pipeline::Gateway;
use toolward_gateway::sight::Snapshot;
use toolward_gateway::upstream::{Address, Definition, Launch, Log, Reach, Remote, Servers, Wire};
use toolward_policy::selector::Glob;
use toolward_policy::source::Case;

use crate::exit::Failure;
use crate::policy_input::{Input, invalid};
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
        let _ = lines.try_send(neutralise(line).into_owned());
    })
}

/// Says which policy is in force, in numbers.
pub(crate) fn announce(input: &Input, log: &Log) {
    match input.policy.layer_names().count() {
        0 => log("there is no policy: everything that the servers offer is allowed"),
        layers => log(&format!(
            "policy loaded: {}, {}, {}",
            count(layers, "layer"),
            count(input.policy.agents().len(), "agent"),
            count(input.selectors, "selector")
        )),
    }
}

/// Refuses what the configuration asks for and this version does not do.
pub(crate) fn supported(config: &Config) -> Result<(), Failure> {
    let audit = &config.audit;
    let plain = toolward_config::config::Audit::default();
    let wanted = [
        (config.tls.is_some(), "tls"),
        (config.jwt.is_some(), "identity.jwt"),
        (config.cors, "cors"),
        (!config.trusted_proxies.is_empty(), "trusted_proxies"),
        (config.builtin, "builtin"),
        (config.telemetry.otlp.is_some(), "telemetry.otlp"),
        (config.agents.iter().any(|agent| !agent.claims.is_empty()), "agents.A.claims"),
        (config.agents.iter().any(|agent| !agent.uids.is_empty()), "agents.A.uid"),
        (
            config.agents.iter().any(|a| a.discovery != toolward_config::config::Discovery::Direct),
            "agents.A.discovery",
        ),
        (config.servers.iter().any(|server| !server.methods.is_empty()), "servers.S.methods"),
        (audit.durability != Durability::Process, "audit.durability"),
        (audit.arguments != plain.arguments, "audit.arguments"),
        (audit.required != plain.required, "audit.required"),
        (audit.retain.is_some(), "audit.retain"),
        (!audit.redact.is_empty(), "audit.redact"),
        (!audit.sinks.is_empty(), "audit.sinks"),
        (
            (audit.rotate_size, audit.rotate_age) != (plain.rotate_size, plain.rotate_age),
            "audit.rotate",
        ),
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
pub(crate) fn definitions(config: &mut Config) -> Result<Vec<Definition>, Failure> {
    let unresolved = config.resolve_secrets(&ProcessEnv, &Disk);
    if !unresolved.is_empty() {
        return Err(invalid(&unresolved));
    }
    let answer_bytes = usize::try_from(config.limits_of.response_bytes).unwrap_or(usize::MAX);
    config.servers.iter().map(|server| definition(server, answer_bytes)).collect()
}

fn definition(
    server: &toolward_config::config::Server,
    answer_bytes: usize,
) -> Result<Definition, Failure> {
    let name = &server.name;
    let value = |secret: &toolward_config::config::Secret| {
        secret.value().map(String::from).ok_or_else(|| {
            Failure::invalid(format!("error: a value of the server `{name}` is not resolved"))
        })
    };
    let reach = match &server.connect {
        Connect::Stdio { command, args, env, cwd } => Reach::Child(Launch {
            name: name.clone(),
            program: command.into(),
            arguments: args.iter().map(Into::into).collect(),
            environment: env
                .iter()
                .map(|(name, secret)| Ok((name.into(), value(secret)?.into())))
                .collect::<Result<_, Failure>>()?,
            folder: cwd.clone(),
        }),
        Connect::Http { url, headers, transport } => Reach::Http(Remote {
            address: Address::parse(&value(url)?).map_err(|why| {
                Failure::invalid(format!("error: the URL of the server `{name}`: {why}"))
            })?,
            headers: headers
                .iter()
                .map(|(name, secret)| Ok((name.clone(), value(secret)?)))
                .collect::<Result<_, Failure>>()?,
            transport: transport.map(|transport| match transport {
                Transport::Streamable => Wire::Streamable,
                Transport::Sse => Wire::Sse,
            }),
        }),
    };
    let by_tool = server.timeout.by_tool.iter();
    Ok(Definition {
        name: name.as_str().into(),
        reach,
        timeouts: by_tool.map(|(tool, time)| (Glob::new(tool, Case::Sensitive), *time)).collect(),
        timeout: server.timeout.otherwise,
        share: server.share,
        max_children: server.max_children as usize,
        eager: server.start == Start::Eager,
        answer_bytes,
    })
}

/// The gateway of a configuration.
pub(crate) fn build(mut input: Input, log: Log) -> Result<(Gateway, Config), Failure> {
    supported(&input.loaded.config)?;
    let definitions = definitions(&mut input.loaded.config)?;
    announce(&input, &log);
    let config = input.loaded.config;
    if definitions.is_empty() {
        let help = "servers are defined under `servers`, as in a client's `.mcp.json`";
        return Err(Failure::invalid(format!("error: there are no servers\n  help: {help}")));
    }
    let naming = match config.naming {
        Naming::Prefix => names::Naming::Prefix { separator: config.separator.clone() },
        Naming::Flat => names::Naming::Flat(names::Taken::default()),
    };
    let gateway = Gateway {
        snapshot: Arc::new(Snapshot::new(input.policy, input.version)),
        servers: Arc::new(Servers::new(definitions, log.clone())),
        naming,
        audit: open_audit(&config.audit.dir)?,
        log,
        list_timeout: config.list_timeout,
    };
    Ok((gateway, config))
}

pub(crate) fn open_audit(folder: &Path) -> Result<Arc<Audit>, Failure> {
    Audit::open(folder).map_err(|error| {
        let folder = folder.display().to_string();
        Failure::invalid(format!("error: {}: {error}", neutralise(&folder)))
    })
}

/// The credentials of all agents.
pub(crate) fn identities(config: &Config, required: bool) -> Result<Identities, Failure> {
    let mut identities = Identities { tokens: Vec::new(), required };
    for agent in &config.agents {
        let name: Arc<str> = agent.name.as_str().into();
        for token in &agent.tokens {
            match token {
                Token::Sha256(hash) => identities.tokens.push((*hash, name.clone())),
                Token::Reference(secret) => {
                    if let Some(value) = secret.value() {
                        identities.add(value, &name);
                    }
                }
            }
        }
    }
    for (at, (hash, agent)) in identities.tokens.iter().enumerate() {
        let other = identities.tokens[..at].iter().find(|(other, _)| other == hash);
        if let Some((_, other)) = other.filter(|(_, other)| other != agent) {
            let (one, other) = (neutralise(other), neutralise(agent));
            return Err(Failure::invalid(format!(
                "error: a token belongs to `{one}` and to `{other}`: nobody could tell who calls"
            )));
        }
    }
    Ok(identities)
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

/// How long requests under way may take at the end.
pub(crate) const GRACE: Duration = Duration::from_secs(10);
