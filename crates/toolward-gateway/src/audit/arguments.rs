//! A call's arguments in the audit log: their values as far as configured, and a keyed hash.
//!
//! The hash identifies a call without revealing its arguments. It is keyed, because a plain hash of
//! a short secret can be guessed: `blake3:KEYID:HEX`. The key is derived from the key of the state
//! directory, so replicas that share it write the same hashes. Keyed BLAKE3 takes a fraction of the
//! time of HMAC-SHA-256, which was a quarter of a call with arguments of 1 MB. Logs of earlier
//! versions contain `hmac-sha256:KEYID:HEX` with the same key, or plain `sha256:HEX`.

use std::io::{Error, Result};
use std::ops::Deref;
use std::path::Path;

use ring::hmac;

use super::facts::Facts;
use super::line::{hash, hex, write_hex};
use super::redact::Arguments;
use crate::opaque_id::derived_key;

/// Larger arguments are recorded by their hash alone.
const MAX_RECORDED_BYTES: usize = 64 << 10;
const PURPOSE: &str = "toolward: arguments in the audit log, 1";
const KEYED: &str = "blake3";
const HMAC: &str = "hmac-sha256";
const PLAIN: &str = "sha256";

/// The key of the hashes.
#[derive(Clone)]
pub struct HashKey {
    key: [u8; 32],
    id: Box<str>,
}

impl HashKey {
    /// The key of a state directory, created on first use.
    pub fn in_state(folder: &Path) -> Result<HashKey> {
        let key = derived_key(folder, PURPOSE, true)?;
        key.map(|key| HashKey::new(&key))
            .ok_or_else(|| Error::other("the state directory has no key"))
    }

    /// The key of a state directory, if it has one.
    pub fn existing(folder: &Path) -> Result<Option<HashKey>> {
        Ok(derived_key(folder, PURPOSE, false)?.map(|key| HashKey::new(&key)))
    }

    /// An ephemeral key, whose hashes cannot be compared later.
    fn passing() -> HashKey {
        let mut key = [0; 32];
        // If there are no random bytes, the rest of the gateway does not work either.
        let _ = getrandom::fill(&mut key);
        HashKey::new(&key)
    }

    fn new(key: &[u8; 32]) -> HashKey {
        let id = hex(&hash(key)).chars().take(8).collect::<String>();
        HashKey { key: *key, id: id.into() }
    }

    /// The hash of some arguments.
    pub fn hash(&self, arguments: &[u8]) -> String {
        self.written(KEYED, blake3::keyed_hash(&self.key, arguments).as_bytes())
    }

    /// The hash of some arguments in logs of earlier versions.
    fn hmac(&self, arguments: &[u8]) -> String {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &self.key);
        self.written(HMAC, hmac::sign(&key, arguments).as_ref())
    }

    fn written(&self, algorithm: &str, hash: &[u8]) -> String {
        let mut text = Vec::with_capacity(algorithm.len() + self.id.len() + 2 * hash.len() + 2);
        text.extend_from_slice(algorithm.as_bytes());
        text.push(b':');
        text.extend_from_slice(self.id.as_bytes());
        text.push(b':');
        write_hex(hash, &mut text);
        String::from_utf8(text).unwrap_or_default()
    }
}

impl std::fmt::Debug for HashKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HashKey").field("id", &self.id).finish_non_exhaustive()
    }
}

/// Whether recorded arguments match given ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Comparison {
    Same,
    Different,
    /// The hash was made with another key, or by an unknown method.
    Unknown,
}

/// Compares a recorded hash with arguments, in any of these serializations.
pub fn compare(recorded: &str, key: Option<&HashKey>, spellings: &[Vec<u8>]) -> Comparison {
    let fits = |hash: &dyn Fn(&[u8]) -> String| match spellings
        .iter()
        .any(|arguments| hash(arguments) == recorded)
    {
        true => Comparison::Same,
        false => Comparison::Different,
    };
    match (recorded.split(':').collect::<Vec<_>>().as_slice(), key) {
        ([PLAIN, _], _) => fits(&|arguments| format!("{PLAIN}:{}", hex(&hash(arguments)))),
        ([KEYED, id, _], Some(key)) if **id == *key.id => fits(&|arguments| key.hash(arguments)),
        ([HMAC, id, _], Some(key)) if **id == *key.id => fits(&|arguments| key.hmac(arguments)),
        _ => Comparison::Unknown,
    }
}

/// How much of a call's arguments is recorded, and the key of their hash.
#[derive(Debug, Clone)]
pub struct RecordedArguments {
    mode: Arguments,
    key: HashKey,
}

impl Default for RecordedArguments {
    fn default() -> RecordedArguments {
        RecordedArguments::passing(Arguments::default())
    }
}

impl Deref for RecordedArguments {
    type Target = Arguments;

    fn deref(&self) -> &Arguments {
        &self.mode
    }
}

impl RecordedArguments {
    pub fn new(mode: Arguments, key: HashKey) -> RecordedArguments {
        RecordedArguments { mode, key }
    }

    /// With an ephemeral key.
    pub fn passing(mode: Arguments) -> RecordedArguments {
        RecordedArguments { mode, key: HashKey::passing() }
    }

    /// Whether a recorded hash is of these arguments.
    pub fn compare(&self, recorded: &str, arguments: &[u8]) -> Comparison {
        compare(recorded, Some(&self.key), &[arguments.to_vec()])
    }

    /// The members of a record: `arguments`, and `arguments_hash` if the former contains values.
    pub(crate) fn facts(&self, facts: &mut Facts, given: toolward_wire::Arguments<'_>) {
        let bytes = given.raw().bytes();
        let hash = || self.key.hash(bytes);
        let value = match &self.mode {
            Arguments::Nothing => return facts.json("arguments", "null"),
            Arguments::Hash => return facts.text("arguments", &hash()),
            _ if bytes.len() > MAX_RECORDED_BYTES => return facts.text("arguments", &hash()),
            Arguments::Redacted(redact) => redact.value(given.to_json()),
            Arguments::Full => given.to_json(),
        };
        facts.json("arguments", &value.to_string());
        facts.text("arguments_hash", &hash());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_is_the_same_only_within_one_state_directory() {
        let (shared, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        assert!(HashKey::existing(shared.path()).unwrap().is_none());
        let one = HashKey::in_state(shared.path()).unwrap();
        let two = HashKey::existing(shared.path()).unwrap().unwrap();
        let foreign = HashKey::in_state(other.path()).unwrap();
        let given = br#"{"pin":"1234"}"#;
        assert_eq!(one.hash(given), two.hash(given));
        assert_ne!(one.hash(given), foreign.hash(given));
        let plain = format!("sha256:{}", hex(&hash(given)));
        assert!(!one.hash(given).contains(&plain[7..]));
        let shape: Vec<usize> = one.hash(given).split(':').map(str::len).collect();
        assert_eq!(shape, [KEYED.len(), 8, 64]);

        let spellings = [b"{}".to_vec(), given.to_vec()];
        let compared = |recorded: &str, key| compare(recorded, key, &spellings);
        assert_eq!(compared(&one.hash(given), Some(&two)), Comparison::Same);
        assert_eq!(compared(&one.hash(b"{\"a\":1}"), Some(&two)), Comparison::Different);
        assert_eq!(compared(&one.hash(given), Some(&foreign)), Comparison::Unknown);
        // A log of an earlier version, with the same key.
        let hmac = one.hmac(given);
        assert!(hmac.starts_with("hmac-sha256:") && hmac != one.hash(given), "{hmac}");
        assert_eq!(compared(&hmac, Some(&two)), Comparison::Same);
        assert_eq!(compared(&one.hmac(b"{}x"), Some(&two)), Comparison::Different);
        assert_eq!(compared(&hmac, Some(&foreign)), Comparison::Unknown);
        assert_eq!(compared(&one.hash(given), None), Comparison::Unknown);
        assert_eq!(compared(&plain, None), Comparison::Same);
        assert_eq!(compared("sha256:00", None), Comparison::Different);
        assert_eq!(compared("blake9:00", Some(&one)), Comparison::Unknown);
    }
}
