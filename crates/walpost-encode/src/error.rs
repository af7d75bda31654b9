use std::{fmt, sync::Arc};

use walpost_router::GaveUp;

use crate::connect::Difference;

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

/// What PostgreSQL allows in a type and Debezium, whose form is asked for, does not,
/// and what to do.
fn of_type(type_oid: u32) -> &'static str {
    match type_oid {
        1700 | 1231 => {
            ": NaN and the infinities of numeric have none where decimal.handling.mode is precise; \
             set it to string or double"
        }
        1266 | 1270 => {
            ": a time whose offset has seconds has none in Debezium; store it with another offset, \
             or cast the column"
        }
        1186 | 1187 => {
            ": the infinities of interval have none in Debezium; store another value, or cast the \
             column"
        }
        790 | 791 => {
            ": an amount whose currency has several letters has none in Debezium; set lc_monetary \
             to another locale, or cast the column"
        }
        _ => "",
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
    #[error("{len} bytes of text have no form in the type with oid {type_oid}{}", of_type(*.type_oid))]
    Malformed {
        /// OID of the type.
        type_oid: u32,
        /// Bytes of the text.
        len: usize,
    },
    /// A type that Debezium leaves out of the row.
    #[error(
        "Debezium knows no type with oid {type_oid}; cast the column, or set \
         include.unknown.datatypes"
    )]
    UnknownType {
        /// OID of the type.
        type_oid: u32,
    },
    /// NULL where the schema has none.
    #[error("NULL, where the schema requires a value")]
    RequiredValue,
    /// A decimal number that its schema's scale does not fit.
    #[error("a decimal number has another scale than its schema")]
    DecimalScale,
    /// A value of Kafka Connect's own type for times that is not within a day.
    #[error("a time is not within a day")]
    TimeOfDay,
    /// Bytes or a date under `StringConverter`, for which Debezium writes the
    /// name of a Java object or the time zone of the machine.
    #[error(
        "a value has no text, set binary.handling.mode, or another time.precision.mode or converter"
    )]
    NoText,
    /// Anything but bytes under `ByteArrayConverter`.
    #[error("a value that is not bytes, which ByteArrayConverter alone takes")]
    NotBytes,
    /// Anything but bytes under `BinaryDataConverter` without a delegate.
    #[error("a value that is not bytes, set delegate.converter.type")]
    NoDelegate,
    /// The column of the schema version is missing, or no `integer`.
    #[error("table.field.event.schema.version names no column of type integer")]
    VersionColumn,
    /// A JSON payload that Debezium cannot expand without loss.
    #[error("the payload {0}, and table.expand.json.payload is set")]
    Expansion(Difference),
    /// A logical message that Debezium cannot decode without loss.
    #[error("the content of the message {0}")]
    Content(Difference),
    /// A member of a logical message that Debezium leaves out, as it is null or
    /// an empty array.
    #[error("the message has no value for it, set fields.null.include, or place it nowhere")]
    MissingMember,
    /// The regular expression of a `RegexRouter` backtracks too often.
    #[error("the topic cannot be matched: {0}")]
    TopicRegex(GaveUp),
    /// A transform takes a field of a value that is no structure, or adds one.
    #[error("HeaderFrom and InsertField need a structure, and the value is none")]
    NoStructure,
    /// A transform takes a field that the value's structure does not have.
    #[error("HeaderFrom takes the field {name}, and the value has none of that name")]
    NoField {
        /// Name of the field.
        name: Arc<str>,
    },
    /// A transform adds a field that the value's structure has.
    #[error("InsertField adds the field {name}, and the value has one of that name")]
    FieldTwice {
        /// Name of the field.
        name: Arc<str>,
    },
    /// No schema, without which there is no Avro, and none of its neighbours.
    #[error("a value without a schema has no form under a schema of a registry")]
    NoSchema,
    /// A schema that is none in Avro.
    #[error(
        "the schema has names that Avro does not allow, or one name for two things, set \
         schema.name.adjustment.mode and field.name.adjustment.mode, or scrub.invalid.names"
    )]
    InvalidAvro,
    /// A schema that JSON Schema has no text for.
    #[error("a column's default has no JSON, which a JSON Schema needs; change the default")]
    InvalidJsonSchema,
    /// A schema that is none in Protobuf.
    #[error(
        "the schema has names that Protobuf does not allow, one name for two things, or arrays \
         within arrays; set schema.name.adjustment.mode and field.name.adjustment.mode, or \
         scrub.invalid.names"
    )]
    InvalidProtobuf,
    /// A date that has no Protobuf form.
    #[error("a date is before 1582, or a timestamp beyond the years 1 to 9999, and so no Protobuf")]
    BeyondProtobuf,
    /// A schema whose text is longer than what a registry keeps.
    #[error(
        "the schema has {bytes} bytes, and a registry is asked for at most {max_bytes}; leave \
         table.expand.json.payload out, or give the payload fewer and shorter names"
    )]
    SchemaTooLarge {
        /// Bytes of its text.
        bytes: usize,
        /// The bound.
        max_bytes: usize,
    },
    /// A subject after a record, and a schema that is none.
    #[error("the schema is no record, whose name the subject has")]
    NoRecordName,
}

/// Why a record is no message yet, and what now.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unencoded {
    /// The registry has to say the id of a schema: ask it, hand the id to
    /// [`Converters::learn`](crate::connect::Converters::learn), and encode the
    /// same record again, which may ask for another. Nothing is wrong with the
    /// event.
    #[error("{schema}, of {part} of a record")]
    Ask {
        /// The part of the record whose converter asks.
        part: Part,
        /// What to ask for.
        schema: Box<UnknownSchema>,
    },
    /// It cannot be encoded as configured: park the event.
    #[error(transparent)]
    Park(#[from] EncodeError),
}

/// A schema whose id the registry has to say.
#[derive(Clone, PartialEq, Eq, Hash, thiserror::Error)]
#[error("the registry has to say the id of a schema of subject {subject}")]
pub struct UnknownSchema {
    /// The subject to look under, or to register under.
    pub subject: Arc<str>,
    /// Its text, character by character as Confluent's converter sends it: the
    /// registry compares text.
    pub schema: Arc<str>,
    /// What it is a schema of.
    pub schema_type: SchemaType,
}

/// What a schema in a registry is written in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SchemaType {
    /// Avro's JSON.
    #[default]
    Avro,
    /// JSON Schema.
    Json,
    /// Protobuf's own text.
    Protobuf,
}

impl SchemaType {
    /// Its name in a registry.
    pub fn name(self) -> &'static str {
        match self {
            Self::Avro => "AVRO",
            Self::Json => "JSON",
            Self::Protobuf => "PROTOBUF",
        }
    }
}

impl fmt::Debug for UnknownSchema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "UnknownSchema({}, {} bytes)", self.subject, self.schema.len())
    }
}
