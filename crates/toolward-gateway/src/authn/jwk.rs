//! JSON Web Keys and signature verification. Only public-key signatures are supported: there is neither
//! `none` nor a shared secret.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::signature::{self, RsaPublicKeyComponents, UnparsedPublicKey, VerificationAlgorithm};
use toolward_wire::{Raw, Shape};

/// Maximum number of keys in a set; issuers have fewer.
const MAX_KEYS: usize = 100;

/// A signature algorithm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Algorithm {
    Rs256,
    Rs384,
    Rs512,
    Ps256,
    Ps384,
    Ps512,
    Es256,
    Es384,
    EdDsa,
}

impl Algorithm {
    /// Parses the exact registered name.
    pub fn parse(name: &str) -> Option<Algorithm> {
        Some(match name {
            "RS256" => Algorithm::Rs256,
            "RS384" => Algorithm::Rs384,
            "RS512" => Algorithm::Rs512,
            "PS256" => Algorithm::Ps256,
            "PS384" => Algorithm::Ps384,
            "PS512" => Algorithm::Ps512,
            "ES256" => Algorithm::Es256,
            "ES384" => Algorithm::Es384,
            "EdDSA" => Algorithm::EdDsa,
            _ => return None,
        })
    }

    fn rsa(self) -> Option<&'static signature::RsaParameters> {
        Some(match self {
            Algorithm::Rs256 => &signature::RSA_PKCS1_2048_8192_SHA256,
            Algorithm::Rs384 => &signature::RSA_PKCS1_2048_8192_SHA384,
            Algorithm::Rs512 => &signature::RSA_PKCS1_2048_8192_SHA512,
            Algorithm::Ps256 => &signature::RSA_PSS_2048_8192_SHA256,
            Algorithm::Ps384 => &signature::RSA_PSS_2048_8192_SHA384,
            Algorithm::Ps512 => &signature::RSA_PSS_2048_8192_SHA512,
            Algorithm::Es256 | Algorithm::Es384 | Algorithm::EdDsa => return None,
        })
    }
}

/// The current keys of an issuer.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct KeySet(Vec<Key>);

/// One public key.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Key {
    id: Option<String>,
    /// The only algorithm it may be used with, if it has `alg`.
    only: Option<Algorithm>,
    material: Material,
}

#[derive(Debug, PartialEq, Eq)]
enum Material {
    Rsa {
        n: Vec<u8>,
        e: Vec<u8>,
    },
    /// An uncompressed point.
    P256(Vec<u8>),
    P384(Vec<u8>),
    Ed25519(Vec<u8>),
}

/// Why no key of the set matches a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoKey {
    /// No key has this id; the issuer may have a new one.
    Unknown,
    /// More than one key matches.
    Ambiguous,
}

impl KeySet {
    /// Parses a JSON Web Key Set. Keys of other types and for other uses are ignored. An empty set is
    /// valid too: that is how an issuer revokes its keys.
    pub(super) fn parse(body: &[u8], limit: usize) -> Result<KeySet, String> {
        let set = Raw::scan(body, limit).map_err(|error| error.to_string())?;
        let keys = set.member("keys").filter(|keys| keys.shape() == Shape::Array);
        let keys = keys.ok_or("it has no `keys` array")?;
        let keys = keys.elements().take(MAX_KEYS).filter_map(|(key, _)| Key::parse(key));
        Ok(KeySet(keys.collect()))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The key for a token's header.
    pub(super) fn find(&self, id: Option<&str>, algorithm: Algorithm) -> Result<&Key, NoKey> {
        let mut fitting = self
            .0
            .iter()
            .filter(|key| key.fits(algorithm) && id.is_none_or(|id| key.id.as_deref() == Some(id)));
        match (fitting.next(), fitting.next()) {
            (Some(key), None) => Ok(key),
            (None, _) => Err(NoKey::Unknown),
            (Some(_), Some(_)) => Err(NoKey::Ambiguous),
        }
    }
}

impl Key {
    fn parse(key: Raw<'_>) -> Option<Key> {
        let text = |name: &str| key.member(name).map(|value| value.as_str().map(String::from));
        // A member that is present but not a string makes the key invalid.
        let optional = |name: &str| text(name).map_or(Some(None), |value| value.map(Some));
        let bytes = |name: &str| URL_SAFE_NO_PAD.decode(text(name)??).ok();
        let point = |length: usize| {
            let (x, y) = (bytes("x")?, bytes("y")?);
            let fits = x.len() == length && y.len() == length;
            fits.then(|| [&[4][..], &x, &y].concat())
        };
        if optional("use")?.is_some_and(|used| used != "sig") {
            return None;
        }
        if let Some(operations) = key.member("key_ops") {
            let verifies = |(one, _): (Raw<'_>, _)| one.as_str().as_deref() == Some("verify");
            if !operations.elements().any(verifies) {
                return None;
            }
        }
        let kind = text("kty")??;
        let material = match (kind.as_str(), optional("crv")?.as_deref()) {
            ("RSA", _) => Material::Rsa { n: bytes("n")?, e: bytes("e")? },
            ("EC", Some("P-256")) => Material::P256(point(32)?),
            ("EC", Some("P-384")) => Material::P384(point(48)?),
            ("OKP", Some("Ed25519")) => Material::Ed25519(bytes("x").filter(|x| x.len() == 32)?),
            _ => return None,
        };
        // A key for an unsupported algorithm is not used with a supported one.
        let only = match optional("alg")? {
            Some(name) => Some(Algorithm::parse(&name)?),
            None => None,
        };
        let key = Key { id: optional("kid")?, only, material };
        key.only.is_none_or(|only| key.is_for(only)).then_some(key)
    }

    fn fits(&self, algorithm: Algorithm) -> bool {
        self.is_for(algorithm) && self.only.is_none_or(|only| only == algorithm)
    }

    fn is_for(&self, algorithm: Algorithm) -> bool {
        match &self.material {
            Material::Rsa { .. } => algorithm.rsa().is_some(),
            Material::P256(_) => algorithm == Algorithm::Es256,
            Material::P384(_) => algorithm == Algorithm::Es384,
            Material::Ed25519(_) => algorithm == Algorithm::EdDsa,
        }
    }

    /// Verifies a signature with this key and algorithm.
    pub(super) fn verifies(&self, algorithm: Algorithm, signed: &[u8], signature: &[u8]) -> bool {
        if !self.fits(algorithm) {
            return false;
        }
        let point = |by: &'static dyn VerificationAlgorithm, point: &[u8]| {
            UnparsedPublicKey::new(by, point).verify(signed, signature).is_ok()
        };
        match &self.material {
            Material::Rsa { n, e } => algorithm.rsa().is_some_and(|parameters| {
                RsaPublicKeyComponents { n, e }.verify(parameters, signed, signature).is_ok()
            }),
            Material::P256(key) => point(&signature::ECDSA_P256_SHA256_FIXED, key),
            Material::P384(key) => point(&signature::ECDSA_P384_SHA384_FIXED, key),
            Material::Ed25519(key) => point(&signature::ED25519, key),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POINT: &str = "MKBCTNIcKUSDii11ySs3526iDZ8AiTo7Tu6KPAqv7D4";

    fn set(keys: &str) -> Result<KeySet, String> {
        KeySet::parse(format!("{{\"keys\":[{keys}]}}").as_bytes(), 1 << 16)
    }

    fn ec(more: &str) -> String {
        format!(r#"{{"kty":"EC","crv":"P-256","x":"{POINT}","y":"{POINT}"{more}}}"#)
    }

    #[test]
    fn keys_for_other_uses_and_of_other_kinds_are_passed_over() {
        for unusable in [
            ec(r#","use":"enc""#),
            ec(r#","use":1"#),
            ec(r#","key_ops":["sign"]"#),
            ec(r#","alg":"ES384""#),
            ec(r#","alg":"none""#),
            ec(r#","alg":"HS256""#),
            ec(r#","kid":7"#),
            r#"{"kty":"oct","k":"c2VjcmV0"}"#.into(),
            r#"{"kty":"RSA","n":"AQAB"}"#.into(),
            r#"{"kty":"EC","crv":"P-256","x":"AA","y":"AA"}"#.into(),
            r#"{"kty":"OKP","crv":"X25519","x":"AA"}"#.into(),
            r#""key""#.into(),
        ] {
            assert!(set(&unusable).unwrap().is_empty(), "{unusable}");
            let beside = set(&format!("{unusable},{}", ec(""))).unwrap();
            assert!(beside.find(None, Algorithm::Es256).is_ok(), "{unusable}");
        }
        for usable in ["", r#","use":"sig""#, r#","key_ops":["verify"]"#, r#","alg":"ES256""#] {
            assert!(!set(&ec(usable)).unwrap().is_empty(), "{usable}");
        }
    }

    #[test]
    fn an_invalid_key_set_is_rejected() {
        for bad in ["", "[]", "{}", r#"{"keys":{}}"#, r#"{"keys":null}"#, "<html>", "{\"keys\":[}"]
        {
            assert!(KeySet::parse(bad.as_bytes(), 1 << 16).is_err(), "{bad}");
        }
        // Two parsers could read two different keys.
        let twice = ec(&format!(r#","x":"{POINT}""#));
        assert!(set(&twice).is_err());
    }

    #[test]
    fn a_token_means_one_key() {
        let two = set(&format!("{},{}", ec(r#","kid":"a""#), ec(r#","kid":"b""#))).unwrap();
        assert!(two.find(Some("a"), Algorithm::Es256).is_ok());
        assert_eq!(two.find(Some("c"), Algorithm::Es256), Err(NoKey::Unknown));
        assert_eq!(two.find(None, Algorithm::Es256), Err(NoKey::Ambiguous));
        assert_eq!(two.find(Some("a"), Algorithm::Rs256), Err(NoKey::Unknown));
        let twins = set(&format!("{},{}", ec(r#","kid":"a""#), ec(r#","kid":"a""#))).unwrap();
        assert_eq!(twins.find(Some("a"), Algorithm::Es256), Err(NoKey::Ambiguous));
        let one = set(&ec("")).unwrap();
        assert!(one.find(None, Algorithm::Es256).is_ok());
        assert_eq!(one.find(Some("a"), Algorithm::Es256), Err(NoKey::Unknown));
    }
}
