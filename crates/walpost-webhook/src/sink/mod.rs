//! Events of a relay as deliveries: a row for each event and each destination
//! that takes it, so that a destination that is away holds no WAL.
//!
//! An event that is read again makes no second row: the id of the event and the
//! name of the destination are unique. So a relay that was killed, or one that
//! wakes beside its successor, has nothing sent twice.

mod columns;
mod standard;
mod subscriptions;
mod writer;

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use metrics::{Counter, counter};
use tokio::{task::JoinHandle, time::timeout};
use walpost_event::Message;
use walpost_postgres::Database;
use walpost_relay::{
    Delivery, DeliveryError, DeliveryErrorKind, Landed, Lane, NoteMarks, Place, RelayError, Sink,
    Ticket, TopicFloors, Unsent,
};

use self::writer::{Entry, Unwritten, Writer, Written};
use crate::{Deliveries, NewDelivery};

pub use self::{
    columns::Columns,
    subscriptions::{BodyForm, KeyOf, Subscription, SubscriptionError, Subscriptions},
};

/// Most deliveries that one statement creates, and most of their bytes.
const BATCH_ROWS: usize = 2_000;
const BATCH_BYTES: usize = 4 * 1_024 * 1_024;
/// Most events that wait for a statement.
const EVENTS_MAX: usize = 20_000;
/// What a row takes beside its texts and body, in bytes.
const ROW_BYTES: usize = 256;
/// Bound on what is on its way at the end.
const CLOSE: Duration = Duration::from_secs(5);
/// How long a statement may wait for a lock or for the disk.
const SESSION: &str = "set statement_timeout = '20s'; set application_name = 'walpost webhooks'";

/// Makes [`WebhookSink`]s.
///
/// ```no_run
/// use walpost_postgres::Database;
/// use walpost_webhook::{
///     Deliveries,
///     sink::{Subscription, Subscriptions, WebhookConnector},
/// };
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let database = Database::parse("postgres://walpost@localhost/shop")?;
/// let subscriptions = Subscriptions::new([Subscription::new("logistics")])?;
/// let connector = WebhookConnector::new(database, Deliveries::new(), subscriptions);
/// // For `walpost_relay::Relay::start`.
/// let sink = connector.connect().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct WebhookConnector {
    database: Database,
    deliveries: Deliveries,
    subscriptions: Arc<Subscriptions>,
    queue_max_bytes: usize,
}

impl WebhookConnector {
    /// Deliveries in this database, and what they are made for. Each statement tells who
    /// sends that there are some, unless [`Deliveries::notifies`] says otherwise: one
    /// session creates them, so no other one waits for it.
    pub fn new(database: Database, deliveries: Deliveries, subscriptions: Subscriptions) -> Self {
        let (queue_max_bytes, deliveries) = (4 * BATCH_BYTES, deliveries.notifies_unless_set());
        Self { database, deliveries, subscriptions: Arc::new(subscriptions), queue_max_bytes }
    }

    /// Bound on the bytes of deliveries that are not committed; 16 MiB.
    #[must_use]
    pub fn queue_max_bytes(mut self, bytes: usize) -> Self {
        self.queue_max_bytes = bytes;
        self
    }

    /// A sink over a connection of its own.
    ///
    /// # Errors
    /// When there is no connection, or the tables are missing or refused.
    pub async fn connect(&self) -> Result<WebhookSink, RelayError> {
        let failed = |detail: String, transient| RelayError::Sink { detail, transient };
        let client = self.database.connect().await.map_err(|error| {
            let transient = error.is_transient();
            failed(walpost_event::error_chain(&error), transient)
        })?;
        let set = client.batch_execute(SESSION).await;
        set.map_err(|error| failed(walpost_event::error_chain(&error), true))?;
        self.deliveries.probe(&client).await.map_err(|error| match error.is_transient() {
            true => failed(error.to_string(), true),
            false => RelayError::Prerequisite {
                problem: format!("deliveries cannot be created: {error}"),
                remedy: "do as it says, then start again".to_owned(),
            },
        })?;
        crate::metrics::describe();
        let created = |name: &str| {
            let labels = [("destination", name.to_owned())];
            (name.to_owned(), counter!("walpost_webhook_created_total", &labels))
        };
        Ok(WebhookSink {
            created: self.subscriptions.names().map(created).collect(),
            unsubscribed: counter!("walpost_webhook_unsubscribed_total"),
            subscriptions: Arc::clone(&self.subscriptions),
            queue_max_bytes: self.queue_max_bytes,
            body_max_bytes: self.deliveries.body_max_bytes,
            place: [Place { topic: TOPIC.into(), topic_id: None, partition: 0, start: 0, end: 0 }],
            is_allowed: false,
            writer: Some(Writer { client, deliveries: self.deliveries.clone() }),
            waiting: Vec::new(),
            writing: None,
            outstanding: 0,
            outstanding_bytes: 0,
        })
    }
}

/// The one place of this sink.
const TOPIC: &str = "webhook_delivery";

/// A [`Sink`] whose events become rows of `webhook_delivery`.
///
/// What comes while a statement is on its way goes in the next one. Nothing is
/// read back: see the [module](self).
pub struct WebhookSink {
    subscriptions: Arc<Subscriptions>,
    queue_max_bytes: usize,
    body_max_bytes: usize,
    place: [Place; 1],
    is_allowed: bool,
    /// `None` while it writes, and once it has failed.
    writer: Option<Writer>,
    waiting: Vec<Entry>,
    writing: Option<Writing>,
    /// Events that have no [`Delivery`] yet.
    outstanding: usize,
    outstanding_bytes: usize,
    created: BTreeMap<String, Counter>,
    unsubscribed: Counter,
}

struct Writing {
    task: JoinHandle<Written>,
    /// With their bytes.
    tickets: Vec<(Ticket, usize)>,
}

impl fmt::Debug for WebhookSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WebhookSink({} outstanding)", self.outstanding)
    }
}

impl WebhookSink {
    fn has_failed(&self) -> bool {
        self.writer.is_none() && self.writing.is_none()
    }

    /// Hands what waits to the connection, up to the bounds of a statement.
    fn begin_writing(&mut self) {
        if self.waiting.is_empty() || self.writing.is_some() {
            return;
        }
        let Some(writer) = self.writer.take() else { return };
        let (mut rows, mut bytes) = (0, 0);
        let fitting = self.waiting.iter().take_while(|entry| {
            rows += entry.deliveries.len();
            bytes += entry.bytes;
            rows <= BATCH_ROWS && bytes <= BATCH_BYTES
        });
        // One that is larger goes alone.
        let count = fitting.count().max(1);
        let entries: Vec<Entry> = self.waiting.drain(..count).collect();
        let tickets = entries.iter().map(|entry| (entry.ticket, entry.bytes)).collect();
        self.writing = Some(Writing { task: tokio::spawn(writer.write(entries)), tickets });
    }

    fn settle(&mut self, result: &Result<(), Unwritten>, ticket: Ticket, bytes: usize) -> Delivery {
        self.outstanding -= 1;
        self.outstanding_bytes -= bytes;
        let result = match result {
            Ok(()) => Ok(Landed { lane: 0, offset: None }),
            Err(Unwritten { kind, detail }) => Err(DeliveryError {
                kind: *kind,
                topic: self.place[0].topic.clone(),
                detail: detail.as_str().into(),
            }),
        };
        Delivery { ticket, result }
    }

    /// Nothing more is written: what waits is told so.
    fn give_up_waiting(&mut self, deliveries: &mut Vec<Delivery>) {
        let unwritten = Err(Unwritten {
            kind: DeliveryErrorKind::NotSent,
            detail: "the connection was given up".to_owned(),
        });
        for Entry { ticket, bytes, .. } in std::mem::take(&mut self.waiting) {
            deliveries.push(self.settle(&unwritten, ticket, bytes));
        }
    }
}

impl Sink for WebhookSink {
    const NAME: &'static str = "webhook";

    async fn read_back(
        &mut self,
        _: Vec<TopicFloors>,
        _: Option<Duration>,
        _: Box<NoteMarks>,
    ) -> Result<(), RelayError> {
        Ok(())
    }

    fn places(&self) -> &[Place] {
        &self.place
    }

    fn allow(&mut self, places: usize) {
        self.is_allowed |= places > 0;
    }

    fn lane_of(&mut self, message: &Message) -> Result<Option<Lane>, String> {
        self.subscriptions.deliveries(message, self.body_max_bytes)?;
        Ok(Some(0).filter(|_| self.is_allowed && !self.has_failed()))
    }

    fn place_name(&self, _: &Message) -> Arc<str> {
        self.place[0].topic.clone()
    }

    fn try_send(&mut self, ticket: Ticket, message: Message) -> Result<Lane, Unsent> {
        if !self.is_allowed || self.has_failed() || self.waiting.len() >= EVENTS_MAX {
            return Err(Unsent::Full(Box::new(message)));
        }
        let deliveries = match self.subscriptions.deliveries(&message, self.body_max_bytes) {
            Ok(deliveries) => deliveries,
            Err(detail) => {
                return Err(Unsent::Never { topic: self.place[0].topic.clone(), detail });
            }
        };
        let bytes = deliveries.iter().map(bytes_of).sum::<usize>().max(ROW_BYTES);
        if self.outstanding > 0 && self.outstanding_bytes + bytes > self.queue_max_bytes {
            return Err(Unsent::Full(Box::new(message)));
        }
        if deliveries.is_empty() {
            self.unsubscribed.increment(1);
        }
        for created in deliveries.iter().filter_map(|one| self.created.get(&one.destination)) {
            created.increment(1);
        }
        self.outstanding += 1;
        self.outstanding_bytes += bytes;
        self.waiting.push(Entry { ticket, deliveries, bytes });
        Ok(0)
    }

    async fn deliveries(&mut self, deliveries: &mut Vec<Delivery>) {
        self.begin_writing();
        let Some(writing) = &mut self.writing else {
            if self.has_failed() && !self.waiting.is_empty() {
                return self.give_up_waiting(deliveries);
            }
            return std::future::pending().await;
        };
        let written = (&mut writing.task).await;
        let tickets = self.writing.take().map(|writing| writing.tickets).unwrap_or_default();
        match written {
            Ok(Written { writer, results }) => {
                self.writer = writer;
                for (ticket, bytes, result) in results {
                    deliveries.push(self.settle(&result, ticket, bytes));
                }
            }
            Err(error) => {
                let kind = DeliveryErrorKind::Unknown;
                let unwritten = Err(Unwritten { kind, detail: error.to_string() });
                for (ticket, bytes) in tickets {
                    deliveries.push(self.settle(&unwritten, ticket, bytes));
                }
            }
        }
        if self.has_failed() {
            self.give_up_waiting(deliveries);
        }
        self.begin_writing();
    }

    fn outstanding(&self) -> usize {
        self.outstanding
    }

    fn trouble(&self) -> Option<String> {
        None
    }

    async fn close(mut self) {
        if let Some(Writing { mut task, .. }) = self.writing.take()
            && timeout(CLOSE, &mut task).await.is_err()
        {
            task.abort();
        }
    }
}

fn bytes_of(delivery: &NewDelivery) -> usize {
    let message = &delivery.message;
    ROW_BYTES + delivery.event_id.len() + message.key.len() + message.body.len()
}
