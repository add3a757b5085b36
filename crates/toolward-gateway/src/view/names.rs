//! Tool names for clients of several servers: injective, stable, and short enough for every client.

mod taken;

use sha2::{Digest, Sha256};

pub use self::taken::{Claims, NameRegistry};
use crate::client::ServerId;

/// Maximum length of a name: clients need not accept longer ones.
const MAX_NAME_LENGTH: usize = 64;
/// Characters of the hash at the end of a shortened name, after `_`.
const HASH_LENGTH: usize = 12;

/// How tools are named if a client sees several servers.
#[derive(Debug)]
pub enum Naming {
    /// `SERVER__TOOL`.
    Prefix { separator: String },
    /// The tools' own names. If two are the same, the first to claim it has it.
    Flat(NameRegistry),
    /// `SERVER/TOOL`, for progressive discovery. No list shows these names.
    Address,
}

impl Naming {
    /// The same scheme without any claimed name.
    pub(crate) fn empty(&self) -> Naming {
        match self {
            Naming::Prefix { separator } => Naming::Prefix { separator: separator.clone() },
            Naming::Flat(_) => Naming::Flat(NameRegistry::default()),
            Naming::Address => Naming::Address,
        }
    }

    /// New claims for the names of a server's list.
    pub fn claims(&self, server: ServerId) -> Claims {
        match self {
            Naming::Flat(taken) => taken.claims(server),
            Naming::Prefix { .. } | Naming::Address => Claims::none(server),
        }
    }

    /// The naming of a configuration that replaces another one: flat names stay with their owners. `keep`
    /// returns whether a server still shows a tool under this name.
    pub(crate) fn replacing(
        self,
        before: &Naming,
        keep: impl Fn(ServerId, &str) -> bool,
    ) -> Naming {
        match (self, before) {
            (Naming::Flat(_), Naming::Flat(taken)) => Naming::Flat(taken.continued(keep)),
            (naming, _) => naming,
        }
    }

    /// The name of a server's tool; `None` if another tool has it already. A flat name belongs to the
    /// tool as long as the claims live.
    pub fn expose(&self, claims: &mut Claims, server: &str, tool: &str) -> Option<Box<str>> {
        match self {
            Naming::Prefix { separator } => Some(fit(&format!("{server}{separator}{tool}"))),
            Naming::Flat(_) => claims.add(fit(tool), tool),
            // Server names contain no slash.
            Naming::Address => Some(format!("{server}/{tool}").into()),
        }
    }

    /// The name of a server's tool, whether or not another tool has it; nothing is claimed.
    pub fn called(&self, server: &str, tool: &str) -> Box<str> {
        match self {
            Naming::Prefix { separator } => fit(&format!("{server}{separator}{tool}")),
            Naming::Flat(_) => fit(tool),
            Naming::Address => format!("{server}/{tool}").into(),
        }
    }

    /// The prefix of the names of a server's tools.
    pub fn prefix(&self, server: &str) -> String {
        match self {
            Naming::Prefix { separator } => format!("{server}{separator}"),
            Naming::Flat(_) => String::new(),
            Naming::Address => format!("{server}/"),
        }
    }

    /// Whether a name could be a tool of this server, if its list were known.
    pub(crate) fn could_be(&self, name: &str, server: &str) -> bool {
        matches!(self, Naming::Flat(_)) || self.rest(name, server).is_some()
    }

    /// The part of a name after the server's prefix, if it has that prefix.
    pub fn rest<'n>(&self, name: &'n str, server: &str) -> Option<&'n str> {
        match self {
            Naming::Prefix { separator } => {
                name.strip_prefix(server)?.strip_prefix(separator.as_str())
            }
            Naming::Flat(_) => None,
            Naming::Address => name.strip_prefix(server)?.strip_prefix('/'),
        }
    }
}

/// Shortens a name to at most 64 characters of `[A-Za-z0-9_-]`. A name that is longer or has other
/// characters ends in a hash of the whole name; so does one that looks hashed, so that no two names
/// collide.
fn fit(name: &str) -> Box<str> {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if name.len() <= MAX_NAME_LENGTH && name.chars().all(plain) && !looks_hashed(name) {
        return name.into();
    }
    let kept: String = name
        .chars()
        .map(|c| if plain(c) { c } else { '_' })
        .take(MAX_NAME_LENGTH - HASH_LENGTH - 1)
        .collect();
    let hash = Sha256::digest(name);
    let hash: String =
        hash.iter().take(HASH_LENGTH / 2).map(|byte| format!("{byte:02x}")).collect();
    format!("{kept}_{hash}").into()
}

fn looks_hashed(name: &str) -> bool {
    let Some((_, end)) = name.rsplit_once('_') else { return false };
    end.len() == HASH_LENGTH && end.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn prefixed(server: &str, tool: &str) -> Box<str> {
        let naming = Naming::Prefix { separator: "__".into() };
        naming.expose(&mut Claims::none(ServerId::FIRST), server, tool).unwrap()
    }

    #[test]
    fn ordinary_names_contain_their_server() {
        assert_eq!(&*prefixed("files", "read_file"), "files__read_file");
        assert_eq!(&*prefixed("a", "_b"), "a___b");
    }

    #[test]
    fn long_and_odd_names_are_shortened_and_stay_apart() {
        let long = "x".repeat(80);
        let names: Vec<_> = [&*long, &*format!("{long}y"), "a.b", "a/b", "a b", "ä", ""]
            .iter()
            .map(|tool| prefixed("files", tool))
            .collect();
        for name in &names {
            assert!(name.len() <= MAX_NAME_LENGTH && name.starts_with("files__"), "{name}");
            assert!(name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-'));
        }
        let mut apart = names.clone();
        apart.sort();
        apart.dedup();
        assert_eq!(apart.len(), names.len());
    }

    #[test]
    fn a_name_that_looks_shortened_does_not_meet_a_shortened_one() {
        let shortened = prefixed("s", "a.b");
        let lookalike = shortened.strip_prefix("s__").unwrap();
        assert_ne!(prefixed("s", lookalike), shortened);
    }

    proptest! {
        #[test]
        fn no_two_tools_share_a_name(
            one in ("[a-z]{1,3}(_?[a-z]){0,2}", ".{0,70}"),
            other in ("[a-z]{1,3}(_?[a-z]){0,2}", ".{0,70}"),
        ) {
            let name = |(server, tool): &(String, String)| prefixed(server, tool);
            prop_assert_eq!(name(&one) == name(&other), one == other);
        }
    }
}
