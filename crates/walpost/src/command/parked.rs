mod answers;
mod ask;
pub(crate) mod contents;

use clap::Subcommand;
use serde_json::{Value, json};
use tokio_postgres::{Client, Row, types::PgLsn};
use walpost_event::Lsn;

pub(crate) use self::contents::{for_terminal, json_for_terminal};
use self::{ask::Wish, contents::Part};
use crate::{
    command::{cells::line, grants::Grants, sql},
    config::{Config, ConfigArgs, SinkKind},
    failure::{Exit, Failure},
    output,
    table::Table,
};

/// Characters of one cell of the list, and of one line of what is shown.
const CELL_MAX_CHARS: usize = 100;
const LINE_MAX_CHARS: usize = 4_096;

/// Which parked events, and what to do.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

impl Args {
    /// Whether the answer is for a program.
    pub(crate) fn json(&self) -> bool {
        match &self.command {
            Command::List { json, .. } | Command::Show { json, .. } => *json,
            Command::Retry { args, .. } => args.json,
            Command::Discard { args, .. } => args.json,
        }
    }
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Lists parked events, the oldest first
    List {
        /// Also those that were sent on or discarded
        #[arg(long)]
        all: bool,
        /// Of this pipeline alone
        #[arg(long)]
        pipeline: Option<String>,
        /// At most so many
        #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
        limit: u32,
        /// Print one JSON object a line
        #[arg(long)]
        json: bool,
    },
    /// Shows one of them
    Show {
        /// Its number in the list
        id: i64,
        /// Also the event itself: key, value, headers, or what there is of it
        #[arg(long)]
        payload: bool,
        /// With --payload: at most so many bytes of each value
        #[arg(long, default_value_t = 4_096, value_parser = clap::value_parser!(u32).range(1..=67_108_864))]
        max_bytes: u32,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Has the relay send them on; those that wait behind them follow
    Retry {
        #[command(flatten)]
        args: ask::Args,
        /// Read the event from its row in the outbox table instead of from the parked row
        #[arg(long)]
        from_table: bool,
    },
    /// Has the relay drop them for good; those that wait behind them are sent on
    Discard {
        #[command(flatten)]
        args: ask::Args,
        /// Discard what a filter finds
        #[arg(long)]
        yes: bool,
    },
}

/// One of them.
struct Parked {
    id: i64,
    fields: Vec<(&'static str, Value)>,
    parts: Option<Vec<Part>>,
}

const COLUMNS: &str = "id, pipeline, state, reason, aggregate_type, aggregate_id, event_id, detail,
    attempts, commit_lsn, ordinal, source, topic, to_char(parked_at at time zone 'utc', 'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"'), requested,
    dead_letter_topic, to_char(dead_letter_at at time zone 'utc', 'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"'), dead_letter_error";
const COLUMNS_COUNT: usize = 18;
/// Those of the table, and the one that is chosen by.
const READ: &str = "id, pipeline, state, reason, aggregate_type, aggregate_id, event_id, detail, \
                    attempts, commit_lsn, ordinal, source, topic, parked_at, requested, \
                    dead_letter_topic, dead_letter_at, dead_letter_error";

pub(crate) async fn run(config: &ConfigArgs, args: &Args) -> Result<(), Failure> {
    match &args.command {
        Command::Retry { args, from_table } => {
            ask::run(config, args, Wish::Retry { from_table: *from_table }).await
        }
        Command::Discard { args, yes } => ask::run(config, args, Wish::Discard { yes: *yes }).await,
        Command::List { .. } | Command::Show { .. } => look(config, &args.command).await,
    }
}

async fn look(config: &ConfigArgs, command: &Command) -> Result<(), Failure> {
    let config = Config::load(config)?;
    let schema = config.settings.pipeline.schema.clone();
    let client = sql::connect_to_look(&config.database()?).await?;
    let table = format!("{}.parked", sql::quoted(&schema));
    let mut grants = Grants::new(&client, &schema).await.map_err(Failure::postgres)?;
    match command {
        Command::List { .. } => grants.select(READ, &table),
        // Its sizes are those of its contents.
        _ => grants.select_all(&table),
    }
    let failed = sql::failed(&schema, Some(grants));
    let is_webhook = config.sink_kind()? == SinkKind::Webhook;
    let no_topics = is_webhook.then_some(&*config.settings.pipeline.name);
    match command {
        Command::Retry { .. } | Command::Discard { .. } => {}
        Command::List { all, pipeline, limit, json } => {
            let text = format!(
                "select {COLUMNS} from {table}
                where ($1 or state in ('open', 'sending')) and ($2::text is null or pipeline = $2)
                order by id limit $3"
            );
            // One more says whether there are more.
            let limit = i64::from(*limit);
            let rows = client.query(&text, &[all, pipeline, &(limit + 1)]).await.map_err(failed)?;
            let mut parked: Vec<Parked> = rows.iter().take(limit as usize).map(read).collect();
            parked.iter_mut().for_each(|one| one.without_topic(no_topics));
            if let (true, Some(name)) = (parked.is_empty(), pipeline) {
                let text = format!("nothing of pipeline {name:?} is parked");
                return Err(Failure::found(Exit::Nothing, &text)
                    .next_step("see what is parked of all of them with `walpost parked list`"));
            }
            output::print(list(&parked, *json))?;
            if rows.len() > parked.len() {
                output::note("there are more; see them with --limit");
            }
        }
        Command::Show { id, payload, max_bytes, json } => {
            let max_bytes = payload.then_some(*max_bytes);
            let found = find(&client, &table, *id, max_bytes).await.map_err(failed)?;
            let Some(mut parked) = found else {
                return Err(Failure::found(
                    Exit::Running,
                    &format!("no parked event has number {id}"),
                )
                .next_step("see the numbers with `walpost parked list --all`"));
            };
            parked.without_topic(no_topics);
            output::print(one(&parked, *json))?;
        }
    }
    Ok(())
}

/// The event of a number, and up to so many bytes of each of its values.
async fn find(
    client: &Client,
    table: &str,
    id: i64,
    max_bytes: Option<u32>,
) -> Result<Option<Parked>, tokio_postgres::Error> {
    let text = format!("select {COLUMNS}, {} from {table} where id = $1", contents::SIZES);
    let Some(row) = client.query_opt(&text, &[&id]).await? else { return Ok(None) };
    let mut parked = read(&row);
    parked.fields.extend(contents::sizes(&row, COLUMNS_COUNT));
    if let Some(max_bytes) = max_bytes {
        let text = format!("select {} from {table} where id = $1", contents::PARTS);
        let limit = i32::try_from(max_bytes).unwrap_or(i32::MAX);
        let row = client.query_opt(&text, &[&id, &limit]).await?;
        parked.parts = row.map(|row| contents::parts(&row, max_bytes as usize));
    }
    Ok(Some(parked))
}

fn read(row: &Row) -> Parked {
    let text = |index: usize| row.get::<_, Option<String>>(index).map_or(Value::Null, Value::from);
    let lsn = Lsn::from(u64::from(row.get::<_, PgLsn>(9)));
    let id: i64 = row.get(0);
    let fields = vec![
        ("id", json!(id)),
        ("pipeline", text(1)),
        ("state", text(2)),
        ("reason", text(3)),
        ("aggregate_type", text(4)),
        ("aggregate_id", text(5)),
        ("event_id", text(6)),
        ("detail", text(7)),
        ("attempts", json!(row.get::<_, i32>(8))),
        ("position", json!(format!("{lsn}:{}", row.get::<_, i64>(10)))),
        ("source", text(11)),
        ("topic", text(12)),
        ("parked_at", text(13)),
        ("requested", text(14)),
        ("dead_letter", json!(dead_letter(row))),
        ("dead_letter_topic", text(15)),
        ("dead_letter_at", text(16)),
        ("dead_letter_error", text(17)),
    ];
    Parked { id, fields, parts: None }
}

/// What became of the event's dead letter.
fn dead_letter(row: &Row) -> &'static str {
    let is_there = |index: usize| row.get::<_, Option<String>>(index).is_some();
    match (is_there(16), is_there(17)) {
        (false, _) => "none",
        (true, false) => "written",
        (true, true) => "refused",
    }
}

impl Parked {
    /// Events of this pipeline go to no topic, whatever the route would be.
    fn without_topic(&mut self, pipeline: Option<&str>) {
        let is_its =
            |(name, value): &(&str, Value)| *name == "pipeline" && value.as_str() == pipeline;
        if pipeline.is_some() && self.fields.iter().any(is_its) {
            let topic = self.fields.iter_mut().find(|(name, _)| *name == "topic");
            topic.into_iter().for_each(|(_, value)| *value = Value::Null);
        }
    }

    fn text(&self, name: &str, max_chars: usize) -> String {
        match self.fields.iter().find(|(field, _)| *field == name).map(|(_, value)| value) {
            None | Some(Value::Null) => "-".to_owned(),
            Some(Value::String(text)) => line(text, max_chars),
            Some(Value::Array(names)) => {
                let names: Vec<&str> = names.iter().filter_map(Value::as_str).collect();
                line(&names.join(", "), max_chars)
            }
            Some(other) => other.to_string(),
        }
    }

    fn json(&self) -> Value {
        let mut json: Value =
            self.fields.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
        if let Some(parts) = &self.parts {
            json["contents"] = parts.iter().map(Part::json).collect();
        }
        json
    }
}

fn list(parked: &[Parked], json: bool) -> String {
    if json {
        return parked.iter().map(|one| json_for_terminal(&one.json()) + "\n").collect();
    }
    if parked.is_empty() {
        return "nothing is parked\n".to_owned();
    }
    let mut table =
        Table::titled(["id", "parked at", "state", "reason", "aggregate", "event", "detail"])
            .right([0]);
    for one in parked {
        let text = |name| one.text(name, CELL_MAX_CHARS);
        let aggregate = format!("{}/{}", text("aggregate_type"), text("aggregate_id"));
        table.row([
            one.id.to_string(),
            text("parked_at"),
            text("state"),
            text("reason"),
            aggregate,
            text("event_id"),
            text("detail"),
        ]);
    }
    table.to_string()
}

fn one(parked: &Parked, json: bool) -> String {
    if json {
        return json_for_terminal(&parked.json()) + "\n";
    }
    let mut table = Table::default();
    for (name, _) in &parked.fields {
        table.row([(*name).to_owned(), parked.text(name, LINE_MAX_CHARS)]);
    }
    for part in parked.parts.iter().flatten() {
        table.row([for_terminal(&part.title()), for_terminal(&part.shown())]);
    }
    table.to_string()
}
