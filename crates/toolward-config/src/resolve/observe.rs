//! Audit sinks and telemetry.

use crate::config::{
    LogFormat, LogLevel, MetricLabels, Metrics, Secret, Sink, SinkKind, Telemetry, Token,
};
use crate::io::Directories;
use crate::keys::value_syntax;
use crate::read::node::{Node, Value};
use crate::read::reader::Reader;
use crate::resolve::servers::{headers, tls_files};
use crate::resolve::values::{flag, text};

/// The kinds of sinks, with the keys that belong to each.
const KINDS: [(&str, &[&str]); 3] =
    [("syslog", &["facility", "tls"]), ("otlp", &["headers", "tls"]), ("postgres", &["table"])];

pub(super) fn sinks(
    reader: &mut Reader<'_>,
    node: Option<&Node<'_>>,
    directories: &Directories<'_>,
) -> Vec<Sink> {
    let mut found: Vec<Sink> = Vec::new();
    for node in node.map(Node::items).unwrap_or_default() {
        let Some(sink) = sink(reader, node, directories) else { continue };
        if found.iter().any(|other| other.name == sink.name) {
            reader.error(
                node.span,
                format!("two sinks have the name `{}`", sink.name),
                "give each a `name` of its own: its position in the log is kept under it",
            );
        }
        found.push(sink);
    }
    found
}

fn sink(reader: &mut Reader<'_>, node: &Node<'_>, directories: &Directories<'_>) -> Option<Sink> {
    if node.as_str() == Some("stdout") {
        return Some(Sink { name: "stdout".into(), kind: SinkKind::Stdout, max_lag: None });
    }
    if node.as_str().is_some() {
        let help = "a sink is `stdout`, or a mapping such as `{syslog: \"tls://HOST:6514\"}`";
        reader.error(node.span, "this is not a sink", help);
        return None;
    }
    node.as_map()?;
    let stated: Vec<&str> =
        KINDS.iter().map(|(kind, _)| *kind).filter(|kind| node.get(kind).is_some()).collect();
    let [kind] = stated.as_slice() else {
        let (message, help) = match stated.as_slice() {
            [] => ("this sink has no destination", "add `syslog`, `otlp` or `postgres`"),
            _ => ("this sink has several destinations", "write an entry for each"),
        };
        reader.error(node.span, message, help);
        return None;
    };
    for (other, keys) in KINDS.iter().filter(|(other, _)| other != kind) {
        for key in keys.iter().filter(|key| {
            node.get(key).is_some()
                && !KINDS.iter().any(|(of, own)| of == kind && own.contains(key))
        }) {
            let message = format!("`{key}` belongs to a sink of the kind `{other}`");
            reader.error(node.get(key)?.span, message, "remove the key");
        }
    }
    let name = text(node, "name").unwrap_or_else(|| (*kind).into());
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    if !name.chars().all(plain) || name.len() > 40 {
        let help = "use at most 40 letters, digits, `_` and `-`: files are named after it";
        reader.error(node.get("name")?.span, "this cannot be the name of a sink", help);
    }
    let max_lag = node.get("max_lag").and_then(|node| value_syntax::duration(node.as_str()?).ok());
    let address = node.get(kind)?;
    check_address(reader, kind, address);
    let secret = Secret::read(reader, address, directories)?;
    let tls = node.get("tls").map(|tls| tls_files(reader, tls, directories));
    let kind = match *kind {
        "syslog" => {
            let facility = text(node, "facility").unwrap_or_else(|| "audit".into());
            SinkKind::Syslog { address: secret, facility, tls }
        }
        "otlp" => {
            let headers = headers(reader, node.get("headers"), directories);
            SinkKind::Otlp { url: secret, headers, tls }
        }
        _ => {
            let table = text(node, "table").unwrap_or_else(|| "toolward_audit".into());
            SinkKind::Postgres { url: secret, table }
        }
    };
    Some(Sink { name, kind, max_lag })
}

/// Reports a scheme that cannot be right. A reference is checked when it is resolved.
fn check_address(reader: &mut Reader<'_>, kind: &str, node: &Node<'_>) {
    let (schemes, help): (&[&str], _) = match kind {
        "syslog" => (
            &["tcp://", "tls://", "unix:"],
            "write `tcp://HOST:PORT`, `tls://HOST:PORT` or `unix:PATH`",
        ),
        "postgres" => {
            (&["postgres://", "postgresql://"], "write `postgres://USER:PASSWORD@HOST/DATABASE`")
        }
        _ => return,
    };
    let wrong = node.as_str().is_some_and(|written| {
        !written.contains("${") && !schemes.iter().any(|scheme| written.starts_with(scheme))
    });
    if wrong {
        reader.error(node.span, format!("this is not an address for `{kind}`"), help);
    }
}

pub(super) fn telemetry(
    reader: &mut Reader<'_>,
    node: &Node<'_>,
    directories: &Directories<'_>,
) -> Telemetry {
    let otherwise = Telemetry::default();
    let metrics = node.get("metrics").map_or(otherwise.metrics, metrics);
    let metrics_token = node.get("metrics_token").and_then(|node| token(reader, node, directories));
    if let Metrics::Address(address) = metrics
        && !address.ip().to_canonical().is_loopback()
        && metrics_token.is_none()
        && let Some(node) = node.get("metrics")
    {
        let help = "set `telemetry.metrics_token`, or listen on 127.0.0.1";
        reader.error(node.span, "metrics beyond loopback need a token", help);
    }
    if node.get("otlp").is_none()
        && let Some(sample) = node.get("sample").filter(|node| ratio(node) > 0.0)
    {
        reader.error(sample.span, "`sample` has no effect without `otlp`", "set `telemetry.otlp`");
    }
    let labels = node.get("labels").map_or(otherwise.labels, |node| MetricLabels {
        agent: flag(node, "agent", true),
        tool: flag(node, "tool", true),
        server: flag(node, "server", true),
    });
    let max_series = node.get("max_series").and_then(Node::as_int);
    Telemetry {
        otlp: node.get("otlp").and_then(|node| Secret::read(reader, node, directories)),
        headers: headers(reader, node.get("headers"), directories),
        sample: node.get("sample").map_or(otherwise.sample, ratio),
        metrics,
        metrics_token,
        labels,
        max_series: max_series
            .and_then(|most| usize::try_from(most).ok())
            .unwrap_or(otherwise.max_series),
        log_format: match node.get("log_format").and_then(Node::as_str) {
            Some("json") => LogFormat::Json,
            _ => LogFormat::Text,
        },
        log_level: match node.get("log_level").and_then(Node::as_str) {
            Some("error") => LogLevel::Error,
            Some("warn") => LogLevel::Warn,
            Some("debug") => LogLevel::Debug,
            Some("trace") => LogLevel::Trace,
            _ => LogLevel::Info,
        },
    }
}

fn metrics(node: &Node<'_>) -> Metrics {
    match &node.value {
        Value::Bool(false) => Metrics::Off,
        Value::Str(word) if word == "off" => Metrics::Off,
        Value::Str(word) => value_syntax::address(word).map_or(Metrics::Admin, Metrics::Address),
        _ => Metrics::Admin,
    }
}

fn ratio(node: &Node<'_>) -> f64 {
    match &node.value {
        Value::Int(1) => 1.0,
        Value::Float(ratio) => *ratio,
        Value::Str(written) => value_syntax::ratio(written).unwrap_or(0.0),
        _ => 0.0,
    }
}

/// A token, by its digest or as a reference.
fn token(reader: &mut Reader<'_>, node: &Node<'_>, directories: &Directories<'_>) -> Option<Token> {
    match value_syntax::token(node.as_str()?).ok()? {
        Some(hash) => Some(Token::Sha256(hash)),
        None => Secret::read(reader, node, directories).map(Token::Reference),
    }
}
