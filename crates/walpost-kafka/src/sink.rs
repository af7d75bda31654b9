//! The sink over an idempotent producer, and what it opens next to it.
//!
//! Long because all that the relay calls shares one queue and one state.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use walpost_event::Message;
use walpost_librdkafka::NoAccess;
use walpost_relay::{
    Delivery, DeliveryError, DeliveryErrorKind, Landed, Lane, NoteMarks, Place, RelayError, Sink,
    Ticket, TopicFloors, Transaction, TransactionOutcome as Outcome, Unsent,
};

use crate::{
    apart::Apart,
    batch::{TooLarge, too_large},
    config::KafkaConnector,
    deliveries::{Answer, Failure, Report, Reports, lock},
    gather::{Gather, Waiting},
    lane::LaneId,
    producer::{self, NotOpened, NotTaken, Producer},
    queue::{Entry, Queue, Size, Slot},
    read_back::{Plan, TopicRead, read_back},
    topic::is_legal_name,
    topics::{Refusal, Topics},
};

/// Bound on the release of the client.
const CLOSE: Duration = Duration::from_secs(5);

/// A [`Sink`] over one idempotent producer, or one that writes in transactions.
///
/// A thread of its own polls the producer and releases it at the end, and
/// another asks the brokers about topics. A topic is asked for before its first
/// record; each partition has one record alone on its way until its first
/// acknowledgement, because a broker that does not know a producer accepts any
/// first batch, also one behind a batch it refused.
pub struct KafkaSink {
    connector: KafkaConnector,
    producer: Producer,
    reports: Arc<Reports>,
    topics: Topics,
    queue: Queue,
    gather: Gather,
    /// What goes by itself.
    apart: Apart,
    /// The bytes of a batch of this producer.
    batch_bytes: usize,
    /// Where records are written in transactions.
    transaction: Option<Transaction>,
    /// A delivery has failed: nothing more is taken.
    failed: bool,
    /// It is logged that another producer has the `transactional.id`.
    fencing_logged: bool,
    settled: Vec<Report>,
}

impl std::fmt::Debug for KafkaSink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "KafkaSink({} outstanding, {} topics)", self.queue.len(), self.topics.len())
    }
}

impl KafkaSink {
    pub(crate) async fn connect(connector: KafkaConnector) -> Result<Self, RelayError> {
        let reports = Arc::new(connector.reports());
        let batch_bytes = connector.batch_bytes.get();
        let (opening, given) = (connector.clone(), reports.clone());
        let stop = StopOnDrop::default();
        let stopped = stop.0.clone();
        let opened = tokio::task::spawn_blocking(move || Producer::open(&opening, given, &stopped));
        let opened = opened.await.map_err(|error| failed(error.to_string()))?;
        let producer = opened.map_err(|why| not_opened(&connector, why))?;
        Ok(Self {
            queue: Queue::new(connector.queue_max_bytes),
            // The rest is on its way meanwhile; what waits keeps what it was read
            // into as well.
            gather: Gather::new(connector.queue_max_bytes / 4),
            apart: Apart::default(),
            transaction: connector.transaction_interval().map(Transaction::new),
            connector,
            producer,
            reports,
            topics: Topics::default(),
            batch_bytes,
            failed: false,
            fencing_logged: false,
            settled: Vec::new(),
        })
    }

    fn offer(&mut self, ticket: Ticket, message: Message) -> Result<LaneId, Unsent> {
        if self.apart.has(&message.topic) {
            return self.offer_apart(ticket, message);
        }
        let size = Size::of(&message);
        let lane = match self.place(&message, size) {
            Ok(lane) => lane,
            Err(refusal) => return Err(unsent(refusal, message)),
        };
        let has_key = message.key.is_some();
        let slot = self.queue.add(Entry { ticket, lane, size, has_key });
        let waits = self.gather.is_on() && self.topics.lane(lane).is_open();
        let partition = self.topics.lane(lane).partition;
        if !waits && let Err(refusal) = self.send(&message, partition, slot) {
            return Err(unsent(refusal, message));
        }
        self.topics.sent(lane, &message);
        if let Some(transaction) = &mut self.transaction {
            transaction.sent(Instant::now);
        }
        if waits {
            let waiting = Waiting { slot, partition, message };
            self.gather.add(waiting, size.queued_bytes, Instant::now);
            if self.gather.is_full() {
                self.send_gathered();
            }
        }
        Ok(lane)
    }

    /// The same of a message that goes by itself.
    fn offer_apart(&mut self, ticket: Ticket, message: Message) -> Result<LaneId, Unsent> {
        let size = Size::of(&message);
        let lane = match self.place(&message, size) {
            Ok(lane) => lane,
            Err(Refusal::Later) if !self.failed => return Err(Unsent::Apart(Box::new(message))),
            Err(refusal) => return Err(unsent(refusal, message)),
        };
        if !self.apart.may_send(&message.topic, &self.connector, &self.reports) {
            return Err(Unsent::Apart(Box::new(message)));
        }
        let has_key = message.key.is_some();
        let slot = self.queue.add(Entry { ticket, lane, size, has_key });
        let partition = self.topics.lane(lane).partition;
        if let Err(not_taken) = self.apart.send(&message, partition, slot)
            && let Err(refusal) = self.not_taken(slot, &message, not_taken)
        {
            return Err(unsent(refusal, message));
        }
        self.topics.sent(lane, &message);
        Ok(lane)
    }

    /// The lane of a message that may be sent now.
    fn place(&mut self, message: &Message, size: Size) -> Result<LaneId, Refusal> {
        if self.failed || self.transaction.as_ref().is_some_and(|open| !open.may_send()) {
            return Err(Refusal::Later);
        }
        let Some(topic) = self.topics.find(&message.topic) else {
            if !is_legal_name(&message.topic) {
                let rule = "no topic name: letters, digits, '.', '_' and '-', at most 249";
                return Err(Refusal::Never(rule.to_owned()));
            }
            self.topics.add(message.topic.clone());
            self.producer.ask(message.topic.clone());
            return Err(Refusal::Later);
        };
        let mut found = self.topics.place(topic, message, size.record_bytes, Instant::now);
        if let Err(Refusal::Away(_)) = found {
            // Whoever sends nothing else waits for no deliveries, and hears of no answer.
            self.learn();
            found = self.topics.place(topic, message, size.record_bytes, Instant::now);
        }
        let lane = found?;
        if message.key.is_none()
            && !self.topics.are_told(lane)
            && let Some(why) = lock(&self.connector.learnt).refuses(message, Instant::now)
        {
            return Err(Refusal::Never(why));
        }
        if self.queue.has_room(size) { Ok(lane) } else { Err(Refusal::Later) }
    }

    fn send(&mut self, message: &Message, partition: i32, slot: Slot) -> Result<(), Refusal> {
        match self.producer.send(message, partition, slot) {
            Ok(()) => Ok(()),
            Err(not_taken) => self.not_taken(slot, message, not_taken),
        }
    }

    /// Hands over what waits for others.
    fn send_gathered(&mut self) {
        let gathered = self.gather.take();
        for Waiting { slot, partition, message } in &gathered {
            let sent = match self.failed {
                true => Err(NotTaken::GivenUp),
                false => self.producer.send(message, *partition, *slot),
            };
            if let Err(not_taken) = sent {
                // Or those behind it would overtake it.
                self.failed = true;
                let (kind, detail) = not_taken.of_gathered();
                let error = DeliveryError { kind, topic: message.topic.clone(), detail };
                let result = Err(Failure { error, too_large: false, invalid: false });
                self.reports.push(Report { slot: *slot, result });
            }
        }
        self.gather.recycle(gathered);
    }

    fn not_taken(
        &mut self,
        slot: Slot,
        message: &Message,
        not_taken: NotTaken,
    ) -> Result<(), Refusal> {
        match not_taken {
            NotTaken::Ended(detail) => {
                // A delivery says so, and ends the session.
                self.failed = true;
                let error = DeliveryError {
                    kind: DeliveryErrorKind::Refused,
                    topic: message.topic.clone(),
                    detail: detail.into(),
                };
                let result = Err(Failure { error, too_large: false, invalid: false });
                self.reports.push(Report { slot, result });
                return Ok(());
            }
            NotTaken::Full | NotTaken::TooLarge | NotTaken::GivenUp => self.queue.remove(slot),
        };
        match not_taken {
            NotTaken::Full if self.queue.len() > 0 => Err(Refusal::Later),
            _ => Err(Refusal::Never(
                "the record is larger than kafka.message.max.bytes or \
                 kafka.queue.buffering.max.kbytes let librdkafka take"
                    .to_owned(),
            )),
        }
    }

    fn learn(&mut self) {
        for Answer { topic, found } in self.reports.take_answers() {
            if found.is_ok() {
                self.reports.clear_trouble();
            }
            // Of a topic alone whoever sends there says it, if it lasts.
            let unusable = found.as_ref().err().filter(|unusable| !unusable.is_its_own);
            let reason = unusable.map(|unusable| unusable.reason.clone());
            if self.topics.answered(&topic, found)
                && let Some(reason) = reason
            {
                tracing::warn!(topic = &*topic, reason = &*reason, "its records wait");
            }
        }
    }

    fn settle(&mut self, deliveries: &mut Vec<Delivery>) {
        let mut settled = std::mem::take(&mut self.settled);
        self.reports.take(&mut settled);
        let now = Instant::now();
        let mut any_acknowledged = false;
        for Report { slot, result } in settled.drain(..) {
            let entry = self.queue.remove(slot);
            any_acknowledged |= result.is_ok();
            self.topics.lane(entry.lane).settled(result.is_ok(), now);
            let was_apart = self.apart.settled(slot);
            if result.is_ok() && !entry.has_key && !self.topics.are_told(entry.lane) {
                lock(&self.connector.learnt).taken(self.topics.name(entry.lane));
            }
            let landed = |offset| Landed { lane: entry.lane, offset };
            let result = result.map(landed).map_err(|failure| match was_apart {
                true => self.judge_apart(&entry, failure, now),
                false => self.judge(&entry, failure),
            });
            let delivery = Delivery { ticket: entry.ticket, result };
            match &mut self.transaction {
                Some(transaction) => transaction.take(delivery, deliveries),
                None => deliveries.push(delivery),
            }
        }
        self.settled = settled;
        if any_acknowledged {
            self.reports.clear_trouble();
        }
    }

    /// How long until something is to be done without news.
    fn due_in(&self, now: Instant) -> Option<Duration> {
        let commit = self.transaction.as_ref().and_then(|open| open.due_in(now));
        [commit, self.gather.due_in(now)].into_iter().flatten().min()
    }

    /// Ends the transaction when it is time, and takes note of how it ended.
    fn advance(&mut self, outcome: Option<Outcome>, deliveries: &mut Vec<Delivery>) {
        let Some(transaction) = &mut self.transaction else { return };
        if let Some(outcome) = outcome {
            self.failed |= outcome != Outcome::Committed;
            if matches!(outcome, Outcome::Lost(_)) {
                self.producer.give_up();
            }
            transaction.ended(outcome, deliveries);
        }
        if let Some(decision) = transaction.due(Instant::now(), self.queue.len(), self.failed) {
            self.producer.end_transaction(decision);
        }
    }

    /// librdkafka purges what a fenced producer has, and names that as the reason.
    fn report_fencing(&mut self, deliveries: &mut [Delivery]) {
        let Some(id) = self.connector.transactional_id() else { return };
        let detail: Arc<str> = format!(
            "another producer took over the transactional.id {id:?}, which fenced this one off; \
             if no other relay of this pipeline runs, give each pipeline of the Kafka cluster its \
             own sink.transactional_id"
        )
        .into();
        for error in deliveries.iter_mut().filter_map(|one| one.result.as_mut().err()) {
            (error.kind, error.detail) = (DeliveryErrorKind::Refused, detail.clone());
        }
        if !std::mem::replace(&mut self.fencing_logged, true) {
            tracing::error!(
                transactional_id = id,
                "fenced: another producer took over the transactional.id; not publishing"
            );
        }
    }

    /// What a failure says about a record that went by itself. What refuses it refuses
    /// no other, and whatever else ends it ends the sink.
    fn judge_apart(&mut self, entry: &Entry, failure: Failure, now: Instant) -> DeliveryError {
        let Failure { mut error, too_large, invalid } = failure;
        if !too_large && error.kind != DeliveryErrorKind::Rejected {
            return self.judge(entry, Failure { error, too_large, invalid });
        }
        if invalid && !entry.has_key && !self.topics.are_told(entry.lane) {
            lock(&self.connector.learnt).refused(self.topics.name(entry.lane), now);
        }
        if too_large {
            let bytes = entry.size.record_bytes;
            error.detail = format!("{}; the record has {bytes} bytes", error.detail).into();
        }
        error.kind = DeliveryErrorKind::RefusedAlone;
        error
    }

    /// What a failure says about its record. The next producer has smaller
    /// batches, where it was the batch that was too large.
    fn judge(
        &mut self,
        entry: &Entry,
        Failure { mut error, too_large: size, .. }: Failure,
    ) -> DeliveryError {
        self.failed = true;
        if self.transaction.is_none() {
            self.producer.give_up();
            self.apart.give_up();
        }
        if size {
            match too_large(entry.size.record_bytes, self.batch_bytes) {
                TooLarge::Record => {
                    let bytes = entry.size.record_bytes;
                    error.kind = DeliveryErrorKind::Rejected;
                    error.detail = format!("{}; the record has {bytes} bytes", error.detail).into();
                }
                TooLarge::Batch => {
                    let limit = self.topics.max_batch_bytes(entry.lane);
                    self.connector.batch_bytes.shrink(self.batch_bytes, limit);
                }
            }
        }
        error
    }
}

impl Sink for KafkaSink {
    const NAME: &'static str = "kafka";

    fn fence_id(&self) -> Option<&str> {
        self.connector.transactional_id()
    }

    async fn fence(&mut self, predecessor: &str) -> Result<(), RelayError> {
        // Whoever had our own id was fenced off when we connected.
        if self.fence_id() == Some(predecessor) {
            return Ok(());
        }
        let (connector, id) = (self.connector.clone(), predecessor.to_owned());
        let stop = StopOnDrop::default();
        let stopped = stop.0.clone();
        let fencing =
            tokio::task::spawn_blocking(move || producer::fence(&connector, &id, &stopped));
        let fenced = fencing.await.map_err(|error| failed(error.to_string()))?;
        fenced.map_err(|why| not_opened(&self.connector, why))
    }

    async fn read_back(
        &mut self,
        topics: Vec<TopicFloors>,
        settle: Option<Duration>,
        mut note: Box<NoteMarks>,
    ) -> Result<(), RelayError> {
        let (connector, stop) = (self.connector.clone(), StopOnDrop::default());
        let stopped = stop.0.clone();
        let reading = tokio::task::spawn_blocking(move || {
            read_back(&connector, &Plan { topics, settle }, &stopped, &mut note)
        });
        let read = reading.await.map_err(|error| failed(error.to_string()))?.map_err(failed)?;
        for TopicRead { name, origin } in read {
            self.topics.add_read(name.clone(), &origin);
            self.producer.ask(name);
        }
        Ok(())
    }

    fn places(&self) -> &[Place] {
        self.topics.places()
    }

    fn allow(&mut self, places: usize) {
        self.topics.allow(places);
    }

    fn set_apart(&mut self, topic: &Arc<str>, apart: bool) -> bool {
        if self.transaction.is_some() {
            return false;
        }
        if apart {
            self.apart.add(topic);
        } else if self.apart.remove(topic) {
            self.topics.begin_anew(topic);
        }
        self.apart.has(topic)
    }

    fn lane_of(&mut self, message: &Message) -> Result<Option<Lane>, String> {
        match self.place(message, Size::of(message)) {
            Ok(lane) => Ok(Some(lane)),
            Err(Refusal::Later | Refusal::Away(_)) => Ok(None),
            Err(Refusal::Never(detail)) => Err(detail),
        }
    }

    fn gather(&mut self, gather: bool) {
        self.gather.turn(gather);
        if !gather {
            self.send_gathered();
        }
    }

    fn hurry(&mut self) {
        self.send_gathered();
        if let Some(transaction) = &mut self.transaction {
            transaction.hurry();
        }
    }

    fn try_send(&mut self, ticket: Ticket, message: Message) -> Result<Lane, Unsent> {
        let offered = self.offer(ticket, message);
        if matches!(offered, Err(Unsent::Full(_))) {
            // Nothing comes behind it that would be worth waiting for.
            self.send_gathered();
        }
        offered
    }

    async fn deliveries(&mut self, deliveries: &mut Vec<Delivery>) {
        match self.due_in(Instant::now()) {
            Some(due_in) => drop(tokio::time::timeout(due_in, self.reports.changed()).await),
            None => self.reports.changed().await,
        }
        if self.failed || self.gather.due_in(Instant::now()) == Some(Duration::ZERO) {
            self.send_gathered();
        }
        // Before the reports, which all come before the outcome.
        let outcome = self.reports.take_outcome();
        self.learn();
        self.settle(deliveries);
        self.advance(outcome, deliveries);
        if self.failed && self.producer.is_fenced() {
            self.report_fencing(deliveries);
        }
    }

    fn outstanding(&self) -> usize {
        self.queue.len() + self.transaction.as_ref().map_or(0, Transaction::held)
    }

    fn trouble(&self) -> Option<String> {
        self.topics.trouble().or_else(|| self.reports.trouble())
    }

    async fn close(mut self) {
        self.apart.end();
        if let Some(released) = self.producer.end()
            && tokio::time::timeout(CLOSE, released).await.is_err()
        {
            tracing::warn!("librdkafka takes longer than 5 s to close; not waiting for it");
        }
    }
}

fn unsent(refusal: Refusal, message: Message) -> Unsent {
    match refusal {
        Refusal::Later => Unsent::Full(Box::new(message)),
        Refusal::Away(detail) => Unsent::Away { message: Box::new(message), detail },
        Refusal::Never(detail) => Unsent::Never { topic: message.topic, detail },
    }
}

/// Ends what blocks a thread and nobody waits for any more.
#[derive(Default)]
struct StopOnDrop(Arc<AtomicBool>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Settings that have never worked do not begin to. Those that have are right,
/// and it is the brokers that change: they are asked again.
fn not_opened(connector: &KafkaConnector, why: NotOpened) -> RelayError {
    match why {
        NotOpened::Other(detail) => failed(detail),
        NotOpened::Access(why) if connector.was_let_in.load(Ordering::Relaxed) => {
            failed(why.to_string())
        }
        NotOpened::Access(NoAccess { problem, remedy }) => {
            RelayError::SinkAccess { problem, remedy: remedy.to_owned() }
        }
    }
}

fn failed(detail: String) -> RelayError {
    RelayError::Sink { detail, transient: true }
}
