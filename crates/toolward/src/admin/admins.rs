//! Admins of the configuration in the admin UI: an admin's token is exchanged for a cookie.
//!
//! The configuration contains only digests of tokens. The cookie contains the digest, authenticated with the token of
//! the state directory, so nothing is stored for it, and it is invalid as soon as the admin's token is removed.

use sha2::{Digest, Sha256};
use toolward_gateway::authn::Tokens;
use toolward_wire::http::RequestHead;

use super::auth::{MAX_TOKEN_BYTES, TokenAuth, hex, same};

const COOKIE: &str = "toolward-admin";

/// The person behind a request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct SignedIn {
    /// The name of an admin; `None`: someone with the token of the state directory.
    pub(crate) admin: Option<String>,
}

impl TokenAuth {
    /// The header that sets an admin's cookie.
    pub(super) fn admin_cookie(&self, token: &str) -> String {
        let digest = hex(&Sha256::digest(token));
        let (mac, prefix) = (self.admin_mac(&digest), &self.prefix);
        format!("{COOKIE}={digest}.{mac}; Path=/{prefix}/; HttpOnly; SameSite=Strict")
    }

    fn admin_mac(&self, digest: &str) -> String {
        hex(&Sha256::digest(format!("toolward page admin\n{}\n{digest}", self.token())))
    }

    /// The admin of a request, by cookie or token.
    pub(super) fn admin(&self, head: &RequestHead, admins: Option<&Tokens>) -> Option<String> {
        let admins = admins?;
        for value in head.headers.values("cookie") {
            let pairs = value.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
            let own = pairs.filter_map(|pair| {
                std::str::from_utf8(pair).ok()?.strip_prefix(COOKIE)?.strip_prefix('=')
            });
            for (digest, mac) in own.filter_map(|value| value.split_once('.')) {
                if digest.len() == 64
                    && same(mac, &self.admin_mac(digest))
                    && let Some(name) = unhex(digest).and_then(|digest| admins.owner(&digest))
                {
                    return Some(name.to_string());
                }
            }
        }
        let (scheme, token) = head.headers.get("authorization")?.split_once(' ')?;
        let token = token.trim();
        let fits = scheme.eq_ignore_ascii_case("bearer") && token.len() <= MAX_TOKEN_BYTES;
        fits.then(|| admins.agent(token).map(|name| name.to_string())).flatten()
    }
}

fn unhex(text: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(bytes)
}
