use std::fmt;

use serde::de::DeserializeOwned;

use crate::Error;

/// Longest source, id and type, and reference, in bytes, as the table has them.
const SOURCE_MAX_BYTES: usize = 128;
const NAME_MAX_BYTES: usize = 512;
const REFERENCE_MAX_BYTES: usize = 2_048;
/// Beyond this PostgreSQL cannot send the payload back in one message.
const PAYLOAD_MAX_BYTES: usize = 256 << 20;

/// An event as it was received, to be inserted.
///
/// ```
/// use walpost_inbox::NewEvent;
///
/// let event = NewEvent::new("evt_1", "invoice.paid", br#"{"amount":1200}"#)
///     .source("bank")
///     .related_reference("invoice 77");
/// // The payload is in no text.
/// assert!(!format!("{event:?}").contains("1200"));
/// ```
#[derive(Clone)]
#[must_use]
pub struct NewEvent {
    pub(crate) source: String,
    pub(crate) event_id: String,
    pub(crate) event_type: String,
    pub(crate) related_reference: Option<String>,
    pub(crate) payload: Vec<u8>,
}

impl NewEvent {
    /// An event by the id that its sender gives it, which stays the same when it
    /// is sent again; its type, which selects what is done; and its payload as
    /// it came, byte by byte.
    pub fn new(
        event_id: impl Into<String>,
        event_type: impl Into<String>,
        payload: impl Into<Vec<u8>>,
    ) -> Self {
        Self {
            source: String::new(),
            event_id: event_id.into(),
            event_type: event_type.into(),
            related_reference: None,
            payload: payload.into(),
        }
    }

    /// Who sends, at most 128 bytes; empty unless set. Ids of different sources
    /// are different events.
    pub fn source(mut self, source: impl Into<String>) -> Self {
        self.source = source.into();
        self
    }

    /// What the event is about, for support: a session, an invoice, a customer,
    /// at most 2,048 bytes. It is shown, so no secret.
    pub fn related_reference(mut self, reference: impl Into<String>) -> Self {
        self.related_reference = Some(reference.into());
        self
    }

    /// What the table would refuse in words that quote it.
    /// Its type.
    pub fn event_type(&self) -> &str {
        &self.event_type
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        let reference = self.related_reference.as_deref().unwrap_or_default();
        let texts = [
            ("source", &*self.source, 0, SOURCE_MAX_BYTES),
            ("event_id", &*self.event_id, 1, NAME_MAX_BYTES),
            ("event_type", &*self.event_type, 1, NAME_MAX_BYTES),
            ("related_reference", reference, 0, REFERENCE_MAX_BYTES),
        ];
        for (what, text, min_bytes, max_bytes) in texts {
            if !(min_bytes..=max_bytes).contains(&text.len()) {
                return Err(Error::Bounds { what, bytes: text.len(), min_bytes, max_bytes });
            }
            if text.contains('\0') {
                return Err(Error::Nul { what });
            }
        }
        let (bytes, max_bytes) = (self.payload.len(), PAYLOAD_MAX_BYTES);
        if bytes > max_bytes {
            return Err(Error::Bounds { what: "payload", bytes, min_bytes: 0, max_bytes });
        }
        Ok(())
    }
}

/// Without the payload.
impl fmt::Debug for NewEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewEvent")
            .field("source", &self.source)
            .field("event_id", &self.event_id)
            .field("event_type", &self.event_type)
            .field("related_reference", &self.related_reference)
            .field("payload_bytes", &self.payload.len())
            .finish()
    }
}

/// What of a claimed event is known without its payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    pub(crate) number: i64,
    pub(crate) source: String,
    pub(crate) event_id: String,
    pub(crate) event_type: String,
    pub(crate) related_reference: Option<String>,
    pub(crate) attempt: u32,
}

impl Head {
    /// Its number in the table, `seq`: in the order of insertion.
    pub fn number(&self) -> i64 {
        self.number
    }

    /// Who sent it.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Its id, as its sender gives it.
    pub fn event_id(&self) -> &str {
        &self.event_id
    }

    /// What happened.
    pub fn event_type(&self) -> &str {
        &self.event_type
    }

    /// What it is about.
    pub fn related_reference(&self) -> Option<&str> {
        self.related_reference.as_deref()
    }

    /// Which attempt this is, from 1. One that ended the process counts, one
    /// that a passing fault ended does not.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }
}

/// A claimed event with its payload.
#[derive(Clone, PartialEq, Eq)]
pub struct Event {
    head: Head,
    payload: Vec<u8>,
}

impl Event {
    pub(crate) fn new(head: Head, payload: Vec<u8>) -> Self {
        Self { head, payload }
    }

    /// All but the payload.
    pub fn head(&self) -> &Head {
        &self.head
    }

    /// The payload as it was received.
    pub fn payload(&self) -> &[u8] {
        &self.payload
    }

    /// The payload, read as JSON.
    ///
    /// # Errors
    /// Says where it is something else, and not what it is instead. With `?` in
    /// a handler the event is given up: it stays what it is.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, JsonError> {
        serde_json::from_slice(&self.payload).map_err(|error| JsonError {
            line: error.line(),
            column: error.column(),
            is_syntax: error.is_syntax() || error.is_eof(),
        })
    }
}

/// Without the payload.
impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Event")
            .field("head", &self.head)
            .field("payload_bytes", &self.payload.len())
            .finish()
    }
}

/// The payload is not the JSON that was asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the payload is {} (line {line}, column {column})", what(*.is_syntax))]
#[non_exhaustive]
pub struct JsonError {
    /// Line of the payload, from 1.
    pub line: usize,
    /// Column of the line, in bytes.
    pub column: usize,
    is_syntax: bool,
}

fn what(is_syntax: bool) -> &'static str {
    if is_syntax { "no JSON" } else { "JSON of another shape than was expected" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_of_an_event_has_its_payload() {
        let new = NewEvent::new("a", "t", *b"\"s3cr3t\"");
        assert_eq!(
            format!("{new:?}"),
            "NewEvent { source: \"\", event_id: \"a\", event_type: \"t\", \
             related_reference: None, payload_bytes: 8 }"
        );
        let head = Head {
            number: 1,
            source: String::new(),
            event_id: "a".to_owned(),
            event_type: "t".to_owned(),
            related_reference: None,
            attempt: 1,
        };
        let event = Event::new(head, new.payload);
        assert!(!format!("{event:?}").contains("s3cr3t"), "{event:?}");
        let error = event.json::<u32>().unwrap_err();
        assert_eq!(
            error.to_string(),
            "the payload is JSON of another shape than was expected (line 1, column 8)"
        );
        assert_eq!(event.json::<String>().unwrap(), "s3cr3t");
    }

    #[test]
    fn what_the_table_does_not_take_is_refused_before() {
        let refused = |event: NewEvent| event.check().unwrap_err().to_string();
        for event in [
            NewEvent::new("", "t", *b""),
            NewEvent::new("a", "", *b""),
            NewEvent::new("a".repeat(513), "t", *b""),
            NewEvent::new("a", "t\0", *b""),
            NewEvent::new("a", "t", *b"").source("s".repeat(129)),
            NewEvent::new("a", "t", *b"").related_reference("r".repeat(2_049)),
        ] {
            let text = refused(event);
            assert!(text.starts_with("the event's "), "{text}");
        }
        NewEvent::new("a".repeat(512), "t", *b"").check().unwrap();
    }
}
