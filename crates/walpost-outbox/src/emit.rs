use tokio_postgres::{Transaction, types::Type};

use crate::{Error, EventId, NewEvent, message::message, names, param::Cell};

/// Bytes in the database's encoding would not be UTF-8 everywhere, so the
/// message is put together from bytes.
const EMIT: &str = "select pg_logical_emit_message(true, $1, $2 || convert_to(to_char(\
     clock_timestamp() at time zone 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"'), 'UTF8') || $3), \
     coalesce(current_setting('effective_wal_level', true), current_setting('wal_level'))";
const WAL: &str = "the WAL";

/// Writes an event into the WAL alone, with `pg_logical_emit_message`.
///
/// It becomes visible with the commit of `tx`, like a row. `prefix` is that of
/// the relay's `message_prefixes`, by default `walpost`. The message is one JSON
/// object with the column names of the outbox table: `id`, `aggregatetype`,
/// `aggregateid`, `type`, `payload`, and where given `headers`, `traceparent`,
/// `tracestate`; `created_at` is RFC 3339 in UTC, by the server's clock. A JSON
/// payload is embedded byte for byte, text is a JSON string, bytes are base64
/// beside `"payload_encoding":"base64"`.
///
/// There is no row to look up, prune or replay from, and no idempotency key.
///
/// Not cancellation-safe: if this future is dropped, roll `tx` back.
///
/// # Errors
/// [`Error::KeyWithoutTable`]; [`Error::WalLevel`] where nobody could read it;
/// else see [`Error`].
pub async fn emit(tx: &Transaction<'_>, prefix: &str, event: &NewEvent) -> Result<EventId, Error> {
    names::check("prefix", prefix)?;
    let id = event.id.clone().unwrap_or_else(EventId::new);
    let (head, tail) = message(event, &id)?;
    let parameters = [Cell::Bytes(head.as_bytes()), Cell::Bytes(tail.as_bytes())];
    let row = tx
        .query_typed_one(
            EMIT,
            &[(&prefix, Type::TEXT), (&parameters[0], Type::BYTEA), (&parameters[1], Type::BYTEA)],
        )
        .await
        .map_err(|source| Error::from_driver(WAL, source))?;
    match row.get::<_, &str>(1) {
        wal_level @ ("minimal" | "replica") => {
            Err(Error::WalLevel { wal_level: wal_level.to_owned() })
        }
        _ => Ok(id),
    }
}
