//! Audit records as OTLP logs. The body is the unchanged line of the log; attributes are its most
//! important members.

use opentelemetry_proto::tonic::collector::logs::v1::{
    ExportLogsServiceRequest, ExportLogsServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::{AnyValue, any_value};
use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs, SeverityNumber};
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message;

use super::records::{Record, Records};
use crate::clock::micros;
use crate::otlp::{Exporter, resource, scope, text};

/// Members of records that become attributes.
const ATTRIBUTES: [(&str, &str); 8] = [
    ("agent", "toolward.agent"),
    ("server", "toolward.server"),
    ("tool", "gen_ai.tool.name"),
    ("verdict", "toolward.verdict"),
    ("step", "toolward.step"),
    ("rule", "toolward.rule"),
    ("outcome", "toolward.outcome"),
    ("address", "client.address"),
];

pub struct Otlp {
    exporter: Exporter,
    resource: Resource,
}

impl Otlp {
    pub fn new(exporter: Exporter) -> Otlp {
        Otlp { exporter, resource: resource() }
    }

    pub(super) async fn deliver(&mut self, records: &Records) -> Result<(), String> {
        let observed = micros() * 1000;
        let log_records = records.iter().map(|record| log(&record, &records.stream, observed));
        let scope_logs = vec![ScopeLogs {
            scope: Some(scope()),
            log_records: log_records.collect(),
            ..ScopeLogs::default()
        }];
        let resource = Some(self.resource.clone());
        let logs = ResourceLogs { resource, scope_logs, ..ResourceLogs::default() };
        let request = ExportLogsServiceRequest { resource_logs: vec![logs] };
        let response = self.exporter.post(&request.encode_to_vec()).await?;
        let rejected = ExportLogsServiceResponse::decode(response)
            .ok()
            .and_then(|response| response.partial_success)
            .filter(|partial| partial.rejected_log_records > 0);
        match rejected {
            None => Ok(()),
            // Sending them again would duplicate the others, and they would be rejected again.
            Some(partial) => {
                let (count, why) = (partial.rejected_log_records, partial.error_message);
                let why: String = why.chars().take(200).collect();
                tracing::error!(target: "audit", "the OTLP receiver rejected {count} records: {why:?}");
                Ok(())
            }
        }
    }
}

fn log(record: &Record<'_>, stream: &str, observed: u64) -> LogRecord {
    let members = record.members();
    let mut attributes = vec![
        text("log.record.uid", &record.id),
        text("toolward.kind", record.kind),
        text("toolward.stream", stream),
    ];
    let stated = ATTRIBUTES
        .iter()
        .filter_map(|(member, name)| members[*member].as_str().map(|value| text(name, value)));
    attributes.extend(stated);
    let (severity, severity_text) = match record.is_notable() {
        true => (SeverityNumber::Warn, "WARN"),
        false => (SeverityNumber::Info, "INFO"),
    };
    let body = any_value::Value::StringValue(record.text.into());
    LogRecord {
        time_unix_nano: record.micros * 1000,
        observed_time_unix_nano: observed,
        severity_number: severity.into(),
        severity_text: severity_text.into(),
        body: Some(AnyValue { value: Some(body) }),
        attributes,
        trace_id: members["trace_id"].as_str().and_then(trace_id).unwrap_or_default(),
        event_name: format!("toolward.{}", record.kind),
        ..LogRecord::default()
    }
}

fn trace_id(hex: &str) -> Option<Vec<u8>> {
    let byte = |at: usize| u8::from_str_radix(hex.get(2 * at..2 * at + 2)?, 16).ok();
    (hex.len() == 32).then(|| (0..16).map(byte).collect())?
}
