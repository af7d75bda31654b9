//! The schema of a JSON value, as Debezium infers it.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, LazyLock},
};

use super::{EmptyArray, ExpandOptions, NullField, parse::Node};
use crate::connect::{
    options::NameAdjustment,
    schema::{Kind, Schema, SchemaField},
    value::Text,
};

/// Bytes of one inferred schema. The names of structs within structs are whole
/// paths, so that a small payload can ask for gigabytes.
const MAX_SCHEMA_BYTES: usize = 4 << 20;

/// What a field takes beside its name, and a struct beside its fields.
const FIELD_BYTES: usize = 96;
const STRUCT_BYTES: usize = 256;

/// Why there is no schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoSchema {
    /// An array has none: Debezium leaves the whole payload as it is.
    Unfit,
    /// It would be larger than the bound.
    TooLarge,
}

type Inferred = Result<Option<Arc<Schema>>, NoSchema>;

/// `key` names structs; `None` where they have no name. `Ok(None)` where the
/// value is left out.
pub(crate) fn schema(key: Option<&Arc<str>>, node: &Node, options: ExpandOptions) -> Inferred {
    Inference { options, paths: HashMap::new(), path_bytes: 0, field_bytes: 0 }.schema(key, node)
}

struct Inference<'a> {
    options: ExpandOptions,
    /// Names of structs, by the address of the name around them and the member:
    /// of one place there is one name, however many elements an array has.
    paths: HashMap<(usize, &'a str), Arc<str>>,
    path_bytes: usize,
    field_bytes: usize,
}

impl<'a> Inference<'a> {
    fn schema(&mut self, key: Option<&Arc<str>>, node: &'a Node) -> Inferred {
        let leaf = match node {
            Node::String(_) => Leaf::String,
            Node::Boolean(_) => Leaf::Boolean,
            Node::Int(_) => Leaf::Int32,
            Node::Long(_) => Leaf::Int64,
            Node::Double(_) | Node::BigInteger => Leaf::Float64,
            Node::Null if self.options.null_field == NullField::Ignore => return Ok(None),
            Node::Null => Leaf::Bytes,
            Node::Array(elements) if elements.is_empty() => match self.options.empty_array {
                EmptyArray::Ignore => return Ok(None),
                EmptyArray::OptionalString => Leaf::Strings,
            },
            Node::Array(elements) => {
                let kind = Kind::Array(self.element(key, elements)?);
                return Ok(Some(Schema::new(kind).optional().into()));
            }
            Node::Object(members) => {
                return self.object(key, members).map(|schema| Some(schema.into()));
            }
        };
        Ok(Some(leaf.schema()))
    }

    fn object(
        &mut self,
        key: Option<&Arc<str>>,
        members: &'a [(Text, Node)],
    ) -> Result<Schema, NoSchema> {
        self.take_fields(STRUCT_BYTES)?;
        let is_adjusted = self.options.names != NameAdjustment::None;
        // Members differ, and their names may yet become the same.
        let mut seen: HashSet<Arc<str>> = HashSet::new();
        let mut fields: Vec<SchemaField> = Vec::with_capacity(members.len());
        for (member, node) in members {
            let name: Arc<str> = match is_adjusted {
                true => self.options.names.field(member).into(),
                false => (**member).into(),
            };
            let path = match node {
                Node::Object(_) | Node::Array(_) => Some(self.path(key, member, &name)?),
                _ => None,
            };
            let schema = self.schema(path.as_ref(), node)?;
            let is_new = !is_adjusted || !seen.contains(&name);
            if let Some(schema) = schema.filter(|_| is_new) {
                // A field must have a name.
                if name.is_empty() {
                    return Err(NoSchema::Unfit);
                }
                self.take_fields(FIELD_BYTES + name.len())?;
                if is_adjusted {
                    seen.insert(Arc::clone(&name));
                }
                fields.push(SchemaField { name, schema });
            }
        }
        let schema = Schema { name: key.map(Arc::clone), ..Schema::new(Kind::Struct(fields)) };
        Ok(schema.optional())
    }

    /// The name of the struct that `member` is, within one that is named `key`.
    fn path(
        &mut self,
        key: Option<&Arc<str>>,
        member: &'a str,
        name: &Arc<str>,
    ) -> Result<Arc<str>, NoSchema> {
        let key = key.filter(|key| !key.trim().is_empty());
        // Each is kept in the map, or by the caller: an address means one name.
        let place = (key.map_or(0, |key| Arc::as_ptr(key).addr()), member);
        if let Some(path) = self.paths.get(&place) {
            return Ok(Arc::clone(path));
        }
        self.path_bytes += key.map_or(0, |key| key.len()) + name.len() + FIELD_BYTES;
        self.check()?;
        let path = match key {
            Some(key) => format!("{key}.{name}").into(),
            None => Arc::clone(name),
        };
        self.paths.insert(place, Arc::clone(&path));
        Ok(path)
    }

    fn take_fields(&mut self, bytes: usize) -> Result<(), NoSchema> {
        self.field_bytes += bytes;
        self.check()
    }

    fn check(&self) -> Result<(), NoSchema> {
        let is_within = self.field_bytes + self.path_bytes <= MAX_SCHEMA_BYTES;
        is_within.then_some(()).ok_or(NoSchema::TooLarge)
    }

    /// The schema of an array's elements: that of the first, of objects all of
    /// them merged.
    fn element(
        &mut self,
        key: Option<&Arc<str>>,
        elements: &'a [Node],
    ) -> Result<Arc<Schema>, NoSchema> {
        let sample = sample(elements)?;
        if !matches!(sample, Node::Object(_)) {
            return self.schema(None, sample)?.ok_or(NoSchema::Unfit);
        }
        let mut merged: Option<Merged> = None;
        for element in elements {
            let Node::Object(members) = element else {
                continue;
            };
            let before = self.field_bytes;
            let shape = self.object(key, members)?;
            let grown = match &mut merged {
                None => {
                    merged = Some(Merged::of(shape));
                    self.field_bytes - before
                }
                Some(merged) => merged.add(shape),
            };
            // What does not grow the schema is gone with the element.
            self.field_bytes = before;
            self.take_fields(grown)?;
        }
        merged.map(Merged::finish).ok_or(NoSchema::Unfit)
    }
}

/// The shapes of objects in one.
struct Merged {
    first: Arc<Schema>,
    /// Once there is a second shape.
    all: Option<Fields>,
}

/// Fields of several shapes, with their places.
struct Fields {
    list: Vec<SchemaField>,
    places: HashMap<Arc<str>, usize>,
}

impl Fields {
    fn of(schema: &Schema) -> Self {
        let list = match &schema.kind {
            Kind::Struct(fields) => fields.clone(),
            _ => Vec::new(),
        };
        let place = |(place, field): (usize, &SchemaField)| (Arc::clone(&field.name), place);
        let places = list.iter().enumerate().map(place).collect();
        Self { list, places }
    }

    /// Adds a field; of fields of one name the first stays, unless it is bytes,
    /// which stand for null. Returns the bytes that are new.
    fn add(&mut self, field: SchemaField) -> usize {
        let bytes = field.schema.size_bytes();
        match self.places.get(&field.name).map(|place| &mut self.list[*place]) {
            Some(known) if known.schema.kind != Kind::Bytes || field.schema.kind == Kind::Bytes => {
                0
            }
            Some(known) => {
                *known = field;
                bytes
            }
            None => {
                let bytes = FIELD_BYTES + field.name.len() + bytes;
                self.places.insert(Arc::clone(&field.name), self.list.len());
                self.list.push(field);
                bytes
            }
        }
    }
}

impl Merged {
    fn of(first: Schema) -> Self {
        Self { first: first.into(), all: None }
    }

    /// Adds the fields of one more. Returns the bytes that are new.
    fn add(&mut self, shape: Schema) -> usize {
        if self.all.is_none() && *self.first == shape {
            return 0;
        }
        let Kind::Struct(more) = shape.kind else {
            return 0;
        };
        let all = self.all.get_or_insert_with(|| Fields::of(&self.first));
        more.into_iter().map(|field| all.add(field)).sum()
    }

    /// In Debezium, what is merged is required.
    fn finish(self) -> Arc<Schema> {
        let Some(all) = self.all else {
            return self.first;
        };
        let name = self.first.name.clone();
        Schema { name, ..Schema::new(Kind::Struct(all.list)) }.into()
    }
}

/// The first element that is not null, if all others are of its type.
fn sample(elements: &[Node]) -> Result<&Node, NoSchema> {
    let mut present = elements.iter().filter(|element| !matches!(element, Node::Null));
    let Some(first) = present.next() else {
        return Ok(&Node::Null);
    };
    let is_alike = present.all(|element| kind_of(element) == kind_of(first));
    is_alike.then_some(first).ok_or(NoSchema::Unfit)
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

/// Schemas that are the same wherever they stand.
#[derive(Clone, Copy)]
enum Leaf {
    String,
    Boolean,
    Int32,
    Int64,
    Float64,
    Bytes,
    Strings,
}

impl Leaf {
    fn schema(self) -> Arc<Schema> {
        static LEAVES: LazyLock<[Arc<Schema>; 7]> = LazyLock::new(|| {
            let text = || Schema::new(Kind::String).optional();
            [
                Kind::String,
                Kind::Boolean,
                Kind::Int32,
                Kind::Int64,
                Kind::Float64,
                Kind::Bytes,
                Kind::Array(text().into()),
            ]
            .map(|kind| Schema::new(kind).optional().into())
        });
        Arc::clone(&LEAVES[self as usize])
    }
}
