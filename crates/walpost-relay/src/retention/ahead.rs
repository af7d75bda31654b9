//! Partitions of `walpost.outbox` for days that come.

use std::{sync::Arc, time::Duration};

use tokio_postgres::{error::SqlState, types::Type};
use walpost_postgres::Database;

use crate::{config::TableName, error::RelayError, sql::Sql, wal::quote_identifier};

/// From today (UTC) on.
const DAYS_AHEAD: u32 = 7;
/// For one day.
const LIMIT: Duration = Duration::from_secs(10);

/// What became of the partitions of the days that come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Days {
    /// Days that have one now, as `2026-11-22`.
    pub made: Vec<String>,
    /// Days whose rows go to the default partition for good, because some are
    /// there already.
    pub in_default: Vec<String>,
    /// Days whose partition has the name of another table.
    pub taken: Vec<String>,
    /// Days that could not be made now, because somebody had locked the table or
    /// its default partition.
    pub busy: Vec<String>,
    /// The role does not own the table, or may not create in its schema, and
    /// cannot make any.
    pub is_not_owner: bool,
}

impl Days {
    /// Says in the log what is worth it.
    pub fn log(&self) {
        let days = |days: &[String]| days.join(", ");
        if !self.made.is_empty() {
            tracing::info!(days = days(&self.made), "partitions of the outbox made");
        }
        for (found, what) in [
            (
                &self.in_default,
                "rows of these days stay in the default partition, as some are there",
            ),
            (&self.taken, "these days have no partition, as other tables have their names"),
        ] {
            if !found.is_empty() {
                tracing::warn!(days = days(found), what);
            }
        }
        if !self.busy.is_empty() {
            tracing::info!(days = days(&self.busy), "partitions of the outbox are made later");
        }
        if self.is_not_owner {
            tracing::warn!(
                "the role does not own the outbox, or may not create in its schema: its owner has \
                 to make partitions of the days that come, with `walpost migrate`"
            );
        }
    }
}

/// The table whose partitions are made.
pub(super) fn outbox(schema: &str) -> TableName {
    TableName { schema: schema.to_owned(), name: "outbox".to_owned() }
}

/// Makes the partitions of today and the seven days behind it (UTC) in the
/// outbox of this schema, where `walpost migrate --partitioned` has created it;
/// else does nothing.
///
/// Writers whose day has a partition are not held up. Those of days that have
/// none wait for the default partition, for 200 ms and the reading of it, half a
/// second at most.
///
/// # Errors
/// When the server cannot be asked.
pub async fn make_days(database: &Database, schema: &str) -> Result<Days, RelayError> {
    let (client, _) = database.connect_to_one().await?;
    make(&Sql::new(Arc::new(client), LIMIT), schema).await
}

pub(super) async fn make(sql: &Sql, schema: &str) -> Result<Days, RelayError> {
    let mut days = Days::default();
    let table = outbox(schema).quoted();
    let query = "select coalesce(pg_has_role(c.relowner, 'usage'), false) from pg_class c \
                 join pg_proc f on f.pronamespace = c.relnamespace and f.proname = 'make_day' \
                 where c.oid = to_regclass($1) and c.relkind = 'p'";
    let name = [(&table as _, Type::TEXT)];
    let Some(row) = sql.opt("looking at the outbox table", query, &name).await? else {
        return Ok(days);
    };
    if !row.get::<_, bool>(0) {
        days.is_not_owner = true;
        return Ok(days);
    }
    let attempt = "making partitions of the outbox";
    // Each day is a transaction of one statement, so that no lock waits for us.
    sql.batch(attempt, "set statement_timeout = '500ms'").await?;
    for ahead in 0..=DAYS_AHEAD {
        if !days.is_not_owner {
            day(sql, schema, ahead, &mut days).await?;
        }
    }
    sql.batch(attempt, "set statement_timeout to default").await?;
    Ok(days)
}

async fn day(sql: &Sql, schema: &str, ahead: u32, days: &mut Days) -> Result<(), RelayError> {
    let attempt = "making a partition of the outbox";
    let query = format!("select ((clock_timestamp() at time zone 'UTC')::date + {ahead})::text");
    let day: String = sql.one(attempt, &query, &[]).await?.get(0);
    let make = format!("select {}.make_day('{day}')", quote_identifier(schema));
    let made = match sql.one(attempt, &make, &[]).await {
        Ok(row) => row.get::<_, String>(0),
        Err(RelayError::Sql { source, .. }) if is_busy(&source) => "busy".to_owned(),
        // It may not create in the schema.
        Err(RelayError::Sql { source, .. })
            if source.code() == Some(&SqlState::INSUFFICIENT_PRIVILEGE) =>
        {
            days.is_not_owner = true;
            return Ok(());
        }
        Err(error) => return Err(error),
    };
    match made.as_str() {
        "made" => days.made.push(day),
        "default" => days.in_default.push(day),
        "taken" => days.taken.push(day),
        "busy" => days.busy.push(day),
        _ => {}
    }
    Ok(())
}

/// A lock, the time for it or for the default partition, a deadlock.
fn is_busy(error: &tokio_postgres::Error) -> bool {
    let code = error.code().map_or("", |code| code.code());
    matches!(code, "55P03" | "57014" | "40P01")
}
