//! Strict parser for JSON Web Tokens: a token that two parsers could read differently is rejected.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Map, Value};
use toolward_wire::Raw;

use super::Wrong;
use super::jwk::Algorithm;

/// Maximum length of a token; longer ones are not parsed.
pub(super) const MAX_TOKEN_LENGTH: usize = 8 << 10;
/// Accepted `typ` headers.
const KINDS: [&str; 4] = ["jwt", "at+jwt", "application/jwt", "application/at+jwt"];

/// A parsed token. Nothing in it can be trusted before its signature is verified.
#[derive(Debug)]
pub(super) struct ParsedToken<'t> {
    pub(super) algorithm: Algorithm,
    pub(super) key: Option<String>,
    pub(super) claims: Map<String, Value>,
    /// The signed part.
    pub(super) signed: &'t [u8],
    pub(super) signature: Vec<u8>,
}

impl<'t> ParsedToken<'t> {
    pub(super) fn read(token: &'t str) -> Result<ParsedToken<'t>, Wrong> {
        if token.len() > MAX_TOKEN_LENGTH {
            return Err(Wrong::TooLong);
        }
        let (signed, signature) = token.rsplit_once('.').ok_or(Wrong::Malformed)?;
        let (head, claims) = signed.split_once('.').ok_or(Wrong::Malformed)?;
        let decode = |part: &str| URL_SAFE_NO_PAD.decode(part).map_err(|_| Wrong::Malformed);
        let (head, claims) = (decode(head)?, decode(claims)?);
        let head = object(&head)?;
        let text = |name: &str| match head.member(name) {
            None => Ok(None),
            Some(value) => value.as_str().map(Some).ok_or(Wrong::Malformed),
        };
        // No critical extensions are supported, so a token with `crit` must be rejected (RFC 7515).
        if head.member("crit").is_some() {
            return Err(Wrong::Malformed);
        }
        if let Some(kind) = text("typ")?
            && !KINDS.contains(&kind.to_ascii_lowercase().as_str())
        {
            return Err(Wrong::Malformed);
        }
        let algorithm = text("alg")?.ok_or(Wrong::Malformed)?;
        let Value::Object(claims) = object(&claims)?.to_json() else {
            return Err(Wrong::Malformed);
        };
        Ok(ParsedToken {
            algorithm: Algorithm::parse(&algorithm).ok_or(Wrong::Algorithm)?,
            key: text("kid")?.map(|id| id.into_owned()),
            claims,
            signed: signed.as_bytes(),
            signature: decode(signature)?,
        })
    }

    /// The audience of the token.
    pub(super) fn audience(&self) -> Result<Vec<String>, Wrong> {
        let text = |value: &Value| value.as_str().map(String::from).ok_or(Wrong::Audience);
        match self.claims.get("aud") {
            Some(Value::Array(all)) => all.iter().map(text).collect(),
            Some(one) => Ok(vec![text(one)?]),
            None => Err(Wrong::Audience),
        }
    }

    /// The expiry of the token in seconds, with the leeway, if it is valid now.
    pub(super) fn until(&self, now: u64, leeway: u64) -> Result<u64, Wrong> {
        let seconds = |name: &str| match self.claims.get(name) {
            None => Ok(None),
            Some(value) => {
                let seconds = value.as_f64().filter(|seconds| *seconds >= 0.0);
                seconds.map(Some).ok_or(Wrong::Malformed)
            }
        };
        for begins in [seconds("nbf")?, seconds("iat")?].into_iter().flatten() {
            if begins > (now + leeway) as f64 {
                return Err(Wrong::NotYet);
            }
        }
        // A token without an expiry could never be revoked.
        let until = seconds("exp")?.ok_or(Wrong::Malformed)? + leeway as f64;
        match until > now as f64 {
            true => Ok(until as u64),
            false => Err(Wrong::Expired),
        }
    }
}

fn object(bytes: &[u8]) -> Result<Raw<'_>, Wrong> {
    let raw = Raw::scan(bytes, MAX_TOKEN_LENGTH).map_err(|_| Wrong::Malformed)?;
    raw.is_object().then_some(raw).ok_or(Wrong::Malformed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(head: &str, claims: &str) -> String {
        format!("{}.{}.AA", URL_SAFE_NO_PAD.encode(head), URL_SAFE_NO_PAD.encode(claims))
    }

    fn read(head: &str, claims: &str) -> Result<(), Wrong> {
        ParsedToken::read(&token(head, claims)).map(drop)
    }

    #[test]
    fn only_what_reads_alike_for_everyone_is_a_token() {
        let head = r#"{"alg":"ES256"}"#;
        assert_eq!(read(head, "{}"), Ok(()));
        for kind in ["JWT", "jwt", "at+jwt", "application/at+jwt"] {
            let head = format!(r#"{{"alg":"ES256","typ":"{kind}"}}"#);
            assert_eq!(read(&head, "{}"), Ok(()), "{kind}");
        }
        for bad in [
            r#"{"alg":"ES256","crit":["exp"]}"#,
            r#"{"alg":"ES256","crit":[],"b64":false}"#,
            r#"{"alg":"ES256","alg":"RS256"}"#,
            r#"{"alg":"ES256","\u0061lg":"RS256"}"#,
            r#"{"alg":"ES256","typ":"id+jwt"}"#,
            r#"{"alg":"ES256","typ":1}"#,
            r#"{"alg":"ES256","kid":1}"#,
            r#"{"alg":["ES256"]}"#,
            r#"["ES256"]"#,
            "{}",
            "",
        ] {
            assert_eq!(read(bad, "{}"), Err(Wrong::Malformed), "{bad}");
        }
        for alg in ["none", "None", "NONE", "HS256", "HS512", "es256", "ES256K", "ES512", ""] {
            let head = format!(r#"{{"alg":"{alg}"}}"#);
            assert_eq!(read(&head, "{}"), Err(Wrong::Algorithm), "{alg}");
        }
        for bad in [r#"{"sub":"a","sub":"b"}"#, "[]", "{", r#"{"a":{"b":1,"b":2}}"#] {
            assert_eq!(read(head, bad), Err(Wrong::Malformed), "{bad}");
        }
        let good = token(head, "{}");
        for bad in ["", ".", "..", "a.b", &good[..good.len() - 3], &format!("{good}=")] {
            assert!(ParsedToken::read(bad).is_err(), "{bad}");
        }
        assert!(ParsedToken::read(&format!("{good}.AA")).is_err(), "four parts");
        assert!(ParsedToken::read(&format!("{good}.AA.AA")).is_err(), "an encrypted token");
        let long = token(head, &format!(r#"{{"sub":"{}"}}"#, "a".repeat(MAX_TOKEN_LENGTH)));
        assert_eq!(ParsedToken::read(&long).map(drop), Err(Wrong::TooLong));
    }

    #[test]
    fn a_token_has_its_time() {
        let until = |claims: &str| {
            let token = token(r#"{"alg":"ES256"}"#, claims);
            ParsedToken::read(&token).unwrap().until(1000, 60)
        };
        assert_eq!(until(r#"{"exp":1100}"#), Ok(1160));
        assert_eq!(until(r#"{"exp":941}"#), Ok(1001));
        assert_eq!(until(r#"{"exp":1100.5,"nbf":1060,"iat":1060}"#), Ok(1160));
        assert_eq!(until(r#"{"exp":940}"#), Err(Wrong::Expired));
        assert_eq!(until(r#"{"exp":1100,"nbf":1061}"#), Err(Wrong::NotYet));
        assert_eq!(until(r#"{"exp":1100,"iat":1061}"#), Err(Wrong::NotYet));
        for bad in ["{}", r#"{"exp":"1100"}"#, r#"{"exp":null}"#, r#"{"exp":-1}"#] {
            assert_eq!(until(bad), Err(Wrong::Malformed), "{bad}");
        }
        assert_eq!(until(r#"{"exp":1100,"nbf":"1"}"#), Err(Wrong::Malformed));
        assert!(until(r#"{"exp":1e300}"#).is_ok());
    }
}
