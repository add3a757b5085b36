//! TLS for clients: the certificate and key of the endpoint, and the authorities for client certificates.
//! The files are reloaded when they change; if that fails, the previous ones stay active.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use rustls_pki_types::pem::{self, PemObject};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::server::danger::ClientCertVerifier;
use tokio_rustls::rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use tokio_rustls::rustls::{RootCertStore, ServerConfig};
use tokio_rustls::server::TlsStream;

use crate::authn::{self, Certificate};
use crate::clock;
use crate::lock::LockUnpoisoned;

/// Timeout of the TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Interval at which a certificate is checked that has expired, or whose expiry cannot be read.
const RECHECK_INTERVAL: Duration = Duration::from_secs(1);

/// The configured files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Files {
    pub certificate: PathBuf,
    pub key: PathBuf,
    /// If set, clients need a certificate signed by one of these authorities.
    pub client_authorities: Option<PathBuf>,
}

pub struct Tls {
    files: Files,
    now: Mutex<LoadedFiles>,
    /// The number of reloads.
    renewed: watch::Sender<u64>,
}

struct LoadedFiles {
    config: Arc<ServerConfig>,
    /// Verifies client certificates.
    verifier: Option<Verifier>,
    generation: u64,
    /// The state of the files at the last check.
    stamps: Vec<Option<Stamp>>,
}

type Verifier = Arc<dyn ClientCertVerifier>;

/// A client's certificate chain, to be verified again.
#[derive(Debug)]
pub struct Chain {
    certificates: Vec<CertificateDer<'static>>,
    /// When the first of them expires, in seconds since the Unix epoch.
    until: u64,
    /// The generation of the files for which it was last verified.
    checked: AtomicU64,
}

impl Chain {
    fn new(chain: &[CertificateDer<'_>], generation: u64) -> Chain {
        // A certificate whose expiry cannot be read is verified each time.
        let until = chain.iter().map(|one| authn::ends(one).unwrap_or(0)).min();
        Chain {
            certificates: chain.iter().map(|one| one.clone().into_owned()).collect(),
            until: until.unwrap_or(0),
            checked: AtomicU64::new(generation),
        }
    }

    /// The same chain, for a call that outlives its connection.
    pub(super) fn copied(&self) -> Chain {
        let checked = AtomicU64::new(self.checked.load(Ordering::Relaxed));
        Chain { certificates: self.certificates.clone(), until: self.until, checked }
    }

    /// The time until it has to be verified again.
    pub(super) fn left(&self) -> Duration {
        match self.until.saturating_sub(clock::seconds()) {
            0 => RECHECK_INTERVAL,
            left => Duration::from_secs(left),
        }
    }
}

/// Identifies a version of a file, even if it was replaced: device, inode, modification time and size.
type Stamp = (u64, u64, i64, i64, u64);

impl Tls {
    pub fn new(files: Files) -> Result<Tls, String> {
        let stamps = files.stamps();
        let (config, verifier) = files.load()?;
        let now = Mutex::new(LoadedFiles { config, verifier, generation: 0, stamps });
        Ok(Tls { files, now, renewed: watch::Sender::new(0) })
    }

    fn now(&self) -> MutexGuard<'_, LoadedFiles> {
        self.now.locked()
    }

    /// Reloads the files if they changed. Open connections continue, except those of clients whose
    /// certificate is no longer valid.
    pub fn reload(&self) {
        let stamps = self.files.stamps();
        let mut now = self.now();
        if now.stamps == stamps {
            return;
        }
        now.stamps = stamps;
        match self.files.load() {
            Ok((config, verifier)) => {
                (now.config, now.verifier) = (config, verifier);
                now.generation += 1;
                drop(now);
                tracing::info!(target: "downstream", "tls: the certificate was reloaded");
                self.renewed.send_modify(|count| *count += 1);
            }
            Err(why) => tracing::error!(
                target: "downstream",
                "tls: {why}; the previous certificate stays active"
            ),
        }
    }

    /// Changes on every reload.
    pub(super) fn renewed(&self) -> watch::Receiver<u64> {
        self.renewed.subscribe()
    }

    /// Whether a client certificate is still valid.
    pub(super) fn trusts(&self, chain: &Chain) -> bool {
        let (verifier, generation) = {
            let now = self.now();
            (now.verifier.clone(), now.generation)
        };
        if chain.checked.load(Ordering::Relaxed) == generation && clock::seconds() < chain.until {
            return true;
        }
        let Some((own, others)) = chain.certificates.split_first() else { return false };
        let Some(verifier) = verifier else { return false };
        let good = verifier.verify_client_cert(own, others, UnixTime::now()).is_ok();
        if good {
            chain.checked.store(generation, Ordering::Relaxed);
        }
        good
    }

    /// Performs the handshake. Returns the stream, and the client's certificate with its chain.
    pub(super) async fn accept(
        &self,
        stream: TcpStream,
    ) -> io::Result<(TlsStream<TcpStream>, Option<(Certificate, Chain)>)> {
        let (config, generation) = {
            let now = self.now();
            (now.config.clone(), now.generation)
        };
        let stream =
            tokio::time::timeout(HANDSHAKE_TIMEOUT, TlsAcceptor::from(config).accept(stream));
        let stream = stream.await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
        let chain = stream.get_ref().1.peer_certificates().unwrap_or_default();
        let certificate = match chain.first() {
            // A verified certificate that cannot be parsed identifies no one: reject it.
            Some(shown) => {
                let read = Certificate::read(shown).ok_or(io::ErrorKind::InvalidData)?;
                Some((read, Chain::new(chain, generation)))
            }
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

    fn load(&self) -> Result<(Arc<ServerConfig>, Option<Verifier>), String> {
        let chain = certificates(&self.certificate)?;
        let key = PrivateKeyDer::from_pem_file(&self.key)
            .map_err(|error| unreadable(&self.key, &not_pem(&error)))?;
        let provider = Arc::new(default_provider());
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?;
        let mut client_verifier = None;
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
                client_verifier = Some(verifier.clone());
                builder.with_client_cert_verifier(verifier)
            }
        };
        let mut config = builder.with_single_cert(chain, key).map_err(|error| {
            unreadable(&self.certificate, &format!("it does not match the key: {error}"))
        })?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        if self.client_authorities.is_some() {
            // No session resumption: the client certificate is verified on each connection.
            config.session_storage = Arc::new(NoServerSessionStorage {});
            config.send_tls13_tickets = 0;
        }
        Ok((Arc::new(config), client_verifier))
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
        pem::Error::NoItemsFound => "it contains no PEM item of the expected kind".into(),
        pem::Error::MissingSectionEnd { .. } => "it is truncated".into(),
        _ => "it is not PEM".into(),
    }
}

fn unreadable(path: &Path, why: &str) -> String {
    format!("{}: {why}", path.display())
}
