use std::{collections::HashMap, slice};

use postgres_protocol::escape::escape_identifier;
use tokio_postgres::{Row, Transaction, error::SqlState};

use crate::{
    Error, EventId, NewEvent, OutboxTable,
    insert::{Clause, InsertRow, chunk, place_of, statement},
    param::Cell,
};

/// How often an idempotency key may be taken and then gone.
const MAX_TRIES: u32 = 3;
/// The column of a table of keys.
const KEY: &str = "idempotency_key";

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
/// can only be rolled back ([`write_once`] is for those who want to go on);
/// else see [`Error`].
pub async fn write(
    tx: &Transaction<'_>,
    table: &OutboxTable,
    event: &NewEvent,
) -> Result<EventId, Error> {
    let row = InsertRow::new(table, event)?;
    let mut ids = insert(tx, table, slice::from_ref(&row), None).await?;
    Ok(ids.pop().expect("one event has one id"))
}

/// Writes events in their order and returns their ids in the same.
///
/// One round trip for each 1,000 events or 4 MiB. All of them are checked
/// before the first is sent. None at all is fine.
///
/// Not cancellation-safe: if this future is dropped, roll `tx` back.
///
/// # Errors
/// One bad event fails them all: [`Error::Event`] says which, and
/// [`Error::Twice`] which two have the same key or id. Once something is sent,
/// as [`write()`].
///
/// ```no_run
/// # use walpost_outbox::{Error, NewEvent, OutboxTable, tokio_postgres::Transaction, write_all};
/// # async fn place(tx: &Transaction<'_>, lines: &[(i64, String)]) -> Result<(), Error> {
/// let events: Vec<NewEvent> = lines
///     .iter()
///     .map(|(order, line)| NewEvent::new("order", order.to_string(), "LineAdded").json(line))
///     .collect::<Result<_, _>>()?;
/// let ids = write_all(tx, &OutboxTable::default(), &events).await?;
/// assert_eq!(ids.len(), events.len());
/// # Ok(())
/// # }
/// ```
pub async fn write_all(
    tx: &Transaction<'_>,
    table: &OutboxTable,
    events: &[NewEvent],
) -> Result<Vec<EventId>, Error> {
    let row = |(index, event)| {
        InsertRow::new(table, event)
            .map_err(|source| Error::Event { index, source: Box::new(source) })
    };
    let rows: Vec<InsertRow<'_>> = events.iter().enumerate().map(row).collect::<Result<_, _>>()?;
    all_differ(table, &rows)?;
    let mut ids = Vec::with_capacity(rows.len());
    while ids.len() < rows.len() {
        let first = ids.len();
        let rest = &rows[first..];
        ids.extend(insert(tx, table, &rest[..chunk(rest)], Some(first)).await?);
    }
    Ok(ids)
}

/// The server would tell of one of them alone, as if it had been there before.
fn all_differ(table: &OutboxTable, rows: &[InsertRow<'_>]) -> Result<(), Error> {
    let (mut ids, mut keys) = (HashMap::new(), HashMap::new());
    for (second, row) in rows.iter().enumerate() {
        let same_id = row.id.as_ref().and_then(|id| ids.insert(id, second));
        let key = table.idempotency_key.as_deref().and_then(|column| row.text(column));
        let same_key = key.and_then(|key| keys.insert(key, second));
        for (what, same) in [("idempotency key", same_key), ("id", same_id)] {
            if let Some(first) = same {
                return Err(Error::Twice { what, first, second });
            }
        }
    }
    Ok(())
}

/// Writes an event unless its idempotency key is taken, and says which. Either
/// way `tx` goes on.
///
/// A transaction that has taken the key and not ended yet is waited for. If it
/// commits, this is [`Written::AlreadyWritten`]; under `repeatable read` and
/// `serializable`, which cannot see its event, it is [`Error::Conflict`]. An
/// event without a key is always written.
///
/// The table needs a unique index on the key alone, and the role `select`; of a
/// table with [`keys`](crate::OutboxTableBuilder::keys) on the table of these.
///
/// ```no_run
/// # use walpost_outbox::{Error, NewEvent, OutboxTable, Written, tokio_postgres::Transaction};
/// # use walpost_outbox::write_once;
/// # async fn paid(tx: &Transaction<'_>, event: &NewEvent) -> Result<(), Error> {
/// match write_once(tx, &OutboxTable::default(), event).await? {
///     Written::New(id) => println!("{id} will be published"),
///     Written::AlreadyWritten(id) => println!("{id} was there before"),
/// }
/// # Ok(())
/// # }
/// ```
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
        let mut ids = insert(tx, table, slice::from_ref(&row), None).await?;
        return Ok(Written::New(ids.pop().expect("one event has one id")));
    };
    let rows = slice::from_ref(&row);
    let clause = match table.keys {
        Some(_) => Clause::SkipTakenByTrigger,
        None => Clause::SkipTaken(column),
    };
    for _ in 0..MAX_TRIES {
        let (sql, parameters) = statement(table, rows, clause);
        let inserted = tx
            .query_typed_opt(&sql, &parameters)
            .await
            .map_err(|source| refused(table, rows, column, source))?;
        if let Some(inserted) = inserted {
            if table.keys.is_some() && !inserted.get::<_, bool>(1) {
                return Err(no_unique_index(table, column));
            }
            return Ok(Written::New(returned(table, &inserted)?));
        }
        if let Some(id) = holder(tx, table, column, key).await? {
            return Ok(Written::AlreadyWritten(id));
        }
    }
    Err(Error::KeyUnstable { table: table.to_string() })
}

/// `first` is the place of the first row among the events of the call, where
/// it may have more than one.
async fn insert(
    tx: &Transaction<'_>,
    table: &OutboxTable,
    rows: &[InsertRow<'_>],
    first: Option<usize>,
) -> Result<Vec<EventId>, Error> {
    let known: Option<Vec<EventId>> = rows.iter().map(|row| row.id.clone()).collect();
    let failed = |source| duplicate(table, rows, first, source);
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
    let sql = match table.quoted_keys() {
        Some(keys) => format!("select id::text from {keys} where {KEY} = $1"),
        None => format!(
            "select {}::text from {} where {} = $1",
            escape_identifier(&table.id),
            table.quoted(),
            escape_identifier(column)
        ),
    };
    let key = Cell::text(key);
    let row = tx
        .query_typed_opt(&sql, &[(&key, key.parameter_type())])
        .await
        .map_err(|source| Error::from_driver(&table.to_string(), source))?;
    row.map(|row| returned(table, &row)).transpose()
}

fn returned(table: &OutboxTable, row: &Row) -> Result<EventId, Error> {
    EventId::from(row.get::<_, &str>(0))
        .for_column(table.id_column)
        .map_err(|_| Error::IdType { table: table.to_string(), declared: table.id_column.as_str() })
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
        return no_unique_index(table, column);
    }
    duplicate(table, rows, None, source)
}

fn no_unique_index(table: &OutboxTable, column: &str) -> Error {
    Error::NoUniqueIndex { table: table.to_string(), column: column.to_owned() }
}

/// Which column a unique violation is about. The server says so in its detail,
/// `(columns)=(values)` in every language, if the role may read them; without,
/// the name of a primary key tells it from the key's index.
fn duplicate(
    table: &OutboxTable,
    rows: &[InsertRow<'_>],
    first: Option<usize>,
    source: tokio_postgres::Error,
) -> Error {
    let Some(error) =
        source.as_db_error().filter(|error| *error.code() == SqlState::UNIQUE_VIOLATION)
    else {
        let number = source.as_db_error().and_then(|error| parameter(error.where_()?));
        let error = Error::from_driver(&table.to_string(), source);
        return match number.and_then(|number| place_of(rows, number)) {
            Some((row, column)) => error.at(column, first.map(|first| first + row)),
            None => error,
        };
    };
    let key = table.idempotency_key.as_deref();
    let (by_key, by_id) = match error.detail() {
        Some(detail) => {
            let in_keys = table.keys.is_some() && is_about(detail, KEY);
            let by_key = key.is_some_and(|key| in_keys || is_about(detail, key));
            (by_key, is_about(detail, &table.id))
        }
        None => {
            let primary = error.constraint().is_some_and(|name| name.ends_with("_pkey"));
            let keyed = key.is_some_and(|key| rows.iter().any(|row| row.text(key).is_some()));
            (keyed && !primary, primary)
        }
    };
    let index = |column: &str| {
        let detail = error.detail()?;
        let row = rows.iter().position(|row| has_value(detail, row.text(column)))?;
        Some(first? + row)
    };
    match (by_key, by_id) {
        (true, _) => Error::DuplicateKey { table: table.to_string(), index: key.and_then(index) },
        (false, true) => Error::DuplicateId { table: table.to_string(), index: index(&table.id) },
        (false, false) => Error::from_driver(&table.to_string(), source),
    }
}

fn is_about(detail: &str, column: &str) -> bool {
    let columns = detail
        .split_once(")=(")
        .and_then(|(before, _)| before.split_once('('))
        .map_or("", |(_, columns)| columns);
    columns.split(", ").any(|name| name == column || name == escape_identifier(column))
}

/// The parameter that the server could not read: it stands in the context, in
/// one line and in every language as `$7`. What functions say has more lines.
fn parameter(context: &str) -> Option<usize> {
    let (_, number) = context.split_once('$').filter(|_| !context.contains('\n'))?;
    number.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

/// Whether a violation of an index on one column is about this value.
fn has_value(detail: &str, value: Option<&str>) -> bool {
    value.is_some_and(|value| detail.contains(&format!(")=({value})")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parameter_is_read_from_the_context() {
        assert_eq!(parameter("unnamed portal parameter $12"), Some(12));
        assert_eq!(parameter("Parameter $3 = '$4' des unbenannten Portals"), Some(3));
        for other in ["", "PL/pgSQL function f() line 1", "$", "SQL \"select $1\"\nPL/pgSQL f()"] {
            assert_eq!(parameter(other), None, "{other}");
        }
    }

    #[test]
    fn the_value_of_a_violation_is_found_whole() {
        let detail = "Key (id)=(17) already exists.";
        assert!(has_value(detail, Some("17")));
        for other in [Some("1"), Some("7"), Some("id"), None] {
            assert!(!has_value(detail, other), "{other:?}");
        }
    }

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
