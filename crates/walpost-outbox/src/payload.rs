use std::{borrow::Cow, fmt};

use crate::{Error, PayloadColumn, param::Cell};

/// What an event carries.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Payload {
    None,
    /// Checked to be one JSON value.
    Json(String),
    Text(String),
    Bytes(Vec<u8>),
}

impl Payload {
    /// The value for a column of this kind; `None` where it cannot hold it.
    pub(crate) fn for_column(&self, column: PayloadColumn) -> Option<Cell<'_>> {
        use PayloadColumn::{Bytea, Json, Jsonb, Text};
        match (self, column) {
            (Self::None, _) => Some(Cell::Null),
            (Self::Json(json), Json | Jsonb | Text) => Some(Cell::text(json)),
            (Self::Text(text), Text) => Some(Cell::text(text)),
            (Self::Text(text), Json | Jsonb) => Some(Cell::Text(Cow::Owned(json_string(text)))),
            (Self::Json(text) | Self::Text(text), Bytea) => Some(Cell::Bytes(text.as_bytes())),
            (Self::Bytes(bytes), Bytea) => Some(Cell::Bytes(bytes)),
            (Self::Bytes(_), Json | Jsonb | Text) => None,
        }
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        match self {
            Self::Text(text) if text.contains('\0') => Err(Error::Nul { what: "payload" }),
            Self::None | Self::Json(_) | Self::Text(_) | Self::Bytes(_) => Ok(()),
        }
    }
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("None"),
            Self::Json(json) => write!(f, "Json({} bytes)", json.len()),
            Self::Text(text) => write!(f, "Text({} bytes)", text.len()),
            Self::Bytes(bytes) => write!(f, "Bytes({} bytes)", bytes.len()),
        }
    }
}

/// Text as a JSON string with its quotes.
pub(crate) fn json_string(text: &str) -> String {
    serde_json::to_string(text).expect("text is always a JSON string")
}
