//! A configuration, prepared to be activated: shared by start, deny-all and reload.
//!
//! Every error in a configuration is found here, before any of it becomes active.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use toolward_config::config::{
    Config, Connect, InheritEnv, Naming, OAuthGrant, Root, Secret, ServerTls, Start, Transport,
};
use toolward_config::{Files, ProcessEnv, sanitize, suggest};
use toolward_gateway::active::{Active, Setup};
use toolward_gateway::audit::redact::Redact;
use toolward_gateway::authn::Identities;
use toolward_gateway::guard::pins::Pins;
use toolward_gateway::http_client::{Address, ClientTls};
use toolward_gateway::upstream::{
    Caps, Definition, Inherit, Launch, OAuth, Reach, Remote, Roots, Servers, Timeouts, Wire,
    built_in, file_uri,
};
use toolward_gateway::view::names;
use toolward_policy::selector::Glob;
use toolward_policy::source::Case;

use crate::approvals;
use crate::exit::Failure;
use crate::guards;
use crate::identity::{identities, reachable};
use crate::load::{Input, invalid};
use crate::logins::{self, LoginOfServer};
use crate::pins;

/// How a process uses its configurations.
#[derive(Debug, Clone)]
pub(crate) struct Prepare {
    /// Denied calls are recorded and forwarded.
    pub(crate) allow_all: bool,
    /// The servers, if the configuration does not define them.
    pub(crate) servers: Option<Vec<Definition>>,
    /// The only server of the configuration that is used.
    pub(crate) only: Option<String>,
    /// Callers authenticate with credentials. Otherwise the operator names the agent of the only client.
    pub(crate) authenticates: bool,
}

impl Prepare {
    /// Drops the servers that this process does not use, so that it needs none of their secrets.
    pub(crate) fn restrict(&self, config: &mut Config) -> Result<(), Failure> {
        let Some(only) = &self.only else { return Ok(()) };
        if !config.servers.iter().any(|server| server.name == *only) {
            return Err(no_such_server(only, config));
        }
        config.servers.retain(|server| server.name == *only);
        config.builtin = false;
        Ok(())
    }
}

/// The error for a server that the configuration does not have.
fn no_such_server(name: &str, config: &Config) -> Failure {
    let names: Vec<&str> = config.servers.iter().map(|server| server.name.as_str()).collect();
    let help = match suggest::nearest(name, names.iter().copied()) {
        Some(nearest) => format!("did you mean `{nearest}`?"),
        None if names.is_empty() => "servers are defined under `servers`".into(),
        None => format!("there are {}", names.join(", ")),
    };
    let (name, help) = (sanitize(name), sanitize(&help));
    Failure::invalid(format!("error: no server is called `{name}`\n  help: {help}"))
}

/// The configuration that another one replaces.
pub(crate) struct Predecessor<'a> {
    pub(crate) servers: &'a Servers,
    /// `None` at start.
    pub(crate) active: Option<&'a Active>,
    /// Truncated hook scripts are accepted.
    pub(crate) accept: bool,
}

/// A validated configuration that is not active yet.
pub(crate) struct Prepared {
    /// With its secrets resolved.
    pub(crate) config: Config,
    pub(crate) setup: Setup,
}

impl Prepared {
    /// Prepares a configuration, to be the first or to replace another one.
    pub(crate) fn from(
        mut input: Input,
        prepare: &Prepare,
        Predecessor { servers, active: before, accept }: Predecessor<'_>,
    ) -> Result<Prepared, Failure> {
        let defined = match &prepare.servers {
            Some(servers) => servers.clone(),
            None => {
                if input.denying.is_none() {
                    prepare.restrict(&mut input.loaded.config)?;
                }
                definitions(&mut input.loaded.config, &input.reads)?
            }
        };
        let (required, claims) = (input.needs_name(), input.shows_claims());
        if prepare.authenticates {
            input.policy.ask_for_named_callers_only();
        }
        let pins = pins::setup(&input.loaded, &input.reads, true);
        let config = input.loaded.config;
        let identities = match prepare.authenticates {
            true => identities(&config, required, claims)?,
            false => Identities::default(),
        };
        let admins = approvals::admins(&config, &identities)?;
        let guards = guards::guards(&config, &input.policy, before.map(|one| &one.guards), accept)?;
        let known = before.map_or(&[][..], |before| &before.servers);
        let setup = Setup {
            policy: input.policy,
            shadow: input.shadow,
            pins: Pins::new(pins, before.map(|before| &before.pins)),
            version: input.version,
            enforced: !prepare.allow_all,
            guards,
            approvals: approvals::settings(&config)?,
            admins,
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
    let servers = config.servers.iter();
    let state = config.state.as_deref();
    servers.map(|server| definition(server, answer_bytes, state, files)).chain(own).collect()
}

fn definition(
    server: &toolward_config::config::Server,
    answer_bytes: usize,
    state: Option<&Path>,
    files: &impl Files,
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
        Connect::Http { url, headers, headers_for, oauth, login, tls, transport } => {
            Reach::Http(Remote {
                address: Address::parse(&value(url)?).map_err(|why| {
                    Failure::invalid(format!("error: the URL of the server `{name}`: {why}"))
                })?,
                headers: resolved(headers)?,
                headers_for: headers_for
                    .iter()
                    .map(|(agent, headers)| Ok((agent.clone(), resolved(headers)?)))
                    .collect::<Result<_, Failure>>()?,
                oauth: match (oauth, login) {
                    (Some(oauth), _) => {
                        Some(Arc::new(credentials(name, oauth, &value(url)?, &value)?))
                    }
                    (None, Some(login)) => {
                        let tls =
                            tls.as_ref().map(|tls| client_tls(name, tls, files)).transpose()?;
                        let about = LoginOfServer { name, login, url: &value(url)?, tls, state };
                        Some(Arc::new(OAuth::login(logins::settings(about)?)))
                    }
                    (None, None) => None,
                },
                tls: match tls {
                    Some(tls) => Some(client_tls(name, tls, files)?),
                    None => None,
                },
                transport: transport.map(|transport| match transport {
                    Transport::Streamable => Wire::Streamable,
                    Transport::Sse => Wire::Sse,
                }),
            })
        }
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
        cache: server.cache,
        results: Caps {
            by_tool: caps.collect(),
            otherwise: server.result_bytes.otherwise.map(bytes),
        },
        schemes: server.schemes.iter().map(|scheme| scheme.text.as_str().into()).collect(),
        roots: server.roots.as_deref().map(|roots| roots_of(name, roots)).transpose()?,
    })
}

/// The roots that the gateway answers for a server.
fn roots_of(name: &str, roots: &[Root]) -> Result<Roots, Failure> {
    let uri = |root: &Root| match root {
        Root::Uri(uri) => Ok(uri.clone()),
        Root::Path(path) => std::path::absolute(path).map(|path| file_uri(&path)),
    };
    let uris: Result<Vec<String>, _> = roots.iter().map(uri).collect();
    let wrong = |why| Failure::invalid(format!("error: `roots` of the server `{name}`: {why}"));
    uris.map(Roots::new).map_err(wrong)
}

/// Reads the files of a server's `tls`.
fn client_tls(name: &str, tls: &ServerTls, files: &impl Files) -> Result<ClientTls, Failure> {
    let wrong =
        |why: String| Failure::invalid(format!("error: `tls` of the server `{name}`: {why}"));
    let read = |path: &PathBuf| {
        files.read(path).map_err(|error| wrong(format!("{}: {error}", path.display())))
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
        let key = match oauth.grant {
            OAuthGrant::ClientCredentials => "oauth",
            OAuthGrant::Exchange { .. } => "exchange",
        };
        Failure::invalid(format!("error: `{key}.token_url` of the server `{server}`: {why}"))
    };
    let endpoint = Address::parse(&value(&oauth.token_url)?).map_err(|why| wrong(&why))?;
    if !endpoint.tls && !endpoint.is_loopback() {
        return Err(wrong(
            "the secret would be sent over `http` in plain text\n  help: use `https`",
        ));
    }
    let (id, secret) = (value(&oauth.client_id)?, value(&oauth.client_secret)?);
    // The query string may contain a secret.
    let resource = url.split(['?', '#']).next().unwrap_or(url);
    let scope = oauth.scope.as_deref();
    Ok(match &oauth.grant {
        OAuthGrant::ClientCredentials => OAuth::new(endpoint, &id, &secret, scope, resource),
        OAuthGrant::Exchange { audience } => {
            OAuth::exchange(endpoint, (&id, &secret), scope, audience.as_deref(), resource)
        }
    })
}

/// How clients of several servers name tools.
pub(crate) fn naming(config: &Config) -> names::Naming {
    match config.naming {
        Naming::Prefix => names::Naming::Prefix { separator: config.separator.clone() },
        Naming::Flat => names::Naming::Flat(names::NameRegistry::default()),
    }
}
