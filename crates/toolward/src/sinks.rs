//! Audit sinks of the configuration, and the key that signs the log.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use toolward_config::config::{Config, Secret, ServerTls, Sink as Configured, SinkKind};
use toolward_config::sanitize;
use toolward_gateway::audit::Audit;
use toolward_gateway::audit::signatures::{Signing, SigningKey};
use toolward_gateway::audit::sink_state::SinkState;
use toolward_gateway::http_client::ClientTls;
use toolward_gateway::sinks::{Sink, Sinks, Target, syslog};

use crate::exit::Failure;

/// How long the end of the process waits for sinks. The next process delivers the rest.
const FINISH_TIMEOUT: Duration = Duration::from_secs(2);

/// The configured sinks, whose secrets are resolved.
pub(crate) fn configured(config: &Config) -> Result<Vec<Sink>, Failure> {
    config.audit.sinks.iter().map(sink).collect()
}

/// Starts the sinks of a log; they end with it.
pub(crate) fn start(audit: &Audit, sinks: Vec<Sink>) -> Result<(), Failure> {
    if sinks.is_empty() {
        return Ok(());
    }
    let running = Sinks::start(audit.folder(), sinks)?;
    audit.at_close(move || running.finish(FINISH_TIMEOUT));
    Ok(())
}

/// Starts to sign the log, if there is a key.
pub(crate) fn sign(audit: &Arc<Audit>, config: &Config) -> Result<(), Failure> {
    let Some(file) = &config.audit.sign else { return Ok(()) };
    let wrong = |why: String| Failure::invalid(format!("error: `audit.sign`: {}", sanitize(&why)));
    let key = SigningKey::read(&read(file).map_err(wrong)?)
        .map_err(|error| wrong(format!("{}: {error}", file.display())))?;
    let signing = Signing::start(audit, key, config.audit.anchor.clone())?;
    audit.at_close(move || signing.finish(FINISH_TIMEOUT));
    Ok(())
}

/// On stdio, standard output is the connection to the client.
pub(crate) fn reject_stdout(config: &Config) -> Result<(), Failure> {
    match config.audit.sinks.iter().any(|sink| sink.kind == SinkKind::Stdout) {
        false => Ok(()),
        true => Err(Failure::invalid(
            "error: the sink `stdout` cannot be used on stdio, where the client reads standard output\n  \
             help: use another sink, or `toolward serve`",
        )),
    }
}

fn sink(sink: &Configured) -> Result<Sink, Failure> {
    let wrong = |why: String| {
        let name = sanitize(&sink.name).into_owned();
        Failure::invalid(format!("error: the sink `{name}`: {}", sanitize(&why)))
    };
    let state = Arc::new(SinkState::new(&sink.name, sink.max_lag));
    Ok(Sink { state, target: target(&sink.kind).map_err(wrong)? })
}

fn target(kind: &SinkKind) -> Result<Target, String> {
    match kind {
        SinkKind::Stdout => Ok(Target::Stdout),
        SinkKind::Syslog { address, facility, tls } => {
            let address = syslog::Address::parse(value(address)?)?;
            if tls.is_some() && !matches!(address, syslog::Address::Tls { .. }) {
                return Err("`tls` requires an address with `tls://`".into());
            }
            let tls = tls.as_ref().map(client_tls).transpose()?;
            Ok(Target::Syslog(Box::new(syslog::Syslog::new(address, facility, tls))))
        }
        SinkKind::Otlp { url, headers, tls } => otlp(value(url)?, headers, tls.as_ref()),
        SinkKind::Postgres { url, table } => postgres(value(url)?, table),
    }
}

#[cfg(feature = "otlp")]
fn otlp(
    url: &str,
    headers: &[(String, Secret)],
    tls: Option<&ServerTls>,
) -> Result<Target, String> {
    use toolward_gateway::otlp::Exporter;
    use toolward_gateway::sinks::otlp::Otlp;
    let headers = header_values(headers)?;
    let exporter = Exporter::new(url, "/v1/logs", headers, tls.map(client_tls).transpose()?)?;
    Ok(Target::Otlp(Box::new(Otlp::new(exporter))))
}

#[cfg(not(feature = "otlp"))]
fn otlp(_: &str, _: &[(String, Secret)], _: Option<&ServerTls>) -> Result<Target, String> {
    Err("this program was built without OTLP (feature `otlp`)".into())
}

#[cfg(feature = "postgres")]
fn postgres(url: &str, table: &str) -> Result<Target, String> {
    use toolward_gateway::postgres::{Settings, root_certificates};
    use toolward_gateway::sinks::postgres::{Postgres, check_table};
    check_table(table)?;
    let ca = root_certificates(url).map(|path| read(&path)).transpose()?;
    let settings = Settings::parse(url, ca.as_deref())?;
    Ok(Target::Postgres(Box::new(Postgres::new(settings, table.into()))))
}

#[cfg(not(feature = "postgres"))]
fn postgres(_: &str, _: &str) -> Result<Target, String> {
    Err("this program was built without PostgreSQL (feature `postgres`)".into())
}

/// The resolved values of headers.
#[cfg(feature = "otlp")]
pub(crate) fn header_values(headers: &[(String, Secret)]) -> Result<Vec<(String, String)>, String> {
    headers.iter().map(|(name, secret)| Ok((name.clone(), value(secret)?.to_owned()))).collect()
}

fn value(secret: &Secret) -> Result<&str, String> {
    secret.value().ok_or_else(|| "a reference is not resolved".into())
}

fn client_tls(tls: &ServerTls) -> Result<ClientTls, String> {
    let ca = tls.ca.as_ref().map(read).transpose()?;
    let identity = match &tls.identity {
        Some((cert, key)) => Some((read(cert)?, read(key)?)),
        None => None,
    };
    let identity = identity.as_ref().map(|(cert, key)| (&cert[..], &key[..]));
    ClientTls::new(ca.as_deref(), identity)
}

fn read(path: &PathBuf) -> Result<Vec<u8>, String> {
    std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))
}
