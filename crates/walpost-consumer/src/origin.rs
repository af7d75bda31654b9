//! What an event is about, and where its record stands.

use std::fmt;

use crate::Event;

/// Name of the header that carries the type of an event's aggregate, and the
/// column's own name, which it has where none was given.
const AGGREGATE_TYPE: [&str; 2] = ["aggregateType", "aggregatetype"];
/// How topics begin that are named after a type.
const ROUTE: &str = "outbox.event.";

/// Where a record stands. Given by [`Event::position`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventPosition<'event> {
    /// Kafka topic.
    pub topic: &'event str,
    /// Kafka partition.
    pub partition: i32,
    /// Kafka offset.
    pub offset: i64,
}

/// `topic[partition]@offset`.
impl fmt::Display for EventPosition<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[{}]@{}", self.topic, self.partition, self.offset)
    }
}

impl Event {
    /// Where the record stands.
    ///
    /// ```
    /// use walpost_consumer::Event;
    ///
    /// let event = Event::builder("outbox.event.order").position(2, 71).build();
    /// assert_eq!(event.position().to_string(), "outbox.event.order[2]@71");
    /// ```
    pub fn position(&self) -> EventPosition<'_> {
        let (topic, partition, offset) = (self.topic(), self.partition(), self.offset());
        EventPosition { topic, partition, offset }
    }

    /// Id of the aggregate that the event is about: the record key, if it is
    /// text. That is what the relay, and Debezium's outbox router, write there
    /// unless told otherwise, and what events are in order by.
    ///
    /// ```
    /// use walpost_consumer::Event;
    ///
    /// let event = Event::builder("outbox.event.order").key(Some(b"42")).build();
    /// assert_eq!(event.aggregate_id(), Some("42"));
    /// ```
    pub fn aggregate_id(&self) -> Option<&str> {
        std::str::from_utf8(self.key()?).ok()
    }

    /// Type of the aggregate that the event is about, such as `order`.
    ///
    /// It is the header `aggregateType` if there is one, or `aggregatetype`.
    /// Neither the relay nor Debezium's outbox router sends it unless told to,
    /// by `aggregatetype:header:aggregateType` among the additional placements.
    /// Without it, it is what the topic is named after, behind
    /// `outbox.event.`, as both name topics unless told otherwise; `None` for
    /// other topics.
    ///
    /// ```
    /// use walpost_consumer::Event;
    ///
    /// let event = Event::builder("outbox.event.order").build();
    /// assert_eq!(event.aggregate_type(), Some("order"));
    ///
    /// let event = Event::builder("shop").header("aggregateType", Some(b"invoice")).build();
    /// assert_eq!(event.aggregate_type(), Some("invoice"));
    /// ```
    pub fn aggregate_type(&self) -> Option<&str> {
        let sent = AGGREGATE_TYPE.iter().find_map(|name| self.header(name));
        match sent {
            Some(sent) => std::str::from_utf8(sent).ok(),
            None => self.topic().strip_prefix(ROUTE).filter(|route| !route.is_empty()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_is_the_aggregate_if_it_is_text() {
        let of = |key: Option<&[u8]>| {
            Event::builder("t").key(key).build().aggregate_id().map(str::to_owned)
        };
        assert_eq!(of(Some(b"42")).as_deref(), Some("42"));
        assert_eq!((of(Some(b"\xff")), of(None)), (None, None));
    }

    #[test]
    fn the_type_is_the_header_or_else_the_route() {
        let of = |topic: &str, headers: &[(&str, &[u8])]| {
            let event = headers.iter().fold(Event::builder(topic), |event, (name, value)| {
                event.header(name, Some(value))
            });
            event.build().aggregate_type().map(str::to_owned)
        };
        assert_eq!(of("outbox.event.order", &[]).as_deref(), Some("order"));
        let both: [(&str, &[u8]); 2] = [("aggregatetype", b"b"), ("aggregateType", b"a")];
        assert_eq!(of("outbox.event.order", &both).as_deref(), Some("a"));
        assert_eq!(of("t", &both[..1]).as_deref(), Some("b"));
        assert_eq!(of("outbox.event.order", &[("aggregateType", b"\xff")]), None);
        assert_eq!((of("outbox.event.", &[]), of("orders", &[])), (None, None));
    }
}
