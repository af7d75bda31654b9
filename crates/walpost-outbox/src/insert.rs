use std::fmt::Write as _;

use postgres_protocol::escape::escape_identifier;
use tokio_postgres::types::{ToSql, Type};

use crate::{Error, EventId, IdColumn, NewEvent, OutboxTable, message::headers, param::Cell};

/// The protocol counts a statement's parameters in 16 bits.
const MAX_PARAMETERS: usize = 65_535;
/// Rows of one statement.
const MAX_ROWS: usize = 1_000;
/// Contents of one statement, unless one event alone has more.
const MAX_BYTES: usize = 4 * 1024 * 1024;
/// Setting of the transaction by which the trigger of a partitioned outbox knows
/// that an event is to be left out where its key is taken; the trigger ends it.
const ONCE: &str = "walpost.once";

/// One event, checked and ready for the table. Columns that it does not name
/// get their default.
#[derive(Debug)]
pub(crate) struct InsertRow<'a> {
    /// `None`: the database draws it.
    pub(crate) id: Option<EventId>,
    cells: Vec<(&'a str, Cell<'a>)>,
}

impl<'a> InsertRow<'a> {
    pub(crate) fn new(table: &'a OutboxTable, event: &'a NewEvent) -> Result<Self, Error> {
        event.check()?;
        let id = id(table.id_column, event)?;
        let mut cells = Vec::with_capacity(10);
        if let Some(id) = &id {
            cells.push((table.id.as_str(), Cell::Text(id.to_string().into())));
        }
        for (column, value) in [
            (&table.aggregate_type, &event.aggregate_type),
            (&table.aggregate_id, &event.aggregate_id),
        ] {
            cells.extend(column.as_deref().map(|column| (column, Cell::text(value))));
        }
        cells.push((&table.event_type, Cell::text(&event.event_type)));
        let payload = payload(table, event)?;
        #[cfg(feature = "contracts")]
        if let Some(contracts) = &table.contracts {
            crate::contract::check(contracts, event, &payload)?;
        }
        cells.push((&table.payload, payload));
        if !event.headers.is_empty() {
            let column = column(table, "headers", table.headers.as_ref())?;
            cells.push((column, Cell::Text(headers(&event.headers).into())));
        }
        for (what, name, value) in [
            ("a traceparent", &table.traceparent, &event.traceparent),
            ("a tracestate", &table.tracestate, &event.tracestate),
            ("an idempotency key", &table.idempotency_key, &event.idempotency_key),
        ] {
            if let Some(value) = value {
                cells.push((column(table, what, name.as_ref())?, Cell::text(value)));
            }
        }
        for (name, value) in &event.columns {
            if table.has_column(name) {
                return Err(Error::ColumnTwice { column: name.clone() });
            }
            cells.push((name, Cell::text(value)));
        }
        Ok(Self { id, cells })
    }

    /// The text that it gives this column.
    pub(crate) fn text(&self, column: &str) -> Option<&str> {
        self.cells.iter().find_map(|(name, cell)| match cell {
            Cell::Text(text) if *name == column => Some(&**text),
            Cell::Text(_) | Cell::Bytes(_) | Cell::Null => None,
        })
    }

    fn bytes(&self) -> usize {
        self.cells.iter().map(|(_, cell)| cell.bytes()).sum()
    }
}

/// How many of the first rows go into one statement: at least one.
pub(crate) fn chunk(rows: &[InsertRow<'_>]) -> usize {
    let (mut parameters, mut bytes) = (0, 0);
    let fitting = rows.iter().take(MAX_ROWS).take_while(|row| {
        parameters += row.cells.len();
        bytes += row.bytes();
        parameters <= MAX_PARAMETERS && bytes <= MAX_BYTES
    });
    fitting.count().max(1)
}

/// What to do about rows that are there.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Clause<'a> {
    /// Fail; nothing comes back.
    None,
    /// Fail; ids come back as text.
    ReturnIds,
    /// Leave out what has the idempotency key of this column already; the ids of
    /// the others come back as text.
    SkipTaken(&'a str),
    /// Leave the one row out where a trigger finds its idempotency key in the
    /// table of keys; else its id comes back as text, and whether there was such
    /// a trigger.
    SkipTakenByTrigger,
}

/// One statement for all rows, in their order, with its parameters.
pub(crate) fn statement<'a>(
    table: &OutboxTable,
    rows: &'a [InsertRow<'_>],
    clause: Clause<'_>,
) -> (String, Vec<(&'a (dyn ToSql + Sync), Type)>) {
    let columns = union(rows);
    let names: Vec<String> = columns.iter().map(|name| escape_identifier(name)).collect();
    let by_trigger = clause == Clause::SkipTakenByTrigger;
    let (first, next, end) =
        if by_trigger { ("select ", "", "") } else { ("values (", ", (", ")") };
    let mut sql = format!("insert into {} ({}) ", table.quoted(), names.join(", "));
    let mut parameters: Vec<(&(dyn ToSql + Sync), Type)> = Vec::new();
    for (index, row) in rows.iter().enumerate() {
        sql.push_str(if index == 0 { first } else { next });
        for (index, column) in columns.iter().enumerate() {
            if index > 0 {
                sql.push_str(", ");
            }
            match row.cells.iter().find(|(name, _)| name == column) {
                None => sql.push_str("default"),
                Some((_, cell)) => {
                    parameters.push((cell, cell.parameter_type()));
                    write!(sql, "${}", parameters.len()).expect("a string takes everything");
                }
            }
        }
        sql.push_str(end);
    }
    let id = escape_identifier(&table.id);
    match clause {
        Clause::None => {}
        Clause::ReturnIds => {
            write!(sql, " returning {id}::text").expect("a string takes everything");
        }
        Clause::SkipTaken(key) => {
            // With the condition, whole and partial indexes both fit.
            let key = escape_identifier(key);
            write!(
                sql,
                " on conflict ({key}) where {key} is not null do nothing returning {id}::text"
            )
            .expect("a string takes everything");
        }
        Clause::SkipTakenByTrigger => {
            write!(
                sql,
                " where set_config('{ONCE}', 'on', true) = 'on' \
                 returning {id}::text, current_setting('{ONCE}', true) = ''"
            )
            .expect("a string takes everything");
        }
    }
    (sql, parameters)
}

/// Row and column of a parameter of [`statement`], counted from 1.
pub(crate) fn place_of<'a>(rows: &[InsertRow<'a>], number: usize) -> Option<(usize, &'a str)> {
    let mut before = 0;
    for (index, row) in rows.iter().enumerate() {
        if number <= before + row.cells.len() {
            let is_given = |column: &&str| row.cells.iter().any(|(name, _)| name == column);
            let place = number.checked_sub(before + 1)?;
            return union(rows).into_iter().filter(is_given).nth(place).map(|name| (index, name));
        }
        before += row.cells.len();
    }
    None
}

/// All columns that any row names, in the order they first appear.
fn union<'a>(rows: &[InsertRow<'a>]) -> Vec<&'a str> {
    let mut columns: Vec<&str> = Vec::new();
    for (name, _) in rows.iter().flat_map(|row| &row.cells) {
        if !columns.contains(name) {
            columns.push(name);
        }
    }
    columns
}

fn id(column: IdColumn, event: &NewEvent) -> Result<Option<EventId>, Error> {
    match (&event.id, column) {
        (Some(id), _) => id.for_column(column).map(Some),
        (None, IdColumn::BigInt) => Ok(None),
        (None, IdColumn::Uuid | IdColumn::Text) => EventId::new().for_column(column).map(Some),
    }
}

fn payload<'a>(table: &OutboxTable, event: &'a NewEvent) -> Result<Cell<'a>, Error> {
    event.payload.for_column(table.payload_column).ok_or_else(|| Error::Payload {
        table: table.to_string(),
        column: table.payload.clone(),
        declared: table.payload_column.as_str(),
    })
}

fn column<'a>(
    table: &OutboxTable,
    what: &'static str,
    name: Option<&'a String>,
) -> Result<&'a str, Error> {
    name.map(String::as_str).ok_or_else(|| Error::NoColumn { table: table.to_string(), what })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PayloadColumn;

    fn event() -> NewEvent {
        NewEvent::new("order", "1", "placed")
    }

    fn sql(table: &OutboxTable, events: &[NewEvent], clause: Clause<'_>) -> String {
        let rows: Vec<_> = events.iter().map(|one| InsertRow::new(table, one).unwrap()).collect();
        statement(table, &rows, clause).0
    }

    #[test]
    fn only_columns_that_are_given_are_named() {
        let table = OutboxTable::builder("a\"b", "T").id("n", IdColumn::BigInt).build().unwrap();
        assert_eq!(
            sql(&table, &[event()], Clause::ReturnIds),
            r#"insert into "a""b"."T" ("aggregatetype", "aggregateid", "type", "payload") values "#
                .to_owned()
                + r#"($1, $2, $3, $4) returning "n"::text"#
        );
    }

    #[test]
    fn what_an_event_is_about_is_left_out_where_no_column_has_it() {
        let table = OutboxTable::builder("s", "t").without_aggregate().build().unwrap();
        let text = sql(&table, &[event()], Clause::None);
        assert!(text.contains(r#"("id", "type", "payload") values ($1, $2, $3)"#), "{text}");
    }

    #[test]
    fn what_one_row_has_the_others_default() {
        let table = OutboxTable::builder("s", "t").id("n", IdColumn::BigInt).build().unwrap();
        let events = [event().column("x", "1"), event().id(7)];
        let text = sql(&table, &events, Clause::None);
        let values = "values ($1, $2, $3, $4, $5, default), ($6, $7, $8, $9, default, $10)";
        assert!(text.ends_with(values), "{text}");
        assert!(text.contains(r#""payload", "x", "n")"#), "{text}");
    }

    #[test]
    fn a_parameter_is_found_by_its_number() {
        let table = OutboxTable::builder("s", "t").id("n", IdColumn::BigInt).build().unwrap();
        let events = [event().column("x", "1"), event().id(7)];
        let rows: Vec<_> = events.iter().map(|one| InsertRow::new(&table, one).unwrap()).collect();
        let columns = ["aggregatetype", "aggregateid", "type", "payload"];
        let first = columns.iter().chain(&["x"]).map(|name| (0, *name));
        let second = columns.iter().chain(&["n"]).map(|name| (1, *name));
        for (index, place) in first.chain(second).enumerate() {
            assert_eq!(place_of(&rows, index + 1), Some(place));
        }
        assert_eq!((place_of(&rows, 0), place_of(&rows, 11)), (None, None));
    }

    #[test]
    fn what_the_table_has_no_column_for_is_refused() {
        let table = OutboxTable::builder("s", "t").build().unwrap();
        for event in [
            event().header("a", "b"),
            event().traceparent("a"),
            event().tracestate("a"),
            event().idempotency_key("a"),
        ] {
            let error = InsertRow::new(&table, &event).unwrap_err();
            assert!(matches!(error, Error::NoColumn { .. }), "{error:?}");
        }
        let error = InsertRow::new(&table, &event().column("payload", "x")).unwrap_err();
        assert!(matches!(error, Error::ColumnTwice { .. }), "{error:?}");
        let error = InsertRow::new(&table, &event().bytes([1])).unwrap_err();
        assert!(matches!(error, Error::Payload { declared: "jsonb", .. }), "{error:?}");
    }

    #[test]
    fn statements_are_bounded_in_rows_bytes_and_parameters() {
        let table =
            OutboxTable::builder("s", "t").payload("payload", PayloadColumn::Text).build().unwrap();
        let count = |events: &[NewEvent]| {
            let rows: Vec<_> =
                events.iter().map(|one| InsertRow::new(&table, one).unwrap()).collect();
            chunk(&rows)
        };
        assert_eq!(count(&vec![event(); 1_001]), 1_000);
        assert_eq!(count(&[event()]), 1);
        let large = event().text("x".repeat(MAX_BYTES / 2));
        assert_eq!(count(&vec![large; 3]), 1);
        assert_eq!(count(&[event().text("x".repeat(MAX_BYTES + 1)), event()]), 1);
        let wide = (0..95).fold(event(), |event, n| event.column(format!("c{n}"), "x"));
        assert_eq!(count(&vec![wide; 1_000]), 655);
    }
}
