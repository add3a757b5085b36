//! Audit sinks and telemetry.

use std::net::SocketAddr;
use std::time::Duration;

use super::{LogFormat, LogLevel, Secret, ServerTls, Token};

/// A system that gets a copy of every audit record.
#[derive(Debug, Clone, PartialEq)]
pub struct Sink {
    pub name: String,
    pub kind: SinkKind,
    /// Calls are refused while the sink is further behind.
    pub max_lag: Option<Duration>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum SinkKind {
    Stdout,
    Syslog { address: Secret, facility: String, tls: Option<ServerTls> },
    Otlp { url: Secret, headers: Vec<(String, Secret)>, tls: Option<ServerTls> },
    Postgres { url: Secret, table: String },
}

#[derive(Debug, Clone, PartialEq)]
pub struct Telemetry {
    /// Where traces are sent.
    pub otlp: Option<Secret>,
    pub headers: Vec<(String, Secret)>,
    /// The ratio of requests that are traced although their client does not trace.
    pub sample: f64,
    pub metrics: Metrics,
    pub metrics_token: Option<Token>,
    pub labels: MetricLabels,
    /// The maximum number of series of each metric.
    pub max_series: usize,
    pub log_format: LogFormat,
    pub log_level: LogLevel,
}

/// Where metrics are served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Metrics {
    Off,
    /// On the `admin` address.
    Admin,
    /// On an address of their own, and on the `admin` address.
    Address(SocketAddr),
}

/// The labels that metrics have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MetricLabels {
    pub agent: bool,
    pub tool: bool,
    pub server: bool,
}

impl Default for Telemetry {
    fn default() -> Self {
        Telemetry {
            otlp: None,
            headers: Vec::new(),
            sample: 0.0,
            metrics: Metrics::Admin,
            metrics_token: None,
            labels: MetricLabels { agent: true, tool: true, server: true },
            max_series: 10_000,
            log_format: LogFormat::Text,
            log_level: LogLevel::Info,
        }
    }
}
