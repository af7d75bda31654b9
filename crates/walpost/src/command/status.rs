use serde::Serialize;
use tokio_postgres::{Client, types::PgLsn};
use walpost_event::Lsn;

use crate::{
    command::sql,
    config::{Config, ConfigArgs},
    failure::Failure,
    output,
    table::{Table, bytes, thousands},
};

/// How to print what was found.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Serialize)]
struct Report {
    database: String,
    pipelines: Vec<Pipeline>,
    outboxes: Vec<Outbox>,
}

#[derive(Debug, Serialize)]
struct Pipeline {
    pipeline: String,
    slot: Option<String>,
    published_lsn: Option<String>,
    confirmed_lsn: Option<String>,
    restart_lsn: Option<String>,
    retained_bytes: Option<u64>,
    wal_status: Option<String>,
    active_pid: Option<i32>,
    checkpoint_age_seconds: f64,
    parked_open: u64,
    parked_done: u64,
}

#[derive(Debug, Serialize)]
struct Outbox {
    table: String,
    /// Absent until PostgreSQL has analyzed the table.
    rows_estimate: Option<u64>,
    /// Absent when there is no such table.
    bytes: Option<u64>,
}

pub(crate) async fn run(config: &ConfigArgs, args: &Args) -> Result<(), Failure> {
    let config = Config::load(config)?;
    let (database, relay) = (config.database()?, config.relay()?);
    let client = sql::connect_to_look(&database).await?;
    let failed = sql::failed(&relay.schema);
    let pipelines = pipelines(&client, &relay.schema).await.map_err(&failed)?;
    let mut outboxes = Vec::new();
    for table in &relay.tables {
        outboxes.push(outbox(&client, &table.quoted(), table.to_string()).await.map_err(&failed)?);
    }
    let report = Report { database: database.to_string(), pipelines, outboxes };
    if args.json {
        let line = serde_json::to_string(&report).map_err(Failure::running)?;
        output::print(format_args!("{line}\n"))
    } else {
        output::print(as_text(&report))
    }
}

async fn pipelines(client: &Client, schema: &str) -> Result<Vec<Pipeline>, tokio_postgres::Error> {
    let schema = sql::quoted(schema);
    let text = format!(
        "select c.pipeline, c.slot, c.confirmed_lsn, s.confirmed_flush_lsn, s.restart_lsn,
            case when not pg_is_in_recovery()
                then pg_wal_lsn_diff(pg_current_wal_lsn(), s.restart_lsn)::bigint end,
            s.wal_status, s.active_pid,
            extract(epoch from clock_timestamp() - c.updated_at)::float8,
            coalesce(p.open, 0), coalesce(p.done, 0)
        from {schema}.checkpoint c
        left join pg_replication_slots s on s.slot_name = c.slot
        left join (select pipeline,
                count(*) filter (where state in ('open', 'sending')) as open,
                count(*) filter (where state not in ('open', 'sending')) as done
            from {schema}.parked group by pipeline) p using (pipeline)
        order by c.pipeline"
    );
    let rows = client.query(&text, &[]).await?;
    let lsn = |lsn: Option<PgLsn>| lsn.map(|lsn| Lsn::from(u64::from(lsn)).to_string());
    let count = |count: i64| u64::try_from(count).unwrap_or(0);
    let pipeline = |row: &tokio_postgres::Row| Pipeline {
        pipeline: row.get(0),
        slot: row.get(1),
        published_lsn: lsn(row.get(2)),
        confirmed_lsn: lsn(row.get(3)),
        restart_lsn: lsn(row.get(4)),
        retained_bytes: row.get::<_, Option<i64>>(5).map(count),
        wal_status: row.get(6),
        active_pid: row.get(7),
        checkpoint_age_seconds: row.get(8),
        parked_open: count(row.get(9)),
        parked_done: count(row.get(10)),
    };
    Ok(rows.iter().map(pipeline).collect())
}

/// The estimate of the planner: counting would read the whole table.
async fn outbox(
    client: &Client,
    quoted: &str,
    table: String,
) -> Result<Outbox, tokio_postgres::Error> {
    let text = "select sum(c.reltuples) filter (where c.reltuples >= 0)::bigint,
            sum(pg_total_relation_size(c.oid))::bigint
        from pg_class c
        where c.oid = to_regclass($1) or c.oid in (
            select relid from pg_partition_tree(to_regclass($1)) where isleaf)";
    let row = client.query_one(text, &[&quoted]).await?;
    let number = |index| {
        let number = row.get::<_, Option<i64>>(index);
        number.map(|number| u64::try_from(number).unwrap_or(0))
    };
    Ok(Outbox { table, rows_estimate: number(0), bytes: number(1) })
}

fn as_text(report: &Report) -> String {
    let mut text = format!("{}\n\n", report.database);
    if report.pipelines.is_empty() {
        text.push_str("no pipeline has run here yet; start one with `walpost run`\n");
    } else {
        text.push_str(&pipeline_table(&report.pipelines).to_string());
    }
    let mut table = Table::titled(["outbox", "rows (estimate)", "size"]).right([1, 2]);
    for outbox in &report.outboxes {
        let unknown = || "not analyzed yet".to_owned();
        let missing = || "no such table".to_owned();
        table.row([
            outbox.table.clone(),
            outbox.rows_estimate.map_or_else(unknown, thousands),
            outbox.bytes.map_or_else(missing, bytes),
        ]);
    }
    text + "\n" + &table.to_string()
}

fn pipeline_table(pipelines: &[Pipeline]) -> Table {
    let titles = [
        "pipeline",
        "slot",
        "state",
        "published",
        "confirmed",
        "restart",
        "WAL kept",
        "checkpoint",
        "parked",
    ];
    let mut table = Table::titled(titles).right([6, 7, 8]);
    for pipeline in pipelines {
        let dash = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
        table.row([
            pipeline.pipeline.clone(),
            dash(&pipeline.slot),
            state(pipeline),
            dash(&pipeline.published_lsn),
            dash(&pipeline.confirmed_lsn),
            dash(&pipeline.restart_lsn),
            pipeline.retained_bytes.map_or_else(|| "-".to_owned(), bytes),
            format!("{:.0} s ago", pipeline.checkpoint_age_seconds.max(0.0)),
            thousands(pipeline.parked_open),
        ]);
    }
    table
}

fn state(pipeline: &Pipeline) -> String {
    match (&pipeline.wal_status, pipeline.active_pid) {
        (None, _) => "no such slot".to_owned(),
        (Some(status), Some(pid)) => format!("streaming to {pid}, WAL {status}"),
        (Some(status), None) => format!("not running, WAL {status}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipeline_without_slot_is_told() {
        let pipeline = Pipeline {
            pipeline: "main".into(),
            slot: Some("walpost_main".into()),
            published_lsn: Some("0/10".into()),
            confirmed_lsn: None,
            restart_lsn: None,
            retained_bytes: None,
            wal_status: None,
            active_pid: None,
            checkpoint_age_seconds: 3.2,
            parked_open: 1_234,
            parked_done: 0,
        };
        let text = pipeline_table(&[pipeline]).to_string();
        assert!(text.contains("no such slot"), "{text}");
        assert!(text.contains("3 s ago   1,234"), "{text}");
    }
}
