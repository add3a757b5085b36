//! Opaque, encrypted handles for clients: only the gateway can create them, and only the agent they were
//! created for can use them. To everyone else they are unknown.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::{PoisonError, RwLock};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::hmac;

use crate::client::Caller;
use crate::clock;
use crate::random::fill;

/// Maximum length of a handle; longer ones are rejected unread.
const LONGEST: usize = 1024;
pub(crate) const KEY_FILE: &str = "seal.key";
/// Maximum number of keys: a foreign handle is tried with each of them.
pub const MAX_KEYS: usize = 8;
const SHARED: &str = "toolward: the shared key of handles, 1";

/// The kind of a handle, which is authenticated: a handle of one kind is invalid as another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Session = 1,
    Event = 2,
    /// The `requestState` of a call.
    State = 3,
    /// A held call.
    Held = 4,
    /// The position in a list.
    Cursor = 5,
    /// A task of a server.
    Task = 6,
    /// A call that waits for a person, or continues after one approved it.
    Approval = 7,
}

impl Kind {
    /// Longer handles are rejected unread. A state contains that of a server.
    fn max_length(self) -> usize {
        match self {
            Kind::Session | Kind::Event | Kind::Held | Kind::Cursor => LONGEST,
            Kind::Task => 8 << 10,
            Kind::State => 64 << 10,
            // It can contain a state.
            Kind::Approval => 96 << 10,
        }
    }
}

/// Creates handles with its first key, and opens those of every key.
pub struct Sealer {
    keys: RwLock<Vec<LessSafeKey>>,
}

impl Sealer {
    /// Uses the key in a directory, created at first use, so that handles survive a restart.
    pub fn in_directory(directory: &Path) -> io::Result<Sealer> {
        Sealer::new(&[key_in(directory)?])
    }

    /// A random key that is lost when the process exits.
    pub fn random() -> io::Result<Sealer> {
        let mut key = [0; 32];
        fill(&mut key)?;
        Sealer::new(&[key])
    }

    /// Keys that several gateways share: handles of one of them are valid at the others.
    pub fn shared(secrets: &[&str]) -> io::Result<Sealer> {
        let derived = |secret: &&str| derive(secret.as_bytes(), SHARED);
        Sealer::new(&secrets.iter().map(derived).collect::<Vec<_>>())
    }

    fn new(keys: &[[u8; 32]]) -> io::Result<Sealer> {
        if keys.is_empty() || keys.len() > MAX_KEYS {
            return Err(io::Error::other(format!("there must be 1 to {MAX_KEYS} keys")));
        }
        let usable = |key: &[u8; 32]| {
            let key = UnboundKey::new(&CHACHA20_POLY1305, key);
            key.map(LessSafeKey::new).map_err(|_| io::Error::other("a sealing key is not usable"))
        };
        Ok(Sealer { keys: RwLock::new(keys.iter().map(usable).collect::<Result<_, _>>()?) })
    }

    /// Uses the keys of another one from now on.
    pub fn replace(&self, next: Sealer) {
        let next = next.keys.into_inner().unwrap_or_else(PoisonError::into_inner);
        *self.keys.write().unwrap_or_else(PoisonError::into_inner) = next;
    }

    /// Encrypts with the first key.
    fn encrypt(&self, associated_data: &[u8], mut bytes: Vec<u8>) -> io::Result<Vec<u8>> {
        let mut nonce = [0; NONCE_LEN];
        fill(&mut nonce)?;
        let keys = self.keys.read().unwrap_or_else(PoisonError::into_inner);
        let key = keys.first().ok_or_else(|| io::Error::other("there is no sealing key"))?;
        key.seal_in_place_append_tag(
            Nonce::assume_unique_for_key(nonce),
            Aad::from(associated_data),
            &mut bytes,
        )
        .map_err(|_| io::Error::other("it cannot be sealed"))?;
        Ok([&nonce[..], &bytes].concat())
    }

    /// Decrypts with the key that fits. Returns its position too.
    fn decrypt(&self, associated_data: &[u8], bytes: &[u8]) -> Option<(Vec<u8>, usize)> {
        let (nonce, sealed) = bytes.split_first_chunk::<NONCE_LEN>()?;
        let keys = self.keys.read().unwrap_or_else(PoisonError::into_inner);
        keys.iter().enumerate().find_map(|(at, key)| {
            // A failed attempt destroys its input.
            let mut sealed = sealed.to_vec();
            let nonce = Nonce::assume_unique_for_key(*nonce);
            let opened = key.open_in_place(nonce, Aad::from(associated_data), &mut sealed).ok()?;
            Some((opened.to_vec(), at))
        })
    }

    /// Encrypts a key that gateways share through a store.
    pub(crate) fn wrap(&self, purpose: &str, key: &[u8]) -> io::Result<Vec<u8>> {
        self.encrypt(purpose.as_bytes(), key.to_vec())
    }

    /// Decrypts such a key. `true`: it is encrypted with the first key.
    pub(crate) fn unwrap(&self, purpose: &str, wrapped: &[u8]) -> Option<(Vec<u8>, bool)> {
        let (key, at) = self.decrypt(purpose.as_bytes(), wrapped)?;
        Some((key, at == 0))
    }

    /// Creates a handle for an agent, valid for this many seconds.
    pub fn seal(
        &self,
        kind: Kind,
        caller: &Caller,
        seconds: u64,
        payload: &[u8],
    ) -> io::Result<String> {
        let mut plain = (clock::seconds() + seconds).to_le_bytes().to_vec();
        plain.extend_from_slice(payload);
        let handle = URL_SAFE_NO_PAD.encode(self.encrypt(&associated_data(kind, caller), plain)?);
        match handle.len() <= kind.max_length() {
            true => Ok(handle),
            false => Err(io::Error::other("the handle is too long")),
        }
    }

    /// Decrypts a handle, for the agent it was created for.
    pub fn open(&self, kind: Kind, caller: &Caller, handle: &str) -> Option<Vec<u8>> {
        if handle.len() > kind.max_length() {
            return None;
        }
        let bytes = URL_SAFE_NO_PAD.decode(handle).ok()?;
        let (opened, _) = self.decrypt(&associated_data(kind, caller), &bytes)?;
        let (expires, payload) = opened.split_first_chunk::<8>()?;
        (clock::seconds() < u64::from_le_bytes(*expires)).then(|| payload.to_vec())
    }
}

/// The key of a state directory, created at first use.
fn key_in(directory: &Path) -> io::Result<[u8; 32]> {
    use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
    if let Some(key) = existing_key(directory)? {
        return Ok(key);
    }
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    let path = directory.join(KEY_FILE);
    let mut key = [0; 32];
    fill(&mut key)?;
    // Written to a temporary file and linked, so that it is atomic even if two processes start at once.
    let own = directory.join(format!("{KEY_FILE}.{}", std::process::id()));
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let mut file = options.open(&own)?;
    file.write_all(&key)?;
    file.sync_all()?;
    let linked = std::fs::hard_link(&own, &path);
    std::fs::remove_file(&own)?;
    match linked {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => key_in(directory),
        linked => linked.map(|()| key),
    }
}

/// The key of a state directory, if there is one.
fn existing_key(directory: &Path) -> io::Result<Option<[u8; 32]>> {
    use std::os::unix::fs::MetadataExt;
    let path = directory.join(KEY_FILE);
    let mut file = match File::open(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    if file.metadata()?.mode() & 0o077 != 0 {
        let why = format!("{} can be read by others; `chmod 600` it", path.display());
        return Err(io::Error::other(why));
    }
    let mut key = [0; 32];
    file.read_exact(&mut key)?;
    Ok(Some(key))
}

/// A key for another purpose, derived from that of a state directory. If there is no key, it is created
/// if `make` is set; otherwise the result is `None`.
pub(crate) fn derived_key(
    directory: &Path,
    purpose: &str,
    make: bool,
) -> io::Result<Option<[u8; 32]>> {
    let key = match make {
        true => Some(key_in(directory)?),
        false => existing_key(directory)?,
    };
    Ok(key.map(|key| derive(&key, purpose)))
}

/// The key of a secret for one purpose.
pub(crate) fn derive(secret: &[u8], purpose: &str) -> [u8; 32] {
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
    let signed = hmac::sign(&key, purpose.as_bytes());
    let mut derived = [0; 32];
    derived.iter_mut().zip(signed.as_ref()).for_each(|(byte, signed)| *byte = *signed);
    derived
}

/// The associated data that a handle is bound to.
fn associated_data(kind: Kind, caller: &Caller) -> Vec<u8> {
    let mut associated_data = vec![kind as u8, caller.agent.is_some().into()];
    associated_data.extend_from_slice(caller.agent.as_deref().unwrap_or_default().as_bytes());
    // Two holders of JWTs are different callers, even if both are the same agent.
    if let Some(claims) = &caller.claims {
        associated_data.push(0);
        associated_data.extend_from_slice(claims.digest());
    }
    associated_data
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller(agent: Option<&str>) -> Caller {
        Caller::new(agent.map(Into::into), "test")
    }

    #[test]
    fn a_handle_opens_for_its_agent_kind_and_time_only() {
        let sealer = Sealer::new(&[[7; 32]]).unwrap();
        let anna = caller(Some("anna"));
        let handle = sealer.seal(Kind::Session, &anna, 60, b"payload").unwrap();
        assert_eq!(sealer.open(Kind::Session, &anna, &handle).unwrap(), b"payload");
        assert_eq!(sealer.open(Kind::Event, &anna, &handle), None);
        assert_eq!(sealer.open(Kind::Session, &caller(Some("ann")), &handle), None);
        assert_eq!(sealer.open(Kind::Session, &caller(None), &handle), None);
        let other = Sealer::new(&[[8; 32]]).unwrap();
        assert_eq!(other.open(Kind::Session, &anna, &handle), None);
        let expired = sealer.seal(Kind::Session, &anna, 0, b"payload").unwrap();
        assert_eq!(sealer.open(Kind::Session, &anna, &expired), None);
    }

    #[test]
    fn nobody_and_an_agent_without_letters_differ() {
        let sealer = Sealer::new(&[[7; 32]]).unwrap();
        let handle = sealer.seal(Kind::Session, &caller(None), 60, b"x").unwrap();
        assert_eq!(sealer.open(Kind::Session, &caller(Some("")), &handle), None);
    }

    #[test]
    fn a_changed_handle_is_unknown() {
        let sealer = Sealer::new(&[[7; 32]]).unwrap();
        let anna = caller(Some("anna"));
        let handle = sealer.seal(Kind::Session, &anna, 60, b"payload").unwrap();
        for at in 0..handle.len() {
            let mut changed = handle.clone().into_bytes();
            changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(changed).unwrap();
            assert_eq!(sealer.open(Kind::Session, &anna, &changed), None, "at {at}");
        }
        for bad in ["", "A", "====", &"A".repeat(5000)] {
            assert_eq!(sealer.open(Kind::Session, &anna, bad), None);
        }
    }

    #[test]
    fn the_first_key_seals_and_every_key_opens() {
        let [one, two] = ["one secret of a fleet", "another secret of a fleet"];
        let open = |secrets: &[&str], handle: &str| {
            Sealer::shared(secrets).unwrap().open(Kind::Cursor, &caller(Some("anna")), handle)
        };
        let sealer = Sealer::shared(&[one]).unwrap();
        let seal = |sealer: &Sealer| {
            sealer.seal(Kind::Cursor, &caller(Some("anna")), 60, b"payload").unwrap()
        };
        let old = seal(&sealer);
        assert!(open(&[one], &old).is_some() && open(&[two, one], &old).is_some());
        assert_eq!(open(&[two], &old), None);
        // Rotation: the new key is known everywhere before it seals.
        sealer.replace(Sealer::shared(&[one, two]).unwrap());
        assert!(open(&[one], &seal(&sealer)).is_some());
        sealer.replace(Sealer::shared(&[two, one]).unwrap());
        let new = seal(&sealer);
        assert!(open(&[one, two], &new).is_some() && open(&[two], &new).is_some());
        assert_eq!(open(&[one], &new), None);
        assert!(sealer.open(Kind::Cursor, &caller(Some("anna")), &old).is_some());
        assert!(Sealer::shared(&[]).is_err() && Sealer::shared(&[one; MAX_KEYS + 1]).is_err());
    }

    #[test]
    fn a_wrapped_key_opens_for_its_purpose_only() {
        let sealer = Sealer::shared(&["one secret of a fleet"]).unwrap();
        let wrapped = sealer.wrap("purpose", b"key").unwrap();
        assert_eq!(sealer.unwrap("purpose", &wrapped), Some((b"key".to_vec(), true)));
        assert_eq!(sealer.unwrap("another", &wrapped), None);
        sealer.replace(
            Sealer::shared(&["another secret of a fleet", "one secret of a fleet"]).unwrap(),
        );
        assert_eq!(sealer.unwrap("purpose", &wrapped), Some((b"key".to_vec(), false)));
    }

    #[test]
    fn the_key_is_made_once_and_kept_from_others() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().unwrap();
        let anna = caller(Some("anna"));
        let first = Sealer::in_directory(directory.path()).unwrap();
        let handle = first.seal(Kind::Session, &anna, 60, b"x").unwrap();
        let again = Sealer::in_directory(directory.path()).unwrap();
        assert!(again.open(Kind::Session, &anna, &handle).is_some());
        let path = directory.path().join(KEY_FILE);
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(Sealer::in_directory(directory.path()).is_err());
    }
}
