//! Where the fields of a record have their types from.

use std::sync::{Arc, LazyLock};

use walpost_event::{Field, Relation, Row};

use super::{
    column::Column,
    schema::{Kind, Schema, SchemaField},
    shape::RowShape,
    typed::TypedValue,
    value::{Text, Value},
};
use crate::error::EncodeErrorKind;

/// What a record was made of.
pub(crate) enum Origin<'a> {
    Table(&'a RowShape),
    Message(Message<'a>),
}

/// The members of a logical message, which the router has taken for columns.
pub(crate) struct Message<'a> {
    relation: &'a Relation,
    schema: Arc<Schema>,
    values: Vec<Value>,
}

impl<'a> Message<'a> {
    /// Of the message's content as a struct.
    pub(crate) fn new(relation: &'a Relation, (schema, value): (Arc<Schema>, Value)) -> Self {
        let values = match value {
            Value::Struct(values) => values,
            _ => Vec::new(),
        };
        Self { relation, schema, values }
    }

    /// A member; `None` where it was left out, as it is null.
    fn member(&self, name: &str) -> Option<(&SchemaField, &Value)> {
        let (place, field) = self.schema.field(name)?;
        self.values.get(place).map(|value| (field, value))
    }

    fn member_at(&self, index: u16) -> Option<(&SchemaField, &Value)> {
        self.member(&self.relation.columns.get(usize::from(index))?.name)
    }
}

impl Origin<'_> {
    /// The value of a field; one that is no column is text.
    pub(crate) fn typed(&self, field: &Field) -> Result<TypedValue, EncodeErrorKind> {
        let Some(index) = field.column else {
            let Some(bytes) = &field.bytes else {
                return Ok(TypedValue { value: Value::Null, ..TypedValue::text(Text::default()) });
            };
            let not_utf8 = |_| EncodeErrorKind::NotUtf8 { len: bytes.len() };
            return Text::try_from(bytes.clone()).map(TypedValue::text).map_err(not_utf8);
        };
        match self {
            Self::Table(shape) => {
                let unknown = || EncodeErrorKind::UnknownType { type_oid: field.type_oid };
                let column = shape.column(index.into()).ok_or_else(unknown)?;
                Ok(of_column(column, column.value(field.bytes.as_ref())?))
            }
            Self::Message(message) => {
                let (field, value) =
                    message.member_at(index).ok_or(EncodeErrorKind::MissingMember)?;
                Ok(TypedValue { schema: Some(Arc::clone(&field.schema)), value: value.clone() })
            }
        }
    }

    /// NULL of the column of this name; of a message it has to be one that is kept.
    pub(crate) fn null_of(&self, name: &str) -> Result<TypedValue, EncodeErrorKind> {
        match self {
            Self::Table(shape) => Ok(shape
                .column_named(name)
                .map_or(TypedValue::NONE, |(_, column)| of_column(column, Value::Null))),
            Self::Message(message) => {
                let (field, _) = message.member(name).ok_or(EncodeErrorKind::MissingMember)?;
                let schema = Some(Arc::clone(&field.schema));
                Ok(TypedValue { schema, value: Value::Null })
            }
        }
    }

    /// That a message has kept the member of this name. A table has its columns.
    pub(crate) fn has(&self, name: &str) -> Result<(), EncodeErrorKind> {
        match self {
            Self::Table(_) => Ok(()),
            Self::Message(message) => {
                message.member(name).map(drop).ok_or(EncodeErrorKind::MissingMember)
            }
        }
    }

    /// Whether Debezium has no such field, as it does not know the column's type,
    /// or has left out the member.
    pub(crate) fn is_missing(&self, field: &Field) -> bool {
        field.column.is_some_and(|index| match self {
            Self::Table(shape) => shape.column(index.into()).is_none(),
            Self::Message(message) => message.member_at(index).is_none(),
        })
    }

    /// The name of the payload's column, by which its structs are named.
    pub(crate) fn name(&self, field: &Field) -> &Arc<str> {
        static PAYLOAD: LazyLock<Arc<str>> = LazyLock::new(|| "payload".into());
        let name = field.column.and_then(|index| match self {
            Self::Table(shape) => shape.column(index.into()).map(Column::name),
            Self::Message(message) => {
                message.relation.columns.get(usize::from(index)).map(|column| &column.name)
            }
        });
        name.unwrap_or(&PAYLOAD)
    }

    /// The integer that the column of this name has, without its default.
    pub(crate) fn integer(&self, row: &Row, name: &str) -> Result<Value, EncodeErrorKind> {
        let refused = EncodeErrorKind::VersionColumn;
        match self {
            Self::Table(shape) => {
                let (index, column) = shape.column_named(name).ok_or(refused.clone())?;
                match row.value(index) {
                    _ if column.schema().kind != Kind::Int32 => Err(refused),
                    walpost_event::Value::Binary(bytes) => {
                        let bytes = bytes.try_into().map_err(|_| refused)?;
                        Ok(Value::Int32(i32::from_be_bytes(bytes)))
                    }
                    walpost_event::Value::Text(_) => column.value(row.bytes(index).as_ref()),
                    _ => Ok(Value::Null),
                }
            }
            Self::Message(message) => {
                let member = message.member(name);
                let of_kind = member.filter(|(field, _)| field.schema.kind == Kind::Int32);
                of_kind.map(|(_, value)| value.clone()).ok_or(refused)
            }
        }
    }

    /// The name of the schema of an envelope whose row is routed by `route`, in
    /// place of what is in `name`.
    pub(crate) fn envelope_name(&self, route: &str, name: &mut String) {
        match self {
            Self::Table(shape) => shape.envelope_name(route, name),
            // What is decoded has no name.
            Self::Message(_) => {
                name.clear();
                name.push_str(route);
            }
        }
    }
}

/// As Debezium reads a column: a default stands for NULL.
fn of_column(column: &Column, value: Value) -> TypedValue {
    let schema = Arc::clone(column.schema());
    let value = match &schema.default {
        Some(default) if value == Value::Null => default.clone(),
        _ => value,
    };
    TypedValue { schema: Some(schema), value }
}
