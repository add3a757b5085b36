//! The text of `/metrics`, in the OpenMetrics format.
//!
//! Names and labels follow OpenTelemetry's conventions for MCP where there are any. Everything is read when it is
//! scraped; nothing here runs on the request path.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Error;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};
use toolward_config::config::Telemetry;
use toolward_config::sanitize;
use toolward_gateway::audit::Recording;
use toolward_gateway::audit::sink_state::SinkState;
use toolward_gateway::metrics::series::{BOUNDS_MICROS, Durations, Labels, OTHER, Summable};

use crate::reload::Reloader;

/// The content type of the response.
pub(crate) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The metrics of a gateway, as one text.
pub(crate) async fn text(reloader: &Reloader) -> String {
    let snapshot = Snapshot::of(reloader).await;
    let mut registry = Registry::default();
    registry.register_collector(Box::new(snapshot));
    let mut out = String::new();
    // Writing to a string does not fail.
    let _ = text::encode(&mut out, &registry);
    out
}

type Sums<Value> = BTreeMap<Labels<Arc<str>>, Value>;

/// Sums without the names that are not wanted (`telemetry.labels`), and at most `most` series: beyond it, names become
/// `_OTHER`.
fn reduced<Value: Summable>(sums: Sums<Value>, wanted: [bool; 2], most: usize) -> Sums<Value> {
    let mut left: Sums<Value> = BTreeMap::new();
    for (mut labels, value) in sums {
        for (name, wanted) in labels.names.iter_mut().zip(wanted) {
            if !wanted {
                *name = "".into();
            }
        }
        if left.len() >= most && !left.contains_key(&labels) {
            labels.names =
                labels.names.map(|name| if name.is_empty() { name } else { OTHER.into() });
            labels.number = None;
        }
        left.entry(labels).or_default().add(&value);
    }
    left
}

/// Everything that is exposed, at one point in time.
#[derive(Debug)]
struct Snapshot {
    requests: Sums<Durations>,
    calls: Sums<Durations>,
    decisions: Sums<u64>,
    refusals: Sums<u64>,
    layers: Vec<String>,
    servers: Vec<ServerState>,
    policy_version: String,
    reloads: [(&'static str, u64); 2],
    audit_writable: bool,
    sinks: Vec<Arc<SinkState>>,
    /// Spans by what became of them, if there are traces.
    spans: Option<[(&'static str, u64); 2]>,
    buffered_bytes: u64,
}

#[derive(Debug)]
struct ServerState {
    name: String,
    up: bool,
    in_flight: usize,
    restarts: u64,
}

impl Snapshot {
    async fn of(reloader: &Reloader) -> Snapshot {
        let gateway = reloader.gateway();
        let (active, series) = (gateway.active(), &gateway.context.series);
        let servers = active.servers.iter().map(|server| {
            let lived = server.life.so_far();
            ServerState {
                name: server.name().into(),
                up: !lived.failing,
                in_flight: server.calls.under_way(),
                restarts: lived.restarts,
            }
        });
        let recording = gateway.context.audit.recording().await;
        let Telemetry { labels, max_series, .. } = &reloader.begun().telemetry;
        let (by_agent, by_call) = ([labels.agent, true], [labels.server, labels.tool]);
        let by_decision = [labels.agent, labels.server];
        let state = reloader.state();
        Snapshot {
            requests: reduced(series.requests.sums(), by_agent, *max_series),
            calls: reduced(series.calls.sums(), by_call, *max_series),
            decisions: reduced(series.decisions.sums(), by_decision, *max_series),
            refusals: series.refusals.sums(),
            layers: active.policy.layer_names().map(Into::into).collect(),
            servers: servers.collect(),
            policy_version: active.version.clone(),
            reloads: [("applied", state.taken_up), ("rejected", state.refused)],
            audit_writable: recording == Recording::Recorded,
            sinks: gateway.context.audit.sinks().to_vec(),
            spans: series.traces.counts().map(|counts| {
                let [exported, dropped] =
                    [&counts.exported, &counts.dropped].map(|count| count.load(Ordering::Relaxed));
                [("exported", exported), ("dropped", dropped)]
            }),
            buffered_bytes: gateway.context.budget.held() as u64,
        }
    }
}

impl Collector for Snapshot {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        let names = ["mcp_method_name", "mcp_protocol_version", "error_type", "agent", ""];
        durations(
            &mut encoder,
            ("mcp_server_operation_duration", "Duration of clients' requests"),
            names,
            &self.requests,
        )?;
        let names = ["mcp_method_name", "error_type", "", "server", "gen_ai_tool_name"];
        durations(
            &mut encoder,
            ("mcp_client_operation_duration", "Duration of calls to servers"),
            names,
            &self.calls,
        )?;
        self.counters(&mut encoder)?;
        self.gauges(&mut encoder)
    }
}

impl Snapshot {
    fn counters(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let about = ("toolward_decisions", "Decisions of the policy");
        let mut metric = counter(encoder, about)?;
        for (labels, count) in &self.decisions {
            let mut set = label_set(["verdict", "step", "", "agent", "server"], labels);
            let layer = labels.number.and_then(|layer| self.layers.get(usize::from(layer)));
            set.push(("layer", sanitize(layer.map_or("", String::as_str))));
            count_of(&mut metric, &set, *count)?;
        }
        let mut metric = counter(encoder, ("toolward_refusals", "Refused requests"))?;
        for (labels, count) in &self.refusals {
            let [reason, ..] = labels.words;
            count_of(&mut metric, &vec![("reason", Cow::Borrowed(reason))], *count)?;
        }
        let mut metric = counter(encoder, ("toolward_reloads", "Reloads of the configuration"))?;
        for (result, count) in self.reloads {
            count_of(&mut metric, &vec![("result", Cow::Borrowed(result))], count)?;
        }
        let about = ("toolward_upstream_restarts", "Processes or sessions that replaced another");
        let mut metric = counter(encoder, about)?;
        for server in &self.servers {
            count_of(&mut metric, &vec![("server", sanitize(&server.name))], server.restarts)?;
        }
        if let Some(spans) = self.spans {
            let mut metric = counter(encoder, ("toolward_spans", "Spans of traces"))?;
            for (result, count) in spans {
                count_of(&mut metric, &vec![("result", Cow::Borrowed(result))], count)?;
            }
        }
        let mut metric =
            counter(encoder, ("toolward_sink_records", "Records that a sink delivered"))?;
        for sink in &self.sinks {
            count_of(&mut metric, &vec![("sink", sanitize(&sink.name))], sink.delivered())?;
        }
        let about = ("toolward_sink_failures", "Deliveries of a sink that failed and are repeated");
        let mut metric = counter(encoder, about)?;
        for sink in &self.sinks {
            count_of(&mut metric, &vec![("sink", sanitize(&sink.name))], sink.failures())?;
        }
        Ok(())
    }

    fn gauges(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let per_server = |metric: &mut MetricEncoder<'_>, value: fn(&ServerState) -> i64| {
            self.servers.iter().try_for_each(|server| {
                let set = vec![("server", sanitize(&server.name))];
                metric.encode_family(&set)?.encode_gauge(&value(server))
            })
        };
        let about =
            ("toolward_upstream_up", "Whether the last attempt to use the server succeeded");
        per_server(&mut gauge(encoder, about)?, |server| server.up.into())?;
        let about = ("toolward_upstream_calls_in_flight", "Calls that the server has not answered");
        per_server(&mut gauge(encoder, about)?, |server| {
            i64::try_from(server.in_flight).unwrap_or(i64::MAX)
        })?;
        let about = ("toolward_audit_writable", "Whether the audit log can be written");
        gauge(encoder, about)?.encode_gauge(&i64::from(self.audit_writable))?;
        let about = ("toolward_sink_lag", "Age of the oldest record that a sink has not delivered");
        let mut metric =
            encoder.encode_descriptor(about.0, about.1, Some(&Unit::Seconds), MetricType::Gauge)?;
        for sink in &self.sinks {
            let set = vec![("sink", sanitize(&sink.name))];
            metric.encode_family(&set)?.encode_gauge(&sink.lag().as_secs_f64())?;
        }
        let about = ("toolward_buffered_bytes", "Memory that is reserved for clients");
        gauge(encoder, about)?
            .encode_gauge(&i64::try_from(self.buffered_bytes).unwrap_or(i64::MAX))?;
        let about = ("toolward_policy", "The active policy");
        let mut metric = encoder.encode_descriptor(about.0, about.1, None, MetricType::Info)?;
        metric.encode_info(&vec![("version", sanitize(&self.policy_version))])
    }
}

fn counter<'e>(
    encoder: &'e mut DescriptorEncoder<'_>,
    (name, help): (&'e str, &str),
) -> Result<MetricEncoder<'e>, Error> {
    encoder.encode_descriptor(name, help, None, MetricType::Counter)
}

fn gauge<'e>(
    encoder: &'e mut DescriptorEncoder<'_>,
    (name, help): (&'e str, &str),
) -> Result<MetricEncoder<'e>, Error> {
    encoder.encode_descriptor(name, help, None, MetricType::Gauge)
}

type LabelSet<'s> = Vec<(&'static str, Cow<'s, str>)>;

fn count_of(metric: &mut MetricEncoder<'_>, set: &LabelSet<'_>, count: u64) -> Result<(), Error> {
    metric.encode_family(set)?.encode_counter::<NoLabelSet, _, u64>(&count, None)
}

/// The labels of a series. A label without a name is left out.
fn label_set<'s>(names: [&'static str; 5], labels: &'s Labels<Arc<str>>) -> LabelSet<'s> {
    let [first, second, third] = labels.words;
    let [name, other] = &labels.names;
    let values = [first.into(), second.into(), third.into(), sanitize(name), sanitize(other)];
    names.into_iter().zip(values).filter(|(name, _)| !name.is_empty()).collect()
}

fn durations(
    encoder: &mut DescriptorEncoder<'_>,
    (name, help): (&str, &str),
    names: [&'static str; 5],
    sums: &Sums<Durations>,
) -> Result<(), Error> {
    let seconds = Unit::Seconds;
    let mut metric =
        encoder.encode_descriptor(name, help, Some(&seconds), MetricType::Histogram)?;
    let bounds = BOUNDS_MICROS.iter().map(|micros| *micros as f64 / 1e6).chain([f64::INFINITY]);
    let bounds: Vec<f64> = bounds.collect();
    for (labels, durations) in sums {
        let buckets = bounds.iter().copied().zip(durations.buckets).collect::<Vec<_>>();
        let (sum, count) = (durations.sum_micros as f64 / 1e6, durations.count());
        let set = label_set(names, labels);
        metric.encode_family(&set)?.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)?;
    }
    Ok(())
}
