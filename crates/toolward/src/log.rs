//! The operator's log: `tracing` events on standard error, as text or as JSON lines.
//!
//! Only the gateway commands (`serve`, `stdio`, `wrap`, `demo`) start the log; for every other command events
//! cost nothing and go nowhere. There are no spans: an event below the configured level costs one load of an
//! atomic.

mod entry;
mod writer;

use std::sync::OnceLock;

use tracing::level_filters::LevelFilter;
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::{Context, SubscriberExt};

use toolward_config::config::{LogFormat, LogLevel, Telemetry};

use self::entry::Entry;
use self::writer::Writer;

/// The log of this process, once it is started.
static LOG: OnceLock<StartedLog> = OnceLock::new();

struct StartedLog {
    format: LogFormat,
    writer: Writer,
}

/// Writes events to standard error from now on. Only the first call has an effect.
pub(crate) fn start(telemetry: &Telemetry) {
    let Telemetry { log_format: format, log_level, .. } = *telemetry;
    let mut is_first = false;
    let log = LOG.get_or_init(|| {
        is_first = true;
        StartedLog { format, writer: Writer::start(format) }
    });
    if is_first {
        let layers = tracing_subscriber::registry()
            .with(filter(log_level))
            .with(LogLayer { format, writer: log.writer.clone() });
        // Fails only if there is a subscriber already, and this is the only place that sets one.
        let _ = tracing::subscriber::set_global_default(layers);
    }
}

/// Whether standard error is a stream of JSON lines.
pub(crate) fn is_json() -> bool {
    LOG.get().is_some_and(|log| log.format == LogFormat::Json)
}

/// Waits until everything logged so far is written, for at most a second: before the process ends.
pub(crate) fn flush() {
    if let Some(log) = LOG.get() {
        log.writer.flush();
    }
}

fn filter(level: LogLevel) -> LevelFilter {
    match level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    }
}

/// Formats events and passes them on to the writer.
struct LogLayer {
    format: LogFormat,
    writer: Writer,
}

impl<S: Subscriber> Layer<S> for LogLayer {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        self.writer.write(Entry::of(event).render(self.format));
    }
}
