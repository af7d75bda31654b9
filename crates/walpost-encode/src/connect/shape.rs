use std::sync::Arc;

use walpost_event::{Relation, Row, Value as RowValue};

use super::{
    column::Column,
    description::{ColumnDescription, TypeDescription},
    options::{ColumnOptions, NameAdjustment},
    schema::{Kind, Schema, SchemaField},
    typed::TypedValue,
    value::Value,
};
use crate::error::EncodeErrorKind;

/// A table's columns as Debezium has them, and the name of its rows' schema.
///
/// Worked out once for each shape of a table.
#[derive(Clone, Debug)]
pub struct RowShape {
    topic: Arc<str>,
    /// Up to the point before `Value`.
    name_prefix: String,
    columns: Vec<Option<Column>>,
    names: Vec<Arc<str>>,
    /// Columns whose NULLs a default stands for in the whole row.
    defaults: Vec<usize>,
    /// The columns of the primary key, in its order.
    key: Vec<usize>,
    /// Of the schema of the key.
    key_name: String,
}

/// What the catalog says of a column, and the stream does not.
///
/// It is that of now, and rows in the stream may be older: as in Debezium, what it
/// says counts for the column of that name, and its default for that of the same
/// type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CatalogColumn {
    /// `attname`
    pub name: Arc<str>,
    /// `atttypid`
    pub type_oid: u32,
    /// Not `attnotnull`.
    pub nullable: bool,
    /// `pg_get_expr(adbin, adrelid)` of the column's default; `None` where
    /// there is none, and for a generated column.
    pub default: Option<String>,
    /// Its place in the primary key; `None` where it is not of it.
    pub key_place: Option<u16>,
}

/// What [`RowShape::new`] takes of the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShapeOptions {
    /// `topic.prefix`
    pub topic_prefix: String,
    /// `topic.delimiter`, Debezium's default being a dot.
    pub topic_delimiter: String,
    /// `schema.name.adjustment.mode`
    pub schema_names: NameAdjustment,
    /// `field.name.adjustment.mode`
    pub field_names: NameAdjustment,
    /// What columns become.
    pub columns: ColumnOptions,
    /// Names of the columns that Debezium reads without their defaults: those
    /// that route, date and partition an event, and give its schema version.
    pub without_defaults: Vec<String>,
}

impl ShapeOptions {
    /// The topic of Debezium's own records of a table,
    /// `<topic.prefix>.<schema>.<table>`: what transforms before the router see.
    pub fn topic(&self, schema: &str, table: &str) -> String {
        let parts = [&*self.topic_prefix, schema, table].into_iter();
        let joined: Vec<&str> = parts.filter(|part| !part.trim().is_empty()).collect();
        // Each character that a topic cannot have is `_`.
        let allow = |c: char| match c {
            'a'..='z' | 'A'..='Z' | '0'..='9' | '.' | '_' | '-' => c,
            _ => '_',
        };
        let mut topic: String = joined.join(&self.topic_delimiter).chars().map(allow).collect();
        topic.truncate(MAX_NAME_LEN);
        topic
    }
}

impl Default for ShapeOptions {
    fn default() -> Self {
        Self {
            topic_prefix: String::new(),
            topic_delimiter: ".".to_owned(),
            schema_names: NameAdjustment::default(),
            field_names: NameAdjustment::default(),
            columns: ColumnOptions::default(),
            without_defaults: Vec::new(),
        }
    }
}

/// Characters that a topic can have, by which Debezium names schemas as well.
const MAX_NAME_LEN: usize = 249;

impl RowShape {
    /// The shape of `relation`, with what the catalog says of its columns.
    ///
    /// `types` are those of `pg_type`, by OID: an OID means one type as long as
    /// that is there, so that they need not be of the moment of the row. A
    /// type that is not there is a built-in one, if that; a column that is not,
    /// may be NULL and has no default.
    pub fn new(
        relation: &Relation,
        catalog: &[CatalogColumn],
        types: impl Fn(u32) -> Option<TypeDescription>,
        options: &ShapeOptions,
    ) -> Self {
        let column = |column: &walpost_event::Column| {
            let known = catalog.iter().find(|known| known.name == column.name);
            let typed = known.filter(|known| known.type_oid == column.type_oid);
            let description = ColumnDescription {
                name: options.field_names.shared(&column.name),
                data_type: types(column.type_oid)
                    .unwrap_or_else(|| TypeDescription::built_in(column.type_oid)),
                modifier: column.type_modifier,
                nullable: known.is_none_or(|known| known.nullable),
                default: typed.and_then(|known| known.default.clone()),
            };
            Column::new(&description, &options.columns)
        };
        let columns: Vec<Option<Column>> = relation.columns.iter().map(column).collect();
        let names: Vec<_> =
            relation.columns.iter().map(|column| Arc::clone(&column.name)).collect();
        let has_default = |index: &usize| {
            let column = columns[*index].as_ref();
            column.is_some_and(|column| column.default_text().is_some())
                && !options.without_defaults.iter().any(|name| {
                    **name == *names[*index] || column.is_some_and(|column| column.is_named(name))
                })
        };
        let defaults = (0..columns.len()).filter(has_default).collect();
        let topic = options.topic(&relation.schema, &relation.name);
        let mut name_prefix = options.schema_names.schema(&format!("{topic}.Value"));
        name_prefix.truncate(name_prefix.len() - "Value".len());
        let key_name = options.schema_names.schema(&format!("{topic}.Key"));
        let place = |index: usize| {
            let known = catalog.iter().find(|known| known.name == names[index])?;
            known.key_place.map(|place| (place, index))
        };
        let mut key: Vec<(u16, usize)> = (0..names.len()).filter_map(place).collect();
        key.sort_unstable();
        let key = key.into_iter().map(|(_, index)| index).collect();
        Self { topic: topic.into(), name_prefix, columns, names, defaults, key, key_name }
    }

    /// The primary key of a row of the table, or of what PostgreSQL sends of one:
    /// a structure, as Debezium's own records have it. `None` without a key.
    ///
    /// # Errors
    /// [`EncodeErrorKind`] where Debezium fails on one of its values.
    pub fn key(&self, row: &Row) -> Result<Option<TypedValue>, EncodeErrorKind> {
        let (mut fields, mut values) = (Vec::new(), Vec::new());
        for index in &self.key {
            let Some(column) = self.column(*index) else { continue };
            let found = row.relation().column_index(&self.names[*index]);
            let bytes = found.and_then(|index| row.bytes(index));
            values.push(column.value(bytes.as_ref())?);
            fields.push(SchemaField {
                name: Arc::clone(column.name()),
                schema: Arc::clone(column.schema()),
            });
        }
        if fields.is_empty() {
            return Ok(None);
        }
        let name = Some(self.key_name.as_str().into());
        let schema = Schema { name, ..Schema::new(Kind::Struct(fields)) };
        Ok(Some(TypedValue { schema: Some(schema.into()), value: Value::Struct(values) }))
    }

    /// The topic of Debezium's own records of the table,
    /// `<topic.prefix>.<schema>.<table>` with the delimiter of the options: what
    /// a predicate before the router sees.
    pub fn topic(&self) -> &Arc<str> {
        &self.topic
    }

    /// Column `index` of the relation; `None` where Debezium leaves it out.
    pub fn column(&self, index: usize) -> Option<&Column> {
        self.columns.get(index)?.as_ref()
    }

    /// The column of this name, that of the table or the adjusted one, with its
    /// index.
    pub fn column_named(&self, name: &str) -> Option<(usize, &Column)> {
        let is_named = |(index, own): (usize, &Arc<str>)| {
            **own == *name || self.column(index).is_some_and(|column| column.is_named(name))
        };
        let index = self.names.iter().enumerate().position(is_named)?;
        self.column(index).map(|column| (index, column))
    }

    /// Name of the schema of an envelope whose row is routed by `route`, in
    /// place of what is in `name`.
    pub(crate) fn envelope_name(&self, route: &str, name: &mut String) {
        name.clear();
        for part in [&*self.name_prefix, route, ".Value"] {
            name.push_str(part);
        }
    }

    /// The row with defaults for its NULLs, as Debezium reads it; `None` where
    /// that is the row itself. For what is decided before a record is encoded,
    /// such as whether a payload is empty; [`Typing`](super::Typing) does the
    /// same by itself.
    ///
    /// The columns of [`ShapeOptions::without_defaults`] keep their NULLs.
    pub fn with_defaults(&self, row: &Row) -> Option<Row> {
        let is_missing =
            |index: &usize| row.value(*index) == RowValue::Null && self.defaults.contains(index);
        if !self.defaults.iter().any(is_missing) {
            return None;
        }
        let mut buffer = Vec::with_capacity(row.size_bytes() + 64);
        let mut cells = Vec::with_capacity(self.columns.len());
        for index in 0..self.columns.len() {
            let start = buffer.len();
            let default = if is_missing(&index) { self.default_text(index) } else { None };
            match (row.value(index), default) {
                (_, Some(text)) => buffer.extend_from_slice(text.as_bytes()),
                (
                    RowValue::Text(bytes)
                    | RowValue::Binary(bytes)
                    | RowValue::Undecodable { bytes, .. },
                    _,
                ) => buffer.extend_from_slice(bytes),
                (RowValue::Null | RowValue::Unchanged, None) => {}
            }
            cells.push((start, buffer.len() - start, default.is_some()));
        }
        let mut builder = Row::builder(Arc::clone(row.relation()), buffer.into());
        for (index, (start, len, is_default)) in cells.into_iter().enumerate() {
            match row.value(index) {
                _ if is_default => builder.push_text(start, len),
                RowValue::Null => builder.push_null(),
                RowValue::Unchanged => builder.push_unchanged(),
                RowValue::Text(_) => builder.push_text(start, len),
                RowValue::Binary(_) => builder.push_binary(start, len),
                RowValue::Undecodable { at, .. } => builder.push_undecodable(start, len, at),
            }
        }
        Some(builder.finish())
    }

    fn default_text(&self, index: usize) -> Option<&str> {
        self.column(index)?.default_text()
    }
}
