use std::fmt;

use serde::Serialize;
use serde_json::value::RawValue;

use crate::{Error, EventId, payload::Payload};

/// An event to be written.
///
/// Without a payload until one is given; the last one given counts.
///
/// ```
/// use walpost_outbox::NewEvent;
///
/// let event = NewEvent::new("order", "42", "OrderPlaced")
///     .raw_json(r#"{"total_cents": 995}"#)?
///     .idempotency_key("checkout-7f3a")
///     .header("tenant", "acme");
/// # Ok::<(), walpost_outbox::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct NewEvent {
    pub(crate) id: Option<EventId>,
    pub(crate) aggregate_type: String,
    pub(crate) aggregate_id: String,
    pub(crate) event_type: String,
    pub(crate) payload: Payload,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) traceparent: Option<String>,
    pub(crate) tracestate: Option<String>,
    pub(crate) idempotency_key: Option<String>,
    pub(crate) columns: Vec<(String, String)>,
}

impl NewEvent {
    /// An event of this type about one aggregate.
    ///
    /// `aggregate_type` by default names the topic, `aggregate_id` is the
    /// record's key: events of one aggregate keep their order.
    pub fn new(
        aggregate_type: impl Into<String>,
        aggregate_id: impl Into<String>,
        event_type: impl Into<String>,
    ) -> Self {
        Self {
            id: None,
            aggregate_type: aggregate_type.into(),
            aggregate_id: aggregate_id.into(),
            event_type: event_type.into(),
            payload: Payload::None,
            headers: Vec::new(),
            traceparent: None,
            tracestate: None,
            idempotency_key: None,
            columns: Vec::new(),
        }
    }

    /// A value as JSON.
    ///
    /// # Errors
    /// [`Error::Json`] when it cannot be serialized.
    pub fn json<T: Serialize + ?Sized>(mut self, value: &T) -> Result<Self, Error> {
        let json = serde_json::to_string(value).map_err(|source| Error::Json { source })?;
        self.payload = Payload::Json(json);
        Ok(self)
    }

    /// JSON that is already text. [`emit`](crate::emit) and columns of type
    /// `json` and `text` keep it byte for byte.
    ///
    /// # Errors
    /// [`Error::Json`] when it is not one JSON value.
    pub fn raw_json(mut self, json: &str) -> Result<Self, Error> {
        let value: &RawValue =
            serde_json::from_str(json).map_err(|source| Error::Json { source })?;
        self.payload = Payload::Json(value.get().to_owned());
        Ok(self)
    }

    /// Text. A `json` or `jsonb` column stores it as a JSON string.
    #[must_use]
    pub fn text(mut self, text: impl Into<String>) -> Self {
        self.payload = Payload::Text(text.into());
        self
    }

    /// Bytes: for a `bytea` column, or [`emit`](crate::emit).
    #[must_use]
    pub fn bytes(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.payload = Payload::Bytes(bytes.into());
        self
    }

    /// SQL `NULL`: a record without a value.
    #[must_use]
    pub fn no_payload(mut self) -> Self {
        self.payload = Payload::None;
        self
    }

    /// The id, of the type of the table's id column or its text: a UUID, a
    /// number, or for [`IdColumn::Text`](crate::IdColumn::Text) any text.
    /// Without: a new UUID of version 7, or for
    /// [`IdColumn::BigInt`](crate::IdColumn::BigInt) what the database draws.
    #[must_use]
    pub fn id(mut self, id: impl Into<EventId>) -> Self {
        self.id = Some(id.into());
        self
    }

    /// At most one event is ever written with this key, as long as the table
    /// has a unique index on it, as `walpost.outbox` has, and keeps the row.
    #[must_use]
    pub fn idempotency_key(mut self, key: impl Into<String>) -> Self {
        self.idempotency_key = Some(key.into());
        self
    }

    /// A header; one of the same name is replaced.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        put(&mut self.headers, name.into(), value.into());
        self
    }

    /// W3C Trace Context: `00-<trace id>-<span id>-<flags>`. Not checked.
    #[must_use]
    pub fn traceparent(mut self, traceparent: impl Into<String>) -> Self {
        self.traceparent = Some(traceparent.into());
        self
    }

    /// W3C Trace Context: what vendors add. Not checked.
    #[must_use]
    pub fn tracestate(mut self, tracestate: impl Into<String>) -> Self {
        self.tracestate = Some(tracestate.into());
        self
    }

    /// A further column of a table of your own, in its type's text form, as
    /// `"8"` for an `integer`; one of the same name is replaced. Events that do
    /// not have it leave the column its default. [`emit`](crate::emit) makes it
    /// a member of the message.
    #[must_use]
    pub fn column(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        put(&mut self.columns, name.into(), value.into());
        self
    }

    /// Checks what no table takes.
    pub(crate) fn check(&self) -> Result<(), Error> {
        for (what, text) in [
            ("aggregate type", &self.aggregate_type),
            ("aggregate id", &self.aggregate_id),
            ("event type", &self.event_type),
        ] {
            not_empty(what, text)?;
        }
        match &self.id {
            Some(EventId::Text(id)) => not_empty("id", id)?,
            Some(EventId::Uuid(_) | EventId::BigInt(_)) | None => {}
        }
        if let Some(key) = &self.idempotency_key {
            not_empty("idempotency key", key)?;
        }
        for (what, text) in [("traceparent", &self.traceparent), ("tracestate", &self.tracestate)] {
            no_nul(what, text.as_deref().unwrap_or_default())?;
        }
        for (name, value) in &self.headers {
            no_nul("header", name)?;
            no_nul("header", value)?;
        }
        for (name, value) in &self.columns {
            crate::names::check("column", name)?;
            no_nul("column", value)?;
        }
        self.payload.check()
    }
}

/// Identities and sizes; no payload, header or key.
impl fmt::Debug for NewEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewEvent")
            .field("id", &self.id)
            .field("aggregate_type", &self.aggregate_type)
            .field("aggregate_id", &self.aggregate_id)
            .field("event_type", &self.event_type)
            .field("payload", &self.payload)
            .field("headers", &self.headers.len())
            .finish_non_exhaustive()
    }
}

fn put(pairs: &mut Vec<(String, String)>, name: String, value: String) {
    match pairs.iter_mut().find(|(known, _)| *known == name) {
        Some(pair) => pair.1 = value,
        None => pairs.push((name, value)),
    }
}

fn not_empty(what: &'static str, text: &str) -> Result<(), Error> {
    if text.is_empty() {
        return Err(Error::Empty { what });
    }
    no_nul(what, text)
}

fn no_nul(what: &'static str, text: &str) -> Result<(), Error> {
    if text.contains('\0') {
        return Err(Error::Nul { what });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event() -> NewEvent {
        NewEvent::new("order", "1", "placed")
    }

    #[test]
    fn debug_shows_no_contents() {
        let event = event().text("secret").header("secret", "secret").idempotency_key("secret");
        let text = format!("{event:?}");
        assert!(!text.contains("secret"), "{text}");
        assert!(text.contains("6 bytes"), "{text}");
    }

    #[test]
    fn only_one_json_value_is_json() {
        assert_eq!(event().raw_json(" [1, 2] ").unwrap().payload, Payload::Json("[1, 2]".into()));
        for bad in ["", "{", "1 2", "{}, \"x\": 1", "nul"] {
            assert!(matches!(event().raw_json(bad), Err(Error::Json { .. })), "{bad:?}");
        }
    }

    #[test]
    fn the_last_payload_and_the_last_header_of_a_name_count() {
        let event = event().text("a").bytes([1]).header("a", "1").header("b", "2").header("a", "3");
        assert_eq!(event.payload, Payload::Bytes(vec![1]));
        let headers = [("a", "3"), ("b", "2")].map(|(a, b)| (a.to_owned(), b.to_owned()));
        assert_eq!(event.headers, headers);
        assert_eq!(event.no_payload().payload, Payload::None);
    }

    #[test]
    fn what_no_table_takes_is_refused_by_name() {
        let empty = |event: NewEvent| matches!(event.check(), Err(Error::Empty { .. }));
        assert!(empty(NewEvent::new("", "1", "placed")));
        assert!(empty(NewEvent::new("order", "", "placed")));
        assert!(empty(NewEvent::new("order", "1", "")));
        assert!(empty(event().id("")));
        assert!(empty(event().idempotency_key("")));
        let nul = |event: NewEvent| matches!(event.check(), Err(Error::Nul { .. }));
        assert!(nul(NewEvent::new("order", "1\0", "placed")));
        assert!(nul(event().text("a\0")));
        assert!(nul(event().header("a", "\0")));
        assert!(nul(event().traceparent("\0")));
        assert!(nul(event().column("tenant", "\0")));
        assert!(matches!(event().column("", "x").check(), Err(Error::Name { .. })));
        assert!(event().bytes([0]).check().is_ok());
    }
}
