//! A JSON value to a value of its inferred schema.

use super::{Difference, ExpandOptions, NullField, infer, parse::Node, places::Places};
use crate::connect::{
    schema::{Kind, Schema, SchemaField},
    value::{Text, Value},
};

/// Fields without a value in all structs of a payload. An array of objects gives
/// each of them the fields of all, which may be many more than the payload has.
const MAX_MISSING: usize = 1 << 20;

pub(crate) fn value(
    node: &Node,
    schema: &Schema,
    options: ExpandOptions,
) -> Result<Value, Difference> {
    Conversion { options, missing: 0 }.value(node, schema)
}

struct Conversion {
    options: ExpandOptions,
    missing: usize,
}

impl Conversion {
    fn value(&mut self, node: &Node, schema: &Schema) -> Result<Value, Difference> {
        Ok(match (node, &schema.kind) {
            (Node::Null, _) if schema.optional => Value::Null,
            (Node::String(text), Kind::String) => Value::String(text.clone()),
            (Node::Boolean(is_true), Kind::Boolean) => Value::Boolean(*is_true),
            (Node::Int(number), Kind::Int32) => Value::Int32(*number),
            (Node::Long(number), Kind::Int64) => Value::Int64(*number),
            (Node::Double(number), Kind::Float64) => Value::Float64(*number),
            (Node::BigInteger, _) => return Err(Difference::IntegerTooLarge),
            (Node::Array(elements), Kind::Array(of_element)) => {
                let value = |element| self.value(element, of_element);
                Value::Array(elements.iter().map(value).collect::<Result<_, _>>()?)
            }
            (Node::Object(members), Kind::Struct(fields)) => self.structure(members, fields)?,
            _ => return Err(Difference::MixedTypes),
        })
    }

    fn structure(
        &mut self,
        members: &[(Text, Node)],
        fields: &[SchemaField],
    ) -> Result<Value, Difference> {
        // The rule, but where members are left out, or objects merged.
        let is_alike = members.len() == fields.len()
            && members.iter().zip(fields).all(|((name, _), field)| name.is(&field.name));
        if is_alike {
            let value =
                |((_, node), field): (&(Text, Node), &SchemaField)| self.value(node, &field.schema);
            let values = members.iter().zip(fields).map(value);
            return Ok(Value::Struct(values.collect::<Result<_, _>>()?));
        }
        self.missing += fields.len().saturating_sub(members.len());
        if self.missing > MAX_MISSING {
            return Err(Difference::TooLarge);
        }
        check_members(members, fields, self.options)?;
        let places = Places::of(members, |(name, _)| name);
        let value = |field: &SchemaField| {
            let node = places.find(&field.name).map(|(_, node)| node);
            node.map_or(Ok(Value::Null), |node| self.value(node, &field.schema))
        };
        Ok(Value::Struct(fields.iter().map(value).collect::<Result<_, _>>()?))
    }
}

/// Every member has its field under its own name, but those that are left out
/// on purpose.
fn check_members(
    members: &[(Text, Node)],
    fields: &[SchemaField],
    options: ExpandOptions,
) -> Result<(), Difference> {
    let places = Places::of(fields, |field| &field.name);
    for (name, node) in members {
        let is_null = matches!(node, Node::Null) && options.null_field == NullField::Ignore;
        if places.find(name).is_some() || is_null {
            continue;
        }
        if places.find(&options.names.field(name)).is_some() {
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
