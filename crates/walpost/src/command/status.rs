mod deliveries;
mod event;
mod found;

use serde::Serialize;
use tokio_postgres::{Client, types::PgLsn};
use walpost_event::Lsn;
use walpost_postgres::Database;
use walpost_relay::{PollingConfig, RelayConfig, WalBudget};

use self::deliveries::{Backlog, Seen};
use crate::{
    command::{connector, grants::Grants, sql},
    config::ConfigArgs,
    failure::Failure,
    output,
    table::{Table, bytes, thousands},
};

/// How to print what was found.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Say where the event with this id is: published, pending or parked
    #[arg(long, value_name = "ID")]
    event: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Serialize)]
struct Report {
    database: String,
    pipelines: Vec<Pipeline>,
    outboxes: Vec<Outbox>,
    /// Absent where the WAL is read.
    #[serde(skip_serializing_if = "Option::is_none")]
    polled: Option<Polled>,
    /// Absent where there are none, or the role may not look at them.
    #[serde(skip_serializing_if = "Option::is_none")]
    deliveries: Option<Backlog>,
}

/// What a pipeline that polls has before it.
#[derive(Debug, Serialize)]
struct Polled {
    pipeline: String,
    table: String,
    pending: u64,
    failed: u64,
    /// Absent where nothing is pending, or the table does not tell it.
    oldest_pending_seconds: Option<f64>,
}

#[derive(Debug, Serialize)]
struct Pipeline {
    pipeline: String,
    slot: String,
    /// What the pipeline has noted: everything that ends here or before is
    /// published or parked.
    checkpoint_lsn: String,
    checkpoint_age_seconds: f64,
    /// Where the slot stands.
    slot_confirmed_lsn: Option<String>,
    slot_restart_lsn: Option<String>,
    /// WAL behind the slot's position.
    unconfirmed_bytes: Option<u64>,
    /// WAL that the server keeps for the slot.
    retained_bytes: Option<u64>,
    wal_status: Option<String>,
    /// WAL that may still be written before the server may give the slot up;
    /// absent where nothing bounds it.
    invalidation_bytes: Option<u64>,
    /// WAL that the slot may keep, and who says so; absent likewise.
    budget_bytes: Option<u64>,
    budget_percent: Option<u64>,
    budget_set_by: Option<&'static str>,
    /// Process of the server that sends to whoever reads the slot.
    walsender_pid: Option<i32>,
    /// Could not be delivered, or wait behind such an event.
    parked_open: u64,
    /// Those of them that wait.
    parked_held: u64,
    parked_done: u64,
    /// Age of the snapshot whose every row is known to be published or parked,
    /// and the WAL position that proved it; absent without one.
    proven_age_seconds: Option<f64>,
    proven_lsn: Option<String>,
    /// The slot is being replaced, or is to be at the next start.
    recovery: Option<&'static str>,
    /// The source is being switched: to which one.
    switching_to: Option<String>,
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
    let config = connector::load(config).await?;
    if let Some(id) = &args.event {
        return event::run(&config, id, args.json).await;
    }
    let (database, relay) = (config.database()?, config.relay()?);
    let client = sql::connect_to_look(&database).await?;
    let polling = config.polling()?;
    let grants = grants(&client, &relay, polling.as_ref()).await.map_err(Failure::postgres)?;
    let failed = sql::failed(&relay.schema, Some(grants.clone()));
    let pipelines = pipelines(&client, &relay).await.map_err(&failed)?;
    let mut outboxes = Vec::new();
    for table in &relay.tables {
        outboxes.push(outbox(&client, &table.quoted(), table.to_string()).await.map_err(&failed)?);
    }
    let polled = match polling {
        Some(polling) => Some(polled(&database, &relay, &polling, &grants).await?),
        None => None,
    };
    let seen = Seen::look(&client, &database, &relay.schema).await?;
    let line = seen.line();
    let deliveries = seen.backlog();
    let database = database.to_string();
    let report = Report { database, pipelines, outboxes, polled, deliveries };
    if args.json {
        let line = serde_json::to_string(&report).map_err(Failure::running)?;
        output::print(format_args!("{line}\n"))
    } else {
        output::print(as_text(&report, &line))
    }
}

/// What the role needs for it.
async fn grants(
    client: &Client,
    relay: &RelayConfig,
    polling: Option<&PollingConfig>,
) -> Result<Grants, tokio_postgres::Error> {
    let mut grants = Grants::new(client, &relay.schema).await?.status(&relay.schema);
    for (polling, table) in polling.iter().zip(&relay.tables) {
        let is_read = |name: &str| {
            [&polling.id_column, &polling.status_column, &polling.created_at_column]
                .into_iter()
                .chain(&polling.order_columns)
                .any(|column| column == name)
        };
        grants.outbox(client, table, is_read).await?;
        if polling.failed_value.is_empty() {
            let attempts = format!("{}.polling_attempts", sql::quoted(&relay.schema));
            grants.select("pipeline, row_id, failed", &attempts);
        }
    }
    Ok(grants)
}

async fn polled(
    database: &Database,
    relay: &RelayConfig,
    polling: &PollingConfig,
    grants: &Grants,
) -> Result<Polled, Failure> {
    let sight = walpost_relay::polling_sight(database, relay, polling).await;
    let sight = sight.map_err(|error| Failure::of_look(error, grants))?;
    Ok(Polled {
        pipeline: relay.pipeline.clone(),
        table: relay.tables.first().map(ToString::to_string).unwrap_or_default(),
        pending: sight.pending,
        failed: sight.failed,
        oldest_pending_seconds: sight.oldest_pending_seconds,
    })
}

async fn pipelines(
    client: &Client,
    relay: &RelayConfig,
) -> Result<Vec<Pipeline>, tokio_postgres::Error> {
    let schema = sql::quoted(&relay.schema);
    let text = format!(
        "select c.pipeline, c.slot, c.confirmed_lsn, s.confirmed_flush_lsn, s.restart_lsn,
            case when not pg_is_in_recovery()
                then pg_wal_lsn_diff(pg_current_wal_lsn(), s.confirmed_flush_lsn)::bigint end,
            case when not pg_is_in_recovery()
                then pg_wal_lsn_diff(pg_current_wal_lsn(), s.restart_lsn)::bigint end,
            s.wal_status, s.active_pid,
            extract(epoch from clock_timestamp() - c.updated_at)::float8,
            coalesce(p.open, 0), coalesce(p.done, 0), coalesce(p.held, 0), s.safe_wal_size,
            pg_size_bytes(current_setting('max_slot_wal_keep_size')),
            extract(epoch from clock_timestamp())::float8 - (c.proven ->> 'taken_at')::float8,
            c.proven ->> 'lsn', c.recovery is not null, c.recovery_requested is not null,
            c.switch ->> 'to'
        from {schema}.checkpoint c
        left join pg_replication_slots s on s.slot_name = c.slot
        left join (select pipeline,
                count(*) filter (where state in ('open', 'sending')) as open,
                count(*) filter (where state in ('open', 'sending') and reason = 'behind') as held,
                count(*) filter (where state not in ('open', 'sending')) as done
            from {schema}.parked group by pipeline) p using (pipeline)
        where c.source = 'wal' or c.switch is not null
        order by c.pipeline"
    );
    let rows = client.query(&text, &[]).await?;
    let lsn = |lsn: PgLsn| Lsn::from(u64::from(lsn)).to_string();
    let count = |count: i64| u64::try_from(count).unwrap_or(0);
    let pipeline = |row: &tokio_postgres::Row| {
        let retained_bytes = row.get::<_, Option<i64>>(6).map(count);
        // What the others have in their configuration is not known here.
        let own = relay.wal_budget_bytes.filter(|_| row.get::<_, &str>(0) == relay.pipeline);
        let server = u64::try_from(row.get::<_, i64>(14)).ok();
        // A slot that is lost keeps nothing, and has its budget all the same.
        let budget = WalBudget::new(retained_bytes.unwrap_or(0), own, server);
        Pipeline {
            pipeline: row.get(0),
            slot: row.get(1),
            checkpoint_lsn: lsn(row.get(2)),
            slot_confirmed_lsn: row.get::<_, Option<PgLsn>>(3).map(lsn),
            slot_restart_lsn: row.get::<_, Option<PgLsn>>(4).map(lsn),
            unconfirmed_bytes: row.get::<_, Option<i64>>(5).map(count),
            retained_bytes,
            wal_status: row.get(7),
            invalidation_bytes: row.get::<_, Option<i64>>(13).map(count),
            budget_bytes: budget.map(|budget| budget.limit_bytes),
            budget_percent: retained_bytes.and(budget).map(|budget| budget.percent()),
            budget_set_by: budget.map(|budget| budget.set_by.as_str()),
            walsender_pid: row.get(8),
            checkpoint_age_seconds: row.get(9),
            parked_open: count(row.get(10)),
            parked_held: count(row.get(12)),
            parked_done: count(row.get(11)),
            proven_age_seconds: row.get(15),
            proven_lsn: row.get(16),
            recovery: match (row.get(17), row.get(18)) {
                (true, _) => Some("running"),
                (false, true) => Some("requested"),
                (false, false) => None,
            },
            switching_to: row.get(19),
        }
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

fn as_text(report: &Report, deliveries: &str) -> String {
    let mut text = format!("{}\n\n", report.database);
    if let Some(polled) = &report.polled {
        text.push_str(&polled_table(polled).to_string());
    } else if report.pipelines.is_empty() {
        text.push_str("no pipeline has run here yet; start one with `walpost run`\n");
    }
    if !report.pipelines.is_empty() {
        text.push_str(&pipeline_table(&report.pipelines).to_string());
        text.extend(report.pipelines.iter().map(budget_line));
        text.extend(report.pipelines.iter().map(proven_line));
        text.extend(report.pipelines.iter().filter_map(warning));
    }
    text.push_str(deliveries);
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

fn polled_table(polled: &Polled) -> Table {
    let titles = ["pipeline", "polls", "pending", "oldest pending", "failed"];
    let mut table = Table::titled(titles).right([2, 3, 4]);
    table.row([
        polled.pipeline.clone(),
        polled.table.clone(),
        thousands(polled.pending),
        polled.oldest_pending_seconds.map_or_else(|| "-".to_owned(), duration),
        thousands(polled.failed),
    ]);
    table
}

fn pipeline_table(pipelines: &[Pipeline]) -> Table {
    let titles = [
        "pipeline",
        "slot",
        "slot is",
        "slot at LSN",
        "checkpoint LSN",
        "written",
        "unconfirmed WAL",
        "WAL kept",
        "parked (open)",
    ];
    let mut table = Table::titled(titles).right([5, 6, 7, 8]);
    for pipeline in pipelines {
        let dash = || "-".to_owned();
        table.row([
            pipeline.pipeline.clone(),
            pipeline.slot.clone(),
            slot_is(pipeline),
            pipeline.slot_confirmed_lsn.clone().unwrap_or_else(dash),
            pipeline.checkpoint_lsn.clone(),
            format!("{} ago", duration(pipeline.checkpoint_age_seconds)),
            pipeline.unconfirmed_bytes.map_or_else(dash, bytes),
            pipeline.retained_bytes.map_or_else(dash, bytes),
            thousands(pipeline.parked_open),
        ]);
    }
    table
}

/// How much of what its slot may keep a pipeline has used.
fn budget_line(pipeline: &Pipeline) -> String {
    let name = &pipeline.pipeline;
    let left = pipeline.invalidation_bytes.map_or_else(String::new, |left| {
        format!("; after {} more the server may give the slot up", bytes(left))
    });
    let Some(limit) = pipeline.budget_bytes.map(bytes) else {
        return format!(
            "WAL budget ({name}) none: set pipeline.wal_budget_bytes, or the server's \
             max_slot_wal_keep_size{left}\n"
        );
    };
    let set_by = pipeline.budget_set_by.unwrap_or_default();
    match (pipeline.retained_bytes, pipeline.budget_percent) {
        (Some(used), Some(percent)) => {
            let used = bytes(used);
            format!("WAL budget ({name}) {percent} %: {used} of {limit}, by {set_by}{left}\n")
        }
        _ => {
            let why = match health(pipeline) {
                Health::Lost => "the slot is lost, and keeps no WAL",
                Health::Missing => "there is no slot",
                Health::Unread | Health::Stalled | Health::Read => {
                    "a standby does not say how much is kept"
                }
            };
            format!("WAL budget ({name}) {limit}, by {set_by}: {why}{left}\n")
        }
    }
}

/// Up to when rows are known to be published or parked.
fn proven_line(pipeline: &Pipeline) -> String {
    let name = &pipeline.pipeline;
    let proven = match pipeline.proven_age_seconds {
        Some(age) => format!("every row of {} ago is published or parked", duration(age)),
        None => "nothing yet".to_owned(),
    };
    let recovery = match pipeline.recovery {
        Some("running") => "; rows that a lost slot has not brought are being published",
        Some(_) => "; the next start replaces the slot",
        None => "",
    };
    format!("proven ({name}) {proven}{recovery}\n")
}

/// What to think of a pipeline's slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Health {
    Missing,
    Lost,
    Unread,
    Stalled,
    Read,
}

/// A relay that works follows the WAL: what stays behind is its own last
/// checkpoint, with the page that it is on.
const STALLED_BYTES: u64 = 32 * 1024;
/// So long without a checkpoint while there is something to confirm.
const STALLED_SECONDS: f64 = 30.0;

fn health(pipeline: &Pipeline) -> Health {
    let is_behind = pipeline.unconfirmed_bytes.is_some_and(|bytes| bytes >= STALLED_BYTES);
    match (pipeline.wal_status.as_deref(), pipeline.walsender_pid) {
        (None, _) => Health::Missing,
        (Some("lost"), _) => Health::Lost,
        (Some(_), None) => Health::Unread,
        _ if is_behind && pipeline.checkpoint_age_seconds >= STALLED_SECONDS => Health::Stalled,
        _ => Health::Read,
    }
}

fn slot_is(pipeline: &Pipeline) -> String {
    let text = match health(pipeline) {
        Health::Missing => return "MISSING".to_owned(),
        Health::Lost => return "LOST".to_owned(),
        Health::Unread => "NOT READ",
        Health::Stalled => "read, STALLED",
        Health::Read => "read",
    };
    match pipeline.wal_status.as_deref() {
        Some("unreserved") => format!("{text}, soon lost"),
        _ => text.to_owned(),
    }
}

/// A line about a slot that somebody should look after.
fn warning(pipeline: &Pipeline) -> Option<String> {
    let Pipeline { pipeline: name, slot, .. } = pipeline;
    if let Some(to) = &pipeline.switching_to {
        let finish = format!("finish it with `walpost source switch --to {to}`");
        return Some(format!("{name}: the source is being switched, and nothing runs; {finish}\n"));
    }
    let size = |size: Option<u64>| size.map_or_else(|| "some".to_owned(), bytes);
    let text = match health(pipeline) {
        Health::Read => return None,
        Health::Missing => format!("slot {slot} is gone; `walpost check` says what to do"),
        Health::Lost => format!("the server gave slot {slot} up; `walpost check` says what to do"),
        Health::Unread => format!(
            "nobody reads slot {slot}, for which the server keeps {} of WAL; start `walpost run`",
            size(pipeline.retained_bytes)
        ),
        Health::Stalled => format!(
            "slot {slot} is read, and {} of WAL are unconfirmed while the last checkpoint is {} \
             old; the log of `walpost run` and its /ready say what it waits for",
            size(pipeline.unconfirmed_bytes),
            duration(pipeline.checkpoint_age_seconds)
        ),
    };
    Some(format!("{name}: {text}\n"))
}

/// For people: two units at most.
fn duration(seconds: f64) -> String {
    let seconds = seconds.max(0.0) as u64;
    let (minutes, hours, days) = (seconds / 60, seconds / 3_600, seconds / 86_400);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, minutes) => format!("{minutes} min {} s", seconds % 60),
        (0, hours, _) => format!("{hours} h {} min", minutes % 60),
        (days, ..) => format!("{days} d {} h", hours % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pipeline() -> Pipeline {
        Pipeline {
            pipeline: "main".into(),
            slot: "walpost_main".into(),
            checkpoint_lsn: "0/10".into(),
            checkpoint_age_seconds: 1_238.9,
            slot_confirmed_lsn: Some("0/8".into()),
            slot_restart_lsn: Some("0/8".into()),
            unconfirmed_bytes: Some(0),
            retained_bytes: Some(2_048),
            wal_status: Some("reserved".into()),
            invalidation_bytes: Some(1 << 30),
            budget_bytes: Some(4_096),
            budget_percent: Some(50),
            budget_set_by: Some("wal_budget_bytes"),
            walsender_pid: Some(16_504),
            parked_open: 1_234,
            parked_held: 34,
            parked_done: 0,
            proven_age_seconds: Some(2.5),
            proven_lsn: Some("0/10".into()),
            recovery: None,
            switching_to: None,
        }
    }

    fn text(pipeline: Pipeline) -> String {
        let report = Report {
            database: "d".into(),
            pipelines: vec![pipeline],
            outboxes: vec![],
            polled: None,
            deliveries: None,
        };
        as_text(&report, "")
    }

    #[test]
    fn an_idle_pipeline_is_well_and_names_no_process_of_the_server() {
        let text = text(pipeline());
        assert!(text.contains("  read  "), "{text}");
        assert!(text.contains("20 min 38 s ago"), "{text}");
        assert!(text.contains("2.0 KiB          1,234"), "{text}");
        assert!(!text.contains("16504") && !text.contains("main: "), "{text}");
    }

    #[test]
    fn the_budget_has_its_line_and_its_lack_too() {
        let line = "WAL budget (main) 50 %: 2.0 KiB of 4.0 KiB, by wal_budget_bytes; after 1.0 GiB \
                    more the server may give the slot up\n";
        assert!(text(pipeline()).contains(line), "{}", text(pipeline()));
        let none = Pipeline { budget_bytes: None, invalidation_bytes: None, ..pipeline() };
        assert!(text(none).contains("WAL budget (main) none: set pipeline.wal_budget_bytes"));
    }

    #[test]
    fn a_slot_that_keeps_nothing_has_its_budget_all_the_same() {
        let server = || Pipeline {
            retained_bytes: None,
            invalidation_bytes: None,
            budget_percent: None,
            budget_set_by: Some("max_slot_wal_keep_size"),
            ..pipeline()
        };
        let lost = Pipeline { wal_status: Some("lost".into()), ..server() };
        let missing = Pipeline { wal_status: None, walsender_pid: None, ..server() };
        for (pipeline, why) in [(lost, "the slot is lost, and"), (missing, "there is no slot")] {
            let text = text(pipeline);
            let line = format!("WAL budget (main) 4.0 KiB, by max_slot_wal_keep_size: {why}");
            assert!(text.contains(&line), "{text}");
            assert!(!text.contains("none: set"), "{text}");
        }
    }

    #[test]
    fn what_is_proven_has_its_line_and_a_recovery_is_on_it() {
        let line = "proven (main) every row of 2 s ago is published or parked\n";
        assert!(text(pipeline()).contains(line), "{}", text(pipeline()));
        let asked = Pipeline { recovery: Some("requested"), ..pipeline() };
        assert!(text(asked).contains("parked; the next start replaces the slot\n"));
        let none = Pipeline { proven_age_seconds: None, ..pipeline() };
        assert!(text(none).contains("proven (main) nothing yet\n"));
    }

    #[test]
    fn a_slot_that_is_gone_or_not_read_or_stalled_is_told() {
        let missing = Pipeline { wal_status: None, walsender_pid: None, ..pipeline() };
        let unread = Pipeline { walsender_pid: None, ..pipeline() };
        let stalled = Pipeline { unconfirmed_bytes: Some(STALLED_BYTES), ..pipeline() };
        for (pipeline, parts) in [
            (missing, ["MISSING", "main: slot walpost_main is gone"]),
            (unread, ["NOT READ", "keeps 2.0 KiB of WAL; start `walpost run`"]),
            (
                stalled,
                ["STALLED", "32.0 KiB of WAL are unconfirmed while the last checkpoint is 20"],
            ),
        ] {
            let text = text(pipeline);
            assert!(parts.iter().all(|part| text.contains(part)), "{text}");
        }
        let busy = Pipeline {
            unconfirmed_bytes: Some(1 << 30),
            checkpoint_age_seconds: 0.4,
            ..pipeline()
        };
        assert_eq!(health(&busy), Health::Read);
    }

    #[test]
    fn a_switch_that_is_under_way_is_told_instead_of_its_slot() {
        let switching =
            Pipeline { switching_to: Some("wal".into()), wal_status: None, ..pipeline() };
        let text = text(switching);
        assert!(text.contains("main: the source is being switched"), "{text}");
        assert!(text.contains("`walpost source switch --to wal`"), "{text}");
        assert!(!text.contains("is gone"), "{text}");
    }

    #[test]
    fn durations_have_two_units_at_most() {
        let texts = [-1.0, 59.9, 61.0, 3_660.0, 90_000.0].map(duration);
        assert_eq!(texts, ["0 s", "59 s", "1 min 1 s", "1 h 1 min", "1 d 1 h"]);
    }
}
