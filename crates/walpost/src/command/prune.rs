use std::time::{Duration, Instant};

use serde_json::{Value, json};
use walpost_relay::{Pruned, RetentionConfig, prunable, prunable_parked, prune, prune_parked};

use crate::{
    command::connector,
    config::ConfigArgs,
    failure::Failure,
    output,
    table::{Table, thousands},
};

/// Between two words about how far it is.
const TELL: Duration = Duration::from_secs(5);

/// Which rows leave is said by the section `[retention]`: those that are older than keep_days and
/// proven to be published or parked by every pipeline that reads the table.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Have them leave; without it they are counted
    #[arg(long)]
    yes: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

pub(crate) async fn run(config: &ConfigArgs, args: &Args) -> Result<(), Failure> {
    let config = connector::load(config).await?;
    let (database, relay, retention) = (config.database()?, config.relay()?, config.retention()?);
    let id_column = config.router()?.event_id;
    let (mut told, mut so_far) = (Instant::now(), Vec::<Pruned>::new());
    let tell = |pruned: &Pruned| {
        so_far.retain(|before| before.table != pruned.table);
        so_far.push(pruned.clone());
        if told.elapsed() >= TELL {
            told = Instant::now();
            let rows = thousands(pruned.rows + pruned.archived_rows);
            output::note(format_args!("{}: {rows} rows so far", pruned.table));
        }
    };
    let tables = match args.yes {
        true => prune(&database, &relay, &id_column, &retention, tell).await,
        false => prunable(&database, &relay, &id_column, &retention).await,
    };
    let settled = match args.yes {
        true => prune_parked(&database, &relay, &id_column, &retention).await,
        false => prunable_parked(&database, &relay, &id_column, &retention).await,
    };
    // Neither keeps the other from its work.
    let mut failure: Option<Failure> = None;
    let mut note = |error| {
        let failed = Failure::of_relay(error, false);
        failure = Some(match failure.take() {
            None => failed,
            Some(before) => before.and(failed),
        });
    };
    let tables = tables.map_err(&mut note).unwrap_or(so_far);
    let settled = settled.map_err(note).ok();
    match failure {
        None if args.json => {
            output::print(format_args!("{}\n", as_json(&tables, settled, args.yes)))
        }
        None => output::print(as_text(&tables, settled, args.yes, &retention)),
        Some(failure) => {
            // What has left nevertheless.
            if !args.json && (!tables.is_empty() || settled > Some(0)) {
                output::print(as_text(&tables, settled, args.yes, &retention))?;
            }
            Err(failure)
        }
    }
}

fn as_json(tables: &[Pruned], settled: Option<u64>, done: bool) -> Value {
    let table = |pruned: &Pruned| {
        let mut json = json!({
            "table": pruned.table.to_string(),
            "rows": pruned.rows,
            "archived_rows": pruned.archived_rows,
            "partitions": pruned.partitions,
            "held_partitions": pruned.held_partitions,
            "archived_partitions": pruned.archived_partitions,
        });
        if done {
            json["busy_partitions"] = json!(pruned.busy_partitions);
        } else {
            json["not_proven"] = json!(pruned.not_proven);
            json["parked"] = json!(pruned.parked);
        }
        json
    };
    json!({
        "done": done,
        "tables": tables.iter().map(table).collect::<Vec<_>>(),
        "parked_settled": settled,
    })
}

fn as_text(
    tables: &[Pruned],
    settled: Option<u64>,
    done: bool,
    retention: &RetentionConfig,
) -> String {
    let has_archive = retention.archive_days > 0;
    let leave = match (done, has_archive) {
        (true, false) => "deleted",
        (true, true) => "archived",
        (false, false) => "to delete",
        (false, true) => "to archive",
    };
    let mut titles = vec!["outbox", leave];
    if has_archive {
        titles.push(if done { "deleted from the archive" } else { "to delete from the archive" });
    }
    if !done {
        titles.extend(["old and not proven", "old and parked"]);
    }
    let mut table = Table::titled(titles).right([1, 2, 3, 4]);
    for pruned in tables {
        let mut cells = vec![pruned.table.to_string(), thousands(pruned.rows)];
        if has_archive {
            cells.push(thousands(pruned.archived_rows));
        }
        if !done {
            cells.extend([thousands(pruned.not_proven), thousands(pruned.parked)]);
        }
        table.row(cells);
    }
    let (days, what) = (retention.parked_days, if done { "deleted" } else { "to delete" });
    let parked = settled.map(thousands).map_or(String::new(), |settled| {
        format!("parked events settled {days} days ago: {settled} {what}\n")
    });
    let hint = if done { "" } else { "nothing was done; --yes does it\n" };
    let partitions: String = tables.iter().map(|pruned| partitions(pruned, done)).collect();
    format!("{table}{partitions}{parked}{hint}")
}

/// What is whole, or is not and might be.
fn partitions(pruned: &Pruned, done: bool) -> String {
    let Pruned { table, partitions, archived_partitions, held_partitions, .. } = pruned;
    let mut told = String::new();
    let mut line = |count: u64, what: &str| {
        if count > 0 {
            told.push_str(&format!("{table}: {what}: {}\n", thousands(count)));
        }
    };
    let (left, left_archive) = match done {
        true => ("partitions that left", "partitions that left the archive"),
        false => ("partitions that would leave", "partitions that would leave the archive"),
    };
    line(*partitions, left);
    line(*archived_partitions, left_archive);
    line(*held_partitions, "old partitions that stay, as a row in each of them may not leave yet");
    line(
        pruned.busy_partitions,
        "old partitions that stay until the next time, as somebody had locked them or the table",
    );
    if pruned.is_not_owner {
        told.push_str(&format!("{table}: rows leave one by one, as the role does not own it\n"));
    }
    told
}
