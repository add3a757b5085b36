//! The keys of approvals: one recognizes calls, the other seals the arguments that approvers see.

use std::io;
use std::path::Path;

use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::hmac;

use crate::opaque_id::{derive, derived_key};
use crate::random;

const BINDING: &str = "toolward: calls that wait for approval, 1";
const SEALING: &str = "toolward: arguments of calls that wait for approval, 1";

/// The keyed hash of a value.
pub(super) type Tag = [u8; 32];

pub(super) struct Keys {
    binding: hmac::Key,
    sealing: LessSafeKey,
}

impl Keys {
    /// The keys of a state directory, derived from the directory's own.
    pub(super) fn in_state(state: &Path) -> io::Result<Keys> {
        let key = |purpose| {
            derived_key(state, purpose, true)?
                .ok_or_else(|| io::Error::other("the state directory has no key"))
        };
        Keys::new(&key(BINDING)?, &key(SEALING)?)
    }

    /// The keys of a secret that gateways share.
    pub(super) fn of_secret(secret: &[u8; 32]) -> io::Result<Keys> {
        Keys::new(&derive(secret, BINDING), &derive(secret, SEALING))
    }

    /// Random keys that are lost when the process exits.
    pub(super) fn random() -> io::Result<Keys> {
        let (mut binding, mut sealing) = ([0; 32], [0; 32]);
        random::fill(&mut binding)?;
        random::fill(&mut sealing)?;
        Keys::new(&binding, &sealing)
    }

    fn new(binding: &[u8; 32], sealing: &[u8; 32]) -> io::Result<Keys> {
        let sealing = UnboundKey::new(&CHACHA20_POLY1305, sealing)
            .map_err(|_| io::Error::other("the sealing key is not usable"))?;
        let binding = hmac::Key::new(hmac::HMAC_SHA256, binding);
        Ok(Keys { binding, sealing: LessSafeKey::new(sealing) })
    }

    /// The keyed hash of several parts, each with its length, so that no two lists of parts are equal.
    pub(super) fn tag(&self, parts: &[&[u8]]) -> Tag {
        let mut context = hmac::Context::with_key(&self.binding);
        for part in parts {
            context.update(&(part.len() as u64).to_le_bytes());
            context.update(part);
        }
        let mut tag = [0; 32];
        tag.iter_mut().zip(context.sign().as_ref()).for_each(|(byte, signed)| *byte = *signed);
        tag
    }

    /// Encrypts the arguments of a ticket.
    pub(super) fn seal(&self, ticket: &str, text: &[u8]) -> io::Result<Vec<u8>> {
        let mut nonce = [0; NONCE_LEN];
        random::fill(&mut nonce)?;
        let mut sealed = text.to_vec();
        let aad = Aad::from(ticket.as_bytes());
        self.sealing
            .seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), aad, &mut sealed)
            .map_err(|_| io::Error::other("the arguments cannot be sealed"))?;
        Ok([&nonce[..], &sealed].concat())
    }

    /// Decrypts the arguments of a ticket.
    pub(super) fn open(&self, ticket: &str, sealed: &[u8]) -> Option<Vec<u8>> {
        let (nonce, sealed) = sealed.split_first_chunk::<NONCE_LEN>()?;
        let (nonce, mut sealed) = (Nonce::assume_unique_for_key(*nonce), sealed.to_vec());
        let opened = self.sealing.open_in_place(nonce, Aad::from(ticket.as_bytes()), &mut sealed);
        Some(opened.ok()?.to_vec())
    }
}
