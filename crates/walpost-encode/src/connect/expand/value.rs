//! A JSON value to a value of its inferred schema.

use super::{Difference, ExpandOptions, NullField, infer, parse::Node};
use crate::connect::{
    schema::{Kind, Schema},
    value::Value,
};

pub(crate) fn value(
    node: &Node,
    schema: &Schema,
    options: ExpandOptions,
) -> Result<Value, Difference> {
    Ok(match (node, &schema.kind) {
        (Node::Null, _) if schema.optional => Value::Null,
        (Node::String(text), Kind::String) => Value::String(text.clone()),
        (Node::Boolean(is_true), Kind::Boolean) => Value::Boolean(*is_true),
        (Node::Int(number), Kind::Int32) => Value::Int32(*number),
        (Node::Long(number), Kind::Int64) => Value::Int64(*number),
        (Node::Double(number), Kind::Float64) => Value::Float64(*number),
        (Node::BigInteger, _) => return Err(Difference::IntegerTooLarge),
        (Node::Array(elements), Kind::Array(of_element)) => {
            let value = |element| value(element, of_element, options);
            Value::Array(elements.iter().map(value).collect::<Result<_, _>>()?)
        }
        (Node::Object(members), Kind::Struct(fields)) => {
            check_members(members, schema, options)?;
            let value = |name: &str, schema: &Schema| {
                node.get(name).map_or(Ok(Value::Null), |node| value(node, schema, options))
            };
            let values = fields.iter().map(|field| value(&field.name, &field.schema));
            Value::Struct(values.collect::<Result<_, _>>()?)
        }
        _ => return Err(Difference::MixedTypes),
    })
}

/// Every member has its field under its own name, but those that are left out
/// on purpose.
fn check_members(
    members: &[(String, Node)],
    schema: &Schema,
    options: ExpandOptions,
) -> Result<(), Difference> {
    for (name, node) in members {
        let is_null = matches!(node, Node::Null) && options.null_field == NullField::Ignore;
        if schema.field(name).is_some() || is_null {
            continue;
        }
        if schema.field(&options.names.field(name)).is_some() {
            return Err(Difference::AdjustedMember);
        }
        // What cannot be inferred by itself has failed before.
        let own = infer::schema(None, node, options);
        if own.is_ok_and(|own| own.is_some()) {
            return Err(Difference::LostMember);
        }
    }
    Ok(())
}
