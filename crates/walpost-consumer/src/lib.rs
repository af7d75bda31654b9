//! Kafka to handler: offset, deduplication and effect in one PostgreSQL
//! transaction.
//!
//! A [`Consumer`] reads topics as a member of a Kafka consumer group, and gives
//! each event to a [`Handler`] together with an open transaction. What the
//! handler writes through it commits together with the event's offset and its
//! deduplication row: the effect is there exactly once, whatever is killed,
//! paused or taken over, and however often the record was published.
//!
//! Resetting the group's offsets with Kafka's own tools, while the consumer is
//! stopped, replays; [`OnReset`] says what that means for effects that are
//! there already. `walpost consumer reset` does the same while it runs, too,
//! by time, offset, type or aggregate, after a dry run.
//!
//! # Start
//!
//! A program needs, besides this crate:
//!
//! ```toml
//! [dependencies]
//! serde = { version = "1", features = ["derive"] }
//! tokio = { version = "1", features = ["macros", "rt-multi-thread", "signal"] }
//! tracing-subscriber = "0.3"
//! ```
//!
//! ```no_run
//! use std::{io::IsTerminal, process::ExitCode};
//!
//! use walpost_consumer::{
//!     Consumer, Database, Event, Handler, HandlerError, error_chain, tokio_postgres::Transaction,
//! };
//!
//! struct Shipping;
//!
//! impl Handler for Shipping {
//!     async fn handle(&self, tx: &Transaction<'_>, event: &Event) -> Result<(), HandlerError> {
//!         let order: i64 = event.json()?;
//!         tx.execute("insert into shipment (order_id) values ($1)", &[&order]).await?;
//!         Ok(())
//!     }
//! }
//!
//! async fn run() -> Result<(), Box<dyn std::error::Error>> {
//!     let consumer = Consumer::builder("shipping")
//!         .kafka("bootstrap.servers", "localhost:9092")
//!         .topics(["outbox.event.order"])
//!         .database(Database::config("host=localhost user=app dbname=shop".parse()?))
//!         .handler(Shipping)?;
//!     let terminated = async { /* wait for SIGTERM */ };
//!     consumer.run(terminated).await?;
//!     Ok(())
//! }
//!
//! #[tokio::main]
//! async fn main() -> ExitCode {
//!     let is_terminal = std::io::stderr().is_terminal();
//!     tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(is_terminal).init();
//!     let Err(error) = run().await else { return ExitCode::SUCCESS };
//!     eprintln!("shipping: {}", error_chain(&*error));
//!     ExitCode::FAILURE
//! }
//! ```
//!
//! # Tables and grants
//!
//! `walpost migrate --set consumer` creates the consumer's tables, in the
//! database of the effects, and nothing of the relay's; `--print` prints the
//! SQL for another tool. They are in the schema `walpost`; see
//! [`Builder::schema`]. The role of the consumer needs, besides what its
//! handler writes:
//!
//! ```sql
//! grant usage on schema walpost to app;
//! grant select, insert, update on walpost.position, walpost.done, walpost.consumer to app;
//! grant select, insert, update, delete on walpost.consumer_parked, walpost.consumer_lane, walpost.consumer_halted to app;
//! grant select, insert on walpost.consumer_reset to app;
//! grant select, delete on walpost.consumer_again to app;
//! ```
//!
//! [`Consumer::run`] looks for both first, and its error has the statements.
//!
//! # Logs
//!
//! What a consumer does goes to [`tracing`](https://docs.rs/tracing): set a
//! subscriber, as above. In a process without one, what somebody has to know is
//! printed to stderr: what is waited for, which partition is halted, which event
//! was parked, and why.
//!
//! No payload, key or header value but an event's id is in a log line, an error
//! or a status of this crate; [`HandlerError`] says what becomes of a handler's own text.
//! `tokio_postgres` logs parameters of statements under its own name at the
//! level `debug`: leave that off where contents are not to be logged.
//!
//! # Traces
//!
//! Each call of a handler is within a span of the level `info`, for subscribers
//! that want it; for others it costs nothing. With one event it is
//! `walpost.consume`, with the fields `consumer`, `topic`, `partition`,
//! `offset`, `event_id`, `event_type`, and of
//! [the event's context](Event::trace_context) `trace_id` and `parent_id`. With
//! several it is `walpost.consume_slice`, with `offset`, `last_offset` and the
//! number of `events`, and each event that is handled alone within has a
//! `walpost.consume` of its own. Keys, values and other headers are in none.
//!
//! With the feature `opentelemetry` and a layer of
//! [`tracing-opentelemetry`](https://docs.rs/tracing-opentelemetry/0.34) an
//! exporter sees one trace from the application through the outbox to the
//! effect: the remote parent of `walpost.consume` is the span in which the event
//! was written, and `walpost.consume_slice` has links to those of its events, at
//! most 128. The version of that layer has to be this crate's.
//!
//! # Parked events
//!
//! An event whose handler fails ([`HandlerError::Retry`], after
//! [`Builder::max_attempts`]) or gives it up ([`HandlerError::Park`]), and a
//! record without a usable header `id`, of at most 1,000 bytes, is set aside: it becomes a row of the
//! table `walpost.consumer_parked`, with its reason and the whole record, in the
//! transaction that moves the offset past it. The later events of its key wait
//! behind it, as rows too, unless told otherwise ([`Park`]); those of other keys
//! go on.
//!
//! ```sql
//! select id, parked_at, state, topic, part, off, event_id, attempts, reason, encode(value, 'escape')
//! from walpost.consumer_parked where consumer = 'shipping' and state <> 'discarded' order by id;
//! ```
//!
//! To go on, mend what the reason names, and ask for a retry, or give the event
//! up: `walpost consumer parked retry 7`, or
//!
//! ```sql
//! select * from walpost.request_parked(array[7], 'retry', current_user);
//! select * from walpost.request_parked(array[8], 'discard', current_user);
//! ```
//!
//! The running consumer does it within a second or two, the owner of the
//! partition behind its fence, and then applies what waits for the key, in
//! order. An event that fails again stays parked with the new reason, and its
//! key with it. The row of an applied event is deleted, that of a discarded one
//! stays. Records that the topic has lost meanwhile can be retried: the row has
//! them. Whoever asks needs `select, update` on `walpost.consumer_parked` and
//! `select` on `walpost.position`.
//!
//! A replay that comes to a parked event tries it again, if its key is not held,
//! and the row goes when it succeeds; where the key is held, the event and those
//! that the replay brings wait in the order of their offsets. A request for an
//! event that a replay has yet to come to waits for it.
//!
//! With [`Builder::dead_letter_topic`] parked events are also published to a topic
//! of their own, at least once: a notice for those who look there. The row stays
//! the place from which they are retried or discarded.
//!
//! # Membership
//!
//! Members assign by `partition.assignment.strategy`, `cooperative-sticky` unless
//! set: partitions move one by one. With `group.protocol = consumer`, which Kafka
//! has from 4.0 on, the brokers assign instead, and session and heartbeats are
//! settings of theirs. One whose group assigns otherwise says so, and joins when
//! the others have gone, also by the end of their sessions. Settings that
//! contradict each other are refused by [`Builder::handler`].
//!
//! A member with a `group.instance.id` that is started again within its session
//! gets its partitions back and moves no others. It assigns by `roundrobin` unless
//! set, and `cooperative-sticky` is refused: between the two halves of a rebalance
//! by that, a kill and a restart would leave partitions to nobody, until another
//! member joins or leaves. So a rebalance stops all partitions, for as long as the
//! slowest batch of the group takes to end. One that comes back with other topics
//! joins when the session of the one before has ended, as Kafka would give it that
//! one's partitions alone. When another process joins under that id, the one
//! before ends with an error that says so. One that was silent for longer than its
//! session may end so too, and has to be started again.
//!
//! ```
//! let consumer = walpost_consumer::Consumer::builder("shipping")
//!     .kafka("group.protocol", "consumer")
//!     .kafka("group.instance.id", "shipping-0");
//! ```
//!
//! # Halted partitions
//!
//! A partition halts where going on could lose an effect or make one twice, and
//! where the database refuses a handler's statement for want of a table or a
//! grant. Nothing of it is lost: [`PartitionState::Halted`] and the log say why
//! and how to go on, and a restart begins where it halted. The other partitions
//! go on; [`Consumer::run`] returns when all are halted.
//!
//! # Guards, formats, other clients
//!
//! [`Guard`] says what keeps a copy of an event from taking effect; the default
//! is a row for each event. The crate `walpost-consumer-sqlx` is for handlers that
//! write with sqlx. Features, none of which is on by default:
//!
//! - `avro`: `Event::avro` reads values under the schemas of a registry.
//! - `redis`: `Guard::best_effort_redis` keeps keys in Redis.
//! - `opentelemetry`: spans go on with the trace that an event was written under.
//!
//! # Testing handlers
//!
//! The crate `walpost-consumer-test` delivers given events to a handler through
//! this consumer, without Kafka: twice, in other orders, with crashes at every
//! step, and without the guard, and says what differs.
//!
//! Semver covers `tokio_postgres`, which is re-exported; Kafka's client is an
//! implementation detail, and its settings are text.

#[cfg(feature = "avro")]
mod avro;
mod blocked;
mod builder;
mod calls;
mod consumer;
mod database;
mod database_error;
mod dead_letters;
mod decide;
mod error;
mod event;
mod failpoint;
mod guard;
mod handler;
mod inbox;
mod kafka;
mod ledger;
mod marker;
mod meter;
mod metrics;
mod origin;
mod park;
mod partition;
mod points;
mod pool;
mod preflight;
mod pruner;
#[cfg(feature = "redis")]
mod redis_guard;
mod report;
mod reporter;
mod retention;
mod same_database;
mod settings;
#[cfg(test)]
mod simulation;
mod sizing;
mod sql;
mod standstill;
mod status;
#[doc(hidden)]
pub mod store;
#[cfg(feature = "opentelemetry")]
mod telemetry;
mod tell;
/// For the crate `walpost-consumer-test` alone: not covered by semver.
#[cfg(feature = "test-kit")]
#[doc(hidden)]
pub mod testing;
mod threads;
mod trace;

/// For the command line of Walpost alone: not covered by semver.
#[doc(hidden)]
pub mod operator {
    pub use crate::marker::{Known, Marker, Owner, Pending, Standing};
}

pub use tokio_postgres;
/// From here it is `walpost_consumer::RetrySchedule`, as
/// [`Builder::retry_schedule`] shows.
///
#[doc(inline)]
pub use walpost_event::RetrySchedule;

#[cfg(feature = "avro")]
pub use crate::avro::{AvroRegistry, AvroRegistryBuilder};
#[cfg(feature = "redis")]
pub use crate::redis_guard::RedisGuard;
pub use crate::{
    builder::Builder,
    consumer::Consumer,
    database::Database,
    decide::{FirstStart, OnReset},
    error::Error,
    event::{Event, EventBuilder},
    guard::{BusinessKey, Guard},
    handler::{BoxError, Handler, HandlerError, SliceError},
    origin::EventPosition,
    park::Park,
    report::error_chain,
    retention::Retention,
    status::{Counts, PartitionState, PartitionStatus, Status, TopicPartition},
    trace::TraceContext,
};
