//! Records as rows of a table in PostgreSQL.
//!
//! A row has the line of the log, byte for byte, so that the chain can be verified from the table;
//! the other columns are for queries. A record's id is the primary key: a repeated delivery
//! changes nothing.

use serde_json::Value;
use tokio_postgres::Statement;

use super::records::{Record, Records};
use crate::postgres::{Database, Error, Settings};

/// Records per statement.
const MAX_ROWS: usize = 2000;

pub struct Postgres {
    database: Database,
    table: String,
    /// Prepared on the current connection.
    insert: Option<(std::sync::Arc<tokio_postgres::Client>, Statement)>,
}

/// Checks the name of a table: `NAME` or `SCHEMA.NAME`, in plain lower case.
pub fn check_table(name: &str) -> Result<(), String> {
    let plain = |part: &str| {
        let mut bytes = part.bytes();
        bytes.next().is_some_and(|first| first.is_ascii_lowercase() || first == b'_')
            && bytes.all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
            && part.len() <= 40
    };
    match name.split('.').count() <= 2 && name.split('.').all(plain) {
        true => Ok(()),
        false => Err(format!("`{name}` is not the name of a table, such as `toolward_audit`")),
    }
}

impl Postgres {
    pub fn new(settings: Settings, table: String) -> Postgres {
        Postgres { database: Database::new(settings), table, insert: None }
    }

    pub(super) async fn disconnect(&mut self) {
        self.insert = None;
        self.database.disconnect().await;
    }

    pub(super) async fn deliver(&mut self, records: &Records) -> Result<(), String> {
        let all: Vec<Record<'_>> = records.iter().collect();
        for some in all.chunks(MAX_ROWS) {
            self.insert(some, &records.stream).await.map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    async fn insert(&mut self, records: &[Record<'_>], stream: &str) -> Result<(), Error> {
        let (client, statement) = self.prepared().await?;
        let members: Vec<Value> = records.iter().map(Record::members).collect();
        let column = |name: &str| -> Vec<Option<String>> {
            members.iter().map(|members| members[name].as_str().map(plain)).collect()
        };
        let ids: Vec<String> = records.iter().map(|record| plain(&record.id)).collect();
        let times: Vec<i64> =
            records.iter().map(|record| i64::try_from(record.micros).unwrap_or(0)).collect();
        let kinds: Vec<String> = records.iter().map(|record| plain(record.kind)).collect();
        let texts: Vec<String> = records.iter().map(|record| plain(record.text)).collect();
        let (agents, servers) = (column("agent"), column("server"));
        let (tools, verdicts) = (column("tool"), column("verdict"));
        client
            .execute(
                &statement,
                &[&ids, &times, &kinds, &agents, &servers, &tools, &verdicts, &stream, &texts],
            )
            .await?;
        Ok(())
    }

    async fn prepared(
        &mut self,
    ) -> Result<(std::sync::Arc<tokio_postgres::Client>, Statement), Error> {
        let client = self.database.client().await?;
        if let Some((of, statement)) = &self.insert
            && std::sync::Arc::ptr_eq(of, &client)
        {
            return Ok((client, statement.clone()));
        }
        let table = &self.table;
        // A user without the right to create tables can use one that exists.
        let exists = client.query_one("select to_regclass($1) is not null", &[table]).await?;
        if !exists.try_get::<_, bool>(0)? {
            client.batch_execute(&create(table)).await?;
        }
        let statement = client
            .prepare(&format!(
                "insert into {table} \
                 (id, \"time\", kind, agent, server, tool, verdict, stream, record) \
                 select i, timestamptz 'epoch' + t * interval '1 microsecond', k, a, s, n, v, $8, r \
                 from unnest($1::text[], $2::bigint[], $3::text[], $4::text[], $5::text[], \
                 $6::text[], $7::text[], $9::text[]) as rows(i, t, k, a, s, n, v, r) \
                 on conflict (id) do nothing"
            ))
            .await?;
        self.insert = Some((client.clone(), statement.clone()));
        Ok((client, statement))
    }
}

/// The statements that create the table.
fn create(table: &str) -> String {
    let index = table.replace('.', "_");
    format!(
        "create table if not exists {table} (\
         id text primary key, \"time\" timestamptz not null, kind text not null, agent text, \
         server text, tool text, verdict text, stream text not null, record text not null);\
         create index if not exists {index}_time on {table} (\"time\");\
         create index if not exists {index}_agent on {table} (agent, \"time\");"
    )
}

/// Text without NUL, which PostgreSQL does not store.
fn plain(text: &str) -> String {
    text.replace('\0', "\u{fffd}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_table_is_plain() {
        for good in ["toolward_audit", "audit.records_2", "_x"] {
            assert_eq!(check_table(good), Ok(()));
        }
        for bad in ["", "a b", "a;drop", "a.b.c", "A", "1a", "a.", "\"a\"", &"x".repeat(60)] {
            assert!(check_table(bad).is_err(), "{bad}");
        }
    }
}
