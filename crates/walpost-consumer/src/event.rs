use std::{fmt, num::NonZeroU32, ops::Range, sync::Arc};

use bytes::Bytes;
use serde::Deserialize;
use smallvec::SmallVec;
use walpost_event::{SOURCE_HEADER as SOURCE, is_globally_unique};

use crate::HandlerError;

/// Name of the header that carries an event's id.
const ID: &str = "id";
/// Name of the header that carries an event's type.
const EVENT_TYPE: &str = "eventType";
/// Of an id and of a source: both, and the consumer's name, are one index entry
/// of PostgreSQL, which takes 2,704 bytes.
const MAX_IDENTITY_BYTES: usize = 1_000;

/// One event, as it was read from Kafka.
///
/// Cloning copies no payload. `Debug` shows ids, positions and sizes, never
/// contents.
#[derive(Clone)]
pub struct Event {
    topic: Arc<str>,
    partition: i32,
    offset: i64,
    /// Of the leader that appended the record.
    leader_epoch: Option<i32>,
    timestamp_ms: Option<i64>,
    /// Key, value, and headers' names and values, one after another.
    buffer: Bytes,
    key: Option<Span>,
    value: Option<Span>,
    headers: SmallVec<[(Span, Option<Span>); 4]>,
    id: Result<Span, NoIdentity>,
    scoped: Scoped,
}

/// What a [`Scope`] is made of.
#[derive(Clone, Copy)]
enum Scoped {
    Globally,
    /// By the first header [`SOURCE`].
    ByTable(Span),
    ByTopic,
    /// The header that names the table cannot be used.
    Unusable(NoIdentity),
}

/// Bytes of the buffer. An optional one is no larger.
#[derive(Clone, Copy)]
struct Span {
    start: u32,
    end_plus_one: NonZeroU32,
}

/// Within what the id of an event is unique.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope<'a> {
    /// Everywhere.
    Global,
    /// The table that the publisher names.
    Table(&'a str),
    /// The topic, for want of a name of its table.
    Topic(&'a str),
}

/// Why an event cannot be told from others, and so is parked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoIdentity {
    MissingId,
    UnusableId,
    UnusableSource,
    LongId,
    LongSource,
}

impl NoIdentity {
    pub(crate) fn reason(self) -> &'static str {
        match self {
            Self::MissingId => "missing id header",
            Self::UnusableId => "id header is empty, no UTF-8, or contains a NUL",
            Self::UnusableSource => "walpost-source header is empty, no UTF-8, or contains a NUL",
            Self::LongId => "id header is longer than 1,000 bytes",
            Self::LongSource => "walpost-source header is longer than 1,000 bytes",
        }
    }
}

impl Event {
    /// Starts an event, for tests of a handler.
    ///
    /// ```
    /// use walpost_consumer::Event;
    ///
    /// let event = Event::builder("outbox.event.order")
    ///     .header("id", Some(b"7c0e"))
    ///     .value(Some(br#"{"total":12}"#))
    ///     .build();
    /// assert_eq!((event.id(), event.source()), ("7c0e", "outbox.event.order"));
    /// ```
    pub fn builder(topic: impl Into<Arc<str>>) -> EventBuilder {
        EventBuilder {
            event: Self {
                topic: topic.into(),
                partition: 0,
                offset: 0,
                leader_epoch: None,
                timestamp_ms: None,
                buffer: Bytes::new(),
                key: None,
                value: None,
                headers: SmallVec::new(),
                id: Err(NoIdentity::MissingId),
                scoped: Scoped::ByTopic,
            },
            buffer: Vec::new(),
        }
    }

    /// The event's id: the first header `id`, as text. It is what an effect
    /// is deduplicated by, together with [`source`](Self::source). Handlers
    /// never see an event without one.
    pub fn id(&self) -> &str {
        self.id.map_or("", |span| self.text(span))
    }

    /// Within what [`id`](Self::id) is unique. Empty if the id is unique by itself: a UUID or a ULID,
    /// see [`is_globally_unique`]. For other ids, such as numbers, the header `walpost-source`, which
    /// names the table that the event was written to, and without that header the topic.
    ///
    /// Id and source identify the event, no matter which publisher sent it.
    ///
    /// ```
    /// use walpost_consumer::Event;
    ///
    /// let event = |id: &str| {
    ///     Event::builder("orders").header("id", Some(id.as_bytes())).header("walpost-source", Some(b"7f3a"))
    /// };
    /// assert_eq!(event("17").build().source(), "7f3a");
    /// assert_eq!(event("5f0c3b0e-9d1a-4c55-8a57-0f2f6f1f7b11").build().source(), "");
    /// ```
    pub fn source(&self) -> &str {
        match self.scope() {
            Scope::Global => "",
            Scope::Table(source) | Scope::Topic(source) => source,
        }
    }

    pub(crate) fn scope(&self) -> Scope<'_> {
        match self.scoped {
            Scoped::Globally => Scope::Global,
            Scoped::ByTable(span) => Scope::Table(self.text(span)),
            Scoped::ByTopic | Scoped::Unusable(_) => Scope::Topic(&self.topic),
        }
    }

    /// The event's type, such as `OrderPlaced`: the first header `eventType`,
    /// if it is text. The relay sends it unless told otherwise.
    ///
    /// ```
    /// use walpost_consumer::{Event, HandlerError};
    ///
    /// fn kind(event: &Event) -> Result<&str, HandlerError> {
    ///     match event.event_type() {
    ///         Some(kind @ ("OrderPlaced" | "OrderCancelled")) => Ok(kind),
    ///         _ => Err(HandlerError::park("an event of another type")),
    ///     }
    /// }
    ///
    /// let event = Event::builder("t").header("eventType", Some(b"OrderPlaced")).build();
    /// assert_eq!(kind(&event)?, "OrderPlaced");
    /// # Ok::<(), HandlerError>(())
    /// ```
    pub fn event_type(&self) -> Option<&str> {
        std::str::from_utf8(self.header(EVENT_TYPE)?).ok()
    }

    /// Kafka topic.
    pub fn topic(&self) -> &str {
        &self.topic
    }

    /// Kafka partition.
    pub fn partition(&self) -> i32 {
        self.partition
    }

    /// Kafka offset.
    pub fn offset(&self) -> i64 {
        self.offset
    }

    /// Milliseconds since 1970 as the record carries them, `None` for none.
    pub fn timestamp_ms(&self) -> Option<i64> {
        self.timestamp_ms
    }

    /// Record key, `None` for null.
    pub fn key(&self) -> Option<&[u8]> {
        self.key.map(|span| &self.buffer[span.range()])
    }

    /// Record value, `None` for a record without one.
    ///
    /// That is a tombstone, or an event whose payload was NULL and which the
    /// relay sent with the encoding `raw`, its default: in Kafka they are the
    /// same. With the encoding `json` such an event has the value `null`.
    pub fn value(&self) -> Option<&[u8]> {
        self.value.map(|span| &self.buffer[span.range()])
    }

    /// Headers in order; a name may occur more than once.
    pub fn headers(&self) -> impl ExactSizeIterator<Item = (&str, Option<&[u8]>)> {
        self.headers
            .iter()
            .map(|(name, value)| (self.text(*name), value.map(|value| &self.buffer[value.range()])))
    }

    /// Value of the first header `name`; `None` for no such header and for a
    /// null one.
    ///
    /// ```
    /// use walpost_consumer::Event;
    ///
    /// let event = Event::builder("t").header("tenant", Some(b"acme")).build();
    /// assert_eq!(event.header("tenant"), Some(&b"acme"[..]));
    /// assert_eq!(event.header("region"), None);
    /// ```
    pub fn header(&self, name: &str) -> Option<&[u8]> {
        self.headers().find(|(header, _)| *header == name)?.1
    }

    /// Reads the value as JSON.
    ///
    /// ```
    /// use walpost_consumer::Event;
    ///
    /// #[derive(serde::Deserialize)]
    /// struct OrderPlaced {
    ///     total: u32,
    /// }
    ///
    /// let event = Event::builder("t").value(Some(br#"{"total":12}"#)).build();
    /// let order: OrderPlaced = event.json()?;
    /// assert_eq!(order.total, 12);
    /// # Ok::<(), walpost_consumer::HandlerError>(())
    /// ```
    ///
    /// # Errors
    /// [`HandlerError::Park`] if there is none, it is no JSON, or not of that
    /// shape: trying again would not help. The text names the place, not the
    /// contents. Where events without a payload are to be expected, ask for
    /// [`value`](Self::value) first.
    pub fn json<'event, T: Deserialize<'event>>(&'event self) -> Result<T, HandlerError> {
        let Some(value) = self.value() else {
            return Err(HandlerError::park("the record has no value, expected JSON"));
        };
        serde_json::from_slice(value).map_err(|error| {
            let problem = match error.classify() {
                serde_json::error::Category::Data => "JSON of another shape",
                _ => "no JSON",
            };
            let (line, column) = (error.line(), error.column());
            HandlerError::park(format!("the value is {problem} (line {line}, column {column})"))
        })
    }

    /// Bytes of key, value and headers together.
    pub fn size_bytes(&self) -> usize {
        self.buffer.len()
    }

    /// The same record at another place.
    #[cfg(feature = "test-kit")]
    pub(crate) fn placed(&self, partition: i32, offset: i64) -> Self {
        Self { partition, offset, ..self.clone() }
    }

    /// Whether an effect of the event could be told from that of another.
    pub(crate) fn identity(&self) -> Result<(), NoIdentity> {
        match (self.id, self.scoped) {
            (Err(problem), _) | (Ok(_), Scoped::Unusable(problem)) => Err(problem),
            (Ok(_), _) => Ok(()),
        }
    }

    pub(crate) fn leader_epoch(&self) -> Option<i32> {
        self.leader_epoch
    }

    fn text(&self, span: Span) -> &str {
        std::str::from_utf8(&self.buffer[span.range()]).unwrap_or_default()
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { topic, partition, offset, buffer, .. } = self;
        let (id, size) = (self.id(), buffer.len());
        write!(f, "Event({id} at {topic}[{partition}]@{offset}, {size} bytes)")
    }
}

impl Span {
    fn range(self) -> Range<usize> {
        self.start as usize..self.end_plus_one.get() as usize - 1
    }
}

/// Collects the parts of an [`Event`]. Made by [`Event::builder`].
#[derive(Debug)]
pub struct EventBuilder {
    event: Event,
    buffer: Vec<u8>,
}

impl EventBuilder {
    /// Partition and offset, 0 unless set.
    #[must_use]
    pub fn position(mut self, partition: i32, offset: i64) -> Self {
        self.event.partition = partition;
        self.event.offset = offset;
        self
    }

    /// Milliseconds since 1970.
    #[must_use]
    pub fn timestamp_ms(mut self, timestamp_ms: Option<i64>) -> Self {
        self.event.timestamp_ms = timestamp_ms;
        self
    }

    /// Record key.
    #[must_use]
    pub fn key(mut self, key: Option<&[u8]>) -> Self {
        self.event.key = key.map(|key| self.push(key));
        self
    }

    /// Record value.
    #[must_use]
    pub fn value(mut self, value: Option<&[u8]>) -> Self {
        self.event.value = value.map(|value| self.push(value));
        self
    }

    /// One more header.
    #[must_use]
    pub fn header(mut self, name: &str, value: Option<&[u8]>) -> Self {
        let name_span = self.push(name.as_bytes());
        let value_span = value.map(|value| self.push(value));
        self.event.headers.push((name_span, value_span));
        if name == ID && self.event.id.is_err_and(|problem| problem == NoIdentity::MissingId) {
            self.event.id = identity(value, value_span, NoIdentity::UnusableId, NoIdentity::LongId);
        }
        if name == SOURCE && matches!(self.event.scoped, Scoped::ByTopic) {
            let (unusable, long) = (NoIdentity::UnusableSource, NoIdentity::LongSource);
            let source = identity(value, value_span, unusable, long);
            self.event.scoped = source.map_or_else(Scoped::Unusable, Scoped::ByTable);
        }
        self
    }

    /// The event.
    ///
    /// # Panics
    /// If key, value and headers together have 4 GiB or more.
    pub fn build(mut self) -> Event {
        assert!(self.buffer.len() < u32::MAX as usize, "an event below 4 GiB");
        self.event.buffer = self.buffer.into();
        if is_globally_unique(self.event.id()) {
            self.event.scoped = Scoped::Globally;
        }
        self.event
    }

    pub(crate) fn leader_epoch(mut self, leader_epoch: Option<i32>) -> Self {
        self.event.leader_epoch = leader_epoch;
        self
    }

    pub(crate) fn reserve(&mut self, bytes: usize) {
        self.buffer.reserve_exact(bytes);
    }

    fn push(&mut self, bytes: &[u8]) -> Span {
        let start = self.buffer.len() as u32;
        self.buffer.extend_from_slice(bytes);
        // Positions beyond 4 GiB are wrong, and refused by `build`.
        let end_plus_one = NonZeroU32::MIN.saturating_add(self.buffer.len() as u32);
        Span { start, end_plus_one }
    }
}

/// The bytes of a header that tells events apart.
fn identity(
    value: Option<&[u8]>,
    span: Option<Span>,
    unusable: NoIdentity,
    long: NoIdentity,
) -> Result<Span, NoIdentity> {
    let (Some(value), Some(span)) = (value, span) else { return Err(unusable) };
    if value.is_empty() || value.contains(&0) || std::str::from_utf8(value).is_err() {
        return Err(unusable);
    }
    if value.len() > MAX_IDENTITY_BYTES { Err(long) } else { Ok(span) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gives_back_what_it_was_built_from() {
        let event = Event::builder("orders")
            .position(3, 9)
            .timestamp_ms(Some(5))
            .key(Some(b"k"))
            .header("id", Some(b"one"))
            .header("a", None)
            .header("id", Some(b"two"))
            .header("walpost-source", Some(b"shop"))
            .value(Some(b"[1,2]"))
            .build();
        assert_eq!((event.id(), event.source()), ("one", "shop"));
        assert_eq!((event.topic(), event.partition(), event.offset()), ("orders", 3, 9));
        assert_eq!((event.key(), event.value()), (Some(&b"k"[..]), Some(&b"[1,2]"[..])));
        assert_eq!(event.timestamp_ms(), Some(5));
        assert_eq!(event.headers().len(), 4);
        assert_eq!(event.header("a"), None);
        assert_eq!(event.json::<[u8; 2]>().unwrap(), [1, 2]);
        assert_eq!(event.identity(), Ok(()));
    }

    #[test]
    fn the_type_is_the_first_header_of_that_name_if_it_is_text() {
        let typed = |value: &[u8]| {
            let event = Event::builder("t").header("eventType", Some(value));
            let event = event.header("eventType", Some(b"second")).build();
            event.event_type().map(str::to_owned)
        };
        assert_eq!(typed(b"OrderPlaced").as_deref(), Some("OrderPlaced"));
        assert_eq!(typed(b"\xff"), None);
        assert_eq!(Event::builder("t").build().event_type(), None);
    }

    #[test]
    fn without_a_usable_id_there_is_no_identity() {
        let with = |id: Option<&[u8]>| Event::builder("t").header("id", id).build().identity();
        assert_eq!(Event::builder("t").build().identity(), Err(NoIdentity::MissingId));
        for id in [None, Some(&b""[..]), Some(b"\xff"), Some(b"a\0b")] {
            assert_eq!(with(id), Err(NoIdentity::UnusableId), "{id:?}");
        }
        assert_eq!(with(Some("ü".as_bytes())), Ok(()));
        let source = Event::builder("t").header("id", Some(b"a")).header(SOURCE, Some(b"\0"));
        assert_eq!(source.build().identity(), Err(NoIdentity::UnusableSource));
        assert_eq!(with(Some(&[b'a'; 1_000])), Ok(()));
        assert_eq!(with(Some(&[b'a'; 1_001])), Err(NoIdentity::LongId));
        let source =
            Event::builder("t").header("id", Some(b"a")).header(SOURCE, Some(&[b'a'; 1_001]));
        assert_eq!(source.build().identity(), Err(NoIdentity::LongSource));
    }

    #[test]
    fn the_id_of_a_table_is_scoped_and_a_global_one_is_not() {
        let of = |id: &str, source: Option<&[u8]>| {
            let event = Event::builder("t").header("id", Some(id.as_bytes()));
            source.into_iter().fold(event, |event, one| event.header(SOURCE, Some(one))).build()
        };
        for id in ["5f0c3b0e-9d1a-4c55-8a57-0f2f6f1f7b11", "01ARZ3NDEKTSV4RRFFQ69G5FAV"] {
            // Not even an unusable header changes who it is.
            for source in [None, Some(&b"shop"[..]), Some(b"\0"), Some(b"")] {
                let event = of(id, source);
                assert_eq!((event.source(), event.identity()), ("", Ok(())), "{id} {source:?}");
            }
        }
        for id in ["17", "order-17", "00000000-0000-0000-0000-000000000017"] {
            assert_eq!((of(id, None).source(), of(id, None).scope()), ("t", Scope::Topic("t")));
            assert_eq!(of(id, Some(b"shop")).scope(), Scope::Table("shop"));
            assert_eq!(of(id, Some(b"\0")).identity(), Err(NoIdentity::UnusableSource));
        }
        // The first header counts.
        let twice = Event::builder("t").header("id", Some(b"1")).header(SOURCE, Some(b"a"));
        assert_eq!(twice.header(SOURCE, Some(b"b")).build().source(), "a");
    }

    #[test]
    fn an_event_is_small_enough_to_be_moved() {
        assert_eq!(size_of::<Option<Span>>(), 8);
        assert!(size_of::<Event>() <= 200, "{} bytes", size_of::<Event>());
    }

    #[test]
    fn no_text_about_an_event_shows_its_contents() {
        let event =
            Event::builder("t").header("id", Some(b"e1")).value(Some(b"\"secret\"")).build();
        assert_eq!(format!("{event:?}"), "Event(e1 at t[0]@0, 12 bytes)");
        let error = event.json::<u32>().unwrap_err();
        assert!(!format!("{error} {error:?}").contains("secret"));
    }
}
