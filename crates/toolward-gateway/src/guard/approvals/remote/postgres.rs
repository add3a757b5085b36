//! Tickets and grants in PostgreSQL.
//!
//! A removed record stays as a row without content for a while, so that other gateways learn about it.

use std::io;
use std::sync::Arc;

use tokio::sync::mpsc;
use tokio_postgres::{Client, Notification, Row};

use super::{RecordKind, Snapshot, StoredRecord};
use crate::postgres::{Database, Error, Settings, migrate};

/// Changes after which the row of a removed record is deleted.
const KEEP_REMOVED: i64 = 10_000;
/// The channel of announcements.
const LISTEN: &str = "LISTEN toolward_approvals";

const MIGRATIONS: &[&str] = &[
    // The number of changes, and the wrapped secret: one row.
    "create table toolward_approvals (\
     singleton boolean primary key default true check (singleton), \
     changes bigint not null, secret bytea not null);\
     create table toolward_approval_records (\
     kind text not null, id text not null, change bigint not null, record text, \
     primary key (kind, id));\
     create index toolward_approval_records_change on toolward_approval_records (change);",
];

pub(super) struct PostgresStore {
    database: Database,
    /// Where announcements arrive, and where they go, until a task passes them on.
    announcements: Option<(mpsc::UnboundedReceiver<Notification>, mpsc::Sender<()>)>,
}

impl PostgresStore {
    pub(super) fn new(
        url: &str,
        ca: Option<&[u8]>,
        hints: mpsc::Sender<()>,
    ) -> Result<PostgresStore, String> {
        let settings = Settings::parse(url, ca)?;
        let (notifications, notified) = mpsc::unbounded_channel();
        let database = Database::new(settings).listening(LISTEN, notifications);
        Ok(PostgresStore { database, announcements: Some((notified, hints)) })
    }

    async fn client(&self) -> io::Result<Arc<Client>> {
        self.database.client().await.map_err(io::Error::other)
    }

    pub(super) async fn open(&mut self, first: &[u8]) -> io::Result<Vec<u8>> {
        if let Some((mut notified, hints)) = self.announcements.take() {
            tokio::spawn(async move {
                while notified.recv().await.is_some() {
                    let _ = hints.try_send(());
                }
            });
        }
        let client = self.client().await?;
        let opened = async {
            migrate(&client, "approvals", MIGRATIONS).await?;
            client
                .execute(
                    "insert into toolward_approvals (changes, secret) values (0, $1) on conflict do nothing",
                    &[&first],
                )
                .await?;
            Ok(client.query_one("select secret from toolward_approvals", &[]).await?.try_get(0)?)
        };
        opened.await.map_err(|error: Error| io::Error::other(error))
    }

    pub(super) async fn rewrap(&mut self, old: &[u8], new: &[u8]) -> io::Result<Vec<u8>> {
        let client = self.client().await?;
        let changed = async {
            let update = "update toolward_approvals set secret = $2 where secret = $1";
            client.execute(update, &[&old, &new]).await?;
            client.query_one("select secret from toolward_approvals", &[]).await?.try_get(0)
        };
        changed.await.map_err(failed)
    }

    pub(super) async fn changes(&mut self, seen: Option<u64>) -> io::Result<Option<Snapshot>> {
        let client = self.client().await?;
        let seen = seen.and_then(|seen| i64::try_from(seen).ok());
        // One statement, so that number and records belong together. A table that was emptied has no number.
        let changed = "select a.changes, r.kind, r.id, r.record from toolward_approvals a \
                       left join toolward_approval_records r \
                       on r.change > $1 and ($1 >= 0 or r.record is not null) \
                       where a.changes <> $1";
        let since = match seen {
            Some(seen) => {
                let count = "select changes from toolward_approvals";
                let count: i64 = match client.query_opt(count, &[]).await.map_err(failed)? {
                    Some(row) => row.try_get(0).map_err(failed)?,
                    None => {
                        return Err(io::Error::other("the table `toolward_approvals` is empty"));
                    }
                };
                if count == seen {
                    return Ok(None);
                }
                // Rows of removed records may be gone.
                if (seen..seen.saturating_add(KEEP_REMOVED)).contains(&count) { seen } else { -1 }
            }
            None => -1,
        };
        let rows = client.query(changed, &[&since]).await.map_err(failed)?;
        let count: i64 = match rows.first() {
            Some(row) => row.try_get(0).map_err(failed)?,
            None => return Ok(None),
        };
        let records = rows.iter().filter_map(|row| record(row).transpose());
        Ok(Some(Snapshot {
            count: u64::try_from(count).unwrap_or(0),
            is_whole: since < 0,
            records: records.collect::<Result<_, _>>().map_err(failed)?,
        }))
    }

    pub(super) async fn commit(&mut self, seen: u64, records: &[StoredRecord]) -> io::Result<bool> {
        let client = self.client().await?;
        client.batch_execute("begin").await.map_err(failed)?;
        let stored = store(&client, i64::try_from(seen).unwrap_or(i64::MAX), records).await;
        match stored {
            Ok(true) => client.batch_execute("commit").await.map_err(failed)?,
            Ok(false) => client.batch_execute("rollback").await.map_err(failed)?,
            // The connection is dropped, and with it the transaction.
            Err(_) => {}
        }
        stored.map_err(failed)
    }

    pub(super) async fn disconnect(&mut self) {
        self.database.disconnect().await;
    }
}

/// Stores records in a transaction. `false`: another gateway has changed something since.
async fn store(
    client: &Client,
    seen: i64,
    records: &[StoredRecord],
) -> Result<bool, tokio_postgres::Error> {
    let count =
        "update toolward_approvals set changes = changes + 1 where changes = $1 returning changes";
    let Some(row) = client.query_opt(count, &[&seen]).await? else { return Ok(false) };
    let change: i64 = row.try_get(0)?;
    for StoredRecord { kind, id, json } in records {
        let kind = kind.word();
        match json {
            Some(json) => {
                let put = "insert into toolward_approval_records (kind, id, change, record) values ($1, $2, $3, $4) \
                           on conflict (kind, id) do update set change = $3, record = $4";
                client.execute(put, &[&kind, id, &change, json]).await?;
            }
            None => {
                let remove = "update toolward_approval_records set change = $3, record = null \
                              where kind = $1 and id = $2 and record is not null returning id";
                if client.query_opt(remove, &[&kind, id, &change]).await?.is_none() {
                    return Ok(false);
                }
            }
        }
    }
    if change % 100 == 0 {
        let purge = "delete from toolward_approval_records where record is null and change < $1";
        client.execute(purge, &[&(change - KEEP_REMOVED)]).await?;
    }
    client.execute("select pg_notify('toolward_approvals', '')", &[]).await?;
    Ok(true)
}

fn record(row: &Row) -> Result<Option<StoredRecord>, tokio_postgres::Error> {
    let (kind, id): (Option<String>, Option<String>) = (row.try_get(1)?, row.try_get(2)?);
    let kind = kind.as_deref().and_then(RecordKind::parse);
    let json = row.try_get(3)?;
    Ok(kind.zip(id).map(|(kind, id)| StoredRecord { kind, id, json }))
}

fn failed(error: tokio_postgres::Error) -> io::Error {
    io::Error::other(Error::from(error))
}
