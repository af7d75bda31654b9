//! Effects that need no longer be remembered.

use serde_json::json;
use tokio_postgres::Client;
use walpost_consumer::Retention;

use super::{
    Place, Which,
    cluster::Cluster,
    kafka_failed,
    stored::{self, Position},
    sync::{self, Compared},
};
use crate::{
    command::sql,
    config::Config,
    failure::{Exit, Failure},
    output,
    table::thousands,
};

/// Pages of done that one transaction looks at: 2 MiB.
const PAGES: i32 = 256;
/// Longest count, in milliseconds: it reads the table done.
const COUNT_TIMEOUT_MS: u32 = 600_000;

/// Which effects.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Name of the consumer
    name: String,
    /// Effects that were made so many days ago, of records that the topic no longer holds
    #[arg(long, value_name = "DAYS", value_parser = clap::value_parser!(u32).range(1..=36_500))]
    older_than: u32,
    /// How many days after an event copies of it may be published, as by a replay; without it
    /// retention.keep_days and retention.archive_days together
    #[arg(long, value_name = "DAYS", value_parser = clap::value_parser!(u32).range(..=36_500))]
    replay_days: Option<u32>,
    /// Also where a copy of an event may still be read, which then takes effect once more
    #[arg(long)]
    accept_duplicates: bool,
    /// Have them forgotten; without it they are counted
    #[arg(long)]
    yes: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(super) json: bool,
}

/// What may leave, for the statements: positions, their oldest offsets, days.
struct Old {
    ids: Vec<i32>,
    lows: Vec<i64>,
    days: f64,
}

pub(super) async fn run(config: &Config, place: &Place, args: &Args) -> Result<(), Failure> {
    let cluster = Cluster::of(config)?;
    let client = sql::connect(&place.database).await?;
    let limit = format!("set statement_timeout = {COUNT_TIMEOUT_MS}");
    client.batch_execute(&limit).await.map_err(Failure::postgres)?;
    let which = Which { name: args.name.clone(), topic: None, partitions: Vec::new() };
    let stored = stored::chosen(&client, place, &which).await?;
    check(config, &cluster, &stored, args).await?;
    let compared = sync::compare(&client, place, &cluster, stored, None).await?;
    let of = |one: &Compared| (one.stored.id, one.log.low);
    let (ids, lows) = compared.iter().map(of).unzip();
    let old = Old { ids, lows, days: args.older_than.into() };
    let effects = match args.yes {
        true => prune(&client, place, args, &old).await?,
        false => count(&client, place, args, &old).await?,
    };
    if args.json {
        return output::print(format_args!(
            "{}\n",
            json!({ "done": args.yes, "effects": effects })
        ));
    }
    let effects = thousands(effects);
    output::print(match args.yes {
        true => format!("{effects} effects are forgotten\n"),
        false => {
            format!("{effects} effects would be forgotten\nnothing was done; --yes does it\n")
        }
    })
}

/// Whether a copy of what leaves may still come.
async fn check(
    config: &Config,
    cluster: &Cluster,
    stored: &[Position],
    args: &Args,
) -> Result<(), Failure> {
    let mut topics: Vec<String> = stored.iter().map(|one| one.topic.clone()).collect();
    topics.dedup();
    let kept = cluster.kept(topics).await.map_err(|error| kafka_failed(&error))?;
    let replay_days = match args.replay_days {
        Some(days) => days,
        None => {
            let retention = config.retention()?;
            retention.keep_days.saturating_add(retention.archive_days)
        }
    };
    let mut retention = Retention::days(args.older_than).replay_days(replay_days);
    if args.accept_duplicates {
        retention = retention.accept_duplicates();
    }
    retention.check(&kept).map_err(|problem| {
        Failure::found(Exit::Configuration, &problem).next_step(
            "raise --older-than; say with --replay-days how far back outbox and archive are \
             replayed; or take --accept-duplicates",
        )
    })
}

async fn count(client: &Client, place: &Place, args: &Args, old: &Old) -> Result<u64, Failure> {
    let s = sql::quoted(&place.schema);
    let query = format!(
        "select count(*) from {s}.done d \
         where d.consumer = $1 and d.at < now() - $4 * interval '1 day' \
         and (d.off < (select o.low from unnest($2::int[], $3::bigint[]) o (id, low) \
                       where o.id = d.pos_id) \
              or not exists (select from {s}.position q where q.id = d.pos_id))"
    );
    let row = client.query_one(&query, &[&args.name, &old.ids, &old.lows, &old.days]).await;
    let count: i64 = row.map_err(stored::failed(&place.schema))?.get(0);
    Ok(count.unsigned_abs())
}

/// Once over the table, a transaction for each piece.
async fn prune(client: &Client, place: &Place, args: &Args, old: &Old) -> Result<u64, Failure> {
    let statement = format!(
        "select {}.prune_done($1, $2, $3, now() - $4 * interval '1 day', $5, $6)",
        sql::quoted(&place.schema)
    );
    let (mut page, mut pruned) = (0_i64, 0);
    loop {
        let Old { ids, lows, days } = old;
        let row = client.query_one(&statement, &[&args.name, ids, lows, days, &page, &PAGES]).await;
        let row = row.map_err(stored::failed(&place.schema))?;
        let Some(rows) = row.get::<_, Option<i64>>(0) else { return Ok(pruned) };
        pruned += rows.unsigned_abs();
        page += i64::from(PAGES);
    }
}
