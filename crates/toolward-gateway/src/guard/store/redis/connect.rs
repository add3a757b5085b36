//! Connections to a single server, a Sentinel group or a Cluster.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::cluster::ClusterClientBuilder;
use redis::cluster_async::ClusterConnection;
use redis::cluster_routing::{Route, RoutingInfo, SingleNodeRoutingInfo, SlotAddr};
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionInfo, ErrorKind, RedisError, Value, cmd,
};
use tokio::task::JoinSet;

use super::Unreachable;
use super::address::{Host, Login, StoreAddress, Topology};

/// How long a late reply is awaited, so that the units it consumed can be returned.
const LATE_REPLY_TIMEOUT: Duration = Duration::from_secs(10);
/// Redirects and retries of one request inside a cluster. The script consumes nothing after its deadline,
/// so a late retry has no effect.
const CLUSTER_RETRIES: u32 = 4;
const CLUSTER_RETRY_WAIT_MS: [u64; 2] = [5, 100];

/// The hash slot of all keys, which have the hash tag `{toolward}`.
const SLOT: u16 = 13156;

/// A multiplexed connection.
#[derive(Clone)]
pub(super) enum Connection {
    Server(MultiplexedConnection),
    Cluster(ClusterConnection),
}

impl Connection {
    /// Connects and logs in. Takes at most `timeout` for each server.
    pub(super) async fn open(
        address: &StoreAddress,
        timeout: Duration,
    ) -> Result<Connection, Unreachable> {
        if address.is_tls {
            // An error means that a provider is already installed.
            let _ = tokio_rustls::rustls::crypto::ring::default_provider().install_default();
        }
        match &address.topology {
            Topology::Single(host) => {
                open_server(info(address.server(host))?, timeout).await.map(Connection::Server)
            }
            Topology::Sentinel { sentinels, master, login } => {
                let host = find_master(address, (sentinels, login), master, timeout).await?;
                let mut connection = open_server(info(address.server(&host))?, timeout).await?;
                // A Sentinel may not have noticed yet that its master was replaced.
                let role: Value = cmd("ROLE").query_async(&mut connection).await.map_err(failed)?;
                match is_master(&role) {
                    true => Ok(Connection::Server(connection)),
                    false => {
                        Err(Unreachable("its Sentinels name a server that is not a master".into()))
                    }
                }
            }
            Topology::Cluster(nodes) => open_cluster(address, nodes, timeout).await,
        }
    }

    /// The time of the server that stores the limits' keys.
    pub(super) async fn time(&mut self) -> Result<Value, RedisError> {
        let time = cmd("TIME");
        match self {
            Connection::Server(connection) => time.query_async(connection).await,
            Connection::Cluster(connection) => {
                let route = SingleNodeRoutingInfo::SpecificNode(Route::new(SLOT, SlotAddr::Master));
                connection.route_command(time, RoutingInfo::SingleNode(route)).await
            }
        }
    }

    pub(super) async fn request(&mut self, command: &Cmd) -> Result<Value, RedisError> {
        match self {
            Connection::Server(connection) => command.query_async(connection).await,
            Connection::Cluster(connection) => command.query_async(connection).await,
        }
    }
}

fn info(info: Result<ConnectionInfo, String>) -> Result<ConnectionInfo, Unreachable> {
    info.map_err(Unreachable)
}

async fn open_server(
    info: ConnectionInfo,
    timeout: Duration,
) -> Result<MultiplexedConnection, Unreachable> {
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(timeout))
        .set_response_timeout(Some(LATE_REPLY_TIMEOUT));
    let client = Client::open(info).map_err(failed)?;
    client.get_multiplexed_async_connection_with_config(&config).await.map_err(failed)
}

async fn open_cluster(
    address: &StoreAddress,
    nodes: &[Host],
    timeout: Duration,
) -> Result<Connection, Unreachable> {
    let nodes = nodes.iter().map(|node| info(address.server(node)));
    let nodes: Vec<ConnectionInfo> = nodes.collect::<Result<_, _>>()?;
    let [min, max] = CLUSTER_RETRY_WAIT_MS;
    let client = ClusterClientBuilder::new(nodes)
        .connection_timeout(timeout)
        .response_timeout(LATE_REPLY_TIMEOUT)
        .retries(CLUSTER_RETRIES)
        .min_retry_wait(min)
        .max_retry_wait(max)
        .build()
        .map_err(failed)?;
    client.get_async_connection().await.map(Connection::Cluster).map_err(failed)
}

/// Queries all Sentinels concurrently, so that one that is down costs no time. The first that knows the
/// master wins.
async fn find_master(
    address: &StoreAddress,
    (sentinels, login): (&[Host], &Login),
    master: &str,
    timeout: Duration,
) -> Result<Host, Unreachable> {
    let mut lookups = JoinSet::new();
    for sentinel in sentinels {
        let (info, master) = (info(address.sentinel(sentinel, login))?, master.to_owned());
        lookups.spawn(async move {
            let mut connection = open_server(info, timeout).await?;
            let mut question = cmd("SENTINEL");
            question.arg("GET-MASTER-ADDR-BY-NAME").arg(&master);
            let answer: Option<Host> =
                question.query_async(&mut connection).await.map_err(failed)?;
            answer.ok_or_else(|| Unreachable(format!("its Sentinels do not know `{master}`")))
        });
    }
    let mut latest = Unreachable("it has no Sentinels".into());
    while let Some(lookup) = lookups.join_next().await {
        match lookup {
            Ok(Ok(host)) => return Ok(host),
            Ok(Err(why)) => latest = why,
            Err(error) => latest = Unreachable(error.to_string()),
        }
    }
    Err(latest)
}

fn is_master(role: &Value) -> bool {
    let Value::Array(parts) = role else { return false };
    matches!(parts.first(), Some(Value::BulkString(name)) if name == b"master")
}

/// The error message for a store that cannot be used.
pub(super) fn failed(error: RedisError) -> Unreachable {
    Unreachable(match error.kind() {
        ErrorKind::AuthenticationFailed => format!("it rejects the password: {error}"),
        ErrorKind::Parse => "it does not speak the Redis protocol".into(),
        _ if error.is_timeout() => "it did not answer in time".into(),
        _ => error.to_string(),
    })
}
