use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU8, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use rdkafka::{
    config::FromClientConfigAndContext,
    error::KafkaError,
    message::{Header, OwnedHeaders},
    producer::{BaseProducer, BaseRecord, Producer as _, PurgeConfig},
    types::RDKafkaErrorCode,
};
use tokio::sync::oneshot;
use walpost_event::Message;
use walpost_librdkafka::{NoAccess, without_value};
use walpost_relay::{DeliveryErrorKind, TransactionDecision as Decision};

use crate::{
    brokers::Brokers,
    config::KafkaConnector,
    deliveries::{Context, Reports},
    questions::Questions,
    queue::Slot,
    transactor::Transactor,
};

/// Bound on one call of the polling thread, and so on how late it sees that it
/// should do otherwise.
const POLL: Duration = Duration::from_millis(100);
/// Between two looks at what connections say, before there is one.
const LOOK: Duration = Duration::from_millis(50);
/// For a predecessor's open transaction to be aborted everywhere.
const TAKE_OVER_MAX: Duration = Duration::from_secs(30);

/// librdkafka's producer, with its threads: one polls it and releases it at the
/// end, one asks the brokers about topics, and one ends transactions where there
/// are any.
pub(crate) struct Producer {
    client: Option<Arc<BaseProducer<Context>>>,
    questions: Questions,
    transactor: Option<Transactor>,
    duty: Arc<AtomicU8>,
    released: Option<oneshot::Receiver<()>>,
}

/// Why there is no producer.
#[derive(Debug)]
pub(crate) enum NotOpened {
    /// The brokers let nobody in by these settings.
    Access(NoAccess),
    /// Anything else.
    Other(String),
}

impl From<String> for NotOpened {
    fn from(text: String) -> Self {
        Self::Other(text)
    }
}

/// What the polling thread does; only ever more.
const POLL_ON: u8 = 0;
/// Besides, it takes out of the queue what librdkafka will not send any more.
const GIVE_UP: u8 = 1;
/// It ends.
const STOP: u8 = 2;

/// Why librdkafka did not take a record.
#[derive(Debug)]
pub(crate) enum NotTaken {
    /// Its queue is full.
    Full,
    /// The record is larger than `message.max.bytes` of the client.
    TooLarge,
    /// The producer has ended.
    Ended(String),
    /// A record before it has failed.
    GivenUp,
}

impl NotTaken {
    /// What this says of a record that nobody waits for any more. Whether it is
    /// to blame is found out when it goes alone.
    pub(crate) fn of_gathered(self) -> (DeliveryErrorKind, Arc<str>) {
        match self {
            Self::Full | Self::TooLarge => {
                (DeliveryErrorKind::Rejected, "librdkafka's own limits do not take it".into())
            }
            Self::Ended(detail) => (DeliveryErrorKind::Refused, detail.into()),
            Self::GivenUp => (DeliveryErrorKind::NotSent, "a record before it failed".into()),
        }
    }
}

impl Producer {
    /// Opens a producer and waits until a broker answers. One that writes in
    /// transactions has fenced off every other of its id then. Blocks, at most
    /// until `stopped`.
    ///
    /// # Errors
    /// Why there is none.
    pub(crate) fn open(
        connector: &KafkaConnector,
        reports: Arc<Reports>,
        stopped: &AtomicBool,
    ) -> Result<Self, NotOpened> {
        let client = Arc::new(connect(connector, reports.clone(), stopped)?);
        let no_thread = |error| format!("no thread for the producer: {error}");
        let mut others = Vec::new();
        let mut transactor = None;
        if let Some(id) = connector.transactional_id() {
            take_over(&client, id)?;
            client.begin_transaction().map_err(|error| format!("no transaction: {error}"))?;
            let started = Transactor::start(client.clone(), reports.clone());
            let (started, thread) = started.map_err(no_thread)?;
            transactor = Some(started);
            others.push(thread);
        }
        let denial_said = connector.denial_said.clone();
        let creation = connector.creation.clone();
        let silent = reports.clone();
        let brokers = Brokers {
            producer: client.clone(),
            reports,
            denial_said,
            creation,
            looked: Mutex::default(),
        };
        let started =
            Questions::start(move |question| brokers.ask(question), move || silent.is_silent());
        let (questions, asking) = started.map_err(no_thread)?;
        others.push(asking);
        let duty = Arc::new(AtomicU8::new(POLL_ON));
        let released = poll_on_a_thread(client.clone(), duty.clone(), others);
        let released = released.map_err(|error| {
            questions.stop();
            no_thread(error)
        })?;
        Ok(Self { client: Some(client), questions, transactor, duty, released: Some(released) })
    }

    /// Ends the transaction at hand; its outcome comes with the reports.
    pub(crate) fn end_transaction(&self, decision: Decision) {
        if let Some(transactor) = &self.transactor {
            transactor.end(decision);
        }
    }

    /// Asks for a topic; the answer comes with the reports, again and again
    /// until there is a good one.
    pub(crate) fn ask(&self, topic: Arc<str>) {
        self.questions.ask(topic);
    }

    /// Queues a record. Never waits.
    pub(crate) fn send(
        &self,
        message: &Message,
        partition: i32,
        slot: Slot,
    ) -> Result<(), NotTaken> {
        let Some(client) = &self.client else {
            return Err(NotTaken::Ended("the sink is closed".to_owned()));
        };
        let record = BaseRecord::<[u8], [u8], Slot> {
            topic: &message.topic,
            partition: Some(partition),
            payload: message.value.as_deref(),
            key: message.key.as_deref(),
            timestamp: message.timestamp_ms,
            headers: headers(message),
            delivery_opaque: slot,
        };
        let Err((error, _)) = client.send(record) else { return Ok(()) };
        match error {
            KafkaError::MessageProduction(RDKafkaErrorCode::MessageSizeTooLarge) => {
                Err(NotTaken::TooLarge)
            }
            KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull) => Err(NotTaken::Full),
            error => {
                let fatal = client.client().fatal_error();
                Err(NotTaken::Ended(fatal.map_or_else(|| error.to_string(), |(_, reason)| reason)))
            }
        }
    }

    /// Whether another producer has taken over the `transactional.id`.
    pub(crate) fn is_fenced(&self) -> bool {
        use RDKafkaErrorCode::{Fenced, InvalidProducerEpoch, ProducerFenced};
        let fatal = self.client.as_ref().and_then(|client| client.client().fatal_error());
        matches!(fatal, Some((Fenced | InvalidProducerEpoch | ProducerFenced, _)))
    }

    /// Has what is queued given up, after a delivery failed. What is in flight
    /// gets its answer, and what comes back to the queue from there is given up
    /// as well: librdkafka itself empties the queue once, and would keep that.
    pub(crate) fn give_up(&self) {
        self.duty.fetch_max(GIVE_UP, Ordering::Relaxed);
    }

    /// Has the threads give up what is queued and release the client. The
    /// receiver is told when they have; there is one the first time.
    pub(crate) fn end(&mut self) -> Option<oneshot::Receiver<()>> {
        // The last to let go of the client is a thread of its own, not the
        // caller, who may be a task: letting go may take long.
        self.client = None;
        self.questions.stop();
        self.transactor = None;
        self.duty.fetch_max(STOP, Ordering::Relaxed);
        self.released.take()
    }
}

impl Drop for Producer {
    fn drop(&mut self) {
        self.end();
    }
}

fn connect(
    connector: &KafkaConnector,
    reports: Arc<Reports>,
    stopped: &AtomicBool,
) -> Result<BaseProducer<Context>, NotOpened> {
    let brokers = connector.bootstrap_servers();
    let context = Context { reports };
    let client = BaseProducer::from_config_and_context(&connector.client_config(), context);
    let client: BaseProducer<Context> = client.map_err(|error| {
        let text = without_value(&error);
        let other = || format!("cannot make a producer of the settings: {text}").into();
        NoAccess::in_refusal(&text).map_or_else(other, NotOpened::Access)
    })?;
    let start = Instant::now();
    loop {
        // librdkafka learns the id with the first answer, and forgets it never.
        let has_answered = client.client().fetch_cluster_id(LOOK).is_some();
        if stopped.load(Ordering::Relaxed) {
            // Nor may it fence anybody off.
            return Err("nobody waits for a connection any more".to_owned().into());
        }
        if has_answered {
            break;
        }
        // Serves what the connections have to say.
        client.poll(Duration::ZERO);
        let refusal = client.context().reports.refusal();
        let is_late = start.elapsed() >= connector.connect_timeout;
        match refusal.no_access {
            Some(no_access) if refusal.all_down || is_late => {
                return Err(NotOpened::Access(no_access));
            }
            _ if is_late => {
                let limit_ms = connector.connect_timeout.as_millis();
                let why = refusal.reason.map_or(String::new(), |reason| format!(": {reason}"));
                let text = format!(
                    "no answer from the brokers at {brokers} within {limit_ms} ms{why}; they may \
                     be down, or security.protocol is not that of the listener"
                );
                return Err(text.into());
            }
            _ => {}
        }
    }
    client.context().reports.answered();
    client.context().reports.clear_trouble();
    connector.was_let_in.store(true, Ordering::Relaxed);
    Ok(client)
}

/// Fences off whoever writes under this `transactional.id`, and has its open
/// transaction aborted. Blocks.
///
/// # Errors
/// Why it cannot be known that the other one is fenced off.
pub(crate) fn fence(
    connector: &KafkaConnector,
    id: &str,
    stopped: &AtomicBool,
) -> Result<(), NotOpened> {
    let connector = connector.clone().transactional(id, Duration::ZERO);
    let connector = connector.map_err(|error| error.to_string())?;
    let client = connect(&connector, Arc::new(connector.reports()), stopped)?;
    Ok(take_over(&client, id)?)
}

fn take_over(client: &BaseProducer<Context>, id: &str) -> Result<(), String> {
    client.init_transactions(TAKE_OVER_MAX).map_err(|error| {
        format!(
            "cannot take over the transactional.id {id:?}: {error}; the user needs the rights \
             Describe and Write on it"
        )
    })
}

fn headers(message: &Message) -> Option<OwnedHeaders> {
    if message.headers.is_empty() {
        return None;
    }
    let headers = OwnedHeaders::new_with_capacity(message.headers.len());
    Some(message.headers.iter().fold(headers, |headers, header| {
        headers.insert(Header { key: &header.name, value: header.value.as_deref() })
    }))
}

fn poll_on_a_thread(
    client: Arc<BaseProducer<Context>>,
    duty: Arc<AtomicU8>,
    others: Vec<JoinHandle<()>>,
) -> std::io::Result<oneshot::Receiver<()>> {
    let (released, receiver) = oneshot::channel();
    std::thread::Builder::new().name("kafka-producer".to_owned()).spawn(move || {
        loop {
            match duty.load(Ordering::Relaxed) {
                POLL_ON => {}
                GIVE_UP => client.purge(PurgeConfig::default().queue().non_blocking()),
                _ => break,
            }
            client.poll(POLL);
        }
        // First of all: what is queued must not follow a successor's records.
        client.purge(PurgeConfig::default().queue().inflight());
        for other in others {
            let name = other.thread().name().unwrap_or_default().to_owned();
            if other.join().is_err() {
                tracing::warn!(thread = name, "a thread of the sink has panicked");
            }
        }
        drop(client);
        let _ = released.send(());
    })?;
    Ok(receiver)
}
