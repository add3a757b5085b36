//! TLS for clients: the certificate and key of the endpoint, and the authorities of clients'
//! certificates. The files are read again when they change; what cannot be read leaves the old in force.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustls_pki_types::pem::{self, PemObject};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use tokio_rustls::rustls::{RootCertStore, ServerConfig};
use tokio_rustls::server::TlsStream;

use crate::identity::Certificate;
use crate::upstream::Log;

/// How long a client may take until it is known who it is.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// The files of the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Files {
    pub certificate: PathBuf,
    pub key: PathBuf,
    /// Clients need a certificate that one of these has signed.
    pub client_authorities: Option<PathBuf>,
}

pub struct Tls {
    files: Files,
    now: Mutex<Loaded>,
    log: Log,
}

struct Loaded {
    config: Arc<ServerConfig>,
    /// What the files looked like when they were looked at last.
    stamps: Vec<Option<Stamp>>,
}

/// Tells a file from what it was before, also where it was replaced.
type Stamp = (u64, u64, i64, i64, u64);

impl Tls {
    pub fn new(files: Files, log: Log) -> Result<Tls, String> {
        let stamps = files.stamps();
        let config = files.load()?;
        Ok(Tls { files, now: Mutex::new(Loaded { config, stamps }), log })
    }

    /// Reads the files again if they changed. Connections that are open stay as they are.
    pub fn reload(&self) {
        let stamps = self.files.stamps();
        let mut now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        if now.stamps == stamps {
            return;
        }
        now.stamps = stamps;
        match self.files.load() {
            Ok(config) => {
                now.config = config;
                (self.log)("tls: the certificate was read again");
            }
            Err(why) => (self.log)(&format!("tls: {why}; the old certificate stays in force")),
        }
    }

    /// The connection of a client, and its certificate.
    pub(super) async fn accept(
        &self,
        stream: TcpStream,
    ) -> io::Result<(TlsStream<TcpStream>, Option<Certificate>)> {
        let config = self.now.lock().unwrap_or_else(PoisonError::into_inner).config.clone();
        let stream = tokio::time::timeout(HANDSHAKE, TlsAcceptor::from(config).accept(stream));
        let stream = stream.await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
        let shown = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
        let certificate = match shown {
            // What was verified and cannot be read is nobody's.
            Some(shown) => Some(Certificate::read(shown).ok_or(io::ErrorKind::InvalidData)?),
            None => None,
        };
        Ok((stream, certificate))
    }
}

impl Files {
    fn stamps(&self) -> Vec<Option<Stamp>> {
        let stamp = |path: &PathBuf| {
            let found = std::fs::metadata(path).ok()?;
            Some((found.dev(), found.ino(), found.mtime(), found.mtime_nsec(), found.len()))
        };
        [&self.certificate, &self.key]
            .into_iter()
            .chain(&self.client_authorities)
            .map(stamp)
            .collect()
    }

    fn load(&self) -> Result<Arc<ServerConfig>, String> {
        let chain = certificates(&self.certificate)?;
        let key = PrivateKeyDer::from_pem_file(&self.key)
            .map_err(|error| unreadable(&self.key, &not_pem(&error)))?;
        let provider = Arc::new(default_provider());
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?;
        let builder = match &self.client_authorities {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let mut roots = RootCertStore::empty();
                for authority in certificates(path)? {
                    roots.add(authority).map_err(|error| unreadable(path, &error.to_string()))?;
                }
                let verifier =
                    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
                let verifier = verifier.map_err(|error| unreadable(path, &error.to_string()))?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let mut config = builder.with_single_cert(chain, key).map_err(|error| {
            unreadable(&self.certificate, &format!("it does not fit the key: {error}"))
        })?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        if self.client_authorities.is_some() {
            // Who a client is, is found out anew on each connection.
            config.session_storage = Arc::new(NoServerSessionStorage {});
            config.send_tls13_tickets = 0;
        }
        Ok(Arc::new(config))
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let read = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| unreadable(path, &not_pem(&error)))?;
    match read.is_empty() {
        true => Err(unreadable(path, &not_pem(&pem::Error::NoItemsFound))),
        false => Ok(read),
    }
}

fn not_pem(error: &pem::Error) -> String {
    match error {
        pem::Error::Io(error) => error.to_string(),
        pem::Error::NoItemsFound => "it does not hold what it should".into(),
        pem::Error::MissingSectionEnd { .. } => "it is cut short".into(),
        _ => "it is not PEM".into(),
    }
}

fn unreadable(path: &Path, why: &str) -> String {
    format!("{}: {why}", path.display())
}
