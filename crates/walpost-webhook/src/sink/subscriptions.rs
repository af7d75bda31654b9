//! Which deliveries an event becomes: pure.

use std::{collections::BTreeMap, time::Duration};

use bytes::Bytes;
use walpost_event::{Message as Event, SOURCE_HEADER, source_of};

use super::columns::{
    CONTENT_TYPE, DESTINATION, EVENT_TYPE, ID, KEY, PATH, RETRY_LIMIT, RETRY_WAIT_MS,
};
use super::standard::standard;
use crate::{Message, NewDelivery, Order, ProcessorSettings};

/// Bound on the events of one destination, as patterns.
const PATTERNS_MAX: usize = 1_000;

/// What a destination is sent.
///
/// ```
/// use walpost_webhook::{AddressPolicy, Destination, Endpoint, Order, ProcessorSettings};
/// use walpost_webhook::sink::{KeyOf, Subscription};
///
/// let endpoint = Endpoint::parse("https://logistics.example/", AddressPolicy::public())?;
/// let mut processor = ProcessorSettings::new("logistics", Destination::new(endpoint));
/// processor.order = Order::Key;
/// let mut invoices = Subscription::of(&processor);
/// assert_eq!(invoices.order, Order::Key);
/// invoices.events = vec!["invoice.*".to_owned()];
/// invoices.key = KeyOf::Event;
/// # Ok::<(), walpost_webhook::EndpointError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Subscription {
    /// Name of the destination.
    pub destination: String,
    /// Types of events; `*` stands for any text. `["*"]` unless set, which takes
    /// events without a type as well. Without any the destination gets what names
    /// it in its row, and nothing else.
    pub events: Vec<String>,
    /// What the receiver knows a delivery by.
    pub key: KeyOf,
    /// What stands in the body; the payload as it is unless set.
    pub body: BodyForm,
    /// Which of its deliveries go one after the other: by the key of an event's record,
    /// which is its aggregate, or all. As [its processors](crate::ProcessorSettings::order)
    /// have it: where these differ no order holds.
    pub order: Order,
}

/// What the receiver knows a delivery by, where its row has no key of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeyOf {
    /// The identity of the event: the same at all of its destinations. It is the id
    /// where that is globally unique, a UUID or a ULID; else the id behind the id space
    /// of its table, as `space:id`.
    #[default]
    Event,
    /// The identity of the event and the name of the destination, as `id:name`.
    Delivery,
}

/// What stands in the body of a delivery.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BodyForm {
    /// The payload of the event, byte for byte.
    #[default]
    Raw,
    /// `{"type": …, "timestamp": …, "data": …}`, as Standard Webhooks recommends it, with
    /// the payload as `data`: so the type is signed with the rest, and a
    /// `receive::Source::standard` finds it where it looks. The
    /// payload has to be JSON, the event needs a type, and the body is `application/json`.
    /// `timestamp` is that of the event's record; without one there is none.
    Standard,
}

/// The destinations, and what goes to each.
#[derive(Clone, Debug, Default)]
pub struct Subscriptions {
    by_name: BTreeMap<String, Subscription>,
}

/// Destinations that cannot be subscribed so.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SubscriptionError {
    /// Two of one name.
    #[error("destination {0} is there twice")]
    Twice(String),
    /// No name that a delivery could have.
    #[error("a destination's name has 1 to 128 bytes, {0:?} has not")]
    Name(String),
    /// Too many patterns.
    #[error("destination {destination} has {count} patterns of events, at most {PATTERNS_MAX}")]
    Patterns {
        /// Which.
        destination: String,
        /// How many.
        count: usize,
    },
}

impl Subscription {
    /// To all events.
    pub fn new(destination: impl Into<String>) -> Self {
        Self {
            destination: destination.into(),
            events: vec!["*".to_owned()],
            key: KeyOf::Event,
            body: BodyForm::Raw,
            order: Order::None,
        }
    }

    /// To all events, as these processors send them: under their name and in their order.
    pub fn of(processor: &ProcessorSettings) -> Self {
        Self { order: processor.order, ..Self::new(&processor.name) }
    }

    fn takes(&self, event_type: Option<&str>) -> bool {
        let event_type = event_type.unwrap_or_default();
        self.events.iter().any(|pattern| is_like(event_type, pattern))
    }

    fn key(&self, source: &str, event_id: &str) -> String {
        let event = match source {
            "" => event_id.to_owned(),
            source => format!("{source}:{event_id}"),
        };
        match self.key {
            KeyOf::Event => event,
            KeyOf::Delivery => format!("{event}:{}", self.destination),
        }
    }
}

impl Subscriptions {
    /// # Errors
    /// When a name is there twice, or none.
    pub fn new(all: impl IntoIterator<Item = Subscription>) -> Result<Self, SubscriptionError> {
        let mut by_name = BTreeMap::new();
        for one in all {
            if !(1..=128).contains(&one.destination.len()) {
                return Err(SubscriptionError::Name(one.destination));
            }
            if one.events.len() > PATTERNS_MAX {
                let (destination, count) = (one.destination, one.events.len());
                return Err(SubscriptionError::Patterns { destination, count });
            }
            if let Some(other) = by_name.insert(one.destination.clone(), one) {
                return Err(SubscriptionError::Twice(other.destination));
            }
        }
        Ok(Self { by_name })
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.by_name.keys().map(String::as_str)
    }

    /// One delivery for each destination that takes the event; none where none
    /// does.
    ///
    /// # Errors
    /// Why it can become no delivery, without contents.
    pub(super) fn deliveries(
        &self,
        event: &Event,
        body_max_bytes: usize,
    ) -> Result<Vec<NewDelivery>, String> {
        let row = Row::read(event)?;
        let taking: Vec<&Subscription> = match row.destination {
            Some(name) => {
                let named = self.by_name.get(name);
                vec![named.ok_or_else(|| format!(
                    "its row names the destination {name:?}, which is not configured; configure it, \
                     then retry the event"
                ))?]
            }
            None => self.by_name.values().filter(|one| one.takes(row.event_type)).collect(),
        };
        let deliveries = taking.into_iter().map(|one| row.delivery(one));
        let deliveries: Vec<NewDelivery> = deliveries.collect::<Result<_, _>>()?;
        for delivery in &deliveries {
            delivery.check(body_max_bytes).map_err(|error| error.to_string())?;
        }
        Ok(deliveries)
    }
}

/// What a row of the outbox says.
struct Row<'a> {
    id: &'a str,
    /// Empty where the id is globally unique.
    source: &'a str,
    event_type: Option<&'a str>,
    destination: Option<&'a str>,
    key: Option<&'a str>,
    path: Option<&'a str>,
    content_type: Option<&'a str>,
    retry_limit: Option<u32>,
    retry_wait: Option<Duration>,
    body: Bytes,
    timestamp_ms: Option<i64>,
    /// Of its record; empty is none.
    aggregate: Option<&'a Bytes>,
}

impl<'a> Row<'a> {
    fn read(event: &'a Event) -> Result<Self, String> {
        let id = text(event, ID)?.ok_or("it has no id, and a delivery is known by one")?;
        let body = event.value.clone().ok_or("it has no payload, and a webhook needs a body")?;
        let retry_wait: Option<u64> = number(event, RETRY_WAIT_MS)?;
        Ok(Self {
            id,
            source: source_of(id, text(event, SOURCE_HEADER)?, &event.topic),
            event_type: text(event, EVENT_TYPE)?,
            destination: text(event, DESTINATION)?,
            key: text(event, KEY)?,
            path: text(event, PATH)?,
            content_type: text(event, CONTENT_TYPE)?,
            retry_limit: number(event, RETRY_LIMIT)?,
            retry_wait: retry_wait.map(Duration::from_millis),
            body,
            timestamp_ms: event.timestamp_ms,
            aggregate: event.key.as_ref().filter(|key| !key.is_empty()),
        })
    }

    fn delivery(&self, of: &Subscription) -> Result<NewDelivery, String> {
        let key = self.key.map_or_else(|| of.key(self.source, self.id), str::to_owned);
        let mut message = Message::new(key, self.body.clone());
        match of.body {
            BodyForm::Raw => message.content_type = self.content_type.map(str::to_owned),
            BodyForm::Standard => {
                message.body = standard(self.event_type, self.timestamp_ms, &self.body)?.into();
            }
        }
        message.path = self.path.map(str::to_owned);
        let mut delivery = NewDelivery::new(&of.destination, self.id, message);
        delivery.source = self.source.to_owned();
        delivery.event_type = self.event_type.map(str::to_owned);
        delivery.retry_limit = self.retry_limit;
        delivery.retry_wait = self.retry_wait;
        delivery.order_key = self.order_key(of.order)?;
        Ok(delivery)
    }

    fn order_key(&self, order: Order) -> Result<Option<String>, String> {
        let aggregate = match order {
            // Where all go in order their destination says so.
            Order::None | Order::All => None,
            Order::Key => self.aggregate,
        };
        let text = aggregate.map(|key| std::str::from_utf8(key).map(str::to_owned)).transpose();
        text.map_err(|_| {
            "the key of its record is no UTF-8, and its deliveries go by key".to_owned()
        })
    }
}

/// The first header of the name, which is the router's; empty is none.
fn text<'a>(event: &'a Event, name: &str) -> Result<Option<&'a str>, String> {
    let header = event.headers.iter().find(|header| &*header.name == name);
    let Some(value) = header.and_then(|header| header.value.as_deref()) else { return Ok(None) };
    let text = std::str::from_utf8(value).map_err(|_| format!("its {name} is no UTF-8"))?;
    Ok(Some(text).filter(|text| !text.is_empty()))
}

fn number<N: std::str::FromStr>(event: &Event, name: &str) -> Result<Option<N>, String> {
    let Some(text) = text(event, name)? else { return Ok(None) };
    let number = text.parse().map_err(|_| format!("its {name} is no whole number from 0 on"))?;
    Ok(Some(number))
}

/// Whether `pattern`, in which `*` stands for any text, is that of `text`.
fn is_like(text: &str, pattern: &str) -> bool {
    let (mut text, mut first) = (text, true);
    let mut parts = pattern.split('*').peekable();
    while let Some(part) = parts.next() {
        let is_last = parts.peek().is_none();
        match (first, is_last) {
            (true, true) => return text == part,
            (true, false) => match text.strip_prefix(part) {
                Some(rest) => text = rest,
                None => return false,
            },
            (false, true) => return text.ends_with(part),
            (false, false) => match text.find(part) {
                Some(at) => text = &text[at + part.len()..],
                None => return false,
            },
        }
        first = false;
    }
    true
}

#[cfg(test)]
mod tests {
    use walpost_event::Header;

    use super::*;

    const MAX: usize = 1_000;

    fn event(headers: &[(&str, Option<&str>)]) -> Event {
        let header = |(name, value): &(&str, Option<&str>)| Header {
            name: (*name).into(),
            value: value.map(|value| Bytes::copy_from_slice(value.as_bytes())),
        };
        Event {
            topic: "outbox.event.invoice".into(),
            partition: None,
            key: None,
            value: Some(Bytes::from_static(b"{\"invoice\":7}")),
            headers: headers.iter().map(header).collect(),
            timestamp_ms: None,
        }
    }

    fn subscribed() -> Subscriptions {
        let mut invoices = Subscription::new("logistics");
        invoices.events = vec!["invoice.*".to_owned(), "credit.made".to_owned()];
        invoices.key = KeyOf::Delivery;
        let mut named = Subscription::new("mail");
        named.events.clear();
        Subscriptions::new([invoices, named, Subscription::new("audit")]).unwrap()
    }

    #[test]
    fn a_pattern_is_matched_whole() {
        for (text, pattern, expected) in [
            ("invoice.paid", "invoice.paid", true),
            ("invoice.paid", "invoice", false),
            ("invoice.paid", "*", true),
            ("", "*", true),
            ("", "", true),
            ("a", "", false),
            ("invoice.paid", "invoice.*", true),
            ("invoices.paid", "invoice.*", false),
            ("invoice.paid", "*.paid", true),
            ("invoice.unpaid", "*.paid", false),
            ("a.b.c", "a*b*c", true),
            ("a.c.b", "a*b*c", false),
            ("aa", "a*a", true),
            ("a", "a*a", false),
            ("abab", "*ab*ab", true),
            ("ab", "*ab*ab", false),
        ] {
            assert_eq!(is_like(text, pattern), expected, "{text} {pattern}");
        }
    }

    #[test]
    fn each_destination_that_takes_the_type_gets_a_delivery() {
        let names = |event_type: Option<&str>| -> Vec<String> {
            let event = event(&[(ID, Some("e1")), (EVENT_TYPE, event_type)]);
            let deliveries = subscribed().deliveries(&event, MAX).unwrap();
            deliveries.into_iter().map(|delivery| delivery.destination).collect()
        };
        assert_eq!(names(Some("invoice.paid")), ["audit", "logistics"]);
        assert_eq!(names(Some("credit.made")), ["audit", "logistics"]);
        assert_eq!(names(Some("credit.made.up")), ["audit"]);
        assert_eq!(names(None), ["audit"]);
    }

    #[test]
    fn a_row_says_where_how_and_how_often() {
        let event = event(&[
            (ID, Some("e1")),
            (EVENT_TYPE, Some("mail.due")),
            (DESTINATION, Some("mail")),
            (KEY, Some("order-7")),
            (PATH, Some("/orders/7")),
            (CONTENT_TYPE, Some("text/plain")),
            (RETRY_LIMIT, Some("0")),
            (RETRY_WAIT_MS, Some("200")),
            // An application's own come behind the router's.
            (DESTINATION, Some("audit")),
        ]);
        let deliveries = subscribed().deliveries(&event, MAX).unwrap();
        let [delivery] = deliveries.as_slice() else { panic!("{deliveries:?}") };
        let message = &delivery.message;
        assert_eq!((&*delivery.destination, &*delivery.event_id), ("mail", "e1"));
        assert_eq!((&*message.key, &*message.body), ("order-7", &b"{\"invoice\":7}"[..]));
        assert_eq!(message.path.as_deref(), Some("/orders/7"));
        assert_eq!(message.content_type.as_deref(), Some("text/plain"));
        assert_eq!(delivery.retry_limit, Some(0));
        assert_eq!(delivery.retry_wait, Some(Duration::from_millis(200)));
    }

    #[test]
    fn where_a_destination_keeps_an_order_the_key_of_the_record_says_of_what() {
        let key = |order: Order, aggregate: Option<&'static [u8]>| {
            let ordered = Subscription { order, ..Subscription::new("logistics") };
            let mut event = event(&[(ID, Some("e1"))]);
            event.key = aggregate.map(Bytes::from_static);
            let deliveries = Subscriptions::new([ordered]).unwrap().deliveries(&event, MAX);
            deliveries.map(|mut deliveries| deliveries.remove(0).order_key)
        };
        let text = |text: &str| Ok(Some(text.to_owned()));
        assert_eq!(key(Order::None, Some(b"order-7")), Ok(None));
        assert_eq!(key(Order::Key, Some(b"order-7")), text("order-7"));
        assert_eq!(key(Order::Key, None), Ok(None));
        assert_eq!(key(Order::Key, Some(b"")), Ok(None));
        assert_eq!(key(Order::All, Some(b"order-7")), Ok(None));
        assert!(key(Order::Key, Some(b"\xff")).unwrap_err().contains("no UTF-8"));
    }

    #[test]
    fn without_a_key_of_its_own_the_event_or_the_delivery_is_the_key() {
        let event = event(&[(ID, Some("e1")), (EVENT_TYPE, Some("invoice.paid")), (KEY, None)]);
        let deliveries = subscribed().deliveries(&event, MAX).unwrap();
        let keys: Vec<&str> = deliveries.iter().map(|one| &*one.message.key).collect();
        assert_eq!(keys, ["outbox.event.invoice:e1", "outbox.event.invoice:e1:logistics"]);
    }

    #[test]
    fn equal_ids_of_two_tables_are_known_by_different_keys_and_unique_ids_by_themselves() {
        let unique = "5f0c3b0e-9d1a-4c55-8a57-0f2f6f1f7b11";
        let of = |id, source| {
            let event = event(&[(ID, Some(id)), (SOURCE_HEADER, Some(source))]);
            let mut deliveries = subscribed().deliveries(&event, MAX).unwrap();
            let NewDelivery { event_id, source, message, .. } = deliveries.remove(0);
            (event_id, source, message.key)
        };
        let text = |texts: [&str; 3]| {
            let [id, source, key] = texts.map(str::to_owned);
            (id, source, key)
        };
        assert_eq!(of("7", "table-a"), text(["7", "table-a", "table-a:7"]));
        assert_eq!(of("7", "table-b"), text(["7", "table-b", "table-b:7"]));
        assert_eq!(of(unique, "table-a"), text([unique, "", unique]));
    }

    #[test]
    fn what_can_become_no_delivery_says_why_without_contents() {
        let long = "x".repeat(513);
        for (headers, part) in [
            (vec![], "no id"),
            (vec![(ID, Some(&*long))], "event_id has 513 bytes"),
            (vec![(ID, Some("e")), (DESTINATION, Some("nobody"))], "not configured"),
            (vec![(ID, Some("e")), (RETRY_LIMIT, Some("s3cr3t"))], "webhook-retry-limit"),
            (vec![(ID, Some("e")), (RETRY_WAIT_MS, Some("-1"))], "webhook-retry-wait-ms"),
        ] {
            let refused = subscribed().deliveries(&event(&headers), MAX).unwrap_err();
            assert!(refused.contains(part) && !refused.contains("s3cr3t"), "{refused}");
        }
        let mut large = event(&[(ID, Some("e"))]);
        large.value = Some(vec![b' '; MAX + 1].into());
        assert!(subscribed().deliveries(&large, MAX).unwrap_err().contains("1001 bytes"));
        let mut empty = event(&[(ID, Some("e"))]);
        empty.value = None;
        assert!(subscribed().deliveries(&empty, MAX).unwrap_err().contains("payload"));
    }

    #[test]
    fn where_a_destination_has_it_so_type_and_time_stand_in_the_body() {
        let mut wrapped = Subscription::new("freight");
        wrapped.body = BodyForm::Standard;
        let both = Subscriptions::new([wrapped, Subscription::new("audit")]).unwrap();
        let mut of = event(&[
            (ID, Some("e1")),
            (EVENT_TYPE, Some("invoice.paid")),
            (CONTENT_TYPE, Some("application/vnd.invoice+json")),
        ]);
        of.timestamp_ms = Some(0);
        let deliveries = both.deliveries(&of, MAX).unwrap();
        let [audit, freight] = &deliveries[..] else { panic!("{deliveries:?}") };
        assert_eq!(&*audit.message.body, b"{\"invoice\":7}");
        assert_eq!(audit.message.content_type.as_deref(), Some("application/vnd.invoice+json"));
        let body = br#"{"type":"invoice.paid","timestamp":"1970-01-01T00:00:00.000Z","data":{"invoice":7}}"#;
        assert_eq!(&*freight.message.body, body);
        assert_eq!(freight.message.content_type, None);
        // Its bound is that of what is sent.
        assert!(both.deliveries(&of, body.len() - 1).unwrap_err().contains("bytes"));
        of.headers.retain(|header| &*header.name != EVENT_TYPE);
        assert!(both.deliveries(&of, MAX).unwrap_err().contains("no type"));
    }

    #[test]
    fn a_name_is_there_once() {
        let twice = ["a", "a"].map(Subscription::new);
        assert_eq!(Subscriptions::new(twice).unwrap_err(), SubscriptionError::Twice("a".into()));
        let nameless = Subscriptions::new([Subscription::new("")]);
        assert_eq!(nameless.unwrap_err(), SubscriptionError::Name(String::new()));
    }
}
