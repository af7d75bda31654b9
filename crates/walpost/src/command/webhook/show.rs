use serde_json::{Value, json};
use walpost_postgres::Database;
use walpost_webhook::{AttemptEntry, Deliveries};

use super::{failure, list::fields};
use crate::{
    command::{
        cells::{as_json, cell, plain, shown},
        inbox::utc,
        parked::json_for_terminal,
        sql,
    },
    failure::{Exit, Failure},
    output,
    table::Table,
};

/// Which delivery to show.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Its id in the list
    id: i64,
    /// Also what is sent, and the last answer that was no success; for these the role needs a
    /// grant of its own
    #[arg(long)]
    payload: bool,
    /// With --payload: at most so many bytes of each
    #[arg(long, default_value_t = 4_096, value_parser = clap::value_parser!(u32).range(1..=67_108_864))]
    max_bytes: u32,
    /// Print one JSON object
    #[arg(long)]
    pub(super) json: bool,
}

pub(super) async fn run(
    database: &Database,
    deliveries: &Deliveries,
    args: &Args,
) -> Result<(), Failure> {
    let client = sql::connect_to_look(database).await?;
    let Some(entry) = deliveries.show(&client, args.id).await.map_err(failure)? else {
        let text = format!("no delivery has the id {}", args.id);
        return Err(Failure::found(Exit::Nothing, &text).next_step(
            "see the ids with `walpost webhook list --event EVENT_ID` or `--state STATE`",
        ));
    };
    let attempts = deliveries.attempts(&client, &entry).await.map_err(failure)?;
    let mut fields = fields(&entry);
    if args.payload {
        let contents = deliveries.contents(&client, args.id, args.max_bytes).await;
        let contents = contents.map_err(failure)?;
        fields.push(shown("payload", "payload_hex", contents.body));
        fields.push(shown("response", "response_hex", contents.response));
    }
    if args.json {
        fields.push(("attempt_log", attempts.iter().map(of_attempt).collect()));
        return output::print(json_for_terminal(&as_json(fields)) + "\n");
    }
    let mut table = Table::default();
    for (name, value) in fields {
        table.row([name.to_owned(), plain(&value)]);
    }
    output::print(table)?;
    if attempts.is_empty() {
        return output::print("\nno attempt has ended\n");
    }
    output::print(format_args!("\n{}", table_of(&attempts)))
}

fn table_of(attempts: &[AttemptEntry]) -> Table {
    let mut table =
        Table::titled(["attempt", "ended", "status", "outcome", "ms", "detail"]).right([0, 2, 4]);
    for attempt in attempts {
        table.row([
            attempt.number.to_string(),
            utc(attempt.ended_at),
            attempt.status.map_or_else(|| "-".to_owned(), |status| status.to_string()),
            cell(&attempt.outcome),
            elapsed_ms(attempt).map_or_else(|| "-".to_owned(), |ms| ms.to_string()),
            cell(attempt.detail.as_deref().unwrap_or_default()),
        ]);
    }
    table
}

/// Nobody wrote it down where the lease ended first.
fn elapsed_ms(attempt: &AttemptEntry) -> Option<u64> {
    (attempt.outcome != "lease_expired").then_some(attempt.elapsed.as_millis() as u64)
}

fn of_attempt(attempt: &AttemptEntry) -> Value {
    json!({
        "number": attempt.number,
        "ended_at": utc(attempt.ended_at),
        "status": attempt.status,
        "outcome": attempt.outcome,
        "elapsed_ms": elapsed_ms(attempt),
        "detail": attempt.detail,
    })
}
