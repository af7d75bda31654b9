use serde_json::{Value, json};
use tokio_postgres::Row;

use super::{OF, Parked, Place, Which};
use crate::{
    command::{
        cells::{as_json, line},
        parked::{contents::Part, for_terminal, json_for_terminal},
        sql,
    },
    failure::{Exit, Failure},
    output,
    table::Table,
};

/// Characters of one cell of the list.
const CELL_MAX_CHARS: usize = 100;

/// Which events to list.
#[derive(Debug, clap::Args)]
pub(super) struct ListArgs {
    #[command(flatten)]
    which: Which,
    /// Also those that wait behind others, and those that were discarded
    #[arg(long)]
    all: bool,
    /// At most so many
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    limit: u32,
    /// Print one JSON object a line
    #[arg(long)]
    pub(super) json: bool,
}

/// Which event to show.
#[derive(Debug, clap::Args)]
pub(super) struct ShowArgs {
    /// Its number in the list
    id: i64,
    /// Also the event itself: key, headers, value
    #[arg(long)]
    payload: bool,
    /// With --payload: at most so many bytes of each
    #[arg(long, default_value_t = 4_096, value_parser = clap::value_parser!(u32).range(1..=67_108_864))]
    max_bytes: u32,
    /// Print one JSON object
    #[arg(long)]
    pub(super) json: bool,
}

/// With how many wait behind it, counted up to a bound.
fn columns(table: &str) -> String {
    format!(
        "id, consumer, state, topic, part, off, event_id, reason, attempts, run, source, \
         to_char(parked_at at time zone 'utc', 'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"') as parked_at, \
         request, requested_by, \
         to_char(settled_at at time zone 'utc', 'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"') as settled_at, \
         case when dead_letter_at is null then 'none' when dead_letter_error is null then 'written' \
         else 'refused' end as dead_letter, dead_letter_topic, dead_letter_error, \
         to_char(dead_letter_at at time zone 'utc', 'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"') \
         as dead_letter_at, octet_length(key) as key_bytes, octet_length(value) as value_bytes, header_names, \
         case when holds_key and state = 'parked' then (select count(*) from (select from {table} b \
         where b.pos_id = p.pos_id and b.holds_key and b.state = 'waiting' \
         and sha256(b.key) = sha256(p.key) limit 100000) behind) else 0 end as behind"
    )
}

pub(super) async fn list(place: &Place, args: &ListArgs) -> Result<(), Failure> {
    let parked = open(place).await?;
    let table = parked.name();
    let text = format!(
        "select {} from {table} p where {OF} and ($4 or state = 'parked') order by id limit $5",
        columns(&table)
    );
    let ListArgs { which, all, limit, json } = args;
    // One more says whether there are more.
    let most = i64::from(*limit) + 1;
    let rows = parked
        .client
        .query(&text, &[&which.consumer, &which.topic, &which.key, all, &most])
        .await
        .map_err(parked.failed())?;
    let shown = &rows[..rows.len().min(*limit as usize)];
    if *json {
        let lines = shown.iter().map(|row| json_for_terminal(&as_json(fields(row))) + "\n");
        output::print(lines.collect::<String>())?;
    } else if shown.is_empty() {
        output::print("no event of the kind is parked\n")?;
    } else {
        output::print(listed(shown))?;
    }
    if rows.len() > shown.len() {
        output::note("there are more; see them with --limit");
    }
    Ok(())
}

pub(super) async fn show(place: &Place, args: &ShowArgs) -> Result<(), Failure> {
    let parked = open(place).await?;
    let table = parked.name();
    let text = format!("select {} from {table} p where id = $1", columns(&table));
    let row = parked.client.query_opt(&text, &[&args.id]).await.map_err(parked.failed())?;
    let Some(row) = row else {
        let text = format!("no parked event has number {}", args.id);
        return Err(Failure::found(Exit::Running, &text)
            .next_step("see the numbers with `walpost consumer parked list --all`"));
    };
    let parts = if args.payload { contents(&parked, args).await? } else { Vec::new() };
    if args.json {
        let mut json = as_json(fields(&row));
        if args.payload {
            json["contents"] = parts.iter().map(Part::json).collect();
        }
        return output::print(json_for_terminal(&json) + "\n");
    }
    let mut table = Table::default();
    for (name, value) in fields(&row) {
        table.row([name.to_owned(), plain(&value)]);
    }
    for part in &parts {
        table.row([for_terminal(&part.title()), for_terminal(&part.shown())]);
    }
    output::print(table)
}

async fn open(place: &Place) -> Result<Parked, Failure> {
    let client = sql::connect_to_look(&place.database).await?;
    Ok(Parked { client, schema: place.schema.clone() })
}

/// Key, headers and value, as much of each as was asked for.
async fn contents(parked: &Parked, args: &ShowArgs) -> Result<Vec<Part>, Failure> {
    let text = format!(
        "select substring(key for $2), octet_length(key), substring(value for $2), \
         octet_length(value), header_names, array(select substring(v for $2) from \
         unnest(header_values) with ordinality h(v, n) order by n), \
         array(select octet_length(v) from unnest(header_values) with ordinality h(v, n) order by n) \
         from {} where id = $1",
        parked.name()
    );
    let limit = i32::try_from(args.max_bytes).unwrap_or(i32::MAX);
    let row = parked.client.query_opt(&text, &[&args.id, &limit]).await.map_err(parked.failed())?;
    let Some(row) = row else { return Ok(Vec::new()) };
    let total = |bytes: Option<i32>| bytes.and_then(|bytes| usize::try_from(bytes).ok());
    let whole = |kind, at: usize| {
        let bytes: Option<Vec<u8>> = row.get(at);
        Part::new(kind, None, bytes, total(row.get(at + 1)).unwrap_or_default())
    };
    let (names, values): (Vec<String>, Vec<Option<Vec<u8>>>) = (row.get(4), row.get(5));
    let totals: Vec<Option<i32>> = row.get(6);
    let headers = names.into_iter().zip(values).zip(totals).map(|((name, value), bytes)| {
        Part::new("header", Some(name), value, total(bytes).unwrap_or_default())
    });
    Ok([whole("key", 0)].into_iter().chain(headers).chain([whole("value", 2)]).collect())
}

fn listed(rows: &[Row]) -> Table {
    let titles =
        ["id", "parked at", "state", "letter", "consumer", "place", "event", "behind", "reason"];
    let mut table = Table::titled(titles).right([0, 7]);
    for row in rows {
        let text =
            |name: &str| line(row.get::<_, Option<&str>>(name).unwrap_or("-"), CELL_MAX_CHARS);
        let (topic, part, off): (&str, i32, i64) =
            (row.get("topic"), row.get("part"), row.get("off"));
        let state = match row.get::<_, Option<&str>>("request") {
            Some(request) => format!("{} ({request} asked)", text("state")),
            None => text("state"),
        };
        table.row([
            row.get::<_, i64>("id").to_string(),
            text("parked_at"),
            state,
            text("dead_letter"),
            text("consumer"),
            line(&format!("{topic}[{part}]@{off}"), CELL_MAX_CHARS),
            text("event_id"),
            row.get::<_, i64>("behind").to_string(),
            text("reason"),
        ]);
    }
    table
}

fn fields(row: &Row) -> Vec<(&'static str, Value)> {
    let text = |name| (name, json!(row.get::<_, Option<&str>>(name)));
    let int = |name| (name, json!(row.get::<_, Option<i32>>(name)));
    let long = |name| (name, json!(row.get::<_, Option<i64>>(name)));
    let (_, partition) = int("part");
    let (_, offset) = long("off");
    vec![
        long("id"),
        text("consumer"),
        text("state"),
        text("topic"),
        ("partition", partition),
        ("offset", offset),
        text("event_id"),
        text("source"),
        text("reason"),
        int("attempts"),
        int("run"),
        text("parked_at"),
        long("behind"),
        text("request"),
        text("requested_by"),
        text("settled_at"),
        text("dead_letter"),
        text("dead_letter_topic"),
        text("dead_letter_at"),
        text("dead_letter_error"),
        int("key_bytes"),
        int("value_bytes"),
        ("headers", json!(row.get::<_, Vec<Option<String>>>("header_names"))),
    ]
}

fn plain(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => for_terminal(text),
        Value::Array(names) => {
            let names: Vec<&str> = names.iter().filter_map(Value::as_str).collect();
            for_terminal(&names.join(", "))
        }
        other => other.to_string(),
    }
}
