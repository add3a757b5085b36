//! HTTP connections over in-memory streams, for tests.

use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;

use super::connection::{self, Ending};
use super::connection_limit::Connections;
use super::http::Endpoint;
use super::peer::Peer;

/// Serves one connection until either side closes it, as if a listener had accepted it.
pub async fn serve<S>(endpoint: Arc<Endpoint>, stream: S)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let Some(admission) = Connections::new(1).admit("in memory") else { return };
    let (_running, ending) = watch::channel(Ending::No);
    connection::serve(endpoint, Peer::default(), stream, ending, &admission).await;
}
