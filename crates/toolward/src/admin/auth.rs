//! Authentication of the admin UI, by token.
//!
//! Cookies ignore ports: a cookie for `/` would be sent to every server on this host, for example one that an
//! agent runs. The UI is therefore served under a path derived from the token, and its cookie is limited to it.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::Path;

use sha2::{Digest, Sha256};
use toolward_wire::http::RequestHead;

pub(crate) const FILE: &str = "admin.token";
/// Random bytes of a token.
const RANDOM_BYTES: usize = 24;
/// The maximum length of a token; longer ones are rejected without comparison.
pub(super) const MAX_TOKEN_BYTES: usize = 256;
pub(super) const COOKIE: &str = "toolward";

pub(super) struct TokenAuth {
    token: String,
    /// The first segment of the admin UI's path.
    pub(super) prefix: String,
    /// The value of the cookie, from which the token cannot be derived.
    cookie: String,
}

/// The credential of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TokenCheck {
    Missing,
    Valid,
    Invalid,
}

impl TokenAuth {
    /// The token stored in a directory, created at first use, so that the URL survives restarts.
    pub(super) fn in_folder(folder: &Path) -> io::Result<TokenAuth> {
        let path = folder.join(FILE);
        let token = match read(&path) {
            Ok(token) => token,
            Err(error) if error.kind() == io::ErrorKind::NotFound => make(folder, &path)?,
            Err(error) => return Err(error),
        };
        Ok(TokenAuth::of(token))
    }

    /// Whether the token in a directory can be used, if there is one.
    pub(super) fn check(folder: &Path) -> io::Result<()> {
        match read(&folder.join(FILE)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    fn of(token: String) -> TokenAuth {
        let (prefix, cookie) = (derived("path", &token), derived("cookie", &token));
        let prefix = prefix.get(..16).unwrap_or_default().to_string();
        TokenAuth { token, prefix, cookie }
    }

    pub(super) fn token(&self) -> &str {
        &self.token
    }

    pub(super) fn is_token(&self, shown: &str) -> bool {
        shown.len() <= MAX_TOKEN_BYTES && same(shown, &self.token)
    }

    /// The header that sets the cookie.
    pub(super) fn set_cookie(&self) -> String {
        let TokenAuth { prefix, cookie, .. } = self;
        format!("{COOKIE}={cookie}; Path=/{prefix}/; HttpOnly; SameSite=Strict")
    }

    /// Checks the cookie or token of a request.
    pub(super) fn look(&self, head: &RequestHead) -> TokenCheck {
        let mut shown = TokenCheck::Missing;
        for value in head.headers.values("cookie") {
            let pairs = value.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
            for pair in pairs.filter_map(|pair| std::str::from_utf8(pair).ok()) {
                let own = pair.strip_prefix(COOKIE).and_then(|rest| rest.strip_prefix('='));
                match own.filter(|value| value.len() <= MAX_TOKEN_BYTES) {
                    Some(value) if same(value, &self.cookie) => return TokenCheck::Valid,
                    Some(_) => shown = TokenCheck::Invalid,
                    None => {}
                }
            }
        }
        match self.bearer(head) {
            TokenCheck::Missing => shown,
            other => other,
        }
    }

    pub(super) fn bearer(&self, head: &RequestHead) -> TokenCheck {
        if head.headers.count("authorization") == 0 {
            return TokenCheck::Missing;
        }
        let value = head.headers.get("authorization").and_then(|value| value.split_once(' '));
        match value {
            Some((scheme, token))
                if scheme.eq_ignore_ascii_case("bearer") && self.is_token(token.trim()) =>
            {
                TokenCheck::Valid
            }
            _ => TokenCheck::Invalid,
        }
    }
}

fn read(path: &Path) -> io::Result<String> {
    use std::os::unix::fs::MetadataExt;
    let file = File::open(path)?;
    if file.metadata()?.mode() & 0o077 != 0 {
        let why = format!("{} can be read by others; `chmod 600` it", path.display());
        return Err(io::Error::other(why));
    }
    let mut text = String::new();
    file.take(MAX_TOKEN_BYTES as u64 + 2).read_to_string(&mut text)?;
    let token = text.trim();
    let plain = token.bytes().all(|byte| byte.is_ascii_alphanumeric());
    if !plain || !(32..=MAX_TOKEN_BYTES).contains(&token.len()) {
        let why =
            format!("{} does not contain a token; delete it to get a new one", path.display());
        return Err(io::Error::other(why));
    }
    Ok(token.into())
}

fn make(folder: &Path, path: &Path) -> io::Result<String> {
    use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let mut random = [0; RANDOM_BYTES];
    getrandom::fill(&mut random).map_err(|error| io::Error::other(error.to_string()))?;
    let token = hex(&random);
    // Written atomically, also if two processes start at the same time.
    let own = folder.join(format!("{FILE}.{}", std::process::id()));
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let mut file = options.open(&own)?;
    writeln!(file, "{token}")?;
    file.sync_all()?;
    let linked = std::fs::hard_link(&own, path);
    std::fs::remove_file(&own)?;
    match linked {
        Ok(()) => Ok(token),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => read(path),
        Err(error) => Err(error),
    }
}

/// A value derived from the token, from which the token cannot be computed.
fn derived(label: &str, token: &str) -> String {
    hex(&Sha256::digest(format!("toolward page {label}\n{token}")))
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Compares two texts by their hashes, so that the time does not reveal where they differ.
pub(super) fn same(one: &str, other: &str) -> bool {
    let (one, other) = (Sha256::digest(one), Sha256::digest(other));
    one.iter().zip(other.iter()).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    use super::*;

    #[test]
    fn the_token_is_made_once_and_for_this_user_alone() {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("state");
        let first = TokenAuth::in_folder(&state).unwrap();
        assert_eq!(first.token().len(), 2 * RANDOM_BYTES);
        let file = state.join(FILE);
        assert_eq!(std::fs::metadata(&file).unwrap().mode() & 0o777, 0o600);
        assert_eq!(std::fs::read_dir(&state).unwrap().count(), 1);
        assert_eq!(TokenAuth::in_folder(&state).unwrap().token(), first.token());
        std::fs::remove_file(&file).unwrap();
        let second = TokenAuth::in_folder(&state).unwrap();
        assert_ne!(second.token(), first.token());
        assert_ne!(second.prefix, first.prefix);

        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(TokenAuth::in_folder(&state).is_err());
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
        for bad in ["", "short", &"x".repeat(300), &"é".repeat(40)] {
            std::fs::write(&file, bad).unwrap();
            assert!(TokenAuth::in_folder(&state).is_err(), "{bad}");
        }
    }

    #[test]
    fn path_and_cookie_do_not_reveal_the_token() {
        let door = TokenAuth::of("0123456789abcdef0123456789abcdef".into());
        assert_eq!(door.prefix.len(), 16);
        assert!(!door.cookie.contains(&door.prefix) && !door.token.contains(&door.prefix));
        assert!(door.is_token("0123456789abcdef0123456789abcdef"));
        for wrong in ["", "0123456789abcdef0123456789abcdeF", &door.cookie, &door.prefix] {
            assert!(!door.is_token(wrong), "{wrong}");
        }
    }
}
