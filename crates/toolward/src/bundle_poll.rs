//! Looks for newer policy bundles while the gateway runs, and activates them.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use toolward_config::bundle::MAX_BYTES;
use toolward_config::config::BundleSource;
use toolward_config::sanitize;
use toolward_gateway::http_client::{Address, Download, download};

use crate::bundles::{Candidate, TIMEOUT};
use crate::reload::Reloader;

/// The interval at which the sources are checked for one that is due.
const TICK: Duration = Duration::from_millis(250);

/// The polling state of a source.
#[derive(Default)]
struct Polled {
    due: Option<Instant>,
    /// The version that is active.
    etag: Option<String>,
    /// The last failure, which is logged once.
    failure: Option<String>,
}

/// Looks for newer bundles until the process ends.
pub(crate) async fn poll(reloader: Arc<Reloader>) {
    let mut known: HashMap<(String, String), Polled> = HashMap::new();
    loop {
        tokio::time::sleep(TICK).await;
        let (sources, state) = reloader.bundles();
        let Some(state) = state else { continue };
        let key = |source: &BundleSource| (source.url.clone(), source.key.to_string());
        known.retain(|known, _| sources.iter().any(|source| key(source) == *known));
        for source in &sources {
            let polled = known.entry(key(source)).or_default();
            let due = *polled.due.get_or_insert_with(Instant::now);
            if Instant::now() < due {
                continue;
            }
            let outcome = look(&reloader, source, &state, &mut polled.etag).await;
            polled.due = Some(Instant::now() + source.poll);
            match outcome {
                Ok(()) => polled.failure = None,
                Err(why) if polled.failure.as_ref() == Some(&why) => {}
                Err(why) => {
                    let url = sanitize(source.shown());
                    tracing::error!(target: "bundle", "{url}: {why}; the active policy stays");
                    polled.failure = Some(why);
                }
            }
        }
    }
}

/// Fetches a bundle and activates it if it is newer.
async fn look(
    reloader: &Arc<Reloader>,
    source: &BundleSource,
    state: &Path,
    etag: &mut Option<String>,
) -> Result<(), String> {
    let address = Address::parse(&source.url)?;
    let fetched = download(&address, etag.as_deref(), MAX_BYTES, TIMEOUT).await;
    let Some(Download { content, etag: new }) = fetched.map_err(|error| error.to_string())? else {
        return Ok(());
    };
    let (source, state) = (source.clone(), state.to_owned());
    let verified =
        tokio::task::spawn_blocking(move || Candidate::new(&source, &state, content)).await;
    if let Some(candidate) = verified.map_err(|error| error.to_string())?? {
        reloader.reload_bundle(candidate).await?;
    }
    *etag = new;
    Ok(())
}
