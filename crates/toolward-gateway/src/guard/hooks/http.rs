//! A hook behind HTTP: one POST per call, over keep-alive connections.

use std::io;
use std::sync::Arc;

use bytes::Bytes;

use super::answer::{HookError, HookVerdict, MAX_ANSWER_BYTES, of_service};
use super::share::{Quota, Shares};
use crate::http_client::{Address, Client};

/// The path of OPA's data API, which expects the request under `input`.
const OPA: &str = "/v1/data/";

pub(super) struct Http {
    address: Address,
    client: Client,
    shares: Arc<Shares>,
}

impl Http {
    pub(super) fn new(address: Address) -> Http {
        let client = Client::new(address.clone(), None);
        Http { client, address, shares: Shares::new(Quota::CONCURRENT) }
    }

    pub(super) async fn ask(
        &self,
        request: &[u8],
        caller: Option<&str>,
    ) -> Result<HookVerdict, HookError> {
        let _slot = self.shares.slot(caller.unwrap_or_default()).await;
        let body = match self.address.target.starts_with(OPA) {
            true => with_input(request),
            false => request.to_vec(),
        };
        match self.post(&body).await {
            Ok((200, body)) => of_service(&body),
            Ok((status, _)) => Err(HookError(format!("it responds with status {status}"))),
            Err(error) => Err(HookError(format!("the request failed: {error}"))),
        }
    }

    async fn post(&self, body: &[u8]) -> io::Result<(u16, Bytes)> {
        let fields = [
            ("Accept", "application/json"),
            ("Accept-Encoding", "identity"),
            ("Content-Type", "application/json"),
        ];
        let length = Some(body.len());
        let mut request = self.client.request("POST", &self.address.target, &fields, length)?;
        request.extend_from_slice(body);
        let mut connection = self.client.send(&request).await?;
        let head = connection.response().await?;
        Ok((head.status, self.client.body(connection, &head, MAX_ANSWER_BYTES).await?))
    }
}

/// The request, with a copy of itself under `input`.
fn with_input(request: &[u8]) -> Vec<u8> {
    let mut body = request.strip_suffix(b"}").unwrap_or(request).to_vec();
    body.extend_from_slice(b",\"input\":");
    body.extend_from_slice(request);
    body.push(b'}');
    body
}
