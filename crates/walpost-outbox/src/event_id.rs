use std::fmt;

use uuid::Uuid;

use crate::{Error, IdColumn};

/// Identity of an event, from its writer to the dedup row of its consumer.
///
/// ```
/// use walpost_outbox::EventId;
///
/// assert_eq!(EventId::from(42).to_string(), "42");
/// assert_eq!(EventId::from("01JD3M5Y8K").to_string(), "01JD3M5Y8K");
/// assert!(matches!(EventId::new(), EventId::Uuid(id) if id.get_version_num() == 7));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum EventId {
    /// A UUID.
    Uuid(Uuid),
    /// Text of your own: a ULID, a KSUID, a business key.
    Text(String),
    /// A number, mostly drawn by the database.
    BigInt(i64),
}

impl EventId {
    /// A new UUID of version 7: time first, and ascending within a process.
    #[allow(clippy::new_without_default, reason = "an id drawn at random is no default")]
    pub fn new() -> Self {
        Self::Uuid(Uuid::now_v7())
    }

    /// The same id as the column holds it.
    pub(crate) fn for_column(&self, column: IdColumn) -> Result<Self, Error> {
        let mismatch = || Error::Id { id: self.to_string(), expected: column.as_str() };
        match (column, self) {
            (IdColumn::Uuid, Self::Uuid(_)) | (IdColumn::BigInt, Self::BigInt(_)) => {
                Ok(self.clone())
            }
            (IdColumn::Text, id) => Ok(Self::Text(id.to_string())),
            (IdColumn::Uuid, Self::Text(text)) => {
                text.parse().map(Self::Uuid).map_err(|_| mismatch())
            }
            (IdColumn::BigInt, Self::Text(text)) => {
                text.parse().map(Self::BigInt).map_err(|_| mismatch())
            }
            (IdColumn::Uuid, Self::BigInt(_)) | (IdColumn::BigInt, Self::Uuid(_)) => {
                Err(mismatch())
            }
        }
    }
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uuid(id) => id.fmt(f),
            Self::Text(id) => f.write_str(id),
            Self::BigInt(id) => id.fmt(f),
        }
    }
}

impl From<Uuid> for EventId {
    fn from(id: Uuid) -> Self {
        Self::Uuid(id)
    }
}

impl From<&str> for EventId {
    fn from(id: &str) -> Self {
        Self::Text(id.to_owned())
    }
}

impl From<String> for EventId {
    fn from(id: String) -> Self {
        Self::Text(id)
    }
}

impl From<i64> for EventId {
    fn from(id: i64) -> Self {
        Self::BigInt(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_becomes_what_its_column_holds_or_is_refused() {
        let uuid = Uuid::now_v7();
        let text = uuid.to_string();
        let ok = |id: EventId, column| id.for_column(column).unwrap();
        assert_eq!(ok(uuid.into(), IdColumn::Uuid), EventId::Uuid(uuid));
        assert_eq!(ok(text.as_str().into(), IdColumn::Uuid), EventId::Uuid(uuid));
        assert_eq!(ok(uuid.into(), IdColumn::Text), EventId::Text(text));
        assert_eq!(ok(7.into(), IdColumn::Text), EventId::from("7"));
        assert_eq!(ok("7".into(), IdColumn::BigInt), EventId::BigInt(7));
        for (id, column) in [
            (EventId::from("seven"), IdColumn::BigInt),
            (EventId::from(uuid), IdColumn::BigInt),
            (EventId::from(7), IdColumn::Uuid),
            (EventId::from("7"), IdColumn::Uuid),
        ] {
            assert!(matches!(id.for_column(column), Err(Error::Id { .. })), "{id:?}");
        }
    }
}
