use std::fmt;

use bytes::Bytes;

use super::decimal::Decimal;

/// A value as Kafka Connect has it, of some [`Schema`](super::Schema).
///
/// `Debug` shows types and sizes, never contents.
#[derive(Clone, PartialEq)]
pub enum Value {
    /// No value.
    Null,
    /// Of an `int8`.
    Int8(i8),
    /// Of an `int16`.
    Int16(i16),
    /// Of an `int32`.
    Int32(i32),
    /// Of an `int64`.
    Int64(i64),
    /// Of a `float`.
    Float32(f32),
    /// Of a `double`.
    Float64(f64),
    /// Of a `boolean`.
    Boolean(bool),
    /// Of a `string`.
    String(String),
    /// Of `bytes`.
    Bytes(Bytes),
    /// Of `bytes` that are named `org.apache.kafka.connect.data.Decimal`.
    Decimal(Decimal),
    /// Milliseconds since 1970 of Kafka Connect's own `Date`, `Time` and
    /// `Timestamp`.
    Date(i64),
    /// Elements.
    Array(Vec<Self>),
    /// Keys and values, in the order in which they are written.
    Map(Vec<(Self, Self)>),
    /// One value for each field of the schema.
    Struct(Vec<Self>),
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("Null"),
            Self::Int8(_) => f.write_str("Int8"),
            Self::Int16(_) => f.write_str("Int16"),
            Self::Int32(_) => f.write_str("Int32"),
            Self::Int64(_) => f.write_str("Int64"),
            Self::Float32(_) => f.write_str("Float32"),
            Self::Float64(_) => f.write_str("Float64"),
            Self::Boolean(_) => f.write_str("Boolean"),
            Self::String(text) => write!(f, "String({} bytes)", text.len()),
            Self::Bytes(bytes) => write!(f, "Bytes({} bytes)", bytes.len()),
            Self::Decimal(_) => f.write_str("Decimal"),
            Self::Date(_) => f.write_str("Date"),
            Self::Array(elements) => f.debug_list().entries(elements).finish(),
            Self::Map(entries) => write!(f, "Map({} entries)", entries.len()),
            Self::Struct(values) => f.debug_tuple("Struct").field(values).finish(),
        }
    }
}
