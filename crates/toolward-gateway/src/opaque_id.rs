//! Handles that clients hold: only the gateway can make them, and only the agent they were made for
//! can use them. To everyone else they are unknown.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::hmac;

use crate::client::Caller;
use crate::clock;

/// No handle is longer; what is, is not looked at.
const LONGEST: usize = 1024;
pub const KEY_FILE: &str = "seal.key";

/// What a handle is for. One kind is never taken for another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Session = 1,
    Event = 2,
}

/// Makes handles and opens them.
pub struct Sealer {
    key: LessSafeKey,
}

impl Sealer {
    /// The key in a folder, made at first use, so that handles outlive the process.
    pub fn in_folder(folder: &Path) -> io::Result<Sealer> {
        Sealer::new(&key_in(folder)?)
    }

    fn new(key: &[u8; 32]) -> io::Result<Sealer> {
        let key = UnboundKey::new(&CHACHA20_POLY1305, key)
            .map_err(|_| io::Error::other("the sealing key is not usable"))?;
        Ok(Sealer { key: LessSafeKey::new(key) })
    }

    /// A handle for an agent, valid for so many seconds.
    pub fn seal(
        &self,
        kind: Kind,
        caller: &Caller,
        seconds: u64,
        payload: &[u8],
    ) -> io::Result<String> {
        let mut nonce = [0; NONCE_LEN];
        fill(&mut nonce)?;
        let mut sealed = (clock::seconds() + seconds).to_le_bytes().to_vec();
        sealed.extend_from_slice(payload);
        let about = about(kind, caller);
        self.key
            .seal_in_place_append_tag(
                Nonce::assume_unique_for_key(nonce),
                Aad::from(&about[..]),
                &mut sealed,
            )
            .map_err(|_| io::Error::other("it cannot be sealed"))?;
        let mut handle = nonce.to_vec();
        handle.append(&mut sealed);
        Ok(URL_SAFE_NO_PAD.encode(handle))
    }

    /// What a handle holds, for the agent it was made for.
    pub fn open(&self, kind: Kind, caller: &Caller, handle: &str) -> Option<Vec<u8>> {
        if handle.len() > LONGEST {
            return None;
        }
        let mut bytes = URL_SAFE_NO_PAD.decode(handle).ok()?;
        let (nonce, sealed) = bytes.split_at_mut_checked(NONCE_LEN)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let about = about(kind, caller);
        let opened = self.key.open_in_place(nonce, Aad::from(&about[..]), sealed).ok()?;
        let (expires, payload) = opened.split_first_chunk::<8>()?;
        (clock::seconds() < u64::from_le_bytes(*expires)).then(|| payload.to_vec())
    }
}

/// The key of a state directory, made at first use.
fn key_in(folder: &Path) -> io::Result<[u8; 32]> {
    use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
    if let Some(key) = existing_key(folder)? {
        return Ok(key);
    }
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let path = folder.join(KEY_FILE);
    let mut key = [0; 32];
    fill(&mut key)?;
    // Whole or not at all, also where two processes start together.
    let own = folder.join(format!("{KEY_FILE}.{}", std::process::id()));
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let mut file = options.open(&own)?;
    file.write_all(&key)?;
    file.sync_all()?;
    let linked = std::fs::hard_link(&own, &path);
    std::fs::remove_file(&own)?;
    match linked {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => key_in(folder),
        linked => linked.map(|()| key),
    }
}

/// The key of a state directory, if there is one.
fn existing_key(folder: &Path) -> io::Result<Option<[u8; 32]>> {
    use std::os::unix::fs::MetadataExt;
    let path = folder.join(KEY_FILE);
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

/// A key for another purpose, derived from that of a state directory. Where there is none, it is made, or
/// the answer is `None`.
pub(crate) fn derived_key(
    folder: &Path,
    purpose: &str,
    make: bool,
) -> io::Result<Option<[u8; 32]>> {
    let key = match make {
        true => Some(key_in(folder)?),
        false => existing_key(folder)?,
    };
    Ok(key.map(|key| {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &key);
        let mut derived = [0; 32];
        for (byte, signed) in derived.iter_mut().zip(hmac::sign(&key, purpose.as_bytes()).as_ref())
        {
            *byte = *signed;
        }
        derived
    }))
}

/// What a handle is bound to beside its content.
fn about(kind: Kind, caller: &Caller) -> Vec<u8> {
    let mut about = vec![kind as u8, caller.agent.is_some().into()];
    about.extend_from_slice(caller.agent.as_deref().unwrap_or_default().as_bytes());
    // One holder of a JWT is not another, even where both are the same agent.
    if let Some(claims) = &caller.claims {
        about.push(0);
        about.extend_from_slice(claims.digest());
    }
    about
}

fn fill(bytes: &mut [u8]) -> io::Result<()> {
    getrandom::fill(bytes).map_err(|error| io::Error::other(error.to_string()))
}

/// A number that nobody can guess.
pub(crate) fn random() -> io::Result<u128> {
    let mut bytes = [0; 16];
    fill(&mut bytes)?;
    Ok(u128::from_le_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller(agent: Option<&str>) -> Caller {
        Caller::new(agent.map(Into::into), "test")
    }

    #[test]
    fn a_handle_opens_for_its_agent_kind_and_time_only() {
        let sealer = Sealer::new(&[7; 32]).unwrap();
        let anna = caller(Some("anna"));
        let handle = sealer.seal(Kind::Session, &anna, 60, b"payload").unwrap();
        assert_eq!(sealer.open(Kind::Session, &anna, &handle).unwrap(), b"payload");
        assert_eq!(sealer.open(Kind::Event, &anna, &handle), None);
        assert_eq!(sealer.open(Kind::Session, &caller(Some("ann")), &handle), None);
        assert_eq!(sealer.open(Kind::Session, &caller(None), &handle), None);
        let other = Sealer::new(&[8; 32]).unwrap();
        assert_eq!(other.open(Kind::Session, &anna, &handle), None);
        let expired = sealer.seal(Kind::Session, &anna, 0, b"payload").unwrap();
        assert_eq!(sealer.open(Kind::Session, &anna, &expired), None);
    }

    #[test]
    fn nobody_and_an_agent_without_letters_differ() {
        let sealer = Sealer::new(&[7; 32]).unwrap();
        let handle = sealer.seal(Kind::Session, &caller(None), 60, b"x").unwrap();
        assert_eq!(sealer.open(Kind::Session, &caller(Some("")), &handle), None);
    }

    #[test]
    fn a_changed_handle_is_unknown() {
        let sealer = Sealer::new(&[7; 32]).unwrap();
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
    fn the_key_is_made_once_and_kept_from_others() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let anna = caller(Some("anna"));
        let first = Sealer::in_folder(folder.path()).unwrap();
        let handle = first.seal(Kind::Session, &anna, 60, b"x").unwrap();
        let again = Sealer::in_folder(folder.path()).unwrap();
        assert!(again.open(Kind::Session, &anna, &handle).is_some());
        let path = folder.path().join(KEY_FILE);
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(Sealer::in_folder(folder.path()).is_err());
    }
}
