//! The schema of a JSON value, as Debezium infers it.

use std::sync::Arc;

use super::{EmptyArray, ExpandOptions, NullField, parse::Node};
use crate::connect::schema::{Kind, Schema, SchemaField};

/// An array has no schema: Debezium leaves the whole payload as it is.
#[derive(Debug)]
pub(crate) struct Unfit;

/// `key` names structs; `None` where they have no name. `Ok(None)` where the
/// value is left out.
pub(crate) fn schema(
    key: Option<&str>,
    node: &Node,
    options: ExpandOptions,
) -> Result<Option<Schema>, Unfit> {
    let kind = match node {
        Node::String(_) => Kind::String,
        Node::Boolean(_) => Kind::Boolean,
        Node::Int(_) => Kind::Int32,
        Node::Long(_) => Kind::Int64,
        Node::Double(_) | Node::BigInteger => Kind::Float64,
        Node::Null if options.null_field == NullField::Ignore => return Ok(None),
        Node::Null => Kind::Bytes,
        Node::Array(elements) if elements.is_empty() => match options.empty_array {
            EmptyArray::Ignore => return Ok(None),
            EmptyArray::OptionalString => Kind::Array(Schema::new(Kind::String).optional().into()),
        },
        Node::Array(elements) => Kind::Array(element(key, elements, options)?.into()),
        Node::Object(members) => return object(key, members, options).map(Some),
    };
    Ok(Some(Schema::new(kind).optional()))
}

fn object(
    key: Option<&str>,
    members: &[(String, Node)],
    options: ExpandOptions,
) -> Result<Schema, Unfit> {
    let prefix = key.filter(|key| !key.trim().is_empty()).map(|key| format!("{key}."));
    let mut fields: Vec<SchemaField> = Vec::new();
    for (name, node) in members {
        let name = options.names.field(name);
        let path = format!("{}{name}", prefix.as_deref().unwrap_or_default());
        let schema = schema(Some(&path), node, options)?;
        let is_new = !fields.iter().any(|field| *field.name == *name);
        if let Some(schema) = schema.filter(|_| is_new) {
            // A field must have a name.
            if name.is_empty() {
                return Err(Unfit);
            }
            fields.push(SchemaField { name: name.into(), schema: schema.into() });
        }
    }
    let schema = Schema { name: key.map(Arc::from), ..Schema::new(Kind::Struct(fields)) };
    Ok(schema.optional())
}

/// The schema of an array's elements: that of the first, of objects all of
/// them merged.
fn element(key: Option<&str>, elements: &[Node], options: ExpandOptions) -> Result<Schema, Unfit> {
    let sample = sample(elements)?;
    if !matches!(sample, Node::Object(_)) {
        return schema(None, sample, options)?.ok_or(Unfit);
    }
    let mut shapes: Vec<Schema> = Vec::new();
    for element in elements {
        if let Node::Object(members) = element {
            let shape = object(key, members, options)?;
            if !shapes.contains(&shape) {
                shapes.push(shape);
            }
        }
    }
    shapes.into_iter().reduce(merge).ok_or(Unfit)
}

/// The first element that is not null, if all others are of its type.
fn sample(elements: &[Node]) -> Result<&Node, Unfit> {
    let mut present = elements.iter().filter(|element| !matches!(element, Node::Null));
    let Some(first) = present.next() else {
        return Ok(&Node::Null);
    };
    let is_alike = present.all(|element| kind_of(element) == kind_of(first));
    is_alike.then_some(first).ok_or(Unfit)
}

fn kind_of(node: &Node) -> u8 {
    match node {
        Node::Null => 0,
        Node::Boolean(_) => 1,
        Node::Int(_) => 2,
        Node::Long(_) => 3,
        Node::BigInteger | Node::Double(_) => 4,
        Node::String(_) => 5,
        Node::Array(_) => 6,
        Node::Object(_) => 7,
    }
}

/// The fields of both; of fields of one name the first, unless it is bytes,
/// which stand for null. In Debezium, what is merged is required.
fn merge(left: Schema, right: Schema) -> Schema {
    let (Kind::Struct(mut fields), Kind::Struct(more)) = (left.kind.clone(), right.kind) else {
        return left;
    };
    for field in more {
        match fields.iter_mut().find(|known| known.name == field.name) {
            None => fields.push(field),
            Some(known) => {
                if known.schema.kind == Kind::Bytes && field.schema.kind != Kind::Bytes {
                    *known = field;
                }
            }
        }
    }
    Schema { kind: Kind::Struct(fields), optional: false, ..left }
}
