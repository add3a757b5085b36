//! Tickets and grants in a single Redis server.

use std::collections::HashMap;
use std::io;
use std::time::Duration;

use redis::aio::{MultiplexedConnection, SendError};
use redis::{AsyncConnectionConfig, Client, PushInfo, RedisError, Script, cmd};
use tokio::sync::mpsc;

use super::{RecordKind, Snapshot, StoredRecord};
use crate::guard::store::redis::single_server;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
const COUNT: &str = "{toolward}:approvals:changes";
const RECORDS: &str = "{toolward}:approvals:records";
const SECRET: &str = "{toolward}:approvals:secret";
const CHANNEL: &str = "{toolward}:approvals";

/// Stores records if the number of changes is the expected one: field and content in turn, no content removes.
const COMMIT: &str = r"
if (redis.call('GET', KEYS[1]) or '0') ~= ARGV[1] then return 0 end
for at = 3, #ARGV, 2 do
  if ARGV[at + 1] == '' then redis.call('HDEL', KEYS[2], ARGV[at])
  else redis.call('HSET', KEYS[2], ARGV[at], ARGV[at + 1]) end
end
redis.call('INCR', KEYS[1])
redis.call('PUBLISH', ARGV[2], '')
return 1";

/// Replaces the secret if it is the expected one, and returns the current one.
const REWRAP: &str = r"
if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('SET', KEYS[1], ARGV[2]) end
return redis.call('GET', KEYS[1])";

/// The number of changes and all records, which belong together.
const READ: &str = r"return {redis.call('GET', KEYS[1]) or '0', redis.call('HGETALL', KEYS[2])}";

pub(super) struct RedisStore {
    client: Client,
    connection: Option<MultiplexedConnection>,
    hints: mpsc::Sender<()>,
}

impl RedisStore {
    pub(super) fn new(url: &str, hints: mpsc::Sender<()>) -> Result<RedisStore, String> {
        let client = Client::open(single_server(url)?).map_err(|error| error.to_string())?;
        Ok(RedisStore { client, connection: None, hints })
    }

    async fn connection(&mut self) -> io::Result<MultiplexedConnection> {
        if let Some(connection) = &self.connection {
            return Ok(connection.clone());
        }
        let hints = self.hints.clone();
        // Announcements arrive on the same connection.
        let hint = move |_: PushInfo| -> Result<(), SendError> {
            let _ = hints.try_send(());
            Ok(())
        };
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT_TIMEOUT))
            .set_push_sender(hint);
        let opened = self.client.get_multiplexed_async_connection_with_config(&config).await;
        let mut connection = opened.map_err(failed)?;
        connection.subscribe(CHANNEL).await.map_err(failed)?;
        self.connection = Some(connection.clone());
        Ok(connection)
    }

    pub(super) async fn open(&mut self, first: &[u8]) -> io::Result<Vec<u8>> {
        let mut connection = self.connection().await?;
        let mut set = cmd("SET");
        set.arg(SECRET).arg(first).arg("NX");
        let _: Option<String> = set.query_async(&mut connection).await.map_err(failed)?;
        cmd("GET").arg(SECRET).query_async(&mut connection).await.map_err(failed)
    }

    pub(super) async fn rewrap(&mut self, old: &[u8], new: &[u8]) -> io::Result<Vec<u8>> {
        let mut connection = self.connection().await?;
        let script = Script::new(REWRAP);
        let mut script = script.prepare_invoke();
        script.key(SECRET).arg(old).arg(new);
        script.invoke_async(&mut connection).await.map_err(failed)
    }

    pub(super) async fn changes(&mut self, seen: Option<u64>) -> io::Result<Option<Snapshot>> {
        let mut connection = self.connection().await?;
        if let Some(seen) = seen {
            let count: Option<u64> =
                cmd("GET").arg(COUNT).query_async(&mut connection).await.map_err(failed)?;
            if count.unwrap_or(0) == seen {
                return Ok(None);
            }
        }
        let script = Script::new(READ);
        let mut script = script.prepare_invoke();
        script.key(COUNT).key(RECORDS);
        let (count, records): (u64, HashMap<String, String>) =
            script.invoke_async(&mut connection).await.map_err(failed)?;
        let record = |(field, json): (String, String)| {
            let (kind, id) = field.split_once(':')?;
            Some(StoredRecord { kind: RecordKind::parse(kind)?, id: id.into(), json: Some(json) })
        };
        let records = records.into_iter().filter_map(record).collect();
        Ok(Some(Snapshot { count, is_whole: true, records }))
    }

    pub(super) async fn commit(&mut self, seen: u64, records: &[StoredRecord]) -> io::Result<bool> {
        let mut connection = self.connection().await?;
        let script = Script::new(COMMIT);
        let mut script = script.prepare_invoke();
        script.key(COUNT).key(RECORDS).arg(seen).arg(CHANNEL);
        for StoredRecord { kind, id, json } in records {
            script.arg(format!("{}:{id}", kind.word())).arg(json.as_deref().unwrap_or_default());
        }
        script.invoke_async(&mut connection).await.map_err(failed)
    }

    pub(super) fn disconnect(&mut self) {
        self.connection = None;
    }
}

fn failed(error: RedisError) -> io::Error {
    io::Error::other(error.to_string())
}
