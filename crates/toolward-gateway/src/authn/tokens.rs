//! Bearer tokens by their SHA-256 digest.

use std::sync::Arc;

use hashbrown::HashMap;
use sha2::{Digest, Sha256};

type Hash = [u8; 32];

/// The tokens of all agents.
///
/// A token is found by the first bytes of its digest and then compared in constant time, so that a
/// request costs the same with one agent and with ten thousand. The position in the map depends on the
/// digest alone, which a caller cannot steer towards that of a token.
#[derive(Debug, Default)]
pub struct Tokens {
    by_prefix: HashMap<u64, Vec<(Hash, Arc<str>)>>,
    len: usize,
}

impl Tokens {
    /// Adds the digest of a token. The error is another agent that has the same token.
    pub fn add(&mut self, digest: Hash, agent: &Arc<str>) -> Result<(), Arc<str>> {
        let known = self.by_prefix.entry(prefix(&digest)).or_default();
        if let Some((_, owner)) = known.iter().find(|(other, _)| *other == digest) {
            return if owner == agent { Ok(()) } else { Err(owner.clone()) };
        }
        known.push((digest, agent.clone()));
        self.len += 1;
        Ok(())
    }

    /// The agent that a token belongs to.
    pub fn agent(&self, token: &str) -> Option<&Arc<str>> {
        self.find(&Sha256::digest(token).into())
    }

    /// Whether an agent has a token.
    pub(super) fn has(&self, agent: &str) -> bool {
        self.by_prefix.values().flatten().any(|(_, owner)| **owner == *agent)
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The owner of the token with this digest.
    pub fn owner(&self, digest: &Hash) -> Option<&Arc<str>> {
        self.find(digest)
    }

    pub(super) fn find(&self, digest: &Hash) -> Option<&Arc<str>> {
        let known = self.by_prefix.get(&prefix(digest))?;
        known.iter().find(|(other, _)| equal(other, digest)).map(|(_, agent)| agent)
    }
}

fn prefix(digest: &Hash) -> u64 {
    digest.iter().take(8).fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// Compares every byte, so that the time does not depend on where two digests differ.
fn equal(one: &Hash, other: &Hash) -> bool {
    one.iter().zip(other).fold(0, |bits, (a, b)| bits | (a ^ b)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_found_among_many_and_belongs_to_one_agent() {
        let mut tokens = Tokens::default();
        let digest = |text: &str| Sha256::digest(text).into();
        for number in 0..10_000 {
            let agent: Arc<str> = format!("agent-{number}").into();
            assert_eq!(tokens.add(digest(&format!("token-{number}")), &agent), Ok(()));
        }
        assert_eq!(tokens.len(), 10_000);
        assert_eq!(tokens.agent("token-9999").map(|agent| &**agent), Some("agent-9999"));
        assert_eq!(tokens.agent("token-10000"), None);
        let (again, other) = (Arc::from("agent-7"), Arc::from("other"));
        assert_eq!(tokens.add(digest("token-7"), &again), Ok(()));
        assert_eq!(tokens.add(digest("token-7"), &other), Err(again));
        assert_eq!(tokens.len(), 10_000);
    }

    #[test]
    fn digests_with_a_common_prefix_are_distinguished() {
        let mut tokens = Tokens::default();
        let (mut one, mut other) = ([7; 32], [7; 32]);
        (one[31], other[31]) = (1, 2);
        let (a, b) = (Arc::from("a"), Arc::from("b"));
        assert_eq!((tokens.add(one, &a), tokens.add(other, &b)), (Ok(()), Ok(())));
        assert_eq!((tokens.find(&one), tokens.find(&other)), (Some(&a), Some(&b)));
        assert_eq!(tokens.find(&[7; 32]), None);
    }
}
