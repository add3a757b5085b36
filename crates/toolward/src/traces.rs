//! Traces of the configuration.

use toolward_config::config::Telemetry;
use toolward_gateway::audit::Audit;
use toolward_gateway::traces::Traces;

use crate::exit::Failure;

/// Starts to send traces, until the audit log is closed. The secrets of the configuration are resolved.
#[cfg(feature = "otlp")]
pub(crate) fn start(traces: &Traces, telemetry: &Telemetry, audit: &Audit) -> Result<(), Failure> {
    use std::time::Duration;
    use toolward_gateway::otlp::Exporter;
    use toolward_gateway::traces::export::Sending;

    /// How long the end of the process waits for the receiver.
    const FINISH_TIMEOUT: Duration = Duration::from_secs(1);

    let Some(url) = telemetry.otlp.as_ref().and_then(|secret| secret.value()) else {
        return Ok(());
    };
    let wrong = |why: String| Failure::invalid(format!("error: `telemetry.otlp`: {why}"));
    let headers = crate::sinks::header_values(&telemetry.headers).map_err(wrong)?;
    let exporter = Exporter::new(url, "/v1/traces", headers, None).map_err(wrong)?;
    if let Some(spans) = traces.enable(telemetry.sample) {
        let sending = Sending::start(exporter, spans)?;
        audit.at_close(move || sending.finish(FINISH_TIMEOUT));
    }
    Ok(())
}

#[cfg(not(feature = "otlp"))]
pub(crate) fn start(_: &Traces, telemetry: &Telemetry, _: &Audit) -> Result<(), Failure> {
    match telemetry.otlp {
        None => Ok(()),
        Some(_) => Err(Failure::invalid(
            "error: `telemetry.otlp`: this program was built without OTLP (feature `otlp`)",
        )),
    }
}
