//! Fields of a value's structure: taken into headers, and added to it.

use std::sync::Arc;

use super::{
    super::{
        schema::{Kind, Schema, SchemaField},
        typed::{TypedHeader, TypedRecord, TypedValue},
        value::{Text, Value},
    },
    HeaderOperation,
};
use crate::{error::EncodeErrorKind, memory::Memory};

/// A field that `InsertField$Value` adds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InsertedField {
    /// Its name.
    pub name: Arc<str>,
    /// Whether its schema is optional: not where the name was written with `!`.
    pub optional: bool,
    /// What it is.
    pub of: Inserted,
}

/// What `InsertField$Value` adds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Inserted {
    /// `topic.field`: the record's topic.
    Topic,
    /// `partition.field`: the partition that a column has named; else null.
    Partition,
    /// `static.field`, with this `static.value`.
    Constant(Text),
}

/// Schemas whose fields have changed, by transform and by the address of the
/// schema before, which is kept with it.
pub(super) type Changed = Memory<(usize, usize), (Arc<Schema>, Arc<Schema>)>;

/// Schemas remembered, and their bytes.
pub(super) const MAX_CHANGED: usize = 1_000;
pub(super) const MAX_CHANGED_BYTES: usize = 16 << 20;

/// Makes headers of fields of the record's value.
pub(super) fn to_headers(
    record: &mut TypedRecord,
    step: usize,
    fields: &[(Arc<str>, Arc<str>)],
    operation: HeaderOperation,
    with_defaults: bool,
    changed: &mut Changed,
) -> Result<(), EncodeErrorKind> {
    let headers = taken(&record.value, fields, with_defaults)?;
    if operation == HeaderOperation::Move {
        let value = std::mem::replace(&mut record.value, TypedValue::NONE);
        record.value = left(value, step, fields, changed, with_defaults);
    }
    record.headers.extend(headers);
    Ok(())
}

/// Fields of a structure as headers.
fn taken(
    value: &TypedValue,
    fields: &[(Arc<str>, Arc<str>)],
    with_defaults: bool,
) -> Result<Vec<TypedHeader>, EncodeErrorKind> {
    let TypedValue { schema: Some(schema), value: Value::Struct(values) } = value else {
        return Err(EncodeErrorKind::NoStructure);
    };
    let header = |(name, header): &(Arc<str>, Arc<str>)| {
        let no_field = || EncodeErrorKind::NoField { name: Arc::clone(name) };
        let (place, field) = schema.field(name).ok_or_else(no_field)?;
        let value = values.get(place).ok_or_else(no_field)?;
        let value = or_default(value, &field.schema, with_defaults);
        let value = TypedValue { schema: Some(Arc::clone(&field.schema)), value };
        Ok(TypedHeader { name: Arc::clone(header), value })
    };
    fields.iter().map(header).collect()
}

fn or_default(value: &Value, schema: &Schema, with_defaults: bool) -> Value {
    match &schema.default {
        Some(default) if with_defaults && *value == Value::Null => default.clone(),
        _ => value.clone(),
    }
}

/// A structure without these fields.
fn left(
    value: TypedValue,
    step: usize,
    fields: &[(Arc<str>, Arc<str>)],
    changed: &mut Changed,
    with_defaults: bool,
) -> TypedValue {
    let TypedValue { schema: Some(schema), value: Value::Struct(values) } = value else {
        return value;
    };
    let Kind::Struct(members) = &schema.kind else {
        return TypedValue { schema: Some(schema), value: Value::Struct(values) };
    };
    let stays = |name: &Arc<str>| !fields.iter().any(|(field, _)| field == name);
    let pairs = members.iter().zip(&values).filter(|(member, _)| stays(&member.name));
    let values = pairs.map(|(member, value)| or_default(value, &member.schema, with_defaults));
    let values = Value::Struct(values.collect());
    let rest = || members.iter().filter(|member| stays(&member.name)).cloned().collect();
    let schema = Some(remembered(&schema, step, rest, changed));
    TypedValue { schema, value: values }
}

/// Adds fields behind those of the record's value; nothing where it is null.
pub(super) fn insert(
    record: &mut TypedRecord,
    step: usize,
    fields: &[InsertedField],
    with_defaults: bool,
    changed: &mut Changed,
) -> Result<(), EncodeErrorKind> {
    let TypedRecord { topic, partition, value: TypedValue { schema, value }, .. } = record;
    if *value == Value::Null {
        return Ok(());
    }
    let (Some(before), Value::Struct(values)) = (schema.as_ref(), value) else {
        return Err(EncodeErrorKind::NoStructure);
    };
    let Kind::Struct(members) = &before.kind else { return Err(EncodeErrorKind::NoStructure) };
    let mut names = members.iter().map(|member| &member.name).collect::<Vec<_>>();
    for field in fields {
        if names.contains(&&field.name) {
            return Err(EncodeErrorKind::FieldTwice { name: Arc::clone(&field.name) });
        }
        names.push(&field.name);
    }
    for (value, member) in values.iter_mut().zip(members) {
        *value = or_default(value, &member.schema, with_defaults);
    }
    values.extend(fields.iter().map(|field| match &field.of {
        Inserted::Topic => Value::String(Text::from(&**topic)),
        Inserted::Partition => partition.map_or(Value::Null, Value::Int32),
        Inserted::Constant(text) => Value::String(text.clone()),
    }));
    let all = || members.iter().cloned().chain(fields.iter().map(schema_field)).collect();
    *schema = Some(remembered(before, step, all, changed));
    Ok(())
}

fn schema_field(field: &InsertedField) -> SchemaField {
    let kind = match field.of {
        Inserted::Topic | Inserted::Constant(_) => Kind::String,
        Inserted::Partition => Kind::Int32,
    };
    let schema = Schema { optional: field.optional, ..Schema::new(kind) };
    SchemaField { name: Arc::clone(&field.name), schema: schema.into() }
}

/// The schema with other fields, which is the same for the same one before. It is
/// required, whatever that was.
fn remembered(
    before: &Arc<Schema>,
    step: usize,
    fields: impl FnOnce() -> Vec<SchemaField>,
    changed: &mut Changed,
) -> Arc<Schema> {
    let key = (step, Arc::as_ptr(before).addr());
    if let Some((_, known)) = changed.get(&key) {
        return Arc::clone(known);
    }
    let after = Arc::new(Schema {
        kind: Kind::Struct(fields()),
        optional: false,
        default: None,
        ..Schema::clone(before)
    });
    let bytes = before.size_bytes() + after.size_bytes();
    changed.insert(key, (Arc::clone(before), Arc::clone(&after)), bytes);
    after
}
