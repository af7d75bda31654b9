//! Rows and routers in few words.

use std::sync::Arc;

use walpost_event::{
    Column, Field, Operation, Record, RecordValue, Relation, ReplicaIdentity, Row, RowChange,
    type_oid,
};
use walpost_router::{RouteError, RouteErrorKind, Routed, Router, RouterConfig, SkipReason};

/// A column: its name, type and text.
pub(crate) type Cell<'a> = (&'a str, u32, Option<&'a str>);

/// The id of the reference's wire vectors.
pub(crate) const ID: &str = "59a42efd-b015-44a9-9dde-cb36d9002425";

/// The row of the reference's wire vectors.
pub(crate) const USER: [Cell<'static>; 5] = [
    ("id", type_oid::UUID, Some(ID)),
    ("aggregatetype", type_oid::VARCHAR, Some("User")),
    ("aggregateid", type_oid::VARCHAR, Some("10711fa5")),
    ("type", type_oid::VARCHAR, Some("UserCreated")),
    ("payload", type_oid::JSONB, Some("{\"a\": 1}")),
];

/// The row of the vectors with the cells of `others` replaced or added.
pub(crate) fn user(others: &[Cell<'_>]) -> Row {
    let replaced = USER.iter().map(|cell| others.iter().find(|o| o.0 == cell.0).unwrap_or(cell));
    let added = others.iter().filter(|other| !USER.iter().any(|cell| cell.0 == other.0));
    row(&replaced.chain(added).copied().collect::<Vec<_>>())
}

pub(crate) fn row(cells: &[Cell<'_>]) -> Row {
    let relation = relation(cells.iter().map(|(name, type_oid, _)| (*name, *type_oid)));
    Row::from_text(relation, cells.iter().map(|(_, _, value)| *value))
}

pub(crate) fn relation<'a>(columns: impl Iterator<Item = (&'a str, u32)>) -> Arc<Relation> {
    let columns = columns.map(|(name, type_oid)| Column {
        name: name.into(),
        type_oid,
        type_modifier: -1,
        is_key: false,
    });
    Arc::new(Relation {
        oid: 16_400,
        schema: "public".into(),
        name: "outbox".into(),
        replica_identity: ReplicaIdentity::Default,
        columns: columns.collect(),
    })
}

/// A router with the given Debezium properties.
pub(crate) fn router(properties: &[(&str, &str)]) -> Router {
    let config = RouterConfig::from_properties(properties.iter().copied()).expect("legal keys");
    Router::new(config).expect("a legal configuration")
}

pub(crate) fn route(properties: &[(&str, &str)], row: Row) -> Record {
    match router(properties).route(&RowChange::insert(row)) {
        Ok(Routed::Record(record)) => record,
        other => panic!("expected a record, found {other:?}"),
    }
}

pub(crate) fn refuse(properties: &[(&str, &str)], row: Row) -> RouteError {
    router(properties).route(&RowChange::insert(row)).expect_err("a row that cannot be routed")
}

/// The column and the kind of the error.
pub(crate) fn refusal(properties: &[(&str, &str)], row: Row) -> (String, RouteErrorKind) {
    let error = refuse(properties, row);
    assert_eq!(error.table(), "public.outbox");
    (error.column().unwrap_or_default().to_owned(), error.kind().clone())
}

pub(crate) fn skip(
    properties: &[(&str, &str)],
    operation: Operation,
) -> Result<SkipReason, RouteError> {
    let change = RowChange { operation, row: user(&[]), old: None };
    router(properties).route(&change).map(|routed| match routed {
        Routed::Skipped(reason) => reason,
        Routed::Record(_) => panic!("expected a row that is skipped"),
    })
}

/// The text of a field, `None` for NULL.
pub(crate) fn text(field: &Field) -> Option<&str> {
    field.bytes.as_deref().map(|bytes| std::str::from_utf8(bytes).expect("UTF-8"))
}

/// The payload of a record without envelope.
pub(crate) fn payload(record: &Record) -> &Field {
    match &record.value {
        RecordValue::Payload(field) => field,
        other => panic!("expected a bare payload, found {other:?}"),
    }
}

/// Names and texts of the headers.
pub(crate) fn headers(record: &Record) -> Vec<(&str, Option<&str>)> {
    record.headers.iter().map(|header| (&*header.name, text(&header.field))).collect()
}
