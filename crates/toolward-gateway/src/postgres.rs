//! Connections to PostgreSQL, for the audit sink and the shared stores.
//!
//! A [`Database`] is an address with at most one connection, which is opened on first use and
//! again after it was lost. Every step has a timeout. Certificates are verified as for HTTP: with
//! the system's roots, or those of `sslrootcert`. Unlike libpq, a connection beyond this machine
//! uses TLS unless the URL has `sslmode=disable` or `prefer`: a password must not be sent to an
//! unverified server.

mod migrate;
mod tls;

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::{Mutex, MutexGuard};
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::{AsyncMessage, Client, Config, Notification};

pub use self::migrate::migrate;
use self::tls::Tls;
use crate::http_client::ClientTls;

/// The timeout for opening a connection: TCP, TLS and authentication together.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a failed attempt to connect is remembered, so that callers fail fast meanwhile.
const RETRY_DELAY: Duration = Duration::from_millis(250);

/// Where a database is, and how to connect to it.
#[derive(Clone)]
pub struct Settings {
    config: Config,
    tls: Tls,
}

impl std::fmt::Debug for Settings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Settings({})", self.shown())
    }
}

impl Settings {
    /// Parses `postgres://USER:PASSWORD@HOST:PORT/DATABASE?…`. `ca` has the certificates of
    /// `sslrootcert`, which the caller reads: [`root_certificates`] returns its path.
    pub fn parse(url: &str, ca: Option<&[u8]>) -> Result<Settings, String> {
        let (url, parameters) = split(url)?;
        let mut config: Config =
            url.parse().map_err(|error: tokio_postgres::Error| match std::error::Error::source(
                &error,
            ) {
                Some(source) => format!("{error}: {source}"),
                None => error.to_string(),
            })?;
        if config.get_hosts().is_empty() {
            return Err("it has no host".into());
        }
        let local = config.get_hosts().iter().all(is_local);
        config.ssl_mode(match parameters.mode.as_deref() {
            None if local => SslMode::Prefer,
            None | Some("require" | "verify-ca" | "verify-full") => SslMode::Require,
            Some("prefer") => SslMode::Prefer,
            Some("disable") => SslMode::Disable,
            Some(other) => {
                return Err(format!(
                    "`sslmode={other}` is not known; use `verify-full`, `prefer` or `disable`"
                ));
            }
        });
        if config.get_application_name().is_none() {
            config.application_name("toolward");
        }
        config.connect_timeout(CONNECT_TIMEOUT);
        config.keepalives_idle(Duration::from_secs(60));
        let own = ca.map(|ca| ClientTls::new(Some(ca), None)).transpose()?;
        Ok(Settings { config, tls: Tls::new(own) })
    }

    /// Host, port and database, without credentials: for messages.
    pub fn shown(&self) -> String {
        let host = match self.config.get_hosts().first() {
            Some(Host::Tcp(name)) => name.clone(),
            #[cfg(unix)]
            Some(Host::Unix(path)) => path.display().to_string(),
            None => String::new(),
        };
        let port = self.config.get_ports().first().copied().unwrap_or(5432);
        format!("{host}:{port}/{}", self.config.get_dbname().unwrap_or_default())
    }

    /// Opens a connection. Notifications of `LISTEN` go to `notifications`. The connection is
    /// driven by a task of the current runtime, and ends when the client is dropped.
    pub async fn connect(
        &self,
        notifications: Option<UnboundedSender<Notification>>,
    ) -> Result<Client, Error> {
        let opening = self.config.connect(self.tls.clone());
        let opened = tokio::time::timeout(CONNECT_TIMEOUT, opening).await;
        let (client, mut connection) = opened.map_err(|_| Error::TimedOut)??;
        tokio::spawn(async move {
            loop {
                match std::future::poll_fn(|context| connection.poll_message(context)).await {
                    Some(Ok(AsyncMessage::Notification(notification))) => {
                        if let Some(notifications) = &notifications {
                            let _ = notifications.send(notification);
                        }
                    }
                    Some(Ok(_)) => {}
                    // The next query on the client fails and reports the loss.
                    Some(Err(_)) | None => return,
                }
            }
        });
        Ok(client)
    }
}

/// The path of `sslrootcert` in a URL.
pub fn root_certificates(url: &str) -> Option<std::path::PathBuf> {
    split(url).ok()?.1.root_certificates.map(Into::into)
}

/// The parameters of a URL that the client library does not know, or that mean more here.
#[derive(Default)]
struct Parameters {
    mode: Option<String>,
    root_certificates: Option<String>,
}

/// Takes our own parameters out of a URL.
fn split(url: &str) -> Result<(String, Parameters), String> {
    if !url.starts_with("postgres://") && !url.starts_with("postgresql://") {
        return Err("it does not begin with `postgres://`".into());
    }
    let Some((address, query)) = url.split_once('?') else {
        return Ok((url.into(), Parameters::default()));
    };
    let (mut own, mut rest) = (Parameters::default(), Vec::new());
    for parameter in query.split('&') {
        match parameter.split_once('=') {
            Some(("sslmode", mode)) => own.mode = Some(mode.into()),
            Some(("sslrootcert", path)) => own.root_certificates = Some(decoded(path)),
            _ => rest.push(parameter),
        }
    }
    let url =
        if rest.is_empty() { address.into() } else { format!("{address}?{}", rest.join("&")) };
    Ok((url, own))
}

/// Decodes `%2F` and the like; anything else stays.
fn decoded(text: &str) -> String {
    let (mut out, mut rest) = (Vec::new(), text.as_bytes());
    while let Some((&first, after)) = rest.split_first() {
        let hex = after.get(..2).and_then(|hex| std::str::from_utf8(hex).ok());
        match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()).filter(|_| first == b'%') {
            Some(byte) => {
                out.push(byte);
                rest = after.get(2..).unwrap_or_default();
            }
            None => {
                out.push(first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

fn is_local(host: &Host) -> bool {
    match host {
        Host::Tcp(name) => {
            let ip = name.parse::<std::net::IpAddr>();
            name.eq_ignore_ascii_case("localhost") || ip.is_ok_and(|ip| ip.is_loopback())
        }
        #[cfg(unix)]
        Host::Unix(_) => true,
    }
}

/// Why a statement was not carried out.
#[derive(Debug)]
pub enum Error {
    TimedOut,
    /// The last attempt to connect failed a moment ago.
    Unavailable(String),
    Postgres(tokio_postgres::Error),
}

impl From<tokio_postgres::Error> for Error {
    fn from(error: tokio_postgres::Error) -> Error {
        Error::Postgres(error)
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Error::TimedOut => f.write_str("the database does not respond"),
            Error::Unavailable(why) => f.write_str(why),
            Error::Postgres(error) => match std::error::Error::source(error) {
                Some(source) => write!(f, "{error}: {source}"),
                None => write!(f, "{error}"),
            },
        }
    }
}

impl std::error::Error for Error {}

/// A database with one connection, which is opened when it is needed.
///
/// It belongs to the runtime that uses it: the connection is driven by a task there.
#[derive(Debug)]
pub struct Database {
    settings: Settings,
    /// For notifications of every connection.
    notifications: Option<UnboundedSender<Notification>>,
    /// Statements that every new connection executes first, such as `LISTEN`.
    prologue: String,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    client: Option<Arc<Client>>,
    failed: Option<(Instant, String)>,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State").field("connected", &self.client.is_some()).finish_non_exhaustive()
    }
}

impl Database {
    pub fn new(settings: Settings) -> Database {
        let (notifications, prologue) = (None, String::new());
        Database { settings, notifications, prologue, state: Mutex::default() }
    }

    /// Executes statements on every new connection, and passes on its notifications.
    #[must_use]
    pub fn listening(
        mut self,
        prologue: impl Into<String>,
        notifications: UnboundedSender<Notification>,
    ) -> Database {
        (self.prologue, self.notifications) = (prologue.into(), Some(notifications));
        self
    }

    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The connection; a new one at first and after it was lost.
    pub async fn client(&self) -> Result<Arc<Client>, Error> {
        let mut state: MutexGuard<'_, State> = self.state.lock().await;
        if let Some(client) = state.client.as_ref().filter(|client| !client.is_closed()) {
            return Ok(client.clone());
        }
        state.client = None;
        let failed = state.failed.as_ref().filter(|(at, _)| at.elapsed() < RETRY_DELAY);
        if let Some((_, why)) = failed {
            return Err(Error::Unavailable(why.clone()));
        }
        match self.open().await {
            Ok(client) => {
                let client = Arc::new(client);
                (state.client, state.failed) = (Some(client.clone()), None);
                Ok(client)
            }
            Err(error) => {
                state.failed = Some((Instant::now(), error.to_string()));
                Err(error)
            }
        }
    }

    async fn open(&self) -> Result<Client, Error> {
        let client = self.settings.connect(self.notifications.clone()).await?;
        if !self.prologue.is_empty() {
            let executed = client.batch_execute(&self.prologue);
            tokio::time::timeout(CONNECT_TIMEOUT, executed)
                .await
                .map_err(|_| Error::TimedOut)??;
        }
        Ok(client)
    }

    /// Closes the connection, for example after a statement timed out: what the server still does
    /// with it must not be mistaken for the answer to the next statement.
    pub async fn disconnect(&self) {
        self.state.lock().await.client = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tls_is_required_beyond_this_machine() {
        let mode = |url: &str| Settings::parse(url, None).map(|it| it.config.get_ssl_mode());
        assert_eq!(mode("postgres://u:p@db.example/toolward"), Ok(SslMode::Require));
        assert_eq!(mode("postgres://u:p@db.example/t?sslmode=verify-full"), Ok(SslMode::Require));
        assert_eq!(mode("postgres://u@db.example/t?sslmode=disable"), Ok(SslMode::Disable));
        assert_eq!(mode("postgres://u@127.0.0.1/t"), Ok(SslMode::Prefer));
        assert_eq!(mode("postgresql://u@%2Frun%2Fpostgresql/t"), Ok(SslMode::Prefer));
        // One host beyond this machine is enough.
        assert_eq!(mode("postgres://u@localhost,db.example/t"), Ok(SslMode::Require));
    }

    #[test]
    fn an_invalid_address_is_rejected_without_its_password() {
        for bad in [
            "mysql://u:secret@h/d",
            "postgres://u:secret@h/d?sslmode=maybe",
            "postgres://u:secret@h:port/d",
            "postgres://u:secret@h/d?unknown=1",
        ] {
            let error = Settings::parse(bad, None).unwrap_err();
            assert!(!error.contains("secret"), "{error}");
        }
        let settings = Settings::parse("postgres://u:secret@h:1/d", None).unwrap();
        assert_eq!(format!("{settings:?}"), "Settings(h:1/d)");
    }

    #[test]
    fn the_path_of_certificates_is_found() {
        let url = "postgres://u@h/d?sslrootcert=%2Fetc%2Fdb.pem&connect_timeout=3";
        assert_eq!(root_certificates(url), Some("/etc/db.pem".into()));
        assert!(Settings::parse(url, None).is_ok());
        assert!(Settings::parse(url, Some(b"not a certificate")).is_err());
    }
}
