//! OTLP over HTTP with protobuf: the sender that traces and the audit sink share.
//!
//! The messages are those of `opentelemetry-proto`; requests go through the gateway's own HTTP
//! client.

use bytes::Bytes;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::resource::v1::Resource;

use crate::http_client::{Address, Client, ClientTls};

/// The largest response that is read.
const MAX_RESPONSE_BYTES: usize = 1 << 20;

/// Where signals of one kind are sent.
pub struct Exporter {
    client: Client,
    target: String,
    headers: Vec<(String, String)>,
}

impl std::fmt::Debug for Exporter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Exporter({})", self.target)
    }
}

impl Exporter {
    /// `path` is that of the signal, such as `/v1/logs`; it is added to a URL without a path, as
    /// `OTEL_EXPORTER_OTLP_ENDPOINT` has it. A URL that ends with `/v1/…` is used as it is.
    pub fn new(
        url: &str,
        path: &str,
        headers: Vec<(String, String)>,
        tls: Option<ClientTls>,
    ) -> Result<Exporter, String> {
        let address = Address::parse(url)?;
        let target = match address.target.contains("/v1/") {
            true => address.target.clone(),
            false => format!("{}{path}", address.target.trim_end_matches('/')),
        };
        Ok(Exporter { client: Client::new(address, tls), target, headers })
    }

    /// Sends one request. Returns the body of the response.
    pub(crate) async fn post(&self, body: &[u8]) -> Result<Bytes, String> {
        let mut fields = vec![
            ("Content-Type", "application/x-protobuf"),
            ("Accept", "application/x-protobuf"),
            ("Accept-Encoding", "identity"),
        ];
        fields.extend(self.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())));
        let sent = async {
            let length = Some(body.len());
            let mut request = self.client.request("POST", &self.target, &fields, length)?;
            request.extend_from_slice(body);
            let mut connection = self.client.send(&request).await?;
            let head = connection.response().await?;
            let status = head.status;
            Ok((status, self.client.body(connection, &head, MAX_RESPONSE_BYTES).await?))
        };
        match sent.await {
            Ok((200..=299, body)) => Ok(body),
            Ok((status, _)) => Err(format!("the receiver responds with status {status}")),
            Err(error) => {
                let error: std::io::Error = error;
                Err(format!("the request failed: {error}"))
            }
        }
    }
}

/// The source of the signals: this program on this machine.
pub(crate) fn resource() -> Resource {
    let host = rustix::system::uname();
    let attributes = vec![
        text("service.name", "toolward"),
        text("service.version", env!("CARGO_PKG_VERSION")),
        text("host.name", &host.nodename().to_string_lossy()),
        number("process.pid", std::process::id().into()),
    ];
    Resource { attributes, ..Resource::default() }
}

pub(crate) fn scope() -> InstrumentationScope {
    let (name, version) = ("toolward".into(), env!("CARGO_PKG_VERSION").into());
    InstrumentationScope { name, version, ..InstrumentationScope::default() }
}

pub(crate) fn text(key: &str, value: &str) -> KeyValue {
    attribute(key, Value::StringValue(value.into()))
}

pub(crate) fn number(key: &str, value: i64) -> KeyValue {
    attribute(key, Value::IntValue(value))
}

fn attribute(key: &str, value: Value) -> KeyValue {
    KeyValue { key: key.into(), value: Some(AnyValue { value: Some(value) }), ..Default::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_of_the_signal_is_added_to_a_plain_endpoint() {
        let target = |url: &str| Exporter::new(url, "/v1/logs", vec![], None).unwrap().target;
        assert_eq!(target("http://127.0.0.1:4318"), "/v1/logs");
        assert_eq!(target("http://127.0.0.1:4318/otlp/"), "/otlp/v1/logs");
        assert_eq!(target("http://127.0.0.1:4318/x/v1/logs?a=b"), "/x/v1/logs?a=b");
    }
}
