//! A schema of either language: what it takes, and whether it reads what
//! another one writes.

use apache_avro::{
    Schema as AvroSchema,
    reader::datum::GenericDatumReader,
    schema_compatibility::{Compatibility, SchemaCompatibility},
};

use crate::{DocumentError, json::JsonSchema};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Schema {
    Json(Box<JsonSchema>),
    Avro(Box<Avro>),
}

/// Why a schema may not read what another one writes.
#[derive(Debug)]
pub(crate) enum Unreadable {
    Refused(String),
    /// Nobody knows.
    Unknown(String),
}

/// Why a payload is none.
#[derive(Debug)]
pub(crate) enum Unfit {
    /// Not even in its form, which is this.
    Unreadable(&'static str),
    Refused {
        path: String,
        problem: String,
    },
}

impl Schema {
    pub(crate) fn json(text: &str) -> Result<Self, DocumentError> {
        Ok(Self::Json(Box::new(JsonSchema::parse(text)?)))
    }

    pub(crate) fn avro(text: &str) -> Result<Self, DocumentError> {
        let schema = AvroSchema::parse_str(text).map_err(|error| DocumentError::Schema {
            language: "Avro schema",
            problem: error.to_string(),
        })?;
        Ok(Self::Avro(Box::new(Avro(schema))))
    }

    /// Why this may not read something that `writer` allows.
    pub(crate) fn cannot_read(&self, writer: &Self) -> Option<Unreadable> {
        match (self, writer) {
            (Self::Json(reader), Self::Json(writer)) => reader.cannot_read(writer),
            (Self::Avro(reader), Self::Avro(writer)) => reader.cannot_read(writer),
            (Self::Json(_), Self::Avro(_)) | (Self::Avro(_), Self::Json(_)) => {
                Some(Unreadable::Refused("one is in JSON, the other in Avro".to_owned()))
            }
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Avro(AvroSchema);

impl Eq for Avro {}

impl Avro {
    fn cannot_read(&self, writer: &Self) -> Option<Unreadable> {
        match SchemaCompatibility::can_read(&writer.0, &self.0) {
            Ok(Compatibility::Full) => None,
            Ok(Compatibility::Partial) => Some(Unreadable::Refused(
                "some of them only, as with a union or an enum that lost a member".to_owned(),
            )),
            Err(error) => Some(Unreadable::Refused(error.to_string())),
        }
    }

    pub(crate) fn check(&self, payload: &[u8]) -> Result<(), Unfit> {
        let framed = payload.strip_prefix(&[0]).and_then(|rest| rest.get(4..));
        match self.takes(payload) || framed.is_some_and(|datum| self.takes(datum)) {
            true => Ok(()),
            false => Err(Unfit::Unreadable("datum of its Avro schema")),
        }
    }

    fn takes(&self, mut datum: &[u8]) -> bool {
        let reader = GenericDatumReader::builder(&self.0).build();
        reader.is_ok_and(|reader| reader.read_value(&mut datum).is_ok()) && datum.is_empty()
    }
}
