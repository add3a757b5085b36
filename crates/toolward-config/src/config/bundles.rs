//! `bundle` of `policies`, resolved.

use std::path::{Path, PathBuf};
use std::time::Duration;

use sha2::{Digest, Sha256};

use crate::bundle::BundleKey;
use crate::diagnostics::text::Mark;

/// Where a policy bundle comes from.
#[derive(Debug, Clone)]
pub struct BundleSource {
    pub url: String,
    pub key: BundleKey,
    /// The interval at which a newer one is looked for.
    pub poll: Duration,
    pub mark: Mark,
}

impl BundleSource {
    /// The directory of its files in the state directory. Another key makes it another source.
    fn directory(&self, state: &Path) -> PathBuf {
        let id = Sha256::digest(format!("{}\n{}", self.key, self.url));
        let id: String = id.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        state.join("bundles").join(id)
    }

    /// The bundle that was activated last.
    pub fn file(&self, state: &Path) -> PathBuf {
        self.directory(state).join("bundle.tgz")
    }

    /// The highest revision that was ever activated.
    pub fn revision_file(&self, state: &Path) -> PathBuf {
        self.directory(state).join("revision")
    }

    /// The URL without its query, for messages.
    pub fn shown(&self) -> &str {
        self.url.split(['?', '#']).next().unwrap_or(&self.url)
    }
}
