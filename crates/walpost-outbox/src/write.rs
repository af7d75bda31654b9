use std::slice;

use tokio_postgres::{Row, Transaction, error::SqlState};

use crate::{
    Error, EventId, NewEvent, OutboxTable,
    insert::{Clause, InsertRow, chunk, statement},
    names::quoted,
    param::Cell,
};

/// How often an idempotency key may be taken and then gone.
const MAX_TRIES: u32 = 3;

/// What [`write_once`] did.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Written {
    /// The event is written, under this id.
    New(EventId),
    /// An event with the same idempotency key was there, under this id; nothing
    /// was written.
    AlreadyWritten(EventId),
}

impl Written {
    /// The id of the one event, whoever wrote it.
    pub fn id(&self) -> &EventId {
        match self {
            Self::New(id) | Self::AlreadyWritten(id) => id,
        }
    }
}

/// Writes an event. It commits or vanishes with `tx`.
///
/// Not cancellation-safe: if this future is dropped, roll `tx` back.
///
/// # Errors
/// [`Error::DuplicateKey`] when its idempotency key is taken, after which `tx`
/// can only be rolled back; else see [`Error`].
pub async fn write(
    tx: &Transaction<'_>,
    table: &OutboxTable,
    event: &NewEvent,
) -> Result<EventId, Error> {
    let mut ids = write_all(tx, table, slice::from_ref(event)).await?;
    Ok(ids.pop().expect("one event has one id"))
}

/// Writes events in their order and returns their ids in the same.
///
/// One round trip for each 1,000 events or 4 MiB. All of them are checked
/// before the first is sent.
///
/// Not cancellation-safe: if this future is dropped, roll `tx` back.
///
/// # Errors
/// As [`write()`]; one bad event fails them all.
pub async fn write_all(
    tx: &Transaction<'_>,
    table: &OutboxTable,
    events: &[NewEvent],
) -> Result<Vec<EventId>, Error> {
    let rows: Vec<InsertRow<'_>> =
        events.iter().map(|event| InsertRow::new(table, event)).collect::<Result<_, _>>()?;
    let mut ids = Vec::with_capacity(rows.len());
    let mut rest = rows.as_slice();
    while !rest.is_empty() {
        let (now, later) = rest.split_at(chunk(rest));
        ids.extend(insert(tx, table, now).await?);
        rest = later;
    }
    Ok(ids)
}

/// Writes an event unless its idempotency key is taken, and says which. Either
/// way `tx` goes on.
///
/// A transaction that has taken the key and not ended yet is waited for. If it
/// commits, this is [`Written::AlreadyWritten`]; under `repeatable read` and
/// `serializable`, which cannot see its event, it is [`Error::Conflict`]. An
/// event without a key is always written.
///
/// The table needs a unique index on the key alone, and the role `select`.
///
/// Not cancellation-safe: if this future is dropped, roll `tx` back.
///
/// # Errors
/// [`Error::Conflict`] and [`Error::NoUniqueIndex`]; else see [`Error`].
pub async fn write_once(
    tx: &Transaction<'_>,
    table: &OutboxTable,
    event: &NewEvent,
) -> Result<Written, Error> {
    let row = InsertRow::new(table, event)?;
    let (Some(column), Some(key)) = (&table.idempotency_key, &event.idempotency_key) else {
        return write(tx, table, event).await.map(Written::New);
    };
    let rows = slice::from_ref(&row);
    for _ in 0..MAX_TRIES {
        let (sql, parameters) = statement(table, rows, Clause::SkipTaken(column));
        let inserted = tx
            .query_typed_opt(&sql, &parameters)
            .await
            .map_err(|source| refused(table, rows, column, source))?;
        if let Some(inserted) = inserted {
            return Ok(Written::New(returned(table, &inserted)?));
        }
        if let Some(id) = holder(tx, table, column, key).await? {
            return Ok(Written::AlreadyWritten(id));
        }
    }
    Err(Error::KeyUnstable { table: table.to_string() })
}

async fn insert(
    tx: &Transaction<'_>,
    table: &OutboxTable,
    rows: &[InsertRow<'_>],
) -> Result<Vec<EventId>, Error> {
    let known: Option<Vec<EventId>> = rows.iter().map(|row| row.id.clone()).collect();
    let failed = |source| duplicate(table, rows, source);
    let ids = if let Some(ids) = known {
        // Nothing to return: the right to insert is enough.
        let (sql, parameters) = statement(table, rows, Clause::None);
        let written = tx.execute_typed(&sql, &parameters).await.map_err(failed)?;
        complete(table, rows, written)?;
        ids
    } else {
        let (sql, parameters) = statement(table, rows, Clause::ReturnIds);
        let written = tx.query_typed(&sql, &parameters).await.map_err(failed)?;
        complete(table, rows, written.len() as u64)?;
        written.iter().map(|row| returned(table, row)).collect::<Result<_, _>>()?
    };
    Ok(ids)
}

/// The event that has the key.
async fn holder(
    tx: &Transaction<'_>,
    table: &OutboxTable,
    column: &str,
    key: &str,
) -> Result<Option<EventId>, Error> {
    let sql = format!(
        "select {}::text from {} where {} = $1",
        quoted(&table.id),
        table.quoted(),
        quoted(column)
    );
    let key = Cell::text(key);
    let row = tx
        .query_typed_opt(&sql, &[(&key, key.parameter_type())])
        .await
        .map_err(|source| Error::from_driver(&table.to_string(), source))?;
    row.map(|row| returned(table, &row)).transpose()
}

fn returned(table: &OutboxTable, row: &Row) -> Result<EventId, Error> {
    EventId::from(row.get::<_, &str>(0)).for_column(table.id_column)
}

fn complete(table: &OutboxTable, rows: &[InsertRow<'_>], written: u64) -> Result<(), Error> {
    let expected = rows.len() as u64;
    if written == expected {
        return Ok(());
    }
    Err(Error::NotWritten { table: table.to_string(), expected, written })
}

fn refused(
    table: &OutboxTable,
    rows: &[InsertRow<'_>],
    column: &str,
    source: tokio_postgres::Error,
) -> Error {
    if source.code() == Some(&SqlState::INVALID_COLUMN_REFERENCE) {
        return Error::NoUniqueIndex { table: table.to_string(), column: column.to_owned() };
    }
    duplicate(table, rows, source)
}

/// Which column a unique violation is about. The server says so in its detail,
/// `(columns)=(values)` in every language, if the role may read them; without,
/// the name of a primary key tells it from the key's index.
fn duplicate(table: &OutboxTable, rows: &[InsertRow<'_>], source: tokio_postgres::Error) -> Error {
    let Some(error) =
        source.as_db_error().filter(|error| *error.code() == SqlState::UNIQUE_VIOLATION)
    else {
        return Error::from_driver(&table.to_string(), source);
    };
    let key = table.idempotency_key.as_deref();
    let (by_key, by_id) = match error.detail() {
        Some(detail) => (key.is_some_and(|key| is_about(detail, key)), is_about(detail, &table.id)),
        None => {
            let primary = error.constraint().is_some_and(|name| name.ends_with("_pkey"));
            let keyed = key.is_some_and(|key| rows.iter().any(|row| row.names(key)));
            (keyed && !primary, primary)
        }
    };
    match (by_key, by_id) {
        (true, _) => Error::DuplicateKey { table: table.to_string() },
        (false, true) => Error::DuplicateId { table: table.to_string() },
        (false, false) => Error::from_driver(&table.to_string(), source),
    }
}

fn is_about(detail: &str, column: &str) -> bool {
    let columns = detail
        .split_once(")=(")
        .and_then(|(before, _)| before.split_once('('))
        .map_or("", |(_, columns)| columns);
    columns.split(", ").any(|name| name == column || name == quoted(column))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_columns_of_a_violation_are_read_in_every_language() {
        for detail in [
            "Key (id)=(7) already exists.",
            "Schlüssel »(id)=(7)« existiert bereits.",
            "Key (created_at, id)=(2026, 7) already exists.",
            "Key (\"id\")=(7) already exists.",
        ] {
            assert!(is_about(detail, "id"), "{detail}");
        }
        for detail in ["", "Key (key)=((id)=(7)) already exists.", "Key (idx)=(id) exists."] {
            assert!(!is_about(detail, "id"), "{detail}");
        }
    }
}
