use postgres_protocol::escape::escape_identifier;
use tokio_postgres::{Client, GenericClient, Transaction, types::Type};
use walpost_postgres::shown::StatementError;

use crate::{
    Entry, Error, Set, checksum,
    error::Error::{Exists, LockTimeout, MissingRight, Sql},
    names::Names,
};

/// Version 14: pgoutput sends logical messages from there on.
const OLDEST_SERVER: i32 = 140_000;
const INSUFFICIENT_PRIVILEGE: &str = "42501";
const LOCK_NOT_AVAILABLE: &str = "55P03";
/// Schema, table, function, object (publication), database-wide twins.
const DUPLICATES: [&str; 4] = ["42P06", "42P07", "42723", "42710"];

/// A row of the table `migration` with its time.
pub(crate) struct Recorded {
    pub(crate) entry: Entry,
    pub(crate) at: std::time::SystemTime,
    pub(crate) by: String,
}

/// A statement that failed, before anybody looked why.
pub(crate) struct Failure {
    pub(crate) attempt: String,
    pub(crate) source: StatementError,
}

pub(crate) fn failure(attempt: impl Into<String>) -> impl FnOnce(tokio_postgres::Error) -> Failure {
    |source| Failure { attempt: attempt.into(), source: source.into() }
}

pub(crate) async fn check_server(client: &Client) -> Result<(), Error> {
    let attempt = "asking for the server's version";
    let row = client
        .query_typed_one(
            "select current_setting('server_version_num')::int4, current_setting('server_version')",
            &[],
        )
        .await
        .map_err(|source| Sql { attempt: attempt.to_owned(), source: source.into() })?;
    if row.get::<_, i32>(0) < OLDEST_SERVER {
        return Err(Error::ServerTooOld { version: row.get(1) });
    }
    Ok(())
}

/// Waits for other migrators of this schema, until this transaction ends.
pub(crate) async fn lock(
    tx: &Transaction<'_>,
    names: &Names,
    lock_timeout_ms: u32,
) -> Result<(), Failure> {
    let attempt = "waiting for other migrations";
    tx.query_typed(
        "select set_config('lock_timeout', $1, true)",
        &[(&format!("{lock_timeout_ms}ms"), Type::TEXT)],
    )
    .await
    .map_err(failure(attempt))?;
    tx.query_typed("select pg_advisory_xact_lock($1)", &[(&lock_key(names), Type::INT8)])
        .await
        .map_err(failure(attempt))?;
    Ok(())
}

pub(crate) async fn has_schema(tx: &Transaction<'_>, names: &Names) -> Result<bool, Failure> {
    let row = tx
        .query_typed_one(
            "select exists (select from pg_catalog.pg_namespace where nspname = $1)",
            &[(&names.schema(), Type::TEXT)],
        )
        .await
        .map_err(failure("looking for the schema"))?;
    Ok(row.get(0))
}

/// Asks the catalogue, which needs no right on the schema.
pub(crate) async fn has_table(client: &impl GenericClient, names: &Names) -> Result<bool, Failure> {
    let row = client
        .query_typed_one(
            "select exists (select from pg_catalog.pg_class c join pg_catalog.pg_namespace n \
             on n.oid = c.relnamespace where n.nspname = $1 and c.relname = 'migration')",
            &[(&names.schema(), Type::TEXT)],
        )
        .await
        .map_err(failure("looking for the table migration"))?;
    Ok(row.get(0))
}

pub(crate) async fn recorded(
    client: &impl GenericClient,
    names: &Names,
    set: Set,
) -> Result<Vec<Recorded>, Failure> {
    let rows = client
        .query_typed(
            &names.fill(
                "select number, name, checksum, applied_at, applied_by from {schema}.migration \
                 where set_name = $1 order by number",
            ),
            &[(&set.as_str(), Type::TEXT)],
        )
        .await
        .map_err(failure("reading what was applied"))?;
    let recorded = |row: &tokio_postgres::Row| Recorded {
        entry: Entry {
            number: u32::try_from(row.get::<_, i32>(0)).unwrap_or(0),
            name: row.get(1),
            checksum: row.get(2),
        },
        at: row.get(3),
        by: row.get(4),
    };
    Ok(rows.iter().map(recorded).collect())
}

/// Says why a statement failed, and asks which right is missing if one is. The
/// transaction must have ended.
pub(crate) async fn explain(
    client: &Client,
    names: &Names,
    lock_timeout_ms: u32,
    failure: Failure,
) -> Error {
    let Failure { attempt, source } = failure;
    match source.code().map(|code| code.code()) {
        Some(INSUFFICIENT_PRIVILEGE) => match missing_right(client, names).await {
            Ok((role, grant)) => MissingRight { role, attempt, grant, source },
            Err(_) => Sql { attempt, source },
        },
        Some(LOCK_NOT_AVAILABLE) => LockTimeout { attempt, lock_timeout_ms, source },
        Some(code) if DUPLICATES.contains(&code) => Exists { attempt, source },
        _ => Sql { attempt, source },
    }
}

/// Role, and the grant it lacks.
async fn missing_right(
    client: &Client,
    names: &Names,
) -> Result<(String, String), tokio_postgres::Error> {
    let row = client
        .query_typed_one(
            "select current_user::text, current_database()::text, \
             has_database_privilege(current_database(), 'create'), \
             (select has_schema_privilege(oid, 'usage') and has_schema_privilege(oid, 'create') \
              from pg_catalog.pg_namespace where nspname = $1)",
            &[(&names.schema(), Type::TEXT)],
        )
        .await?;
    let (role, database): (String, String) = (row.get(0), row.get(1));
    let (to, schema) = (escape_identifier(&role), escape_identifier(names.schema()));
    let grant = match (row.get::<_, bool>(2), row.get::<_, Option<bool>>(3)) {
        (false, _) => format!("grant create on database {} to {to}", escape_identifier(&database)),
        (true, Some(false)) => format!("grant usage, create on schema {schema} to {to}"),
        // Altering and publishing a table belong to its owner alone.
        (true, _) => format!(
            "grant select, insert on {schema}.migration to {to}, or let the owner of the tables \
             in {schema} migrate"
        ),
    };
    Ok((role, grant))
}

/// One lock per schema; keys of one number are apart from keys of two.
fn lock_key(names: &Names) -> i64 {
    let digest = checksum(&format!("walpost migrate {}", names.schema()));
    i64::from_str_radix(&digest[..15], 16).expect("15 hexadecimal digits fit 60 bits")
}
