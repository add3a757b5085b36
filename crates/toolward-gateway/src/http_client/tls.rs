//! How an origin is verified, and how the gateway identifies itself to it.

use std::io;
use std::sync::{Arc, OnceLock};

use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use sha2::{Digest, Sha256};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// A private CA, a client certificate, or both, for one origin.
#[derive(Clone)]
pub struct ClientTls {
    config: Arc<ClientConfig>,
    /// The digest of the files, so that a reload notices a change.
    digest: [u8; 32],
}

impl ClientTls {
    /// Parses PEM files. `ca` replaces the system's certificates; `identity` is a certificate chain
    /// and its key.
    pub fn new(ca: Option<&[u8]>, identity: Option<(&[u8], &[u8])>) -> Result<ClientTls, String> {
        let mut digest = Sha256::new();
        for part in [ca, identity.map(|(cert, _)| cert), identity.map(|(_, key)| key)] {
            let part = part.unwrap_or_default();
            digest.update((part.len() as u64).to_le_bytes());
            digest.update(part);
        }
        let roots = match ca {
            Some(ca) => private_roots(ca)?,
            None => system_roots(),
        };
        let builder = builder().map_err(|error| error.to_string())?.with_root_certificates(roots);
        let config = match identity {
            None => builder.with_no_client_auth(),
            Some((chain, key)) => {
                let chain = certificates(chain, "cert")?;
                let key = PrivateKeyDer::from_pem_slice(key)
                    .map_err(|_| "`key` is not a private key in PEM".to_string())?;
                builder.with_client_auth_cert(chain, key).map_err(|error| error.to_string())?
            }
        };
        Ok(ClientTls { config: Arc::new(config), digest: digest.finalize().into() })
    }
}

impl PartialEq for ClientTls {
    fn eq(&self, other: &ClientTls) -> bool {
        self.digest == other.digest
    }
}

impl std::fmt::Debug for ClientTls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ClientTls(…)")
    }
}

/// The connector for an origin: its own, or one with the system's certificates, which are read
/// once.
pub(crate) fn connector(own: Option<&ClientTls>) -> io::Result<TlsConnector> {
    static CONFIG: OnceLock<Arc<ClientConfig>> = OnceLock::new();
    if let Some(config) = own.map(|own| &own.config).or_else(|| CONFIG.get()) {
        return Ok(config.clone().into());
    }
    let builder = builder().map_err(io::Error::other)?;
    let config = builder.with_root_certificates(system_roots()).with_no_client_auth();
    Ok(CONFIG.get_or_init(|| Arc::new(config)).clone().into())
}

type Builder =
    tokio_rustls::rustls::ConfigBuilder<ClientConfig, tokio_rustls::rustls::WantsVerifier>;

fn builder() -> Result<Builder, tokio_rustls::rustls::Error> {
    let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
    ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()
}

fn system_roots() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    for certificate in rustls_native_certs::load_native_certs().certs {
        // A certificate that cannot be parsed is not trusted; the others are.
        let _ = roots.add(certificate);
    }
    roots
}

fn private_roots(ca: &[u8]) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(ca, "ca")? {
        roots.add(certificate).map_err(|error| format!("`ca`: {error}"))?;
    }
    Ok(roots)
}

/// The certificates of a PEM file: one or more.
fn certificates(pem: &[u8], key: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match read {
        Ok(found) if !found.is_empty() => Ok(found),
        _ => Err(format!("`{key}` is not a certificate in PEM")),
    }
}
