//! How the data of a schema lie, with its names resolved: pure.

use std::collections::HashMap;

use apache_avro::{
    Schema,
    schema::{InnerDecimalSchema, Name, NamesRef, NamespaceRef, UuidSchema},
};

/// Records, arrays and maps within each other, the outermost counted.
pub(super) const MAX_LEVELS: usize = 128;
/// Levels that the decoder, which calls itself, takes on any thread, in a debug
/// build too.
pub(super) const FLAT_LEVELS: usize = 8;
/// Rounds in which more than those show: a union lies between two.
const MAX_ROUNDS: usize = 2 * FLAT_LEVELS + 4;

/// Where a [`Kind`] stands in a [`Layout`].
pub(super) type Place = usize;

#[derive(Debug)]
pub(super) enum Kind {
    /// So many bytes, of which none say more.
    Bytes(usize),
    /// A varint.
    Number,
    /// A length and so many bytes.
    Prefixed,
    /// The number of one of them, and that.
    Union(Box<[Place]>),
    Record(Box<[Place]>),
    Array(Place),
    Map(Place),
}

#[derive(Debug)]
pub(super) struct Layout {
    kinds: Vec<Kind>,
    pub(super) root: Place,
}

impl Layout {
    /// `None` where a name is missing.
    pub(super) fn new(schema: &Schema, names: &NamesRef<'_>) -> Option<Self> {
        let order: Vec<(&Name, &Schema)> =
            names.iter().map(|(name, schema)| (name, *schema)).collect();
        let places = order.iter().enumerate().map(|(place, (name, _))| (*name, place)).collect();
        let kinds = order.iter().map(|_| Kind::Bytes(0)).collect();
        let mut making = Making { places, kinds };
        for (place, (name, schema)) in order.into_iter().enumerate() {
            making.kinds[place] = making.kind(schema, name.namespace())?;
        }
        let root = making.place(schema, None)?;
        Some(Self { kinds: making.kinds, root })
    }

    pub(super) fn kind(&self, place: Place) -> &Kind {
        &self.kinds[place]
    }

    /// Whether a value may be nested deeper than [`FLAT_LEVELS`], or have items
    /// that take no bytes.
    pub(super) fn is_unbounded(&self) -> bool {
        let mut levels = vec![0; self.kinds.len()];
        let mut empty = vec![false; self.kinds.len()];
        for _ in 0..MAX_ROUNDS {
            let mut settled = true;
            for (place, kind) in self.kinds.iter().enumerate() {
                let most = |of: &[Place]| of.iter().map(|of| levels[*of]).max().unwrap_or(0);
                let (level, nothing) = match kind {
                    Kind::Bytes(size) => (0, *size == 0),
                    Kind::Number | Kind::Prefixed => (0, false),
                    Kind::Union(of) => (most(of), false),
                    Kind::Record(of) => (1 + most(of), of.iter().all(|of| empty[*of])),
                    Kind::Array(of) | Kind::Map(of) => (1 + levels[*of], false),
                };
                let now = (level.min(FLAT_LEVELS + 1), nothing);
                settled &= now == (levels[place], empty[place]);
                (levels[place], empty[place]) = now;
            }
            if settled || levels[self.root] > FLAT_LEVELS {
                break;
            }
        }
        let of_nothing = |kind: &Kind| matches!(kind, Kind::Array(of) if empty[*of]);
        levels[self.root] > FLAT_LEVELS || self.kinds.iter().any(of_nothing)
    }
}

struct Making<'a> {
    places: HashMap<&'a Name, Place>,
    kinds: Vec<Kind>,
}

impl Making<'_> {
    fn place(&mut self, schema: &Schema, within: NamespaceRef<'_>) -> Option<Place> {
        let name = match schema {
            Schema::Ref { name } => name,
            Schema::Record(record) => &record.name,
            _ => {
                let kind = self.kind(schema, within)?;
                self.kinds.push(kind);
                return Some(self.kinds.len() - 1);
            }
        };
        self.places.get(&*name.fully_qualified_name(within)).copied()
    }

    fn kind(&mut self, schema: &Schema, within: NamespaceRef<'_>) -> Option<Kind> {
        Some(match schema {
            Schema::Null => Kind::Bytes(0),
            Schema::Boolean => Kind::Bytes(1),
            Schema::Float => Kind::Bytes(4),
            Schema::Double => Kind::Bytes(8),
            Schema::Fixed(fixed)
            | Schema::Duration(fixed)
            | Schema::Uuid(UuidSchema::Fixed(fixed)) => Kind::Bytes(fixed.size),
            Schema::Decimal(decimal) => match &decimal.inner {
                InnerDecimalSchema::Fixed(fixed) => Kind::Bytes(fixed.size),
                InnerDecimalSchema::Bytes => Kind::Prefixed,
            },
            Schema::Int
            | Schema::Long
            | Schema::Enum(_)
            | Schema::Date
            | Schema::TimeMillis
            | Schema::TimeMicros
            | Schema::TimestampMillis
            | Schema::TimestampMicros
            | Schema::TimestampNanos
            | Schema::LocalTimestampMillis
            | Schema::LocalTimestampMicros
            | Schema::LocalTimestampNanos => Kind::Number,
            Schema::Bytes
            | Schema::String
            | Schema::BigDecimal
            | Schema::Uuid(UuidSchema::String | UuidSchema::Bytes) => Kind::Prefixed,
            Schema::Union(union) => Kind::Union(self.all(union.variants().iter(), within)?),
            Schema::Array(array) => Kind::Array(self.place(&array.items, within)?),
            Schema::Map(map) => Kind::Map(self.place(&map.types, within)?),
            Schema::Record(record) => {
                Kind::Record(self.all(record.fields.iter().map(|field| &field.schema), within)?)
            }
            // A name stands for a definition, never for another name.
            Schema::Ref { .. } => return None,
        })
    }

    fn all<'s>(
        &mut self,
        schemas: impl Iterator<Item = &'s Schema>,
        within: NamespaceRef<'_>,
    ) -> Option<Box<[Place]>> {
        schemas.map(|schema| self.place(schema, within)).collect()
    }
}

#[cfg(test)]
mod tests {
    use apache_avro::schema::ResolvedSchema;

    use super::*;

    fn is_unbounded(text: &str) -> bool {
        let schema = Schema::parse_str(text).unwrap();
        let names = ResolvedSchema::new(&schema).unwrap();
        Layout::new(&schema, names.get_names()).unwrap().is_unbounded()
    }

    /// Records that each have the one before them, without a recursion.
    fn chain(records: usize) -> String {
        let field = |at: usize| match at {
            0 => r#"{"name":"f0","type":{"type":"record","name":"R0","fields":[]}}"#.to_owned(),
            _ => format!(
                r#"{{"name":"f{at}","type":{{"type":"record","name":"R{at}","fields":[
                    {{"name":"x","type":["int","R{}"]}}]}}}}"#,
                at - 1
            ),
        };
        let fields: Vec<String> = (0..records).map(field).collect();
        format!(r#"{{"type":"record","name":"All","fields":[{}]}}"#, fields.join(","))
    }

    #[test]
    fn schemas_that_bound_their_values_need_no_walk() {
        for text in [
            r#""null""#,
            r#"{"type":"array","items":"boolean"}"#,
            r#"{"type":"array","items":["null","string"]}"#,
            r#"{"type":"map","values":"null"}"#,
            r#"{"type":"array","items":{"type":"map","values":{"type":"array","items":"int"}}}"#,
            r#"{"type":"record","name":"R","fields":[{"name":"a","type":"null"},
                {"name":"b","type":{"type":"array","items":{"type":"record","name":"S",
                "fields":[{"name":"c","type":"null"},{"name":"d","type":"long"}]}}}]}"#,
            &chain(FLAT_LEVELS - 1),
        ] {
            assert!(!is_unbounded(text), "{text}");
        }
    }

    #[test]
    fn recursion_depth_and_items_without_bytes_need_one() {
        for text in [
            r#"{"type":"record","name":"N","fields":[{"name":"n","type":["null","N"]}]}"#,
            r#"{"type":"record","name":"N","fields":[{"name":"n","type":"N"}]}"#,
            r#"{"type":"array","items":{"type":"record","name":"a.N","fields":[
                {"name":"n","type":{"type":"map","values":"a.N"}}]}}"#,
            r#"{"type":"array","items":"null"}"#,
            r#"{"type":"map","values":{"type":"array","items":"null"}}"#,
            r#"{"type":"array","items":{"type":"fixed","name":"F","size":0}}"#,
            r#"{"type":"array","items":{"type":"record","name":"R","fields":[
                {"name":"a","type":"null"},{"name":"b","type":{"type":"record","name":"S",
                "fields":[]}}]}}"#,
            &chain(FLAT_LEVELS),
            &chain(2_000),
        ] {
            assert!(is_unbounded(text), "{text}");
        }
    }
}
