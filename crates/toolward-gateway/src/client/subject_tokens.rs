//! The newest JWT of each holder, for servers whose tokens are exchanged for it (RFC 8693).
//!
//! Clients renew their JWTs while sessions and connections stay open, so these do not keep a JWT themselves.

use std::sync::Mutex;

use hashbrown::HashMap;

use crate::clock;
use crate::lock::LockUnpoisoned;

/// Maximum number of holders. A JWT has at most 8 KiB.
const MAX_HOLDERS: usize = 4096;

/// JWTs by the digest of their holder.
#[derive(Default)]
pub struct SubjectTokens(Mutex<HashMap<[u8; 32], SubjectToken>>);

struct SubjectToken {
    token: Box<str>,
    /// In seconds since the Unix epoch.
    until: u64,
}

impl SubjectTokens {
    /// Keeps a valid JWT, instead of an older one of the same holder.
    pub(crate) fn keep(&self, holder: [u8; 32], token: &str, until: u64) {
        let mut all = self.0.locked();
        if all.len() >= MAX_HOLDERS && !all.contains_key(&holder) {
            let now = clock::seconds();
            all.retain(|_, one| now < one.until);
            // A holder that is removed is added again when its next JWT is verified.
            let oldest = all.iter().min_by_key(|(_, one)| one.until).map(|(holder, _)| *holder);
            if let Some(oldest) = oldest.filter(|_| all.len() >= MAX_HOLDERS) {
                all.remove(&oldest);
            }
        }
        all.insert(holder, SubjectToken { token: token.into(), until });
    }

    /// The holder's JWT, if it has not expired.
    pub(crate) fn of(&self, holder: &[u8; 32]) -> Option<Box<str>> {
        let now = clock::seconds();
        self.0.locked().get(holder).filter(|one| now < one.until).map(|one| one.token.clone())
    }
}

/// Prints nothing, because all of it is secret.
impl std::fmt::Debug for SubjectTokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SubjectTokens(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_token_of_a_holder_is_kept_until_it_expires() {
        let tokens = SubjectTokens::default();
        let later = clock::seconds() + 100;
        tokens.keep([1; 32], "old", later);
        tokens.keep([1; 32], "new", later);
        tokens.keep([2; 32], "expired", 1);
        assert_eq!(tokens.of(&[1; 32]).as_deref(), Some("new"));
        assert_eq!(tokens.of(&[2; 32]), None);
        assert_eq!(tokens.of(&[3; 32]), None);
        for number in 0..2 * MAX_HOLDERS as u64 {
            let mut holder = [9; 32];
            holder[..8].copy_from_slice(&number.to_be_bytes());
            tokens.keep(holder, "one", later + number);
        }
        assert_eq!(tokens.0.locked().len(), MAX_HOLDERS);
        assert!(!format!("{tokens:?}").contains("one"));
    }
}
