//! Builds approvals from the configuration: times, notifications, admins, and the store of tickets and grants.

use std::path::Path;
use std::sync::Arc;

use toolward_config::config::{Config, NotifyChannel, NotifyFormat, Token};
use toolward_config::sanitize;
use toolward_gateway::authn::{Identities, Tokens};
use toolward_gateway::guard::approvals::{self, Approvals, Notifier, Settings};
use toolward_gateway::http_client::Address;

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
    Ok(Settings::new((approvals.hold, approvals.ttl, approvals.max_grant), notify?))
}

fn wrong(why: &str) -> Failure {
    Failure::invalid(format!("error: `approvals.notify`: {}", sanitize(why)))
}

/// The tokens of admins. None of them may belong to an agent: it could approve its own calls.
pub(crate) fn admins(config: &Config, identities: &Identities) -> Result<Option<Tokens>, Failure> {
    use sha2::{Digest, Sha256};
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

/// Tickets and grants: in the state directory, so that they survive a restart, or in memory without one.
pub(crate) fn open(state: Option<&Path>, configuration: &str) -> Result<Arc<Approvals>, Failure> {
    let opened = match state {
        Some(state) => Approvals::in_state(state, configuration),
        None => Approvals::in_memory(),
    };
    let failed = |error: std::io::Error| {
        let why = error.to_string();
        Failure::invalid(format!("error: approvals cannot be stored: {}", sanitize(&why)))
    };
    opened.map(Arc::new).map_err(failed)
}
