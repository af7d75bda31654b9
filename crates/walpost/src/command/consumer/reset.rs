//! Offsets are reset in the database, which counts; Kafka follows.

use jiff::Timestamp;
use tokio_postgres::Client;

use super::{
    Place, Which,
    choose::{self, Choice, Filter},
    cluster::{Cluster, NotCommitted},
    kafka_failed,
    plan::{Made, Plan, told, told_done},
    stored::{self, Position},
    sync::{self, Compared, Held},
    target::{Mode, Standing, Target, check},
};
use crate::{
    command::{instant::instant, replay::asked_from, sql},
    config::Config,
    failure::{Exit, Failure},
    output,
};

/// Longest wait for an owner that holds a partition in a batch, in milliseconds.
const LOCK_TIMEOUT_MS: u32 = 10_000;
/// Longest count of effects, in milliseconds: it reads the table done.
const COUNT_TIMEOUT_MS: u32 = 600_000;

/// Where to, and what becomes of the events in between.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    to: To,
    /// What is done with the events in between
    #[arg(long, value_enum, default_value_t)]
    mode: Mode,
    /// Run again events of this type alone; may be given several times
    #[arg(long = "event-type", value_name = "TYPE")]
    types: Vec<String>,
    /// Run again events of this aggregate alone, the record key; may be given several times
    #[arg(long, value_name = "KEY")]
    aggregate: Vec<String>,
    /// With --event-type or --aggregate: refuse when more events match
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    max: u32,
    /// Most effects a second until the consumer is back where it was
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(1..=1_000_000))]
    events_per_second: Option<i32>,
    /// Why, for those who read the table consumer_reset
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Do it; without it the command says what would be done
    #[arg(long)]
    yes: bool,
    /// Print one JSON object a line
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
struct To {
    /// To the oldest record
    #[arg(long)]
    to_earliest: bool,
    /// To the end
    #[arg(long)]
    to_latest: bool,
    /// To this offset
    #[arg(long, value_name = "OFFSET")]
    to_offset: Option<i64>,
    /// To the first record of this time or later, as 2026-05-01T12:00Z; UTC without an offset
    #[arg(long, value_name = "TIME", value_parser = instant)]
    to_time: Option<Timestamp>,
    /// So many offsets forward, or back with a minus
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    shift_by: Option<i64>,
}

impl To {
    fn target(&self) -> Target {
        match (self.to_earliest, self.to_offset, self.shift_by, &self.to_time) {
            (true, ..) => Target::Earliest,
            (_, Some(offset), ..) => Target::Offset(offset),
            (_, _, Some(by), _) => Target::ShiftBy(by),
            (.., Some(_)) => Target::Time,
            _ => Target::Latest,
        }
    }
}

pub(super) async fn run(config: &Config, place: &Place, args: &Args) -> Result<(), Failure> {
    let filter = Filter::new(&args.types, &args.aggregate);
    if filter.is_some() && args.mode != Mode::Rerun {
        let text = "--event-type and --aggregate choose events to be run again";
        return Err(Failure::found(Exit::Configuration, text).next_step("leave --mode out"));
    }
    if args.mode == Mode::Skip && args.events_per_second.is_some() {
        let text = "--events-per-second is for events that are applied, and skip applies none";
        return Err(Failure::found(Exit::Configuration, text).next_step("leave it out"));
    }
    let cluster = Cluster::of(config)?;
    let client = sql::connect(&place.database).await?;
    let limits = format!(
        "set lock_timeout = {LOCK_TIMEOUT_MS}; set statement_timeout = {COUNT_TIMEOUT_MS}; \
         set timezone = 'UTC'"
    );
    client.batch_execute(&limits).await.map_err(Failure::postgres)?;
    let time_ms = args.to.to_time.map(Timestamp::as_millisecond);
    if let Some(time) = args.to.to_time {
        output::note(format_args!("--to-time is {time}"));
    }
    let stored = stored::chosen(&client, place, &args.which).await?;
    can_tell(&client, place, args).await?;
    let compared = sync::compare(&client, place, &cluster, stored, time_ms).await?;
    if let Some(to_come) = compared.iter().find(|one| one.held == Held::Pending) {
        return Err(sync::to_come(to_come));
    }
    let targets = targets(&compared, args)?;
    let mut plans = Vec::new();
    for (of, to) in compared.into_iter().zip(targets) {
        let from = of.stored.next_offset.unwrap_or_default();
        let choice = match &filter {
            Some(filter) => {
                let left = args.max as usize - choose::count(plans.iter().filter_map(choice_of));
                let range = to..from.min(of.log.high);
                let chosen =
                    choose::choose(&client, place, &cluster, &of.stored, range, filter, left);
                Some(chosen.await?)
            }
            None => None,
        };
        let (to, made) = match &choice {
            // From the first event that matches on.
            Some(choice) => (choice.offsets.iter().copied().min().unwrap_or(from), Made::default()),
            None => (to, made(&client, place, &of.stored, to).await?),
        };
        plans.push(Plan { of, from, to, made, choice });
    }
    if plans.iter().all(Plan::is_empty) {
        return Err(nothing_to_do(filter.is_some()));
    }
    if !args.yes {
        output::print(told(&plans, args.mode, args.json))?;
        output::note("nothing was done; --yes does it");
        return Ok(());
    }
    execute(&client, place, &cluster, &plans, filter.as_ref(), args).await
}

/// Effects are made again only where those of before can be told.
async fn can_tell(client: &Client, place: &Place, args: &Args) -> Result<(), Failure> {
    let guard = stored::guard(client, &place.schema, &args.which.name).await?;
    let Some(guard) = guard.filter(|guard| guard != "rows" && args.mode == Mode::Rerun) else {
        return Ok(());
    };
    let guard = if guard == "redis" { "key in Redis" } else { &guard };
    let text = format!(
        "consumer {} has a {guard} as its guard, which does not tell effects of an earlier run",
        args.which.name
    );
    Err(Failure::found(Exit::Configuration, &text)
        .next_step("take --mode fill, which makes what is missing; events cannot be chosen"))
}

fn choice_of(plan: &Plan) -> Option<&Choice> {
    plan.choice.as_ref()
}

/// Each partition's new offset, all of them or none.
fn targets(compared: &[Compared], args: &Args) -> Result<Vec<i64>, Failure> {
    let target = args.to.target();
    let of = |one: &Compared| {
        let (stored, log) = (&one.stored, &one.log);
        let next = stored.next_offset.unwrap_or_default();
        let standing = Standing { next, low: log.low, high: log.high, at_time: log.at_time };
        let place = format!("{}[{}]", stored.topic, stored.partition);
        let refused = |step: &'static str| {
            let place = place.clone();
            move |problem: String| {
                let text = format!("{place}: {problem}");
                Failure::found(Exit::Configuration, &text).next_step(step)
            }
        };
        let to = target.resolve(standing).map_err(refused(
            "name an offset of that range, or the partitions that have it with --topic and \
             --partition",
        ))?;
        check(args.mode, next, to).map_err(refused(
            "take --mode skip to go forward, rerun or fill to go back, and name the partitions \
             that go the same way with --topic and --partition",
        ))?;
        Ok(to)
    };
    compared.iter().map(of).collect()
}

/// Effects that the partition has made of records from `to` on, and what is parked of them, which
/// is remembered as well and has no effect.
async fn made(client: &Client, place: &Place, of: &Position, to: i64) -> Result<Made, Failure> {
    let s = sql::quoted(&place.schema);
    let query = format!(
        "select (select count(*) from {s}.done d where d.pos_id = $1 and d.off >= $2 \
         and not exists (select from {s}.consumer_parked p where p.pos_id = $1 \
         and p.off = d.off)), (select count(distinct p.off) from {s}.consumer_parked p \
         where p.pos_id = $1 and p.off >= $2 and p.off < $3)"
    );
    let row = client.query_one(&query, &[&of.id, &to, &of.next_offset]).await;
    let row = row.map_err(stored::failed(&place.schema))?;
    Ok(Made { effects: row.get(0), parked: row.get(1) })
}

async fn execute(
    client: &Client,
    place: &Place,
    cluster: &Cluster,
    plans: &[Plan],
    filter: Option<&Filter>,
    args: &Args,
) -> Result<(), Failure> {
    let mut done: Vec<Compared> = Vec::new();
    let mut failed = None;
    for plan in plans.iter().filter(|plan| !plan.is_empty()) {
        match reset(client, place, plan, filter, args).await {
            Ok(reset) => done.push(reset),
            Err(failure) => {
                failed = Some(failure);
                break;
            }
        }
    }
    output::print(told_done(&done, plans, args.mode, args.json))?;
    let moves: Vec<&Compared> = done.iter().collect();
    let synced = sync::sync(client, place, cluster, &moves).await;
    match (failed, synced) {
        (Some(failure), _) => Err(failure),
        (None, Ok(())) => Ok(()),
        // Its owners find out at their next batch or look, and commit.
        (None, Err(NotCommitted::HasMembers)) => {
            output::note(
                "the group has members, which go on from there within seconds; a partition that is \
                 halted goes on after a restart",
            );
            Ok(())
        }
        (None, Err(NotCommitted::Failed(text))) => Err(kafka_failed(&text)
            .context("the reset is done, and the group's offset in Kafka is still the old one")
            .next_step(format!(
                "nothing is lost by that; before Kafka's own tools are used, run `walpost \
                 consumer sync-offsets {} --yes`",
                args.which.name
            ))),
    }
}

/// One partition, one transaction. What Kafka holds and the row does not know goes
/// with it, so that it is not taken for another reset if we die before the commit.
async fn reset(
    client: &Client,
    place: &Place,
    plan: &Plan,
    filter: Option<&Filter>,
    args: &Args,
) -> Result<Compared, Failure> {
    let stored = &plan.of.stored;
    let is_unknown = matches!(plan.of.held, Held::Unmarked | Held::Newer);
    let seen = plan.of.log.committed.offset.filter(|_| is_unknown);
    let (mode, chosen, chosen_by) = match (&plan.choice, filter) {
        (Some(choice), Some(filter)) => ("chosen", Some(&choice.offsets), Some(filter.to_string())),
        _ => (plan.mode(args.mode), None, None),
    };
    let statement = format!(
        "select reset_id::text, to_offset, run, epoch \
         from {}.operator_reset($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)",
        sql::quoted(&place.schema)
    );
    let row = client
        .query_one(
            &statement,
            &[
                &stored.consumer,
                &stored.topic,
                &stored.partition,
                &plan.to,
                &mode,
                &chosen,
                &chosen_by,
                &args.events_per_second,
                &seen,
                &asked_from(),
                &args.reason,
            ],
        )
        .await
        .map_err(|error| failed(place, error))?;
    let stored = Position {
        reset_id: row.get(0),
        next_offset: row.get(1),
        run: row.get(2),
        epoch: row.get(3),
        ..stored.clone()
    };
    Ok(Compared { stored, log: plan.of.log.clone(), held: plan.of.held })
}

fn failed(place: &Place, error: tokio_postgres::Error) -> Failure {
    if error.code().is_some_and(|code| code.code() == "WP005") {
        return Failure::running(error)
            .context("the partition has moved since it was looked at, and was not reset")
            .next_step("look again, without --yes");
    }
    let is_denied = error.code().is_some_and(|code| code.code() == "42501");
    let failure = stored::failed(&place.schema)(error);
    if !is_denied {
        return failure;
    }
    failure.next_step(
        "grant the role what docs/consumer.md lists for operators, or run it as the owner of the \
         tables",
    )
}

fn nothing_to_do(is_chosen: bool) -> Failure {
    let text = match is_chosen {
        true => "no event in the range matches",
        false => "every partition is there already",
    };
    Failure::found(Exit::Nothing, text)
        .next_step("see where the partitions are with `walpost consumer show`")
}
