//! A configuration, prepared to be activated: shared by start, deny-all and reload.
//!
//! Everything that can be wrong with a configuration is found here, before anything of it is active.

use std::path::PathBuf;
use std::sync::Arc;

use toolward_config::config::{
    Config, Connect, InheritEnv, Naming, Secret, ServerTls, Start, Transport,
};
use toolward_config::{Files, ProcessEnv};
use toolward_gateway::active::{Active, Setup};
use toolward_gateway::audit::redact::Redact;
use toolward_gateway::authn::Identities;
use toolward_gateway::http_client::{Address, ClientTls};
use toolward_gateway::upstream::{
    Caps, Definition, Inherit, Launch, OAuth, Reach, Remote, Servers, Timeouts, Wire, built_in,
};
use toolward_gateway::view::names;
use toolward_policy::selector::Glob;
use toolward_policy::source::Case;

use crate::exit::Failure;
use crate::guards;
use crate::identity::{identities, reachable};
use crate::load::{Input, invalid};

/// How a process uses its configurations.
#[derive(Debug, Clone)]
pub(crate) struct Prepare {
    /// Denied calls are recorded and forwarded.
    pub(crate) allow_all: bool,
    /// The servers, if the configuration does not define them.
    pub(crate) servers: Option<Vec<Definition>>,
    /// Callers show credentials. Otherwise the operator names the agent of the one client.
    pub(crate) authenticates: bool,
}

/// A configuration that is checked and not active yet.
pub(crate) struct Prepared {
    /// With its secrets resolved.
    pub(crate) config: Config,
    pub(crate) setup: Setup,
}

impl Prepared {
    /// Prepares a configuration, to be the first or to replace `before`.
    pub(crate) fn from(
        mut input: Input,
        prepare: &Prepare,
        (servers, before): (&Servers, Option<&Active>),
    ) -> Result<Prepared, Failure> {
        let defined = match &prepare.servers {
            Some(servers) => servers.clone(),
            None => {
                supported(&input.loaded.config)?;
                definitions(&mut input.loaded.config, &input.reads)?
            }
        };
        let (required, claims) = (input.needs_name(), input.shows_claims());
        let config = input.loaded.config;
        let identities = match prepare.authenticates {
            true => identities(&config, required, claims)?,
            false => Identities::default(),
        };
        let guards = guards::guards(&config, &input.policy, before.map(|one| &one.guards))?;
        let known = before.map_or(&[][..], |before| &before.servers);
        let setup = Setup {
            policy: input.policy,
            version: input.version,
            enforced: !prepare.allow_all,
            guards,
            servers: servers.create(defined, known),
            naming: naming(&config),
            identities,
            reachable: reachable(&config),
            redact: Redact::new(&config.audit.redact),
            discovery: guards::discovery(&config),
            denies_all: input.denying.is_some(),
        };
        Ok(Prepared { config, setup })
    }
}

/// Refuses what the configuration asks for and this version does not do.
pub(crate) fn supported(config: &Config) -> Result<(), Failure> {
    let audit = &config.audit;
    let wanted = [
        (config.telemetry.otlp.is_some(), "telemetry.otlp"),
        (!config.telemetry.metrics, "telemetry.metrics"),
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
    let own = config.builtin.then(|| Ok(built_in::definition()));
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

/// How clients of several servers name tools.
pub(crate) fn naming(config: &Config) -> names::Naming {
    match config.naming {
        Naming::Prefix => names::Naming::Prefix { separator: config.separator.clone() },
        Naming::Flat => names::Naming::Flat(names::Taken::default()),
    }
}
