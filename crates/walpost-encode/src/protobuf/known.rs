//! Messages that come with Protobuf.

use crate::connect::{Kind, Schema};

/// The type of a value of Kafka Connect's own, as a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Logical {
    Decimal,
    Date,
    Time,
    Timestamp,
}

impl Logical {
    pub(super) fn of(schema: &Schema) -> Option<Self> {
        let name = schema.name()?.strip_prefix("org.apache.kafka.connect.data.")?;
        Some(match name {
            "Decimal" => Self::Decimal,
            "Date" => Self::Date,
            "Time" => Self::Time,
            "Timestamp" => Self::Timestamp,
            _ => return None,
        })
    }

    /// The message, and the file that it is in.
    pub(super) fn message(self) -> (&'static str, &'static str) {
        match self {
            Self::Decimal => ("confluent.type.Decimal", "confluent/type/decimal.proto"),
            Self::Date => ("google.type.Date", "google/type/date.proto"),
            Self::Time => ("google.type.TimeOfDay", "google/type/timeofday.proto"),
            Self::Timestamp => ("google.protobuf.Timestamp", TIMESTAMP),
        }
    }
}

const TIMESTAMP: &str = "google/protobuf/timestamp.proto";
/// The file of the wrappers.
pub(super) const WRAPPERS: &str = "google/protobuf/wrappers.proto";

/// A type of a field.
pub(super) struct Scalar {
    /// Its name.
    pub(super) name: &'static str,
    /// The message that wraps it, and its place among the wrappers.
    pub(super) wrapper: (&'static str, usize),
}

/// The messages of the wrappers' file, in order, with the type that each wraps.
pub(super) const WRAPPER_MESSAGES: [(&str, &str); 9] = [
    ("DoubleValue", "double"),
    ("FloatValue", "float"),
    ("Int64Value", "int64"),
    ("UInt64Value", "uint64"),
    ("Int32Value", "int32"),
    ("UInt32Value", "uint32"),
    ("BoolValue", "bool"),
    ("StringValue", "string"),
    ("BytesValue", "bytes"),
];

/// The type of a number, a flag, a text or bytes; `None` for what has parts.
pub(super) fn scalar(kind: &Kind) -> Option<Scalar> {
    let index = match kind {
        Kind::Float64 => 0,
        Kind::Float32 => 1,
        Kind::Int64 => 2,
        Kind::Int8 | Kind::Int16 | Kind::Int32 => 4,
        Kind::Boolean => 6,
        Kind::String => 7,
        Kind::Bytes => 8,
        Kind::Array(_) | Kind::Map(..) | Kind::Struct(_) => return None,
    };
    let (wrapper, name) = WRAPPER_MESSAGES[index];
    Some(Scalar { name, wrapper: (wrapper, index) })
}

/// Whether many of them are written in one piece.
pub(super) fn is_packed(kind: &Kind) -> bool {
    scalar(kind).is_some_and(|scalar| scalar.wrapper.1 < 7)
}
