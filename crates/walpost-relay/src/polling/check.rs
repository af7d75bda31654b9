//! Looks whether a table can be polled.

mod index;
mod order;
mod trial;
pub(crate) mod unique;

use std::{collections::HashMap, sync::Arc, time::Duration};

use tokio_postgres::types::Type;
use walpost_event::{Relation, error_chain};
use walpost_postgres::Database;
use walpost_router::{Router, RouterConfig};

use super::{
    config::PollingConfig,
    table::{describe, polled},
};
use crate::{
    check::{CheckResult, Outcome, columns_named, failed, overlap},
    checkpoint::read_feed,
    config::{RelayConfig, TableName},
    error::RelayError,
    id_space::{Begins, IdSpaceTable},
    retention::ReaderFeed,
    sql::Sql,
    wal::{
        preflight, quote_identifier, quote_literal,
        rights::{self, Of, Right},
    },
};

/// Looks at everything that [`PollingRelay::start`](crate::PollingRelay::start)
/// would need, and changes nothing.
pub async fn check_polling(
    database: &Database,
    config: &RelayConfig,
    polling: &PollingConfig,
    router: &RouterConfig,
) -> Vec<CheckResult> {
    let mut results = Vec::new();
    if let Err(error) = settings(config, polling, router) {
        results.push(failed("configuration", &error));
        return results;
    }
    if let Err(error) = checks(database, config, polling, router, &mut results).await {
        results.push(failed("database", &error));
    }
    results
}

/// What [`PollingRelay::new`](crate::PollingRelay::new) refuses.
pub(crate) fn settings(
    config: &RelayConfig,
    polling: &PollingConfig,
    router: &RouterConfig,
) -> Result<Router, RelayError> {
    config.validate().map_err(RelayError::Config)?;
    polling.validate().map_err(RelayError::Config)?;
    polled(config)?;
    if config.dead_letter_topic.is_some() {
        let problem = "dead_letter_topic is set, and a pipeline that polls parks nothing";
        return Err(RelayError::Config(problem.to_owned()));
    }
    Router::new(router.clone()).map_err(|error| RelayError::Config(error_chain(&error)))
}

async fn checks(
    database: &Database,
    config: &RelayConfig,
    polling: &PollingConfig,
    router: &RouterConfig,
    results: &mut Vec<CheckResult>,
) -> Result<(), RelayError> {
    let limit = Duration::from_millis(config.statement_timeout_ms);
    let (client, database) = database.connect_to_one().await?;
    let sql = Sql::new(Arc::new(client), limit);
    results.push(ok("connection", database.to_string()));
    results.push(found("server", server(&sql).await));
    let own = own_table(&sql, config).await;
    let has_own = own.is_ok();
    results.push(found("walpost's tables", own));
    if has_own {
        results.push(found("source", source(&sql, config).await));
    }
    let table = polled(config)?;
    let columns = columns(&sql, config, polling, router).await;
    let is_there = columns.is_ok();
    results.push(found("outbox table", columns));
    results.extend(columns_named(&sql, config, router).await);
    if is_there && has_own {
        let id_column = &router.event_id;
        let ensured =
            IdSpaceTable::new(config).try_ensure(&sql, config, id_column, Begins::Polling).await;
        results.push(found("id space", ensured.map(|()| "as in the table id_space".to_owned())));
        results.push(found("statements", tried(&sql, &database, config, polling).await));
    }
    if is_there {
        results.extend(order::check(&sql, table, polling).await?);
        results.extend(order::state(&sql, table, polling).await?);
        results.push(index::check(&sql, table, polling).await?);
    }
    Ok(())
}

/// What a poller cannot do without.
pub(crate) async fn run(
    sql: &Sql,
    database: &Database,
    config: &RelayConfig,
    polling: &PollingConfig,
    router: &RouterConfig,
) -> Result<(), RelayError> {
    server(sql).await?;
    own_table(sql, config).await?;
    columns(sql, config, polling, router).await?;
    preflight::named_columns(sql, config, router).await?;
    tried(sql, database, config, polling).await.map(drop)
}

async fn server(sql: &Sql) -> Result<String, RelayError> {
    let attempt = "reading the server's settings";
    let text = "select current_setting('server_version_num')::int4, \
                current_setting('server_version'), pg_is_in_recovery()";
    let row = sql.one(attempt, text, &[]).await?;
    let version: &str = row.get(1);
    if row.get::<_, i32>(0) < 140_000 {
        return Err(RelayError::prerequisite(
            format!("the server is PostgreSQL {version}"),
            "walpost needs PostgreSQL 14 or newer",
        ));
    }
    if row.get(2) {
        return Err(preflight::in_recovery());
    }
    Ok(format!("PostgreSQL {version}"))
}

async fn own_table(sql: &Sql, config: &RelayConfig) -> Result<String, RelayError> {
    let note = [Right::Select, Right::Insert];
    let all = [Right::Select, Right::Insert, Right::Update, Right::Delete];
    for (name, rights) in
        [("polling_attempts", &all[..]), ("checkpoint", &note[..]), ("id_space", &all[..3])]
    {
        let table = TableName { schema: config.schema.clone(), name: name.to_owned() };
        let Some(reach) = rights::reach(sql, &table).await? else {
            return Err(RelayError::prerequisite(
                format!("table {table} does not exist"),
                "run `walpost migrate` against this database",
            ));
        };
        if let Some(grant) = reach.grant(rights) {
            let verb = if rights.len() > 1 { "read and write" } else { "read" };
            return Err(RelayError::prerequisite(
                format!("the role may not {verb} table {table}"),
                format!("let its owner run `{grant}`"),
            ));
        }
    }
    preflight::up_to_date(sql, config).await?;
    preflight::has_column(sql, config, "polling_attempts", "failed").await?;
    Ok(format!("in schema {:?}", config.schema))
}

/// What the pipeline has read until now.
pub(crate) async fn source(sql: &Sql, config: &RelayConfig) -> Result<String, RelayError> {
    match read_feed(sql, config).await? {
        None => {
            overlap::none(sql, config, &config.tables, ReaderFeed::Table).await?;
            Ok("the outbox table, from the beginning".to_owned())
        }
        Some(feed) => feed.expect_polling(config).map(|()| "the outbox table".to_owned()),
    }
}

/// Table, columns, states and rights.
async fn columns(
    sql: &Sql,
    config: &RelayConfig,
    polling: &PollingConfig,
    router: &RouterConfig,
) -> Result<String, RelayError> {
    let table = polled(config)?;
    preflight::columns(sql, config, table, router).await?;
    let (relation, types) = describe(sql, config, table).await?;
    if let Some(missing) = missing(&relation, polling) {
        let ddl = additions(table, &relation, polling);
        return Err(RelayError::prerequisite(
            format!("outbox table {table} has no column {missing:?}, as [polling] names it"),
            match ddl {
                Some(ddl) => format!("name the column that it has, or run `{ddl}`"),
                None => "name the column that it has, or \"\" for none".to_owned(),
            },
        ));
    }
    unique::check(sql, table, polling).await?;
    states(sql, table, polling, &types).await?;
    let reach = rights::reach(sql, table).await?;
    if let Some(grant) = reach.and_then(|reach| reach.grant(&[Right::Select, Right::Update])) {
        return Err(RelayError::prerequisite(
            format!("the role may not read and update table {table}"),
            format!("let its owner run `{grant}`"),
        ));
    }
    rights::seen_whole(sql, table, Of::Table).await?;
    Ok(format!("{table}, {} columns", relation.columns.len()))
}

/// Each statement of a poller can be run on the table.
async fn tried(
    sql: &Sql,
    database: &Database,
    config: &RelayConfig,
    polling: &PollingConfig,
) -> Result<String, RelayError> {
    let (_, types) = describe(sql, config, polled(config)?).await?;
    trial::run(sql, database, config, polling, &types).await?;
    Ok("can be run".to_owned())
}

fn missing<'a>(relation: &Relation, polling: &'a PollingConfig) -> Option<&'a String> {
    let optional = [
        &polling.attempts_column,
        &polling.next_attempt_at_column,
        &polling.last_attempt_at_column,
        &polling.published_at_column,
        &polling.last_error_column,
        &polling.created_at_column,
        &polling.retry_limit_column,
        &polling.retry_wait_ms_column,
    ];
    [&polling.id_column, &polling.status_column]
        .into_iter()
        .chain(&polling.aggregate_columns)
        .chain(&polling.order_columns)
        .chain(optional.into_iter().filter(|name| !name.is_empty()))
        .find(|name| relation.column_index(name).is_none())
}

/// The columns of states and attempts that a table lacks. None where it lacks
/// others, which nobody but its owner can tell.
fn additions(table: &TableName, relation: &Relation, polling: &PollingConfig) -> Option<String> {
    let state = match (polling.pending_value.as_str(), polling.published_value.as_str()) {
        ("", "") => "timestamptz".to_owned(),
        ("", _) => "text".to_owned(),
        ("false", "true") => "boolean not null default false".to_owned(),
        (pending, _) => format!("text not null default {}", quote_literal(pending).trim()),
    };
    let known = [
        (&polling.status_column, state.as_str()),
        (&polling.attempts_column, "int not null default 0"),
        (&polling.next_attempt_at_column, "timestamptz"),
        (&polling.published_at_column, "timestamptz"),
        (&polling.last_error_column, "text"),
    ];
    let is_missing = |name: &String| !name.is_empty() && relation.column_index(name).is_none();
    let parts: Vec<String> = known
        .iter()
        .filter(|(name, _)| is_missing(name))
        .map(|(name, kind)| format!("add {} {kind}", quote_identifier(name)))
        .collect();
    (!parts.is_empty()).then(|| format!("alter table {} {}", table.quoted(), parts.join(", ")))
}

/// Whether the column of states can hold the values.
async fn states(
    sql: &Sql,
    table: &TableName,
    polling: &PollingConfig,
    types: &HashMap<String, String>,
) -> Result<(), RelayError> {
    let attempt = "reading the states of the outbox table";
    let text = "select t.typtype::text, coalesce((select array_agg(enumlabel::text) from pg_enum \
                where enumtypid = t.oid), '{}') from pg_attribute a join pg_type t \
                on t.oid = a.atttypid where a.attrelid = to_regclass($1) and a.attname = $2";
    let (quoted, column) = (table.quoted(), &polling.status_column);
    let parameters = [(&quoted as _, Type::TEXT), (column as _, Type::TEXT)];
    let row = sql.one(attempt, text, &parameters).await?;
    let labels: Vec<String> = row.get(1);
    let values = [&polling.pending_value, &polling.published_value, &polling.failed_value];
    let wrong = values.into_iter().find(|value| !value.is_empty() && !labels.contains(value));
    let kind = types.get(column).map_or("", String::as_str);
    match wrong {
        Some(value) if row.get::<_, &str>(0) == "e" => Err(RelayError::prerequisite(
            format!("column {column:?} of {table} has type {kind}, which has no value {value:?}"),
            format!("name the value that it has in [polling]; it has {}", labels.join(", ")),
        )),
        _ => Ok(()),
    }
}

fn ok(name: &'static str, detail: String) -> CheckResult {
    CheckResult { name, outcome: Outcome::Ok, detail, next_step: None }
}

fn found(name: &'static str, step: Result<String, RelayError>) -> CheckResult {
    match step {
        Ok(detail) => ok(name, detail),
        Err(error) => failed(name, &error),
    }
}
