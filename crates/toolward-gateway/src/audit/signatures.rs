//! Signed heads: a signature over the end of a stream, every minute and when a segment is closed.
//!
//! The hash chain shows that a record was changed only if its end is known: anyone who can write
//! the files could compute the chain again. A signature fixes the end with a key that the log's reader
//! trusts. Signatures are lines of JSON in `audit.signatures` next to the log, and are appended to a
//! second place, `audit.anchor`.
//!
//! A thread reads the head and the closed segments; the writer does not know about it.

use std::fs::{File, OpenOptions};
use std::io::{Error, ErrorKind, Result, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::rand::SystemRandom;
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use rustls_pki_types::PrivateKeyDer;
use rustls_pki_types::pem::PemObject;
use serde_json::{Value, json};

use super::Audit;
use super::line::{hex, time};
use super::segment::{Head, Stream, open_file, tail, tail_at};
use crate::clock::micros;

/// The interval at which the end of the log is signed.
const SIGN_INTERVAL: Duration = Duration::from_secs(60);
/// The interval at which the thread checks for closed segments.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);
/// Keeps signatures from being used for anything else.
const PREFIX: &str = "toolward audit head, 1";
const SCHEME: &str = "ed25519:";

/// A private key that signs heads.
pub struct SigningKey(Ed25519KeyPair);

impl SigningKey {
    /// Generates a key. Returns its PKCS #8 document, to be stored.
    pub fn generate() -> Result<Vec<u8>> {
        let document = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new());
        document
            .map(|document| document.as_ref().to_vec())
            .map_err(|_| Error::other("no randomness"))
    }

    /// Reads a PKCS #8 document, in PEM or DER.
    pub fn read(document: &[u8]) -> Result<SigningKey> {
        let wrong = || Error::other("it is not an Ed25519 key in PKCS #8");
        let pem = PrivateKeyDer::from_pem_slice(document).ok();
        let document = pem.as_ref().map_or(document, |key| key.secret_der());
        let key = Ed25519KeyPair::from_pkcs8_maybe_unchecked(document);
        key.map(SigningKey).map_err(|_| wrong())
    }

    /// The public key: `ed25519:` and hexadecimal digits.
    pub fn public(&self) -> String {
        format!("{SCHEME}{}", hex(self.0.public_key().as_ref()))
    }

    /// One line of the file of signatures.
    fn sign(&self, stream: &str, head: &Head) -> String {
        let at = time(micros());
        let signature = self.0.sign(signed(stream, head, &at).as_bytes());
        let line = json!({
            "time": at,
            "stream": stream,
            "segment": head.segment,
            "bytes": head.bytes,
            "hash": hex(&head.hash),
            "key": self.public(),
            "signature": STANDARD.encode(signature.as_ref()),
        });
        format!("{line}\n")
    }
}

/// The text that is signed.
fn signed(stream: &str, head: &Head, at: &str) -> String {
    let Head { segment, bytes, hash } = head;
    format!("{PREFIX}\n{stream}\n{segment}\n{bytes}\n{}\n{at}\n", hex(hash))
}

/// The running signer of a log.
#[derive(Debug)]
pub struct Signing {
    stop: mpsc::Sender<()>,
    ended: mpsc::Receiver<()>,
}

impl Signing {
    pub fn start(audit: &Arc<Audit>, key: SigningKey, anchor: Option<PathBuf>) -> Result<Signing> {
        let ((stop, stopped), (end, ended)) = (mpsc::channel(), mpsc::channel());
        let audit = Arc::downgrade(audit);
        let mut signer = Signer { key, anchor, signed: None, at: None, failing: false };
        std::thread::Builder::new().name("signatures".into()).spawn(move || {
            while stopped.recv_timeout(LOOK_INTERVAL) == Err(mpsc::RecvTimeoutError::Timeout) {
                let Some(audit) = audit.upgrade() else { return };
                signer.look(&audit.stream(), false);
            }
            if let Some(audit) = audit.upgrade() {
                signer.look(&audit.stream(), true);
            }
            let _ = end.send(());
        })?;
        Ok(Signing { stop, ended })
    }

    /// Signs the end of the log, which is closed.
    pub fn finish(&self, at_most: Duration) {
        let _ = self.stop.send(());
        let _ = self.ended.recv_timeout(at_most);
    }
}

struct Signer {
    key: SigningKey,
    anchor: Option<PathBuf>,
    /// The last head that was signed, and its stream.
    signed: Option<(Stream, Head)>,
    at: Option<Instant>,
    failing: bool,
}

impl Signer {
    fn look(&mut self, stream: &Stream, last: bool) {
        let result = self.sign_new(stream, last);
        if result.is_err() != std::mem::replace(&mut self.failing, result.is_err()) {
            match result {
                Ok(()) => tracing::info!(target: "audit", "the log is signed again"),
                Err(error) => tracing::error!(target: "audit", "the log cannot be signed: {error}"),
            }
        }
    }

    /// Signs the segments that were closed since, and the head if it is time.
    fn sign_new(&mut self, stream: &Stream, last: bool) -> Result<()> {
        let Some(head) = stream.head().filter(|head| head.segment > 0) else { return Ok(()) };
        let before = self.signed.as_ref().filter(|(of, _)| of == stream).map(|(_, head)| *head);
        if let Some(before) = before {
            for (number, path) in stream.closed()? {
                if (before.segment..head.segment).contains(&number) {
                    let end = tail(&open_file(&path, File::options().read(true))?)?;
                    let Some(hash) = end.last else { continue };
                    let closed = Head { segment: number, bytes: end.whole, hash };
                    if closed != before {
                        self.write(stream, closed)?;
                    }
                }
            }
        }
        let due = self.at.is_none_or(|at| at.elapsed() >= SIGN_INTERVAL);
        if (due || last) && before != Some(head) {
            self.write(stream, head)?;
            self.at = Some(Instant::now());
        }
        Ok(())
    }

    fn write(&mut self, stream: &Stream, head: Head) -> Result<()> {
        let line = self.key.sign(&stream.name(), &head);
        append(&signatures_path(stream), &line)?;
        if let Some(anchor) = &self.anchor {
            append(anchor, &line).map_err(|error| {
                Error::new(error.kind(), format!("{}: {error}", anchor.display()))
            })?;
        }
        self.signed = Some((stream.clone(), head));
        Ok(())
    }
}

fn append(path: &Path, line: &str) -> Result<()> {
    let mut file = open_file(path, OpenOptions::new().append(true).create(true).mode(0o600))?;
    file.write_all(line.as_bytes())?;
    file.sync_data()
}

/// The signatures of a stream.
pub fn signatures_path(stream: &Stream) -> PathBuf {
    stream.folder.join(format!("{}.signatures", stream.name()))
}

/// The result of checking the signatures of a stream.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Signed {
    /// Valid signatures whose records are there, unchanged.
    pub valid: u64,
    /// Signatures of segments that were deleted.
    pub expired: u64,
    /// The time of the last valid signature.
    pub last: Option<String>,
    /// Invalid signatures, and signed records that are missing or differ.
    pub problems: Vec<String>,
}

/// Compares the signatures of a stream, from `file`, with its records. `key` is the public key.
pub fn verify(stream: &Stream, file: &Path, key: &str) -> Result<Signed> {
    let bytes = key.strip_prefix(SCHEME).and_then(unhex).filter(|bytes| bytes.len() == 32);
    let key = bytes.ok_or_else(|| Error::other("a key is `ed25519:` and 64 hexadecimal digits"))?;
    let text = match std::fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
        Err(error) => return Err(error),
    };
    let mut found = Signed::default();
    let name = stream.name();
    let of_stream = |value: &Value| value["stream"] == name.as_str();
    for (number, line) in text.lines().enumerate() {
        let place = format!("{}:{}", file.display(), number + 1);
        let parsed: Option<Value> = serde_json::from_str(line).ok();
        let Some(value) = parsed else {
            found.problems.push(format!("{place}: this is not a signature"));
            continue;
        };
        if !of_stream(&value) {
            continue;
        }
        match check(stream, &value, &key) {
            Ok(Checked::Valid(at)) => {
                found.valid += 1;
                found.last = Some(at);
            }
            Ok(Checked::Expired) => found.expired += 1,
            Err(why) => found.problems.push(format!("{place}: {why}")),
        }
    }
    if found.valid == 0 && found.problems.is_empty() {
        found.problems.push(format!("{name}: there is no signature of its records"));
    }
    Ok(found)
}

enum Checked {
    Valid(String),
    Expired,
}

fn check(stream: &Stream, value: &Value, key: &[u8]) -> std::result::Result<Checked, String> {
    let malformed = || "this is not a signature".to_owned();
    let text = |name: &str| value[name].as_str().ok_or_else(malformed);
    let number = |name: &str| value[name].as_u64().ok_or_else(malformed);
    let hash = unhex(text("hash")?).and_then(|hash| hash.try_into().ok()).ok_or_else(malformed)?;
    let head = Head { segment: number("segment")?, bytes: number("bytes")?, hash };
    let signature = STANDARD.decode(text("signature")?).map_err(|_| malformed())?;
    let message = signed(&stream.name(), &head, text("time")?);
    UnparsedPublicKey::new(&ED25519, key)
        .verify(message.as_bytes(), &signature)
        .map_err(|_| "the signature is not valid for this key".to_owned())?;
    let segment = head.segment;
    let live = || {
        let file = open_file(&stream.live_path(), File::options().read(true)).ok()?;
        let first = super::segment::first_line(&file)?;
        (first["segment"].as_u64() == Some(segment)).then_some(file)
    };
    let closed = open_file(&stream.closed_path(segment), File::options().read(true)).ok();
    let Some(file) = closed.or_else(live) else {
        // Retention deletes the oldest segments, never later ones.
        let oldest =
            stream.closed().ok().and_then(|closed| closed.first().map(|(first, _)| *first));
        return match oldest.is_some_and(|oldest| segment < oldest) {
            true => Ok(Checked::Expired),
            false => Err(format!("segment {segment} was signed, and is missing")),
        };
    };
    let length = file.metadata().map(|found| found.len()).unwrap_or(0);
    if length < head.bytes {
        return Err(format!("records of segment {segment} were signed, and are missing"));
    }
    match tail_at(&file, head.bytes) {
        Ok(end) if end.last == Some(head.hash) && end.torn.is_empty() => {
            Ok(Checked::Valid(text("time")?.into()))
        }
        _ => Err(format!("records of segment {segment} differ from those that were signed")),
    }
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits = text.len().is_multiple_of(2) && text.bytes().all(|b| b.is_ascii_hexdigit());
    let byte = |at: usize| u8::from_str_radix(text.get(2 * at..2 * at + 2)?, 16).ok();
    digits.then(|| (0..text.len() / 2).map(byte).collect())?
}

#[cfg(test)]
mod tests;
