//! The signing key of the authorization server, and random values.

use std::io;
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use ring::digest;
use ring::rand::{SecureRandom, SystemRandom};
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING as ES256, EcdsaKeyPair, KeyPair};
use serde_json::{Value, json};

const KEY_ID: &str = "p256";

/// An ES256 key.
pub(super) struct Key {
    pair: EcdsaKeyPair,
    random: SystemRandom,
}

impl Key {
    pub(super) fn generate() -> io::Result<Key> {
        let random = SystemRandom::new();
        let made = EcdsaKeyPair::generate_pkcs8(&ES256, &random).map_err(other)?;
        let pair = EcdsaKeyPair::from_pkcs8(&ES256, made.as_ref(), &random).map_err(other)?;
        Ok(Key { pair, random })
    }

    /// The key set.
    pub(super) fn jwks(&self) -> Value {
        let (x, y) = self.pair.public_key().as_ref()[1..].split_at(32);
        let (x, y) = (BASE64.encode(x), BASE64.encode(y));
        json!({"keys": [{"kty": "EC", "crv": "P-256", "alg": "ES256", "use": "sig", "kid": KEY_ID,
            "x": x, "y": y}]})
    }

    /// A JWT. `kind` is its `typ`.
    pub(super) fn sign(&self, kind: &str, claims: &Value) -> String {
        let head = json!({"alg": "ES256", "kid": KEY_ID, "typ": kind}).to_string();
        let signed = format!("{}.{}", BASE64.encode(head), BASE64.encode(claims.to_string()));
        // Signing fails only without randomness; then the token is invalid.
        let signature = self.pair.sign(&self.random, signed.as_bytes());
        let signature = signature.map(|it| BASE64.encode(it.as_ref())).unwrap_or_default();
        format!("{signed}.{signature}")
    }
}

/// The claims of a JWT, unverified.
pub(super) fn claims(token: &str) -> Option<Value> {
    let payload = BASE64.decode(token.split('.').nth(1)?).ok()?;
    serde_json::from_slice(&payload).ok()
}

/// The PKCE challenge of a verifier.
pub(super) fn challenge(verifier: &str) -> String {
    BASE64.encode(digest::digest(&digest::SHA256, verifier.as_bytes()))
}

/// An unpredictable value that begins with `prefix`.
pub(super) fn random(prefix: &str) -> String {
    let mut bytes = [0; 24];
    let filled = SystemRandom::new().fill(&mut bytes);
    debug_assert!(filled.is_ok(), "no randomness");
    format!("{prefix}{}", BASE64.encode(bytes))
}

pub(super) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

fn other(error: impl std::fmt::Display) -> io::Error {
    io::Error::other(error.to_string())
}
