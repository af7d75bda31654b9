use std::{
    hash::{Hash, Hasher},
    mem,
    sync::Arc,
};

use super::value::Value;

/// A schema as Kafka Connect has it: what converters print beside a value, and
/// what decides how they print the value itself.
#[derive(Clone, Debug, PartialEq)]
pub struct Schema {
    /// The type, with the schemas of what it is made of.
    pub kind: Kind,
    /// NULL is a value.
    pub optional: bool,
    /// Name of a logical type such as `io.debezium.data.Json`, or of a struct.
    pub name: Option<Arc<str>>,
    /// Version of what the name names.
    pub version: Option<i32>,
    /// Documentation.
    pub doc: Option<Arc<str>>,
    /// Parameters of the logical type, in order.
    pub parameters: Vec<(Arc<str>, Arc<str>)>,
    /// What stands for a missing value.
    pub default: Option<Value>,
}

/// The type of a [`Schema`].
#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    /// 8 bits, signed.
    Int8,
    /// 16 bits, signed.
    Int16,
    /// 32 bits, signed.
    Int32,
    /// 64 bits, signed.
    Int64,
    /// 32 bits, floating point.
    Float32,
    /// 64 bits, floating point.
    Float64,
    /// True or false.
    Boolean,
    /// Text.
    String,
    /// Bytes.
    Bytes,
    /// Any number of values of one schema.
    Array(Arc<Schema>),
    /// Keys and values of one schema each.
    Map(Arc<Schema>, Arc<Schema>),
    /// Fields, in order.
    Struct(Vec<SchemaField>),
}

/// A field of a [`Kind::Struct`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SchemaField {
    /// Name.
    pub name: Arc<str>,
    /// Schema of its values.
    pub schema: Arc<Schema>,
}

impl Schema {
    /// Required, without a name.
    pub fn new(kind: Kind) -> Self {
        Self {
            kind,
            optional: false,
            name: None,
            version: None,
            doc: None,
            parameters: Vec::new(),
            default: None,
        }
    }

    /// Required, of a name and a version.
    pub fn logical(kind: Kind, name: &str, version: i32) -> Self {
        Self { name: Some(name.into()), version: Some(version), ..Self::new(kind) }
    }

    /// A struct of these fields.
    pub fn fields<const N: usize>(fields: [(&str, Self); N]) -> Kind {
        let field =
            |(name, schema): (&str, Self)| SchemaField { name: name.into(), schema: schema.into() };
        Kind::Struct(fields.into_iter().map(field).collect())
    }

    /// An array of values of `element`.
    pub fn array(element: Self) -> Self {
        Self::new(Kind::Array(element.into()))
    }

    /// The same, whose values may be NULL.
    #[must_use]
    pub fn optional(mut self) -> Self {
        self.optional = true;
        self
    }

    /// The same with one more parameter.
    #[must_use]
    pub fn parameter(mut self, name: &str, value: &str) -> Self {
        self.parameters.push((name.into(), value.into()));
        self
    }

    /// The same with documentation.
    #[must_use]
    pub fn documented(mut self, doc: &str) -> Self {
        self.doc = Some(doc.into());
        self
    }

    /// Its name, if it has one.
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// The schema of its elements, if it is an array.
    pub fn element(&self) -> Option<&Self> {
        match &self.kind {
            Kind::Array(element) => Some(element),
            _ => None,
        }
    }

    /// The schemas of its keys and of its values, if it is a map.
    pub fn entry(&self) -> Option<(&Self, &Self)> {
        match &self.kind {
            Kind::Map(key, value) => Some((key, value)),
            _ => None,
        }
    }

    /// Bytes that it takes, about, with all that it is made of.
    pub(crate) fn size_bytes(&self) -> usize {
        let text = |text: &Option<Arc<str>>| text.as_ref().map_or(0, |text| text.len());
        let parameter = |(name, value): &(Arc<str>, Arc<str>)| name.len() + value.len() + 32;
        let field = |field: &SchemaField| {
            size_of::<SchemaField>() + field.name.len() + field.schema.size_bytes()
        };
        let parts = match &self.kind {
            Kind::Array(element) => element.size_bytes(),
            Kind::Map(key, value) => key.size_bytes() + value.size_bytes(),
            Kind::Struct(fields) => fields.iter().map(field).sum(),
            _ => 0,
        };
        size_of::<Self>()
            + text(&self.name)
            + text(&self.doc)
            + self.parameters.iter().map(parameter).sum::<usize>()
            + self.default.as_ref().map_or(0, Value::size_bytes)
            + parts
    }

    /// The field of this name, with its place, if it is a struct that has one.
    pub fn field(&self, name: &str) -> Option<(usize, &SchemaField)> {
        let Kind::Struct(fields) = &self.kind else {
            return None;
        };
        fields.iter().enumerate().find(|(_, field)| &*field.name == name)
    }
}

impl Kind {
    /// Name of the type, as Kafka Connect's JSON has it.
    pub fn json_name(&self) -> &'static str {
        match self {
            Self::Int8 => "int8",
            Self::Int16 => "int16",
            Self::Int32 => "int32",
            Self::Int64 => "int64",
            Self::Float32 => "float",
            Self::Float64 => "double",
            Self::Boolean => "boolean",
            Self::String => "string",
            Self::Bytes => "bytes",
            Self::Array(_) => "array",
            Self::Map(..) => "map",
            Self::Struct(_) => "struct",
        }
    }
}

// A default that is not a number is unequal to itself: such a schema is worked
// out again each time, which is slow and not wrong.
impl Eq for Schema {}

impl Hash for Schema {
    fn hash<H: Hasher>(&self, state: &mut H) {
        mem::discriminant(&self.kind).hash(state);
        self.optional.hash(state);
        self.name.hash(state);
        self.version.hash(state);
        match &self.kind {
            Kind::Array(element) => element.hash(state),
            Kind::Map(key, value) => {
                key.hash(state);
                value.hash(state);
            }
            Kind::Struct(fields) => fields.hash(state),
            _ => {}
        }
    }
}
