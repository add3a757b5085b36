//! `telemetry.metrics: ADDRESS`: a listener that serves `/metrics` and nothing else, for scrapers on other machines.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use sha2::{Digest, Sha256};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use toolward_config::config::{Config, Metrics, Token};
use toolward_gateway::downstream::connection::{read_head, write};
use toolward_gateway::downstream::response::{Content, Response};
use toolward_wire::http::{Method, RequestHead};

use crate::exit::Failure;
use crate::metrics;
use crate::reload::Reloader;

/// The maximum number of connections; further ones wait.
const MAX_CONNECTIONS: usize = 16;
/// How long a connection may take, from its start to the end of the response.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The pause after a failed accept.
const PAUSE: Duration = Duration::from_millis(100);

/// A bound listener that does not serve yet.
pub(crate) struct MetricsListener {
    listener: std::net::TcpListener,
    token: Option<[u8; 32]>,
}

impl MetricsListener {
    /// `None` if there is no such address. The secrets of the configuration are resolved.
    pub(crate) fn open(config: &Config) -> Result<Option<MetricsListener>, Failure> {
        let Metrics::Address(address) = config.telemetry.metrics else { return Ok(None) };
        let token = match &config.telemetry.metrics_token {
            Some(Token::Sha256(digest)) => Some(*digest),
            Some(Token::Reference(secret)) => secret.value().map(digest),
            None => None,
        };
        let beyond = !address.ip().to_canonical().is_loopback();
        if beyond && token.is_none() {
            return Err(Failure::invalid("error: metrics beyond loopback need a token"));
        }
        Ok(Some(MetricsListener { listener: bind(address)?, token }))
    }

    /// Serves on a thread of its own until the process ends.
    pub(crate) fn serve(self, reloader: &Arc<Reloader>) -> Result<(), Failure> {
        let address = self.listener.local_addr()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let reloader = reloader.clone();
        std::thread::Builder::new().name("metrics".into()).spawn(move || {
            runtime.block_on(accept(self.listener, self.token, reloader));
        })?;
        tracing::info!(target: "metrics", "metrics on http://{address}/metrics");
        Ok(())
    }
}

fn bind(address: SocketAddr) -> Result<std::net::TcpListener, Failure> {
    let bound = std::net::TcpListener::bind(address)
        .and_then(|listener| listener.set_nonblocking(true).map(|()| listener));
    bound.map_err(|error| {
        Failure::invalid(format!(
            "error: cannot listen on {address} for metrics: {error}\n  \
             help: set `telemetry.metrics` to another address"
        ))
    })
}

async fn accept(listener: std::net::TcpListener, token: Option<[u8; 32]>, reloader: Arc<Reloader>) {
    let Ok(listener) = TcpListener::from_std(listener) else { return };
    let free = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let Ok(permit) = free.clone().acquire_owned().await else { return };
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        let reloader = reloader.clone();
        tokio::spawn(async move {
            let _ = timeout(TIMEOUT, exchange(stream, token, &reloader)).await;
            drop(permit);
        });
    }
}

/// One request on its own connection.
async fn exchange(mut stream: TcpStream, token: Option<[u8; 32]>, reloader: &Reloader) {
    let mut buffer = BytesMut::new();
    let (response, old) = match read_head(&mut stream, &mut buffer, None).await {
        Ok(None) => return,
        Err(status) => (Response::empty(status), false),
        Ok(Some(head)) => (respond(&head, token, reloader).await, head.old),
    };
    let _ = write(&mut stream, &mut buffer, response, false, old).await;
}

async fn respond(head: &RequestHead, token: Option<[u8; 32]>, reloader: &Reloader) -> Response {
    if token.is_some_and(|token| presented(head) != Some(token)) {
        return Response::empty(401).field("WWW-Authenticate", "Bearer");
    }
    match (head.method, &*head.path) {
        (Method::Get, "/metrics") => {
            let text = Bytes::from(metrics::text(reloader).await);
            Response::new(200, Content::Bytes(metrics::CONTENT_TYPE, text))
        }
        (_, "/metrics") => Response::empty(405).field("Allow", "GET"),
        _ => Response::empty(404),
    }
}

/// The digest of the token that a request has. Digests are compared, so the comparison reveals nothing about a token.
fn presented(head: &RequestHead) -> Option<[u8; 32]> {
    if head.headers.count("authorization") != 1 {
        return None;
    }
    let (scheme, token) = head.headers.get("authorization")?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| digest(token.trim()))
}

fn digest(token: &str) -> [u8; 32] {
    Sha256::digest(token.as_bytes()).into()
}
