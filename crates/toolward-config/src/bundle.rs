//! Signed policy bundles: policy files in one archive, with a signed list of them.
//!
//! A bundle is a gzip-compressed tar archive. Its first two entries are `manifest.json` and `manifest.sig`; the manifest
//! has a revision, which increases, and name, size and SHA-256 of every other entry, in the order in which calls pass
//! the layers. The signature is Ed25519, over the bytes of the manifest with a prefix. Nothing of an archive is used
//! before the signature is verified, and nothing is unpacked to disk.

mod archive;

use std::fmt;

use ring::rand::SystemRandom;
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use self::archive::{ArchiveReader, archive};

/// Maximum size of a bundle, compressed.
pub const MAX_BYTES: usize = 4 << 20;
/// Maximum number of policy files.
const MAX_FILES: usize = 256;
const MANIFEST: &str = "manifest.json";
const SIGNATURE: &str = "manifest.sig";
/// Keeps signatures from being used for anything else.
const PREFIX: &[u8] = b"toolward policy bundle, 1\n";
const VERSION: u64 = 1;
const SCHEME: &str = "ed25519:";

/// A verified bundle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bundle {
    /// Increases with every bundle of a source.
    pub revision: u64,
    /// Name and content of the policy files, in order.
    pub files: Vec<(String, Vec<u8>)>,
}

/// Why a bundle is rejected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BundleError(String);

impl BundleError {
    fn new(why: impl Into<String>) -> BundleError {
        BundleError(why.into())
    }
}

impl fmt::Display for BundleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BundleError {}

/// A public key that verifies bundles: `ed25519:` and 64 hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BundleKey([u8; 32]);

impl BundleKey {
    pub fn parse(text: &str) -> Result<BundleKey, BundleError> {
        let bytes = text.strip_prefix(SCHEME).and_then(unhex);
        let key = bytes.and_then(|bytes| bytes.try_into().ok());
        let help =
            "a key is `ed25519:` and 64 hexadecimal digits, as `toolward bundle keygen` prints it";
        key.map(BundleKey).ok_or_else(|| BundleError::new(help))
    }
}

impl fmt::Display for BundleKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}", hex(&self.0))
    }
}

/// A private key that signs bundles.
pub struct SigningKey(Ed25519KeyPair);

impl SigningKey {
    /// Generates a key. Returns it with its PKCS #8 document, to be stored.
    pub fn generate() -> Result<(SigningKey, Vec<u8>), BundleError> {
        let document = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new())
            .map_err(|_| BundleError::new("the key cannot be generated"))?;
        let key = SigningKey::read(document.as_ref())?;
        Ok((key, document.as_ref().to_vec()))
    }

    /// Reads a PKCS #8 document, with or without the public key.
    pub fn read(document: &[u8]) -> Result<SigningKey, BundleError> {
        let key = Ed25519KeyPair::from_pkcs8_maybe_unchecked(document);
        key.map(SigningKey).map_err(|_| BundleError::new("it is not an Ed25519 key in PKCS #8"))
    }

    pub fn public(&self) -> BundleKey {
        let mut key = [0; 32];
        let public = self.0.public_key().as_ref();
        key.iter_mut().zip(public).for_each(|(byte, own)| *byte = *own);
        BundleKey(key)
    }
}

impl Bundle {
    /// Makes a bundle of policy files.
    pub fn seal(&self, key: &SigningKey) -> Result<Vec<u8>, BundleError> {
        if self.files.is_empty() || self.files.len() > MAX_FILES {
            return Err(BundleError::new(format!("a bundle has 1 to {MAX_FILES} files")));
        }
        let file = |(name, content): &(String, Vec<u8>)| {
            check_name(name)?;
            let digest = hex(&Sha256::digest(content));
            Ok(json!({"path": name, "size": content.len(), "sha256": digest}))
        };
        let files: Vec<Value> = self.files.iter().map(file).collect::<Result<_, BundleError>>()?;
        let manifest = json!({"version": VERSION, "revision": self.revision, "files": files});
        let manifest = manifest.to_string().into_bytes();
        let signature = key.0.sign(&signed(&manifest));
        let mut entries: Vec<(&str, &[u8])> =
            vec![(MANIFEST, &manifest), (SIGNATURE, signature.as_ref())];
        entries.extend(self.files.iter().map(|(name, content)| (name.as_str(), &content[..])));
        let bytes = archive(&entries)?;
        // A bundle that cannot be opened must not be published.
        match Bundle::open(&bytes, &key.public())? == *self {
            true => Ok(bytes),
            false => Err(BundleError::new("two files have the same name")),
        }
    }

    /// Verifies a bundle and reads its files.
    pub fn open(bytes: &[u8], key: &BundleKey) -> Result<Bundle, BundleError> {
        if bytes.len() > MAX_BYTES {
            return Err(BundleError::new(format!("it is larger than {} MiB", MAX_BYTES >> 20)));
        }
        let mut archive = ArchiveReader::new(bytes);
        let mut named = |expected: &str| match archive.next()? {
            Some((name, content)) if name == expected => Ok(content),
            _ => Err(BundleError::new(format!("`{expected}` is not where it belongs"))),
        };
        let (manifest, signature) = (named(MANIFEST)?, named(SIGNATURE)?);
        UnparsedPublicKey::new(&ED25519, key.0)
            .verify(&signed(&manifest), &signature)
            .map_err(|_| BundleError::new("its signature is not valid for the configured key"))?;
        let manifest: Value = serde_json::from_slice(&manifest)
            .map_err(|_| BundleError::new("its manifest is not JSON"))?;
        if manifest["version"].as_u64() != Some(VERSION) {
            return Err(BundleError::new("its format is not known; use a newer program"));
        }
        let missing = || BundleError::new("its manifest is not complete");
        let revision = manifest["revision"].as_u64().ok_or_else(missing)?;
        let listed = manifest["files"].as_array().ok_or_else(missing)?;
        if listed.is_empty() || listed.len() > MAX_FILES {
            return Err(BundleError::new(format!("a bundle has 1 to {MAX_FILES} files")));
        }
        let mut files: Vec<(String, Vec<u8>)> = Vec::new();
        for entry in listed {
            let name = entry["path"].as_str().ok_or_else(missing)?;
            check_name(name)?;
            if files.iter().any(|(known, _)| known == name) {
                return Err(BundleError::new(format!("`{name}` is listed twice")));
            }
            let Some((found, content)) = archive.next()? else {
                return Err(BundleError::new(format!("`{name}` is missing")));
            };
            let digest = hex(&Sha256::digest(&content));
            let size = u64::try_from(content.len()).ok();
            if found != name
                || entry["size"].as_u64() != size
                || entry["sha256"].as_str() != Some(&digest)
            {
                return Err(BundleError::new(format!("`{name}` is not what the manifest lists")));
            }
            files.push((found, content));
        }
        match archive.next()? {
            None => Ok(Bundle { revision, files }),
            Some(_) => Err(BundleError::new("it has a file that the manifest does not list")),
        }
    }
}

/// The bytes that are signed.
fn signed(manifest: &[u8]) -> Vec<u8> {
    [PREFIX, manifest].concat()
}

/// Names are plain relative paths, which mean the same everywhere.
fn check_name(name: &str) -> Result<(), BundleError> {
    let plain = |part: &str| {
        !part.is_empty()
            && !part.starts_with('.')
            && part.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'))
    };
    match name.len() <= 100 && name.split('/').all(plain) && name != MANIFEST && name != SIGNATURE {
        true => Ok(()),
        false => Err(BundleError::new(format!(
            "`{}` is not a name for a file of a bundle: use letters, digits, `.`, `_`, `-` and `/`",
            crate::sanitize(name)
        ))),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    let pair = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    let plain = digits.iter().all(u8::is_ascii_hexdigit) && digits.len().is_multiple_of(2);
    plain.then(|| digits.chunks_exact(2).map(pair).collect()).flatten()
}

#[cfg(test)]
mod tests;
