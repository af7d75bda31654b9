use std::{collections::BTreeMap, fmt, sync::Arc};

use walpost_event::RetrySchedule;

use crate::{
    Consumer, Database, Error, FirstStart, Guard, Handler, OnReset, Park, Retention,
    settings::Settings,
};

/// What a [`Consumer`] is to do. Made by [`Consumer::builder`].
///
/// ```
/// use walpost_consumer::{
///     Consumer, Database, Event, Handler, HandlerError, tokio_postgres::Transaction,
/// };
///
/// struct Count;
///
/// impl Handler for Count {
///     async fn handle(&self, tx: &Transaction<'_>, event: &Event) -> Result<(), HandlerError> {
///         tx.execute("update total set events = events + 1", &[]).await?;
///         Ok(())
///     }
/// }
///
/// let consumer = Consumer::builder("count")
///     .kafka("bootstrap.servers", "localhost:9092")
///     .kafka("security.protocol", "ssl")
///     .topics(["outbox.event.order", "outbox.event.invoice"])
///     .database(Database::config("host=localhost user=app dbname=shop".parse()?))
///     .max_batch_events(2_000)
///     .handler(Count)?;
/// assert_eq!(consumer.name(), "count");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct Builder {
    settings: Settings,
    database: Option<Database>,
}

impl Builder {
    pub(crate) fn new(consumer: String) -> Self {
        Self { settings: Settings::new(consumer), database: None }
    }

    /// One librdkafka setting, such as `bootstrap.servers`, which is required.
    /// Those that decide about offsets are refused.
    pub fn kafka(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.settings.kafka.insert(name.into(), value.into());
        self
    }

    /// Many librdkafka settings, as from a configuration file.
    ///
    /// ```
    /// use std::collections::BTreeMap;
    ///
    /// let mut settings = BTreeMap::new();
    /// settings.insert("bootstrap.servers".to_owned(), "localhost:9092".to_owned());
    /// settings.insert("sasl.mechanism".to_owned(), "SCRAM-SHA-512".to_owned());
    /// let builder = walpost_consumer::Consumer::builder("shipping").kafka_settings(settings);
    /// ```
    pub fn kafka_settings(mut self, settings: BTreeMap<String, String>) -> Self {
        self.settings.kafka.extend(settings);
        self
    }

    /// Consumer group; the consumer's name unless set.
    pub fn group_id(mut self, group_id: impl Into<String>) -> Self {
        self.settings.group_id = Some(group_id.into());
        self
    }

    /// Topics to read, by name.
    pub fn topics<T: Into<String>>(mut self, topics: impl IntoIterator<Item = T>) -> Self {
        self.settings.topics = topics.into_iter().map(Into::into).collect();
        self
    }

    /// The database that holds the effects. Required.
    pub fn database(mut self, database: Database) -> Self {
        self.database = Some(database);
        self
    }

    /// Schema of the consumer's tables, without quotes; `walpost` unless set.
    pub fn schema(mut self, schema: impl Into<String>) -> Self {
        self.settings.schema = schema.into();
        self
    }

    /// What an offset reset does; [`OnReset::Rerun`] unless set.
    pub fn on_reset(mut self, on_reset: OnReset) -> Self {
        self.settings.on_reset = on_reset;
        self
    }

    /// What keeps an effect from being made twice; [`Guard::Rows`] unless set.
    pub fn guard(mut self, guard: Guard) -> Self {
        self.settings.guard = guard;
        self
    }

    /// Where an unknown partition starts; [`FirstStart::Earliest`] unless set.
    pub fn first_start(mut self, first_start: FirstStart) -> Self {
        self.settings.first_start = first_start;
        self
    }

    /// How many transactions of one partition may be open at once; 1 unless
    /// set, at most 256. Each takes one of the
    /// [connections](Self::max_connections) while it is open.
    ///
    /// More than one is for handlers that are slow, or that wait: events of
    /// different keys are applied side by side, those of one key in their
    /// order, those without a key in any. The stored offset follows behind what
    /// all have done, and what was done beyond it is known by its deduplication
    /// rows. A handler that is fast with slices is faster with one lane.
    ///
    /// A handler that ends its transaction is caught, and halts the partition,
    /// but with more than one lane what it had written until then stays.
    pub fn lanes(mut self, lanes: usize) -> Self {
        self.settings.lanes = lanes;
        self
    }

    /// Most connections to the database, which all partitions and lanes share.
    /// Default: 20. Range: 2 to 10,000.
    ///
    /// A partition waits for its turn, first come, first served, and holds a
    /// connection for one transaction. One of the connections is kept for ending
    /// what blocks a claim. More connections let more transactions run side by
    /// side, up to one per partition and lane.
    ///
    /// The transactions of a [store](crate::store) are bounded by it too, but
    /// their connections are the store's own.
    pub fn max_connections(mut self, connections: usize) -> Self {
        self.settings.max_connections = connections;
        self
    }

    /// Most events in one transaction; 500 unless set.
    pub fn max_batch_events(mut self, events: usize) -> Self {
        self.settings.max_batch_events = events;
        self
    }

    /// Most bytes of keys, values and headers in one transaction; one larger
    /// event goes alone. 4 MiB unless set. Twice as much is read ahead.
    pub fn max_batch_bytes(mut self, bytes: usize) -> Self {
        self.settings.max_batch_bytes = bytes;
        self
    }

    /// How long to wait for a batch to fill, in milliseconds; 0 unless set:
    /// what has arrived is applied at once, and batches grow under load.
    pub fn max_batch_wait_ms(mut self, milliseconds: u64) -> Self {
        self.settings.max_batch_wait_ms = milliseconds;
        self
    }

    /// How often an event may fail before it is parked; 5 unless set.
    /// Transient faults do not count.
    pub fn max_attempts(mut self, attempts: u32) -> Self {
        self.settings.max_attempts = attempts;
        self
    }

    /// Waits between attempts at one event. Unless set 0.1, 0.5, 2, then 10
    /// seconds.
    ///
    /// ```
    /// use std::time::Duration;
    /// use walpost_consumer::{Consumer, RetrySchedule};
    ///
    /// let waits = [1, 10, 60].map(Duration::from_secs);
    /// let builder = Consumer::builder("shipping")
    ///     .max_attempts(10)
    ///     .retry_schedule(RetrySchedule::new(waits).repeating_last());
    /// ```
    pub fn retry_schedule(mut self, schedule: RetrySchedule) -> Self {
        self.settings.retry_schedule = schedule;
        self
    }

    /// What waits while an event is parked; [`Park::Key`] unless set: the later
    /// events of its key.
    pub fn park(mut self, park: Park) -> Self {
        self.settings.park = park;
        self
    }

    /// How many events in a row may be parked before the partition halts: that
    /// is no poison, that is a fault. 100 unless set.
    pub fn halt_after_parked(mut self, events: u32) -> Self {
        self.settings.halt_after_parked = events;
        self
    }

    /// Topic that parked events are also published to, as dead letters; none
    /// unless set.
    ///
    /// The row is committed first, as always, and holds the event; the letter
    /// follows it, at least once, with key, value and headers as they were, and
    /// headers that say which row it is of and why. Nothing waits for it: a topic
    /// that is missing, denied or away later on is tried again. An event that
    /// only waits behind a parked one of its key has none.
    ///
    /// The topic has to exist when the consumer starts, may not be one of those
    /// that are read, and should not be compacted. The consumer needs Kafka's
    /// rights Describe and Write on it, and reaches the brokers by the settings
    /// given to [`kafka`](Self::kafka).
    ///
    /// ```
    /// use walpost_consumer::Consumer;
    ///
    /// let builder = Consumer::builder("shipping")
    ///     .kafka("bootstrap.servers", "localhost:9092")
    ///     .topics(["outbox.event.order"])
    ///     .dead_letter_topic("shipping.dead");
    /// ```
    pub fn dead_letter_topic(mut self, topic: impl Into<String>) -> Self {
        self.settings.dead_letter_topic = Some(topic.into());
        self
    }

    /// Longest time for the handler on one batch, in milliseconds; 30,000
    /// unless set. Then its connection is dropped and the attempt has failed.
    pub fn handler_timeout_ms(mut self, milliseconds: u64) -> Self {
        self.settings.handler_timeout_ms = milliseconds;
        self
    }

    /// `lock_timeout` of each transaction in milliseconds; 10,000 unless set.
    pub fn lock_timeout_ms(mut self, milliseconds: u64) -> Self {
        self.settings.lock_timeout_ms = milliseconds;
        self
    }

    /// How long a claim waits for the previous owner of a partition, in
    /// milliseconds; 2,000 unless set. Half of it gives an owner that is alive
    /// time to finish; then its transaction is ended.
    pub fn claim_timeout_ms(mut self, milliseconds: u64) -> Self {
        self.settings.claim_timeout_ms = milliseconds;
        self
    }

    /// How long a partition that is taken away may finish its batch and commit
    /// its offset, in milliseconds; 20,000 unless set. Then a batch that is not
    /// committed is rolled back.
    pub fn stop_timeout_ms(mut self, milliseconds: u64) -> Self {
        self.settings.stop_timeout_ms = milliseconds;
        self
    }

    /// After which silence the group gives the partitions to others, in
    /// milliseconds; 10,000 unless set. Heartbeats come five times as often.
    /// With `group.protocol = consumer` the broker decides instead.
    pub fn session_timeout_ms(mut self, milliseconds: u64) -> Self {
        self.settings.session_timeout_ms = milliseconds;
        self
    }

    /// Least time between two commits of offsets to Kafka, in milliseconds;
    /// 100 unless set. Only lag tools and the time of a reset feel it.
    pub fn commit_interval_ms(mut self, milliseconds: u64) -> Self {
        self.settings.commit_interval_ms = milliseconds;
        self
    }

    /// For how long effects are remembered; for ever unless set. The role then
    /// needs `delete` on `done`, and Kafka's right to describe the topics'
    /// settings.
    pub fn retention(mut self, retention: Retention) -> Self {
        self.settings.retention = Some(retention);
        self
    }

    /// The consumer, with what it does to each event.
    ///
    /// # Errors
    /// [`Error::Setting`] for a setting that is missing or out of its bounds.
    pub fn handler<H: Handler>(self, handler: H) -> Result<Consumer<H>, Error> {
        self.settings.check()?;
        let database = self.database.ok_or_else(|| Error::Setting {
            setting: "database".to_owned(),
            problem: "is missing, see Database::config".to_owned(),
        })?;
        Ok(Consumer::new(self.settings, database, Arc::new(handler)))
    }
}

impl<H> fmt::Debug for Consumer<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Consumer({})", self.name())
    }
}
