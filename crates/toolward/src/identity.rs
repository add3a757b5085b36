//! Builds authentication from the configuration: agents' credentials, the JWT issuer, allowed hosts and trusted
//! proxies.

use std::sync::Arc;

use toolward_config::config::{CertificateMark, Config, Jwks, Jwt, Listen, Token};
use toolward_config::sanitize;
use toolward_gateway::active::reachable::Base;
use toolward_gateway::active::reachable::Reachable;
use toolward_gateway::authn::{
    Algorithm, ClaimRule, Identities, Issuer, Mark, Settings, Source, check_key_file,
};
use toolward_gateway::downstream::tls::{Files, Tls};
use toolward_gateway::http_client::Address;

use crate::exit::Failure;

/// The credentials of all agents, with their secrets resolved. `required`: unnamed callers are rejected.
/// `show_claims`: rules read the claims of a JWT.
pub(crate) fn identities(
    config: &Config,
    required: bool,
    show_claims: bool,
) -> Result<Identities, Failure> {
    let mut identities = Identities::new(required, show_claims);
    let twice = |one: &str, other: &str| {
        let (one, other) = (sanitize(one), sanitize(other));
        Failure::invalid(format!(
            "error: a token belongs to `{one}` and to `{other}`: it must identify one agent"
        ))
    };
    for agent in &config.agents {
        let name: Arc<str> = agent.name.as_str().into();
        for token in &agent.tokens {
            let added = match token {
                Token::Sha256(hash) => identities.tokens.add(*hash, &name),
                Token::Reference(secret) => match secret.value() {
                    Some(value) => identities.add(value, &name),
                    None => Ok(()),
                },
            };
            added.map_err(|other| twice(&other, &name))?;
        }
        identities.uids.extend(agent.uids.iter().map(|uid| (*uid, name.clone())));
        let marks = agent.certificates.iter().map(|mark| match mark {
            CertificateMark::Sha256(hash) => Mark::Sha256(*hash),
            CertificateMark::CommonName(name) => Mark::CommonName(name.clone()),
            CertificateMark::Dns(host) => Mark::Dns(host.clone()),
            CertificateMark::Uri(uri) => Mark::Uri(uri.clone()),
        });
        marks.for_each(|mark| identities.add_certificate(mark, &name));
        if !agent.claims.is_empty() {
            identities.claims.push(ClaimRule { agent: name, claims: agent.claims.clone() });
        }
    }
    identities.keep_tokens = config.servers.iter().any(|server| server.exchanges());
    for jwt in &config.jwt {
        let issuer = Issuer::new(settings(config, jwt)?);
        if identities.issuers.iter().any(|known| known.name() == issuer.name()) {
            let name = sanitize(issuer.name()).into_owned();
            let why = format!("error: `identity.jwt`: the issuer `{name}` is listed twice");
            return Err(Failure::invalid(why));
        }
        identities.issuers.push(issuer);
    }
    Ok(identities)
}

/// How JWTs are checked.
fn settings(config: &Config, jwt: &Jwt) -> Result<Settings, Failure> {
    let wrong = |key: &str, why: &str| {
        Failure::invalid(format!("error: `identity.jwt.{key}`: {}", sanitize(why)))
    };
    let issuer = jwt.issuer.value().ok_or_else(|| wrong("issuer", "it is not resolved"))?;
    let secure = |key: &str, url: &str| {
        let address = Address::parse(url).map_err(|why| wrong(key, &why))?;
        if !address.tls && !address.is_loopback() {
            let why = "keys fetched over `http` could come from anyone\n  help: use `https`";
            return Err(wrong(key, why));
        }
        Ok(address)
    };
    let keys = match &jwt.jwks {
        Jwks::Discovered => {
            secure("issuer", issuer)?;
            Source::Issuer(issuer.to_string())
        }
        Jwks::File(path) => {
            let unusable = |why: String| wrong("jwks", &format!("{}: {why}", path.display()));
            check_key_file(path).map_err(unusable)?;
            Source::File(path.clone())
        }
        Jwks::Url(url) => {
            let url = url.value().ok_or_else(|| wrong("jwks", "it is not resolved"))?;
            Source::Url(secure("jwks", url)?)
        }
    };
    Ok(Settings {
        issuer: issuer.to_string(),
        keys,
        audience: jwt.audience.clone(),
        base: config
            .public_url
            .as_deref()
            .map(|url| Base::of_url(url).to_string())
            .unwrap_or_default(),
        algorithms: jwt.algorithms.iter().filter_map(|name| Algorithm::parse(name)).collect(),
        leeway: jwt.leeway,
        agent_claim: jwt.agent_claim.as_deref().map(Into::into),
    })
}

/// The certificate of the endpoint.
pub(crate) fn tls(config: &Config) -> Result<Option<Arc<Tls>>, Failure> {
    let Some(tls) = &config.tls else { return Ok(None) };
    let files = Files {
        certificate: tls.cert.clone(),
        key: tls.key.clone(),
        client_authorities: tls.client_ca.clone(),
    };
    let tls = Tls::new(files);
    let tls = tls.map_err(|why| Failure::invalid(format!("error: `tls`: {}", sanitize(&why))))?;
    Ok(Some(Arc::new(tls)))
}

/// The host names and origins under which the gateway can be reached.
pub(crate) fn reachable(config: &Config) -> Reachable {
    let mut hosts = config.allowed_hosts.clone();
    let mut origins = config.allowed_origins.clone();
    if let Some(url) = &config.public_url
        && let Ok(address) = Address::parse(url)
    {
        let scheme = if address.tls { "https" } else { "http" };
        origins.push(format!("{scheme}://{}", address.authority));
        hosts.push(address.authority);
    }
    for listen in &config.listen {
        if let Listen::Tcp(address) = listen
            && !address.ip().is_unspecified()
        {
            hosts.push(address.ip().to_string());
        }
    }
    let mut reachable = Reachable::new(hosts, origins);
    if let Some(url) = &config.public_url {
        reachable = reachable.base(Base::of_url(url));
    }
    if config.cors {
        reachable = reachable.pages(config.allowed_origins.clone());
    }
    if !config.trusted_proxies.is_empty() {
        let ranges = config.trusted_proxies.clone();
        reachable = reachable.proxies(move |ip| ranges.iter().any(|range| range.contains(ip)));
    }
    reachable
}

/// Rejects listening beyond loopback without authentication.
pub(crate) fn may_listen(config: &Config, has_policy: bool) -> Result<(), Failure> {
    if !config.listens_beyond_loopback() {
        return Ok(());
    }
    let refuse = |why: &str, help: &str| {
        Err(Failure::invalid(format!(
            "error: `listen` can be reached from other machines, and {why}\n  help: {help}"
        )))
    };
    if !config.authenticates() {
        return refuse(
            "no agent has a credential",
            "give agents `tokens`, or listen on 127.0.0.1 behind a proxy that authenticates",
        );
    }
    if !config.deny_on_missing_agent {
        return refuse(
            "callers without a name are accepted",
            "remove `defaults.deny_on_missing_agent: false`, or listen on 127.0.0.1",
        );
    }
    if !has_policy {
        return refuse("there is no policy", "define `agents` or `allowed_tools`");
    }
    Ok(())
}
