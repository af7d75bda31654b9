use std::{fmt, sync::Arc};

/// A record cannot be encoded as configured: park the event.
///
/// Names topic and part, never a value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("encoding {part} of a record for topic {topic} failed: {kind}")]
pub struct EncodeError {
    kind: EncodeErrorKind,
    part: Part,
    topic: Arc<str>,
}

impl EncodeError {
    pub(crate) fn new(kind: EncodeErrorKind, part: Part, topic: &Arc<str>) -> Self {
        Self { kind, part, topic: Arc::clone(topic) }
    }

    /// Why.
    pub fn kind(&self) -> &EncodeErrorKind {
        &self.kind
    }

    /// Which part of the record.
    pub fn part(&self) -> &Part {
        &self.part
    }

    /// Topic of the record.
    pub fn topic(&self) -> &str {
        &self.topic
    }
}

/// A part of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// The key.
    Key,
    /// The value.
    Value,
    /// The member of the value's envelope with this name.
    Member(Arc<str>),
    /// The header with this name.
    Header(Arc<str>),
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key => f.write_str("the key"),
            Self::Value => f.write_str("the value"),
            Self::Member(name) => write!(f, "member {name} of the value"),
            Self::Header(name) => write!(f, "header {name}"),
        }
    }
}

/// Why a record cannot be encoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EncodeErrorKind {
    /// An envelope has no raw form.
    #[error(
        "columns placed in the envelope have no raw form, \
         encode the value as json or place them in headers"
    )]
    RawEnvelope,
    /// Text that is not UTF-8.
    #[error("{len} bytes of text are not UTF-8, set client_encoding to UTF8")]
    NotUtf8 {
        /// Bytes of the text.
        len: usize,
    },
    /// Text that its type cannot have.
    #[error("{len} bytes of text are no value of the type with oid {type_oid}")]
    Malformed {
        /// OID of the type.
        type_oid: u32,
        /// Bytes of the text.
        len: usize,
    },
}
