//! Builds approvals from the configuration: times, notifications, admins, and the store of tickets and grants.

use std::path::Path;
use std::sync::Arc;

use sha2::{Digest, Sha256};
use toolward_config::config::{Config, NotifyChannel, NotifyFormat, Secret, Token};
use toolward_config::sanitize;
use toolward_gateway::authn::{Identities, Tokens};
use toolward_gateway::guard::approvals::{self, Approvals, Notifier, Settings};
use toolward_gateway::http_client::Address;
use toolward_gateway::opaque_id::Sealer;

use crate::exit::Failure;
use crate::load::Input;

/// How calls wait for a person. The secrets of the configuration are resolved.
pub(crate) fn settings(config: &Config) -> Result<Settings, Failure> {
    let approvals = &config.approvals;
    let notify: Result<Vec<Notifier>, Failure> = approvals
        .notify
        .iter()
        .map(|notify| {
            let notifier = match &notify.channel {
                NotifyChannel::Exec { program, args } => {
                    let args = args.iter().map(Into::into).collect();
                    Notifier::exec(program.into(), args).map_err(|why| wrong(&why))?
                }
                NotifyChannel::Http { url, format } => {
                    let url = url.value().ok_or_else(|| wrong("a URL is not resolved"))?;
                    let address = Address::parse(url).map_err(|why| wrong(&why))?;
                    let format = match format {
                        NotifyFormat::Json => approvals::NotifyFormat::Json,
                        NotifyFormat::Slack => approvals::NotifyFormat::Slack,
                        NotifyFormat::Ntfy => approvals::NotifyFormat::Ntfy,
                    };
                    Notifier::http(address, format)
                }
            };
            Ok(notifier.with_arguments(notify.arguments))
        })
        .collect();
    let times = (approvals.hold, approvals.ttl, approvals.max_grant);
    Ok(Settings::new(times, notify?).with_credentials(credentials(config)))
}

/// A digest of each agent's credentials: an agent that was revoked and created again has no approvals. It does not depend
/// on the listener, because gateways with the same configuration share approvals.
fn credentials(config: &Config) -> impl Iterator<Item = (Box<str>, Box<str>)> {
    config.agents.iter().map(|agent| {
        let token = |token: &Token| match token {
            Token::Sha256(digest) => digest.to_vec(),
            Token::Reference(secret) => match secret.value() {
                Some(value) => Sha256::digest(value).to_vec(),
                None => secret.with_references().into_bytes(),
            },
        };
        let mut parts: Vec<Vec<u8>> = agent.tokens.iter().map(token).collect();
        parts.extend(agent.uids.iter().map(|uid| format!("uid {uid}").into_bytes()));
        parts.extend(agent.certificates.iter().map(|mark| format!("{mark:?}").into_bytes()));
        parts.extend(agent.claims.iter().map(|claim| format!("{claim:?}").into_bytes()));
        // Their order means nothing.
        parts.sort();
        let mut hash = Sha256::new();
        for part in &parts {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        let digest: String =
            hash.finalize().iter().take(16).map(|one| format!("{one:02x}")).collect();
        (agent.name.as_str().into(), digest.into())
    })
}

fn wrong(why: &str) -> Failure {
    Failure::invalid(format!("error: `approvals.notify`: {}", sanitize(why)))
}

/// The tokens of admins. None of them may belong to an agent: it could approve its own calls.
pub(crate) fn admins(config: &Config, identities: &Identities) -> Result<Option<Tokens>, Failure> {
    let Some(admins) = &config.admins else { return Ok(None) };
    let mut tokens = Tokens::default();
    for admin in admins {
        let name: Arc<str> = admin.name.as_str().into();
        for token in &admin.tokens {
            let digest: [u8; 32] = match token {
                Token::Sha256(digest) => *digest,
                Token::Reference(secret) => match secret.value() {
                    Some(value) => Sha256::digest(value).into(),
                    None => continue,
                },
            };
            let taken = |owner: &str, kind: &str| {
                Failure::invalid(format!(
                    "error: a token belongs to the admin `{}` and to the {kind} `{}`\n  help: an agent with an \
                     admin's token could approve its own calls; make one with `toolward token new`",
                    sanitize(&name),
                    sanitize(owner)
                ))
            };
            if let Some(agent) = identities.tokens.owner(&digest) {
                return Err(taken(agent, "agent"));
            }
            tokens.add(digest, &name).map_err(|other| taken(&other, "admin"))?;
        }
    }
    Ok(Some(tokens))
}

/// Names the configuration of a gateway. Gateways with the same one share tickets and grants.
pub(crate) fn configuration(input: &Input) -> String {
    let files = input.loaded.sources().map(|(path, _)| path);
    let main = input.loaded.main_file();
    let files: Vec<&Path> = main.map_or_else(|| files.collect(), |main| vec![main]);
    let absolute = |path: &&Path| {
        let path = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
        path.to_string_lossy().into_owned()
    };
    files.iter().map(absolute).collect::<Vec<_>>().join("\n")
}

/// Tickets and grants: in a store that gateways share; in the state directory, so that they survive a restart; or in
/// memory. The secrets of the configuration are resolved.
pub(crate) fn open(
    config: &Config,
    configuration: &str,
    sealer: &Arc<Sealer>,
) -> Result<Arc<Approvals>, Failure> {
    if let Some(store) = config.approvals_store() {
        return shared(store, sealer);
    }
    let opened = match &config.state {
        Some(state) => Approvals::in_state(state, configuration),
        None => Approvals::in_memory(),
    };
    let failed = |error: std::io::Error| {
        let why = error.to_string();
        Failure::invalid(format!("error: approvals cannot be stored: {}", sanitize(&why)))
    };
    opened.map(Arc::new).map_err(failed)
}

fn shared(store: &Secret, sealer: &Arc<Sealer>) -> Result<Arc<Approvals>, Failure> {
    let wrong =
        |why: &str| Failure::invalid(format!("error: the store of approvals: {}", sanitize(why)));
    let url = store.value().ok_or_else(|| wrong("its URL is not resolved"))?;
    let ca = match root_certificates(url) {
        Some(path) => Some(
            std::fs::read(&path).map_err(|error| wrong(&format!("{}: {error}", path.display())))?,
        ),
        None => None,
    };
    let opened = Approvals::shared(url, ca.as_deref(), sealer.clone());
    opened.map(Arc::new).map_err(|error| wrong(&error.to_string()))
}

/// The certificates of a database, if its URL names some.
fn root_certificates(url: &str) -> Option<std::path::PathBuf> {
    #[cfg(feature = "postgres")]
    return toolward_gateway::postgres::root_certificates(url);
    #[cfg(not(feature = "postgres"))]
    {
        let _ = url;
        None
    }
}
