//! Policy bundles that are not active yet: fetched at start, if none was ever activated, and by `bundle_poll`.
//!
//! A newer bundle is loaded with the rest of the configuration as if it were stored, and stored only if all of it is
//! valid and its tests pass. So the bundle in the state directory is always one that was activated.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bytes::Bytes;
use toolward_config::bundle::{Bundle, MAX_BYTES};
use toolward_config::config::BundleSource;
use toolward_config::{Loader, Options, ProcessEnv, sanitize};
use toolward_gateway::guard::pins::write_file;
use toolward_gateway::http_client::{Address, Download, download};

use crate::exit::Failure;
use crate::reads::Reads;

pub(crate) const TIMEOUT: Duration = Duration::from_secs(10);
/// How long a gateway that starts tries to get its first bundle.
const START_TIMEOUT: Duration = Duration::from_secs(30);
const START_RETRY: Duration = Duration::from_millis(500);

/// A verified bundle that is not active yet.
#[derive(Debug, Clone)]
pub(crate) struct Candidate {
    pub(crate) source: BundleSource,
    state: PathBuf,
    bytes: Bytes,
    revision: u64,
}

impl Candidate {
    /// Verifies a bundle. `Ok(None)`: it is the active one.
    pub(crate) fn new(
        source: &BundleSource,
        state: &Path,
        bytes: Bytes,
    ) -> Result<Option<Candidate>, String> {
        let bundle = Bundle::open(&bytes, &source.key).map_err(|why| why.to_string())?;
        let active = std::fs::read(source.file(state)).ok();
        if active.is_some_and(|active| active == bytes) {
            return Ok(None);
        }
        if let Some(highest) = highest(source, state)
            && bundle.revision <= highest
        {
            let found = bundle.revision;
            return Err(format!("it has revision {found}, and {highest} was active already"));
        }
        let (source, state) = (source.clone(), state.to_owned());
        Ok(Some(Candidate { source, state, bytes, revision: bundle.revision }))
    }

    /// Makes a load read this bundle.
    pub(crate) fn assume(&self, reads: &Reads) {
        reads.assume(&self.source.file(&self.state), &self.bytes);
        let revision = self.revision.to_string();
        reads.assume(&self.source.revision_file(&self.state), revision.as_bytes());
    }

    /// Stores it. The revision comes first: after a crash in between, an older bundle is rejected, and the newer one is
    /// fetched again.
    pub(crate) fn store(&self) -> std::io::Result<()> {
        use std::os::unix::fs::DirBuilderExt;
        let file = self.source.file(&self.state);
        if let Some(directory) = file.parent() {
            std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        }
        let revision = self.revision.to_string();
        write_file(&self.source.revision_file(&self.state), revision.as_bytes())?;
        write_file(&file, &self.bytes)
    }

    /// For log entries.
    pub(crate) fn shown(&self) -> String {
        format!("bundle {} revision {}", sanitize(self.source.shown()), self.revision)
    }
}

fn highest(source: &BundleSource, state: &Path) -> Option<u64> {
    std::fs::read_to_string(source.revision_file(state)).ok()?.trim().parse().ok()
}

/// Fetches the bundles of a configuration of which none is stored, before the gateway loads it. They are stored when
/// the configuration is valid.
pub(crate) fn fetch_missing(options: &Options) -> Result<Vec<Candidate>, Failure> {
    let (sources, state) = Loader { files: Reads::default(), env: ProcessEnv }.bundles(options);
    let Some(state) = state else { return Ok(Vec::new()) };
    let is_missing = |source: &BundleSource| {
        let file = source.file(&state);
        // After a crash, the stored bundle can be older than the stored revision.
        let stored =
            std::fs::read(file).ok().and_then(|bytes| Bundle::open(&bytes, &source.key).ok());
        stored.is_none_or(|bundle| highest(source, &state).is_some_and(|it| bundle.revision < it))
    };
    let missing: Vec<&BundleSource> = sources.iter().filter(|source| is_missing(source)).collect();
    if missing.is_empty() {
        return Ok(Vec::new());
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let fetched = missing.into_iter().map(|source| {
        runtime.block_on(fetch_first(source, &state)).map_err(|why| {
            let url = sanitize(source.shown());
            Failure::invalid(format!("error: the bundle {url} cannot be used: {why}"))
        })
    });
    fetched.filter_map(Result::transpose).collect()
}

/// Fetches a bundle, with retries while its server cannot be reached.
async fn fetch_first(source: &BundleSource, state: &Path) -> Result<Option<Candidate>, String> {
    let address = Address::parse(&source.url)?;
    let begun = Instant::now();
    loop {
        match download(&address, None, MAX_BYTES, TIMEOUT).await {
            Ok(Some(Download { content, .. })) => {
                // The revision of a bundle that was lost is accepted once more.
                let again = Bundle::open(&content, &source.key).map_err(|why| why.to_string())?;
                if Some(again.revision) == highest(source, state) {
                    let (source, state) = (source.clone(), state.to_owned());
                    let revision = again.revision;
                    return Ok(Some(Candidate { source, state, bytes: content, revision }));
                }
                return Candidate::new(source, state, content);
            }
            Ok(None) => return Err("the response has no content".into()),
            Err(error) if begun.elapsed() >= START_TIMEOUT => return Err(error.to_string()),
            Err(_) => tokio::time::sleep(START_RETRY).await,
        }
    }
}

/// The stored bundles are part of what a load reads.
pub(crate) fn reads_with(candidates: &[Candidate]) -> Reads {
    let reads = Reads::default();
    candidates.iter().for_each(|candidate| candidate.assume(&reads));
    reads
}

/// Stores bundles whose configuration is valid.
pub(crate) fn store(candidates: &[Candidate]) -> Result<(), Failure> {
    for candidate in candidates {
        candidate.store().map_err(|error| {
            Failure::invalid(format!("error: the {} cannot be stored: {error}", candidate.shown()))
        })?;
        tracing::info!(target: "bundle", "activated {}", candidate.shown());
    }
    Ok(())
}
