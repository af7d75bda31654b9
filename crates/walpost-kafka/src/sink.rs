use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use rdkafka::{
    config::FromClientConfigAndContext,
    error::KafkaError,
    message::{Header, OwnedHeaders},
    producer::{BaseProducer, BaseRecord, Producer},
    types::RDKafkaErrorCode,
};
use tokio::{sync::oneshot, task::JoinSet};
use walpost_event::{Bytes, Message};
use walpost_relay::{Delivery, DeliveryError, DeliveryErrorKind, RelayError, Sink, Ticket, Unsent};

use crate::{
    config::KafkaConnector,
    deliveries::{Context, LaneId, Report, Reports, opaque, queued_bytes},
    partition::partition_for_key,
    topic::{Resolved, Topic, TopicLimits, is_legal_name, resolve},
};

/// Bound on one call of the polling thread, and so on how late it sees a stop.
const POLL: Duration = Duration::from_millis(100);
/// Bound on the release of the client.
const CLOSE: Duration = Duration::from_secs(5);
/// Between two questions about a topic that cannot be used.
const ASK_AGAIN: Duration = Duration::from_secs(1);
/// Between two looks at the number of partitions of the topics in use.
const REFRESH: Duration = Duration::from_secs(60);
/// Records without a key that go to one partition before the next.
const KEYLESS_RUN: u32 = 64;
/// What a record batch of one record needs beside key, value and headers.
const FRAMING_BYTES: usize = 128;

/// A [`Sink`] over one idempotent producer.
///
/// A thread of its own polls the producer and releases it at the end. A topic
/// is asked for before its first record; each partition sends one request
/// alone until its first acknowledgement, because a broker that does not know
/// a producer accepts any first batch, also one behind a batch it refused.
pub struct KafkaSink {
    connector: KafkaConnector,
    producer: Option<Arc<BaseProducer<Context>>>,
    reports: Arc<Reports>,
    stop: Arc<AtomicBool>,
    released: Option<oneshot::Receiver<()>>,
    topics: HashMap<Arc<str>, Topic>,
    lanes: Vec<Lane>,
    asking: JoinSet<Resolved>,
    refreshed: Instant,
    settled: Vec<Report>,
    outstanding: usize,
    queued_bytes: usize,
    /// The broker found a batch too large: whether batches were at their floor.
    smallest: Option<bool>,
}

/// A topic-partition that this producer has sent to.
#[derive(Debug)]
struct Lane {
    partition: i32,
    /// Whether this producer was acknowledged here.
    known: bool,
    waiting: bool,
}

impl std::fmt::Debug for KafkaSink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "KafkaSink({} outstanding, {} topics)", self.outstanding, self.topics.len())
    }
}

impl KafkaSink {
    pub(crate) async fn connect(connector: KafkaConnector) -> Result<Self, RelayError> {
        let reports = Arc::new(Reports::default());
        let context = Context { reports: reports.clone() };
        let (config, timeout) = (connector.client_config(), connector.connect_timeout);
        let opened = tokio::task::spawn_blocking(move || {
            let producer: BaseProducer<Context> =
                BaseProducer::from_config_and_context(&config, context)?;
            match producer.client().fetch_cluster_id(timeout) {
                Some(_) => Ok(producer),
                None => Err(KafkaError::Global(RDKafkaErrorCode::AllBrokersDown)),
            }
        });
        let producer =
            opened.await.map_err(|error| failed(&error.to_string()))?.map_err(|error| {
                failed(&format!(
                    "no answer from the brokers at {}: {error}",
                    connector.bootstrap_servers()
                ))
            })?;
        let producer = Arc::new(producer);
        let stop = Arc::new(AtomicBool::new(false));
        let released = poll_on_a_thread(producer.clone(), stop.clone())?;
        Ok(Self {
            connector,
            producer: Some(producer),
            reports,
            stop,
            released: Some(released),
            topics: HashMap::new(),
            lanes: Vec::new(),
            asking: JoinSet::new(),
            refreshed: now(),
            settled: Vec::new(),
            outstanding: 0,
            queued_bytes: 0,
            smallest: None,
        })
    }

    /// The lane of a message, or why there is none now.
    fn lane(&mut self, message: &Message) -> Result<LaneId, Refusal> {
        let Some(topic) = self.topics.get_mut(&message.topic) else {
            if !is_legal_name(&message.topic) {
                let rule = "no topic name: letters, digits, '.', '_' and '-', at most 249";
                return Err(Refusal::Never(rule.to_owned()));
            }
            self.topics.insert(message.topic.clone(), Topic::Resolving);
            self.ask(message.topic.clone(), Duration::ZERO);
            return Err(Refusal::Later);
        };
        let Topic::Known { limits, first_lane, keyless } = topic else {
            return Err(Refusal::Later);
        };
        let bytes = message.size_bytes() + FRAMING_BYTES;
        if bytes > limits.max_message_bytes {
            let limit = limits.max_message_bytes;
            let detail =
                format!("the record has {bytes} bytes, max.message.bytes of the topic is {limit}");
            return Err(Refusal::Never(detail));
        }
        let partition = match (message.partition, &message.key) {
            (Some(partition), _) if (0..limits.partitions).contains(&partition) => partition,
            (Some(partition), _) => {
                let count = limits.partitions;
                return Err(Refusal::Never(format!("no partition {partition}, there are {count}")));
            }
            (None, Some(key)) => partition_for_key(key, limits.partitions),
            (None, None) => {
                *keyless = keyless.wrapping_add(1);
                (*keyless / KEYLESS_RUN) as i32 % limits.partitions
            }
        };
        let lane = first_lane[partition as usize];
        if self.lanes[lane as usize].waiting {
            return Err(Refusal::Later);
        }
        Ok(lane)
    }

    fn ask(&mut self, topic: Arc<str>, after: Duration) {
        let (producer, connector) = (self.producer.clone(), self.connector.clone());
        self.asking.spawn(async move {
            tokio::time::sleep(after).await;
            let name = topic.clone();
            let answer = tokio::task::spawn_blocking(move || match producer {
                Some(producer) => resolve(&producer, &connector, &name),
                None => Err("the sink is closed".to_owned()),
            });
            (topic, answer.await.unwrap_or_else(|error| Err(error.to_string())))
        });
    }

    fn answered(&mut self, (topic, answer): Resolved) {
        match answer {
            Ok(limits) => {
                if self.asking.is_empty() {
                    self.reports.set_trouble(None);
                }
                self.learn(topic, limits);
            }
            Err(reason) => {
                if self.reports.trouble().as_ref() != Some(&reason) {
                    tracing::warn!(reason, "events wait");
                    self.reports.set_trouble(Some(reason));
                }
                self.ask(topic, ASK_AGAIN);
            }
        }
    }

    fn learn(&mut self, topic: Arc<str>, limits: TopicLimits) {
        let entry = self.topics.entry(topic).or_insert(Topic::Resolving);
        let mut lanes = match entry {
            Topic::Known { first_lane, .. } => std::mem::take(first_lane),
            Topic::Resolving => Vec::new(),
        };
        for partition in lanes.len() as i32..limits.partitions {
            lanes.push(self.lanes.len() as LaneId);
            self.lanes.push(Lane { partition, known: false, waiting: false });
        }
        *entry = Topic::Known { limits, first_lane: lanes, keyless: 0 };
    }

    /// Topics may get more partitions while we run.
    fn refresh(&mut self) {
        if self.refreshed.elapsed() < REFRESH {
            return;
        }
        self.refreshed = now();
        let known = |topic: &Topic| matches!(topic, Topic::Known { .. });
        let topics: Vec<Arc<str>> =
            self.topics.iter().filter(|(_, topic)| known(topic)).map(|(n, _)| n.clone()).collect();
        for topic in topics {
            self.ask(topic, Duration::ZERO);
        }
    }

    fn produce(&mut self, ticket: Ticket, lane: LaneId, message: &Message) -> Result<(), Refusal> {
        let Some(opaque) = opaque(ticket, lane) else {
            return Err(Refusal::Never(
                "more events or partitions than one session can count".into(),
            ));
        };
        let Some(producer) = &self.producer else { return Err(Refusal::Later) };
        let mut headers = OwnedHeaders::new_with_capacity(message.headers.len());
        for header in &message.headers {
            let value = header.value.as_deref();
            headers = headers.insert(Header { key: &header.name, value });
        }
        let record = BaseRecord::<[u8], [u8], usize> {
            topic: &message.topic,
            partition: Some(self.lanes[lane as usize].partition),
            payload: message.value.as_deref(),
            key: message.key.as_deref(),
            timestamp: message.timestamp_ms,
            headers: Some(headers),
            delivery_opaque: opaque,
        };
        match producer.send(record) {
            Ok(()) => Ok(()),
            Err((KafkaError::MessageProduction(RDKafkaErrorCode::MessageSizeTooLarge), _)) => {
                Err(Refusal::Never("the record is larger than librdkafka takes".into()))
            }
            Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), _)) => {
                Err(Refusal::Later)
            }
            Err((error, _)) => {
                self.fail(ticket, lane, message, &error);
                Ok(())
            }
        }
    }

    /// The producer has ended: a delivery says so, and ends the session.
    fn fail(&self, ticket: Ticket, lane: LaneId, message: &Message, error: &KafkaError) {
        let reason = self.producer.as_ref().and_then(|producer| producer.client().fatal_error());
        let detail = reason.map_or_else(|| error.to_string(), |(_, reason)| reason);
        let error = DeliveryError {
            kind: DeliveryErrorKind::Refused,
            topic: message.topic.clone(),
            detail: detail.into(),
        };
        let delivery = Delivery { ticket, result: Err(error) };
        let bytes = bytes_of(message);
        self.reports.push(Report { delivery, lane, bytes, too_large: false });
    }

    fn settle(&mut self, deliveries: &mut Vec<Delivery>) {
        let mut settled = std::mem::take(&mut self.settled);
        self.reports.take(&mut settled);
        if self.smallest.is_none() && settled.iter().any(|report| report.too_large) {
            // Once for this producer: the next one has smaller batches. As
            // small as they get, it is the record that is too large.
            self.smallest = Some(!self.connector.shrink_batches());
        }
        let smallest = self.smallest == Some(true);
        for mut report in settled.drain(..) {
            if let Err(error) = &mut report.delivery.result
                && report.too_large
                && smallest
            {
                error.kind = DeliveryErrorKind::Rejected;
            }
            self.outstanding -= 1;
            self.queued_bytes -= report.bytes;
            let lane = &mut self.lanes[report.lane as usize];
            lane.waiting = false;
            if report.delivery.result.is_ok() {
                lane.known = true;
            }
            deliveries.push(report.delivery);
        }
        self.settled = settled;
        if !deliveries.is_empty() && self.asking.is_empty() && self.reports.trouble().is_some() {
            self.reports.set_trouble(None);
        }
    }
}

fn bytes_of(message: &Message) -> usize {
    let part = |bytes: &Option<Bytes>| bytes.as_ref().map_or(0, Bytes::len);
    queued_bytes(part(&message.key), part(&message.value))
}

enum Refusal {
    Later,
    Never(String),
}

impl Sink for KafkaSink {
    fn try_send(&mut self, ticket: Ticket, message: Message) -> Result<(), Unsent> {
        let bytes = bytes_of(&message);
        // A message larger than the whole queue goes when it is alone.
        if self.outstanding > 0 && self.queued_bytes + bytes > self.connector.queue_max_bytes {
            return Err(Unsent::Full(Box::new(message)));
        }
        let sent = self.lane(&message).and_then(|lane| {
            self.produce(ticket, lane, &message)?;
            Ok(lane)
        });
        match sent {
            Ok(lane) => {
                let lane = &mut self.lanes[lane as usize];
                lane.waiting = !lane.known;
                self.outstanding += 1;
                self.queued_bytes += bytes;
                Ok(())
            }
            Err(Refusal::Later) => Err(Unsent::Full(Box::new(message))),
            Err(Refusal::Never(detail)) => Err(Unsent::Never { topic: message.topic, detail }),
        }
    }

    async fn deliveries(&mut self, deliveries: &mut Vec<Delivery>) {
        self.refresh();
        let reports = self.reports.clone();
        tokio::select! {
            biased;
            () = reports.changed() => self.settle(deliveries),
            Some(Ok(answer)) = self.asking.join_next(), if !self.asking.is_empty() => {
                self.answered(answer);
            }
        }
    }

    fn outstanding(&self) -> usize {
        self.outstanding
    }

    fn trouble(&self) -> Option<String> {
        self.reports.trouble()
    }

    async fn close(mut self) {
        self.asking.abort_all();
        self.stop.store(true, Ordering::Relaxed);
        self.producer = None;
        if let Some(released) = self.released.take()
            && tokio::time::timeout(CLOSE, released).await.is_err()
        {
            tracing::warn!("librdkafka takes longer than 5 s to close; not waiting for it");
        }
    }
}

impl Drop for KafkaSink {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn poll_on_a_thread(
    producer: Arc<BaseProducer<Context>>,
    stop: Arc<AtomicBool>,
) -> Result<oneshot::Receiver<()>, RelayError> {
    let (released, receiver) = oneshot::channel();
    std::thread::Builder::new()
        .name("kafka-producer".to_owned())
        .spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                producer.poll(POLL);
            }
            drop(producer);
            let _ = released.send(());
        })
        .map_err(|error| failed(&format!("no thread for the producer: {error}")))?;
    Ok(receiver)
}

fn failed(detail: &str) -> RelayError {
    RelayError::Sink { detail: detail.to_owned(), transient: true }
}

fn now() -> Instant {
    Instant::now()
}
