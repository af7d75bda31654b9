//! Asks the members that own the partitions to retry parked events, or to
//! discard them: only the owner can make an effect once.

use super::{OF, Parked, Place, Which, answers, events};
use crate::{
    command::sql,
    failure::{Exit, Failure},
    output,
};

/// Which events.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Their numbers in the list
    #[arg(
        required_unless_present_any = ["all", "consumer", "topic", "key"],
        conflicts_with_all = ["all", "consumer", "topic", "key"],
        num_args = 0..=1_000
    )]
    ids: Vec<i64>,
    #[command(flatten)]
    which: Which,
    /// All that are parked
    #[arg(long)]
    all: bool,
    /// At most so many, the oldest first
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    limit: u32,
    /// Only say which
    #[arg(long)]
    dry_run: bool,
    /// Who asks, for the record; the role of the connection unless given
    #[arg(long, value_name = "NAME")]
    by: Option<String>,
    /// How long to wait for the consumer to have done it; 0 for not at all
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u32).range(..=3_600))]
    wait_seconds: u32,
    /// Print one JSON object a line
    #[arg(long)]
    pub(super) json: bool,
}

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    Retry,
    /// Whether a filter will do instead of numbers.
    Discard {
        yes: bool,
    },
}

impl Wish {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Retry => "retry",
            Self::Discard { .. } => "discard",
        }
    }
}

pub(super) async fn run(place: &Place, args: &Args, wish: Wish) -> Result<(), Failure> {
    if wish == (Wish::Discard { yes: false }) && args.ids.is_empty() && !args.dry_run {
        let text = "discarding by a filter is for good and needs --yes";
        return Err(Failure::found(Exit::Configuration, text).next_step(
            "look with --dry-run first, then add --yes, or name the events by their numbers",
        ));
    }
    let client = sql::connect_to_ask(&place.database).await?;
    let parked = Parked { client, schema: place.schema.clone() };
    let ids =
        if args.ids.is_empty() { parked.filtered(args, wish).await? } else { args.ids.clone() };
    if ids.is_empty() {
        return if args.json { Ok(()) } else { output::print("no event of the kind is parked\n") };
    }
    if args.dry_run {
        return answers::would_ask(&ids, wish.as_str(), args.json);
    }
    let asked = parked.ask(&ids, wish, args.by.as_deref()).await?;
    answers::refused(&asked, wish)?;
    output::note(format_args!(
        "asked for {} to be {}; waiting up to {} s for it",
        events(asked.len()),
        match wish {
            Wish::Retry => "retried",
            Wish::Discard { .. } => "discarded",
        },
        args.wait_seconds
    ));
    let outcomes = answers::wait(&parked, &asked, args.wait_seconds).await?;
    answers::print(&outcomes, args.json, args.wait_seconds > 0)
}

/// What was answered about an event.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    pub(super) id: i64,
    pub(super) answer: String,
}

impl Parked {
    async fn filtered(&self, args: &Args, wish: Wish) -> Result<Vec<i64>, Failure> {
        // What waits behind others follows them by itself.
        let may_be = match wish {
            Wish::Retry => "event_id is not null",
            Wish::Discard { .. } => "true",
        };
        let text = format!(
            "select id from {} where {OF} and state = 'parked' and {may_be} order by id limit $4",
            self.name()
        );
        let Which { consumer, topic, key } = &args.which;
        let limit = i64::from(args.limit) + 1;
        let rows = self.client.query(&text, &[consumer, topic, key, &limit]).await;
        let mut ids: Vec<i64> = rows.map_err(self.failed())?.iter().map(|row| row.get(0)).collect();
        if ids.len() > args.limit as usize {
            ids.truncate(args.limit as usize);
            output::note(format_args!("there are more than {}; see --limit", args.limit));
        }
        Ok(ids)
    }

    async fn ask(&self, ids: &[i64], wish: Wish, by: Option<&str>) -> Result<Vec<Asked>, Failure> {
        let text = format!(
            "select id, answer from {}.request_parked($1, $2, coalesce($3, current_user))",
            sql::quoted(&self.schema)
        );
        let rows = self.client.query(&text, &[&ids, &wish.as_str(), &by]).await;
        let asked = |row: &tokio_postgres::Row| Asked { id: row.get(0), answer: row.get(1) };
        Ok(rows.map_err(self.failed())?.iter().map(asked).collect())
    }
}
