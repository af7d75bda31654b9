use std::sync::Arc;

use walpost_event::{Relation, Row, Value as RowValue};

use super::{
    column::Column,
    description::ColumnDescription,
    options::{ColumnOptions, NameAdjustment},
};

/// A table's columns as Debezium has them, and the name of its rows' schema.
///
/// Worked out once for each shape of a table.
#[derive(Clone, Debug)]
pub struct RowShape {
    /// Up to the point before `Value`.
    name_prefix: String,
    columns: Vec<Option<Column>>,
    names: Vec<Arc<str>>,
    /// Columns that have a default, with its text.
    defaults: Vec<usize>,
}

/// What [`RowShape::new`] takes of the configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShapeOptions {
    /// `topic.prefix`
    pub topic_prefix: String,
    /// `schema.name.adjustment.mode`
    pub schema_names: NameAdjustment,
    /// What columns become.
    pub columns: ColumnOptions,
}

/// Characters that a topic can have, by which Debezium names schemas as well.
const MAX_NAME_LEN: usize = 249;

impl RowShape {
    /// The shape of `relation`. A column without a description is taken as it
    /// stands in the relation, see [`ColumnDescription::from_type`].
    pub fn new(
        relation: &Relation,
        descriptions: &[ColumnDescription],
        options: &ShapeOptions,
    ) -> Self {
        let column = |column: &walpost_event::Column| {
            let known = descriptions
                .iter()
                .find(|known| known.name == column.name && known.data_type.oid == column.type_oid);
            match known {
                Some(known) => Column::new(known, &options.columns),
                None => {
                    let (oid, modifier) = (column.type_oid, column.type_modifier);
                    let guess = ColumnDescription::from_type(column.name.clone(), oid, modifier);
                    Column::new(&guess, &options.columns)
                }
            }
        };
        let columns: Vec<Option<Column>> = relation.columns.iter().map(column).collect();
        let has_default =
            |column: &Option<Column>| column.as_ref().is_some_and(|c| c.default_text().is_some());
        let defaults = (0..columns.len()).filter(|index| has_default(&columns[*index])).collect();
        let names = relation.columns.iter().map(|column| Arc::clone(&column.name)).collect();
        Self { name_prefix: name_prefix(relation, options), columns, names, defaults }
    }

    /// Column `index` of the relation; `None` where Debezium leaves it out.
    pub fn column(&self, index: usize) -> Option<&Column> {
        self.columns.get(index)?.as_ref()
    }

    /// The column of this name, with its index.
    pub fn column_named(&self, name: &str) -> Option<(usize, &Column)> {
        let index = self.names.iter().position(|known| **known == *name)?;
        self.column(index).map(|column| (index, column))
    }

    /// Name of the schema of an envelope whose row is routed by `route`.
    pub fn envelope_name(&self, route: &str) -> String {
        format!("{}{route}.Value", self.name_prefix)
    }

    /// The row with defaults for its NULLs, as Debezium reads it; `None` where
    /// that is the row itself. For what is decided before a record is encoded,
    /// such as whether a payload is empty;
    /// [`ConnectEncoding`](super::ConnectEncoding) does the same by itself.
    ///
    /// A column in `verbatim` (indices) keeps its NULL: Debezium reads the
    /// columns that route, partition and date an event so.
    pub fn with_defaults(&self, row: &Row, verbatim: &[usize]) -> Option<Row> {
        let is_missing =
            |index: &usize| row.value(*index) == RowValue::Null && !verbatim.contains(index);
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
                (RowValue::Text(bytes) | RowValue::Binary(bytes), _) => {
                    buffer.extend_from_slice(bytes);
                }
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
            }
        }
        Some(builder.finish())
    }

    fn default_text(&self, index: usize) -> Option<&str> {
        self.column(index)?.default_text()
    }
}

/// `<topic.prefix>.<schema>.<table>.`, each character that a topic cannot have
/// being `_`.
fn name_prefix(relation: &Relation, options: &ShapeOptions) -> String {
    let parts = [&options.topic_prefix, &relation.schema, &relation.name];
    let joined: Vec<&str> =
        parts.into_iter().map(String::as_str).filter(|part| !part.trim().is_empty()).collect();
    let allow = |c: char| match c {
        'a'..='z' | 'A'..='Z' | '0'..='9' | '.' | '_' | '-' => c,
        _ => '_',
    };
    let mut name: String = joined.join(".").chars().map(allow).collect();
    name.truncate(MAX_NAME_LEN);
    let mut name = options.schema_names.schema(&format!("{name}.Value"));
    name.truncate(name.len() - "Value".len());
    name
}
