//! Asks the relay that runs to send parked events on, or to discard them.
//!
//! The command marks rows and sends nothing itself: only the relay knows what
//! is on its way, and which events have to wait.

use std::collections::{BTreeMap, BTreeSet};

use tokio_postgres::{Client, types::ToSql};

use super::answers;
use crate::{
    command::sql,
    config::{Config, ConfigArgs},
    failure::{Exit, Failure},
    output,
};

/// Numbers that a line of text names.
const NAMED_MAX: usize = 10;

/// Which events.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Their numbers in the list
    #[arg(
        required_unless_present_any = ["all", "aggregate"],
        conflicts_with_all = ["all", "aggregate", "pipeline", "reason"],
        num_args = 0..=1_000
    )]
    ids: Vec<i64>,
    /// Those of one aggregate; - for an event without a type
    #[arg(long, value_name = "TYPE/ID", conflicts_with = "all", value_parser = type_and_id)]
    aggregate: Option<(String, String)>,
    /// All of them
    #[arg(long)]
    all: bool,
    /// Of this pipeline alone
    #[arg(long)]
    pipeline: Option<String>,
    /// Parked for this reason alone
    #[arg(long, value_parser = ["unroutable", "oversize", "rejected", "undecodable", "no_topic", "behind"])]
    reason: Option<String>,
    /// At most so many, the oldest first
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    limit: u32,
    /// Only say which
    #[arg(long)]
    dry_run: bool,
    /// How long to wait for the relay to have done it; 0 for not at all
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u32).range(..=3_600))]
    wait_seconds: u32,
    /// Print one JSON object a line
    #[arg(long)]
    pub(super) json: bool,
}

fn type_and_id(text: &str) -> Result<(String, String), String> {
    let (kind, id) = text.split_once('/').ok_or("an aggregate is TYPE/ID")?;
    Ok((kind.to_owned(), id.to_owned()))
}

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    Retry {
        /// Whether the relay reads the event from the outbox table.
        from_table: bool,
    },
    /// Whether a filter will do instead of numbers.
    Discard { yes: bool },
}

impl Wish {
    fn as_str(self) -> &'static str {
        match self {
            Self::Retry { .. } => "retry",
            Self::Discard { .. } => "discard",
        }
    }
}

/// A row that was chosen.
pub(super) struct Chosen {
    pub(super) id: i64,
    pub(super) pipeline: String,
    state: String,
    /// It only waits for an earlier one.
    pub(super) behind: bool,
    left_out: bool,
    /// The first of its aggregate that is neither sent on nor discarded.
    first: Option<i64>,
}

pub(super) async fn run(config: &ConfigArgs, args: &Args, wish: Wish) -> Result<(), Failure> {
    let config = Config::load(config)?;
    check(args, wish)?;
    let schema = config.settings.pipeline.schema.clone();
    let client = sql::connect_to_ask(&config.database()?).await?;
    let table = Table { client, schema };
    let (chosen, more) = table.choose(args, wish).await?;
    if more {
        output::note(format_args!("there are more than {}; see --limit", args.limit));
    }
    if chosen.is_empty() {
        if !args.json {
            output::print("nothing of the kind is parked\n")?;
        }
        return Ok(());
    }
    if args.dry_run {
        return answers::would_ask(&chosen, wish.as_str(), args.json);
    }
    table.mark(&chosen, wish).await?;
    let pipelines: BTreeSet<&str> = chosen.iter().map(|one| &*one.pipeline).collect();
    let pipelines = pipelines.into_iter().collect::<Vec<_>>().join(", ");
    output::note(format_args!(
        "asked the relay of {pipelines} to {} {}; waiting up to {} s until it has",
        wish.as_str(),
        answers::events(chosen.len()),
        args.wait_seconds
    ));
    let answers = answers::wait(&table, &chosen, args.wait_seconds).await?;
    answers::print(&answers, args.json, args.wait_seconds > 0)
}

fn check(args: &Args, wish: Wish) -> Result<(), Failure> {
    let refused = |text: &str, next_step: &str| {
        Err(Failure::found(Exit::Configuration, text).next_step(next_step))
    };
    match wish {
        Wish::Discard { yes: false } if args.ids.is_empty() && !args.dry_run => refused(
            "discarding by a filter is for good and needs --yes",
            "look with --dry-run first, then add --yes, or name the events by their numbers",
        ),
        Wish::Retry { .. } if args.reason.as_deref() == Some("behind") => refused(
            "events that wait behind others are sent on by themselves, once those are",
            "retry or discard the ones that they wait for: see `walpost parked list`",
        ),
        _ => Ok(()),
    }
}

/// The table of parked events.
pub(super) struct Table {
    pub(super) client: Client,
    schema: String,
}

impl Table {
    pub(super) fn name(&self) -> String {
        format!("{}.parked", sql::quoted(&self.schema))
    }

    pub(super) fn failed(&self) -> impl Fn(tokio_postgres::Error) -> Failure {
        let (schema, table) = (self.schema.clone(), self.name());
        move |error| match error.code().map(|code| code.code()) {
            Some("42501") => Failure::postgres(error)
                .context("asking for parked events failed")
                .next_step(format!(
                    "let an owner run `grant usage on schema {} to` and `grant select, update on \
                     {table} to` this role",
                    sql::quoted(&schema)
                )),
            _ => sql::failed(&schema, None)(error),
        }
    }

    /// The rows that are meant, and whether there are more of them.
    async fn choose(&self, args: &Args, wish: Wish) -> Result<(Vec<Chosen>, bool), Failure> {
        if args.ids.is_empty() {
            let mut chosen = self.filtered(args, wish).await?;
            let more = chosen.len() > args.limit as usize;
            chosen.truncate(args.limit as usize);
            return Ok((chosen, more));
        }
        let found = self.named(&args.ids).await?;
        for id in &args.ids {
            let Some(one) = found.get(id) else {
                let text = format!("no parked event has number {id}");
                return Err(Failure::found(Exit::Running, &text)
                    .next_step("see the numbers with `walpost parked list --all`"));
            };
            one.may_be_asked_for(wish, &found)?;
        }
        Ok((found.into_values().collect(), false))
    }

    async fn filtered(&self, args: &Args, wish: Wish) -> Result<Vec<Chosen>, Failure> {
        // What waits behind others follows them by itself; what was left out can be sent from the
        // table alone.
        let may_be = match wish {
            Wish::Retry { from_table: true } => "reason <> 'behind'",
            Wish::Retry { from_table: false } => {
                "reason <> 'behind' and num_nonnulls(topic, row_columns, message_content) > 0"
            }
            Wish::Discard { .. } => "true",
        };
        let text = format!(
            "select id, pipeline, state, reason = 'behind', false, null::bigint from {} \
             where state = 'open' and {may_be} and ($1::text is null or pipeline = $1) \
                 and ($2::text is null or reason = $2) \
                 and ($4::text is null or aggregate_id = $4 \
                     and (aggregate_type = $3 or $3 = '-' and aggregate_type is null)) \
             order by id limit $5",
            self.name()
        );
        let (kind, id) = args.aggregate.as_ref().map(|(kind, id)| (kind, id)).unzip();
        let limit = i64::from(args.limit) + 1;
        let rows = self
            .client
            .query(&text, &[&args.pipeline, &args.reason, &kind, &id, &limit])
            .await
            .map_err(self.failed())?;
        Ok(rows.iter().map(chosen).collect())
    }

    async fn named(&self, ids: &[i64]) -> Result<BTreeMap<i64, Chosen>, Failure> {
        let text = format!(
            "select p.id, p.pipeline, p.state, p.reason = 'behind', \
                 num_nonnulls(topic, row_columns, message_content) = 0, ( \
                     select f.id from {table} f where f.pipeline = p.pipeline \
                     and f.state in ('open', 'sending') and f.aggregate_id = p.aggregate_id \
                     and hashtextextended(f.aggregate_id, 0) = hashtextextended(p.aggregate_id, 0) \
                     and f.aggregate_type is not distinct from p.aggregate_type \
                     order by f.generation = p.generation, f.commit_lsn, f.ordinal limit 1) \
             from {table} p where p.id = any($1)",
            table = self.name()
        );
        let rows = self.client.query(&text, &[&ids]).await.map_err(self.failed())?;
        Ok(rows.iter().map(chosen).map(|one| (one.id, one)).collect())
    }

    async fn mark(&self, chosen: &[Chosen], wish: Wish) -> Result<(), Failure> {
        // One that only waits is sent on behind the one that is asked for.
        let discards = matches!(wish, Wish::Discard { .. });
        let marked = chosen.iter().filter(|one| discards || !one.follows());
        let ids: Vec<i64> = marked.map(|one| one.id).collect();
        let text = format!(
            "update {} set requested = $2, requested_at = clock_timestamp(), \
             retry_from_table = $3, updated_at = clock_timestamp() where id = any($1) and state = 'open'",
            self.name()
        );
        let from_table = wish == (Wish::Retry { from_table: true });
        let parameters: [&(dyn ToSql + Sync); 3] = [&ids, &wish.as_str(), &from_table];
        self.client.execute(&text, &parameters).await.map_err(self.failed())?;
        Ok(())
    }
}

fn chosen(row: &tokio_postgres::Row) -> Chosen {
    Chosen {
        id: row.get(0),
        pipeline: row.get(1),
        state: row.get(2),
        behind: row.get(3),
        left_out: row.get(4),
        first: row.get(5),
    }
}

impl Chosen {
    /// Whether it waits for another one.
    pub(super) fn follows(&self) -> bool {
        self.behind && self.first.is_some_and(|first| first != self.id)
    }

    fn may_be_asked_for(&self, wish: Wish, together: &BTreeMap<i64, Self>) -> Result<(), Failure> {
        let id = self.id;
        let refused = |text: String, next_step: String| {
            Err(Failure::found(Exit::Running, &text).next_step(next_step))
        };
        match (&*self.state, wish) {
            ("done", _) => refused(
                format!("event {id} was sent on already"),
                "see what is open with `walpost parked list`".to_owned(),
            ),
            ("discarded", _) => refused(
                format!("event {id} was discarded"),
                "see what is open with `walpost parked list`".to_owned(),
            ),
            ("sending", Wish::Discard { .. }) => refused(
                format!("event {id} is being sent on"),
                format!("see with `walpost parked show {id}` what becomes of it"),
            ),
            (_, Wish::Retry { from_table: false }) if self.left_out => refused(
                format!("nothing of the contents of event {id} was kept, so it cannot be sent on"),
                format!(
                    "set a max_event_bytes that takes it, restart the relay and run `walpost parked \
                     retry --from-table {id}`; if its row is gone from the outbox table, insert it \
                     again and run `walpost parked discard {id}`"
                ),
            ),
            (_, Wish::Retry { .. }) if self.follows() && !self.leads(together) => {
                let first = self.first.unwrap_or_default();
                refused(
                    format!("event {id} waits behind event {first} of its aggregate"),
                    format!("retry or discard {first}; {id} follows by itself"),
                )
            }
            _ => Ok(()),
        }
    }

    /// Whether the one that it waits for is among these.
    fn leads(&self, together: &BTreeMap<i64, Self>) -> bool {
        self.first.is_some_and(|first| together.contains_key(&first))
    }
}

/// Numbers for one line.
pub(super) fn numbers(ids: impl Iterator<Item = i64>) -> String {
    let ids: Vec<String> = ids.map(|id| id.to_string()).collect();
    match ids.len().checked_sub(NAMED_MAX) {
        None | Some(0) => ids.join(", "),
        Some(more) => format!("{} and {more} more", ids[..NAMED_MAX].join(", ")),
    }
}
