//! Records that say that the relay lives, and a statement at each of them.
//!
//! Apart from the pipeline, with a session and a sink of their own: no ticket, no
//! floor and no checkpoint knows of a heartbeat, so that it moves no position
//! past an event, and is no event that a start reads back.

use std::{fmt, sync::Arc, time::Duration};

use metrics::{Counter, counter};
use tokio::{
    sync::watch,
    time::{Instant, MissedTickBehavior, interval_at},
};
use walpost_encode::connect::{Kind, Schema, TypedRecord, TypedValue, Value};
use walpost_event::{Message, error_chain};
use walpost_postgres::Database;

use crate::{
    beside::{self, Complaint},
    clock::now_us,
    config::RelayConfig,
    error::RelayError,
    sink::Sink,
    sql::Sql,
    status::{Phase, PipelineStatus},
};

/// Without any news for so long a heartbeat is given up; another one follows.
const PATIENCE: Duration = Duration::from_secs(10);
/// Bounds of the interval: a day at most.
const INTERVAL_MS: std::ops::RangeInclusive<u64> = 1..=86_400_000;

/// What a [`RelayConfig`] says of heartbeats, which are Debezium's
/// (`heartbeat.*`). The slot moves without them.
#[derive(Clone, PartialEq, Eq)]
pub struct Heartbeat {
    /// Between two of them, in milliseconds, 1 to 86,400,000
    /// (`heartbeat.interval.ms`).
    pub interval_ms: u64,
    /// Their topic, of which they go to partition 0 (`topic.heartbeat.name`, or
    /// `topic.heartbeat.prefix` and `topic.prefix`).
    pub topic: String,
    /// What their key says (`topic.prefix`).
    pub server_name: String,
    /// SQL before each of them (`heartbeat.action.query`), on a session of its
    /// own, within `statement_timeout_ms`. What goes wrong with it is logged.
    /// What it writes to an outbox table is an event like any other.
    pub action_query: Option<String>,
}

impl fmt::Debug for Heartbeat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Heartbeat")
            .field("interval_ms", &self.interval_ms)
            .field("topic", &self.topic)
            .field("server_name", &self.server_name)
            // It may have a password in it.
            .field("action_query", &self.action_query.as_ref().map(|_| "..."))
            .finish()
    }
}

impl Heartbeat {
    pub(crate) fn validate(&self) -> Result<(), String> {
        if !INTERVAL_MS.contains(&self.interval_ms) {
            return Err(format!(
                "heartbeat.interval_ms is {}; it lies between {} and {}",
                self.interval_ms,
                INTERVAL_MS.start(),
                INTERVAL_MS.end()
            ));
        }
        crate::config::legal_topic("heartbeat.topic", &self.topic)
    }

    /// The record of a heartbeat at `ts_ms` since 1970, as Debezium 3.7 makes it
    /// of Kafka Connect's types: a key `{serverName}`, a value `{ts_ms}`, no
    /// headers, and the time of sending.
    pub fn record(&self, ts_ms: i64) -> TypedRecord {
        let part = |name: &str, field: &str, kind: Kind, value: Value| TypedValue {
            schema: Some(Arc::new(Schema::logical(
                Schema::fields([(field, Schema::new(kind))]),
                &format!("io.debezium.connector.common.{name}"),
                1,
            ))),
            value: Value::Struct(vec![value]),
        };
        let server = Value::String(self.server_name.as_str().into());
        TypedRecord {
            topic: self.topic.as_str().into(),
            partition: Some(0),
            key: part("ServerNameKey", "serverName", Kind::String, server),
            value: part("Heartbeat", "ts_ms", Kind::Int64, Value::Int64(ts_ms)),
            headers: Default::default(),
            timestamp_ms: None,
        }
    }
}

/// The heartbeats of a pipeline.
///
/// They come while the pipeline streams, and not while it stands by or loads.
#[derive(Debug)]
pub struct Heartbeats {
    database: Database,
    statement_timeout: Duration,
    heartbeat: Heartbeat,
    sent: Counter,
    failed: Counter,
    record: Complaint,
    action: Complaint,
}

impl Heartbeats {
    /// Those of a pipeline that has any, else `None`. Nothing is connected yet.
    pub fn new(database: &Database, config: &RelayConfig) -> Option<Self> {
        let heartbeat = config.heartbeat.clone()?;
        let label = [("pipeline", config.pipeline.clone())];
        Some(Self {
            database: database.clone(),
            statement_timeout: Duration::from_millis(config.statement_timeout_ms),
            heartbeat,
            sent: counter!("walpost_heartbeats_total", &label),
            failed: counter!("walpost_heartbeat_failures_total", &label),
            record: Complaint::default(),
            action: Complaint::default(),
        })
    }

    /// Goes on until the pipeline of `status` has stopped. What goes wrong is
    /// counted and logged, and the next heartbeat tried in its time.
    ///
    /// `connect` gives a sink that is not the pipeline's, and not transactional
    /// under its name, which would fence it off. `form` makes the message of a
    /// [record](Heartbeat::record), such as [`Forms`](crate::Forms) does; without
    /// one nothing is written. Its error is text without contents.
    pub async fn run<K, F, M>(
        mut self,
        mut status: watch::Receiver<PipelineStatus>,
        mut connect: impl FnMut() -> F + Send,
        mut form: impl FnMut(TypedRecord) -> M + Send,
    ) where
        K: Sink,
        F: Future<Output = Result<K, RelayError>> + Send,
        M: Future<Output = Result<Option<Message>, String>> + Send,
    {
        let period = Duration::from_millis(self.heartbeat.interval_ms);
        let mut ticks = interval_at(Instant::now() + period, period);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut sink = None;
        let mut session = None;
        loop {
            if !until_streaming(&mut status).await {
                break;
            }
            tokio::select! {
                biased;
                _ = status.wait_for(|status| status.phase != Phase::Streaming) => {
                    session = None;
                    continue;
                }
                _ = ticks.tick() => {}
            }
            tokio::select! {
                biased;
                // It may wait for a server that is away.
                _ = status.wait_for(is_over) => break,
                () = self.beat(&mut session, &mut sink, &mut connect, &mut form) => {}
            }
        }
        close(&mut sink).await;
    }

    async fn beat<K, F, M>(
        &mut self,
        session: &mut Option<Sql>,
        sink: &mut Option<K>,
        connect: &mut (impl FnMut() -> F + Send),
        form: &mut (impl FnMut(TypedRecord) -> M + Send),
    ) where
        K: Sink,
        F: Future<Output = Result<K, RelayError>> + Send,
        M: Future<Output = Result<Option<Message>, String>> + Send,
    {
        if let Err(error) = self.act(session).await {
            // Whatever it has left behind goes with its session.
            *session = None;
            self.failed.increment(1);
            let reason = error_chain(&error);
            if self.action.is_news(&reason, Instant::now()) {
                tracing::warn!(
                    error = reason,
                    "the heartbeat's action query failed; it is tried again at the next heartbeat"
                );
            }
        } else if self.action.is_over() {
            tracing::info!("the heartbeat's action query works again");
        }
        match self.send(sink, connect, form).await {
            Ok(sent) => {
                self.sent.increment(sent);
                if self.record.is_over() {
                    tracing::info!(topic = self.heartbeat.topic, "heartbeats are written again");
                }
            }
            Err(reason) => {
                close(sink).await;
                self.failed.increment(1);
                if self.record.is_news(&reason, Instant::now()) {
                    tracing::warn!(
                        topic = self.heartbeat.topic,
                        reason,
                        "a heartbeat was not written; the pipeline goes on"
                    );
                }
            }
        }
    }

    async fn act(&self, session: &mut Option<Sql>) -> Result<(), RelayError> {
        let Some(query) = &self.heartbeat.action_query else { return Ok(()) };
        let session = match session {
            Some(session) => session,
            None => {
                let (client, _) = self.database.connect_to_one().await?;
                session.insert(Sql::new(Arc::new(client), self.statement_timeout))
            }
        };
        session.batch("running the heartbeat's action query", query).await
    }

    async fn send<K, F, M>(
        &self,
        sink: &mut Option<K>,
        connect: &mut (impl FnMut() -> F + Send),
        form: &mut (impl FnMut(TypedRecord) -> M + Send),
    ) -> Result<u64, String>
    where
        K: Sink,
        F: Future<Output = Result<K, RelayError>> + Send,
        M: Future<Output = Result<Option<Message>, String>> + Send,
    {
        let Some(message) = form(self.heartbeat.record(now_us() / 1_000)).await? else {
            return Ok(0);
        };
        let sink = match sink {
            Some(sink) => sink,
            None => sink.insert(connect().await.map_err(|error| error_chain(&error))?),
        };
        let sent = beside::send(sink, vec![message], PATIENCE).await;
        let refused = sent.map_err(|unfinished| unfinished.reason)?;
        refused.into_iter().next().map_or(Ok(1), |(_, reason)| Err(reason))
    }
}

/// Whether it will stream; false once it has stopped.
async fn until_streaming(status: &mut watch::Receiver<PipelineStatus>) -> bool {
    let due = |status: &PipelineStatus| status.phase == Phase::Streaming || is_over(status);
    let is_gone = status.wait_for(due).await.is_err();
    // Whoever is gone without a word leaves what it said last.
    !(is_gone || status.has_changed().is_err() || is_over(&status.borrow()))
}

fn is_over(status: &PipelineStatus) -> bool {
    status.phase == Phase::Stopped
}

async fn close<K: Sink>(sink: &mut Option<K>) {
    if let Some(sink) = sink.take() {
        sink.close().await;
    }
}

#[cfg(test)]
mod tests {
    use walpost_encode::connect::{
        Converter, Converters, HeaderConverter, JsonConverter, JsonConverterOptions,
    };

    use super::*;

    fn heartbeat() -> Heartbeat {
        Heartbeat {
            interval_ms: 1_000,
            topic: "__debezium-heartbeat.shop".to_owned(),
            server_name: "shop".to_owned(),
            action_query: Some("select 'hunter2'".to_owned()),
        }
    }

    fn converted(converter: &Converter) -> Message {
        let (key, value) = (converter.clone(), converter.clone());
        let mut converters = Converters { key, value, header: HeaderConverter::Simple };
        converters.convert(&heartbeat().record(1_700_000_000_123)).unwrap()
    }

    /// As Kafka Connect's converters write those of Debezium 3.7.
    #[test]
    fn a_heartbeat_is_debeziums() {
        let json = |has_schemas| {
            let options = JsonConverterOptions { schemas: has_schemas, ..Default::default() };
            converted(&Converter::Json(JsonConverter::new(options)))
        };
        let plain = json(false);
        assert_eq!(plain.key.as_deref(), Some(&br#"{"serverName":"shop"}"#[..]));
        assert_eq!(plain.value.as_deref(), Some(&br#"{"ts_ms":1700000000123}"#[..]));
        assert_eq!((plain.partition, plain.headers.len(), plain.timestamp_ms), (Some(0), 0, None));
        let whole = json(true);
        let text = |bytes: Option<bytes::Bytes>| String::from_utf8(bytes.unwrap().into()).unwrap();
        assert_eq!(
            text(whole.key),
            concat!(
                r#"{"schema":{"type":"struct","fields":[{"type":"string","optional":false,"#,
                r#""field":"serverName"}],"optional":false,"#,
                r#""name":"io.debezium.connector.common.ServerNameKey","version":1},"#,
                r#""payload":{"serverName":"shop"}}"#
            )
        );
        assert_eq!(
            text(whole.value),
            concat!(
                r#"{"schema":{"type":"struct","fields":[{"type":"int64","optional":false,"#,
                r#""field":"ts_ms"}],"optional":false,"#,
                r#""name":"io.debezium.connector.common.Heartbeat","version":1},"#,
                r#""payload":{"ts_ms":1700000000123}}"#
            )
        );
        let text_form = converted(&Converter::String);
        assert_eq!(text_form.value.as_deref(), Some(&b"Struct{ts_ms=1700000000123}"[..]));
    }

    #[test]
    fn what_cannot_be_is_refused_and_the_query_is_not_shown() {
        assert_eq!(heartbeat().validate(), Ok(()));
        let none = Heartbeat { interval_ms: 0, ..heartbeat() };
        assert!(none.validate().unwrap_err().contains("heartbeat.interval_ms is 0"));
        let odd = Heartbeat { topic: "a b".to_owned(), ..heartbeat() };
        assert!(odd.validate().unwrap_err().contains("heartbeat.topic"));
        let shown = format!("{:?}", heartbeat());
        assert!(shown.contains("shop") && !shown.contains("hunter2"), "{shown}");
    }
}
