use clap::Subcommand;
use serde_json::{Value, json};
use tokio_postgres::{Row, types::PgLsn};
use walpost_event::Lsn;

use crate::{
    command::sql,
    config::{Config, ConfigArgs},
    failure::{Exit, Failure},
    table::Table,
};

/// Which parked events to show.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
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
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
}

/// One of them, without its contents.
#[derive(Debug)]
struct Parked {
    id: i64,
    fields: Vec<(&'static str, Value)>,
}

const COLUMNS: &str = "id, pipeline, state, reason, aggregate_type, aggregate_id, event_id, detail,
    attempts, commit_lsn, ordinal, source, topic, to_char(parked_at at time zone 'utc', 'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"')";

pub(crate) async fn run(config: &ConfigArgs, args: &Args) -> Result<(), Failure> {
    let config = Config::load(config)?;
    let schema = config.settings.pipeline.schema.clone();
    let client = sql::connect_to_look(&config.database()?).await?;
    let failed = sql::failed(&schema);
    let table = format!("{}.parked", sql::quoted(&schema));
    match &args.command {
        Command::List { all, pipeline, limit, json } => {
            let text = format!(
                "select {COLUMNS} from {table}
                where ($1 or state in ('open', 'sending')) and ($2::text is null or pipeline = $2)
                order by id limit $3"
            );
            // One more says whether there are more.
            let limit = i64::from(*limit);
            let rows = client.query(&text, &[all, pipeline, &(limit + 1)]).await.map_err(failed)?;
            let parked: Vec<Parked> = rows.iter().take(limit as usize).map(read).collect();
            print_list(&parked, *json);
            if rows.len() > parked.len() {
                eprintln!("there are more; see them with --limit");
            }
        }
        Command::Show { id, json } => {
            let text = format!("select {COLUMNS} from {table} where id = $1");
            let row = client.query_opt(&text, &[id]).await.map_err(failed)?;
            let Some(row) = row else {
                return Err(Failure::found(
                    Exit::Running,
                    &format!("no parked event has number {id}"),
                )
                .next_step("see the numbers with `walpost parked list --all`"));
            };
            print_one(&read(&row), *json);
        }
    }
    Ok(())
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
        ("position", json!(format!("{lsn}/{}", row.get::<_, i64>(10)))),
        ("source", text(11)),
        ("topic", text(12)),
        ("parked_at", text(13)),
    ];
    Parked { id, fields }
}

impl Parked {
    fn text(&self, name: &str) -> String {
        match self.fields.iter().find(|(field, _)| *field == name).map(|(_, value)| value) {
            None | Some(Value::Null) => "-".to_owned(),
            Some(Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
        }
    }

    fn json(&self) -> Value {
        self.fields.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect()
    }
}

fn print_list(parked: &[Parked], json: bool) {
    if json {
        parked.iter().for_each(|one| println!("{}", one.json()));
        return;
    }
    if parked.is_empty() {
        println!("nothing is parked");
        return;
    }
    let mut table =
        Table::titled(["id", "parked at", "state", "reason", "aggregate", "event", "detail"]);
    for one in parked {
        let aggregate = format!("{}/{}", one.text("aggregate_type"), one.text("aggregate_id"));
        table.row([
            one.id.to_string(),
            one.text("parked_at"),
            one.text("state"),
            one.text("reason"),
            aggregate,
            one.text("event_id"),
            one.text("detail"),
        ]);
    }
    print!("{table}");
}

fn print_one(parked: &Parked, json: bool) {
    if json {
        println!("{}", parked.json());
        return;
    }
    let mut table = Table::default();
    for (name, _) in &parked.fields {
        table.row([(*name).to_owned(), parked.text(name)]);
    }
    print!("{table}");
}
