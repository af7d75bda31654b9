//! An event as a row of `consumer_parked`, and back.

use tokio_postgres::{Row, Transaction, types::Type};

use crate::{Event, sql::Sql};

/// Why an event was set aside.
#[derive(Clone, Copy, Debug)]
pub(super) enum Aside<'a> {
    /// Its handler could not apply it.
    Parked { reason: &'a str, attempts: u32, holds_key: bool },
    /// An event of its key before it is parked.
    Waiting,
}

/// The claimed partition, for its rows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place<'a> {
    pub(super) consumer: &'a str,
    pub(super) position: i32,
    pub(super) run: i32,
}

/// Writes the row. 0 if the event waits already.
pub(super) async fn set_aside(
    tx: &Transaction<'_>,
    sql: &Sql,
    Place { consumer, position, run }: Place<'_>,
    event: &Event,
    aside: Aside<'_>,
) -> Result<u64, tokio_postgres::Error> {
    let (statement, state, reason, attempts, holds_key) = match aside {
        Aside::Parked { reason, attempts, holds_key } => {
            (&sql.parked.park, "parked", reason, attempts, holds_key)
        }
        Aside::Waiting => (&sql.parked.wait, "waiting", "an event of its key is parked", 0, true),
    };
    let id = event.identity().is_ok().then(|| event.id());
    // A NUL cannot be stored in a text column.
    let names: Vec<String> =
        event.headers().map(|(name, _)| name.replace('\0', "\u{fffd}")).collect();
    let values: Vec<Option<&[u8]>> = event.headers().map(|(_, value)| value).collect();
    let reason = reason.replace('\0', "\u{fffd}");
    let attempts = i32::try_from(attempts).unwrap_or(i32::MAX);
    tx.execute_typed(
        statement,
        &[
            (&consumer, Type::TEXT),
            (&position, Type::INT4),
            (&event.topic(), Type::TEXT),
            (&event.partition(), Type::INT4),
            (&event.offset(), Type::INT8),
            (&run, Type::INT4),
            (&event.source(), Type::TEXT),
            (&id, Type::TEXT),
            (&event.key(), Type::BYTEA),
            (&event.value(), Type::BYTEA),
            (&names, Type::TEXT_ARRAY),
            (&values, Type::BYTEA_ARRAY),
            (&event.timestamp_ms(), Type::INT8),
            (&reason, Type::TEXT),
            (&attempts, Type::INT4),
            (&state, Type::TEXT),
            (&holds_key, Type::BOOL),
        ],
    )
    .await
}

/// What somebody wants of a parked event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    Retry,
    Discard,
}

/// A row that somebody has a request for.
#[derive(Clone, Debug)]
pub(super) struct ParkedRow {
    pub(super) id: i64,
    pub(super) wish: Wish,
    /// It was never tried.
    pub(super) waiting: bool,
    pub(super) holds_key: bool,
    pub(super) event: Event,
}

impl ParkedRow {
    /// A row of `Sql::request`.
    pub(super) fn read(row: &Row) -> Self {
        let names: Vec<&str> = row.get("header_names");
        let values: Vec<Option<&[u8]>> = row.get("header_values");
        let event = Event::builder(row.get::<_, &str>("topic"))
            .position(row.get("part"), row.get("off"))
            .timestamp_ms(row.get("timestamp_ms"))
            .key(row.get("key"))
            .value(row.get("value"));
        let event =
            names.iter().zip(values).fold(event, |event, (name, value)| event.header(name, value));
        Self {
            id: row.get("id"),
            wish: match row.get("request") {
                "discard" => Wish::Discard,
                _ => Wish::Retry,
            },
            waiting: row.get::<_, &str>("state") == "waiting",
            holds_key: row.get("holds_key"),
            event: event.build(),
        }
    }
}
