use std::{borrow::Cow, error::Error, fmt};

use bytes::BytesMut;
use tokio_postgres::types::{Format, IsNull, ToSql, Type, to_sql_checked};

/// What goes into one column of one row.
#[derive(PartialEq, Eq)]
pub(crate) enum Cell<'a> {
    Null,
    Text(Cow<'a, str>),
    Bytes(&'a [u8]),
}

impl<'a> Cell<'a> {
    pub(crate) fn text(text: &'a str) -> Self {
        Self::Text(Cow::Borrowed(text))
    }

    /// Size on the wire, about.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Null => 0,
            Self::Text(text) => text.len(),
            Self::Bytes(bytes) => bytes.len(),
        }
    }

    /// The parameter's type. Text has none: the server takes the column's, so
    /// one statement serves uuid and text, jsonb and varchar, enum and domain.
    pub(crate) fn parameter_type(&self) -> Type {
        match self {
            Self::Bytes(_) => Type::BYTEA,
            Self::Null | Self::Text(_) => Type::UNKNOWN,
        }
    }
}

/// Sizes alone: parameters are logged by the driver.
impl fmt::Debug for Cell<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("Null"),
            Self::Text(text) => write!(f, "Text({} bytes)", text.len()),
            Self::Bytes(bytes) => write!(f, "Bytes({} bytes)", bytes.len()),
        }
    }
}

impl ToSql for Cell<'_> {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        match self {
            Self::Null => return Ok(IsNull::Yes),
            Self::Text(text) => out.extend_from_slice(text.as_bytes()),
            Self::Bytes(bytes) => out.extend_from_slice(bytes),
        }
        Ok(IsNull::No)
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    fn encode_format(&self, _: &Type) -> Format {
        match self {
            Self::Bytes(_) => Format::Binary,
            Self::Null | Self::Text(_) => Format::Text,
        }
    }

    to_sql_checked!();
}
