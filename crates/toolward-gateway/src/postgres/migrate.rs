//! Creates and updates tables.

use tokio_postgres::Client;

use super::Error;

/// Serializes migrations of several gateways: the number is that of our lock, nothing else.
const LOCK: &str = "select pg_advisory_xact_lock(7410, 7411)";
const TABLE: &str =
    "create table if not exists toolward_migrations (area text primary key, version int not null)";

/// Applies the migrations that a database does not have yet, in one transaction. A database of a newer program is
/// rejected.
pub async fn migrate(client: &Client, area: &str, migrations: &[&str]) -> Result<(), Error> {
    let newest = i32::try_from(migrations.len()).unwrap_or(i32::MAX);
    // A user without the right to create tables can use those that exist.
    if version(client, area).await? == Some(newest) {
        return Ok(());
    }
    client.batch_execute("begin").await?;
    let migrated = in_transaction(client, area, migrations).await;
    let end = if migrated.is_ok() { "commit" } else { "rollback" };
    client.batch_execute(end).await?;
    migrated
}

async fn in_transaction(client: &Client, area: &str, migrations: &[&str]) -> Result<(), Error> {
    client.batch_execute(LOCK).await?;
    client.batch_execute(TABLE).await?;
    let version = version(client, area).await?.unwrap_or(0);
    let known = usize::try_from(version).unwrap_or(0);
    let Some(missing) = migrations.get(known..) else {
        let newest = migrations.len();
        return Err(Error::Unavailable(format!(
            "the tables of {area} have version {version}, and this program knows {newest}; use a newer program"
        )));
    };
    for migration in missing {
        client.batch_execute(migration).await?;
    }
    let newest = i32::try_from(migrations.len()).unwrap_or(i32::MAX);
    let set = "insert into toolward_migrations (area, version) values ($1, $2) \
               on conflict (area) do update set version = $2";
    client.execute(set, &[&area, &newest]).await?;
    Ok(())
}

/// The version of an area's tables.
async fn version(client: &Client, area: &str) -> Result<Option<i32>, Error> {
    let exists = "select to_regclass('toolward_migrations') is not null";
    if !client.query_one(exists, &[]).await?.try_get::<_, bool>(0)? {
        return Ok(None);
    }
    let version = "select version from toolward_migrations where area = $1";
    Ok(match client.query_opt(version, &[&area]).await? {
        Some(row) => Some(row.try_get(0)?),
        None => None,
    })
}
