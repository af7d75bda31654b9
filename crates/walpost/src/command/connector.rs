//! A connector of Debezium's, in the database: the tables that its filters mean.
//! And its verdicts, for people and programs.

mod none;

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until, timeout_at};
use tokio_postgres::Client;
use walpost_connector::{Connector, Origin, Verdict};
use walpost_event::error_chain;
use walpost_postgres::{ConnectError, Database};
use walpost_relay::TableName;

use self::none::There;
use crate::{
    command::{cells::line, parked::for_terminal},
    config::{
        Config, ConfigArgs,
        connector::{ConnectorFile, FoundTable, Reach, Tables, is_publication_changed, outboxes},
    },
    failure::Failure,
    table::Table,
};

/// Between two attempts to reach the database.
const PAUSE: Duration = Duration::from_secs(1);
/// Between two lines of the log that tell of the same wait.
const AGAIN: Duration = Duration::from_secs(30);
/// Characters of a property and of its value in the table.
const SHOWN_VALUE: usize = 120;

/// The configuration with the tables of the connector's filters, if there is one.
pub(crate) async fn load(args: &ConfigArgs) -> Result<Config, Failure> {
    let mut config = Config::load(args)?;
    find_tables(&mut config).await?;
    Ok(config)
}

/// Asks the database which tables the connector's filters mean, once it is there.
pub(crate) async fn find_tables_patiently(config: &mut Config) -> Result<(), Failure> {
    match reach_patiently(config, |_| {}).await? {
        Some(tables) => choose_tables(config, tables),
        None => Ok(()),
    }
}

/// Asks the database, once it is there, what tables there are for
/// [`choose_tables`]; `None` where no filter is to choose. The log says now and
/// then why it is not there, and `waits` is told at each attempt. What is wrong in
/// itself must be found before. The pipeline gets what is left of `start_timeout_ms`.
pub(crate) async fn reach_patiently(
    config: &mut Config,
    mut waits: impl FnMut(&ConnectError),
) -> Result<Option<Tables>, Failure> {
    let Some(connector) = config.filters() else { return Ok(None) };
    let (database, begun) = (config.database()?, Instant::now());
    let limit = Some(config.settings.pipeline.start_timeout_ms).filter(|limit| *limit > 0);
    let deadline = limit.map(|limit| begun + Duration::from_millis(limit));
    let mut told = None;
    let client = loop {
        let connected = by(deadline, &database, database.connect()).await;
        match connected.and_then(|connected| connected) {
            Ok(client) => break client,
            Err(error)
                if error.is_transient() && deadline.is_none_or(|end| Instant::now() < end) =>
            {
                tell(&error, &mut told);
                waits(&error);
                let pause = Instant::now() + PAUSE;
                sleep_until(deadline.map_or(pause, |end| pause.min(end))).await;
            }
            Err(error) => return Err(Failure::of_connect(error)),
        }
    };
    if told.is_some() {
        tracing::info!("PostgreSQL answers");
    }
    let tables = by(deadline, &database, look(config, connector, &client)).await;
    let tables = tables.map_err(Failure::of_connect)??;
    config.has_waited(begun.elapsed());
    Ok(Some(tables))
}

/// What the database answers, which takes no longer than all attempts may.
async fn by<T>(
    deadline: Option<Instant>,
    database: &Database,
    answer: impl Future<Output = T>,
) -> Result<T, ConnectError> {
    let begun = Instant::now();
    match deadline {
        None => Ok(answer.await),
        Some(end) => timeout_at(end, answer).await.map_err(|_| ConnectError::TimedOut {
            target: database.to_string(),
            timeout: begun.elapsed(),
        }),
    }
}

/// Logs why the database is waited for, unless that was just `told`.
fn tell(error: &ConnectError, told: &mut Option<Instant>) {
    if told.is_none_or(|told| told.elapsed() >= AGAIN) {
        *told = Some(Instant::now());
        tracing::warn!(error = error_chain(error), "waiting for PostgreSQL");
    }
}

/// Asks the database which tables the connector's filters mean.
pub(crate) async fn find_tables(config: &mut Config) -> Result<(), Failure> {
    let Some(connector) = config.filters() else { return Ok(()) };
    let database: Database = config.database()?.without_hidden_rows();
    let client = database.connect().await.map_err(Failure::of_connect)?;
    let reach = look(config, connector, &client).await?;
    choose_tables(config, reach)
}

async fn look(config: &Config, connector: &Connector, client: &Client) -> Result<Tables, Failure> {
    let failed = |error| Failure::postgres(error).context("reading the catalogue failed");
    // Before the catalogue: what comes in between is none of those that are found.
    let now = "select pg_snapshot_xmax(pg_current_snapshot())::text";
    let now: String = client.query_one(now, &[]).await.map_err(failed)?.get(0);
    let looked_at = now.parse().unwrap_or(u64::MAX);
    let publication = &config.settings.pipeline.publication;
    let reach = reach(client, connector, publication).await.map_err(failed)?;
    Ok(Tables { reach, looked_at })
}

/// Has the connector's filters choose among these tables. Blocks: it matches all
/// patterns with each of them.
pub(crate) fn choose_tables(config: &mut Config, tables: Tables) -> Result<(), Failure> {
    let Tables { reach, looked_at } = tables;
    let Some(connector) = config.filters() else { return Ok(()) };
    let schema = &config.settings.pipeline.schema;
    let there = There::of(&reach, schema);
    let found = outboxes(connector, schema, reach);
    if found.is_empty() {
        return Err(there.none_passes(config, connector));
    }
    config.set_found_tables(found, looked_at);
    Ok(())
}

async fn reach(
    client: &Client,
    connector: &Connector,
    publication: &str,
) -> Result<Reach, tokio_postgres::Error> {
    let sql = "select pubviaroot from pg_publication where pubname = $1";
    let via_root = client.query_opt(sql, &[&publication]).await?.map(|row| row.get(0));
    let name = |schema, name| TableName { schema, name };
    if via_root.is_some() && !is_publication_changed(connector) {
        let sql = "select schemaname::text, tablename::text from pg_publication_tables \
                   where pubname = $1";
        let rows = client.query(sql, &[&publication]).await?;
        return Ok(Reach::Published(rows.iter().map(|row| name(row.get(0), row.get(1))).collect()));
    }
    // What is temporary or unlogged is in no stream.
    let sql = "select n.nspname::text, c.relname::text, c.relkind = 'p', \
               rn.nspname::text, rc.relname::text \
               from pg_class c join pg_namespace n on n.oid = c.relnamespace \
               left join pg_class rc on c.relispartition and rc.oid = pg_partition_root(c.oid) \
               left join pg_namespace rn on rn.oid = rc.relnamespace \
               where c.relkind in ('r', 'p') and c.relpersistence = 'p' \
               and n.nspname not in ('pg_catalog', 'information_schema')";
    let rows = client.query(sql, &[]).await?;
    let tables = rows.iter().map(|row| FoundTable {
        name: name(row.get(0), row.get(1)),
        is_partitioned: row.get(2),
        root: row.get::<_, Option<String>>(3).zip(row.get(4)).map(|(s, table)| name(s, table)),
    });
    Ok(Reach::Any { tables: tables.collect(), via_root })
}

/// One line for each property, and how many there are of each verdict.
pub(crate) fn as_text(file: &ConnectorFile) -> String {
    let mut table = Table::titled(["property", "value", "verdict", "note"]);
    for row in file.verdicts().rows() {
        let value = line(row.value.as_deref().unwrap_or("(not given)"), SHOWN_VALUE);
        let note = match row.verdict {
            Verdict::Mapped if !row.note.is_empty() => format!("to {}", row.note),
            _ => row.note.clone(),
        };
        let (property, note) = (line(&row.property, SHOWN_VALUE), for_terminal(&note));
        table.row([&property, &value, row.verdict.name(), &note]);
    }
    let counts = file.verdicts().counts();
    format!(
        "{table}{} honoured, {} mapped, {} ignored, {} refused\n",
        counts.honoured, counts.mapped, counts.ignored, counts.refused
    )
}

/// The same for programs.
pub(crate) fn as_json(file: &ConnectorFile) -> Value {
    let row = |row: &walpost_connector::Row| {
        json!({
            "property": row.property,
            "value": row.value,
            "of": match row.origin {
                Origin::Connector => "connector",
                Origin::Worker => "worker",
            },
            "line": row.at.map(|at| at.line),
            "verdict": row.verdict.name(),
            "note": row.note,
        })
    };
    let counts = file.verdicts().counts();
    json!({
        "file": file.file,
        "honoured": counts.honoured,
        "mapped": counts.mapped,
        "ignored": counts.ignored,
        "refused": counts.refused,
        "properties": file.verdicts().rows().iter().map(row).collect::<Vec<_>>(),
    })
}
