use std::{
    fmt,
    ops::{Deref, Range},
    str::Utf8Error,
};

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
    String(Text),
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

/// Text, shared with the row where it is a part of it. `Debug` shows its size.
///
/// ```
/// use walpost_encode::connect::Text;
///
/// assert_eq!(&*Text::from("a"), "a");
/// assert!(Text::try_from(bytes::Bytes::from_static(b"\xff")).is_err());
/// ```
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct Text(Bytes);

impl Text {
    /// Its bytes.
    pub fn as_bytes(&self) -> &Bytes {
        &self.0
    }

    /// Whether it is this text.
    pub(crate) fn is(&self, text: &str) -> bool {
        *self.0 == *text.as_bytes()
    }

    /// A part of it, shared.
    ///
    /// # Panics
    /// Beyond the end. Both ends have to lie between characters.
    pub(crate) fn part(&self, range: Range<usize>) -> Self {
        Self(self.0.slice(range))
    }
}

impl Deref for Text {
    type Target = str;

    fn deref(&self) -> &str {
        std::str::from_utf8(&self.0).expect("text is UTF-8 from the start")
    }
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        Self(text.into())
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        Self(Bytes::copy_from_slice(text.as_bytes()))
    }
}

impl TryFrom<Bytes> for Text {
    type Error = Utf8Error;

    fn try_from(bytes: Bytes) -> Result<Self, Utf8Error> {
        std::str::from_utf8(&bytes)?;
        Ok(Self(bytes))
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Text({} bytes)", self.0.len())
    }
}

impl Value {
    /// Bytes that it takes, about.
    pub(crate) fn size_bytes(&self) -> usize {
        size_of::<Self>()
            + match self {
                Self::String(text) => text.as_bytes().len(),
                Self::Bytes(bytes) => bytes.len(),
                Self::Decimal(decimal) => decimal.unscaled_bytes().len(),
                Self::Array(values) | Self::Struct(values) => {
                    values.iter().map(Self::size_bytes).sum()
                }
                Self::Map(entries) => {
                    entries.iter().map(|(key, value)| key.size_bytes() + value.size_bytes()).sum()
                }
                _ => 0,
            }
    }
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
            Self::String(text) => write!(f, "String({} bytes)", text.as_bytes().len()),
            Self::Bytes(bytes) => write!(f, "Bytes({} bytes)", bytes.len()),
            Self::Decimal(_) => f.write_str("Decimal"),
            Self::Date(_) => f.write_str("Date"),
            Self::Array(elements) => f.debug_list().entries(elements).finish(),
            Self::Map(entries) => write!(f, "Map({} entries)", entries.len()),
            Self::Struct(values) => f.debug_tuple("Struct").field(values).finish(),
        }
    }
}
